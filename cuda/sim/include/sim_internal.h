// SPDX-License-Identifier: MIT
//
// What the simulator offers to the stand-ins for NVIDIA's libraries (cuBLASLt, cuDNN ...), which
// compute on the host in the order of a stream.
//
// A stand-in checks its arguments at the call as the library does, and hands the computing to
// sim_push as a closure that holds copies of all it needs. The closure runs when the stream's turn
// comes, with device memory open. It may also be captured and run many times by a graph. Inside it,
// say what is read and written before touching it; only there may device memory be touched.
#ifndef SIM_INTERNAL_H
#define SIM_INTERNAL_H

#include <cuda_runtime_api.h>
#include <functional>
#include <stddef.h>
#include "sim.h"

// Enqueues host work in the order of a stream. `name` is kept as a pointer: use a literal.
cudaError_t sim_push(cudaStream_t stream, const char *name, std::function<void()> work);

// Tell the checker. In plain and sanitized builds only the bounds are checked.
void sim_touch_read(const void *p, size_t bytes);
void sim_touch_write(const void *p, size_t bytes);

// Whether all these bytes lie within one live allocation (or neighbouring mapped pieces) of a
// device.
bool sim_is_device(const void *p, size_t bytes);

// A fault: printed with the name of the running kernel or library call, and counted.
void sim_report(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
