// SPDX-License-Identifier: MIT
//
// Plans as text, in the stand-in's own terms: a JSON object with one string of numbers. The engine,
// the descriptors, each after those that it refers to, with their attributes as they were set; the
// last one is the graph. Reading sets the same attributes again and finalizes, so text can't make a
// plan that calls couldn't.
#include <string.h>
#include "cudnn_graph.h"

namespace sim {
namespace cudnn {

namespace {

constexpr char HEAD[] = "{\"simulated_cudnn_plan\": \"", TAIL[] = "\"}";
constexpr int64_t MAX_DESCRIPTORS = 256, MAX_ATTRIBUTES = 64, MAX_ELEMENTS = 64;

struct Writer {
  std::map<const Desc *, int64_t> ids;
  std::string out;
  int64_t count = 0;

  void number(int64_t v) { out += std::to_string(v) + " "; }
  // Handles are the process's own: a plan gets one where it is read.
  static bool plain(const Value &v) {
    return v.type != CUDNN_TYPE_HANDLE && v.type != CUDNN_TYPE_VOID_PTR;
  }
  void add(const Desc &d) {
    if (ids.count(&d)) return;
    int64_t attributes = 0;
    for (auto &a : d.values) {
      for (const Ref &r : a.second.refs) add(*r);
      attributes += plain(a.second);
    }
    number(d.type);
    number(attributes);
    for (auto &a : d.values) {
      const Value &v = a.second;
      if (!plain(v)) continue;
      number(a.first), number(v.type), number(v.count);
      for (const Ref &r : v.refs) number(ids.at(r.get()));
      size_t size = element_size(v.type);
      for (int64_t i = 0; v.refs.empty() && i < v.count; i++) {
        int64_t element = 0;
        memcpy(&element, v.bytes.data() + size_t(i) * size, size);
        number(element);
      }
    }
    ids[&d] = count++;
  }
};

struct Reader {
  const char *p;
  bool good = true;

  int64_t number(int64_t least, int64_t most) {
    char *end = nullptr;
    long long v = strtoll(p, &end, 10);
    if (end == p || v < least || v > most) good = false;
    p = end;
    return good ? v : least;
  }
};

} // namespace

std::string text_of(const Desc &plan) {
  Writer w;
  w.add(*plan.graph);
  return HEAD + std::to_string(plan.engine) + " " + std::to_string(w.count) + " " + w.out + TAIL;
}

cudnnStatus_t parse(const std::string &text, Desc *plan) {
  const size_t head = sizeof HEAD - 1, tail = sizeof TAIL - 1;
  const auto damaged = [] { return refuse(CUDNN_STATUS_BAD_PARAM, "not the text of a plan"); };
  std::string body = text.c_str(); // up to a NUL
  if (body.size() < head + tail || body.compare(0, head, HEAD) != 0 ||
      body.compare(body.size() - tail, tail, TAIL) != 0)
    return damaged();
  body = body.substr(head, body.size() - head - tail);
  Reader r = {body.c_str()};
  int64_t engine = r.number(0, ENGINES - 1), count = r.number(1, MAX_DESCRIPTORS);
  std::vector<Ref> all;
  for (int64_t i = 0; i < count && r.good; i++) {
    Ref d = std::make_shared<Desc>();
    d->type = cudnnBackendDescriptorType_t(r.number(0, 1000));
    int64_t attributes = r.number(0, MAX_ATTRIBUTES);
    for (int64_t a = 0; a < attributes && r.good; a++) {
      int name = int(r.number(0, 10000));
      Value v;
      v.type = cudnnBackendAttributeType_t(r.number(0, 1000));
      v.count = r.number(0, MAX_ELEMENTS);
      size_t size = element_size(v.type);
      if (size == 0 || v.type == CUDNN_TYPE_HANDLE || v.type == CUDNN_TYPE_VOID_PTR)
        return damaged();
      bool refs = v.type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
      if (!refs) v.bytes.resize(size_t(v.count) * size);
      for (int64_t e = 0; e < v.count && r.good; e++) {
        int64_t element = refs ? r.number(0, i - 1) : r.number(INT64_MIN, INT64_MAX);
        if (!r.good) break;
        if (refs)
          v.refs.push_back(all[size_t(element)]);
        else
          memcpy(v.bytes.data() + size_t(e) * size, &element, size);
      }
      d->values[name] = v;
    }
    if (!r.good || finalize(d) != CUDNN_STATUS_SUCCESS) return damaged();
    all.push_back(d);
  }
  while (*r.p == ' ') r.p++;
  if (!r.good || *r.p || all.back()->type != CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
    return damaged();
  plan->graph = all.back();
  plan->engine = int(engine);
  return CUDNN_STATUS_SUCCESS;
}

} // namespace cudnn
} // namespace sim
