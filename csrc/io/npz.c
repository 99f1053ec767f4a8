// SPDX-License-Identifier: MIT
#include "io/npz.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "io/codec.h"
#include "io/npy.h"

enum {
  END_BYTES = 22, // end of central directory
  LOCATOR_BYTES = 20,
  END64_BYTES = 56,
  MEMBER_BYTES = 46, // a central directory header
  LOCAL_BYTES = 30,
  COMMENT_MAX = 65535,
  NAME_MAX_BYTES = 4096,
  STORED = 0,
  DEFLATED = 8,
  FLAG_ENCRYPTED = 1,
  FLAG_UTF8 = 0x800,
};
static const uint32_t END_MARK = 0x06054b50, LOCATOR_MARK = 0x07064b50, END64_MARK = 0x06064b50,
                      MEMBER_MARK = 0x02014b50, LOCAL_MARK = 0x04034b50;

// --- Reading ------------------------------------------------------------------------------------

typedef struct reader {
  cnn_context *ctx;
  const char *path;
  cnn_mapping *mapping;
  const cnn_codec *codec;
  bool copy;
  uint64_t count, directory, directory_bytes; // the central directory
  uint64_t packed; // bytes of the members so far: they can't be more than the file has
} reader;

typedef struct member {
  char name[NAME_MAX_BYTES];
  unsigned flags, method;
  uint32_t crc;
  uint64_t packed, bytes, local; // compressed and plain size, place of the local header
  const char *data;
} member;

static uint64_t get(const reader *r, uint64_t at, int bytes) {
  const unsigned char *p = (const unsigned char *)r->mapping->data + at;
  uint64_t v = 0;
  for (int i = 0; i < bytes; i++) v |= (uint64_t)p[i] << (8 * i);
  return v;
}

static cnn_status damaged(const reader *r, const char *what) {
  return cnn_file_fail(r->ctx, r->path, "a truncated or damaged zip archive: %s", what);
}

static cnn_status bad_member(const reader *r, const member *m, const char *what) {
  return cnn_file_fail(r->ctx, r->path, "\"%.100s\": %s", m->name, what);
}

// Whether [at, at + n) lies in the file.
static bool inside(const reader *r, uint64_t at, uint64_t n) {
  return at <= r->mapping->bytes && n <= r->mapping->bytes - at;
}

static cnn_status find_directory(reader *r) {
  uint64_t size = r->mapping->bytes, at;
  if (size < END_BYTES) return damaged(r, "it is too short");
  uint64_t lowest = size > END_BYTES + COMMENT_MAX ? size - END_BYTES - COMMENT_MAX : 0;
  for (at = size - END_BYTES;; at--) {
    if (get(r, at, 4) == END_MARK && at + END_BYTES + get(r, at + 20, 2) == size) break;
    if (at == lowest) return damaged(r, "its directory is missing");
  }
  r->count = get(r, at + 10, 2);
  r->directory_bytes = get(r, at + 12, 4);
  r->directory = get(r, at + 16, 4);
  uint64_t limit = at;
  if (r->count == 0xffff || r->directory_bytes == 0xffffffff || r->directory == 0xffffffff) {
    if (at < LOCATOR_BYTES || get(r, at - LOCATOR_BYTES, 4) != LOCATOR_MARK)
      return damaged(r, "its 64-bit directory is missing");
    uint64_t end = get(r, at - LOCATOR_BYTES + 8, 8);
    if (!inside(r, end, END64_BYTES) || get(r, end, 4) != END64_MARK)
      return damaged(r, "its 64-bit directory is missing");
    r->count = get(r, end + 32, 8);
    r->directory_bytes = get(r, end + 40, 8);
    r->directory = get(r, end + 48, 8);
    limit = end;
  }
  if (r->directory > limit || r->directory_bytes > limit - r->directory)
    return damaged(r, "its directory lies outside of the file");
  if (r->count > r->directory_bytes / MEMBER_BYTES)
    return damaged(r, "its directory lists more members than it has room for");
  return CNN_OK;
}

// Sizes and places that don't fit 32 bits stand in an extra field, those that do are left out.
static cnn_status read_extra(const reader *r, member *m, uint64_t at, uint64_t end) {
  uint64_t *const fields[] = {&m->bytes, &m->packed, &m->local};
  while (end - at >= 4) {
    uint64_t id = get(r, at, 2), n = get(r, at + 2, 2);
    at += 4;
    if (n > end - at) return bad_member(r, m, "its extra field is damaged");
    if (id != 1) {
      at += n;
      continue;
    }
    uint64_t stop = at + n;
    for (int k = 0; k < 3; k++) {
      if (*fields[k] != 0xffffffff) continue;
      if (stop - at < 8) return bad_member(r, m, "its extra field is damaged");
      *fields[k] = get(r, at, 8);
      at += 8;
    }
    return CNN_OK;
  }
  return CNN_OK;
}

