// SPDX-License-Identifier: MIT
// A tensor: a counted handle on a buffer, with shape, strides, offset and dtype, and the few fields
// by which the tape (engine/) hangs on to it.
//
// Invariants: every element that (shape, strides, offset) can name lies inside the buffer. Strides
// count elements and may be 0 or negative. Shape, strides, dtype and device never change while
// somebody else may look; only cnn_tensor_swap (module:to) changes them, for all holders at once.
#ifndef CNN_TENSOR_TENSOR_H
#define CNN_TENSOR_TENSOR_H

#include "base/context.h"
#include "base/object.h"
#include "base/shape.h"
#include "memory/buffer.h"

// Flags of a tensor.
enum {
  CNN_REQUIRES_GRAD = 1, // a leaf that wants a gradient
  CNN_PARAMETER = 2,     // listed and trained by modules
  CNN_INFERENCE = 4,     // made in inference mode: may not enter a graph
  CNN_MULTI_VIEW = 8,    // one of several views that one op made: no change in place
  CNN_NO_GRAD_VIEW = 16, // a view made with gradients off: no recorded change in place
  CNN_BOXED = 32,        // the binding keeps one handle for it
};

typedef struct cnn_tensor cnn_tensor;
struct cnn_tensor {
  cnn_object object;
  cnn_buffer *buffer;
  int64_t offset; // of the first element, in elements
  uint8_t dtype;  // cnn_dtype
  uint8_t ndim;
  cnn_device device;
  uint16_t flags;
  uint16_t slot; // which output of grad_fn this is
  uint32_t
      generation;   // on a base: moves when its history is rewritten; on a view: the base's, seen
  void *grad_fn;    // cnn_node that made it, or NULL
  cnn_tensor *grad; // of a leaf, after backward
  cnn_tensor *base; // of a view: the tensor whose history its own follows (never a view itself)
  void *hooks;      // cnn_hooks of a leaf
  int64_t shape[CNN_MAX_DIMS];
  int64_t strides[CNN_MAX_DIMS];
};

// The description of a tensor that is still to be made, or of what one was.
typedef struct cnn_meta {
  cnn_dtype dtype;
  cnn_device device;
  int ndim;
  int64_t shape[CNN_MAX_DIMS];
  int64_t strides[CNN_MAX_DIMS];
} cnn_meta;

static inline bool cnn_requires_grad(const cnn_tensor *t) {
  return (t->flags & CNN_REQUIRES_GRAD) != 0 || t->grad_fn != NULL;
}

static inline int64_t cnn_numel(const cnn_tensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) n *= t->shape[i];
  return n;
}

static inline bool cnn_is_contiguous(const cnn_tensor *t) {
  return cnn_strides_contiguous(t->ndim, t->shape, t->strides);
}

static inline void *cnn_data(const cnn_tensor *t) {
  char *p = t->buffer->data;
  return p ? p + t->offset * (int64_t)cnn_dtype_size((cnn_dtype)t->dtype) : NULL;
}

// Fills `meta` with a shape and row-major strides. The shape must have at most CNN_MAX_DIMS dims.
void cnn_meta_set(cnn_meta *meta, cnn_dtype dtype, cnn_device device, int ndim,
                  const int64_t *shape);
// The meta of an existing tensor.
void cnn_meta_of(const cnn_tensor *t, cnn_meta *meta);

// A new tensor with its own bytes, undefined. Its strides must be dense. Fails with CNN_OOM, or
// with CNN_SHAPE when the size does not fit.
cnn_status cnn_tensor_empty(cnn_context *ctx, const cnn_meta *meta, cnn_tensor **out);

// A new handle on a buffer (shared, one more reference): no gradient, no history, no base.
cnn_status cnn_tensor_on(cnn_context *ctx, cnn_buffer *buffer, const cnn_meta *meta, int64_t offset,
                         cnn_tensor **out);

// The same elements without history: what `detach` gives.
cnn_status cnn_tensor_alias(cnn_context *ctx, const cnn_tensor *t, cnn_tensor **out);

// Makes `t` look at what `from` looks at (buffer, shape, strides, dtype, device); history and flags
// stay. For module:to and for loading, where all holders of t must see the change.
void cnn_tensor_swap(cnn_tensor *t, const cnn_tensor *from);

// One element, by its indices (ndim of them, 0-based, inside the shape). CPU tensors only.
void *cnn_element_at(const cnn_tensor *t, const int64_t *index);

// "(8, 3, 28, 28)", for messages.
const char *cnn_tensor_shape_text(const cnn_tensor *t, cnn_shape_text *buffer);

#endif
