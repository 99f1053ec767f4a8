// SPDX-License-Identifier: MIT
// Kernels of ops/conv.c, over 1 to 3 spatial dims, which are all handled as three.
//
// Large float32 and bfloat16 convolutions over up to two dims go to the plugin. The rest is matrix
// products over columns (conv_type.h), image by image and group by group; a pointwise kernel needs
// no columns, and one channel per group is computed directly. Channels-last tensors are computed
// as they lie. Half types are staged as floats, one image at a time.
#include "cpu/cpu.h"

#include <string.h>

#include "base/parallel.h"
#include "cpu/accel.h"
#include "cpu/clones.h"
#include "cpu/copy.h"
#include "cpu/gemm.h"
#include "cpu/spatial.h"
#include "cpu/tasks.h"
#include "engine/window.h"

#define ACCEL_LEAST  (1 << 20)   // multiply-adds from which the plugin is asked
#define COLS_BYTES   (256 << 10) // of a tile's columns: what stays in the second-level cache
#define WIDTH_MOST   2048        // places of one row in a tile
#define TASKS_LEAST  16          // that a single image is cut into, if it is large enough
#define PLACES_LEAST 128         // of a tile that was cut for that
#define PLACES_GOOD  256         // of a tile, so that packing the weights for each does not show
#define PARTS_MOST   8           // of the batch, summed apart
#define BIAS_BLOCK   16
#define THREAD_LEAST (1 << 16) // multiply-adds that are worth a thread

typedef cnn_spatial operand;

typedef struct conv {
  cnn_dtype dtype; // stored
  int64_t n, c, k, groups, cg, kg;
  int64_t in[3], kernel[3], out[3], stride[3], dilation[3], before[3], after[3];
  int64_t taps, inner, rows; // places under the kernel; cg * taps; rows of y's innermost dim
  bool last;                 // channels-last
  bool pointwise;            // each place of y reads the same place of x only
  bool direct;               // one input channel per group
  operand x, y;
  cnn_view w, b; // data is NULL where there is none
  int64_t w_row; // of `weights`: elements from one output channel to the next
  // Cut:
  int64_t tile_rows, tile_width, width_tiles, tiles; // of y: rows, or pieces of one row
  int64_t blocks, parts;                             // of a group's channels; of the batch
  size_t cols_bytes, tile_bytes, gemm_bytes;
  cnn_tasks tasks;
  // Filled in by run:
  const void *weights, *bias; // computed type: see conv_type.h
  void *sums;                 // of the weight's gradient, one per part
  char *db;
} conv;

static size_t computed_size(const conv *v) {
  return v->dtype == CNN_F64 ? 8 : 4;
}
static cnn_dtype computed_dtype(const conv *v) {
  return v->dtype == CNN_F64 ? CNN_F64 : CNN_F32;
}

// ---------------------------------------------------------------------------------------------
// Places

// A piece of y: whole rows, or a part of one.
typedef struct tile {
  int64_t row, rows, from, width, place, places;
} tile;

static tile tile_at(const conv *v, int64_t i) {
  tile t;
  t.row = i / v->width_tiles * v->tile_rows;
  t.rows = v->rows - t.row < v->tile_rows ? v->rows - t.row : v->tile_rows;
  t.from = i % v->width_tiles * v->tile_width;
  t.width = v->out[2] - t.from < v->tile_width ? v->out[2] - t.from : v->tile_width;
  t.place = t.row * v->out[2] + t.from;
  t.places = t.rows * t.width;
  return t;
}

// A place under the kernel. Place (i, j, q) of y meets place (i * stride + d, j * stride + h,
// q * stride + w) of x; of q only those in [first, last) meet one inside x.
typedef struct tap {
  int64_t d, h, w, first, last;
} tap;

static inline tap tap_at(const conv *v, int64_t t) {
  tap p;
  p.d = t / v->kernel[2] / v->kernel[1] * v->dilation[0] - v->before[0];
  p.h = t / v->kernel[2] % v->kernel[1] * v->dilation[1] - v->before[1];
  p.w = t % v->kernel[2] * v->dilation[2] - v->before[2];
  int64_t s = v->stride[2], room = v->in[2] - p.w;
  p.first = p.w < 0 ? (s - 1 - p.w) / s : 0;
  p.last = room <= 0 ? 0 : (room - 1) / s + 1;
  if (p.last > v->out[2]) p.last = v->out[2];
  if (p.first >= p.last) p.first = p.last = 0;
  return p;
}

