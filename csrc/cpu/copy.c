// SPDX-License-Identifier: MIT
// A copy walks the innermost runs of both tensors in the target's order. Where the source runs
// along another dim (a transpose), tiles of 16 x 16 elements pass through a small buffer, so that
// every cache line of either is touched once.
#include "cpu/copy.h"

#include "cpu/cpu.h"
#include "cpu/elementwise.h"

#include <string.h>

#include "base/parallel.h"
#include "cpu/clones.h"

#define GRAIN 32768

#define RUN(type)                                                                                  \
  CNN_CLONES static void run_##type(int64_t n, type *restrict t, int64_t st,                       \
                                    const type *restrict s, int64_t sf) {                          \
    if (st == 1 && sf == 0) {                                                                      \
      type v = n > 0 ? *s : 0;                                                                     \
      for (int64_t i = 0; i < n; i++) t[i] = v;                                                    \
    } else if (st == 1 && sf == -1) {                                                              \
      for (int64_t i = 0; i < n; i++) t[i] = s[-i];                                                \
    } else if (st == 1) {                                                                          \
      for (int64_t i = 0; i < n; i++) t[i] = s[i * sf];                                            \
    } else {                                                                                       \
      for (int64_t i = 0; i < n; i++) t[i * st] = s[i * sf];                                       \
    }                                                                                              \
  }
RUN(uint8_t)
RUN(uint16_t)
RUN(uint32_t)
RUN(uint64_t)
#undef RUN

// memcpy for a row. The C library's slows down tenfold where source and target lie just so modulo
// 4096, as rows of one matrix shifted by a few columns do.
CNN_CLONES static void copy_row(char *restrict to, const char *restrict from, size_t n) {
  if (n < 64 || n > 1 << 20) {
    memcpy(to, from, n);
    return;
  }
  for (size_t i = 0; i + 64 <= n; i += 64) {
    __builtin_memcpy(to + i, from + i, 64);
    __asm__ volatile(""); // or the compiler makes it one call of memcpy
  }
  __builtin_memcpy(to + n - 64, from + n - 64, 64);
}

void cnn_copy_run(size_t size, int64_t n, void *to, int64_t st, const void *from, int64_t sf) {
  if (st == 1 && sf == 1) {
    copy_row(to, from, (size_t)n * size);
    return;
  }
  switch (size) {
  case 1: run_uint8_t(n, to, st, from, sf); break;
  case 2: run_uint16_t(n, to, st, from, sf); break;
  case 4: run_uint32_t(n, to, st, from, sf); break;
  default: run_uint64_t(n, to, st, from, sf); break;
  }
}

// ---------------------------------------------------------------------------------------------
// One dtype

static void copy_same(void *arg, int64_t begin, int64_t end) {
  const cnn_nest *nest = arg;
  int inner = nest->ndim - 1;
  size_t size = nest->size[0];
  if (inner < 0) {
    memcpy(nest->data[0], nest->data[1], size);
    return;
  }
  int64_t index[CNN_MAX_DIMS], rest = begin, to = 0, from = 0, n = end - begin;
  for (int d = inner; d >= 0; d--) {
    index[d] = rest % nest->shape[d];
    rest /= nest->shape[d];
    to += index[d] * nest->strides[0][d], from += index[d] * nest->strides[1][d];
  }
  int64_t st = nest->strides[0][inner], sf = nest->strides[1][inner];
  while (n > 0) {
    int64_t run = nest->shape[inner] - index[inner];
    if (run > n) run = n;
    cnn_copy_run(size, run, nest->data[0] + to * (int64_t)size, st,
                 nest->data[1] + from * (int64_t)size, sf);
    n -= run;
    to += run * st, from += run * sf;
    index[inner] += run;
    for (int d = inner; d > 0 && index[d] == nest->shape[d]; d--) {
      to += nest->strides[0][d - 1] - index[d] * nest->strides[0][d];
      from += nest->strides[1][d - 1] - index[d] * nest->strides[1][d];
      index[d] = 0;
      index[d - 1]++;
    }
  }
}

