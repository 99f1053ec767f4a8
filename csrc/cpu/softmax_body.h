// SPDX-License-Identifier: MIT
// The loops of softmax.c for one type: T, its SUFFIX, CLONES, EXP(x) for x <= 0, LOG and HUGE_.
// A row's sum is kept in lanes, every FLUSH elements moved to a double.

#define MORE(a, b) ((b) > (a) ? (b) : (a))
#define PLUS(a, b) ((a) + (b))
// Joins the upper h of 2h lanes with the lower ones.
#define HALVE(h, JOIN) SIMD for (int l = 0; l < h; l++) lane[l] = JOIN(lane[l], lane[l + h]);
#define JOIN_16(JOIN)  HALVE(8, JOIN) HALVE(4, JOIN) HALVE(2, JOIN) HALVE(1, JOIN)
#define JOIN_32(JOIN)  HALVE(16, JOIN) JOIN_16(JOIN)
#define JOIN_64(JOIN)  HALVE(32, JOIN) JOIN_32(JOIN)

// The largest of at least 16 elements (of the last ones, some are looked at twice). NaN may be
// passed over: its e^x will make the sum NaN.
V_FN T N(largest)(const T *x, int64_t n) {
  T lane[64];
  if (n >= 128) {
    for (int l = 0; l < 64; l++) lane[l] = x[n - 64 + l];
    for (int64_t i = 0; i + 64 <= n; i += 64) {
      SIMD for (int l = 0; l < 64; l++) lane[l] = MORE(lane[l], x[i + l]);
    }
    JOIN_64(MORE)
  } else {
    for (int l = 0; l < 16; l++) lane[l] = x[n - 16 + l];
    for (int64_t i = 0; i + 16 <= n; i += 16) {
      SIMD for (int l = 0; l < 16; l++) lane[l] = MORE(lane[l], x[i + l]);
    }
    JOIN_16(MORE)
  }
  return lane[0];
}

// y = e^(x - m), unless y is NULL; returns the sum.
V_FN double N(exps)(const T *x, T *y, int64_t n, T m) {
  double sum = 0;
  for (int64_t at = 0; at < n; at += FLUSH) {
    int64_t end = n - at < FLUSH ? n : at + FLUSH, i = at;
    T lane[32];
    for (int l = 0; l < 32; l++) lane[l] = 0;
    if (y) {
      for (; i + 32 <= end; i += 32) {
        SIMD for (int l = 0; l < 32; l++) {
          const T e = EXP(x[i + l] - m);
          y[i + l] = e;
          lane[l] += e;
        }
      }
    } else {
      for (; i + 32 <= end; i += 32) {
        SIMD for (int l = 0; l < 32; l++) lane[l] += EXP(x[i + l] - m);
      }
    }
    // The rest in one more round, filled up with e^-inf = 0.
    if (i < end) {
      T rest[32];
      for (int l = 0; l < 32; l++) rest[l] = i + l < end ? x[i + l] : -HUGE_;
      SIMD for (int l = 0; l < 32; l++) {
        rest[l] = EXP(rest[l] - m);
        lane[l] += rest[l];
      }
      for (int l = 0; y && i + l < end; l++) y[i + l] = rest[l];
    }
    JOIN_32(PLUS)
    sum += (double)lane[0];
  }
  return sum;
}

CLONES static void N(long_rows)(const T *x, T *y, int64_t rows, int64_t n, bool logarithm) {
  for (int64_t r = 0; r < rows; r++, x += n, y += n) {
    const T m = N(largest)(x, n);
    if (logarithm) {
      const T low = (T)log(N(exps)(x, NULL, n, m));
      SIMD for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) - low;
    } else {
      const T factor = (T)(1 / N(exps)(x, y, n, m));
      SIMD for (int64_t i = 0; i < n; i++) y[i] *= factor;
    }
  }
}

// Several short rows: what is done to single elements is done to all rows in one loop.
CLONES static void N(short_rows)(const T *x, T *y, int64_t rows, int64_t n, bool logarithm) {
  T centred[SHORT], e[SHORT];
  const int64_t total = rows * n;
  for (int64_t r = 0; r < rows; r++) {
    const T *row = x + r * n;
    T m = -HUGE_;
    for (int64_t i = 0; i < n; i++) m = row[i] > m ? row[i] : m;
    for (int64_t i = 0; i < n; i++) centred[r * n + i] = row[i] - m;
  }
  SIMD for (int64_t i = 0; i < total; i++) e[i] = EXP(centred[i]);
  for (int64_t r = 0; r < rows; r++) {
    T sum = 0;
    for (int64_t i = 0; i < n; i++) sum += e[r * n + i];
    if (logarithm) {
      const T low = LOG(sum);
      for (int64_t i = 0; i < n; i++) y[r * n + i] = centred[r * n + i] - low;
    } else {
      const T factor = 1 / sum;
      for (int64_t i = 0; i < n; i++) y[r * n + i] = e[r * n + i] * factor;
    }
  }
}

static void N(rows)(const job *j, int64_t begin, int64_t end) {
  const int64_t n = j->lines.n;
  const T *x = (const T *)j->x + begin * n;
  T *y = (T *)j->y + begin * n;
  if (n >= 16) {
    N(long_rows)(x, y, end - begin, n, j->log);
    return;
  }
  const int64_t most = SHORT / n;
  for (int64_t r = begin, rows; r < end; r += rows, x += rows * n, y += rows * n) {
    rows = end - r < most ? end - r : most;
    N(short_rows)(x, y, rows, n, j->log);
  }
}

