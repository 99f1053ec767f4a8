// SPDX-License-Identifier: MIT
// Kernels of ops/activation.c.
#include "map.cuh"

template <class S> struct f_prelu {
  typedef S Out, A, B;
  static constexpr int arity = 2;
  __device__ S operator()(S a, S b) const {
    const k_computed<S> x = k_widen(a), w = k_widen(b);
    return k_narrow<S>(x > 0 ? x : w * x);
  }
};

static cnn_status run_prelu(cnn_call *call) {
  return k_by_float(call, call->out[0].dtype,
                    [&](auto tag) { return k_map(call, f_prelu<typename decltype(tag)::type>()); });
}
CUDA_KERNEL(prelu_row, nullptr, run_prelu)
