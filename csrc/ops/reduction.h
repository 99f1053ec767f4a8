// SPDX-License-Identifier: MIT
// What the reductions of reduce.c, extreme.c and sort.c share.
#ifndef CNN_OPS_REDUCTION_H
#define CNN_OPS_REDUCTION_H

#include "ops/ops.h"

// Adds a result of x's shape with the dims of `dim` (all, when absent) removed or, with keepdim,
// made 1.
cnn_status cnn_infer_reduced(cnn_infer *I, cnn_dtype dtype, const cnn_arg *dim, bool keepdim);
// Fails when there is no element to choose from: a reduced dim of size 0.
cnn_status cnn_check_reduces(cnn_infer *I, const cnn_arg *dim);
// Fails with what to do when x is not of a float dtype.
cnn_status cnn_check_float(cnn_infer *I, cnn_dtype dtype);

// In backward of a reduction over the dims of `dim`: t, of a result's shape, in a shape that
// broadcasts to x's.
cnn_tensor *cnn_spread(cnn_grad *g, cnn_tensor *t, const cnn_arg *dim);
// How many elements of x made one of the result.
double cnn_reduced_count(cnn_grad *g, const cnn_arg *dim);
// The gradient of a choice among equal elements, shared evenly: dy / k at the k places where `x` is
// equal to `out`, both as x is or has been mapped.
cnn_tensor *cnn_share(cnn_grad *g, cnn_tensor *x, cnn_tensor *out, const cnn_arg *dim);

// Gives x the gradient dy of elements that were taken from dim d at `places`, which has dy's shape.
void cnn_give_picked(cnn_grad *g, cnn_tensor *dy, cnn_tensor *places, int64_t d);

#endif
