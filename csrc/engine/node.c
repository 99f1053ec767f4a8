// SPDX-License-Identifier: MIT
#include "engine/node.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/small.h"
#include "engine/dispatch.h"
#include "engine/history.h"
#include "engine/pack.h"

bool cnn_wants_record(const cnn_context *ctx, cnn_tensor *const *in, int n_in) {
  if (!ctx->grad_enabled) return false;
  for (int i = 0; i < n_in; i++)
    if (in[i] && cnn_requires_grad(in[i])) return true;
  return false;
}

// ---------------------------------------------------------------------------------------------
// Life

void cnn_node_release(cnn_node *node) {
  for (int i = 0; i < node->n_in + node->n_out + node->n_kept; i++) {
    cnn_unref(node->saved[i].t);
    node->saved[i].t = NULL;
  }
  if (node->function && node->owner->release) node->owner->release(node->owner, node->function);
  node->function = 0;
  node->released = true;
}

static void destroy_node(cnn_object *o) {
  cnn_node *node = (cnn_node *)o;
  cnn_node_release(node);
  for (int i = 0; i < node->n_in; i++) {
    cnn_unref(node->edges[i].node);
    cnn_unref(node->edges[i].leaf);
  }
  cnn_unref(node->hooks);
  cnn_free(node->origin);
  cnn_small_free(node, node->size);
}

static const cnn_class node_class = {"node", destroy_node};

// What follows the struct in its allocation, in order of alignment.
static cnn_node *allocate(int n_args, int n_in, int n_out, int n_kept, int64_t n_ints) {
  size_t slots = (size_t)(n_in + n_out), saved = slots + (size_t)n_kept;
  size_t bytes = sizeof(cnn_node) + (size_t)n_in * sizeof(cnn_edge) + saved * sizeof(cnn_saved) +
                 slots * sizeof(cnn_form) + (size_t)n_args * sizeof(cnn_arg) +
                 (size_t)n_ints * sizeof(int64_t);
  cnn_node *node = cnn_small_alloc(bytes);
  if (!node) return NULL;
  node->size = (uint32_t)bytes;
  char *at = (char *)(node + 1);
  node->edges = (cnn_edge *)at, at += (size_t)n_in * sizeof(cnn_edge);
  node->saved = (cnn_saved *)at, at += saved * sizeof(cnn_saved);
  node->forms = (cnn_form *)at, at += slots * sizeof(cnn_form);
  node->args = (cnn_arg *)at, at += (size_t)n_args * sizeof(cnn_arg);
  memset(node->edges, 0, (size_t)n_in * sizeof(cnn_edge));
  memset(node->saved, 0, saved * sizeof(cnn_saved));
  cnn_object_init(&node->object, &node_class);
  node->n_args = n_args;
  node->n_in = n_in;
  node->n_out = n_out;
  node->n_kept = n_kept;
  node->transient = false;
  node->released = false;
  node->rng = (cnn_rng){0, 0};
  node->function = 0;
  node->title = NULL;
  node->hooks = NULL;
  node->origin = NULL;
  return node;
}

static void set_edge(cnn_edge *edge, cnn_tensor *t) {
  if (!t || !cnn_requires_grad(t)) return;
  if (t->grad_fn)
    edge->node = cnn_ref(t->grad_fn), edge->slot = t->slot;
  else
    edge->leaf = cnn_ref(t);
}

static int64_t *set_form(cnn_form *form, const cnn_tensor *t, int64_t *dims) {
  if (!t) {
    *form = (cnn_form){0, -1, {CNN_CPU, 0}, NULL};
    return dims;
  }
  *form = (cnn_form){t->dtype, (int8_t)t->ndim, t->device, dims};
  for (int i = 0; i < t->ndim; i++) dims[i] = t->shape[i];
  return dims + t->ndim;
}

static int64_t count_dims(cnn_tensor *const *ts, int n) {
  int64_t dims = 0;
  for (int i = 0; i < n; i++) dims += ts[i] ? ts[i]->ndim : 0;
  return dims;
}

#define ORIGIN_SIZE 160

