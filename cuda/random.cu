// SPDX-License-Identifier: MIT
// Kernels of ops/random.c: the numbers that csrc/cpu/random.c draws from the same seed. Element i,
// in the order of the shape, has the words of counter offset + i, whatever thread makes it.
//
// float32 logarithms are the CPU's polynomials. What is left to differ in the last bit are float64
// transforms, which are the math library's, and where a compiler fuses a * b + c.
//
// Filling is bound by the ten rounds of Philox (20 wide products an element) and by the bytes
// written; dropout by what it reads and writes.
#include "kernel.cuh"

#include <math.h>

#include "base/philox.h"
#include "cpu/vmath.h"

typedef struct draw_form {
  cuda_walk walk; // result, counter, and perhaps an input
  void *out;
  const void *in;
  cnn_rng rng;
  bool packs; // all is dense in the order of the counters, and aligned
} draw_form;

// A rule is a struct with the stored type S, has_in, and operator()(words, element of the input).
template <class Rule> __global__ void __launch_bounds__(K_BLOCK) k_draw(Rule rule, draw_form f) {
  typedef typename Rule::S S;
  constexpr int N = sizeof(S) == 8 ? 2 : 4;
  S *out = static_cast<S *>(f.out);
  const S *in = static_cast<const S *>(f.in);
  if (f.packs) {
    const int64_t packs = f.walk.numel / N;
    for (int64_t i = k_index(); i < packs; i += k_stride()) {
      k_pack<S, N> x, y;
      if constexpr (Rule::has_in) x = static_cast<const k_pack<S, N> *>(f.in)[i];
#pragma unroll
      for (int j = 0; j < N; j++) {
        const uint64_t counter = f.rng.offset + static_cast<uint64_t>(i * N + j);
        y.v[j] = rule(cnn_philox_at(f.rng.seed, counter), Rule::has_in ? x.v[j] : S());
      }
      static_cast<k_pack<S, N> *>(f.out)[i] = y;
    }
  }
  const int64_t done = f.packs ? f.walk.numel / N * N : 0;
  for (int64_t i = done + k_index(); i < f.walk.numel; i += k_stride()) {
    int64_t at[3] = {};
    k_offsets<(Rule::has_in ? 3 : 2)>(f.walk, i, at);
    const uint64_t counter = f.rng.offset + static_cast<uint64_t>(at[1]);
    out[at[0]] = rule(cnn_philox_at(f.rng.seed, counter), Rule::has_in ? in[at[2]] : S());
  }
}

template <class Rule>
static cnn_status draw(const cnn_call *call, const Rule &rule, cnn_rng rng, const cnn_view *y,
                       const cnn_view *x = nullptr) {
  constexpr size_t N = sizeof(typename Rule::S) == 8 ? 2 : 4;
  int64_t strides[CNN_MAX_DIMS];
  cnn_shape_strides(y->ndim, y->shape, strides);
  cnn_view counter = *y;
  counter.strides = strides;
  const cnn_view *views[] = {y, &counter, x};
  draw_form f;
  cuda_walk_make(&f.walk, y->ndim, y->shape, views, x ? 3 : 2);
  f.out = y->data;
  f.in = x ? x->data : nullptr;
  f.rng = rng;
  f.packs = k_aligned(y->data, N * sizeof(typename Rule::S)) &&
            (!x || k_aligned(x->data, N * sizeof(typename Rule::S)));
  for (int k = 0; k < f.walk.views; k++) f.packs = f.packs && cuda_walk_dense(&f.walk, k);
  const int64_t n = f.walk.numel;
  return CUDA_LAUNCH(call, k_draw<Rule>, k_grid(call, f.packs ? (n + N - 1) / N : n), K_BLOCK, 0,
                     rule, f);
}

// ---------------------------------------------------------------------------------------------
// Distributions

__device__ static inline double word_pair(const cnn_philox &w, int k) {
  return static_cast<double>(((static_cast<uint64_t>(w.v[k]) << 32) | w.v[k + 1]) >> 11);
}
// The upper 24 bits of a word.
__device__ static inline int32_t upper(uint32_t w) {
  return static_cast<int32_t>(w >> 8);
}