// A walk over rows of y.
typedef struct walk {
  int64_t i, j;
} walk;

static inline walk walk_from(const conv *v, int64_t row) {
  return (walk){row / v->out[1], row % v->out[1]};
}

static inline void walk_on(const conv *v, walk *r) {
  if (++r->j == v->out[1]) r->j = 0, r->i++;
}

// The offset of x's row under a row of y and a tap; -1 where that is padding.
static inline int64_t row_offset(const conv *v, const operand *x, const walk *r, const tap *p) {
  int64_t i = r->i * v->stride[0] + p->d, j = r->j * v->stride[1] + p->h;
  if (i < 0 || i >= v->in[0] || j < 0 || j >= v->in[1]) return -1;
  return i * x->s[0] + j * x->s[1];
}

// Channels of block i of a group, and the first of them.
static int64_t block_at(const conv *v, int64_t i, int64_t *first) {
  *first = i * v->cg / v->blocks;
  return (i + 1) * v->cg / v->blocks - *first;
}

// ---------------------------------------------------------------------------------------------
// Images

static char *element_at(const conv *v, const operand *o, int64_t n, int64_t c, int64_t place) {
  return o->data + (n * o->n + c * o->c + place * o->step) * (int64_t)cnn_dtype_size(v->dtype);
}

// `channels` channels of image n, as the computed type: where they lie, or staged in scratch (and
// copied there if they are to be read).
static operand image(const conv *v, const operand *o, int64_t n, int64_t c, int64_t channels,
                     bool read, char **scratch) {
  operand m = *o;
  m.data = element_at(v, o, n, c, 0);
  if (!o->staged) return m;
  char *data = m.data;
  m.data = cnn_take(scratch, (size_t)(channels * o->places) * computed_size(v));
  m.c = v->last ? 1 : o->places;
  m.step = v->last ? channels : 1;
  m.s[2] = m.step, m.s[1] = m.s[2] * o->size[2], m.s[0] = m.s[1] * o->size[1];
  if (!read) return m;
  const int64_t shape[] = {channels, o->size[0], o->size[1], o->size[2]};
  const int64_t from[] = {o->c, o->s[0], o->s[1], o->s[2]};
  const int64_t to[] = {m.c, m.s[0], m.s[1], m.s[2]};
  const cnn_view source = {data, shape, from, 4, v->dtype};
  const cnn_view target = {m.data, shape, to, 4, computed_dtype(v)};
  cnn_copy_view(&target, &source);
  return m;
}

// Stores a staged piece of an image: an operand whose places are one run.
static void store(const conv *v, const operand *o, int64_t n, int64_t c, int64_t channels,
                  int64_t place, int64_t places, const void *data, int64_t data_c,
                  int64_t data_step) {
  const int64_t shape[] = {channels, places}, to[] = {o->c, o->step}, from[] = {data_c, data_step};
  const cnn_view source = {(void *)(uintptr_t)data, shape, from, 2, computed_dtype(v)};
  const cnn_view target = {element_at(v, o, n, c, place), shape, to, 2, v->dtype};
  cnn_copy_view(&target, &source);
}

// Zeroes channels of an image of the computed type.
static void clear(const conv *v, const operand *x, int64_t channels, size_t size) {
  if (!v->last) {
    memset(x->data, 0, (size_t)(channels * x->places) * size);
    return;
  }
  for (int64_t i = 0; i < x->places; i++)
    memset(x->data + (size_t)(i * x->step) * size, 0, (size_t)channels * size);
}

#define T       float
#define NAME(x) x##_f32
#define GEMM    cnn_gemm_f32
#include "cpu/conv_type.h"
#undef T
#undef NAME
#undef GEMM
#define T       double
#define NAME(x) x##_f64
#define GEMM    cnn_gemm_f64
#include "cpu/conv_type.h"
#undef T
#undef NAME
#undef GEMM

// ---------------------------------------------------------------------------------------------
// Reading a call

