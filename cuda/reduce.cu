// SPDX-License-Identifier: MIT
// Kernels of ops/reduce.c: a fold each, and how it becomes the result.
#include "moments.cuh"
#include "reduce.cuh"

#include <math.h>

#define PIECE 8192 // elements of a result that are worth a piece of their own

extern "C" void cuda_reduce_make(k_reduce_form *f, const cnn_call *call, const cnn_view *x,
                                 uint32_t dims) {
  const uint32_t all = (1u << x->ndim) - 1;
  memset(f, 0, sizeof *f);
  f->x = x->data;
  f->dtype = x->dtype;
  cuda_walk_dims(&f->kept, x, all & ~dims);
  cuda_walk_dims(&f->reduced, x, dims);
  f->outputs = f->kept.numel;
  f->count = f->reduced.numel;
  for (int i = 0; i < call->n_out && i < 2; i++) {
    f->out[i] = call->out[i].data;
    f->out_dtype[i] = call->out[i].dtype;
  }
  // Columns, where neighbouring results are closer together than the elements of one.
  const int kept = f->kept.ndim, reduced = f->reduced.ndim;
  const int64_t along = reduced ? f->reduced.strides[0][reduced - 1] : 0;
  const bool columns = kept > 0 && f->kept.strides[0][kept - 1] == 1 && along != 1 &&
                       f->kept.shape[kept - 1] >= 16 && f->count > 1;
  f->mode = columns ? K_REDUCE_COLUMNS : f->count > 1024 ? K_REDUCE_BLOCKS : K_REDUCE_WARPS;
  // Pieces, as long as the results alone don't fill the device.
  const int64_t blocks = columns ? (f->outputs + 31) / 32 : f->outputs;
  const int64_t room = static_cast<int64_t>(cuda_processors(call)) * 8;
  const int64_t least = columns ? PIECE / 32 : PIECE;
  int64_t pieces = 1;
  if (blocks > 0 && blocks < room && f->count >= 2 * least) {
    pieces = room / blocks;
    if (pieces > f->count / least) pieces = f->count / least;
    if (pieces < 1) pieces = 1;
  }
  f->step = ((f->count + pieces - 1) / pieces + 15) / 16 * 16;
  if (f->step < 1) f->step = 1;
  f->pieces = f->count > 0 ? (f->count + f->step - 1) / f->step : 1;
  f->vector = !columns && reduced == 1 && along == 1 && k_aligned(x->data, 16);
  for (int d = 0; d < kept && f->vector; d++)
    f->vector = f->kept.strides[0][d] * cnn_dtype_table[x->dtype].bits / 8 % 16 == 0;
}

// ---------------------------------------------------------------------------------------------
// Folds

template <class T_> struct fold_sum {
  typedef T_ T, Acc;
  double scale; // 1, or one over the count
  __device__ Acc zero() const { return 0; }
  __device__ Acc take(Acc a, T x, int64_t) const { return a + x; }
  __device__ Acc merge(Acc a, Acc b) const { return a + b; }
  __device__ void store(const k_reduce_form &f, int64_t o, Acc a) const {
    if (scale == 1)
      k_put(f.out_dtype[0], f.out[0], o, a);
    else // a mean
      k_put(f.out_dtype[0], f.out[0], o, static_cast<double>(a) / scale);
  }
};

template <class T_> struct fold_product {
  typedef T_ T, Acc;
  __device__ Acc zero() const { return 1; }
  __device__ Acc take(Acc a, T x, int64_t) const { return a * x; }
  __device__ Acc merge(Acc a, Acc b) const { return a * b; }
  __device__ void store(const k_reduce_form &f, int64_t o, Acc a) const {
    k_put(f.out_dtype[0], f.out[0], o, a);
  }
};

// How many are not 0.
enum { COUNT, COUNT_ALL, COUNT_ANY };
template <class T_> struct fold_count {
  typedef T_ T;
  typedef int64_t Acc;
  int of;
  __device__ Acc zero() const { return 0; }
  __device__ Acc take(Acc a, T x, int64_t) const { return a + (x != 0); }
  __device__ Acc merge(Acc a, Acc b) const { return a + b; }
  __device__ void store(const k_reduce_form &f, int64_t o, Acc a) const {
    k_put(f.out_dtype[0], f.out[0], o,
          of == COUNT_ALL   ? static_cast<int64_t>(a == f.count)
          : of == COUNT_ANY ? static_cast<int64_t>(a > 0)
                            : a);
  }
};

