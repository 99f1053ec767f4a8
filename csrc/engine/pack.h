// SPDX-License-Identifier: MIT
// Packing: what the tape saves for backward is put elsewhere meanwhile.
//
// A context may have a packer (ctx->packer). Nodes made while it is set hand it every tensor that
// they save but leaves (parameters, data: their owners hold them anyway), views of leaves, and what
// is too small to be worth it. A result is saved before its kernel has run, so packing has two
// parts: `reserve` makes room, and may fail, before anything changed; `fill` moves the contents.
// Backward reads a packed tensor where it lies, or brings it back to the device it came from.
// A packed tensor is a copy: changing the original in place after that does no harm.
#ifndef CNN_ENGINE_PACK_H
#define CNN_ENGINE_PACK_H

#include "memory/file_store.h"
#include "tensor/tensor.h"

typedef struct cnn_packer cnn_packer;
struct cnn_packer {
  cnn_object object;
  // Room for the `bytes` of t from its lowest element to its highest.
  cnn_status (*reserve)(cnn_packer *p, cnn_context *ctx, const cnn_tensor *t, size_t bytes,
                        cnn_buffer **out);
  // Copies them to the buffer that `packed` lies in. Never fails where t is on the CPU.
  cnn_status (*fill)(cnn_packer *p, cnn_context *ctx, cnn_tensor *packed, const cnn_tensor *t);
};

// The built-in packer. Tensors of the CPU go to a file (memory/file_store.h; `path` as there), made
// with the first of them; those of other devices to the CPU.
cnn_status cnn_packer_create(cnn_context *ctx, const char *path, cnn_packer **out);

// Whether the packer takes t, a result of the op being recorded or one of its inputs.
bool cnn_packs(const cnn_context *ctx, const cnn_tensor *t, bool result);

// t packed: a new reference. `filled`: t has its contents, which are copied at once; else
// cnn_pack_fill does that later. A tensor that several nodes save is packed once.
cnn_status cnn_pack(cnn_context *ctx, cnn_tensor *t, bool filled, cnn_tensor **out);
cnn_status cnn_pack_fill(cnn_context *ctx, cnn_tensor *packed, cnn_tensor *t);

// A packed tensor on `device` again: a new reference.
cnn_status cnn_unpack(cnn_context *ctx, cnn_tensor *packed, cnn_device device, cnn_tensor **out);

#endif
