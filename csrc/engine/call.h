// SPDX-License-Identifier: MIT
// What a kernel sees of a call: arguments, views, scratch. Nothing here needs the tensor or the
// tape, and all of it is C++ too, so that kernels for other devices share it.
#ifndef CNN_ENGINE_CALL_H
#define CNN_ENGINE_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/device.h"
#include "base/dtype.h"
#include "base/philox.h"
#include "base/shape.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CNN_MAX_ARGS    24
#define CNN_MAX_RESULTS 4

typedef struct cnn_op cnn_op;
typedef struct cnn_tensor cnn_tensor;

// How a value is given.
typedef enum cnn_arg_kind {
  CNN_ABSENT,  // nil: the default, or none
  CNN_TENSOR,  // t
  CNN_TENSORS, // ts[n], entries may be NULL for `indices`
  CNN_NUMBER,  // d
  CNN_INT,     // i; also bool (0, 1), enum, dtype, device code, dim, pos, label
  CNN_INTS,    // ints[n]
  CNN_STRING,  // s
} cnn_arg_kind;

typedef struct cnn_arg {
  uint8_t kind;
  int32_t n;
  union {
    cnn_tensor *t;
    cnn_tensor *const *ts;
    double d;
    int64_t i;
    const int64_t *ints;
    const char *s;
  };
} cnn_arg;

// Ways to write arguments in C: cnn_do(f, sum, T(x), INTS(1, &dim), B(true)).
#define CNN_A_NONE       ((cnn_arg){.kind = CNN_ABSENT})
#define CNN_A_T(x)       ((cnn_arg){.kind = (x) ? CNN_TENSOR : CNN_ABSENT, .t = (x)})
#define CNN_A_N(x)       ((cnn_arg){.kind = CNN_NUMBER, .d = (x)})
#define CNN_A_I(x)       ((cnn_arg){.kind = CNN_INT, .i = (x)})
#define CNN_A_INTS(c, v) ((cnn_arg){.kind = CNN_INTS, .n = (c), .ints = (v)})
#define CNN_A_TS(c, v)   ((cnn_arg){.kind = CNN_TENSORS, .n = (c), .ts = (v)})
#define CNN_A_DEVICE(x)  CNN_A_I(cnn_device_code(x))

// ---------------------------------------------------------------------------------------------
// Kernels

// What a kernel sees of a tensor. A single number that lies in the CPU's memory whatever the device
// (a number operand, a 0-d CPU tensor among others) has ndim 0 and no shape.
typedef struct cnn_view {
  void *data; // of the first element; NULL when absent (or empty)
  const int64_t *shape;
  const int64_t *strides; // in elements
  int ndim;
  cnn_dtype dtype;
} cnn_view;

typedef struct cnn_kernel cnn_kernel;

typedef struct cnn_call {
  cnn_context *ctx; // for messages only
  const cnn_op *op;
  int id;            // of the op
  cnn_device device; // where views and scratch are
  const cnn_kernel *kernel;
  const cnn_arg *args; // defaults filled in; tensors and operands: use in[]
  int n_args, n_in, n_out;
  const cnn_view *in; // inputs, promoted to the common dtype; absent: data NULL and ndim -1
  cnn_view *out;      // results; ops that change arguments in place find them in in[]
  void *scratch;      // as many bytes as plan asked for, aligned to 64
  size_t scratch_bytes;
  bool planning; // plan is under way: elements may not be there, and are not to be read
  int squeeze;   // above 0: the scratch could not be had, and plan is asked for a way with less
  cnn_rng rng;   // random ops: element i draws from counter rng.offset + i
  int64_t way;   // plan's choice, for run
  void *handle;  // plan's, for run
  void *stream;  // of the device, on which kernels are to be launched
} cnn_call;

// A kernel: `plan` (may be NULL) sets scratch_bytes, way and handle, by forms and addresses alone:
// predictions call it where there are no elements. `run` computes. Neither allocates. run may fail
// only before it changes anything that others can see, with a message by cnn_fail(call->ctx, ...).
struct cnn_kernel {
  cnn_status (*plan)(cnn_call *call);
  cnn_status (*run)(cnn_call *call);
  const void *data; // the kernel's own constants (an elementwise row)
};

static inline int64_t cnn_view_numel(const cnn_view *v) {
  int64_t n = 1;
  for (int i = 0; i < v->ndim; i++) n *= v->shape[i];
  return n;
}
static inline bool cnn_view_present(const cnn_view *v) {
  return v->ndim >= 0;
}
// Whether it is a number in the CPU's memory (on devices other than the CPU).
static inline bool cnn_view_is_number(const cnn_view *v) {
  return v->ndim == 0 && v->shape == NULL;
}

// ---------------------------------------------------------------------------------------------
// Reading arguments

// Argument helpers for infer, composite and kernels; i counts arguments, not inputs.
static inline bool cnn_has(const cnn_arg *args, int i) {
  return args[i].kind != CNN_ABSENT;
}

// The value of a `number`, which is an integer when the script wrote one.
static inline double cnn_arg_number(const cnn_arg *a) {
  return a->kind == CNN_NUMBER ? a->d : (double)a->i;
}

// x indexed by tensors in the dims of `mask`: before which of x's other dims the dims of the index
// tensors stand in the result. Where they stood, when the dims are neighbours; else first.
static inline int cnn_index_place(uint32_t mask) {
  int first = 0;
  while (first < CNN_MAX_DIMS && !(mask >> first & 1)) first++;
  mask >>= first;
  return (mask & (mask + 1)) == 0 ? first : 0;
}

// A dim argument (negative from the end) within ndim dims. Fails naming the dim as scripts count
// it.
cnn_status cnn_check_dim(cnn_context *ctx, const char *name, int64_t dim, int ndim, int *out);
// A list of dims as a bit mask; an absent or empty list means all. Duplicates are an error.
cnn_status cnn_check_dims(cnn_context *ctx, const char *name, const cnn_arg *arg, int ndim,
                          uint32_t *mask);

// The number arguments of an elementwise op (at most 4), in order, as elements of `dtype` one after
// the other. Those of functions of one tensor are bounds or values: outside of an integer type they
// become its ends (clamp's infinities above all); factors wrap as products do.
void cnn_number_params(const cnn_call *call, cnn_dtype dtype, double params[4]);

#ifdef __cplusplus
}
#endif

#endif
