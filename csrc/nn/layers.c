// SPDX-License-Identifier: MIT
// The built-in layers: the table, and what each makes at construction. Initialisation is PyTorch's:
// uniform in +-1/sqrt(fan_in) for linear and convolution weights and biases (Kaiming uniform with
// a = sqrt(5)), normal for embeddings, 1 and 0 for the affine parts of normalisations.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/node.h"
#include "nn/module.h"
#include "ops/ops.h"

// ---------------------------------------------------------------------------------------------
// Arguments of a constructor, by name

static const cnn_arg *argument(const cnn_module *m, const char *name) {
  static const cnn_arg absent = {.kind = CNN_ABSENT};
  const cnn_spec *spec = cnn_layer_spec(m->layer);
  for (int i = 0; i < spec->n; i++)
    if (strcmp(spec->params[i].name, name) == 0) return &m->args[i];
  return &absent;
}

static int64_t integer(const cnn_module *m, const char *name) {
  return argument(m, name)->i;
}

static cnn_status positive(cnn_context *ctx, const cnn_module *m, const char *name) {
  if (integer(m, name) >= 0) return CNN_OK;
  return cnn_fail(ctx, CNN_INVALID, "%s must be >= 0, not %lld", name, (long long)integer(m, name));
}

// ---------------------------------------------------------------------------------------------
// Making tensors

// A new tensor of the constructor's dtype and device, undefined.
static cnn_status make(cnn_context *ctx, const cnn_module *m, int ndim, const int64_t *shape,
                       cnn_tensor **out) {
  const cnn_arg *device = argument(m, "device"), *dtype = argument(m, "dtype");
  cnn_meta meta;
  cnn_meta_set(&meta, dtype->kind == CNN_INT ? (cnn_dtype)dtype->i : ctx->default_dtype,
               device->kind == CNN_INT ? cnn_device_decode(device->i) : ctx->default_device, ndim,
               shape);
  return cnn_tensor_empty(ctx, &meta, out);
}

typedef enum filling { ZEROS, ONES, UNIFORM, NORMAL } filling;

static cnn_status fill(cnn_context *ctx, cnn_tensor *t, filling how, double scale) {
  cnn_frame f;
  cnn_frame_open(&f, ctx);
  switch (how) {
  case ZEROS: cnn_do(&f, fill_, CNN_A_T(t), CNN_A_I(0)); break;
  case ONES: cnn_do(&f, fill_, CNN_A_T(t), CNN_A_I(1)); break;
  case UNIFORM: cnn_do(&f, uniform_, CNN_A_T(t), CNN_A_N(-scale), CNN_A_N(scale)); break;
  case NORMAL: cnn_do(&f, normal_, CNN_A_T(t), CNN_A_N(0), CNN_A_N(scale)); break;
  }
  return cnn_frame_close(&f);
}

static cnn_status add_parameter(cnn_context *ctx, cnn_module *m, const char *name, int ndim,
                                const int64_t *shape, filling how, double scale) {
  cnn_tensor *t;
  CNN_TRY(make(ctx, m, ndim, shape, &t));
  cnn_status status = fill(ctx, t, how, scale);
  if (status == CNN_OK) status = cnn_module_set_parameter(ctx, m, name, t);
  cnn_unref(t);
  return status;
}

static cnn_status add_buffer(cnn_context *ctx, cnn_module *m, const char *name, int ndim,
                             const int64_t *shape, filling how) {
  cnn_tensor *t;
  CNN_TRY(make(ctx, m, ndim, shape, &t));
  cnn_status status = fill(ctx, t, how, 0);
  if (status == CNN_OK) status = cnn_module_set_buffer(ctx, m, name, t, true);
  cnn_unref(t);
  return status;
}

static double fan_bound(int64_t fan_in) {
  return fan_in > 0 ? 1 / sqrt((double)fan_in) : 0;
}

// ---------------------------------------------------------------------------------------------
// Layers

