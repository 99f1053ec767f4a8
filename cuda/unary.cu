// SPDX-License-Identifier: MIT
// Elementwise functions of one tensor: each row of unary.def as a function for map.cuh.
#include "map.cuh"
#include "reduce.cuh"
#include "scalar.cuh"

#include "cpu/expression.h"

#define M(f) m_##f
#define R(f) r_##f
#define P(i) p[i]

template <template <class> class F, class S>
static cnn_status run_row(const cnn_call *call, cnn_dtype dtype) {
  double params[4];
  F<S> f;
  cnn_dtype computed = cnn_dtype_computed(dtype);
  cnn_number_params(call, computed, params);
  memcpy(static_cast<void *>(f.p), params, sizeof f.p);
  return k_map(call, f);
}

#define BY_FLOAT k_by_float
#define BY_REAL  k_by_real
#define RUN(title, by)                                                                             \
  static cnn_status run_##title(cnn_call *call) {                                                  \
    const cnn_dtype dtype = call->in[0].dtype;                                                     \
    return by(call, dtype, [&](auto tag) {                                                         \
      return run_row<f_##title, typename decltype(tag)::type>(call, dtype);                        \
    });                                                                                            \
  }                                                                                                \
  CUDA_KERNEL(title, nullptr, run_##title)

#ifndef UNARY_BACKWARD
#define UNARY(title, kind, spec, forward, saved, derivative, doc)                                  \
  template <class S> struct f_##title : f_params<S> {                                              \
    typedef S Out, A;                                                                              \
    static constexpr int arity = 1;                                                                \
    __device__ S operator()(S stored) const {                                                      \
      typedef k_computed<S> T;                                                                     \
      const T *p = this->p;                                                                        \
      const T x = k_widen(stored);                                                                 \
      (void)p;                                                                                     \
      return k_narrow<S>(static_cast<T>(forward));                                                 \
    }                                                                                              \
  };                                                                                               \
  RUN(title, BY_##kind)
#define PREDICATE(title, forward, doc)                                                             \
  template <class S> struct f_##title : f_params<S> {                                              \
    typedef k_bool Out;                                                                            \
    typedef S A;                                                                                   \
    static constexpr int arity = 1;                                                                \
    __device__ k_bool operator()(S stored) const {                                                 \
      const k_computed<S> x = k_widen(stored);                                                     \
      return k_bool{static_cast<uint8_t>(forward)};                                                \
    }                                                                                              \
  };                                                                                               \
  RUN(title, k_by_any)
#include "ops/unary.def"

template <class S> struct f_trigamma : f_params<S> {
  typedef S Out, A;
  static constexpr int arity = 1;
  __device__ S operator()(S stored) const { return k_narrow<S>(m_trigamma(k_widen(stored))); }
};
RUN(trigamma, k_by_float)

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
  template <class S> struct f_##title##_backward : f_params<S> {                                   \
    typedef S Out, A, B;                                                                           \
    static constexpr int arity = 2;                                                                \
    __device__ S operator()(S g, S v) const {                                                      \
      typedef k_computed<S> T;                                                                     \
      const T *p = this->p;                                                                        \
      const T G = k_widen(g), V = k_widen(v);                                                      \
      (void)p, (void)G, (void)V;                                                                   \
      return k_narrow<S>(static_cast<T>(derivative));                                              \
    }                                                                                              \
  };                                                                                               \
  RUN(title##_backward, k_by_float)
#define PREDICATE(title, forward, doc)
#include "ops/unary.def"
#endif
