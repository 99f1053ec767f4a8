// SPDX-License-Identifier: MIT
// The loops of cpu/loss.c for one type: included there, with T, N(name) and M(function) defined.

#define LOOP(name, third, expr)                                                                    \
  CNN_CLONES static void name(int64_t n, const pieces *in, void *out) {                            \
    const T *gs = in->g, *xs = in->x, *ys = in->y, *ws = in->w, *p = in->p;                        \
    T *to = out;                                                                                   \
    (void)gs, (void)ws, (void)p;                                                                   \
    SIMD for (int64_t i = 0; i < n; i++) {                                                         \
      const T x = xs[i], y = ys[i], w = HAS_##third ? ws[i] : 1;                                   \
      (void)y, (void)w;                                                                            \
      to[i] = expr;                                                                                \
    }                                                                                              \
  }
#define LOSS(title, flags, third, domain, params, forward, dx, dy, ...)                            \
  LOOP(N(title), third, forward)                                                                   \
  LOOP(N(title##_dx), third, dx)                                                                   \
  LOOP(N(title##_dy), third, dy)
#include "ops/loss.def"
#undef LOSS
#undef LOOP

// The sum of n <= BLOCK elements.
CNN_CLONES static double N(total)(int64_t n, const T *x) {
  const int64_t lanes = sizeof(N(vec)) / sizeof(T), k = n / lanes;
  const N(vec) *v = (const N(vec) *)x;
  N(vec) a = {0}, b = {0};
  int64_t i = 0;
  for (; i + 2 <= k; i += 2) a += v[i], b += v[i + 1];
  if (i < k) a += v[i];
  a += b;
  T sum = N(sum)(&a);
  for (i = k * lanes; i < n; i++) sum += x[i];
  return (double)sum;
}

// Whether all elements are in [0, 1] (a NaN is not).
CNN_CLONES static bool N(in_unit)(int64_t n, const T *x) {
  int outside = 0;
  _Pragma("omp simd reduction(| : outside)") for (int64_t i = 0; i < n; i++) {
    outside |= !(x[i] >= 0 && x[i] <= 1);
  }
  return !outside;
}
