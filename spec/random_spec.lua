-- SPDX-License-Identifier: MIT
-- Random ops: what they draw depends on the seed and the element, and on nothing else.
local cnn = require "cnn"
local helper = require "spec.helper"

local FLOATS = { "float32", "float64", "float16", "bfloat16" }

local function alike(a, b)
  return a:has_shape(b.shape) and a.dtype == b.dtype and a:eq(b):all():item()
end

-- fn() from a given seed.
local function seeded(seed, fn, ...)
  cnn.manual_seed(seed)
  return fn(...)
end

describe("the generator", function()
  it("is Philox4x32-10, one counter per element", function()
    -- The first known answer of Random123: counter 0, key 0.
    local x = seeded(0, cnn.rand, 1)
    assert.equal(math.floor(0x6627e8d5 / 256) / 2 ^ 24, x:item())
    -- 53 bits of the first two words.
    local y = seeded(0, cnn.rand, { 1 }, { dtype = "float64" })
    assert.equal((0x6627e8d5 * 2 ^ 21 + math.floor(0xe169c58d / 2048)) / 2 ^ 53, y:item())
    -- Vectors and single elements draw alike.
    local row = seeded(7, cnn.rand, 100)
    cnn.manual_seed(7)
    for i = 1, 100 do assert.equal(row[i]:item(), cnn.rand(1):item()) end
  end)

  it("gives the same numbers for the same seed, and goes on from a saved state", function()
    local a = seeded(3, cnn.randn, 5, 7)
    assert.is_true(alike(a, seeded(3, cnn.randn, 5, 7)))
    assert.is_false(alike(a, seeded(4, cnn.randn, 5, 7)))
    cnn.rand(11)
    local state = cnn.get_rng_state()
    local b = cnn.rand(9)
    cnn.rand(100)
    cnn.set_rng_state(state)
    assert.is_true(alike(b, cnn.rand(9)))
  end)

  it("does not look at shapes, strides or threads", function()
    local flat = seeded(1, cnn.rand, 24)
    assert.is_true(alike(flat, seeded(1, cnn.rand, 2, 3, 4):flatten()))
    for _, fill in ipairs { "uniform_", "normal_", "exponential_", "bernoulli_" } do
      local plain, strided = cnn.zeros(30, 20, 3), cnn.zeros(3, 20, 60):permute(3, 2, 1)
      strided = strided[{ { 1, -1, 2 } }]
      seeded(2, plain[fill], plain)
      seeded(2, strided[fill], strided)
      assert.is_true(alike(plain, strided), fill)
    end
    local threads = cnn.get_num_threads()
    cnn.set_num_threads(1)
    local one = seeded(5, cnn.randn, 300, 301)
    cnn.set_num_threads(4)
    local four = seeded(5, cnn.randn, 300, 301)
    cnn.set_num_threads(threads)
    assert.is_true(alike(one, four))
  end)

  it("moves only when numbers were drawn", function()
    cnn.manual_seed(1)
    local before = table.concat(cnn.get_rng_state(), " ")
    cnn.rand(0, 3)
    cnn.rand({ 4 }, { device = "meta" })
    cnn.dropout(cnn.ones(3), 0.5, false)
    cnn.dropout(cnn.ones(3), 0)
    for _, bad in ipairs {
      function() cnn.bernoulli(cnn.tensor { 0.5, 2 }) end,
      function() cnn.rand({ 2 }, { dtype = "int64" }) end,
      function() cnn.multinomial(cnn.zeros(3), 1) end,
      function() cnn.ones(3):expand(2, 3):uniform_() end,
    } do
      assert.is_false(pcall(bad))
    end
    assert.equal(before, table.concat(cnn.get_rng_state(), " "))
  end)
end)

