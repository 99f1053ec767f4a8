// SPDX-License-Identifier: MIT
// Multi-tensor ops of optimizers: one call steps all parameters of a group. Lists run in parallel;
// every tensor of a position has the parameter's shape. Parameters and state change in place and
// have no gradients. The formulas are PyTorch's (torch.optim), computed in float32 for half types.
#include "ops/ops.h"

// The lists must be alike: the kernel walks them side by side. Bit k of `optional`: list k may be
// empty, where the step has no use for it. `steps` is the number of the argument that counts each
// parameter's steps, or 0.
static cnn_status infer_lists(cnn_infer *I, int n_lists, unsigned optional, int steps) {
  int n = I->args[0].n, at = 0;
  for (int k = 0; k < n_lists; k++) {
    int m = I->args[k].n;
    if (m != n && (m > 0 || !(optional >> k & 1)))
      return cnn_fail(I->ctx, CNN_SHAPE, "list %d has %d tensors for %d parameters", k + 1, m, n);
    for (int i = 0; i < m; i++) {
      const cnn_tensor *p = I->in[i], *t = I->in[at + i];
      cnn_shape_text a, b;
      if (!cnn_shape_equal(p->ndim, p->shape, t->ndim, t->shape))
        return cnn_fail(I->ctx, CNN_SHAPE, "tensor %d of list %d has shape %s, the parameter %s",
                        i + 1, k + 1, cnn_shape_format(&a, t->ndim, t->shape),
                        cnn_shape_format(&b, p->ndim, p->shape));
      if (!cnn_dtype_is_float((cnn_dtype)t->dtype))
        return cnn_fail(I->ctx, CNN_DTYPE, "tensor %d of list %d is %s, not a float", i + 1, k + 1,
                        cnn_dtype_name((cnn_dtype)t->dtype));
    }
    at += m;
  }
  if (steps > 0 && I->args[steps].n != n)
    return cnn_fail(I->ctx, CNN_SHAPE, "%d steps for %d parameters", I->args[steps].n, n);
  return CNN_OK;
}

static cnn_status infer_sgd(cnn_infer *I) {
  return infer_lists(I, 3, 1u << 2, 3);
}

const cnn_op cnn_op_sgd_step_ = {
    .name = "sgd_step_",
    .args = "params:indices! grads:indices momentum_buffers:indices! steps:ints lr:number "
            "momentum:number dampening:number weight_decay:number nesterov:bool maximize:bool",
    .doc = "One step of SGD on all params.",
    .flags = CNN_OP_INTERNAL | CNN_OP_NO_GRAD,
    .infer = infer_sgd,
};

static cnn_status infer_adam(cnn_infer *I) {
  return infer_lists(I, 5, 1u << 4, 5);
}

const cnn_op cnn_op_adam_step_ = {
    .name = "adam_step_",
    .args = "params:indices! grads:indices exp_avgs:indices! exp_avg_sqs:indices! "
            "max_exp_avg_sqs:indices! steps:ints lr:number beta1:number beta2:number eps:number "
            "weight_decay:number decoupled:bool maximize:bool",
    .doc = "One step of Adam (decoupled: AdamW) on all params.",
    .flags = CNN_OP_INTERNAL | CNN_OP_NO_GRAD,
    .infer = infer_adam,
};

static cnn_status infer_rmsprop(cnn_infer *I) {
  return infer_lists(I, 5, 1u << 3 | 1u << 4, 0);
}

const cnn_op cnn_op_rmsprop_step_ = {
    .name = "rmsprop_step_",
    .args = "params:indices! grads:indices square_avgs:indices! momentum_buffers:indices! "
            "grad_avgs:indices! lr:number alpha:number eps:number weight_decay:number "
            "momentum:number maximize:bool",
    .doc = "One step of RMSprop on all params.",
    .flags = CNN_OP_INTERNAL | CNN_OP_NO_GRAD,
    .infer = infer_rmsprop,
};

static cnn_status infer_adagrad(cnn_infer *I) {
  return infer_lists(I, 3, 0, 3);
}

const cnn_op cnn_op_adagrad_step_ = {
    .name = "adagrad_step_",
    .args = "params:indices! grads:indices sums:indices! steps:ints lr:number lr_decay:number "
            "weight_decay:number eps:number maximize:bool",
    .doc = "One step of Adagrad on all params.",
    .flags = CNN_OP_INTERNAL | CNN_OP_NO_GRAD,
    .infer = infer_adagrad,
};

static cnn_status check_grads(const cnn_infer *I) {
  for (int i = 0; i < I->n_in; i++)
    if (!cnn_dtype_is_float((cnn_dtype)I->in[i]->dtype))
      return cnn_fail(I->ctx, CNN_DTYPE, "gradient %d is %s, not a float", i + 1,
                      cnn_dtype_name((cnn_dtype)I->in[i]->dtype));
  return CNN_OK;
}

static cnn_status infer_grad_norm(cnn_infer *I) {
  double p = cnn_arg_number(&I->args[1]);
  if (!(p > 0)) return cnn_fail(I->ctx, CNN_INVALID, "p must be > 0, not %g", p);
  CNN_TRY(check_grads(I));
  cnn_infer_out(I, CNN_F64, 0, NULL);
  return CNN_OK;
}

const cnn_op cnn_op_grad_norm = {
    .name = "grad_norm",
    .args = "grads:indices p:number=2",
    .doc = "The p-norm of all gradients as one vector, in float64: large finite values survive.",
    .flags = CNN_OP_INTERNAL | CNN_OP_NO_GRAD,
    .infer = infer_grad_norm,
};

static cnn_status infer_grad_scale(cnn_infer *I) {
  return check_grads(I);
}

const cnn_op cnn_op_grad_scale_ = {
    .name = "grad_scale_",
    .args = "grads:indices! factor:number",
    .doc = "Multiplies all gradients by a number.",
    .flags = CNN_OP_INTERNAL | CNN_OP_NO_GRAD,
    .infer = infer_grad_scale,
};
