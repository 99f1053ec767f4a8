// SPDX-License-Identifier: MIT
// Devices: found when the plugin is opened, initialised by their first use. And what stands around
// every kernel: the device made current, the launch counted, errors raised.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

cnn_host cuda_host;
int cuda_count;

static cuda_device devices[CNN_MAX_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool sync_each;       // after every op
static bool forked;                 // this process is a child of one that used CUDA
static _Atomic unsigned may_report; // bit d: a kernel that may report ran on device d since

// The runtime's current device, as far as we set it, and since which shutdown.
static _Thread_local int current = -1;
static _Thread_local unsigned current_epoch;
static atomic_uint epoch;

// ---------------------------------------------------------------------------------------------
// Errors

static cnn_status status_of(cudaError_t error) {
  if (error == cudaErrorMemoryAllocation) return CNN_OOM;
  return error == cudaErrorNotSupported ? CNN_UNSUPPORTED : CNN_DEVICE;
}

cnn_status cuda_check(cnn_context *ctx, cudaError_t error, const char *what) {
  if (error == cudaSuccess) return CNN_OK;
  (void)cudaGetLastError();
  return cnn_fail(ctx, status_of(error), "CUDA: %s (%s: %.*s)", cudaGetErrorString(error),
                  cudaGetErrorName(error), (int)strcspn(what, "("), what);
}

static cnn_status after_fork(cnn_context *ctx) {
  return cnn_fail(ctx, CNN_STATE,
                  "CUDA was used before this process was forked, and does not work in the child: "
                  "fork first, or start a new process");
}

static void note_fork(void) {
  forked = true;
}

// ---------------------------------------------------------------------------------------------
// Devices

static void give_up(cuda_device *d) {
  if (d->fault) cudaFree(d->fault);
  if (d->aside) cudaStreamDestroy(d->aside);
  d->fault = NULL;
  d->aside = NULL;
}

static cudaError_t initialise(cuda_device *d) {
  size_t available = 0, total = 0;
  current = -1; // the runtime's is this one, from here on
  cudaError_t e = cudaSetDevice(d->index);
  if (e == cudaSuccess) e = cudaGetDeviceProperties(&d->properties, d->index);
  if (e == cudaSuccess) e = cudaMalloc((void **)&d->fault, sizeof *d->fault);
  if (e == cudaSuccess) e = cudaMemset(d->fault, 0, sizeof *d->fault);
  if (e == cudaSuccess) e = cudaStreamCreateWithFlags(&d->aside, cudaStreamNonBlocking);
  if (e == cudaSuccess) e = cudaMemGetInfo(&available, &total);
  d->taken = total - available;
  if (e == cudaSuccess)
    atomic_store(&d->ready, true);
  else
    give_up(d);
  return e;
}

static cudaError_t enter(int index) {
  cuda_device *d = &devices[index];
  if (current == index && current_epoch == atomic_load_explicit(&epoch, memory_order_relaxed) &&
      atomic_load_explicit(&d->ready, memory_order_acquire))
    return cudaSuccess;
  cudaError_t e = cudaSuccess;
  pthread_mutex_lock(&lock);
  if (!atomic_load(&d->ready)) {
    static bool watched;
    if (!watched) watched = pthread_atfork(NULL, NULL, note_fork) == 0;
    e = initialise(d);
  }
  pthread_mutex_unlock(&lock);
  if (e == cudaSuccess) e = cudaSetDevice(index);
  current = e == cudaSuccess ? index : -1;
  current_epoch = atomic_load(&epoch);
  return e;
}

cuda_device *cuda_enter(cnn_context *ctx, int index) {
  if (forked) return after_fork(ctx), NULL;
  return cuda_check(ctx, enter(index), "cudaSetDevice") == CNN_OK ? &devices[index] : NULL;
}

cuda_device *cuda_enter_quietly(int index) {
  return !forked && enter(index) == cudaSuccess ? &devices[index] : NULL;
}

cuda_device *cuda_device_at(int index) {
  return &devices[index];
}

int cuda_any_device(void) {
  for (int i = 0; i < cuda_count; i++)
    if (atomic_load(&devices[i].ready)) return i;
  return 0;
}

static const cnn_mapper *mapper(int index) {
  return &devices[index].mapper;
}

static cnn_status properties(cnn_context *ctx, int index, cnn_device_properties *out) {
  cuda_device *d = cuda_enter(ctx, index);
  if (!d) return ctx->code;
  const struct cudaDeviceProp *p = &d->properties;
  memset(out, 0, sizeof *out);
  snprintf(out->name, sizeof out->name, "%s", p->name);
  const unsigned char *u = (const unsigned char *)p->uuid.bytes;
  int at = 0;
  for (int i = 0; i < 16; i++)
    at += snprintf(out->uuid + at, sizeof out->uuid - (size_t)at, "%s%02x",
                   i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
  out->major = p->major;
  out->minor = p->minor;
  out->total_memory = (int64_t)p->totalGlobalMem;
  out->shared_memory_per_block = (int64_t)p->sharedMemPerBlock;
  out->shared_memory_per_block_optin = (int64_t)p->sharedMemPerBlockOptin;
  out->l2_cache_size = p->l2CacheSize;
  out->multi_processor_count = p->multiProcessorCount;
  out->warp_size = p->warpSize;
  out->registers_per_block = p->regsPerBlock;
  out->max_threads_per_block = p->maxThreadsPerBlock;
  out->max_threads_per_multi_processor = p->maxThreadsPerMultiProcessor;
  out->pci_bus = p->pciBusID;
  out->pci_device = p->pciDeviceID;
  out->integrated = p->integrated != 0;
  out->context_memory = (int64_t)d->taken;
  for (int i = 0; i < cuda_count && !out->peer_access; i++) {
    int can = 0;
    if (i != index) CUDA_TRY(ctx, cudaDeviceCanAccessPeer(&can, index, i));
    out->peer_access = can != 0;
  }
  return CNN_OK;
}

// ---------------------------------------------------------------------------------------------
// What kernels report

cuda_fault *cuda_fault_of(const cnn_call *call) {
  atomic_fetch_or_explicit(&may_report, 1u << call->device.index, memory_order_relaxed);
  return devices[call->device.index].fault;
}

const cuda_fault *cuda_fault_seen(const cnn_call *call) {
  return devices[call->device.index].fault;
}

// Names that reports were announced under; they stay.
#define NAMES 128
static char reporters[NAMES][64];
static int n_reporters;

int cuda_fault_op(const cnn_call *call) {
  const char *name = call->ctx->op ? call->ctx->op : cuda_op_names[call->id];
  int at = 0;
  pthread_mutex_lock(&lock);
  while (at < n_reporters && strncmp(reporters[at], name, sizeof reporters[0] - 1) != 0) at++;
  if (at == n_reporters && n_reporters < NAMES)
    snprintf(reporters[n_reporters++], sizeof reporters[0], "%s", name);
  pthread_mutex_unlock(&lock);
  return at; // NAMES: one too many
}

static cnn_status raise(cnn_context *ctx, const cuda_fault *f) {
  const char *op = ctx->op; // what waits is not what failed
  ctx->op = f->op < NAMES ? reporters[f->op] : "a kernel";
  cnn_status status = cnn_fault_raise(ctx, &f->what);
  ctx->op = op;
  return status;
}

cnn_status cuda_report(cnn_context *ctx, cuda_device *d) {
  unsigned bit = 1u << d->index;
  CNN_TRY(cuda_program_faults(ctx));
  if (!(atomic_load_explicit(&may_report, memory_order_relaxed) & bit)) return CNN_OK;
  cuda_fault f;
  CUDA_TRY(ctx, cudaMemcpyAsync(&f, d->fault, sizeof f, cudaMemcpyDeviceToHost, d->aside));
  CUDA_TRY(ctx, cudaStreamSynchronize(d->aside));
  if (!f.set) return CNN_OK;
  CUDA_TRY(ctx, cudaMemsetAsync(d->fault, 0, sizeof f, d->aside));
  CUDA_TRY(ctx, cudaStreamSynchronize(d->aside));
  return raise(ctx, &f);
}

cnn_status cuda_wait(cnn_context *ctx, cuda_device *d, cudaStream_t stream) {
  cuda_count_add(CUDA_COUNT_SYNCS, 1);
  CUDA_TRY(ctx, cudaStreamSynchronize(stream));
  return cuda_report(ctx, d);
}

static cnn_status synchronize(cnn_context *ctx, int index) {
  cuda_device *d = cuda_enter(ctx, index);
  if (!d) return ctx->code;
  cuda_count_add(CUDA_COUNT_SYNCS, 1);
  CUDA_TRY(ctx, cudaDeviceSynchronize());
  unsigned bit = 1u << index;
  cnn_status status = cuda_report(ctx, d);
  // Nothing is under way that could still report.
  atomic_fetch_and_explicit(&may_report, ~bit, memory_order_relaxed);
  return status;
}

static bool is_used(int index) {
  return atomic_load(&devices[index].ready);
}

static void set_sync(bool on) {
  atomic_store(&sync_each, on);
}
static bool is_sync(void) {
  return atomic_load(&sync_each);
}

// ---------------------------------------------------------------------------------------------
// Around a kernel

cnn_status cuda_launched(const cnn_call *call, cudaError_t error) {
  cuda_count_add(CUDA_COUNT_KERNELS, 1);
  return error == cudaSuccess ? CNN_OK : cuda_check(call->ctx, error, "launch");
}

static cnn_status plan(cnn_call *call) {
  if (!cuda_enter(call->ctx, call->device.index)) return call->ctx->code;
  return call->kernel->plan(call);
}

static cnn_status run(cnn_call *call) {
  cuda_device *d = cuda_enter(call->ctx, call->device.index);
  if (!d) return call->ctx->code;
  int before = cuda_count_for(call->id);
  cuda_count_bytes(call);
  cnn_status status = call->kernel->run(call);
  if (status == CNN_OK && atomic_load_explicit(&sync_each, memory_order_relaxed))
    status = cuda_wait(call->ctx, d, call->stream);
  cuda_count_for(before);
  return status;
}

static atomic_bool allow_tf32;

bool cuda_allow_tf32(void) {
  return atomic_load_explicit(&allow_tf32, memory_order_relaxed);
}
static void set_tf32(bool on) {
  atomic_store(&allow_tf32, on);
}

static atomic_bool fuse_relu;

bool cuda_fuse_relu(void) {
  return atomic_load_explicit(&fuse_relu, memory_order_relaxed);
}
static void set_fuse_relu(bool on) {
  atomic_store(&fuse_relu, on);
}

int cuda_processors(const cnn_call *call) {
  return devices[call->device.index].properties.multiProcessorCount;
}

// What fails here is of a context that goes anyway.
static void close_device(cuda_device *d) {
  cudaSetDevice(d->index);
  cudaDeviceSynchronize();
  cuda_libraries_close(d);
  cuda_ring_free(d);
  cuda_memory_close(d);
  give_up(d);
  (void)cudaGetLastError();
}

static cnn_status shutdown_devices(cnn_context *ctx) {
  cudaError_t e = cudaSuccess;
  if (forked) return after_fork(ctx);
  cuda_host_close();
  cuda_streams_close();
  pthread_mutex_lock(&lock);
  for (int i = 0; i < cuda_count; i++)
    if (atomic_load(&devices[i].ready)) close_device(&devices[i]);
  for (int i = 0; i < cuda_count; i++) {
    if (!atomic_load(&devices[i].ready)) continue;
    cudaError_t r = cudaSetDevice(i);
    if (r == cudaSuccess) r = cudaDeviceReset();
    if (r != cudaSuccess) e = r;
    devices[i].life++;
    atomic_store(&devices[i].ready, false);
  }
  atomic_store(&may_report, 0);
  atomic_fetch_add(&epoch, 1);
  pthread_mutex_unlock(&lock);
  return cuda_check(ctx, e, "cudaDeviceReset");
}

// ---------------------------------------------------------------------------------------------
// Opening

extern const char *sim_flavour(void) __attribute__((weak));

bool cuda_is_simulated(void) {
  return sim_flavour != NULL;
}

static const char *version_text(void) {
  static char text[64];
  int version = 0;
  cudaRuntimeGetVersion(&version);
  snprintf(text, sizeof text, "CUDA %d.%d%s", version / 1000, version % 1000 / 10,
           cuda_is_simulated() ? ", simulated on the CPU" : "");
  return text;
}

static const char *refuse(const cnn_host *host) {
  static char text[160];
  if (host->abi != CNN_DRIVER_ABI || host->driver_size != sizeof(cnn_driver) ||
      host->context_size != sizeof(cnn_context) || host->call_size != sizeof(cnn_call))
    return "the CUDA plugin is of another version than the core: build both anew";
  if (host->op_count == cuda_op_count) {
    uint64_t names = cnn_driver_names(cuda_op_count, cuda_op_name);
    if (names == host->op_names) return NULL;
  }
  snprintf(text, sizeof text,
           "the CUDA plugin knows %d ops and the core %d, or others: build both anew",
           cuda_op_count, host->op_count);
  return text;
}

static const char *find_devices(void) {
  static char text[256];
  cudaError_t e = cudaGetDeviceCount(&cuda_count);
  if (e == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0) return "there is no NVIDIA driver (libcuda.so.1 can't be loaded)";
    snprintf(text, sizeof text, "the NVIDIA driver is too old: it serves CUDA %d.%d, this is %s",
             driver / 1000, driver % 1000 / 10, version_text());
    return text;
  }
  if (e == cudaErrorNoDevice || (e == cudaSuccess && cuda_count == 0))
    return "there is a driver, but no GPU that it serves";
  if (e != cudaSuccess) {
    snprintf(text, sizeof text, "CUDA can't be initialised: %s", cudaGetErrorString(e));
    return text;
  }
  if (cuda_count > CNN_MAX_DEVICES) cuda_count = CNN_MAX_DEVICES;
  return NULL;
}

__attribute__((visibility("default"))) const char *cnn_driver_open(const cnn_host *host,
                                                                   cnn_driver *driver);

const char *cnn_driver_open(const cnn_host *host, cnn_driver *driver) {
  const char *wrong = refuse(host);
  if (wrong) return wrong;
  wrong = find_devices();
  if (wrong) {
    (void)cudaGetLastError();
    return wrong;
  }
  cuda_host = *host;
  for (int i = 0; i < cuda_count; i++) {
    devices[i].index = i;
    pthread_mutex_init(&devices[i].staging, NULL);
    cuda_memory_open(&devices[i]);
  }
  *driver = (cnn_driver){
      .abi = CNN_DRIVER_ABI,
      .name = version_text(),
      .simulated = cuda_is_simulated(),
      .count = cuda_count,
      .backend =
          {.name = "cuda", .kernels = cuda_kernels, .plan = plan, .run = run, .copy = cuda_copy},
      .mapper = mapper,
      .properties = properties,
      .is_used = is_used,
      .synchronize = synchronize,
      .set_sync = set_sync,
      .is_sync = is_sync,
      .set_tf32 = set_tf32,
      .allows_tf32 = cuda_allow_tf32,
      .set_fuse_relu = set_fuse_relu,
      .fuses_relu = cuda_fuse_relu,
      .host_alloc = cuda_host_alloc,
      .host_free = cuda_host_free,
      .host_owns = cuda_host_owns,
      .host_settle = cuda_host_settle,
      .host_trim = cuda_host_trim,
      .counts_get = cuda_counts_get,
      .kernel_counts_get = cuda_kernel_counts_get,
      .shutdown = shutdown_devices,
  };
  cuda_streams_fill(driver);
  cuda_programs_fill(driver);
  cuda_libraries_fill(driver);
  return NULL;
}
