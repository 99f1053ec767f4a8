// SPDX-License-Identifier: MIT
//
// A matrix product with its epilogue, as cublaslt.cpp hands it to the stream: all that is computed,
// by value.
#ifndef SIM_MATMUL_H
#define SIM_MATMUL_H

#include "include/sim_internal.h"
#include "library.h"

namespace sim {

struct Matrix {
  Elem type;
  int64_t rows, cols, row_step, col_step, stride; // of the matrix as it is stored
  const char *p;

  int64_t index(int64_t r, int64_t c, int64_t b) const {
    return r * row_step + c * col_step + b * stride;
  }
  bool same_layout(const Matrix &o) const {
    return type == o.type && rows == o.rows && cols == o.cols && row_step == o.row_step &&
           col_step == o.col_step && stride == o.stride;
  }
  // Calls f(first element, length) for every run of memory of batch b.
  template <typename F> void runs(int64_t b, F f) const {
    bool by_col = row_step == 1;
    for (int64_t i = 0; i < (by_col ? cols : rows); i++) {
      f(index(by_col ? 0 : i, by_col ? i : 0, b), by_col ? rows : cols);
    }
  }
  void touch_read(int64_t b) const {
    runs(b, [this](int64_t at, int64_t n) {
      sim_touch_read(p + at * int64_t(size_of(type)), size_t(n) * size_of(type));
    });
  }
  void touch_write(int64_t b) const {
    runs(b, [this](int64_t at, int64_t n) {
      sim_touch_write(p + at * int64_t(size_of(type)), size_t(n) * size_of(type));
    });
  }
  int64_t span(int64_t batch) const { // elements from the first to the last
    return index(rows - 1, cols - 1, batch - 1) + 1;
  }
};

struct Problem {
  int64_t m, n, k, batch;
  Matrix a, b, c, d;
  bool trans_a, trans_b, wide, tf32, device_scalars;
  uint32_t epilogue;
  Elem bias_type;
  const void *bias;
  int64_t bias_stride, aux_ld, aux_stride;
  char *aux;
  double alpha, beta;
  const void *alpha_p, *beta_p; // in device memory
  char *workspace;
  size_t workspace_size;
};

inline bool has(uint32_t epilogue, uint32_t what) {
  return (epilogue & what) == what;
}

// The bits that epilogues are made of.
constexpr uint32_t E_RELU = 2, E_BIAS = 4, E_DRELU = 8, E_BGRAD = 16, E_GELU = 32, E_DGELU = 64,
                   E_AUX = 128, E_BGRADA = 256, E_BGRADB = 512;

// Computes it, on device memory that is open.
void compute(const Problem &p);

} // namespace sim
#endif
