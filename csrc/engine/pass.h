// SPDX-License-Identifier: MIT
// Who takes part in a backward pass: every node and leaf has an entry, found by its address, that
// says how many gradients are still to come, and what came so far.
#ifndef CNN_ENGINE_PASS_H
#define CNN_ENGINE_PASS_H

#include "engine/node.h"

typedef struct cnn_pass_entry {
  cnn_object *key; // cnn_node or, for leaves, cnn_tensor (referenced)
  bool leaf;
  bool wanted;  // on a path to something that gets a gradient
  bool passes;  // and not its end: something behind it gets one too
  bool summed;  // a leaf's: what its .grad held is in it
  bool through; // its gradient has passed its op's last step (cnn_give_through)
  int pending;  // gradients still to come
  int edge;     // while discovering: the next edge to look at
  int capture;  // 1 + the first of the inputs that this is, chained
  int n_grads;
  cnn_tensor **grads; // one per output
  cnn_tensor *one;    // storage for the common case
} cnn_pass_entry;

// Entries in order of discovery, and an open-addressing table of 1 + their numbers.
typedef struct cnn_pass {
  int n, capacity, table_size;
  cnn_pass_entry *entries;
  int *table;
} cnn_pass;

// The number of the entry of a node or leaf; -1: it has none.
int cnn_pass_find(const cnn_pass *p, const void *key);
// The same, made if it is not there; of a node or leaf with n outputs. Entries may move.
cnn_status cnn_pass_obtain(cnn_context *ctx, cnn_pass *p, cnn_object *key, bool leaf, int n,
                           int *at);
void cnn_pass_free(cnn_pass *p);

static inline cnn_tensor **cnn_pass_grad(cnn_pass_entry *x, int slot) {
  return x->grads ? &x->grads[slot] : &x->one;
}

#endif
