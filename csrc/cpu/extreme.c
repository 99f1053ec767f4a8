// SPDX-License-Identifier: MIT
// Kernels of ops/extreme.c: extremes by folds, medians by radix selection.
#include <math.h>

#include "base/parallel.h"
#include "cpu/cpu.h"
#include "cpu/elementwise.h"
#include "cpu/reduction.h"

CNN_REDUCTION_KERNEL(amax, .folds = cnn_fold_max)
CNN_REDUCTION_KERNEL(amin, .folds = cnn_fold_min)
CNN_REDUCTION_KERNEL(argmax, .folds = cnn_fold_argmax, .places = true)
CNN_REDUCTION_KERNEL(argmin, .folds = cnn_fold_argmin, .places = true)
CNN_REDUCTION_KERNEL(max_dim, .folds = cnn_fold_argmax, .places = true)
CNN_REDUCTION_KERNEL(min_dim, .folds = cnn_fold_argmin, .places = true)

// ---------------------------------------------------------------------------------------------
// Medians. Elements become unsigned keys in their order, NaN the largest key; the digits of the
// k-th key are found from the highest on, by counting among those that share the digits found so
// far. No element moves, and no input is slow.

#define NAN_KEY UINT64_MAX

typedef struct selection {
  cnn_nest nest; // of one line, any strides
  cnn_dtype dtype;
  uint64_t keys[CNN_PIECE];
} selection;

// Keys of floats: the sign bit set where it was not, all bits flipped where it was. -0 is 0.
#define FLOAT_KEYS(U, bits, infinity)                                                              \
  do {                                                                                             \
    const U *u = (const void *)raw, sign = (U)((U)1 << (bits - 1));                                \
    for (int64_t i = 0; i < n; i++) {                                                              \
      U v = u[i] == sign ? 0 : u[i];                                                               \
      U key = v & sign ? (U)~v : (U)(v | sign);                                                    \
      keys[i] = (U)(v & (U)~sign) > (infinity) ? NAN_KEY : key;                                    \
    }                                                                                              \
  } while (0)
#define INT_KEYS(U, flip)                                                                          \
  do {                                                                                             \
    const U *u = (const void *)raw;                                                                \
    for (int64_t i = 0; i < n; i++) keys[i] = (U)(u[i] ^ (U)(flip));                               \
  } while (0)

static void load_keys(selection *s, int64_t at, int64_t n) {
  uint64_t raw[CNN_PIECE], *keys = s->keys;
  cnn_nest_gather(&s->nest, 0, at, n, raw);
  switch (s->dtype) {
  case CNN_F32: FLOAT_KEYS(uint32_t, 32, 0x7F800000u); break;
  case CNN_F64: FLOAT_KEYS(uint64_t, 64, 0x7FF0000000000000u); break;
  case CNN_F16: FLOAT_KEYS(uint16_t, 16, 0x7C00u); break;
  case CNN_BF16: FLOAT_KEYS(uint16_t, 16, 0x7F80u); break;
  case CNN_I64: INT_KEYS(uint64_t, (uint64_t)1 << 63); break;
  case CNN_I32: INT_KEYS(uint32_t, 1u << 31); break;
  case CNN_I16: INT_KEYS(uint16_t, 1u << 15); break;
  case CNN_I8: INT_KEYS(uint8_t, 1u << 7); break;
  default: INT_KEYS(uint8_t, 0); break;
  }
}

// The first place (from 0) whose key is `key` in the bits of `mask`, or -1.
static int64_t find_key(selection *s, uint64_t key, uint64_t mask) {
  bool one_piece = s->nest.numel <= CNN_PIECE;
  for (int64_t at = 0; at < s->nest.numel; at += CNN_PIECE) {
    int64_t n = s->nest.numel - at < CNN_PIECE ? s->nest.numel - at : CNN_PIECE;
    if (!one_piece) load_keys(s, at, n);
    for (int64_t i = 0; i < n; i++)
      if ((s->keys[i] & mask) == key) return at + i;
  }
  return -1;
}

// Few keys are sorted in.
static uint64_t select_small(const selection *s, int64_t k) {
  uint64_t sorted[32];
  for (int64_t i = 0; i < s->nest.numel; i++) {
    int64_t at = i;
    for (; at > 0 && sorted[at - 1] > s->keys[i]; at--) sorted[at] = sorted[at - 1];
    sorted[at] = s->keys[i];
  }
  return sorted[k];
}

