// SPDX-License-Identifier: MIT
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

enum { BUFFER = 1 << 20 };

cnn_status cnn_file_fail(cnn_context *ctx, const char *path, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  // What a hostile file says must not steer a terminal.
  for (char *p = text; *p; p++)
    if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
  return cnn_fail(ctx, CNN_IO, "%s: %s", path, text);
}

// --- Reading ------------------------------------------------------------------------------------

static void mapping_destroy(cnn_object *o) {
  cnn_mapping *m = (cnn_mapping *)o;
  munmap(m->data, m->bytes);
  cnn_free(m);
}

static const cnn_class mapping_class = {"mapping", mapping_destroy};

static cnn_status map_descriptor(cnn_context *ctx, const char *path, int fd, cnn_mapping **out) {
  struct stat info;
  if (fstat(fd, &info) != 0) return cnn_file_fail(ctx, path, "%s", strerror(errno));
  if (S_ISDIR(info.st_mode)) return cnn_file_fail(ctx, path, "it is a folder");
  if (!S_ISREG(info.st_mode)) return cnn_file_fail(ctx, path, "it is no regular file");
  if (info.st_size == 0) return cnn_file_fail(ctx, path, "the file is empty");
  cnn_mapping *m = cnn_malloc(sizeof *m);
  if (!m) return cnn_fail(ctx, CNN_OOM, "out of memory while opening %s", path);
  cnn_object_init(&m->object, &mapping_class);
  m->bytes = (size_t)info.st_size;
  void *data = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
  if (data == MAP_FAILED) {
    int error = errno;
    cnn_free(m);
    if (error == ENOMEM) return cnn_fail(ctx, CNN_OOM, "no room to map %s", path);
    return cnn_file_fail(ctx, path, "%s", strerror(error));
  }
  m->data = data;
  *out = m;
  return CNN_OK;
}

cnn_status cnn_file_map(cnn_context *ctx, const char *path, cnn_mapping **out) {
  // Not to be stopped by a pipe that nobody writes to.
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return cnn_file_fail(ctx, path, "%s", strerror(errno));
  cnn_status status = map_descriptor(ctx, path, fd, out);
  close(fd);
  return status;
}

static void mapping_release(void *owner) {
  cnn_unref(owner);
}

cnn_status cnn_mapping_tensor(cnn_context *ctx, cnn_mapping *mapping, size_t at,
                              const cnn_meta *meta, bool copy, cnn_tensor **out) {
  size_t size = cnn_dtype_size(meta->dtype);
  size_t bytes = (size_t)cnn_shape_numel(meta->ndim, meta->shape) * size;
  char *data = mapping->data + at;
  if (copy || bytes == 0 || (uintptr_t)data % size != 0) {
    CNN_TRY(cnn_tensor_empty(ctx, meta, out));
    if (bytes > 0) memcpy(cnn_data(*out), data, bytes);
    return CNN_OK;
  }
  cnn_buffer *buffer;
  CNN_TRY(cnn_buffer_wrap(ctx, meta->device, data, bytes, mapping_release, mapping, &buffer));
  cnn_ref(mapping);
  cnn_status status = cnn_tensor_on(ctx, buffer, meta, 0, out);
  cnn_unref(buffer);
  return status;
}

void cnn_swap_bytes(void *data, size_t bytes, size_t size) {
  char *p = data;
  for (size_t i = 0; i < bytes && size > 1; i += size)
    for (size_t k = 0; k < size / 2; k++) {
      char c = p[i + k];
      p[i + k] = p[i + size - 1 - k];
      p[i + size - 1 - k] = c;
    }
}

// --- Writing ------------------------------------------------------------------------------------

static void close_writer(cnn_writer *w) {
  if (w->descriptor >= 0) close(w->descriptor);
  w->descriptor = -1;
  cnn_free(w->path);
  cnn_free(w->temporary);
  cnn_free(w->buffer);
  w->path = w->temporary = w->buffer = NULL;
}

void cnn_writer_abandon(cnn_writer *w) {
  if (w->temporary) unlink(w->temporary);
  close_writer(w);
}

