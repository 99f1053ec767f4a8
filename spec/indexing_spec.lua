-- SPDX-License-Identifier: MIT
-- x[...], its assignment, and the ops that gather and scatter by index tensors. spec/golden/index.lua has
-- PyTorch's values.
local cnn = require "cnn"
local helper = require "spec.helper"

local F = cnn.F

local function ints(list, dtype)
  return cnn.tensor(list, dtype or "int64")
end

local function random(...)
  return cnn.randn({ ... }, { dtype = "float64", requires_grad = true })
end

-- Gradients of both orders by every float input.
local function check(fn, ...)
  assert.is_true(cnn.gradcheck(fn, { ... }, { second = true }))
end

-- 1, 2, 3 ... in that shape.
local function count(...)
  local n = 1
  for _, size in ipairs { ... } do n = n * size end
  return cnn.arange(1, n + 1):reshape(...)
end

describe("reading x[...]", function()
  it("selects rows and elements, from either end", function()
    local x = count(3, 4)
    helper.elements(x[2], { 5, 6, 7, 8 })
    helper.elements(x[-1], { 9, 10, 11, 12 })
    assert.equal(7, x[{ 2, 3 }]:item())
    assert.equal(12, x[{ -1, -1 }]:item())
    assert.equal(0, x[{ 2, 3 }].ndim)
    assert.is_true(x[2]:shares_storage(x))
    assert.is_true(x[{}]:has_shape(3, 4) and x[{}]:shares_storage(x) and x[{}] ~= x)
  end)

  it("takes ranges with both ends, steps, whole dims and new ones", function()
    local x = count(3, 4)
    helper.elements(x[{ { 2, 3 } }], { 5, 6, 7, 8, 9, 10, 11, 12 })
    helper.elements(x[{ {}, { 2, 3 } }], { 2, 3, 6, 7, 10, 11 })
    helper.elements(x[{ { 1, -1, 2 }, { -2, -1 } }], { 3, 4, 11, 12 })
    helper.elements(x[{ { 2, 2 }, 1 }], { 5 })
    assert.is_true(x[{ { 1, 0 } }]:has_shape(0, 4)) -- an empty range
    assert.is_true(x[{ { 4, 3 } }]:has_shape(0, 4))
    assert.is_true(x[{ cnn.newaxis, 2 }]:has_shape(1, 4))
    assert.is_true(x[{ {}, cnn.newaxis, { 1, 2 }, cnn.newaxis }]:has_shape(3, 1, 2, 1))
    assert.is_true(x[cnn.newaxis]:has_shape(1, 3, 4))
    assert.is_true(x[{ { 1, 3, 2 } }]:shares_storage(x))
    assert.is_true(cnn.tensor(3)[{ cnn.newaxis }]:has_shape(1))
  end)

  it("gathers by index tensors, as PyTorch does", function()
    local x = count(3, 4)
    helper.elements(x[ints { 3, 1, 3 }], { 9, 10, 11, 12, 1, 2, 3, 4, 9, 10, 11, 12 })
    assert.is_true(x[ints { { 1, 2, 3 }, { 3, 2, 1 } }]:has_shape(2, 3, 4))
    helper.elements(x[{ ints { 1, 2, 3 }, ints { 4, 1, 2 } }], { 4, 5, 10 })
    helper.elements(x[{ ints { { 1 }, { 3 } }, ints { 2, 4 } }], { 2, 4, 10, 12 })
    helper.elements(x[{ {}, ints { 4, 1 } }], { 4, 1, 8, 5, 12, 9 })
    helper.elements(x[{ { 2, 3 }, ints { 4 } }], { 8, 12 })
    helper.elements(x[{ 2, ints { 4, 1 } }], { 8, 5 })
    helper.elements(x[ints(2)], { 5, 6, 7, 8 })
    assert.is_true(x[ints {}]:has_shape(0, 4))
    for _, dtype in ipairs { "int32", "int16", "int8", "uint8" } do
      helper.elements(x[ints({ 2 }, dtype)], { 5, 6, 7, 8 })
    end
    -- Neighbouring indices stay where they stood, others come first.
    local y = count(2, 3, 4, 5)
    local i = ints { 1, 2, 1 }
    assert.is_true(y[{ {}, i, i }]:has_shape(2, 3, 5))
    assert.is_true(y[{ i, {}, i }]:has_shape(3, 3, 5))
    assert.is_true(y[{ {}, i, {}, i }]:has_shape(3, 2, 4))
    assert.is_true(y[{ {}, i, cnn.newaxis, {}, { 1, 2 } }]:has_shape(2, 3, 1, 4, 2))
    assert.is_true(y[{ 1, {}, i }]:has_shape(3, 3, 5))
    assert.is_true(y[{ {}, ints { { 1 }, { 2 } }, i }]:has_shape(2, 2, 3, 5))
  end)

  it("reads where a mask is true", function()
    local x = count(3, 4)
    helper.elements(x[x:gt(9)], { 10, 11, 12 })
    helper.elements(x[cnn.tensor { true, false, true }]:select(2, 1), { 1, 9 })
    helper.elements(x[{ {}, cnn.tensor { false, true, true, false } }], { 2, 3, 6, 7, 10, 11 })
    helper.elements(x[{ 2, cnn.tensor { false, true, true, false } }], { 6, 7 })
    helper.elements(x:t()[x:t():gt(9)], { 10, 11, 12 })
    assert.is_true(x[x:gt(99)]:has_shape(0))
    assert.is_true(cnn.zeros(0, 2)[cnn.zeros({ 0 }, { dtype = "bool" })]:has_shape(0, 2))
    assert.is_true(x[{ cnn.tensor { true, false, true }, ints { 2, 3 } }]:has_shape(2))
  end)

  it("has right gradients", function()
    local m = cnn.tensor { true, false, true }
    for _, key in ipairs {
      2, -1, { 2, 3 }, { { 2, 3 }, {} }, { { 1, -1, 2 }, 2 }, { cnn.newaxis, {}, { 2, 3 } }, ints { 3, 1, 3 },
      { {}, ints { 4, 1, 4 } }, { ints { 1, 1 }, ints { 2, 2 } }, { ints { { 1 }, { 3 } }, ints { 2, 4 } },
      { { 2, 3 }, ints { 4 } }, m, { m, 2 }, { {}, cnn.tensor { false, true, true, false } },
    } do
      check(function(x) return x[key] end, random(3, 4))
      check(function(x) return x:t()[key] end, random(4, 3))
    end
  end)

  it("sums the gradients of half types in float32", function()
    local x = cnn.ones({ 3 }, { dtype = "bfloat16", requires_grad = true })
    x[cnn.ones({ 1000 }, { dtype = "int64" })]:sum():backward()
    helper.elements(x.grad, { 1000, 0, 0 })
  end)

  it("says what is wrong with a key", function()
    local x = count(3, 4)
    helper.raises("index: index 4 is out of range for dim 1 of size 3", function() return x[4] end)
    helper.raises("index: index -5 is out of range for dim 2 of size 4", function() return x[{ 1, -5 }] end)
    helper.raises("index 0: Lua indices start at 1", function() return x[0] end)
    helper.raises("index 0: Lua indices start at 1", function() return x[{ { 0, 2 } }] end)
    helper.raises("3 indices for a tensor with 2 dims, (3, 4)", function() return x[{ 1, 1, 1 }] end)
    helper.raises("write {1, 1} for one position", function() return x[{ { 3 } }] end)
    helper.raises("out of range for dim 1 of size 3 (1..3)", function() return x[{ { 2, 4 } }] end)
    helper.raises("step must be at least 1, not -1", function() return x[{ { 3, 1, -1 } }] end)
    helper.raises("got the number 1.5", function() return x[1.5] end)
    helper.raises("index 5 is out of range for dim 2 of size 4 (1..4)", function() return x[{ 1, ints { 5 } }] end)
    helper.raises("index 0: Lua indices start at 1", function() return x[ints { 1, 0 }] end)
    helper.raises("index tensors hold positions from 1 on", function() return x[ints { -1 }] end)
    helper.raises("must be integer, not float32", function() return x[cnn.arange(1)] end)
    helper.raises("the mask's shape (2,) does not fit shape (3, 4) at dim 1", function()
      return x[cnn.tensor { true, false }]
    end)
    helper.raises("don't broadcast", function() return x[{ ints { 1, 2 }, ints { 1, 2, 3 } }] end)
    helper.raises("0 dims", function() return cnn.tensor(1)[1] end)
  end)
end)

