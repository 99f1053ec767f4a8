-- SPDX-License-Identifier: MIT
-- Running sums, products and extremes along a dim: csrc/ops/scan.c.
local db = require "spec.opdb"
local words = require "spec.op_samples"
local nd, T, S, with = db.nd, db.T, db.S, db.with

local INF, NAN = math.huge, 0 / 0

local function added(dtype, arguments)
  return arguments[3] or words.is_float[dtype] and dtype or "int64"
end

-- With x's elements converted first where a dtype is given: to an integer one, without their fractions.
local function running(step)
  return function(x, dim, dtype)
    local whole = dtype and not words.is_float[dtype]
    return x:along(dim, function(line)
      local y, sum = {}, nil
      for i, v in ipairs(line) do
        if whole then v = v < 0 and math.ceil(v) or math.floor(v) end
        sum = i == 1 and v or step(sum, v)
        y[i] = sum
      end
      return y
    end)
  end
end

local function plus(a, b) return a + b end
local function times(a, b) return a * b end

-- Of a float's NaN: it stays. Of equals the last one.
local function running_extreme(exceeds)
  return function(x, dim)
    return x:along(dim, function(line)
      local values, places, best, at = {}, {}, nil, nil
      for i, v in ipairs(line) do
        if i == 1 or v ~= v or best == best and not exceeds(best, v) then best, at = v, i end
        values[i], places[i] = best, at
      end
      return values, places
    end)
  end
end

local function forms(options, t)
  t = t or function(...) return T({ ... }, options) end
  return {
    S(t(3, 5), 1), S(t(3, 5), 2), S(t(3, 5), -1), S(t(2, 3, 4), 2), S(t(2, 3, 2, 4), -3), S(t(), 1), S(t(), -1),
    S(t(0, 3), 1), S(t(0, 3), 2), S(t(3, 0), 1), S(t(1, 4), 1), S(t(7), 1), S(t(2, 1, 2, 2, 3, 2), 5),
  }
end

local append = db.append

local function dims(fn)
  return db.dim_errors(fn or function(x, dim) return S(x, dim) end)
end

local function lengths(n) return S(T { 2, n }, 2), S(T { n, 3 }, 1), S(T { 3, n }, 1) end
local LONG = { 300, 1100, 9001 }

local function scan(row)
  row.out, row.dtypes, row.lengths, row.long, row.floor = added, "all", row.lengths or lengths, LONG, 1
  row.samples = append(forms(), append(row.samples, {
    S(T { 3, 4 }, 2, "float64"), with(S(T { 3, 4 }, 1, "float32"), { grad = false }),
    with(S(T { 3, 4 }, 1, "int32"), { grad = false }), with(S(T({ 4 }, { values = { 1, NAN, 2, 3 } }), 1), {
      only = "float", grad = false,
    }),
  }))
  row.errors = append(dims(), {
    { S(T { 2, 3 }, 1, "bool"), "a running sum of bools needs a number dtype" },
    { S(T { 2, 3 }, "a"), "argument 2 (dim): expected" }, { S(T { 2, 3 }, 1, "float65"), "unknown dtype" },
  })
  return row
end

local function extreme(exceeds)
  return {
    dtypes = "all", out = function(dtype) return { dtype, "int64" } end, lengths = lengths, long = LONG,
      errors = dims(),
    ref = running_extreme(exceeds),
    samples = append(forms { distinct = true }, {
      with(S(T({ 2, 4 }, { values = { 2, 2, 1, 2, 1, 3, 3, 0 } }), 2), { grad = false }),
      with(S(T({ 2, 3 }, { values = { 1, NAN, 3, NAN, 2, NAN } }), 2), { only = "float", grad = false }),
      with(S(T({ 4 }, { values = { -INF, INF, -INF, INF } }), 1), { only = "float", grad = false }),
    }),
    large = { S(T { 300, 257 }, 2), S(T { 300, 257 }, 1) },
  }
end

