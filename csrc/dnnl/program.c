// SPDX-License-Identifier: MIT
#include "dnnl/program.h"

#include <string.h>

dn_program *dn_program_new(dnnl_engine_t engine) {
  dn_program *g = calloc(1, sizeof *g);
  if (g && dnnl_stream_create(&g->stream, engine, dnnl_stream_default_flags) != dnnl_success) {
    free(g);
    g = NULL;
  }
  return g;
}

void dn_program_free(dn_program *g) {
  if (!g) return;
  for (int i = 0; i < g->nsteps; i++) dnnl_primitive_destroy(g->steps[i].primitive);
  for (int i = 0; i < g->nmemories; i++) dnnl_memory_destroy(g->memories[i].memory);
  if (g->stream) dnnl_stream_destroy(g->stream);
  free(g);
}

// beta is 1 when the rows of C were filled with the bias before.
static bool run_sgemm(const dn_sgemm *s, void *const *args) {
  const float *a = args[0], *b = args[1], *bias = args[2];
  float *c = args[3];
  if (s->bias) {
    for (dnnl_dim_t i = 0; i < s->m; i++) memcpy(c + i * s->ldc, bias, (size_t)s->n * sizeof *c);
  }
  return dnnl_sgemm(s->ta, s->tb, s->m, s->n, s->k, 1.0f, a, s->lda, b, s->ldb,
                    s->bias ? 1.0f : 0.0f, c, s->ldc) == dnnl_success;
}

bool dn_program_run(dn_program *g, void *const *args, void *scratch) {
  if (g->sgemm.on) return run_sgemm(&g->sgemm, args);
  for (int i = 0; i < g->nmemories; i++) {
    const dn_memory *m = &g->memories[i];
    void *data = m->arg >= 0 ? args[m->arg] : (char *)scratch + m->offset;
    if (dnnl_memory_set_data_handle(m->memory, data) != dnnl_success) return false;
  }
  for (int i = 0; i < g->nsteps; i++) {
    const dn_step *s = &g->steps[i];
    if (dnnl_primitive_execute(s->primitive, g->stream, s->nargs, s->args) != dnnl_success) {
      return false;
    }
  }
  return true;
}

dnnl_status_t dn_add_memory(dn_program *g, dnnl_engine_t engine, dn_cmd md, int arg,
                            dnnl_memory_t *out) {
  if (g->nmemories == DN_MAX_MEMORIES) return dnnl_runtime_error;
  dn_memory *m = &g->memories[g->nmemories];
  dnnl_status_t s = dnnl_memory_create(&m->memory, md, engine, DNNL_MEMORY_NONE);
  if (s != dnnl_success) return s;
  m->arg = arg;
  if (arg < 0) {
    m->offset = g->scratch;
    g->scratch += (dnnl_memory_desc_get_size(md) + 63) & ~(size_t)63;
  }
  g->nmemories++;
  *out = m->memory;
  return dnnl_success;
}

dnnl_status_t dn_add_step(dn_program *g, dnnl_engine_t engine, const_dnnl_primitive_desc_t pd,
                          int nargs, const dnnl_exec_arg_t *args) {
  if (g->nsteps == DN_MAX_STEPS || nargs >= DN_MAX_STEP_ARGS) return dnnl_runtime_error;
  dn_step *step = &g->steps[g->nsteps];
  memcpy(step->args, args, (size_t)nargs * sizeof *args);
  step->nargs = nargs;
  dn_cmd pad = dn_pd_md(pd, DNNL_ARG_SCRATCHPAD);
  if (pad && dnnl_memory_desc_get_size(pad) > 0) {
    dnnl_exec_arg_t *a = &step->args[step->nargs++];
    a->arg = DNNL_ARG_SCRATCHPAD;
    dnnl_status_t s = dn_add_memory(g, engine, pad, -1, &a->memory);
    if (s != dnnl_success) return s;
  }
  dnnl_status_t s = dnnl_primitive_create(&step->primitive, pd);
  if (s == dnnl_success) g->nsteps++;
  return s;
}

dnnl_status_t dn_add_reorder(dn_program *g, dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                             dn_cmd from_md, dnnl_memory_t from, dn_cmd to_md, dnnl_memory_t to) {
  dnnl_primitive_desc_t pd = NULL;
  dnnl_status_t s = dnnl_reorder_primitive_desc_create(&pd, from_md, engine, to_md, engine, attr);
  if (s != dnnl_success) return s;
  const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
  s = dn_add_step(g, engine, pd, 2, args);
  dnnl_primitive_desc_destroy(pd);
  return s;
}

void dn_say(dn_program *g, const char *text) {
  strncat(g->text, text, sizeof g->text - strlen(g->text) - 1);
}

dnnl_data_type_t dn_dtype(cnn_dtype t) {
  if (t == CNN_F32) return dnnl_f32;
  if (t == CNN_BF16) return dnnl_bf16;
  return dnnl_data_type_undef;
}

bool dn_is_reference(const_dnnl_primitive_desc_t pd) {
  const char *impl = dn_pd_impl(pd);
  return !*impl || strstr(impl, "ref") != NULL;
}

dn_status dn_sort(dnnl_status_t s) {
  if (s == dnnl_success) return DN_OK;
  return s == dnnl_out_of_memory ? DN_FAILED : DN_REFUSED;
}
