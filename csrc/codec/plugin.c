// SPDX-License-Identifier: MIT
// The codec plugin: zlib and cJSON behind the core's small table (io/codec.h).
//
// cJSON's allocation hooks belong to the whole process: the host may use cJSON, too, with hooks of
// its own. So they are left alone, as the core's allocator is malloc; only while a test injects
// allocation faults do they lead there.
#include <cjson/cJSON.h>
#include <zlib.h>

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "io/codec.h"

static cnn_codec_host host;
static char name[64];

// --- JSON ---------------------------------------------------------------------------------------

static _Thread_local bool refused; // an allocation, since it was last cleared

static void *hooked_malloc(size_t bytes) {
  void *p = host.malloc(bytes);
  if (!p) refused = true;
  return p;
}

static void set_hooks(void) {
  static bool hooked;
  bool wanted = host.faults();
  if (wanted == hooked) return;
  cJSON_Hooks hooks = {hooked_malloc, host.free};
  cJSON_InitHooks(wanted ? &hooks : NULL);
  hooked = wanted;
}

static const cJSON *item(const cnn_json *value) {
  return (const cJSON *)value;
}

static cnn_json *json_parse(const char *text, int64_t *error_at) {
  const char *end = NULL;
  set_hooks();
  refused = false;
  cJSON *root = cJSON_ParseWithOpts(text, &end, 1);
  if (!root) *error_at = refused ? -1 : end ? end - text : 0;
  return (cnn_json *)root;
}

static void json_free(cnn_json *value) {
  cJSON_Delete((cJSON *)value);
}

static cnn_json_kind json_kind(const cnn_json *value) {
  if (cJSON_IsObject(item(value))) return CNN_JSON_OBJECT;
  if (cJSON_IsArray(item(value))) return CNN_JSON_LIST;
  if (cJSON_IsString(item(value))) return CNN_JSON_STRING;
  if (cJSON_IsNumber(item(value))) return CNN_JSON_NUMBER;
  return CNN_JSON_OTHER;
}

static const char *json_key(const cnn_json *value) {
  return item(value)->string;
}
static const char *json_text(const cnn_json *value) {
  return item(value)->valuestring;
}
static double json_number(const cnn_json *value) {
  return item(value)->valuedouble;
}
static const cnn_json *json_first(const cnn_json *value) {
  return (const cnn_json *)item(value)->child;
}
static const cnn_json *json_next(const cnn_json *value) {
  return (const cnn_json *)item(value)->next;
}

// --- Inflate ------------------------------------------------------------------------------------

struct cnn_inflater {
  z_stream z;
};

static voidpf z_malloc(voidpf opaque, uInt items, uInt size) {
  (void)opaque;
  size_t bytes;
  return __builtin_mul_overflow((size_t)items, (size_t)size, &bytes) ? NULL : host.malloc(bytes);
}

static void z_free(voidpf opaque, voidpf p) {
  (void)opaque;
  host.free(p);
}

static cnn_inflater *inflate_open(cnn_inflate_format format) {
  cnn_inflater *s = host.malloc(sizeof *s);
  if (!s) return NULL;
  memset(s, 0, sizeof *s);
  s->z.zalloc = z_malloc;
  s->z.zfree = z_free;
  // zlib's convention: 15 is the window, + 16 a gzip header, negative no header at all.
  if (inflateInit2(&s->z, format == CNN_INFLATE_GZIP ? 15 + 16 : -15) == Z_OK) return s;
  host.free(s);
  return NULL;
}

static cnn_inflate_state inflate_some(cnn_inflater *s, const uint8_t **in, size_t *n_in,
                                      uint8_t **out, size_t *n_out) {
  int result = Z_OK;
  // zlib counts in 32 bits.
  while (result == Z_OK && *n_out > 0 && *n_in > 0) {
    uInt give = *n_in < UINT_MAX ? (uInt)*n_in : UINT_MAX;
    uInt room = *n_out < UINT_MAX ? (uInt)*n_out : UINT_MAX;
    s->z.next_in = (z_const Bytef *)(uintptr_t)*in;
    s->z.avail_in = give;
    s->z.next_out = *out;
    s->z.avail_out = room;
    result = inflate(&s->z, Z_NO_FLUSH);
    *in += give - s->z.avail_in;
    *n_in -= give - s->z.avail_in;
    *out += room - s->z.avail_out;
    *n_out -= room - s->z.avail_out;
  }
  switch (result) {
  case Z_OK:
  case Z_BUF_ERROR: return CNN_INFLATE_MORE;
  case Z_STREAM_END: return CNN_INFLATE_END;
  case Z_MEM_ERROR: return CNN_INFLATE_OOM;
  default: return CNN_INFLATE_BAD;
  }
}

static void inflate_close(cnn_inflater *s) {
  if (!s) return;
  inflateEnd(&s->z);
  host.free(s);
}

static uint32_t crc(uint32_t start, const void *data, size_t bytes) {
  const uint8_t *p = data;
  uLong value = start;
  while (bytes > 0) {
    uInt n = bytes < UINT_MAX ? (uInt)bytes : UINT_MAX;
    value = crc32(value, p, n);
    p += n;
    bytes -= n;
  }
  return (uint32_t)value;
}

// ------------------------------------------------------------------------------------------------

__attribute__((visibility("default"))) bool cnn_codec_open(int abi, const cnn_codec_host *from,
                                                           cnn_codec *table);

bool cnn_codec_open(int abi, const cnn_codec_host *from, cnn_codec *table) {
  if (abi != CNN_CODEC_ABI) return false;
  host = *from;
  snprintf(name, sizeof name, "zlib %s, cJSON %s", zlibVersion(), cJSON_Version());
  *table = (cnn_codec){
      .abi = CNN_CODEC_ABI,
      .name = name,
      .json_parse = json_parse,
      .json_free = json_free,
      .json_kind = json_kind,
      .json_key = json_key,
      .json_text = json_text,
      .json_number = json_number,
      .json_first = json_first,
      .json_next = json_next,
      .inflate_open = inflate_open,
      .inflate = inflate_some,
      .inflate_close = inflate_close,
      .crc32 = crc,
  };
  return true;
}
