-- SPDX-License-Identifier: MIT
-- What `require "cnn"` gives: every op and the core's other functions; the rest is loaded when it is
-- first asked for, so that requiring costs next to nothing.
local core = require "cnn.core"

-- Messages name the script's line: they skip the files in this one's directory.
local source = debug.getinfo(1, "S").source
core.set_library(source:sub(1, 1) == "@" and source:match("^@(.*[/\\])") or "")

local tensor = require "cnn.tensor"

local cnn = { version = "0.1.0", core = core, tensor = tensor.new }

-- The core's functions that are no ops and that scripts may call. The others serve the library's files.
local PUBLIC = {
  "clock", "detect_anomaly", "empty_cache", "enable_grad", "gc", "get_default_device", "get_default_dtype",
  "get_num_threads", "get_rng_state", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "is_tensor",
  "keep", "manual_seed", "mem_get_info", "memory_allocated", "memory_debug", "newaxis", "no_grad",
  "reset_peak_memory_stats", "set_default_device", "set_default_dtype", "set_detect_anomaly", "set_grad_enabled",
  "set_memory_limit", "set_num_threads", "set_rng_state", "with_pool",
}
for name, op in pairs(core.functions) do cnn[name] = op end
for _, name in ipairs(PUBLIC) do cnn[name] = core[name] end
for _, dtype in ipairs(tensor.dtypes) do cnn[dtype] = dtype end

-- What graph nodes know is written in cnn.autograd, loaded at the first look at one.
local nodes = core.node_metatable
for _, event in ipairs { "__index", "__tostring" } do
  nodes[event] = nodes[event] or function(...)
    require "cnn.autograd"
    return nodes[event](...)
  end
end

-- Submodules: cnn.nn is require "cnn.nn", on first use.
local MODULES = {
  F = "cnn.functional", autograd = "cnn.autograd", cuda = "cnn.cuda", data = "cnn.data", io = "cnn.io",
  nn = "cnn.nn", optim = "cnn.optim", viz = "cnn.viz",
}
-- Functions by the file that has them.
local FUNCTIONS = {
  ["cnn.autograd"] = { "grad", "Function" },
  ["cnn.cuda"] = { "count_launches" },
  ["cnn.checkpoint"] = { "checkpoint", "checkpoint_sequential" },
  ["cnn.estimate"] = { "bytes_per_parameter", "estimate", "max_batch", "measure_memory" },
  ["cnn.gradcheck"] = { "gradcheck" },
  ["cnn.format"] = { "set_printoptions", "get_printoptions" },
  ["cnn.help"] = { "help", "ops" },
  ["cnn.io"] = { "save", "load" },
  ["cnn.offload"] = { "save_on_cpu" },
  ["cnn.memory"] = {
    "scope", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats", "memory_summary",
    "pool", "set_memory_fraction", "synchronize",
  },
  ["cnn.record"] = { "leaks", "live", "memory_snapshot", "record_memory" },
}
local home = {}
for file, names in pairs(FUNCTIONS) do
  for _, name in ipairs(names) do home[name] = file end
end

-- What is loaded later, for completion.
local function names()
  local list = {}
  for name in pairs(MODULES) do list[#list + 1] = name end
  for name in pairs(home) do list[#list + 1] = name end
  return list
end

return setmetatable(cnn, {
  names = names,
  __index = function(_, name)
    local value
    if MODULES[name] then
      value = require(MODULES[name])
    elseif home[name] then
      value = require(home[name])[name]
    end
    if value ~= nil then rawset(cnn, name, value) end
    return value
  end,
})
