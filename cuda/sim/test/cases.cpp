// SPDX-License-Identifier: MIT
//
// Runs the kernels and compares with the plain computation. Each case returns whether it was right.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "cases.h"
#include "kernels.h"

static uint64_t state = 88172645463325252u;
float uniform() {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return static_cast<float>(state >> 40) / 8388608.0f - 1;
}

std::vector<float> uniforms(size_t n) {
  std::vector<float> r(n);
  for (float &x : r) x = uniform();
  return r;
}

// Written so that NaN is wrong.
bool same(const std::vector<float> &a, const std::vector<float> &b, float tolerance) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); i++)
    if (!(fabsf(a[i] - b[i]) <= tolerance * (1 + fabsf(b[i])))) {
      fprintf(stderr, "  [%zu] is %g, should be %g\n", i, static_cast<double>(a[i]),
              static_cast<double>(b[i]));
      return false;
    }
  return true;
}

bool ok(cudaError_t e, const char *what, int line) {
  if (!e) return true;
  fprintf(stderr, "  line %d: %s: %s\n", line, what, cudaGetErrorName(e));
  return false;
}

static bool vector_add(cudaStream_t s) {
  const int n = 1000;
  const auto a = uniforms(n), b = uniforms(n);
  Device<float> da(a), db(b), dc(n);
  TRY(k_vector_add(da, db, dc, n, s));
  std::vector<float> want(n);
  for (size_t i = 0; i < n; i++) want[i] = a[i] + b[i];
  return same(dc.host(s), want, 1e-6f);
}

static bool axpby(cudaStream_t s) {
  const int n = 777;
  const auto x = uniforms(n), y = uniforms(n);
  Device<float> dx(x), dy(y);
  TRY(k_axpby(axpby_args{dx, dy, 2, -3, n}, s));
  std::vector<float> want(n);
  for (size_t i = 0; i < n; i++) want[i] = 2 * x[i] - 3 * y[i];
  return same(dy.host(s), want, 1e-5f);
}

static bool copy4(cudaStream_t s) {
  const auto x = uniforms(1024);
  Device<float> dx(x), dy(1024);
  TRY(k_copy4(dx, dy, 1024, s));
  return same(dy.host(s), x, 0);
}

static bool half_gelu(cudaStream_t s) {
  const int n = 500;
  std::vector<__half> x(2 * n);
  std::vector<float> want(2 * n), got(2 * n);
  for (size_t i = 0; i < x.size(); i++) {
    x[i] = __float2half(uniform());
    const float v = __half2float(x[i]);
    want[i] = 0.5f * v * (1 + erff(v * 0.70710678f));
  }
  Device<__half> dx(x), dy(x.size());
  TRY(k_half_gelu(dx, dy, n, s));
  const auto y = dy.host(s);
  for (size_t i = 0; i < y.size(); i++) got[i] = __half2float(y[i]);
  return same(got, want, 1e-3f);
}

static bool block_sum(cudaStream_t s) {
  const int n = 1000;
  const auto x = uniforms(n);
  Device<float> dx(x), dy(4);
  TRY(k_block_sum(dx, dy, n, s));
  std::vector<float> want(4);
  for (size_t i = 0; i < n; i++) want[i / 256] += x[i];
  return same(dy.host(s), want, 1e-4f);
}

static bool last_block_sum(cudaStream_t s) {
  const int n = 1500;
  const auto x = uniforms(n);
  Device<float> dx(x), partial(12), out(1);
  Device<unsigned> ticket(std::vector<unsigned>{0});
  TRY(k_last_block_sum(dx, partial, ticket, out, n, s));
  float want = 0;
  for (float v : x) want += v;
  return same(out.host(s), {want}, 1e-4f);
}

static bool layer_norm(cudaStream_t s) {
  const int rows = 6, cols = 100;
  const auto x = uniforms(rows * cols);
  Device<float> dx(x), dy(rows * cols);
  TRY(k_layer_norm(dx, dy, rows, cols, s));
  std::vector<float> want(x.size());
  for (size_t r = 0; r < rows; r++) {
    double sum = 0, square = 0;
    for (size_t c = 0; c < cols; c++) sum += x[r * cols + c];
    for (size_t c = 0; c < cols; c++) square += pow(x[r * cols + c] - sum / cols, 2);
    for (size_t c = 0; c < cols; c++)
      want[r * cols + c] =
          static_cast<float>((x[r * cols + c] - sum / cols) / sqrt(square / cols + 1e-5));
  }
  return same(dy.host(s), want, 1e-3f);
}

static std::vector<float> product(const std::vector<float> &a, const std::vector<float> &b,
                                  size_t m, size_t n, size_t k) {
  std::vector<float> c(m * n);
  for (size_t i = 0; i < m; i++)
    for (size_t l = 0; l < k; l++)
      for (size_t j = 0; j < n; j++) c[i * n + j] += a[i * k + l] * b[l * n + j];
  return c;
}

