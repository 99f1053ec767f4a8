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
#define INLINE static inline __attribute__((always_inline))

#define F32(name, expr)                                                                            \
  INLINE float m_##name##_f32(float x) {                                                           \
    return expr;                                                                                   \
  }
#define F64(name, expr)                                                                            \
  INLINE double m_##name##_f64(double x) {                                                         \
    return expr;                                                                                   \
  }
#define BOTH(name, f32, f64) F32(name, f32) F64(name, f64)

BOTH(fabs, fabsf(x), fabs(x))
BOTH(sign, (float)((x > 0) - (x < 0)) + x * 0, (double)((x > 0) - (x < 0)) + x * 0)
BOTH(square, x *x, x *x)
BOTH(exp, v_exp(x), exp(x))
BOTH(exp2, v_exp2(x), exp2(x))
BOTH(expm1, v_expm1(x), expm1(x))
BOTH(log, v_log(x), log(x))
BOTH(log2, v_log2(x), log2(x))
BOTH(log10, v_log10(x), log10(x))
BOTH(log1p, v_log1p(x), log1p(x))
BOTH(sqrt, sqrtf(x), sqrt(x))
BOTH(trunc, truncf(x), trunc(x))
BOTH(sin, v_sin(x), sin(x))
BOTH(cos, v_cos(x), cos(x))
BOTH(tan, tanf(x), tan(x))
BOTH(asin, asinf(x), asin(x))
BOTH(acos, acosf(x), acos(x))
BOTH(atan, atanf(x), atan(x))
BOTH(sinh, sinhf(x), sinh(x))
BOTH(cosh, coshf(x), cosh(x))
BOTH(tanh, v_tanh(x), tanh(x))
BOTH(asinh, asinhf(x), asinh(x))
BOTH(acosh, acoshf(x), acosh(x))
BOTH(atanh, atanhf(x), atanh(x))
BOTH(erf, v_erf(x), erf(x))
BOTH(erfc, v_erfc(x), erfc(x))
BOTH(erfinv, (float)cnn_erfinv((double)x), cnn_erfinv(x))
BOTH(lgamma, (float)lgamma((double)x), lgamma(x))
BOTH(digamma, (float)cnn_digamma((double)x), cnn_digamma(x))
BOTH(trigamma, (float)cnn_trigamma((double)x), cnn_trigamma(x))
// Both halves of the logistic function from e^-|x|, which never overflows.
BOTH(sigmoid, v_sigmoid(x), (x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x))))
BOTH(softplus, v_softplus(x), (x > 0 ? x : 0) + log1p(exp(-fabs(x))))

#undef F32
#undef F64
#undef BOTH

#define BOTH(name, f32, f64)                                                                       \
  INLINE float m_##name##_f32(float x, float y) {                                                  \
    return f32;                                                                                    \
  }                                                                                                \
  INLINE double m_##name##_f64(double x, double y) {                                               \
    return f64;                                                                                    \
  }

BOTH(atan2, atan2f(x, y), atan2(x, y))
BOTH(hypot, hypotf(x, y), hypot(x, y))
BOTH(copysign, copysignf(x, y), copysign(x, y))
// Equal infinities would give inf - inf.
BOTH(logaddexp, (x == y ? x + 0.69314718f : (x > y ? x : y) + v_log1p(v_exp(-fabsf(x - y)))),
     (x == y ? x + 0.69314718055994530942 : (x > y ? x : y) + log1p(exp(-fabs(x - y)))))
#undef BOTH

#define BOTH(name, f32, f64)                                                                       \
  INLINE float r_##name##_f32(float x) {                                                           \
    return f32;                                                                                    \
  }                                                                                                \
  INLINE double r_##name##_f64(double x) {                                                         \
    return f64;                                                                                    \
  }                                                                                                \
  INLINE int64_t r_##name##_int(int64_t x) {                                                       \
    return x;                                                                                      \
  }
BOTH(floor, floorf(x), floor(x))
BOTH(ceil, ceilf(x), ceil(x))
BOTH(rint, rintf(x), rint(x))
BOTH(trunc, truncf(x), trunc(x))
// The nearest finite value.
BOTH(finite,
     (x > 3.402823466e38f    ? 3.402823466e38f
      : x < -3.402823466e38f ? -3.402823466e38f
                             : x),
     (x > 1.7976931348623157e308    ? 1.7976931348623157e308
      : x < -1.7976931348623157e308 ? -1.7976931348623157e308
                                    : x))
#undef BOTH

// Floored division as Python's and Lua's: the remainder has the sign of y.
#define BOTH(T, S, suffix)                                                                         \
  INLINE T r_remainder_##suffix(T x, T y) {                                                        \
    T r = fmod##S(x, y);                                                                           \
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;                                               \
  }                                                                                                \
  INLINE T r_fmod_##suffix(T x, T y) {                                                             \
    return fmod##S(x, y);                                                                          \
  }                                                                                                \
  INLINE T r_floor_divide_##suffix(T x, T y) {                                                     \
    if (y == 0) return x / y;                                                                      \
    T q = (x - r_remainder_##suffix(x, y)) / y, down = floor##S(q);                                \
    return q - down > (T)0.5 ? down + 1 : down;                                                    \
  }                                                                                                \
  INLINE T r_trunc_divide_##suffix(T x, T y) {                                                     \
    return trunc##S(x / y);                                                                        \
  }
BOTH(float, f, f32)
BOTH(double, , f64)
#undef BOTH

// The exponents that scripts write need no pow.
INLINE float r_pow_f32(float x, float y) {
  return y == 2 ? x * x : y == 1 ? x : y == 3 ? x * x * x : powf(x, y);
}
INLINE double r_pow_f64(double x, double y) {
  return y == 2 ? x * x : y == 1 ? x : y == 3 ? x * x * x : pow(x, y);
}

// Integers never trap: a division by 0 gives 0, and the one quotient that overflows wraps.
INLINE int64_t r_trunc_divide_int(int64_t x, int64_t y) {
  if (y == 0) return 0;
  return y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}
INLINE int64_t r_fmod_int(int64_t x, int64_t y) {
  return y == 0 || y == -1 ? 0 : x % y;
}
INLINE int64_t r_remainder_int(int64_t x, int64_t y) {
  int64_t r = r_fmod_int(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
INLINE int64_t r_floor_divide_int(int64_t x, int64_t y) {
  int64_t q = r_trunc_divide_int(x, y);
  return y != 0 && r_fmod_int(x, y) != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}
INLINE int64_t r_pow_int(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
  uint64_t r = 1, b = (uint64_t)x;
  for (; y; y >>= 1, b *= b)
    if (y & 1) r *= b;
  return (int64_t)r;
}

#undef INLINE

#endif
