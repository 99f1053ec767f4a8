// SPDX-License-Identifier: MIT
//
// What the parts of the simulator know of each other. Everything here is guarded by one recursive
// lock: an entry point opens with `Api api;`, which takes it. So several host threads may call, one
// at a time; kernels run on the thread that waits for them.
//
//   memory.cpp   device memory, pinned host memory, virtual memory
//   stream.cpp   queued work: streams, events, captures, graphs
//   runtime.cpp  the runtime API on these two; options and counts
//   exec.cpp     runs a kernel
//   module.cpp   reads the symbol tables of loaded objects
//   guard.cpp    kernels of users, whose faults come back to them
//   check.cpp    the checker: of all kernels in its flavour, elsewhere of those of the NVRTC
//   stand-in driver.cpp   the driver API; nvrtc.cpp: run-time compilation
//
// Containers of the whole process are never destroyed (`&x = *new ...`): the host's destructors may
// still call at exit.
#ifndef SIM_CORE_H
#define SIM_CORE_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>
#include "include/sim.h"
#include "include/sim_internal.h"
#include "include/sim_device.h"

#ifdef SIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace sim {

constexpr int MAX_DEVICES = 8;
constexpr size_t GRANULE = 2u << 20; // of virtual memory, and of opening and closing
constexpr size_t STATIC_SHARED_MAX = 48 << 10, SHARED_OPTIN_MAX = 227 << 10;
constexpr size_t SHARED_PER_SM = 228 << 10;

struct Options {
  int order = SIM_ORDER_FORWARD, streams = SIM_STREAMS_EAGER;
  uint64_t seed = 1;
  size_t memory = size_t(8) << 30, context = size_t(64) << 20;
  long fail_alloc = 0;
  bool protect = true, strict = false, noise = false, leaks = false, quiet = false;
  bool peers = true;
  int driver = CUDART_VERSION; // of CUDA that it serves; 0: there is none
  int devices = 1, libraries = SIM_LIBRARIES_WHOLE;
};
Options &options();
sim_counts &counts();

// xorshift64*: the same numbers everywhere for a seed.
uint64_t random_u64();
inline size_t random_below(size_t n) {
  return n ? random_u64() % n : 0;
}

std::recursive_mutex &lock();
extern thread_local int current_device;

// Opens an entry point: takes the lock, reads the options once, and in random mode lets some queued
// work run. `quiet` leaves queued work alone.
struct Api {
  explicit Api(bool quiet = false);
  std::lock_guard<std::recursive_mutex> guard;
};

// Remembers an error for cudaGetLastError and returns it.
cudaError_t fail(cudaError_t e);
// The error that a poisoned device answers, else success.
cudaError_t device_error(int device);
void poison(int device, cudaError_t e); // keeps the first
bool peers_enabled(int from, int to);
void clear_kernel_counts();
// Enters the checks that begin every call that works on a device.
#define SIM_ENTER()                                                                                \
  ::sim::Api api;                                                                                  \
  if (cudaError_t e_ = ::sim::device_error(::sim::current_device)) {                               \
    return ::sim::fail(e_);                                                                        \
  }

// ---- memory.cpp -------------------------------------------------------------------------------

enum class Kind { malloc, virtual_, host, managed };

struct Block { // an allocation, or a mapped piece of virtual memory
  uintptr_t start;
  size_t bytes;
  int device;
  Kind kind;
  bool accessible; // virtual memory: cuMemSetAccess was called
  uint64_t handle; // virtual memory
  unsigned flags;  // host memory: as asked for
  bool written;    // virtual memory: it came with bytes
  bool owned;      // host memory: by the simulator, not registered
};

// The live block in which p lies (or ends, where `end_too`); NULL if none. Freed blocks are not
// found.
Block *find_block(const void *p, bool end_too = false);
Block *find_host(const void *p); // pinned or managed
bool was_freed(const void *p);   // lies in device memory that was once handed out
bool in_arena(const void *p);
int arena_device(const void *p); // -1 if not device memory
uintptr_t arena_base();
size_t arena_bytes();

cudaError_t device_malloc(int device, size_t bytes, void **out);
cudaError_t device_free(void *p); // invalid value if it isn't an allocation's start
cudaError_t host_malloc(size_t bytes, unsigned flags, Kind kind, void **out);
cudaError_t host_free(void *p, Kind kind);
cudaError_t host_register(void *p, size_t bytes, unsigned flags);
cudaError_t host_unregister(void *p);
void release_device(int device); // all memory, at a reset
void use_context(int device);    // it takes its bytes from the first use of the device on
void drop_context(int device);   // until a reset
size_t device_used(int device);
void report_leaks();
size_t live_hosts(); // pinned and managed pieces

