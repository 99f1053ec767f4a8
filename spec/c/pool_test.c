// SPDX-License-Identifier: MIT
// The pool against a naive model, on a device of plain memory that counts its granules and on the
// real CPU mapper.
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "memory/cpu_memory.h"
#include "pool_model.h"

static void test_against_model(int operations, size_t limit) {
  rng_state = 88172645463325252ull + limit;
  fresh_device(limit);
  device.largest = 128 * GRANULE; // several ranges get used
  cnn_pool *p = cnn_pool_create(&fake_mapper);
  static model m;
  m = (model){0};
  int bad_add = 0, bad_free = 0, bad_stats = 0, bad_guarantee = 0, bad_limit = 0, bad_failure = 0,
      bad_idle = 0;
  int refused = 0, faults = 0, device_refusals = 0, over = 0;
  const char *wrong = NULL;
  size_t bound = limit;
  for (int op = 0; op < operations && !wrong; op++) {
    // Phases of growing and of shrinking.
    bool grow = below(100) < (op / 3000 % 2 ? 44u : 56u);
    if ((grow && m.n < MAX_LIVE) || m.n == 0) {
      size_t bytes = random_bytes();
      uint8_t kind = (uint8_t)below(CNN_POOL_KINDS);
      bool fault = below(50) == 0;
      int refusals = below(10) == 0 ? 1 + (int)below(2) : 0;
      if (fault) cnn_fault_set(1, below(2) != 0);
      device.refuse = refusals;
      cnn_pool_stats before = stats_of(p);
      cnn_block *b = cnn_pool_alloc(p, bytes, kind, NULL);
      if (fault && cnn_fault_clear() != 1) bad_failure++;
      bool was_refused = device.refuse != refusals;
      device.refuse = 0;
      if (bytes == 0 && b) {
        bad_add += b->requested != 1;
        bytes = 1;
      }
      if (b) {
        bad_add += !model_add(&m, b, bytes, kind) || fault;
      } else {
        cnn_pool_stats after = stats_of(p);
        refused++;
        faults += fault;
        device_refusals += was_refused;
        bad_failure += after.failures != before.failures + 1 ||
                       after.allocated.current != before.allocated.current ||
                       after.allocated.peak != before.allocated.peak;
        size_t need = bytes <= CNN_POOL_SMALL ? 1 : granules_for(bytes, GRANULE);
        if (!fault && !was_refused && need * GRANULE <= (size_t)before.available) bad_guarantee++;
      }
    } else if (below(20) == 0) {
      item *it = &m.items[below((size_t)m.n)];
      m.kinds[it->kind] -= (int64_t)it->block->size;
      it->kind = (uint8_t)below(CNN_POOL_KINDS);
      m.kinds[it->kind] += (int64_t)it->block->size;
      cnn_pool_retag(p, it->block, it->kind);
    } else {
      bad_free += !model_free(&m, p, (int)below((size_t)m.n));
    }
    if (below(2000) == 0) {
      size_t before = device.committed, given = cnn_pool_trim(p);
      bad_limit += before - device.committed != given / GRANULE;
    }
    if (below(3000) == 0) {
      bound = below(3) == 0 ? limit / 2 : limit;
      cnn_pool_set_limit(p, bound * GRANULE);
    }
    if (device.committed > bound) over++;
    cnn_pool_stats now = stats_of(p);
    bad_idle += !agrees_on_inactive(&m, &now);
    bad_limit += device.committed > limit;
    bad_stats += !agrees(&m, p);
    if (op % 199 == 0) wrong = cnn_pool_check(p);
  }
  report(!wrong, wrong ? wrong : "", __LINE__);
  CHECK(bad_add == 0);
  CHECK(bad_free == 0);
  CHECK(bad_stats == 0);
  CHECK(bad_idle == 0);
  CHECK(bad_guarantee == 0);
  CHECK(bad_limit == 0);
  CHECK(bad_failure == 0);
  CHECK(device.wrong == 0);
  // The test must have met what it is about.
  CHECK(refused > faults + device_refusals && faults > 0 && device_refusals > 0);
  CHECK(over < operations / 2);
  while (m.n > 0) bad_free += !model_free(&m, p, m.n - 1);
  CHECK(bad_free == 0);
  CHECK_POOL(p);
  cnn_pool_trim(p);
  CHECK_POOL(p);
  cnn_pool_stats s = stats_of(p);
  CHECK(s.allocated.current == 0 && s.reserved.current == 0 && device.committed == 0);
  CHECK(s.largest_free == 0 && s.maps > 0 && s.unmaps > 0);
  cnn_pool_destroy(p);
  CHECK(device.wrong == 0);
}

