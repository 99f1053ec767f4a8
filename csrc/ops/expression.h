// SPDX-License-Identifier: MIT
// The words in which unary.def and binary.def write derivatives, as calls of ops: ADD(a, b) runs
// the op add in the frame `f`. Each word takes and gives an argument (cnn_arg: a tensor or a
// number), so that expressions nest. The kernels read the same text with the words as C operators
// (cpu/expression.h): one formula, two expansions.
#ifndef CNN_OPS_EXPRESSION_H
#define CNN_OPS_EXPRESSION_H

#include "ops/ops.h"

cnn_arg cnn_word(cnn_frame *f, int op, const cnn_arg *args, int n);

// Like cnn_word, but of two numbers it is a number: the formula's constants are folded in double,
// not rounded to some tensor's dtype. Multiplying by the number 1 is no op.
cnn_arg cnn_word_fold(cnn_frame *f, int op, cnn_arg a, cnn_arg b);
// where(c, a, b); a condition that was folded picks its side.
cnn_arg cnn_word_select(cnn_frame *f, cnn_arg c, cnn_arg a, cnn_arg b);
// A number rounded to float32.
cnn_arg cnn_word_single(cnn_arg a);
// Zeros like g.
cnn_arg cnn_word_zero(cnn_frame *f, cnn_arg g);

#define CNN_WORD1(name, a)    cnn_word(f, OP_##name, (const cnn_arg[]){a}, 1)
#define CNN_WORD2(name, a, b) cnn_word_fold(f, OP_##name, a, b)

#define C(x)            CNN_A_N(x)
#define ADD(a, b)       CNN_WORD2(add, a, b)
#define SUB(a, b)       CNN_WORD2(sub, a, b)
#define MUL(a, b)       CNN_WORD2(mul, a, b)
#define DIV(a, b)       CNN_WORD2(div, a, b)
#define DIV_FLOOR(a, b) CNN_WORD2(floor_divide, a, b)
#define DIV_TRUNC(a, b) CNN_WORD2(trunc_divide, a, b)
#define POW(a, b)       CNN_WORD2(pow, a, b)
#define COPYSIGN(a, b)  CNN_WORD2(copysign, a, b)
#define EQ(a, b)        CNN_WORD2(eq, a, b)
#define LT(a, b)        CNN_WORD2(lt, a, b)
#define LE(a, b)        CNN_WORD2(le, a, b)
#define GT(a, b)        CNN_WORD2(gt, a, b)
#define GE(a, b)        CNN_WORD2(ge, a, b)
#define AND(a, b)       CNN_WORD2(logical_and, a, b)
#define SEL(c, a, b)    cnn_word_select(f, c, a, b)
#define NEG(a)          CNN_WORD1(neg, a)
#define ABS(a)          CNN_WORD1(abs, a)
#define SIGN(a)         CNN_WORD1(sign, a)
#define SQUARE(a)       CNN_WORD1(square, a)
#define EXP(a)          CNN_WORD1(exp, a)
#define LOG(a)          CNN_WORD1(log, a)
#define SQRT(a)         CNN_WORD1(sqrt, a)
#define SIN(a)          CNN_WORD1(sin, a)
#define COS(a)          CNN_WORD1(cos, a)
#define SINH(a)         CNN_WORD1(sinh, a)
#define COSH(a)         CNN_WORD1(cosh, a)
#define TANH(a)         CNN_WORD1(tanh, a)
#define ERF(a)          CNN_WORD1(erf, a)
#define SIGMOID(a)      CNN_WORD1(sigmoid, a)
#define SOFTPLUS(a)     CNN_WORD1(softplus, a)
#define DIGAMMA(a)      CNN_WORD1(digamma, a)
#define TRIGAMMA(a)     CNN_WORD1(trigamma, a)
#define ISFINITE(a)     CNN_WORD1(isfinite, a)
#define SINGLE(a)       cnn_word_single(a)
#define ZERO            cnn_word_zero(f, G)

#endif
