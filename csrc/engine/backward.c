// SPDX-License-Identifier: MIT
// Every node and leaf that takes part has an entry: how many gradients are still to come, and what
// came so far. Nodes whose gradients are complete wait in a heap, the latest made first, so that
// memory is freed in the order in which the forward took it.
#include "engine/backward.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/dispatch.h"
#include "engine/history.h"
#include "engine/pass.h"
#include "memory/simulation.h"

typedef cnn_pass_entry entry;

typedef struct input {
  cnn_tensor *t;
  int slot;
  int next; // 1 + the next input on the same entry
  cnn_tensor *grad;
} input;

typedef enum step { STEP_NEXT, STEP_HOOKS, STEP_COMPUTE, STEP_ROUTE, STEP_LEAVES, STEP_DONE } step;

struct cnn_engine {
  cnn_context *ctx;
  unsigned flags;
  cnn_pass pass;
  // Max-heap of entry numbers by node sequence.
  int n_ready, *ready;
  int n_inputs;
  input *inputs;
  // The node under way.
  step step;
  int current, routed;
  int64_t hook, last_hook; // ids of the hook that ran last, and of the last that may run
  int dx_capacity;
  cnn_tensor **dx;
  int leaf; // next leaf entry to finish
  cnn_engine_call call;
  bool answered;
  cnn_tensor *hook_in;
  int hook_slot;
};

static cnn_status no_memory(cnn_engine *e) {
  return cnn_fail(e->ctx, CNN_OOM, "out of memory for the backward pass");
}

static cnn_status obtain_edge(cnn_engine *e, const cnn_edge *edge, int *at) {
  if (edge->node)
    return cnn_pass_obtain(e->ctx, &e->pass, &edge->node->object, false, edge->node->n_out, at);
  if (edge->leaf) return cnn_pass_obtain(e->ctx, &e->pass, &edge->leaf->object, true, 1, at);
  *at = -1;
  return CNN_OK;
}

// ---------------------------------------------------------------------------------------------
// Heap of ready nodes

static uint64_t sequence(const cnn_engine *e, int at) {
  return ((const cnn_node *)(const void *)e->pass.entries[at].key)->sequence;
}

static void push(cnn_engine *e, int at) {
  int i = e->n_ready++;
  for (; i > 0 && sequence(e, e->ready[(i - 1) / 2]) < sequence(e, at); i = (i - 1) / 2)
    e->ready[i] = e->ready[(i - 1) / 2];
  e->ready[i] = at;
}

static int pop(cnn_engine *e) {
  int top = e->ready[0], last = e->ready[--e->n_ready], i = 0;
  for (;;) {
    int child = 2 * i + 1;
    if (child >= e->n_ready) break;
    if (child + 1 < e->n_ready && sequence(e, e->ready[child + 1]) > sequence(e, e->ready[child]))
      child++;
    if (sequence(e, e->ready[child]) <= sequence(e, last)) break;
    e->ready[i] = e->ready[child];
    i = child;
  }
  e->ready[i] = last;
  return top;
}

// ---------------------------------------------------------------------------------------------
// Gradients

static bool sole_owner(const cnn_tensor *t) {
  return cnn_refs(t) == 1 && cnn_refs(t->buffer) == 1 && !t->grad_fn &&
         cnn_strides_dense(t->ndim, t->shape, t->strides);
}

// Adds g to *slot, which may be empty.
static cnn_status accumulate(cnn_engine *e, cnn_tensor **slot, cnn_tensor *g) {
  if (!*slot) {
    *slot = cnn_ref(g);
    return CNN_OK;
  }
  cnn_arg args[] = {CNN_A_T(*slot), CNN_A_T(g)};
  int add = cnn_ops_of_engine()->add;
  cnn_results r;
  if (!(e->flags & CNN_BACKWARD_CREATE) && sole_owner(*slot) && (*slot)->dtype == g->dtype)
    CNN_TRY(cnn_dispatch_in_place(e->ctx, add, args, 2, &r));
  else
    CNN_TRY(cnn_dispatch(e->ctx, add, args, 2, &r));
  cnn_unref(*slot);
  *slot = cnn_ref(r.t[0]);
  cnn_results_free(&r);
  return CNN_OK;
}

