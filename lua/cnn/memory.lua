-- SPDX-License-Identifier: MIT
-- What scripts see of memory, on top of the core's counters: scopes, peaks, limits, a table to read.
-- `dev` is the default device when left out; a pool does as well.
local core = require "cnn.core"
local options = require "cnn.options"

local fail, describe = core.fail, core.describe

local memory = {}

-- ---------------------------------------------------------------------------------------------
-- Scopes

local enter, leave = core.scope_enter, core.scope_leave

local function results(ok, ...)
  if ok then return ... end
  error((...), 0)
end

-- cnn.scope(fn, ...): calls fn(...), then frees every tensor handle that was made meanwhile, but for
-- those among the results (also in tables) and those given to cnn.keep. What the graph, a module or an
-- optimizer holds stays. An error passes through; the scope is left all the same.
function memory.scope(fn, ...)
  options.expect_callable("scope", "argument 1 (fn)", fn)
  return results(leave(enter(), pcall(fn, ...)))
end

-- The same for what runs under a checkpoint, around functions that know nothing of a scope: a tensor that
-- becomes a field of a module, or that backward needs (memory.outlive), is not freed.
function memory.transient(fn, ...)
  return results(leave(enter(true), pcall(fn, ...)))
end

local getupvalue = debug and debug.getupvalue

-- fn is called later, by backward: tensors among its upvalues must be there then.
function memory.outlive(fn)
  local i = type(fn) == "function" and getupvalue and 1
  while i do
    local name, value = getupvalue(fn, i)
    if core.is_tensor(value) then core.scope_outlive(value) end
    i = name and i + 1
  end
end

-- ---------------------------------------------------------------------------------------------
-- Counters

-- Counters by PyTorch's flat names: stats["allocated_bytes.all.peak"], stats["allocation.small_pool.current"].
local Stats = {}

local ALIAS = { allocation = "blocks", num_device_alloc = "maps", num_device_free = "unmaps" }
local SCOPES = { small_pool = "small", large_pool = "large" }

function Stats:__index(key)
  if ALIAS[key] then return rawget(self, ALIAS[key]) end
  local name, scope, field = tostring(key):match("^([%w_]+)%.([%w_]+)%.(%w+)$")
  local all = scope == "all" and self or SCOPES[scope] and rawget(self, SCOPES[scope])
  local counter = all and rawget(all, ALIAS[name] or name)
  if type(counter) == "number" then return field == "current" and counter or nil end
  return counter and rawget(counter, field == "allocated" and "total" or field)
end

-- All counters of a device or pool.
function memory.memory_stats(dev)
  return setmetatable(core.memory_stats(dev), Stats)
end

function memory.max_memory_allocated(dev)
  return core.memory_stats(dev).allocated_bytes.peak
end

function memory.memory_reserved(dev)
  return core.memory_stats(dev).reserved_bytes.current
end

function memory.max_memory_reserved(dev)
  return core.memory_stats(dev).reserved_bytes.peak
end

-- Caps the device at a share of its memory. On a GPU the share includes what its context takes.
function memory.set_memory_fraction(fraction, dev)
  if type(fraction) ~= "number" or not (fraction >= 0 and fraction <= 1) then
    fail("set_memory_fraction: expected a number from 0 to 1, got " .. describe(fraction))
  end
  local _, total = core.mem_get_info(dev)
  local limit, device = fraction * total, type(dev) == "string" and dev or core.get_default_device()
  if type(dev) ~= "userdata" and device:find("^cuda") then
    limit = math.max(0, limit - core.cuda.properties(device, "set_memory_fraction").context_memory)
  end
  core.set_memory_limit(math.floor(limit), dev)
end

-- Waits until the device has done all that was asked of it. The CPU always has.
memory.synchronize = core.cuda.synchronize

-- ---------------------------------------------------------------------------------------------
-- For people

-- "1.50 MiB": bytes in the largest unit that they fill, with `digits` (2) behind the point.
function memory.bytes_text(bytes, digits)
  local size = math.abs(bytes)
  if size < 1024 then return ("%d B"):format(bytes) end
  local units, i = { "KiB", "MiB", "GiB", "TiB" }, 1
  size = bytes / 1024
  while math.abs(size) >= 1024 and i < #units do
    size, i = size / 1024, i + 1
  end
  return ("%." .. (digits or 2) .. "f %s"):format(size, units[i])
