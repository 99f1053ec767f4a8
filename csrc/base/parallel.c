// SPDX-License-Identifier: MIT
// One loop runs at a time: whoever finds the pool busy (another thread's loop, or a loop around
// this one) runs its pieces itself, which gives the same results.
//
// The caller publishes a loop, opens the gate and works. Workers enter through the gate, work, and
// leave. When no piece is left to claim the caller shuts the gate and waits for those inside only:
// a worker that has not woken up by then is not waited for, so a processor that somebody else
// keeps busy costs nothing but its share of the work.
//
// Each thread claims the pieces of its own share first (the same part of the data from loop to loop
// stays in its cache), then what is left of the others'.
#include "base/parallel.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"

#define MAX_THREADS 256
#define MAX_PIECES  256
// How long a thread spins before it sleeps, and how long while it offers its core to others every
// microsecond. On virtual machines a wake-up costs the waker 8 us and comes 30 us later, so loops
// in quick succession should find the workers awake; but a worker waits so long only when its last
// wait was short, and on a core that others want it is off at once.
#define SPIN_NS     4000
#define PATIENCE_NS 50000
#define STACK_BYTES ((size_t)4 << 20)
#define LINE        64

// The gate: whether workers may enter, whether the caller sleeps on it, and how many are inside.
#define GATE_OPEN    1u
#define GATE_AWAITED 2u
#define GATE_ONE     4u

typedef struct loop {
  cnn_range_fn fn;
  void *arg;
  int64_t n, step; // a piece begins at each multiple of step; the last one takes the rest
  int pieces, threads;
  unsigned float_mode;
} loop;

typedef struct share {
  _Alignas(LINE) atomic_int next; // the next piece to claim
  int end;
} share;

typedef struct worker {
  _Alignas(LINE) atomic_uint asleep; // 1 while it sleeps, or is about to
  unsigned seen;                     // the last loop that it knows of
  int64_t patience;                  // how long it spins
  int index;                         // from 1; the caller is 0
} worker;

static atomic_bool busy; // a loop is under way, and the variables below are its caller's
static int started;      // workers
static bool refused;     // the system gave no more threads
static loop current;     // what the gate guards
static share shares[MAX_THREADS];
static worker workers[MAX_THREADS];
static _Alignas(LINE) atomic_uint epoch; // the number of loops so far
static _Alignas(LINE) atomic_uint gate;

static atomic_int wanted;     // threads, 0 for the default
static atomic_int by_default; // 0 as long as nobody asked

// --- How many -----------------------------------------------------------------------------------

static int default_threads(void) {
  const char *text = getenv("CNN_NUM_THREADS");
  long n = text ? strtol(text, NULL, 10) : 0;
  cpu_set_t set;
  if (n <= 0 && sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
  if (n <= 0) n = sysconf(_SC_NPROCESSORS_ONLN); // more processors than the set can name
  return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : (int)n;
}

int cnn_num_threads(void) {
  int n = atomic_load_explicit(&wanted, memory_order_relaxed);
  if (n == 0) n = atomic_load_explicit(&by_default, memory_order_relaxed);
  if (n == 0) {
    n = default_threads();
    atomic_store_explicit(&by_default, n, memory_order_relaxed);
  }
  return n;
}

void cnn_set_num_threads(int n) {
  n = n < 0 ? 0 : n > MAX_THREADS ? MAX_THREADS : n;
  atomic_store_explicit(&wanted, n, memory_order_relaxed);
}

// --- Working ------------------------------------------------------------------------------------

// A worker computes in the caller's rounding and flush-to-zero mode, or results would depend on who
// computes them.
static unsigned float_mode(void) {
#ifdef __SSE__
  return __builtin_ia32_stmxcsr();
#else
  return 0;
#endif
}

static void set_float_mode(unsigned mode) {
#ifdef __SSE__
  __builtin_ia32_ldmxcsr(mode & ~0x3Fu); // without the exceptions seen so far
#else
  (void)mode;
#endif
}

static void run_piece(const loop *l, int i) {
  int64_t begin = i * l->step;
  l->fn(l->arg, begin, i == l->pieces - 1 ? l->n : begin + l->step);
}

static void work(const loop *l, int index) {
  for (int k = 0; k < l->threads; k++) {
    share *s = &shares[(index + k) % l->threads];
    while (atomic_load_explicit(&s->next, memory_order_relaxed) < s->end) {
      int i = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
      if (i < s->end) run_piece(l, i);
    }
  }
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// Whether *word changes from `from` within `patience`.
static bool spin(atomic_uint *word, unsigned from, int64_t patience) {
  int64_t start = 0, now = 0;
  for (;;) {
    for (int i = 0; i < 32; i++) {
      if (atomic_load_explicit(word, memory_order_acquire) != from) return true;
      cnn_spin_pause();
    }
    now = now_ns();
    if (start == 0) start = now;
    if (now - start >= patience) return false;
    if (now - start >= SPIN_NS) sched_yield();
  }
}

// --- Workers ------------------------------------------------------------------------------------

// Threads wake each other along a binary tree: the caller never wakes more than two.
static void wake_children(int index, int threads) {
  for (int i = 2 * index + 1; i <= 2 * index + 2 && i < threads; i++)
    if (atomic_load(&workers[i].asleep) && atomic_exchange(&workers[i].asleep, 0))
      cnn_futex_wake(&workers[i].asleep, 1);
}

static void wait_for_loop(worker *w) {
  if (!spin(&epoch, w->seen, w->patience)) {
    int64_t start = now_ns();
    // Either this sees the new epoch, or who moves it sees that this sleeps: both are sequentially
    // consistent.
    for (;;) {
      atomic_store(&w->asleep, 1);
      if (atomic_load(&epoch) != w->seen) break;
      cnn_futex_wait(&w->asleep, 1);
    }
    atomic_store_explicit(&w->asleep, 0, memory_order_relaxed);
    w->patience = now_ns() - start < 2 * PATIENCE_NS ? PATIENCE_NS : SPIN_NS;
  }
  w->seen = atomic_load_explicit(&epoch, memory_order_relaxed);
}

static bool enter(void) {
  unsigned g = atomic_load_explicit(&gate, memory_order_relaxed);
  do {
    if (!(g & GATE_OPEN)) return false;
  } while (!atomic_compare_exchange_weak_explicit(&gate, &g, g + GATE_ONE, memory_order_acquire,
                                                  memory_order_relaxed));
  return true;
}

static void leave(void) {
  unsigned before = atomic_fetch_sub_explicit(&gate, GATE_ONE, memory_order_release);
  if (before == (GATE_ONE | GATE_AWAITED)) cnn_futex_wake(&gate, 1);
}

static void *serve(void *arg) {
  worker *w = arg;
  for (;;) {
    wait_for_loop(w);
    if (!enter()) continue;
    if (w->index < current.threads) {
      wake_children(w->index, current.threads);
      set_float_mode(current.float_mode);
      work(&current, w->index);
    }
    leave();
  }
  return NULL;
}

// Detached, and deaf to signals: a handler of the host's must not run on a thread of ours. They
// hold nothing, so the end of the process just ends them.
static bool start_worker(int index) {
  worker *w = &workers[index];
  atomic_store_explicit(&w->asleep, 0, memory_order_relaxed);
  w->seen = atomic_load_explicit(&epoch, memory_order_relaxed);
  w->index = index;
  w->patience = PATIENCE_NS;
  sigset_t all, old;
  pthread_attr_t attr;
  pthread_t thread;
  if (pthread_attr_init(&attr) != 0) return false;
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attr, STACK_BYTES);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  bool ok = pthread_create(&thread, &attr, serve, w) == 0;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attr);
  return ok;
}

