-- SPDX-License-Identifier: MIT
-- Entries of the rows of csrc/ops/unary.def that are no activations, and of csrc/ops/unary.c.
local db = require "spec.opdb"
local fn = require "spec.functions"
local S, T, with = db.S, db.T, db.with
local exp, log, sqrt, pi = math.exp, math.log, math.sqrt, math.pi
local unary, predicate = db.unary, db.predicate

local entries = {}

-- Integers stay integers.
local function real(row)
  row.dtypes = "real"
  return unary(row)
end

-- Steps: their gradient is zero.
local function step(f)
  local edges = { -3, -2.5, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5, 3 }
  return real { steps = true, ref = f, lo = -3, hi = 3, away = edges }
end

entries.abs = real { ref = function(x) return x < 0 and -x or x end, away = { 0 } }
entries.neg = real { ref = function(x) return -x end }
entries.sign = real {
  steps = true, ref = function(x) return x > 0 and 1 or x < 0 and -1 or x * 0 end, away = { 0 },
}
entries.square = real { ref = function(x) return x * x end }
entries.floor = step(fn.floor)
entries.ceil = step(fn.ceil)
entries.round = step(fn.round)
entries.trunc = step(fn.trunc)

entries.exp = unary { ref = exp }
entries.exp2 = unary { ref = function(x) return 2 ^ x end }
entries.expm1 = unary { ref = fn.expm1 }
entries.log = unary { ref = log, lo = 0.2, hi = 5 }
entries.log2 = unary { ref = function(x) return log(x) / log(2) end, lo = 0.2, hi = 5 }
entries.log10 = unary { ref = function(x) return log(x) / log(10) end, lo = 0.2, hi = 5 }
entries.log1p = unary { ref = fn.log1p, lo = -0.8, hi = 3 }
entries.sqrt = unary { ref = sqrt, lo = 0.2, hi = 5 }
entries.rsqrt = unary { ref = function(x) return 1 / sqrt(x) end, lo = 0.2, hi = 5, ints = { 1, 5 } }
entries.reciprocal = unary { ref = function(x) return 1 / x end, away = { 0, 0.1, -0.1 } }
entries.frac = unary {
  ref = function(x) return x - fn.trunc(x) end, lo = -3, hi = 3, away = { -3, -2, -1, 0, 1, 2, 3 },
  ints = { 1, 4 }, -- away from 0 as well
}

entries.sin = unary { ref = math.sin, lo = -4, hi = 4 }
entries.cos = unary { ref = math.cos, lo = -4, hi = 4 }
entries.tan = unary { ref = math.tan, lo = -1.3, hi = 1.3, ints = { -1, 1 } }
entries.asin = unary { ref = math.asin, lo = -0.9, hi = 0.9 }
entries.acos = unary { ref = math.acos, lo = -0.9, hi = 0.9 }
entries.atan = unary { ref = math.atan }
entries.sinh = unary { ref = fn.sinh }
entries.cosh = unary { ref = fn.cosh }
entries.tanh = unary { ref = fn.tanh }
entries.asinh = unary { ref = fn.asinh }
entries.acosh = unary { ref = fn.acosh, lo = 1.2, hi = 5, ints = { 2, 5 } }
entries.atanh = unary { ref = fn.atanh, lo = -0.9, hi = 0.9, ints = { 0, 0 } }
entries.sinc = unary { -- float32 has sin(pi x) near its zeros to some 1e-7 of 1
  ref = function(x) return x == 0 and 1 or math.sin(pi * x) / (pi * x) end, away = { 0 }, floor = 0.1,
  large_slope = false, grad_tol = { float16 = 4, bfloat16 = 4 },
}

entries.erf = unary { ref = fn.erf }
entries.erfc = unary { ref = fn.erfc }
entries.erfinv = unary { ref = fn.erfinv, lo = -0.9, hi = 0.9, ints = { 0, 0 }, tol = { float64 = 100 } }
-- The derivative of trigamma is not there.
entries.lgamma = unary { orders = 2, ref = fn.lgamma, lo = -2.8, hi = 6, away = { -3, -2, -1, 0 }, ints = { 1, 6 } }
entries.digamma = unary { orders = 1, ref = fn.digamma, lo = -2.8, hi = 6, away = { -3, -2, -1, 0 }, ints = { 1, 6 } }
entries.trigamma = unary {
  ref = fn.trigamma, lo = -2.8, hi = 6, away = { -3, -2, -1, 0 }, ints = { 1, 6 }, grad = false, special = false,
}

local function logit(x, eps)
  if eps and eps >= 0 then x = math.max(eps, math.min(1 - eps, x)) end
  return log(x / (1 - x))
