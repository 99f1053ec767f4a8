// SPDX-License-Identifier: MIT
// Kernels that users write, compiled at run time by NVRTC, which is opened by the first of them.
#include <cuda.h>
#include <dlfcn.h>
#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"
#include "sim/include/sim.h"

// The plugin does not link with it; the simulator's has a stand-in in it.
#pragma weak nvrtcCreateProgram
#pragma weak nvrtcDestroyProgram
#pragma weak nvrtcCompileProgram
#pragma weak nvrtcAddNameExpression
#pragma weak nvrtcGetLoweredName
#pragma weak nvrtcGetProgramLogSize
#pragma weak nvrtcGetProgramLog
#pragma weak nvrtcGetCUBINSize
#pragma weak nvrtcGetCUBIN
#pragma weak nvrtcGetErrorString
#pragma weak nvrtcGetNumSupportedArchs
#pragma weak nvrtcGetSupportedArchs
#pragma weak nvrtcGetPTXSize
#pragma weak nvrtcGetPTX
#pragma weak nvrtcVersion
#pragma weak sim_guard_next
#pragma weak sim_take_faults

typedef struct program {
  int index;
  unsigned life; // of the device: its modules go with its context
  CUmodule module;
  CUfunction kernel;
  int max_threads;                // of a block
  size_t fixed_shared, shared_ok; // bytes of shared memory: of the kernel itself; asked for so far
} program;

static struct {
  CUresult (*load)(CUmodule *, const void *);
  CUresult (*unload)(CUmodule);
  CUresult (*function)(CUfunction *, CUmodule, const char *);
  CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     unsigned, CUstream, void **, void **);
  CUresult (*get)(int *, CUfunction_attribute, CUfunction);
  CUresult (*set)(CUfunction, CUfunction_attribute, int);
  CUresult (*error)(CUresult, const char **);
} driver;

static cnn_status check(cnn_context *ctx, CUresult r, const char *what) {
  const char *text = "unknown error";
  if (r == CUDA_SUCCESS) return CNN_OK;
  driver.error(r, &text);
  return cnn_fail(ctx, CNN_DEVICE, "CUDA: %s (%s)", text, what);
}

