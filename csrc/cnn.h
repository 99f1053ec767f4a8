// SPDX-License-Identifier: MIT
// The public interface of the core, for hosts that use it without Lua. examples/embed/main.c is a
// whole program.
//
// A host calls cnn_init() once, makes a context per thread, runs ops by cnn_dispatch or in frames
// (engine/op.h), modules by cnn_module_call, backward by cnn_backward, steps by cnn_optimizer_step,
// and reads and writes files by cnn_safetensors_load and _save. Every function that can fail
// returns a cnn_status and leaves its reason in context->message. What a function creates is given
// back with cnn_unref.
#ifndef CNN_CNN_H
#define CNN_CNN_H

#include "base/context.h"
#include "engine/backward.h"
#include "engine/dispatch.h"
#include "io/safetensors.h"
#include "nn/module.h"
#include "ops/ops.h"
#include "optim/optimizer.h"
#include "tensor/tensor.h"

#define CNN_VERSION "0.1.0"

// Installs ops and backends, once per process. NULL, or what is wrong.
const char *cnn_init(void);

// A context with the defaults: float32, cpu, gradients on, a seed from the clock.
void cnn_context_init(cnn_context *ctx);

#endif