// Edges, forms and the fields that every node has. *dims is where the forms' shapes go, and moves
// on.
static cnn_status describe(cnn_context *ctx, cnn_node *node, cnn_tensor *const *in,
                           cnn_tensor *const *out, int64_t **at) {
  int64_t *dims = *at;
  node->owner = ctx;
  node->sequence = ++ctx->sequence;
  for (int i = 0; i < node->n_in; i++) {
    set_edge(&node->edges[i], in[i]);
    dims = set_form(&node->forms[i], in[i], dims);
  }
  for (int i = 0; i < node->n_out; i++) dims = set_form(&node->forms[node->n_in + i], out[i], dims);
  *at = dims;
  if (!ctx->anomaly || !ctx->where) return CNN_OK;
  node->origin = cnn_malloc(ORIGIN_SIZE);
  if (!node->origin) return cnn_fail(ctx, CNN_OOM, "out of memory for the tape");
  ctx->where(ctx, node->origin, ORIGIN_SIZE);
  return CNN_OK;
}

static cnn_status pack(cnn_context *ctx, cnn_saved *slot, cnn_tensor *t, bool filled) {
  CNN_TRY(cnn_pack(ctx, t, filled, &slot->t));
  slot->packed = true;
  slot->waiting = !filled;
  slot->device = t->device;
  slot->version = cnn_buffer_version(slot->t->buffer);
  return CNN_OK;
}

static cnn_status save(cnn_context *ctx, cnn_saved *slot, cnn_tensor *t, unsigned version) {
  if (t->flags & CNN_INFERENCE && !ctx->inference)
    return cnn_fail(ctx, CNN_STATE,
                    "a tensor made in inference_mode can't be saved for backward; clone it outside "
                    "of inference_mode first");
  if (cnn_packs(ctx, t, false)) return pack(ctx, slot, t, true);
  // A leaf that wants a gradient never gets a history: it can be held as it is. Anything else could
  // come to point back at this node.
  if (!t->grad_fn && (t->flags & CNN_REQUIRES_GRAD) && !t->base)
    slot->t = cnn_ref(t);
  else
    CNN_TRY(cnn_tensor_alias(ctx, t, &slot->t));
  slot->version = version;
  return CNN_OK;
}

static cnn_status save_copy(cnn_context *ctx, cnn_saved *slot, cnn_tensor *t) {
  cnn_results r;
  if (cnn_packs(ctx, t, false)) return pack(ctx, slot, t, true);
  bool grad = ctx->grad_enabled;
  ctx->grad_enabled = false;
  cnn_status status = cnn_dispatch(ctx, cnn_ops_of_engine()->clone, &CNN_A_T(t), 1, &r);
  ctx->grad_enabled = grad;
  CNN_TRY(status);
  slot->t = cnn_ref(r.t[0]);
  slot->version = cnn_buffer_version(slot->t->buffer);
  cnn_results_free(&r);
  return CNN_OK;
}

// Which declared inputs want a gradient, one bit each.
static uint32_t wanting(cnn_tensor *const *in, const uint8_t *declared, int n_in) {
  uint32_t needs = 0;
  for (int i = 0; i < n_in; i++)
    if (in[i] && cnn_requires_grad(in[i])) needs |= 1u << declared[i];
  return needs;
}

bool cnn_node_saves(const cnn_op_entry *e, cnn_tensor *const *in, const uint8_t *declared, int n_in,
                    int i) {
  return (e->save_in[declared[i]] & wanting(in, declared, n_in)) != 0;
}

