// SPDX-License-Identifier: MIT
// Kernels of ops/loss.c: each row of loss.def, expanded once per type.
//
// A row computes on pieces of contiguous elements of the computed type; the driver brings the
// pieces, whatever the strides and dtypes, and adds up. Chunks are summed in double and joined in
// their order.
#include <math.h>

#include "base/parallel.h"
#include "cpu/cpu.h"
#include "cpu/expression.h"
#include "cpu/moments.h"
#include "cpu/rows.h"
#include "cpu/scalar.h"
#include "engine/fault.h"

#define GRAIN 16384

enum { REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM };

// dy times the reduction's factor, input, target, third tensor, number arguments.
typedef struct pieces {
  const void *g, *x, *y, *w, *p;
} pieces;

typedef void (*loss_fn)(int64_t n, const pieces *in, void *out);

typedef struct loss_row {
  bool third;          // there is a third tensor
  bool unit;           // input and target are probabilities
  loss_fn value[2];    // by computed type, float and double: the losses of n elements
  loss_fn slope[2][2]; // by side and type: their derivatives for input and target
} loss_row;

// Logarithms that are at least -100.
static inline float m_log_from_100_f32(float x) {
  float y = v_log(x);
  return y < -100 ? -100 : y;
}
static inline double m_log_from_100_f64(double x) {
  double y = log(x);
  return y < -100 ? -100 : y;
}
static inline float m_log1p_from_100_f32(float x) {
  float y = v_log1p(x);
  return y < -100 ? -100 : y;
}
static inline double m_log1p_from_100_f64(double x) {
  double y = log1p(x);
  return y < -100 ? -100 : y;
}

#define HAS_NONE       0
#define HAS_POS_WEIGHT 1
#define IS_ANY         false
#define IS_UNIT        true

#define X    x
#define Y    y
#define W    w
#define G    gs[i]
#define P(i) p[i]

#define T       float
#define N(name) name##_f32
#define M(f)    m_##f##_f32
#include "cpu/loss_body.h"
#undef T
#undef N
#undef M

#define T       double
#define N(name) name##_f64
#define M(f)    m_##f##_f64
#include "cpu/loss_body.h"
#undef T
#undef N
#undef M

// ---------------------------------------------------------------------------------------------
// The driver

enum { OUT, XS, YS, WS, GS, SLOTS };

typedef struct loss_job {
  const loss_row *row;
  loss_fn fn;
  bool backward;
  cnn_nest nest;
  int view[SLOTS]; // the nest's number of a slot's view, -1 without
  bool dense[SLOTS];
  cnn_dtype stored[SLOTS], computed;
  double g, p; // the gradient of every element, where it is one number; the number argument
  cnn_chunks chunks;
  struct partial *partials; // of the chunks
} loss_job;

// What comes of a chunk.
typedef struct partial {
  double sum;
  int wrong; // the slot of a tensor that is no probability somewhere, and the value there; 0: none
  double value;
} partial;

typedef union piece {
  double align;
  char bytes[CNN_PIECE * 8];
} piece;

// Whether a view's elements lie one after the other in the nest's order.
static bool is_dense(const cnn_nest *nest, int k) {
  int64_t step = 1;
  for (int d = nest->ndim - 1; d >= 0; d--) {
    if (nest->strides[k][d] != step) return false;
    step *= nest->shape[d];
  }
  return true;
}

static void fill(cnn_dtype dtype, int64_t n, double value, piece *to) {
  for (int64_t i = 0; i < n && i < CNN_PIECE; i++)
    if (dtype == CNN_F64)
      ((double *)(void *)to->bytes)[i] = value;
    else
      ((float *)(void *)to->bytes)[i] = (float)value;
}

