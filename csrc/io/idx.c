// SPDX-License-Identifier: MIT
#include "io/idx.h"

#include <inttypes.h>

#include "io/stream.h"

static const struct {
  unsigned code;
  cnn_dtype dtype;
} dtypes[] = {{0x08, CNN_U8},  {0x09, CNN_I8},  {0x0B, CNN_I16},
              {0x0C, CNN_I32}, {0x0D, CNN_F32}, {0x0E, CNN_F64}};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

static cnn_status read_header(cnn_stream *s, cnn_meta *meta, int64_t *bytes) {
  unsigned char head[4], size[4];
  int64_t shape[CNN_MAX_DIMS];
  cnn_device cpu = {CNN_CPU, 0};
  cnn_shape_text text;
  CNN_TRY(cnn_stream_read(s, head, sizeof head));
  int type = 0, ndim = head[3];
  while (type < N_DTYPES && dtypes[type].code != head[2]) type++;
  if (head[0] != 0 || head[1] != 0 || type == N_DTYPES)
    return cnn_file_fail(s->ctx, s->path,
                         "no IDX file: it starts with %02x %02x %02x %02x, not with 00 00, a type "
                         "(08 09 0b 0c 0d 0e) and the number of dims",
                         head[0], head[1], head[2], head[3]);
  if (ndim > CNN_MAX_DIMS)
    return cnn_file_fail(s->ctx, s->path, "it has %d dims; at most %d are supported", ndim,
                         CNN_MAX_DIMS);
  for (int d = 0; d < ndim; d++) {
    CNN_TRY(cnn_stream_read(s, size, sizeof size));
    shape[d] = (int64_t)size[0] << 24 | size[1] << 16 | size[2] << 8 | size[3];
  }
  int64_t numel = cnn_shape_numel(ndim, shape);
  cnn_dtype dtype = dtypes[type].dtype;
  if (numel < 0 || __builtin_mul_overflow(numel, (int64_t)cnn_dtype_size(dtype), bytes) ||
      (uint64_t)*bytes > cnn_stream_bound(s))
    return cnn_file_fail(s->ctx, s->path,
                         "truncated or damaged: its shape %s needs more bytes than the file can "
                         "hold",
                         cnn_shape_format(&text, ndim, shape));
  cnn_meta_set(meta, dtype, cpu, ndim, shape);
  return CNN_OK;
}

static cnn_status load(cnn_stream *s, cnn_tensor **out) {
  cnn_meta meta;
  int64_t bytes = 0;
  CNN_TRY(read_header(s, &meta, &bytes));
  CNN_TRY(cnn_tensor_empty(s->ctx, &meta, out));
  if (bytes > 0) CNN_TRY(cnn_stream_read(s, cnn_data(*out), (size_t)bytes));
  CNN_TRY(cnn_stream_end(s));
  if (bytes > 0) cnn_swap_bytes(cnn_data(*out), (size_t)bytes, cnn_dtype_size(meta.dtype));
  return CNN_OK;
}

cnn_status cnn_idx_load(cnn_context *ctx, const char *path, const cnn_mapping *mapping,
                        cnn_tensor **out) {
  cnn_stream s;
  cnn_tensor *t = NULL;
  CNN_TRY(cnn_stream_open(ctx, path, mapping, &s));
  cnn_status status = load(&s, &t);
  cnn_stream_close(&s);
  if (status == CNN_OK)
    *out = t;
  else
    cnn_unref(t);
  return status;
}