static struct {
  nvrtcResult (*create)(nvrtcProgram *, const char *, const char *, int, const char *const *,
                        const char *const *);
  nvrtcResult (*destroy)(nvrtcProgram *);
  nvrtcResult (*compile)(nvrtcProgram, int, const char *const *);
  nvrtcResult (*name)(nvrtcProgram, const char *);
  nvrtcResult (*lowered)(nvrtcProgram, const char *, const char **);
  nvrtcResult (*log_size)(nvrtcProgram, size_t *);
  nvrtcResult (*log)(nvrtcProgram, char *);
  nvrtcResult (*cubin_size)(nvrtcProgram, size_t *);
  nvrtcResult (*cubin)(nvrtcProgram, char *);
  nvrtcResult (*ptx_size)(nvrtcProgram, size_t *);
  nvrtcResult (*ptx)(nvrtcProgram, char *);
  nvrtcResult (*count_archs)(int *);
  nvrtcResult (*archs)(int *);
  nvrtcResult (*version)(int *, int *);
  const char *(*text)(nvrtcResult);
} nvrtc;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool find_nvrtc(char *reason, size_t size) {
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
#define WANTED(function, to)                                                                       \
  { #function, (void (*)(void))function, &nvrtc.to }
  static const struct {
    const char *name;
    void (*linked)(void); // in the simulator's plugin its stand-in is
    void *to;
  } wanted[] = {
      WANTED(nvrtcCreateProgram, create),
      WANTED(nvrtcDestroyProgram, destroy),
      WANTED(nvrtcCompileProgram, compile),
      WANTED(nvrtcAddNameExpression, name),
      WANTED(nvrtcGetLoweredName, lowered),
      WANTED(nvrtcGetProgramLogSize, log_size),
      WANTED(nvrtcGetProgramLog, log),
      WANTED(nvrtcGetCUBINSize, cubin_size),
      WANTED(nvrtcGetCUBIN, cubin),
      WANTED(nvrtcGetPTXSize, ptx_size),
      WANTED(nvrtcGetPTX, ptx),
      WANTED(nvrtcGetNumSupportedArchs, count_archs),
      WANTED(nvrtcGetSupportedArchs, archs),
      WANTED(nvrtcVersion, version),
      WANTED(nvrtcGetErrorString, text),
  };
#undef WANTED
  static bool found;
  if (found) return true;
  if (!cuda_look_up("cuModuleLoadData", &driver.load) ||
      !cuda_look_up("cuModuleUnload", &driver.unload) ||
      !cuda_look_up("cuModuleGetFunction", &driver.function) ||
      !cuda_look_up("cuLaunchKernel", &driver.launch) ||
      !cuda_look_up("cuFuncGetAttribute", &driver.get) ||
      !cuda_look_up("cuFuncSetAttribute", &driver.set) ||
      !cuda_look_up("cuGetErrorString", &driver.error)) {
    snprintf(reason, size, "the driver can't load it");
    return false;
  }
  void *library = NULL;
  for (size_t i = 0; !wanted[0].linked && !library && i < sizeof names / sizeof *names; i++)
    library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!wanted[0].linked && !library) {
    snprintf(reason, size, "%s", dlerror());
    return false;
  }
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    void *address = library ? dlsym(library, wanted[i].name) : NULL;
    if (library && !address) {
      snprintf(reason, size, "it has no %s", wanted[i].name);
      return false;
    }
    if (library)
      memcpy(wanted[i].to, &address, sizeof address);
    else
      memcpy(wanted[i].to, &wanted[i].linked, sizeof wanted[i].linked);
  }
  return found = true;
}

// The compiler's words, or what is wrong with it.
static cnn_status failed(cnn_context *ctx, nvrtcProgram p, nvrtcResult r) {
  size_t size = 0;
  char *log = NULL;
  if (r == NVRTC_ERROR_COMPILATION && nvrtc.log_size(p, &size) == NVRTC_SUCCESS && size > 1)
    log = cuda_host.alloc(size);
  if (log && nvrtc.log(p, log) == NVRTC_SUCCESS) {
    while (size > 0 && strchr("\n ", log[size - 1])) log[--size] = '\0';
    cnn_fail(ctx, CNN_INVALID, "the kernel does not compile:\n%s", log);
  } else {
    cnn_fail(ctx, CNN_INVALID, "the kernel does not compile: %s", nvrtc.text(r));
  }
  cuda_host.free(log);
  return ctx->code;
}

// `ptx`: as text that the driver compiles for its GPU.
static cnn_status load(cnn_context *ctx, nvrtcProgram p, const char *name, bool ptx, program *out) {
  size_t size = 0;
  const char *lowered = name;
  nvrtcResult r = nvrtc.lowered(p, name, &lowered);
  if (r == NVRTC_SUCCESS) r = (ptx ? nvrtc.ptx_size : nvrtc.cubin_size)(p, &size);
  if (r != NVRTC_SUCCESS) return failed(ctx, p, r);
  char *image = cuda_host.alloc(size + 1);
  if (!image) return cnn_fail(ctx, CNN_OOM, "out of memory for a compiled kernel");
  r = (ptx ? nvrtc.ptx : nvrtc.cubin)(p, image);
  cnn_status status = r == NVRTC_SUCCESS ? CNN_OK : failed(ctx, p, r);
  if (status == CNN_OK) status = check(ctx, driver.load(&out->module, image), "cuModuleLoadData");
  if (status == CNN_OK) {
    int threads = 0, shared = 0;
    status = check(ctx, driver.function(&out->kernel, out->module, lowered), "cuModuleGetFunction");
    if (status == CNN_OK)
      status =
          check(ctx, driver.get(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, out->kernel),
                "cuFuncGetAttribute");
    if (status == CNN_OK)
      status = check(ctx, driver.get(&shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, out->kernel),
                     "cuFuncGetAttribute");
    out->max_threads = threads;
    out->fixed_shared = (size_t)shared;
    if (status != CNN_OK) driver.unload(out->module);
  }
  cuda_host.free(image);
  return status;
}