end
entries.logit = unary {
  ref = logit, floor = 0.1, lo = 0.05, hi = 0.95, ints = { 0, 1 }, special = false,
  samples = { with(S(T({ 4, 5 }, { lo = -0.2, hi = 1.2, away = { 0.15, 0.85 } }), 0.15), { only = "float" }) },
}
entries.nan_to_num = real {
  ref = function(x, nan, high, low)
    if x ~= x then return nan or 0 end
    if x == math.huge then return high or x end
    if x == -math.huge then return low or x end
    return x
  end,
  special = false,
  samples = {
    with(S(T({ 5 }, { values = { 0 / 0, 1 / 0, -1 / 0, 1, -2 } }), 1, 2, 3), { only = "float" }),
    with(S(T({ 5 }, { values = { 0 / 0, 1, 2, 3, -2 } })), { only = "float" }),
  },
}

entries.isnan = predicate { ref = function(x) return x ~= x end }
entries.isinf = predicate { ref = function(x) return math.abs(x) == math.huge end }
entries.isfinite = predicate { ref = function(x) return x - x == 0 end }
entries.logical_not = predicate { ref = function(x) return x == 0 end, ints = { 0, 2 } }

local NAN = 0 / 0
entries.has_nan = {
  dtypes = "float", out = "bool", grad = false,
  ref = function(x)
    for _, v in ipairs(x.list) do
      if v ~= v then return db.nd.scalar(1) end
    end
    return db.nd.scalar(0)
  end,
  samples = {
    S(T { 3, 5 }), S(T {}), S(T { 0, 3 }),
    with(S(T({ 2, 3 }, { values = { 1, 2, 3, 4, 5, NAN } })), { only = "float" }),
    with(S(T({ 3, 2 }, { values = { NAN, 2, 3, 4, 5, 6 } })), { only = "float" }),
    with(S(T({}, { values = { NAN } })), { only = "float" }),
    with(S(T({ 3 }, { values = { 1 / 0, -1 / 0, 0 } })), { only = "float" }),
  },
  lengths = function(n)
    local values = {}
    for i = 1, n do values[i] = i end
    values[n] = NAN
    return S(T({ n }, { values = values })), S(T { n })
  end,
  large = S(T { 300, 257 }),
}

-- ---------------------------------------------------------------------------------------------
-- clamp: by numbers it is clamp_scalar

local function clamped(x, low, high)
  if low and x < low then x = low end
  if high and x > high then x = high end
  return x
end

entries.clamp_scalar = real {
  ref = function(x, low, high)
    if low and high and low > high then return x == x and high or x end
    return clamped(x, low, high)
  end,
  args = { -1, 1 }, away = { -1, 1 },
  samples = {
    S(T({ 4 }, { away = { 1 } }), 1), S(T({ 4 }, { away = { 1 } }), nil, 1), S(T({ 4 }), 3, 1),
    with(S(T({ 4 }, { away = { 0.5 } }), 0.5), { only = "float" }),
  },
}
entries.clamp = {
  dtypes = "real", floor = 1e-3,
  ref = function(x, low, high)
    if low then x = db.nd.map(function(v, l) return v < l and l or v end, x, low) end
    if high then x = db.nd.map(function(v, h) return v > h and h or v end, x, high) end
    return x
  end,
  samples = {
    S(T { 3, 5 }, -1, 1), S(T { 3, 5 }, nil, 1), S(T { 3, 5 }, T { 5 }, T { 3, 1 }), S(T { 3, 5 }, T { 3, 5 }),
    S(T { 2, 3 }, -1, T { 3 }), S(T { 2, 3 }, nil, T { 3 }), S(T {}, T {}), S(T { 0, 3 }, T { 3 }), S(T {}, -1, 1),
    with(S(T { 3 }, T { 2, 3 }), { in_place = false }),
  },
  errors = { { S(T { 3 }, T { 2 }), "don't broadcast" }, { S(T { 3 }, "a"), "min" } },
  large = S(T { 300, 257 }, T { 257 }, 1),
}

-- ---------------------------------------------------------------------------------------------
-- Activations

local SQRT_HALF = sqrt(0.5)
local sigmoid, softplus, tanh, expm1 = fn.sigmoid, fn.softplus, fn.tanh, fn.expm1

-- What has no value at -inf or inf here: 0 * inf.
local function finite(row)
  row.special = { 0 / 0, 0, 1, -1, 25, -25, 0.25, -0.25, 60, -60 }
  return unary(row)
end

