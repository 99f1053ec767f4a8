// SPDX-License-Identifier: MIT
// The cuDNN stand-in by its own API, where the plugin's engine doesn't go: a graph of a product, a
// bias, an activation and a reduction over virtual tensors; other pointwise functions; execution
// that must be refused or reported.
#include <cudnn_graph.h>

#include "library.h"

typedef cudnnBackendDescriptor_t desc;

static cudnnHandle_t handle;
static desc made[64]; // destroyed after each test
static int made_count;

static desc make(cudnnBackendDescriptorType_t type) {
  desc d = NULL;
  CHECK(cudnnBackendCreateDescriptor(type, &d) == CUDNN_STATUS_SUCCESS);
  made[made_count++] = d;
  return d;
}

static void clear(void) {
  while (made_count) cudnnBackendDestroyDescriptor(made[--made_count]);
}

static bool set(desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t count, const void *p) {
  return cudnnBackendSetAttribute(d, name, type, count, p) == CUDNN_STATUS_SUCCESS;
}
static bool set_desc(desc d, cudnnBackendAttributeName_t name, desc value) {
  return set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static desc tensor(cudnnDataType_t type, int64_t a, int64_t b, int64_t c, int64_t id,
                   bool is_virtual) {
  desc d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  int64_t dims[] = {a, b, c}, strides[] = {b * c, c, 1}, align = 16;
  CHECK(set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
  CHECK(set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 3, dims));
  CHECK(set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 3, strides));
  CHECK(set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id));
  CHECK(set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align));
  CHECK(set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual));
  CHECK(cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS);
  return d;
}