static cnn_status linear_init(cnn_context *ctx, cnn_module *m) {
  CNN_TRY(positive(ctx, m, "in_features"));
  CNN_TRY(positive(ctx, m, "out_features"));
  int64_t shape[] = {integer(m, "out_features"), integer(m, "in_features")};
  double bound = fan_bound(shape[1]);
  CNN_TRY(add_parameter(ctx, m, "weight", 2, shape, UNIFORM, bound));
  if (!integer(m, "bias")) return cnn_module_set_parameter(ctx, m, "bias", NULL);
  return add_parameter(ctx, m, "bias", 1, shape, UNIFORM, bound);
}

static cnn_status conv2d_init(cnn_context *ctx, cnn_module *m) {
  int64_t in = integer(m, "in_channels"), out = integer(m, "out_channels");
  int64_t groups = integer(m, "groups");
  const int64_t *kernel = argument(m, "kernel_size")->ints;
  if (groups < 1 || in % groups != 0 || out % groups != 0)
    return cnn_fail(ctx, CNN_INVALID,
                    "in_channels %lld and out_channels %lld must be multiples of groups %lld",
                    (long long)in, (long long)out, (long long)groups);
  if (in < 0 || out < 0 || kernel[0] < 1 || kernel[1] < 1)
    return cnn_fail(ctx, CNN_INVALID, "channels must be >= 0 and kernel sizes >= 1");
  int64_t shape[] = {out, in / groups, kernel[0], kernel[1]};
  double bound = fan_bound(shape[1] * shape[2] * shape[3]);
  CNN_TRY(add_parameter(ctx, m, "weight", 4, shape, UNIFORM, bound));
  if (!integer(m, "bias")) return cnn_module_set_parameter(ctx, m, "bias", NULL);
  return add_parameter(ctx, m, "bias", 1, shape, UNIFORM, bound);
}

static cnn_status embedding_init(cnn_context *ctx, cnn_module *m) {
  int64_t shape[] = {integer(m, "num_embeddings"), integer(m, "embedding_dim")};
  const cnn_arg *padding = argument(m, "padding_idx");
  if (shape[0] < 0 || shape[1] < 0)
    return cnn_fail(ctx, CNN_INVALID, "num_embeddings and embedding_dim must be >= 0");
  if (padding->kind == CNN_INT && padding->i >= shape[0])
    return cnn_fail(ctx, CNN_INDEX, "padding_idx %lld is out of range (%d..%lld)",
                    (long long)padding->i + ctx->index_base, ctx->index_base,
                    (long long)shape[0] - 1 + ctx->index_base);
  CNN_TRY(add_parameter(ctx, m, "weight", 2, shape, NORMAL, 1));
  if (padding->kind != CNN_INT) return CNN_OK;
  cnn_frame f;
  cnn_frame_open(&f, ctx);
  cnn_tensor *weight = cnn_module_find(m, "weight")->tensor;
  cnn_tensor *row = cnn_do(&f, select, CNN_A_T(weight), CNN_A_I(0), CNN_A_I(padding->i));
  cnn_do(&f, fill_, CNN_A_T(row), CNN_A_I(0));
  return cnn_frame_close(&f);
}

static cnn_status batch_norm_init(cnn_context *ctx, cnn_module *m) {
  CNN_TRY(positive(ctx, m, "num_features"));
  int64_t n = integer(m, "num_features");
  if (integer(m, "affine")) {
    CNN_TRY(add_parameter(ctx, m, "weight", 1, &n, ONES, 0));
    CNN_TRY(add_parameter(ctx, m, "bias", 1, &n, ZEROS, 0));
  } else {
    CNN_TRY(cnn_module_set_parameter(ctx, m, "weight", NULL));
    CNN_TRY(cnn_module_set_parameter(ctx, m, "bias", NULL));
  }
  if (!integer(m, "track_running_stats")) return CNN_OK;
  CNN_TRY(add_buffer(ctx, m, "running_mean", 1, &n, ZEROS));
  CNN_TRY(add_buffer(ctx, m, "running_var", 1, &n, ONES));
  cnn_tensor *count;
  cnn_meta meta;
  cnn_meta_set(&meta, CNN_I64, cnn_module_find(m, "running_mean")->tensor->device, 0, NULL);
  CNN_TRY(cnn_tensor_empty(ctx, &meta, &count));
  cnn_status status = fill(ctx, count, ZEROS, 0);
  if (status == CNN_OK) status = cnn_module_set_buffer(ctx, m, "num_batches_tracked", count, true);
  cnn_unref(count);
  return status;
}

