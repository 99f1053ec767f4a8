-- SPDX-License-Identifier: MIT
-- Softmax and its logarithm: csrc/ops/softmax.c.
local db = require "spec.opdb"
local T, S, with = db.T, db.S, db.with

local INF, NAN = math.huge, 0 / 0

-- e^x_i / sum of e^x_k; of nothing but -inf it is NaN.
local function softmax(line)
  local y, most, s = {}, -INF, 0
  for _, v in ipairs(line) do most = math.max(most, v) end
  for _, v in ipairs(line) do s = s + math.exp(v - most) end
  for i, v in ipairs(line) do y[i] = math.exp(v - most) / s end
  return y
end

-- x_i - log of the sum of e^x_k
local function log_softmax(line)
  local y, most, s = {}, -INF, 0
  for _, v in ipairs(line) do most = math.max(most, v) end
  for _, v in ipairs(line) do s = s + math.exp(v - most) end
  for i, v in ipairs(line) do y[i] = v - most - math.log(s) end
  return y
end

local function softmin(line)
  local minus = {}
  for i, v in ipairs(line) do minus[i] = -v end
  return softmax(minus)
end

local function lengths(n) return S(T { 2, n }, 2), S(T { n, 3 }, 1), S(T { 3, n }, 1) end
local LONG = { 600, 1100, 9001 }

local function entry(fn, floor)
  local errors = db.dim_errors(function(x, dim) return S(x, dim) end)
  errors[#errors + 1] = { S(T { 2, 3 }, 1, "int64"), "dtype is int64: the result is a float" }
  errors[#errors + 1] = { S(T { 2, 3 }), "argument 2 (dim)" }
  return {
    dtypes = "float", floor = floor, out = function(dtype, arguments) return arguments[3] or dtype end,
      lengths = lengths, long = LONG,
    errors = errors, refuses = "convert it first, e.g. x:",
    ref = function(x, dim) return x:along(dim, fn) end,
    samples = {
      S(T { 3, 5 }, 2), S(T { 3, 5 }, 1), S(T { 2, 3, 4 }, -2), S(T { 2, 3, 2, 4 }, -1), S(T {}, 1), S(T {}, -1),
      S(T { 0, 3 }, 1), S(T { 0, 3 }, 2), S(T { 3, 0 }, 2), S(T { 4, 1 }, 2), S(T { 2, 1, 2, 3, 2, 2 }, 4),
      S(T({ 2, 3 }, { values = { 800, 801, 799, -900, -901, -899 } }), 2),
      with(S(T({ 2, 3 }, { values = { -INF, 1, 2, 3, -INF, -INF } }), 2), { grad = false }),
      with(S(T({ 2, 3 }, { values = { NAN, 1, 2, -INF, -INF, -INF } }), 2), { grad = false }),
      S(T { 3, 4 }, 2, "float64"), with(S(T { 3, 4 }, 1, "float32"), { grad = false }),
      with(S(T({ 3, 4 }, { dtype = "int64" }), 1, "float32"), { grad = false }),
    },
    large = { S(T { 300, 257 }, 2), S(T { 300, 257 }, 1), S(T { 30, 50, 60 }, 2) },
  }
end

-- dx_i = the sum over k of dy_k d y_k / d x_i, whose Jacobian is 1[i = k] own(y_i) - a(y_i) b(y_k); factors
-- gives a and b. y(n): the values of a result of n elements.
local function backward(own, factors, y, floor)
  local function sample(shape, dim)
    local n = shape[dim < 0 and dim + #shape + 1 or dim] or 1
    return S(T(shape), T(shape, y(n)), dim)
  end
  return {
    internal_dtypes = true, floor = floor,
    tol = { float32 = 2 }, -- the sum along a line, in the order of scalar code
    ref = function(dy, out, dim)
      local lines, l = {}, 0
      out:along(dim, function(line)
        lines[#lines + 1] = line
        return line
      end)
      return dy:along(dim, function(line)
        l = l + 1
        local dx, sum = {}, 0
        for k, v in ipairs(line) do sum = sum + v * (select(2, factors(lines[l][k]))) end
        for i, v in ipairs(line) do dx[i] = own(lines[l][i]) * v - (factors(lines[l][i])) * sum end
        return dx
      end)
    end,
    samples = {
      sample({ 3, 5 }, 2), sample({ 3, 5 }, 1), sample({ 2, 3, 4 }, -2), sample({}, 1), sample({ 0, 3 }, 1),
      sample({ 0, 3 }, 2), sample({ 2, 1, 2, 3, 2, 2 }, 4),
    },
    lengths = function(n) return sample({ 2, n }, 2), sample({ n, 3 }, 1), sample({ 3, n }, 1) end,
    long = LONG,
    large = { sample({ 300, 257 }, 2), sample({ 300, 257 }, 1) },
  }
end

return {
  softmax = entry(softmax, 1e-4),
  log_softmax = entry(log_softmax),
  softmin = entry(softmin, 1e-4),
  -- d y_k / d x_i = 1[i = k] y_k - y_i y_k
  softmax_backward = backward(function(y) return y end, function(y) return y, y end,
    function(n) return { lo = 0, hi = 2 / n } end, 0.1),
  -- d y_k / d x_i = 1[i = k] - e^y_i
  log_softmax_backward = backward(function() return 1 end, function(y) return math.exp(y), 1 end,
    function(n) return { lo = -math.log(n) - 1, hi = -math.log(n) + 1 } end),
}
