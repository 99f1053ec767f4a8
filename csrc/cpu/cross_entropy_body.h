// SPDX-License-Identifier: MIT
// The loops of cpu/cross_entropy.c for one type: included there, with T, N(name), EXP(x) for x <=
// 0, LOG(x) and HUGE_ defined.

// --- Rows: a row's classes are contiguous -------------------------------------------------------

// The largest of x[0, n), NaN apart.
CNN_CLONES static T N(largest)(int64_t n, const T *x) {
  T lane[LANES], m = -HUGE_;
  int64_t i = 0;
  if (n >= LANES) {
    for (int l = 0; l < LANES; l++) lane[l] = m;
    for (; i + LANES <= n; i += LANES)
      SIMD for (int l = 0; l < LANES; l++) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (int h = LANES / 2; h > 0; h /= 2)
      SIMD for (int l = 0; l < h; l++) lane[l] = lane[l + h] > lane[l] ? lane[l + h] : lane[l];
    m = lane[0];
  }
  for (; i < n; i++) m = x[i] > m ? x[i] : m;
  return m;
}

// The sum of e^(x - m).
CNN_CLONES static double N(exp_sum)(int64_t n, const T *x, T m) {
  T lane[LANES];
  int64_t i = 0;
  for (int l = 0; l < LANES; l++) lane[l] = 0;
  for (; i + LANES <= n; i += LANES)
    SIMD for (int l = 0; l < LANES; l++) lane[l] += EXP(x[i + l] - m);
  // The rest in one more round, filled up with e^-inf = 0.
  if (i < n) {
    T rest[LANES];
    for (int l = 0; l < LANES; l++) rest[l] = i + l < n ? x[i + l] : -HUGE_;
    SIMD for (int l = 0; l < LANES; l++) lane[l] += EXP(rest[l] - m);
  }
  for (int h = LANES / 2; h > 0; h /= 2) SIMD for (int l = 0; l < h; l++) lane[l] += lane[l + h];
  return (double)lane[0];
}

// The largest of a row, and log(sum(e^(x - largest))), block by block: each is read from memory
// once.
static void N(row_statistics)(int64_t n, const T *x, T *largest, T *log_sum) {
  T m = -HUGE_;
  double sum = 0;
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t k = n - at < BLOCK ? n - at : BLOCK;
    T most = N(largest)(k, x + at);
    if (most > m) {
      sum *= exp((double)m - (double)most);
      m = most;
    }
    // Elements that are all -inf: they add nothing, and leave no inf - inf.
    sum += N(exp_sum)(k, x + at, m == -HUGE_ ? 0 : m);
  }
  *largest = m;
  *log_sum = (T)log(sum);
}

// The sum of w (largest - x + log_sum) over the row.
CNN_CLONES static double N(weighted)(int64_t n, const T *x, const T *w, T m, T log_sum) {
  double total = 0;
  for (int64_t at = 0; at < n; at += BLOCK) {
    const int64_t end = n - at < BLOCK ? n : at + BLOCK;
    T sum = 0;
    if (w) _Pragma("omp simd reduction(+ : sum)") for (int64_t i = at; i < end; i++) {
        sum += w[i] * ((m - x[i]) + log_sum);
      }
    else
      _Pragma("omp simd reduction(+ : sum)") for (int64_t i = at; i < end; i++) {
        sum += (m - x[i]) + log_sum;
      }
    total += (double)sum;
  }
  return total;
}

// dx = a e^((x - m) - log_sum) - b w.
CNN_CLONES static void N(row_gradient)(int64_t n, const T *x, T m, T log_sum, T a, T b, const T *w,
                                       T *dx) {
  if (b == 0)
    SIMD for (int64_t i = 0; i < n; i++) dx[i] = a * EXP((x[i] - m) - log_sum);
  else if (w)
    SIMD for (int64_t i = 0; i < n; i++) dx[i] = a * EXP((x[i] - m) - log_sum) - b * w[i];
  else
    SIMD for (int64_t i = 0; i < n; i++) dx[i] = a * EXP((x[i] - m) - log_sum) - b;
}

static double N(weight_of)(const job *j, int64_t label) {
  return j->w ? (double)((const T *)j->w)[label] : 1;
}

// The loss of a row with that label (0-based), from m - x[label] + log_sum and the sum of these
// over all classes, weighted.
static double N(row_loss)(const job *j, int64_t label, double own, double all) {
  double e = j->smoothing;
  return (1 - e) * N(weight_of)(j, label) * own + (e > 0 ? e / (double)j->classes * all : 0);
}

