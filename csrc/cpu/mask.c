// SPDX-License-Identifier: MIT
// Kernels of ops/mask.c. A mask is walked in chunks whose size depends only on the mask's: what is
// true in each is counted first, then every chunk knows where its part of the result begins.
#include "cpu/cpu.h"
#include "cpu/elementwise.h"

#include <string.h>

#include "base/parallel.h"

#define MAX_CHUNKS 64
#define PIECE      1024

typedef struct walk walk;
// Does its work for `found` true elements, at these linear indices, the k-th of all being `first`.
typedef void (*visit_fn)(const walk *w, const int64_t *at, int64_t found, int64_t first);

struct walk {
  cnn_nest nest; // view 1: the mask, in row-major order
  cnn_dtype dtype;
  int64_t chunk, n_chunks;
  int64_t counts[MAX_CHUNKS]; // of each chunk; then where its results begin
  visit_fn visit;
  // For the visits.
  int ndim;
  const int64_t *shape;
  int64_t *out;
  cnn_nest leading; // view 1: the large tensor over the mask's dims
  cnn_nest block;   // views: the large tensor's block, the small one's
  char *large, *small;
  int64_t small_step;
  bool spread; // from small to large
};

static void start(walk *w, const cnn_view *mask) {
  int64_t order[CNN_MAX_DIMS];
  cnn_shape_strides(mask->ndim, mask->shape, order);
  cnn_view first = {NULL, mask->shape, order, mask->ndim, CNN_U8};
  const cnn_view *views[] = {&first, mask};
  cnn_nest_make(&w->nest, mask->ndim, mask->shape, views, 2);
  w->dtype = mask->dtype;
  w->ndim = mask->ndim;
  w->shape = mask->shape;
  int64_t n = w->nest.numel;
  w->chunk = (n / MAX_CHUNKS / PIECE + 1) * PIECE;
  if (w->chunk < 16 * PIECE) w->chunk = 16 * PIECE;
  w->n_chunks = n == 0 ? 0 : (n - 1) / w->chunk + 1;
}

// One byte per element, 0 or 1, from `at` on.
static const uint8_t *flags(const walk *w, int64_t at, int64_t n, char *raw, uint8_t *piece) {
  if (w->dtype == CNN_BOOL && cnn_nest_dense(&w->nest, 1))
    return (const uint8_t *)w->nest.data[1] + at;
  if (w->dtype == CNN_BOOL) {
    cnn_nest_gather(&w->nest, 1, at, n, piece);
    return piece;
  }
  cnn_nest_gather(&w->nest, 1, at, n, raw);
  cnn_convert(n, w->dtype, raw, CNN_BOOL, piece);
  return piece;
}

static int64_t end_of(const walk *w, int64_t c) {
  int64_t end = (c + 1) * w->chunk;
  return end < w->nest.numel ? end : w->nest.numel;
}

static void count_chunks(void *arg, int64_t begin, int64_t end) {
  walk *w = arg;
  char raw[PIECE * 8];
  uint8_t piece[PIECE];
  for (int64_t c = begin; c < end; c++) {
    int64_t count = 0, stop = end_of(w, c);
    for (int64_t at = c * w->chunk; at < stop; at += PIECE) {
      int64_t n = stop - at < PIECE ? stop - at : PIECE;
      const uint8_t *f = flags(w, at, n, raw, piece);
      uint32_t found = 0;
      for (int64_t i = 0; i < n; i++) found += f[i];
      count += found;
    }
    w->counts[c] = count;
  }
}

static int64_t count(walk *w) {
  int64_t sum = 0;
  cnn_parallel_for(w->n_chunks, 1, count_chunks, w);
  for (int64_t c = 0; c < w->n_chunks; c++) {
    int64_t own = w->counts[c];
    w->counts[c] = sum;
    sum += own;
  }
  return sum;
}

static void visit_chunks(void *arg, int64_t begin, int64_t end) {
  const walk *w = arg;
  char raw[PIECE * 8];
  uint8_t piece[PIECE];
  int64_t at_list[PIECE];
  for (int64_t c = begin; c < end; c++) {
    int64_t first = w->counts[c], stop = end_of(w, c);
    for (int64_t at = c * w->chunk; at < stop; at += PIECE) {
      int64_t n = stop - at < PIECE ? stop - at : PIECE, found = 0;
      const uint8_t *f = flags(w, at, n, raw, piece);
      for (int64_t i = 0; i < n; i++) {
        at_list[found] = at + i;
        found += f[i];
      }
      if (found > 0) w->visit(w, at_list, found, first);
      first += found;
    }
  }
}

// ---------------------------------------------------------------------------------------------
// nonzero

static cnn_status run_nonzero_count(cnn_call *call) {
  walk w;
  start(&w, &call->in[0]);
  *(int64_t *)call->out[0].data = count(&w);
  return CNN_OK;
}

static void write_places(const walk *w, const int64_t *at, int64_t found, int64_t first) {
  int64_t *out = w->out + first * w->ndim;
  for (int64_t k = 0; k < found; k++, out += w->ndim) {
    int64_t rest = at[k];
    for (int d = w->ndim - 1; d > 0; d--) {
      out[d] = rest % w->shape[d] + 1;
      rest /= w->shape[d];
    }
    if (w->ndim > 0) out[0] = rest + 1;
  }
}

