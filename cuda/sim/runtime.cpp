// SPDX-License-Identifier: MIT
//
// The runtime API but for streams: devices, errors, memory, launches. Prototypes are the toolkit's,
// error codes those that the real library gives for the same misuse; where a GPU would do something
// undefined, there is a report too.
#include <stdio.h>
#include <string.h>
#include <algorithm>
#include <set>
#include "core.h"

namespace sim {
cudaError_t take_last_error(bool clear);

static bool peer[MAX_DEVICES][MAX_DEVICES];
bool peers_enabled(int from, int to) {
  return from == to || peer[from][to];
}

static std::map<const void *, int> &dynamic_limit =
    *new std::map<const void *, int>; // cudaFuncSetAttribute
static int limit_of(const void *f) {
  auto it = dynamic_limit.find(f);
  return it == dynamic_limit.end() ? int(STATIC_SHARED_MAX) : it->second;
}

void reset_device(int device) {
  drop_device(device);
  release_device(device);
  drop_context(device);
  poison(device, cudaSuccess);
  for (int i = 0; i < MAX_DEVICES; i++) peer[device][i] = false;
}

static bool valid_device(int d) {
  return d >= 0 && d < options().devices;
}

// ---- Copies -----------------------------------------------------------------------------------

struct Copy {
  char *to;
  const char *from;
  size_t to_pitch, from_pitch, width, height;
  bool to_device, from_device;
  size_t span(size_t pitch) const { return (height - 1) * pitch + width; }
};

static bool is_managed(const void *p) {
  const Block *b = find_host(p);
  return b && b->kind == Kind::managed;
}

static bool still_there(const Copy &c) {
  const bool to = !c.to_device || sim_is_device(c.to, c.span(c.to_pitch));
  const bool from = !c.from_device || sim_is_device(c.from, c.span(c.from_pitch));
  if (!to) sim_report("copy to %s", describe(c.to, c.span(c.to_pitch)).c_str());
  if (!from) sim_report("copy from %s", describe(c.from, c.span(c.from_pitch)).c_str());
  return to && from;
}

static void run_copy(const Copy &c) {
  if (!still_there(c)) return;
  counts().copies++;
  const size_t bytes = c.width * c.height;
  if (c.to_device && c.from_device)
    counts().bytes_d2d += bytes;
  else if (c.to_device)
    counts().bytes_h2d += bytes;
  else if (c.from_device)
    counts().bytes_d2h += bytes;
  for (size_t y = 0; y < c.height; y++) {
    char *to = c.to + y * c.to_pitch;
    const char *from = c.from + y * c.from_pitch;
    if (c.to_device && c.from_device)
      copy_marks(to, from, c.width);
    else if (c.to_device)
      sim_touch_write(to, c.width);
    else if (c.from_device)
      sim_touch_read(from, c.width);
    memmove(to, from, c.width);
  }
}

static cudaError_t copy(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                        size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream,
                        bool async) {
  if (!async)
    if (cudaError_t e = forbid_in_capture()) return e;
  if (!width || !height) return cudaSuccess;
  if (!to || !from || to_pitch < width || from_pitch < width) return cudaErrorInvalidValue;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
    return cudaErrorInvalidMemcpyDirection;
  Copy c = {static_cast<char *>(to),
            static_cast<const char *>(from),
            to_pitch,
            from_pitch,
            width,
            height,
            false,
            false};
  c.to_device = in_arena(to), c.from_device = in_arena(from);
  const bool wants_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool wants_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault && ((wants_to != c.to_device && !is_managed(to)) ||
                                    (wants_from != c.from_device && !is_managed(from)))) {
    sim_report("copy of the wrong kind: to %s, from %s", describe(to).c_str(),
               describe(from).c_str());
    return cudaErrorInvalidValue;
  }
  if (!still_there(c)) return cudaErrorInvalidValue;
  const bool pinned_to = find_host(to), pinned_from = find_host(from);
  std::function<void()> work = [c] { run_copy(c); };
  if (!c.from_device && c.to_device && !pinned_from && !is_capturing(stream)) {
    // Pageable memory is read during the call.
    auto staged = std::make_shared<std::vector<char>>(width * height);
    for (size_t y = 0; y < height; y++)
      memcpy(staged->data() + y * width, c.from + y * from_pitch, width);
    work = [c, staged] {
      Copy s = c;
      s.from = staged->data();
      s.from_pitch = s.width;
      run_copy(s);
    };
  }
  if (cudaError_t e = push(stream, "memcpy", std::move(work))) return e;
  if (is_capturing(stream)) return cudaSuccess;
  const bool to_pageable = !c.to_device && !pinned_to;
  const bool waits = async ? to_pageable : !(c.to_device && c.from_device);
  if (!waits) return cudaSuccess;
  counts().synchronisations++;
  return wait_stream(stream);
}

