// SPDX-License-Identifier: MIT
// Kernels of ops/rearrange.c.
#include "cpu/copy.h"
#include "cpu/cpu.h"
#include "engine/fault.h"

#include <string.h>

#include "base/parallel.h"

static char *at(const cnn_view *v, int64_t offset) {
  return (char *)v->data + offset * (int64_t)cnn_dtype_size(v->dtype);
}

// ---------------------------------------------------------------------------------------------
// flip and roll: copies between views

static cnn_status run_flip(cnn_call *call) {
  const cnn_view *x = &call->in[0];
  cnn_view from = *x;
  int64_t strides[CNN_MAX_DIMS], offset = 0;
  uint32_t mask = 0;
  if (call->args[1].n > 0)
    CNN_TRY(cnn_check_dims(call->ctx, "dim", &call->args[1], x->ndim, &mask));
  if (cnn_view_numel(x) == 0) return CNN_OK;
  for (int d = 0; d < x->ndim; d++) {
    bool flips = mask >> d & 1;
    strides[d] = flips ? -x->strides[d] : x->strides[d];
    if (flips) offset += (x->shape[d] - 1) * x->strides[d];
  }
  from.strides = strides;
  from.data = at(x, offset);
  cnn_copy_view(&call->out[0], &from);
  return CNN_OK;
}

// Copies the pieces that the shifts of dims from d on cut x into.
static void roll(cnn_view *to, cnn_view *from, const int64_t *shifts, int64_t *shape, int d) {
  while (d < to->ndim && shifts[d] == 0) d++;
  if (d == to->ndim) {
    cnn_copy_view(to, from);
    return;
  }
  int64_t size = shape[d], shift = shifts[d];
  char *source = from->data, *target = to->data;
  shape[d] = size - shift;
  to->data = at(to, shift * to->strides[d]);
  roll(to, from, shifts, shape, d + 1);
  shape[d] = shift;
  to->data = target;
  from->data = at(from, (size - shift) * from->strides[d]);
  roll(to, from, shifts, shape, d + 1);
  from->data = source;
  shape[d] = size;
}

static int64_t positive_shift(int64_t shift, int64_t size) {
  int64_t s = shift % size;
  return s < 0 ? s + size : s;
}

static cnn_status run_roll(cnn_call *call) {
  const cnn_view *x = &call->in[0];
  const cnn_arg *amounts = &call->args[1], *dims = &call->args[2];
  cnn_view from = *x, to = call->out[0];
  int64_t shifts[CNN_MAX_DIMS] = {0}, shape[CNN_MAX_DIMS], n = cnn_view_numel(x);
  if (n == 0) return CNN_OK;
  for (int d = 0; d < x->ndim; d++) shape[d] = x->shape[d];
  from.shape = to.shape = shape;
  if (cnn_has(call->args, 2)) {
    for (int i = 0; i < dims->n; i++) {
      int d;
      CNN_TRY(cnn_check_dim(call->ctx, "dim", dims->ints[i], x->ndim, &d));
      if (x->ndim > 0) shifts[d] = positive_shift(amounts->ints[i], shape[d]);
    }
    roll(&to, &from, shifts, shape, 0);
    return CNN_OK;
  }
  // As one row: a contiguous x is one; another is first copied, then rolled in scratch.
  int64_t one = 1;
  cnn_view row = {call->scratch, &n, &one, 1, x->dtype};
  shifts[0] = positive_shift(amounts->ints[0], n);
  if (call->scratch_bytes > 0) {
    cnn_view image = call->out[0];
    image.data = call->scratch;
    cnn_copy_view(&image, x);
  } else {
    row.data = x->data;
  }
  to = row;
  to.data = call->out[0].data;
  roll(&to, &row, shifts, &n, 0);
  return CNN_OK;
}

static cnn_status plan_roll(cnn_call *call) {
  const cnn_view *x = &call->in[0];
  if (!cnn_has(call->args, 2) && !cnn_strides_contiguous(x->ndim, x->shape, x->strides))
    call->scratch_bytes = (size_t)cnn_view_numel(x) * cnn_dtype_size(x->dtype);
  return CNN_OK;
}

const cnn_kernel cpu_flip = {NULL, run_flip, NULL};
const cnn_kernel cpu_roll = {plan_roll, run_roll, NULL};

// ---------------------------------------------------------------------------------------------
// repeat_interleave with a tensor of counts

