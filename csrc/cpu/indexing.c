// SPDX-License-Identifier: MIT
// Places are taken in chunks: first the offsets of a chunk, in loops that vectorise, then the
// blocks. Reading is cut into pieces by places. Writing and adding are cut along one dim in which x
// has a stride of its own, so that no element of x is in two pieces: the result, and the order of
// additions, are the same for every number of threads.
#include "cpu/indexing.h"

#include <stdatomic.h>
#include <string.h>

#include "base/half.h"
#include "base/parallel.h"
#include "cpu/clones.h"
#include "cpu/copy.h"
#include "cpu/elementwise.h"
#include "engine/fault.h"

#define CHUNK 256
#define RUN   4096  // elements whose indices stay in the nearest cache
#define GRAIN 32768 // elements worth a thread

typedef enum mode { READ, WRITE, ADD } mode;

// ---------------------------------------------------------------------------------------------
// Checks

// A nest over a view's elements in row-major order: the view is number 1.
static void ordered_nest(cnn_nest *nest, int ndim, const int64_t *shape, char *data,
                         const int64_t *strides, cnn_dtype dtype) {
  int64_t order[CNN_MAX_DIMS];
  cnn_shape_strides(ndim, shape, order);
  cnn_view first = {NULL, shape, order, ndim, CNN_U8}, v = {data, shape, strides, ndim, dtype};
  const cnn_view *views[] = {&first, &v};
  cnn_nest_make(nest, ndim, shape, views, 2);
}

// n positions from `at`, as they are or in `piece`.
static const int64_t *positions(const cnn_nest *nest, cnn_dtype dtype, int64_t at, int64_t n,
                                int64_t *piece) {
  if (dtype == CNN_I64) {
    if (cnn_nest_dense(nest, 1)) return (const int64_t *)(const void *)nest->data[1] + at;
    cnn_nest_gather(nest, 1, at, n, piece);
    return piece;
  }
  char raw[CHUNK * 4];
  cnn_nest_gather(nest, 1, at, n, raw);
  cnn_convert(n, dtype, raw, CNN_I64, piece);
  return piece;
}

typedef struct check {
  cnn_nest nest;
  cnn_dtype dtype;
  uint64_t size;
  atomic_bool bad;
} check;

static void check_range(void *arg, int64_t begin, int64_t end) {
  check *c = arg;
  for (int64_t at = begin; at < end; at += CHUNK) {
    int64_t piece[CHUNK], n = end - at < CHUNK ? end - at : CHUNK;
    const int64_t *p = positions(&c->nest, c->dtype, at, n, piece);
    uint64_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad |= (uint64_t)p[i] - 1 >= c->size;
    if (bad) atomic_store_explicit(&c->bad, true, memory_order_relaxed);
  }
}

cnn_status cnn_indexing_check(cnn_context *ctx, const cnn_indexing *ix) {
  for (int k = 0; k < ix->n; k++) {
    const cnn_indexer *index = &ix->index[k];
    const cnn_view *v = index->view;
    check c = {.dtype = v->dtype, .size = (uint64_t)index->size};
    atomic_init(&c.bad, false);
    ordered_nest(&c.nest, v->ndim, v->shape, v->data, v->strides, v->dtype);
    cnn_parallel_for(c.nest.numel, 1 << 17, check_range, &c);
    // The first one is named.
    for (int64_t i = 0; i < c.nest.numel && c.bad; i++) {
      int64_t piece[1], value = *positions(&c.nest, v->dtype, i, 1, piece);
      if ((uint64_t)value - 1 < c.size) continue;
      return cnn_fault_raise(ctx, &(cnn_fault){.kind = CNN_FAULT_INDEX,
                                               .value = value,
                                               .bound = index->size,
                                               .at = index->dim});
    }
  }
  return CNN_OK;
}

// ---------------------------------------------------------------------------------------------
// Blocks

#define COPY_PLACES(type)                                                                          \
  do {                                                                                             \
    type *x = (type *)(void *)ix->x, *o = (type *)(void *)ix->o;                                   \
    if (how == READ)                                                                               \
      for (int64_t i = 0; i < n; i++) o[at_o[i]] = x[at_x[i]];                                     \
    else                                                                                           \
      for (int64_t i = 0; i < n; i++) x[at_x[i]] = o[at_o[i]];                                     \
  } while (0)

