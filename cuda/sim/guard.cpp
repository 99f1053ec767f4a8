// SPDX-License-Identifier: MIT
//
// Guarded launches: kernels of a user, who is told of faults and goes on (sim_guard_next).
//
// The pieces that the arguments point to often lie side by side in one large allocation. So that an
// index past the end of one is not an index into the next, the kernel works on copies that lie
// apart, and its pointers are set to these. Pieces that overlap stay together.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <algorithm>
#include "exec.h"

namespace sim {

static thread_local bool next_guarded;
static thread_local std::vector<sim_extent> &next_extents = *new std::vector<sim_extent>;

bool take_guard(std::vector<sim_extent> *extents) {
  const bool guarded = next_guarded;
  *extents = std::move(next_extents);
  next_extents.clear();
  next_guarded = false;
  return guarded;
}

// ---- Faults -----------------------------------------------------------------------------------

static std::vector<std::string> &faults = *new std::vector<std::string>;

bool in_guarded_kernel() {
  return exec.launch && exec.launch->guarded;
}
void keep_fault(const std::string &text) {
  faults.push_back(text);
}
void report_untold() {
  for (const std::string &text : faults) emit_report(text, std::string());
  faults.clear();
}

// ---- Copies -----------------------------------------------------------------------------------

struct Piece {
  uintptr_t start, end, copy;
};
static std::vector<Piece> &pieces = *new std::vector<Piece>; // of the running launch, in order
static const size_t APART = 1 << 20, ALIGNMENT = 4096;
static const size_t ROOM = size_t(256) << 30; // addresses

static uintptr_t copies_base() {
  static uintptr_t base;
  if (base) return base;
  void *p = mmap(nullptr, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
  if (p == MAP_FAILED) {
    fprintf(stderr, "sim: no addresses for copies of arguments\n");
    abort();
  }
  return base = reinterpret_cast<uintptr_t>(p);
}

static void *pointer(uintptr_t p) {
  return reinterpret_cast<void *>(p);
}

void guard_begin(const Launch &l) {
  pieces.clear();
  if (!l.guarded) return;
  std::vector<Piece> all;
  for (const sim_extent &e : l.extents) {
    const uintptr_t start = reinterpret_cast<uintptr_t>(e.start);
    all.push_back({start, start + e.bytes, 0});
  }
  std::sort(all.begin(), all.end(), [](auto &a, auto &b) { return a.start < b.start; });
  for (const Piece &p : all) {
    if (!pieces.empty() && p.start < pieces.back().end)
      pieces.back().end = std::max(pieces.back().end, p.end);
    else
      pieces.push_back(p);
  }
  uintptr_t at = copies_base();
  for (Piece &p : pieces) {
    at += APART;
    p.copy = at + p.start % ALIGNMENT;
    at = (p.copy + (p.end - p.start) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    memcpy(pointer(p.copy), pointer(p.start), p.end - p.start);
    check_copy(p.copy, p.start, p.end - p.start);
  }
  for (const SimPointer &a : l.pointers)
    for (const Piece &p : pieces) {
      const uintptr_t v = reinterpret_cast<uintptr_t>(a.p);
      if (v < p.start || v >= p.end) continue;
      void *copy = pointer(p.copy + (v - p.start));
      memcpy(a.place, &copy, sizeof copy);
    }
}

void guard_end() {
  for (const Piece &p : pieces) {
    const size_t bytes = p.end - p.start;
    memcpy(pointer(p.start), pointer(p.copy), bytes);
    check_copy(p.start, p.copy, bytes);
    check_forget(p.copy, bytes);
    const uintptr_t from = p.copy / ALIGNMENT * ALIGNMENT;
    madvise(pointer(from), p.copy + bytes - from, MADV_DONTNEED);
  }
  pieces.clear();
}

Range guard_range() {
  return {copies_base(), ROOM};
}

bool guard_allows(uintptr_t p, size_t bytes) {
  for (const Piece &a : pieces)
    if (p >= a.copy && p + bytes <= a.copy + (a.end - a.start)) return true;
  return false;
}

std::string guard_describe(uintptr_t p) {
  const sim_extent *nearest = nullptr;
  size_t distance = SIZE_MAX;
  bool before = false;
  for (const sim_extent &e : exec.launch->extents) {
    const uintptr_t original = reinterpret_cast<uintptr_t>(e.start);
    for (const Piece &a : pieces) {
      if (original < a.start || original >= a.end) continue;
      const uintptr_t start = a.copy + (original - a.start), end = start + e.bytes;
      const bool below = p < start;
      const size_t d = below ? start - p : std::max(p, end) - end;
      if (d < distance) nearest = &e, distance = d, before = below;
    }
  }
  if (!nearest) return "no argument points there";
  char s[200];
  char off[40] = "just";
  if (distance) snprintf(off, sizeof off, "%zu bytes", distance);
  snprintf(s, sizeof s, "%s %s of argument %d, which has %zu bytes", off,
           before ? "before the start" : "past the end", nearest->argument, nearest->bytes);
  return s;
}

} // namespace sim

using namespace sim;

extern "C" {

void sim_guard_next(const sim_extent *extents, int n) {
  next_guarded = true;
  next_extents.assign(extents, extents + n);
}

int sim_take_faults(char *out, size_t size) {
  Api api(true);
  const int n = static_cast<int>(faults.size());
  std::string text;
  for (const std::string &line : faults) text += (text.empty() ? "" : "\n") + line;
  faults.clear();
  if (size) snprintf(out, size, "%s", text.c_str());
  return n;
}
}
