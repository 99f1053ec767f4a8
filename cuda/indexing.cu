// SPDX-License-Identifier: MIT
// Reading is one kernel: a thread for each element, or 16 bytes of a row, of the space.
//
// Writing and adding may meet one place of x several times. Dims of the space in which that can
// happen are sorted: each of their points gets a key, its place in x, and keys are sorted stably
// (pairs.cu); then each run of equal keys is written, or summed, by the threads
// of the other, free dims. So results don't depend on the order in which threads run, and no
// floating point atomics are needed. Where no place can occur twice nothing is sorted.
//
// What limits them is memory: o and x once each, and the indices; and what sorting takes.
#include "indexing.cuh"

#include "pairs.cuh"

#define PIECE 32 // sorted keys after which the sum of a run is cut
#define WALKS 3  // index tensors 0, 1; 2 to 5; 6, 7

// ---------------------------------------------------------------------------------------------
// Places

typedef struct index_data {
  const void *data;
  int64_t size, step;
  cnn_dtype dtype;
  int dim;
} index_data;

typedef struct space {
  int n;
  cuda_walk walk[WALKS]; // views of the first: x, o, indices 0 and 1; of the others: indices
  index_data index[CNN_MAX_DIMS];
  int64_t left_out; // of index 0
  cuda_fault *fault;
  int op;
} space;

__device__ static inline bool take_index(const space &s, int k, int64_t at, int64_t *x) {
  const index_data &d = s.index[k];
  const int64_t value = k_get<int64_t>(d.dtype, d.data, at);
  if (k == 0 && s.left_out > 0 && value == s.left_out) return false;
  const int64_t p = k_position(s.fault, s.op, value, d.size, d.dim);
  *x += p * d.step;
  return p >= 0;
}

// The offsets of point i in x and o; false where there is nothing to be done: for the position left
// out, and (after a report) where an index is out of range.
__device__ static inline bool find(const space &s, int64_t i, int64_t *x, int64_t *o) {
  int64_t at[4];
  bool good = true;
  if (s.n < 2)
    k_offsets<3>(s.walk[0], i, at);
  else
    k_offsets<4>(s.walk[0], i, at);
  *x = at[0];
  *o = at[1];
  if (s.n > 0) good = take_index(s, 0, at[2], x);
  if (s.n > 1) good = take_index(s, 1, at[3], x) && good;
  for (int w = 1; 4 * w - 2 < s.n; w++) {
    k_offsets<4>(s.walk[w], i, at);
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (4 * w - 2 + j < s.n) good = take_index(s, 4 * w - 2 + j, at[j], x) && good;
  }
  return good;
}

template <class U> __global__ void __launch_bounds__(K_BLOCK) k_read(space s, const U *x, U *o) {
  for (int64_t i = k_index(); i < s.walk[0].numel; i += k_stride()) {
    int64_t from, to;
    U v = U();
    if (find(s, i, &from, &to)) v = x[from];
    o[to] = v;
  }
}

// Nothing but reports.
static __global__ void __launch_bounds__(K_BLOCK) k_check(space s) {
  for (int64_t i = k_index(); i < s.walk[0].numel; i += k_stride()) {
    int64_t x, o;
    find(s, i, &x, &o);
  }
}

template <class U>
__global__ void __launch_bounds__(K_BLOCK) k_write(space s, U *x, const U *o, U number) {
  if (k_reported(s.fault)) return;
  for (int64_t i = k_index(); i < s.walk[0].numel; i += k_stride()) {
    int64_t to, from;
    if (find(s, i, &to, &from)) x[to] = o ? o[from] : number;
  }
}

// ---------------------------------------------------------------------------------------------
// Sums: what is stored, and in what it is added

template <class S> struct sums {
  typedef k_computed<S> T; // integers come as unsigned ones, and wrap
  __device__ static T add(T a, T b) { return static_cast<T>(a + b); }
};
template <> struct sums<k_bool> {
  typedef uint8_t T;
  __device__ static T add(T a, T b) { return a | b; }
};

template <class F> static cnn_status by_sum(const cnn_call *call, cnn_dtype dtype, F f) {
  if (dtype == CNN_BOOL) return f(k_tag<k_bool>());
  if (cnn_dtype_is_float(dtype)) return k_by_float(call, dtype, f);
  return k_by_size(call, dtype, f);
}

