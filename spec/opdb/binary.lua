-- SPDX-License-Identifier: MIT
-- Entries of the rows of csrc/ops/binary.def: functions of two and three operands.
local db = require "spec.opdb"
local fn = require "spec.functions"
local assert = require "luassert"
local nd, S, T, M, with = db.nd, db.S, db.T, db.M, db.with
local binary, compare = db.binary, db.compare

local entries = {}
local NAN = 0 / 0
local INF = math.huge

-- x and y that are no closer to each other than difference quotients need: in [-2, 0] and [0, 2], and
-- the other way round.
local APART = { lo = -2, hi = -0.2, ints = { -4, 4 } }
local APART_TOO = { lo = 0.2, hi = 2, ints = { -4, 4 } }

local function float_only(sample) return with(sample, { only = "float" }) end

-- In bool, sums count and products are "and": what is not 0 is true.
entries.add = binary {
  dtypes = "all", ref = function(x, y, alpha) return x + (alpha or 1) * y end,
  samples = { S(T { 3, 4 }, T { 4 }, 2), float_only(S(T { 3, 4 }, T { 3, 1 }, 0.5)), float_only(S(T { 3 }, 2, 0.5)) },
}
entries.sub = binary {
  dtypes = "real", ref = function(x, y, alpha) return x - (alpha or 1) * y end,
  samples = { S(T { 3, 4 }, T { 4 }, 2), float_only(S(T { 3, 4 }, T { 3, 1 }, 0.5)), float_only(S(3, T { 2 }, 0.5)) },
  refuses = function() return "the operands are bool" end,
}
entries.mul = binary { dtypes = "all", ref = function(x, y) return x * y end }

local function floor_divide(x, y)
  if y == 0 then return 0 end
  return math.floor(x / y)
end
local function trunc_divide(x, y)
  if y == 0 then return 0 end
  return fn.trunc(x / y)
end
local NOT_ZERO = { lo = 0.3, hi = 2, ints = { 1, 4 } }
local BELOW_ZERO = { lo = -2, hi = -0.3, ints = { 1, 4 } }
-- Quotients away from the integers, where they jump: (0.1 to 0.9) / 1, less 2, 1, 0, -1, -2.
local STEADY = { values = { 0.3, 1.5, -0.4, -1.6, 2.5, -2.3 } }
local function divide(row)
  row.dtypes, row.steps = "real", true
  row.x, row.y = { lo = 0.2, hi = 0.8, ints = { -9, 9 } }, { lo = 0.9, hi = 1.2, ints = { 1, 4 } }
  row.samples = {
    float_only(S(T({ 6 }, STEADY), T({ 6 }, { values = { 1, -1, 1, -1, 1, 1 } }))),
    with(S(T({ 2, 3 }, { ints = { -9, 9 } }), T({ 2, 3 }, { ints = { 0, 1 } })), { only = "int" }),
  }
  row.refuses = function() return "the operands are bool" end
  return binary(row)
