// SPDX-License-Identifier: MIT
// The order of a dispatch: collect and check the arguments, bring inputs to one dtype, infer,
// allocate results and tape, run the kernel, and only then change what others can see. Everything
// that may fail comes before the first visible change, so a failed op changes nothing.
#include "engine/dispatch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/device.h"
#include "engine/history.h"
#include "engine/watch.h"
#include "memory/simulation.h"

#define INLINE_INPUTS 12

// One call under way.
typedef struct dispatch {
  cnn_context *ctx;
  int id;
  const cnn_op_entry *e;
  bool in_place; // the form x:op_()
  bool record;
  cnn_tensor *spent; // an argument that the caller gives up, or NULL
  cnn_arg args[CNN_MAX_ARGS];
  cnn_infer infer;
  int n_in, capacity;
  cnn_tensor **in;
  uint8_t *declared; // the spec's number of each input
  bool *owned;       // inputs that we made (casts, copies)
  bool alike;        // all inputs are there, take part in promotion, and have one dtype and device
  bool owns;         // some input is owned
  bool views_in;     // some input is a view
  cnn_view *views;
  double scalars[4]; // storage of number operands, as elements of the common dtype
  int n_scalars;
  cnn_tensor *inline_in[INLINE_INPUTS];
  cnn_view inline_views[INLINE_INPUTS + CNN_MAX_RESULTS];
  uint8_t inline_declared[INLINE_INPUTS];
  bool inline_owned[INLINE_INPUTS];
} dispatch;

void cnn_results_init(cnn_results *r, cnn_context *ctx) {
  r->ctx = ctx;
  r->n = 0;
  r->capacity = CNN_MAX_RESULTS;
  r->t = r->inline_t;
}

void cnn_results_free(cnn_results *r) {
  for (int i = 0; i < r->n; i++) cnn_unref(r->t[i]);
  if (r->t != r->inline_t) cnn_free(r->t);
  r->n = 0;
  r->t = r->inline_t;
}

// ---------------------------------------------------------------------------------------------
// Arguments and inputs

static const cnn_param *input_param(const dispatch *d, int input) {
  return &d->e->spec.params[d->e->arg_of[d->declared[input]]];
}

static const char *input_name(const dispatch *d, int input) {
  return input_param(d, input)->name;
}

static cnn_type input_type(const dispatch *d, int input) {
  return (cnn_type)d->e->role[d->declared[input]];
}

static bool promotes(cnn_type type) {
  return type == CNN_T_TENSOR || type == CNN_T_OPERAND || type == CNN_T_TENSORS;
}

static bool is_list(cnn_type type) {
  return type == CNN_T_TENSORS || type == CNN_T_INDICES;
}

static cnn_status reserve_inputs(dispatch *d, int n) {
  d->in = d->inline_in;
  d->declared = d->inline_declared;
  d->owned = d->inline_owned;
  d->views = d->inline_views;
  d->capacity = INLINE_INPUTS;
  if (n <= INLINE_INPUTS) return CNN_OK;
  size_t each = sizeof(cnn_tensor *) + sizeof(cnn_view) + sizeof(uint8_t) + sizeof(bool);
  char *block = cnn_malloc((size_t)n * each + CNN_MAX_RESULTS * sizeof(cnn_view));
  if (!block) return cnn_fail(d->ctx, CNN_OOM, "out of memory for a list of %d tensors", n);
  d->capacity = n;
  d->in = (cnn_tensor **)block, block += (size_t)n * sizeof(cnn_tensor *);
  d->views = (cnn_view *)block, block += (size_t)(n + CNN_MAX_RESULTS) * sizeof(cnn_view);
  d->declared = (uint8_t *)block, block += n;
  d->owned = (bool *)block;
  return CNN_OK;
}

static cnn_status missing(const dispatch *d, int i) {
  const cnn_param *p = &d->e->spec.params[i];
  return cnn_fail(d->ctx, CNN_INVALID, "argument %d (%s) is missing: expected %s", i + 1, p->name,
                  cnn_type_name((cnn_type)p->type));
}

static cnn_status check_role(const dispatch *d, const cnn_param *p, const cnn_tensor *t) {
  if (p->type == CNN_T_INDEX && cnn_dtype_category((cnn_dtype)t->dtype) != CNN_CAT_INT)
    return cnn_fail(d->ctx, CNN_DTYPE, "%s must be an integer tensor, not %s: use %s:to(\"int64\")",
                    p->name, cnn_dtype_name((cnn_dtype)t->dtype), p->name);
  if (p->type == CNN_T_MASK && t->dtype != CNN_BOOL)
    return cnn_fail(d->ctx, CNN_DTYPE, "%s must be a bool tensor, not %s: use %s:to(\"bool\")",
                    p->name, cnn_dtype_name((cnn_dtype)t->dtype), p->name);
  return CNN_OK;
}

