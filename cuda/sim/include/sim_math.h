// SPDX-License-Identifier: MIT
//
// Device functions that the C library lacks. What CUDA rounds correctly is exact here too; the
// approximate ones (__expf ...) are the accurate ones, with an error of up to 2 ulp where
// SIM_NOISE=1 asks for it. Part of sim_device.h.
#ifndef SIM_MATH_H
#define SIM_MATH_H

using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

// min and max of the types that CUDA overloads, mixed ones by the usual conversions. NaN: the
// other.
template <class A, class B,
          class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
std::common_type_t<A, B> min(A a, B b) {
  typedef std::common_type_t<A, B> T;
  if constexpr (std::is_floating_point_v<T>)
    return std::fmin(static_cast<T>(a), static_cast<T>(b));
  else
    return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B,
          class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
std::common_type_t<A, B> max(A a, B b) {
  typedef std::common_type_t<A, B> T;
  if constexpr (std::is_floating_point_v<T>)
    return std::fmax(static_cast<T>(a), static_cast<T>(b));
  else
    return static_cast<T>(b) > static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}

inline float rsqrtf(float x) {
  return static_cast<float>(1.0 / sqrt(static_cast<double>(x)));
}
inline double rsqrt(double x) {
  return 1.0 / sqrt(x);
}
inline float rcbrtf(float x) {
  return 1.0f / cbrtf(x);
}
inline double rcbrt(double x) {
  return 1.0 / cbrt(x);
}
inline float __saturatef(float x) {
  return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f;
}
inline double sim_sinpi(double x) {
  return sin(M_PI * fmod(x, 2.0));
}
inline double sim_cospi(double x) {
  return cos(M_PI * fmod(x, 2.0));
}
inline float sinpif(float x) {
  return static_cast<float>(sim_sinpi(x));
}
inline float cospif(float x) {
  return static_cast<float>(sim_cospi(x));
}
inline double sinpi(double x) {
  return sim_sinpi(x);
}
inline double cospi(double x) {
  return sim_cospi(x);
}
inline void sincospif(float x, float *s, float *c) {
  *s = sinpif(x), *c = cospif(x);
}
inline void sincospi(double x, double *s, double *c) {
  *s = sinpi(x), *c = cospi(x);
}
inline double normcdf(double x) {
  return 0.5 * erfc(-x * M_SQRT1_2);
}
inline float normcdff(float x) {
  return static_cast<float>(normcdf(x));
}
inline double erfcx(double x) { // asymptotic where exp(x^2) would overflow
  return x < 25 ? exp(x * x) * erfc(x) : 1 / (x * 1.7724538509055159) * (1 - 0.5 / (x * x));
}
inline float erfcxf(float x) {
  return static_cast<float>(erfcx(x));
}
// Giles' start (2012), then Newton steps on erf.
inline double erfinv(double y) {
  if (!(fabs(y) < 1)) return fabs(y) == 1 ? copysign(HUGE_VAL, y) : NAN;
  const double a = 0.147, l = log1p(-y * y), t = 2 / (M_PI * a) + l / 2;
  double x = copysign(sqrt(sqrt(t * t - l / a) - t), y);
  for (int i = 0; i < 4; i++) {
    const double d = 1.1283791670955126 * exp(-x * x);
    const double e = y > 0.5 ? (1 - y) - erfc(x) : y < -0.5 ? erfc(-x) - (1 + y) : erf(x) - y;
    if (d == 0) break;
    x -= e / d;
  }
  return x;
}
inline float erfinvf(float y) {
  return static_cast<float>(erfinv(y));
}
inline float norm3df(float a, float b, float c) {
  return static_cast<float>(
      sqrt(static_cast<double>(a) * a + static_cast<double>(b) * b + static_cast<double>(c) * c));
}

inline float __expf(float x) {
  return sim_noise(expf(x));
}
inline float __exp10f(float x) {
  return sim_noise(exp10f(x));
}
inline float __logf(float x) {
  return sim_noise(logf(x));
}
inline float __log2f(float x) {
  return sim_noise(log2f(x));
}
inline float __log10f(float x) {
  return sim_noise(log10f(x));
}
inline float __powf(float x, float y) {
  return sim_noise(powf(x, y));
}
inline float __sinf(float x) {
  return sim_noise(sinf(x));
}
inline float __cosf(float x) {
  return sim_noise(cosf(x));
}
inline float __tanf(float x) {
  return sim_noise(tanf(x));
}
inline void __sincosf(float x, float *s, float *c) {
  *s = __sinf(x), *c = __cosf(x);
}
inline float __fdividef(float a, float b) {
  return sim_noise(a / b);
}
inline float __frcp_rn(float x) {
  return 1.0f / x;
}
inline float __frsqrt_rn(float x) {
  return rsqrtf(x);
}
inline float __fsqrt_rn(float x) {
  return sqrtf(x);
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return fmaf(a, b, c);
}
inline double __dadd_rn(double a, double b) {
  return a + b;
}
inline double __dmul_rn(double a, double b) {
  return a * b;
}
inline double __fma_rn(double a, double b, double c) {
  return fma(a, b, c);
}

// Conversions saturate, NaN is 0, as on the GPU.
template <class I> I sim_to_int(double x) {
  const double lo = static_cast<double>(std::numeric_limits<I>::min());
  const double hi = static_cast<double>(std::numeric_limits<I>::max());
  if (x != x) return 0;
  if (x <= lo) return std::numeric_limits<I>::min();
  if (x >= hi) return std::numeric_limits<I>::max();
  return static_cast<I>(x);
}
#define SIM_TO_INT(suffix, T, I)                                                                   \
  inline I __##suffix##_rn(T x) {                                                                  \
    return sim_to_int<I>(nearbyint(static_cast<double>(x)));                                       \
  }                                                                                                \
  inline I __##suffix##_rz(T x) {                                                                  \
    return sim_to_int<I>(trunc(static_cast<double>(x)));                                           \
  }                                                                                                \
  inline I __##suffix##_rd(T x) {                                                                  \
    return sim_to_int<I>(floor(static_cast<double>(x)));                                           \
  }                                                                                                \
  inline I __##suffix##_ru(T x) {                                                                  \
    return sim_to_int<I>(ceil(static_cast<double>(x)));                                            \
  }
