// SPDX-License-Identifier: MIT
//
// SIM_REAL_NVRTC=path of libnvrtc: the real one compiles every program too, for each architecture
// from sm_80 on that it knows, before the stand-in does; what it refuses is refused in its words.
// It needs no GPU. Each program is told to the file that SIM_REAL_NVRTC_LOG names, if any: a line
// "sm_90 1234 bytes: kernel.cu, axpy" for each architecture.
#include <dlfcn.h>
#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core.h"
#include "module.h"

namespace sim {
namespace {

template <class F> F *find(void *library, F *, const char *name) {
  void *p = dlsym(library, name);
  if (!p) {
    fprintf(stderr, "sim: SIM_REAL_NVRTC has no %s\n", name);
    abort();
  }
  return reinterpret_cast<F *>(p);
}

// What is called of it.
#define REAL_FUNCTIONS(X)                                                                          \
  X(nvrtcCreateProgram)                                                                            \
  X(nvrtcDestroyProgram)                                                                           \
  X(nvrtcAddNameExpression)                                                                        \
  X(nvrtcCompileProgram)                                                                           \
  X(nvrtcGetLoweredName)                                                                           \
  X(nvrtcGetCUBINSize)                                                                             \
  X(nvrtcGetProgramLogSize)                                                                        \
  X(nvrtcGetProgramLog)                                                                            \
  X(nvrtcGetErrorString)                                                                           \
  X(nvrtcGetNumSupportedArchs)                                                                     \
  X(nvrtcGetSupportedArchs)

struct Real {
  void *library = nullptr;
#define REAL(name) decltype(&::name) name = nullptr;
  REAL_FUNCTIONS(REAL)
#undef REAL
  std::vector<int> archs;

  explicit Real(const char *path) {
    if (!path) return;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      fprintf(stderr, "sim: SIM_REAL_NVRTC: %s\n", dlerror());
      abort();
    }
#define REAL(name) name = find(library, &::name, #name);
    REAL_FUNCTIONS(REAL)
#undef REAL
    int n = 0;
    nvrtcGetNumSupportedArchs(&n);
    std::vector<int> all(static_cast<size_t>(n));
    nvrtcGetSupportedArchs(all.data());
    for (int a : {80, 86, 89, 90, 100, 120})
      if (std::find(all.begin(), all.end(), a) != all.end()) archs.push_back(a);
  }
};

std::string log_of(const Real &real, nvrtcProgram p, nvrtcResult r) {
  size_t size = 0;
  std::string log;
  if (real.nvrtcGetProgramLogSize(p, &size) == NVRTC_SUCCESS && size > 1) {
    log.resize(size);
    real.nvrtcGetProgramLog(p, log.data());
    log.resize(strlen(log.c_str()));
  }
  return log.empty() ? real.nvrtcGetErrorString(r) : log;
}

} // namespace

nvrtcResult real_nvrtc(const std::string &source, const std::string &name,
                       const std::vector<std::string> &expressions, int n,
                       const char *const *options, std::string *log) {
  static const Real real(getenv("SIM_REAL_NVRTC"));
  if (!real.library) return NVRTC_SUCCESS;
  std::vector<const char *> all;
  for (int i = 0; i < n; i++)
    if (strncmp(options[i], "--gpu-architecture=", 19)) all.push_back(options[i]);
  all.push_back(nullptr);
  for (int a : real.archs) {
    const std::string arch = "--gpu-architecture=sm_" + std::to_string(a);
    all.back() = arch.c_str();
    nvrtcProgram p = nullptr;
    nvrtcResult r = real.nvrtcCreateProgram(&p, source.c_str(), name.c_str(), 0, nullptr, nullptr);
    if (r != NVRTC_SUCCESS) return r;
    for (const std::string &e : expressions) real.nvrtcAddNameExpression(p, e.c_str());
    r = real.nvrtcCompileProgram(p, static_cast<int>(all.size()), all.data());
    size_t bytes = 0;
    const char *lowered = "";
    for (const std::string &e : expressions)
      if (r == NVRTC_SUCCESS) r = real.nvrtcGetLoweredName(p, e.c_str(), &lowered);
    if (r == NVRTC_SUCCESS) r = real.nvrtcGetCUBINSize(p, &bytes);
    if (r != NVRTC_SUCCESS) *log = log_of(real, p, r);
    real.nvrtcDestroyProgram(&p);
    if (const char *path = getenv("SIM_REAL_NVRTC_LOG"))
      if (FILE *f = fopen(path, "a")) {
        fprintf(f, "sm_%d %zu bytes: %s, %s\n", a, bytes, name.c_str(),
                expressions.empty() ? "" : expressions[0].c_str());
        fclose(f);
      }
    if (r != NVRTC_SUCCESS) return r;
  }
  return NVRTC_SUCCESS;
}

} // namespace sim
