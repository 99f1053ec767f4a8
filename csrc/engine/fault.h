// SPDX-License-Identifier: MIT
// What only elements show: indices, labels and numbers that an op does not take. One text for all
// devices: kernels of the CPU raise it where they find it, those of a GPU leave a description that
// the host raises later. C and C++.
#ifndef CNN_ENGINE_FAULT_H
#define CNN_ENGINE_FAULT_H

#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cnn_fault_kind {
  CNN_FAULT_INDEX,       // `value` is not within 1..bound, in dim `at`
  CNN_FAULT_LABEL,       // `value` is not within 1..bound
  CNN_FAULT_INPUT,       // `number` is not in [0, 1]: the input's
  CNN_FAULT_TARGET,      // the target's
  CNN_FAULT_PROBABILITY, // x's
  CNN_FAULT_WEIGHT,      // `number` is not finite and >= 0: element `at` of `row`
  CNN_FAULT_SUM,         // of `row` is `number`
  CNN_FAULT_FEW,         // `value` samples without replacement of `bound` in `row`
  CNN_FAULT_REPEATS      // `value` is less than 0, or too many: element `at`
} cnn_fault_kind;

typedef struct cnn_fault {
  int kind;
  int64_t value, bound;
  int64_t row, at; // from 0
  double number;
} cnn_fault;

// The error, for which it is called.
cnn_status cnn_fault_raise(cnn_context *ctx, const cnn_fault *f);

#ifdef __cplusplus
}
#endif

#endif
