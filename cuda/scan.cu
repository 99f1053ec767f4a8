// SPDX-License-Identifier: MIT
// Kernels of ops/scan.c. What limits them are bytes: each element is read once and written once, or
// read twice where few long lines are cut into pieces.
//
// A scan is an op: a struct with the type Acc, what a run of elements comes to, and
//   Acc none() const                                  of no element
//   Acc join(Acc a, Acc b) const                      of a run and the one behind it; associative
//   Acc take(const job &j, const int64_t *at, int64_t i) const   of element i of the line at `at`
//   void put(const job &j, const int64_t *at, int64_t i, Acc a) const   its result: a ends with it
//
// A line is worked on by a warp, a long one by a block: tile by tile, four neighbouring elements to
// a thread, with what all tiles before came to. Lines that are neighbours along another dim, and
// short ones, have a thread each. Few long lines are cut into pieces: the first launch finds what
// each comes to, a second one goes on from there. Where they are cut depends on sizes alone, so
// results are the same every time. Running sums and products are kept in double, as on the CPU.
#include "kernel.cuh"

#include <type_traits>

#define BLOCK 256
#define ITEMS 4 // elements of a thread in a tile
#define WARPS (BLOCK / 32)

namespace {
typedef struct job {
  cuda_lines lines; // of `out` and what else the op reads and writes, in the order of its at[]
  void *out;
  const void *x, *dy;
  int64_t *places;
  cnn_dtype out_dtype, x_dtype, dy_dtype;
  int64_t pieces, step; // of a line, in elements; a multiple of ITEMS
  void *totals;         // [pieces][lines] Acc
} job;
} // namespace

// ---------------------------------------------------------------------------------------------
// Elements: of a type known, or (void) looked at each time

template <class S, class T> __device__ inline T read(cnn_dtype dtype, const void *data, int64_t i) {
  if constexpr (!std::is_void<S>::value) {
    return static_cast<T>(k_widen(static_cast<const S *>(data)[i]));
  } else {
    const bool real = dtype == CNN_F32 || dtype == CNN_F64 || dtype == CNN_F16 || dtype == CNN_BF16;
    if (!k_is_float<T>::value && real)
      return static_cast<T>(k_to_int<int64_t>(k_get<double>(dtype, data, i)));
    return k_get<T>(dtype, data, i);
  }
}
template <class S, class T>
__device__ inline void write(cnn_dtype dtype, void *data, int64_t i, T v) {
  if constexpr (!std::is_void<S>::value)
    static_cast<S *>(data)[i] = k_narrow<S>(static_cast<k_computed<S>>(v));
  else
    k_put(dtype, data, i, v);
}

// ITEMS elements of a dense line at once, in loads of 16 bytes at most.
template <class S> struct wide {
  static constexpr int count = sizeof(S) * ITEMS > 16 ? 16 / sizeof(S) : ITEMS;
  typedef k_pack<S, count> pack;
  __device__ static bool fits(const void *data, int64_t i, int64_t stride) {
    return stride == 1 && (reinterpret_cast<uintptr_t>(static_cast<const S *>(data) + i) &
                           (sizeof(pack) - 1)) == 0;
  }
  __device__ static void load(const void *data, int64_t i, S *v) {
    const pack *p = reinterpret_cast<const pack *>(static_cast<const S *>(data) + i);
#pragma unroll
    for (int k = 0; k < ITEMS / count; k++) {
      const pack got = p[k];
#pragma unroll
      for (int e = 0; e < count; e++) v[k * count + e] = got.v[e];
    }
  }
  __device__ static void store(void *data, int64_t i, const S *v) {
    pack *p = reinterpret_cast<pack *>(static_cast<S *>(data) + i);
#pragma unroll
    for (int k = 0; k < ITEMS / count; k++) {
      pack set;
#pragma unroll
      for (int e = 0; e < count; e++) set.v[e] = v[k * count + e];
      p[k] = set;
    }
  }
};

