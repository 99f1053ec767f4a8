// SPDX-License-Identifier: MIT
// The built-in optimizers: settings with PyTorch's names and defaults, and the op that a step is.
#include <stddef.h>
#include <string.h>

#include "ops/ops.h"
#include "optim/optimizer.h"

static cnn_arg list(const cnn_step *s, cnn_tensor **tensors) {
  return CNN_A_TS(s->n, tensors);
}

static const char *check_common(double lr, double weight_decay) {
  if (!(lr >= 0)) return "lr must be >= 0";
  if (!(weight_decay >= 0)) return "weight_decay must be >= 0";
  return NULL;
}

// ---------------------------------------------------------------------------------------------
// SGD

enum { SGD_LR, SGD_MOMENTUM, SGD_DAMPENING, SGD_WEIGHT_DECAY, SGD_NESTEROV, SGD_MAXIMIZE };

static unsigned sgd_wanted(const double *s) {
  return s[SGD_MOMENTUM] != 0;
}

static const char *sgd_check(const double *s) {
  if (!(s[SGD_MOMENTUM] >= 0)) return "momentum must be >= 0";
  if (s[SGD_NESTEROV] != 0 && (s[SGD_MOMENTUM] <= 0 || s[SGD_DAMPENING] != 0))
    return "nesterov needs a momentum above 0 and no dampening";
  return check_common(s[SGD_LR], s[SGD_WEIGHT_DECAY]);
}

static void sgd_step(cnn_frame *f, const cnn_step *s) {
  const double *h = s->settings;
  cnn_do(f, sgd_step_, list(s, s->params), list(s, s->grads),
         h[SGD_MOMENTUM] != 0 ? list(s, s->state[0]) : CNN_A_TS(0, NULL),
         CNN_A_INTS(s->n, s->steps), CNN_A_N(h[SGD_LR]), CNN_A_N(h[SGD_MOMENTUM]),
         CNN_A_N(h[SGD_DAMPENING]), CNN_A_N(h[SGD_WEIGHT_DECAY]), CNN_A_I(h[SGD_NESTEROV] != 0),
         CNN_A_I(h[SGD_MAXIMIZE] != 0));
}

// ---------------------------------------------------------------------------------------------
// Adam and AdamW: weight decay as part of the gradient, or apart from it

enum { ADAM_LR, ADAM_BETA1, ADAM_BETA2, ADAM_EPS, ADAM_WEIGHT_DECAY, ADAM_AMSGRAD, ADAM_MAXIMIZE };

static unsigned adam_wanted(const double *s) {
  return s[ADAM_AMSGRAD] != 0 ? 7 : 3;
}

static const char *adam_check(const double *s) {
  if (!(s[ADAM_BETA1] >= 0 && s[ADAM_BETA1] < 1)) return "betas[1] must be in [0, 1)";
  if (!(s[ADAM_BETA2] >= 0 && s[ADAM_BETA2] < 1)) return "betas[2] must be in [0, 1)";
  if (!(s[ADAM_EPS] >= 0)) return "eps must be >= 0";
  return check_common(s[ADAM_LR], s[ADAM_WEIGHT_DECAY]);
}

static void adam(cnn_frame *f, const cnn_step *s, bool decoupled) {
  const double *h = s->settings;
  cnn_do(f, adam_step_, list(s, s->params), list(s, s->grads), list(s, s->state[0]),
         list(s, s->state[1]), h[ADAM_AMSGRAD] != 0 ? list(s, s->state[2]) : CNN_A_TS(0, NULL),
         CNN_A_INTS(s->n, s->steps), CNN_A_N(h[ADAM_LR]), CNN_A_N(h[ADAM_BETA1]),
         CNN_A_N(h[ADAM_BETA2]), CNN_A_N(h[ADAM_EPS]), CNN_A_N(h[ADAM_WEIGHT_DECAY]),
         CNN_A_I(decoupled), CNN_A_I(h[ADAM_MAXIMIZE] != 0));
}

static void adam_step(cnn_frame *f, const cnn_step *s) {
  adam(f, s, false);
}
static void adamw_step(cnn_frame *f, const cnn_step *s) {
  adam(f, s, true);
}

// ---------------------------------------------------------------------------------------------
// RMSprop

enum { RMS_LR, RMS_ALPHA, RMS_EPS, RMS_WEIGHT_DECAY, RMS_MOMENTUM, RMS_CENTERED, RMS_MAXIMIZE };

static unsigned rmsprop_wanted(const double *s) {
  return 1u | (s[RMS_MOMENTUM] > 0 ? 2u : 0) | (s[RMS_CENTERED] != 0 ? 4u : 0);
}

static const char *rmsprop_check(const double *s) {
  if (!(s[RMS_ALPHA] >= 0)) return "alpha must be >= 0";
  if (!(s[RMS_EPS] >= 0)) return "eps must be >= 0";
  if (!(s[RMS_MOMENTUM] >= 0)) return "momentum must be >= 0";
  return check_common(s[RMS_LR], s[RMS_WEIGHT_DECAY]);
}

