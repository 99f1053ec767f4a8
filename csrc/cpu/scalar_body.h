// SPDX-License-Identifier: MIT
// The functions M(name) and R(name) of unary.def and binary.def, for scalar.h and cuda/scalar.cuh:
//
//   ONE(name, f32, f64)  M(name) of x; TWO of x and y; ALL(name, f32, f64)  R(name) of x, which
//                        leaves integers as they are
//   FAST(name)           the float function of that name that the device is good at
//   NAME(r_name, type)   what R(name) is called for f32 and f64; for integers it is r_name_int
//   SCALAR               what a function begins with
ONE(fabs, fabsf(x), fabs(x))
ONE(sign, (float)((x > 0) - (x < 0)) + x * 0, (double)((x > 0) - (x < 0)) + x * 0)
ONE(square, x *x, x *x)
ONE(exp, FAST(exp)(x), exp(x))
ONE(exp2, FAST(exp2)(x), exp2(x))
ONE(expm1, FAST(expm1)(x), expm1(x))
ONE(log, FAST(log)(x), log(x))
ONE(log2, FAST(log2)(x), log2(x))
ONE(log10, FAST(log10)(x), log10(x))
ONE(log1p, FAST(log1p)(x), log1p(x))
ONE(sqrt, sqrtf(x), sqrt(x))
ONE(trunc, truncf(x), trunc(x))
ONE(sin, FAST(sin)(x), sin(x))
ONE(cos, FAST(cos)(x), cos(x))
ONE(tan, tanf(x), tan(x))
ONE(asin, asinf(x), asin(x))
ONE(acos, acosf(x), acos(x))
ONE(atan, atanf(x), atan(x))
ONE(sinh, sinhf(x), sinh(x))
ONE(cosh, coshf(x), cosh(x))
ONE(tanh, FAST(tanh)(x), tanh(x))
ONE(asinh, asinhf(x), asinh(x))
ONE(acosh, acoshf(x), acosh(x))
ONE(atanh, atanhf(x), atanh(x))
ONE(erf, FAST(erf)(x), erf(x))
ONE(erfc, FAST(erfc)(x), erfc(x))
ONE(erfinv, (float)cnn_erfinv((double)x), cnn_erfinv(x))
ONE(lgamma, FAST(lgamma)(x), lgamma(x))
ONE(digamma, (float)cnn_digamma((double)x), cnn_digamma(x))
ONE(trigamma, (float)cnn_trigamma((double)x), cnn_trigamma(x))
// Both halves of the logistic function from e^-|x|, which never overflows.
ONE(sigmoid, FAST(sigmoid)(x), (x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x))))
ONE(softplus, FAST(softplus)(x), (x > 0 ? x : 0) + log1p(exp(-fabs(x))))

TWO(atan2, atan2f(x, y), atan2(x, y))
TWO(hypot, hypotf(x, y), hypot(x, y))
TWO(copysign, copysignf(x, y), copysign(x, y))
// Equal infinities would give inf - inf.
TWO(logaddexp, (x == y ? x + 0.69314718f : (x > y ? x : y) + FAST(log1p)(FAST(exp)(-fabsf(x - y)))),
    (x == y ? x + 0.69314718055994530942 : (x > y ? x : y) + log1p(exp(-fabs(x - y)))))

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

// Floored division as Python's and Lua's: the remainder has the sign of y.
#define DIVISIONS(T, S, suffix)                                                                    \
  SCALAR T NAME(r_remainder, suffix)(T x, T y) {                                                   \
    T r = fmod##S(x, y);                                                                           \
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;                                               \
  }                                                                                                \
  SCALAR T NAME(r_fmod, suffix)(T x, T y) {                                                        \
    return fmod##S(x, y);                                                                          \
  }                                                                                                \
  SCALAR T NAME(r_floor_divide, suffix)(T x, T y) {                                                \
    if (y == 0) return x / y;                                                                      \
    T q = (x - NAME(r_remainder, suffix)(x, y)) / y, down = floor##S(q);                           \
    return q - down > (T)0.5 ? down + 1 : down;                                                    \
  }                                                                                                \
  SCALAR T NAME(r_trunc_divide, suffix)(T x, T y) {                                                \
    return trunc##S(x / y);                                                                        \
  }
DIVISIONS(float, f, f32)
DIVISIONS(double, , f64)
#undef DIVISIONS

// The exponents that scripts write need no pow.
SCALAR float NAME(r_pow, f32)(float x, float y) {
  return y == 2 ? x * x : y == 1 ? x : y == 3 ? x * x * x : powf(x, y);
}
SCALAR double NAME(r_pow, f64)(double x, double y) {
  return y == 2 ? x * x : y == 1 ? x : y == 3 ? x * x * x : pow(x, y);
}

// Integers never trap: a division by 0 gives 0, and the one quotient that overflows wraps.
SCALAR int64_t r_trunc_divide_int(int64_t x, int64_t y) {
  if (y == 0) return 0;
  return y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}
SCALAR int64_t r_fmod_int(int64_t x, int64_t y) {
  return y == 0 || y == -1 ? 0 : x % y;
}
SCALAR int64_t r_remainder_int(int64_t x, int64_t y) {
  int64_t r = r_fmod_int(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
SCALAR int64_t r_floor_divide_int(int64_t x, int64_t y) {
  int64_t q = r_trunc_divide_int(x, y);
  return y != 0 && r_fmod_int(x, y) != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}
SCALAR int64_t r_pow_int(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
  uint64_t r = 1, b = (uint64_t)x;
  for (; y; y >>= 1, b *= b)
    if (y & 1) r *= b;
  return (int64_t)r;
}
