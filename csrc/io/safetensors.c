// SPDX-License-Identifier: MIT
#include "io/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "io/codec.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the file's bytes are mapped as they are: a big-endian machine would have to swap them"
#endif

// The reference's bound on the header.
#define HEADER_MAX 100000000
// Values in the header, by which the memory for its parsed form is bounded (about 100 bytes each).
#define VALUES_MAX 10000000
#define METADATA   "__metadata__"

static const struct {
  const char *name;
  cnn_dtype dtype;
} dtypes[] = {{"F32", CNN_F32}, {"F64", CNN_F64},  {"F16", CNN_F16}, {"BF16", CNN_BF16},
              {"I64", CNN_I64}, {"I32", CNN_I32},  {"I16", CNN_I16}, {"I8", CNN_I8},
              {"U8", CNN_U8},   {"BOOL", CNN_BOOL}};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

// --- Reading ------------------------------------------------------------------------------------

typedef struct record {
  const char *name; // inside the parsed header
  cnn_meta meta;
  uint64_t begin, end;
} record;

typedef struct reader {
  cnn_context *ctx;
  const char *path;
  cnn_mapping *mapping;
  const cnn_codec *codec;
  char *text; // the header, NUL-terminated
  cnn_json *root;
  uint64_t data, data_bytes; // where the tensors' bytes start, and how many there are
  int64_t n;
  record *records;
} reader;

static cnn_status no_memory(reader *r) {
  return cnn_fail(r->ctx, CNN_OOM, "out of memory while reading the header of %s", r->path);
}

// cJSON is lenient about the bytes of a text and about nesting; and it builds a tree of any size.
static cnn_status survey_header(reader *r, size_t length) {
  const char *text = r->text;
  int depth = 0;
  int64_t values = 0;
  bool quoted = false;
  if (text[0] != '{')
    return cnn_file_fail(r->ctx, r->path,
                         "no safetensors file: its header does not start with \"{\"");
  if (!cnn_utf8_valid(text, length))
    return cnn_file_fail(r->ctx, r->path, "the header is no UTF-8 text");
  for (size_t i = 0; i < length; i++) {
    if (quoted) {
      if (text[i] == '\\' && strncmp(text + i, "\\u0000", 6) == 0)
        return cnn_file_fail(r->ctx, r->path, "the header has a NUL character in a name or text");
      if (text[i] == '\\')
        i++;
      else if (text[i] == '"')
        quoted = false;
      continue;
    }
    switch (text[i]) {
    case '"': quoted = true; break;
    case '{':
    case '[': depth++, values++; break;
    case '}':
    case ']': depth--; break;
    case ',': values++; break;
    default: break;
    }
    if (depth > 3) return cnn_file_fail(r->ctx, r->path, "the header is nested too deep");
  }
  if (values > VALUES_MAX)
    return cnn_file_fail(r->ctx, r->path, "the header lists too many values (%" PRId64 ")", values);
  return CNN_OK;
}

static cnn_status parse_header(reader *r) {
  const unsigned char *raw = (const unsigned char *)r->mapping->data;
  uint64_t length = 0, bytes = r->mapping->bytes;
  if (bytes < 8)
    return cnn_file_fail(r->ctx, r->path,
                         "no safetensors file: it has %" PRIu64 " bytes, fewer than the 8 of the "
                         "header's length",
                         bytes);
  for (int i = 0; i < 8; i++) length |= (uint64_t)raw[i] << (8 * i);
  if (length > HEADER_MAX)
    return cnn_file_fail(r->ctx, r->path,
                         "no safetensors file: the header's length would be %" PRIu64
                         " bytes (at most %d are allowed)",
                         length, HEADER_MAX);
  if (length > bytes - 8)
    return cnn_file_fail(r->ctx, r->path,
                         "truncated: the header should have %" PRIu64 " bytes, but only %" PRIu64
                         " follow",
                         length, bytes - 8);
  r->data = 8 + length;
  r->data_bytes = bytes - r->data;
  r->text = cnn_malloc(length + 1);
  if (!r->text) return no_memory(r);
  memcpy(r->text, raw + 8, length);
  r->text[length] = '\0';
  CNN_TRY(survey_header(r, length));
  int64_t error_at = 0;
  r->root = r->codec->json_parse(r->text, &error_at);
  if (r->root) return CNN_OK;
  if (error_at < 0) return no_memory(r);
  return cnn_file_fail(r->ctx, r->path, "the header is no JSON text (at its byte %" PRId64 ")",
                       error_at);
}