static void read_conv(conv *v, const cnn_call *call, const cnn_view *x, const cnn_view *y,
                      const cnn_view *w, const cnn_view *b, const cnn_arg *window,
                      const cnn_view *lead) {
  cnn_window g;
  int n = w->ndim - 2;
  g.n = n;
  for (int i = 0; i < n; i++) g.in[i] = x->shape[x->ndim - n + i], g.kernel[i] = w->shape[2 + i];
  cnn_window_conv(call->ctx, &g, &window[0], &window[1], &window[2]); // infer checked it
  memset(v, 0, sizeof *v);
  v->dtype = w->dtype;
  cnn_spatial_read(&v->x, x, n);
  cnn_spatial_read(&v->y, y, n);
  v->x.staged = v->y.staged = cnn_dtype_is_half(v->dtype);
  v->taps = 1;
  for (int i = 0; i < 3; i++) {
    int d = i - (3 - n);
    v->in[i] = v->x.size[i], v->out[i] = v->y.size[i];
    v->kernel[i] = d < 0 ? 1 : g.kernel[d];
    v->stride[i] = d < 0 ? 1 : g.stride[d];
    v->dilation[i] = d < 0 ? 1 : g.dilation[d];
    v->before[i] = d < 0 ? 0 : g.before[d];
    v->after[i] = d < 0 ? 0 : g.after[d];
    v->taps *= v->kernel[i];
  }
  v->n = x->ndim == n + 2 ? x->shape[0] : 1;
  v->groups = window[3].i;
  v->c = w->shape[1] * v->groups;
  v->k = w->shape[0];
  v->cg = w->shape[1];
  v->kg = v->k / v->groups;
  v->inner = v->cg * v->taps;
  v->rows = v->out[0] * v->out[1];
  v->w = *w;
  if (b && cnn_view_present(b)) v->b = *b;
  v->last = lead->ndim == 4 && n == 2 && cnn_strides_channels_last(lead->shape, lead->strides);
  v->direct = v->cg == 1 && v->groups > 1 && (!v->last || v->kg == 1);
}

// The places of one image and group, cut so that a tile's columns stay in the cache, and a lone
// image still gives work to several threads.
static void cut(conv *v, int64_t elements, int64_t images) {
  int64_t most = (int64_t)(COLS_BYTES / computed_size(v)) / (elements > 0 ? elements : 1);
  if (most < PLACES_GOOD) most = PLACES_GOOD;
  if (v->pointwise) most = v->rows * v->out[2];
  if (images > 0 && images < TASKS_LEAST) {
    int64_t share = v->rows * v->out[2] * images / TASKS_LEAST;
    if (share < PLACES_LEAST) share = PLACES_LEAST;
    if (share < most) most = share;
  }
  v->tile_width = v->out[2];
  v->tile_rows = most / v->out[2];
  if (v->tile_rows < 1) v->tile_rows = 1;
  if (v->tile_rows > v->rows) v->tile_rows = v->rows;
  int64_t pieces = (v->rows + v->tile_rows - 1) / v->tile_rows; // of about one size
  v->tile_rows = (v->rows + pieces - 1) / pieces;
  if (v->tile_width > most && v->tile_width > WIDTH_MOST)
    v->tile_width = most > WIDTH_MOST ? most : WIDTH_MOST;
  v->width_tiles = (v->out[2] + v->tile_width - 1) / v->tile_width;
  v->tiles = (v->rows + v->tile_rows - 1) / v->tile_rows * v->width_tiles;
  v->cols_bytes =
      v->pointwise ? 0 : (size_t)(elements * v->tile_rows * v->tile_width) * computed_size(v);
}

// Scratch of the products of a full and of the last tile, which are m x n x k with one of the sizes
// the tile's places.
static void need_gemm(conv *v, int64_t m, int64_t n, int64_t k) {
  size_t need = cnn_gemm_scratch(computed_size(v), m, n, k);
  if (need > v->gemm_bytes) v->gemm_bytes = need;
}

static size_t stage_bytes(const conv *v, const operand *o, int64_t channels) {
  return o->staged ? cnn_align((size_t)(channels * o->places) * computed_size(v)) : 0;
}

