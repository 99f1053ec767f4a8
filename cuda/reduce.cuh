// SPDX-License-Identifier: MIT
// The driver of all reductions: any dims, any strides, any dtype.
//
// A fold is a struct with the types T (in which elements come: float, double, int64_t) and Acc, and
//   Acc zero() const                      of no element
//   Acc take(Acc a, T x, int64_t at) const  with one more, which is the at-th (from 1)
//   Acc merge(Acc a, Acc b) const         of both; associative and commutative up to rounding
//   void store(const k_reduce_form &f, int64_t o, Acc a) const   result o, by k_put
// It is passed to the kernel by value, with whatever numbers it needs.
//
// Rows (the elements of a result are adjacent, or scattered) are folded by a warp or a block;
// columns (those of neighbouring results are adjacent) by 32 results to a warp. Where there are few
// results each is cut into pieces, which a second kernel merges in order. What limits reductions
// are the bytes of x, which is read once: dense rows 16 bytes at a time.
#ifndef CNN_CUDA_REDUCE_CUH
#define CNN_CUDA_REDUCE_CUH

#include "kernel.cuh"

typedef enum k_reduce_mode { K_REDUCE_WARPS, K_REDUCE_BLOCKS, K_REDUCE_COLUMNS } k_reduce_mode;

typedef struct k_reduce_form {
  const void *x;
  cnn_dtype dtype; // of x
  void *out[2];
  cnn_dtype out_dtype[2];
  cuda_walk kept, reduced; // of x
  int64_t outputs, count;  // results, elements of each
  int64_t pieces, step;    // of the elements of a result
  bool vector;             // these are dense, and 16 bytes of them aligned from the first on
  int mode;
  void *partial; // [pieces][outputs] Acc
} k_reduce_form;

// Fills a form for reducing the dims of x whose bits are set.
extern "C" void cuda_reduce_make(k_reduce_form *f, const cnn_call *call, const cnn_view *x,
                                 uint32_t dims);
static inline size_t k_reduce_scratch(const k_reduce_form *f, size_t acc) {
  return f->pieces > 1 ? static_cast<size_t>(f->pieces * f->outputs) * acc : 0;
}
// The largest Acc that a fold may have.
#define K_REDUCE_ACC 24

// How elements come: of a known type, or of any. One; or several, which takes fewer looks at the
// type: N neighbours that are dense, aligned and begin at a multiple of N; four with a stride.
template <class S, class T> struct k_direct {
  static constexpr int run = 16 / sizeof(S);
  __device__ static bool several(const k_reduce_form &) { return true; }
  __device__ static T get(const k_reduce_form &f, int64_t i) {
    return static_cast<T>(k_widen(static_cast<const S *>(f.x)[i]));
  }
  template <int N> __device__ static void load(const k_reduce_form &f, int64_t i, T *to) {
    constexpr int M = 16 / sizeof(S) < N ? 16 / sizeof(S) : N;
#pragma unroll
    for (int part = 0; part < N; part += M) {
      const k_pack<S, M> v =
          *reinterpret_cast<const k_pack<S, M> *>(static_cast<const S *>(f.x) + i + part);
#pragma unroll
      for (int k = 0; k < M; k++) to[part + k] = static_cast<T>(k_widen(v.v[k]));
    }
  }
  __device__ static void gather(const k_reduce_form &f, int64_t i, int64_t stride, T *to) {
#pragma unroll
    for (int k = 0; k < 4; k++) to[k] = get(f, i + k * stride);
  }
};
template <class T> struct k_converted {
  static constexpr int run = 4;
  __device__ static bool several(const k_reduce_form &f) {
    return f.dtype == CNN_F32 || f.dtype == CNN_F16 || f.dtype == CNN_BF16;
  }
  __device__ static T get(const k_reduce_form &f, int64_t i) { return k_get<T>(f.dtype, f.x, i); }
  template <int N> __device__ static void load(const k_reduce_form &f, int64_t i, T *to) {
    switch (f.dtype) {
    case CNN_F32: k_direct<float, T>::template load<N>(f, i, to); break;
    case CNN_F16: k_direct<k_f16, T>::template load<N>(f, i, to); break;
    default: k_direct<k_bf16, T>::template load<N>(f, i, to);
    }
  }
  __device__ static void gather(const k_reduce_form &f, int64_t i, int64_t stride, T *to) {
    switch (f.dtype) {
    case CNN_F32: k_direct<float, T>::gather(f, i, stride, to); break;
    case CNN_F16: k_direct<k_f16, T>::gather(f, i, stride, to); break;
    default: k_direct<k_bf16, T>::gather(f, i, stride, to);
    }
  }
};

