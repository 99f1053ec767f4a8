// SPDX-License-Identifier: MIT
// What an op is, and what its functions see. This header is all that csrc/ops and the backends'
// kernels share.
//
// An op is one const cnn_op: a name, an argument spec, a doc text, and up to four functions:
//   infer      from the arguments' shapes, dtypes and attributes to the results' (no data touched)
//   kernel     found by the op's name in the backend's table (not listed here)
//   backward   from the results' gradients to the arguments', written in ops
//   composite  the whole op, written in other ops
// See docs/adding-an-op.md.
#ifndef CNN_ENGINE_OP_H
#define CNN_ENGINE_OP_H

#include "base/context.h"
#include "engine/call.h"
#include "tensor/tensor.h"

// ---------------------------------------------------------------------------------------------
// Arguments

// The types that a spec string can name. Scalar positions are 0-based in C; the binding shifts
// them.
//   tensor    a tensor that takes part in promotion and has a gradient
//   operand   a tensor or a number (becomes a 0-d operand of the common dtype)
//   index     an integer tensor of 1-based positions; no promotion, no gradient
//   mask      a bool tensor; no promotion, no gradient
//   other     a tensor outside of promotion that may have a gradient
//   tensors   a list of tensors (promotion, gradients)
//   indices   a list of index or mask tensors, with holes
//   number int bool string dtype device
//   value     a number or a boolean (CNN_INT with n = 1)
//   ints      a list of integers; a single integer counts as a list of one
//   pair      two integers; a single integer stands for both
//   padding   a list of integers, or "same" or "valid" (as CNN_INT: CNN_PAD_SAME, CNN_PAD_VALID)
//   dim       a dim, negative from the end; dims: a list of them
//   dim_or_tensor  a dim or a tensor, for ops that only choose another op by it
//   axes      a number of dims (CNN_INT), or two lists of as many dims, one after the other
//   pos       a position in a dim, negative from the end
//   label     a class label or token id, never negative
//   shape     a list of sizes
//   a|b|c     one of these words; the value is its index
// After the type: `?` may be left out, `!` is changed in place, `*` a list whose numbers
// (tensors) may also be written as arguments of their own, `=value` a default. Example: "x:tensor
// weight:tensor? eps:number=1e-5 reduction:none|mean|sum=mean".
typedef enum cnn_type {
  CNN_T_TENSOR,
  CNN_T_OPERAND,
  CNN_T_INDEX,
  CNN_T_MASK,
  CNN_T_OTHER,
  CNN_T_TENSORS,
  CNN_T_INDICES,
  CNN_T_NUMBER,
  CNN_T_VALUE,
  CNN_T_INT,
  CNN_T_BOOL,
  CNN_T_STRING,
  CNN_T_DTYPE,
  CNN_T_DEVICE,
  CNN_T_INTS,
  CNN_T_PAIR,
  CNN_T_PADDING,
  CNN_T_DIM,
  CNN_T_DIMS,
  CNN_T_DIM_OR_TENSOR,
  CNN_T_AXES,
  CNN_T_POS,
  CNN_T_LABEL,
  CNN_T_SHAPE,
  CNN_T_ENUM,
  CNN_T_COUNT
} cnn_type;

enum { CNN_PAD_SAME = -1, CNN_PAD_VALID = -2 };

// ---------------------------------------------------------------------------------------------
// infer

// What infer sees and fills. Tensor arguments are numbered as *inputs*: each tensor, operand,
// index, mask and other is one input (NULL when absent or a number), each list as many as it has
// entries.
typedef struct cnn_infer {
  cnn_context *ctx;
  const cnn_op *op;
  const cnn_arg *args;
  int n_args;
  cnn_tensor *const *in;
  int n_in;
  cnn_dtype dtype;   // the common dtype by the op's promotion rule (of input 0 without one)
  cnn_device device; // where the inputs are
  // To fill. Row-major strides are set by cnn_infer_out.
  int n_out;
  cnn_meta out[CNN_MAX_RESULTS];
  int64_t offset; // view ops: of the view's first element, as an absolute buffer offset
  uint64_t draws; // random ops: how many counters are used
  int64_t work;   // optional: multiply-adds, for summary and for threads
} cnn_infer;

