// SPDX-License-Identifier: MIT
// Modules: a tree of named entries (parameters, buffers, child modules) in the order in which they
// were registered, and a layer that computes.
//
// The tree has no cycles: a module owns its children by references, and a registration that would
// close a circle is refused. A tensor or a module may be registered in several places (weight
// tying): it is one object, and is listed, counted, moved and stepped once.
#ifndef CNN_NN_MODULE_H
#define CNN_NN_MODULE_H

#include "engine/op.h"
#include "engine/registry.h"

typedef struct cnn_module cnn_module;

typedef enum cnn_entry_kind {
  CNN_ENTRY_PARAMETER,
  CNN_ENTRY_BUFFER,
  CNN_ENTRY_CHILD
} cnn_entry_kind;

typedef struct cnn_entry {
  char *name;
  uint8_t kind;
  bool persistent;    // buffers: part of the state dict
  cnn_tensor *tensor; // NULL: registered as absent (a layer without bias)
  cnn_module *child;
} cnn_entry;

// A built-in layer, declared like an op (nn.def lists them). `args` is the constructor's spec;
// module->args holds what it was given, defaults filled in.
//
// A layer computes by one op: its first n_inputs arguments are forward's, and the others are found
// by their names among the module's parameters and buffers, then its constructor arguments;
// `training` is the module's mode. So Linear is "linear of x with the weight and bias registered
// here".
typedef struct cnn_layer {
  const char *name;
  int n_inputs; // tensors that forward takes; 0: a container
  const char *op;
  const char *args;
  const char *doc;
  // Makes parameters and buffers (may be NULL).
  cnn_status (*init)(cnn_context *ctx, cnn_module *m);
  // In place of the op alone (may be NULL).
  void (*forward)(cnn_frame *f, cnn_module *m, cnn_tensor *const *in, cnn_results *r);
} cnn_layer;

struct cnn_module {
  cnn_object object;
  const cnn_layer *layer; // NULL: a class of the host's
  bool training;
  bool foreign; // a class of the host's
  bool hooked;  // the host wants to see its calls
  int n_entries, capacity;
  cnn_entry *entries;
  int n_args;
  cnn_arg *args;
  // Where each argument of the layer's op comes from: an argument's number, or CNN_FROM_ENTRY + an
  // entry's, or one of the words below. Made on the first call after entries came or went.
  bool bound;
  int16_t sources[CNN_MAX_ARGS];
};

enum { CNN_FROM_NOTHING = -1, CNN_FROM_TRAINING = -2, CNN_FROM_ENTRY = 1000 };

// A module of a built-in layer, with its parameters made and initialised. `args` as read by the
// layer's spec (n_args may be less than the spec's).
cnn_status cnn_module_create(cnn_context *ctx, const cnn_layer *layer, const cnn_arg *args,
                             int n_args, cnn_module **out);
// An empty module of the host's.
cnn_status cnn_module_create_foreign(cnn_context *ctx, cnn_module **out);

// Built-in layers by number and by name.
int cnn_layer_count(void);
const cnn_layer *cnn_layer_at(int i);
const cnn_spec *cnn_layer_spec(const cnn_layer *layer);
int cnn_layer_find(const char *name); // -1: none
bool cnn_layer_is_sequence(const cnn_layer *layer);
// Parses the layers' specs; NULL or what is wrong. Called once, after the ops are installed.
const char *cnn_layers_install(void);

// ---------------------------------------------------------------------------------------------
// Entries

cnn_entry *cnn_module_find(const cnn_module *m, const char *name); // NULL: none
// The i-th child (from 0), or NULL.
cnn_module *cnn_module_child(const cnn_module *m, int i);
int cnn_module_child_count(const cnn_module *m);

// Registers under a name, or replaces what is there, which keeps its place. A NULL tensor or child
// registers the name as absent. `name` must not contain a dot. Registering a tensor as a parameter
// flags it as one (the tensor must be a float leaf).
cnn_status cnn_module_set_parameter(cnn_context *ctx, cnn_module *m, const char *name,
                                    cnn_tensor *t);
cnn_status cnn_module_set_buffer(cnn_context *ctx, cnn_module *m, const char *name, cnn_tensor *t,
                                 bool persistent);
cnn_status cnn_module_set_child(cnn_context *ctx, cnn_module *m, const char *name,
                                cnn_module *child);
// Appends a child named by its position, as containers do: "0", "1" ...
cnn_status cnn_module_append(cnn_context *ctx, cnn_module *m, cnn_module *child);
bool cnn_module_remove(cnn_module *m, const char *name);

// ---------------------------------------------------------------------------------------------
// The tree

// Calls visit for every module of the tree, parents first, children in order, each module once.
// `path` is "" for the root, else "0.conv". Stops at the first status that is not CNN_OK.
typedef cnn_status (*cnn_module_visit)(void *arg, cnn_module *m, const char *path);
cnn_status cnn_module_walk(cnn_context *ctx, cnn_module *m, cnn_module_visit visit, void *arg);

// Every parameter (or buffer) of the tree once, by its first name, in order. With `duplicates`,
// shared ones appear under each of their names.
typedef cnn_status (*cnn_tensor_visit)(void *arg, cnn_tensor *t, const char *path,
                                       const cnn_entry *entry);
cnn_status cnn_module_tensors(cnn_context *ctx, cnn_module *m, cnn_entry_kind kind, bool duplicates,
                              cnn_tensor_visit visit, void *arg);

cnn_status cnn_module_train(cnn_context *ctx, cnn_module *m, bool on);

// Moves and converts every parameter, buffer and gradient in place: tensors keep their identity, so
// that optimizers and ties stay right. All or nothing. `dtype` applies to floats only;
// CNN_DTYPE_COUNT and a NULL device leave it. `format`: 0 as it is, 1 contiguous, 2 channels_last
// (of 4-d tensors).
cnn_status cnn_module_to(cnn_context *ctx, cnn_module *m, cnn_dtype dtype, const cnn_device *device,
                         int format);

// ---------------------------------------------------------------------------------------------
// Forward

// One layer's forward (no container), in a frame.
void cnn_module_compute(cnn_frame *f, cnn_module *m, cnn_tensor *const *in, cnn_results *r);

// The op that computes the layer m on x together with the layer behind it, which sees nothing else;
// -1: there is none. m then computes by that one.
int cnn_module_fuses(cnn_context *ctx, const cnn_module *m, const cnn_module *next, cnn_tensor *x);
void cnn_module_compute_as(cnn_frame *f, cnn_module *m, int op, cnn_tensor *const *in,
                           cnn_results *r);

// Whether the whole tree computes in C.
bool cnn_module_is_native(const cnn_module *m);

// A forward pass through native modules, leaf by leaf: after CNN_OOM it can be run again and goes
// on at the leaf where it stood.
typedef struct cnn_forward cnn_forward;
cnn_status cnn_forward_create(cnn_context *ctx, cnn_module *m, cnn_tensor *const *in, int n_in,
                              cnn_forward **out);
cnn_status cnn_forward_run(cnn_forward *fw, cnn_results *r);
void cnn_forward_free(cnn_forward *fw);

// Creates, runs and frees. On success `r` holds the results.
cnn_status cnn_module_call(cnn_context *ctx, cnn_module *m, cnn_tensor *const *in, int n_in,
                           cnn_results *r);

#endif
