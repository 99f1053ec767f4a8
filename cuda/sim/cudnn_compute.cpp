// SPDX-License-Identifier: MIT
//
// Graphs of cuDNN by plain loops. Every tensor is a vector of the sums' type in the order of its
// dimensions while the graph runs; those in memory are read and written through their strides,
// virtual ones are rounded to their type and dropped.
#include <string.h>
#include <algorithm>
#include "cudnn_graph.h"

namespace sim {
namespace cudnn {

namespace {

// Calls f(element of the vector, offset in memory) for all of a tensor.
template <typename F> void each(const Tensor &t, F f) {
  int64_t at[CUDNN_DIM_MAX] = {0}, offset = 0, n = t.count();
  for (int64_t i = 0; i < n; i++) {
    f(size_t(i), offset);
    for (int d = t.rank - 1; d >= 0; d--) {
      offset += t.strides[d];
      if (++at[d] < t.dims[d]) break;
      offset -= t.dims[d] * t.strides[d];
      at[d] = 0;
    }
  }
}

// Tells the checker of a tensor in memory: at once where it has no gaps.
void touch(const Tensor &t, char *p, bool write) {
  size_t size = size_of(t.type);
  auto tell = [write](char *at, size_t bytes) {
    if (write)
      sim_touch_write(at, bytes);
    else
      sim_touch_read(at, bytes);
  };
  if (t.span() == t.count())
    tell(p, size_t(t.count()) * size);
  else
    each(t, [&](size_t, int64_t offset) { tell(p + offset * int64_t(size), size); });
}

template <typename T> using Vector = std::vector<T>;

// A tensor of a convolution as (a, b, three sizes).
struct Shape {
  int64_t a, b, s[3];
  int64_t places() const { return s[0] * s[1] * s[2]; }
};

Shape shape_of(const Tensor &t, int spatial) {
  Shape s = {t.dims[0], t.dims[1], {1, 1, 1}};
  for (int i = 0; i < spatial; i++) s.s[3 - spatial + i] = t.dims[2 + i];
  return s;
}

// Where the kernel's tap (of three) meets x: calls f(first place of a row of y, first element of a
// row of x, step in x, places) for every row of y and its part that lies inside of x.
struct Taps {
  Shape x, w, y;
  int64_t stride[3], dilation[3], before[3];

