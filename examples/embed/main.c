// SPDX-License-Identifier: MIT
// A host in C, without Lua: a small network learns XOR.
//
//   make embed, or by hand:
//   cc -Icsrc examples/embed/main.c build/release/libcnn.a -lm -ldl -pthread -o xor && ./xor
//
// What a host needs to know: every function that can fail returns a status and leaves its reason in
// the context; whatever a function creates is given back with cnn_unref; ops run in frames, which
// own the tensors in between and remember the first failure, so that a formula needs no checks.
#include "cnn.h"

#include <stdio.h>
#include <string.h>

enum { STEPS = 200, HIDDEN = 8 };

// A float32 tensor with these values.
static cnn_status tensor_of(cnn_context *ctx, const float *values, int64_t rows, int64_t columns,
                            cnn_tensor **out) {
  cnn_meta meta;
  cnn_meta_set(&meta, CNN_F32, (cnn_device){CNN_CPU, 0}, 2, (const int64_t[]){rows, columns});
  CNN_TRY(cnn_tensor_empty(ctx, &meta, out));
  memcpy(cnn_data(*out), values, (size_t)(rows * columns) * sizeof *values);
  return CNN_OK;
}

// Appends a layer, made by its name from the arguments of its constructor (nn/nn.def).
static cnn_status append(cnn_context *ctx, cnn_module *model, const char *name, const cnn_arg *args,
                         int n_args) {
  cnn_module *layer;
  CNN_TRY(cnn_module_create(ctx, cnn_layer_at(cnn_layer_find(name)), args, n_args, &layer));
  cnn_status status = cnn_module_append(ctx, model, layer);
  cnn_unref(layer); // the model has its own reference now
  return status;
}

static cnn_status make_model(cnn_context *ctx, cnn_module *model) {
  CNN_TRY(append(ctx, model, "Linear", CNN_ARGS(CNN_A_I(2), CNN_A_I(HIDDEN))));
  CNN_TRY(append(ctx, model, "Tanh", NULL, 0));
  return append(ctx, model, "Linear", CNN_ARGS(CNN_A_I(HIDDEN), CNN_A_I(1)));
}

typedef struct list {
  cnn_tensor *params[8];
  int n;
} list;

static cnn_status collect(void *arg, cnn_tensor *t, const char *path, const cnn_entry *entry) {
  list *l = arg;
  (void)path, (void)entry;
  l->params[l->n++] = t;
  return CNN_OK;
}

// AdamW over all parameters, with its default settings but the learning rate.
static cnn_status make_optimizer(cnn_context *ctx, cnn_module *model, double lr,
                                 cnn_optimizer **out) {
  const cnn_optimizer_kind *adamw = cnn_optimizer_kind_find("AdamW");
  double settings[CNN_MAX_SETTINGS];
  list l = {.n = 0};
  CNN_TRY(cnn_module_tensors(ctx, model, CNN_ENTRY_PARAMETER, false, collect, &l));
  for (int i = 0; i < adamw->n_settings; i++) settings[i] = adamw->settings[i].value;
  settings[cnn_setting_find(adamw, "lr")] = lr;
  CNN_TRY(cnn_optimizer_create(ctx, adamw, out));
  return cnn_optimizer_add_group(ctx, *out, l.params, l.n, settings);
}

// One pass over the data: what the model says, and the mean squared error. Owned by the frame.
static cnn_tensor *forward(cnn_frame *f, cnn_module *model, cnn_tensor *x, cnn_tensor *y,
                           cnn_tensor **loss) {
  cnn_results r;
  *loss = NULL;
  if (f->status == CNN_OK) f->status = cnn_module_call(f->ctx, model, &x, 1, &r);
  if (f->status != CNN_OK) return NULL;
  cnn_tensor *prediction = cnn_frame_own(f, cnn_ref(r.t[0]));
  cnn_results_free(&r);
  *loss = cnn_do(f, mse_loss, CNN_A_T(prediction), CNN_A_T(y));
  return prediction;
}

static cnn_status train(cnn_context *ctx, cnn_module *model, cnn_optimizer *optimizer,
                        cnn_tensor *x, cnn_tensor *y) {
  for (int step = 0; step <= STEPS; step++) {
    cnn_frame f;
    cnn_tensor *loss;
    CNN_TRY(cnn_optimizer_zero_grad(ctx, optimizer, true));
    cnn_frame_open(&f, ctx);
    forward(&f, model, x, y, &loss);
    if (f.status == CNN_OK) f.status = cnn_backward(ctx, loss, NULL, 0);
    if (f.status == CNN_OK) f.status = cnn_optimizer_step(ctx, optimizer);
    if (step % 50 == 0 && f.status == CNN_OK)
      printf("step %3d  loss %.6f\n", step, cnn_frame_read(&f, loss));
    CNN_TRY(cnn_frame_close(&f));
  }
  return CNN_OK;
}

// Prints the four predictions; *right counts those on the right side of one half.
static cnn_status show(cnn_context *ctx, cnn_module *model, cnn_tensor *x, cnn_tensor *y,
                       int *right) {
  cnn_frame f;
  cnn_tensor *loss;
  cnn_frame_open(&f, ctx);
  ctx->grad_enabled = false;
  cnn_tensor *prediction = forward(&f, model, x, y, &loss);
  ctx->grad_enabled = true;
  *right = 0;
  for (int64_t i = 0; prediction && i < 4; i++) {
    const float *in = cnn_element_at(x, (const int64_t[]){i, 0});
    const float *wanted = cnn_element_at(y, (const int64_t[]){i, 0});
    const float *got = cnn_element_at(prediction, (const int64_t[]){i, 0});
    printf("%g xor %g = %.3f\n", (double)in[0], (double)in[1], (double)*got);
    *right += (*got > 0.5f) == (*wanted > 0.5f);
  }
  return cnn_frame_close(&f);
}

int main(void) {
  static const float inputs[] = {0, 0, 0, 1, 1, 0, 1, 1}, outputs[] = {0, 1, 1, 0};
  cnn_context ctx;
  cnn_tensor *x = NULL, *y = NULL;
  cnn_module *model = NULL;
  cnn_optimizer *optimizer = NULL;
  int right = 0;

  const char *wrong = cnn_init();
  if (wrong) {
    fprintf(stderr, "cnn: %s\n", wrong);
    return 1;
  }
  cnn_context_init(&ctx);
  ctx.rng = (cnn_rng){.seed = 1, .offset = 0}; // the same weights in every run

  cnn_status status = tensor_of(&ctx, inputs, 4, 2, &x);
  if (status == CNN_OK) status = tensor_of(&ctx, outputs, 4, 1, &y);
  if (status == CNN_OK)
    status = cnn_module_create(&ctx, cnn_layer_at(cnn_layer_find("Sequential")), NULL, 0, &model);
  if (status == CNN_OK) status = make_model(&ctx, model);
  if (status == CNN_OK) status = make_optimizer(&ctx, model, 0.05, &optimizer);
  if (status == CNN_OK) status = train(&ctx, model, optimizer, x, y);
  if (status == CNN_OK) status = show(&ctx, model, x, y, &right);
  if (status != CNN_OK) fprintf(stderr, "%s: %s\n", cnn_status_text(status), ctx.message);

  cnn_unref(optimizer);
  cnn_unref(model);
  cnn_unref(y);
  cnn_unref(x);
  return status == CNN_OK && right == 4 ? 0 : 1;
}
