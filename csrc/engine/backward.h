// SPDX-License-Identifier: MIT
// The backward pass: an iterative engine over the tape.
//
// It is a state machine that the caller steps. When a node or a hook is a function of the host, run
// returns CNN_CALL and the host calls it, with no frame of the core on the C stack, and answers.
// After CNN_OOM the same step may be tried again once memory was freed. Gradients of leaves are
// added to their .grad at the very end: a backward that fails leaves every .grad as it was. A leaf
// with a consumer (engine/node.h) is the exception: its gradient is consumed as soon as it is
// whole.
#ifndef CNN_ENGINE_BACKWARD_H
#define CNN_ENGINE_BACKWARD_H

#include "engine/node.h"

typedef struct cnn_engine cnn_engine;

enum {
  CNN_BACKWARD_RETAIN = 1, // keep the graph for another backward
  CNN_BACKWARD_CREATE = 2, // record the gradients' own graph (implies RETAIN)
  CNN_BACKWARD_STOP = 4,   // go no further than the inputs: what made them is another pass's
};

// A call that the host must make.
typedef struct cnn_engine_call {
  int64_t function;
  bool hook;         // a hook: one gradient in, at most one out
  bool create_graph; // gradients are on during the call
  cnn_node *node;    // of a function; NULL for a leaf's hook
  int n_in, n_out;   // gradients given, and results expected (one per input of the node)
  cnn_tensor **in;   // borrowed; NULL where no gradient came
} cnn_engine_call;

// A pass from `roots`, with their gradients (NULL entries: 1, for tensors of one element). With
// n_inputs > 0 the gradients of `inputs` are collected instead of added to leaves' .grad.
cnn_status cnn_engine_create(cnn_context *ctx, cnn_tensor *const *roots, cnn_tensor *const *grads,
                             int n_roots, cnn_tensor *const *inputs, int n_inputs, unsigned flags,
                             cnn_engine **out);
// CNN_OK: done, and leaves have their gradients. CNN_CALL: see cnn_engine_pending. CNN_OOM: may be
// run again. Anything else: failed, nothing was changed.
cnn_status cnn_engine_run(cnn_engine *e);
const cnn_engine_call *cnn_engine_pending(const cnn_engine *e);
// Gives the results of the pending call (borrowed; NULL: none).
cnn_status cnn_engine_answer(cnn_engine *e, cnn_tensor *const *results, int n);
// The collected gradient of input i (borrowed; NULL: the roots don't depend on it).
cnn_tensor *cnn_engine_gradient(const cnn_engine *e, int i);
void cnn_engine_free(cnn_engine *e);

// For hosts without functions on the tape: creates, runs and frees.
cnn_status cnn_backward(cnn_context *ctx, cnn_tensor *root, cnn_tensor *grad, unsigned flags);

#endif
