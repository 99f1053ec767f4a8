// SPDX-License-Identifier: MIT
// Own convolutions, as products whose factors are read where they lie: see conv.h.
//
//   forward          y[k, (n, p)]  = sum over (c, t) of  w[k, c, t]   x[n, c, p * stride + t']
//   gradient of x    dx[c, (n, q)] = sum over (k, t) of  w[k, c, t]   dy[n, k, (q - t') / stride]
//   gradient of w    dw[k, (c, t)] = sum over (n, p) of  dy[n, k, p]  x[n, c, p * stride + t']
//
// with t' = t * dilation - before, and only what lies inside. The gradient of x gathers, so no two
// threads add to one element; the strides leave out a part of its products, which are made with 0.
//
// 64 x 64 elements of a result to a block, 4 x 4 to a thread, 16 of the sum at a time. What a place
// of the sum or a column means is worked out once for the tile. Sums are closed every 512
// products, so that their error doesn't grow with their length. The gradient of w, which has few
// elements with long sums, is cut into pieces of these, added in order afterwards. Where groups
// have few channels, so that tiles would be mostly empty, elements are summed one by one.
//
// Limited by the arithmetic outside of tensor cores: this is for float64, for what cuDNN refuses,
// and for builds without it.
#include "reduce.cuh"
#include "spatial.cuh"

#include "conv.h"

#define TILE  64
#define DEPTH 16
#define EACH  4
#define BLOCK 256
#define CLOSE 32 // steps of DEPTH to a sum
// Below: the gradient of w.
#define PIECE_LEAST  1024 // products of a piece
#define PIECES_MOST  64
#define BLOCKS_GOOD  256 // that a device is busy with
#define PIECES_BYTES (static_cast<size_t>(64) << 20)

static_assert(TILE * DEPTH == EACH * BLOCK, "each thread loads EACH elements of both factors");

// A place of the sum: the offset in the first factor and, relative to a column's, in the second,
// and its part of the coordinates there.
struct spot {
  int64_t a, b;
  int p[3];
};

// A column: where it begins in the second factor, and its part of the coordinates.
struct column {
  int64_t base;
  int p[3];
};

// A product for each group.
struct product {
  int64_t rows, columns, depth;
  int64_t row_tiles, tiles; // of a group
  int64_t pieces, step;     // of the depth
  bool inner;               // channels are the inner dim, of the second factor too
  bool a_deep, b_deep;      // factors whose neighbours follow the depth
};

template <int KIND>
__device__ inline spot spot_at(const cuda_conv_job &j, const product &p, int64_t k) {
  spot s;
  if (KIND == CUDA_CONV_BACKWARD_WEIGHT) {
    const k_spot at = k_spot_at(k, 1, j.out, false);
    const int64_t n = at.c + at.n; // one of them is 0
    s.a = k_offset_of(j.y, n, 0, at.p[0], at.p[1], at.p[2]);
    for (int i = 0; i < 3; i++) s.p[i] = at.p[i] * j.stride[i] - j.before[i];
    s.b = k_offset_of(j.x, n, 0, s.p[0], s.p[1], s.p[2]);
    return s;
  }
  const int64_t channels = KIND == CUDA_CONV_FORWARD ? j.cg : j.kg;
  const k_spot at = k_spot_at(k, channels, j.kernel, p.inner);
  int64_t t[3];
  for (int i = 0; i < 3; i++) t[i] = static_cast<int64_t>(at.p[i]) * j.dilation[i];
  if (KIND == CUDA_CONV_FORWARD) {
    s.a = k_offset_of(j.w, 0, at.c, at.p[0], at.p[1], at.p[2]);
    for (int i = 0; i < 3; i++) s.p[i] = static_cast<int>(t[i]);
    s.b = k_offset_of(j.x, 0, at.c, t[0], t[1], t[2]);
  } else {
    s.a = k_offset_of(j.w, at.c, 0, at.p[0], at.p[1], at.p[2]);
    for (int i = 0; i < 3; i++) s.p[i] = static_cast<int>(-t[i]);
    s.b = at.c * j.y.c;
  }
  return s;
}

