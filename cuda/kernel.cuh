// SPDX-License-Identifier: MIT
// What kernels share: types, conversions, walks, reductions over warps and blocks, sizes of grids.
//
// A kernel must be right for any strides >= 0, any sizes (0 and 0-d included) and all dtypes that
// its op takes. Half types are computed in float. Sums are made in an order that depends on sizes
// alone, so that results are the same every time: no floating point atomics.
//
// Rules that keep kernels readable for nvcc and the simulator alike are in docs/cuda.md.
#ifndef CNN_CUDA_KERNEL_CUH
#define CNN_CUDA_KERNEL_CUH

#include "launch.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernel.h"

// Launches on the call's stream; the value is a cnn_status. Template arguments with commas need
// parentheses around the kernel. An empty grid launches nothing.
#define CUDA_LAUNCH(call, kernel, grid, block, shared, ...)                                        \
  (k_empty(grid)                                                                                   \
       ? CNN_OK                                                                                    \
       : cuda_launched(call, LAUNCH(kernel, grid, block, shared,                                   \
                                    static_cast<cudaStream_t>((call)->stream), __VA_ARGS__)))

static inline bool k_empty(dim3 grid) {
  return grid.x == 0 || grid.y == 0 || grid.z == 0;
}

// ---------------------------------------------------------------------------------------------
// Types

typedef __half k_f16;
typedef __nv_bfloat16 k_bf16;

// bool as a type of its own, so that templates tell it from uint8.
struct k_bool {
  uint8_t v;
};

// The type that a stored type is computed in.
template <class S> struct k_types { typedef S computed; };
template <> struct k_types<k_f16> { typedef float computed; };
template <> struct k_types<k_bf16> { typedef float computed; };
template <> struct k_types<k_bool> { typedef uint8_t computed; };
template <class S> using k_computed = typename k_types<S>::computed;

template <class T> struct k_void { typedef void type; };

template <class T> struct k_is_float { static constexpr bool value = false; };
template <> struct k_is_float<float> { static constexpr bool value = true; };
template <> struct k_is_float<double> { static constexpr bool value = true; };

template <class T> struct k_is_bool { static constexpr bool value = false; };
template <> struct k_is_bool<k_bool> { static constexpr bool value = true; };

// A stored element as its computed type, and back.
template <class S> __device__ inline S k_widen(S s) {
  return s;
}
__device__ inline float k_widen(k_f16 s) {
  return __half2float(s);
}
__device__ inline float k_widen(k_bf16 s) {
  return __bfloat162float(s);
}
__device__ inline uint8_t k_widen(k_bool s) {
  return s.v;
}

template <class S> struct k_store {
  template <class T> __device__ static S from(T v) { return static_cast<S>(v); }
};
template <> struct k_store<k_f16> {
  __device__ static k_f16 from(float v) { return __float2half_rn(v); }
};
template <> struct k_store<k_bf16> {
  __device__ static k_bf16 from(float v) { return __float2bfloat16_rn(v); }
};
template <> struct k_store<k_bool> {
  template <class T> __device__ static k_bool from(T v) {
    return k_bool{static_cast<uint8_t>(v != 0)};
  }
};
template <class S, class T> __device__ inline S k_narrow(T v) {
  return k_store<S>::from(v);
}

// A float as an integer: towards zero, saturating, NaN becomes 0.
template <class I, class T> __device__ inline I k_to_int(T v) {
  if (v != v) return 0;
  const T low = static_cast<T>(sizeof(I) == 8   ? -9223372036854775808.0
                               : sizeof(I) == 4 ? -2147483648.0
                               : sizeof(I) == 2 ? -32768.0
                                                : (I(-1) > 0 ? 0.0 : -128.0));
  // One more than the largest: a power of two, which floats have.
  const T high = static_cast<T>(sizeof(I) == 8   ? 9223372036854775808.0
                                : sizeof(I) == 4 ? 2147483648.0
                                : sizeof(I) == 2 ? 32768.0
                                                 : (I(-1) > 0 ? 256.0 : 128.0));
  if (v <= low) return static_cast<I>(low);
  if (v >= high)
    return static_cast<I>(sizeof(I) == 8   ? 9223372036854775807LL
                          : sizeof(I) == 4 ? 2147483647LL
                          : sizeof(I) == 2 ? 32767LL
                                           : (I(-1) > 0 ? 255LL : 127LL));
  return static_cast<I>(v);
}

