-- SPDX-License-Identifier: MIT
-- Reductions, scans and softmax beyond the golden values: accuracy, special values, empty tensors,
-- layouts, threads, second derivatives.
local cnn = require "cnn"
local helper = require "spec.helper"

local inf, nan = math.huge, 0 / 0

local function double(values) return cnn.tensor(values, { dtype = "float64" }) end

-- The same elements as views that are not contiguous.
local function layouts(x)
  local list = { x }
  if x.ndim == 0 then return list end
  local doubled = cnn.stack({ x, x }, -1)
  list[#list + 1] = doubled:select(-1, 2)
  list[#list + 1] = x:transpose(1, -1):contiguous():transpose(1, -1)
  return list
end

-- Every layout of x gives what x gives.
local function alike(x, fn)
  local wanted = { fn(x) }
  for _, view in ipairs(layouts(x)) do
    for i, y in ipairs({ fn(view) }) do helper.elements(y, helper.flat(wanted[i]), 1e-5) end
  end
end

describe("sums", function()
  it("stay exact over many elements", function()
    local x = cnn.full({ 3000000 }, 0.1)
    assert.is_true(helper.near(1, x:sum():item() / 300000, 1e-6))
    assert.is_true(helper.near(0.1, x:mean():item(), 1e-7))
    local columns = cnn.full({ 100000, 3 }, 0.1)
    helper.elements(columns:sum(1) / 10000, { 1, 1, 1 }, 1e-6)
    helper.elements(columns:to("bfloat16"):mean(1):float(), { 0.1, 0.1, 0.1 }, 4e-3)
    helper.elements(cnn.ones({ 70000 }, { dtype = "float16" }):mean():float(), { 1 }, 0)
  end)

  it("don't depend on the number of threads", function()
    local x = cnn.randn(300, 1000)
    local function all()
      return { x:sum():item(), x:sum(1):sum():item(), x:sum(2):sum():item(), x:var():item(), x:norm():item(),
               x:logsumexp(1):sum():item(), x:softmax(1):sum():item(), x:cumsum(1):sum():item() }
    end
    local threads = cnn.get_num_threads()
    cnn.set_num_threads(1)
    local one = all()
    cnn.set_num_threads(3)
    local three = all()
    cnn.set_num_threads(threads)
    assert.same(one, three)
  end)

  it("take integers and bools in int64", function()
    for _, dtype in ipairs { "bool", "uint8", "int8", "int16", "int32", "int64" } do
      local x = cnn.ones({ 3, 100 }, { dtype = dtype })
      assert.equal("int64", x:sum().dtype)
      assert.equal(300, x:sum():item())
      helper.elements(x:sum(2), { 100, 100, 100 })
      assert.equal(1, x:prod():item())
    end
    assert.equal(255 * 9000, cnn.full({ 9000 }, 255, { dtype = "uint8" }):sum():item())
    assert.equal("float32", cnn.ones({ 3 }, { dtype = "int64" }):mean({ dtype = "float32" }).dtype)
    helper.raises("a mean of int64 is no integer", function() return cnn.ones({ 3 }, { dtype = "int64" }):mean() end)
  end)

  it("of every shape and layout are alike", function()
    for _, shape in ipairs { { 1 }, { 67 }, { 5, 3 }, { 3, 130 }, { 130, 3 }, { 2, 17, 5 }, { 4, 3, 7, 7 } } do
      local x = cnn.randn(shape)
      for d = 1, #shape do
        alike(x, function(v) return v:sum(d) end)
        alike(x, function(v) return v:var(d, { correction = 0 }) end)
        alike(x, function(v) return v:max(d) end)
        alike(x, function(v) return v:median(d) end)
        alike(x, function(v) return v:logsumexp(d) end)
        alike(x, function(v) return v:cumsum(d) end)
        alike(x, function(v) return v:log_softmax(d) end)
      end
      alike(x, function(v) return v:argmin() end)
      alike(x, function(v) return v:norm(3) end)
    end
  end)
end)

describe("empty tensors", function()
  it("sum to 0, multiply to 1, and have no mean and no largest element", function()
    local x = cnn.zeros(2, 0)
    helper.elements(x:sum(2), { 0, 0 })
    helper.elements(x:prod(2), { 1, 1 })
    helper.elements(x:logsumexp(2), { -inf, -inf })
    assert.is_true(x:all():item())
    assert.is_false(x:any():item())
    assert.equal(0, x:norm():item())
    for _, mean in ipairs(helper.flat(x:mean(2))) do assert.is_true(mean ~= mean) end
    assert.same({ 0 }, { x:max(1).shape[1] })
    for _, name in ipairs { "max", "min", "amax", "argmax" } do
      helper.raises(name .. ": x of shape (2, 0) has no element to choose from in dim 2",
        function() return x[name](x, 2) end)
    end
    for _, y in ipairs { x:softmax(1), x:softmax(2), x:cumsum(1), x:cumprod(2), (x:cummax(1)) } do
      assert.is_true(y:has_shape(2, 0))
    end
  end)
end)

describe("extremes", function()
  it("propagate NaN and take the first of equals", function()
    local x = double { { 1, nan, 3, nan }, { 2, 5, 5, 1 } }
    local values, places = x:max(2)
    assert.is_true(values:get(1) ~= values:get(1))
    assert.equal(5, values:get(2))
    assert.same({ 2, 2 }, places:totable())
    assert.same({ 2, 4 }, x:argmin(2):totable())
    assert.equal(2, x:argmax():item())
    assert.is_true(x:max():item() ~= x:max():item())
    local long = cnn.zeros(1000)
    long[700], long[900] = nan, inf
    assert.equal(700, long:argmax():item())
    assert.equal(700, long:reshape(-1, 1):argmax(1):item())
    local running, at = double({ 1, 3, 3, 2, nan, 9 }):cummax(1)
    assert.same({ 1, 2, 3, 3, 5, 5 }, at:totable())
    assert.is_true(running:get(6) ~= running:get(6))
  end)

  it("give one result, two, or an elementwise maximum", function()
    local x = cnn.tensor { { 1, 5 }, { 4, 2 } }
    assert.equal(1, select("#", x:max()))
    assert.equal(2, select("#", x:max(1)))
    assert.equal(1, select("#", x:median()))
    helper.elements(x:min(cnn.tensor { 3, 3 }), { 1, 3, 3, 2 })
    assert.equal(2, x:median():item()) -- the lower one of two
  end)

  it("keep integers whole", function()
    local big = cnn.tensor({ 9007199254740992, 3 }, { dtype = "int64" })
    big[1] = big[1] - 1
    assert.equal(9007199254740991, big:max():item())
    assert.equal("int8", cnn.tensor({ 1, 2 }, { dtype = "int8" }):amax().dtype)
  end)
end)

describe("norms", function()
  it("survive what their squares would not", function()
    assert.is_true(helper.near(1, cnn.full({ 4 }, 1e30):norm():item() / 2e30, 1e-6))
    assert.is_true(helper.near(1, cnn.full({ 4 }, 1e-30):norm():item() / 2e-30, 1e-6))
  end)

  it("have the subgradient 0 at 0", function()
    for _, p in ipairs { 1, 1.5, 2, 3, inf } do
      local x = cnn.zeros({ 3 }, { requires_grad = true })
      x:norm(p):backward()
      helper.elements(x.grad, { 0, 0, 0 })
    end
  end)
end)

describe("softmax", function()
  it("neither overflows nor loses small numbers", function()
    helper.elements(double({ 1000, 1000, -1000 }):softmax(1), { 0.5, 0.5, 0 })
    helper.elements(cnn.tensor({ -200, 0 }):log_softmax(1), { -200, 0 })
    local masked = cnn.tensor({ -inf, 1, -inf }):softmax(1)
    helper.elements(masked, { 0, 1, 0 })
  end)

  it("sums to 1 along rows of every length", function()
    for n = 1, 70 do
      local y = cnn.randn(3, n):mul(5):softmax(2)
      helper.elements(y:sum(2), { 1, 1, 1 }, 1e-6)
    end
    local long = cnn.randn(2, 50257):softmax(-1)
    helper.elements(long:sum(2), { 1, 1 }, 1e-6)
  end)
end)

describe("gradients", function()
  local function check(fn, ...)
    assert.is_true(cnn.gradcheck(fn, { ... }, { second = true }))
  end
  local function random(...)
    local x = cnn.randn({ ... }, { dtype = "float64" })
    return x:requires_grad_()
  end

  it("are right twice over", function()
    check(function(x) return x:sum({ 1, 3 }) end, random(2, 3, 2))
    check(function(x) return x:mean(-1, true) end, random(2, 3))
    check(function(x) return x:prod({ 1, 3 }) end, random(2, 2, 3))
    check(function(x) return x:amax(2) end, random(2, 3))
    check(function(x) return (x:max(2)) end, random(2, 3))
    check(function(x) return (x:median(1)) end, random(3, 2))
    check(function(x) return x:var(1), x:std(2) end, random(3, 3))
    for _, p in ipairs { 1, 2, 2.5, inf } do check(function(x) return x:norm(p, 2) end, random(2, 3)) end
    check(function(x) return x:logsumexp({ 1, 3 }) end, random(2, 2, 3))
    check(function(x) return x:cumsum(2), (x:cummax(2)) end, random(2, 3))
    check(function(x) return x:cumprod(1) end, random(3, 2))
    check(function(x) return x:softmax(2), x:log_softmax(1) end, random(3, 3))
    check(function(x, w) return cnn.prelu(x, w) end, random(2, 3), random(3))
    check(function(x) return cnn.glu(x), cnn.normalize(x) end, random(2, 4))
    check(function(x, y) return x:diff(2, 1, y) end, random(3, 2), random(1, 2))
  end)

  it("of products are right at zeros", function()
    for _, zeros in ipairs { { 1 }, { 1, 3 }, { 1, 2, 3 } } do
      local x = random(4)
      cnn.no_grad(function() for _, i in ipairs(zeros) do x[i] = 0 end end)
      check(function(v) return v:prod(), v:cumprod(1) end, x)
    end
  end)
end)