end

local KINDS = {
  "parameters", "gradients", "optimizer state", "activations", "buffers", "workspace", "data", "other",
}

local function number(n) return ("%d"):format(n) end

-- "cpu", or what a pool is called.
local function title(dev)
  if type(dev) ~= "userdata" then return dev or core.get_default_device() end
  return ("pool \"%s\" on %s"):format(dev:name(), dev:device())
end

-- A table of the counters: what is in use now, at its peak, was ever taken and given back; by size, by
-- kind, by class of sizes.
function memory.memory_summary(dev)
  local s, bytes = core.memory_stats(dev), memory.bytes_text
  local lines = {}
  local function row(name, counter, text)
    lines[#lines + 1] = ("  %-18s %12s %12s %14s %14s"):format(name, text(counter.current), text(counter.peak),
      text(counter.total), text(counter.freed))
  end
  lines[1] = ("memory of %s: limit %s, room for %s, largest free block %s"):format(
    title(dev), bytes(s.limit), bytes(s.available), bytes(s.largest_free))
  lines[2] = ("  %-18s %12s %12s %14s %14s"):format("", "now", "peak", "ever", "freed")
  row("allocated", s.allocated_bytes, bytes)
  row("  small blocks", s.small.allocated_bytes, bytes)
  row("  large blocks", s.large.allocated_bytes, bytes)
  row("requested", s.requested_bytes, bytes)
  row("reserved", s.reserved_bytes, bytes)
  row("blocks", s.blocks, number)
  row("  small", s.small.blocks, number)
  row("  large", s.large.blocks, number)
  if s.active_bytes.peak > s.allocated_bytes.peak then row("active", s.active_bytes, bytes) end
  row("unused", s.inactive_bytes, bytes)
  row("  between blocks", s.inactive_split_bytes, bytes)
  lines[#lines + 1] = "  allocated, by kind"
  for _, kind in ipairs(KINDS) do
    local counter = s.kinds[kind]
    if counter and counter.total > 0 then row("  " .. kind, counter, bytes) end
  end
  lines[#lines + 1] = "  blocks, by size up to"
  for _, class in ipairs(s.classes) do
    row("  " .. (class.size < math.huge and bytes(class.size) or "any"), class.blocks, number)
  end
  lines[#lines + 1] = "  unused: reserved, in no block; between blocks: it shares granules with blocks in use"
  lines[#lines + 1] = ("  asked the device for memory %d times, gave back %d times"):format(s.maps, s.unmaps)
  lines[#lines + 1] = ("  %d requests tried again after making room, %d refused for good (of %d refusals)"):format(
    s.num_alloc_retries, s.num_ooms, s.failures)
  if s.stream_waits > 0 or s.waiting_bytes > 0 then
    lines[#lines + 1] = ("  waited for streams %d times; %s were freed and wait for other streams"):format(
      s.stream_waits, bytes(s.waiting_bytes))
  end
  return table.concat(lines, "\n")
end

-- ---------------------------------------------------------------------------------------------
-- Pools

-- cnn.pool{limit = bytes, device = "cpu", name = "critic"}: memory apart from the device's other pools.
-- What cnn.with_pool(pool, fn, ...) allocates comes from it.
function memory.pool(...)
  local o = options.read("pool", { "limit", "device", "name" }, ...)
  if o.name ~= nil and type(o.name) ~= "string" then
    fail("pool: name must be a string, got " .. describe(o.name))
  end
  return core.new_pool(o.limit, o.device, o.name)
end

local methods = core.pool_metatable.__index

methods.stats = memory.memory_stats
methods.summary = memory.memory_summary
methods.reset_peaks = core.reset_peak_memory_stats

function core.pool_metatable:__tostring()
  local s = core.memory_stats(self)
  return ("%s: %s in use, limit %s"):format(title(self), memory.bytes_text(s.allocated_bytes.current),
    memory.bytes_text(s.limit))
end

return memory
