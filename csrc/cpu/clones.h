// SPDX-License-Identifier: MIT
// CNN_CLONES before a function with a hot loop: compiles it for x86-64-v4 (AVX-512), x86-64-v3
// (AVX2 and FMA) and the baseline, and picks one when the program is loaded.
//
// The function must not be inlined into a caller, or it loses its clones: call it for whole rows of
// work. Helpers that it calls are compiled along with it if they are inlined (always_inline, as in
// cpu/vmath.h, makes sure); one that stays a call stays scalar code.
//
// It also lets the compiler fuse a * b + c, which -std=c11 turns off in gcc; a clone with FMA and
// one without may differ in the last bit.
#ifndef CNN_CPU_CLONES_H
#define CNN_CPU_CLONES_H

#include <limits.h> // __GLIBC__

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CNN_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define CNN_SANITIZED 1
#endif
#endif

// Clones are chosen by an IFUNC resolver, which runs before a sanitizer's runtime is ready, and
// which only glibc's loader calls. clang up to 17 makes resolvers that test nothing (all processors
// get the AVX-512 code) and that are global symbols: there, -march=x86-64-v3 is the way to vector
// code.
#if !defined(__GNUC__) || defined(__clang__)
#define CNN_CLONES
#elif defined(__x86_64__) && defined(__GLIBC__) && __GNUC__ >= 12 && !defined(CNN_SANITIZED)
#define CNN_CLONES                                                                                 \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"),                     \
                 optimize("fp-contract=fast")))
#else
#define CNN_CLONES __attribute__((optimize("fp-contract=fast")))
#endif

#endif
