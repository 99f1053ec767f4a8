// SPDX-License-Identifier: MIT
// Elementwise functions of two and three operands: each row of binary.def as a function for
// map.cuh.
#include "map.cuh"
#include "scalar.cuh"

#define M(f) m_##f
#define R(f) r_##f
#define K(c) (static_cast<T>(c))
#define P(i) p[i]

#define BY_FLOAT k_by_computed_float
#define BY_REAL  k_by_computed
#define BY_ANY   k_by_computed
#define BY_BITS  k_by_computed_int

// bool: the value of an ANY row is whether it is not 0. Storing sees to that.
#define BINARY(title, kind, spec, forward, ...)                                                    \
  K_ROW(title, T, 2, (T x, T y), forward)                                                          \
  K_ROW_KERNEL(title, BY_##kind)
#define COMPARE(title, forward, doc)                                                               \
  K_ROW(title, bool, 2, (T x, T y), forward)                                                       \
  K_ROW_KERNEL(title, k_by_computed)
#define TERNARY(title, kind, arguments, spec, forward, saved, dx, dy, dz, doc)                     \
  TERNARY_##kind(title, forward)
#define TERNARY_FLOAT(title, forward)                                                              \
  K_ROW(title, T, 3, (T x, T y, T z), forward)                                                     \
  K_ROW_KERNEL(title, BY_FLOAT)
#define TERNARY_REAL(title, forward)                                                               \
  K_ROW(title, T, 3, (T x, T y, T z), forward)                                                     \
  K_ROW_KERNEL(title, BY_REAL)
// Selections move elements without looking at them; one operand is a mask.
#define TERNARY_MASKED SELECTION
#define TERNARY_FILLED SELECTION
#define SELECTION(title, forward)                                                                  \
  struct f_##title {                                                                               \
    typedef int64_t In, Out;                                                                       \
    static constexpr int arity = 3;                                                                \
    static constexpr bool quick = true;                                                            \
    __device__ int64_t operator()(int64_t x, int64_t y, int64_t z) const { return forward; }       \
  };                                                                                               \
  static cnn_status run_##title(cnn_call *call) {                                                  \
    return k_map(call, f_##title(), true);                                                         \
  }                                                                                                \
  CUDA_KERNEL(title, nullptr, run_##title)

#include "ops/binary.def"