// ---------------------------------------------------------------------------------------------
// Ops

// Running sums or products of x (view 1). A: double, or uint64_t, which wraps.
template <class S_, class A, bool product> struct running {
  typedef S_ S;
  typedef A Acc;
  __device__ Acc none() const { return product; }
  __device__ Acc join(Acc a, Acc b) const { return product ? a * b : a + b; }
  __device__ Acc take(const job &j, const int64_t *at, int64_t i) const {
    return read<S, A>(j.x_dtype, j.x, at[1] + i * j.lines.stride[1]);
  }
  __device__ void put(const job &j, const int64_t *at, int64_t i, Acc a) const {
    write<S>(j.out_dtype, j.out, at[0] + i * j.lines.stride[0], a);
  }
};

// The largest (or smallest) element so far and its position (from 1; 0: none yet): the last of
// equals; from a NaN on NaN, and the last of those. x is view 1, the positions view 2.
namespace {
template <class T> struct place {
  T value;
  int64_t at;
};
} // namespace
template <class T, bool largest> struct extreme {
  typedef void S;
  typedef place<T> Acc;
  __device__ Acc none() const { return Acc{0, 0}; }
  __device__ Acc join(Acc a, Acc b) const {
    if (b.at == 0) return a;
    if (a.at == 0) return b;
    const bool better = largest ? b.value >= a.value : b.value <= a.value;
    return better || b.value != b.value ? b : a;
  }
  __device__ Acc take(const job &j, const int64_t *at, int64_t i) const {
    return Acc{read<S, T>(j.x_dtype, j.x, at[1] + i * j.lines.stride[1]), i + 1};
  }
  __device__ void put(const job &j, const int64_t *at, int64_t i, Acc a) const {
    write<S>(j.out_dtype, j.out, at[0] + i * j.lines.stride[0], a.value);
    j.places[at[2] + i * j.lines.stride[2]] = a.at;
  }
};

// The gradient of running products is dx_i = L_i R_i: L_i = x_1 ... x_{i-1}, and R_i = dy_i +
// x_{i+1} R_{i+1} gathers what comes after. Elements of R compose as functions a R + b: from the
// end, where the line runs backwards. dy is view 1, x view 2. No division, so zeros need no care.
namespace {
struct affine {
  double a, b;
  int64_t some; // 0: the function that changes nothing
};
} // namespace
struct right_factors {
  typedef void S;
  typedef affine Acc;
  __device__ Acc none() const { return Acc{1, 0, 0}; }
  __device__ Acc join(Acc f, Acc g) const {
    if (!f.some) return g;
    if (!g.some) return f;
    return Acc{f.a * g.a, g.b + g.a * f.b, 1};
  }
  __device__ Acc take(const job &j, const int64_t *at, int64_t i) const {
    const double b = k_get<double>(j.dy_dtype, j.dy, at[1] + i * j.lines.stride[1]);
    const double a =
        i == 0 ? 0 : k_get<double>(j.x_dtype, j.x, at[2] + (i - 1) * j.lines.stride[2]);
    return Acc{a, b, 1};
  }
  __device__ void put(const job &j, const int64_t *at, int64_t i, Acc f) const {
    k_put(j.out_dtype, j.out, at[0] + i * j.lines.stride[0], f.b);
  }
};
// L R: R is view 1 (`dy`), x view 2.
struct left_factors {
  typedef void S;
  typedef double Acc;
  __device__ Acc none() const { return 1; }
  __device__ Acc join(Acc a, Acc b) const { return a * b; }
  __device__ Acc take(const job &j, const int64_t *at, int64_t i) const {
    return i == 0 ? 1 : k_get<double>(j.x_dtype, j.x, at[2] + (i - 1) * j.lines.stride[2]);
  }
  __device__ void put(const job &j, const int64_t *at, int64_t i, Acc left) const {
    const double right = k_get<double>(j.dy_dtype, j.dy, at[1] + i * j.lines.stride[1]);
    k_put(j.out_dtype, j.out, at[0] + i * j.lines.stride[0], left * right);
  }
};

