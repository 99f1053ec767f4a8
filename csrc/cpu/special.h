// SPDX-License-Identifier: MIT
// Functions that libm lacks, in double.
#ifndef CNN_CPU_SPECIAL_H
#define CNN_CPU_SPECIAL_H

// Derivative of log gamma: reflection for x < 0, recurrence up to 10, then the asymptotic series
// (Abramowitz & Stegun 6.3.7, 6.3.5, 6.3.18). -inf at 0 (+inf at -0), NaN at negative integers.
double cnn_digamma(double x);
// Derivative of digamma, likewise (6.4.7, 6.4.6, 6.4.12).
double cnn_trigamma(double x);
// Inverse of erf: Giles' rational start, two Newton steps. +-inf at +-1, NaN outside.
double cnn_erfinv(double x);

#endif
