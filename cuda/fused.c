// SPDX-License-Identifier: MIT
// Kernels of ops/fused.c, and of the gradient of linear weights: by one call of cuBLASLt each where
// it has an algorithm, else by their parts. (conv2d_relu is in conv.c.)
//
// cuBLASLt makes a ReLU of NaN 0, and so hides what has gone wrong; cuDNN doesn't say. Their ReLUs
// are used only by leave (cnn.cuda.fuse_relu).
#include "engine/parts.h"
#include "gemm.h"
#include "kernel.h"

extern const cnn_kernel cuda_linear, cuda_matmul, cuda_matmul_to, cuda_sum_to, cuda_relu,
    cuda_gelu_tanh, cuda_gelu_tanh_backward;

enum { WAY_PARTS, WAY_LIBRARY };

// Plans or runs `part` of the call with an epilogue. False where the call is to go by its parts.
static bool by_library(cnn_call *call, cnn_call *part, cuda_epilogue epilogue, const cnn_view *aux,
                       void *sums, cnn_status *status) {
  if (call->planning) {
    call->way = cuda_gemm_plan_with(part, epilogue, aux, sums) ? WAY_LIBRARY : WAY_PARTS;
    if (call->way == WAY_LIBRARY) call->scratch_bytes = part->scratch_bytes;
    *status = CNN_OK;
  } else if (call->way == WAY_LIBRARY) {
    *status = cuda_gemm_run_with(part, epilogue, aux, sums);
  }
  return call->way == WAY_LIBRARY;
}

static cnn_status linear_relu(cnn_call *call) {
  cnn_status status;
  cnn_call part = *call;
  if (cuda_fuse_relu() && by_library(call, &part, CUDA_EPI_RELU, NULL, NULL, &status))
    return status;
  return cnn_parts_then(call, &cuda_linear, &cuda_relu);
}

static cnn_status linear_gelu(cnn_call *call) {
  cnn_status status;
  cnn_call part = *call;
  bool keep = call->n_out > 1;
  part.n_out = 1;
  if (by_library(call, &part, keep ? CUDA_EPI_GELU_AUX : CUDA_EPI_GELU, keep ? &call->out[1] : NULL,
                 NULL, &status))
    return status;
  return cnn_parts_then(call, &cuda_linear, &cuda_gelu_tanh);
}

static cnn_status linear_backward_gelu(cnn_call *call) {
  const cnn_arg none[2] = {CNN_A_NONE, CNN_A_NONE};
  cnn_status status;
  cnn_call part = *call;
  part.n_in = part.n_args = 2;
  part.args = none;
  if (by_library(call, &part, CUDA_EPI_DGELU, &call->in[2], NULL, &status)) return status;
  return cnn_parts_backward(call, &cuda_matmul, &cuda_gelu_tanh_backward);
}

// dw = dy^T x: the bias's gradient is the sum of dy^T over its inner dim.
static cnn_status linear_backward_weight(cnn_call *call) {
  const cnn_arg args[] = {CNN_A_NONE, CNN_A_NONE, call->args[2], CNN_A_I(1), CNN_A_I(0)};
  cnn_status status;
  cnn_call part = *call;
  part.n_out = 1;
  part.args = args, part.n_args = 5;
  if (call->n_out > 1 &&
      by_library(call, &part, CUDA_EPI_BGRAD_A, NULL, call->out[1].data, &status))
    return status;
  return cnn_parts_weight(call, &cuda_matmul_to, &cuda_sum_to);
}

CUDA_KERNEL(linear_relu, linear_relu, linear_relu)
CUDA_KERNEL(linear_gelu, linear_gelu, linear_gelu)
CUDA_KERNEL(linear_gelu_kept, linear_gelu, linear_gelu)
CUDA_KERNEL(linear_backward_gelu, linear_backward_gelu, linear_backward_gelu)
CUDA_KERNEL(linear_backward_weight, linear_backward_weight, linear_backward_weight)
