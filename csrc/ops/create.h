// SPDX-License-Identifier: MIT
// What creation functions share (create.c, random.c).
#ifndef CNN_OPS_CREATE_H
#define CNN_OPS_CREATE_H

#include "ops/ops.h"

// The last arguments of every creation function. The binding marks the result for requires_grad.
#define CNN_CREATE_ARGS "dtype:dtype? device:device? requires_grad:bool=false"

cnn_dtype cnn_dtype_arg(const cnn_infer *I, int i, cnn_dtype otherwise);

// Adds a result of that shape; `dtype` is the number of the first of CNN_CREATE_ARGS.
cnn_status cnn_infer_create(cnn_infer *I, const cnn_arg *shape, int dtype, cnn_dtype otherwise);
// Adds a result like input 0, in stride order too.
cnn_status cnn_infer_like(cnn_infer *I, int dtype);

#endif
