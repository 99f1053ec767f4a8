// SPDX-License-Identifier: MIT
// The parts of pooling that compute, for one type. cpu/pooling.c includes this file once for each,
// with T, NAME, LOWEST and IS_NAN set, and MEANS where the type is a floating one; `pool` is
// explained there.
//
// Row-major planes are pooled in two steps, which both are loops over runs of memory: the rows
// under the windows of one row of the result become one row (down), and that is pooled along itself
// (across). Channels-last planes are pooled place by place, over runs of channels.

// n elements from `data`, `step` apart, as T: where they lie, or in the buffer.
static const T *NAME(load)(const pool *p, const char *data, int64_t n, int64_t step, T *buffer) {
  if (step == 1 && p->dtype == p->computed) return (const T *)(const void *)data;
  if (step == 1) {
    cnn_convert(n, p->dtype, data, p->computed, buffer);
  } else if (p->dtype == p->computed) {
    const T *from = (const T *)(const void *)data;
    for (int64_t i = 0; i < n; i++) buffer[i] = from[i * step];
  } else {
    for (int64_t i = 0; i < n; i++)
      cnn_convert(1, p->dtype, data + i * step * (int64_t)p->size, p->computed, buffer + i);
  }
  return buffer;
}

static void NAME(put)(const pool *p, int64_t n, const T *from, char *to, int64_t step) {
  if (p->dtype == p->computed && step == 1) {
    if ((const char *)from != to) memcpy(to, from, (size_t)n * sizeof(T));
  } else if (step == 1) {
    cnn_convert(n, p->computed, from, p->dtype, to);
  } else {
    for (int64_t i = 0; i < n; i++)
      cnn_convert(1, p->computed, from + i, p->dtype, to + i * step * (int64_t)p->size);
  }
}

// ---- Maxima

// best = max(best, row), elementwise, with the place of each: `at`, `at + step` ...
CNN_CLONES static void NAME(max_down)(int64_t n, const T *restrict row, int32_t at, int32_t step,
                                      T *restrict best, int32_t *restrict places) {
  for (int64_t i = 0; i < n; i++) {
    int take = (row[i] > best[i]) | IS_NAN(row[i]);
    best[i] = take ? row[i] : best[i];
    places[i] = take ? at + (int32_t)i * step : places[i];
  }
}

CNN_CLONES static void NAME(max_start)(int64_t n, const T *row, int32_t at, int32_t step, T *best,
                                       int32_t *places) {
  for (int64_t i = 0; i < n; i++) best[i] = row[i], places[i] = at + (int32_t)i * step;
}

// The larger of two, as a scan in row-major order finds it: of equals the first, of NaNs the last.
#define TAKE(v, at, best, best_at)                                                                 \
  (((v) > (best)) | (((v) == (best)) & ((at) < (best_at))) |                                       \
   (IS_NAN(v) & (!IS_NAN(best) | ((at) > (best_at)))))

static inline __attribute__((always_inline)) void
NAME(across_stride)(int64_t n, int64_t taps, int64_t step, const int64_t stride,
                    const T *restrict row, const int32_t *restrict at, T *restrict y,
                    int32_t *restrict places) {
  for (int64_t i = 0; i < n; i++) y[i] = row[i * stride], places[i] = at[i * stride];
  for (int64_t t = 1; t < taps; t++) {
    const T *from = row + t * step;
    const int32_t *from_at = at + t * step;
    for (int64_t i = 0; i < n; i++) {
      T v = from[i * stride];
      int32_t k = from_at[i * stride];
      int take = TAKE(v, k, y[i], places[i]);
      y[i] = take ? v : y[i];
      places[i] = take ? k : places[i];
    }
  }
}

CNN_CLONES static void NAME(max_across)(int64_t n, int64_t taps, int64_t step, int64_t stride,
                                        const T *row, const int32_t *at, T *y, int32_t *places) {
  if (stride == 1)
    NAME(across_stride)(n, taps, step, 1, row, at, y, places);
  else if (stride == 2)
    NAME(across_stride)(n, taps, step, 2, row, at, y, places);
  else
    NAME(across_stride)(n, taps, step, stride, row, at, y, places);
}

