// SPDX-License-Identifier: MIT
// Graphs of cuDNN's backend API. A graph is a handful of descriptors that are set by attribute and
// finalized in order; `graph` owns all of them and remembers the first failure, so that building
// reads as a list. Descriptors refer to each other until the plan is finalized, which copies what
// it needs: all of them are destroyed together afterwards.
//
// Which engines keep a promise is read from their numerical notes: float32 without TF32 takes no
// TENSOR_CORE and no DOWN_CONVERT_INPUTS, half types no sums in half (REDUCED_PRECISION_REDUCTION),
// deterministic no NONDETERMINISTIC.
#include "dnn_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  MAX_DESCRIPTORS = 16,
  MAX_RANK = CUDA_CONV_SPATIAL + 2,
  MAX_CHOICES = 16, // of each heuristic mode
};

// Workspace beyond this is taken only where no other plan is left.
static const size_t workspace_liked = (size_t)256 << 20;

typedef struct graph {
  cudnnBackendDescriptor_t all[MAX_DESCRIPTORS];
  int count;
  cudnnStatus_t status;
  const char *where; // it failed
} graph;

bool dnn_out_of_memory(cudnnStatus_t s) {
  return s == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
         s == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

void dnn_say(cuda_message *why, const char *what, cudnnStatus_t status) {
  char last[160] = "";
  cudnnGetLastErrorString(last, sizeof last);
  for (char *p = last; *p; p++) {
    if (*p == '\n') *p = ' ';
  }
  snprintf(why->text, sizeof why->text, "%s: %s%s%s%s", what, cudnnGetErrorString(status),
           *last ? " (" : "", last, *last ? ")" : "");
}

static void note(graph *g, cudnnStatus_t status, const char *where) {
  if (g->status != CUDNN_STATUS_SUCCESS || status == CUDNN_STATUS_SUCCESS) return;
  g->status = status;
  g->where = where;
}

static cudnnBackendDescriptor_t make(graph *g, cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t d = NULL;
  if (g->status != CUDNN_STATUS_SUCCESS) return NULL;
  note(g, cudnnBackendCreateDescriptor(type, &d), "cudnnBackendCreateDescriptor");
  if (d) g->all[g->count++] = d;
  return d;
}

static void set(graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values) {
  if (g->status != CUDNN_STATUS_SUCCESS) return;
  note(g, cudnnBackendSetAttribute(d, name, type, count, values), "cudnnBackendSetAttribute");
}

static void set_int(graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                    int64_t value) {
  set(g, d, name, CUDNN_TYPE_INT64, 1, &value);
}

static void set_type(graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnDataType_t value) {
  set(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

static void set_desc(graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnBackendDescriptor_t value) {
  set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(graph *g, cudnnBackendDescriptor_t d, const char *what) {
  if (g->status != CUDNN_STATUS_SUCCESS) return;
  note(g, cudnnBackendFinalize(d), what);
}

static void destroy(graph *g) {
  while (g->count) cudnnBackendDestroyDescriptor(g->all[--g->count]);
}

static cudnnDataType_t data_type(int64_t dtype) {
  switch (dtype) {
  case CNN_F64: return CUDNN_DATA_DOUBLE;
  case CNN_F16: return CUDNN_DATA_HALF;
  case CNN_BF16: return CUDNN_DATA_BFLOAT16;
  default: return CUDNN_DATA_FLOAT;
  }
}

static cudnnDataType_t sum_type(int64_t dtype) {
  return dtype == CNN_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

// ---- Descriptions

static int64_t alignment(const void *p) {
  uintptr_t low = (uintptr_t)p & -(uintptr_t)p;
  return low == 0 || low > 16 ? 16 : (int64_t)low;
}

// Whether a dense tensor of these sizes has at most 2^31 - 1 elements: cuDNN's engines of
// before 9.3 counted in 32 bits, and not all of them said so.
static bool countable(int64_t a, int64_t b, const int64_t *sizes) {
  int64_t n = a;
  const int64_t all[] = {b, sizes[0], sizes[1], sizes[2]};
  for (int i = 0; i < 4; i++) {
    if (__builtin_mul_overflow(n, all[i], &n) || n > INT32_MAX) return false;
  }
  return true;
}

cuda_answer dnn_key_make(const cuda_conv *c, dnn_key *key, cuda_message *why) {
  if (c->spatial < 1 || c->spatial > CUDA_CONV_SPATIAL)
    return cuda_failed(why, "a convolution has 1 to 3 spatial dimensions");
  if (c->groups < 1 || c->c % c->groups || c->k % c->groups)
    return cuda_failed(why, "groups don't divide the channels");
  if ((c->bias || c->relu) && c->kind != CUDA_CONV_FORWARD)
    return cuda_failed(why, "bias and ReLU go with the forward convolution only");
  // cuDNN has no ready-made engine for conv + ReLU, only one that it compiles in seconds.
  if (c->relu && !c->bias) return cuda_refuse(why, "ReLU is fused where there is a bias");
  if (!cnn_dtype_is_float(c->dtype))
    return cuda_refuse(why, "cuDNN convolves float32, float64, float16 and bfloat16");
  if (c->n < 1 || c->c < 1 || c->k < 1) return cuda_refuse(why, "nothing to convolve");
  int lift = c->spatial == 1; // one more dimension, in front
  *key = (dnn_key){.kind = c->kind,
                   .dtype = c->dtype,
                   .tf32 = c->dtype == CNN_F32 && c->tf32,
                   .deterministic = c->deterministic,
                   .lean = c->lean,
                   .bias = c->bias,
                   .relu = c->relu,
                   .x_last = c->x_last,
                   .w_last = c->w_last,
                   .y_last = c->y_last,
                   .spatial = c->spatial + lift,
                   .n = c->n,
                   .c = c->c,
                   .k = c->k,
                   .groups = c->groups,
                   .align = {alignment(c->x), alignment(c->w), c->bias ? alignment(c->b) : 16,
                             alignment(c->y)}};
  for (int i = 0; i < CUDA_CONV_SPATIAL; i++) {
    key->in[i] = key->kernel[i] = key->out[i] = key->stride[i] = key->dilation[i] = 1;
  }
  for (int i = 0; i < c->spatial; i++) {
    if (c->stride[i] < 1 || c->dilation[i] < 1 || c->pad_before[i] < 0 || c->pad_after[i] < 0)
      return cuda_failed(why, "strides and dilations are at least 1, paddings at least 0");
    if (c->in[i] < 1 || c->kernel[i] < 1 || c->out[i] < 1)
      return cuda_refuse(why, "nothing to convolve");
    int64_t room = c->in[i] + c->pad_before[i] + c->pad_after[i];
    int64_t reach = c->dilation[i] * (c->kernel[i] - 1) + 1;
    if (room < reach || (room - reach) / c->stride[i] + 1 != c->out[i])
      return cuda_failed(why, "the output's size is not that of this convolution");
    key->in[i + lift] = c->in[i];
    key->kernel[i + lift] = c->kernel[i];
    key->out[i + lift] = c->out[i];
    key->stride[i + lift] = c->stride[i];
    key->dilation[i + lift] = c->dilation[i];
    key->before[i + lift] = c->pad_before[i];
    key->after[i + lift] = c->pad_after[i];
  }
  if (!countable(c->n, c->c, key->in) || !countable(c->n, c->k, key->out) ||
      !countable(c->k, c->c / c->groups, key->kernel))
    return cuda_refuse(why, "a tensor has more than 2^31 - 1 elements");
  return CUDA_OK;
}

// ---- Graphs

// A tensor of (a, b, sizes...), dense and row-major in that order or with b last. Virtual ones have
// no memory and lie as y does.
static cudnnBackendDescriptor_t tensor(graph *g, int64_t id, cudnnDataType_t type, int64_t a,
                                       int64_t b, const int64_t *sizes, int spatial, bool last,
                                       int64_t align, bool is_virtual) {
  int64_t dims[MAX_RANK] = {a, b}, strides[MAX_RANK], step = last ? b : 1;
  for (int i = spatial - 1; i >= 0; i--) {
    dims[i + 2] = sizes ? sizes[i] : 1;
    strides[i + 2] = step;
    step *= dims[i + 2];
  }
  strides[1] = last ? 1 : step;
  strides[0] = last ? step : step * b;
  cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set_type(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, spatial + 2, dims);
  set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, spatial + 2, strides);
  set_int(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  set_int(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, align);
  if (is_virtual) set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  finalize(g, d, "a tensor");
  return d;
}

static cudnnBackendDescriptor_t window(graph *g, const dnn_key *k) {
  cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  set_int(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, k->spatial);
  set_type(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, sum_type(k->dtype));
  set(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  set(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, k->spatial, k->before);
  set(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, k->spatial, k->after);
  set(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, k->spatial, k->dilation);
  set(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, k->spatial, k->stride);
  finalize(g, d, "the convolution's window");
  return d;
}

// One row for each kind of convolution: its descriptor and the names of its attributes.
static const struct {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t window, x, w, y, alpha, beta;
} convolutions[] = {
    [CUDA_CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [CUDA_CONV_BACKWARD_INPUT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [CUDA_CONV_BACKWARD_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static cudnnBackendDescriptor_t pointwise(graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t type,
                                          cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                                          cudnnBackendDescriptor_t y) {
  cudnnBackendDescriptor_t p = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(g, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  set_type(g, p, CUDNN_ATTR_POINTWISE_MATH_PREC, type);
  finalize(g, p, "a pointwise function");
  cudnnBackendDescriptor_t op = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p);
  set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b) set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  finalize(g, op, "a pointwise operation");
  return op;
}

// The graph of a key: [conv] -> (+ bias) -> (ReLU). Between them stand virtual tensors of the sums'
// type. Returns the finalized operation graph, or NULL with g->status set.
static cudnnBackendDescriptor_t build(graph *g, const dnn_target *target, const dnn_key *k) {
  cudnnDataType_t type = data_type(k->dtype), sums = sum_type(k->dtype);
  int spatial = (int)k->spatial, count = 0;
  cudnnBackendDescriptor_t ops[3];
  cudnnBackendDescriptor_t x =
      tensor(g, DNN_X, type, k->n, k->c, k->in, spatial, k->x_last, k->align[0], false);
  cudnnBackendDescriptor_t w = tensor(g, DNN_W, type, k->k, k->c / k->groups, k->kernel, spatial,
                                      k->w_last, k->align[1], false);
  cudnnBackendDescriptor_t y =
      tensor(g, DNN_Y, type, k->n, k->k, k->out, spatial, k->y_last, k->align[3], false);
  cudnnBackendDescriptor_t at = y;
  if (k->bias) {
    at = tensor(g, 1, sums, k->n, k->k, k->out, spatial, k->y_last, 16, true);
  }

  ops[count] = make(g, convolutions[k->kind].type);
  set_desc(g, ops[count], convolutions[k->kind].window, window(g, k));
  set_desc(g, ops[count], convolutions[k->kind].x, x);
  set_desc(g, ops[count], convolutions[k->kind].w, w);
  set_desc(g, ops[count], convolutions[k->kind].y, at);
  const double one = 1, zero = 0;
  const float one_float = 1, zero_float = 0;
  bool wide = sums == CUDNN_DATA_DOUBLE;
  cudnnBackendAttributeType_t scale = wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
  set(g, ops[count], convolutions[k->kind].alpha, scale, 1,
      wide ? (const void *)&one : (const void *)&one_float);
  set(g, ops[count], convolutions[k->kind].beta, scale, 1,
      wide ? (const void *)&zero : (const void *)&zero_float);
  finalize(g, ops[count++], "the convolution");

  if (k->bias) {
    cudnnBackendDescriptor_t b =
        tensor(g, DNN_B, type, 1, k->k, NULL, spatial, k->y_last, k->align[2], false);
    cudnnBackendDescriptor_t to =
        k->relu ? tensor(g, 2, sums, k->n, k->k, k->out, spatial, k->y_last, 16, true) : y;
    ops[count++] = pointwise(g, CUDNN_POINTWISE_ADD, sums, at, b, to);
    at = to;
  }
  if (k->relu) ops[count++] = pointwise(g, CUDNN_POINTWISE_RELU_FWD, sums, at, NULL, y);

  cudnnBackendDescriptor_t all = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(g, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, ops);
  if (target->handle)
    set(g, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
  finalize(g, all, "the graph");
  return g->status == CUDNN_STATUS_SUCCESS ? all : NULL;
}

// ---- Plans

static cudnnStatus_t set_target(cudnnBackendDescriptor_t plan, const dnn_target *target) {
  if (target->handle)
    return cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                    &target->handle);
  return cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->device);
}

// Finalizes a plan and reads its workspace. Frees it where that fails.
static cudnnStatus_t settle(cudnnBackendDescriptor_t plan, dnn_plan *out) {
  int64_t count = 0, bytes = 0;
  cudnnStatus_t s = cudnnBackendFinalize(plan);
  if (s == CUDNN_STATUS_SUCCESS) {
    s = cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                 1, &count, &bytes);
  }
  if (s != CUDNN_STATUS_SUCCESS || bytes < 0) {
    cudnnBackendDestroyDescriptor(plan);
    return s != CUDNN_STATUS_SUCCESS ? s : CUDNN_STATUS_INTERNAL_ERROR;
  }
  *out = (dnn_plan){plan, (size_t)bytes};
  return s;
}

// Whether the engine of a configuration keeps what the key promises.
static bool honest(cudnnBackendDescriptor_t config, const dnn_key *k) {
  cudnnBackendDescriptor_t engine = NULL;
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  int64_t count = 0;
  bool good = true;
  if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) !=
      CUDNN_STATUS_SUCCESS)
    return false;
  if (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                               1, &count, &engine) != CUDNN_STATUS_SUCCESS ||
      cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                               CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count,
                               notes) != CUDNN_STATUS_SUCCESS) {
    good = false;
    count = 0;
  }
  for (int64_t i = 0; i < count; i++) {
    if (k->dtype == CNN_F32 && !k->tf32) good &= notes[i] != CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    if (!k->tf32) good &= notes[i] != CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    good &= notes[i] != CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
    if (k->deterministic) good &= notes[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
  }
  cudnnBackendDestroyDescriptor(engine);
  return good;
}

// Plans one configuration.
static cudnnStatus_t plan_config(const dnn_target *target, cudnnBackendDescriptor_t config,
                                 dnn_plan *out) {
  cudnnBackendDescriptor_t plan = NULL;
  cudnnStatus_t s = cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
  if (s != CUDNN_STATUS_SUCCESS) return s;
  s = set_target(plan, target);
  if (s == CUDNN_STATUS_SUCCESS) {
    s = cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
  }
  if (s != CUDNN_STATUS_SUCCESS) {
    cudnnBackendDestroyDescriptor(plan);
    return s;
  }
  return settle(plan, out);
}

// Tries what one heuristic mode proposes, best first. `out` keeps the plan with the least workspace
// so far; true when it is liked.
static bool try_mode(const dnn_target *target, const dnn_key *k, cudnnBackendDescriptor_t all,
                     cudnnBackendHeurMode_t mode, dnn_plan *out, cudnnStatus_t *last, int *seen,
                     int *dishonest) {
  graph g = {.status = CUDNN_STATUS_SUCCESS};
  cudnnBackendDescriptor_t configs[MAX_CHOICES] = {NULL};
  int64_t count = 0;
  bool liked = false;
  cudnnBackendDescriptor_t h = make(&g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set_desc(&g, h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, all);
  set(&g, h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (target->device) set_desc(&g, h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target->device);
  finalize(&g, h, "the heuristics");
  for (int i = 0; i < MAX_CHOICES && g.status == CUDNN_STATUS_SUCCESS; i++) {
    note(&g, cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]),
         "cudnnBackendCreateDescriptor");
  }
  if (g.status == CUDNN_STATUS_SUCCESS) {
    note(&g,
         cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                  MAX_CHOICES, &count, configs),
         "the heuristics' results");
  }
  if (g.status != CUDNN_STATUS_SUCCESS) *last = g.status;
  for (int64_t i = 0; i < count && i < MAX_CHOICES && !liked; i++) {
    dnn_plan next = {NULL, 0};
    ++*seen;
    if (!honest(configs[i], k)) {
      ++*dishonest;
      continue;
    }
    cudnnStatus_t s = plan_config(target, configs[i], &next);
    if (s != CUDNN_STATUS_SUCCESS) {
      *last = s;
      continue;
    }
    if (out->plan && out->workspace <= next.workspace) {
      dnn_plan_free(&next);
    } else {
      dnn_plan_free(out);
      *out = next;
    }
    liked = out->workspace <= (k->lean ? 0 : workspace_liked);
  }
  for (int i = 0; i < MAX_CHOICES; i++) {
    if (configs[i]) cudnnBackendDestroyDescriptor(configs[i]);
  }
  destroy(&g);
  return liked;
}

cuda_answer dnn_plan_build(const dnn_target *target, const dnn_key *key, dnn_plan *out,
                           cuda_message *why) {
  graph g = {.status = CUDNN_STATUS_SUCCESS};
  cudnnStatus_t last = CUDNN_STATUS_NOT_SUPPORTED;
  int seen = 0, dishonest = 0;
  *out = (dnn_plan){NULL, 0};
  cudnnBackendDescriptor_t all = build(&g, target, key);
  if (all && !try_mode(target, key, all, CUDNN_HEUR_MODE_A, out, &last, &seen, &dishonest)) {
    try_mode(target, key, all, CUDNN_HEUR_MODE_FALLBACK, out, &last, &seen, &dishonest);
  }
  if (!all)
    dnn_say(why, g.where, g.status);
  else if (!out->plan && seen && dishonest == seen)
    snprintf(why->text, sizeof why->text,
             "each of cuDNN's %d engines would round more than asked for%s", seen,
             key->deterministic ? ", or is not deterministic" : "");
  else if (!out->plan)
    dnn_say(why, "cuDNN has no engine", last);
  destroy(&g);
  if (out->plan) return CUDA_OK;
  // What memory could change is no answer to keep.
  cudnnStatus_t s = all ? last : g.status;
  return dnn_out_of_memory(s) || s == CUDNN_STATUS_NOT_INITIALIZED ? CUDA_FAILED : CUDA_REFUSED;
}

char *dnn_plan_text(const dnn_plan *plan) {
  int64_t size = 0, got = 0;
  if (cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                               CUDNN_TYPE_CHAR, 0, &size, NULL) != CUDNN_STATUS_SUCCESS ||
      size <= 0)
    return NULL;
  char *text = calloc(1, (size_t)size + 1);
  if (text && cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                       CUDNN_TYPE_CHAR, size, &got, text) != CUDNN_STATUS_SUCCESS) {
    free(text);
    text = NULL;
  }
  return text;
}

cuda_answer dnn_plan_load(const dnn_target *target, const char *text, dnn_plan *out,
                          cuda_message *why) {
  cudnnBackendDescriptor_t plan = NULL;
  *out = (dnn_plan){NULL, 0};
  cudnnStatus_t s = cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
  if (s == CUDNN_STATUS_SUCCESS) s = set_target(plan, target);
  if (s == CUDNN_STATUS_SUCCESS) {
    s = cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, (int64_t)strlen(text), text);
  }
  if (s == CUDNN_STATUS_SUCCESS)
    s = settle(plan, out);
  else if (plan)
    cudnnBackendDestroyDescriptor(plan);
  if (s == CUDNN_STATUS_SUCCESS) return CUDA_OK;
  dnn_say(why, "a plan as text", s);
  return CUDA_REFUSED;
}

void dnn_plan_free(dnn_plan *plan) {
  if (plan->plan) cudnnBackendDestroyDescriptor(plan->plan);
  *plan = (dnn_plan){NULL, 0};
}