static inline cnn_status add_input(dispatch *d, int k, cnn_tensor *t) {
  int i = d->n_in++;
  cnn_type type = (cnn_type)d->e->role[k];
  d->in[i] = t;
  d->declared[i] = (uint8_t)k;
  d->owned[i] = false;
  if (t && t->base) d->views_in = true;
  if (!t || !promotes(type)) {
    d->alike = false;
    return t ? check_role(d, &d->e->spec.params[d->e->arg_of[k]], t) : CNN_OK;
  }
  d->alike =
      d->alike && t->dtype == d->in[0]->dtype && cnn_device_equal(t->device, d->in[0]->device);
  return CNN_OK;
}

static cnn_status collect(dispatch *d, const cnn_arg *args, int n_args) {
  const cnn_op_entry *e = d->e;
  const cnn_spec *spec = &e->spec;
  int n = e->n_tensors;
  if (e->has_list)
    for (int i = 0; i < n_args; i++)
      if (args[i].kind == CNN_TENSORS) n += args[i].n;
  CNN_TRY(reserve_inputs(d, n));
  for (int i = 0; i < spec->n; i++) {
    if (i < n_args && args[i].kind != CNN_ABSENT) {
      d->args[i] = args[i];
      continue;
    }
    const cnn_param *p = &spec->params[i];
    d->args[i] = CNN_A_NONE;
    if (p->has_default)
      d->args[i] = p->value;
    else if (!p->optional)
      return missing(d, i);
  }
  d->n_in = 0;
  d->alike = true;
  d->views_in = false;
  for (int k = 0; k < e->n_tensors; k++) {
    const cnn_arg *a = &d->args[e->arg_of[k]];
    cnn_tensor *one = a->kind == CNN_TENSOR ? a->t : NULL;
    if (a->kind != CNN_TENSORS)
      CNN_TRY(add_input(d, k, one));
    else
      for (int i = 0; i < a->n; i++) CNN_TRY(add_input(d, k, a->ts[i]));
  }
  return CNN_OK;
}

// A single number may come from the CPU whatever the device of the others.
static bool is_host_scalar(const cnn_tensor *t) {
  return t->ndim == 0 && t->device.type == CNN_CPU;
}

// Tensors that are not together: what is on the CPU is better moved to the GPU than the reverse.
static cnn_status apart(const dispatch *d, int a, int b) {
  const cnn_device on[2] = {d->in[a]->device, d->in[b]->device};
  bool first = on[0].type == CNN_CPU && on[1].type == CNN_CUDA; // moves
  char names[2][64];
  for (int k = 0; k < 2; k++) {
    int i = k ? b : a, place = 1; // in a list
    while (place <= i && d->declared[i - place] == d->declared[i]) place++;
    if (is_list(input_type(d, i)))
      snprintf(names[k], sizeof names[k], "%s[%d]", input_name(d, i),
               place - 1 + d->ctx->index_base);
    else
      snprintf(names[k], sizeof names[k], "%s", input_name(d, i));
  }
  return cnn_fail(d->ctx, CNN_DEVICE, "%s is on %s but %s is on %s: move one, e.g. %s:to(\"%s\")",
                  names[0], cnn_device_name(on[0]), names[1], cnn_device_name(on[1]),
                  names[first ? 0 : 1], cnn_device_name(on[first ? 1 : 0]));
}

static cnn_status check_devices(dispatch *d) {
  if (d->alike && d->n_in > 0) {
    d->infer.device = d->in[0]->device;
    return CNN_OK;
  }
  int lead = -1;
  for (int i = 0; i < d->n_in; i++) {
    if (!d->in[i]) continue;
    if (lead < 0) lead = i;
    if (is_host_scalar(d->in[i])) continue;
    lead = i;
    break;
  }
  d->infer.device = lead < 0 ? d->ctx->default_device : d->in[lead]->device;
  for (int i = 0; i < d->n_in; i++) {
    cnn_tensor *t = d->in[i];
    if (!t || cnn_device_equal(t->device, d->infer.device)) continue;
    if (is_host_scalar(t) && promotes(input_type(d, i))) continue;
    return apart(d, lead, i);
  }
  return CNN_OK;
}

// PyTorch's result type: tensors with dims outrank 0-d ones, and those outrank numbers, within a
// category; a higher category always wins.
static cnn_dtype common_dtype(const dispatch *d) {
  int best[3] = {-1, -1, -1}; // dtypes of: tensors with dims, 0-d tensors, numbers
  int input = 0;
  for (int i = 0; i < d->e->spec.n; i++) {
    if (d->e->input_of[i] < 0) continue;
    const cnn_arg *a = &d->args[i];
    int count = a->kind == CNN_TENSORS ? a->n : 1;
    bool counts = promotes((cnn_type)d->e->spec.params[i].type);
    for (int k = 0; k < count; k++, input++) {
      const cnn_tensor *t = d->in[input];
      if (!counts || (!t && a->kind == CNN_ABSENT)) continue;
      int level = t ? (t->ndim == 0) : 2;
      cnn_dtype dtype = t                       ? (cnn_dtype)t->dtype
                        : a->kind == CNN_NUMBER ? d->ctx->default_dtype
                                                : CNN_I64;
      best[level] =
          best[level] < 0 ? (int)dtype : (int)cnn_dtype_promote((cnn_dtype)best[level], dtype);
    }
  }
  int result = best[0];
  for (int level = 1; level < 3; level++) {
    if (best[level] < 0) continue;
    if (result < 0 ||
        cnn_dtype_category((cnn_dtype)best[level]) > cnn_dtype_category((cnn_dtype)result))
      result = best[level];
  }
  return result < 0 ? d->ctx->default_dtype : (cnn_dtype)result;
}