describe("writing x[...]", function()
  it("takes numbers and tensors, for every form", function()
    local x = cnn.zeros(3, 4)
    x[2] = 1
    x[{ 1, -1 }] = 2
    x[{ { 1, 3, 2 }, 1 }] = cnn.tensor { 3, 4 }
    helper.elements(x, { 3, 0, 0, 2, 1, 1, 1, 1, 4, 0, 0, 0 })
    x[{}] = 0
    x[{ {}, { 2, 3 } }] = cnn.tensor { 5, 6 } -- broadcasts
    helper.elements(x, { 0, 5, 6, 0, 0, 5, 6, 0, 0, 5, 6, 0 })
    x[ints { 1, 3 }] = cnn.tensor { 1, 2, 3, 4 }
    x[{ ints { 2, 2 }, ints { 1, 4 } }] = 9
    helper.elements(x, { 1, 2, 3, 4, 9, 5, 6, 9, 1, 2, 3, 4 })
    x[{ {}, ints { 4, 1 } }] = cnn.tensor { { 1 }, { 2 }, { 3 } }
    helper.elements(x, { 1, 2, 3, 1, 2, 5, 6, 2, 3, 2, 3, 3 })
    x[{ ints { 1, 1 }, 1 }] = cnn.tensor { 7, 8 } -- the last one stays
    assert.equal(8, x[{ 1, 1 }]:item())
    x[{ cnn.newaxis, 3 }] = cnn.full({ 1, 4 }, 6)
    helper.elements(x[3], { 6, 6, 6, 6 })
    x[{ { 1, 0 } }] = 5 -- nothing
    local whole = cnn.zeros({ 3 }, { dtype = "int64" })
    whole[2] = 2.9 -- towards 0, as fill_
    whole[ints { 3 }] = 1.9
    helper.elements(whole, { 0, 2, 1 })
    local flags = cnn.zeros({ 2 }, { dtype = "bool" })
    flags[1] = true
    helper.elements(flags, { true, false })
  end)

  it("fills and puts where a mask is true", function()
    local x = count(3, 3)
    x[x:gt(7)] = -1
    helper.elements(x, { 1, 2, 3, 4, 5, 6, 7, -1, -1 })
    x[cnn.tensor { true, false, false }] = 0 -- rows, also of a square matrix
    helper.elements(x, { 0, 0, 0, 4, 5, 6, 7, -1, -1 })
    x[x:eq(-1)] = cnn.tensor { 8, 9 }
    x[cnn.tensor { true, false, true }] = cnn.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
    helper.elements(x, { 1, 2, 3, 4, 5, 6, 4, 5, 6 })
    x[{ {}, cnn.tensor { false, true, false } }] = 0
    x[{ 1, cnn.tensor { false, false, true } }] = 7
    x[x:eq(6)] = cnn.tensor(1.5)
    helper.elements(x, { 1, 0, 7, 4, 0, 1.5, 4, 0, 1.5 })
    local whole = ints { 1, 2, 3 }
    whole[whole:gt(1)] = 0
    helper.elements(whole, { 1, 0, 0 })
    local flags = cnn.tensor { true, true }
    flags[cnn.tensor { true, false }] = false
    helper.elements(flags, { false, true })
  end)

  it("converts the value's dtype, and changes nothing when it fails", function()
    local x = count(2, 2)
    x[1] = cnn.tensor({ 7, 8 }, "float64")
    x[ints { 2 }] = ints { 5, 6 }
    helper.elements(x, { 7, 8, 5, 6 })
    helper.raises("does not broadcast", function() x[1] = cnn.ones(3) end)
    helper.raises("out of range for dim 1 of size 2", function() x[ints { 1, 3 }] = 0 end)
    helper.raises("does not broadcast to the indexed shape (2, 2)", function() x[ints { 1, 2 }] = cnn.ones(3) end)
    helper.raises("expected a number or a tensor", function() x[1] = "a" end)
    helper.elements(x, { 7, 8, 5, 6 })
    helper.raises("share memory", function() cnn.ones(2):expand(2, 2)[ints { 1 }] = 0 end)
  end)

  it("has right gradients, for the target and the value", function()
    local m = cnn.tensor { true, false, true }
    local function assign(key)
      return function(x, v)
        x = x * 1
        x[key] = v
        return x * x
      end
    end
    check(assign(2), random(3, 4), random(4))
    check(assign { { 1, 3, 2 }, 2 }, random(3, 4), random(2))
    check(assign { {}, { 2, 3 } }, random(3, 4), random(2))
    check(assign(ints { 3, 1 }), random(3, 4), random(2, 4))
    check(assign { {}, ints { 4, 1 } }, random(3, 4), random(3, 1))
    check(assign { ints { 1, 2 }, ints { 2, 4 } }, random(3, 4), random(2))
    check(assign(m), random(3, 4), random(2, 4))
    check(assign(m), random(3, 4), random())
    check(assign { {}, m }, random(2, 3), random(2, 2))
    for _, key in ipairs { 2, ints { 1, 3 }, m, { {}, 2 } } do
      check(function(x)
        x = x * 1
        x[key] = 7
        return x * x
      end, random(3, 4))
    end
    helper.raises("a leaf", function() random(3)[1] = 2 end)
  end)
end)

