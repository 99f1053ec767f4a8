-- SPDX-License-Identifier: MIT
-- On GPUs: the numbers of the CPU's generator, optimizers, losses with labels, and what bad labels
-- leave untouched. Runs where there is a GPU, or on the simulator. Ops one by one: spec/ops_spec.lua.
local cnn = require "cnn"
local helper = require "spec.helper"
local cuda = cnn.cuda
local F = cnn.nn.functional

if not cuda.is_available() then
  describe("training on GPUs", function()
    it("can't be tried here: there is no GPU", function() assert.equal(0, cuda.device_count()) end)
  end)
  return
end

local function same(a, b) return a:eq(b):all():item() end

local function near(a, b, tolerance)
  return (a:double() - b:double()):abs():max():item() <= (tolerance or 1e-5)
end

-- fn on the CPU and on the GPU, from one seed.
local function both(fn)
  cnn.manual_seed(7)
  local cpu = fn("cpu")
  local next_cpu = cnn.rand(1):item()
  cnn.manual_seed(7)
  local gpu = fn("cuda")
  assert.equal(next_cpu, cnn.rand(1):item())
  return cpu, gpu:cpu()
end

describe("random numbers on a GPU", function()
  it("are the CPU's, bit by bit, where they are no transforms", function()
    for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
      assert.is_true(same(both(function(d) return cnn.rand(37, 5, { device = d, dtype = dtype }) end)))
      assert.is_true(same(both(function(d)
        return F.dropout(cnn.ones(1001, { device = d, dtype = dtype }), 0.3)
      end)))
      assert.is_true(same(both(function(d)
        return cnn.full({ 20, 9 }, 0.25, { device = d, dtype = dtype }):t():bernoulli()
      end)))
    end
    for _, dtype in ipairs { "int64", "int32", "int16", "int8", "uint8", "float32", "bool" } do
      assert.is_true(same(both(function(d)
        return cnn.randint(0, dtype == "bool" and 2 or 100, { 7, 11 }, { device = d, dtype = dtype })
      end)))
    end
    assert.is_true(same(both(function(d) return cnn.randint(-2 ^ 40, 2 ^ 41, { 99 }, { device = d }) end)))
    -- in any layout: the counter is the position
    assert.is_true(same(both(function(d) return cnn.zeros(6, 4, { device = d }):t():bernoulli_(0.5) end)))
    assert.is_true(same(both(function(d) return cnn.zeros(9, 4, { device = d }):narrow(2, 2, 2):uniform_() end)))
  end)

  it("are the CPU's to the last bits elsewhere", function()
    for _, dtype in ipairs { "float32", "float64" } do
      local tolerance = dtype == "float32" and 2e-6 or 1e-13
      local options = function(d) return { device = d, dtype = dtype } end
      local a, b = both(function(d) return cnn.randn(1000, options(d)) end)
      assert.is_true(near(a, b, tolerance))
      a, b = both(function(d) return cnn.zeros(999, options(d)):exponential_(2) end)
      assert.is_true(near(a, b, tolerance))
      a, b = both(function(d) return cnn.zeros(999, options(d)):uniform_(-3, 5) end)
      assert.is_true(near(a, b, tolerance))
    end
  end)

  it("order a permutation as the CPU's do", function()
    for _, n in ipairs { 0, 1, 2, 3, 10, 257, 3001 } do
      assert.is_true(same(both(function(d) return cnn.randperm(n, { device = d }) end)))
    end
    assert.is_true(same(both(function(d) return cnn.randperm(100, { device = d, dtype = "int16" }) end)))
  end)

  it("choose the CPU's samples", function()
    cnn.manual_seed(3)
    local p = cnn.rand(5, 300)
    p[{ {}, { 20, 60 } }]:zero_()
    p[{ {}, { 290, 300 } }]:zero_()
    for _, x in ipairs { p, p[{ 1 }], p[{ 2, { 1, 7 } }], p:t():contiguous():t(), p:double(), p:half() } do
      for _, replacement in ipairs { true, false } do
        assert.is_true(same(both(function(d) return x:to(d):multinomial(6, replacement) end)))
      end
    end
    assert.is_true(same(both(function(d) return p[{ 1 }]:to(d):multinomial(2000, true) end)))
  end)

  it("report probabilities that are none", function()
    local function raises(text, fn)
      fn()
      helper.raises(text, cuda.synchronize)
    end
    raises("must hold probabilities from 0 to 1, but an element is 1.5", function()
      cnn.full({ 3 }, 1.5, { device = "cuda" }):bernoulli()
    end)
    raises("x must hold finite numbers >= 0, but element 2 of row 1 is -1", function()
      cnn.tensor({ 1, -1, 1 }):to("cuda"):multinomial(2)
    end)
    raises("3 samples without replacement, but row 1 of x has only 1 positive entries", function()
      cnn.tensor({ 0, 2, 0 }):to("cuda"):multinomial(3)
    end)
    raises("target holds 2 but must be in [0, 1]", function()
      F.binary_cross_entropy(cnn.full({ 3 }, 0.5, { device = "cuda" }), cnn.full({ 3 }, 2, { device = "cuda" }))
    end)
  end)
end)

