// SPDX-License-Identifier: MIT
// Moving elements between a tensor x, indexed by tensors of positions, and another tensor o: what
// csrc/cpu/indexing.h is for the CPU. One core serves x[{i, j}], index_select, gather, scatter,
// embedding, masks and overlapping windows, for any strides.
//
// Both are walked over one space. In a dim of the space x has either a stride of its own (0 where
// the dim is not x's), or is moved by the index tensors: element p lies at
//   x[sum over dims p[d] * x_strides[d] + sum over index tensors (value - 1) * step].
#ifndef CNN_CUDA_INDEXING_CUH
#define CNN_CUDA_INDEXING_CUH

#include "kernel.cuh"

typedef struct cuda_indexer {
  const void *data;
  cnn_dtype dtype;
  int64_t strides[CNN_MAX_DIMS]; // over the space; 0 where it does not vary
  int64_t size, step;            // of the dim of x that it indexes
  int dim;                       // its number
} cuda_indexer;

typedef struct cuda_indexing {
  int ndim;
  int64_t shape[CNN_MAX_DIMS]; // of the space
  cnn_dtype dtype;             // of x and o
  void *x, *o;                 // o is only read where it is the source; NULL: `number` everywhere
  int64_t x_strides[CNN_MAX_DIMS], o_strides[CNN_MAX_DIMS];
  uint64_t number; // an element
  int n;
  cuda_indexer index[CNN_MAX_DIMS];
  int64_t left_out; // the position in index 0 (from 1) to which nothing is added; 0: none
  bool distinct;    // positions are known to be in range, and no place occurs twice
} cuda_indexing;

// Starts a description without dims: fields that are 0 mean nothing.
void cuda_indexing_begin(cuda_indexing *ix, const cnn_view *x);
// Sets o, which has the given strides over the space, or is a number in the CPU's memory.
void cuda_indexing_other(cuda_indexing *ix, const cnn_view *o, const int64_t *strides);

// o = x[...]. An index that is out of range is reported and gives 0.
cnn_status cuda_indexing_read(const cnn_call *call, const cuda_indexing *ix);
// x[...] = o; of equal places the last one stays. `scratch` as cuda_indexing_scratch says. Where
// something was reported nothing is written: all indices are checked before the first write.
cnn_status cuda_indexing_write(const cnn_call *call, const cuda_indexing *ix, void *scratch);
// x[...] += o (bools: or). Sums are made in float32 or float64, in an order that depends on the
// indices alone.
cnn_status cuda_indexing_add(const cnn_call *call, const cuda_indexing *ix, void *scratch);
// Bytes for cuda_indexing_write and _add, by shapes and strides alone.
size_t cuda_indexing_scratch(const cuda_indexing *ix);

// For ops that `describe` by their call: the plan of what writes or adds; the gradient of what
// reads, zeros to which is added.
typedef void cuda_indexing_describe(cuda_indexing *ix, const cnn_call *call);
template <cuda_indexing_describe describe> cnn_status cuda_indexing_plan(cnn_call *call) {
  cuda_indexing ix;
  describe(&ix, call);
  call->scratch_bytes = cuda_indexing_scratch(&ix);
  return CNN_OK;
}
template <cuda_indexing_describe describe> cnn_status cuda_indexing_gradient(cnn_call *call) {
  cuda_indexing ix;
  CNN_TRY(cuda_fill_view(call, &call->out[0], 0));
  describe(&ix, call);
  return cuda_indexing_add(call, &ix, call->scratch);
}

#endif