static cudaError_t set(void *p, size_t pitch, int value, size_t width, size_t height,
                       cudaStream_t stream, bool async) {
  if (!async)
    if (cudaError_t e = forbid_in_capture()) return e;
  if (!width || !height) return cudaSuccess;
  if (!p || pitch < width) return cudaErrorInvalidValue;
  const size_t span = (height - 1) * pitch + width;
  if (!find_host(p) && !sim_is_device(p, span)) {
    sim_report("memset of %s", describe(p, span).c_str());
    return cudaErrorInvalidValue;
  }
  return push(stream, "memset", [=] {
    counts().bytes_set += width * height;
    for (size_t y = 0; y < height; y++) {
      char *row = static_cast<char *>(p) + y * pitch;
      if (!find_host(p) && !sim_is_device(row, width)) {
        sim_report("memset of %s", describe(row).c_str());
        return;
      }
      sim_touch_write(row, width);
      memset(row, value, width);
    }
  });
}

// ---- Launches ---------------------------------------------------------------------------------

// Without the parentheses that LAUNCH wants round commas. Kept: a module's text goes with it.
static const char *kernel_name(const char *written) {
  static auto &names = *new std::set<std::string>;
  std::string s = written;
  if (s.size() > 2 && s.front() == '(' && s.back() == ')') s = s.substr(1, s.size() - 2);
  return names.insert(s).first->c_str();
}

static cudaError_t check_shape(const SimKernel *k, dim3 g, dim3 b, size_t shared) {
  if (!g.x || !g.y || !g.z || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535 || !b.x || !b.y ||
      !b.z || b.x > 1024 || b.y > 1024 || b.z > 64 || uint64_t(b.x) * b.y * b.z > 1024 ||
      uint64_t(g.x) * g.y * g.z > 0xffffffffu)
    return cudaErrorInvalidConfiguration;
#ifndef SIM_ASAN // whose red zones count as size
  const size_t fixed = shared_bytes_of(k->function);
  if (fixed > STATIC_SHARED_MAX) {
    sim_report("%s: %zu bytes of static shared memory: ptxas allows 48 KiB", k->name, fixed);
    return cudaErrorInvalidValue;
  }
  if (fixed + shared > SHARED_OPTIN_MAX) return cudaErrorInvalidValue;
#endif
  return shared > static_cast<size_t>(limit_of(k->function)) ? cudaErrorInvalidValue : cudaSuccess;
}

} // namespace sim

using namespace sim;

