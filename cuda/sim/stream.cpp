// SPDX-License-Identifier: MIT
//
// Queued work. A stream is a list of closures that run in order; each may also wait for a place in
// another stream's list. Events, the rules of the legacy default stream and cudaStreamWaitEvent all
// become such waits. When work runs is a choice that no right program notices: at once (eager),
// only when somebody waits for it (lazy; and of several streams the last first), or at random.
//
// A capture records the same closures with what they depend on; a graph runs them in any order that
// this allows.
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <deque>
#include <set>
#include <thread>
#include "core.h"

namespace sim {

struct Dep {
  uint64_t stream, seq;
};
struct Item {
  const char *name;
  std::function<void()> work;
  std::vector<Dep> deps;
};
struct Node {
  const char *name;
  std::function<void()> work;
  std::vector<size_t> deps; // earlier nodes
};
struct Graph {
  std::vector<Node> nodes;
};
struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  uint64_t id, origin;
  bool invalid = false;
};
struct Stream {
  int device, priority;
  unsigned flags;
  uint64_t id, issued = 0, done = 0;
  bool legacy = false;
  std::deque<Item> queue;
  std::shared_ptr<Capture> capture;
  std::vector<size_t> tails; // the nodes that the next one follows
};
struct Stamp {
  bool done = false;
  double time = 0;
};
struct Event {
  int device;
  unsigned flags;
  uint64_t stream = 0, seq = 0;
  std::shared_ptr<Stamp> stamp;
  std::shared_ptr<Capture> capture;
  std::vector<size_t> tails;
};

static std::map<uint64_t, std::unique_ptr<Stream>> &streams =
    *new std::map<uint64_t, std::unique_ptr<Stream>>;
static std::map<uint64_t, Stream *> &legacies = *new std::map<uint64_t, Stream *>; // by device
static std::map<std::pair<int, std::thread::id>, Stream *> &per_thread =
    *new std::map<std::pair<int, std::thread::id>, Stream *>;
static std::set<Event *> &events = *new std::set<Event *>;
static std::set<Graph *> &graphs = *new std::set<Graph *>;
static std::set<Graph *> &execs = *new std::set<Graph *>;
static std::map<Graph *, std::shared_ptr<Graph>> &graph_owners =
    *new std::map<Graph *, std::shared_ptr<Graph>>;
static uint64_t next_id = 1, next_capture = 1;
static int busy_depth;
static thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

static double now_ms() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

static Stream *make_stream(int device, unsigned flags, int priority) {
  auto s = std::make_unique<Stream>();
  s->device = device, s->flags = flags, s->priority = priority, s->id = next_id++;
  Stream *p = s.get();
  streams[p->id] = std::move(s);
  return p;
}

static Stream *find(cudaStream_t handle) {
  if (!handle || handle == cudaStreamLegacy) {
    Stream *&s = legacies[static_cast<uint64_t>(current_device)];
    if (!s) {
      s = make_stream(current_device, 0, 0);
      s->legacy = true;
    }
    return s;
  }
  if (handle == cudaStreamPerThread) {
    Stream *&s = per_thread[{current_device, std::this_thread::get_id()}];
    if (!s) s = make_stream(current_device, 0, 0);
    return s;
  }
  for (auto &[id, s] : streams)
    if (s.get() == reinterpret_cast<Stream *>(handle)) return s.get();
  sim_report("use of stream %p, which is destroyed or never was", static_cast<void *>(handle));
  return nullptr;
}

bool busy() {
  return busy_depth > 0;
}
int stream_device(cudaStream_t handle) {
  const Stream *s = find(handle);
  return s ? s->device : -1;
}
bool is_capturing(cudaStream_t handle) {
  const Stream *s = find(handle);
  return s && s->capture;
}

