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
// results each is cut into pieces, which a second kernel merges in order.
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

// How elements come: of a known type, or of any.
template <class S, class T> struct k_direct {
  static constexpr bool quick = true;
  __device__ static T get(const k_reduce_form &f, int64_t i) {
    return static_cast<T>(k_widen(static_cast<const S *>(f.x)[i]));
  }
};
template <class T> struct k_converted {
  static constexpr bool quick = false;
  __device__ static T get(const k_reduce_form &f, int64_t i) { return k_get<T>(f.dtype, f.x, i); }
};

#define K_REDUCE_BLOCK 256

// Elements first, first + step ... before `end` of one result.
template <class Fold, class Load>
__device__ inline typename Fold::Acc k_fold(const Fold &fold, const k_reduce_form &f, int64_t base,
                                            int64_t first, int64_t step, int64_t end) {
  typedef typename Fold::Acc Acc;
  Acc a = fold.zero();
  int64_t r = first;
  if (f.reduced.ndim <= 1) {
    const int64_t stride = f.reduced.ndim ? f.reduced.strides[0][0] : 0;
    // Four at a time, apart: more loads under way, and shorter sums.
    if (Load::quick && r + 3 * step < end) {
      Acc b = fold.zero(), c = fold.zero(), d = fold.zero();
      for (; r + 3 * step < end; r += 4 * step) {
        const typename Fold::T x0 = Load::get(f, base + r * stride);
        const typename Fold::T x1 = Load::get(f, base + (r + step) * stride);
        const typename Fold::T x2 = Load::get(f, base + (r + 2 * step) * stride);
        const typename Fold::T x3 = Load::get(f, base + (r + 3 * step) * stride);
        a = fold.take(a, x0, r + 1);
        b = fold.take(b, x1, r + step + 1);
        c = fold.take(c, x2, r + 2 * step + 1);
        d = fold.take(d, x3, r + 3 * step + 1);
      }
      a = fold.merge(fold.merge(a, b), fold.merge(c, d));
    }
#pragma unroll 1
    for (; r < end; r += step) a = fold.take(a, Load::get(f, base + r * stride), r + 1);
    return a;
  }
#pragma unroll 1
  for (; r < end; r += step) a = fold.take(a, Load::get(f, base + k_offset(f.reduced, r)), r + 1);
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
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int64_t jobs = f.outputs * f.pieces;
  if (f.mode == K_REDUCE_WARPS) {
    const int64_t warps = K_REDUCE_BLOCK / 32;
    for (int64_t j = blockIdx.x * warps + warp; j < jobs; j += gridDim.x * warps) {
      const int64_t o = j % f.outputs, piece = j / f.outputs, begin = piece * f.step;
      const int64_t end = begin + f.step < f.count ? begin + f.step : f.count;
      Acc a = k_fold<Fold, Load>(fold, f, k_offset(f.kept, o), begin + lane, 32, end);
      a = k_warp_reduce(a, merge);
      if (lane == 0) k_fold_done(fold, f, o, piece, a);
    }
  } else if (f.mode == K_REDUCE_BLOCKS) {
    for (int64_t j = blockIdx.x; j < jobs; j += gridDim.x) {
      const int64_t o = j % f.outputs, piece = j / f.outputs, begin = piece * f.step;
      const int64_t end = begin + f.step < f.count ? begin + f.step : f.count;
      Acc a = k_fold<Fold, Load>(fold, f, k_offset(f.kept, o), begin + threadIdx.x, K_REDUCE_BLOCK,
                                 end);
      a = k_block_reduce(a, shared, fold.zero(), merge);
      if (threadIdx.x == 0) k_fold_done(fold, f, o, piece, a);
    }
  } else {
    const int rows = K_REDUCE_BLOCK / 32;
    const int64_t across = (f.outputs + 31) / 32;
    for (int64_t j = blockIdx.x; j < across * f.pieces; j += gridDim.x) {
      const int64_t o = j % across * 32 + lane, piece = j / across, begin = piece * f.step;
      const int64_t end = begin + f.step < f.count ? begin + f.step : f.count;
      Acc a = fold.zero();
      if (o < f.outputs)
        a = k_fold<Fold, Load>(fold, f, k_offset(f.kept, o), begin + warp, rows, end);
      shared[threadIdx.x] = a;
      __syncthreads();
      if (warp == 0 && o < f.outputs) {
        for (int y = 1; y < rows; y++) a = fold.merge(a, shared[y * 32 + lane]);
        k_fold_done(fold, f, o, piece, a);
      }
      __syncthreads();
    }
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