// low + u (high - low), below high.
template <class S_> struct uniform {
  typedef S_ S;
  typedef k_computed<S> T;
  static constexpr bool has_in = false;
  T low, width, top, unit;
  int shift;
  __device__ S operator()(const cnn_philox &w, S) const {
    T v;
    if constexpr (sizeof(T) == 8)
      v = low + word_pair(w, 0) * 0x1p-53 * width;
    else
      v = low + static_cast<T>(static_cast<int32_t>(w.v[0] >> shift)) * unit * width;
    return k_narrow<S>(v > top ? top : v);
  }
};

static cnn_status fill_uniform(const cnn_call *call, const cnn_view *y, double low, double high) {
  return k_by_float(call, y->dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    typedef k_computed<S> T;
    const int bits = y->dtype == CNN_F16 ? 11 : y->dtype == CNN_BF16 ? 8 : 24;
    const double below = cnn_dtype_below(y->dtype, high);
    uniform<S> rule;
    rule.low = static_cast<T>(low);
    rule.width = static_cast<T>(high - low);
    rule.top = static_cast<T>(below < low ? low : below);
    rule.unit = 1 / static_cast<T>(1 << bits);
    rule.shift = 32 - bits;
    return draw(call, rule, call->rng, y);
  });
}

// cos(2 pi u), as csrc/cpu/random.c has it.
__device__ static inline float cos_turn(float u) {
  const float x = (v_abs(u - 0.5f) - 0.25f) * 6.28318531f, xx = x * x;
  float p = 1.0f / 362880 - xx * (1.0f / 39916800);
  p = 1.0f / 120 - xx * (1.0f / 5040 - xx * p);
  return x - x * xx * (1.0f / 6 - xx * p);
}

// Box and Muller.
template <class S_> struct normal {
  typedef S_ S;
  typedef k_computed<S> T;
  static constexpr bool has_in = false;
  T mean, std;
  __device__ S operator()(const cnn_philox &w, S) const {
    if constexpr (sizeof(T) == 8) {
      const double u = (word_pair(w, 0) + 0.5) * 0x1p-53;
      const double angle = word_pair(w, 2) * (0x1p-53 * 6.283185307179586);
      return mean + std * sqrt(-2 * log(u)) * cos(angle);
    } else {
      const float u = (static_cast<float>(w.v[0]) + 0.5f) * 0x1p-32f;
      const float turn = static_cast<float>(upper(w.v[1])) * 0x1p-24f;
      return k_narrow<S>(mean + std * sqrtf(-2.0f * v_log(u)) * cos_turn(turn));
    }
  }
};

static cnn_status fill_normal(const cnn_call *call, const cnn_view *y, double mean, double std) {
  return k_by_float(call, y->dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    typedef k_computed<S> T;
    return draw(call, normal<S>{static_cast<T>(mean), static_cast<T>(std)}, call->rng, y);
  });
}

template <class S_> struct exponential {
  typedef S_ S;
  typedef k_computed<S> T;
  static constexpr bool has_in = false;
  T scale;
  __device__ S operator()(const cnn_philox &w, S) const {
    if constexpr (sizeof(T) == 8)
      return -scale * log((word_pair(w, 0) + 0.5) * 0x1p-53);
    else
      return k_narrow<S>(-scale * v_log((static_cast<float>(upper(w.v[0])) + 0.5f) * 0x1p-24f));
  }
};

template <class S_> struct integer {
  typedef S_ S;
  static constexpr bool has_in = false;
  uint64_t low, range;
  __device__ S operator()(const cnn_philox &w, S) const {
    const int64_t v = static_cast<int64_t>(low + cnn_below_range(w.v[0], w.v[1], range));
    if constexpr (k_is_bool<S>::value)
      return k_narrow<S>(v);
    else
      return k_narrow<S>(static_cast<k_computed<S>>(v));
  }
};

static cnn_status draw_integers(const cnn_call *call, int64_t low, int64_t high) {
  const cnn_view *y = &call->out[0];
  return k_by_any(call, y->dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    const uint64_t first = static_cast<uint64_t>(low);
    return draw(call, integer<S>{first, static_cast<uint64_t>(high) - first}, call->rng, y);
  });
}