// Adds a result of that dtype and shape, row-major, on the inputs' device; returns its meta.
cnn_meta *cnn_infer_out(cnn_infer *I, cnn_dtype dtype, int ndim, const int64_t *shape);
// Gives a meta of 4 dims channels-last strides; an error for another number of dims.
cnn_status cnn_infer_channels_last(cnn_context *ctx, cnn_meta *out);
// Fails unless the common dtype is a float: for gradients, whose kernels have loops for no other.
cnn_status cnn_infer_need_float(const cnn_infer *I);
// Adds a result like an elementwise one: all inputs of promotion broadcast; the stride order of the
// first input that has the full shape. Fails when the shapes don't fit, naming both.
cnn_status cnn_infer_broadcast(cnn_infer *I, cnn_dtype dtype);

// ---------------------------------------------------------------------------------------------
// Frames: C code written in ops

// A frame owns what its ops make and remembers the first failure: once something failed, every
// further cnn_do returns NULL and does nothing. So code in a frame reads like a formula, and only
// its end checks. A NULL tensor argument counts as absent, unless the frame has failed.
typedef struct cnn_frame {
  cnn_context *ctx;
  cnn_status status;
  int n, capacity;
  cnn_tensor **owned;
  cnn_tensor *inline_owned[16];
  // An argument of the next op (and of that one only) that whoever opened the frame does not need
  // after it. An elementwise op writes its result over it, if nobody else holds its bytes.
  cnn_tensor *spent;
} cnn_frame;

void cnn_frame_open(cnn_frame *f, cnn_context *ctx);
// Releases everything; returns the status.
cnn_status cnn_frame_close(cnn_frame *f);
// Hands a reference over to the frame; returns t.
cnn_tensor *cnn_frame_own(cnn_frame *f, cnn_tensor *t);

// Runs an op; its first result, owned by the frame (or NULL). cnn_frame_results fills `results`
// with all of them.
cnn_tensor *cnn_frame_do(cnn_frame *f, int op, const cnn_arg *args, int n_args);
cnn_tensor *cnn_frame_in_place(cnn_frame *f, int op, const cnn_arg *args, int n_args);
int cnn_frame_results(cnn_frame *f, int op, const cnn_arg *args, int n_args, cnn_tensor **results,
                      int capacity);

#define CNN_ARGS(...)                                                                              \
  (const cnn_arg[]){__VA_ARGS__}, (int)(sizeof((const cnn_arg[]){__VA_ARGS__}) / sizeof(cnn_arg))
// cnn_do(f, add, T(x), T(y)): the id OP_add comes from ops/ops.h.
#define cnn_do(f, name, ...)  cnn_frame_do(f, OP_##name, CNN_ARGS(__VA_ARGS__))
#define cnn_do_(f, name, ...) cnn_frame_in_place(f, OP_##name, CNN_ARGS(__VA_ARGS__))

// The value of a one-element tensor, read to the host (waits for the device). Fails on meta.
double cnn_frame_read(cnn_frame *f, cnn_tensor *t);

// ---------------------------------------------------------------------------------------------
// backward

typedef struct cnn_node cnn_node;

// The form of a tensor that need not exist any more.
typedef struct cnn_form {
  uint8_t dtype; // cnn_dtype
  int8_t ndim;   // -1: the input was absent
  cnn_device device;
  const int64_t *shape;
} cnn_form;

// What backward sees. Everything in frame->... is released afterwards.
typedef struct cnn_grad {
  cnn_frame *f;
  cnn_node *node;
  const cnn_arg *args;   // attributes; tensors: use cnn_in
  cnn_tensor *const *dy; // gradient of each result, NULL where none came
  cnn_tensor **dx;       // to fill through cnn_give: gradient of each input
  cnn_rng rng;           // random ops: what the forward drew from
  bool through;          // dy[0] has passed the op's own last step: cnn_give_through
} cnn_grad;

