// SPDX-License-Identifier: MIT
// Kernels of ops/reduce.c: a fold each, and how its state becomes the result.
#include <math.h>

#include "cpu/cpu.h"
#include "cpu/reduction.h"

#define FINISH(title, word, expr)                                                                  \
  static void title(const cnn_call *call, int64_t n, cnn_word *s, int64_t stride,                  \
                    int64_t positions) {                                                           \
    (void)call, (void)stride, (void)positions;                                                     \
    for (int64_t j = 0; j < n; j++) s[j].word = expr;                                              \
  }

// The dims in which x is larger than the shape it is summed to.
static uint32_t summed_dims(const cnn_call *call) {
  const cnn_view *x = &call->in[0];
  const cnn_arg *shape = &call->args[1];
  int lead = x->ndim - shape->n;
  uint32_t mask = 0;
  for (int d = 0; d < x->ndim; d++)
    if (d < lead || shape->ints[d - lead] != x->shape[d]) mask |= 1u << d;
  return mask;
}

FINISH(mean, f, s[j].f / (double)positions)
FINISH(all, i, s[j].i == positions)
FINISH(any, i, s[j].i > 0)
FINISH(log_sum, f, (s[j].f - s[j].f == 0 ? s[j].f : 0) + log(s[stride + j].f))

CNN_REDUCTION_KERNEL(all, .folds = cnn_fold_count, .finish = all, .counts = true)
CNN_REDUCTION_KERNEL(any, .folds = cnn_fold_count, .finish = any, .counts = true)
// Bools are added by "or", and multiplied by "and".
CNN_REDUCTION_KERNEL(sum, .folds = cnn_fold_sum, .by_result = true, .as_bool = &reduction_any)
CNN_REDUCTION_KERNEL(prod, .folds = cnn_fold_product, .by_result = true, .multiplies = true,
                     .as_bool = &reduction_all)
CNN_REDUCTION_KERNEL(sum_to, .folds = cnn_fold_sum, .mask = summed_dims)
CNN_REDUCTION_KERNEL(mean, .folds = cnn_fold_sum, .finish = mean, .by_result = true)
CNN_REDUCTION_KERNEL(count_nonzero, .folds = cnn_fold_count, .counts = true)
CNN_REDUCTION_KERNEL(logsumexp, .folds = cnn_fold_exps, .finish = log_sum)

// args: x dim unbiased keepdim correction
static double variance_of(const cnn_call *call, double squares, int64_t positions) {
  double correction = call->args[2].kind == CNN_INT ? (double)call->args[2].i : 1;
  if (call->args[4].kind != CNN_ABSENT) correction = cnn_arg_number(&call->args[4]);
  double n = (double)positions - correction;
  return squares / (n > 0 ? n : 0);
}
FINISH(variance, f, variance_of(call, s[2 * stride + j].f, positions))
FINISH(deviation, f, sqrt(variance_of(call, s[2 * stride + j].f, positions)))

CNN_REDUCTION_KERNEL(var, .folds = cnn_fold_moments, .finish = variance)
CNN_REDUCTION_KERNEL(std, .folds = cnn_fold_moments, .finish = deviation)

// ---------------------------------------------------------------------------------------------
// norm. args: x p dim keepdim

static double power(const cnn_call *call) {
  return cnn_arg_number(&call->args[1]);
}

static const cnn_fold *choose_norm(const cnn_call *call, double *p) {
  *p = power(call);
  return *p == 2           ? cnn_fold_squares
         : *p == 1         ? cnn_fold_abs
         : *p == 0         ? cnn_fold_count
         : *p == INFINITY  ? cnn_fold_max_abs
         : *p == -INFINITY ? cnn_fold_min_abs
                           : cnn_fold_powers;
}

static uint32_t norm_dims(const cnn_call *call) {
  uint32_t mask = 0;
  cnn_check_dims(call->ctx, "dim", &call->args[2], call->in[0].ndim, &mask);
  return mask;
}

static void finish_norm(const cnn_call *call, int64_t n, cnn_word *s, int64_t stride,
                        int64_t positions) {
  double p = power(call);
  (void)stride, (void)positions;
  for (int64_t j = 0; j < n; j++) {
    if (p == 0)
      s[j].f = (double)s[j].i;
    else if (p == 2)
      s[j].f = sqrt(s[j].f);
    else if (p != 1 && p - p == 0)
      s[j].f = pow(s[j].f, 1 / p);
  }
}

CNN_REDUCTION_KERNEL(norm, .choose = choose_norm, .finish = finish_norm, .mask = norm_dims)
