// SPDX-License-Identifier: MIT
// The parts of a convolution that compute, for one type. cpu/conv.c includes this file once for
// each, with T, NAME and GEMM set; `conv`, `operand` and `tile` are explained there.
//
// "Columns" are x unfolded for the matrix product: for each place of a tile of y the elements under
// the kernel. For row-major x they are (channel, tap) x place, for channels-last x place x
// (tap, channel): so that both sides are runs of memory.

// ---- Columns, and their transpose: sums back into x

CNN_CLONES static void NAME(gather_first)(const conv *v, const operand *x, int64_t channels,
                                          const tile *at, T *cols) {
  const int64_t step = v->stride[2] * x->s[2], end = at->from + at->width;
  for (int64_t ct = 0; ct < channels * v->taps; ct++) {
    tap p = tap_at(v, ct % v->taps);
    walk row = walk_from(v, at->row);
    const T *from = (const T *)x->data + ct / v->taps * x->c + p.w * x->s[2];
    int64_t first = p.first < at->from ? at->from : p.first, last = p.last < end ? p.last : end;
    for (int64_t r = 0; r < at->rows; r++, walk_on(v, &row), cols += at->width) {
      int64_t offset = row_offset(v, x, &row, &p);
      int64_t lo = offset < 0 || first >= last ? end : first, hi = lo == end ? end : last;
      const T *source = from + offset;
      T *to = cols - at->from;
      for (int64_t i = at->from; i < lo; i++) to[i] = 0;
      if (step == 1)
        for (int64_t i = lo; i < hi; i++) to[i] = source[i];
      else
        for (int64_t i = lo; i < hi; i++) to[i] = source[i * step];
      for (int64_t i = hi; i < end; i++) to[i] = 0;
    }
  }
}

CNN_CLONES static void NAME(scatter_first)(const conv *v, const operand *x, int64_t channels,
                                           const tile *at, const T *cols) {
  const int64_t step = v->stride[2] * x->s[2], end = at->from + at->width;
  for (int64_t ct = 0; ct < channels * v->taps; ct++) {
    tap p = tap_at(v, ct % v->taps);
    walk row = walk_from(v, at->row);
    T *to = (T *)(void *)x->data + ct / v->taps * x->c + p.w * x->s[2];
    int64_t first = p.first < at->from ? at->from : p.first, last = p.last < end ? p.last : end;
    for (int64_t r = 0; r < at->rows; r++, walk_on(v, &row), cols += at->width) {
      int64_t offset = row_offset(v, x, &row, &p);
      if (offset < 0) continue;
      T *target = to + offset;
      const T *from = cols - at->from;
      if (step == 1)
        for (int64_t i = first; i < last; i++) target[i] += from[i];
      else
        for (int64_t i = first; i < last; i++) target[i * step] += from[i];
    }
  }
}

CNN_CLONES static void NAME(gather_last)(const conv *v, const operand *x, int64_t channels,
                                         const tile *at, T *cols) {
  const int64_t step = v->stride[2] * x->s[2], place = v->taps * channels;
  const int64_t end = at->from + at->width;
  for (int64_t t = 0; t < v->taps; t++) {
    tap p = tap_at(v, t);
    walk row = walk_from(v, at->row);
    T *to = cols + t * channels;
    for (int64_t r = 0; r < at->rows; r++, walk_on(v, &row)) {
      int64_t offset = row_offset(v, x, &row, &p);
      const T *source = (const T *)x->data + offset + p.w * x->s[2];
      for (int64_t q = at->from; q < end; q++, to += place) {
        if (offset < 0 || q < p.first || q >= p.last)
          for (int64_t c = 0; c < channels; c++) to[c] = 0;
        else
          for (int64_t c = 0; c < channels; c++) to[c] = source[q * step + c];
      }
    }
  }
}

CNN_CLONES static void NAME(scatter_last)(const conv *v, const operand *x, int64_t channels,
                                          const tile *at, const T *cols) {
  const int64_t step = v->stride[2] * x->s[2], place = v->taps * channels;
  const int64_t end = at->from + at->width;
  for (int64_t t = 0; t < v->taps; t++) {
    tap p = tap_at(v, t);
    walk row = walk_from(v, at->row);
    const T *from = cols + t * channels;
    int64_t first = p.first < at->from ? at->from : p.first, last = p.last < end ? p.last : end;
    for (int64_t r = 0; r < at->rows; r++, walk_on(v, &row), from += at->width * place) {
      int64_t offset = row_offset(v, x, &row, &p);
      T *target = (T *)(void *)x->data + offset + p.w * x->s[2];
      const T *source = from - at->from * place;
      for (int64_t q = offset < 0 ? last : first; q < last; q++)
        for (int64_t c = 0; c < channels; c++) target[q * step + c] += source[q * place + c];
    }
  }
}

