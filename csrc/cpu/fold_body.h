// SPDX-License-Identifier: MIT
// The folds for one type: included by fold.c, which says what the capital names stand for.

// Folds a row (of every matrix) in L lanes, the last ones filled up with `none`, which changes
// nothing. The lanes are joined by halves.
#define HALVE(L, h, JOIN)                                                                          \
  if (L > h) {                                                                                     \
    SIMD for (int l = 0; l < h; l++) lane[l] = JOIN(lane[l], lane[l + h]);                         \
  }
#define IN_LANES(L, A, start, none, step, JOIN)                                                    \
  for (int l = 0; l < L; l++) lane[l] = start;                                                     \
  for (int64_t k = 0; k < b->depth; k++, x += b->apart) {                                          \
    int64_t i = 0;                                                                                 \
    for (; i + L <= n; i += L) {                                                                   \
      SIMD for (int l = 0; l < L; l++) {                                                           \
        const VALUE v = LOAD(x[i + l]);                                                            \
        const A a = lane[l];                                                                       \
        lane[l] = step;                                                                            \
      }                                                                                            \
    }                                                                                              \
    if (i == n) continue;                                                                          \
    const int rest = (int)(n - i);                                                                 \
    SIMD for (int l = 0; l < L; l++) {                                                             \
      const VALUE v = l < rest ? LOAD(x[i + l]) : (VALUE)none;                                     \
      const A a = lane[l];                                                                         \
      lane[l] = step;                                                                              \
    }                                                                                              \
  }                                                                                                \
  HALVE(L, 32, JOIN)                                                                               \
  HALVE(L, 16, JOIN)                                                                               \
  HALVE(L, 8, JOIN)                                                                                \
  HALVE(L, 4, JOIN)                                                                                \
  HALVE(L, 2, JOIN)                                                                                \
  HALVE(L, 1, JOIN)

// A fold whose state is one word. `step` takes v into a, JOIN two states of type W (or A) into one.
// Rows are folded in lanes, columns four rows at a time.
#define SIMPLE_FOLD(CLONES, name, A, W, word, start, none, step, JOIN)                             \
  static void N(name##_init)(int64_t n, cnn_word * s, int64_t stride) {                            \
    (void)stride;                                                                                  \
    for (int64_t j = 0; j < n; j++) s[j].word = start;                                             \
  }                                                                                                \
  CLONES static void N(name##_rows)(const cnn_fold_block *b, cnn_word *s, int64_t stride) {        \
    const int64_t n = b->width;                                                                    \
    const double p = b->p;                                                                         \
    (void)p, (void)stride;                                                                         \
    for (int64_t j = 0; j < b->rows; j++) {                                                        \
      const T *x = (const T *)b->x + j * b->stride;                                                \
      A lane[64], total = start;                                                                   \
      if (n < 16) {                                                                                \
        for (int64_t k = 0; k < b->depth; k++, x += b->apart) {                                    \
          for (int64_t i = 0; i < n; i++) {                                                        \
            const VALUE v = LOAD(x[i]);                                                            \
            const A a = total;                                                                     \
            total = step;                                                                          \
          }                                                                                        \
        }                                                                                          \
        s[j].word = JOIN((W)s[j].word, (W)total);                                                  \
        continue;                                                                                  \
      }                                                                                            \
      if (LANES > 16 && n * b->depth < 128) {                                                      \
        IN_LANES(16, A, start, none, step, JOIN)                                                   \
      } else {                                                                                     \
        IN_LANES(LANES, A, start, none, step, JOIN)                                                \
      }                                                                                            \
      s[j].word = JOIN((W)s[j].word, (W)lane[0]);                                                  \
    }                                                                                              \
  }                                                                                                \
  CLONES static void N(name##_columns)(const cnn_fold_block *b, cnn_word *s, int64_t stride) {     \
    const int64_t n = b->width, d = b->stride;                                                     \
    const double p = b->p;                                                                         \
    const T *x = b->x;                                                                             \
    A acc[CNN_FOLD_TILE];                                                                          \
    int64_t i = 0;                                                                                 \
    (void)p, (void)stride;                                                                         \
    for (int64_t j = 0; j < n; j++) acc[j] = start;                                                \
    for (; i + 4 <= b->rows; i += 4, x += 4 * d) {                                                 \
      SIMD for (int64_t j = 0; j < n; j++) {                                                       \
        A a = acc[j];                                                                              \
        VALUE v = LOAD(x[j]);                                                                      \
        a = step;                                                                                  \
        v = LOAD(x[d + j]);                                                                        \
        a = step;                                                                                  \
        v = LOAD(x[2 * d + j]);                                                                    \
        a = step;                                                                                  \
        v = LOAD(x[3 * d + j]);                                                                    \
        acc[j] = step;                                                                             \
      }                                                                                            \
    }                                                                                              \
    for (; i < b->rows; i++, x += d) {                                                             \
      SIMD for (int64_t j = 0; j < n; j++) {                                                       \
        const A a = acc[j];                                                                        \
        const VALUE v = LOAD(x[j]);                                                                \
        acc[j] = step;                                                                             \
      }                                                                                            \
    }                                                                                              \
    SIMD for (int64_t j = 0; j < n; j++) s[j].word = JOIN((W)s[j].word, (W)acc[j]);                \
  }                                                                                                \
  static void N(name##_merge)(int64_t n, cnn_word * s, int64_t stride, const cnn_word *from,       \
                              int64_t from_stride) {                                               \
    (void)stride, (void)from_stride;                                                               \
    for (int64_t j = 0; j < n; j++) s[j].word = JOIN((W)s[j].word, (W)from[j].word);               \
  }

