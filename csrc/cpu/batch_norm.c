// SPDX-License-Identifier: MIT
// Kernels of ops/batch_norm.c.
//
// Two walks over a tensor (N, C, ...). Planes: channel by channel, in contiguous runs; a channel's
// elements stay in cache between its statistics and its results. Rows, for channels that are
// innermost (channels_last, and (N, C)): all channels side by side. Whatever is not dense or not of
// the computed type goes through buffers. x decides the walk and its order.
//
// Parts of a channel and chunks of rows are joined in their order, so results don't depend on the
// number of threads.
#include <math.h>
#include <string.h>

#include "base/parallel.h"
#include "cpu/cpu.h"
#include "cpu/moments.h"
#include "cpu/rows.h"

#define GRAIN 32768
#define TILE  256

enum { X, OUT, DY, VIEWS }; // OUT: y, or dx

// Tensors of one shape by channels.
typedef struct channels {
  cnn_nest nest;       // all dims but the channels', ordered by x's memory
  int64_t c, m;        // channels, and the elements of each
  int64_t step[VIEWS]; // from channel to channel
  cnn_dtype stored[VIEWS], computed;
  bool present[VIEWS];
  bool run[VIEWS];    // its pieces (of planes) or rows are dense
  bool direct[VIEWS]; // and of the computed type: used in place
  bool rows;
  int64_t block; // elements of a piece, or rows of a block, at most
} channels;

typedef struct job job;
struct job {
  channels g;
  const struct way *way;
  bool reduces, applies; // the steps that are wanted
  bool moments;          // partial results are moments, not sums
  const cnn_view *weight, *bias, *running_mean, *running_var;
  double eps, momentum;
  bool training;
  void *mean, *rstd, *scale, *shift, *a, *b; // of each channel, in the computed type
  void *dw, *db;                             // NULL when not wanted
  int64_t parts, part;                       // planes: parts of a channel, elements of each
  cnn_chunks chunks;                         // rows
  double *acc;   // partial results: 3 for each part of each channel, or 2 c for each chunk
  char *buffers; // rows: `each` bytes for each chunk
  size_t each;
};

static double channel_value(const cnn_view *v, int64_t c, double absent) {
  if (!cnn_view_present(v)) return absent;
  int64_t at = v->shape[0] > 1 ? c * v->strides[0] : 0;
  return cnn_element_get(v->dtype, (const char *)v->data + at * (int64_t)cnn_dtype_size(v->dtype));
}

// running = (1 - momentum) running + momentum value, for channel c.
static void update(const cnn_view *running, int64_t c, double momentum, double value) {
  int64_t at = running->shape[0] > 1 ? c * running->strides[0] : 0;
  void *p = (char *)running->data + at * (int64_t)cnn_dtype_size(running->dtype);
  cnn_element_set(running->dtype, p,
                  (1 - momentum) * cnn_element_get(running->dtype, p) + momentum * value);
}

static char *element(const channels *g, int view, int64_t offset) {
  return g->nest.data[view] + offset * (int64_t)cnn_dtype_size(g->stored[view]);
}

static int64_t offset_of(const channels *g, int view, int64_t at) {
  int64_t offset = 0;
  for (int d = g->nest.ndim - 1; d > 0; d--) {
    offset += at % g->nest.shape[d] * g->nest.strides[view][d];
    at /= g->nest.shape[d];
  }
  return g->nest.ndim > 0 ? offset + at * g->nest.strides[view][0] : 0;
}

// --- Planes -------------------------------------------------------------------------------------

// A run of n elements of one channel, of each view in place or in its buffer.
typedef struct piece {
  int64_t n;
  void *at[VIEWS];
  cnn_nest nest; // of the channel, where some view has to be gathered
  _Alignas(64) char raw[CNN_PIECE * 8];
  _Alignas(64) char buffer[VIEWS][CNN_PIECE * 8];
} piece;

static void start_channel(const channels *g, int64_t c, piece *p) {
  bool runs = true;
  for (int k = 0; k < VIEWS; k++) runs = runs && (g->run[k] || !g->present[k]);
  if (runs) return;
  p->nest = g->nest;
  for (int k = 0; k < VIEWS; k++)
    if (g->present[k]) p->nest.data[k] = element(g, k, c * g->step[k]);
}

