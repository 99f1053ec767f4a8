-- SPDX-License-Identifier: MIT
-- Elements in another order, repeated, or partly zero: csrc/ops/rearrange.c.
local db = require "spec.opdb"
local nd, T, I, S, with = db.nd, db.T, db.I, db.S, db.with
local append = db.append

local function listed(...)
  if select("#", ...) == 0 or (...) == nil then return {} end
  return type((...)) == "table" and (...) or { ... }
end

local function counts(shape, list)
  return I(shape, list, { whole = true }) -- each as it is: the result's size depends on them
end

local function flip(x, ...)
  local set = {}
  for _, d in ipairs(listed(...)) do set[x:dim(d)] = true end
  if #x.shape == 0 then return x end
  return nd.build(x.shape, function(...)
    local at = { ... }
    for d in pairs(set) do at[d] = x.shape[d] + 1 - at[d] end
    return x:at(at)
  end)
end

local function roll(x, shifts, dims)
  shifts = listed(shifts)
  if not dims then return roll(x:reshape { -1 }, shifts, { 1 }):reshape(x.shape) end
  dims = listed(dims)
  if #x.shape == 0 then return x end
  return nd.build(x.shape, function(...)
    local at = { ... }
    for i, d in ipairs(dims) do
      d = x:dim(d)
      at[d] = (at[d] - 1 - shifts[i]) % x.shape[d] + 1
    end
    return x:at(at)
  end)
end