// b NULL: a function of one operand. gradient: x is dy, b the forward's.
static desc pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t type, desc x, desc b, desc y,
                      bool gradient) {
  desc p = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  CHECK(set(p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
  CHECK(set(p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type));
  CHECK(cudnnBackendFinalize(p) == CUDNN_STATUS_SUCCESS);
  desc op = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  CHECK(set_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p));
  CHECK(set_desc(op,
                 gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC
                          : CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                 x));
  if (b)
    CHECK(set_desc(op,
                   gradient ? CUDNN_ATTR_OPERATION_POINTWISE_XDESC
                            : CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                   b));
  CHECK(set_desc(op,
                 gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC
                          : CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
                 y));
  CHECK(cudnnBackendFinalize(op) == CUDNN_STATUS_SUCCESS);
  return op;
}

static desc matmul(cudnnDataType_t type, desc a, desc b, desc c) {
  desc m = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  CHECK(set(m, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
  CHECK(cudnnBackendFinalize(m) == CUDNN_STATUS_SUCCESS);
  desc op = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  CHECK(set_desc(op, CUDNN_ATTR_OPERATION_MATMUL_DESC, m));
  CHECK(set_desc(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a));
  CHECK(set_desc(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b));
  CHECK(set_desc(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c));
  CHECK(cudnnBackendFinalize(op) == CUDNN_STATUS_SUCCESS);
  return op;
}

static desc reduce(cudnnReduceTensorOp_t mode, cudnnDataType_t type, desc x, desc y) {
  desc r = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  CHECK(set(r, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode));
  CHECK(set(r, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
  CHECK(cudnnBackendFinalize(r) == CUDNN_STATUS_SUCCESS);
  desc op = make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  CHECK(set_desc(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, r));
  CHECK(set_desc(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x));
  CHECK(set_desc(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y));
  CHECK(cudnnBackendFinalize(op) == CUDNN_STATUS_SUCCESS);
  return op;
}

static cudnnStatus_t graph(desc *out, const desc *ops, int64_t count) {
  *out = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  CHECK(set(*out, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
  CHECK(set(*out, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, ops));
  return cudnnBackendFinalize(*out);
}

// A plan of the engine with this index.
static cudnnStatus_t plan(desc *out, desc g, int64_t engine, bool with_handle) {
  desc e = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR), c = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  CHECK(set_desc(e, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, g));
  CHECK(set(e, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &engine));
  CHECK(cudnnBackendFinalize(e) == CUDNN_STATUS_SUCCESS);
  CHECK(set_desc(c, CUDNN_ATTR_ENGINECFG_ENGINE, e));
  CHECK(cudnnBackendFinalize(c) == CUDNN_STATUS_SUCCESS);
  *out = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (with_handle)
    CHECK(set(*out, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
  CHECK(set_desc(*out, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, c));
  return cudnnBackendFinalize(*out);
}

static cudnnStatus_t execute(desc p, int64_t count, const int64_t *ids, void *const *pointers,
                             void *workspace) {
  desc v = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  CHECK(set(v, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids));
  CHECK(set(v, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers));
  if (workspace)
    CHECK(set(v, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
  CHECK(cudnnBackendFinalize(v) == CUDNN_STATUS_SUCCESS);
  cudnnStatus_t s = cudnnBackendExecute(handle, p, v);
  cudaDeviceSynchronize();
  return s;
}

enum { B = 2, M = 3, K = 5, N = 4 };

// max over n of gelu(a b + bias), of which the matrix is kept, too; operations in any order.
static void product(cudnnDataType_t type, cnn_dtype dtype, int64_t engine) {
  cudnnDataType_t sums = type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  desc a = tensor(type, B, M, K, 'a', false), b = tensor(type, 1, K, N, 'b', false);
  desc bias = tensor(type, 1, 1, N, 's', false), y = tensor(type, B, M, N, 'y', false);
  desc top = tensor(type, B, M, 1, 't', false);
  desc v = tensor(sums, B, M, N, 1, true), w = tensor(sums, B, M, N, 2, true), g, p;
  desc ops[] = {reduce(CUDNN_REDUCE_TENSOR_MAX, sums, y, top),
                pointwise(CUDNN_POINTWISE_GELU_APPROX_TANH_FWD, sums, w, NULL, y, false),
                matmul(sums, a, b, v), pointwise(CUDNN_POINTWISE_ADD, sums, v, bias, w, false)};
  CHECK(graph(&g, ops, 4) == CUDNN_STATUS_SUCCESS);
  CHECK(plan(&p, g, engine, true) == CUDNN_STATUS_SUCCESS);
  array av = array_random(dtype, B * M * K, 0), bv = array_random(dtype, K * N, 0);
  array sv = array_random(dtype, N, 0), yv = array_new(dtype, B * M * N, 0);
  array tv = array_new(dtype, B * M, 0), workspace = array_new(CNN_U8, 1 << 17, 0);
  int64_t ids[] = {'a', 'b', 's', 'y', 't'};
  void *pointers[] = {av.p, bv.p, sv.p, yv.p, tv.p};
  CHECK(execute(p, 5, ids, pointers, workspace.p) == CUDNN_STATUS_SUCCESS);
  array_read(&yv), array_read(&tv);
  for (int i = 0; i < B * M; i++) {
    double most = -INFINITY;
    for (int j = 0; j < N; j++) {
      double x = sv.v[j];
      for (int k = 0; k < K; k++) x += av.v[i * K + k] * bv.v[k * N + j];
      double want = 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
      CHECK(near(dtype, yv.v[i * N + j], want, K));
      most = fmax(most, yv.v[i * N + j]);
    }
    CHECK(tv.v[i] == most);
  }
  array_free(&av), array_free(&bv), array_free(&sv), array_free(&yv), array_free(&tv);
  array_free(&workspace);
  clear();
}

static double relu(double x, double unused) {
  return (void)unused, x > 0 ? x : 0;
}
static double relu_slope(double dy, double x) {
  return x > 0 ? dy : 0;
}
static double sub(double x, double b) {
  return x - b;
}
static double mul(double x, double b) {
  return x * b;
}
static double quotient(double x, double b) {
  return x / b;
}
static double sigmoid(double x, double unused) {
  return (void)unused, 1 / (1 + exp(-x));
}
static double exact_gelu(double x, double unused) {
  return (void)unused, 0.5 * x * (1 + erf(x * sqrt(0.5)));
}
static double tanh_slope(double dy, double y) {
  return dy * (1 - y * y);
}

// All numbers of the operands' shape; the second is broadcast where `two`.
static void function(cudnnPointwiseMode_t mode, double (*f)(double, double), bool two,
                     bool gradient) {
  desc x = tensor(CUDNN_DATA_FLOAT, 2, 3, 4, 'x', false), g, p;
  desc b = two ? tensor(CUDNN_DATA_FLOAT, 2, gradient ? 3 : 1, 4, 'b', false) : NULL;
  desc y = tensor(CUDNN_DATA_FLOAT, 2, 3, 4, 'y', false);
  desc op = pointwise(mode, CUDNN_DATA_FLOAT, x, b, y, gradient);
  CHECK(graph(&g, &op, 1) == CUDNN_STATUS_SUCCESS);
  CHECK(plan(&p, g, 1, true) == CUDNN_STATUS_SUCCESS);
  array xv = array_random(CNN_F32, 24, 0), bv = array_random(CNN_F32, 24, 0);
  array yv = array_new(CNN_F32, 24, 0), workspace = array_new(CNN_U8, 1 << 17, 0);
  int64_t ids[] = {'x', 'y', 'b'};
  void *pointers[] = {xv.p, yv.p, bv.p};
  CHECK(execute(p, 3, ids, pointers, workspace.p) == CUDNN_STATUS_SUCCESS);
  array_read(&yv);
  for (int i = 0; i < 24; i++) {
    double second = bv.v[gradient ? i : i / 12 * 4 + i % 4];
    CHECK(near(CNN_F32, yv.v[i], f(xv.v[i], second), 1));
  }
  array_free(&xv), array_free(&bv), array_free(&yv), array_free(&workspace);
  clear();
}

static void refused(void) {
  desc x = tensor(CUDNN_DATA_FLOAT, 1, 2, 8, 'x', false),
       y = tensor(CUDNN_DATA_FLOAT, 1, 2, 8, 'y', false);
  desc other = tensor(CUDNN_DATA_FLOAT, 1, 2, 8, 'x', false), g, p;
  desc virtual_ = tensor(CUDNN_DATA_FLOAT, 1, 2, 8, 'v', true);
  desc op = pointwise(CUDNN_POINTWISE_NEG, CUDNN_DATA_FLOAT, x, NULL, y, false);
  array xv = array_random(CNN_F32, 20, 0), yv = array_new(CNN_F32, 20, 0);
  array workspace = array_new(CNN_U8, 1 << 17, 0);
  int64_t ids[] = {'x', 'y'};
  void *pointers[] = {xv.p, yv.p};
  CHECK(graph(&g, &op, 1) == CUDNN_STATUS_SUCCESS);
  CHECK(plan(&p, g, 1, false) == CUDNN_STATUS_BAD_PARAM); // no handle
  CHECK(plan(&p, g, 1, true) == CUDNN_STATUS_SUCCESS);
  long faults = sim_faults();
  CHECK(execute(p, 2, ids, pointers, workspace.p) == CUDNN_STATUS_SUCCESS);
  CHECK(execute(p, 1, ids, pointers, workspace.p) == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  CHECK(execute(p, 2, ids, pointers, NULL) == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  CHECK(sim_faults() == faults);
  sim_set_quiet(1);
  pointers[0] = xv.p + 4;
  CHECK(execute(p, 2, ids, pointers, workspace.p) == CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  pointers[0] = workspace.v; // the host's
  CHECK(execute(p, 2, ids, pointers, workspace.p) != CUDNN_STATUS_SUCCESS);
  pointers[0] = yv.p + 16;
  CHECK(execute(p, 2, ids, pointers, workspace.p) == CUDNN_STATUS_EXECUTION_FAILED); // overlap
  pointers[0] = xv.p;
  CHECK(execute(p, 2, ids, pointers, workspace.p + (1 << 17) - 16) ==
        CUDNN_STATUS_EXECUTION_FAILED);
  CHECK(sim_faults() == faults + 4);
  // Two tensors of one name; virtual tensors that nobody makes, or reads; tensor cores and double.
  desc to = pointwise(CUDNN_POINTWISE_NEG, CUDNN_DATA_FLOAT, x, NULL, other, false);
  CHECK(graph(&g, &to, 1) == CUDNN_STATUS_BAD_PARAM && sim_faults() == faults + 5);
  sim_set_quiet(0);
  to = pointwise(CUDNN_POINTWISE_NEG, CUDNN_DATA_FLOAT, virtual_, NULL, y, false);
  CHECK(graph(&g, &to, 1) == CUDNN_STATUS_SUCCESS);
  CHECK(plan(&p, g, 1, true) == CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
  to = pointwise(CUDNN_POINTWISE_NEG, CUDNN_DATA_FLOAT, x, NULL, virtual_, false);
  CHECK(graph(&g, &to, 1) == CUDNN_STATUS_SUCCESS);
  CHECK(plan(&p, g, 1, true) == CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
  to = pointwise(CUDNN_POINTWISE_NEG, CUDNN_DATA_DOUBLE, x, NULL, y, false);
  CHECK(graph(&g, &to, 1) == CUDNN_STATUS_SUCCESS);
  CHECK(plan(&p, g, 0, true) == CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
  CHECK(plan(&p, g, 2, true) == CUDNN_STATUS_SUCCESS);
  char text[200] = "";
  cudnnGetLastErrorString(text, sizeof text);
  CHECK(*text);
  array_free(&xv), array_free(&yv), array_free(&workspace);
  clear();
  sim_clear_faults();
}

int main(void) {
  CHECK(cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS);
  product(CUDNN_DATA_FLOAT, CNN_F32, 1);
  product(CUDNN_DATA_HALF, CNN_F16, 0);
  product(CUDNN_DATA_BFLOAT16, CNN_BF16, 2);
  product(CUDNN_DATA_DOUBLE, CNN_F64, 1);
  function(CUDNN_POINTWISE_RELU_FWD, relu, false, false);
  function(CUDNN_POINTWISE_SUB, sub, true, false);
  function(CUDNN_POINTWISE_MUL, mul, true, false);
  function(CUDNN_POINTWISE_DIV, quotient, true, false);
  function(CUDNN_POINTWISE_MAX, fmax, true, false);
  function(CUDNN_POINTWISE_MIN, fmin, true, false);
  function(CUDNN_POINTWISE_SIGMOID_FWD, sigmoid, false, false);
  function(CUDNN_POINTWISE_GELU_FWD, exact_gelu, false, false);
  function(CUDNN_POINTWISE_RELU_BWD, relu_slope, true, true);
  function(CUDNN_POINTWISE_TANH_BWD, tanh_slope, true, true);
  refused();
  CHECK(sim_faults() == 0);
  CHECK(cudnnDestroy(handle) == CUDNN_STATUS_SUCCESS);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
