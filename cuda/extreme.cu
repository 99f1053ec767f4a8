// SPDX-License-Identifier: MIT
// Kernels of ops/extreme.c: extremes by folds, medians by radix selection.
#include "reduce.cuh"

#include <math.h>
#include <type_traits>

// The largest (or smallest) element and its position (from 1; 0: none yet). The first of equal
// ones; NaN wins.
namespace {
template <class T> struct place {
  T value;
  int64_t at;
};
} // namespace

template <class T_, bool largest> struct fold_extreme {
  typedef T_ T;
  typedef place<T> Acc;
  bool values, places; // which results there are
  __device__ Acc zero() const { return Acc{0, 0}; }
  __device__ Acc take(Acc a, T x, int64_t at) const { return merge(a, Acc{x, at}); }
  __device__ Acc merge(Acc a, Acc b) const {
    if (a.at == 0) return b;
    if (b.at == 0) return a;
    const bool an = a.value != a.value, bn = b.value != b.value;
    if (an != bn) return an ? a : b;
    if (!an && a.value != b.value) return (largest ? a.value > b.value : a.value < b.value) ? a : b;
    return a.at < b.at ? a : b;
  }
  __device__ void store(const k_reduce_form &f, int64_t o, Acc a) const {
    if (values) k_put(f.out_dtype[0], f.out[0], o, a.value);
    if (places) k_put(f.out_dtype[values], f.out[values], o, a.at);
  }
};

static uint32_t dims_of(const cnn_call *call) {
  uint32_t mask = 0;
  cnn_check_dims(call->ctx, "dim", &call->args[1], call->in[0].ndim, &mask); // infer passed it
  return mask;
}

static cnn_status plan_extreme(cnn_call *call) {
  k_reduce_form f;
  cuda_reduce_make(&f, call, &call->in[0], dims_of(call));
  call->scratch_bytes = k_reduce_scratch(&f, K_REDUCE_ACC);
  return CNN_OK;
}

template <bool largest> static cnn_status extreme(cnn_call *call, bool values, bool places) {
  k_reduce_form f;
  cuda_reduce_make(&f, call, &call->in[0], dims_of(call));
  return k_reduce_own(call, &f, [&](auto tag) {
    return fold_extreme<typename decltype(tag)::type, largest>{values, places};
  });
}

static cnn_status run_amax(cnn_call *call) {
  return extreme<true>(call, true, false);
}
static cnn_status run_amin(cnn_call *call) {
  return extreme<false>(call, true, false);
}
static cnn_status run_argmax(cnn_call *call) {
  return extreme<true>(call, false, true);
}
static cnn_status run_argmin(cnn_call *call) {
  return extreme<false>(call, false, true);
}
static cnn_status run_max_dim(cnn_call *call) {
  return extreme<true>(call, true, true);
}
static cnn_status run_min_dim(cnn_call *call) {
  return extreme<false>(call, true, true);
}

CUDA_KERNEL(amax, plan_extreme, run_amax)
CUDA_KERNEL(amin, plan_extreme, run_amin)
CUDA_KERNEL(argmax, plan_extreme, run_argmax)
CUDA_KERNEL(argmin, plan_extreme, run_argmin)
CUDA_KERNEL(max_dim, plan_extreme, run_max_dim)
CUDA_KERNEL(min_dim, plan_extreme, run_min_dim)

// ---------------------------------------------------------------------------------------------
// Medians. Elements become unsigned keys in their order, NaN the largest; the digits of the k-th
// key are found from the highest on, by counting among those that share the digits found so far.
// No element moves, and counts are integers: the result is exact. What limits it are bytes: the
// elements are read once for each digit (until one is left) and once more for the position.
//
// Up to 32 elements are ranked by a warp. Else a block selects one median after the other, and few
// long lines are cut into pieces, with a launch for each step.

#define BLOCK 256
#define WARPS (BLOCK / 32)

typedef unsigned long long word;

typedef struct selection {
  word prefix, mask; // the digits found
  word k;            // among those that share them
  word at;           // the first place (from 0) with the key
  unsigned nan, done;
} selection;

typedef struct median_job {
  cuda_walk kept, reduced; // of x
  const void *x;
  void *values;
  int64_t *places; // NULL: not wanted
  int64_t outputs, count, pieces, step;
  word flip, infinity; // keys of integers; of floats, whose sign bit `flip` is
  bool real;
  selection *selections; // of each output, and what its digits count
  word *counts;
} median_job;

