// SPDX-License-Identifier: MIT
//
// Atomics, and loads and stores with cache hints. Kernels run on one OS thread and are left only
// where they wait, so a plain read, change and write is atomic; the checker hears that it is meant.
// Part of sim_device.h.
#ifndef SIM_ATOMIC_H
#define SIM_ATOMIC_H

// `old` is what was there, `v` the argument.
#define SIM_ATOMIC_OP(name, T, expr)                                                               \
  SIM_RAW inline T name(T *p, T v) {                                                               \
    sim_atomic(p, sizeof(T), __builtin_return_address(0));                                         \
    const T old = *p;                                                                              \
    *p = static_cast<T>(expr);                                                                     \
    return old;                                                                                    \
  }                                                                                                \
  inline T name##_block(T *p, T v) {                                                               \
    return name(p, v);                                                                             \
  }                                                                                                \
  inline T name##_system(T *p, T v) {                                                              \
    return name(p, v);                                                                             \
  }

typedef unsigned long long sim_ull;

SIM_ATOMIC_OP(atomicAdd, int, static_cast<unsigned>(old) + static_cast<unsigned>(v))
SIM_ATOMIC_OP(atomicAdd, unsigned, old + v)
SIM_ATOMIC_OP(atomicAdd, sim_ull, old + v)
SIM_ATOMIC_OP(atomicAdd, float, old + v)
SIM_ATOMIC_OP(atomicAdd, double, old + v)
SIM_ATOMIC_OP(atomicSub, int, static_cast<unsigned>(old) - static_cast<unsigned>(v))
SIM_ATOMIC_OP(atomicSub, unsigned, old - v)
#define SIM_ATOMIC_INTEGERS(X, name, expr)                                                         \
  X(name, int, expr) X(name, unsigned, expr) X(name, sim_ull, expr) X(name, long long, expr)
SIM_ATOMIC_INTEGERS(SIM_ATOMIC_OP, atomicMin, v < old ? v : old)
SIM_ATOMIC_INTEGERS(SIM_ATOMIC_OP, atomicMax, v > old ? v : old)
SIM_ATOMIC_INTEGERS(SIM_ATOMIC_OP, atomicAnd, old &v)
SIM_ATOMIC_INTEGERS(SIM_ATOMIC_OP, atomicOr, old | v)
SIM_ATOMIC_INTEGERS(SIM_ATOMIC_OP, atomicXor, old ^ v)
SIM_ATOMIC_OP(atomicExch, int, v)
SIM_ATOMIC_OP(atomicExch, unsigned, v)
SIM_ATOMIC_OP(atomicExch, sim_ull, v)
SIM_ATOMIC_OP(atomicExch, float, v)
SIM_ATOMIC_OP(atomicInc, unsigned, old >= v ? 0 : old + 1)
SIM_ATOMIC_OP(atomicDec, unsigned, old == 0 || old > v ? v : old - 1)

#define SIM_ATOMIC_CAS(T)                                                                          \
  SIM_RAW inline T atomicCAS(T *p, T expected, T v) {                                              \
    sim_atomic(p, sizeof(T), __builtin_return_address(0));                                         \
    const T old = *p;                                                                              \
    if (old == expected) *p = v;                                                                   \
    return old;                                                                                    \
  }                                                                                                \
  inline T atomicCAS_block(T *p, T expected, T v) {                                                \
    return atomicCAS(p, expected, v);                                                              \
  }                                                                                                \
  inline T atomicCAS_system(T *p, T expected, T v) {                                               \
    return atomicCAS(p, expected, v);                                                              \
  }
SIM_ATOMIC_CAS(int)
SIM_ATOMIC_CAS(unsigned)
SIM_ATOMIC_CAS(sim_ull)
SIM_ATOMIC_CAS(unsigned short)
#undef SIM_ATOMIC_CAS

// Vector additions of sm_90: each component is atomic.
#define SIM_ATOMIC_VECTOR(T, ...)                                                                  \
  SIM_RAW inline T atomicAdd(T *p, T v) {                                                          \
    sim_atomic(p, sizeof(T), __builtin_return_address(0));                                         \
    const T old = *p;                                                                              \
    *p = T{__VA_ARGS__};                                                                           \
    return old;                                                                                    \
  }
SIM_ATOMIC_VECTOR(float2, old.x + v.x, old.y + v.y)
SIM_ATOMIC_VECTOR(float4, old.x + v.x, old.y + v.y, old.z + v.z, old.w + v.w)

// Cache hints change no value.
template <class T> T __ldg(const T *p) {
  return *p;
}
template <class T> T __ldca(const T *p) {
  return *p;
}
template <class T> T __ldcg(const T *p) {
  return *p;
}
template <class T> T __ldcs(const T *p) {
  return *p;
}
template <class T> T __ldlu(const T *p) {
  return *p;
}
template <class T> T __ldcv(const T *p) {
  return *p;
}
template <class T> void __stwb(T *p, T v) {
  *p = v;
}
template <class T> void __stcg(T *p, T v) {
  *p = v;
}
template <class T> void __stcs(T *p, T v) {
  *p = v;
}
template <class T> void __stwt(T *p, T v) {
  *p = v;
}

#endif
