// SPDX-License-Identifier: MIT
// Kernels of ops/rearrange.c. All are bound by the bytes of x and the result, one pass over each.
#include "scan.cuh"

// ---------------------------------------------------------------------------------------------
// flip: a copy of a view with negative strides

static cnn_status run_flip(cnn_call *call) {
  const cnn_view *x = &call->in[0];
  int64_t strides[CNN_MAX_DIMS], offset = 0;
  uint32_t mask = 0;
  if (call->args[1].n > 0)
    CNN_TRY(cnn_check_dims(call->ctx, "dim", &call->args[1], x->ndim, &mask));
  if (cnn_view_numel(x) == 0) return CNN_OK;
  for (int d = 0; d < x->ndim; d++) {
    const bool flips = mask >> d & 1;
    strides[d] = flips ? -x->strides[d] : x->strides[d];
    if (flips) offset += (x->shape[d] - 1) * x->strides[d];
  }
  const int64_t size = cnn_dtype_table[x->dtype].bits / 8;
  const cnn_view from = {static_cast<char *>(x->data) + offset * size, x->shape, strides, x->ndim,
                         x->dtype};
  return cuda_copy_view(call, &call->out[0], &from);
}
CUDA_KERNEL(flip, nullptr, run_flip)

// ---------------------------------------------------------------------------------------------
// roll

typedef struct rolling {
  int ndim;
  int64_t numel, shift;         // as one row
  int64_t shape[CNN_MAX_DIMS];  // of x and the result, which is dense
  int64_t shifts[CNN_MAX_DIMS]; // 0 <= shift < size
  int64_t strides[CNN_MAX_DIMS];
} rolling;

template <class S> __global__ void __launch_bounds__(K_BLOCK) k_roll(rolling r, const S *x, S *y) {
  for (int64_t i = k_index(); i < r.numel; i += k_stride()) {
    int64_t rest = i < r.shift ? i + r.numel - r.shift : i - r.shift, from = 0;
    for (int d = r.ndim - 1; d >= 0; d--) {
      const int64_t at = k_digit(&rest, r.shape[d]) - r.shifts[d];
      from += (at < 0 ? at + r.shape[d] : at) * r.strides[d];
    }
    y[i] = x[from];
  }
}

static int64_t positive_shift(int64_t shift, int64_t size) {
  const int64_t s = shift % size;
  return s < 0 ? s + size : s;
}

static cnn_status run_roll(cnn_call *call) {
  const cnn_view *x = &call->in[0], *y = &call->out[0];
  const cnn_arg *amounts = &call->args[1], *dims = &call->args[2];
  rolling r = {};
  r.numel = cnn_view_numel(x);
  if (r.numel == 0) return CNN_OK;
  r.ndim = x->ndim;
  for (int d = 0; d < x->ndim; d++) {
    r.shape[d] = x->shape[d];
    r.strides[d] = x->strides[d];
  }
  if (!cnn_has(call->args, 2)) {
    r.shift = positive_shift(amounts->ints[0], r.numel);
  } else {
    for (int i = 0; i < dims->n; i++) {
      int d;
      CNN_TRY(cnn_check_dim(call->ctx, "dim", dims->ints[i], x->ndim, &d));
      if (x->ndim > 0) r.shifts[d] = positive_shift(amounts->ints[i], x->shape[d]);
    }
  }
  return k_by_size(call, x->dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    return CUDA_LAUNCH(call, k_roll<S>, k_grid(call, r.numel), K_BLOCK, 0, r,
                       static_cast<const S *>(x->data), static_cast<S *>(y->data));
  });
}
CUDA_KERNEL(roll, nullptr, run_roll)

// ---------------------------------------------------------------------------------------------
// repeat_interleave with a tensor of counts

#define MOST_REPEATS (INT64_C(1) << 40) // no memory holds more

typedef struct repeats {
  const void *data;
  cnn_dtype dtype;
  int64_t stride;
  int64_t *starts; // what comes before each
  cuda_fault *fault;
  int op;
  __device__ int64_t value(int64_t i) const {
    const int64_t n = k_get<int64_t>(dtype, data, i * stride);
    if (n >= 0 && n <= MOST_REPEATS) return n;
    if (fault) k_report(fault, op, cnn_fault{CNN_FAULT_REPEATS, n, 0, 0, i, 0});
    return 0;
  }
  __device__ void emit(int64_t i, int64_t before, int64_t) const { starts[i] = before; }
} repeats;

static repeats repeats_of(const cnn_call *call) {
  const cnn_view *v = &call->in[0];
  repeats r = {};
  r.data = v->data;
  r.dtype = v->dtype;
  r.stride = v->strides[0];
  return r;
}