static cnn_status same_dtype(dispatch *d) {
  int first = -1;
  for (int i = 0; i < d->n_in; i++) {
    if (!d->in[i] || !promotes(input_type(d, i))) continue;
    if (first < 0) first = i;
    if (d->in[i]->dtype == d->in[first]->dtype) continue;
    cnn_dtype a = (cnn_dtype)d->in[first]->dtype, b = (cnn_dtype)d->in[i]->dtype;
    bool back = cnn_dtype_is_float(b) && !cnn_dtype_is_float(a); // what is no float is converted
    return cnn_fail(d->ctx, CNN_DTYPE, "%s is %s but %s is %s: convert one, e.g. %s:to(\"%s\")",
                    input_name(d, first), cnn_dtype_name(a), input_name(d, i), cnn_dtype_name(b),
                    input_name(d, back ? first : i), cnn_dtype_name(back ? b : a));
  }
  d->infer.dtype = first < 0 ? d->ctx->default_dtype : (cnn_dtype)d->in[first]->dtype;
  return CNN_OK;
}

static cnn_status replace(dispatch *d, int i, int op, const cnn_arg *args, int n_args) {
  cnn_results r;
  CNN_TRY(cnn_dispatch(d->ctx, op, args, n_args, &r));
  if (d->owned[i]) cnn_unref(d->in[i]);
  d->in[i] = cnn_ref(r.t[0]);
  d->owned[i] = d->owns = true;
  cnn_results_free(&r);
  return CNN_OK;
}

static cnn_status promote(dispatch *d) {
  cnn_promotion rule = d->e->op->promote;
  // Most calls are on tensors of one dtype.
  if (d->alike && d->n_in > 0) {
    d->infer.dtype = (cnn_dtype)d->in[0]->dtype;
    if (rule != CNN_PROMOTE_FLOAT || cnn_dtype_is_float(d->infer.dtype)) return CNN_OK;
  }
  if (rule == CNN_PROMOTE_NONE || rule == CNN_PROMOTE_SAME) return same_dtype(d);
  cnn_dtype dtype = common_dtype(d);
  if (rule == CNN_PROMOTE_FLOAT && !cnn_dtype_is_float(dtype)) dtype = d->ctx->default_dtype;
  d->infer.dtype = dtype;
  for (int i = 0; i < d->n_in; i++) {
    if (!d->in[i] || d->in[i]->dtype == dtype || !promotes(input_type(d, i))) continue;
    CNN_TRY(replace(d, i, cnn_ops_of_engine()->cast, CNN_ARGS(CNN_A_T(d->in[i]), CNN_A_I(dtype))));
  }
  return CNN_OK;
}

static void release_inputs(dispatch *d) {
  for (int i = 0; d->owns && i < d->n_in; i++)
    if (d->owned[i]) cnn_unref(d->in[i]);
  if (d->in != d->inline_in) cnn_free(d->in);
}

// ---------------------------------------------------------------------------------------------
// Results

static bool same_place(const cnn_tensor *a, const cnn_tensor *b) {
  return a->offset == b->offset && a->dtype == b->dtype &&
         cnn_shape_equal(a->ndim, a->shape, b->ndim, b->shape) &&
         cnn_shape_equal(a->ndim, a->strides, b->ndim, b->strides);
}

// Inputs that share bytes with an argument that will be changed are copied first, but those that
// are exactly that argument: elementwise kernels read an element before they write it; and those
// that will be changed themselves: running statistics may be rows of one tensor.
static cnn_status separate(dispatch *d, const cnn_tensor *changed, int self, bool elementwise) {
  for (int i = 0; i < d->n_in; i++) {
    if (i == self || !d->in[i] || d->in[i]->buffer != changed->buffer) continue;
    if (elementwise && same_place(d->in[i], changed)) continue;
    if (input_param(d, i)->changed) { // a copy would be changed in its stead
      if (!same_place(d->in[i], changed)) continue;
      return cnn_fail(d->ctx, CNN_INVALID, "%s and %s are the same elements, and both are changed",
                      input_name(d, self), input_name(d, i));
    }
    CNN_TRY(replace(d, i, cnn_ops_of_engine()->clone, CNN_ARGS(CNN_A_T(d->in[i]))));
  }
  return CNN_OK;
}

static void fill_view(cnn_view *v, const cnn_tensor *t) {
  v->data = cnn_data(t);
  v->shape = t->shape;
  v->strides = t->strides;
  v->ndim = t->ndim;
  v->dtype = (cnn_dtype)t->dtype;
}

