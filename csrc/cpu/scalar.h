// SPDX-License-Identifier: MIT
// The functions M(name) and R(name) of unary.def and binary.def for each type that kernels compute
// in: m_name_f32, m_name_f64; r_name_f32, r_name_f64 and r_name_int for the integers.
#ifndef CNN_CPU_SCALAR_H
#define CNN_CPU_SCALAR_H

#include <math.h>
#include <stdint.h>

#include "cpu/special.h"
#include "cpu/vmath.h"

// A call would end vectorisation of the loop around it.
#define SCALAR             static inline __attribute__((always_inline))
#define NAME(name, suffix) name##_##suffix
#define FAST(name)         v_##name
#define ONE(name, f32, f64)                                                                        \
  SCALAR float m_##name##_f32(float x) {                                                           \
    return f32;                                                                                    \
  }                                                                                                \
  SCALAR double m_##name##_f64(double x) {                                                         \
    return f64;                                                                                    \
  }
#define TWO(name, f32, f64)                                                                        \
  SCALAR float m_##name##_f32(float x, float y) {                                                  \
    return f32;                                                                                    \
  }                                                                                                \
  SCALAR double m_##name##_f64(double x, double y) {                                               \
    return f64;                                                                                    \
  }
#define ALL(name, f32, f64)                                                                        \
  SCALAR float r_##name##_f32(float x) {                                                           \
    return f32;                                                                                    \
  }                                                                                                \
  SCALAR double r_##name##_f64(double x) {                                                         \
    return f64;                                                                                    \
  }                                                                                                \
  SCALAR int64_t r_##name##_int(int64_t x) {                                                       \
    return x;                                                                                      \
  }

// No function of vmath.h.
SCALAR float v_lgamma(float x) {
  return (float)lgamma((double)x);
}

#include "cpu/scalar_body.h"

#undef SCALAR
#undef NAME
#undef FAST
#undef ONE
#undef TWO
#undef ALL

#endif
