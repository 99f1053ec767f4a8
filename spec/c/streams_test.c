// SPDX-License-Identifier: MIT
// A pool of a device that works in streams: what is given to one stream is handed to no other, nor
// taken from the device, before the work on it is done. The device here does work when the test
// says so, or when the pool waits for it.
#include <pthread.h>

#include "base/alloc.h"
#include "pool_model.h"

#define STREAMS 5 // number 0 is the default one, whose handle is NULL
#define WORKS   2000

// --- A device with streams ----------------------------------------------------------------------

typedef struct work {
  uintptr_t lo, hi;
  int stream;
  uint64_t number;
} work;

typedef struct mark {
  int stream;
  uint64_t number;
} mark;

static struct {
  pthread_mutex_t lock;
  uint64_t given[STREAMS], done[STREAMS];
  bool ended[STREAMS]; // asked for no event any more, until a new stream has that handle
  work works[WORKS];
  int n;
  int marks;          // recorded and not forgotten
  int refuse_records; // so many, one by one
  int refused_records;
  int waits;
  int early; // memory that was handed on or taken away while a stream was at work on it
} sim = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void fresh_streams(void) {
  memset(sim.given, 0, sizeof sim.given);
  memset(sim.done, 0, sizeof sim.done);
  memset(sim.ended, 0, sizeof sim.ended);
  sim.n = sim.marks = sim.refuse_records = sim.refused_records = sim.waits = sim.early = 0;
}

static void *handle(int stream) {
  pthread_mutex_lock(&sim.lock);
  sim.ended[stream] = false;
  pthread_mutex_unlock(&sim.lock);
  return (void *)(uintptr_t)stream;
}

static bool end_stream(cnn_pool *p, int stream) {
  bool ok = cnn_pool_forget_stream(p, handle(stream));
  pthread_mutex_lock(&sim.lock);
  sim.ended[stream] = ok;
  pthread_mutex_unlock(&sim.lock);
  return ok;
}

// With the device's lock held.
static void finish(int stream, uint64_t until) {
  if (until > sim.done[stream]) sim.done[stream] = until;
  for (int i = 0; i < sim.n; i++)
    while (i < sim.n && sim.works[i].number <= sim.done[sim.works[i].stream])
      sim.works[i] = sim.works[--sim.n];
}

static void finish_all(void) {
  pthread_mutex_lock(&sim.lock);
  for (int i = 0; i < STREAMS; i++) finish(i, sim.given[i]);
  pthread_mutex_unlock(&sim.lock);
}

static void finish_some(int stream) {
  pthread_mutex_lock(&sim.lock);
  uint64_t open = sim.given[stream] - sim.done[stream];
  if (open > 0) finish(stream, sim.done[stream] + 1 + sim.given[stream] % open);
  pthread_mutex_unlock(&sim.lock);
}

static void give_work(int stream, const cnn_block *b) {
  pthread_mutex_lock(&sim.lock);
  if (sim.n == WORKS)
    for (int i = 0; i < STREAMS; i++) finish(i, sim.given[i]);
  uintptr_t lo = (uintptr_t)b->data;
  sim.works[sim.n++] = (work){lo, lo + b->size, stream, ++sim.given[stream]};
  pthread_mutex_unlock(&sim.lock);
}

// Counts work on those bytes that is under way in other streams than this one (any, for -1).
static void expect_quiet(const void *at, size_t bytes, int stream) {
  uintptr_t lo = (uintptr_t)at, hi = lo + bytes;
  pthread_mutex_lock(&sim.lock);
  for (int i = 0; i < sim.n; i++) {
    const work *w = &sim.works[i];
    sim.early += w->stream != stream && w->lo < hi && lo < w->hi;
  }
  pthread_mutex_unlock(&sim.lock);
}

static void *sim_record(void *self, void *stream) {
  (void)self;
  mark *m = NULL;
  pthread_mutex_lock(&sim.lock);
  sim.early += sim.ended[(uintptr_t)stream];
  if (sim.refuse_records > 0) {
    sim.refuse_records--;
    sim.refused_records++;
  } else if ((m = malloc(sizeof *m))) {
    *m = (mark){(int)(uintptr_t)stream, sim.given[(uintptr_t)stream]};
    sim.marks++;
  }
  pthread_mutex_unlock(&sim.lock);
  return m;
}