// The commonest windows, 2 x 2 side by side, in one step: `rows` rows of q from rows of x that are
// w apart, of which the first starts at `place`. Without branches, so that neither the ends of
// short rows nor random values cost mispredictions. False when there is a NaN: then it is all void.
CNN_CLONES static bool NAME(max_pairs)(int64_t rows, int64_t q, const T *restrict x, int64_t w,
                                       int32_t place, T *restrict y, int32_t *restrict at) {
  const int32_t down = (int32_t)w;
  int32_t unordered = 0;
  for (int64_t r = 0; r < rows; r++, x += 2 * w, y += q, at += q, place += 2 * down) {
    for (int64_t i = 0; i < q; i++) {
      T a = x[2 * i], b = x[2 * i + 1], c = x[w + 2 * i], d = x[w + 2 * i + 1];
      T upper = b > a ? b : a, lower = d > c ? d : c;
      int32_t k = b > a, k_lower = down + (d > c), take = lower > upper;
      unordered |= UNORDERED(a, b) | UNORDERED(c, d);
      y[i] = lower > upper ? lower : upper;
      at[i] = place + 2 * (int32_t)i + k + take * (k_lower - k);
    }
  }
  return !unordered;
}

// Rows of the result, counted over all planes.
static void NAME(max_rows)(const void *arg, int64_t task, char *scratch) {
  const pool *p = arg;
  int64_t begin = task * p->rows_each, end = begin + p->rows_each, q = p->out[2], taken;
  if (end > p->rows_all) end = p->rows_all;
  T *best = cnn_take(&scratch, (size_t)(p->pitch * p->merged) * sizeof(T));
  int32_t *at = cnn_take(&scratch, (size_t)(p->pitch * p->merged) * sizeof(int32_t));
  T *buffer = cnn_take(&scratch, (size_t)p->in[2] * sizeof(T));
  T *values = cnn_take(&scratch, (size_t)(q * p->merged) * sizeof(T));
  const span *columns = columns_of(p, &scratch);
  int64_t left = p->adaptive ? 0 : p->before[2], width = p->in[2];
  if (width > p->pitch - left) width = p->pitch - left;
  // What lies beyond the input never wins: not even against the lowest value, by its place.
  for (int64_t i = 0; i < p->pitch * p->merged; i++) best[i] = LOWEST, at[i] = INT32_MAX;
  for (int64_t r = begin; r < end; r += taken) {
    int64_t plane = r / p->rows, n = plane / p->c, c = plane % p->c, row = r % p->rows;
    char *y = element_at(p, &p->y, n, c, row * q);
    int32_t *places = (int32_t *)(void *)p->at.data + n * p->at.n + c * p->at.c + row * q;
    T *to = p->dtype == p->computed ? (T *)(void *)y : values;
    if (p->pairs) {
      taken = p->rows - row < end - r ? p->rows - row : end - r;
      const T *x = (const T *)(const void *)element_at(p, &p->x, n, c, 2 * row * p->x.s[1]);
      int32_t place = (int32_t)(2 * row * p->in[2]) + 1;
      if (NAME(max_pairs)(taken, q, x, p->in[2], place, to, places)) continue;
    }
    taken = p->rows - row < p->merged ? p->rows - row : p->merged;
    if (taken > end - r) taken = end - r;
    for (int64_t m = 0; m < taken; m++) {
      rows_under u = rows_at(p, row + m);
      T *under = best + m * p->pitch + left;
      int32_t *under_at = at + m * p->pitch + left;
      for (int64_t i = 0; i < u.count; i++, next_row(&u)) {
        const char *data = element_at(p, &p->x, n, c, u.d * p->x.s[0] + u.h * p->x.s[1]);
        const T *from = NAME(load)(p, data, width, p->x.s[2], buffer);
        int32_t place = (int32_t)((u.d * p->in[1] + u.h) * p->in[2]) + 1;
        if (i == 0)
          NAME(max_start)(width, from, place, 1, under, under_at);
        else
          NAME(max_down)(width, from, place, 1, under, under_at);
      }
    }
    if (p->adaptive) {
      for (int64_t i = 0; i < q; i++) {
        span w = columns[i];
        int64_t winner = w.first;
        for (int64_t k = w.first + 1; k < w.first + w.count; k++)
          if (TAKE(best[k], at[k], best[winner], at[winner])) winner = k;
        to[i] = best[winner], places[i] = at[winner];
      }
    } else {
      NAME(max_across)(taken * q, p->kernel[2], p->dilation[2], p->stride[2], best, at, to, places);
    }
    NAME(put)(p, taken * q, to, y, 1);
  }
}

