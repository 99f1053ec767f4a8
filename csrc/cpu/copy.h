// SPDX-License-Identifier: MIT
// Copies between views: any strides, any dtypes.
#ifndef CNN_CPU_COPY_H
#define CNN_CPU_COPY_H

#include "engine/op.h"

// Copies `from`, which broadcasts to `to`, converting its dtype. They must not overlap.
void cnn_copy_view(const cnn_view *to, const cnn_view *from);

#endif