static bool sim_query(void *self, void *event) {
  (void)self;
  const mark *m = event;
  pthread_mutex_lock(&sim.lock);
  bool done = sim.done[m->stream] >= m->number;
  pthread_mutex_unlock(&sim.lock);
  return done;
}

static void sim_wait(void *self, void *event) {
  (void)self;
  const mark *m = event;
  pthread_mutex_lock(&sim.lock);
  finish(m->stream, m->number);
  sim.waits++;
  pthread_mutex_unlock(&sim.lock);
}

static void sim_forget(void *self, void *event) {
  (void)self;
  pthread_mutex_lock(&sim.lock);
  sim.marks--;
  pthread_mutex_unlock(&sim.lock);
  free(event);
}

static void sim_decommit(void *self, void *at, size_t bytes) {
  expect_quiet(at, bytes, -1);
  fake_decommit(self, at, bytes);
}

static void sim_release(void *self, void *base, size_t bytes) {
  expect_quiet(base, bytes, -1);
  fake_release(self, base, bytes);
}

static cnn_mapper sim_mapper;

static cnn_pool *fresh_pool_by(size_t granule, size_t limit) {
  fresh_device(limit / GRANULE);
  fresh_streams();
  device.virtual_only = true;
  sim_mapper = fake_mapper;
  sim_mapper.granule = granule;
  sim_mapper.host = false;
  sim_mapper.decommit = sim_decommit;
  sim_mapper.release = sim_release;
  sim_mapper.record = sim_record;
  sim_mapper.query = sim_query;
  sim_mapper.wait = sim_wait;
  sim_mapper.forget = sim_forget;
  return cnn_pool_create(&sim_mapper);
}

static cnn_pool *fresh_pool(size_t limit_granules) {
  return fresh_pool_by(GRANULE, limit_granules * GRANULE);
}

// A block that the stream works on.
static cnn_block *take(cnn_pool *p, size_t bytes, int stream) {
  cnn_block *b = cnn_pool_alloc(p, bytes, 0, handle(stream));
  if (!b) return NULL;
  expect_quiet(b->data, b->size, stream);
  give_work(stream, b);
  return b;
}

static void end_pool(cnn_pool *p) {
  CHECK_POOL(p);
  cnn_pool_destroy(p);
  CHECK(sim.early == 0);
  CHECK(sim.marks == 0);
  CHECK(device.wrong == 0 && device.committed == 0);
}

// --- Single promises ----------------------------------------------------------------------------

static void test_own_stream(void) {
  cnn_pool *p = fresh_pool(64);
  const size_t sizes[] = {100, 5000, CNN_POOL_SMALL, CNN_POOL_SMALL + 64, 3 * GRANULE};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    cnn_block *a = take(p, sizes[i], 1);
    void *at = a->data;
    cnn_pool_free(p, a);
    // Others get other memory, the stream itself the same at once: it does its work in order.
    cnn_block *b = take(p, sizes[i], 2), *c = take(p, sizes[i], 0);
    a = take(p, sizes[i], 1);
    CHECK(a->data == at && b->data != at && c->data != at);
    cnn_pool_free(p, a);
    cnn_pool_free(p, b);
    cnn_pool_free(p, c);
  }
  CHECK(sim.waits == 0 && stats_of(p).waits == 0 && stats_of(p).retries == 0);
  CHECK(stats_of(p).active.current == 0 && stats_of(p).waiting == 0);
  end_pool(p);
}

