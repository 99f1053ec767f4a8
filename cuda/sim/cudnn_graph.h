// SPDX-License-Identifier: MIT
//
// What the parts of the cuDNN stand-in know of each other.
//
//   cudnn_graph.cpp    the entry points: handles, descriptors and their attributes, execution
//   cudnn_check.cpp    what a descriptor is when it is finalized, and what is wrong with it
//   cudnn_compute.cpp  computes a graph by plain loops
//   cudnn_text.cpp     plans as text
//
// A descriptor keeps its attributes as they were set. Finalizing parses them into a Tensor, an Op
// or a graph; from then on nothing in it changes, so closures share it.
#ifndef SIM_CUDNN_GRAPH_H
#define SIM_CUDNN_GRAPH_H

#include <cudnn_graph.h>
#include <map>
#include <memory>
#include <string>
#include <vector>
#include "include/sim_internal.h"
#include "library.h"

namespace sim {
namespace cudnn {

struct Desc;
using Ref = std::shared_ptr<Desc>;

struct Value {
  cudnnBackendAttributeType_t type;
  int64_t count;
  std::vector<char> bytes; // of plain elements
  std::vector<Ref> refs;   // of descriptors
};

struct Tensor {
  Elem type;
  int rank;
  int64_t dims[CUDNN_DIM_MAX], strides[CUDNN_DIM_MAX];
  int64_t id, align;
  bool is_virtual;

  int64_t count() const {
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= dims[i];
    return n;
  }
  int64_t span() const { // elements from the first to the last
    int64_t last = 0;
    for (int i = 0; i < rank; i++) last += (dims[i] - 1) * strides[i];
    return last + 1;
  }
};

struct Window {
  int spatial;
  int64_t stride[3], dilation[3], before[3], after[3];
  Elem sums;
};

enum class Kind { Forward, BackwardData, BackwardFilter, Pointwise, Matmul, Reduction };

// x, b and y are the operands in the order of the computation: forward x, w -> y; backward data
// dy, w -> dx; backward filter x, dy -> dw; pointwise x, b -> y (b absent for one operand; the
// backward modes take dy as x and the forward's x as b); matmul a, b -> c; reduction x -> y.
struct Op {
  Kind kind;
  Ref x, b, y;
  Window window;
  double alpha, beta;         // convolutions
  double alpha1, alpha2;      // pointwise
  int mode;                   // pointwise, reduction
  double lower, upper, slope; // ReLU's
  Elem sums;
};

// Engines that the heuristics offer. TENSOR_CORES rounds float32 to TF32, and refuses float64 only
// when a plan is finalized: hosts must try the next. SLOW is the fallback.
enum Engine { TENSOR_CORES, PLAIN, SLOW, ENGINES };
size_t workspace_of(int engine);

struct Desc {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<int, Value> values;
  Tensor tensor = Tensor();
  Window window = Window();
  Op op = Op();
  std::vector<Ref> ops; // of a graph: in an order that computes
  Ref graph;            // of heuristics, engines, configurations, plans
  int engine = -1;      // of engines, configurations, plans
  int64_t workspace = 0;
  std::string text; // of a plan, once asked for
  // Of a plan: stands for its kernels, which go with it. Work that runs later is a fault.
  std::shared_ptr<int> kernels;

  const Value *find(int attr) const {
    auto it = values.find(attr);
    return it == values.end() ? nullptr : &it->second;
  }
  template <typename T> T one(int attr, T otherwise) const {
    const Value *v = find(attr);
    if (!v || v->bytes.size() < sizeof(T)) return otherwise;
    T t;
    memcpy(&t, v->bytes.data(), sizeof t);
    return t;
  }
  std::vector<int64_t> ints(int attr) const {
    const Value *v = find(attr);
    std::vector<int64_t> out(v ? size_t(v->count) : 0);
    if (!out.empty()) memcpy(out.data(), v->bytes.data(), 8 * out.size());
    return out;
  }
  Ref ref(int attr) const {
    const Value *v = find(attr);
    return v && !v->refs.empty() ? v->refs[0] : nullptr;
  }
};

size_t element_size(cudnnBackendAttributeType_t type);

// Remembers why (for cudnnGetLastErrorString) and returns the status.
cudnnStatus_t refuse(cudnnStatus_t status, const std::string &why);

// Parses and checks; the descriptor is finalized when it returns SUCCESS.
cudnnStatus_t finalize(const Ref &d);

// Whether an engine can compute the graph.
cudnnStatus_t supports(int engine, const Desc &graph);

std::string text_of(const Desc &plan);
// Fills engine and graph of a plan. BAD_PARAM for text that no plan wrote.
cudnnStatus_t parse(const std::string &text, Desc *plan);

// Tensors of a graph that lie in memory: those that are read only, and those that are written.
struct Uses {
  std::vector<const Tensor *> read, written;
};
Uses uses_of(const Desc &graph);

// Computes the graph on device memory that is open.
void compute(const Desc &graph, int engine, const std::map<int64_t, char *> &memory,
             char *workspace, size_t workspace_size);

} // namespace cudnn
} // namespace sim
#endif
