-- SPDX-License-Identifier: MIT
-- Checkpoints: a part of the network keeps no activations; backward runs its forward again.
--
-- The first pass runs with gradients off, and the core notes which tensors from outside its ops meet that
-- want a gradient: arguments, parameters, what the function's closure holds. They are the inputs of one
-- node on the tape. Its backward runs the function once more, with gradients on, the random numbers of
-- the first pass, and running statistics left alone, and goes back through that graph as far as those
-- inputs. Chen, Xu, Zhang, Guestrin: "Training deep nets with sublinear memory cost", 2016.
local core = require "cnn.core"
local autograd = require "cnn.autograd"
local options = require "cnn.options"

local fail, is_tensor = core.fail, core.is_tensor
local unpack = table.unpack or unpack

local checkpoint = {}

local function pack(...)
  return { n = select("#", ...), ... }
end

-- Calls fn with the random generator at `state`, which is then put back.
local function with_rng(state, fn, ...)
  local now = core.get_rng_state()
  core.set_rng_state(state)
  local results = pack(pcall(fn, ...))
  core.set_rng_state(now)
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2, results.n)
end

local function check_versions(handles, versions)
  for i, t in ipairs(handles) do
    if t:version() ~= versions[i] then
      fail(("checkpoint: a tensor that the function used (%s %s) was changed in place since the first pass: it is at "
        .. "version %d, expected %d"):format(t.dtype, tostring(t.shape), t:version(), versions[i]))
    end
  end
end

-- Handles of our own on tensors, owned by no scope; and their versions.
local function hold(list)
  local handles, versions = {}, {}
  for i, t in ipairs(list) do
    handles[i], versions[i] = core.keep(t:detach()), t:version()
  end
  return handles, versions
end

local function is_differentiable(y)
  return is_tensor(y) and y:is_floating_point()
end

-- The backward of a checkpoint: runs fn on its arguments again and differentiates that.
local function replayed(fn, state, arguments, places, handles, versions, shapes)
  local function rerun()
    local inputs, values = {}, {}
    for i, handle in ipairs(handles) do inputs[i] = core.tie(handle, -i) end
    for i = 1, arguments.n do values[i] = places[i] and inputs[places[i]] or arguments[i] end
    return inputs, pack(fn(unpack(values, 1, arguments.n)))
  end
  return function(...)
    check_versions(handles, versions)
    local create = core.is_grad_enabled()
    local inputs, results = with_rng(state, core.replay, rerun)
    local roots, gradients, slot = {}, {}, 0
    for i = 1, results.n do
      local y = results[i]
      if is_differentiable(y) then
        slot = slot + 1
        local gradient = (select(slot, ...))
        if not shapes[slot] or not (y.shape == shapes[slot]) then
          fail("checkpoint: the function's results differ from those of the first pass: it must do the same each time")
        end
        if gradient and y.requires_grad then
          roots[#roots + 1], gradients[#gradients + 1] = y, gradient
        end
      end
    end
    if #roots == 0 then return end
    local flags = autograd.STOP + (create and autograd.CREATE or 0)
    local found = core._grad(roots, inputs, gradients, flags, true)
    return unpack(found, 1, #inputs)
  end
end

-- cnn.checkpoint(fn, ...): fn(...) without keeping its activations. fn must do the same when it is called
-- again; gradients reach arguments, parameters and captured tensors alike.
function checkpoint.checkpoint(fn, ...)
  options.expect_callable("checkpoint", "argument 1 (fn)", fn)
  if not core.is_grad_enabled() then return fn(...) end
  local state, arguments = core.get_rng_state(), pack(...)
  local passed = pack(core.first_pass(fn, ...))
  local inputs, places = passed[1], passed[2]
  if #inputs == 0 then return unpack(passed, 3, passed.n) end
  local outputs, shapes = {}, {}
  for i = 3, passed.n do
    local y = passed[i]
    if is_differentiable(y) then
      passed[i] = y:detach()
      outputs[#outputs + 1], shapes[#shapes + 1] = passed[i], y.shape
    elseif type(y) == "table" and is_tensor(y[1]) then
      fail("checkpoint: tensors in a table have no gradient here: return them as several values")
    end
  end
  if #outputs == 0 then return unpack(passed, 3, passed.n) end
  -- Arguments without a gradient are data: the same bytes, whatever becomes of the caller's handle.
  for i = 1, arguments.n do
    if places[i] then
      arguments[i] = nil
    elseif is_tensor(arguments[i]) then
      arguments[i] = core.keep(arguments[i]:detach())
    end
  end
  local handles, versions = hold(inputs)
  core.attach("Checkpoint", replayed(fn, state, arguments, places, handles, versions, shapes), inputs, outputs)
  return unpack(passed, 3, passed.n)
end

-- cnn.checkpoint_sequential(model, segments, x): a Sequential (or a list of callables), each of its first
-- `segments` - 1 parts of equal length under a checkpoint, the rest as it is.
function checkpoint.checkpoint_sequential(model, segments, x)
  local n = (type(model) == "table" or type(model) == "userdata") and #model or 0
  if n == 0 then
    fail("checkpoint_sequential: argument 1 (model): expected a Sequential or a list of modules, got "
      .. core.describe(model))
  end
  if type(segments) ~= "number" or segments < 1 or segments % 1 ~= 0 then
    fail("checkpoint_sequential: argument 2 (segments): expected a number of parts, got " .. core.describe(segments))
  end
  segments = math.min(segments, n)
  local size = math.floor(n / segments)
  local function part(first, last)
    return function(input)
      for i = first, last do input = model[i](input) end
      return input
    end
  end
  for s = 1, segments - 1 do x = checkpoint.checkpoint(part((s - 1) * size + 1, s * size), x) end
  return part((segments - 1) * size + 1, n)(x)
end

return checkpoint