// A whole number >= 0 that a double holds exactly.
static bool read_size(const cnn_codec *codec, const cnn_json *value, uint64_t *out) {
  if (codec->json_kind(value) != CNN_JSON_NUMBER) return false;
  double d = codec->json_number(value);
  if (!(d >= 0 && d <= 0x1p53) || d != (double)(uint64_t)d) return false;
  *out = (uint64_t)d;
  return true;
}

static cnn_status read_dtype(reader *r, record *t, const cnn_json *value) {
  const char *name =
      r->codec->json_kind(value) == CNN_JSON_STRING ? r->codec->json_text(value) : NULL;
  if (!name)
    return cnn_file_fail(r->ctx, r->path, "tensor \"%.100s\": its dtype is no text", t->name);
  for (int i = 0; i < N_DTYPES; i++) {
    if (strcmp(name, dtypes[i].name) != 0) continue;
    t->meta.dtype = dtypes[i].dtype;
    return CNN_OK;
  }
  return cnn_file_fail(
      r->ctx, r->path,
      "tensor \"%.100s\": dtype \"%.20s\" is not supported (F64, F32, F16, BF16, I64, "
      "I32, I16, I8, U8 and BOOL are)",
      t->name, name);
}

static cnn_status read_shape(reader *r, record *t, const cnn_json *value) {
  int n = 0;
  uint64_t size;
  if (r->codec->json_kind(value) != CNN_JSON_LIST)
    return cnn_file_fail(r->ctx, r->path, "tensor \"%.100s\": its shape is no list", t->name);
  for (const cnn_json *v = r->codec->json_first(value); v; v = r->codec->json_next(v)) {
    if (n == CNN_MAX_DIMS)
      return cnn_file_fail(r->ctx, r->path, "tensor \"%.100s\": it has more than %d dims", t->name,
                           CNN_MAX_DIMS);
    if (!read_size(r->codec, v, &size))
      return cnn_file_fail(r->ctx, r->path,
                           "tensor \"%.100s\": a size in its shape is no whole number >= 0",
                           t->name);
    t->meta.shape[n++] = (int64_t)size;
  }
  t->meta.ndim = n;
  return CNN_OK;
}

static cnn_status read_offsets(reader *r, record *t, const cnn_json *value) {
  const cnn_json *first = NULL, *second = NULL;
  if (r->codec->json_kind(value) == CNN_JSON_LIST) first = r->codec->json_first(value);
  if (first) second = r->codec->json_next(first);
  if (!second || r->codec->json_next(second) || !read_size(r->codec, first, &t->begin) ||
      !read_size(r->codec, second, &t->end))
    return cnn_file_fail(r->ctx, r->path,
                         "tensor \"%.100s\": its data_offsets are not two whole numbers >= 0",
                         t->name);
  if (t->begin > t->end || t->end > r->data_bytes)
    return cnn_file_fail(r->ctx, r->path,
                         "tensor \"%.100s\": its data_offsets [%" PRIu64 ", %" PRIu64
                         "] do not lie in the %" PRIu64 " bytes of data: truncated or damaged",
                         t->name, t->begin, t->end, r->data_bytes);
  return CNN_OK;
}

