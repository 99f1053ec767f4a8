// SPDX-License-Identifier: MIT
// Loops over the thread pool: every element once, the same pieces whatever the threads, nesting,
// callers on many threads, forks, exits.
#include "base/parallel.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED
// Children start threads here; the thread sanitizer would end them for that.
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
  return "die_after_fork=0";
}
#endif

// --- Coverage and bounds ------------------------------------------------------------------------

#define MAX_N 5000

typedef struct record {
  int64_t n, grain;
  atomic_uchar seen[MAX_N];
  atomic_llong piece_end[MAX_N]; // by where it begins
  atomic_int pieces, wrong;
} record;

static void mark(void *arg, int64_t begin, int64_t end) {
  record *r = arg;
  if (begin < 0 || end > r->n || begin >= end || begin % r->grain != 0 ||
      (end != r->n && (end - begin) % r->grain != 0) ||
      (end - begin < r->grain && r->n >= r->grain)) {
    atomic_fetch_add(&r->wrong, 1);
    return;
  }
  atomic_fetch_add(&r->pieces, 1);
  atomic_store(&r->piece_end[begin], end);
  for (int64_t i = begin; i < end; i++)
    if (atomic_fetch_add(&r->seen[i], 1) != 0) atomic_fetch_add(&r->wrong, 1);
}

static void record_loop(record *r, int64_t n, int64_t grain) {
  memset(r, 0, sizeof *r);
  r->n = n;
  r->grain = grain;
  cnn_parallel_for(n, grain, mark, r);
  for (int64_t i = 0; i < n; i++)
    if (atomic_load(&r->seen[i]) != 1) atomic_fetch_add(&r->wrong, 1);
}

static void test_coverage(void) {
  static record one, many;
  int wrong = 0, different = 0, too_many = 0;
  for (int64_t n = 0; n < MAX_N; n = n < 70 ? n + 1 : n * 5 / 4 + 3) {
    for (int64_t grain = 1; grain <= 2048; grain = grain < 9 ? grain + 1 : grain * 3) {
      cnn_set_num_threads(1);
      record_loop(&one, n, grain);
      wrong += one.wrong;
      too_many += one.pieces > 256;
      for (int threads = 2; threads <= 7; threads += 1 + 2 * (threads > 3)) {
        cnn_set_num_threads(threads);
        record_loop(&many, n, grain);
        wrong += many.wrong;
        different += one.pieces != many.pieces ||
                     memcmp(one.piece_end, many.piece_end, sizeof one.piece_end) != 0;
      }
    }
  }
  CHECK(wrong == 0);
  CHECK(different == 0);
  CHECK(too_many == 0);
  record_loop(&one, 100, 100);
  CHECK(one.pieces == 1 && one.wrong == 0);
  record_loop(&one, 199, 100);
  CHECK(one.pieces == 1 && one.wrong == 0);
  record_loop(&one, 250, 100);
  CHECK(one.pieces == 2 && one.wrong == 0);
  cnn_set_num_threads(0);
}

static void count_up(void *arg, int64_t begin, int64_t end) {
  atomic_fetch_add((atomic_llong *)arg, end - begin);
}

static void test_sizes(void) {
  atomic_llong sum = 0;
  cnn_set_num_threads(4);
  cnn_parallel_for(0, 1, count_up, &sum);
  cnn_parallel_for(-3, 1, count_up, &sum);
  cnn_parallel_for(-3, -5, count_up, &sum);
  CHECK(sum == 0);
  cnn_parallel_for(10, 0, count_up, &sum);
  CHECK(sum == 10);
  cnn_parallel_for(INT64_MAX, 1, count_up, &sum);
  CHECK(sum == INT64_MIN + 9); // wrapped once, as atomics do
  sum = 0;
  cnn_parallel_for(INT64_MAX, INT64_MAX / 3, count_up, &sum);
  CHECK(sum == INT64_MAX);
  cnn_set_num_threads(0);
}

// --- Who runs what ------------------------------------------------------------------------------

static void test_number(void) {
  CHECK(cnn_num_threads() >= 1);
  int standard = cnn_num_threads();
  cnn_set_num_threads(3);
  CHECK(cnn_num_threads() == 3);
  cnn_set_num_threads(1 << 20);
  CHECK(cnn_num_threads() <= 1 << 20 && cnn_num_threads() > 3);
  cnn_set_num_threads(0);
  CHECK(cnn_num_threads() == standard);
  cnn_set_num_threads(-1);
  CHECK(cnn_num_threads() == standard);
}

typedef struct meeting {
  atomic_int there;
  int wanted;
  bool met;
} meeting;

// Waits until that many pieces run at once.
static void meet(void *arg, int64_t begin, int64_t end) {
  (void)begin, (void)end;
  meeting *m = arg;
  atomic_fetch_add(&m->there, 1);
  for (int i = 0; i < 20000 && atomic_load(&m->there) < m->wanted; i++) usleep(100);
}