describe("optimizers on a GPU", function()
  -- Many parameters of several sizes and dtypes, some not dense, after some steps.
  local function train(device, make)
    cnn.manual_seed(11)
    local params = {}
    for i = 1, 130 do
      local p = i % 3 == 0 and cnn.randn(i, 3) or i % 3 == 1 and cnn.randn(i * 7) or cnn.randn(4, 5):t()
      if i % 10 == 0 then p = p:double() elseif i % 11 == 0 then p = p:bfloat16() end
      params[i] = cnn.nn.Parameter(p:to(device))
    end
    params[131] = cnn.nn.Parameter(cnn.randn(9001):to(device))
    local optimizer = make(params)
    for step = 1, 3 do
      for i, p in ipairs(params) do
        if (i + step) % 5 ~= 0 then
          local g = cnn.randn(p:size()):to(p.dtype)
          if i % 7 == 0 and g:dim() == 2 then g = g:t():contiguous():t() end
          p.grad = g:to(device)
        end
      end
      if step == 2 then cnn.nn.utils.clip_grad_norm_(params, 5) end
      optimizer:step()
    end
    return params
  end

  local optim = cnn.optim
  local rules = {
    sgd = function(p) return optim.SGD(p, { lr = 0.1, weight_decay = 0.01 }) end,
    momentum = function(p) return optim.SGD(p, { lr = 0.1, momentum = 0.9, nesterov = true }) end,
    adam = function(p) return optim.Adam(p, { lr = 0.01, weight_decay = 0.1 }) end,
    adamw = function(p) return optim.AdamW(p, { lr = 0.01, amsgrad = true }) end,
    rmsprop = function(p) return optim.RMSprop(p, { lr = 0.01 }) end,
    centered = function(p) return optim.RMSprop(p, { lr = 0.01, momentum = 0.5, centered = true }) end,
    adagrad = function(p) return optim.Adagrad(p, { lr = 0.1, lr_decay = 0.1 }) end,
  }
  for name, make in pairs(rules) do
    it("step as on the CPU: " .. name, function()
      local cpu, gpu = train("cpu", make), train("cuda", make)
      for i, p in ipairs(cpu) do
        assert.is_true(near(p:detach(), gpu[i]:detach():cpu(), p.dtype == "bfloat16" and 2e-2 or 2e-5), i)
      end
    end)
  end

  it("take a norm of many gradients", function()
    cnn.manual_seed(5)
    local params, there = {}, {}
    for i = 1, 150 do
      local p, q = cnn.nn.Parameter(cnn.zeros(i, 7)), cnn.nn.Parameter(cnn.zeros(i, 7, { device = "cuda" }))
      local g = cnn.randn(i, 7)
      if i % 40 == 0 then g = cnn.randn(7, i):t() end
      p.grad, q.grad = g, g:to("cuda")
      params[i], there[i] = p, q
    end
    for _, norm in ipairs { 2, 1, 3, math.huge } do
      local a = cnn.nn.utils.clip_grad_norm_(params, 1e9, norm)
      local b = cnn.nn.utils.clip_grad_norm_(there, 1e9, norm)
      a, b = type(a) == "number" and a or a:item(), type(b) == "number" and b or b:item()
      assert.is_true(math.abs(a - b) <= 1e-9 * a)
    end
  end)

  it("change nothing while a bad label is not yet reported", function()
    local w = cnn.nn.Parameter(cnn.ones(4, 3, { device = "cuda" }))
    local optimizer = cnn.optim.SGD({ w }, { lr = 1 })
    local x = cnn.ones(2, 4, { device = "cuda" })
    local labels = cnn.tensor({ 1, 9 }, { dtype = "int64" }):to("cuda")
    F.cross_entropy(x:matmul(w), labels):backward()
    optimizer:step()
    helper.raises("cross_entropy: label 9 is out of range: there are 3 classes (1..3)", cuda.synchronize)
    assert.is_true(same(w:detach():cpu(), cnn.ones(4, 3)))
    optimizer:step()
    assert.is_false(same(w:detach():cpu(), cnn.ones(4, 3)))
  end)
end)

