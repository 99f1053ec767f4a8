// SPDX-License-Identifier: MIT
// What an element of a padded tensor shows: the CPU's kernels and the GPU's share it.
#ifndef CNN_BASE_PAD_H
#define CNN_BASE_PAD_H

#include <stdint.h>

#include "base/inline.h"

enum { CNN_PAD_CONSTANT, CNN_PAD_REFLECT, CNN_PAD_REPLICATE, CNN_PAD_CIRCULAR }; // as in pad's spec

// The position within a dim of `size` that is shown at position i, counted from the first one that
// is not padding; -1: a constant.
CNN_INLINE int64_t cnn_pad_source(int mode, int64_t i, int64_t size) {
  if (i >= 0 && i < size) return i;
  switch (mode) {
  case CNN_PAD_REFLECT: return i < 0 ? -i : 2 * (size - 1) - i;
  case CNN_PAD_REPLICATE: return i < 0 ? 0 : size - 1;
  case CNN_PAD_CIRCULAR: return i < 0 ? i + size : i - size;
  default: return -1;
  }
}

#endif