// Reads the directory's entry at *at and moves past it.
static cnn_status read_member(reader *r, uint64_t *at, member *m) {
  uint64_t end = r->directory + r->directory_bytes, p = *at;
  if (end - p < MEMBER_BYTES || get(r, p, 4) != MEMBER_MARK)
    return damaged(r, "its directory is damaged");
  uint64_t name = get(r, p + 28, 2), extra = get(r, p + 30, 2), comment = get(r, p + 32, 2);
  if (name + extra + comment > end - p - MEMBER_BYTES)
    return damaged(r, "its directory is damaged");
  if (name == 0 || name >= sizeof m->name ||
      !cnn_utf8_valid(r->mapping->data + p + MEMBER_BYTES, (size_t)name))
    return damaged(r, "a member's name can't be read");
  memcpy(m->name, r->mapping->data + p + MEMBER_BYTES, (size_t)name);
  m->name[name] = '\0';
  m->flags = (unsigned)get(r, p + 8, 2);
  m->method = (unsigned)get(r, p + 10, 2);
  m->crc = (uint32_t)get(r, p + 16, 4);
  m->packed = get(r, p + 20, 4);
  m->bytes = get(r, p + 24, 4);
  m->local = get(r, p + 42, 4);
  CNN_TRY(read_extra(r, m, p + MEMBER_BYTES + name, p + MEMBER_BYTES + name + extra));
  *at = p + MEMBER_BYTES + name + extra + comment;
  return CNN_OK;
}

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

static cnn_status check_member(reader *r, member *m) {
  if (ends_with(m->name, "/data.pkl"))
    return cnn_file_fail(r->ctx, r->path,
                         "a PyTorch pickle, which may run code when it is read: save it in Python "
                         "with safetensors.torch.save_file instead");
  if (!ends_with(m->name, ".npy")) return bad_member(r, m, "no .npy array");
  if (m->flags & FLAG_ENCRYPTED) return bad_member(r, m, "it is encrypted");
  if (m->method != STORED && m->method != DEFLATED)
    return bad_member(r, m, "its compression method is not supported (stored and deflate are)");
  if (!inside(r, m->local, LOCAL_BYTES) || get(r, m->local, 4) != LOCAL_MARK)
    return bad_member(r, m, "it is not where the directory says");
  uint64_t start = m->local + LOCAL_BYTES + get(r, m->local + 26, 2) + get(r, m->local + 28, 2);
  if (start > r->directory || m->packed > r->directory - start)
    return bad_member(r, m, "truncated");
  r->packed += m->packed;
  if (r->packed > r->mapping->bytes) return damaged(r, "its members overlap");
  if (m->method == STORED && m->packed != m->bytes)
    return bad_member(r, m, "it is stored, but has two sizes");
  // Deflate makes a byte of at most 1032.
  if (m->bytes > m->packed * 1032 + 64) return bad_member(r, m, "its size can't be true");
  m->data = r->mapping->data + start;
  return CNN_OK;
}

static cnn_status inflate_into(reader *r, const member *m, char *to) {
  const uint8_t *in = (const uint8_t *)m->data;
  uint8_t spare, *out = (uint8_t *)to, *beyond = &spare;
  size_t n_in = (size_t)m->packed, n_out = (size_t)m->bytes, room = 1;
  cnn_inflater *s = r->codec->inflate_open(CNN_INFLATE_RAW);
  if (!s) return cnn_fail(r->ctx, CNN_OOM, "out of memory while reading %s", r->path);
  cnn_inflate_state state = r->codec->inflate(s, &in, &n_in, &out, &n_out);
  // The stream's end may still be to come when all bytes are there.
  if (state == CNN_INFLATE_MORE && n_out == 0)
    state = r->codec->inflate(s, &in, &n_in, &beyond, &room);
  r->codec->inflate_close(s);
  if (state == CNN_INFLATE_OOM)
    return cnn_fail(r->ctx, CNN_OOM, "out of memory while reading %s", r->path);
  if (state != CNN_INFLATE_END || n_out != 0 || room != 1)
    return bad_member(r, m, "its compressed bytes are damaged");
  return CNN_OK;
}

static cnn_status check_crc(const reader *r, const member *m, const char *data) {
  if (r->codec->crc32(0, data, (size_t)m->bytes) == m->crc) return CNN_OK;
  return bad_member(r, m, "its check sum is wrong: the file is damaged");
}

static cnn_status load_stored(reader *r, const member *m, cnn_npy *npy, cnn_tensor **out) {
  CNN_TRY(check_crc(r, m, m->data));
  CNN_TRY(cnn_npy_parse(r->ctx, r->path, m->name, m->data, (size_t)m->bytes, npy));
  size_t at = (size_t)(m->data - r->mapping->data) + npy->data;
  return cnn_mapping_tensor(r->ctx, r->mapping, at, &npy->meta, r->copy, out);
}