static cnn_status layer_norm_init(cnn_context *ctx, cnn_module *m) {
  const cnn_arg *shape = argument(m, "normalized_shape");
  bool affine = integer(m, "elementwise_affine") != 0;
  if (!affine)
    CNN_TRY(cnn_module_set_parameter(ctx, m, "weight", NULL));
  else
    CNN_TRY(add_parameter(ctx, m, "weight", shape->n, shape->ints, ONES, 0));
  if (!affine || !integer(m, "bias")) return cnn_module_set_parameter(ctx, m, "bias", NULL);
  return add_parameter(ctx, m, "bias", shape->n, shape->ints, ZEROS, 0);
}

static cnn_status prelu_init(cnn_context *ctx, cnn_module *m) {
  int64_t n = integer(m, "num_parameters");
  const cnn_arg *init = argument(m, "init");
  CNN_TRY(positive(ctx, m, "num_parameters"));
  CNN_TRY(add_parameter(ctx, m, "weight", 1, &n, ZEROS, 0));
  cnn_frame f;
  cnn_frame_open(&f, ctx);
  cnn_do(&f, fill_, CNN_A_T(cnn_module_find(m, "weight")->tensor), *init);
  return cnn_frame_close(&f);
}

// Losses keep the class weights that they are given as buffers.
static cnn_status weight_init(cnn_context *ctx, cnn_module *m) {
  static const char *const names[] = {"weight", "pos_weight"};
  for (int i = 0; i < 2; i++) {
    const cnn_arg *a = argument(m, names[i]);
    if (a->kind == CNN_TENSOR) CNN_TRY(cnn_module_set_buffer(ctx, m, names[i], a->t, true));
  }
  for (int i = 0; i < m->n_args; i++)
    if (m->args[i].kind == CNN_TENSOR) m->args[i] = CNN_A_NONE; // the buffer holds it now
  return CNN_OK;
}

// ---------------------------------------------------------------------------------------------
// Forward

static int op_of(const cnn_module *m);
static void by_op(cnn_frame *f, cnn_module *m, int op, cnn_tensor *const *in, cnn_results *r,
                  const cnn_arg *replace);

static void identity_forward(cnn_frame *f, cnn_module *m, cnn_tensor *const *in, cnn_results *r) {
  (void)m;
  cnn_results_add(f, r, in[0]);
}

static void conv2d_forward(cnn_frame *f, cnn_module *m, cnn_tensor *const *in, cnn_results *r) {
  const cnn_arg *mode = argument(m, "padding_mode"), *padding = argument(m, "padding");
  if (mode->i == 0) {
    by_op(f, m, op_of(m), in, r, NULL);
    return;
  }
  const int64_t *kernel = argument(m, "kernel_size")->ints;
  const int64_t *dilation = argument(m, "dilation")->ints;
  int64_t pad[4] = {0}, none[2] = {0, 0};
  for (int d = 0; d < 2; d++) { // pad's list begins with the last dim
    int64_t *before = &pad[2 * (1 - d)];
    if (padding->kind == CNN_INTS) { // one size, one per dim, or those before and those after
      before[0] = padding->ints[padding->n > 1 ? d : 0];
      before[1] = padding->n == 4 ? padding->ints[2 + d] : before[0];
    } else if (padding->i == CNN_PAD_SAME) {
      int64_t all = dilation[d] * (kernel[d] - 1);
      before[0] = all / 2;
      before[1] = all - all / 2;
    }
  }
  cnn_tensor *x = cnn_do(f, pad, CNN_A_T(in[0]), CNN_A_INTS(4, pad), CNN_A_I(mode->i));
  cnn_arg replace[CNN_MAX_ARGS] = {{0}};
  replace[padding - m->args] = CNN_A_INTS(2, none);
  if (x) by_op(f, m, op_of(m), &x, r, replace);
}

