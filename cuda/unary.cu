// SPDX-License-Identifier: MIT
// Elementwise functions of one tensor: each row of unary.def as a function for map.cuh.
#include "map.cuh"
#include "reduce.cuh"
#include "scalar.cuh"

#include "cpu/expression.h"

#define M(f) m_##f
#define R(f) r_##f
#define P(i) p[i]

#define BY_FLOAT k_by_computed_float
#define BY_REAL  k_by_computed

#ifndef UNARY_BACKWARD
#define UNARY(title, kind, spec, forward, saved, derivative, doc)                                  \
  K_ROW(title, T, 1, (T x), forward)                                                               \
  K_ROW_KERNEL(title, BY_##kind)
#define PREDICATE(title, forward, doc)                                                             \
  K_ROW(title, bool, 1, (T x), forward)                                                            \
  K_ROW_KERNEL(title, k_by_computed)
#include "ops/unary.def"

K_ROW(trigamma, T, 1, (T x), m_trigamma(x))
K_ROW_KERNEL(trigamma, k_by_computed_float)

template <class T_> struct fold_nan {
  typedef T_ T;
  typedef unsigned Acc;
  __device__ Acc zero() const { return 0; }
  __device__ Acc take(Acc a, T x, int64_t) const { return a | (x != x); }
  __device__ Acc merge(Acc a, Acc b) const { return a | b; }
  __device__ void store(const k_reduce_form &f, int64_t o, Acc a) const {
    k_put(f.out_dtype[0], f.out[0], o, a);
  }
};
static void start_nan(const cnn_call *call, k_reduce_form *f) {
  cuda_reduce_make(f, call, &call->in[0], (1u << call->in[0].ndim) - 1);
}
static cnn_status plan_has_nan(cnn_call *call) {
  k_reduce_form f;
  start_nan(call, &f);
  call->scratch_bytes = k_reduce_scratch(&f, sizeof(unsigned));
  return CNN_OK;
}
static cnn_status run_has_nan(cnn_call *call) {
  k_reduce_form f;
  start_nan(call, &f);
  return k_by_float(call, f.dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    typedef k_computed<S> T;
    return k_reduce_launch<k_direct<S, T>>(call, fold_nan<T>(), &f);
  });
}
CUDA_KERNEL(has_nan, plan_has_nan, run_has_nan)

#else
// The fused derivatives (unary_backward.cu).
#define UNARY(title, kind, spec, forward, saved, derivative, doc)                                  \
  K_ROW(title##_backward, T, 2, (T G, T V), ((void)G, (void)V, derivative))                        \
  K_ROW_KERNEL(title##_backward, k_by_computed_float)
#define PREDICATE(title, forward, doc)
#include "ops/unary.def"
#endif
