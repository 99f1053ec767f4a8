// SPDX-License-Identifier: MIT
// Changes in place and the history of views.
//
// A view has a base: the tensor whose bytes it shows. Changing a view in place changes its base, so
// both get a new history: the base becomes "the old base with the view's elements replaced"
// (view_scatter), and every view of it is derived from that anew (view_of) when it is next read.
#ifndef CNN_ENGINE_HISTORY_H
#define CNN_ENGINE_HISTORY_H

#include "engine/node.h"

// Before t is read as an input of a recorded op: derives its history anew if its base has changed.
cnn_status cnn_history_refresh(cnn_context *ctx, cnn_tensor *t);

// Whether t may be changed in place now; `record`: with gradients. Fails with the reason.
cnn_status cnn_history_check(cnn_context *ctx, cnn_tensor *t, bool record);

// The new history of a tensor that is about to be changed in place. Prepared before the change, so
// that committing it can't fail.
typedef struct cnn_rewrite {
  cnn_node *node; // of the change
  cnn_node *base; // of t's base, when t is a view
  cnn_node *view; // of t itself, when t is a view
} cnn_rewrite;

// Takes over `node` (also on failure).
cnn_status cnn_rewrite_prepare(cnn_context *ctx, cnn_tensor *t, cnn_node *node, cnn_rewrite *w);
void cnn_rewrite_commit(cnn_tensor *t, cnn_rewrite *w);
void cnn_rewrite_drop(cnn_rewrite *w);

#endif