// As csrc/cpu/extreme.c has it. -0 is 0.
template <class U> __device__ inline U key_of(const median_job &j, int64_t i) {
  const U u = static_cast<const U *>(j.x)[i], sign = static_cast<U>(j.flip);
  if (!j.real) return u ^ sign;
  const U v = u == sign ? 0 : u, size = v & static_cast<U>(~sign);
  if (size > static_cast<U>(j.infinity)) return static_cast<U>(-1);
  return v & sign ? static_cast<U>(~v) : static_cast<U>(v | sign);
}

template <class U>
__device__ inline void store_median(const median_job &j, int64_t o, int64_t base, int64_t at) {
  static_cast<U *>(j.values)[o] = static_cast<const U *>(j.x)[base + k_offset(j.reduced, at)];
  if (j.places) j.places[o] = at + 1;
}

template <class U> __global__ void __launch_bounds__(BLOCK) k_median_ranked(median_job j) {
  typedef typename std::conditional<sizeof(U) == 8, word, unsigned>::type K;
  const int lane = threadIdx.x & 31, n = static_cast<int>(j.count);
  for (int64_t o = static_cast<int64_t>(blockIdx.x) * WARPS + (threadIdx.x >> 5); o < j.outputs;
       o += static_cast<int64_t>(gridDim.x) * WARPS) {
    const int64_t base = k_offset(j.kept, o);
    const K key = lane < n ? key_of<U>(j, base + k_offset(j.reduced, lane)) : static_cast<U>(-1);
    const unsigned nans =
        __ballot_sync(K_FULL_WARP, j.real && lane < n && key == static_cast<U>(-1));
    int rank = 0;
    for (int i = 0; i < n; i++) {
      const K other = __shfl_sync(K_FULL_WARP, key, i);
      rank += other < key || (other == key && i < lane);
    }
    const unsigned chosen = __ballot_sync(K_FULL_WARP, lane < n && rank == (n - 1) / 2);
    const K median = __shfl_sync(K_FULL_WARP, key, __ffs(static_cast<int>(chosen)) - 1);
    const unsigned equal = __ballot_sync(K_FULL_WARP, lane < n && key == median);
    if (lane == 0) store_median<U>(j, o, base, __ffs(static_cast<int>(nans ? nans : equal)) - 1);
  }
}

__device__ static inline selection first_selection(const median_job &j) {
  return selection{0, 0, static_cast<word>(j.count - 1) / 2, ~0ull, 0, 0};
}

// Counts the digits at `shift` of the keys among [begin, end) that share what has been found.
template <class U>
__device__ inline void count_digits(const median_job &j, int64_t base, int64_t begin, int64_t end,
                                    word prefix, word mask, int shift, unsigned *counts,
                                    unsigned *nan) {
  for (int64_t i = begin + threadIdx.x; i < end; i += BLOCK) {
    const U key = key_of<U>(j, base + k_offset(j.reduced, i));
    if ((key & static_cast<U>(mask)) == static_cast<U>(prefix))
      atomicAdd(&counts[key >> shift & 255], 1u);
    if (mask == 0 && j.real && key == static_cast<U>(-1)) atomicOr(nan, 1u);
  }
}

// The digit that the k-th key has, from how many have each: by one warp. *s changes in the one lane
// that finds it.
template <class C> __device__ inline void pick_digit(const C *counts, selection *s, int shift) {
  const int lane = threadIdx.x & 31;
  const word k = s->k;
  word sum = 0;
  for (int d = 0; d < 8; d++) sum += counts[lane * 8 + d];
  word upto = sum;
#pragma unroll
  for (int n = 1; n < 32; n *= 2) {
    const word before = __shfl_up_sync(K_FULL_WARP, upto, n);
    if (lane >= n) upto += before;
  }
  if (s->nan) {
    __syncwarp();
    if (lane == 0) s->prefix = s->mask = ~0ull, s->done = 1;
    return;
  }
  __syncwarp(); // all have read *s
  if (k < upto - sum || k >= upto) return;
  word rest = k - (upto - sum);
  int digit = lane * 8;
  while (rest >= counts[digit]) rest -= counts[digit++];
  s->k = rest;
  s->prefix |= static_cast<word>(digit) << shift;
  s->mask |= static_cast<word>(255) << shift;
  s->done = shift == 0 || counts[digit] == 1;
}