static void rmsprop_step(cnn_frame *f, const cnn_step *s) {
  const double *h = s->settings;
  cnn_do(f, rmsprop_step_, list(s, s->params), list(s, s->grads), list(s, s->state[0]),
         h[RMS_MOMENTUM] > 0 ? list(s, s->state[1]) : CNN_A_TS(0, NULL),
         h[RMS_CENTERED] != 0 ? list(s, s->state[2]) : CNN_A_TS(0, NULL), CNN_A_N(h[RMS_LR]),
         CNN_A_N(h[RMS_ALPHA]), CNN_A_N(h[RMS_EPS]), CNN_A_N(h[RMS_WEIGHT_DECAY]),
         CNN_A_N(h[RMS_MOMENTUM]), CNN_A_I(h[RMS_MAXIMIZE] != 0));
}

// ---------------------------------------------------------------------------------------------
// Adagrad

enum { ADA_LR, ADA_LR_DECAY, ADA_WEIGHT_DECAY, ADA_EPS, ADA_MAXIMIZE };

static unsigned adagrad_wanted(const double *s) {
  (void)s;
  return 1;
}

static const char *adagrad_check(const double *s) {
  if (!(s[ADA_LR_DECAY] >= 0)) return "lr_decay must be >= 0";
  if (!(s[ADA_EPS] >= 0)) return "eps must be >= 0";
  return check_common(s[ADA_LR], s[ADA_WEIGHT_DECAY]);
}

static void adagrad_step(cnn_frame *f, const cnn_step *s) {
  const double *h = s->settings;
  cnn_do(f, adagrad_step_, list(s, s->params), list(s, s->grads), list(s, s->state[0]),
         CNN_A_INTS(s->n, s->steps), CNN_A_N(h[ADA_LR]), CNN_A_N(h[ADA_LR_DECAY]),
         CNN_A_N(h[ADA_WEIGHT_DECAY]), CNN_A_N(h[ADA_EPS]), CNN_A_I(h[ADA_MAXIMIZE] != 0));
}

// ---------------------------------------------------------------------------------------------

#define ADAM(title, text, decay, fn)                                                               \
  {                                                                                                \
    .name = title, .doc = text, .n_settings = 7,                                                   \
    .settings = {{"lr", 1e-3, false},  {"beta1", 0.9, false},          {"beta2", 0.999, false},    \
                 {"eps", 1e-8, false}, {"weight_decay", decay, false}, {"amsgrad", 0, true},       \
                 {"maximize", 0, true}},                                                           \
    .n_states = 3, .states = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, .wanted = adam_wanted,   \
    .check = adam_check, .step = fn                                                                \
  }

static const cnn_optimizer_kind kinds[] = {
    {.name = "SGD",
     .doc = "Stochastic gradient descent, with momentum (Nesterov's too), dampening, weight decay.",
     .n_settings = 6,
     .settings = {{"lr", 1e-3, false},
                  {"momentum", 0, false},
                  {"dampening", 0, false},
                  {"weight_decay", 0, false},
                  {"nesterov", 0, true},
                  {"maximize", 0, true}},
     .n_states = 1,
     .states = {"momentum_buffer"},
     .wanted = sgd_wanted,
     .check = sgd_check,
     .step = sgd_step},
    ADAM("Adam", "Adam (Kingma and Ba, 2015); weight decay is added to the gradient.", 0,
         adam_step),
    ADAM("AdamW", "Adam with decoupled weight decay (Loshchilov and Hutter, 2019).", 1e-2,
         adamw_step),
    {.name = "RMSprop",
     .doc = "RMSprop (Hinton), with momentum, optionally centered.",
     .n_settings = 7,
     .settings = {{"lr", 1e-2, false},
                  {"alpha", 0.99, false},
                  {"eps", 1e-8, false},
                  {"weight_decay", 0, false},
                  {"momentum", 0, false},
                  {"centered", 0, true},
                  {"maximize", 0, true}},
     .n_states = 3,
     .states = {"square_avg", "momentum_buffer", "grad_avg"},
     .wanted = rmsprop_wanted,
     .check = rmsprop_check,
     .step = rmsprop_step},
    {.name = "Adagrad",
     .doc = "Adagrad (Duchi, Hazan and Singer, 2011).",
     .n_settings = 5,
     .settings = {{"lr", 1e-2, false},
                  {"lr_decay", 0, false},
                  {"weight_decay", 0, false},
                  {"eps", 1e-10, false},
                  {"maximize", 0, true}},
     .n_states = 1,
     .states = {"sum"},
     .wanted = adagrad_wanted,
     .check = adagrad_check,
     .step = adagrad_step},
};

#define KINDS ((int)(sizeof kinds / sizeof *kinds))

int cnn_optimizer_kind_count(void) {
  return KINDS;
}

const cnn_optimizer_kind *cnn_optimizer_kind_at(int i) {
  return &kinds[i];
}

const cnn_optimizer_kind *cnn_optimizer_kind_find(const char *name) {
  for (int i = 0; i < KINDS; i++)
    if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
  return NULL;
}