// The piece from element `at` of channel c, not beyond `end`: of `views` (bits) it has the values.
static void read_piece(const channels *g, int64_t c, int64_t at, int64_t end, int views, piece *p) {
  int64_t inner = g->nest.ndim > 0 ? g->nest.shape[g->nest.ndim - 1] : 1, rest = inner - at % inner;
  int64_t n = end - at < g->block ? end - at : g->block;
  if ((g->run[X] || g->run[OUT] || g->run[DY]) && n > rest) n = rest;
  p->n = n;
  for (int k = 0; k < VIEWS; k++) {
    if (!g->present[k]) continue;
    p->at[k] = p->buffer[k];
    const void *from = p->raw;
    if (g->run[k]) from = element(g, k, c * g->step[k] + offset_of(g, k, at));
    if (g->direct[k]) p->at[k] = (void *)(uintptr_t)from;
    if (g->direct[k] || !(views >> k & 1)) continue;
    if (!g->run[k] && g->stored[k] == g->computed) {
      cnn_nest_gather(&p->nest, k, at, n, p->buffer[k]);
    } else {
      if (!g->run[k]) cnn_nest_gather(&p->nest, k, at, n, p->raw);
      cnn_convert(n, g->stored[k], from, g->computed, p->buffer[k]);
    }
  }
}

static void write_piece(const channels *g, int64_t c, int64_t at, piece *p) {
  if (g->direct[OUT]) return;
  if (g->run[OUT]) {
    cnn_convert(p->n, g->computed, p->at[OUT], g->stored[OUT],
                element(g, OUT, c * g->step[OUT] + offset_of(g, OUT, at)));
  } else if (g->stored[OUT] == g->computed) {
    cnn_nest_scatter(&p->nest, OUT, at, p->n, p->at[OUT]);
  } else {
    cnn_convert(p->n, g->computed, p->at[OUT], g->stored[OUT], p->raw);
    cnn_nest_scatter(&p->nest, OUT, at, p->n, p->raw);
  }
}

// --- Rows ---------------------------------------------------------------------------------------

static size_t block_bytes(const channels *g) {
  return ((size_t)(g->block * g->c) * cnn_dtype_size(g->computed) + 63) & ~(size_t)63;
}

static cnn_rows row_of(const channels *g, int view, int64_t r) {
  const cnn_view v = {element(g, view, offset_of(g, view, r)), &g->c, &g->step[view], 1,
                      g->stored[view]};
  cnn_rows row;
  cnn_rows_make(&row, &v, 1, g->computed);
  return row;
}

// Elements from row to row, where rows are dense.
static int64_t pitch_of(const channels *g, int view) {
  return g->nest.ndim > 0 ? g->nest.strides[view][0] : g->c;
}

// Rows [r, r + n) of a view: in place, or in the chunk's buffer for it.
static const void *read_rows(const channels *g, int view, int64_t r, int64_t n, char *buffers,
                             int64_t *pitch) {
  *pitch = g->direct[view] ? pitch_of(g, view) : g->c;
  if (g->direct[view]) return element(g, view, r * *pitch);
  char *to = buffers + (size_t)view * block_bytes(g);
  size_t bytes = (size_t)g->c * cnn_dtype_size(g->computed);
  if (g->run[view] && pitch_of(g, view) == g->c) {
    cnn_convert(n * g->c, g->stored[view], element(g, view, r * g->c), g->computed, to);
    return to;
  }
  for (int64_t i = 0; i < n; i++) {
    cnn_rows row = row_of(g, view, r + i);
    const void *from = cnn_rows_get(&row, 0, to + (size_t)i * bytes);
    if (from != to + (size_t)i * bytes) memcpy(to + (size_t)i * bytes, from, bytes);
  }
  return to;
}

// Where to write the rows from r on.
static void *place_rows(const channels *g, int64_t r, char *buffers, int64_t *pitch) {
  *pitch = g->direct[OUT] ? pitch_of(g, OUT) : g->c;
  return g->direct[OUT] ? element(g, OUT, r * *pitch) : buffers + OUT * block_bytes(g);
}

static void write_rows(const channels *g, int64_t r, int64_t n, const void *from) {
  if (g->direct[OUT]) return;
  if (g->run[OUT] && pitch_of(g, OUT) == g->c) {
    cnn_convert(n * g->c, g->computed, from, g->stored[OUT], element(g, OUT, r * g->c));
    return;
  }
  size_t bytes = (size_t)g->c * cnn_dtype_size(g->computed);
  for (int64_t i = 0; i < n; i++) {
    cnn_rows row = row_of(g, OUT, r + i);
    const char *source = (const char *)from + (size_t)i * bytes;
    void *place = cnn_rows_place(&row, 0, (char *)(uintptr_t)source);
    if (place != source) memcpy(place, source, bytes);
    cnn_rows_put(&row, 0, source);
  }
}