static bool is_pointwise(const conv *v) {
  for (int i = 0; i < 3; i++)
    if (v->kernel[i] != 1 || v->stride[i] != 1 || v->before[i] != 0 || v->in[i] != v->out[i])
      return false;
  return v->x.staged || v->x.step != 0;
}

// The three uses of a convolution. Each sets tasks, slots and their scratch.
static cnn_task_fn plan_forward(conv *v) {
  bool wide = v->dtype == CNN_F64;
  v->pointwise = is_pointwise(v);
  if (v->direct) {
    cnn_tasks_plan(&v->tasks, v->last ? v->n : v->n * v->groups,
                   stage_bytes(v, &v->x, v->last ? v->c : 1) +
                       stage_bytes(v, &v->y, v->last ? v->k : v->kg));
    return wide ? direct_forward_f64 : direct_forward_f32;
  }
  cut(v, v->inner, v->n * v->groups);
  for (int64_t i = 0; i < 2; i++) {
    int64_t places = tile_at(v, i ? v->tiles - 1 : 0).places;
    if (v->last)
      need_gemm(v, places, v->kg, v->inner);
    else
      need_gemm(v, v->kg, places, v->inner);
  }
  v->tile_bytes = (size_t)(v->kg * v->tile_rows * v->tile_width) * computed_size(v);
  cnn_tasks_plan(&v->tasks, v->n * v->groups * v->tiles,
                 stage_bytes(v, &v->x, v->cg) + cnn_align(v->cols_bytes) +
                     (cnn_dtype_is_half(v->dtype) ? cnn_align(v->tile_bytes) : 0) + v->gemm_bytes);
  return wide ? forward_f64 : forward_f32;
}

// Channels of a group are cut where there are few images: only the columns of row-major x allow it.
static void cut_channels(conv *v, int64_t others) {
  v->blocks = 1;
  if (v->last || others >= TASKS_LEAST) return;
  v->blocks = TASKS_LEAST / (others > 0 ? others : 1);
  if (v->blocks > v->cg) v->blocks = v->cg > 0 ? v->cg : 1;
}

static cnn_task_fn plan_backward_input(conv *v) {
  bool wide = v->dtype == CNN_F64;
  v->pointwise = is_pointwise(v);
  v->y.staged = v->y.staged || v->y.step == 0 || (v->direct && (v->last ? v->y.c : v->y.step) != 1);
  if (v->direct) {
    v->y.staged = v->y.staged || (v->last && v->y.step != v->k);
    cnn_tasks_plan(&v->tasks, v->last ? v->n : v->n * v->groups,
                   stage_bytes(v, &v->x, v->last ? v->c : 1) +
                       stage_bytes(v, &v->y, v->last ? v->k : v->kg));
    return wide ? direct_input_f64 : direct_input_f32;
  }
  cut_channels(v, v->n * v->groups);
  int64_t channels = (v->cg + v->blocks - 1) / v->blocks, inner = channels * v->taps;
  cut(v, inner, 0);
  for (int64_t i = 0; i < 2; i++) {
    int64_t places = tile_at(v, i ? v->tiles - 1 : 0).places;
    for (int64_t b = 0; b < 2; b++) {
      int64_t rows = b ? v->cg / v->blocks * v->taps : inner;
      if (v->last)
        need_gemm(v, places, rows, v->kg);
      else
        need_gemm(v, rows, places, v->kg);
    }
  }
  cnn_tasks_plan(&v->tasks, v->n * v->groups * v->blocks,
                 stage_bytes(v, &v->y, v->kg) + stage_bytes(v, &v->x, channels) +
                     cnn_align(v->cols_bytes) + v->gemm_bytes);
  return wide ? backward_input_f64 : backward_input_f32;
}

