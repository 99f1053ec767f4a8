// SPDX-License-Identifier: MIT
// Misuse of cuDNN's graph API, and the statuses that answer it. The same program runs on the real
// library (without a device: nothing here needs one) and on the simulator's stand-in: what passes
// on both is how the stand-in is held to the library.
#include <cudnn_graph.h>
#include <stdbool.h>
#include <string.h>

#include "check.h"

typedef cudnnBackendDescriptor_t desc;

static void expect(cudnnStatus_t got, int want, int line) {
  if ((int)got != want) printf("line %d: %d, not %d\n", line, (int)got, want);
  report((int)got == want, "the status", line);
}
#define EXPECT(call, want) expect((call), (want), __LINE__)

enum { OK = 0, BAD = 2000, NULL_POINTER = 2002, TYPE = 2010, UNFINALIZED = 2004, NOT_READY = 1001 };

static desc made[256]; // destroyed together, at the end
static int made_count;

static desc make(cudnnBackendDescriptorType_t type) {
  desc d = NULL;
  EXPECT(cudnnBackendCreateDescriptor(type, &d), OK);
  if (made_count < 256) made[made_count++] = d;
  return d;
}

static void set_desc(desc d, cudnnBackendAttributeName_t name, desc value) {
  EXPECT(cudnnBackendSetAttribute(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value), OK);
}

static desc tensor(int64_t n, const int64_t *dims, const int64_t *strides, int64_t id, int want) {
  desc d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int64_t align = 16;
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type),
         OK);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, n, dims), OK);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, n, strides), OK);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id), OK);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align),
         OK);
  EXPECT(cudnnBackendFinalize(d), want);
  return d;
}

static desc dense(int64_t a, int64_t b, int64_t h, int64_t w, int64_t id) {
  int64_t dims[] = {a, b, h, w}, strides[] = {b * h * w, h * w, w, 1};
  return tensor(4, dims, strides, id, OK);
}

static void tensors(void) {
  desc d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  int64_t dims[] = {1, 2, 3, 4, 1, 1, 1, 1, 1, 1, 1, 1, 1}, strides[] = {24, 12, 4, 1}, align = 16;
  int64_t negative[] = {1, -2, 3, 4}, back[] = {24, -12, 4, 1}, got[8], count, id = 1;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  EXPECT(cudnnBackendFinalize(d), BAD);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_FLOAT, 4, dims),
         TYPE);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, NULL), BAD);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 0, dims), BAD);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_INT64, 1, dims), BAD);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2, dims), BAD);
  EXPECT(cudnnBackendSetAttribute(NULL, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, dims),
         NULL_POINTER);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims), OK);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 3, strides), OK);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type),
         OK);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id), OK);
  EXPECT(cudnnBackendFinalize(d), BAD); // ranks
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides), OK);
  EXPECT(cudnnBackendFinalize(d), BAD); // no alignment
  align = 3;
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align),
         OK);
  EXPECT(cudnnBackendFinalize(d), BAD); // not of an element
  EXPECT(cudnnBackendGetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8, &count,
                                  got),
         NOT_READY);
  align = 4;
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align),
         OK);
  EXPECT(cudnnBackendFinalize(d), OK);
  EXPECT(cudnnBackendFinalize(d), BAD);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id), BAD);
  EXPECT(cudnnBackendGetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8, &count,
                                  got),
         OK);
  CHECK(count == 4 && memcmp(got, dims, 32) == 0);
  EXPECT(cudnnBackendGetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 2, &count,
                                  got),
         OK);
  CHECK(count == 2);
  EXPECT(cudnnBackendGetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 0, &count,
                                  NULL),
         OK);
  CHECK(count == 4);
  EXPECT(cudnnBackendGetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_FLOAT, 8, &count,
                                  got),
         TYPE);
  tensor(4, negative, strides, 1, BAD);
  tensor(4, dims, back, 1, BAD);
  EXPECT(cudnnBackendDestroyDescriptor(NULL), NULL_POINTER);
  EXPECT(cudnnBackendCreateDescriptor((cudnnBackendDescriptorType_t)99, &d), 4003);
}

static desc window(int64_t pad, int want) {
  desc d = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  int64_t two = 2, pads[] = {pad, pad}, ones[] = {1, 1};
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1,
                                  &two),
         OK);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
                                  &type),
         OK);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                                  1, &mode),
         OK);
  const cudnnBackendAttributeName_t names[] = {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS,
                                               CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
                                               CUDNN_ATTR_CONVOLUTION_DILATIONS,
                                               CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES};
  for (int i = 0; i < 4; i++)
    EXPECT(cudnnBackendSetAttribute(d, names[i], CUDNN_TYPE_INT64, 2, i < 2 ? pads : ones), OK);
  EXPECT(cudnnBackendFinalize(d), want);
  return d;
}

