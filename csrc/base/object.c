// SPDX-License-Identifier: MIT
#include "base/object.h"

static _Thread_local struct {
  cnn_object *dead; // what waits
  int destroying;
} mine;

void cnn_object_dead(cnn_object *o) {
  __typeof__(mine) *list = &mine;
  __asm__("" : "+r"(list)); // a thread's variable is found by a call: once, not at each use
  if (list->destroying) {
    o->next_dead = list->dead;
    list->dead = o;
    return;
  }
  list->destroying = 1;
  o->cls->destroy(o);
  while (list->dead) {
    o = list->dead;
    list->dead = o->next_dead;
    o->cls->destroy(o);
  }
  list->destroying = 0;
}
