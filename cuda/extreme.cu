// SPDX-License-Identifier: MIT
// Kernels of ops/extreme.c but for the medians.
#include "reduce.cuh"

#include <math.h>

// The largest (or smallest) element and its position (from 1; 0: none yet). The first of equal
// ones; NaN wins.
template <class T> struct place {
  T value;
  int64_t at;
};

template <class T_, bool largest> struct fold_extreme {
  typedef T_ T;
  typedef place<T> Acc;
  bool values, places; // which results there are
  __device__ Acc zero() const {
    return Acc{0, 0};
  }
  __device__ Acc take(Acc a, T x, int64_t at) const {
    return merge(a, Acc{x, at});
  }
  __device__ Acc merge(Acc a, Acc b) const {
    if (a.at == 0) return b;
    if (b.at == 0) return a;
    const bool an = a.value != a.value, bn = b.value != b.value;
    if (an != bn) return an ? a : b;
    if (!an && a.value != b.value)
      return (largest ? a.value > b.value : a.value < b.value) ? a : b;
    return a.at < b.at ? a : b;
  }
  __device__ void store(const k_reduce_form &f, int64_t o, Acc a) const {
    if (values) k_put(f.out_dtype[0], f.out[0], o, a.value);
    if (places) k_put(f.out_dtype[values], f.out[values], o, a.at);
  }
};

static uint32_t dims_of(const cnn_call *call) {
  uint32_t mask = 0;
  cnn_check_dims(call->ctx, "dim", &call->args[1], call->in[0].ndim, &mask); // infer passed it
  return mask;
}

static cnn_status plan(cnn_call *call) {
  k_reduce_form f;
  cuda_reduce_make(&f, call, &call->in[0], dims_of(call));
  call->scratch_bytes = k_reduce_scratch(&f, K_REDUCE_ACC);
  return CNN_OK;
}

template <bool largest> static cnn_status extreme(cnn_call *call, bool values, bool places) {
  k_reduce_form f;
  cuda_reduce_make(&f, call, &call->in[0], dims_of(call));
  const cnn_dtype computed =
      cnn_dtype_is_float(f.dtype) ? cnn_dtype_computed(f.dtype) : CNN_I64;
  return k_reduce_by(call, computed, &f, [&](auto tag) {
    return fold_extreme<typename decltype(tag)::type, largest>{values, places};
  });
}

static cnn_status run_amax(cnn_call *call) {
  return extreme<true>(call, true, false);
}
static cnn_status run_amin(cnn_call *call) {
  return extreme<false>(call, true, false);
}
static cnn_status run_argmax(cnn_call *call) {
  return extreme<true>(call, false, true);
}
static cnn_status run_argmin(cnn_call *call) {
  return extreme<false>(call, false, true);
}
static cnn_status run_max_dim(cnn_call *call) {
  return extreme<true>(call, true, true);
}
static cnn_status run_min_dim(cnn_call *call) {
  return extreme<false>(call, true, true);
}

CUDA_KERNEL(amax, plan, run_amax)
CUDA_KERNEL(amin, plan, run_amin)
CUDA_KERNEL(argmax, plan, run_argmax)
CUDA_KERNEL(argmin, plan, run_argmin)
CUDA_KERNEL(max_dim, plan, run_max_dim)
CUDA_KERNEL(min_dim, plan, run_min_dim)