// A fold that has a type Group takes several elements at once, by group<N>(x); and all relative to
// the first one of the result.
template <class Fold, class = void> struct k_grouped { static constexpr bool value = false; };
template <class Fold> struct k_grouped<Fold, typename k_void<typename Fold::Group>::type> {
  static constexpr bool value = true;
};
template <int N, class Fold>
__device__ inline typename Fold::Acc k_take(const Fold &fold, typename Fold::Acc a,
                                            typename Fold::T *x, typename Fold::T origin,
                                            int64_t at, int64_t step) {
  if constexpr (k_grouped<Fold>::value) {
#pragma unroll
    for (int k = 0; k < N; k++) x[k] -= origin;
    a = fold.merge(a, fold.template group<N>(x));
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) a = fold.take(a, x[k], at + k * step);
  }
  return a;
}

template <class Fold>
__device__ inline typename Fold::T k_relative(typename Fold::T x, typename Fold::T origin) {
  if constexpr (k_grouped<Fold>::value) return x - origin;
  return x;
}

#define K_REDUCE_BLOCK 256
#define K_REDUCE_CLOSE 16 // loads after which a sum is closed: errors don't grow with the length

// The share of thread `me` of `team` in elements [begin, end) of one result.
template <class Fold, class Load>
__device__ inline typename Fold::Acc k_fold(const Fold &fold, const k_reduce_form &f, int64_t base,
                                            int me, int team, int64_t begin, int64_t end) {
  typedef typename Fold::Acc Acc;
  Acc a = fold.zero();
  int64_t r = begin + me;
  typename Fold::T origin = 0;
  if (k_grouped<Fold>::value && begin < end) origin = Load::get(f, base);
  if (f.reduced.ndim > 1 || !Load::several(f)) {
#pragma unroll 1
    for (; r < end; r += team)
      a = fold.take(a, k_relative<Fold>(Load::get(f, base + k_offset(f.reduced, r)), origin),
                    r + 1);
    return a;
  }
  const int64_t stride = f.reduced.ndim ? f.reduced.strides[0][0] : 0;
  if (f.vector) {
    constexpr int N = Load::run;
    const int64_t whole = end - (end - begin) % N;
    r = begin + static_cast<int64_t>(me) * N;
    while (r < whole) {
      const int64_t close = r + static_cast<int64_t>(K_REDUCE_CLOSE) * team * N;
      const int64_t stop = close < whole ? close : whole;
      Acc part = fold.zero();
#pragma unroll 2
      for (; r < stop; r += static_cast<int64_t>(team) * N) {
        typename Fold::T x[N];
        Load::template load<N>(f, base + r, x);
        part = k_take<N>(fold, part, x, origin, r + 1, 1);
      }
      a = fold.merge(a, part);
    }
    r = whole + me;
  } else {
    const int64_t four = 4 * static_cast<int64_t>(team), whole = end - 3 * team;
    while (r < whole) {
      const int64_t close = r + K_REDUCE_CLOSE * four;
      const int64_t stop = close < whole ? close : whole;
      Acc part = fold.zero();
#pragma unroll 1
      for (; r < stop; r += four) {
        typename Fold::T x[4];
        Load::gather(f, base + r * stride, team * stride, x);
        part = k_take<4>(fold, part, x, origin, r + 1, team);
      }
      a = fold.merge(a, part);
    }
  }
#pragma unroll 1
  for (; r < end; r += team)
    a = fold.take(a, k_relative<Fold>(Load::get(f, base + r * stride), origin), r + 1);
  return a;
}

template <class Fold>
__device__ inline void k_fold_done(const Fold &fold, const k_reduce_form &f, int64_t o,
                                   int64_t piece, typename Fold::Acc a) {
  if (f.pieces == 1)
    fold.store(f, o, a);
  else
    static_cast<typename Fold::Acc *>(f.partial)[piece * f.outputs + o] = a;
}

template <class Fold, class Load>
__global__ void __launch_bounds__(K_REDUCE_BLOCK) k_reduce(Fold fold, k_reduce_form f) {
  typedef typename Fold::Acc Acc;
  __shared__ __align__(16) unsigned char raw[sizeof(Acc) * K_REDUCE_BLOCK];
  Acc *shared = reinterpret_cast<Acc *>(raw);
  const auto merge = [&](Acc a, Acc b) { return fold.merge(a, b); };
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = K_REDUCE_BLOCK / 32;
  const bool by_warp = f.mode == K_REDUCE_WARPS, columns = f.mode == K_REDUCE_COLUMNS;
  // A job is a piece of a result, or of 32 of them.
  const int64_t across = columns ? (f.outputs + 31) / 32 : f.outputs, jobs = across * f.pieces;
  const int me = by_warp ? lane : columns ? warp : threadIdx.x;
  const int team = by_warp ? 32 : columns ? warps : K_REDUCE_BLOCK;
  const int64_t each = by_warp ? warps : 1;
  for (int64_t j = blockIdx.x * each + (by_warp ? warp : 0); j < jobs; j += gridDim.x * each) {
    const int64_t piece = j / across, begin = piece * f.step;
    const int64_t o = columns ? j % across * 32 + lane : j % across;
    const int64_t end = begin + f.step < f.count ? begin + f.step : f.count;
    Acc a = fold.zero();
    if (o < f.outputs) a = k_fold<Fold, Load>(fold, f, k_offset(f.kept, o), me, team, begin, end);
    bool done = me == 0;
    if (by_warp) {
      a = k_warp_reduce(a, merge);
    } else if (!columns) {
      a = k_block_reduce(a, shared, fold.zero(), merge);
    } else {
      shared[threadIdx.x] = a;
      __syncthreads();
      done = warp == 0 && o < f.outputs;
      for (int y = 1; done && y < warps; y++) a = fold.merge(a, shared[y * 32 + lane]);
      __syncthreads();
    }
    if (done) k_fold_done(fold, f, o, piece, a);
  }
}

