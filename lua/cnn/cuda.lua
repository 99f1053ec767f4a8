-- SPDX-License-Identifier: MIT
-- cnn.cuda: GPUs under PyTorch's names. The plugin is loaded by the first call that needs it. Without
-- it, or without a GPU, is_available says why not, and everything else raises that.
local compile = require "cnn.kernel"
local core = require "cnn.core"
local memory = require "cnn.memory"
local options = require "cnn.options"

local native = core.cuda
local fail, describe = core.fail, core.describe

local cuda = {}

-- ---------------------------------------------------------------------------------------------
-- Devices

-- Whether a GPU can be used; if not, also why.
cuda.is_available = native.available

-- How many GPUs there are. 0 without any.
cuda.device_count = native.count

-- Runs all that follows on the simulator of the plugin, which computes GPU kernels on the CPU: slowly,
-- for learning, for tests, and for finding faults in kernels. Must come before the first use of a GPU.
function cuda.simulate()
  if cuda.is_simulated() then return end
  native.load("cnn_cuda_sim.so")
  io.stderr:write("cnn: CUDA devices are simulated on the CPU: slow, and times mean nothing\n")
end

-- Whether the GPUs are simulated.
function cuda.is_simulated()
  local _, simulated = native.driver()
  return simulated or false
end

-- "cuda:1", or a GPU's number (from 0, as every GPU tool counts them); nil is the current one.
local function device_name(name, device)
  if device ~= nil and type(device) ~= "number" and (type(device) ~= "string" or device:sub(1, 4) ~= "cuda") then
    fail(("cuda.%s: expected a GPU's number or name (\"cuda:0\"), got %s"):format(name, describe(device)))
  end
  return native.device_name(device, "cuda." .. name)
end

local COUNTERS = {
  memory_allocated = core.memory_allocated, max_memory_allocated = memory.max_memory_allocated,
  memory_reserved = memory.memory_reserved, max_memory_reserved = memory.max_memory_reserved,
  memory_stats = memory.memory_stats, memory_summary = memory.memory_summary,
  reset_peak_memory_stats = core.reset_peak_memory_stats,
  mem_get_info = core.mem_get_info, synchronize = memory.synchronize,
  get_device_properties = native.properties, libraries = native.libraries,
}
-- (libraries: which of them serve a GPU, by name: {version =}, or {reason =} why own kernels compute in
-- place of it. Opens cublaslt, cudnn and nvrtc.)
for name, f in pairs(COUNTERS) do
  cuda[name] = function(device) return f(device_name(name, device)) end
end

-- As cnn.empty_cache; also gives up pinned memory that is kept for reuse.
function cuda.empty_cache(device)
  native.trim_pinned()
  return core.empty_cache(device_name("empty_cache", device))
end

function cuda.memory_snapshot(device, file)
  return require("cnn.record").memory_snapshot { device = device_name("memory_snapshot", device), file = file }
end

function cuda.set_per_process_memory_fraction(fraction, device)
  return memory.set_memory_fraction(fraction, device_name("set_per_process_memory_fraction", device))
end

function cuda.get_device_name(device)
  return native.properties(device_name("get_device_name", device), "cuda.get_device_name").name
end

-- "Compute capability": two numbers.
function cuda.is_bf16_supported(device)
  return native.properties(device_name("is_bf16_supported", device), "cuda.is_bf16_supported").major >= 8
end

function cuda.get_device_capability(device)
  local p = native.properties(device_name("get_device_capability", device), "cuda.get_device_capability")
  return p.major, p.minor
end

-- The number of the GPU that "cuda" names, and this module's functions mean when none is named. 0 at
-- first.
function cuda.current_device()
  return tonumber(device_name("current_device"):match("%d+"))
end

function cuda.set_device(device)
  native.set_device(device_name("set_device", device))
end

-- cnn.cuda.device(d, fn, ...): fn(...) with d as the current GPU; gives fn's results.
function cuda.device(device, fn, ...)
  return native.with_device(device_name("device", device), fn, ...)
end

-- Whether every op is waited for, so that an error is raised by the line that made it. Gives how it
-- was.
cuda.set_sync = native.set_sync

-- Whether products and convolutions of float32 may round their factors to TF32, several times faster
-- and with 10 bits of mantissa. Off at first. Gives how it was.
cuda.allow_tf32 = native.allow_tf32

-- Whether the ReLU behind a linear layer or a convolution in a Sequential is left to the library: one
-- pass over the result less. But cuBLASLt's ReLU of NaN is 0, which hides what has gone wrong (cuDNN
-- doesn't say). Off at first. Gives how it was.
cuda.fuse_relu = native.fuse_relu

-- CPU and GPUs draw from one generator.
cuda.manual_seed, cuda.manual_seed_all = core.manual_seed, core.manual_seed

-- A list of the ops that have no kernel here.

-- ---------------------------------------------------------------------------------------------
-- Streams and events

-- Handles by stream, so that current_stream gives the one that was set.
local streams = setmetatable({}, { __mode = "v" })

local function known(stream)
  streams[native.stream_key(stream)] = stream
  return stream
end