static cnn_task_fn plan_backward_weight(conv *v) {
  bool wide = v->dtype == CNN_F64;
  v->pointwise = is_pointwise(v);
  v->y.staged = v->y.staged || v->y.step == 0 || (v->direct && (v->last ? v->y.c : v->y.step) != 1);
  // Parts of the batch where the sums are small, else blocks of channels.
  v->parts = v->k * v->inner <= 1 << 16 ? v->n : 1;
  if (v->parts > PARTS_MOST) v->parts = PARTS_MOST;
  if (v->parts < 1) v->parts = 1;
  if (v->direct) {
    v->y.staged = v->y.staged || (v->last && v->y.step != v->k);
    cnn_tasks_plan(&v->tasks, v->last ? v->parts : v->parts * v->groups,
                   stage_bytes(v, &v->x, v->last ? v->c : 1) + stage_bytes(v, &v->y,
                                                                           v->last ? v->k
                                                                           : v->kg > BIAS_BLOCK
                                                                               ? v->kg
                                                                               : BIAS_BLOCK));
    return wide ? direct_weight_f64 : direct_weight_f32;
  }
  cut_channels(v, v->parts * v->groups);
  int64_t channels = (v->cg + v->blocks - 1) / v->blocks, inner = channels * v->taps;
  cut(v, inner, 0);
  for (int64_t i = 0; i < 2; i++) {
    int64_t places = tile_at(v, i ? v->tiles - 1 : 0).places;
    need_gemm(v, v->kg, inner, places);
    need_gemm(v, v->kg, v->cg / v->blocks * v->taps, places);
  }
  cnn_tasks_plan(&v->tasks, v->parts * v->groups * v->blocks,
                 stage_bytes(v, &v->y, v->kg > BIAS_BLOCK ? v->kg : BIAS_BLOCK) +
                     stage_bytes(v, &v->x, channels) + cnn_align(v->cols_bytes) + v->gemm_bytes);
  return wide ? backward_weight_f64 : backward_weight_f32;
}

// ---------------------------------------------------------------------------------------------
// Running tasks

static double count_work(const conv *v) {
  return (double)(v->n * v->k) * (double)v->inner * (double)(v->rows * v->out[2]);
}

static void run_tasks(conv *v, cnn_task_fn fn, int64_t count, char *scratch) {
  cnn_tasks t = v->tasks;
  t.fn = fn, t.arg = v, t.count = count, t.scratch = scratch;
  if (t.slots > count) t.slots = count;
  cnn_tasks_run(&t, count_work(v) >= THREAD_LEAST);
}

// The strides of a matrix of weights as conv_type.h wants it.
static void weight_strides(const conv *v, int64_t *s) {
  const int64_t dims[] = {v->w.shape[0], v->w.shape[1], v->kernel[0], v->kernel[1], v->kernel[2]};
  bool taps_first = v->last;
  s[0] = v->direct && v->last ? 1 : v->inner;
  s[4] = v->direct && v->last ? v->k : taps_first ? v->cg : 1;
  s[3] = s[4] * dims[4];
  s[2] = s[3] * dims[3];
  s[1] = taps_first ? 1 : v->taps;
}

// A view of weights as 5 dims (k, c, three spatial).
static cnn_view weight_view(const conv *v, const cnn_view *w, int64_t *shape, int64_t *strides) {
  int n = w->ndim - 2;
  for (int i = 0; i < 2; i++) shape[i] = w->shape[i], strides[i] = w->strides[i];
  for (int i = 0; i < 3; i++) {
    int d = i - (3 - n);
    shape[2 + i] = v->kernel[i];
    strides[2 + i] = d < 0 ? 0 : w->strides[2 + d];
  }
  return (cnn_view){w->data, shape, strides, 5, w->dtype};
}

// Whether the weights can be used as they lie.
static bool weights_fit(const conv *v) {
  return !v->last && !cnn_dtype_is_half(v->dtype) &&
         cnn_strides_contiguous(v->w.ndim, v->w.shape, v->w.strides);
}

static size_t weights_bytes(const conv *v) {
  return weights_fit(v) ? 0 : cnn_align((size_t)(v->k * v->inner) * computed_size(v));
}

static void use_weights(conv *v, char **scratch) {
  v->w_row = v->inner;
  v->weights = v->w.data;
  if (weights_fit(v)) return;
  int64_t shape[5], from[5], to[5];
  weight_strides(v, to);
  cnn_view source = weight_view(v, &v->w, shape, from);
  cnn_view target = {cnn_take(scratch, weights_bytes(v)), shape, to, 5, computed_dtype(v)};
  cnn_copy_view(&target, &source);
  v->weights = target.data;
}

