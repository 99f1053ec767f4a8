// SPDX-License-Identifier: MIT
//
// All inline PTX of the project, each with a C++ twin for the simulator that computes the same from
// the same lanes' registers. A twin can't show that the PTX's operands are right: every function
// here wants one test on a GPU. Layouts are those of the PTX ISA, "Matrix Fragments for
// mma.m16n8k16" and "ldmatrix". sm_80 and later.
//
// With g = lane / 4 and t = lane % 4, packed pairs with the lower index in the lower half:
//   a[0], a[1]: A[g][2t, 2t+1], A[g+8][...]   a[2], a[3]: the same 8 columns on   A is 16 x 16
//   b[0], b[1]: B[2t, 2t+1][g], B[2t+8, ...][g]                                   B is 16 x 8
//   d[0..3]:    D[g][2t], D[g][2t+1], D[g+8][2t], D[g+8][2t+1]                    D is 16 x 8
#ifndef CNN_CUDA_PTX_H
#define CNN_CUDA_PTX_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "launch.h"

#ifdef __CUDACC__

// d = a b + d, in float. All lanes of the warp.
__device__ __forceinline__ void mma_m16n8k16_f16(float d[4], const unsigned a[4],
                                                 const unsigned b[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_m16n8k16_bf16(float d[4], const unsigned a[4],
                                                  const unsigned b[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 matrices of 16-bit elements from shared memory. Lane i gives the address of row i % 8
// of matrix i / 8 (16 bytes, aligned); r[j] gets elements 2t, 2t+1 of row g of matrix j, or, by
// _trans, of its column g.
__device__ __forceinline__ void ldmatrix_x4(unsigned r[4], const void *row) {
  const unsigned p = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(p)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned r[4], const void *row) {
  const unsigned p = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(p)
               : "memory");
}

// 16 bytes from global to shared memory, both aligned to 16; the first `valid` are read, the rest
// become 0. Visible to this thread after cp_async_wait, to others after a barrier that follows.
__device__ __forceinline__ void cp_async16(void *shared, const void *global, int valid = 16) {
  const unsigned p = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(p), "l"(global), "r"(valid)
               : "memory");
}
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;");
}
// Waits until at most N of this thread's committed groups are under way.
template <int N> __device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#else

struct PtxFragments {
  unsigned a[4], b[2];
};
template <class T>
SIM_RAW void mma_m16n8k16(float d[4], const unsigned a[4], const unsigned b[2], const char *op,
                          const char *file, int line) {
  PtxFragments mine;
  memcpy(mine.a, a, sizeof mine.a);
  memcpy(mine.b, b, sizeof mine.b);
  const SimGather<PtxFragments> all(0xffffffffu, op, mine, file, line);
  const int g = static_cast<int>(sim_state.lane) / 4, t = static_cast<int>(sim_state.lane) % 4;
  for (int i = 0; i < 4; i++) {
    const int row = g + i / 2 * 8, column = 2 * t + i % 2;
    for (int k = 0; k < 16; k++) {
      const PtxFragments fa = all.from(row % 8 * 4 + k % 8 / 2, op, file, line);
      const PtxFragments fb = all.from(column * 4 + k % 8 / 2, op, file, line);
      T x[2], y[2];
      memcpy(static_cast<void *>(x), &fa.a[row / 8 + k / 8 * 2], sizeof x);
      memcpy(static_cast<void *>(y), &fb.b[k / 8], sizeof y);
      d[i] += static_cast<float>(x[k % 2]) * static_cast<float>(y[k % 2]);
    }
  }
}
inline void mma_m16n8k16_f16(float d[4], const unsigned a[4], const unsigned b[2], SIM_HERE_ARGS) {
  mma_m16n8k16<__half>(d, a, b, "mma_m16n8k16_f16", SIM_HERE);
}
inline void mma_m16n8k16_bf16(float d[4], const unsigned a[4], const unsigned b[2], SIM_HERE_ARGS) {
  mma_m16n8k16<__nv_bfloat16>(d, a, b, "mma_m16n8k16_bf16", SIM_HERE);
}

// The loads themselves are seen by the checker, as made by the lane that gets the values.
inline void ldmatrix_x4(unsigned r[4], const void *row, SIM_HERE_ARGS) {
  const SimGather<const void *> all(0xffffffffu, "ldmatrix_x4", row, SIM_HERE);
  const int g = static_cast<int>(sim_state.lane) / 4, t = static_cast<int>(sim_state.lane) % 4;
  for (int j = 0; j < 4; j++) {
    const void *p = all.from(8 * j + g, "ldmatrix_x4", SIM_HERE);
    if (reinterpret_cast<size_t>(p) % 16) sim_trap("ldmatrix_x4: misaligned row", SIM_HERE);
    r[j] = static_cast<const unsigned *>(p)[t];
  }
}
inline void ldmatrix_x4_trans(unsigned r[4], const void *row, SIM_HERE_ARGS) {
  const SimGather<const void *> all(0xffffffffu, "ldmatrix_x4_trans", row, SIM_HERE);
  const int g = static_cast<int>(sim_state.lane) / 4, t = static_cast<int>(sim_state.lane) % 4;
  for (int j = 0; j < 4; j++) {
    unsigned half[2];
    for (int i = 0; i < 2; i++) {
      const void *p = all.from(8 * j + 2 * t + i, "ldmatrix_x4_trans", SIM_HERE);
      if (reinterpret_cast<size_t>(p) % 16) sim_trap("ldmatrix_x4_trans: misaligned row", SIM_HERE);
      half[i] = static_cast<const unsigned short *>(p)[g];
    }
    r[j] = half[0] | half[1] << 16;
  }
}
inline void cp_async16(void *shared, const void *global, int valid = 16, SIM_HERE_ARGS) {
  sim_copy_async(shared, global, 16, static_cast<size_t>(valid), SIM_HERE);
}
inline void cp_async_commit() {
  sim_copy_commit();
}
template <int N> void cp_async_wait() {
  sim_copy_wait(N);
}

#endif
#endif
