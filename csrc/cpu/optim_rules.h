// SPDX-License-Identifier: MIT
// The rules of the optimizers, those of torch.optim: one text for the kernels of all devices.
//
// A rule is the body of a function of n elements, x[] (the lists that its op takes: p = x[0] and
// gs = x[1] are declared already; an optional list may be NULL) and c[], CNN_OPTIM_CONSTANTS
// constants in type T. LOOP is "for i from 0 to n - 1", T the type, SQRT its square root.
//
// The constants of parameter `param` are made from the call's arguments by <rule>_constants, in
// double. They depend on the parameter by its number of steps alone.
#ifndef CNN_CPU_OPTIM_RULES_H
#define CNN_CPU_OPTIM_RULES_H

#include <math.h>

#include "engine/call.h"

#define CNN_OPTIM_LISTS     5 // params, grads, and up to three states
#define CNN_OPTIM_CONSTANTS 10

// ---------------------------------------------------------------------------------------------
// SGD. c: lr, momentum, 1 - dampening (1 on the first step: the buffer starts as the gradient),
// weight_decay, nesterov, sign of the gradient.

#define SGD(T, SQRT)                                                                               \
  T *b = x[2];                                                                                     \
  const T lr = c[0], momentum = c[1], damp = c[2], decay = c[3], nesterov = c[4], sign = c[5];     \
  if (!b) {                                                                                        \
    LOOP p[i] -= lr * (sign * gs[i] + decay * p[i]);                                               \
    return;                                                                                        \
  }                                                                                                \
  LOOP {                                                                                           \
    const T g = sign * gs[i] + decay * p[i];                                                       \
    const T v = momentum * b[i] + damp * g;                                                        \
    b[i] = v;                                                                                      \
    p[i] -= lr * (nesterov != 0 ? g + momentum * v : v);                                           \
  }

static inline void sgd_constants(const cnn_call *call, int param, double *c) {
  const cnn_arg *a = call->args;
  bool first = a[3].ints[param] == 1;
  c[0] = cnn_arg_number(&a[4]);
  c[1] = cnn_arg_number(&a[5]);
  c[2] = first ? 1 : 1 - cnn_arg_number(&a[6]);
  c[3] = cnn_arg_number(&a[7]);
  c[4] = a[8].i != 0;
  c[5] = a[9].i ? -1 : 1;
}

// ---------------------------------------------------------------------------------------------
// Adam. c: beta1, beta2, lr / (1 - beta1^t), sqrt(1 - beta2^t), eps, decay added to the gradient,
// 1 - lr * decoupled decay, sign of the gradient, 1 - beta1, 1 - beta2.

#define ADAM(T, SQRT)                                                                              \
  T *m = x[2], *v = x[3], *top = x[4];                                                             \
  const T beta2 = c[1], step = c[2], root = c[3], eps = c[4], decay = c[5], keep = c[6],           \
          sign = c[7], gain1 = c[8], gain2 = c[9];                                                 \
  if (top) {                                                                                       \
    LOOP {                                                                                         \
      const T q = p[i] * keep, g = sign * gs[i] + decay * p[i];                                    \
      const T m1 = m[i] + (g - m[i]) * gain1, v1 = v[i] * beta2 + gain2 * g * g;                   \
      const T t = top[i] > v1 ? top[i] : v1;                                                       \
      m[i] = m1;                                                                                   \
      v[i] = v1;                                                                                   \
      top[i] = t;                                                                                  \
      p[i] = q - step * m1 / (SQRT(t) / root + eps);                                               \
    }                                                                                              \
    return;                                                                                        \
  }                                                                                                \
  LOOP {                                                                                           \
    const T q = p[i] * keep, g = sign * gs[i] + decay * p[i];                                      \
    const T m1 = m[i] + (g - m[i]) * gain1, v1 = v[i] * beta2 + gain2 * g * g;                     \
    m[i] = m1;                                                                                     \
    v[i] = v1;                                                                                     \
    p[i] = q - step * m1 / (SQRT(v1) / root + eps);                                                \
  }

static inline void adam_constants(const cnn_call *call, int param, double *c) {
  const cnn_arg *a = call->args;
  double t = (double)a[5].ints[param], lr = cnn_arg_number(&a[6]), decay = cnn_arg_number(&a[10]);
  bool decoupled = a[11].i != 0;
  c[0] = cnn_arg_number(&a[7]);
  c[1] = cnn_arg_number(&a[8]);
  c[2] = lr / (1 - pow(c[0], t));
  c[3] = sqrt(1 - pow(c[1], t));
  c[4] = cnn_arg_number(&a[9]);
  c[5] = decoupled ? 0 : decay;
  c[6] = decoupled ? 1 - lr * decay : 1;
  c[7] = a[12].i ? -1 : 1;
  c[8] = 1 - c[0];
  c[9] = 1 - c[1];
}

// ---------------------------------------------------------------------------------------------
// RMSprop. c: lr, alpha, eps, weight_decay, momentum, sign of the gradient.

#define RMSPROP(T, SQRT)                                                                           \
  T *s = x[2], *b = x[3], *mean = x[4];                                                            \
  const T lr = c[0], alpha = c[1], eps = c[2], decay = c[3], momentum = c[4], sign = c[5];         \
  LOOP {                                                                                           \
    const T g = sign * gs[i] + decay * p[i];                                                       \
    const T s1 = s[i] * alpha + (1 - alpha) * g * g;                                               \
    T a = 0;                                                                                       \
    s[i] = s1;                                                                                     \
    if (mean) a = mean[i] = mean[i] + (g - mean[i]) * (1 - alpha);                                 \
    const T u = g / (SQRT(s1 - a * a) + eps);                                                      \
    const T d = b ? momentum * b[i] + u : u;                                                       \
    if (b) b[i] = d;                                                                               \
    p[i] -= lr * d;                                                                                \
  }

static inline void rmsprop_constants(const cnn_call *call, int param, double *c) {
  (void)param;
  for (int i = 0; i < 5; i++) c[i] = cnn_arg_number(&call->args[5 + i]);
  c[5] = call->args[10].i ? -1 : 1;
}

// ---------------------------------------------------------------------------------------------
// Adagrad. c: lr / (1 + (t - 1) * lr_decay), weight_decay, eps, sign of the gradient.

#define ADAGRAD(T, SQRT)                                                                           \
  T *s = x[2];                                                                                     \
  const T lr = c[0], decay = c[1], eps = c[2], sign = c[3];                                        \
  LOOP {                                                                                           \
    const T g = sign * gs[i] + decay * p[i], s1 = s[i] + g * g;                                    \
    s[i] = s1;                                                                                     \
    p[i] -= lr * g / (SQRT(s1) + eps);                                                             \
  }

static inline void adagrad_constants(const cnn_call *call, int param, double *c) {
  const cnn_arg *a = call->args;
  c[0] = cnn_arg_number(&a[4]) / (1 + (double)(a[3].ints[param] - 1) * cnn_arg_number(&a[5]));
  c[1] = cnn_arg_number(&a[6]);
  c[2] = cnn_arg_number(&a[7]);
  c[3] = a[8].i ? -1 : 1;
}

// ---------------------------------------------------------------------------------------------
// Scaling. c: the factor. It is applied to list 0, which here are the gradients.
#define SCALE(T, SQRT)                                                                             \
  const T factor = c[0];                                                                           \
  (void)gs;                                                                                        \
  LOOP p[i] *= factor;

static inline void scale_constants(const cnn_call *call, int param, double *c) {
  (void)param;
  c[0] = cnn_arg_number(&call->args[1]);
}

#endif
