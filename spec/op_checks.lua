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
    k = math.floor((k - at[d] + 1) / shape[d])
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
    if dtype == "bool" then
      e = e ~= 0 and 1 or 0
    elseif not largest then
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

-- Its form in place.
function checks.in_place(entry)
  return (entry.info.internal and core.internal or core.functions)[entry.name .. "_"]
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

-- Whether tensor number k of these arguments is one of them.
function checks.is_changed(entry, arguments, k)
  for _, x in ipairs(changed(entry, arguments)) do
    if rawequal(x, arguments.tensors[k]) then return true end
  end
  return false
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
  if entry.dynamic or sample.dynamic then
    if pcall(call, fn, arguments) then error(where .. ": on meta it must raise: its shape depends on values", 0) end
    return
  end
  if #arguments.tensors == 0 then return end
  for i, y in ipairs(call(fn, arguments)) do
    local x = results[i]
    if tostring(y.device) ~= "meta" then
      error(("%s: result %d of meta tensors is on %s"):format(where, i, y.device), 0)
    end
    if not same_shape(x.shape, y.shape) or x.dtype ~= y.dtype or strides(x) ~= strides(y) then
      error(("%s: result %d on meta is %s%s with strides %s; on the CPU %s%s with %s"):format(where, i, y.dtype,
        shape_text(y.shape), strides(y), x.dtype, shape_text(x.shape), strides(x)), 0)
    end
  end
end

-- References draw from this seed, from counter 0 on.
local function seed_generator(entry)
  if entry.info.random then cnn.manual_seed(db.SEED) end
end

-- One call: values, dtypes, form of the results; arguments as they were.
local function check_call(entry, sample, context)
  local where = describe(entry, sample, context)
  local arguments = words.arguments(sample, context)
  local before = snapshot(arguments)
  local expected = reference(entry, sample, context, arguments)
  local asks = type(sample.out or entry.out) == "function"
  local arrays = asks and words.arrays(sample, arguments) -- as they were before the call
  seed_generator(entry)
  local results = call(caller(entry), arguments)
  if #results == 0 and not entry.silent then error(where .. ": there is no result", 0) end
  local list = outcome(entry, results, arguments)
  local dtypes = result_dtypes(entry, sample, context.dtype, arrays, #results)
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
  local fn = checks.in_place(entry)
  local arguments = words.arguments(sample, context)
  local x, y = arguments[1], results[1]
  if not core.is_tensor(x) then return end
  local before = snapshot(arguments)
  local fits = x.dtype == y.dtype and same_shape(x.shape, y.shape)
  local shared = false
  for d, stride in ipairs(x:stride()) do shared = shared or stride == 0 and x.shape[d] > 1 end
  seed_generator(entry)
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
    if entry.internal_dtypes then return end -- nobody calls it with these
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

-- In a slow build of the simulator CNN_OPS_FORMS=2/5 takes every fifth of an op's forms (sample, dtype and
-- layout; of gradients also each kind of check), from the second on; the next op begins one further, so that
-- five runs, or five ops of a kind, see all.
local which, among = (os.getenv "CNN_OPS_FORMS" or "1/1"):match "^(%d+)/(%d+)$"
function checks.turn(entry)
  entry.turn = (entry.turn or entry.number) + 1
  return entry.turn % among == which % among
end

-- Every dtype of the entry, every layout.
function checks.values(entry)
  local class = checks.class(entry)
  local has_meta = entry.meta ~= false
  for s, sample in ipairs(entry.samples) do
    for _, dtype in ipairs(class.fixed and { "float32" } or db.DTYPES) do
      if class[db.category(dtype)] == false then
        if s <= 2 and not sample.only and has_free_tensor(sample) then check_refusal(entry, sample, dtype) end
      elseif allows(sample, dtype) then
        local first = true
        local function with(layout, index_dtype)
          if not checks.turn(entry) then return end
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

checks.allows, checks.caller, checks.call, checks.flat, checks.changes = allows, caller, call, flat, changes
checks.changed, checks.outcome, checks.describe, checks.tolerance = changed, outcome, describe, tolerance
checks.compare, checks.same_shape, checks.shape_text, checks.snapshot = compare, same_shape, shape_text, snapshot
checks.has_free_tensor, checks.one_call = has_free_tensor, check_call

return checks
