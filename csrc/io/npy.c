// SPDX-License-Identifier: MIT
#include "io/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC_BYTES 6
#define HEADER_MAX  (1 << 20)

static const struct {
  char kind;
  char size;
  cnn_dtype dtype;
} dtypes[] = {{'f', '4', CNN_F32}, {'f', '8', CNN_F64}, {'f', '2', CNN_F16},
              {'i', '8', CNN_I64}, {'i', '4', CNN_I32}, {'i', '2', CNN_I16},
              {'i', '1', CNN_I8},  {'u', '1', CNN_U8},  {'b', '1', CNN_BOOL}};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

// --- The header ---------------------------------------------------------------------------------

typedef struct parser {
  cnn_context *ctx;
  const char *path, *member;
  const char *p, *end;
} parser;

static cnn_status bad(const parser *s, const char *what) {
  return cnn_file_fail(s->ctx, s->path, "%.100s%s%s", s->member, *s->member ? ": " : "", what);
}

static void skip_spaces(parser *s) {
  while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r')) s->p++;
}

static bool take(parser *s, char c) {
  skip_spaces(s);
  if (s->p == s->end || *s->p != c) return false;
  s->p++;
  return true;
}

static bool take_word(parser *s, const char *word) {
  size_t n = strlen(word);
  skip_spaces(s);
  if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0) return false;
  s->p += n;
  return true;
}

// A quoted text without escapes, into `out`.
static bool take_text(parser *s, char *out, size_t size) {
  skip_spaces(s);
  if (s->p == s->end || (*s->p != '\'' && *s->p != '"')) return false;
  char quote = *s->p++;
  size_t n = 0;
  while (s->p < s->end && *s->p != quote) {
    if (*s->p == '\\' || n + 1 >= size) return false;
    out[n++] = *s->p++;
  }
  if (s->p == s->end) return false;
  s->p++;
  out[n] = '\0';
  return true;
}

static bool take_size(parser *s, int64_t *out) {
  int64_t v = 0;
  skip_spaces(s);
  if (s->p == s->end || *s->p < '0' || *s->p > '9') return false;
  for (; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++)
    if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *s->p - '0', &v))
      return false;
  *out = v;
  return true;
}

static cnn_status read_descr(parser *s, cnn_npy *npy) {
  char text[32];
  if (!take_text(s, text, sizeof text))
    return bad(s, "its elements are records: only plain arrays can be read");
  char order = text[0], kind = order ? text[1] : '\0', size = kind ? text[2] : '\0';
  if (kind == 'O' || order == 'O')
    return bad(s, "it holds Python objects (a pickle), which are never read");
  for (int i = 0; i < N_DTYPES; i++) {
    if (kind != dtypes[i].kind || size != dtypes[i].size || text[3]) continue;
    if (!strchr(size == '1' ? "|<>=" : "<>=", order)) break;
    npy->meta.dtype = dtypes[i].dtype;
    npy->swapped = order == '>' && size != '1';
    return CNN_OK;
  }
  char message[160];
  snprintf(message, sizeof message,
           "elements of type '%s' are not supported (f2, f4, f8, i1, i2, i4, i8, u1 and b1 are)",
           text);
  return bad(s, message);
}

static cnn_status read_shape(parser *s, cnn_npy *npy) {
  int n = 0;
  if (!take(s, '(')) return bad(s, "its shape is no tuple");
  while (!take(s, ')')) {
    if (n == CNN_MAX_DIMS) return bad(s, "it has more than 8 dims");
    if (!take_size(s, &npy->meta.shape[n++])) return bad(s, "a size in its shape is no number");
    if (take(s, ',')) continue;
    if (!take(s, ')')) return bad(s, "its shape is no tuple");
    break;
  }
  npy->meta.ndim = n;
  return CNN_OK;
}

static cnn_status read_dict(parser *s, cnn_npy *npy, bool *fortran) {
  unsigned seen = 0;
  if (!take(s, '{')) return bad(s, "its header is no dict");
  while (!take(s, '}')) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[32];
    int k = 0;
    if (!take_text(s, key, sizeof key) || !take(s, ':')) return bad(s, "its header is damaged");
    while (k < 3 && strcmp(key, keys[k]) != 0) k++;
    if (k == 3 || seen & 1u << k) return bad(s, "its header has an unknown key, or one twice");
    seen |= 1u << k;
    if (k == 0)
      CNN_TRY(read_descr(s, npy));
    else if (k == 2)
      CNN_TRY(read_shape(s, npy));
    else if (take_word(s, "True"))
      *fortran = true;
    else if (take_word(s, "False"))
      *fortran = false;
    else
      return bad(s, "fortran_order is neither True nor False");
    if (!take(s, ',') && (s->p == s->end || *s->p != '}')) return bad(s, "its header is damaged");
  }
  if (seen != 7) return bad(s, "its header lacks descr, fortran_order or shape");
  skip_spaces(s);
  return s->p == s->end ? CNN_OK : bad(s, "its header is damaged");
}

// Column-major elements are a view with the strides the other way round.
static void set_strides(cnn_meta *meta, bool fortran) {
  cnn_device cpu = {CNN_CPU, 0};
  cnn_meta_set(meta, meta->dtype, cpu, meta->ndim, meta->shape);
  int64_t step = 1;
  for (int d = 0; d < meta->ndim && fortran; d++) {
    meta->strides[d] = step;
    step *= meta->shape[d] ? meta->shape[d] : 1;
  }
}

