// SPDX-License-Identifier: MIT
// Elementwise kernels: one function of up to three operands, which broadcast.
//
// A function is a struct F with the types In and Out that its operands and its result are computed
// in, `arity`, `quick`, and operator() of `arity` Ins. k_map(call, f) runs it over the call's
// inputs and first result; k_map_views over views of one's own choice.
//
// Stored types are looked at when it runs: one kernel serves all dtypes of a computed type. Where F
// is quick, a thread takes eight elements, four at a time (of float32 16 bytes), so that what is
// asked for once serves many: of views that are dense and aligned along the innermost dim, or one
// element along it (the bias of a channel), wherever that dim is of whole groups of four or the
// only one. All else is walked one by one. Numbers are registers.
#ifndef CNN_CUDA_MAP_CUH
#define CNN_CUDA_MAP_CUH

#include "kernel.cuh"

#define K_OPERANDS 3
#define K_GROUP    4 // elements loaded at once
#define K_EACH     8 // of a thread: a group, and the one K_BLOCK groups later

// ---------------------------------------------------------------------------------------------
// Elements i .. i + N - 1 of stored type S as computed ones, and back

template <class S, int N, class T>
__device__ inline void k_load_as(const void *data, int64_t i, T *to) {
  const k_pack<S, N> v = *reinterpret_cast<const k_pack<S, N> *>(static_cast<const S *>(data) + i);
#pragma unroll
  for (int j = 0; j < N; j++) to[j] = static_cast<T>(k_widen(v.v[j]));
}
template <class S, int N, class T>
__device__ inline void k_store_as(void *data, int64_t i, const T *from) {
  k_pack<S, N> v;
#pragma unroll
  for (int j = 0; j < N; j++) v.v[j] = k_narrow<S>(from[j]);
  *reinterpret_cast<k_pack<S, N> *>(static_cast<S *>(data) + i) = v;
}

// The dtypes that are computed in T. What is false or true as a double or integer may be stored as
// a bool.
template <class T> struct k_elements;
template <> struct k_elements<float> {
  template <int N>
  __device__ static void load(cnn_dtype dtype, const void *data, int64_t i, float *to) {
    switch (dtype) {
    case CNN_F32: k_load_as<float, N>(data, i, to); break;
    case CNN_F16: k_load_as<k_f16, N>(data, i, to); break;
    default: k_load_as<k_bf16, N>(data, i, to); break;
    }
  }
  template <int N>
  __device__ static void store(cnn_dtype dtype, void *data, int64_t i, const float *from) {
    switch (dtype) {
    case CNN_F32: k_store_as<float, N>(data, i, from); break;
    case CNN_F16: k_store_as<k_f16, N>(data, i, from); break;
    default: k_store_as<k_bf16, N>(data, i, from); break;
    }
  }
};
template <> struct k_elements<double> {
  template <int N> __device__ static void load(cnn_dtype, const void *data, int64_t i, double *to) {
    k_load_as<double, N>(data, i, to);
  }
  template <int N>
  __device__ static void store(cnn_dtype dtype, void *data, int64_t i, const double *from) {
    if (dtype == CNN_F64)
      k_store_as<double, N>(data, i, from);
    else
      k_store_as<k_bool, N>(data, i, from);
  }
};
template <> struct k_elements<int64_t> {
  template <int N>
  __device__ static void load(cnn_dtype dtype, const void *data, int64_t i, int64_t *to) {
    switch (dtype) {
    case CNN_I64: k_load_as<int64_t, N>(data, i, to); break;
    case CNN_I32: k_load_as<int32_t, N>(data, i, to); break;
    case CNN_I16: k_load_as<int16_t, N>(data, i, to); break;
    case CNN_I8: k_load_as<int8_t, N>(data, i, to); break;
    default: k_load_as<uint8_t, N>(data, i, to); break;
    }
  }
  template <int N>
  __device__ static void store(cnn_dtype dtype, void *data, int64_t i, const int64_t *from) {
    switch (dtype) {
    case CNN_I64: k_store_as<int64_t, N>(data, i, from); break;
    case CNN_I32: k_store_as<int32_t, N>(data, i, from); break;
    case CNN_I16: k_store_as<int16_t, N>(data, i, from); break;
    case CNN_I8: k_store_as<int8_t, N>(data, i, from); break;
    case CNN_U8: k_store_as<uint8_t, N>(data, i, from); break;
    default: k_store_as<k_bool, N>(data, i, from); break;
    }
  }
};
// Of a result.
template <> struct k_elements<bool> {
  template <int N>
  __device__ static void store(cnn_dtype, void *data, int64_t i, const bool *from) {
    k_store_as<k_bool, N>(data, i, from);
  }
};

