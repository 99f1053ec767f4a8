// SPDX-License-Identifier: MIT
// What the C tests count: CHECK(condition) adds to `passed` or `failed` and says which line failed.
#ifndef CNN_SPEC_CHECK_H
#define CNN_SPEC_CHECK_H

#include <stdbool.h>
#include <stdio.h>

static int passed, failed;

static void report(bool ok, const char *what, int line) {
  if (ok) {
    passed++;
  } else {
    failed++;
    printf("FAILED at line %d: %s\n", line, what);
  }
}
#define CHECK(condition) report((condition), #condition, __LINE__)

#endif