// Number operands become 0-d elements of the common dtype. Numbers in the CPU's memory have no
// shape.
static void fill_views(dispatch *d) {
  for (int i = 0; i < d->n_in; i++) {
    cnn_view *v = &d->views[i];
    if (d->in[i]) {
      fill_view(v, d->in[i]);
      if (d->in[i]->device.type == CNN_CPU && d->infer.device.type != CNN_CPU && v->ndim == 0)
        v->shape = v->strides = NULL;
      continue;
    }
    const cnn_arg *a = &d->args[d->e->arg_of[d->declared[i]]];
    if (a->kind != CNN_NUMBER && a->kind != CNN_INT) {
      *v = (cnn_view){NULL, NULL, NULL, -1, CNN_F32};
      continue;
    }
    void *p = &d->scalars[d->n_scalars++];
    if (a->kind == CNN_NUMBER)
      cnn_element_set(d->infer.dtype, p, a->d);
    else
      cnn_element_set_int(d->infer.dtype, p, a->i);
    *v = (cnn_view){p, NULL, NULL, 0, d->infer.dtype};
  }
}

static cnn_status launch(cnn_call *call, const cnn_backend *backend) {
  return backend->run ? backend->run(call) : call->kernel->run(call);
}

static cnn_status plan(cnn_call *call, const cnn_backend *backend) {
  call->planning = true;
  call->scratch_bytes = 0;
  if (call->kernel->plan) CNN_TRY(backend->plan ? backend->plan(call) : call->kernel->plan(call));
  call->planning = false;
  return CNN_OK;
}

static cnn_status obtain_scratch(dispatch *d, const cnn_call *call, cnn_buffer **scratch) {
  uint8_t kind = d->ctx->kind;
  *scratch = NULL;
  if (call->scratch_bytes == 0) return CNN_OK;
  d->ctx->kind = CNN_KIND_WORKSPACE;
  cnn_status status = cnn_buffer_create(d->ctx, d->infer.device, call->scratch_bytes, scratch);
  d->ctx->kind = kind;
  return status;
}

#define SQUEEZES 2

// When the scratch can't be had, and nobody will make room and call again, the kernel is asked for
// ways with less.
static cnn_status run_with_scratch(dispatch *d, cnn_call *call, const cnn_backend *backend) {
  cnn_buffer *scratch;
  cnn_status status = obtain_scratch(d, call, &scratch);
  while (status == CNN_OOM && d->ctx->last_try && call->squeeze < SQUEEZES) {
    size_t before = call->scratch_bytes;
    call->squeeze++;
    CNN_TRY(plan(call, backend));
    if (call->scratch_bytes < before) status = obtain_scratch(d, call, &scratch);
  }
  CNN_TRY(status);
  call->scratch = scratch ? scratch->data : NULL;
  if (d->infer.device.type != CNN_META) status = launch(call, backend);
  cnn_unref(scratch);
  return status;
}

// In a simulation kernels plan with the addresses that the simulated buffers would have.
static void simulate_view(cnn_view *v, const cnn_tensor *t) {
  char *at = t ? cnn_simulated_data(t->buffer) : NULL;
  if (at) v->data = at + t->offset * (int64_t)cnn_dtype_size((cnn_dtype)t->dtype);
}

// Whether it is the op that takes a tensor from one device to another. (To and from meta nothing
// is taken.)
static bool is_move(const dispatch *d, cnn_device to) {
  return d->id == cnn_ops_of_engine()->to_device && d->in[0]->device.type != CNN_META &&
         to.type != CNN_META && !cnn_device_equal(d->in[0]->device, to);
}

// Whether it copies between two tensors that lie alike on two devices: bytes.
static bool is_exchange(const dispatch *d) {
  if (d->id != cnn_ops_of_engine()->copy_) return false;
  const cnn_tensor *x = d->in[0], *src = d->in[1];
  return x->device.type != CNN_META && src->device.type != CNN_META &&
         !cnn_device_equal(x->device, src->device) && x->dtype == src->dtype &&
         cnn_shape_equal(x->ndim, x->shape, src->ndim, src->shape) &&
         cnn_shape_equal(x->ndim, x->strides, src->ndim, src->strides) &&
         cnn_strides_dense(x->ndim, x->shape, x->strides);
}

// Two devices can exchange bytes only: the rest of a copy is done before, or after, on either.
static cnn_status bring(dispatch *d) {
  cnn_tensor *x = d->in[0];
  if (d->id == cnn_ops_of_engine()->copy_) {
    if (d->in[1]->device.type == CNN_META || cnn_device_equal(d->in[1]->device, x->device) ||
        is_exchange(d))
      return CNN_OK;
    return replace(d, 1, cnn_ops_of_engine()->to_device,
                   CNN_ARGS(CNN_A_T(d->in[1]), CNN_A_DEVICE(x->device), d->args[2]));
  }
  if (d->id != cnn_ops_of_engine()->to_device) return CNN_OK;
  cnn_device to = cnn_device_decode(d->args[1].i);
  CNN_TRY(cnn_device_ready(d->ctx, to));
  if (!is_move(d, to) || cnn_strides_dense(x->ndim, x->shape, x->strides)) return CNN_OK;
  return replace(d, 0, cnn_ops_of_engine()->clone, CNN_ARGS(CNN_A_T(x)));
}

