// SPDX-License-Identifier: MIT
// Kernels of ops/pooling.c, over 1 to 3 spatial dims, which are all handled as three.
//
// Half types are computed as float, integers as int64. Sums over windows add up rows first and then
// along a row, so that the error of a large window grows with its sides, not with its area.
#include "cpu/cpu.h"

#include <math.h>
#include <string.h>

#include "cpu/clones.h"
#include "cpu/elementwise.h"
#include "cpu/spatial.h"
#include "cpu/tasks.h"
#include "engine/window.h"

#define TASK_ELEMENTS (1 << 14) // of the input, that make a task
#define MERGED_MOST   16        // rows of a result that are pooled along in one go
#define THREAD_LEAST  (1 << 15)

typedef struct pool {
  cnn_dtype dtype, computed;
  size_t size;  // of a stored element
  int64_t n, c; // images and channels
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], before[3];
  bool adaptive, last; // last: channels-last
  bool pairs;          // windows of 2 x 2 side by side, over plain rows of the computed type
  bool whole;          // one window that is the whole plane, one run of the computed type
  bool even;           // places and y are runs of planes of the computed type
  bool include_pad;
  int64_t divisor; // in place of the count; 0: none
  cnn_spatial x, y, at;
  int64_t rows;                // of a plane of the result: out[0] * out[1]
  int64_t pitch;               // columns under a row of windows, padding included
  int64_t merged;              // rows whose columns follow each other without a gap
  int64_t rows_all, rows_each; // tasks over rows of the result; over planes
  int64_t planes_each;
} pool;

// ---------------------------------------------------------------------------------------------
// Windows

// The places of dim d inside the input under window i: first, first + step ... Never empty.
typedef struct span {
  int64_t first, count, step;
} span;

static span span_at(const pool *p, int d, int64_t i) {
  span s;
  if (p->adaptive) {
    s.first = i * p->in[d] / p->out[d];
    s.count = ((i + 1) * p->in[d] + p->out[d] - 1) / p->out[d] - s.first;
    s.step = 1;
    return s;
  }
  int64_t start = i * p->stride[d] - p->before[d], step = p->dilation[d];
  int64_t skipped = start < 0 ? -start : 0, end = p->in[d] - start;
  if (step > 1) skipped = (skipped + step - 1) / step, end = (end - 1) / step + 1;
  s.step = step;
  s.first = start + skipped * s.step;
  s.count = (end < p->kernel[d] ? end : p->kernel[d]) - skipped;
  return s;
}

// The rows of x under the windows of row `row` of y, one after the other.
typedef struct rows_under {
  span down;
  int64_t d, h, left, count; // the present row; rows left in its depth; rows in all
  int64_t step;
} rows_under;

static rows_under rows_at(const pool *p, int64_t row) {
  bool flat = p->out[0] == 1 && p->in[0] == 1;
  span d = flat ? (span){0, 1, 1} : span_at(p, 0, row / p->out[1]);
  rows_under u = {.down = span_at(p, 1, flat ? row : row % p->out[1]), .d = d.first};
  u.h = u.down.first;
  u.left = u.down.count;
  u.count = d.count * u.down.count;
  u.step = d.step;
  return u;
}

static inline void next_row(rows_under *u) {
  u->h += u->down.step;
  if (--u->left > 0) return;
  u->h = u->down.first;
  u->left = u->down.count;
  u->d += u->step;
}

// What dim d of window i counts for in a mean.
static int64_t count_at(const pool *p, int d, int64_t i) {
  if (p->adaptive || !p->include_pad) return span_at(p, d, i).count;
  int64_t start = i * p->stride[d] - p->before[d], end = start + p->kernel[d];
  return (end < p->in[d] + p->before[d] ? end : p->in[d] + p->before[d]) - start;
}

// The windows of a row, which adaptive ones need often; NULL for others.
static const span *columns_of(const pool *p, char **scratch) {
  if (!p->adaptive) return NULL;
  span *columns = cnn_take(scratch, (size_t)p->out[2] * sizeof *columns);
  for (int64_t i = 0; i < p->out[2]; i++) columns[i] = span_at(p, 2, i);
  return columns;
}

static char *element_at(const pool *p, const cnn_spatial *o, int64_t n, int64_t c, int64_t offset) {
  return o->data + (n * o->n + c * o->c + offset) * (int64_t)p->size;
}

