// SPDX-License-Identifier: MIT
//
// The calls that clang's -fsanitize=thread and -fsanitize=undefined put into kernels of the checker
// build, without their run-time libraries: they lead to the checker. A hook that is missing here is
// an error at linking. Included once per linked object that holds kernels: by check.cpp, and by
// modules of the NVRTC stand-in.
#ifndef SIM_HOOKS_H
#define SIM_HOOKS_H

#include "sim_device.h"

extern "C" {
// With a kind of access: the compiler knows that it may lie at no multiple of its size (a struct's
// copy, say).
#define SIM_LOOSE 64
#define SIM_HOOK(n)                                                                                \
  void __tsan_read##n(void *p) {                                                                   \
    sim_access(p, n, SIM_READ, __builtin_return_address(0));                                       \
  }                                                                                                \
  void __tsan_write##n(void *p) {                                                                  \
    sim_access(p, n, SIM_WRITE, __builtin_return_address(0));                                      \
  }                                                                                                \
  void __tsan_unaligned_read##n(void *p) {                                                         \
    sim_access(p, n, SIM_READ | SIM_LOOSE, __builtin_return_address(0));                           \
  }                                                                                                \
  void __tsan_unaligned_write##n(void *p) {                                                        \
    sim_access(p, n, SIM_WRITE | SIM_LOOSE, __builtin_return_address(0));                          \
  }                                                                                                \
  void __tsan_volatile_read##n(void *p) {                                                          \
    sim_access(p, n, SIM_READ, __builtin_return_address(0));                                       \
  }                                                                                                \
  void __tsan_volatile_write##n(void *p) {                                                         \
    sim_access(p, n, SIM_WRITE, __builtin_return_address(0));                                      \
  }
SIM_HOOK(1)
SIM_HOOK(2)
SIM_HOOK(4)
SIM_HOOK(8)
SIM_HOOK(16)
#undef SIM_HOOK
void __tsan_read_range(void *p, size_t n) {
  sim_access(p, n, SIM_READ, __builtin_return_address(0));
}
void __tsan_write_range(void *p, size_t n) {
  sim_access(p, n, SIM_WRITE, __builtin_return_address(0));
}
void __tsan_init(void) {}
void __tsan_func_entry(void *pc) {
  sim_access(nullptr, 0, SIM_READ, pc);
}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}

// Kernel objects are made to call these for memcpy and its like (objcopy --redefine-sym). Loops of
// their own, which may not become calls of memcpy again.
#define SIM_NO_BUILTIN __attribute__((no_builtin))
SIM_NO_BUILTIN void *sim_memcpy(void *to, const void *from, size_t n) {
  sim_access(from, n, SIM_READ, __builtin_return_address(0));
  sim_access(to, n, SIM_WRITE, __builtin_return_address(0));
  for (size_t i = 0; i < n; i++) static_cast<char *>(to)[i] = static_cast<const char *>(from)[i];
  return to;
}
SIM_NO_BUILTIN void *sim_memmove(void *to, const void *from, size_t n) {
  sim_access(from, n, SIM_READ, __builtin_return_address(0));
  sim_access(to, n, SIM_WRITE, __builtin_return_address(0));
  char *t = static_cast<char *>(to);
  const char *f = static_cast<const char *>(from);
  if (t < f)
    for (size_t i = 0; i < n; i++) t[i] = f[i];
  else
    for (size_t i = n; i-- > 0;) t[i] = f[i];
  return to;
}
SIM_NO_BUILTIN void *sim_memset(void *to, int c, size_t n) {
  sim_access(to, n, SIM_WRITE, __builtin_return_address(0));
  for (size_t i = 0; i < n; i++) static_cast<char *>(to)[i] = static_cast<char>(c);
  return to;
}

struct SimSource {
  const char *file;
  unsigned line, column;
};
struct SimMismatch {
  SimSource at;
  const void *type;
  unsigned char log_alignment, kind;
};
// (Weak: a program that is sanitized itself brings its own.)
__attribute__((weak)) void __ubsan_handle_type_mismatch_v1(SimMismatch *d, void *p) {
  if (reinterpret_cast<size_t>(p) & ((size_t(1) << d->log_alignment) - 1))
    sim_undefined("misaligned access", cudaErrorMisalignedAddress, d->at.file, d->at.line);
}
// Goes on after it, unless `error` ends the kernel.
#define SIM_UNDEFINED(name, text, error)                                                           \
  __attribute__((weak)) void __ubsan_handle_##name(SimSource *d) {                                 \
    sim_undefined(text, error, d->file, d->line);                                                  \
  }
SIM_UNDEFINED(add_overflow, "integer overflow in an addition", 0)
SIM_UNDEFINED(sub_overflow, "integer overflow in a subtraction", 0)
SIM_UNDEFINED(mul_overflow, "integer overflow in a product", 0)
SIM_UNDEFINED(negate_overflow, "integer overflow in a negation", 0)
// The CPU traps; a GPU gives some number.
SIM_UNDEFINED(divrem_overflow, "division by zero or overflow", cudaErrorLaunchFailure)
SIM_UNDEFINED(shift_out_of_bounds, "shift by too much", 0)
SIM_UNDEFINED(out_of_bounds, "index out of an array's bounds", 0)
#undef SIM_UNDEFINED
}

#endif
