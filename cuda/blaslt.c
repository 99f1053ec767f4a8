// SPDX-License-Identifier: MIT
// cuBLASLt counts columns first; the caller rows. A row-major matrix is the column-major matrix of
// its transpose, so D = A B is handed over as D^T = B^T A^T: the library's A is the caller's B,
// its rows are the caller's columns. A bias along the library's rows then is one along the caller's
// columns, as layers have it, and the library's BGRADB sums the caller's A.
//
// Descriptors, layouts and the algorithm of a description are made once and kept in a table that is
// emptied when it is full: making them anew costs some ten microseconds each. One lock guards the
// table and is held over cublasLtMatmul, for the pointers of bias and aux are attributes of the
// kept descriptor.
#include "blaslt.h"

#include <cublasLt.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  BUCKETS = 1024, // a power of 2
  CHOICES = 4,
};

// What an algorithm is chosen by; words alone, compared by their bytes. Matrices are named as the
// caller has them. align: 1 to 16 bytes.
typedef struct gemm_key {
  int64_t dtype, out_f32, tf32, lean, epilogue, batch, m, n, k;
  int64_t a_trans, a_ld, a_bs, b_trans, b_ld, b_bs, c_ld, c_bs, d_ld, d_bs, aux_ld;
  int64_t a_align, b_align, c_align, d_align;
} gemm_key;

typedef struct entry entry;
struct entry {
  gemm_key key;
  uint64_t hash;
  entry *next; // in its bucket
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t a, b, c, d; // a, b: the library's
  cublasLtMatmulAlgo_t algo;
  size_t workspace;
  bool refused;
  cuda_message why;
};

struct cuda_blas {
  cublasLtHandle_t handle;
  pthread_mutex_t lock;
  uint64_t workspace_limit;
  entry *buckets[BUCKETS];
  int count;
};

// An epilogue: the library's, and what of the caller's it uses.
static const struct {
  cublasLtEpilogue_t lt;
  bool bias, aux, relu; // relu: aux is bits
} epilogues[CUDA_EPI_COUNT] = {
    [CUDA_EPI_NONE] = {CUBLASLT_EPILOGUE_DEFAULT, false, false, false},
    [CUDA_EPI_BIAS] = {CUBLASLT_EPILOGUE_BIAS, true, false, false},
    [CUDA_EPI_RELU] = {CUBLASLT_EPILOGUE_RELU, false, false, false},
    [CUDA_EPI_RELU_BIAS] = {CUBLASLT_EPILOGUE_RELU_BIAS, true, false, false},
    [CUDA_EPI_GELU] = {CUBLASLT_EPILOGUE_GELU, false, false, false},
    [CUDA_EPI_GELU_BIAS] = {CUBLASLT_EPILOGUE_GELU_BIAS, true, false, false},
    [CUDA_EPI_RELU_AUX] = {CUBLASLT_EPILOGUE_RELU_AUX, false, true, true},
    [CUDA_EPI_RELU_AUX_BIAS] = {CUBLASLT_EPILOGUE_RELU_AUX_BIAS, true, true, true},
    [CUDA_EPI_GELU_AUX] = {CUBLASLT_EPILOGUE_GELU_AUX, false, true, false},
    [CUDA_EPI_GELU_AUX_BIAS] = {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, true, true, false},
    [CUDA_EPI_DRELU] = {CUBLASLT_EPILOGUE_DRELU, false, true, true},
    [CUDA_EPI_DRELU_BGRAD] = {CUBLASLT_EPILOGUE_DRELU_BGRAD, true, true, true},
    [CUDA_EPI_DGELU] = {CUBLASLT_EPILOGUE_DGELU, false, true, false},
    [CUDA_EPI_DGELU_BGRAD] = {CUBLASLT_EPILOGUE_DGELU_BGRAD, true, true, false},
    [CUDA_EPI_BGRAD_A] = {CUBLASLT_EPILOGUE_BGRADB, true, false, false},
    [CUDA_EPI_BGRAD_B] = {CUBLASLT_EPILOGUE_BGRADA, true, false, false},
};

