-- SPDX-License-Identifier: MIT
-- Padding: csrc/ops/pad.c.
local db = require "spec.opdb"
local nd, T, S, with = db.nd, db.T, db.S, db.with

-- The numbers before and after each dim, from the list that begins with the last dim.
local function sides(rank, pad)
  if type(pad) == "number" then pad = { pad } end
  local before, after = {}, {}
  for d = 1, rank do
    local i = 2 * (rank - d)
    before[d], after[d] = pad[i + 1] or 0, pad[i + 2] or 0
  end
  return before, after
end

-- The place in a dim of n elements that place p (from 1 on, beyond it in either direction) copies; nil: none.
local function source(p, n, mode)
  if mode == "replicate" then return math.min(math.max(p, 1), n) end
  if mode == "circular" then return (p - 1) % n + 1 end
  if mode == "reflect" then
    if p < 1 then return 2 - p end
    return p > n and 2 * n - p or p
  end
  return p >= 1 and p <= n and p or nil
end

local function padded(shape, pad)
  local before, after = sides(#shape, pad)
  local larger = {}
  for d, n in ipairs(shape) do larger[d] = n + before[d] + after[d] end
  return larger, before
end

-- Where in x the place `at` of the result comes from; nil: nowhere.
local function origin(shape, before, mode, at)
  local from = {}
  for d, n in ipairs(shape) do
    from[d] = source(at[d] - before[d], n, mode)
    if not from[d] then return nil end
  end
  return from
end

local function pad(x, numbers, mode, value)
  local shape, before = padded(x.shape, numbers)
  return nd.build(shape, function(...)
    local from = origin(x.shape, before, mode, { ... })
    if not from then return value or 0 end
    return x:at(from)
  end)
end

local function backward(dy, numbers, mode, shape)
  local dx = nd.new(shape, 0)
  local _, before = padded(shape, numbers)
  nd.each(dy.shape, function(at)
    local from = origin(shape, before, mode, at)
    if from then dx:put(from, dx:at(from) + dy:at(at)) end
  end)
  return dx
end

local function back(shape, numbers, mode)
  return S(T((padded(shape, numbers))), numbers, mode, shape)
end

local samples, backs = {
  S(T { 3, 4 }, { 1, 2 }), S(T { 3, 4 }, { 1, 0, 2, 1 }, "constant", 2), S(T { 3, 4 }, { -1, 1 }),
  S(T { 3, 4 }, { -1, -2, 1, -1 }, "constant", 1),
  S(T { 3, 4 }, {}), S(T { 5 }, { 2, 3 }), S(T {}, {}), S(T { 0, 3 }, { 1, 1 }), S(T { 0, 3 }, { 0, 0, 1, 2 }),
  S(T { 3, 4 }, { -4, 0 }),
  S(T { 2, 3, 2, 4 }, { 1, 1, 2, 0, 0, 1, 1, 0 }),
  with(S(T { 3 }, { 1, 1 }, "constant", math.huge), { only = "float", grad = false }),
  with(S(T { 3 }, { 1, 1 }, "constant", -0.5), { only = "float" }), S(T { 3, 4 }, { 1, 1 }, "constant", true),
  S(T { 3, 4 }, { 1, 1 }, "constant", false),
  S(T { 2, 3, 2, 2, 2 }, { 0, 0, 0, 0, 1, 2 }),
}, {}
for _, mode in ipairs { "reflect", "replicate", "circular" } do
  for _, case in ipairs {
    { { 3, 4 }, { 1, 2 } }, { { 3, 4 }, { 2, 0, 1, 2 } }, { { 3, 4 }, { -1, 2 } }, { { 3, 4 }, { 1, -2, -1, 1 } },
    { { 5 }, { 3, 4 } }, { { 2, 3, 4, 3 }, { 2, 1, 0, 2 } },
    { { 0, 3 }, { 1, 1 } }, { { 3, 4 }, { -4, 0 } }, { { 3, 4 }, {} }, { { 2, 3, 2, 3, 4 }, { 1, 2, 1, 1, 0, 1 } },
  } do
    samples[#samples + 1] = S(T(case[1]), case[2], mode)
    backs[#backs + 1] = back(case[1], case[2], mode)
  end
end
samples[#samples + 1] = S(T { 1, 4 }, { 0, 0, 3, 2 }, "replicate")
samples[#samples + 1] = S(T { 4 }, { 4, 4 }, "circular")

return {
  pad = {
    dtypes = "all",
    ref = function(x, numbers, mode, value)
      if value == true or x.dtype == "bool" and value and value ~= 0 then value = 1 end
      return pad(x, numbers, mode, value or 0)
    end,
    samples = samples,
    errors = {
      { S(T { 3, 4 }, { 1 }), "pad has 1 numbers; two for each padded dim are needed, from the last dim on (x has 2)" },
      { S(T { 3, 4 }, { 1, 1, 1, 1, 1, 1 }), "pad has 6 numbers; two for each padded dim are needed" },
      { S(T {}, { 1, 1 }), "(x has 0)" },
      { S(T { 3, 4 }, { -5, 0 }), "pad -5, 0 leaves no size for dim 2 of x, whose shape is (3, 4)" },
      { S(T { 3, 4 }, { 0, 0, -2, -2 }), "pad -2, -2 leaves no size for dim 1 of x" },
      { S(T { 3, 4 }, { 2 ^ 62, 2 ^ 62 }), "leaves no size for dim 2 of x" },
      { S(T { 3, 4 }, { 4, 0 }, "reflect"), "reflect needs pads smaller than the dim: dim 2 has size 4, the pad is 4" },
      { S(T { 3, 4 }, { 0, 0, 0, 3 }, "reflect"),
        "reflect needs pads smaller than the dim: dim 1 has size 3, the pad is 3" },
      { S(T { 3, 4 }, { 0, 5 }, "circular"),
        "circular needs pads no larger than the dim: dim 2 has size 4, the pad is 5" },
      { S(T { 0, 3 }, { 0, 0, 1, 0 }, "replicate"), "replicate can't fill dim 1, which has size 0" },
      { S(T { 0, 3 }, { 0, 0, 1, 0 }, "reflect"),
        "reflect needs pads smaller than the dim: dim 1 has size 0, the pad is 1" },
      { S(T { 3, 4 }, { 1, 1 }, "mirror"), "argument 3 (mode): expected one of" },
      { S(T { 3, 4 }, "same"), "argument 2 (pad): expected" },
      { S(T { 3, 4 }, { 1, 1 }, "constant", "a"), "argument 4 (value): expected" },
    },
    lengths = function(n)
      return S(T { 2, n }, { 1, 2 }), S(T { n, 3 }, { 1, 1, 0, 2 }), S(T { 2, n }, { n - 1, n - 1 }, "reflect"),
        S(T { n, 2 }, { 0, 0, n, 1 }, "circular"), S(T { 2, n }, { 3, 2 }, "replicate")
    end,
    long = { 300, 1100 },
    large = { S(T { 300, 257 }, { 1, 2, 3, 4 }), S(T { 300, 257 }, { 10, 20 }, "reflect"),
      S(T { 257, 300 }, { 0, 0, 20, 10 }, "circular") },
  },
  pad_backward = {
    internal_dtypes = true, ref = backward, samples = backs,
    lengths = function(n)
      return back({ 2, n }, { n - 1, n - 1 }, "reflect"), back({ n, 2 }, { 0, 0, n, 1 }, "circular"),
        back({ 2, n }, { 3, 2 }, "replicate")
    end,
    long = { 300, 1100 },
    large = { back({ 300, 257 }, { 10, 20 }, "reflect"), back({ 257, 300 }, { 0, 0, 20, 10 }, "replicate") },
  },
}
