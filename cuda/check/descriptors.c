// SPDX-License-Identifier: MIT
// Has the real cuBLASLt take every descriptor, layout and preference that blaslt.c makes: the
// attributes exist, have these sizes, and read back as they were set. A handle, and with it the
// choice of an algorithm, needs a device; descriptors don't.
//
// It sees blaslt.c from within: what it makes is static there.
#include "../blaslt.c"

#include "check.h"

static int64_t attribute(entry *e, cublasLtMatmulDescAttributes_t name, size_t size) {
  int64_t value = 0;
  size_t written = 0;
  CHECK(cublasLtMatmulDescGetAttribute(&e->desc, name, &value, size, &written) ==
            CUBLAS_STATUS_SUCCESS &&
        written == size);
  return value;
}

static int64_t layout_attribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t name,
                                size_t size) {
  int64_t value = 0;
  size_t written = 0;
  CHECK(cublasLtMatrixLayoutGetAttribute(l, name, &value, size, &written) ==
            CUBLAS_STATUS_SUCCESS &&
        written == size);
  return value;
}

static void one(cnn_dtype dtype, int epilogue, int trans, int64_t batch, bool tf32) {
  cuda_gemm g = {.dtype = dtype,
                 .epilogue = (cuda_epilogue)epilogue,
                 .tf32 = tf32,
                 .batch = batch,
                 .m = 5,
                 .n = 6,
                 .k = 7,
                 .alpha = 1,
                 .a = {NULL, trans & 1 ? 1 : 7, trans & 1 ? 5 : 1, 64},
                 .b = {NULL, trans & 2 ? 1 : 6, trans & 2 ? 7 : 1, 64},
                 .d = {NULL, 6, 1, 64}};
  cuda_message why = {{0}};
  entry e = {.next = NULL};
  const void *bias = &g, *aux = &e;
  g.aux = (cuda_matrix){NULL, cuda_aux_rs(epilogues[epilogue].relu, 6), 1, 0};
  CHECK(key_make(&g, &e.key, &why) == CUDA_OK);
  CHECK(describe(&e) == CUBLAS_STATUS_SUCCESS);
  CHECK(set_pointers(&e, bias, aux) == CUBLAS_STATUS_SUCCESS);
  CHECK(attribute(&e, CUBLASLT_MATMUL_DESC_EPILOGUE, 4) == (int64_t)epilogues[epilogue].lt);
  CHECK(attribute(&e, CUBLASLT_MATMUL_DESC_TRANSA, 4) == (trans & 2 ? CUBLAS_OP_T : CUBLAS_OP_N));
  CHECK(attribute(&e, CUBLASLT_MATMUL_DESC_TRANSB, 4) == (trans & 1 ? CUBLAS_OP_T : CUBLAS_OP_N));
  if (epilogues[epilogue].bias)
    CHECK(attribute(&e, CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8) == (int64_t)(uintptr_t)bias);
  if (epilogues[epilogue].aux) {
    CHECK(attribute(&e, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 8) == (int64_t)(uintptr_t)aux);
    CHECK(attribute(&e, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 8) == g.aux.rs);
  }
  CHECK(layout_attribute(&e.d, CUBLASLT_MATRIX_LAYOUT_ROWS, 8) == 6);
  CHECK(layout_attribute(&e.d, CUBLASLT_MATRIX_LAYOUT_COLS, 8) == 5);
  CHECK(layout_attribute(&e.d, CUBLASLT_MATRIX_LAYOUT_LD, 8) == 6);
  CHECK(layout_attribute(&e.a, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 4) == batch);
  CHECK(layout_attribute(&e.a, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 8) ==
        (batch > 1 ? 64 : 0));
}

int main(void) {
  static const cnn_dtype dtypes[] = {CNN_F32, CNN_F64, CNN_F16, CNN_BF16};
  for (int d = 0; d < 4; d++)
    for (int trans = 0; trans < 4; trans++) {
      for (int e = 0; e < CUDA_EPI_COUNT; e++) one(dtypes[d], e, trans, 1, d == 0 && trans == 1);
      one(dtypes[d], CUDA_EPI_NONE, trans, 3, false);
    }
  cublasLtMatmulPreferenceOpaque_t p;
  CHECK(prefer(&p, 1 << 20, &(gemm_key){.a_align = 4, .b_align = 8, .c_align = 16, .d_align = 2}) ==
        CUBLAS_STATUS_SUCCESS);
  printf("cuBLASLt %zu: %d passed, %d failed\n", cublasLtGetVersion(), passed, failed);
  return failed != 0;
}