// The places of the maxima of row (a, b).
static const int32_t *places_at(const pool *p, int64_t n, int64_t c, int64_t a, int64_t b) {
  return (const int32_t *)(const void *)p->at.data + n * p->at.n + c * p->at.c + a * p->at.s[0] +
         b * p->at.s[1];
}

#define T               float
#define NAME(x)         x##_f32
#define LOWEST          (-HUGE_VALF)
#define IS_NAN(v)       ((v) != (v))
#define UNORDERED(a, b) __builtin_isunordered(a, b)
#define MEANS
#include "cpu/pool_type.h"
#undef T
#undef NAME
#undef LOWEST
#define T       double
#define NAME(x) x##_f64
#define LOWEST  (-HUGE_VAL)
#include "cpu/pool_type.h"
#undef T
#undef NAME
#undef LOWEST
#undef MEANS
#undef IS_NAN
#undef UNORDERED
#define T               int64_t
#define NAME(x)         x##_i64
#define LOWEST          INT64_MIN
#define IS_NAN(v)       false
#define UNORDERED(a, b) 0
#include "cpu/pool_type.h"
#undef T
#undef NAME
#undef LOWEST
#undef IS_NAN
#undef UNORDERED

// ---------------------------------------------------------------------------------------------
// Reading calls

static size_t computed_size(const pool *p) {
  return p->computed == CNN_F32 ? 4 : 8;
}

// Whether the windows of `w` are 2 x 2 side by side, and x and y plain rows.
static bool has_pairs(const pool *p, const cnn_window *w) {
  if (w->n != 2 || p->last || p->dtype != p->computed) return false;
  for (int i = 0; i < 2; i++)
    if (w->kernel[i] != 2 || w->stride[i] != 2 || w->dilation[i] != 1 || w->before[i] != 0 ||
        2 * w->out[i] > w->in[i])
      return false;
  return p->x.s[2] == 1 && p->x.s[1] == p->in[2] && (p->y.s[2] == 1 || p->out[2] == 1);
}

// Whether the only window is the whole of each plane, and all planes of x and y are one run.
static bool is_whole(const pool *p) {
  int64_t places = p->x.places;
  if (p->last || p->dtype != p->computed || p->x.step != 1) return false;
  if (p->c > 1 && (p->x.c != places || p->y.c != 1)) return false;
  if (p->n > 1 && (p->x.n != p->c * places || p->y.n != p->c)) return false;
  for (int i = 0; i < 3; i++)
    if (p->out[i] != 1 || (!p->adaptive && (p->kernel[i] != p->in[i] || p->before[i] != 0)))
      return false;
  return true;
}

// Activations x (the larger side) and y, over n spatial dims; the windows are those of `w`, which
// is NULL for adaptive ones. `lead` is the input that gave the result its layout.
static void read_pool(pool *p, int n, const cnn_view *x, const cnn_view *y, const cnn_view *lead,
                      const cnn_window *w) {
  memset(p, 0, sizeof *p);
  p->dtype = x->dtype;
  p->computed = p->dtype == CNN_F64 ? CNN_F64 : cnn_dtype_is_float(p->dtype) ? CNN_F32 : CNN_I64;
  p->size = cnn_dtype_size(p->dtype);
  cnn_spatial_read(&p->x, x, n);
  cnn_spatial_read(&p->y, y, n);
  p->n = x->ndim == n + 2 ? x->shape[0] : 1;
  p->c = x->shape[x->ndim - n - 1];
  p->last = n == 2 && lead->ndim == 4 && cnn_strides_channels_last(lead->shape, lead->strides);
  p->adaptive = !w;
  for (int i = 0; i < 3; i++) {
    int d = i - (3 - n);
    p->in[i] = p->x.size[i], p->out[i] = p->y.size[i];
    p->kernel[i] = d < 0 || !w ? 1 : w->kernel[d];
    p->stride[i] = d < 0 || !w ? 1 : w->stride[d];
    p->dilation[i] = d < 0 || !w ? 1 : w->dilation[d];
    p->before[i] = d < 0 || !w ? 0 : w->before[d];
  }
  p->rows = p->out[0] * p->out[1];
  p->pairs = w && has_pairs(p, w);
  p->whole = is_whole(p);
  int64_t reach = p->dilation[2] * (p->kernel[2] - 1) + 1;
  p->merged = 1;
  if (p->adaptive) {
    p->pitch = p->in[2];
  } else if (reach <= p->stride[2]) { // windows of one row end where those of the next begin
    p->pitch = p->out[2] * p->stride[2];
    p->merged = p->rows < MERGED_MOST ? p->rows : MERGED_MOST;
  } else {
    p->pitch = (p->out[2] - 1) * p->stride[2] + reach;
  }
}

