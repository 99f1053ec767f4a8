// SPDX-License-Identifier: MIT
//
// Finalizing: what is checked of each kind of descriptor. Statuses are those that cuDNN 9.19 gives
// (read off the real library, which needs no device for them). Where it lets a fault pass that no
// plan survives, or that computes something else, the stand-in refuses: such places say "stricter".
#include "cudnn_graph.h"

#include <algorithm>
#include <set>

namespace sim {
namespace cudnn {

namespace {

constexpr cudnnStatus_t OK = CUDNN_STATUS_SUCCESS, BAD = CUDNN_STATUS_BAD_PARAM,
                        UNSUPPORTED = CUDNN_STATUS_NOT_SUPPORTED;

#define TRY(expr)                                                                                  \
  do {                                                                                             \
    cudnnStatus_t s_ = (expr);                                                                     \
    if (s_ != OK) return s_;                                                                       \
  } while (0)
#define REQUIRE(condition)                                                                         \
  if (!(condition)) return refuse(BAD, "!(" #condition ")")

bool elem_of(int type, Elem *e) {
  switch (type) {
  case CUDNN_DATA_FLOAT: *e = Elem::F32; return true;
  case CUDNN_DATA_DOUBLE: *e = Elem::F64; return true;
  case CUDNN_DATA_HALF: *e = Elem::F16; return true;
  case CUDNN_DATA_BFLOAT16: *e = Elem::BF16; return true;
  default: return false;
  }
}

cudnnStatus_t sums_of(const Desc &d, int attr, Elem *e) {
  int type = d.one<int>(attr, -1);
  if (type < 0) return refuse(BAD, "no compute type");
  if ((type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_DOUBLE) || !elem_of(type, e))
    return refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "compute types are float and double");
  return OK;
}

cudnnStatus_t finalize_tensor(Desc *d) {
  Tensor &t = d->tensor;
  std::vector<int64_t> dims = d->ints(CUDNN_ATTR_TENSOR_DIMENSIONS),
                       strides = d->ints(CUDNN_ATTR_TENSOR_STRIDES);
  REQUIRE(!dims.empty());
  REQUIRE(dims.size() == strides.size());
  REQUIRE(dims.size() <= CUDNN_DIM_MAX);
  if (!elem_of(d->one<int>(CUDNN_ATTR_TENSOR_DATA_TYPE, -1), &t.type))
    return refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "float, double, half and bfloat16 only");
  t.rank = int(dims.size());
  for (int i = 0; i < t.rank; i++) {
    REQUIRE(dims[size_t(i)] >= 1); // stricter: sizes of 0 pass there
    REQUIRE(strides[size_t(i)] >= 0);
    t.dims[i] = dims[size_t(i)];
    t.strides[i] = strides[size_t(i)];
  }
  t.align = d->one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
  REQUIRE(t.align > 0 && t.align % int64_t(size_of(t.type)) == 0);
  REQUIRE(d->find(CUDNN_ATTR_TENSOR_UNIQUE_ID)); // stricter
  t.id = d->one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
  t.is_virtual = d->one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false);
  if (d->one<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE, false))
    return refuse(UNSUPPORTED, "tensors by value are not simulated");
  return OK;
}

cudnnStatus_t finalize_window(Desc *d) {
  Window &w = d->window;
  w.spatial = int(d->one<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0));
  REQUIRE(w.spatial >= 1 && w.spatial <= 3);
  TRY(sums_of(*d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &w.sums));
  if (d->one<int>(CUDNN_ATTR_CONVOLUTION_CONV_MODE, -1) != CUDNN_CROSS_CORRELATION)
    return refuse(UNSUPPORTED, "cross-correlation only");
  const struct {
    int attr;
    int64_t *to, least;
  } lists[] = {{CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, w.stride, 1},
               {CUDNN_ATTR_CONVOLUTION_DILATIONS, w.dilation, 1},
               {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, w.before, 0},
               {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, w.after, 0}};
  for (auto &l : lists) {
    std::vector<int64_t> v = d->ints(l.attr);
    REQUIRE(int(v.size()) == w.spatial);
    for (int i = 0; i < w.spatial; i++) {
      REQUIRE(v[size_t(i)] >= l.least);
      l.to[i] = v[size_t(i)];
    }
  }
  return OK;
}

bool is_tensor(const Ref &r) {
  return r && r->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR && r->finalized;
}

struct ConvolutionAttributes {
  int x, w, y, window, alpha, beta;
};
constexpr ConvolutionAttributes FORWARD = {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
constexpr ConvolutionAttributes DATA = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
constexpr ConvolutionAttributes FILTER = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};

