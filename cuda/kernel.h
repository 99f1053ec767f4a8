// SPDX-License-Identifier: MIT
// What a kernel's plan and run see of the plugin: how a launch ends, the engines, walks over views.
// C and C++.
#ifndef CNN_CUDA_KERNEL_H
#define CNN_CUDA_KERNEL_H

#include <cuda_runtime_api.h>

#include "engine/call.h"
#include "engine/fault.h"

#ifdef __cplusplus
extern "C" {
#endif

// Defines the kernel of op `name`. plan may be NULL.
#ifdef __cplusplus
#define CUDA_KERNEL(name, plan, run)                                                               \
  extern "C" {                                                                                     \
  extern const cnn_kernel cuda_##name;                                                             \
  const cnn_kernel cuda_##name = {plan, run, NULL};                                                \
  }
#else
#define CUDA_KERNEL(name, plan, run)                                                               \
  extern const cnn_kernel cuda_##name;                                                             \
  const cnn_kernel cuda_##name = {plan, run, NULL};
#endif

// What kernels report where they can't raise: the first bad index, say. The host raises it when it
// next waits for the device; optimizers skip their work meanwhile. On the device.
typedef struct cuda_fault {
  unsigned set; // 0: none
  int op;       // cuda_fault_op
  cnn_fault what;
} cuda_fault;

// The slot of the call's device, for kernels that may report.
cuda_fault *cuda_fault_of(const cnn_call *call);
// What messages call the op: a number for the name that the user called it by.
int cuda_fault_op(const cnn_call *call);
// The same for those that only look whether others have reported.
const cuda_fault *cuda_fault_seen(const cnn_call *call);

// What a launch of the call gave, as a status; counts it.
cnn_status cuda_launched(const cnn_call *call, cudaError_t error);

// cuBLASLt and cuDNN on the call's device, made at their first use. NULL: there is none, and own
// kernels compute.
struct cuda_blas *cuda_blas_of(const cnn_call *call);
struct cuda_dnn *cuda_dnn_of(const cnn_call *call);

// Whether float32 products and convolutions may round their factors to TF32.
bool cuda_allow_tf32(void);
// Whether products and convolutions may be followed by the library's own ReLU. That of cuBLASLt
// makes NaN 0; cuDNN doesn't say.
bool cuda_fuse_relu(void);

// Copies `from`, which broadcasts to it, into `to`, converting: floats become integers towards
// zero, saturating, NaN becomes 0. `from` may be a number in the CPU's memory. (copy.cu)
cnn_status cuda_copy_view(const cnn_call *call, const cnn_view *to, const cnn_view *from);
// Sets every element of v to the number, which its dtype must hold. (create.cu)
cnn_status cuda_fill_view(const cnn_call *call, const cnn_view *v, double value);

// The number of multiprocessors of the call's device: for sizes of grids.
int cuda_processors(const cnn_call *call);

// ---------------------------------------------------------------------------------------------
// Walks: the elements of views that broadcast to one shape, in one order

#define CUDA_WALK_VIEWS 4

// Dims of size 1 are gone, those that are one run in every view are joined, the first view's
// largest stride is outermost. Passed to kernels by value.
typedef struct cuda_walk {
  int ndim, views;
  int64_t numel;
  int64_t shape[CNN_MAX_DIMS];
  int64_t strides[CUDA_WALK_VIEWS][CNN_MAX_DIMS]; // in elements of each view; 0 where it broadcasts
  // Division of an index by shape[d] is (mulhi(i, factor[d]) + i) >> shift[d]: of 32 bits where
  // numel is below 2^31, else of 64.
  uint64_t factor[CNN_MAX_DIMS];
  uint32_t shift[CNN_MAX_DIMS];
} cuda_walk;

// Over `shape`; a view with ndim 0 is the same element everywhere.
void cuda_walk_make(cuda_walk *w, int ndim, const int64_t *shape, const cnn_view *const *views,
                    int n);
// The same in the order of the shape: element i has the row-major index i.
void cuda_walk_ordered(cuda_walk *w, int ndim, const int64_t *shape, const cnn_view *const *views,
                       int n);
// The same by n elements of the innermost dim, which has whole ones of them, or a rest if it is the
// only dim.
void cuda_walk_group(cuda_walk *grouped, const cuda_walk *w, int64_t n);
// Over the dims of v whose bits are set in `dims`, in their own order, joined where they are one
// run.
void cuda_walk_dims(cuda_walk *w, const cnn_view *v, uint32_t dims);

// The lines along `dim` of n views of one shape: a walk over all other dims, and each view's stride
// along the line.
typedef struct cuda_lines {
  cuda_walk outer;
  int64_t length, stride[CUDA_WALK_VIEWS];
  bool columns; // lines are neighbours in memory: of the first view
} cuda_lines;
void cuda_lines_make(cuda_lines *l, int dim, const cnn_view *const *views, int n);

// Whether view k is one dense run in the walk's order.
static inline bool cuda_walk_dense(const cuda_walk *w, int k) {
  return w->ndim == 0 || (w->ndim == 1 && w->strides[k][0] == 1);
}
// Whether view k is one element everywhere.
static inline bool cuda_walk_constant(const cuda_walk *w, int k) {
  for (int d = 0; d < w->ndim; d++)
    if (w->strides[k][d] != 0) return false;
  return true;
}

#ifdef __cplusplus
}
#endif

#endif
