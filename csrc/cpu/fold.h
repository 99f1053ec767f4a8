// SPDX-License-Identifier: MIT
// Folds: what a reduction does with the elements that become one result. cpu/reduce.c brings them
// the elements, in blocks of contiguous runs of the type that the fold computes in.
//
// A fold keeps a few words per result, one array for each word, so that many results are folded at
// once in vector code: word k of result j is s[k * stride + j]. Floating sums are kept in double
// between blocks, and a block is summed in many lanes: the error does not grow with the number of
// elements as that of one long sum would.
#ifndef CNN_CPU_FOLD_H
#define CNN_CPU_FOLD_H

#include <stdbool.h>
#include <stdint.h>

// The most results that are folded at once, and the most words of one.
#define CNN_FOLD_TILE  512
#define CNN_FOLD_WORDS 3
// The largest block: elements of a row (a multiple of every number of lanes), rows of columns.
#define CNN_FOLD_RUN  8192
#define CNN_FOLD_ROWS 128

typedef union cnn_word {
  double f;
  int64_t i;
} cnn_word;

// Rows of `width` contiguous elements, `stride` elements apart; for rows(), `depth` such matrices,
// `apart` elements from each other.
typedef struct cnn_fold_block {
  const void *x;
  int64_t rows, width, stride, depth, apart;
  // Position i along the reduced dim has the index first + i * step (from 1), for folds that tell
  // positions.
  int64_t first, step;
  double p; // the op's number argument
} cnn_fold_block;

typedef struct cnn_fold {
  int words;
  bool deep; // rows() takes a depth other than 1
  void (*init)(int64_t n, cnn_word *s, int64_t stride);
  // Result j takes in row j (of every matrix).
  void (*rows)(const cnn_fold_block *b, cnn_word *s, int64_t stride);
  // Result j takes in column j (at most CNN_FOLD_TILE of them).
  void (*columns)(const cnn_fold_block *b, cnn_word *s, int64_t stride);
  // n results take in what others have come to. Associative up to rounding, and in order.
  void (*merge)(int64_t n, cnn_word *s, int64_t stride, const cnn_word *from, int64_t from_stride);
} cnn_fold;

// By the type of the elements. Word 0 is .f of floats, .i of int64, but for counts: always .i. Half
// types are computed in float; where they have no fold (rows is NULL), convert them first.
enum { CNN_FOLD_F32, CNN_FOLD_F64, CNN_FOLD_I64, CNN_FOLD_F16, CNN_FOLD_BF16, CNN_FOLD_TYPES };

extern const cnn_fold cnn_fold_sum[CNN_FOLD_TYPES];
extern const cnn_fold cnn_fold_product[CNN_FOLD_TYPES];
extern const cnn_fold cnn_fold_count[CNN_FOLD_TYPES];   // of elements that are not 0
extern const cnn_fold cnn_fold_max[CNN_FOLD_TYPES];     // NaN if any is
extern const cnn_fold cnn_fold_min[CNN_FOLD_TYPES];     // NaN if any is
extern const cnn_fold cnn_fold_argmax[CNN_FOLD_TYPES];  // words: value, index (0: none yet)
extern const cnn_fold cnn_fold_argmin[CNN_FOLD_TYPES];  // the first of equal ones; NaN wins
extern const cnn_fold cnn_fold_moments[CNN_FOLD_TYPES]; // count, mean, sum of squared deviations
extern const cnn_fold cnn_fold_exps[CNN_FOLD_TYPES];    // largest m, sum of e^(x - m)
// Sums over |x|: |x|, x^2, |x|^p; the largest and smallest |x|.
extern const cnn_fold cnn_fold_abs[CNN_FOLD_TYPES];
extern const cnn_fold cnn_fold_squares[CNN_FOLD_TYPES];
extern const cnn_fold cnn_fold_powers[CNN_FOLD_TYPES];
extern const cnn_fold cnn_fold_max_abs[CNN_FOLD_TYPES];
extern const cnn_fold cnn_fold_min_abs[CNN_FOLD_TYPES];

#endif