static void test_used_by_others(void) {
  cnn_pool *p = fresh_pool(64);
  const size_t sizes[] = {100, 3 * GRANULE};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    size_t n = sizes[i];
    cnn_block *a = take(p, n, 1);
    void *at = a->data;
    int64_t size = (int64_t)a->size;
    CHECK(cnn_pool_use(p, a, handle(1)) && cnn_pool_use(p, a, handle(2)));
    CHECK(cnn_pool_use(p, a, handle(2)) && cnn_pool_use(p, a, handle(3)));
    give_work(2, a);
    give_work(3, a);
    cnn_pool_free(p, a);
    cnn_pool_stats s = stats_of(p);
    CHECK(s.waiting == size && s.allocated.current == 0 && s.active.current == size);
    CHECK(s.active_blocks.current == 1 && s.blocks.current == 0);
    CHECK(s.active.peak >= size && s.inactive.current == s.reserved.current - size);
    CHECK_POOL(p);
    // Not its own stream's either before both are done.
    cnn_block *b = take(p, n, 1);
    CHECK(b->data != at && stats_of(p).active.peak >= 2 * size);
    finish_some(2);
    finish(2, sim.given[2]);
    cnn_block *c = take(p, n, 1);
    CHECK(c->data != at);
    finish(3, sim.given[3]);
    // Small ones are looked for when no other is at hand.
    cnn_block *more[4096];
    int count = 0;
    bool found = false;
    while (!found && count < 4096) {
      found = (more[count] = take(p, n, 1))->data == at;
      count++;
    }
    CHECK(found && stats_of(p).waiting == 0 && sim.waits == 0);
    while (count > 0) cnn_pool_free(p, more[--count]);
    cnn_pool_free(p, b);
    cnn_pool_free(p, c);
  }
  // One whose users are done already waits for nothing.
  cnn_block *a = take(p, 100, 1);
  CHECK(cnn_pool_use(p, a, handle(4)));
  cnn_pool_free(p, a);
  CHECK(stats_of(p).waiting == 0 && sim.waits == 0);
  // No memory to note it.
  a = take(p, 100, 1);
  cnn_fault_set(1, false);
  CHECK(!cnn_pool_use(p, a, handle(2)));
  cnn_fault_clear();
  CHECK_POOL(p);
  cnn_pool_free(p, a);
  end_pool(p);
}

// At the limit: what is known to be done comes first, then what must be waited for.
static void test_ladder(void) {
  cnn_pool *p = fresh_pool(12);
  size_t four = 4 * GRANULE - CNN_POOL_REDZONE;
  cnn_block *a = take(p, four, 1), *b = take(p, four, 2), *c = take(p, four, 3);
  CHECK(a && b && c && device.committed == 12 && take(p, 100, 4) == NULL);
  CHECK(stats_of(p).failures == 1 && stats_of(p).ooms == 1);
  cnn_pool_free(p, a);
  cnn_pool_free(p, b);
  CHECK(stats_of(p).available == (int64_t)(8 * GRANULE));
  finish(2, sim.given[2]);
  cnn_block *d = take(p, four, 4); // the second stream's, without a wait
  CHECK(d && sim.waits == 0 && stats_of(p).retries >= 1);
  cnn_block *e = take(p, four, 4); // the first one's, after one
  CHECK(e && sim.waits == 1 && stats_of(p).waits == 1 && sim.done[1] == sim.given[1]);
  CHECK_POOL(p);
  // A waiting block of its own.
  CHECK(cnn_pool_use(p, c, handle(2)));
  give_work(2, c);
  cnn_pool_free(p, c);
  CHECK(stats_of(p).available == 0 && stats_of(p).waiting > 0);
  c = take(p, four, 3);
  CHECK(c && sim.waits == 2 && stats_of(p).waiting == 0);
  // And of another stream: two waits, for its user and for its own stream.
  CHECK(cnn_pool_use(p, c, handle(2)));
  give_work(2, c);
  cnn_pool_free(p, c);
  c = take(p, four, 1);
  CHECK(c && stats_of(p).waiting == 0 && sim.waits == 4);
  // Not in vain: nothing is waited for, or given, when it is not enough anyway.
  cnn_pool_free(p, d);
  int64_t unmaps = stats_of(p).unmaps;
  CHECK(take(p, 5 * GRANULE, 2) == NULL && stats_of(p).unmaps == unmaps);
  d = take(p, four, 0);
  CHECK(d != NULL);
  // A lower limit and a trim wait too.
  cnn_pool_free(p, c);
  cnn_pool_set_limit(p, 8 * GRANULE);
  CHECK(device.committed == 8);
  cnn_pool_free(p, d);
  cnn_pool_free(p, e);
  CHECK(cnn_pool_trim(p) == 8 * GRANULE && device.committed == 0);
  cnn_pool_retried(p);
  CHECK(stats_of(p).ooms == stats_of(p).failures - 1);
  end_pool(p);
}