// How many of the 2^24 values of a word's upper bits count as "with probability p".
static int32_t threshold(double p) {
  return static_cast<int32_t>(ceil(p * 0x1p24));
}

template <class S_> struct bernoulli {
  typedef S_ S;
  static constexpr bool has_in = false;
  int32_t share;
  __device__ S operator()(const cnn_philox &w, S) const {
    return k_narrow<S>(static_cast<k_computed<S>>(upper(w.v[0]) < share));
  }
};

// With the probability that the element is.
template <class S_> struct each {
  typedef S_ S;
  typedef k_computed<S> T;
  static constexpr bool has_in = true;
  cuda_fault *fault;
  int op;
  __device__ S operator()(const cnn_philox &w, S stored) const {
    const T p = k_widen(stored);
    if (!(p >= 0 && p <= 1))
      k_report(fault, op, cnn_fault{CNN_FAULT_PROBABILITY, 0, 0, 0, 0, static_cast<double>(p)});
    return k_narrow<S>(
        static_cast<T>(static_cast<T>(upper(w.v[0])) * static_cast<T>(0x1p-24) < p ? 1 : 0));
  }
};

template <class S_> struct dropout {
  typedef S_ S;
  typedef k_computed<S> T;
  static constexpr bool has_in = true;
  T scale;
  int32_t share;
  __device__ S operator()(const cnn_philox &w, S x) const {
    const T v = k_widen(x) * scale;
    return k_narrow<S>(upper(w.v[0]) < share ? T(0) : v);
  }
};

// ---------------------------------------------------------------------------------------------
// Kernels

static cnn_status run_rand(cnn_call *call) {
  return fill_uniform(call, &call->out[0], 0, 1);
}
static cnn_status run_uniform(cnn_call *call) {
  return fill_uniform(call, &call->in[0], cnn_arg_number(&call->args[1]),
                      cnn_arg_number(&call->args[2]));
}
static cnn_status run_randn(cnn_call *call) {
  return fill_normal(call, &call->out[0], 0, 1);
}
static cnn_status run_normal(cnn_call *call) {
  return fill_normal(call, &call->in[0], cnn_arg_number(&call->args[1]),
                     cnn_arg_number(&call->args[2]));
}
static cnn_status run_exponential(cnn_call *call) {
  const cnn_view *y = &call->in[0];
  return k_by_float(call, y->dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    const double scale = 1 / cnn_arg_number(&call->args[1]);
    return draw(call, exponential<S>{static_cast<k_computed<S>>(scale)}, call->rng, y);
  });
}
static cnn_status run_randint(cnn_call *call) {
  const cnn_arg *a = call->args;
  return cnn_has(a, 2) ? draw_integers(call, a[0].i, a[1].ints[0]) : draw_integers(call, 0, a[0].i);
}
static cnn_status run_randint_like(cnn_call *call) {
  const cnn_arg *a = call->args;
  return cnn_has(a, 2) ? draw_integers(call, a[1].i, a[2].i) : draw_integers(call, 0, a[1].i);
}
static cnn_status run_bernoulli_fill(cnn_call *call) {
  const cnn_view *y = &call->in[0];
  const int32_t share = threshold(cnn_arg_number(&call->args[1]));
  return k_by_any(call, y->dtype, [&](auto tag) {
    return draw(call, bernoulli<typename decltype(tag)::type>{share}, call->rng, y);
  });
}
static cnn_status run_bernoulli(cnn_call *call) {
  return k_by_float(call, call->out[0].dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    return draw(call, each<S>{cuda_fault_of(call), cuda_fault_op(call)}, call->rng, &call->out[0],
                &call->in[0]);
  });
}

static cnn_status drop(const cnn_call *call, cnn_rng rng) {
  const double p = cnn_arg_number(&call->args[1]);
  return k_by_float(call, call->out[0].dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    return draw(call, dropout<S>{static_cast<k_computed<S>>(1 / (1 - p)), threshold(p)}, rng,
                &call->out[0], &call->in[0]);
  });
}
static cnn_status run_dropout(cnn_call *call) {
  return drop(call, call->rng);
}
static cnn_status run_dropout_backward(cnn_call *call) {
  cnn_rng rng;
  rng.seed = static_cast<uint64_t>(call->args[2].i);
  rng.offset = static_cast<uint64_t>(call->args[3].i);
  return drop(call, rng);
}