static cnn_status call_op(cnn_context *ctx, int op, const cnn_arg *args, int n, cnn_tensor **out) {
  cnn_results r;
  CNN_TRY(cnn_dispatch(ctx, op, args, n, &r));
  *out = cnn_ref(r.t[0]);
  cnn_results_free(&r);
  return CNN_OK;
}

static cnn_status root_gradient(cnn_engine *e, cnn_tensor *root, cnn_tensor *given,
                                cnn_tensor **out) {
  cnn_shape_text a, b;
  if (!cnn_requires_grad(root))
    return cnn_fail(e->ctx, CNN_STATE,
                    "backward: the tensor has no gradient to compute: nothing it was made from "
                    "requires one (or it was made under no_grad)");
  if (!given) {
    if (cnn_numel(root) != 1)
      return cnn_fail(e->ctx, CNN_SHAPE,
                      "backward: a tensor of shape %s needs a gradient of that shape; without one, "
                      "start from a single number, such as a loss",
                      cnn_shape_format(&a, root->ndim, root->shape));
    return call_op(e->ctx, cnn_ops_of_engine()->full,
                   CNN_ARGS(CNN_A_INTS(root->ndim, root->shape), CNN_A_I(1), CNN_A_I(root->dtype),
                            CNN_A_DEVICE(root->device)),
                   out);
  }
  if (!cnn_shape_equal(root->ndim, root->shape, given->ndim, given->shape))
    return cnn_fail(e->ctx, CNN_SHAPE, "backward: the gradient's shape %s is not the tensor's, %s",
                    cnn_shape_format(&a, given->ndim, given->shape),
                    cnn_shape_format(&b, root->ndim, root->shape));
  if (!cnn_device_equal(root->device, given->device))
    return cnn_fail(e->ctx, CNN_DEVICE, "backward: the tensor is on %s, its gradient on %s",
                    cnn_device_name(root->device), cnn_device_name(given->device));
  if (root->dtype != given->dtype)
    return call_op(e->ctx, cnn_ops_of_engine()->cast,
                   CNN_ARGS(CNN_A_T(given), CNN_A_I(root->dtype)), out);
  *out = cnn_ref(given);
  return CNN_OK;
}

static cnn_edge edge_of(cnn_tensor *t) {
  if (t->grad_fn) return (cnn_edge){t->grad_fn, NULL, t->slot};
  return (cnn_edge){NULL, t, 0};
}

static cnn_status add_root(cnn_engine *e, cnn_tensor *root, cnn_tensor *given) {
  cnn_tensor *g;
  int at;
  if (root->base) CNN_TRY(cnn_history_refresh(e->ctx, root));
  CNN_TRY(root_gradient(e, root, given, &g));
  cnn_edge edge = edge_of(root);
  cnn_status status = obtain_edge(e, &edge, &at);
  if (status == CNN_OK) status = accumulate(e, cnn_pass_grad(&e->pass.entries[at], edge.slot), g);
  cnn_unref(g);
  return status;
}

static cnn_status add_input(cnn_engine *e, cnn_tensor *t, int i) {
  int at;
  if (t->base) CNN_TRY(cnn_history_refresh(e->ctx, t));
  if (!cnn_requires_grad(t))
    return cnn_fail(e->ctx, CNN_STATE, "grad: input %d does not require a gradient", i + 1);
  cnn_edge edge = edge_of(t);
  CNN_TRY(obtain_edge(e, &edge, &at));
  e->inputs[i] = (input){cnn_ref(t), edge.slot, e->pass.entries[at].capture, NULL};
  e->pass.entries[at].capture = i + 1;
  return CNN_OK;
}

// An input that the pass does not go behind.
static bool is_end(const cnn_engine *e, const entry *x) {
  return e->flags & CNN_BACKWARD_STOP && x->capture;
}

static void pass_on(entry *x) {
  x->wanted = x->passes = true;
}

