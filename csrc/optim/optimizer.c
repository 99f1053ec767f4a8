// SPDX-License-Identifier: MIT
#include "optim/optimizer.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/node.h"
#include "memory/buffer.h"
#include "ops/ops.h"

static void drop_state(cnn_slot *s) {
  for (int k = 0; k < CNN_MAX_STATE; k++) {
    cnn_unref(s->state[k]);
    s->state[k] = NULL;
  }
  s->steps = 0;
}

static void destroy(cnn_object *object) {
  cnn_optimizer *o = (cnn_optimizer *)object;
  cnn_optimizer_detach(o);
  for (int g = 0; g < o->n_groups; g++) {
    for (int i = 0; i < o->groups[g].n; i++) {
      drop_state(&o->groups[g].slots[i]);
      cnn_unref(o->groups[g].slots[i].param);
    }
    cnn_free(o->groups[g].slots);
  }
  cnn_free(o->groups);
  cnn_free(o);
}

static const cnn_class optimizer_class = {"optimizer", destroy};

static cnn_status no_memory(cnn_context *ctx) {
  return cnn_fail(ctx, CNN_OOM, "out of memory for an optimizer");
}

cnn_status cnn_optimizer_create(cnn_context *ctx, const cnn_optimizer_kind *kind,
                                cnn_optimizer **out) {
  cnn_optimizer *o = cnn_calloc(sizeof *o);
  if (!o) return no_memory(ctx);
  cnn_object_init(&o->object, &optimizer_class);
  o->kind = kind;
  *out = o;
  return CNN_OK;
}

int cnn_setting_find(const cnn_optimizer_kind *kind, const char *name) {
  for (int i = 0; i < kind->n_settings; i++)
    if (strcmp(kind->settings[i].name, name) == 0) return i;
  return -1;
}

cnn_slot *cnn_optimizer_slot(cnn_optimizer *o, const cnn_tensor *param) {
  for (int g = 0; g < o->n_groups; g++)
    for (int i = 0; i < o->groups[g].n; i++)
      if (o->groups[g].slots[i].param == param) return &o->groups[g].slots[i];
  return NULL;
}

static cnn_status check_settings(cnn_context *ctx, const cnn_optimizer_kind *kind,
                                 const double *settings) {
  const char *wrong = kind->check(settings);
  return wrong ? cnn_fail(ctx, CNN_INVALID, "%s: %s", kind->name, wrong) : CNN_OK;
}

cnn_status cnn_optimizer_add_group(cnn_context *ctx, cnn_optimizer *o, cnn_tensor *const *params,
                                   int n, const double *settings) {
  CNN_TRY(check_settings(ctx, o->kind, settings));
  for (int i = 0; i < n; i++) {
    if (params[i]->grad_fn || !(params[i]->flags & CNN_REQUIRES_GRAD))
      return cnn_fail(ctx, CNN_INVALID, "%s: parameter %d is %s", o->kind->name, i + 1,
                      params[i]->grad_fn ? "no leaf: it was computed"
                                         : "a tensor that does not require a gradient");
    if (cnn_optimizer_slot(o, params[i]))
      return cnn_fail(ctx, CNN_INVALID, "%s: parameter %d is in another group already",
                      o->kind->name, i + 1);
  }
  cnn_group *groups = cnn_realloc(o->groups, (size_t)(o->n_groups + 1) * sizeof *groups);
  if (!groups) return no_memory(ctx);
  o->groups = groups;
  cnn_group *g = &groups[o->n_groups];
  g->n = 0;
  g->slots = cnn_calloc((size_t)(n ? n : 1) * sizeof *g->slots);
  if (!g->slots) return no_memory(ctx);
  memcpy(g->settings, settings, sizeof g->settings);
  o->n_groups++;
  for (int i = 0; i < n; i++)
    if (!cnn_optimizer_slot(o, params[i]))
      g->slots[g->n++] =
          (cnn_slot){.owner = o, .group = o->n_groups - 1, .param = cnn_ref(params[i])};
  return CNN_OK;
}

cnn_status cnn_optimizer_set(cnn_context *ctx, cnn_optimizer *o, int group,
                             const double *settings) {
  CNN_TRY(check_settings(ctx, o->kind, settings));
  memcpy(o->groups[group].settings, settings, sizeof o->groups[group].settings);
  return CNN_OK;
}