// The place of the k-th smallest element, of the first NaN if there is one.
static int64_t select_place(selection *s, int64_t k) {
  int64_t numel = s->nest.numel;
  if (numel <= CNN_PIECE) load_keys(s, 0, numel);
  if (cnn_dtype_is_float(s->dtype)) {
    int64_t nan = find_key(s, NAN_KEY, UINT64_MAX);
    if (nan >= 0) return nan;
  }
  if (numel <= 32) return find_key(s, select_small(s, k), UINT64_MAX);
  uint64_t prefix = 0, mask = 0;
  for (int shift = (int)cnn_dtype_size(s->dtype) * 8 - 8; shift >= 0; shift -= 8) {
    int64_t count[256] = {0};
    uint64_t digit = 0;
    for (int64_t at = 0; at < numel; at += CNN_PIECE) {
      int64_t n = numel - at < CNN_PIECE ? numel - at : CNN_PIECE;
      if (numel > CNN_PIECE) load_keys(s, at, n);
      for (int64_t i = 0; i < n; i++)
        if ((s->keys[i] & mask) == prefix) count[s->keys[i] >> shift & 255]++;
    }
    while (k >= count[digit]) k -= count[digit++];
    prefix |= digit << shift;
    mask |= (uint64_t)255 << shift;
    if (count[digit] == 1) break;
  }
  return find_key(s, prefix, mask);
}

// The element at `place` of the line, and its position.
static void store_median(selection *s, const cnn_view *line, void *value, int64_t *position) {
  cnn_nest_make(&s->nest, line->ndim, line->shape, &line, 1);
  s->dtype = line->dtype;
  int64_t place = select_place(s, (s->nest.numel - 1) / 2);
  cnn_nest_gather(&s->nest, 0, place, 1, value);
  if (position) *position = place + 1;
}

static cnn_status run_median_all(cnn_call *call) {
  selection s;
  const cnn_view *x = &call->in[0];
  if (cnn_view_numel(x) == 0)
    cnn_element_set(x->dtype, call->out[0].data, NAN);
  else
    store_median(&s, x, call->out[0].data, NULL);
  return CNN_OK;
}
const cnn_kernel cpu_median_all = {NULL, run_median_all, NULL};

typedef struct medians {
  cnn_nest starts; // of the lines
  cnn_view line;
  char *values;
  int64_t *places;
} medians;

static void run_medians(void *arg, int64_t begin, int64_t end) {
  const medians *m = arg;
  selection s;
  size_t size = cnn_dtype_size(m->line.dtype);
  for (int64_t i = begin; i < end; i++) {
    cnn_view line = m->line;
    int64_t offset = 0, rest = i;
    for (int d = m->starts.ndim - 1; d >= 0; d--) {
      offset += rest % m->starts.shape[d] * m->starts.strides[1][d];
      rest /= m->starts.shape[d];
    }
    line.data = (char *)line.data + offset * (int64_t)size;
    store_median(&s, &line, m->values + i * (int64_t)size, m->places + i);
  }
}

static cnn_status run_median_dim(cnn_call *call) {
  const cnn_view *x = &call->in[0], *out = &call->out[0];
  int64_t dim = call->args[1].i, shape[CNN_MAX_DIMS], strides[CNN_MAX_DIMS], packed[CNN_MAX_DIMS];
  if (dim < 0) dim += x->ndim;
  int n = 0;
  for (int d = 0; d < x->ndim; d++)
    if (d != dim) shape[n] = x->shape[d], strides[n++] = x->strides[d];
  cnn_shape_strides(n, shape, packed);
  cnn_view kept = {x->data, shape, strides, n, x->dtype};
  cnn_view results = {out->data, shape, packed, n, x->dtype};
  const cnn_view *views[] = {&results, &kept};
  medians m = {.line = {x->data, x->shape + dim, x->strides + dim, x->ndim ? 1 : 0, x->dtype},
               .values = out->data,
               .places = call->out[1].data};
  cnn_nest_make(&m.starts, n, shape, views, 2);
  int64_t length = x->ndim ? x->shape[dim] : 1;
  cnn_parallel_for(m.starts.numel, length > 4096 ? 1 : 4096 / (length + 1) + 1, run_medians, &m);
  return CNN_OK;
}
const cnn_kernel cpu_median_dim = {NULL, run_median_dim, NULL};