static bool matmul(cudaStream_t s) {
  const int m = 21, n = 18, k = 27;
  const auto a = uniforms(m * k), b = uniforms(k * n);
  Device<float> da(a), db(b), dc(m * n), dn(m * n);
  TRY(k_matmul(da, db, dc, m, n, k, 1, s));
  TRY(k_matmul(da, db, dn, m, n, k, 0, s));
  const auto want = product(a, b, m, n, k);
  return same(dc.host(s), want, 1e-4f) && same(dn.host(s), want, 1e-4f);
}

static bool transpose(cudaStream_t s) {
  const int rows = 37, cols = 21;
  const auto x = uniforms(rows * cols);
  Device<float> dx(x), dy(rows * cols);
  TRY(k_transpose(dx, dy, rows, cols, s));
  std::vector<float> want(x.size());
  for (size_t r = 0; r < rows; r++)
    for (size_t c = 0; c < cols; c++) want[c * rows + r] = x[r * cols + c];
  return same(dy.host(s), want, 0);
}

static bool softmax(cudaStream_t s) {
  const int rows = 10, cols = 50;
  const auto x = uniforms(rows * cols);
  Device<float> dx(x), dy(rows * cols);
  TRY(k_softmax(dx, dy, rows, cols, s));
  std::vector<float> want(x.size());
  for (size_t r = 0; r < rows; r++) {
    double sum = 0;
    for (size_t c = 0; c < cols; c++) sum += exp(x[r * cols + c]);
    for (size_t c = 0; c < cols; c++)
      want[r * cols + c] = static_cast<float>(exp(x[r * cols + c]) / sum);
  }
  return same(dy.host(s), want, 1e-5f);
}

static bool attention(cudaStream_t s) {
  const int t = 22, d = 12;
  const auto q = uniforms(t * d), k = uniforms(t * d), v = uniforms(t * d);
  Device<float> dq(q), dk(k), dv(v), dy(t * d);
  TRY(k_attention(dq, dk, dv, dy, t, d, s));
  std::vector<float> want(t * d);
  for (size_t i = 0; i < t; i++) {
    double sum = 0, e[t];
    for (size_t j = 0; j < t; j++) {
      double dot = 0;
      for (size_t c = 0; c < d; c++) dot += q[i * d + c] * k[j * d + c];
      sum += e[j] = exp(dot);
    }
    for (size_t c = 0; c < d; c++) {
      double o = 0;
      for (size_t j = 0; j < t; j++) o += e[j] * v[j * d + c];
      want[i * d + c] = static_cast<float>(o / sum);
    }
  }
  return same(dy.host(s), want, 1e-4f);
}

static bool compact(cudaStream_t s) {
  const int n = 700;
  const auto x = uniforms(n);
  Device<float> dx(x), dy(std::vector<float>(n, 0.0f));
  Device<int> count(std::vector<int>{0});
  TRY(k_compact(dx, dy, count, n, s));
  int positives = 0;
  double sum = 0, got = 0;
  for (float v : x)
    if (v > 0) positives++, sum += v;
  const auto y = dy.host(s);
  for (float v : y) got += v;
  return count.host(s)[0] == positives && fabs(got - sum) < 1e-3;
}

static bool embedding_backward(cudaStream_t s) {
  const int n = 60, d = 8, rows = 5;
  const auto dy = uniforms(n * d);
  std::vector<int> index(n);
  for (int &i : index) i = static_cast<int>((uniform() + 1) * 2.49f);
  std::vector<float> want(rows * d);
  for (size_t i = 0; i < n; i++)
    for (size_t c = 0; c < d; c++) want[static_cast<size_t>(index[i]) * d + c] += dy[i * d + c];
  Device<int> di(index);
  Device<float> ddy(dy), dw(std::vector<float>(rows * d, 0.0f));
  TRY(k_embedding_backward(di, ddy, dw, n, d, s));
  return same(dw.host(s), want, 1e-4f);
}

template <class T> static bool mma_gemm(cudaStream_t s, int bf16) {
  const int m = 32, n = 16, k = 80;
  const auto a = uniforms(m * k), b = uniforms(k * n);
  std::vector<T> ha(a.begin(), a.end()), hb(b.begin(), b.end());
  const std::vector<float> ra(ha.begin(), ha.end()), rb(hb.begin(), hb.end());
  Device<T> da(ha), db(hb);
  Device<float> dc(m * n);
  TRY(k_mma_gemm(da, db, dc, m, n, k, bf16, s));
  return same(dc.host(s), product(ra, rb, m, n, k), 1e-4f);
}
static bool mma_f16(cudaStream_t s) {
  return mma_gemm<__half>(s, 0);
}
static bool mma_bf16(cudaStream_t s) {
  return mma_gemm<__nv_bfloat16>(s, 1);
}

const Case cases[] = {{"vector_add", vector_add},
                      {"axpby", axpby},
                      {"copy4", copy4},
                      {"half_gelu", half_gelu},
                      {"block_sum", block_sum},
                      {"last_block_sum", last_block_sum},
                      {"layer_norm", layer_norm},
                      {"matmul", matmul},
                      {"transpose", transpose},
                      {"softmax", softmax},
                      {"attention", attention},
                      {"compact", compact},
                      {"embedding_backward", embedding_backward},
                      {"mma_f16", mma_f16},
                      {"mma_bf16", mma_bf16},
                      {nullptr, nullptr}};