// The newest architecture that NVRTC knows, up to `wanted`: GPUs run what was made for older ones
// of them as PTX.
static int known_arch(int wanted) {
  int archs[64], n = 0, best = 0;
  if (nvrtc.count_archs(&n) != NVRTC_SUCCESS || n > 64 || nvrtc.archs(archs) != NVRTC_SUCCESS)
    return wanted;
  for (int i = 0; i < n; i++)
    if (archs[i] <= wanted && archs[i] > best) best = archs[i];
  return best ? best : wanted;
}

static cnn_status compile(cnn_context *ctx, cuda_device *d, const char *source, const char *name,
                          const char *const *options, int n_options, program *out) {
  const char *all[1 + CNN_PROGRAM_OPTIONS];
  char arch[40];
  nvrtcProgram p;
  int n = 0, wanted = 10 * d->properties.major + d->properties.minor, known = known_arch(wanted);
  bool ptx = known != wanted;
  snprintf(arch, sizeof arch, "--gpu-architecture=%s_%d", ptx ? "compute" : "sm", known);
  all[n++] = arch;
  for (int i = 0; i < n_options; i++) all[n++] = options[i];
  nvrtcResult r = nvrtc.create(&p, source, "kernel.cu", 0, NULL, NULL);
  if (r != NVRTC_SUCCESS)
    return cnn_fail(ctx, CNN_INVALID, "the kernel does not compile: %s", nvrtc.text(r));
  r = nvrtc.name(p, name);
  if (r == NVRTC_SUCCESS) r = nvrtc.compile(p, n, all);
  cnn_status status = r == NVRTC_SUCCESS ? load(ctx, p, name, ptx, out) : failed(ctx, p, r);
  nvrtc.destroy(&p);
  return status;
}

bool cuda_nvrtc_version(int *major, int *minor, char *reason, size_t size) {
  pthread_mutex_lock(&lock);
  bool found = find_nvrtc(reason, size) && nvrtc.version(major, minor) == NVRTC_SUCCESS;
  pthread_mutex_unlock(&lock);
  return found;
}

static cnn_status program_create(cnn_context *ctx, int index, const char *source, const char *name,
                                 const char *const *options, int n_options, void **out) {
  char reason[256];
  cuda_device *d = cuda_enter(ctx, index);
  if (!d) return ctx->code;
  pthread_mutex_lock(&lock);
  bool found = find_nvrtc(reason, sizeof reason);
  pthread_mutex_unlock(&lock);
  if (!found)
    return cnn_fail(ctx, CNN_UNSUPPORTED, "kernels are compiled by NVRTC, which is missing: %s",
                    reason);
  program *p = cuda_host.alloc(sizeof *p);
  if (!p) return cnn_fail(ctx, CNN_OOM, "out of memory for a kernel");
  *p = (program){.index = index, .life = d->life};
  cnn_status status = compile(ctx, d, source, name, options, n_options, p);
  if (status == CNN_OK)
    *out = p;
  else
    cuda_host.free(p);
  return status;
}

static void program_destroy(void *program_) {
  program *p = program_;
  // (Its kernels may be running.)
  if (cuda_device_at(p->index)->life == p->life && cuda_enter_quietly(p->index) &&
      cudaDeviceSynchronize() == cudaSuccess)
    driver.unload(p->module);
  cuda_host.free(p);
}

