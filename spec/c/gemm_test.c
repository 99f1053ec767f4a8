// SPDX-License-Identifier: MIT
// cpu/gemm.c against a plain loop in double, for every instruction set that the machine has.
//
// Operands end where their memory ends, so that a sanitizer sees a read past them. Scratch and,
// with beta = 0, C start as NaN; what lies between C's elements must not change. Errors are
// measured against the sum of the absolute products. Each product is computed with 1, 2 and 3
// threads, and must come out the same to the bit.
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "cpu/gemm.h"

static int passed, failed;
static int level;

static uint64_t state = 88172645463325252u;
static uint64_t next(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}
static int64_t below(int64_t n) {
  return (int64_t)(next() % (uint64_t)n);
}
static double value(void) {
  return (double)(next() >> 40) * 0x1p-24 - 0.5;
}

// ---- Matrices with any strides: element (0, 0) lies at `origin`

typedef struct matrix {
  int64_t rows, cols, rs, cs, origin, count;
  void *data;
} matrix;

enum {
  ROWS_DENSE,
  COLS_DENSE,
  ROWS_PADDED,
  COLS_PADDED,
  SPREAD,
  NEGATIVE,
  NEGATIVE_COLS,
  ONE_ROW,
  ONE_COL,
  ONE_ELEMENT,
  LAYOUTS,
  LAYOUTS_OF_C = ONE_ROW
};

static void lay_out(matrix *x, int64_t rows, int64_t cols, int layout) {
  int64_t w = cols ? cols : 1, h = rows ? rows : 1;
  *x = (matrix){.rows = rows, .cols = cols};
  switch (layout) {
  case ROWS_DENSE: x->rs = w, x->cs = 1; break;
  case COLS_DENSE: x->rs = 1, x->cs = h; break;
  case ROWS_PADDED: x->rs = w + 3, x->cs = 1; break;
  case COLS_PADDED: x->rs = 1, x->cs = h + 5; break;
  case SPREAD: x->rs = 2 * w + 1, x->cs = 2; break;
  case NEGATIVE: x->rs = -w, x->cs = 1; break;
  case NEGATIVE_COLS: x->rs = w, x->cs = -1; break;
  case ONE_ROW: x->rs = 0, x->cs = 1; break;
  case ONE_COL: x->rs = 1, x->cs = 0; break;
  default: x->rs = 0, x->cs = 0;
  }
  int64_t low = 0, high = 0;
  if (rows > 0 && cols > 0) {
    int64_t r = (rows - 1) * x->rs, c = (cols - 1) * x->cs;
    low = (r < 0 ? r : 0) + (c < 0 ? c : 0), high = (r > 0 ? r : 0) + (c > 0 ? c : 0);
  }
  x->origin = -low, x->count = high - low + 1;
}

static double get(const matrix *x, size_t size, int64_t i) {
  return size == 4 ? (double)((float *)x->data)[i] : ((double *)x->data)[i];
}

static void set(const matrix *x, size_t size, int64_t i, double v) {
  if (size == 4)
    ((float *)x->data)[i] = (float)v;
  else
    ((double *)x->data)[i] = v;
}

static void allocate(matrix *x, size_t size) {
  x->data = malloc((size_t)x->count * size);
  if (!x->data) exit(1);
}

static int64_t place(const matrix *x, int64_t i, int64_t j) {
  return x->origin + i * x->rs + j * x->cs;
}

// ---- A product

typedef struct params {
  size_t size;
  int64_t m, n, k;
  int layout[3];
  double alpha, beta;
} params;

static void *copy_of(const matrix *x, size_t size) {
  void *p = malloc((size_t)x->count * size);
  if (!p) exit(1);
  memcpy(p, x->data, (size_t)x->count * size);
  return p;
}

static void multiply(const params *t, const matrix *a, const matrix *b, const matrix *c,
                     void *scratch) {
  if (t->size == 4)
    cnn_gemm_f32(t->m, t->n, t->k, (float)t->alpha, (float *)a->data + a->origin, a->rs, a->cs,
                 (float *)b->data + b->origin, b->rs, b->cs, (float)t->beta,
                 (float *)c->data + c->origin, c->rs, c->cs, scratch);
  else
    cnn_gemm_f64(t->m, t->n, t->k, t->alpha, (double *)a->data + a->origin, a->rs, a->cs,
                 (double *)b->data + b->origin, b->rs, b->cs, t->beta,
                 (double *)c->data + c->origin, c->rs, c->cs, scratch);
}