static bool bias_fits(const conv *v) {
  return !v->b.data || (!cnn_dtype_is_half(v->dtype) && (v->b.strides[0] == 1 || v->k == 1));
}

static size_t bias_bytes(const conv *v) {
  return bias_fits(v) ? 0 : cnn_align((size_t)v->k * computed_size(v));
}

static void use_bias(conv *v, char **scratch) {
  v->bias = v->b.data;
  if (bias_fits(v)) return;
  const int64_t one = 1;
  cnn_view target = {cnn_take(scratch, bias_bytes(v)), &v->k, &one, 1, computed_dtype(v)};
  cnn_copy_view(&target, &v->b);
  v->bias = target.data;
}

static size_t sums_bytes(const conv *v) {
  return v->parts == 1 && weights_fit(v)
             ? 0
             : cnn_align((size_t)(v->parts * v->k * v->inner) * computed_size(v));
}

// Adds the parts up, in order, and stores them as dw.
static void store_sums(const conv *v) {
  int64_t count = v->k * v->inner;
  for (int64_t p = 1; p < v->parts; p++) {
    if (v->dtype == CNN_F64) {
      double *to = v->sums, *from = to + p * count;
      for (int64_t i = 0; i < count; i++) to[i] += from[i];
    } else {
      float *to = v->sums, *from = to + p * count;
      for (int64_t i = 0; i < count; i++) to[i] += from[i];
    }
  }
  int64_t shape[5], to[5], from[5];
  weight_strides(v, from);
  cnn_view target = weight_view(v, &v->w, shape, to);
  cnn_view source = {v->sums, shape, from, 5, computed_dtype(v)};
  cnn_copy_view(&target, &source);
}

// ---------------------------------------------------------------------------------------------
// The plugin

// An operand of the plugin's: dense, in the layout that the convolution has; copied if it is not.
typedef struct dense {
  const cnn_view *view;
  int64_t strides[CNN_MAX_DIMS];
  bool copied;
} dense;

static dense dense_of(const cnn_view *t, bool last) {
  dense d = {.view = t};
  if (last && t->ndim == 4) {
    d.strides[1] = 1, d.strides[3] = t->shape[1], d.strides[2] = d.strides[3] * t->shape[3];
    d.strides[0] = d.strides[2] * t->shape[2];
  } else {
    cnn_shape_strides(t->ndim, t->shape, d.strides);
  }
  for (int i = 0; i < t->ndim; i++)
    if (t->shape[i] != 1 && t->strides[i] != d.strides[i]) d.copied = true;
  return d;
}

static size_t dense_bytes(const dense *d) {
  return d->copied ? cnn_align((size_t)cnn_view_numel(d->view) * cnn_dtype_size(d->view->dtype))
                   : 0;
}

static void *use_dense(const dense *d, char **scratch) {
  if (!d->copied) return d->view->data;
  cnn_view target = *d->view;
  target.strides = d->strides;
  target.data = cnn_take(scratch, dense_bytes(d));
  cnn_copy_view(&target, d->view);
  return target.data;
}

// Whether some place under the kernel meets nothing but padding. oneDNN 2.6 then gives its bfloat16
// weight a gradient, which is 0.
static bool has_idle_tap(const conv *v) {
  for (int64_t t = 0; t < v->taps; t++) {
    tap p = tap_at(v, t);
    bool meets = false;
    walk r = walk_from(v, 0);
    for (int64_t row = 0; row < v->rows && !meets; row++, walk_on(v, &r))
      meets = row_offset(v, &v->x, &r, &p) >= 0;
    if (!meets || p.first == p.last) return true;
  }
  return false;
}

