// SPDX-License-Identifier: MIT
// The functions M(name) and R(name) of unary.def and binary.def, overloaded by type: those of the
// CPU (csrc/cpu/scalar_body.h), with the device's float functions.
#ifndef CNN_CUDA_SCALAR_CUH
#define CNN_CUDA_SCALAR_CUH

#include "kernel.cuh"

#define CNN_SPECIAL(name) __device__ static inline double name
#include "cpu/special_body.h"
#undef CNN_SPECIAL

#define SCALAR             __device__ static inline
#define NAME(name, suffix) name
#define FAST(name)         name##f
#define ONE(name, f32, f64)                                                                        \
  SCALAR float m_##name(float x) {                                                                 \
    return f32;                                                                                    \
  }                                                                                                \
  SCALAR double m_##name(double x) {                                                               \
    return f64;                                                                                    \
  }
#define TWO(name, f32, f64)                                                                        \
  SCALAR float m_##name(float x, float y) {                                                        \
    return f32;                                                                                    \
  }                                                                                                \
  SCALAR double m_##name(double x, double y) {                                                     \
    return f64;                                                                                    \
  }
#define ALL(name, f32, f64)                                                                        \
  SCALAR float r_##name(float x) {                                                                 \
    return f32;                                                                                    \
  }                                                                                                \
  SCALAR double r_##name(double x) {                                                               \
    return f64;                                                                                    \
  }                                                                                                \
  template <class I> SCALAR I r_##name(I x) {                                                      \
    return x;                                                                                      \
  }

SCALAR float sigmoidf(float x) {
  return x < 0 ? expf(x) / (1 + expf(x)) : 1 / (1 + expf(-x));
}
SCALAR float softplusf(float x) {
  return (x > 0 ? x : 0) + log1pf(expf(-fabsf(x)));
}

#include "cpu/scalar_body.h"

#define INTEGERS(name)                                                                             \
  template <class I> SCALAR int64_t name(I x, I y) {                                               \
    return name##_int(static_cast<int64_t>(x), static_cast<int64_t>(y));                           \
  }
INTEGERS(r_trunc_divide)
INTEGERS(r_fmod)
INTEGERS(r_remainder)
INTEGERS(r_floor_divide)
INTEGERS(r_pow)
#undef INTEGERS

#undef SCALAR
#undef NAME
#undef FAST
#undef ONE
#undef TWO
#undef ALL

#endif