// The whole member is unpacked into one buffer, and the tensor is a view of it.
static cnn_status load_deflated(reader *r, const member *m, cnn_npy *npy, cnn_tensor **out) {
  cnn_device cpu = {CNN_CPU, 0};
  cnn_buffer *buffer;
  CNN_TRY(cnn_buffer_create(r->ctx, cpu, (size_t)m->bytes, &buffer));
  cnn_status status = inflate_into(r, m, buffer->data);
  if (status == CNN_OK) status = check_crc(r, m, buffer->data);
  if (status == CNN_OK)
    status = cnn_npy_parse(r->ctx, r->path, m->name, buffer->data, (size_t)m->bytes, npy);
  if (status == CNN_OK) {
    size_t size = cnn_dtype_size(npy->meta.dtype);
    if (npy->data % size == 0) {
      status = cnn_tensor_on(r->ctx, buffer, &npy->meta, (int64_t)(npy->data / size), out);
    } else {
      status = cnn_tensor_empty(r->ctx, &npy->meta, out);
      if (status == CNN_OK && npy->bytes > 0)
        memcpy(cnn_data(*out), (char *)buffer->data + npy->data, npy->bytes);
    }
  }
  cnn_unref(buffer);
  return status;
}

static cnn_status load_member(reader *r, member *m, cnn_archive *out) {
  cnn_npy npy;
  cnn_tensor *t = NULL;
  if (m->bytes == 0) return bad_member(r, m, "it is empty");
  CNN_TRY(m->method == STORED ? load_stored(r, m, &npy, &t) : load_deflated(r, m, &npy, &t));
  cnn_status status = cnn_npy_finish(r->ctx, r->path, &npy, t);
  m->name[strlen(m->name) - strlen(".npy")] = '\0';
  if (status == CNN_OK) status = cnn_archive_add(r->ctx, out, m->name, t);
  cnn_unref(t);
  return status;
}

static cnn_status load(reader *r, member *m, cnn_archive *out) {
  CNN_TRY(find_directory(r));
  // Everything that the directory can show is checked before the first array is made.
  uint64_t at = r->directory;
  for (uint64_t i = 0; i < r->count; i++) {
    CNN_TRY(read_member(r, &at, m));
    CNN_TRY(check_member(r, m));
  }
  at = r->directory;
  r->packed = 0;
  for (uint64_t i = 0; i < r->count; i++) {
    CNN_TRY(read_member(r, &at, m));
    CNN_TRY(check_member(r, m));
    CNN_TRY(load_member(r, m, out));
  }
  const char *name, *key;
  CNN_TRY(cnn_archive_duplicates(r->ctx, out, &name, &key));
  if (name) return cnn_file_fail(r->ctx, r->path, "array \"%.100s\" is there twice", name);
  return CNN_OK;
}

cnn_status cnn_npz_load(cnn_context *ctx, const char *path, cnn_mapping *mapping, bool copy,
                        cnn_archive *out) {
  reader r = {.ctx = ctx, .path = path, .mapping = mapping, .copy = copy};
  r.codec = cnn_codec_get(ctx, "reading npz files");
  if (!r.codec) return ctx->code;
  member *m = cnn_malloc(sizeof *m);
  if (!m) return cnn_fail(ctx, CNN_OOM, "out of memory while reading %s", path);
  cnn_status status = load(&r, m, out);
  cnn_free(m);
  if (status != CNN_OK) cnn_archive_free(out);
  return status;
}

// --- Writing ------------------------------------------------------------------------------------

typedef struct packed {
  uint32_t crc, bytes, local;
} packed;

typedef struct packer {
  cnn_context *ctx;
  const char *path;
  const cnn_codec *codec;
  const cnn_archive *archive;
  packed *members;
  cnn_writer w;
} packer;

typedef struct fields {
  unsigned char bytes[64];
  size_t n;
} fields;

static void field(fields *f, int bytes, uint64_t value) {
  for (int i = 0; i < bytes; i++) f->bytes[f->n++] = (unsigned char)(value >> (8 * i));
}

typedef struct check_sum {
  const cnn_codec *codec;
  uint32_t crc;
} check_sum;

static void add_to_sum(void *arg, const void *data, size_t bytes) {
  check_sum *c = arg;
  c->crc = c->codec->crc32(c->crc, data, bytes);
}

// A member's name, size and check sum stand before its bytes: they are walked twice.
static cnn_status measure(packer *p, int64_t i) {
  check_sum sum = {p->codec, 0};
  cnn_writer counter = {.descriptor = -1, .counting = true, .seen = add_to_sum, .arg = &sum};
  CNN_TRY(cnn_npy_put(p->ctx, &counter, p->archive->entries[i].tensor));
  if (counter.bytes + p->w.bytes > UINT32_MAX - (1 << 20))
    return cnn_fail(p->ctx, CNN_INVALID, "%s: npz files end at 4 GiB: save safetensors", p->path);
  p->members[i] = (packed){sum.crc, (uint32_t)counter.bytes, (uint32_t)p->w.bytes};
  return CNN_OK;
}