#define T       float
#define N(name) name##_f32
#include "cpu/moments_body.h"
#include "cpu/batch_norm_body.h"
#undef T
#undef N

#define T       double
#define N(name) name##_f64
#include "cpu/moments_body.h"
#include "cpu/batch_norm_body.h"
#undef T
#undef N

// --- The order of the steps ---------------------------------------------------------------------

// A way to compute: reduce parts of channels (or chunks of rows), and apply what came of it.
typedef struct way {
  void (*plane_reduce)(const job *j, int64_t c, int64_t begin, int64_t end, double *acc);
  void (*plane_apply)(const job *j, int64_t c, int64_t begin, int64_t end);
  void (*row_reduce)(const job *j, int64_t begin, int64_t end, double *acc, char *buffers);
  void (*row_apply)(const job *j, int64_t begin, int64_t end, char *buffers);
  void (*finish)(job *j, int64_t c, const double *acc); // channel c is reduced
} way;

static const way forward_f32 = {plane_moments_f32, plane_affine_f32, row_moments_f32,
                                row_affine_f32, set_statistics_f32};
static const way forward_f64 = {plane_moments_f64, plane_affine_f64, row_moments_f64,
                                row_affine_f64, set_statistics_f64};
static const way backward_f32 = {plane_dots_f32, plane_gradient_f32, row_dots_f32, row_gradient_f32,
                                 set_gradients_f32};
static const way backward_f64 = {plane_dots_f64, plane_gradient_f64, row_dots_f64, row_gradient_f64,
                                 set_gradients_f64};

static void part_bounds(const job *j, int64_t k, int64_t *begin, int64_t *end) {
  *begin = k * j->part;
  *end = k + 1 < j->parts ? *begin + j->part : j->g.m;
}

// Whole channels [begin, end): all steps, while their elements are in cache.
static void plane_channels(void *arg, int64_t begin, int64_t end) {
  job *j = arg;
  for (int64_t c = begin; c < end; c++) {
    double acc[3] = {0, 0, 0};
    if (j->reduces) j->way->plane_reduce(j, c, 0, j->g.m, acc);
    j->way->finish(j, c, acc);
    if (j->applies) j->way->plane_apply(j, c, 0, j->g.m);
  }
}

static void plane_reduce_parts(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  for (int64_t i = begin; i < end; i++) {
    int64_t first, last;
    part_bounds(j, i % j->parts, &first, &last);
    j->way->plane_reduce(j, i / j->parts, first, last, j->acc + 3 * i);
  }
}

static void plane_apply_parts(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  for (int64_t i = begin; i < end; i++) {
    int64_t first, last;
    part_bounds(j, i % j->parts, &first, &last);
    j->way->plane_apply(j, i / j->parts, first, last);
  }
}

// Where nothing is to be reduced: run by run as they lie in memory, whatever their channels.
static void plane_apply_runs(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  int64_t c = j->g.c, run = j->g.nest.shape[j->g.nest.ndim - 1];
  for (int64_t i = begin; i < end; i++)
    j->way->plane_apply(j, i % c, i / c * run, (i / c + 1) * run);
}

static void row_reduce_chunks(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  for (int64_t i = begin; i < end; i++) {
    int64_t first, last;
    cnn_chunk_bounds(&j->chunks, i, j->g.m, &first, &last);
    j->way->row_reduce(j, first, last, j->acc + 2 * j->g.c * i, j->buffers + (size_t)i * j->each);
  }
}

static void row_apply_chunks(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  for (int64_t i = begin; i < end; i++) {
    int64_t first, last;
    cnn_chunk_bounds(&j->chunks, i, j->g.m, &first, &last);
    j->way->row_apply(j, first, last, j->buffers + (size_t)i * j->each);
  }
}

// Partial results: the moments of a part (count, mean, m2), or two sums that add.
static void join_partial(const job *j, double *acc, const double *part) {
  if (!j->moments) {
    acc[0] += part[0], acc[1] += part[1];
    return;
  }
  if (part[0] == 0) return;
  moments m = {acc[0], acc[1], acc[2]}, piece_m = {part[0], part[1], part[2]};
  join(&m, &piece_m);
  acc[0] = m.n, acc[1] = m.mean, acc[2] = m.m2;
}

