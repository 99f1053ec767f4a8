// SPDX-License-Identifier: MIT
#include "base/small.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/alloc.h"

// Sizes in steps of 64 bytes up to 1024; larger ones go to malloc. A thread keeps at most KEEP
// bytes, so that a burst does not hold memory for ever: a collector's cycle of a script that makes
// small tensors is some ten thousand of them.
#define STEP    64
#define CLASSES 16
#define KEEP    (8 << 20)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RECYCLE false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RECYCLE false
#endif
#endif
#ifndef RECYCLE
#define RECYCLE true // sanitizers must see every allocation
#endif

typedef struct link {
  struct link *next;
} link;

typedef struct lists {
  link *head[CLASSES];
  int kept; // bytes
  bool registered;
} lists;

static _Thread_local lists mine;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

// At a thread's end its lists are given back.
static void drop(void *arg) {
  lists *l = arg;
  for (int c = 0; c < CLASSES; c++) {
    while (l->head[c]) {
      link *dead = l->head[c];
      l->head[c] = dead->next;
      free(dead);
    }
  }
  l->kept = KEEP; // a destructor that runs later frees directly
}

static void make_key(void) {
  pthread_key_create(&key, drop);
}

static void enroll(lists *l) {
  pthread_once(&once, make_key);
  pthread_setspecific(key, l);
  l->registered = true;
}

// A thread's variable is found by a call: once in a function, not at each use.
static inline lists *own(void) {
  lists *l = &mine;
  __asm__("" : "+r"(l));
  return l;
}

static int class_of(size_t bytes) {
  return (int)((bytes - 1) / STEP);
}

void *cnn_small_alloc(size_t bytes) {
  int c = class_of(bytes);
  if (!RECYCLE || c >= CLASSES) return cnn_malloc(bytes);
  if (cnn_fault_hit()) return NULL;
  lists *l = own();
  link *p = l->head[c];
  if (__builtin_expect(p == NULL, 0)) return malloc((size_t)(c + 1) * STEP);
  l->head[c] = p->next;
  l->kept -= (c + 1) * STEP;
  return p;
}

void cnn_small_free(void *p, size_t bytes) {
  int c = class_of(bytes);
  lists *l = own();
  if (!RECYCLE || c >= CLASSES || l->kept >= KEEP) {
    free(p);
    return;
  }
  if (__builtin_expect(!l->registered, 0)) enroll(l);
  link *dead = p;
  dead->next = l->head[c];
  l->head[c] = dead;
  l->kept += (c + 1) * STEP;
}
