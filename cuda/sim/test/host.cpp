// SPDX-License-Identifier: MIT
//
// The host side: streams, events, captures, memory of all kinds, errors, run-time compilation.
#include <cuda.h>
#include <nvrtc.h>
#include <stdio.h>
#include <string.h>
#include <string>
#include <thread>
#include "../include/sim.h"
#include "cases.h"
#include "kernels.h"

#define MUT(n)       (mutation == (n))
#define DRIVER(call) EXPECT((call) == CUDA_SUCCESS)

struct Pinned {
  float *p = nullptr;
  explicit Pinned(size_t n) { cudaMallocHost(reinterpret_cast<void **>(&p), n * sizeof(float)); }
  Pinned(const Pinned &) = delete;
  Pinned &operator=(const Pinned &) = delete;
  ~Pinned() { cudaFreeHost(p); }
};

struct Stream {
  cudaStream_t s = nullptr;
  explicit Stream(unsigned flags = cudaStreamNonBlocking) { cudaStreamCreateWithFlags(&s, flags); }
  Stream(const Stream &) = delete;
  Stream &operator=(const Stream &) = delete;
  ~Stream() { cudaStreamDestroy(s); }
  operator cudaStream_t() const { return s; }
};

struct Event {
  cudaEvent_t e = nullptr;
  Event() { cudaEventCreate(&e); }
  Event(const Event &) = delete;
  Event &operator=(const Event &) = delete;
  ~Event() { cudaEventDestroy(e); }
  operator cudaEvent_t() const { return e; }
};

static const std::vector<float> ones(100, 1.0f);

// Two streams in a row by an event, to pinned memory and back.
static bool two_streams(cudaStream_t s) {
  Stream other;
  Event done, twice;
  Pinned in(100), out(100);
  Device<float> x(100);
  for (int i = 0; i < 100; i++) in.p[i] = 1;
  TRY(cudaMemcpyAsync(x, in.p, 400, cudaMemcpyHostToDevice, s));
  if (MUT(103)) in.p[7] = 5; // the copy may not have run
  TRY(k_scale(x, 3, 100, s));
  TRY(cudaEventRecord(done, s));
  if (!MUT(102)) TRY(cudaStreamWaitEvent(other, done, 0));
  TRY(k_scale(x, 2, 100, other));
  TRY(cudaMemcpyAsync(out.p, x, 400, cudaMemcpyDeviceToHost, other));
  TRY(cudaEventRecord(twice, other));
  if (!MUT(101)) TRY(cudaEventSynchronize(twice));
  const bool right = same(std::vector<float>(out.p, out.p + 100), std::vector<float>(100, 6.0f), 0);
  TRY(cudaStreamSynchronize(s));
  TRY(cudaStreamSynchronize(other));
  return right;
}

// Blocking streams and the default stream wait for each other.
static bool default_stream(cudaStream_t) {
  Stream blocking(MUT(122) ? cudaStreamNonBlocking : cudaStreamDefault);
  Device<float> x(ones);
  TRY(k_scale(x, 3, 100, blocking));
  TRY(cudaMemsetAsync(x, 0, 200, nullptr));
  TRY(k_scale(x, 2, 100, blocking));
  auto want = std::vector<float>(100, 6.0f);
  std::fill(want.begin(), want.begin() + 50, 0.0f);
  return same(x.host(blocking), want, 0);
}

static bool queries(cudaStream_t s) {
  Event a, b;
  Device<float> x(ones);
  TRY(cudaEventRecord(a, s));
  for (int i = 0; i < 5; i++) TRY(k_scale(x, 1, 100, s));
  TRY(cudaEventRecord(b, s));
  cudaError_t e;
  int polls = 0;
  while ((e = cudaEventQuery(b)) == cudaErrorNotReady && polls++ < 100) {
  }
  EXPECT(e == cudaSuccess && polls < 100);
  while ((e = cudaStreamQuery(s)) == cudaErrorNotReady) {
  }
  EXPECT(e == cudaSuccess);
  cudaGetLastError(); // "not ready" is remembered as an error, as by the real one
  float ms = -1;
  TRY(cudaEventElapsedTime(&ms, a, b));
  EXPECT(ms >= 0);
  return true;
}

