// SPDX-License-Identifier: MIT
#ifndef SIM_TEST_CASES_H
#define SIM_TEST_CASES_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>
#include <vector>

struct Case {
  const char *name;
  bool (*run)(cudaStream_t); // prints what is wrong
};
extern const Case cases[];      // kernels: cases.cpp
extern const Case host_cases[]; // the runtime and driver APIs: host.cpp

bool ok(cudaError_t e, const char *what, int line);
#define TRY(call)                                                                                  \
  do {                                                                                             \
    if (!ok((call), #call, __LINE__)) return false;                                                \
  } while (0)
#define EXPECT(condition)                                                                          \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "  line %d: not so: %s\n", __LINE__, #condition);                            \
      return false;                                                                                \
    }                                                                                              \
  } while (0)

float uniform();
std::vector<float> uniforms(size_t n);
bool same(const std::vector<float> &a, const std::vector<float> &b, float tolerance);

// An array on the device.
template <class T> struct Device {
  T *p = nullptr;
  size_t n;
  explicit Device(size_t count) : n(count) {
    ok(cudaMalloc(reinterpret_cast<void **>(&p), n * sizeof(T)), "cudaMalloc", __LINE__);
  }
  explicit Device(const std::vector<T> &h) : Device(h.size()) {
    // the streams of the tests do not wait for the default stream: so this must be done here
    ok(cudaMemcpy(p, h.data(), n * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy", __LINE__);
  }
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;
  ~Device() { cudaFree(p); }
  operator T *() const { return p; }
  std::vector<T> host(cudaStream_t s) const {
    std::vector<T> h(n);
    ok(cudaMemcpyAsync(h.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost, s), "copy", __LINE__);
    ok(cudaStreamSynchronize(s), "cudaStreamSynchronize", __LINE__);
    return h;
  }
};

#endif