CUDA_KERNEL(rand, nullptr, run_rand)
CUDA_KERNEL(rand_like, nullptr, run_rand)
CUDA_KERNEL(randn, nullptr, run_randn)
CUDA_KERNEL(randn_like, nullptr, run_randn)
CUDA_KERNEL(randint, nullptr, run_randint)
CUDA_KERNEL(randint_like, nullptr, run_randint_like)
CUDA_KERNEL(uniform_, nullptr, run_uniform)
CUDA_KERNEL(normal_, nullptr, run_normal)
CUDA_KERNEL(exponential_, nullptr, run_exponential)
CUDA_KERNEL(bernoulli_, nullptr, run_bernoulli_fill)
CUDA_KERNEL(bernoulli, nullptr, run_bernoulli)
CUDA_KERNEL(dropout, nullptr, run_dropout)
CUDA_KERNEL(dropout_backward, nullptr, run_dropout_backward)

// ---------------------------------------------------------------------------------------------
// randperm: what the CPU's Fisher and Yates gives, without its order. Step k moves what is at place
// j(k) <= k to place k, and puts k + 1 at j(k). So number k + 1 begins at place j(k), at step k,
// and from place p, where it came at step k, it goes to place m, m the next step with j(m) = p, m >
// k. From a place m > j it goes on likewise, after some ln(n / m) moves in the mean.
//
// Steps with the same j are a list, in any order: about one to a place.

// I: unsigned for up to 2^31 numbers, else 64 bits. The largest value ends a list.
template <class I> struct steps {
  I *target, *head, *next;
  int64_t n;
};

template <class I> __global__ void __launch_bounds__(K_BLOCK) k_perm_clear(steps<I> s) {
  for (int64_t i = k_index(); i < s.n; i += k_stride()) s.head[i] = ~I(0);
}

template <class I> __global__ void __launch_bounds__(K_BLOCK) k_perm_link(steps<I> s, cnn_rng rng) {
  for (int64_t i = k_index(); i < s.n; i += k_stride()) {
    const cnn_philox w = cnn_philox_at(rng.seed, rng.offset + static_cast<uint64_t>(i));
    const I j = static_cast<I>(cnn_below_range(w.v[0], w.v[1], static_cast<uint64_t>(i) + 1));
    s.target[i] = j;
    s.next[i] = atomicExch(&s.head[j], static_cast<I>(i));
  }
}

// The first step after k at which what is at `place` leaves it.
template <class I> __device__ inline I leaves(const steps<I> &s, I place, I k) {
  I first = ~I(0);
  for (I m = s.head[place]; m != ~I(0); m = s.next[m])
    if (m > k && m < first) first = m;
  return first;
}

template <class S, class I>
__global__ void __launch_bounds__(K_BLOCK) k_perm_place(steps<I> s, S *out) {
  for (int64_t i = k_index(); i < s.n; i += k_stride()) {
    I place = s.target[i];
    for (I m = leaves(s, place, static_cast<I>(i)); m != ~I(0); m = leaves(s, place, place))
      place = m;
    out[place] = k_narrow<S>(static_cast<k_computed<S>>(i + 1));
  }
}

static size_t index_size(int64_t n) {
  return n < INT32_MAX ? sizeof(unsigned) : sizeof(unsigned long long);
}

static cnn_status plan_randperm(cnn_call *call) {
  const int64_t n = call->out[0].shape[0];
  call->scratch_bytes = static_cast<size_t>(n) * 3 * index_size(n);
  return CNN_OK;
}

template <class I> static cnn_status permute(const cnn_call *call) {
  const cnn_view *y = &call->out[0];
  steps<I> s;
  s.n = y->shape[0];
  s.target = static_cast<I *>(call->scratch);
  s.head = s.target + s.n;
  s.next = s.head + s.n;
  const unsigned grid = k_grid(call, s.n);
  CNN_TRY(CUDA_LAUNCH(call, k_perm_clear<I>, grid, K_BLOCK, 0, s));
  CNN_TRY(CUDA_LAUNCH(call, k_perm_link<I>, grid, K_BLOCK, 0, s, call->rng));
  return k_by_any(call, y->dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    return CUDA_LAUNCH(call, (k_perm_place<S, I>), grid, K_BLOCK, 0, s, static_cast<S *>(y->data));
  });
}