// Rows of the result, counted over all images, channels-last.
static void NAME(max_places)(const void *arg, int64_t task, char *scratch) {
  const pool *p = arg;
  int64_t begin = task * p->rows_each, end = begin + p->rows_each;
  if (end > p->rows_all) end = p->rows_all;
  T *buffer = cnn_take(&scratch, (size_t)p->c * sizeof(T));
  T *values = cnn_take(&scratch, (size_t)p->c * sizeof(T));
  for (int64_t r = begin; r < end; r++) {
    int64_t n = r / p->rows, row = r % p->rows;
    for (int64_t q = 0; q < p->out[2]; q++) {
      span w = span_at(p, 2, q);
      rows_under u = rows_at(p, row);
      char *y = element_at(p, &p->y, n, 0, (row * p->out[2] + q) * p->c);
      int32_t *places = (int32_t *)(void *)p->at.data + n * p->at.n + (row * p->out[2] + q) * p->c;
      T *to = p->dtype == p->computed ? (T *)(void *)y : values;
      bool first = true;
      for (int64_t i = 0; i < u.count; i++, next_row(&u)) {
        for (int64_t k = 0, l = w.first; k < w.count; k++, l += w.step, first = false) {
          int64_t at = u.d * p->x.s[0] + u.h * p->x.s[1] + l * p->x.s[2];
          const T *from = NAME(load)(p, element_at(p, &p->x, n, 0, at), p->c, 1, buffer);
          int32_t place = (int32_t)((u.d * p->in[1] + u.h) * p->in[2] + l) + 1;
          if (first)
            NAME(max_start)(p->c, from, place, 0, to, places);
          else
            NAME(max_down)(p->c, from, place, 0, to, places);
        }
      }
      NAME(put)(p, p->c, to, y, 1);
    }
  }
}

#undef TAKE

#ifdef MEANS
// ---- Means

CNN_CLONES static void NAME(sum_down)(int64_t n, const T *row, T *sum) {
  for (int64_t i = 0; i < n; i++) sum[i] += row[i];
}

static inline __attribute__((always_inline)) void
NAME(sum_stride)(int64_t n, int64_t taps, const int64_t stride, const T *row, T *y) {
  for (int64_t i = 0; i < n; i++) y[i] = row[i * stride];
  for (int64_t t = 1; t < taps; t++)
    for (int64_t i = 0; i < n; i++) y[i] += row[t + i * stride];
}

CNN_CLONES static void NAME(sum_across)(int64_t n, int64_t taps, int64_t stride, const T *row,
                                        T *y) {
  if (stride == 1)
    NAME(sum_stride)(n, taps, 1, row, y);
  else if (stride == 2)
    NAME(sum_stride)(n, taps, 2, row, y);
  else
    NAME(sum_stride)(n, taps, stride, row, y);
}

static inline __attribute__((always_inline)) void
NAME(spread_stride)(int64_t n, int64_t taps, const int64_t stride, const T *y, T *row) {
  for (int64_t t = 0; t < taps; t++)
    for (int64_t i = 0; i < n; i++) row[t + i * stride] += y[i];
}

CNN_CLONES static void NAME(spread_across)(int64_t n, int64_t taps, int64_t stride, const T *y,
                                           T *row) {
  if (stride == 1)
    NAME(spread_stride)(n, taps, 1, y, row);
  else if (stride == 2)
    NAME(spread_stride)(n, taps, 2, y, row);
  else
    NAME(spread_stride)(n, taps, stride, y, row);
}

