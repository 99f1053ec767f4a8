// SPDX-License-Identifier: MIT
//
// What cuda_fp16.h and cuda_bf16.h keep for nvcc. Both include this; each part comes once. Values
// go through float or double and are rounded once: exact for fma but for rare double roundings.
// Warp operations and cache hints are the templates of sim_device.h.
#include "sim_device.h"

#define SIM_HALF(T, T2, from, to, to_double, pair)                                                 \
  inline T __hfma(T a, T b, T c) {                                                                 \
    return to_double(static_cast<double>(from(a)) * static_cast<double>(from(b)) +                 \
                     static_cast<double>(from(c)));                                                \
  }                                                                                                \
  inline T __hfma_sat(T a, T b, T c) {                                                             \
    return to(__saturatef(from(__hfma(a, b, c))));                                                 \
  }                                                                                                \
  inline T __hfma_relu(T a, T b, T c) {                                                            \
    return to(fmaxf(from(__hfma(a, b, c)), 0.0f));                                                 \
  }                                                                                                \
  inline T2 __hfma2(T2 a, T2 b, T2 c) {                                                            \
    return pair(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));                                     \
  }                                                                                                \
  inline T2 __hfma2_relu(T2 a, T2 b, T2 c) {                                                       \
    return pair(__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y));                           \
  }                                                                                                \
  SIM_HALF_MATH(T, T2, from, to, pair, sqrt, sqrtf(x))                                             \
  SIM_HALF_MATH(T, T2, from, to, pair, rsqrt, rsqrtf(x))                                           \
  SIM_HALF_MATH(T, T2, from, to, pair, rcp, 1.0f / x)                                              \
  SIM_HALF_MATH(T, T2, from, to, pair, log, logf(x))                                               \
  SIM_HALF_MATH(T, T2, from, to, pair, log2, log2f(x))                                             \
  SIM_HALF_MATH(T, T2, from, to, pair, log10, log10f(x))                                           \
  SIM_HALF_MATH(T, T2, from, to, pair, exp, expf(x))                                               \
  SIM_HALF_MATH(T, T2, from, to, pair, exp2, exp2f(x))                                             \
  SIM_HALF_MATH(T, T2, from, to, pair, exp10, exp10f(x))                                           \
  SIM_HALF_MATH(T, T2, from, to, pair, sin, sinf(x))                                               \
  SIM_HALF_MATH(T, T2, from, to, pair, cos, cosf(x))                                               \
  SIM_HALF_MATH(T, T2, from, to, pair, tanh, tanhf(x))                                             \
  SIM_HALF_MATH(T, T2, from, to, pair, tanh_approx, tanhf(x))                                      \
  SIM_HALF_MATH(T, T2, from, to, pair, trunc, truncf(x))                                           \
  SIM_HALF_MATH(T, T2, from, to, pair, ceil, ceilf(x))                                             \
  SIM_HALF_MATH(T, T2, from, to, pair, floor, floorf(x))                                           \
  SIM_HALF_MATH(T, T2, from, to, pair, rint, rintf(x))                                             \
  SIM_RAW inline T atomicAdd(T *p, T v) {                                                          \
    sim_atomic(p, sizeof(T), __builtin_return_address(0));                                         \
    const T old = *p;                                                                              \
    *p = to(from(old) + from(v));                                                                  \
    return old;                                                                                    \
  }                                                                                                \
  SIM_RAW inline T2 atomicAdd(T2 *p, T2 v) {                                                       \
    sim_atomic(p, sizeof(T2), __builtin_return_address(0));                                        \
    const T2 old = *p;                                                                             \
    *p = pair(to(from(old.x) + from(v.x)), to(from(old.y) + from(v.y)));                           \
    return old;                                                                                    \
  }
#define SIM_HALF_MATH(T, T2, from, to, pair, name, expr)                                           \
  inline T h##name(T h) {                                                                          \
    const float x = from(h);                                                                       \
    return to(expr);                                                                               \
  }                                                                                                \
  inline T2 h2##name(T2 h) {                                                                       \
    return pair(h##name(h.x), h##name(h.y));                                                       \
  }
#define SIM_HALF_INT(type, from, T, name, I, rounding, how)                                        \
  inline I __##type##2##name##_##rounding(T h) {                                                   \
    return sim_to_int<I>(how(from(h)));                                                            \
  }
#define SIM_HALF_INTS(type, from, T)                                                               \
  SIM_HALF_INT(type, from, T, int, int, rn, rintf)                                                 \
  SIM_HALF_INT(type, from, T, int, int, rd, floorf)                                                \
  SIM_HALF_INT(type, from, T, int, int, ru, ceilf)                                                 \
  SIM_HALF_INT(type, from, T, uint, unsigned, rn, rintf)                                           \
  SIM_HALF_INT(type, from, T, uint, unsigned, rd, floorf)                                          \
  SIM_HALF_INT(type, from, T, uint, unsigned, ru, ceilf)                                           \
  SIM_HALF_INT(type, from, T, ll, long long, rn, rintf)

#if defined(SIM_CUDA_FP16_H) && !defined(SIM_HALF_FP16)
#define SIM_HALF_FP16
SIM_HALF(__half, __half2, __half2float, __float2half_rn, __double2half, __halves2half2)
SIM_HALF_INTS(half, __half2float, __half)
#endif

#if defined(SIM_CUDA_BF16_H) && !defined(SIM_HALF_BF16)
#define SIM_HALF_BF16
SIM_HALF(__nv_bfloat16, __nv_bfloat162, __bfloat162float, __float2bfloat16_rn, __double2bfloat16,
         __halves2bfloat162)
SIM_HALF_INTS(bfloat16, __bfloat162float, __nv_bfloat16)
#endif

#undef SIM_HALF
#undef SIM_HALF_MATH
#undef SIM_HALF_INT
#undef SIM_HALF_INTS
