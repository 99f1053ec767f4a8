// SPDX-License-Identifier: MIT
// cuBLASLt, cuDNN and NVRTC as a device has them: engines are made at their first use. Without one
// own kernels compute, and cnn.cuda.libraries() says why. What is missing stays so; what failed for
// want of memory is tried again by the next call.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blaslt.h"
#include "dnn.h"
#include "plugin.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// With CNN_CUDA_LIBRARIES=none own kernels compute, which tells whose fault one sees.
static bool wanted(cuda_library *l) {
  const char *which = getenv("CNN_CUDA_LIBRARIES");
  if (!which || strcmp(which, "none") != 0) return true;
  snprintf(l->why.text, sizeof l->why.text, "CNN_CUDA_LIBRARIES=none");
  return false;
}

static cuda_answer make_blas(cuda_library *l) {
  return cuda_blas_create(&l->blas, &l->why);
}
static cuda_answer make_dnn(cuda_library *l) {
  return cuda_dnn_create(&l->dnn, NULL, &l->why);
}

static void obtain(cuda_library *l, cuda_answer (*make)(cuda_library *)) {
  if (__atomic_load_n(&l->settled, __ATOMIC_ACQUIRE)) return;
  pthread_mutex_lock(&lock);
  if (!l->settled) {
    cuda_answer answer = wanted(l) ? make(l) : CUDA_REFUSED;
    __atomic_store_n(&l->settled, answer != CUDA_FAILED, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
}

struct cuda_blas *cuda_blas_of(const cnn_call *call) {
  cuda_library *l = &cuda_device_at(call->device.index)->cublaslt;
  obtain(l, make_blas);
  return l->blas;
}

struct cuda_dnn *cuda_dnn_of(const cnn_call *call) {
  cuda_library *l = &cuda_device_at(call->device.index)->cudnn;
  obtain(l, make_dnn);
  return l->dnn;
}

void cuda_libraries_close(cuda_device *d) {
  pthread_mutex_lock(&lock);
  cuda_blas_destroy(d->cublaslt.blas);
  cuda_dnn_destroy(d->cudnn.dnn);
  d->cublaslt = d->cudnn = (cuda_library){.settled = false};
  pthread_mutex_unlock(&lock);
}

// A version that is written as major * 10000 + minor * 100 + patch.
static void say_version(cnn_device_library *out, size_t version) {
  snprintf(out->text, sizeof out->text, "%zu.%zu.%zu", version / 10000, version / 100 % 100,
           version % 100);
}

static void describe(cnn_device_library *out, const char *name, const cuda_library *l,
                     size_t version) {
  out->name = name;
  out->used = l->blas || l->dnn;
  if (out->used)
    say_version(out, version);
  else
    snprintf(out->text, sizeof out->text, "%s", l->why.text);
}

static cnn_status describe_all(cnn_context *ctx, int index,
                               cnn_device_library out[CNN_DEVICE_LIBRARIES]) {
  cuda_device *d = cuda_enter(ctx, index);
  if (!d) return ctx->code;
  int major = 0, minor = 0;
  obtain(&d->cublaslt, make_blas);
  obtain(&d->cudnn, make_dnn);
  pthread_mutex_lock(&lock);
  describe(&out[0], "cublaslt", &d->cublaslt, d->cublaslt.blas ? cuda_blas_version() : 0);
  describe(&out[1], "cudnn", &d->cudnn, d->cudnn.dnn ? cuda_dnn_version() : 0);
  pthread_mutex_unlock(&lock);
  out[2].name = "nvrtc";
  out[2].used = cuda_nvrtc_version(&major, &minor, out[2].text, sizeof out[2].text);
  if (out[2].used) snprintf(out[2].text, sizeof out[2].text, "%d.%d", major, minor);
  return CNN_OK;
}

void cuda_libraries_fill(cnn_driver *driver) {
  driver->libraries = describe_all;
}
