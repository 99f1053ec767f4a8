// SPDX-License-Identifier: MIT
// Kernels of ops/batch_norm.c. What limits them are bytes: a pass over x (and dy) for the sums of
// each channel, another one for the results.
//
// Sums: a channel's elements in parts, a block to each (planes); or, where channels are innermost
// in memory (channels-last, (N, C)), 32 channels side by side to a block, over a part of the rows.
// Partial results go to scratch; a warp per channel joins them, in double, in an order that is
// always the same, and writes what the second pass needs of each channel.
//
// Moments: four (or a vector of) elements have their own mean and squared deviations, which are
// joined (moments.cuh). A thread joins few of them: parts are short. And all are taken from the
// first element of the channel on, so that nothing is lost where the mean is large.
#include "moments.cuh"

#include <math.h>

#define BLOCK 256
#define WARPS (BLOCK / 32)
#define GROUP 4     // elements of a thread that come together, where they are no vector
#define PART  16384 // elements of a part of a channel, at most
#define ROWS  512   // rows of a part, where channels are innermost

enum { NEEDS_X = 1, NEEDS_W = 2, NEEDS_B = 4 };

typedef struct parameter {
  const void *data; // NULL: there is none
  cnn_dtype dtype;
  int64_t stride;
} parameter;

namespace {
typedef struct job {
  cuda_walk walk; // of a channel: x, dy; its last dim in vectors, where `vector`
  cuda_walk all;  // of everything: x, out, dy, the number of the channel
  int64_t c, m;   // channels, elements of each
  int64_t x_step, dy_step;
  int64_t inner; // everything is dense: neighbouring elements of a channel, then the next one's
  int64_t parts, part;
  const void *x, *dy;
  cnn_dtype dtype;
  void *out;
  parameter weight, bias, running_mean, running_var;
  void *mean, *rstd, *dw, *db; // of the channels, in the computed type
  void *scale, *shift, *a, *b; // likewise, in scratch
  void *partial;               // sums of [parts][c]
  double eps, momentum;
  bool training, reduces, applies, rows, vector, dense;
} job;
} // namespace

// ---------------------------------------------------------------------------------------------
// What is summed, of x - origin and dy

template <class T> using moments = k_moments<T>;
template <class T> __device__ inline moments<T> join(moments<T> a, moments<T> b) {
  return k_moments_join(a, b);
}

// dy and dy (x - origin).
template <class T> struct dots { T dy, dyx; };
template <class T> __device__ inline dots<T> join(dots<T> a, dots<T> b) {
  return dots<T>{a.dy + b.dy, a.dyx + b.dyx};
}

// Partial sums in scratch, number n of them: each of their numbers is an array of its own.
template <class T> __device__ inline void put_sums(const job &j, int64_t n, moments<T> a) {
  T *to = static_cast<T *>(j.partial) + n;
  const int64_t each = j.c * j.parts;
  to[0] = a.n;
  to[each] = a.mean;
  to[2 * each] = a.squares;
}
template <class T> __device__ inline void put_sums(const job &j, int64_t n, dots<T> a) {
  T *to = static_cast<T *>(j.partial) + n;
  to[0] = a.dy;
  to[j.c * j.parts] = a.dyx;
}

template <class S> struct by_moments {
  typedef k_computed<S> T;
  typedef moments<T> Acc;
  static constexpr bool reads_dy = false;
  // The first element of channel c.
  __device__ static T origin(const job &j, int64_t c) {
    return k_widen(static_cast<const S *>(j.x)[c * j.x_step]);
  }
  // Of n <= N elements.
  template <int N> __device__ static Acc of(int n, const T *x, const T *) {
    return k_moments_of<N>(n, x);
  }
};
template <class S> struct by_dots {
  typedef k_computed<S> T;
  typedef dots<T> Acc;
  static constexpr bool reads_dy = true;
  __device__ static T origin(const job &j, int64_t c) { return static_cast<const T *>(j.mean)[c]; }
  template <int N> __device__ static Acc of(int n, const T *x, const T *dy) {
    Acc a = {0, 0};
#pragma unroll
    for (int k = 0; k < N; k++)
      if (k < n) a.dy += dy[k], a.dyx += dy[k] * x[k];
    return a;
  }
};

// ---------------------------------------------------------------------------------------------
// Sums over parts

template <class S> struct vectors {
  static constexpr int count = 16 / sizeof(S);
  typedef k_pack<S, count> pack;
};

