// SPDX-License-Identifier: MIT
// Address sanitizer builds: memory that no block's user asked for is poisoned, and every block is
// followed by a redzone. In other builds all of this is nothing.
//
// The redzone comes on top of a block's size, so statistics of blocks are the same in every build;
// only more address space is used.
#ifndef CNN_MEMORY_POISON_H
#define CNN_MEMORY_POISON_H

#if defined(__SANITIZE_ADDRESS__)
#define CNN_POISONED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CNN_POISONED 1
#endif
#endif

#ifdef CNN_POISONED
#include <sanitizer/asan_interface.h>
#define CNN_POOL_REDZONE 64
#define CNN_POISON(mapper, p, bytes)                                                               \
  do {                                                                                             \
    if ((mapper)->host) __asan_poison_memory_region((void *)(p), bytes);                           \
  } while (0)
#define CNN_UNPOISON(mapper, p, bytes)                                                             \
  do {                                                                                             \
    if ((mapper)->host) __asan_unpoison_memory_region((void *)(p), bytes);                         \
  } while (0)
#else
#define CNN_POOL_REDZONE               0
#define CNN_POISON(mapper, p, bytes)   ((void)0)
#define CNN_UNPOISON(mapper, p, bytes) ((void)0)
#endif

#endif