// Blocks of one element.
static void copy_places(const cnn_indexing *ix, mode how, int64_t n, const int64_t *at_x,
                        const int64_t *at_o) {
  switch (cnn_dtype_size(ix->x_dtype)) {
  case 1: COPY_PLACES(uint8_t); break;
  case 2: COPY_PLACES(uint16_t); break;
  case 4: COPY_PLACES(uint32_t); break;
  default: COPY_PLACES(uint64_t); break;
  }
}

// X(o's dtype, type of x, type of o, o's element v as a number)
#define SUMS(X)                                                                                    \
  X(F32, float, float, v)                                                                          \
  X(F64, double, double, v)                                                                        \
  X(F16, float, cnn_f16, cnn_f16_to_float(v))                                                      \
  X(BF16, float, cnn_bf16, cnn_bf16_to_float(v))                                                   \
  X(I64, uint64_t, uint64_t, v)                                                                    \
  X(I32, uint32_t, uint32_t, v)                                                                    \
  X(I16, uint16_t, uint16_t, v)                                                                    \
  X(I8, uint8_t, uint8_t, v)                                                                       \
  X(U8, uint8_t, uint8_t, v)

static void add_places(const cnn_indexing *ix, int64_t n, const int64_t *at_x,
                       const int64_t *at_o) {
  switch (ix->o_dtype) {
#define ADD_PLACES(name, X, O, value)                                                              \
  case CNN_##name: {                                                                               \
    X *x = (X *)(void *)ix->x;                                                                     \
    const O *o = (const O *)(void *)ix->o;                                                         \
    for (int64_t i = 0; i < n; i++) {                                                              \
      O v = o[at_o[i]];                                                                            \
      x[at_x[i]] = (X)(x[at_x[i]] + value);                                                        \
    }                                                                                              \
    return;                                                                                        \
  }
    SUMS(ADD_PLACES)
#undef ADD_PLACES
  default: // bool: or
    for (int64_t i = 0; i < n; i++) ix->x[at_x[i]] |= ix->o[at_o[i]];
  }
}

void cnn_add_run(cnn_dtype o_dtype, int64_t n, void *to, int64_t sx, const void *from, int64_t so) {
  switch (o_dtype) {
#define ADD_RUN(name, X, O, value)                                                                 \
  case CNN_##name: {                                                                               \
    X *x = to;                                                                                     \
    const O *o = from;                                                                             \
    if (sx == 1 && so == 1) {                                                                      \
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                                        \
        O v = o[i];                                                                                \
        x[i] = (X)(x[i] + value);                                                                  \
      }                                                                                            \
    } else {                                                                                       \
      for (int64_t i = 0; i < n; i++) {                                                            \
        O v = o[i * so];                                                                           \
        x[i * sx] = (X)(x[i * sx] + value);                                                        \
      }                                                                                            \
    }                                                                                              \
    return;                                                                                        \
  }
    SUMS(ADD_RUN)
#undef ADD_RUN
  default: {
    uint8_t *x = to;
    const uint8_t *o = from;
    for (int64_t i = 0; i < n; i++) x[i * sx] |= o[i * so];
  }
  }
}

