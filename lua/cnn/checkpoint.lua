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

local function is_differentiable(y)
  return is_tensor(y) and y:is_floating_point()
end

-- Whether nobody but us can hold what a call of fn is given and gives: no Lua code is in it. Then handles
-- are freed as soon as they are used, and memory is what the graph needs at every moment, whenever the
-- collector runs.
local function is_private(fn)
  return core.is_module(fn) and core.module_is_native(fn)
end

local function free(list, n)
  for i = 1, n do
    local t = list[i]
    -- A leaf's handle is everybody's.
    if is_tensor(t) and not (t.is_leaf and t.requires_grad) then t:free() end
  end
end

-- The backward of a checkpoint: runs fn on its arguments again and differentiates that. The node keeps
-- its inputs, then the other tensors among the arguments; `places` says which of them an argument is.
local function replayed(fn, state, arguments, places, n_inputs, shapes)
  local function rerun()
    local inputs, values = {}, {}
    for i = 1, n_inputs do inputs[i] = core.saved(i) end
    for i = 1, arguments.n do
      local place = places[i]
      values[i] = place and (inputs[place] or core.saved(place)) or arguments[i]
    end
    return inputs, values, pack(fn(unpack(values, 1, arguments.n)))
  end
  return function(...)
    local create = core.is_grad_enabled()
    local inputs, values, results = with_rng(state, core.replay, rerun)
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
    -- Nobody else has these; a graph of gradients may.
    if not create then free({ ... }, select("#", ...)) end
    if not create and is_private(fn) then
      for i = 1, arguments.n do
        if places[i] and places[i] <= n_inputs then values[i] = nil end -- is among the inputs
      end
      free(values, arguments.n)
      free(inputs, n_inputs)
      free(results, results.n)
    end
    return unpack(found, 1, n_inputs)
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
      if is_private(fn) then y:free() end
    elseif type(y) == "table" and is_tensor(y[1]) then
      fail("checkpoint: tensors in a table have no gradient here: return them as several values")
    end
  end
  if #outputs == 0 then return unpack(passed, 3, passed.n) end
  local saved, ties = { n = #inputs }, {}
  for i, t in ipairs(inputs) do saved[i], ties[i] = t, -i end
  for i = 1, arguments.n do
    if is_tensor(arguments[i]) then
      if not places[i] then
        saved.n = saved.n + 1
        saved[saved.n], places[i] = arguments[i], saved.n
      end
      arguments[i] = nil
    end
  end
  core.attach {
    title = "Checkpoint", backward = replayed(fn, state, arguments, places, #inputs, shapes),
    inputs = inputs, outputs = outputs, saved = saved, ties = ties, transient = true,
  }
  free(inputs, #inputs) -- handles that the first pass made
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
    -- As a Sequential of their own, modules of the core run with no Lua object for what is between.
    if core.is_module(model) then return require("cnn.nn").Sequential { unpack(model:children(), first, last) } end
    return function(input)
      for i = first, last do input = model[i](input) end
      return input
    end
  end
  local given = x
  for s = 1, segments do
    local fn = part((s - 1) * size + 1, s < segments and s * size or n)
    local y
    if s < segments then y = checkpoint.checkpoint(fn, x) else y = fn(x) end
    if is_private(fn) and x ~= given then x:free() end
    x = y
  end
  return x
end

return checkpoint
