// SPDX-License-Identifier: MIT
// One C API over oneDNN 2.6 to 3.x: everything this plugin needs that differs between the two.
//
// - A memory descriptor is a pointer here in both (an allocated struct on 2.x). dn_md_free releases
//   what dn_md_strides and dn_md_tag made; what dn_pd_md returns belongs to the primitive
//   descriptor.
// - dn_*_pd makes a primitive descriptor at once. Backward convolutions take no forward hint: no
// CPU
//   implementation of either version reads it.
// - Enum values moved between the versions: the plugin runs with the major version it was compiled
//   against only, see dn_version_fits.
#ifndef CNN_DNNL_COMPAT_H
#define CNN_DNNL_COMPAT_H

#include <stdbool.h>
#include <stdlib.h>

#include <oneapi/dnnl/dnnl.h>

#if DNNL_VERSION_MAJOR < 2 || (DNNL_VERSION_MAJOR == 2 && DNNL_VERSION_MINOR < 6)
#error "oneDNN 2.6 or newer is needed"
#endif

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t dn_md;
typedef const_dnnl_memory_desc_t dn_cmd;
#else
typedef dnnl_memory_desc_t *dn_md;
typedef const dnnl_memory_desc_t *dn_cmd;
#endif

// Stride, dilation (oneDNN counts the zeros between taps: 0 is a dense kernel) and padding of a
// convolution.
typedef struct dn_window {
  dnnl_dims_t stride, dilation, before, after;
} dn_window;

static inline bool dn_version_fits(void) {
  const dnnl_version_t *v = dnnl_version();
  return v->major == DNNL_VERSION_MAJOR && v->minor >= DNNL_VERSION_MINOR;
}

#if DNNL_VERSION_MAJOR >= 3

static inline dnnl_status_t dn_md_strides(dn_md *md, int ndims, const dnnl_dims_t dims,
                                          dnnl_data_type_t type, const dnnl_dims_t strides) {
  return dnnl_memory_desc_create_with_strides(md, ndims, dims, type, strides);
}

static inline dnnl_status_t dn_md_tag(dn_md *md, int ndims, const dnnl_dims_t dims,
                                      dnnl_data_type_t type, dnnl_format_tag_t tag) {
  return dnnl_memory_desc_create_with_tag(md, ndims, dims, type, tag);
}

static inline void dn_md_free(dn_md md) {
  if (md) dnnl_memory_desc_destroy(md);
}

static inline dnnl_status_t dn_matmul_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dn_cmd a,
                                         dn_cmd b, dn_cmd bias, dn_cmd c,
                                         const_dnnl_primitive_attr_t attr) {
  return dnnl_matmul_primitive_desc_create(pd, engine, a, b, bias, c, attr);
}

static inline dnnl_status_t dn_conv_forward_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                               dn_cmd x, dn_cmd w, dn_cmd bias, dn_cmd y,
                                               const dn_window *o,
                                               const_dnnl_primitive_attr_t attr) {
  return dnnl_convolution_forward_primitive_desc_create(pd, engine, dnnl_forward_training,
                                                        dnnl_convolution_direct, x, w, bias, y,
                                                        o->stride, o->dilation, o->before, o->after,
                                                        attr);
}

static inline dnnl_status_t dn_conv_backward_data_pd(dnnl_primitive_desc_t *pd,
                                                     dnnl_engine_t engine, dn_cmd dx, dn_cmd w,
                                                     dn_cmd dy, const dn_window *o,
                                                     const_dnnl_primitive_attr_t attr) {
  return dnnl_convolution_backward_data_primitive_desc_create(pd, engine, dnnl_convolution_direct,
                                                              dx, w, dy, o->stride, o->dilation,
                                                              o->before, o->after, NULL, attr);
}

static inline dnnl_status_t dn_conv_backward_weight_pd(dnnl_primitive_desc_t *pd,
                                                       dnnl_engine_t engine, dn_cmd x, dn_cmd dw,
                                                       dn_cmd db, dn_cmd dy, const dn_window *o,
                                                       const_dnnl_primitive_attr_t attr) {
  return dnnl_convolution_backward_weights_primitive_desc_create(pd, engine,
                                                                 dnnl_convolution_direct, x, dw, db,
                                                                 dy, o->stride, o->dilation,
                                                                 o->before, o->after, NULL, attr);
}