// Calls f(k_tag<T>()) with the type that elements of the dtype are computed in.
template <class F> cnn_status k_by_computed_float(const cnn_call *call, cnn_dtype dtype, F f) {
  return cnn_dtype_computed(dtype) == CNN_F32 ? f(k_tag<float>())
         : dtype == CNN_F64                   ? f(k_tag<double>())
                                              : k_no_dtype(call, dtype);
}
template <class F> cnn_status k_by_computed_int(const cnn_call *, cnn_dtype, F f) {
  return f(k_tag<int64_t>());
}
template <class F> cnn_status k_by_computed(const cnn_call *call, cnn_dtype dtype, F f) {
  return cnn_dtype_is_float(dtype) ? k_by_computed_float(call, dtype, f)
                                   : k_by_computed_int(call, dtype, f);
}

// ---------------------------------------------------------------------------------------------

typedef struct k_map_form {
  void *out;
  const void *in[K_OPERANDS];
  cnn_dtype out_dtype, dtype[K_OPERANDS];
  uint64_t number[K_OPERANDS]; // operands in the CPU's memory: their elements, computed
  unsigned numbers, constants; // bit k: operand k is a number; is one element on the device
  unsigned along;              // is one element along the innermost dim
  int64_t groups;              // of K_GROUP elements of that dim; 0: all is walked one by one
  cuda_walk walk, grouped;     // by elements, and by groups
} k_map_form;

// Operand k where it is the same everywhere.
template <class T> __device__ inline T k_constant(const k_map_form &m, int k) {
  T v = 0;
  if (m.numbers >> k & 1)
    memcpy(&v, &m.number[k], sizeof v);
  else if (m.constants >> k & 1)
    k_elements<T>::template load<1>(m.dtype[k], m.in[k], 0, &v);
  return v;
}

template <class F, class T> __device__ inline typename F::Out k_apply(const F &f, T a, T b, T c) {
  if constexpr (F::arity == 1)
    return f(a);
  else if constexpr (F::arity == 2)
    return f(a, b);
  else
    return f(a, b, c);
}

template <class F> __global__ void __launch_bounds__(K_BLOCK) k_map_kernel(F f, k_map_form m) {
  typedef typename F::In T;
  typedef typename F::Out O;
  const unsigned same = m.numbers | m.constants;
  T constant[K_OPERANDS] = {};
#pragma unroll
  for (int k = 0; k < F::arity; k++) constant[k] = k_constant<T>(m, k);
  int64_t done = 0;
  if (F::quick) {
    done = m.groups * K_GROUP;
    for (int64_t first = 2 * k_index() - threadIdx.x; first < m.groups; first += 2 * k_stride()) {
      T x[K_OPERANDS][K_EACH];
      int64_t out[2];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int64_t group = first + half * K_BLOCK;
        int64_t at[1 + F::arity];
        k_offsets<1 + F::arity>(m.grouped, group < m.groups ? group : first, at);
        out[half] = at[0];
#pragma unroll
        for (int k = 0; k < F::arity; k++) {
          T *to = x[k] + half * K_GROUP;
          const bool along = m.along >> k & 1;
          to[0] = constant[k];
          if (along) k_elements<T>::template load<1>(m.dtype[k], m.in[k], at[1 + k], to);
          if (along || same >> k & 1) {
#pragma unroll
            for (int j = 1; j < K_GROUP; j++) to[j] = to[0];
          } else {
            k_elements<T>::template load<K_GROUP>(m.dtype[k], m.in[k], at[1 + k], to);
          }
        }
      }
      O r[K_EACH];
#pragma unroll
      for (int j = 0; j < K_EACH; j++)
        r[j] = k_apply(f, x[0][j], F::arity > 1 ? x[1][j] : T(), F::arity > 2 ? x[2][j] : T());
      k_elements<O>::template store<K_GROUP>(m.out_dtype, m.out, out[0], r);
      if (first + K_BLOCK < m.groups)
        k_elements<O>::template store<K_GROUP>(m.out_dtype, m.out, out[1], r + K_GROUP);
    }
  }
  // What is left over, or all of it.
