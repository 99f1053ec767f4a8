// SPDX-License-Identifier: MIT
// Kernels of ops/pad.c, row by row along the last dim. Output position i of a dim shows input
// position i - before where that is inside, else what the mode says.
#include "cpu/cpu.h"
#include "cpu/elementwise.h"

#include <string.h>

#include "base/half.h"
#include "base/pad.h"
#include "base/parallel.h"

typedef struct padding {
  cnn_view x, y; // the small tensor and the padded one
  int mode;
  int64_t before[CNN_MAX_DIMS];
  uint64_t value; // an element of x's dtype
} padding;

static void describe(padding *p, const cnn_view *x, const cnn_view *y, const cnn_arg *pad,
                     int mode) {
  p->x = *x;
  p->y = *y;
  p->mode = mode;
  p->value = 0;
  for (int d = 0; d < x->ndim; d++) {
    int i = x->ndim - 1 - d;
    p->before[d] = i < pad->n / 2 ? pad->ints[2 * i] : 0;
  }
}

// A walk over the rows of the padded tensor.
typedef struct walk {
  int64_t index[CNN_MAX_DIMS];
  int64_t in, out; // offsets of the row and of the row of x that it shows (-1: none)
} walk;

static void find_row(const padding *p, walk *w) {
  w->in = w->out = 0;
  for (int d = 0; d < p->x.ndim - 1; d++) {
    int64_t k = cnn_pad_source(p->mode, w->index[d] - p->before[d], p->x.shape[d]);
    w->out += w->index[d] * p->y.strides[d];
    w->in = k < 0 || w->in < 0 ? -1 : w->in + k * p->x.strides[d];
  }
}

static void first_row(const padding *p, int64_t r, walk *w) {
  for (int d = p->x.ndim - 2; d >= 0; d--) {
    w->index[d] = r % p->y.shape[d];
    r /= p->y.shape[d];
  }
  find_row(p, w);
}

static void next_row(const padding *p, walk *w) {
  for (int d = p->x.ndim - 2; d >= 0 && ++w->index[d] == p->y.shape[d]; d--) w->index[d] = 0;
  find_row(p, w);
}

#define RUN(type)                                                                                  \
  do {                                                                                             \
    const type *s = (const type *)from + (in < 0 ? 0 : in);                                        \
    type *t = (type *)to + out, value;                                                             \
    memcpy(&value, &p->value, sizeof value);                                                       \
    for (int64_t i = 0; i < first; i++) {                                                          \
      int64_t k = in < 0 ? -1 : cnn_pad_source(p->mode, i - before, size);                         \
      t[i * st] = k < 0 ? value : s[k * sx];                                                       \
    }                                                                                              \
    if (sx == 1 && st == 1 && last > first)                                                        \
      memcpy(t + first, s + (first - before), (size_t)(last - first) * sizeof(type));              \
    else                                                                                           \
      for (int64_t i = first; i < last; i++) t[i * st] = s[(i - before) * sx];                     \
    for (int64_t i = last; i < width; i++) {                                                       \
      int64_t k = in < 0 ? -1 : cnn_pad_source(p->mode, i - before, size);                         \
      t[i * st] = k < 0 ? value : s[k * sx];                                                       \
    }                                                                                              \
  } while (0)

static void pad_rows(void *arg, int64_t begin, int64_t end) {
  const padding *p = arg;
  int d = p->x.ndim - 1;
  int64_t width = p->y.shape[d], size = p->x.shape[d], before = p->before[d];
  int64_t sx = p->x.strides[d], st = p->y.strides[d];
  const char *from = p->x.data;
  char *to = p->y.data;
  walk w;
  first_row(p, begin, &w);
  for (int64_t r = begin; r < end; r++, next_row(p, &w)) {
    int64_t in = w.in, out = w.out;
    // [first, last) is copied from x as it is; nothing of a row that shows none.
    int64_t first = before < 0 ? 0 : before < width ? before : width;
    int64_t last = size + before < first ? first : size + before < width ? size + before : width;
    if (in < 0) first = last = width;
    switch (cnn_dtype_size(p->x.dtype)) {
    case 1: RUN(uint8_t); break;
    case 2: RUN(uint16_t); break;
    case 4: RUN(uint32_t); break;
    default: RUN(uint64_t); break;
    }
  }
}

static cnn_status run_pad(cnn_call *call) {
  const cnn_view *x = &call->in[0], *y = &call->out[0];
  const cnn_arg *value = &call->args[3];
  padding p;
  int64_t n = cnn_view_numel(y);
  if (n == 0) return CNN_OK;
  if (x->ndim == 0) {
    memcpy(y->data, x->data, cnn_dtype_size(x->dtype));
    return CNN_OK;
  }
  describe(&p, x, y, &call->args[1], (int)call->args[2].i);
  if (value->kind == CNN_NUMBER)
    cnn_element_set(x->dtype, &p.value, value->d);
  else
    cnn_element_set_int(x->dtype, &p.value, value->i);
  int64_t width = y->shape[y->ndim - 1];
  cnn_parallel_for(n / width, 32768 / width + 1, pad_rows, &p);
  return CNN_OK;
}