static void say(cuda_message *why, const char *what, cublasStatus_t s) {
  snprintf(why->text, sizeof why->text, "%s: %s", what, cublasLtGetStatusString(s));
}

cuda_answer cuda_blas_create(cuda_blas **out, cuda_message *why) {
  int device = 0, major = 0;
  *out = NULL;
  cudaError_t e = cudaGetDevice(&device);
  if (e == cudaSuccess)
    e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (e != cudaSuccess) return cuda_failed(why, cudaGetErrorString(e));
  cuda_blas *b = calloc(1, sizeof *b);
  if (!b) return cuda_failed(why, "out of memory");
  cublasStatus_t s = cublasLtCreate(&b->handle);
  if (s != CUBLAS_STATUS_SUCCESS) {
    say(why, "cublasLtCreate", s);
    free(b);
    return s == CUBLAS_STATUS_ALLOC_FAILED ? CUDA_FAILED : CUDA_REFUSED;
  }
  pthread_mutex_init(&b->lock, NULL);
  b->workspace_limit = (uint64_t)(major >= 9 ? 32 : 4) << 20;
  *out = b;
  return CUDA_OK;
}

size_t cuda_blas_version(void) {
  return cublasLtGetVersion();
}

static void empty(cuda_blas *b) {
  for (int i = 0; i < BUCKETS; i++) {
    for (entry *e = b->buckets[i], *next; e; e = next) {
      next = e->next;
      free(e);
    }
    b->buckets[i] = NULL;
  }
  b->count = 0;
}

void cuda_blas_destroy(cuda_blas *b) {
  if (!b) return;
  empty(b);
  cublasLtDestroy(b->handle);
  pthread_mutex_destroy(&b->lock);
  free(b);
}

// ---- Descriptions

static int64_t alignment(const void *p) {
  uintptr_t low = (uintptr_t)p & -(uintptr_t)p;
  return low == 0 || low > 16 ? 16 : (int64_t)low;
}

// Strides as a leading dimension: row-major, or transposed. False: no matrix of the library.
static bool orient(const cuda_matrix *x, int64_t rows, int64_t cols, int64_t *trans, int64_t *ld) {
  if (!cuda_matrix_fits(x, rows, cols)) return false;
  *trans = !((x->cs == 1 || cols == 1) && (rows == 1 || x->rs >= cols));
  if (*trans)
    *ld = cols == 1 ? rows : x->cs;
  else
    *ld = rows == 1 ? cols : x->rs;
  return true;
}