static cnn_status read_record(reader *r, record *t, const cnn_json *value) {
  const cnn_codec *codec = r->codec;
  unsigned seen = 0;
  if (codec->json_kind(value) != CNN_JSON_OBJECT)
    return cnn_file_fail(r->ctx, r->path, "tensor \"%.100s\": its description is no object",
                         t->name);
  for (const cnn_json *v = codec->json_first(value); v; v = codec->json_next(v)) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    const char *key = codec->json_key(v);
    int k = 0;
    while (k < 3 && strcmp(key, keys[k]) != 0) k++;
    if (k == 3 || seen & 1u << k)
      return cnn_file_fail(r->ctx, r->path, "tensor \"%.100s\": its description has %s \"%.40s\"",
                           t->name, k == 3 ? "an unknown key" : "twice the key", key);
    seen |= 1u << k;
    CNN_TRY(k == 0 ? read_dtype(r, t, v) : k == 1 ? read_shape(r, t, v) : read_offsets(r, t, v));
  }
  if (seen != 7)
    return cnn_file_fail(r->ctx, r->path,
                         "tensor \"%.100s\": its description lacks dtype, shape or data_offsets",
                         t->name);
  int64_t numel = cnn_shape_numel(t->meta.ndim, t->meta.shape), bytes;
  cnn_shape_text shape;
  if (numel < 0 || __builtin_mul_overflow(numel, (int64_t)cnn_dtype_size(t->meta.dtype), &bytes))
    return cnn_file_fail(r->ctx, r->path, "tensor \"%.100s\": its shape %s is too large", t->name,
                         cnn_shape_format(&shape, t->meta.ndim, t->meta.shape));
  if ((uint64_t)bytes != t->end - t->begin)
    return cnn_file_fail(r->ctx, r->path,
                         "tensor \"%.100s\": shape %s of %s takes %" PRId64
                         " bytes, but data_offsets give %" PRIu64,
                         t->name, cnn_shape_format(&shape, t->meta.ndim, t->meta.shape),
                         cnn_dtype_name(t->meta.dtype), bytes, t->end - t->begin);
  cnn_device cpu = {CNN_CPU, 0};
  cnn_meta_set(&t->meta, t->meta.dtype, cpu, t->meta.ndim, t->meta.shape);
  return CNN_OK;
}

static cnn_status read_metadata(reader *r, const cnn_json *value, cnn_archive *out) {
  const cnn_codec *codec = r->codec;
  if (codec->json_kind(value) != CNN_JSON_OBJECT)
    return cnn_file_fail(r->ctx, r->path, METADATA " is no object");
  for (const cnn_json *v = codec->json_first(value); v; v = codec->json_next(v)) {
    if (codec->json_kind(v) != CNN_JSON_STRING)
      return cnn_file_fail(r->ctx, r->path, METADATA ": the value of \"%.80s\" is no text",
                           codec->json_key(v));
    CNN_TRY(cnn_archive_add_text(r->ctx, out, codec->json_key(v), codec->json_text(v)));
  }
  const char *name, *key;
  CNN_TRY(cnn_archive_duplicates(r->ctx, out, &name, &key));
  if (key) return cnn_file_fail(r->ctx, r->path, METADATA " has the key \"%.80s\" twice", key);
  return CNN_OK;
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const record *)a)->name, ((const record *)b)->name);
}

static int by_place(const void *a, const void *b) {
  const record *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  if (x->end != y->end) return x->end < y->end ? -1 : 1;
  return strcmp(x->name, y->name);
}

// The format wants every byte of the data to belong to exactly one tensor.
static cnn_status check_records(reader *r) {
  qsort(r->records, (size_t)r->n, sizeof *r->records, by_name);
  for (int64_t i = 1; i < r->n; i++)
    if (strcmp(r->records[i - 1].name, r->records[i].name) == 0)
      return cnn_file_fail(r->ctx, r->path, "tensor \"%.100s\" is in the header twice",
                           r->records[i].name);
  qsort(r->records, (size_t)r->n, sizeof *r->records, by_place);
  uint64_t at = 0;
  for (int64_t i = 0; i < r->n; i++) {
    const record *t = &r->records[i];
    if (t->begin != at)
      return cnn_file_fail(r->ctx, r->path,
                           "tensor \"%.100s\" starts at byte %" PRIu64
                           " of the data, %s byte %" PRIu64,
                           t->name, t->begin,
                           t->begin < at ? "inside another one that ends at" : "leaving a gap from",
                           at);
    at = t->end;
  }
  if (at != r->data_bytes)
    return cnn_file_fail(r->ctx, r->path,
                         "the tensors end at byte %" PRIu64 " of the data, which has %" PRIu64, at,
                         r->data_bytes);
  return CNN_OK;
}

