// SPDX-License-Identifier: MIT
#include "cpu/elementwise.h"

#include <string.h>

#include "base/half.h"
#include "base/parallel.h"
#include "cpu/clones.h"
#include "cpu/copy.h"

#define DEFAULT_GRAIN 32768

// ---------------------------------------------------------------------------------------------
// Nests

static int64_t view_stride(const cnn_view *v, int dims, int d) {
  int own = d - (dims - v->ndim);
  if (own < 0 || (v->shape[own] == 1)) return 0;
  return v->strides[own];
}

void cnn_nest_make(cnn_nest *nest, int ndim, const int64_t *shape, const cnn_view *const *views,
                   int n) {
  nest->n_views = n;
  nest->ndim = 0;
  nest->numel = 1;
  for (int k = 0; k < n; k++) {
    nest->data[k] = views[k]->data;
    nest->size[k] = cnn_dtype_size(views[k]->dtype);
  }
  // Dims of more than one element, the first view's largest stride outermost (insertion sort).
  for (int d = 0; d < ndim; d++) {
    nest->numel *= shape[d];
    if (shape[d] == 1) continue;
    int64_t s = view_stride(views[0], ndim, d);
    int at = nest->ndim++;
    for (; at > 0 && nest->strides[0][at - 1] < s && s > 0; at--) {
      nest->shape[at] = nest->shape[at - 1];
      for (int k = 0; k < n; k++) nest->strides[k][at] = nest->strides[k][at - 1];
    }
    nest->shape[at] = shape[d];
    for (int k = 0; k < n; k++) nest->strides[k][at] = view_stride(views[k], ndim, d);
  }
  // Neighbouring dims that are one run in every view become one.
  int last = 0;
  for (int d = 1; d < nest->ndim; d++) {
    bool joins = true;
    for (int k = 0; k < n && joins; k++)
      joins = nest->strides[k][last] == nest->strides[k][d] * nest->shape[d];
    if (joins)
      nest->shape[last] *= nest->shape[d];
    else
      nest->shape[++last] = nest->shape[d];
    for (int k = 0; k < n; k++) nest->strides[k][last] = nest->strides[k][d];
  }
  if (nest->ndim > 0) nest->ndim = last + 1;
}

// Walks n elements from `at`, innermost run by innermost run.
static void walk(const cnn_nest *nest, int k, int64_t at, int64_t n, char *buffer, bool gather) {
  int inner = nest->ndim - 1;
  size_t size = nest->size[k];
  if (inner < 0) {
    if (gather)
      memcpy(buffer, nest->data[k], size);
    else
      memcpy(nest->data[k], buffer, size);
    return;
  }
  int64_t index[CNN_MAX_DIMS], rest = at, offset = 0;
  for (int d = inner; d >= 0; d--) {
    index[d] = rest % nest->shape[d];
    rest /= nest->shape[d];
    offset += index[d] * nest->strides[k][d];
  }
  while (n > 0) {
    int64_t run = nest->shape[inner] - index[inner];
    if (run > n) run = n;
    char *p = nest->data[k] + offset * (int64_t)size;
    if (gather)
      cnn_copy_run(size, run, buffer, 1, p, nest->strides[k][inner]);
    else
      cnn_copy_run(size, run, p, nest->strides[k][inner], buffer, 1);
    buffer += (size_t)run * size;
    n -= run;
    offset += run * nest->strides[k][inner];
    index[inner] += run;
    for (int d = inner; d > 0 && index[d] == nest->shape[d]; d--) {
      offset += nest->strides[k][d - 1] - index[d] * nest->strides[k][d];
      index[d] = 0;
      index[d - 1]++;
    }
  }
}

void cnn_nest_gather(const cnn_nest *nest, int k, int64_t at, int64_t n, void *buffer) {
  walk(nest, k, at, n, buffer, true);
}

void cnn_nest_scatter(const cnn_nest *nest, int k, int64_t at, int64_t n, const void *buffer) {
  walk(nest, k, at, n, (char *)(uintptr_t)buffer, false);
}

