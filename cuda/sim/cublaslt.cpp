// SPDX-License-Identifier: MIT
//
// A stand-in for cuBLASLt: cublasLtMatmul and what it takes, by plain loops on the host.
//
// It checks at the call what the library's manual asks for and answers with the same status; what
// the manual leaves to luck (an algorithm of another problem, a pointer less aligned than the
// preference promised, a matrix that is not in device memory, a D that overlaps A or B) is besides
// reported as a fault. Where the true library's choice is unknown the stand-in takes the less
// convenient one: it refuses float64 with an aux matrix, wants a workspace for longer sums and
// fills it with NaN, lets no algorithm serve another problem, and gives 0 for the ReLU of NaN.
//
// Descriptors live in the header's opaque structs, so both ways of making them work.
#include <cublasLt.h>
#include <string.h>
#include <algorithm>
#include <new>
#include "matmul.h"

using namespace sim;

namespace {

constexpr uint32_t MAGIC_LAYOUT = 0x4C745F4C, MAGIC_DESC = 0x4C745F44, MAGIC_PREF = 0x4C745F50,
                   MAGIC_ALGO = 0x4C745F41;
constexpr size_t WORKSPACE = 96 << 10; // of sums longer than LONG_SUM
constexpr uint64_t LONG_SUM = 24;

struct Layout {
  uint32_t magic;
  int32_t type, order, batch;
  uint64_t rows, cols;
  int64_t ld, stride;
};

struct Desc {
  uint32_t magic;
  int32_t compute, scale, pointer_mode, trans_a, trans_b, trans_c, fill;
  uint32_t epilogue;
  int32_t aux_type, bias_type, sm_target;
  int8_t fast_accum;
  const void *bias;
  void *aux;
  int64_t bias_stride, aux_ld, aux_stride, alpha_stride;
};

struct Pref {
  uint32_t magic, search, reduction, align[4]; // of A, B, C, D
  float waves;
  uint64_t workspace, impl;
};

struct Algo {
  uint32_t magic, align[4];
  uint32_t workspace;
  uint64_t problem;
};

static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "");
static_assert(sizeof(Desc) <= sizeof(cublasLtMatmulDescOpaque_t), "");
static_assert(sizeof(Pref) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "");
static_assert(sizeof(Algo) <= sizeof(cublasLtMatmulAlgo_t), "");

struct Context {
  uint32_t magic;
};
constexpr uint32_t MAGIC_HANDLE = 0x4C745F48;

Layout *layout_of(cublasLtMatrixLayout_t l) {
  Layout *p = reinterpret_cast<Layout *>(l);
  return p && p->magic == MAGIC_LAYOUT ? p : nullptr;
}
Desc *desc_of(cublasLtMatmulDesc_t d) {
  Desc *p = reinterpret_cast<Desc *>(d);
  return p && p->magic == MAGIC_DESC ? p : nullptr;
}
Pref *pref_of(cublasLtMatmulPreference_t f) {
  Pref *p = reinterpret_cast<Pref *>(f);
  return p && p->magic == MAGIC_PREF ? p : nullptr;
}
bool is_handle(cublasLtHandle_t h) {
  return h && reinterpret_cast<Context *>(h)->magic == MAGIC_HANDLE;
}

// Attributes: where one lies and how long it is.
struct Field {
  void *p;
  size_t size;
};

Field field(Layout *l, int attr) {
  switch (attr) {
  case CUBLASLT_MATRIX_LAYOUT_TYPE: return {&l->type, 4};
  case CUBLASLT_MATRIX_LAYOUT_ORDER: return {&l->order, 4};
  case CUBLASLT_MATRIX_LAYOUT_ROWS: return {&l->rows, 8};
  case CUBLASLT_MATRIX_LAYOUT_COLS: return {&l->cols, 8};
  case CUBLASLT_MATRIX_LAYOUT_LD: return {&l->ld, 8};
  case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return {&l->batch, 4};
  case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return {&l->stride, 8};
  default: return {nullptr, 0};
  }
}

