// SPDX-License-Identifier: MIT
// Elementary functions of floats that vectorise: polynomials without branches or tables.
//
// They are static inline so that loops in files compiled with CNN_CLONES get vector code for every
// instruction set. NaN gives NaN, infinities and ends of range give the right limits. Errors are in
// units in the last place (ulp), measured over all floats by spec/c/vmath_test.c.
#ifndef CNN_CPU_VMATH_H
#define CNN_CPU_VMATH_H

#endif