// Every place of a tile starts as the bias: of kg channels, c apart, at places that are `step`
// apart.
CNN_CLONES static void NAME(start)(int64_t channels, int64_t places, const T *bias, T *y, int64_t c,
                                   int64_t step) {
  if (c == 1) {
    for (int64_t i = 0; i < places; i++)
      for (int64_t k = 0; k < channels; k++) y[i * step + k] = bias[k];
    return;
  }
  for (int64_t k = 0; k < channels; k++, y += c) {
    const T value = bias[k];
    if (step == 1)
      for (int64_t i = 0; i < places; i++) y[i] = value;
    else
      for (int64_t i = 0; i < places; i++) y[i * step] = value;
  }
}

// The columns of a tile: their matrix is place x element with these strides. A pointwise kernel
// reads x itself.
static const T *NAME(columns)(const conv *v, const operand *x, int64_t channels, const tile *at,
                              T *cols, int64_t *place, int64_t *element) {
  if (v->pointwise) {
    *place = x->step, *element = x->c;
    return (const T *)x->data + at->place * x->step;
  }
  *place = v->last ? channels * v->taps : 1;
  *element = v->last ? 1 : at->places;
  if (v->last)
    NAME(gather_last)(v, x, channels, at, cols);
  else
    NAME(gather_first)(v, x, channels, at, cols);
  return cols;
}

// ---- Tasks by matrix products. Weights are rows (k) of (c, tap), or (tap, c) for channels-last.

// One tile of one image and group.
static void NAME(forward)(const void *arg, int64_t task, char *scratch) {
  const conv *v = arg;
  int64_t g = task / v->tiles % v->groups, n = task / v->tiles / v->groups, place, element;
  tile at = tile_at(v, task % v->tiles);
  operand x = image(v, &v->x, n, g * v->cg, v->cg, true, &scratch), y = v->y;
  T *cols = cnn_take(&scratch, v->cols_bytes);
  const T *from = NAME(columns)(v, &x, v->cg, &at, cols, &place, &element);
  const T *w = (const T *)v->weights + g * v->kg * v->w_row;
  const T *b = v->bias ? (const T *)v->bias + g * v->kg : NULL;
  bool half = cnn_dtype_is_half(v->dtype);
  T *to = cnn_take(&scratch, half ? v->tile_bytes : 0);
  if (half)
    y.c = v->last ? 1 : at.places, y.step = v->last ? v->kg : 1;
  else
    to = (T *)element_at(v, &y, n, g * v->kg, at.place);
  if (b) NAME(start)(v->kg, at.places, b, to, y.c, y.step);
  if (v->last)
    GEMM(at.places, v->kg, v->inner, 1, from, place, element, w, 1, v->w_row, b ? 1 : 0, to, y.step,
         y.c, scratch);
  else
    GEMM(v->kg, at.places, v->inner, 1, w, v->w_row, 1, from, element, place, b ? 1 : 0, to, y.c,
         y.step, scratch);
  if (half) store(v, &v->y, n, g * v->kg, v->kg, at.place, at.places, to, y.c, y.step);
}

// The gradient of a block of channels of one group of one image.
static void NAME(backward_input)(const void *arg, int64_t task, char *scratch) {
  const conv *v = arg;
  int64_t g = task / v->blocks % v->groups, n = task / v->blocks / v->groups, c0;
  int64_t channels = block_at(v, task % v->blocks, &c0), inner = channels * v->taps;
  operand y = image(v, &v->y, n, g * v->kg, v->kg, true, &scratch);
  operand x = image(v, &v->x, n, g * v->cg + c0, channels, false, &scratch);
  T *cols = cnn_take(&scratch, v->cols_bytes);
  const T *w = (const T *)v->weights + g * v->kg * v->w_row + (v->last ? 0 : c0 * v->taps);
  if (!v->pointwise) clear(v, &x, channels, sizeof(T));
  for (int64_t i = 0; i < v->tiles; i++) {
    tile at = tile_at(v, i);
    const T *dy = (const T *)y.data + at.place * y.step;
    T *to = v->pointwise ? (T *)(void *)x.data + at.place * x.step : cols;
    int64_t place = v->pointwise ? x.step : v->last ? inner : 1;
    int64_t element = v->pointwise ? x.c : v->last ? 1 : at.places;
    if (v->last)
      GEMM(at.places, inner, v->kg, 1, dy, y.step, y.c, w, v->w_row, 1, 0, to, place, element,
           scratch);
    else
      GEMM(inner, at.places, v->kg, 1, w, 1, v->w_row, dy, y.c, y.step, 0, to, element, place,
           scratch);
    if (v->pointwise) continue;
    if (v->last)
      NAME(scatter_last)(v, &x, channels, &at, cols);
    else
      NAME(scatter_first)(v, &x, channels, &at, cols);
  }
  if (x.staged) store(v, &v->x, n, g * v->cg + c0, channels, 0, v->x.places, x.data, x.c, x.step);
}

