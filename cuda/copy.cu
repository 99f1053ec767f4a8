// SPDX-License-Identifier: MIT
// Kernels of ops/copy.c.
#include "map.cuh"

struct f_same {
  typedef int64_t In, Out;
  static constexpr int arity = 1;
  static constexpr bool quick = true;
  __device__ int64_t operator()(int64_t x) const { return x; }
};

// Floats become integers towards zero, within what the integer can hold; NaN becomes 0.
template <class From, class To> struct f_convert {
  typedef From In;
  typedef To Out;
  static constexpr int arity = 1;
  static constexpr bool quick = sizeof(From) == 4;
  int64_t lowest, highest;
  __device__ To operator()(From x) const {
    if constexpr (k_is_float<From>::value && sizeof(To) == 8 && !k_is_float<To>::value) {
      const int64_t v = k_to_int<int64_t>(x);
      return v < lowest ? lowest : v > highest ? highest : v;
    } else {
      return static_cast<To>(x);
    }
  }
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
    return k_map_views(call, f_same(), true, to, from);
  });
}

cnn_status cuda_copy_view(const cnn_call *call, const cnn_view *to, const cnn_view *from) {
  if (to->dtype == from->dtype) return copy_same(call, to, from);
  return k_by_computed(call, from->dtype, [&](auto source) {
    typedef typename decltype(source)::type From;
    if (to->dtype == CNN_BOOL) return k_map_views(call, f_convert<From, bool>{}, false, to, from);
    return k_by_computed(call, to->dtype, [&](auto target) {
      typedef typename decltype(target)::type To;
      f_convert<From, To> f;
      f.highest =
          to->dtype == CNN_U8 ? UINT8_MAX : INT64_MAX >> (64 - 8 * cnn_dtype_size(to->dtype));
      f.lowest = to->dtype == CNN_U8 ? 0 : -f.highest - 1;
      return k_map_views(call, f, false, to, from);
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
