-- SPDX-License-Identifier: MIT
-- What is checked of every op: the parts of spec/ops_spec.lua that compute, compare and say what is
-- wrong. A check gets an entry of spec/opdb.lua and raises at the first thing that is not as it should
-- be; its message names the op, the sample with its dtype and layout, the element, and both values.
local cnn = require "cnn"
local db = require "spec.opdb"
local nd = require "spec.nd"
local words = require "spec.op_samples"
local core = cnn.core
local unpack = table.unpack or unpack -- luacheck: ignore
local is_float = words.is_float

local checks = {}

-- ---------------------------------------------------------------------------------------------
-- What may differ

-- Relative to the expected value, or to the entry's `floor` where that is larger. References compute in
-- double on the elements as the dtype holds them, so these are the roundings of the op alone.
checks.TOLERANCE = {
  float64 = 1e-11, -- both sides round in the same precision; series of the references end at 1e-12
  float32 = 4e-6, -- 2^-24 per rounding: functions to a few units, sums of some dozen elements
  float16 = 2e-3, -- 2^-11 for the result, which is computed in float32, and as much again
  bfloat16 = 1.6e-2, -- 2^-8, and as much again
}
-- Of gradients in a dtype, against those in float64 on the same values: formulas in ops round each step.
checks.GRADIENT_TOLERANCE = { float64 = 1e-10, float32 = 4e-5, float16 = 1e-2, bfloat16 = 8e-2 }
-- Of difference quotients of order 4 with STEP: 1e-16 / STEP from rounding, STEP^4 from the series.
local STEP, QUOTIENT_TOLERANCE = 1e-4, 1e-6

local LARGEST = { float16 = 65504, float32 = 3.4028235677973366e38, bfloat16 = 3.4e38, float64 = math.huge }
local BITS = { int64 = 64, int32 = 32, int16 = 16, int8 = 8, uint8 = 8 }

local function tolerance(entry, sample, which, dtype, base)
  local factor = sample[which] or entry[which] or 1
  if type(factor) == "table" then factor = factor[dtype] or 1 end
  return (base[dtype] or 0) * factor
end

-- A number as an integer dtype holds it.
local function wrapped(v, dtype)
  local bits = BITS[dtype]
  if not bits or bits == 64 or v ~= v then return v end
  local span = 2 ^ bits
  v = v % span
  return (dtype ~= "uint8" and v >= span / 2) and v - span or v
end

local function alike(expected, got, allowed)
  if expected ~= expected then return got ~= got end
  if expected == got then return true end
  return math.abs(expected - got) <= allowed -- false for NaN and infinities
end

local function shape_text(shape)
  return "(" .. table.concat(shape, "x") .. ")"
end

local function same_shape(a, b)
  if #a ~= #b then return false end
  for d = 1, #a do
    if a[d] ~= b[d] then return false end
  end
  return true
end

local function position(shape, k)
  local at = {}
  k = k - 1
  for d = #shape, 1, -1 do
    at[d] = k % shape[d] + 1
    k = (k - at[d] + 1) / shape[d]
  end
  return "[" .. table.concat(at, ",") .. "]"
end

-- Compares arrays. `where` says what the array is.
local function compare(where, dtype, expected, got, allowed, floor)
  if not same_shape(expected.shape, got.shape) then
    error(("%s: the shape is %s, expected %s"):format(where, shape_text(got.shape), shape_text(expected.shape)), 0)
  end
  local largest = LARGEST[dtype]
  for k, e in ipairs(expected.list) do
    local g = got.list[k]
    if not largest then
      e = wrapped(e, dtype)
    elseif e > largest then
      e = math.huge
    elseif e < -largest then
      e = -math.huge
    end
    local bound = allowed * math.max(floor, math.abs(e))
    if not alike(e, g, bound) then
      error(("%s: element %s is %.17g, expected %.17g (allowed: %.3g)"):format(
        where, position(expected.shape, k), g, e, bound), 0)
    end
  end
end

-- Whether two tensors hold the same bits, but for the kind of NaN.
local function same_bits(a, b)
  if a.dtype ~= b.dtype or not same_shape(a.shape, b.shape) then return false end
  if a:numel() == 0 then return true end
  local same = a:eq(b)
  if is_float[a.dtype] then same = same:logical_or(a:ne(a):logical_and(b:ne(b))) end
  return same:all():item()
end
checks.same_bits = same_bits