// The rows of a block of columns, whose sums move to double in the end.
#define FOR_BLOCKS(body)                                                                           \
  for (int64_t at_row = 0; at_row < n; at_row += ROWS) {                                           \
    const int64_t end = n - at_row < ROWS ? n : at_row + ROWS;                                     \
    T part[CNN_LINES];                                                                             \
    for (int64_t c = 0; c < width; c++) part[c] = 0;                                               \
    for (int64_t i = at_row; i < end; i++) {                                                       \
      SIMD for (int64_t c = 0; c < width; c++) {                                                   \
        body                                                                                       \
      }                                                                                            \
    }                                                                                              \
    for (int64_t c = 0; c < width; c++) total[c] += (double)part[c];                               \
  }

CLONES static void N(columns)(const job *j, int64_t at, int64_t width) {
  const int64_t n = j->lines.n, d = j->lines.inner;
  const T *x = (const T *)j->x + at;
  T *y = (T *)j->y + at;
  T m[CNN_LINES], sum[CNN_LINES];
  double total[CNN_LINES];
  for (int64_t c = 0; c < width; c++) m[c] = -HUGE_, total[c] = 0;
  for (int64_t i = 0; i < n; i++) {
    SIMD for (int64_t c = 0; c < width; c++) m[c] = x[i * d + c] > m[c] ? x[i * d + c] : m[c];
  }
  if (j->log) {
    FOR_BLOCKS(part[c] += EXP(x[i * d + c] - m[c]);)
    for (int64_t c = 0; c < width; c++) sum[c] = (T)total[c];
    SIMD for (int64_t c = 0; c < width; c++) sum[c] = LOG(sum[c]);
    for (int64_t i = 0; i < n; i++) {
      SIMD for (int64_t c = 0; c < width; c++) y[i * d + c] = (x[i * d + c] - m[c]) - sum[c];
    }
    return;
  }
  FOR_BLOCKS(const T e = EXP(x[i * d + c] - m[c]); y[i * d + c] = e; part[c] += e;)
  for (int64_t c = 0; c < width; c++) sum[c] = (T)(1 / total[c]);
  for (int64_t i = 0; i < n; i++) {
    SIMD for (int64_t c = 0; c < width; c++) y[i * d + c] *= sum[c];
  }
}

// ---------------------------------------------------------------------------------------------
// Gradients

// The sum of dy, or of dy y.
V_FN double N(dot)(const T *dy, const T *y, int64_t n) {
  double sum = 0;
  for (int64_t at = 0; at < n; at += FLUSH) {
    int64_t end = n - at < FLUSH ? n : at + FLUSH, i = at;
    T lane[32];
    for (int l = 0; l < 32; l++) lane[l] = 0;
    if (y) {
      for (; i + 32 <= end; i += 32) {
        SIMD for (int l = 0; l < 32; l++) lane[l] += dy[i + l] * y[i + l];
      }
      const int rest = (int)(end - i);
      SIMD for (int l = 0; l < 32; l++) lane[l] += l < rest ? dy[i + l] * y[i + l] : 0;
    } else {
      for (; i + 32 <= end; i += 32) {
        SIMD for (int l = 0; l < 32; l++) lane[l] += dy[i + l];
      }
      const int rest = (int)(end - i);
      SIMD for (int l = 0; l < 32; l++) lane[l] += l < rest ? dy[i + l] : 0;
    }
    JOIN_32(PLUS)
    sum += (double)lane[0];
  }
  return sum;
}

CLONES static void N(rows_back)(const job *j, int64_t begin, int64_t end) {
  const int64_t n = j->lines.n;
  for (int64_t r = begin; r < end; r++) {
    const T *dy = (const T *)j->x + r * n, *y = (const T *)j->saved + r * n;
    T *dx = (T *)j->y + r * n;
    if (j->log) {
      const T sum = (T)N(dot)(dy, NULL, n);
      SIMD for (int64_t i = 0; i < n; i++) dx[i] = dy[i] - EXP(y[i]) * sum;
    } else {
      const T sum = (T)N(dot)(dy, y, n);
      SIMD for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - sum);
    }
  }
}

CLONES static void N(columns_back)(const job *j, int64_t at, int64_t width) {
  const int64_t n = j->lines.n, d = j->lines.inner;
  const T *dy = (const T *)j->x + at, *y = (const T *)j->saved + at;
  T *dx = (T *)j->y + at, sum[CNN_LINES];
  double total[CNN_LINES];
  for (int64_t c = 0; c < width; c++) total[c] = 0;
  if (j->log) {
    FOR_BLOCKS(part[c] += dy[i * d + c];)
    for (int64_t c = 0; c < width; c++) sum[c] = (T)total[c];
    for (int64_t i = 0; i < n; i++) {
      SIMD for (int64_t c = 0; c < width; c++) {
        dx[i * d + c] = dy[i * d + c] - EXP(y[i * d + c]) * sum[c];
      }
    }
    return;
  }
  FOR_BLOCKS(part[c] += dy[i * d + c] * y[i * d + c];)
  for (int64_t c = 0; c < width; c++) sum[c] = (T)total[c];
  for (int64_t i = 0; i < n; i++) {
    SIMD for (int64_t c = 0; c < width; c++) {
      dx[i * d + c] = y[i * d + c] * (dy[i * d + c] - sum[c]);
    }
  }
}
#undef FOR_BLOCKS
#undef MORE
#undef PLUS
#undef HALVE
#undef JOIN_16
#undef JOIN_32
#undef JOIN_64
