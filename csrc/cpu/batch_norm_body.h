// SPDX-License-Identifier: MIT
// The loops of cpu/batch_norm.c for one type: included there, with T and N(name) defined.

// --- Planes: runs of one channel ----------------------------------------------------------------

// y = (x - mean) * scale + shift.
CNN_CLONES static void N(affine)(int64_t n, const T *x, T mean, T scale, T shift, T *y) {
  SIMD for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * scale + shift;
}

// dx = (dy - a - (x - mean) * b) * scale.
CNN_CLONES static void N(gradient)(int64_t n, const T *dy, const T *x, T mean, T scale, T a, T b,
                                   T *dx) {
  SIMD for (int64_t i = 0; i < n; i++) dx[i] = (dy[i] - a - (x[i] - mean) * b) * scale;
}

// Adds the sums of dy and of dy * (x - mean) over n <= BLOCK elements.
CNN_CLONES static void N(dots)(int64_t n, const T *dy, const T *x, T mean, double *sums) {
  const int64_t lanes = sizeof(N(vec)) / sizeof(T), k = n / lanes;
  const N(vec) *vdy = (const N(vec) *)dy, *vx = (const N(vec) *)x;
  N(vec) a = {0}, b = {0}, c = {0}, d = {0};
  int64_t i = 0;
  for (; i + 2 <= k; i += 2) {
    a += vdy[i], c += vdy[i + 1];
    b += vdy[i] * (vx[i] - mean), d += vdy[i + 1] * (vx[i + 1] - mean);
  }
  if (i < k) a += vdy[i], b += vdy[i] * (vx[i] - mean);
  a += c, b += d;
  T sum_dy = N(sum)(&a), sum_dy_x = N(sum)(&b);
  for (i = k * lanes; i < n; i++) {
    sum_dy += dy[i];
    sum_dy_x += dy[i] * (x[i] - mean);
  }
  sums[0] += (double)sum_dy;
  sums[1] += (double)sum_dy_x;
}

// --- Rows of channels: (rows, c), `pitch` elements apart ----------------------------------------

// Joins the moments of each column to (n, mean[], m2[]).
CNN_CLONES static void N(column_moments)(int64_t rows, int64_t c, const T *x, int64_t pitch,
                                         double n, double *mean, double *m2) {
  T sum[TILE], mid[TILE], dev[TILE], sq[TILE];
  const double share = (double)rows / (n + (double)rows);
  for (int64_t at = 0; at < c; at += TILE) {
    const int64_t w = c - at < TILE ? c - at : TILE;
    const T *p = x + at;
    SIMD for (int64_t j = 0; j < w; j++) sum[j] = 0, dev[j] = 0, sq[j] = 0;
    for (int64_t r = 0; r < rows; r++, p += pitch)
      SIMD for (int64_t j = 0; j < w; j++) sum[j] += p[j];
    SIMD for (int64_t j = 0; j < w; j++) mid[j] = sum[j] / (T)rows;
    p = x + at;
    for (int64_t r = 0; r < rows; r++, p += pitch) SIMD for (int64_t j = 0; j < w; j++) {
        const T d = p[j] - mid[j];
        dev[j] += d;
        sq[j] += d * d;
      }
    SIMD for (int64_t j = 0; j < w; j++) {
      const double off = (double)dev[j] / (double)rows;
      const double delta = (double)mid[j] + off - mean[at + j];
      m2[at + j] += (double)sq[j] - off * off * (double)rows + delta * delta * n * share;
      mean[at + j] += delta * share;
    }
  }
}

CNN_CLONES static void N(column_affine)(int64_t rows, int64_t c, const T *x, int64_t pitch,
                                        const T *mean, const T *scale, const T *shift, T *y,
                                        int64_t y_pitch) {
  for (int64_t r = 0; r < rows; r++, x += pitch, y += y_pitch)
    SIMD for (int64_t j = 0; j < c; j++) y[j] = (x[j] - mean[j]) * scale[j] + shift[j];
}