static void run_until(Stream *s, uint64_t seq) {
  while (s->done < seq && !s->queue.empty()) {
    for (const Dep &d : std::vector<Dep>(s->queue.front().deps)) {
      auto it = streams.find(d.stream);
      if (it != streams.end()) run_until(it->second.get(), d.seq);
    }
    Item item = std::move(s->queue.front());
    s->queue.pop_front();
    if (!device_error(s->device)) { // a device that failed runs nothing more
      Opened opened;
      Running running(item.name);
      busy_depth++;
      item.work();
      busy_depth--;
    }
    s->done++;
  }
}

static std::vector<Stream *> waiting(int device) { // all devices: -1
  std::vector<Stream *> r;
  for (auto &[id, s] : streams)
    if (!s->queue.empty() && (device < 0 || s->device == device)) r.push_back(s.get());
  return r;
}

void progress() {
  if (busy_depth) return;
  for (size_t n = random_below(4); n; n--) {
    const std::vector<Stream *> ready = waiting(-1);
    if (ready.empty()) return;
    Stream *s = ready[random_below(ready.size())];
    run_until(s, s->done + 1);
  }
}

static void run_device(int device) {
  Opened opened; // once for the batch
  for (;;) {
    const std::vector<Stream *> ready = waiting(device);
    if (ready.empty()) break;
    if (options().streams == SIM_STREAMS_RANDOM) {
      Stream *s = ready[random_below(ready.size())];
      run_until(s, s->done + 1);
    } else {
      run_until(ready.back(), ready.back()->issued);
    }
  }
}
void wait_all() {
  if (!busy_depth) run_device(-1);
}

// ---- Capture ----------------------------------------------------------------------------------

static cudaError_t spoil(const std::shared_ptr<Capture> &c, cudaError_t e) {
  c->invalid = true;
  return e;
}

cudaError_t forbid_in_capture() {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t e = cudaSuccess;
  for (auto &[id, s] : streams) {
    const auto &c = s->capture;
    if (!c || c->mode == cudaStreamCaptureModeRelaxed) continue;
    const bool mine = c->thread == std::this_thread::get_id();
    if (!mine &&
        (c->mode != cudaStreamCaptureModeGlobal || thread_mode != cudaStreamCaptureModeGlobal))
      continue;
    e = spoil(c, cudaErrorStreamCaptureUnsupported);
  }
  return e;
}

static size_t add_node(Stream *s, const char *name, std::function<void()> work) {
  auto &nodes = s->capture->graph->nodes;
  nodes.push_back({name, std::move(work), s->tails});
  s->tails = {nodes.size() - 1};
  return nodes.size() - 1;
}

static void run_graph(const Graph &g) {
  std::vector<size_t> open(g.nodes.size()), ready;
  for (size_t i = 0; i < g.nodes.size(); i++) {
    open[i] = g.nodes[i].deps.size();
    if (!open[i]) ready.push_back(i);
  }
  const int mode = options().streams;
  while (!ready.empty()) {
    const size_t at = mode == SIM_STREAMS_RANDOM ? random_below(ready.size())
                      : mode == SIM_STREAMS_LAZY ? ready.size() - 1
                                                 : 0;
    const size_t i = ready[at];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(at));
    {
      Running running(g.nodes[i].name);
      if (g.nodes[i].work) g.nodes[i].work();
    }
    for (size_t j = i + 1; j < g.nodes.size(); j++)
      for (size_t d : g.nodes[j].deps)
        if (d == i && --open[j] == 0) ready.push_back(j);
    if (mode == SIM_STREAMS_EAGER) std::sort(ready.begin(), ready.end());
  }
}

// ---- Pushing, waiting -------------------------------------------------------------------------

