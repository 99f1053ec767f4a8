// SPDX-License-Identifier: MIT
// The derivatives of unary.def: a half of unary.cu, compiled beside it.
#define UNARY_BACKWARD
#include "unary.cu"