local function tile(x, ...)
  local times = listed(...)
  local rank = math.max(#times, #x.shape)
  local own, shape = {}, {}
  for d = 1, rank do
    own[d] = x.shape[d - rank + #x.shape] or 1
    shape[d] = own[d] * (times[d - rank + #times] or 1)
  end
  x = x:reshape(own)
  return nd.build(shape, function(...)
    local at = { ... }
    for d = 1, rank do at[d] = (at[d] - 1) % own[d] + 1 end
    return x:at(at)
  end)
end

-- Each slice i of a dim repeats[i] times (or all as often).
local function repeat_interleave(x, repeats, dim)
  if not dim or #x.shape == 0 then x, dim = x:reshape { #x.list }, 1 end
  local times = nd.is(repeats) and repeats.list or { repeats }
  return x:along(dim, function(line)
    local y = {}
    for i, v in ipairs(line) do
      for _ = 1, #times == 1 and times[1] or times[i] do y[#y + 1] = v end
    end
    return y
  end)
end

local function triangle(keeps)
  return function(x, diagonal)
    local rank = #x.shape
    return nd.build(x.shape, function(...)
      local i, j = select(rank - 1, ...)
      return keeps(j - i, diagonal or 0) and x(...) or 0
    end)
  end
end

local function triangle_entry(keeps)
  return {
    dtypes = "all", ref = triangle(keeps),
    samples = {
      S(T { 3, 4 }), S(T { 4, 3 }, 1), S(T { 4, 3 }, -2), S(T { 2, 3, 4 }), S(T { 3, 3 }, 7), S(T { 3, 3 }, -7),
      S(T { 0, 3 }), S(T { 3, 0 }, 1),
      S(T { 2, 2, 3, 2, 3 }, -1), S(T { 1, 1 }),
      with(S(T({ 2, 2 }, { values = { 0 / 0, 0 / 0, 0 / 0, 1 / 0 } })), { only = "float", grad = false }),
    },
    errors = {
      { S(T { 3 }), "x has 1 dim, but matrices have 2" }, { S(T {}), "x has 0 dims, but matrices have 2" },
      { S(T { 3, 3 }, 1.5), "argument 2 (diagonal): expected an integer, got the number 1.5" },
    },
    lengths = function(n) return S(T { 3, n }), S(T { n, 3 }, -1), S(T { 2, n, 2 }) end,
    long = { 300, 1100, 9001 },
    large = { S(T { 300, 257 }), S(T { 30, 50, 60 }, 2) },
  }
end

-- The forms of repeat_interleave by a tensor of counts; their sizes depend on its values.
local function by_counts()
  local function dynamic(...) return with(S(...), { dynamic = true }) end
  return {
    dynamic(T { 3, 2 }, counts({ 3 }, { 2, 0, 3 }), 1), dynamic(T { 2, 3 }, counts({ 3 }, { 1, 2, 1 }), -1),
      dynamic(T { 2, 2 }, counts({ 4 }, { 1, 0, 2, 1 })),
    dynamic(T { 2, 3 }, counts({ 1 }, { 2 }), 2), dynamic(T { 2, 3 }, counts({}, { 2 }), 1),
      dynamic(T {}, counts({ 1 }, { 3 })),
      dynamic(T { 0, 3 }, counts({ 0 }, {}), 1),
    dynamic(T { 3, 2 }, counts({ 3 }, { 0, 0, 0 }), 1), dynamic(T { 2, 2, 3, 2 }, counts({ 3 }, { 1, 2, 0 }), 3),
  }
end

local function count_errors()
  return {
    { S(T { 3, 4 }, counts({ 2 }, { 1, 2 }), 1),
      "repeats of shape (2,) must have one entry for each of dim 1's 3 positions" },
    { S(T { 3, 4 }, counts({ 3, 1 }, { 1, 2, 1 }), 1),
      "repeats of shape (3, 1) must have one entry for each of dim 1's 3 positions" },
    { S(T { 3, 4 }, counts({ 3 }, { 1, -1, 2 }), 1), "repeats[2] is -1" },
    { S(T { 3, 4 }, counts({ 3 }, { 1, 1, 1 })), "for each of dim 1's 12 positions" },
    { S(T { 3, 4 }, T({ 3 }, { dtype = "float32" }), 1), "repeats must be an integer tensor, not float32" },
  }
end

return {
  flip = {
    dtypes = "all", ref = flip,
    samples = {
      S(T { 3, 4 }, 1), S(T { 3, 4 }, { 1, 2 }), S(T { 3, 4 }, -1), S(T { 3, 4 }, 1, 2), S(T { 2, 3, 4 }, { 1, -1 }),
      S(T { 3, 4 }, {}), S(T {}, 1),
      S(T { 0, 3 }, 1), S(T { 0, 3 }, 2), S(T { 2, 3, 2, 2, 3 }, { 2, 5 }), S(T { 7 }, 1),
    },
    errors = append(db.dim_errors(function(x, dim) return S(x, dim) end),
      db.dim_errors(function(x, dims) return S(x, dims) end, true)),
    lengths = function(n) return S(T { 2, n }, 2), S(T { n, 3 }, 1), S(T { n, 2 }, { 1, 2 }) end,
    long = { 300, 1100, 9001 },
    large = { S(T { 300, 257 }, 1), S(T { 300, 257 }, 2) },
  },
  roll = {
    dtypes = "all", ref = roll,
    samples = {
      S(T { 3, 4 }, 1), S(T { 3, 4 }, -5), S(T { 3, 4 }, 1, 1), S(T { 3, 4 }, { 2, -1 }, { 1, 2 }), S(T { 3, 4 }, 0),
      S(T { 3, 4 }, 9, -1), S(T {}, 1), S(T {}, 1, 1),
      S(T { 0, 3 }, 1), S(T { 0, 3 }, 1, 2), S(T { 2, 3, 2, 2, 3 }, { 1, 2 }, { -1, 2 }), S(T { 3, 4 }, {}, {}),
      S(T { 7 }, 2 ^ 40 + 3, 1), S(T { 7 }, -2 ^ 40),
    },
    errors = append(db.dim_errors(function(x, dim) return S(x, 1, dim) end), {
      { S(T { 3, 4 }, { 1, 2 }), "without dims, one shift is allowed, not 2" },
      { S(T { 3, 4 }, {}), "without dims, one shift is allowed, not 0" },
      { S(T { 3, 4 }, 1, { 1, 2 }), "shifts has 1 entries, dims 2" },
      { S(T { 3, 4 }, { 1, 1 }, { 1, -2 }), "dim 1 is given twice" },
      { S(T { 3, 4 }, 1.5), "argument 2 (shifts): expected" },
    }),
    lengths = function(n) return S(T { 2, n }, 1, 2), S(T { n, 3 }, -2, 1), S(T { n, 2 }, 5) end,
    long = { 300, 1100, 9001 },
    large = { S(T { 300, 257 }, 1000), S(T { 300, 257 }, { 7, 9 }, { 1, 2 }) },
  },
  tile = {
    dtypes = "all", ref = tile,
    samples = {
      S(T { 2, 3 }, 2), S(T { 2, 3 }, { 2, 3 }), S(T { 2, 3 }, 2, 1, 2), S(T { 3 }, 2), S(T {}, { 2, 3 }),
      S(T {}, {}), S(T { 2, 3 }, {}), S(T { 2, 3 }, 1, 1), S(T { 2, 3 }, 0),
      S(T { 0, 3 }, 2, 2), S(T { 2, 1, 3, 2 }, { 2, 1, 3, 1 }),
      S(T { 1, 2, 1, 1, 1, 1, 1, 2 }, { 2, 1, 1, 1, 1, 1, 1, 2 }), S(T { 2 }, { 1, 1, 2 }),
    },
    errors = {
      { S(T { 2, 3 }, -1), "can't repeat -1 times" }, { S(T { 2, 3 }, { 2, -2 }), "can't repeat -2 times" },
      { S(T { 2, 3 }, 2 ^ 62), "too large" },
      { S(T { 2 }, 1, 1, 1, 1, 1, 1, 1, 1, 1), "at most 8" }, { S(T { 2 }, 1.5), "argument 2 (times): expected" },
    },
    lengths = function(n) return S(T { 2, n }, 2, 2), S(T { n }, 3), S(T { 2, 2 }, 1, n) end,
    long = { 300, 1100 },
    large = { S(T { 300, 57 }, { 2, 3 }) },
  },
  repeat_interleave = {
    dtypes = "all", ref = repeat_interleave,
    samples = append({
      S(T { 2, 3 }, 2), S(T { 2, 3 }, 2, 1), S(T { 2, 3 }, 3, -1), S(T { 2, 3 }, 1, 1), S(T { 2, 3 }, 0, 2),
      S(T {}, 2), S(T {}, 2, 1), S(T { 0, 3 }, 2, 1), S(T { 0, 3 }, 2, 2),
      S(T { 2, 2, 3, 2 }, 2, 3), S(T { 1, 2, 1, 1, 1, 1, 1, 2 }, 2, 2),
    }, by_counts()),
    errors = append(append(db.dim_errors(function(x, dim) return S(x, 2, dim) end), {
      { S(T { 2, 3 }, -1), "repeats must be an integer >= 0, or a tensor" },
      { S(T { 2, 3 }, 1.5), "repeats must be an integer >= 0, or a tensor" },
      { S(T { 2, 3 }, 2 ^ 62, 2), "the result would be too large" },
      { S(T { 2, 3 }, "a"), "argument 2 (repeats): expected" },
    }), count_errors()),
    lengths = function(n) return S(T { 2, n }, 2, 2), S(T { n, 3 }, 2, 1), S(T { 2, 2 }, n, 1) end,
    long = { 300, 1100 },
    large = { S(T { 300, 57 }, 3, 1), S(T { 300, 57 }, 3, 2) },
  },
  ["repeat_interleave/2"] = { dtypes = "all", ref = repeat_interleave, samples = by_counts(), errors = count_errors() },
  repeat_count = {
    dtypes = "none", out = "int64", grad = false,
    ref = function(repeats) return nd.scalar(nd.total(repeats.list)) end,
    samples = { S(counts({ 4 }, { 2, 0, 3, 1 })), S(counts({ 0 }, {})), S(counts({ 1 }, { 7 })) },
    errors = { { S(counts({ 3 }, { 2, -3, 1 })), "repeats[2] is -3" } },
  },
  repeat_positions = {
    dtypes = "none", out = "int64", grad = false,
    ref = function(repeats)
      local list = {}
      for i, n in ipairs(repeats.list) do
        for _ = 1, n do list[#list + 1] = i end
      end
      return nd.new({ #list }, list)
    end,
    samples = { S(counts({ 4 }, { 2, 0, 3, 1 }), 6), S(counts({ 0 }, {}), 0), S(counts({ 2 }, { 0, 0 }), 0) },
  },
  tril = triangle_entry(function(above, diagonal) return above <= diagonal end),
  triu = triangle_entry(function(above, diagonal) return above >= diagonal end),
}
