// SPDX-License-Identifier: MIT
// The loops of cpu/norm.c for one type: included there, with T and N(name) defined.

// y = (x - mean) * scale * w + b, element by element.
CNN_CLONES static void N(affine_row)(int64_t n, const T *x, T mean, T scale, const T *w, const T *b,
                                     T *y) {
  if (w && b)
    SIMD for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * scale * w[i] + b[i];
  else if (w)
    SIMD for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * scale * w[i];
  else if (b)
    SIMD for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * scale + b[i];
  else
    SIMD for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * scale;
}

// With xh = (x - mean) * rstd and g = dy * w: the sums of g and g * xh over n <= BLOCK elements are
// added to sums[0] and sums[1].
CNN_CLONES static void N(row_dots)(int64_t n, const T *dy, const T *x, T mean, T rstd, const T *w,
                                   double *sums) {
  const int64_t lanes = sizeof(N(vec)) / sizeof(T), k = n / lanes;
  const N(vec) *vdy = (const N(vec) *)dy, *vx = (const N(vec) *)x, *vw = (const N(vec) *)w;
  N(vec) a = {0}, b = {0};
  for (int64_t i = 0; i < k; i++) {
    const N(vec) g = vdy[i] * vw[i];
    a += g;
    b += g * (vx[i] - mean);
  }
  T sum_g = N(sum)(&a), sum_gx = N(sum)(&b);
  for (int64_t i = k * lanes; i < n; i++) {
    sum_g += dy[i] * w[i];
    sum_gx += dy[i] * w[i] * (x[i] - mean);
  }
  sums[0] += (double)sum_g;
  sums[1] += (double)sum_gx * (double)rstd;
}

// The same, and dy * xh is added to dw, dy to db, element by element.
CNN_CLONES static void N(row_sums)(int64_t n, const T *dy, const T *x, T mean, T rstd, const T *w,
                                   T *dw, T *db, double *sums) {
  const int64_t lanes = sizeof(N(vec)) / sizeof(T), k = n / lanes;
  const N(vec) *vdy = (const N(vec) *)dy, *vx = (const N(vec) *)x, *vw = (const N(vec) *)w;
  N(vec) a = {0}, b = {0}, *vdw = (N(vec) *)dw, *vdb = (N(vec) *)db;
  for (int64_t i = 0; i < k; i++) {
    const N(vec) xh = (vx[i] - mean) * rstd, g = vdy[i] * vw[i];
    vdw[i] += vdy[i] * xh;
    vdb[i] += vdy[i];
    a += g;
    b += g * xh;
  }
  T sum_g = N(sum)(&a), sum_gx = N(sum)(&b);
  for (int64_t i = k * lanes; i < n; i++) {
    const T xh = (x[i] - mean) * rstd, g = dy[i] * w[i];
    dw[i] += dy[i] * xh;
    db[i] += dy[i];
    sum_g += g;
    sum_gx += g * xh;
  }
  sums[0] += (double)sum_g;
  sums[1] += (double)sum_gx;
}

// dx = scale * (dy * w - a - (x - mean) * b).
CNN_CLONES static void N(row_gradient)(int64_t n, const T *dy, const T *x, T mean, T scale,
                                       const T *w, T a, T b, T *dx) {
  SIMD for (int64_t i = 0; i < n; i++) dx[i] = scale * (dy[i] * w[i] - a - (x[i] - mean) * b);
}

CNN_CLONES static void N(add_to)(int64_t n, const T *x, T *y) {
  SIMD for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

static void N(layer_norm)(const layer_job *j, int64_t begin, int64_t end, T *buffer) {
  const int64_t n = j->x.width;
  T *means = j->mean, *rstds = j->rstd;
  for (int64_t i = begin; i < end; i++) {
    const T *x = cnn_rows_get(&j->x, i, buffer);
    T *y = cnn_rows_place(&j->out, i, buffer);
    moments m = {0, 0, 0};
    for (int64_t at = 0; at < n; at += BLOCK)
      N(moments)(n - at < BLOCK ? n - at : BLOCK, x + at, &m);
    means[i] = (T)m.mean;
    rstds[i] = (T)(1 / sqrt(variance(&m) + j->eps));
    N(affine_row)(n, x, means[i], rstds[i], j->w, j->b, y);
    cnn_rows_put(&j->out, i, y);
  }
}

// `buffer` holds dw and db of the chunk (2 n), of the last few rows (2 n), and two rows.
static void N(layer_norm_backward)(const layer_job *j, int64_t begin, int64_t end, T *buffer) {
  const int64_t n = j->x.width;
  const T *means = j->mean, *rstds = j->rstd, *w = j->w;
  const bool sums_wanted = j->needs & (NEEDS_W | NEEDS_B);
  T *total = buffer, *few = buffer + 2 * n, *x_row = buffer + 4 * n, *dy_row = buffer + 5 * n;
  if (n == 0) return; // and no buffer
  if (sums_wanted) memset(total, 0, (size_t)(4 * n) * sizeof(T));
  for (int64_t i = begin; i < end; i++) {
    const T *x = cnn_rows_get(&j->x, i, x_row), *dy = cnn_rows_get(&j->dy, i, dy_row);
    double sums[2] = {0, 0};
    for (int64_t at = 0; at < n; at += BLOCK) {
      int64_t m = n - at < BLOCK ? n - at : BLOCK;
      if (sums_wanted)
        N(row_sums)(m, dy + at, x + at, means[i], rstds[i], w + at, few + at, few + n + at, sums);
      else
        N(row_dots)(m, dy + at, x + at, means[i], rstds[i], w + at, sums);
    }
    if (j->needs & NEEDS_X) {
      T *dx = cnn_rows_place(&j->out, i, x_row);
      N(row_gradient)
      (n, dy, x, means[i], rstds[i], w, (T)(sums[0] / (double)n),
       (T)(sums[1] / (double)n * (double)rstds[i]), dx);
      cnn_rows_put(&j->out, i, dx);
    }
    if (sums_wanted && ((i - begin) % FEW == FEW - 1 || i == end - 1)) {
      N(add_to)(2 * n, few, total);
      memset(few, 0, (size_t)(2 * n) * sizeof(T));
    }
  }
}

// Elements [begin, end) of dw and db from all chunks, in their order.
static void N(add_chunks)(const layer_job *j, int64_t begin, int64_t end) {
  const int64_t n = j->x.width;
  T *to[2] = {j->dw, j->db};
  for (int k = 0; k < 2; k++) {
    if (!to[k]) continue;
    memset(to[k] + begin, 0, (size_t)(end - begin) * sizeof(T));
    for (int64_t c = 0; c < j->chunks.n; c++) N(add_to)
    (end - begin, (const T *)(j->chunk + (size_t)c * j->each) + k * n + begin, to[k] + begin);
  }
}
