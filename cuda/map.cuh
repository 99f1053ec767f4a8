// SPDX-License-Identifier: MIT
// Elementwise kernels: one function of up to three operands, which broadcast.
//
// A function is a struct F with the stored types Out, A, B, C of its result and operands (those
// that it has), `arity`, and operator(). k_map(call, f) runs it over the call's inputs and first
// result; k_map_views over views of one's own choice.
//
// Numbers, and what is one element everywhere, are registers. What is dense along the innermost dim
// is read and written 16 bytes at a time, where it is aligned (and whole, if there are other dims);
// what is one element along it, as the bias of a channel, is read once for these. The rest is
// walked element by element.
#ifndef CNN_CUDA_MAP_CUH
#define CNN_CUDA_MAP_CUH

#include "kernel.cuh"

#define K_OPERANDS 3

typedef struct k_map_form {
  void *out;
  const void *in[K_OPERANDS];
  uint64_t number[K_OPERANDS]; // operands in the CPU's memory: their elements
  unsigned numbers, constants; // bit k: operand k is a number; is one element on the device
  unsigned along;              // it is one element along the innermost dim
  int64_t packs;               // of 16 bytes of the widest element; 0: all is walked by elements
  cuda_walk walk, packed;      // by elements, by packs; offsets are in elements
} k_map_form;

template <class F, int K> struct k_operand { typedef typename F::A type; };
template <class F> struct k_operand<F, 1> { typedef typename F::B type; };
template <class F> struct k_operand<F, 2> { typedef typename F::C type; };

template <class F> using k_operand_b = typename k_operand<F, (F::arity > 1 ? 1 : 0)>::type;
template <class F> using k_operand_c = typename k_operand<F, (F::arity > 2 ? 2 : 0)>::type;

template <class F> __host__ __device__ constexpr int k_widest() {
  int size = sizeof(typename F::Out);
  if (sizeof(typename F::A) > size) size = sizeof(typename F::A);
  if constexpr (F::arity > 1)
    if (sizeof(typename F::B) > size) size = sizeof(typename F::B);
  if constexpr (F::arity > 2)
    if (sizeof(typename F::C) > size) size = sizeof(typename F::C);
  return size;
}

// Operand k where it is the same everywhere.
template <class T> __device__ inline T k_constant(const k_map_form &m, int k) {
  T v;
  if (m.numbers >> k & 1)
    memcpy(static_cast<void *>(&v), &m.number[k], sizeof v);
  else
    v = *static_cast<const T *>(m.in[k]);
  return v;
}

// N elements of operand k from offset `at` on.
template <class T, int N>
__device__ inline void k_load(const k_map_form &m, int k, int64_t at, T constant, T *to) {
  const bool same = (m.numbers | m.constants) >> k & 1, along = m.along >> k & 1;
  if (same || along) {
    const T v = same ? constant : static_cast<const T *>(m.in[k])[at];
#pragma unroll
    for (int j = 0; j < N; j++) to[j] = v;
  } else {
    const k_pack<T, N> p =
        *reinterpret_cast<const k_pack<T, N> *>(static_cast<const T *>(m.in[k]) + at);
#pragma unroll
    for (int j = 0; j < N; j++) to[j] = p.v[j];
  }
}

template <class F>
__device__ inline typename F::Out k_apply(const F &f, const typename F::A &a,
                                          const k_operand_b<F> &b, const k_operand_c<F> &c) {
  if constexpr (F::arity == 1)
    return f(a);
  else if constexpr (F::arity == 2)
    return f(a, b);
  else
    return f(a, b, c);
}

template <class F> __global__ void __launch_bounds__(K_BLOCK) k_map_kernel(F f, k_map_form m) {
  typedef typename F::Out O;
  typedef typename F::A A;
  typedef k_operand_b<F> B;
  typedef k_operand_c<F> C;
  constexpr int N = 16 / k_widest<F>();
  const unsigned same = m.numbers | m.constants;
  A a0 = A();
  B b0 = B();
  C c0 = C();
  if (same & 1) a0 = k_constant<A>(m, 0);
  if (F::arity > 1 && same >> 1 & 1) b0 = k_constant<B>(m, 1);
  if (F::arity > 2 && same >> 2 & 1) c0 = k_constant<C>(m, 2);
  O *out = static_cast<O *>(m.out);
  for (int64_t i = k_index(); i < m.packs; i += k_stride()) {
    int64_t at[1 + F::arity];
    A a[N];
    B b[N];
    C c[N];
    k_pack<O, N> r;
    k_offsets<1 + F::arity>(m.packed, i, at);
    k_load<A, N>(m, 0, at[1], a0, a);
    if constexpr (F::arity > 1) k_load<B, N>(m, 1, at[2], b0, b);
    if constexpr (F::arity > 2) k_load<C, N>(m, 2, at[3], c0, c);
#pragma unroll
    for (int j = 0; j < N; j++)
      r.v[j] = k_apply(f, a[j], F::arity > 1 ? b[j] : b0, F::arity > 2 ? c[j] : c0);
    *reinterpret_cast<k_pack<O, N> *>(out + at[0]) = r;
  }
  // What is left over, or all of it.
  const int64_t done = m.packs * N;
  for (int64_t i = done + k_index(); i < m.walk.numel; i += k_stride()) {
    int64_t at[1 + F::arity];
    k_offsets<1 + F::arity>(m.walk, i, at);
    const A a = same & 1 ? a0 : static_cast<const A *>(m.in[0])[at[1]];
    B b = b0;
    C c = c0;
    if constexpr (F::arity > 1)
      if (!(same >> 1 & 1)) b = static_cast<const B *>(m.in[1])[at[2]];
    if constexpr (F::arity > 2)
      if (!(same >> 2 & 1)) c = static_cast<const C *>(m.in[2])[at[3]];
    out[at[0]] = k_apply(f, a, b, c);
  }
}

// Fills a form; `widest` is the size of the largest element.
extern "C" void cuda_map_make(k_map_form *m, const cnn_view *out, const cnn_view *const *in, int n,
                              int widest);

template <class F>
cnn_status k_map_views(const cnn_call *call, const F &f, const cnn_view *out, const cnn_view *a,
                       const cnn_view *b = nullptr, const cnn_view *c = nullptr) {
  const cnn_view *in[K_OPERANDS] = {a, b, c};
  k_map_form m;
  cuda_map_make(&m, out, in, F::arity, k_widest<F>());
  const int64_t n = m.packs ? m.packs : m.walk.numel;
  return CUDA_LAUNCH(call, k_map_kernel<F>, k_grid(call, n), K_BLOCK, 0, f, m);
}

template <class F> cnn_status k_map(const cnn_call *call, const F &f) {
  return k_map_views(call, f, &call->out[0], &call->in[0], F::arity > 1 ? &call->in[1] : nullptr,
                     F::arity > 2 ? &call->in[2] : nullptr);
}

#endif
