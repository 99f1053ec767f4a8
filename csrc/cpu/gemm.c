// SPDX-License-Identifier: MIT
// Matrix products: which way, in which blocks, on which threads. The arithmetic is in
// cpu/gemm_kernel.h.
//
// Small and thin products run on the operands as they lie. For the others, stretches of A and B are
// packed into panels as narrow as a tile, and tiles of C are computed from those: K. Goto and R.
// van de Geijn, Anatomy of high-performance matrix multiplication, ACM TOMS 34 (2008); F. Van Zee
// and R. van de Geijn, BLIS, ACM TOMS 41 (2015).
//
// The order in which an element of C is summed depends on sizes and layouts only: threads share the
// elements out, never the sums.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=fast") // a * b + c fused where there is an instruction for it
#endif
#include "cpu/gemm.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "base/parallel.h"

// C[m,n] = alpha A[m,k] B[k,n] + beta C.
typedef struct product {
  int64_t m, n, k;
  double alpha, beta;
  const void *a;
  int64_t a_rs, a_cs;
  const void *b;
  int64_t b_rs, b_cs;
  void *c;
  int64_t c_rs, c_cs;
  int64_t height; // rows of a packed panel of A, but the last
} product;

// What gemm_kernel.h makes for one type and instruction set.
typedef struct kernels {
  int tall, columns, lanes; // the largest packed tile; elements of a vector
  void (*pack)(void *to, int64_t width, int64_t stride, int64_t depth, const void *from,
               int64_t across, int64_t along);
  void (*block)(const product *g, int64_t i0, int64_t i1, int64_t j0, int64_t j1);
  void (*outer)(const product *g, int64_t j0, int64_t j1);
  void (*inner)(const product *g, int64_t j0, int64_t j1);
  void (*add)(const product *g, const void *parts, int64_t count);
} kernels;

static inline int64_t div_up(int64_t x, int64_t y) {
  return (x + y - 1) / y;
}

// The size of nearly equal parts of x >= 1, as few as there can be with parts of at most `limit`.
static inline int64_t even_part(int64_t x, int64_t limit) {
  return x <= limit ? x : div_up(x, div_up(x, limit));
}

// So few columns leave lanes of a vector empty; so few rows fit on the stack.
#define FEW 16

// ---- The kernels for each instruction set

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define ONCE   static __attribute__((noinline))
#else
#define UNROLL _Pragma("GCC unroll 32")
#define ONCE   static __attribute__((noinline, noclone))
#endif

static const int32_t keep4[32] = {[16] = -1, -1, -1, -1, -1, -1, -1, -1,
                                  -1,        -1, -1, -1, -1, -1, -1, -1};
static const int64_t keep8[16] = {[8] = -1, -1, -1, -1, -1, -1, -1, -1};

// clang-format off
#define EACH_TO_6(X)  X(1) X(2) X(3) X(4) X(5) X(6)
#define EACH_TO_12(X) EACH_TO_6(X) X(7) X(8) X(9) X(10) X(11) X(12)
#define EACH_LOW_16(X)                                                                             \
  X(1, 0) X(2, 0) X(3, 0) X(4, 0) X(5, 0) X(6, 0) X(1, 1) X(2, 1) X(3, 1) X(4, 1) X(5, 1) X(6, 1)  \
  X(1, 2) X(2, 2) X(3, 2) X(1, 3)
// clang-format on

// What the compiler may use everywhere.
#define ISA(x) x##_base
#define TARGET
#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
#define BASE_LEVEL 2
#define BYTES      64
#define REGISTERS  32
#elif defined(__AVX2__) && defined(__FMA__)
#define BASE_LEVEL 1
#define BYTES      32
#define REGISTERS  16
#else
#define BASE_LEVEL 0
#define BYTES      16
#ifdef __aarch64__
#define REGISTERS 32
#else
#define REGISTERS 16
#endif
#endif
#define SIZE 4
#include "cpu/gemm_kernel.h"
#define SIZE 8
#include "cpu/gemm_kernel.h"
#undef ISA
#undef TARGET
#undef BYTES
#undef REGISTERS

#if defined(__x86_64__) && BASE_LEVEL < 1
#define HAVE_AVX2
#define ISA(x)    x##_avx2
#define TARGET    __attribute__((target("avx2,fma,bmi,bmi2")))
#define BYTES     32
#define REGISTERS 16
#define SIZE      4
#include "cpu/gemm_kernel.h"
#define SIZE 8
#include "cpu/gemm_kernel.h"
#undef ISA
#undef TARGET
#undef BYTES
#undef REGISTERS
#endif