// The gradient for a block of channels of one group, summed over a part of the batch.
static void NAME(backward_weight)(const void *arg, int64_t task, char *scratch) {
  const conv *v = arg;
  int64_t g = task / v->blocks % v->groups, part = task / v->blocks / v->groups, c0;
  int64_t channels = block_at(v, task % v->blocks, &c0), inner = channels * v->taps;
  int64_t first = part * v->n / v->parts, last = (part + 1) * v->n / v->parts;
  T *dw = (T *)v->sums + (part * v->k + g * v->kg) * v->w_row + (v->last ? 0 : c0 * v->taps);
  T beta = 0;
  for (int64_t n = first; n < last; n++) {
    char *left = scratch;
    operand y = image(v, &v->y, n, g * v->kg, v->kg, true, &left);
    operand x = image(v, &v->x, n, g * v->cg + c0, channels, true, &left);
    T *cols = cnn_take(&left, v->cols_bytes);
    for (int64_t i = 0; i < v->tiles; i++, beta = 1) {
      int64_t place, element;
      tile at = tile_at(v, i);
      const T *from = NAME(columns)(v, &x, channels, &at, cols, &place, &element);
      GEMM(v->kg, inner, at.places, 1, (const T *)y.data + at.place * y.step, y.c, y.step, from,
           place, element, beta, dw, v->w_row, 1, left);
    }
  }
  for (int64_t k = 0; beta == 0 && k < v->kg; k++)
    for (int64_t i = 0; i < inner; i++) dw[k * v->w_row + i] = 0;
}

// ---- Depthwise (one input channel per group), directly. Channels-last weights are (tap, k).

CNN_CLONES static void NAME(planes_forward)(const conv *v, const T *x, const operand *xs, T *plane,
                                            const T *w, T bias) {
  const int64_t step = v->stride[2] * xs->s[2];
  for (int64_t i = 0; i < v->rows * v->out[2]; i++) plane[i] = bias;
  for (int64_t t = 0; t < v->taps; t++) {
    tap p = tap_at(v, t);
    walk row = walk_from(v, 0);
    const T f = w[t];
    T *y = plane;
    for (int64_t r = 0; r < v->rows; r++, walk_on(v, &row), y += v->out[2]) {
      int64_t offset = row_offset(v, xs, &row, &p);
      if (offset < 0) continue;
      const T *from = x + offset + p.w * xs->s[2];
      if (step == 1)
        for (int64_t i = p.first; i < p.last; i++) y[i] += f * from[i];
      else
        for (int64_t i = p.first; i < p.last; i++) y[i] += f * from[i * step];
    }
  }
}

CNN_CLONES static void NAME(planes_input)(const conv *v, T *x, const operand *xs, const T *plane,
                                          const T *w) {
  const int64_t step = v->stride[2] * xs->s[2];
  for (int64_t t = 0; t < v->taps; t++) {
    tap p = tap_at(v, t);
    walk row = walk_from(v, 0);
    const T f = w[t], *y = plane;
    for (int64_t r = 0; r < v->rows; r++, walk_on(v, &row), y += v->out[2]) {
      int64_t offset = row_offset(v, xs, &row, &p);
      if (offset < 0) continue;
      T *to = x + offset + p.w * xs->s[2];
      if (step == 1)
        for (int64_t i = p.first; i < p.last; i++) to[i] += f * y[i];
      else
        for (int64_t i = p.first; i < p.last; i++) to[i * step] += f * y[i];
    }
  }
}

