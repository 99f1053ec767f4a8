// SPDX-License-Identifier: MIT
#include "cpu/cpu.h"

#define CNN_KERNEL_OF_KERNEL(name)    &cpu_##name,
#define CNN_KERNEL_OF_VIEW(name)      NULL,
#define CNN_KERNEL_OF_COMPOSITE(name) NULL,

static const cnn_kernel *const kernels[] = {
#define CNN_OP(name, class, autocast) CNN_KERNEL_OF_##class(name)
#include "ops/ops.def"
#undef CNN_OP
};

const cnn_backend cnn_cpu_backend = {.name = "cpu", .kernels = kernels, .copy = NULL};
