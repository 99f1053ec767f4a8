// SPDX-License-Identifier: MIT
#include "engine/history.h"

#include "engine/dispatch.h"

// Records `view_gather`: t as the elements of its base that it shows. No kernel runs.
static cnn_status record_gather(cnn_context *ctx, cnn_tensor *t, cnn_tensor *base,
                                cnn_node **node) {
  cnn_arg args[] = {CNN_A_T(base), CNN_A_INTS(t->ndim, t->shape), CNN_A_INTS(t->ndim, t->strides),
                    CNN_A_I(t->offset - base->offset), CNN_A_INTS(base->ndim, base->strides)};
  uint8_t declared = 0;
  return cnn_node_create(ctx, cnn_ops_of_engine()->view_gather, args, 5, &base, &declared, 1, &t, 1,
                         false, node);
}

// Records `view_scatter`: the base with the elements that t shows replaced by t.
static cnn_status record_scatter(cnn_context *ctx, cnn_tensor *t, cnn_tensor *base,
                                 cnn_node **node) {
  cnn_tensor *in[] = {base, t};
  cnn_arg args[] = {CNN_A_T(base), CNN_A_T(t), CNN_A_INTS(t->ndim, t->strides),
                    CNN_A_I(t->offset - base->offset), CNN_A_INTS(base->ndim, base->strides)};
  uint8_t declared[] = {0, 1};
  return cnn_node_create(ctx, cnn_ops_of_engine()->view_scatter, args, 5, in, declared, 2, &base, 1,
                         false, node);
}

cnn_status cnn_history_refresh(cnn_context *ctx, cnn_tensor *t) {
  cnn_tensor *base = t->base;
  if (t->generation == base->generation) return CNN_OK;
  if (cnn_requires_grad(base)) {
    cnn_node *node;
    CNN_TRY(record_gather(ctx, t, base, &node));
    cnn_node_attach(node, 0, t);
    cnn_unref(node);
  }
  t->generation = base->generation;
  return CNN_OK;
}

cnn_status cnn_history_check(cnn_context *ctx, cnn_tensor *t, bool record) {
  if (cnn_strides_overlap(t->ndim, t->shape, t->strides))
    return cnn_fail(ctx, CNN_STATE,
                    "several elements of the tensor share memory (it was expanded): clone() it "
                    "before changing it in place");
  const cnn_tensor *root = t->base ? t->base : t;
  if (!ctx->grad_enabled) return CNN_OK;
  if (!root->grad_fn && root->flags & CNN_REQUIRES_GRAD)
    return cnn_fail(ctx, CNN_STATE,
                    "%s that requires a gradient can't be changed in place: use "
                    "cnn.no_grad(function() ... end), or x:detach()",
                    t->base ? "a view of a leaf" : "a leaf");
  if (!record) return CNN_OK;
  if (t->flags & CNN_MULTI_VIEW)
    return cnn_fail(ctx, CNN_STATE,
                    "the tensor is one of several views made by one op (chunk, split, unbind): it "
                    "can't be changed in place while gradients are recorded; clone() it, or use "
                    "narrow or select");
  if (t->flags & CNN_NO_GRAD_VIEW)
    return cnn_fail(ctx, CNN_STATE,
                    "the view was made with gradients off: it can't be changed in place with "
                    "gradients on; make the view again");
  if (t->flags & CNN_INFERENCE && !ctx->inference)
    return cnn_fail(ctx, CNN_STATE,
                    "a tensor made in inference_mode can't be changed in a recorded op; clone it");
  return CNN_OK;
}

cnn_status cnn_rewrite_prepare(cnn_context *ctx, cnn_tensor *t, cnn_node *node, cnn_rewrite *w) {
  *w = (cnn_rewrite){node, NULL, NULL};
  if (!t->base) return CNN_OK;
  cnn_tensor *base = t->base;
  // For a moment t and its base stand for what they will be: recording reads only their histories.
  void *t_before = t->grad_fn, *base_before = base->grad_fn;
  uint16_t t_slot = t->slot, base_slot = base->slot;
  t->grad_fn = node, t->slot = 0;
  cnn_status status = record_scatter(ctx, t, base, &w->base);
  if (status == CNN_OK) {
    base->grad_fn = w->base, base->slot = 0;
    status = record_gather(ctx, t, base, &w->view);
  }
  t->grad_fn = t_before, t->slot = t_slot;
  base->grad_fn = base_before, base->slot = base_slot;
  if (status != CNN_OK) cnn_rewrite_drop(w);
  return status;
}

void cnn_rewrite_commit(cnn_tensor *t, cnn_rewrite *w) {
  if (t->base) {
    cnn_node_attach(w->base, 0, t->base);
    cnn_node_attach(w->view, 0, t);
    t->generation = ++t->base->generation;
  } else {
    cnn_node_attach(w->node, 0, t);
    t->generation++;
  }
  cnn_rewrite_drop(w);
}

void cnn_rewrite_drop(cnn_rewrite *w) {
  cnn_unref(w->node);
  cnn_unref(w->base);
  cnn_unref(w->view);
}
