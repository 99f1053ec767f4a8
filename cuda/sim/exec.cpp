// SPDX-License-Identifier: MIT
//
// Runs a kernel: block after block, the threads of a block on fibers. A fiber runs threads one
// after another; another fiber is taken only when a thread must wait. So a kernel without barriers
// is a plain loop, and every mix of waiting and ended threads is exact.
//
// A barrier is complete when all threads that have not ended are there. A warp operation is
// complete when all lanes of its mask that have not ended are there (the rule since sm_70); each
// lane then computes its result from a snapshot of all lanes' values. If nothing can go on, what
// everybody waits for is reported and the kernel ends with an error, as by a watchdog.
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <unordered_set>
#include "exec.h"

extern "C" {
SimState sim_state;
void sim_switch(void **from, void *to);
}

// Saves what a callee must keep, exchanges the stacks, restores. (ucontext would make a system call
// each time, two hundred times slower.)
#if defined(__x86_64__)
asm(R"(
.text
.globl sim_switch
.hidden sim_switch
.type sim_switch,@function
sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size sim_switch,.-sim_switch
)");
static const size_t FRAME = 8; // words: six registers, the entry, an empty return address
static const size_t ENTRY = 6;
#elif defined(__aarch64__)
asm(R"(
.text
.globl sim_switch
.hidden sim_switch
.type sim_switch,%function
sim_switch:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size sim_switch,.-sim_switch
)");
static const size_t FRAME = 20;
static const size_t ENTRY = 11;
#else
#error "the simulator switches stacks on x86-64 and aarch64"
#endif

namespace sim {

Exec exec;
static SimState *state = &sim_state; // of the object that the kernel lies in

static const std::ptrdiff_t LOCAL = 512 << 10; // bytes of local memory that a GPU's thread may have
static const size_t STACK = 1 << 20;
static const size_t PAGE = 4096;
static const size_t BEHIND = 16 << 20; // closed addresses after dynamic shared memory

static std::vector<Fiber *> &all_fibers = *new std::vector<Fiber *>;
static std::vector<Fiber *> &idle_fibers = *new std::vector<Fiber *>;
static Fiber main_fiber, *current_fiber = &main_fiber;
static std::vector<Meeting *> &all_meetings = *new std::vector<Meeting *>;
static std::vector<Meeting *> &free_meetings = *new std::vector<Meeting *>;
static unsigned char *dynamic_end;

// ---- Reports ----------------------------------------------------------------------------------

static const char *running = "";
Running::Running(const char *name) : before(running) {
  running = name;
}
Running::~Running() {
  running = before;
}
const char *running_name() {
  return running;
}
bool in_kernel() {
  return exec.now != nullptr;
}

static std::unordered_set<std::string> &keys = *new std::unordered_set<std::string>;
bool new_key(const std::string &key) {
  return keys.insert(key).second;
}
void forget_keys() {
  keys.clear();
}

static std::string where() {
  if (!in_kernel()) return *running ? std::string(running) + ": " : std::string();
  char s[300];
  const uint3 b = state->block, t = exec.now->id;
  snprintf(s, sizeof s, "%s, block (%u,%u,%u), thread (%u,%u,%u): ", running, b.x, b.y, b.z, t.x,
           t.y, t.z);
  return s;
}

static std::string format(const char *fmt, va_list ap) {
  char s[1000];
  vsnprintf(s, sizeof s, fmt, ap);
  return s;
}

void report_at(const char *file, int line, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  std::string text = format(fmt, ap);
  va_end(ap);
  char place[300];
  snprintf(place, sizeof place, " at %s:%d", file, line);
  emit_report(where() + text + place, std::string(fmt) + place);
}

} // namespace sim

using namespace sim;

void sim_report(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const std::string text = format(fmt, ap);
  va_end(ap);
  emit_report(where() + text, std::string());
}