Field field(Desc *d, int attr) {
  switch (attr) {
  case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return {&d->compute, 4};
  case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return {&d->scale, 4};
  case CUBLASLT_MATMUL_DESC_POINTER_MODE: return {&d->pointer_mode, 4};
  case CUBLASLT_MATMUL_DESC_TRANSA: return {&d->trans_a, 4};
  case CUBLASLT_MATMUL_DESC_TRANSB: return {&d->trans_b, 4};
  case CUBLASLT_MATMUL_DESC_TRANSC: return {&d->trans_c, 4};
  case CUBLASLT_MATMUL_DESC_FILL_MODE: return {&d->fill, 4};
  case CUBLASLT_MATMUL_DESC_EPILOGUE: return {&d->epilogue, 4};
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return {&d->bias, 8};
  case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return {&d->bias_stride, 8};
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return {&d->aux, 8};
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return {&d->aux_ld, 8};
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: return {&d->aux_stride, 8};
  case CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE: return {&d->alpha_stride, 8};
  case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET: return {&d->sm_target, 4};
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE: return {&d->aux_type, 4};
  case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return {&d->bias_type, 4};
  case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return {&d->fast_accum, 1};
  default: return {nullptr, 0};
  }
}

Field field(Pref *f, int attr) {
  switch (attr) {
  case CUBLASLT_MATMUL_PREF_SEARCH_MODE: return {&f->search, 4};
  case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return {&f->workspace, 8};
  case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return {&f->reduction, 4};
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return {&f->align[0], 4};
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return {&f->align[1], 4};
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return {&f->align[2], 4};
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return {&f->align[3], 4};
  case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT: return {&f->waves, 4};
  case CUBLASLT_MATMUL_PREF_IMPL_MASK: return {&f->impl, 8};
  default: return {nullptr, 0};
  }
}

