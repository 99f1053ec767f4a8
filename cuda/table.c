// SPDX-License-Identifier: MIT
// The kernels of all ops. One that is not written is a symbol that the linker misses: cuda_<op>.
#include "plugin.h"

#define KERNEL_OF_KERNEL(name) extern const cnn_kernel cuda_##name;
#define KERNEL_OF_VIEW(name)
#define KERNEL_OF_COMPOSITE(name)
#define CNN_OP(name, class, autocast) KERNEL_OF_##class(name)
#include "ops/ops.def"
#undef CNN_OP
#undef KERNEL_OF_KERNEL
#undef KERNEL_OF_VIEW
#undef KERNEL_OF_COMPOSITE

#define KERNEL_OF_KERNEL(name)    &cuda_##name,
#define KERNEL_OF_VIEW(name)      NULL,
#define KERNEL_OF_COMPOSITE(name) NULL,
const cnn_kernel *const cuda_kernels[] = {
#define CNN_OP(name, class, autocast) KERNEL_OF_##class(name)
#include "ops/ops.def"
#undef CNN_OP
};

const char *const cuda_op_names[] = {
#define CNN_OP(name, class, autocast) #name,
#include "ops/ops.def"
#undef CNN_OP
};

const int cuda_op_count = sizeof cuda_op_names / sizeof *cuda_op_names;

const char *cuda_op_name(int id) {
  return cuda_op_names[id];
}
