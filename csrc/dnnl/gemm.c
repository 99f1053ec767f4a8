// SPDX-License-Identifier: MIT
// Matrix products: the matmul primitive, or dnnl_sgemm where it is faster.
#include "dnnl/program.h"

// Measured on AVX-512 (oneDNN 2.6, float32): matmul and sgemm tie within 5 % but for
// - vectors: matmul pays for a general plan, 1.1 to 6 times the time;
// - a few rows against a transposed B (a linear layer at inference): matmul copies all of B into
//   blocks first, 1.3 to 3 times;
// - long sums with wide outputs, and huge products, B not transposed: 1.07 to 1.8 times.
// Elsewhere matmul is as fast or faster, and its working memory is the caller's scratch.
static bool sgemm_is_better(const cnn_accel_gemm *d) {
  if (d->dtype != CNN_F32 || d->batch != 1 || (d->bias && d->bias_dtype != CNN_F32)) return false;
  if (d->m == 1 || d->n == 1) return true;
  if (d->b_cs != 1) return d->m <= 8;
  if (d->k >= 2048) return d->n >= 256;
  return d->k >= 512 && d->m * d->n >= ((int64_t)1 << 32) / d->k;
}

static dn_status build_sgemm(dnnl_engine_t engine, const cnn_accel_gemm *d, dn_program **out) {
  dn_program *g = dn_program_new(engine);
  if (!g) return DN_FAILED;
  g->sgemm = (dn_sgemm){
      .on = true,
      .bias = d->bias,
      .ta = d->a_cs == 1 ? 'N' : 'T',
      .tb = d->b_cs == 1 ? 'N' : 'T',
      .m = d->m,
      .n = d->n,
      .k = d->k,
      .lda = d->a_cs == 1 ? d->a_rs : d->a_cs,
      .ldb = d->b_cs == 1 ? d->b_rs : d->b_cs,
      .ldc = d->c_rs,
  };
  dn_say(g, "gemm sgemm");
  *out = g;
  return DN_OK;
}

// The layout of one operand. A batch stride of 0 makes the batch dimension 1: oneDNN broadcasts it.
static dnnl_status_t operand(const cnn_accel_gemm *d, int64_t rows, int64_t cols, int64_t bs,
                             int64_t rs, int64_t cs, dn_md *md) {
  dnnl_data_type_t type = dn_dtype(d->dtype);
  if (d->batch == 1) {
    const dnnl_dims_t dims = {rows, cols}, strides = {rs, cs};
    return dn_md_strides(md, 2, dims, type, strides);
  }
  int64_t span = cs == 1 ? rows * rs : cols * cs;
  const dnnl_dims_t dims = {bs ? d->batch : 1, rows, cols}, strides = {bs ? bs : span, rs, cs};
  return dn_md_strides(md, 3, dims, type, strides);
}

dn_status dn_build_gemm(dnnl_engine_t engine, const cnn_accel_gemm *d, dn_program **out) {
  if (sgemm_is_better(d)) return build_sgemm(engine, d, out);
  dn_md a = NULL, b = NULL, bias = NULL, c = NULL;
  dnnl_primitive_attr_t attr = NULL;
  dnnl_primitive_desc_t pd = NULL;
  dn_program *g = NULL;
  const int ndims = d->batch == 1 ? 2 : 3;
  dnnl_status_t s;
  // oneDNN 3.7 writes a bfloat16 column as if it were dense, whatever its stride.
  if (d->n == 1 && d->c_rs != 1 && d->dtype == CNN_BF16) return dn_sort(dnnl_unimplemented);
  if ((s = dnnl_primitive_attr_create(&attr)) != dnnl_success) goto done;
  s = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
  if (s != dnnl_success) goto done;
  if ((s = operand(d, d->m, d->k, d->a_bs, d->a_rs, d->a_cs, &a)) != dnnl_success) goto done;
  if ((s = operand(d, d->k, d->n, d->b_bs, d->b_rs, d->b_cs, &b)) != dnnl_success) goto done;
  if ((s = operand(d, d->m, d->n, d->c_bs, d->c_rs, 1, &c)) != dnnl_success) goto done;
  if (d->bias) {
    const dnnl_dims_t row = {1, d->n}, batched_row = {1, 1, d->n};
    s = dn_md_tag(&bias, ndims, ndims == 2 ? row : batched_row, dn_dtype(d->bias_dtype),
                  ndims == 2 ? dnnl_ab : dnnl_abc);
    if (s != dnnl_success) goto done;
  }
  if ((s = dn_matmul_pd(&pd, engine, a, b, bias, c, attr)) != dnnl_success) goto done;
  if (dn_is_reference(pd)) {
    s = dnnl_unimplemented;
    goto done;
  }
  g = dn_program_new(engine);
  if (!g) {
    s = dnnl_out_of_memory;
    goto done;
  }
  dn_say(g, "gemm ");
  dn_say(g, dn_pd_impl(pd));
  dnnl_exec_arg_t args[4] = {{.arg = DNNL_ARG_SRC},
                             {.arg = DNNL_ARG_WEIGHTS},
                             {.arg = DNNL_ARG_DST},
                             {.arg = DNNL_ARG_BIAS}};
  if ((s = dn_add_memory(g, engine, a, 0, &args[0].memory)) != dnnl_success) goto done;
  if ((s = dn_add_memory(g, engine, b, 1, &args[1].memory)) != dnnl_success) goto done;
  if ((s = dn_add_memory(g, engine, c, 3, &args[2].memory)) != dnnl_success) goto done;
  if (d->bias) {
    if ((s = dn_add_memory(g, engine, bias, 2, &args[3].memory)) != dnnl_success) goto done;
  }
  if ((s = dn_add_step(g, engine, pd, d->bias ? 4 : 3, args)) != dnnl_success) goto done;
  *out = g;
  g = NULL;
done:
  dn_program_free(g);
  if (pd) dnnl_primitive_desc_destroy(pd);
  if (attr) dnnl_primitive_attr_destroy(attr);
  dn_md_free(a);
  dn_md_free(b);
  dn_md_free(bias);
  dn_md_free(c);
  return dn_sort(s);
}
