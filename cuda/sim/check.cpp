// SPDX-License-Identifier: MIT
//
// The checker. Kernels are compiled so that each load and store calls it: all kernels in its own
// flavour, in the others those of the NVRTC stand-in. It knows of each byte of shared memory
// whether it may be touched and whether it was written, and of each four bytes the last accesses,
// to find races. Of global memory its own flavour knows as much. The others, where most kernels
// write without a word, know what is allocated, and what a guarded launch may touch.
//
// Two accesses of the same bytes by two threads, one of them a write and not both atomic, race
// unless one comes before the other by synchronisation. Order is kept as times: a block counts its
// synchronisations (exec.time), and an access is noted with the count.
//   - A barrier orders all that was before it in the block: times below barrier_time.
//   - __syncwarp orders among its lanes, with all that each knew before: Warp::known. Shuffles,
//     votes and matrix operations exchange registers; the CUDA guide says that they order no
//     memory.
//   - Between blocks, and beyond: a thread that has passed __threadfence and then does an atomic
//     leaves what it knew at the fence in the log of that place; who does an atomic there later
//     knows it. (The reader's own fence is not asked for.)
// Launches are taken as ordered; that streams are ordered is shown by running them lazily.
//
// A thread's accesses are known to others only so far; of each four bytes the last two writers and
// two readers are kept, so a race may be missed, never invented.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include "exec.h"
#include "include/sim_hooks.h"

namespace sim {

enum : unsigned char { ADDRESSABLE = 1, WRITTEN = 2 };
enum : unsigned char { IS_ATOMIC = 1 };

struct Slot {
  uint32_t launch, block, time, pc; // the lower half of the address
  uint16_t thread;
  unsigned char mask, flags; // which of the four bytes
};
struct Cell {
  Slot slots[4]; // two writers, two readers
};

struct Region {
  uintptr_t start;
  size_t bytes;
  unsigned char *state; // of each byte; NULL: not known
  Cell *cells;
};

static Region global, copies, dynamic, statics; // statics: of the running kernel's object
static std::map<uintptr_t, Region> &all_statics = *new std::map<uintptr_t, Region>;

// Zeros that take memory where they are written to.
static void *make_notes(size_t bytes) {
  void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    fprintf(stderr, "sim: no addresses for the checker's notes; set SIM_ARENA to fewer GiB\n");
    abort();
  }
  return p;
}

static Region make_region(uintptr_t start, size_t bytes, bool with_state = true) {
  const size_t cells = (bytes + 3) / 4 + 1;
  return {start, bytes, with_state ? static_cast<unsigned char *>(make_notes(bytes + 64)) : nullptr,
          static_cast<Cell *>(make_notes(cells * sizeof(Cell)))};
}

static bool within(const Region &r, uintptr_t p) {
  return p - r.start < r.bytes;
}

#ifdef SIM_CHECK
static const bool knows_global = true;
#else
static const bool knows_global = false;
#endif

static Region &whole() {
  if (!global.bytes && arena_base())
    global = make_region(arena_base(), arena_bytes(), knows_global);
  return global;
}

// The notes on races of these bytes are not needed any more.
static void forget_cells(const Region &r, uintptr_t start, size_t bytes) {
  const uintptr_t c = reinterpret_cast<uintptr_t>(r.cells + (start - r.start) / 4);
  const uintptr_t c0 = (c + 4095) & ~uintptr_t(4095);
  const uintptr_t c1 = (c + bytes / 4 * sizeof(Cell)) & ~uintptr_t(4095);
  if (c1 > c0) madvise(reinterpret_cast<void *>(c0), c1 - c0, MADV_DONTNEED);
}