// --- Single promises ----------------------------------------------------------------------------

static void test_statistics(void) {
  fresh_device(64);
  cnn_pool *p = cnn_pool_create(&fake_mapper);
  cnn_block *a = cnn_pool_alloc(p, 100, 1, NULL), *b = cnn_pool_alloc(p, 3 * GRANULE, 2, NULL);
  cnn_pool_stats s = stats_of(p);
  CHECK(a->size == 128 && a->requested == 100 && b->size == 3 * GRANULE);
  CHECK(s.allocated.current == (int64_t)(128 + 3 * GRANULE));
  CHECK(s.requested.current == (int64_t)(100 + 3 * GRANULE));
  CHECK(s.kinds[1].current == 128 && s.kinds[2].current == (int64_t)(3 * GRANULE));
  CHECK(s.blocks.current == 2 && s.limit == (int64_t)(64 * GRANULE));
  CHECK(s.reserved.current == (int64_t)(device.committed * GRANULE));
  cnn_pool_retag(p, b, 3);
  s = stats_of(p);
  CHECK(s.kinds[2].current == 0 && s.kinds[2].peak == (int64_t)(3 * GRANULE));
  CHECK(s.kinds[3].current == (int64_t)(3 * GRANULE) && b->kind == 3);
  cnn_pool_free(p, b);
  s = stats_of(p);
  CHECK(s.kinds[3].current == 0 && s.allocated.peak == (int64_t)(128 + 3 * GRANULE));
  cnn_pool_reset_peaks(p);
  s = stats_of(p);
  CHECK(s.allocated.peak == 128 && s.kinds[2].peak == 0 && s.blocks.peak == 1);
  CHECK(s.allocated.total == (int64_t)(128 + 3 * GRANULE) && s.blocks.total == 2);
  CHECK(cnn_pool_alloc(p, SIZE_MAX, 0, NULL) == NULL);
  CHECK(cnn_pool_alloc(p, SIZE_MAX - 100, 0, NULL) == NULL);
  CHECK(cnn_pool_alloc(p, PTRDIFF_MAX, 0, NULL) == NULL);
  CHECK(stats_of(p).failures == 3);
  cnn_pool_free(p, a);
  CHECK_POOL(p);
  cnn_pool_destroy(p);
}

static void test_reuse(void) {
  fresh_device(256);
  cnn_pool *p = cnn_pool_create(&fake_mapper);
  // The last one freed comes first.
  cnn_block *a = cnn_pool_alloc(p, 500, 0, NULL), *b = cnn_pool_alloc(p, 500, 0, NULL);
  void *at = b->data;
  cnn_pool_free(p, a);
  cnn_pool_free(p, b);
  b = cnn_pool_alloc(p, 500, 0, NULL);
  CHECK(b->data == at);
  cnn_pool_free(p, b);
  // A second round of the same work asks the device for nothing.
  cnn_block *blocks[40];
  int64_t maps = 0;
  for (int round = 0; round < 3; round++) {
    rng_state = 7;
    for (int i = 0; i < 40; i++) blocks[i] = cnn_pool_alloc(p, random_bytes(), 0, NULL);
    for (int i = 0; i < 40; i++) cnn_pool_free(p, blocks[i]);
    if (round > 0) CHECK(stats_of(p).maps == maps);
    maps = stats_of(p).maps;
  }
  CHECK(stats_of(p).unmaps == 0);
  // Free memory grows in place: 1 granule after the other, then all as one.
  cnn_pool_trim(p);
  size_t most = 0;
  for (size_t n = 1; n <= 32; n++) {
    cnn_block *x = cnn_pool_alloc(p, n * GRANULE - CNN_POOL_REDZONE, 0, NULL);
    cnn_pool_free(p, x);
    if (device.committed > most) most = device.committed;
  }
  CHECK(most == 32);
  cnn_pool_destroy(p);
}