// Channel c over all parts or chunks, in their order.
static void finish_channel(job *j, int64_t c) {
  double acc[3] = {0, 0, 0};
  if (j->reduces && !j->g.rows)
    for (int64_t k = 0; k < j->parts; k++) join_partial(j, acc, j->acc + 3 * (c * j->parts + k));
  if (j->reduces && j->g.rows)
    for (int64_t k = 0; k < j->chunks.n; k++) {
      int64_t first, last;
      const double *sums = j->acc + 2 * j->g.c * k + c;
      cnn_chunk_bounds(&j->chunks, k, j->g.m, &first, &last);
      double part[3] = {sums[0], sums[j->g.c], 0};
      if (j->moments) part[0] = (double)(last - first), part[1] = sums[0], part[2] = sums[j->g.c];
      join_partial(j, acc, part);
    }
  j->way->finish(j, c, acc);
}

static void run_job(job *j) {
  int64_t c = j->g.c, m = j->g.m;
  int64_t tasks = j->g.rows ? j->chunks.n : c * j->parts;
  int64_t run = j->g.nest.ndim > 1 ? j->g.nest.shape[j->g.nest.ndim - 1] : 0;
  if (!j->g.rows && !j->reduces && j->applies && run >= 16) {
    for (int64_t i = 0; i < c; i++) finish_channel(j, i);
    cnn_parallel_for(c * (m / run), GRAIN / run + 1, plane_apply_runs, j);
    return;
  }
  if (!j->g.rows && j->parts == 1) {
    cnn_parallel_for(c, GRAIN / (m + 1) + 1, plane_channels, j);
    return;
  }
  if (j->reduces) cnn_parallel_for(tasks, 1, j->g.rows ? row_reduce_chunks : plane_reduce_parts, j);
  for (int64_t i = 0; i < c; i++) finish_channel(j, i);
  if (j->applies) cnn_parallel_for(tasks, 1, j->g.rows ? row_apply_chunks : plane_apply_parts, j);
}

// --- Setting up ---------------------------------------------------------------------------------

static void set_channels(channels *g, const cnn_view *const *views) {
  const cnn_view *x = views[X], *used[VIEWS];
  cnn_view v[VIEWS];
  int64_t shape[CNN_MAX_DIMS], strides[VIEWS][CNN_MAX_DIMS];
  int n = views[DY] ? 3 : 2;
  g->computed = cnn_dtype_computed(x->dtype);
  g->c = x->shape[1];
  g->m = 1;
  for (int d = 0, at = 0; d < x->ndim; d++) {
    if (d == 1) continue;
    g->m *= shape[at++] = x->shape[d];
  }
  for (int k = 0; k < VIEWS; k++) {
    g->present[k] = views[k] != NULL;
    const cnn_view *from = views[k] ? views[k] : x;
    for (int d = 0, at = 0; d < x->ndim; d++)
      if (d != 1) strides[k][at++] = from->strides[d];
    v[k] = (cnn_view){from->data, shape, strides[k], x->ndim - 1, from->dtype};
    used[k] = &v[k];
    g->step[k] = g->c > 1 ? from->strides[1] : 0;
    g->stored[k] = from->dtype;
  }
  cnn_nest_make(&g->nest, x->ndim - 1, shape, used, n);
  int inner = g->nest.ndim - 1;
  g->rows = g->c > 1 && g->step[X] == 1 && g->m > 0 && (inner < 0 || g->nest.strides[X][inner] > 1);
  for (int k = 0; k < VIEWS; k++) {
    if (g->rows)
      g->run[k] = g->present[k] && g->step[k] == 1 && g->nest.ndim <= 1;
    else
      g->run[k] = g->present[k] && (inner < 0 || g->nest.strides[k][inner] == 1);
    g->direct[k] = g->run[k] && g->stored[k] == g->computed;
  }
  if (g->rows) {
    g->block = g->c < BLOCK ? BLOCK / g->c : 1;
    if (g->block > 64) g->block = 64;
  } else {
    g->block = BLOCK;
    for (int k = 0; k < n; k++)
      if (g->present[k] && !g->direct[k]) g->block = CNN_PIECE;
  }
}