static cnn_status move(dispatch *d, const cnn_tensor *out, const cnn_tensor *src) {
  cnn_view to, from;
  fill_view(&to, out);
  fill_view(&from, src);
  return cnn_device_move(d->ctx, &to, out->device, &from, src->device, d->args[2].i != 0);
}

// Waits for copies behind their calls that use the inputs.
static cnn_status settle(dispatch *d) {
  for (int i = 0; i < d->n_in; i++)
    if (d->in[i]) CNN_TRY(cnn_buffer_settle(d->ctx, d->in[i]->buffer));
  return CNN_OK;
}

// On meta nothing runs. A simulation asks the kernel of the device that it imitates for its
// scratch.
static cnn_status run_kernel(dispatch *d, cnn_tensor *const *out, int n_out) {
  bool meta = d->infer.device.type == CNN_META;
  if (meta && !d->ctx->simulation) return CNN_OK;
  // Copies between devices are in an order of their own, and wait for nothing here.
  if (!meta && d->e->op->flags & CNN_OP_ANY_DEVICE) {
    if (n_out == 1 && is_move(d, out[0]->device)) return move(d, out[0], d->in[0]);
    if (is_exchange(d)) return move(d, d->in[0], d->in[1]);
  }
  if (!meta) CNN_TRY(settle(d));
  cnn_device device = meta ? cnn_simulation_target(d->ctx->simulation) : d->infer.device;
  const cnn_backend *backend = cnn_backend_of((cnn_device_type)device.type);
  const cnn_kernel *kernel = backend ? backend->kernels[d->id] : NULL;
  if (!kernel)
    return cnn_fail(d->ctx, CNN_UNSUPPORTED, "not available on %s; move the tensors to the CPU",
                    cnn_device_name(device));
  if (meta && !kernel->plan) return CNN_OK;
  fill_views(d);
  cnn_view *outs = d->views + d->capacity;
  for (int i = 0; i < n_out; i++) fill_view(&outs[i], out[i]);
  if (meta) {
    for (int i = 0; i < d->n_in; i++) simulate_view(&d->views[i], d->in[i]);
    for (int i = 0; i < n_out; i++) simulate_view(&outs[i], out[i]);
  }
  cnn_call call = {.ctx = d->ctx,
                   .op = d->e->op,
                   .id = d->id,
                   .device = device,
                   .kernel = kernel,
                   .args = d->args,
                   .n_args = d->e->spec.n,
                   .n_in = d->n_in,
                   .n_out = n_out,
                   .in = d->views,
                   .out = outs,
                   .rng = d->ctx->rng};
  if (device.type == CNN_CUDA) call.stream = d->ctx->streams[device.index];
  CNN_TRY(plan(&call, backend));
  if (call.scratch_bytes > 0) return run_with_scratch(d, &call, backend);
  return meta ? CNN_OK : launch(&call, backend);
}

static cnn_status check_recordable(dispatch *d, const cnn_dtype *dtypes, int n_out) {
  if (!d->record) return CNN_OK;
  bool any = false;
  for (int i = 0; i < n_out; i++) any = any || cnn_dtype_is_float(dtypes[i]);
  if (!any || d->e->op->flags & CNN_OP_NO_GRAD) {
    d->record = false;
    return CNN_OK;
  }
  if (d->e->op->backward) return CNN_OK;
  return cnn_fail(d->ctx, CNN_UNSUPPORTED,
                  "its gradient is not written, but an input requires one: detach() the input, or "
                  "wrap the call in cnn.no_grad");
}

static cnn_status finish_record(dispatch *d, cnn_tensor *const *out, int n_out, cnn_node **node) {
  CNN_TRY(cnn_node_create(d->ctx, d->id, d->args, d->e->spec.n, d->in, d->declared, d->n_in, out,
                          n_out, d->in_place, node));
  (*node)->rng = d->ctx->rng;
  return CNN_OK;
}

static void attach(cnn_node *node, cnn_tensor *const *out, int n_out) {
  for (int i = 0; i < n_out; i++)
    if (cnn_dtype_is_float((cnn_dtype)out[i]->dtype)) cnn_node_attach(node, i, out[i]);
}

static void keep(cnn_results *r, cnn_tensor *const *out, int n_out) {
  r->n = n_out;
  for (int i = 0; i < n_out; i++) r->t[i] = out[i];
}