// One block; view 0 of the nest is x's, view 1 o's.
static void move_block(const cnn_indexing *ix, mode how, const cnn_nest *block, char *x, char *o) {
  int inner = block->ndim - 1;
  int64_t run = inner >= 0 ? block->shape[inner] : 1, index[CNN_MAX_DIMS] = {0};
  int64_t sx = inner >= 0 ? block->strides[0][inner] : 1;
  int64_t so = inner >= 0 ? block->strides[1][inner] : 1;
  int64_t x_size = (int64_t)block->size[0], o_size = (int64_t)block->size[1];
  for (;;) {
    if (how == ADD)
      cnn_add_run(ix->o_dtype, run, x, sx, o, so);
    else if (how == READ)
      cnn_copy_run((size_t)x_size, run, o, so, x, sx);
    else
      cnn_copy_run((size_t)x_size, run, x, sx, o, so);
    int d = inner - 1;
    for (; d >= 0; d--) {
      x += block->strides[0][d] * x_size;
      o += block->strides[1][d] * o_size;
      if (++index[d] < block->shape[d]) break;
      x -= block->shape[d] * block->strides[0][d] * x_size;
      o -= block->shape[d] * block->strides[1][d] * o_size;
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

// ---------------------------------------------------------------------------------------------
// Places

static void run_places(const cnn_indexing *ix, mode how, int64_t begin, int64_t end) {
  cnn_nest space_x, space_o, index[CNN_MAX_DIMS], block;
  int n_block = ix->ndim - ix->n_places;
  const int64_t *block_shape = ix->shape + ix->n_places;
  ordered_nest(&space_x, ix->n_places, ix->shape, ix->x, ix->x_strides, ix->x_dtype);
  ordered_nest(&space_o, ix->n_places, ix->shape, ix->o, ix->o_strides, ix->o_dtype);
  for (int k = 0; k < ix->n; k++)
    ordered_nest(&index[k], ix->n_places, ix->shape, ix->index[k].data, ix->index[k].strides,
                 ix->index[k].dtype);
  cnn_view bx = {ix->x, block_shape, ix->x_strides + ix->n_places, n_block, ix->x_dtype};
  cnn_view bo = {ix->o, block_shape, ix->o_strides + ix->n_places, n_block, ix->o_dtype};
  const cnn_view *views[] = {&bx, &bo};
  cnn_nest_make(&block, n_block, block_shape, views, 2);
  int64_t x_size = (int64_t)cnn_dtype_size(ix->x_dtype);
  int64_t o_size = (int64_t)cnn_dtype_size(ix->o_dtype);
  for (int64_t at = begin; at < end; at += CHUNK) {
    int64_t at_x[CHUNK], at_o[CHUNK], piece[CHUNK], n = end - at < CHUNK ? end - at : CHUNK;
    cnn_nest_offsets(&space_x, 1, at, n, at_x);
    cnn_nest_offsets(&space_o, 1, at, n, at_o);
    for (int k = 0; k < ix->n; k++) {
      const int64_t *p = positions(&index[k], ix->index[k].dtype, at, n, piece);
      int64_t step = ix->index[k].step;
      for (int64_t i = 0; i < n; i++) at_x[i] += (p[i] - 1) * step;
    }
    if (block.numel != 1)
      for (int64_t i = 0; i < n; i++)
        move_block(ix, how, &block, ix->x + at_x[i] * x_size, ix->o + at_o[i] * o_size);
    else if (how == ADD)
      add_places(ix, n, at_x, at_o);
    else
      copy_places(ix, how, n, at_x, at_o);
  }
}

// ---------------------------------------------------------------------------------------------
// The commonest case by itself: single elements by one int64 index tensor, in long runs

CNN_CLONES static bool in_range(int64_t n, const int64_t *p, int64_t sp, uint64_t size) {
  uint64_t bad = 0;
  if (sp == 1)
    for (int64_t i = 0; i < n; i++) bad |= (uint64_t)p[i] - 1 >= size;
  else
    for (int64_t i = 0; i < n; i++) bad |= (uint64_t)p[i * sp] - 1 >= size;
  return bad == 0;
}

#define RUN_ELEMENTS(type)                                                                         \
  do {                                                                                             \
    type *x = (type *)(void *)px, *o = (type *)(void *)po;                                         \
    if (how == WRITE)                                                                              \
      for (int64_t i = 0; i < n; i++) x[(p[i * sp] - 1) * step + i * sx] = o[i * so];              \
    else if (sp == 1 && so == 1 && sx == 0 && step == 1)                                           \
      for (int64_t i = 0; i < n; i++) o[i] = x[p[i] - 1];                                          \
    else if (sp == 1 && so == 1)                                                                   \
      for (int64_t i = 0; i < n; i++) o[i] = x[(p[i] - 1) * step + i * sx];                        \
    else                                                                                           \
      for (int64_t i = 0; i < n; i++) o[i * so] = x[(p[i * sp] - 1) * step + i * sx];              \
  } while (0)

// Reading checks on its way.
static bool run_elements(const cnn_indexing *ix, mode how, int64_t n, char *px, int64_t sx,
                         const int64_t *p, int64_t sp, char *po, int64_t so) {
  int64_t step = ix->index[0].step;
  if (how == READ && !in_range(n, p, sp, (uint64_t)ix->index[0].size)) return false;
  if (how != ADD) {
    switch (cnn_dtype_size(ix->x_dtype)) {
    case 1: RUN_ELEMENTS(uint8_t); break;
    case 2: RUN_ELEMENTS(uint16_t); break;
    case 4: RUN_ELEMENTS(uint32_t); break;
    default: RUN_ELEMENTS(uint64_t); break;
    }
    return true;
  }
  switch (ix->o_dtype) {
#define ADD_ELEMENTS(name, X, O, value)                                                            \
  case CNN_##name: {                                                                               \
    X *x = (X *)(void *)px;                                                                        \
    const O *o = (const O *)(const void *)po;                                                      \
    if (sp == 1 && so == 1 && sx == 0 && step == 1)                                                \
      for (int64_t i = 0; i < n; i++) {                                                            \
        O v = o[i];                                                                                \
        x[p[i] - 1] = (X)(x[p[i] - 1] + value);                                                    \
      }                                                                                            \
    else                                                                                           \
      for (int64_t i = 0; i < n; i++) {                                                            \
        O v = o[i * so];                                                                           \
        X *to = &x[(p[i * sp] - 1) * step + i * sx];                                               \
        *to = (X)(*to + value);                                                                    \
      }                                                                                            \
    break;                                                                                         \
  }
    SUMS(ADD_ELEMENTS)
#undef ADD_ELEMENTS
  default:
    for (int64_t i = 0; i < n; i++) px[(p[i * sp] - 1) * step + i * sx] |= po[i * so];
  }
  return true;
}

static bool is_simple(const cnn_indexing *ix) {
  int last = ix->n_places - 1;
  if (ix->n != 1 || ix->index[0].dtype != CNN_I64 || last < 0 || ix->shape[last] < 16) return false;
  for (int d = ix->n_places; d < ix->ndim; d++)
    if (ix->shape[d] != 1) return false;
  return true;
}

// False when an index is out of range.
static bool run_simple(const cnn_indexing *ix, mode how, int64_t begin, int64_t end) {
  const cnn_indexer *index = &ix->index[0];
  int last = ix->n_places - 1;
  bool good = true;
  int64_t at[CNN_MAX_DIMS], rest = begin, x = 0, o = 0, p = 0, n = end - begin;
  int64_t x_size = (int64_t)cnn_dtype_size(ix->x_dtype);
  int64_t o_size = (int64_t)cnn_dtype_size(ix->o_dtype);
  for (int d = last; d >= 0; d--) {
    at[d] = rest % ix->shape[d];
    rest /= ix->shape[d];
    x += at[d] * ix->x_strides[d], o += at[d] * ix->o_strides[d], p += at[d] * index->strides[d];
  }
  while (n > 0) {
    int64_t run = ix->shape[last] - at[last];
    if (run > n) run = n;
    if (run > RUN) run = RUN;
    good &= run_elements(ix, how, run, ix->x + x * x_size, ix->x_strides[last],
                         (const int64_t *)(const void *)index->data + p, index->strides[last],
                         ix->o + o * o_size, ix->o_strides[last]);
    n -= run;
    at[last] += run;
    x += run * ix->x_strides[last], o += run * ix->o_strides[last];
    p += run * index->strides[last];
    for (int d = last; d > 0 && at[d] == ix->shape[d]; d--) {
      x += ix->x_strides[d - 1] - at[d] * ix->x_strides[d];
      o += ix->o_strides[d - 1] - at[d] * ix->o_strides[d];
      p += index->strides[d - 1] - at[d] * index->strides[d];
      at[d] = 0;
      at[d - 1]++;
    }
  }
  return good;
}

static int64_t count(const cnn_indexing *ix, int first, int last) {
  int64_t n = 1;
  for (int d = first; d < last; d++) n *= ix->shape[d];
  return n;
}

typedef struct reading {
  const cnn_indexing *ix;
  bool simple;
  atomic_bool bad;
} reading;

static void read_range(void *arg, int64_t begin, int64_t end) {
  reading *r = arg;
  if (!r->simple)
    run_places(r->ix, READ, begin, end);
  else if (!run_simple(r->ix, READ, begin, end))
    atomic_store_explicit(&r->bad, true, memory_order_relaxed);
}

cnn_status cnn_indexing_read(cnn_context *ctx, const cnn_indexing *ix) {
  int64_t places = count(ix, 0, ix->n_places), block = count(ix, ix->n_places, ix->ndim);
  reading r = {.ix = ix, .simple = is_simple(ix) && ix->index[0].size > 0};
  atomic_init(&r.bad, false);
  if (!r.simple) CNN_TRY(cnn_indexing_check(ctx, ix));
  if (places == 0 || block == 0) return r.simple ? cnn_indexing_check(ctx, ix) : CNN_OK;
  cnn_parallel_for(places, GRAIN / block + 1, read_range, &r);
  return r.bad ? cnn_indexing_check(ctx, ix) : CNN_OK;
}

typedef struct cut {
  const cnn_indexing *ix;
  mode how;
  int dim; // along which the space is cut
} cut;

static void run_all(const cnn_indexing *ix, mode how) {
  int64_t places = count(ix, 0, ix->n_places);
  if (is_simple(ix))
    run_simple(ix, how, 0, places);
  else
    run_places(ix, how, 0, places);
}

static void write_range(void *arg, int64_t begin, int64_t end) {
  const cut *c = arg;
  cnn_indexing ix = *c->ix;
  int d = c->dim;
  ix.shape[d] = end - begin;
  ix.x += begin * ix.x_strides[d] * (int64_t)cnn_dtype_size(ix.x_dtype);
  ix.o += begin * ix.o_strides[d] * (int64_t)cnn_dtype_size(ix.o_dtype);
  for (int k = 0; k < ix.n && d < ix.n_places; k++)
    ix.index[k].data += begin * ix.index[k].strides[d] * (int64_t)cnn_dtype_size(ix.index[k].dtype);
  run_all(&ix, c->how);
}

static void write(const cnn_indexing *ix, mode how) {
  int64_t n = count(ix, 0, ix->ndim);
  cut c = {ix, how, -1};
  if (n == 0) return;
  if (n >= 2 * GRAIN && cnn_num_threads() > 1)
    for (int d = 0; d < ix->ndim; d++)
      if (ix->x_strides[d] != 0 && ix->shape[d] > 1 &&
          (c.dim < 0 || ix->shape[d] > ix->shape[c.dim]))
        c.dim = d;
  if (c.dim < 0) {
    run_all(ix, how);
    return;
  }
  // However it is cut, an element of x gets its values in one order. Pieces are few, since each
  // walks all the places, and long enough to keep whole cache lines to themselves.
  int64_t grain = GRAIN / (n / ix->shape[c.dim]) + 1;
  int64_t share = ix->shape[c.dim] / (2 * cnn_num_threads());
  if (grain < share) grain = share;
  if (ix->x_strides[c.dim] == 1 && grain < 64) grain = 64;
  cnn_parallel_for(ix->shape[c.dim], grain, write_range, &c);
}

void cnn_indexing_write(const cnn_indexing *ix) {
  write(ix, WRITE);
}
void cnn_indexing_add(const cnn_indexing *ix) {
  write(ix, ADD);
}

// ---------------------------------------------------------------------------------------------
// Sums of half types

void cnn_sums_plan(cnn_call *call, const cnn_view *y) {
  if (cnn_dtype_is_half(y->dtype)) call->scratch_bytes = (size_t)cnn_view_numel(y) * sizeof(float);
}

void cnn_sums_begin(cnn_sums *s, cnn_call *call, const cnn_view *y, const cnn_view *start) {
  s->target = *y;
  if (cnn_dtype_is_half(y->dtype)) {
    cnn_shape_strides(y->ndim, y->shape, s->strides);
    s->target.strides = s->strides;
    s->target.dtype = CNN_F32;
    s->target.data = call->scratch;
  }
  if (!start)
    cnn_clear_view(&s->target);
  else if (start->data != s->target.data)
    cnn_copy_view(&s->target, start);
}

void cnn_sums_end(const cnn_sums *s, const cnn_view *y) {
  if (s->target.data != y->data) cnn_copy_view(y, &s->target);
}