// What the local header and the directory have in common.
static void common_fields(fields *f, const packed *m, size_t name, size_t extra) {
  field(f, 2, 20); // version needed
  field(f, 2, FLAG_UTF8);
  field(f, 2, STORED);
  field(f, 4, 0x00210000); // 1980-01-01, so that equal tensors give equal files
  field(f, 4, m->crc);
  field(f, 4, m->bytes);
  field(f, 4, m->bytes);
  field(f, 2, name);
  field(f, 2, extra);
}

static cnn_status put_member(packer *p, int64_t i) {
  static const char zeros[64];
  const cnn_archive_entry *e = &p->archive->entries[i];
  size_t name = strlen(e->name) + strlen(".npy");
  fields f = {.n = 0};
  if (name > 4000)
    return cnn_fail(p->ctx, CNN_INVALID, "the name \"%.60s...\" is too long for an npz file",
                    e->name);
  CNN_TRY(measure(p, i));
  // An extra field of zeros aligns the array's elements.
  size_t padding = 63 & (0 - (size_t)(p->w.bytes + LOCAL_BYTES + name + 4));
  field(&f, 4, LOCAL_MARK);
  common_fields(&f, &p->members[i], name, padding + 4);
  CNN_TRY(cnn_writer_put(p->ctx, &p->w, f.bytes, f.n));
  CNN_TRY(cnn_writer_put(p->ctx, &p->w, e->name, strlen(e->name)));
  CNN_TRY(cnn_writer_put(p->ctx, &p->w, ".npy", 4));
  f.n = 0;
  field(&f, 2, 0xd935); // the id that Android's zipalign uses for padding
  field(&f, 2, padding);
  CNN_TRY(cnn_writer_put(p->ctx, &p->w, f.bytes, f.n));
  CNN_TRY(cnn_writer_put(p->ctx, &p->w, zeros, padding));
  return cnn_npy_put(p->ctx, &p->w, e->tensor);
}

static cnn_status put_directory(packer *p) {
  uint64_t start = p->w.bytes;
  fields f = {.n = 0};
  for (int64_t i = 0; i < p->archive->n; i++) {
    const char *name = p->archive->entries[i].name;
    f.n = 0;
    field(&f, 4, MEMBER_MARK);
    field(&f, 2, 20); // version made by
    common_fields(&f, &p->members[i], strlen(name) + 4, 0);
    field(&f, 2, 0); // comment
    field(&f, 2, 0); // disk
    field(&f, 2, 0); // attributes
    field(&f, 4, 0);
    field(&f, 4, p->members[i].local);
    CNN_TRY(cnn_writer_put(p->ctx, &p->w, f.bytes, f.n));
    CNN_TRY(cnn_writer_put(p->ctx, &p->w, name, strlen(name)));
    CNN_TRY(cnn_writer_put(p->ctx, &p->w, ".npy", 4));
  }
  f.n = 0;
  field(&f, 4, END_MARK);
  field(&f, 4, 0); // disks
  field(&f, 2, (uint64_t)p->archive->n);
  field(&f, 2, (uint64_t)p->archive->n);
  field(&f, 4, p->w.bytes - start);
  field(&f, 4, start);
  field(&f, 2, 0);
  return cnn_writer_put(p->ctx, &p->w, f.bytes, f.n);
}

cnn_status cnn_npz_save(cnn_context *ctx, const char *path, const cnn_archive *a) {
  packer p = {.ctx = ctx, .path = path, .archive = a};
  CNN_TRY(cnn_archive_check(ctx, a));
  if (a->n >= 65535)
    return cnn_fail(ctx, CNN_INVALID, "%s: too many arrays for an npz file: save safetensors",
                    path);
  p.codec = cnn_codec_get(ctx, "writing npz files");
  if (!p.codec) return ctx->code;
  p.members = cnn_calloc((size_t)(a->n + 1) * sizeof *p.members);
  if (!p.members) return cnn_fail(ctx, CNN_OOM, "out of memory while writing %s", path);
  cnn_status status = cnn_writer_open(ctx, path, &p.w);
  if (status == CNN_OK) {
    for (int64_t i = 0; i < a->n && status == CNN_OK; i++) status = put_member(&p, i);
    if (status == CNN_OK) status = put_directory(&p);
    if (status == CNN_OK)
      status = cnn_writer_commit(ctx, &p.w);
    else
      cnn_writer_abandon(&p.w);
  }
  cnn_free(p.members);
  return status;
}
