// SPDX-License-Identifier: MIT
// Kernels of ops/embedding.c.
//
// The gradient: ids are first chained by row (the chain of row r starts at head[r] and lists the
// places of r in order), then each row is summed, in float32 or float64, and written once. So rows
// are independent, sums don't depend on threads, and a table much larger than the batch costs
// little more than its zeros.
#include "cpu/cpu.h"
#include "cpu/elementwise.h"
#include "cpu/indexing.h"

#include <string.h>

#include "base/parallel.h"

static cnn_status run_embedding(cnn_call *call) {
  const cnn_view *input = &call->in[0], *weight = &call->in[1], *y = &call->out[0];
  cnn_indexing ix = {.ndim = y->ndim,
                     .n_places = input->ndim,
                     .x = weight->data,
                     .o = y->data,
                     .x_dtype = weight->dtype,
                     .o_dtype = y->dtype,
                     .n = 1};
  cnn_indexer *index = &ix.index[0];
  *index = (cnn_indexer){.data = input->data,
                         .dtype = input->dtype,
                         .size = weight->shape[0],
                         .step = weight->strides[0],
                         .view = input};
  for (int d = 0; d < y->ndim; d++) {
    ix.shape[d] = y->shape[d];
    ix.o_strides[d] = y->strides[d];
    if (d < input->ndim) index->strides[d] = input->strides[d];
  }
  ix.x_strides[input->ndim] = weight->strides[1];
  return cnn_indexing_read(call->ctx, &ix);
}

typedef struct table {
  const cnn_view *dw;
  const char *dy;
  cnn_dtype dtype;
  cnn_nest places;            // view 1: dy over the places
  int64_t step;               // of dy along a row
  const int64_t *head, *next; // 1 + number of a place; 0: none
} table;

static void sum_rows(void *arg, int64_t begin, int64_t end) {
  const table *t = arg;
  int64_t width = t->dw->shape[1];
  int64_t size = (int64_t)cnn_dtype_size(t->dtype);
  double piece[CNN_PIECE];
  cnn_dtype summed = cnn_dtype_is_half(t->dtype) ? CNN_F32 : t->dtype;
  for (int64_t r = begin; r < end; r++) {
    char *row = (char *)t->dw->data + r * width * size;
    int64_t first = t->head[r], offset;
    if (first == 0) {
      memset(row, 0, (size_t)(width * size));
      continue;
    }
    if (t->next[first - 1] == 0 && t->step == 1) {
      cnn_nest_offsets(&t->places, 1, first - 1, 1, &offset);
      memcpy(row, t->dy + offset * size, (size_t)(width * size));
      continue;
    }
    for (int64_t c = 0; c < width; c += CNN_PIECE) {
      int64_t n = width - c < CNN_PIECE ? width - c : CNN_PIECE;
      memset(piece, 0, (size_t)n * cnn_dtype_size(summed));
      for (int64_t p = first; p; p = t->next[p - 1]) {
        cnn_nest_offsets(&t->places, 1, p - 1, 1, &offset);
        cnn_add_run(t->dtype, n, piece, 1, t->dy + (offset + c * t->step) * size, t->step);
      }
      cnn_convert(n, summed, piece, t->dtype, row + c * size);
    }
  }
}

static cnn_status plan_embedding_backward(cnn_call *call) {
  call->scratch_bytes =
      (size_t)(call->args[2].i + cnn_view_numel(&call->in[1]) + 1) * sizeof(int64_t);
  return CNN_OK;
}

// args: dy input n padding_idx
static cnn_status run_embedding_backward(cnn_call *call) {
  const cnn_view *dy = &call->in[0], *input = &call->in[1], *dw = &call->out[0];
  int64_t rows = call->args[2].i, n = cnn_view_numel(input), order[CNN_MAX_DIMS];
  int64_t padding = call->args[3].kind == CNN_INT ? call->args[3].i : -1;
  int64_t *head = call->scratch, *next = head + rows;
  cnn_indexing ix = {.n = 1};
  ix.index[0] = (cnn_indexer){.size = rows, .view = input};
  CNN_TRY(cnn_indexing_check(call->ctx, &ix));
  if (cnn_view_numel(dw) == 0) return CNN_OK;
  table t = {.dw = dw,
             .dy = dy->data,
             .dtype = dy->dtype,
             .step = dy->strides[dy->ndim - 1],
             .head = head,
             .next = next};
  cnn_shape_strides(input->ndim, input->shape, order);
  cnn_view first = {NULL, input->shape, order, input->ndim, CNN_U8};
  cnn_view places = {dy->data, dy->shape, dy->strides, input->ndim, dy->dtype};
  const cnn_view *views[] = {&first, &places, input};
  cnn_nest_make(&t.places, input->ndim, input->shape, views, 3);
  memset(head, 0, (size_t)rows * sizeof *head);
  // From the last place to the first, so that a chain begins with its first.
  for (int64_t end = n; end > 0;) {
    char raw[256 * 8];
    int64_t ids[256], m = (end - 1) % 256 + 1;
    end -= m;
    cnn_nest_gather(&t.places, 2, end, m, raw);
    cnn_convert(m, input->dtype, raw, CNN_I64, ids);
    for (int64_t i = m - 1; i >= 0; i--) {
      int64_t r = ids[i] - 1;
      if (r == padding) continue;
      next[end + i] = head[r];
      head[r] = end + i + 1;
    }
  }
  cnn_parallel_for(rows, 32768 / dw->shape[1] + 1, sum_rows, &t);
  return CNN_OK;
}

const cnn_kernel cpu_embedding = {NULL, run_embedding, NULL};
const cnn_kernel cpu_embedding_backward = {plan_embedding_backward, run_embedding_backward, NULL};

static cnn_status run_largest_index(cnn_call *call) {
  const cnn_view *x = &call->in[0], *views[] = {x};
  int64_t largest = 0;
  cnn_nest nest;
  cnn_nest_make(&nest, x->ndim, x->shape, views, 1);
  for (int64_t at = 0; at < nest.numel; at += 256) {
    char raw[256 * 8];
    int64_t piece[256], n = nest.numel - at < 256 ? nest.numel - at : 256;
    cnn_nest_gather(&nest, 0, at, n, raw);
    cnn_convert(n, x->dtype, raw, CNN_I64, piece);
    for (int64_t i = 0; i < n; i++) largest = piece[i] > largest ? piece[i] : largest;
  }
  *(int64_t *)call->out[0].data = largest;
  return CNN_OK;
}
const cnn_kernel cpu_largest_index = {NULL, run_largest_index, NULL};
