// SPDX-License-Identifier: MIT
// Devices other than the CPU: their plugin is opened by the first call that names one.
//
// A GPU is used through the table that its plugin fills (engine/driver.h). Everything that a user
// can name as a device passes cnn_device_ready first, so that whoever holds a device's tensor may
// take its driver for granted.
#ifndef CNN_ENGINE_DEVICE_H
#define CNN_ENGINE_DEVICE_H

#include "engine/driver.h"
#include "tensor/tensor.h"

// Whether the device is there, its plugin opened if need be. CNN_DEVICE, with the reason: no
// plugin, no driver, no such GPU.
cnn_status cnn_device_ready(cnn_context *ctx, cnn_device device);

// The driver of GPUs, opened if need be; NULL, with the reason in *why (static storage), when they
// can't be used.
const cnn_driver *cnn_cuda_driver(const char **why);
// The driver that is open already, or NULL.
const cnn_driver *cnn_cuda_open(void);

// Opens a plugin at `path` as the driver of GPUs; an error when there is one already.
cnn_status cnn_cuda_load(cnn_context *ctx, const char *path);

// Gives up all GPUs: waits for them, and drops their contexts with all that is theirs. CNN_STATE
// when tensors lie there, unless `force`: their bytes are lost then. An error that kernels have
// reported is raised, and nothing happens, unless `force`. The next use of a GPU starts afresh.
cnn_status cnn_cuda_shutdown(cnn_context *ctx, bool force);
// How often that was done: handles of streams and events from before are of no use.
unsigned cnn_cuda_shutdowns(void);

// Waits until the device has done all that was asked of it, and raises what its kernels reported.
cnn_status cnn_device_synchronize(cnn_context *ctx, cnn_device device);

// The bytes of `from`, which lies densely, to `to`, which has the same form on another device.
cnn_status cnn_device_move(cnn_context *ctx, const cnn_view *to, cnn_device to_device,
                           const cnn_view *from, cnn_device from_device, bool non_blocking);

#endif