void cnn_nest_offsets(const cnn_nest *nest, int k, int64_t at, int64_t n, int64_t *offsets) {
  int inner = nest->ndim - 1;
  if (inner <= 0) {
    int64_t step = inner == 0 ? nest->strides[k][0] : 0, v = at * step;
    for (int64_t i = 0; i < n; i++, v += step) offsets[i] = v;
    return;
  }
  int64_t index[CNN_MAX_DIMS], rest = at, offset = 0;
  for (int d = inner; d >= 0; d--) {
    index[d] = rest % nest->shape[d];
    rest /= nest->shape[d];
    offset += index[d] * nest->strides[k][d];
  }
  int64_t step = nest->strides[k][inner];
  while (n > 0) {
    int64_t run = nest->shape[inner] - index[inner];
    if (run > n) run = n;
    for (int64_t i = 0; i < run; i++, offset += step) offsets[i] = offset;
    offsets += run;
    n -= run;
    index[inner] += run;
    for (int d = inner; d > 0 && index[d] == nest->shape[d]; d--) {
      offset += nest->strides[k][d - 1] - index[d] * nest->strides[k][d];
      index[d] = 0;
      index[d - 1]++;
    }
  }
}

// ---------------------------------------------------------------------------------------------
// Conversion: from any dtype to float, double or int64 and on. Direct loops where it is common.

#define LOOP(S, D, expr)                                                                           \
  do {                                                                                             \
    const S *s = source;                                                                           \
    D *t = target;                                                                                 \
    for (int64_t i = 0; i < n; i++) {                                                              \
      S v = s[i];                                                                                  \
      t[i] = expr;                                                                                 \
    }                                                                                              \
  } while (0)

CNN_CLONES static void f16_to_f32(int64_t n, const void *source, void *target) {
  LOOP(cnn_f16, float, cnn_f16_to_float(v));
}
CNN_CLONES static void bf16_to_f32(int64_t n, const void *source, void *target) {
  LOOP(cnn_bf16, float, cnn_bf16_to_float(v));
}
CNN_CLONES static void f32_to_f16(int64_t n, const void *source, void *target) {
  LOOP(float, cnn_f16, cnn_float_to_f16(v));
}
CNN_CLONES static void f32_to_bf16(int64_t n, const void *source, void *target) {
  LOOP(float, cnn_bf16, cnn_float_to_bf16(v));
}

// A float that the integer type can't hold saturates; NaN gives 0.
#define TO_INT(S, D, low, high)                                                                    \
  LOOP(S, D, (v != v ? 0 : v >= (S)(high) ? (D)(high) : v <= (S)(low) ? (D)(low) : (D)v))

#define FROM(S)                                                                                    \
  switch (to) {                                                                                    \
  case CNN_F32: LOOP(S, float, (float)v); return;                                                  \
  case CNN_F64: LOOP(S, double, (double)v); return;                                                \
  case CNN_F16: LOOP(S, cnn_f16, cnn_float_to_f16((float)v)); return;                              \
  case CNN_BF16: LOOP(S, cnn_bf16, cnn_float_to_bf16((float)v)); return;                           \
  case CNN_BOOL: LOOP(S, cnn_bool, v != 0); return;                                                \
  default: break;                                                                                  \
  }
#define FROM_INT(S)                                                                                \
  do {                                                                                             \
    FROM(S)                                                                                        \
    switch (to) {                                                                                  \
    case CNN_I64: LOOP(S, int64_t, (int64_t)v); return;                                            \
    case CNN_I32: LOOP(S, int32_t, (int32_t)v); return;                                            \
    case CNN_I16: LOOP(S, int16_t, (int16_t)v); return;                                            \
    case CNN_I8: LOOP(S, int8_t, (int8_t)v); return;                                               \
    default: LOOP(S, uint8_t, (uint8_t)v); return;                                                 \
    }                                                                                              \
  } while (0)
#define FROM_FLOAT(S)                                                                              \
  do {                                                                                             \
    FROM(S)                                                                                        \
    switch (to) {                                                                                  \
    case CNN_I64: TO_INT(S, int64_t, INT64_MIN, INT64_MAX); return;                                \
    case CNN_I32: TO_INT(S, int32_t, INT32_MIN, INT32_MAX); return;                                \
    case CNN_I16: TO_INT(S, int16_t, INT16_MIN, INT16_MAX); return;                                \
    case CNN_I8: TO_INT(S, int8_t, INT8_MIN, INT8_MAX); return;                                    \
    default: TO_INT(S, uint8_t, 0, UINT8_MAX); return;                                             \
    }                                                                                              \
  } while (0)