static cudaError_t push_to(Stream *s, const char *name, std::function<void()> work) {
  if (s->capture) {
    if (s->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    add_node(s, name, std::move(work));
    return cudaSuccess;
  }
  Item item = {name, std::move(work), {}};
  for (auto &[id, o] : streams) {
    if (o.get() == s || o->device != s->device) continue;
    const bool orders = (s->legacy && !(o->flags & cudaStreamNonBlocking)) ||
                        (o->legacy && !(s->flags & cudaStreamNonBlocking));
    if (!orders) continue;
    if (s->legacy && o->capture) return spoil(o->capture, cudaErrorStreamCaptureImplicit);
    if (o->done < o->issued) item.deps.push_back({id, o->issued});
  }
  // Waits that were asked of the stream before come first in its queue, as empty items.
  s->queue.push_back(std::move(item));
  s->issued++;
  if (options().streams == SIM_STREAMS_EAGER && !busy_depth) run_until(s, s->issued);
  return cudaSuccess;
}

cudaError_t push(cudaStream_t handle, const char *name, std::function<void()> work) {
  Stream *s = find(handle);
  return s ? push_to(s, name, std::move(work)) : cudaErrorInvalidResourceHandle;
}

cudaError_t wait_stream(cudaStream_t handle) {
  Stream *s = find(handle);
  if (!s) return cudaErrorInvalidResourceHandle;
  if (busy_depth) return cudaErrorNotPermitted; // from a host function
  if (s->capture) return spoil(s->capture, cudaErrorStreamCaptureUnsupported);
  if (s->legacy) { // its last place waits for all blocking streams
    const cudaError_t e = push_to(s, "wait", [] {});
    if (e) return e;
  }
  Opened opened;
  run_until(s, s->issued);
  return device_error(s->device);
}

cudaError_t wait_device(int device) {
  if (busy_depth) return cudaErrorNotPermitted;
  for (auto &[id, s] : streams)
    if (s->device == device && s->capture)
      return spoil(s->capture, cudaErrorStreamCaptureUnsupported);
  Opened opened;
  run_device(device);
  check_all_slack("found when the device was waited for");
  return device_error(device);
}

void drop_device(int device) {
  for (auto it = streams.begin(); it != streams.end();) {
    if (it->second->device != device) {
      ++it;
      continue;
    }
    for (auto p = per_thread.begin(); p != per_thread.end();)
      p = p->second == it->second.get() ? per_thread.erase(p) : std::next(p);
    it = streams.erase(it);
  }
  legacies.erase(static_cast<uint64_t>(device));
  for (auto it = events.begin(); it != events.end();) {
    Event *e = *it;
    it = e->device == device ? events.erase(it) : std::next(it);
    if (e->device == device) delete e;
  }
}

size_t live_streams() { // those that somebody made
  return streams.size() - legacies.size() - per_thread.size();
}
size_t live_events() {
  return events.size();
}

// One item further, for polls: else a loop round a query would never end.
static void step(Stream *s) {
  if (!busy_depth) {
    Opened opened;
    run_until(s, s->done + 1);
  }
}

static Event *find_event(cudaEvent_t handle) {
  Event *e = reinterpret_cast<Event *>(handle);
  if (events.count(e)) return e;
  sim_report("use of event %p, which is destroyed or never was", static_cast<void *>(handle));
  return nullptr;
}

template <class T> static T *find_graph(std::set<T *> &in, void *handle) {
  T *g = static_cast<T *>(handle);
  return in.count(g) ? g : nullptr;
}

} // namespace sim

using namespace sim;

cudaError_t sim_push(cudaStream_t stream, const char *name, std::function<void()> work) {
  Api api(true);
  if (cudaError_t e = device_error(current_device)) return e;
  return push(stream, name, [work = std::move(work)] {
    counts().library_calls++;
    work();
  });
}