describe("index_select and its kin", function()
  it("take and put slices", function()
    local x = count(2, 3)
    helper.elements(x:index_select(2, ints { 3, 1 }), { 3, 1, 6, 4 })
    helper.elements(x:index_select(-1, ints(2)), { 2, 5 })
    assert.is_true(x:index_select(1, ints {}):has_shape(0, 3))
    helper.elements(x:index_add(2, ints { 1, 1 }, cnn.ones(2, 2)), { 3, 2, 3, 6, 5, 6 })
    helper.elements(x:index_add(1, ints { 2 }, cnn.ones(1, 3), { alpha = -2 }), { 1, 2, 3, 2, 3, 4 })
    helper.elements(x:index_copy(2, ints { 2 }, cnn.zeros(2, 1)), { 1, 0, 3, 4, 0, 6 })
    helper.elements(x:index_fill(1, ints { 1 }, 9), { 9, 9, 9, 4, 5, 6 })
    helper.elements(x:index_fill(1, ints { 1 }, cnn.tensor(8)), { 8, 8, 8, 4, 5, 6 })
    helper.elements(x, { 1, 2, 3, 4, 5, 6 })
    assert.is_true(x:t():index_add_(1, ints { 3 }, cnn.ones(1, 2)):shares_storage(x))
    helper.elements(x, { 1, 2, 4, 4, 5, 7 })
  end)

  it("work in place when the source is the target", function()
    local x = count(3)
    x:index_copy_(1, ints { 2, 3, 1 }, x)
    helper.elements(x, { 3, 1, 2 })
    x:index_add_(1, ints { 1, 1, 1 }, x)
    helper.elements(x, { 9, 1, 2 })
    local y = count(2, 2)
    y:scatter_add_(1, ints { { 1, 1 }, { 1, 1 } }, y)
    helper.elements(y, { 5, 8, 3, 4 })
  end)

  it("have right gradients", function()
    local i = ints { 3, 1, 3 }
    check(function(x) return x:index_select(2, i) end, random(2, 3))
    check(function(x) return x:t():index_select(1, i) end, random(2, 3))
    check(function(x, s) return x:index_add(2, i, s) end, random(2, 3), random(2, 3))
    check(function(x, s) return x:index_add(2, i, s, 0.5) end, random(2, 3), random(2, 3))
    check(function(x, s) return (x * 1):index_add_(2, i, s) end, random(2, 3), random(2, 3))
    check(function(x, s) return x:index_copy(1, ints { 2 }, s) end, random(2, 3), random(1, 3))
    check(function(x, v) return x:index_fill(2, i, v) end, random(2, 3), random())
  end)

  it("check before they write", function()
    local x = count(3)
    for _, name in ipairs { "index_add_", "index_copy_", "scatter_", "scatter_add_" } do
      helper.raises("index 4 is out of range for dim 1 of size 3 (1..3)", function()
        x[name](x, 1, ints { 1, 4 }, cnn.ones(2))
      end)
      helper.raises("index 0: Lua indices start at 1", function() x[name](x, 1, ints { 1, 0 }, cnn.ones(2)) end)
    end
    helper.raises("index 4", function() x:index_fill_(1, ints { 1, 4 }, 0) end)
    helper.elements(x, { 1, 2, 3 })
    helper.raises("src must have shape (2,), not (3,)", function() x:index_add(1, ints { 1, 2 }, cnn.ones(3)) end)
    helper.raises("index must be an integer tensor, not float32", function() x:index_select(1, cnn.ones(2)) end)
    helper.raises("index must be a list", function() x:index_select(1, ints { { 1 } }) end)
  end)
end)

