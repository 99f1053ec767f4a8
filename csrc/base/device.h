// SPDX-License-Identifier: MIT
// Device names: "cpu", "meta", "cuda", "cuda:1".
#ifndef CNN_BASE_DEVICE_H
#define CNN_BASE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cnn_device_type { CNN_CPU, CNN_META, CNN_CUDA, CNN_DEVICE_TYPES } cnn_device_type;

#define CNN_MAX_DEVICES 16 // of one type

typedef struct cnn_device {
  uint8_t type;  // cnn_device_type
  uint8_t index; // 0 for cpu and meta
} cnn_device;

static inline bool cnn_device_equal(cnn_device a, cnn_device b) {
  return a.type == b.type && a.index == b.index;
}

// Devices that were met.
typedef struct cnn_device_set {
  uint32_t types[CNN_DEVICE_TYPES];
} cnn_device_set;

// False when the device is in the set already.
static inline bool cnn_device_set_add(cnn_device_set *set, cnn_device d) {
  uint32_t bit = (uint32_t)1 << d.index, before = set->types[d.type];
  set->types[d.type] |= bit;
  return !(before & bit);
}

// Packs a device into an integer argument and back.
static inline int64_t cnn_device_code(cnn_device d) {
  return d.type * 256 + d.index;
}
static inline cnn_device cnn_device_decode(int64_t code) {
  cnn_device d = {(uint8_t)(code / 256), (uint8_t)(code % 256)};
  return d;
}

// Whether the CPU can read and write the device's memory.
static inline bool cnn_device_is_host(cnn_device d) {
  return d.type == CNN_CPU;
}

// Parses a name; false when it is none. Whether the device exists is another question.
bool cnn_device_parse(const char *name, cnn_device *device);

// "cpu", "meta", "cuda:0". Static storage.
const char *cnn_device_name(cnn_device device);

#ifdef __cplusplus
}
#endif

#endif