cnn_status cnn_node_create(cnn_context *ctx, int op, const cnn_arg *args, int n_args,
                           cnn_tensor *const *in, const uint8_t *declared, int n_in,
                           cnn_tensor *const *out, int n_out, bool in_place, cnn_node **result) {
  const cnn_op_entry *e = cnn_op_at(op);
  int64_t n_ints = count_dims(in, n_in) + count_dims(out, n_out);
  for (int i = 0; i < n_args; i++)
    if (args[i].kind == CNN_INTS) n_ints += args[i].n;
  cnn_node *node = allocate(n_args, n_in, n_out, 0, n_ints);
  if (!node) return cnn_fail(ctx, CNN_OOM, "out of memory for the tape");
  node->op = op;
  int64_t *ints = (int64_t *)(node->args + n_args);
  cnn_status status = describe(ctx, node, in, out, &ints);
  for (int i = 0; i < n_args; i++) {
    node->args[i] = args[i];
    if (args[i].kind == CNN_TENSOR) node->args[i].t = NULL;
    if (args[i].kind == CNN_TENSORS) node->args[i].ts = NULL;
    if (args[i].kind != CNN_INTS) continue;
    node->args[i].ints = ints;
    for (int k = 0; k < args[i].n; k++) *ints++ = args[i].ints[k];
  }
  uint32_t needs = wanting(in, declared, n_in);
  for (int i = 0; i < n_in && status == CNN_OK; i++) {
    if (!in[i] || !(e->save_in[declared[i]] & needs)) continue;
    if (i == 0 && in_place)
      status = save_copy(ctx, &node->saved[i], in[i]);
    else
      status = save(ctx, &node->saved[i], in[i], cnn_buffer_version(in[i]->buffer));
  }
  for (int i = 0; i < n_out && i < CNN_MAX_RESULTS && status == CNN_OK; i++) {
    if (!(e->save_out[i] & needs)) continue;
    // In place, the result is input 0, whose version moves once the kernel has run.
    unsigned version = cnn_buffer_version(out[i]->buffer) + (in_place ? 1 : 0);
    cnn_saved *slot = &node->saved[n_in + i];
    // In place nothing may fail once the kernel has run: what could, is not begun.
    if (cnn_packs(ctx, out[i], true) && !(in_place && out[i]->device.type != CNN_CPU)) {
      status = pack(ctx, slot, out[i], false);
      continue;
    }
    status = cnn_tensor_alias(ctx, out[i], &slot->t);
    slot->version = version;
  }
  if (status != CNN_OK) {
    cnn_unref(node);
    return status;
  }
  *result = node;
  return CNN_OK;
}

cnn_status cnn_node_fill(cnn_context *ctx, cnn_node *node, cnn_tensor *const *out, int n_out) {
  for (int i = 0; i < n_out && ctx->packer; i++) {
    cnn_saved *slot = &node->saved[node->n_in + i];
    if (slot->waiting) CNN_TRY(cnn_pack_fill(ctx, slot->t, out[i]));
    slot->waiting = false;
  }
  return CNN_OK;
}

// What is neither an input nor a result may have a history of its own, which it keeps.
static cnn_status keep(cnn_context *ctx, cnn_saved *slot, const cnn_kept *kept) {
  cnn_tensor *t = kept->t;
  if (t->base) CNN_TRY(cnn_history_refresh(ctx, t));
  CNN_TRY(save(ctx, slot, t, cnn_buffer_version(t->buffer)));
  slot->tie = kept->tie;
  if (slot->tie == 0 && t->grad_fn) cnn_node_attach(t->grad_fn, t->slot, slot->t);
  return CNN_OK;
}

cnn_status cnn_node_create_host(cnn_context *ctx, int64_t function, const char *title,
                                cnn_tensor *const *in, int n_in, cnn_tensor *const *out, int n_out,
                                const cnn_kept *kept, int n_kept, cnn_node **result) {
  int64_t dims = count_dims(in, n_in) + count_dims(out, n_out);
  size_t length = strlen(title) + 1;
  cnn_node *node = allocate(0, n_in, n_out, n_kept, dims + (int64_t)(length + 7) / 8);
  if (!node) return cnn_fail(ctx, CNN_OOM, "out of memory for the tape");
  node->op = -1;
  int64_t *at = (int64_t *)node->args;
  cnn_status status = describe(ctx, node, in, out, &at);
  for (int i = 0; i < n_kept && status == CNN_OK; i++)
    if (kept[i].t) status = keep(ctx, &node->saved[n_in + n_out + i], &kept[i]);
  if (status != CNN_OK) {
    cnn_unref(node);
    return status;
  }
  node->title = memcpy(at, title, length);
  node->function = function;
  *result = node;
  return CNN_OK;
}

void cnn_node_attach(cnn_node *node, int slot, cnn_tensor *t) {
  void *old = t->grad_fn;
  t->grad_fn = cnn_ref(node);
  t->slot = (uint16_t)slot;
  t->flags &= (uint16_t)~CNN_REQUIRES_GRAD;
  cnn_unref(old);
}

