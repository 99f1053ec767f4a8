-- SPDX-License-Identifier: MIT
-- Random numbers (csrc/ops/random.c). Element i of an op, in the order of its positions, is a function of
-- the words of counter i alone: so the references know every value, in every layout and with any number
-- of threads. spec/random_spec.lua looks at the distributions and at the generator's state.
local assert = require "luassert"
local cnn = require "cnn"
local db = require "spec.opdb"
local philox = require "spec.philox"
local T, S, with, nd = db.T, db.S, db.with, db.nd
local unpack = table.unpack or unpack -- luacheck: ignore

local SEED = db.SEED

-- ---------------------------------------------------------------------------------------------
-- One number from the words of a counter, in a dtype

local UNIT_BITS = { float32 = 24, float16 = 11, bfloat16 = 8 }

local function uniform(dtype, low, high)
  local bits = UNIT_BITS[dtype]
  return function(a, b)
    local unit = bits and math.floor(a / 2 ^ (32 - bits)) * 2 ^ -bits or philox.unit(a, b)
    return low + unit * (high - low)
  end
end

-- By Box and Muller: from 32 and 24 bits, or from twice 53.
local function normal(dtype, mean, deviation)
  return function(a, b, c, d)
    local u, turn
    if dtype == "float64" then
      u, turn = philox.unit(a, b) + 2 ^ -54, philox.unit(c, d)
    else
      u, turn = (a + 0.5) * 2 ^ -32, math.floor(b / 256) * 2 ^ -24
    end
    return mean + deviation * math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * turn)
  end
end

local function exponential(dtype, rate)
  return function(a, b)
    local u = dtype == "float64" and philox.unit(a, b) + 2 ^ -54 or (math.floor(a / 256) + 0.5) * 2 ^ -24
    return -math.log(u) / rate
  end
end

local function integer(low, high)
  return function(a, b) return low + philox.below(a, b, high - low) end
end

-- Whether an event of probability p takes place.
local function happens(word, p) return math.floor(word / 256) * 2 ^ -24 < p end