// Ends of blocks share granules, and a block pins no more granules than it needs.
static void test_packing(void) {
  fresh_device(1024);
  cnn_pool *p = cnn_pool_create(&fake_mapper);
  cnn_block *blocks[64];
  for (int i = 0; i < 64; i++)
    blocks[i] = cnn_pool_alloc(p, GRANULE * 9 / 8 - CNN_POOL_REDZONE, 0, NULL);
  CHECK(device.committed == 72);
  // Every other one goes: what is left pins at most 2 granules each.
  for (int i = 0; i < 64; i += 2) cnn_pool_free(p, blocks[i]);
  cnn_pool_trim(p);
  CHECK(device.committed <= 64);
  CHECK_POOL(p);
  for (int i = 1; i < 64; i += 2) cnn_pool_free(p, blocks[i]);
  cnn_pool_destroy(p);
}

static void test_limit(void) {
  fresh_device(16);
  cnn_pool *p = cnn_pool_create(&fake_mapper);
  size_t whole = GRANULE - CNN_POOL_REDZONE;
  cnn_block *blocks[16];
  for (int i = 0; i < 16; i++) blocks[i] = cnn_pool_alloc(p, whole, 0, NULL);
  CHECK(device.committed == 16 && blocks[15] != NULL);
  CHECK(cnn_pool_alloc(p, 1, 0, NULL) == NULL && stats_of(p).available == 0);
  // Every other granule: as many as are free can be had in one piece.
  for (int i = 0; i < 16; i += 2) cnn_pool_free(p, blocks[i]);
  CHECK(stats_of(p).available == (int64_t)(8 * GRANULE));
  CHECK(cnn_pool_alloc(p, 8 * GRANULE + 64, 0, NULL) == NULL);
  cnn_block *big = cnn_pool_alloc(p, 8 * GRANULE - CNN_POOL_REDZONE, 0, NULL);
  CHECK(big != NULL && device.committed == 16);
  CHECK_POOL(p);
  if (big) cnn_pool_free(p, big);
  // A failed request gives nothing away.
  int64_t unmaps = stats_of(p).unmaps;
  CHECK(cnn_pool_alloc(p, 9 * GRANULE, 0, NULL) == NULL && stats_of(p).unmaps == unmaps);
  // A lower limit gives free granules back at once and refuses new blocks only.
  cnn_pool_set_limit(p, 4 * GRANULE + 5);
  CHECK(device.committed == 8 && stats_of(p).limit == (int64_t)(4 * GRANULE + 5));
  CHECK(cnn_pool_alloc(p, 1, 0, NULL) == NULL && stats_of(p).available == 0);
  for (int i = 1; i < 11; i += 2) cnn_pool_free(p, blocks[i]);
  cnn_block *small = cnn_pool_alloc(p, 1, 0, NULL);
  CHECK(small != NULL && device.committed <= 4);
  // A higher one makes room again.
  cnn_pool_set_limit(p, SIZE_MAX);
  CHECK(stats_of(p).available > 0);
  big = cnn_pool_alloc(p, 100 * GRANULE, 0, NULL);
  CHECK(big != NULL);
  if (big) cnn_pool_free(p, big);
  if (small) cnn_pool_free(p, small);
  for (int i = 11; i < 16; i += 2) cnn_pool_free(p, blocks[i]);
  CHECK_POOL(p);
  cnn_pool_destroy(p);
  CHECK(device.wrong == 0);
}

