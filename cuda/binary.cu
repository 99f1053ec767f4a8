// SPDX-License-Identifier: MIT
// Elementwise functions of two and three operands: each row of binary.def as a function for
// map.cuh.
#include "map.cuh"
#include "scalar.cuh"

#define M(f) m_##f
#define R(f) r_##f
#define K(c) (static_cast<T>(c))
#define P(i) p[i]

// The dtype that a call computes in: a mask comes first or second, never last.
static cnn_dtype computed_in(const cnn_call *call) {
  return call->in[0].dtype == CNN_BOOL ? call->in[call->n_in - 1].dtype : call->in[0].dtype;
}

template <template <class> class F, class S>
static cnn_status run_row(const cnn_call *call, cnn_dtype dtype) {
  double params[4];
  F<S> f;
  cnn_number_params(call, cnn_dtype_computed(dtype), params);
  memcpy(static_cast<void *>(f.p), params, sizeof f.p);
  return k_map(call, f);
}

#define RUN(title, by)                                                                             \
  static cnn_status run_##title(cnn_call *call) {                                                  \
    const cnn_dtype dtype = computed_in(call);                                                     \
    return by(call, dtype, [&](auto tag) {                                                         \
      return run_row<f_##title, typename decltype(tag)::type>(call, dtype);                        \
    });                                                                                            \
  }                                                                                                \
  CUDA_KERNEL(title, nullptr, run_##title)

#define BY_FLOAT k_by_float
#define BY_REAL  k_by_real
#define BY_ANY   k_by_any
#define BY_BITS  k_by_bits

// bool: the value of an ANY row is whether it is not 0. k_narrow sees to that.
#define BINARY(title, kind, spec, forward, ...)                                                    \
  template <class S> struct f_##title : f_params<S> {                                              \
    typedef S Out, A, B;                                                                           \
    static constexpr int arity = 2;                                                                \
    __device__ S operator()(S a, S b) const {                                                      \
      typedef k_computed<S> T;                                                                     \
      const T *p = this->p;                                                                        \
      const T x = k_widen(a), y = k_widen(b);                                                      \
      (void)p;                                                                                     \
      return k_narrow<S>(forward);                                                                 \
    }                                                                                              \
  };                                                                                               \
  RUN(title, BY_##kind)
#define COMPARE(title, forward, doc)                                                               \
  template <class S> struct f_##title : f_params<S> {                                              \
    typedef k_bool Out;                                                                            \
    typedef S A, B;                                                                                \
    static constexpr int arity = 2;                                                                \
    __device__ k_bool operator()(S a, S b) const {                                                 \
      const k_computed<S> x = k_widen(a), y = k_widen(b);                                          \
      return k_bool{static_cast<uint8_t>(forward)};                                                \
    }                                                                                              \
  };                                                                                               \
  RUN(title, k_by_any)
#define TERNARY(title, kind, arguments, spec, forward, saved, dx, dy, dz, doc)                     \
  TERNARY_##kind(title, forward)
#define TERNARY_FLOAT(title, forward) TERNARY_OF(title, forward, k_by_float)
#define TERNARY_REAL(title, forward)  TERNARY_OF(title, forward, k_by_real)
#define TERNARY_OF(title, forward, by)                                                             \
  template <class S> struct f_##title : f_params<S> {                                              \
    typedef S Out, A, B, C;                                                                        \
    static constexpr int arity = 3;                                                                \
    __device__ S operator()(S a, S b, S c) const {                                                 \
      typedef k_computed<S> T;                                                                     \
      const T *p = this->p;                                                                        \
      const T x = k_widen(a), y = k_widen(b), z = k_widen(c);                                      \
      (void)p;                                                                                     \
      return k_narrow<S>(forward);                                                                 \
    }                                                                                              \
  };                                                                                               \
  RUN(title, by)

// Selections move elements without looking at them.
#define TERNARY_MASKED(title, forward)                                                             \
  template <class S> struct f_##title {                                                            \
    typedef S Out, B, C;                                                                           \
    typedef k_bool A;                                                                              \
    static constexpr int arity = 3;                                                                \
    __device__ S operator()(k_bool a, S y, S z) const {                                            \
      const bool x = a.v != 0;                                                                     \
      return forward;                                                                              \
    }                                                                                              \
  };                                                                                               \
  SELECTION(title)
#define TERNARY_FILLED(title, forward)                                                             \
  template <class S> struct f_##title {                                                            \
    typedef S Out, A, C;                                                                           \
    typedef k_bool B;                                                                              \
    static constexpr int arity = 3;                                                                \
    __device__ S operator()(S x, k_bool b, S z) const {                                            \
      const bool y = b.v != 0;                                                                     \
      return forward;                                                                              \
    }                                                                                              \
  };                                                                                               \
  SELECTION(title)
#define SELECTION(title)                                                                           \
  static cnn_status run_##title(cnn_call *call) {                                                  \
    return k_by_size(call, call->out[0].dtype, [&](auto tag) {                                     \
      return k_map(call, f_##title<typename decltype(tag)::type>());                               \
    });                                                                                            \
  }                                                                                                \
  CUDA_KERNEL(title, nullptr, run_##title)

#include "ops/binary.def"