// ---------------------------------------------------------------------------------------------
// From a dtype to a type: k_by_float(call, dtype, [&](auto tag) { typedef typename
// decltype(tag)::type S; return ...; }) calls the function with the tag of the stored type.

template <class S> struct k_tag { typedef S type; };

static inline cnn_status k_no_dtype(const cnn_call *call, cnn_dtype dtype) {
  return cnn_fail(call->ctx, CNN_DTYPE, "not defined for %s tensors on cuda",
                  cnn_dtype_table[dtype].name);
}

template <class F> cnn_status k_by_float(const cnn_call *call, cnn_dtype dtype, F f) {
  switch (dtype) {
  case CNN_F32: return f(k_tag<float>());
  case CNN_F64: return f(k_tag<double>());
  case CNN_F16: return f(k_tag<k_f16>());
  case CNN_BF16: return f(k_tag<k_bf16>());
  default: return k_no_dtype(call, dtype);
  }
}
template <class F> cnn_status k_by_int(const cnn_call *call, cnn_dtype dtype, F f) {
  switch (dtype) {
  case CNN_I64: return f(k_tag<int64_t>());
  case CNN_I32: return f(k_tag<int32_t>());
  case CNN_I16: return f(k_tag<int16_t>());
  case CNN_I8: return f(k_tag<int8_t>());
  case CNN_U8: return f(k_tag<uint8_t>());
  default: return k_no_dtype(call, dtype);
  }
}
template <class F> cnn_status k_by_real(const cnn_call *call, cnn_dtype dtype, F f) {
  switch (dtype) {
  case CNN_F32:
  case CNN_F64:
  case CNN_F16:
  case CNN_BF16: return k_by_float(call, dtype, f);
  default: return k_by_int(call, dtype, f);
  }
}
template <class F> cnn_status k_by_bits(const cnn_call *call, cnn_dtype dtype, F f) {
  return dtype == CNN_BOOL ? f(k_tag<k_bool>()) : k_by_int(call, dtype, f);
}
template <class F> cnn_status k_by_any(const cnn_call *call, cnn_dtype dtype, F f) {
  return dtype == CNN_BOOL ? f(k_tag<k_bool>()) : k_by_real(call, dtype, f);
}
// By size alone: for what moves elements without looking at them.
template <class F> cnn_status k_by_size(const cnn_call *call, cnn_dtype dtype, F f) {
  switch (cnn_dtype_table[dtype].bits) {
  case 8: return f(k_tag<uint8_t>());
  case 16: return f(k_tag<uint16_t>());
  case 32: return f(k_tag<uint32_t>());
  case 64: return f(k_tag<uint64_t>());
  default: return k_no_dtype(call, dtype);
  }
}

// N elements that are loaded and stored at once: in pieces of 16 bytes, or all.
template <class T, int N> struct __align__(sizeof(T) * N < 16 ? sizeof(T) * N : 16) k_pack {
  T v[N];
};

static inline bool k_aligned(const void *p, size_t bytes) {
  return (reinterpret_cast<uintptr_t>(p) & (bytes - 1)) == 0;
}

