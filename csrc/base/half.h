// SPDX-License-Identifier: MIT
// float16 (IEEE 754 binary16) and bfloat16 as bit patterns, converted with round-to-nearest-even.
//
// Branch-free selects, so that loops over them vectorise at plain -O3.
#ifndef CNN_BASE_HALF_H
#define CNN_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "base/inline.h"

CNN_INLINE float cnn_bits_float(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

CNN_INLINE uint32_t cnn_float_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

CNN_INLINE float cnn_bf16_to_float(cnn_bf16 h) {
  return cnn_bits_float((uint32_t)h.bits << 16);
}

CNN_INLINE cnn_bf16 cnn_float_to_bf16(float f) {
  uint32_t u = cnn_float_bits(f);
  uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  uint32_t quiet = (u >> 16) | 0x40u; // a NaN stays a NaN even when its low bits are cut off
  cnn_bf16 h = {(uint16_t)((u & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded)};
  return h;
}

// Both directions multiply by a power of two so that the FPU aligns (and rounds) subnormals.
CNN_INLINE float cnn_f16_to_float(cnn_f16 h) {
  uint32_t sign = (uint32_t)(h.bits & 0x8000u) << 16;
  uint32_t rest = (uint32_t)(h.bits & 0x7FFFu) << 13;
  uint32_t special = rest | 0x70000000u; // exponent 31 -> 255
  uint32_t finite = cnn_float_bits(cnn_bits_float(rest) * 0x1p112f);
  return cnn_bits_float(sign | (rest >= 0x0F800000u ? special : finite));
}

CNN_INLINE cnn_f16 cnn_float_to_f16(float f) {
  uint32_t u = cnn_float_bits(f), sign = (u >> 16) & 0x8000u, a = u & 0x7FFFFFFFu;
  // Normal halves: rebias the exponent by -112 and round to even at bit 13.
  uint32_t normal = (a - (112u << 23) + 0xFFFu + ((a >> 13) & 1u)) >> 13;
  // Subnormal halves: adding 0.5 leaves the value's multiples of 2^-24 in the low mantissa bits.
  uint32_t small = cnn_float_bits(cnn_bits_float(a) + 0.5f) - cnn_float_bits(0.5f);
  uint32_t huge = a > 0x7F800000u ? 0x7E00u : 0x7C00u;
  uint32_t r = a >= 0x47800000u ? huge : a < 0x38800000u ? small : normal;
  cnn_f16 h = {(uint16_t)(sign | r)};
  return h;
}

#endif
