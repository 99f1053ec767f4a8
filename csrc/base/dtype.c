// SPDX-License-Identifier: MIT
#include "base/dtype.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

const cnn_dtype_info cnn_dtype_table[CNN_DTYPE_COUNT] = {
#define ROW(name, text, type, bits, category) {text, bits, 1, category},
    CNN_DTYPE_MAP(ROW)
#undef ROW
};

cnn_dtype cnn_dtype_from_name(const char *name) {
  for (int t = 0; t < CNN_DTYPE_COUNT; t++)
    if (strcmp(cnn_dtype_table[t].name, name) == 0) return (cnn_dtype)t;
  return CNN_DTYPE_COUNT;
}

cnn_dtype cnn_dtype_promote(cnn_dtype a, cnn_dtype b) {
  if (a == b) return a;
  cnn_category ca = cnn_dtype_category(a), cb = cnn_dtype_category(b);
  if (ca != cb) return ca > cb ? a : b;
  int wa = cnn_dtype_table[a].bits, wb = cnn_dtype_table[b].bits;
  if (ca == CNN_CAT_FLOAT) return wa == wb ? CNN_F32 : wa > wb ? a : b;
  // Integers of one width differ only as uint8 and int8: neither holds the other.
  if (wa == wb) return CNN_I16;
  return wa > wb ? a : b;
}

static int64_t saturate(double v) {
  if (v != v) return 0;
  if (v >= 0x1p63) return INT64_MAX;
  if (v < -0x1p63) return INT64_MIN;
  return (int64_t)v;
}

bool cnn_dtype_holds_int(cnn_dtype t, int64_t v) {
  if (cnn_dtype_is_float(t) || t == CNN_BOOL || t == CNN_I64) return true;
  if (t == CNN_U8) return v >= -UINT8_MAX && v <= UINT8_MAX;
  int64_t most = ((int64_t)1 << (8 * cnn_dtype_size(t) - 1)) - 1;
  return v >= -most - 1 && v <= most;
}

bool cnn_dtype_holds(cnn_dtype t, double v) {
  if (cnn_dtype_is_float(t) || t == CNN_BOOL) return true;
  return v >= -0x1p63 && v < 0x1p63 && cnn_dtype_holds_int(t, (int64_t)v);
}

double cnn_element_get(cnn_dtype t, const void *p) {
  switch (t) {
  case CNN_F32: return *(const float *)p;
  case CNN_F64: return *(const double *)p;
  case CNN_F16: return cnn_f16_to_float(*(const cnn_f16 *)p);
  case CNN_BF16: return cnn_bf16_to_float(*(const cnn_bf16 *)p);
  default: return (double)cnn_element_get_int(t, p);
  }
}

int64_t cnn_element_get_int(cnn_dtype t, const void *p) {
  switch (t) {
  case CNN_I64: return *(const int64_t *)p;
  case CNN_I32: return *(const int32_t *)p;
  case CNN_I16: return *(const int16_t *)p;
  case CNN_I8: return *(const int8_t *)p;
  case CNN_U8: return *(const uint8_t *)p;
  case CNN_BOOL: return *(const cnn_bool *)p;
  default: return saturate(cnn_element_get(t, p));
  }
}

void cnn_element_set(cnn_dtype t, void *p, double v) {
  switch (t) {
  case CNN_F32: *(float *)p = (float)v; break;
  case CNN_F64: *(double *)p = v; break;
  case CNN_F16: *(cnn_f16 *)p = cnn_float_to_f16((float)v); break;
  case CNN_BF16: *(cnn_bf16 *)p = cnn_float_to_bf16((float)v); break;
  case CNN_BOOL: *(cnn_bool *)p = v != 0; break;
  default: cnn_element_set_int(t, p, saturate(v));
  }
}

void cnn_element_set_int(cnn_dtype t, void *p, int64_t v) {
  switch (t) {
  case CNN_I64: *(int64_t *)p = v; break;
  case CNN_I32: *(int32_t *)p = (int32_t)v; break;
  case CNN_I16: *(int16_t *)p = (int16_t)v; break;
  case CNN_I8: *(int8_t *)p = (int8_t)v; break;
  case CNN_U8: *(uint8_t *)p = (uint8_t)v; break;
  case CNN_BOOL: *(cnn_bool *)p = v != 0; break;
  default: cnn_element_set(t, p, (double)v);
  }
}

double cnn_dtype_below(cnn_dtype t, double high) {
  if (t == CNN_F64) return nextafter(high, -INFINITY);
  if (t == CNN_F32) {
    float f = (float)high;
    return (double)f < high ? f : nextafterf(f, -INFINITY);
  }
  cnn_f16 half = cnn_float_to_f16((float)high);
  cnn_bf16 brain = cnn_float_to_bf16((float)high);
  bool is_half = t == CNN_F16;
  uint16_t *bits = is_half ? &half.bits : &brain.bits;
  double v = is_half ? cnn_f16_to_float(half) : cnn_bf16_to_float(brain);
  if (v < high) return v;
  *bits = v > 0 ? (uint16_t)(*bits - 1) : v < 0 ? (uint16_t)(*bits + 1) : (uint16_t)0x8001;
  return is_half ? cnn_f16_to_float(half) : cnn_bf16_to_float(brain);
}
