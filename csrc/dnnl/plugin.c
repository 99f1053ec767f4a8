// SPDX-License-Identifier: MIT
// The plugin: a cache of plans over oneDNN, and its one entry point.
//
// A plan is a small record that lives for ever: its key and description. Its programs (program.h)
// are the heavy part: made on demand, one per thread that runs the plan at the same time, kept idle
// between runs, and dropped, least recently used plan first, when there are more than MAX_PROGRAMS.
// So a plan is always valid, and what many shapes cost is bounded.
//
// Two locks. `lock` guards the table, the idle lists and the counters, and is held for nanoseconds.
// `building` is held while oneDNN makes primitives; it is taken first where both are needed.
//
// Threads are OpenMP's, set around every call into oneDNN and restored after it. A fork() in a
// thread that has run parallel work first gives up that thread's team (the child would wait for
// ever for workers that it does not have; the parent makes a new team at its next run).
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "dnnl/program.h"

enum {
  KEY_WORDS = 24,
  MAX_PROGRAMS = 512,  // about 60 KiB each
  MAX_PLANS = 1 << 16, // about 30 MB of records; further shapes are refused
  TABLE_START = 256,   // slots, a power of 2
  // Multiply-adds that are worth a thread. A convolution forks for every reorder, too.
  GEMM_LEAST = 1 << 19,
  CONV_LEAST = 1 << 20,
};

// libgomp comes with libdnnl; its header comes only with the compiler that built it.
extern int omp_get_max_threads(void);
extern void omp_set_num_threads(int n);
extern int omp_in_parallel(void);
extern int omp_pause_resource_all(int kind);
enum { OMP_PAUSE_SOFT = 1 };

typedef enum plan_kind { GEMM, CONV } plan_kind;

