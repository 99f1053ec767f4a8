// SPDX-License-Identifier: MIT
//
// The few spellings in which nvcc and the simulator's C++ compiler differ. Kernels are written in
// the CUDA that both read; only this file and ptx.h ask which of the two is compiling.
//
//   LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...)
//     launches and returns the launch's error. Template arguments with commas need parentheses:
//     LAUNCH((k<float, 4>), ...).
//   DYN_SHARED(T, name);
//     declares T *name, the block's dynamic shared memory ("extern __shared__" has no reading in
//     C++). 16-byte aligned. All uses within a kernel see the same memory.
//   CNN_INLINE
//     the small functions of the core's headers (base/inline.h) are the device's, too.
//   NOINLINE
//     a device function that is not inlined ("__noinline__" would break the C++ library).
#ifndef CNN_CUDA_LAUNCH_H
#define CNN_CUDA_LAUNCH_H

#include <cuda_runtime.h>

#define CNN_INLINE static __host__ __device__ inline

#ifdef __CUDACC__
#define LAUNCH(kernel, grid, block, shared, stream, ...)                                           \
  (kernel<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__), cudaGetLastError())
#define DYN_SHARED(T, name)                                                                        \
  extern __shared__ __align__(16) unsigned char cnn_dynamic_shared_[];                             \
  T *name = reinterpret_cast<T *>(cnn_dynamic_shared_)
#define NOINLINE __noinline__
#else
#include "sim_device.h"
#define LAUNCH(kernel, grid, block, shared, stream, ...)                                           \
  sim_launch(#kernel, kernel, (grid), (block), (shared), (stream), ##__VA_ARGS__)
#define DYN_SHARED(T, name) T *name = static_cast<T *>(sim_dynamic_shared())
#define NOINLINE            __attribute__((noinline))
#endif

#endif