// A new file in the folder of w->path. Its name says whose it is, should the process die.
static int create_beside(cnn_writer *w, size_t size) {
  static atomic_uint counter;
  const char *slash = strrchr(w->path, '/');
  int folder = slash ? (int)(slash - w->path) + 1 : 0;
  for (int attempt = 0; attempt < 100; attempt++) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(w->temporary, size, "%.*s.cnn-%lx-%lx-%x.tmp", folder, w->path, (long)getpid(),
             now.tv_nsec, atomic_fetch_add(&counter, 1));
    int fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

cnn_status cnn_writer_open(cnn_context *ctx, const char *path, cnn_writer *w) {
  struct stat info;
  char resolved[PATH_MAX];
  memset(w, 0, sizeof *w);
  w->descriptor = -1;
  bool exists = stat(path, &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return cnn_file_fail(ctx, path, "it is a folder");
  if (exists && !S_ISREG(info.st_mode))
    return cnn_file_fail(ctx, path, "it exists and is no regular file");
  // A missing file's name is taken as it is: a link to nowhere is replaced.
  const char *target = exists ? realpath(path, resolved) : path;
  if (!target) return cnn_file_fail(ctx, path, "%s", strerror(errno));
  size_t length = strlen(target), size = length + 64;
  w->path = cnn_malloc(length + 1);
  w->temporary = cnn_malloc(size);
  w->buffer = cnn_malloc(BUFFER);
  if (!w->path || !w->temporary || !w->buffer) {
    close_writer(w);
    return cnn_fail(ctx, CNN_OOM, "out of memory while writing %s", path);
  }
  memcpy(w->path, target, length + 1);
  w->descriptor = create_beside(w, size);
  if (w->descriptor < 0) {
    int error = errno;
    close_writer(w);
    return cnn_file_fail(ctx, path, "can't write into its folder: %s", strerror(error));
  }
  // Best effort: on a file system without permissions this fails and nothing is lost.
  if (exists && fchmod(w->descriptor, info.st_mode & 07777) != 0) errno = 0;
  return CNN_OK;
}

static cnn_status write_all(cnn_context *ctx, cnn_writer *w, const char *data, size_t bytes) {
  while (bytes > 0) {
    // One call writes at most about 2 GiB.
    ssize_t n = write(w->descriptor, data, bytes < 1 << 30 ? bytes : 1 << 30);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return cnn_file_fail(ctx, w->path, "%s", strerror(n < 0 ? errno : ENOSPC));
    data += n;
    bytes -= (size_t)n;
  }
  return CNN_OK;
}

static cnn_status flush(cnn_context *ctx, cnn_writer *w) {
  size_t n = w->used;
  w->used = 0;
  return write_all(ctx, w, w->buffer, n);
}

cnn_status cnn_writer_put(cnn_context *ctx, cnn_writer *w, const void *data, size_t bytes) {
  if (bytes == 0) return CNN_OK;
  w->bytes += bytes;
  if (w->seen) w->seen(w->arg, data, bytes);
  if (w->counting) return CNN_OK;
  bool large = bytes >= BUFFER / 4;
  if (large || w->used + bytes > BUFFER) CNN_TRY(flush(ctx, w));
  if (large) return write_all(ctx, w, data, bytes);
  memcpy(w->buffer + w->used, data, bytes);
  w->used += bytes;
  return CNN_OK;
}

// Copies n elements that lie `stride` elements apart.
static void copy_run(size_t size, int64_t n, const char *from, int64_t stride, char *to) {
  if (stride == 1) {
    memcpy(to, from, (size_t)n * size);
    return;
  }
  for (int64_t i = 0; i < n; i++)
    memcpy(to + i * (int64_t)size, from + i * stride * (int64_t)size, size);
}

// Row by row of the last dim, in row-major order.
static cnn_status put_strided(cnn_context *ctx, cnn_writer *w, const cnn_tensor *t) {
  enum { PIECE = 8192 };
  char piece[PIECE * 8];
  int last = t->ndim - 1;
  int64_t index[CNN_MAX_DIMS] = {0}, used = 0;
  size_t size = cnn_dtype_size((cnn_dtype)t->dtype);
  for (;;) {
    const char *row = cnn_element_at(t, index);
    for (int64_t at = 0; at < t->shape[last];) {
      int64_t room = PIECE - used, left = t->shape[last] - at, n = left < room ? left : room;
      copy_run(size, n, row + at * t->strides[last] * (int64_t)size, t->strides[last],
               piece + used * (int64_t)size);
      at += n;
      used += n;
      if (used < PIECE) continue;
      CNN_TRY(cnn_writer_put(ctx, w, piece, sizeof piece / 8 * size));
      used = 0;
    }
    int d = last - 1;
    for (; d >= 0 && ++index[d] == t->shape[d]; d--) index[d] = 0;
    if (d < 0) break;
  }
  return cnn_writer_put(ctx, w, piece, (size_t)used * size);
}

cnn_status cnn_writer_put_tensor(cnn_context *ctx, cnn_writer *w, const cnn_tensor *t) {
  int64_t n = cnn_numel(t);
  if (n == 0) return CNN_OK;
  CNN_TRY(cnn_buffer_settle(ctx, t->buffer));
  if (!cnn_is_contiguous(t)) return put_strided(ctx, w, t);
  return cnn_writer_put(ctx, w, cnn_data(t), (size_t)n * cnn_dtype_size((cnn_dtype)t->dtype));
}

// The rename is on the disk when its folder is.
static void sync_folder(const char *path) {
  char folder[PATH_MAX];
  const char *slash = strrchr(path, '/');
  size_t n = slash ? (size_t)(slash - path) : 0;
  if (n >= sizeof folder) return;
  memcpy(folder, path, n);
  folder[n] = '\0';
  int fd = open(slash ? n ? folder : "/" : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

cnn_status cnn_writer_commit(cnn_context *ctx, cnn_writer *w) {
  cnn_status status = flush(ctx, w);
  if (status == CNN_OK && fsync(w->descriptor) != 0 && errno != EINVAL && errno != ENOSYS)
    status = cnn_file_fail(ctx, w->path, "%s", strerror(errno));
  if (status == CNN_OK) {
    int fd = w->descriptor;
    w->descriptor = -1;
    // Some file systems report a failed write only here.
    if (close(fd) != 0 && errno != EINTR)
      status = cnn_file_fail(ctx, w->path, "%s", strerror(errno));
  }
  if (status == CNN_OK && rename(w->temporary, w->path) != 0)
    status = cnn_file_fail(ctx, w->path, "%s", strerror(errno));
  if (status == CNN_OK) {
    sync_folder(w->path);
    cnn_free(w->temporary);
    w->temporary = NULL;
  }
  cnn_writer_abandon(w);
  return status;
}