// Kept empty slabs of many classes give way when their granules are needed.
static void test_spare_slabs(void) {
  fresh_device(64);
  cnn_pool *p = cnn_pool_create(&fake_mapper);
  for (size_t n = 64; n <= CNN_POOL_SMALL; n += n / 8 / 64 * 64 + 64)
    cnn_pool_free(p, cnn_pool_alloc(p, n, 0, NULL));
  CHECK(stats_of(p).allocated.current == 0 && device.committed > 4);
  cnn_pool_set_limit(p, device.committed * GRANULE);
  CHECK(stats_of(p).available == (int64_t)(device.committed * GRANULE));
  cnn_block *all = cnn_pool_alloc(p, device.committed * GRANULE - CNN_POOL_REDZONE, 0, NULL);
  CHECK(all != NULL);
  if (all) cnn_pool_free(p, all);
  // And when one of the small classes needs them.
  cnn_pool_set_limit(p, GRANULE);
  int refused = 0;
  for (size_t n = 64; n <= CNN_POOL_SMALL; n += 64) {
    cnn_block *b = cnn_pool_alloc(p, n, 0, NULL);
    refused += !b;
    if (b) cnn_pool_free(p, b);
  }
  CHECK(refused == 0 && device.committed == 1);
  CHECK_POOL(p);
  cnn_pool_destroy(p);
}

// The device itself refuses: free memory elsewhere is given back, then it is asked again.
static void test_device_refuses(void) {
  fresh_device(1000);
  device.capacity = 10;
  cnn_pool *p = cnn_pool_create(&fake_mapper);
  size_t whole = GRANULE - CNN_POOL_REDZONE;
  cnn_block *blocks[10];
  for (int i = 0; i < 10; i++) blocks[i] = cnn_pool_alloc(p, whole, 0, NULL);
  CHECK(cnn_pool_alloc(p, whole, 0, NULL) == NULL);
  for (int i = 0; i < 10; i += 2) cnn_pool_free(p, blocks[i]);
  cnn_block *big = cnn_pool_alloc(p, 5 * GRANULE - CNN_POOL_REDZONE, 0, NULL);
  CHECK(big != NULL);
  CHECK_POOL(p);
  if (big) cnn_pool_free(p, big);
  for (int i = 1; i < 10; i += 2) cnn_pool_free(p, blocks[i]);
  cnn_pool_destroy(p);
  // No address space: no pool. Little of it: several ranges.
  fresh_device(64);
  device.largest = 0;
  CHECK(cnn_pool_create(&fake_mapper) == NULL);
  device.largest = 2 * GRANULE;
  p = cnn_pool_create(&fake_mapper);
  CHECK(p != NULL);
  cnn_block *a = cnn_pool_alloc(p, 2 * GRANULE - CNN_POOL_REDZONE, 0, NULL);
  cnn_block *b = cnn_pool_alloc(p, GRANULE, 0, NULL);
  CHECK(a && b && device.arenas >= 2 && cnn_pool_alloc(p, 3 * GRANULE, 0, NULL) == NULL);
  CHECK_POOL(p);
  if (a) cnn_pool_free(p, a);
  if (b) cnn_pool_free(p, b);
  cnn_pool_destroy(p);
  CHECK(device.wrong == 0);
  // No memory for the pool's own structures.
  fresh_device(64);
  cnn_fault_set(1, true);
  CHECK(cnn_pool_create(&fake_mapper) == NULL);
  cnn_fault_clear();
  CHECK(device.arenas == 0);
}

// A pool never touches what the CPU can't reach, and keeps a device's alignment.
static void test_unreachable(void) {
  fresh_device(128);
  device.virtual_only = true;
  fake_mapper.host = false;
  fake_mapper.alignment = 512;
  cnn_pool *p = cnn_pool_create(&fake_mapper);
  cnn_block *blocks[300];
  rng_state = 99;
  int bad = 0;
  for (int i = 0; i < 300; i++) {
    size_t n = 1 + below(i % 3 ? 4096 : 900 * 1024);
    blocks[i] = cnn_pool_alloc(p, n, 0, NULL);
    if (blocks[i]) bad += (uintptr_t)blocks[i]->data % 512 != 0 || blocks[i]->size < n;
  }
  CHECK(bad == 0);
  CHECK_POOL(p);
  for (int i = 0; i < 300; i++)
    if (blocks[i]) cnn_pool_free(p, blocks[i]);
  cnn_pool_destroy(p);
  CHECK(device.wrong == 0);
}