template <typename T> cublasStatus_t set(T *object, int attr, const void *buf, size_t size) {
  Field f = object ? field(object, attr) : Field{nullptr, 0};
  if (!f.p || !buf || size != f.size) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(f.p, buf, size);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T>
cublasStatus_t get(T *object, int attr, void *buf, size_t size, size_t *written) {
  Field f = object ? field(object, attr) : Field{nullptr, 0};
  if (!f.p || (size == 0 && !written)) return CUBLAS_STATUS_INVALID_VALUE;
  if (size != 0 && (!buf || size != f.size)) return CUBLAS_STATUS_INVALID_VALUE;
  if (size != 0) memcpy(buf, f.p, size);
  if (written) *written = f.size;
  return CUBLAS_STATUS_SUCCESS;
}

bool elem_of(int type, Elem *e) {
  switch (type) {
  case CUDA_R_32F: *e = Elem::F32; return true;
  case CUDA_R_64F: *e = Elem::F64; return true;
  case CUDA_R_16F: *e = Elem::F16; return true;
  case CUDA_R_16BF: *e = Elem::BF16; return true;
  default: return false;
  }
}

bool known_epilogue(uint32_t e) {
  switch (e) {
  case CUBLASLT_EPILOGUE_DEFAULT:
  case CUBLASLT_EPILOGUE_RELU:
  case CUBLASLT_EPILOGUE_RELU_AUX:
  case CUBLASLT_EPILOGUE_BIAS:
  case CUBLASLT_EPILOGUE_RELU_BIAS:
  case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
  case CUBLASLT_EPILOGUE_DRELU:
  case CUBLASLT_EPILOGUE_DRELU_BGRAD:
  case CUBLASLT_EPILOGUE_GELU:
  case CUBLASLT_EPILOGUE_GELU_AUX:
  case CUBLASLT_EPILOGUE_GELU_BIAS:
  case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
  case CUBLASLT_EPILOGUE_DGELU:
  case CUBLASLT_EPILOGUE_DGELU_BGRAD:
  case CUBLASLT_EPILOGUE_BGRADA:
  case CUBLASLT_EPILOGUE_BGRADB: return true;
  default: return false;
  }
}

// One layout as a matrix. False: the library calls it invalid.
bool matrix_of(const Layout *l, Matrix *m) {
  if (!elem_of(l->type, &m->type)) return false;
  bool col = l->order == CUBLASLT_ORDER_COL;
  if (!col && l->order != CUBLASLT_ORDER_ROW) return false;
  if (l->rows < 1 || l->cols < 1 || l->batch < 1) return false;
  if (l->ld < int64_t(col ? l->rows : l->cols)) return false;
  m->rows = int64_t(l->rows);
  m->cols = int64_t(l->cols);
  m->row_step = col ? 1 : l->ld;
  m->col_step = col ? l->ld : 1;
  m->stride = l->batch > 1 ? l->stride : 0;
  return true;
}

// Everything that descriptors show. SUCCESS, INVALID_VALUE or NOT_SUPPORTED.
cublasStatus_t problem_of(const Desc *d, const Layout *la, const Layout *lb, const Layout *lc,
                          const Layout *ld, Problem *p) {
  *p = Problem();
  if (!d || !la || !lb || !lc || !ld) return CUBLAS_STATUS_INVALID_VALUE;
  if (!matrix_of(la, &p->a) || !matrix_of(lb, &p->b) || !matrix_of(lc, &p->c) ||
      !matrix_of(ld, &p->d))
    return CUBLAS_STATUS_INVALID_VALUE;
  auto valid_op = [](int op) {
    return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C;
  };
  if (!valid_op(d->trans_a) || !valid_op(d->trans_b)) return CUBLAS_STATUS_INVALID_VALUE;
  if (d->trans_c != CUBLAS_OP_N || d->fill != CUBLAS_FILL_MODE_FULL)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  p->trans_a = d->trans_a != CUBLAS_OP_N;
  p->trans_b = d->trans_b != CUBLAS_OP_N;
  p->m = p->trans_a ? p->a.cols : p->a.rows;
  p->k = p->trans_a ? p->a.rows : p->a.cols;
  p->n = p->trans_b ? p->b.rows : p->b.cols;
  if (p->k != (p->trans_b ? p->b.cols : p->b.rows) || p->d.rows != p->m || p->d.cols != p->n ||
      p->c.rows != p->m || p->c.cols != p->n)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (la->batch != ld->batch || lb->batch != ld->batch || lc->batch != ld->batch)
    return CUBLAS_STATUS_INVALID_VALUE;
  p->batch = ld->batch;
  if (p->a.type != p->b.type || p->c.type != p->d.type || lc->order != ld->order)
    return CUBLAS_STATUS_NOT_SUPPORTED;

  // Types: the rows of the manual's table that are about these four.
  p->wide = p->a.type == Elem::F64;
  bool half = p->a.type == Elem::F16 || p->a.type == Elem::BF16;
  if (p->d.type != p->a.type && !(half && p->d.type == Elem::F32))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (d->scale != (p->wide ? CUDA_R_64F : CUDA_R_32F)) return CUBLAS_STATUS_NOT_SUPPORTED;
  switch (d->compute) {
  case CUBLAS_COMPUTE_64F:
  case CUBLAS_COMPUTE_64F_PEDANTIC:
    if (!p->wide) return CUBLAS_STATUS_NOT_SUPPORTED;
    break;
  case CUBLAS_COMPUTE_32F:
  case CUBLAS_COMPUTE_32F_PEDANTIC:
    if (p->wide) return CUBLAS_STATUS_NOT_SUPPORTED;
    break;
  case CUBLAS_COMPUTE_32F_FAST_TF32:
    if (p->a.type != Elem::F32) return CUBLAS_STATUS_NOT_SUPPORTED;
    p->tf32 = true;
    break;
  default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }

  uint32_t e = p->epilogue = d->epilogue;
  if (!known_epilogue(e)) return CUBLAS_STATUS_INVALID_VALUE;
  if (p->wide && (has(e, E_AUX) || e >= E_BGRADA)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (e >= E_BGRADA && p->batch > 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  p->bias = d->bias;
  p->bias_stride = d->bias_stride;
  p->bias_type = p->d.type;
  if (d->bias_type >= 0 && !elem_of(d->bias_type, &p->bias_type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p->bias_type != p->d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (has(e, E_AUX)) {
    int64_t unit = has(e, E_GELU) || has(e, E_DGELU) ? 8 : 128;
    Elem aux_type = p->d.type;
    p->aux = static_cast<char *>(d->aux);
    p->aux_ld = d->aux_ld;
    p->aux_stride = d->aux_stride;
    if (ld->order != CUBLASLT_ORDER_COL) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p->aux_ld < p->m || p->aux_ld % unit || p->aux_stride % unit)
      return CUBLAS_STATUS_INVALID_VALUE;
    if (d->aux_type >= 0 && (!elem_of(d->aux_type, &aux_type) || aux_type != p->d.type))
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (d->pointer_mode != CUBLASLT_POINTER_MODE_HOST &&
      d->pointer_mode != CUBLASLT_POINTER_MODE_DEVICE)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  p->device_scalars = d->pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
  return CUBLAS_STATUS_SUCCESS;
}

uint64_t mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0xFF51AFD7ED558CCDu;
  return h ^ h >> 32;
}

// Names what an algorithm was chosen for: all but pointers and scalars.
uint64_t name_of(const Problem &p) {
  uint64_t h = 1;
  for (const Matrix *m : {&p.a, &p.b, &p.c, &p.d}) {
    for (int64_t v : {int64_t(m->type), m->rows, m->cols, m->row_step, m->col_step, m->stride})
      h = mix(h, uint64_t(v));
  }
  for (int64_t v : {p.batch, int64_t(p.trans_a), int64_t(p.trans_b), int64_t(p.tf32),
                    int64_t(p.epilogue), p.aux_ld, p.aux_stride, p.bias_stride})
    h = mix(h, uint64_t(v));
  return h;
}

uint32_t workspace_of(const Problem &p, uint64_t limit) {
  return uint64_t(p.k) > LONG_SUM ? uint32_t(std::min<uint64_t>(limit, WORKSPACE)) : 0;
}

// What pointers must be aligned to: 16 bytes where rows and the preference allow it, for such an
// algorithm is the faster one; else an element.
uint32_t alignment_for(const Matrix &m, uint32_t promised) {
  int64_t ld = std::max(m.row_step, m.col_step) * int64_t(size_of(m.type));
  int64_t stride = m.stride * int64_t(size_of(m.type));
  return promised >= 16 && ld % 16 == 0 && stride % 16 == 0 ? 16 : uint32_t(size_of(m.type));
}

// ---- Checks of addresses

bool overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes) {
  uintptr_t x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  return x < y + uintptr_t(b_bytes) && y < x + uintptr_t(a_bytes);
}

bool check_memory(const Problem &p, bool reads_c) {
  bool good = true;
  auto on_device = [&](const char *what, const void *at, int64_t bytes) {
    if (sim_is_device(at, size_t(bytes))) return;
    sim_report("cublasLtMatmul: %s: %lld bytes at %p are not in device memory", what,
               static_cast<long long>(bytes), at);
    good = false;
  };
  auto bytes = [&](const Matrix &m) { return m.span(p.batch) * int64_t(size_of(m.type)); };
  on_device("A", p.a.p, bytes(p.a));
  on_device("B", p.b.p, bytes(p.b));
  if (reads_c) on_device("C", p.c.p, bytes(p.c));
  on_device("D", p.d.p, bytes(p.d));
  if (p.workspace_size) on_device("the workspace", p.workspace, int64_t(p.workspace_size));
  for (const Matrix *m : {&p.a, &p.b}) {
    if (!overlap(p.d.p, bytes(p.d), m->p, bytes(*m))) continue;
    sim_report("cublasLtMatmul: D overlaps %s", m == &p.a ? "A" : "B");
    good = false;
  }
  if (p.batch > 1 && p.d.stride == 0) {
    sim_report("cublasLtMatmul: all matrices D of the batch lie at one place");
    good = false;
  }
  return good;
}

} // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  int count = 0;
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < 1) return CUBLAS_STATUS_NOT_INITIALIZED;
  static int made;
  if (libraries() == SIM_LIBRARIES_MISSING) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (is_exhausted(&made)) return CUBLAS_STATUS_ALLOC_FAILED;
  Context *c = new (std::nothrow) Context{MAGIC_HANDLE};
  if (!c) return CUBLAS_STATUS_ALLOC_FAILED;
  *handle = reinterpret_cast<cublasLtHandle_t>(c);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (!is_handle(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  Context *c = reinterpret_cast<Context *>(handle);
  c->magic = 0;
  delete c;
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void) {
  return CUBLAS_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
  case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
  case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
  case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
  case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
  case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
  case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
  default: return "CUBLAS_STATUS_UNKNOWN";
  }
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
  return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t l, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t ld) {
  if (!l || size < sizeof(Layout)) return CUBLAS_STATUS_ALLOC_FAILED;
  Layout *p = reinterpret_cast<Layout *>(l);
  *p = Layout{MAGIC_LAYOUT, type, CUBLASLT_ORDER_COL, 1, rows, cols, ld, 0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  if (!l) return CUBLAS_STATUS_INVALID_VALUE;
  *l = new (std::nothrow) cublasLtMatrixLayoutOpaque_t();
  return cublasLtMatrixLayoutInit_internal(*l, sizeof **l, type, rows, cols, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete l;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t attr,
                                                const void *buf, size_t size) {
  return set(layout_of(l), attr, buf, size);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t attr, void *buf,
                                                size_t size, size_t *written) {
  return get(layout_of(l), attr, buf, size, written);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t d, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  if (!d || size < sizeof(Desc)) return CUBLAS_STATUS_ALLOC_FAILED;
  Desc *p = reinterpret_cast<Desc *>(d);
  *p = Desc();
  p->magic = MAGIC_DESC;
  p->compute = compute;
  p->scale = scale;
  p->fill = CUBLAS_FILL_MODE_FULL;
  p->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  p->aux_type = p->bias_type = -1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (!d) return CUBLAS_STATUS_INVALID_VALUE;
  *d = new (std::nothrow) cublasLtMatmulDescOpaque_t();
  return cublasLtMatmulDescInit_internal(*d, sizeof **d, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete d;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t attr, const void *buf,
                                              size_t size) {
  return set(desc_of(d), attr, buf, size);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t attr, void *buf,
                                              size_t size, size_t *written) {
  return get(desc_of(d), attr, buf, size, written);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t f, size_t size) {
  if (!f || size < sizeof(Pref)) return CUBLAS_STATUS_ALLOC_FAILED;
  *reinterpret_cast<Pref *>(f) =
      Pref{MAGIC_PREF, 0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}, 0, 0, ~uint64_t(0)};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *f) {
  if (!f) return CUBLAS_STATUS_INVALID_VALUE;
  *f = new (std::nothrow) cublasLtMatmulPreferenceOpaque_t();
  return cublasLtMatmulPreferenceInit_internal(*f, sizeof **f);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t f) {
  delete f;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t f,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void *buf, size_t size) {
  return set(pref_of(f), attr, buf, size);
}

cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t f,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    void *buf, size_t size, size_t *written) {
  return get(pref_of(f), attr, buf, size, written);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *count) {
  Problem p;
  if (!is_handle(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  Pref *f = pref_of(preference);
  if (!f || wanted < 1 || !results || !count) return CUBLAS_STATUS_INVALID_VALUE;
  *count = 0;
  if (libraries() == SIM_LIBRARIES_REFUSING) return CUBLAS_STATUS_NOT_SUPPORTED;
  cublasStatus_t s =
      problem_of(desc_of(desc), layout_of(a), layout_of(b), layout_of(c), layout_of(d), &p);
  if (s != CUBLAS_STATUS_SUCCESS) return s;
  const Matrix *matrices[] = {&p.a, &p.b, &p.c, &p.d};
  for (int i = 0; i < 4; i++) {
    if (f->align[i] < size_of(matrices[i]->type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  Algo algo = {MAGIC_ALGO, {0, 0, 0, 0}, workspace_of(p, f->workspace), name_of(p)};
  for (int i = 0; i < 4; i++) algo.align[i] = alignment_for(*matrices[i], f->align[i]);
  results[0] = cublasLtMatmulHeuristicResult_t();
  memcpy(&results[0].algo, &algo, sizeof algo);
  results[0].workspaceSize = algo.workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].wavesCount = 1;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *chosen,
                              void *workspace, size_t workspace_size, cudaStream_t stream) {
  Problem p;
  Algo algo = Algo();
  if (!is_handle(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!alpha || !beta || !a || !b || !c || !d) return CUBLAS_STATUS_INVALID_VALUE;
  cublasStatus_t s = problem_of(desc_of(desc), layout_of(a_layout), layout_of(b_layout),
                                layout_of(c_layout), layout_of(d_layout), &p);
  if (s != CUBLAS_STATUS_SUCCESS) return s;
  p.a.p = static_cast<const char *>(a);
  p.b.p = static_cast<const char *>(b);
  p.c.p = static_cast<const char *>(c);
  p.d.p = static_cast<const char *>(d);
  const Matrix *matrices[] = {&p.a, &p.b, &p.c, &p.d};

  // The algorithm
  if (chosen) {
    memcpy(&algo, chosen, sizeof algo);
    if (algo.magic != MAGIC_ALGO) return CUBLAS_STATUS_INVALID_VALUE;
    if (algo.problem != name_of(p)) {
      sim_report("cublasLtMatmul: the algorithm was chosen for another problem");
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  } else {
    algo.workspace = workspace_of(p, workspace_size);
    for (int i = 0; i < 4; i++)
      algo.align[i] = alignment_for(*matrices[i], uint32_t(alignment_of(matrices[i]->p)));
  }
  if (algo.workspace > workspace_size || (algo.workspace && !workspace))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (algo.workspace && alignment_of(workspace) < 16) return CUBLAS_STATUS_INVALID_VALUE;
  for (int i = 0; i < 4; i++) {
    if (alignment_of(matrices[i]->p) >= algo.align[i]) continue;
    sim_report("cublasLtMatmul: %c is aligned to %zu bytes, the algorithm was promised %u",
               "ABCD"[i], alignment_of(matrices[i]->p), algo.align[i]);
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (c == d && !p.c.same_layout(p.d)) return CUBLAS_STATUS_INVALID_VALUE;
  bool uses_bias = p.epilogue & (E_BIAS | E_BGRAD | E_BGRADA | E_BGRADB);
  if (uses_bias && (!p.bias || alignment_of(p.bias) < size_of(p.bias_type)))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (has(p.epilogue, E_AUX) && (!p.aux || alignment_of(p.aux) < 16))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (p.batch > 1 && has(p.epilogue, E_AUX) && p.aux_stride == 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  p.workspace = static_cast<char *>(workspace);
  p.workspace_size = algo.workspace;
  if (p.device_scalars) {
    p.alpha_p = alpha;
    p.beta_p = beta;
  } else {
    p.alpha = p.wide ? *static_cast<const double *>(alpha) : *static_cast<const float *>(alpha);
    p.beta = p.wide ? *static_cast<const double *>(beta) : *static_cast<const float *>(beta);
  }
  if (!check_memory(p, p.device_scalars || p.beta != 0)) return CUBLAS_STATUS_EXECUTION_FAILED;
  cudaError_t e = sim_push(stream, "cublasLtMatmul", [p] { compute(p); });
  return e == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

} // extern "C"
