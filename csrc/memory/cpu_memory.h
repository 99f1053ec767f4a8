// SPDX-License-Identifier: MIT
// The CPU as a device that a pool can map: huge pages, reserved address space, and a default limit
// of 0.8 of what the control group and the system leave. With overcommit malloc never fails: without
// a limit the host would be killed instead of seeing an error.
#ifndef CNN_MEMORY_CPU_MEMORY_H
#define CNN_MEMORY_CPU_MEMORY_H

#include "memory/pool.h"

extern const cnn_mapper cnn_cpu_mapper;

#endif
