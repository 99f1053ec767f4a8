// SPDX-License-Identifier: MIT
// The words of unary.def and binary.def as C operators: the second expansion of the formulas of
// ops/expression.h.
//
// Define T (the type computed in) and M(name), R(name) (functions of T) before use.
#ifndef CNN_CPU_EXPRESSION_H
#define CNN_CPU_EXPRESSION_H

#define K(c)         ((T)(c))
#define C(c)         ((T)(c))
#define ADD(a, b)    ((a) + (b))
#define SUB(a, b)    ((a) - (b))
#define MUL(a, b)    ((a) * (b))
#define DIV(a, b)    ((a) / (b))
#define EQ(a, b)     ((a) == (b))
#define LT(a, b)     ((a) < (b))
#define LE(a, b)     ((a) <= (b))
#define GT(a, b)     ((a) > (b))
#define GE(a, b)     ((a) >= (b))
#define SEL(c, a, b) ((c) ? (a) : (b))
#define NEG(a)       (-(a))
#define ABS(a)       M(fabs)(a)
#define SIGN(a)      M(sign)(a)
#define SQUARE(a)    M(square)(a)
#define EXP(a)       M(exp)(a)
#define LOG(a)       M(log)(a)
#define SQRT(a)      M(sqrt)(a)
#define SIN(a)       M(sin)(a)
#define COS(a)       M(cos)(a)
#define SINH(a)      M(sinh)(a)
#define COSH(a)      M(cosh)(a)
#define TANH(a)      M(tanh)(a)
#define ERF(a)       M(erf)(a)
#define SIGMOID(a)   M(sigmoid)(a)
#define SOFTPLUS(a)  M(softplus)(a)
#define DIGAMMA(a)   M(digamma)(a)
#define TRIGAMMA(a)  M(trigamma)(a)
#define ISFINITE(a)  ((a) - (a) == 0)
#define SINGLE(a)    ((T)(float)(a))
#define ZERO         K(0)

#endif