namespace sim {

// ---- Fibers -----------------------------------------------------------------------------------

static void fiber_main();

bool in_fiber_stack(const void *p) {
  const char *c = static_cast<const char *>(p);
  if (current_fiber && c >= current_fiber->stack && c < current_fiber->stack + current_fiber->bytes)
    return true;
  for (const Fiber *f : all_fibers)
    if (c >= f->stack && c < f->stack + f->bytes) return true;
  return false;
}

static void make_fresh(Fiber *f) {
#ifdef SIM_ASAN // what was dropped on the stack left its red zones
  __asan_unpoison_memory_region(f->stack, f->bytes);
#endif
  void **top = reinterpret_cast<void **>(f->stack + f->bytes);
  memset(top - FRAME, 0, FRAME * sizeof *top);
  top[-static_cast<std::ptrdiff_t>(FRAME - ENTRY)] = reinterpret_cast<void *>(fiber_main);
  f->sp = top - FRAME;
  f->fresh = true;
}

static Fiber *take_fiber() {
  if (idle_fibers.empty()) {
    char *p = static_cast<char *>(mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (p == MAP_FAILED) abort();
    mprotect(p, PAGE, PROT_NONE);
    Fiber *f = new Fiber;
    f->stack = p + PAGE;
    f->bytes = STACK;
    make_fresh(f);
    all_fibers.push_back(f);
    return f;
  }
  Fiber *f = idle_fibers.back();
  idle_fibers.pop_back();
  return f;
}

static void switch_to(Fiber *to) {
  Fiber *from = current_fiber;
  if (to == from) return;
  current_fiber = to;
  to->fresh = false;
#ifdef SIM_ASAN
  void *fake;
  __sanitizer_start_switch_fiber(&fake, to->stack, to->bytes);
#endif
  sim_switch(&from->sp, to->sp);
#ifdef SIM_ASAN
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

static Thread *take_ready() {
  if (exec.ready.empty()) return nullptr;
  const int order = options().order;
  if (order == SIM_ORDER_RANDOM)
    std::swap(exec.ready.back(), exec.ready[random_below(exec.ready.size())]);
  Thread *t;
  if (order == SIM_ORDER_FORWARD) {
    t = exec.ready.front();
    exec.ready.pop_front();
  } else {
    t = exec.ready.back();
    exec.ready.pop_back();
  }
  return t;
}

// Leaves this fiber for whatever can go on.
static void go_on(bool parked) {
  const bool fresh = parked && exec.next < exec.order.size();
  const bool rather_ready = options().order == SIM_ORDER_RANDOM && random_below(4) == 0;
  if (fresh && !(rather_ready && !exec.ready.empty())) return switch_to(take_fiber());
  if (Thread *t = take_ready()) return switch_to(t->fiber);
  switch_to(&main_fiber);
}

static void resume(Thread *t) {
  exec.now = t;
  t->state = State::running;
  state->thread = t->id;
  state->lane = t->lane;
}

static void park(State s) {
  Thread *t = exec.now;
  t->state = s;
  t->fiber = current_fiber;
  go_on(true);
  resume(t);
}

static void wake(Thread *t) {
  t->state = State::ready;
  exec.ready.push_back(t);
}

void kill_kernel(cudaError_t e) {
  if (!exec.launch->guarded) poison(exec.launch->device, e);
  exec.killed = true;
  if (current_fiber != &main_fiber) switch_to(&main_fiber); // never comes back
}

// ---- Barriers ---------------------------------------------------------------------------------

static const char *const barrier_names[] = {"__syncthreads", "__syncthreads_count",
                                            "__syncthreads_and", "__syncthreads_or"};

static void complete_barrier(const Thread *last) {
  if (exec.exited && options().strict) {
    const Thread *at = nullptr;
    for (const Thread &t : exec.threads)
      if (&t == last || t.state == State::at_barrier) at = &t;
    if (at)
      report_at(at->file, at->line, "%u threads ended before the barrier (SIM_STRICT)",
                exec.exited);
  }
  exec.barrier_result = exec.barrier_value;
  exec.arrived = 0;
  exec.barrier_time = ++exec.time;
  exec.stats->barriers++;
  for (Thread &t : exec.threads)
    if (t.state == State::at_barrier) wake(&t);
}

static int barrier(int kind, int predicate, const char *file, int line) {
  Thread *t = exec.now;
  t->op = barrier_names[kind];
  t->file = file;
  t->line = line;
  if (!exec.arrived) {
    exec.barrier_kind = kind;
    exec.barrier_value = kind == SIM_BAR_AND;
    exec.first_arrived = t;
  } else {
    const Thread *o = exec.first_arrived;
    if (o->line != line || (o->file != file && strcmp(o->file, file)))
      report_at(file, line, "divergent barrier: thread %u waits at %s:%d", o->index, o->file,
                o->line);
  }
  if (kind == SIM_BAR_COUNT) exec.barrier_value += predicate != 0;
  if (kind == SIM_BAR_AND) exec.barrier_value = exec.barrier_value && predicate;
  if (kind == SIM_BAR_OR) exec.barrier_value = exec.barrier_value || predicate;
  if (++exec.arrived == exec.live)
    complete_barrier(t);
  else
    park(State::at_barrier);
  return exec.barrier_result;
}

// ---- Warp operations --------------------------------------------------------------------------

static void let_go(Thread *t) {
  if (t->held && --t->held->readers == 0) free_meetings.push_back(t->held);
  t->held = nullptr;
}

// What each lane knows of the others when they have met: all that any of them knew.
static void join_knowledge(Warp *w, unsigned lanes) {
  if (!exec.checked) return;
  uint32_t joined[32] = {0};
  const uint32_t now = ++exec.time;
  for (unsigned a = 0; a < 32; a++)
    if (lanes >> a & 1)
      for (unsigned b = 0; b < 32; b++) joined[b] = std::max(joined[b], w->known[a][b]);
  for (unsigned a = 0; a < 32; a++)
    if (lanes >> a & 1) joined[a] = now;
  for (unsigned a = 0; a < 32; a++)
    if (lanes >> a & 1) memcpy(w->known[a], joined, sizeof joined);
}

static bool complete_meeting(Warp *w, Meeting *m) {
  const unsigned wanted = m->mask & w->live;
  if ((m->arrived & wanted) != wanted || !m->arrived) return false;
  m->complete = true;
  m->readers = static_cast<unsigned>(__builtin_popcount(m->arrived));
  w->open.erase(std::find(w->open.begin(), w->open.end(), m));
  if (!m->bytes) join_knowledge(w, m->arrived); // __syncwarp; the others order no memory
  exec.stats->warp_ops++;
  for (unsigned i = 0; i < 32; i++)
    if (m->arrived >> i & 1 && w->lanes[i] != exec.now) wake(w->lanes[i]);
  return true;
}

static const void *meet(unsigned mask, const char *op, const void *mine, size_t bytes,
                        unsigned *arrived, const char *file, int line) {
  Thread *t = exec.now;
  Warp *w = t->warp;
  const unsigned bit = 1u << t->lane;
  let_go(t);
  t->op = op, t->file = file, t->line = line;
  if (!(mask & bit)) {
    report_at(file, line, "%s: lane %u calls it with a mask (0x%08x) without itself", op, t->lane,
              mask);
    mask |= bit;
  }
  Meeting *m = nullptr;
  for (Meeting *o : w->open) {
    if (o->mask == mask && (strcmp(o->op, op) || o->bytes != bytes)) {
      report_at(file, line, "lanes of one warp and mask meet in %s and in %s", op, o->op);
      kill_kernel(cudaErrorLaunchFailure);
    }
    if (o->mask == mask)
      m = o;
    else if (o->mask & bit && mask & o->arrived)
      report_at(file, line, "%s: mask 0x%08x here, 0x%08x where lanes of it wait (%s)", op, mask,
                o->mask, o->op);
  }
  if (!m) {
    if (free_meetings.empty()) {
      all_meetings.push_back(new Meeting);
      free_meetings.push_back(all_meetings.back());
    }
    m = free_meetings.back();
    free_meetings.pop_back();
    m->mask = mask, m->arrived = 0, m->op = op, m->bytes = bytes, m->complete = false;
    w->open.push_back(m);
  }
  if (bytes) memcpy(m->data + bytes * t->lane, mine, bytes);
  m->arrived |= bit;
  t->held = m;
  if (!complete_meeting(w, m)) park(State::at_meeting);
  *arrived = m->arrived;
  return m->data;
}

// ---- Threads and blocks -----------------------------------------------------------------------

static void finish_copies(Thread *t, int groups_left);

static void end_thread(Thread *t) {
  finish_copies(t, -1);
  let_go(t);
  t->state = State::done;
  t->warp->live &= ~(1u << t->lane);
  exec.live--;
  exec.exited++;
  // Those who wait may have waited for this one only.
  for (bool again = true; again;) {
    again = false;
    for (Meeting *m : t->warp->open)
      if (complete_meeting(t->warp, m)) {
        again = true;
        break;
      }
  }
  if (exec.arrived && exec.arrived == exec.live) complete_barrier(nullptr);
}

static void fiber_main() {
#ifdef SIM_ASAN
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  for (;;) {
    while (exec.next < exec.order.size()) {
      Thread *t = &exec.threads[exec.order[exec.next++]];
      resume(t);
      exec.launch->kernel.invoke(exec.launch->kernel.function, exec.launch->kernel.args);
      end_thread(exec.now);
    }
    idle_fibers.push_back(current_fiber);
    go_on(false);
  }
}

// Whose stack this is: AddressSanitizer wants to know where a switch leads to.
static void find_main_stack() {
#ifdef SIM_ASAN
  static thread_local char *stack;
  static thread_local size_t bytes;
  if (!stack) {
    pthread_attr_t a;
    void *p;
    pthread_getattr_np(pthread_self(), &a);
    pthread_attr_getstack(&a, &p, &bytes);
    pthread_attr_destroy(&a);
    stack = static_cast<char *>(p);
  }
  main_fiber.stack = stack;
  main_fiber.bytes = bytes;
#endif
}

static void report_deadlock() {
  std::string text = "deadlock: ";
  std::vector<std::pair<std::string, unsigned>> groups;
  const Thread *first = nullptr;
  for (const Thread &t : exec.threads) {
    if (t.state != State::at_barrier && t.state != State::at_meeting) continue;
    if (!first) first = &t;
    char s[300];
    snprintf(s, sizeof s, " in %s at %s:%d", t.op, t.file, t.line);
    auto it = std::find_if(groups.begin(), groups.end(), [&](auto &g) { return g.first == s; });
    if (it == groups.end())
      groups.push_back({s, 1});
    else
      it->second++;
  }
  for (auto &[s, n] : groups)
    text += (text.back() == ' ' ? "" : "; ") + std::to_string(n) + " threads wait" + s;
  text += "; " + std::to_string(exec.exited) + " have ended";
  exec.now = const_cast<Thread *>(first);
  emit_report(where() + text, "deadlock");
}

// Not memset: the calls of the C library are checked in the sanitized build, red zones included.
static void fill_shared(uintptr_t p, size_t n) {
  volatile uint64_t *w = reinterpret_cast<volatile uint64_t *>(p);
  for (; n >= 8; n -= 8) *w++ = ~uint64_t(0);
  volatile unsigned char *b = reinterpret_cast<volatile unsigned char *>(const_cast<uint64_t *>(w));
  while (n--) *b++ = 0xff;
}

static void set_up_shared(size_t bytes) {
  if (!dynamic_end) {
    char *p = static_cast<char *>(mmap(nullptr, SHARED_PER_SM + BEHIND, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (p == MAP_FAILED) abort();
    mprotect(p + SHARED_PER_SM, BEHIND, PROT_NONE);
    dynamic_end = reinterpret_cast<unsigned char *>(p) + SHARED_PER_SM;
  }
  exec.dynamic = dynamic_end - (bytes + 15) / 16 * 16;
#ifdef SIM_ASAN
  __asan_poison_memory_region(dynamic_end - SHARED_PER_SM, SHARED_PER_SM + BEHIND);
  __asan_unpoison_memory_region(exec.dynamic, bytes);
#endif
}

static void set_up_threads() {
  const dim3 d = exec.launch->block;
  const unsigned n = d.x * d.y * d.z;
  exec.threads.resize(n);
  exec.warps.resize((n + 31) / 32);
  exec.order.resize(n);
  for (unsigned i = 0; i < n; i++) exec.order[i] = i;
  if (options().order == SIM_ORDER_REVERSE) std::reverse(exec.order.begin(), exec.order.end());
}

static void run_block(uint32_t id) {
  const Launch &l = *exec.launch;
  const dim3 d = l.block, g = l.grid;
  exec.block_id = id;
  state->block = uint3{id % g.x, id / g.x % g.y, id / g.x / g.y};
  for (const Range &r : *exec.statics) fill_shared(r.start, r.bytes);
  fill_shared(reinterpret_cast<uintptr_t>(exec.dynamic), (l.shared + 15) / 16 * 16);
  const unsigned n = static_cast<unsigned>(exec.threads.size());
  exec.next = 0, exec.live = n, exec.arrived = 0, exec.exited = 0;
  exec.time = 1, exec.barrier_time = 0;
  exec.ready.clear();
  for (Warp &w : exec.warps) {
    w.live = 0;
    w.open.clear();
    if (exec.checked) memset(w.known, 0, sizeof w.known);
  }
  for (unsigned i = 0; i < n; i++) {
    Thread &t = exec.threads[i];
    Warp &w = exec.warps[i / 32];
    t.id = uint3{i % d.x, i / d.x % d.y, i / d.x / d.y};
    t.index = i, t.lane = i % 32, t.warp = &w, t.state = State::unstarted;
    t.fiber = nullptr, t.held = nullptr, t.group = 0;
    t.copies.clear();
    t.fenced.serial = 0;
    w.live |= 1u << t.lane;
    w.lanes[t.lane] = &t;
  }
  if (options().order == SIM_ORDER_RANDOM)
    for (unsigned i = n; i > 1; i--) std::swap(exec.order[i - 1], exec.order[random_below(i)]);
  check_block();
  exec.stats->blocks++;
  exec.stats->threads += n;

  switch_to(take_fiber());
  if (exec.live && !exec.killed) {
    report_deadlock();
    kill_kernel(cudaErrorLaunchTimeout);
  }
  if (exec.killed) { // what waits is dropped
    free_meetings = all_meetings;
    idle_fibers.clear();
    for (Fiber *f : all_fibers) {
      make_fresh(f);
      idle_fibers.push_back(f);
    }
  }
  exec.now = nullptr;
}

static std::map<std::string, sim_kernel_counts> &stats =
    *new std::map<std::string, sim_kernel_counts>;

static void check_pointers(const Launch &l, const char *when) {
  for (const SimPointer &a : l.pointers) {
    if (!a.p) continue;
    const Block *b = find_block(a.p, true);
    if (b && b->accessible) {
      // a peer's memory needs the access that cudaDeviceEnablePeerAccess gives
      if (b->device != l.device && !peers_enabled(l.device, b->device))
        sim_report("argument %d, %s: device %d has no access to device %d's memory", a.index,
                   describe(a.p).c_str(), l.device, b->device);
      continue;
    }
    if (find_host(a.p) || in_module(a.p)) continue;
    sim_report("%sargument %d is %s", when, a.index, describe(a.p).c_str());
  }
}

static const Launch *crash_launch;
static void say_crash(int sig) {
  if (crash_launch && in_kernel()) {
    char s[400];
    const uint3 b = state->block, t = exec.now->id;
    const int n =
        snprintf(s, sizeof s, "sim: signal %d in kernel %s, block (%u,%u,%u), thread (%u,%u,%u)\n",
                 sig, running, b.x, b.y, b.z, t.x, t.y, t.z);
    if (n > 0 && write(2, s, static_cast<size_t>(n)) < 0) _exit(128 + sig);
  }
  signal(sig, SIG_DFL);
  raise(sig);
}

static void catch_crashes() {
  static bool done = false;
  const char *e = getenv("SIM_CATCH");
  if (done || !e || *e != '1') return;
  done = true;
  stack_t ss = {};
  ss.ss_size = 64 << 10;
  ss.ss_sp = malloc(ss.ss_size);
  sigaltstack(&ss, nullptr);
  struct sigaction a = {};
  a.sa_handler = say_crash;
  a.sa_flags = SA_ONSTACK | SA_NODEFER;
  for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(s, &a, nullptr);
}

void run_kernel(const Launch &l) {
  static uint64_t launches;
  Running name(l.kernel.name);
  forget_keys();
  check_pointers(l, "");
  catch_crashes();
  crash_launch = &l;
  find_main_stack();
  current_fiber = &main_fiber;
  exec.launch = &l;
  exec.launch_id = ++launches;
  exec.killed = false;
  exec.statics = &shared_of(l.kernel.function);
  exec.stats = &stats[l.kernel.name];
  exec.stats->launches++;
  counts().launches++;
  state = l.kernel.state;
  exec.checked = state->checked;
  exec.stats->checked_launches += exec.checked;
  state->block_dim = l.block;
  state->grid_dim = l.grid;
  state->noise = options().noise;
  set_up_shared(l.shared);
  set_up_threads();
  guard_begin(l);
  check_launch();
  const uint64_t blocks = uint64_t(l.grid.x) * l.grid.y * l.grid.z;
  std::vector<uint32_t> order(blocks);
  for (uint64_t i = 0; i < blocks; i++) order[i] = static_cast<uint32_t>(i);
  if (options().order == SIM_ORDER_REVERSE) std::reverse(order.begin(), order.end());
  if (options().order == SIM_ORDER_RANDOM)
    for (uint64_t i = blocks; i > 1; i--) std::swap(order[i - 1], order[random_below(i)]);
  for (uint64_t i = 0; i < blocks && !exec.killed; i++) run_block(order[i]);
  guard_end();
  exec.launch = nullptr;
  crash_launch = nullptr;
  for (const SimPointer &a : l.pointers)
    if (const Block *b = a.p ? find_block(a.p, true) : nullptr) check_slack(*b, "after the kernel");
}

// ---- Asynchronous copies ----------------------------------------------------------------------

// Done when waited for, not before: a kernel that forgets to wait reads NaN.
static void finish_copies(Thread *t, int groups_left) {
  size_t kept = 0;
  for (const AsyncCopy &c : t->copies) {
    if (groups_left >= 0 && c.group >= t->group - groups_left) {
      t->copies[kept++] = c;
      continue;
    }
    if (c.valid) check_access(c.from, c.valid, SIM_READ, c.pc);
    check_access(c.to, c.bytes, SIM_WRITE, c.pc);
    memcpy(c.to, c.from, c.valid);
    memset(static_cast<char *>(c.to) + c.valid, 0, c.bytes - c.valid);
  }
  t->copies.resize(kept);
}

} // namespace sim

// ---- What kernels call ------------------------------------------------------------------------

extern "C" {

void *sim_dynamic_shared(void) {
  return exec.dynamic;
}
int sim_barrier(int kind, int predicate, const char *file, int line) {
  return barrier(kind, predicate, file, line);
}
const void *sim_meet(unsigned mask, const char *op, const void *mine, size_t bytes,
                     unsigned *arrived, const char *file, int line) {
  return meet(mask, op, mine, bytes, arrived, file, line);
}
void sim_warp_fault(const char *op, int source, const char *file, int line) {
  report_at(file, line, "%s: reads lane %d, which takes no part", op, source);
}
unsigned sim_active_mask(const char *file, int line) {
  if (options().strict) report_at(file, line, "__activemask() tells of chance (SIM_STRICT)");
  return 1u << exec.now->lane;
}
void sim_atomic(const void *p, size_t bytes, void *pc) {
  exec.stats->atomics++;
  if (reinterpret_cast<uintptr_t>(p) % bytes) {
    emit_report(where() + "misaligned atomic at " + place_of(pc), "atomic " + place_of(pc));
    kill_kernel(cudaErrorMisalignedAddress);
  }
  check_access(p, bytes, SIM_ATOMIC, pc);
}
void sim_fence(int scope) {
  (void)scope;
  check_fence();
}
void sim_copy_async(void *to, const void *from, size_t bytes, size_t valid, const char *file,
                    int line) {
  if (reinterpret_cast<uintptr_t>(to) % bytes || reinterpret_cast<uintptr_t>(from) % bytes) {
    report_at(file, line, "cp.async of %zu bytes is misaligned", bytes);
    kill_kernel(cudaErrorMisalignedAddress);
  }
  Thread *t = exec.now;
  void *pc = __builtin_return_address(0);
  t->copies.push_back({to, from, bytes, valid, t->group, file, line, pc});
  check_poison(to, bytes, pc);
  memset(to, 0xff, bytes); // undefined until waited for
}
void sim_copy_commit(void) {
  exec.now->group++;
}
void sim_copy_wait(int left) {
  finish_copies(exec.now, left);
}
void sim_trap(const char *what, const char *file, int line) {
  report_at(file, line, "%s", what);
  kill_kernel(cudaErrorLaunchFailure);
}
// Host code beside the kernels in a source calls these too, also on other threads: only what runs
// on the fiber's stack is a kernel.
static bool on_fiber() {
  const Fiber *f = current_fiber;
  const size_t offset =
      static_cast<size_t>(static_cast<char *>(__builtin_frame_address(0)) - f->stack);
  return exec.now && offset < f->bytes;
}
// 0 bytes: a function was entered.
void sim_access(const void *p, size_t bytes, int kind, void *pc) {
  if (!on_fiber()) return;
  const char *end = current_fiber->stack + current_fiber->bytes;
  if (end - static_cast<char *>(__builtin_frame_address(0)) > LOCAL) {
    emit_report(where() + "more than 512 KiB of local memory at " + place_of(pc),
                "local memory " + place_of(pc));
    kill_kernel(cudaErrorLaunchFailure);
  }
  if (bytes) check_access(p, bytes, kind, pc);
}
void sim_undefined(const char *what, int error, const char *file, unsigned line) {
  if (!on_fiber()) return;
  report_at(file, static_cast<int>(line), "%s", what);
  if (error) kill_kernel(static_cast<cudaError_t>(error));
}
float sim_noise(float x) {
  if (!state->noise) return x;
  for (size_t n = random_below(5); n > 2; n--) x = nextafterf(x, HUGE_VALF);
  for (size_t n = random_below(3); n; n--) x = nextafterf(x, -HUGE_VALF);
  return x;
}

int sim_get_kernel_counts(const char *name, sim_kernel_counts *out) {
  Api api(true);
  auto it = stats.find(name);
  if (it == stats.end()) return 0;
  *out = it->second;
  return 1;
}
int sim_kernel_at(int i, const char **name, sim_kernel_counts *out) {
  Api api(true);
  if (i < 0 || static_cast<size_t>(i) >= stats.size()) return 0;
  const auto it = std::next(stats.begin(), i);
  *name = it->first.c_str();
  *out = it->second;
  return 1;
}
}

namespace sim {
void clear_kernel_counts() {
  for (auto &[name, s] : stats) s = sim_kernel_counts();
}
} // namespace sim
