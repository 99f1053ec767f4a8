// SPDX-License-Identifier: MIT
//
// The state of the kernel that runs: what exec.cpp keeps and check.cpp reads.
#ifndef SIM_EXEC_H
#define SIM_EXEC_H

#include <deque>
#include <vector>
#include "core.h"

namespace sim {

struct Fiber {
  void *sp = nullptr;
  char *stack = nullptr;
  size_t bytes = 0;
  bool fresh = true; // its stack holds nothing yet
};

enum class State { unstarted, running, ready, at_barrier, at_meeting, done };

// Lanes of a warp that wait for each other in one operation. Kept until all have read the values.
struct Meeting {
  unsigned mask, arrived, readers;
  bool complete;
  const char *op;
  size_t bytes;
  alignas(16) unsigned char data[32 * 64];
};

struct AsyncCopy {
  void *to;
  const void *from;
  size_t bytes, valid;
  int group;
  const char *file;
  int line;
  void *pc;
};

// Times are counts of the block's synchronisations: see check.cpp.
struct Fenced { // what a thread knew at its last fence
  uint32_t own, barrier;
  uint32_t known[32];
  uint64_t serial; // 0: no fence yet
};

struct Warp;
struct Thread {
  uint3 id;
  unsigned index, lane;
  Warp *warp;
  State state;
  Fiber *fiber;
  const char *op, *file; // where it waits
  int line;
  Meeting *held; // whose values it may still read
  std::vector<AsyncCopy> copies;
  int group;
  Fenced fenced;
};

struct Warp {
  unsigned live; // lanes that have not ended
  std::vector<Meeting *> open;
  Thread *lanes[32];
  uint32_t known[32][32]; // [a][b]: what lane b did before this time comes before what a does now
};

struct Exec {
  const Launch *launch;
  uint64_t launch_id;
  uint32_t block_id;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<unsigned> order;
  size_t next;   // of order: not started yet
  unsigned live; // threads that have not ended
  unsigned arrived, exited;
  int barrier_kind, barrier_value, barrier_result;
  const Thread *first_arrived;
  std::deque<Thread *> ready;
  Thread *now;
  bool killed;
  bool checked; // the kernel calls the checker
  uint32_t time, barrier_time;
  unsigned char *dynamic; // the block's dynamic shared memory
  const std::vector<Range> *statics;
  sim_kernel_counts *stats;
};
extern Exec exec;

// The checker's part; nothing for kernels that don't call it.
void check_launch();
void check_block();
void check_fence();
void check_access(const void *p, size_t bytes, int kind, void *pc);
// A thread writes values that nobody may read yet.
void check_poison(const void *p, size_t bytes, void *pc);
// A guarded launch's copies: what is known of bytes goes with them; and is not needed any more.
void check_copy(uintptr_t to, uintptr_t from, size_t bytes);
void check_forget(uintptr_t copy, size_t bytes);

// Of the running thread's stack, or of another fiber's.
bool in_fiber_stack(const void *p);

} // namespace sim

#endif