static void test_refused_records(void) {
  cnn_pool *p = fresh_pool(8);
  size_t four = 4 * GRANULE - CNN_POOL_REDZONE;
  cnn_block *a = take(p, four, 1), *b = take(p, four, 2);
  CHECK(cnn_pool_use(p, a, handle(2)));
  give_work(2, a);
  sim.refuse_records = 1000;
  cnn_pool_free(p, a);
  cnn_pool_free(p, b);
  CHECK(take(p, four, 3) == NULL && stats_of(p).waiting > 0);
  CHECK(!end_stream(p, 2));
  CHECK(cnn_pool_trim(p) == 0);
  CHECK_POOL(p);
  sim.refuse_records = 0;
  cnn_block *c = take(p, 2 * four, 3);
  CHECK(c && stats_of(p).waiting == 0);
  cnn_pool_free(p, c);
  // A device that records no more can be taken down all the same.
  a = take(p, 100, 1);
  CHECK(cnn_pool_use(p, a, handle(2)));
  give_work(2, a);
  sim.refuse_records = 1000;
  cnn_pool_free(p, a);
  CHECK(stats_of(p).waiting > 0);
  finish_all();
  end_pool(p);
}

static void test_streams_that_end(void) {
  cnn_pool *p = fresh_pool(32), *q = cnn_pool_create_in(p, 16 * GRANULE, "q");
  cnn_block *a = take(p, 100, 1), *b = take(p, 3 * GRANULE, 1), *c = take(q, 100, 1);
  cnn_block *d = take(p, 100, 2);
  CHECK(cnn_pool_use(p, d, handle(1)));
  give_work(1, d);
  cnn_pool_free(q, c);
  size_t before = device.committed;
  CHECK(end_stream(q, 1));
  CHECK(sim.done[1] == sim.given[1] && sim.waits == 1);
  CHECK(device.committed < before); // q's lane had nothing in use
  CHECK_POOL(p);
  // What is in use stays, and goes to nobody before others are done with it.
  CHECK(cnn_pool_use(p, b, handle(3)));
  give_work(3, b);
  cnn_pool_free(p, d);
  CHECK(stats_of(p).waiting == 0); // its user is gone, and done
  cnn_pool_free(p, b);
  CHECK(stats_of(p).waiting > 0);
  CHECK_POOL(p);
  // A new stream, of the same address, takes the lane over.
  int arenas = device.arenas;
  cnn_block *e = take(p, 100, 1);
  CHECK(e && device.arenas == arenas);
  cnn_pool_free(p, a);
  cnn_pool_free(p, e);
  CHECK(end_stream(p, 1));
  finish(3, sim.given[3]);
  CHECK(end_stream(p, 4));
  CHECK(stats_of(p).waiting == 0);
  CHECK_POOL(p);
  CHECK(cnn_pool_forget_stream(p, NULL));
  // A closed pool goes when its last block has waited.
  a = take(q, 100, 2);
  CHECK(cnn_pool_use(q, a, handle(3)));
  give_work(3, a);
  cnn_pool_close(q);
  cnn_pool_free(q, a);
  CHECK_POOL(p);
  CHECK(cnn_pool_trim(p) > 0 && device.committed == 0);
  end_pool(p);
}

// --- Against a model ----------------------------------------------------------------------------

typedef struct owned {
  cnn_block *block;
  int stream; // -1: it has ended
  int pool;
} owned;

enum { POOLS = 2 };

static struct {
  cnn_pool *pools[POOLS];
  owned items[MAX_LIVE];
  int n;
  int refused, granted, bad_guarantee, bad_stats, forgotten;
  int64_t allocated;
} run;

static void run_alloc(void) {
  int stream = (int)below(STREAMS), k = (int)below(POOLS);
  cnn_pool *p = run.pools[k];
  size_t bytes = 1 + random_bytes();
  size_t need = bytes <= CNN_POOL_SMALL ? 1 : granules_for(bytes, GRANULE);
  bool fault = below(100) == 0;
  int refusals = below(30) == 0, records = below(30) == 0 ? 1 + (int)below(4) : 0;
  if (fault) cnn_fault_set(1 + (int64_t)below(2), false); // the request, or a lane
  device.refuse = refusals;
  sim.refuse_records = records;
  cnn_block *b = cnn_pool_alloc(p, bytes, 0, handle(stream));
  if (fault) cnn_fault_clear();
  bool injected = fault || device.refuse != refusals || sim.refuse_records != records;
  device.refuse = sim.refuse_records = 0;
  if (!b) {
    cnn_pool_stats s = stats_of(p);
    run.refused++;
    // All was waited for, and still too few granules are free.
    if (!injected)
      run.bad_guarantee += need * GRANULE <= (size_t)s.available || stats_of(run.pools[0]).waiting;
    return;
  }
  run.granted++;
  run.allocated += (int64_t)b->size;
  expect_quiet(b->data, b->size, stream);
  run.items[run.n++] = (owned){b, stream, k};
  if (below(4)) give_work(stream, b);
}

