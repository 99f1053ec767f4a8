// SPDX-License-Identifier: MIT
// The driver of all reductions: any dims, any strides, any dtype, threads.
#ifndef CNN_CPU_REDUCTION_H
#define CNN_CPU_REDUCTION_H

#include "cpu/fold.h"
#include "engine/op.h"

// What a reduction's kernel holds as its data.
typedef struct cnn_reduction cnn_reduction;
struct cnn_reduction {
  // By the type computed in, or chosen for a call, with the number that the fold takes.
  const cnn_fold *folds;
  const cnn_fold *(*choose)(const cnn_call *call, double *p);
  // Word 0 of n states becomes the result, of `positions` elements each. NULL: it is that already.
  void (*finish)(const cnn_call *call, int64_t n, cnn_word *s, int64_t stride, int64_t positions);
  // Bit d set: dim d of input 0 is reduced. NULL: the dims of argument 1.
  uint32_t (*mask)(const cnn_call *call);
  bool counts;                  // word 0 of the result is .i, whatever the type
  bool places;                  // word 1 is a position: the last result (of two, or the only one)
  bool by_result;               // computes in the result's type, not in the input's
  bool multiplies;              // bytes leave the range that float has exactly
  const cnn_reduction *as_bool; // stands in where the result is bool, or NULL
};

cnn_status cnn_reduce_plan(cnn_call *call);
cnn_status cnn_reduce_run(cnn_call *call);

#define CNN_REDUCTION_KERNEL(title, ...)                                                           \
  static const cnn_reduction reduction_##title = {__VA_ARGS__};                                    \
  const cnn_kernel cpu_##title = {cnn_reduce_plan, cnn_reduce_run, &reduction_##title};

#endif