describe("gather, scatter and take", function()
  it("move elements along a dim", function()
    local x = count(2, 3)
    helper.elements(x:gather(2, ints { { 3, 3 }, { 1, 2 } }), { 3, 3, 4, 5 })
    helper.elements(x:gather(1, ints { { 2, 1, 2 } }), { 4, 2, 6 })
    helper.elements(x:t():gather(1, ints { { 3, 1 } }), { 3, 4 })
    helper.elements(x:scatter(2, ints { { 1 }, { 3 } }, cnn.tensor { { 7 }, { 8 } }), { 7, 2, 3, 4, 5, 8 })
    helper.elements(x:scatter(1, ints { { 2, 1, 1 } }, 0), { 1, 0, 0, 0, 5, 6 })
    helper.elements(x:scatter_add(2, ints { { 1, 1, 1 } }, cnn.ones(2, 3)), { 4, 2, 3, 4, 5, 6 })
    helper.elements(x:take(ints { { 6, 1 } }), { 6, 1 })
    helper.elements(x:t():take(ints { 2 }), { 4 })
    helper.elements(x:take_along_dim(ints { { 2 } }, 2), { 2, 5 })
    helper.elements(x:take_along_dim(ints { 6, 2 }), { 6, 2 })
    helper.raises("must not exceed x", function() x:gather(2, ints { { 1 }, { 1 }, { 1 } }) end)
    helper.raises("must not exceed src", function() x:scatter(2, ints { { 1, 2 } }, cnn.ones(1, 1)) end)
    helper.raises("index 7 is out of range for dim 1 of size 6", function() x:take(ints { 7 }) end)
  end)

  it("have right gradients", function()
    local i = ints { { 3, 1, 3 }, { 2, 2, 1 } }
    check(function(x) return x:gather(2, i) end, random(2, 3))
    check(function(x) return x:gather(1, ints { { 2, 1, 1 } }) end, random(2, 3))
    check(function(x, s) return x:scatter_add(2, i, s) end, random(2, 3), random(2, 3))
    check(function(x, s) return x:scatter_add(2, ints { { 1, 1 } }, s) end, random(2, 3), random(2, 3))
    check(function(x, s) return x:scatter(2, ints { { 3, 1 }, { 1, 2 } }, s) end, random(2, 3), random(2, 2))
    check(function(x) return x:scatter(2, i, 2) end, random(2, 3))
    check(function(x) return x:take(ints { 1, 6, 1 }) end, random(2, 3))
    check(function(x) return x:take_along_dim(ints { { 2 } }, 2) end, random(2, 3))
    check(function(x) return x:gather(2, ints { { 1 }, { 2 } }:expand(2, 3)) end, random(2, 3))
  end)
end)

