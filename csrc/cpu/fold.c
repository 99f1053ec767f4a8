// SPDX-License-Identifier: MIT
// The folds of fold.h, from one text (fold_body.h) for each type computed in.
//
// The moments of two sets are joined as in Chan, Golub, LeVeque, Algorithms for Computing the
// Sample Variance (1983); within a block they are computed in two passes with the correction given
// there. NaN wins every comparison: `(a > v) | (v != v)`, without branches, so that loops
// vectorise.
#include "cpu/fold.h"

#include <math.h>
#include <string.h>

#include "cpu/clones.h"
#include "cpu/scalar.h"

#define PASTE_(a, b) a##_##b
#define PASTE(a, b)  PASTE_(a, b)
#define N(name)      PASTE(name, SUFFIX)
#define SIMD         _Pragma("omp simd")

#define PLUS(a, b)    ((a) + (b))
#define TIMES(a, b)   ((a) * (b))
#define LARGER(a, v)  (((a) < (v)) | IS_NAN(v) ? (v) : (a))
#define SMALLER(a, v) (((a) > (v)) | IS_NAN(v) ? (v) : (a))
#define MAGNITUDE(v)  ((v) < 0 ? -(v) : (v))

V_FN float fold_exp_f32(float x) {
  return v_exp(x);
}
V_FN double fold_exp_f64(double x) {
  return v_exp_f64(x);
}

// T the elements, WORD the word that holds one, LANES of one block, INDEX an integer as wide as T,
// WIDE what products and squares are computed in, COUNT what counts.
#define SUFFIX    f32
#define T         float
#define WORD      f
#define STATE     double
#define WIDE      double
#define COUNT     int32_t
#define SUM       float
#define INDEX     int32_t
#define LANES     64
#define LOWEST    (-HUGE_VALF)
#define TOP       HUGE_VALF
#define FLOATS    1
#define IS_NAN(v) ((v) != (v))
#define CLONES    CNN_CLONES
#include "cpu/fold_body.h"
#undef SUFFIX
#undef T
#undef COUNT
#undef SUM
#undef INDEX
#undef LANES
#undef LOWEST
#undef TOP
#undef CLONES

#define SUFFIX f64
#define CLONES
#define T      double
#define COUNT  int64_t
#define SUM    double
#define INDEX  int64_t
#define LANES  32
#define LOWEST (-HUGE_VAL)
#define TOP    HUGE_VAL
#include "cpu/fold_body.h"
#undef SUFFIX
#undef T
#undef WORD
#undef STATE
#undef WIDE
#undef SUM
#undef LOWEST
#undef TOP
#undef FLOATS
#undef IS_NAN

// Integers wrap around: sums and products are computed without sign.
#define SUFFIX    i64
#define T         int64_t
#define WORD      i
#define STATE     int64_t
#define WIDE      uint64_t
#define SUM       uint64_t
#define LOWEST    INT64_MIN
#define TOP       INT64_MAX
#define FLOATS    0
#define IS_NAN(v) 0
#include "cpu/fold_body.h"

#define FOLD(words, title, type)                                                                   \
  { words, title##_init_##type, title##_rows_##type, title##_columns_##type, title##_merge_##type }
#define FOLDS(words, title)                                                                        \
  const cnn_fold cnn_fold_##title[CNN_FOLD_TYPES] = {FOLD(words, title, f32),                      \
                                                     FOLD(words, title, f64),                      \
                                                     FOLD(words, title, i64)};
#define FLOAT_FOLDS(words, title)                                                                  \
  const cnn_fold cnn_fold_##title[CNN_FOLD_TYPES] = {FOLD(words, title, f32),                      \
                                                     FOLD(words, title, f64)};

FOLDS(1, sum)
FOLDS(1, product)
FOLDS(1, count)
FOLDS(1, max)
FOLDS(1, min)
FOLDS(2, argmax)
FOLDS(2, argmin)
FLOAT_FOLDS(3, moments)
FLOAT_FOLDS(2, exps)
FLOAT_FOLDS(1, abs)
FLOAT_FOLDS(1, squares)
FLOAT_FOLDS(1, powers)
FLOAT_FOLDS(1, max_abs)
FLOAT_FOLDS(1, min_abs)
