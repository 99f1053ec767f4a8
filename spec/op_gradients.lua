-- SPDX-License-Identifier: MIT
-- Gradients of every op: against difference quotients in float64; in other layouts and dtypes, of each
-- argument alone, and from results' gradients that are not contiguous, against those; second derivatives.
local cnn = require "cnn"
local autograd = require "cnn.autograd"
local checks = require "spec.op_checks"
local nd = require "spec.nd"
local words = require "spec.op_samples"
local core = cnn.core
local unpack = table.unpack or unpack -- luacheck: ignore
local is_float = words.is_float
local compare, describe, tolerance, same_shape = checks.compare, checks.describe, checks.tolerance, checks.same_shape
local shape_text = checks.shape_text

-- Of gradients in a dtype, against those in float64 on the same values: formulas in ops round each step.
local TOLERANCE = { float64 = 1e-10, float32 = 4e-5, float16 = 1e-2, bfloat16 = 8e-2 }
-- Of difference quotients of order 4 with STEP: 1e-16 / STEP from rounding, STEP^4 from the series.
local STEP, QUOTIENT_TOLERANCE = 1e-4, 1e-6

local gradients_of = {}

-- The places of the tensors that want a gradient.
local function wanted(sample, arguments)
  local list = {}
  if sample.grad == false then return list end
  for i, x in ipairs(arguments.tensors) do
    if is_float[x.dtype] and arguments.specs[i].grad ~= false then list[#list + 1] = i end
  end
  return list
end

-- The results of a call that has a tape; what the op changes is changed in copies.
local function evaluate(entry, sample, arguments, rng)
  if rng then core.set_rng_state(rng) end
  local fresh = words.replaced(sample, arguments, function(x) return x end)
  for i = 1, fresh.n do
    if checks.changes(entry, i) then
      local v = fresh[i]
      if core.is_tensor(v) then
        fresh[i] = v:clone()
      elseif type(v) == "table" then
        for k, x in ipairs(v) do v[k] = x:clone() end
      end
    end
  end
  local list = {}
  for _, y in ipairs(checks.outcome(entry, checks.call(checks.caller(entry), fresh), fresh)) do
    if is_float[y.dtype] then list[#list + 1] = y end
  end
  return list
end

local function leaf(x)
  return x:detach():requires_grad_()
end

-- Random numbers of a tensor's shape, from -1 to 1.
local function noise(x, seed)
  cnn.manual_seed(seed)
  return cnn.rand(x.shape, { dtype = "float64", device = x.device }):mul(2):sub(1)
end

-- The gradients by `by` of the results under cotangents; zeros where there is none.
local function gradients(results, by, cotangents, flags)
  local roots, weights = {}, {}
  for i, y in ipairs(results) do
    if y.requires_grad then
      roots[#roots + 1] = y
      weights[#weights + 1] = cotangents[i]
    end
  end
  if #roots == 0 then return nil end
  local found = core._grad(roots, by, weights, flags or 0, true)
  for i, x in ipairs(by) do
    if not found[i] then found[i] = cnn.zeros(x.shape, { dtype = x.dtype, device = x.device }) end
    if not same_shape(found[i].shape, x.shape) or found[i].dtype ~= x.dtype then
      error(("gradient %d is %s%s, its input %s%s"):format(i, found[i].dtype, shape_text(found[i].shape), x.dtype,
        shape_text(x.shape)), 0)
    end
  end
  return found
end

local function weighted(results, cotangents)
  local total = 0
  for i, y in ipairs(results) do
    if y:numel() > 0 then total = total + (y:detach():to("float64") * cotangents[i]):sum():item() end
  end
  return total
end

-- Compares a directional derivative of f(tensors) -> results, under cotangents, with the gradients.
-- One random direction sees every element; when it differs, cnn.gradcheck says which.
local function check_direction(where, f, by, cotangents, found, factor)
  local directions, slope, scale = {}, 0, 1
  for i, x in ipairs(by) do
    directions[i] = noise(x, 4000 + i)
    if x:numel() > 0 then
      local products = found[i]:detach() * directions[i]
      slope = slope + products:sum():item()
      scale = scale + products:abs():sum():item()
    end
  end
  local function at(t)
    local moved = {}
    for i, x in ipairs(by) do moved[i] = x:detach() + directions[i] * t end
    return weighted(core.no_grad(f, moved), cotangents)
  end
  local quotient = (8 * (at(STEP) - at(-STEP)) - (at(2 * STEP) - at(-2 * STEP))) / (12 * STEP)
  local bound = QUOTIENT_TOLERANCE * factor * scale
  if not (math.abs(quotient - slope) <= bound) then
    error(("%s: the derivative in a random direction is %.9g, the difference quotient %.9g (allowed: %.3g)"):format(
      where, slope, quotient, bound), 0)
  end
end

gradients_of.wanted, gradients_of.evaluate, gradients_of.gradients = wanted, evaluate, gradients
gradients_of.noise = noise

local function located(f, by, message)
  local fresh = {}
  for i, x in ipairs(by) do fresh[i] = x:detach():clone():requires_grad_() end
  local ok, fine, text = pcall(cnn.gradcheck, function(...) return unpack(f { ... }) end, fresh,
    { raise_exception = false })
  if not ok then text = fine end
  error(message .. (text and "\n" .. tostring(text) or ""), 0)
end

local function check_gradient(where, f, by, cotangents, found, factor)
  local ok, message = pcall(check_direction, where, f, by, cotangents, found, factor)
  if not ok then located(f, by, message) end
end

local function leaves_of(arguments, places)
  local leaves = {}
  for i, place in ipairs(places) do leaves[i] = leaf(arguments.tensors[place]) end
  return leaves
end

local function with_leaves(sample, arguments, places, leaves)
  local at = {}
  for i, place in ipairs(places) do at[place] = leaves[i] end
  return words.replaced(sample, arguments, function(x, _, number) return at[number] or x end)
end
gradients_of.leaves_of, gradients_of.with_leaves = leaves_of, with_leaves

local function check_refused_gradient(entry, sample, arguments)
  local where = describe(entry, sample, { dtype = "float64" })
  local places = wanted(sample, arguments)
  if #places == 0 then return end
  local leaves = leaves_of(arguments, places)
  local ok, results = pcall(evaluate, entry, sample, with_leaves(sample, arguments, places, leaves))
  if not ok then return end
  for i, y in ipairs(results) do
    if y.requires_grad then error(("%s: result %d requires a gradient, which the op has not"):format(where, i), 0) end
  end
end

-- The second derivatives of one sample, contiguous.
local function check_second(entry, sample, where, arguments, places, rng, refused)
  local by = leaves_of(arguments, places)
  local n = #by
  local results = evaluate(entry, sample, with_leaves(sample, arguments, places, by), rng)
  local kept = {}
  for i, y in ipairs(results) do
    if y.requires_grad then
      kept[#kept + 1] = i
      by[#by + 1] = noise(y, 200 + i):to(y.dtype):requires_grad_()
    end
  end
  local function first(given)
    local leaves, roots, weights = {}, {}, {}
    for i = 1, n do leaves[i] = given[i].requires_grad and given[i] or leaf(given[i]) end
    local list
    core.enable_grad(function()
      list = evaluate(entry, sample, with_leaves(sample, arguments, places, leaves), rng)
    end)
    for i, k in ipairs(kept) do roots[i], weights[i] = list[k], given[n + i] end
    return core.enable_grad(gradients, roots, leaves, weights, autograd.RETAIN + autograd.CREATE)
  end
  local function second()
    local list, cotangents = first(by), {}
    for i, g in ipairs(list) do cotangents[i] = noise(g, 300 + i) end
    return gradients(list, by, cotangents), cotangents
  end
  where = where .. ": second derivative"
  if refused then
    local ok, found = pcall(second)
    if ok and found then error(where .. ": it must raise", 0) end
    return
  end
  local found, cotangents = second()
  if not found then return end -- the gradient is constant
  if entry.no_difference then return end
  check_gradient(where, first, by, cotangents, found,
    tolerance(entry, sample, "grad_tol", "float64", { float64 = 1 }))
end

-- The gradients in a layout or dtype against those of plain float64 tensors of the same values.
local function check_form(entry, sample, context, places, rng, cotangents)
  local where = describe(entry, sample, context)
  local arguments = words.arguments(sample, context)
  local own, plain, weights = leaves_of(arguments, places), {}, {}
  for i, place in ipairs(places) do
    plain[i] = leaf(arguments.tensors[place]:contiguous():to("float64"):clone())
  end
  local wide = words.replaced(sample, arguments, function(x)
    return is_float[x.dtype] and x:to("float64"):contiguous() or x:contiguous()
  end)
  local results = evaluate(entry, sample, with_leaves(sample, arguments, places, own), rng)
  for i, y in ipairs(results) do weights[i] = cotangents[i]:to(y.dtype) end
  local got = gradients(results, own, weights)
  local wide_weights = {}
  for i, w in ipairs(weights) do wide_weights[i] = w:to("float64") end
  local wide_results = evaluate(entry, sample, with_leaves(sample, wide, places, plain), rng)
  local expected = gradients(wide_results, plain, wide_weights)
  if not got or not expected then error(where .. ": no result has a gradient", 0) end
  for i, g in ipairs(got) do
    compare(("%s: gradient of argument tensor %d"):format(where, places[i]), g.dtype, nd.from(expected[i]),
      nd.from(g), tolerance(entry, sample, "grad_tol", g.dtype, TOLERANCE), 1)
  end
end

-- In float64: against difference quotients; in other layouts, dtypes, and forms of the results' gradients
-- against that; of each argument alone; second derivatives.
function gradients_of.check(entry)
  local class = checks.class(entry)
  for s, sample in ipairs(entry.samples) do
    local float = class.float ~= false and checks.allows(sample, "float64")
    local context = { dtype = "float64" }
    local where = describe(entry, sample, context)
    local arguments = words.arguments(sample, context)
    local places = wanted(sample, arguments)
    if float and (entry.grad == false or entry.info.no_grad) then
      check_refused_gradient(entry, sample, arguments)
    elseif float and #places > 0 then
      local rng = core.get_rng_state()
      local factor = tolerance(entry, sample, "grad_tol", "float64", { float64 = 1 })
      local by, cotangents = leaves_of(arguments, places), {}
      local function f(given) return evaluate(entry, sample, with_leaves(sample, arguments, places, given), rng) end
      local results = f(by)
      for i, y in ipairs(results) do cotangents[i] = noise(y, 100 + i) end
      local found = gradients(results, by, cotangents)
      if not found then error(where .. ": no result has a gradient", 0) end
      if not entry.no_difference and checks.turn(entry) then check_gradient(where, f, by, cotangents, found, factor) end
      -- what is recorded for second derivatives may be written in other ops, and is the same function
      local recorded = entry.second ~= false and checks.turn(entry)
        and core.enable_grad(gradients, f(by), by, cotangents, autograd.RETAIN + autograd.CREATE) or {}
      for i, g in ipairs(recorded) do
        compare(("%s: gradient of argument tensor %d with a graph of its own"):format(where, places[i]), "float64",
          nd.from(found[i]), nd.from(g), TOLERANCE.float64 * factor, 1)
      end
      -- each argument alone: what is saved for the others is not there
      for i = 1, #by > 1 and checks.turn(entry) and #by or 0 do
        local alone = leaf(by[i])
        local given = {}
        for k, x in ipairs(by) do given[k] = k == i and alone or x:detach() end
        local single = gradients(f(given), { alone }, cotangents)
        if single then
          compare(("%s: gradient of argument tensor %d alone"):format(where, places[i]), "float64", nd.from(found[i]),
            nd.from(single[1]), TOLERANCE.float64, 1)
        elseif not checks.same_bits(found[i], cnn.zeros(found[i].shape, { dtype = "float64" })) then
          error(("%s: argument tensor %d alone gets no gradient"):format(where, places[i]), 0)
        end
      end
      -- results' gradients that are not contiguous
      for _, form in ipairs { "transposed", "expanded" } do
        local plain, other = {}, {}
        for i, w in ipairs(checks.turn(entry) and cotangents or {}) do
          local rank = #w.shape
          if form == "expanded" then
            other[i] = cnn.tensor(0.75, { dtype = "float64", device = w.device }):expand(w.shape)
          elseif rank > 1 then
            other[i] = w:transpose(1, rank):contiguous():transpose(1, rank)
          else
            other[i] = w:unsqueeze(-1):expand { w:numel(), 2 }:contiguous():select(2, 1):view(w.shape)
          end
          plain[i] = other[i]:contiguous()
        end
        local expected = #other > 0 and gradients(f(by), by, plain)
        for i, g in ipairs(expected and gradients(f(by), by, other) or {}) do
          compare(("%s: gradient of argument tensor %d from a gradient that is %s"):format(where, places[i], form),
            "float64", nd.from(expected[i]), nd.from(g), TOLERANCE.float64, 1)
        end
      end
      if sample.layouts ~= false and entry.layouts ~= false then
        for _, layout in ipairs(words.layouts) do
          if words.applies(layout, sample) and checks.turn(entry) then
            check_form(entry, sample, { dtype = "float64", layout = layout }, places, rng, cotangents)
          end
        end
      end
      if checks.has_free_tensor(sample) then
        for _, dtype in ipairs { "float32", "float16", "bfloat16" } do
          if checks.allows(sample, dtype) and checks.turn(entry) then
            check_form(entry, sample, { dtype = dtype }, places, rng, cotangents)
          end
        end
      end
      if sample.second ~= false and s <= 6 and checks.turn(entry) then
        check_second(entry, sample, where, arguments, places, rng, entry.second == false)
      end
      core.set_rng_state(rng)
    end
  end
end

return gradients_of