static cuda_answer key_make(const cuda_gemm *g, gemm_key *key, cuda_message *why) {
  int64_t trans = 0;
  if ((unsigned)g->epilogue >= CUDA_EPI_COUNT) return cuda_failed(why, "no such epilogue");
  if (!cnn_dtype_is_float(g->dtype))
    return cuda_refuse(why, "cuBLASLt multiplies float32, float64, float16 and bfloat16");
  if (g->batch < 1 || g->m < 1 || g->n < 1 || g->k < 1)
    return cuda_refuse(why, "nothing to multiply");
  if (g->batch > INT_MAX || g->m > INT_MAX || g->n > INT_MAX || g->k > INT_MAX)
    return cuda_refuse(why, "a size is beyond 2^31 - 1");
  if (g->out_f32 && g->epilogue != CUDA_EPI_NONE)
    return cuda_failed(why, "a float32 result of another dtype goes without an epilogue");
  if (g->batch > 1 && g->epilogue != CUDA_EPI_NONE)
    return cuda_refuse(why, "an epilogue goes with one matrix, not with a batch");
  *key = (gemm_key){.dtype = g->dtype,
                    .out_f32 = g->out_f32 || g->dtype == CNN_F32,
                    .tf32 = g->dtype == CNN_F32 && g->tf32,
                    .lean = g->lean,
                    .epilogue = g->epilogue,
                    .batch = g->batch,
                    .m = g->m,
                    .n = g->n,
                    .k = g->k,
                    .a_align = alignment(g->a.p),
                    .b_align = alignment(g->b.p),
                    .d_align = alignment(g->d.p)};
  // Kernels read a bias as they write D: the preference has no word for it.
  int64_t bias_align = epilogues[g->epilogue].bias ? alignment(g->bias) : 16;
  if (bias_align < key->d_align) key->d_align = bias_align;
  if (!orient(&g->a, g->m, g->k, &key->a_trans, &key->a_ld) ||
      !orient(&g->b, g->k, g->n, &key->b_trans, &key->b_ld))
    return cuda_refuse(why, "an operand's strides are not those of a matrix");
  if (!orient(&g->d, g->m, g->n, &trans, &key->d_ld) || trans)
    return cuda_refuse(why, "the result is not row-major");
  key->c_ld = key->d_ld;
  key->c_align = key->d_align;
  if (g->beta != 0) {
    if (!orient(&g->c, g->m, g->n, &trans, &key->c_ld) || trans)
      return cuda_refuse(why, "what is added is not row-major");
    key->c_align = alignment(g->c.p);
  }
  if (g->batch > 1) {
    key->a_bs = g->a.bs;
    key->b_bs = g->b.bs;
    key->d_bs = g->d.bs;
    key->c_bs = g->beta != 0 ? g->c.bs : g->d.bs;
    if (key->a_bs < 0 || key->b_bs < 0 || key->c_bs < 0 ||
        key->d_bs < (g->m - 1) * key->d_ld + g->n)
      return cuda_refuse(why, "the matrices of the batch overlap");
  }
  if (epilogues[g->epilogue].aux) {
    key->aux_ld = g->m == 1 ? cuda_aux_rs(epilogues[g->epilogue].relu, g->n) : g->aux.rs;
    if (key->aux_ld < g->n || key->aux_ld % (epilogues[g->epilogue].relu ? 128 : 8))
      return cuda_failed(why, "aux's rows are not as cuda_aux_rs says");
    if (alignment(g->aux.p) < 16) return cuda_refuse(why, "aux is not aligned to 16 bytes");
  }
  return CUDA_OK;
}

static cudaDataType_t data_type(int64_t dtype) {
  switch (dtype) {
  case CNN_F64: return CUDA_R_64F;
  case CNN_F16: return CUDA_R_16F;
  case CNN_BF16: return CUDA_R_16BF;
  default: return CUDA_R_32F;
  }
}

// ---- Choosing

#define LT_TRY(expr)                                                                               \
  do {                                                                                             \
    cublasStatus_t s_ = (expr);                                                                    \
    if (s_ != CUBLAS_STATUS_SUCCESS) return s_;                                                    \
  } while (0)

static cublasStatus_t layout(cublasLtMatrixLayoutOpaque_t *l, cudaDataType_t type, int64_t rows,
                             int64_t cols, int64_t ld, int64_t batch, int64_t stride) {
  int32_t count = (int32_t)batch;
  LT_TRY(cublasLtMatrixLayoutInit(l, type, (uint64_t)rows, (uint64_t)cols, ld));
  if (batch == 1) return CUBLAS_STATUS_SUCCESS;
  LT_TRY(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                          sizeof count));
  return cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                          sizeof stride);
}