describe("embedding", function()
  it("looks rows up, and checks its ids", function()
    local w = count(3, 2)
    helper.elements(F.embedding(ints { 3, 1 }, w), { 5, 6, 1, 2 })
    assert.is_true(F.embedding(ints { { 1, 2, 3 }, { 3, 2, 1 } }, w):has_shape(2, 3, 2))
    assert.is_true(F.embedding(ints(2), w):has_shape(2))
    assert.is_true(F.embedding(ints {}, w):has_shape(0, 2))
    helper.elements(F.embedding(ints({ 2 }, "int32"), w:t():contiguous():t()), { 3, 4 })
    helper.raises("index 4 is out of range for dim 1 of size 3 (1..3)", function() F.embedding(ints { 4 }, w) end)
    helper.raises("index 0: Lua indices start at 1", function() F.embedding(ints { 0 }, w) end)
    helper.raises("padding_idx 4 is out of range", function() F.embedding(ints { 1 }, w, { padding_idx = 4 }) end)
    helper.raises("labels start at 1", function() F.embedding(ints { 1 }, w, { padding_idx = 0 }) end)
    helper.raises("input must be an integer tensor", function() F.embedding(cnn.ones(2), w) end)
    helper.raises("weight must have 2 dims", function() F.embedding(ints { 1 }, cnn.ones(3)) end)
  end)

  it("has right gradients: ids that repeat add, the padding row gets none", function()
    local ids = ints { { 1, 3, 1 }, { 3, 3, 2 } }
    check(function(w) return F.embedding(ids, w) end, random(4, 2))
    local w = cnn.ones({ 4, 2 }, { requires_grad = true })
    F.embedding(ids, w, { padding_idx = 3 }):sum():backward()
    helper.elements(w.grad, { 2, 2, 1, 1, 0, 0, 0, 0 })
    local half = cnn.ones({ 2, 3 }, { dtype = "bfloat16", requires_grad = true })
    F.embedding(cnn.ones({ 1000 }, { dtype = "int64" }), half):sum():backward()
    helper.elements(half.grad, { 1000, 1000, 1000, 0, 0, 0 })
    -- A second gradient does not reach the padding row either.
    local v = random(4, 2)
    local g = cnn.grad(F.embedding(ids, v * v, { padding_idx = 3 }):pow(2):sum(), v, { create_graph = true })
    if type(g) == "table" then g = g[1] end
    assert.equal(0, g[3]:detach():abs():sum():item())
    g:sum():backward()
    assert.equal(0, v.grad[3]:abs():sum():item())
    assert.is_true(v.grad[1]:abs():sum():item() > 0)
  end)

  it("makes one-hot vectors", function()
    helper.elements(F.one_hot(ints { 2, 1 }, 3), { 0, 1, 0, 1, 0, 0 })
    assert.is_true(F.one_hot(ints { { 2, 4 } }):has_shape(1, 2, 4))
    assert.equal("int64", F.one_hot(ints { 1 }).dtype)
    helper.raises("index 4 is out of range for dim 2 of size 3", function() F.one_hot(ints { 4 }, 3) end)
  end)
end)

