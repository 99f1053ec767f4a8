// SPDX-License-Identifier: MIT
// The derivatives of unary.def as functions for map.cuh.
#include "map.cuh"
#include "scalar.cuh"

#include "cpu/expression.h"

#define M(f) m_##f
#define P(i) p[i]
#define PREDICATE(...)

enum {
#define UNARY(title, ...) ROW_##title##_backward,
#include "ops/unary.def"
#undef UNARY
};

#define UNARY(title, kind, spec, forward, saved, derivative, doc)                                  \
  K_ROW(title##_backward, T, 2, (T G, T V), ((void)G, (void)V, derivative))
#include "ops/unary.def"
#undef UNARY

template <class T> struct f_unary_backward : k_row<T, 2> {
  __device__ T operator()(T G, T V) const {
    switch (this->row) {
#define UNARY(title, ...) K_ROW_CASE(title##_backward, FLOAT, G, V)
#include "ops/unary.def"
#undef UNARY
    }
    return G;
  }
};

#define UNARY(title, ...)                                                                          \
  K_ROW_KERNEL(title##_backward, f_##title##_backward<float>, f_unary_backward)
#include "ops/unary.def"