  template <typename F> void rows(const int64_t *tap, F f) const {
    int64_t from = tap[2] * dilation[2] - before[2]; // x at the row's first place
    int64_t first = from >= 0 ? 0 : (-from + stride[2] - 1) / stride[2];
    int64_t last = x.s[2] - 1 - from < 0 ? -1 : (x.s[2] - 1 - from) / stride[2];
    last = std::min(last, y.s[2] - 1);
    if (first > last) return;
    for (int64_t d = 0; d < y.s[0]; d++) {
      int64_t xd = d * stride[0] + tap[0] * dilation[0] - before[0];
      if (xd < 0 || xd >= x.s[0]) continue;
      for (int64_t h = 0; h < y.s[1]; h++) {
        int64_t xh = h * stride[1] + tap[1] * dilation[1] - before[1];
        if (xh < 0 || xh >= x.s[1]) continue;
        f((d * y.s[1] + h) * y.s[2] + first, (xd * x.s[1] + xh) * x.s[2] + first * stride[2] + from,
          stride[2], last - first + 1);
      }
    }
  }
};

template <typename T>
Vector<T> convolve(const Op &op, const Vector<T> &in, const Vector<T> &other) {
  const bool forward = op.kind == Kind::Forward, data = op.kind == Kind::BackwardData;
  const int spatial = op.window.spatial;
  const Tensor &xt = (data ? op.y : op.x)->tensor, &wt = (forward || data ? op.b : op.y)->tensor,
               &yt = (forward ? op.y
                      : data  ? op.x
                              : op.b)
                         ->tensor;
  Taps t;
  t.x = shape_of(xt, spatial), t.w = shape_of(wt, spatial), t.y = shape_of(yt, spatial);
  for (int i = 0; i < 3; i++) t.stride[i] = t.dilation[i] = 1, t.before[i] = 0;
  for (int i = 0; i < spatial; i++) {
    t.stride[3 - spatial + i] = op.window.stride[i];
    t.dilation[3 - spatial + i] = op.window.dilation[i];
    t.before[3 - spatial + i] = op.window.before[i];
  }
  const int64_t cg = t.w.b, groups = t.x.b / cg, kg = t.w.a / groups, taps = t.w.places();
  Vector<T> out(size_t(op.y->tensor.count()), T(0));
  for (int64_t n = 0; n < t.x.a; n++)
    for (int64_t k = 0; k < t.w.a; k++)
      for (int64_t c = 0; c < cg; c++) {
        const size_t xi = size_t((n * t.x.b + k / kg * cg + c) * t.x.places());
        const size_t yi = size_t((n * t.y.b + k) * t.y.places());
        for (int64_t tap = 0; tap < taps; tap++) {
          const int64_t at[3] = {tap / (t.w.s[1] * t.w.s[2]), tap / t.w.s[2] % t.w.s[1],
                                 tap % t.w.s[2]};
          const size_t wi = size_t((k * cg + c) * taps + tap);
          if (forward) {
            const T w = other[wi];
            t.rows(at, [&](int64_t y, int64_t x, int64_t step, int64_t count) {
              T *to = out.data() + yi + y;
              const T *from = in.data() + xi + x;
              for (int64_t i = 0; i < count; i++) to[i] += w * from[i * step];
            });
          } else if (data) {
            const T w = other[wi];
            t.rows(at, [&](int64_t y, int64_t x, int64_t step, int64_t count) {
              const T *from = in.data() + yi + y;
              T *to = out.data() + xi + x;
              for (int64_t i = 0; i < count; i++) to[i * step] += w * from[i];
            });
          } else {
            T image = 0; // one image's part first: shorter sums
            t.rows(at, [&](int64_t y, int64_t x, int64_t step, int64_t count) {
              const T *dy = other.data() + yi + y, *from = in.data() + xi + x;
              T sum = 0;
              for (int64_t i = 0; i < count; i++) sum += dy[i] * from[i * step];
              image += sum;
            });
            out[wi] += image;
          }
        }
      }
  return out;
}

// Element i of a tensor of `to`'s shape in one that is broadcast to it.
size_t broadcast(const Tensor &to, const Tensor &from, size_t i) {
  size_t at = 0, step = 1;
  for (int d = to.rank - 1; d >= 0; d--) {
    size_t here = i % size_t(to.dims[d]);
    i /= size_t(to.dims[d]);
    at += from.dims[d] == 1 ? 0 : here * step;
    step *= size_t(from.dims[d]);
  }
  return at;
}

template <typename T> T apply(const Op &op, T x, T b) {
  const T lower = T(op.lower), upper = T(op.upper), slope = T(op.slope);
  switch (op.mode) {
  case CUDNN_POINTWISE_ADD: return T(op.alpha1) * x + T(op.alpha2) * b;
  case CUDNN_POINTWISE_SUB: return T(op.alpha1) * x - T(op.alpha2) * b;
  case CUDNN_POINTWISE_MUL: return T(op.alpha1) * x * T(op.alpha2) * b;
  case CUDNN_POINTWISE_DIV: return T(op.alpha1) * x / (T(op.alpha2) * b);
  case CUDNN_POINTWISE_MAX: return x > b ? x : b;
  case CUDNN_POINTWISE_MIN: return x < b ? x : b;
  case CUDNN_POINTWISE_IDENTITY: return x;
  case CUDNN_POINTWISE_NEG: return -x;
  case CUDNN_POINTWISE_ABS: return std::fabs(x);
  case CUDNN_POINTWISE_EXP: return std::exp(x);
  case CUDNN_POINTWISE_LOG: return std::log(x);
  case CUDNN_POINTWISE_SQRT: return std::sqrt(x);
  case CUDNN_POINTWISE_RSQRT: return 1 / std::sqrt(x);
  case CUDNN_POINTWISE_RELU_FWD:
    return x > upper ? upper : x > lower ? x : lower + slope * (x - lower); // NaN stays
  case CUDNN_POINTWISE_TANH_FWD: return std::tanh(x);
  case CUDNN_POINTWISE_SIGMOID_FWD: return 1 / (1 + std::exp(-x));
  case CUDNN_POINTWISE_GELU_FWD: return T(0.5) * x * std::erfc(-x * T(0.7071067811865476));
  case CUDNN_POINTWISE_GELU_APPROX_TANH_FWD: return gelu(x);
  // Gradients: x is dy, b the forward's input (its output for tanh and sigmoid).
  case CUDNN_POINTWISE_RELU_BWD: return b > lower && b < upper ? x : b > lower ? T(0) : slope * x;
  case CUDNN_POINTWISE_TANH_BWD: return x * (1 - b * b);
  case CUDNN_POINTWISE_SIGMOID_BWD: return x * b * (1 - b);
  case CUDNN_POINTWISE_GELU_APPROX_TANH_BWD: return x * gelu_slope(b);
  default: return T(NAN); // none passes finalize
  }
}

template <typename T> Vector<T> pointwise(const Op &op, const Vector<T> &x, const Vector<T> *b) {
  const Tensor &y = op.y->tensor;
  Vector<T> out(size_t(y.count()));
  for (size_t i = 0; i < out.size(); i++) {
    out[i] = apply<T>(op, x[broadcast(y, op.x->tensor, i)],
                      b ? (*b)[broadcast(y, op.b->tensor, i)] : T(0));
  }
  return out;
}

template <typename T> Vector<T> matmul(const Op &op, const Vector<T> &a, const Vector<T> &b) {
  const Tensor &at = op.x->tensor, &bt = op.b->tensor, &ct = op.y->tensor;
  const int r = ct.rank;
  const int64_t m = ct.dims[r - 2], n = ct.dims[r - 1], k = at.dims[r - 1];
  Vector<T> out(size_t(ct.count()), T(0));
  for (int64_t c = 0; c < ct.count() / (m * n); c++) {
    int64_t ai = 0, bi = 0, a_step = 1, b_step = 1, left = c;
    for (int d = r - 3; d >= 0; d--) { // fewer matrices serve runs of the batch (grouped heads)
      int64_t here = left % ct.dims[d];
      left /= ct.dims[d];
      ai += here / (ct.dims[d] / at.dims[d]) * a_step;
      bi += here / (ct.dims[d] / bt.dims[d]) * b_step;
      a_step *= at.dims[d], b_step *= bt.dims[d];
    }
    for (int64_t i = 0; i < m; i++)
      for (int64_t kk = 0; kk < k; kk++) {
        const T v = a[size_t((ai * m + i) * k + kk)];
        const T *from = b.data() + (bi * k + kk) * n;
        T *to = out.data() + (c * m + i) * n;
        for (int64_t j = 0; j < n; j++) to[j] += v * from[j];
      }
  }
  return out;
}

template <typename T> Vector<T> reduce(const Op &op, const Vector<T> &x) {
  const Tensor &xt = op.x->tensor, &yt = op.y->tensor;
  Vector<T> out(size_t(yt.count()), T(0));
  std::vector<char> begun(out.size(), 0);
  for (size_t i = 0; i < x.size(); i++) {
    size_t at = broadcast(xt, yt, i);
    bool first = !begun[at];
    begun[at] = 1;
    switch (op.mode) {
    case CUDNN_REDUCE_TENSOR_MAX: out[at] = first || x[i] > out[at] ? x[i] : out[at]; break;
    case CUDNN_REDUCE_TENSOR_MIN: out[at] = first || x[i] < out[at] ? x[i] : out[at]; break;
    default: out[at] += x[i];
    }
  }
  if (op.mode == CUDNN_REDUCE_TENSOR_AVG) {
    for (T &v : out) v /= T(x.size() / out.size());
  }
  return out;
}

template <typename T>
void compute_in(const Desc &graph, int engine, const std::map<int64_t, char *> &memory) {
  std::map<const Desc *, Vector<T>> vectors;
  auto value = [&](const Ref &r, bool round) -> const Vector<T> & {
    auto found = vectors.find(r.get());
    if (found == vectors.end()) {
      const Tensor &t = r->tensor;
      char *p = memory.at(t.id);
      found = vectors.emplace(r.get(), Vector<T>(size_t(t.count()))).first;
      touch(t, p, false);
      each(t, [&](size_t i, int64_t offset) { found->second[i] = load<T>(t.type, p, offset); });
    }
    if (round && r->tensor.type == Elem::F32) {
      for (T &v : found->second) v = T(tf32_of_float(float(v)));
    }
    return found->second;
  };
  for (const Ref &d : graph.ops) {
    const Op &op = d->op;
    const Tensor &yt = op.y->tensor;
    const bool products = op.kind != Kind::Pointwise && op.kind != Kind::Reduction;
    const bool round = engine == TENSOR_CORES && products;
    const Vector<T> &x = value(op.x, round);
    const Vector<T> *b = op.b ? &value(op.b, round) : nullptr;
    Vector<T> out;
    switch (op.kind) {
    case Kind::Pointwise: out = pointwise(op, x, b); break;
    case Kind::Matmul: out = matmul(op, x, *b); break;
    case Kind::Reduction: out = reduce(op, x); break;
    default:
      out = convolve(op, x, *b);
      for (T &v : out) v *= T(op.alpha);
      if (op.beta != 0) {
        const Vector<T> &before = value(op.y, false);
        for (size_t i = 0; i < out.size(); i++) out[i] += T(op.beta) * before[i];
      }
    }
    // Rounded to the tensor's type, in memory or not.
    if (!yt.is_virtual) {
      char *p = memory.at(yt.id);
      touch(yt, p, true);
      each(yt, [&](size_t i, int64_t offset) {
        store(yt.type, p, offset, out[i]);
        out[i] = load<T>(yt.type, p, offset);
      });
    } else {
      double cell = 0;
      for (T &v : out) {
        store(yt.type, &cell, 0, v);
        v = load<T>(yt.type, &cell, 0);
      }
    }
    vectors[op.y.get()] = std::move(out);
  }
}

} // namespace

Uses uses_of(const Desc &graph) {
  Uses u;
  auto add = [](std::vector<const Tensor *> *list, const Ref &r) {
    if (r && !r->tensor.is_virtual &&
        std::find(list->begin(), list->end(), &r->tensor) == list->end())
      list->push_back(&r->tensor);
  };
  for (const Ref &d : graph.ops) add(&u.written, d->op.y);
  for (const Ref &d : graph.ops) {
    for (const Ref &r : {d->op.x, d->op.b}) {
      if (r && std::find(u.written.begin(), u.written.end(), &r->tensor) == u.written.end())
        add(&u.read, r);
    }
  }
  return u;
}

void compute(const Desc &graph, int engine, const std::map<int64_t, char *> &memory,
             char *workspace, size_t workspace_size) {
  sim_touch_write(workspace, workspace_size);
  memset(workspace, 0xFF, workspace_size);
  bool wide = false;
  for (const Ref &d : graph.ops) wide |= d->op.sums == Elem::F64;
  if (wide)
    compute_in<double>(graph, engine, memory);
  else
    compute_in<float>(graph, engine, memory);
}

} // namespace cudnn
} // namespace sim
