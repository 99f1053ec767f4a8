// SPDX-License-Identifier: MIT
// Slots form a ring: batch k lives in slot k % depth from the moment it is queued until it is
// handed out. A slot's state says who may touch its tensors: QUEUED nobody, RUNNING the thread that
// set it, READY the caller.
#include "io/loader.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/alloc.h"
#include "base/parallel.h"

enum {
  STACK_BYTES = 256 * 1024,
  THREADS_MAX = 64,
  AHEAD = 2,              // batches in the making per worker
  GATHER_GRAIN = 1 << 17, // bytes that are worth a thread
};

typedef enum slot_state { FREE, QUEUED, RUNNING, READY } slot_state;

typedef struct slot {
  slot_state state;
  int64_t batch;
  cnn_tensor *out[CNN_LOADER_SOURCES];
} slot;

struct cnn_loader {
  cnn_object object;
  int n_rows;
  cnn_rows rows[CNN_LOADER_SOURCES]; // own references; scales in `numbers`
  float *numbers;
  int64_t *order;
  int64_t n_order, batch, n_batches;
  int64_t head;  // the next batch to hand out
  int64_t ahead; // the next batch to queue
  int depth, n_threads;
  slot *slots;
  pthread_t threads[THREADS_MAX];
  unsigned generation; // of the process that owns the workers
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  bool stop;
};

// --- Forks --------------------------------------------------------------------------------------

static unsigned generation; // moves in every forked child

static void in_child(void) {
  generation++;
}

static void watch_forks(void) {
  pthread_atfork(NULL, NULL, in_child);
}

// Whether the workers are there. Without them the lock may be in any state and is not touched.
static bool has_workers(const cnn_loader *l) {
  return l->n_threads > 0 && l->generation == generation;
}

// --- Gathering ----------------------------------------------------------------------------------

static void affine(int64_t n, cnn_dtype dtype, const char *from, float scale, float shift,
                   float *to) {
  if (dtype == CNN_U8) {
    const uint8_t *p = (const uint8_t *)from;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = (float)p[i] * scale + shift;
    return;
  }
  if (dtype == CNN_F32) {
    const float *p = (const float *)(const void *)from;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = p[i] * scale + shift;
    return;
  }
  int64_t size = (int64_t)cnn_dtype_size(dtype);
  for (int64_t i = 0; i < n; i++)
    to[i] = (float)cnn_element_get(dtype, from + i * size) * scale + shift;
}

typedef struct gather {
  const cnn_rows *rows;
  const int64_t *order;
  char *to;
  int64_t row; // elements of a row
} gather;

static void gather_range(void *arg, int64_t begin, int64_t end) {
  const gather *g = arg;
  const cnn_tensor *t = g->rows->tensor;
  cnn_dtype dtype = (cnn_dtype)t->dtype;
  int64_t size = (int64_t)cnn_dtype_size(dtype), step = t->strides[0] * size;
  const char *from = cnn_data(t);
  for (int64_t i = begin; i < end; i++) {
    const char *row = from + g->order[i] * step;
    if (g->rows->channels == 0) {
      memcpy(g->to + i * g->row * size, row, (size_t)(g->row * size));
      continue;
    }
    float *to = (float *)(void *)g->to + i * g->row;
    int64_t part = g->row / g->rows->channels;
    for (int c = 0; c < g->rows->channels; c++)
      affine(part, dtype, row + c * part * size, g->rows->scale[c], g->rows->shift[c],
             to + c * part);
  }
}

static int64_t batch_size(const cnn_loader *l, int64_t batch) {
  int64_t left = l->n_order - batch * l->batch;
  return left < l->batch ? left : l->batch;
}

// Fills a batch's tensors; in the caller's thread several threads share the rows.
static void fill(const cnn_loader *l, int64_t batch, cnn_tensor *const *out, bool worker) {
  int64_t count = batch_size(l, batch);
  for (int k = 0; k < l->n_rows; k++) {
    const cnn_tensor *t = l->rows[k].tensor;
    gather g = {&l->rows[k], l->order + batch * l->batch, cnn_data(out[k]), 1};
    for (int d = 1; d < t->ndim; d++) g.row *= t->shape[d];
    if (g.row == 0 || count == 0) continue;
    int64_t grain = GATHER_GRAIN / (g.row * (int64_t)cnn_dtype_size((cnn_dtype)t->dtype)) + 1;
    if (worker)
      gather_range(&g, 0, count);
    else
      cnn_parallel_for(count, grain, gather_range, &g);
  }
}

// --- Workers ------------------------------------------------------------------------------------

static slot *find_queued(cnn_loader *l) {
  slot *best = NULL;
  for (int i = 0; i < l->depth; i++) {
    slot *s = &l->slots[i];
    if (s->state == QUEUED && (!best || s->batch < best->batch)) best = s;
  }
  return best;
}

