// SPDX-License-Identifier: MIT
// The CPU backend: one kernel per op of class KERNEL, named cpu_<op>.
#ifndef CNN_CPU_CPU_H
#define CNN_CPU_CPU_H

#include "engine/registry.h"

#define CNN_KERNEL_OF_KERNEL(name) extern const cnn_kernel cpu_##name;
#define CNN_KERNEL_OF_VIEW(name)
#define CNN_KERNEL_OF_COMPOSITE(name)
#define CNN_OP(name, class, autocast) CNN_KERNEL_OF_##class(name)
#include "ops/ops.def"
#undef CNN_OP
#undef CNN_KERNEL_OF_KERNEL
#undef CNN_KERNEL_OF_VIEW
#undef CNN_KERNEL_OF_COMPOSITE

extern const cnn_backend cnn_cpu_backend;

#endif
