// SPDX-License-Identifier: MIT
// Elementary functions of floats that vectorise: polynomials without branches or tables.
//
// They are static inline so that loops in files compiled with CNN_CLONES get vector code for every
// instruction set, and for other devices by CNN_INLINE. NaN gives NaN, infinities and ends of range
// give the right limits, subnormal arguments and results are as exact as all others, and odd
// functions keep the sign of 0.
//
// Largest errors in units in the last place, measured by spec/c/vmath_test.c over every fifth float
// (over samples for pow and float64), the larger of the figures with and without fused
// multiply-add:
//
//   exp 1.1  exp2 1.1  expm1 1.5  log 1.0  log2 1.4  log10 1.2  log1p 1.5  pow 0.8
//   tanh 1.4  sigmoid 1.6  softplus 1.8  erf 1.3  erfc 0.6  sin 1.6  cos 1.6
//   float64: exp 1.1  expm1 1.9  log 0.8  tanh 2.3  sigmoid 2.2
//
// Sources. Argument reductions and the splitting of constants: Cody and Waite, Software Manual for
// the Elementary Functions (1980), and fdlibm. The polynomials are minimax fits of our own to the
// reduced functions named beside them, with coefficients rounded one after the other, the lowest
// order first, and the rest fitted again.
//
// Rounding to an integer is done by adding and subtracting 1.5 * 2^23: that vectorises everywhere,
// and leaves the integer in the low bits of the sum. -ffast-math would undo it.
#ifndef CNN_CPU_VMATH_H
#define CNN_CPU_VMATH_H

#include <stdint.h>
#include <string.h>

#include "base/half.h"

#ifdef __FAST_MATH__
#error "vmath.h needs floating point as written: compile without -ffast-math"
#endif

#define V_FN      CNN_INLINE __attribute__((always_inline))
#define V_ROUND   0x1.8p23f
#define V_ROUND64 0x1.8p52
#define V_INF     __builtin_inff()
#define V_NAN     __builtin_nanf("")
#define V_INF64   __builtin_inf()
#define V_NAN64   __builtin_nan("")

V_FN double v_from_bits64(uint64_t u) {
  double f;
  memcpy(&f, &u, sizeof f);
  return f;
}