#if defined(__x86_64__) && BASE_LEVEL < 2
#define HAVE_AVX512
#define ISA(x)    x##_avx512
#define TARGET    __attribute__((target("avx2,fma,bmi,bmi2,avx512f,avx512vl,avx512bw,avx512dq")))
#define BYTES     64
#define REGISTERS 32
#define SIZE      4
#include "cpu/gemm_kernel.h"
#define SIZE 8
#include "cpu/gemm_kernel.h"
#endif

static atomic_int level_limit = 2;

static int level(void) {
  int limit = atomic_load_explicit(&level_limit, memory_order_relaxed);
#ifdef HAVE_AVX512
  if (limit >= 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
    return 2;
#endif
#ifdef HAVE_AVX2
  if (limit >= 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2"))
    return 1;
#endif
  (void)limit;
  return BASE_LEVEL;
}

int cnn_gemm_limit(int limit) {
  atomic_store_explicit(&level_limit, limit, memory_order_relaxed);
  return level();
}

static const kernels *choose(size_t size) {
  switch (level()) {
#ifdef HAVE_AVX512
  case 2: return size == 4 ? &kernels_f32_avx512 : &kernels_f64_avx512;
#endif
#ifdef HAVE_AVX2
  case 1: return size == 4 ? &kernels_f32_avx2 : &kernels_f64_avx2;
#endif
  default: return size == 4 ? &kernels_f32_base : &kernels_f64_base;
  }
}

// ---- The ways

// Products with so few rows or columns, or multiplications, run as they lie: packing would take
// longer than it saves.
#define THIN  96
#define SMALL (256.0 * 256.0 * 256.0)
// Multiplications, and elements moved, that are worth handing to another thread.
#define WORK (128 * 1024)
#define MOVE (32 * 1024)
// The least columns and rows of a task without packing.
#define COLUMNS 64
#define ROWS    24

static bool is_packed(int64_t m, int64_t n, int64_t k) {
  return m > THIN && n > THIN && (double)m * (double)n * (double)k > SMALL;
}

// Into how many stretches of k a product is cut that has next to no rows and columns to share.
static int64_t stretches(int64_t m, int64_t n, int64_t k) {
  if (k < 2048 || m * n > THIN * THIN) return 1;
  int64_t tasks = div_up(m > n ? m : n, COLUMNS) * div_up(m > n ? n : m, ROWS);
  int64_t parts = k / 1024 < 16 ? k / 1024 : 16, worth = m * n * k / WORK;
  parts = parts < worth ? parts : worth;
  return parts > tasks ? parts : 1;
}

// Blocks: k so that a panel of A stays in the first cache, m and n so that scratch stays small.
static int64_t k_block(size_t size, int64_t k) {
  return even_part(k, size == 4 ? 384 : 256);
}
static int64_t m_block(int64_t m) {
  return even_part(m, 1024);
}
static int64_t n_block(int64_t n) {
  return (even_part(n, 2048) + 31) & ~(int64_t)31;
}

size_t cnn_gemm_scratch(size_t element, int64_t m, int64_t n, int64_t k) {
  if (m <= 0 || n <= 0 || k <= 0) return 0;
  if (is_packed(m, n, k)) {
    // Either way round.
    int64_t one = m_block(m) + n_block(n), other = m_block(n) + n_block(m);
    return (size_t)(one > other ? one : other) * (size_t)k_block(element, k) * element + 128;
  }
  int64_t parts = stretches(m, n, k);
  return parts > 1 ? (size_t)(parts * m * n) * element : 0;
}

static void *at(const void *base, int64_t elements, size_t size) {
  return (char *)base + elements * (int64_t)size;
}

// The same product as C^T = B^T A^T.
static void turn_round(product *g) {
  product t = *g;
  g->m = t.n, g->n = t.m;
  g->a = t.b, g->a_rs = t.b_cs, g->a_cs = t.b_rs;
  g->b = t.a, g->b_rs = t.a_cs, g->b_cs = t.a_rs;
  g->c_rs = t.c_cs, g->c_cs = t.c_rs;
}

// ---- Without packing

typedef struct plain {
  const product *g;
  size_t size;
  int64_t i_step, j_step; // rows and columns of a task
  int64_t i_tasks;
  void (*run)(const product *g, int64_t j0, int64_t j1);
  void *parts; // of C, for each stretch of k
  int64_t k_step;
} plain;

static void run_plain_tasks(void *arg, int64_t begin, int64_t end) {
  const plain *t = arg;
  for (int64_t u = begin; u < end; u++) {
    product q = *t->g;
    int64_t i = u % t->i_tasks * t->i_step, j = u / t->i_tasks * t->j_step;
    q.m = q.m - i < t->i_step ? q.m - i : t->i_step;
    q.a = at(q.a, i * q.a_rs, t->size), q.c = at(q.c, i * q.c_rs, t->size);
    t->run(&q, j, j + t->j_step < q.n ? j + t->j_step : q.n);
  }
}

static void run_stretches(void *arg, int64_t begin, int64_t end) {
  const plain *t = arg;
  for (int64_t u = begin; u < end; u++) {
    product q = *t->g;
    int64_t p = u * t->k_step;
    q.k = q.k - p < t->k_step ? q.k - p : t->k_step;
    q.a = at(q.a, p * q.a_cs, t->size), q.b = at(q.b, p * q.b_rs, t->size);
    q.alpha = 1, q.beta = 0;
    q.c = at(t->parts, u * q.m * q.n, t->size), q.c_rs = q.n, q.c_cs = 1;
    t->run(&q, 0, q.n);
  }
}

// With few rows or columns, they shall be rows: columns fill vectors. Otherwise the rows of B
// should be contiguous, and those of C.
static bool should_turn(const product *g) {
  if (g->m <= FEW || g->n <= FEW) return g->m > g->n;
  int as_is = 2 * (g->b_cs == 1) + (g->c_cs == 1), turned = 2 * (g->a_rs == 1) + (g->c_rs == 1);
  return turned > as_is;
}

static void run_plain(product *g, const kernels *kernel, size_t size, void *scratch) {
  if (should_turn(g)) turn_round(g);
  // Dot products need no order in B, but each ends with a sum over lanes. That takes as long as
  // bringing 7 elements of B in order, which serves m rows.
  const bool inner =
      g->b_rs == 1 && g->k >= kernel->lanes && g->k >= 7 * g->m && (g->a_cs == 1 || g->m <= FEW);
  plain t = {.g = g, .size = size, .run = inner ? kernel->inner : kernel->outer};
  const double work = (double)g->m * (double)g->n * (double)g->k;
  if (work < 2 * WORK) {
    t.run(g, 0, g->n);
    return;
  }
  const int64_t parts = stretches(g->m, g->n, g->k);
  if (parts > 1) {
    t.parts = scratch;
    t.k_step = div_up(g->k, parts);
    int64_t count = div_up(g->k, t.k_step);
    cnn_parallel_for(count, 1, run_stretches, &t);
    kernel->add(g, scratch, count);
    return;
  }
  const double column = (double)g->m * (double)g->k;
  t.i_step = g->m;
  t.j_step = (int64_t)(WORK / column / COLUMNS + 1) * COLUMNS;
  while (t.i_step >= 2 * ROWS && div_up(g->m, t.i_step) * div_up(g->n, t.j_step) < 16)
    t.i_step = div_up(t.i_step, 2);
  t.i_tasks = div_up(g->m, t.i_step);
  cnn_parallel_for(t.i_tasks * div_up(g->n, t.j_step), 1, run_plain_tasks, &t);
}

// ---- With packing

typedef struct packing {
  const product *g; // the whole
  const product *q; // the block: its a and b are scratch
  const kernels *kernel;
  size_t size;
  int64_t i, j, p; // where the block begins in g
  int64_t a_panels, b_panels;
  int64_t i_step, j_step; // panels of A and of B that a task multiplies
  int64_t i_tasks;
} packing;

static void pack_a(const packing *t, int64_t panel) {
  const product *g = t->g, *q = t->q;
  int64_t row = panel * q->height, rows = q->m - row < q->height ? q->m - row : q->height;
  t->kernel->pack(at(q->a, row * q->k, t->size), rows, rows, q->k,
                  at(g->a, (t->i + row) * g->a_rs + t->p * g->a_cs, t->size), g->a_rs, g->a_cs);
}

static void pack_b(const packing *t, int64_t panel) {
  const product *g = t->g, *q = t->q;
  const int64_t wide = t->kernel->columns, lanes = t->kernel->lanes;
  int64_t col = panel * wide, cols = q->n - col < wide ? q->n - col : wide;
  t->kernel->pack(at(q->b, col * q->k, t->size), cols, cols > lanes ? wide : lanes, q->k,
                  at(g->b, t->p * g->b_rs + (t->j + col) * g->b_cs, t->size), g->b_cs, g->b_rs);
}

// Panels [begin, end) of A and, numbered after those, of B.
static void run_packing(void *arg, int64_t begin, int64_t end) {
  const packing *t = arg;
  for (int64_t u = begin; u < end; u++) {
    if (u < t->a_panels)
      pack_a(t, u);
    else
      pack_b(t, u - t->a_panels);
  }
}

// Tasks run down the columns of C: a thread's share of them is a share of B.
static void run_tiles(void *arg, int64_t begin, int64_t end) {
  const packing *t = arg;
  for (int64_t u = begin; u < end; u++) {
    int64_t i0 = u % t->i_tasks * t->i_step, j0 = u / t->i_tasks * t->j_step;
    int64_t i1 = i0 + t->i_step < t->a_panels ? i0 + t->i_step : t->a_panels;
    int64_t j1 = j0 + t->j_step < t->b_panels ? j0 + t->j_step : t->b_panels;
    t->kernel->block(t->q, i0, i1, j0, j1);
  }
}

static void run_block(packing *t) {
  const int64_t wide = t->kernel->columns, height = t->q->height, k = t->q->k;
  t->a_panels = div_up(t->q->m, height), t->b_panels = div_up(t->q->n, wide);
  cnn_parallel_for(t->a_panels + t->b_panels, div_up(MOVE, wide * k), run_packing, t);
  // A task keeps up to 8 panels of B in the second cache. Smaller tasks where there are few.
  t->i_step = t->j_step = 8;
  while (div_up(t->a_panels, t->i_step) * div_up(t->b_panels, t->j_step) < 32 &&
         t->i_step * height * t->j_step * wide * k >= 2 * WORK) {
    if (t->j_step > 1 && (t->i_step == 1 || t->j_step * wide >= t->i_step * height))
      t->j_step /= 2;
    else if (t->i_step > 1)
      t->i_step /= 2;
    else
      break;
  }
  t->i_tasks = div_up(t->a_panels, t->i_step);
  cnn_parallel_for(t->i_tasks * div_up(t->b_panels, t->j_step),
                   div_up(WORK, t->i_step * height * t->j_step * wide * k), run_tiles, t);
}

static void run_packed(product *g, const kernels *kernel, size_t size, void *scratch) {
  if (g->c_cs != 1 && g->c_rs == 1) turn_round(g);
  const int64_t mb = m_block(g->m), nb = n_block(g->n), kb = k_block(size, g->k);
  char *base = (char *)(((uintptr_t)scratch + 63) & ~(uintptr_t)63);
  for (int64_t j = 0; j < g->n; j += nb) {
    for (int64_t p = 0; p < g->k; p += kb) {
      for (int64_t i = 0; i < g->m; i += mb) {
        product q = *g;
        q.m = g->m - i < mb ? g->m - i : mb;
        q.n = g->n - j < nb ? g->n - j : nb;
        q.k = g->k - p < kb ? g->k - p : kb;
        q.height = even_part(q.m, kernel->tall);
        q.a = base;
        q.b = base + (((size_t)(mb * kb) * size + 63) & ~(size_t)63);
        q.c = at(g->c, i * g->c_rs + j * g->c_cs, size);
        if (p > 0) q.beta = 1;
        packing t = {.g = g, .q = &q, .kernel = kernel, .size = size, .i = i, .j = j, .p = p};
        run_block(&t);
      }
    }
  }
}

// ---- Both

static void run(product *g, size_t size, void *scratch) {
  if (g->m <= 0 || g->n <= 0) return;
  const kernels *kernel = choose(size);
  if (is_packed(g->m, g->n, g->k))
    run_packed(g, kernel, size, scratch);
  else
    run_plain(g, kernel, size, scratch);
}

void cnn_gemm_f32(int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t a_rs,
                  int64_t a_cs, const float *b, int64_t b_rs, int64_t b_cs, float beta, float *c,
                  int64_t c_rs, int64_t c_cs, void *scratch) {
  product g = {m,    n,    k, (double)alpha, (double)beta, a, a_rs, a_cs, b,
               b_rs, b_cs, c, c_rs,          c_cs,         0};
  run(&g, sizeof *a, scratch);
}

void cnn_gemm_f64(int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t a_rs,
                  int64_t a_cs, const double *b, int64_t b_rs, int64_t b_cs, double beta, double *c,
                  int64_t c_rs, int64_t c_cs, void *scratch) {
  product g = {m, n, k, alpha, beta, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, c_cs, 0};
  run(&g, sizeof *a, scratch);
}