// ---------------------------------------------------------------------------------------------
// The scan

enum { BY_THREAD, BY_WARP, BY_BLOCK };

// What the threads of the warp or block before this one came to, and all together. `shared` has
// room for two times WARPS; `turn` counts the calls.
template <int by, class Op>
__device__ inline typename Op::Acc group_scan(const Op &op, typename Op::Acc v,
                                              typename Op::Acc *shared, int *turn,
                                              typename Op::Acc *all) {
  typedef typename Op::Acc Acc;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
  for (int n = 1; n < 32; n *= 2) {
    const Acc before = k_shuffle_up(v, n);
    if (lane >= n) v = op.join(before, v);
  }
  Acc before = k_shuffle_up(v, 1);
  if (lane == 0) before = op.none();
  const Acc total = k_shuffle_from(v, 31);
  if (by == BY_WARP) {
    *all = total;
    return before;
  }
  // Two halves in turn: nobody is two calls ahead of another.
  Acc *half = shared + (*turn & 1) * WARPS;
  *turn += 1;
  if (lane == 0) half[warp] = total;
  __syncthreads();
  Acc sum = op.none(), first = op.none();
#pragma unroll
  for (int w = 0; w < WARPS; w++) {
    if (w == warp) first = sum;
    sum = op.join(sum, half[w]);
  }
  *all = sum;
  return op.join(first, before);
}

template <class Op>
__device__ inline void take_items(const Op &op, const job &j, const int64_t *at, bool dense,
                                  int64_t i, int64_t end, typename Op::Acc *v) {
  if constexpr (!std::is_void<typename Op::S>::value) {
    if (dense && i + ITEMS <= end) {
      typename Op::S s[ITEMS];
      wide<typename Op::S>::load(j.x, at[1] + i, s);
#pragma unroll
      for (int k = 0; k < ITEMS; k++) v[k] = static_cast<typename Op::Acc>(k_widen(s[k]));
      return;
    }
  }
#pragma unroll
  for (int k = 0; k < ITEMS; k++) v[k] = i + k < end ? op.take(j, at, i + k) : op.none();
}

template <class Op>
__device__ inline void put_items(const Op &op, const job &j, const int64_t *at, bool dense,
                                 int64_t i, int64_t end, const typename Op::Acc *v) {
  if constexpr (!std::is_void<typename Op::S>::value) {
    if (dense && i + ITEMS <= end) {
      typedef typename Op::S S;
      S s[ITEMS];
#pragma unroll
      for (int k = 0; k < ITEMS; k++) s[k] = k_narrow<S>(static_cast<k_computed<S>>(v[k]));
      wide<S>::store(j.out, at[0] + i, s);
      return;
    }
  }
#pragma unroll
  for (int k = 0; k < ITEMS; k++)
    if (i + k < end) op.put(j, at, i + k, v[k]);
}