// A result that shares input 0's buffer.
static cnn_status make_view(dispatch *d, cnn_results *r) {
  cnn_tensor *x = d->in[0], *y;
  CNN_TRY(cnn_tensor_on(d->ctx, x->buffer, &d->infer.out[0], d->infer.offset, &y));
  if (d->ctx->inference || x->flags & CNN_INFERENCE) y->flags |= CNN_INFERENCE;
  y->flags |= x->flags & (CNN_MULTI_VIEW | CNN_NO_GRAD_VIEW);
  if (!d->ctx->grad_enabled) y->flags |= CNN_NO_GRAD_VIEW;
  if (d->record) {
    cnn_node *node;
    cnn_status status = finish_record(d, &y, 1, &node);
    if (status == CNN_OK) {
      status = cnn_node_fill(d->ctx, node, &y, 1);
      if (status != CNN_OK) cnn_unref(node);
    }
    if (status != CNN_OK) {
      cnn_unref(y);
      return status;
    }
    cnn_node_attach(node, 0, y);
    cnn_unref(node);
  }
  y->base = cnn_ref(x->base ? x->base : x);
  y->generation = y->base->generation;
  keep(r, &y, 1);
  return CNN_OK;
}

// Ops that change arguments: which may be changed, and nothing else may share their bytes.
static cnn_status check_changed(dispatch *d) {
  for (int i = 0; i < d->e->spec.n; i++) {
    if (!d->e->spec.params[i].changed) continue;
    for (int k = 0; k < d->n_in; k++) {
      if (d->declared[k] != d->e->input_of[i] || !d->in[k]) continue;
      bool self = i == 0 && (d->e->op->flags & CNN_OP_SELF);
      CNN_TRY(cnn_history_check(d->ctx, d->in[k], self && d->record));
      // Lists are walked element by element, each read before it is written.
      if (!is_list((cnn_type)d->e->spec.params[i].type)) CNN_TRY(separate(d, d->in[k], k, false));
    }
  }
  return CNN_OK;
}

static void bump_changed(dispatch *d) {
  for (int i = 0; i < d->e->spec.n; i++) {
    if (!d->e->spec.params[i].changed) continue;
    for (int k = 0; k < d->n_in; k++)
      if (d->declared[k] == d->e->input_of[i] && d->in[k]) cnn_buffer_bump(d->in[k]->buffer);
  }
}

// What is counted once it is done. Random ops have used their counters; on meta nothing is drawn:
// planning a run must not change it.
static void advance(dispatch *d) {
  d->ctx->work += d->infer.work;
  if (d->infer.device.type != CNN_META) d->ctx->rng.offset += d->infer.draws;
}

// x has been changed in place, and gets the history prepared for that.
static void commit(dispatch *d, cnn_tensor *x, cnn_rewrite *rewrite) {
  (void)cnn_node_fill(d->ctx, rewrite->node, &x, 1);
  cnn_rewrite_commit(x, rewrite);
}

// The kernel changes argument 0 (and gives it back).
static cnn_status run_self(dispatch *d, cnn_results *r) {
  cnn_tensor *x = d->in[0];
  cnn_rewrite rewrite;
  cnn_dtype dtype = (cnn_dtype)x->dtype;
  CNN_TRY(check_recordable(d, &dtype, 1));
  CNN_TRY(check_changed(d));
  if (d->record) {
    cnn_node *node;
    d->in_place = true;
    CNN_TRY(finish_record(d, &x, 1, &node));
    CNN_TRY(cnn_rewrite_prepare(d->ctx, x, node, &rewrite));
  }
  cnn_status status = run_kernel(d, NULL, 0);
  if (status != CNN_OK) {
    if (d->record) cnn_rewrite_drop(&rewrite);
    return status;
  }
  bump_changed(d);
  advance(d);
  if (d->record) commit(d, x, &rewrite);
  cnn_ref(x);
  keep(r, &x, 1);
  return CNN_OK;
}

// Whether the result may take the bytes of the argument that the caller gives up. Who could still
// read them holds the buffer (views, saved tensors), or will, when this op saves its input.
static bool may_take_over(const dispatch *d) {
  const cnn_tensor *x = d->spent;
  const cnn_meta *y = &d->infer.out[0];
  unsigned elementwise = d->e->op->flags & (CNN_OP_IN_PLACE | CNN_OP_MOVES);
  if (!x || elementwise != CNN_OP_IN_PLACE || d->infer.n_out != 1 || d->ctx->packer) return false;
  if (cnn_refs(x) != 1 || cnn_refs(x->buffer) != 1 || x->buffer->release || x->base) return false;
  if (y->dtype != (cnn_dtype)x->dtype || !cnn_device_equal(y->device, x->device) ||
      !cnn_shape_equal(y->ndim, y->shape, x->ndim, x->shape) ||
      !cnn_shape_equal(y->ndim, y->strides, x->ndim, x->strides))
    return false;
  bool argument = false;
  for (int i = 0; i < d->n_in; i++) {
    if (d->in[i] != x) continue;
    if (d->record && cnn_node_saves(d->e, d->in, d->declared, d->n_in, i)) return false;
    argument = true;
  }
  return argument;
}

