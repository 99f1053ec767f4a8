// SPDX-License-Identifier: MIT
// Kernels of ops/matmul.c: floats by cuBLASLt, all else by an own kernel (gemm.cu).
//
// The innermost batch dim is the library's, outer ones are a loop of calls; sums over several
// matrices are a loop that adds. What the result starts with is copied there first, but for a bias
// of one row and whole matrices, which the library adds along the way.
#include <string.h>

#include "gemm.h"
#include "kernel.h"

enum { WAY_OWN, WAY_LIBRARY };

// The result starts as a matrix that the library adds by itself.
static bool start_matrix(const cnn_product *p, cuda_matrix *c) {
  const cnn_view *s = p->start;
  if (!s || p->bias || p->n_outer > 1 || p->n_sum) return false;
  int last = s->ndim - 1;
  if (s->ndim != (p->n_outer ? 3 : 2) || s->shape[last] != p->n || s->shape[last - 1] != p->m ||
      (p->n_outer && s->shape[0] != p->outer[0].size) || (p->n != 1 && s->strides[last] != 1))
    return false;
  *c = (cuda_matrix){s->data, s->strides[last - 1], 1, p->n_outer ? s->strides[0] : 0};
  return p->m == 1 || c->rs >= p->n;
}

// (What is planned for a prediction has no addresses.)
static const void *offset(const char *p, int64_t bytes) {
  return (const void *)((uintptr_t)p + (uintptr_t)bytes);
}

// One call of the library: batch `at` of the loop, part `s` of the sum.
static void describe(const cnn_call *call, const cnn_product *p, int64_t at, int64_t s,
                     cuda_gemm *g) {
  int64_t a, b, c, sa, sb, unused, size = (int64_t)cnn_dtype_size(p->dtype);
  bool bias = p->bias && p->n_outer == 0 && p->n_sum == 0;
  const cnn_product_dim *batch = p->n_outer ? &p->outer[0] : NULL;
  cnn_product_offsets(p->outer, 1, p->n_outer, at, &a, &b, &c);
  cnn_product_offsets(p->sum, 0, p->n_sum, s, &sa, &sb, &unused);
  memset(g, 0, sizeof *g);
  g->dtype = p->dtype;
  g->tf32 = cuda_allow_tf32();
  g->lean = call->squeeze > 0;
  g->epilogue = bias ? CUDA_EPI_BIAS : CUDA_EPI_NONE;
  g->batch = batch ? batch->size : 1;
  g->m = p->m, g->n = p->n, g->k = p->k;
  g->alpha = p->alpha;
  g->beta = s > 0 ? 1 : bias ? 0 : p->beta;
  g->a = (cuda_matrix){offset(p->a, (a + sa) * size), p->a_rs, p->a_cs, batch ? batch->a : 0};
  g->b = (cuda_matrix){offset(p->b, (b + sb) * size), p->b_rs, p->b_cs, batch ? batch->b : 0};
  g->d = (cuda_matrix){offset(p->c, c * size), p->c_rs, 1, batch ? batch->c : 0};
  if (!start_matrix(p, &g->c)) g->c = g->d;
  g->bias = bias ? p->bias : NULL;
}

static int64_t calls_of(const cnn_product *p) {
  return p->n_outer ? p->outer_count / p->outer[0].size : 1;
}

// ---------------------------------------------------------------------------------------------
// Operands that are no matrices of the library's (every second column, overlapping windows) are
// made dense first, where the product is large enough to be worth it.

#define COPY_LEAST ((double)(1 << 20)) // multiply-adds

typedef struct operands {
  cnn_view in[3];
  int64_t strides[3][CNN_MAX_DIMS];
  bool copied[3];
  cnn_call call; // with these inputs
} operands;

static size_t align(size_t bytes) {
  return (bytes + 255) & ~(size_t)255;
}

static size_t copy_bytes(const operands *o) {
  size_t bytes = 0;
  for (int i = 0; i < o->call.n_in; i++)
    if (o->copied[i])
      bytes += align((size_t)cnn_view_numel(&o->in[i]) * cnn_dtype_size(o->in[i].dtype));
  return bytes;
}

static void make_dense(operands *o, int i) {
  cnn_view *v = &o->in[i];
  cnn_shape_strides(v->ndim, v->shape, o->strides[i]);
  v->strides = o->strides[i];
  v->data = NULL; // in scratch, aligned
  o->copied[i] = true;
}