struct cnn_accel_plan {
  int64_t key[KEY_WORDS];
  uint64_t hash;
  plan_kind kind;
  int threads;
  bool refused;
  size_t scratch;
  dn_program *idle;              // ready programs that nobody runs
  cnn_accel_plan *newer, *older; // neighbours in the list of plans with idle programs
  char text[sizeof((dn_program *)0)->text + 16];
  union {
    cnn_accel_gemm gemm;
    cnn_accel_conv conv;
  } desc;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t building = PTHREAD_MUTEX_INITIALIZER;
static dnnl_engine_t engine;
static char plugin_name[32];

static cnn_accel_plan **table; // open addressing, at most half full
static size_t table_size, plans;
static size_t programs;                 // idle ones, over all plans
static cnn_accel_plan *newest, *oldest; // plans with idle programs, in the order of their last run

static _Thread_local bool used_team;

static void before_fork(void) {
  if (used_team) omp_pause_resource_all(OMP_PAUSE_SOFT);
  used_team = false;
  pthread_mutex_lock(&building);
  pthread_mutex_lock(&lock);
}

static void after_fork(void) {
  pthread_mutex_unlock(&lock);
  pthread_mutex_unlock(&building);
}

static void start(void) {
  if (!dn_version_fits()) return;
  if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) {
    engine = NULL;
    return;
  }
  const dnnl_version_t *v = dnnl_version();
  // oneDNN keeps kernels for itself, too: no more of them than programs are kept here.
  int capacity = 0;
  if (dnnl_get_primitive_cache_capacity(&capacity) == dnnl_success && capacity > MAX_PROGRAMS) {
    dnnl_set_primitive_cache_capacity(MAX_PROGRAMS);
  }
  snprintf(plugin_name, sizeof plugin_name, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
  pthread_atfork(before_fork, after_fork, after_fork);
}

// Calls into oneDNN run between these two.
static int threads_enter(int threads) {
  int before = omp_get_max_threads();
  if (before != threads) omp_set_num_threads(threads);
  if (threads > 1) used_team = true;
  return before;
}

static void threads_leave(int threads, int before) {
  if (before != threads) omp_set_num_threads(before);
}

static dn_status build(const cnn_accel_plan *plan, dn_program **out) {
  pthread_mutex_lock(&building);
  int before = threads_enter(plan->threads);
  dn_status s = plan->kind == GEMM ? dn_build_gemm(engine, &plan->desc.gemm, out)
                                   : dn_build_conv(engine, &plan->desc.conv, out);
  threads_leave(plan->threads, before);
  pthread_mutex_unlock(&building);
  return s;
}

// The list of plans with idle programs, under the lock.
static void unlink_plan(cnn_accel_plan *p) {
  *(p->newer ? &p->newer->older : &newest) = p->older;
  *(p->older ? &p->older->newer : &oldest) = p->newer;
  p->newer = p->older = NULL;
}

static void link_plan(cnn_accel_plan *p) {
  p->older = newest;
  *(newest ? &newest->newer : &oldest) = p;
  newest = p;
}

// Under the lock: takes one idle program of the plan, or returns NULL.
static dn_program *take(cnn_accel_plan *plan) {
  dn_program *g = plan->idle;
  if (!g) return NULL;
  plan->idle = g->next;
  if (!plan->idle) unlink_plan(plan);
  programs--;
  return g;
}

static void give(cnn_accel_plan *plan, dn_program *g) {
  dn_program *drop = NULL;
  pthread_mutex_lock(&lock);
  if (plan->idle) unlink_plan(plan);
  g->next = plan->idle;
  plan->idle = g;
  link_plan(plan);
  if (++programs > MAX_PROGRAMS) drop = take(oldest);
  pthread_mutex_unlock(&lock);
  dn_program_free(drop);
}

static uint64_t hash_key(const int64_t *key) {
  uint64_t h = 0x9E3779B97F4A7C15u;
  for (int i = 0; i < KEY_WORDS; i++) {
    h = (h ^ (uint64_t)key[i]) * 0xFF51AFD7ED558CCDu;
    h ^= h >> 32;
  }
  return h;
}

// Under the lock.
static cnn_accel_plan *find(const int64_t *key, uint64_t hash) {
  if (!table_size) return NULL;
  for (size_t i = hash & (table_size - 1); table[i]; i = (i + 1) & (table_size - 1)) {
    cnn_accel_plan *p = table[i];
    if (p->hash == hash && memcmp(p->key, key, sizeof p->key) == 0) return p;
  }
  return NULL;
}

static void put(cnn_accel_plan **slots, size_t size, cnn_accel_plan *plan) {
  size_t i = plan->hash & (size - 1);
  while (slots[i]) i = (i + 1) & (size - 1);
  slots[i] = plan;
}

// Under the lock. False: no memory, or too many plans.
static bool insert(cnn_accel_plan *plan) {
  if (plans >= MAX_PLANS) return false;
  if (2 * (plans + 1) > table_size) {
    size_t size = table_size ? 2 * table_size : TABLE_START;
    cnn_accel_plan **slots = calloc(size, sizeof(cnn_accel_plan *));
    if (!slots) return false;
    for (size_t i = 0; i < table_size; i++) {
      if (table[i]) put(slots, size, table[i]);
    }
    free(table);
    table = slots;
    table_size = size;
  }
  put(table, table_size, plan);
  plans++;
  return true;
}

static cnn_accel_plan *answer(cnn_accel_plan *plan, size_t *scratch) {
  if (!plan || plan->refused) return NULL;
  *scratch = plan->scratch;
  return plan;
}

// The plan of a normal description, from the cache or made now.
static cnn_accel_plan *look_up(const cnn_accel_plan *wanted, size_t *scratch) {
  uint64_t hash = hash_key(wanted->key);
  pthread_mutex_lock(&lock);
  cnn_accel_plan *plan = find(wanted->key, hash);
  bool full = plans >= MAX_PLANS;
  pthread_mutex_unlock(&lock);
  if (plan || full) return answer(plan, scratch);

  plan = malloc(sizeof *plan);
  if (!plan) return NULL;
  *plan = *wanted;
  plan->hash = hash;
  dn_program *g = NULL;
  dn_status s = build(plan, &g);
  if (s == DN_FAILED) {
    free(plan);
    return NULL;
  }
  plan->refused = s == DN_REFUSED;
  if (g) {
    plan->scratch = g->scratch;
    snprintf(plan->text, sizeof plan->text, "%s, threads %d", g->text, plan->threads);
  }
  pthread_mutex_lock(&lock);
  // Somebody else may have made the same plan meanwhile: then only the program is new.
  cnn_accel_plan *known = find(plan->key, hash);
  bool in = known || insert(plan);
  if (!known) known = plan;
  pthread_mutex_unlock(&lock);
  if (known != plan || !in) free(plan);
  if (!in) {
    dn_program_free(g);
    return NULL;
  }
  if (g) give(known, g);
  return answer(known, scratch);
}

static bool run(cnn_accel_plan *plan, void *const *args, void *scratch) {
  pthread_mutex_lock(&lock);
  dn_program *g = take(plan);
  pthread_mutex_unlock(&lock);
  if (!g) {
    if (build(plan, &g) != DN_OK) return false;
    if (g->scratch > plan->scratch) {
      dn_program_free(g);
      return false;
    }
  }
  int before = threads_enter(plan->threads);
  bool ok = dn_program_run(g, args, scratch);
  threads_leave(plan->threads, before);
  give(plan, g);
  return ok;
}

static const char *describe(const cnn_accel_plan *plan) {
  return plan->text;
}

static void trim(void) {
  for (;;) {
    pthread_mutex_lock(&lock);
    dn_program *g = oldest ? take(oldest) : NULL;
    pthread_mutex_unlock(&lock);
    if (!g) break;
    dn_program_free(g);
  }
  // oneDNN keeps the kernels in its own cache; a capacity of 0 empties it.
  int capacity = 0;
  pthread_mutex_lock(&building);
  if (dnnl_get_primitive_cache_capacity(&capacity) == dnnl_success) {
    dnnl_set_primitive_cache_capacity(0);
    dnnl_set_primitive_cache_capacity(capacity);
  }
  pthread_mutex_unlock(&building);
}

// True for the types that the plugin takes; settles the bias so that equal work has equal keys.
static bool types_fit(cnn_dtype dtype, bool bias, cnn_dtype *bias_dtype) {
  if (!bias) *bias_dtype = dtype;
  if (dn_dtype(dtype) == dnnl_data_type_undef) return false;
  return *bias_dtype == dtype || *bias_dtype == CNN_F32;
}

// Threads for so many multiply-adds. A fork costs 2 us, and 20 when a core is taken by somebody
// else, so each thread gets about 10 us of work (`least`, in multiply-adds) or it is not asked.
// Inside somebody's parallel region oneDNN is serial whatever it was told.
static int useful_threads(int threads, double work, double least) {
  if (threads < 1 || omp_in_parallel()) return 1;
  return work >= least * threads ? threads : work < 2 * least ? 1 : (int)(work / least);
}

static bool all_in(const int64_t *v, int n, int64_t low, int64_t high) {
  for (int i = 0; i < n; i++) {
    if (v[i] < low || v[i] > high) return false;
  }
  return true;
}

// True when the product of these positive sizes is below 2^31.
static bool product_fits(const int64_t *v, int n) {
  int64_t product = 1;
  for (int i = 0; i < n; i++) {
    if (product > INT32_MAX / v[i]) return false;
    product *= v[i];
  }
  return true;
}

// One of the strides of a matrix must be 1, the other long enough. Strides of dimensions of length
// 1 mean nothing and are settled, so that equal work has equal keys.
static bool settle_matrix(int64_t rows, int64_t cols, int64_t *rs, int64_t *cs) {
  if (cols == 1) *cs = 1;
  if (rows == 1) *rs = *cs == 1 ? cols : 1;
  if (*cs == 1 && *rs >= cols) return true;
  return *rs == 1 && *cs >= rows;
}

static cnn_accel_plan *plan_gemm(const cnn_accel_gemm *desc, int threads, size_t *scratch) {
  cnn_accel_gemm d = *desc;
  const int64_t sizes[] = {d.batch, d.m, d.n, d.k};
  if (!types_fit(d.dtype, d.bias, &d.bias_dtype)) return NULL;
  if (!all_in(sizes, 4, 1, INT32_MAX)) return NULL;
  if (!settle_matrix(d.m, d.k, &d.a_rs, &d.a_cs)) return NULL;
  if (!settle_matrix(d.k, d.n, &d.b_rs, &d.b_cs)) return NULL;
  if (d.m == 1) d.c_rs = d.n;
  if (d.c_rs < d.n) return NULL;
  // A batch over one shared B whose rows of A and C are evenly spaced is one tall matrix.
  int64_t a_rs = d.m == 1 ? d.a_bs : d.a_rs, c_rs = d.m == 1 ? d.c_bs : d.c_rs;
  if (d.batch > 1 && d.b_bs == 0 && d.a_cs == 1 && a_rs >= d.k && c_rs >= d.n &&
      d.a_bs == d.m * a_rs && d.c_bs == d.m * c_rs && d.batch * d.m <= INT32_MAX) {
    d.m *= d.batch;
    d.batch = 1;
    d.a_rs = a_rs;
    d.c_rs = c_rs;
  }
  if (d.batch == 1) d.a_bs = d.b_bs = d.c_bs = 0;
  if (d.batch > 1 && (d.a_bs < 0 || d.b_bs < 0 || d.a_bs + d.b_bs == 0 || d.c_bs < 1)) return NULL;

  const double work = (double)d.batch * (double)d.m * (double)d.n * (double)d.k;
  cnn_accel_plan wanted = {.kind = GEMM, .threads = useful_threads(threads, work, GEMM_LEAST)};
  wanted.desc.gemm = d;
  const int64_t key[] = {GEMM,
                         d.dtype,
                         d.bias ? (int64_t)d.bias_dtype + 1 : 0,
                         wanted.threads,
                         d.batch,
                         d.m,
                         d.n,
                         d.k,
                         d.a_bs,
                         d.a_rs,
                         d.a_cs,
                         d.b_bs,
                         d.b_rs,
                         d.b_cs,
                         d.c_bs,
                         d.c_rs};
  _Static_assert(sizeof key <= sizeof wanted.key, "the key is too short");
  memcpy(wanted.key, key, sizeof key);
  return look_up(&wanted, scratch);
}

static cnn_accel_plan *plan_conv(const cnn_accel_conv *desc, int threads, size_t *scratch) {
  cnn_accel_conv d = *desc;
  const int64_t sizes[] = {d.n, d.c, d.h, d.w, d.k, d.r, d.s, d.p, d.q, d.groups};
  if (!types_fit(d.dtype, d.bias, &d.bias_dtype)) return NULL;
  if (d.bias && d.direction == CNN_ACCEL_BACKWARD_DATA) return NULL;
  if (!all_in(sizes, 10, 1, INT32_MAX) || d.c % d.groups || d.k % d.groups) return NULL;
  // oneDNN's kernels count in 32 bits.
  const int64_t x[] = {d.n, d.c, d.h, d.w}, y[] = {d.n, d.k, d.p, d.q};
  const int64_t w[] = {d.k, d.c / d.groups, d.r, d.s};
  if (!product_fits(x, 4) || !product_fits(y, 4) || !product_fits(w, 4)) return NULL;
  if (!all_in(d.stride, 2, 1, INT32_MAX) || !all_in(d.dilation, 2, 1, INT32_MAX)) return NULL;
  if (!all_in(d.pad_before, 2, 0, INT32_MAX) || !all_in(d.pad_after, 2, 0, INT32_MAX)) return NULL;

  const double work = (double)(d.n * d.k * d.p * d.q) * (double)(d.c / d.groups * d.r * d.s);
  cnn_accel_plan wanted = {.kind = CONV, .threads = useful_threads(threads, work, CONV_LEAST)};
  wanted.desc.conv = d;
  const int64_t key[] = {CONV | d.direction << 1 | d.nhwc << 3,
                         d.dtype,
                         d.bias ? (int64_t)d.bias_dtype + 1 : 0,
                         wanted.threads,
                         d.n,
                         d.c,
                         d.h,
                         d.w,
                         d.k,
                         d.r,
                         d.s,
                         d.p,
                         d.q,
                         d.groups,
                         d.stride[0],
                         d.stride[1],
                         d.dilation[0],
                         d.dilation[1],
                         d.pad_before[0],
                         d.pad_before[1],
                         d.pad_after[0],
                         d.pad_after[1]};
  _Static_assert(sizeof key <= sizeof wanted.key, "the key is too short");
  memcpy(wanted.key, key, sizeof key);
  return look_up(&wanted, scratch);
}

__attribute__((visibility("default"))) bool cnn_accel_open(int abi, cnn_accel *out);

bool cnn_accel_open(int abi, cnn_accel *out) {
  if (abi != CNN_ACCEL_ABI) return false;
  pthread_once(&once, start);
  if (!engine) return false;
  *out = (cnn_accel){
      .abi = CNN_ACCEL_ABI,
      .name = plugin_name,
      .gemm = plan_gemm,
      .conv = plan_conv,
      .run = run,
      .describe = describe,
      .trim = trim,
  };
  return true;
}