static void convert_half(int64_t n, cnn_dtype from, const void *source, cnn_dtype to,
                         void *target) {
  float piece[256];
  const cnn_f16 *s = source; // both half types are two bytes
  char *t = target;
  for (int64_t i = 0; i < n; i += 256) {
    int64_t m = n - i < 256 ? n - i : 256;
    if (from == CNN_F16)
      f16_to_f32(m, s + i, piece);
    else
      bf16_to_f32(m, s + i, piece);
    cnn_convert(m, CNN_F32, piece, to, t + (size_t)i * cnn_dtype_size(to));
  }
}

void cnn_convert(int64_t n, cnn_dtype from, const void *source, cnn_dtype to, void *target) {
  if (from == to) {
    if (source != target) memmove(target, source, (size_t)n * cnn_dtype_size(from));
    return;
  }
  switch (from) {
  case CNN_F32:
    if (to == CNN_F16)
      f32_to_f16(n, source, target);
    else if (to == CNN_BF16)
      f32_to_bf16(n, source, target);
    else
      FROM_FLOAT(float);
    return;
  case CNN_F64: FROM_FLOAT(double);
  case CNN_F16:
  case CNN_BF16:
    if (to != CNN_F32)
      convert_half(n, from, source, to, target);
    else if (from == CNN_F16)
      f16_to_f32(n, source, target);
    else
      bf16_to_f32(n, source, target);
    return;
  case CNN_I64: FROM_INT(int64_t);
  case CNN_I32: FROM_INT(int32_t);
  case CNN_I16: FROM_INT(int16_t);
  case CNN_I8: FROM_INT(int8_t);
  default: FROM_INT(uint8_t);
  }
}

// ---------------------------------------------------------------------------------------------
// The driver

typedef struct job {
  cnn_nest nest; // view 0 is the result, view 1 + k input k
  cnn_piece_fn fn;
  int n_in;
  cnn_dtype stored[CNN_MAX_OPERANDS];   // as in memory
  cnn_dtype computed[CNN_MAX_OPERANDS]; // as fn sees it
  bool scalar[CNN_MAX_OPERANDS];
  const void *p;
} job;

typedef union piece {
  double align;
  char bytes[CNN_PIECE * 8];
} piece;

#define FILL(T)                                                                                    \
  do {                                                                                             \
    T v, *t = (T *)(void *)buffer->bytes;                                                          \
    memcpy(&v, &element, sizeof v);                                                                \
    for (int64_t i = 0; i < n; i++) t[i] = v;                                                      \
    return;                                                                                        \
  } while (0)

static void fill_scalar(cnn_dtype stored, const void *data, cnn_dtype computed, int64_t n,
                        piece *buffer) {
  double element;
  size_t size = cnn_dtype_size(computed);
  cnn_convert(1, stored, data, computed, &element);
  if (n > CNN_PIECE) n = CNN_PIECE;
  switch (size) {
  case 8: FILL(uint64_t);
  case 4: FILL(uint32_t);
  case 2: FILL(uint16_t);
  default: FILL(uint8_t);
  }
}

static void run_range(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  const cnn_nest *nest = &j->nest;
  piece buffers[CNN_MAX_OPERANDS], raw;
  const void *in[CNN_MAX_OPERANDS];
  for (int k = 1; k <= j->n_in; k++)
    if (j->scalar[k])
      fill_scalar(j->stored[k], nest->data[k], j->computed[k], end - begin, &buffers[k]);
  int64_t inner = nest->ndim > 0 ? nest->shape[nest->ndim - 1] : 1;
  for (int64_t at = begin, n; at < end; at += n) {
    n = end - at < CNN_PIECE ? end - at : CNN_PIECE;
    // Long rows are taken one at a time, so that their dense operands need no copy.
    int64_t in_row = at % inner;
    bool one_row = inner >= 64 && nest->ndim > 0;
    if (one_row && n > inner - in_row) n = inner - in_row;
    one_row = one_row || nest->ndim <= 1;
    for (int k = 0; k <= j->n_in; k++) {
      bool direct = one_row && !j->scalar[k] && j->stored[k] == j->computed[k] &&
                    (nest->ndim == 0 || nest->strides[k][nest->ndim - 1] == 1);
      void *place = buffers[k].bytes;
      if (direct) {
        int64_t offset = in_row, rest = at / inner;
        for (int d = nest->ndim - 2; d >= 0; d--) {
          offset += rest % nest->shape[d] * nest->strides[k][d];
          rest /= nest->shape[d];
        }
        place = nest->data[k] + offset * (int64_t)nest->size[k];
      } else if (k > 0 && !j->scalar[k]) {
        if (j->stored[k] == j->computed[k]) {
          cnn_nest_gather(nest, k, at, n, place);
        } else {
          cnn_nest_gather(nest, k, at, n, raw.bytes);
          cnn_convert(n, j->stored[k], raw.bytes, j->computed[k], place);
        }
      }
      in[k] = place;
    }
    void *out = (void *)(uintptr_t)in[0];
    j->fn(n, out, in + 1, j->p);
    if (out != buffers[0].bytes) continue;
    if (j->stored[0] == j->computed[0]) {
      cnn_nest_scatter(nest, 0, at, n, out);
    } else {
      cnn_convert(n, j->computed[0], out, j->stored[0], raw.bytes);
      cnn_nest_scatter(nest, 0, at, n, raw.bytes);
    }
  }
}