// Finds what the roots lead to, which of it is wanted, and how many gradients each will get.
// Entries grow while we walk, so they are named by number.
static cnn_status discover(cnn_engine *e, int n_roots_and_inputs) {
  bool all = e->n_inputs == 0;
  int depth = 0, capacity = 64;
  int *stack = cnn_malloc((size_t)capacity * sizeof *stack);
  if (!stack) return no_memory(e);
  cnn_status status = CNN_OK;
  for (int root = 0; root < n_roots_and_inputs && status == CNN_OK; root++) {
    if (e->pass.entries[root].edge) continue;
    stack[depth++] = root;
    e->pass.entries[root].edge = 1;
    while (depth > 0 && status == CNN_OK) {
      entry *x = &e->pass.entries[stack[depth - 1]];
      cnn_node *node = x->leaf || is_end(e, x) ? NULL : (cnn_node *)x->key;
      if (x->edge == 1) x->wanted = x->capture || all, x->passes |= all;
      if (!node || x->edge > node->n_in) {
        if (--depth > 0 && x->wanted) pass_on(&e->pass.entries[stack[depth - 1]]);
        continue;
      }
      int at;
      status = obtain_edge(e, &node->edges[x->edge - 1], &at);
      if (status != CNN_OK) break;
      x = &e->pass.entries[stack[depth - 1]];
      x->edge++;
      if (at < 0) continue;
      if (e->pass.entries[at]
              .edge) { // seen; finished unless it is on the stack, which a DAG excludes
        if (e->pass.entries[at].wanted) pass_on(x);
        continue;
      }
      if (depth == capacity) {
        int *more = cnn_realloc(stack, (size_t)(2 * capacity) * sizeof *stack);
        if (!more) {
          status = no_memory(e);
          break;
        }
        stack = more;
        capacity *= 2;
      }
      e->pass.entries[at].edge = 1;
      stack[depth++] = at;
    }
  }
  cnn_free(stack);
  CNN_TRY(status);
  for (int k = 0; k < e->pass.n; k++) {
    if (e->pass.entries[k].leaf || !e->pass.entries[k].wanted || is_end(e, &e->pass.entries[k]))
      continue;
    cnn_node *node = (cnn_node *)e->pass.entries[k].key;
    for (int i = 0; i < node->n_in; i++) {
      const cnn_edge *edge = &node->edges[i];
      int at = cnn_pass_find(&e->pass, edge->node ? (void *)edge->node : (void *)edge->leaf);
      if (at >= 0 && (edge->node || edge->leaf)) e->pass.entries[at].pending++;
    }
  }
  e->ready = cnn_malloc(((size_t)e->pass.n + 1) * sizeof *e->ready);
  if (!e->ready) return no_memory(e);
  for (int k = 0; k < e->pass.n; k++)
    if (!e->pass.entries[k].leaf && e->pass.entries[k].wanted && e->pass.entries[k].pending == 0)
      push(e, k);
  return CNN_OK;
}

// A consumer changes the leaf, and then the recorded graph of its gradient is no longer true.
static cnn_status check_consumers(const cnn_engine *e) {
  if (!(e->flags & CNN_BACKWARD_CREATE) || e->n_inputs > 0) return CNN_OK;
  for (int k = 0; k < e->pass.n; k++)
    if (e->pass.entries[k].leaf && cnn_consumer_of((cnn_tensor *)e->pass.entries[k].key))
      return cnn_fail(e->ctx, CNN_STATE,
                      "backward: {create_graph = true} can't be combined with an optimizer that "
                      "steps inside of backward: call opt:detach() first");
  return CNN_OK;
}

cnn_status cnn_engine_create(cnn_context *ctx, cnn_tensor *const *roots, cnn_tensor *const *grads,
                             int n_roots, cnn_tensor *const *inputs, int n_inputs, unsigned flags,
                             cnn_engine **out) {
  cnn_engine *e = cnn_calloc(sizeof *e);
  if (!e) return cnn_fail(ctx, CNN_OOM, "out of memory for the backward pass");
  e->ctx = ctx;
  e->flags = flags & CNN_BACKWARD_CREATE ? flags | CNN_BACKWARD_RETAIN : flags;
  bool grad_enabled = ctx->grad_enabled;
  ctx->grad_enabled = false;
  cnn_status status = CNN_OK;
  if (n_inputs > 0) {
    e->inputs = cnn_calloc((size_t)n_inputs * sizeof *e->inputs);
    if (!e->inputs)
      status = no_memory(e);
    else
      e->n_inputs = n_inputs;
  }
  for (int i = 0; i < n_roots && status == CNN_OK; i++)
    status = add_root(e, roots[i], grads ? grads[i] : NULL);
  for (int i = 0; i < n_inputs && status == CNN_OK; i++) status = add_input(e, inputs[i], i);
  if (status == CNN_OK) status = discover(e, e->pass.n);
  if (status == CNN_OK) status = check_consumers(e);
  ctx->grad_enabled = grad_enabled;
  if (status != CNN_OK) {
    cnn_engine_free(e);
    return status;
  }
  *out = e;
  return CNN_OK;
}

