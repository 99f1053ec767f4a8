// SPDX-License-Identifier: MIT
// Plans of cuDNN in files: one a plan, named by a hash of what it depends on, which stands in the
// file in full and is compared. A file that is damaged, foreign or cut short is as good as none. It
// is written beside its name and renamed, so a reader never sees half of it.
#ifndef CNN_CUDA_DNN_DISK_H
#define CNN_CUDA_DNN_DISK_H

#include <stddef.h>
#include <stdint.h>

// Everything a plan depends on: `key` by its bytes, and the library and device.
typedef struct dnn_disk_key {
  const void *key;
  size_t size;
  uint64_t version, device; // cuDNN's version; compute capability and number of multiprocessors
} dnn_disk_key;

// The folder to use: `wanted`, or where it is NULL the user's cache folder. Malloc'ed; NULL for
// none. Nothing is made on disk.
char *dnn_disk_folder(const char *wanted);

// The text of a plan (malloc'ed), or NULL.
char *dnn_disk_read(const char *folder, const dnn_disk_key *k);

// Keeps a plan. Nobody hears of a failure: the cache is only a cache.
void dnn_disk_write(const char *folder, const dnn_disk_key *k, const char *text);

#endif