static size_t align(size_t bytes) {
  return (bytes + 63) & ~(size_t)63;
}

// Cuts the work and lays out the scratch: six vectors of channels, partial results, buffers.
static void cut(cnn_call *call, job *j) {
  int64_t c = j->g.c, m = j->g.m;
  size_t vector = align((size_t)c * cnn_dtype_size(j->g.computed)), accs;
  j->parts = 1;
  if (c > 0 && c < 32 && c * m >= 2 * GRAIN) j->parts = m / GRAIN < 64 / c ? m / GRAIN : 64 / c;
  if (j->parts < 1) j->parts = 1;
  j->part = (m + j->parts - 1) / j->parts;
  if (j->part > 0) j->parts = (m + j->part - 1) / j->part;
  j->chunks = cnn_chunk(m, c, GRAIN);
  j->each = j->g.rows ? VIEWS * block_bytes(&j->g) : 0;
  accs = align((size_t)(j->g.rows ? 2 * c * j->chunks.n : 3 * c * j->parts) * sizeof(double));
  call->scratch_bytes = 6 * vector + accs + j->each * (size_t)j->chunks.n + 64;
  if (!call->scratch) return;
  char *at = call->scratch;
  void **vectors[] = {&j->mean, &j->rstd, &j->scale, &j->shift, &j->a, &j->b};
  for (int i = 0; i < 6; i++, at += vector) *vectors[i] = at;
  j->acc = (double *)(void *)at;
  j->buffers = at + accs;
}

// ---------------------------------------------------------------------------------------------
// batch_norm_train(x, weight?, bias?, running_mean?!, running_var?!, momentum, eps)
// batch_norm_eval(x, weight?, bias?, running_mean, running_var, eps)    -> out mean rstd

static void start_forward(cnn_call *call, job *j, bool training) {
  const cnn_view *views[VIEWS] = {[X] = &call->in[0], [OUT] = &call->out[0]};
  set_channels(&j->g, views);
  cut(call, j);
  j->way = j->g.computed == CNN_F64 ? &forward_f64 : &forward_f32;
  j->reduces = j->moments = j->training = training;
  j->applies = true;
  j->weight = &call->in[1];
  j->bias = &call->in[2];
  j->running_mean = &call->in[3];
  j->running_var = &call->in[4];
  j->momentum = training ? cnn_arg_number(&call->args[5]) : 0;
  j->eps = cnn_arg_number(&call->args[training ? 6 : 5]);
  j->mean = call->out[1].data;
  j->rstd = call->out[2].data;
}

static cnn_status plan_forward(cnn_call *call) {
  job j;
  start_forward(call, &j, call->n_args == 7);
  return CNN_OK;
}

static cnn_status run_forward(cnn_call *call) {
  job j;
  start_forward(call, &j, call->n_args == 7);
  run_job(&j);
  return CNN_OK;
}

const cnn_kernel cpu_batch_norm_train = {plan_forward, run_forward, NULL};
const cnn_kernel cpu_batch_norm_eval = {plan_forward, run_forward, NULL};

// ---------------------------------------------------------------------------------------------
// batch_norm_backward(dy, x, mean, rstd, weight?, training, eps, needs) -> dx dw db

static void start_backward(cnn_call *call, job *j) {
  int64_t needs = call->args[7].i;
  j->applies = needs & 1;
  const cnn_view *views[VIEWS] = {
      [X] = &call->in[1], [OUT] = j->applies ? &call->out[0] : NULL, [DY] = &call->in[0]};
  set_channels(&j->g, views);
  cut(call, j);
  j->way = j->g.computed == CNN_F64 ? &backward_f64 : &backward_f32;
  j->moments = false;
  j->training = call->args[5].i != 0;
  j->reduces = j->training || needs & 6;
  j->mean = call->in[2].data;
  j->rstd = call->in[3].data;
  j->weight = &call->in[4];
  j->dw = needs & 2 ? call->out[1].data : NULL;
  j->db = needs & 4 ? call->out[2].data : NULL;
}

static cnn_status plan_backward(cnn_call *call) {
  job j;
  start_backward(call, &j);
  return CNN_OK;
}

static cnn_status run_backward(cnn_call *call) {
  job j;
  start_backward(call, &j);
  run_job(&j);
  return CNN_OK;
}

const cnn_kernel cpu_batch_norm_backward = {plan_backward, run_backward, NULL};