void cnn_optimizer_reset(cnn_optimizer *o) {
  for (int g = 0; g < o->n_groups; g++)
    for (int i = 0; i < o->groups[g].n; i++) drop_state(&o->groups[g].slots[i]);
}

// ---------------------------------------------------------------------------------------------
// Step

// Zeros like the parameter, in its layout.
static cnn_status make_state(cnn_context *ctx, const cnn_tensor *param, cnn_tensor **out) {
  cnn_meta meta;
  cnn_results r;
  cnn_meta_of(param, &meta);
  cnn_strides_like(param->ndim, param->shape, param->strides, meta.strides);
  CNN_TRY(cnn_tensor_empty(ctx, &meta, out));
  cnn_status status = cnn_dispatch(ctx, OP_fill_, CNN_ARGS(CNN_A_T(*out), CNN_A_I(0)), &r);
  if (status == CNN_OK) {
    cnn_results_free(&r);
    return CNN_OK;
  }
  cnn_unref(*out);
  *out = NULL;
  return status;
}

static cnn_status check_gradient(cnn_context *ctx, const cnn_slot *slot, const cnn_tensor *g) {
  cnn_shape_text a, b;
  const cnn_tensor *p = slot->param;
  if (!cnn_shape_equal(g->ndim, g->shape, p->ndim, p->shape))
    return cnn_fail(ctx, CNN_SHAPE, "the gradient of parameter %d has shape %s, the parameter %s",
                    (int)(slot - slot->owner->groups[slot->group].slots) + 1,
                    cnn_shape_format(&a, g->ndim, g->shape),
                    cnn_shape_format(&b, p->ndim, p->shape));
  return CNN_OK;
}

static unsigned wanted_state(const cnn_slot *slot) {
  const cnn_optimizer *o = slot->owner;
  return o->kind->wanted(o->groups[slot->group].settings) & ((1u << o->kind->n_states) - 1);
}

// Makes the state that a step with this gradient needs and the slot lacks.
static cnn_status prepare(cnn_context *ctx, cnn_slot *slot, const cnn_tensor *gradient) {
  unsigned wanted = wanted_state(slot);
  CNN_TRY(check_gradient(ctx, slot, gradient));
  for (int k = 0; wanted >> k; k++) {
    if (!(wanted >> k & 1)) continue;
    // After module:to the state follows its parameter.
    cnn_tensor *t = slot->state[k];
    if (t && !cnn_device_equal(t->device, slot->param->device)) {
      cnn_results r;
      CNN_TRY(cnn_dispatch(ctx, OP_to_device,
                           CNN_ARGS(CNN_A_T(t), CNN_A_DEVICE(slot->param->device)), &r));
      slot->state[k] = cnn_ref(r.t[0]);
      cnn_unref(t);
      cnn_results_free(&r);
    }
    if (slot->state[k]) continue;
    CNN_TRY(make_state(ctx, slot->param, &slot->state[k]));
    slot->fresh |= (uint8_t)(1u << k);
  }
  return CNN_OK;
}

// The step under way is over; one that failed takes the state that it made with it.
static void settle(cnn_slot *slot, bool done) {
  for (int k = 0; slot->fresh >> k && !done; k++) {
    if (!(slot->fresh >> k & 1)) continue;
    cnn_unref(slot->state[k]);
    slot->state[k] = NULL;
  }
  slot->fresh = 0;
}

static void add_to_step(cnn_step *s, cnn_slot *slot, cnn_tensor *gradient) {
  unsigned wanted = wanted_state(slot);
  for (int k = 0; wanted >> k; k++)
    if (wanted >> k & 1) s->state[k][s->n] = slot->state[k];
  s->params[s->n] = slot->param;
  s->grads[s->n] = gradient;
  s->steps[s->n++] = slot->steps + 1;
}

static cnn_status run_step(cnn_context *ctx, const cnn_optimizer *o, const cnn_step *s) {
  cnn_frame f;
  cnn_frame_open(&f, ctx);
  o->kind->step(&f, s);
  return cnn_frame_close(&f);
}

static bool steps_on(const cnn_slot *slot, cnn_device device) {
  return slot->param->grad && cnn_device_equal(slot->param->device, device);
}

