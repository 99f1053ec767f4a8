// SPDX-License-Identifier: MIT
// The dims of x are brought into two lists, kept and reduced, with neighbours joined wherever
// strides allow. A tile is up to CNN_FOLD_TILE results along one kept dim, the one in which x lies
// densest. Its elements are a matrix of that dim and one reduced dim for every position of the
// other reduced dims; whichever of the two dims is contiguous makes the rows that the fold sees.
// Elements that are not contiguous, or of another type than the fold computes in, go through a
// buffer.
//
// Large work is cut into jobs: tiles, and where there are few of them, pieces of the reduced
// positions as well, whose states are merged in order. How it is cut depends on shapes only, so
// results do not depend on the number of threads.
#include "cpu/reduction.h"

#include "base/parallel.h"
#include "cpu/elementwise.h"

#define GRAIN  32768 // elements that are worth a thread
#define BUFFER 16384 // bytes that are brought together at once
#define FEW    8     // tiles that still keep all threads busy
#define PIECES 64    // the most pieces that the reduced positions are cut into
#define NARROW 64    // columns that are folded as several rows side by side

typedef struct dim {
  int64_t n, x, y; // size, stride in x, in the results (kept) or among the positions (reduced)
} dim;

typedef struct work {
  const cnn_call *call;
  const cnn_reduction *op;
  const cnn_fold *fold;
  cnn_dtype stored, computed;
  size_t size; // of an element of x
  double p;
  int n_kept, n_reduced;                     // outer ones: without `across` and `along`
  dim kept[CNN_MAX_DIMS];                    // in the order of the results
  dim reduced[CNN_MAX_DIMS];                 // the largest stride in x first
  dim across, along;                         // the two dims of a matrix: kept and reduced
  bool rows;                                 // whether its rows lie along `along`
  int64_t results, positions;                // how many in all
  int64_t tile, tiles_across, tiles, pieces; // results of a tile, tiles along `across`, in all
  cnn_word *states;                          // of all jobs, when pieces > 1
} work;

// ---------------------------------------------------------------------------------------------
// Geometry

static void add_dim(dim *list, int *n, dim d, bool by_stride) {
  int at = (*n)++;
  if (by_stride)
    for (; at > 0 && list[at - 1].x < d.x; at--) list[at] = list[at - 1];
  list[at] = d;
}

// Joins neighbours that are one run both in x and in y.
static int join_dims(dim *list, int n) {
  int last = 0;
  if (n == 0) return 0;
  for (int i = 1; i < n; i++) {
    if (list[last].x == list[i].x * list[i].n && list[last].y == list[i].y * list[i].n)
      list[last] = (dim){list[last].n * list[i].n, list[i].x, list[i].y};
    else
      list[++last] = list[i];
  }
  return last + 1;
}

static void remove_dim(dim *list, int *n, int at) {
  for (--*n; at < *n; at++) list[at] = list[at + 1];
}

static void make_work(work *w, const cnn_call *call, uint32_t mask) {
  const cnn_view *x = &call->in[0];
  w->n_kept = w->n_reduced = 0;
  w->results = w->positions = 1;
  for (int d = x->ndim - 1; d >= 0; d--)
    if (mask >> d & 1)
      w->positions *= x->shape[d];
    else
      w->results *= x->shape[d];
  int64_t y = w->results, position = w->positions;
  for (int d = 0; d < x->ndim; d++) {
    int64_t n = x->shape[d];
    if (n <= 1) continue; // without elements there is nothing to walk
    if (mask >> d & 1) {
      position /= n;
      add_dim(w->reduced, &w->n_reduced, (dim){n, x->strides[d], position}, true);
    } else {
      y /= n;
      add_dim(w->kept, &w->n_kept, (dim){n, x->strides[d], y}, false);
    }
  }
  w->n_kept = join_dims(w->kept, w->n_kept);
  w->n_reduced = join_dims(w->reduced, w->n_reduced);
  w->across = w->along = (dim){1, 0, 0};
  if (w->n_kept > 0) {
    int best = 0;
    for (int i = 1; i < w->n_kept; i++)
      if (w->kept[i].x <= w->kept[best].x) best = i;
    w->across = w->kept[best];
    remove_dim(w->kept, &w->n_kept, best);
  }
  if (w->n_reduced > 0) w->along = w->reduced[--w->n_reduced];
  w->rows = w->along.n > 1 && (w->across.n == 1 || w->along.x == 1 ||
                               (w->across.x != 1 && w->along.x <= w->across.x));
}