extern "C" {

// ---- Streams ----------------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
  SIM_ENTER();
  if (!out || (flags & ~unsigned(cudaStreamNonBlocking))) return fail(cudaErrorInvalidValue);
  *out = reinterpret_cast<cudaStream_t>(
      make_stream(current_device, flags, std::max(-5, std::min(0, priority))));
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *out) {
  return cudaStreamCreateWithPriority(out, 0, 0);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
  return cudaStreamCreateWithPriority(out, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  Api api;
  if (!handle || handle == cudaStreamLegacy || handle == cudaStreamPerThread)
    return fail(cudaErrorInvalidResourceHandle);
  Stream *s = find(handle);
  if (!s) return fail(cudaErrorInvalidResourceHandle);
  {
    Opened opened;
    run_until(s, s->issued);
  }
  streams.erase(s->id);
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *out) {
  SIM_ENTER();
  Stream *s = find(handle);
  if (!s || !out) return fail(cudaErrorInvalidResourceHandle);
  *out = s->priority;
  return cudaSuccess;
}
cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *out) {
  SIM_ENTER();
  Stream *s = find(handle);
  if (!s || !out) return fail(cudaErrorInvalidResourceHandle);
  *out = s->flags;
  return cudaSuccess;
}
cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long *out) {
  SIM_ENTER();
  Stream *s = find(handle);
  if (!s || !out) return fail(cudaErrorInvalidResourceHandle);
  *out = s->id;
  return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *out) {
  SIM_ENTER();
  Stream *s = find(handle);
  if (!s || !out) return fail(cudaErrorInvalidResourceHandle);
  *out = s->device;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  SIM_ENTER();
  counts().synchronisations++;
  return fail(wait_stream(handle));
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  SIM_ENTER();
  Stream *s = find(handle);
  if (!s) return fail(cudaErrorInvalidResourceHandle);
  if (s->capture) return fail(spoil(s->capture, cudaErrorStreamCaptureUnsupported));
  if (s->queue.empty()) return cudaSuccess;
  step(s);
  return cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  SIM_ENTER();
  Stream *s = find(handle);
  Event *e = find_event(event);
  if (!s || !e || flags) return fail(cudaErrorInvalidResourceHandle);
  if (e->capture) {
    if (s->capture && s->capture != e->capture)
      return fail(spoil(s->capture, cudaErrorStreamCaptureMerge));
    if (e->capture->invalid) return fail(cudaErrorStreamCaptureInvalidated);
    s->capture = e->capture; // a fork joins
    for (size_t t : e->tails)
      if (std::find(s->tails.begin(), s->tails.end(), t) == s->tails.end()) s->tails.push_back(t);
    return cudaSuccess;
  }
  if (s->capture) return fail(spoil(s->capture, cudaErrorStreamCaptureIsolation));
  if (!e->stamp || e->stamp->done) return cudaSuccess;
  const Dep dep = {e->stream, e->seq};
  if (dep.stream == s->id) return cudaSuccess;
  const int mode = options().streams;
  if (mode == SIM_STREAMS_EAGER && !busy()) return cudaSuccess; // has run
  const cudaError_t r = push_to(s, "cudaStreamWaitEvent", [] {});
  if (!r && !s->queue.empty()) s->queue.back().deps.push_back(dep);
  return fail(r);
}

static cudaError_t host_function(cudaStream_t handle, std::function<void()> fn) {
  return push(handle, "host function", [fn = std::move(fn)] {
    Closed closed;
    fn();
  });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t fn, void *data) {
  SIM_ENTER();
  if (!fn) return fail(cudaErrorInvalidValue);
  return fail(host_function(handle, [=] { fn(data); }));
}
cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t fn, void *data,
                                  unsigned flags) {
  SIM_ENTER();
  if (!fn || flags) return fail(cudaErrorInvalidValue);
  return fail(host_function(handle, [=] { fn(handle, cudaSuccess, data); }));
}