end
entries.floor_divide = divide { ref = floor_divide }
entries.trunc_divide = divide { ref = trunc_divide }
entries.remainder = divide {
  ref = function(x, y) return y == 0 and 0 or x - floor_divide(x, y) * y end, tol = 10,
}
entries.fmod = divide {
  ref = function(x, y) return y == 0 and 0 or x - trunc_divide(x, y) * y end, tol = 10,
}
entries.div = binary {
  dtypes = "floating_bool", ref = function(x, y) return x / y end, y = NOT_ZERO,
  samples = {
    S(T { 3, 4 }, T({ 4 }, BELOW_ZERO)), with(S(T { 4 }, T({ 4 }, NOT_ZERO), nil), { only = "float" }),
  },
  check = function(_, run)
    run("rounding modes", function()
      local cnn = require "cnn"
      local helper = require "spec.helper"
      for _, dtype in ipairs { "float64", "int32" } do
        local x, y = cnn.tensor({ 7, -7, 7, -7 }, { dtype = dtype }), cnn.tensor({ 2, 2, -2, -2 }, { dtype = dtype })
        local down, cut = cnn.div(x, y, "floor"), cnn.div(x, y, "trunc")
        assert.equal(dtype, down.dtype)
        assert.equal(dtype, cut.dtype)
        helper.elements(down, { 3, -4, -4, 3 })
        helper.elements(cut, { 3, -3, -3, 3 })
      end
      helper.raises("rounding_mode", cnn.div, cnn.ones(2), cnn.ones(2), "up")
    end)
  end,
}
entries.pow = binary {
  dtypes = "real", x = { lo = 0.3, hi = 2, ints = { -3, 3 } }, y = { lo = -2, hi = 2, ints = { 0, 3 } },
  ref = function(x, y) return x ^ y end, tol = 4,
  samples = {
    S(T({ 3, 2 }, { lo = -2, hi = 2, away = { 0 }, ints = { -3, 3 } }), 2), float_only(S(T({ 4 }, NOT_ZERO), -0.5)),
    S(T({ 4 }, NOT_ZERO), 1), S(T { 4 }, 0),
    with(S(T({ 4 }, { values = { 0, 0, 2, -2 } }), T({ 4 }, { values = { 0, 2, 0, 3 } })),
      { only = "float", grad = false }),
  },
  refuses = function() return "the operands are bool" end,
  check = function(_, run)
    run("an integer to a negative power", function()
      local cnn = require "cnn"
      local helper = require "spec.helper"
      local x = cnn.tensor({ 1, -1, 2, -2, 1, -1 }, { dtype = "int64" })
      local y = cnn.tensor({ -3, -3, -1, -2, -2, -2 }, { dtype = "int64" })
      helper.elements(x:pow(y), { 1, -1, 0, 0, 1, 1 })
    end)
  end,
}

local function larger(x, y)
  if x ~= x or y ~= y then return NAN end
  return x > y and x or y
end
local function smaller(x, y)
  if x ~= x or y ~= y then return NAN end
  return x < y and x or y
end
local function extreme(ref)
  return binary {
    dtypes = "all", ref = ref, x = APART, y = APART_TOO,
    samples = {
      S(T({ 3, 4 }, APART_TOO), T({ 4 }, APART)),
      with(S(T({ 4 }, { values = { NAN, 1, NAN, 2 } }), T({ 4 }, { values = { 1, NAN, NAN, 2 } })),
        { only = "float", grad = false }),
    },
    check = function(entry, run)
      run("equal values share the gradient", function()
        db.expect_gradient({ 0.5, 0.5 }, function(x)
          return require "cnn"[entry.name](x, require "cnn".tensor({ 1, 2 }, { dtype = "float64" }))
        end, { 1, 2 })
      end)
    end,
  }
end
entries.maximum = extreme(larger)
entries.minimum = extreme(smaller)

local atan2 = math.atan2 or math.atan -- luacheck: ignore
entries.atan2 = binary { dtypes = "floating_bool", ref = atan2, x = { away = { 0 } }, y = { away = { 0 } } }
entries.hypot = binary {
  dtypes = "floating_bool", ref = function(x, y) return math.sqrt(x * x + y * y) end, x = { away = { 0 } },
}
entries.logaddexp = binary {
  dtypes = "floating_bool", floor = 0.1,
  ref = function(x, y)
    if x == y and math.abs(x) == INF then return x end
    return larger(x, y) + fn.log1p(math.exp(-math.abs(x - y)))
  end,
  samples = {
    with(S(T({ 4 }, { values = { 100, -INF, INF, -100 } }), T({ 4 }, { values = { 101, -INF, 3, -101 } })),
      { only = "float", grad = false }),
  },
}
entries.copysign = binary {
  dtypes = "floating_bool",
  ref = function(x, y) return (y < 0 or 1 / y < 0) and -math.abs(x) or math.abs(x) end, x = { away = { 0 } },
  y = { away = { 0 } },
  samples = { float_only(S(T({ 3 }, { away = { 0 } }), T({ 3 }, { values = { 0, -0.0, -1 }, grad = false }))) },
}
entries.xlogy = binary {
  dtypes = "floating_bool", y = NOT_ZERO,
  ref = function(x, y)
    if y ~= y then return y end
    return x == 0 and 0 or x * math.log(y)
  end,
  samples = {
    with(S(T({ 4 }, { values = { 0, 0, 1, 0 } }), T({ 4 }, { values = { 0, NAN, 0, -1 } })),
      { only = "float", grad = false }),
  },
}

