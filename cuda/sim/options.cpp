// SPDX-License-Identifier: MIT
//
// Options, counts, reports, the lock, and what is wrong with a device.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core.h"

namespace sim {

static sim_counts the_counts;
static uint64_t random_state;
static long faults;
static std::string &last_report = *new std::string;
static cudaError_t poisons[MAX_DEVICES];
static thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

static size_t parse_bytes(const char *s) {
  char *end;
  double n = strtod(s, &end);
  const char *units = "KMGT", *u = *end ? strchr(units, *end & ~32) : nullptr;
  if (u)
    for (long i = u - units; i >= 0; i--) n *= 1024;
  return n > 0 ? static_cast<size_t>(n) : 0;
}

static int parse_word(const char *name, const std::vector<const char *> &words, int otherwise) {
  const char *s = getenv(name);
  if (!s) return otherwise;
  for (size_t i = 0; i < words.size(); i++)
    if (!strcmp(s, words[i])) return static_cast<int>(i);
  fprintf(stderr, "sim: %s=%s: use one of", name, s);
  for (const char *word : words) fprintf(stderr, " %s", word);
  fprintf(stderr, "\n");
  return otherwise;
}

static bool parse_flag(const char *name, bool otherwise) {
  const char *s = getenv(name);
  return s ? strcmp(s, "0") != 0 : otherwise;
}

// The exit status says what was reported, whatever the program made of it.
static int exit_status;
static void end_by_reports() {
  report_untold();
  if (!faults) return;
  fprintf(stderr, "sim: %ld reports, the last: %s\n", faults, last_report.c_str());
  fflush(nullptr);
  _exit(exit_status);
}

Options &options() {
  static Options o;
  static bool read = false;
  if (!read) {
    read = true;
    o.order = parse_word("SIM_ORDER", {"forward", "reverse", "random"}, o.order);
    o.streams = parse_word("SIM_STREAMS", {"eager", "lazy", "random"}, o.streams);
    o.libraries =
        parse_word("SIM_LIBRARIES", {"whole", "missing", "exhausted", "refusing"}, o.libraries);
    if (const char *s = getenv("SIM_SEED")) o.seed = strtoull(s, nullptr, 0);
    if (const char *s = getenv("SIM_MEMORY")) o.memory = parse_bytes(s);
    if (const char *s = getenv("SIM_CONTEXT")) o.context = parse_bytes(s);
    if (const char *s = getenv("SIM_FAIL_ALLOC")) o.fail_alloc = atol(s);
    if (const char *s = getenv("SIM_DEVICES")) o.devices = std::max(0, std::min(8, atoi(s)));
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && (!*visible || *visible == '-')) o.devices = 0;
    if (const char *s = getenv("SIM_DRIVER")) o.driver = atoi(s);
    o.protect = parse_flag("SIM_PROTECT", o.protect);
    o.peers = parse_flag("SIM_PEERS", o.peers);
    o.strict = parse_flag("SIM_STRICT", o.strict);
    o.noise = parse_flag("SIM_NOISE", o.noise);
    o.leaks = parse_flag("SIM_LEAKS", o.leaks);
    o.quiet = parse_flag("SIM_QUIET", o.quiet);
    random_state = o.seed * 0x9e3779b97f4a7c15u | 1;
    if (const char *s = getenv("SIM_EXIT")) exit_status = atoi(s);
    if (exit_status) atexit(end_by_reports);
    if (o.leaks) atexit(report_leaks); // before the reports are counted
  }
  return o;
}

int libraries() {
  Api api(true);
  return options().libraries;
}

sim_counts &counts() {
  return the_counts;
}

uint64_t random_u64() {
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return random_state * 0x2545f4914f6cdd1du >> 11;
}

// Never destroyed: destructors of the host may still call at exit.
std::recursive_mutex &lock() {
  static std::recursive_mutex *m = new std::recursive_mutex;
  return *m;
}

Api::Api(bool quiet) : guard(lock()) {
  if (options().streams == SIM_STREAMS_RANDOM && !quiet) progress();
}

cudaError_t fail(cudaError_t e) {
  if (e) last_error = e;
  return e;
}
cudaError_t take_last_error(bool clear) {
  const cudaError_t e = last_error;
  if (clear) last_error = cudaSuccess;
  return e;
}

cudaError_t device_error(int device) {
  return poisons[device];
}
void poison(int device, cudaError_t e) {
  if (!poisons[device] || !e) poisons[device] = e;
}

void emit_report(const std::string &text, const std::string &key) {
  if (!key.empty() && !new_key(key)) return;
  if (in_guarded_kernel()) {
    keep_fault(text);
    return;
  }
  faults++;
  last_report = text;
  if (!options().quiet) fprintf(stderr, "sim: %s\n", text.c_str());
}

} // namespace sim

using namespace sim;

extern "C" {

void sim_set_order(int order) {
  Api api(true);
  options().order = order;
}
void sim_set_streams(int mode) {
  Api api(true);
  wait_all(); // so that each mode's rules hold for all of its work
  options().streams = mode;
}
void sim_set_seed(uint64_t seed) {
  Api api(true);
  options().seed = seed;
  random_state = seed * 0x9e3779b97f4a7c15u | 1;
}
void sim_set_memory(size_t bytes) {
  Api api(true);
  options().memory = bytes;
}
uint64_t sim_device_used(int device) {
  Api api(true);
  return device < 0 || device >= MAX_DEVICES ? 0 : device_used(device);
}
uint64_t sim_live_objects(void) {
  Api api(true);
  return live_streams() + live_events() + live_hosts();
}
void sim_fail_alloc(long n) {
  Api api(true);
  options().fail_alloc = n;
}
void sim_set_protect(int on) {
  Api api(true);
  options().protect = on;
  Opened opened; // takes effect at once
}
void sim_set_strict(int on) {
  Api api(true);
  options().strict = on;
}
void sim_set_noise(int on) {
  Api api(true);
  options().noise = on;
}
void sim_set_quiet(int on) {
  Api api(true);
  options().quiet = on;
}
void sim_set_libraries(int mode) {
  Api api(true);
  options().libraries = mode;
}
int sim_set_devices(int n) {
  Api api(true);
  if (n < 1 || n > MAX_DEVICES || arena_bytes()) return 0;
  options().devices = n;
  return 1;
}
long sim_faults(void) {
  Api api(true);
  return faults;
}
const char *sim_last_report(void) {
  Api api(true);
  return last_report.c_str();
}
void sim_clear_faults(void) {
  Api api(true);
  faults = 0;
  last_report.clear();
}
void sim_poison_device(int device, int error) {
  Api api(true);
  if (device < 0 || device >= MAX_DEVICES) return;
  poisons[device] = static_cast<cudaError_t>(error);
}
void sim_get_counts(sim_counts *out) {
  Api api(true);
  *out = the_counts;
}
void sim_clear_counts(void) {
  Api api(true);
  const sim_counts c = the_counts;
  the_counts = sim_counts();
  the_counts.live_bytes = the_counts.peak_bytes = c.live_bytes;
  the_counts.live_blocks = c.live_blocks;
  clear_kernel_counts();
}
}