#define TILE  16
#define STRIP 64

typedef struct transpose {
  const cnn_nest *nest;
  int along;      // the dim along which the source is dense; the target is along the last
  int64_t strips; // of STRIP positions of that dim
} transpose;

#define TRANSPOSE(type)                                                                            \
  CNN_CLONES static void transpose_##type(type *restrict to, int64_t st,                           \
                                          const type *restrict from, int64_t sf, int64_t rows,     \
                                          int64_t columns) {                                       \
    type tile[TILE][TILE];                                                                         \
    int64_t high = rows - rows % TILE, wide = columns - columns % TILE;                            \
    for (int64_t j = 0; j < wide; j += TILE)                                                       \
      for (int64_t r = 0; r < high; r += TILE) {                                                   \
        for (int k = 0; k < TILE; k++) memcpy(tile[k], from + (j + k) * sf + r, sizeof tile[k]);   \
        for (int i = 0; i < TILE; i++) {                                                           \
          type row[TILE];                                                                          \
          for (int k = 0; k < TILE; k++) row[k] = tile[k][i];                                      \
          memcpy(to + (r + i) * st + j, row, sizeof row);                                          \
        }                                                                                          \
      }                                                                                            \
    for (int64_t i = 0; i < rows; i++)                                                             \
      for (int64_t k = i < high ? wide : 0; k < columns; k++) to[i * st + k] = from[k * sf + i];   \
  }
TRANSPOSE(uint8_t)
TRANSPOSE(uint16_t)
TRANSPOSE(uint32_t)
TRANSPOSE(uint64_t)
#undef TRANSPOSE

static void transpose_strips(void *arg, int64_t begin, int64_t end) {
  const transpose *t = arg;
  const cnn_nest *nest = t->nest;
  int last = nest->ndim - 1;
  size_t size = nest->size[0];
  int64_t columns = nest->shape[last], height = nest->shape[t->along];
  int64_t st = nest->strides[0][t->along], sf = nest->strides[1][last];
  for (int64_t s = begin; s < end; s++) {
    int64_t first = s % t->strips * STRIP, rest = s / t->strips;
    int64_t to = first * st, from = first, rows = height - first < STRIP ? height - first : STRIP;
    for (int d = last - 1; d >= 0; d--) {
      if (d == t->along) continue;
      int64_t i = rest % nest->shape[d];
      rest /= nest->shape[d];
      to += i * nest->strides[0][d], from += i * nest->strides[1][d];
    }
    char *p = nest->data[0] + to * (int64_t)size;
    const char *q = nest->data[1] + from * (int64_t)size;
    switch (size) {
    case 1: transpose_uint8_t((void *)p, st, (const void *)q, sf, rows, columns); break;
    case 2: transpose_uint16_t((void *)p, st, (const void *)q, sf, rows, columns); break;
    case 4: transpose_uint32_t((void *)p, st, (const void *)q, sf, rows, columns); break;
    default: transpose_uint64_t((void *)p, st, (const void *)q, sf, rows, columns); break;
    }
  }
}

// Whether the nest is a transpose worth tiles.
static bool find_transpose(const cnn_nest *nest, transpose *t) {
  int last = nest->ndim - 1;
  if (last < 1 || nest->strides[0][last] != 1 || nest->strides[1][last] == 1 ||
      nest->strides[1][last] == 0 || nest->shape[last] < 8)
    return false;
  for (int d = 0; d < last; d++) {
    if (nest->strides[1][d] != 1 || nest->shape[d] < 4) continue;
    *t = (transpose){nest, d, (nest->shape[d] + STRIP - 1) / STRIP};
    return true;
  }
  return false;
}

// ---------------------------------------------------------------------------------------------
// Two dtypes: in pieces

typedef struct conversion {
  cnn_nest nest; // target, source
  cnn_dtype to, from;
} conversion;

