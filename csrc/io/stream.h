// SPDX-License-Identifier: MIT
// A mapped file as a stream of bytes: as they are, or unpacked when it is a gzip file (of one
// member or several).
#ifndef CNN_IO_STREAM_H
#define CNN_IO_STREAM_H

#include "io/codec.h"
#include "io/file.h"

typedef struct cnn_stream {
  cnn_context *ctx;
  const char *path;
  const uint8_t *in;
  size_t n_in;
  const cnn_codec *codec; // NULL: the file is not packed
  cnn_inflater *inflater; // of the member under way
} cnn_stream;

// The mapping must outlive the stream. Ends with cnn_stream_close, also after a failure of the
// others.
cnn_status cnn_stream_open(cnn_context *ctx, const char *path, const cnn_mapping *mapping,
                           cnn_stream *s);
void cnn_stream_close(cnn_stream *s);

// Reads exactly n bytes; fewer are an error ("truncated").
cnn_status cnn_stream_read(cnn_stream *s, void *to, size_t n);
// Fails unless everything has been read, the check sums of a gzip file included.
cnn_status cnn_stream_end(cnn_stream *s);
// The most bytes that can still come: what a size in a header is held against, before memory is
// asked for.
uint64_t cnn_stream_bound(const cnn_stream *s);

#endif
