// SPDX-License-Identifier: MIT
// A program: the ready oneDNN objects that compute one description, built once and run often.
//
// It is a short list of primitives (reorder in, compute, reorder out) over memories. A memory is
// either an argument of the caller or a piece of the caller's scratch; its pointer is set at every
// run, so a program runs in one thread at a time. Nothing is allocated while it runs, but for what
// oneDNN takes and gives back inside: a small map of arguments, and the packing buffers of its own
// GEMM (sgemm and impl "gemm:jit"; 20 MB were the most measured).
//
// Building and running must see the same number of OpenMP threads (plugin.c cares for it).
#ifndef CNN_DNNL_PROGRAM_H
#define CNN_DNNL_PROGRAM_H

#include "cpu/accel.h"
#include "dnnl/compat.h"

typedef enum dn_status {
  DN_OK,
  DN_REFUSED, // never possible: remember it
  DN_FAILED,  // not now (out of memory)
} dn_status;

enum { DN_MAX_ARGS = 4, DN_MAX_MEMORIES = 10, DN_MAX_STEPS = 6, DN_MAX_STEP_ARGS = 5 };

typedef struct dn_memory {
  dnnl_memory_t memory;
  int arg;       // index of the caller's argument, or -1: a piece of scratch
  size_t offset; // into scratch
} dn_memory;

typedef struct dn_step {
  dnnl_primitive_t primitive;
  int nargs;
  dnnl_exec_arg_t args[DN_MAX_STEP_ARGS];
} dn_step;

// The other way: one dnnl_sgemm, C = A B (+ bias), row-major.
typedef struct dn_sgemm {
  bool on, bias;
  char ta, tb;
  dnnl_dim_t m, n, k, lda, ldb, ldc;
} dn_sgemm;

typedef struct dn_program {
  struct dn_program *next; // for its owner
  size_t scratch;          // bytes, a multiple of 64
  dnnl_stream_t stream;
  int nmemories, nsteps;
  dn_memory memories[DN_MAX_MEMORIES];
  dn_step steps[DN_MAX_STEPS];
  dn_sgemm sgemm;
  char text[96]; // what describe() says
} dn_program;

// A new empty program, or NULL. dn_program_free takes NULL too.
dn_program *dn_program_new(dnnl_engine_t engine);
void dn_program_free(dn_program *g);

bool dn_program_run(dn_program *g, void *const *args, void *scratch);

// The calls that builders make. A memory of layout md over argument `arg`, or over fresh scratch
// when arg is -1. They return dnnl_success or what went wrong.
dnnl_status_t dn_add_memory(dn_program *g, dnnl_engine_t engine, dn_cmd md, int arg,
                            dnnl_memory_t *out);
// A step that runs pd over args; adds a scratchpad when pd asks for one.
dnnl_status_t dn_add_step(dn_program *g, dnnl_engine_t engine, const_dnnl_primitive_desc_t pd,
                          int nargs, const dnnl_exec_arg_t *args);
dnnl_status_t dn_add_reorder(dn_program *g, dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                             dn_cmd from_md, dnnl_memory_t from, dn_cmd to_md, dnnl_memory_t to);
// Appends to the text of describe().
void dn_say(dn_program *g, const char *text);

// oneDNN's name of a dtype, or dnnl_data_type_undef: the plugin does not take it.
dnnl_data_type_t dn_dtype(cnn_dtype t);
// A reference implementation: correct, and hundreds of times slower than anything written by hand.
bool dn_is_reference(const_dnnl_primitive_desc_t pd);
// Sorts a oneDNN status into ours.
dn_status dn_sort(dnnl_status_t s);

// The builders: *out is a new program when they return DN_OK. Descriptions are normal (plugin.c).
dn_status dn_build_gemm(dnnl_engine_t engine, const cnn_accel_gemm *d, dn_program **out);
dn_status dn_build_conv(dnnl_engine_t engine, const cnn_accel_conv *d, dn_program **out);

#endif