// Whether v has the elements of y in the same order: y is dense.
static inline bool is_alike(const cnn_view *v, const cnn_view *y) {
  if (v->ndim != y->ndim) return false;
  for (int d = 0; d < y->ndim; d++)
    if (v->shape[d] != y->shape[d] || (v->strides[d] != y->strides[d] && y->shape[d] != 1))
      return false;
  return true;
}

// Little work on dense operands of one shape, and on numbers, is one call of the row's function.
// Says whether it was that. (On 4 elements, all the rest takes longer than the computation.)
static bool run_direct(const cnn_call *call, cnn_piece_fn fn, const void *p) {
  const cnn_view *y = &call->out[0];
  int64_t n = 1;
  for (int d = y->ndim - 1; d >= 0; d--) {
    if (y->shape[d] != 1 && y->strides[d] != n) return false;
    n *= y->shape[d];
  }
  if (n > CNN_PIECE || n == 0) return false;
  piece numbers[CNN_MAX_OPERANDS];
  const void *in[CNN_MAX_OPERANDS];
  for (int k = 0; k < call->n_in; k++) {
    const cnn_view *v = &call->in[k];
    in[k] = v->data;
    if (is_alike(v, y)) continue;
    if (cnn_view_numel(v) != 1) return false;
    if (n == 1) continue;
    fill_scalar(v->dtype, v->data, v->dtype, n, &numbers[k]);
    in[k] = numbers[k].bytes;
  }
  fn(n, y->data, in, p);
  return true;
}

cnn_status cnn_elementwise_run(cnn_call *call) {
  const cnn_row *row = call->kernel->data;
  // The last input has the common dtype (only masks differ, and they come first or second).
  cnn_dtype dtype =
      call->in[0].dtype == CNN_BOOL ? call->in[call->n_in - 1].dtype : call->in[0].dtype;
  double params[4];
  cnn_dtype computed = dtype;
  cnn_piece_fn fn = row->fn[dtype];
  if (!fn && cnn_dtype_is_half(dtype)) {
    computed = CNN_F32;
    fn = row->fn[CNN_F32];
  }
  if (!fn)
    return cnn_fail(call->ctx, CNN_DTYPE, "not defined for %s tensors", cnn_dtype_name(dtype));
  cnn_number_params(call, computed, params);
  if (computed == dtype && run_direct(call, fn, params)) return CNN_OK;
  job j;
  j.fn = fn;
  j.n_in = call->n_in;
  j.p = params;
  const cnn_view *views[CNN_MAX_OPERANDS] = {&call->out[0]};
  for (int k = 0; k <= call->n_in; k++) {
    if (k > 0) views[k] = &call->in[k - 1];
    j.stored[k] = views[k]->dtype;
    j.computed[k] = views[k]->dtype == dtype ? computed : views[k]->dtype;
    j.scalar[k] = k > 0 && cnn_view_numel(views[k]) == 1;
  }
  cnn_nest_make(&j.nest, call->out[0].ndim, call->out[0].shape, views, 1 + call->n_in);
  if (j.nest.numel == 1 && j.nest.ndim == 0) {
    for (int k = 1; k <= call->n_in; k++) j.scalar[k] = false;
  }
  cnn_parallel_for(j.nest.numel, row->grain ? row->grain : DEFAULT_GRAIN, run_range, &j);
  return CNN_OK;
}