static void read_places(pool *p, const cnn_view *at, int n) {
  cnn_spatial_read(&p->at, at, n);
  p->even = p->at.step == 1 && p->y.step == 1 && p->dtype == p->computed;
}

// Tasks over rows of the result.
static void plan_rows(pool *p, cnn_tasks *t, size_t bytes) {
  int64_t area = p->n * p->c * p->in[0] * p->in[1] * p->in[2];
  p->rows_all = (p->last ? p->n : p->n * p->c) * p->rows;
  int64_t each = area / (p->rows_all > 0 ? p->rows_all : 1);
  p->rows_each = TASK_ELEMENTS / (each > 0 ? each : 1);
  if (p->rows_each < 1) p->rows_each = 1;
  // Whole groups of merged rows.
  if (p->rows_each > p->rows)
    p->rows_each -= p->rows_each % p->rows;
  else if (p->rows_each > p->merged)
    p->rows_each -= p->rows_each % p->merged;
  cnn_tasks_plan(t, (p->rows_all + p->rows_each - 1) / p->rows_each, bytes);
}

// Tasks over planes of the input, or images where it is channels-last.
static void plan_planes(pool *p, cnn_tasks *t, size_t row_bytes) {
  p->x.staged = p->dtype != p->computed;
  int64_t one = p->x.places * (p->last ? p->c : 1);
  size_t bytes = row_bytes + (p->x.staged ? cnn_align((size_t)one * computed_size(p)) : 0);
  p->planes_each = TASK_ELEMENTS / (one > 0 ? one : 1);
  if (p->planes_each < 1 || p->last) p->planes_each = 1;
  int64_t planes = p->last ? p->n : p->n * p->c;
  cnn_tasks_plan(t, (planes + p->planes_each - 1) / p->planes_each, bytes);
}

static void run_tasks(const pool *p, cnn_tasks *t, cnn_task_fn fn, cnn_call *call) {
  t->fn = fn, t->arg = p, t->scratch = call->scratch;
  cnn_tasks_run(t, p->n * p->c * p->x.places >= THREAD_LEAST);
}

static size_t columns_bytes(const pool *p) {
  return p->adaptive ? cnn_align((size_t)p->out[2] * sizeof(span)) : 0;
}

static size_t row_bytes(const pool *p, int64_t columns) {
  return cnn_align((size_t)columns * computed_size(p));
}

// What a kernel plans is what it reads of its call.
typedef void (*read_fn)(const cnn_call *call, pool *p, cnn_tasks *t, bool adaptive);

static cnn_status plan_by(cnn_call *call, read_fn read, bool adaptive) {
  pool p;
  cnn_tasks t;
  read(call, &p, &t, adaptive);
  call->scratch_bytes = cnn_tasks_bytes(&t);
  return CNN_OK;
}

// ---------------------------------------------------------------------------------------------
// Max pooling

static void read_max(const cnn_call *call, pool *p, cnn_tasks *t, bool adaptive) {
  const cnn_view *x = &call->in[0], *y = &call->out[0];
  const cnn_arg *a = call->args;
  int n = (int)a[1].i;
  cnn_window w = {.n = n};
  for (int i = 0; i < n; i++) w.in[i] = x->shape[x->ndim - n + i];
  if (!adaptive) cnn_window_pool(call->ctx, &w, &a[2], &a[3], &a[4], &a[5], a[6].i);
  read_pool(p, n, x, y, x, adaptive ? NULL : &w);
  read_places(p, &call->out[1], n);
  size_t bytes =
      p->last ? 2 * row_bytes(p, p->c)
              : row_bytes(p, p->pitch * p->merged) + cnn_align((size_t)(p->pitch * p->merged) * 4) +
                    row_bytes(p, p->in[2]) + row_bytes(p, p->out[2] * p->merged) + columns_bytes(p);
  plan_rows(p, t, bytes);
}

static cnn_status run_max(cnn_call *call, bool adaptive) {
  pool p;
  cnn_tasks t;
  read_max(call, &p, &t, adaptive);
  cnn_task_fn fn = p.computed == CNN_F32   ? (p.last ? max_places_f32 : max_rows_f32)
                   : p.computed == CNN_F64 ? (p.last ? max_places_f64 : max_rows_f64)
                                           : (p.last ? max_places_i64 : max_rows_i64);
  run_tasks(&p, &t, fn, call);
  return CNN_OK;
}