template <class S, template <class> class By>
__global__ void __launch_bounds__(BLOCK) k_planes(job j) {
  typedef typename By<S>::T T;
  typedef typename By<S>::Acc Acc;
  typedef typename vectors<S>::pack pack;
  constexpr int count = vectors<S>::count;
  __shared__ __align__(16) unsigned char raw[32 * sizeof(Acc)];
  const S *all_x = static_cast<const S *>(j.x), *all_dy = static_cast<const S *>(j.dy);
  T xs[count > GROUP ? count : GROUP], dys[count > GROUP ? count : GROUP];
  int64_t at[2];
  for (int64_t n = blockIdx.x; n < j.c * j.parts; n += gridDim.x) {
    const int64_t c = n % j.c, begin = n / j.c * j.part;
    const int64_t end = begin + j.part < j.walk.numel ? begin + j.part : j.walk.numel;
    const S *x = all_x + c * j.x_step, *dy = By<S>::reads_dy ? all_dy + c * j.dy_step : nullptr;
    const T origin = By<S>::origin(j, c);
    Acc a = {};
    if (j.vector) {
      for (int64_t i = begin + threadIdx.x; i < end; i += BLOCK) {
        k_offsets<2>(j.walk, i, at);
        const pack p = *reinterpret_cast<const pack *>(x + at[0]);
#pragma unroll
        for (int k = 0; k < count; k++) xs[k] = k_widen(p.v[k]) - origin;
        if (By<S>::reads_dy) {
          const pack q = *reinterpret_cast<const pack *>(dy + at[1]);
#pragma unroll
          for (int k = 0; k < count; k++) dys[k] = k_widen(q.v[k]);
        }
        a = join(a, By<S>::template of<count>(count, xs, dys));
      }
    } else {
      for (int64_t i = begin + threadIdx.x; i < end; i += GROUP * BLOCK) {
        int got = 0;
#pragma unroll
        for (int k = 0; k < GROUP; k++) {
          if (i + k * BLOCK < end) {
            k_offsets<2>(j.walk, i + k * BLOCK, at);
            xs[k] = k_widen(x[at[0]]) - origin;
            if (By<S>::reads_dy) dys[k] = k_widen(dy[at[1]]);
            got = k + 1;
          }
        }
        a = join(a, By<S>::template of<GROUP>(got, xs, dys));
      }
    }
    a = k_block_reduce(a, reinterpret_cast<Acc *>(raw), Acc{},
                       [](Acc u, Acc v) { return join(u, v); });
    if (threadIdx.x == 0) put_sums(j, n, a);
  }
}

template <class S, template <class> class By>
__global__ void __launch_bounds__(BLOCK) k_rows(job j) {
  typedef typename By<S>::T T;
  typedef typename By<S>::Acc Acc;
  __shared__ __align__(16) unsigned char raw[BLOCK * sizeof(Acc)];
  Acc *shared = reinterpret_cast<Acc *>(raw);
  const S *x = static_cast<const S *>(j.x), *dy = static_cast<const S *>(j.dy);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int64_t across = (j.c + 31) / 32;
  T xs[GROUP], dys[GROUP];
  int64_t at[2];
  for (int64_t n = blockIdx.x; n < across * j.parts; n += gridDim.x) {
    const int64_t c = n % across * 32 + lane, part = n / across, begin = part * j.part;
    const int64_t end = begin + j.part < j.m ? begin + j.part : j.m;
    Acc a = {};
    if (c < j.c) {
      const T origin = By<S>::origin(j, c);
      for (int64_t r = begin + warp; r < end; r += GROUP * WARPS) {
        int got = 0;
#pragma unroll
        for (int k = 0; k < GROUP; k++) {
          if (r + k * WARPS < end) {
            k_offsets<2>(j.walk, r + k * WARPS, at);
            xs[k] = k_widen(x[at[0] + c * j.x_step]) - origin;
            if (By<S>::reads_dy) dys[k] = k_widen(dy[at[1] + c * j.dy_step]);
            got = k + 1;
          }
        }
        a = join(a, By<S>::template of<GROUP>(got, xs, dys));
      }
    }
    shared[threadIdx.x] = a;
    __syncthreads();
    if (warp == 0 && c < j.c) {
      for (int w = 1; w < WARPS; w++) a = join(a, shared[w * 32 + lane]);
      put_sums(j, part * j.c + c, a);
    }
    __syncthreads();
  }
}