static void cut_work(work *w) {
  double elements = (double)w->results * (double)w->positions;
  // Rows don't need each other: no more of them than make a job.
  w->tile = w->rows && w->positions > 0 ? GRAIN / w->positions + 1 : CNN_FOLD_TILE;
  if (w->tile > CNN_FOLD_TILE) w->tile = CNN_FOLD_TILE;
  w->tiles_across = (w->across.n + w->tile - 1) / w->tile;
  w->tiles = w->tiles_across;
  for (int i = 0; i < w->n_kept; i++) w->tiles *= w->kept[i].n;
  w->pieces = 1;
  if (w->tiles >= FEW || elements < 2 * GRAIN) return;
  double pieces = elements / (GRAIN * (double)w->tiles);
  w->pieces = pieces < 2 ? 1 : pieces > PIECES ? PIECES : (int64_t)pieces;
  if (w->pieces > w->positions) w->pieces = w->positions;
}

// ---------------------------------------------------------------------------------------------
// Elements

#define COPY_STRIDED(type)                                                                         \
  do {                                                                                             \
    const type *s = (const type *)from;                                                            \
    type *t = to;                                                                                  \
    for (int64_t i = 0; i < n; i++) t[i] = s[i * stride];                                          \
  } while (0)

static void copy_strided(size_t size, int64_t n, const char *from, int64_t stride, void *to) {
  switch (size) {
  case 1: COPY_STRIDED(uint8_t); break;
  case 2: COPY_STRIDED(uint16_t); break;
  case 4: COPY_STRIDED(uint32_t); break;
  default: COPY_STRIDED(uint64_t); break;
  }
}

// Elements of the computed type that a buffer holds.
static int64_t buffered(const work *w) {
  return BUFFER / (int64_t)cnn_dtype_size(w->computed);
}

static void bring_row(const work *w, const char *from, int64_t n, int64_t stride, char *to) {
  double raw[256];
  int64_t size = (int64_t)cnn_dtype_size(w->computed);
  if (stride == 1) {
    cnn_convert(n, w->stored, from, w->computed, to);
    return;
  }
  if (w->stored == w->computed) {
    copy_strided(w->size, n, from, stride, to);
    return;
  }
  for (int64_t at = 0; at < n; at += 256) {
    int64_t m = n - at < 256 ? n - at : 256;
    copy_strided(w->size, m, from + at * stride * (int64_t)w->size, stride, raw);
    cnn_convert(m, w->stored, raw, w->computed, to + at * size);
  }
}

// A matrix of rows x width elements from `from`, dense and in the computed type.
static void bring(const work *w, const char *from, int64_t rows, int64_t row_stride, int64_t width,
                  int64_t stride, void *buffer) {
  char *to = buffer;
  if (stride == 1 && row_stride == width) {
    cnn_convert(rows * width, w->stored, from, w->computed, to);
    return;
  }
  for (int64_t i = 0; i < rows; i++) {
    bring_row(w, from + i * row_stride * (int64_t)w->size, width, stride, to);
    to += width * (int64_t)cnn_dtype_size(w->computed);
  }
}

static bool reads_rows(const work *w) {
  return w->along.x == 1 && w->stored == w->computed;
}

