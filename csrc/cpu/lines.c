// SPDX-License-Identifier: MIT
#include "cpu/lines.h"

#include "base/parallel.h"

cnn_lines cnn_lines_of(const cnn_view *v, int64_t dim) {
  cnn_lines l = {1, 1, 1};
  for (int d = 0; d < v->ndim; d++)
    *(d < dim ? &l.outer : d == dim ? &l.n : &l.inner) *= v->shape[d];
  return l;
}

typedef struct job {
  const cnn_lines *lines;
  int64_t groups; // of one block
  cnn_lines_fn fn;
  void *arg;
} job;

static void run_groups(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  int64_t inner = j->lines->inner, block = j->lines->n * inner;
  for (int64_t i = begin; i < end; i++) {
    int64_t first = i % j->groups * CNN_LINES;
    int64_t width = inner - first < CNN_LINES ? inner - first : CNN_LINES;
    j->fn(j->arg, i / j->groups * block + first, width);
  }
}

void cnn_lines_run(const cnn_lines *lines, int64_t grain, cnn_lines_fn fn, void *arg) {
  job j = {lines, (lines->inner + CNN_LINES - 1) / CNN_LINES, fn, arg};
  int64_t width = lines->inner < CNN_LINES ? lines->inner : CNN_LINES, each = width * lines->n;
  if (lines->n == 0) return;
  cnn_parallel_for(lines->outer * j.groups, each >= grain ? 1 : grain / each + 1, run_groups, &j);
}
