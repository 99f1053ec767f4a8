-- SPDX-License-Identifier: MIT
-- Steps of optimizers over lists of tensors (csrc/ops/optim.c), by the formulas of torch.optim.
local assert = require "luassert"
local cnn = require "cnn"
local db = require "spec.opdb"
local T, L, S, with, nd = db.T, db.L, db.S, db.with, db.nd
local unpack = table.unpack or unpack -- luacheck: ignore

local positive = { lo = 0.1, hi = 1 }

-- Lists of tensors of these shapes, which have no gradients.
local function list(shapes, options)
  local t = {}
  for i, shape in ipairs(shapes) do t[i] = T(shape, options) end
  return L(t)
end

local MANY, ONE, SHAPES = { { 3, 5 }, {}, { 0, 2 }, { 7 }, { 2, 3, 2, 2 } }, { { 4, 3 } }, { { 70 }, { 3, 1 } }
local NONE, LARGE = {}, { { 300, 257 }, { 1000 } }

-- Steps all parameters: step(element of each list as a list v, number of the parameter) changes v in
-- place, where v[k] is nil for a list that is not used. Gives what the op changes, in order.
local function walk(lists, changed, step)
  local results = {}
  for i = 1, #lists[1] do
    for e = 1, #lists[1][i].list do
      local v = {}
      for k, tensors in ipairs(lists) do v[k] = tensors[i] and tensors[i].list[e] end
      step(v, i)
      for k, tensors in ipairs(lists) do
        if tensors[i] and changed[k] then
          local key = k * 1000 + i
          results[key] = results[key] or nd.new(tensors[i].shape, 0)
          results[key].list[e] = v[k]
        end
      end
    end
  end
  local ordered = {}
  for k in ipairs(lists) do
    for i = 1, #lists[1] do
      if changed[k] and lists[k][i] then
        ordered[#ordered + 1] = results[k * 1000 + i] or nd.new(lists[k][i].shape, {})
      end
    end
  end
  return unpack(ordered)
end

local function sgd(params, grads, buffers, steps, lr, momentum, dampening, decay, nesterov, maximize)
  return walk({ params, grads, buffers }, { true, false, true }, function(v, i)
    local g = (maximize and -v[2] or v[2]) + decay * v[1]
    if v[3] then
      v[3] = steps[i] == 1 and momentum * v[3] + g or momentum * v[3] + (1 - dampening) * g
      g = nesterov and g + momentum * v[3] or v[3]
    end
    v[1] = v[1] - lr * g
  end)
end

local function adam(params, grads, firsts, seconds, tops, steps, lr, beta1, beta2, eps, decay, decoupled, maximize)
  return walk({ params, grads, firsts, seconds, tops }, { true, false, true, true, true }, function(v, i)
    local g, t = maximize and -v[2] or v[2], steps[i]
    if decoupled then v[1] = v[1] - lr * decay * v[1] else g = g + decay * v[1] end
    v[3] = beta1 * v[3] + (1 - beta1) * g
    v[4] = beta2 * v[4] + (1 - beta2) * g * g
    local second = v[4]
    if v[5] then
      v[5] = math.max(v[5], second)
      second = v[5]
    end
    v[1] = v[1] - lr * (v[3] / (1 - beta1 ^ t)) / (math.sqrt(second / (1 - beta2 ^ t)) + eps)
  end)
end

local function rmsprop(params, grads, squares, buffers, means, lr, alpha, eps, decay, momentum, maximize)
  return walk({ params, grads, squares, buffers, means }, { true, false, true, true, true }, function(v)
    local g = (maximize and -v[2] or v[2]) + decay * v[1]
    v[3] = alpha * v[3] + (1 - alpha) * g * g
    local spread = v[3]
    if v[5] then
      v[5] = alpha * v[5] + (1 - alpha) * g
      spread = spread - v[5] ^ 2
    end
    local step = g / (math.sqrt(spread) + eps)
    if v[4] then
      v[4] = momentum * v[4] + step
      step = v[4]
    end
    v[1] = v[1] - lr * step
  end)
end

local function adagrad(params, grads, sums, steps, lr, lr_decay, decay, eps, maximize)
  return walk({ params, grads, sums }, { true, false, true }, function(v, i)
    local g = (maximize and -v[2] or v[2]) + decay * v[1]
    v[3] = v[3] + g * g
    v[1] = v[1] - lr / (1 + (steps[i] - 1) * lr_decay) * g / (math.sqrt(v[3]) + eps)
  end)
end

local function grad_norm(grads, p)
  local total = 0
  p = p or 2
  for _, g in ipairs(grads) do
    for _, v in ipairs(g.list) do
      total = p == math.huge and math.max(total, math.abs(v)) or total + math.abs(v) ^ p
    end
  end
  return nd.scalar(p == math.huge and total or total ^ (1 / p))
end

-- Nothing here has a gradient: what requires one is changed all the same.
local function step_samples(samples)
  for _, sample in ipairs(samples) do with(sample, { grad = false }) end
  return samples
end

local function ones(shapes)
  local steps = {}
  for i = 1, #shapes do steps[i] = 1 end
  return steps
end

-- The lists in which one is not like the parameters; call(lists...) makes the arguments.
local function list_errors(call, counted)
  local int = { dtype = "int64" }
  return {
    { call(list(ONE), list { { 3, 4 } }), "tensor 1 of list 2 has shape (3, 4), the parameter (4, 3)" },
    { call(list(ONE), list(ONE, int)), "tensor 1 of list 2 is int64, not a float" },
    { call(list(ONE, int), list(ONE)), "tensor 1 of list 1 is int64, not a float" },
    { call(list { { 2 }, { 3 } }, list { { 2 } }), "list 2 has 1 tensors for 2 parameters" },
    { call(list(ONE), list(NONE)), "list 2 has 0 tensors for 1 parameters" },
    { call(T(ONE[1]), list(ONE)), "expected a list" },
    counted and { call(list { { 2 }, { 3 } }, list { { 2 }, { 3 } }), "1 steps for 2 parameters" } or nil,
  }
end

return {
  sgd_step_ = {
    dtypes = "float", silent = true, grad = false, ref = sgd,
    samples = step_samples {
      S(list(ONE), list(ONE), list(NONE), { 1 }, 0.1, 0, 0, 0, false, false),
      S(list(MANY), list(MANY), list(NONE), ones(MANY), 0.1, 0, 0, 0.2, false, true),
      S(list(MANY), list(MANY), list(MANY), { 1, 2, 1, 5, 3 }, 0.1, 0.9, 0, 0, false, false),
      S(list(SHAPES), list(SHAPES), list(SHAPES), { 1, 2 }, 0.1, 0.9, 0.3, 0.1, false, false),
      S(list(SHAPES), list(SHAPES), list(SHAPES), { 2, 2 }, 0.1, 0.9, 0, 0.1, true, false),
      S(list(SHAPES), list(SHAPES), list(SHAPES), { 3, 2 }, 1, 0.5, 0, 0, true, true),
      S(list(NONE), list(NONE), list(NONE), {}, 0.1, 0, 0, 0, false, false),
    },
    errors = list_errors(function(p, g) return S(p, g, list(NONE), { 1 }, 0.1, 0, 0, 0, false, false) end, true),
    large = S(list(LARGE), list(LARGE), list(LARGE), { 2, 3 }, 0.1, 0.9, 0, 0.1, true, false),
  },
  adam_step_ = {
    dtypes = "float", silent = true, grad = false, ref = adam,
    samples = step_samples {
      S(list(ONE), list(ONE), list(ONE), list(ONE, positive), list(NONE), { 1 }, 0.1, 0.9, 0.999, 1e-8, 0, false,
      false),
      S(list(MANY), list(MANY), list(MANY), list(MANY, positive), list(NONE), { 1, 2, 1, 5, 3 }, 0.1, 0.9, 0.99,
      1e-3, 0.1,
        false, true),
      S(list(MANY), list(MANY), list(MANY), list(MANY, positive), list(MANY, positive), { 2, 2, 1, 5, 3 }, 0.1, 0.8,
      0.99,
        1e-3, 0.1, true, false),
      S(list(SHAPES), list(SHAPES), list(SHAPES), list(SHAPES, positive), list(NONE), { 7, 1 }, 0.01, 0.9, 0.99,
      1e-3, 0.5,
        true, false),
      S(list(SHAPES), list(SHAPES), list(SHAPES), list(SHAPES, positive), list(SHAPES, positive), { 1, 40 }, 0.01, 0,
      0.5,
        1e-3, 0, false, false),
      S(list(NONE), list(NONE), list(NONE), list(NONE), list(NONE), {}, 0.1, 0.9, 0.999, 1e-8, 0, false, false),
    },
    errors = list_errors(function(p, g)
      return S(p, g, list(ONE), list(ONE), list(NONE), { 1 }, 0.1, 0.9, 0.999, 1e-8, 0, false, false)
    end),
    large = S(list(LARGE), list(LARGE), list(LARGE), list(LARGE, positive), list(LARGE, positive), { 2, 3 }, 0.1, 0.9,
      0.99, 1e-3, 0.1, true, false),
  },
  rmsprop_step_ = {
    dtypes = "float", silent = true, grad = false, ref = rmsprop,
    samples = step_samples {
      S(list(ONE), list(ONE), list(ONE, positive), list(NONE), list(NONE), 0.1, 0.9, 1e-3, 0, 0, false),
      S(list(MANY), list(MANY), list(MANY, positive), list(NONE), list(NONE), 0.1, 0.9, 1e-3, 0.1, 0, true),
      S(list(MANY), list(MANY), list(MANY, positive), list(MANY), list(NONE), 0.1, 0.5, 1e-3, 0.1, 0.8, false),
      S(list(SHAPES), list(SHAPES), list(SHAPES, { lo = 2, hi = 4 }), list(NONE),
      list(SHAPES, { lo = -0.2, hi = 0.2 }), 0.1, 0.9,
        1e-3, 0, 0, false),
      S(list(SHAPES), list(SHAPES), list(SHAPES, { lo = 2, hi = 4 }), list(SHAPES),
      list(SHAPES, { lo = -0.2, hi = 0.2 }), 0.1,
        0.9, 1e-3, 0.1, 0.5, false),
      S(list(NONE), list(NONE), list(NONE), list(NONE), list(NONE), 0.1, 0.9, 1e-3, 0, 0, false),
    },
    errors = list_errors(function(p, g) return S(p, g, list(ONE), list(NONE), list(NONE), 0.1, 0.9, 1e-8, 0, 0,
      false) end),
    large = S(list(LARGE), list(LARGE), list(LARGE, positive), list(LARGE), list(NONE), 0.1, 0.9, 1e-3, 0.1, 0.5,
      false),
  },
  adagrad_step_ = {
    dtypes = "float", silent = true, grad = false, ref = adagrad,
    samples = step_samples {
      S(list(ONE), list(ONE), list(ONE, positive), { 1 }, 0.1, 0, 0, 1e-3, false),
      S(list(MANY), list(MANY), list(MANY, positive), { 1, 2, 1, 5, 3 }, 0.1, 0.2, 0.1, 1e-3, true),
      S(list(SHAPES), list(SHAPES), list(SHAPES, positive), { 4, 9 }, 1, 0.1, 0, 1e-3, false),
      S(list(NONE), list(NONE), list(NONE), {}, 0.1, 0, 0, 1e-3, false),
    },
    errors = list_errors(function(p, g) return S(p, g, list(ONE), { 1 }, 0.1, 0, 0, 1e-8, false) end),
    large = S(list(LARGE), list(LARGE), list(LARGE, positive), { 2, 3 }, 0.1, 0.1, 0.1, 1e-3, false),
  },
  grad_norm = {
    dtypes = "float", out = "float64", grad = false, ref = grad_norm,
    samples = {
      S(list(MANY)), S(list(MANY), 1), S(list(MANY), math.huge), S(list(MANY), 3), S(list(ONE), 0.5),
      S(list(SHAPES), 2),
      S(list { { 0 } }), S(list(NONE)),
    },
    errors = { { S(list(ONE), 0), "p must be > 0, not 0" }, { S(list(ONE), -math.huge), "p must be > 0" },
      { S(list(ONE), 0 / 0), "p must be > 0" } },
    large = { S(list(LARGE)), S(list(LARGE), 1), S(list(LARGE), math.huge) },
    check = function(_, run)
      local norm = cnn.core.internal.grad_norm
      run("survives large values, and lets NaN through", function()
        assert.near(5e30, norm({ cnn.tensor { 3e30 }, cnn.tensor { 4e30 } }):item(), 1e24)
        for _, p in ipairs { 1, 2, 3, math.huge } do
          local v = norm({ cnn.ones(3), cnn.tensor { 0 / 0, 1 }, cnn.ones(2) }, p):item()
          assert.is_true(v ~= v)
        end
      end)
    end,
  },
  grad_scale_ = {
    dtypes = "float", silent = true, grad = false,
    samples = step_samples { S(list(MANY), 0.5), S(list(SHAPES), -3), S(list(ONE), 0), S(list(NONE), 2) },
    ref = function(grads, factor)
      return walk({ grads }, { true }, function(v) v[1] = v[1] * factor end)
    end,
    large = S(list(LARGE), 0.5),
  },
}
