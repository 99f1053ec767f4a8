-- SPDX-License-Identifier: MIT
-- Activations of more than one tensor, and normalize: csrc/ops/activation.c.
local db = require "spec.opdb"
local nd, T, S, with = db.nd, db.T, db.S, db.with

local INF = math.huge

local function leaky(x, w) return x > 0 and x or w * x end

local function x(...) return T({ ... }, { away = { 0 } }) end

local glu_errors = db.append(db.dim_errors(function(t, dim) return S(t, dim) end), {
  { S(T { 2, 3 }, 2), "x of shape (2, 3) can't be halved in dim 2: its size must be even" },
  { S(T { 2, 3 }), "x of shape (2, 3) can't be halved in dim 2" },
  { S(T {}), "can't be halved in dim 1: its size must be even" },
})

return {
  -- one slope for everything, or one for each channel
  prelu = {
    dtypes = "floating_bool", floor = 1e-3,
    ref = function(a, weight)
      if #weight.list == 1 then return nd.map(function(v) return leaky(v, weight.list[1]) end, a) end
      return nd.build(a.shape, function(...) return leaky(a(...), weight((select(2, ...)))) end)
    end,
    samples = {
      S(x(3, 5), T { 1 }), S(x(3, 5), T { 5 }), S(x(2, 3, 4), T { 3 }), S(x(2, 3, 2, 2), T { 3 }),
      S(x(2, 3, 2, 2), T {}),
      S(x(4), T { 1 }), S(x(), T { 1 }), S(x(), T {}), S(x(0, 3), T { 3 }), S(x(3, 0, 2), T { 1 }),
      S(x(2, 1, 2), T { 1 }),
      S(x(2, 3, 1, 2, 2), T { 3 }),
    },
    errors = {
      { S(T { 2, 3, 4 }, T { 4 }), "weight of shape (4,) has 4 elements: it takes one, or one for each of the 3" },
      { S(T { 4 }, T { 4 }), "weight of shape (4,) has 4 elements: it takes one, or one for each of the 1 channels" },
      { S(T { 2, 3 }, 0.5), "argument 2 (weight): expected a tensor" },
    },
    large = { S(x(300, 257), T { 257 }), S(x(70000), T { 1 }) },
  },
  prelu_row = {
    dtypes = "floating_bool", floor = 1e-3,
    ref = function(a, weight) return nd.map(leaky, a, weight) end,
    samples = {
      S(x(3, 5), T { 3, 5 }), S(x(3, 5), T { 5 }), S(x(2, 3, 4), T { 3, 1 }), S(x(2, 3, 2, 2), T { 1, 3, 1, 1 }),
      S(x(), T {}),
      S(x(0, 3), T { 3 }), S(x(4), T { 1 }),
    },
    errors = { { S(T { 2, 3 }, T { 4 }), "shapes (2, 3) and (4,) don't broadcast" } },
    tails = S(x(70), T { 70 }),
    large = { S(x(300, 257), T { 257 }), S(x(300, 257), T { 300, 1 }) },
  },
  glu = {
    dtypes = "floating_bool",
    ref = function(a, dim)
      return a:along(dim or -1, function(line)
        local y, half = {}, #line / 2
        for i = 1, half do y[i] = line[i] / (1 + math.exp(-line[i + half])) end
        return y
      end)
    end,
    samples = {
      S(T { 4 }), S(T { 3, 4 }), S(T { 4, 3 }, 1), S(T { 2, 6, 3 }, -2), S(T { 2, 3, 2, 2, 4 }), S(T { 0, 4 }),
      S(T { 3, 0 }),
      S(T { 2, 3 }, 1),
    },
    errors = glu_errors,
    large = { S(T { 300, 256 }), S(T { 300, 256 }, 1) },
  },
  normalize = {
    ref = function(a, p, dim, eps)
      p, eps = p or 2, eps or 1e-12
      local norm = a:reduce(dim or 2, true, function(list)
        local s = 0
        for _, v in ipairs(list) do s = p == INF and math.max(s, math.abs(v)) or s + math.abs(v) ^ p end
        return math.max(p == INF and s or s ^ (1 / p), eps)
      end)
      return a / norm
    end,
    refuses = "convert it first, e.g. x:float()",
    samples = {
      S(T { 3, 5 }), S(T { 2, 3, 4 }), S(T { 3, 5 }, 2, 1), S(x(3, 5), 1, -1), S(x(3, 5), 3, { 1, 2 }),
      S(T({ 3, 5 }, { distinct = true, away = { 0 } }), INF, 2), S(T { 3, 5 }, 2, 2, 100), S(T { 0, 3 }),
      S(T { 2, 3, 2, 2, 2 }, 2, { 3, -1 }),
      with(S(T({ 2, 2 }, { values = { 0, 0, 3, 4 } })), { grad = false }),
      S(T({ 2, 2 }, { values = { 0, 0, 3, 4 } }), 2, 2, 10),
    },
    errors = {
      { S(T { 3 }), "dim 2 is out of range for a tensor with 1 dim (1..1)" },
      { S(T { 2, 3 }, 2, { 1, -2 }), "dim 1 is given twice" }, { S(T { 2, 3 }, 0 / 0), "p is NaN" },
      { S(T { 2, 3 }, "a"), "argument 2 (p): expected" },
    },
  },
}
