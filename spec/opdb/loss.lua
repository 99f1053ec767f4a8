-- SPDX-License-Identifier: MIT
-- Losses of elements (csrc/ops/loss.c, loss.def).
local assert = require "luassert"
local cnn = require "cnn"
local db = require "spec.opdb"
local T, S, nd = db.T, db.S, db.nd
local unpack = table.unpack or unpack -- luacheck: ignore

local REDUCTIONS = { "none", "mean", "sum" }

local function reduced(loss, reduction)
  if reduction == "none" then return loss end
  local total, n = nd.total(loss.list), #loss.list
  return nd.scalar(reduction == "sum" and total or total / n)
end

local function sign(v) return v > 0 and 1 or v < 0 and -1 or 0 end

-- log(1 + e^x) without overflow.
local function softplus(x) return math.max(x, 0) + math.log(1 + math.exp(-math.abs(x))) end
local function sigmoid(x) return 1 / (1 + math.exp(-x)) end
local function bounded_log(v) return math.max(v > 0 and math.log(v) or -math.huge, -100) end

-- Losses of one element: value(x, y, w, parameter), and the slopes in x and y.
local LOSSES = {
  mse_loss = {
    value = function(x, y) return (x - y) ^ 2 end,
    dx = function(x, y) return 2 * (x - y) end, dy = function(x, y) return 2 * (y - x) end,
  },
  l1_loss = {
    value = function(x, y) return math.abs(x - y) end, kinks = { 0 },
    dx = function(x, y) return sign(x - y) end, dy = function(x, y) return sign(y - x) end,
  },
  smooth_l1_loss = {
    parameters = { 1, 0.5, 2 }, kinks = true,
    value = function(x, y, _, beta)
      local d = math.abs(x - y)
      return d < beta and d * d / (2 * beta) or d - beta / 2
    end,
    dx = function(x, y, _, beta) return math.abs(x - y) < beta and (x - y) / beta or sign(x - y) end,
    dy = function(x, y, _, beta) return math.abs(x - y) < beta and (y - x) / beta or sign(y - x) end,
    errors = { { S(T { 3 }, T { 3 }, "mean", -1), "beta must be >= 0, not -1" },
      { S(T { 3 }, T { 3 }, "mean", 0 / 0), "beta must be >= 0" } },
  },
  huber_loss = {
    parameters = { 1, 0.5, 2 }, kinks = true,
    value = function(x, y, _, delta)
      local d = math.abs(x - y)
      return d <= delta and d * d / 2 or delta * (d - delta / 2)
    end,
    dx = function(x, y, _, delta) return math.abs(x - y) <= delta and x - y or delta * sign(x - y) end,
    dy = function(x, y, _, delta) return math.abs(x - y) <= delta and y - x or delta * sign(y - x) end,
    errors = { { S(T { 3 }, T { 3 }, "mean", -1), "delta must be > 0, not -1" },
      { S(T { 3 }, T { 3 }, "mean", 0), "delta must be > 0, not 0" } },
  },
  bce_native = {
    x = { lo = 0.05, hi = 0.95, ints = { 0, 1 } }, y = { lo = 0, hi = 1, ints = { 0, 1 } },
    value = function(x, y) return -(y * bounded_log(x) + (1 - y) * bounded_log(1 - x)) end,
    dx = function(x, y) return (x - y) / math.max(x * (1 - x), 1e-12) end,
    dy = function(x) return bounded_log(1 - x) - bounded_log(x) end,
  },
  bce_logits_native = {
    y = { lo = 0, hi = 1, ints = { 0, 1 } }, third = true,
    value = function(x, y, w) return (1 - y) * softplus(x) + w * y * softplus(-x) end,
    dx = function(x, y, w) return (1 - y) * sigmoid(x) - w * y * sigmoid(-x) end,
    dy = function(x, _, w) return w * softplus(-x) - softplus(x) end,
  },
}

-- Inputs in one half, targets in the other: their difference keeps away from the kinks.
local function sides(row)
  if row.kinks == nil then return row.x or {}, row.y or {} end
  return { lo = 0.5, hi = 2, away = { 0.5, 1, 1.5, 2 }, ints = { 0, 4 } },
    { lo = -0.1, hi = 0.1, ints = { -4, 4 } }
end

