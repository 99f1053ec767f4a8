-- SPDX-License-Identifier: MIT
-- Largest and smallest elements, and where they are: csrc/ops/extreme.c.
local db = require "spec.opdb"
local nd, T, S, with = db.nd, db.T, db.S, db.with

local INF, NAN = math.huge, 0 / 0

-- The first element that no other one exceeds, in the direction of sign, and its place.
local function extreme(sign)
  return function(list)
    local best, at = list[1], 1
    for i, v in ipairs(list) do
      if v ~= v then return v, i end
      if v * sign > best * sign then best, at = v, i end
    end
    return best, at
  end
end
local largest, smallest = extreme(1), extreme(-1)

-- The lower middle one; equal elements count by their values, the first of them is taken.
local function median(list)
  for i, v in ipairs(list) do
    if v ~= v then return v, i end
  end
  local sorted = {}
  for i, v in ipairs(list) do sorted[i] = v end
  table.sort(sorted)
  local m = sorted[math.floor((#list + 1) / 2)]
  for i, v in ipairs(list) do
    if v == m then return m, i end
  end
  return NAN
end

local function value(fn)
  return function(list) return (fn(list)) end
end

local function place(fn)
  return function(list) return (select(2, fn(list))) end
end

local function x(...) return T({ ... }, { distinct = true }) end

local function special() return {
  with(S(T({ 2, 3 }, { values = { 1, NAN, 3, NAN, 2, NAN } }), 2), { only = "float", grad = false }),
  with(S(T({ 2, 3 }, { values = { 1, NAN, 3, NAN, 2, NAN } }), 1), { only = "float", grad = false }),
  with(S(T({ 2, 3 }, { values = { -INF, INF, 3, -INF, -INF, 2 } }), 2), { only = "float", grad = false }),
  with(S(T({ 2, 4 }, { values = { 3, 1, 3, 1, 2, 2, 2, 2 } }), 2), { grad = false }),
  S(x(2, 3, 2, 2, 3), 3), S(x(), 1), S(x(), -1, true), S(x(1, 1), 2), S(x(2, 0, 3), 1), S(x(0, 3), 2, true),
} end


local function nothing() return {
  { S(T { 0, 3 }, 1), "x of shape (0, 3) has no element to choose from in dim 1" },
  { S(T { 2, 0 }, 2), "x of shape (2, 0) has no element to choose from in dim 2" },
} end
local function nothing_at_all()
  return db.append(nothing(), { { S(T { 0, 3 }), "has no element to choose from in dim 1" } })
end

local function value_op(fn)
  return db.reduction {
    ref = value(fn), x = { distinct = true }, dtypes = "all", empty = false, errors = nothing_at_all(),
    samples = db.append(special(), { S(x(2, 3, 2, 2, 2), { 1, -1, 3 }), S(x(2, 3), {}), S(x(2, 3), nil, true) }),
    check = function(_, run)
      run("shares the gradient among equals", function()
        local third = 1 / 3
        db.expect_gradient({ third, third, 0, third, 0.25, 0.25, 0.25, 0.25 },
          function(t) return fn == largest and t:amax(2) or -(-t):amin(2) end, { { 2, 2, 1, 2 }, { 3, 3, 3, 3 } })
      end)
    end,
  }
end

local function place_op(fn)
  return db.reduction {
    ref = place(fn), x = { distinct = true }, dtypes = "all", out = "int64", grad = false, empty = false, single = true,
    errors = nothing_at_all(), samples = db.append(special(), { S(x(2, 3), nil, true) }),
  }
end

local function picked(dtype) return { dtype, "int64" } end

local function large()
  return { S(x(300, 257), 2), S(x(300, 257), 1) }
end

local function pick_op(fn)
  return {
    kind = "reduction", dtypes = "all", out = picked, errors = db.append(nothing(),
      db.dim_errors(function(t, dim) return S(t, dim) end)),
    ref = function(a, dim, keepdim) return a:reduce(dim, keepdim, fn) end,
    samples = db.append(special(), { S(x(3, 5), 1), S(x(3, 5), -1, true), S(x(2, 3, 4), 2), S(x(2, 3, 2, 4), 1, true),
      S(x(2, 40), 2) }),
    lengths = function(n) return S(x(2, n), 2), S(x(n, 3), 1), S(x(3, n), 1) end,
    long = { 600, 1100, 9001 },
    large = large(),
  }
end

-- max(x), max(x, dim, keepdim) and max(x, y).
local function choice(fn)
  local entry = pick_op(fn)
  local function y(...) return T({ ... }, { distinct = true, lo = -1.9, hi = 2.1 }) end
  entry.out = function(dtype, arguments) return type(arguments[2]) == "number" and { dtype, "int64" } or dtype end
  entry.ref = function(a, dim, keepdim)
    if dim == nil then return a:reduce(nil, keepdim, value(fn)) end
    if nd.is(dim) then return nd.map(function(v, w) return (fn { v, w }) end, a, dim) end
    return a:reduce(dim, keepdim, fn)
  end
  entry.samples = db.append(entry.samples, { S(x(3, 5)), S(x()), S(x(2, 3, 2, 2)), S(x(3, 5), y(3, 5)),
    S(x(3, 1), y(5)), S(x(2, 3), y()) })
  entry.errors = db.append(entry.errors, {
    { S(T { 0, 3 }), "has no element to choose from in dim 1" },
    { S(T { 2, 3 }, T { 4 }), "shapes (2, 3) and (4,) don't broadcast" },
    { S(T { 2, 3 }, "a"), "argument 2 (dim): expected" },
  })
  entry.large = db.append(entry.large, { S(x(70000)), S(x(300, 257), y(257)) })
  return entry
end

local function without_dim(list)
  local all = {}
  for _, sample in ipairs(list) do all[#all + 1] = S(sample[1]) end
  return all
end

local function median_of_all(a)
  return a:reduce(nil, false, value(median))
end

local median_all = {
  dtypes = "all",
  ref = median_of_all,
  samples = db.append(without_dim { S(x(5)), S(x(4)), S(x(3, 5)), S(x()), S(x(2, 3, 2, 2)), S(x(40)) }, {
    with(S(T({ 4 }, { values = { 3, 1, 3, 1 } })), { grad = false }),
    with(S(T({ 3 }, { values = { 1, NAN, 3 } })), { only = "float", grad = false }),
    with(S(T({ 3 }, { values = { INF, -INF, 3 } })), { only = "float", grad = false }),
    with(S(T { 0, 3 }), { only = "float", grad = false }),
  }),
  errors = { { S(T({ 0, 3 }, { dtype = "int64" })), "x of shape (0, 3) has no element to choose from in dim 1" } },
  lengths = function(n) return S(x(n)), S(x(n, 2)) end,
  long = { 600, 1100, 9001 },
  large = { S(x(70000)), S(x(300, 257)) },
  check = function(_, run)
    run("shares the gradient among equals", function()
      db.expect_gradient({ 0, 0.5, 0.5, 0 }, function(t) return t:median() end, { 1, 2, 2, 5 })
    end)
  end,
}

local median_of = pick_op(median)
median_of.out = function(dtype, arguments) return arguments[2] and { dtype, "int64" } or dtype end
median_of.ref = function(a, dim, keepdim)
  if dim == nil then return median_of_all(a) end
  return a:reduce(dim, keepdim, median)
end
median_of.samples = db.append(median_of.samples, { S(x(3, 5)), S(x()), S(x(4)) })
median_of.large = db.append(median_of.large, { S(x(70000)) })

return {
  amax = value_op(largest), amin = value_op(smallest),
  argmax = place_op(largest), argmin = place_op(smallest),
  max = choice(largest), min = choice(smallest),
  max_dim = pick_op(largest), min_dim = pick_op(smallest), median_dim = pick_op(median),
  median = median_of, median_all = median_all,
}
