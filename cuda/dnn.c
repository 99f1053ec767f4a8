// SPDX-License-Identifier: MIT
// Plans by description, and their execution.
//
// One lock guards the table and the cuDNN handle (which carries the stream). It is held while a
// plan is built: threads that ask for ready plans wait then, which a warmed-up program doesn't see.
//
// The table drops the plans that ran longest ago, a share of them at once, after the device has
// come to rest: dropping unloads kernels that may be running. Plans that ran under capture belong
// to a CUDA graph that may run them any time later; they stay until the engine goes.
#include "dnn.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dnn_disk.h"
#include "dnn_graph.h"

enum {
  BUCKETS = 1024, // a power of 2
  DROPPED = CUDA_DNN_KEPT / 8,
  SLOW_MS = 5, // plans that take less to build are not worth a file
};

typedef struct entry entry;
struct entry {
  dnn_key key;
  uint64_t hash, used; // used: the clock of its last use
  entry *next;         // in its bucket
  dnn_plan plan;       // plan NULL: refused
  bool captured;
  cuda_message why;
};

struct cuda_dnn {
  cudnnHandle_t handle;
  pthread_mutex_t lock;
  char *folder; // or NULL
  bool keep_all;
  uint64_t version, device, clock;
  entry *buckets[BUCKETS];
  int count; // entries that may be dropped
};

static cuda_answer fail_cuda(cuda_message *why, const char *what, cudaError_t e) {
  snprintf(why->text, sizeof why->text, "%s: %s", what, cudaGetErrorString(e));
  return CUDA_FAILED;
}

cuda_answer cuda_dnn_create(cuda_dnn **out, const char *folder, cuda_message *why) {
  int device = 0, major = 0, minor = 0, units = 0;
  *out = NULL;
  cudaError_t e = cudaGetDevice(&device);
  if (e == cudaSuccess)
    e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (e == cudaSuccess)
    e = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (e == cudaSuccess) e = cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
  if (e != cudaSuccess) return fail_cuda(why, "the device's properties", e);
  cuda_dnn *d = calloc(1, sizeof *d);
  if (!d) {
    snprintf(why->text, sizeof why->text, "out of memory");
    return CUDA_FAILED;
  }
  cudnnStatus_t s = cudnnCreate(&d->handle);
  if (s != CUDNN_STATUS_SUCCESS) {
    dnn_say(why, "cudnnCreate", s);
    free(d);
    return dnn_out_of_memory(s) ? CUDA_FAILED : CUDA_REFUSED;
  }
  pthread_mutex_init(&d->lock, NULL);
  d->folder = dnn_disk_folder(folder);
  d->keep_all = folder != NULL;
  d->version = (uint64_t)cudnnGetVersion();
  d->device = (uint64_t)(major * 10 + minor) << 32 | (uint64_t)units;
  *out = d;
  return CUDA_OK;
}

size_t cuda_dnn_version(void) {
  return cudnnGetVersion();
}

void cuda_dnn_destroy(cuda_dnn *d) {
  if (!d) return;
  for (int i = 0; i < BUCKETS; i++) {
    for (entry *e = d->buckets[i], *next; e; e = next) {
      next = e->next;
      dnn_plan_free(&e->plan);
      free(e);
    }
  }
  cudnnDestroy(d->handle);
  pthread_mutex_destroy(&d->lock);
  free(d->folder);
  free(d);
}

static uint64_t hash_key(const dnn_key *key) {
  const int64_t *words = (const int64_t *)(const void *)key;
  uint64_t h = 0x9E3779B97F4A7C15u;
  for (size_t i = 0; i < sizeof *key / sizeof *words; i++) {
    h = (h ^ (uint64_t)words[i]) * 0xFF51AFD7ED558CCDu;
    h ^= h >> 32;
  }
  return h;
}

