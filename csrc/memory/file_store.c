// SPDX-License-Identifier: MIT
#include "memory/file_store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

#define PATH_BYTES 1024

struct cnn_file_store {
  cnn_object object;
  int descriptor;
  size_t page;
  pthread_mutex_t lock; // buffers are freed by any thread
  off_t end;            // the next range begins here
  char path[PATH_BYTES];
};

typedef struct range {
  cnn_file_store *store;
  void *data;
  size_t bytes;
  off_t at;
} range;

static void destroy(cnn_object *o) {
  cnn_file_store *s = (cnn_file_store *)o;
  close(s->descriptor);
  pthread_mutex_destroy(&s->lock);
  cnn_free(s);
}

static const cnn_class store_class = {"file store", destroy};

static bool is_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

// Opens a file that nobody else has and takes its name away. `path` is where it was.
static int open_unnamed(const char *wanted, char *path) {
  const char *folder = wanted;
  if (!folder) folder = getenv("TMPDIR");
  if (!folder || !*folder) folder = "/tmp";
  bool inside = !wanted || is_folder(folder);
  int n = snprintf(path, PATH_BYTES, inside ? "%s/cnn-XXXXXX" : "%s", folder);
  if (n < 0 || n >= PATH_BYTES) {
    errno = ENAMETOOLONG;
    return -1;
  }
  int fd = inside ? mkostemp(path, O_CLOEXEC)
                  : open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd >= 0) unlink(path);
  if (inside) snprintf(path, PATH_BYTES, "%s", folder);
  return fd;
}

cnn_status cnn_file_store_create(cnn_context *ctx, const char *path, cnn_file_store **out) {
  cnn_file_store *s = cnn_calloc(sizeof *s);
  if (!s) return cnn_fail(ctx, CNN_OOM, "out of memory for a file of saved tensors");
  s->descriptor = open_unnamed(path, s->path);
  if (s->descriptor < 0) {
    cnn_status status = cnn_fail(ctx, CNN_IO, "save_on_cpu: can't make a file in %s: %s",
                                 s->path[0] ? s->path : path, strerror(errno));
    cnn_free(s);
    return status;
  }
  cnn_object_init(&s->object, &store_class);
  s->page = (size_t)sysconf(_SC_PAGESIZE);
  pthread_mutex_init(&s->lock, NULL);
  *out = s;
  return CNN_OK;
}

// Space for a range, from the file system itself; an errno value.
static int reserve(int fd, off_t at, size_t bytes) {
  int error;
  if (cnn_fault_hit()) return ENOSPC;
  do error = posix_fallocate(fd, at, (off_t)bytes);
  while (error == EINTR);
  if (error != EOPNOTSUPP && error != EINVAL && error != ENOSYS) return error;
  // A file system that can't: what is written has space.
  static const char zeros[1 << 16];
  for (size_t done = 0; done < bytes;) {
    size_t n = bytes - done < sizeof zeros ? bytes - done : sizeof zeros;
    ssize_t wrote = pwrite(fd, zeros, n, at + (off_t)done);
    if (wrote < 0 && errno != EINTR) return errno;
    if (wrote > 0) done += (size_t)wrote;
  }
  return 0;
}

// Gives a range's space back to the file system, where it can take it, else when the file ends.
static void give_back(cnn_file_store *s, off_t at, size_t bytes) {
#ifdef FALLOC_FL_PUNCH_HOLE
  (void)!fallocate(s->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, (off_t)bytes);
#endif
  pthread_mutex_lock(&s->lock);
  if (at + (off_t)bytes == s->end) s->end = at;
  pthread_mutex_unlock(&s->lock);
}

static void release(void *owner) {
  range *r = owner;
  munmap(r->data, r->bytes);
  give_back(r->store, r->at, r->bytes);
  cnn_unref(r->store);
  cnn_free(r);
}

static cnn_status no_room(cnn_context *ctx, const cnn_file_store *s, size_t bytes, int error) {
  return cnn_fail(ctx, CNN_OOM,
                  "save_on_cpu: out of memory: no room for %.1f MiB of saved tensors in %s: %s; "
                  "name a folder on a larger disk by {file = ...}, or use a smaller batch",
                  (double)bytes * 0x1p-20, s->path, strerror(error));
}

cnn_status cnn_file_store_buffer(cnn_context *ctx, cnn_file_store *s, size_t bytes,
                                 cnn_buffer **out) {
  size_t rounded = (bytes + s->page - 1) / s->page * s->page;
  range *r = cnn_malloc(sizeof *r);
  if (!r) return cnn_fail(ctx, CNN_OOM, "out of memory for a file of saved tensors");
  pthread_mutex_lock(&s->lock);
  off_t at = s->end;
  s->end += (off_t)rounded;
  pthread_mutex_unlock(&s->lock);
  int error = reserve(s->descriptor, at, rounded);
  void *data = MAP_FAILED;
  if (error == 0) {
    data = mmap(NULL, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, s->descriptor, at);
    if (data == MAP_FAILED) error = errno;
  }
  if (error != 0) {
    give_back(s, at, rounded);
    cnn_free(r);
    return no_room(ctx, s, bytes, error);
  }
  *r = (range){cnn_ref(s), data, rounded, at};
  cnn_device cpu = {CNN_CPU, 0};
  cnn_status status = cnn_buffer_wrap(ctx, cpu, data, bytes, release, r, out);
  if (status != CNN_OK) release(r);
  return status;
}

void cnn_file_store_write(cnn_buffer *buffer, const void *data, size_t bytes) {
  const range *r = buffer->owner;
  // By the file first: pages that are not looked at stay out of the process.
  size_t done = 0;
  while (done < bytes) {
    ssize_t n =
        pwrite(r->store->descriptor, (const char *)data + done, bytes - done, r->at + (off_t)done);
    if (n <= 0) break;
    done += (size_t)n;
  }
  memcpy((char *)r->data + done, (const char *)data + done, bytes - done);
}