template <class T_> struct fold_moments {
  typedef T_ T;
  typedef k_moments<T> Acc, Group;
  double correction;
  bool root;
  __device__ Acc zero() const { return Acc{0, 0, 0}; }
  __device__ Acc take(Acc a, T x, int64_t) const { return merge(a, Acc{1, x, 0}); }
  template <int N> __device__ Group group(const T *x) const { return k_moments_of<N>(N, x); }
  __device__ Acc merge(const Acc &a, const Acc &b) const { return k_moments_join(a, b); }
  __device__ void store(const k_reduce_form &f, int64_t o, Acc a) const {
    const double n = static_cast<double>(f.count) - correction;
    const double v = static_cast<double>(a.squares) / (n > 0 ? n : 0);
    k_put(f.out_dtype[0], f.out[0], o, root ? sqrt(v) : v);
  }
};

// The largest, and the sum of e^(x - largest).
template <class T> struct exps { T top, sum; };
template <class T_> struct fold_exps {
  typedef T_ T;
  typedef exps<T> Acc;
  __device__ Acc zero() const { return Acc{-static_cast<T>(INFINITY), 0}; }
  __device__ static T power(T x) {
    if constexpr (sizeof(T) == 4)
      return expf(x);
    else
      return exp(x);
  }
  __device__ Acc take(Acc a, T x, int64_t) const { return merge(a, Acc{x, 1}); }
  __device__ Acc merge(Acc a, Acc b) const {
    if (a.sum == 0) return b;
    if (b.sum == 0) return a;
    const T top = a.top > b.top || a.top != a.top ? a.top : b.top;
    if (top - top != 0) return Acc{top, 1}; // an infinity or NaN decides alone
    return Acc{top, a.sum * power(a.top - top) + b.sum * power(b.top - top)};
  }
  __device__ void store(const k_reduce_form &f, int64_t o, Acc a) const {
    const double top = static_cast<double>(a.top);
    k_put(f.out_dtype[0], f.out[0], o,
          a.sum == 0 || top - top != 0 ? top : top + log(static_cast<double>(a.sum)));
  }
};

// Sums and extremes of |x|.
enum { NORM_COUNT, NORM_ABS, NORM_SQUARES, NORM_MAX, NORM_MIN, NORM_POWERS };
template <class T_> struct fold_norm {
  typedef T_ T, Acc;
  int kind;
  double p;
  __device__ Acc zero() const { return kind == NORM_MIN ? static_cast<T>(INFINITY) : 0; }
  __device__ Acc take(Acc a, T x, int64_t) const {
    const T v = x < 0 ? -x : x;
    switch (kind) {
    case NORM_COUNT: return a + (x != 0 ? 1 : 0);
    case NORM_ABS: return a + v;
    case NORM_SQUARES: return a + x * x;
    case NORM_MAX: return v > a || v != v ? v : a;
    case NORM_MIN: return v < a || v != v ? v : a;
    default:
      if constexpr (sizeof(T) == 4)
        return a + powf(v, static_cast<float>(p));
      else
        return a + pow(v, p);
    }
  }
  __device__ Acc merge(Acc a, Acc b) const {
    if (kind == NORM_MAX) return a > b || a != a ? a : b;
    if (kind == NORM_MIN) return a < b || a != a ? a : b;
    return a + b;
  }
  __device__ void store(const k_reduce_form &f, int64_t o, Acc a) const {
    double v = static_cast<double>(a);
    if (kind == NORM_SQUARES) v = sqrt(v);
    if (kind == NORM_POWERS) v = pow(v, 1 / p);
    k_put(f.out_dtype[0], f.out[0], o, v);
  }
};

// ---------------------------------------------------------------------------------------------
// Calls

static uint32_t dims_of(const cnn_call *call, int arg) {
  uint32_t mask = 0;
  cnn_check_dims(call->ctx, "dim", &call->args[arg], call->in[0].ndim, &mask); // infer passed it
  return mask;
}

static cnn_status plan_dims(cnn_call *call, uint32_t dims) {
  k_reduce_form f;
  cuda_reduce_make(&f, call, &call->in[0], dims);
  call->scratch_bytes = k_reduce_scratch(&f, K_REDUCE_ACC);
  return CNN_OK;
}
static cnn_status plan(cnn_call *call) {
  return plan_dims(call, dims_of(call, 1));
}

// The type to compute in, where the result's says so.
static cnn_dtype computed_of(cnn_dtype dtype) {
  return cnn_dtype_is_float(dtype) ? cnn_dtype_computed(dtype) : CNN_I64;
}

static void make(k_reduce_form *f, const cnn_call *call) {
  cuda_reduce_make(f, call, &call->in[0], dims_of(call, 1));
}

static cnn_status count(cnn_call *call, int of) {
  k_reduce_form f;
  make(&f, call);
  return k_reduce_by(call, computed_of(f.dtype), &f,
                     [&](auto tag) { return fold_count<typename decltype(tag)::type>{of}; });
}

static cnn_status sum(cnn_call *call, k_reduce_form *f, cnn_dtype dtype, double scale) {
  return k_reduce_by(call, computed_of(dtype), f,
                     [&](auto tag) { return fold_sum<typename decltype(tag)::type>{scale}; });
}