// The op updates the running statistics; the count of batches is ours.
static void batch_norm(cnn_frame *f, cnn_module *m, cnn_tensor *const *in, cnn_results *r) {
  cnn_entry *count = cnn_module_find(m, "num_batches_tracked");
  by_op(f, m, op_of(m), in, r, NULL);
  if (!m->training || !count || !count->tensor || f->ctx->replaying || f->status != CNN_OK) return;
  bool grad_enabled = f->ctx->grad_enabled;
  f->ctx->grad_enabled = false;
  cnn_do_(f, add, CNN_A_T(count->tensor), CNN_A_I(1));
  f->ctx->grad_enabled = grad_enabled;
}

static void check_dims(cnn_frame *f, const cnn_tensor *x, bool fits, const char *expected) {
  cnn_shape_text a;
  if (!fits)
    f->status = cnn_fail(f->ctx, CNN_SHAPE, "expected input %s, got shape %s", expected,
                         cnn_shape_format(&a, x->ndim, x->shape));
}

static void batch_norm1d_forward(cnn_frame *f, cnn_module *m, cnn_tensor *const *in,
                                 cnn_results *r) {
  check_dims(f, in[0], in[0]->ndim == 2 || in[0]->ndim == 3, "(N, C) or (N, C, L)");
  if (f->status == CNN_OK) batch_norm(f, m, in, r);
}

static void batch_norm2d_forward(cnn_frame *f, cnn_module *m, cnn_tensor *const *in,
                                 cnn_results *r) {
  check_dims(f, in[0], in[0]->ndim == 4, "(N, C, H, W)");
  if (f->status == CNN_OK) batch_norm(f, m, in, r);
}

// ---------------------------------------------------------------------------------------------
// The table

static const cnn_layer layers[] = {
#define LAYER(title, inputs, op_name, spec, init_fn, forward_fn, text)                             \
  {.name = #title,                                                                                 \
   .n_inputs = inputs,                                                                             \
   .op = op_name,                                                                                  \
   .args = spec,                                                                                   \
   .doc = text,                                                                                    \
   .init = init_fn,                                                                                \
   .forward = forward_fn},
#include "nn/nn.def"
#undef LAYER
};

#define LAYERS ((int)(sizeof layers / sizeof *layers))

static struct {
  cnn_spec spec;
  int op;
} parsed[LAYERS];

const char *cnn_layers_install(void) {
  static char message[160];
  message[0] = '\0';
  for (int i = 0; i < LAYERS; i++) {
    const char *wrong = cnn_spec_parse(&parsed[i].spec, layers[i].args);
    parsed[i].op = layers[i].op ? cnn_op_find(layers[i].op) : -1;
    if (!wrong && layers[i].op && parsed[i].op < 0) wrong = "its op does not exist";
    if (wrong && !*message)
      snprintf(message, sizeof message, "layer %s: %s", layers[i].name, wrong);
  }
  return *message ? message : NULL;
}

int cnn_layer_count(void) {
  return LAYERS;
}

const cnn_layer *cnn_layer_at(int i) {
  return &layers[i];
}

const cnn_spec *cnn_layer_spec(const cnn_layer *layer) {
  return &parsed[layer - layers].spec;
}

int cnn_layer_find(const char *name) {
  for (int i = 0; i < LAYERS; i++)
    if (strcmp(layers[i].name, name) == 0) return i;
  return -1;
}

bool cnn_layer_is_sequence(const cnn_layer *layer) {
  return layer == &layers[0];
}

// ---------------------------------------------------------------------------------------------
// A layer by its op

static int16_t source_of(const cnn_module *m, const char *name) {
  const cnn_spec *spec = cnn_layer_spec(m->layer);
  for (int i = 0; i < m->n_entries; i++)
    if (!m->entries[i].child && strcmp(m->entries[i].name, name) == 0)
      return (int16_t)(CNN_FROM_ENTRY + i);
  // A bool argument such as bias says whether the entry of that name exists.
  for (int i = 0; i < spec->n; i++)
    if (strcmp(spec->params[i].name, name) == 0 && strcmp(name, "bias") != 0) return (int16_t)i;
  return strcmp(name, "training") == 0 ? CNN_FROM_TRAINING : CNN_FROM_NOTHING;
}

