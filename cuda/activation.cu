// SPDX-License-Identifier: MIT
// Kernels of ops/activation.c.
#include "map.cuh"

template <class T> struct f_prelu : k_row<T, 2> {
  __device__ T operator()(T x, T w) const { return x > 0 ? x : w * x; }
};

static cnn_status run_prelu(cnn_call *call) {
  return k_by_computed_float(call, call->out[0].dtype, [&](auto tag) {
    return k_map(call, f_prelu<typename decltype(tag)::type>());
  });
}
CUDA_KERNEL(prelu_row, nullptr, run_prelu)
