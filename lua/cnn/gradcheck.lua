-- SPDX-License-Identifier: MIT
-- Gradients against central differences, in float64 and under a random cotangent: a plain sum would hide
-- a gradient that is transposed or permuted.
local core = require "cnn.core"
local options = require "cnn.options"
local autograd = require "cnn.autograd"

local fail, describe, is_tensor = core.fail, core.describe, core.is_tensor
local unpack = table.unpack or unpack

local gradcheck = {}

local function pack(...)
  return { n = select("#", ...), ... }
end

-- Fixed numbers in [-1, 1] away from 0; the library's own generator is left alone.
local function cotangent(y, seed)
  local state = (seed * 7919 + 12345) % 2147483647
  local values = {}
  for i = 1, y:numel() do
    state = state * 16807 % 2147483647
    local v = state / 2147483647 * 2 - 1
    values[i] = v + (v < 0 and -0.25 or 0.25)
  end
  if #values == 0 then return y:detach():clone() end
  return core._tensor(values, y.dtype, y.device):reshape(y.shape)
end

local function is_differentiable(y)
  return is_tensor(y) and y:is_floating_point()
end

-- The results of fn that have a gradient. Random ops draw the same numbers every time.
local function evaluate(fn, inputs, rng)
  core.set_rng_state(rng)
  local results, outputs = pack(fn(unpack(inputs, 1, inputs.n))), {}
  for i = 1, results.n do
    local y = results[i]
    if type(y) == "table" and not getmetatable(y) then
      for _, v in ipairs(y) do
        if is_differentiable(v) then outputs[#outputs + 1] = v end
      end
    elseif is_differentiable(y) then
      outputs[#outputs + 1] = y
    end
  end
  if #outputs == 0 then fail("gradcheck: the function returned no float tensor") end
  return outputs
end

local function weighted_sum(outputs, cotangents)
  local total = 0
  for i, y in ipairs(outputs) do
    if y:numel() > 0 then total = total + (y:detach():to("float64") * cotangents[i]:to("float64")):sum():item() end
  end
  return total
end

-- Calls visit(position, list of indices) for every element of a shape.
local function each_index(shape, visit)
  local index = {}
  local function walk(dim)
    if dim > #shape then return visit(index) end
    for i = 1, shape[dim] do
      index[dim] = i
      walk(dim + 1)
    end
  end
  walk(1)
end

local function put(x, index, value)
  local arguments = { unpack(index) }
  arguments[#arguments + 1] = value
  x:set(unpack(arguments))
end

local function place_text(index)
  return #index == 0 and "" or "[{" .. table.concat(index, ", ") .. "}]"
end

-- Compares the gradient of input k with differences; adds what differs to `problems`.
local function check_input(fn, inputs, k, analytic, cotangents, rng, o, problems)
  local x = inputs[k]:detach() -- the same bytes
  local shape, wrong, worst = x.shape, 0, nil
  each_index(shape, function(index)
    local function at(value)
      put(x, index, value)
      return weighted_sum(core.no_grad(evaluate, fn, inputs, rng), cotangents)
    end
    local before = x:get(unpack(index))
    local numeric = (at(before + o.eps) - at(before - o.eps)) / (2 * o.eps)
    put(x, index, before)
    local got = analytic and analytic:get(unpack(index)) or 0
    local difference, bound = math.abs(got - numeric), o.atol + o.rtol * math.abs(numeric)
    if not (difference <= bound) then
      wrong = wrong + 1
      local excess = difference == difference and difference - bound or math.huge
      if not worst or excess > worst.excess then
        worst = { excess = excess, place = place_text(index), got = got, numeric = numeric, bound = bound }
      end
    end
  end)
  if wrong > 0 then
    problems[#problems + 1] = ("input %d (%s): %d of %d elements are wrong; the worst, %s: gradient %.9g, "
      .. "difference quotient %.9g (allowed: %.3g)"):format(
      k, tostring(shape), wrong, x:numel(), worst.place == "" and "its value" or worst.place, worst.got, worst.numeric,
      worst.bound)
  end
end

local function check_inputs(inputs)
  local any = false
  for i = 1, inputs.n do
    local x = inputs[i]
    if is_tensor(x) and x.requires_grad then
      any = true
      if x.dtype ~= "float64" then
        fail(("gradcheck: input %d is %s: differences need float64"):format(i, x.dtype))
      end
      for d, stride in ipairs(x:stride()) do
        if stride == 0 and x.shape[d] > 1 then
          fail(("gradcheck: input %d was expanded: its elements share memory; pass x:clone()"):format(i))
        end
      end
    end
  end
  if not any then fail("gradcheck: no input requires a gradient") end
end

local function first_order(fn, inputs, o, problems)
  local rng = core.get_rng_state()
  local outputs = evaluate(fn, inputs, rng)
  local wanted, roots, cotangents = {}, {}, {}
  for i = 1, inputs.n do
    if is_tensor(inputs[i]) and inputs[i].requires_grad then wanted[#wanted + 1] = i end
  end
  local by, weights = {}, {}
  for i, y in ipairs(outputs) do
    cotangents[i] = cotangent(y, i)
    if y.requires_grad then roots[#roots + 1], weights[#weights + 1] = y, cotangents[i] end
  end
  for i, k in ipairs(wanted) do by[i] = inputs[k] end
  local gradients = #roots > 0 and core._grad(roots, by, weights, 0, true) or {}
  for i, k in ipairs(wanted) do
    local g = gradients[i]
    if g and not (g.shape == inputs[k].shape) then
      problems[#problems + 1] = ("input %d: the gradient's shape is %s, the input's %s"):format(
        k, tostring(g.shape), tostring(inputs[k].shape))
    else
      check_input(fn, inputs, k, g, cotangents, rng, o, problems)
    end
  end
  core.set_rng_state(rng)
end

-- The gradients by the inputs as a function of inputs and cotangents.
local function second_order(fn, inputs, o, problems)
  local rng = core.get_rng_state()
  local outputs, arguments, wanted = {}, { n = inputs.n, unpack(inputs, 1, inputs.n) }, {}
  for i = 1, inputs.n do
    if is_tensor(inputs[i]) and inputs[i].requires_grad then wanted[#wanted + 1] = i end
  end
  for _, y in ipairs(evaluate(fn, inputs, rng)) do
    if y.requires_grad then
      outputs[#outputs + 1] = y
      arguments.n = arguments.n + 1
      arguments[arguments.n] = cotangent(y, 100 + #outputs):requires_grad_()
    end
  end
  core.set_rng_state(rng)
  local function gradients(...)
    local given = pack(...)
    local roots, weights, by = {}, {}, {}
    local values = { n = inputs.n, unpack(given, 1, inputs.n) }
    core.enable_grad(function()
      for _, y in ipairs(evaluate(fn, values, core.get_rng_state())) do
        if y.requires_grad then roots[#roots + 1] = y end
      end
    end)
    for i = 1, #roots do weights[i] = given[inputs.n + i] end
    for i, k in ipairs(wanted) do by[i] = given[k] end
    local found, list = core._grad(roots, by, weights, autograd.RETAIN + autograd.CREATE, true), {}
    for i = 1, #by do
      if found[i] then list[#list + 1] = found[i] end
    end
    return list
  end
  local before = #problems
  first_order(gradients, arguments, o, problems)
  for i = before + 1, #problems do problems[i] = "second derivative: " .. problems[i] end
end

local NAMES = { "eps", "atol", "rtol", "second", "raise_exception" }

-- cnn.gradcheck(fn, inputs, {eps = 1e-6, atol = 1e-5, rtol = 1e-3, second = false, raise_exception = true}):
-- compares the gradients of fn(inputs...) by every float64 input that requires one with central
-- differences; with `second`, those of the gradients too. true, or an error that says which elements are
-- wrong (without raise_exception: false and that text).
function gradcheck.gradcheck(fn, inputs, ...)
  options.expect_callable("gradcheck", "argument 1 (fn)", fn)
  local o = options.read("gradcheck", NAMES, ...)
  for i = 1, 3 do options.expect("gradcheck", NAMES[i], o[NAMES[i]], "number") end
  o.eps, o.atol, o.rtol = o.eps or 1e-6, o.atol or 1e-5, o.rtol or 1e-3
  local list
  if is_tensor(inputs) then
    list = { n = 1, inputs }
  elseif type(inputs) == "table" then
    list = { n = #inputs, unpack(inputs) }
  else
    fail("gradcheck: argument 2 (inputs): expected a tensor or a list of arguments, got " .. describe(inputs))
  end
  check_inputs(list)
  local problems = {}
  first_order(fn, list, o, problems)
  if o.second and #problems == 0 then second_order(fn, list, o, problems) end
  if #problems == 0 then return true end
  local text = "gradcheck: the gradients are wrong:\n  " .. table.concat(problems, "\n  ")
  if o.raise_exception == false then return false, text end
  return fail(text)
end

return gradcheck
