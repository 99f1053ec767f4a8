// SPDX-License-Identifier: MIT
// Own products, for what the library doesn't take.
#ifndef CNN_CUDA_GEMM_H
#define CNN_CUDA_GEMM_H

#include "engine/product.h"

#ifdef __cplusplus
extern "C" {
#endif

// Computes the product; C holds its start already where beta is not 0. Any dtype, any strides.
cnn_status cuda_gemm_own(const cnn_call *call, const cnn_product *p);

#ifdef __cplusplus
}
#endif

#endif