extern "C" {

cudaError_t sim_enqueue_kernel(const SimKernel *k, dim3 grid, dim3 block, size_t shared,
                               cudaStream_t stream) {
  std::shared_ptr<void> args(k->args, k->destroy);
  std::vector<sim_extent> extents;
  const bool guarded = take_guard(&extents);
  SIM_ENTER();
  if (!k->function) return fail(cudaErrorInvalidDeviceFunction);
  if (cudaError_t e = check_shape(k, grid, block, shared)) return fail(e);
  const int device = stream_device(stream);
  if (device != current_device) return fail(cudaErrorInvalidResourceHandle);
  Launch l = {*k,     args,    {k->pointers, k->pointers + k->pointer_count},
              grid,   block,   shared,
              device, guarded, std::move(extents)};
  l.kernel.pointers = nullptr;
  l.kernel.name = kernel_name(k->name);
  return fail(push(stream, l.kernel.name, [l] { run_kernel(l); }));
}

cudaError_t cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t) {
  Api api;
  sim_report("cudaLaunchKernel says no types of arguments: use LAUNCH");
  return fail(cudaErrorInvalidDeviceFunction);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *, const void *, void **) {
  return cudaLaunchKernel(nullptr, dim3(), dim3(), nullptr, 0, nullptr);
}
cudaError_t cudaLaunchCooperativeKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t) {
  return cudaLaunchKernel(nullptr, dim3(), dim3(), nullptr, 0, nullptr);
}

cudaError_t cudaFuncSetAttribute(const void *f, cudaFuncAttribute attribute, int value) {
  SIM_ENTER();
  if (!f) return fail(cudaErrorInvalidDeviceFunction);
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
    return fail(value < -1 || value > 100 ? cudaErrorInvalidValue : cudaSuccess);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return fail(cudaErrorInvalidValue);
  const size_t fixed = shared_bytes_of(f);
  if (value < 0 || static_cast<size_t>(value) + fixed > SHARED_OPTIN_MAX)
    return fail(cudaErrorInvalidValue);
  dynamic_limit[f] = value;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *f) {
  SIM_ENTER();
  if (!a || !f) return fail(cudaErrorInvalidValue);
  memset(a, 0, sizeof *a);
  a->sharedSizeBytes = shared_bytes_of(f);
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->ptxVersion = a->binaryVersion = 90;
  a->maxDynamicSharedSizeBytes = limit_of(f);
  a->preferredShmemCarveout = -1;
  return cudaSuccess;
}
cudaError_t cudaFuncSetCacheConfig(const void *, cudaFuncCache) {
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int block,
                                                                   size_t shared, unsigned) {
  SIM_ENTER();
  if (!n || !f || block < 1) return fail(cudaErrorInvalidValue);
  if (block > 1024 || shared > SHARED_OPTIN_MAX) return *n = 0, cudaSuccess;
  const size_t by_shared = SHARED_PER_SM / (shared + shared_bytes_of(f) + 1024);
  *n = static_cast<int>(std::min({size_t(2048 / ((block + 31) / 32 * 32)), size_t(32), by_shared}));
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int block,
                                                          size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, f, block, shared, 0);
}

// ---- Errors, versions -------------------------------------------------------------------------

cudaError_t cudaGetLastError(void) {
  Api api(true);
  const cudaError_t e = device_error(current_device);
  const cudaError_t last = take_last_error(true);
  return e ? e : last;
}
cudaError_t cudaPeekAtLastError(void) {
  Api api(true);
  const cudaError_t e = device_error(current_device);
  return e ? e : take_last_error(false);
}
cudaError_t cudaDriverGetVersion(int *v) {
  return *v = options().driver, cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v) {
  return *v = CUDART_VERSION, cudaSuccess;
}

