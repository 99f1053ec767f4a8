// SPDX-License-Identifier: MIT
// Optimizers: groups of parameters with their settings, state per parameter, and one multi-tensor
// op per step and group.
//
// State is made at a parameter's first step. A step first makes whatever state is missing, in all
// groups, then runs the ops, then counts: so a step that fails changes nothing, and keeps no state
// that it made. Step counts are integers.
//
// An attached optimizer steps each parameter within backward, as soon as its gradient is whole, and
// the gradient is freed. A backward that fails half way has then stepped what lay behind it.
#ifndef CNN_OPTIM_OPTIMIZER_H
#define CNN_OPTIM_OPTIMIZER_H

#include "engine/op.h"

#define CNN_MAX_SETTINGS 12
#define CNN_MAX_STATE    4

typedef struct cnn_setting {
  const char *name;
  double value; // the default; flags are 0 or 1
  bool flag;
} cnn_setting;

typedef struct cnn_optimizer cnn_optimizer;
typedef struct cnn_group cnn_group;
typedef struct cnn_step cnn_step;

// A kind of optimizer. `states` says which state tensors the settings ask for, as a bit mask.
typedef struct cnn_optimizer_kind {
  const char *name;
  const char *doc;
  int n_settings;
  cnn_setting settings[CNN_MAX_SETTINGS];
  int n_states;
  const char *states[CNN_MAX_STATE];
  unsigned (*wanted)(const double *settings);
  // NULL, or what is wrong with the settings.
  const char *(*check)(const double *settings);
  void (*step)(cnn_frame *f, const cnn_step *s);
} cnn_optimizer_kind;

typedef struct cnn_slot {
  cnn_optimizer *owner;
  int group; // the number of its group
  bool attached;
  uint8_t fresh; // bit k: state k was made by the step under way
  cnn_tensor *param;
  int64_t steps;
  cnn_tensor *state[CNN_MAX_STATE]; // NULL until the first step
} cnn_slot;

struct cnn_group {
  int n;
  cnn_slot *slots;
  double settings[CNN_MAX_SETTINGS];
};

struct cnn_optimizer {
  cnn_object object;
  const cnn_optimizer_kind *kind;
  int n_groups;
  cnn_group *groups;
};

// What a kind's step sees: the parameters of one group that have gradients, as parallel lists.
struct cnn_step {
  const double *settings;
  int n;
  cnn_tensor **params, **grads, **state[CNN_MAX_STATE];
  int64_t *steps; // already counting this one
};

int cnn_optimizer_kind_count(void);
const cnn_optimizer_kind *cnn_optimizer_kind_at(int i);
const cnn_optimizer_kind *cnn_optimizer_kind_find(const char *name);
// The number of a setting or state; -1: none.
int cnn_setting_find(const cnn_optimizer_kind *kind, const char *name);

cnn_status cnn_optimizer_create(cnn_context *ctx, const cnn_optimizer_kind *kind,
                                cnn_optimizer **out);
// Adds a group. `settings` holds one value per setting. A parameter given twice is taken once; one
// of another group is an error, as is anything that is not a leaf wanting a gradient.
cnn_status cnn_optimizer_add_group(cnn_context *ctx, cnn_optimizer *o, cnn_tensor *const *params,
                                   int n, const double *settings);
// Sets all settings of a group after checking them together.
cnn_status cnn_optimizer_set(cnn_context *ctx, cnn_optimizer *o, int group, const double *settings);

cnn_status cnn_optimizer_step(cnn_context *ctx, cnn_optimizer *o);
// The same in parts, the parameters of a group on one device each: steps part *next (0 at first)
// and those after it, counting it on. After CNN_OOM, once there is more memory, the same call goes
// on where it stood.
cnn_status cnn_optimizer_step_on(cnn_context *ctx, cnn_optimizer *o, int *next);

// From now on backward steps these parameters, so far as they are the optimizer's (n < 0: all of
// them). Fails, changing nothing, when none is, or another optimizer is attached to one.
cnn_status cnn_optimizer_attach(cnn_context *ctx, cnn_optimizer *o, cnn_tensor *const *params,
                                int n);
void cnn_optimizer_detach(cnn_optimizer *o);
// While paused, an attached optimizer lets gradients gather in .grad.
void cnn_optimizer_pause(cnn_optimizer *o, bool paused);

// Drops the gradients (set_to_none), or zeroes them.
cnn_status cnn_optimizer_zero_grad(cnn_context *ctx, cnn_optimizer *o, bool set_to_none);
// Drops all state: the next step starts anew.
void cnn_optimizer_reset(cnn_optimizer *o);

cnn_slot *cnn_optimizer_slot(cnn_optimizer *o, const cnn_tensor *param); // NULL: not here

// The norm of all gradients taken as one vector, scale-safe; gradients are scaled by
// max_norm / (norm + 1e-6) when that is below 1. `check` makes a norm that is not finite an error,
// and nothing is scaled then.
cnn_status cnn_clip_grad_norm(cnn_context *ctx, cnn_tensor *const *params, int n, double max_norm,
                              double p, bool check, double *norm);
cnn_status cnn_clip_grad_value(cnn_context *ctx, cnn_tensor *const *params, int n, double value);

#endif