describe("distributions", function()
  before_each(function() cnn.manual_seed(11) end)

  it("rand is in [0, 1), in every dtype", function()
    for _, dtype in ipairs(FLOATS) do
      local x = cnn.rand({ 200000 }, { dtype = dtype }):to("float64")
      assert.is_true(x:min():item() >= 0 and x:max():item() < 1, dtype)
      assert.is_true(math.abs(x:mean():item() - 0.5) < 0.005, dtype)
    end
  end)

  it("uniform_ stays below its upper end, however little lies between", function()
    for _, dtype in ipairs(FLOATS) do
      local x = cnn.zeros({ 100000 }, { dtype = dtype }):uniform_(-3, -2)
      assert.is_true(x:min():item() >= -3 and x:max():item() < -2, dtype)
      local y = cnn.zeros({ 1000 }, { dtype = dtype }):uniform_(1000, 1001)
      assert.is_true(y:min():item() >= 1000 and y:max():item() < 1001 or dtype == "bfloat16", dtype)
      assert.equal(2, cnn.zeros({ 5 }, { dtype = dtype }):uniform_(2, 2):max():item())
    end
  end)

  it("normal_ has its mean and deviation, and tails", function()
    for _, dtype in ipairs { "float32", "float64" } do
      local x = cnn.zeros({ 400000 }, { dtype = dtype }):normal_(2, 3)
      local z = (x - 2) / 3
      assert.is_true(math.abs(z:mean():item()) < 0.006)
      assert.is_true(math.abs((z * z):mean():item() - 1) < 0.012)
      assert.is_true(math.abs((z * z * z):mean():item()) < 0.03)
      assert.is_true(math.abs((z * z * z * z):mean():item() - 3) < 0.12)
      assert.is_true(z:max():item() > 4 and z:min():item() < -4)
    end
    assert.is_true(seeded(1, cnn.randn, 10000):abs():max():item() < 7)
  end)

  it("exponential_ and bernoulli have their means", function()
    local x = cnn.zeros(400000):exponential_(2)
    assert.is_true(math.abs(x:mean():item() - 0.5) < 0.004 and x:min():item() > 0)
    local p = cnn.tensor { 0, 0.25, 1 }:reshape(3, 1):expand(3, 200000)
    local y = p:bernoulli():mean(2)
    assert.equal(0, y[1]:item())
    assert.is_true(math.abs(y[2]:item() - 0.25) < 0.004)
    assert.equal(1, y[3]:item())
    assert.equal(0, cnn.ones(100000):bernoulli_(0):sum():item())
    assert.equal(100000, cnn.zeros({ 100000 }, { dtype = "int64" }):bernoulli_(1):sum():item())
    assert.equal("bool", cnn.zeros({ 4 }, { dtype = "bool" }):bernoulli_(0.5).dtype)
  end)

  it("randint and randperm keep their bounds", function()
    local x = cnn.randint(-2, 4, { 60000 })
    assert.equal("int64", x.dtype)
    for v = -2, 3 do
      assert.is_true(math.abs(x:eq(v):sum():item() - 10000) < 450, tostring(v))
    end
    assert.equal(60000, (x:ge(-2) * x:lt(4)):sum():item())
    assert.is_true(cnn.randint(0, 5, 2, 3):has_shape(2, 3))
    assert.is_true(cnn.randint(5, { 7 }):has_shape(7))
    local wide = cnn.randint(-2 ^ 52, 2 ^ 52, { 1000 })
    assert.is_true(wide:abs():max():item() > 2 ^ 51 and wide:min():item() < 0)
    assert.equal("float32", cnn.randint(0, 5, { 2 }, { dtype = "float32" }).dtype)
    local seen = {}
    for _, v in ipairs(cnn.randperm(1000):totable()) do seen[v] = (seen[v] or 0) + 1 end
    for i = 1, 1000 do assert.equal(1, seen[i]) end
    assert.is_true(cnn.randperm(0):has_shape(0))
    assert.equal("int64", cnn.randperm(3).dtype)
    -- Every order of 3 is as likely.
    local orders = {}
    for _ = 1, 6000 do
      local order = table.concat(cnn.randperm(3):totable())
      orders[order] = (orders[order] or 0) + 1
    end
    local kinds = 0
    for _, n in pairs(orders) do
      kinds = kinds + 1
      assert.is_true(math.abs(n - 1000) < 160)
    end
    assert.equal(6, kinds)
  end)

  it("multinomial draws in proportion, never what has probability 0", function()
    local p = cnn.tensor { 0, 1, 0, 3, 0 }
    local x = p:multinomial(40000, true)
    assert.equal(0, (x:ne(2) * x:ne(4)):sum():item())
    assert.is_true(math.abs(x:eq(4):sum():item() - 30000) < 600)
    local first = {}
    for _ = 1, 2000 do
      local y = cnn.tensor { 1, 0, 2, 1 }:multinomial(3):totable()
      assert.is_true(y[1] ~= y[2] and y[2] ~= y[3] and y[1] ~= y[3])
      for _, v in ipairs(y) do assert.is_true(v ~= 2) end
      first[y[1]] = (first[y[1]] or 0) + 1
    end
    assert.is_true(math.abs(first[3] - 1000) < 120)
    local rows = cnn.tensor { { 0, 0, 1 }, { 1, 0, 0 } }:multinomial(2, true)
    assert.same({ { 3, 3 }, { 1, 1 } }, rows:totable())
    assert.has_error(function() cnn.tensor { 1, 0 }:multinomial(2) end)
    assert.has_error(function() cnn.tensor { -1, 2 }:multinomial(1) end)
    assert.has_error(function() cnn.tensor { 0 / 0, 2 }:multinomial(1) end)
  end)
end)

