// SPDX-License-Identifier: MIT
// Convolutions. Weights are always `any`: with plain weights oneDNN falls to its reference loops on
// channels-last tensors. Channels-last activations are taken as they lie. Plain NCHW activations
// are computed in the layout that inner_layout picks, most often oneDNN's blocked one, which
// reaches 1.2 to 5 times the speed of its NCHW kernels; the reorders there and back are part of the
// program.
//
// A program has up to three operands, each with the layout of the caller and the one that the
// primitive chose; where the two differ a reorder runs before (inputs) or after (the output).
#include "dnnl/program.h"

typedef struct operand {
  const char *name;
  int exec_arg, arg; // oneDNN's and the caller's number of it
  bool output;
  dn_md plain; // as the caller's data lie
  dn_md wish;  // what the primitive is asked for
  dnnl_memory_t user, inner;
} operand;

// The operands by role; a direction uses each once, as an input or as the output.
enum { X, W, Y, ROLES };

typedef struct layout {
  int exec_arg, arg;
  bool output;
} layout;

static const layout layouts[3][ROLES] = {
    [CNN_ACCEL_FORWARD] = {[X] = {DNNL_ARG_SRC, 0, false},
                           [W] = {DNNL_ARG_WEIGHTS, 1, false},
                           [Y] = {DNNL_ARG_DST, 3, true}},
    [CNN_ACCEL_BACKWARD_DATA] = {[X] = {DNNL_ARG_DIFF_SRC, 2, true},
                                 [W] = {DNNL_ARG_WEIGHTS, 1, false},
                                 [Y] = {DNNL_ARG_DIFF_DST, 0, false}},
    [CNN_ACCEL_BACKWARD_WEIGHT] = {[X] = {DNNL_ARG_SRC, 0, false},
                                   [W] = {DNNL_ARG_DIFF_WEIGHTS, 2, true},
                                   [Y] = {DNNL_ARG_DIFF_DST, 1, false}},
};

// The layout of the activations inside a program. For callers with NCHW tensors this is measured
// (AVX-512, float32 and bfloat16, oneDNN 2.6; reorders included):
// - A dense 1x1 kernel is one matrix product per image, and the plain layout needs no reorder:
//   0.5 to 0.8 of the blocked time on large images.
// - Channels that do not fill blocks of 16 make the blocked layout compute padding, and send the
//   weight gradient to slower kernels: channels-last takes 0.5 to 0.9 of the time. A forward with
//   few input channels has kernels of its own that read plain x.
// - Everything else, groups and depthwise above all, is fastest blocked.
static dnnl_format_tag_t inner_layout(const cnn_accel_conv *d) {
  if (d->nhwc) return dnnl_nhwc;
  if (d->groups != 1) return dnnl_format_tag_any;
  const bool forward = d->direction == CNN_ACCEL_FORWARD;
  const bool weight = d->direction == CNN_ACCEL_BACKWARD_WEIGHT;
  const bool odd_c = d->c % 16 != 0, odd_k = d->k % 16 != 0;
  if (d->r == 1 && d->s == 1 && !weight && d->p == d->h && d->q == d->w) {
    return odd_c || odd_k || d->h * d->w >= 256 ? dnnl_nchw : dnnl_format_tag_any;
  }
  bool channels_last = odd_c || odd_k;
  if (forward) channels_last = odd_c && d->c > 16;
  if (weight) channels_last = odd_k || (odd_c && d->c > 3);
  return channels_last ? dnnl_nhwc : dnnl_format_tag_any;
}

static dnnl_status_t describe(const cnn_accel_conv *d, dnnl_format_tag_t wish, operand *o) {
  const dnnl_data_type_t type = dn_dtype(d->dtype);
  const dnnl_dims_t x = {d->n, d->c, d->h, d->w}, y = {d->n, d->k, d->p, d->q};
  const dnnl_dims_t w = {d->k, d->c, d->r, d->s};
  const dnnl_dims_t gw = {d->groups, d->k / d->groups, d->c / d->groups, d->r, d->s};
  const dnnl_format_tag_t tag = d->nhwc ? dnnl_nhwc : dnnl_nchw;
  dnnl_status_t s;
  if ((s = dn_md_tag(&o[X].plain, 4, x, type, tag)) != dnnl_success) return s;
  if ((s = dn_md_tag(&o[X].wish, 4, x, type, wish)) != dnnl_success) return s;
  if ((s = dn_md_tag(&o[Y].plain, 4, y, type, tag)) != dnnl_success) return s;
  if ((s = dn_md_tag(&o[Y].wish, 4, y, type, wish)) != dnnl_success) return s;
  const int ndims = d->groups == 1 ? 4 : 5;
  const dnnl_dim_t *dims = d->groups == 1 ? w : gw;
  s = dn_md_tag(&o[W].plain, ndims, dims, type, d->groups == 1 ? dnnl_oihw : dnnl_goihw);
  if (s != dnnl_success) return s;
  return dn_md_tag(&o[W].wish, ndims, dims, type, dnnl_format_tag_any);
}

static dnnl_status_t choose(dnnl_engine_t engine, const cnn_accel_conv *d, const operand *o,
                            dn_cmd bias, const_dnnl_primitive_attr_t attr,
                            dnnl_primitive_desc_t *pd) {
  dn_window window;
  for (int i = 0; i < 2; i++) {
    window.stride[i] = d->stride[i];
    window.dilation[i] = d->dilation[i] - 1;
    window.before[i] = d->pad_before[i];
    window.after[i] = d->pad_after[i];
  }
  switch (d->direction) {
  case CNN_ACCEL_FORWARD:
    return dn_conv_forward_pd(pd, engine, o[X].wish, o[W].wish, bias, o[Y].wish, &window, attr);
  case CNN_ACCEL_BACKWARD_DATA:
    return dn_conv_backward_data_pd(pd, engine, o[X].wish, o[W].wish, o[Y].wish, &window, attr);
  case CNN_ACCEL_BACKWARD_WEIGHT:
    return dn_conv_backward_weight_pd(pd, engine, o[X].wish, o[W].wish, bias, o[Y].wish, &window,
                                      attr);
  }
  return dnnl_invalid_arguments;
}