// `depth` matrices of n results and `run` positions from `x` on.
static void fold_rows(const work *w, const char *x, int64_t n, int64_t run, int64_t depth,
                      int64_t first, cnn_word *s, int64_t stride) {
  double buffer[BUFFER / sizeof(double)];
  bool direct = reads_rows(w);
  cnn_fold_block b = {.step = w->along.y, .p = w->p, .depth = depth};
  if (depth > 1) b.apart = w->reduced[w->n_reduced - 1].x;
  int64_t most = direct ? CNN_FOLD_RUN : buffered(w), width;
  for (int64_t at = 0; at < run; at += width) {
    width = run - at < most ? run - at : most;
    b.width = width;
    b.first = first + at * w->along.y;
    const char *from = x + at * w->along.x * (int64_t)w->size;
    int64_t together = direct ? n : buffered(w) / width;
    for (int64_t j = 0; j < n; j += together) {
      b.rows = n - j < together ? n - j : together;
      b.x = from + j * w->across.x * (int64_t)w->size;
      b.stride = w->across.x;
      if (!direct) {
        bring(w, b.x, b.rows, w->across.x, width, w->along.x, buffer);
        b.x = buffer;
        b.stride = width;
      }
      w->fold->rows(&b, s + j, stride);
    }
  }
}

static void fold_columns(const work *w, const char *x, int64_t n, int64_t run, int64_t first,
                         cnn_word *s, int64_t stride) {
  double buffer[BUFFER / sizeof(double)];
  bool direct = w->across.x == 1 && w->stored == w->computed;
  cnn_fold_block b = {.step = w->along.y, .p = w->p, .width = n, .stride = direct ? w->along.x : n};
  int64_t most = direct ? CNN_FOLD_ROWS : buffered(w) / n;
  for (int64_t at = 0; at < run; at += b.rows) {
    b.rows = run - at < most ? run - at : most;
    b.first = first + at * w->along.y;
    b.x = x + at * w->along.x * (int64_t)w->size;
    if (!direct) {
      bring(w, b.x, b.rows, w->along.x, n, w->across.x, buffer);
      b.x = buffer;
    }
    w->fold->columns(&b, s, stride);
  }
}

// Few columns that are all of the matrix: several rows are one wider row, whose results are merged
// in the end.
static void fold_narrow(const work *w, const char *x, int64_t n, int64_t run, cnn_word *s,
                        int64_t stride) {
  cnn_word wide[CNN_FOLD_WORDS * 2 * NARROW];
  int64_t side = 2 * NARROW / n, rows = run / side;
  work wider = *w;
  wider.along.x = side * n;
  w->fold->init(side * n, wide, 2 * NARROW);
  fold_columns(&wider, x, side * n, rows, 0, wide, 2 * NARROW);
  for (int64_t i = 0; i < side; i++) w->fold->merge(n, s, stride, wide + i * n, 2 * NARROW);
  fold_columns(w, x + rows * side * n * (int64_t)w->size, n, run - rows * side, 0, s, stride);
}

// ---------------------------------------------------------------------------------------------
// Jobs

// Where tile number `tile` begins, in x (bytes) and among the results; how many it has.
static const char *find_tile(const work *w, int64_t tile, int64_t *y, int64_t *n) {
  int64_t at = tile % w->tiles_across * w->tile, x = at * w->across.x;
  tile /= w->tiles_across;
  *n = w->across.n - at < w->tile ? w->across.n - at : w->tile;
  *y = at * w->across.y;
  for (int i = w->n_kept - 1; i >= 0; i--) {
    x += tile % w->kept[i].n * w->kept[i].x;
    *y += tile % w->kept[i].n * w->kept[i].y;
    tile /= w->kept[i].n;
  }
  return (const char *)w->call->in[0].data + x * (int64_t)w->size;
}