// Descriptor and layouts, from the key alone.
static cublasStatus_t describe(entry *e) {
  const gemm_key *k = &e->key;
  cudaDataType_t type = data_type(k->dtype), out = k->out_f32 ? CUDA_R_32F : type;
  bool wide = k->dtype == CNN_F64;
  cublasComputeType_t compute = wide      ? CUBLAS_COMPUTE_64F
                                : k->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                          : CUBLAS_COMPUTE_32F;
  int32_t trans_a = k->b_trans ? CUBLAS_OP_T : CUBLAS_OP_N;
  int32_t trans_b = k->a_trans ? CUBLAS_OP_T : CUBLAS_OP_N;
  uint32_t epilogue = epilogues[k->epilogue].lt;
  LT_TRY(cublasLtMatmulDescInit(&e->desc, compute, wide ? CUDA_R_64F : CUDA_R_32F));
  LT_TRY(cublasLtMatmulDescSetAttribute(&e->desc, CUBLASLT_MATMUL_DESC_TRANSA, &trans_a,
                                        sizeof trans_a));
  LT_TRY(cublasLtMatmulDescSetAttribute(&e->desc, CUBLASLT_MATMUL_DESC_TRANSB, &trans_b,
                                        sizeof trans_b));
  LT_TRY(cublasLtMatmulDescSetAttribute(&e->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                        sizeof epilogue));
  if (epilogues[k->epilogue].aux) {
    LT_TRY(cublasLtMatmulDescSetAttribute(&e->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                          &k->aux_ld, sizeof k->aux_ld));
  }
  LT_TRY(layout(&e->a, type, k->b_trans ? k->k : k->n, k->b_trans ? k->n : k->k, k->b_ld, k->batch,
                k->b_bs));
  LT_TRY(layout(&e->b, type, k->a_trans ? k->m : k->k, k->a_trans ? k->k : k->m, k->a_ld, k->batch,
                k->a_bs));
  LT_TRY(layout(&e->c, out, k->n, k->m, k->c_ld, k->batch, k->c_bs));
  return layout(&e->d, out, k->n, k->m, k->d_ld, k->batch, k->d_bs);
}