static int by_age(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

// Drops the oldest entries.
static void drop(cuda_dnn *d) {
  uint64_t ages[CUDA_DNN_KEPT];
  int n = 0;
  for (int i = 0; i < BUCKETS; i++) {
    for (entry *e = d->buckets[i]; e && n < CUDA_DNN_KEPT; e = e->next) {
      if (!e->captured) ages[n++] = e->used;
    }
  }
  if (n < DROPPED || cudaDeviceSynchronize() != cudaSuccess) return;
  qsort(ages, (size_t)n, sizeof *ages, by_age);
  uint64_t limit = ages[DROPPED - 1];
  for (int i = 0; i < BUCKETS; i++) {
    for (entry **at = &d->buckets[i]; *at;) {
      entry *e = *at;
      if (e->captured || e->used > limit) {
        at = &e->next;
        continue;
      }
      *at = e->next;
      dnn_plan_free(&e->plan);
      free(e);
      d->count--;
    }
  }
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

// Fills e->plan from disk or anew. CUDA_REFUSED is a refusal that stays.
static cuda_answer build(cuda_dnn *d, entry *e) {
  dnn_target target = {d->handle, NULL};
  dnn_disk_key on_disk = {&e->key, sizeof e->key, d->version, d->device};
  char *text = d->folder ? dnn_disk_read(d->folder, &on_disk) : NULL;
  if (text) {
    cuda_answer loaded = dnn_plan_load(&target, text, &e->plan, &e->why);
    free(text);
    if (loaded == CUDA_OK) return CUDA_OK;
  }
  double start = now_ms();
  cuda_answer answer = dnn_plan_build(&target, &e->key, &e->plan, &e->why);
  if (answer != CUDA_OK || !d->folder) return answer;
  if (d->keep_all || now_ms() - start >= SLOW_MS) {
    text = dnn_plan_text(&e->plan);
    if (text) dnn_disk_write(d->folder, &on_disk, text);
    free(text);
  }
  return CUDA_OK;
}

// Under the lock: the plan for a key. A refusal says why once more each time.
static cuda_answer find(cuda_dnn *d, const dnn_key *key, entry **out, cuda_message *why) {
  uint64_t hash = hash_key(key);
  entry **bucket = &d->buckets[hash & (BUCKETS - 1)];
  entry *e = *bucket;
  while (e && (e->hash != hash || memcmp(&e->key, key, sizeof *key) != 0)) e = e->next;
  if (!e) {
    if (d->count >= CUDA_DNN_KEPT) drop(d);
    e = calloc(1, sizeof *e);
    if (!e) {
      snprintf(why->text, sizeof why->text, "out of memory");
      return CUDA_FAILED;
    }
    e->key = *key;
    e->hash = hash;
    if (build(d, e) == CUDA_FAILED) {
      *why = e->why;
      free(e);
      return CUDA_FAILED;
    }
    e->next = *bucket;
    *bucket = e;
    d->count++;
  }
  e->used = ++d->clock;
  *out = e;
  if (e->plan.plan) return CUDA_OK;
  *why = e->why;
  return CUDA_REFUSED;
}

cuda_answer cuda_conv_workspace(cuda_dnn *d, const cuda_conv *c, size_t *bytes, cuda_message *why) {
  dnn_key key;
  entry *e = NULL;
  *bytes = 0;
  cuda_answer answer = dnn_key_make(c, &key, why);
  if (answer != CUDA_OK) return answer;
  pthread_mutex_lock(&d->lock);
  answer = find(d, &key, &e, why);
  if (answer == CUDA_OK) *bytes = e->plan.workspace;
  pthread_mutex_unlock(&d->lock);
  return answer;
}

static cudnnStatus_t execute(cuda_dnn *d, const entry *e, const cuda_conv *c, void *workspace) {
  int64_t ids[4] = {DNN_X, DNN_W, DNN_Y, DNN_B};
  const void *pointers[4] = {c->x, c->w, c->y, c->b};
  int64_t count = c->bias ? 4 : 3;
  cudnnBackendDescriptor_t pack = NULL;
  cudnnStatus_t s = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
  if (s != CUDNN_STATUS_SUCCESS) return s;
  s = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count,
                               ids);
  if (s == CUDNN_STATUS_SUCCESS)
    s = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                 count, pointers);
  if (s == CUDNN_STATUS_SUCCESS)
    s = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                 &workspace);
  if (s == CUDNN_STATUS_SUCCESS) s = cudnnBackendFinalize(pack);
  if (s == CUDNN_STATUS_SUCCESS) s = cudnnBackendExecute(d->handle, e->plan.plan, pack);
  cudnnBackendDestroyDescriptor(pack);
  return s;
}

cuda_answer cuda_conv_run(cuda_dnn *d, const cuda_conv *c, void *workspace, size_t bytes,
                          cudaStream_t stream, cuda_message *why) {
  dnn_key key;
  entry *e = NULL;
  cuda_answer answer = dnn_key_make(c, &key, why);
  if (answer != CUDA_OK) return answer;
  if (!c->x || !c->w || !c->y || (c->bias && !c->b))
    return cuda_failed(why, "a tensor without memory");
  enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaError_t error = cudaStreamIsCapturing(stream, &capture);
  if (error != cudaSuccess) return fail_cuda(why, "the stream", error);
  pthread_mutex_lock(&d->lock);
  answer = find(d, &key, &e, why);
  if (answer == CUDA_OK && (e->plan.workspace > bytes || (e->plan.workspace && !workspace))) {
    snprintf(why->text, sizeof why->text, "%zu bytes of workspace are needed, %zu are there",
             e->plan.workspace, workspace ? bytes : 0);
    answer = CUDA_FAILED;
  }
  if (answer == CUDA_OK) {
    if (capture != cudaStreamCaptureStatusNone && !e->captured) {
      e->captured = true;
      d->count--;
    }
    cudnnStatus_t s = cudnnSetStream(d->handle, stream);
    if (s == CUDNN_STATUS_SUCCESS) s = execute(d, e, c, workspace);
    if (s != CUDNN_STATUS_SUCCESS) {
      dnn_say(why, "cudnnBackendExecute", s);
      answer = CUDA_FAILED;
    }
  }
  pthread_mutex_unlock(&d->lock);
  return answer;
}