// At 90 % of a limit, after long churn: whatever whole granules are free can be had in one piece.
static void test_fragmentation(const cnn_mapper *mapper, size_t limit, int rounds) {
  rng_state = 4242;
  size_t g = mapper->granule;
  cnn_pool *p = cnn_pool_create(mapper);
  cnn_pool_set_limit(p, limit * g);
  static cnn_block *blocks[20000];
  int n = 0, refused = 0, broken = 0, big_asked = 0;
  for (int round = 0; round < rounds; round++) {
    while (cnn_pool_live(p) < (int64_t)(limit * g / 10 * 9) && n < 20000) {
      size_t bytes = below(3) == 0 ? 1 + below(CNN_POOL_SMALL) : 1 + below(6 * g);
      size_t need = granules_for(bytes, g);
      size_t room = (size_t)stats_of(p).available / g;
      cnn_block *b = cnn_pool_alloc(p, bytes, 0, NULL);
      if (b) {
        blocks[n++] = b;
      } else {
        refused++;
        broken += need <= room;
        break;
      }
    }
    size_t room = (size_t)stats_of(p).available / g;
    if (room > 0) { // all that is free, as one block
      cnn_block *b = cnn_pool_alloc(p, room * g - CNN_POOL_REDZONE, 0, NULL);
      big_asked++;
      broken += !b;
      if (b) cnn_pool_free(p, b);
    }
    for (int i = n / 4; i > 0 && n > 0; i--) {
      int k = (int)below((size_t)n);
      cnn_pool_free(p, blocks[k]);
      blocks[k] = blocks[--n];
    }
    if (round % 10 == 0 && cnn_pool_check(p)) broken++;
  }
  cnn_pool_stats s = stats_of(p);
  CHECK(broken == 0);
  CHECK(big_asked > rounds / 2 && n > 0);
  CHECK(s.reserved.peak <= s.limit);
  CHECK_POOL(p);
  while (n > 0) cnn_pool_free(p, blocks[--n]);
  cnn_pool_trim(p);
  CHECK(stats_of(p).reserved.current == 0);
  cnn_pool_destroy(p);
  printf("  %s: %d rounds at 90%% of %zu granules, peak of live bytes %.1f%% of the limit, "
         "%d requests refused\n",
         mapper->name, rounds, limit, 100.0 * (double)s.allocated.peak / (double)s.limit, refused);
}

// --- The real device ----------------------------------------------------------------------------

static size_t resident(void) {
  unsigned long total = 0, pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f && fscanf(f, "%lu %lu", &total, &pages) != 2) pages = 0;
  if (f) fclose(f);
  return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void test_cpu_memory(void) {
  size_t total, free_now, limit;
  cnn_cpu_mapper.info(cnn_cpu_mapper.self, &total, &free_now, &limit);
  CHECK(limit > 0 && limit <= free_now && free_now <= total && total < SIZE_MAX / 2);
  cnn_pool *p = cnn_pool_create(&cnn_cpu_mapper);
  CHECK(stats_of(p).limit > 0 && stats_of(p).reserved.current == 0);
  size_t before = resident(), n = 64 * MIB;
  cnn_block *b = cnn_pool_alloc(p, n, 0, NULL);
  memset(b->data, 1, n);
  size_t with = resident();
  CHECK(with >= before + n / 10 * 9);
  cnn_pool_free(p, b);
  CHECK(cnn_pool_trim(p) >= n);
  CHECK(resident() <= with - n / 10 * 9);
  // Zero again, and usable, after it was given back.
  b = cnn_pool_alloc(p, n, 0, NULL);
  CHECK(((char *)b->data)[0] == 0 && ((char *)b->data)[n - 1] == 0);
  CHECK_POOL(p);
  cnn_pool_free(p, b);
  cnn_pool_destroy(p);
}