// Steps the parameters of a group that lie on the device.
static cnn_status step_group(cnn_context *ctx, cnn_optimizer *o, cnn_group *g, cnn_device device) {
  cnn_step s = {.settings = g->settings};
  size_t n = (size_t)(g->n ? g->n : 1);
  char *block = cnn_malloc(n * ((2 + CNN_MAX_STATE) * sizeof(void *) + sizeof(int64_t)));
  if (!block) return no_memory(ctx);
  s.steps = (int64_t *)block;
  s.params = (cnn_tensor **)(s.steps + n);
  s.grads = s.params + n;
  for (int k = 0; k < CNN_MAX_STATE; k++) s.state[k] = s.grads + n * (size_t)(k + 1);
  for (int i = 0; i < g->n; i++)
    if (steps_on(&g->slots[i], device)) add_to_step(&s, &g->slots[i], g->slots[i].param->grad);
  cnn_status status = run_step(ctx, o, &s);
  for (int i = 0; i < g->n && status == CNN_OK; i++) {
    if (!steps_on(&g->slots[i], device)) continue;
    g->slots[i].steps++;
    settle(&g->slots[i], true);
  }
  cnn_free(block);
  return status;
}

// What a step changes of the context while it runs.
typedef struct modes {
  uint8_t kind;
  bool grad_enabled, inference;
} modes;

static modes enter_step(cnn_context *ctx) {
  modes outer = {ctx->kind, ctx->grad_enabled, ctx->inference};
  ctx->kind = CNN_KIND_STATE;
  ctx->grad_enabled = false;
  ctx->inference = false;
  return outer;
}

static void leave_step(cnn_context *ctx, modes outer) {
  ctx->kind = outer.kind;
  ctx->grad_enabled = outer.grad_enabled;
  ctx->inference = outer.inference;
}

cnn_status cnn_optimizer_step_on(cnn_context *ctx, cnn_optimizer *o, int *next) {
  modes outer = enter_step(ctx);
  cnn_status status = CNN_OK;
  for (int g = 0; g < o->n_groups; g++)
    for (int i = 0; i < o->groups[g].n && status == CNN_OK; i++) {
      cnn_slot *slot = &o->groups[g].slots[i];
      if (slot->param->grad) status = prepare(ctx, slot, slot->param->grad);
    }
  int part = 0;
  for (int g = 0; g < o->n_groups && status == CNN_OK; g++) {
    cnn_device_set met = {0};
    for (int i = 0; i < o->groups[g].n && status == CNN_OK; i++) {
      const cnn_tensor *p = o->groups[g].slots[i].param;
      if (!p->grad || !cnn_device_set_add(&met, p->device) || part++ < *next) continue;
      status = step_group(ctx, o, &o->groups[g], p->device);
      if (status == CNN_OK) (*next)++;
    }
  }
  for (int g = 0; g < o->n_groups; g++)
    for (int i = 0; i < o->groups[g].n; i++) settle(&o->groups[g].slots[i], false);
  leave_step(ctx, outer);
  return status;
}

cnn_status cnn_optimizer_step(cnn_context *ctx, cnn_optimizer *o) {
  int next = 0;
  return cnn_optimizer_step_on(ctx, o, &next);
}

// ---------------------------------------------------------------------------------------------
// Steps within backward

static cnn_status take(cnn_context *ctx, void *self, cnn_tensor *leaf, cnn_tensor *gradient) {
  cnn_slot *slot = self;
  cnn_optimizer *o = slot->owner;
  cnn_tensor *lists[2 + CNN_MAX_STATE];
  int64_t steps;
  (void)leaf;
  cnn_step s = {.settings = o->groups[slot->group].settings,
                .params = &lists[0],
                .grads = &lists[1],
                .steps = &steps};
  for (int k = 0; k < CNN_MAX_STATE; k++) s.state[k] = &lists[2 + k];
  const char *op = ctx->op;
  ctx->op = o->kind->name;
  modes outer = enter_step(ctx);
  cnn_status status = prepare(ctx, slot, gradient);
  if (status == CNN_OK) {
    add_to_step(&s, slot, gradient);
    status = run_step(ctx, o, &s);
  }
  if (status == CNN_OK) slot->steps++;
  settle(slot, status == CNN_OK);
  leave_step(ctx, outer);
  ctx->op = op;
  return status;
}