template <int KIND>
__device__ inline column column_at(const cuda_conv_job &j, const product &p, int64_t group,
                                   int64_t i) {
  column col;
  if (KIND == CUDA_CONV_BACKWARD_WEIGHT) {
    const k_spot at = k_spot_at(i, j.cg, j.kernel, p.inner);
    for (int d = 0; d < 3; d++) col.p[d] = at.p[d] * j.dilation[d];
    col.base = k_offset_of(j.x, 0, group * j.cg + at.c, col.p[0], col.p[1], col.p[2]);
    return col;
  }
  const k_spot at = k_spot_at(i, 1, KIND == CUDA_CONV_FORWARD ? j.out : j.in, false);
  const int64_t n = at.c + at.n;
  if (KIND == CUDA_CONV_FORWARD) {
    for (int d = 0; d < 3; d++) col.p[d] = at.p[d] * j.stride[d] - j.before[d];
    col.base = k_offset_of(j.x, n, group * j.cg, col.p[0], col.p[1], col.p[2]);
  } else {
    for (int d = 0; d < 3; d++) col.p[d] = at.p[d] + j.before[d];
    col.base = k_offset_of(j.y, n, group * j.kg, 0, 0, 0);
  }
  return col;
}

// The offset in the second factor; -1 where there is nothing.
template <int KIND>
__device__ inline int64_t meet(const cuda_conv_job &j, const column &col, const spot &s) {
  int64_t at = col.base + s.b;
#pragma unroll
  for (int d = 0; d < 3; d++) {
    int v = col.p[d] + s.p[d];
    if (KIND == CUDA_CONV_BACKWARD_INPUT) {
      if (v < 0) return -1;
      if (j.stride[d] != 1) {
        const int q = v / j.stride[d];
        if (q * j.stride[d] != v) return -1;
        v = q;
      }
      if (v >= j.out[d]) return -1;
      at += v * j.y.s[d];
    } else if (v < 0 || v >= j.in[d]) {
      return -1;
    }
  }
  return at;
}

template <class S, int KIND>
__global__ void __launch_bounds__(BLOCK, sizeof(k_computed<S>) == 4 ? 2 : 1)
    k_conv(cuda_conv_job j, product p, k_computed<S> *partial) {
  typedef k_computed<S> T;
  __shared__ T as[DEPTH][TILE + 1], bs[DEPTH][TILE + 1];
  __shared__ __align__(16) unsigned char raw[sizeof(spot) * DEPTH];
  __shared__ __align__(16) unsigned char raw_columns[sizeof(column) * TILE];
  spot *spots = reinterpret_cast<spot *>(raw);
  column *columns = reinterpret_cast<column *>(raw_columns);
  const column nowhere = {0, {INT32_MIN / 2, INT32_MIN / 2, INT32_MIN / 2}}; // meets nothing
  const bool weight = KIND == CUDA_CONV_BACKWARD_WEIGHT;
  const int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
  // This thread's elements of the factors are (row + i * step, depth + i * step).
  const int ar = p.a_deep ? ty : threadIdx.x & (TILE - 1), ak = p.a_deep ? tx : threadIdx.x / TILE;
  const int bc = p.b_deep ? ty : threadIdx.x & (TILE - 1), bk = p.b_deep ? tx : threadIdx.x / TILE;
  const int ar_step = p.a_deep ? 16 : 0, ak_step = p.a_deep ? 0 : 4;
  const int bc_step = p.b_deep ? 16 : 0, bk_step = p.b_deep ? 0 : 4;
  const S *b = static_cast<const S *>(KIND == CUDA_CONV_BACKWARD_INPUT ? j.y.data : j.x.data);
  const int64_t a_row = weight ? j.y.c : KIND == CUDA_CONV_FORWARD ? j.w.n : j.w.c;
  const int64_t jobs = p.tiles * p.pieces * j.groups;
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    const int64_t tile = job % p.tiles, piece = job / p.tiles % p.pieces;
    const int64_t group = job / p.tiles / p.pieces;
    const int64_t row0 = tile % p.row_tiles * TILE, col0 = tile / p.row_tiles * TILE;
    const int64_t begin = piece * p.step;
    const int64_t end = begin + p.step < p.depth ? begin + p.step : p.depth;
    const S *a = weight ? static_cast<const S *>(j.y.data) + group * j.kg * j.y.c
                        : static_cast<const S *>(j.w.data) + group * j.kg * j.w.n;
    if (threadIdx.x < TILE) {
      const int64_t c = col0 + threadIdx.x;
      columns[threadIdx.x] = c < p.columns ? column_at<KIND>(j, p, group, c) : nowhere;
    }
    T sum[EACH][EACH] = {}, part[EACH][EACH] = {};
    int steps = 0;
    for (int64_t k0 = begin; k0 < end; k0 += DEPTH) {
      if (threadIdx.x < DEPTH && k0 + threadIdx.x < end)
        spots[threadIdx.x] = spot_at<KIND>(j, p, k0 + threadIdx.x);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int r = ar + i * ar_step, k = ak + i * ak_step;
        as[k][r] = row0 + r < p.rows && k0 + k < end
                       ? static_cast<T>(k_widen(a[(row0 + r) * a_row + spots[k].a]))
                       : T(0);
      }
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int k = bk + i * bk_step, c = bc + i * bc_step;
        const int64_t at = k0 + k < end ? meet<KIND>(j, columns[c], spots[k]) : -1;
        bs[k][c] = at >= 0 ? static_cast<T>(k_widen(b[at])) : T(0);
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < DEPTH; k++) {
        T u[EACH], v[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) u[i] = as[k][ty + 16 * i], v[i] = bs[k][tx + 16 * i];
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
          for (int l = 0; l < EACH; l++) part[i][l] += u[i] * v[l];
      }
      if (++steps % CLOSE == 0 || k0 + DEPTH >= end) {
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
          for (int l = 0; l < EACH; l++) sum[i][l] += part[i][l], part[i][l] = 0;
      }
    }