CNN_CLONES static void NAME(divide)(int64_t n, const T *by, T scale, T *y) {
  for (int64_t i = 0; i < n; i++) y[i] /= by[i] * scale;
}

CNN_CLONES static void NAME(divide_by)(int64_t n, const T *x, T by, T *y) {
  for (int64_t i = 0; i < n; i++) y[i] = x[i] / by;
}

// Windows of 2 x 2 side by side, as max_pairs.
CNN_CLONES static void NAME(avg_pairs)(int64_t rows, int64_t q, const T *x, int64_t w, T by, T *y) {
  for (int64_t r = 0; r < rows; r++, x += 2 * w, y += q)
    for (int64_t i = 0; i < q; i++)
      y[i] = ((x[2 * i] + x[2 * i + 1]) + (x[w + 2 * i] + x[w + 2 * i + 1])) / by;
}

CNN_CLONES static void NAME(avg_pairs_backward)(int64_t rows, int64_t q, const T *dy, int64_t step,
                                                T by, T *dx, int64_t w) {
  for (int64_t r = 0; r < rows; r++, dx += 2 * w, dy += step) {
    for (int64_t i = 0; i < q; i++) {
      T v = dy[i] / by;
      dx[2 * i] = dx[2 * i + 1] = dx[w + 2 * i] = dx[w + 2 * i + 1] = v;
    }
  }
}

// Means of whole planes, one after the other, and back.
CNN_CLONES static void NAME(avg_planes)(int64_t planes, int64_t places, const T *x, T by, T *y) {
  for (int64_t k = 0; k < planes; k++, x += places) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < places; i++) sum += x[i];
    y[k] = sum / by;
  }
}

CNN_CLONES static void NAME(fill_planes)(int64_t planes, int64_t places, const T *dy, T by, T *dx) {
  for (int64_t k = 0; k < planes; k++, dx += places) {
    const T v = dy[k] / by;
    for (int64_t i = 0; i < places; i++) dx[i] = v;
  }
}

// What the sums of a row of windows are divided by: widths[q] times the result.
static T NAME(divisors)(const pool *p, int64_t row, T *widths) {
  for (int64_t q = 0; q < p->out[2]; q++)
    widths[q] = p->divisor != 0 ? (T)p->divisor : (T)count_at(p, 2, q);
  if (p->divisor != 0) return 1;
  return (T)(count_at(p, 0, row / p->out[1]) * count_at(p, 1, row % p->out[1]));
}

static void NAME(avg_rows)(const void *arg, int64_t task, char *scratch) {
  const pool *p = arg;
  int64_t begin = task * p->rows_each, end = begin + p->rows_each, q = p->out[2];
  if (end > p->rows_all) end = p->rows_all;
  T *sum = cnn_take(&scratch, (size_t)p->pitch * sizeof(T));
  T *buffer = cnn_take(&scratch, (size_t)p->in[2] * sizeof(T));
  T *values = cnn_take(&scratch, (size_t)q * sizeof(T));
  T *widths = cnn_take(&scratch, (size_t)q * sizeof(T));
  const span *columns = columns_of(p, &scratch);
  int64_t left = p->adaptive ? 0 : p->before[2], width = p->in[2];
  if (width > p->pitch - left) width = p->pitch - left;
  for (int64_t r = begin, taken; r < end; r += taken) {
    int64_t plane = r / p->rows, n = plane / p->c, c = plane % p->c, row = r % p->rows;
    char *y = element_at(p, &p->y, n, c, row * q);
    T *to = p->dtype == p->computed ? (T *)(void *)y : values;
    taken = 1;
    if (p->whole) {
      taken = end - r;
      const T *x = (const T *)(const void *)element_at(p, &p->x, n, c, 0);
      NAME(avg_planes)(taken, p->x.places, x, (T)(p->divisor ? p->divisor : p->x.places), to);
      continue;
    }
    if (p->pairs) {
      taken = p->rows - row < end - r ? p->rows - row : end - r;
      const T *x = (const T *)(const void *)element_at(p, &p->x, n, c, 2 * row * p->x.s[1]);
      NAME(avg_pairs)(taken, q, x, p->in[2], p->divisor ? (T)p->divisor : 4, to);
      continue;
    }
    T scale = NAME(divisors)(p, row, widths);
    rows_under u = rows_at(p, row);
    for (int64_t i = 0; i < p->pitch; i++) sum[i] = 0;
    for (int64_t i = 0; i < u.count; i++, next_row(&u)) {
      const char *data = element_at(p, &p->x, n, c, u.d * p->x.s[0] + u.h * p->x.s[1]);
      NAME(sum_down)(width, NAME(load)(p, data, width, p->x.s[2], buffer), sum + left);
    }
    if (p->adaptive) {
      for (int64_t i = 0; i < q; i++) {
        T total = 0;
        for (int64_t k = 0; k < columns[i].count; k++) total += sum[columns[i].first + k];
        to[i] = total;
      }
    } else {
      NAME(sum_across)(q, p->kernel[2], p->stride[2], sum, to);
    }
    NAME(divide)(q, widths, scale, to);
    NAME(put)(p, q, to, y, 1);
  }
}

