// SPDX-License-Identifier: MIT
#include "nn/module.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "memory/buffer.h"
#include "ops/ops.h"

// ---------------------------------------------------------------------------------------------
// Life

static void clear_entry(cnn_entry *e) {
  cnn_unref(e->tensor);
  cnn_unref(e->child);
  cnn_free(e->name);
}

static void destroy(cnn_object *o) {
  cnn_module *m = (cnn_module *)o;
  for (int i = 0; i < m->n_entries; i++) clear_entry(&m->entries[i]);
  cnn_free(m->entries);
  cnn_free(m->args);
  cnn_free(m);
}

static const cnn_class module_class = {"module", destroy};

static cnn_status no_memory(cnn_context *ctx) {
  return cnn_fail(ctx, CNN_OOM, "out of memory for a module");
}

cnn_status cnn_module_create_foreign(cnn_context *ctx, cnn_module **out) {
  cnn_module *m = cnn_calloc(sizeof *m);
  if (!m) return no_memory(ctx);
  cnn_object_init(&m->object, &module_class);
  m->training = true;
  m->foreign = true;
  *out = m;
  return CNN_OK;
}

// The arguments with defaults, and copies of the lists they point to behind them.
static cnn_status copy_args(cnn_context *ctx, cnn_module *m, const cnn_spec *spec,
                            const cnn_arg *args, int n_args) {
  int64_t ints = 0;
  for (int i = 0; i < spec->n; i++) ints += i < n_args && args[i].kind == CNN_INTS ? args[i].n : 4;
  m->args = cnn_calloc((size_t)spec->n * sizeof *m->args + (size_t)ints * sizeof(int64_t) + 8);
  if (!m->args) return no_memory(ctx);
  m->n_args = spec->n;
  int64_t *at = (int64_t *)(m->args + spec->n);
  for (int i = 0; i < spec->n; i++) {
    const cnn_param *p = &spec->params[i];
    cnn_arg a = i < n_args ? args[i] : CNN_A_NONE;
    if (a.kind == CNN_ABSENT && p->has_default) a = p->value;
    if (a.kind == CNN_ABSENT && !p->optional && !p->has_default)
      return cnn_fail(ctx, CNN_INVALID, "argument %d (%s) is missing: expected %s", i + 1, p->name,
                      cnn_type_name((cnn_type)p->type));
    if (a.kind == CNN_INTS) {
      for (int k = 0; k < a.n; k++) at[k] = a.ints[k];
      a.ints = at;
      at += a.n;
    }
    m->args[i] = a;
  }
  return CNN_OK;
}

cnn_status cnn_module_create(cnn_context *ctx, const cnn_layer *layer, const cnn_arg *args,
                             int n_args, cnn_module **out) {
  cnn_module *m;
  const char *outer = ctx->op;
  uint8_t kind = ctx->kind;
  bool grad_enabled = ctx->grad_enabled, inference = ctx->inference;
  CNN_TRY(cnn_module_create_foreign(ctx, &m));
  m->foreign = false;
  m->layer = layer;
  if (!outer) ctx->op = layer->name;
  ctx->kind = CNN_KIND_PARAMETER;
  ctx->grad_enabled = false;
  ctx->inference = false;
  cnn_status status = copy_args(ctx, m, cnn_layer_spec(layer), args, n_args);
  if (status == CNN_OK && layer->init) status = layer->init(ctx, m);
  ctx->op = outer;
  ctx->kind = kind;
  ctx->grad_enabled = grad_enabled;
  ctx->inference = inference;
  if (status != CNN_OK) {
    cnn_unref(m);
    return status;
  }
  *out = m;
  return CNN_OK;
}

// ---------------------------------------------------------------------------------------------
// Entries

cnn_entry *cnn_module_find(const cnn_module *m, const char *name) {
  for (int i = 0; i < m->n_entries; i++)
    if (strcmp(m->entries[i].name, name) == 0) return &m->entries[i];
  return NULL;
}

int cnn_module_child_count(const cnn_module *m) {
  int n = 0;
  for (int i = 0; i < m->n_entries; i++)
    n += m->entries[i].kind == CNN_ENTRY_CHILD && m->entries[i].child;
  return n;
}

cnn_module *cnn_module_child(const cnn_module *m, int i) {
  for (int k = 0; k < m->n_entries; k++)
    if (m->entries[k].kind == CNN_ENTRY_CHILD && m->entries[k].child && i-- == 0)
      return m->entries[k].child;
  return NULL;
}

enum { NAME_LENGTH = 255 };