#pragma unroll
    for (int l = 0; l < EACH; l++) {
      const int64_t c = col0 + tx + 16 * l;
      if (c >= p.columns) continue;
      if (weight && p.pieces > 1) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
          const int64_t row = row0 + ty + 16 * i;
          if (row < p.rows)
            partial[((piece * j.groups + group) * p.rows + row) * p.columns + c] = sum[i][l];
        }
        continue;
      }
      S *to;
      int64_t step;
      if (weight) {
        const k_spot at = k_spot_at(c, j.cg, j.kernel, p.inner);
        to = static_cast<S *>(j.w.data) +
             k_offset_of(j.w, group * j.kg, at.c, at.p[0], at.p[1], at.p[2]);
        step = j.w.n;
      } else {
        const bool forward = KIND == CUDA_CONV_FORWARD;
        const cuda_image &image = forward ? j.y : j.x;
        const k_spot at = k_spot_at(c, 1, forward ? j.out : j.in, false);
        to = static_cast<S *>(image.data) +
             k_offset_of(image, at.c + at.n, group * p.rows, at.p[0], at.p[1], at.p[2]);
        step = image.c;
      }
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int64_t row = row0 + ty + 16 * i;
        if (row >= p.rows) continue;
        T v = sum[i][l];
        if (KIND == CUDA_CONV_FORWARD && j.b)
          v += k_widen(static_cast<const S *>(j.b)[(group * p.rows + row) * j.b_stride]);
        to[row * step] = k_narrow<S>(v);
      }
    }
  }
}

// Adds the pieces of a weight's gradient.
template <class S>
__global__ void __launch_bounds__(BLOCK)
    k_conv_merge(cuda_conv_job j, product p, const k_computed<S> *partial) {
  const int64_t count = j.groups * p.rows * p.columns;
  for (int64_t i = k_index(); i < count; i += k_stride()) {
    k_computed<S> sum = 0;
    for (int64_t piece = 0; piece < p.pieces; piece++) sum += partial[piece * count + i];
    int64_t column = i;
    const int64_t row = k_split(column, p.columns);
    const k_spot at = k_spot_at(column, j.cg, j.kernel, p.inner);
    static_cast<S *>(j.w.data)[k_offset_of(j.w, row, at.c, at.p[0], at.p[1], at.p[2])] =
        k_narrow<S>(sum);
  }
}

