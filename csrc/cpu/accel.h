// SPDX-License-Identifier: MIT
// What an acceleration plugin (csrc/dnnl) offers the CPU kernels: ready-made plans for large matrix
// products and convolutions. The CPU engine is complete without it.
//
// A plan is made once per distinct description and cached by the plugin; it says how much scratch
// it needs. Every function may refuse (NULL or false): the caller then computes by itself. Refusals
// are cached too, so asking again is as cheap as a hit (about 0.1 us).
//
// All of it may be called from any thread, and one plan may run on several threads at once (each
// with its own scratch). A plan says nothing about values: results for one plan are reproducible,
// but two thread counts may round differently.
//
// The plugin's threads are OpenMP's. The loader sets GOMP_SPINCOUNT=200 (unless the user has set
// it) before it opens the plugin: libgomp reads it while it is being loaded, and with its default
// every barrier burns a time slice when a core is taken by somebody else.
#ifndef CNN_CPU_ACCEL_H
#define CNN_CPU_ACCEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

#define CNN_ACCEL_ABI 1

// C[b] = A[b] B[b] (+ bias[n] in every row), strides in elements. Within A and B one of the two
// strides is 1 and the other at least the length of a row (a column); C is row-major, c_rs >= n.
// Batch strides of A and B may be 0 (the matrix is shared), not both. C is only written.
typedef struct cnn_accel_gemm {
  cnn_dtype dtype;      // of A, B and C: CNN_F32 or CNN_BF16
  cnn_dtype bias_dtype; // CNN_F32 or dtype; read when bias is set
  bool bias;
  int64_t batch, m, n, k;
  int64_t a_bs, a_rs, a_cs, b_bs, b_rs, b_cs, c_bs, c_rs;
} cnn_accel_gemm;

// Two-dimensional convolution, x (N, C, H, W), w (K, C / groups, R, S), y (N, K, P, Q), all dense.
typedef enum cnn_accel_direction {
  CNN_ACCEL_FORWARD,         // args: x, w, bias or NULL, y
  CNN_ACCEL_BACKWARD_DATA,   // args: dy, w, dx
  CNN_ACCEL_BACKWARD_WEIGHT, // args: x, dy, dw, db or NULL
} cnn_accel_direction;

typedef struct cnn_accel_conv {
  cnn_accel_direction direction;
  cnn_dtype dtype;      // of x, w, y and their gradients: CNN_F32 or CNN_BF16
  cnn_dtype bias_dtype; // CNN_F32 or dtype; of bias and db, read when bias is set
  bool bias;            // forward: add it; backward weight: compute its gradient too
  bool nhwc; // x, y, dx, dy lie channels-last; weights are always plain (K, C / groups, R, S)
  int64_t n, c, h, w, k, r, s, p, q, groups;
  int64_t stride[2], dilation[2]; // of height and width; dilation 1 is a dense kernel
  int64_t pad_before[2], pad_after[2];
} cnn_accel_conv;

typedef struct cnn_accel_plan cnn_accel_plan;

typedef struct cnn_accel {
  int abi;
  const char *name; // "oneDNN 2.6.3"
  // Plans for these shapes with `threads` threads; *scratch says the bytes that run() needs
  // (aligned to 64). A plan lives until the process ends. NULL: not taken. The caller decides from
  // which size on a call is worth it; what no fast implementation exists for is refused here.
  cnn_accel_plan *(*gemm)(const cnn_accel_gemm *desc, int threads, size_t *scratch);
  cnn_accel_plan *(*conv)(const cnn_accel_conv *desc, int threads, size_t *scratch);
  // Runs a plan on data pointers: gemm takes A, B, bias or NULL, C; convolutions as listed above.
  // Inputs and outputs must not overlap. Returns false on failure (outputs are then undefined).
  bool (*run)(cnn_accel_plan *plan, void *const *args, void *scratch);
  // How a plan computes, for profiles and tests: "conv jit:avx512_core, reorders x w y,
  // threads 2". Small work gets fewer threads than were asked for.
  const char *(*describe)(const cnn_accel_plan *plan);
  // Gives back the memory of everything that is ready but not running; plans stay valid.
  void (*trim)(void);
} cnn_accel;

// The one symbol of a plugin: fills the table and returns true when the plugin serves this ABI.
typedef bool (*cnn_accel_entry)(int abi, cnn_accel *table);
#define CNN_ACCEL_SYMBOL "cnn_accel_open"

// ---------------------------------------------------------------------------------------------
// The core's side (cpu/accel.c)

// The plugin, opened by the first call that finds it switched on; NULL when there is none. Call it
// for work that is worth opening a library for, and never at `require`.
//
// It is found as base/plugin.h says; besides, CNN_DNNL_PLUGIN empty or "0" switches it off. A
// plugin that can't be opened is as good as none.
const cnn_accel *cnn_accel_get(void);

// Switches the plugin on or off from now on. Returns whether it is there and on.
bool cnn_accel_enable(bool on);

#endif