// ---------------------------------------------------------------------------------------------
// The gradient: dims that are not padded are independent of each other, so the leading ones are cut
// into pieces for threads; within a piece, rows of dy are added in order.

typedef struct gradient {
  padding p;    // x: dx, in the type that sums are in
  int lead;     // leading dims that are not padded
  int64_t rows; // of dy behind them
} gradient;

#define ADD_ROW(type)                                                                              \
  do {                                                                                             \
    type *t = (type *)p->x.data + in;                                                              \
    const type *s = (const type *)p->y.data + out;                                                 \
    for (int64_t i = 0; i < first; i++) {                                                          \
      int64_t k = cnn_pad_source(p->mode, i - before, size);                                       \
      t[k * sx] += s[i * sy];                                                                      \
    }                                                                                              \
    for (int64_t i = first; i < last; i++) t[(i - before) * sx] += s[i * sy];                      \
    for (int64_t i = last; i < width; i++) {                                                       \
      int64_t k = cnn_pad_source(p->mode, i - before, size);                                       \
      t[k * sx] += s[i * sy];                                                                      \
    }                                                                                              \
  } while (0)

#define ADD_HALF(type, to_float)                                                                   \
  do {                                                                                             \
    float *t = (float *)p->x.data + in;                                                            \
    const type *s = (const type *)p->y.data + out;                                                 \
    for (int64_t i = 0; i < width; i++) {                                                          \
      int64_t k = cnn_pad_source(p->mode, i - before, size);                                       \
      t[k * sx] += to_float(s[i * sy]);                                                            \
    }                                                                                              \
  } while (0)

static void add_rows(void *arg, int64_t begin, int64_t end) {
  const gradient *g = arg;
  const padding *p = &g->p;
  int d = p->x.ndim - 1;
  int64_t width = p->y.shape[d], size = p->x.shape[d], before = p->before[d];
  int64_t sx = p->x.strides[d], sy = p->y.strides[d];
  int64_t first = before < 0 ? 0 : before < width ? before : width;
  int64_t last = size + before < first ? first : size + before < width ? size + before : width;
  walk w;
  first_row(p, begin * g->rows, &w);
  for (int64_t r = begin * g->rows; r < end * g->rows; r++, next_row(p, &w)) {
    int64_t in = w.in, out = w.out;
    switch (p->y.dtype) {
    case CNN_F32: ADD_ROW(float); break;
    case CNN_F64: ADD_ROW(double); break;
    case CNN_F16: ADD_HALF(cnn_f16, cnn_f16_to_float); break;
    default: ADD_HALF(cnn_bf16, cnn_bf16_to_float); break;
    }
  }
}

static cnn_status plan_pad_backward(cnn_call *call) {
  if (cnn_dtype_is_half(call->in[0].dtype))
    call->scratch_bytes = (size_t)cnn_view_numel(&call->out[0]) * sizeof(float);
  return CNN_OK;
}

static cnn_status run_pad_backward(cnn_call *call) {
  const cnn_view *dy = &call->in[0], *dx = &call->out[0];
  gradient g;
  int64_t n = cnn_view_numel(dx), outer = 1;
  if (n == 0) return CNN_OK;
  if (dx->ndim == 0) {
    memcpy(dx->data, dy->data, cnn_dtype_size(dx->dtype));
    return CNN_OK;
  }
  bool half = call->scratch_bytes > 0;
  void *sums = half ? call->scratch : dx->data;
  memset(sums, 0, (size_t)n * (half ? sizeof(float) : cnn_dtype_size(dx->dtype)));
  if (cnn_view_numel(dy) > 0) {
    describe(&g.p, dx, dy, &call->args[1], (int)call->args[2].i);
    g.p.x.data = sums;
    for (g.lead = 0; g.lead < dx->ndim - 1; g.lead++) {
      if (dx->shape[g.lead] != dy->shape[g.lead] || g.p.before[g.lead] != 0) break;
      outer *= dx->shape[g.lead];
    }
    int64_t each = cnn_view_numel(dy) / outer;
    g.rows = each / dy->shape[dy->ndim - 1];
    cnn_parallel_for(outer, 32768 / each + 1, add_rows, &g);
  }
  if (half) cnn_convert(n, CNN_F32, sums, dx->dtype, dx->data);
  return CNN_OK;
}

const cnn_kernel cpu_pad = {NULL, run_pad, NULL};
const cnn_kernel cpu_pad_backward = {plan_pad_backward, run_pad_backward, NULL};
