// SPDX-License-Identifier: MIT
// The record of memory: the ring, origins, and pieces of a pool that threads are using.
#include "memory/record.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "memory/cpu_memory.h"

static cnn_block *make(cnn_pool *p, size_t bytes, uint8_t kind, const char *origin) {
  cnn_block *b = cnn_pool_alloc(p, bytes, kind, NULL);
  if (b) cnn_record_alloc(p, b, cnn_origin_of(origin));
  return b;
}

static void drop(cnn_pool *p, cnn_block *b) {
  cnn_record_free(p, b);
  cnn_pool_free(p, b);
}

static void check_ring(void) {
  cnn_pool *p = cnn_pool_create(&cnn_cpu_mapper);
  cnn_event *events;
  size_t n;
  uint64_t lost;
  CHECK(cnn_record_reset(4));
  CHECK(cnn_record_switch(CNN_RECORD_EVENTS) == CNN_RECORD_OFF && cnn_record_on());
  uint32_t before = cnn_record_serial();
  cnn_block *a = make(p, 100, 1, "a.lua:1"), *b = make(p, 1 << 20, 2, "a.lua:2");
  CHECK(a->serial == before + 1 && b->serial == before + 2 && cnn_record_serial() == before + 2);
  CHECK(strcmp(cnn_origin_text(b->origin), "a.lua:2") == 0);
  cnn_record_retag(p, b, 3);
  cnn_pool_retag(p, b, 3);
  CHECK(cnn_record_events(p, &events, &n, &lost) && n == 3 && lost == 0);
  CHECK(events[0].what == CNN_EVENT_ALLOC && events[0].at == (uintptr_t)a->data);
  CHECK(events[0].bytes == a->size && events[0].serial == a->serial && events[0].kind == 1);
  CHECK(events[2].what == CNN_EVENT_RETAG && events[2].was == 2 && events[2].kind == 3);
  CHECK(events[0].time <= events[1].time && events[1].time <= events[2].time);
  free(events);
  drop(p, a);
  drop(p, b);
  CHECK(cnn_record_events(p, &events, &n, &lost) && n == 4 && lost == 1);
  CHECK(events[3].what == CNN_EVENT_FREE && events[3].kind == 3);
  free(events);
  CHECK(cnn_record_events(NULL, &events, &n, &lost) && n == 0); // another pool's
  free(events);
  CHECK(cnn_record_switch(CNN_RECORD_STAMPS) == CNN_RECORD_EVENTS);
  a = make(p, 1, 0, "");
  CHECK(a->serial == before + 3 && a->origin == 0);
  drop(p, a);
  CHECK(cnn_record_events(p, &events, &n, &lost) && n == 4 && lost == 1);
  free(events);
  CHECK(!cnn_record_reset(SIZE_MAX) && cnn_record_reset(0));
  CHECK(cnn_record_events(p, &events, &n, &lost) && n == 0);
  free(events);
  CHECK(cnn_record_switch(CNN_RECORD_OFF) == CNN_RECORD_STAMPS && !cnn_record_on());
  a = cnn_pool_alloc(p, 1, 0, NULL);
  CHECK(a->serial == 0 && a->origin == 0); // a used slot's stamps are gone
  cnn_pool_free(p, a);
  cnn_pool_destroy(p);
}

static void check_origins(void) {
  char text[32];
  uint16_t first = cnn_origin_of("origin 0");
  CHECK(first != 0 && cnn_origin_of("") == 0 && strcmp(cnn_origin_text(0), "") == 0);
  uint16_t last = first;
  for (int i = 1; i < 70000; i++) {
    snprintf(text, sizeof text, "origin %d", i);
    uint16_t n = cnn_origin_of(text);
    if (n == 0) break;
    last = n;
  }
  CHECK(last == 65535 && cnn_origin_of("one more") == 0);
  CHECK(cnn_origin_of("origin 0") == first);
  CHECK(strcmp(cnn_origin_text(first), "origin 0") == 0);
  snprintf(text, sizeof text, "origin %d", last - first);
  CHECK(cnn_origin_of(text) == last && strcmp(cnn_origin_text(last), text) == 0);
}

// --- Threads and forks
// ----------------------------------------------------------------------------

static cnn_pool *shared;

static void *work(void *arg) {
  cnn_block *kept[16] = {NULL};
  unsigned r = (unsigned)(uintptr_t)arg;
  for (int i = 0; i < 4000; i++) {
    r = r * 1664525u + 1013904223u;
    int k = (int)(r >> 28);
    if (kept[k])
      drop(shared, kept[k]), kept[k] = NULL;
    else
      kept[k] = make(shared, 1 + (r >> 8) % 300000, (uint8_t)(r >> 29), k & 1 ? "t:1" : "t:2");
  }
  for (int k = 0; k < 16; k++)
    if (kept[k]) drop(shared, kept[k]);
  return NULL;
}

// The pieces lie end to end, blocks inside of their beds.
static bool pieces_fit(const cnn_piece *list, size_t n, size_t *used) {
  uintptr_t end = 0, bed_end = 0, inside = 0;
  *used = 0;
  for (size_t i = 0; i < n; i++) {
    const cnn_piece *p = &list[i];
    if (p->what >= CNN_PIECE_LARGE) *used += p->block.size;
    if (p->what == CNN_PIECE_SMALL) {
      if (p->at < inside || p->at + p->bytes > bed_end) return false;
      inside = p->at + p->bytes;
      continue;
    }
    if (p->at < end) return false;
    end = p->at + p->bytes;
    if (p->what == CNN_PIECE_BED) inside = p->at, bed_end = end;
  }
  return true;
}

static void check_threads(void) {
  pthread_t threads[3];
  cnn_piece *pieces;
  cnn_event *events;
  size_t n, used = 0;
  uint64_t lost;
  bool fit = true;
  shared = cnn_pool_create(&cnn_cpu_mapper);
  CHECK(cnn_record_reset(1000));
  cnn_record_switch(CNN_RECORD_EVENTS);
  for (uintptr_t i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
  for (int i = 0; i < 50; i++) {
    fit = cnn_record_pieces(shared, &pieces, &n) && pieces_fit(pieces, n, &used) && fit;
    free(pieces);
    fit = cnn_record_events(shared, &events, &n, &lost) && n <= 1000 && fit;
    free(events);
  }
  pid_t child = fork();
  if (child == 0) {
    alarm(20);
    cnn_block *b = make(shared, 100, 0, "child");
    drop(shared, b);
    // Not by exiting: TSan would miss the threads that a child does not have.
    raise(SIGTERM);
  }
  int status = 1;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  CHECK(fit);
  cnn_block *b = make(shared, 5000, 1, "last"), *c = make(shared, 5000000, 2, "last");
  CHECK(cnn_record_pieces(shared, &pieces, &n) && pieces_fit(pieces, n, &used));
  CHECK(used == b->size + c->size && (int64_t)used == cnn_pool_live(shared));
  free(pieces);
  drop(shared, b);
  drop(shared, c);
  cnn_record_switch(CNN_RECORD_OFF);
  CHECK(cnn_record_reset(0));
  cnn_pool_destroy(shared);
}

int main(void) {
  check_ring();
  check_threads();
  check_origins();
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
