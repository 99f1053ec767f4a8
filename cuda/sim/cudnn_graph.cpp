// SPDX-License-Identifier: MIT
//
// A stand-in for the part of cuDNN that a plugin for convolutions needs: handles, and the graph API
// (backend descriptors) for tensors, convolutions and their gradients, pointwise functions, matrix
// products, reductions, engine heuristics, execution plans and variant packs.
//
// It answers with the statuses of the real library, read off version 9.19 (cudnn_check.cpp), and
// with a last error string. What the library would crash on or compute wrongly is besides reported
// as a fault. Of the three engines that it offers the first rounds float32 to TF32 and is not
// deterministic for weight gradients, by its notes: a host that doesn't read notes is found out.
// All plans want a workspace of an odd size, and fill it with NaN. A plan that is
// destroyed while its work is queued, or captured in a graph that runs later, is a fault.
#include "cudnn_graph.h"

#include <string.h>
#include <algorithm>
#include <new>

using namespace sim;
using namespace sim::cudnn;

struct cudnnContext {
  uint32_t magic;
  cudaStream_t stream;
};

namespace {

constexpr uint32_t HANDLE = 0x636E6448, BOX = 0x636E6442;
constexpr cudnnStatus_t OK = CUDNN_STATUS_SUCCESS, BAD = CUDNN_STATUS_BAD_PARAM;

thread_local std::string last_error;

// What a cudnnBackendDescriptor_t points to.
struct Box {
  uint32_t magic;
  Ref d;
};

bool is_handle(cudnnHandle_t h) {
  return h && h->magic == HANDLE;
}

Box *box_of(cudnnBackendDescriptor_t d) {
  Box *b = static_cast<Box *>(d);
  return b && b->magic == BOX ? b : nullptr;
}

// ---- Attributes: whose they are, of which type, and how many elements at most

struct Rule {
  int attr, owner, type, most;
};

#define OWNED(owner, attr, type, most)                                                             \
  { CUDNN_ATTR_##attr, CUDNN_BACKEND_##owner##_DESCRIPTOR, CUDNN_TYPE_##type, most }
#define SCALAR(owner, attr)                                                                        \
  { CUDNN_ATTR_##attr, CUDNN_BACKEND_##owner##_DESCRIPTOR, -1, 1 } // float or double
#define CONVOLUTION(owner, name, a, b, c)                                                          \
  OWNED(owner, OPERATION_CONVOLUTION_##name##_##a, BACKEND_DESCRIPTOR, 1),                         \
      OWNED(owner, OPERATION_CONVOLUTION_##name##_##b, BACKEND_DESCRIPTOR, 1),                     \
      OWNED(owner, OPERATION_CONVOLUTION_##name##_##c, BACKEND_DESCRIPTOR, 1),                     \
      OWNED(owner, OPERATION_CONVOLUTION_##name##_CONV_DESC, BACKEND_DESCRIPTOR, 1),               \
      SCALAR(owner, OPERATION_CONVOLUTION_##name##_ALPHA),                                         \
      SCALAR(owner, OPERATION_CONVOLUTION_##name##_BETA)

const Rule rules[] = {
    OWNED(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1),
    OWNED(TENSOR, TENSOR_DIMENSIONS, INT64, 12),
    OWNED(TENSOR, TENSOR_STRIDES, INT64, 12),
    OWNED(TENSOR, TENSOR_UNIQUE_ID, INT64, 1),
    OWNED(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1),
    OWNED(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 1),
    OWNED(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, 1),
    OWNED(CONVOLUTION, CONVOLUTION_COMP_TYPE, DATA_TYPE, 1),
    OWNED(CONVOLUTION, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1),
    OWNED(CONVOLUTION, CONVOLUTION_DILATIONS, INT64, 6),
    OWNED(CONVOLUTION, CONVOLUTION_FILTER_STRIDES, INT64, 6),
    OWNED(CONVOLUTION, CONVOLUTION_PRE_PADDINGS, INT64, 6),
    OWNED(CONVOLUTION, CONVOLUTION_POST_PADDINGS, INT64, 6),
    OWNED(CONVOLUTION, CONVOLUTION_SPATIAL_DIMS, INT64, 1),
    CONVOLUTION(OPERATION_CONVOLUTION_FORWARD, FORWARD, X, W, Y),
    CONVOLUTION(OPERATION_CONVOLUTION_BACKWARD_DATA, BWD_DATA, DX, W, DY),
    CONVOLUTION(OPERATION_CONVOLUTION_BACKWARD_FILTER, BWD_FILTER, X, DW, DY),
    OWNED(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, 1),
    OWNED(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1),
    SCALAR(POINTWISE, POINTWISE_RELU_LOWER_CLIP),
    SCALAR(POINTWISE, POINTWISE_RELU_UPPER_CLIP),
    SCALAR(POINTWISE, POINTWISE_RELU_LOWER_CLIP_SLOPE),
    OWNED(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, 1),
    OWNED(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, 1),
    OWNED(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, 1),
    OWNED(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, 1),
    OWNED(OPERATION_POINTWISE, OPERATION_POINTWISE_DXDESC, BACKEND_DESCRIPTOR, 1),
    OWNED(OPERATION_POINTWISE, OPERATION_POINTWISE_DYDESC, BACKEND_DESCRIPTOR, 1),
    SCALAR(OPERATION_POINTWISE, OPERATION_POINTWISE_ALPHA1),
    SCALAR(OPERATION_POINTWISE, OPERATION_POINTWISE_ALPHA2),
    OWNED(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE, 1),
    OWNED(OPERATION_MATMUL, OPERATION_MATMUL_ADESC, BACKEND_DESCRIPTOR, 1),
    OWNED(OPERATION_MATMUL, OPERATION_MATMUL_BDESC, BACKEND_DESCRIPTOR, 1),
    OWNED(OPERATION_MATMUL, OPERATION_MATMUL_CDESC, BACKEND_DESCRIPTOR, 1),
    OWNED(OPERATION_MATMUL, OPERATION_MATMUL_DESC, BACKEND_DESCRIPTOR, 1),
    OWNED(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1),
    OWNED(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE, 1),
    OWNED(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC, BACKEND_DESCRIPTOR, 1),
    OWNED(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC, BACKEND_DESCRIPTOR, 1),
    OWNED(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC, BACKEND_DESCRIPTOR, 1),
    OWNED(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, 1),
    OWNED(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 64),
    OWNED(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1),
    OWNED(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1),
    OWNED(ENGINE, ENGINE_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1),
    OWNED(ENGINE, ENGINE_GLOBAL_INDEX, INT64, 1),
    OWNED(ENGINECFG, ENGINECFG_ENGINE, BACKEND_DESCRIPTOR, 1),
    OWNED(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, 1),
    OWNED(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1),
    OWNED(EXECUTION_PLAN, EXECUTION_PLAN_JSON_REPRESENTATION, CHAR, 1 << 20),
    OWNED(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, 1 << 10),
    OWNED(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 1 << 10),
    OWNED(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1),
};

const Rule *rule_of(const Desc &d, int attr) {
  for (const Rule &r : rules)
    if (r.attr == attr && r.owner == d.type) return &r;
  return nullptr;
}

bool known_type(int type) {
  for (const Rule &r : rules)
    if (r.owner == type) return true;
  return false;
}

// ---- Results that are computed when asked for

template <typename T> void give(std::vector<T> all, int64_t wanted, int64_t *count, void *out) {
  int64_t n = std::min<int64_t>(wanted, int64_t(all.size()));
  if (count) *count = wanted == 0 ? int64_t(all.size()) : n;
  if (out && n > 0) memcpy(out, all.data(), size_t(n) * sizeof(T));
}

std::vector<int> notes_of(const Desc &engine) {
  std::vector<int> notes;
  if (engine.engine != TENSOR_CORES) return notes;
  notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  for (const Ref &op : engine.graph->ops) {
    if (op->op.kind == Kind::BackwardFilter) {
      notes.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
      break;
    }
  }
  return notes;
}

// Descriptors that a caller made for results.
cudnnStatus_t fill(void *out, int64_t i, int type, const Ref &d) {
  Box *b = out ? box_of(static_cast<cudnnBackendDescriptor_t *>(out)[i]) : nullptr;
  if (!b || b->d->type != type || b->d->finalized)
    return refuse(BAD, "results need descriptors that were created for them");
  b->d = d;
  return OK;
}

Ref made(int type, const Ref &graph, int engine) {
  Ref d = std::make_shared<Desc>();
  d->type = cudnnBackendDescriptorType_t(type);
  d->graph = graph;
  d->engine = engine;
  d->finalized = true;
  return d;
}

cudnnStatus_t get_results(const Desc &d, int64_t wanted, int64_t *count, void *out) {
  std::vector<int> engines = {TENSOR_CORES, PLAIN};
  if (libraries() == SIM_LIBRARIES_REFUSING) {
    if (count) *count = 0;
    return OK;
  }
  if (d.one<int>(CUDNN_ATTR_ENGINEHEUR_MODE, 0) == CUDNN_HEUR_MODE_FALLBACK) engines = {SLOW};
  int64_t n = std::min<int64_t>(wanted, int64_t(engines.size()));
  for (int64_t i = 0; i < n; i++) {
    cudnnStatus_t s = fill(out, i, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                           made(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, d.graph, engines[size_t(i)]));
    if (s != OK) return s;
  }
  if (count) *count = wanted == 0 ? int64_t(engines.size()) : n;
  return OK;
}

// True if the attribute is one of these; *status then is the answer.
bool get_computed(Desc *d, int attr, int type, int64_t wanted, int64_t *count, void *out,
                  cudnnStatus_t *status) {
  const auto typed = [&](int expected) {
    *status = type == expected ? OK : refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "another type");
    return *status == OK;
  };
  switch (attr) {
  case CUDNN_ATTR_ENGINEHEUR_RESULTS:
    if (d->type != CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) return false;
    if (typed(CUDNN_TYPE_BACKEND_DESCRIPTOR)) *status = get_results(*d, wanted, count, out);
    return true;
  case CUDNN_ATTR_ENGINECFG_ENGINE:
    if (d->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) return false;
    if (!typed(CUDNN_TYPE_BACKEND_DESCRIPTOR)) return true;
    if (count) *count = 1;
    if (wanted > 0)
      *status = fill(out, 0, CUDNN_BACKEND_ENGINE_DESCRIPTOR,
                     made(CUDNN_BACKEND_ENGINE_DESCRIPTOR, d->graph, d->engine));
    return true;
  case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
    if (d->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) return false;
    if (typed(CUDNN_TYPE_INT64)) give(std::vector<int64_t>{d->engine}, wanted, count, out);
    return true;
  case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
    if (d->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) return false;
    if (typed(CUDNN_TYPE_NUMERICAL_NOTE)) give(notes_of(*d), wanted, count, out);
    return true;
  case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
    if (d->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) return false;
    if (typed(CUDNN_TYPE_BEHAVIOR_NOTE)) give(std::vector<int>(), wanted, count, out);
    return true;
  case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
    if (d->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) return false;
    if (typed(CUDNN_TYPE_INT64)) give(std::vector<int64_t>{d->workspace}, wanted, count, out);
    return true;
  case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION:
    if (d->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) return false;
    if (!typed(CUDNN_TYPE_CHAR)) return true;
    if (d->text.empty()) d->text = text_of(*d);
    give(std::vector<char>(d->text.c_str(), d->text.c_str() + d->text.size() + 1), wanted, count,
         out);
    return true;
  default: return false;
  }
}

// ---- Execution

bool overlap(const char *a, int64_t a_bytes, const char *b, int64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

int64_t bytes_of(const Tensor &t) {
  return t.span() * int64_t(size_of(t.type));
}

// Finds the memory of every tensor, and what is wrong with it.
cudnnStatus_t collect(const Desc &plan, const Desc &pack, std::map<int64_t, char *> *memory) {
  std::vector<int64_t> ids = pack.ints(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  std::vector<int64_t> pointers = pack.ints(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (size_t i = 0; i < ids.size(); i++) (*memory)[ids[i]] = reinterpret_cast<char *>(pointers[i]);
  Uses uses = uses_of(*plan.graph);
  for (auto *list : {&uses.read, &uses.written}) {
    for (const Tensor *t : *list) {
      auto found = memory->find(t->id);
      if (found == memory->end() || !found->second)
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a tensor has no pointer");
      if (reinterpret_cast<uintptr_t>(found->second) % uintptr_t(t->align)) {
        sim_report("cudnnBackendExecute: tensor %lld is not aligned to the %lld bytes promised",
                   (long long)t->id, (long long)t->align);
        return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "a tensor's alignment");
      }
      if (!sim_is_device(found->second, size_t(bytes_of(*t)))) {
        sim_report("cudnnBackendExecute: tensor %lld: %lld bytes at %p are not in device memory",
                   (long long)t->id, (long long)bytes_of(*t), (void *)found->second);
        return refuse(CUDNN_STATUS_EXECUTION_FAILED, "a tensor is not in device memory");
      }
    }
  }
  for (const Tensor *out : uses.written) {
    for (auto *list : {&uses.read, &uses.written}) {
      for (const Tensor *t : *list) {
        if (t == out) continue;
        if (!overlap((*memory)[out->id], bytes_of(*out), (*memory)[t->id], bytes_of(*t))) continue;
        sim_report("cudnnBackendExecute: tensors %lld and %lld overlap", (long long)out->id,
                   (long long)t->id);
        return refuse(CUDNN_STATUS_EXECUTION_FAILED, "a result overlaps another tensor");
      }
    }
  }
  return OK;
}

} // namespace

size_t sim::cudnn::element_size(cudnnBackendAttributeType_t type) {
  switch (int(type)) {
  case CUDNN_TYPE_BOOLEAN:
  case CUDNN_TYPE_CHAR: return 1;
  case CUDNN_TYPE_HANDLE:
  case CUDNN_TYPE_INT64:
  case CUDNN_TYPE_DOUBLE:
  case CUDNN_TYPE_VOID_PTR:
  case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
  case CUDNN_TYPE_DATA_TYPE:
  case CUDNN_TYPE_FLOAT:
  case CUDNN_TYPE_CONVOLUTION_MODE:
  case CUDNN_TYPE_HEUR_MODE:
  case CUDNN_TYPE_NUMERICAL_NOTE:
  case CUDNN_TYPE_POINTWISE_MODE:
  case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
  case CUDNN_TYPE_BEHAVIOR_NOTE:
  case CUDNN_TYPE_INT32: return 4;
  default: return 0;
  }
}

cudnnStatus_t sim::cudnn::refuse(cudnnStatus_t status, const std::string &why) {
  last_error = why;
  return status;
}

extern "C" {

size_t cudnnGetVersion(void) {
  return CUDNN_VERSION;
}

size_t cudnnGetCudartVersion(void) {
  return CUDART_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
  switch (int(status)) {
#define NAME(s)                                                                                    \
  case CUDNN_STATUS_##s: return "CUDNN_STATUS_" #s;
    NAME(SUCCESS)
    NAME(NOT_INITIALIZED)
    NAME(BAD_PARAM)
    NAME(BAD_PARAM_NULL_POINTER)
    NAME(BAD_PARAM_MISALIGNED_POINTER)
    NAME(BAD_PARAM_NOT_FINALIZED)
    NAME(BAD_PARAM_ATTRIBUTE_TYPE)
    NAME(NOT_SUPPORTED)
    NAME(NOT_SUPPORTED_GRAPH_PATTERN)
    NAME(NOT_SUPPORTED_DATA_TYPE)
    NAME(INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
    NAME(EXECUTION_FAILED)
#undef NAME
  default: return "CUDNN_STATUS_UNKNOWN";
  }
}

void cudnnGetLastErrorString(char *message, size_t size) {
  if (!message || size == 0) return;
  size_t n = std::min(size - 1, last_error.size());
  memcpy(message, last_error.data(), n);
  message[n] = 0;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
  int count = 0;
  if (!handle) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for a handle");
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < 1)
    return refuse(CUDNN_STATUS_NOT_INITIALIZED, "no device");
  static int made;
  if (libraries() == SIM_LIBRARIES_MISSING)
    return refuse(CUDNN_STATUS_NOT_INITIALIZED, "the library is missing");
  if (is_exhausted(&made))
    return refuse(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, "no device memory");
  *handle = new (std::nothrow) cudnnContext{HANDLE, nullptr};
  return *handle ? OK : refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  if (!is_handle(handle)) return refuse(BAD, "no handle");
  handle->magic = 0;
  delete handle;
  return OK;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (!is_handle(handle)) return refuse(BAD, "no handle");
  handle->stream = stream;
  return OK;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
  if (!is_handle(handle) || !stream) return refuse(BAD, "no handle");
  *stream = handle->stream;
  return OK;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out) {
  if (!out) {
    sim_report("cudnnBackendCreateDescriptor: the library crashes on a null pointer here");
    return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for a descriptor");
  }
  *out = nullptr;
  if (int(type) < 0 || int(type) > CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR)
    return refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no such descriptor");
  if (!known_type(type))
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "this descriptor is not simulated");
  Box *b = new (std::nothrow) Box{BOX, std::make_shared<Desc>()};
  if (!b) return refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
  b->d->type = type;
  *out = b;
  return OK;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  if (!descriptor) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
  Box *b = box_of(descriptor);
  if (!b) return refuse(BAD, "not a descriptor");
  b->magic = 0;
  delete b;
  return OK;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  if (!descriptor) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
  Box *b = box_of(descriptor);
  return b ? finalize(b->d) : refuse(BAD, "not a descriptor");
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *elements) {
  if (!descriptor) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
  Box *b = box_of(descriptor);
  if (!b) return refuse(BAD, "not a descriptor");
  Desc &d = *b->d;
  const Rule *rule = rule_of(d, name);
  if (d.finalized) return refuse(BAD, "already finalized");
  if (!rule) return refuse(BAD, "another descriptor's attribute");
  bool scalar = type == CUDNN_TYPE_FLOAT || type == CUDNN_TYPE_DOUBLE;
  if (rule->type == -1 && !scalar) return refuse(BAD, "alpha and beta are floats or doubles");
  if (rule->type != -1 && rule->type != int(type))
    return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "another type");
  if (!elements || count < 1 || count > rule->most) return refuse(BAD, "count of elements");
  Value v = {type, count, {}, {}};
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (int64_t i = 0; i < count; i++) {
      Box *other = box_of(static_cast<const cudnnBackendDescriptor_t *>(elements)[i]);
      if (!other) {
        sim_report("cudnnBackendSetAttribute: the library crashes on a null descriptor here");
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a null descriptor");
      }
      if (!other->d->finalized) return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "unfinalized");
      v.refs.push_back(other->d);
    }
  } else {
    const char *p = static_cast<const char *>(elements);
    v.bytes.assign(p, p + size_t(count) * element_size(type));
    if (type == CUDNN_TYPE_HANDLE && !is_handle(*static_cast<const cudnnHandle_t *>(elements)))
      return refuse(BAD, "not a handle");
  }
  d.values[name] = v;
  return OK;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted,
                                       int64_t *count, void *elements) {
  cudnnStatus_t s = OK;
  if (!descriptor) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
  Box *b = box_of(descriptor);
  if (!b) return refuse(BAD, "not a descriptor");
  Desc &d = *b->d;
  if (!d.finalized) return refuse(CUDNN_STATUS_NOT_INITIALIZED, "not finalized");
  if (wanted < 0 || (wanted > 0 && !elements)) return refuse(BAD, "no place for the elements");
  if (get_computed(&d, name, type, wanted, count, elements, &s)) return s;
  const Value *v = d.find(name);
  if (!rule_of(d, name) || !v) return refuse(BAD, "no such attribute");
  if (v->type != type) return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "another type");
  if (!v->refs.empty())
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "descriptors are not given back here");
  int64_t n = std::min(wanted, v->count);
  if (n > 0) memcpy(elements, v->bytes.data(), size_t(n) * element_size(type));
  if (count) *count = wanted == 0 ? v->count : n;
  return OK;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_descriptor,
                                  cudnnBackendDescriptor_t pack_descriptor) {
  Box *plan = box_of(plan_descriptor), *pack = box_of(pack_descriptor);
  if (!is_handle(handle) || !plan || !pack) return refuse(BAD, "no handle, plan or pack");
  if (plan->d->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
      pack->d->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    return refuse(BAD, "not a plan and a pack");
  if (!plan->d->finalized || !pack->d->finalized)
    return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "not finalized");
  Ref graph = plan->d->graph;
  int engine = plan->d->engine;
  std::map<int64_t, char *> memory;
  cudnnStatus_t s = collect(*plan->d, *pack->d, &memory);
  if (s != OK) return s;
  char *workspace = pack->d->one<char *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
  size_t size = size_t(plan->d->workspace);
  if (!workspace) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no workspace");
  if (reinterpret_cast<uintptr_t>(workspace) % 16)
    return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "the workspace");
  if (!sim_is_device(workspace, size)) {
    sim_report("cudnnBackendExecute: %zu bytes of workspace at %p are not in device memory", size,
               static_cast<void *>(workspace));
    return refuse(CUDNN_STATUS_EXECUTION_FAILED, "the workspace is not in device memory");
  }
  std::weak_ptr<int> kernels = plan->d->kernels;
  cudaError_t e = sim_push(handle->stream, "cudnnBackendExecute", [=] {
    if (kernels.expired()) sim_report("the plan was destroyed before its work ran");
    compute(*graph, engine, memory, workspace, size);
  });
  return e == cudaSuccess ? OK : refuse(CUDNN_STATUS_EXECUTION_FAILED, cudaGetErrorString(e));
}

} // extern "C"