void cnn_engine_free(cnn_engine *e) {
  if (!e) return;
  cnn_pass_free(&e->pass);
  for (int i = 0; i < e->n_inputs; i++) {
    cnn_unref(e->inputs[i].t);
    cnn_unref(e->inputs[i].grad);
  }
  for (int i = 0; i < e->dx_capacity; i++) cnn_unref(e->dx[i]);
  cnn_free(e->dx);
  cnn_free(e->inputs);
  cnn_free(e->ready);
  cnn_free(e);
}

// ---------------------------------------------------------------------------------------------
// Steps

static cnn_node *current_node(const cnn_engine *e) {
  return (cnn_node *)e->pass.entries[e->current].key;
}

static cnn_status reserve_dx(cnn_engine *e, int n) {
  if (n > e->dx_capacity) {
    cnn_tensor **dx = cnn_realloc(e->dx, (size_t)n * sizeof *dx);
    if (!dx) return no_memory(e);
    memset(dx + e->dx_capacity, 0, (size_t)(n - e->dx_capacity) * sizeof *dx);
    e->dx = dx;
    e->dx_capacity = n;
  }
  return CNN_OK;
}

static void clear_dx(cnn_engine *e) {
  for (int i = 0; i < e->dx_capacity; i++) {
    cnn_unref(e->dx[i]);
    e->dx[i] = NULL;
  }
}

static void start_hooks(cnn_engine *e) {
  e->hook = 0;
  e->last_hook = (int64_t)e->ctx->sequence;
}

// Asks the host to run the next hook, if there is one. True when it must.
static bool next_hook(cnn_engine *e, const cnn_hooks *hooks, cnn_node *node) {
  entry *x = &e->pass.entries[e->current];
  // By id: a hook may remove itself or others, or add some, which run in the next pass.
  for (int i = 0; hooks && i < hooks->n; i++) {
    const cnn_hook *h = &hooks->list[i];
    cnn_tensor *g = *cnn_pass_grad(x, h->slot);
    if (h->id <= e->hook || h->id > e->last_hook || !g) continue;
    e->hook = h->id;
    e->hook_slot = h->slot;
    e->hook_in = g;
    e->call =
        (cnn_engine_call){h->function, true,       (e->flags & CNN_BACKWARD_CREATE) != 0, node, 1,
                          1,           &e->hook_in};
    return true;
  }
  return false;
}

static bool any_gradient(entry *x) {
  for (int i = 0; i < x->n_grads; i++)
    if (*cnn_pass_grad(x, i)) return true;
  return false;
}

static void collect_inputs(cnn_engine *e, entry *x) {
  for (int i = x->capture; i; i = e->inputs[i - 1].next) {
    input *in = &e->inputs[i - 1];
    cnn_tensor *g = *cnn_pass_grad(x, in->slot);
    cnn_unref(in->grad);
    in->grad = g ? cnn_ref(g) : NULL;
  }
}

cnn_tensor *cnn_source_result(cnn_grad *g, int i, int op, int k) {
  cnn_engine *e = g->f->ctx->engine;
  const cnn_edge *edge = &g->node->edges[i];
  cnn_node *source = edge->node;
  cnn_tensor *t;
  if (!source || source->op != op || edge->slot != 0 || source->hooks || g->f->status != CNN_OK)
    return NULL;
  entry *x = &e->pass.entries[cnn_pass_find(&e->pass, source)];
  if (x->pending != 1 || !x->passes || x->capture || any_gradient(x)) return NULL;
  g->f->status = cnn_node_unpack(g->f->ctx, source, source->n_in + k, &t);
  return g->f->status == CNN_OK ? cnn_frame_own(g->f, t) : NULL;
}

