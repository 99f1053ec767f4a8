// SPDX-License-Identifier: MIT
#include "cpu/lines.h"

#include "base/parallel.h"

#define NARROW 64
#define FEW    16

cnn_lines cnn_lines_of(const cnn_view *v, int64_t dim) {
  cnn_lines l = {1, 1, 1};
  for (int d = 0; d < v->ndim; d++)
    *(d < dim ? &l.outer : d == dim ? &l.n : &l.inner) *= v->shape[d];
  return l;
}

typedef struct job {
  const cnn_lines *lines;
  int64_t width, groups; // lines of a group, groups of a block
  cnn_lines_fn fn;
  void *arg;
} job;

static void run_groups(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  int64_t inner = j->lines->inner, block = j->lines->n * inner;
  for (int64_t i = begin; i < end; i++) {
    int64_t first = i % j->groups * j->width;
    int64_t width = inner - first < j->width ? inner - first : j->width;
    j->fn(j->arg, i / j->groups * block + first, width);
  }
}

void cnn_lines_run(const cnn_lines *lines, int64_t grain, cnn_lines_fn fn, void *arg) {
  job j = {lines, CNN_LINES, 1, fn, arg};
  if (lines->n == 0) return;
  // Where there are few groups, narrower ones share the work more evenly.
  while (j.width > NARROW && lines->outer * lines->inner < FEW * j.width) j.width /= 2;
  j.groups = (lines->inner + j.width - 1) / j.width;
  int64_t each = (lines->inner < j.width ? lines->inner : j.width) * lines->n;
  cnn_parallel_for(lines->outer * j.groups, each >= grain ? 1 : grain / each + 1, run_groups, &j);
}
