// SPDX-License-Identifier: MIT
// Matrix products on the simulator: the engine (blaslt.h) against plain loops in double, and misuse
// of the engine and of the library's stand-in, which must be refused or reported.
#include <cublasLt.h>

#include "blaslt.h"
#include "library.h"

static cuda_blas *blas;
static cudaStream_t stream;

// ---- A product and its plain loops

typedef struct problem {
  cuda_gemm g;
  array a, b, c, d, aux, bias;
  cnn_dtype out;
} problem;

// Elements that a matrix spans.
static int64_t span(const cuda_matrix *x, int64_t rows, int64_t cols, int64_t batch) {
  return (rows - 1) * x->rs + (cols - 1) * x->cs + (batch - 1) * x->bs + 1;
}

static bool uses_bias(cuda_epilogue e) {
  return e != CUDA_EPI_NONE && e != CUDA_EPI_RELU && e != CUDA_EPI_GELU && e != CUDA_EPI_RELU_AUX &&
         e != CUDA_EPI_GELU_AUX && e != CUDA_EPI_DRELU && e != CUDA_EPI_DGELU;
}
static bool adds_bias(cuda_epilogue e) {
  return e == CUDA_EPI_BIAS || e == CUDA_EPI_RELU_BIAS || e == CUDA_EPI_GELU_BIAS ||
         e == CUDA_EPI_RELU_AUX_BIAS || e == CUDA_EPI_GELU_AUX_BIAS;
}
static bool uses_relu(cuda_epilogue e) {
  return e == CUDA_EPI_RELU || e == CUDA_EPI_RELU_BIAS || e == CUDA_EPI_RELU_AUX ||
         e == CUDA_EPI_RELU_AUX_BIAS;
}
static bool uses_gelu(cuda_epilogue e) {
  return e == CUDA_EPI_GELU || e == CUDA_EPI_GELU_BIAS || e == CUDA_EPI_GELU_AUX ||
         e == CUDA_EPI_GELU_AUX_BIAS;
}
static bool bit_aux(cuda_epilogue e) {
  return e == CUDA_EPI_RELU_AUX || e == CUDA_EPI_RELU_AUX_BIAS || e == CUDA_EPI_DRELU ||
         e == CUDA_EPI_DRELU_BGRAD;
}
static bool value_aux(cuda_epilogue e) {
  return e == CUDA_EPI_GELU_AUX || e == CUDA_EPI_GELU_AUX_BIAS || e == CUDA_EPI_DGELU ||
         e == CUDA_EPI_DGELU_BGRAD;
}
static bool reads_aux(cuda_epilogue e) {
  return e >= CUDA_EPI_DRELU && e <= CUDA_EPI_DGELU_BGRAD;
}

