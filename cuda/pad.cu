// SPDX-License-Identifier: MIT
// Kernels of ops/pad.c. Output position i of a dim shows input position i - before where that is
// inside, else what the mode says. The gradient is gathered: an element of dx sums those of dy that
// showed it, in their order, so nothing is added by two threads. Both are bound by the bytes of x
// and y.
#include "kernel.cuh"

#include "base/pad.h"

typedef struct padding {
  int ndim, mode;
  int64_t x_shape[CNN_MAX_DIMS], y_shape[CNN_MAX_DIMS]; // the small tensor and the padded one
  int64_t x_strides[CNN_MAX_DIMS], y_strides[CNN_MAX_DIMS];
  int64_t before[CNN_MAX_DIMS];
  int64_t numel; // of the result, which is dense
} padding;

static void describe(padding *p, const cnn_view *x, const cnn_view *y, const cnn_arg *pad,
                     int64_t mode) {
  p->ndim = x->ndim;
  p->mode = static_cast<int>(mode);
  for (int d = 0; d < x->ndim; d++) {
    const int i = x->ndim - 1 - d;
    p->before[d] = i < pad->n / 2 ? pad->ints[2 * i] : 0;
    p->x_shape[d] = x->shape[d];
    p->y_shape[d] = y->shape[d];
    p->x_strides[d] = x->strides[d];
    p->y_strides[d] = y->strides[d];
  }
}

template <class S>
__global__ void __launch_bounds__(K_BLOCK) k_pad(padding p, S *y, const S *x, S value) {
  for (int64_t i = k_index(); i < p.numel; i += k_stride()) {
    int64_t rest = i, from = 0;
    bool inside = true;
    for (int d = p.ndim - 1; d >= 0; d--) {
      const int64_t k =
          cnn_pad_source(p.mode, k_digit(&rest, p.y_shape[d]) - p.before[d], p.x_shape[d]);
      inside = inside && k >= 0;
      from += k * p.x_strides[d];
    }
    y[i] = inside ? x[from] : value;
  }
}

static cnn_status run_pad(cnn_call *call) {
  const cnn_view *x = &call->in[0], *y = &call->out[0];
  const cnn_arg *value = &call->args[3];
  padding p;
  uint64_t element = 0;
  describe(&p, x, y, &call->args[1], call->args[2].i);
  p.numel = cnn_view_numel(y);
  if (value->kind == CNN_NUMBER)
    cnn_element_set(x->dtype, &element, value->d);
  else
    cnn_element_set_int(x->dtype, &element, value->i);
  return k_by_size(call, x->dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    return CUDA_LAUNCH(call, k_pad<S>, k_grid(call, p.numel), K_BLOCK, 0, p,
                       static_cast<S *>(y->data), static_cast<const S *>(x->data),
                       static_cast<S>(element)); // little endian
  });
}
CUDA_KERNEL(pad, nullptr, run_pad)

// ---------------------------------------------------------------------------------------------

// The positions, by input position k of one dim, that showed it: up to two runs, in rising order,
// with k itself between.
typedef struct shown {
  int64_t first[3], count[3];
} shown;

__device__ static inline void set_run(shown *s, int n, int64_t first, int64_t last, int64_t low,
                                      int64_t high) {
  if (first < low) first = low;
  if (last > high) last = high;
  s->first[n] = first;
  s->count[n] = last < first ? 0 : last - first + 1;
}

__device__ static inline int64_t find_shown(const padding &p, int d, int64_t k, shown *s) {
  const int64_t size = p.x_shape[d];
  const int64_t low = -p.before[d], high = p.y_shape[d] - p.before[d] - 1;
  int64_t left = 0, left_end = -1, right = 0, right_end = -1; // none
  switch (p.mode) {
  case CNN_PAD_REFLECT:
    if (k > 0) left = left_end = -k;
    if (k < size - 1) right = right_end = 2 * (size - 1) - k;
    break;
  case CNN_PAD_REPLICATE:
    if (k == 0) left = low, left_end = -1;
    if (k == size - 1) right = size, right_end = high;
    break;
  case CNN_PAD_CIRCULAR:
    left = left_end = k - size;
    right = right_end = k + size;
    break;
  default: break;
  }
  set_run(s, 0, left, left_end, low, high < -1 ? high : -1);
  set_run(s, 1, k, k, low, high);
  set_run(s, 2, right, right_end, low > size ? low : size, high);
  return s->count[0] + s->count[1] + s->count[2];
}

template <class S>
__global__ void __launch_bounds__(K_BLOCK) k_pad_backward(padding p, S *dx, const S *dy) {
  typedef k_computed<S> T;
  for (int64_t i = k_index(); i < p.numel; i += k_stride()) {
    int64_t rest = i, terms = 1;
    shown s;
    for (int d = p.ndim - 1; d >= 0; d--)
      terms *= find_shown(p, d, k_digit(&rest, p.x_shape[d]), &s);
    T sum = 0;
    for (int64_t n = 0; n < terms; n++) {
      int64_t term = n, from = 0;
      rest = i;
      for (int d = p.ndim - 1; d >= 0; d--) {
        const int64_t all = find_shown(p, d, k_digit(&rest, p.x_shape[d]), &s);
        int64_t at = k_digit(&term, all);
        if (at < s.count[0])
          at += s.first[0];
        else if (at < s.count[0] + s.count[1])
          at += s.first[1] - s.count[0];
        else
          at += s.first[2] - s.count[0] - s.count[1];
        from += (at + p.before[d]) * p.y_strides[d];
      }
      sum += k_widen(dy[from]);
    }
    dx[i] = k_narrow<S>(sum);
  }
}

static cnn_status run_pad_backward(cnn_call *call) {
  const cnn_view *dy = &call->in[0], *dx = &call->out[0];
  padding p;
  describe(&p, dx, dy, &call->args[1], call->args[2].i);
  p.numel = cnn_view_numel(dx);
  return k_by_float(call, dx->dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    return CUDA_LAUNCH(call, k_pad_backward<S>, k_grid(call, p.numel), K_BLOCK, 0, p,
                       static_cast<S *>(dx->data), static_cast<const S *>(dy->data));
  });
}
CUDA_KERNEL(pad_backward, nullptr, run_pad_backward)