-- Bits one by one: numbers of two's complement with 16 bits.
local function bitwise(of)
  return function(x, y)
    x, y = x % 65536, y % 65536
    local result, bit = 0, 1
    for _ = 1, 16 do
      if of(x % 2 == 1, y % 2 == 1) then result = result + bit end
      x, y, bit = math.floor(x / 2), math.floor(y / 2), bit * 2
    end
    return result >= 32768 and result - 65536 or result
  end
end
local function bits(of)
  return binary {
    dtypes = "bits", ref = bitwise(of), x = { ints = { -9, 9 } }, y = { ints = { -9, 9 } }, grad = false,
    refuses = function(dtype) return ("the operands are %s: only integers and bools have bits"):format(dtype) end,
  }
end
entries.bitwise_and = bits(function(a, b) return a and b end)
entries.bitwise_or = bits(function(a, b) return a or b end)
entries.bitwise_xor = bits(function(a, b) return a ~= b end)

local function relation(ref)
  local special = { NAN, INF, -INF, 0, 1 }
  local others = { NAN, INF, 0, -0.0, NAN }
  local truth, table_of = { 1, 0, 1, 0, 1, 1, 0, 0 }, { 1, 1, 0, 0 }
  return compare {
    ref = ref,
    samples = {
      float_only(S(T({ 5 }, { values = special }), T({ 5 }, { values = others }))),
      S(T({ 2, 4 }, { values = truth }), T({ 4 }, { values = table_of })),
    },
  }
end
entries.eq = relation(function(x, y) return x == y end)
entries.ne = relation(function(x, y) return x ~= y end)
entries.lt = relation(function(x, y) return x < y end)
entries.le = relation(function(x, y) return x <= y end)
entries.gt = relation(function(x, y) return x > y end)
entries.ge = relation(function(x, y) return x >= y end)
entries.logical_and = relation(function(x, y) return x ~= 0 and y ~= 0 end)
entries.logical_or = relation(function(x, y) return x ~= 0 or y ~= 0 end)
entries.logical_xor = relation(function(x, y) return (x ~= 0) ~= (y ~= 0) end)

-- ---------------------------------------------------------------------------------------------
-- Three operands

local function ternary(ref)
  return function(x, y, z, ...)
    local rest = { ... }
    return nd.map(function(a, b, c) return ref(a, b, c, rest[1]) end, x, y, z)
  end
end

