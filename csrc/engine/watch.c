// SPDX-License-Identifier: MIT
#include "engine/watch.h"

#include "base/alloc.h"
#include "engine/history.h"

void cnn_watch_init(cnn_watch *w, const cnn_context *ctx) {
  *w = (cnn_watch){.since = ctx->sequence};
}

void cnn_watch_free(cnn_watch *w) {
  for (int i = 0; i < w->n; i++) cnn_unref(w->list[i]);
  cnn_free(w->list);
  w->list = NULL;
  w->n = w->capacity = 0;
}

int cnn_watch_find(const cnn_watch *w, const cnn_tensor *t) {
  for (int i = 0; i < w->n; i++) {
    const cnn_tensor *other = w->list[i];
    bool same = t->grad_fn ? other->grad_fn == t->grad_fn && other->slot == t->slot : other == t;
    if (same) return i;
  }
  return -1;
}

static cnn_status append(cnn_context *ctx, cnn_watch *w, cnn_tensor *t) {
  if (w->n == w->capacity) {
    int capacity = w->capacity ? 2 * w->capacity : 8;
    cnn_tensor **list = cnn_realloc(w->list, (size_t)capacity * sizeof(cnn_tensor *));
    if (!list) return cnn_fail(ctx, CNN_OOM, "out of memory for a checkpoint");
    w->list = list;
    w->capacity = capacity;
  }
  w->list[w->n++] = cnn_ref(t);
  return CNN_OK;
}

cnn_status cnn_watch_note(cnn_context *ctx, cnn_watch *w, cnn_tensor *const *in, int n_in) {
  for (int i = 0; i < n_in; i++) {
    cnn_tensor *t = in[i];
    if (!t) continue;
    if (t->base) CNN_TRY(cnn_history_refresh(ctx, t));
    if (!cnn_requires_grad(t)) continue;
    const cnn_node *node = t->grad_fn;
    if (node && node->sequence > w->since) continue;
    if (cnn_watch_find(w, t) < 0) CNN_TRY(append(ctx, w, t));
  }
  return CNN_OK;
}