local function joined(x, dim, prepend, append_)
  local parts = {}
  for _, part in ipairs { prepend or false, x, append_ or false } do
    if part then parts[#parts + 1] = part end
  end
  return nd.cat(parts, x:dim(dim))
end

return {
  cumsum = scan { ref = running(plus), samples = {}, large = { S(T { 300, 257 }, 2), S(T { 300, 257 }, 1),
    S(T { 70000 }, 1) } },
  cumprod = scan {
    ref = running(times),
    lengths = function(n)
      local function near(shape, dim) return with(S(T(shape, { lo = 0.9, hi = 1.1 }), dim), { only = "float" }) end
      return near({ 2, n }, 2), near({ n, 3 }, 1), near({ 3, n }, 1)
    end,
    samples = {
      S(T({ 2, 4 }, { values = { 1, 0, 2, 3, 2, 0, 3, 0 } }), 2), S(T({ 3, 2 }, { values = { 0, 0, 0, 1, 2, -3 } }), 1),
    },
    large = { S(T({ 300, 257 }, { lo = 0.98, hi = 1.02 }), 2), S(T({ 300, 257 }, { lo = 0.98, hi = 1.02 }), 1) },
  },
  -- dx_i = the sum of dy from i on
  cumsum_backward = {
    dtypes = "real", internal_dtypes = true, samples = forms(), lengths = lengths, long = LONG,
    ref = function(dy, dim)
      return dy:along(dim, function(line)
        local dx, s = {}, 0
        for i = #line, 1, -1 do
          s = s + line[i]
          dx[i] = s
        end
        return dx
      end)
    end,
    large = { S(T { 300, 257 }, 2), S(T { 300, 257 }, 1) },
  },
  -- dx_i = the sum over k >= i of dy_k times the product of x_j, j <= k, j ~= i
  cumprod_backward = {
    internal_dtypes = true,
    ref = function(dy, x, dim)
      local lines, l = {}, 0
      x:along(dim, function(line)
        lines[#lines + 1] = line
        return line
      end)
      return dy:along(dim, function(line)
        l = l + 1
        local xs, dx = lines[l], {}
        local before = 1
        for i = 1, #line do
          local p = before
          dx[i] = line[i] * p
          for k = i + 1, #line do
            p = p * xs[k]
            dx[i] = dx[i] + line[k] * p
          end
          before = before * xs[i]
        end
        return dx
      end)
    end,
    samples = {
      S(T { 3, 5 }, T { 3, 5 }, 1), S(T { 3, 5 }, T { 3, 5 }, -1), S(T { 2, 3, 4 }, T { 2, 3, 4 }, 2), S(T {}, T {}, 1),
      S(T { 2, 4 }, T({ 2, 4 }, { values = { 1, 0, 2, 3, 2, 0, 3, 0 } }), 2), S(T { 0, 3 }, T { 0, 3 }, 1),
      S(T { 0, 3 }, T { 0, 3 }, 2), S(T { 4, 1 }, T({ 4, 1 }, { values = { 0, 0, 2, 3 } }), 1),
    },
    lengths = function(n)
      local near = { lo = 0.9, hi = 1.1 }
      return S(T { 2, n }, T({ 2, n }, near), 2), S(T { n, 3 }, T({ n, 3 }, near), 1),
        S(T { 3, n }, T({ 3, n }, near), 1)
    end,
    long = { 300, 600 },
    large = { S(T { 3000, 25 }, T({ 3000, 25 }, { lo = 0.9, hi = 1.1 }), 2) },
  },
  cummax = extreme(function(best, v) return best > v end),
  cummin = extreme(function(best, v) return best < v end),
  diff = {
    dtypes = "all",
    ref = function(x, n, dim, prepend, append_)
      local bool = x.dtype == "bool"
      x = joined(x, dim or -1, prepend, append_)
      for _ = 1, n or 1 do
        if x.shape[x:dim(dim or -1)] > 0 then
          x = x:along(dim or -1, function(line)
            local y = {}
            for i = 1, #line - 1 do
              y[i] = line[i + 1] - line[i]
              if bool then y[i] = y[i] ~= 0 end
            end
            return y
          end)
        end
      end
      return x
    end,
    dense = false, -- x itself, or a view
    samples = {
      S(T { 5 }), S(T { 3, 5 }), S(T { 3, 5 }, 1, 1), S(T { 3, 5 }, 2, -1), S(T { 2, 5, 3 }, 3, 2), S(T { 3, 5 }, 0),
      S(T { 3, 5 }, 4, 1), S(T { 3, 5 }, 1, 2, T { 3, 2 }), S(T { 3, 5 }, 2, 1, T { 1, 5 }, T { 2, 5 }),
      S(T { 3, 5 }, 1, 1, nil, T { 1, 5 }), S(T { 0, 3 }, 1, 1), S(T { 0, 3 }), S(T { 1 }),
      S(T { 2, 2, 2, 2, 3 }, 1, -2),
    },
    errors = append(dims(function(x, dim) return S(x, 1, dim) end), {
      { S(T {}), "x has 0 dims: there are no neighbours to subtract" },
      { S(T { 3 }, -1), "n is -1: it counts how many times to take differences" },
      { S(T { 3, 5 }, 1, 1, T { 1, 4 }), "sizes must agree in every dim but dim 1" },
    }),
    large = { S(T { 300, 257 }, 1, 2), S(T { 300, 257 }, 2, 1) },
  },
}
