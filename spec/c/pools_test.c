// SPDX-License-Identifier: MIT
// Several pools on one device, red zones, and what fragmentation costs at 90 % of a limit.
#include <pthread.h>

#include "base/alloc.h"
#include "engine/device.h"
#include "memory/cpu_memory.h"
#include "memory/guard.h"
#include "ops/ops.h"
#include "pool_model.h"

// --- Several pools on a device ------------------------------------------------------------------

static void test_two_limits(void) {
  fresh_device(16);
  cnn_pool *root = cnn_pool_create(&fake_mapper);
  cnn_pool *a = cnn_pool_create_in(root, 8 * GRANULE, "a");
  cnn_pool *b =
      cnn_pool_create_in(root, 12 * GRANULE, "a name that is longer than thirty-one bytes");
  size_t whole = GRANULE - CNN_POOL_REDZONE;
  CHECK(a && b && cnn_pool_root(a) == root && cnn_pool_root(root) == root);
  CHECK(strcmp(cnn_pool_name(a), "a") == 0 && strlen(cnn_pool_name(b)) == CNN_POOL_NAME - 1);
  CHECK(strcmp(cnn_pool_name(root), "") == 0 && cnn_pool_granule(a) == GRANULE);
  // A pool's own limit.
  CHECK(cnn_pool_alloc(a, 9 * GRANULE, 1, NULL) == NULL);
  cnn_block *in_a = cnn_pool_alloc(a, 8 * GRANULE - CNN_POOL_REDZONE, 1, NULL);
  CHECK(in_a && cnn_pool_alloc(a, 1, 1, NULL) == NULL && stats_of(a).available == 0);
  // The device's: 8 of 16 are left to b, whose own limit is 12.
  CHECK(stats_of(b).available == (int64_t)(8 * GRANULE));
  CHECK(cnn_pool_alloc(b, 9 * GRANULE, 2, NULL) == NULL);
  cnn_block *in_b = cnn_pool_alloc(b, 8 * GRANULE - CNN_POOL_REDZONE, 2, NULL);
  CHECK(in_b && cnn_pool_alloc(root, 1, 3, NULL) == NULL);
  // The root's counts are the device's.
  cnn_pool_stats all = stats_of(root);
  CHECK(all.blocks.current == 2 && all.failures == 4 && stats_of(a).failures == 2);
  CHECK(all.kinds[1].current == (int64_t)in_a->size && stats_of(b).kinds[1].current == 0);
  CHECK(all.reserved.current == (int64_t)(16 * GRANULE) && device.committed == 16);
  CHECK(stats_of(a).reserved.current == (int64_t)(8 * GRANULE));
  cnn_pool_retag(b, in_b, 1);
  CHECK(stats_of(root).kinds[1].current == (int64_t)(in_a->size + in_b->size));
  CHECK_POOL(root);
  CHECK_POOL(b);
  // What one has free goes to another that needs it, and only what it needs.
  cnn_pool_free(a, in_a);
  CHECK(stats_of(a).reserved.current == (int64_t)(8 * GRANULE));
  cnn_block *in_root = cnn_pool_alloc(root, 3 * GRANULE - CNN_POOL_REDZONE, 0, NULL);
  CHECK(in_root && stats_of(a).reserved.current == (int64_t)(5 * GRANULE));
  CHECK(stats_of(b).available == (int64_t)(4 * GRANULE)); // its own limit leaves no more
  // In vain: nothing is given.
  CHECK(cnn_pool_alloc(b, 5 * GRANULE, 0, NULL) == NULL);
  CHECK(stats_of(a).reserved.current == (int64_t)(5 * GRANULE));
  // Spare slabs of others give way too.
  cnn_pool_free(a, cnn_pool_alloc(a, 100, 0, NULL));
  cnn_block *rest = cnn_pool_alloc(root, 5 * GRANULE - CNN_POOL_REDZONE, 0, NULL);
  CHECK(rest && stats_of(a).reserved.current == 0);
  CHECK_POOL(root);
  // A lower limit of the device is met by all of its pools.
  cnn_pool_free(root, rest);
  cnn_pool_free(b, in_b);
  cnn_pool_set_limit(root, 6 * GRANULE);
  CHECK(device.committed <= 6 && stats_of(b).limit == (int64_t)(6 * GRANULE));
  cnn_block *blocks[3];
  for (int i = 0; i < 3; i++) blocks[i] = cnn_pool_alloc(b, whole, 0, NULL);
  CHECK(blocks[2] && device.committed == 6 && cnn_pool_alloc(a, 1, 0, NULL) == NULL);
  for (int i = 0; i < 3; i++) cnn_pool_free(b, blocks[i]);
  cnn_pool_free(root, in_root);
  CHECK_POOL(root);
  CHECK(cnn_pool_trim(root) > 0 && device.committed == 0); // of all
  cnn_pool_close(a);
  cnn_pool_close(b);
  cnn_pool_destroy(root);
  CHECK(device.wrong == 0);
}