// Elements [begin, end) of a line, with `carry` before them; what that comes to at the end.
template <class Op, int by>
__device__ inline typename Op::Acc run(const Op &op, const job &j, const int64_t *at, int64_t begin,
                                       int64_t end, typename Op::Acc carry, bool write,
                                       typename Op::Acc *shared, int *turn) {
  typedef typename Op::Acc Acc;
  Acc v[ITEMS];
  if (by == BY_THREAD) {
    for (int64_t i = begin; i < end; i += ITEMS) {
      take_items(op, j, at, false, i, end, v);
#pragma unroll
      for (int k = 0; k < ITEMS; k++) v[k] = carry = op.join(carry, v[k]);
      if (write) put_items(op, j, at, false, i, end, v);
    }
    return carry;
  }
  bool dense_x = false, dense_out = false;
  if constexpr (!std::is_void<typename Op::S>::value) {
    typedef wide<typename Op::S> W;
    dense_x = W::fits(j.x, at[1] + begin, j.lines.stride[1]);
    dense_out = W::fits(j.out, at[0] + begin, j.lines.stride[0]);
  }
  const int64_t me = by == BY_WARP ? threadIdx.x & 31 : threadIdx.x;
  const int64_t tile = (by == BY_WARP ? 32 : BLOCK) * ITEMS;
  for (int64_t t = begin; t < end; t += tile) {
    const int64_t i = t + me * ITEMS;
    take_items(op, j, at, dense_x, i, end, v);
#pragma unroll
    for (int k = 1; k < ITEMS; k++) v[k] = op.join(v[k - 1], v[k]);
    Acc all;
    const Acc before = op.join(carry, group_scan<by>(op, v[ITEMS - 1], shared, turn, &all));
    carry = op.join(carry, all);
    if (!write) continue;
#pragma unroll
    for (int k = 0; k < ITEMS; k++) v[k] = op.join(before, v[k]);
    put_items(op, j, at, dense_out, i, end, v);
  }
  return carry;
}

// With `write` results; without it what each piece comes to.
template <class Op, int by>
__global__ void __launch_bounds__(BLOCK) k_scan(Op op, job j, bool write) {
  typedef typename Op::Acc Acc;
  __shared__ __align__(16) unsigned char raw[by == BY_BLOCK ? 2 * WARPS * sizeof(Acc) : 16];
  Acc *shared = reinterpret_cast<Acc *>(raw), *totals = static_cast<Acc *>(j.totals);
  int turn = 0;
  const int64_t lines = j.lines.outer.numel, jobs = lines * j.pieces;
  const int64_t first = by == BY_THREAD ? k_index()
                        : by == BY_WARP
                            ? static_cast<int64_t>(blockIdx.x) * WARPS + (threadIdx.x >> 5)
                            : blockIdx.x;
  const int64_t next = by == BY_THREAD ? k_stride()
                       : by == BY_WARP ? static_cast<int64_t>(gridDim.x) * WARPS
                                       : gridDim.x;
  const bool leader = by == BY_THREAD || (by == BY_BLOCK && threadIdx.x == 0);
  for (int64_t n = first; n < jobs; n += next) {
    const int64_t line = n % lines, piece = n / lines, begin = piece * j.step;
    const int64_t end = begin + j.step < j.lines.length ? begin + j.step : j.lines.length;
    int64_t at[3];
    k_offsets<3>(j.lines.outer, line, at);
    Acc carry = op.none();
    if (by == BY_THREAD && write)
      for (int64_t p = 0; p < piece; p++) carry = op.join(carry, totals[p * lines + line]);
    if (by == BY_BLOCK && write)
      for (int64_t p = 0; p < piece; p += BLOCK) {
        const int64_t mine = p + threadIdx.x;
        Acc all;
        group_scan<by>(op, mine < piece ? totals[mine * lines + line] : op.none(), shared, &turn,
                       &all);
        carry = op.join(carry, all);
      }
    carry = run<Op, by>(op, j, at, begin, end, carry, write, shared, &turn);
    if (!write && leader) totals[piece * lines + line] = carry;
  }
}

// ---------------------------------------------------------------------------------------------

static int by_of(const job *j) {
  if (j->lines.columns || j->lines.length <= 32) return BY_THREAD;
  return j->lines.length > 1024 ? BY_BLOCK : BY_WARP;
}

