// SPDX-License-Identifier: MIT
#include "io/stream.h"

#include <string.h>

cnn_status cnn_stream_open(cnn_context *ctx, const char *path, const cnn_mapping *mapping,
                           cnn_stream *s) {
  *s = (cnn_stream){ctx, path, (const uint8_t *)mapping->data, mapping->bytes, NULL, NULL};
  if (s->n_in < 2 || s->in[0] != 0x1f || s->in[1] != 0x8b) return CNN_OK;
  s->codec = cnn_codec_get(ctx, "reading gzip files");
  return s->codec ? CNN_OK : ctx->code;
}

void cnn_stream_close(cnn_stream *s) {
  if (s->inflater) s->codec->inflate_close(s->inflater);
  s->inflater = NULL;
}

uint64_t cnn_stream_bound(const cnn_stream *s) {
  // Deflate makes a byte of at most 1032; its window may still hold some that came in before.
  return s->codec ? (uint64_t)s->n_in * 1032 + 65536 : s->n_in;
}

// Unpacks until the output is full or the file ends.
static cnn_status unpack(cnn_stream *s, uint8_t **out, size_t *n_out) {
  while (*n_out > 0) {
    if (!s->inflater) {
      if (s->n_in == 0) return CNN_OK;
      s->inflater = s->codec->inflate_open(CNN_INFLATE_GZIP);
      if (!s->inflater) return cnn_fail(s->ctx, CNN_OOM, "out of memory while reading %s", s->path);
    }
    size_t before = *n_out;
    switch (s->codec->inflate(s->inflater, &s->in, &s->n_in, out, n_out)) {
    case CNN_INFLATE_MORE:
      if (s->n_in == 0 && *n_out == before)
        return cnn_file_fail(s->ctx, s->path, "the gzip file is truncated");
      break;
    case CNN_INFLATE_END:
      s->codec->inflate_close(s->inflater);
      s->inflater = NULL;
      break;
    case CNN_INFLATE_OOM:
      return cnn_fail(s->ctx, CNN_OOM, "out of memory while reading %s", s->path);
    default: return cnn_file_fail(s->ctx, s->path, "the gzip file is damaged");
    }
  }
  return CNN_OK;
}

static cnn_status read_some(cnn_stream *s, uint8_t *to, size_t *n) {
  if (s->codec) return unpack(s, &to, n);
  size_t have = *n < s->n_in ? *n : s->n_in;
  if (have > 0) memcpy(to, s->in, have);
  s->in += have;
  s->n_in -= have;
  *n -= have;
  return CNN_OK;
}

cnn_status cnn_stream_read(cnn_stream *s, void *to, size_t n) {
  CNN_TRY(read_some(s, to, &n));
  if (n == 0) return CNN_OK;
  return cnn_file_fail(s->ctx, s->path, "truncated: %zu bytes are missing", n);
}

cnn_status cnn_stream_end(cnn_stream *s) {
  uint8_t spare;
  size_t n = 1;
  CNN_TRY(read_some(s, &spare, &n));
  if (n == 1) return CNN_OK;
  return cnn_file_fail(s->ctx, s->path, "there are bytes behind the last element");
}
