// SPDX-License-Identifier: MIT
// Elementwise functions of two and three operands: each row of binary.def as a function for
// map.cuh.
#include "map.cuh"
#include "scalar.cuh"

#define M(f) m_##f
#define R(f) r_##f
#define K(c) (static_cast<T>(c))
#define P(i) p[i]

enum {
#define BINARY(title, ...)  ROW_##title,
#define COMPARE(title, ...) ROW_##title,
#define TERNARY(title, ...) ROW_##title,
#include "ops/binary.def"
#undef BINARY
#undef COMPARE
#undef TERNARY
};

// bool: the value of an ANY row is whether it is not 0. Storing sees to that.
#define BINARY(title, kind, spec, forward, ...) K_ROW(title, T, 2, (T x, T y), forward)
#define COMPARE(title, forward, doc)            K_ROW(title, bool, 2, (T x, T y), forward)
#define TERNARY(title, kind, arguments, spec, forward, ...)                                        \
  TERNARY_##kind(K_ROW(title, T, 3, (T x, T y, T z), forward))
#define TERNARY_FLOAT(...) __VA_ARGS__
#define TERNARY_REAL(...)  __VA_ARGS__
#define TERNARY_MASKED(...)
#define TERNARY_FILLED(...)
#include "ops/binary.def"
#undef BINARY
#undef COMPARE
#undef TERNARY

template <class T> struct f_binary : k_row<T, 2> {
  __device__ T operator()(T x, T y) const {
    switch (this->row) {
#define BINARY(title, kind, ...) K_ROW_CASE(title, kind, x, y)
#define COMPARE(title, ...)      K_ROW_CASE(title, ANY, x, y)
#define TERNARY(...)
#include "ops/binary.def"
#undef BINARY
#undef COMPARE
#undef TERNARY
    }
    return x;
  }
};
template <class T> struct f_ternary : k_row<T, 3> {
  __device__ T operator()(T x, T y, T z) const {
    switch (this->row) {
#define BINARY(...)
#define COMPARE(...)
#define TERNARY(title, kind, ...) TERNARY_##kind(K_ROW_CASE(title, kind, x, y, z))
#include "ops/binary.def"
#undef BINARY
#undef COMPARE
#undef TERNARY
    }
    return x;
  }
};

#define OWN_FLOAT(title)                                    f_##title<float>
#define OWN_REAL(title)                                     f_##title<float>
#define OWN_ANY(title)                                      f_##title<float>
#define OWN_BITS(title)                                     f_binary<int64_t> // has none
#define BINARY(title, kind, ...)                            K_ROW_KERNEL(title, OWN_##kind(title), f_binary)
#define COMPARE(title, ...)                                 K_ROW_KERNEL(title, f_##title<float>, f_binary)
#define TERNARY(title, kind, arguments, spec, forward, ...) SELECT_##kind(title, forward)
#define SELECT_FLOAT(title, forward)                        K_ROW_KERNEL(title, f_##title<float>, f_ternary)
#define SELECT_REAL(title, forward)                         K_ROW_KERNEL(title, f_##title<float>, f_ternary)
// Selections move elements without looking at them; one operand is a mask.
#define SELECT_MASKED SELECTION
#define SELECT_FILLED SELECTION
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