// Adds the sums of dy and of dy * (x - mean) of each column.
CNN_CLONES static void N(column_dots)(int64_t rows, int64_t c, const T *dy, int64_t dy_pitch,
                                      const T *x, int64_t pitch, const T *mean, double *sum_dy,
                                      double *sum_dy_x) {
  T a[TILE], b[TILE];
  for (int64_t at = 0; at < c; at += TILE) {
    const int64_t w = c - at < TILE ? c - at : TILE;
    const T *p = x + at, *q = dy + at, *m = mean + at;
    SIMD for (int64_t j = 0; j < w; j++) a[j] = 0, b[j] = 0;
    for (int64_t r = 0; r < rows; r++, p += pitch, q += dy_pitch)
      SIMD for (int64_t j = 0; j < w; j++) {
        a[j] += q[j];
        b[j] += q[j] * (p[j] - m[j]);
      }
    SIMD for (int64_t j = 0; j < w; j++) {
      sum_dy[at + j] += (double)a[j];
      sum_dy_x[at + j] += (double)b[j];
    }
  }
}

CNN_CLONES static void N(column_gradient)(int64_t rows, int64_t c, const T *dy, int64_t dy_pitch,
                                          const T *x, int64_t pitch, const T *mean, const T *scale,
                                          const T *a, const T *b, T *dx, int64_t dx_pitch) {
  for (int64_t r = 0; r < rows; r++, x += pitch, dy += dy_pitch, dx += dx_pitch)
    SIMD for (int64_t j = 0; j < c; j++) dx[j] =
        (dy[j] - a[j] - (x[j] - mean[j]) * b[j]) * scale[j];
}

// --- Steps of a job -----------------------------------------------------------------------------

static void N(plane_moments)(const job *j, int64_t c, int64_t begin, int64_t end, double *acc) {
  moments m = {0, 0, 0};
  piece p;
  start_channel(&j->g, c, &p);
  for (int64_t at = begin; at < end; at += p.n) {
    read_piece(&j->g, c, at, end, 1 << X, &p);
    N(moments)(p.n, p.at[X], &m);
  }
  acc[0] = m.n, acc[1] = m.mean, acc[2] = m.m2;
}

static void N(plane_affine)(const job *j, int64_t c, int64_t begin, int64_t end) {
  const T *mean = j->mean, *scale = j->scale, *shift = j->shift;
  piece p;
  start_channel(&j->g, c, &p);
  for (int64_t at = begin; at < end; at += p.n) {
    read_piece(&j->g, c, at, end, 1 << X, &p);
    N(affine)(p.n, p.at[X], mean[c], scale[c], shift[c], p.at[OUT]);
    write_piece(&j->g, c, at, &p);
  }
}

static void N(plane_dots)(const job *j, int64_t c, int64_t begin, int64_t end, double *acc) {
  const T *mean = j->mean;
  piece p;
  start_channel(&j->g, c, &p);
  acc[0] = acc[1] = acc[2] = 0;
  for (int64_t at = begin; at < end; at += p.n) {
    read_piece(&j->g, c, at, end, 1 << X | 1 << DY, &p);
    N(dots)(p.n, p.at[DY], p.at[X], mean[c], acc);
  }
}

static void N(plane_gradient)(const job *j, int64_t c, int64_t begin, int64_t end) {
  const T *mean = j->mean, *scale = j->scale, *a = j->a, *b = j->b;
  piece p;
  start_channel(&j->g, c, &p);
  for (int64_t at = begin; at < end; at += p.n) {
    read_piece(&j->g, c, at, end, (j->training ? 1 << X : 0) | 1 << DY, &p);
    if (j->training)
      N(gradient)(p.n, p.at[DY], p.at[X], mean[c], scale[c], a[c], b[c], p.at[OUT]);
    else
      N(affine)(p.n, p.at[DY], 0, scale[c], 0, p.at[OUT]);
    write_piece(&j->g, c, at, &p);
  }
}

static void N(row_moments)(const job *j, int64_t begin, int64_t end, double *acc, char *buffers) {
  const int64_t c = j->g.c;
  memset(acc, 0, (size_t)(2 * c) * sizeof *acc);
  for (int64_t r = begin; r < end; r += j->g.block) {
    int64_t n = end - r < j->g.block ? end - r : j->g.block, pitch;
    const T *x = read_rows(&j->g, X, r, n, buffers, &pitch);
    N(column_moments)(n, c, x, pitch, (double)(r - begin), acc, acc + c);
  }
}