describe("masks", function()
  it("select and locate what is true", function()
    local x = count(2, 3)
    helper.elements(x:masked_select(cnn.tensor { true, false, true }), { 1, 3, 4, 6 })
    helper.elements(x:masked_select(cnn.tensor { { true }, { false } }), { 1, 2, 3 })
    assert.same({ { 1, 2 }, { 2, 1 } }, (x:eq(2) + x:eq(4)):nonzero():totable())
    assert.is_true(cnn.zeros(3, 2):nonzero():has_shape(0, 2))
    assert.is_true(cnn.tensor(3):nonzero():has_shape(1, 0))
    helper.elements(cnn.tensor({ 0, -0.5, 0 / 0 }):nonzero(), { 2, 3 })
    helper.raises("meta", function() x:to("meta"):nonzero() end)
    helper.raises("does not broadcast", function() x:masked_select(cnn.tensor { true, false }) end)
    helper.raises("mask must be a bool tensor", function() x:masked_select(cnn.ones(3)) end)
  end)

  it("agree with a plain walk, beyond a thread's share", function()
    local x = cnn.rand(123, 457)
    local mask = x:gt(0.7)
    local values, places, n = x:masked_select(mask):totable(), mask:nonzero():totable(), 0
    for i, row in ipairs(x:totable()) do
      for j, v in ipairs(row) do
        if v > cnn.tensor(0.7):item() then
          n = n + 1
          if values[n] ~= v or places[n][1] ~= i or places[n][2] ~= j then error("differs at " .. n) end
        end
      end
    end
    assert.equal(n, #values)
    assert.equal(n, #places)
  end)

  it("have right gradients", function()
    local m = cnn.tensor { { true, false, true }, { false, false, true } }
    check(function(x) return x:masked_select(m) end, random(2, 3))
    check(function(x) return x:t():masked_select(m:t()) end, random(2, 3))
    check(function(x) return x:masked_select(m) end, random(3))
  end)
end)

describe("large gathers and sums", function()
  it("do not depend on the number of threads", function()
    local threads = cnn.get_num_threads()
    local x, src = cnn.randn(300, 200), cnn.randn(900, 200)
    local list, grid = cnn.randint(1, 301, { 900 }), cnn.randint(1, 301, { 900, 200 })
    local function results()
      local w = cnn.zeros({ 300, 200 }, { requires_grad = true })
      F.embedding(list, w):backward(src)
      return {
        x:index_select(1, list), x:gather(1, grid), x:index_add(1, list, src), x:scatter_add(1, grid, src), w.grad,
        x:t():index_add(2, list, src:t()), x:to("bfloat16"):index_add(1, list, src:to("bfloat16")),
      }
    end
    cnn.set_num_threads(1)
    local one = results()
    for _, n in ipairs { 2, 5 } do
      cnn.set_num_threads(n)
      for i, y in ipairs(results()) do assert.is_true(y:eq(one[i]):all():item(), ("%d, %d threads"):format(i, n)) end
    end
    cnn.set_num_threads(threads)
    -- And are what a loop gives.
    local sum = cnn.zeros(300, 200)
    for i, k in ipairs(list:totable()) do sum[k]:add_(src[i]) end
    assert.is_true((sum - one[5]):abs():max():item() < 1e-4)
    assert.is_true((sum + x - one[3]):abs():max():item() < 1e-4)
  end)
end)