// Sets the lines and pieces of a job; views[0] is dense. Fails not: there is an element.
static void start(const cnn_call *call, job *j, int64_t dim, const cnn_view *const *views, int n) {
  cuda_lines_make(&j->lines, static_cast<int>(dim < 0 ? dim + views[0]->ndim : dim), views, n);
  const int by = by_of(j);
  const int64_t lines = j->lines.outer.numel, length = j->lines.length;
  const int64_t room = cuda_processors(call) * (by == BY_THREAD ? 1024 : 4) / lines;
  const int64_t most = by == BY_THREAD  ? (length / 64 < 512 ? length / 64 : 512)
                       : by == BY_BLOCK ? length / 4096
                                        : 1;
  const int64_t unit = by == BY_THREAD ? ITEMS : ITEMS * BLOCK;
  int64_t pieces = room < most ? room : most;
  if (pieces < 1) pieces = 1;
  j->step = ((length + pieces - 1) / pieces + unit - 1) / unit * unit;
  j->pieces = (length + j->step - 1) / j->step;
}

static size_t totals_bytes(const job *j, size_t acc) {
  return j->pieces > 1 ? static_cast<size_t>(j->pieces * j->lines.outer.numel) * acc : 0;
}

template <int by, class Op> static cnn_status launch_by(const cnn_call *call, Op op, const job &j) {
  const int64_t jobs = j.lines.outer.numel * j.pieces;
  const int64_t each = by == BY_THREAD ? BLOCK : by == BY_WARP ? WARPS : 1;
  const int64_t wanted = (jobs + each - 1) / each;
  const int64_t most = static_cast<int64_t>(cuda_processors(call)) * 32;
  const unsigned grid = static_cast<unsigned>(wanted < most ? wanted : most);
  if (j.pieces > 1) CNN_TRY(CUDA_LAUNCH(call, (k_scan<Op, by>), grid, BLOCK, 0, op, j, false));
  return CUDA_LAUNCH(call, (k_scan<Op, by>), grid, BLOCK, 0, op, j, true);
}
template <class Op> static cnn_status launch(const cnn_call *call, Op op, const job &j) {
  switch (by_of(&j)) {
  case BY_THREAD: return launch_by<BY_THREAD>(call, op, j);
  case BY_WARP: return launch_by<BY_WARP>(call, op, j);
  default: return launch_by<BY_BLOCK>(call, op, j);
  }
}

// Lines run from the other end.
static void reverse(job *j, int view, const void **data, cnn_dtype dtype) {
  const int64_t back = (j->lines.length - 1) * j->lines.stride[view];
  *data = static_cast<const char *>(*data) + back * static_cast<int64_t>(cnn_dtype_size(dtype));
  j->lines.stride[view] = -j->lines.stride[view];
}

// out, x, and positions where there are any.
static void start_values(const cnn_call *call, job *j) {
  const cnn_view *views[] = {&call->out[0], &call->in[0], call->n_out > 1 ? &call->out[1] : NULL};
  start(call, j, call->args[1].i, views, call->n_out + 1);
  j->out = call->out[0].data;
  j->x = call->in[0].data;
  j->out_dtype = call->out[0].dtype;
  j->x_dtype = call->in[0].dtype;
  if (call->n_out > 1) j->places = static_cast<int64_t *>(call->out[1].data);
  j->totals = call->scratch;
}

static cnn_status plan_values(cnn_call *call) {
  job j = {};
  if (cnn_view_numel(&call->out[0]) == 0) return CNN_OK;
  start_values(call, &j);
  call->scratch_bytes = totals_bytes(&j, call->n_out > 1 ? sizeof(place<double>) : sizeof(double));
  return CNN_OK;
}

template <bool backwards> static cnn_status run_sum(cnn_call *call) {
  job j = {};
  if (cnn_view_numel(&call->out[0]) == 0) return CNN_OK;
  start_values(call, &j);
  if (backwards) {
    const void *out = j.out;
    reverse(&j, 0, &out, j.out_dtype);
    reverse(&j, 1, &j.x, j.x_dtype);
    j.out = const_cast<void *>(out);
  }
  if (j.out_dtype == j.x_dtype) switch (j.out_dtype) {
    case CNN_F32: return launch(call, running<float, double, false>(), j);
    case CNN_F64: return launch(call, running<double, double, false>(), j);
    case CNN_F16: return launch(call, running<k_f16, double, false>(), j);
    case CNN_BF16: return launch(call, running<k_bf16, double, false>(), j);
    case CNN_I64: return launch(call, running<int64_t, uint64_t, false>(), j);
    default: break;
    }
  if (cnn_dtype_is_float(j.out_dtype)) return launch(call, running<void, double, false>(), j);
  return launch(call, running<void, uint64_t, false>(), j);
}

