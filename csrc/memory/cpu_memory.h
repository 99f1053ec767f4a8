// SPDX-License-Identifier: MIT
// The CPU as a device that a pool can map: huge pages, reserved address space, and a default limit
// of 0.8 of what the control group and the system leave. With overcommit malloc never fails:
// without a limit the host would be killed instead of seeing an error.
#ifndef CNN_MEMORY_CPU_MEMORY_H
#define CNN_MEMORY_CPU_MEMORY_H

#include "memory/pool.h"

extern const cnn_mapper cnn_cpu_mapper;

// The bytes that this process may have in all, and those that are left, by /proc/meminfo and by the
// memory limits of its control groups (v1 and v2, all ancestors). `root` goes before every path
// that is read: "" but in tests. What can't be read doesn't bind.
void cnn_cpu_memory_left(const char *root, size_t *total, size_t *left);

#endif
