// SPDX-License-Identifier: MIT
// Kernels of ops/copy.c.
#include "map.cuh"

template <class To, class From> struct convert {
  __device__ static To apply(From s) {
    const k_computed<From> v = k_widen(s);
    typedef k_computed<To> T;
    if constexpr (k_is_bool<To>::value)
      return k_narrow<To>(v);
    else if constexpr (k_is_float<k_computed<From>>::value && !k_is_float<T>::value)
      return k_to_int<To>(v);
    else
      return k_narrow<To>(static_cast<T>(v));
  }
};

template <class To, class From> struct f_convert {
  typedef To Out;
  typedef From A;
  static constexpr int arity = 1;
  __device__ To operator()(From s) const { return convert<To, From>::apply(s); }
};
template <class S> struct f_same {
  typedef S Out, A;
  static constexpr int arity = 1;
  __device__ S operator()(S s) const { return s; }
};

// ---------------------------------------------------------------------------------------------
// Transposes: tiles through shared memory, so that both sides are read and written along

#define TILE 32
#define ROWS 8

template <class S>
__global__ void __launch_bounds__(TILE *ROWS)
    k_transpose(S *to, const S *from, cuda_walk outer, int64_t rows, int64_t columns,
                int64_t to_row, int64_t from_column) {
  __shared__ S tile[TILE][TILE + 1];
  int64_t at[2];
  for (int64_t o = blockIdx.z; o < outer.numel; o += gridDim.z) {
    k_offsets<2>(outer, o, at);
    const int64_t column0 = static_cast<int64_t>(blockIdx.x) * TILE;
    const int64_t row0 = static_cast<int64_t>(blockIdx.y) * TILE;
    // The source is dense along the rows.
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
      const int64_t row = row0 + threadIdx.x, column = column0 + j;
      if (row < rows && column < columns)
        tile[j][threadIdx.x] = from[at[1] + column * from_column + row];
    }
    __syncthreads();
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
      const int64_t row = row0 + j, column = column0 + threadIdx.x;
      if (row < rows && column < columns) to[at[0] + row * to_row + column] = tile[threadIdx.x][j];
    }
    __syncthreads();
  }
}

// Whether the walk (target, source) is a transpose worth tiles: then of which dim.
static int find_transpose(const cuda_walk *w) {
  const int last = w->ndim - 1;
  if (last < 1 || w->strides[0][last] != 1 || w->strides[1][last] <= 1 || w->shape[last] < 8)
    return -1;
  for (int d = 0; d < last; d++)
    if (w->strides[1][d] == 1 && w->shape[d] >= 8 && w->shape[d] < 65535 * TILE) return d;
  return -1;
}

template <class S>
static cnn_status transpose(const cnn_call *call, const cnn_view *to, const cnn_view *from,
                            const cuda_walk *w, int along) {
  const int last = w->ndim - 1;
  cuda_walk outer = *w;
  outer.ndim = 0;
  outer.numel = 1;
  for (int d = 0; d < last; d++) {
    if (d == along) continue;
    const int n = outer.ndim++;
    outer.shape[n] = w->shape[d];
    outer.factor[n] = w->factor[d];
    outer.shift[n] = w->shift[d];
    for (int k = 0; k < 2; k++) outer.strides[k][n] = w->strides[k][d];
    outer.numel *= w->shape[d];
  }
  const dim3 block(TILE, ROWS);
  const dim3 grid(static_cast<unsigned>((w->shape[last] + TILE - 1) / TILE),
                  static_cast<unsigned>((w->shape[along] + TILE - 1) / TILE),
                  static_cast<unsigned>(outer.numel < 65535 ? outer.numel : 65535));
  return CUDA_LAUNCH(call, k_transpose<S>, grid, block, 0, static_cast<S *>(to->data),
                     static_cast<const S *>(from->data), outer, w->shape[along], w->shape[last],
                     w->strides[0][along], w->strides[1][last]);
}

// ---------------------------------------------------------------------------------------------

static cnn_status copy_same(const cnn_call *call, const cnn_view *to, const cnn_view *from) {
  const cnn_view *views[] = {to, from};
  cuda_walk w;
  cuda_walk_make(&w, to->ndim, to->shape, views, 2);
  const int along = w.numel < INT32_MAX && !cnn_view_is_number(from) ? find_transpose(&w) : -1;
  return k_by_size(call, to->dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    if (along >= 0) return transpose<S>(call, to, from, &w, along);
    return k_map_views(call, f_same<S>(), to, from);
  });
}

cnn_status cuda_copy_view(const cnn_call *call, const cnn_view *to, const cnn_view *from) {
  if (to->dtype == from->dtype) return copy_same(call, to, from);
  return k_by_any(call, to->dtype, [&](auto target) {
    typedef typename decltype(target)::type To;
    return k_by_any(call, from->dtype, [&](auto source) {
      typedef typename decltype(source)::type From;
      return k_map_views(call, f_convert<To, From>(), to, from);
    });
  });
}

static cnn_status run_fresh(cnn_call *call) {
  return cuda_copy_view(call, &call->out[0], &call->in[0]);
}
static cnn_status run_into(cnn_call *call) {
  return cuda_copy_view(call, &call->in[0], &call->in[1]);
}

CUDA_KERNEL(cast, nullptr, run_fresh)
CUDA_KERNEL(clone, nullptr, run_fresh)
CUDA_KERNEL(copy_, nullptr, run_into)
CUDA_KERNEL(to_device, nullptr, run_fresh)