static void N(rows)(const job *j, int64_t begin, int64_t end, partial *p, T *buffer) {
  T *largest = j->largest, *log_sum = j->log_sum;
  const int64_t n = j->classes;
  labels y = NO_LABELS;
  for (int64_t i = begin; i < end; i++) {
    int64_t label = read_label(j, i, end, &y, p);
    const T *x = cnn_rows_get(&j->x, i, buffer);
    N(row_statistics)(n, x, &largest[i], &log_sum[i]);
    double loss = 0;
    if (label >= 0) {
      double own = ((double)largest[i] - (double)x[label]) + (double)log_sum[i];
      double all = j->smoothing > 0 ? N(weighted)(n, x, j->w, largest[i], log_sum[i]) : 0;
      loss = N(row_loss)(j, label, own, all);
      p->loss += loss;
      p->weight += N(weight_of)(j, label);
      p->rows++;
    }
    if (j->losses.data) set_loss(j, i, loss);
  }
}

// The numbers of row i's gradient: dx = a p - b w, and c less at the label.
static void N(row_factors)(const job *j, int64_t i, int64_t label, T *a, T *b, T *c) {
  double e = j->smoothing, g = j->g, w = N(weight_of)(j, label);
  if (j->dy.data) g = row_dy(j, i);
  *a = (T)(g * ((1 - e) * w + e / (double)j->classes * j->w_sum));
  *b = (T)(g * e / (double)j->classes);
  *c = (T)(g * (1 - e) * w);
}

static void N(rows_back)(const job *j, int64_t begin, int64_t end, partial *p, T *buffer) {
  const T *largest = j->largest, *log_sum = j->log_sum;
  const int64_t n = j->classes;
  labels y = NO_LABELS;
  for (int64_t i = begin; i < end; i++) {
    int64_t label = read_label(j, i, end, &y, p);
    T *dx = cnn_rows_place(&j->dx, i, buffer), a, b, c;
    if (label < 0) {
      memset(dx, 0, (size_t)n * sizeof *dx);
    } else {
      const T *x = cnn_rows_get(&j->x, i, buffer);
      N(row_factors)(j, i, label, &a, &b, &c);
      N(row_gradient)(n, x, largest[i], log_sum[i], a, b, j->w, dx);
      dx[label] -= c;
    }
    cnn_rows_put(&j->dx, i, dx);
  }
}

// --- Columns: the rows' elements of one class are contiguous ------------------------------------

CNN_CLONES static void N(column_largest)(int64_t n, const T *x, T *m) {
  SIMD for (int64_t i = 0; i < n; i++) m[i] = x[i] > m[i] ? x[i] : m[i];
}

CNN_CLONES static void N(column_exps)(int64_t n, const T *x, const T *m, T *sum) {
  SIMD for (int64_t i = 0; i < n; i++) sum[i] += EXP(x[i] - m[i]);
}

CNN_CLONES static void N(column_weighted)(int64_t n, const T *x, const T *m, const T *log_sum, T w,
                                          T *sum) {
  SIMD for (int64_t i = 0; i < n; i++) sum[i] += w * ((m[i] - x[i]) + log_sum[i]);
}

CNN_CLONES static void N(add_and_clear)(int64_t n, T *few, T *sum) {
  SIMD for (int64_t i = 0; i < n; i++) sum[i] += few[i], few[i] = 0;
}

CNN_CLONES static void N(column_gradient)(int64_t n, const T *x, const T *m, const T *log_sum,
                                          const T *a, const T *b, T w, T *dx) {
  SIMD for (int64_t i = 0; i < n; i++) dx[i] = a[i] * EXP((x[i] - m[i]) - log_sum[i]) - b[i] * w;
}

// Class c of n rows from row i on (all in one image): in place or converted.
static const T *N(column)(const job *j, int64_t i, int64_t c, int64_t n, T *buffer) {
  const char *from = column_at(&j->x_columns, i, c);
  if (j->x.stored == j->x.computed) return (const T *)(const void *)from;
  cnn_convert(n, j->x.stored, from, j->x.computed, buffer);
  return buffer;
}