// A pool that was closed stays until its last block is freed.
static void test_closing(void) {
  fresh_device(32);
  cnn_pool *root = cnn_pool_create(&fake_mapper);
  cnn_pool *p = cnn_pool_create_in(root, SIZE_MAX, "p"), *q = cnn_pool_create_in(root, MIB, "q");
  CHECK(stats_of(p).limit == (int64_t)(32 * GRANULE)); // no more than the device's
  cnn_block *small = cnn_pool_alloc(p, 10, 0, NULL), *large = cnn_pool_alloc(p, 2 * MIB, 0, NULL);
  memset(large->data, 7, 2 * MIB);
  cnn_pool_close(p);
  cnn_pool_free(p, small);
  CHECK(((char *)large->data)[2 * MIB - 1] == 7);
  CHECK_POOL(root);
  CHECK(stats_of(root).allocated.current == (int64_t)large->size && device.committed > 0);
  cnn_pool_free(p, large);
  CHECK(stats_of(root).allocated.current == 0 && stats_of(root).reserved.current == 0);
  CHECK_POOL(root);
  cnn_pool_close(q);
  // No memory for its structures, no address space.
  cnn_fault_set(1, true);
  CHECK(cnn_pool_create_in(root, MIB, "r") == NULL);
  cnn_fault_clear();
  device.largest = 0;
  CHECK(cnn_pool_create_in(root, MIB, "r") == NULL);
  cnn_pool_destroy(root);
  CHECK(device.wrong == 0);
}

