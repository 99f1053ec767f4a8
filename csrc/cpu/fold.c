// SPDX-License-Identifier: MIT
// The folds of fold.h, from one text (fold_body.h) for each type of element.
//
// The moments of two sets are joined as in Chan, Golub, LeVeque, Algorithms for Computing the
// Sample Variance (1983); within a block they are computed in two passes with the correction given
// there. NaN wins every comparison.
#include "cpu/fold.h"

#include <math.h>

#include "base/half.h"
#include "cpu/clones.h"
#include "cpu/scalar.h"

#define PASTE_(a, b) a##_##b
#define PASTE(a, b)  PASTE_(a, b)
#define N(name)      PASTE(name, SUFFIX)
#define SIMD         _Pragma("omp simd")

#define PLUS(a, b)    ((a) + (b))
#define TIMES(a, b)   ((a) * (b))
#define LARGER(a, v)  ((((v) > (a)) | IS_NAN(v)) ? (v) : (a))
#define SMALLER(a, v) ((((v) < (a)) | IS_NAN(v)) ? (v) : (a))
#define MAGNITUDE(v)  ((v) < 0 ? -(v) : (v))

// The body's parameters, which it forgets at its end. T is the type of the elements, VALUE what
// LOAD makes of one, WORD the word that holds it (a STATE), LANES how many are folded side by side;
// SUM is what is summed in, WIDE what is multiplied in, COUNT and INDEX what counts and tells rows.
// SUMS_ONLY leaves all other folds out, FLOATS adds those of floats.
#define SUFFIX    f32
#define T         float
#define VALUE     float
#define LOAD(x)   (x)
#define WORD      f
#define STATE     double
#define SUM       float
#define WIDE      double
#define COUNT     int32_t
#define INDEX     int32_t
#define LANES     64
#define LOWEST    (-HUGE_VALF)
#define TOP       HUGE_VALF
#define IS_NAN(v) ((v) != (v))
#define EXP(x)    v_exp(x)
#define POWER     r_pow_f32
#define CLONES    CNN_CLONES
#define FLOATS    1
#define SUMS_ONLY 0
#include "cpu/fold_body.h"

#define SUFFIX    f64
#define T         double
#define VALUE     double
#define LOAD(x)   (x)
#define WORD      f
#define STATE     double
#define SUM       double
#define WIDE      double
#define COUNT     int64_t
#define INDEX     int64_t
#define LANES     16
#define LOWEST    (-HUGE_VAL)
#define TOP       HUGE_VAL
#define IS_NAN(v) ((v) != (v))
#define EXP(x)    v_exp_f64(x)
#define POWER     r_pow_f64
#define CLONES
#define FLOATS    1
#define SUMS_ONLY 0
#include "cpu/fold_body.h"

// Integers wrap around: sums and products are computed without sign.
#define SUFFIX    i64
#define T         int64_t
#define VALUE     int64_t
#define LOAD(x)   (x)
#define WORD      i
#define STATE     int64_t
#define SUM       uint64_t
#define WIDE      uint64_t
#define COUNT     int64_t
#define INDEX     int64_t
#define LANES     16
#define LOWEST    INT64_MIN
#define TOP       INT64_MAX
#define IS_NAN(v) 0
#define CLONES
#define FLOATS    0
#define SUMS_ONLY 0
#include "cpu/fold_body.h"

#define SUFFIX    f16
#define T         cnn_f16
#define VALUE     float
#define LOAD(x)   cnn_f16_to_float(x)
#define WORD      f
#define STATE     double
#define SUM       float
#define WIDE      double
#define LANES     64
#define CLONES    CNN_CLONES
#define SUMS_ONLY 1
#include "cpu/fold_body.h"

#define SUFFIX    bf16
#define T         cnn_bf16
#define VALUE     float
#define LOAD(x)   cnn_bf16_to_float(x)
#define WORD      f
#define STATE     double
#define SUM       float
#define WIDE      double
#define LANES     64
#define CLONES    CNN_CLONES
#define SUMS_ONLY 1
#include "cpu/fold_body.h"

#define FOLD(words, deep, title, type)                                                             \
  {                                                                                                \
    words, deep, title##_init_##type, title##_rows_##type, title##_columns_##type,                 \
        title##_merge_##type                                                                       \
  }
#define FOLDS(words, deep, title)                                                                  \
  const cnn_fold cnn_fold_##title[CNN_FOLD_TYPES] = {FOLD(words, deep, title, f32),                \
                                                     FOLD(words, deep, title, f64),                \
                                                     FOLD(words, deep, title, i64)};
#define FLOAT_FOLDS(words, deep, title)                                                            \
  const cnn_fold cnn_fold_##title[CNN_FOLD_TYPES] = {FOLD(words, deep, title, f32),                \
                                                     FOLD(words, deep, title, f64)};

const cnn_fold cnn_fold_sum[CNN_FOLD_TYPES] = {FOLD(1, true, sum, f32), FOLD(1, true, sum, f64),
                                               FOLD(1, true, sum, i64), FOLD(1, true, sum, f16),
                                               FOLD(1, true, sum, bf16)};
FOLDS(1, true, product)
FOLDS(1, true, count)
FOLDS(1, true, max)
FOLDS(1, true, min)
FOLDS(2, false, argmax)
FOLDS(2, false, argmin)
FLOAT_FOLDS(3, false, moments)
FLOAT_FOLDS(2, false, exps)
FLOAT_FOLDS(1, true, abs)
FLOAT_FOLDS(1, true, squares)
FLOAT_FOLDS(1, true, powers)
FLOAT_FOLDS(1, true, max_abs)
FLOAT_FOLDS(1, true, min_abs)
