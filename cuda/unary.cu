// SPDX-License-Identifier: MIT
// Elementwise functions of one tensor: each row of unary.def as a function for map.cuh.
#include "map.cuh"
#include "reduce.cuh"
#include "scalar.cuh"

#include "cpu/expression.h"

#define M(f) m_##f
#define R(f) r_##f
#define P(i) p[i]

enum {
#define UNARY(title, ...)     ROW_##title,
#define PREDICATE(title, ...) ROW_##title,
#include "ops/unary.def"
#undef UNARY
#undef PREDICATE
  ROW_trigamma
};

#define UNARY(title, kind, spec, forward, ...) K_ROW(title, T, 1, (T x), forward)
#define PREDICATE(title, forward, doc)         K_ROW(title, bool, 1, (T x), forward)
#include "ops/unary.def"
#undef UNARY
#undef PREDICATE
K_ROW(trigamma, T, 1, (T x), m_trigamma(x))

template <class T> struct f_unary : k_row<T, 1> {
  __device__ T operator()(T x) const {
    switch (this->row) {
#define UNARY(title, kind, ...) K_ROW_CASE(title, kind, x)
#define PREDICATE(title, ...)   K_ROW_CASE(title, ANY, x)
#include "ops/unary.def"
#undef UNARY
#undef PREDICATE
      K_ROW_CASE(trigamma, FLOAT, x)
    }
    return x;
  }
};

#define UNARY(title, ...)     K_ROW_KERNEL(title, f_##title<float>, f_unary)
#define PREDICATE(title, ...) K_ROW_KERNEL(title, f_##title<float>, f_unary)
#include "ops/unary.def"
K_ROW_KERNEL(trigamma, f_trigamma<float>, f_unary)

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