// The call as the library takes it, and its product. False where it takes no such product.
static bool prepare(const cnn_call *call, operands *o, cnn_product *p) {
  cnn_product_make(call, p);
  o->call = *call;
  for (int i = 0; i < call->n_in; i++) o->in[i] = call->in[i], o->copied[i] = false;
  o->call.in = o->in;
  if (!cnn_dtype_is_float(p->dtype) || p->m == 0 || p->n == 0 || p->k == 0 || p->outer_count == 0 ||
      p->sum_count == 0)
    return false;
  const cuda_matrix a = {NULL, p->a_rs, p->a_cs, 0}, b = {NULL, p->b_rs, p->b_cs, 0};
  bool fits_a = cuda_matrix_fits(&a, p->m, p->k), fits_b = cuda_matrix_fits(&b, p->k, p->n);
  if (fits_a && fits_b) return true;
  double work = (double)p->m * (double)p->n * (double)p->k;
  if (call->squeeze || work < COPY_LEAST) return false;
  int first = call->n_in == 3 && call->n_args == 5; // of addmm and baddbmm
  if (!fits_a) make_dense(o, first);
  if (!fits_b) make_dense(o, first + 1);
  cnn_product_make(&o->call, p);
  return true;
}

// Makes the copies, which lie behind the workspace.
static cnn_status bring(operands *o, const cnn_call *call, cnn_product *p) {
  char *at = call->scratch;
  if (at) at += call->scratch_bytes - copy_bytes(o);
  for (int i = 0; i < call->n_in; i++) {
    if (!o->copied[i]) continue;
    o->in[i].data = at;
    at += align((size_t)cnn_view_numel(&o->in[i]) * cnn_dtype_size(o->in[i].dtype));
    CNN_TRY(cuda_copy_view(call, &o->in[i], &call->in[i]));
  }
  cnn_product_make(&o->call, p);
  return CNN_OK;
}

// ---------------------------------------------------------------------------------------------
// Plan and run

static cnn_status plan(cnn_call *call) {
  operands o;
  cnn_product p;
  cuda_gemm g;
  cuda_message why;
  size_t bytes = 0;
  call->way = WAY_OWN;
  if (call->squeeze > 1 || !prepare(call, &o, &p)) return CNN_OK;
  struct cuda_blas *blas = cuda_blas_of(call);
  if (!blas) return CNN_OK;
  // Calls differ in the alignment of their pointers and in beta: the most that one wants.
  for (int64_t i = 0; i < calls_of(&p) && i < 4; i++)
    for (int64_t s = 0; s < p.sum_count && s < 2; s++) {
      size_t each = 0;
      describe(call, &p, i, s, &g);
      if (cuda_gemm_workspace(blas, &g, &each, &why) != CUDA_OK) return CNN_OK;
      if (each > bytes) bytes = each;
    }
  call->way = WAY_LIBRARY;
  call->scratch_bytes = align(bytes) + copy_bytes(&o);
  return CNN_OK;
}

static cnn_status run_library(cnn_call *call, bool *refused) {
  struct cuda_blas *blas = cuda_blas_of(call);
  operands o;
  cnn_product p;
  cuda_message why;
  cuda_matrix start;
  (void)prepare(call, &o, &p);
  CNN_TRY(bring(&o, call, &p));
  bool along = p.bias && p.n_outer == 0 && p.n_sum == 0;
  if (p.start && !along) {
    if (!start_matrix(&p, &start)) CNN_TRY(cuda_copy_view(call, &call->out[0], p.start));
    p.bias = NULL;
  }
  size_t workspace = call->scratch_bytes - copy_bytes(&o);
  for (int64_t i = 0; i < calls_of(&p); i++)
    for (int64_t s = 0; s < p.sum_count; s++) {
      cuda_gemm g;
      describe(call, &p, i, s, &g);
      cuda_answer answer = cuda_gemm_run(blas, &g, call->scratch, workspace, call->stream, &why);
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
  bool refused = call->way != WAY_LIBRARY;
  if (cnn_view_numel(&call->out[0]) == 0) return CNN_OK;
  if (!refused) CNN_TRY(run_library(call, &refused));
  if (!refused) return CNN_OK;
  cnn_product_make(call, &p);
  if (p.start) CNN_TRY(cuda_copy_view(call, &call->out[0], p.start));
  return cuda_gemm_own(call, &p);
}

// ---------------------------------------------------------------------------------------------
// With what follows

// False: it is none of the library's.
static bool describe_with(cnn_call *call, cuda_epilogue epilogue, const cnn_view *aux, void *sums,
                          cuda_gemm *g) {
  operands o;
  cnn_product p;
  if (call->squeeze > 1 || !prepare(call, &o, &p) || copy_bytes(&o) || p.n_outer || p.n_sum ||
      (p.start && !p.bias))
    return false;
  describe(call, &p, 0, 0, g);
  g->epilogue =
      (cuda_epilogue)(epilogue + (p.bias ? 1 : 0)); // each is followed by that with a bias
  if (sums) g->bias = sums;
  if (aux) g->aux = (cuda_matrix){aux->data, p.n, 1, 0};
  return !aux || (cnn_strides_contiguous(aux->ndim, aux->shape, aux->strides) &&
                  cuda_aux_rs(false, p.n) == p.n);
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