static cnn_status check_slot(cnn_context *ctx, cnn_slot *slot) {
  const cnn_consumer *c = cnn_consumer_of(slot->param);
  if (!c || c->self == slot) return CNN_OK;
  return cnn_fail(ctx, CNN_STATE,
                  "attach: a parameter is attached to another optimizer already: call detach() on "
                  "that one first");
}

static cnn_status attach_slot(cnn_context *ctx, cnn_slot *slot) {
  CNN_TRY(cnn_consumer_set(ctx, slot->param, (cnn_consumer){take, slot}));
  slot->attached = true;
  return CNN_OK;
}

// Calls `visit` with every slot that the list names (n < 0: all) and counts them.
static cnn_status each_slot(cnn_context *ctx, cnn_optimizer *o, cnn_tensor *const *params, int n,
                            cnn_status (*visit)(cnn_context *ctx, cnn_slot *slot), int *count) {
  *count = 0;
  for (int i = 0; i < n; i++) {
    cnn_slot *slot = cnn_optimizer_slot(o, params[i]);
    if (!slot) continue;
    CNN_TRY(visit(ctx, slot));
    ++*count;
  }
  for (int g = 0; g < o->n_groups && n < 0; g++)
    for (int i = 0; i < o->groups[g].n; i++, ++*count) CNN_TRY(visit(ctx, &o->groups[g].slots[i]));
  return CNN_OK;
}

cnn_status cnn_optimizer_attach(cnn_context *ctx, cnn_optimizer *o, cnn_tensor *const *params,
                                int n) {
  int count;
  CNN_TRY(each_slot(ctx, o, params, n, check_slot, &count));
  if (count == 0)
    return cnn_fail(ctx, CNN_INVALID,
                    "attach: none of the %d parameters given is one of this optimizer's", n);
  cnn_status status = each_slot(ctx, o, params, n, attach_slot, &count);
  if (status != CNN_OK) cnn_optimizer_detach(o);
  return status;
}

static void set_consumer(cnn_slot *slot, bool on) {
  // Neither removing nor setting it again can fail.
  if (slot->attached)
    (void)cnn_consumer_set(NULL, slot->param, on ? (cnn_consumer){take, slot} : (cnn_consumer){0});
}

void cnn_optimizer_pause(cnn_optimizer *o, bool paused) {
  for (int g = 0; g < o->n_groups; g++)
    for (int i = 0; i < o->groups[g].n; i++) set_consumer(&o->groups[g].slots[i], !paused);
}

void cnn_optimizer_detach(cnn_optimizer *o) {
  cnn_optimizer_pause(o, true);
  for (int g = 0; g < o->n_groups; g++)
    for (int i = 0; i < o->groups[g].n; i++) o->groups[g].slots[i].attached = false;
}

cnn_status cnn_optimizer_zero_grad(cnn_context *ctx, cnn_optimizer *o, bool set_to_none) {
  bool grad_enabled = ctx->grad_enabled;
  cnn_status status = CNN_OK;
  ctx->grad_enabled = false;
  for (int g = 0; g < o->n_groups; g++) {
    for (int i = 0; i < o->groups[g].n && status == CNN_OK; i++) {
      cnn_tensor *p = o->groups[g].slots[i].param, *grad = p->grad;
      if (!grad) continue;
      if (set_to_none) {
        p->grad = NULL;
        cnn_unref(grad);
        continue;
      }
      cnn_results r;
      status = cnn_dispatch(ctx, OP_fill_, CNN_ARGS(CNN_A_T(grad), CNN_A_I(0)), &r);
      if (status == CNN_OK) cnn_results_free(&r);
    }
  }
  ctx->grad_enabled = grad_enabled;
  return status;
}

// ---------------------------------------------------------------------------------------------
// Clipping

// Gradients that backward consumed can't be clipped any more.
static cnn_status check_there(cnn_context *ctx, const char *function, cnn_tensor *const *params,
                              int n) {
  for (int i = 0; i < n; i++)
    if (cnn_consumer_of(params[i]))
      return cnn_fail(ctx, CNN_STATE,
                      "%s: parameter %d is stepped inside of backward (opt:attach), where its "
                      "gradient is gone before all are known: clip inside of opt:accumulate(fn) "
                      "and step with opt:step(), or call opt:detach()",
                      function, i + 1);
  return CNN_OK;
}