static void convert_range(void *arg, int64_t begin, int64_t end) {
  const conversion *c = arg;
  char raw[CNN_PIECE * 8], converted[CNN_PIECE * 8];
  bool dense_to = cnn_nest_dense(&c->nest, 0), dense_from = cnn_nest_dense(&c->nest, 1);
  for (int64_t at = begin; at < end; at += CNN_PIECE) {
    int64_t n = end - at < CNN_PIECE ? end - at : CNN_PIECE;
    char *to = dense_to ? c->nest.data[0] + at * (int64_t)c->nest.size[0] : converted;
    const char *from = dense_from ? c->nest.data[1] + at * (int64_t)c->nest.size[1] : raw;
    if (!dense_from) cnn_nest_gather(&c->nest, 1, at, n, raw);
    cnn_convert(n, c->from, from, c->to, to);
    if (!dense_to) cnn_nest_scatter(&c->nest, 0, at, n, to);
  }
}

void cnn_copy_view(const cnn_view *to, const cnn_view *from) {
  conversion c = {.to = to->dtype, .from = from->dtype};
  const cnn_view *views[] = {to, from};
  transpose t;
  cnn_nest_make(&c.nest, to->ndim, to->shape, views, 2);
  if (c.nest.numel == 0) return;
  if (c.to != c.from) {
    cnn_parallel_for(c.nest.numel, GRAIN, convert_range, &c);
  } else if (find_transpose(&c.nest, &t)) {
    int64_t strips =
        c.nest.numel / c.nest.shape[t.along] / c.nest.shape[c.nest.ndim - 1] * t.strips;
    cnn_parallel_for(strips, GRAIN / (STRIP * c.nest.shape[c.nest.ndim - 1]) + 1, transpose_strips,
                     &t);
  } else {
    cnn_parallel_for(c.nest.numel, GRAIN, copy_same, &c.nest);
  }
}

static bool lies_dense(const cnn_view *v, cnn_dtype dtype) {
  return v->dtype == dtype && cnn_strides_contiguous(v->ndim, v->shape, v->strides);
}

size_t cnn_dense_bytes(const cnn_view *v, cnn_dtype dtype) {
  if (lies_dense(v, dtype)) return 0;
  return ((size_t)cnn_view_numel(v) * cnn_dtype_size(dtype) + 63) & ~(size_t)63;
}

void *cnn_dense_result(const cnn_view *v, cnn_dtype dtype, void **scratch) {
  if (lies_dense(v, dtype)) return v->data;
  void *dense = *scratch;
  *scratch = (char *)dense + cnn_dense_bytes(v, dtype);
  return dense;
}

static cnn_view dense_view(const cnn_view *v, cnn_dtype dtype, const void *dense,
                           int64_t *strides) {
  cnn_shape_strides(v->ndim, v->shape, strides);
  return (cnn_view){(void *)(uintptr_t)dense, v->shape, strides, v->ndim, dtype};
}

const void *cnn_dense(const cnn_view *v, cnn_dtype dtype, void **scratch) {
  int64_t strides[CNN_MAX_DIMS];
  void *dense = cnn_dense_result(v, dtype, scratch);
  if (dense == v->data) return dense;
  cnn_view to = dense_view(v, dtype, dense, strides);
  cnn_copy_view(&to, v);
  return dense;
}

void cnn_dense_store(const cnn_view *v, cnn_dtype dtype, const void *dense) {
  int64_t strides[CNN_MAX_DIMS];
  if (dense == v->data) return;
  cnn_view from = dense_view(v, dtype, dense, strides);
  cnn_copy_view(v, &from);
}

static cnn_status run_fresh(cnn_call *call) {
  cnn_copy_view(&call->out[0], &call->in[0]);
  return CNN_OK;
}
static cnn_status run_into(cnn_call *call) {
  cnn_copy_view(&call->in[0], &call->in[1]);
  return CNN_OK;
}

const cnn_kernel cpu_cast = {NULL, run_fresh, NULL};
const cnn_kernel cpu_clone = {NULL, run_fresh, NULL};
const cnn_kernel cpu_copy_ = {NULL, run_into, NULL};
const cnn_kernel cpu_to_device = {NULL, run_fresh, NULL};