static desc convolve(desc x, desc w, desc y, desc c, int want) {
  desc d = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  if (x) set_desc(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
  if (w) set_desc(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
  if (y) set_desc(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
  if (c) set_desc(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, c);
  EXPECT(cudnnBackendFinalize(d), want);
  return d;
}

static void graphs(void) {
  desc x = dense(2, 4, 8, 8, 'x'), w = dense(6, 4, 3, 3, 'w'), y = dense(2, 6, 8, 8, 'y');
  desc c = window(1, OK), empty = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  int64_t one = 1;
  window(-1, BAD);
  EXPECT(cudnnBackendFinalize(empty), BAD);
  desc op = convolve(x, w, y, c, OK);
  convolve(x, w, NULL, c, BAD);
  convolve(x, w, y, NULL, BAD);
  convolve(x, w, dense(2, 6, 9, 8, 'y'), c, BAD);
  convolve(x, dense(6, 3, 3, 3, 'w'), y, c, BAD);
  convolve(x, dense(6, 2, 3, 3, 'w'), y, c, OK); // two groups
  convolve(x, dense(5, 2, 3, 3, 'w'), dense(2, 5, 8, 8, 'y'), c, BAD);
  convolve(x, w, dense(2, 7, 8, 8, 'y'), c, BAD);
  convolve(x, w, dense(3, 6, 8, 8, 'y'), c, BAD);
  int64_t dims[] = {2, 4, 8}, strides[] = {32, 8, 1};
  convolve(tensor(3, dims, strides, 'x', OK), w, y, c, BAD);
  desc other = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  EXPECT(cudnnBackendSetAttribute(other, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                  CUDNN_TYPE_INT64, 1, &one),
         BAD);

  desc g = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), twice[] = {op, op};
  EXPECT(cudnnBackendFinalize(g), BAD);
  EXPECT(cudnnBackendSetAttribute(g, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                  1, &op),
         OK);
  EXPECT(cudnnBackendFinalize(g), OK);
  g = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  EXPECT(cudnnBackendSetAttribute(g, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                  2, twice),
         OK);
  EXPECT(cudnnBackendFinalize(g), BAD);
  EXPECT(cudnnBackendFinalize(make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)), BAD);
  EXPECT(cudnnBackendFinalize(make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)), UNFINALIZED);
}

static void pointwise(void) {
  desc p = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR), op, x = dense(2, 6, 8, 8, 'x');
  desc y = dense(2, 6, 8, 8, 'y'), b = dense(1, 6, 1, 1, 'b');
  cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  EXPECT(cudnnBackendSetAttribute(p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
                                  &mode),
         OK);
  EXPECT(cudnnBackendSetAttribute(p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1,
                                  &type),
         OK);
  EXPECT(cudnnBackendFinalize(p), OK);
  op = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p);
  set_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  set_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  EXPECT(cudnnBackendFinalize(op), BAD); // a sum of one
  set_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  EXPECT(cudnnBackendFinalize(op), OK);
}

static void matmul(void) {
  int64_t a[] = {2, 3, 4}, as[] = {12, 4, 1}, b[] = {2, 4, 5}, bs[] = {20, 5, 1};
  int64_t c[] = {2, 3, 5}, cs[] = {15, 5, 1}, wrong[] = {2, 3, 6}, row[] = {1, 3, 5},
          odd[] = {2, 2, 5};
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnReduceTensorOp_t add = CUDNN_REDUCE_TENSOR_ADD;
  desc m = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR), op, r;
  EXPECT(cudnnBackendSetAttribute(m, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type),
         OK);
  EXPECT(cudnnBackendFinalize(m), OK);
  op = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  set_desc(op, CUDNN_ATTR_OPERATION_MATMUL_DESC, m);
  set_desc(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensor(3, a, as, 'a', OK));
  set_desc(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensor(3, b, bs, 'b', OK));
  set_desc(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensor(3, wrong, cs, 'c', OK));
  EXPECT(cudnnBackendFinalize(op), BAD);
  set_desc(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensor(3, c, cs, 'c', OK));
  EXPECT(cudnnBackendFinalize(op), OK);
  r = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  EXPECT(cudnnBackendFinalize(r), BAD);
  EXPECT(cudnnBackendSetAttribute(r, CUDNN_ATTR_REDUCTION_OPERATOR,
                                  CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &add),
         OK);
  EXPECT(cudnnBackendSetAttribute(r, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
                                  &type),
         OK);
  EXPECT(cudnnBackendFinalize(r), OK);
  op = make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  set_desc(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, r);
  set_desc(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensor(3, c, cs, 'x', OK));
  set_desc(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensor(3, odd, cs, 'y', OK));
  EXPECT(cudnnBackendFinalize(op), BAD);
  set_desc(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensor(3, row, cs, 'y', OK));
  EXPECT(cudnnBackendFinalize(op), OK);
}

static void packs(void) {
  desc d = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  int64_t ids[] = {1, 2};
  void *pointers[] = {ids, ids};
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 2, ids),
         OK);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1,
                                  pointers),
         OK);
  EXPECT(cudnnBackendFinalize(d), BAD);
  EXPECT(cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 2,
                                  pointers),
         OK);
  EXPECT(cudnnBackendFinalize(d), OK);
  EXPECT(cudnnBackendExecute(NULL, make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), d), BAD);
}

int main(void) {
  tensors();
  graphs();
  pointwise();
  matmul();
  packs();
  while (made_count) EXPECT(cudnnBackendDestroyDescriptor(made[--made_count]), OK);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