// One element of y or dx to a thread.
template <class S, int KIND>
__global__ void __launch_bounds__(BLOCK) k_conv_each(cuda_conv_job j, bool last, int64_t count) {
  typedef k_computed<S> T;
  const bool forward = KIND == CUDA_CONV_FORWARD;
  const int64_t mine = forward ? j.kg : j.cg, others = forward ? j.cg : j.kg;
  const cuda_image &to = forward ? j.y : j.x, &from = forward ? j.x : j.y;
  for (int64_t i = k_index(); i < count; i += k_stride()) {
    const k_spot at = k_spot_at(i, mine * j.groups, forward ? j.out : j.in, last);
    int64_t channel = at.c;
    const int64_t group = k_split(channel, mine);
    const S *w = static_cast<const S *>(j.w.data) + group * j.kg * j.w.n +
                 channel * (forward ? j.w.n : j.w.c);
    const int64_t w_step = forward ? j.w.c : j.w.n;
    column col;
    for (int d = 0; d < 3; d++)
      col.p[d] = forward ? at.p[d] * j.stride[d] - j.before[d] : at.p[d] + j.before[d];
    col.base = k_offset_of(from, at.n, group * others, 0, 0, 0);
    if (forward) col.base += k_offset_of(from, 0, 0, col.p[0], col.p[1], col.p[2]);
    T sum = 0;
    for (int t0 = 0; t0 < j.kernel[0]; t0++)
      for (int t1 = 0; t1 < j.kernel[1]; t1++)
        for (int t2 = 0; t2 < j.kernel[2]; t2++) {
          const int64_t p0 = static_cast<int64_t>(t0) * j.dilation[0];
          const int64_t p1 = static_cast<int64_t>(t1) * j.dilation[1];
          const int64_t p2 = static_cast<int64_t>(t2) * j.dilation[2];
          const int sign = forward ? 1 : -1;
          spot s;
          s.a = 0;
          s.b = forward ? k_offset_of(from, 0, 0, p0, p1, p2) : 0;
          s.p[0] = static_cast<int>(sign * p0), s.p[1] = static_cast<int>(sign * p1);
          s.p[2] = static_cast<int>(sign * p2);
          const int64_t b = meet<KIND>(j, col, s);
          if (b < 0) continue;
          const S *x = static_cast<const S *>(from.data) + b;
          const S *v = w + k_offset_of(j.w, 0, 0, t0, t1, t2);
          T part = 0;
#pragma unroll 1
          for (int64_t c = 0; c < others; c++)
            part += static_cast<T>(k_widen(v[c * w_step])) * static_cast<T>(k_widen(x[c * from.c]));
          sum += part;
        }
    if (forward && j.b) sum += k_widen(static_cast<const S *>(j.b)[at.c * j.b_stride]);
    static_cast<S *>(to.data)[k_offset_of(to, at)] = k_narrow<S>(sum);
  }
}

// One element of dw to a block.
template <class S>
__global__ void __launch_bounds__(BLOCK) k_conv_each_weight(cuda_conv_job j, int64_t count) {
  typedef k_computed<S> T;
  __shared__ T shared[32];
  const int64_t depth = j.n * j.places;
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const k_spot at = k_spot_at(i, j.cg, j.kernel, false); // n: of all output channels
    const int64_t group = at.n / j.kg;
    const S *y = static_cast<const S *>(j.y.data) + at.n * j.y.c;
    const S *x = static_cast<const S *>(j.x.data) + (group * j.cg + at.c) * j.x.c;
    int shift[3];
    for (int d = 0; d < 3; d++) shift[d] = at.p[d] * j.dilation[d] - j.before[d];
    T sum = 0, part = 0;
    int steps = 0;
    for (int64_t k = threadIdx.x; k < depth; k += BLOCK) {
      const k_spot p = k_spot_at(k, 1, j.out, false);
      const int64_t n = p.c + p.n;
      int q[3];
      bool inside = true;
      for (int d = 0; d < 3; d++) {
        q[d] = p.p[d] * j.stride[d] + shift[d];
        inside = inside && q[d] >= 0 && q[d] < j.in[d];
      }
      if (inside)
        part += static_cast<T>(k_widen(y[k_offset_of(j.y, n, 0, p.p[0], p.p[1], p.p[2])])) *
                static_cast<T>(k_widen(x[k_offset_of(j.x, n, 0, q[0], q[1], q[2])]));
      if (++steps % 256 == 0) sum += part, part = 0;
    }
    sum = k_block_reduce(sum + part, shared, static_cast<T>(0), k_sum());
    if (threadIdx.x == 0)
      static_cast<S *>(j.w.data)[k_offset_of(j.w, at.n, at.c, at.p[0], at.p[1], at.p[2])] =
          k_narrow<S>(sum);
  }
}