static cnn_status read_records(reader *r, cnn_archive *out) {
  const cnn_codec *codec = r->codec;
  const cnn_json *first = codec->json_first(r->root), *metadata = NULL;
  int64_t count = 0;
  for (const cnn_json *v = first; v; v = codec->json_next(v)) count++;
  r->records = cnn_calloc((size_t)(count + 1) * sizeof *r->records);
  if (!r->records) return no_memory(r);
  for (const cnn_json *v = first; v; v = codec->json_next(v)) {
    const char *name = codec->json_key(v);
    if (strcmp(name, METADATA) == 0) {
      if (metadata) return cnn_file_fail(r->ctx, r->path, METADATA " is in the header twice");
      metadata = v;
      CNN_TRY(read_metadata(r, v, out));
      continue;
    }
    record *t = &r->records[r->n++];
    t->name = name;
    CNN_TRY(read_record(r, t, v));
  }
  return check_records(r);
}

// The core's bool elements are 0 or 1, and its kernels rely on it.
static cnn_status check_bools(reader *r, const record *t) {
  const unsigned char *p = (const unsigned char *)r->mapping->data + r->data;
  for (uint64_t i = t->begin; i < t->end; i++)
    if (p[i] > 1)
      return cnn_file_fail(r->ctx, r->path, "tensor \"%.100s\": a BOOL is %d, neither 0 nor 1",
                           t->name, p[i]);
  return CNN_OK;
}

static cnn_status make_tensors(reader *r, bool copy, cnn_archive *out) {
  for (int64_t i = 0; i < r->n; i++) {
    const record *t = &r->records[i];
    cnn_tensor *tensor;
    if (t->meta.dtype == CNN_BOOL) CNN_TRY(check_bools(r, t));
    CNN_TRY(cnn_mapping_tensor(r->ctx, r->mapping, r->data + t->begin, &t->meta, copy, &tensor));
    cnn_status status = cnn_archive_add(r->ctx, out, t->name, tensor);
    cnn_unref(tensor);
    CNN_TRY(status);
  }
  return CNN_OK;
}

static cnn_status load(reader *r, bool copy, cnn_archive *out) {
  CNN_TRY(parse_header(r));
  if (r->codec->json_kind(r->root) != CNN_JSON_OBJECT)
    return cnn_file_fail(r->ctx, r->path, "the header is no JSON object");
  CNN_TRY(read_records(r, out));
  return make_tensors(r, copy, out);
}

cnn_status cnn_safetensors_load(cnn_context *ctx, const char *path, cnn_mapping *mapping, bool copy,
                                cnn_archive *out) {
  reader r = {.ctx = ctx, .path = path, .mapping = mapping};
  r.codec = cnn_codec_get(ctx, "reading safetensors files");
  if (!r.codec) return ctx->code;
  cnn_status status = load(&r, copy, out);
  if (r.root) r.codec->json_free(r.root);
  cnn_free(r.records);
  cnn_free(r.text);
  if (status != CNN_OK) cnn_archive_free(out);
  return status;
}

// --- Writing ------------------------------------------------------------------------------------

// The header under construction; it may also only be counted.
typedef struct text {
  char *data;
  size_t n;
} text;

static void put(text *t, const char *s, size_t n) {
  if (t->data) memcpy(t->data + t->n, s, n);
  t->n += n;
}

static void put_string(text *t, const char *s) {
  put(t, s, strlen(s));
}

static void put_quoted(text *t, const char *s) {
  char escape[8];
  put(t, "\"", 1);
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\')
      put(t, "\\", 1), put(t, s, 1);
    else if (c < 0x20)
      put(t, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", c));
    else
      put(t, s, 1);
  }
  put(t, "\"", 1);
}

static const char *dtype_name(cnn_dtype dtype) {
  for (int i = 0; i < N_DTYPES; i++)
    if (dtypes[i].dtype == dtype) return dtypes[i].name;
  return NULL;
}

static size_t tensor_bytes(const cnn_tensor *t) {
  return (size_t)cnn_numel(t) * cnn_dtype_size((cnn_dtype)t->dtype);
}