static cnn_status make_result(dispatch *d, int i, cnn_tensor **out) {
  if (!may_take_over(d)) return cnn_tensor_empty(d->ctx, &d->infer.out[i], out);
  CNN_TRY(cnn_tensor_on(d->ctx, d->spent->buffer, &d->infer.out[i], d->spent->offset, out));
  cnn_buffer_bump((*out)->buffer); // copies of the old elements (engine/pack.c) are out of date
  if (d->ctx->inference) (*out)->flags |= CNN_INFERENCE;
  if ((*out)->buffer->kind == CNN_KIND_OTHER)
    cnn_buffer_retag((*out)->buffer, (cnn_kind)d->ctx->kind);
  return CNN_OK;
}

static cnn_status run_fresh(dispatch *d, cnn_results *r) {
  cnn_tensor *out[CNN_MAX_RESULTS];
  cnn_dtype dtypes[CNN_MAX_RESULTS];
  int n_out = d->infer.n_out, made = 0;
  cnn_node *node = NULL;
  for (int i = 0; i < n_out; i++) dtypes[i] = d->infer.out[i].dtype;
  CNN_TRY(check_recordable(d, dtypes, n_out));
  if (d->e->changes) CNN_TRY(check_changed(d));
  cnn_status status = CNN_OK;
  uint8_t kind = d->ctx->kind;
  if (d->record && kind == CNN_KIND_OTHER) d->ctx->kind = CNN_KIND_ACTIVATION;
  while (made < n_out && status == CNN_OK) {
    status = make_result(d, made, &out[made]);
    if (status == CNN_OK) made++;
  }
  if (status == CNN_OK && d->record) status = finish_record(d, out, n_out, &node);
  if (status == CNN_OK) status = run_kernel(d, out, n_out);
  if (status == CNN_OK && node) status = cnn_node_fill(d->ctx, node, out, n_out);
  d->ctx->kind = kind;
  if (status != CNN_OK) {
    cnn_unref(node);
    while (made > 0) cnn_unref(out[--made]);
    return status;
  }
  if (d->e->changes) bump_changed(d);
  advance(d);
  if (node) attach(node, out, n_out);
  cnn_unref(node);
  keep(r, out, n_out);
  return CNN_OK;
}

static cnn_status run_composite(dispatch *d, cnn_results *r) {
  cnn_frame f;
  // Arguments see the promoted inputs.
  for (int i = 0; i < d->e->spec.n; i++)
    if (d->args[i].kind == CNN_TENSOR) d->args[i].t = d->in[d->e->input_of[i]];
  cnn_frame_open(&f, d->ctx);
  d->e->op->composite(&f, d->args, r);
  cnn_status status = cnn_frame_close(&f);
  if (status != CNN_OK) cnn_results_free(r);
  return status;
}

static cnn_status infer(dispatch *d) {
  d->infer.ctx = d->ctx;
  d->infer.op = d->e->op;
  d->infer.args = d->args;
  d->infer.n_args = d->e->spec.n;
  d->infer.in = d->in;
  d->infer.n_in = d->n_in;
  d->infer.n_out = 0;
  d->infer.draws = 0;
  d->infer.work = 0;
  return d->e->op->infer ? d->e->op->infer(&d->infer) : CNN_OK;
}

// On a GPU that was shut down the inputs' bytes are gone.
static cnn_status check_bytes(dispatch *d) {
  for (int i = 0; i < d->n_in; i++)
    if (d->in[i]) CNN_TRY(cnn_buffer_check(d->ctx, d->in[i]->buffer, input_name(d, i)));
  return CNN_OK;
}

static cnn_status start(dispatch *d, const cnn_arg *args, int n_args) {
  d->n_scalars = 0;
  CNN_TRY(collect(d, args, n_args));
  if (__builtin_expect(cnn_cuda_shutdowns() > 0, 0)) CNN_TRY(check_bytes(d));
  if (!(d->e->op->flags & CNN_OP_ANY_DEVICE))
    CNN_TRY(check_devices(d));
  else
    d->infer.device = d->in[0] ? d->in[0]->device : d->ctx->default_device;
  if (d->views_in && d->ctx->grad_enabled)
    for (int i = 0; i < d->n_in; i++)
      if (d->in[i] && d->in[i]->base) CNN_TRY(cnn_history_refresh(d->ctx, d->in[i]));
  if (d->ctx->watch) CNN_TRY(cnn_watch_note(d->ctx, d->ctx->watch, d->in, d->n_in));
  d->record = cnn_wants_record(d->ctx, d->in, d->n_in);
  return CNN_OK;
}

static cnn_status run(dispatch *d, const cnn_arg *args, int n_args, cnn_results *r) {
  const cnn_op *op = d->e->op;
  CNN_TRY(start(d, args, n_args));
  if (op->flags & CNN_OP_ANY_DEVICE) CNN_TRY(bring(d));
  CNN_TRY(promote(d));
  CNN_TRY(infer(d));
  // A fused op without a derivative of its own is differentiated through its composite.
  if (op->composite && (!op->infer || op->flags & CNN_OP_COMPOSITE || (d->record && !op->backward)))
    return run_composite(d, r);
  if (op->flags & CNN_OP_VIEW) return make_view(d, r);
  if (op->flags & CNN_OP_SELF) return run_self(d, r);
  return run_fresh(d, r);
}