#pragma unroll 1
  for (int64_t i = done + k_index(); i < m.walk.numel; i += k_stride()) {
    int64_t at[1 + F::arity];
    k_offsets<1 + F::arity>(m.walk, i, at);
    T x[K_OPERANDS] = {};
#pragma unroll
    for (int k = 0; k < F::arity; k++) {
      x[k] = constant[k];
      if (!(same >> k & 1)) k_elements<T>::template load<1>(m.dtype[k], m.in[k], at[1 + k], &x[k]);
    }
    const O r = k_apply(f, x[0], x[1], x[2]);
    k_elements<O>::template store<1>(m.out_dtype, m.out, at[0], &r);
  }
}

// Fills a form. Bits: elements are moved, and named by integers of their size.
extern "C" void cuda_map_make(k_map_form *m, const cnn_view *out, const cnn_view *const *in, int n,
                              bool bits);

template <class F>
cnn_status k_map_views(const cnn_call *call, const F &f, bool bits, const cnn_view *out,
                       const cnn_view *a, const cnn_view *b = nullptr,
                       const cnn_view *c = nullptr) {
  const cnn_view *in[K_OPERANDS] = {a, b, c};
  k_map_form m;
  cuda_map_make(&m, out, in, F::arity, bits);
  const int64_t each = F::quick && m.groups > 0 ? K_EACH : 1;
  return CUDA_LAUNCH(call, k_map_kernel<F>, k_grid(call, (m.walk.numel + each - 1) / each), K_BLOCK,
                     0, f, m);
}

template <class F> cnn_status k_map(const cnn_call *call, const F &f, bool bits = false) {
  return k_map_views(call, f, bits, &call->out[0], &call->in[0],
                     F::arity > 1 ? &call->in[1] : nullptr, F::arity > 2 ? &call->in[2] : nullptr);
}

// ---------------------------------------------------------------------------------------------
// Rows of unary.def and binary.def: functions of n Ts, with the call's number arguments. Each has a
// kernel of its own for float32 and half types; all rows of a file share one for float64, and one
// for integers.

template <class T_, int n> struct k_row {
  typedef T_ In, Out;
  static constexpr int arity = n;
  static constexpr bool quick = sizeof(T_) == 4;
  T_ p[4];
  int row; // where several share a kernel
};

// Defines f_<title><T>, whose value is the text; a case of what shares a kernel; and the
// kernel of the op `title`.
#define K_ROW(title, Result, n, arguments, text)                                                   \
  template <class T> struct f_##title : k_row<T, n> {                                              \
    typedef Result Out;                                                                            \
    __device__ Result operator() arguments const {                                                 \
      const T *p = this->p;                                                                        \
      (void)p;                                                                                     \
      return static_cast<Result>(text);                                                            \
    }                                                                                              \
  };
#define K_ROW_CASE(title, kind, ...)                                                               \
  case ROW_##title:                                                                                \
    if constexpr (K_ROW_##kind(T))                                                                 \
      return static_cast<T>(k_as_row<f_##title<T>>(*this)(__VA_ARGS__));                           \
    break;
#define K_ROW_FLOAT(T) k_is_float<T>::value
#define K_ROW_REAL(T)  true
#define K_ROW_ANY(T)   true
#define K_ROW_BITS(T)  (!k_is_float<T>::value)
#define K_ROW_KERNEL(title, Own, Shared)                                                           \
  static cnn_status run_##title(cnn_call *call) {                                                  \
    return k_map_row<Own, Shared>(call, ROW_##title);                                              \
  }                                                                                                \
  CUDA_KERNEL(title, nullptr, run_##title)

template <class F, class T, int n> __device__ inline F k_as_row(const k_row<T, n> &r) {
  F f;
#pragma unroll
  for (int i = 0; i < 4; i++) f.p[i] = r.p[i];
  return f;
}

// The number arguments as a call of the dtype computes with them: a T in each.
extern "C" void cuda_map_params(const cnn_call *call, cnn_dtype dtype, uint64_t params[4]);

// By the dtype of the first input.
template <class Own, template <class> class Shared>
cnn_status k_map_row(const cnn_call *call, int row) {
  const cnn_dtype dtype = call->in[0].dtype;
  uint64_t params[4];
  cuda_map_params(call, dtype, params);
  const auto run = [&](auto f) {
    for (int i = 0; i < 4; i++) memcpy(&f.p[i], &params[i], sizeof f.p[i]);
    f.row = row;
    return k_map(call, f);
  };
  return dtype == CNN_F64            ? run(Shared<double>())
         : cnn_dtype_is_float(dtype) ? run(Own())
                                     : run(Shared<int64_t>());
}

#endif