// Three pools and their device against models: a request is refused only when its pool's limit or
// the device's leaves too few granules, and the sum of all stays within the device's.
static void test_pools_against_models(int operations) {
  enum { N = 3, LIMIT = 200 };
  static const size_t limits[N] = {LIMIT, 90, 150}; // of the root, of two others
  static model models[N];
  rng_state = 2718281828459045235ull;
  fresh_device(LIMIT);
  device.largest = 128 * GRANULE;
  cnn_pool *pools[N] = {cnn_pool_create(&fake_mapper)};
  for (int k = 1; k < N; k++) pools[k] = cnn_pool_create_in(pools[0], limits[k] * GRANULE, "p");
  memset(models, 0, sizeof models);
  int bad = 0, bad_guarantee = 0, bad_limit = 0, refused = 0, refused_by_device = 0;
  const char *wrong = NULL;
  for (int op = 0; op < operations && !wrong; op++) {
    int k = (int)below(N);
    model *m = &models[k];
    bool grow = below(100) < (op / 3000 % 2 ? 45u : 55u);
    if ((grow && m->n < MAX_LIVE) || m->n == 0) {
      size_t bytes = 1 + random_bytes();
      size_t need = bytes <= CNN_POOL_SMALL ? 1 : granules_for(bytes, GRANULE);
      cnn_pool_stats before = stats_of(pools[k]);
      uint8_t kind = (uint8_t)below(CNN_POOL_KINDS);
      cnn_block *b = cnn_pool_alloc(pools[k], bytes, kind, NULL);
      if (b) {
        bad += !model_add(m, b, bytes, kind);
      } else {
        refused++;
        bad_guarantee += need * GRANULE <= (size_t)before.available;
        size_t own = limits[k] * GRANULE - (size_t)before.reserved.current;
        refused_by_device += k > 0 && need * GRANULE <= own;
      }
    } else {
      bad += !model_free(m, pools[k], (int)below((size_t)m->n));
    }
    if (below(5000) == 0) cnn_pool_trim(pools[below(N)]);
    bad_limit += device.committed > LIMIT;
    if (op % 16 == 0) {
      cnn_pool_stats all = stats_of(pools[0]);
      int64_t allocated = 0, blocks = 0;
      for (int i = 0; i < N; i++) allocated += models[i].allocated, blocks += models[i].n;
      bad += all.allocated.current != allocated || all.blocks.current != blocks ||
             all.reserved.current != (int64_t)(device.committed * GRANULE);
      for (int i = 1; i < N; i++) {
        bad += !agrees(&models[i], pools[i]);
        bad_limit += stats_of(pools[i]).reserved.current > (int64_t)(limits[i] * GRANULE);
      }
    }
    if (op % 499 == 0) wrong = cnn_pool_check(pools[0]);
  }
  report(!wrong, wrong ? wrong : "", __LINE__);
  CHECK(bad == 0);
  CHECK(bad_guarantee == 0);
  CHECK(bad_limit == 0);
  CHECK(refused > 0 && refused_by_device > 0 && refused > refused_by_device);
  for (int k = N - 1; k > 0; k--) cnn_pool_close(pools[k]); // they go with their last blocks
  for (int k = N - 1; k >= 0; k--)
    while (models[k].n > 0) bad += !model_free(&models[k], pools[k], models[k].n - 1);
  CHECK(bad == 0 && stats_of(pools[0]).allocated.current == 0);
  CHECK_POOL(pools[0]);
  cnn_pool_trim(pools[0]);
  CHECK(device.committed == 0);
  cnn_pool_destroy(pools[0]);
  CHECK(device.wrong == 0);
}

typedef struct worker {
  cnn_pool *pool;
  uint64_t seed;
  int operations, bad, served;
} worker;

static void *churn(void *arg) {
  worker *w = arg;
  cnn_block *mine[32] = {0};
  uint64_t x = w->seed;
  for (int i = 0; i < w->operations; i++) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    cnn_block **b = &mine[x >> 59];
    if (*b) {
      w->bad += *(unsigned char *)(*b)->data != (unsigned char)w->seed;
      cnn_pool_free(w->pool, *b);
      *b = NULL;
      continue;
    }
    *b = cnn_pool_alloc(w->pool, 1 + (x >> 20) % (x >> 50 & 1 ? 3 * GRANULE : 3000), 0, NULL);
    if (!*b) continue;
    w->served++;
    memset((*b)->data, (int)w->seed, 1);
  }
  for (int k = 0; k < 32; k++)
    if (mine[k]) cnn_pool_free(w->pool, mine[k]);
  return NULL;
}

// Two threads with a pool each, which take memory from each other all the time.
static void test_threads(int operations) {
  fresh_device(24);
  cnn_pool *root = cnn_pool_create(&fake_mapper);
  worker w[2] = {{cnn_pool_create_in(root, 20 * GRANULE, "1"), 1, operations, 0, 0},
                 {cnn_pool_create_in(root, 20 * GRANULE, "2"), 2, operations, 0, 0}};
  pthread_t t[2];
  int wrong = 0;
  for (int i = 0; i < 2; i++) pthread_create(&t[i], NULL, churn, &w[i]);
  for (int i = 0; i < 50; i++) {
    cnn_pool_stats s = stats_of(root);
    wrong += cnn_pool_check(root) != NULL || s.reserved.current > (int64_t)(24 * GRANULE);
    if (i % 10 == 0) cnn_pool_close(cnn_pool_create_in(root, MIB, "brief"));
  }
  for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
  CHECK(w[0].bad == 0 && w[1].bad == 0 && wrong == 0);
  CHECK(w[0].served > operations / 8 && w[1].served > operations / 8);
  CHECK(stats_of(root).allocated.current == 0);
  CHECK_POOL(root);
  for (int i = 0; i < 2; i++) cnn_pool_close(w[i].pool);
  CHECK(device.committed == 0);
  cnn_pool_destroy(root);
  CHECK(device.wrong == 0);
}

