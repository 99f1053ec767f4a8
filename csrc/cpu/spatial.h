// SPDX-License-Identifier: MIT
// Tensors of images, as the kernels of convolutions and pools see them: (n, c, three spatial dims),
// whatever their number of dims is.
#ifndef CNN_CPU_SPATIAL_H
#define CNN_CPU_SPATIAL_H

#include "engine/op.h"

typedef struct cnn_spatial {
  char *data;
  int64_t n, c, s[3]; // strides in elements
  int64_t step;       // from place to place where all spatial dims are one even run; else 0
  int64_t size[3], places;
  bool staged; // for the kernel: images are copied to scratch before they are used
} cnn_spatial;

// The last n dims of a tensor are spatial, before them are the channels and, if there is one more,
// the batch.
static inline void cnn_spatial_read(cnn_spatial *o, const cnn_view *t, int n) {
  int first = t->ndim - n;
  o->data = t->data;
  o->n = first == 2 ? t->strides[0] : 0;
  o->c = t->strides[first - 1];
  for (int i = 0; i < 3; i++) {
    int d = first + i - (3 - n);
    o->size[i] = i < 3 - n ? 1 : t->shape[d];
    o->s[i] = i < 3 - n ? 0 : t->strides[d];
  }
  o->step = 1;
  o->places = 1;
  for (int i = 2; i >= 0; i--) {
    if (o->size[i] == 1) continue;
    if (o->places == 1)
      o->step = o->s[i];
    else if (o->s[i] != o->step * o->places)
      o->step = 0;
    o->places *= o->size[i];
  }
  o->staged = false;
}

#endif
