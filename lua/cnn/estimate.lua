-- SPDX-License-Identifier: MIT
-- How much memory a model will take, before it takes any: cnn.estimate runs it on the meta device, where
-- tensors have shapes and no bytes, with a pool that does everything but map memory. cnn.max_batch
-- searches with it.
local core = require "cnn.core"
local memory = require "cnn.memory"
local rehearsal = require "cnn.rehearsal"

local fail, describe = core.fail, core.describe

local estimate = {}

local PARTS = {
  "parameters", "gradients", "optimizer_state", "activations", "input", "output", "workspace", "buffers",
}

local Estimate = {}
Estimate.__index = Estimate

function Estimate:__tostring()
  local bytes = memory.bytes_text
  local lines = { ("%-16s %12s %12s"):format(self.mode == "train" and "training" or "inference", "at the peak",
    "most") }
  for _, part in ipairs(PARTS) do
    lines[#lines + 1] = ("%-16s %12s %12s"):format((part:gsub("_", " ")), bytes(self[part]), bytes(self.most[part]))
  end
  lines[#lines + 1] = ("%-16s %12s"):format("overhead", bytes(self.overhead))
  lines[#lines + 1] = ("%-16s %12s"):format("peak", bytes(self.peak))
  lines[#lines + 1] = ("%-16s %12s"):format("peak reserved", bytes(self.peak_reserved))
  return table.concat(lines, "\n")
end

-- Raises an error of the model's, with where it was and what it means here. `batch`: of a real run.
local function refuse(plan, problem, batch)
  if type(problem) ~= "string" then error(problem, 0) end
  local hint = ""
  if not batch and problem:find("meta", 1, true) then
    hint = "\n  (a prediction runs on meta tensors, which have shapes and no values: what looks at values, such as "
      .. "item(), masks or nonzero, can't be predicted; cnn.measure_memory runs the model for real)"
  end
  local start = ("%s: the model does not run on these shapes%s: "):format(plan.what,
    batch and (", with a batch of %d"):format(batch) or "")
  local _, text = pcall(fail, start)
  local place = text:sub(1, #text - #start)
  if problem:sub(1, #place) == place then problem = problem:sub(#place + 1) end
  fail(start .. problem .. hint)
end

-- Begins a simulation of the plan's device, with a limit in bytes if that is given.
local function begin(plan, limit)
  local ok, problem = pcall(core.simulate, plan.device, limit)
  if ok then return end
  local message = problem:gsub("^.-simulate: ", "", 1)
  fail(("%s: %s"):format(plan.what, message))
end

-- Runs the plan in a simulation and returns its counts; nil when the limit is too low for it.
local function simulate(plan, inputs, targets, limit)
  local default = core.get_default_device()
  local function prepare_and_run()
    core.set_default_device("meta")
    local twin = rehearsal.meta_twin(plan)
    local function counted(t, kind)
      core.count_as(kind .. "s")
      local y = twin(t)
      core.count_as()
      return y
    end
    return rehearsal.on_twins(plan, counted, function()
      rehearsal.run(plan, inputs, targets, function(spec)
        core.count_as "data"
        local x = core.empty(spec.shape, { device = "meta", dtype = spec.dtype })
        core.count_as()
        return x
      end, core.simulated_output)
      return core.simulated()
    end)
  end
  begin(plan, limit)
  local ok, result = pcall(prepare_and_run)
  core.count_as()
  core.simulate()
  core.set_default_device(default)
  if not ok and limit and tostring(result):find("out of memory on meta", 1, true) then return nil end
  if not ok then refuse(plan, result) end
  result.mode = plan.mode
  return setmetatable(result, Estimate)
end

local function predict(plan, inputs, target, limit)
  local ok, targets = pcall(rehearsal.targets, plan, inputs, target)
  if not ok then refuse(plan, targets) end
  return simulate(plan, inputs, targets, limit)
end

-- Where the plan's bytes are: its pool, the one in use, or the device.
local function place_of(plan)
  local pool = plan.pool or core.current_pool()
  return pool and pool:device() == plan.device and pool or plan.device
end

-- cnn.estimate(model, {input = {8, 3, 32, 32}, mode = "train", loss = "cross_entropy", optimizer = "AdamW"}):
-- the bytes at the peak, by what they are for, without taking any. Fields: parameters, gradients,
-- optimizer_state, activations, input, output, workspace, buffers and overhead (what blocks take beyond
-- what was asked for) add up to peak, which is what max_memory_allocated will say; peak_requested is
-- without the blocks' rounding, peak_reserved what the pool takes from the device; most.<part> is the
-- most of each part at any time.
function estimate.estimate(model, given)
  local plan = rehearsal.plan("estimate", model, given or {})
  local inputs = rehearsal.specs("estimate", "input", given.input, plan.input_dtype)
  local target = given.target and rehearsal.specs("estimate", "target", given.target, plan.input_dtype)
  return predict(plan, inputs, target)
end

-- cnn.max_batch(model, limit, {input = {3, 32, 32}, ...}): the largest batch that runs within `limit` bytes (nil: the
-- limit of the pool in use, or of the device), and its estimate; 0 when not even one sample does. `input` and `target`
-- are shapes without the batch, or functions from a batch size to shapes.
function estimate.max_batch(model, limit, given)
  if type(limit) == "table" and given == nil then
    fail("max_batch: argument 2 (limit): expected a number of bytes, or nil for the device's limit; options come "
      .. "third: cnn.max_batch(model, nil, {input = ...})")
  end
  local plan = rehearsal.plan("max_batch", model, given or {})
  if limit == nil then limit = core.memory_stats(place_of(plan)).limit end
  if type(limit) ~= "number" or not (limit > 0) then
    fail("max_batch: argument 2 (limit): expected a number of bytes, or nil for the device's limit, got "
      .. describe(limit))
  end
  local MOST = 2 ^ 24
  -- What a batch takes, and the bytes left under the limit: less than 0 when it doesn't run there.
  local function at(batch)
    local inputs = rehearsal.with_batch("max_batch", "input", given.input, batch, plan.input_dtype)
    local target = given.target
      and rehearsal.with_batch("max_batch", "target", given.target, batch, plan.input_dtype)
    local e = predict(plan, inputs, target, limit)
    if e then return e, limit - e.peak_reserved end
    e = predict(plan, inputs, target)
    return e, math.min(limit - e.peak_reserved, -1)
  end
  local best, low_room = at(1)
  if low_room < 0 then return 0, best end
  -- Peaks grow nearly in proportion: the next guess is where a line would meet the limit, at least a
  -- tenth into what is left to search, so that the search ends as surely as by halves.
  local low, high, high_room = 1, nil, nil
  while not high or high - low > 1 do
    local guess
    if not high then
      guess = low * 2
    else
      local share = low_room / (low_room - high_room)
      guess = low + math.floor((high - low) * math.min(math.max(share, 0.1), 0.9))
      guess = math.min(math.max(guess, low + 1), high - 1)
    end
    if guess > MOST then break end
    local e, room = at(guess)
    if room >= 0 then
      low, low_room, best = guess, room, e
    else
      high, high_room = guess, room
    end
  end
  return low, best
end

-- ---------------------------------------------------------------------------------------------
-- By measuring

local Measurement = {}
Measurement.__index = Measurement

function Measurement:__tostring()
  local bytes = memory.bytes_text
  local lines = { ("%8s %14s %14s %14s"):format("batch", "peak", "fit", "difference") }
  for _, r in ipairs(self.rows) do
    local fit = self.fixed + self.per_sample * r.batch
    lines[#lines + 1] = ("%8d %14s %14s %14s"):format(r.batch, bytes(r.requested), bytes(math.floor(fit + 0.5)),
      bytes(math.floor(r.requested - fit + 0.5)))
  end
  lines[#lines + 1] = ("peak = %s + %s per sample, off by at most %s"):format(bytes(math.floor(self.fixed + 0.5)),
    bytes(math.floor(self.per_sample + 0.5)), bytes(math.floor(self.residual + 0.5)))
  return table.concat(lines, "\n")
end

-- The line through (batch, requested) with the least squares, about the mean for exactness.
local function fit(rows)
  local mean_x, mean_y, xx, xy = 0, 0, 0, 0
  for _, r in ipairs(rows) do
    mean_x, mean_y = mean_x + r.batch / #rows, mean_y + r.requested / #rows
  end
  for _, r in ipairs(rows) do
    local dx = r.batch - mean_x
    xx, xy = xx + dx * dx, xy + dx * (r.requested - mean_y)
  end
  local slope = xx > 0 and xy / xx or 0
  local fixed, residual = mean_y - slope * mean_x, 0
  for _, r in ipairs(rows) do
    residual = math.max(residual, math.abs(r.requested - fixed - slope * r.batch))
  end
  return fixed, slope, residual
end

local MEASURE_OPTIONS = { "batches" }
for _, name in ipairs(rehearsal.OPTIONS) do MEASURE_OPTIONS[#MEASURE_OPTIONS + 1] = name end

local function settle(device)
  collectgarbage()
  collectgarbage()
  core.empty_cache(device)
end

-- One run for real, on copies of the model's tensors; the peaks above what was in use before.
local function measure(plan, inputs, targets)
  local place = place_of(plan)
  settle(place)
  local before = core.memory_stats(place)
  core.reset_peak_memory_stats(place)
  local function copy(t)
    local dtype = plan.dtype and t:is_floating_point() and plan.dtype or nil
    if t.device == "meta" then
      return core.functions.zeros_like(t, { device = plan.device, dtype = dtype })
    end
    return core._to(t:detach(), dtype, plan.device, nil, true)
  end
  local after
  rehearsal.on_twins(plan, copy, function()
    -- Positions of any table, and values that no function minds.
    rehearsal.run(plan, inputs, targets, function(spec)
      return core.functions.ones(spec.shape, { device = plan.device, dtype = spec.dtype })
    end, function() end)
    after = core.memory_stats(place)
  end)
  return {
    peak = after.allocated_bytes.peak - before.allocated_bytes.current,
    requested = after.requested_bytes.peak - before.requested_bytes.current,
    reserved = after.reserved_bytes.peak - before.reserved_bytes.current,
  }
end

-- cnn.measure_memory(model, {batches = {1, 2, 4, 8}, input = {3, 32, 32}, mode = "train", ...}): the peak
-- of real runs at several batch sizes, and the line through them: fixed, per_sample and residual (the
-- largest difference), in requested bytes; rows[i] has batch, peak, requested, reserved. The model runs
-- on copies of its tensors. Inputs are ones.
function estimate.measure_memory(model, given)
  local plan = rehearsal.plan("measure_memory", model, given or {}, MEASURE_OPTIONS)
  local batches = given.batches or { 1, 2, 4, 8 }
  if type(batches) ~= "table" or #batches < 2 then
    fail("measure_memory: batches: expected a list of at least two batch sizes, e.g. {1, 2, 4, 8}, got "
      .. (type(batches) == "table" and ("%d of them"):format(#batches) or describe(batches)))
  end
  for i, batch in ipairs(batches) do
    if type(batch) ~= "number" or batch < 1 or batch % 1 ~= 0 then
      fail(("measure_memory: batches: entry %d: expected a whole number >= 1, got %s"):format(i, describe(batch)))
    end
  end
  local rows = {}
  local function measure_all()
    for i, batch in ipairs(batches) do
      local inputs = rehearsal.with_batch("measure_memory", "input", given.input, batch, plan.input_dtype)
      local target = given.target
        and rehearsal.with_batch("measure_memory", "target", given.target, batch, plan.input_dtype)
      local ok, row = pcall(function() return measure(plan, inputs, rehearsal.targets(plan, inputs, target)) end)
      if not ok then refuse(plan, row, batch) end
      rows[i], row.batch = row, batch
    end
    settle(place_of(plan))
  end
  if plan.pool then core.with_pool(plan.pool, measure_all) else measure_all() end
  local fixed, per_sample, residual = fit(rows)
  return setmetatable({ rows = rows, fixed = fixed, per_sample = per_sample, residual = residual, mode = plan.mode },
    Measurement)
end

-- ---------------------------------------------------------------------------------------------
-- By counting

-- States that an optimizer keeps per parameter, in float32 also when the parameters are halves of a
-- mixed precision.
local STATES = {
  sgd = {}, ["sgd with momentum"] = { "momentum_buffer" }, adam = { "exp_avg", "exp_avg_sq" },
  adamw = { "exp_avg", "exp_avg_sq" }, ["adam with amsgrad"] = { "exp_avg", "exp_avg_sq", "max_exp_avg_sq" },
  rmsprop = { "square_avg" }, adagrad = { "sum" },
}

local SIZES = { float64 = 8, float32 = 4, float16 = 2, bfloat16 = 2 }

local Bytes = {}
Bytes.__index = Bytes

function Bytes:__tostring()
  local lines = {}
  for _, row in ipairs(self.rows) do lines[#lines + 1] = ("%-18s %-9s %2d"):format(row.name, row.dtype, row.bytes) end
  lines[#lines + 1] = ("%-28s %2d bytes per parameter"):format(self.optimizer .. ", " .. self.precision, self.total)
  return table.concat(lines, "\n")
end

-- cnn.bytes_per_parameter("adamw", "float32"): what training holds for each parameter, without its
-- activations: rows of name, dtype and bytes, and their total. Precision: a float dtype, or "mixed":
-- 2-byte weights and gradients, with 4-byte master weights and state.
function estimate.bytes_per_parameter(optimizer, precision)
  optimizer, precision = optimizer or "adamw", precision or "float32"
  local states = STATES[tostring(optimizer):lower()]
  if not states then
    local names = {}
    for name in pairs(STATES) do names[#names + 1] = name end
    table.sort(names)
    fail(("bytes_per_parameter: argument 1 (optimizer): expected one of %s, got %s"):format(
      table.concat(names, ", "), describe(optimizer)))
  end
  if precision ~= "mixed" and not SIZES[precision] then
    fail("bytes_per_parameter: argument 2 (precision): expected a float dtype or \"mixed\", got "
      .. describe(precision))
  end
  local mixed = precision == "mixed"
  local low, full = mixed and "float16" or precision, mixed and "float32" or precision
  local rows = { { name = "weights", dtype = low }, { name = "gradients", dtype = low } }
  if mixed then rows[3] = { name = "master weights", dtype = full } end
  for _, name in ipairs(states) do rows[#rows + 1] = { name = name, dtype = full } end
  local total = 0
  for _, row in ipairs(rows) do
    row.bytes = SIZES[row.dtype]
    total = total + row.bytes
  end
  return setmetatable({ rows = rows, total = total, optimizer = tostring(optimizer):lower(), precision = precision },
    Bytes)
end

return estimate