// ---- Events -----------------------------------------------------------------------------------

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
  SIM_ENTER();
  if (!out) return fail(cudaErrorInvalidValue);
  Event *e = new Event{current_device, flags, 0, 0, nullptr, nullptr, {}};
  events.insert(e);
  *out = reinterpret_cast<cudaEvent_t>(e);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *out) {
  return cudaEventCreateWithFlags(out, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  Api api;
  Event *e = find_event(handle);
  if (!e) return fail(cudaErrorInvalidResourceHandle);
  events.erase(e);
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream, unsigned) {
  SIM_ENTER();
  Event *e = find_event(handle);
  Stream *s = find(stream);
  if (!e || !s || e->device != s->device) return fail(cudaErrorInvalidResourceHandle);
  if (s->capture) {
    e->capture = s->capture;
    e->tails = s->tails;
    return cudaSuccess;
  }
  e->capture = nullptr;
  auto stamp = std::make_shared<Stamp>();
  e->stamp = stamp;
  e->stream = s->id;
  e->seq = s->issued + 1;
  return fail(push_to(s, "cudaEventRecord", [stamp] {
    stamp->done = true;
    stamp->time = now_ms();
  }));
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  return cudaEventRecordWithFlags(handle, stream, 0);
}
static bool event_done(const Event *e) {
  auto s = streams.find(e->stream);
  return !e->stamp || e->stamp->done || s == streams.end() || s->second->done >= e->seq;
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  SIM_ENTER();
  Event *e = find_event(handle);
  if (!e) return fail(cudaErrorInvalidResourceHandle);
  if (e->capture) return fail(spoil(e->capture, cudaErrorCapturedEvent));
  if (event_done(e)) return cudaSuccess;
  step(streams[e->stream].get());
  return cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  SIM_ENTER();
  counts().synchronisations++;
  Event *e = find_event(handle);
  if (!e) return fail(cudaErrorInvalidResourceHandle);
  if (e->capture) return fail(spoil(e->capture, cudaErrorCapturedEvent));
  if (busy()) return fail(cudaErrorNotPermitted);
  if (!event_done(e)) {
    Opened opened;
    run_until(streams[e->stream].get(), e->seq);
  }
  return fail(device_error(e->device));
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
  SIM_ENTER();
  const Event *a = find_event(start), *b = find_event(end);
  if (!ms) return fail(cudaErrorInvalidValue);
  if (!a || !b || !a->stamp || !b->stamp || ((a->flags | b->flags) & cudaEventDisableTiming))
    return fail(cudaErrorInvalidResourceHandle);
  if (!a->stamp->done || !b->stamp->done) return fail(cudaErrorNotReady);
  *ms = static_cast<float>(b->stamp->time - a->stamp->time);
  return cudaSuccess;
}

// ---- Capture ----------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  SIM_ENTER();
  Stream *s = find(handle);
  if (!s) return fail(cudaErrorInvalidResourceHandle);
  if (s->legacy) return fail(cudaErrorStreamCaptureUnsupported);
  if (s->capture) return fail(cudaErrorIllegalState);
  s->capture = std::make_shared<Capture>();
  s->capture->mode = mode;
  s->capture->thread = std::this_thread::get_id();
  s->capture->id = next_capture++;
  s->capture->origin = s->id;
  s->tails.clear();
  return cudaSuccess;
}