V_FN uint64_t v_to_bits64(double f) {
  uint64_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

V_FN float v_abs(float x) {
  return cnn_bits_float(cnn_float_bits(x) & 0x7FFFFFFFu);
}

// |x| with the sign of s.
V_FN float v_sign_of(float x, float s) {
  return cnn_bits_float((cnn_float_bits(x) & 0x7FFFFFFFu) | (cnn_float_bits(s) & 0x80000000u));
}

V_FN double v_abs64(double x) {
  return v_from_bits64(v_to_bits64(x) & 0x7FFFFFFFFFFFFFFFu);
}

V_FN double v_sign_of64(double x, double s) {
  return v_from_bits64((v_to_bits64(x) & 0x7FFFFFFFFFFFFFFFu) |
                       (v_to_bits64(s) & 0x8000000000000000u));
}

// y * 2^n where t = n + V_ROUND, |n| <= 250: in two steps, so that only the last one can overflow
// or round to a subnormal.
V_FN float v_scale(float y, float t) {
  uint32_t n = cnn_float_bits(t) - 0x4B400000u, half = (uint32_t)((int32_t)n >> 1);
  return y * cnn_bits_float((half + 127u) << 23) * cnn_bits_float((n - half + 127u) << 23);
}

// x = n ln 2 + r with |r| <= 0.347; t = n + V_ROUND. The 9 bits of 0.693359375 times n are exact.
V_FN float v_exp_reduce(float x, float *t) {
  *t = x * 0x1.715476p+0f + V_ROUND;
  float n = *t - V_ROUND;
  return (x - n * 0.693359375f) - n * -0x1.bd0106p-13f;
}

// e^r - 1 for |r| <= 0.347 as a part of e^r (relative to that it is exact): r + r^2 q(r).
V_FN float v_exp_reduced_m1(float r) {
  float q = 0x1.6a4cfap-10f;
  q = q * r + 0x1.12398cp-7f;
  q = q * r + 0x1.5558b0p-5f;
  q = q * r + 0x1.555492p-3f;
  q = q * r + 0x1.fffffcp-2f;
  return r + r * r * q;
}

V_FN float v_exp_reduced(float r) {
  return 1.0f + v_exp_reduced_m1(r);
}

V_FN float v_exp(float x) {
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  float t, r = v_exp_reduce(x, &t);
  return v_scale(v_exp_reduced(r), t);
}

// e^x where the result is a normal float: |x| <= 87.
V_FN float v_exp_normal(float x) {
  float t, r = v_exp_reduce(x, &t);
  return v_exp_reduced(r) * cnn_bits_float((cnn_float_bits(t) - 0x4B400000u + 127u) << 23);
}

V_FN float v_exp2(float x) {
  x = x > 129.0f ? 129.0f : x;
  x = x < -151.0f ? -151.0f : x;
  float t = x + V_ROUND, r = x - (t - V_ROUND);
  float p = 0x1.417826p-13f;
  p = p * r + 0x1.5f0948p-10f;
  p = p * r + 0x1.3b2dd4p-7f;
  p = p * r + 0x1.c6af7ap-5f;
  p = p * r + 0x1.ebfbdcp-3f;
  p = p * r + 0x1.62e430p-1f;
  return v_scale(1.0f + r * p, t);
}

// e^x - 1 = 2^n (e^r - 1) + (2^n - 1), halved until the end so that 2^128 does not overflow.
V_FN float v_expm1(float x) {
  float c = x > 89.0f ? 89.0f : x;
  c = c < -18.0f ? -18.0f : c;
  float t, r = v_exp_reduce(c, &t);
  float q = 0x1.9e6e56p-13f;
  q = q * r + 0x1.6d3a3ep-10f;
  q = q * r + 0x1.1112dap-7f;
  q = q * r + 0x1.5554f8p-5f;
  q = q * r + 0x1.555554p-3f;
  q = q * r + 0x1.p-1f;
  float p = r + r * r * q;
  float s = cnn_bits_float((cnn_float_bits(t) - 0x4B400000u + 126u) << 23);
  float y = (p * s + (s - 0.5f)) * 2.0f;
  return v_abs(x) < 0x1p-25f ? x : y;
}

// log(1 + f) - f for 1 + f in [sqrt(1/2), sqrt(2)]: -f^2 / 2 + f^3 P(f).
V_FN float v_log_reduced(float f) {
  float p = -0x1.38bdfep-4f, z = f * f;
  p = p * f + 0x1.055b86p-3f;
  p = p * f + -0x1.0d82d4p-3f;
  p = p * f + 0x1.22d98cp-3f;
  p = p * f + -0x1.547288p-3f;
  p = p * f + 0x1.99a01ap-3f;
  p = p * f + -0x1.000226p-2f;
  p = p * f + 0x1.555554p-2f;
  return z * (f * p) - 0.5f * z;
}

// x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), for finite x > 0.
V_FN float v_log_reduce(float x, float *e) {
  float small = x < 0x1p-126f ? -23.0f : 0.0f;
  x = x < 0x1p-126f ? x * 0x1p23f : x;
  uint32_t i = cnn_float_bits(x) - 0x3F3504F3u;
  *e = (float)((int32_t)i >> 23) + small;
  return cnn_bits_float((i & 0x7FFFFFu) + 0x3F3504F3u) - 1.0f;
}

// y for 0 < x < inf, and the limits of the logarithm elsewhere.
V_FN float v_log_limits(float x, float y) {
  y = x > 0 ? y : x == 0 ? -V_INF : V_NAN;
  return x < V_INF ? y : x; // inf and NaN
}

V_FN float v_log(float x) {
  float e, f = v_log_reduce(x, &e), q = v_log_reduced(f);
  return v_log_limits(x, (f + (q + e * -0x1.bd0106p-13f)) + e * 0.693359375f);
}

// The products with 1 / log(2) and 1 / log(10) leave the leading f or f / 2 exact.
V_FN float v_log2(float x) {
  float e, f = v_log_reduce(x, &e), q = v_log_reduced(f);
  return v_log_limits(x, (f + (f * 0x1.c551dap-2f + q * 0x1.715476p+0f)) + e);
}

V_FN float v_log10(float x) {
  float e, f = v_log_reduce(x, &e), q = v_log_reduced(f);
  float low = f * -0x1.0d213ap-4f + (q * 0x1.bcb7b2p-2f + e * 0x1.3509f8p-18f);
  return v_log_limits(x, (0.5f * f + low) + e * 0x1.344p-2f);
}

// log(1 + x) for x in (-1, inf): with u = 1 + x rounded, u = 2^e m and d = 1 + x - u exactly, it is
// e log 2 + log(m + d / 2^e).
V_FN float v_log1p_finite(float x) {
  float u = 1.0f + x, d = x >= 1.0f ? 1.0f - (u - x) : x - (u - 1.0f);
  uint32_t i = cnn_float_bits(u) - 0x3F3504F3u;
  int32_t n = (int32_t)i >> 23;
  float e = (float)n;
  float shrink = cnn_bits_float((uint32_t)(127 - (n > 64 ? 64 : n)) << 23); // beyond, d is nothing
  float f = (cnn_bits_float((i & 0x7FFFFFu) + 0x3F3504F3u) - 1.0f) + d * shrink;
  return (f + (v_log_reduced(f) + e * -0x1.bd0106p-13f)) + e * 0.693359375f;
}

V_FN float v_log1p(float x) {
  float y = v_log1p_finite(x);
  y = x > -1.0f ? y : x == -1.0f ? -V_INF : V_NAN;
  y = v_abs(x) < 0x1p-25f ? x : y; // the sign of 0
  return x < V_INF ? y : x;
}

// x + x^3 T(x^2) near 0, else 1 - 2 / (e^2|x| + 1).
V_FN float v_tanh(float x) {
  float a = v_abs(x), z = x * x;
  float p = -0x1.756d2ap-8f;
  p = p * z + 0x1.520a3ap-6f;
  p = p * z + -0x1.b83792p-5f;
  p = p * z + 0x1.1106fep-3f;
  p = p * z + -0x1.555532p-2f;
  float near = a + a * (z * p);
  float c = a > 10.0f ? 10.0f : a;
  float far = 1.0f - 2.0f / (v_exp_normal(2.0f * c) + 1.0f);
  return v_sign_of(a < 0.625f ? near : far, x);
}

// z / (1 + z) or 1 / (1 + z) with z = e^-|x|, which never overflows. z and 1 + z are known with
// their rounding errors, and the numerator makes up for them (1 - z / 2 is near enough to 1 / (1 +
// z)).
V_FN float v_sigmoid(float x) {
  float a = -v_abs(x), t, r = v_exp_reduce(a < -104.0f ? -104.0f : a, &t);
  float s = v_exp_reduced_m1(r), y = 1.0f + s, tail = v_scale(s - (y - 1.0f), t), z = v_scale(y, t);
  float d = 1.0f + z, low = (z - (d - 1.0f)) + tail;
  float n = x < 0 ? z : 1.0f, n_tail = x < 0 ? tail : 0.0f;
  return (n + (n_tail - n * (low * (1.0f - 0.5f * z)))) / d;
}

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|).
V_FN float v_softplus(float x) {
  float y = v_log1p_finite(v_exp(-v_abs(x)));
  return (x > 0 ? x : 0.0f) + y;
}

