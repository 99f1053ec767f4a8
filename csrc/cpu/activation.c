// SPDX-License-Identifier: MIT
// Kernels of ops/activation.c.
#include "cpu/clones.h"
#include "cpu/cpu.h"
#include "cpu/elementwise.h"

#define PRELU(title, T)                                                                            \
  CNN_CLONES static void title(int64_t n, void *out, const void *const *in, const void *params) {  \
    const T *x = in[0], *w = in[1];                                                                \
    T *y = out;                                                                                    \
    (void)params;                                                                                  \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] : w[i] * x[i];      \
  }
PRELU(prelu_f32, float)
PRELU(prelu_f64, double)

static const cnn_row row_prelu = {2, {[CNN_F32] = prelu_f32, [CNN_F64] = prelu_f64}, 0};
const cnn_kernel cpu_prelu_row = {NULL, cnn_elementwise_run, &row_prelu};
