// SPDX-License-Identifier: MIT
// Kernels of ops/create.c.
#include "kernel.cuh"

// ---------------------------------------------------------------------------------------------
// One value: a copy of a number that lies in the CPU's memory

static cnn_status fill(const cnn_call *call, const cnn_view *v, const cnn_arg *value) {
  uint64_t element = 0;
  if (value->kind == CNN_NUMBER)
    cnn_element_set(v->dtype, &element, value->d);
  else
    cnn_element_set_int(v->dtype, &element, value->i);
  cnn_view number;
  number.data = &element;
  number.shape = number.strides = nullptr;
  number.ndim = 0;
  number.dtype = v->dtype;
  return cuda_copy_view(call, v, &number);
}

static cnn_status fill_int(const cnn_call *call, const cnn_view *v, int64_t value) {
  cnn_arg a;
  a.kind = CNN_INT;
  a.n = 0;
  a.i = value;
  return fill(call, v, &a);
}

cnn_status cuda_fill_view(const cnn_call *call, const cnn_view *v, double value) {
  cnn_arg a;
  a.kind = CNN_NUMBER;
  a.n = 0;
  a.d = value;
  return fill(call, v, &a);
}

static cnn_status run_full(cnn_call *call) {
  return fill(call, &call->out[0], &call->args[1]);
}
static cnn_status run_zeros(cnn_call *call) {
  return fill_int(call, &call->out[0], 0);
}
static cnn_status run_ones(cnn_call *call) {
  return fill_int(call, &call->out[0], 1);
}
static cnn_status run_fill(cnn_call *call) {
  return fill(call, &call->in[0], &call->args[1]);
}
static cnn_status run_zero(cnn_call *call) {
  return fill_int(call, &call->in[0], 0);
}
static cnn_status run_empty(cnn_call *call) {
  (void)call;
  return CNN_OK;
}

CUDA_KERNEL(full, nullptr, run_full)
CUDA_KERNEL(full_like, nullptr, run_full)
CUDA_KERNEL(zeros, nullptr, run_zeros)
CUDA_KERNEL(zeros_like, nullptr, run_zeros)
CUDA_KERNEL(ones, nullptr, run_ones)
CUDA_KERNEL(ones_like, nullptr, run_ones)
CUDA_KERNEL(empty, nullptr, run_empty)
CUDA_KERNEL(empty_like, nullptr, run_empty)
CUDA_KERNEL(fill_, nullptr, run_fill)
CUDA_KERNEL(zero_, nullptr, run_zero)

// ---------------------------------------------------------------------------------------------
// Numbers in a row: computed as doubles, or as integers where all is integral

typedef struct row {
  int64_t n;
  bool integral, powers, from_both_ends; // linspace: the second half counts back from stop
  int64_t first, by;                     // integral
  double start, stop, step, base;
} row;

template <class S> __global__ void __launch_bounds__(K_BLOCK) k_row(S *y, row r) {
  const int64_t half = r.from_both_ends ? r.n / 2 : r.n;
  for (int64_t i = k_index(); i < r.n; i += k_stride()) {
    if (r.integral) {
      y[i] = k_narrow<S>(static_cast<k_computed<S>>(
          static_cast<int64_t>(static_cast<uint64_t>(r.first) +
                               static_cast<uint64_t>(i) * static_cast<uint64_t>(r.by))));
      continue;
    }
    double v = i < half ? r.start + r.step * static_cast<double>(i)
                        : r.stop - r.step * static_cast<double>(r.n - 1 - i);
    if (r.powers) v = pow(r.base, v);
    if constexpr (k_is_bool<S>::value)
      y[i] = k_narrow<S>(v);
    else
      y[i] = k_narrow<S>(static_cast<k_computed<S>>(v));
  }
}

static cnn_status run_row(const cnn_call *call, row *r) {
  const cnn_view *y = &call->out[0];
  r->n = y->shape[0];
  return k_by_any(call, y->dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    return CUDA_LAUNCH(call, k_row<S>, k_grid(call, r->n), K_BLOCK, 0, static_cast<S *>(y->data),
                       *r);
  });
}

static cnn_status run_arange(cnn_call *call) {
  const cnn_arg *a = call->args;
  const bool one = !cnn_has(a, 1);
  cnn_arg start = a[0];
  if (one || !cnn_has(a, 0)) start.kind = CNN_INT, start.i = 0;
  row r = {};
  r.start = cnn_arg_number(&start);
  r.step = cnn_arg_number(&a[2]);
  // Floats are exact in a double up to 2^53.
  r.integral =
      start.kind == CNN_INT && a[2].kind == CNN_INT && !cnn_dtype_is_float(call->out[0].dtype);
  if (r.integral) r.first = start.i, r.by = a[2].i;
  return run_row(call, &r);
}

static cnn_status run_spaced(const cnn_call *call, bool powers, double base) {
  row r = {};
  r.start = cnn_arg_number(&call->args[0]);
  r.stop = cnn_arg_number(&call->args[1]);
  r.powers = powers;
  r.base = base;
  r.from_both_ends = true;
  const int64_t n = call->out[0].shape[0];
  r.step = n > 1 ? (r.stop - r.start) / static_cast<double>(n - 1) : 0;
  if (n == 1) r.stop = r.start;
  return run_row(call, &r);
}
static cnn_status run_linspace(cnn_call *call) {
  return run_spaced(call, false, 0);
}
static cnn_status run_logspace(cnn_call *call) {
  return run_spaced(call, true, cnn_arg_number(&call->args[3]));
}

CUDA_KERNEL(arange, nullptr, run_arange)
CUDA_KERNEL(linspace, nullptr, run_linspace)
CUDA_KERNEL(logspace, nullptr, run_logspace)

template <class S>
__global__ void __launch_bounds__(K_BLOCK) k_eye(S *y, int64_t rows, int64_t columns, S one) {
  for (int64_t i = k_index(); i < rows * columns; i += k_stride())
    y[i] = i / columns == i % columns ? one : S(0);
}

static cnn_status run_eye(cnn_call *call) {
  const cnn_view *y = &call->out[0];
  uint64_t element = 0;
  cnn_element_set_int(y->dtype, &element, 1);
  return k_by_size(call, y->dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    return CUDA_LAUNCH(call, k_eye<S>, k_grid(call, y->shape[0] * y->shape[1]), K_BLOCK, 0,
                       static_cast<S *>(y->data), y->shape[0], y->shape[1],
                       static_cast<S>(element)); // little endian
  });
}
CUDA_KERNEL(eye, nullptr, run_eye)