// --- Forks --------------------------------------------------------------------------------------

// The child has one thread and starts its own workers when it needs them. A loop that was under way
// in another thread is gone with that thread.
static void in_child(void) {
  atomic_store(&busy, false);
  atomic_store(&gate, 0);
  started = 0;
  refused = false;
}

static void watch_forks(void) {
  pthread_atfork(NULL, NULL, in_child);
}

// --- The loop -----------------------------------------------------------------------------------

// The number of threads, at most `threads`, that there are.
static int start_workers(int threads) {
  if (threads <= started + 1) return threads;
  while (!refused && started + 1 < threads) {
    if (start_worker(started + 1))
      started++;
    else
      refused = true; // once is enough: asking again would slow every loop down
  }
  return started + 1;
}

static void run_shared(const loop *l) {
  for (int t = 0; t < l->threads; t++) {
    atomic_store_explicit(&shares[t].next, t * l->pieces / l->threads, memory_order_relaxed);
    shares[t].end = (t + 1) * l->pieces / l->threads;
  }
  current = *l;
  atomic_store_explicit(&gate, GATE_OPEN, memory_order_release);
  atomic_fetch_add(&epoch, 1);
  wake_children(0, l->threads);
  work(l, 0);

  unsigned g = atomic_fetch_and_explicit(&gate, ~GATE_OPEN, memory_order_acquire) & ~GATE_OPEN;
  while (g != 0) {
    if (!spin(&gate, g, PATIENCE_NS) &&
        atomic_compare_exchange_strong(&gate, &g, g | GATE_AWAITED)) {
      // The last one to leave takes the count to 0 and wakes this.
      while ((g = atomic_load_explicit(&gate, memory_order_acquire)) != GATE_AWAITED)
        cnn_futex_wait(&gate, g);
      break;
    }
    g = atomic_load_explicit(&gate, memory_order_acquire);
  }
}

void cnn_parallel_for(int64_t n, int64_t grain, cnn_range_fn fn, void *arg) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (n <= grain || n <= 1) {
    if (n > 0) fn(arg, 0, n);
    return;
  }
  if (grain < 1) grain = 1;
  // The bounds of the pieces depend on nothing but n and grain. What is left of n behind the last
  // whole grain goes to the last piece.
  int64_t grains = n / grain, per_piece = (grains - 1) / MAX_PIECES + 1;
  loop l = {.fn = fn, .arg = arg, .n = n, .step = per_piece * grain};
  l.pieces = (int)((grains - 1) / per_piece + 1);
  l.threads = cnn_num_threads();
  if (l.threads > l.pieces) l.threads = l.pieces;
  if (l.threads > 1) pthread_once(&once, watch_forks);
  if (l.threads > 1 && !atomic_exchange_explicit(&busy, true, memory_order_acquire)) {
    l.threads = start_workers(l.threads);
    l.float_mode = float_mode();
    if (l.threads > 1) run_shared(&l);
    atomic_store_explicit(&busy, false, memory_order_release);
    if (l.threads > 1) return;
  }
  for (int i = 0; i < l.pieces; i++) run_piece(&l, i);
}
