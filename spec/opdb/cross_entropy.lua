-- SPDX-License-Identifier: MIT
-- Cross entropy and the negative log likelihood (csrc/ops/cross_entropy.c).
local assert = require "luassert"
local cnn = require "cnn"
local db = require "spec.opdb"
local T, I, S, nd = db.T, db.I, db.S, db.nd
local unpack = table.unpack or unpack -- luacheck: ignore

-- ---------------------------------------------------------------------------------------------
-- References

local function class_dim(shape) return #shape > 1 and 2 or 1 end

local function row_shape(shape)
  local list = { unpack(shape) }
  table.remove(list, class_dim(shape))
  return list
end

-- Calls visit(number of the row, value(c) = place in x's list) for every row, in the order of labels.
local function each_row(shape, visit)
  local dim, number = class_dim(shape), 0
  local x = { shape = shape }
  nd.each(row_shape(shape), function(at)
    number = number + 1
    local place = { unpack(at) }
    table.insert(place, dim, 0)
    visit(number, function(c)
      place[dim] = c
      return nd.place(x, place)
    end)
  end)
end

-- The largest of a row and the logarithm of the sum of e^x.
local function log_sum_exp(x, place, classes)
  local largest, sum = -math.huge, 0
  for c = 1, classes do largest = math.max(largest, x.list[place(c)]) end
  for c = 1, classes do sum = sum + math.exp(x.list[place(c)] - largest) end
  return largest, largest + math.log(sum)
end

-- How much each class of a row with that label counts: a list, or nil where the row is ignored.
local function weights_of(label, classes, weight, ignored, smoothing)
  if label == ignored then return nil end
  local list = {}
  for c = 1, classes do
    local w = weight and weight(c) or 1
    list[c] = w * (smoothing or 0) / classes + (c == label and w * (1 - (smoothing or 0)) or 0)
  end
  return list
end

-- The weight that the rows have in a mean; 1 where all of several rows are ignored.
local function total_weight(target, weight, ignored)
  local total, counted = 0, false
  for _, label in ipairs(target.list) do
    if label ~= ignored then
      counted = true
      total = total + (weight and weight(label) or 1)
    end
  end
  return #target.list > 0 and not counted and 1 or total
end

local function reduced(losses, shape, reduction, total)
  if reduction == "none" then return nd.new(shape, losses) end
  local sum = nd.total(losses)
  return nd.scalar(reduction == "sum" and sum or sum / total)
end

-- loss, logarithm of the sum of e^x per row, total weight.
local function with_labels(x, target, weight, ignored, reduction, smoothing)
  local classes, losses, sums = x.shape[class_dim(x.shape)], {}, {}
  each_row(x.shape, function(i, place)
    local _, log_sum = log_sum_exp(x, place, classes)
    local loss = 0
    for c, w in ipairs(weights_of(target.list[i], classes, weight, ignored, smoothing) or {}) do
      loss = loss + w * (log_sum - x.list[place(c)])
    end
    losses[i], sums[i] = loss, log_sum
  end)
  local rows, total = row_shape(x.shape), total_weight(target, weight, ignored)
  return reduced(losses, rows, reduction or "mean", total), nd.new(rows, sums), nd.scalar(total)
end

local function with_probabilities(x, target, weight, reduction, smoothing)
  local classes, losses = x.shape[class_dim(x.shape)], {}
  each_row(x.shape, function(i, place)
    local _, log_sum = log_sum_exp(x, place, classes)
    local loss = 0
    for c = 1, classes do
      local p = target.list[place(c)] * (1 - (smoothing or 0)) + (smoothing or 0) / classes
      loss = loss + p * (weight and weight(c) or 1) * (log_sum - x.list[place(c)])
    end
    losses[i] = loss
  end)
  return reduced(losses, row_shape(x.shape), reduction or "mean", #losses)
end

local function nll(x, target, weight, ignored, reduction)
  local losses = {}
  each_row(x.shape, function(i, place)
    local label = target.list[i]
    losses[i] = label == ignored and 0 or -(weight and weight(label) or 1) * x.list[place(label)]
  end)
  local total = total_weight(target, weight, ignored)
  return reduced(losses, row_shape(x.shape), reduction or "mean", total), nd.scalar(total)
end

-- What the loss of row i is multiplied by in the result's gradient.
local function row_factor(dy, i, reduction, total)
  if reduction == "none" then return dy.list[i] end
  return reduction == "mean" and dy.list[1] / total.list[1] or dy.list[1]
end

-- ---------------------------------------------------------------------------------------------
-- Samples: shape of the input, of the weights, label to leave out, reduction, smoothing

local W = { lo = 0.5, hi = 2, grad = false }
local KINDS = {
  { { 3, 5 } }, { { 5 } }, { { 2, 4, 3 } }, { { 2, 3, 2, 2 } }, { { 3, 5 }, true }, { { 3, 5 }, nil, 2 },
  { { 6, 3 }, true, 2, "sum" },
  { { 3, 5 }, nil, nil, "none" }, { { 3, 5 }, true, nil, "none" }, { { 2, 4, 3 }, true, 1, "none" },
  { { 3, 5 }, nil, nil, "sum" },
  { { 5 }, true, nil, "none" }, { { 5 }, true, 3, "sum" }, { { 3, 1 } }, { { 0, 4 }, nil, nil, "sum" },
  { { 0, 4 }, nil, nil, "none" },
  { { 2, 4, 0 }, true, nil, "sum" }, { { 3, 70 } }, { { 2, 33, 3 }, true },
}
local SMOOTH = {
  { { 3, 5 }, nil, nil, "mean", 0.1 }, { { 3, 5 }, true, nil, "mean", 0.3 }, { { 3, 5 }, true, 2, "none", 0.2 },
  { { 5 }, nil, nil, "none", 1 },
  { { 2, 4, 3 }, true, 3, "sum", 0.1 }, { { 2, 3, 2, 2 }, nil, 1, "mean", 0.25 }, { { 3, 70 }, nil, nil, "none", 0.1 },
}

-- make(input's shape, classes, shape of the labels, weight (or nil), ignored, reduction, smoothing)
local function samples_of(kinds, make)
  local list = {}
  for _, kind in ipairs(kinds) do
    local shape, weight, ignored, reduction, smoothing = unpack(kind, 1, 5)
    local classes = shape[class_dim(shape)]
    list[#list + 1] = make(shape, classes, row_shape(shape), weight and T({ classes }, W) or nil, ignored, reduction,
      smoothing)
  end
  return list
end

local function joined(...)
  local list = {}
  for _, part in ipairs { ... } do
    for _, v in ipairs(part) do list[#list + 1] = v end
  end
  return list
end

-- Labels of other dtypes, all rows ignored, weights of another dtype.
local function label_samples()
  return {
    S(T { 3, 5 }, I({ 3 }, { 5, 1, 2 }, { dtype = "uint8" })),
    S(T { 3, 5 }, I({ 3 }, { 5, 1, 2 }, { dtype = "int16" })),
    S(T { 3, 5 }, I({ 3 }, { 2, 2, 2 }), nil, 2), S(T { 3, 5 }, I({ 3 }, { 2, 2, 2 }), T({ 5 }, W), 2, "sum"),
    S(T { 3, 5 }, I({ 3 }, { 4, 2, 4 }), nil, 7), -- a label beyond the classes may be the one to leave out
    S(T { 3, 5 }, I({ 3 }, { 7, 2, 7 }), nil, 7), S(T { 3, 5 }, I({ 3 }, { 5, 1, 2 }),
    T({ 5 }, { lo = 0.5, hi = 2, grad = false, dtype = "float64" })),
    S(T { 3, 5 }, I({ 3 }, { 5, 1, 2 }), T({ 5 }, { values = { 1, 2, 0, 0.5, 0 }, grad = false }), nil, "mean"),
  }
end

local function label_errors(more)
  return joined({
    { S(T {}, I({}, 1)), "input is a scalar: expected (C), (N, C) or (N, C, ...)" },
    { S(T { 3, 5 }, I({ 2 }, 5)),
      "input (3, 5) (classes in dim 2) needs labels of shape (3,), but target has shape (2,)" },
    { S(T { 5 }, I({ 1 }, 5)), "input (5,) (classes in dim 1) needs labels of shape (), but target has shape (1,)" },
    { S(T { 2, 4, 3 }, I({ 2, 4 }, 3)), "needs labels of shape (2, 3), but target has shape (2, 4)" },
    { S(T { 3, 5 }, T({ 3 }, { dtype = "bool" })), "target is bool: labels are integers, use target:long()" },
    { S(T { 3, 5 }, I({ 3 }, 5), T { 4 }), "weight has shape (4,), but there are 5 classes" },
    { S(T { 3, 5 }, I({ 3 }, 5), T { 1, 5 }), "weight has shape (1, 5), but there are 5 classes" },
    { S(T { 3, 5 }, I({ 3 }, 5), T({ 5 }, { dtype = "int64" })), "weight is int64, not a float: use weight:float()" },
    { S(T { 3, 5 }, I({ 3 }, { 1, 6, 2 })), "label 6 is out of range: there are 5 classes (1..5)" },
    { S(T { 3, 5 }, I({ 3 }, { 1, 0, 2 })), "label 0: labels start at 1" },
    { S(T { 3, 5 }, I({ 3 }, { 1, -1, 2 })), "label -1" }, { S(T { 3, 5 }, I({ 3 }, { 1, 9, 2 }), nil, 7),
    "label 9 is out of range" },
    { S(T { 3, 5 }, I({ 3 }, 5), nil, 0), "ignore_index 0: labels start at 1" },
    { S(T { 3, 5 }, I({ 3 }, 5), nil, nil, "all"), "expected one of \"none\", \"mean\", \"sum\"" },
    { S(T({ 3, 5 }, { dtype = "int64" }), I({ 3 }, 5)), "input is int64, not a float: use input:float()" },
  }, more or {})
end

-- The rows' numbers in the type that the loss computes in, as the forward op leaves them.
local function computed(x, dtype)
  return x and x:to(dtype == "float64" and "float64" or "float32"):contiguous()
end

local function check_weight_gradient(fn)
  return function(_, run)
    run("has no gradient for weight", function()
      local ok, message = pcall(fn, cnn.zeros(2, 3), cnn.tensor({ 1, 2 }, { dtype = "int64" }),
        cnn.ones({ 3 }, { requires_grad = true }))
      assert.is_false(ok)
      assert.truthy(tostring(message):find("weight requires a gradient, which is not written: detach() it", 1, true))
    end)
    run("is 0 as the mean of ignored rows, and NaN as that of none", function()
      local x = cnn.rand({ 2, 3 }, { requires_grad = true })
      local loss = fn(x, cnn.tensor({ 1, 1 }, { dtype = "int64" }), nil, 1)
      assert.equal(0, loss:item())
      loss:backward()
      assert.equal(0, x.grad:abs():sum():item())
      local none = fn(cnn.zeros(0, 3), cnn.zeros({ 0 }, { dtype = "int64" })):item()
      assert.is_true(none ~= none)
    end)
  end
end

local function probability_samples()
  local p = { lo = 0, hi = 1 }
  return {
    S(T { 3, 5 }, T({ 3, 5 }, p)), S(T { 5 }, T({ 5 }, p)), S(T { 2, 4, 3 }, T({ 2, 4, 3 }, p), T({ 4 }, W), nil,
    "none"),
    S(T { 3, 5 }, T({ 3, 5 }, p), T({ 5 }, W), nil, "sum", 0.2),
    S(T { 2, 3, 2, 2 }, T({ 2, 3, 2, 2 }, p), nil, nil, "mean", 0.1),
    S(T { 5 }, T({ 5 }, p), T({ 5 }, W), nil, "none"), S(T { 0, 3 }, T({ 0, 3 }, p), nil, nil, "sum"),
  }
end

local function plain(shape, classes, rows, weight, ignored, reduction, smoothing)
  return S(T(shape), I(rows, classes), weight, ignored, reduction, smoothing)
end
local function without_smoothing(shape, classes, rows, weight, ignored, reduction)
  return S(T(shape), I(rows, classes), weight, ignored, reduction)
end
-- Ops behind the public ones: the reduction is always given, and the smoothing.
local function native(shape, classes, rows, weight, ignored, reduction, smoothing)
  return S(T(shape), I(rows, classes), weight, ignored, reduction or "mean", smoothing or 0)
end

local internal = cnn.core.internal

return {
  cross_entropy = {
    dtypes = "float", samples = joined(samples_of(joined(KINDS, SMOOTH), plain), label_samples(),
      probability_samples()),
    ref = function(x, target, weight, ignored, reduction, smoothing)
      if db.category(target.dtype) == "float" then
        return with_probabilities(x, target, weight, reduction, smoothing)
      end
      return (with_labels(x, target, weight, ignored, reduction, smoothing))
    end,
    errors = label_errors {
      { S(T { 3, 5 }, I({ 3 }, 5), nil, nil, "mean", 1.5), "label_smoothing must be in [0, 1], not 1.5" },
      { S(T { 3, 5 }, I({ 3 }, 5), nil, nil, "mean", -0.1), "label_smoothing must be in [0, 1]" },
      { S(T { 3, 5 }, T { 3 }), "target of float32 is class probabilities, and has shape (3,) where input has (3, 5)" },
      { S(T { 3, 5 }, T { 3, 5 }, nil, 2), "ignore_index is a label, but target is class probabilities" },
      { S(T { 3, 5 }, T { 3, 5 }, nil, nil, "mean", 2), "label_smoothing must be in [0, 1], not 2" },
      { S(T { 3, 5 }, T { 3, 5 }, T { 3 }), "weight has shape (3,), but there are 5 classes" },
    },
    large = { S(T { 700, 65 }, I({ 700 }, 65)), S(T { 3, 9, 4000 }, I({ 3, 4000 }, 9), T({ 9 }, W), nil, "none", 0.1) },
    check = function(entry, run)
      check_weight_gradient(cnn.cross_entropy)(entry, run)
      run("is right for logits of any size", function()
        local x = cnn.tensor { { 1000, 0 }, { -1000, 0 }, { 1e30, -1e30 } }
        local loss = cnn.cross_entropy(x, cnn.tensor({ 1, 1, 2 }, { dtype = "int64" }), { reduction = "none" })
        assert.same({ 0, 1000 }, loss:narrow(1, 1, 2):totable())
        assert.is_true(loss[3]:item() > 1.9e30)
      end)
    end,
  },
  cross_entropy_native = {
    dtypes = "float",
    -- largest and log_sum have one gradient together, that of their sum
    call = function(...)
      local loss, largest, log_sum, total = internal.cross_entropy_native(...)
      return loss, largest + log_sum, total
    end,
    out = function(dtype)
      local wide = dtype == "float64" and "float64" or "float32"
      return { dtype, wide, wide }
    end,
    samples = samples_of(joined(KINDS, SMOOTH), native), ref = with_labels,
    check = function(_, run)
      run("gives each row's largest logit", function()
        local x = cnn.rand(3, 5, 2)
        local _, largest = internal.cross_entropy_native(x, cnn.ones({ 3, 2 }, { dtype = "int64" }), nil, nil, "sum", 0)
        assert.is_true(largest:eq(x:amax(2)):all():item())
      end)
    end,
  },
  cross_entropy_backward = {
    dtypes = "float",
    call = function(dy, x, target, weight, largest, log_sum, total, ...)
      local dtype = x.dtype
      return internal.cross_entropy_backward(dy, x, target, weight, computed(largest, dtype), computed(log_sum, dtype),
        computed(total, dtype), ...)
    end,
    -- what a row's numbers would be for other logits is no matter
    samples = samples_of(joined(KINDS, SMOOTH), function(shape, classes, rows, weight, ignored, reduction, smoothing)
      reduction = reduction or "mean"
      return S(T(reduction == "none" and rows or {}), T(shape), I(rows, classes), weight, T(rows, { lo = 1, hi = 2 }),
        T(rows, { lo = 1, hi = 2 }), T({}, { lo = 1, hi = 3 }), ignored, reduction, smoothing or 0)
    end),
    ref = function(dy, x, target, weight, largest, log_sum, total, ignored, reduction, smoothing)
      local classes, dx = x.shape[class_dim(x.shape)], nd.new(x.shape, 0)
      each_row(x.shape, function(i, place)
        local weights = weights_of(target.list[i], classes, weight, ignored, smoothing)
        local g, all = row_factor(dy, i, reduction, total), nd.total(weights or {})
        for c, w in ipairs(weights or {}) do
          local p = math.exp(x.list[place(c)] - largest.list[i] - log_sum.list[i])
          dx.list[place(c)] = g * (p * all - w)
        end
      end)
      return dx
    end,
  },
  class_weights = {
    errors = { { S(I({ 3 }, 5), nil, nil, 0, { 3, 5 }, "int64"), "weights are floats, not int64" } },
    dtypes = "none", grad = false, out = function(_, arguments) return arguments[6] end,
    samples = (function()
      local list = {}
      for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
        for _, sample in ipairs(samples_of(joined(KINDS, SMOOTH),
          function(shape, classes, rows, weight, ignored, _, smoothing)
          weight = weight and T({ classes }, { lo = 0.5, hi = 2, dtype = dtype }) or nil
          return S(I(rows, classes), weight, ignored, smoothing or 0, shape, dtype)
        end)) do list[#list + 1] = sample end
      end
      return list
    end)(),
    ref = function(target, weight, ignored, smoothing, shape)
      local classes, y = shape[class_dim(shape)], nd.new(shape, 0)
      each_row(shape, function(i, place)
        for c, w in ipairs(weights_of(target.list[i], classes, weight, ignored, smoothing) or {}) do
          y.list[place(c)] = w
        end
      end)
      return y
    end,
  },
  nll_loss = {
    dtypes = "float", samples = joined(samples_of(KINDS, without_smoothing), label_samples()), errors = label_errors(),
    ref = function(...) return (nll(...)) end,
    large = { S(T { 9000, 9 }, I({ 9000 }, 9)), S(T { 3, 9, 4000 }, I({ 3, 4000 }, 9), T({ 9 }, W), nil, "none") },
    check = check_weight_gradient(cnn.nll_loss),
  },
  nll_loss_native = {
    dtypes = "float", ref = nll,
    out = function(dtype) return { dtype, dtype == "float64" and "float64" or "float32" } end,
    samples = samples_of(KINDS, function(shape, classes, rows, weight, ignored, reduction)
      return S(T(shape), I(rows, classes), weight, ignored, reduction or "mean")
    end),
  },
  nll_loss_backward = {
    dtypes = "float",
    -- its derivative is the loss once more, so the total weight is that of these rows
    call = function(dy, target, weight, shape, ...)
      local x = cnn.zeros(shape, { dtype = dy.dtype, device = tostring(dy.device) })
      local _, total = internal.nll_loss_native(x, target, weight, (...), "sum")
      return internal.nll_loss_backward(dy, target, weight, total, shape, ...)
    end,
    samples = samples_of(KINDS, function(shape, classes, rows, weight, ignored, reduction)
      reduction = reduction or "mean"
      return S(T(reduction == "none" and rows or {}), I(rows, classes), weight, shape, ignored, reduction)
    end),
    ref = function(dy, target, weight, shape, ignored, reduction)
      local dx, total = nd.new(shape, 0), nd.scalar(total_weight(target, weight, ignored))
      each_row(shape, function(i, place)
        local label = target.list[i]
        if label == ignored then return end
        dx.list[place(label)] = -(weight and weight(label) or 1) * row_factor(dy, i, reduction, total)
      end)
      return dx
    end,
  },
}