static cnn_status plan_max_pool(cnn_call *call) {
  return plan_by(call, read_max, false);
}
static cnn_status run_max_pool(cnn_call *call) {
  return run_max(call, false);
}
static cnn_status plan_adaptive_max_pool(cnn_call *call) {
  return plan_by(call, read_max, true);
}
static cnn_status run_adaptive_max_pool(cnn_call *call) {
  return run_max(call, true);
}

const cnn_kernel cpu_max_pool = {plan_max_pool, run_max_pool, NULL};
const cnn_kernel cpu_adaptive_max_pool = {plan_adaptive_max_pool, run_adaptive_max_pool, NULL};

static void read_scatter(const cnn_call *call, pool *p, cnn_tasks *t) {
  int n = (int)call->args[3].i;
  const cnn_arg *window = &call->args[4];
  bool known = cnn_has(window, 0) && window->n == 4 * n;
  cnn_window w = {.n = n};
  for (int i = 0; i < n; i++) {
    const cnn_view *dx = &call->out[0], *dy = &call->in[0];
    w.in[i] = dx->shape[dx->ndim - n + i], w.out[i] = dy->shape[dy->ndim - n + i];
    if (!known) continue;
    w.kernel[i] = window->ints[i], w.stride[i] = window->ints[n + i];
    w.before[i] = window->ints[2 * n + i], w.dilation[i] = window->ints[3 * n + i];
  }
  read_pool(p, n, &call->out[0], &call->in[0], &call->in[0], known ? &w : NULL);
  read_places(p, &call->in[1], n);
  p->pairs = p->pairs && p->even;
  plan_planes(p, t, row_bytes(p, p->last ? p->c : p->out[2]));
}

static cnn_status plan_max_pool_backward(cnn_call *call) {
  pool p;
  cnn_tasks t;
  read_scatter(call, &p, &t);
  call->scratch_bytes = cnn_tasks_bytes(&t);
  return CNN_OK;
}

static cnn_status run_max_pool_backward(cnn_call *call) {
  pool p;
  cnn_tasks t;
  read_scatter(call, &p, &t);
  cnn_task_fn fn = p.computed == CNN_F32 ? (p.last ? scatter_image_f32 : scatter_planes_f32)
                                         : (p.last ? scatter_image_f64 : scatter_planes_f64);
  run_tasks(&p, &t, fn, call);
  return CNN_OK;
}

const cnn_kernel cpu_max_pool_backward = {plan_max_pool_backward, run_max_pool_backward, NULL};

// Moves elements as they are stored: only second derivatives come here.
static void gather_plane(const void *arg, int64_t plane, char *scratch) {
  const pool *p = arg;
  int64_t n = plane / p->c, c = plane % p->c;
  (void)scratch;
  for (int64_t row = 0; row < p->rows; row++) {
    int64_t a = row / p->out[1], b = row % p->out[1];
    const int32_t *at = places_at(p, n, c, a, b);
    for (int64_t q = 0; q < p->out[2]; q++) {
      int64_t place = at[q * p->at.s[2]] - 1, rest = place / p->in[2];
      int64_t from =
          rest / p->in[1] * p->x.s[0] + rest % p->in[1] * p->x.s[1] + place % p->in[2] * p->x.s[2];
      memcpy(element_at(p, &p->y, n, c, a * p->y.s[0] + b * p->y.s[1] + q * p->y.s[2]),
             element_at(p, &p->x, n, c, from), p->size);
    }
  }
}

static cnn_status run_max_pool_gather(cnn_call *call) {
  pool p;
  cnn_tasks t;
  int n = (int)call->args[2].i;
  read_pool(&p, n, &call->in[0], &call->out[0], &call->in[0], NULL);
  read_places(&p, &call->in[1], n);
  cnn_tasks_plan(&t, p.n * p.c, 0);
  run_tasks(&p, &t, gather_plane, call);
  return CNN_OK;
}

const cnn_kernel cpu_max_pool_gather = {NULL, run_max_pool_gather, NULL};

// ---------------------------------------------------------------------------------------------
// Average pooling. A kernel's data is its number of spatial dims.

static const int spatial[] = {0, 1, 2, 3};