static void bind(cnn_module *m, const cnn_op_entry *op) {
  for (int i = m->layer->n_inputs; i < op->spec.n; i++)
    m->sources[i] = source_of(m, op->spec.params[i].name);
  m->bound = true;
}

// Statistics of the batch are used in training, and where none are kept.
static bool uses_batch(const cnn_module *m) {
  const cnn_arg *tracks = argument(m, "track_running_stats");
  return m->training || (tracks->kind == CNN_INT && tracks->i == 0);
}

static int op_of(const cnn_module *m) {
  return parsed[m->layer - layers].op;
}

// By the layer's op, or by one whose arguments are the same. `replace` (NULL, or one per
// constructor argument) stands in for arguments where it is not absent.
static void by_op(cnn_frame *f, cnn_module *m, int op, cnn_tensor *const *in, cnn_results *r,
                  const cnn_arg *replace) {
  const cnn_op_entry *e = cnn_op_at(op);
  cnn_arg args[CNN_MAX_ARGS];
  cnn_tensor *out[CNN_MAX_RESULTS];
  if (!m->bound) bind(m, e);
  for (int i = 0; i < m->layer->n_inputs; i++) args[i] = CNN_A_T(in[i]);
  for (int i = m->layer->n_inputs; i < e->spec.n; i++) {
    int source = m->sources[i];
    if (source >= CNN_FROM_ENTRY)
      args[i] = CNN_A_T(m->entries[source - CNN_FROM_ENTRY].tensor);
    else if (source >= 0)
      args[i] = replace && cnn_has(replace, source) ? replace[source] : m->args[source];
    else if (source == CNN_FROM_TRAINING)
      args[i] = CNN_A_I(uses_batch(m));
    else
      args[i] = CNN_A_NONE;
  }
  int n = cnn_frame_results(f, op, args, e->spec.n, out, CNN_MAX_RESULTS);
  for (int i = 0; i < n; i++) cnn_results_add(f, r, out[i]);
}

void cnn_module_compute(cnn_frame *f, cnn_module *m, cnn_tensor *const *in, cnn_results *r) {
  if (m->layer->forward)
    m->layer->forward(f, m, in, r);
  else
    by_op(f, m, op_of(m), in, r, NULL);
}

// ---------------------------------------------------------------------------------------------
// A layer and the activation behind it by one op (ops/fused.c)

static const cnn_tensor *tensor_of(const cnn_module *m, const char *name) {
  const cnn_entry *entry = cnn_module_find(m, name);
  return entry ? entry->tensor : NULL;
}

int cnn_module_fuses(cnn_context *ctx, const cnn_module *m, const cnn_module *next, cnn_tensor *x) {
  int op = op_of(m), behind = op_of(next);
  if ((op != OP_linear && op != OP_conv2d) || (behind != OP_relu && behind != OP_gelu)) return -1;
  const cnn_tensor *w = tensor_of(m, "weight");
  if (!w) return -1;
  if (op == OP_conv2d)
    return behind == OP_relu && argument(m, "padding_mode")->i == 0 ? OP_conv2d_relu : -1;
  if (w->ndim != 2) return -1;
  if (behind == OP_relu) return OP_linear_relu;
  if (argument(next, "approximate")->i != 1) return -1;
  cnn_tensor *const all[] = {x, (cnn_tensor *)(uintptr_t)w,
                             (cnn_tensor *)(uintptr_t)tensor_of(m, "bias")};
  return cnn_wants_record(ctx, all, 3) ? OP_linear_gelu_kept : OP_linear_gelu;
}

void cnn_module_compute_as(cnn_frame *f, cnn_module *m, int op, cnn_tensor *const *in,
                           cnn_results *r) {
  by_op(f, m, op, in, r, NULL);
}