cnn_status cnn_npy_parse(cnn_context *ctx, const char *path, const char *member, const char *file,
                         size_t bytes, cnn_npy *out) {
  const unsigned char *raw = (const unsigned char *)file;
  parser s = {ctx, path, member, NULL, NULL};
  bool fortran = false;
  memset(out, 0, sizeof *out);
  if (bytes < MAGIC_BYTES + 4 || memcmp(file, CNN_NPY_MAGIC, MAGIC_BYTES) != 0)
    return bad(&s, "no npy file: it does not start with \"\\x93NUMPY\"");
  int version = raw[MAGIC_BYTES];
  size_t start = version == 1 ? MAGIC_BYTES + 4 : MAGIC_BYTES + 6;
  if (version < 1 || version > 3) return bad(&s, "an npy version that is not known (1 to 3 are)");
  if (bytes < start) return bad(&s, "truncated in its header");
  size_t length = raw[8] | (size_t)raw[9] << 8;
  if (version > 1) length |= (size_t)raw[10] << 16 | (size_t)raw[11] << 24;
  if (length > HEADER_MAX) return bad(&s, "its header would be too long");
  if (length > bytes - start) return bad(&s, "truncated in its header");
  s.p = file + start;
  s.end = s.p + length;
  CNN_TRY(read_dict(&s, out, &fortran));
  int64_t numel = cnn_shape_numel(out->meta.ndim, out->meta.shape), needed;
  if (numel < 0 || __builtin_mul_overflow(numel, (int64_t)cnn_dtype_size(out->meta.dtype), &needed))
    return bad(&s, "its shape is too large");
  out->data = start + length;
  out->bytes = (size_t)needed;
  if (out->bytes != bytes - out->data) {
    char message[160];
    snprintf(message, sizeof message, "%s: its elements take %zu bytes, but %zu follow the header",
             out->bytes > bytes - out->data ? "truncated" : "damaged", out->bytes,
             bytes - out->data);
    return bad(&s, message);
  }
  set_strides(&out->meta, fortran);
  return CNN_OK;
}

cnn_status cnn_npy_finish(cnn_context *ctx, const char *path, const cnn_npy *npy, cnn_tensor *t) {
  char *p = cnn_data(t);
  if (npy->swapped) cnn_swap_bytes(p, npy->bytes, cnn_dtype_size(npy->meta.dtype));
  for (size_t i = 0; i < npy->bytes && npy->meta.dtype == CNN_BOOL; i++)
    if ((unsigned char)p[i] > 1)
      return cnn_file_fail(ctx, path, "a bool is %d, neither 0 nor 1", (unsigned char)p[i]);
  return CNN_OK;
}

cnn_status cnn_npy_load(cnn_context *ctx, const char *path, cnn_mapping *mapping, bool copy,
                        cnn_tensor **out) {
  cnn_npy npy;
  cnn_tensor *t;
  CNN_TRY(cnn_npy_parse(ctx, path, "", mapping->data, mapping->bytes, &npy));
  CNN_TRY(cnn_mapping_tensor(ctx, mapping, npy.data, &npy.meta, copy, &t));
  cnn_status status = cnn_npy_finish(ctx, path, &npy, t);
  if (status == CNN_OK)
    *out = t;
  else
    cnn_unref(t);
  return status;
}

// --- Writing ------------------------------------------------------------------------------------

cnn_status cnn_npy_put(cnn_context *ctx, cnn_writer *w, const cnn_tensor *t) {
  char header[512], descr[4] = "";
  for (int i = 0; i < N_DTYPES; i++)
    if (dtypes[i].dtype == t->dtype)
      snprintf(descr, sizeof descr, "%c%c%c", dtypes[i].size == '1' ? '|' : '<', dtypes[i].kind,
               dtypes[i].size);
  if (!descr[0])
    return cnn_fail(ctx, CNN_DTYPE,
                    "NumPy's files have no %s: convert the tensor to float32, or save safetensors",
                    cnn_dtype_name((cnn_dtype)t->dtype));
  memcpy(header, CNN_NPY_MAGIC "\x01", MAGIC_BYTES + 2); // version 1.0
  size_t at = MAGIC_BYTES + 4;
  at += (size_t)snprintf(header + at, sizeof header - at,
                         "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
  for (int d = 0; d < t->ndim; d++)
    at += (size_t)snprintf(header + at, sizeof header - at, d ? " %" PRId64 "," : "%" PRId64 ",",
                           t->shape[d]);
  if (t->ndim > 1) at--; // only a single size keeps its comma
  at += (size_t)snprintf(header + at, sizeof header - at, "), }");
  while (at % 64 != 63) header[at++] = ' ';
  header[at++] = '\n';
  size_t length = at - MAGIC_BYTES - 4;
  header[MAGIC_BYTES + 2] = (char)(length & 255);
  header[MAGIC_BYTES + 3] = (char)(length >> 8);
  CNN_TRY(cnn_writer_put(ctx, w, header, at));
  return cnn_writer_put_tensor(ctx, w, t);
}

cnn_status cnn_npy_save(cnn_context *ctx, const char *path, const cnn_tensor *t) {
  cnn_writer w;
  if (t->device.type != CNN_CPU)
    return cnn_fail(ctx, CNN_DEVICE, "the tensor is on %s: only CPU tensors can be saved",
                    cnn_device_name(t->device));
  CNN_TRY(cnn_writer_open(ctx, path, &w));
  cnn_status status = cnn_npy_put(ctx, &w, t);
  if (status == CNN_OK) return cnn_writer_commit(ctx, &w);
  cnn_writer_abandon(&w);
  return status;
}