entries.relu = real { ref = function(x) return x < 0 and 0 or x end, away = { 0 } }
entries.relu6 = unary {
  ref = function(x) return x < 0 and 0 or x > 6 and 6 or x end, lo = -2, hi = 8, away = { 0, 6 }, ints = { -2, 8 },
}
entries.sigmoid = unary { ref = sigmoid }
entries.logsigmoid = unary { ref = function(x) return -softplus(-x) end }
entries.leaky_relu = unary {
  ref = function(x, slope) return x < 0 and (slope or 0.01) * x or x end, away = { 0 },
  samples = { with(S(T({ 3, 4 }, { away = { 0 } }), 0.2), { only = "float" }), S(T({ 3 }, { away = { 0 } }), 2) },
}
entries.elu = unary {
  ref = function(x, alpha) return x <= 0 and (alpha or 1) * expm1(x) or x end, away = { 0 },
  samples = { with(S(T({ 3, 4 }, { away = { 0 } }), 0.5), { only = "float" }) },
}
entries.selu = unary {
  ref = function(x) return 1.0507009873554804934 * (x <= 0 and 1.6732632423543772848 * expm1(x) or x) end, away = { 0 },
}
entries.celu = unary {
  ref = function(x, alpha)
    alpha = alpha or 1
    return x <= 0 and alpha * expm1(x / alpha) or x
  end,
  away = { 0 }, samples = { with(S(T({ 3, 4 }, { away = { 0 } }), 0.5), { only = "float" }) },
}

local function gelu_erf(x) return 0.5 * x * (1 + fn.erf(x * SQRT_HALF)) end
local function gelu_tanh(x) return 0.5 * x * (1 + tanh(sqrt(2 / pi) * x * (1 + 0.044715 * x * x))) end
-- 1 + erf(x) cancels for x < 0, as PyTorch's does.
entries.gelu_erf = finite { floor = 0.1, ref = gelu_erf }
entries.gelu_tanh = finite { floor = 0.1, ref = gelu_tanh }
entries.gelu = finite {
  floor = 0.1, ref = function(x, approximate) return approximate == "tanh" and gelu_tanh(x) or gelu_erf(x) end,
  samples = { S(T { 3, 4 }, "tanh"), S(T { 3, 4 }, "none") },
  errors = { { S(T { 3 }, "exact"), "approximate" } },
}
entries.silu = finite { ref = function(x) return x * sigmoid(x) end }
entries.mish = finite { ref = function(x) return x * tanh(softplus(x)) end }
entries.softplus = unary {
  ref = function(x, beta, threshold)
    beta = beta or 1
    return x * beta > (threshold or 20) and x or softplus(x * beta) / beta
  end,
  samples = {
    S(T({ 3, 4 }, { away = { 1.5 } }), 2, 3), with(S(T({ 3, 4 }, { away = { 2 } }), 0.5, 1), { only = "float" }),
  },
}
entries.softsign = finite { ref = function(x) return x / (1 + math.abs(x)) end, away = { 0 } }
entries.hardtanh = real {
  ref = function(x, low, high) return clamped(x, low or -1, high or 1) end, away = { -1, 1 }, ints = { -4, 4 },
  samples = { S(T({ 3, 4 }, { away = { -2, 1 }, ints = { -4, 4 } }), -2, 1) },
}
entries.hardswish = unary {
  ref = function(x) return x <= -3 and 0 or x >= 3 and x or x * (x + 3) / 6 end, lo = -5, hi = 5, away = { -3, 3 },
  ints = { -5, 5 },
}
entries.hardsigmoid = unary {
  ref = function(x) return x <= -3 and 0 or x >= 3 and 1 or x / 6 + 0.5 end, lo = -5, hi = 5, away = { -3, 3 },
  ints = { -5, 5 },
}
entries.tanhshrink = finite { ref = function(x) return x - tanh(x) end, away = { 0 } }
local function softshrink(x, bound)
  bound = bound or 0.5
  return x > bound and x - bound or x < -bound and x + bound or x * 0
end
entries.softshrink = finite {
  ref = softshrink, args = { 1 }, away = { -1, 1 }, ints = { -4, 4 },
  samples = { with(S(T({ 3, 4 }, { away = { -0.5, 0.5 } })), { only = "float" }) },
}
entries.hardshrink = unary {
  ref = function(x, bound)
    bound = bound or 0.5
    return x >= -bound and x <= bound and 0 or x
  end,
  args = { 1 }, away = { -1, 1 }, ints = { -4, 4 },
  samples = { with(S(T({ 3, 4 }, { away = { -0.5, 0.5 } })), { only = "float" }) },
}
entries.threshold = real {
  ref = function(x, threshold, value) return x <= threshold and value or x end, args = { 1, 3 }, away = { 1 },
  ints = { -4, 4 }, samples = { with(S(T({ 3, 4 }, { away = { 0.5 } }), 0.5, 0.25), { only = "float" }) },
}

return entries