// Bools are added by "or", and multiplied by "and".
static cnn_status run_sum(cnn_call *call) {
  k_reduce_form f;
  if (call->out[0].dtype == CNN_BOOL) return count(call, COUNT_ANY);
  make(&f, call);
  return sum(call, &f, call->out[0].dtype, 1);
}
static cnn_status run_mean(cnn_call *call) {
  k_reduce_form f;
  make(&f, call);
  return sum(call, &f, call->out[0].dtype,
             f.count == 1 ? 1 : static_cast<double>(f.count)); // 0 / 0 is NaN
}
static cnn_status run_prod(cnn_call *call) {
  k_reduce_form f;
  if (call->out[0].dtype == CNN_BOOL) return count(call, COUNT_ALL);
  make(&f, call);
  return k_reduce_by(call, computed_of(call->out[0].dtype), &f,
                     [&](auto tag) { return fold_product<typename decltype(tag)::type>(); });
}

// The dims in which x is larger than the shape it is summed to.
static uint32_t summed_dims(const cnn_call *call) {
  const cnn_view *x = &call->in[0];
  const cnn_arg *shape = &call->args[1];
  const int lead = x->ndim - shape->n;
  uint32_t mask = 0;
  for (int d = 0; d < x->ndim; d++)
    if (d < lead || shape->ints[d - lead] != x->shape[d]) mask |= 1u << d;
  return mask;
}
static cnn_status plan_sum_to(cnn_call *call) {
  return plan_dims(call, summed_dims(call));
}
static cnn_status run_sum_to(cnn_call *call) {
  k_reduce_form f;
  cuda_reduce_make(&f, call, &call->in[0], summed_dims(call));
  return sum(call, &f, call->in[0].dtype, 1);
}

static cnn_status run_all(cnn_call *call) {
  return count(call, COUNT_ALL);
}
static cnn_status run_any(cnn_call *call) {
  return count(call, COUNT_ANY);
}
static cnn_status run_count_nonzero(cnn_call *call) {
  return count(call, COUNT);
}

// args: x dim unbiased keepdim correction
static cnn_status variance(cnn_call *call, bool root) {
  k_reduce_form f;
  make(&f, call);
  double correction = call->args[2].kind == CNN_INT ? static_cast<double>(call->args[2].i) : 1;
  if (cnn_has(call->args, 4)) correction = cnn_arg_number(&call->args[4]);
  return f.dtype == CNN_F64
             ? k_reduce_launch<k_direct<double, double>>(call,
                                                         fold_moments<double>{correction, root}, &f)
             : k_reduce_launch<k_converted<float>>(call, fold_moments<float>{correction, root}, &f);
}
static cnn_status run_var(cnn_call *call) {
  return variance(call, false);
}
static cnn_status run_std(cnn_call *call) {
  return variance(call, true);
}

static cnn_status run_logsumexp(cnn_call *call) {
  k_reduce_form f;
  make(&f, call);
  return f.dtype == CNN_F64
             ? k_reduce_launch<k_direct<double, double>>(call, fold_exps<double>(), &f)
             : k_reduce_launch<k_converted<float>>(call, fold_exps<float>(), &f);
}

// args: x p dim keepdim
static cnn_status plan_norm(cnn_call *call) {
  return plan_dims(call, dims_of(call, 2));
}
static cnn_status run_norm(cnn_call *call) {
  k_reduce_form f;
  cuda_reduce_make(&f, call, &call->in[0], dims_of(call, 2));
  const double p = cnn_arg_number(&call->args[1]);
  const int kind = p == 2           ? NORM_SQUARES
                   : p == 1         ? NORM_ABS
                   : p == 0         ? NORM_COUNT
                   : p == INFINITY  ? NORM_MAX
                   : p == -INFINITY ? NORM_MIN
                                    : NORM_POWERS;
  return f.dtype == CNN_F64
             ? k_reduce_launch<k_direct<double, double>>(call, fold_norm<double>{kind, p}, &f)
             : k_reduce_launch<k_converted<float>>(call, fold_norm<float>{kind, p}, &f);
}

CUDA_KERNEL(sum, plan, run_sum)
CUDA_KERNEL(sum_to, plan_sum_to, run_sum_to)
CUDA_KERNEL(mean, plan, run_mean)
CUDA_KERNEL(prod, plan, run_prod)
CUDA_KERNEL(all, plan, run_all)
CUDA_KERNEL(any, plan, run_any)
CUDA_KERNEL(count_nonzero, plan, run_count_nonzero)
CUDA_KERNEL(var, plan, run_var)
CUDA_KERNEL(std, plan, run_std)
CUDA_KERNEL(norm, plan_norm, run_norm)
CUDA_KERNEL(logsumexp, plan, run_logsumexp)