// The positions [begin, end) of n results.
static void fold_range(const work *w, const char *x, int64_t n, int64_t begin, int64_t end,
                       cnn_word *s, int64_t stride) {
  int64_t index[CNN_MAX_DIMS], offset = 0, first = 1, rest = begin / w->along.n;
  int64_t at = begin % w->along.n;
  bool narrow = !w->rows && n < NARROW && n == w->across.n && w->across.x == 1 && w->along.x == n &&
                !w->op->places;
  for (int i = w->n_reduced - 1; i >= 0; i--) {
    index[i] = rest % w->reduced[i].n;
    rest /= w->reduced[i].n;
    offset += index[i] * w->reduced[i].x;
    first += index[i] * w->reduced[i].y;
  }
  int last = w->n_reduced - 1;
  bool deep = w->rows && w->fold->deep && reads_rows(w) && last >= 0;
  for (;;) {
    int64_t run = w->along.n - at < end - begin ? w->along.n - at : end - begin, depth = 1;
    const char *from = x + (offset + at * w->along.x) * (int64_t)w->size;
    if (deep && run == w->along.n) { // short rows, several in one
      depth = w->reduced[last].n - index[last];
      if (depth > (end - begin) / run) depth = (end - begin) / run;
      // As many as one lane may sum without losing digits.
      int64_t most = run < 16 ? CNN_FOLD_ROWS / run : CNN_FOLD_RUN / run;
      if (most > CNN_FOLD_ROWS) most = CNN_FOLD_ROWS;
      if (depth > most) depth = most > 0 ? most : 1;
    }
    if (w->rows)
      fold_rows(w, from, n, run, depth, first + at * w->along.y, s, stride);
    else if (narrow && run * n >= 4 * NARROW)
      fold_narrow(w, from, n, run, s, stride);
    else
      fold_columns(w, from, n, run, first + at * w->along.y, s, stride);
    begin += run * depth;
    at = 0;
    if (begin >= end) return;
    index[last] += depth - 1;
    offset += (depth - 1) * w->reduced[last].x;
    first += (depth - 1) * w->reduced[last].y;
    int i = last;
    for (; ++index[i] == w->reduced[i].n; i--) {
      index[i] = 0;
      offset -= (w->reduced[i].n - 1) * w->reduced[i].x;
      first -= (w->reduced[i].n - 1) * w->reduced[i].y;
    }
    offset += w->reduced[i].x;
    first += w->reduced[i].y;
  }
}

// Result `y` and its n - 1 followers, from their states (which are spent).
static void store(const work *w, const cnn_word *words, cnn_dtype dtype, cnn_view *out, int64_t y,
                  int64_t n) {
  size_t size = cnn_dtype_size(out->dtype);
  char *to = (char *)out->data + y * (int64_t)size;
  if (w->across.y == 1 || n == 1) {
    cnn_convert(n, dtype, words, out->dtype, to);
    return;
  }
  for (int64_t j = 0; j < n; j++)
    cnn_convert(1, dtype, &words[j], out->dtype, to + j * w->across.y * (int64_t)size);
}

static void finish(const work *w, cnn_word *s, int64_t stride, int64_t y, int64_t n) {
  const cnn_reduction *op = w->op;
  cnn_view *out = w->call->out;
  cnn_dtype dtype = op->counts || w->computed == CNN_I64 ? CNN_I64 : CNN_F64;
  if (op->finish) op->finish(w->call, n, s, stride, w->positions);
  if (dtype == CNN_F64 && cnn_dtype_category(out->dtype) == CNN_CAT_INT) {
    // Bytes were summed in float, exactly; what is too large for the result wraps as integers do.
    for (int64_t j = 0; j < n; j++) s[j].i = (int64_t)s[j].f;
    dtype = CNN_I64;
  }
  if (!op->places || w->call->n_out > 1) store(w, s, dtype, out++, y, n);
  if (op->places) store(w, s + stride, CNN_I64, out, y, n);
}

// Words of a job's state.
static int64_t state_words(const work *w) {
  return w->fold->words * (w->across.n < w->tile ? w->across.n : w->tile);
}

static void run_tiles(void *arg, int64_t begin, int64_t end) {
  const work *w = arg;
  cnn_word s[CNN_FOLD_WORDS * CNN_FOLD_TILE];
  for (int64_t tile = begin; tile < end; tile++) {
    int64_t y, n;
    const char *x = find_tile(w, tile, &y, &n);
    w->fold->init(n, s, n);
    if (w->positions > 0) fold_range(w, x, n, 0, w->positions, s, n);
    finish(w, s, n, y, n);
  }
}

