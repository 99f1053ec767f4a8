-- SPDX-License-Identifier: MIT
-- Losses against plain references and difference quotients; labels, limits and messages.
local cnn = require "cnn"
local helper = require "spec.helper"
local F = cnn.F
local unpack = table.unpack or unpack -- luacheck: ignore
local huge = math.huge

local function labels(list, dtype)
  return cnn.tensor(list, { dtype = dtype or "int64" })
end

local function leaf(...)
  return cnn.randn({ ... }, { dtype = "float64", requires_grad = true })
end

-- Numbers in (0.1, 0.9).
local function fractions(...)
  return (cnn.rand({ ... }, { dtype = "float64" }) * 0.8 + 0.1):detach():requires_grad_()
end

-- Whether all elements are the same, to the last bit.
local function same(x, y)
  return x:eq(y):all():item()
end

-- How much each class of a row counts; nil for a row that is ignored.
local function class_weights(label, classes, o)
  if label == o.ignore_index then return nil end
  local e, w = o.label_smoothing or 0, {}
  for c = 1, classes do
    w[c] = ((c == label and 1 - e or 0) + e / classes) * (o.weight and o.weight:get(c) or 1)
  end
  return w
end

-- The loss of rows, a list of lists of logits.
local function cross_entropy(rows, targets, o)
  local losses, total, weights = {}, 0, 0
  for i, row in ipairs(rows) do
    local w, largest, sum = class_weights(targets[i], #row, o), -huge, 0
    for _, v in ipairs(row) do largest = math.max(largest, v) end
    for _, v in ipairs(row) do sum = sum + math.exp(v - largest) end
    losses[i] = 0
    for c, v in ipairs(w and row or {}) do losses[i] = losses[i] - w[c] * (v - largest - math.log(sum)) end
    total = total + losses[i]
    if w then weights = weights + (o.weight and o.weight:get(targets[i]) or 1) end
  end
  if o.reduction == "none" then return losses end
  return o.reduction == "sum" and total or weights > 0 and total / weights or 0
end

describe("cross_entropy", function()
  it("is what its formula says, for any number of classes", function()
    for _, n in ipairs { 1, 2, 3, 15, 16, 17, 31, 32, 33, 67, 4100 } do
      local x, t = cnn.randn(3, n, { dtype = "float64" }) * 4, {}
      for i = 1, 3 do t[i] = math.random(n) end
      for _, reduction in ipairs { "none", "mean", "sum" } do
        for _, o in ipairs { {}, { label_smoothing = 0.2 }, { weight = cnn.rand(n, { dtype = "float64" }) + 0.1 },
          { weight = cnn.rand(n, { dtype = "float64" }) + 0.1, label_smoothing = 0.3, ignore_index = t[2] } } do
          o.reduction = reduction
          local expected = cross_entropy(x:totable(), t, o)
          if type(expected) == "number" then expected = { expected } end
          helper.elements(F.cross_entropy(x, labels(t), o), expected, 1e-10)
          helper.elements(F.cross_entropy(x:t():contiguous():t(), labels(t), o), expected, 1e-10)
          local weight = o.weight
          o.weight = weight and weight:float()
          helper.elements(F.cross_entropy(x:float(), labels(t), o), expected, 1e-4)
          helper.elements(F.cross_entropy(x:half(), labels(t), o), expected, 2e-2)
          o.weight = weight
        end
      end
    end
  end)

  it("has the class dim second, whatever follows and however it lies in memory", function()
    for _, shape in ipairs { { 2, 5, 3 }, { 2, 3, 4, 5 }, { 2, 40, 9, 31 }, { 1, 3, 2, 3, 8 } } do
      local rows_shape = { shape[1], unpack(shape, 3) }
      local x, t = cnn.randn(shape, { dtype = "float64" }), cnn.randint(1, shape[2] + 1, rows_shape)
      local order = { 1 }
      for d = 3, #shape do order[#order + 1] = d end
      order[#order + 1] = 2
      local rows = x:permute(unpack(order)):reshape(-1, shape[2])
      for _, o in ipairs { {}, { label_smoothing = 0.1, ignore_index = 2, weight = cnn.rand(shape[2]):double() } } do
        o.reduction = "none"
        local expected = F.cross_entropy(rows, t:flatten(), o)
        local last = { unpack(rows_shape) }
        last[#last + 1] = shape[2]
        local views = { x, rows:reshape(last):movedim(-1, 2) }
        if #shape == 4 then views[3] = x:contiguous("channels_last") end
        for _, v in ipairs(views) do
          v = v:detach():requires_grad_()
          local loss = F.cross_entropy(v, t, o)
          helper.elements(loss, helper.flat(expected), 1e-12)
          loss:sum():backward()
          local r = rows:detach():requires_grad_()
          F.cross_entropy(r, t:flatten(), o):sum():backward()
          helper.elements(v.grad:permute(unpack(order)), helper.flat(r.grad), 1e-12)
        end
      end
    end
  end)

  it("takes a single example, and labels of every integer dtype", function()
    local x = cnn.randn(5)
    local expected = F.cross_entropy(x:unsqueeze(1), labels { 4 }):item()
    assert.is_true(helper.near(expected, F.cross_entropy(x, labels(4)):item(), 1e-6))
    for _, dtype in ipairs { "int64", "int32", "int16", "int8", "uint8" } do
      assert.is_true(helper.near(expected, F.cross_entropy(x, labels(4, dtype)):item(), 1e-6))
      assert.is_true(helper.near(expected, F.cross_entropy(x:unsqueeze(1), labels({ 4 }, dtype)):item(), 1e-6))
    end
  end)

  it("is right for logits of any size", function()
    local x = cnn.tensor({ { 1000, 0, -1000 }, { 10000.5, 10000, 9999 }, { -huge, 1, 2 }, { 3e38, 0, -3e38 } },
      { requires_grad = true })
    local loss = F.cross_entropy(x, labels { 1, 2, 2, 1 }, { reduction = "none" })
    helper.elements(loss, { 0, 1.1041, 1.3132617, 0 }, 1e-3)
    loss:sum():backward()
    helper.elements(x.grad, { { 0, 0, 0 }, { 0.54654, -0.66850, 0.12195 }, { 0, -0.7310586, 0.7310586 }, { 0, 0, 0 } },
      1e-3)
    assert.equal(0, x.grad:get(3, 1))
    assert.equal(huge, F.cross_entropy(cnn.tensor { { -huge, 1 } }, labels { 1 }):item())
  end)

  it("leaves ignored rows out, whatever is in them", function()
    local x = cnn.tensor({ { 0 / 0, 1, 2 }, { 1, 2, 3 }, { huge, 0, 0 } }, { requires_grad = true })
    for _, o in ipairs { {}, { label_smoothing = 0.1 } } do
      o.ignore_index = 255
      local expected = F.cross_entropy(x:detach()[{ { 2, 2 } }], labels { 1 }, o):item()
      for _, reduction in ipairs { "mean", "sum" } do
        o.reduction = reduction
        x.grad = nil
        local loss = F.cross_entropy(x, labels { 255, 1, 255 }, o)
        assert.equal(expected, loss:item())
        loss:backward()
        assert.same({ 0, 0, 0 }, x.grad[1]:totable())
        assert.same({ 0, 0, 0 }, x.grad[3]:totable())
      end
      o.reduction = "none"
      assert.same({ 0, expected, 0 }, F.cross_entropy(x, labels { 255, 1, 255 }, o):totable())
    end
    x.grad = nil
    local none = F.cross_entropy(x, labels { 2, 2, 2 }, { ignore_index = 2 })
    assert.equal(0, none:item())
    none:backward()
    helper.elements(x.grad, { 0, 0, 0, 0, 0, 0, 0, 0, 0 })
    -- The same class by class.
    local image = cnn.full({ 1, 2, 3, 5 }, 0 / 0):requires_grad_()
    F.cross_entropy(image, cnn.ones(1, 3, 5):to("int64"), { ignore_index = 1 }):backward()
    assert.equal(0, image.grad:abs():sum():item())
  end)

  it("takes class probabilities", function()
    local x, p = leaf(4, 3, 5), cnn.randn(4, 3, 5, { dtype = "float64" }):softmax(2)
    local w = cnn.rand(3, { dtype = "float64" })
    local expected = -(p * 0.8 + 0.2 / 3) * w:view(3, 1) * x:log_softmax(2)
    local o = { weight = w, label_smoothing = 0.2, reduction = "sum" }
    helper.elements(F.cross_entropy(x, p, o), { expected:sum():item() }, 1e-10)
    o.reduction = "none"
    helper.elements(F.cross_entropy(x, p, o), helper.flat(expected:sum(2)), 1e-10)
    o.reduction = "mean"
    helper.elements(F.cross_entropy(x, p, o), { expected:sum():item() / 20 }, 1e-10)
    local t = labels { 2, 1, 3, 3 }
    local hot = F.one_hot(t, 3):double()
    assert.is_true(helper.near(F.cross_entropy(x[{ {}, {}, 1 }], t):item(),
      F.cross_entropy(x[{ {}, {}, 1 }], hot):item(), 1e-12))
  end)

  it("has right gradients of the first and second order", function()
    local w = cnn.rand(4, { dtype = "float64" })
    for _, shape in ipairs { { 3, 4 }, { 2, 4, 3 }, { 2, 4, 2, 5 } } do
      local x, t = leaf(unpack(shape)), cnn.randint(1, 5, { shape[1], unpack(shape, 3) })
      for _, reduction in ipairs { "none", "mean", "sum" } do
        for _, o in ipairs { {}, { label_smoothing = 0.3 }, { weight = w, ignore_index = 2, label_smoothing = 0.1 } } do
          o.reduction = reduction
          assert.is_true(cnn.gradcheck(function(x_) return F.cross_entropy(x_, t, o) end, { x }, { second = true }))
        end
        assert.is_true(cnn.gradcheck(function(x_)
          return F.nll_loss(x_, t, { weight = w, ignore_index = 1, reduction = reduction })
        end, { x }, { second = true }))
        assert.is_true(cnn.gradcheck(function(x_, p_)
          return F.cross_entropy(x_, p_, { weight = w, label_smoothing = 0.1, reduction = reduction })
        end, { x, fractions(unpack(shape)) }, { second = true }))
      end
    end
  end)

  it("gives the same by any number of threads", function()
    for _, shape in ipairs { { 300, 700 }, { 2, 21, 90, 80 } } do
      local results = {}
      for k, threads in ipairs { 1, 2, 5 } do
        cnn.manual_seed(5)
        cnn.set_num_threads(threads)
        local x = cnn.randn(shape, { requires_grad = true })
        local t = cnn.randint(1, shape[2] + 1, { shape[1], unpack(shape, 3) })
        local loss = F.cross_entropy(x, t, { label_smoothing = 0.1 })
        loss:backward()
        results[k] = { loss:item(), x.grad }
      end
      cnn.set_num_threads(0)
      for k = 2, 3 do
        assert.equal(results[1][1], results[k][1])
        assert.is_true(same(results[1][2], results[k][2]))
      end
    end
  end)

  it("takes an empty batch", function()
    local x = cnn.zeros(0, 3, { requires_grad = true })
    local t = cnn.zeros(0, { dtype = "int64" })
    local sum = F.cross_entropy(x, t, { reduction = "sum" })
    assert.equal(0, sum:item())
    sum:backward()
    assert.is_true(x.grad:has_shape(0, 3))
    assert.is_true(F.cross_entropy(x, t, { reduction = "none" }):has_shape(0))
  end)

  it("says what is wrong", function()
    local x = cnn.randn(4, 10)
    local function fails(text, ...) helper.raises("cross_entropy: " .. text, F.cross_entropy, ...) end
    fails("label 12 is out of range: there are 10 classes (1..10)", x, labels { 1, 12, 3, 4 })
    fails("label 0: labels start at 1", x, labels { 1, 2, 3, 0 })
    fails("label -100 is out of range", x, labels { 1, -100, 3, 4 })
    fails("label 4 is out of range: there are 3 classes", cnn.randn(2, 3, 4, 5), cnn.full({ 2, 4, 5 }, 4):to("int64"))
    fails("ignore_index 0: labels start at 1", x, labels { 1, 2, 3, 4 }, { ignore_index = 0 })
    fails("input (4, 10) (classes in dim 2) needs labels of shape (4,), but target has shape (3,)", x,
      labels { 1, 2, 3 })
    fails("target of float32 is class probabilities, and has shape (4,)", x, cnn.ones(4))
    fails("weight has shape (4,), but there are 10 classes", x, labels { 1, 2, 3, 4 }, { weight = cnn.ones(4) })
    fails("weight has shape (4,), but there are 10 classes", x, cnn.ones(4, 10), { weight = cnn.ones(4) })
    fails("label_smoothing must be in [0, 1], not 1.5", x, labels { 1, 2, 3, 4 }, { label_smoothing = 1.5 })
    fails("ignore_index is a label, but target is class probabilities", x, cnn.ones(4, 10), { ignore_index = 1 })
    fails("input is int64, not a float", x:to("int64"), labels { 1, 2, 3, 4 })
    helper.raises("nll_loss: label 11 is out of range", F.nll_loss, x, labels { 1, 11, 3, 4 })
  end)
end)

describe("nll_loss", function()
  it("is cross_entropy of log-probabilities", function()
    for _, shape in ipairs { { 6, 4 }, { 2, 4, 3 }, { 2, 4, 9, 8 } } do
      local x = cnn.randn(shape):requires_grad_()
      local t = cnn.randint(1, 5, { shape[1], unpack(shape, 3) })
      for _, reduction in ipairs { "none", "mean", "sum" } do
        for _, o in ipairs { {}, { weight = cnn.tensor { 1, 2, 3, 4 }, ignore_index = 3 } } do
          o.reduction = reduction
          local a = F.cross_entropy(x, t, o)
          local b = F.nll_loss(x:log_softmax(2), t, o)
          helper.elements(a, helper.flat(b), 1e-5)
          x.grad = nil
          a:sum():backward()
          local grad = x.grad
          x.grad = nil
          b:sum():backward()
          helper.elements(x.grad, helper.flat(grad), 1e-5)
        end
      end
    end
    local none = F.nll_loss(cnn.ones(2, 3), labels { 1, 1 }, { ignore_index = 1 })
    assert.equal(0, none:item())
  end)
end)

-- Elementwise losses: of x, t, and options.
local formulas = {
  mse_loss = { {}, function(x, t) return (x - t) ^ 2 end },
  l1_loss = { {}, function(x, t) return math.abs(x - t) end },
  smooth_l1_loss = { { beta = 0.7 }, function(x, t)
    local d = math.abs(x - t)
    return d < 0.7 and d * d / 1.4 or d - 0.35
  end },
  huber_loss = { { delta = 0.6 }, function(x, t)
    local d = math.abs(x - t)
    return d <= 0.6 and d * d / 2 or 0.6 * (d - 0.3)
  end },
  binary_cross_entropy = { {}, function(x, t) return -t * math.log(x) - (1 - t) * math.log(1 - x) end },
  binary_cross_entropy_with_logits = { {}, function(x, t)
    return (1 - t) * x + math.log(1 + math.exp(-x))
  end },
}

describe("losses of equal shapes", function()
  for name, entry in pairs(formulas) do
    local loss, formula = F[name], entry[2]

    local function options(reduction)
      local o = { reduction = reduction }
      for k, v in pairs(entry[1]) do o[k] = v end
      return o
    end

    it(name .. " is what its formula says", function()
      for _, shape in ipairs { { 1 }, { 67 }, { 3, 5, 2 }, { 2, 1100 } } do
        local x, t = fractions(unpack(shape)), fractions(unpack(shape))
        local expected, sum = {}, 0
        local xs, ts = helper.flat(x), helper.flat(t)
        for i, v in ipairs(xs) do
          expected[i] = formula(v, ts[i])
          sum = sum + expected[i]
        end
        helper.elements(loss(x, t, options "none"), expected, 1e-10)
        helper.elements(loss(x, t, options "sum"), { sum }, 1e-10)
        helper.elements(loss(x, t, options "mean"), { sum / #xs }, 1e-10)
        helper.elements(loss(x:float(), t:float(), options "mean"), { sum / #xs }, 1e-5)
        helper.elements(loss(x:bfloat16(), t:bfloat16(), options "mean"), { sum / #xs }, 3e-2)
        local y = x:transpose(1, -1):contiguous():transpose(1, -1)
        helper.elements(loss(y, t, options "none"), expected, 1e-10)
        helper.elements(loss(x:detach()[{ { 1, 1 } }]:expand_as(x), t, options "mean"),
          { loss(x:detach()[{ { 1, 1 } }]:expand_as(x):contiguous(), t, options "mean"):item() }, 1e-12)
      end
      local scalar = loss(cnn.tensor(0.25), cnn.tensor(0.5), options "mean")
      assert.is_true(helper.near(formula(0.25, 0.5), scalar:item(), 1e-6))
    end)

    it(name .. " has right gradients of the first and second order, for both", function()
      for _, shape in ipairs { { 5 }, { 2, 3 } } do
        for _, reduction in ipairs { "none", "mean", "sum" } do
          local o = options(reduction)
          assert.is_true(cnn.gradcheck(function(x, t) return loss(x, t, o) end,
            { fractions(unpack(shape)), fractions(unpack(shape)) }, { second = true }))
        end
      end
    end)

    it(name .. " takes empty tensors and refuses shapes that only broadcast", function()
      local x = cnn.zeros(0, 2, { requires_grad = true })
      local sum = loss(x, cnn.zeros(0, 2), options "sum")
      assert.equal(0, sum:item())
      sum:backward()
      assert.is_true(x.grad:has_shape(0, 2))
      local mean = loss(x, cnn.zeros(0, 2), options "mean"):item()
      assert.is_true(mean ~= mean)
      helper.raises("input has shape (4, 1) but target has (4,), and they are compared element by element: "
        .. "reshape one, e.g. target:reshape(4, 1)", loss, cnn.ones(4, 1), cnn.ones(4))
      helper.raises("input has shape (4, 2) but target has (2,)", loss, cnn.ones(4, 2), cnn.ones(2))
    end)
  end

  it("check their numbers", function()
    local x = cnn.ones(2)
    helper.raises("beta must be >= 0, not -1", F.smooth_l1_loss, x, x, { beta = -1 })
    helper.raises("delta must be > 0, not 0", F.huber_loss, x, x, { delta = 0 })
    assert.equal(2, F.smooth_l1_loss(x + 2, x, { beta = 0 }):item())
    helper.raises("input holds 1.5 but must be probabilities in [0, 1]", F.binary_cross_entropy,
      cnn.tensor { 0.5, 1.5 }, x)
    helper.raises("input holds NaN but must be probabilities", F.binary_cross_entropy, cnn.tensor { 0 / 0, 0.5 }, x)
    helper.raises("target holds 2 but must be in [0, 1]", F.binary_cross_entropy, x, x * 2)
  end)

  it("are exact at the ends", function()
    local x = cnn.tensor({ 0, 1, 0, 1 }, { requires_grad = true })
    local loss = F.binary_cross_entropy(x, cnn.tensor { 0, 1, 1, 0 }, { reduction = "none" })
    assert.same({ 0, 0, 100, 100 }, loss:totable())
    loss:sum():backward()
    assert.same({ 0, 0 }, x.grad[{ { 1, 2 } }]:totable())
    local z = cnn.tensor({ 1e4, -1e4, 1e4, -1e4, 50, -50 }, { requires_grad = true })
    loss = F.binary_cross_entropy_with_logits(z, cnn.tensor { 1, 0, 0, 1, 1, 0 }, { reduction = "none" })
    helper.elements(loss, { 0, 0, 1e4, 1e4, 0, 0 })
    loss:sum():backward()
    helper.elements(z.grad, { 0, 0, 1, -1, 0, 0 })
    -- Not 0, as 1 - sigmoid would be.
    assert.is_true(math.abs(z.grad:get(5) / -1.9287498e-22 - 1) < 1e-3)
    assert.is_true(math.abs(z.grad:get(6) / 1.9287498e-22 - 1) < 1e-3)
  end)

  it("weigh binary cross entropies", function()
    local x, t, w, pw = fractions(3, 4), fractions(3, 4), fractions(4), cnn.rand(4, { dtype = "float64" }) * 3
    local expected = w * F.binary_cross_entropy(x, t, { reduction = "none" })
    helper.elements(F.binary_cross_entropy(x, t, w), { expected:mean():item() }, 1e-12)
    helper.elements(F.binary_cross_entropy(x, t, { weight = w, reduction = "none" }), helper.flat(expected), 1e-12)
    expected = w * ((1 - t) * x + (1 + (pw - 1) * t) * F.softplus(-x))
    helper.elements(F.binary_cross_entropy_with_logits(x, t, { weight = w, pos_weight = pw }),
      { expected:mean():item() }, 1e-12)
    for _, reduction in ipairs { "none", "mean", "sum" } do
      assert.is_true(cnn.gradcheck(function(x_, t_, w_)
        return F.binary_cross_entropy_with_logits(x_, t_, { weight = w_, pos_weight = pw, reduction = reduction })
      end, { x, t, w }, { second = true }))
      assert.is_true(cnn.gradcheck(function(x_, t_, w_) return F.binary_cross_entropy(x_, t_, w_, reduction) end,
        { x, t, w }, { second = true }))
    end
    helper.raises("weight of shape (3,) does not broadcast to the input's shape (3, 4)", F.binary_cross_entropy, x, t,
      cnn.ones(3, { dtype = "float64" }))
    helper.raises("pos_weight of shape (2, 3, 4) does not broadcast to the input's shape (3, 4)",
      F.binary_cross_entropy_with_logits, x, t, { pos_weight = cnn.ones(2, 3, 4, { dtype = "float64" }) })
  end)
end)
