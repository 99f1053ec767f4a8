// SPDX-License-Identifier: MIT
// The functions M(name) and R(name) of unary.def and binary.def, overloaded by type, as
// csrc/cpu/scalar.h has them for the CPU.
#ifndef CNN_CUDA_SCALAR_CUH
#define CNN_CUDA_SCALAR_CUH

#include "kernel.cuh"

#define CNN_SPECIAL(name) __device__ static inline double name
#include "cpu/special_body.h"
#undef CNN_SPECIAL

#define BOTH(name, f32, f64)                                                                       \
  __device__ inline float m_##name(float x) {                                                      \
    return f32;                                                                                    \
  }                                                                                                \
  __device__ inline double m_##name(double x) {                                                    \
    return f64;                                                                                    \
  }
BOTH(fabs, fabsf(x), fabs(x))
BOTH(sign, static_cast<float>((x > 0) - (x < 0)) + x * 0,
     static_cast<double>((x > 0) - (x < 0)) + x * 0)
BOTH(square, x *x, x *x)
BOTH(exp, expf(x), exp(x))
BOTH(exp2, exp2f(x), exp2(x))
BOTH(expm1, expm1f(x), expm1(x))
BOTH(log, logf(x), log(x))
BOTH(log2, log2f(x), log2(x))
BOTH(log10, log10f(x), log10(x))
BOTH(log1p, log1pf(x), log1p(x))
BOTH(sqrt, sqrtf(x), sqrt(x))
BOTH(trunc, truncf(x), trunc(x))
BOTH(sin, sinf(x), sin(x))
BOTH(cos, cosf(x), cos(x))
BOTH(tan, tanf(x), tan(x))
BOTH(asin, asinf(x), asin(x))
BOTH(acos, acosf(x), acos(x))
BOTH(atan, atanf(x), atan(x))
BOTH(sinh, sinhf(x), sinh(x))
BOTH(cosh, coshf(x), cosh(x))
BOTH(tanh, tanhf(x), tanh(x))
BOTH(asinh, asinhf(x), asinh(x))
BOTH(acosh, acoshf(x), acosh(x))
BOTH(atanh, atanhf(x), atanh(x))
BOTH(erf, erff(x), erf(x))
BOTH(erfc, erfcf(x), erfc(x))
BOTH(erfinv, static_cast<float>(cnn_erfinv(static_cast<double>(x))), cnn_erfinv(x))
BOTH(lgamma, lgammaf(x), lgamma(x))
BOTH(digamma, static_cast<float>(cnn_digamma(static_cast<double>(x))), cnn_digamma(x))
BOTH(trigamma, static_cast<float>(cnn_trigamma(static_cast<double>(x))), cnn_trigamma(x))
BOTH(sigmoid, (x < 0 ? expf(x) / (1 + expf(x)) : 1 / (1 + expf(-x))),
     (x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x))))
BOTH(softplus, (x > 0 ? x : 0) + log1pf(expf(-fabsf(x))), (x > 0 ? x : 0) + log1p(exp(-fabs(x))))
#undef BOTH

#define BOTH(name, f32, f64)                                                                       \
  __device__ inline float m_##name(float x, float y) {                                             \
    return f32;                                                                                    \
  }                                                                                                \
  __device__ inline double m_##name(double x, double y) {                                          \
    return f64;                                                                                    \
  }
BOTH(atan2, atan2f(x, y), atan2(x, y))
BOTH(hypot, hypotf(x, y), hypot(x, y))
BOTH(copysign, copysignf(x, y), copysign(x, y))
// Equal infinities would give inf - inf.
BOTH(logaddexp, (x == y ? x + 0.69314718f : (x > y ? x : y) + log1pf(expf(-fabsf(x - y)))),
     (x == y ? x + 0.69314718055994530942 : (x > y ? x : y) + log1p(exp(-fabs(x - y)))))
#undef BOTH

#define ALL(name, f32, f64)                                                                        \
  __device__ inline float r_##name(float x) {                                                      \
    return f32;                                                                                    \
  }                                                                                                \
  __device__ inline double r_##name(double x) {                                                    \
    return f64;                                                                                    \
  }                                                                                                \
  template <class I> __device__ inline I r_##name(I x) {                                           \
    return x;                                                                                      \
  }
ALL(floor, floorf(x), floor(x))
ALL(ceil, ceilf(x), ceil(x))
ALL(rint, rintf(x), rint(x))
ALL(trunc, truncf(x), trunc(x))
// The nearest finite value.
ALL(finite,
    (x > 3.402823466e38f    ? 3.402823466e38f
     : x < -3.402823466e38f ? -3.402823466e38f
                            : x),
    (x > 1.7976931348623157e308    ? 1.7976931348623157e308
     : x < -1.7976931348623157e308 ? -1.7976931348623157e308
                                   : x))
#undef ALL

// Floored division as Python's and Lua's: the remainder has the sign of y.
#define BOTH(T, S)                                                                                 \
  __device__ inline T r_fmod(T x, T y) {                                                           \
    return fmod##S(x, y);                                                                          \
  }                                                                                                \
  __device__ inline T r_remainder(T x, T y) {                                                      \
    const T r = fmod##S(x, y);                                                                     \
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;                                               \
  }                                                                                                \
  __device__ inline T r_floor_divide(T x, T y) {                                                   \
    if (y == 0) return x / y;                                                                      \
    const T q = (x - r_remainder(x, y)) / y, down = floor##S(q);                                   \
    return q - down > T(0.5) ? down + 1 : down;                                                    \
  }                                                                                                \
  __device__ inline T r_trunc_divide(T x, T y) {                                                   \
    return trunc##S(x / y);                                                                        \
  }                                                                                                \
  __device__ inline T r_pow(T x, T y) {                                                            \
    return y == 2 ? x * x : y == 1 ? x : y == 3 ? x * x * x : pow##S(x, y);                        \
  }
BOTH(float, f)
BOTH(double, )
#undef BOTH

// Integers never trap: a division by 0 gives 0, and the one quotient that overflows wraps.
template <class I> __device__ inline int64_t r_trunc_divide(I x_, I y_) {
  const int64_t x = x_, y = y_;
  if (y == 0) return 0;
  return y == -1 ? static_cast<int64_t>(0 - static_cast<uint64_t>(x)) : x / y;
}
template <class I> __device__ inline int64_t r_fmod(I x_, I y_) {
  const int64_t x = x_, y = y_;
  return y == 0 || y == -1 ? 0 : x % y;
}
template <class I> __device__ inline int64_t r_remainder(I x, I y) {
  const int64_t r = r_fmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + static_cast<int64_t>(y) : r;
}
template <class I> __device__ inline int64_t r_floor_divide(I x, I y) {
  const int64_t q = r_trunc_divide(x, y);
  return y != 0 && r_fmod(x, y) != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}
template <class I> __device__ inline int64_t r_pow(I x_, I y_) {
  const int64_t x = x_, y = y_;
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
  uint64_t r = 1, b = static_cast<uint64_t>(x);
  for (int64_t e = y; e; e >>= 1, b *= b)
    if (e & 1) r *= b;
  return static_cast<int64_t>(r);
}

#endif