// Elements [at, at + n) of a slot, in place or in `to`; what `to` holds for a slot without a view.
static const void *read_slot(const loss_job *j, int slot, int64_t at, int64_t n, piece *to) {
  int k = j->view[slot];
  piece raw;
  if (k < 0) return to->bytes;
  const void *from = j->nest.data[k] + at * (int64_t)j->nest.size[k];
  bool same = j->stored[slot] == j->computed;
  if (j->dense[slot] && same) return from;
  if (!j->dense[slot]) {
    from = same ? to->bytes : raw.bytes;
    cnn_nest_gather(&j->nest, k, at, n, (void *)(uintptr_t)from);
  }
  if (!same) cnn_convert(n, j->stored[slot], from, j->computed, to->bytes);
  return to->bytes;
}

static void *place_out(const loss_job *j, int64_t at, piece *buffer) {
  int k = j->view[OUT];
  if (k < 0 || !j->dense[OUT] || j->stored[OUT] != j->computed) return buffer->bytes;
  return j->nest.data[k] + at * (int64_t)j->nest.size[k];
}

static void write_out(const loss_job *j, int64_t at, int64_t n, const void *from) {
  int k = j->view[OUT];
  piece raw;
  char *place = j->nest.data[k] + at * (int64_t)j->nest.size[k];
  if (from == place) return;
  if (j->dense[OUT]) {
    cnn_convert(n, j->computed, from, j->stored[OUT], place);
    return;
  }
  if (j->stored[OUT] != j->computed) {
    cnn_convert(n, j->computed, from, j->stored[OUT], raw.bytes);
    from = raw.bytes;
  }
  cnn_nest_scatter(&j->nest, k, at, n, from);
}

static void check_unit(const loss_job *j, int slot, int64_t n, const void *x, partial *result) {
  if (j->computed == CNN_F64 ? in_unit_f64(n, x) : in_unit_f32(n, x)) return;
  for (int64_t i = 0; i < n && !result->wrong; i++) {
    double v =
        cnn_element_get(j->computed, (const char *)x + (size_t)i * cnn_dtype_size(j->computed));
    if (!(v >= 0 && v <= 1)) result->wrong = slot, result->value = v;
  }
}

static void run_chunk(const loss_job *j, int64_t begin, int64_t end, partial *result) {
  piece x, y, w, g, out;
  const float p = (float)j->p;
  bool f64 = j->computed == CNN_F64, reduced = j->view[OUT] < 0;
  pieces in = {.p = f64 ? (const void *)&j->p : &p};
  *result = (partial){0, 0, 0};
  if (j->row->third && j->view[WS] < 0) fill(j->computed, end - begin, 1, &w);
  if (j->backward && j->view[GS] < 0) fill(j->computed, end - begin, j->g, &g);
  for (int64_t at = begin; at < end; at += CNN_PIECE) {
    int64_t n = end - at < CNN_PIECE ? end - at : CNN_PIECE;
    in.x = read_slot(j, XS, at, n, &x);
    in.y = read_slot(j, YS, at, n, &y);
    if (j->row->third) in.w = read_slot(j, WS, at, n, &w);
    if (j->backward) in.g = read_slot(j, GS, at, n, &g);
    if (j->row->unit && !j->backward) {
      check_unit(j, XS, n, in.x, result);
      check_unit(j, YS, n, in.y, result);
    }
    void *to = place_out(j, at, &out);
    j->fn(n, &in, to);
    if (reduced)
      result->sum += f64 ? total_f64(n, to) : total_f32(n, to);
    else
      write_out(j, at, n, to);
  }
}

static void run_chunks(void *arg, int64_t begin, int64_t end) {
  const loss_job *j = arg;
  for (int64_t i = begin; i < end; i++) {
    int64_t first, last;
    cnn_chunk_bounds(&j->chunks, i, j->nest.numel, &first, &last);
    run_chunk(j, first, last, &j->partials[i]);
  }
}

static cnn_status wrong_value(cnn_context *ctx, const partial *p) {
  return cnn_fault_raise(ctx,
                         &(cnn_fault){.kind = p->wrong == YS ? CNN_FAULT_TARGET : CNN_FAULT_INPUT,
                                      .number = p->value});
}

