// SPDX-License-Identifier: MIT
//
// What stands for check.cpp in the plain and the sanitized build: bounds only, and
// AddressSanitizer's shadow.
#include "core.h"

namespace sim {

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

} // namespace sim

using namespace sim;

static void touch(const void *p, size_t bytes, const char *what) {
  Api api(true);
  if (!bytes || find_host(p)) return;
  if (!sim_is_device(p, bytes)) sim_report("%s of %s", what, describe(p, bytes).c_str());
}
void sim_touch_read(const void *p, size_t bytes) {
  touch(p, bytes, "read");
}
void sim_touch_write(const void *p, size_t bytes) {
  touch(p, bytes, "write");
}

extern "C" const char *sim_flavour(void) {
#ifdef SIM_ASAN
  return "asan";
#else
  return "plain";
#endif
}
