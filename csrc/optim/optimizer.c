// SPDX-License-Identifier: MIT
#include "optim/optimizer.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
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
    if (!cnn_optimizer_slot(o, params[i])) g->slots[g->n++].param = cnn_ref(params[i]);
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

static cnn_status check_gradient(cnn_context *ctx, const cnn_optimizer *o, const cnn_tensor *p,
                                 int i) {
  cnn_shape_text a, b;
  const cnn_tensor *g = p->grad;
  if (!cnn_shape_equal(g->ndim, g->shape, p->ndim, p->shape))
    return cnn_fail(ctx, CNN_SHAPE,
                    "%s: the gradient of parameter %d has shape %s, the parameter %s",
                    o->kind->name, i + 1, cnn_shape_format(&a, g->ndim, g->shape),
                    cnn_shape_format(&b, p->ndim, p->shape));
  return CNN_OK;
}

// Fills the lists of a step; makes missing state.
static cnn_status gather(cnn_context *ctx, cnn_optimizer *o, cnn_group *g, cnn_step *s) {
  unsigned wanted = o->kind->wanted(g->settings);
  s->n = 0;
  s->settings = g->settings;
  for (int i = 0; i < g->n; i++) {
    cnn_slot *slot = &g->slots[i];
    if (!slot->param->grad) continue;
    CNN_TRY(check_gradient(ctx, o, slot->param, i));
    for (int k = 0; k < o->kind->n_states; k++) {
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
      if (!slot->state[k]) CNN_TRY(make_state(ctx, slot->param, &slot->state[k]));
      s->state[k][s->n] = slot->state[k];
    }
    s->params[s->n] = slot->param;
    s->grads[s->n] = slot->param->grad;
    s->steps[s->n++] = slot->steps + 1;
  }
  return CNN_OK;
}

static void count(cnn_group *g) {
  for (int i = 0; i < g->n; i++)
    if (g->slots[i].param->grad) g->slots[i].steps++;
}

static cnn_status step_group(cnn_context *ctx, cnn_optimizer *o, cnn_group *g) {
  cnn_step s = {0};
  size_t n = (size_t)(g->n ? g->n : 1);
  char *block = cnn_malloc(n * ((2 + CNN_MAX_STATE) * sizeof(void *) + sizeof(int64_t)));
  if (!block) return no_memory(ctx);
  s.steps = (int64_t *)block;
  s.params = (cnn_tensor **)(s.steps + n);
  s.grads = s.params + n;
  for (int k = 0; k < CNN_MAX_STATE; k++) s.state[k] = s.grads + n * (size_t)(k + 1);
  cnn_status status = gather(ctx, o, g, &s);
  if (status == CNN_OK && s.n > 0) {
    cnn_frame f;
    cnn_frame_open(&f, ctx);
    o->kind->step(&f, &s);
    status = cnn_frame_close(&f);
    if (status == CNN_OK) count(g);
  }
  cnn_free(block);
  return status;
}

cnn_status cnn_optimizer_step(cnn_context *ctx, cnn_optimizer *o) {
  uint8_t kind = ctx->kind;
  bool grad_enabled = ctx->grad_enabled, inference = ctx->inference;
  ctx->kind = CNN_KIND_STATE;
  ctx->grad_enabled = false;
  ctx->inference = false;
  cnn_status status = CNN_OK;
  for (int g = 0; g < o->n_groups && status == CNN_OK; g++)
    status = step_group(ctx, o, &o->groups[g]);
  ctx->kind = kind;
  ctx->grad_enabled = grad_enabled;
  ctx->inference = inference;
  return status;
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

cnn_status cnn_clip_grad_norm(cnn_context *ctx, cnn_tensor *const *params, int n, double max_norm,
                              double p, bool check, double *norm) {
  if (!(p > 0))
    return cnn_fail(ctx, CNN_INVALID, "clip_grad_norm_: norm_type must be > 0, not %g", p);
  cnn_tensor **grads = cnn_malloc((size_t)(n ? n : 1) * sizeof *grads);
  if (!grads) return no_memory(ctx);
  bool grad_enabled = ctx->grad_enabled;
  ctx->grad_enabled = false;
  int m = collect_grads(params, n, grads);
  *norm = 0;
  cnn_frame f;
  cnn_frame_open(&f, ctx);
  if (m > 0) {
    cnn_tensor *t = cnn_do(&f, grad_norm, CNN_A_TS(m, grads), CNN_A_N(p));
    *norm = cnn_frame_read(&f, t);
    double factor = max_norm / (*norm + 1e-6);
    if (check && f.status == CNN_OK && !isfinite(*norm))
      f.status = cnn_fail(ctx, CNN_INVALID,
                          "clip_grad_norm_: the norm of the gradients is not finite (%g): nothing "
                          "was clipped",
                          *norm);
    // Like PyTorch, a NaN norm makes every gradient NaN rather than passing unseen.
    if (!(factor >= 1)) cnn_do(&f, grad_scale_, CNN_A_TS(m, grads), CNN_A_N(factor));
  }
  cnn_status status = cnn_frame_close(&f);
  ctx->grad_enabled = grad_enabled;
  cnn_free(grads);
  return status;
}

cnn_status cnn_clip_grad_value(cnn_context *ctx, cnn_tensor *const *params, int n, double value) {
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