// Job i is piece i / tiles of tile i % tiles.
static void run_pieces(void *arg, int64_t begin, int64_t end) {
  const work *w = arg;
  for (int64_t i = begin; i < end; i++) {
    int64_t y, n, piece = i / w->tiles;
    const char *x = find_tile(w, i % w->tiles, &y, &n);
    cnn_word *s = w->states + i * state_words(w);
    int64_t step = w->positions / w->pieces, first = piece * step;
    int64_t last = piece == w->pieces - 1 ? w->positions : first + step;
    w->fold->init(n, s, n);
    fold_range(w, x, n, first, last, s, n);
  }
}

static void merge_pieces(const work *w) {
  for (int64_t tile = 0; tile < w->tiles; tile++) {
    int64_t y, n;
    cnn_word *s = w->states + tile * state_words(w);
    find_tile(w, tile, &y, &n);
    for (int64_t i = 1; i < w->pieces; i++)
      w->fold->merge(n, s, n, s + i * w->tiles * state_words(w), n);
    finish(w, s, n, y, n);
  }
}

// ---------------------------------------------------------------------------------------------
// Calls

static const cnn_reduction *reduction_of(const cnn_call *call) {
  const cnn_reduction *op = call->kernel->data;
  return op->as_bool && call->out[0].dtype == CNN_BOOL ? op->as_bool : op;
}

static cnn_dtype computed_dtype(const cnn_call *call) {
  const cnn_reduction *op = reduction_of(call);
  cnn_dtype dtype = op->by_result ? call->out[0].dtype : call->in[0].dtype;
  // Sums of a block of bytes are exact in float, and quicker.
  if (cnn_dtype_size(call->in[0].dtype) == 1 && !op->multiplies) return CNN_F32;
  return cnn_dtype_is_half(dtype) ? CNN_F32 : cnn_dtype_is_float(dtype) ? dtype : CNN_I64;
}

static uint32_t dims_of(const cnn_call *call) {
  uint32_t mask = 0;
  cnn_check_dims(call->ctx, "dim", &call->args[1], call->in[0].ndim, &mask); // infer has passed it
  return mask;
}

static int fold_type(cnn_dtype dtype) {
  switch (dtype) {
  case CNN_F32: return CNN_FOLD_F32;
  case CNN_F64: return CNN_FOLD_F64;
  case CNN_F16: return CNN_FOLD_F16;
  case CNN_BF16: return CNN_FOLD_BF16;
  default: return CNN_FOLD_I64;
  }
}

static void prepare(work *w, const cnn_call *call) {
  const cnn_reduction *op = reduction_of(call);
  const cnn_view *x = &call->in[0];
  w->call = call;
  w->op = op;
  w->stored = x->dtype;
  w->size = cnn_dtype_size(x->dtype);
  w->computed = computed_dtype(call);
  w->p = 0;
  const cnn_fold *folds = op->folds ? op->folds : op->choose(call, &w->p);
  w->fold = &folds[fold_type(w->computed)];
  if (w->computed == CNN_F32 && cnn_dtype_is_half(x->dtype) && folds[fold_type(x->dtype)].rows) {
    w->computed = x->dtype;
    w->fold = &folds[fold_type(x->dtype)];
  }
  make_work(w, call, op->mask ? op->mask(call) : dims_of(call));
  cut_work(w);
}

cnn_status cnn_reduce_plan(cnn_call *call) {
  work w;
  if (cnn_view_numel(&call->in[0]) < 2 * GRAIN) return CNN_OK;
  prepare(&w, call);
  if (w.pieces > 1)
    call->scratch_bytes = (size_t)(w.pieces * w.tiles * state_words(&w)) * sizeof(cnn_word);
  return CNN_OK;
}

cnn_status cnn_reduce_run(cnn_call *call) {
  work w;
  prepare(&w, call);
  if (w.results == 0) return CNN_OK;
  if (w.pieces > 1) {
    w.states = call->scratch;
    cnn_parallel_for(w.pieces * w.tiles, 1, run_pieces, &w);
    merge_pieces(&w);
    return CNN_OK;
  }
  double each = (double)w.positions * (double)w.results / (double)w.tiles;
  int64_t grain = each >= GRAIN ? 1 : (int64_t)(GRAIN / (each < 1 ? 1 : each)) + 1;
  cnn_parallel_for(w.tiles, grain, run_tiles, &w);
  return CNN_OK;
}