static void read_avg(const cnn_call *call, pool *p, cnn_tasks *t, bool adaptive) {
  const cnn_view *x = &call->in[0], *y = &call->out[0];
  const cnn_arg *a = call->args;
  int n = *(const int *)call->kernel->data;
  cnn_window w = {.n = n};
  for (int i = 0; i < n; i++) w.in[i] = x->shape[x->ndim - n + i];
  if (!adaptive) cnn_window_pool(call->ctx, &w, &a[1], &a[2], &a[3], NULL, a[4].i);
  read_pool(p, n, x, y, x, adaptive ? NULL : &w);
  if (!adaptive) p->include_pad = a[5].i, p->divisor = cnn_has(a, 6) ? a[6].i : 0;
  size_t bytes = p->last ? 2 * row_bytes(p, p->c) + row_bytes(p, p->out[2])
                         : row_bytes(p, p->pitch) + row_bytes(p, p->in[2]) +
                               2 * row_bytes(p, p->out[2]) + columns_bytes(p);
  plan_rows(p, t, bytes);
}

static void read_avg_backward(const cnn_call *call, pool *p, cnn_tasks *t, bool adaptive) {
  const cnn_view *dy = &call->in[0], *dx = &call->out[0];
  const cnn_arg *a = call->args;
  int n = (int)a[adaptive ? 3 : 8].i;
  cnn_window w = {.n = n};
  for (int i = 0; i < n; i++) w.in[i] = dx->shape[dx->ndim - n + i];
  if (!adaptive) cnn_window_pool(call->ctx, &w, &a[1], &a[2], &a[3], NULL, a[4].i);
  read_pool(p, n, dx, dy, dy, adaptive ? NULL : &w);
  if (!adaptive) p->include_pad = a[5].i, p->divisor = cnn_has(a, 6) ? a[6].i : 0;
  plan_planes(p, t,
              p->last ? row_bytes(p, p->c) + row_bytes(p, p->out[2])
                      : row_bytes(p, p->pitch) + 2 * row_bytes(p, p->out[2]) + columns_bytes(p));
}

static cnn_status run_means(cnn_call *call, bool adaptive) {
  pool p;
  cnn_tasks t;
  read_avg(call, &p, &t, adaptive);
  run_tasks(&p, &t,
            p.computed == CNN_F32 ? (p.last ? avg_places_f32 : avg_rows_f32)
                                  : (p.last ? avg_places_f64 : avg_rows_f64),
            call);
  return CNN_OK;
}

static cnn_status run_means_backward(cnn_call *call, bool adaptive) {
  pool p;
  cnn_tasks t;
  read_avg_backward(call, &p, &t, adaptive);
  run_tasks(&p, &t,
            p.computed == CNN_F32 ? (p.last ? avg_image_backward_f32 : avg_planes_backward_f32)
                                  : (p.last ? avg_image_backward_f64 : avg_planes_backward_f64),
            call);
  return CNN_OK;
}

static cnn_status plan_avg(cnn_call *call) {
  return plan_by(call, read_avg, false);
}
static cnn_status run_avg(cnn_call *call) {
  return run_means(call, false);
}
static cnn_status plan_adaptive_avg(cnn_call *call) {
  return plan_by(call, read_avg, true);
}
static cnn_status run_adaptive_avg(cnn_call *call) {
  return run_means(call, true);
}
static cnn_status plan_avg_backward(cnn_call *call) {
  return plan_by(call, read_avg_backward, false);
}
static cnn_status run_avg_backward(cnn_call *call) {
  return run_means_backward(call, false);
}
static cnn_status plan_adaptive_avg_backward(cnn_call *call) {
  return plan_by(call, read_avg_backward, true);
}
static cnn_status run_adaptive_avg_backward(cnn_call *call) {
  return run_means_backward(call, true);
}

const cnn_kernel cpu_avg_pool1d = {plan_avg, run_avg, &spatial[1]};
const cnn_kernel cpu_avg_pool2d = {plan_avg, run_avg, &spatial[2]};
const cnn_kernel cpu_avg_pool3d = {plan_avg, run_avg, &spatial[3]};
const cnn_kernel cpu_avg_pool_backward = {plan_avg_backward, run_avg_backward, NULL};
const cnn_kernel cpu_adaptive_avg_pool1d = {plan_adaptive_avg, run_adaptive_avg, &spatial[1]};
const cnn_kernel cpu_adaptive_avg_pool2d = {plan_adaptive_avg, run_adaptive_avg, &spatial[2]};
const cnn_kernel cpu_adaptive_avg_pool3d = {plan_adaptive_avg, run_adaptive_avg, &spatial[3]};
const cnn_kernel cpu_adaptive_avg_pool_backward = {plan_adaptive_avg_backward,
                                                   run_adaptive_avg_backward, NULL};