#ifdef SIM_CHECK
void mark(const void *p, size_t bytes, Mark m) {
  Region &g = whole();
  unsigned char *s = g.state + (reinterpret_cast<uintptr_t>(p) - g.start);
  if (m == Mark::unaddressable && bytes >= (64 << 10)) { // fresh pages are zero
    const uintptr_t from = (reinterpret_cast<uintptr_t>(s) + 4095) & ~uintptr_t(4095);
    const uintptr_t to = reinterpret_cast<uintptr_t>(s + bytes) & ~uintptr_t(4095);
    memset(s, 0, from - reinterpret_cast<uintptr_t>(s));
    madvise(reinterpret_cast<void *>(from), to - from, MADV_DONTNEED);
    memset(reinterpret_cast<void *>(to), 0, reinterpret_cast<uintptr_t>(s + bytes) - to);
    forget_cells(g, reinterpret_cast<uintptr_t>(p), bytes);
    return;
  }
  memset(s, m == Mark::unaddressable ? 0 : m == Mark::initialised ? 3 : 1, bytes);
}

void copy_marks(void *to, const void *from, size_t bytes) {
  Region &g = whole();
  memmove(g.state + (reinterpret_cast<uintptr_t>(to) - g.start),
          g.state + (reinterpret_cast<uintptr_t>(from) - g.start), bytes);
}
#else
void mark(const void *p, size_t bytes, Mark m) {
#ifdef SIM_ASAN
  if (m == Mark::unaddressable)
    __asan_poison_memory_region(p, bytes);
  else
    __asan_unpoison_memory_region(p, bytes);
#else
  (void)p, (void)bytes, (void)m;
#endif
}
void copy_marks(void *, const void *, size_t) {}
#endif

// ---- Release and acquire through atomics ------------------------------------------------------

struct Release {
  unsigned thread;
  Fenced f;
  size_t index;
};
struct Log {
  std::unordered_map<uint32_t, std::vector<Release>> by_block;
  size_t count = 0;
  uint64_t last_serial = 0;
};
struct Acquire {
  unsigned thread;
  uint32_t time;
  const Log *log;
  size_t count;
  uintptr_t place;
};
static std::unordered_map<const void *, Log> &logs = *new std::unordered_map<const void *, Log>;
static std::vector<Acquire> &acquired = *new std::vector<Acquire>;
static std::unordered_set<uint64_t> &seen =
    *new std::unordered_set<uint64_t>; // reports of this launch
static uint64_t fence_serial;
static bool any_fence;

void check_launch() {
  if (!exec.checked) return;
  if (!exec.launch->guarded) whole();
  logs.clear();
  seen.clear();
  any_fence = false;
  if (!dynamic.bytes) {
    // the end of dynamic shared memory is the same for all launches
    const uintptr_t end =
        reinterpret_cast<uintptr_t>(exec.dynamic) + (exec.launch->shared + 15) / 16 * 16;
    dynamic = make_region(end - SHARED_PER_SM, SHARED_PER_SM + (16 << 20));
  }
  const Range r = shared_section_of(exec.launch->kernel.function);
  if (r.bytes) {
    Region &region = all_statics[r.start];
    if (region.bytes != r.bytes) region = make_region(r.start, r.bytes);
    statics = region;
    memset(statics.state, 0, statics.bytes);
  } else {
    statics = Region();
  }
  memset(dynamic.state, 0, SHARED_PER_SM);
}

void check_block() {
  if (!exec.checked) return;
  acquired.clear();
  for (const Range &r : *exec.statics)
    memset(statics.state + (r.start - statics.start), ADDRESSABLE, r.bytes);
  memset(dynamic.state + (reinterpret_cast<uintptr_t>(exec.dynamic) - dynamic.start), ADDRESSABLE,
         exec.launch->shared);
}

void check_copy(uintptr_t to, uintptr_t from, size_t bytes) {
  if (!copies.bytes) {
    const Range r = guard_range();
    copies = make_region(r.start, r.bytes, knows_global);
  }
  if (!knows_global) return;
  const Region &here = within(copies, to) ? copies : global;
  const Region &there = within(copies, from) ? copies : global;
  memcpy(here.state + (to - here.start), there.state + (from - there.start), bytes);
}
void check_forget(uintptr_t copy, size_t bytes) {
  forget_cells(copies, copy, bytes);
  if (knows_global) memset(copies.state + (copy - copies.start), 0, bytes);
}

void check_fence() {
  if (!exec.checked) return;
  Thread *t = exec.now;
  t->fenced.own = ++exec.time;
  t->fenced.barrier = exec.barrier_time;
  memcpy(t->fenced.known, t->warp->known[t->lane], sizeof t->fenced.known);
  t->fenced.serial = ++fence_serial;
  any_fence = true;
}

