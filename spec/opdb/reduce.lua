-- SPDX-License-Identifier: MIT
-- Sums and their like: csrc/ops/reduce.c.
local db = require "spec.opdb"
local words = require "spec.op_samples"
local nd, T, S, with = db.nd, db.T, db.S, db.with

local INF, NAN = math.huge, 0 / 0

local function summed(dtype, arguments)
  return arguments[4] or words.is_float[dtype] and dtype or "int64"
end

local function product(list)
  local p = 1
  for _, v in ipairs(list) do p = p * v end
  return p
end

-- With a dtype behind keepdim: the elements are converted to it before they are added up.
local function converted(fn)
  return function(x, dim, keepdim, dtype)
    if dtype and not words.is_float[dtype] then
      x = nd.map(function(v)
        if dtype == "bool" then return v ~= 0 end
        return v < 0 and math.ceil(v) or math.floor(v)
      end, x)
    end
    return x:reduce(dim, keepdim, function(list)
      local y = fn(list)
      return dtype == "bool" and y ~= 0 or y
    end)
  end
end

local function mean(list)
  return nd.total(list) / #list
end

local function moment(list, correction)
  local m, s = mean(list), 0
  for _, v in ipairs(list) do s = s + (v - m) ^ 2 end
  return s / math.max(#list - correction, 0)
end

local function degrees(unbiased, correction)
  return correction or unbiased == false and 0 or 1
end

local function p_norm(list, p)
  local y = p == -INF and INF or 0
  for _, v in ipairs(list) do
    v = math.abs(v)
    if v ~= v then return v end
    if p == INF then
      y = math.max(y, v)
    elseif p == -INF then
      y = math.min(y, v)
    elseif p == 0 then
      y = y + (v ~= 0 and 1 or 0)
    else
      y = y + v ^ p
    end
  end
  return (p == 0 or p == INF or p == -INF) and y or y ^ (1 / p)
end

local function log_sum_exp(list)
  local most, s = -INF, 0
  for _, v in ipairs(list) do
    if v ~= v then return v end -- math.max takes NaN as it comes
    most = math.max(most, v)
  end
  if most == INF or most == -INF then return most end
  for _, v in ipairs(list) do s = s + math.exp(v - most) end
  return most + math.log(s)
end

local function sum_samples() return {
  S(T({ 2, 3, 4, 2, 3, 2 }), { 1, -2, 4 }),
  S(T { 2, 3 }, {}),
  S(T { 2, 3 }, nil, true),
  S(T {}, 1), S(T {}, -1, true),
  S(T { 1, 3, 1 }, { 1, 3 }, true),
  S(T { 3, 0, 2 }, 2, true), S(T { 3, 0, 2 }, { 1, 3 }),
  S(T { 3, 4 }, 1, false, "float64"), with(S(T { 3, 4 }, nil, nil, "float32"), { grad = false }),
} end

local function dtype_errors() return {
  { S(T { 2, 3 }, 1, false, "float65"), 'unknown dtype "float65"' },
  { S(T { 2, 3 }, "a"), "argument 2 (dim): expected a dim or a list of dims, got" },
  { S(T { 2, 3 }, 1.5), "argument 2 (dim): expected a dim or a list of dims, got" },
  { S(T { 2, 3 }, 1, 1), "argument 3 (keepdim): expected" },
} end

local function with_int_dtypes(list)
  local all = { with(S(T { 3, 4 }, 2, false, "int32"), { grad = false }),
    with(S(T({ 4 }, { values = { 100, 100, 100, 7 } }), 1, false, "int8"), { grad = false }), -- it wraps
    with(S(T { 3, 4 }, 1, true, "bool"), { grad = false }) }
  for _, sample in ipairs(list) do all[#all + 1] = sample end
  return all
end

-- sum(x, dim, keepdim) -> the number of elements that are not 0 and the like
local function counting(row)
  row.grad, row.dtypes, row.x = false, "all", { ints = { 0, 1 } }
  row.samples = {
    S(T({ 2, 3 }, { values = { 0, 1, 0, 1, 1, 1 } }), 2), S(T({ 2, 3 }, { values = { 0, 1, 0, 0, 0, 0 } }), 1),
    S(T({ 3 }, { values = { 0, 0, 0 } })), S(T({ 3 }, { values = { 1, 1, 1 } }), -1),
    with(S(T({ 2, 2 }, { values = { NAN, 0, -0.0, 0.25 } }), 2), { only = "float" }),
    S(T({ 2, 3, 2, 1, 2 }, { ints = { 0, 1 } }), { 1, -1, 3 }),
  }
  return row
end

local function flag(dtype)
  return dtype == "uint8" and "uint8" or "bool"
end

local count_nonzero = counting {
  lengths = function(n)
    local options = { ints = { 0, 1 } }
    return S(T({ 2, n }, options), 2), S(T({ n, 3 }, options), 1), S(T({ 3, n }, options), 1)
  end,
  long = { 600, 1100, 9001 },
  ref = function(x, dim)
    return x:reduce(dim, false, function(list)
      local n = 0
      for _, v in ipairs(list) do n = n + (v ~= 0 and 1 or 0) end
      return n
    end)
  end,
  out = "int64",
  errors = db.dim_errors(function(x, dim) return S(x, dim) end),
  large = { S(T({ 300, 257 }, { ints = { 0, 1 } }), 2), S(T({ 300, 257 }, { ints = { 0, 1 } }), 1), S(T { 70000 }) },
}
for _, sample in ipairs { S(T { 3, 5 }), S(T { 3, 5 }, 1), S(T {}), S(T { 0, 3 }, 1), S(T { 0, 3 }, 2),
  S(T { 2, 0 }) } do
  table.insert(count_nonzero.samples, sample)
end

local function spread() return {
  S(T { 3, 5 }, nil, false), S(T { 3, 5 }, 1, nil, nil, 0), S(T { 3, 5 }, nil, nil, nil, 1.5),
  S(T { 3, 5 }, 2, true, true),
  S(T({ 6 }, { lo = 100, hi = 101 }), 1), S(T { 2, 3, 2, 2, 2 }, { 2, -1 }, nil, true, 0),
  with(S(T { 3, 1 }, 2), { grad = false }), with(S(T { 3, 2 }, 2, nil, nil, 2), { grad = false }),
  with(S(T { 3, 2 }, 2, nil, nil, 5), { grad = false }), with(S(T { 0, 3 }, 1), { grad = false }),
  with(S(T({ 2, 2 }, { values = { 1, NAN, 2, 3 } }), 2), { grad = false }),
  S(T { 3, 5 }), S(T { 3, 5 }, 1), S(T { 3, 5 }, -1, nil, true), S(T { 2, 3, 4 }, { 1, 3 }), S(T { 0, 3 }, 2),
} end
local function spread_entry(row)
  row.samples, row.dtypes, row.kind = spread(), "float", "reduction"
  row.errors = db.dim_errors(function(x, dim) return S(x, dim) end)
  row.errors[#row.errors + 1] = { S(T { 2, 3 }, { 1, -2 }), "dim 1 is given twice" }
  row.errors[#row.errors + 1] = { S(T { 2, 3 }, 1, true, false, 1), "unbiased and correction say the same" }
  row.lengths = function(n) return S(T { 2, n }, 2), S(T { n, 3 }, 1), S(T { 3, n }, 1) end
  row.long = { 600, 1100, 9001 }
  row.large = { S(T { 300, 257 }, 2), S(T { 300, 257 }, 1), S(T { 70000 }) }
  row.refuses = "convert it first, e.g. x:float()"
  return row
end

local function of_norm(p)
  return {
    S(T({ 3, 4 }, { away = { 0 }, distinct = p - p ~= 0 }), p, 2),
    S(T({ 2, 3, 2 }, { away = { 0 }, distinct = p - p ~= 0 }), p, { 1, 3 }, true),
    S(T({ 5 }, { away = { 0 }, distinct = p - p ~= 0 }), p),
  }
end

local norm_samples = {
  S(T { 3, 4 }), S(T { 3, 4 }, nil, 1), S(T { 2, 3, 2, 2, 2 }, 2, { 2, -1 }),
  with(S(T({ 2, 3 }, { values = { 0, 0, 0, 1, 0, 2 } }), 1, 2), { grad = false }),
  with(S(T({ 2, 3 }, { values = { 0, 0, 0, 1, 0, 2 } }), 2, 2), { grad = false }),
  with(S(T({ 2, 3 }, { values = { 0, 0, 0, 1, 0, 2 } }), 0, 2), { grad = false }),
  with(S(T({ 2, 2 }, { values = { 1, NAN, 2, 3 } }), 2, 2), { grad = false }),
  with(S(T({ 2, 2 }, { values = { 1, NAN, 2, 3 } }), INF, 2), { grad = false }),
  with(S(T({ 2, 2 }, { values = { 1, -INF, 2, 3 } }), 2, 2), { grad = false }),
}
for _, p in ipairs { 1, 2, 3, 0.5, 1.5, 4, 0, INF, -INF, -1, -2 } do
  for _, sample in ipairs(of_norm(p)) do norm_samples[#norm_samples + 1] = sample end
end

return {
  sum = db.reduction {
    dtypes = "all", out = summed, arrays = converted(nd.total), samples = with_int_dtypes(sum_samples()),
    errors = dtype_errors(),
  },
  prod = db.reduction {
    dtypes = "all", out = summed, arrays = converted(product), samples = with_int_dtypes {
      S(T { 2, 3, 2, 2, 2 }, { 1, -2 }), S(T {}, 1), S(T { 3, 4 }, 1, false, "float64"),
      S(T { 1, 3, 1 }, { 1, 3 }, true),
      S(T({ 2, 3 }, { values = { 0, 2, 3, 1, 2, -3 } }), 2), S(T({ 2, 3 }, { values = { 0, 2, 0, 1, 0, -3 } }), 2),
      S(T({ 2, 3 }, { values = { 0, 0, 0, 1, 0, -3 } })), S(T { 3, 0, 2 }, 2, true), S(T { 2, 3 }, {}),
    },
    errors = dtype_errors(), large = { S(T({ 300, 257 }, { lo = 0.98, hi = 1.02 }), 2),
      S(T({ 300, 257 }, { lo = 0.98, hi = 1.02 }), 1) },
  },
  mean = db.reduction {
    ref = mean, arrays = converted(mean), empty = "nan",
    out = function(dtype, arguments) return arguments[4] or dtype end,
    samples = {
      S(T { 2, 3, 4, 2, 3, 2 }, { 1, -2, 4 }), S(T { 2, 3 }, {}), S(T {}, 1), S(T {}, -1, true),
      S(T { 1, 3, 1 }, { 1, 3 }, true),
      S(T { 3, 4 }, 1, false, "float64"), S(T({ 3, 4 }, { dtype = "int64" }), 2, nil, "float32"),
      S(T({ 3, 4 }, { dtype = "bool" }), nil, nil, "float64"),
    },
    errors = {
      { S(T { 2, 3 }, 1, false, "int64"), "a mean of int64 is no integer" },
      { S(T { 2, 3 }, "a"), "expected a dim or a list of dims, got" },
    },
    refuses = "is no integer: convert x first, e.g. x:float()",
  },
  sum_to = {
    dtypes = "real", internal_dtypes = true,
    ref = function(x, shape)
      local lead = #x.shape - #shape
      local dims = {}
      for d = 1, #x.shape do
        if d <= lead or shape[d - lead] == 1 then dims[#dims + 1] = d end
      end
      return #dims == 0 and x or nd.new(shape, x:sum(dims).list)
    end,
    lengths = function(n) return S(T { 2, n }, { 2, 1 }), S(T { n, 3 }, { 3 }), S(T { 3, n }, { n }) end,
    long = { 600, 1100, 9001 },
    samples = {
      S(T { 2, 3, 4 }, { 3, 1 }), S(T { 2, 3, 4 }, { 4 }), S(T { 2, 3, 4 }, {}), S(T { 2, 3, 4 }, { 2, 3, 4 }),
      S(T { 2, 3, 4 }, { 2, 1, 1 }), S(T { 2, 3, 4 }, { 1, 3, 1 }), S(T {}, {}), S(T { 0, 3 }, { 1, 3 }),
      S(T { 0, 3 }, { 3 }),
      S(T { 3, 0 }, { 1, 0 }), S(T { 2, 1, 3, 2, 2 }, { 1, 3, 1, 2 }), S(T { 5 }, { 1 }),
    },
    large = { S(T { 300, 257 }, { 257 }), S(T { 300, 257 }, { 300, 1 }), S(T { 70000 }, {}) },
  },
  all = db.reduction(counting { ref = function(list)
    for _, v in ipairs(list) do
      if v == 0 then return false end
    end
    return true
  end, out = flag }),
  any = db.reduction(counting { ref = function(list)
    for _, v in ipairs(list) do
      if v ~= 0 then return true end
    end
    return false
  end, out = flag }),
  count_nonzero = count_nonzero,
  var = spread_entry {
    ref = function(x, dim, unbiased, keepdim, correction)
      return x:reduce(dim, keepdim, function(list) return moment(list, degrees(unbiased, correction)) end)
    end,
  },
  std = spread_entry {
    ref = function(x, dim, unbiased, keepdim, correction)
      return x:reduce(dim, keepdim, function(list) return math.sqrt(moment(list, degrees(unbiased, correction))) end)
    end,
    check = function(_, run)
      run("has the gradient 0 where it is 0", function()
        db.expect_gradient({ 0, 0, 0 }, function(x) return x:std() end, { 2, 2, 2 })
      end)
    end,
  },
  var_mean = spread_entry {
    ref = function(x, dim, unbiased, keepdim, correction)
      return x:reduce(dim, keepdim, function(list) return moment(list, degrees(unbiased, correction)), mean(list) end)
    end,
  },
  norm = db.reduction {
    lead = { 2 }, ref = function() end, refuses = "convert it first, e.g. x:float()",
    arrays = function(x, p, dim, keepdim)
      return x:reduce(dim, keepdim, function(list) return p_norm(list, p or 2) end)
    end,
    samples = norm_samples,
    errors = {
      { S(T { 2, 3 }, NAN), "p is NaN" },
      { S(T { 0, 3 }, INF, 1), "x of shape (0, 3) has no element to choose from in dim 1" },
      { S(T { 0, 3 }, -1, 1), "x of shape (0, 3) has no element to choose from in dim 1" },
    },
    large = {
      S(T { 300, 257 }, 2, 2), S(T { 300, 257 }, 2, 1), S(T { 70000 }), S(T { 300, 257 }, 1, 1),
      S(T { 300, 257 }, 3, 2),
      S(T { 70000 }, INF), S(T { 300, 257 }, -INF, 1), S(T { 300, 257 }, 0, 2),
    },
    check = function(_, run)
      for _, p in ipairs { 2, 3, 1.5 } do
        run(("has the gradient 0 where it is 0, p = %g"):format(p), function()
          db.expect_gradient({ 0, 0, 0 }, function(x) return x:norm(p) end, { 0, 0, 0 })
        end)
      end
      run("shares the gradient of the largest among equals", function()
        db.expect_gradient({ 0.5, 0, -0.5 }, function(x) return x:norm(INF) end, { 3, 1, -3 })
      end)
    end,
  },
  logsumexp = db.reduction {
    ref = log_sum_exp, empty = "nan", refuses = "convert it first, e.g. x:float()",
    samples = {
      S(T { 2, 3, 2, 2, 2 }, { 2, -1 }), S(T { 2, 3 }, {}), S(T {}, 1),
      -- the gradient reads the result as the dtype holds it
      with(S(T({ 2, 2 }, { values = { 50, 51, -60, -61 } }), 2), { grad_tol = { float16 = 4, bfloat16 = 4 } }),
      with(S(T({ 2, 2 }, { values = { 800, 801, -900, -901 } }), 2), { grad = false }),
      with(S(T({ 2, 2 }, { values = { -INF, -INF, -INF, 1 } }), 2), { grad = false }),
      with(S(T({ 2, 2 }, { values = { INF, 1, NAN, 1 } }), 1), { grad = false }),
      with(S(T({ 2, 2 }, { values = { INF, 1, NAN, 1 } }), 2), { grad = false }),
    },
    check = function(_, run)
      run("has the gradient 0 where nothing could change it", function()
        db.expect_gradient({ 0, 0 }, function(x) return x:logsumexp() end, { -INF, -INF })
      end)
    end,
  },
}