static cublasStatus_t set_pointers(entry *e, const void *bias, const void *aux) {
  if (epilogues[e->key.epilogue].bias)
    LT_TRY(cublasLtMatmulDescSetAttribute(&e->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                          sizeof bias));
  if (epilogues[e->key.epilogue].aux)
    LT_TRY(cublasLtMatmulDescSetAttribute(&e->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux,
                                          sizeof aux));
  return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t prefer(cublasLtMatmulPreferenceOpaque_t *p, uint64_t workspace,
                             const gemm_key *k) {
  // Sums that are split over blocks meet in float32: never in a half type, never by turns.
  uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const struct {
    cublasLtMatmulPreferenceAttributes_t name;
    uint32_t bytes;
  } aligned[] = {
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)k->b_align},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)k->a_align},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)k->c_align},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)k->d_align},
  };
  LT_TRY(cublasLtMatmulPreferenceInit(p));
  LT_TRY(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &workspace, sizeof workspace));
  LT_TRY(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                              &reduction, sizeof reduction));
  for (int i = 0; i < 4; i++) {
    LT_TRY(cublasLtMatmulPreferenceSetAttribute(p, aligned[i].name, &aligned[i].bytes,
                                                sizeof aligned[i].bytes));
  }
  return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t choose(cuda_blas *b, entry *e, const cuda_gemm *g) {
  cublasLtMatmulPreferenceOpaque_t p;
  cublasLtMatmulHeuristicResult_t found[CHOICES];
  int count = 0;
  LT_TRY(describe(e));
  // Their alignment counts; where they aren't there yet, any address of the promised one does.
  const void *aligned = (const void *)(uintptr_t)256;
  LT_TRY(set_pointers(e, g->bias ? g->bias : aligned, g->aux.p ? g->aux.p : aligned));
  LT_TRY(prefer(&p, e->key.lean ? 0 : b->workspace_limit, &e->key));
  LT_TRY(cublasLtMatmulAlgoGetHeuristic(b->handle, &e->desc, &e->a, &e->b, &e->c, &e->d, &p,
                                        CHOICES, found, &count));
  for (int i = 0; i < count; i++) {
    if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
    e->algo = found[i].algo;
    e->workspace = found[i].workspaceSize;
    return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

static uint64_t hash_key(const gemm_key *key) {
  const int64_t *words = (const int64_t *)(const void *)key;
  uint64_t h = 0x9E3779B97F4A7C15u;
  for (size_t i = 0; i < sizeof *key / sizeof *words; i++) {
    h = (h ^ (uint64_t)words[i]) * 0xFF51AFD7ED558CCDu;
    h ^= h >> 32;
  }
  return h;
}

// Under the lock. A refusal of the library's is kept, too.
static cuda_answer find(cuda_blas *b, const gemm_key *key, const cuda_gemm *g, entry **out,
                        cuda_message *why) {
  uint64_t hash = hash_key(key);
  entry **bucket = &b->buckets[hash & (BUCKETS - 1)], *e = *bucket;
  while (e && (e->hash != hash || memcmp(&e->key, key, sizeof *key) != 0)) e = e->next;
  if (!e) {
    if (b->count >= CUDA_BLAS_KEPT) empty(b);
    e = calloc(1, sizeof *e);
    if (!e) return cuda_failed(why, "out of memory");
    e->key = *key;
    e->hash = hash;
    cublasStatus_t s = choose(b, e, g);
    if (s != CUBLAS_STATUS_SUCCESS) say(&e->why, "cuBLASLt has no algorithm", s);
    e->refused = s == CUBLAS_STATUS_NOT_SUPPORTED || s == CUBLAS_STATUS_INVALID_VALUE;
    if (s != CUBLAS_STATUS_SUCCESS && !e->refused) {
      *why = e->why;
      free(e);
      return CUDA_FAILED;
    }
    e->next = *bucket;
    *bucket = e;
    b->count++;
  }
  *out = e;
  if (!e->refused) return CUDA_OK;
  *why = e->why;
  return CUDA_REFUSED;
}

// ---- The engine

cuda_answer cuda_gemm_workspace(cuda_blas *b, const cuda_gemm *g, size_t *bytes,
                                cuda_message *why) {
  gemm_key key;
  entry *e = NULL;
  *bytes = 0;
  cuda_answer answer = key_make(g, &key, why);
  if (answer != CUDA_OK) return answer;
  pthread_mutex_lock(&b->lock);
  answer = find(b, &key, g, &e, why);
  if (answer == CUDA_OK) *bytes = e->workspace;
  pthread_mutex_unlock(&b->lock);
  return answer;
}

cuda_answer cuda_gemm_run(cuda_blas *b, const cuda_gemm *g, void *workspace, size_t bytes,
                          cudaStream_t stream, cuda_message *why) {
  gemm_key key;
  entry *e = NULL;
  cuda_answer answer = key_make(g, &key, why);
  if (answer != CUDA_OK) return answer;
  if (!g->a.p || !g->b.p || !g->d.p || (g->beta != 0 && !g->c.p) ||
      (epilogues[g->epilogue].bias && !g->bias) || (epilogues[g->epilogue].aux && !g->aux.p))
    return cuda_failed(why, "a matrix without memory");
  const float alpha_f = (float)g->alpha, beta_f = (float)g->beta;
  bool wide = g->dtype == CNN_F64;
  pthread_mutex_lock(&b->lock);
  answer = find(b, &key, g, &e, why);
  if (answer == CUDA_OK && (e->workspace > bytes || (e->workspace && !workspace))) {
    snprintf(why->text, sizeof why->text, "%zu bytes of workspace are needed, %zu are there",
             e->workspace, workspace ? bytes : 0);
    answer = CUDA_FAILED;
  }
  if (answer == CUDA_OK) {
    cublasStatus_t s = set_pointers(e, g->bias, g->aux.p);
    if (s == CUBLAS_STATUS_SUCCESS) {
      s = cublasLtMatmul(b->handle, &e->desc,
                         wide ? (const void *)&g->alpha : (const void *)&alpha_f, g->b.p, &e->a,
                         g->a.p, &e->b, wide ? (const void *)&g->beta : (const void *)&beta_f,
                         g->beta != 0 ? g->c.p : g->d.p, &e->c, (void *)(uintptr_t)g->d.p, &e->d,
                         &e->algo, workspace, e->workspace, stream);
    }
    if (s != CUBLAS_STATUS_SUCCESS) {
      say(why, "cublasLtMatmul", s);
      answer = CUDA_FAILED;
    }
  }
  pthread_mutex_unlock(&b->lock);
  return answer;
}