CNN_CLONES static void NAME(planes_weight)(const conv *v, const T *x, const operand *xs,
                                           const T *plane, T *w) {
  const int64_t step = v->stride[2] * xs->s[2];
  for (int64_t t = 0; t < v->taps; t++) {
    tap p = tap_at(v, t);
    walk row = walk_from(v, 0);
    const T *y = plane;
    for (int64_t r = 0; r < v->rows; r++, walk_on(v, &row), y += v->out[2]) {
      int64_t offset = row_offset(v, xs, &row, &p);
      if (offset < 0) continue;
      const T *from = x + offset + p.w * xs->s[2];
      T sum = 0;
      if (step == 1) {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = p.first; i < p.last; i++) sum += y[i] * from[i];
      } else {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = p.first; i < p.last; i++) sum += y[i] * from[i * step];
      }
      w[t] += sum;
    }
  }
}

// One image, channels-last. y = bias + w x; dx += w dy; dw += dy x, each over all channels.
CNN_CLONES static void NAME(channels_forward)(const conv *v, const T *x, const operand *xs, T *y,
                                              const T *w, const T *bias) {
  const int64_t step = v->stride[2] * xs->s[2], channels = v->k;
  walk row = walk_from(v, 0);
  for (int64_t r = 0; r < v->rows; r++, walk_on(v, &row), y += v->out[2] * channels) {
    for (int64_t q = 0; q < v->out[2]; q++)
      for (int64_t k = 0; k < channels; k++) y[q * channels + k] = bias ? bias[k] : 0;
    for (int64_t t = 0; t < v->taps; t++) {
      tap p = tap_at(v, t);
      int64_t offset = row_offset(v, xs, &row, &p);
      const T *from = x + offset + p.w * xs->s[2], *f = w + t * channels;
      for (int64_t q = offset < 0 ? p.last : p.first; q < p.last; q++)
        for (int64_t k = 0; k < channels; k++) y[q * channels + k] += f[k] * from[q * step + k];
    }
  }
}

CNN_CLONES static void NAME(channels_input)(const conv *v, T *x, const operand *xs, const T *y,
                                            const T *w) {
  const int64_t step = v->stride[2] * xs->s[2], channels = v->k;
  walk row = walk_from(v, 0);
  for (int64_t r = 0; r < v->rows; r++, walk_on(v, &row), y += v->out[2] * channels) {
    for (int64_t t = 0; t < v->taps; t++) {
      tap p = tap_at(v, t);
      int64_t offset = row_offset(v, xs, &row, &p);
      T *to = x + offset + p.w * xs->s[2];
      const T *f = w + t * channels;
      for (int64_t q = offset < 0 ? p.last : p.first; q < p.last; q++)
        for (int64_t k = 0; k < channels; k++) to[q * step + k] += f[k] * y[q * channels + k];
    }
  }
}

CNN_CLONES static void NAME(channels_weight)(const conv *v, const T *x, const operand *xs,
                                             const T *y, T *w) {
  const int64_t step = v->stride[2] * xs->s[2], channels = v->k;
  walk row = walk_from(v, 0);
  for (int64_t r = 0; r < v->rows; r++, walk_on(v, &row), y += v->out[2] * channels) {
    for (int64_t t = 0; t < v->taps; t++) {
      tap p = tap_at(v, t);
      int64_t offset = row_offset(v, xs, &row, &p);
      const T *from = x + offset + p.w * xs->s[2];
      T *to = w + t * channels;
      for (int64_t q = offset < 0 ? p.last : p.first; q < p.last; q++)
        for (int64_t k = 0; k < channels; k++) to[k] += y[q * channels + k] * from[q * step + k];
    }
  }
}

// A group of one image; channels-last, all groups of one image.
static void NAME(direct_forward)(const void *arg, int64_t task, char *scratch) {
  const conv *v = arg;
  int64_t g = v->last ? 0 : task % v->groups, n = v->last ? task : task / v->groups;
  int64_t all = v->last ? v->k : v->kg;
  operand x = image(v, &v->x, n, g, v->last ? v->c : 1, true, &scratch);
  operand y = image(v, &v->y, n, g * v->kg, all, false, &scratch);
  const T *w = (const T *)v->weights + g * v->kg * v->w_row, *b = (const T *)v->bias;
  T *to = (T *)(void *)y.data;
  if (v->last) {
    NAME(channels_forward)(v, (const T *)x.data, &x, to, w, b);
  } else {
    for (int64_t k = 0; k < v->kg; k++) NAME(planes_forward)
    (v, (const T *)x.data, &x, to + k * y.c, w + k * v->w_row, b ? b[g * v->kg + k] : 0);
  }
  if (y.staged) store(v, &v->y, n, g * v->kg, all, 0, v->y.places, to, y.c, y.step);
}

