// SPDX-License-Identifier: MIT
// Also a part of the plugins of other devices.
#include "engine/parts.h"

cnn_status cnn_part(cnn_call *call, const cnn_kernel *kernel, const cnn_view *in, int n_in,
                    cnn_view *out, int n_out, const cnn_arg *args, int n_args) {
  cnn_call part = *call;
  part.kernel = kernel;
  part.in = in, part.n_in = n_in;
  part.out = out, part.n_out = n_out;
  part.args = args, part.n_args = n_args;
  part.scratch_bytes = 0;
  part.way = 0, part.handle = NULL;
  part.planning = true; // the choices of a plan are made once more before it is run
  if (kernel->plan) CNN_TRY(kernel->plan(&part));
  if (call->planning) {
    if (part.scratch_bytes > call->scratch_bytes) call->scratch_bytes = part.scratch_bytes;
    return CNN_OK;
  }
  part.planning = false;
  return kernel->run(&part);
}

cnn_status cnn_parts_then(cnn_call *call, const cnn_kernel *first, const cnn_kernel *f) {
  const cnn_arg none = CNN_A_NONE;
  cnn_view *at = &call->out[call->n_out - 1];
  CNN_TRY(cnn_part(call, first, call->in, call->n_in, at, 1, call->args, call->n_args));
  return cnn_part(call, f, at, 1, call->out, 1, &none, 1);
}

cnn_status cnn_parts_backward(cnn_call *call, const cnn_kernel *matmul, const cnn_kernel *f) {
  const cnn_arg none[2] = {CNN_A_NONE, CNN_A_NONE};
  const cnn_view in[2] = {call->out[0], call->in[2]};
  CNN_TRY(cnn_part(call, matmul, call->in, 2, call->out, 1, none, 2));
  return cnn_part(call, f, in, 2, call->out, 1, none, 2);
}

cnn_status cnn_parts_weight(cnn_call *call, const cnn_kernel *matmul_to, const cnn_kernel *sum_to) {
  const cnn_arg args[] = {CNN_A_NONE, CNN_A_NONE, call->args[2], CNN_A_I(1), CNN_A_I(0)};
  CNN_TRY(cnn_part(call, matmul_to, call->in, 2, call->out, 1, args, 5));
  if (call->n_out < 2) return CNN_OK;
  const cnn_arg shape[] = {CNN_A_NONE, CNN_A_INTS(1, call->args[2].ints)};
  return cnn_part(call, sum_to, call->in, 1, &call->out[1], 1, shape, 2);
}