// A number as element i of a view's data, whatever its dtype; and element i as a T (float, double,
// int64_t). For what is done once for many elements: the dtype is looked at each time.
template <class V> __device__ inline void k_put(cnn_dtype dtype, void *data, int64_t i, V v) {
  switch (dtype) {
  case CNN_F32: static_cast<float *>(data)[i] = static_cast<float>(v); break;
  case CNN_F64: static_cast<double *>(data)[i] = static_cast<double>(v); break;
  case CNN_F16: static_cast<k_f16 *>(data)[i] = k_narrow<k_f16>(static_cast<float>(v)); break;
  case CNN_BF16: static_cast<k_bf16 *>(data)[i] = k_narrow<k_bf16>(static_cast<float>(v)); break;
  case CNN_I64: static_cast<int64_t *>(data)[i] = static_cast<int64_t>(v); break;
  case CNN_I32: static_cast<int32_t *>(data)[i] = static_cast<int32_t>(v); break;
  case CNN_I16: static_cast<int16_t *>(data)[i] = static_cast<int16_t>(v); break;
  case CNN_I8: static_cast<int8_t *>(data)[i] = static_cast<int8_t>(v); break;
  case CNN_U8: static_cast<uint8_t *>(data)[i] = static_cast<uint8_t>(v); break;
  default: static_cast<uint8_t *>(data)[i] = v != 0; break;
  }
}
template <class T> __device__ inline T k_get(cnn_dtype dtype, const void *data, int64_t i) {
  switch (dtype) {
  case CNN_F32: return static_cast<T>(static_cast<const float *>(data)[i]);
  case CNN_F64: return static_cast<T>(static_cast<const double *>(data)[i]);
  case CNN_F16: return static_cast<T>(k_widen(static_cast<const k_f16 *>(data)[i]));
  case CNN_BF16: return static_cast<T>(k_widen(static_cast<const k_bf16 *>(data)[i]));
  case CNN_I64: return static_cast<T>(static_cast<const int64_t *>(data)[i]);
  case CNN_I32: return static_cast<T>(static_cast<const int32_t *>(data)[i]);
  case CNN_I16: return static_cast<T>(static_cast<const int16_t *>(data)[i]);
  case CNN_I8: return static_cast<T>(static_cast<const int8_t *>(data)[i]);
  default: return static_cast<T>(static_cast<const uint8_t *>(data)[i]);
  }
}

// ---------------------------------------------------------------------------------------------
// Walks

// The offsets of element i in the first V views.
template <int V> __device__ inline void k_offsets(const cuda_walk &w, int64_t i, int64_t *at) {
#pragma unroll
  for (int k = 0; k < V; k++) at[k] = 0;
  if (w.numel < INT32_MAX) {
    uint32_t rest = static_cast<uint32_t>(i);
    for (int d = w.ndim - 1; d > 0; d--) {
      const uint32_t q = (__umulhi(rest, static_cast<uint32_t>(w.factor[d])) + rest) >> w.shift[d];
      const uint32_t r = rest - q * static_cast<uint32_t>(w.shape[d]);
#pragma unroll
      for (int k = 0; k < V; k++) at[k] += static_cast<int64_t>(r) * w.strides[k][d];
      rest = q;
    }
    if (w.ndim > 0) {
#pragma unroll
      for (int k = 0; k < V; k++) at[k] += static_cast<int64_t>(rest) * w.strides[k][0];
    }
    return;
  }
  uint64_t rest = static_cast<uint64_t>(i);
  for (int d = w.ndim - 1; d > 0; d--) {
    const uint64_t q = (__umul64hi(rest, w.factor[d]) + rest) >> w.shift[d];
    const int64_t r = static_cast<int64_t>(rest) - static_cast<int64_t>(q) * w.shape[d];
#pragma unroll
    for (int k = 0; k < V; k++) at[k] += r * w.strides[k][d];
    rest = q;
  }
  if (w.ndim > 0) {
#pragma unroll
    for (int k = 0; k < V; k++) at[k] += static_cast<int64_t>(rest) * w.strides[k][0];
  }
}
__device__ inline int64_t k_offset(const cuda_walk &w, int64_t i) {
  int64_t at[1];
  k_offsets<1>(w, i, at);
  return at[0];
}

// The last digit of *i, whose digits are below `size`; takes it off.
__device__ inline int64_t k_digit(int64_t *i, int64_t size) {
  const int64_t n = *i;
  const int64_t q = n < INT32_MAX && size < INT32_MAX
                        ? static_cast<uint32_t>(n) / static_cast<uint32_t>(size)
                        : n / size;
  *i = q;
  return n - q * size;
}

// ---------------------------------------------------------------------------------------------
// Grids

#define K_BLOCK 256