// x + x E(x^2) near 0, else 1 - e^(-a - G(a)) with G(a) = -log(erfc(a)) - a.
V_FN float v_erf(float x) {
  float a = v_abs(x), z = x * x;
  float p = -0x1.38ffe8p-11f;
  p = p * z + 0x1.46fbdap-8f;
  p = p * z + -0x1.b681b2p-6f;
  p = p * z + 0x1.ce19e6p-4f;
  p = p * z + -0x1.8126e4p-2f;
  p = p * z + 0x1.06eba6p-3f;
  float near = a + a * p;
  float c = a > 3.95f ? 3.95f : a;
  float g = -0x1.9af2e8p-13f;
  g = g * c + 0x1.8ee6bap-9f;
  g = g * c + -0x1.6c2ccep-6f;
  g = g * c + 0x1.a9b546p-4f;
  g = g * c + 0x1.463c9cp-1f;
  g = g * c + 0x1.057b1cp-3f;
  g = g * c + 0x1.9a1524p-13f;
  float far = 1.0f - v_exp_normal(-(c + g));
  return v_sign_of(a < 0.9277f ? near : far, x);
}

// In double, since e^(-x^2) magnifies the error of x^2. With t = (a - 4) / (a + 4), erfc(a) =
// e^(-a^2) P(t) / (1 + 2a): Shepherd and Laframboise, Math. Comp. 36 (1981).
V_FN float v_erfc(float x) {
  double a = (double)v_abs(x);
  a = a > 10.1 ? 10.1 : a;
  double inverse = 1.0 / ((a + 4.0) * (1.0 + 2.0 * a));
  double t = (a - 4.0) * (1.0 + 2.0 * a) * inverse;
  double p = -0x1.5097bc93909e0p-11;
  p = p * t + -0x1.29f9b32aa2806p-10;
  p = p * t + 0x1.4a8538dcd0ff4p-8;
  p = p * t + -0x1.068ad58c4037ep-6;
  p = p * t + 0x1.30ec0e737131dp-5;
  p = p * t + -0x1.0fc9e53174483p-4;
  p = p * t + 0x1.7fe1ea6084203p-4;
  p = p * t + -0x1.9dd9d2d0e70a6p-4;
  p = p * t + 0x1.16edc0f9e88dcp-4;
  p = p * t + 0x1.f7f5aed5bd507p-7;
  p = p * t + -0x1.1df1aef1e8c0bp-3;
  p = p * t + 0x1.3ba5916f1b7bep+0;
  // e^(-a^2) to 2^-34: 1 + r + r^2 q(r).
  double s = -(a * a), n = s * 0x1.71547652b82fep+0 + V_ROUND64, m = n - V_ROUND64;
  double r = (s - m * 0x1.62e42feep-1) - m * 0x1.a39ef35793c76p-33;
  double q = 0x1.9f09f45d08a6bp-13;
  q = q * r + 0x1.6d8d6bfa8941fp-10;
  q = q * r + 0x1.11126f8483b38p-7;
  q = q * r + 0x1.55548d4d5ceabp-5;
  q = q * r + 0x1.55555443fc03fp-3;
  q = q * r + 0x1.0000003a5fe31p-1;
  double e =
      (1.0 + (r + r * r * q)) * v_from_bits64((v_to_bits64(n) - 0x4338000000000000u + 1023u) << 52);
  double y = e * p * ((a + 4.0) * inverse);
  return (float)(x < 0 ? 2.0 - y : y);
}