static cnn_status run_randperm(cnn_call *call) {
  return index_size(call->out[0].shape[0]) == sizeof(unsigned) ? permute<unsigned>(call)
                                                               : permute<unsigned long long>(call);
}
CUDA_KERNEL(randperm, plan_randperm, run_randperm)

// ---------------------------------------------------------------------------------------------
// multinomial. With replacement: the place of a uniform number in the running sums, which a block
// makes for a row. A thread's run of SEQUENTIAL or more weights is summed one after the other, as
// the CPU sums the row; longer rows may differ from it by rounding, where a number hits a boundary.
//
// Without: the race of exponential clocks. The clock's rank in its row, by counting, is where the
// position stands in the result: n^2 comparisons.

#define SEQUENTIAL 64

typedef struct weights {
  const void *x;
  cnn_dtype dtype;
  int64_t rows, n, row_stride, stride, samples;
  int64_t *out; // [rows][samples], dense
  double *scratch;
  cnn_rng rng;
  cuda_fault *fault;
  int op;
} weights;

__device__ static inline double stored_weight(const weights &w, int64_t r, int64_t i) {
  return k_get<double>(w.dtype, w.x, r * w.row_stride + i * w.stride);
}
// One that can't be is reported, and counts 0.
__device__ static inline double checked_weight(const weights &w, int64_t r, int64_t i) {
  const double p = stored_weight(w, r, i);
  if (p >= 0 && p < INFINITY) return p;
  k_report(w.fault, w.op, cnn_fault{CNN_FAULT_WEIGHT, 0, 0, r, i, p});
  return 0;
}
__device__ static inline double uniform_at(const weights &w, int64_t i) {
  return cnn_uniform_f64(cnn_philox_at(w.rng.seed, w.rng.offset + static_cast<uint64_t>(i)));
}

__global__ void __launch_bounds__(K_BLOCK) k_multinomial(weights w) {
  __shared__ double start[K_BLOCK];
  __shared__ int64_t lasts[32];
  double *sums = w.scratch + static_cast<int64_t>(blockIdx.x) * w.n;
  const int64_t even = (w.n + K_BLOCK - 1) / K_BLOCK;
  const int64_t run = even > SEQUENTIAL ? even : SEQUENTIAL;
  for (int64_t r = blockIdx.x; r < w.rows; r += gridDim.x) {
    const int64_t begin = threadIdx.x * run;
    const int64_t end = begin + run < w.n ? begin + run : w.n;
    double sum = 0;
    int64_t last = 0; // position with a weight
    for (int64_t i = begin; i < end; i++) {
      const double p = checked_weight(w, r, i);
      sum += p;
      if (p > 0) last = i;
    }
    start[threadIdx.x] = sum;
    last = k_block_reduce(last, lasts, static_cast<int64_t>(0), k_max());
    __syncthreads();
    if (threadIdx.x == 0) {
      double before = 0;
      for (int t = 0; t < K_BLOCK; t++) {
        const double own = start[t];
        start[t] = before;
        before += own;
      }
    }
    __syncthreads();
    sum = start[threadIdx.x];
    for (int64_t i = begin; i < end; i++) {
      const double p = stored_weight(w, r, i);
      sums[i] = sum += p >= 0 && p < INFINITY ? p : 0;
    }
    __syncthreads();
    const double total = sums[w.n - 1];
    const bool good = total > 0 && total < INFINITY;
    if (!good && threadIdx.x == 0)
      k_report(w.fault, w.op, cnn_fault{CNN_FAULT_SUM, 0, 0, r, 0, total});
    for (int64_t k = threadIdx.x; k < w.samples; k += K_BLOCK) {
      const double u = uniform_at(w, r * w.samples + k) * total;
      int64_t low = 0, high = good ? last : 0;
      while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (sums[middle] > u)
          high = middle;
        else
          low = middle + 1;
      }
      // Where runs meet, rounding may leave a sum that is not its predecessor's and no more.
      while (low < last && !(stored_weight(w, r, low) > 0)) low++;
      w.out[r * w.samples + k] = low + 1;
    }
    __syncthreads();
  }
}

