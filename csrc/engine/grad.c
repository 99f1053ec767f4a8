// SPDX-License-Identifier: MIT
// What an op's backward reads and gives.
#include "engine/dispatch.h"
#include "engine/node.h"

static cnn_tensor *unpack(cnn_grad *g, int index) {
  cnn_tensor *t;
  if (g->f->status != CNN_OK) return NULL;
  cnn_status status = cnn_node_unpack(g->f->ctx, g->node, index, &t);
  if (status != CNN_OK) {
    g->f->status = status;
    return NULL;
  }
  return cnn_frame_own(g->f, t);
}

cnn_tensor *cnn_in(cnn_grad *g, int i) {
  return g->node->forms[i].ndim < 0 ? NULL : unpack(g, i);
}

cnn_tensor *cnn_out(cnn_grad *g, int i) {
  return unpack(g, g->node->n_in + i);
}

const cnn_form *cnn_in_form(const cnn_grad *g, int i) {
  return &g->node->forms[i];
}

const cnn_form *cnn_out_form(const cnn_grad *g, int i) {
  return &g->node->forms[g->node->n_in + i];
}

bool cnn_needs(const cnn_grad *g, int i) {
  return g->node->edges[i].node != NULL || g->node->edges[i].leaf != NULL;
}

int cnn_n_in(const cnn_grad *g) {
  return g->node->n_in;
}

int cnn_op_params(const cnn_grad *g) {
  return g->node->n_args;
}

cnn_tensor *cnn_dy(cnn_grad *g, int i) {
  if (g->dy[i]) return g->dy[i];
  const cnn_form *form = cnn_out_form(g, i);
  return cnn_frame_do(g->f, cnn_ops_of_engine()->full,
                      CNN_ARGS(CNN_A_INTS(form->ndim, form->shape), CNN_A_I(0),
                               CNN_A_I(form->dtype), CNN_A_DEVICE(form->device)));
}

void cnn_give(cnn_grad *g, int i, cnn_tensor *t) {
  if (!t || g->f->status != CNN_OK || !cnn_needs(g, i)) return;
  const cnn_form *form = cnn_in_form(g, i);
  if (!cnn_shape_equal(t->ndim, t->shape, form->ndim, form->shape))
    t = cnn_frame_do(g->f, cnn_ops_of_engine()->sum_to,
                     CNN_ARGS(CNN_A_T(t), CNN_A_INTS(form->ndim, form->shape)));
  if (t && t->dtype != form->dtype)
    t = cnn_frame_do(g->f, cnn_ops_of_engine()->cast, CNN_ARGS(CNN_A_T(t), CNN_A_I(form->dtype)));
  // A number on the CPU among a GPU's tensors gets its gradient where it is.
  if (t && !cnn_device_equal(t->device, form->device) && form->device.type != CNN_META &&
      t->device.type != CNN_META)
    t = cnn_frame_do(g->f, cnn_ops_of_engine()->to_device,
                     CNN_ARGS(CNN_A_T(t), CNN_A_DEVICE(form->device)));
  if (!t) return;
  cnn_unref(g->dx[i]);
  g->dx[i] = cnn_ref(t);
}

cnn_status cnn_node_check_nan(cnn_context *ctx, const cnn_node *node, cnn_tensor *const *dx) {
  char name[64];
  for (int i = 0; i < node->n_in; i++) {
    if (!dx[i] || !cnn_dtype_is_float((cnn_dtype)dx[i]->dtype)) continue;
    cnn_results r;
    double value;
    CNN_TRY(cnn_dispatch(ctx, cnn_ops_of_engine()->has_nan, CNN_ARGS(CNN_A_T(dx[i])), &r));
    cnn_status status = cnn_read_element(ctx, r.t[0], &value);
    cnn_results_free(&r);
    CNN_TRY(status);
    if (value != 0)
      return cnn_fail(ctx, CNN_STATE, "%s returned NaN in its gradient of input %d%s%s",
                      cnn_node_name(node, name, sizeof name), i + 1,
                      node->origin ? "; its forward ran at " : "",
                      node->origin ? node->origin : "");
  }
  return CNN_OK;
}