// A warp to a result.
template <class Fold>
__global__ void __launch_bounds__(K_REDUCE_BLOCK) k_reduce_merge(Fold fold, k_reduce_form f) {
  typedef typename Fold::Acc Acc;
  const Acc *partial = static_cast<const Acc *>(f.partial);
  const int lane = threadIdx.x & 31;
  const int64_t warps = K_REDUCE_BLOCK / 32;
  for (int64_t o = blockIdx.x * warps + (threadIdx.x >> 5); o < f.outputs; o += gridDim.x * warps) {
    Acc a = fold.zero();
    for (int64_t i = lane; i < f.pieces; i += 32) a = fold.merge(a, partial[i * f.outputs + o]);
    a = k_warp_reduce(a, [&](Acc x, Acc y) { return fold.merge(x, y); });
    if (lane == 0) fold.store(f, o, a);
  }
}

template <class Load, class Fold>
cnn_status k_reduce_launch(const cnn_call *call, const Fold &fold, k_reduce_form *f) {
  static_assert(sizeof(typename Fold::Acc) <= K_REDUCE_ACC, "K_REDUCE_ACC");
  const int64_t warps = K_REDUCE_BLOCK / 32, jobs = f->outputs * f->pieces;
  const int64_t wanted = f->mode == K_REDUCE_WARPS    ? (jobs + warps - 1) / warps
                         : f->mode == K_REDUCE_BLOCKS ? jobs
                                                      : (f->outputs + 31) / 32 * f->pieces;
  const int64_t most = static_cast<int64_t>(cuda_processors(call)) * 32;
  f->partial = call->scratch;
  CNN_TRY(CUDA_LAUNCH(call, (k_reduce<Fold, Load>),
                      static_cast<unsigned>(wanted < most ? wanted : most), K_REDUCE_BLOCK, 0, fold,
                      *f));
  if (f->pieces == 1) return CNN_OK;
  const int64_t blocks = (f->outputs + warps - 1) / warps;
  return CUDA_LAUNCH(call, k_reduce_merge<Fold>,
                     static_cast<unsigned>(blocks < most ? blocks : most), K_REDUCE_BLOCK, 0, fold,
                     *f);
}

// Runs the fold that `make` gives for the type that elements are computed in: make(k_tag<T>()).
template <class Make> cnn_status k_reduce_own(const cnn_call *call, k_reduce_form *f, Make make) {
  switch (f->dtype) {
  case CNN_F32: return k_reduce_launch<k_direct<float, float>>(call, make(k_tag<float>()), f);
  case CNN_F64: return k_reduce_launch<k_direct<double, double>>(call, make(k_tag<double>()), f);
  case CNN_F16: return k_reduce_launch<k_direct<k_f16, float>>(call, make(k_tag<float>()), f);
  case CNN_BF16: return k_reduce_launch<k_direct<k_bf16, float>>(call, make(k_tag<float>()), f);
  case CNN_I64: return k_reduce_launch<k_direct<int64_t, int64_t>>(call, make(k_tag<int64_t>()), f);
  case CNN_U8:
  case CNN_BOOL:
    return k_reduce_launch<k_direct<uint8_t, int64_t>>(call, make(k_tag<int64_t>()), f);
  default: return k_reduce_launch<k_converted<int64_t>>(call, make(k_tag<int64_t>()), f);
  }
}

// Likewise, elements converted to `computed` (CNN_F32, CNN_F64 or CNN_I64).
template <class Make>
cnn_status k_reduce_by(const cnn_call *call, cnn_dtype computed, k_reduce_form *f, Make make) {
  const bool natural =
      cnn_dtype_is_float(f->dtype) ? cnn_dtype_computed(f->dtype) == computed : computed == CNN_I64;
  if (natural) return k_reduce_own(call, f, make);
  if (computed == CNN_F32)
    return k_reduce_launch<k_converted<float>>(call, make(k_tag<float>()), f);
  if (computed == CNN_F64)
    return k_reduce_launch<k_converted<double>>(call, make(k_tag<double>()), f);
  return k_reduce_launch<k_converted<int64_t>>(call, make(k_tag<int64_t>()), f);
}

#endif