static void N(row_affine)(const job *j, int64_t begin, int64_t end, char *buffers) {
  for (int64_t r = begin; r < end; r += j->g.block) {
    int64_t n = end - r < j->g.block ? end - r : j->g.block, pitch, y_pitch;
    const T *x = read_rows(&j->g, X, r, n, buffers, &pitch);
    T *y = place_rows(&j->g, r, buffers, &y_pitch);
    N(column_affine)(n, j->g.c, x, pitch, j->mean, j->scale, j->shift, y, y_pitch);
    write_rows(&j->g, r, n, y);
  }
}

static void N(row_dots)(const job *j, int64_t begin, int64_t end, double *acc, char *buffers) {
  const int64_t c = j->g.c;
  memset(acc, 0, (size_t)(2 * c) * sizeof *acc);
  for (int64_t r = begin; r < end; r += j->g.block) {
    int64_t n = end - r < j->g.block ? end - r : j->g.block, pitch, dy_pitch;
    const T *x = read_rows(&j->g, X, r, n, buffers, &pitch);
    const T *dy = read_rows(&j->g, DY, r, n, buffers, &dy_pitch);
    N(column_dots)(n, c, dy, dy_pitch, x, pitch, j->mean, acc, acc + c);
  }
}

static void N(row_gradient)(const job *j, int64_t begin, int64_t end, char *buffers) {
  for (int64_t r = begin; r < end; r += j->g.block) {
    int64_t n = end - r < j->g.block ? end - r : j->g.block, pitch, dy_pitch, dx_pitch;
    const T *x = read_rows(&j->g, X, r, n, buffers, &pitch);
    const T *dy = read_rows(&j->g, DY, r, n, buffers, &dy_pitch);
    T *dx = place_rows(&j->g, r, buffers, &dx_pitch);
    N(column_gradient)
    (n, j->g.c, dy, dy_pitch, x, pitch, j->mean, j->scale, j->a, j->b, dx, dx_pitch);
    write_rows(&j->g, r, n, dx);
  }
}

// Mean and 1 / std of channel c, and the numbers of its results. acc: its moments, in training.
static void N(set_statistics)(job *j, int64_t c, const double *acc) {
  double mean = 0, var = 0;
  if (!j->training) {
    mean = channel_value(j->running_mean, c, 0);
    var = channel_value(j->running_var, c, 1);
  } else if (acc[0] > 0) {
    moments m = {acc[0], acc[1], acc[2]};
    mean = m.mean;
    var = variance(&m);
    if (cnn_view_present(j->running_mean)) {
      update(j->running_mean, c, j->momentum, mean);
      update(j->running_var, c, j->momentum, var * m.n / (m.n - 1));
    }
  }
  double rstd = 1 / sqrt(var + j->eps);
  ((T *)j->mean)[c] = (T)mean;
  ((T *)j->rstd)[c] = (T)rstd;
  ((T *)j->scale)[c] = (T)(rstd * channel_value(j->weight, c, 1));
  ((T *)j->shift)[c] = (T)channel_value(j->bias, c, 0);
}

// From the sums of dy and of dy * (x - mean): dw, db, and the numbers of dx.
static void N(set_gradients)(job *j, int64_t c, const double *sums) {
  double sum_dy = sums[0], sum_dy_x = sums[1];
  double rstd = (double)((const T *)j->rstd)[c], m = (double)j->g.m;
  if (j->dw) ((T *)j->dw)[c] = (T)(sum_dy_x * rstd);
  if (j->db) ((T *)j->db)[c] = (T)sum_dy;
  ((T *)j->scale)[c] = (T)(rstd * channel_value(j->weight, c, 1));
  ((T *)j->a)[c] = j->training ? (T)(sum_dy / m) : 0;
  ((T *)j->b)[c] = j->training ? (T)(sum_dy_x / m * rstd * rstd) : 0;
}
