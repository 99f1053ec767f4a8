// SPDX-License-Identifier: MIT
// The functions of special.h, for any compiler: define CNN_SPECIAL(name), which declares a function
// of that name with a result of double, before.
#define CNN_PI 3.14159265358979323846

CNN_SPECIAL(cnn_digamma)(double x) {
  if (x == 0) return copysign(INFINITY, -x);
  double shift = 0;
  if (x < 0) {
    if (x == floor(x)) return NAN;
    shift = -CNN_PI / tan(CNN_PI * (x - floor(x)));
    x = 1 - x;
  }
  for (; x < 10; x++) shift -= 1 / x;
  double z = 1 / (x * x);
  // B(2k) / (2k): 1/12, -1/120, 1/252, -1/240, 1/132, -691/32760, 1/12
  double series =
      z * (1.0 / 12 - z * (1.0 / 120 -
                           z * (1.0 / 252 -
                                z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
  return shift + log(x) - 0.5 / x - series;
}

CNN_SPECIAL(cnn_trigamma)(double x) {
  double sign = 1, shift = 0;
  if (x <= 0) {
    if (x == floor(x)) return INFINITY;
    double s = sin(CNN_PI * (x - floor(x)));
    shift = -(CNN_PI * CNN_PI) / (s * s);
    sign = -1;
    x = 1 - x;
  }
  for (; x < 10; x++) shift += 1 / (x * x);
  double z = 1 / (x * x);
  double series =
      1 / x + z / 2 +
      z / x *
          (1.0 / 6 -
           z * (1.0 / 30 - z * (1.0 / 42 - z * (1.0 / 30 - z * (5.0 / 66 - z * 691.0 / 2730)))));
  return sign * (shift + series);
}

CNN_SPECIAL(cnn_erfinv)(double x) {
  if (x != x || x < -1 || x > 1) return NAN;
  if (x == 1 || x == -1) return copysign(INFINITY, x);
  // M. Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011), single precision.
  double w = -log((1 - x) * (1 + x)), p;
  if (w < 5) {
    static const double c[] = {2.81022636e-08,  3.43273939e-07, -3.5233877e-06,
                               -4.39150654e-06, 0.00021858087,  -0.00125372503,
                               -0.00417768164,  0.246640727,    1.50140941};
    w -= 2.5;
    p = c[0];
    for (int i = 1; i < 9; i++) p = p * w + c[i];
  } else {
    static const double c[] = {-0.000200214257, 0.000100950558, 0.00134934322,
                               -0.00367342844,  0.00573950773,  -0.0076224613,
                               0.00943887047,   1.00167406,     2.83297682};
    w = sqrt(w) - 3;
    p = c[0];
    for (int i = 1; i < 9; i++) p = p * w + c[i];
  }
  double y = p * x;
  for (int i = 0; i < 2; i++) {
    // Near the ends erfc keeps the digits that 1 - erf loses.
    double ay = fabs(y), ax = fabs(x);
    double error = ax > 0.5 ? (1 - ax) - erfc(ay) : erf(ay) - ax;
    ay -= error / (1.12837916709551257390 * exp(-ay * ay));
    y = copysign(ay, x);
  }
  return y;
}

#undef CNN_PI
