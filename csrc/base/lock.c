// SPDX-License-Identifier: MIT
#include "base/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOCK_SPINS 32

_Static_assert(sizeof(atomic_uint) == 4, "a futex is 32 bits");

void cnn_futex_wait(atomic_uint *word, unsigned expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

void cnn_futex_wake(atomic_uint *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

// U. Drepper, "Futexes are tricky", 2011: the third mutex there, with a spin before it.
void cnn_lock_wait(cnn_lock *lock) {
  for (int i = 0; i < LOCK_SPINS; i++) {
    cnn_spin_pause();
    unsigned expected = 0;
    if (atomic_load_explicit(&lock->state, memory_order_relaxed) == 0 &&
        atomic_compare_exchange_weak_explicit(&lock->state, &expected, 1, memory_order_acquire,
                                              memory_order_relaxed))
      return;
  }
  // Whoever slept can't know whether others still do, so it takes the lock as awaited.
  while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0)
    cnn_futex_wait(&lock->state, 2);
}