// --- Red zones ----------------------------------------------------------------------------------

static bool all_bytes(const void *at, size_t n, int value) {
  for (size_t i = 0; i < n; i++)
    if (((const unsigned char *)at)[i] != value) return false;
  return true;
}

// What a faulty kernel does. Address sanitizer would stop it.
__attribute__((no_sanitize("address"))) static void stray_write(volatile char *at) {
  *at = 1;
}

static void test_red_zones(void) {
  fresh_device(64);
  fake_mapper.alignment = 256;
  cnn_pool *p = cnn_pool_create(&fake_mapper);
  cnn_block *before = cnn_pool_alloc(p, 100, 2, NULL);
  cnn_damage d;
  bool was_on = cnn_guards_on();
  cnn_guards_set(true);
  const size_t sizes[] = {1, 100, 4096, CNN_POOL_SMALL, CNN_POOL_SMALL + 1, 3 * GRANULE + 5};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    size_t n = sizes[i];
    cnn_block *b = cnn_pool_alloc(p, n, 3, NULL);
    CHECK(b->requested == n && (uintptr_t)b->data % 256 == 0 && b->guarded);
    CHECK(all_bytes(b->data, n, 0xFF));
    float nan = 0;
    memcpy(&nan, b->data, n < sizeof nan ? 0 : sizeof nan);
    CHECK(n < sizeof nan || nan != nan);
    CHECK_POOL(p);
    cnn_pool_free(p, b);
    CHECK(!cnn_guard_take(&d));
    // The very next byte.
    b = cnn_pool_alloc(p, n, 3, NULL);
    stray_write((char *)b->data + n);
    cnn_pool_free(p, b);
    CHECK(cnn_guard_take(&d) && d.requested == n && d.kind == 3 && d.after == 1 && d.before == 0);
    CHECK(d.first == n && d.found == 1 && !cnn_guard_take(&d));
    // The one before, in two blocks.
    for (int k = 0; k < 2; k++) {
      b = cnn_pool_alloc(p, n + (size_t)k, 4, NULL);
      stray_write((char *)b->data - 1);
      cnn_pool_free(p, b);
    }
    CHECK(cnn_guard_take(&d) && d.requested == n && d.before == 1 && d.after == 0 && d.found == 2);
  }
#ifndef CNN_POISONED
  // What was freed reads as NaN.
  cnn_block *b = cnn_pool_alloc(p, 400, 0, NULL);
  float *x = b->data;
  for (int i = 0; i < 100; i++) x[i] = 1;
  cnn_pool_free(p, b);
  int numbers = 0;
  for (int i = 0; i < 100; i++) numbers += x[i] == x[i];
  CHECK(numbers == 0);
#endif
  // Blocks of before and after live on together.
  cnn_block *guarded = cnn_pool_alloc(p, 100, 2, NULL);
  cnn_guards_set(false);
  cnn_block *plain = cnn_pool_alloc(p, 100, 2, NULL);
  CHECK(!before->guarded && guarded->guarded && !plain->guarded);
  cnn_pool_free(p, before);
  cnn_pool_free(p, guarded);
  cnn_pool_free(p, plain);
  CHECK(!cnn_guard_take(&d));
  CHECK_POOL(p);
  cnn_pool_destroy(p);
  cnn_guards_set(was_on);
}

// --- Fragmentation ------------------------------------------------------------------------------

// A caching allocator as they often are, for comparison: best fit, split and coalesce, in segments
// that never grow (2 MiB for requests up to 1 MiB, 20 MiB up to 10 MiB, else of the request's
// size). At the limit it gives wholly free segments back. Bookkeeping only, and slow.
#define NAIVE_MOST 20000

typedef struct piece {
  size_t bytes;
  int prev, next; // in its segment, -1 for none
  bool used, small, there;
} piece;