static const char *trial(const params *t) {
  const char *wrong = NULL;
  matrix a, b, c;
  lay_out(&a, t->m, t->k, t->layout[0]), allocate(&a, t->size);
  lay_out(&b, t->k, t->n, t->layout[1]), allocate(&b, t->size);
  lay_out(&c, t->m, t->n, t->layout[2]), allocate(&c, t->size);
  for (int64_t i = 0; i < a.count; i++) set(&a, t->size, i, value());
  for (int64_t i = 0; i < b.count; i++) set(&b, t->size, i, value());
  for (int64_t i = 0; i < c.count; i++) set(&c, t->size, i, 7);
  double *before = malloc((size_t)(t->m * t->n + 1) * sizeof *before);
  if (!before) exit(1);
  for (int64_t i = 0; i < t->m; i++)
    for (int64_t j = 0; j < t->n; j++) {
      set(&c, t->size, place(&c, i, j), t->beta == 0 ? (double)NAN : value());
      before[i * t->n + j] = get(&c, t->size, place(&c, i, j));
    }
  void *start = copy_of(&c, t->size), *first = NULL;
  size_t bytes = cnn_gemm_scratch(t->size, t->m, t->n, t->k);
  void *scratch = bytes ? malloc(bytes) : NULL;
  for (int threads = 1; threads <= 3; threads++) {
    cnn_set_num_threads(threads);
    memcpy(c.data, start, (size_t)c.count * t->size);
    if (scratch) memset(scratch, 0xFF, bytes);
    multiply(t, &a, &b, &c, scratch);
    if (!first)
      first = copy_of(&c, t->size);
    else if (memcmp(first, c.data, (size_t)c.count * t->size) != 0)
      wrong = "another result with more threads";
  }
  double epsilon = t->size == 4 ? FLT_EPSILON : DBL_EPSILON, k = (double)t->k;
  // Rounding errors are independent, unless the same product is added over and over.
  double errors = t->layout[0] >= ONE_ROW || t->layout[1] >= ONE_ROW ? k : sqrt(k);
  for (int64_t i = 0; i < t->m && !wrong; i++) {
    for (int64_t j = 0; j < t->n && !wrong; j++) {
      double sum = 0, absolute = 0;
      for (int64_t p = 0; p < t->k; p++) {
        double x = get(&a, t->size, place(&a, i, p)) * get(&b, t->size, place(&b, p, j));
        sum += x, absolute += fabs(x);
      }
      double old = t->beta == 0 ? 0 : t->beta * before[i * t->n + j];
      double exact = t->alpha * sum + old;
      double bound = epsilon * (errors + 4) * 2 * (fabs(t->alpha) * absolute + fabs(old));
      double got = get(&c, t->size, place(&c, i, j));
      if (!(fabs(got - exact) <= bound)) wrong = "wrong value";
      set(&c, t->size, place(&c, i, j), 7);
    }
  }
  for (int64_t i = 0; i < c.count && !wrong; i++)
    if (get(&c, t->size, i) != 7) wrong = "wrote beside C";
  free(a.data), free(b.data), free(c.data), free(before), free(start), free(first), free(scratch);
  return wrong;
}

static void test(const params *t) {
  const char *wrong = trial(t);
  if (!wrong) {
    passed++;
    return;
  }
  failed++;
  printf("FAIL level %d, float%d, %d x %d x %d, layouts %d %d %d, alpha %g, beta %g: %s\n", level,
         (int)t->size * 8, (int)t->m, (int)t->n, (int)t->k, t->layout[0], t->layout[1],
         t->layout[2], t->alpha, t->beta, wrong);
}

static void test_random(int count, int64_t limit_m, int64_t limit_n, int64_t limit_k) {
  static const double scales[] = {1, 1, 0, -1, 0.5};
  for (int i = 0; i < count; i++) {
    params t = {.size = below(2) ? 4 : 8,
                .m = below(limit_m),
                .n = below(limit_n),
                .k = below(limit_k),
                .layout = {(int)below(LAYOUTS), (int)below(LAYOUTS), (int)below(LAYOUTS_OF_C)},
                .alpha = scales[below(5)],
                .beta = below(2) ? 0 : scales[below(5)]};
    if (below(2)) t.layout[0] = (int)below(4), t.layout[1] = (int)below(4), t.layout[2] = 0;
    test(&t);
  }
}

