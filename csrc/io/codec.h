// SPDX-License-Identifier: MIT
// What the codec plugin (csrc/codec: zlib and cJSON) offers to the readers of files, and the way to
// it. The plugin is loaded on first use, so that the core depends on neither library.
//
// All of it may be called from any thread.
#ifndef CNN_IO_CODEC_H
#define CNN_IO_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/context.h"

#define CNN_CODEC_ABI 1

// A value of a parsed JSON text.
typedef struct cnn_json cnn_json;
typedef enum cnn_json_kind {
  CNN_JSON_OTHER, // null, true, false
  CNN_JSON_NUMBER,
  CNN_JSON_STRING,
  CNN_JSON_LIST,
  CNN_JSON_OBJECT,
} cnn_json_kind;

// A stream being decompressed.
typedef struct cnn_inflater cnn_inflater;
typedef enum cnn_inflate_format { CNN_INFLATE_GZIP, CNN_INFLATE_RAW } cnn_inflate_format;
typedef enum cnn_inflate_state {
  CNN_INFLATE_MORE, // input or room for output is used up
  CNN_INFLATE_END,  // the stream is complete, its check sum right
  CNN_INFLATE_BAD,  // no such stream, or a damaged one
  CNN_INFLATE_OOM,
} cnn_inflate_state;

// What the plugin uses of the core.
typedef struct cnn_codec_host {
  void *(*malloc)(size_t bytes);
  void (*free)(void *p);
  bool (*faults)(void); // allocation faults are being injected
} cnn_codec_host;

typedef struct cnn_codec {
  int abi;
  const char *name; // "zlib 1.2.13, cJSON 1.7.15"

  // Parses a NUL-terminated text that holds one value. NULL: *error_at is the byte where it stops
  // being JSON, or -1 when there was no memory. Free with json_free.
  cnn_json *(*json_parse)(const char *text, int64_t *error_at);
  void (*json_free)(cnn_json *value);
  cnn_json_kind (*json_kind)(const cnn_json *value);
  const char *(*json_key)(const cnn_json *value); // of a member of an object
  const char *(*json_text)(const cnn_json *value);
  double (*json_number)(const cnn_json *value);
  const cnn_json *(*json_first)(const cnn_json *value); // of a list or an object
  const cnn_json *(*json_next)(const cnn_json *value);

  cnn_inflater *(*inflate_open)(cnn_inflate_format format); // NULL: no memory
  // Decompresses from *in to *out and moves all four past what was used and written.
  cnn_inflate_state (*inflate)(cnn_inflater *stream, const uint8_t **in, size_t *n_in,
                               uint8_t **out, size_t *n_out);
  void (*inflate_close)(cnn_inflater *stream);

  uint32_t (*crc32)(uint32_t crc, const void *data, size_t bytes); // starts with crc = 0
} cnn_codec;

// The one symbol of the plugin: fills the table and returns true when the plugin serves this ABI.
typedef bool (*cnn_codec_entry)(int abi, const cnn_codec_host *host, cnn_codec *table);
#define CNN_CODEC_SYMBOL "cnn_codec_open"

// The plugin's table, loaded on first use; NULL with a message that says what to install. `what`
// needs it: "reading safetensors".
const cnn_codec *cnn_codec_get(cnn_context *ctx, const char *what);

#endif
