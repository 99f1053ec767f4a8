// SPDX-License-Identifier: MIT
//
// What the stand-ins for cuBLASLt and cuDNN share: elements of four types in device memory, read
// into vectors of the type that sums are kept in and written back rounded. Stand-ins compute by
// plain loops on those vectors: clear first, quick enough for small networks.
#ifndef SIM_LIBRARY_H
#define SIM_LIBRARY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmath>
#include "include/sim.h"

namespace sim {

// How libraries behave: SIM_LIBRARIES_*.
int libraries();
// Whether a library, which counts its handles in `made`, is to say that it lacks memory.
inline bool is_exhausted(int *made) {
  return libraries() == SIM_LIBRARIES_EXHAUSTED && ++*made <= 2;
}

enum class Elem { F32, F64, F16, BF16 };

inline size_t size_of(Elem e) {
  return e == Elem::F64 ? 8 : e == Elem::F32 ? 4 : 2;
}

inline float float_of_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}

inline uint32_t bits_of_float(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}

// Written out here, not taken from the core: a stand-in that shares code with what it tests shares
// its faults.
inline float float_of_half(uint16_t h) {
  int exponent = (h >> 10) & 31, mantissa = h & 1023;
  float sign = h & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa ? float_of_bits(0x7FC00000) : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(float(mantissa), -24);
  return sign * std::ldexp(float(mantissa + 1024), exponent - 25);
}

inline uint16_t half_of_float(float f) {
  uint16_t sign = uint16_t((bits_of_float(f) >> 16) & 0x8000);
  float a = std::fabs(f);
  if (std::isnan(f)) return uint16_t(sign | 0x7E00);
  if (a >= 65520.0f) return uint16_t(sign | 0x7C00);
  if (a < 0x1p-14f) return uint16_t(sign | uint16_t(std::nearbyint(std::ldexp(a, 24))));
  int e;
  float m = std::nearbyint(std::ldexp(std::frexp(a, &e), 11)); // 1024 .. 2048, ties to even
  if (m == 2048) m = 1024, e++;
  return uint16_t(sign | ((e + 14) << 10) | (uint16_t(m) & 1023));
}

inline float float_of_bf16(uint16_t h) {
  return float_of_bits(uint32_t(h) << 16);
}

inline uint16_t bf16_of_float(float f) {
  uint32_t u = bits_of_float(f);
  if (std::isnan(f)) return uint16_t((u >> 16) | 0x40);
  return uint16_t((u + 0x7FFF + ((u >> 16) & 1)) >> 16);
}

// float32 as tensor cores read it: 10 bits of mantissa.
inline float tf32_of_float(float f) {
  uint32_t u = bits_of_float(f);
  if ((u & 0x7F800000) == 0x7F800000) return f;
  return float_of_bits((u + 0xFFF + ((u >> 13) & 1)) & ~0x1FFFu);
}

template <typename T> inline T load(Elem e, const void *p, int64_t i) {
  uint16_t h;
  switch (e) {
  case Elem::F32: return T(static_cast<const float *>(p)[i]);
  case Elem::F64: return T(static_cast<const double *>(p)[i]);
  default:
    memcpy(&h, static_cast<const char *>(p) + 2 * i, 2);
    return T(e == Elem::F16 ? float_of_half(h) : float_of_bf16(h));
  }
}

template <typename T> inline void store(Elem e, void *p, int64_t i, T v) {
  uint16_t h;
  switch (e) {
  case Elem::F32: static_cast<float *>(p)[i] = float(v); return;
  case Elem::F64: static_cast<double *>(p)[i] = double(v); return;
  default:
    h = e == Elem::F16 ? half_of_float(float(v)) : bf16_of_float(float(v));
    memcpy(static_cast<char *>(p) + 2 * i, &h, 2);
  }
}

inline size_t alignment_of(const void *p) {
  uintptr_t low = reinterpret_cast<uintptr_t>(p) & -reinterpret_cast<uintptr_t>(p);
  return low == 0 || low > 256 ? 256 : size_t(low);
}

// GELU in its tanh form, and its derivative.
template <typename T> inline T gelu(T x) {
  return T(0.5) * x * (1 + std::tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x)));
}
template <typename T> inline T gelu_slope(T x) {
  T t = std::tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x));
  return T(0.5) * (1 + t) +
         T(0.5) * x * (1 - t * t) * T(0.7978845608028654) * (1 + T(3 * 0.044715) * x * x);
}

} // namespace sim
#endif