// Each (or every 17th) pair of layouts at sizes that take each of the ways.
static void test_layouts(int64_t m, int64_t n, int64_t k, int every) {
  for (int size = 4; size <= 8; size += 4)
    for (int x = 0; x < LAYOUTS * LAYOUTS; x += every) {
      params t = {(size_t)size,    m, n, k, {x / LAYOUTS, x % LAYOUTS, (int)below(LAYOUTS_OF_C)}, 1,
                  below(2) ? 0 : 1};
      test(&t);
    }
}

// Sums that are known without adding up. A NaN in a row of A and an infinity in a column of B reach
// that row and column of C only.
static void test_known(int64_t m, int64_t n, int64_t k, int layouts) {
  matrix a, b, c;
  lay_out(&a, m, k, layouts & 3), allocate(&a, 4);
  lay_out(&b, k, n, layouts >> 2), allocate(&b, 4);
  lay_out(&c, m, n, ROWS_PADDED), allocate(&c, 4);
  for (int64_t i = 0; i < m; i++)
    for (int64_t p = 0; p < k; p++) set(&a, 4, place(&a, i, p), (double)(i % 7 + 1));
  for (int64_t p = 0; p < k; p++)
    for (int64_t j = 0; j < n; j++) set(&b, 4, place(&b, p, j), (double)(j % 5 + 1));
  int64_t row = below(m), col = below(n);
  set(&a, 4, place(&a, row, below(k)), (double)NAN);
  set(&b, 4, place(&b, below(k), col), (double)INFINITY);
  void *scratch = malloc(cnn_gemm_scratch(4, m, n, k) + 1);
  if (!scratch) exit(1);
  multiply(&(params){.size = 4, .m = m, .n = n, .k = k, .alpha = 1}, &a, &b, &c, scratch);
  bool right = true;
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      double got = get(&c, 4, place(&c, i, j));
      right &= i == row   ? isnan(got)
               : j == col ? isinf(got)
                          : got == (double)(k * (i % 7 + 1) * (j % 5 + 1));
    }
  right ? passed++ : failed++;
  if (!right)
    printf("FAIL level %d, known %d x %d x %d, %d\n", level, (int)m, (int)n, (int)k, layouts);
  free(a.data), free(b.data), free(c.data), free(scratch);
}

// TSan looks for races, which do not depend on the instruction set or on how many cases there are.
#ifdef __SANITIZE_THREAD__
#define LEVELS 0
#define SHARE  10
#elif defined(__SANITIZE_ADDRESS__)
#define LEVELS 2
#define SHARE  4
#else
#define LEVELS 2
#define SHARE  1
#endif

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 1;
  for (int limit = 0; limit <= LEVELS; limit++) {
    level = cnn_gemm_limit(limit);
    if (level < limit) break; // the machine has no more
    test_random(1000 * rounds / SHARE, 68, 68, 68);
    test_random(200 * rounds / SHARE, 6, 200, 200);
    test_random(200 * rounds / SHARE, 200, 6, 200);
    test_random(60 * rounds / SHARE, 20, 20, 5000);
    test_random(60 * rounds / SHARE, 300, 300, 300);
    test_random(20 * rounds / SHARE, 20, 3000, 100);
    test_layouts(3, 40, 33, SHARE);
    test_layouts(30, 50, 40, SHARE);
    test_layouts(70, 66, 90, SHARE);
    for (int x = 0; x < 16; x++) {
      test_known(5, 7, 37, x);
      test_known(21, 35, 19, x);
      test_known(2, 75, 200, x);
      test_known(9, 8, 3001, x);
    }
    // Packed panels of all heights and widths.
    for (int64_t m = 120; m < 160; m += SHARE) test_known(m, 290 + below(64), 500, (int)below(16));
    test_layouts(99, 101, 2100, 17);
    test_layouts(257, 258, 259, 17);
    // More than one block in each direction.
    test(&(params){4, 1030, 110, 400, {0, 1, 0}, 1, 0});
    test(&(params){4, 110, 2100, 120, {0, 1, 0}, 1, 0.5});
    test(&(params){8, 130, 140, 1030, {1, 0, 1}, 1, 1});
    test(&(params){4, 3000, 50, 60, {1, 1, 1}, 1, 1});
    test(&(params){4, 16, 27, 20000, {0, 1, 0}, 2, 0.5});
    test(&(params){8, 1, 1, 100000, {0, 1, 0}, 1, 0});
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
