// SPDX-License-Identifier: MIT
// Intrusive reference counts. Creating functions return one reference, getters lend, nothing takes
// an argument's reference away.
//
// Objects form long chains (a tape of a million nodes). They are released by a loop: an object that
// dies while another is being destroyed waits in a list of the thread, so the C stack stays flat.
#ifndef CNN_BASE_OBJECT_H
#define CNN_BASE_OBJECT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cnn_object cnn_object;

typedef struct cnn_class {
  const char *name;
  // Gives back what the object holds (with cnn_unref) and frees it.
  void (*destroy)(cnn_object *object);
} cnn_class;

// The first member of everything that is counted.
struct cnn_object {
  const cnn_class *cls;
  atomic_int refs;
  cnn_object *next_dead; // used only between death and destruction
};

static inline void cnn_object_init(cnn_object *o, const cnn_class *cls) {
  o->cls = cls;
  atomic_init(&o->refs, 1);
}

static inline void *cnn_ref(void *object) {
  atomic_fetch_add_explicit(&((cnn_object *)object)->refs, 1, memory_order_relaxed);
  return object;
}

void cnn_object_dead(cnn_object *o);

// NULL is allowed.
static inline void cnn_unref(void *object) {
  cnn_object *o = object;
  if (!o) return;
  // The only owner needs no locked instruction: nobody else can take a reference meanwhile.
  if (atomic_load_explicit(&o->refs, memory_order_acquire) == 1 ||
      atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) == 1)
    cnn_object_dead(o);
}

static inline int cnn_refs(const void *object) {
  return atomic_load_explicit(&((cnn_object *)(uintptr_t)object)->refs, memory_order_relaxed);
}

#endif
