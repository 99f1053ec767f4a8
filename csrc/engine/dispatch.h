// SPDX-License-Identifier: MIT
// The one way by which tensors are made and changed: check, infer, promote, allocate, kernel,
// record.
#ifndef CNN_ENGINE_DISPATCH_H
#define CNN_ENGINE_DISPATCH_H

#include "engine/op.h"

void cnn_results_init(cnn_results *r, cnn_context *ctx);
void cnn_results_free(cnn_results *r);

// Runs an op. Arguments past n_args, and absent ones, take their defaults. On success `r` holds the
// results (one reference each); on failure it holds none, and nothing else has changed either.
cnn_status cnn_dispatch(cnn_context *ctx, int op, const cnn_arg *args, int n_args, cnn_results *r);

// The same, but `spent`, one of the arguments (or NULL), is not needed any more: the result of an
// elementwise op takes its bytes, if the caller holds the only reference on it and nothing else
// (a view, a saved tensor) its buffer. Its elements are undefined after a success.
cnn_status cnn_dispatch_over(cnn_context *ctx, int op, const cnn_arg *args, int n_args,
                             cnn_tensor *spent, cnn_results *r);

// The form x:op_(): the result goes into argument 0, which is also the result.
cnn_status cnn_dispatch_in_place(cnn_context *ctx, int op, const cnn_arg *args, int n_args,
                                 cnn_results *r);

// Reads one element to the host as a double (int64 as an integer). Fails on meta.
cnn_status cnn_read_element(cnn_context *ctx, const cnn_tensor *t, double *value);
cnn_status cnn_read_element_int(cnn_context *ctx, const cnn_tensor *t, int64_t *value);

#endif