// The clocks; NaN for a position that is never drawn.
__global__ void __launch_bounds__(K_BLOCK) k_clocks(weights w) {
  for (int64_t i = k_index(); i < w.rows * w.n; i += k_stride()) {
    const double p = checked_weight(w, i / w.n, i % w.n);
    w.scratch[i] = p > 0 ? -log1p(-uniform_at(w, i)) / p : static_cast<double>(NAN);
  }
  for (int64_t i = k_index(); i < w.rows * w.samples; i += k_stride()) w.out[i] = 1;
}

__global__ void __launch_bounds__(K_BLOCK) k_ranks(weights w) {
  __shared__ double tile[K_BLOCK];
  const int64_t tiles = (w.n + K_BLOCK - 1) / K_BLOCK;
  for (int64_t job = blockIdx.x; job < w.rows * tiles; job += gridDim.x) {
    const int64_t r = job / tiles, i = job % tiles * K_BLOCK + threadIdx.x;
    const double *clocks = w.scratch + r * w.n;
    const double own = i < w.n ? clocks[i] : static_cast<double>(NAN);
    int64_t rank = 0, possible = 0;
    for (int64_t at = 0; at < w.n; at += K_BLOCK) {
      const int here = w.n - at < K_BLOCK ? static_cast<int>(w.n - at) : K_BLOCK;
      if (threadIdx.x < here) tile[threadIdx.x] = clocks[at + threadIdx.x];
      __syncthreads();
      for (int k = 0; k < here; k++) {
        rank += tile[k] < own || (tile[k] == own && at + k < i);
        possible += tile[k] == tile[k];
      }
      __syncthreads();
    }
    if (own == own && rank < w.samples) w.out[r * w.samples + rank] = i + 1;
    if (i == 0 && possible < w.samples)
      k_report(w.fault, w.op, cnn_fault{CNN_FAULT_FEW, w.samples, possible, r, 0, 0});
  }
}

static int64_t row_blocks(const cnn_call *call, int64_t rows) {
  const int64_t most = static_cast<int64_t>(cuda_processors(call)) * 2;
  return rows < most ? rows : most;
}

static void start_weights(const cnn_call *call, weights *w) {
  const cnn_view *x = &call->in[0];
  const int last = x->ndim - 1;
  w->x = x->data;
  w->dtype = x->dtype;
  w->rows = last > 0 ? x->shape[0] : 1;
  w->row_stride = last > 0 ? x->strides[0] : 0;
  w->n = x->shape[last];
  w->stride = x->strides[last];
  w->samples = call->args[1].i;
}

static cnn_status plan_multinomial(cnn_call *call) {
  weights w = {};
  start_weights(call, &w);
  const int64_t rows = call->args[2].i ? row_blocks(call, w.rows) : w.rows;
  call->scratch_bytes = static_cast<size_t>(rows * w.n) * sizeof(double);
  return CNN_OK;
}

static cnn_status run_multinomial(cnn_call *call) {
  weights w = {};
  start_weights(call, &w);
  w.out = static_cast<int64_t *>(call->out[0].data);
  w.scratch = static_cast<double *>(call->scratch);
  w.rng = call->rng;
  w.fault = cuda_fault_of(call);
  w.op = cuda_fault_op(call);
  if (call->args[2].i)
    return CUDA_LAUNCH(call, k_multinomial, static_cast<unsigned>(row_blocks(call, w.rows)),
                       K_BLOCK, 0, w);
  CNN_TRY(CUDA_LAUNCH(call, k_clocks, k_grid(call, w.rows * w.n), K_BLOCK, 0, w));
  const int64_t jobs = w.rows * ((w.n + K_BLOCK - 1) / K_BLOCK);
  return CUDA_LAUNCH(call, k_ranks, k_grid(call, jobs * K_BLOCK), K_BLOCK, 0, w);
}
CUDA_KERNEL(multinomial, plan_multinomial, run_multinomial)
