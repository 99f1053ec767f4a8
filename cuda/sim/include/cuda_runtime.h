// SPDX-License-Identifier: MIT
//
// The toolkit's own header, and what exists only under nvcc. So types, enums and prototypes are
// NVIDIA's, and a wrong argument fails to compile.
#ifndef SIM_CUDA_RUNTIME_H
#define SIM_CUDA_RUNTIME_H
// Its template forgets the types of the arguments; sim_device.h has one that doesn't.
#define cudaLaunchKernelEx sim_untyped_launch_kernel_ex
#include_next <cuda_runtime.h>
#undef cudaLaunchKernelEx
#ifdef __cplusplus
#include "sim_device.h"
#endif
#endif