static double gelu(double x) {
  return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
static double gelu_slope(double x) { // by differences: not by the formula under test
  return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5;
}

// gap: elements between the rows of everything that may have some; offset: of all arrays.
static problem make(cnn_dtype dtype, int64_t batch, int64_t m, int64_t n, int64_t k, bool ta,
                    bool tb, int64_t gap, int64_t offset, cuda_epilogue e, bool out_f32) {
  problem p = {.g = {.dtype = dtype,
                     .out_f32 = out_f32,
                     .epilogue = e,
                     .batch = batch,
                     .m = m,
                     .n = n,
                     .k = k,
                     .alpha = 1}};
  cuda_gemm *g = &p.g;
  p.out = out_f32 ? CNN_F32 : dtype;
  g->a = ta ? (cuda_matrix){NULL, 1, m + gap, 0} : (cuda_matrix){NULL, k + gap, 1, 0};
  g->b = tb ? (cuda_matrix){NULL, 1, k + gap, 0} : (cuda_matrix){NULL, n + gap, 1, 0};
  g->d = g->c = (cuda_matrix){NULL, n + gap, 1, 0};
  if (batch > 1) {
    g->a.bs = span(&g->a, m, k, 1) + gap;
    g->b.bs = span(&g->b, k, n, 1) + gap;
    g->c.bs = g->d.bs = span(&g->d, m, n, 1) + gap;
  }
  p.a = array_random(dtype, span(&g->a, m, k, batch), offset);
  p.b = array_random(dtype, span(&g->b, k, n, batch), offset);
  p.c = array_random(p.out, span(&g->c, m, n, batch), offset);
  p.d = array_new(p.out, span(&g->d, m, n, batch), offset);
  p.bias = adds_bias(e) ? array_random(p.out, n, offset)
                        : array_new(p.out, e == CUDA_EPI_BGRAD_A ? m : n, offset);
  int64_t rs = cuda_aux_rs(bit_aux(e), n);
  if (bit_aux(e)) {
    p.aux = array_new(CNN_U8, m * rs / 8, 0);
    for (int64_t i = 0; i < p.aux.count; i++) p.aux.v[i] = floor(random_number() * 128 + 128);
    array_write(&p.aux);
  } else {
    p.aux = array_random(p.out, value_aux(e) ? m * rs : 1, 0);
  }
  g->aux = (cuda_matrix){p.aux.p, rs, 1, 0};
  g->a.p = p.a.p, g->b.p = p.b.p, g->c.p = p.c.p, g->d.p = p.d.p, g->bias = p.bias.p;
  return p;
}

static void drop(problem *p) {
  array_free(&p->a), array_free(&p->b), array_free(&p->c), array_free(&p->d);
  array_free(&p->aux), array_free(&p->bias);
}

static cuda_answer run(const cuda_gemm *g, cuda_message *why) {
  size_t bytes = 0;
  void *workspace = NULL;
  cuda_answer answer = cuda_gemm_workspace(blas, g, &bytes, why);
  if (answer != CUDA_OK) return answer;
  if (bytes) cudaMalloc(&workspace, bytes);
  answer = cuda_gemm_run(blas, g, workspace, bytes, stream, why);
  cudaStreamSynchronize(stream);
  if (workspace) cudaFree(workspace);
  return answer;
}

static bool bit_of(const array *aux, int64_t rs, int64_t i, int64_t j) {
  return (int)aux->v[(i * rs + j) / 8] >> (j % 8) & 1;
}

// Runs it and holds everything that it writes, and what it must not, against loops.
static bool right(problem *p) {
  const cuda_gemm *g = &p->g;
  cuda_epilogue e = g->epilogue;
  cuda_message why = {{0}};
  long faults = sim_faults();
  bool good = true;
  double *sum = calloc((size_t)(g->m + g->n), sizeof *sum),
         *size = calloc((size_t)(g->m + g->n), sizeof *size);
  char *written = calloc((size_t)p->d.count, 1);
  cuda_answer answer = run(g, &why);
  if (answer != CUDA_OK) {
    printf("  answer %d: %s\n", answer, why.text);
    good = false;
    goto done;
  }
  array_read(&p->d);
  if (adds_bias(e) || !uses_bias(e)) {
  } else {
    array_read(&p->bias);
  }
  if (!reads_aux(e) && (bit_aux(e) || value_aux(e))) array_read(&p->aux);
  for (int64_t b = 0; b < g->batch && good; b++)
    for (int64_t i = 0; i < g->m && good; i++)
      for (int64_t j = 0; j < g->n && good; j++) {
        double v = 0, s = 0;
        for (int64_t k = 0; k < g->k; k++) {
          double x = p->a.v[b * g->a.bs + i * g->a.rs + k * g->a.cs];
          double y = p->b.v[b * g->b.bs + k * g->b.rs + j * g->b.cs];
          v += x * y, s += fabs(x * y);
        }
        v *= g->alpha, s *= fabs(g->alpha);
        if (g->beta != 0) {
          double c = p->c.v[b * g->c.bs + i * g->c.rs + j];
          v += g->beta * c, s += fabs(g->beta * c);
        }
        if (adds_bias(e)) v += p->bias.v[j], s += fabs(p->bias.v[j]);
        if (e == CUDA_EPI_GELU_AUX || e == CUDA_EPI_GELU_AUX_BIAS)
          good &= near(p->out, p->aux.v[i * g->aux.rs + j], v, s);
        if (e == CUDA_EPI_RELU_AUX || e == CUDA_EPI_RELU_AUX_BIAS)
          good &= fabs(v) < 1e-5 || bit_of(&p->aux, g->aux.rs, i, j) == (v > 0);
        if (uses_relu(e)) v = v > 0 ? v : 0;
        if (uses_gelu(e)) v = gelu(v), s += 1;
        if (e == CUDA_EPI_DRELU || e == CUDA_EPI_DRELU_BGRAD)
          v = bit_of(&p->aux, g->aux.rs, i, j) ? v : 0;
        if (e == CUDA_EPI_DGELU || e == CUDA_EPI_DGELU_BGRAD) {
          v *= gelu_slope(p->aux.v[i * g->aux.rs + j]), s *= 2;
          s += 1; // of the difference
        }
        int64_t at = b * g->d.bs + i * g->d.rs + j;
        written[at] = 1;
        if (!near(p->out, p->d.v[at], v, s)) {
          printf("  D[%d][%d][%d] is %.9g, not %.9g\n", (int)b, (int)i, (int)j, p->d.v[at], v);
          good = false;
        }
        sum[j] += v, size[j] += s;
      }
  for (int64_t i = 0; i < p->d.count && good; i++) good &= written[i] || isnan(p->d.v[i]);
  if (e == CUDA_EPI_BGRAD_A || e == CUDA_EPI_BGRAD_B) {
    for (int64_t i = 0; i < (e == CUDA_EPI_BGRAD_A ? g->m : g->n); i++) {
      sum[i] = size[i] = 0;
      for (int64_t k = 0; k < g->k; k++) {
        double x = e == CUDA_EPI_BGRAD_A ? p->a.v[i * g->a.rs + k * g->a.cs]
                                         : p->b.v[k * g->b.rs + i * g->b.cs];
        sum[i] += x, size[i] += fabs(x);
      }
    }
  }
  if (uses_bias(e) && !adds_bias(e)) {
    for (int64_t i = 0; i < p->bias.count && good; i++) {
      good &= near(p->out, p->bias.v[i], sum[i], size[i]);
      if (!good) printf("  bias[%d] is %.9g, not %.9g\n", (int)i, p->bias.v[i], sum[i]);
    }
  }
done:
  if (sim_faults() != faults) {
    printf("  reported: %s\n", sim_last_report());
    good = false;
  }
  free(sum), free(size), free(written);
  return good;
}

static bool try_one(cnn_dtype dtype, int64_t batch, int64_t m, int64_t n, int64_t k, bool ta,
                    bool tb, int64_t gap, int64_t offset, cuda_epilogue e, bool out_f32,
                    double alpha, double beta) {
  problem p = make(dtype, batch, m, n, k, ta, tb, gap, offset, e, out_f32);
  p.g.alpha = alpha, p.g.beta = beta;
  bool good = right(&p);
  if (!good)
    printf("  %s batch %d %dx%dx%d ta %d tb %d gap %d offset %d epilogue %d alpha %g beta %g\n",
           cnn_dtype_name(dtype), (int)batch, (int)m, (int)n, (int)k, ta, tb, (int)gap, (int)offset,
           e, alpha, beta);
  drop(&p);
  return good;
}

static const cnn_dtype dtypes[] = {CNN_F32, CNN_F64, CNN_F16, CNN_BF16};
static const int64_t sizes[][3] = {{1, 1, 1}, {1, 7, 3},   {5, 1, 40},   {9, 4, 1},
                                   {3, 5, 7}, {16, 8, 32}, {17, 33, 65}, {8, 130, 16}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void plain(void) {
  for (int d = 0; d < 4; d++)
    for (int s = 0; s < SIZES; s++)
      for (int t = 0; t < 4; t++)
        for (int64_t batch = 1; batch < 4; batch += 2)
          for (int64_t gap = 0; gap < 4; gap += 3)
            CHECK(try_one(dtypes[d], batch, sizes[s][0], sizes[s][1], sizes[s][2], t & 1, t & 2,
                          gap, gap, CUDA_EPI_NONE, false, 1, 0));
  for (int d = 0; d < 4; d++) {
    CHECK(try_one(dtypes[d], 2, 6, 5, 30, false, true, 0, 0, CUDA_EPI_NONE, false, -0.5, 0));
    CHECK(try_one(dtypes[d], 2, 6, 5, 30, false, true, 1, 0, CUDA_EPI_NONE, false, 2, 1));
    CHECK(try_one(dtypes[d], 1, 6, 5, 30, true, false, 0, 0, CUDA_EPI_NONE, false, 1, -0.25));
    CHECK(try_one(dtypes[d], 1, 6, 5, 30, true, false, 0, 0, CUDA_EPI_NONE, false, 0, 3));
    if (d >= 2) CHECK(try_one(dtypes[d], 2, 7, 9, 50, true, true, 2, 1, CUDA_EPI_NONE, true, 1, 1));
  }
}

// C and D may be one; a matrix may serve the whole batch.
static void shared(void) {
  for (int d = 0; d < 4; d++) {
    problem p = make(dtypes[d], 1, 4, 6, 30, false, false, 2, 0, CUDA_EPI_NONE, false);
    for (int64_t i = 0; i < p.d.count; i++) p.d.v[i] = p.c.v[i];
    for (int64_t i = 0; i < 4; i++)
      for (int64_t j = 6; j < 8 && i * 8 + j < p.d.count; j++) p.d.v[i * 8 + j] = NAN;
    array_write(&p.d);
    p.g.beta = 1;
    p.g.c.p = p.g.d.p;
    CHECK(right(&p));
    drop(&p);
    p = make(dtypes[d], 3, 4, 6, 30, false, true, 0, 0, CUDA_EPI_NONE, false);
    p.g.b.bs = 0;
    CHECK(right(&p));
    drop(&p);
  }
}

static void epilogue(void) {
  for (int d = 0; d < 4; d++)
    for (int e = 0; e < CUDA_EPI_COUNT; e++)
      for (int s = 0; s < SIZES; s++)
        for (int t = 0; t < 4; t++) {
          bool aux = bit_aux((cuda_epilogue)e) || value_aux((cuda_epilogue)e);
          if (dtypes[d] == CNN_F64 && (aux || e >= CUDA_EPI_BGRAD_A)) continue;
          CHECK(try_one(dtypes[d], 1, sizes[s][0], sizes[s][1], sizes[s][2], t & 1, t & 2, t,
                        t == 3, (cuda_epilogue)e, false, 1, 0));
        }
  CHECK(try_one(CNN_F32, 1, 9, 20, 30, false, true, 0, 0, CUDA_EPI_GELU_AUX_BIAS, false, 0.5, 1));
}

// Whether TF32 is a choice: float32 products of numbers that TF32 can't hold.
static void tf32(void) {
  double worst[2] = {0, 0};
  for (int on = 0; on < 2; on++) {
    problem p = make(CNN_F32, 1, 8, 8, 16, false, false, 0, 0, CUDA_EPI_NONE, false);
    cuda_message why = {{0}};
    p.g.tf32 = on;
    CHECK(run(&p.g, &why) == CUDA_OK);
    array_read(&p.d);
    for (int64_t i = 0; i < 8; i++)
      for (int64_t j = 0; j < 8; j++) {
        double v = 0;
        for (int64_t k = 0; k < 16; k++) v += p.a.v[i * 16 + k] * p.b.v[k * 8 + j];
        worst[on] = fmax(worst[on], fabs(v - p.d.v[i * 8 + j]));
      }
    drop(&p);
  }
  CHECK(worst[0] < 1e-5);
  CHECK(worst[1] > 1e-5 && worst[1] < 1e-2);
}

// ---- Misuse of the engine

static cuda_answer answer_of(const cuda_gemm *g) {
  cuda_message why = {{0}};
  cuda_answer answer = run(g, &why);
  if (answer != CUDA_OK && !*why.text) return (cuda_answer)-1; // a refusal without a reason
  return answer;
}

static void misuse(void) {
  problem p = make(CNN_F32, 1, 6, 8, 40, false, false, 0, 0, CUDA_EPI_NONE, false);
  cuda_message why = {{0}};
  long faults = sim_faults();
  size_t bytes = 0;
  cuda_gemm g = p.g;
  CHECK(cuda_gemm_workspace(blas, &g, &bytes, &why) == CUDA_OK && bytes > 0);
  CHECK(cuda_gemm_run(blas, &g, NULL, 0, stream, &why) == CUDA_FAILED);
  CHECK(strstr(why.text, "workspace") != NULL);
  g.dtype = CNN_I32;
  CHECK(answer_of(&g) == CUDA_REFUSED);
  g = p.g, g.m = 0;
  CHECK(answer_of(&g) == CUDA_REFUSED);
  g = p.g, g.k = 0;
  CHECK(answer_of(&g) == CUDA_REFUSED);
  g = p.g, g.a.cs = 2;
  CHECK(answer_of(&g) == CUDA_REFUSED);
  g = p.g, g.a.rs = 0;
  CHECK(answer_of(&g) == CUDA_REFUSED);
  g = p.g, g.d.rs = 1, g.d.cs = 6;
  CHECK(answer_of(&g) == CUDA_REFUSED);
  g = p.g, g.d.p = NULL;
  CHECK(answer_of(&g) == CUDA_FAILED);
  g = p.g, g.beta = 1, g.c.p = NULL;
  CHECK(answer_of(&g) == CUDA_FAILED);
  g = p.g, g.epilogue = CUDA_EPI_COUNT;
  CHECK(answer_of(&g) == CUDA_FAILED);
  g = p.g, g.epilogue = CUDA_EPI_BIAS, g.bias = NULL;
  CHECK(answer_of(&g) == CUDA_FAILED);
  g = p.g, g.epilogue = CUDA_EPI_BIAS, g.batch = 2;
  CHECK(answer_of(&g) == CUDA_REFUSED);
  g = p.g, g.epilogue = CUDA_EPI_GELU_AUX, g.aux.rs = 12;
  CHECK(answer_of(&g) == CUDA_FAILED);
  g = p.g, g.epilogue = CUDA_EPI_GELU_AUX, g.aux.p = p.aux.p + 8;
  CHECK(answer_of(&g) == CUDA_REFUSED);
  g = p.g, g.batch = 2, g.d.bs = 10;
  CHECK(answer_of(&g) == CUDA_REFUSED);
  CHECK(sim_faults() == faults); // all that was noticed before the library was called
  // What only a simulator can say.
  sim_set_quiet(1);
  float host[64] = {0};
  g = p.g, g.a.p = host;
  CHECK(answer_of(&g) == CUDA_FAILED && sim_faults() > faults);
  faults = sim_faults();
  g = p.g, g.d.p = g.b.p;
  CHECK(answer_of(&g) == CUDA_FAILED && sim_faults() > faults);
  faults = sim_faults();
  g = p.g, g.n = 9, g.b.rs = g.d.rs = 9; // one row more than there is
  CHECK(answer_of(&g) == CUDA_FAILED && sim_faults() > faults);
  sim_set_quiet(0);
  sim_clear_faults();
  drop(&p);
  // float64 with aux: the stand-in has no algorithm, as the library may
  p = make(CNN_F64, 1, 6, 8, 40, false, false, 0, 0, CUDA_EPI_GELU_AUX, false);
  CHECK(answer_of(&p.g) == CUDA_REFUSED);
  CHECK(answer_of(&p.g) == CUDA_REFUSED); // kept
  drop(&p);
}

static void many_shapes(void) {
  problem p = make(CNN_F32, 1, 4, 4, 4, false, false, 0, 0, CUDA_EPI_NONE, false);
  cuda_message why = {{0}};
  size_t bytes;
  int good = 0;
  for (int i = 1; i <= 3 * CUDA_BLAS_KEPT; i++) {
    cuda_gemm g = p.g;
    g.k = i, g.a.rs = i;
    good += cuda_gemm_workspace(blas, &g, &bytes, &why) == CUDA_OK;
  }
  CHECK(good == 3 * CUDA_BLAS_KEPT);
  CHECK(right(&p));
  drop(&p);
}

// ---- Misuse of the library

typedef struct raw {
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, d;
  cublasLtMatmulPreference_t pref;
  array am, bm, dm;
  void *workspace;
} raw;

enum { RAW = 32 }; // column-major A, B and D of RAW x RAW

static raw raw_new(cublasLtEpilogue_t e) {
  raw r = {NULL, NULL, NULL, NULL, NULL, NULL, {0}, {0}, {0}, NULL};
  uint64_t bytes = 1 << 20;
  CHECK(cublasLtCreate(&r.handle) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasLtMatmulDescCreate(&r.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
  uint32_t epi = e;
  CHECK(cublasLtMatmulDescSetAttribute(r.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epi, sizeof epi) ==
        CUBLAS_STATUS_SUCCESS);
  cublasLtMatrixLayoutCreate(&r.a, CUDA_R_32F, RAW, RAW, RAW);
  cublasLtMatrixLayoutCreate(&r.b, CUDA_R_32F, RAW, RAW, RAW);
  cublasLtMatrixLayoutCreate(&r.d, CUDA_R_32F, RAW, RAW, RAW);
  cublasLtMatmulPreferenceCreate(&r.pref);
  cublasLtMatmulPreferenceSetAttribute(r.pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                       sizeof bytes);
  r.am = array_random(CNN_F32, RAW * RAW + 4, 0);
  r.bm = array_random(CNN_F32, RAW * RAW, 0);
  r.dm = array_new(CNN_F32, RAW * RAW, 0);
  cudaMalloc(&r.workspace, 1 << 20);
  return r;
}

static void raw_free(raw *r) {
  cublasLtMatmulDescDestroy(r->desc);
  cublasLtMatrixLayoutDestroy(r->a);
  cublasLtMatrixLayoutDestroy(r->b);
  cublasLtMatrixLayoutDestroy(r->d);
  cublasLtMatmulPreferenceDestroy(r->pref);
  cublasLtDestroy(r->handle);
  array_free(&r->am), array_free(&r->bm), array_free(&r->dm);
  cudaFree(r->workspace);
}

static cublasStatus_t raw_choose(raw *r, cublasLtMatmulHeuristicResult_t *h) {
  int count = 0;
  cublasStatus_t s = cublasLtMatmulAlgoGetHeuristic(r->handle, r->desc, r->a, r->b, r->d, r->d,
                                                    r->pref, 1, h, &count);
  if (s == CUBLAS_STATUS_SUCCESS && count != 1) return CUBLAS_STATUS_INTERNAL_ERROR;
  return s;
}

static cublasStatus_t raw_run(raw *r, const void *a, const cublasLtMatmulAlgo_t *algo,
                              size_t workspace) {
  const float one = 1, zero = 0;
  cublasStatus_t s =
      cublasLtMatmul(r->handle, r->desc, &one, a, r->a, r->bm.p, r->b, &zero, r->dm.p, r->d,
                     r->dm.p, r->d, algo, r->workspace, workspace, stream);
  cudaStreamSynchronize(stream);
  return s;
}

static void library(void) {
  raw r = raw_new(CUBLASLT_EPILOGUE_DEFAULT);
  cublasLtMatmulHeuristicResult_t h, other;
  const float one = 1, zero = 0;
  int count;
  long faults = sim_faults();
  CHECK(raw_choose(&r, &h) == CUBLAS_STATUS_SUCCESS);
  CHECK(h.workspaceSize > 0 && h.workspaceSize <= 1 << 20);
  CHECK(raw_run(&r, r.am.p, &h.algo, h.workspaceSize) == CUBLAS_STATUS_SUCCESS);
  CHECK(raw_run(&r, r.am.p, NULL, 1 << 20) == CUBLAS_STATUS_SUCCESS);
  CHECK(raw_run(&r, r.am.p, &h.algo, h.workspaceSize - 1) == CUBLAS_STATUS_INVALID_VALUE);
  // Row order: D^T = A^T B^T in place of D = A B, from the same bytes.
  {
    array_read(&r.dm);
    double *before = malloc(sizeof(double) * RAW * RAW);
    memcpy(before, r.dm.v, sizeof(double) * RAW * RAW);
    int32_t row = CUBLASLT_ORDER_ROW, col = CUBLASLT_ORDER_COL, t = CUBLAS_OP_T, n = CUBLAS_OP_N;
    cublasLtMatrixLayoutSetAttribute(r.a, CUBLASLT_MATRIX_LAYOUT_ORDER, &row, sizeof row);
    cublasLtMatrixLayoutSetAttribute(r.b, CUBLASLT_MATRIX_LAYOUT_ORDER, &row, sizeof row);
    cublasLtMatmulDescSetAttribute(r.desc, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof t);
    cublasLtMatmulDescSetAttribute(r.desc, CUBLASLT_MATMUL_DESC_TRANSB, &t, sizeof t);
    CHECK(raw_run(&r, r.am.p, NULL, 1 << 20) == CUBLAS_STATUS_SUCCESS);
    array_read(&r.dm);
    CHECK(memcmp(before, r.dm.v, sizeof(double) * RAW * RAW) == 0);
    sim_set_quiet(1);
    CHECK(raw_run(&r, r.am.p, &h.algo, h.workspaceSize) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(sim_faults() > faults); // an algorithm of another problem
    sim_set_quiet(0);
    cublasLtMatrixLayoutSetAttribute(r.a, CUBLASLT_MATRIX_LAYOUT_ORDER, &col, sizeof col);
    cublasLtMatrixLayoutSetAttribute(r.b, CUBLASLT_MATRIX_LAYOUT_ORDER, &col, sizeof col);
    cublasLtMatmulDescSetAttribute(r.desc, CUBLASLT_MATMUL_DESC_TRANSA, &n, sizeof n);
    cublasLtMatmulDescSetAttribute(r.desc, CUBLASLT_MATMUL_DESC_TRANSB, &n, sizeof n);
    free(before);
  }
  // An alignment that was promised and isn't kept; a smaller promise.
  faults = sim_faults();
  sim_set_quiet(1);
  CHECK(raw_run(&r, r.am.p + 4, &h.algo, h.workspaceSize) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(sim_faults() > faults);
  sim_set_quiet(0);
  uint32_t four = 4, two = 2;
  cublasLtMatmulPreferenceSetAttribute(r.pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &four,
                                       4);
  CHECK(raw_choose(&r, &other) == CUBLAS_STATUS_SUCCESS);
  faults = sim_faults();
  CHECK(raw_run(&r, r.am.p + 4, &other.algo, other.workspaceSize) == CUBLAS_STATUS_SUCCESS);
  CHECK(sim_faults() == faults);
  cublasLtMatmulPreferenceSetAttribute(r.pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &two, 4);
  CHECK(raw_choose(&r, &other) == CUBLAS_STATUS_NOT_SUPPORTED);
  cublasLtMatmulPreferenceSetAttribute(r.pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &four,
                                       4);
  // No workspace allowed: an algorithm without one.
  uint64_t none = 0;
  cublasLtMatmulPreferenceSetAttribute(r.pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &none, 8);
  CHECK(raw_choose(&r, &other) == CUBLAS_STATUS_SUCCESS && other.workspaceSize == 0);
  // Null, sizes, attributes.
  CHECK(cublasLtCreate(NULL) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cublasLtMatmul(NULL, r.desc, &one, r.am.p, r.a, r.bm.p, r.b, &zero, r.dm.p, r.d, r.dm.p,
                       r.d, NULL, NULL, 0, stream) == CUBLAS_STATUS_NOT_INITIALIZED);
  CHECK(cublasLtMatmul(r.handle, r.desc, NULL, r.am.p, r.a, r.bm.p, r.b, &zero, r.dm.p, r.d, r.dm.p,
                       r.d, NULL, NULL, 0, stream) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cublasLtMatmul(r.handle, NULL, &one, r.am.p, r.a, r.bm.p, r.b, &zero, r.dm.p, r.d, r.dm.p,
                       r.d, NULL, NULL, 0, stream) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cublasLtMatmulAlgoGetHeuristic(r.handle, r.desc, r.a, r.b, r.d, r.d, r.pref, 0, &h,
                                       &count) == CUBLAS_STATUS_INVALID_VALUE);
  int64_t ld = RAW - 1;
  CHECK(cublasLtMatrixLayoutSetAttribute(r.a, CUBLASLT_MATRIX_LAYOUT_LD, &ld, 4) ==
        CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cublasLtMatrixLayoutSetAttribute(r.a, CUBLASLT_MATRIX_LAYOUT_LD, &ld, 8) ==
        CUBLAS_STATUS_SUCCESS);
  CHECK(raw_choose(&r, &other) == CUBLAS_STATUS_INVALID_VALUE);
  ld = RAW;
  cublasLtMatrixLayoutSetAttribute(r.a, CUBLASLT_MATRIX_LAYOUT_LD, &ld, 8);
  uint64_t rows = RAW - 1;
  cublasLtMatrixLayoutSetAttribute(r.d, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, 8);
  CHECK(raw_choose(&r, &other) == CUBLAS_STATUS_INVALID_VALUE);
  rows = RAW;
  cublasLtMatrixLayoutSetAttribute(r.d, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, 8);
  int32_t type = CUDA_R_64F;
  cublasLtMatmulDescSetAttribute(r.desc, CUBLASLT_MATMUL_DESC_SCALE_TYPE, &type, 4);
  CHECK(raw_choose(&r, &other) == CUBLAS_STATUS_NOT_SUPPORTED);
  raw_free(&r);

  // Epilogues without what they need.
  r = raw_new(CUBLASLT_EPILOGUE_RELU_AUX_BIAS);
  CHECK(raw_choose(&r, &h) == CUBLAS_STATUS_INVALID_VALUE); // no aux ld
  ld = 64;
  cublasLtMatmulDescSetAttribute(r.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, 8);
  CHECK(raw_choose(&r, &h) == CUBLAS_STATUS_INVALID_VALUE); // not a multiple of 128
  ld = 128;
  cublasLtMatmulDescSetAttribute(r.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, 8);
  CHECK(raw_choose(&r, &h) == CUBLAS_STATUS_SUCCESS);
  CHECK(raw_run(&r, r.am.p, &h.algo, h.workspaceSize) == CUBLAS_STATUS_INVALID_VALUE); // pointers
  raw_free(&r);
  sim_clear_faults();
}

int main(void) {
  cuda_message why = {{0}};
  cudaStreamCreate(&stream);
  if (cuda_blas_create(&blas, &why) != CUDA_OK) {
    printf("%s\n0 passed, 1 failed\n", why.text);
    return 1;
  }
  plain();
  shared();
  epilogue();
  tf32();
  misuse();
  many_shapes();
  library();
  CHECK(sim_faults() == 0);
  cuda_blas_destroy(blas);
  cudaStreamDestroy(stream);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