static int collect_grads(cnn_tensor *const *params, int n, cnn_tensor **grads) {
  int m = 0;
  for (int i = 0; i < n; i++) {
    cnn_tensor *g = params[i]->grad;
    bool twice = false;
    for (int k = 0; k < m && g; k++) twice = twice || grads[k] == g;
    if (g && !twice) grads[m++] = g;
  }
  return m;
}

// Those of `grads` that lie on a device that is not in `met`; 0 when all are.
static int collect_device(cnn_tensor *const *grads, int n, cnn_device_set *met, cnn_tensor **list) {
  int m = 0;
  for (int i = 0; i < n; i++)
    if (m ? cnn_device_equal(grads[i]->device, list[0]->device)
          : cnn_device_set_add(met, grads[i]->device))
      list[m++] = grads[i];
  return m;
}

// The norm of what has these norms.
static double join_norms(const double *norms, int n, double p) {
  double most = 0, sum = 0;
  for (int i = 0; i < n; i++) most = norms[i] > most || isnan(norms[i]) ? norms[i] : most;
  if (n == 1 || most == 0 || !isfinite(most) || isinf(p)) return most;
  for (int i = 0; i < n; i++) sum += pow(norms[i] / most, p);
  return most * pow(sum, 1 / p);
}

cnn_status cnn_clip_grad_norm(cnn_context *ctx, cnn_tensor *const *params, int n, double max_norm,
                              double p, bool check, double *norm) {
  if (!(p > 0))
    return cnn_fail(ctx, CNN_INVALID, "clip_grad_norm_: norm_type must be > 0, not %g", p);
  CNN_TRY(check_there(ctx, "clip_grad_norm_", params, n));
  cnn_tensor **grads = cnn_malloc((size_t)(n ? n : 1) * 2 * sizeof *grads);
  if (!grads) return no_memory(ctx);
  cnn_tensor **list = grads + n, *of_device[CNN_DEVICE_TYPES * CNN_MAX_DEVICES];
  double norms[CNN_DEVICE_TYPES * CNN_MAX_DEVICES];
  bool grad_enabled = ctx->grad_enabled;
  ctx->grad_enabled = false;
  int m = collect_grads(params, n, grads);
  *norm = 0;
  cnn_frame f;
  cnn_frame_open(&f, ctx);
  if (m > 0) {
    cnn_device_set met = {0};
    int k, devices = 0;
    while ((k = collect_device(grads, m, &met, list)) > 0)
      of_device[devices++] = cnn_do(&f, grad_norm, CNN_A_TS(k, list), CNN_A_N(p));
    for (int i = 0; i < devices; i++) norms[i] = cnn_frame_read(&f, of_device[i]);
    *norm = join_norms(norms, devices, p);
    double factor = max_norm / (*norm + 1e-6);
    if (check && f.status == CNN_OK && !isfinite(*norm))
      f.status = cnn_fail(ctx, CNN_INVALID,
                          "clip_grad_norm_: the norm of the gradients is not finite (%g): nothing "
                          "was clipped",
                          *norm);
    // Like PyTorch, a NaN norm makes every gradient NaN rather than passing unseen.
    met = (cnn_device_set){0};
    while (!(factor >= 1) && (k = collect_device(grads, m, &met, list)) > 0)
      cnn_do(&f, grad_scale_, CNN_A_TS(k, list), CNN_A_N(factor));
  }
  cnn_status status = cnn_frame_close(&f);
  ctx->grad_enabled = grad_enabled;
  cnn_free(grads);
  return status;
}

cnn_status cnn_clip_grad_value(cnn_context *ctx, cnn_tensor *const *params, int n, double value) {
  CNN_TRY(check_there(ctx, "clip_grad_value_", params, n));
  bool grad_enabled = ctx->grad_enabled;
  ctx->grad_enabled = false;
  cnn_frame f;
  cnn_frame_open(&f, ctx);
  for (int i = 0; i < n; i++)
    if (params[i]->grad)
      cnn_do_(&f, clamp, CNN_A_T(params[i]->grad), CNN_A_N(-value), CNN_A_N(value));
  ctx->grad_enabled = grad_enabled;
  return cnn_frame_close(&f);
}