// Input or result i as the op saw it. NULL (and a failed frame) when it was changed since, or was
// not saved.
cnn_tensor *cnn_in(cnn_grad *g, int i);
cnn_tensor *cnn_out(cnn_grad *g, int i);
// Shape, dtype and device of input or result i, whether it was saved or not.
const cnn_form *cnn_in_form(const cnn_grad *g, int i);
const cnn_form *cnn_out_form(const cnn_grad *g, int i);
bool cnn_needs(const cnn_grad *g, int i); // whether input i wants a gradient
int cnn_n_in(const cnn_grad *g);
int cnn_op_params(const cnn_grad *g); // arguments of the op, tensors included
// The gradient of result i, zeros where none came.
cnn_tensor *cnn_dy(cnn_grad *g, int i);
// Result k of the op that made input i as its result 0, if that is `op`, and if no other gradient
// comes to it and nobody sees this one; else NULL. Its backward is then the next to read what is
// given, and may be spared a step.
cnn_tensor *cnn_source_result(cnn_grad *g, int i, int op, int k);
// Gives input i, of which cnn_source_result told, a gradient that has passed the last step of the
// op that made it: that one's backward finds `through` set.
void cnn_give_through(cnn_grad *g, int i, cnn_tensor *t);
// Sets the gradient of input i: t is summed to the input's shape where the op broadcast it, and
// cast to its dtype. NULL: no gradient. Ignored when the input needs none.
void cnn_give(cnn_grad *g, int i, cnn_tensor *t);

// ---------------------------------------------------------------------------------------------
// Ops

enum {
  CNN_OP_IN_PLACE = 1,     // elementwise: also has the form x:name_()
  CNN_OP_VIEW = 2,         // the result shares input 0's buffer; no kernel
  CNN_OP_COMPOSITE = 4,    // only written in ops; no kernel
  CNN_OP_RANDOM = 8,       // draws from the context's generator
  CNN_OP_SELF = 16,        // changes argument 0 in place and returns it (name ends with _)
  CNN_OP_INTERNAL = 32,    // not offered to scripts
  CNN_OP_NO_GRAD = 64,     // the result never has a gradient, by nature
  CNN_OP_LIST = 128,       // the number of results varies: scripts get a list
  CNN_OP_FUNCTION = 256,   // offered as a function only, not as a method
  CNN_OP_ANY_DEVICE = 512, // its inputs may be on different devices (copies)
  CNN_OP_MOVES = 1024 // reads elements after it wrote others: in place, nothing may share bytes
};

typedef enum cnn_promotion {
  CNN_PROMOTE_NONE,
  CNN_PROMOTE_COMMON, // PyTorch's result type of all tensor, operand and tensors arguments
  CNN_PROMOTE_FLOAT,  // the same, integers become the default float dtype
  CNN_PROMOTE_SAME,   // no promotion: different dtypes are an error that names both
} cnn_promotion;

// Where composites and list ops put results: each gets one more reference.
typedef struct cnn_results {
  cnn_context *ctx;
  int n, capacity;
  cnn_tensor **t;
  cnn_tensor *inline_t[CNN_MAX_RESULTS];
} cnn_results;

struct cnn_op {
  const char *name;
  const char *args;
  const char *doc;     // first line: what it computes. Then shapes, errors, formula
  const char *results; // names, "values indices"; NULL: one result "out"
  const char *saves;   // what backward reads: "x w out", or "x if w, w if x"
  uint32_t flags;
  cnn_promotion promote;
  cnn_status (*infer)(cnn_infer *I);
  void (*backward)(cnn_grad *g);
  void (*composite)(cnn_frame *f, const cnn_arg *args, cnn_results *r);
  // The op that serves a call with these arguments (whose spec begins like this one's); -1: this
  // op.
  int (*choose)(const cnn_arg *args, int n_args);
};

void cnn_results_add(cnn_frame *f, cnn_results *r, cnn_tensor *t);

#endif