static void NAME(direct_input)(const void *arg, int64_t task, char *scratch) {
  const conv *v = arg;
  int64_t g = v->last ? 0 : task % v->groups, n = v->last ? task : task / v->groups;
  int64_t channels = v->last ? v->c : 1;
  operand y = image(v, &v->y, n, g * v->kg, v->last ? v->k : v->kg, true, &scratch);
  operand x = image(v, &v->x, n, g, channels, false, &scratch);
  const T *w = (const T *)v->weights + g * v->kg * v->w_row, *from = (const T *)y.data;
  clear(v, &x, channels, sizeof(T));
  if (v->last) {
    NAME(channels_input)(v, (T *)(void *)x.data, &x, from, w);
  } else {
    for (int64_t k = 0; k < v->kg; k++)
      NAME(planes_input)(v, (T *)(void *)x.data, &x, from + k * y.c, w + k * v->w_row);
  }
  if (x.staged) store(v, &v->x, n, g, channels, 0, v->x.places, x.data, x.c, x.step);
}

// A part of the batch; row-major, of one group.
static void NAME(direct_weight)(const void *arg, int64_t task, char *scratch) {
  const conv *v = arg;
  int64_t g = v->last ? 0 : task % v->groups, part = v->last ? task : task / v->groups;
  int64_t first = part * v->n / v->parts, last = (part + 1) * v->n / v->parts;
  int64_t all = v->last ? v->k : v->kg;
  T *dw = (T *)v->sums + (part * v->k + g * v->kg) * v->w_row;
  for (int64_t i = 0; i < all * v->taps; i++) dw[i] = 0;
  for (int64_t n = first; n < last; n++) {
    char *left = scratch;
    operand y = image(v, &v->y, n, g * v->kg, all, true, &left);
    operand x = image(v, &v->x, n, g, v->last ? v->c : 1, true, &left);
    const T *from = (const T *)y.data;
    if (v->last) {
      NAME(channels_weight)(v, (const T *)x.data, &x, from, dw);
    } else {
      for (int64_t k = 0; k < v->kg; k++)
        NAME(planes_weight)(v, (const T *)x.data, &x, from + k * y.c, dw + k * v->taps);
    }
  }
}

// ---- The bias's gradient: sums of dy over a block of channels, long sums in double

CNN_CLONES static double NAME(sum_run)(const T *y, int64_t count) {
  double total = 0;
  for (int64_t i = 0; i < count;) {
    int64_t end = count - i < 1024 ? count : i + 1024;
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = i; k < end; k++) sum += y[k];
    total += (double)sum;
    i = end;
  }
  return total;
}

CNN_CLONES static void NAME(sum_rows)(const T *y, int64_t step, int64_t rows, int64_t channels,
                                      double *total) {
  T sum[BIAS_BLOCK];
  for (int64_t i = 0; i < rows;) {
    int64_t end = rows - i < 256 ? rows : i + 256;
    for (int64_t c = 0; c < BIAS_BLOCK; c++) sum[c] = 0;
    for (; i < end; i++)
      for (int64_t c = 0; c < channels; c++) sum[c] += y[i * step + c];
    for (int64_t c = 0; c < channels; c++) total[c] += (double)sum[c];
  }
}

static void NAME(bias_gradient)(const void *arg, int64_t task, char *scratch) {
  const conv *v = arg;
  int64_t k0 = task * BIAS_BLOCK, channels = v->k - k0 < BIAS_BLOCK ? v->k - k0 : BIAS_BLOCK;
  double total[BIAS_BLOCK] = {0};
  for (int64_t n = 0; n < v->n; n++) {
    char *left = scratch;
    operand y = image(v, &v->y, n, k0, channels, true, &left);
    const T *from = (const T *)y.data;
    if (y.c == 1) {
      NAME(sum_rows)(from, y.step, y.places, channels, total);
      continue;
    }
    for (int64_t c = 0; c < channels; c++) {
      if (y.step == 1)
        total[c] += NAME(sum_run)(from + c * y.c, y.places);
      else
        for (int64_t i = 0; i < y.places; i++) total[c] += (double)from[c * y.c + i * y.step];
    }
  }
  size_t size = cnn_dtype_size(v->dtype);
  for (int64_t c = 0; c < channels; c++)
    cnn_element_set(v->dtype, v->db + (size_t)(k0 + c) * size, total[c]);
}