struct ErrorText {
  cudaError_t e;
  const char *name, *text;
};
#define SIM_ERROR(e, text) {e, #e, text},
static const ErrorText error_texts[] = {
    SIM_ERROR(cudaSuccess, "no error") SIM_ERROR(
        cudaErrorInvalidValue,
        "invalid argument") SIM_ERROR(cudaErrorMemoryAllocation,
                                      "out of memory") SIM_ERROR(cudaErrorInitializationError,
                                                                 "initialization error")
        SIM_ERROR(cudaErrorCudartUnloading, "driver shutting down") SIM_ERROR(
            cudaErrorInvalidConfiguration,
            "invalid configuration argument") SIM_ERROR(cudaErrorInvalidMemcpyDirection,
                                                        "invalid copy direction for memcpy")
            SIM_ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient") SIM_ERROR(
                cudaErrorInvalidDeviceFunction,
                "invalid device function") SIM_ERROR(cudaErrorNoDevice,
                                                     "no CUDA-capable device is detected")
                SIM_ERROR(cudaErrorInvalidDevice, "invalid device ordinal") SIM_ERROR(
                    cudaErrorInvalidResourceHandle,
                    "invalid resource handle") SIM_ERROR(cudaErrorIllegalState,
                                                         "the operation cannot be performed in the "
                                                         "present state")
                    SIM_ERROR(cudaErrorSymbolNotFound, "named symbol not found") SIM_ERROR(
                        cudaErrorNotReady,
                        "device not ready") SIM_ERROR(cudaErrorIllegalAddress,
                                                      "an illegal memory access was encountered")
                        SIM_ERROR(cudaErrorLaunchOutOfResources,
                                  "too many resources requested for "
                                  "launch") SIM_ERROR(cudaErrorLaunchTimeout,
                                                      "the launch timed out and was terminated")
                            SIM_ERROR(cudaErrorPeerAccessAlreadyEnabled,
                                      "peer access is already "
                                      "enabled") SIM_ERROR(cudaErrorPeerAccessNotEnabled,
                                                           "peer access has not been enabled")
                                SIM_ERROR(
                                    cudaErrorAssert,
                                    "device-side assert "
                                    "triggered") SIM_ERROR(cudaErrorHostMemoryAlreadyRegistered,
                                                           "part or all of the memory is "
                                                           "registered")
                                    SIM_ERROR(cudaErrorHostMemoryNotRegistered,
                                              "pointer is not "
                                              "registered host "
                                              "memory") SIM_ERROR(cudaErrorMisalignedAddress,
                                                                  "misaligned address")
                                        SIM_ERROR(cudaErrorLaunchFailure,
                                                  "unspecified launch "
                                                  "failure") SIM_ERROR(cudaErrorNotPermitted,
                                                                       "operation not permitted")
                                            SIM_ERROR(cudaErrorNotSupported, "operation not "
                                                                             "supported")
                                                SIM_ERROR(cudaErrorStreamCaptureUnsupported,
                                                          "operation not permitted when stream is "
                                                          "capturing")
                                                    SIM_ERROR(
                                                        cudaErrorStreamCaptureInvalidated,
                                                        "operation failed due to a previous error "
                                                        "during "
                                                        "capture") SIM_ERROR(cudaErrorStreamCaptureMerge,
                                                                             "operation would "
                                                                             "merge "
                                                                             "two captures")
                                                        SIM_ERROR(cudaErrorStreamCaptureUnmatched,
                                                                  "capture was not initiated in "
                                                                  "this stream")
                                                            SIM_ERROR(
                                                                cudaErrorStreamCaptureUnjoined,
                                                                "capturing stream has unjoined "
                                                                "work")
                                                                SIM_ERROR(
                                                                    cudaErrorStreamCaptureIsolation,
                                                                    "dependency created on "
                                                                    "uncaptured "
                                                                    "work in another "
                                                                    "stream")
                                                                    SIM_ERROR(
                                                                        cudaErrorStreamCaptureImplicit,
                                                                        "operation would make the "
                                                                        "legacy stream depend on a "
                                                                        "capturing blocking stream")
                                                                        SIM_ERROR(
                                                                            cudaErrorCapturedEvent,
                                                                            "operation not "
                                                                            "permitted "
                                                                            "on an event last "
                                                                            "recorded "
                                                                            "in a "
                                                                            "capturing stream")
                                                                            SIM_ERROR(
                                                                                cudaErrorStreamCaptureWrongThread,
                                                                                "attempt to "
                                                                                "terminate "
                                                                                "a thread-local "
                                                                                "capture from "
                                                                                "another thread")
                                                                                SIM_ERROR(
                                                                                    cudaErrorGraphExecUpdateFailure,
                                                                                    "the graph "
                                                                                    "update "
                                                                                    "was not "
                                                                                    "performed")
                                                                                    SIM_ERROR(
                                                                                        cudaErrorUnknown,
                                                                                        "unknown "
                                                                                        "error")};