// ---------------------------------------------------------------------------------------------
// Reading

const char *cnn_node_name(const cnn_node *node, char *text, size_t size) {
  if (node->op < 0) {
    snprintf(text, size, "%sBackward", node->title);
    return text;
  }
  size_t at = 0;
  bool upper = true;
  for (const char *p = cnn_op_at(node->op)->op->name; *p && at + 12 < size; p++) {
    if (*p == '_') {
      upper = true;
      continue;
    }
    text[at++] = (char)(upper ? toupper((unsigned char)*p) : *p);
    upper = false;
  }
  snprintf(text + at, size - at, "Backward0");
  return text;
}

static cnn_status check_unreleased(cnn_context *ctx, const cnn_node *node) {
  if (node->released)
    return cnn_fail(ctx, CNN_STATE,
                    "the graph was freed by an earlier backward; call that one with "
                    "{retain_graph = true}");
  return CNN_OK;
}

static cnn_status check_version(cnn_context *ctx, const cnn_node *node, const cnn_saved *slot) {
  char name[64];
  unsigned version = cnn_buffer_version(slot->t->buffer);
  if (version != slot->version) {
    cnn_shape_text shape;
    return cnn_fail(
        ctx, CNN_STATE,
        "a tensor that %s needs for backward (%s of shape %s) was changed in place since: it is "
        "at version %u, expected %u; use the form that does not end in _, or clone it%s%s",
        cnn_node_name(node, name, sizeof name), cnn_dtype_name((cnn_dtype)slot->t->dtype),
        cnn_tensor_shape_text(slot->t, &shape), version, slot->version,
        node->origin ? "; forward ran at " : "", node->origin ? node->origin : "");
  }
  return CNN_OK;
}

// t as the input that `edge` leads to.
static cnn_status tie_to_edge(cnn_context *ctx, const cnn_edge *edge, cnn_tensor *t,
                              cnn_tensor **out) {
  if (edge->leaf) {
    *out = cnn_ref(edge->leaf);
    return CNN_OK;
  }
  CNN_TRY(cnn_tensor_alias(ctx, t, out));
  if (edge->node) cnn_node_attach(edge->node, edge->slot, *out);
  return CNN_OK;
}

// The saved tensor where backward needs it: a new reference.
static cnn_status bring_back(cnn_context *ctx, const cnn_saved *slot, cnn_tensor **out) {
  if (slot->packed) return cnn_unpack(ctx, slot->t, slot->device, out);
  *out = cnn_ref(slot->t);
  return CNN_OK;
}

// An alias of t as output `slot` of `node` (NULL: without history).
static cnn_status tie_to_node(cnn_context *ctx, cnn_node *node, int slot, cnn_tensor *t,
                              cnn_tensor **out) {
  CNN_TRY(cnn_tensor_alias(ctx, t, out));
  if (node) cnn_node_attach(node, slot, *out);
  return CNN_OK;
}

cnn_status cnn_node_unpack(cnn_context *ctx, cnn_node *node, int index, cnn_tensor **out) {
  char name[64];
  cnn_tensor *t;
  cnn_saved *slot = &node->saved[index];
  CNN_TRY(check_unreleased(ctx, node));
  if (!slot->t)
    return cnn_fail(ctx, CNN_STATE, "%s saved no tensor in slot %d (a bug in the op's descriptor)",
                    cnn_node_name(node, name, sizeof name), index);
  CNN_TRY(check_version(ctx, node, slot));
  CNN_TRY(bring_back(ctx, slot, &t));
  if (t->flags & CNN_REQUIRES_GRAD || !ctx->grad_enabled) {
    *out = t;
    return CNN_OK;
  }
  // Gradients of gradients: the handle is tied into the graph again.
  cnn_status status = index < node->n_in ? tie_to_edge(ctx, &node->edges[index], t, out)
                                         : tie_to_node(ctx, node, index - node->n_in, t, out);
  cnn_unref(t);
  return status;
}