// ---------------------------------------------------------------------------------------------
// Of each channel, a warp to it

__device__ static inline double value_of(const parameter &p, int64_t c, double otherwise) {
  return p.data ? k_get<double>(p.dtype, p.data, c * p.stride) : otherwise;
}

// running = (1 - momentum) running + momentum value.
__device__ static inline void update(const parameter &p, int64_t c, double momentum, double value) {
  if (!p.data) return;
  k_put(p.dtype, const_cast<void *>(p.data), c * p.stride,
        (1 - momentum) * value_of(p, c, 0) + momentum * value);
}

template <class T> __global__ void __launch_bounds__(BLOCK) k_statistics(job j) {
  const int lane = threadIdx.x & 31;
  const int64_t each = j.c * j.parts;
  for (int64_t c = static_cast<int64_t>(blockIdx.x) * WARPS + (threadIdx.x >> 5); c < j.c;
       c += static_cast<int64_t>(gridDim.x) * WARPS) {
    moments<double> s = {};
    if (j.reduces) {
#pragma unroll 1
      for (int64_t p = lane; p < j.parts; p += 32) {
        const T *a = static_cast<const T *>(j.partial) + p * j.c + c;
        s = join(s, moments<double>{a[0], a[each], a[2 * each]});
      }
      s = k_warp_reduce(s, [](moments<double> u, moments<double> v) { return join(u, v); });
    }
    if (lane != 0) continue;
    double mean = 0, var = 0;
    if (!j.training) {
      mean = value_of(j.running_mean, c, 0);
      var = value_of(j.running_var, c, 1);
    } else if (s.n > 0) {
      mean = k_get<double>(j.dtype, j.x, c * j.x_step) + s.mean;
      var = s.squares / s.n;
      update(j.running_mean, c, j.momentum, mean);
      update(j.running_var, c, j.momentum, var * s.n / (s.n - 1));
    }
    const double rstd = 1 / sqrt(var + j.eps);
    static_cast<T *>(j.mean)[c] = static_cast<T>(mean);
    static_cast<T *>(j.rstd)[c] = static_cast<T>(rstd);
    static_cast<T *>(j.scale)[c] = static_cast<T>(rstd * value_of(j.weight, c, 1));
    static_cast<T *>(j.shift)[c] = static_cast<T>(value_of(j.bias, c, 0));
  }
}

template <class T> __global__ void __launch_bounds__(BLOCK) k_gradients(job j) {
  const int lane = threadIdx.x & 31;
  const int64_t each = j.c * j.parts;
  for (int64_t c = static_cast<int64_t>(blockIdx.x) * WARPS + (threadIdx.x >> 5); c < j.c;
       c += static_cast<int64_t>(gridDim.x) * WARPS) {
    dots<double> s = {};
    if (j.reduces) {
#pragma unroll 1
      for (int64_t p = lane; p < j.parts; p += 32) {
        const T *a = static_cast<const T *>(j.partial) + p * j.c + c;
        s = join(s, dots<double>{a[0], a[each]});
      }
      s = k_warp_reduce(s, [](dots<double> u, dots<double> v) { return join(u, v); });
    }
    if (lane != 0) continue;
    const double rstd = static_cast<const T *>(j.rstd)[c], m = static_cast<double>(j.m);
    if (j.dw) static_cast<T *>(j.dw)[c] = static_cast<T>(s.dyx * rstd);
    if (j.db) static_cast<T *>(j.db)[c] = static_cast<T>(s.dy);
    static_cast<T *>(j.scale)[c] = static_cast<T>(rstd * value_of(j.weight, c, 1));
    static_cast<T *>(j.a)[c] = static_cast<T>(j.training ? s.dy / m : 0);
    static_cast<T *>(j.b)[c] = static_cast<T>(j.training ? s.dyx / m * rstd * rstd : 0);
  }
}

// ---------------------------------------------------------------------------------------------
// Results

// y = (x - mean) scale + shift; backward dx = (dy - a - (x - mean) b) scale, in training.
namespace {
template <class S, bool backward> struct affine {
  typedef k_computed<S> T;
  __device__ static T of(const job &j, int64_t c, T x, T dy) {
    const T scale = static_cast<const T *>(j.scale)[c];
    if (!backward)
      return (x - static_cast<const T *>(j.mean)[c]) * scale + static_cast<const T *>(j.shift)[c];
    if (!j.training) return dy * scale;
    return (dy - static_cast<const T *>(j.a)[c] -
            (x - static_cast<const T *>(j.mean)[c]) * static_cast<const T *>(j.b)[c]) *
           scale;
  }
};
} // namespace