template <class S>
__global__ void __launch_bounds__(K_BLOCK) k_add(space s, S *x, const S *o, S number) {
  if (k_reported(s.fault)) return;
  for (int64_t i = k_index(); i < s.walk[0].numel; i += k_stride()) {
    int64_t to, from;
    if (find(s, i, &to, &from))
      x[to] = k_narrow<S>(sums<S>::add(k_widen(x[to]), k_widen(o ? o[from] : number)));
  }
}

// ---------------------------------------------------------------------------------------------
// Points to be sorted

// Key: the place in x, by `unit` elements; `bound`, which is larger than all, where nothing is to
// be done. Value: the offset in o.
static __global__ void __launch_bounds__(K_BLOCK)
    k_keys(space s, cuda_pairs to, int64_t unit, int64_t bound) {
  for (int64_t i = k_index(); i < s.walk[0].numel; i += k_stride()) {
    int64_t x, o;
    const bool good = find(s, i, &x, &o);
    const int64_t key = !good ? bound : unit == 1 ? x : x / unit;
    k_set_word(to.wide, to.keys, i, static_cast<uint64_t>(key));
    k_set_word(to.wide, to.values, i, static_cast<uint64_t>(o));
  }
}

// ---------------------------------------------------------------------------------------------
// Runs of equal keys

typedef struct runs {
  cuda_pairs pairs; // sorted
  int64_t unit, bound;
  cuda_walk free; // of x and o
  void *x;
  const void *o;
  uint64_t number;
  void *partial; // [ceil(n / PIECE)][2][free.numel]
  const cuda_fault *fault;
} runs;

__device__ static inline uint64_t key_of(const runs &r, int64_t i) {
  return k_word(r.pairs.wide, r.pairs.keys, i);
}
__device__ static inline int64_t value_of(const runs &r, int64_t i) {
  return static_cast<int64_t>(k_word(r.pairs.wide, r.pairs.values, i));
}

template <class U> __device__ static inline U element_of(uint64_t number) {
  U v;
  memcpy(static_cast<void *>(&v), &number, sizeof v < sizeof number ? sizeof v : sizeof number);
  return v;
}

// The last of each run stays.
template <class U> __global__ void __launch_bounds__(K_BLOCK) k_write_runs(runs r) {
  if (k_reported(r.fault)) return;
  for (int64_t i = k_index(); i < r.pairs.n * r.free.numel; i += k_stride()) {
    int64_t j = i, at[2];
    const int64_t f = k_digit(&j, r.free.numel);
    const uint64_t key = key_of(r, j);
    if (key >= static_cast<uint64_t>(r.bound)) continue;
    if (j + 1 < r.pairs.n && key_of(r, j + 1) == key) continue;
    k_offsets<2>(r.free, f, at);
    static_cast<U *>(r.x)[static_cast<int64_t>(key) * r.unit + at[0]] =
        r.o ? static_cast<const U *>(r.o)[value_of(r, j) + at[1]] : element_of<U>(r.number);
  }
}

template <class S, int N> using pack_of_sums = k_pack<typename sums<S>::T, N>;

template <class S, int N>
__device__ static inline void add_to(pack_of_sums<S, N> *a, const pack_of_sums<S, N> &b) {
#pragma unroll
  for (int k = 0; k < N; k++) a->v[k] = sums<S>::add(a->v[k], b.v[k]);
}

template <class S, int N>
__device__ static inline void add_home(const runs &r, uint64_t key, int64_t f,
                                       const pack_of_sums<S, N> &sum) {
  k_pack<S, N> *x = static_cast<k_pack<S, N> *>(r.x) + static_cast<int64_t>(key) * r.unit + f;
  k_pack<S, N> v = *x;
#pragma unroll
  for (int k = 0; k < N; k++) v.v[k] = k_narrow<S>(sums<S>::add(k_widen(v.v[k]), sum.v[k]));
  *x = v;
}