static void test_together(void) {
  int all = 0;
  for (int threads = 2; threads <= 9; threads++) {
    cnn_set_num_threads(threads);
    for (int i = 0; i < 3; i++) {
      meeting m = {0, threads, false};
      cnn_parallel_for(threads, 1, meet, &m);
      all += atomic_load(&m.there) == threads;
      usleep(i == 1 ? 2000 : 0); // from spinning and from sleeping workers
    }
  }
  CHECK(all == 24);
  cnn_set_num_threads(0);
}

static pthread_t outer_caller;

typedef struct nest {
  atomic_llong sum;
  atomic_int strayed;
} nest;

typedef struct inner {
  nest *nest;
  pthread_t thread;
} inner;

static void inner_piece(void *arg, int64_t begin, int64_t end) {
  inner *in = arg;
  if (!pthread_equal(pthread_self(), in->thread)) atomic_fetch_add(&in->nest->strayed, 1);
  atomic_fetch_add(&in->nest->sum, end - begin);
}

static void outer_piece(void *arg, int64_t begin, int64_t end) {
  inner in = {arg, pthread_self()};
  for (int64_t i = begin; i < end; i++) cnn_parallel_for(100, 7, inner_piece, &in);
}

static void test_nesting(void) {
  nest n = {0, 0};
  outer_caller = pthread_self();
  cnn_set_num_threads(4);
  for (int i = 0; i < 50; i++) cnn_parallel_for(64, 1, outer_piece, &n);
  CHECK(n.sum == 50 * 64 * 100);
  CHECK(n.strayed == 0);
  cnn_set_num_threads(0);
}

// --- Callers on many threads --------------------------------------------------------------------

static void add_one(void *arg, int64_t begin, int64_t end) {
  int *x = arg;
  for (int64_t i = begin; i < end; i++) x[i]++;
}

typedef struct caller {
  int loops, wrong;
  atomic_bool *stop;
} caller;

static void *call(void *arg) {
  caller *c = arg;
  int x[512] = {0};
  int i = 0;
  for (; i < c->loops && !(c->stop && atomic_load(c->stop)); i++) {
    cnn_parallel_for(512, 16, add_one, x);
    if (i % 64 == 0)
      for (int k = 0; k < 512; k++) c->wrong += x[k] != i + 1;
  }
  for (int k = 0; k < 512; k++) c->wrong += x[k] != i;
  return NULL;
}

static void *change_threads(void *arg) {
  atomic_bool *stop = arg;
  for (int i = 0; !atomic_load(stop); i++) {
    cnn_set_num_threads(1 + i % 6);
    usleep(100);
  }
  return NULL;
}

static void test_callers(int loops) {
  caller c[4] = {{loops, 0, NULL}, {loops, 0, NULL}, {loops, 0, NULL}, {loops, 0, NULL}};
  pthread_t t[4], changer;
  atomic_bool stop = false;
  pthread_create(&changer, NULL, change_threads, &stop);
  for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, call, &c[i]);
  for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
  atomic_store(&stop, true);
  pthread_join(changer, NULL);
  for (int i = 0; i < 4; i++) CHECK(c[i].wrong == 0);
  cnn_set_num_threads(0);
}

// --- The same results ---------------------------------------------------------------------------

#define SUM_N 100000
static float sum_x[SUM_N], sum_part[256];

static void sum_piece(void *arg, int64_t begin, int64_t end) {
  float s = 0;
  for (int64_t i = begin; i < end; i++) s += sum_x[i];
  sum_part[begin / *(int64_t *)arg] = s;
}

static float sum_all(void) {
  int64_t grain = 1000;
  memset(sum_part, 0, sizeof sum_part);
  cnn_parallel_for(SUM_N, grain, sum_piece, &grain);
  float s = 0;
  for (int i = 0; i < 256; i++) s += sum_part[i];
  return s;
}

static void tiny_piece(void *arg, int64_t begin, int64_t end) {
  float *x = arg;
  for (int64_t i = begin; i < end; i++) {
    volatile float tiny = 0x1p-100f;
    x[i] = tiny * 0x1p-40f; // a subnormal, unless it is flushed to zero
  }
}