// The entry of that name, made empty if it is not there.
static cnn_status obtain(cnn_context *ctx, cnn_module *m, const char *name, cnn_entry **out) {
  if (!*name || strchr(name, '.'))
    return cnn_fail(ctx, CNN_INVALID, "\"%s\" can't be an entry's name: it is %s", name,
                    *name ? "part of a path (no dots)" : "empty");
  if (strlen(name) > NAME_LENGTH)
    return cnn_fail(ctx, CNN_INVALID,
                    "\"%.40s...\" can't be an entry's name: it has more than %d "
                    "characters",
                    name, NAME_LENGTH);
  *out = cnn_module_find(m, name);
  if (*out) return CNN_OK;
  if (m->n_entries == m->capacity) {
    int capacity = m->capacity ? 2 * m->capacity : 4;
    cnn_entry *entries = cnn_realloc(m->entries, (size_t)capacity * sizeof *entries);
    if (!entries) return no_memory(ctx);
    m->entries = entries;
    m->capacity = capacity;
  }
  size_t n = strlen(name) + 1;
  char *copy = cnn_malloc(n);
  if (!copy) return no_memory(ctx);
  memcpy(copy, name, n);
  *out = &m->entries[m->n_entries++];
  m->bound = false;
  **out = (cnn_entry){copy, CNN_ENTRY_PARAMETER, true, NULL, NULL};
  return CNN_OK;
}

static void put(cnn_entry *e, cnn_entry_kind kind, bool persistent, cnn_tensor *t, cnn_module *c) {
  cnn_tensor *old_tensor = e->tensor;
  cnn_module *old_child = e->child;
  e->kind = (uint8_t)kind;
  e->persistent = persistent;
  e->tensor = t ? cnn_ref(t) : NULL;
  e->child = c ? cnn_ref(c) : NULL;
  cnn_unref(old_tensor);
  cnn_unref(old_child);
}

cnn_status cnn_module_set_parameter(cnn_context *ctx, cnn_module *m, const char *name,
                                    cnn_tensor *t) {
  cnn_entry *e;
  if (t && t->grad_fn)
    return cnn_fail(ctx, CNN_INVALID,
                    "parameter \"%s\" must be a leaf, but it was computed: detach() it first",
                    name);
  if (t && !cnn_dtype_is_float((cnn_dtype)t->dtype))
    return cnn_fail(ctx, CNN_DTYPE, "parameter \"%s\" must be of a float dtype, not %s", name,
                    cnn_dtype_name((cnn_dtype)t->dtype));
  CNN_TRY(obtain(ctx, m, name, &e));
  if (t) {
    if (!(t->flags & CNN_PARAMETER)) t->flags |= CNN_PARAMETER | CNN_REQUIRES_GRAD;
    cnn_buffer_retag(t->buffer, CNN_KIND_PARAMETER);
  }
  put(e, CNN_ENTRY_PARAMETER, true, t, NULL);
  return CNN_OK;
}

cnn_status cnn_module_set_buffer(cnn_context *ctx, cnn_module *m, const char *name, cnn_tensor *t,
                                 bool persistent) {
  cnn_entry *e;
  CNN_TRY(obtain(ctx, m, name, &e));
  if (t) cnn_buffer_retag(t->buffer, CNN_KIND_BUFFER);
  put(e, CNN_ENTRY_BUFFER, persistent, t, NULL);
  return CNN_OK;
}

static cnn_status contains(cnn_context *ctx, cnn_module *tree, const cnn_module *m, bool *yes);

cnn_status cnn_module_set_child(cnn_context *ctx, cnn_module *m, const char *name,
                                cnn_module *child) {
  cnn_entry *e;
  bool cycle = false;
  if (child) CNN_TRY(contains(ctx, child, m, &cycle));
  if (cycle)
    return cnn_fail(ctx, CNN_INVALID,
                    "registering \"%s\" would make the module contain itself: a module tree has no "
                    "cycles",
                    name);
  CNN_TRY(obtain(ctx, m, name, &e));
  put(e, CNN_ENTRY_CHILD, true, NULL, child);
  return CNN_OK;
}

cnn_status cnn_module_append(cnn_context *ctx, cnn_module *m, cnn_module *child) {
  char name[16];
  snprintf(name, sizeof name, "%d", cnn_module_child_count(m));
  return cnn_module_set_child(ctx, m, name, child);
}

bool cnn_module_remove(cnn_module *m, const char *name) {
  cnn_entry *e = cnn_module_find(m, name);
  if (!e) return false;
  cnn_entry dead = *e;
  size_t after = (size_t)(m->entries + m->n_entries - (e + 1));
  memmove(e, e + 1, after * sizeof *e);
  m->n_entries--;
  m->bound = false;
  clear_entry(&dead);
  return true;
}