// A run that lies within PIECE keys is done; of a longer one there is a partial sum for each piece:
// slot 1 where the run begins in the piece, else slot 0.
template <class S, int N> __global__ void __launch_bounds__(K_BLOCK) k_add_runs(runs r) {
  typedef typename sums<S>::T T;
  if (k_reported(r.fault)) return;
  const int64_t width = r.free.numel;
  for (int64_t i = k_index(); i < r.pairs.n * width; i += k_stride()) {
    int64_t j = i, at[2];
    const int64_t f = k_digit(&j, width), piece = j / PIECE;
    const uint64_t key = key_of(r, j);
    const bool first = j == 0 || key_of(r, j - 1) != key;
    if (key >= static_cast<uint64_t>(r.bound) || (!first && j != piece * PIECE)) continue;
    const int64_t end = (piece + 1) * PIECE < r.pairs.n ? (piece + 1) * PIECE : r.pairs.n;
    k_offsets<2>(r.free, f, at);
    pack_of_sums<S, N> sum;
#pragma unroll
    for (int k = 0; k < N; k++) sum.v[k] = 0;
    int64_t e = j;
    for (; e < end && (e == j || key_of(r, e) == key); e++) {
      k_pack<S, N> v;
      if (r.o) {
        v = static_cast<const k_pack<S, N> *>(r.o)[value_of(r, e) + at[1]];
      } else {
#pragma unroll
        for (int k = 0; k < N; k++) v.v[k] = element_of<S>(r.number);
      }
#pragma unroll
      for (int k = 0; k < N; k++)
        sum.v[k] = sums<S>::add(sum.v[k], static_cast<T>(k_widen(v.v[k])));
    }
    const bool last = e < end || e == r.pairs.n || key_of(r, e) != key;
    if (first && last)
      add_home<S, N>(r, key, at[0], sum);
    else
      static_cast<pack_of_sums<S, N> *>(r.partial)[(piece * 2 + first) * width + f] = sum;
  }
}

// A thread for each run of several pieces, from the piece in which it begins.
template <class S, int N> __global__ void __launch_bounds__(K_BLOCK) k_add_long(runs r) {
  if (k_reported(r.fault)) return;
  const int64_t width = r.free.numel, pieces = (r.pairs.n + PIECE - 1) / PIECE;
  const pack_of_sums<S, N> *partial = static_cast<const pack_of_sums<S, N> *>(r.partial);
  for (int64_t i = k_index(); i < (pieces - 1) * width; i += k_stride()) {
    int64_t piece = i, at[2];
    const int64_t f = k_digit(&piece, width);
    int64_t end = (piece + 1) * PIECE;
    const uint64_t key = key_of(r, end - 1);
    if (key >= static_cast<uint64_t>(r.bound) || key_of(r, end) != key) continue;
    if (piece > 0 && key_of(r, piece * PIECE - 1) == key) continue;
    pack_of_sums<S, N> sum = partial[(piece * 2 + 1) * width + f];
    do {
      piece++;
      end += PIECE;
      add_to<S, N>(&sum, partial[piece * 2 * width + f]);
    } while (end < r.pairs.n && key_of(r, end - 1) == key && key_of(r, end) == key);
    k_offsets<2>(r.free, f, at);
    add_home<S, N>(r, key, at[0], sum);
  }
}

// ---------------------------------------------------------------------------------------------
// Descriptions

void cuda_indexing_begin(cuda_indexing *ix, const cnn_view *x) {
  *ix = cuda_indexing();
  ix->x = x->data;
  ix->dtype = x->dtype;
}

void cuda_indexing_other(cuda_indexing *ix, const cnn_view *o, const int64_t *strides) {
  const bool number = cnn_view_is_number(o);
  ix->o = number ? nullptr : o->data;
  if (number) memcpy(&ix->number, o->data, cnn_dtype_table[o->dtype].bits / 8);
  for (int d = 0; d < ix->ndim; d++) ix->o_strides[d] = number ? 0 : strides[d];
}

// Drops dims of size 1, and joins those that are one run in x, o and all index tensors.
static void simplify(cuda_indexing *ix) {
  int n = 0;
  for (int d = 0; d < ix->ndim; d++) {
    const int64_t size = ix->shape[d];
    if (size == 1) continue;
    const int p = n - 1;
    bool joins = n > 0 && ix->x_strides[p] == ix->x_strides[d] * size &&
                 ix->o_strides[p] == ix->o_strides[d] * size;
    for (int k = 0; k < ix->n && joins; k++)
      joins = ix->index[k].strides[p] == ix->index[k].strides[d] * size;
    const int to = joins ? p : n++;
    ix->shape[to] = joins ? ix->shape[p] * size : size;
    ix->x_strides[to] = ix->x_strides[d];
    ix->o_strides[to] = ix->o_strides[d];
    for (int k = 0; k < ix->n; k++) ix->index[k].strides[to] = ix->index[k].strides[d];
  }
  ix->ndim = n;
}