typedef struct naive {
  piece pieces[NAIVE_MOST];
  int n, unused[NAIVE_MOST], unused_count;
  size_t reserved, limit;
} naive;

static int naive_piece(naive *v, piece with) {
  int i = v->unused_count > 0 ? v->unused[--v->unused_count] : v->n++;
  if (i >= NAIVE_MOST) abort();
  with.there = true;
  v->pieces[i] = with;
  return i;
}

static void naive_drop(naive *v, int i) {
  v->pieces[i].there = false;
  v->unused[v->unused_count++] = i;
}

static int naive_best(const naive *v, size_t bytes, bool small) {
  int best = -1;
  for (int i = 0; i < v->n; i++) {
    const piece *p = &v->pieces[i];
    if (p->there && !p->used && p->small == small && p->bytes >= bytes &&
        (best < 0 || p->bytes < v->pieces[best].bytes))
      best = i;
  }
  return best;
}

static int naive_alloc(naive *v, size_t bytes) {
  bytes = (bytes + 511) / 512 * 512;
  bool small = bytes <= MIB;
  int i = naive_best(v, bytes, small);
  if (i < 0) {
    size_t segment = small              ? 2 * MIB
                     : bytes < 10 * MIB ? 20 * MIB
                                        : (bytes + 2 * MIB - 1) & -(2 * MIB);
    for (int k = 0; k < v->n && v->reserved + segment > v->limit; k++) {
      const piece *p = &v->pieces[k];
      if (!p->there || p->used || p->prev >= 0 || p->next >= 0) continue;
      v->reserved -= p->bytes;
      naive_drop(v, k);
    }
    if (v->reserved + segment > v->limit) return -1;
    v->reserved += segment;
    i = naive_piece(v, (piece){.bytes = segment, .prev = -1, .next = -1, .small = small});
  }
  size_t rest = v->pieces[i].bytes - bytes;
  if (small ? rest >= 512 : rest > MIB) {
    int next = v->pieces[i].next;
    int k = naive_piece(v, (piece){.bytes = rest, .prev = i, .next = next, .small = small});
    if (next >= 0) v->pieces[next].prev = k;
    v->pieces[i].next = k;
    v->pieces[i].bytes = bytes;
  }
  v->pieces[i].used = true;
  return i;
}

static void naive_free(naive *v, int i) {
  v->pieces[i].used = false;
  for (int side = 0; side < 2; side++) {
    int k = side ? v->pieces[i].next : v->pieces[i].prev;
    if (k < 0 || v->pieces[k].used) continue;
    int first = side ? i : k, second = side ? k : i, after = v->pieces[second].next;
    v->pieces[first].bytes += v->pieces[second].bytes;
    v->pieces[first].next = after;
    if (after >= 0) v->pieces[after].prev = first;
    naive_drop(v, second);
    i = first;
  }
}

typedef struct lived {
  cnn_block *block; // NULL: refused
  int naive;        // -1: refused
  size_t bytes;
  int until;
} lived;