SIMPLE_FOLD(CLONES, sum, SUM, WIDE, WORD, 0, 0, a + (SUM)v, PLUS)
#if !SUMS_ONLY
SIMPLE_FOLD(CLONES, product, WIDE, WIDE, WORD, 1, 1, a *(WIDE)v, TIMES)
SIMPLE_FOLD(CLONES, count, COUNT, int64_t, i, 0, 0, a + (v != 0), PLUS)
SIMPLE_FOLD(CLONES, max, T, STATE, WORD, LOWEST, LOWEST, LARGER(a, v), LARGER)
SIMPLE_FOLD(CLONES, min, T, STATE, WORD, TOP, TOP, SMALLER(a, v), SMALLER)

// ---------------------------------------------------------------------------------------------
// Positions of extremes. Of a row, the block's extreme is found first, in vector code; only when it
// is better than what is known the row is searched for its place.

// The first i with x[i] == v (or NaN, when v is).
CLONES static int64_t N(find)(const T *x, int64_t n, T v) {
  for (int64_t at = 0; at < n; at += 256) {
    int64_t end = n - at < 256 ? n : at + 256;
    int found = 0;
    _Pragma("omp simd reduction(| : found)") for (int64_t i = at; i < end; i++) found |=
        (x[i] == v) | (IS_NAN(x[i]) & IS_NAN(v));
    if (!found) continue;
    for (int64_t i = at; i < end; i++)
      if (x[i] == v || (IS_NAN(x[i]) && IS_NAN(v))) return i;
  }
  return 0;
}

// Whether (v, at) goes before what a result knows: nothing yet, worse, or the same further on.
#define GOES_BEFORE(v, at, known, place, BETTER)                                                   \
  ((place) == 0 || (v)BETTER(known) || (IS_NAN(v) && !IS_NAN(known)) ||                            \
   (((v) == (known) || (IS_NAN(v) && IS_NAN(known))) && (at) < (place)))

