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
local memory = require "cnn.memory"
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

local function free(list, n)
  for i = 1, n do
    local t = list[i]
    -- A leaf's handle is everybody's.
    if is_tensor(t) and not (t.is_leaf and t.requires_grad) then t:free() end
  end
end

-- The backward of a checkpoint: runs fn on its arguments again and differentiates that. The node keeps
-- its inputs, then the other tensors among the arguments; `places` says which of them an argument is.
-- `shapes` has a result's shape, false for what is no result of the node.
local function replayed(fn, state, arguments, places, n_inputs, shapes)
  local function rerun()
    local inputs, values = {}, {}
    for i = 1, n_inputs do inputs[i] = core.saved(i) end
    for i = 1, arguments.n do
      local place = places[i]
      values[i] = place and (inputs[place] or core.saved(place)) or arguments[i]
    end
    return inputs, pack(memory.transient(fn, unpack(values, 1, arguments.n)))
  end
  local function differentiate(...)
    local create = core.is_grad_enabled()
    local inputs, results = with_rng(state, core.replay, rerun)
    local roots, gradients, slot = {}, {}, 0
    for i = 1, results.n do
      local y, shape = results[i], shapes[i]
      if shape ~= false and (shape or is_differentiable(y)) then
        slot = slot + 1
        local gradient = (select(slot, ...))
        if not shape or not is_differentiable(y) or not (y.shape == shape) then
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
    return unpack(found, 1, n_inputs)
  end
  return function(...) return memory.transient(differentiate, ...) end
end

-- cnn.checkpoint(fn, ...): fn(...) without keeping its activations. fn must do the same when it is called
-- again; gradients reach arguments, parameters and captured tensors alike. Tensors that fn makes are freed
-- when it returns, but for its results, fields of modules, and what it gives to cnn.keep.
function checkpoint.checkpoint(fn, ...)
  options.expect_callable("checkpoint", "argument 1 (fn)", fn)
  if not core.is_grad_enabled() then return fn(...) end
  local state, arguments = core.get_rng_state(), pack(...)
  local outputs, shapes = {}, {}
  -- With gradients off, what wants one was not made here: it goes through as it is.
  local function is_output(y) return is_differentiable(y) and not y.requires_grad end
  local function first_pass(...)
    local results = pack(fn(...))
    for i = 1, results.n do
      local y = results[i]
      shapes[i] = false
      if is_output(y) then
        results[i] = y:detach() -- a handle of its own: fn's may be anybody's
        outputs[#outputs + 1], shapes[i] = results[i], y.shape
      end
      for _, entry in pairs(type(y) == "table" and y or {}) do
        if is_output(entry) then
          fail("checkpoint: tensors in a table have no gradient here: return them as several values")
        end
      end
    end
    return unpack(results, 1, results.n)
  end
  local passed = pack(core.first_pass(memory.transient, first_pass, ...))
  local inputs, places = passed[1], passed[2]
  if #inputs == 0 or #outputs == 0 then return unpack(passed, 3, passed.n) end
  table.remove(places, 1) -- first_pass's own
  local saved, ties = { n = #inputs }, {}
  for i, t in ipairs(inputs) do saved[i], ties[i] = t, -i end
  for i = 1, arguments.n do
    if is_tensor(arguments[i]) then
      if not places[i] then
        saved.n = saved.n + 1
        saved[saved.n], places[i] = arguments[i], saved.n
      end
      arguments[i] = nil
    else
      core.scope_outlive(arguments[i])
    end
  end
  memory.outlive(fn)
  core.attach {
    title = "Checkpoint", backward = replayed(fn, state, arguments, places, #inputs, shapes),
    inputs = inputs, outputs = outputs, saved = saved, ties = ties, transient = true,
  }
  free(inputs, #inputs) -- handles that the first pass made
  return unpack(passed, 3, passed.n)
end

-- Whether nobody but us can hold what a call of fn gives: no Lua code is in it.
local function is_private(fn)
  return core.is_module(fn) and core.module_is_native(fn)
end

-- Children first to last of a model as one function.
local function part(model, first, last)
  local layers = model
  if core.is_module(model) then
    layers = { unpack(model:children(), first, last) }
    local whole = require("cnn.nn").Sequential(layers)
    if is_private(whole) then return whole end -- runs in C, and frees as it goes
    first, last = 1, #layers
  end
  return function(x)
    for i = first, last do x = memory.transient(layers[i], x) end
    return x
  end
end

local function run_parts(model, segments, x)
  local given, size = x, math.floor(#model / segments)
  for s = 1, segments do
    local fn = part(model, (s - 1) * size + 1, s < segments and s * size or #model)
    local y
    if s < segments then y = checkpoint.checkpoint(fn, x) else y = fn(x) end
    if is_private(fn) and x ~= given then x:free() end
    x = y
  end
  return x
end

-- cnn.checkpoint_sequential(model, segments, x): a Sequential (or a list of callables), each of its first
-- `segments` - 1 parts of equal length under a checkpoint, the rest as it is. As under a checkpoint, what a child
-- makes and does not return is freed at once.
function checkpoint.checkpoint_sequential(model, segments, x)
  local n = (type(model) == "table" or type(model) == "userdata") and #model or 0
  if n == 0 then
    fail("checkpoint_sequential: argument 1 (model): expected a Sequential or a list of modules, got "
      .. core.describe(model))
  end
  if type(segments) ~= "number" or segments < 1 or segments % 1 ~= 0 then
    fail("checkpoint_sequential: argument 2 (segments): expected a number of parts, got " .. core.describe(segments))
  end
  return memory.transient(run_parts, model, math.min(segments, n), x)
end

return checkpoint