static void write_file(const char *root, const char *path, const char *text) {
  char full[512];
  snprintf(full, sizeof full, "%s%s", root, path);
  for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); at++) {
    *at = 0;
    mkdir(full, 0700);
    *at = '/';
  }
  FILE *f = fopen(full, "w");
  if (!f) return;
  fputs(text, f);
  fclose(f);
}

static void test_groups(void) {
  char root[] = "/tmp/cnn_pool_test_XXXXXX", command[64];
  if (!mkdtemp(root)) {
    report(false, "no temporary directory", __LINE__);
    return;
  }
  size_t total, left;
  cnn_cpu_memory_left(root, &total, &left);
  CHECK(total == SIZE_MAX && left == SIZE_MAX); // nothing to read, nothing binds
  write_file(root, "/proc/meminfo", "MemTotal:  8000 kB\nMemFree: 10 kB\nMemAvailable:  6000 kB\n");
  cnn_cpu_memory_left(root, &total, &left);
  CHECK(total == 8000 * 1024 && left == 6000 * 1024);
  // v2: the group has no limit, its parent has; the page cache that can go doesn't count.
  write_file(root, "/proc/self/cgroup", "0::/a/b\n");
  write_file(root, "/proc/self/mountinfo",
             "22 1 0:20 / /proc rw - proc proc rw\n"
             "35 25 0:30 / /cg rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  write_file(root, "/cg/a/b/memory.max", "max\n");
  write_file(root, "/cg/a/memory.max", "4096000\n");
  write_file(root, "/cg/a/memory.current", "2000000\n");
  write_file(root, "/cg/a/memory.stat", "anon 7\ninactive_file 1000000\nactive_file 5\n");
  cnn_cpu_memory_left(root, &total, &left);
  CHECK(total == 4096000 && left == 3096000);
  // v1 in a container: the mount shows a part of the hierarchy, and the group starts with it.
  write_file(root, "/proc/self/cgroup", "7:cpu,cpuacct:/x\n4:memory:/docker/77/job\n0::/\n");
  write_file(root, "/proc/self/mountinfo",
             "30 25 0:26 / /cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
             "31 25 0:27 /docker/77 /mem rw - cgroup cgroup rw,memory\n");
  write_file(root, "/mem/job/memory.limit_in_bytes", "9223372036854771712\n");
  write_file(root, "/mem/memory.limit_in_bytes", "3000000\n");
  write_file(root, "/mem/memory.usage_in_bytes", "3500000\n");
  cnn_cpu_memory_left(root, &total, &left);
  CHECK(total == 3000000 && left == 0);
  snprintf(command, sizeof command, "rm -rf %s", root);
  CHECK(system(command) == 0);
}

// --- Threads and forks --------------------------------------------------------------------------

typedef struct worker {
  cnn_pool *pool;
  uint64_t seed;
  int operations, bad;
  atomic_int *stop;
} worker;

static void *churn(void *arg) {
  worker *w = arg;
  cnn_block *mine[64] = {0};
  uint64_t x = w->seed;
  for (int i = 0; i < w->operations && !(w->stop && atomic_load(w->stop)); i++) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    int k = (int)(x >> 58);
    if (mine[k]) {
      unsigned char *d = mine[k]->data;
      w->bad +=
          d[0] != (unsigned char)w->seed || d[mine[k]->requested - 1] != (unsigned char)w->seed;
      cnn_pool_free(w->pool, mine[k]);
      mine[k] = NULL;
    } else {
      size_t n = 1 + (x >> 20) % ((x >> 50 & 7) == 0 ? 3 * GRANULE : 3000);
      mine[k] = cnn_pool_alloc(w->pool, n, (uint8_t)(w->seed % CNN_POOL_KINDS), NULL);
      if (!mine[k]) continue;
      memset(mine[k]->data, (int)w->seed, 1);
      memset((char *)mine[k]->data + n - 1, (int)w->seed, 1);
    }
  }
  for (int k = 0; k < 64; k++)
    if (mine[k]) cnn_pool_free(w->pool, mine[k]);
  return NULL;
}