// The channel of element i of what is dense, and how many elements of its run come before.
__device__ static inline void channel_of(const job &j, int64_t i, int64_t *c, int64_t *rest) {
  if (j.all.numel < INT32_MAX) {
    const uint32_t at = static_cast<uint32_t>(i), inner = static_cast<uint32_t>(j.inner);
    const uint32_t run = at / inner;
    *rest = at - run * inner;
    *c = run % static_cast<uint32_t>(j.c);
  } else {
    const int64_t run = i / j.inner;
    *rest = i - run * j.inner;
    *c = run % j.c;
  }
}

template <class S, bool backward> __global__ void __launch_bounds__(BLOCK) k_apply(job j) {
  const S *x = static_cast<const S *>(j.x), *dy = static_cast<const S *>(j.dy);
  S *out = static_cast<S *>(j.out);
  typedef affine<S, backward> A;
  if (!j.dense) {
    int64_t at[4];
    for (int64_t i = k_index(); i < j.all.numel; i += k_stride()) {
      k_offsets<4>(j.all, i, at);
      const k_computed<S> g = backward ? k_widen(dy[at[2]]) : 0;
      out[at[1]] = k_narrow<S>(A::of(j, at[3], k_widen(x[at[0]]), g));
    }
    return;
  }
  typedef typename vectors<S>::pack pack;
  constexpr int count = vectors<S>::count;
  const int64_t packs = j.all.numel / count;
  for (int64_t i = k_index(); i < packs; i += k_stride()) {
    int64_t c, rest;
    channel_of(j, i * count, &c, &rest);
    const pack p = reinterpret_cast<const pack *>(x)[i];
    const pack q = backward ? reinterpret_cast<const pack *>(dy)[i] : p;
    pack r;
#pragma unroll
    for (int k = 0; k < count; k++) {
      r.v[k] = k_narrow<S>(A::of(j, c, k_widen(p.v[k]), k_widen(q.v[k])));
      if (++rest < j.inner) continue;
      rest = 0;
      if (++c == j.c) c = 0;
    }
    reinterpret_cast<pack *>(out)[i] = r;
  }
  for (int64_t i = packs * count + k_index(); i < j.all.numel; i += k_stride()) {
    int64_t c, rest;
    channel_of(j, i, &c, &rest);
    out[i] = k_narrow<S>(A::of(j, c, k_widen(x[i]), backward ? k_widen(dy[i]) : 0));
  }
}

// ---------------------------------------------------------------------------------------------

// The walk over a channel's elements in vectors, where all of them are whole and aligned.
static bool make_vectors(job *j, const cnn_view *x, const cnn_view *dy, int64_t count) {
  const cuda_walk w = j->walk;
  const int last = w.ndim - 1, views = dy ? 2 : 1;
  const cnn_view *of[] = {x, dy};
  const int64_t steps[] = {j->x_step, j->dy_step};
  int64_t shape[CNN_MAX_DIMS], strides[2][CNN_MAX_DIMS];
  cnn_view v[2];
  const cnn_view *pointers[] = {&v[0], &v[1]};
  if (last < 0 || w.shape[last] % count != 0) return false;
  for (int k = 0; k < views; k++) {
    if (!k_aligned(of[k]->data, 16) || w.strides[k][last] != 1 || steps[k] % count != 0)
      return false;
    for (int d = 0; d < last; d++)
      if ((strides[k][d] = w.strides[k][d]) % count != 0) return false;
    strides[k][last] = count;
    v[k] = cnn_view{of[k]->data, shape, strides[k], w.ndim, of[k]->dtype};
  }
  for (int d = 0; d < last; d++) shape[d] = w.shape[d];
  shape[last] = w.shape[last] / count;
  cuda_walk_ordered(&j->walk, w.ndim, shape, pointers, views);
  return true;
}