// Whether all nodes come before the end of the origin.
static bool all_joined(const Capture &c, const std::vector<size_t> &tails) {
  std::vector<bool> reached(c.graph->nodes.size());
  std::vector<size_t> todo = tails;
  while (!todo.empty()) {
    const size_t i = todo.back();
    todo.pop_back();
    if (reached[i]) continue;
    reached[i] = true;
    for (size_t d : c.graph->nodes[i].deps) todo.push_back(d);
  }
  return std::find(reached.begin(), reached.end(), false) == reached.end();
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *out) {
  SIM_ENTER();
  Stream *s = find(handle);
  if (!s || !out) return fail(cudaErrorInvalidValue);
  *out = nullptr;
  if (!s->capture) return fail(cudaErrorIllegalState);
  const std::shared_ptr<Capture> c = s->capture;
  if (c->origin != s->id) return fail(spoil(c, cudaErrorStreamCaptureUnmatched));
  if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
    return fail(cudaErrorStreamCaptureWrongThread);
  cudaError_t e = c->invalid                  ? cudaErrorStreamCaptureInvalidated
                  : !all_joined(*c, s->tails) ? cudaErrorStreamCaptureUnjoined
                                              : cudaSuccess;
  for (auto &[id, o] : streams)
    if (o->capture == c) {
      o->capture = nullptr;
      o->tails.clear();
    }
  if (e) {
    c->invalid = true;
    return fail(e);
  }
  graphs.insert(c->graph.get());
  graph_owners[c->graph.get()] = c->graph;
  *out = reinterpret_cast<cudaGraph_t>(c->graph.get());
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus *out) {
  SIM_ENTER();
  Stream *s = find(handle);
  if (!s || !out) return fail(cudaErrorInvalidValue);
  *out = !s->capture           ? cudaStreamCaptureStatusNone
         : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                               : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **deps, const cudaGraphEdgeData **edges,
                                     size_t *n) {
  const cudaError_t e = cudaStreamIsCapturing(handle, status);
  if (e) return e;
  Api api(true);
  Stream *s = find(handle);
  if (id) *id = s->capture ? s->capture->id : 0;
  if (graph) *graph = s->capture ? reinterpret_cast<cudaGraph_t>(s->capture->graph.get()) : nullptr;
  if (deps) *deps = nullptr;
  if (edges) *edges = nullptr;
  if (n) *n = 0;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
  Api api;
  if (!mode) return fail(cudaErrorInvalidValue);
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

// ---- Graphs -----------------------------------------------------------------------------------

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t handle,
                                          unsigned long long) {
  SIM_ENTER();
  Graph *g = find_graph(graphs, handle);
  if (!g || !out) return fail(cudaErrorInvalidValue);
  Graph *exec = new Graph(*g);
  execs.insert(exec);
  *out = reinterpret_cast<cudaGraphExec_t>(exec);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long f) {
  return cudaGraphInstantiateWithFlags(out, graph, f);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t handle, cudaStream_t stream) {
  SIM_ENTER();
  return fail(find_graph(execs, handle) && find(stream) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
  SIM_ENTER();
  Graph *g = find_graph(execs, handle);
  if (!g) return fail(cudaErrorInvalidValue);
  auto copy = std::make_shared<Graph>(*g); // the exec may be updated or destroyed meanwhile
  return fail(push(stream, "graph", [copy] {
    counts().graph_launches++;
    run_graph(*copy);
  }));
}
// As the real one allows: the same nodes with other arguments.
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t handle, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *info) {
  SIM_ENTER();
  Graph *exec = find_graph(execs, handle), *g = find_graph(graphs, graph);
  if (!exec || !g) return fail(cudaErrorInvalidValue);
  bool same = exec->nodes.size() == g->nodes.size();
  for (size_t i = 0; same && i < g->nodes.size(); i++)
    same =
        exec->nodes[i].deps == g->nodes[i].deps && !strcmp(exec->nodes[i].name, g->nodes[i].name);
  if (info) {
    memset(info, 0, sizeof *info);
    info->result = same ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
  }
  if (!same) return fail(cudaErrorGraphExecUpdateFailure);
  *exec = *g;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  Api api;
  Graph *g = find_graph(execs, handle);
  if (!g) return fail(cudaErrorInvalidValue);
  execs.erase(g);
  delete g;
  return cudaSuccess;
}
cudaError_t cudaGraphCreate(cudaGraph_t *out, unsigned) {
  SIM_ENTER();
  auto g = std::make_shared<Graph>();
  graphs.insert(g.get());
  graph_owners[g.get()] = g;
  *out = reinterpret_cast<cudaGraph_t>(g.get());
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  Api api;
  Graph *g = find_graph(graphs, handle);
  if (!g) return fail(cudaErrorInvalidValue);
  graphs.erase(g);
  graph_owners.erase(g);
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t *nodes, size_t *n) {
  SIM_ENTER();
  Graph *g = find_graph(graphs, handle);
  if (!g || !n) return fail(cudaErrorInvalidValue);
  if (nodes)
    for (size_t i = 0; i < *n && i < g->nodes.size(); i++)
      nodes[i] = reinterpret_cast<cudaGraphNode_t>(&g->nodes[i]);
  *n = g->nodes.size();
  return cudaSuccess;
}

} // extern "C"