void cnn_give_through(cnn_grad *g, int i, cnn_tensor *t) {
  cnn_engine *e = g->f->ctx->engine;
  cnn_give(g, i, t);
  e->pass.entries[cnn_pass_find(&e->pass, g->node->edges[i].node)].through = true;
}

static cnn_status compute(cnn_engine *e) {
  cnn_node *node = current_node(e);
  entry *x = &e->pass.entries[e->current];
  char name[64];
  if (node->released)
    return cnn_fail(e->ctx, CNN_STATE,
                    "backward: the graph was freed by an earlier backward; call that one with "
                    "{retain_graph = true}");
  if (node->op < 0) {
    e->call =
        (cnn_engine_call){node->function, false,      (e->flags & CNN_BACKWARD_CREATE) != 0, node,
                          node->n_out,    node->n_in, x->grads ? x->grads : &x->one};
    return CNN_CALL;
  }
  cnn_context *ctx = e->ctx;
  const char *outer = ctx->op;
  uint8_t kind = ctx->kind;
  bool grad_enabled = ctx->grad_enabled;
  ctx->op = cnn_node_name(node, name, sizeof name);
  ctx->kind = CNN_KIND_GRADIENT;
  ctx->grad_enabled = (e->flags & CNN_BACKWARD_CREATE) != 0;
  cnn_frame f;
  cnn_frame_open(&f, ctx);
  cnn_grad g = {&f, node, node->args, x->grads ? x->grads : &x->one, e->dx, node->rng, x->through};
  cnn_op_at(node->op)->op->backward(&g);
  cnn_status status = cnn_frame_close(&f);
  if (status == CNN_OK && ctx->anomaly) status = cnn_node_check_nan(ctx, node, e->dx);
  ctx->op = outer;
  ctx->kind = kind;
  ctx->grad_enabled = grad_enabled;
  if (status != CNN_OK) clear_dx(e);
  return status;
}

// t in a dtype: a new reference. Recorded where the gradients are.
static cnn_status in_dtype(cnn_engine *e, cnn_tensor *t, cnn_dtype dtype, cnn_tensor **out) {
  if (t->dtype == dtype) {
    *out = cnn_ref(t);
    return CNN_OK;
  }
  bool grad_enabled = e->ctx->grad_enabled;
  e->ctx->grad_enabled = (e->flags & CNN_BACKWARD_CREATE) != 0;
  cnn_status status =
      call_op(e->ctx, cnn_ops_of_engine()->cast, CNN_ARGS(CNN_A_T(t), CNN_A_I(dtype)), out);
  e->ctx->grad_enabled = grad_enabled;
  return status;
}

// The gradient that a host function gave for input i, in the input's dtype: a new reference.
static cnn_status take_answer(cnn_engine *e, cnn_node *node, int i, cnn_tensor *t,
                              cnn_tensor **out) {
  char name[64];
  cnn_shape_text a, b;
  const cnn_form *form = &node->forms[i];
  if (!cnn_shape_equal(t->ndim, t->shape, form->ndim, form->shape))
    return cnn_fail(e->ctx, CNN_SHAPE, "%s gave a gradient of shape %s for input %d, which is %s",
                    cnn_node_name(node, name, sizeof name), cnn_shape_format(&a, t->ndim, t->shape),
                    i + 1, cnn_shape_format(&b, form->ndim, form->shape));
  if (!cnn_device_equal(t->device, form->device))
    return cnn_fail(e->ctx, CNN_DEVICE, "%s gave a gradient on %s for input %d, which is on %s",
                    cnn_node_name(node, name, sizeof name), cnn_device_name(t->device), i + 1,
                    cnn_device_name(form->device));
  return in_dtype(e, t, (cnn_dtype)form->dtype, out);
}

