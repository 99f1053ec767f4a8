// SPDX-License-Identifier: MIT
// What an acceleration plugin (csrc/dnnl) offers the CPU kernels: ready-made plans for large matrix
// products, convolutions and poolings. The CPU engine is complete without it.
//
// A plan is made once per distinct description and cached by the plugin; it says how much scratch it
// needs, and running it allocates nothing that the caller could not see. Every function may refuse
// (NULL or false): the caller then computes by itself.
#ifndef CNN_CPU_ACCEL_H
#define CNN_CPU_ACCEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

#define CNN_ACCEL_ABI 1

// C[b] = A[b] B[b] (+ bias[n]), strides in elements. Batch strides may be 0. C is dense row-major
// within a matrix up to c_rs. beta is 0: C is only written.
typedef struct cnn_accel_gemm {
  cnn_dtype dtype; // of A, B and C: CNN_F32 or CNN_BF16
  bool bias;       // a float32 vector of n values is added to every row
  int64_t batch, m, n, k;
  int64_t a_bs, a_rs, a_cs, b_bs, b_rs, b_cs, c_bs, c_rs;
} cnn_accel_gemm;

// Two-dimensional convolution, x (N, C, H, W), w (K, C / groups, R, S), y (N, K, P, Q).
typedef enum cnn_accel_direction {
  CNN_ACCEL_FORWARD,         // args: x, w, bias or NULL, y
  CNN_ACCEL_BACKWARD_DATA,   // args: dy, w, dx
  CNN_ACCEL_BACKWARD_WEIGHT, // args: x, dy, dw, db or NULL
} cnn_accel_direction;

typedef struct cnn_accel_conv {
  cnn_accel_direction direction;
  cnn_dtype dtype;
  bool bias; // forward: add it; backward weight: compute its gradient too
  bool nhwc; // x, y, dx, dy lie channels-last; weights are always plain (K, C / groups, R, S)
  int64_t n, c, h, w, k, r, s, p, q, groups;
  int64_t stride[2], dilation[2];
  int64_t pad_before[2], pad_after[2];
} cnn_accel_conv;

typedef struct cnn_accel_plan cnn_accel_plan;

typedef struct cnn_accel {
  int abi;
  const char *name; // "oneDNN 2.6.3"
  // Plans for these shapes with `threads` threads; *scratch says the bytes that run() needs (aligned
  // to 64). A plan lives until the process ends. NULL: not taken.
  cnn_accel_plan *(*gemm)(const cnn_accel_gemm *desc, int threads, size_t *scratch);
  cnn_accel_plan *(*conv)(const cnn_accel_conv *desc, int threads, size_t *scratch);
  // Runs a plan on data pointers: gemm takes A, B, bias or NULL, C; convolutions as listed above.
  // Returns false on failure (nothing usable was written).
  bool (*run)(cnn_accel_plan *plan, void *const *args, void *scratch);
} cnn_accel;

// The one symbol of a plugin: fills the table and returns true when the plugin serves this ABI.
typedef bool (*cnn_accel_entry)(int abi, cnn_accel *table);
#define CNN_ACCEL_SYMBOL "cnn_accel_open"

#endif