// Sets walks and parts of x (N, C, ...), out and dy of its shape; either may be absent.
static void start(const cnn_call *call, job *j, const cnn_view *x, const cnn_view *out,
                  const cnn_view *dy) {
  int64_t shape[CNN_MAX_DIMS], strides[2][CNN_MAX_DIMS], places[CNN_MAX_DIMS] = {0};
  const cnn_view *views[] = {x, dy};
  const int64_t count = 16 / static_cast<int64_t>(cnn_dtype_size(x->dtype));
  j->x = x->data;
  j->dtype = x->dtype;
  j->dy = dy ? dy->data : nullptr;
  j->c = x->shape[1];
  j->m = 1;
  for (int d = 0, at = 0; d < x->ndim; d++)
    if (d != 1) j->m *= shape[at++] = x->shape[d];
  cnn_view v[2];
  const cnn_view *pointers[] = {&v[0], &v[1]};
  for (int k = 0; k < (dy ? 2 : 1); k++) {
    for (int d = 0, at = 0; d < x->ndim; d++)
      if (d != 1) strides[k][at++] = views[k]->strides[d];
    v[k] = cnn_view{views[k]->data, shape, strides[k], x->ndim - 1, x->dtype};
  }
  cuda_walk_make(&j->walk, x->ndim - 1, shape, pointers, dy ? 2 : 1);
  j->x_step = j->c > 1 ? x->strides[1] : 0;
  j->dy_step = dy && j->c > 1 ? dy->strides[1] : 0;
  const int inner = j->walk.ndim - 1;
  j->rows = j->c >= 16 && j->x_step == 1 && (inner < 0 || j->walk.strides[0][inner] > 1);
  j->vector = !j->rows && make_vectors(j, x, dy, count);

  // Parts, as many as fill the device and as keep them short: of whole vectors, and the same ones
  // whether there are vectors or not.
  const int64_t blocks = j->rows ? (j->c + 31) / 32 : j->c;
  const int64_t room = static_cast<int64_t>(cuda_processors(call)) * 4;
  const int64_t least = j->rows ? 32 : 2048, longest = j->rows ? ROWS : PART;
  j->part = longest;
  if (blocks > 0 && blocks < room) {
    const int64_t pieces = room / blocks;
    j->part = ((j->m + pieces - 1) / pieces + 15) / 16 * 16;
  }
  if (j->part < least) j->part = least;
  if (j->part > longest) j->part = longest;
  j->parts = (j->m + j->part - 1) / j->part;
  if (j->vector) j->part /= count;

  if (!out) return;
  const cnn_view channel = {x->data, x->shape, places, x->ndim, x->dtype};
  const cnn_view *all[] = {x, out, dy ? dy : x, &channel};
  j->out = out->data;
  places[1] = 1;
  cuda_walk_make(&j->all, x->ndim, x->shape, all, 3);
  j->dense = cuda_walk_dense(&j->all, 0) && cuda_walk_dense(&j->all, 1) &&
             cuda_walk_dense(&j->all, 2) && k_aligned(x->data, 16) && k_aligned(out->data, 16) &&
             (!dy || k_aligned(dy->data, 16));
  j->inner = j->c > 1 ? x->strides[1] : j->m;
  if (j->inner < 1) j->inner = 1;
  if (!j->dense) cuda_walk_make(&j->all, x->ndim, x->shape, all, 4);
}

static void take(parameter *p, const cnn_view *v) {
  p->data = cnn_view_present(v) ? v->data : nullptr;
  p->dtype = v->dtype;
  p->stride = p->data && v->shape[0] > 1 ? v->strides[0] : 0;
}

static size_t vector_bytes(const job *j, size_t size) {
  return (static_cast<size_t>(j->c) * size + 255) & ~static_cast<size_t>(255);
}

// The scratch: `n` vectors of channels, then partial sums of `words` numbers.
static size_t lay_out(const cnn_call *call, job *j, cnn_dtype computed, void **const *vectors,
                      int n, int words) {
  const size_t size = cnn_dtype_size(computed), each = vector_bytes(j, size);
  char *at = static_cast<char *>(call->scratch);
  for (int i = 0; i < n && at; i++) *vectors[i] = at + static_cast<size_t>(i) * each;
  if (at) j->partial = at + static_cast<size_t>(n) * each;
  const size_t sums = j->reduces ? static_cast<size_t>(j->c * j->parts * words) * size : 0;
  return static_cast<size_t>(n) * each + sums;
}

static unsigned grid_of(const cnn_call *call, int64_t n) {
  const int64_t most = static_cast<int64_t>(cuda_processors(call)) * 32;
  return static_cast<unsigned>(n < most ? n : most);
}