-- shapes, options of the third tensor (nil: absent), for all reductions.
local function samples_of(row, more)
  local list = {}
  local xo, yo = sides(row)
  local function add(shape, third, reduction, parameter)
    local arguments, n = { T(shape, xo), T(shape, yo) }, 2
    if row.third then
      n = n + 1
      arguments[n] = third and T(third, { lo = 0.5, hi = 3, ints = { 1, 3 }, grad = false }) or nil
    end
    n = n + 1
    arguments[n] = reduction
    if row.parameters and parameter then
      n = n + 1
      arguments[n] = parameter
    end
    list[#list + 1] = S(unpack(arguments, 1, n))
  end
  local thirds = row.third and { false, { 5 }, { 3, 5 }, {} } or { false }
  for _, reduction in ipairs(REDUCTIONS) do
    for _, third in ipairs(thirds) do add({ 3, 5 }, third, reduction) end
    for _, parameter in ipairs(row.parameters or {}) do add({ 3, 5 }, nil, reduction, parameter) end
    add({}, nil, reduction)
    add({ 2, 3, 2, 2 }, row.third and { 3, 1, 1 } or nil, reduction)
    add({ 70 }, nil, reduction)
    if reduction ~= "mean" then add({ 0, 3 }, nil, reduction) end
  end
  add({ 3, 5 }, nil, nil)
  for _, sample in ipairs(more or {}) do list[#list + 1] = sample end
  return list
end

local function shape_errors(has_third, extra)
  local list = {
    { S(T { 3, 1 }, T { 3 }), "input has shape (3, 1) but target has (3,), and they are compared element by element" },
    { S(T { 3 }, T { 1, 3 }), "reshape one, e.g. target:reshape(3,)" },
    { S(T { 3, 2 }, T { 2 }), "input has shape (3, 2) but target has (2,): they must be equal (expand_as" },
    { S(T {}, T { 3 }), "input has shape () but target has (3,)" }, { S(T { 3 }, 1), "expected a tensor" },
    { has_third and S(T { 3 }, T { 3 }, nil, "average") or S(T { 3 }, T { 3 }, "average"),
      "expected one of \"none\", \"mean\", \"sum\"" },
  }
  for _, case in ipairs(extra or {}) do list[#list + 1] = case end
  return list
end

local function loss_entry(name)
  local row = LOSSES[name]
  local default = row.parameters and row.parameters[1]
  local large = {}
  for i, reduction in ipairs { "mean", "none" } do
    local x, y = T({ 300, 257 }, row.x), T({ 300, 257 }, row.y)
    local third = row.third and T({ 257 }, { lo = 0.5, hi = 2, grad = false })
    large[i] = third and S(x, y, third, reduction) or S(x, y, reduction)
  end
  return {
    dtypes = "floating_bool", floor = 1, samples = samples_of(row, row.samples),
    errors = shape_errors(row.third, row.errors), tails = nil,
    ref = function(x, y, ...)
      local w, reduction, parameter
      if row.third then w, reduction = ... else reduction, parameter = ... end
      return reduced(nd.map(function(a, b, c) return row.value(a, b, c, parameter or default) end, x, y, w or 1),
        reduction or "mean")
    end,
    large = large,
  }
end

-- `name_backward(dy, input, target, third?, reduction, parameter?, side)`.
local function backward_entry(name)
  local row = LOSSES[name]
  local list = {}
  for _, sample in ipairs(samples_of(row)) do
    local at = row.third and 4 or 3
    local reduction = sample[at]
    if reduction and (not row.parameters or sample[at + 1]) then
      for side = 0, 1 do
        local shape = reduction == "none" and sample[1].shape or {}
        local copy = { T(shape) }
        for i = 1, sample.n do copy[i + 1] = sample[i] end
        -- tensors of their own: values depend on the place
        for i = 1, sample.n do
          if type(sample[i]) == "table" then copy[i + 1] = T(sample[i].shape, sample[i]) end
        end
        copy[sample.n + 2] = side
        list[#list + 1] = S(unpack(copy, 1, sample.n + 2))
      end
    end
  end
  return {
    dtypes = "float", samples = list, dense = false,
    ref = function(dy, x, y, ...)
      local given = { ... }
      local at = row.third and 2 or 1
      local reduction, parameter = given[at], row.parameters and given[at + 1]
      local side = given[at + (row.parameters and 2 or 1)]
      local slope, n = side == 0 and row.dx or row.dy, reduction == "mean" and #x.list or 1
      return nd.map(function(g, a, b, w) return g / n * slope(a, b, w, parameter) end, dy, x, y,
        row.third and given[1] or 1)
    end,
  }
end

-- binary_cross_entropy and its form of logits: weight and pos_weight broadcast.
local function weighted(row, more)
  local xo, yo = sides(row)
  local w = { lo = 0.5, hi = 2, ints = { 1, 3 } }
  local list = {
    S(T({ 3, 5 }, xo), T({ 3, 5 }, yo)), S(T({}, xo), T({}, yo)),
    S(T({ 2, 3, 2, 2 }, xo), T({ 2, 3, 2, 2 }, yo), T({ 3, 1, 1 }, w), "sum"),
    S(T({ 0, 3 }, xo), T({ 0, 3 }, yo), nil, "sum"),
  }
  for _, reduction in ipairs(REDUCTIONS) do
    list[#list + 1] = S(T({ 3, 5 }, xo), T({ 3, 5 }, yo), nil, reduction)
    list[#list + 1] = S(T({ 3, 5 }, xo), T({ 3, 5 }, yo), T({ 3, 5 }, w), reduction)
    list[#list + 1] = S(T({ 3, 5 }, xo), T({ 3, 5 }, yo), T({ 5 }, w), reduction)
  end
  for _, sample in ipairs(more(xo, yo, w)) do list[#list + 1] = sample end
  return {
    dtypes = "floating_bool", samples = list,
    ref = function(x, y, weight, reduction, pos_weight)
      local loss = nd.map(function(a, b, c, p) return c * row.value(a, b, p) end, x, y, weight or 1, pos_weight or 1)
      return reduced(loss, reduction or "mean")
    end,
    errors = shape_errors(true, {
      { S(T({ 3, 2 }, xo), T({ 3, 2 }, yo), T { 3 }),
        "weight of shape (3,) does not broadcast to the input's shape (3, 2)" },
      { S(T({ 2 }, xo), T({ 2 }, yo), T { 3, 2 }), "weight of shape (3, 2) does not broadcast" },
    }),
  }
end

local entries = {}
for name in pairs(LOSSES) do
  entries[name] = loss_entry(name)
  entries[name .. "_backward"] = backward_entry(name)
end

-- With beta 0 it is the absolute error.
entries.smooth_l1_loss.samples[#entries.smooth_l1_loss.samples + 1] =
  S(T({ 3, 5 }, { lo = 0.5, hi = 2 }), T({ 3, 5 }, { lo = -2, hi = 0 }), "none", 0)

entries.bce_logits_native.errors[#entries.bce_logits_native.errors + 1] = {
  S(T { 3, 2 }, T { 3, 2 }, T { 3 }), "pos_weight of shape (3,) does not broadcast to the input's shape (3, 2)",
}

entries.bce_native.check = function(_, run)
  local loss = cnn.core.internal.bce_native
  run("is finite at 0 and 1, and refuses what is no probability", function()
    local x = cnn.tensor({ 0, 1, 0, 1 }):requires_grad_()
    local y = cnn.tensor { 0, 1, 1, 0 }
    local l = loss(x, y, "none")
    assert.same({ 0, 0, 100, 100 }, l:totable())
    l:sum():backward()
    assert.same({ 0, 0, -1, 1 }, (x.grad / 1e12):totable())
    for _, bad in ipairs { -0.1, 1.1, 0 / 0 } do
      for i = 1, 2 do
        local pair = { cnn.tensor { 0.5, 0.5 }, cnn.tensor { 0.5, 0.5 } }
        pair[i][2] = bad
        assert.is_false((pcall(loss, pair[1], pair[2], "mean")), ("%g as argument %d"):format(bad, i))
      end
    end
  end)
end

entries.mse_loss.check = function(_, run)
  run("is NaN as the mean of nothing", function()
    local v = cnn.mse_loss(cnn.zeros(0, 3), cnn.zeros(0, 3)):item()
    assert.is_true(v ~= v)
  end)
end

entries.bce_logits_native.check = function(_, run)
  local loss = cnn.core.internal.bce_logits_native
  run("is right for logits of any size", function()
    local x = cnn.tensor({ 1000, -1000, 1000, -1000 }):requires_grad_()
    local l = loss(x, cnn.tensor { 1, 0, 0, 1 }, nil, "none")
    assert.same({ 0, 0, 1000, 1000 }, l:totable())
    l:sum():backward()
    assert.same({ 0, 0, 1, -1 }, x.grad:totable())
  end)
  run("has no gradient for pos_weight", function()
    local w = cnn.ones({ 2 }, { requires_grad = true })
    local ok, message = pcall(loss, cnn.zeros(2), cnn.zeros(2), w, "mean")
    assert.is_false(ok)
    assert.truthy(tostring(message):find("pos_weight requires a gradient, which is not written", 1, true))
  end)
end

entries.binary_cross_entropy = weighted(LOSSES.bce_native, function() return {} end)
entries.binary_cross_entropy_with_logits = weighted(LOSSES.bce_logits_native, function(xo, yo, w)
  local p = { lo = 0.5, hi = 3, ints = { 1, 3 }, grad = false }
  return {
    S(T({ 3, 5 }, xo), T({ 3, 5 }, yo), nil, "mean", T({ 5 }, p)),
    S(T({ 3, 5 }, xo), T({ 3, 5 }, yo), T({ 3, 1 }, w), "none", T({}, p)),
    S(T({ 3, 5 }, xo), T({ 3, 5 }, yo), T({ 5 }, w), "sum", T({ 3, 5 }, p)),
  }
end)
entries.binary_cross_entropy_with_logits.errors[#entries.binary_cross_entropy_with_logits.errors + 1] = {
  S(T { 3, 2 }, T { 3, 2 }, nil, "mean", T { 3 }),
  "pos_weight of shape (3,) does not broadcast to the input's shape (3, 2)",
}

return entries
