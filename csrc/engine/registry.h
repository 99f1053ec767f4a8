// SPDX-License-Identifier: MIT
// The op table as the engine holds it: descriptors with their spec strings parsed, and the kernels
// of each backend. Filled once per process (csrc/cnn.c), read-only afterwards.
#ifndef CNN_ENGINE_REGISTRY_H
#define CNN_ENGINE_REGISTRY_H

#include "engine/op.h"

typedef struct cnn_param {
  char name[24];
  uint8_t type; // cnn_type
  bool optional;
  bool changed; // `!`
  bool has_default;
  bool variadic; // `*`: numbers may follow each other instead of coming in a list
  cnn_arg value; // of the default (ints point into `ints`)
  int64_t ints[4];
  const char *words; // enum: "none|mean|sum" within the spec (ends at `=`, space or the end)
} cnn_param;

// A spec string parsed: of ops, and of layers (nn/nn.def).
typedef struct cnn_spec {
  int n;
  cnn_param *params;
} cnn_spec;

// Parses a spec string; spec->params is kept until the process ends. On a mistake returns a message
// (static storage): a bug of ours, found at the first start.
const char *cnn_spec_parse(cnn_spec *spec, const char *text);
// The i-th word of an enum parameter, into `text`; false past the last one.
bool cnn_param_word(const cnn_param *p, int i, char *text, size_t size);
// The name of a type, as scripts know it: "tensor", "number", "list of integers".
const char *cnn_type_name(cnn_type type);

typedef struct cnn_op_entry {
  const cnn_op *op;
  cnn_spec spec;
  int n_results;                 // 1 for list ops
  uint8_t n_tensors;             // leading fixed inputs (lists apart)
  int8_t input_of[CNN_MAX_ARGS]; // the input that argument i is (or starts), -1
  uint8_t arg_of[CNN_MAX_ARGS];  // and back: the argument that declared input k is
  uint8_t role[CNN_MAX_ARGS];    // and that argument's cnn_type
  bool has_list;
  bool changes; // some argument is marked `!`
  // Saving: bit i of save_in[k] set: input k is saved when input i needs a gradient.
  uint32_t save_in[CNN_MAX_ARGS];
  uint32_t save_out[CNN_MAX_RESULTS];
} cnn_op_entry;

// A device's way to compute: one kernel per op id; NULL where the op has none here.
typedef struct cnn_backend {
  const char *name;
  const cnn_kernel *const *kernels;
  // What stands around the kernels of a device (its context, errors, counts). NULL for the CPU.
  cnn_status (*plan)(cnn_call *call);
  cnn_status (*run)(cnn_call *call);
  // Bytes between memories, one of which is the device's own; NULL for the CPU. The bytes are there
  // when it returns, unless it is not to block: then, on the device's current stream.
  cnn_status (*copy)(cnn_context *ctx, void *to, cnn_device to_device, const void *from,
                     cnn_device from_device, size_t bytes, bool non_blocking);
} cnn_backend;

// The few ops that the engine itself uses, by id.
typedef struct cnn_engine_ops {
  int cast, sum_to, add, clone, copy_, full, view_gather, view_scatter, has_nan, to_device;
  const char *const *names; // of all ops, by id, as ops.def writes them: no two are alike
} cnn_engine_ops;

// Installs the op table; returns NULL or what is wrong with a descriptor. Called once.
const char *cnn_registry_install(const cnn_op *const *ops, int count,
                                 const cnn_engine_ops *engine_ops);
void cnn_backend_install(cnn_device_type type, const cnn_backend *backend);

int cnn_op_count(void);
const cnn_op_entry *cnn_op_at(int id);
int cnn_op_find(const char *name); // -1 when there is none
const cnn_engine_ops *cnn_ops_of_engine(void);
const cnn_backend *cnn_backend_of(cnn_device_type type);

#endif