static const ErrorText *text_of(cudaError_t e) {
  for (const ErrorText &t : error_texts)
    if (t.e == e) return &t;
  return nullptr;
}
const char *cudaGetErrorName(cudaError_t e) {
  const ErrorText *t = text_of(e);
  return t ? t->name : "unrecognized error code";
}
const char *cudaGetErrorString(cudaError_t e) {
  const ErrorText *t = text_of(e);
  return t ? t->text : "unrecognized error code";
}

// ---- Allocation -------------------------------------------------------------------------------

cudaError_t cudaMalloc(void **p, size_t bytes) {
  SIM_ENTER();
  if (!p) return fail(cudaErrorInvalidValue);
  if (cudaError_t e = forbid_in_capture()) return fail(e);
  return fail(device_malloc(current_device, bytes, p));
}
cudaError_t cudaMallocPitch(void **p, size_t *pitch, size_t width, size_t height) {
  if (!pitch) return fail(cudaErrorInvalidValue);
  *pitch = (width + 511) / 512 * 512;
  return cudaMalloc(p, *pitch * height);
}
cudaError_t cudaFree(void *p) {
  Api api;
  if (!p) return fail(device_error(current_device));
  if (cudaError_t e = forbid_in_capture()) return fail(e);
  if (is_managed(p)) {
    wait_all();
    return fail(host_free(p, Kind::managed));
  }
  // The real one waits too, though no page promises it.
  if (!options().strict && find_block(p) && !busy()) wait_device(arena_device(p));
  const cudaError_t e = device_free(p), sticky = device_error(current_device);
  return fail(sticky ? sticky : e);
}
cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t stream) {
  SIM_ENTER();
  if (!p) return fail(cudaErrorInvalidValue);
  if (is_capturing(stream)) return fail(cudaErrorNotSupported);
  return fail(device_malloc(stream_device(stream), bytes, p));
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t stream) {
  SIM_ENTER();
  if (!p) return cudaSuccess;
  if (is_capturing(stream)) return fail(cudaErrorNotSupported);
  if (!find_block(p)) return fail(device_free(p)); // says what is wrong
  return fail(push(stream, "cudaFreeAsync", [p] { device_free(p); }));
}
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags) {
  SIM_ENTER();
  if (!p) return fail(cudaErrorInvalidValue);
  if (cudaError_t e = forbid_in_capture()) return fail(e);
  return fail(host_malloc(bytes, flags, Kind::host, p));
}
cudaError_t cudaMallocHost(void **p, size_t bytes) {
  return cudaHostAlloc(p, bytes, 0);
}
cudaError_t cudaMallocManaged(void **p, size_t bytes, unsigned flags) {
  SIM_ENTER();
  if (!p || !bytes) return fail(cudaErrorInvalidValue);
  return fail(host_malloc(bytes, flags, Kind::managed, p));
}
cudaError_t cudaFreeHost(void *p) {
  Api api;
  if (!p) return cudaSuccess;
  if (cudaError_t e = forbid_in_capture()) return fail(e);
  if (!options().strict) wait_all();
  return fail(host_free(p, Kind::host));
}
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags) {
  SIM_ENTER();
  return fail(host_register(p, bytes, flags));
}
cudaError_t cudaHostUnregister(void *p) {
  Api api;
  if (!options().strict) wait_all();
  return fail(host_unregister(p));
}
cudaError_t cudaHostGetDevicePointer(void **out, void *p, unsigned flags) {
  SIM_ENTER();
  if (!out || flags || !find_host(p)) return fail(cudaErrorInvalidValue);
  *out = p;
  return cudaSuccess;
}
cudaError_t cudaHostGetFlags(unsigned *out, void *p) {
  SIM_ENTER();
  const Block *b = find_host(p);
  if (!out || !b) return fail(cudaErrorInvalidValue);
  *out = b->flags;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
  SIM_ENTER();
  use_context(current_device);
  const size_t memory = options().memory, used = device_used(current_device);
  if (available) *available = memory > used ? memory - used : 0;
  if (total) *total = memory;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p) {
  SIM_ENTER();
  if (!a) return fail(cudaErrorInvalidValue);
  memset(a, 0, sizeof *a);
  a->device = -2; // cudaInvalidDeviceId
  if (const Block *b = find_block(p)) {
    a->type = cudaMemoryTypeDevice;
    a->device = b->device;
    a->devicePointer = const_cast<void *>(p);
  } else if (const Block *h = find_host(p)) {
    a->type = h->kind == Kind::managed ? cudaMemoryTypeManaged : cudaMemoryTypeHost;
    a->device = h->device;
    a->devicePointer = a->hostPointer = const_cast<void *>(p);
  } else {
    a->type = cudaMemoryTypeUnregistered;
    a->hostPointer = in_arena(p) ? nullptr : const_cast<void *>(p);
  }
  return cudaSuccess;
}