static cnn_status plan_repeat_count(cnn_call *call) {
  call->scratch_bytes = k_tiles_scratch(call->in[0].shape[0]);
  return CNN_OK;
}
static cnn_status run_repeat_count(cnn_call *call) {
  repeats r = repeats_of(call);
  r.fault = cuda_fault_of(call);
  r.op = cuda_fault_op(call);
  return k_total(call, r, call->in[0].shape[0], static_cast<int64_t *>(call->scratch),
                 static_cast<int64_t *>(call->out[0].data));
}

// The last position whose repeats begin at or before k.
static __global__ void __launch_bounds__(K_BLOCK)
    k_repeat(int64_t n, const int64_t *starts, int64_t total, int64_t *out) {
  for (int64_t k = k_index(); k < total; k += k_stride()) {
    int64_t low = 0, high = n; // starts[low] <= k < starts[high]
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      if (starts[middle] <= k)
        low = middle;
      else
        high = middle;
    }
    out[k] = low + 1;
  }
}

static cnn_status plan_repeat_positions(cnn_call *call) {
  const int64_t n = call->in[0].shape[0];
  call->scratch_bytes = static_cast<size_t>(n) * sizeof(int64_t) + k_tiles_scratch(n);
  return CNN_OK;
}
static cnn_status run_repeat_positions(cnn_call *call) {
  const int64_t n = call->in[0].shape[0], total = call->out[0].shape[0];
  repeats r = repeats_of(call);
  if (total == 0) return CNN_OK;
  r.starts = static_cast<int64_t *>(call->scratch);
  CNN_TRY(k_scan(call, r, n, r.starts + n));
  return CUDA_LAUNCH(call, k_repeat, k_grid(call, total), K_BLOCK, 0, n, r.starts, total,
                     static_cast<int64_t *>(call->out[0].data));
}

CUDA_KERNEL(repeat_count, plan_repeat_count, run_repeat_count)
CUDA_KERNEL(repeat_positions, plan_repeat_positions, run_repeat_positions)

// ---------------------------------------------------------------------------------------------
// Triangles

typedef struct triangle {
  cuda_walk walk; // of the result and x, in row-major order
  int64_t width, height, diagonal;
  bool upper;
} triangle;

// N elements of a row at a time where both are dense.
template <class S, int N>
__global__ void __launch_bounds__(K_BLOCK) k_triangle(triangle t, S *y, const S *x) {
  for (int64_t i = k_index(); i < t.walk.numel / N; i += k_stride()) {
    int64_t rest = i * N, at[2] = {rest, rest};
    if (N == 1) k_offsets<2>(t.walk, i, at);
    const int64_t column = k_digit(&rest, t.width), row = k_digit(&rest, t.height);
    // Of the first element that lies above the diagonal.
    const int64_t split = row + t.diagonal + (t.upper ? 0 : 1) - column;
    k_pack<S, N> v = *reinterpret_cast<const k_pack<S, N> *>(x + at[1]);
#pragma unroll
    for (int k = 0; k < N; k++)
      if ((k >= split) != t.upper) v.v[k] = 0;
    *reinterpret_cast<k_pack<S, N> *>(y + at[0]) = v;
  }
}

static cnn_status triangles(cnn_call *call, bool upper) {
  const cnn_view *x = &call->in[0], *y = &call->out[0];
  const cnn_view *views[] = {y, x};
  triangle t;
  cuda_walk_ordered(&t.walk, x->ndim, x->shape, views, 2);
  if (t.walk.numel == 0) return CNN_OK;
  t.width = x->shape[x->ndim - 1];
  t.height = x->shape[x->ndim - 2];
  t.upper = upper;
  t.diagonal = call->args[1].i;
  // Beyond the matrix, all diagonals are alike (and sums with them can't overflow).
  if (t.diagonal > t.width) t.diagonal = t.width;
  if (t.diagonal < -t.height) t.diagonal = -t.height;
  return k_by_size(call, x->dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    constexpr int N = 16 / sizeof(S);
    S *to = static_cast<S *>(y->data);
    const S *from = static_cast<const S *>(x->data);
    if (cuda_walk_dense(&t.walk, 0) && cuda_walk_dense(&t.walk, 1) && t.width % N == 0 &&
        k_aligned(to, 16) && k_aligned(from, 16))
      return CUDA_LAUNCH(call, (k_triangle<S, N>), k_grid(call, t.walk.numel / N), K_BLOCK, 0, t,
                         to, from);
    return CUDA_LAUNCH(call, (k_triangle<S, 1>), k_grid(call, t.walk.numel), K_BLOCK, 0, t, to,
                       from);
  });
}
static cnn_status run_tril(cnn_call *call) {
  return triangles(call, false);
}
static cnn_status run_triu(cnn_call *call) {
  return triangles(call, true);
}

CUDA_KERNEL(tril, nullptr, run_tril)
CUDA_KERNEL(triu, nullptr, run_triu)