static void release_acquire(const void *p) {
  if (!any_fence) return;
  Thread *t = exec.now;
  Log &log = logs[p];
  acquired.push_back({t->index, exec.time, &log, log.count, reinterpret_cast<uintptr_t>(p)});
  if (t->fenced.serial && log.last_serial != t->fenced.serial) {
    log.by_block[exec.block_id].push_back({t->index, t->fenced, log.count++});
    log.last_serial = t->fenced.serial;
  }
  exec.time++;
}

static bool knows(const Thread *t, unsigned thread, uint32_t time) {
  return thread == t->index || time < exec.barrier_time ||
         (thread / 32 == t->index / 32 && time < t->warp->known[t->lane][thread % 32]);
}

// Whether the access in s comes before what the running thread does now at `place`.
static bool ordered(const Slot &s, uintptr_t place) {
  const Thread *t = exec.now;
  if (s.block == exec.block_id && knows(t, s.thread, s.time)) return true;
  for (const Acquire &a : acquired) {
    if (!knows(t, a.thread, a.time)) continue;
    // An earlier atomic on the place of one's own atomic. (Other blocks ran whole before this one.)
    if (s.flags & IS_ATOMIC && (a.place & ~uintptr_t(3)) == place &&
        (s.block != exec.block_id || s.time < a.time))
      return true;
    auto it = a.log->by_block.find(s.block);
    if (it == a.log->by_block.end()) continue;
    for (const Release &r : it->second)
      if (r.index < a.count &&
          (s.thread == r.thread ? s.time < r.f.own
                                : s.time < r.f.barrier || (s.thread / 32 == r.thread / 32 &&
                                                           s.time < r.f.known[s.thread % 32])))
        return true;
  }
  return false;
}

// ---- Reports ----------------------------------------------------------------------------------

static bool first_time(int kind, const void *pc, uint32_t other) {
  return seen
      .insert((reinterpret_cast<uintptr_t>(pc) << 20) ^ (uint64_t(other) << 3) ^
              static_cast<uint64_t>(kind))
      .second;
}

static const char *kind_name(int kind) {
  return kind == SIM_READ ? "read" : kind == SIM_WRITE ? "write" : "atomic";
}

static std::string place_of_slot(const Slot &s, void *near) {
  const uintptr_t here = reinterpret_cast<uintptr_t>(near);
  const int32_t d = static_cast<int32_t>(s.pc - static_cast<uint32_t>(here));
  return place_of(reinterpret_cast<void *>(here + static_cast<uintptr_t>(intptr_t(d))));
}

static void report_race(const Slot &s, bool was_write, bool shared, int kind, size_t bytes,
                        void *pc) {
  if (!first_time(1, pc, s.pc)) return;
  const dim3 g = exec.launch->grid;
  char other[200];
  if (s.block == exec.block_id)
    snprintf(other, sizeof other, "thread %u", s.thread);
  else
    snprintf(other, sizeof other, "thread %u of block (%u,%u,%u)", s.thread, s.block % g.x,
             s.block / g.x % g.y, s.block / g.x / g.y);
  sim_report("race: %s of %zu bytes of %s memory at %s; %s %s at %s, not ordered by "
             "synchronisation",
             kind_name(kind), bytes, shared ? "shared" : "global", place_of(pc).c_str(), other,
             s.flags & IS_ATOMIC ? "did an atomic"
             : was_write         ? "wrote"
                                 : "read",
             place_of_slot(s, pc).c_str());
}

static void fatal(const char *what, const void *p, size_t bytes, int kind, void *pc,
                  const std::string &is) {
  sim_report("%s: %s of %zu bytes at %s; %s", what, kind_name(kind), bytes, place_of(pc).c_str(),
             is.c_str());
  (void)p;
  kill_kernel(cudaErrorIllegalAddress);
}

// ---- An access --------------------------------------------------------------------------------