// ---------------------------------------------------------------------------------------------
// Launches

static int64_t tiles_of(int64_t size) {
  return (size + TILE - 1) / TILE;
}

static int64_t places_of(const int32_t *size) {
  return static_cast<int64_t>(size[0]) * size[1] * size[2];
}

static bool is_last(const cuda_image &o) {
  return o.c == 1 && o.s[2] != 1;
}

static product product_of(const cuda_conv_job *j) {
  product p = {};
  switch (j->kind) {
  case CUDA_CONV_FORWARD:
    p.rows = j->kg, p.columns = j->n * j->places, p.depth = j->cg * j->taps;
    p.inner = is_last(j->x);
    p.a_deep = j->w.n != 1, p.b_deep = p.inner;
    break;
  case CUDA_CONV_BACKWARD_INPUT:
    p.rows = j->cg, p.columns = j->n * places_of(j->in), p.depth = j->kg * j->taps;
    p.inner = is_last(j->y);
    p.a_deep = j->w.c != 1, p.b_deep = p.inner;
    break;
  case CUDA_CONV_BACKWARD_WEIGHT:
    p.rows = j->kg, p.columns = j->cg * j->taps, p.depth = j->n * j->places;
    p.inner = is_last(j->x);
    p.a_deep = j->y.c != 1, p.b_deep = !p.inner;
    break;
  }
  p.row_tiles = tiles_of(p.rows);
  p.tiles = p.row_tiles * tiles_of(p.columns);
  p.pieces = 1;
  p.step = p.depth;
  return p;
}

// Whether tiles would be mostly empty.
static bool is_thin(const cuda_conv_job *j, const product &p) {
  if (j->kind != CUDA_CONV_BACKWARD_WEIGHT) return p.rows < 8;
  return p.rows * p.columns * 8 < p.tiles * TILE * TILE;
}

static size_t piece_bytes(const cuda_conv_job *j, const product &p) {
  return static_cast<size_t>(j->groups * p.rows * p.columns) * (j->dtype == CNN_F64 ? 8 : 4);
}

// Cuts the depth into as many pieces as are worth it and fit.
static void cut(const cuda_conv_job *j, product *p, size_t bytes) {
  const int64_t blocks = p->tiles * j->groups;
  if (j->kind != CUDA_CONV_BACKWARD_WEIGHT || is_thin(j, *p) || blocks == 0) return;
  int64_t pieces = BLOCKS_GOOD / blocks;
  const int64_t room = static_cast<int64_t>(bytes / piece_bytes(j, *p));
  if (pieces > p->depth / PIECE_LEAST) pieces = p->depth / PIECE_LEAST;
  if (pieces > PIECES_MOST) pieces = PIECES_MOST;
  if (pieces > room) pieces = room;
  if (pieces < 2) return;
  p->step = (p->depth + pieces - 1) / pieces;
  p->step = (p->step + DEPTH - 1) / DEPTH * DEPTH;
  p->pieces = (p->depth + p->step - 1) / p->step;
}

extern "C" size_t cuda_conv_own_bytes(const cuda_conv_job *j) {
  product p = product_of(j);
  cut(j, &p, PIECES_BYTES);
  return p.pieces > 1 ? static_cast<size_t>(p.pieces) * piece_bytes(j, p) : 0;
}