static void *serve(void *arg) {
  cnn_loader *l = arg;
  pthread_mutex_lock(&l->lock);
  while (!l->stop) {
    slot *s = find_queued(l);
    if (!s) {
      pthread_cond_wait(&l->work, &l->lock);
      continue;
    }
    s->state = RUNNING;
    pthread_mutex_unlock(&l->lock);
    fill(l, s->batch, s->out, true);
    pthread_mutex_lock(&l->lock);
    s->state = READY;
    pthread_cond_signal(&l->done);
  }
  pthread_mutex_unlock(&l->lock);
  return NULL;
}

// As many as the system gives; deaf to signals, which are the host's.
static void start_workers(cnn_loader *l, int threads) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_attr_t attr;
  sigset_t all, old;
  pthread_once(&once, watch_forks);
  l->generation = generation;
  if (pthread_attr_init(&attr) != 0) return;
  pthread_attr_setstacksize(&attr, STACK_BYTES);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  while (l->n_threads < threads && pthread_create(&l->threads[l->n_threads], &attr, serve, l) == 0)
    l->n_threads++;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attr);
}

static void destroy(cnn_object *o) {
  cnn_loader *l = (cnn_loader *)o;
  if (has_workers(l)) {
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_threads; i++) pthread_join(l->threads[i], NULL);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->done);
    pthread_mutex_destroy(&l->lock);
  }
  for (int i = 0; i < l->depth; i++)
    for (int k = 0; k < l->n_rows; k++) cnn_unref(l->slots[i].out[k]);
  for (int k = 0; k < l->n_rows; k++) cnn_unref(l->rows[k].tensor);
  cnn_free(l->slots);
  cnn_free(l->numbers);
  cnn_free(l->order);
  cnn_free(l);
}

static const cnn_class loader_class = {"loader", destroy};

// --- The caller's side --------------------------------------------------------------------------

static cnn_status check_rows(cnn_context *ctx, const cnn_rows *rows, int n) {
  cnn_shape_text text;
  if (n < 1 || n > CNN_LOADER_SOURCES)
    return cnn_fail(ctx, CNN_INVALID, "a data set has 1 to %d tensors, not %d", CNN_LOADER_SOURCES,
                    n);
  for (int k = 0; k < n; k++) {
    const cnn_tensor *t = rows[k].tensor;
    if (t->device.type != CNN_CPU)
      return cnn_fail(ctx, CNN_DEVICE,
                      "tensor %d of the data set is on %s: batches are made on the "
                      "CPU",
                      k + 1, cnn_device_name(t->device));
    if (t->ndim == 0)
      return cnn_fail(ctx, CNN_SHAPE, "tensor %d of the data set has no dims, so no rows", k + 1);
    if (!cnn_strides_contiguous(t->ndim - 1, t->shape + 1, t->strides + 1))
      return cnn_fail(ctx, CNN_INVALID, "the rows of tensor %d are not contiguous", k + 1);
    if (rows[k].channels > 1 && (t->ndim < 2 || t->shape[1] != rows[k].channels))
      return cnn_fail(ctx, CNN_SHAPE,
                      "normalize: %d means and deviations for a tensor of shape %s, whose dim 2 is "
                      "the channels",
                      rows[k].channels, cnn_shape_format(&text, t->ndim, t->shape));
  }
  return CNN_OK;
}

cnn_status cnn_loader_create(cnn_context *ctx, const cnn_rows *rows, int n_rows,
                             const int64_t *order, int64_t n_order, int64_t batch, bool drop_last,
                             int threads, cnn_loader **out) {
  CNN_TRY(check_rows(ctx, rows, n_rows));
  if (batch < 1) return cnn_fail(ctx, CNN_INVALID, "batch_size must be at least 1");
  int channels = 0;
  for (int k = 0; k < n_rows; k++) channels += rows[k].channels;
  cnn_loader *l = cnn_calloc(sizeof *l);
  if (!l) return cnn_fail(ctx, CNN_OOM, "out of memory for a loader");
  cnn_object_init(&l->object, &loader_class);
  l->n_order = n_order;
  l->batch = batch;
  l->n_batches = drop_last ? n_order / batch : n_order / batch + (n_order % batch > 0);
  if (threads > THREADS_MAX) threads = THREADS_MAX;
  if (threads > l->n_batches) threads = (int)l->n_batches;
  int depth = threads * AHEAD;
  l->order = cnn_malloc((size_t)(n_order + 1) * sizeof *order);
  l->numbers = cnn_malloc((size_t)(2 * channels + 1) * sizeof *l->numbers);
  l->slots = cnn_calloc((size_t)(depth + 1) * sizeof *l->slots);
  if (!l->order || !l->numbers || !l->slots) {
    cnn_unref(l);
    return cnn_fail(ctx, CNN_OOM, "out of memory for a loader");
  }
  if (n_order > 0) memcpy(l->order, order, (size_t)n_order * sizeof *order);
  float *numbers = l->numbers;
  for (int k = 0; k < n_rows; k++) {
    size_t bytes = (size_t)rows[k].channels * sizeof *numbers;
    l->rows[k] =
        (cnn_rows){cnn_ref(rows[k].tensor), rows[k].channels, numbers, numbers + rows[k].channels};
    if (bytes > 0) memcpy(numbers, rows[k].scale, bytes);
    if (bytes > 0) memcpy(numbers + rows[k].channels, rows[k].shift, bytes);
    numbers += 2 * rows[k].channels;
  }
  l->n_rows = n_rows;
  l->depth = depth;
  if (threads > 0) {
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->done, NULL);
    start_workers(l, threads);
  }
  *out = l;
  return CNN_OK;
}