-- An array of draw(words of each element's counter).
local function drawn(shape, draw, seed, offset)
  local list = {}
  for i = 1, nd.size(shape) do list[i] = draw(philox.words(seed or SEED, (offset or 0) + i - 1)) end
  return nd.new(shape, list)
end

local function dropped(x, p, seed, offset)
  local i = 0
  return drawn(x.shape, function(word)
    i = i + 1
    return happens(word, p) and 0 or x.list[i] / (1 - p)
  end, seed, offset)
end

local function permutation(n)
  local list = {}
  for i = 1, n do
    local a, b = philox.words(SEED, i - 1)
    local k = philox.below(a, b, i) + 1
    list[i] = list[k]
    list[k] = i
  end
  return nd.new({ n }, list)
end

-- With replacement: where a number falls among the running sums. Without: those whose clocks, with rates
-- in proportion to the weights, ring first, in order.
local function multinomial(x, count, replacement)
  local classes = x.shape[#x.shape]
  local rows, list = #x.shape == 2 and x.shape[1] or 1, {}
  for r = 0, rows - 1 do
    local total, clocks = 0, {}
    for i = 1, classes do
      local weight = x.list[r * classes + i]
      total = total + weight
      if not replacement and weight > 0 then
        local a, b = philox.words(SEED, r * classes + i - 1)
        clocks[#clocks + 1] = { -math.log(1 - philox.unit(a, b)) / weight, i }
      end
    end
    table.sort(clocks, function(a, b) return a[1] < b[1] end)
    for k = 1, count do
      if replacement then
        local a, b = philox.words(SEED, r * count + k - 1)
        local rest, i = philox.unit(a, b) * total, 0
        repeat
          i = i + 1
          rest = rest - x.list[r * classes + i]
        until rest < 0
        list[#list + 1] = i
      else
        list[#list + 1] = clocks[k][2]
      end
    end
  end
  return nd.new(#x.shape == 2 and { rows, count } or { count }, list)
end

-- ---------------------------------------------------------------------------------------------
-- Entries

local FLOATS = { "float64", "float32", "float16", "bfloat16" }

local function is_options(v) return type(v) == "table" and not nd.is(v) and v.dtype ~= nil end

-- The dtype of the options among these arguments.
local function dtype_of(default, ...)
  local last = select(select("#", ...), ...)
  return is_options(last) and last.dtype or default
end

local function created(default)
  return function(_, arguments) return dtype_of(default, unpack(arguments, 1, arguments.n)) end
end

local floats_only = "the numbers drawn are floats, not int64"

-- rand and randn.
local function new_entry(draw, a, b)
  local samples = { S(3, 5), S({ 2, 3, 2 }), S({}), S(0, 3), S(70) }
  for _, dtype in ipairs(FLOATS) do samples[#samples + 1] = S({ 7, 11 }, { dtype = dtype }) end
  return {
    dtypes = "none", grad = false, out = created "float32", samples = samples,
    ref = function(...)
      local shape = {}
      for _, v in ipairs { ... } do
        if type(v) == "number" then shape[#shape + 1] = v elseif not is_options(v) then shape = v end
      end
      return drawn(shape, draw(dtype_of("float32", ...), a, b))
    end,
    errors = {
      { S({ 3 }, { dtype = "int64" }), floats_only }, { S({ 3 }, { dtype = "bool" }), "floats, not bool" },
      { S(-1), "sizes must be >= 0" }, { S(), "shape" },
    },
    large = S { 300, 257 },
  }
end

local function like_entry(draw, a, b)
  local samples = { S(T { 3, 5 }), S(T {}), S(T { 0, 3 }), S(T { 2, 3, 2, 2 }) }
  for _, dtype in ipairs(FLOATS) do samples[#samples + 1] = with(S(T { 4, 3 }, { dtype = dtype }), { out = dtype }) end
  return {
    dtypes = "float", dense = false, grad = false, samples = samples, large = S(T { 300, 257 }),
    ref = function(x, o) return drawn(x.shape, draw(o and o.dtype or x.dtype, a, b)) end,
    errors = { { S(T({ 3 }, { dtype = "int64" })), floats_only },
      { S(T { 3 }, { dtype = "bool" }), "floats, not bool" } },
  }
end

-- x:fill_(...): draw(dtype, arguments ...) gives the function of words.
local function fill_entry(draw, arguments, entry)
  local samples = {}
  for _, shape in ipairs { { 3, 5 }, {}, { 0, 3 }, { 2, 3, 2, 2 }, { 70 } } do samples[#samples + 1] = S(T(shape)) end
  for _, list in ipairs(arguments) do samples[#samples + 1] = S(T { 5, 7 }, unpack(list)) end
  entry.dtypes, entry.samples = entry.dtypes or "float", samples
  entry.ref = function(x, a, b) return drawn(x.shape, draw(x.dtype, a, b)) end
  entry.large = S(T { 300, 257 })
  return entry
end

local function bernoulli_fill(_, p)
  return function(word) return happens(word, p or 0.5) and 1 or 0 end
end

-- randint and randint_like without their first argument: samples for every dtype.
local function integer_samples(make)
  local samples = {
    make(0, 5), make(-3, 4), make(7, 8), make(0, 1000), make(-128, 128, "int8"), make(0, 256, "uint8"),
      make(0, 2, "bool"),
    make(-2048, 2049, "float16"), make(-256, 257, "bfloat16"), make(0, 2 ^ 19, "float32"),
  }
  for _, dtype in ipairs(db.DTYPES) do
    if dtype ~= "bool" then samples[#samples + 1] = make(0, 100, dtype) end
  end
  return samples
end

local function probability_errors(make)
  return {
    { make(1.5), "p must be a probability from 0 to 1, not 1.5" },
    { make(-0.1), "p must be a probability from 0 to 1" },
    { make(0 / 0), "p must be a probability from 0 to 1" },
  }
end

local function dropout(x, p, training)
  if training == false then return x end
  return dropped(x, p or 0.5)
end

local probabilities = { lo = 0, hi = 1 }

return {
  rand = new_entry(uniform, 0, 1),
  randn = new_entry(normal, 0, 1),
  rand_like = like_entry(uniform, 0, 1),
  randn_like = like_entry(normal, 0, 1),
  randint = {
    dtypes = "none", grad = false, out = created "int64",
    samples = (function()
      local samples = integer_samples(function(low, high, dtype) return S(low, high, { 5, 7 },
        dtype and { dtype = dtype }) end)
      for _, sample in ipairs { S(9, { 3, 4 }), S(9, { 3, 4 }, { dtype = "int16" }), S(0, 9, {}), S(0, 9, { 0, 2 }) } do
        samples[#samples + 1] = sample
      end
      return samples
    end)(),
    ref = function(low, high, shape)
      if type(high) == "table" then low, high, shape = 0, low, high end
      return drawn(shape, integer(low, high))
    end,
    errors = {
      { S(3, 3, { 2 }), "low must be less than high, which is excluded: got 3 and 3" }, { S(0, { 2 }), "got 0 and 0" },
      { S(5, 2, { 2 }), "got 5 and 2" }, { S(0, { 1, 2 }, { 2 }), "high must be one integer, not a list of 2" },
      { S(0, 129, { 2 }, { dtype = "int8" }), "int8 holds the integers from -128 to 127, not all from 0 to 128" },
      { S(-1, 3, { 2 }, { dtype = "uint8" }), "uint8 holds the integers from 0 to 255, not all from -1 to 2" },
      { S(0, 3, { 2 }, { dtype = "bool" }), "bool holds the integers from 0 to 1" },
      { S(0, 2050, { 2 }, { dtype = "float16" }), "float16 holds the integers from -2048 to 2048" },
      { S(3, { 1, 1, 1, 1, 1, 1, 1, 1, 1 }), "a tensor has at most 8 dims" },
      { S(0, 3, { -2 }), "sizes must be >= 0" }, { S(3), "high" },
      { S(3, { 2 }, { requires_grad = true }), "int64 tensors can't require a gradient" },
    },
    large = S(0, 1000, { 300, 257 }),
    check = function(_, run)
      run("draws from ranges of up to 63 bits", function()
        cnn.manual_seed(SEED)
        local far = cnn.randint(-2 ^ 53, 2 ^ 53, { 1000 })
        assert.is_true(far:gt(2 ^ 52):any():item() and far:lt(-2 ^ 52):any():item())
        assert.is_true(far:ge(-2 ^ 53):all():item() and far:lt(2 ^ 53):all():item())
      end)
    end,
  },
  randint_like = {
    dtypes = "all", grad = false, dense = false,
    samples = (function()
      local samples = integer_samples(function(low, high, dtype)
        dtype = dtype or "int32"
        return with(S(T { 5, 7 }, low, high, { dtype = dtype }), { out = dtype })
      end)
      for _, sample in ipairs { S(T { 3, 5 }, 2), S(T { 2, 3, 2, 2 }, 0, 2), S(T {}, 2), S(T { 0, 3 }, 1, 2) } do
        samples[#samples + 1] = sample
      end
      return samples
    end)(),
    ref = function(x, low, high)
      if type(high) ~= "number" then low, high = 0, low end
      return drawn(x.shape, integer(low, high))
    end,
    errors = {
      { S(T { 3 }, 3, 3), "low must be less than high" }, { S(T { 3 }, 0), "got 0 and 0" },
      { S(T({ 3 }, { dtype = "int8" }), 200), "int8 holds the integers from -128 to 127, not all from 0 to 199" },
    },
    large = S(T { 300, 257 }, 0, 2),
  },
  randperm = {
    dtypes = "none", grad = false, out = created "int64",
    samples = (function()
      local samples = { S(0), S(1), S(2), S(10), S(70), S(1, { dtype = "bool" }) }
      for _, dtype in ipairs(db.DTYPES) do
        if dtype ~= "bool" then samples[#samples + 1] = S(100, { dtype = dtype }) end
      end
      return samples
    end)(),
    ref = permutation,
    errors = {
      { S(-1), "n must be >= 0, not -1" }, { S(256, { dtype = "uint8" }),
      "uint8 holds the integers from 0 to 255, not all from 1 to 256" },
      { S(257, { dtype = "bfloat16" }), "bfloat16 holds the integers" },
      { S(2, { dtype = "bool" }), "bool holds the integers" },
    },
    large = S(30000),
  },
  uniform_ = fill_entry(function(dtype, low, high) return uniform(dtype, low or 0, high or 1) end,
    { { 2, 5 }, { -1 }, { -3, -3 }, { -0.5, 0.25 } }, {
      errors = {
        { S(T { 2 }, 2, 1), "low must not exceed high, both finite: got 2 and 1" },
        { S(T { 2 }, 0, math.huge), "both finite" },
        { S(T { 2 }, 0 / 0, 1), "both finite" }, { S(T({ 2 }, { dtype = "int64" })), floats_only },
      },
    }),
  normal_ = fill_entry(function(dtype, mean, deviation) return normal(dtype, mean or 0, deviation or 1) end,
    { { 3, 0.5 }, { -1 }, { 2, 0 } }, {
      errors = {
        { S(T { 2 }, 0, -1), "std must be >= 0, not -1" }, { S(T { 2 }, 0, 0 / 0), "std must be >= 0" },
        { S(T({ 2 }, { dtype = "int64" })), floats_only },
      },
    }),
  exponential_ = fill_entry(function(dtype, rate) return exponential(dtype, rate or 1) end, { { 2 }, { 0.25 } }, {
    errors = {
      { S(T { 2 }, 0), "lambd must be > 0, not 0" }, { S(T { 2 }, -1), "lambd must be > 0" },
      { S(T { 2 }, 0 / 0), "lambd must be > 0" },
      { S(T({ 2 }, { dtype = "int64" })), floats_only },
    },
  }),
  bernoulli_ = fill_entry(bernoulli_fill, { { 0.3 }, { 0 }, { 1 }, { 0.9 } }, {
    dtypes = "all", errors = probability_errors(function(p) return S(T { 3 }, p) end),
  }),
  bernoulli = {
    dtypes = "float", dense = false, grad = false,
    samples = {
      S(T({ 3, 5 }, probabilities)), S(T({}, probabilities)), S(T({ 0, 3 }, probabilities)),
      S(T({ 2, 3, 2, 2 }, probabilities)),
      S(T({ 70 }, probabilities)), S(T({ 4 }, { values = { 0, 1, 0, 1 } })),
    },
    ref = function(x)
      local i = 0
      return drawn(x.shape, function(word)
        i = i + 1
        return happens(word, x.list[i]) and 1 or 0
      end)
    end,
    errors = {
      { S(T({ 2 }, { values = { 0.5, 1.5 } })), "x must hold probabilities from 0 to 1, but an element is 1.5" },
      { S(T({ 2 }, { values = { 0.5, -0.5 } })), "but an element is -0.5" },
      { S(T({ 2 }, { values = { 0.5, 0 / 0 } })), "x must hold probabilities from 0 to 1" },
    },
    large = S(T({ 300, 257 }, probabilities)),
  },
  multinomial = {
    dtypes = "float", grad = false, out = "int64",
    samples = {
      S(T({ 5 }, probabilities), 3), S(T({ 5 }, probabilities), 5), S(T({ 4, 5 }, probabilities), 2),
      S(T({ 4, 5 }, probabilities), 20, true),
      S(T({ 5 }, probabilities), 7, true), S(T({ 0, 5 }, probabilities), 2), S(T({ 3, 1 }, { lo = 1, hi = 2 }), 1),
      S(T({ 6 }, { values = { 0, 2, 0, 1, 0, 3 }, whole = true }), 3),
      S(T({ 6 }, { values = { 0, 2, 0, 1, 0, 0 }, whole = true }), 30, true),
      S(T({ 2, 70 }, { lo = 0, hi = 9 }), 40),
    },
    ref = multinomial,
    errors = {
      { S(T({}, probabilities), 1), "x must have 1 or 2 dims, not 0" },
      { S(T({ 1, 1, 1 }, probabilities), 1), "not 3" },
      { S(T({ 3 }, probabilities), 0), "num_samples must be at least 1, not 0" },
      { S(T { 0 }, 1), "there are 0 categories" },
      { S(T({ 3 }, probabilities), 4), "4 samples without replacement from 3 categories" },
      { S(T({ 3 }, { values = { 1, 0, 0 } }), 2), "2 samples without replacement, but row 1 of x has only 1 positive" },
      { S(T({ 3 }, { values = { 0, 0, 0 } }), 1), "the sum of row 1 of x is 0" },
      { S(T({ 2, 2 }, { values = { 1, 1, 1, -1 } }), 1),
        "x must hold finite numbers >= 0, but element 2 of row 2 is -1" },
      { S(T({ 2 }, { values = { 1, math.huge } }), 1), "but element 2 of row 1 is inf" },
      { S(T({ 2 }, { values = { 0 / 0, 1 } }), 1), "x must hold finite numbers >= 0" },
    },
    large = { S(T({ 40, 300 }, probabilities), 100), S(T({ 40, 300 }, probabilities), 400, true) },
  },
  dropout = {
    dtypes = "float", dense = false,
    samples = {
      S(T { 3, 5 }), S(T { 3, 5 }, 0.25), S(T {}, 0.5), S(T { 0, 3 }, 0.5), S(T { 2, 3, 2, 2 }, 0.3), S(T { 70 }, 0.9),
      S(T { 3, 5 }, 1), S(T { 3, 5 }, 0), S(T { 3, 5 }, 0.5, false), S(T { 3, 5 }, 0.5, true),
      S(T { 3, 5 }, { p = 0.5, training = false }),
    },
    ref = function(x, p, training)
      if type(p) == "table" then return x end
      return p == 1 and nd.new(x.shape, 0) or dropout(x, p, training)
    end,
    errors = probability_errors(function(p) return S(T { 3 }, p) end),
    large = S(T { 300, 257 }, 0.3),
  },
  ["dropout/2"] = {
    dtypes = "all", dense = false, samples = { S(T { 3, 5 }), S(T { 3, 5 }, 0.5), S(T {}, 0), S(T { 0, 3 }, 1),
      S(T { 2, 3, 2, 2 }, 0.5, false) },
    ref = function(x) return x end, errors = probability_errors(function(p) return S(T { 3 }, p) end),
  },
  dropout_backward = {
    dtypes = "float", dense = false, ref = dropped,
    samples = {
      S(T { 3, 5 }, 0.5, 7, 0), S(T { 3, 5 }, 0.25, 7, 1000), S(T {}, 0.5, 1, 2), S(T { 0, 3 }, 0.5, 1, 2),
      S(T { 2, 3, 2, 2 }, 0.3, 2 ^ 40 + 3, 2 ^ 33 + 1),
      S(T { 70 }, 0.9, 0, 2 ^ 32 - 35),
    },
    large = S(T { 300, 257 }, 0.3, 7, 5),
  },
}
