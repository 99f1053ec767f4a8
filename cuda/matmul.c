// SPDX-License-Identifier: MIT
// Kernels of ops/matmul.c: floats by cuBLASLt, all else by an own kernel (gemm.cu).
//
// The innermost batch dim is the library's, outer ones are a loop of calls; sums over several
// matrices are a loop that adds. What the result starts with is copied there first, but for a bias
// of one row, which the library adds along the way.
#include <string.h>

#include "gemm.h"
#include "kernel.h"

enum { WAY_OWN, WAY_LIBRARY };

// One call of the library: batch `at` of the loop, part `s` of the sum.
static void describe(const cnn_product *p, int64_t at, int64_t s, cuda_gemm *g) {
  int64_t a, b, c, sa, sb, unused, size = (int64_t)cnn_dtype_size(p->dtype);
  bool bias = p->bias && p->n_outer == 0 && p->n_sum == 0;
  const cnn_product_dim *batch = p->n_outer ? &p->outer[0] : NULL;
  cnn_product_offsets(p->outer, 1, p->n_outer, at, &a, &b, &c);
  cnn_product_offsets(p->sum, 0, p->n_sum, s, &sa, &sb, &unused);
  memset(g, 0, sizeof *g);
  g->dtype = p->dtype;
  g->tf32 = cuda_allow_tf32();
  g->epilogue = bias ? CUDA_EPI_BIAS : CUDA_EPI_NONE;
  g->batch = batch ? batch->size : 1;
  g->m = p->m, g->n = p->n, g->k = p->k;
  g->alpha = p->alpha;
  g->beta = s > 0 ? 1 : bias ? 0 : p->beta;
  g->a = (cuda_matrix){p->a + (a + sa) * size, p->a_rs, p->a_cs, batch ? batch->a : 0};
  g->b = (cuda_matrix){p->b + (b + sb) * size, p->b_rs, p->b_cs, batch ? batch->b : 0};
  g->d = (cuda_matrix){p->c + c * size, p->c_rs, 1, batch ? batch->c : 0};
  g->c = g->d;
  g->bias = bias ? p->bias : NULL;
}

static int64_t calls_of(const cnn_product *p) {
  return p->n_outer ? p->outer_count / p->outer[0].size : 1;
}

static cnn_status plan(cnn_call *call) {
  cnn_product p;
  cuda_gemm g;
  cuda_message why;
  size_t bytes = 0;
  cnn_product_make(call, &p);
  call->way = WAY_OWN;
  if (!cnn_dtype_is_float(p.dtype) || p.m == 0 || p.n == 0 || p.k == 0 || p.outer_count == 0 ||
      p.sum_count == 0)
    return CNN_OK;
  struct cuda_blas *blas = cuda_blas_of(call);
  if (!blas) return CNN_OK;
  // Calls differ in the alignment of their pointers and in beta: the most that one wants.
  for (int64_t i = 0; i < calls_of(&p) && i < 4; i++)
    for (int64_t s = 0; s < p.sum_count && s < 2; s++) {
      size_t each = 0;
      describe(&p, i, s, &g);
      if (cuda_gemm_workspace(blas, &g, &each, &why) != CUDA_OK) return CNN_OK;
      if (each > bytes) bytes = each;
    }
  call->way = WAY_LIBRARY;
  call->scratch_bytes = bytes;
  return CNN_OK;
}

static cnn_status run_library(cnn_call *call, const cnn_product *p, bool *refused) {
  struct cuda_blas *blas = cuda_blas_of(call);
  cuda_message why;
  for (int64_t i = 0; i < calls_of(p); i++)
    for (int64_t s = 0; s < p->sum_count; s++) {
      cuda_gemm g;
      describe(p, i, s, &g);
      cuda_answer answer =
          cuda_gemm_run(blas, &g, call->scratch, call->scratch_bytes, call->stream, &why);
      if (answer == CUDA_OK) {
        CNN_TRY(cuda_launched(call, cudaSuccess));
        continue;
      }
      *refused = answer == CUDA_REFUSED && i == 0 && s == 0;
      return *refused ? CNN_OK : cnn_fail(call->ctx, CNN_DEVICE, "cuBLASLt: %s", why.text);
    }
  return CNN_OK;
}

static cnn_status run(cnn_call *call) {
  cnn_product p;
  cnn_product_make(call, &p);
  if (cnn_view_numel(&call->out[0]) == 0) return CNN_OK;
  bool library = call->way == WAY_LIBRARY, refused = false;
  bool along = library && p.bias && p.n_outer == 0 && p.n_sum == 0;
  if (p.start && !along) {
    CNN_TRY(cuda_copy_view(call, &call->out[0], p.start));
    p.bias = NULL;
  }
  if (library) {
    CNN_TRY(run_library(call, &p, &refused));
    if (!refused) return CNN_OK;
    if (along) CNN_TRY(cuda_copy_view(call, &call->out[0], p.start));
  }
  return cuda_gemm_own(call, &p);
}

// ---------------------------------------------------------------------------------------------
// With what follows

static bool is_dense(const cnn_view *v) {
  int64_t strides[CNN_MAX_DIMS];
  cnn_shape_strides(v->ndim, v->shape, strides);
  for (int d = 0; d < v->ndim; d++)
    if (v->shape[d] != 1 && v->strides[d] != strides[d]) return false;
  return true;
}

// False: it is none of the library's.
static bool describe_with(cnn_call *call, cuda_epilogue epilogue, const cnn_view *aux, void *sums,
                          cuda_gemm *g) {
  cnn_product p;
  cnn_product_make(call, &p);
  if (!cnn_dtype_is_float(p.dtype) || p.m == 0 || p.n == 0 || p.k == 0 || p.n_outer || p.n_sum ||
      (p.start && !p.bias))
    return false;
  describe(&p, 0, 0, g);
  g->epilogue =
      (cuda_epilogue)(epilogue + (p.bias ? 1 : 0)); // each is followed by that with a bias
  if (sums) g->bias = sums;
  if (aux) g->aux = (cuda_matrix){aux->data, p.n, 1, 0};
  return !aux || (is_dense(aux) && cuda_aux_rs(false, p.n) == p.n);
}

bool cuda_gemm_plan_with(cnn_call *call, cuda_epilogue epilogue, const cnn_view *aux, void *sums) {
  cuda_gemm g;
  cuda_message why;
  struct cuda_blas *blas = cuda_blas_of(call);
  return blas && describe_with(call, epilogue, aux, sums, &g) &&
         cuda_gemm_workspace(blas, &g, &call->scratch_bytes, &why) == CUDA_OK;
}

cnn_status cuda_gemm_run_with(cnn_call *call, cuda_epilogue epilogue, const cnn_view *aux,
                              void *sums) {
  cuda_gemm g;
  cuda_message why;
  (void)describe_with(call, epilogue, aux, sums, &g);
  if (cuda_gemm_run(cuda_blas_of(call), &g, call->scratch, call->scratch_bytes, call->stream,
                    &why) != CUDA_OK)
    return cnn_fail(call->ctx, CNN_DEVICE, "cuBLASLt: %s", why.text);
  return cuda_launched(call, cudaSuccess);
}

CUDA_KERNEL(matmul, plan, run)
CUDA_KERNEL(matmul_to, plan, run)
CUDA_KERNEL(linear, plan, run)
CUDA_KERNEL(addmm, plan, run)
CUDA_KERNEL(baddbmm, plan, run)