// The first place in [begin, end) whose key it is, over the block.
template <class U>
__device__ inline word find_key(const median_job &j, int64_t base, int64_t begin, int64_t end,
                                word prefix, word mask, word *shared) {
  word at = ~0ull;
  for (int64_t i = begin + threadIdx.x; i < end && at == ~0ull; i += BLOCK)
    if ((key_of<U>(j, base + k_offset(j.reduced, i)) & static_cast<U>(mask)) ==
        static_cast<U>(prefix))
      at = static_cast<word>(i);
  return k_block_reduce(at, shared, ~0ull, k_min());
}

template <class U> __global__ void __launch_bounds__(BLOCK) k_median_block(median_job j) {
  __shared__ __align__(16) word shared[32];
  __shared__ __align__(16) unsigned counts[BLOCK];
  __shared__ __align__(16) selection s;
  for (int64_t o = blockIdx.x; o < j.outputs; o += gridDim.x) {
    const int64_t base = k_offset(j.kept, o);
    if (threadIdx.x == 0) s = first_selection(j);
    __syncthreads();
    for (int shift = static_cast<int>(sizeof(U)) * 8 - 8; shift >= 0 && !s.done; shift -= 8) {
      counts[threadIdx.x] = 0;
      __syncthreads();
      count_digits<U>(j, base, 0, j.count, s.prefix, s.mask, shift, counts, &s.nan);
      __syncthreads();
      if (threadIdx.x < 32) pick_digit(counts, &s, shift);
      __syncthreads();
    }
    const word at = find_key<U>(j, base, 0, j.count, s.prefix, s.mask, shared);
    if (threadIdx.x == 0) store_median<U>(j, o, base, static_cast<int64_t>(at));
  }
}

// Step by step, for few long lines.
__global__ static void __launch_bounds__(BLOCK) k_median_start(median_job j) {
  for (int64_t i = k_index(); i < j.outputs * 256; i += k_stride()) {
    j.counts[i] = 0;
    if (i < j.outputs) j.selections[i] = first_selection(j);
  }
}
template <class U>
__global__ void __launch_bounds__(BLOCK) k_median_count(median_job j, int shift) {
  __shared__ __align__(16) unsigned counts[BLOCK];
  for (int64_t n = blockIdx.x; n < j.outputs * j.pieces; n += gridDim.x) {
    const int64_t o = n / j.pieces, begin = n % j.pieces * j.step;
    selection *s = &j.selections[o];
    if (s->done) continue; // all of the block
    counts[threadIdx.x] = 0;
    __syncthreads();
    count_digits<U>(j, k_offset(j.kept, o), begin,
                    begin + j.step < j.count ? begin + j.step : j.count, s->prefix, s->mask, shift,
                    counts, &s->nan);
    __syncthreads();
    const unsigned count = counts[threadIdx.x];
    if (count) atomicAdd(&j.counts[o * 256 + threadIdx.x], static_cast<word>(count));
  }
}
__global__ static void __launch_bounds__(BLOCK) k_median_pick(median_job j, int shift) {
  for (int64_t o = static_cast<int64_t>(blockIdx.x) * WARPS + (threadIdx.x >> 5); o < j.outputs;
       o += static_cast<int64_t>(gridDim.x) * WARPS) {
    if (j.selections[o].done) continue; // all of the warp
    pick_digit(&j.counts[o * 256], &j.selections[o], shift);
    __syncwarp();
    for (int d = threadIdx.x & 31; d < 256; d += 32) j.counts[o * 256 + d] = 0;
  }
}
template <class U> __global__ void __launch_bounds__(BLOCK) k_median_find(median_job j) {
  __shared__ __align__(16) word shared[32];
  for (int64_t n = blockIdx.x; n < j.outputs * j.pieces; n += gridDim.x) {
    const int64_t o = n / j.pieces, begin = n % j.pieces * j.step;
    selection *s = &j.selections[o];
    const word at = find_key<U>(j, k_offset(j.kept, o), begin,
                                begin + j.step < j.count ? begin + j.step : j.count, s->prefix,
                                s->mask, shared);
    if (threadIdx.x == 0 && at != ~0ull) atomicMin(&s->at, at);
  }
}
template <class U> __global__ void __launch_bounds__(BLOCK) k_median_store(median_job j) {
  for (int64_t o = k_index(); o < j.outputs; o += k_stride())
    store_median<U>(j, o, k_offset(j.kept, o), static_cast<int64_t>(j.selections[o].at));
}

// ---------------------------------------------------------------------------------------------

