-- SPDX-License-Identifier: MIT
-- New tensors (csrc/ops/create.c).
local assert = require "luassert"
local cnn = require "cnn"
local db = require "spec.opdb"
local T, S, with, nd = db.T, db.S, db.with, db.nd

-- The trailing table of options of a call; nil without one.
local function options_of(arguments)
  local last = arguments[arguments.n]
  local is_table = type(last) == "table" and not nd.is(last)
  return is_table and (last.dtype or last.device or last.requires_grad) and last or nil
end

-- out of a creation function whose dtype is the default one, or that of the options.
local function created(default)
  return function(_, arguments)
    local o = options_of(arguments)
    return o and o.dtype or type(default) == "function" and default(arguments) or default or "float32"
  end
end

-- out of a function `like` another tensor.
local function like(dtype, arguments)
  local o = options_of(arguments)
  return o and o.dtype or dtype
end

-- What a number becomes as an element of a dtype.
local function element(v, dtype)
  if type(v) == "boolean" then v = v and 1 or 0 end
  if dtype == "bool" then return v ~= 0 and 1 or 0 end
  if db.category(dtype) == "int" then return v < 0 and math.ceil(v) or math.floor(v) end
  return v
end

-- samples(options) for every dtype: options {dtype = ...}.
local function in_each_dtype(list, make, skipped)
  for _, dtype in ipairs(db.DTYPES) do
    if dtype ~= skipped then list[#list + 1] = make { dtype = dtype } end
  end
  return list
end

-- The shape of zeros(2, 3), zeros {2, 3} or zeros {2, 3, dtype = ...}.
local function shape_of(...)
  local first = ...
  if type(first) == "number" then
    local shape = {}
    for i = 1, select("#", ...) do
      local s = select(i, ...)
      if type(s) ~= "number" then break end
      shape[i] = s
    end
    return shape
  end
  local shape = {}
  for i, s in ipairs(first or {}) do shape[i] = s end
  return shape
end

-- What all creation functions must do with requires_grad and device; call(options) makes a tensor.
local function check_options(call)
  return function(_, run)
    run("takes requires_grad and a device", function()
      local x = call { requires_grad = true }
      assert.is_true(x.requires_grad and x.is_leaf)
      assert.is_false(call({ dtype = "float64" }).requires_grad)
      local y = call { device = "meta" }
      assert.equal("meta", y.device)
      assert.is_true(y:has_shape(x.shape))
    end)
  end
end

local ints_need_no_grad = "can't require a gradient: only floats can"
local negative = "sizes must be >= 0"

-- zeros and ones.
local function constant(name, value)
  return {
    dtypes = "none", out = created(), grad = false,
    samples = in_each_dtype({
      S(2, 3), S({ 2, 3 }), S({}), S(0, 4), S({ 3, 0, 2 }), S(5), S({ 2, 1, 3, dtype = "int32" }),
      S({ 1, 2, 1, 2, 1, 2, 1, 2 }),
    }, function(o) return S({ 3, 5 }, o) end),
    ref = function(...) return nd.new(shape_of(...), value) end,
    errors = {
      { S(2, -1), negative }, { S({ -3, 2 }), "shape (-3, 2)" },
      { S(2, { dtype = "int64", requires_grad = true }), ints_need_no_grad },
      { S(2, { dtype = "bool", requires_grad = true }), "bool tensors " .. ints_need_no_grad },
      { S({ 1, 1, 1, 1, 1, 1, 1, 1, 1 }), "at most 8" }, { S("2"), "expected a shape, got the string" },
      { S({ 2, 1.5 }), "shape" },
      { S(), "shape" },
      { S(2, { dtype = "float" }), "dtype" }, { S(2, { device = "disk" }), "device" },
    },
    large = S({ 300, 700 }),
    check = check_options(function(o) return cnn[name]({ 2, 2 }, o) end),
  }
end

-- zeros_like and its like: value is nil where elements are not set. lead: arguments between x and options.
local function alike(name, value, lead)
  local function call(shape, o)
    if lead == nil then return S(T(shape), o) end
    return S(T(shape), lead, o)
  end
  local function value_in(dtype) return value and element(lead == nil and value or lead, dtype) end
  return {
    dtypes = "all", out = like, grad = false, dense = false,
    samples = in_each_dtype({
      call { 3, 5 }, call {}, call { 0, 3 }, call { 2, 3, 2, 2 }, call { 7 },
    }, function(o) return call({ 2, 3 }, o) end),
    ref = value and function(x, ...)
      local o = options_of { n = select("#", ...), ... }
      return nd.new(x.shape, value_in(o and o.dtype or x.dtype))
    end,
    errors = {
      { call({ 2 }, { dtype = "int64", requires_grad = true }), "int64 tensors " .. ints_need_no_grad },
      { lead == nil and S(3) or S(3, lead), "expected a tensor" },
    },
    large = call { 300, 257 },
    check = function(entry, run)
      local function make(x, o)
        if lead == nil then return cnn[name](x, o) end
        return cnn[name](x, lead, o)
      end
      check_options(function(o) return make(cnn.rand(2, 2), o) end)(entry, run)
      run("keeps x's order of strides", function()
        local y = make(cnn.rand(4, 3, 2):permute(3, 1, 2))
        assert.same({ 1, 6, 2 }, y:stride())
        local image = cnn.rand(2, 3, 4, 5):contiguous("channels_last")
        assert.is_true(make(image):is_contiguous "channels_last")
      end)
      run("is detached", function()
        local x = cnn.rand({ 3 }, { requires_grad = true })
        assert.is_false(make(x).requires_grad)
      end)
    end,
  }
end

local function filled(x, v)
  return nd.new(x.shape, element(v, x.dtype))
end

-- Numbers in a row: every element in floats, those that are whole numbers in integers too.
local function row_entry(name, entry)
  entry.dtypes, entry.out, entry.grad = "none", created(), false
  entry.check = entry.check or check_options(function(o) return cnn[name](1, 3, 2, o) end)
  return entry
end

local function arange(start, stop, step)
  if type(stop) ~= "number" then start, stop = 0, start end
  step = type(step) == "number" and step or 1
  local list = {}
  while (stop - (start + #list * step)) * step > 0 do list[#list + 1] = start + #list * step end
  return nd.new({ #list }, list)
end

local function linspace(start, stop, steps)
  return nd.build({ steps }, function(i)
    return steps == 1 and start or start + (stop - start) * (i - 1) / (steps - 1)
  end)
end

local function full_dtype(arguments)
  return type(arguments[2]) == "boolean" and "bool" or "float32"
end

return {
  full = {
    dtypes = "none", out = created(full_dtype), grad = false,
    samples = in_each_dtype({
      S({ 2, 3 }, 1.5), S({ 2, 3 }, true), S({ 4 }, false), S({}, 3), S({ 0, 2 }, 1), S({ 5 }, -2),
      S({ 2 }, 0), S({ 2 }, 2.75, { dtype = "int32" }), S({ 2 }, -2.75, { dtype = "int64" }),
      S({ 3 }, true, { dtype = "float64" }), S({ 3 }, 0.25, { dtype = "bool" }), S({ 3 }, false, { dtype = "int8" }),
    }, function(o) return S({ 3, 5 }, 3, o) end),
    ref = function(shape, value, o)
      local dtype = o and o.dtype or type(value) == "boolean" and "bool" or "float32"
      return nd.new(shape, element(value, dtype))
    end,
    errors = {
      { S({ 2, -1 }, 0), negative }, { S({ 2 }), "value" }, { S({ 2 }, "1"), "value" },
      { S({ 2 }, 1, { dtype = "int64", requires_grad = true }), ints_need_no_grad },
      { S({ 2 }, true, { requires_grad = true }), "bool tensors " .. ints_need_no_grad },
    },
    large = S({ 300, 700 }, 1.5),
    check = function(entry, run)
      check_options(function(o) return cnn.full({ 2, 2 }, 0.5, o) end)(entry, run)
      run("keeps integers exact, and NaN and infinities", function()
        local x = cnn.full({ 2 }, 2 ^ 53 - 1, { dtype = "int64" })
        assert.equal(2 ^ 53 - 1, tonumber(x[2]:item()))
        assert.equal(math.huge, cnn.full({ 1 }, math.huge):item())
        local v = cnn.full({ 1 }, 0 / 0):item()
        assert.is_true(v ~= v)
      end)
    end,
  },
  zeros = constant("zeros", 0),
  ones = constant("ones", 1),
  empty = {
    dtypes = "none", out = created(), grad = false,
    samples = in_each_dtype({ S(2, 3), S({}), S(0, 4), S({ 2, 3, dtype = "int16" }) },
      function(o) return S({ 3, 5 }, o) end),
    dense = false,
    errors = {
      { S(2, -1), negative }, { S(2, { dtype = "int64", requires_grad = true }), ints_need_no_grad },
      { S({ 2, 3, 4 }, { memory_format = "channels_last" }), "channels_last is for tensors with 4 dims, not 3" },
      { S({ 2, 3 }, { memory_format = "rows" }), "memory_format" },
    },
    check = function(entry, run)
      check_options(function(o) return cnn.empty({ 2, 2 }, o) end)(entry, run)
      run("has the memory format that was asked for", function()
        local x = cnn.empty({ 2, 3, 4, 5 }, { memory_format = "channels_last" })
        assert.same({ 60, 1, 15, 3 }, x:stride())
        assert.is_true(cnn.empty(2, 3, 4, 5):is_contiguous())
      end)
      run("has the shape and dtype of its sample", function()
        for _, sample in ipairs(entry.samples) do
          local x = cnn.empty(sample[1], sample[2])
          assert.same(shape_of(sample[1], sample[2]), x.shape)
        end
      end)
    end,
  },
  zeros_like = alike("zeros_like", 0),
  ones_like = alike("ones_like", 1),
  empty_like = alike "empty_like",
  full_like = alike("full_like", 3, 3),

  fill_ = {
    dtypes = "all",
    samples = {
      S(T { 3, 5 }, 3), S(T { 3, 5 }, 0), S(T {}, 1), S(T { 0, 3 }, 1), S(T { 2, 3, 2, 2 }, true), S(T { 4 }, false),
      with(S(T { 4, 3 }, -1.5), { only = "float" }), S(T { 5 }, 2.75),
    },
    ref = filled,
    errors = { { S(T { 2 }), "value" }, { S(T { 2 }, "1"), "value" } },
    large = S(T { 300, 257 }, 3),
  },
  zero_ = {
    dtypes = "all",
    samples = { S(T { 3, 5 }), S(T {}), S(T { 0, 3 }), S(T { 2, 3, 2, 2 }) },
    ref = function(x) return filled(x, 0) end,
    large = S(T { 300, 257 }),
  },

  arange = row_entry("arange", {
    samples = in_each_dtype({
      S(5), S(0), S(-3), S(2, 7), S(7, 2), S(7, 2, -2), S(0, 1, 0.25), S(1, 2, 0.3), S(-1.5), S(2.5), S(0, 10, 3),
      S(0, 9, 3), S(1, 0, -0.25), S(3, 3), S(0.5, 3),
    }, function(o) return S(1, 6, 2, o) end, "bool"),
    ref = arange,
    errors = {
      { S(1, 5, 0), "step must not be 0" }, { S(0, math.huge), "must be finite" }, { S(0 / 0), "must be finite" },
      { S(), "argument 2 (stop) is missing" }, { S(0, 1e300), "the range would have" },
      { S(3, { dtype = "int64", requires_grad = true }), ints_need_no_grad },
    },
    large = S(200000),
    check = function(entry, run)
      check_options(function(o) return cnn.arange(4, o) end)(entry, run)
      run("counts exactly where doubles round", function()
        local far = 2 ^ 53 - 4
        local x = cnn.arange(far, far + 3, 1, { dtype = "int64" })
        assert.equal(3, x:size(1))
        assert.equal(far + 2, tonumber(x[3]:item()))
      end)
    end,
  }),
  linspace = row_entry("linspace", {
    samples = in_each_dtype({
      S(0, 1, 5), S(0, 1, 1), S(0, 1, 0), S(3, -2, 4), S(2, 2, 3), S(-1, 1, 2), S(0, 1, 100),
    }, function(o) return S(1, 9, 5, o) end, "bool"),
    ref = linspace,
    errors = {
      { S(0, 1, -1), "steps must be >= 0, not -1" }, { S(0, 1), "steps" },
      { S(0, 1, 3, { dtype = "int32", requires_grad = true }), ints_need_no_grad },
    },
    large = S(-1, 1, 200001),
    check = function(entry, run)
      check_options(function(o) return cnn.linspace(0, 1, 3, o) end)(entry, run)
      run("meets both ends exactly", function()
        for _, dtype in ipairs { "float32", "float64" } do
          for _, n in ipairs { 2, 3, 7, 10, 49, 1000 } do
            local x = cnn.linspace(-0.75, 0.5, n, { dtype = dtype })
            assert.equal(-0.75, x[1]:item())
            assert.equal(0.5, x[n]:item())
          end
        end
      end)
    end,
  }),
  logspace = row_entry("logspace", {
    samples = in_each_dtype({
      S(0, 2, 5), S(0, 1, 1), S(0, 1, 0), S(-1, 1, 4), S(0, 4, 3, 2), S(1, 3, 5, 0.5), S(0, 1, 3, 1),
    }, function(o) return S(0, 4, 5, 2, o) end, "bool"),
    ref = function(start, stop, steps, base)
      base = type(base) == "number" and base or 10
      return nd.map(function(v) return base ^ v end, linspace(start, stop, steps))
    end,
    errors = {
      { S(0, 1, -1), "steps must be >= 0, not -1" },
      { S(0, 1, 3, 10, { dtype = "int8", requires_grad = true }), ints_need_no_grad },
    },
    large = S(-1, 1, 100001),
  }),
  eye = {
    dtypes = "none", out = created(), grad = false,
    samples = in_each_dtype({ S(3), S(2, 4), S(4, 2), S(0), S(0, 3), S(3, 0), S(1) },
      function(o) return S(2, 3, o) end),
    ref = function(n, m)
      m = type(m) == "number" and m or n
      return nd.build({ n, m }, function(i, j) return i == j end)
    end,
    errors = {
      { S(-1), negative }, { S(2, -3), "shape (2, -3)" }, { S(), "n" },
      { S(2, { dtype = "int64", requires_grad = true }), ints_need_no_grad },
    },
    large = S(400, 300),
    check = check_options(function(o) return cnn.eye(2, o) end),
  },
}