#else

static inline dnnl_status_t dn_md_keep(dn_md *md, const dnnl_memory_desc_t *value) {
  *md = malloc(sizeof **md);
  if (!*md) return dnnl_out_of_memory;
  **md = *value;
  return dnnl_success;
}

static inline dnnl_status_t dn_md_strides(dn_md *md, int ndims, const dnnl_dims_t dims,
                                          dnnl_data_type_t type, const dnnl_dims_t strides) {
  dnnl_memory_desc_t d;
  dnnl_status_t s = dnnl_memory_desc_init_by_strides(&d, ndims, dims, type, strides);
  return s == dnnl_success ? dn_md_keep(md, &d) : s;
}

static inline dnnl_status_t dn_md_tag(dn_md *md, int ndims, const dnnl_dims_t dims,
                                      dnnl_data_type_t type, dnnl_format_tag_t tag) {
  dnnl_memory_desc_t d;
  dnnl_status_t s = dnnl_memory_desc_init_by_tag(&d, ndims, dims, type, tag);
  return s == dnnl_success ? dn_md_keep(md, &d) : s;
}

static inline void dn_md_free(dn_md md) {
  free(md);
}

static inline dnnl_status_t dn_matmul_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dn_cmd a,
                                         dn_cmd b, dn_cmd bias, dn_cmd c,
                                         const_dnnl_primitive_attr_t attr) {
  dnnl_matmul_desc_t d;
  dnnl_status_t s = dnnl_matmul_desc_init(&d, a, b, bias, c);
  return s == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, engine, NULL) : s;
}

static inline dnnl_status_t dn_conv_forward_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                               dn_cmd x, dn_cmd w, dn_cmd bias, dn_cmd y,
                                               const dn_window *o,
                                               const_dnnl_primitive_attr_t attr) {
  dnnl_convolution_desc_t d;
  dnnl_status_t s =
      dnnl_dilated_convolution_forward_desc_init(&d, dnnl_forward_training, dnnl_convolution_direct,
                                                 x, w, bias, y, o->stride, o->dilation, o->before,
                                                 o->after);
  return s == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, engine, NULL) : s;
}

static inline dnnl_status_t dn_conv_backward_data_pd(dnnl_primitive_desc_t *pd,
                                                     dnnl_engine_t engine, dn_cmd dx, dn_cmd w,
                                                     dn_cmd dy, const dn_window *o,
                                                     const_dnnl_primitive_attr_t attr) {
  dnnl_convolution_desc_t d;
  dnnl_status_t s =
      dnnl_dilated_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, dx, w, dy,
                                                       o->stride, o->dilation, o->before, o->after);
  return s == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, engine, NULL) : s;
}

static inline dnnl_status_t dn_conv_backward_weight_pd(dnnl_primitive_desc_t *pd,
                                                       dnnl_engine_t engine, dn_cmd x, dn_cmd dw,
                                                       dn_cmd db, dn_cmd dy, const dn_window *o,
                                                       const_dnnl_primitive_attr_t attr) {
  dnnl_convolution_desc_t d;
  dnnl_status_t s =
      dnnl_dilated_convolution_backward_weights_desc_init(&d, dnnl_convolution_direct, x, dw, db,
                                                          dy, o->stride, o->dilation, o->before,
                                                          o->after);
  return s == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, engine, NULL) : s;
}

#endif

// The layout that a primitive descriptor settled on for an execution argument (DNNL_ARG_SRC ...).
static inline dn_cmd dn_pd_md(const_dnnl_primitive_desc_t pd, int arg) {
  return dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
}

static inline const char *dn_pd_impl(const_dnnl_primitive_desc_t pd) {
  const char *name = NULL;
  if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success)
    name = NULL;
  return name ? name : "";
}

#endif