static void check_races(Cell &c, uintptr_t place, unsigned char mask, bool shared, int kind,
                        size_t bytes, void *pc) {
  const Thread *t = exec.now;
  const uint32_t launch = static_cast<uint32_t>(exec.launch_id), block = exec.block_id;
  const bool writes = kind != SIM_READ, atomic = kind == SIM_ATOMIC;
  bool free_slot[4];
  int mine = -1;
  const int from = writes ? 0 : 2;
  for (int i = 0; i < 4; i++) {
    Slot &s = c.slots[i];
    const bool stale = s.launch != launch || (shared && s.block != block);
    free_slot[i] = stale;
    if (stale) continue;
    if (s.block == block && s.thread == t->index) {
      if (i == from || i == from + 1) mine = i;
      continue;
    }
    const bool was_write = i < 2;
    if (!writes && !was_write) continue; // two reads
    const bool comes_before = ordered(s, place);
    if (comes_before)
      free_slot[i] = !(s.mask & ~mask);
    else if (s.mask & mask && !(atomic && s.flags & IS_ATOMIC))
      report_race(s, was_write, shared, kind, bytes, pc);
  }
  int at = mine;
  if (at < 0) {
    if (free_slot[from])
      at = from;
    else if (free_slot[from + 1])
      at = from + 1;
    else
      at = from + 1; // the first is kept
  }
  Slot &s = c.slots[at];
  const bool merge = at == mine && s.time == exec.time;
  s.mask = merge ? s.mask | mask : mask;
  s.flags = atomic && (!merge || s.flags & IS_ATOMIC) ? IS_ATOMIC : 0;
  s.launch = launch, s.block = block, s.time = exec.time,
  s.thread = static_cast<uint16_t>(t->index);
  s.pc = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pc));
}

// Whether a kernel may touch these bytes of global memory; ends it if not.
static bool may_touch(uintptr_t p, size_t bytes, int kind, void *pc) {
  const void *at = reinterpret_cast<const void *>(p);
  if (exec.launch->guarded ? guard_allows(p, bytes) : knows_global || sim_is_device(at, bytes))
    return true;
  fatal("out of bounds", at, bytes, kind, pc,
        exec.launch->guarded ? guard_describe(p) : describe(at, bytes));
  return false;
}

static void check_region(Region &r, uintptr_t p, size_t bytes, int kind, void *pc, bool shared,
                         bool poisons) {
  sim_kernel_counts &c = *exec.stats;
  if (shared) {
    (kind == SIM_READ ? c.shared_loads : c.shared_stores) += kind != SIM_ATOMIC;
  } else if (kind == SIM_READ) {
    c.global_loads++, c.global_load_bytes += bytes;
  } else if (kind == SIM_WRITE) {
    c.global_stores++, c.global_store_bytes += bytes;
  }
  if (!shared && !may_touch(p, bytes, kind, pc)) return;
  unsigned char *state = r.state + (p - r.start);
  bool unwritten = false;
  for (size_t i = 0; r.state && i < bytes; i++) {
    if (!(state[i] & ADDRESSABLE)) {
      const void *at = reinterpret_cast<const void *>(p + i);
      return fatal(shared ? "out of bounds of shared memory" : "out of bounds", at, bytes, kind, pc,
                   shared ? "no shared variable of this kernel lies there" : describe(at));
    }
    unwritten |= !(state[i] & WRITTEN);
    if (kind != SIM_READ) state[i] = poisons ? ADDRESSABLE : ADDRESSABLE | WRITTEN;
  }
  if (unwritten && kind != SIM_WRITE && first_time(2, pc, 0))
    sim_report("%s of %zu bytes of %s memory that nothing was written to, at %s", kind_name(kind),
               bytes, shared ? "shared" : "global", place_of(pc).c_str());
  for (uintptr_t q = p & ~uintptr_t(3); q < p + bytes; q += 4) {
    unsigned char mask = 15;
    if (q < p) mask = static_cast<unsigned char>(mask << (p - q) & 15);
    if (q + 4 > p + bytes) mask &= static_cast<unsigned char>(15 >> (q + 4 - p - bytes));
    check_races(r.cells[((q - (r.start & ~uintptr_t(3))) / 4)], q, mask, shared, kind, bytes, pc);
  }
}