static cnn_accel_plan *accel_plan(const conv *v, cnn_accel_direction direction, bool bias,
                                  size_t *scratch) {
  if ((v->dtype != CNN_F32 && v->dtype != CNN_BF16) || v->w.ndim > 4) return NULL;
  if (count_work(v) < ACCEL_LEAST) return NULL;
  // oneDNN computes at least 16 channels of dx, whatever it costs (measured: 34 k against
  // c (51 + 2 k) here).
  if (direction == CNN_ACCEL_BACKWARD_DATA && v->groups == 1 && v->dtype == CNN_F32 &&
      v->c * (24 + v->k) < 16 * v->k)
    return NULL;
  if (v->dtype == CNN_BF16 && direction == CNN_ACCEL_BACKWARD_WEIGHT && has_idle_tap(v))
    return NULL;
  const cnn_accel *accel = cnn_accel_get();
  if (!accel) return NULL;
  cnn_accel_conv d = {
      .direction = direction,
      .dtype = v->dtype,
      .bias_dtype = v->dtype,
      .bias = bias,
      .nhwc = v->last,
      .n = v->n,
      .c = v->c,
      .h = v->in[1],
      .w = v->in[2],
      .k = v->k,
      .r = v->kernel[1],
      .s = v->kernel[2],
      .p = v->out[1],
      .q = v->out[2],
      .groups = v->groups,
      .stride = {v->stride[1], v->stride[2]},
      .dilation = {v->dilation[1], v->dilation[2]},
      .pad_before = {v->before[1], v->before[2]},
      .pad_after = {v->after[1], v->after[2]},
  };
  return accel->conv(&d, cnn_num_threads(), scratch);
}

// ---------------------------------------------------------------------------------------------
// Kernels

enum { WAY_OWN, WAY_ACCEL };

// What a call works on. Views: x, w, y and (where there is one) b; two of them are inputs.
typedef struct use {
  cnn_accel_direction direction;
  const cnn_view *x, *w, *y, *b;
  conv v;
  cnn_task_fn fn;
} use;

static void read_call(use *u, const cnn_call *call, cnn_accel_direction direction) {
  const cnn_view *in = call->in, *out = call->out;
  u->direction = direction;
  u->b = NULL;
  switch (direction) {
  case CNN_ACCEL_FORWARD:
    u->x = &in[0], u->w = &in[1], u->y = &out[0];
    if (cnn_view_present(&in[2])) u->b = &in[2];
    break;
  case CNN_ACCEL_BACKWARD_DATA: u->y = &in[0], u->w = &in[1], u->x = &out[0]; break;
  case CNN_ACCEL_BACKWARD_WEIGHT:
    u->y = &in[0], u->x = &in[1], u->w = &out[0];
    if (call->n_out > 1) u->b = &out[1];
    break;
  }
  // infer gave the result the layout of the activation that came in.
  read_conv(&u->v, call, u->x, u->y, u->w, u->b, &call->args[3],
            direction == CNN_ACCEL_BACKWARD_DATA ? u->y : u->x);
  switch (direction) {
  case CNN_ACCEL_FORWARD: u->fn = plan_forward(&u->v); break;
  case CNN_ACCEL_BACKWARD_DATA: u->fn = plan_backward_input(&u->v); break;
  case CNN_ACCEL_BACKWARD_WEIGHT: u->fn = plan_backward_weight(&u->v); break;
  }
}

static size_t own_bytes(const use *u) {
  const conv *v = &u->v;
  size_t slots = cnn_tasks_bytes(&v->tasks);
  switch (u->direction) {
  case CNN_ACCEL_FORWARD: return slots + weights_bytes(v) + bias_bytes(v);
  case CNN_ACCEL_BACKWARD_DATA: return slots + weights_bytes(v);
  default: return slots + sums_bytes(v);
  }
}

static bool is_empty(const use *u) {
  return cnn_view_numel(u->direction == CNN_ACCEL_FORWARD         ? u->y
                        : u->direction == CNN_ACCEL_BACKWARD_DATA ? u->x
                                                                  : u->w) == 0;
}

// Without input channels there are no weights, and the bias still has a gradient.
static bool has_bias_gradient(const use *u) {
  return u->direction == CNN_ACCEL_BACKWARD_WEIGHT && u->b && u->v.k > 0;
}

static void run_bias_gradient(const use *u, char *scratch) {
  conv v = u->v;
  v.db = u->b->data;
  run_tasks(&v, v.dtype == CNN_F64 ? bias_gradient_f64 : bias_gradient_f32,
            (v.k + BIAS_BLOCK - 1) / BIAS_BLOCK, scratch);
}