local function expect_same_bits(where, a, b, what)
  if a.dtype ~= b.dtype then error(("%s: dtype %s, expected %s"):format(where, b.dtype, a.dtype), 0) end
  if not same_bits(a, b) then
    local dtype = a.dtype
    compare(where .. ": " .. what, dtype, nd.from(a), nd.from(b), 0, 0)
    error(where .. ": " .. what, 0)
  end
end
checks.expect_same_bits = expect_same_bits

-- ---------------------------------------------------------------------------------------------
-- Calling ops

function checks.class(entry)
  local class = entry.dtypes or "float"
  return type(class) == "table" and class or db.CLASSES[class] or error("no class " .. tostring(class))
end

local function allows(sample, dtype)
  return not sample.only or db.CLASSES[sample.only][db.category(dtype)] ~= false
end

local function caller(entry)
  if entry.call then return entry.call end
  if entry.info.internal then return core.internal[entry.name] end
  return core.functions[entry.name]
end

local function flat(list, ...)
  for i = 1, select("#", ...) do
    local v = select(i, ...)
    if core.is_tensor(v) or nd.is(v) then
      list[#list + 1] = v
    elseif type(v) == "table" then
      flat(list, unpack(v))
    elseif v ~= nil then
      list[#list + 1] = v
    end
  end
  return list
end

-- The results of a call as one list.
local function call(fn, arguments)
  return flat({}, fn(unpack(arguments, 1, arguments.n)))
end

-- Whether the op changes its argument i.
local function changes(entry, i)
  local param = entry.info.params[i]
  return param and param.changed
end

-- The tensors that the op changes, in order.
local function changed(entry, arguments)
  local list = {}
  for i = 1, arguments.n do
    if changes(entry, i) then flat(list, arguments[i]) end
  end
  return list
end

local function contains(list, x)
  for _, v in ipairs(list) do
    if rawequal(v, x) then return true end
  end
  return false
end

-- Results, and behind them the changed arguments that are no results themselves.
local function outcome(entry, results, arguments)
  local list = flat({}, results)
  for _, x in ipairs(changed(entry, arguments)) do
    if not contains(results, x) then list[#list + 1] = x end
  end
  return list
end

local function describe(entry, sample, context)
  return entry.key .. words.describe(sample, context)
end

-- The expected dtypes of n results.
local function result_dtypes(entry, sample, dtype, arrays, n)
  local kept = checks.class(entry)[db.category(dtype)]
  if kept == "keep" then kept = dtype end
  local out = sample.out or entry.out
  if type(out) == "function" then out = out(dtype, arrays) end
  local list = {}
  for i = 1, n do
    local name = type(out) == "table" and out[i] or out
    list[i] = (type(name) ~= "string" or name == "keep") and kept or name
  end
  return list
end

-- ---------------------------------------------------------------------------------------------
-- Values

local function snapshot(arguments)
  local list = {}
  for i, x in ipairs(arguments.tensors) do list[i] = nd.from(arguments.bases[i] or x) end
  return list
end

local function expect_unchanged(where, entry, arguments, before)
  local free = changed(entry, arguments)
  for i, x in ipairs(arguments.tensors) do
    if not contains(free, x) then
      compare(("%s: argument tensor %d was changed"):format(where, i), x.dtype, before[i],
        nd.from(arguments.bases[i] or x), 0, 0)
    end
  end
end

-- What the reference says about these arguments; kept per dtype where the layout doesn't matter.
local function reference(entry, sample, context, arguments)
  if not entry.ref then return nil end
  local keep = not (context.layout and context.layout.expands)
  sample.expected = sample.expected or {}
  local name = context.dtype .. (context.index_dtype or "")
  if keep and sample.expected[name] then return sample.expected[name] end
  local arrays = words.arrays(sample, arguments)
  local expected = flat({}, entry.ref(unpack(arrays, 1, arrays.n)))
  if keep then sample.expected[name] = expected end
  return expected
end

local function strides(x)
  return table.concat(x:stride(), ",")
end

local function on_meta(where, entry, sample, context, results)
  local fn = caller(entry)
  local arguments = words.arguments(sample, { dtype = context.dtype, layout = context.layout, device = "meta" })
  if entry.dynamic then
    if pcall(call, fn, arguments) then error(where .. ": on meta it must raise: its shape depends on values", 0) end
    return
  end
  if #arguments.tensors == 0 then return end
  for i, y in ipairs(call(fn, arguments)) do
    local x = results[i]
    if tostring(y.device) ~= "meta" then error(("%s: result %d of meta tensors is on %s"):format(where, i, y.device), 0) end
    if not same_shape(x.shape, y.shape) or x.dtype ~= y.dtype or strides(x) ~= strides(y) then
      error(("%s: result %d on meta is %s%s with strides %s; on the CPU %s%s with %s"):format(where, i, y.dtype,
        shape_text(y.shape), strides(y), x.dtype, shape_text(x.shape), strides(x)), 0)
    end
  end
end

-- One call: values, dtypes, form of the results; arguments as they were.
local function check_call(entry, sample, context)
  local where = describe(entry, sample, context)
  local arguments = words.arguments(sample, context)
  local before = snapshot(arguments)
  local expected = reference(entry, sample, context, arguments)
  local dtypes_of = words.arrays(sample, arguments)
  local results = call(caller(entry), arguments)
  if #results == 0 and not entry.silent then error(where .. ": there is no result", 0) end
  local list = outcome(entry, results, arguments)
  local dtypes = result_dtypes(entry, sample, context.dtype, dtypes_of, #results)
  for i, y in ipairs(results) do
    if y.dtype ~= dtypes[i] then
      error(("%s: result %d is %s, expected %s"):format(where, i, y.dtype, dtypes[i]), 0)
    end
    if not context.layout and entry.dense ~= false and not entry.info.view and not y:is_contiguous() then
      error(("%s: result %d is not contiguous"):format(where, i), 0)
    end
  end
  if expected then
    if #expected ~= #list then
      error(("%s: %d results and changed arguments, the reference gives %d"):format(where, #list, #expected), 0)
    end
    for i, y in ipairs(list) do
      compare(("%s: result %d"):format(where, i), y.dtype, expected[i], nd.from(y),
        tolerance(entry, sample, "tol", y.dtype, checks.TOLERANCE), entry.floor or 1)
    end
  end
  expect_unchanged(where, entry, arguments, before)
  return where, results
end

-- x:op_(...) against op(x, ...).
local function check_in_place(entry, sample, context, where, results)
  local fn = core.functions[entry.name .. "_"]
  local arguments = words.arguments(sample, context)
  local x, y = arguments[1], results[1]
  if not core.is_tensor(x) then return end
  local before = snapshot(arguments)
  local fits = x.dtype == y.dtype and same_shape(x.shape, y.shape)
  local shared = false
  for d, stride in ipairs(x:stride()) do shared = shared or stride == 0 and x.shape[d] > 1 end
  local ok, got = pcall(fn, unpack(arguments, 1, arguments.n))
  where = where .. ": in place"
  if fits and not shared then
    if not ok then error(("%s it raises %s"):format(where, got), 0) end
    if not rawequal(got, x) then error(where .. " it does not return its argument", 0) end
    expect_same_bits(where, y, x, "differs from out of place")
    -- around it, and in the other arguments, nothing was written
    local base = arguments.bases[1]
    if base and base:numel() ~= x:numel() then
      x:copy_(words.arguments(sample, context)[1])
    else
      arguments.tensors[1] = nil
    end
    for i, t in pairs(arguments.tensors) do
      compare(("%s: argument tensor %d was changed outside of its elements"):format(where, i), t.dtype, before[i],
        nd.from(arguments.bases[i] or t), 0, 0)
    end
  else
    if ok and not (context.layout or entry.out == "bool") then
      error(("%s it must raise: the result is %s%s, the argument %s%s"):format(where, y.dtype, shape_text(y.shape),
        x.dtype, shape_text(x.shape)), 0)
    end
    if not ok then expect_unchanged(where .. " in an error", { info = { params = {} } }, arguments, before) end
  end
end

local function check_refusal(entry, sample, dtype)
  local context = { dtype = dtype }
  local where = describe(entry, sample, context)
  local arguments = words.arguments(sample, context)
  local before = snapshot(arguments)
  local ok, message = pcall(call, caller(entry), arguments)
  if ok then
    if entry.internal_dtypes or entry.info.internal then return end -- nobody calls it with these
    error(where .. ": it must raise in this dtype", 0)
  end
  local text = entry.refuses or dtype
  if type(text) == "function" then text = text(dtype) end
  if not entry.info.internal and not tostring(message):find(text, 1, true) then
    error(("%s: the message about the dtype is %q; expected it to hold %q"):format(where, tostring(message), text), 0)
  end
  expect_unchanged(where .. " in an error", { info = { params = {} } }, arguments, before)
end

-- Dtypes in which every layout is tried: each has loops of its own. Halves and integers are brought to
-- them by pieces or have the same code.
local EVERY_LAYOUT = { float64 = true, float32 = true }
local SOME_LAYOUTS = { mixed = true, expanded_last = true }

local function has_free_tensor(sample)
  local any = false
  words.each(sample, function(spec) any = any or not spec.dtype end)
  return any
end

-- Every dtype of the entry, every layout.
function checks.values(entry)
  local class = checks.class(entry)
  local has_meta = entry.meta ~= false
  for s, sample in ipairs(entry.samples) do
    words.each(sample, function() end)
    for _, dtype in ipairs(class.fixed and { "float32" } or db.DTYPES) do
      if class[db.category(dtype)] == false then
        if s <= 2 and not sample.only and has_free_tensor(sample) then check_refusal(entry, sample, dtype) end
      elseif allows(sample, dtype) then
        local first = true
        local function with(layout, index_dtype)
          local context = { dtype = dtype, layout = layout, index_dtype = index_dtype }
          local where, results = check_call(entry, sample, context)
          if entry.info.in_place and sample.in_place ~= false then
            check_in_place(entry, sample, context, where, results)
          end
          if has_meta and (first or dtype == "float32") then on_meta(where, entry, sample, context, results) end
          first = false
        end
        with()
        if dtype == "float32" then with(nil, "int32") end
        if sample.layouts ~= false and entry.layouts ~= false then
          for _, layout in ipairs(words.layouts) do
            if (EVERY_LAYOUT[dtype] or SOME_LAYOUTS[layout[1]]) and words.applies(layout, sample) then with(layout) end
          end
        end
      end
    end
  end
end

-- ---------------------------------------------------------------------------------------------
-- Gradients

local autograd = require "cnn.autograd"

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
    if changes(entry, i) then
      local v = fresh[i]
      if core.is_tensor(v) then
        fresh[i] = v:clone()
      elseif type(v) == "table" then
        for k, x in ipairs(v) do v[k] = x:clone() end
      end
    end
  end
  local list = {}
  for _, y in ipairs(outcome(entry, call(caller(entry), fresh), fresh)) do
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
  return cnn.rand(x.shape, { dtype = "float64" }):mul(2):sub(1)
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
    if not found[i] then found[i] = cnn.zeros(x.shape, { dtype = x.dtype }) end
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

local function located(where, f, by, message)
  local fresh = {}
  for i, x in ipairs(by) do fresh[i] = x:detach():clone():requires_grad_() end
  local ok, fine, text = pcall(cnn.gradcheck, function(...) return unpack(f { ... }) end, fresh,
    { raise_exception = false })
  if not ok then text = fine end
  error(message .. (text and "\n" .. tostring(text) or ""), 0)
end

local function check_gradient(where, f, by, cotangents, found, factor)
  local ok, message = pcall(check_direction, where, f, by, cotangents, found, factor)
  if not ok then located(where, f, by, message) end
end

local function with_leaves(sample, arguments, places, leaves)
  local at = {}
  for i, place in ipairs(places) do at[place] = leaves[i] end
  return words.replaced(sample, arguments, function(x, _, number) return at[number] or x end)
end

local function check_refused_gradient(entry, sample, arguments)
  local where = describe(entry, sample, { dtype = "float64" })
  local leaves, places = {}, wanted(sample, arguments)
  for i, place in ipairs(places) do leaves[i] = leaf(arguments.tensors[place]) end
  if #places == 0 then return end
  local ok, results = pcall(evaluate, entry, sample, with_leaves(sample, arguments, places, leaves))
  if not ok then return end
  for i, y in ipairs(results) do
    if y.requires_grad then error(("%s: result %d requires a gradient, which the op has not"):format(where, i), 0) end
  end
end

-- The second derivatives of one sample, contiguous.
local function check_second(entry, sample, where, arguments, places, rng, refused)
  local by = {}
  for i, place in ipairs(places) do by[i] = leaf(arguments.tensors[place]) end
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
  check_gradient(where, first, by, cotangents, found,
    tolerance(entry, sample, "grad_tol", "float64", { float64 = 1 }))
end

-- The gradients in a layout or dtype against those of plain float64 tensors of the same values.
local function check_form(entry, sample, context, places, rng, cotangents)
  local where = describe(entry, sample, context)
  local arguments = words.arguments(sample, context)
  local own, plain, weights = {}, {}, {}
  for i, place in ipairs(places) do
    own[i] = leaf(arguments.tensors[place])
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
  local expected = gradients(evaluate(entry, sample, with_leaves(sample, wide, places, plain), rng), plain, wide_weights)
  if not got or not expected then error(where .. ": no result has a gradient", 0) end
  for i, g in ipairs(got) do
    compare(("%s: gradient of argument tensor %d"):format(where, places[i]), g.dtype, nd.from(expected[i]),
      nd.from(g), tolerance(entry, sample, "grad_tol", g.dtype, checks.GRADIENT_TOLERANCE), entry.grad_floor or 1)
  end
end

-- In float64: against difference quotients; in other layouts, dtypes, and forms of the results' gradients
-- against that; of each argument alone; second derivatives.
function checks.gradients(entry)
  local class = checks.class(entry)
  for s, sample in ipairs(entry.samples) do
    if not allows(sample, "float64") or class.float == false then break end
    local context = { dtype = "float64" }
    local where = describe(entry, sample, context)
    local arguments = words.arguments(sample, context)
    local places = wanted(sample, arguments)
    if entry.grad == false or entry.info.no_grad then
      check_refused_gradient(entry, sample, arguments)
    elseif #places > 0 then
      local rng = core.get_rng_state()
      local factor = tolerance(entry, sample, "grad_tol", "float64", { float64 = 1 })
      local by, cotangents = {}, {}
      for i, place in ipairs(places) do by[i] = leaf(arguments.tensors[place]) end
      local function f(given) return evaluate(entry, sample, with_leaves(sample, arguments, places, given), rng) end
      local results = f(by)
      for i, y in ipairs(results) do cotangents[i] = noise(y, 100 + i) end
      local found = gradients(results, by, cotangents)
      if not found then error(where .. ": no result has a gradient", 0) end
      check_gradient(where, f, by, cotangents, found, factor)
      -- each argument alone: what is saved for the others is not there
      for i = 1, #by > 1 and #by or 0 do
        local alone = leaf(by[i])
        local given = {}
        for k, x in ipairs(by) do given[k] = k == i and alone or x:detach() end
        local single = gradients(f(given), { alone }, cotangents)
        if single then
          compare(("%s: gradient of argument tensor %d alone"):format(where, places[i]), "float64", nd.from(found[i]),
            nd.from(single[1]), checks.GRADIENT_TOLERANCE.float64, 1)
        elseif not same_bits(found[i], cnn.zeros(found[i].shape, { dtype = "float64" })) then
          error(("%s: argument tensor %d alone gets no gradient"):format(where, places[i]), 0)
        end
      end
      -- results' gradients that are not contiguous
      for _, form in ipairs { "transposed", "expanded" } do
        local plain, other = {}, {}
        for i, w in ipairs(cotangents) do
          local rank = #w.shape
          if form == "expanded" then
            other[i] = cnn.tensor(0.75, { dtype = "float64" }):expand(w.shape)
          elseif rank > 1 then
            other[i] = w:transpose(1, rank):contiguous():transpose(1, rank)
          else
            other[i] = w:unsqueeze(-1):expand { w:numel(), 2 }:contiguous():select(2, 1):view(w.shape)
          end
          plain[i] = other[i]:contiguous()
        end
        local expected, got = gradients(f(by), by, plain), gradients(f(by), by, other)
        for i, g in ipairs(got) do
          compare(("%s: gradient of argument tensor %d from a gradient that is %s"):format(where, places[i], form),
            "float64", nd.from(expected[i]), nd.from(g), checks.GRADIENT_TOLERANCE.float64, 1)
        end
      end
      if sample.layouts ~= false and entry.layouts ~= false then
        for _, layout in ipairs(words.layouts) do
          if words.applies(layout, sample) then
            check_form(entry, sample, { dtype = "float64", layout = layout }, places, rng, cotangents)
          end
        end
      end
      if has_free_tensor(sample) and entry.grad_dtypes ~= false then
        for _, dtype in ipairs { "float32", "float16", "bfloat16" } do
          if allows(sample, dtype) then check_form(entry, sample, { dtype = dtype }, places, rng, cotangents) end
        end
      end
      if sample.second ~= false and s <= 6 then
        check_second(entry, sample, where, arguments, places, rng, entry.second == false)
      end
      core.set_rng_state(rng)
    end
  end
end

return checks