static void test_threads(int operations) {
  fresh_device(200);
  cnn_pool *p = cnn_pool_create(&fake_mapper);
  worker w[2] = {{p, 1, operations, 0, NULL}, {p, 2, operations, 0, NULL}};
  pthread_t t[2];
  for (int i = 0; i < 2; i++) pthread_create(&t[i], NULL, churn, &w[i]);
  int wrong = 0;
  for (int i = 0; i < 50; i++) {
    wrong += cnn_pool_check(p) != NULL || cnn_pool_live(p) < 0;
    if (i % 10 == 0) cnn_pool_trim(p);
    usleep(200);
  }
  for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
  CHECK(w[0].bad == 0 && w[1].bad == 0 && wrong == 0);
  CHECK(stats_of(p).allocated.current == 0);
  CHECK_POOL(p);
  cnn_pool_destroy(p);
  CHECK(device.wrong == 0);
}

// Children of a process whose other thread is in the pool all the time.
static void test_forks(int forks) {
  cnn_pool *p = cnn_pool_create(&cnn_cpu_mapper);
  atomic_int stop = 0;
  worker w = {p, 3, 1 << 30, 0, &stop};
  pthread_t t;
  pthread_create(&t, NULL, churn, &w);
  int bad = 0;
  for (int i = 0; i < forks; i++) {
    pid_t child = fork();
    if (child == 0) {
      alarm(20);
      bool ok = cnn_pool_check(p) == NULL;
      for (int k = 0; k < 100; k++) {
        cnn_block *b = cnn_pool_alloc(p, 1000 + 10000 * (size_t)k, 0, NULL);
        ok = ok && b;
        if (b) memset(b->data, 1, b->requested), cnn_pool_free(p, b);
      }
      _exit(ok ? 0 : 1);
    }
    int status = 0;
    bad += child < 0 || waitpid(child, &status, 0) != child || status != 0;
  }
  atomic_store(&stop, 1);
  pthread_join(t, NULL);
  CHECK(bad == 0 && w.bad == 0);
  CHECK_POOL(p);
  cnn_pool_destroy(p);
}

// --- Sanitizer builds ---------------------------------------------------------------------------

static void test_poison(void) {
#ifdef CNN_POISONED
  fresh_device(64);
  cnn_pool *p = cnn_pool_create(&fake_mapper);
  const size_t sizes[] = {1, 100, 128, 5000, CNN_POOL_SMALL, CNN_POOL_SMALL + 1, 2 * GRANULE};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    cnn_block *b = cnn_pool_alloc(p, sizes[i], 0, NULL);
    char *d = b->data;
    CHECK(!__asan_region_is_poisoned(d, sizes[i]));
    CHECK(__asan_address_is_poisoned(d + sizes[i]));
    CHECK(__asan_address_is_poisoned(d + sizes[i] + CNN_POOL_REDZONE - 1));
    cnn_pool_free(p, b);
    CHECK(__asan_address_is_poisoned(d) && __asan_address_is_poisoned(d + sizes[i] - 1));
  }
  cnn_pool_destroy(p);
#endif
}

// With a number as argument, that many operations against the model instead of a million (or of the
// sanitizers' hundred thousand).
int main(int argc, char **argv) {
  int operations = argc > 1 ? atoi(argv[1]) : 1000000 / THINNED;
  test_statistics();
  test_reuse();
  test_packing();
  test_limit();
  test_spare_slabs();
  test_device_refuses();
  test_unreachable();
  test_poison();
  test_groups();
  test_against_model(operations, 300);
  test_against_model(operations / 4, 60);
  fresh_device(100000);
  device.virtual_only = true;
  fake_mapper.host = false;
  test_fragmentation(&fake_mapper, 400, operations / 5000);
  test_fragmentation(&cnn_cpu_mapper, 300, operations / 10000);
  test_cpu_memory();
  test_threads(operations / 5);
  test_forks(operations / 10000);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