// The rest of a job from its views (NULL: none) and arguments; `at` is the reduction's place.
static void make_job(loss_job *j, const cnn_call *call, const cnn_view *const *views, int at) {
  const cnn_view *used[SLOTS], *x = views[XS];
  int last = call->n_args - 1;
  j->row = call->kernel->data;
  j->computed = cnn_dtype_computed(x->dtype);
  j->p = at + 1 <= last ? cnn_arg_number(&call->args[at + 1]) : 0;
  j->nest.n_views = 0;
  for (int k = 0; k < SLOTS; k++) {
    j->view[k] = -1;
    if (!views[k] || !cnn_view_present(views[k])) continue;
    j->view[k] = j->nest.n_views;
    j->stored[k] = views[k]->dtype;
    used[j->nest.n_views++] = views[k];
  }
  cnn_nest_make(&j->nest, x->ndim, x->shape, used, j->nest.n_views);
  for (int k = 0; k < SLOTS; k++) j->dense[k] = j->view[k] >= 0 && is_dense(&j->nest, j->view[k]);
  j->chunks = cnn_chunk(j->nest.numel, 1, GRAIN);
}

static cnn_status run_loss(cnn_call *call) {
  loss_job j;
  partial partials[CNN_CHUNKS];
  const loss_row *row = call->kernel->data;
  int at = call->n_in;
  bool reduced = call->args[at].i != REDUCE_NONE;
  const cnn_view *views[SLOTS] = {[OUT] = reduced ? NULL : &call->out[0],
                                  [XS] = &call->in[0],
                                  [YS] = &call->in[1],
                                  [WS] = row->third ? &call->in[2] : NULL};
  make_job(&j, call, views, at);
  j.backward = false;
  j.fn = row->value[j.computed == CNN_F64];
  j.partials = partials;
  cnn_parallel_for(j.chunks.n, 1, run_chunks, &j);
  double sum = 0;
  for (int64_t i = 0; i < j.chunks.n; i++) {
    if (partials[i].wrong) return wrong_value(call->ctx, &partials[i]);
    sum += partials[i].sum;
  }
  if (!reduced) return CNN_OK;
  if (call->args[at].i == REDUCE_MEAN) sum /= (double)j.nest.numel;
  cnn_element_set(call->out[0].dtype, call->out[0].data, sum);
  return CNN_OK;
}

static cnn_status run_loss_backward(cnn_call *call) {
  loss_job j;
  partial partials[CNN_CHUNKS];
  const loss_row *row = call->kernel->data;
  const cnn_view *dy = &call->in[0];
  int at = call->n_in;
  bool reduced = call->args[at].i != REDUCE_NONE;
  const cnn_view *views[SLOTS] = {[OUT] = &call->out[0],
                                  [XS] = &call->in[1],
                                  [YS] = &call->in[2],
                                  [WS] = row->third ? &call->in[3] : NULL,
                                  [GS] = reduced ? NULL : dy};
  make_job(&j, call, views, at);
  j.backward = true;
  if (reduced) j.g = cnn_element_get(dy->dtype, dy->data);
  if (call->args[at].i == REDUCE_MEAN) j.g /= (double)j.nest.numel;
  j.fn = row->slope[call->args[call->n_args - 1].i != 0][j.computed == CNN_F64];
  j.partials = partials;
  cnn_parallel_for(j.chunks.n, 1, run_chunks, &j);
  return CNN_OK;
}

#define LOSS(title, flags, third_tensor, domain, params, forward, dx, dy, ...)                     \
  static const loss_row row_##title = {.third = HAS_##third_tensor,                                \
                                       .unit = IS_##domain,                                        \
                                       .value = {title##_f32, title##_f64},                        \
                                       .slope = {{title##_dx_f32, title##_dx_f64},                 \
                                                 {title##_dy_f32, title##_dy_f64}}};               \
  const cnn_kernel cpu_##title = {NULL, run_loss, &row_##title};                                   \
  const cnn_kernel cpu_##title##_backward = {NULL, run_loss_backward, &row_##title};
#include "ops/loss.def"
