// SPDX-License-Identifier: MIT
// A one-word lock for short critical sections, and the futex under it.
//
// Uncontended, it costs one locked instruction to take and one to give back, inline. A thread that
// finds it held spins for less than a microsecond, then sleeps: the holder may have lost its core.
// All zero is a free lock.
#ifndef CNN_BASE_LOCK_H
#define CNN_BASE_LOCK_H

#include <stdatomic.h>

typedef struct cnn_lock {
  atomic_uint state; // 0 free, 1 held, 2 held and perhaps awaited
} cnn_lock;

// Sleeps while *word == expected. May return early: check again.
void cnn_futex_wait(atomic_uint *word, unsigned expected);
// Wakes up to `count` threads that sleep on the word.
void cnn_futex_wake(atomic_uint *word, int count);

void cnn_lock_wait(cnn_lock *lock);

// Tells the processor that this is a spin loop.
static inline void cnn_spin_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

static inline void cnn_lock_acquire(cnn_lock *lock) {
  unsigned expected = 0;
  if (__builtin_expect(!atomic_compare_exchange_strong_explicit(&lock->state, &expected, 1,
                                                                memory_order_acquire,
                                                                memory_order_relaxed),
                       0))
    cnn_lock_wait(lock);
}

static inline void cnn_lock_release(cnn_lock *lock) {
  if (__builtin_expect(atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2, 0))
    cnn_futex_wake(&lock->state, 1);
}

#endif