static void run_free(int i) {
  owned it = run.items[i];
  run.items[i] = run.items[--run.n];
  run.allocated -= (int64_t)it.block->size;
  if (below(50) == 0) sim.refuse_records = 1 + (int)below(3);
  cnn_pool_free(run.pools[it.pool], it.block);
  sim.refuse_records = 0;
}

static void run_use(owned *it) {
  int stream = (int)below(STREAMS);
  if (stream != it->stream && !cnn_pool_use(run.pools[it->pool], it->block, handle(stream))) return;
  give_work(stream, it->block);
}

static void run_forget(int stream) {
  if (!end_stream(run.pools[below(POOLS)], stream)) run.bad_stats++;
  run.forgotten++;
  run.bad_stats += sim.done[stream] != sim.given[stream];
  for (int i = 0; i < run.n; i++)
    if (run.items[i].stream == stream) run.items[i].stream = -1;
}

static void test_against_model(int operations, size_t limit) {
  memset(&run, 0, sizeof run);
  rng_state = 1414213562373095048ull;
  run.pools[0] = fresh_pool(limit);
  run.pools[1] = cnn_pool_create_in(run.pools[0], limit / 2 * GRANULE, "second");
  const char *wrong = NULL;
  size_t bound = limit;
  int over = 0, waited = 0;
  for (int op = 0; op < operations && !wrong; op++) {
    bool grow = below(100) < (op / 3000 % 2 ? 42u : 58u);
    switch (below(10)) {
    case 0: finish_some((int)below(STREAMS)); break;
    case 1:
    case 2:
      if (run.n > 0) run_use(&run.items[below((size_t)run.n)]);
      break;
    default:
      if ((grow && run.n < MAX_LIVE) || run.n == 0)
        run_alloc();
      else
        run_free((int)below((size_t)run.n));
    }
    if (below(4000) == 0) run_forget(1 + (int)below(STREAMS - 1));
    if (below(4000) == 0) cnn_pool_trim(run.pools[below(POOLS)]);
    if (below(4000) == 0) {
      bound = below(3) == 0 ? limit / 2 : limit;
      cnn_pool_set_limit(run.pools[0], bound * GRANULE);
    }
    over += device.committed > limit;
    if (op % 8 == 0) {
      cnn_pool_stats s = stats_of(run.pools[0]);
      waited += s.waiting > 0;
      run.bad_stats += s.allocated.current != run.allocated || s.blocks.current != run.n ||
                       s.active.current != run.allocated + s.waiting ||
                       s.active.peak < s.active.current || s.active.peak < s.allocated.peak ||
                       s.reserved.current != (int64_t)(device.committed * GRANULE) ||
                       s.inactive.current != s.reserved.current - s.active.current;
    }
    if (op % 499 == 0) wrong = cnn_pool_check(run.pools[0]);
  }
  report(!wrong, wrong ? wrong : "", __LINE__);
  cnn_pool_stats s = stats_of(run.pools[0]);
  CHECK(sim.early == 0);
  CHECK(run.bad_guarantee == 0);
  CHECK(run.bad_stats == 0);
  CHECK(over == 0);
  // The test must have met what it is about.
  CHECK(run.refused > 0 && run.granted > operations / 10 && sim.waits > 0 && waited > 0);
  CHECK(s.waits == sim.waits && sim.refused_records > 0 && run.forgotten > 0 && s.retries > 0);
  printf("  streams: %d operations, %d blocks, %d refused, %d waits, %d streams ended\n",
         operations, run.granted, run.refused, sim.waits, run.forgotten);
  cnn_pool_close(run.pools[1]);
  while (run.n > 0) run_free(run.n - 1);
  cnn_pool_trim(run.pools[0]);
  CHECK(device.committed == 0 && stats_of(run.pools[0]).active.current == 0);
  end_pool(run.pools[0]);
}

