-- SPDX-License-Identifier: MIT
-- A layer and the activation behind it (csrc/ops/fused.c).
local db = require "spec.opdb"
local T, S, with, nd = db.T, db.S, db.with, db.nd

local tanh = math.tanh or function(x)
  local e = math.exp(-2 * math.abs(x))
  return (x < 0 and -1 or 1) * (1 - e) / (1 + e)
end
local C = math.sqrt(2 / math.pi)

local function relu(x) return x < 0 and 0 or x end
local function gelu(x) return 0.5 * x * (1 + tanh(C * (x + 0.044715 * x ^ 3))) end
local function slope(x)
  local t = tanh(C * (x + 0.044715 * x ^ 3))
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * C * (1 + 3 * 0.044715 * x ^ 2)
end

local function linear(x, w, b)
  local y = nd.matmul(x, w:transpose(1, 2))
  return b and y + b or y
end

local function samples()
  return {
    S(T { 3, 4 }, T { 5, 4 }, T { 5 }), S(T { 3, 4 }, T { 5, 4 }), S(T { 4 }, T { 5, 4 }, T { 5 }),
    S(T { 2, 3, 4 }, T { 8, 4 }, T { 8 }), S(T { 2, 1, 3, 4 }, T { 2, 4 }), S(T { 0, 4 }, T { 5, 4 }, T { 5 }),
    S(T { 3, 0 }, T { 5, 0 }, T { 5 }), S(T { 3, 4 }, T { 0, 4 }, T { 0 }), S(T { 3, 4 }, T { 1, 4 }, T { 1 }),
    with(S(T { 9, 70 }, T { 19, 70 }, T { 19 }), { tol = 4, only = "float" }),
  }
end

local function errors()
  return {
    { S(T { 3, 4 }, T { 2, 5, 4 }), "weight must be (out, in), not (2, 5, 4)" },
    { S(T { 3, 4 }, T { 5, 3 }), "input (3, 4) must end with 3 features, which weight (5, 3) expects" },
    { S(T { 3, 4 }, T { 5, 4 }, T { 4 }), "bias must be (5,) for weight (5, 4), not (4,)" },
  }
end

return {
  -- (At 0, where the ReLU has two slopes, differences mean nothing; spec/cuda_fused_spec.lua holds its gradient
  -- against that of the two ops.)
  linear_relu = {
    plugin = true, dtypes = "real", refuses = "is bool: convert it first", no_difference = true, errors = errors(),
    samples = samples(), ref = function(x, w, b) return nd.map(relu, linear(x, w, b)) end,
    large = with(S(T { 205, 210 }, T { 200, 210 }, T { 200 }), { tol = 4 }),
  },
  linear_gelu = {
    plugin = true, dtypes = "float", refuses = "convert it first", errors = errors(),
    samples = samples(), ref = function(x, w, b) return nd.map(gelu, linear(x, w, b)) end,
    large = with(S(T { 205, 210 }, T { 200, 210 }, T { 200 }), { tol = 4 }),
  },
  linear_gelu_kept = {
    plugin = true, dtypes = "float", refuses = "convert it first", errors = errors(), samples = samples(),
    ref = function(x, w, b)
      local z = linear(x, w, b)
      return nd.map(gelu, z), z
    end,
    large = with(S(T { 205, 210 }, T { 200, 210 }, T { 200 }), { tol = 4 }),
  },
  linear_backward_gelu = {
    plugin = true, dtypes = "float",
    samples = {
      S(T { 3, 5 }, T { 5, 4 }, T { 3, 4 }), S(T { 2, 3, 5 }, T { 5, 8 }, T { 2, 3, 8 }),
      S(T { 5 }, T { 5, 4 }, T { 4 }), S(T { 0, 5 }, T { 5, 4 }, T { 0, 4 }), S(T { 3, 0 }, T { 0, 4 }, T { 3, 4 }),
      S(T { 1, 1 }, T { 1, 1 }, T { 1, 1 }), with(S(T { 9, 70 }, T { 70, 16 }, T { 9, 16 }), { tol = 4 }),
    },
    ref = function(dy, w, kept) return nd.map(function(dh, z) return dh * slope(z) end, nd.matmul(dy, w), kept) end,
    large = with(S(T { 205, 210 }, T { 210, 200 }, T { 205, 200 }), { tol = 4 }),
  },
}
