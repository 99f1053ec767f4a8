// SPDX-License-Identifier: MIT
#include "kernel.h"

__extension__ typedef unsigned __int128 wide;

static int64_t stride_of(const cnn_view *v, int ndim, int d) {
  int own = d - (ndim - v->ndim);
  return own < 0 || v->shape[own] == 1 ? 0 : v->strides[own];
}

// Granlund, Montgomery: "Division by invariant integers using multiplication" (1994).
static void prepare_divisions(cuda_walk *w) {
  const int bits = w->numel < INT32_MAX ? 32 : 64;
  for (int d = 0; d < w->ndim; d++) {
    const uint64_t size = w->shape[d] > 0 ? (uint64_t)w->shape[d] : 1;
    uint32_t s = 0;
    while (((uint64_t)1 << s) < size) s++;
    w->shift[d] = s;
    w->factor[d] = (uint64_t)(((wide)(((uint64_t)1 << s) - size) << bits) / size + 1);
  }
}

// Joins dims, and prepares division by them.
static void finish(cuda_walk *w) {
  int last = 0;
  for (int d = 1; d < w->ndim; d++) {
    bool joins = true;
    for (int k = 0; k < w->views && joins; k++)
      joins = w->strides[k][last] == w->strides[k][d] * w->shape[d];
    if (joins)
      w->shape[last] *= w->shape[d];
    else
      w->shape[++last] = w->shape[d];
    for (int k = 0; k < w->views; k++) w->strides[k][last] = w->strides[k][d];
  }
  if (w->ndim > 0) w->ndim = last + 1;
  prepare_divisions(w);
}

static void collect(cuda_walk *w, int ndim, const int64_t *shape, const cnn_view *const *views,
                    int n, bool sorted) {
  w->ndim = 0;
  w->views = n;
  w->numel = 1;
  for (int d = 0; d < ndim; d++) {
    w->numel *= shape[d];
    if (shape[d] == 1) continue;
    int64_t s = stride_of(views[0], ndim, d);
    int at = w->ndim++;
    for (; sorted && at > 0 && w->strides[0][at - 1] < s; at--) { // insertion sort
      w->shape[at] = w->shape[at - 1];
      for (int k = 0; k < n; k++) w->strides[k][at] = w->strides[k][at - 1];
    }
    w->shape[at] = shape[d];
    for (int k = 0; k < n; k++) w->strides[k][at] = stride_of(views[k], ndim, d);
  }
  finish(w);
}

void cuda_walk_make(cuda_walk *w, int ndim, const int64_t *shape, const cnn_view *const *views,
                    int n) {
  collect(w, ndim, shape, views, n, true);
}

void cuda_walk_ordered(cuda_walk *w, int ndim, const int64_t *shape, const cnn_view *const *views,
                       int n) {
  collect(w, ndim, shape, views, n, false);
}

void cuda_walk_group(cuda_walk *grouped, const cuda_walk *w, int64_t n) {
  const int last = w->ndim - 1;
  *grouped = *w;
  grouped->numel /= n;
  if (last >= 0) grouped->shape[last] /= n;
  for (int k = 0; k < w->views && last >= 0; k++) grouped->strides[k][last] *= n;
  prepare_divisions(grouped);
}

void cuda_walk_dims(cuda_walk *w, const cnn_view *v, uint32_t dims) {
  w->ndim = 0;
  w->views = 1;
  w->numel = 1;
  for (int d = 0; d < v->ndim; d++) {
    if (!(dims >> d & 1)) continue;
    w->numel *= v->shape[d];
    if (v->shape[d] == 1) continue;
    w->shape[w->ndim] = v->shape[d];
    w->strides[0][w->ndim++] = v->strides[d];
  }
  finish(w);
}

void cuda_lines_make(cuda_lines *l, int dim, const cnn_view *const *views, int n) {
  int64_t shape[CNN_MAX_DIMS], strides[CUDA_WALK_VIEWS][CNN_MAX_DIMS];
  cnn_view rest[CUDA_WALK_VIEWS];
  const cnn_view *pointers[CUDA_WALK_VIEWS];
  int ndim = 0;
  for (int d = 0; d < views[0]->ndim; d++) {
    if (d == dim) continue;
    shape[ndim] = views[0]->shape[d];
    for (int k = 0; k < n; k++) strides[k][ndim] = views[k]->strides[d];
    ndim++;
  }
  for (int k = 0; k < n; k++) {
    bool line = views[k]->ndim > 0; // the one element of a 0-d view is a line as well
    rest[k] = (cnn_view){views[k]->data, shape, strides[k], ndim, views[k]->dtype};
    pointers[k] = &rest[k];
    l->stride[k] = line && views[k]->shape[dim] > 1 ? views[k]->strides[dim] : 1;
  }
  l->length = views[0]->ndim > 0 ? views[0]->shape[dim] : 1;
  cuda_walk_make(&l->outer, ndim, shape, pointers, n);
  const cuda_walk *w = &l->outer;
  l->columns = w->ndim > 0 && w->strides[0][w->ndim - 1] == 1 && l->stride[0] != 1 &&
               w->shape[w->ndim - 1] >= 16;
}
