-- SPDX-License-Identifier: MIT
-- Layer normalisation: csrc/ops/norm.c.
local cnn = require "cnn"
local db = require "spec.opdb"
local helper = require "spec.helper"
local nd, T, S, with = db.nd, db.T, db.S, db.with

-- What the rows and their elements are: x's elements as a matrix.
local function rows_of(x, shape)
  local width = nd.size(shape)
  local count = 1
  for d = 1, #x.shape - #shape do count = count * x.shape[d] end
  return x:reshape { count, width }, count, width
end

local function lead_shape(x, shape)
  local lead = {}
  for d = 1, #x.shape - #shape do lead[d] = x.shape[d] end
  return lead
end

-- (x - mean) / sqrt(var + eps) * weight + bias, mean and 1 / sqrt(var + eps)
local function native(x, weight, bias, shape, eps)
  local rows, count, width = rows_of(x, shape)
  local out, means, rstds = {}, {}, {}
  for r = 1, count do
    local mean, var = 0, 0
    for i = 1, width do mean = mean + rows(r, i) / width end
    for i = 1, width do var = var + (rows(r, i) - mean) ^ 2 / width end
    if width == 0 then mean, var = 0 / 0, 0 / 0 end
    means[r], rstds[r] = mean, 1 / math.sqrt(var + eps)
    for i = 1, width do
      out[#out + 1] = (rows(r, i) - mean) * rstds[r] * (weight and weight.list[i] or 1) + (bias and bias.list[i] or 0)
    end
  end
  local lead = lead_shape(x, shape)
  return nd.new(x.shape, out), nd.new(lead, means), nd.new(lead, rstds)
end

-- The sums over the Jacobian of the above, where mean and rstd are those of x: d out_k / d x_i is
-- weight_k rstd (1[i = k] - 1 / n - xh_i xh_k / n).
local function backward(dy, x, mean, rstd, weight, shape, _, needs)
  local rows, count, width = rows_of(x, shape)
  local g = rows_of(dy, shape)
  local dx, dw, db_ = {}, {}, {}
  for i = 1, width do dw[i], db_[i] = 0, 0 end
  for r = 1, count do
    local function xh(i) return (rows(r, i) - mean.list[r]) * rstd.list[r] end
    local function g_hat(i) return g(r, i) * (weight and weight.list[i] or 1) end
    local sum, product = 0, 0
    for k = 1, width do
      sum = sum + g_hat(k)
      product = product + g_hat(k) * xh(k)
    end
    for i = 1, width do
      dx[#dx + 1] = (g_hat(i) - (sum + xh(i) * product) / width) * rstd.list[r]
      dw[i] = dw[i] + g(r, i) * xh(i)
      db_[i] = db_[i] + g(r, i)
    end
  end
  local none = nd.new({ 0 }, {})
  return needs % 2 == 1 and nd.new(x.shape, dx) or none, needs % 4 >= 2 and nd.new(shape, dw) or none,
    needs >= 4 and nd.new(shape, db_) or none
end

local function computed(dtype)
  return (dtype == "float16" or dtype == "bfloat16") and "float32" or dtype
end

local function native_sample(...)
  return with(S(...), { grad = false }) -- mean and rstd are only read
end

local function backward_sample(x, shape, weight, needs)
  local lead = {}
  for d = 1, #x - #shape do lead[d] = x[d] end
  return with(S(T(x), T(x), T(lead, { computed = true, plain = true }),
    T(lead, { lo = 0.5, hi = 2, computed = true, plain = true }),
    weight and T(shape) or nil, shape, 1e-5, needs), { grad = false, tol = 4 })
end

local function refusals(sample)
  return {
    { sample(T { 2, 3 }, {}), "normalized_shape is empty: give the sizes of the last dims" },
    { sample(T { 2, 3 }, { 2 }), "x has shape (2, 3), whose last dims are not normalized_shape (2,)" },
    { sample(T { 3 }, { 2, 3 }), "x has shape (3,), whose last dims are not normalized_shape (2, 3)" },
    { sample(T {}, { 1 }), "whose last dims are not normalized_shape (1,)" },
    { sample(T { 2, 3 }, { 3 }, T { 2 }), "weight has shape (2,) but normalized_shape is (3,)" },
    { sample(T { 2, 3 }, { 3 }, nil, T { 1, 3 }), "bias has shape (1, 3) but normalized_shape is (3,)" },
    { sample(T { 2, 3 }, { 3 }, T({ 3 }, { dtype = "int32" })), "weight is int32 but x is float32: convert one" },
    { sample(T { 2, 3 }, { 3 }, nil, T({ 3 }, { dtype = "int64" })), "bias is int64 but x is float32: convert one" },
  }
end

return {
  layer_norm = {
    refuses = "convert it first, e.g. x:float()", tol = 2, grad_tol = 2,
    ref = function(x, shape, weight, bias, eps) return (native(x, weight, bias, shape, eps or 1e-5)) end,
    samples = {
      S(T { 3, 5 }, { 5 }), S(T { 3, 5 }, { 5 }, T { 5 }, T { 5 }), S(T { 2, 3, 4 }, { 3, 4 }, T { 3, 4 }, T { 3, 4 }),
      S(T { 3, 5 }, { 5 }, T { 5 }), S(T { 3, 5 }, { 5 }, nil, T { 5 }), S(T { 5 }, { 5 }, T { 5 }, T { 5 }, 0.5),
      S(T { 2, 3, 2, 4 }, { 4 }, T { 4 }, T { 4 }), S(T { 2, 2, 2, 3 }, { 2, 2, 3 }),
      S(T { 0, 3 }, { 3 }, T { 3 }, T { 3 }),
      S(T { 3, 4 }, { 3, 4 }, nil, nil, 0.1), S(T({ 2, 6 }, { lo = 10, hi = 11 }), { 6 }, nil, nil, 1),
      with(S(T({ 2, 3 }, { values = { 0, 0, 0, 2, 2, 2 } }), { 3 }, T { 3 }, T { 3 }), { grad = false }),
      S(T { 2, 0 }, { 0 }, T { 0 }, T { 0 }), S(T { 2, 3, 40 }, { 40 }, T { 40 }, T { 40 }),
    },
    errors = refusals(function(x, shape, ...) return S(x, shape, ...) end),
    lengths = function(n) return S(T { 2, n }, { n }, T { n }, T { n }), S(T { n, 3 }, { 3 }, T { 3 }, T { 3 }) end,
    long = { 600, 1100, 9001 },
    large = { S(T { 300, 257 }, { 257 }, T { 257 }, T { 257 }), S(T { 70000 }, { 70000 }) },
    check = function(_, run)
      run("takes float32 weights beside half types", function()
        for _, dtype in ipairs { "float16", "bfloat16" } do
          local x = cnn.tensor({ { 1, 2, 4 } }, { dtype = dtype })
          local w, b = cnn.tensor { 1, 2, 3 }, cnn.tensor { 0.5, 0, -0.5 }
          local y = cnn.layer_norm(x, { 3 }, w, b)
          local expected = native(nd.from(x), nd.from(w), nd.from(b), { 3 }, 1e-5)
          assert(y.dtype == dtype)
          helper.elements(y, expected.list, 1e-2)
        end
      end)
    end,
  },
  layer_norm_native = {
    internal_dtypes = true, tol = 2, out = function(dtype) return { dtype, computed(dtype), computed(dtype) } end,
    ref = native,
    samples = {
      native_sample(T { 3, 5 }, T { 5 }, T { 5 }, { 5 }, 1e-5), native_sample(T { 2, 3, 4 }, nil, nil, { 3, 4 }, 0.1),
      native_sample(T { 5 }, T { 5 }, nil, { 5 }, 1e-5), native_sample(T { 0, 3 }, nil, T { 3 }, { 3 }, 1e-5),
      native_sample(T { 2, 3, 40 }, T { 40 }, T { 40 }, { 40 }, 1e-5),
    },
    errors = refusals(function(x, shape, weight, bias) return S(x, weight, bias, shape, 1e-5) end),
  },
  layer_norm_backward = {
    internal_dtypes = true, out = function(dtype) return { dtype, computed(dtype), computed(dtype) } end,
    ref = backward,
    samples = {
      backward_sample({ 3, 5 }, { 5 }, true, 7), backward_sample({ 3, 5 }, { 5 }, false, 1),
        backward_sample({ 3, 5 }, { 5 }, true, 2),
      backward_sample({ 3, 5 }, { 5 }, true, 4), backward_sample({ 2, 3, 4 }, { 3, 4 }, true, 7),
        backward_sample({ 5 }, { 5 }, true, 5),
      backward_sample({ 3, 5 }, { 5 }, false, 6), backward_sample({ 0, 3 }, { 3 }, true, 7),
        backward_sample({ 2, 3, 40 }, { 40 }, true, 7),
      backward_sample({ 2, 0 }, { 0 }, true, 7),
    },
    lengths = function(n) return backward_sample({ 2, n }, { n }, true, 7),
      backward_sample({ n, 3 }, { 3 }, true, 7) end,
    long = { 600, 1100, 9001 },
    large = { backward_sample({ 300, 257 }, { 257 }, true, 7), backward_sample({ 3000, 25 }, { 25 }, false, 7) },
  },
}
