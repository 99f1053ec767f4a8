// SPDX-License-Identifier: MIT
// Kernels of ops/fused.c, and of the gradient of linear weights: by their parts.
#include "cpu/cpu.h"
#include "engine/parts.h"

static cnn_status linear_relu(cnn_call *call) {
  return cnn_parts_then(call, &cpu_linear, &cpu_relu);
}
static cnn_status linear_gelu(cnn_call *call) {
  return cnn_parts_then(call, &cpu_linear, &cpu_gelu_tanh);
}
static cnn_status linear_backward_gelu(cnn_call *call) {
  return cnn_parts_backward(call, &cpu_matmul, &cpu_gelu_tanh_backward);
}
static cnn_status linear_backward_weight(cnn_call *call) {
  return cnn_parts_weight(call, &cpu_matmul_to, &cpu_sum_to);
}
static cnn_status conv2d_relu(cnn_call *call) {
  return cnn_parts_then(call, &cpu_conv2d, &cpu_relu);
}

const cnn_kernel cpu_linear_relu = {linear_relu, linear_relu, NULL};
const cnn_kernel cpu_linear_gelu = {linear_gelu, linear_gelu, NULL};
const cnn_kernel cpu_linear_gelu_kept = {linear_gelu, linear_gelu, NULL};
const cnn_kernel cpu_linear_backward_gelu = {linear_backward_gelu, linear_backward_gelu, NULL};
const cnn_kernel cpu_linear_backward_weight = {linear_backward_weight, linear_backward_weight,
                                               NULL};
const cnn_kernel cpu_conv2d_relu = {conv2d_relu, conv2d_relu, NULL};