static void start_median(const cnn_call *call, median_job *j, uint32_t dims) {
  const cnn_view *x = &call->in[0];
  const int64_t room = static_cast<int64_t>(cuda_processors(call)) * 4;
  cuda_walk_dims(&j->kept, x, ((1u << x->ndim) - 1) & ~dims);
  cuda_walk_dims(&j->reduced, x, dims);
  j->outputs = j->kept.numel;
  j->count = j->reduced.numel;
  j->pieces = 1;
  if (j->outputs > 0 && j->outputs < room && j->count > 32768) {
    j->pieces = room / j->outputs;
    if (j->pieces > j->count / 8192) j->pieces = j->count / 8192;
  }
  j->step = (j->count + j->pieces - 1) / j->pieces;
  j->x = x->data;
  j->values = call->out[0].data;
  j->places = call->n_out > 1 ? static_cast<int64_t *>(call->out[1].data) : nullptr;
  j->real = cnn_dtype_is_float(x->dtype);
  const int bits = static_cast<int>(cnn_dtype_size(x->dtype)) * 8;
  const bool without_sign = x->dtype == CNN_U8 || x->dtype == CNN_BOOL;
  j->flip = without_sign ? 0 : static_cast<word>(1) << (bits - 1);
  j->infinity = x->dtype == CNN_F32   ? 0x7F800000u
                : x->dtype == CNN_F64 ? 0x7FF0000000000000u
                : x->dtype == CNN_F16 ? 0x7C00u
                                      : 0x7F80u;
  if (!call->scratch) return;
  j->counts = static_cast<word *>(call->scratch);
  j->selections = reinterpret_cast<selection *>(j->counts + j->outputs * 256);
}

static cnn_status plan_median(cnn_call *call, uint32_t dims) {
  median_job j = {};
  start_median(call, &j, dims);
  if (j.pieces > 1)
    call->scratch_bytes = static_cast<size_t>(j.outputs) * (256 * sizeof(word) + sizeof(selection));
  return CNN_OK;
}

static unsigned blocks_of(const cnn_call *call, int64_t n) {
  const int64_t most = static_cast<int64_t>(cuda_processors(call)) * 32;
  return static_cast<unsigned>(n < most ? n : most);
}

template <class U> static cnn_status select(const cnn_call *call, const median_job &j) {
  const unsigned warps = blocks_of(call, (j.outputs + WARPS - 1) / WARPS);
  if (j.count <= 32) return CUDA_LAUNCH(call, k_median_ranked<U>, warps, BLOCK, 0, j);
  if (j.pieces == 1)
    return CUDA_LAUNCH(call, k_median_block<U>, blocks_of(call, j.outputs), BLOCK, 0, j);
  const unsigned pieces = blocks_of(call, j.outputs * j.pieces);
  CNN_TRY(CUDA_LAUNCH(call, k_median_start, k_grid(call, j.outputs * 256), BLOCK, 0, j));
  for (int shift = static_cast<int>(sizeof(U)) * 8 - 8; shift >= 0; shift -= 8) {
    CNN_TRY(CUDA_LAUNCH(call, k_median_count<U>, pieces, BLOCK, 0, j, shift));
    CNN_TRY(CUDA_LAUNCH(call, k_median_pick, warps, BLOCK, 0, j, shift));
  }
  CNN_TRY(CUDA_LAUNCH(call, k_median_find<U>, pieces, BLOCK, 0, j));
  return CUDA_LAUNCH(call, k_median_store<U>, k_grid(call, j.outputs), BLOCK, 0, j);
}

static cnn_status run_median(cnn_call *call, uint32_t dims) {
  median_job j = {};
  start_median(call, &j, dims);
  if (j.count == 0) return cuda_fill_view(call, &call->out[0], NAN); // floats: infer passed it
  return k_by_size(call, call->in[0].dtype,
                   [&](auto tag) { return select<typename decltype(tag)::type>(call, j); });
}

static uint32_t all_dims(const cnn_call *call) {
  return (1u << call->in[0].ndim) - 1;
}
static cnn_status plan_median_all(cnn_call *call) {
  return plan_median(call, all_dims(call));
}
static cnn_status plan_median_dim(cnn_call *call) {
  return plan_median(call, dims_of(call));
}
static cnn_status run_median_all(cnn_call *call) {
  return run_median(call, all_dims(call));
}
static cnn_status run_median_dim(cnn_call *call) {
  return run_median(call, dims_of(call));
}

CUDA_KERNEL(median_all, plan_median_all, run_median_all)
CUDA_KERNEL(median_dim, plan_median_dim, run_median_dim)