// Memories of one operand; where the primitive wants another layout, `inner` is a piece of scratch.
static dnnl_status_t place(dn_program *g, dnnl_engine_t engine, const_dnnl_primitive_desc_t pd,
                           operand *o) {
  dn_cmd inner = dn_pd_md(pd, o->exec_arg);
  dnnl_status_t s = dn_add_memory(g, engine, o->plain, o->arg, &o->user);
  o->inner = o->user;
  if (s != dnnl_success || dnnl_memory_desc_equal(o->plain, inner)) return s;
  return dn_add_memory(g, engine, inner, -1, &o->inner);
}

static dnnl_status_t fill(dn_program *g, dnnl_engine_t engine, const_dnnl_primitive_desc_t pd,
                          const_dnnl_primitive_attr_t attr, operand *o, int bias_exec_arg,
                          int bias_arg) {
  dnnl_status_t s;
  dnnl_exec_arg_t args[ROLES + 1];
  int nargs = 0;
  bool reorders = false;
  dn_say(g, dn_pd_impl(pd));
  for (int i = 0; i < ROLES; i++) {
    if ((s = place(g, engine, pd, &o[i])) != dnnl_success) return s;
    args[nargs++] = (dnnl_exec_arg_t){o[i].exec_arg, o[i].inner};
    if (o[i].inner != o[i].user) {
      dn_say(g, reorders ? " " : ", reorders ");
      dn_say(g, o[i].name);
      reorders = true;
    }
  }
  if (bias_exec_arg) {
    args[nargs].arg = bias_exec_arg;
    s = dn_add_memory(g, engine, dn_pd_md(pd, bias_exec_arg), bias_arg, &args[nargs].memory);
    if (s != dnnl_success) return s;
    nargs++;
  }
  for (int i = 0; i < ROLES; i++) {
    if (o[i].output || o[i].user == o[i].inner) continue;
    s = dn_add_reorder(g, engine, attr, o[i].plain, o[i].user, dn_pd_md(pd, o[i].exec_arg),
                       o[i].inner);
    if (s != dnnl_success) return s;
  }
  if ((s = dn_add_step(g, engine, pd, nargs, args)) != dnnl_success) return s;
  for (int i = 0; i < ROLES; i++) {
    if (!o[i].output || o[i].user == o[i].inner) continue;
    s = dn_add_reorder(g, engine, attr, dn_pd_md(pd, o[i].exec_arg), o[i].inner, o[i].plain,
                       o[i].user);
    if (s != dnnl_success) return s;
  }
  return dnnl_success;
}

static dn_status build(dnnl_engine_t engine, const cnn_accel_conv *d, dnnl_format_tag_t wish,
                       dn_program **out) {
  operand o[ROLES] = {[X] = {.name = "x"}, [W] = {.name = "w"}, [Y] = {.name = "y"}};
  dn_md bias = NULL;
  dnnl_primitive_attr_t attr = NULL;
  dnnl_primitive_desc_t pd = NULL;
  dn_program *g = NULL;
  int bias_exec_arg = 0, bias_arg = 0;
  dnnl_status_t s;
  for (int i = 0; i < ROLES; i++) {
    const layout *l = &layouts[d->direction][i];
    o[i].exec_arg = l->exec_arg;
    o[i].arg = l->arg;
    o[i].output = l->output;
  }
  if ((s = dnnl_primitive_attr_create(&attr)) != dnnl_success) goto done;
  s = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
  if (s != dnnl_success) goto done;
  if ((s = describe(d, wish, o)) != dnnl_success) goto done;
  if (d->bias) {
    const dnnl_dims_t dims = {d->k};
    const bool forward = d->direction == CNN_ACCEL_FORWARD;
    bias_exec_arg = forward ? DNNL_ARG_BIAS : DNNL_ARG_DIFF_BIAS;
    bias_arg = forward ? 2 : 3;
    if ((s = dn_md_tag(&bias, 1, dims, dn_dtype(d->bias_dtype), dnnl_a)) != dnnl_success) goto done;
  }
  if ((s = choose(engine, d, o, bias, attr, &pd)) != dnnl_success) goto done;
  s = dnnl_unimplemented;
  if (dn_is_reference(pd)) goto done;
  s = dnnl_out_of_memory;
  g = dn_program_new(engine);
  if (!g) goto done;
  dn_say(g, "conv ");
  if ((s = fill(g, engine, pd, attr, o, bias_exec_arg, bias_arg)) != dnnl_success) goto done;
  *out = g;
  g = NULL;
done:
  dn_program_free(g);
  if (pd) dnnl_primitive_desc_destroy(pd);
  if (attr) dnnl_primitive_attr_destroy(attr);
  for (int i = 0; i < ROLES; i++) {
    dn_md_free(o[i].plain);
    dn_md_free(o[i].wish);
  }
  dn_md_free(bias);
  return dn_sort(s);
}

dn_status dn_build_conv(dnnl_engine_t engine, const cnn_accel_conv *d, dn_program **out) {
  const dnnl_format_tag_t wish = inner_layout(d);
  dn_status s = build(engine, d, wish, out);
  // What this machine has no fast kernel for in that layout it may have in its own.
  if (s == DN_REFUSED && wish != dnnl_format_tag_any)
    s = build(engine, d, dnnl_format_tag_any, out);
  return s;
}
