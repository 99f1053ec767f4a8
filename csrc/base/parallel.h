// SPDX-License-Identifier: MIT
// A small thread pool for loops over independent pieces.
//
// The pool starts on the first loop that is worth it, sleeps between loops and is made anew in a
// forked child. A loop inside a loop runs serially. Results must not depend on the number of
// threads: a piece's work depends only on its bounds, and its bounds only on n and grain.
#ifndef CNN_BASE_PARALLEL_H
#define CNN_BASE_PARALLEL_H

#include <stdint.h>

typedef void (*cnn_range_fn)(void *arg, int64_t begin, int64_t end);

// Calls fn(arg, begin, end) so that the ranges cover [0, n) once. Every range but the last is a
// multiple of `grain` long and starts at a multiple of it; the last one takes the rest, so that no
// range is shorter than `grain` unless n is. Then fn runs in the caller with no synchronisation, as
// it does for all n < 2 grain. There are at most 256 ranges.
//
// Loops of several threads at once are fine: one has the pool, the others run serially. A process
// forked out of fn must not return from it.
void cnn_parallel_for(int64_t n, int64_t grain, cnn_range_fn fn, void *arg);

// Threads used by a loop, the caller included. Starts at the environment's CNN_NUM_THREADS, without
// one at the number of processors that the process may run on. cnn_set_num_threads(0) goes back to
// that.
int cnn_num_threads(void);
void cnn_set_num_threads(int n);

#endif