SIM_TO_INT(float2int, float, int)
SIM_TO_INT(float2uint, float, unsigned)
SIM_TO_INT(float2ll, float, long long)
SIM_TO_INT(float2ull, float, unsigned long long)
SIM_TO_INT(double2int, double, int)
SIM_TO_INT(double2uint, double, unsigned)
SIM_TO_INT(double2ll, double, long long)
SIM_TO_INT(double2ull, double, unsigned long long)
#undef SIM_TO_INT
inline float __int2float_rn(int x) {
  return static_cast<float>(x);
}
inline float __uint2float_rn(unsigned x) {
  return static_cast<float>(x);
}
inline float __ll2float_rn(long long x) {
  return static_cast<float>(x);
}
inline float __ull2float_rn(unsigned long long x) {
  return static_cast<float>(x);
}
inline double __int2double_rn(int x) {
  return x;
}
inline float __double2float_rn(double x) {
  return static_cast<float>(x);
}

template <class To, class From> SIM_RAW To sim_bit_cast(From v) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To r;
  memcpy(&r, &v, sizeof r);
  return r;
}
inline int __float_as_int(float x) {
  return sim_bit_cast<int>(x);
}
inline unsigned __float_as_uint(float x) {
  return sim_bit_cast<unsigned>(x);
}
inline float __int_as_float(int x) {
  return sim_bit_cast<float>(x);
}
inline float __uint_as_float(unsigned x) {
  return sim_bit_cast<float>(x);
}
inline long long __double_as_longlong(double x) {
  return sim_bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return sim_bit_cast<double>(x);
}

inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
  return __builtin_popcountll(x);
}
inline int __clz(int x) {
  return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
inline int __clzll(long long x) {
  return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
  return __builtin_ffsll(x);
}
inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; i++) r |= (x >> i & 1) << (31 - i);
  return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline int __mulhi(int a, int b) {
  return static_cast<int>(static_cast<long long>(a) * static_cast<long long>(b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  const unsigned long long v = static_cast<unsigned long long>(b) << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; i++)
    r |= static_cast<unsigned>(v >> (s >> (4 * i) & 7) * 8 & 0xff) << (8 * i);
  return r;
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) {
  s &= 31;
  return s ? hi << s | lo >> (32 - s) : hi;
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) {
  s &= 31;
  return s ? hi << (32 - s) | lo >> s : lo;
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; i++)
    c += static_cast<signed char>(a >> 8 * i) * static_cast<signed char>(b >> 8 * i);
  return c;
}

// Shared addresses are plain addresses here.
inline size_t __cvta_generic_to_shared(const void *p) {
  return reinterpret_cast<size_t>(p);
}

#endif