// Pools of memory: one per device, which keeps nothing.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *out, int device) {
  SIM_ENTER();
  if (!valid_device(device)) return fail(cudaErrorInvalidDevice);
  *out = reinterpret_cast<cudaMemPool_t>(static_cast<intptr_t>(device + 1));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *out, int device) {
  return cudaDeviceGetDefaultMemPool(out, device);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *) {
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
  return cudaSuccess;
}

// ---- Copies and fills -------------------------------------------------------------------------

cudaError_t cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind kind) {
  SIM_ENTER();
  return fail(copy(to, n, from, n, n, 1, kind, nullptr, false));
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind,
                            cudaStream_t s) {
  SIM_ENTER();
  return fail(copy(to, n, from, n, n, 1, kind, s, true));
}
cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  SIM_ENTER();
  return fail(copy(to, to_pitch, from, from_pitch, width, height, kind, nullptr, false));
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s) {
  SIM_ENTER();
  return fail(copy(to, to_pitch, from, from_pitch, width, height, kind, s, true));
}
static cudaError_t peer_copy(void *to, int to_device, const void *from, int from_device, size_t n,
                             cudaStream_t s) {
  if (!valid_device(to_device) || !valid_device(from_device)) return cudaErrorInvalidDevice;
  if (n && (arena_device(to) != to_device || arena_device(from) != from_device)) {
    sim_report("cudaMemcpyPeer: to %s (said device %d), from %s (said device %d)",
               describe(to).c_str(), to_device, describe(from).c_str(), from_device);
    return cudaErrorInvalidValue;
  }
  return copy(to, n, from, n, n, 1, cudaMemcpyDeviceToDevice, s, true);
}
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t n, cudaStream_t s) {
  SIM_ENTER();
  return fail(peer_copy(to, to_device, from, from_device, n, s));
}
cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t n) {
  SIM_ENTER();
  if (cudaError_t e = forbid_in_capture()) return fail(e);
  return fail(peer_copy(to, to_device, from, from_device, n, nullptr));
}
cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t n, size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t s) {
  SIM_ENTER();
  if (!symbol || !from) return fail(cudaErrorInvalidSymbol);
  char *to = static_cast<char *>(const_cast<void *>(symbol)) + offset;
  if (kind == cudaMemcpyDeviceToDevice || in_arena(from))
    return fail(push(s, "memcpy", [=] { memcpy(to, from, n); }));
  auto staged = std::make_shared<std::string>(static_cast<const char *>(from), n);
  return fail(push(s, "memcpy", [=] { memcpy(to, staged->data(), n); }));
}
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t n, size_t offset,
                               cudaMemcpyKind kind) {
  Api api(true);
  const cudaError_t e = cudaMemcpyToSymbolAsync(symbol, from, n, offset, kind, nullptr);
  return e ? e : fail(wait_stream(nullptr));
}
cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t n, size_t offset,
                                 cudaMemcpyKind) {
  SIM_ENTER();
  if (!symbol || !to) return fail(cudaErrorInvalidSymbol);
  const char *from = static_cast<const char *>(symbol) + offset;
  const cudaError_t e = push(nullptr, "memcpy", [=] { memcpy(to, from, n); });
  return fail(e ? e : wait_stream(nullptr));
}
cudaError_t cudaGetSymbolAddress(void **out, const void *symbol) {
  return *out = const_cast<void *>(symbol), cudaSuccess;
}
cudaError_t cudaMemset(void *p, int value, size_t n) {
  SIM_ENTER();
  return fail(set(p, n, value, n, 1, nullptr, false));
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s) {
  SIM_ENTER();
  return fail(set(p, n, value, n, 1, s, true));
}
cudaError_t cudaMemset2D(void *p, size_t pitch, int value, size_t width, size_t height) {
  SIM_ENTER();
  return fail(set(p, pitch, value, width, height, nullptr, false));
}
cudaError_t cudaMemset2DAsync(void *p, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t s) {
  SIM_ENTER();
  return fail(set(p, pitch, value, width, height, s, true));
}