static int64_t count_at(const cnn_view *v, int64_t i) {
  return cnn_element_get_int(v->dtype, at(v, i * v->strides[0]));
}

static cnn_status run_repeat_count(cnn_call *call) {
  const cnn_view *repeats = &call->in[0];
  int64_t sum = 0;
  for (int64_t i = 0; i < repeats->shape[0]; i++) {
    int64_t n = count_at(repeats, i);
    if (n < 0 || __builtin_add_overflow(sum, n, &sum))
      return cnn_fault_raise(call->ctx,
                             &(cnn_fault){.kind = CNN_FAULT_REPEATS, .value = n, .at = i});
  }
  *(int64_t *)call->out[0].data = sum;
  return CNN_OK;
}

static cnn_status run_repeat_positions(cnn_call *call) {
  const cnn_view *repeats = &call->in[0];
  int64_t *out = call->out[0].data;
  for (int64_t i = 0; i < repeats->shape[0]; i++)
    for (int64_t n = count_at(repeats, i); n > 0; n--) *out++ = i + 1;
  return CNN_OK;
}

const cnn_kernel cpu_repeat_count = {NULL, run_repeat_count, NULL};
const cnn_kernel cpu_repeat_positions = {NULL, run_repeat_positions, NULL};

// ---------------------------------------------------------------------------------------------
// Triangles, row by row

typedef struct triangle {
  cnn_view x, y;
  int64_t diagonal;
  bool upper;
} triangle;

static void move_row(size_t size, int64_t n, const char *x, int64_t sx, char *y, int64_t sy) {
  if (sx == 1 && sy == 1)
    memmove(y, x, (size_t)n * size);
  else
    for (int64_t j = 0; j < n; j++)
      memcpy(y + j * sy * (int64_t)size, x + j * sx * (int64_t)size, size);
}

static void clear_row(size_t size, int64_t n, char *y, int64_t sy) {
  if (sy == 1)
    memset(y, 0, (size_t)n * size);
  else
    for (int64_t j = 0; j < n; j++) memset(y + j * sy * (int64_t)size, 0, size);
}

static void triangle_rows(void *arg, int64_t begin, int64_t end) {
  const triangle *t = arg;
  int rows = t->x.ndim - 2, columns = t->x.ndim - 1;
  int64_t width = t->x.shape[columns], height = t->x.shape[rows];
  int64_t sx = t->x.strides[columns], sy = t->y.strides[columns];
  size_t size = cnn_dtype_size(t->x.dtype);
  for (int64_t r = begin; r < end; r++) {
    int64_t i = r % height, rest = r / height;
    int64_t a = i * t->x.strides[rows], b = i * t->y.strides[rows];
    for (int d = rows - 1; d >= 0; d--) {
      int64_t k = rest % t->x.shape[d];
      a += k * t->x.strides[d], b += k * t->y.strides[d];
      rest /= t->x.shape[d];
    }
    // The first column of the upper part: of what is kept, or of what becomes 0.
    int64_t split = t->upper ? i + t->diagonal : i + t->diagonal + 1;
    split = split < 0 ? 0 : split > width ? width : split;
    char *y = at(&t->y, b);
    int64_t first = t->upper ? split : 0, n = t->upper ? width - split : split;
    move_row(size, n, at(&t->x, a + first * sx), sx, at(&t->y, b + first * sy), sy);
    if (t->upper)
      clear_row(size, split, y, sy);
    else
      clear_row(size, width - split, at(&t->y, b + split * sy), sy);
  }
}

static cnn_status run_triangle(cnn_call *call, bool upper) {
  int64_t n = cnn_view_numel(&call->in[0]);
  triangle t = {call->in[0], call->out[0], call->args[1].i, upper};
  if (n == 0) return CNN_OK;
  int64_t width = t.x.shape[t.x.ndim - 1], height = t.x.shape[t.x.ndim - 2];
  // Beyond the matrix, all diagonals are alike (and sums with them can't overflow).
  if (t.diagonal > width) t.diagonal = width;
  if (t.diagonal < -height) t.diagonal = -height;
  cnn_parallel_for(n / width, 65536 / width + 1, triangle_rows, &t);
  return CNN_OK;
}
static cnn_status run_tril(cnn_call *call) {
  return run_triangle(call, false);
}
static cnn_status run_triu(cnn_call *call) {
  return run_triangle(call, true);
}

const cnn_kernel cpu_tril = {NULL, run_tril, NULL};
const cnn_kernel cpu_triu = {NULL, run_triu, NULL};