static void NAME(avg_places)(const void *arg, int64_t task, char *scratch) {
  const pool *p = arg;
  int64_t begin = task * p->rows_each, end = begin + p->rows_each;
  if (end > p->rows_all) end = p->rows_all;
  T *buffer = cnn_take(&scratch, (size_t)p->c * sizeof(T));
  T *values = cnn_take(&scratch, (size_t)p->c * sizeof(T));
  T *widths = cnn_take(&scratch, (size_t)p->out[2] * sizeof(T));
  for (int64_t r = begin; r < end; r++) {
    int64_t n = r / p->rows, row = r % p->rows;
    T scale = NAME(divisors)(p, row, widths);
    for (int64_t q = 0; q < p->out[2]; q++) {
      span w = span_at(p, 2, q);
      rows_under u = rows_at(p, row);
      char *y = element_at(p, &p->y, n, 0, (row * p->out[2] + q) * p->c);
      T *to = p->dtype == p->computed ? (T *)(void *)y : values;
      memset(to, 0, (size_t)p->c * sizeof(T));
      for (int64_t i = 0; i < u.count; i++, next_row(&u)) {
        for (int64_t l = w.first; l < w.first + w.count; l++) {
          int64_t at = u.d * p->x.s[0] + u.h * p->x.s[1] + l * p->x.s[2];
          NAME(sum_down)(p->c, NAME(load)(p, element_at(p, &p->x, n, 0, at), p->c, 1, buffer), to);
        }
      }
      NAME(divide_by)(p->c, to, widths[q] * scale, to);
      NAME(put)(p, p->c, to, y, 1);
    }
  }
}