static cnn_status run_product(cnn_call *call) {
  job j = {};
  if (cnn_view_numel(&call->out[0]) == 0) return CNN_OK;
  start_values(call, &j);
  if (cnn_dtype_is_float(j.out_dtype)) return launch(call, running<void, double, true>(), j);
  return launch(call, running<void, uint64_t, true>(), j);
}

template <bool largest> static cnn_status run_extreme(cnn_call *call) {
  job j = {};
  if (cnn_view_numel(&call->out[0]) == 0) return CNN_OK;
  start_values(call, &j);
  if (cnn_dtype_is_float(j.out_dtype)) return launch(call, extreme<double, largest>(), j);
  return launch(call, extreme<int64_t, largest>(), j);
}

CUDA_KERNEL(cumsum, plan_values, run_sum<false>)
CUDA_KERNEL(cumsum_backward, plan_values, run_sum<true>)
CUDA_KERNEL(cumprod, plan_values, run_product)
CUDA_KERNEL(cummax, plan_values, run_extreme<true>)
CUDA_KERNEL(cummin, plan_values, run_extreme<false>)

// cumprod_backward(dy, x, dim): R into the result, or a half type's into scratch; then L R.
static void start_backward(const cnn_call *call, job *right, job *left) {
  const cnn_view *out = &call->out[0], *dy = &call->in[0], *x = &call->in[1];
  const bool half = cnn_dtype_is_half(out->dtype);
  const cnn_view *first[] = {out, dy, x}, *second[] = {out, out, x}; // R lies like the result
  start(call, right, call->args[2].i, first, 3);
  start(call, left, call->args[2].i, second, 3);
  const size_t totals = (totals_bytes(right, sizeof(affine)) + 15) & ~static_cast<size_t>(15);
  right->totals = left->totals = call->scratch;
  right->out = !half           ? out->data
               : call->scratch ? static_cast<char *>(call->scratch) + totals
                               : nullptr;
  right->out_dtype = cnn_dtype_computed(out->dtype);
  right->dy = dy->data;
  right->dy_dtype = dy->dtype;
  left->out = out->data;
  left->out_dtype = out->dtype;
  left->dy = right->out;
  left->dy_dtype = right->out_dtype;
  right->x = left->x = x->data;
  right->x_dtype = left->x_dtype = x->dtype;
}

static cnn_status plan_cumprod_backward(cnn_call *call) {
  job right = {}, left = {};
  const size_t numel = static_cast<size_t>(cnn_view_numel(&call->out[0]));
  if (numel == 0) return CNN_OK;
  start_backward(call, &right, &left);
  call->scratch_bytes = (totals_bytes(&right, sizeof(affine)) + 15) & ~static_cast<size_t>(15);
  if (cnn_dtype_is_half(call->out[0].dtype)) call->scratch_bytes += numel * sizeof(float);
  return CNN_OK;
}

static cnn_status run_cumprod_backward(cnn_call *call) {
  job right = {}, left = {};
  if (cnn_view_numel(&call->out[0]) == 0) return CNN_OK;
  start_backward(call, &right, &left);
  const void *to = right.out;
  reverse(&right, 0, &to, right.out_dtype);
  reverse(&right, 1, &right.dy, right.dy_dtype);
  reverse(&right, 2, &right.x, right.x_dtype);
  right.out = const_cast<void *>(to);
  CNN_TRY(launch(call, right_factors(), right));
  return launch(call, left_factors(), left);
}

CUDA_KERNEL(cumprod_backward, plan_cumprod_backward, run_cumprod_backward)