// What a hook returned in place of the gradient `old`, in its dtype: a new reference.
static cnn_status take_hooked(cnn_engine *e, cnn_tensor *t, const cnn_tensor *old,
                              cnn_tensor **out) {
  cnn_shape_text a, b;
  if (!cnn_shape_equal(t->ndim, t->shape, old->ndim, old->shape))
    return cnn_fail(e->ctx, CNN_SHAPE,
                    "backward: a hook returned shape %s for a gradient of shape %s",
                    cnn_shape_format(&a, t->ndim, t->shape),
                    cnn_shape_format(&b, old->ndim, old->shape));
  if (!cnn_device_equal(t->device, old->device))
    return cnn_fail(e->ctx, CNN_DEVICE,
                    "backward: a hook returned a tensor on %s for a gradient on %s",
                    cnn_device_name(t->device), cnn_device_name(old->device));
  return in_dtype(e, t, (cnn_dtype)old->dtype, out);
}

cnn_status cnn_engine_answer(cnn_engine *e, cnn_tensor *const *results, int n) {
  entry *x = &e->pass.entries[e->current];
  if (e->call.hook) {
    cnn_tensor **g = cnn_pass_grad(x, e->hook_slot), *old = *g;
    if (n < 1 || !results[0]) return CNN_OK;
    CNN_TRY(take_hooked(e, results[0], old, g));
    cnn_unref(old);
    return CNN_OK;
  }
  cnn_node *node = current_node(e);
  cnn_status status = CNN_OK;
  for (int i = 0; i < n && i < node->n_in && status == CNN_OK; i++)
    if (results[i]) status = take_answer(e, node, i, results[i], &e->dx[i]);
  e->answered = status == CNN_OK;
  return status;
}

// Predictions tell leaves' gradients from others as soon as they are there.
static void count_as_gradient(cnn_tensor *t) {
  if (cnn_is_simulated(t->buffer)) cnn_buffer_retag(t->buffer, CNN_KIND_GRADIENT);
}

// Gives a leaf's whole gradient to its consumer. May be entered again after a failure.
static cnn_status consume(cnn_engine *e, entry *x) {
  cnn_tensor *leaf = (cnn_tensor *)x->key, *old = leaf->grad;
  const cnn_consumer *c = cnn_consumer_of(leaf);
  if (old && !x->summed) CNN_TRY(accumulate(e, &x->one, old));
  x->summed = true;
  CNN_TRY(c->take(e->ctx, c->self, leaf, x->one));
  cnn_unref(x->one);
  x->one = NULL;
  leaf->grad = NULL;
  cnn_unref(old);
  return CNN_OK;
}

// Whether the leaf's gradient is complete with the contribution just added, and may be consumed at
// once: hooks of the host see it at the end of the pass, before its consumer.
static bool consumed_now(const cnn_engine *e, const entry *x) {
  if (!x->leaf || x->pending != 1 || !x->one || e->n_inputs > 0) return false;
  const cnn_tensor *leaf = (const cnn_tensor *)x->key;
  return cnn_consumer_of(leaf) && ((const cnn_hooks *)leaf->hooks)->n == 0;
}

// Hands the current node's gradients on. May be entered again after a failure.
static cnn_status route(cnn_engine *e) {
  cnn_node *node = current_node(e);
  bool grad_enabled = e->ctx->grad_enabled;
  uint8_t kind = e->ctx->kind;
  cnn_status status = CNN_OK;
  e->ctx->grad_enabled = (e->flags & CNN_BACKWARD_CREATE) != 0;
  e->ctx->kind = CNN_KIND_GRADIENT;
  for (; e->routed < node->n_in && status == CNN_OK; e->routed++) {
    const cnn_edge *edge = &node->edges[e->routed];
    if (!edge->node && !edge->leaf) continue;
    int at = cnn_pass_find(&e->pass, edge->node ? (void *)edge->node : (void *)edge->leaf);
    if (at < 0) continue;
    entry *to = &e->pass.entries[at];
    if (e->dx[e->routed] && to->wanted) {
      cnn_tensor *g = e->dx[e->routed];
      e->dx[e->routed] = NULL; // so that the slot may come to own it alone
      status = accumulate(e, cnn_pass_grad(to, edge->slot), g);
      if (status != CNN_OK) {
        e->dx[e->routed] = g;
        break;
      }
      cnn_unref(g);
      if (to->leaf) count_as_gradient(*cnn_pass_grad(to, edge->slot));
    }
    if (consumed_now(e, to)) status = consume(e, to);
    if (status != CNN_OK) break;
    if (--to->pending == 0 && !to->leaf && to->wanted) push(e, at);
  }
  e->ctx->grad_enabled = grad_enabled;
  e->ctx->kind = kind;
  return status;
}

