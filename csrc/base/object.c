// SPDX-License-Identifier: MIT
#include "base/object.h"

static _Thread_local cnn_object *dead;
static _Thread_local int destroying;

void cnn_object_dead(cnn_object *o) {
  if (destroying) {
    o->next_dead = dead;
    dead = o;
    return;
  }
  destroying = 1;
  o->cls->destroy(o);
  while (dead) {
    o = dead;
    dead = o->next_dead;
    o->cls->destroy(o);
  }
  destroying = 0;
}