int cnn_loader_sources(const cnn_loader *l) {
  return l->n_rows;
}

static cnn_status allocate(cnn_context *ctx, const cnn_loader *l, int64_t batch, cnn_tensor **out) {
  uint8_t kind = ctx->kind;
  cnn_status status = CNN_OK;
  ctx->kind = CNN_KIND_DATA;
  for (int k = 0; k < l->n_rows && status == CNN_OK; k++) {
    cnn_meta meta;
    cnn_meta_of(l->rows[k].tensor, &meta);
    meta.shape[0] = batch_size(l, batch);
    cnn_meta_set(&meta, l->rows[k].channels ? CNN_F32 : meta.dtype, meta.device, meta.ndim,
                 meta.shape);
    status = cnn_tensor_empty(ctx, &meta, &out[k]);
    for (int j = 0; j < k && status != CNN_OK; j++) {
      cnn_unref(out[j]);
      out[j] = NULL;
    }
  }
  ctx->kind = kind;
  return status;
}

// Hands more batches to the workers. When memory is short there are just fewer.
static void queue_ahead(cnn_context *ctx, cnn_loader *l) {
  if (!has_workers(l)) return;
  if (l->ahead < l->head) l->ahead = l->head;
  while (l->ahead < l->n_batches && l->ahead < l->head + l->depth) {
    slot *s = &l->slots[l->ahead % l->depth];
    if (allocate(ctx, l, l->ahead, s->out) != CNN_OK) return;
    pthread_mutex_lock(&l->lock);
    s->batch = l->ahead++;
    s->state = QUEUED;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
  }
}

// Takes the next batch out of its slot; false when it was never queued. A batch that no worker has
// begun, or that one began whom a fork took away, is filled here.
static bool take_ahead(cnn_loader *l, cnn_tensor **out) {
  if (l->ahead <= l->head) return false;
  slot *s = &l->slots[l->head % l->depth];
  bool workers = has_workers(l);
  if (workers) pthread_mutex_lock(&l->lock);
  while (workers && s->state == RUNNING) pthread_cond_wait(&l->done, &l->lock);
  bool filled = s->state == READY;
  s->state = FREE;
  memcpy(out, s->out, (size_t)l->n_rows * sizeof *out);
  memset(s->out, 0, sizeof s->out);
  if (workers) pthread_mutex_unlock(&l->lock);
  if (!filled) fill(l, l->head, out, false);
  return true;
}

cnn_status cnn_loader_next(cnn_context *ctx, cnn_loader *l, cnn_tensor **out, bool *more) {
  *more = l->head < l->n_batches;
  if (!*more) return CNN_OK;
  queue_ahead(ctx, l);
  if (!take_ahead(l, out)) {
    CNN_TRY(allocate(ctx, l, l->head, out));
    fill(l, l->head, out, false);
  }
  l->head++;
  queue_ahead(ctx, l);
  return CNN_OK;
}

// ------------------------------------------------------------------------------------------------

__extension__ typedef unsigned __int128 wide;

void cnn_shuffle(int64_t *order, int64_t n, uint64_t seed, uint64_t epoch) {
  cnn_philox key = cnn_philox_at(seed, epoch);
  uint64_t stream = (uint64_t)key.v[0] << 32 | key.v[1];
  for (int64_t i = n - 1; i > 0; i--) {
    cnn_philox r = cnn_philox_at(stream, (uint64_t)i);
    // A number in 0..i by the high half of a product: off by less than 2^-32 of a chance even for
    // billions of rows.
    uint64_t bits = (uint64_t)r.v[0] << 32 | r.v[1];
    int64_t j = (int64_t)((wide)bits * (uint64_t)(i + 1) >> 64);
    int64_t swap = order[i];
    order[i] = order[j];
    order[j] = swap;
  }
}