// Takes r elements of rows as one, where that is possible: all strides, steps and addresses are
// multiples.
static bool pack(cuda_indexing *ix, int r) {
  const size_t bytes = static_cast<size_t>(r) * cnn_dtype_table[ix->dtype].bits / 8;
  const int last = ix->ndim - 1;
  if (last < 0 || ix->x_strides[last] != 1 || !ix->o || ix->o_strides[last] != 1) return false;
  if (ix->shape[last] % r != 0 || !k_aligned(ix->x, bytes) || !k_aligned(ix->o, bytes))
    return false;
  for (int k = 0; k < ix->n; k++)
    if (ix->index[k].strides[last] != 0 || ix->index[k].step % r != 0) return false;
  for (int d = 0; d < last; d++)
    if (ix->x_strides[d] % r != 0 || ix->o_strides[d] % r != 0) return false;
  for (int d = 0; d < last; d++) {
    ix->x_strides[d] /= r;
    ix->o_strides[d] /= r;
  }
  for (int k = 0; k < ix->n; k++) ix->index[k].step /= r;
  ix->shape[last] /= r;
  return true;
}

// The most bytes that can be moved at once.
static int pack_widest(cuda_indexing *ix) {
  const int size = cnn_dtype_table[ix->dtype].bits / 8;
  for (int width = 16; width > size; width /= 2)
    if (pack(ix, width / size)) return width;
  return size;
}

template <class F> static cnn_status by_width(int width, F f) {
  switch (width) {
  case 1: return f(k_tag<uint8_t>());
  case 2: return f(k_tag<uint16_t>());
  case 4: return f(k_tag<uint32_t>());
  case 8: return f(k_tag<uint64_t>());
  default: return f(k_tag<k_pack<uint32_t, 4>>());
  }
}

static int64_t numel_of(const cuda_indexing *ix) {
  int64_t n = 1;
  for (int d = 0; d < ix->ndim; d++) n *= ix->shape[d];
  return n;
}

// Walks over the dims whose bits are set, in their order.
static void make_space(space *s, const cnn_call *call, const cuda_indexing *ix, uint32_t dims) {
  int64_t shape[CNN_MAX_DIMS], strides[2 + CNN_MAX_DIMS][CNN_MAX_DIMS];
  cnn_view views[2 + CNN_MAX_DIMS];
  const cnn_view *pointers[2 + CNN_MAX_DIMS];
  int ndim = 0;
  for (int d = 0; d < ix->ndim; d++) {
    if (!(dims >> d & 1)) continue;
    shape[ndim] = ix->shape[d];
    strides[0][ndim] = ix->x_strides[d];
    strides[1][ndim] = ix->o_strides[d];
    for (int k = 0; k < CNN_MAX_DIMS; k++)
      strides[2 + k][ndim] = k < ix->n ? ix->index[k].strides[d] : 0;
    ndim++;
  }
  for (int k = 0; k < 2 + CNN_MAX_DIMS; k++) {
    views[k].data = nullptr;
    views[k].shape = shape;
    views[k].strides = strides[k];
    views[k].ndim = ndim;
    views[k].dtype = ix->dtype;
    pointers[k] = &views[k];
  }
  s->n = ix->n;
  s->left_out = ix->left_out;
  s->fault = cuda_fault_of(call);
  s->op = cuda_fault_op(call);
  cuda_walk_ordered(&s->walk[0], ndim, shape, pointers, 4);
  cuda_walk_ordered(&s->walk[1], ndim, shape, pointers + 4, 4);
  cuda_walk_ordered(&s->walk[2], ndim, shape, pointers + 8, 2);
  for (int k = 0; k < ix->n; k++) {
    s->index[k].data = ix->index[k].data;
    s->index[k].dtype = ix->index[k].dtype;
    s->index[k].size = ix->index[k].size;
    s->index[k].step = ix->index[k].step;
    s->index[k].dim = ix->index[k].dim;
  }
}

// The dims along which index tensors vary, or x has no stride.
static uint32_t indexed_dims(const cuda_indexing *ix) {
  uint32_t dims = 0;
  for (int d = 0; d < ix->ndim; d++) {
    bool varies = ix->x_strides[d] == 0;
    for (int k = 0; k < ix->n; k++) varies = varies || ix->index[k].strides[d] != 0;
    if (varies) dims |= 1u << d;
  }
  return dims;
}

static int64_t divisor(int64_t a, int64_t b) {
  while (b) {
    const int64_t r = a % b;
    a = b;
    b = r;
  }
  return a;
}

