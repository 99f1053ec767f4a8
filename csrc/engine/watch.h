// SPDX-License-Identifier: MIT
// A list of the tensors from outside that some code uses and that want a gradient: parameters,
// inputs, whatever a closure holds. A checkpoint's first pass runs with gradients off; what its ops
// meet then are exactly the inputs of its node on the tape.
#ifndef CNN_ENGINE_WATCH_H
#define CNN_ENGINE_WATCH_H

#include "engine/node.h"

typedef struct cnn_watch {
  uint64_t since; // tensors that nodes after this one made are not from outside
  int n, capacity;
  cnn_tensor **list; // referenced; no two are the same output of one node, or the same leaf
} cnn_watch;

void cnn_watch_init(cnn_watch *w, const cnn_context *ctx);
void cnn_watch_free(cnn_watch *w);
// Adds those of `in` that want a gradient and are not in the list. NULL entries are skipped.
cnn_status cnn_watch_note(cnn_context *ctx, cnn_watch *w, cnn_tensor *const *in, int n_in);
// Where in the list the tensor is, or -1.
int cnn_watch_find(const cnn_watch *w, const cnn_tensor *t);

#endif
