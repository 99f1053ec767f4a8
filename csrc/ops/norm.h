// SPDX-License-Identifier: MIT
// What normalisations share.
#ifndef CNN_OPS_NORM_H
#define CNN_OPS_NORM_H

#include "ops/ops.h"

// Whether a weight or statistic (NULL: absent) may stand beside x: of x's dtype, or float32 beside
// a half type.
cnn_status cnn_check_beside(cnn_infer *I, const char *name, const cnn_tensor *t);

#endif