// Without index tensors: the dims of an x that may overlap itself whose coordinate the offset alone
// does not tell. It tells that of dim d where the dims with smaller strides don't reach to the next
// step, and larger strides are multiples of more than all of these span.
static uint32_t overlapping_dims(const cuda_indexing *ix) {
  uint32_t dims = 0;
  for (int d = 0; d < ix->ndim; d++) {
    const int64_t step = ix->x_strides[d];
    int64_t below = 0, above = 0;
    for (int k = 0; k < ix->ndim; k++) {
      if (k == d) continue;
      if (ix->x_strides[k] <= step)
        below += (ix->shape[k] - 1) * ix->x_strides[k];
      else
        above = divisor(ix->x_strides[k], above);
    }
    const int64_t reach = below + (ix->shape[d] - 1) * step;
    if (below >= step || (above > 0 && above <= reach)) dims |= 1u << d;
  }
  return dims;
}

// The dims that are to be sorted; 0 where no place can occur twice: x's own dims tell places apart.
static uint32_t sorted_dims(const cuda_indexing *ix) {
  if (ix->n == 0) return overlapping_dims(ix);
  if (ix->distinct) return 0;
  const uint32_t dims = indexed_dims(ix);
  for (int d = 0; d < ix->ndim; d++)
    if (dims >> d & 1 && ix->x_strides[d] == 0) return dims;
  return 0;
}

// What sorting needs to know.
typedef struct sort {
  uint32_t dims;
  int64_t n, width; // keys; elements behind each
  int64_t unit, bound;
  bool wide;
} sort;

static void describe_sort(sort *s, const cuda_indexing *ix) {
  int64_t x = 0, o = 0, all = 0;
  s->dims = sorted_dims(ix);
  s->n = s->width = 1;
  s->unit = 0;
  for (int d = 0; d < ix->ndim; d++) {
    all += (ix->shape[d] - 1) * ix->o_strides[d];
    if (!(s->dims >> d & 1)) {
      s->width *= ix->shape[d];
      continue;
    }
    s->n *= ix->shape[d];
    x += (ix->shape[d] - 1) * ix->x_strides[d];
    o += (ix->shape[d] - 1) * ix->o_strides[d];
    s->unit = divisor(ix->x_strides[d], s->unit);
  }
  for (int k = 0; k < ix->n; k++) {
    if (ix->index[k].size > 0) x += (ix->index[k].size - 1) * ix->index[k].step;
    s->unit = divisor(ix->index[k].step, s->unit);
  }
  if (s->unit == 0) s->unit = 1;
  s->bound = x / s->unit + 1;
  s->wide = s->n > UINT32_MAX || s->bound > UINT32_MAX || o > UINT32_MAX || all > UINT32_MAX;
}

size_t cuda_indexing_scratch(const cuda_indexing *ix_) {
  cuda_indexing ix = *ix_;
  sort s;
  if (numel_of(&ix) == 0) return 0;
  simplify(&ix);
  describe_sort(&s, &ix);
  if (s.dims == 0) return 0;
  const size_t size = cnn_dtype_table[cnn_dtype_computed(ix.dtype)].bits / 8;
  return cuda_pairs_scratch(s.n, s.wide) +
         static_cast<size_t>((s.n + PIECE - 1) / PIECE * 2 * s.width) * size;
}

// Sorts the points of the dims, and says where everything is. All indices have been checked when
// what it launches has run.
static cnn_status sort_points(const cnn_call *call, const cuda_indexing *ix, void *scratch,
                              runs *r) {
  sort s;
  space points;
  describe_sort(&s, ix);
  make_space(&points, call, ix, s.dims);
  cuda_pairs pairs = cuda_pairs_at(scratch, s.n, s.wide);
  CNN_TRY(CUDA_LAUNCH(call, k_keys, k_grid(call, s.n), K_BLOCK, 0, points, pairs, s.unit, s.bound));
  CNN_TRY(cuda_pairs_sort(call, &pairs, s.bound, scratch));
  space rest;
  make_space(&rest, call, ix, ~s.dims);
  r->pairs = pairs;
  r->unit = s.unit;
  r->bound = s.bound;
  r->free = rest.walk[0];
  r->x = ix->x;
  r->o = ix->o;
  r->number = ix->number;
  r->partial = static_cast<char *>(scratch) + cuda_pairs_scratch(s.n, s.wide);
  r->fault = rest.fault;
  return CNN_OK;
}