// alpha and beta are floats or doubles.
double scalar(const Desc &d, int attr, double otherwise) {
  const Value *v = d.find(attr);
  if (!v) return otherwise;
  return v->type == CUDNN_TYPE_DOUBLE ? d.one<double>(attr, 0) : double(d.one<float>(attr, 0));
}

cudnnStatus_t finalize_convolution(Desc *d, const ConvolutionAttributes &a, Kind kind) {
  Ref x = d->ref(a.x), w = d->ref(a.w), y = d->ref(a.y), c = d->ref(a.window);
  REQUIRE(is_tensor(x) && is_tensor(w) && is_tensor(y));
  REQUIRE(c && c->type == CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR && c->finalized);
  const Tensor &xt = x->tensor, &wt = w->tensor, &yt = y->tensor;
  const Window &v = c->window;
  REQUIRE(xt.rank == v.spatial + 2 && wt.rank == xt.rank && yt.rank == xt.rank);
  REQUIRE(xt.dims[1] % wt.dims[1] == 0);
  REQUIRE(wt.dims[0] % (xt.dims[1] / wt.dims[1]) == 0);
  REQUIRE(yt.dims[1] == wt.dims[0]);
  REQUIRE(yt.dims[0] == xt.dims[0]);
  for (int i = 0; i < v.spatial; i++) {
    int64_t room = xt.dims[i + 2] + v.before[i] + v.after[i];
    int64_t reach = v.dilation[i] * (wt.dims[i + 2] - 1) + 1;
    REQUIRE(room >= reach && yt.dims[i + 2] == (room - reach) / v.stride[i] + 1);
  }
  d->op.kind = kind;
  d->op.window = v;
  d->op.sums = v.sums;
  d->op.alpha = scalar(*d, a.alpha, 1);
  d->op.beta = scalar(*d, a.beta, 0);
  d->op.x = kind == Kind::BackwardData ? y : x;
  d->op.b = kind == Kind::BackwardFilter ? y : w;
  d->op.y = kind == Kind::Forward ? y : kind == Kind::BackwardData ? x : w;
  return OK;
}

bool takes_two(int mode) {
  switch (mode) {
  case CUDNN_POINTWISE_ADD:
  case CUDNN_POINTWISE_SUB:
  case CUDNN_POINTWISE_MUL:
  case CUDNN_POINTWISE_DIV:
  case CUDNN_POINTWISE_MAX:
  case CUDNN_POINTWISE_MIN: return true;
  default: return false;
  }
}

bool takes_one(int mode) {
  switch (mode) {
  case CUDNN_POINTWISE_IDENTITY:
  case CUDNN_POINTWISE_NEG:
  case CUDNN_POINTWISE_ABS:
  case CUDNN_POINTWISE_EXP:
  case CUDNN_POINTWISE_LOG:
  case CUDNN_POINTWISE_SQRT:
  case CUDNN_POINTWISE_RSQRT:
  case CUDNN_POINTWISE_RELU_FWD:
  case CUDNN_POINTWISE_TANH_FWD:
  case CUDNN_POINTWISE_SIGMOID_FWD:
  case CUDNN_POINTWISE_GELU_FWD:
  case CUDNN_POINTWISE_GELU_APPROX_TANH_FWD: return true;
  default: return false;
  }
}

bool takes_gradient(int mode) {
  switch (mode) {
  case CUDNN_POINTWISE_RELU_BWD:
  case CUDNN_POINTWISE_TANH_BWD:
  case CUDNN_POINTWISE_SIGMOID_BWD:
  case CUDNN_POINTWISE_GELU_APPROX_TANH_BWD: return true;
  default: return false;
  }
}