// x = (q + f) pi / 2 with |f| <= 0.5; returns f pi / 2 and q modulo 4 (in the low bits).
//
// 2 / pi is cut into pieces of 27 bits, so that the product of x with a piece is exact in double.
// Pieces whose product is a multiple of 4 do not matter: the larger x, the later the first of the
// three pieces that are used. The last one holds 53 bits. Rounding to multiples of 4 by adding
// 1.5 * 2^54 needs |product| <= 2^53.
V_FN float v_trig_reduce(float x, uint32_t *q) {
  float a = v_abs(x);
  double d = (double)x;
  double c0 = 0x1.45f306cp-1, c1 = 0x1.c9c8828p-29, c2 = 0x1.29fc2757d1f53p-56;
  c0 = a >= 0x1p52f ? 0x1.c9c8828p-29 : c0;
  c1 = a >= 0x1p52f ? 0x1.29fc27p-56 : c1;
  c2 = a >= 0x1p52f ? 0x1.5f47d4d377037p-82 : c2;
  c0 = a >= 0x1p79f ? 0x1.29fc27p-56 : c0;
  c1 = a >= 0x1p79f ? 0x1.5f47d4cp-82 : c1;
  c2 = a >= 0x1p79f ? 0x1.377036d8a5665p-110 : c2;
  c0 = a >= 0x1p106f ? 0x1.5f47d4cp-82 : c0;
  c1 = a >= 0x1p106f ? 0x1.3770368p-110 : c1;
  c2 = a >= 0x1p106f ? 0x1.6295993c43904p-136 : c2;
  double p0 = d * c0, p1 = d * c1, p2 = d * c2;
  p0 -= (p0 + 0x1.8p54) - 0x1.8p54;
  p1 -= (p1 + 0x1.8p54) - 0x1.8p54;
  double n = (p0 + p1 + p2 + V_ROUND64) - V_ROUND64;
  double f = ((p0 - n) + p1) + p2;
  *q = cnn_float_bits((float)n + V_ROUND);
  return (float)(f * 0x1.921fb54442d18p+0);
}