// A thread that reads one place again and again waits for another, which will not run before it.
static void check_spinning(const void *p, size_t bytes, int kind, void *pc) {
  static const void *place;
  static unsigned times;
  if (kind == SIM_WRITE || p != place) place = p, times = 0;
  if (++times < 20000000) return;
  times = 0;
  fatal("endless waiting", p, bytes, kind, pc,
        "it is the same each time: threads run one after another here, until they meet a barrier");
}

static void check_any(const void *pointer, size_t bytes, int kind, void *pc, bool poisons) {
  const uintptr_t p = reinterpret_cast<uintptr_t>(pointer);
  const bool loose = kind & SIM_LOOSE;
  kind &= ~SIM_LOOSE;
  if (!bytes) return;
  check_spinning(pointer, bytes, kind, pc);
  Region &r = exec.launch->guarded ? copies : global;
  if (within(r, p)) {
    // (16 bytes may be two words that the compiler copies at once: what it knows of their alignment
    // ends at 8.)
    const size_t unit = bytes < 8 ? bytes : 8;
    if (!loose && bytes <= 16 && !(bytes & (bytes - 1)) && p % unit)
      return fatal("misaligned", pointer, bytes, kind, pc,
                   std::to_string(p % unit) + " bytes behind a multiple of " + std::to_string(unit));
    check_region(r, p, bytes, kind, pc, false, poisons);
    if (kind == SIM_ATOMIC) release_acquire(pointer);
    return;
  }
  if (within(dynamic, p)) {
    check_region(dynamic, p, bytes, kind, pc, true, poisons);
    if (kind == SIM_ATOMIC) release_acquire(pointer);
    return;
  }
  if (within(statics, p)) {
    check_region(statics, p, bytes, kind, pc, true, poisons);
    if (kind == SIM_ATOMIC) release_acquire(pointer);
    return;
  }
  if (in_fiber_stack(pointer)) return;
  const uintptr_t args = reinterpret_cast<uintptr_t>(exec.launch->kernel.args);
  if (p - args < exec.launch->kernel.args_bytes) return;
  if (in_module(pointer)) return;
  if (find_host(pointer)) {
    (kind == SIM_READ ? exec.stats->global_loads : exec.stats->global_stores)++;
    return;
  }
  fatal("illegal address", pointer, bytes, kind, pc, describe(pointer));
}

void check_access(const void *p, size_t bytes, int kind, void *pc) {
  if (exec.checked) check_any(p, bytes, kind, pc, false);
}
void check_poison(const void *p, size_t bytes, void *pc) {
  if (exec.checked) check_any(p, bytes, SIM_WRITE, pc, true);
}

} // namespace sim

using namespace sim;

static void touch(const void *p, size_t bytes, bool writes) {
  Api api(true);
  if (!bytes || find_host(p)) return;
  if (!sim_is_device(p, bytes)) {
    sim_report("%s of %s", writes ? "write" : "read", describe(p, bytes).c_str());
    return;
  }
  if (!knows_global) return;
  Region &g = whole();
  unsigned char *s = g.state + (reinterpret_cast<uintptr_t>(p) - g.start);
  size_t closed = 0, unwritten = 0;
  for (size_t i = 0; i < bytes; i++) {
    closed += !(s[i] & ADDRESSABLE);
    unwritten += !(s[i] & WRITTEN);
  }
  if (closed)
    sim_report("%s of %zu bytes, %zu of which are not in use, at %s", writes ? "write" : "read",
               bytes, closed, describe(p).c_str());
  else if (writes)
    memset(s, ADDRESSABLE | WRITTEN, bytes);
  else if (unwritten)
    sim_report("read of %zu bytes, %zu of which nothing was written to, at %s", bytes, unwritten,
               describe(p).c_str());
}
void sim_touch_read(const void *p, size_t bytes) {
  touch(p, bytes, false);
}
void sim_touch_write(const void *p, size_t bytes) {
  touch(p, bytes, true);
}

extern "C" const char *sim_flavour(void) {
#if defined(SIM_CHECK)
  return "check";
#elif defined(SIM_ASAN)
  return "asan";
#else
  return "plain";
#endif
}