// The gradient of some planes.
static void NAME(avg_planes_backward)(const void *arg, int64_t task, char *scratch) {
  const pool *p = arg;
  int64_t begin = task * p->planes_each, end = begin + p->planes_each, q = p->out[2];
  if (end > p->n * p->c) end = p->n * p->c;
  T *spread = cnn_take(&scratch, (size_t)p->pitch * sizeof(T));
  T *dy = cnn_take(&scratch, (size_t)q * sizeof(T));
  T *widths = cnn_take(&scratch, (size_t)q * sizeof(T));
  const span *columns = columns_of(p, &scratch);
  T *staged = cnn_take(&scratch, p->x.staged ? (size_t)p->x.places * sizeof(T) : 0);
  int64_t left = p->adaptive ? 0 : p->before[2], width = p->in[2];
  if (width > p->pitch - left) width = p->pitch - left;
  for (int64_t plane = begin; plane < end; plane++) {
    int64_t n = plane / p->c, c = plane % p->c;
    char *x = element_at(p, &p->x, n, c, 0);
    T *dx = p->x.staged ? staged : (T *)(void *)x;
    if (p->whole) {
      const T *from = (const T *)(const void *)element_at(p, &p->y, n, c, 0);
      NAME(fill_planes)
      (end - begin, p->x.places, from, (T)(p->divisor ? p->divisor : p->x.places), dx);
      return;
    }
    bool covered = p->pairs && 2 * p->out[1] == p->in[1] && 2 * q == p->in[2];
    if (!covered) memset(dx, 0, (size_t)p->x.places * sizeof(T));
    if (p->pairs) {
      const T *from = (const T *)(const void *)element_at(p, &p->y, n, c, 0);
      NAME(avg_pairs_backward)
      (p->rows, q, from, p->y.s[1], p->divisor ? (T)p->divisor : 4, dx, p->in[2]);
      continue;
    }
    for (int64_t row = 0; row < p->rows; row++) {
      int64_t at = row / p->out[1] * p->y.s[0] + row % p->out[1] * p->y.s[1];
      T scale = NAME(divisors)(p, row, widths);
      const T *from = NAME(load)(p, element_at(p, &p->y, n, c, at), q, p->y.s[2], dy);
      if (from != dy) memcpy(dy, from, (size_t)q * sizeof(T));
      NAME(divide)(q, widths, scale, dy);
      for (int64_t i = 0; i < p->pitch; i++) spread[i] = 0;
      if (p->adaptive) {
        for (int64_t i = 0; i < q; i++) {
          for (int64_t k = 0; k < columns[i].count; k++) spread[columns[i].first + k] += dy[i];
        }
      } else {
        NAME(spread_across)(q, p->kernel[2], p->stride[2], dy, spread);
      }
      rows_under u = rows_at(p, row);
      for (int64_t i = 0; i < u.count; i++, next_row(&u))
        NAME(sum_down)(width, spread + left, dx + (u.d * p->in[1] + u.h) * p->in[2]);
    }
    if (p->x.staged) NAME(put)(p, p->x.places, dx, x, 1);
  }
}

// The gradient of one image, channels-last.
static void NAME(avg_image_backward)(const void *arg, int64_t n, char *scratch) {
  const pool *p = arg;
  T *dy = cnn_take(&scratch, (size_t)p->c * sizeof(T));
  T *widths = cnn_take(&scratch, (size_t)p->out[2] * sizeof(T));
  int64_t count = p->x.places * p->c;
  T *staged = cnn_take(&scratch, p->x.staged ? (size_t)count * sizeof(T) : 0);
  char *x = element_at(p, &p->x, n, 0, 0);
  T *dx = p->x.staged ? staged : (T *)(void *)x;
  memset(dx, 0, (size_t)count * sizeof(T));
  for (int64_t row = 0; row < p->rows; row++) {
    T scale = NAME(divisors)(p, row, widths);
    for (int64_t q = 0; q < p->out[2]; q++) {
      span w = span_at(p, 2, q);
      rows_under u = rows_at(p, row);
      int64_t at = row / p->out[1] * p->y.s[0] + row % p->out[1] * p->y.s[1] + q * p->y.s[2];
      const T *from = NAME(load)(p, element_at(p, &p->y, n, 0, at), p->c, p->y.c, dy);
      NAME(divide_by)(p->c, from, widths[q] * scale, dy);
      for (int64_t i = 0; i < u.count; i++, next_row(&u)) {
        T *to = dx + ((u.d * p->in[1] + u.h) * p->in[2] + w.first) * p->c;
        for (int64_t k = 0; k < w.count; k++) NAME(sum_down)(p->c, dy, to + k * p->c);
      }
    }
  }
  if (p->x.staged) NAME(put)(p, count, dx, x, 1);
}

// ---- Places: dx[place] += dy, and its transpose y = x[place]