// The result of `d` in a new tensor first, then copied into x.
static cnn_status through_copy(dispatch *d, cnn_tensor *x, const cnn_arg *args, int n_args,
                               cnn_results *r) {
  cnn_results fresh;
  CNN_TRY(cnn_dispatch(d->ctx, d->id, args, n_args, &fresh));
  if (fresh.t[0] == x) { // it did nothing
    *r = fresh;
    r->t = r->inline_t;
    return CNN_OK;
  }
  cnn_status status = cnn_dispatch(d->ctx, cnn_ops_of_engine()->copy_,
                                   CNN_ARGS(CNN_A_T(x), CNN_A_T(fresh.t[0])), r);
  cnn_results_free(&fresh);
  return status;
}

static cnn_status run_in_place(dispatch *d, const cnn_arg *args, int n_args, cnn_results *r) {
  const cnn_op *op = d->e->op;
  if (args[0].kind != CNN_TENSOR)
    return cnn_fail(d->ctx, CNN_INVALID,
                    "in place, argument 1 is what is changed: it must be a tensor, not a number");
  cnn_tensor *x = args[0].t;
  CNN_TRY(start(d, args, n_args));
  CNN_TRY(cnn_history_check(d->ctx, x, d->record));
  if (!op->infer) return through_copy(d, x, args, n_args, r);
  CNN_TRY(promote(d));
  CNN_TRY(infer(d));
  const cnn_meta *y = &d->infer.out[0];
  if (!cnn_shape_equal(y->ndim, y->shape, x->ndim, x->shape)) {
    cnn_shape_text a, b;
    return cnn_fail(d->ctx, CNN_SHAPE, "in place, the result's shape %s must be that of %s, %s",
                    cnn_shape_format(&a, y->ndim, y->shape), input_name(d, 0),
                    cnn_shape_format(&b, x->ndim, x->shape));
  }
  if (cnn_dtype_category(y->dtype) > cnn_dtype_category((cnn_dtype)x->dtype))
    return cnn_fail(d->ctx, CNN_DTYPE, "in place, a %s result can't be stored in a %s tensor",
                    cnn_dtype_name(y->dtype), cnn_dtype_name((cnn_dtype)x->dtype));
  bool direct = d->in[0] == x && y->dtype == (cnn_dtype)x->dtype && !(op->flags & CNN_OP_COMPOSITE);
  if (!direct) return through_copy(d, x, args, n_args, r);
  CNN_TRY(check_recordable(d, &y->dtype, 1));
  CNN_TRY(separate(d, x, 0, !(op->flags & CNN_OP_MOVES)));
  cnn_rewrite rewrite;
  if (d->record) {
    cnn_node *node;
    CNN_TRY(finish_record(d, &x, 1, &node));
    CNN_TRY(cnn_rewrite_prepare(d->ctx, x, node, &rewrite));
  }
  cnn_status status = run_kernel(d, &x, 1);
  if (status != CNN_OK) {
    if (d->record) cnn_rewrite_drop(&rewrite);
    return status;
  }
  cnn_buffer_bump(x->buffer);
  advance(d);
  if (d->record) commit(d, x, &rewrite);
  cnn_ref(x);
  keep(r, &x, 1);
  return CNN_OK;
}

static cnn_status enter(cnn_context *ctx, int op, const cnn_arg *args, int n_args,
                        cnn_tensor *spent, cnn_results *r, bool in_place) {
  dispatch d;
  d.ctx = ctx;
  d.id = op;
  d.e = cnn_op_at(op);
  const char *name = d.e->op->name;
  if (d.e->op->choose) {
    int chosen = d.e->op->choose(args, n_args);
    if (chosen >= 0) d.id = chosen, d.e = cnn_op_at(chosen);
  }
  d.in_place = in_place;
  d.spent = spent;
  d.n_in = 0;
  d.owns = false;
  d.in = d.inline_in;
  const char *outer = ctx->op;
  if (!outer) ctx->op = name; // messages name the op that the user called
  cnn_results_init(r, ctx);
  cnn_status status = in_place ? run_in_place(&d, args, n_args, r) : run(&d, args, n_args, r);
  ctx->op = outer;
  release_inputs(&d);
  return status;
}

cnn_status cnn_dispatch(cnn_context *ctx, int op, const cnn_arg *args, int n_args, cnn_results *r) {
  return enter(ctx, op, args, n_args, NULL, r, false);
}

cnn_status cnn_dispatch_over(cnn_context *ctx, int op, const cnn_arg *args, int n_args,
                             cnn_tensor *spent, cnn_results *r) {
  return enter(ctx, op, args, n_args, spent, r, false);
}

cnn_status cnn_dispatch_in_place(cnn_context *ctx, int op, const cnn_arg *args, int n_args,
                                 cnn_results *r) {
  return enter(ctx, op, args, n_args, NULL, r, true);
}