describe("creation", function()
  it("takes its shape and options in every form", function()
    for _, make in ipairs { cnn.rand, cnn.randn } do
      for _, x in ipairs {
        make(2, 3), make({ 2, 3 }), make { 2, 3, dtype = "float64" }, make(2, 3, { dtype = "float16" }),
      } do
        assert.is_true(x:has_shape(2, 3))
      end
      assert.is_true(make({ 2 }, { requires_grad = true }).requires_grad)
      assert.equal("meta", make({ 2 }, { device = "meta" }).device)
      assert.is_true(make({}):has_shape())
    end
    local like = cnn.rand_like(cnn.zeros(4, 2):t(), { dtype = "float64" })
    assert.is_true(like:has_shape(2, 4) and like.dtype == "float64")
    assert.same({ 1, 2 }, { like:stride(1), like:stride(2) })
    assert.is_false(cnn.randn_like(cnn.zeros({ 2 }, { requires_grad = true })).requires_grad)
  end)
end)

describe("dropout", function()
  before_each(function() cnn.manual_seed(21) end)

  it("scales what it keeps, and is exact at the ends", function()
    local x = cnn.rand(1000, 100) + 1
    local y = cnn.dropout(x, 0.25)
    local kept = y:ne(0)
    helper.elements((y / x):masked_select(kept):narrow(1, 1, 100), cnn.full({ 100 }, 1 / 0.75):totable())
    assert.is_true(math.abs(kept:sum():item() / 1e5 - 0.75) < 0.01)
    assert.is_true(alike(x, cnn.dropout(x, 0)))
    assert.equal(0, cnn.dropout(x, 1):abs():sum():item())
    assert.equal(0, cnn.dropout(cnn.full({ 3 }, 1 / 0), 1):sum():item())
    assert.is_true(cnn.dropout(x, 0.5, false) == x)
    assert.has_error(function() cnn.dropout(x, -0.1) end)
    assert.has_error(function() cnn.dropout(x, 1.1) end)
  end)

  it("drops the same elements backward, for any strides and dtype", function()
    for _, dtype in ipairs(FLOATS) do
      for _, strided in ipairs { false, true } do
        local x = cnn.ones(40, 30, { dtype = dtype })
        if strided then x = cnn.ones(30, 80, { dtype = dtype }):t()[{ { 1, -1, 2 } }] end
        x:requires_grad_()
        local y = cnn.dropout(x, 0.4)
        y:backward(cnn.ones(30, 40, { dtype = dtype }):t())
        assert.is_true(alike(y:detach(), x.grad), dtype)
        assert.is_true(x.grad:eq(0):sum():item() > 0)
      end
    end
  end)

  it("has right derivatives of every order, in place too", function()
    local x = cnn.randn({ 4, 5 }, { dtype = "float64", requires_grad = true })
    assert.is_true(cnn.gradcheck(function(a) return cnn.dropout(a * a, 0.5) end, { x }, { second = true }))
    assert.is_true(cnn.gradcheck(function(a) return (a * 2):dropout_(0.5) end, { x }, { second = true }))
    local y = (x * 1):dropout_(0.5, false)
    assert.is_true(alike(x:detach(), y:detach()))
  end)

  it("draws anew in every call, and again what it drew in a replay", function()
    local x = cnn.ones(1000)
    assert.is_false(alike(cnn.dropout(x), cnn.dropout(x)))
    local w = cnn.ones({ 1000 }, { requires_grad = true })
    local y = cnn.checkpoint(function(v) return cnn.dropout(v, 0.5) * v end, w)
    local kept = y:detach():clone()
    cnn.rand(17)
    y:sum():backward()
    assert.is_true(alike(w.grad, kept * 2))
  end)
end)