// Writes or counts the header; the data follows in the order of `order`.
static void put_header(text *t, const cnn_archive *a, const int64_t *order) {
  char number[64];
  uint64_t at = 0;
  const char *comma = "";
  put_string(t, "{");
  if (a->n_texts > 0) {
    put_string(t, "\"" METADATA "\":{");
    for (int64_t i = 0; i < a->n_texts; i++) {
      put_string(t, i ? "," : "");
      put_quoted(t, a->texts[i].key);
      put_string(t, ":");
      put_quoted(t, a->texts[i].value);
    }
    put_string(t, "}");
    comma = ",";
  }
  for (int64_t i = 0; i < a->n; i++) {
    const cnn_archive_entry *e = &a->entries[order[i]];
    put_string(t, comma);
    comma = ",";
    put_quoted(t, e->name);
    put_string(t, ":{\"dtype\":\"");
    put_string(t, dtype_name((cnn_dtype)e->tensor->dtype));
    put_string(t, "\",\"shape\":[");
    for (int d = 0; d < e->tensor->ndim; d++) {
      snprintf(number, sizeof number, d ? ",%" PRId64 : "%" PRId64, e->tensor->shape[d]);
      put_string(t, number);
    }
    uint64_t end = at + tensor_bytes(e->tensor);
    snprintf(number, sizeof number, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, end);
    put_string(t, number);
    at = end;
  }
  put_string(t, "}");
  // The data starts at a multiple of 8, as the reference pads it.
  while (t->n % 8 != 0) put(t, " ", 1);
}

// Large elements first, so that each tensor is aligned for its dtype.
static void sort_entries(const cnn_archive *a, int64_t *order) {
  int64_t at = 0;
  for (size_t size = 8; size > 0; size /= 2)
    for (int64_t i = 0; i < a->n; i++)
      if (cnn_dtype_size((cnn_dtype)a->entries[i].tensor->dtype) == size) order[at++] = i;
}

static cnn_status write_file(cnn_context *ctx, const char *path, const cnn_archive *a,
                             const int64_t *order, const text *header) {
  cnn_writer w;
  unsigned char length[8];
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)(header->n >> (8 * i));
  CNN_TRY(cnn_writer_open(ctx, path, &w));
  cnn_status status = cnn_writer_put(ctx, &w, length, sizeof length);
  if (status == CNN_OK) status = cnn_writer_put(ctx, &w, header->data, header->n);
  for (int64_t i = 0; i < a->n && status == CNN_OK; i++)
    status = cnn_writer_put_tensor(ctx, &w, a->entries[order[i]].tensor);
  if (status == CNN_OK) return cnn_writer_commit(ctx, &w);
  cnn_writer_abandon(&w);
  return status;
}

cnn_status cnn_safetensors_save(cnn_context *ctx, const char *path, const cnn_archive *a) {
  text header = {NULL, 0};
  cnn_status status = CNN_OK;
  CNN_TRY(cnn_archive_check(ctx, a));
  for (int64_t i = 0; i < a->n; i++)
    if (strcmp(a->entries[i].name, METADATA) == 0)
      return cnn_fail(ctx, CNN_INVALID, "no tensor can be named \"" METADATA "\" in a file");
  int64_t *order = cnn_malloc((size_t)(a->n + 1) * sizeof *order);
  if (!order) return cnn_fail(ctx, CNN_OOM, "out of memory while writing %s", path);
  sort_entries(a, order);
  put_header(&header, a, order); // only counts
  if (header.n > HEADER_MAX) {
    status = cnn_fail(ctx, CNN_INVALID,
                      "%s: the names and texts would take a header of %zu bytes; at most %d are "
                      "allowed",
                      path, header.n, HEADER_MAX);
  } else if (!(header.data = cnn_malloc(header.n))) {
    status = cnn_fail(ctx, CNN_OOM, "out of memory while writing %s", path);
  } else {
    header.n = 0;
    put_header(&header, a, order);
    status = write_file(ctx, path, a, order, &header);
  }
  cnn_free(header.data);
  cnn_free(order);
  return status;
}
