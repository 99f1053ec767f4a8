// SPDX-License-Identifier: MIT
// A word lies in a 64-bit lane, so that a product of two words is one instruction and its halves
// need no sorting: what stands above the low 32 bits of a lane is never looked at. Compilers do not
// find that by themselves (they multiply 64 by 64 bits), hence the intrinsics.
#include "cpu/philox.h"

#include "base/philox.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define ROUNDS 10
#define KEY0   0x9E3779B9u
#define KEY1   0xBB67AE85u

// Two or four groups of lanes hide the latency of the multiplications.
#define FILL(name, isa, vector, lanes, groups, LOAD, SET, MUL, HIGH, XOR3, STORE)                  \
  __attribute__((target(isa))) static void name(uint64_t seed, const uint64_t *counters,           \
                                                int64_t n, int n_words, cnn_philox_words *out) {   \
    const vector m0 = SET(0xD2511F53u), m1 = SET(0xCD9E8D57u);                                     \
    for (int64_t i = 0; i < n; i += lanes * groups) {                                              \
      vector c0[groups], c1[groups], c2[groups], c3[groups];                                       \
      for (int g = 0; g < groups; g++) {                                                           \
        c0[g] = LOAD(counters + i + lanes * g);                                                    \
        c1[g] = HIGH(c0[g]);                                                                       \
        c2[g] = c3[g] = SET(0);                                                                    \
      }                                                                                            \
      uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);                                   \
      for (int round = 0; round < ROUNDS; round++, k0 += KEY0, k1 += KEY1) {                       \
        const vector key0 = SET(k0), key1 = SET(k1);                                               \
        for (int g = 0; g < groups; g++) {                                                         \
          vector p0 = MUL(c0[g], m0), p1 = MUL(c2[g], m1);                                         \
          c0[g] = XOR3(HIGH(p1), c1[g], key0);                                                     \
          c2[g] = XOR3(HIGH(p0), c3[g], key1);                                                     \
          c1[g] = p1, c3[g] = p0;                                                                  \
        }                                                                                          \
      }                                                                                            \
      for (int g = 0; g < groups; g++) {                                                           \
        STORE(&out->v[0][i + lanes * g], c0[g]);                                                   \
        if (n_words > 1) STORE(&out->v[1][i + lanes * g], c1[g]);                                  \
        if (n_words > 2) STORE(&out->v[2][i + lanes * g], c2[g]);                                  \
        if (n_words > 2) STORE(&out->v[3][i + lanes * g], c3[g]);                                  \
      }                                                                                            \
    }                                                                                              \
  }

#define LOAD512(p)      _mm512_loadu_si512(p)
#define SET512(x)       _mm512_set1_epi64(x)
#define HIGH512(x)      _mm512_srli_epi64(x, 32)
#define XOR512(a, b, c) _mm512_ternarylogic_epi64(a, b, c, 0x96)
#define STORE512(p, x)  _mm256_storeu_si256((__m256i *)(void *)(p), _mm512_cvtepi64_epi32(x))
#define LOAD256(p)      _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define SET256(x)       _mm256_set1_epi64x(x)
#define HIGH256(x)      _mm256_srli_epi64(x, 32)
#define XOR256(a, b, c) _mm256_xor_si256(_mm256_xor_si256(a, b), c)
#define STORE256(p, x)                                                                             \
  _mm_storeu_si128((__m128i *)(void *)(p),                                                         \
                   _mm256_castsi256_si128(                                                         \
                       _mm256_permutevar8x32_epi32(x, _mm256_set_epi32(7, 5, 3, 1, 6, 4, 2, 0))))

FILL(fill512, "avx512f", __m512i, 8, 4, LOAD512, SET512, _mm512_mul_epu32, HIGH512, XOR512,
     STORE512)
FILL(fill256, "avx2", __m256i, 4, 2, LOAD256, SET256, _mm256_mul_epu32, HIGH256, XOR256, STORE256)
#endif

void cnn_philox_fill(uint64_t seed, const uint64_t *counters, int64_t n, int n_words,
                     cnn_philox_words *out) {
#if defined(__x86_64__)
  if (n >= 8 && __builtin_cpu_supports("avx512f")) {
    fill512(seed, counters, n, n_words, out);
    return;
  }
  if (n >= 4 && __builtin_cpu_supports("avx2")) {
    fill256(seed, counters, n, n_words, out);
    return;
  }
#endif
  for (int64_t i = 0; i < n; i++) {
    cnn_philox r = cnn_philox_at(seed, counters[i]);
    for (int k = 0; k < n_words; k++) out->v[k][i] = r.v[k];
  }
}
