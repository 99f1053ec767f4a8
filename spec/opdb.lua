-- SPDX-License-Identifier: MIT
-- How every op is tested: one entry per op, in spec/opdb/<family>.lua (the families of csrc/ops).
-- spec/ops_spec.lua walks the registry by them; an op without an entry fails.
--
-- A family's file returns a table of entries by name. (Where two ops of the registry have one name, the
-- second one's entry is "name/2".) An entry holds
--
--   samples   list of S(arguments ...), in the words of spec/op_samples.lua
--   ref       the op in plain Lua: function(arguments ...) of spec/nd.lua arrays, giving arrays; after
--             the results, what the arguments that the op changes hold afterwards. nil: what the op does
--             is said by `check`
--   dtypes    which dtypes it takes: a name from CLASSES below. It must raise in all others
--   out       dtype of the results: nil that of the arguments; a name; a list; or a function(dtype,
--             arguments) that gives one of these
--   grad      false: it must raise when an input requires a gradient (or cut it, for ops that are
--             discrete by nature); default: it has one for every float tensor of the sample
--   second    false: the gradient can't be differentiated, and says so
--   errors    list of { S(bad arguments ...), "what the message must hold" }
--   large     a sample worth several threads, where the kernel has loops of its own
--   plugin    true: large samples may be computed by the plugin, and are as exact with it
--   lengths   function(n): samples of that length, for n around the widths of vectors; and for the n in the
--             list `long`, beyond the blocks of a kernel
--   tails     elementwise: a sample of vectors of 70, whose parts give the same parts of the result
--   check     function(entry, run): tests of the op's own; run(name, fn) names them
--
-- and where the common rules don't fit: tol, grad_tol (factors of the tolerances: a number, or a list by
-- dtype), floor (values smaller than this have absolute errors; 1 by default), dynamic (shapes depend on
-- values: raises on meta), meta = false, call (function that calls it), dense (false: results need not be
-- contiguous), internal_dtypes (no one calls it with other dtypes: it need not raise), silent (it may give no
-- result), layouts = false, no_difference (no difference quotients),
-- refuses = text or function(dtype): what the message about a dtype holds (default: the dtype's name).
--
-- A sample may carry, by with(S(...), {...}): only (a class: dtypes that it is for), out, grad, second, tol,
-- grad_tol, layouts = false (only contiguous), in_place = false.
local cnn = require "cnn"
local core = require "cnn.core"
local nd = require "spec.nd"
local words = require "spec.op_samples"
local T, S, with = words.T, words.S, words.with
local unpack = table.unpack or unpack -- luacheck: ignore

local db = { T = T, I = words.I, M = words.M, L = words.L, S = S, with = with, nd = nd }

-- What becomes of float, integer and bool arguments: "keep", a dtype's name, or false (it raises).
db.CLASSES = {
  float = { float = "keep", int = false, bool = false },
  floating = { float = "keep", int = "float32", bool = false },
  floating_bool = { float = "keep", int = "float32", bool = "float32" },
  real = { float = "keep", int = "keep", bool = false },
  all = { float = "keep", int = "keep", bool = "keep" },
  bits = { float = false, int = "keep", bool = "keep" },
  int = { float = false, int = "keep", bool = false },
  none = { float = "keep", int = "keep", bool = "keep", fixed = true }, -- no argument follows the dtype
}
db.DTYPES = {
  "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
}
-- The seed of random ops whose values are checked.
db.SEED = 20260

function db.category(dtype)
  return words.is_float[dtype] and "float" or dtype == "bool" and "bool" or "int"
end

-- ---------------------------------------------------------------------------------------------
-- Short forms of entries

local function append(list, more)
  for _, v in ipairs(more or {}) do list[#list + 1] = v end
  return list
end

db.append = append

local function copy(t)
  local c = {}
  for key, value in pairs(t) do c[key] = value end
  return c
end

-- An elementwise function of one tensor:
--   unary { ref = function(x, args ...) end, args = {...}, lo =, hi =, away = {kinks},
--           special = a list of values at the ends of the domain, or false, steps = true where the
--           derivative is 0 by nature, orders = how many derivatives there are, where there is an end,
--           large_slope = false where the derivative cancels near `away`, which large samples don't keep }
function db.unary(row)
  local entry, args = copy(row), row.args or {}
  local options = { lo = row.lo, hi = row.hi, away = row.away, ints = row.ints }
  local function sample(...) return S(T({ ... }, options), unpack(args)) end
  entry.kind = "unary"
  if (row.orders or 2) < 2 then entry.second = false end
  entry.dtypes = row.dtypes or "floating_bool"
  entry.floor = row.floor or 1e-3
  entry.ref = function(x, ...)
    local rest, n = { ... }, select("#", ...)
    return nd.map(function(v) return row.ref(v, unpack(rest, 1, n)) end, x)
  end
  entry.scalar = row.ref
  entry.samples = append({ sample(3, 5), sample(2, 3, 2, 4), sample(), sample(0, 3) }, row.samples)
  if row.special ~= false then
    -- the ends of the domain, and beyond it
    local values = row.special or { 0 / 0, 1 / 0, -1 / 0, 0, 1, -1, 25, -25, 0.25, -0.25 }
    local special = S(T({ #values }, { values = values }), unpack(args))
    append(entry.samples, { with(special, { only = "float", grad = false }) })
  end
  entry.errors = append({ { S("a", unpack(args)), "expected a tensor, got" } }, row.errors)
  entry.tails = row.tails ~= false and sample(70) or nil
  entry.large = row.large or sample(300, 257)
  return entry
end

-- The same with a bool result.
function db.predicate(row)
  row.dtypes, row.out, row.grad = row.dtypes or "all", "bool", false
  return db.unary(row)
end

-- An elementwise function of two tensors or numbers:
--   binary { ref = function(x, y, args ...) end, x = {lo, hi, away}, y = {...}, number = 3, args = {...} }
function db.binary(row)
  local entry, args = copy(row), row.args or {}
  local function x(...) return T({ ... }, row.x) end
  local function y(...) return T({ ... }, row.y) end
  entry.kind = "binary"
  entry.floor = row.floor or 1e-3
  entry.ref = function(a, b, ...)
    local rest, n = { ... }, select("#", ...)
    return nd.map(function(v, w) return row.ref(v, w, unpack(rest, 1, n)) end, a, b)
  end
  local number = row.number or 3
  -- A number's dtype takes part: with bool it is the larger one.
  local numbers = row.out ~= "bool" and (row.dtypes == "bits" and "int" or "real") or nil
  entry.samples = append({
    S(x(3, 5), y(3, 5), unpack(args)), S(x(3, 1), y(4), unpack(args)), S(x(2, 3, 2, 2), y(3, 1, 1), unpack(args)),
    with(S(x(4), number, unpack(args)), { only = numbers }),
    with(S(number, y(4), unpack(args)), { in_place = false, only = numbers }),
    S(x(), y(), unpack(args)), S(x(0, 3), y(1, 3), unpack(args)),
    with(S(x(2, 3), y(), unpack(args)), { only = row.dtypes == "bits" and "bits" or "float" }),
  }, row.samples)
  entry.errors = append({
    { S(x(2, 3), y(4), unpack(args)), "shapes (2, 3) and (4,) don't broadcast" },
    { S(x(2, 3), "a", unpack(args)), "expected a tensor or a number, got" },
  }, row.errors)
  entry.tails = row.tails ~= false and S(x(70), y(70), unpack(args)) or nil
  entry.large = row.large or S(x(300, 257), y(257), unpack(args))
  return entry
end

-- Comparisons.
function db.compare(row)
  row.dtypes, row.out, row.grad = row.dtypes or "all", "bool", false
  row.x = row.x or { ints = { 0, 3 }, values = nil }
  row.y = row.y or { ints = { 0, 3 } }
  return db.binary(row)
end

-- The errors of a dim argument: make(tensor of two dims or none, dim) gives the sample. With `list`, of a
-- list of dims.
function db.dim_errors(make, list)
  local function wrap(...) return list and { ... } or (...) end
  local errors = {
    { make(T { 2, 3 }, wrap(3)), "dim 3 is out of range for a tensor with 2 dims (1..2)" },
    { make(T { 2, 3 }, wrap(-3)), "dim -3 is out of range for a tensor with 2 dims (-2..-1)" },
    { make(T { 2, 3 }, wrap(0)), "0: Lua dims start at 1 (or count from the end: -1)" },
    { make(T {}, wrap(2)), "dim 2 is out of range: the tensor has 0 dims" },
  }
  if list then errors[#errors + 1] = { make(T { 2, 3 }, wrap(2, -1)), "dim 2 is given twice" } end
  return errors
end

-- For points where difference quotients are no help: fails unless the sum of fn(x) has this gradient at a
-- float64 x of these values.
function db.expect_gradient(expected, fn, values)
  local x = cnn.tensor(values, { dtype = "float64", requires_grad = true })
  fn(x):sum():backward()
  require "spec.helper".elements(x.grad, expected, 1e-15)
end

-- A function of the elements over some dims, of x, dim and keepdim:
--   reduction { ref = function(list of elements, arguments behind keepdim ...) end, x = {lo, hi ...},
--               lead = arguments between x and dim, rest = arguments behind keepdim,
--               single = true where only one dim is allowed, empty = false where nothing has no value,
--               "nan" where it has one without a gradient }
function db.reduction(row)
  local entry, lead, rest = copy(row), row.lead or {}, row.rest or {}
  entry.kind = "reduction"
  entry.dtypes = row.dtypes or "float"
  local function x(...) return T({ ... }, row.x) end
  local function sample(t, dim, keepdim)
    local list = { t }
    for i = 1, #lead do list[#list + 1] = lead[i] end
    local n = #list
    list[n + 1], list[n + 2] = dim, keepdim
    n = n + 2
    for i = 1, #rest do list[n + i] = rest[i] end
    n = n + #rest
    while n > 0 and list[n] == nil do n = n - 1 end
    return S(unpack(list, 1, n))
  end
  entry.ref = row.arrays or function(a, ...)
    local given = { ... }
    local dim, keepdim = given[#lead + 1], given[#lead + 2]
    return a:reduce(dim, keepdim, function(list)
      return row.ref(list, unpack(given, #lead + 3, #lead + 2 + #rest))
    end)
  end
  local list = { sample(x(3, 5)), sample(x(3, 5), 1), sample(x(3, 5), -1, true), sample(x()), sample(x(0, 3), 2) }
  list[#list + 1] = sample(x(2, 3, 4), row.single and 2 or { 1, 3 })
  list[#list + 1] = sample(x(2, 3, 2, 4), row.single and 1 or { 3, 4 }, true)
  list[#list + 1] = sample(x(2, 3, 2, 4), 2)
  if row.empty ~= false then
    local function none(...) return with(sample(...), { grad = row.empty ~= "nan" }) end
    append(list, { none(x(0, 3), 1), none(x(2, 0), row.single and 2 or { 1, 2 }) })
  end
  entry.samples = append(list, row.samples)
  entry.errors = append(db.dim_errors(sample), row.errors)
  if not row.single then entry.errors[#entry.errors + 1] = { sample(x(2, 3), { 2, -1 }), "dim 2 is given twice" } end
  if row.empty == false then entry.errors[#entry.errors + 1] = { sample(x(0, 3), 1), "shape (0, 3)" } end
  entry.lengths = function(n) return sample(x(2, n), 2), sample(x(n, 3), 1), sample(x(3, n), 1) end
  entry.long = row.long or { 600, 1100, 9001 }
  entry.large = row.large or { sample(x(300, 257), 2), sample(x(300, 257), 1), sample(x(70000)) }
  return entry
end

-- ---------------------------------------------------------------------------------------------
-- The entries of the registry

local infos, order = {}, {}
for _, op in ipairs(core.ops()) do
  local key, n = op.name, 1
  while infos[key] do
    n = n + 1
    key = op.name .. "/" .. n
  end
  infos[key] = op
  order[#order + 1] = key
end

-- The keys of all ops, in the registry's order; those that the environment's CNN_OPS names, where it is
-- set: names or Lua patterns of whole names, with commas between. One that names nothing is an error.
function db.keys()
  local filter = os.getenv "CNN_OPS"
  if not filter or filter == "" then return order end
  local list, seen = {}, {}
  for pattern in filter:gmatch "[^,%s]+" do
    local found = false
    for _, key in ipairs(order) do
      if key == pattern or key:match("^" .. pattern .. "$") then
        found = true
        if not seen[key] then list[#list + 1] = key end
        seen[key] = true
      end
    end
    if not found then error("CNN_OPS: no op is named " .. pattern) end
  end
  return list
end

local entries

-- The gradient ops of the rows of unary.def follow from their function's entries: name_backward(dy, v,
-- arguments) is dy times the slope at x, where v is x, or the function's value, or of no matter.
local function derived(name, forward)
  local args = forward.args or {}
  local of_value = infos[name].saves == "out"
  local orders, scalar = forward.orders or 3, forward.scalar
  local options = { lo = forward.lo, hi = forward.hi, away = forward.away, grad = orders > 1 }
  local function value(x) return scalar(x, unpack(args)) end
  -- The difference quotient of order 4.
  local function slope(x)
    local h = 1e-3
    return (8 * (value(x + h) - value(x - h)) - (value(x + 2 * h) - value(x - 2 * h))) / (12 * h)
  end
  local points = words.float_values(options, 100, words.generator(#name + 1000))
  -- The x whose value is v: Newton's method from the nearest of the points.
  local function inverse(v)
    local x, distance = nil, math.huge
    for _, point in ipairs(points) do
      local d = math.abs(value(point) - v)
      if d < distance then x, distance = point, d end
    end
    for _ = 1, 3 do
      local s = slope(x)
      if s ~= 0 then x = x - (value(x) - v) / s end
    end
    return x
  end
  local function sample(...)
    local shape = { ... }
    local v = db.T(shape, options)
    if of_value then
      local values = {}
      for i = 1, nd.size(shape) do values[i] = value(points[i]) end
      v = db.T(shape, { values = values, grad = options.grad })
    end
    return S(T(shape), v, unpack(args))
  end
  return {
    kind = "derived", dtypes = "float",
    samples = { sample(3, 5), sample(2, 3, 2, 4), sample(), sample(0, 3) },
    ref = function(dy, v)
      return nd.map(function(g, w) return g * slope(of_value and inverse(w) or w) end, dy, v)
    end,
    tol = { float64 = 1e5, float32 = 10, float16 = 2, bfloat16 = 2 }, -- the slope is a quotient of differences
    grad_tol = forward.grad_tol, grad = not forward.steps, second = orders ~= 2,
    no_difference = of_value and forward.away ~= nil, -- the values of kinks are where the points meet
    large = not of_value and forward.large_slope ~= false
      and S(T { 300, 257 }, T({ 300, 257 }, options), unpack(args)) or nil,
  }
end

-- Makes a sample ready: its values follow from its number.
function db.prepare(entry, sample, number)
  words.seed(sample, entry.key, number)
  -- where elements share memory, nothing can be changed in place
  for i, param in ipairs(entry.info.params) do
    if param.changed then words.mark_whole(sample[i]) end
  end
end

local function load_entries()
  entries = {}
  local pipe = assert(io.popen "ls spec/opdb/*.lua")
  for path in pipe:lines() do
    for name, entry in pairs(dofile(path)) do
      if not infos[name] then error(("%s: there is no op %s"):format(path, name)) end
      if entries[name] then error(("%s: %s has an entry already"):format(path, name)) end
      entries[name] = entry
    end
  end
  pipe:close()
  for _, name in ipairs(order) do
    local forward = entries[name:match "^(.*)_backward$" or ""]
    if not entries[name] and forward and forward.kind == "unary" then
      entries[name] = derived(name:sub(1, -10), forward)
    end
  end
  for i, key in ipairs(order) do
    if entries[key] then entries[key].number = i end
  end
  for key, entry in pairs(entries) do
    entry.key, entry.info, entry.name = key, infos[key], infos[key].name
    local number = 0
    local function seed(sample)
      number = number + 1
      db.prepare(entry, sample, number)
    end
    for _, sample in ipairs(entry.samples or {}) do seed(sample) end
    for _, case in ipairs(entry.errors or {}) do seed(case[1]) end
    if entry.tails then seed(entry.tails) end
    if entry.large then
      if entry.large.n then entry.large = { entry.large } end
      for _, sample in ipairs(entry.large) do seed(sample) end
    end
  end
end

-- The entry of an op; nil where there is none.
function db.entry(key)
  if not entries then load_entries() end
  return entries[key]
end

-- Lets go of what an entry holds, once all is checked: collections take as long as the heap is large.
function db.release(entry)
  for key in pairs(entry) do entry[key] = nil end
end

return db
