// SPDX-License-Identifier: MIT
//
// Device memory. One range of addresses is reserved for all devices; each has two halves, one for
// cudaMalloc, one for reserved virtual addresses (driver.cpp). Addresses are handed out upwards and
// never again, so that a stale pointer is known as such (reserved ones once all have been). New
// memory is filled with 0xff: NaN in every float type. Between allocations lie gaps with a pattern,
// whose change is reported.
//
// While host code runs, the whole range is closed (PROT_NONE): a host that follows a device pointer
// crashes at the spot. Opening costs one mprotect per run of neighbouring memory, so it is done
// once per batch of queued work, in whole granules: huge pages stay whole and it stays cheap.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "core.h"

namespace sim {

static const uintptr_t PREFERRED_BASE = 0x200000000000;
static const size_t GAP = 4096, ALIGN = 512;

struct Arena {
  uintptr_t base, malloc_next, malloc_end, reserve_next, reserve_end;
  uintptr_t opened_to; // end of the malloc half that was ever made accessible
  size_t used;
  bool context;
  std::map<uintptr_t, int> live_in_granule;
};

static Arena arenas[MAX_DEVICES];
static uintptr_t base;
static size_t per_device, total;
static int depth; // of open_arena
static std::map<uintptr_t, Block> &blocks =
    *new std::map<uintptr_t, Block>; // device memory, by start
static std::map<uintptr_t, Block> &hosts =
    *new std::map<uintptr_t, Block>; // pinned and managed host memory
static std::map<uintptr_t, size_t> &reserved =
    *new std::map<uintptr_t, size_t>; // virtual addresses

static uintptr_t up(uintptr_t x, size_t a) {
  return (x + a - 1) / a * a;
}
static void *at(uintptr_t p) {
  return reinterpret_cast<void *>(p);
}
static uintptr_t number(const void *p) {
  return reinterpret_cast<uintptr_t>(p);
}

// Gaps hold 0xffbf in every two bytes: a signalling NaN in float and bfloat16. Arithmetic on what
// was read past an end makes it another NaN, so that writing the result there is seen.
static unsigned char gap_byte(uintptr_t p) {
  return p & 1 ? 0xff : 0xbf;
}
static void fill_gap(uintptr_t p, size_t n) {
  for (; n; n--, p++) {
    for (; p % 8 == 0 && n > 8; p += 8, n -= 8)
      *reinterpret_cast<volatile uint64_t *>(p) = 0xffbfffbfffbfffbfu;
    *reinterpret_cast<volatile unsigned char *>(p) = gap_byte(p);
  }
}

static void fill(uintptr_t p, size_t n) {
  volatile unsigned char *b = reinterpret_cast<volatile unsigned char *>(p);
  for (; n && (number(const_cast<unsigned char *>(b)) & 7); n--) *b++ = 0xff;
  volatile uint64_t *w = reinterpret_cast<volatile uint64_t *>(const_cast<unsigned char *>(b));
  for (; n >= 8; n -= 8) *w++ = ~uint64_t(0);
  b = reinterpret_cast<volatile unsigned char *>(const_cast<uint64_t *>(w));
  while (n--) *b++ = 0xff;
}

static bool reserve_all() {
  if (base) return true;
  const char *gib = getenv("SIM_ARENA");
  per_device = (gib && atol(gib) > 0 ? size_t(atol(gib)) : 128) << 30;
  total = per_device * MAX_DEVICES;
  void *p = mmap(at(PREFERRED_BASE), total, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (p == MAP_FAILED)
    p = mmap(nullptr, total + GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
             0);
  if (p == MAP_FAILED) return false;
  base = up(number(p), GRANULE);
  madvise(at(base), total, MADV_HUGEPAGE);
  for (int d = 0; d < MAX_DEVICES; d++) {
    Arena &a = arenas[d];
    a.base = base + per_device * size_t(d);
    a.opened_to = a.malloc_next = a.base;
    a.malloc_end = a.reserve_next = a.base + per_device / 2;
    a.reserve_end = a.base + per_device;
  }
  return true;
}

uintptr_t arena_base() {
  return reserve_all() ? base : 0;
}
size_t arena_bytes() {
  return total;
}
bool in_arena(const void *p) {
  return base && number(p) - base < total;
}
int arena_device(const void *p) {
  return in_arena(p) ? static_cast<int>((number(p) - base) / per_device) : -1;
}
void use_context(int device) {
  arenas[device].context = true;
}
void drop_context(int device) {
  arenas[device].context = false;
}
size_t device_used(int device) {
  const Arena &a = arenas[device];
  return a.used + (a.context ? options().context : 0);
}
static bool has_room(int device, size_t bytes) {
  use_context(device);
  return bytes <= options().memory && device_used(device) + bytes <= options().memory;
}

// ---- Opening and closing ----------------------------------------------------------------------

static void protect(int prot) {
  for (Arena &a : arenas)
    if (a.opened_to > a.base) mprotect(at(a.base), a.opened_to - a.base, prot);
  uintptr_t from = 0, to = 0;
  for (auto &[start, b] : blocks) {
    if (b.kind != Kind::virtual_ || !b.accessible) continue;
    if (start != to) {
      if (to > from) mprotect(at(from), to - from, prot);
      from = start;
    }
    to = start + b.bytes;
  }
  if (to > from) mprotect(at(from), to - from, prot);
}

static bool is_open = false;
void open_arena() {
  if (depth++ == 0 && !is_open) {
    protect(PROT_READ | PROT_WRITE);
    is_open = true;
  }
}
void close_arena() {
  if (--depth == 0 && options().protect) {
    protect(PROT_NONE);
    is_open = false;
  }
}
Closed::Closed() : depth(sim::depth) {
  if (depth && options().protect) protect(PROT_NONE), is_open = false;
}
Closed::~Closed() {
  if (depth && !is_open) protect(PROT_READ | PROT_WRITE), is_open = true;
}

// ---- Blocks -----------------------------------------------------------------------------------

static Block *find_in(std::map<uintptr_t, Block> &in, const void *p, bool end_too) {
  auto it = in.upper_bound(number(p));
  if (it == in.begin()) return nullptr;
  Block &b = (--it)->second;
  const size_t offset = number(p) - b.start;
  return offset < b.bytes || (end_too && offset == b.bytes) ? &b : nullptr;
}
Block *find_block(const void *p, bool end_too) {
  return find_in(blocks, p, end_too);
}
size_t live_hosts() {
  return hosts.size();
}
Block *find_host(const void *p) {
  return find_in(hosts, p, false);
}

bool was_freed(const void *p) {
  const int d = arena_device(p);
  return d >= 0 && number(p) < arenas[d].malloc_next && !find_block(p);
}

static bool refuse() {
  Options &o = options();
  return o.fail_alloc > 0 && --o.fail_alloc == 0;
}

static void count_allocation(size_t bytes) {
  sim_counts &c = counts();
  c.allocations++, c.live_blocks++, c.live_bytes += bytes;
  if (c.live_bytes > c.peak_bytes) c.peak_bytes = c.live_bytes;
}
static void count_free(size_t bytes) {
  sim_counts &c = counts();
  c.frees++, c.live_blocks--, c.live_bytes -= bytes;
}

cudaError_t device_malloc(int device, size_t bytes, void **out) {
  if (!bytes) return *out = nullptr, cudaSuccess;
  if (!reserve_all()) return cudaErrorMemoryAllocation;
  Arena &a = arenas[device];
  if (refuse() || !has_room(device, bytes)) return cudaErrorMemoryAllocation;
  // A gap before the first too. Starts are odd multiples of 512: no more alignment than CUDA's.
  const uintptr_t start = up(a.malloc_next + GAP, 2 * ALIGN) + ALIGN,
                  end = up(start + bytes + GAP, GAP);
  if (end > a.malloc_end) return cudaErrorMemoryAllocation;
  if (end > a.opened_to) {
    a.opened_to = up(end, GRANULE);
    is_open = false; // the new part is not, yet
  }
  blocks[start] = {start, bytes, device, Kind::malloc, true, 0, 0, false, true};
  const uintptr_t old_next = a.malloc_next;
  a.malloc_next = end;
  a.used += bytes;
  for (uintptr_t g = start / GRANULE; g <= (end - 1) / GRANULE; g++) a.live_in_granule[g]++;
  count_allocation(bytes);
  if (depth && !is_open) protect(PROT_READ | PROT_WRITE), is_open = true;
  {
    Opened opened;
    fill(start, bytes);
    fill_gap(old_next, start - old_next);
    fill_gap(start + bytes, end - start - bytes);
  }
  mark(at(old_next), end - old_next, Mark::unaddressable);
  mark(at(start), bytes, Mark::uninitialised);
  *out = at(start);
  return cudaSuccess;
}

static uintptr_t first_changed(uintptr_t p, size_t n) {
  for (; n; n--, p++) {
    while (p % 8 == 0 && n > 8 &&
           *reinterpret_cast<const volatile uint64_t *>(p) == 0xffbfffbfffbfffbfu)
      p += 8, n -= 8;
    if (*reinterpret_cast<const volatile unsigned char *>(p) != gap_byte(p)) return p;
  }
  return 0;
}

// 256 bytes on either side: an overrun that jumps further is left to the checker.
void check_slack(const Block &b, const char *after) {
  if (b.kind != Kind::malloc) return;
  const uintptr_t end = b.start + b.bytes;
  uintptr_t hit = first_changed(end, 256);
  const bool before = !hit && (hit = first_changed(b.start - 256, 256));
  if (!hit) return;
  sim_report("%s: bytes were written %zu bytes %s an allocation of %zu bytes at %p", after,
             before ? b.start - hit : hit - end + 1, before ? "before" : "past the end of", b.bytes,
             at(b.start));
  fill_gap(end, 256); // said once
  fill_gap(b.start - 256, 256);
}

void check_all_slack(const char *after) {
  for (auto &[start, b] : blocks) check_slack(b, after);
}

static void drop_block(std::map<uintptr_t, Block>::iterator it) {
  const Block b = it->second;
  Arena &a = arenas[b.device];
  {
    Opened opened;
    check_slack(b, "found when freed");
    fill(b.start, b.bytes);
  }
  mark(at(b.start), b.bytes, Mark::unaddressable);
  blocks.erase(it);
  a.used -= b.bytes;
  count_free(b.bytes);
  const uintptr_t end = up(b.start + b.bytes + GAP, GAP);
  // Memory goes back to the system in whole granules once nothing lives there. Not the granule
  // where the next allocation begins.
  for (uintptr_t g = b.start / GRANULE; g <= (end - 1) / GRANULE; g++)
    if (--a.live_in_granule[g] == 0 && (g + 1) * GRANULE <= a.malloc_next) {
      a.live_in_granule.erase(g);
      madvise(at(g * GRANULE), GRANULE, MADV_DONTNEED);
    }
}

cudaError_t device_free(void *p) {
  auto it = blocks.find(number(p));
  if (it == blocks.end() || it->second.kind != Kind::malloc) {
    sim_report("free of %s", describe(p).c_str());
    return cudaErrorInvalidValue;
  }
  drop_block(it);
  return cudaSuccess;
}

cudaError_t host_malloc(size_t bytes, unsigned flags, Kind kind, void **out) {
  if (!bytes) return *out = nullptr, cudaSuccess;
  if (refuse()) return cudaErrorMemoryAllocation;
  void *p = nullptr;
  if (posix_memalign(&p, 4096, bytes)) return cudaErrorMemoryAllocation;
  memset(p, 0xff, bytes);
  hosts[number(p)] = {number(p), bytes, current_device, kind, true, 0, flags, false, true};
  *out = p;
  return cudaSuccess;
}

cudaError_t host_free(void *p, Kind kind) {
  auto it = hosts.find(number(p));
  if (it == hosts.end() || !it->second.owned || it->second.kind != kind) {
    sim_report("free of host memory %p that is no such allocation", p);
    return cudaErrorInvalidValue;
  }
  hosts.erase(it);
  free(p);
  return cudaSuccess;
}

cudaError_t host_register(void *p, size_t bytes, unsigned flags) {
  if (!p || !bytes) return cudaErrorInvalidValue;
  if (find_host(p)) return cudaErrorHostMemoryAlreadyRegistered;
  hosts[number(p)] = {number(p), bytes, current_device, Kind::host, true, 0, flags, false, false};
  return cudaSuccess;
}

cudaError_t host_unregister(void *p) {
  auto it = hosts.find(number(p));
  if (it == hosts.end() || it->second.owned) return cudaErrorHostMemoryNotRegistered;
  hosts.erase(it);
  return cudaSuccess;
}

std::string describe(const void *p, size_t bytes) {
  char s[200];
  if (bytes) {
    snprintf(s, sizeof s, "%zu bytes from ", bytes);
    const Block *b = find_block(p);
    if (b && number(p) + bytes > b->start + b->bytes) {
      const std::string past = std::to_string(number(p) + bytes - b->start - b->bytes);
      return s + describe(p) + ": " + past + " bytes past the end";
    }
    return s + describe(p);
  }
  if (!p) return "NULL";
  if (const Block *b = find_block(p, true)) {
    snprintf(s, sizeof s, "%p, %zu bytes into an allocation of %zu bytes on device %d", p,
             number(p) - b->start, b->bytes, b->device);
  } else if (find_host(p)) {
    snprintf(s, sizeof s, "%p, pinned host memory", p);
  } else if (in_arena(p)) {
    auto it = blocks.upper_bound(number(p));
    const Block *left = it == blocks.begin() ? nullptr : &std::prev(it)->second;
    if (left && left->device == arena_device(p) && number(p) - (left->start + left->bytes) < GAP)
      snprintf(s, sizeof s, "%p, %zu bytes past the end of an allocation of %zu bytes", p,
               number(p) - (left->start + left->bytes), left->bytes);
    else if (it != blocks.end() && it->first - number(p) < GAP)
      snprintf(s, sizeof s, "%p, %zu bytes before an allocation of %zu bytes", p,
               it->first - number(p), it->second.bytes);
    else
      snprintf(s, sizeof s, "%p, device memory that is %s", p,
               was_freed(p) ? "freed" : "not allocated");
  } else {
    snprintf(s, sizeof s, "%p, host memory", p);
  }
  return s;
}

void report_leaks() {
  for (auto &[start, b] : blocks)
    fprintf(stderr, "sim: leak: %zu bytes of device %d at %p\n", b.bytes, b.device, at(start));
}

// ---- Virtual memory ---------------------------------------------------------------------------

struct Physical {
  size_t bytes;
  int device, mapped;
  bool released;
  std::vector<unsigned char> saved; // its bytes while it is mapped nowhere
};
static std::map<uint64_t, Physical> &physical = *new std::map<uint64_t, Physical>;
static uint64_t next_handle = 1;

// Where no address was ever handed out, or, when all were, in the first hole that is large enough.
static uintptr_t find_addresses(Arena &a, size_t bytes, size_t alignment) {
  uintptr_t start = up(a.reserve_next, alignment);
  if (start + bytes <= a.reserve_end) {
    a.reserve_next = start + bytes + GRANULE; // a hole between two
    return start;
  }
  start = up(a.malloc_end, alignment);
  for (auto it = reserved.lower_bound(a.malloc_end); it != reserved.end(); ++it) {
    if (it->first >= a.reserve_end || start + bytes + GRANULE <= it->first) break;
    start = up(it->first + it->second + GRANULE, alignment);
  }
  return start + bytes <= a.reserve_end ? start : 0;
}

CUresult virtual_reserve(int device, size_t bytes, size_t alignment, uintptr_t *out) {
  if (!bytes || bytes % GRANULE || (alignment & (alignment - 1))) return CUDA_ERROR_INVALID_VALUE;
  if (!reserve_all()) return CUDA_ERROR_OUT_OF_MEMORY;
  const uintptr_t start = find_addresses(arenas[device], bytes, std::max(alignment, GRANULE));
  if (!start) return CUDA_ERROR_OUT_OF_MEMORY;
  reserved[start] = bytes;
  *out = start;
  return CUDA_SUCCESS;
}

CUresult virtual_unreserve(uintptr_t p, size_t bytes) {
  auto it = reserved.find(p);
  if (it == reserved.end() || it->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  auto b = blocks.lower_bound(p);
  if (b != blocks.end() && b->first < p + bytes) {
    sim_report("cuMemAddressFree of a range in which memory is still mapped");
    return CUDA_ERROR_INVALID_VALUE;
  }
  reserved.erase(it);
  return CUDA_SUCCESS;
}

CUresult physical_create(int device, size_t bytes, uint64_t *out) {
  if (!bytes || bytes % GRANULE) return CUDA_ERROR_INVALID_VALUE;
  if (!reserve_all() || refuse() || !has_room(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  arenas[device].used += bytes;
  count_allocation(bytes);
  physical[ *out = next_handle++] = {bytes, device, 0, false, {}};
  return CUDA_SUCCESS;
}

static void drop_physical(std::map<uint64_t, Physical>::iterator it) {
  if (!it->second.released || it->second.mapped) return;
  arenas[it->second.device].used -= it->second.bytes;
  count_free(it->second.bytes);
  physical.erase(it);
}

CUresult physical_release(uint64_t handle) {
  auto it = physical.find(handle);
  if (it == physical.end() || it->second.released) return CUDA_ERROR_INVALID_VALUE;
  it->second.released = true;
  drop_physical(it);
  return CUDA_SUCCESS;
}

CUresult virtual_map(uintptr_t p, size_t bytes, size_t offset, uint64_t handle) {
  auto h = physical.find(handle);
  auto r = reserved.upper_bound(p);
  if (h == physical.end() || h->second.released || offset || bytes != h->second.bytes ||
      p % GRANULE || r == reserved.begin())
    return CUDA_ERROR_INVALID_VALUE;
  --r;
  if (p + bytes > r->first + r->second) return CUDA_ERROR_INVALID_VALUE;
  auto next = blocks.lower_bound(p);
  if (find_block(at(p)) || (next != blocks.end() && next->first < p + bytes)) {
    sim_report("cuMemMap over memory that is mapped");
    return CUDA_ERROR_ALREADY_MAPPED;
  }
  if (h->second.mapped) { // legal on a GPU; here a piece has one address at a time
    sim_report("cuMemMap of memory that is mapped elsewhere: not simulated");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const bool written = !h->second.saved.empty(); // which of its bytes were is not remembered
  mprotect(at(p), bytes, PROT_READ | PROT_WRITE);
  mark(at(p), bytes, Mark::initialised);
  if (!written) {
    fill(p, bytes);
  } else {
    memcpy(at(p), h->second.saved.data(), bytes);
    std::vector<unsigned char>().swap(h->second.saved);
  }
  mprotect(at(p), bytes, PROT_NONE);
  mark(at(p), bytes, Mark::unaddressable); // until access is set
  h->second.mapped = 1;
  blocks[p] = {p, bytes, h->second.device, Kind::virtual_, false, handle, 0, written, true};
  return CUDA_SUCCESS;
}

// A range is handled in the pieces in which it was mapped.
static bool whole_pieces(uintptr_t p, size_t bytes) {
  const uintptr_t end = p + bytes;
  while (p < end) {
    auto it = blocks.find(p);
    if (it == blocks.end() || it->second.kind != Kind::virtual_) return false;
    p += it->second.bytes;
  }
  return p == end;
}

CUresult virtual_unmap(uintptr_t p, size_t bytes) {
  if (!bytes || !whole_pieces(p, bytes)) return CUDA_ERROR_INVALID_VALUE;
  for (const uintptr_t end = p + bytes; p < end;) {
    auto it = blocks.find(p);
    const Block b = it->second;
    auto h = physical.find(b.handle);
    mprotect(at(p), b.bytes, PROT_READ | PROT_WRITE);
    if (!h->second.released) {
      mark(at(p), b.bytes, Mark::initialised);
      const unsigned char *from = static_cast<const unsigned char *>(at(p));
      h->second.saved.assign(from, from + b.bytes);
    }
    mark(at(p), b.bytes, Mark::unaddressable);
    madvise(at(p), b.bytes, MADV_DONTNEED);
    mprotect(at(p), b.bytes, PROT_NONE);
    blocks.erase(it);
    h->second.mapped = 0;
    drop_physical(h);
    p += b.bytes;
  }
  return CUDA_SUCCESS;
}

CUresult virtual_access(uintptr_t p, size_t bytes, bool on) {
  if (!bytes || !whole_pieces(p, bytes)) return CUDA_ERROR_INVALID_VALUE;
  for (const uintptr_t end = p + bytes; p < end;) {
    Block &b = blocks.find(p)->second;
    if (b.accessible != on) {
      b.accessible = on;
      mark(at(p), b.bytes,
           !on         ? Mark::unaddressable
           : b.written ? Mark::initialised
                       : Mark::uninitialised);
      b.written = true; // if access is taken and given again
      mprotect(at(p), b.bytes, on && is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
    }
    p += b.bytes;
  }
  return CUDA_SUCCESS;
}

void release_device(int device) {
  for (auto it = blocks.begin(); it != blocks.end();) {
    const Block b = it->second;
    auto next = std::next(it);
    if (b.device == device) {
      if (b.kind == Kind::malloc)
        drop_block(it);
      else
        virtual_unmap(b.start, b.bytes);
    }
    it = next;
  }
}

} // namespace sim

using namespace sim;

bool sim_is_device(const void *p, size_t bytes) {
  uintptr_t at = number(p);
  const uintptr_t end = at + bytes;
  do { // pieces of virtual memory may be neighbours
    const Block *b = find_block(reinterpret_cast<const void *>(at), bytes == 0);
    if (!b || !b->accessible) return false;
    at = b->start + b->bytes;
  } while (at < end);
  return true;
}

extern "C" void sim_mark_unused(void *p, size_t bytes) {
  Api api(true);
  if (!bytes || !sim_is_device(p, bytes)) return;
  {
    Opened opened;
    fill(number(p), bytes);
  }
  mark(p, bytes, Mark::unaddressable);
}

extern "C" void sim_mark_used(void *p, size_t bytes) {
  Api api(true);
  if (!bytes || !sim_is_device(p, bytes)) return;
  {
    Opened opened;
    fill(number(p), bytes);
  }
  mark(p, bytes, Mark::uninitialised);
}