static cnn_status plan(cnn_call *call, cnn_accel_direction direction) {
  use u;
  size_t accel = 0;
  read_call(&u, call, direction);
  if (is_empty(&u) && !has_bias_gradient(&u)) return CNN_OK;
  call->scratch_bytes = own_bytes(&u);
  if (is_empty(&u)) return CNN_OK;
  call->handle = accel_plan(&u.v, direction, u.b != NULL, &accel);
  call->way = call->handle ? WAY_ACCEL : WAY_OWN;
  if (!call->handle) return CNN_OK;
  const cnn_view *views[] = {u.x, u.y, u.w};
  accel = cnn_align(accel);
  for (int i = 0; i < 3; i++) {
    dense d = dense_of(views[i], u.v.last && i < 2);
    accel += dense_bytes(&d);
  }
  if (u.b) accel += cnn_align((size_t)u.v.k * cnn_dtype_size(u.v.dtype));
  if (accel > call->scratch_bytes) call->scratch_bytes = accel;
  return CNN_OK;
}

static bool run_accel(cnn_call *call, const use *u) {
  const cnn_accel *accel = cnn_accel_get();
  char *scratch = call->scratch;
  if (!accel) return false;
  dense x = dense_of(u->x, u->v.last), y = dense_of(u->y, u->v.last), w = dense_of(u->w, false);
  void *args[4] = {NULL};
  switch (u->direction) {
  case CNN_ACCEL_FORWARD:
    args[0] = use_dense(&x, &scratch), args[1] = use_dense(&w, &scratch), args[3] = u->y->data;
    if (u->b) {
      dense b = dense_of(u->b, false);
      args[2] = use_dense(&b, &scratch);
    }
    break;
  case CNN_ACCEL_BACKWARD_DATA:
    args[0] = use_dense(&y, &scratch), args[1] = use_dense(&w, &scratch), args[2] = u->x->data;
    break;
  case CNN_ACCEL_BACKWARD_WEIGHT:
    args[0] = use_dense(&x, &scratch), args[1] = use_dense(&y, &scratch), args[2] = u->w->data;
    if (u->b) args[3] = u->b->data;
    break;
  }
  return accel->run(call->handle, args, scratch);
}

static cnn_status run(cnn_call *call, cnn_accel_direction direction) {
  use u;
  read_call(&u, call, direction);
  conv *v = &u.v;
  if (is_empty(&u)) {
    if (has_bias_gradient(&u)) run_bias_gradient(&u, call->scratch);
    return CNN_OK;
  }
  if (call->way == WAY_ACCEL && run_accel(call, &u)) return CNN_OK;
  char *scratch = call->scratch;
  if (direction == CNN_ACCEL_BACKWARD_WEIGHT) {
    v->w_row = v->inner;
    v->sums = sums_bytes(v) ? cnn_take(&scratch, sums_bytes(v)) : u.w->data;
    run_tasks(v, u.fn, v->tasks.count, scratch);
    if (v->sums != u.w->data) store_sums(v);
    if (has_bias_gradient(&u)) run_bias_gradient(&u, scratch);
    return CNN_OK;
  }
  use_weights(v, &scratch);
  if (direction == CNN_ACCEL_FORWARD) use_bias(v, &scratch);
  run_tasks(v, u.fn, v->tasks.count, scratch);
  return CNN_OK;
}

#define KERNEL(name, direction)                                                                    \
  static cnn_status plan_##name(cnn_call *call) {                                                  \
    return plan(call, direction);                                                                  \
  }                                                                                                \
  static cnn_status run_##name(cnn_call *call) {                                                   \
    return run(call, direction);                                                                   \
  }

KERNEL(conv, CNN_ACCEL_FORWARD)
KERNEL(input, CNN_ACCEL_BACKWARD_DATA)
KERNEL(weight, CNN_ACCEL_BACKWARD_WEIGHT)

const cnn_kernel cpu_conv1d = {plan_conv, run_conv, NULL};
const cnn_kernel cpu_conv2d = {plan_conv, run_conv, NULL};
const cnn_kernel cpu_conv3d = {plan_conv, run_conv, NULL};
const cnn_kernel cpu_conv_backward_input = {plan_input, run_input, NULL};
const cnn_kernel cpu_conv_backward_weight = {plan_weight, run_weight, NULL};