// Places under 2 x 2 windows side by side. Columns that do not fill a vector are zeroed and then
// stored to: compared one by one they would cost mispredicted branches.
CNN_CLONES static void NAME(scatter_pairs)(int64_t rows, int64_t q, const T *restrict dy,
                                           const int32_t *restrict at, T *restrict plane,
                                           int64_t w) {
  const int32_t down = (int32_t)w;
  const int64_t even = q - q % 16;
  int32_t place = 1;
  T *restrict dx = plane;
  for (int64_t r = 0; r < rows; r++, dy += q, at += q, dx += 2 * w, place += 2 * down) {
    T *restrict below = dx + w;
    for (int64_t i = 0; i < even; i++) {
      int32_t k = at[i] - place - 2 * (int32_t)i;
      T v = dy[i];
      dx[2 * i] = k == 0 ? v : 0;
      dx[2 * i + 1] = k == 1 ? v : 0;
      below[2 * i] = k == down ? v : 0;
      below[2 * i + 1] = k == down + 1 ? v : 0;
    }
    for (int64_t i = 2 * even; i < 2 * q; i++) dx[i] = below[i] = 0;
    for (int64_t i = even; i < q; i++) plane[at[i] - 1] = dy[i];
  }
}

static void NAME(scatter_planes)(const void *arg, int64_t task, char *scratch) {
  const pool *p = arg;
  int64_t begin = task * p->planes_each, end = begin + p->planes_each, q = p->out[2];
  if (end > p->n * p->c) end = p->n * p->c;
  T *dy = cnn_take(&scratch, (size_t)q * sizeof(T));
  T *staged = cnn_take(&scratch, p->x.staged ? (size_t)p->x.places * sizeof(T) : 0);
  for (int64_t plane = begin; plane < end; plane++) {
    int64_t n = plane / p->c, c = plane % p->c;
    char *x = element_at(p, &p->x, n, c, 0);
    T *dx = p->x.staged ? staged : (T *)(void *)x;
    const T *all = (const T *)(const void *)element_at(p, &p->y, n, c, 0);
    if (p->pairs && q >= 16) {
      if (2 * p->out[1] != p->in[1] || 2 * q != p->in[2])
        memset(dx, 0, (size_t)p->x.places * sizeof(T));
      NAME(scatter_pairs)(p->rows, q, all, places_at(p, n, c, 0, 0), dx, p->in[2]);
      continue;
    }
    memset(dx, 0, (size_t)p->x.places * sizeof(T));
    if (p->even) {
      const int32_t *at = places_at(p, n, c, 0, 0);
      for (int64_t i = 0; i < p->rows * q; i++) dx[at[i] - 1] += all[i];
      continue;
    }
    for (int64_t row = 0; row < p->rows; row++) {
      int64_t a = row / p->out[1], b = row % p->out[1], step = p->at.s[2];
      const T *from = NAME(load)(p, element_at(p, &p->y, n, c, a * p->y.s[0] + b * p->y.s[1]), q,
                                 p->y.s[2], dy);
      const int32_t *at = places_at(p, n, c, a, b);
      for (int64_t i = 0; i < q; i++) dx[at[i * step] - 1] += from[i];
    }
    if (p->x.staged) NAME(put)(p, p->x.places, dx, x, 1);
  }
}

static void NAME(scatter_image)(const void *arg, int64_t n, char *scratch) {
  const pool *p = arg;
  T *dy = cnn_take(&scratch, (size_t)p->c * sizeof(T));
  int64_t count = p->x.places * p->c;
  T *staged = cnn_take(&scratch, p->x.staged ? (size_t)count * sizeof(T) : 0);
  char *x = element_at(p, &p->x, n, 0, 0);
  T *dx = p->x.staged ? staged : (T *)(void *)x;
  memset(dx, 0, (size_t)count * sizeof(T));
  for (int64_t row = 0; row < p->rows; row++) {
    int64_t a = row / p->out[1], b = row % p->out[1], step = p->at.c;
    const int32_t *at = places_at(p, n, 0, a, b);
    for (int64_t q = 0; q < p->out[2]; q++, at += p->at.s[2]) {
      const char *data = element_at(p, &p->y, n, 0, a * p->y.s[0] + b * p->y.s[1] + q * p->y.s[2]);
      const T *from = NAME(load)(p, data, p->c, p->y.c, dy);
      for (int64_t k = 0; k < p->c; k++) dx[(at[k * step] - 1) * p->c + k] += from[k];
    }
  }
  if (p->x.staged) NAME(put)(p, count, dx, x, 1);
}
#endif