static cnn_status run_nonzero_places(cnn_call *call) {
  walk w;
  start(&w, &call->in[0]);
  w.visit = write_places;
  w.out = call->out[0].data;
  count(&w);
  cnn_parallel_for(w.n_chunks, 1, visit_chunks, &w);
  return CNN_OK;
}

const cnn_kernel cpu_nonzero_count = {NULL, run_nonzero_count, NULL};
const cnn_kernel cpu_nonzero_places = {NULL, run_nonzero_places, NULL};

// ---------------------------------------------------------------------------------------------
// Between a tensor with the mask's dims in front ("large") and one with a dim for what is true
// ("small")

#define MOVE_ELEMENTS(type)                                                                        \
  do {                                                                                             \
    type *large = (type *)(void *)w->large, *small = (type *)(void *)w->small + first * step;      \
    if (w->spread)                                                                                 \
      for (int64_t k = 0; k < found; k++) large[offsets[k]] = small[k * step];                     \
    else                                                                                           \
      for (int64_t k = 0; k < found; k++) small[k * step] = large[offsets[k]];                     \
  } while (0)

static void move_blocks(const walk *w, const int64_t *at, int64_t found, int64_t first) {
  int64_t offsets[PIECE], step = w->small_step;
  size_t size = w->block.size[0];
  for (int64_t k = 0; k < found; k++) {
    // Runs of true elements that are neighbours in memory need no division each.
    if (k > 0 && at[k] == at[k - 1] + 1 && w->leading.ndim == 1)
      offsets[k] = offsets[k - 1] + w->leading.strides[1][0];
    else
      cnn_nest_offsets(&w->leading, 1, at[k], 1, &offsets[k]);
  }
  if (w->block.numel == 1) {
    switch (size) {
    case 1: MOVE_ELEMENTS(uint8_t); break;
    case 2: MOVE_ELEMENTS(uint16_t); break;
    case 4: MOVE_ELEMENTS(uint32_t); break;
    default: MOVE_ELEMENTS(uint64_t); break;
    }
    return;
  }
  cnn_nest block = w->block;
  for (int64_t k = 0; k < found; k++) {
    block.data[0] = w->large + offsets[k] * (int64_t)size;
    block.data[1] = w->small + (first + k) * step * (int64_t)size;
    int from = w->spread ? 1 : 0, to = 1 - from;
    if (cnn_nest_dense(&block, 0) && cnn_nest_dense(&block, 1)) {
      memcpy(block.data[to], block.data[from], (size_t)block.numel * size);
      continue;
    }
    char piece[PIECE * 8];
    for (int64_t i = 0; i < block.numel; i += PIECE) {
      int64_t n = block.numel - i < PIECE ? block.numel - i : PIECE;
      cnn_nest_gather(&block, from, i, n, piece);
      cnn_nest_scatter(&block, to, i, n, piece);
    }
  }
}

static cnn_status move_masked(const cnn_view *mask, const cnn_view *large, const cnn_view *small,
                              bool spread) {
  walk w;
  int64_t order[CNN_MAX_DIMS];
  int n_block = large->ndim - mask->ndim;
  start(&w, mask);
  w.visit = move_blocks;
  w.spread = spread;
  w.large = large->data;
  w.small = small->data;
  w.small_step = small->strides[0];
  cnn_shape_strides(mask->ndim, mask->shape, order);
  cnn_view first = {NULL, mask->shape, order, mask->ndim, CNN_U8};
  cnn_view lead = {large->data, large->shape, large->strides, mask->ndim, large->dtype};
  const cnn_view *views[] = {&first, &lead};
  cnn_nest_make(&w.leading, mask->ndim, mask->shape, views, 2);
  cnn_view of_large = {large->data, large->shape + mask->ndim, large->strides + mask->ndim, n_block,
                       large->dtype};
  cnn_view of_small = {small->data, small->shape + 1, small->strides + 1, n_block, small->dtype};
  const cnn_view *blocks[] = {&of_large, &of_small};
  cnn_nest_make(&w.block, n_block, of_large.shape, blocks, 2);
  if (w.block.numel == 0) return CNN_OK;
  count(&w);
  cnn_parallel_for(w.n_chunks, 1, visit_chunks, &w);
  return CNN_OK;
}

static cnn_status run_mask_select(cnn_call *call) {
  return move_masked(&call->in[1], &call->in[0], &call->out[0], false);
}

static cnn_status run_mask_spread(cnn_call *call) {
  const cnn_view *y = &call->out[0];
  int64_t n = cnn_view_numel(y);
  if (n > 0) memset(y->data, 0, (size_t)n * cnn_dtype_size(y->dtype));
  return move_masked(&call->in[1], y, &call->in[0], true);
}

const cnn_kernel cpu_mask_select = {NULL, run_mask_select, NULL};
const cnn_kernel cpu_mask_spread = {NULL, run_mask_spread, NULL};