// ---- Devices ----------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int *n) {
  Api api;
  if (!n) return fail(cudaErrorInvalidValue);
  *n = 0;
  if (options().driver < CUDART_VERSION) return fail(cudaErrorInsufficientDriver);
  *n = options().devices;
  return *n ? cudaSuccess : fail(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  Api api;
  if (!valid_device(device)) return fail(cudaErrorInvalidDevice);
  current_device = device;
  use_context(device);
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
  Api api;
  if (!device) return fail(cudaErrorInvalidValue);
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return cudaSetDevice(device);
}
cudaError_t cudaSetDeviceFlags(unsigned) {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceFlags(unsigned *f) {
  return *f = 0, cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
  SIM_ENTER();
  counts().synchronisations++;
  return fail(wait_device(current_device));
}
cudaError_t cudaDeviceReset(void) {
  Api api;
  reset_device(current_device);
  take_last_error(true);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetLimit(size_t *value, cudaLimit limit) {
  *value = limit == cudaLimitStackSize ? 1024 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) {
  return cudaSuccess;
}
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) {
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int other) {
  SIM_ENTER();
  if (!valid_device(device) || !valid_device(other)) return fail(cudaErrorInvalidDevice);
  *can = device != other && options().peers;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned flags) {
  SIM_ENTER();
  if (!valid_device(other) || other == current_device) return fail(cudaErrorInvalidDevice);
  if (!options().peers) return fail(cudaErrorPeerAccessUnsupported);
  if (flags) return fail(cudaErrorInvalidValue);
  if (peer[current_device][other]) return fail(cudaErrorPeerAccessAlreadyEnabled);
  peer[current_device][other] = true;
  return cudaSuccess;
}
cudaError_t cudaDeviceDisablePeerAccess(int other) {
  SIM_ENTER();
  if (!valid_device(other)) return fail(cudaErrorInvalidDevice);
  if (!peer[current_device][other]) return fail(cudaErrorPeerAccessNotEnabled);
  peer[current_device][other] = false;
  return cudaSuccess;
}

// Shaped after an H100 with few multiprocessors, so that grids of a size that follows their number
// stay small.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
  Api api;
  if (!p || !valid_device(device)) return fail(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "Simulated GPU");
  memcpy(p->uuid.bytes, "simulated gpu  ", 15);
  p->uuid.bytes[15] = static_cast<char>('0' + device);
  p->totalGlobalMem = options().memory;
  p->sharedMemPerBlock = STATIC_SHARED_MAX;
  p->sharedMemPerBlockOptin = SHARED_OPTIN_MAX;
  p->sharedMemPerMultiprocessor = SHARED_PER_SM;
  p->reservedSharedMemPerBlock = 1024;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->memPitch = 0x7fffffff;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7fffffff;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536;
  p->major = 9, p->minor = 0;
  p->textureAlignment = 512;
  p->multiProcessorCount = 4;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxBlocksPerMultiProcessor = 32;
  p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->managedMemory = 1;
  p->streamPrioritiesSupported = p->memoryPoolsSupported = p->hostRegisterSupported = 1;
  p->globalL1CacheSupported = p->localL1CacheSupported = 1;
  p->asyncEngineCount = 2;
  p->memoryBusWidth = 5120;
  p->l2CacheSize = 50 << 20;
  p->pciBusID = device + 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *v, cudaDeviceAttr a, int device) {
  cudaDeviceProp p;
  if (!v) return fail(cudaErrorInvalidValue);
  if (cudaError_t e = cudaGetDeviceProperties(&p, device)) return e;
  switch (static_cast<int>(a)) {
  case cudaDevAttrMaxThreadsPerBlock: *v = p.maxThreadsPerBlock; break;
  case cudaDevAttrMaxBlockDimX: *v = p.maxThreadsDim[0]; break;
  case cudaDevAttrMaxBlockDimY: *v = p.maxThreadsDim[1]; break;
  case cudaDevAttrMaxBlockDimZ: *v = p.maxThreadsDim[2]; break;
  case cudaDevAttrMaxGridDimX: *v = p.maxGridSize[0]; break;
  case cudaDevAttrMaxGridDimY: *v = p.maxGridSize[1]; break;
  case cudaDevAttrMaxGridDimZ: *v = p.maxGridSize[2]; break;
  case cudaDevAttrMaxSharedMemoryPerBlock: *v = int(p.sharedMemPerBlock); break;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = int(p.sharedMemPerBlockOptin); break;
  case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *v = int(p.sharedMemPerMultiprocessor); break;
  case cudaDevAttrReservedSharedMemoryPerBlock: *v = int(p.reservedSharedMemPerBlock); break;
  case cudaDevAttrTotalConstantMemory: *v = int(p.totalConstMem); break;
  case cudaDevAttrWarpSize: *v = p.warpSize; break;
  case cudaDevAttrMaxRegistersPerBlock: *v = p.regsPerBlock; break;
  case cudaDevAttrMaxRegistersPerMultiprocessor: *v = p.regsPerMultiprocessor; break;
  case cudaDevAttrMultiProcessorCount: *v = p.multiProcessorCount; break;
  case cudaDevAttrMaxThreadsPerMultiProcessor: *v = p.maxThreadsPerMultiProcessor; break;
  case cudaDevAttrMaxBlocksPerMultiprocessor: *v = p.maxBlocksPerMultiProcessor; break;
  case cudaDevAttrComputeCapabilityMajor: *v = p.major; break;
  case cudaDevAttrComputeCapabilityMinor: *v = p.minor; break;
  case cudaDevAttrL2CacheSize: *v = p.l2CacheSize; break;
  case cudaDevAttrGlobalMemoryBusWidth: *v = p.memoryBusWidth; break;
  case cudaDevAttrClockRate: *v = 1000000; break;
  case cudaDevAttrMemoryClockRate: *v = 1000000; break;
  case cudaDevAttrAsyncEngineCount: *v = p.asyncEngineCount; break;
  case cudaDevAttrTextureAlignment: *v = int(p.textureAlignment); break;
  case cudaDevAttrPciBusId: *v = p.pciBusID; break;
  case cudaDevAttrConcurrentKernels:
  case cudaDevAttrUnifiedAddressing:
  case cudaDevAttrManagedMemory:
  case cudaDevAttrCanMapHostMemory:
  case cudaDevAttrStreamPrioritiesSupported:
  case cudaDevAttrHostRegisterSupported:
  case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
  case cudaDevAttrMemoryPoolsSupported: *v = 1; break;
  default: *v = 0;
  }
  return cudaSuccess;
}

} // extern "C"
