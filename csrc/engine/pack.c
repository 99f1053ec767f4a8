// SPDX-License-Identifier: MIT
// A buffer remembers what was packed of it last (its parcel), so that the result of one node that
// is the input of the next lies in the file once. Bytes are packed as the span from the first to
// the last element that the tensor names: strides stay as they are.
#include "engine/pack.h"

#include "base/alloc.h"
#include "engine/dispatch.h"
#include "engine/registry.h"
#include "memory/simulation.h"

// Less than a page stays where it is.
#define SMALLEST 4096

typedef struct parcel {
  cnn_object object;
  unsigned version;     // of the buffer that it is a copy of
  int64_t begin, bytes; // of the span in that buffer
  cnn_buffer *buffer;
} parcel;

static void destroy_parcel(cnn_object *o) {
  parcel *p = (parcel *)o;
  cnn_unref(p->buffer);
  cnn_free(p);
}

static const cnn_class parcel_class = {"parcel", destroy_parcel};

typedef struct span {
  int64_t first, begin, bytes; // of the first element, of the lowest: bytes from the buffer's start
} span;

static span span_of(const cnn_tensor *t) {
  int64_t size = (int64_t)cnn_dtype_size((cnn_dtype)t->dtype), low = 0, high = 0;
  if (cnn_numel(t) == 0) return (span){0, 0, 0};
  for (int i = 0; i < t->ndim; i++) {
    int64_t reach = (t->shape[i] - 1) * t->strides[i];
    *(reach < 0 ? &low : &high) += reach;
  }
  return (span){t->offset * size, (t->offset + low) * size, (high - low + 1) * size};
}

static bool is_owned(const cnn_tensor *t) {
  return (t->flags & (CNN_REQUIRES_GRAD | CNN_PARAMETER)) && !t->grad_fn;
}

bool cnn_packs(const cnn_context *ctx, const cnn_tensor *t, bool result) {
  if (!ctx->packer || ctx->replaying) return false;
  if (t->buffer->kind == CNN_KIND_PARAMETER || t->buffer->kind == CNN_KIND_BUFFER) return false;
  if (is_owned(t) || (t->base && is_owned(t->base))) return false;
  if (!result && !t->grad_fn && t->buffer->kind != CNN_KIND_ACTIVATION) return false;
  return span_of(t).bytes >= SMALLEST;
}

// A tensor like t over the bytes of its span.
static cnn_status on_span(cnn_context *ctx, cnn_buffer *buffer, const cnn_tensor *t,
                          cnn_tensor **out) {
  cnn_meta meta;
  span s = span_of(t);
  cnn_meta_of(t, &meta);
  meta.device = buffer->device;
  return cnn_tensor_on(ctx, buffer, &meta,
                       (s.first - s.begin) / (int64_t)cnn_dtype_size(meta.dtype), out);
}

static bool fits(const parcel *p, const cnn_tensor *t) {
  span s = span_of(t);
  return p->version == cnn_buffer_version(t->buffer) && p->begin == s.begin && p->bytes == s.bytes;
}

// Makes the packed bytes known to whoever saves t next. It is only a saving: no memory, no parcel.
static void remember(cnn_tensor *t, cnn_buffer *packed) {
  parcel *p = cnn_malloc(sizeof *p);
  if (!p) return;
  span s = span_of(t);
  cnn_object_init(&p->object, &parcel_class);
  p->version = cnn_buffer_version(t->buffer);
  p->begin = s.begin;
  p->bytes = s.bytes;
  p->buffer = cnn_ref(packed);
  cnn_unref(t->buffer->parcel);
  t->buffer->parcel = p;
}

cnn_status cnn_pack_fill(cnn_context *ctx, cnn_tensor *packed, cnn_tensor *t) {
  cnn_packer *p = ctx->packer;
  CNN_TRY(p->fill(p, ctx, packed, t));
  remember(t, packed->buffer);
  return CNN_OK;
}