static void test_determinism(void) {
  for (int i = 0; i < SUM_N; i++) sum_x[i] = (float)((i * 2654435761u) >> 8) * 0x1p-24f - 0.5f;
  cnn_set_num_threads(1);
  float first = sum_all();
  int different = 0;
  for (int threads = 1; threads <= 8; threads++) {
    cnn_set_num_threads(threads);
    for (int i = 0; i < 20; i++) different += sum_all() != first;
  }
  CHECK(different == 0);
#ifdef __SSE__
  float x[64];
  unsigned mode = __builtin_ia32_stmxcsr();
  int flushed = 0, kept = 0;
  cnn_set_num_threads(4);
  for (int i = 0; i < 100; i++) {
    __builtin_ia32_ldmxcsr(mode | 0x8000u);
    cnn_parallel_for(64, 1, tiny_piece, x);
    __builtin_ia32_ldmxcsr(mode);
    for (int k = 0; k < 64; k++) flushed += x[k] == 0;
    cnn_parallel_for(64, 1, tiny_piece, x);
    for (int k = 0; k < 64; k++) kept += x[k] != 0;
  }
  CHECK(flushed == 6400 && kept == 6400);
#endif
  cnn_set_num_threads(0);
}

// --- Forks, exits, signals ----------------------------------------------------------------------

static bool child_is_fine(pid_t child) {
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

static void run_child(bool by_exit) {
  alarm(30);
  meeting m = {0, 3, false};
  cnn_parallel_for(3, 1, meet, &m); // on threads of its own
  caller c = {200, 0, NULL};
  call(&c);
  int code = c.wrong != 0 || m.there != 3;
#ifdef SANITIZED
  by_exit = false; // the leak sanitizer looks for the parent's threads
#endif
  if (by_exit) {
    fclose(stdout); // nothing of the parent's twice
    exit(code);
  }
  _exit(code);
}

static void test_forks(int forks) {
  cnn_set_num_threads(3);
  meeting m = {0, 3, false};
  cnn_parallel_for(3, 1, meet, &m);
  // From a thread that is alone, then while another one's loops are under way.
  atomic_bool stop = false;
  caller c = {1 << 30, 0, &stop};
  pthread_t t;
  int bad = 0;
  for (int i = 0; i < forks; i++) {
    if (i == forks / 2) pthread_create(&t, NULL, call, &c);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) run_child(i % 2 == 0);
    bad += !child_is_fine(child);
  }
  atomic_store(&stop, true);
  pthread_join(t, NULL);
  CHECK(bad == 0);
  CHECK(c.wrong == 0);
  caller after = {200, 0, NULL};
  call(&after);
  CHECK(after.wrong == 0);
  cnn_set_num_threads(0);
}

static atomic_int signals_on_others;
static void on_signal(int number) {
  (void)number;
  if (!pthread_equal(pthread_self(), outer_caller)) atomic_fetch_add(&signals_on_others, 1);
}

static void test_signals(void) {
  outer_caller = pthread_self();
  struct sigaction action = {.sa_handler = on_signal}, old;
  sigaction(SIGUSR1, &action, &old);
  cnn_set_num_threads(4);
  caller c = {200, 0, NULL};
  call(&c);
  // While this thread blocks it, any other that doesn't would take it.
  sigset_t one, before;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &one, &before);
  kill(getpid(), SIGUSR1);
  call(&c);
  usleep(1000);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  CHECK(signals_on_others == 0 && c.wrong == 0);
  sigaction(SIGUSR1, &old, NULL);
  cnn_set_num_threads(0);
}

static void test_environment(const char *self) {
  const struct {
    const char *value;
    int expected; // 0: the standard number
  } cases[] = {{"3", 3}, {"1", 1}, {"0", 0}, {"-2", 0}, {"many", 0}, {"", 0}};
  int standard = cnn_num_threads();
  if (getenv("CNN_NUM_THREADS")) return;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
      char expected[16];
      snprintf(expected, sizeof expected, "%d", cases[i].expected ? cases[i].expected : standard);
      setenv("CNN_NUM_THREADS", cases[i].value, 1);
      execl(self, self, "--threads", expected, (char *)NULL);
      _exit(2);
    }
    CHECK(child_is_fine(child));
  }
}

// --- A slow thread ------------------------------------------------------------------------------

static void slow_first(void *arg, int64_t begin, int64_t end) {
  (void)end;
  struct timespec pause = {0, 20000000};
  if (begin == 0) nanosleep(&pause, NULL);
  atomic_fetch_add((atomic_int *)arg, 1);
}

// The caller waits for a worker asleep rather than spinning all the time, and takes over what is
// left.
static void test_slow_piece(void) {
  atomic_int done = 0;
  cnn_set_num_threads(2);
  for (int i = 0; i < 5; i++) {
    done = 0;
    cnn_parallel_for(200, 1, slow_first, &done);
    if (done != 200) break;
  }
  CHECK(done == 200);
  cnn_set_num_threads(0);
}

// With a number as argument, that many loops per caller instead of 20000.
int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "--threads") == 0) return cnn_num_threads() != atoi(argv[2]);
  int loops = argc > 1 ? atoi(argv[1]) : 20000;
  test_number();
  test_environment(argv[0]);
  test_coverage();
  test_sizes();
  test_together();
  test_nesting();
  test_callers(loops);
  test_determinism();
  test_slow_piece();
  test_signals();
  test_forks(loops / 500);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