template <class S, template <class> class By>
static cnn_status reduce(const cnn_call *call, const job &j) {
  if (!j.reduces) return CNN_OK;
  if (j.rows)
    return CUDA_LAUNCH(call, (k_rows<S, By>), grid_of(call, (j.c + 31) / 32 * j.parts), BLOCK, 0,
                       j);
  return CUDA_LAUNCH(call, (k_planes<S, By>), grid_of(call, j.c * j.parts), BLOCK, 0, j);
}

template <class S, bool backward> static cnn_status apply(const cnn_call *call, const job &j) {
  if (!j.applies || j.all.numel == 0) return CNN_OK;
  const int64_t count = j.dense ? vectors<S>::count : 1;
  return CUDA_LAUNCH(call, (k_apply<S, backward>), k_grid(call, j.all.numel / count + 1), BLOCK, 0,
                     j);
}

// batch_norm_train(x, weight?, bias?, running_mean?!, running_var?!, momentum, eps)
// batch_norm_eval(x, weight?, bias?, running_mean, running_var, eps)    -> out mean rstd
static size_t start_forward(const cnn_call *call, job *j) {
  const cnn_view *x = &call->in[0];
  j->training = j->reduces = call->n_args == 7;
  j->applies = true;
  start(call, j, x, &call->out[0], nullptr);
  take(&j->weight, &call->in[1]);
  take(&j->bias, &call->in[2]);
  take(&j->running_mean, &call->in[3]);
  take(&j->running_var, &call->in[4]);
  j->momentum = j->training ? cnn_arg_number(&call->args[5]) : 0;
  j->eps = cnn_arg_number(&call->args[j->training ? 6 : 5]);
  j->mean = call->out[1].data;
  j->rstd = call->out[2].data;
  void **const vectors[] = {&j->scale, &j->shift};
  return lay_out(call, j, cnn_dtype_computed(x->dtype), vectors, 2, 3);
}

static cnn_status plan_forward(cnn_call *call) {
  job j = {};
  call->scratch_bytes = start_forward(call, &j);
  return CNN_OK;
}

static cnn_status run_forward(cnn_call *call) {
  job j = {};
  start_forward(call, &j);
  return k_by_float(call, call->in[0].dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    CNN_TRY((reduce<S, by_moments>(call, j)));
    CNN_TRY(CUDA_LAUNCH(call, k_statistics<k_computed<S>>, grid_of(call, (j.c + WARPS - 1) / WARPS),
                        BLOCK, 0, j));
    return apply<S, false>(call, j);
  });
}

CUDA_KERNEL(batch_norm_train, plan_forward, run_forward)
CUDA_KERNEL(batch_norm_eval, plan_forward, run_forward)

// batch_norm_backward(dy, x, mean, rstd, weight?, training, eps, needs) -> dx dw db
static size_t start_backward(const cnn_call *call, job *j) {
  const cnn_view *x = &call->in[1];
  const int64_t needs = call->args[7].i;
  j->applies = needs & NEEDS_X;
  j->training = call->args[5].i != 0;
  j->reduces = j->training || (needs & (NEEDS_W | NEEDS_B));
  start(call, j, x, j->applies ? &call->out[0] : nullptr, &call->in[0]);
  take(&j->weight, &call->in[4]);
  j->mean = call->in[2].data; // saved results of the forward: dense
  j->rstd = call->in[3].data;
  j->dw = needs & NEEDS_W ? call->out[1].data : nullptr;
  j->db = needs & NEEDS_B ? call->out[2].data : nullptr;
  void **const vectors[] = {&j->scale, &j->a, &j->b};
  return lay_out(call, j, cnn_dtype_computed(x->dtype), vectors, 3, 2);
}

static cnn_status plan_backward(cnn_call *call) {
  job j = {};
  call->scratch_bytes = start_backward(call, &j);
  return CNN_OK;
}

static cnn_status run_backward(cnn_call *call) {
  job j = {};
  start_backward(call, &j);
  return k_by_float(call, call->in[1].dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    CNN_TRY((reduce<S, by_dots>(call, j)));
    CNN_TRY(CUDA_LAUNCH(call, k_gradients<k_computed<S>>, grid_of(call, (j.c + WARPS - 1) / WARPS),
                        BLOCK, 0, j));
    return apply<S, true>(call, j);
  });
}

CUDA_KERNEL(batch_norm_backward, plan_backward, run_backward)
