// SPDX-License-Identifier: MIT
// What view ops share: the geometry of a view, and gradients that follow from it.
#ifndef CNN_OPS_GEOMETRY_H
#define CNN_OPS_GEOMETRY_H

#include "ops/ops.h"

// A view under construction.
typedef struct cnn_geometry {
  int ndim;
  int64_t offset; // relative to the input's first element
  int64_t shape[CNN_MAX_DIMS], strides[CNN_MAX_DIMS];
} cnn_geometry;

// A view op's geometry from the input's and the arguments: one function serves infer (with the real
// strides) and backward (with row-major ones).
typedef cnn_status (*cnn_geometry_fn)(cnn_context *ctx, const cnn_arg *args, cnn_geometry *v);

void cnn_geometry_of(cnn_geometry *v, int ndim, const int64_t *shape, const int64_t *strides);
void cnn_geometry_remove(cnn_geometry *v, int dim);
// Inserts a dim; false when there are CNN_MAX_DIMS already.
bool cnn_geometry_insert(cnn_geometry *v, int dim, int64_t size, int64_t stride);

// Result 0 with that geometry over input 0.
cnn_status cnn_geometry_view(cnn_infer *I, const cnn_geometry *v);
cnn_status cnn_geometry_infer(cnn_infer *I, cnn_geometry_fn fn);
// The gradient of input 0: zeros with dy added where the view looked.
void cnn_geometry_backward(cnn_grad *g, cnn_geometry_fn fn);

// A view op whose geometry is `title`_geometry.
#define CNN_VIEW_OP(title, arguments, more, text)                                                  \
  static cnn_status infer_##title(cnn_infer *I) {                                                  \
    return cnn_geometry_infer(I, title##_geometry);                                                \
  }                                                                                                \
  static void backward_##title(cnn_grad *g) {                                                      \
    cnn_geometry_backward(g, title##_geometry);                                                    \
  }                                                                                                \
  const cnn_op cnn_op_##title = {.name = #title,                                                   \
                                 .args = arguments,                                                \
                                 .doc = text,                                                      \
                                 .flags = CNN_OP_VIEW | (more),                                    \
                                 .infer = infer_##title,                                           \
                                 .backward = backward_##title};

// Another name for an op: the same arguments, served by `target`.
#define CNN_ALIAS_OP(title, arguments, target)                                                     \
  static int choose_##title(const cnn_arg *args, int n) {                                          \
    (void)args, (void)n;                                                                           \
    return OP_##target;                                                                            \
  }                                                                                                \
  const cnn_op cnn_op_##title = {.name = #title,                                                   \
                                 .args = arguments,                                                \
                                 .doc = "Another name of " #target ".",                            \
                                 .flags = CNN_OP_COMPOSITE,                                        \
                                 .choose = choose_##title};

#endif
