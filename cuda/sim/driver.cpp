// SPDX-License-Identifier: MIT
//
// The driver API, as far as a program on the runtime API uses it: devices and primary contexts,
// virtual memory, modules of the NVRTC stand-in, entry points by name.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <set>
#include "core.h"
#include "module.h"

namespace sim {
void reset_device(int device);

// A primary context is a small number in pointer's clothes.
static CUcontext context_of(int device) {
  return reinterpret_cast<CUcontext>(static_cast<intptr_t>(device + 1));
}
static int device_of(CUcontext c) {
  return static_cast<int>(reinterpret_cast<intptr_t>(c)) - 1;
}
static bool valid(int device) {
  return device >= 0 && device < options().devices;
}
static int retained[MAX_DEVICES];
static bool initialised;

// The two families of codes agree in all numbers that are used here.
static CUresult result(cudaError_t e) {
  return static_cast<CUresult>(static_cast<int>(e));
}

#define SIM_DRIVER()                                                                               \
  Api api;                                                                                         \
  if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;                                             \
  if (cudaError_t e_ = device_error(current_device)) {                                             \
    return result(e_);                                                                             \
  }

// ---- Modules ----------------------------------------------------------------------------------

struct Module {
  void *library;
  std::string path;
  const SimEntry *entries;
  std::map<std::string, std::unique_ptr<Function>> functions;
};
static std::set<Module *> &modules = *new std::set<Module *>;
static std::set<Function *> &functions = *new std::set<Function *>;

void forget_objects();

static void remove_files() {
  for (Module *m : modules) unlink(m->path.c_str());
}

static CUresult load(const void *image, CUmodule *out) {
  const char *text = static_cast<const char *>(image);
  size_t bytes = 0;
  int header = 0;
  char flavour[16] = "";
  if (sscanf(text, SIM_IMAGE " %15s %zu%n", flavour, &bytes, &header) != 2 ||
      text[header] != '\n') {
    sim_report("cuModuleLoadData: no image of the simulator's NVRTC");
    return CUDA_ERROR_INVALID_IMAGE;
  }
  if (strcmp(flavour, sim_flavour())) {
    sim_report("cuModuleLoadData: the image was compiled for the %s build", flavour);
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  const char *tmp = getenv("TMPDIR");
  std::string path = std::string(tmp ? tmp : "/tmp") + "/simXXXXXX";
  const int fd = mkstemp(path.data());
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  const bool written = write(fd, text + header + 1, bytes) == static_cast<ssize_t>(bytes);
  close(fd);
  void *library = written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  typedef const SimEntry *(*Open)(const SimApi *);
  const Open open_module =
      library ? reinterpret_cast<Open>(dlsym(library, "sim_module_open")) : nullptr;
  if (!open_module) {
    sim_report("cuModuleLoadData: %s", library ? "no sim_module_open" : dlerror());
    unlink(path.c_str());
    return CUDA_ERROR_INVALID_IMAGE;
  }
  static bool at_exit = false;
  if (!at_exit) at_exit = !atexit(remove_files);
  static const SimApi table = {
#define SIM_ENTRY(r, name, params, args) name,
      SIM_API_LIST(SIM_ENTRY)
#undef SIM_ENTRY
  };
  Module *m = new Module{library, path, open_module(&table), {}};
  modules.insert(m);
  *out = reinterpret_cast<CUmodule>(m);
  return CUDA_SUCCESS;
}

Function *find_function(const void *f) {
  Function *p = static_cast<Function *>(const_cast<void *>(f));
  return functions.count(p) ? p : nullptr;
}

} // namespace sim

using namespace sim;

extern "C" {

CUresult cuModuleLoadData(CUmodule *out, const void *image) {
  SIM_DRIVER();
  return out && image ? load(image, out) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned, CUjit_option *, void **) {
  return cuModuleLoadData(out, image);
}
CUresult cuModuleUnload(CUmodule handle) {
  Api api;
  Module *m = reinterpret_cast<Module *>(handle);
  if (!modules.count(m)) return CUDA_ERROR_INVALID_VALUE;
  wait_all(); // its kernels may be queued
  for (auto &[name, f] : m->functions) functions.erase(f.get());
  dlclose(m->library);
  unlink(m->path.c_str());
  modules.erase(m);
  delete m;
  forget_objects();
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name) {
  SIM_DRIVER();
  Module *m = reinterpret_cast<Module *>(handle);
  if (!modules.count(m) || !out || !name) return CUDA_ERROR_INVALID_VALUE;
  for (const SimEntry *e = m->entries; e->name; e++) {
    if (strcmp(e->name, name)) continue;
    auto &f = m->functions[name];
    if (!f) {
      f = std::make_unique<Function>(Function{e});
      functions.insert(f.get());
    }
    *out = reinterpret_cast<CUfunction>(f.get());
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}
CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute a, int value) {
  SIM_DRIVER();
  const Function *f = find_function(handle);
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  const cudaFuncAttribute attribute = a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                                          ? cudaFuncAttributeMaxDynamicSharedMemorySize
                                          : cudaFuncAttributePreferredSharedMemoryCarveout;
  return result(cudaFuncSetAttribute(f->entry->function, attribute, value));
}
CUresult cuFuncGetAttribute(int *out, CUfunction_attribute a, CUfunction handle) {
  SIM_DRIVER();
  const Function *f = find_function(handle);
  cudaFuncAttributes v;
  if (!f || !out) return CUDA_ERROR_INVALID_HANDLE;
  if (cudaError_t e = cudaFuncGetAttributes(&v, f->entry->function)) return result(e);
  switch (static_cast<int>(a)) {
  case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *out = v.maxThreadsPerBlock; break;
  case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *out = static_cast<int>(v.sharedSizeBytes); break;
  case CU_FUNC_ATTRIBUTE_NUM_REGS: *out = v.numRegs; break;
  case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *out = v.maxDynamicSharedSizeBytes; break;
  default: *out = 0;
  }
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction handle, int block,
                                                     size_t shared) {
  const Function *f = find_function(handle);
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  return result(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, f->entry->function, block, shared));
}
CUresult cuLaunchKernel(CUfunction handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params,
                        void **extra) {
  SIM_DRIVER();
  const Function *f = find_function(handle);
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  if (extra) return CUDA_ERROR_NOT_SUPPORTED;
  return result(f->entry->launch(params, dim3(gx, gy, gz), dim3(bx, by, bz), shared, stream));
}

// ---- Devices, contexts ------------------------------------------------------------------------

CUresult cuInit(unsigned flags) {
  Api api(true);
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  initialised = true;
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *v) {
  return *v = CUDART_VERSION, CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *n) {
  SIM_DRIVER();
  return *n = options().devices, CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *out, int device) {
  SIM_DRIVER();
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  return *out = device, CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *name, int n, CUdevice device) {
  SIM_DRIVER();
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(name, static_cast<size_t>(n), "Simulated GPU");
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice device) {
  SIM_DRIVER();
  return result(cudaDeviceGetAttribute(v, static_cast<cudaDeviceAttr>(a), device));
}
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
  SIM_DRIVER();
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  return *bytes = options().memory, CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
  SIM_DRIVER();
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  retained[device]++;
  *out = context_of(device);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  Api api;
  if (!valid(device) || !retained[device]) return CUDA_ERROR_INVALID_CONTEXT;
  retained[device]--; // the runtime holds it too: nothing is reset
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  Api api;
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  reset_device(device);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  Api api;
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (flags) *flags = 0;
  if (active) *active = retained[device] > 0 || device_used(device) > 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *out) {
  Api api;
  return *out = context_of(current_device), CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext c) {
  Api api;
  if (!c) return CUDA_SUCCESS;
  if (!valid(device_of(c))) return CUDA_ERROR_INVALID_CONTEXT;
  current_device = device_of(c);
  return CUDA_SUCCESS;
}
static thread_local std::vector<int> pushed;
CUresult cuCtxPushCurrent(CUcontext c) {
  pushed.push_back(current_device);
  return cuCtxSetCurrent(c);
}
CUresult cuCtxPopCurrent(CUcontext *out) {
  Api api;
  if (out) *out = context_of(current_device);
  if (pushed.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  current_device = pushed.back();
  pushed.pop_back();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *out) {
  Api api;
  return *out = current_device, CUDA_SUCCESS;
}
CUresult cuCtxSynchronize(void) {
  return result(cudaDeviceSynchronize());
}
CUresult cuStreamSynchronize(CUstream s) {
  return result(cudaStreamSynchronize(s));
}
CUresult cuMemGetInfo(size_t *available, size_t *total) {
  return result(cudaMemGetInfo(available, total));
}
CUresult cuPointerGetAttribute(void *out, CUpointer_attribute a, CUdeviceptr p) {
  SIM_DRIVER();
  const Block *b = find_block(reinterpret_cast<const void *>(p));
  if (!b) return CUDA_ERROR_INVALID_VALUE;
  switch (static_cast<int>(a)) {
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *static_cast<CUdeviceptr *>(out) = b->start; break;
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *static_cast<size_t *>(out) = b->bytes; break;
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int *>(out) = b->device; break;
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    *static_cast<unsigned *>(out) = CU_MEMORYTYPE_DEVICE;
    break;
  default: return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

// ---- Virtual memory ---------------------------------------------------------------------------

static bool plain_properties(const CUmemAllocationProp *p) {
  return p && p->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         p->location.type == CU_MEM_LOCATION_TYPE_DEVICE && valid(p->location.id);
}
CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *p,
                                       CUmemAllocationGranularity_flags) {
  SIM_DRIVER();
  if (!out || !plain_properties(p)) return CUDA_ERROR_INVALID_VALUE;
  *out = GRANULE;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  SIM_DRIVER();
  if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
  uintptr_t p = 0;
  const CUresult r = virtual_reserve(current_device, bytes, alignment, &p);
  *out = p;
  return r;
}
CUresult cuMemAddressFree(CUdeviceptr p, size_t bytes) {
  Api api;
  return virtual_unreserve(p, bytes);
}
CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *p,
                     unsigned long long flags) {
  SIM_DRIVER();
  if (!out || flags || !plain_properties(p)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t handle = 0;
  const CUresult r = physical_create(p->location.id, bytes, &handle);
  *out = handle;
  return r;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  Api api;
  return physical_release(handle);
}
CUresult cuMemMap(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  SIM_DRIVER();
  return flags ? CUDA_ERROR_INVALID_VALUE : virtual_map(p, bytes, offset, handle);
}
// The real one waits for nothing: work that is queued and uses the range then fails.
CUresult cuMemUnmap(CUdeviceptr p, size_t bytes) {
  Api api;
  return virtual_unmap(p, bytes);
}
CUresult cuMemSetAccess(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *d, size_t n) {
  SIM_DRIVER();
  if (!d || !n) return CUDA_ERROR_INVALID_VALUE;
  bool on = false;
  for (size_t i = 0; i < n; i++) {
    if (d[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !valid(d[i].location.id))
      return CUDA_ERROR_INVALID_VALUE;
    on |= d[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  return virtual_access(p, bytes, on);
}

// ---- Errors, entry points ---------------------------------------------------------------------

CUresult cuGetErrorName(CUresult e, const char **out) {
  *out = e == CUDA_ERROR_INVALID_CONTEXT   ? "CUDA_ERROR_INVALID_CONTEXT"
         : e == CUDA_ERROR_INVALID_IMAGE   ? "CUDA_ERROR_INVALID_IMAGE"
         : e == CUDA_ERROR_NOT_FOUND       ? "CUDA_ERROR_NOT_FOUND"
         : e == CUDA_ERROR_NOT_INITIALIZED ? "CUDA_ERROR_NOT_INITIALIZED"
         : e == CUDA_ERROR_ALREADY_MAPPED  ? "CUDA_ERROR_ALREADY_MAPPED"
                                           : cudaGetErrorName(static_cast<cudaError_t>(e));
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult e, const char **out) {
  *out = cudaGetErrorString(static_cast<cudaError_t>(e));
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *name, void **out, int, cuuint64_t,
                          CUdriverProcAddressQueryResult *found) {
  static const struct {
    const char *name;
    void *function;
  } table[] = {
#define SIM_PROC(f)             {#f, reinterpret_cast<void *>(f)},
#define SIM_PROC_NAMED(name, f) {name, reinterpret_cast<void *>(f)},
      SIM_PROC(cuInit) SIM_PROC(cuDriverGetVersion) SIM_PROC(cuDeviceGetCount) SIM_PROC(
          cuDeviceGet) SIM_PROC(cuDeviceGetName) SIM_PROC(cuDeviceGetAttribute)
          SIM_PROC_NAMED("cuDeviceTotalMem", cuDeviceTotalMem) SIM_PROC(
              cuDevicePrimaryCtxRetain) SIM_PROC_NAMED("cuDevicePrimaryCtxRelease",
                                                       cuDevicePrimaryCtxRelease)
              SIM_PROC_NAMED("cuDevicePrimaryCtxReset", cuDevicePrimaryCtxReset) SIM_PROC(
                  cuDevicePrimaryCtxGetState) SIM_PROC(cuCtxGetCurrent) SIM_PROC(cuCtxSetCurrent)
                  SIM_PROC_NAMED("cuCtxPushCurrent", cuCtxPushCurrent) SIM_PROC_NAMED(
                      "cuCtxPopCurrent", cuCtxPopCurrent) SIM_PROC_NAMED("cuCtxGetDevice",
                                                                         cuCtxGetDevice)
                      SIM_PROC_NAMED("cuCtxSynchronize", cuCtxSynchronize) SIM_PROC(
                          cuMemGetAllocationGranularity) SIM_PROC(cuMemAddressReserve)
                          SIM_PROC(cuMemAddressFree) SIM_PROC(cuMemCreate) SIM_PROC(cuMemRelease)
                              SIM_PROC(cuMemMap) SIM_PROC(cuMemUnmap) SIM_PROC(cuMemSetAccess)
                                  SIM_PROC_NAMED("cuMemGetInfo", cuMemGetInfo) SIM_PROC(
                                      cuPointerGetAttribute) SIM_PROC(cuModuleLoadData)
                                      SIM_PROC(cuModuleLoadDataEx) SIM_PROC(cuModuleUnload)
                                          SIM_PROC(cuModuleGetFunction) SIM_PROC(
                                              cuFuncSetAttribute) SIM_PROC(cuFuncGetAttribute)
                                              SIM_PROC_NAMED("cuLaunchKernel", cuLaunchKernel)
                                                  SIM_PROC(
                                                      cuOccupancyMaxActiveBlocksPerMultiprocessor)
                                                      SIM_PROC_NAMED("cuStreamSynchronize",
                                                                     cuStreamSynchronize)
                                                          SIM_PROC(cuGetErrorName)
                                                              SIM_PROC(cuGetErrorString)
                                                                  SIM_PROC_NAMED("cuGetProcAddress",
                                                                                 cuGetProcAddress)};
  if (out) *out = nullptr;
  if (!name || !out) return CUDA_ERROR_INVALID_VALUE;
  for (const auto &t : table)
    if (!strcmp(t.name, name)) *out = t.function;
  if (found) *found = *out ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult *status) {
  Api api(true);
  initialised = true; // the runtime has begun
  CUdriverProcAddressQueryResult found;
  cuGetProcAddress(name, out, static_cast<int>(version), flags, &found);
  if (status) *status = *out ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return *out || status ? cudaSuccess : fail(cudaErrorSymbolNotFound);
}
cudaError_t cudaGetDriverEntryPoint(const char *name, void **out, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult *status) {
  return cudaGetDriverEntryPointByVersion(name, out, CUDART_VERSION, flags, status);
}

} // extern "C"