// Sizes are spread evenly over their logarithms, from 64 bytes to 64 MiB; a third of the blocks
// live for a moment, a third for a while, a third for long. Live bytes are kept at 90 % of the
// limit, as far as the next block allows.
// `probe`: at every step all that is free must also be had in one piece. That moves memory about,
// so the other way is measured too.
static void test_torture(const cnn_mapper *mapper, int operations, bool probe) {
  enum { MOST = 8000 };
  static lived all[MOST];
  static naive v;
  const size_t limit = 1024 * MIB, g = mapper->granule;
  cnn_pool *p = cnn_pool_create(mapper);
  cnn_pool_set_limit(p, limit);
  v = (naive){.limit = limit};
  rng_state = 161803398874989484ull;
  int n = 0, refused = 0, refused_naive = 0, broken = 0, probes = 0, bad_pin = 0, over = 0;
  size_t live = 0, target = limit / 10 * 9;
  double worst_pin = 0;
  for (int op = 0; op < operations; op++) {
    for (int i = 0; i < n; i++) // those whose time is over; the last takes the place
      while (i < n && all[i].until <= op) {
        if (all[i].block) cnn_pool_free(p, all[i].block);
        if (all[i].naive >= 0) naive_free(&v, all[i].naive);
        live -= all[i].bytes;
        all[i] = all[--n];
      }
    size_t bytes = (size_t)64 << below(20);
    bytes += below(bytes);
    while (n == MOST || (n > 0 && live + bytes > target)) {
      int i = (int)below((size_t)n);
      if (all[i].block) cnn_pool_free(p, all[i].block);
      if (all[i].naive >= 0) naive_free(&v, all[i].naive);
      live -= all[i].bytes;
      all[i] = all[--n];
    }
    size_t life = below(3) == 0 ? 1 + below(20) : below(2) ? 1 + below(500) : 1 + below(10000);
    cnn_pool_stats s = stats_of(p);
    size_t need = granules_for(bytes, g);
    lived one = {cnn_pool_alloc(p, bytes, 0, NULL), naive_alloc(&v, bytes), bytes, op + (int)life};
    refused += !one.block;
    refused_naive += one.naive < 0;
    broken += !one.block && need * g <= (size_t)s.available;
    // Large blocks lie end to end, so some fit where no granule is whole.
    over += one.block && bytes > CNN_POOL_SMALL && need * g > (size_t)s.available;
    live += bytes;
    all[n++] = one;
    s = stats_of(p);
    // Counted once there is something to pin by: a first small block has a granule to itself.
    if (live > limit / 2) {
      double pinned = (double)(s.small_reserved - s.small.current) / (double)s.allocated.current;
      if (pinned > worst_pin) worst_pin = pinned;
      bad_pin += !(pinned <= 0.05);
    }
    if (probe) {
      // All that is free can be had in one piece, and no more.
      cnn_block *most =
          s.available ? cnn_pool_alloc(p, (size_t)s.available - CNN_POOL_REDZONE, 0, NULL) : NULL;
      probes += most != NULL;
      broken += s.available && !most;
      if (most) cnn_pool_free(p, most);
      broken += cnn_pool_alloc(p, (size_t)s.available + g - CNN_POOL_REDZONE, 0, NULL) != NULL;
    }
    if (op % 1000 == 0) broken += cnn_pool_check(p) != NULL;
  }
  CHECK(broken == 0);
  CHECK(bad_pin == 0);
  CHECK(refused <= refused_naive / 4);
  CHECK(stats_of(p).reserved.peak <= (int64_t)limit);
  CHECK_POOL(p);
  printf("  torture: %d requests at 90%% of %zu MiB: %d refused (each for want of whole granules; "
         "%d fitted between blocks), best fit without growth in place %d; all that was free in one "
         "piece %d times; small blocks pin at most %.2f%% of live bytes\n",
         operations, limit / MIB, refused, over, refused_naive, probes, 100 * worst_pin);
  while (n-- > 0)
    if (all[n].block) cnn_pool_free(p, all[n].block);
  cnn_pool_trim(p);
  CHECK(stats_of(p).reserved.current == 0);
  cnn_pool_destroy(p);
}

// Of the device that CNN_TEST_DEVICE names, where that is no CPU. On the simulator a request that
// moves memory takes a millisecond.
static void test_device(void) {
  const char *why = "";
  CHECK(cnn_ops_install() == NULL); // which the plugin is held against
  const cnn_driver *driver = cnn_cuda_driver(&why);
  if (!driver) printf("  no GPU: %s\n", why);
  CHECK(driver != NULL);
  if (!driver) return;
  test_torture(driver->mapper(0), driver->simulated ? 5000 : 100000, false);
  test_torture(driver->mapper(0), driver->simulated ? 500 : 100000, true);
}

int main(void) {
  const char *where = getenv("CNN_TEST_DEVICE");
  if (where && strcmp(where, "cuda") == 0) {
    test_device();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
  }
  test_two_limits();
  test_closing();
  test_red_zones();
  test_pools_against_models(200000 / THINNED);
  test_threads(200000 / THINNED);
  test_torture(&cnn_cpu_mapper, 100000 / THINNED, false);
  test_torture(&cnn_cpu_mapper, 100000 / THINNED, true);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