// Always a handle of its own: the host may change it.
cnn_status cnn_node_unpack_kept(cnn_context *ctx, cnn_node *node, int k, cnn_tensor **out) {
  cnn_saved *slot = &node->saved[node->n_in + node->n_out + k];
  cnn_tensor *t;
  CNN_TRY(check_unreleased(ctx, node));
  *out = NULL;
  if (!slot->t) return CNN_OK;
  CNN_TRY(check_version(ctx, node, slot));
  CNN_TRY(bring_back(ctx, slot, &t));
  if (t->flags & CNN_REQUIRES_GRAD) {
    *out = t;
    return CNN_OK;
  }
  cnn_status status;
  if (!ctx->grad_enabled)
    status = tie_to_node(ctx, NULL, 0, t, out);
  else if (slot->tie < 0)
    status = tie_to_edge(ctx, &node->edges[-slot->tie - 1], t, out);
  else if (slot->tie > 0)
    status = tie_to_node(ctx, node, slot->tie - 1, t, out);
  else
    status = tie_to_node(ctx, slot->t->grad_fn, slot->t->slot, t, out);
  cnn_unref(t);
  return status;
}

// ---------------------------------------------------------------------------------------------
// Hooks

static void destroy_hooks(cnn_object *o) {
  cnn_hooks *h = (cnn_hooks *)o;
  for (int i = 0; i < h->n; i++)
    if (h->owner->release) h->owner->release(h->owner, h->list[i].function);
  cnn_free(h->list);
  cnn_free(h);
}

static const cnn_class hooks_class = {"hooks", destroy_hooks};

static cnn_hooks **hooks_of(cnn_tensor *t) {
  return t->grad_fn ? &((cnn_node *)t->grad_fn)->hooks : (cnn_hooks **)&t->hooks;
}

static cnn_status make_hooks(cnn_context *ctx, cnn_hooks **at) {
  if (*at) return CNN_OK;
  cnn_hooks *h = cnn_calloc(sizeof *h);
  if (!h) return cnn_fail(ctx, CNN_OOM, "out of memory for a hook");
  cnn_object_init(&h->object, &hooks_class);
  h->owner = ctx;
  *at = h;
  return CNN_OK;
}

cnn_status cnn_hook_add(cnn_context *ctx, cnn_tensor *t, int64_t function, int64_t *id) {
  if (!cnn_requires_grad(t))
    return cnn_fail(ctx, CNN_STATE, "register_hook: the tensor does not require a gradient");
  cnn_hooks **at = hooks_of(t);
  CNN_TRY(make_hooks(ctx, at));
  cnn_hooks *h = *at;
  if (h->n == h->capacity) {
    int capacity = h->capacity ? 2 * h->capacity : 2;
    cnn_hook *list = cnn_realloc(h->list, (size_t)capacity * sizeof *list);
    if (!list) return cnn_fail(ctx, CNN_OOM, "out of memory for a hook");
    h->list = list;
    h->capacity = capacity;
  }
  *id = (int64_t)++ctx->sequence;
  h->list[h->n++] = (cnn_hook){function, *id, t->grad_fn ? t->slot : 0};
  return CNN_OK;
}

bool cnn_hook_remove(cnn_tensor *t, int64_t id) {
  cnn_hooks *h = *hooks_of(t);
  for (int i = 0; h && i < h->n; i++) {
    if (h->list[i].id != id) continue;
    if (h->owner->release) h->owner->release(h->owner, h->list[i].function);
    memmove(&h->list[i], &h->list[i + 1], (size_t)(--h->n - i) * sizeof *h->list);
    return true;
  }
  return false;
}

cnn_status cnn_consumer_set(cnn_context *ctx, cnn_tensor *leaf, cnn_consumer consumer) {
  if (!consumer.take && !leaf->hooks) return CNN_OK;
  CNN_TRY(make_hooks(ctx, (cnn_hooks **)&leaf->hooks));
  ((cnn_hooks *)leaf->hooks)->consumer = consumer;
  return CNN_OK;
}

const cnn_consumer *cnn_consumer_of(const cnn_tensor *leaf) {
  const cnn_hooks *h = leaf->hooks;
  return h && h->consumer.take ? &h->consumer : NULL;
}