__device__ inline int64_t k_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t k_stride() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// Blocks of K_BLOCK threads for n pieces of work, one each as long as that is not more than keeps
// the device busy: kernels loop by k_stride.
static inline unsigned k_grid(const cnn_call *call, int64_t n) {
  const int64_t blocks = (n + K_BLOCK - 1) / K_BLOCK;
  const int64_t most = static_cast<int64_t>(cuda_processors(call)) * 32;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

// ---------------------------------------------------------------------------------------------
// Reductions over warps and blocks. All threads of the warp (block) take part, and all get the
// result. `combine` must be associative; values are combined in an order that is always the same.

#define K_FULL_WARP 0xffffffffu

// f of each word of v.
template <class T, class F> __device__ inline T k_shuffle_words(T v, F f) {
  constexpr int words = sizeof(T) / 4;
  static_assert(words * 4 == sizeof(T), "whole words");
  unsigned w[words];
  memcpy(w, &v, sizeof v);
#pragma unroll
  for (int i = 0; i < words; i++) w[i] = f(w[i]);
  memcpy(static_cast<void *>(&v), w, sizeof v);
  return v;
}

// Any plain type of whole words, or a number.
template <class T> __device__ inline T k_shuffle_xor(T v, int bits) {
  if constexpr (k_is_float<T>::value || sizeof(T) <= 4) {
    return __shfl_xor_sync(K_FULL_WARP, v, bits);
  } else {
    return k_shuffle_words(v, [&](unsigned w) { return __shfl_xor_sync(K_FULL_WARP, w, bits); });
  }
}

// The v of `n` lanes before, and of lane `lane`.
template <class T> __device__ inline T k_shuffle_up(T v, int n) {
  return k_shuffle_words(v, [&](unsigned w) { return __shfl_up_sync(K_FULL_WARP, w, n); });
}
template <class T> __device__ inline T k_shuffle_from(T v, int lane) {
  return k_shuffle_words(v, [&](unsigned w) { return __shfl_sync(K_FULL_WARP, w, lane); });
}

template <class T, class F> __device__ inline T k_warp_reduce(T v, F combine) {
#pragma unroll
  for (int bits = 16; bits > 0; bits >>= 1) v = combine(v, k_shuffle_xor(v, bits));
  return v;
}

// blockDim.x is a multiple of 32 and at most 1024. `shared` holds 32 elements, and is free again
// when the function returns.
template <class T, class F>
__device__ inline T k_block_reduce(T v, T *shared, T identity, F combine) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  v = k_warp_reduce(v, combine);
  if (warps == 1) return v;
  if (lane == 0) shared[warp] = v;
  __syncthreads();
  v = lane < warps ? shared[lane] : identity;
  v = k_warp_reduce(v, combine);
  __syncthreads();
  return v;
}

// The sum of v over the threads before this one; the sum of all in *total. Likewise, with 32
// elements of `shared` or as many as there are warps.
template <class T> __device__ inline T k_block_scan(T v, T *shared, T *total) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  T sum = v, before = 0, all = 0;
#pragma unroll
  for (int by = 1; by < 32; by <<= 1) {
    const T other = __shfl_up_sync(K_FULL_WARP, sum, by);
    if (lane >= by) sum += other;
  }
  if (lane == 31) shared[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warps; w++) {
    if (w < warp) before += shared[w];
    all += shared[w];
  }
  __syncthreads();
  *total = all;
  return before + sum - v;
}

struct k_sum {
  template <class T> __device__ T operator()(T a, T b) const { return a + b; }
};
// NaN wins.
struct k_max {
  template <class T> __device__ T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};
struct k_min {
  template <class T> __device__ T operator()(T a, T b) const { return a < b || a != a ? a : b; }
};

// ---------------------------------------------------------------------------------------------
// Errors

// Reports what is wrong with an element. The first report stays. The output must be defined all the
// same.
__device__ inline void k_report(cuda_fault *fault, int op, const cnn_fault &what) {
  if (atomicCAS(&fault->set, 0u, 1u) != 0) return;
  fault->op = op;
  fault->what = what;
}

// The position, from 0, that a 1-based index means in dim `dim`, of size `bound`; reports one
// outside, and gives -1.
template <class I>
__device__ inline int64_t k_position(cuda_fault *fault, int op, I index, int64_t bound, int dim) {
  const int64_t v = static_cast<int64_t>(index);
  if (v >= 1 && v <= bound) return v - 1;
  k_report(fault, op, cnn_fault{CNN_FAULT_INDEX, v, bound, 0, dim, 0});
  return -1;
}

// Whether something has been reported that no host has seen yet: what must not go wrong further
// (optimizers, changes in place by index) is skipped then.
__device__ inline bool k_reported(const cuda_fault *fault) {
  return *static_cast<const volatile unsigned *>(&fault->set) != 0;
}

#endif