// sin r and cos r for |r| <= pi / 4: r + r^3 S(r^2), 1 - r^2 / 2 + r^4 C(r^2).
V_FN float v_sin_reduced(float r) {
  float z = r * r;
  float p = -0x1.995402p-13f;
  p = p * z + 0x1.110778p-7f;
  p = p * z + -0x1.555546p-3f;
  return r + r * (z * p);
}

V_FN float v_cos_reduced(float r) {
  float z = r * r;
  float p = 0x1.99e910p-16f;
  p = p * z + -0x1.6c0c2ap-10f;
  p = p * z + 0x1.55554ap-5f;
  return (1.0f - 0.5f * z) + z * z * p;
}

V_FN float v_sin(float x) {
  uint32_t q;
  float r = v_trig_reduce(x, &q), s = v_sin_reduced(r), c = v_cos_reduced(r);
  float y = cnn_bits_float(cnn_float_bits(q & 1u ? c : s) ^ (q & 2u) << 30);
  return v_abs(x) < 0x1p-13f ? x : y;
}

V_FN float v_cos(float x) {
  uint32_t q;
  float r = v_trig_reduce(x, &q), s = v_sin_reduced(r), c = v_cos_reduced(r);
  return cnn_bits_float(cnn_float_bits(q & 1u ? s : c) ^ ((q + 1u) & 2u) << 30);
}

// x^y = 2^(y log2 |x|) in double; signs and special values as C's pow has them.
V_FN float v_pow(float x, float y) {
  float a = v_abs(x), e, f = v_log_reduce(a, &e);
  double s = (double)f / ((double)f + 2.0), z = s * s;
  double p = 0x1.21bb9f1eef561p-2;
  p = p * z + 0x1.4794a016892cep-2;
  p = p * z + 0x1.a61a32f8b8909p-2;
  p = p * z + 0x1.2776c28e4bc3ep-1;
  p = p * z + 0x1.ec709dc540697p-1;
  p = p * z + 0x1.71547652b824fp+1;
  double log2 = s * p + (double)e;
  log2 = a == 0 ? -V_INF64 : a == V_INF ? V_INF64 : log2;
  double w = log2 * (double)y;
  w = w > 160.0 ? 160.0 : w;
  w = w < -160.0 ? -160.0 : w;
  double n = (w + V_ROUND64) - V_ROUND64, r = w - n;
  double b = 0x1.fde35f7f39dacp-17;
  b = b * r + 0x1.445c7ab51ebaep-13;
  b = b * r + 0x1.5d8a87841cc07p-10;
  b = b * r + 0x1.3b29f3a21e4d6p-7;
  b = b * r + 0x1.c6b08abfc36fdp-5;
  b = b * r + 0x1.ebfbe0778e83dp-3;
  b = b * r + 0x1.62e42ff0e1c0cp-1;
  float power = v_scale((float)(1.0 + r * b), (float)n + V_ROUND);
  // Every float from 2^24 on is an even integer.
  float within = y > -0x1p30f ? y : -0x1p30f;
  int32_t whole = (int32_t)(within < 0x1p30f ? within : 0x1p30f);
  float integer = (float)whole == y ? 1.0f : 0.0f;
  integer = v_abs(y) >= 0x1p24f ? 1.0f : integer;
  float undefined = x < 0 ? 1.0f - integer : 0.0f;
  undefined = a < V_INF ? undefined : 0.0f;
  uint32_t odd = integer != 0 ? (uint32_t)whole << 31 : 0;
  power = undefined != 0 ? V_NAN : power;
  power = cnn_bits_float(cnn_float_bits(power) ^ (cnn_float_bits(x) & odd));
  power = x != x || y != y ? x + y : power;
  return y == 0 || x == 1.0f || (x == -1.0f && v_abs(y) == V_INF) ? 1.0f : power;
}

// float64.

V_FN double v_scale64(double y, double t) {
  uint64_t n = v_to_bits64(t) - 0x4338000000000000u, half = ((n + 4096u) >> 1) - 2048u;
  return y * v_from_bits64((half + 1023u) << 52) * v_from_bits64((n - half + 1023u) << 52);
}

