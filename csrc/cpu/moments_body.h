// SPDX-License-Identifier: MIT
// Mean and variance of a run, for one type: included with T (float, double) and N(name) defined.

// Count, mean and sum of squared deviations of x[0, n), n <= BLOCK, joined to those of m. The
// deviations are from the run's own mean, and corrected for that mean's rounding: nothing is lost
// when the mean is large.
CNN_CLONES static void N(moments)(int64_t n, const T *x, moments *m) {
  const int64_t lanes = sizeof(N(vec)) / sizeof(T), k = n / lanes;
  const N(vec) *v = (const N(vec) *)x;
  N(vec) a = {0}, b = {0}, c = {0}, d = {0};
  int64_t i = 0;
  for (; i + 4 <= k; i += 4) a += v[i], b += v[i + 1], c += v[i + 2], d += v[i + 3];
  for (; i < k; i++) a += v[i];
  a = (a + b) + (c + d);
  T mean = N(sum)(&a);
  for (i = k * lanes; i < n; i++) mean += x[i];
  mean /= (T)n;

  N(vec) dev = {0}, dev2 = {0}, sq = {0}, sq2 = {0};
  for (i = 0; i + 2 <= k; i += 2) {
    const N(vec) p = v[i] - mean, q = v[i + 1] - mean;
    dev += p, dev2 += q;
    sq += p * p, sq2 += q * q;
  }
  if (i < k) {
    const N(vec) p = v[i] - mean;
    dev += p, sq += p * p;
  }
  dev += dev2, sq += sq2;
  T off = N(sum)(&dev), squares = N(sum)(&sq);
  for (i = k * lanes; i < n; i++) {
    const T p = x[i] - mean;
    off += p, squares += p * p;
  }
  const double shift = (double)off / (double)n;
  const moments block = {(double)n, (double)mean + shift,
                         (double)squares - shift * shift * (double)n};
  join(m, &block);
}