static cnn_status check(const cnn_call *call, const cuda_indexing *ix) {
  space s;
  make_space(&s, call, ix, indexed_dims(ix));
  return CUDA_LAUNCH(call, k_check, k_grid(call, s.walk[0].numel), K_BLOCK, 0, s);
}

cnn_status cuda_indexing_read(const cnn_call *call, const cuda_indexing *ix_) {
  cuda_indexing ix = *ix_;
  simplify(&ix);
  if (numel_of(&ix) == 0) return check(call, &ix);
  const int width = pack_widest(&ix);
  space s;
  make_space(&s, call, &ix, ~0u);
  return by_width(width, [&](auto tag) {
    typedef typename decltype(tag)::type U;
    return CUDA_LAUNCH(call, k_read<U>, k_grid(call, s.walk[0].numel), K_BLOCK, 0, s,
                       static_cast<const U *>(ix.x), static_cast<U *>(ix.o));
  });
}

cnn_status cuda_indexing_write(const cnn_call *call, const cuda_indexing *ix_, void *scratch) {
  cuda_indexing ix = *ix_;
  simplify(&ix);
  if (numel_of(&ix) == 0) return check(call, &ix);
  const bool sorts = sorted_dims(&ix) != 0;
  const int width = pack_widest(&ix);
  if (sorts) {
    runs r;
    CNN_TRY(sort_points(call, &ix, scratch, &r));
    return by_width(width, [&](auto tag) {
      typedef typename decltype(tag)::type U;
      return CUDA_LAUNCH(call, k_write_runs<U>, k_grid(call, r.pairs.n * r.free.numel), K_BLOCK, 0,
                         r);
    });
  }
  space s;
  make_space(&s, call, &ix, ~0u);
  if (!ix.distinct) CNN_TRY(check(call, &ix));
  return by_width(width, [&](auto tag) {
    typedef typename decltype(tag)::type U;
    U number = U();
    memcpy(static_cast<void *>(&number), &ix.number,
           sizeof number < sizeof ix.number ? sizeof number : sizeof ix.number);
    return CUDA_LAUNCH(call, k_write<U>, k_grid(call, s.walk[0].numel), K_BLOCK, 0, s,
                       static_cast<U *>(ix.x), static_cast<const U *>(ix.o), number);
  });
}

template <class S, int N> static cnn_status add_runs(const cnn_call *call, const runs *r) {
  CNN_TRY(CUDA_LAUNCH(call, (k_add_runs<S, N>), k_grid(call, r->pairs.n * r->free.numel), K_BLOCK,
                      0, *r));
  if (r->pairs.n <= PIECE) return CNN_OK;
  const int64_t pieces = (r->pairs.n - 1) / PIECE;
  return CUDA_LAUNCH(call, (k_add_long<S, N>), k_grid(call, pieces * r->free.numel), K_BLOCK, 0,
                     *r);
}

cnn_status cuda_indexing_add(const cnn_call *call, const cuda_indexing *ix_, void *scratch) {
  cuda_indexing ix = *ix_;
  simplify(&ix);
  if (numel_of(&ix) == 0) return check(call, &ix);
  const uint32_t dims = sorted_dims(&ix);
  if (dims == 0) {
    space s;
    make_space(&s, call, &ix, ~0u);
    if (ix.n > 0 && !ix.distinct) CNN_TRY(check(call, &ix));
    return by_sum(call, ix.dtype, [&](auto tag) {
      typedef typename decltype(tag)::type S;
      S number;
      memcpy(static_cast<void *>(&number), &ix.number, sizeof number);
      return CUDA_LAUNCH(call, k_add<S>, k_grid(call, s.walk[0].numel), K_BLOCK, 0, s,
                         static_cast<S *>(ix.x), static_cast<const S *>(ix.o), number);
    });
  }
  const int size = cnn_dtype_table[ix.dtype].bits / 8;
  const bool packs =
      cnn_dtype_is_float(ix.dtype) && !(dims >> (ix.ndim - 1) & 1) && pack(&ix, 16 / size);
  runs r;
  CNN_TRY(sort_points(call, &ix, scratch, &r));
  return by_sum(call, ix.dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    if constexpr (k_is_float<k_computed<S>>::value)
      if (packs) return add_runs<S, 16 / sizeof(S)>(call, &r);
    return add_runs<S, 1>(call, &r);
  });
}