cnn_status cnn_pack(cnn_context *ctx, cnn_tensor *t, bool filled, cnn_tensor **out) {
  cnn_packer *p = ctx->packer;
  const parcel *known = t->buffer->parcel;
  if (filled && known && fits(known, t)) return on_span(ctx, known->buffer, t, out);
  cnn_buffer *buffer;
  CNN_TRY(p->reserve(p, ctx, t, (size_t)span_of(t).bytes, &buffer));
  cnn_status status = on_span(ctx, buffer, t, out);
  cnn_unref(buffer);
  if (status != CNN_OK || !filled) return status;
  status = cnn_pack_fill(ctx, *out, t);
  if (status != CNN_OK) {
    cnn_unref(*out);
    *out = NULL;
  }
  return status;
}

// What was packed from a GPU comes back as a copy, which a simulation of one counts.
static bool simulates_return(const cnn_context *ctx, const cnn_tensor *packed) {
  return ctx->simulation && packed->device.type == CNN_META && packed->buffer->bytes > 0 &&
         !cnn_is_simulated(packed->buffer) &&
         cnn_simulation_target(ctx->simulation).type == CNN_CUDA;
}

cnn_status cnn_unpack(cnn_context *ctx, cnn_tensor *packed, cnn_device device, cnn_tensor **out) {
  bool same = cnn_device_equal(packed->device, device);
  if (same && !simulates_return(ctx, packed)) {
    *out = cnn_ref(packed);
    return CNN_OK;
  }
  cnn_results r;
  bool grad_enabled = ctx->grad_enabled;
  ctx->grad_enabled = false;
  cnn_status status =
      same ? cnn_dispatch(ctx, cnn_ops_of_engine()->clone, CNN_ARGS(CNN_A_T(packed)), &r)
           : cnn_dispatch(ctx, cnn_ops_of_engine()->to_device,
                          CNN_ARGS(CNN_A_T(packed), CNN_A_DEVICE(device)), &r);
  ctx->grad_enabled = grad_enabled;
  CNN_TRY(status);
  *out = cnn_ref(r.t[0]);
  cnn_results_free(&r);
  return CNN_OK;
}

// ---------------------------------------------------------------------------------------------
// The built-in packer

typedef struct parking {
  cnn_packer packer;
  cnn_file_store *store; // NULL until the first tensor of the CPU comes
} parking;

static void destroy_parking(cnn_object *o) {
  cnn_unref(((parking *)o)->store);
  cnn_free(o);
}

static const cnn_class parking_class = {"packer", destroy_parking};

static cnn_status reserve(cnn_packer *p, cnn_context *ctx, const cnn_tensor *t, size_t bytes,
                          cnn_buffer **out) {
  parking *k = (parking *)p;
  cnn_device cpu = {CNN_CPU, 0};
  if (t->device.type == CNN_META) // nothing to move: what is packed is no longer counted
    return cnn_buffer_wrap(ctx, t->device, NULL, bytes, NULL, NULL, out);
  if (t->device.type != CNN_CPU) return cnn_buffer_create(ctx, cpu, bytes, out);
  if (!k->store) CNN_TRY(cnn_file_store_create(ctx, NULL, &k->store));
  return cnn_file_store_buffer(ctx, k->store, bytes, out);
}

static cnn_status fill(cnn_packer *p, cnn_context *ctx, cnn_tensor *packed, const cnn_tensor *t) {
  (void)p;
  span s = span_of(t);
  if (t->device.type == CNN_META) return CNN_OK;
  const char *from = (const char *)t->buffer->data + s.begin;
  if (t->device.type == CNN_CPU) {
    cnn_file_store_write(packed->buffer, from, (size_t)s.bytes);
    return CNN_OK;
  }
  const cnn_backend *backend = cnn_backend_of((cnn_device_type)t->device.type);
  return backend->copy(ctx, packed->buffer->data, packed->device, from, t->device, (size_t)s.bytes,
                       false);
}

cnn_status cnn_packer_create(cnn_context *ctx, const char *path, cnn_packer **out) {
  parking *k = cnn_calloc(sizeof *k);
  if (!k) return cnn_fail(ctx, CNN_OOM, "out of memory for save_on_cpu");
  cnn_object_init(&k->packer.object, &parking_class);
  k->packer.reserve = reserve;
  k->packer.fill = fill;
  cnn_status status = path ? cnn_file_store_create(ctx, path, &k->store) : CNN_OK;
  if (status != CNN_OK) {
    cnn_free(k);
    return status;
  }
  *out = &k->packer;
  return CNN_OK;
}