static void drop_gradients(cnn_engine *e) {
  entry *x = &e->pass.entries[e->current];
  for (int i = 0; i < x->n_grads; i++) {
    cnn_tensor **g = cnn_pass_grad(x, i);
    cnn_unref(*g);
    *g = NULL;
  }
  clear_dx(e);
}

static void finish_node(cnn_engine *e) {
  drop_gradients(e);
  if (!(e->flags & CNN_BACKWARD_RETAIN)) cnn_node_release(current_node(e));
}

// The gradient that a leaf will get, as a tensor of its own in the leaf's layout.
static cnn_status own_gradient(cnn_engine *e, cnn_tensor *leaf, cnn_tensor **slot) {
  cnn_tensor *g = *slot, *copy;
  if (e->flags & CNN_BACKWARD_CREATE) return CNN_OK;
  bool same_layout = cnn_shape_equal(g->ndim, g->strides, leaf->ndim, leaf->strides) ||
                     (cnn_is_contiguous(g) && cnn_is_contiguous(leaf));
  bool leaf_dense = cnn_strides_dense(leaf->ndim, leaf->shape, leaf->strides);
  if (sole_owner(g) && (same_layout || !leaf_dense)) return CNN_OK;
  cnn_meta meta;
  cnn_meta_of(leaf, &meta);
  if (!leaf_dense) cnn_shape_strides(meta.ndim, meta.shape, meta.strides);
  CNN_TRY(cnn_tensor_empty(e->ctx, &meta, &copy));
  cnn_results r;
  cnn_status status =
      cnn_dispatch(e->ctx, cnn_ops_of_engine()->copy_, CNN_ARGS(CNN_A_T(copy), CNN_A_T(g)), &r);
  if (status != CNN_OK) {
    cnn_unref(copy);
    return status;
  }
  cnn_results_free(&r);
  cnn_unref(g);
  *slot = copy;
  return CNN_OK;
}

// Everything that can fail, for every leaf, before the first .grad changes.
static cnn_status prepare_leaves(cnn_engine *e) {
  for (int k = 0; k < e->pass.n; k++) {
    entry *x = &e->pass.entries[k];
    if (!x->leaf || !x->one) continue;
    cnn_tensor *leaf = (cnn_tensor *)x->key;
    if (!leaf->grad) {
      CNN_TRY(own_gradient(e, leaf, &x->one));
    } else if (!x->summed && (e->flags & CNN_BACKWARD_CREATE || leaf->grad->grad_fn)) {
      cnn_tensor *sum;
      CNN_TRY(call_op(e->ctx, cnn_ops_of_engine()->add,
                      CNN_ARGS(CNN_A_T(leaf->grad), CNN_A_T(x->one)), &sum));
      cnn_unref(x->one);
      x->one = sum;
      x->summed = true;
    }
  }
  return CNN_OK;
}

static cnn_status commit_leaf(cnn_engine *e, entry *x) {
  cnn_tensor *leaf = (cnn_tensor *)x->key;
  bool replace = !leaf->grad || e->flags & CNN_BACKWARD_CREATE || leaf->grad->grad_fn;
  if (replace) {
    cnn_tensor *old = leaf->grad;
    leaf->grad = cnn_ref(x->one);
    cnn_buffer_retag(leaf->grad->buffer, CNN_KIND_GRADIENT);
    cnn_unref(old);
    return CNN_OK;
  }
  cnn_results r;
  CNN_TRY(cnn_dispatch_in_place(e->ctx, cnn_ops_of_engine()->add,
                                CNN_ARGS(CNN_A_T(leaf->grad), CNN_A_T(x->one)), &r));
  cnn_results_free(&r);
  return CNN_OK;
}

