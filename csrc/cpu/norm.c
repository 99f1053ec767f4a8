// SPDX-License-Identifier: MIT
// Kernels of ops/norm.c. Each row is normalised by its own mean and variance; rows are cut into
// chunks, which threads share. Half types are computed in float.
#include <math.h>
#include <string.h>

#include "base/parallel.h"
#include "cpu/cpu.h"
#include "cpu/moments.h"
#include "cpu/rows.h"

#define FEW   64 // rows whose dw and db are summed before they join the chunk's
#define GRAIN 32768

enum { NEEDS_X = 1, NEEDS_W = 2, NEEDS_B = 4 };

typedef struct layer_job {
  cnn_rows x, dy, out; // out: y, or dx
  cnn_chunks chunks;
  double eps;
  int64_t needs;
  const void *w, *b; // of a row, in the computed type
  void *mean, *rstd; // one for each row
  void *dw, *db;     // NULL when not wanted
  char *chunk;       // scratch: `each` bytes for each chunk
  size_t each;
} layer_job;

#define T       float
#define N(name) name##_f32
#include "cpu/moments_body.h"
#include "cpu/norm_body.h"
#undef T
#undef N

#define T       double
#define N(name) name##_f64
#include "cpu/moments_body.h"
#include "cpu/norm_body.h"
#undef T
#undef N

// The dims that a row has: the last ones, as many as the list in argument `at` has entries.
static uint32_t row_dims(const cnn_call *call, const cnn_view *x, int at) {
  uint32_t all = (1u << x->ndim) - 1, lead = (1u << (x->ndim - call->args[at].n)) - 1;
  return all & ~lead;
}

static size_t align(size_t bytes) {
  return (bytes + 63) & ~(size_t)63;
}

// Scratch: `shared` bytes that all chunks read, then `rows` rows for each chunk.
static void lay_out(cnn_call *call, layer_job *j, size_t shared, int rows) {
  j->chunks = cnn_chunk(j->x.count, j->x.width, GRAIN);
  j->each = align((size_t)j->x.width * cnn_dtype_size(j->x.computed)) * (size_t)rows;
  call->scratch_bytes = shared + j->each * (size_t)j->chunks.n;
  j->chunk = call->scratch ? (char *)call->scratch + shared : NULL;
}

// ---------------------------------------------------------------------------------------------
// layer_norm_native(x, weight?, bias?, normalized_shape, eps) -> out mean rstd

static void start_layer_norm(cnn_call *call, layer_job *j) {
  const cnn_view *x = &call->in[0];
  cnn_dtype computed = cnn_dtype_computed(x->dtype);
  uint32_t dims = row_dims(call, x, 3);
  cnn_rows_make(&j->x, x, dims, computed);
  cnn_rows_make(&j->out, &call->out[0], dims, computed);
  lay_out(call, j,
          cnn_rows_flat_bytes(&call->in[1], computed) + cnn_rows_flat_bytes(&call->in[2], computed),
          j->x.direct && j->out.direct ? 0 : 1);
}

static cnn_status plan_layer_norm(cnn_call *call) {
  layer_job j;
  start_layer_norm(call, &j);
  return CNN_OK;
}

static void layer_norm_chunks(void *arg, int64_t begin, int64_t end) {
  const layer_job *j = arg;
  for (int64_t c = begin; c < end; c++) {
    int64_t first, last;
    void *buffer = j->each > 0 ? j->chunk + (size_t)c * j->each : NULL;
    cnn_chunk_bounds(&j->chunks, c, j->x.count, &first, &last);
    if (j->x.computed == CNN_F64)
      layer_norm_f64(j, first, last, buffer);
    else
      layer_norm_f32(j, first, last, buffer);
  }
}

static cnn_status run_layer_norm(cnn_call *call) {
  layer_job j;
  start_layer_norm(call, &j);
  char *shared = call->scratch;
  size_t w_bytes = cnn_rows_flat_bytes(&call->in[1], j.x.computed);
  j.w = cnn_rows_flat(&call->in[1], j.x.computed, shared);
  j.b = cnn_rows_flat(&call->in[2], j.x.computed, shared ? shared + w_bytes : NULL);
  j.eps = cnn_arg_number(&call->args[4]);
  j.mean = call->out[1].data;
  j.rstd = call->out[2].data;
  cnn_parallel_for(j.chunks.n, 1, layer_norm_chunks, &j);
  return CNN_OK;
}

const cnn_kernel cpu_layer_norm_native = {plan_layer_norm, run_layer_norm, NULL};

// ---------------------------------------------------------------------------------------------
// layer_norm_backward(dy, x, mean, rstd, weight?, normalized_shape, eps, needs) -> dx dw db

static void start_layer_norm_backward(cnn_call *call, layer_job *j) {
  const cnn_view *x = &call->in[1];
  cnn_dtype computed = cnn_dtype_computed(x->dtype);
  uint32_t dims = row_dims(call, x, 5);
  j->needs = call->args[7].i;
  cnn_rows_make(&j->x, x, dims, computed);
  cnn_rows_make(&j->dy, &call->in[0], dims, computed);
  cnn_rows_make(&j->out, &call->out[0], j->needs & NEEDS_X ? dims : 0, computed);
  // A row of weights or ones, of at least some bytes: rows may be empty.
  lay_out(call, j, align((size_t)j->x.width * cnn_dtype_size(computed)) + 64, 6);
}

static cnn_status plan_layer_norm_backward(cnn_call *call) {
  layer_job j;
  start_layer_norm_backward(call, &j);
  return CNN_OK;
}

static void layer_norm_backward_chunks(void *arg, int64_t begin, int64_t end) {
  const layer_job *j = arg;
  for (int64_t c = begin; c < end; c++) {
    int64_t first, last;
    void *buffer = j->each > 0 ? j->chunk + (size_t)c * j->each : NULL;
    cnn_chunk_bounds(&j->chunks, c, j->x.count, &first, &last);
    if (j->x.computed == CNN_F64)
      layer_norm_backward_f64(j, first, last, buffer);
    else
      layer_norm_backward_f32(j, first, last, buffer);
  }
}

static void add_chunks(void *arg, int64_t begin, int64_t end) {
  const layer_job *j = arg;
  if (j->x.computed == CNN_F64)
    add_chunks_f64(j, begin, end);
  else
    add_chunks_f32(j, begin, end);
}

static void fill_ones(cnn_dtype dtype, int64_t n, void *to) {
  for (int64_t i = 0; i < n; i++)
    cnn_element_set(dtype, (char *)to + (size_t)i * cnn_dtype_size(dtype), 1);
}

static cnn_status run_layer_norm_backward(cnn_call *call) {
  layer_job j;
  start_layer_norm_backward(call, &j);
  void *ones = call->scratch;
  j.w = cnn_rows_flat(&call->in[4], j.x.computed, ones);
  if (!j.w) fill_ones(j.x.computed, j.x.width, ones), j.w = ones;
  // Saved results of the forward: dense, of the computed type.
  j.mean = call->in[2].data;
  j.rstd = call->in[3].data;
  j.dw = j.needs & NEEDS_W ? call->out[1].data : NULL;
  j.db = j.needs & NEEDS_B ? call->out[2].data : NULL;
  cnn_parallel_for(j.chunks.n, 1, layer_norm_backward_chunks, &j);
  if (j.dw || j.db) cnn_parallel_for(j.x.width, GRAIN / (j.chunks.n + 1) + 1, add_chunks, &j);
  return CNN_OK;
}

const cnn_kernel cpu_layer_norm_backward = {plan_layer_norm_backward, run_layer_norm_backward,
                                            NULL};
