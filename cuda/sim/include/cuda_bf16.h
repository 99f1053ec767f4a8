// SPDX-License-Identifier: MIT
//
// The toolkit's own header works on the host; sim_half.h adds what it keeps for nvcc.
#ifndef SIM_CUDA_BF16_H
#define SIM_CUDA_BF16_H
#include_next <cuda_bf16.h>
#ifdef __cplusplus
#include "sim_half.h"
#endif
#endif