#define PLACE_FOLD(name, value, BETTER, start)                                                     \
  static void N(name##_init)(int64_t n, cnn_word * s, int64_t stride) {                            \
    for (int64_t j = 0; j < n; j++) {                                                              \
      s[j].WORD = start;                                                                           \
      s[stride + j].i = 0;                                                                         \
    }                                                                                              \
  }                                                                                                \
  /* The extreme of a row, and its place unless that is still to be found (-1). */                 \
  static STATE N(name##_row)(const cnn_fold_block *b, const T *x, int64_t *place) {                \
    if (b->width < 64) {                                                                           \
      T v = x[0];                                                                                  \
      *place = 0;                                                                                  \
      for (int64_t i = 1; i < b->width; i++) {                                                     \
        if (!(x[i] BETTER v || (IS_NAN(x[i]) && !IS_NAN(v)))) continue;                            \
        v = x[i];                                                                                  \
        *place = i;                                                                                \
      }                                                                                            \
      return v;                                                                                    \
    }                                                                                              \
    cnn_word best = {.WORD = start};                                                               \
    cnn_fold_block row = {.x = x, .rows = 1, .width = b->width, .depth = 1};                       \
    N(value##_rows)(&row, &best, 1);                                                               \
    *place = -1;                                                                                   \
    return best.WORD;                                                                              \
  }                                                                                                \
  static void N(name##_rows)(const cnn_fold_block *b, cnn_word *s, int64_t stride) {               \
    for (int64_t j = 0; j < b->rows; j++) {                                                        \
      const T *x = (const T *)b->x + j * b->stride;                                                \
      int64_t place, at = b->first;                                                                \
      STATE v = N(name##_row)(b, x, &place), known = s[j].WORD;                                    \
      if (!GOES_BEFORE(v, at, known, s[stride + j].i, BETTER)) continue;                           \
      at += (place < 0 ? N(find)(x, b->width, (T)v) : place) * b->step;                            \
      if (!GOES_BEFORE(v, at, known, s[stride + j].i, BETTER)) continue;                           \
      s[j].WORD = v;                                                                               \
      s[stride + j].i = at;                                                                        \
    }                                                                                              \
  }                                                                                                \
  static void N(name##_merge)(int64_t n, cnn_word * s, int64_t stride, const cnn_word *from,       \
                              int64_t from_stride) {                                               \
    for (int64_t j = 0; j < n; j++) {                                                              \
      STATE v = from[j].WORD, known = s[j].WORD;                                                   \
      int64_t at = from[from_stride + j].i;                                                        \
      if (at == 0 || !GOES_BEFORE(v, at, known, s[stride + j].i, BETTER)) continue;                \
      s[j].WORD = v;                                                                               \
      s[stride + j].i = at;                                                                        \
    }                                                                                              \
  }                                                                                                \
  CLONES static void N(name##_places)(const cnn_fold_block *b, T *value_of, INDEX *row_of) {       \
    const T *x = b->x;                                                                             \
    const int64_t n = b->width;                                                                    \
    for (int64_t j = 0; j < n; j++) value_of[j] = x[j], row_of[j] = 0;                             \
    for (INDEX i = 1; i < (INDEX)b->rows; i++) {                                                   \
      x += b->stride;                                                                              \
      SIMD for (int64_t j = 0; j < n; j++) {                                                       \
        const T v = x[j], a = value_of[j];                                                         \
        const int better = (v BETTER a) | (IS_NAN(v) & !IS_NAN(a));                                \
        value_of[j] = better ? v : a;                                                              \
        row_of[j] = better ? i : row_of[j];                                                        \
      }                                                                                            \
    }                                                                                              \
  }                                                                                                \
  static void N(name##_columns)(const cnn_fold_block *b, cnn_word *s, int64_t stride) {            \
    T value_of[CNN_FOLD_TILE];                                                                     \
    INDEX row_of[CNN_FOLD_TILE];                                                                   \
    N(name##_places)(b, value_of, row_of);                                                         \
    for (int64_t j = 0; j < b->width; j++) {                                                       \
      STATE v = value_of[j], known = s[j].WORD;                                                    \
      int64_t at = b->first + row_of[j] * b->step;                                                 \
      if (!GOES_BEFORE(v, at, known, s[stride + j].i, BETTER)) continue;                           \
      s[j].WORD = v;                                                                               \
      s[stride + j].i = at;                                                                        \
    }                                                                                              \
  }

PLACE_FOLD(argmax, max, >, LOWEST)
PLACE_FOLD(argmin, min, <, TOP)

#if FLOATS

SIMPLE_FOLD(CLONES, abs, T, WIDE, WORD, 0, 0, a + MAGNITUDE(v), PLUS)
SIMPLE_FOLD(CLONES, squares, WIDE, WIDE, WORD, 0, 0, a + (WIDE)v * (WIDE)v, PLUS)
SIMPLE_FOLD(, powers, WIDE, WIDE, WORD, 0, 0, a + (WIDE)POWER(MAGNITUDE(v), (T)p), PLUS)
SIMPLE_FOLD(, max_abs, T, STATE, WORD, 0, 0, LARGER(a, MAGNITUDE(v)), LARGER)
SIMPLE_FOLD(, min_abs, T, STATE, WORD, TOP, TOP, SMALLER(a, MAGNITUDE(v)), SMALLER)

// ---------------------------------------------------------------------------------------------
// Moments

static void N(moments_init)(int64_t n, cnn_word *s, int64_t stride) {
  for (int64_t j = 0; j < n; j++) s[j].f = s[stride + j].f = s[2 * stride + j].f = 0;
}

// Result j takes in a set of n elements.
V_FN void N(moments_join)(cnn_word *s, int64_t stride, double n, double mean, double squares) {
  double known = s[0].f, total = known + n, d = mean - s[stride].f;
  s[0].f = total;
  s[stride].f += d * (n / total);
  s[2 * stride].f += squares + d * d * (known * (n / total));
}

static void N(moments_merge)(int64_t n, cnn_word *s, int64_t stride, const cnn_word *from,
                             int64_t from_stride) {
  for (int64_t j = 0; j < n; j++) {
    if (from[j].f == 0) continue;
    double mean = from[from_stride + j].f, squares = from[2 * from_stride + j].f;
    N(moments_join)(s + j, stride, from[j].f, mean, squares);
  }
}

// The sum of the deviations (not quite 0, for the mean is rounded) and of their squares.
CLONES static void N(deviations)(const T *x, int64_t n, T mean, double *sum, double *squares) {
  T d1[16], d2[16];
  double s1 = 0, s2 = 0;
  int64_t i = 0;
  for (int l = 0; l < 16; l++) d1[l] = d2[l] = 0;
  for (; i + 16 <= n; i += 16) {
    SIMD for (int l = 0; l < 16; l++) {
      const T d = x[i + l] - mean;
      d1[l] += d;
      d2[l] += d * d;
    }
  }
  for (int l = 0; l < 16; l++) s1 += (double)d1[l], s2 += (double)d2[l];
  for (; i < n; i++) {
    const T d = x[i] - mean;
    s1 += (double)d;
    s2 += (double)(d * d);
  }
  *sum = s1;
  *squares = s2;
}

static void N(moments_rows)(const cnn_fold_block *b, cnn_word *s, int64_t stride) {
  cnn_fold_block row = *b;
  row.rows = 1;
  for (int64_t j = 0; j < b->rows; j++) {
    double n = (double)b->width, sum, squares;
    cnn_word total = {.f = 0};
    row.x = (const T *)b->x + j * b->stride;
    N(sum_rows)(&row, &total, 1);
    T mean = (T)(total.f / n);
    N(deviations)(row.x, b->width, mean, &sum, &squares);
    N(moments_join)(s + j, stride, n, (double)mean + sum / n, squares - sum * sum / n);
  }
}

CLONES static void N(moments_columns)(const cnn_fold_block *b, cnn_word *s, int64_t stride) {
  const T *x = b->x;
  const int64_t n = b->width, rows = b->rows;
  T mean[CNN_FOLD_TILE], d1[CNN_FOLD_TILE], d2[CNN_FOLD_TILE];
  for (int64_t j = 0; j < n; j++) mean[j] = d1[j] = d2[j] = 0;
  for (int64_t i = 0; i < rows; i++) {
    SIMD for (int64_t j = 0; j < n; j++) mean[j] += x[i * b->stride + j];
  }
  for (int64_t j = 0; j < n; j++) mean[j] /= (T)rows;
  for (int64_t i = 0; i < rows; i++) {
    SIMD for (int64_t j = 0; j < n; j++) {
      const T d = x[i * b->stride + j] - mean[j];
      d1[j] += d;
      d2[j] += d * d;
    }
  }
  const double m = (double)rows;
  for (int64_t j = 0; j < n; j++) {
    double sum = (double)d1[j];
    N(moments_join)(s + j, stride, m, (double)mean[j] + sum / m, (double)d2[j] - sum * sum / m);
  }
}

// ---------------------------------------------------------------------------------------------
// Sums of exponentials, relative to the largest element, or to 0 while that is not finite.

static void N(exps_init)(int64_t n, cnn_word *s, int64_t stride) {
  for (int64_t j = 0; j < n; j++) {
    s[j].f = -HUGE_VAL;
    s[stride + j].f = 0;
  }
}

V_FN void N(exps_join)(cnn_word *s, int64_t stride, double m, double sum) {
  double known = s[0].f, top = LARGER(known, m);
  double low = top - top == 0 ? top : 0;
  double a = known - known == 0 ? exp(known - low) : 1, b = m - m == 0 ? exp(m - low) : 1;
  s[0].f = top;
  s[stride].f = s[stride].f * a + sum * b;
}

static void N(exps_merge)(int64_t n, cnn_word *s, int64_t stride, const cnn_word *from,
                          int64_t from_stride) {
  for (int64_t j = 0; j < n; j++) N(exps_join)(s + j, stride, from[j].f, from[from_stride + j].f);
}

CLONES static double N(exps_of)(const T *x, int64_t n, T low) {
  T lane[16];
  double sum = 0;
  int64_t i = 0;
  for (int l = 0; l < 16; l++) lane[l] = 0;
  for (; i + 16 <= n; i += 16) {
    SIMD for (int l = 0; l < 16; l++) lane[l] += EXP(x[i + l] - low);
  }
  for (int l = 0; l < 16; l++) sum += (double)lane[l];
  for (; i < n; i++) sum += (double)EXP(x[i] - low);
  return sum;
}

static void N(exps_rows)(const cnn_fold_block *b, cnn_word *s, int64_t stride) {
  cnn_fold_block row = *b;
  row.rows = 1;
  for (int64_t j = 0; j < b->rows; j++) {
    cnn_word top = {.f = -HUGE_VAL};
    row.x = (const T *)b->x + j * b->stride;
    N(max_rows)(&row, &top, 1);
    T low = top.f - top.f == 0 ? (T)top.f : 0;
    N(exps_join)(s + j, stride, top.f, N(exps_of)(row.x, b->width, low));
  }
}

CLONES static void N(exps_columns)(const cnn_fold_block *b, cnn_word *s, int64_t stride) {
  const T *x = b->x;
  const int64_t n = b->width;
  T top[CNN_FOLD_TILE], low[CNN_FOLD_TILE], sum[CNN_FOLD_TILE];
  for (int64_t j = 0; j < n; j++) top[j] = LOWEST, sum[j] = 0;
  for (int64_t i = 0; i < b->rows; i++) {
    SIMD for (int64_t j = 0; j < n; j++) top[j] = LARGER(top[j], x[i * b->stride + j]);
  }
  for (int64_t j = 0; j < n; j++) low[j] = top[j] - top[j] == 0 ? top[j] : 0;
  for (int64_t i = 0; i < b->rows; i++) {
    SIMD for (int64_t j = 0; j < n; j++) sum[j] += EXP(x[i * b->stride + j] - low[j]);
  }
  for (int64_t j = 0; j < n; j++) N(exps_join)(s + j, stride, (double)top[j], (double)sum[j]);
}

#endif // FLOATS
#undef GOES_BEFORE
#undef PLACE_FOLD
#endif // !SUMS_ONLY
#undef SIMPLE_FOLD
#undef IN_LANES
#undef HALVE

#undef SUFFIX
#undef T
#undef VALUE
#undef LOAD
#undef WORD
#undef STATE
#undef SUM
#undef WIDE
#undef COUNT
#undef INDEX
#undef LANES
#undef LOWEST
#undef TOP
#undef IS_NAN
#undef EXP
#undef POWER
#undef CLONES
#undef FLOATS
#undef SUMS_ONLY