-- cnn.cuda.Stream{device =, priority =}: work given to it (cnn.cuda.stream) goes on beside that of
-- others. A lower number is a higher priority.
function cuda.Stream(...)
  local o = options.read("cuda.Stream", { "device", "priority" }, ...)
  return known(native.new_stream(device_name("Stream", o.device), o.priority))
end

function cuda.default_stream(device)
  return known(native.default_stream(device_name("default_stream", device)))
end

function cuda.current_stream(device)
  local name = device_name("current_stream", device)
  return streams[native.current_key(name)] or cuda.default_stream(name)
end

-- Calls fn(...) with the stream as the current one of its device; gives fn's results.
cuda.stream = native.with_stream

-- Makes the stream the current one of its device from now on.
cuda.set_stream = native.set_stream

-- cnn.cuda.Event{enable_timing = true}
function cuda.Event(...)
  local o = options.read("cuda.Event", { "enable_timing" }, ...)
  return native.new_event(o.enable_timing)
end

local stream_methods, event_methods = native.stream_metatable.__index, native.event_metatable.__index

-- event:record(stream): done when the stream (the current one) has come to this point. Gives itself.
function event_methods.record(event, stream)
  return native.event_record(event, stream or cuda.current_stream())
end

-- event:wait(stream): what comes later on the stream (the current one) waits for the event.
function event_methods.wait(event, stream)
  (stream or cuda.current_stream()):wait_event(event)
  return event
end

-- stream:record_event(event): a new event without one. Gives it.
function stream_methods.record_event(stream, event)
  return native.event_record(event or cuda.Event(), stream)
end

function stream_methods.wait_stream(stream, other)
  return stream:wait_event(other:record_event())
end

function native.stream_metatable.__tostring(stream)
  local key = native.stream_key(stream)
  return ("cnn.cuda.Stream(%s, %s)"):format(stream:device(), key:match(":(.*)"))
end
function native.stream_metatable.__eq(a, b)
  return native.stream_key(a) == native.stream_key(b)
end

-- cnn.cuda.shutdown{force =}: waits for all GPUs and gives up what this process has of them, contexts
-- included: their memory is free for others. An error while tensors lie there (cnn.live lists them), or
-- when a kernel has reported one. With force = true they are lost: whatever touches one raises. Pinned
-- memory becomes ordinary memory, streams, events and kernels must be made anew. The next use of a GPU
-- starts afresh.
function cuda.shutdown(...)
  local o = options.read("cuda.shutdown", { "force" }, ...)
  options.expect("cuda.shutdown", "force", o.force, "boolean")
  for _ = 1, 2 do collectgarbage() end
  native.shutdown(o.force)
  for key in pairs(streams) do streams[key] = nil end
end

-- ---------------------------------------------------------------------------------------------
-- Kernels of one's own

-- cnn.cuda.kernel(source, name, {device =, options =}): a CUDA kernel, compiled now. Call it with where
-- it runs, then its arguments: tensors for pointers, numbers.
--   local axpy = cnn.cuda.kernel([[
--     extern "C" __global__ void axpy(float a, const float *x, float *y, int n) { ... }]], "axpy")
--   axpy({grid = 4, block = 256, shared = 0}, 2, x, y, n)
function cuda.kernel(source, name, ...)
  local o = options.read("cuda.kernel", { "device", "options" }, ...)
  return compile(source, name, device_name("kernel", o.device), o.options)
end

-- ---------------------------------------------------------------------------------------------
-- Counts

-- What `after` has more than `before`, of counts by name: {name = {key = number, ...}, ...}.
local function since(before, after)
  local rows = {}
  for name, counts in pairs(after) do
    local row, more = {}, false
    for key, n in pairs(counts) do
      row[key] = n - (before[name] and before[name][key] or 0)
      more = more or row[key] > 0
    end
    if more then rows[name] = row end
  end
  return rows
end

-- The simulator's counts by kernel, when all that was launched has run.
local function kernels_now()
  for i = 1, cuda.is_simulated() and native.count() or 0 do memory.synchronize(("cuda:%d"):format(i - 1)) end
  return native.kernel_counts()
end

local KEYS = { "kernels", "read", "written", "to_device", "to_host", "within", "syncs" }

-- cnn.count_launches(fn, ...): what fn(...) launched and moved on GPUs, as a table: kernels; bytes that
-- kernels read and write, counting each tensor once; bytes copied to_device, to_host and within; syncs; and
-- by_op with the same of each op ("" for what no op did: kernels of one's own, waiting). On the simulator
-- also by_kernel: launches, blocks, threads and barriers by each kernel's name, and of those of
-- cnn.cuda.kernel the loads and stores of all threads. Then fn's results.
function cuda.count_launches(fn, ...)
  options.expect_callable("count_launches", "argument 1 (fn)", fn)
  local kernels = kernels_now()
  local ops = native.counts()
  local function done(...)
    local total = { by_op = since(ops, native.counts()) }
    for _, key in ipairs(KEYS) do
      total[key] = 0
      for _, c in pairs(total.by_op) do total[key] = total[key] + c[key] end
    end
    if cuda.is_simulated() then total.by_kernel = since(kernels, kernels_now()) end
    return total, ...
  end
  return done(fn(...))
end

return cuda
