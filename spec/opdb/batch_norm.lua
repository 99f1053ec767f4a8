-- SPDX-License-Identifier: MIT
-- Batch normalisation: csrc/ops/batch_norm.c.
local cnn = require "cnn"
local db = require "spec.opdb"
local helper = require "spec.helper"
local nd, T, S, with = db.nd, db.T, db.S, db.with

local function computed(dtype)
  return (dtype == "float16" or dtype == "bfloat16") and "float32" or dtype
end

-- Mean and variance of each channel, and the number of its elements.
local function moments(x)
  local channels = x.shape[2]
  local dims = {}
  for d = 1, #x.shape do
    if d ~= 2 then dims[#dims + 1] = d end
  end
  local count = channels > 0 and #x.list / channels or 0
  local mean, var = x:reduce(dims, false, function(list)
    local m, v = nd.total(list) / #list, 0
    for _, e in ipairs(list) do v = v + (e - m) ^ 2 / #list end
    return #list > 0 and m or 0, v
  end)
  return mean, var, count
end

local function normalized(x, mean, rstd, weight, bias)
  return nd.build(x.shape, function(...)
    local c = select(2, ...)
    return (x(...) - mean(c)) * rstd(c) * (weight and weight(c) or 1) + (bias and bias(c) or 0)
  end)
end

local function inverse_root(var, eps)
  return nd.map(function(v) return 1 / math.sqrt(v + eps) end, var)
end

-- Results, and the running statistics afterwards.
local function train(x, weight, bias, running_mean, running_var, momentum, eps)
  local mean, var, count = moments(x)
  local rstd = inverse_root(var, eps)
  local out = normalized(x, mean, rstd, weight, bias)
  if not running_mean then return out, mean, rstd end
  if count == 0 then return out, mean, rstd, running_mean, running_var end
  local function mixed(running, now)
    return nd.map(function(r, n) return (1 - momentum) * r + momentum * n end, running, now)
  end
  local unbiased = nd.map(function(v) return v * count / (count - 1) end, var)
  return out, mean, rstd, mixed(running_mean, mean), mixed(running_var, unbiased)
end

local function eval(x, weight, bias, running_mean, running_var, eps)
  local rstd = inverse_root(running_var, eps)
  return normalized(x, running_mean, rstd, weight, bias), running_mean, rstd
end

-- By the Jacobian: with statistics of the batch d out_k / d x_i is weight rstd (1[i = k] - (1 + xh_i xh_k) / n)
-- within a channel, else weight rstd 1[i = k].
local function backward(dy, x, mean, rstd, weight, training, _, needs)
  local channels = x.shape[2]
  local rank = #x.shape
  local order = { 2, 1 }
  for d = 3, rank do order[d] = d end
  local n = channels > 0 and #x.list / channels or 0
  local xs, g = x:permute(order):reshape { channels, n }, dy:permute(order):reshape { channels, n }
  local dx, dw, db_ = {}, {}, {}
  for c = 1, channels do
    local function xh(i) return (xs(c, i) - mean(c)) * rstd(c) end
    dw[c], db_[c] = 0, 0
    local sum, product = 0, 0
    for k = 1, training and n or 0 do
      sum = sum + g(c, k)
      product = product + g(c, k) * xh(k)
    end
    for i = 1, n do
      dx[#dx + 1] = (g(c, i) - (sum + xh(i) * product) / n) * rstd(c) * (weight and weight(c) or 1)
      dw[c] = dw[c] + g(c, i) * xh(i)
      db_[c] = db_[c] + g(c, i)
    end
  end
  local permuted = {}
  for d = 1, rank do permuted[d] = x.shape[order[d]] end
  local none = nd.new({ 0 }, {})
  return needs % 2 == 1 and nd.new(permuted, dx):permute(order) or none,
    needs % 4 >= 2 and nd.new({ channels }, dw) or none,
    needs >= 4 and nd.new({ channels }, db_) or none
end

local function mean_of(n) return T({ n }, { grad = false }) end
local function var_of(n) return T({ n }, { lo = 0.5, hi = 2, grad = false }) end

local function only_read(...)
  return with(S(...), { grad = false }) -- mean and rstd have no gradient of their own
end

local function vector(name, sample)
  return {
    { sample(T { 2, 3, 4 }, T { 4 }), name .. " has shape (4,) but x (2, 3, 4) has 3 channels" },
    { sample(T { 2, 1 }, T { 1, 1 }), name .. " has shape (1, 1) but x (2, 1) has 1 channel" },
    { sample(T { 2, 3 }, T({ 3 }, { dtype = "int32" })), name .. " is int32 but x is float32: convert one" },
  }
end

-- What both kinds refuse; make(x, weight, bias, mean, var).
local function refusals(make)
  local list = {
    { make(T { 3 }, nil, nil, mean_of(3), var_of(3)), "x has shape (3,), expected (N, C), (N, C, L) or (N, C, H, W)" },
    { make(T {}, nil, nil, mean_of(1), var_of(1)), "x has shape (), expected (N, C)" },
  }
  local function add(name, sample)
    for _, case in ipairs(vector(name, sample)) do list[#list + 1] = case end
  end
  add("weight", function(x, v) return make(x, v, nil, mean_of(x.shape[2]), var_of(x.shape[2])) end)
  add("bias", function(x, v) return make(x, nil, v, mean_of(x.shape[2]), var_of(x.shape[2])) end)
  add("running_mean", function(x, v) return make(x, nil, nil, v, var_of(x.shape[2])) end)
  add("running_var", function(x, v) return make(x, nil, nil, mean_of(x.shape[2]), v) end)
  return list
end

local function refusals_of_training(make)
  local list = refusals(make)
  local text = "has one value per channel, and training needs more to take a variance: use a larger batch, or eval()"
  list[#list + 1] = { make(T { 1, 3 }), "x of shape (1, 3) " .. text }
  list[#list + 1] = { make(T { 1, 3, 1, 1 }), "x of shape (1, 3, 1, 1) " .. text }
  list[#list + 1] = { make(T { 2, 3 }, nil, nil, mean_of(3)), "running_mean and running_var are given together" }
  list[#list + 1] = { make(T { 2, 3 }, nil, nil, nil, var_of(3)), "running_mean and running_var are given together" }
  return list
end

local append = db.append

local function backward_sample(x, weight, training, needs)
  local c = { x[2] }
  return with(S(T(x), T(x), T(c, { computed = true, plain = true }),
    T(c, { lo = 0.5, hi = 2, computed = true, plain = true }),
    weight and T(c) or nil,
    training, 1e-5, needs), { grad = false, tol = 4 })
end

local function outs(dtype) return { dtype, computed(dtype), computed(dtype) } end

-- Statistics that want a gradient are refused, when there is a tape.
local function refuse_gradients(name, call)
  return function()
    local function wanting(v) return cnn.tensor(v):requires_grad_() end
    local x, plain = cnn.tensor { { 1, 2 }, { 3, 5 } }, cnn.tensor { 1, 1 }
    helper.raises(name .. ": running_mean requires a gradient", call, x, wanting { 0, 0 }, plain)
    helper.raises(name .. ": running_var requires a gradient", call, x, plain, wanting { 1, 1 })
    cnn.no_grad(function() call(x, wanting { 0, 0 }, wanting { 1, 1 }) end)
  end
end

return {
  batch_norm = {
    refuses = "convert it first, e.g. x:float()", tol = 2, grad_tol = 2,
    ref = function(x, running_mean, running_var, weight, bias, training, _, eps)
      if training then return (train(x, weight, bias, nil, nil, nil, eps or 1e-5)) end
      return (eval(x, weight, bias, running_mean, running_var, eps or 1e-5))
    end,
    samples = {
      S(T { 4, 3 }, nil, nil, T { 3 }, T { 3 }, true), S(T { 4, 3 }, mean_of(3), var_of(3), T { 3 }, T { 3 }),
      S(T { 2, 3, 4 }, nil, nil, T { 3 }, T { 3 }, true), S(T { 2, 3, 2, 2 }, nil, nil, T { 3 }, T { 3 }, true),
      S(T { 2, 3, 2, 2 }, mean_of(3), var_of(3), T { 3 }, T { 3 }, false),
      S(T { 4, 3 }, nil, nil, nil, nil, true, 0.1, 0.5),
      S(T { 4, 3 }, nil, nil, T { 3 }, nil, true), S(T { 4, 3 }, nil, nil, nil, T { 3 }, true),
      S(T { 4, 3 }, mean_of(3), var_of(3), nil, nil, false, 0.1, 0.5),
      S(T { 4, 3 }, mean_of(3), var_of(3), nil, T { 3 }),
      S(T { 1, 3 }, mean_of(3), var_of(3)), S(T { 1, 3, 4 }, nil, nil, T { 3 }, T { 3 }, true),
      S(T { 2, 1, 5 }, nil, nil, T { 1 }, T { 1 }, true), S(T { 2, 2, 2, 2, 2 }, nil, nil, T { 2 }, T { 2 }, true),
      S(T { 0, 3 }, mean_of(3), var_of(3), T { 3 }, T { 3 }), S(T { 0, 3, 2 }, nil, nil, T { 3 }, T { 3 }, true),
      S(T { 2, 0, 3 }, nil, nil, T { 0 }, T { 0 }, true), S(T { 2, 3, 17, 3 }, nil, nil, T { 3 }, T { 3 }, true),
    },
    errors = append(refusals(function(x, w, b, m, v) return S(x, m, v, w, b, false) end), append({
      { S(T { 2, 3 }), "running_mean and running_var are missing: outside of training" },
      { S(T { 2, 3 }, mean_of(3)), "running_mean and running_var are missing: outside of training" },
    }, refusals_of_training(function(x, w, b, m, v) return S(x, m, v, w, b, true) end))),
    lengths = function(n)
      return S(T { n + 1, 3 }, nil, nil, T { 3 }, T { 3 }, true), S(T { 2, 3, n }, nil, nil, T { 3 }, T { 3 }, true),
        S(T { 3, n }, nil, nil, T { n }, T { n }, true), S(T { n, 2, 2 }, mean_of(2), var_of(2), T { 2 }, T { 2 })
    end,
    long = { 300, 1100, 9001 },
    large = {
      S(T { 30, 7, 400 }, nil, nil, T { 7 }, T { 7 }, true), S(T { 3000, 25 }, nil, nil, T { 25 }, T { 25 }, true),
      S(T { 30, 7, 20, 20 }, mean_of(7), var_of(7), T { 7 }, T { 7 }, false),
    },
    check = function(_, run)
      run("refuses statistics that require a gradient", refuse_gradients("batch_norm", cnn.batch_norm))
      run("updates the statistics in training only", function()
        local x = cnn.tensor { { 1, 2 }, { 3, 6 } }
        local mean, var = cnn.tensor { 10, 20 }, cnn.tensor { 1, 2 }
        cnn.batch_norm(x, mean, var, nil, nil, false)
        helper.elements(mean, { 10, 20 })
        cnn.batch_norm(x, mean, var, nil, nil, true, 0.25)
        helper.elements(mean, { 8, 16 })
        helper.elements(var, { 0.75 + 0.5, 1.5 + 2 })
      end)
    end,
  },
  batch_norm_train = {
    internal_dtypes = true, tol = 2, out = outs, ref = train,
    samples = {
      only_read(T { 4, 3 }, T { 3 }, T { 3 }, mean_of(3), var_of(3), 0.1, 1e-5),
      only_read(T { 2, 3, 4 }, nil, nil, mean_of(3), var_of(3), 0.3, 0.1),
      only_read(T { 2, 3, 2, 2 }, T { 3 }, nil, mean_of(3), var_of(3), 1, 1e-5),
      only_read(T { 2, 3, 2, 2 }, nil, T { 3 }, nil, nil, 0.1, 1e-5),
        only_read(T { 2, 2, 2, 2, 2 }, T { 2 }, T { 2 }, nil, nil, 0.1, 1e-5),
      only_read(T { 0, 3 }, T { 3 }, T { 3 }, mean_of(3), var_of(3), 0.1, 1e-5),
      only_read(T { 3, 2 }, T { 2 }, T { 2 }, mean_of(2), var_of(2), 0, 1e-5),
      only_read(T { 2, 3, 17, 3 }, T { 3 }, T { 3 }, mean_of(3), var_of(3), 0.1, 1e-5),
    },
    errors = refusals_of_training(function(x, w, b, m, v) return S(x, w, b, m, v, 0.1, 1e-5) end),
  },
  batch_norm_eval = {
    internal_dtypes = true, tol = 2, out = outs, ref = eval,
    samples = {
      only_read(T { 4, 3 }, T { 3 }, T { 3 }, mean_of(3), var_of(3), 1e-5),
        only_read(T { 1, 3 }, nil, nil, mean_of(3), var_of(3), 0.1),
      only_read(T { 2, 3, 4 }, T { 3 }, nil, mean_of(3), var_of(3), 1e-5),
      only_read(T { 2, 3, 2, 2 }, nil, T { 3 }, mean_of(3), var_of(3), 1e-5),
      only_read(T { 0, 3 }, nil, nil, mean_of(3), var_of(3), 1e-5),
    },
    errors = refusals(function(x, w, b, m, v) return S(x, w, b, m, v, 1e-5) end),
  },
  batch_norm_backward = {
    internal_dtypes = true, out = outs, ref = backward,
    samples = {
      backward_sample({ 4, 3 }, true, true, 7), backward_sample({ 4, 3 }, true, false, 7),
        backward_sample({ 2, 3, 4 }, false, true, 1),
      backward_sample({ 2, 3, 2, 2 }, true, true, 7), backward_sample({ 2, 3, 2, 2 }, true, false, 5),
      backward_sample({ 2, 3, 2, 2 }, false, true, 6), backward_sample({ 4, 3 }, true, true, 2),
        backward_sample({ 4, 3 }, true, true, 4),
      backward_sample({ 2, 2, 2, 2, 2 }, true, true, 7), backward_sample({ 0, 3 }, true, true, 7),
        backward_sample({ 2, 3, 17, 3 }, true, true, 7),
    },
    lengths = function(n)
      return backward_sample({ n, 3 }, true, true, 7), backward_sample({ 2, 3, n }, true, true, 7),
        backward_sample({ 3, n }, true, true, 7), backward_sample({ n, 2, 2 }, true, false, 7)
    end,
    long = { 300, 1100, 9001 },
    large = { backward_sample({ 30, 7, 400 }, true, true, 7), backward_sample({ 3000, 25 }, true, false, 7) },
  },
}