// Sizes of 64 bytes to 64 MiB, live bytes at 90 % of a limit, granules of 2 MiB: what is free
// anywhere can be had as one block by any stream, and nothing is refused for less.
static void test_fragmentation(int operations) {
  enum { MOST = 4000 };
  static cnn_block *blocks[MOST];
  const size_t granule = 2 * MIB, limit = 1024 * MIB;
  rng_state = 4242;
  cnn_pool *p = fresh_pool_by(granule, limit);
  int n = 0, refused = 0, broken = 0, whole = 0;
  for (int op = 0; op < operations; op++) {
    size_t bytes = (size_t)64 << below(20);
    bytes += below(bytes);
    while (n == MOST || (n > 0 && cnn_pool_live(p) + (int64_t)bytes > (int64_t)(limit / 10 * 9))) {
      int i = (int)below((size_t)n);
      cnn_pool_free(p, blocks[i]);
      blocks[i] = blocks[--n];
    }
    size_t need = granules_for(bytes, granule);
    cnn_block *b = take(p, bytes, (int)below(STREAMS));
    if (b && below(4) == 0) {
      int other = (int)below(STREAMS);
      broken += !cnn_pool_use(p, b, handle(other));
      give_work(other, b);
    }
    if (b) blocks[n++] = b;
    refused += !b;
    broken += !b && need * granule <= (size_t)stats_of(p).available;
    if (below(10) == 0) finish_some((int)below(STREAMS));
    size_t room = (size_t)stats_of(p).available;
    if (op % 16 != 0 || room > device.largest) continue;
    b = room ? take(p, room - CNN_POOL_REDZONE, (int)below(STREAMS)) : NULL;
    whole += b != NULL;
    broken += room && !b;
    if (b) cnn_pool_free(p, b);
  }
  CHECK(broken == 0);
  CHECK(whole > operations / 32);
  printf("  %d streams at 90%% of %zu MiB: %d requests, %d refused (each for want of whole "
         "granules), all that was free in one piece %d of %d times\n",
         STREAMS, limit / MIB, operations, refused, whole, operations / 16);
  while (n > 0) cnn_pool_free(p, blocks[--n]);
  end_pool(p);
}

// --- Threads ------------------------------------------------------------------------------------

typedef struct worker {
  cnn_pool *pool;
  int stream, other, operations, served, bad;
} worker;

static void *churn(void *arg) {
  worker *w = arg;
  cnn_block *mine[32] = {0};
  uint64_t x = (uint64_t)w->stream;
  for (int i = 0; i < w->operations; i++) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    cnn_block **b = &mine[x >> 59];
    if (*b) {
      if (x >> 40 & 1) {
        w->bad += !cnn_pool_use(w->pool, *b, handle(w->other));
        give_work(w->other, *b);
      }
      cnn_pool_free(w->pool, *b);
      *b = NULL;
      continue;
    }
    *b = take(w->pool, 1 + (x >> 20) % (x >> 50 & 1 ? 3 * GRANULE : 3000), w->stream);
    w->served += *b != NULL;
  }
  for (int k = 0; k < 32; k++)
    if (mine[k]) cnn_pool_free(w->pool, mine[k]);
  return NULL;
}

static void test_threads(int operations) {
  cnn_pool *root = fresh_pool(48);
  worker w[2] = {{root, 1, 2, operations, 0, 0},
                 {cnn_pool_create_in(root, 40 * GRANULE, "1"), 2, 1, operations, 0, 0}};
  pthread_t t[2];
  int wrong = 0;
  for (int i = 0; i < 2; i++) pthread_create(&t[i], NULL, churn, &w[i]);
  for (int i = 0; i < 60; i++) {
    wrong += cnn_pool_check(root) != NULL;
    finish_some(i % 3);
    if (i % 10 == 0) cnn_pool_trim(root);
    if (i % 10 == 5) {
      cnn_block *b = take(root, 1000, 3);
      if (b) cnn_pool_free(root, b);
      wrong += !end_stream(root, 3);
    }
  }
  for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
  CHECK(wrong == 0 && w[0].bad == 0 && w[1].bad == 0);
  CHECK(w[0].served > operations / 8 && w[1].served > operations / 8);
  cnn_pool_close(w[1].pool);
  cnn_pool_trim(root);
  CHECK(stats_of(root).active.current == 0 && device.committed == 0);
  end_pool(root);
}

int main(int argc, char **argv) {
  int operations = argc > 1 ? atoi(argv[1]) : 1000000 / THINNED;
  test_own_stream();
  test_used_by_others();
  test_ladder();
  test_refused_records();
  test_streams_that_end();
  test_against_model(operations, 300);
  test_against_model(operations / 4, 60);
  test_fragmentation(operations / 10);
  test_threads(operations / 5);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