local function if_true(c, x, y) return c ~= 0 and x or y end
entries.where = {
  dtypes = "all", floor = 1e-3, ref = ternary(if_true),
  samples = {
    S(M { 3, 5 }, T { 3, 5 }, T { 3, 5 }), S(M { 3, 1 }, T { 4 }, T {}), S(M { 4 }, T { 2, 3, 1 }, T { 3, 4 }),
    with(S(M { 3 }, 2, T { 3 }), { only = "real" }), with(S(M { 3 }, T { 3 }, -2), { only = "real" }),
    S(M {}, T {}, T {}), S(M { 0, 3 }, T { 3 }, T { 1 }), S(M { 2, 3, 2, 2 }, T { 2, 3, 2, 2 }, T { 3, 1, 1 }),
  },
  errors = {
    { S(M { 2, 3 }, T { 4 }, T { 3 }), "don't broadcast" },
    { S(T({ 2 }, { dtype = "float32" }), T { 2 }, T { 2 }), "condition" },
  },
  tails = S(M { 70 }, T { 70 }, T { 70 }), large = S(M { 300, 257 }, T { 300, 257 }, T { 257 }),
}
entries.masked_fill = {
  dtypes = "all", floor = 1e-3, ref = ternary(function(x, m, v) return if_true(m, v, x) end),
  samples = {
    S(T { 3, 5 }, M { 3, 5 }, T {}), S(T { 3, 5 }, M { 5 }, T { 3, 1 }), S(T { 2, 3, 4 }, M { 3, 1 }, T { 4 }),
    with(S(T { 3, 4 }, M { 3, 4 }, 2), { only = "real" }), S(T {}, M {}, T {}), S(T { 0, 3 }, M { 3 }, T {}),
    with(S(T { 4 }, M { 3, 4 }, T {}), { in_place = false }),
  },
  errors = {
    { S(T { 2, 3 }, M { 4 }, 0), "don't broadcast" },
    { S(T { 2 }, T({ 2 }, { dtype = "float32" }), 0), "mask" },
  },
  tails = S(T { 70 }, M { 70 }, T {}), large = S(T { 300, 257 }, M { 257 }, T {}),
}
entries.lerp = {
  dtypes = "floating_bool", floor = 1e-1,
  ref = ternary(function(x, y, w) return x + w * (y - x) end),
  samples = {
    S(T { 3, 5 }, T { 3, 5 }, T { 3, 5 }), S(T { 3, 5 }, T { 5 }, T { 3, 1 }),
    float_only(S(T { 3, 4 }, T { 3, 4 }, 0.25)), S(T {}, T {}, T {}), S(T { 0, 3 }, T { 3 }, T { 3 }),
    with(S(T { 4 }, T { 3, 4 }, T { 3, 1 }), { in_place = false }),
    S(T { 2, 3, 2, 2 }, T { 3, 1, 1 }, T { 2 }),
  },
  errors = { { S(T { 2, 3 }, T { 4 }, 0.5), "don't broadcast" }, { S(T { 2 }, 1, 0.5), "expected a tensor" } },
  tails = S(T { 70 }, T { 70 }, T { 70 }),
  large = S(T { 300, 257 }, T { 300, 257 }, T { 257 }),
}

local function product_added(dtypes, z, ref)
  return {
    dtypes = dtypes, floor = 1e-1, ref = ternary(ref),
    refuses = dtypes == "real" and "the operands are bool" or nil,
    samples = {
      S(T { 3, 5 }, T { 3, 5 }, T({ 3, 5 }, z)), S(T { 3, 5 }, T { 5 }, T({ 3, 1 }, z), 2),
      float_only(S(T { 3, 4 }, T { 3, 4 }, T({ 4 }, z), -0.5)), S(T {}, T {}, T({}, z)),
      S(T { 0, 3 }, T { 3 }, T({ 3 }, z)), S(T { 2, 3, 2, 2 }, T { 3, 1, 1 }, T({ 2 }, z)),
      with(S(T { 4 }, T { 3, 4 }, T({ 3, 1 }, z)), { in_place = false }),
    },
    errors = {
      { S(T { 2, 3 }, T { 4 }, T { 3 }), "don't broadcast" }, { S(T { 2 }, 1, T { 2 }), "expected a tensor" },
    },
    tails = S(T { 70 }, T { 70 }, T({ 70 }, z)),
    large = S(T { 300, 257 }, T { 300, 257 }, T({ 257 }, z)),
  }
end
entries.addcmul = product_added("real", nil, function(x, y, z, value) return x + (value or 1) * y * z end)
entries.addcdiv = product_added("floating_bool", NOT_ZERO, function(x, y, z, value) return x + (value or 1) * y / z end)

return entries