V_FN double v_exp_reduce64(double x, double *t) {
  *t = x * 0x1.71547652b82fep+0 + V_ROUND64;
  double n = *t - V_ROUND64;
  return (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
}

V_FN double v_exp_f64(double x) {
  x = x > 710.0 ? 710.0 : x;
  x = x < -746.0 ? -746.0 : x;
  double t, r = v_exp_reduce64(x, &t);
  double q = 0x1.1e5ef09cea8bep-29;
  q = q * r + 0x1.af66d9ce7ac1ep-26;
  q = q * r + 0x1.27e591e6ae886p-22;
  q = q * r + 0x1.71ddf37788425p-19;
  q = q * r + 0x1.a01a0150662f8p-16;
  q = q * r + 0x1.a01a01b1ea106p-13;
  q = q * r + 0x1.6c16c16c27563p-10;
  q = q * r + 0x1.111111110f15dp-7;
  q = q * r + 0x1.5555555555530p-5;
  q = q * r + 0x1.555555555555ap-3;
  q = q * r + 0.5;
  return v_scale64(1.0 + (r + r * r * q), t);
}

V_FN double v_expm1_f64(double x) {
  double c = x > 710.0 ? 710.0 : x;
  c = c < -38.0 ? -38.0 : c;
  double t, r = v_exp_reduce64(c, &t);
  double q = 0x1.77ff197728300p-33;
  q = q * r + 0x1.1f6208a7d16e4p-29;
  q = q * r + 0x1.ae534a1164685p-26;
  q = q * r + 0x1.27e4e4f59102bp-22;
  q = q * r + 0x1.71de3f2503828p-19;
  q = q * r + 0x1.a01a01a32cdc1p-16;
  q = q * r + 0x1.a01a019edbf1dp-13;
  q = q * r + 0x1.6c16c16c16b8ap-10;
  q = q * r + 0x1.1111111111352p-7;
  q = q * r + 0x1.5555555555555p-5;
  q = q * r + 0x1.5555555555555p-3;
  q = q * r + 0.5;
  double p = r + r * r * q;
  double s = v_from_bits64((v_to_bits64(t) - 0x4338000000000000u + 1022u) << 52);
  double y = (p * s + (s - 0.5)) * 2.0;
  return v_abs64(x) < 0x1p-54 ? x : y;
}

// fdlibm's form: with s = f / (2 + f), log(1 + f) = f - (f^2 / 2 - s (f^2 / 2 + R(s^2))).
V_FN double v_log_f64(double x) {
  double small = x < 0x1p-1022 ? 0x1p52 + 1023.0 + 52.0 : 0x1p52 + 1023.0;
  double c = x < 0x1p-1022 ? x * 0x1p52 : x;
  uint64_t i = v_to_bits64(c) + (0x3FF0000000000000u - 0x3FE6A09E00000000u);
  double e = v_from_bits64(i >> 52 | 0x4330000000000000u) - small;
  double f = v_from_bits64((i & 0xFFFFFFFFFFFFFu) + 0x3FE6A09E00000000u) - 1.0;
  double s = f / (2.0 + f), z = s * s, h = 0.5 * f * f;
  double p = 0x1.2f1465a761361p-3;
  p = p * z + 0x1.39a0530a5394fp-3;
  p = p * z + 0x1.74664bf240538p-3;
  p = p * z + 0x1.c71c51ce9772fp-3;
  p = p * z + 0x1.2492494232f0cp-2;
  p = p * z + 0x1.999999997f99ap-2;
  p = p * z + 0x1.5555555555593p-1;
  double y = e * 0x1.62e42feep-1 - ((h - (s * (h + z * p) + e * 0x1.a39ef35793c76p-33)) - f);
  y = x > 0 ? y : x == 0 ? -V_INF64 : V_NAN64;
  return x < V_INF64 ? y : x;
}

// t / (t + 2) with t = e^2|x| - 1, which is 1 - 2 / (t + 2).
V_FN double v_tanh_f64(double x) {
  double a = v_abs64(x), t = v_expm1_f64(2.0 * (a > 20.0 ? 20.0 : a));
  double y = (a < 0.5 ? t : 2.0) / (t + 2.0);
  return v_sign_of64(a < 0.5 ? y : 1.0 - y, x);
}

V_FN double v_sigmoid_f64(double x) {
  double z = v_exp_f64(-v_abs64(x));
  return (x < 0 ? z : 1.0) / (1.0 + z);
}

#endif
