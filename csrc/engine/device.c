// SPDX-License-Identifier: MIT
#include "engine/device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/parallel.h"
#include "base/plugin.h"

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static cnn_driver table;
static atomic_bool opened; // `table` is filled, once and for all
static char reason[512];   // why not, after a first try

static const char *op_name(int id) {
  return cnn_ops_of_engine()->names[id];
}

static void install(void) {
  for (int i = 0; i < table.count && i < CNN_MAX_DEVICES; i++)
    cnn_device_memory_install((cnn_device){CNN_CUDA, (uint8_t)i}, table.mapper(i));
  cnn_backend_install(CNN_CUDA, &table.backend);
  atomic_store(&opened, true);
}

// Under the lock. Leaves `reason` empty when it is open.
static void open_driver(const char *path) {
  char why[384];
  const cnn_host host = {
      .abi = CNN_DRIVER_ABI,
      .op_count = cnn_op_count(),
      .op_names = cnn_driver_names(cnn_op_count(), op_name),
      .context_size = sizeof(cnn_context),
      .call_size = sizeof(cnn_call),
      .driver_size = sizeof(cnn_driver),
      .op_name = op_name,
      .alloc = cnn_malloc,
      .free = cnn_free,
      .parallel_for = cnn_parallel_for,
  };
  void *symbol = cnn_plugin_open_at("cuda", path, CNN_DRIVER_SYMBOL, why, sizeof why);
  if (!symbol) {
    snprintf(reason, sizeof reason, "the CUDA plugin can't be loaded: %s (\"make %s\" builds it)",
             why, path ? "cuda-sim" : "cuda");
    return;
  }
  cnn_driver_entry entry;
  memcpy(&entry, &symbol, sizeof entry); // data to function: as POSIX allows
  const char *wrong = entry(&host, &table);
  if (wrong)
    snprintf(reason, sizeof reason, "%s", wrong);
  else
    install(), reason[0] = '\0';
}

const cnn_driver *cnn_cuda_open(void) {
  return atomic_load_explicit(&opened, memory_order_acquire) ? &table : NULL;
}

const cnn_driver *cnn_cuda_driver(const char **why) {
  if (cnn_cuda_open()) return &table;
  pthread_mutex_lock(&opening);
  if (!atomic_load(&opened) && !reason[0]) open_driver(NULL);
  pthread_mutex_unlock(&opening);
  *why = reason;
  return cnn_cuda_open();
}

cnn_status cnn_cuda_load(cnn_context *ctx, const char *path) {
  pthread_mutex_lock(&opening);
  bool already = atomic_load(&opened);
  if (!already) open_driver(path);
  pthread_mutex_unlock(&opening);
  if (already)
    return cnn_fail(ctx, CNN_STATE,
                    "there are CUDA devices already, of %s: this must come before "
                    "the first use of one",
                    table.name);
  return cnn_cuda_open() ? CNN_OK : cnn_fail(ctx, CNN_DEVICE, "%s", reason);
}

static atomic_uint shutdowns;

unsigned cnn_cuda_shutdowns(void) {
  return atomic_load_explicit(&shutdowns, memory_order_relaxed);
}

// What still lies on a GPU.
static cnn_status check_empty(cnn_context *ctx, int index) {
  cnn_device device = {CNN_CUDA, (uint8_t)index};
  cnn_pool_stats s;
  if (!cnn_gpu_pool(index)) return CNN_OK;
  cnn_pool_get_stats(cnn_gpu_pool(index), &s);
  if (s.blocks.current == 0) return CNN_OK;
  return cnn_fail(
      ctx, CNN_STATE,
      "%lld tensors with %lld bytes are still on %s (cnn.live(\"%s\") lists them): free "
      "them, move them to the CPU, or lose them with {force = true}",
      (long long)s.blocks.current, (long long)s.requested.current, cnn_device_name(device),
      cnn_device_name(device));
}

cnn_status cnn_cuda_shutdown(cnn_context *ctx, bool force) {
  const cnn_driver *driver = cnn_cuda_open();
  if (!driver) return CNN_OK;
  for (int i = 0; i < driver->count && !force; i++) {
    // A context that a fault has spoilt answers every call so: that is no reason to keep it.
    cnn_status status = driver->is_used(i) ? driver->synchronize(ctx, i) : CNN_OK;
    if (status != CNN_OK && status != CNN_DEVICE) return status;
  }
  for (int i = 0; i < driver->count && !force; i++) CNN_TRY(check_empty(ctx, i));
  cnn_gpu_pools_lose();
  atomic_fetch_add(&shutdowns, 1);
  memset(ctx->streams, 0, sizeof ctx->streams);
  return driver->shutdown(ctx);
}

// As scripts write it.
static const char *short_name(cnn_device device) {
  return device.type == CNN_CUDA && device.index == 0 ? "cuda" : cnn_device_name(device);
}

cnn_status cnn_device_ready(cnn_context *ctx, cnn_device device) {
  const char *why;
  if (device.type != CNN_CUDA) return CNN_OK;
  const cnn_driver *driver = cnn_cuda_driver(&why);
  if (!driver)
    return cnn_fail(ctx, CNN_DEVICE, "device \"%s\" is not available: %s", short_name(device), why);
  if (device.index < driver->count) return CNN_OK;
  return cnn_fail(ctx, CNN_DEVICE, "device \"%s\" is not available: there %s %d GPU%s (cuda:0%s%s)",
                  cnn_device_name(device), driver->count == 1 ? "is" : "are", driver->count,
                  driver->count == 1 ? "" : "s", driver->count == 1 ? "" : " to ",
                  driver->count == 1
                      ? ""
                      : cnn_device_name((cnn_device){CNN_CUDA, (uint8_t)(driver->count - 1)}));
}

cnn_status cnn_device_synchronize(cnn_context *ctx, cnn_device device) {
  const cnn_driver *driver = cnn_cuda_open();
  if (device.type != CNN_CUDA || !driver) return CNN_OK;
  return driver->synchronize(ctx, device.index);
}

cnn_status cnn_device_move(cnn_context *ctx, const cnn_view *to, cnn_device to_device,
                           const cnn_view *from, cnn_device from_device, bool non_blocking) {
  size_t bytes = (size_t)cnn_view_numel(from) * cnn_dtype_size(from->dtype);
  const cnn_driver *driver = cnn_cuda_open();
  if (bytes == 0) return CNN_OK;
  return driver->backend.copy(ctx, to->data, to_device, from->data, from_device, bytes,
                              non_blocking);
}