// What a launch may ask of this device and kernel. More dynamic shared memory than 48 KiB is given
// to those who ask for it before.
static cnn_status check_limits(cnn_context *ctx, program *p, const struct cudaDeviceProp *limits,
                               const unsigned grid[3], const unsigned block[3], size_t shared) {
  for (int i = 0; i < 3; i++) {
    if (grid[i] < 1 || grid[i] > (unsigned)limits->maxGridSize[i])
      return cnn_fail(ctx, CNN_INVALID, "grid: %u blocks in dim %d: it must be 1 to %d", grid[i],
                      i + 1, limits->maxGridSize[i]);
    if (block[i] < 1 || block[i] > (unsigned)limits->maxThreadsDim[i])
      return cnn_fail(ctx, CNN_INVALID, "block: %u threads in dim %d: it must be 1 to %d", block[i],
                      i + 1, limits->maxThreadsDim[i]);
  }
  unsigned threads = block[0] * block[1] * block[2];
  if (threads > (unsigned)p->max_threads)
    return cnn_fail(ctx, CNN_INVALID, "block: %u x %u x %u = %u threads: %s of at most %d",
                    block[0], block[1], block[2], threads,
                    p->max_threads < limits->maxThreadsPerBlock
                        ? "this kernel's registers leave room for blocks"
                        : "the device has blocks",
                    p->max_threads);
  if (shared + p->fixed_shared > limits->sharedMemPerBlockOptin)
    return cnn_fail(ctx, CNN_INVALID,
                    "shared: %zu bytes, and %zu of the kernel's own __shared__ variables: a block "
                    "has at most %zu",
                    shared, p->fixed_shared, limits->sharedMemPerBlockOptin);
  if (shared <= p->shared_ok || shared + p->fixed_shared <= limits->sharedMemPerBlock)
    return CNN_OK;
  CNN_TRY(check(ctx,
                driver.set(p->kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared),
                "cuFuncSetAttribute"));
  p->shared_ok = shared;
  return CNN_OK;
}

// On the simulator it may touch only what its arguments point to, and its faults are kept.
static void guard(const cnn_program_arg *args, int n_args) {
  sim_extent extents[CNN_PROGRAM_ARGS];
  int n = 0;
  if (!sim_guard_next) return;
  for (int i = 0; i < n_args; i++)
    if (args[i].extent > 0) extents[n++] = (sim_extent){args[i].pointer, args[i].extent, i + 1};
  sim_guard_next(extents, n);
}

cnn_status cuda_program_faults(cnn_context *ctx) {
  char text[CNN_MESSAGE_MAX - 100];
  if (!sim_take_faults || sim_take_faults(text, sizeof text) == 0) return CNN_OK;
  const char *op = ctx->op; // what waits is not what failed
  ctx->op = NULL;
  cnn_fail(ctx, CNN_DEVICE, "%s", text);
  ctx->op = op;
  return ctx->code;
}

static cnn_status program_launch(cnn_context *ctx, void *program_, const unsigned grid[3],
                                 const unsigned block[3], size_t shared,
                                 const cnn_program_arg *args, int n_args, void *stream) {
  program *p = program_;
  void *pointers[CNN_PROGRAM_ARGS];
  cuda_device *d = cuda_enter(ctx, p->index);
  if (!d) return ctx->code;
  CNN_TRY(check_limits(ctx, p, &d->properties, grid, block, shared));
  for (int i = 0; i < n_args; i++) pointers[i] = (void *)(uintptr_t)&args[i].pointer;
  cuda_count_add(CUDA_COUNT_KERNELS, 1);
  for (int i = 0; i < n_args; i++) {
    cuda_count_add(CUDA_COUNT_READ, (int64_t)args[i].extent);
    if (args[i].changes) cuda_count_add(CUDA_COUNT_WRITTEN, (int64_t)args[i].extent);
  }
  guard(args, n_args);
  CNN_TRY(check(ctx,
                driver.launch(p->kernel, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                              (unsigned)shared, stream, pointers, NULL),
                "cuLaunchKernel"));
  return cuda_program_faults(ctx);
}

void cuda_programs_fill(cnn_driver *table) {
  table->program_create = program_create;
  table->program_destroy = program_destroy;
  table->program_launch = program_launch;
}
