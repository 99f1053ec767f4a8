// SPDX-License-Identifier: MIT
// Tensors of images, as the kernels of convolutions and pools see them: (n, c, three spatial dims),
// whatever their number of dims is. C and C++.
#ifndef CNN_CUDA_SPATIAL_H
#define CNN_CUDA_SPATIAL_H

#include "engine/call.h"

typedef struct cuda_image {
  void *data;
  int64_t n, c, s[3]; // strides in elements; 0 in dims that the tensor doesn't have
} cuda_image;

// The last `spatial` dims of a tensor are spatial, before them are the channels and, if there is
// one more, the batch.
static inline void cuda_image_read(cuda_image *o, const cnn_view *t, int spatial) {
  const int first = t->ndim - spatial;
  o->data = t->data;
  o->n = first == 2 ? t->strides[0] : 0;
  o->c = t->strides[first - 1];
  for (int i = 0; i < 3; i++) {
    const int d = i - (3 - spatial);
    o->s[i] = d < 0 ? 0 : t->strides[first + d];
  }
}

#endif
