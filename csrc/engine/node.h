// SPDX-License-Identifier: MIT
// The tape: nodes that remember how a tensor was made.
//
// A node has one edge per input: to the node that made the input, or to the leaf itself. It saves
// only what the op's `saves` names, as detached handles, so that no cycle of references can arise;
// a saved tensor whose buffer changed since is an error when backward reads it.
//
// One allocation holds a node with its edges, saved slots, argument values and shapes.
#ifndef CNN_ENGINE_NODE_H
#define CNN_ENGINE_NODE_H

#include "engine/registry.h"

typedef struct cnn_edge {
  cnn_node *node;   // NULL for leaves
  cnn_tensor *leaf; // NULL for inner nodes; both NULL: no gradient wanted
  int slot;         // output of `node`
} cnn_edge;

typedef struct cnn_saved {
  cnn_tensor *t;
  unsigned version;  // of its buffer, as backward must find it
  int tie;           // of a host function's own: see cnn_kept
  bool packed;       // a copy that lies elsewhere (engine/pack.h)
  bool waiting;      // its contents come when the kernel has run: cnn_node_fill
  cnn_device device; // of a packed one: where it belongs
} cnn_saved;

// What a host function saves: `tie` says that it is the function's input -tie - 1 or its result
// tie - 1; 0: neither.
typedef struct cnn_kept {
  cnn_tensor *t; // NULL: a hole
  int tie;
} cnn_kept;

// A function of the host on a tensor's gradient. Kept in order of registration.
typedef struct cnn_hook {
  int64_t function; // the host's name for it; given back through ctx->release
  int64_t id;
  int slot; // output of the node (0 for leaves)
} cnn_hook;

// Takes a leaf's gradient in place of its .grad: called within backward once every contribution has
// come, with what .grad held added. After CNN_OK the gradient is dropped; after a failure the call
// may be made again.
typedef struct cnn_consumer {
  cnn_status (*take)(cnn_context *ctx, void *self, cnn_tensor *leaf, cnn_tensor *gradient);
  void *self;
} cnn_consumer;

typedef struct cnn_hooks {
  cnn_object object;
  cnn_context *owner;
  cnn_consumer consumer; // of a leaf; take == NULL: none
  int n, capacity;
  cnn_hook *list;
} cnn_hooks;

struct cnn_node {
  cnn_object object;
  cnn_context *owner;
  uint64_t sequence; // grows with every node: backward visits the latest first
  int op;            // -1: a function of the host
  bool released;     // its saved tensors are gone
  uint32_t size;     // bytes of the allocation
  int n_args, n_in, n_out, n_kept;
  cnn_edge *edges;  // n_in
  cnn_saved *saved; // n_in inputs, n_out results, n_kept of a host function's; empty: t == NULL
  cnn_form *forms;  // likewise
  cnn_arg *args;    // attributes; tensors are taken out
  cnn_rng rng;
  int64_t function;  // host functions: the host's name for it, given back through owner->release
  const char *title; // host functions: a name for messages
  bool transient;    // host functions: nobody else holds the gradients that it gives
  cnn_hooks *hooks;
  char *origin; // anomaly mode: where the forward ran; else NULL
};

// Whether an op on these inputs is worth recording: gradients are on and an input wants one.
bool cnn_wants_record(const cnn_context *ctx, cnn_tensor *const *in, int n_in);

// A node for a call of `op`: edges, forms, attributes, and the inputs that the op saves.
// `declared[i]` is the input number that the op's spec gives to in[i] (lists count once).
// `in_place`: input 0 is about to be overwritten, so where it must be saved a copy is.
cnn_status cnn_node_create(cnn_context *ctx, int op, const cnn_arg *args, int n_args,
                           cnn_tensor *const *in, const uint8_t *declared, int n_in,
                           cnn_tensor *const *out, int n_out, bool in_place, cnn_node **node);

// Whether a node for a call of the op on these inputs would save input i.
bool cnn_node_saves(const cnn_op_entry *e, cnn_tensor *const *in, const uint8_t *declared, int n_in,
                    int i);

// To be called once the kernel of a node just made has run: results that the node saves packed get
// their contents. Never fails for tensors of the CPU.
cnn_status cnn_node_fill(cnn_context *ctx, cnn_node *node, cnn_tensor *const *out, int n_out);

// A node that stands for a host function of these inputs, with these results' forms, and keeps
// tensors for it. Takes over `function` on success.
cnn_status cnn_node_create_host(cnn_context *ctx, int64_t function, const char *title,
                                cnn_tensor *const *in, int n_in, cnn_tensor *const *out, int n_out,
                                const cnn_kept *kept, int n_kept, cnn_node **node);

// Makes t the node's result number `slot`: t's history is the node from now on.
void cnn_node_attach(cnn_node *node, int slot, cnn_tensor *t);

// Gives back what backward would need, once it was used.
void cnn_node_release(cnn_node *node);

// "AddBackward0", "MyFunctionBackward": as PyTorch names it, into `text`; returns text.
const char *cnn_node_name(const cnn_node *node, char *text, size_t size);

// The saved input or result (index n_in + k) as a tensor that is part of the graph again: a new
// reference. Fails when it was changed since, was released, or never saved.
cnn_status cnn_node_unpack(cnn_context *ctx, cnn_node *node, int index, cnn_tensor **out);
// The same for number k of what a host function keeps; *out is NULL for a hole.
cnn_status cnn_node_unpack_kept(cnn_context *ctx, cnn_node *node, int k, cnn_tensor **out);

// Anomaly mode: fails when one of the gradients that the node gave its inputs (NULL: none) has a
// NaN.
cnn_status cnn_node_check_nan(cnn_context *ctx, const cnn_node *node, cnn_tensor *const *dx);

// Adds a host function that sees (and may replace) the gradient of t. Returns its id, for removal.
// Takes over `function` on success.
cnn_status cnn_hook_add(cnn_context *ctx, cnn_tensor *t, int64_t function, int64_t *id);
// Removes it; false when it is not there.
bool cnn_hook_remove(cnn_tensor *t, int64_t id);

// Sets (take == NULL: removes) the consumer of a leaf's gradients. `self` must live until it is
// removed. Removing, and setting again after that, never fails.
cnn_status cnn_consumer_set(cnn_context *ctx, cnn_tensor *leaf, cnn_consumer consumer);
// NULL: there is none.
const cnn_consumer *cnn_consumer_of(const cnn_tensor *leaf);

#endif