static void add_one(void *p) {
  ++*static_cast<int *>(p);
}
static bool host_functions(cudaStream_t s) {
  int n = 0;
  TRY(cudaLaunchHostFunc(s, add_one, &n));
  TRY(cudaLaunchHostFunc(s, add_one, &n));
  TRY(cudaStreamSynchronize(s));
  EXPECT(n == 2);
  return true;
}

// ---- Captures ---------------------------------------------------------------------------------

static bool capture(cudaStream_t s) {
  Stream side;
  Event fork, join;
  Device<float> x(ones), y(ones);
  TRY(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  TRY(k_scale(x, 2, 100, s));
  TRY(cudaEventRecord(fork, s));
  TRY(cudaStreamWaitEvent(side, fork, 0));
  TRY(cudaMemcpyAsync(y, x, 400, cudaMemcpyDeviceToDevice, side));
  TRY(k_scale(y, 5, 100, side));
  TRY(cudaEventRecord(join, side));
  if (MUT(111)) { // the next kernel is not behind the side's copy: it joins too late
    TRY(k_scale(x, 3, 100, s));
    TRY(cudaStreamWaitEvent(s, join, 0));
  } else {
    TRY(cudaStreamWaitEvent(s, join, 0));
    TRY(k_scale(x, 3, 100, s));
  }
  cudaStreamCaptureStatus status;
  TRY(cudaStreamIsCapturing(side, &status));
  EXPECT(status == cudaStreamCaptureStatusActive);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  TRY(cudaStreamEndCapture(s, &graph));
  TRY(cudaGraphInstantiate(&exec, graph, 0));
  TRY(cudaGraphDestroy(graph));
  EXPECT(same(x.host(s), ones, 0)); // nothing has run
  TRY(cudaGraphLaunch(exec, s));
  TRY(cudaGraphLaunch(exec, s));
  TRY(cudaGraphExecDestroy(exec));
  return same(x.host(s), std::vector<float>(100, 36.0f), 0) &&
         same(y.host(s), std::vector<float>(100, 60.0f), 0);
}

static bool capture_errors(cudaStream_t s) {
  cudaGraph_t graph;
  void *p;
  TRY(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  EXPECT(cudaStreamSynchronize(s) == cudaErrorStreamCaptureUnsupported);
  EXPECT(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated && !graph);
  TRY(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  EXPECT(cudaMalloc(&p, 100) == cudaErrorStreamCaptureUnsupported);
  EXPECT(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated);
  TRY(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  TRY(cudaMalloc(&p, 100));
  TRY(cudaMemsetAsync(p, 0, 100, s));
  TRY(cudaStreamEndCapture(s, &graph));
  TRY(cudaGraphDestroy(graph));
  TRY(cudaFree(p));
  Stream side;
  Event fork;
  TRY(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  TRY(cudaEventRecord(fork, s));
  TRY(cudaStreamWaitEvent(side, fork, 0));
  TRY(cudaLaunchHostFunc(side, add_one, nullptr));
  EXPECT(cudaEventQuery(fork) == cudaErrorCapturedEvent);
  EXPECT(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated);
  TRY(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  TRY(cudaEventRecord(fork, s));
  TRY(cudaStreamWaitEvent(side, fork, 0));
  TRY(cudaLaunchHostFunc(side, add_one, nullptr));
  EXPECT(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureUnjoined);
  Stream blocking(cudaStreamDefault);
  TRY(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  EXPECT(cudaLaunchHostFunc(nullptr, add_one, nullptr) == cudaErrorStreamCaptureImplicit);
  EXPECT(cudaStreamEndCapture(blocking, &graph) == cudaErrorStreamCaptureInvalidated);
  EXPECT(cudaGetLastError() == cudaErrorStreamCaptureInvalidated);
  EXPECT(cudaGetLastError() == cudaSuccess);
  return true;
}

// ---- Memory -----------------------------------------------------------------------------------

static bool misuse(cudaStream_t s) {
  Device<float> x(ones), y(100), sums(1);
  float host[100] = {0};
  if (MUT(100)) return x[3] == 1; // a host that follows a device pointer
  if (MUT(104) || MUT(125)) {
    float *p;
    TRY(cudaMalloc(reinterpret_cast<void **>(&p), 400));
    TRY(cudaMemsetAsync(p, 0, 400, s));
    if (MUT(125)) TRY(k_scale(p, 2, 100, s));
    TRY(cudaFree(p));
    if (MUT(104)) TRY(k_scale(p, 2, 100, s));
    TRY(cudaStreamSynchronize(s));
  }
  if (MUT(105)) {
    Stream other;
    float *p;
    TRY(cudaMallocAsync(reinterpret_cast<void **>(&p), 400, s));
    TRY(cudaMemsetAsync(p, 0, 400, s));
    TRY(cudaStreamSynchronize(s));
    TRY(k_scale(p, 2, 100, s));
    TRY(cudaFreeAsync(p, other)); // does not wait for s
    TRY(cudaStreamSynchronize(other));
    TRY(cudaStreamSynchronize(s));
  }
  if (MUT(106)) cudaMemcpy(x, std::vector<float>(101).data(), 404, cudaMemcpyHostToDevice);
  if (MUT(107)) cudaMemcpy(x, y, 400, cudaMemcpyHostToDevice);
  if (MUT(108)) {
    void *p;
    TRY(cudaMalloc(&p, 10));
    TRY(cudaFree(p));
    cudaFree(p);
  }
  if (MUT(109)) TRY(k_scale(host, 2, 100, s));
  if (MUT(110)) TRY(k_axpby(axpby_args{host, y, 1, 0, 100}, s));
  if (MUT(112)) {
    TRY(cudaSetDevice(1));
    Stream there;
    TRY(k_scale(x, 2, 100, there));
    TRY(cudaStreamSynchronize(there));
    TRY(cudaSetDevice(0));
  }
  if (MUT(115)) TRY(k_block_sum(y, sums, 100, s)); // y was never written
  if (MUT(115)) return same(sums.host(s), {100}, 0);
  if (MUT(116)) return same(y.host(s), ones, 0);
  if (MUT(117)) {
    cudaStream_t gone;
    TRY(cudaStreamCreate(&gone));
    TRY(cudaStreamDestroy(gone));
    k_scale(x, 1, 100, gone);
  }
  if (MUT(118)) cudaMemset(x, 0, 401);
  if (MUT(119)) { // cudaMemcpy2D beyond the last row
    cudaMemcpy2D(x, 40, host, 40, 40, 11, cudaMemcpyHostToDevice);
  }
  sim_mark_unused(x, 200);
  if (MUT(120)) TRY(k_scale(x, 2, 100, s));
  TRY(cudaStreamSynchronize(s));
  sim_mark_used(x, 200);
  TRY(cudaMemsetAsync(x, 0, 400, s));
  return same(x.host(s), std::vector<float>(100, 0.0f), 0);
}

static bool rows_and_symbols(cudaStream_t s) {
  std::vector<float> h(60), back(60, -1.0f);
  for (size_t i = 0; i < 60; i++) h[i] = static_cast<float>(i);
  float *p;
  size_t pitch;
  TRY(cudaMallocPitch(reinterpret_cast<void **>(&p), &pitch, 24, 10));
  EXPECT(pitch % 512 == 0);
  TRY(cudaMemset2DAsync(p, pitch, 0, 24, 10, s));
  TRY(cudaMemcpy2DAsync(p, pitch, h.data(), 24, 20, 10, cudaMemcpyHostToDevice, s));
  TRY(cudaMemcpy2DAsync(back.data(), 24, p, pitch, 24, 10, cudaMemcpyDefault, s));
  TRY(cudaStreamSynchronize(s));
  for (size_t i = 5; i < 60; i += 6) h[i] = 0;
  TRY(cudaFree(p));
  return same(back, h, 0);
}

static bool errors(cudaStream_t s) {
  Device<float> x(ones);
  void *p = nullptr;
  size_t available, total;
  EXPECT(k_scale(x, 1, -1000, s) == cudaErrorInvalidConfiguration);
  EXPECT(k_layer_norm(x, x, 1, 20000, s) == cudaErrorInvalidValue); // 80 KB of shared memory
  EXPECT(cudaMalloc(&p, size_t(1) << 50) == cudaErrorMemoryAllocation);
  EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
  TRY(cudaMemGetInfo(&available, &total));
  EXPECT(available < total);
  sim_fail_alloc(2);
  TRY(cudaMalloc(&p, 10));
  TRY(cudaFree(p));
  EXPECT(cudaMalloc(&p, 10) == cudaErrorMemoryAllocation);
  EXPECT(cudaSetDevice(99) == cudaErrorInvalidDevice);
  EXPECT(cudaGetLastError() == cudaErrorInvalidDevice);
  return same(x.host(s), ones, 0);
}

// A device that failed answers with its error until it is reset. On the second one: a reset takes
// everything away.
static bool poison(cudaStream_t) {
  TRY(cudaSetDevice(1));
  float *p;
  TRY(cudaMalloc(reinterpret_cast<void **>(&p), 400));
  sim_poison_device(1, cudaErrorIllegalAddress);
  EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  EXPECT(k_scale(p, 1, 100, nullptr) == cudaErrorIllegalAddress);
  EXPECT(cudaGetLastError() == cudaErrorIllegalAddress);
  EXPECT(cudaGetLastError() == cudaErrorIllegalAddress);
  TRY(cudaSetDevice(0));
  TRY(cudaDeviceSynchronize());
  TRY(cudaSetDevice(1));
  TRY(cudaDeviceReset());
  TRY(cudaMalloc(reinterpret_cast<void **>(&p), 400));
  TRY(cudaFree(p));
  TRY(cudaSetDevice(0));
  return true;
}

static bool peers(cudaStream_t s) {
  Device<float> x(ones);
  int can = 0;
  TRY(cudaDeviceCanAccessPeer(&can, 1, 0));
  EXPECT(can == 1);
  TRY(cudaSetDevice(1));
  {
    Stream there;
    Event copied;
    Device<float> y(100);
    TRY(cudaMemcpyPeerAsync(y, 1, x, 0, 400, there));
    TRY(k_scale(y, 2, 100, there));
    TRY(cudaEventRecord(copied, there));
    TRY(cudaDeviceEnablePeerAccess(0, 0));
    EXPECT(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessAlreadyEnabled);
    cudaGetLastError();
    TRY(k_scale(x, 4, 100, there)); // another device's memory
    EXPECT(same(y.host(there), std::vector<float>(100, 2.0f), 0));
    EXPECT(k_scale(y, 1, 100, s) == cudaErrorInvalidResourceHandle); // a stream of device 0
    TRY(cudaDeviceDisablePeerAccess(0));
  }
  TRY(cudaSetDevice(0));
  return same(x.host(s), std::vector<float>(100, 4.0f), 0);
}

// A range grows in place; what was mapped elsewhere keeps its bytes.
static bool virtual_memory(cudaStream_t s) {
  DRIVER(cuInit(0));
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  size_t g;
  DRIVER(cuMemGetAllocationGranularity(&g, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr range;
  CUmemGenericAllocationHandle first, second;
  DRIVER(cuMemAddressReserve(&range, 8 * g, 0, 0, 0));
  DRIVER(cuMemCreate(&first, g, &prop, 0));
  DRIVER(cuMemMap(range, g, 0, first, 0));
  if (!MUT(113)) DRIVER(cuMemSetAccess(range, g, &access, 1));
  DRIVER(cuMemCreate(&second, 2 * g, &prop, 0));
  DRIVER(cuMemMap(range + g, 2 * g, 0, second, 0));
  DRIVER(cuMemSetAccess(range + g, 2 * g, &access, 1));
  float *x = reinterpret_cast<float *>(range + g - 200); // over the border of two pieces
  TRY(cudaMemcpy(x, ones.data(), 400, cudaMemcpyHostToDevice));
  TRY(k_scale(x, 2, 100, s));
  float back[100];
  TRY(cudaMemcpyAsync(back, x, 400, cudaMemcpyDeviceToHost, s));
  EXPECT(same(std::vector<float>(back, back + 100), std::vector<float>(100, 2.0f), 0));
  if (MUT(114)) TRY(k_scale(x, 2, 100, s)); // still queued when its memory goes
  DRIVER(cuMemUnmap(range, g));
  if (MUT(114)) TRY(cudaStreamSynchronize(s));
  DRIVER(cuMemMap(range + 5 * g, g, 0, first, 0));
  DRIVER(cuMemSetAccess(range + 5 * g, g, &access, 1));
  TRY(cudaMemcpy(back, reinterpret_cast<void *>(range + 6 * g - 200), 200, cudaMemcpyDefault));
  EXPECT(back[0] == 2 && back[49] == 2);
  DRIVER(cuMemRelease(first));
  DRIVER(cuMemRelease(second));
  DRIVER(cuMemUnmap(range + 5 * g, g));
  EXPECT(cuMemUnmap(range + g, g) == CUDA_ERROR_INVALID_VALUE); // half a piece
  DRIVER(cuMemUnmap(range + g, 2 * g));
  DRIVER(cuMemAddressFree(range, 8 * g));
  void *entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  TRY(cudaGetDriverEntryPointByVersion("cuMemCreate", &entry, 12000, 0, &found));
  EXPECT(entry == reinterpret_cast<void *>(cuMemCreate));
  return true;
}

static bool run_time_compilation(cudaStream_t s) {
  DRIVER(cuInit(0));
  const char *text = "#include <cuda_fp16.h>\n"
                     "#include \"by.h\"\n"
                     "template <int N> __global__ void add(float *x) { x[threadIdx.x] += N; }\n"
                     "extern \"C\" __global__ void scale(float *x, float by, int n) {\n"
                     "  __shared__ float shared[128];\n"
                     "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                     "  shared[threadIdx.x] = i < n ? x[i] : 0.0f;\n"
                     "  __syncthreads();\n"
                     "  if (i < n) x[i] = shared[threadIdx.x] * by * BY;\n"
                     "}\n";
  const char *header = "#define BY 2\n", *header_name = "by.h",
             *option = "--gpu-architecture=sm_90";
  nvrtcProgram p;
  size_t n;
  EXPECT(!nvrtcCreateProgram(&p, text, "scale.cu", 1, &header, &header_name));
  EXPECT(!nvrtcAddNameExpression(p, "add<7>"));
  const nvrtcResult r = nvrtcCompileProgram(p, 1, &option);
  EXPECT(!nvrtcGetProgramLogSize(p, &n));
  std::string log(n, 0);
  EXPECT(!nvrtcGetProgramLog(p, log.data()));
  if (r) fprintf(stderr, "%s\n", log.c_str());
  EXPECT(!r && !nvrtcGetCUBINSize(p, &n));
  std::string image(n, 0);
  const char *lowered;
  EXPECT(!nvrtcGetCUBIN(p, image.data()) && !nvrtcGetLoweredName(p, "add<7>", &lowered));
  CUmodule module;
  CUfunction scale, add;
  DRIVER(cuModuleLoadData(&module, image.data()));
  DRIVER(cuModuleGetFunction(&scale, module, "scale"));
  DRIVER(cuModuleGetFunction(&add, module, lowered));
  EXPECT(cuModuleGetFunction(&add, module, "no_such") == CUDA_ERROR_NOT_FOUND);
  nvrtcDestroyProgram(&p);
  Device<float> x(ones);
  float *px = x.p, by = 3;
  int count = MUT(130) ? 128 : 100;
  void *scale_args[] = {&px, &by, &count}, *add_args[] = {&px};
  DRIVER(cuLaunchKernel(scale, 1, 1, 1, 128, 1, 1, 0, s, scale_args, nullptr));
  by = 0; // arguments are read at the call
  DRIVER(cuLaunchKernel(add, 1, 1, 1, 100, 1, 1, 0, s, add_args, nullptr));
  const bool right = same(x.host(s), std::vector<float>(100, 13.0f), 0);
  DRIVER(cuModuleUnload(module));
  return right;
}

static bool compile_error(cudaStream_t) {
  nvrtcProgram p;
  size_t n;
  EXPECT(!nvrtcCreateProgram(&p, "\nint f() { return nothing; }\n", "bad.cu", 0, nullptr, nullptr));
  EXPECT(nvrtcCompileProgram(p, 0, nullptr) == NVRTC_ERROR_COMPILATION);
  EXPECT(!nvrtcGetProgramLogSize(p, &n));
  std::string log(n, 0);
  EXPECT(!nvrtcGetProgramLog(p, log.data()));
  EXPECT(log.find("bad.cu:2") != std::string::npos && log.find("nothing") != std::string::npos);
  EXPECT(!nvrtcDestroyProgram(&p));
  return true;
}

static bool threads(cudaStream_t) {
  std::vector<std::thread> all;
  bool right[4] = {};
  for (int t = 0; t < 4; t++)
    all.emplace_back([&right, t] {
      Stream s;
      right[t] = true;
      for (int i = 0; i < 10 && right[t]; i++) {
        Device<float> x(ones);
        right[t] = !k_scale(x, 2, 100, s) && same(x.host(s), std::vector<float>(100, 2.0f), 0);
      }
    });
  for (auto &t : all) t.join();
  EXPECT(right[0] && right[1] && right[2] && right[3]);
  return true;
}

// Loads of a matrix product: 2 MNK where each thread reads all it needs, MNK (1/8 + 1/8) in tiles.
static bool counting(cudaStream_t s) {
  const int m = 16, n = 24, k = 32;
  Device<float> a(uniforms(m * k)), b(uniforms(k * n)), c(m * n);
  TRY(cudaStreamSynchronize(s));
  sim_clear_counts();
  TRY(k_matmul(a, b, c, m, n, k, 0, s));
  TRY(k_matmul(a, b, c, m, n, k, 1, s));
  TRY(cudaStreamSynchronize(s));
  sim_counts total;
  sim_kernel_counts naive, tiled;
  sim_get_counts(&total);
  EXPECT(total.launches == 2 && total.synchronisations == 1);
  EXPECT(sim_get_kernel_counts("matmul_naive", &naive));
  EXPECT(sim_get_kernel_counts("matmul_tiled<8>", &tiled));
  EXPECT(tiled.threads == m * n && tiled.barriers == 6 * 4 * 2);
  if (strcmp(sim_flavour(), "check")) return true;
  const uint64_t mnk = uint64_t(m) * n * k;
  EXPECT(naive.global_loads == 2 * mnk && naive.global_stores == m * n);
  EXPECT(tiled.global_loads == mnk / 8 + mnk / 8 && tiled.global_load_bytes == mnk);
  return true;
}

const Case host_cases[] = {{"two_streams", two_streams},
                           {"default_stream", default_stream},
                           {"queries", queries},
                           {"host_functions", host_functions},
                           {"capture", capture},
                           {"capture_errors", capture_errors},
                           {"misuse", misuse},
                           {"rows_and_symbols", rows_and_symbols},
                           {"errors", errors},
                           {"poison", poison},
                           {"peers", peers},
                           {"virtual_memory", virtual_memory},
                           {"run_time_compilation", run_time_compilation},
                           {"compile_error", compile_error},
                           {"threads", threads},
                           {"counting", counting},
                           {nullptr, nullptr}};
