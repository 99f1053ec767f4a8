// SPDX-License-Identifier: MIT
//
// The products of cublaslt.cpp by plain loops: operands are unpacked into the type of the sums, the
// product is taken, the epilogue follows element by element.
#include "matmul.h"
#include <string.h>
#include <algorithm>
#include <vector>

namespace sim {

namespace {

template <typename T>
void unpack(const Matrix &m, int64_t b, bool trans, bool tf32, std::vector<T> *out) {
  int64_t rows = trans ? m.cols : m.rows, cols = trans ? m.rows : m.cols;
  out->resize(size_t(rows * cols));
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t c = 0; c < cols; c++) {
      T v = load<T>(m.type, m.p, trans ? m.index(c, r, b) : m.index(r, c, b));
      if (tf32) v = T(tf32_of_float(float(v)));
      (*out)[size_t(r * cols + c)] = v;
    }
  }
}

// sums = a b, in pieces of k as the library's: a sum over all of k in one go would round more.
template <typename T>
void multiply(const Problem &p, const std::vector<T> &a, const std::vector<T> &b,
              std::vector<T> *sums) {
  constexpr int64_t PIECE = 128;
  std::vector<T> row(size_t(p.n));
  sums->assign(size_t(p.m * p.n), T(0));
  for (int64_t i = 0; i < p.m; i++) {
    T *to = sums->data() + i * p.n;
    for (int64_t k0 = 0; k0 < p.k; k0 += PIECE) {
      std::fill(row.begin(), row.end(), T(0));
      for (int64_t k = k0; k < std::min(p.k, k0 + PIECE); k++) {
        T v = a[size_t(i * p.k + k)];
        const T *from = b.data() + k * p.n;
        for (int64_t j = 0; j < p.n; j++) row[size_t(j)] += v * from[j];
      }
      for (int64_t j = 0; j < p.n; j++) to[j] += row[size_t(j)];
    }
  }
}

template <typename T>
void finish(const Problem &p, int64_t bi, T alpha, T beta, const std::vector<T> &a,
            const std::vector<T> &b, const std::vector<T> &sums) {
  const uint32_t e = p.epilogue;
  const bool gelu_like = has(e, E_GELU) || has(e, E_DGELU);
  const size_t bias_size = size_of(p.bias_type);
  const int64_t bias_count = has(e, E_BGRADB) ? p.n : p.m;
  const char *bias = static_cast<const char *>(p.bias) + bi * p.bias_stride * int64_t(bias_size);
  char *aux = p.aux ? p.aux + (gelu_like ? bi * p.aux_stride * int64_t(size_of(p.d.type))
                                         : bi * p.aux_stride / 8)
                    : nullptr;
  if (has(e, E_BIAS)) sim_touch_read(bias, size_t(bias_count) * bias_size);
  if (e & (E_BGRAD | E_BGRADA | E_BGRADB)) sim_touch_write(bias, size_t(bias_count) * bias_size);
  for (int64_t j = 0; has(e, E_AUX) && j < p.n; j++) {
    size_t bytes = gelu_like ? size_t(p.m) * size_of(p.d.type) : size_t(p.m + 7) / 8;
    char *at = aux + (gelu_like ? j * p.aux_ld * int64_t(size_of(p.d.type)) : j * p.aux_ld / 8);
    if (e & (E_DRELU | E_DGELU))
      sim_touch_read(at, bytes);
    else
      sim_touch_write(at, bytes);
    if (has(e, E_RELU)) memset(at, 0, bytes);
  }
  if (beta != 0) p.c.touch_read(bi);
  p.d.touch_write(bi);
  std::vector<T> total(size_t(bias_count), T(0));
  for (int64_t i = 0; i < p.m; i++) {
    for (int64_t j = 0; j < p.n; j++) {
      T v = alpha == 0 ? T(0) : alpha * sums[size_t(i * p.n + j)];
      if (beta != 0) v += beta * load<T>(p.c.type, p.c.p, p.c.index(i, j, bi));
      if (has(e, E_BIAS)) v += load<T>(p.bias_type, bias, i);
      int64_t at = gelu_like ? j * p.aux_ld + i : j * (p.aux_ld / 8) + i / 8;
      unsigned char bit = static_cast<unsigned char>(1u << (i % 8));
      if (has(e, E_RELU)) {
        if (has(e, E_AUX) && v > 0) aux[at] = char(aux[at] | bit);
        v = v > 0 ? v : T(0);
      } else if (has(e, E_GELU)) {
        if (has(e, E_AUX)) store(p.d.type, aux, at, v);
        v = gelu(v);
      } else if (has(e, E_DRELU)) {
        v = aux[at] & bit ? v : T(0);
      } else if (has(e, E_DGELU)) {
        v *= gelu_slope(load<T>(p.d.type, aux, at));
      }
      if (has(e, E_BGRAD)) total[size_t(i)] += v;
      store(p.d.type, const_cast<char *>(p.d.p), p.d.index(i, j, bi), v);
    }
  }
  for (int64_t k = 0; k < p.k; k++) {
    for (int64_t i = 0; has(e, E_BGRADA) && i < p.m; i++)
      total[size_t(i)] += a[size_t(i * p.k + k)];
    for (int64_t j = 0; has(e, E_BGRADB) && j < p.n; j++)
      total[size_t(j)] += b[size_t(k * p.n + j)];
  }
  if (e & (E_BGRAD | E_BGRADA | E_BGRADB)) {
    for (int64_t i = 0; i < bias_count; i++)
      store(p.bias_type, const_cast<char *>(bias), i, total[size_t(i)]);
  }
}

template <typename T> void compute_in(const Problem &p) {
  std::vector<T> a, b, sums;
  T alpha = T(p.alpha), beta = T(p.beta);
  if (p.device_scalars) {
    sim_touch_read(p.alpha_p, sizeof(T));
    sim_touch_read(p.beta_p, sizeof(T));
    alpha = *static_cast<const T *>(p.alpha_p);
    beta = *static_cast<const T *>(p.beta_p);
  }
  if (p.workspace_size) {
    sim_touch_write(p.workspace, p.workspace_size);
    memset(p.workspace, 0xFF, p.workspace_size);
  }
  for (int64_t bi = 0; bi < p.batch; bi++) {
    p.a.touch_read(bi);
    p.b.touch_read(bi);
    unpack(p.a, bi, p.trans_a, p.tf32, &a);
    unpack(p.b, bi, p.trans_b, p.tf32, &b);
    multiply(p, a, b, &sums);
    finish(p, bi, alpha, beta, a, b, sums);
  }
}

} // namespace

void compute(const Problem &p) {
  if (p.wide)
    compute_in<double>(p);
  else
    compute_in<float>(p);
}

} // namespace sim