// ---------------------------------------------------------------------------------------------
// Walking

#define PATH_MAX_LENGTH 512

// Objects seen so far: a sorted list would be faster, but trees have hundreds of entries at most,
// and thousands still take milliseconds. A growing open-addressing set of addresses.
typedef struct seen {
  int n, size;
  void **table;
} seen;

static bool seen_grow(seen *s) {
  int size = s->size ? 2 * s->size : 64;
  void **table = cnn_calloc((size_t)size * sizeof *table);
  if (!table) return false;
  for (int i = 0; i < s->size; i++) {
    if (!s->table[i]) continue;
    size_t h = ((uintptr_t)s->table[i] >> 4) & (size_t)(size - 1);
    while (table[h]) h = (h + 1) & (size_t)(size - 1);
    table[h] = s->table[i];
  }
  cnn_free(s->table);
  s->table = table;
  s->size = size;
  return true;
}

// 1: new, 0: seen before, -1: no memory.
static int seen_add(seen *s, void *p) {
  if (2 * s->n >= s->size && !seen_grow(s)) return -1;
  size_t mask = (size_t)(s->size - 1), h = ((uintptr_t)p >> 4) & mask;
  for (; s->table[h]; h = (h + 1) & mask)
    if (s->table[h] == p) return 0;
  s->table[h] = p;
  s->n++;
  return 1;
}

typedef struct walker {
  cnn_context *ctx;
  seen modules;
  cnn_module_visit visit;
  void *arg;
  char path[PATH_MAX_LENGTH];
} walker;

static cnn_status walk(walker *w, cnn_module *m, size_t length) {
  int fresh = seen_add(&w->modules, m);
  if (fresh < 0) return no_memory(w->ctx);
  if (!fresh) return CNN_OK;
  CNN_TRY(w->visit(w->arg, m, w->path));
  for (int i = 0; i < m->n_entries; i++) {
    const cnn_entry *e = &m->entries[i];
    if (!e->child) continue;
    size_t n = strlen(e->name);
    if (length + n + 2 > PATH_MAX_LENGTH)
      return cnn_fail(w->ctx, CNN_INVALID,
                      "modules are nested too deep: the path to module \"%s\" would have more than "
                      "%d characters",
                      e->name, PATH_MAX_LENGTH - 2);
    size_t at = length;
    if (at > 0) w->path[at++] = '.';
    memcpy(w->path + at, e->name, n + 1);
    CNN_TRY(walk(w, e->child, at + n));
    w->path[length] = '\0';
  }
  return CNN_OK;
}

cnn_status cnn_module_walk(cnn_context *ctx, cnn_module *m, cnn_module_visit visit, void *arg) {
  walker w = {.ctx = ctx, .visit = visit, .arg = arg};
  cnn_status status = walk(&w, m, 0);
  cnn_free(w.modules.table);
  return status;
}

typedef struct search {
  const cnn_module *m;
  bool found;
} search;

static cnn_status search_for(void *arg, cnn_module *m, const char *path) {
  search *s = arg;
  (void)path;
  if (m == s->m) s->found = true;
  return s->found ? CNN_INVALID : CNN_OK;
}

// Also an error where the tree is too deep to be walked.
static cnn_status contains(cnn_context *ctx, cnn_module *tree, const cnn_module *m, bool *yes) {
  *yes = tree == m;
  if (*yes || cnn_module_child_count(tree) == 0) return CNN_OK;
  search s = {m, false};
  cnn_status status = cnn_module_walk(ctx, tree, search_for, &s);
  *yes = s.found;
  return s.found ? CNN_OK : status;
}

typedef struct tensor_walker {
  cnn_context *ctx;
  cnn_entry_kind kind;
  bool duplicates;
  seen tensors;
  cnn_tensor_visit visit;
  void *arg;
} tensor_walker;

static cnn_status visit_tensors(void *arg, cnn_module *m, const char *path) {
  tensor_walker *w = arg;
  char full[PATH_MAX_LENGTH + NAME_LENGTH + 2];
  for (int i = 0; i < m->n_entries; i++) {
    const cnn_entry *e = &m->entries[i];
    if (e->kind != w->kind || !e->tensor) continue;
    int fresh = seen_add(&w->tensors, e->tensor);
    if (fresh < 0) return no_memory(w->ctx);
    if (!fresh && !w->duplicates) continue;
    snprintf(full, sizeof full, "%s%s%s", path, *path ? "." : "", e->name);
    CNN_TRY(w->visit(w->arg, e->tensor, full, e));
  }
  return CNN_OK;
}