describe("cross entropy on a GPU", function()
  local function compare(x, labels, options)
    local results = {}
    for i, device in ipairs { "cpu", "cuda" } do
      local leaf = x:to(device):detach():requires_grad_()
      local o = {}
      for k, v in pairs(options) do o[k] = type(v) == "userdata" and v:to(device) or v end
      local loss = F.cross_entropy(leaf, labels:to(device), o)
      cnn.manual_seed(2)
      loss:backward(cnn.randn(loss:size()):to(loss.dtype):to(device))
      results[i] = { loss:detach():cpu(), leaf.grad:cpu() }
    end
    local tolerance = (x.dtype == "float16" or x.dtype == "bfloat16") and 3e-2 or 2e-5
    assert.is_true(near(results[1][1], results[2][1], tolerance))
    assert.is_true(near(results[1][2], results[2][2], tolerance))
  end

  it("is the CPU's, by threads, warps and blocks", function()
    cnn.manual_seed(1)
    for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
      for _, x in ipairs { cnn.randn(9, 10), cnn.randn(5, 16), cnn.randn(3, 2053), cnn.randn(2, 2048), cnn.randn(7),
        cnn.randn(2, 5, 6, 7), cnn.randn(10, 9):t(), cnn.randn(300, 1), cnn.randn(6, 20)[{ {}, { 3, 14 } }] } do
        local classes = x:size(x:dim() > 1 and 2 or 1)
        local w = cnn.rand(classes)
        local shape = {}
        for d = 1, x:dim() do
          if x:dim() == 1 or d ~= 2 then shape[#shape + 1] = x:size(d) end
        end
        local labels = x:dim() == 1 and cnn.tensor(3, { dtype = "int64" }) or cnn.randint(1, classes + 1, shape)
        for _, options in ipairs { {}, { weight = w, label_smoothing = 0.2 }, { reduction = "none", ignore_index = 1 },
          { reduction = "sum", label_smoothing = 0.1 } } do
          compare(x:to(dtype), labels, options)
        end
      end
    end
  end)

  it("of rows that are all ignored is 0", function()
    local x = cnn.randn(4, 3, { device = "cuda" })
    local labels = cnn.ones(4, { dtype = "int64", device = "cuda" })
    assert.equal(0, F.cross_entropy(x, labels, { ignore_index = 1 }):item())
    assert.equal(0, F.nll_loss(x, labels, { ignore_index = 1 }):item())
  end)
end)