static void N(columns)(const job *j, int64_t begin, int64_t end, partial *p) {
  T m[COLUMNS], safe[COLUMNS], sum[COLUMNS], few[COLUMNS], own[COLUMNS], buffer[COLUMNS];
  const T *w = j->w;
  labels y = NO_LABELS;
  int64_t n;
  for (int64_t i = begin; i < end; i += n) {
    n = columns_here(&j->x_columns, i, end);
    for (int64_t k = 0; k < n; k++) m[k] = -HUGE_, sum[k] = few[k] = 0;
    for (int64_t c = 0; c < j->classes; c++) N(column_largest)(n, N(column)(j, i, c, n, buffer), m);
    for (int64_t k = 0; k < n; k++) safe[k] = m[k] == -HUGE_ ? 0 : m[k];
    for (int64_t c = 0; c < j->classes; c++) {
      N(column_exps)(n, N(column)(j, i, c, n, buffer), safe, few);
      if (c % FEW == FEW - 1 || c == j->classes - 1) N(add_and_clear)(n, few, sum);
    }
    for (int64_t k = 0; k < n; k++) sum[k] = LOG(sum[k]);
    memcpy((T *)j->largest + i, m, (size_t)n * sizeof *m);
    memcpy((T *)j->log_sum + i, sum, (size_t)n * sizeof *sum);
    for (int64_t k = 0; k < n; k++) own[k] = 0;
    if (j->smoothing > 0)
      for (int64_t c = 0; c < j->classes; c++) {
        N(column_weighted)(n, N(column)(j, i, c, n, buffer), m, sum, w ? w[c] : 1, few);
        if (c % FEW == FEW - 1 || c == j->classes - 1) N(add_and_clear)(n, few, own);
      }
    for (int64_t k = 0; k < n; k++) {
      int64_t label = read_label(j, i + k, end, &y, p);
      double loss = 0;
      if (label >= 0) {
        double x = cnn_element_get(j->x.stored, column_at(&j->x_columns, i + k, label));
        loss = N(row_loss)(j, label, ((double)m[k] - x) + (double)sum[k], (double)own[k]);
        p->loss += loss;
        p->weight += N(weight_of)(j, label);
        p->rows++;
      }
      if (j->losses.data) set_loss(j, i + k, loss);
    }
  }
}

static void N(columns_back)(const job *j, int64_t begin, int64_t end, partial *p) {
  T a[COLUMNS], b[COLUMNS], c_own[COLUMNS], buffer[COLUMNS], out[COLUMNS];
  const T *w = j->w;
  int64_t label[COLUMNS], n;
  labels y = NO_LABELS;
  const bool direct = j->x.stored == j->x.computed;
  for (int64_t i = begin; i < end; i += n) {
    const T *m = (const T *)j->largest + i, *log_sum = (const T *)j->log_sum + i;
    n = columns_here(&j->x_columns, i, end);
    for (int64_t k = 0; k < n; k++) {
      label[k] = read_label(j, i + k, end, &y, p);
      a[k] = b[k] = c_own[k] = 0;
      if (label[k] >= 0) N(row_factors)(j, i + k, label[k], &a[k], &b[k], &c_own[k]);
    }
    for (int64_t c = 0; c < j->classes; c++) {
      char *place = column_at(&j->dx_columns, i, c);
      T *dx = direct ? (T *)(void *)place : out;
      N(column_gradient)(n, N(column)(j, i, c, n, buffer), m, log_sum, a, b, w ? w[c] : 1, dx);
      if (direct) continue;
      for (int64_t k = 0; k < n; k++)
        if (label[k] == c) dx[k] -= c_own[k];
      cnn_convert(n, j->x.computed, dx, j->x.stored, place);
    }
    for (int64_t k = 0; k < n; k++) {
      if (direct && label[k] >= 0)
        *(T *)(void *)column_at(&j->dx_columns, i + k, label[k]) -= c_own[k];
      // An ignored row has no gradient, whatever its logits are.
      for (int64_t c = 0; label[k] < 0 && c < j->classes; c++)
        cnn_element_set(j->x.stored, column_at(&j->dx_columns, i + k, c), 0);
    }
  }
}

// --- Weights of classes -------------------------------------------------------------------------

static void N(rows_weights)(const job *j, int64_t begin, int64_t end, partial *p, T *buffer) {
  const T *w = j->w;
  const int64_t n = j->classes;
  const double e = j->smoothing;
  labels y = NO_LABELS;
  for (int64_t i = begin; i < end; i++) {
    int64_t label = read_label(j, i, end, &y, p);
    T *out = cnn_rows_place(&j->dx, i, buffer);
    for (int64_t c = 0; c < n; c++)
      out[c] = label < 0 ? 0 : (T)(e / (double)n * (w ? (double)w[c] : 1));
    if (label >= 0) out[label] += (T)((1 - e) * N(weight_of)(j, label));
    cnn_rows_put(&j->dx, i, out);
  }
}
