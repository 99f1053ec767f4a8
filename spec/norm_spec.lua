-- SPDX-License-Identifier: MIT
-- Layer and batch normalisation, against a plain reference and difference quotients.
local cnn = require "cnn"
local helper = require "spec.helper"
local F = cnn.F
local unpack = table.unpack or unpack -- luacheck: ignore

-- Whether all elements are the same, to the last bit.
local function same(x, y)
  return x:eq(y):all():item()
end

local function leaf(...)
  return cnn.randn({ ... }, { dtype = "float64", requires_grad = true })
end

-- The same elements at other places in memory: every second one, with a hole in front.
local function spread(x)
  local shape = { 2, unpack(x.shape) }
  shape[#shape] = 2 * shape[#shape] + 1
  local y = cnn.full(shape, 7, { dtype = x.dtype })[2]
  y = y:narrow(-1, 2, shape[#shape] - 1):unflatten(-1, { x:size(-1), 2 }):select(-1, 1)
  cnn.no_grad(function() y:copy_(x) end)
  return y:detach()
end

local function layer_norm(row, eps, w, b)
  local mean, var, out = 0, 0, {}
  for _, v in ipairs(row) do mean = mean + v / #row end
  for _, v in ipairs(row) do var = var + (v - mean) ^ 2 / #row end
  for i, v in ipairs(row) do
    out[i] = (v - mean) / math.sqrt(var + eps) * (w and w[i] or 1) + (b and b[i] or 0)
  end
  return out
end

describe("layer_norm", function()
  it("is what its formula says, for rows of any length", function()
    for _, n in ipairs { 1, 2, 15, 16, 17, 31, 33, 64, 67, 4097 } do
      local x, w, b = cnn.randn(3, n, { dtype = "float64" }), cnn.randn(n, { dtype = "float64" }),
        cnn.randn(n, { dtype = "float64" })
      local expected = {}
      for i = 1, 3 do
        expected[i] = layer_norm(x[i]:totable(), 1e-5, w:totable(), b:totable())
      end
      helper.elements(F.layer_norm(x, n, w, b), expected, 1e-12)
      helper.elements(F.layer_norm(spread(x), { n }, spread(w), spread(b)), expected, 1e-12)
      helper.elements(F.layer_norm(x:float(), { n }, w:float(), b:float()), expected, 1e-5)
    end
  end)

  it("normalises over several dims, with and without weights", function()
    local x = cnn.randn(2, 3, 4, { dtype = "float64" })
    local y = F.layer_norm(x, { 3, 4 }, { eps = 0.1 })
    for i = 1, 2 do helper.elements(y[i], layer_norm(helper.flat(x[i]), 0.1), 1e-12) end
    local w = cnn.randn(3, 4, { dtype = "float64" })
    helper.elements(F.layer_norm(x, { 3, 4 }, w, nil, 0.1), helper.flat(y * w), 1e-12)
    helper.elements(F.layer_norm(x, { 3, 4 }, nil, w, 0.1), helper.flat(y + w), 1e-12)
  end)

  it("loses nothing when the mean is large", function()
    local x = cnn.tensor { 10001, 10002, 10003, 10005 }
    helper.elements(F.layer_norm(x, 4), { -1.1832132, -0.5070914, 0.1690305, 1.5212742 }, 1e-5)
  end)

  it("computes half types in float32, weights of either kind beside them", function()
    local x, w, b = cnn.randn(5, 40), cnn.randn(40), cnn.randn(40)
    for _, dtype in ipairs { "float16", "bfloat16" } do
      local h = x:to(dtype)
      local y = F.layer_norm(h, 40, w, b)
      assert.equal(dtype, y.dtype)
      assert.is_true((y:float() - F.layer_norm(h:float(), 40, w, b)):abs():max():item() < 0.03)
      assert.equal(dtype, F.layer_norm(h, 40, w:to(dtype), b:to(dtype)).dtype)
      w.grad = nil
      w.requires_grad = true
      h.requires_grad = true
      F.layer_norm(h, 40, w, b):sum():backward()
      assert.equal("float32", w.grad.dtype)
      assert.equal(dtype, h.grad.dtype)
      w.requires_grad = false
    end
  end)

  it("has right gradients of the first and second order", function()
    local x, w, b = leaf(2, 3, 4), leaf(3, 4), leaf(3, 4)
    local second = { second = true }
    assert.is_true(cnn.gradcheck(function(...) return F.layer_norm(..., { 3, 4 }) end, { x }, second))
    assert.is_true(cnn.gradcheck(function(x_, w_, b_) return F.layer_norm(x_, { 3, 4 }, w_, b_) end,
      { x, w, b }, second))
    assert.is_true(cnn.gradcheck(function(w_, b_) return F.layer_norm(x:detach(), { 3, 4 }, w_, b_) end,
      { w, b }, second))
    assert.is_true(cnn.gradcheck(function(x_) return F.layer_norm(x_:transpose(1, 3), 2) end, { x }, second))
  end)

  it("sums the gradients of many rows, by any number of threads alike", function()
    local grads = {}
    for k, threads in ipairs { 1, 2, 5 } do
      cnn.manual_seed(3)
      cnn.set_num_threads(threads)
      local x = cnn.randn(300, 500, { requires_grad = true })
      local w, b = cnn.ones(500, { requires_grad = true }), cnn.zeros(500, { requires_grad = true })
      local y = F.layer_norm(x, 500, w, b)
      y:backward(cnn.ones_like(y):expand(300, 500))
      helper.elements(b.grad, cnn.full({ 500 }, 300):totable())
      helper.elements(w.grad, helper.flat(y:detach():double():sum(1)), 1e-4)
      grads[k] = { x.grad, w.grad }
    end
    cnn.set_num_threads(0)
    for k = 2, 3 do
      assert.is_true(same(grads[1][1], grads[k][1]))
      assert.is_true(same(grads[1][2], grads[k][2]))
    end
  end)

  it("takes empty tensors", function()
    local x, w = cnn.zeros(0, 3, { requires_grad = true }), cnn.ones(3, { requires_grad = true })
    F.layer_norm(x, 3, w):sum():backward()
    assert.is_true(x.grad:has_shape(0, 3))
    assert.same({ 0, 0, 0 }, w.grad:totable())
    assert.is_true(F.layer_norm(cnn.zeros(2, 0), 0):has_shape(2, 0))
  end)

  it("says what is wrong", function()
    local x = cnn.ones(2, 3, 4)
    helper.raises("layer_norm: x has shape (2, 3, 4), whose last dims are not normalized_shape (5,)",
      F.layer_norm, x, 5)
    helper.raises("normalized_shape is empty", F.layer_norm, x, {})
    helper.raises("weight has shape (3,) but normalized_shape is (4,)", F.layer_norm, x, 4, cnn.ones(3))
    helper.raises("bias is float64 but x is float32", F.layer_norm, x, 4, nil, cnn.ones(4):double())
    helper.raises("int64", F.layer_norm, cnn.ones(2, 3):to("int64"), 3)
  end)
end)

-- Mean and variance (divided by n) of each channel.
local function statistics(x)
  local channels = x:transpose(1, 2):reshape(x:size(2), -1)
  local mean = channels:mean(2)
  return mean, ((channels - mean:unsqueeze(2)) ^ 2):mean(2), channels:size(2)
end

describe("batch_norm", function()
  local shapes = {
    { 5, 3 }, { 4, 3, 7 }, { 2, 3, 4, 5 }, { 1, 3, 9, 8 }, { 3, 1, 2, 2 }, { 70, 2, 50, 30 }, { 900, 40 },
  }

  local function layouts(x)
    local list = { x, spread(x) }
    if x.ndim == 4 then list[3] = x:contiguous("channels_last") end
    return list
  end

  it("normalises by the batch in training, and updates the running statistics", function()
    for _, shape in ipairs(shapes) do
      local c = shape[2]
      local source = cnn.randn(shape, { dtype = "float64" }) * 2 + 30
      local w, b = cnn.randn(c, { dtype = "float64" }), cnn.randn(c, { dtype = "float64" })
      local mean, var, n = statistics(source)
      local form = { c }
      for d = 2, #shape - 1 do form[d] = 1 end
      local function at(v) return v:reshape(form) end
      local expected = (source - at(mean)) / at((var + 1e-5):sqrt()) * at(w) + at(b)
      for _, x in ipairs(layouts(source)) do
        local running_mean, running_var = cnn.ones(c, { dtype = "float64" }), cnn.ones(c, { dtype = "float64" })
        local y = F.batch_norm(x, running_mean, running_var, w, b, true, 0.2)
        assert.is_true((y - expected):abs():max():item() < 1e-10)
        helper.elements(running_mean, (mean * 0.2 + 0.8):totable(), 1e-12)
        helper.elements(running_var, (var * (n / (n - 1)) * 0.2 + 0.8):totable(), 1e-10)
        y = F.batch_norm(x:float(), nil, nil, w:float(), b:float(), { training = true })
        assert.is_true((y:double() - expected):abs():max():item() < 1e-4)
        local h = x:to("bfloat16")
        assert.is_true((F.batch_norm(h, nil, nil, w:float(), b:float(), true):float()
          - F.batch_norm(h:float(), nil, nil, w:float(), b:float(), true)):abs():max():item() < 0.05)
      end
    end
  end)

  it("normalises by the running statistics otherwise, and leaves them alone", function()
    local x = cnn.randn(2, 3, 4, 5)
    local mean, var = cnn.tensor { 1, 2, 3 }, cnn.tensor { 4, 9, 16 }
    local expected = (x - mean:view(3, 1, 1)) / (var:view(3, 1, 1) + 0.5):sqrt()
    for _, v in ipairs(layouts(x)) do
      helper.elements(F.batch_norm(v, mean, var, { eps = 0.5 }), helper.flat(expected), 1e-6)
    end
    assert.same({ 1, 2, 3 }, mean:totable())
    assert.same({ 4, 9, 16 }, var:totable())
  end)

  it("keeps the layout", function()
    local x = cnn.randn(2, 3, 4, 5):contiguous("channels_last"):requires_grad_()
    local y = F.batch_norm(x, nil, nil, nil, nil, true)
    assert.same(x:stride(), y:stride())
    y:backward(cnn.randn(2, 3, 4, 5))
    assert.same(x:stride(), x.grad:stride())
  end)

  it("has right gradients of the first and second order, in training and out of it", function()
    for _, shape in ipairs { { 4, 3 }, { 2, 3, 5 }, { 2, 3, 2, 4 } } do
      local x, w, b = leaf(unpack(shape)), leaf(3), leaf(3)
      local mean, var = cnn.randn(3, { dtype = "float64" }), cnn.rand(3, { dtype = "float64" }) + 0.5
      for _, training in ipairs { true, false } do
        local function norm(x_, w_, b_)
          return F.batch_norm(x_, not training and mean or nil, not training and var or nil, w_, b_, training)
        end
        assert.is_true(cnn.gradcheck(norm, { x, w, b }, { second = true }))
        assert.is_true(cnn.gradcheck(norm, { x }, { second = true }))
        assert.is_true(cnn.gradcheck(function(w_, b_) return norm(x:detach(), w_, b_) end, { w, b },
          { second = true }))
        if #shape == 4 then
          assert.is_true(cnn.gradcheck(function(x_) return norm(x_:contiguous("channels_last"), w:detach()) end, { x }))
        end
      end
    end
  end)

  it("gives the same by any number of threads", function()
    for _, shape in ipairs { { 4, 3, 100, 90 }, { 16, 40, 30, 20 }, { 500, 200 } } do
      local results = {}
      for k, threads in ipairs { 1, 2, 5 } do
        cnn.manual_seed(4)
        cnn.set_num_threads(threads)
        local x = cnn.randn(shape, { requires_grad = true })
        local w = cnn.ones(shape[2], { requires_grad = true })
        local y = F.batch_norm(x, nil, nil, w, nil, true)
        y:backward(x:detach() * 0.5 + 1)
        results[k] = { y:detach(), x.grad, w.grad }
      end
      cnn.set_num_threads(0)
      for k = 2, 3 do
        for i = 1, 3 do assert.is_true(same(results[1][i], results[k][i])) end
      end
    end
  end)

  it("changes no statistics when it fails, on an empty batch, and in a checkpoint's replay", function()
    local mean, var = cnn.zeros(3), cnn.ones(3)
    local w = cnn.ones(3, { requires_grad = true })
    helper.raises("one value per channel", F.batch_norm, cnn.ones(1, 3), mean, var, w, nil, true)
    helper.raises("bias has shape (4,) but x (2, 3) has 3 channels", F.batch_norm, cnn.ones(2, 3), mean, var, w,
      cnn.ones(4), true)
    local empty = cnn.zeros(0, 3, { requires_grad = true })
    F.batch_norm(empty, mean, var, w, nil, true):sum():backward()
    assert.is_true(empty.grad:has_shape(0, 3))
    assert.same({ 0, 0, 0 }, w.grad:totable())
    assert.same({ 0, 0, 0 }, mean:totable())
    assert.same({ 1, 1, 1 }, var:totable())
    local x = cnn.ones(2, 3, { requires_grad = true })
    cnn.checkpoint(function(x_) return F.batch_norm(x_, mean, var, w, nil, true) end, x):sum():backward()
    helper.elements(mean, { 0.1, 0.1, 0.1 })
  end)

  it("updates statistics that are rows or columns of one tensor", function()
    local x, mean, var = cnn.randn(8, 3), cnn.zeros(3), cnn.ones(3)
    F.batch_norm(x, mean, var, nil, nil, true)
    local both = cnn.tensor { { 0, 0, 0 }, { 1, 1, 1 } }
    for _, stats in ipairs { both, both:t():contiguous():t() } do
      F.batch_norm(x, stats[1], stats[2], nil, nil, true)
      assert.same({ mean:totable(), var:totable() }, stats:totable())
    end
    helper.raises("running_mean and running_var are the same elements", F.batch_norm, x, mean, mean, nil, nil, true)
  end)

  it("remembers the statistics that it used, not those that became of them", function()
    local mean, var = cnn.zeros(2), cnn.ones(2)
    local x = cnn.tensor({ { 1, 2 }, { 3, 5 } }, { requires_grad = true })
    local y = F.batch_norm(x, mean, var, { eps = 0 })
    F.batch_norm(x, mean, var, nil, nil, true)
    F.batch_norm(x, mean, var, nil, nil, true)
    y:sum():backward()
    assert.same({ { 1, 1 }, { 1, 1 } }, x.grad:totable())
  end)

  it("says what is wrong", function()
    helper.raises("batch_norm: x of shape (1, 3) has one value per channel", F.batch_norm, cnn.ones(1, 3),
      { training = true })
    helper.raises("x has shape (3,), expected (N, C), (N, C, L) or (N, C, H, W)", F.batch_norm, cnn.ones(3),
      { training = true })
    helper.raises("running_mean and running_var are missing", F.batch_norm, cnn.ones(2, 3))
    helper.raises("running_mean and running_var are given together", F.batch_norm, cnn.ones(2, 3), cnn.ones(3),
      { training = true })
    helper.raises("running_mean requires a gradient", F.batch_norm, cnn.ones(2, 3), cnn.ones(3):requires_grad_(),
      cnn.ones(3))
    helper.raises("int64", F.batch_norm, cnn.ones(2, 3):to("int64"), { training = true })
  end)
end)
