// SPDX-License-Identifier: MIT
// Element types: one table, PyTorch's promotion rules.
#ifndef CNN_BASE_DTYPE_H
#define CNN_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Categories in promotion order: a higher one wins whatever the sizes.
typedef enum cnn_category { CNN_CAT_BOOL, CNN_CAT_INT, CNN_CAT_FLOAT } cnn_category;

// X(NAME, name, C type of one stored element, bits, category)
#define CNN_DTYPE_MAP(X)                                                                           \
  X(F32, "float32", float, 32, CNN_CAT_FLOAT)                                                      \
  X(F64, "float64", double, 64, CNN_CAT_FLOAT)                                                     \
  X(F16, "float16", cnn_f16, 16, CNN_CAT_FLOAT)                                                    \
  X(BF16, "bfloat16", cnn_bf16, 16, CNN_CAT_FLOAT)                                                 \
  X(I64, "int64", int64_t, 64, CNN_CAT_INT)                                                        \
  X(I32, "int32", int32_t, 32, CNN_CAT_INT)                                                        \
  X(I16, "int16", int16_t, 16, CNN_CAT_INT)                                                        \
  X(I8, "int8", int8_t, 8, CNN_CAT_INT)                                                            \
  X(U8, "uint8", uint8_t, 8, CNN_CAT_INT)                                                          \
  X(BOOL, "bool", cnn_bool, 8, CNN_CAT_BOOL)

// Half types are storage only: see base/half.h. A bool element is 0 or 1.
typedef struct cnn_f16 {
  uint16_t bits;
} cnn_f16;
typedef struct cnn_bf16 {
  uint16_t bits;
} cnn_bf16;
typedef uint8_t cnn_bool;

typedef enum cnn_dtype {
#define CNN_DTYPE_ENUM(name, text, type, bits, category) CNN_##name,
  CNN_DTYPE_MAP(CNN_DTYPE_ENUM)
#undef CNN_DTYPE_ENUM
      CNN_DTYPE_COUNT
} cnn_dtype;

typedef struct cnn_dtype_info {
  const char *name;
  uint8_t bits;  // of one element
  uint8_t block; // elements that share one stored block; 1 for plain types
  uint8_t category;
} cnn_dtype_info;

extern const cnn_dtype_info cnn_dtype_table[CNN_DTYPE_COUNT];

static inline const char *cnn_dtype_name(cnn_dtype t) {
  return cnn_dtype_table[t].name;
}
static inline size_t cnn_dtype_size(cnn_dtype t) {
  return cnn_dtype_table[t].bits / 8;
}
static inline cnn_category cnn_dtype_category(cnn_dtype t) {
  return (cnn_category)cnn_dtype_table[t].category;
}
static inline bool cnn_dtype_is_float(cnn_dtype t) {
  return cnn_dtype_category(t) == CNN_CAT_FLOAT;
}
static inline bool cnn_dtype_is_half(cnn_dtype t) {
  return t == CNN_F16 || t == CNN_BF16;
}

// The dtype to compute and to keep statistics in: float32 for half types, else t itself.
static inline cnn_dtype cnn_dtype_computed(cnn_dtype t) {
  return cnn_dtype_is_half(t) ? CNN_F32 : t;
}

// The dtype of that name, or CNN_DTYPE_COUNT.
cnn_dtype cnn_dtype_from_name(const char *name);

// PyTorch's promotion of two tensor dtypes: the higher category wins; within one, the wider;
// float16 with bfloat16 gives float32, uint8 with a signed type the next wider signed one.
cnn_dtype cnn_dtype_promote(cnn_dtype a, cnn_dtype b);

// Reads or writes one stored element of dtype t as a double or as an int64 (converting, truncating
// towards zero; a float that is no int64 saturates, NaN gives 0).
double cnn_element_get(cnn_dtype t, const void *p);
void cnn_element_set(cnn_dtype t, void *p, double v);
int64_t cnn_element_get_int(cnn_dtype t, const void *p);
void cnn_element_set_int(cnn_dtype t, void *p, int64_t v);

// The largest number of a float dtype below `high`.
double cnn_dtype_below(cnn_dtype t, double high);

// Whether a number, cut towards zero, is one of t. As in PyTorch, uint8 takes negative ones modulo
// 256; floats and bools take every number.
bool cnn_dtype_holds(cnn_dtype t, double v);
bool cnn_dtype_holds_int(cnn_dtype t, int64_t v);

#ifdef __cplusplus
}
#endif

#endif
