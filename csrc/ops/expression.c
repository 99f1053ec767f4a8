// SPDX-License-Identifier: MIT
#include "ops/expression.h"

#include <math.h>

static bool is_number(cnn_arg a) {
  return a.kind == CNN_NUMBER || a.kind == CNN_INT;
}
static double value(cnn_arg a) {
  return a.kind == CNN_NUMBER ? a.d : (double)a.i;
}

static bool fold_one(int op, double a, double *result) {
  switch (op) {
  case OP_neg: *result = -a; return true;
  case OP_abs: *result = fabs(a); return true;
  case OP_exp: *result = exp(a); return true;
  case OP_log: *result = log(a); return true;
  case OP_sqrt: *result = sqrt(a); return true;
  case OP_square: *result = a * a; return true;
  default: return false;
  }
}

cnn_arg cnn_word(cnn_frame *f, int op, const cnn_arg *args, int n) {
  double folded;
  if (n == 1 && is_number(args[0]) && fold_one(op, value(args[0]), &folded)) return CNN_A_N(folded);
  return CNN_A_T(cnn_frame_do(f, op, args, n));
}

static bool fold(int op, double a, double b, double *result) {
  switch (op) {
  case OP_add: *result = a + b; return true;
  case OP_sub: *result = a - b; return true;
  case OP_mul: *result = a * b; return true;
  case OP_div: *result = a / b; return true;
  case OP_eq: *result = a == b; return true;
  case OP_lt: *result = a < b; return true;
  case OP_le: *result = a <= b; return true;
  case OP_gt: *result = a > b; return true;
  case OP_ge: *result = a >= b; return true;
  default: return false;
  }
}

cnn_arg cnn_word_fold(cnn_frame *f, int op, cnn_arg a, cnn_arg b) {
  double folded;
  if (is_number(a) && is_number(b) && fold(op, value(a), value(b), &folded)) return CNN_A_N(folded);
  if (op == OP_logical_and && is_number(a)) return value(a) != 0 ? b : a;
  if (op == OP_logical_and && is_number(b)) return value(b) != 0 ? a : b;
  if (op == OP_mul && is_number(a) && value(a) == 1) return b;
  if (op == OP_mul && is_number(b) && value(b) == 1) return a;
  return cnn_word(f, op, (const cnn_arg[]){a, b}, 2);
}

cnn_arg cnn_word_select(cnn_frame *f, cnn_arg c, cnn_arg a, cnn_arg b) {
  if (is_number(c)) return value(c) != 0 ? a : b;
  return cnn_word(f, OP_where, (const cnn_arg[]){c, a, b}, 3);
}

cnn_arg cnn_word_zero(cnn_frame *f, cnn_arg g) {
  if (f->status != CNN_OK) return CNN_A_NONE;
  return CNN_A_T(cnn_do(f, full, CNN_A_INTS(g.t->ndim, g.t->shape), CNN_A_I(0), CNN_A_I(g.t->dtype),
                        CNN_A_DEVICE(g.t->device)));
}

cnn_arg cnn_word_single(cnn_arg a) {
  return is_number(a) ? CNN_A_N((double)(float)value(a)) : a;
}