static cnn_status finish_leaves(cnn_engine *e) {
  bool grad_enabled = e->ctx->grad_enabled;
  uint8_t kind = e->ctx->kind;
  e->ctx->grad_enabled = (e->flags & CNN_BACKWARD_CREATE) != 0;
  e->ctx->kind = CNN_KIND_GRADIENT;
  cnn_status status = CNN_OK;
  for (int k = 0; k < e->pass.n && e->n_inputs == 0 && status == CNN_OK; k++) {
    entry *x = &e->pass.entries[k];
    if (x->leaf && x->one && cnn_consumer_of((cnn_tensor *)x->key)) status = consume(e, x);
  }
  if (status == CNN_OK && e->n_inputs == 0) status = prepare_leaves(e);
  for (int k = 0; k < e->pass.n && status == CNN_OK; k++) {
    entry *x = &e->pass.entries[k];
    if (!x->leaf || !x->one) continue;
    if (e->n_inputs > 0) {
      collect_inputs(e, x);
      continue;
    }
    status = commit_leaf(e, x);
    if (status != CNN_OK) continue;
    cnn_unref(x->one);
    x->one = NULL;
  }
  e->ctx->grad_enabled = grad_enabled;
  e->ctx->kind = kind;
  return status;
}

// Hooks of leaves run on the whole gradient, before it is added.
static bool leaf_hook(cnn_engine *e) {
  for (; e->leaf < e->pass.n; e->leaf++, start_hooks(e)) {
    entry *x = &e->pass.entries[e->leaf];
    if (!x->leaf || !x->one || e->flags & CNN_BACKWARD_STOP) continue;
    e->current = e->leaf;
    if (next_hook(e, ((cnn_tensor *)x->key)->hooks, NULL)) return true;
  }
  return false;
}

static cnn_status step_once(cnn_engine *e) {
  switch (e->step) {
  case STEP_NEXT:
    if (e->n_ready == 0) {
      e->step = STEP_LEAVES;
      e->leaf = 0;
      start_hooks(e);
      return CNN_OK;
    }
    e->current = pop(e);
    if (is_end(e, &e->pass.entries[e->current])) {
      collect_inputs(e, &e->pass.entries[e->current]);
      return CNN_OK;
    }
    start_hooks(e);
    e->routed = 0;
    e->step = STEP_HOOKS;
    return CNN_OK;
  case STEP_HOOKS:
    if (next_hook(e, current_node(e)->hooks, current_node(e))) return CNN_CALL;
    collect_inputs(e, &e->pass.entries[e->current]);
    if (!e->pass.entries[e->current].passes) { // an input: what lies behind it is left alone
      drop_gradients(e);
      e->step = STEP_NEXT;
      return CNN_OK;
    }
    CNN_TRY(reserve_dx(e, current_node(e)->n_in));
    e->answered = false;
    // Without a gradient there is nothing to compute, but others wait for our word.
    e->step = any_gradient(&e->pass.entries[e->current]) ? STEP_COMPUTE : STEP_ROUTE;
    return CNN_OK;
  case STEP_COMPUTE:
    if (!e->answered) CNN_TRY(compute(e));
    e->step = STEP_ROUTE;
    return CNN_OK;
  case STEP_ROUTE:
    CNN_TRY(route(e));
    finish_node(e);
    e->step = STEP_NEXT;
    return CNN_OK;
  case STEP_LEAVES:
    if (leaf_hook(e)) return CNN_CALL;
    CNN_TRY(finish_leaves(e));
    e->step = STEP_DONE;
    return CNN_OK;
  case STEP_DONE: break;
  }
  return CNN_OK;
}

cnn_status cnn_engine_run(cnn_engine *e) {
  void *outer = e->ctx->engine;
  cnn_status status = CNN_OK;
  e->ctx->engine = e;
  while (status == CNN_OK && e->step != STEP_DONE) status = step_once(e);
  e->ctx->engine = outer;
  return status;
}

const cnn_engine_call *cnn_engine_pending(const cnn_engine *e) {
  return &e->call;
}

cnn_tensor *cnn_engine_gradient(const cnn_engine *e, int i) {
  return e->inputs[i].grad;
}

cnn_status cnn_backward(cnn_context *ctx, cnn_tensor *root, cnn_tensor *grad, unsigned flags) {
  cnn_engine *e;
  CNN_TRY(cnn_engine_create(ctx, &root, grad ? &grad : NULL, 1, NULL, 0, flags, &e));
  cnn_status status = cnn_engine_run(e);
  if (status == CNN_CALL)
    status = cnn_fail(ctx, CNN_UNSUPPORTED, "the graph holds a function of a host");
  cnn_engine_free(e);
  return status;
}