static unsigned grid_of(const cnn_call *call, int64_t blocks) {
  const int64_t most = static_cast<int64_t>(cuda_processors(call)) * 32;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

template <class S>
static cnn_status launch(const cnn_call *call, const cuda_conv_job *j, const product &p,
                         void *scratch) {
  typedef k_computed<S> T;
  const unsigned grid = grid_of(call, p.tiles * p.pieces * j->groups);
  T *partial = static_cast<T *>(scratch);
  const int64_t count = j->groups * p.rows * p.columns;
  const bool thin = is_thin(j, p);
  switch (j->kind) {
  case CUDA_CONV_FORWARD:
    if (thin)
      return CUDA_LAUNCH(call, (k_conv_each<S, CUDA_CONV_FORWARD>), k_grid(call, count), BLOCK, 0,
                         *j, is_last(j->y), count);
    return CUDA_LAUNCH(call, (k_conv<S, CUDA_CONV_FORWARD>), grid, BLOCK, 0, *j, p, partial);
  case CUDA_CONV_BACKWARD_INPUT:
    if (thin)
      return CUDA_LAUNCH(call, (k_conv_each<S, CUDA_CONV_BACKWARD_INPUT>), k_grid(call, count),
                         BLOCK, 0, *j, is_last(j->x), count);
    return CUDA_LAUNCH(call, (k_conv<S, CUDA_CONV_BACKWARD_INPUT>), grid, BLOCK, 0, *j, p, partial);
  default: break;
  }
  if (thin)
    return CUDA_LAUNCH(call, k_conv_each_weight<S>, grid_of(call, count), BLOCK, 0, *j, count);
  CNN_TRY(
      CUDA_LAUNCH(call, (k_conv<S, CUDA_CONV_BACKWARD_WEIGHT>), grid, BLOCK, 0, *j, p, partial));
  if (p.pieces == 1) return CNN_OK;
  return CUDA_LAUNCH(call, k_conv_merge<S>, k_grid(call, count), BLOCK, 0, *j, p, partial);
}

extern "C" cnn_status cuda_conv_own(const cnn_call *call, const cuda_conv_job *j, void *scratch,
                                    size_t bytes) {
  product p = product_of(j);
  cut(j, &p, bytes < PIECES_BYTES ? bytes : PIECES_BYTES);
  return k_by_float(call, j->dtype, [&](auto tag) {
    return launch<typename decltype(tag)::type>(call, j, p, scratch);
  });
}

// ---------------------------------------------------------------------------------------------
// Bias

template <class S>
__global__ void __launch_bounds__(K_BLOCK) k_add_bias(cuda_conv_job j, bool last, int64_t count) {
  for (int64_t i = k_index(); i < count; i += k_stride()) {
    const k_spot at = k_spot_at(i, j.groups * j.kg, j.out, last);
    S *y = static_cast<S *>(j.y.data) + k_offset_of(j.y, at);
    *y = k_narrow<S>(k_widen(*y) + k_widen(static_cast<const S *>(j.b)[at.c * j.b_stride]));
  }
}

extern "C" cnn_status cuda_conv_add_bias(const cnn_call *call, const cuda_conv_job *j) {
  const int64_t count = j->n * j->groups * j->kg * j->places;
  return k_by_float(call, j->dtype, [&](auto tag) {
    return CUDA_LAUNCH(call, k_add_bias<typename decltype(tag)::type>, k_grid(call, count), K_BLOCK,
                       0, *j, is_last(j->y), count);
  });
}

template <class T_> struct fold_bias {
  typedef T_ T, Acc;
  __device__ Acc zero() const { return 0; }
  __device__ Acc take(Acc a, T x, int64_t) const { return a + x; }
  __device__ Acc merge(Acc a, Acc b) const { return a + b; }
  __device__ void store(const k_reduce_form &f, int64_t o, Acc a) const {
    k_put(f.out_dtype[0], f.out[0], o, a);
  }
};

static k_reduce_form bias_form(const cnn_call *call, const cnn_view *dy, int channel) {
  k_reduce_form f;
  cuda_reduce_make(&f, call, dy, ((1u << dy->ndim) - 1) & ~(1u << channel));
  f.out[0] = f.out[1];
  f.out_dtype[0] = f.out_dtype[1];
  return f;
}

extern "C" size_t cuda_bias_gradient_bytes(const cnn_call *call, const cnn_view *dy, int channel) {
  const k_reduce_form f = bias_form(call, dy, channel);
  return k_reduce_scratch(&f, dy->dtype == CNN_F64 ? 8 : 4);
}

extern "C" cnn_status cuda_bias_gradient(const cnn_call *call, const cnn_view *dy, int channel) {
  k_reduce_form f = bias_form(call, dy, channel);
  return k_by_float(call, dy->dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    typedef k_computed<S> T;
    return k_reduce_launch<k_direct<S, T>>(call, fold_bias<T>(), &f);
  });
}
