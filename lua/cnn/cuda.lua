-- SPDX-License-Identifier: MIT
-- cnn.cuda: the GPU under PyTorch's names. Without the CUDA plugin, or without a GPU, is_available says
-- why not, and everything else raises that.
local core = require "cnn.core"
local memory = require "cnn.memory"

local fail, describe = core.fail, core.describe

local cuda = {}

-- Whether a GPU can be used; if not, also why.
function cuda.is_available()
  local found, why = pcall(core.memory_allocated, "cuda")
  if found then return true end
  return false, tostring(why):match("device \"cuda\".*") or tostring(why)
end

-- How many GPUs there are. 0 without any.
function cuda.device_count()
  local n = 0
  while pcall(core.memory_allocated, "cuda:" .. ("%d"):format(n)) do n = n + 1 end
  return n
end

-- "cuda", "cuda:1", or a GPU's number (from 0, as every GPU tool counts them).
local function device_name(name, device)
  if device == nil then return "cuda" end
  if type(device) == "number" then device = ("cuda:%d"):format(device) end
  if type(device) ~= "string" or device:sub(1, 4) ~= "cuda" then
    fail(("cuda.%s: expected a GPU's number or name (\"cuda:0\"), got %s"):format(name, describe(device)))
  end
  return device
end

local COUNTERS = {
  memory_allocated = core.memory_allocated, max_memory_allocated = memory.max_memory_allocated,
  memory_reserved = memory.memory_reserved, max_memory_reserved = memory.max_memory_reserved,
  memory_stats = memory.memory_stats, memory_summary = memory.memory_summary,
  reset_peak_memory_stats = core.reset_peak_memory_stats, empty_cache = core.empty_cache,
  mem_get_info = core.mem_get_info, synchronize = memory.synchronize,
}
for name, f in pairs(COUNTERS) do
  cuda[name] = function(device) return f(device_name(name, device)) end
end

function cuda.set_per_process_memory_fraction(fraction, device)
  return memory.set_memory_fraction(fraction, device_name("set_per_process_memory_fraction", device))
end

-- What only the plugin can do.
for _, name in ipairs { "get_device_name", "get_device_properties", "current_device", "set_device", "Stream",
  "Event", "stream", "current_stream" } do
  cuda[name] = function()
    local _, why = cuda.is_available()
    return fail(("cuda.%s: %s"):format(name, why or "not available in this build"))
  end
end

return cuda
