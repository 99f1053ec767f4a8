// SPDX-License-Identifier: MIT
// Running native modules. A Sequential is taken apart into its leaves, so that the pass can stop at
// a leaf (out of memory) and go on there: what was computed is not computed again, and draws from
// the generator and running statistics are not repeated. A layer with its activation is one step.
#include "nn/module.h"

#include "base/alloc.h"
#include "engine/dispatch.h"

#define MAX_DEPTH 64

struct cnn_forward {
  cnn_context *ctx;
  int depth;
  struct {
    cnn_module *m;
    int entry;
  } stack[MAX_DEPTH];
  int n_in;
  cnn_tensor *in[4]; // of the next leaf (referenced)
};

// What lies too deep to be run is native: running it says so.
static bool is_native(const cnn_module *m, int depth) {
  if (m->foreign || m->hooked) return false;
  if (depth == MAX_DEPTH) return true;
  for (int i = 0; i < m->n_entries; i++)
    if (m->entries[i].child && !is_native(m->entries[i].child, depth + 1)) return false;
  return true;
}

bool cnn_module_is_native(const cnn_module *m) {
  return is_native(m, 0);
}

cnn_status cnn_forward_create(cnn_context *ctx, cnn_module *m, cnn_tensor *const *in, int n_in,
                              cnn_forward **out) {
  if (m->layer->n_inputs == 0)
    return cnn_fail(ctx, CNN_UNSUPPORTED, "%s has no forward: call the modules in it",
                    m->layer->name);
  int wanted = m->layer->n_inputs;
  if (n_in != wanted)
    return cnn_fail(ctx, CNN_INVALID, "%s: takes %d tensor%s, got %d", m->layer->name, wanted,
                    wanted == 1 ? "" : "s", n_in);
  cnn_forward *fw = cnn_malloc(sizeof *fw);
  if (!fw) return cnn_fail(ctx, CNN_OOM, "out of memory for a forward pass");
  fw->ctx = ctx;
  fw->depth = 1;
  fw->stack[0].m = cnn_ref(m);
  fw->stack[0].entry = 0;
  fw->n_in = n_in;
  for (int i = 0; i < n_in; i++) fw->in[i] = cnn_ref(in[i]);
  *out = fw;
  return CNN_OK;
}

void cnn_forward_free(cnn_forward *fw) {
  if (!fw) return;
  for (int i = 0; i < fw->depth; i++) cnn_unref(fw->stack[i].m);
  for (int i = 0; i < fw->n_in; i++) cnn_unref(fw->in[i]);
  cnn_free(fw);
}

// `op`: not the leaf's own, but one that computes the next leaf, too; or -1.
static cnn_status run_leaf(cnn_context *ctx, cnn_module *m, int op, cnn_tensor *const *in,
                           cnn_results *r) {
  cnn_frame f;
  const char *outer = ctx->op;
  if (!outer) ctx->op = m->layer->name;
  cnn_results_init(r, ctx);
  cnn_frame_open(&f, ctx);
  // A layer that is one op has read its input for the last time then. (Whether that is one of ours
  // or the caller's, who goes on holding it, the op finds out.)
  if (!m->layer->forward) f.spent = in[0];
  if (op >= 0)
    cnn_module_compute_as(&f, m, op, in, r);
  else
    cnn_module_compute(&f, m, in, r);
  cnn_status status = cnn_frame_close(&f);
  ctx->op = outer;
  if (status != CNN_OK) cnn_results_free(r);
  return status;
}

// Moves to the next leaf and returns it; NULL at the end.
static cnn_module *next_leaf(cnn_forward *fw) {
  while (fw->depth > 0) {
    cnn_module *m = fw->stack[fw->depth - 1].m;
    if (!cnn_layer_is_sequence(m->layer)) return m;
    int i = fw->stack[fw->depth - 1].entry;
    while (i < m->n_entries && !m->entries[i].child) i++;
    if (i == m->n_entries) {
      cnn_unref(m);
      fw->depth--;
      continue;
    }
    fw->stack[fw->depth - 1].entry = i + 1;
    if (fw->depth == MAX_DEPTH) return NULL;
    fw->stack[fw->depth].m = cnn_ref(m->entries[i].child);
    fw->stack[fw->depth++].entry = 0;
  }
  return NULL;
}

// The entry of the leaf that follows the one on the top, in its own sequence; -1: none does.
static int entry_behind(const cnn_forward *fw) {
  if (fw->depth < 2) return -1;
  const cnn_module *m = fw->stack[fw->depth - 2].m;
  int i = fw->stack[fw->depth - 2].entry;
  while (i < m->n_entries && !m->entries[i].child) i++;
  return i < m->n_entries && !cnn_layer_is_sequence(m->entries[i].child->layer) ? i : -1;
}

cnn_status cnn_forward_run(cnn_forward *fw, cnn_results *r) {
  for (;;) {
    cnn_module *leaf = next_leaf(fw);
    if (!leaf && fw->depth == MAX_DEPTH)
      return cnn_fail(fw->ctx, CNN_INVALID, "modules are nested more than %d deep", MAX_DEPTH);
    if (!leaf) break;
    if (leaf->layer->n_inputs != fw->n_in)
      return cnn_fail(fw->ctx, CNN_INVALID, "Sequential: %s does not take one tensor",
                      leaf->layer->name);
    int behind = entry_behind(fw), op = -1;
    if (behind >= 0)
      op = cnn_module_fuses(fw->ctx, leaf, fw->stack[fw->depth - 2].m->entries[behind].child,
                            fw->in[0]);
    CNN_TRY(run_leaf(fw->ctx, leaf, op, fw->in, r));
    if (op >= 0) fw->stack[fw->depth - 2].entry = behind + 1;
    cnn_unref(leaf);
    fw->depth--;
    if (fw->depth == 0) return CNN_OK;
    for (int i = 0; i < fw->n_in; i++) cnn_unref(fw->in[i]);
    fw->n_in = 1;
    fw->in[0] = cnn_ref(r->t[0]);
    cnn_results_free(r);
  }
  // Sequences end here: the last value is the result (an empty one gives its input back).
  cnn_results_init(r, fw->ctx);
  r->t[r->n++] = cnn_ref(fw->in[0]);
  return CNN_OK;
}

cnn_status cnn_module_call(cnn_context *ctx, cnn_module *m, cnn_tensor *const *in, int n_in,
                           cnn_results *r) {
  cnn_forward *fw = NULL;
  if (m->foreign) return cnn_fail(ctx, CNN_UNSUPPORTED, "the module is computed by its host");
  CNN_TRY(cnn_forward_create(ctx, m, in, n_in, &fw));
  cnn_status status = cnn_forward_run(fw, r);
  cnn_forward_free(fw);
  return status;
}
