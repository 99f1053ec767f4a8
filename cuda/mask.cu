// SPDX-License-Identifier: MIT
// Kernels of ops/mask.c. What is true is numbered by a scan (scan.cuh), in row-major order; then
// slices move by the list of their places (indexing.cu).
#include "indexing.cuh"
#include "scan.cuh"

// Elements that are not 0.
typedef struct flags {
  const void *data;
  cnn_dtype dtype;
  cuda_walk walk; // in row-major order
  __device__ int64_t value(int64_t i) const {
    return k_get<double>(dtype, data, k_offset(walk, i)) != 0;
  }
  __device__ void emit(int64_t, int64_t, int64_t) const {}
} flags;

static void describe(flags *f, const cnn_view *mask) {
  f->data = mask->data;
  f->dtype = mask->dtype;
  cuda_walk_ordered(&f->walk, mask->ndim, mask->shape, &mask, 1);
}

static cnn_status plan_nonzero(cnn_call *call) {
  call->scratch_bytes = k_tiles_scratch(cnn_view_numel(&call->in[0]));
  return CNN_OK;
}
static cnn_status run_nonzero_count(cnn_call *call) {
  flags f;
  describe(&f, &call->in[0]);
  return k_total(call, f, f.walk.numel, static_cast<int64_t *>(call->scratch),
                 static_cast<int64_t *>(call->out[0].data));
}

struct places : flags {
  int ndim;
  int64_t shape[CNN_MAX_DIMS], n;
  int64_t *out; // [n][ndim]
  __device__ void emit(int64_t i, int64_t before, int64_t value) const {
    if (!value || before >= n) return;
    for (int d = ndim - 1; d >= 0; d--) out[before * ndim + d] = k_digit(&i, shape[d]) + 1;
  }
};

static cnn_status run_nonzero_places(cnn_call *call) {
  const cnn_view *x = &call->in[0];
  places p;
  describe(&p, x);
  p.ndim = x->ndim;
  for (int d = 0; d < x->ndim; d++) p.shape[d] = x->shape[d];
  p.n = call->out[0].shape[0];
  p.out = static_cast<int64_t *>(call->out[0].data);
  return k_scan(call, p, p.walk.numel, static_cast<int64_t *>(call->scratch));
}

CUDA_KERNEL(nonzero_count, plan_nonzero, run_nonzero_count)
CUDA_KERNEL(nonzero_places, plan_nonzero, run_nonzero_places)

// ---------------------------------------------------------------------------------------------
// Between a tensor with the mask's dims in front ("large") and one with a dim for what is true
// ("small")

struct listing : flags {
  cuda_walk leading; // of large, over the mask's dims
  int64_t unit, n;
  int64_t *list; // of the offsets in large, by unit, from 1
  __device__ void emit(int64_t i, int64_t before, int64_t value) const {
    if (value && before < n) list[before] = k_offset(leading, i) / unit + 1;
  }
};

static size_t list_bytes(int64_t n) {
  return (static_cast<size_t>(n) * sizeof(int64_t) + 63) / 64 * 64;
}
static cnn_status plan_mask(cnn_call *call, const cnn_view *small) {
  call->scratch_bytes = list_bytes(small->shape[0]) + k_tiles_scratch(cnn_view_numel(&call->in[1]));
  return CNN_OK;
}
static cnn_status plan_mask_select(cnn_call *call) {
  return plan_mask(call, &call->out[0]);
}
static cnn_status plan_mask_spread(cnn_call *call) {
  return plan_mask(call, &call->in[0]);
}

// Lists the places that the mask names, and describes large by the list.
static cnn_status list_places(const cnn_call *call, const cnn_view *large, const cnn_view *small,
                              cuda_indexing *ix) {
  const cnn_view *mask = &call->in[1];
  const cnn_view lead = {large->data, large->shape, large->strides, mask->ndim, large->dtype};
  const cnn_view *views[] = {&lead};
  listing l;
  describe(&l, mask);
  cuda_walk_ordered(&l.leading, mask->ndim, mask->shape, views, 1);
  l.unit = 0;
  for (int d = 0; d < l.leading.ndim; d++) {
    int64_t a = l.leading.strides[0][d];
    while (a) { // the greatest common divisor
      const int64_t r = l.unit % a;
      l.unit = a;
      a = r;
    }
  }
  if (l.unit == 0) l.unit = 1;
  l.n = small->shape[0];
  l.list = static_cast<int64_t *>(call->scratch);
  CNN_TRY(
      k_scan(call, l, l.walk.numel,
             reinterpret_cast<int64_t *>(static_cast<char *>(call->scratch) + list_bytes(l.n))));
  cuda_indexing_begin(ix, large);
  ix->ndim = small->ndim;
  ix->n = 1;
  ix->distinct = true;
  ix->index[0].data = l.list;
  ix->index[0].dtype = CNN_I64;
  ix->index[0].size = INT64_MAX;
  ix->index[0].step = l.unit;
  for (int d = 0; d < small->ndim; d++) {
    ix->shape[d] = small->shape[d];
    ix->index[0].strides[d] = d == 0;
    ix->x_strides[d] = d == 0 ? 0 : large->strides[mask->ndim + d - 1];
  }
  cuda_indexing_other(ix, small, small->strides);
  return CNN_OK;
}

static cnn_status run_mask_select(cnn_call *call) {
  cuda_indexing ix;
  if (cnn_view_numel(&call->out[0]) == 0) return CNN_OK;
  if (cnn_view_is_number(&call->in[0])) return cuda_copy_view(call, &call->out[0], &call->in[0]);
  CNN_TRY(list_places(call, &call->in[0], &call->out[0], &ix));
  return cuda_indexing_read(call, &ix);
}

static cnn_status run_mask_spread(cnn_call *call) {
  cuda_indexing ix;
  CNN_TRY(cuda_fill_view(call, &call->out[0], 0));
  if (cnn_view_numel(&call->in[0]) == 0) return CNN_OK;
  CNN_TRY(list_places(call, &call->out[0], &call->in[0], &ix));
  return cuda_indexing_write(call, &ix, nullptr);
}

CUDA_KERNEL(mask_select, plan_mask_select, run_mask_select)
CUDA_KERNEL(mask_spread, plan_mask_spread, run_mask_spread)