cnn_status cnn_module_tensors(cnn_context *ctx, cnn_module *m, cnn_entry_kind kind, bool duplicates,
                              cnn_tensor_visit visit, void *arg) {
  tensor_walker w = {ctx, kind, duplicates, {0, 0, NULL}, visit, arg};
  cnn_status status = cnn_module_walk(ctx, m, visit_tensors, &w);
  cnn_free(w.tensors.table);
  return status;
}

static cnn_status visit_nothing(void *arg, cnn_module *m, const char *path) {
  (void)arg, (void)m, (void)path;
  return CNN_OK;
}

// The walk comes first, since it needs memory and stops in a tree that is too deep: all or nothing.
cnn_status cnn_module_train(cnn_context *ctx, cnn_module *m, bool on) {
  walker w = {.ctx = ctx, .visit = visit_nothing};
  cnn_status status = walk(&w, m, 0);
  for (int i = 0; status == CNN_OK && i < w.modules.size; i++)
    if (w.modules.table[i]) ((cnn_module *)w.modules.table[i])->training = on;
  cnn_free(w.modules.table);
  return status;
}

// ---------------------------------------------------------------------------------------------
// Moving

typedef struct move {
  cnn_tensor *target;
  cnn_tensor *value;
} move;

typedef struct mover {
  cnn_context *ctx;
  cnn_dtype dtype;
  const cnn_device *device;
  int format;
  int n, capacity;
  move *moves;
} mover;

static cnn_status convert(mover *v, cnn_tensor *t, cnn_tensor **out) {
  cnn_frame f;
  cnn_tensor *y = t;
  cnn_frame_open(&f, v->ctx);
  if (v->dtype != CNN_DTYPE_COUNT && cnn_dtype_is_float((cnn_dtype)t->dtype) &&
      (cnn_dtype)t->dtype != v->dtype)
    y = cnn_do(&f, cast, CNN_A_T(y), CNN_A_I(v->dtype));
  if (y && v->device && !cnn_device_equal(y->device, *v->device))
    y = cnn_do(&f, to_device, CNN_A_T(y), CNN_A_DEVICE(*v->device));
  if (y && v->format == 1 && !cnn_is_contiguous(y)) y = cnn_do(&f, clone, CNN_A_T(y), CNN_A_I(1));
  if (y && v->format == 2 && y->ndim == 4) y = cnn_do(&f, contiguous, CNN_A_T(y), CNN_A_I(1));
  *out = y && y != t ? cnn_ref(y) : NULL;
  return cnn_frame_close(&f);
}

static cnn_status plan_move(mover *v, cnn_tensor *t, cnn_kind kind) {
  cnn_tensor *value;
  if (v->n == v->capacity) {
    int capacity = v->capacity ? 2 * v->capacity : 32;
    move *moves = cnn_realloc(v->moves, (size_t)capacity * sizeof *moves);
    if (!moves) return no_memory(v->ctx);
    v->moves = moves;
    v->capacity = capacity;
  }
  v->ctx->kind = (uint8_t)kind;
  CNN_TRY(convert(v, t, &value));
  if (value) v->moves[v->n++] = (move){t, value};
  return CNN_OK;
}

static cnn_status plan_parameter(void *arg, cnn_tensor *t, const char *path, const cnn_entry *e) {
  (void)path;
  CNN_TRY(plan_move(arg, t, e->kind == CNN_ENTRY_BUFFER ? CNN_KIND_BUFFER : CNN_KIND_PARAMETER));
  return t->grad ? plan_move(arg, t->grad, CNN_KIND_GRADIENT) : CNN_OK;
}

cnn_status cnn_module_to(cnn_context *ctx, cnn_module *m, cnn_dtype dtype, const cnn_device *device,
                         int format) {
  mover v = {ctx, dtype, device, format, 0, 0, NULL};
  uint8_t kind = ctx->kind;
  bool grad_enabled = ctx->grad_enabled;
  ctx->grad_enabled = false;
  cnn_status status = cnn_module_tensors(ctx, m, CNN_ENTRY_PARAMETER, false, plan_parameter, &v);
  if (status == CNN_OK)
    status = cnn_module_tensors(ctx, m, CNN_ENTRY_BUFFER, false, plan_parameter, &v);
  ctx->kind = kind;
  ctx->grad_enabled = grad_enabled;
  for (int i = 0; i < v.n; i++) {
    if (status == CNN_OK) cnn_tensor_swap(v.moves[i].target, v.moves[i].value);
    cnn_unref(v.moves[i].value);
  }
  cnn_free(v.moves);
  return status;
}