cudnnStatus_t finalize_pointwise(Desc *d) {
  Ref p = d->ref(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  REQUIRE(p && p->type == CUDNN_BACKEND_POINTWISE_DESCRIPTOR && p->finalized);
  Op &op = d->op;
  op = p->op;
  Ref x = d->ref(CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
      b = d->ref(CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
      y = d->ref(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  if (takes_gradient(op.mode)) {
    b = x;
    x = d->ref(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC);
    y = d->ref(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC);
  }
  bool two = takes_two(op.mode) || takes_gradient(op.mode);
  REQUIRE(is_tensor(x) && is_tensor(y));
  REQUIRE(!two || is_tensor(b));
  for (const Ref &r : {x, two ? b : x}) {
    REQUIRE(r->tensor.rank == y->tensor.rank);
    for (int i = 0; i < y->tensor.rank; i++) // stricter: a bias of any length passes there
      REQUIRE(r->tensor.dims[i] == 1 || r->tensor.dims[i] == y->tensor.dims[i]);
  }
  op.kind = Kind::Pointwise;
  op.x = x;
  op.b = two ? b : nullptr;
  op.y = y;
  op.alpha1 = scalar(*d, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1);
  op.alpha2 = scalar(*d, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1);
  return OK;
}

cudnnStatus_t finalize_matmul(Desc *d) {
  Ref m = d->ref(CUDNN_ATTR_OPERATION_MATMUL_DESC), a = d->ref(CUDNN_ATTR_OPERATION_MATMUL_ADESC),
      b = d->ref(CUDNN_ATTR_OPERATION_MATMUL_BDESC), c = d->ref(CUDNN_ATTR_OPERATION_MATMUL_CDESC);
  REQUIRE(m && m->type == CUDNN_BACKEND_MATMUL_DESCRIPTOR && m->finalized);
  REQUIRE(is_tensor(a) && is_tensor(b) && is_tensor(c));
  const Tensor &at = a->tensor, &bt = b->tensor, &ct = c->tensor;
  int r = ct.rank;
  REQUIRE(r >= 2 && at.rank == r && bt.rank == r);
  REQUIRE(at.dims[r - 1] == bt.dims[r - 2]);
  REQUIRE(at.dims[r - 2] == ct.dims[r - 2] && bt.dims[r - 1] == ct.dims[r - 1]);
  for (int i = 0; i < r - 2; i++) {
    REQUIRE(ct.dims[i] % at.dims[i] == 0 && ct.dims[i] % bt.dims[i] == 0);
    REQUIRE(at.dims[i] == ct.dims[i] || bt.dims[i] == ct.dims[i]);
  }
  d->op.kind = Kind::Matmul;
  d->op.sums = m->op.sums;
  d->op.x = a;
  d->op.b = b;
  d->op.y = c;
  return OK;
}

cudnnStatus_t finalize_reduction(Desc *d) {
  Ref p = d->ref(CUDNN_ATTR_OPERATION_REDUCTION_DESC),
      x = d->ref(CUDNN_ATTR_OPERATION_REDUCTION_XDESC),
      y = d->ref(CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
  REQUIRE(p && p->type == CUDNN_BACKEND_REDUCTION_DESCRIPTOR && p->finalized);
  REQUIRE(is_tensor(x) && is_tensor(y));
  REQUIRE(x->tensor.rank == y->tensor.rank);
  for (int i = 0; i < x->tensor.rank; i++)
    REQUIRE(y->tensor.dims[i] == 1 || y->tensor.dims[i] == x->tensor.dims[i]);
  d->op = p->op;
  d->op.kind = Kind::Reduction;
  d->op.x = x;
  d->op.y = y;
  return OK;
}

// Puts the operations in an order that computes, and checks who makes what.
cudnnStatus_t finalize_graph(Desc *d) {
  const Value *v = d->find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  REQUIRE(v && !v->refs.empty());
  std::map<int64_t, const Desc *> by_id;
  std::set<const Desc *> made, seen;
  for (const Ref &op : v->refs) {
    REQUIRE(op && op->finalized && op->op.y);
    REQUIRE(seen.insert(op.get()).second);
    for (const Ref &t : {op->op.x, op->op.b, op->op.y}) {
      if (!t) continue;
      auto at = by_id.emplace(t->tensor.id, t.get()).first;
      if (at->second == t.get()) continue;
      // Stricter: the library takes the first and computes on.
      sim_report("cudnn: two tensors of a graph have the id %lld", (long long)t->tensor.id);
      return refuse(BAD, "a unique id is not unique");
    }
    REQUIRE(made.insert(op->op.y.get()).second);
  }
  std::vector<Ref> left = v->refs;
  std::set<const Desc *> ready;
  d->ops.clear();
  while (!left.empty()) {
    auto can_run = [&](const Ref &op) {
      for (const Ref &t : {op->op.x, op->op.b})
        if (t && made.count(t.get()) && !ready.count(t.get())) return false;
      return true;
    };
    auto next = std::find_if(left.begin(), left.end(), can_run);
    if (next == left.end()) return refuse(BAD, "the graph has a cycle");
    ready.insert((*next)->op.y.get());
    d->ops.push_back(*next);
    left.erase(next);
  }
  return OK;
}

bool is_graph(const Ref &g) {
  return g && g->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR && g->finalized;
}

cudnnStatus_t finalize_plan(Desc *d) {
  Ref config = d->ref(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const Value *text = d->find(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
  if (text)
    TRY(parse(std::string(text->bytes.data(), text->bytes.size()), d));
  else if (!config || !config->finalized)
    return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a plan needs a finalized configuration");
  else
    d->graph = config->graph, d->engine = config->engine;
  if (!d->one<void *>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, nullptr))
    return refuse(BAD, "a plan needs a handle"); // devices as descriptions are not simulated
  TRY(supports(d->engine, *d->graph));
  d->workspace = int64_t(workspace_of(d->engine));
  d->kernels = std::make_shared<int>(0);
  return OK;
}

cudnnStatus_t finalize_any(Desc *d) {
  switch (d->type) {
  case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return finalize_tensor(d);
  case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: return finalize_window(d);
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    return finalize_convolution(d, FORWARD, Kind::Forward);
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    return finalize_convolution(d, DATA, Kind::BackwardData);
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
    return finalize_convolution(d, FILTER, Kind::BackwardFilter);
  case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
    d->op.mode = d->one<int>(CUDNN_ATTR_POINTWISE_MODE, -1);
    REQUIRE(d->op.mode >= 0); // stricter: an empty one passes there
    if (!takes_one(d->op.mode) && !takes_two(d->op.mode) && !takes_gradient(d->op.mode))
      return refuse(UNSUPPORTED, "this pointwise function is not simulated");
    d->op.lower = scalar(*d, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0);
    d->op.upper = scalar(*d, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, INFINITY);
    d->op.slope = scalar(*d, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 0);
    return sums_of(*d, CUDNN_ATTR_POINTWISE_MATH_PREC, &d->op.sums);
  case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return finalize_pointwise(d);
  case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
    return sums_of(*d, CUDNN_ATTR_MATMUL_COMP_TYPE, &d->op.sums);
  case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return finalize_matmul(d);
  case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
    d->op.mode = d->one<int>(CUDNN_ATTR_REDUCTION_OPERATOR, -1);
    REQUIRE(d->op.mode >= 0);
    if (d->op.mode != CUDNN_REDUCE_TENSOR_ADD && d->op.mode != CUDNN_REDUCE_TENSOR_AVG &&
        d->op.mode != CUDNN_REDUCE_TENSOR_MAX && d->op.mode != CUDNN_REDUCE_TENSOR_MIN)
      return refuse(UNSUPPORTED, "this reduction is not simulated");
    return sums_of(*d, CUDNN_ATTR_REDUCTION_COMP_TYPE, &d->op.sums);
  case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return finalize_reduction(d);
  case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return finalize_graph(d);
  case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
    d->graph = d->ref(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    REQUIRE(is_graph(d->graph));
    REQUIRE(d->find(CUDNN_ATTR_ENGINEHEUR_MODE));
    return OK;
  case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
    d->graph = d->ref(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    d->engine = int(d->one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1));
    REQUIRE(is_graph(d->graph));
    REQUIRE(d->engine >= 0 && d->engine < ENGINES);
    return OK;
  case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: {
    Ref e = d->ref(CUDNN_ATTR_ENGINECFG_ENGINE);
    REQUIRE(e && e->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && e->finalized);
    d->graph = e->graph;
    d->engine = e->engine;
    return OK;
  }
  case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: return finalize_plan(d);
  case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: {
    const Value *ids = d->find(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const Value *pointers = d->find(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    REQUIRE((ids ? ids->count : 0) == (pointers ? pointers->count : 0));
    return OK;
  }
  default: return refuse(UNSUPPORTED, "this descriptor is not simulated");
  }
}

} // namespace

cudnnStatus_t finalize(const Ref &d) {
  if (d->finalized) return refuse(BAD, "already finalized");
  TRY(finalize_any(d.get()));
  d->finalized = true;
  return OK;
}

size_t workspace_of(int engine) { // odd ones, as the library's
  return engine == TENSOR_CORES ? 65539 : engine == PLAIN ? 1003 : 131;
}

cudnnStatus_t supports(int engine, const Desc &graph) {
  if (engine < 0 || engine >= ENGINES) return refuse(BAD, "no such engine");
  std::set<const Desc *> made;
  for (const Ref &op : graph.ops) made.insert(op->op.y.get());
  for (const Ref &op : graph.ops) {
    if (engine == TENSOR_CORES && op->op.sums == Elem::F64)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "tensor cores and double");
    for (const Ref &t : {op->op.x, op->op.b}) {
      if (t && t->tensor.is_virtual && !made.count(t.get()))
        return refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "nobody makes a virtual tensor");
    }
    bool read = false;
    for (const Ref &other : graph.ops) read |= other->op.x == op->op.y || other->op.b == op->op.y;
    if (op->op.y->tensor.is_virtual && !read)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "nobody reads a virtual tensor");
  }
  return OK;
}

} // namespace cudnn
} // namespace sim