CUresult virtual_reserve(int device, size_t bytes, size_t alignment, uintptr_t *out);
CUresult virtual_unreserve(uintptr_t p, size_t bytes);
CUresult physical_create(int device, size_t bytes, uint64_t *out);
CUresult physical_release(uint64_t handle);
CUresult virtual_map(uintptr_t p, size_t bytes, size_t offset, uint64_t handle);
CUresult virtual_unmap(uintptr_t p, size_t bytes);
CUresult virtual_access(uintptr_t p, size_t bytes, bool on);

// Device memory is open between these; calls nest.
void open_arena();
void close_arena();
struct Opened {
  Opened() { open_arena(); }
  ~Opened() { close_arena(); }
};
struct Closed { // closes it again for host code that runs within
  Closed();
  ~Closed();
  int depth;
};

// Reports whose slack was written to. With device memory open.
void check_slack(const Block &b, const char *after);
void check_all_slack(const char *after);
// Says in words what p is, or what is wrong with so many bytes from there.
std::string describe(const void *p, size_t bytes = 0);

// ---- stream.cpp -------------------------------------------------------------------------------

// Enqueues; `kernel` counts apart. Waits for nothing.
cudaError_t push(cudaStream_t stream, const char *name, std::function<void()> work);
bool is_capturing(cudaStream_t stream);
cudaError_t forbid_in_capture(); // fails and spoils the capture where this thread may not call
cudaError_t wait_stream(cudaStream_t stream);
cudaError_t wait_device(int device);
void wait_all();
void progress(); // random mode: runs a few
void drop_device(int device);
size_t live_streams();
size_t live_events();
int stream_device(cudaStream_t stream); // -1 if it is not a live stream
bool busy();                            // within queued work

// ---- exec.cpp ---------------------------------------------------------------------------------

struct Launch {
  SimKernel kernel;
  std::shared_ptr<void> args;
  std::vector<SimPointer> pointers;
  dim3 grid, block;
  size_t shared;
  int device;
  bool guarded;                    // sim_guard_next
  std::vector<sim_extent> extents; // of a guarded launch: all that it may touch of global memory
};
void run_kernel(const Launch &l);
const char *running_name(); // kernel or library call, "" if none
struct Running {            // names what runs, for reports
  explicit Running(const char *name);
  ~Running();
  const char *before;
};
// A fault with the kernel's place. Counted once for each (key, place) in a launch.
void report_at(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void emit_report(const std::string &text, const std::string &key);
bool new_key(const std::string &key); // true the first time in this launch
void forget_keys();
// Ends the running kernel with this error, which the device keeps. Does not return in a kernel.
void kill_kernel(cudaError_t e);
bool in_kernel();

// ---- guard.cpp --------------------------------------------------------------------------------

bool take_guard(std::vector<sim_extent> *extents); // of the launch at hand
void guard_begin(const Launch &l);                 // sets its pointers to copies
void guard_end();
struct Range {
  uintptr_t start;
  size_t bytes;
};
Range guard_range();                          // where the copies lie
bool guard_allows(uintptr_t p, size_t bytes); // within a copy
std::string guard_describe(uintptr_t p);      // what is wrong with an address there
bool in_guarded_kernel();
void keep_fault(const std::string &text);
void report_untold(); // at the end: faults that nobody asked for

// ---- module.cpp -------------------------------------------------------------------------------

// The static shared variables that this kernel may use.
const std::vector<Range> &shared_of(const void *kernel);
size_t shared_bytes_of(const void *kernel);
Range shared_section_of(const void *kernel); // all shared variables of the kernel's object
bool in_module(const void *p);               // in the data or code of a loaded object
std::string place_of(void *pc);              // "file:line", as well as it is known

// ---- check.cpp --------------------------------------------------------------------------------

// Where the memory changes state. Only the checker's flavour notes it, and AddressSanitizer.
enum class Mark { unaddressable, uninitialised, initialised };
void mark(const void *p, size_t bytes, Mark m);
void copy_marks(void *to, const void *from, size_t bytes);

} // namespace sim

#endif
