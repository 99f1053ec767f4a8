-- SPDX-License-Identifier: MIT
-- Views and ops that move elements: shapes, sharing of bytes, gradients of both orders, errors. Values
-- are PyTorch's (spec/golden/shape.lua has more of them).
local cnn = require "cnn"
local helper = require "spec.helper"

local F = cnn.F
local unpack = table.unpack or unpack

local function random(...)
  return cnn.randn({ ... }, { dtype = "float64", requires_grad = true })
end

-- Gradients of both orders, for a contiguous input and for one that is not.
local function check(fn, ...)
  local x = random(...)
  assert.is_true(cnn.gradcheck(fn, { x }, { second = true }))
  local n = select("#", ...)
  if n == 0 then return end
  local order, shape = {}, {}
  for i = 1, n do order[i], shape[i] = n + 1 - i, (select(n + 1 - i, ...)) end
  shape[n] = 2 * shape[n]
  local y = cnn.randn(shape, { dtype = "float64" }):permute(order)[{ { 1, -1, 2 } }]:requires_grad_()
  assert.is_true(cnn.gradcheck(fn, { y }, { second = true }))
end

local function count(n)
  return cnn.arange(1, n + 1)
end

describe("views", function()
  local x
  before_each(function() x = count(24):reshape(2, 3, 4) end)
  after_each(function() x = nil end)

  it("share their input's bytes", function()
    for name, v in pairs {
      view = x:view(6, 4), permute = x:permute(3, 1, 2), transpose = x:transpose(1, 3), unsqueeze = x:unsqueeze(2),
      squeeze = x:narrow(1, 1, 1):squeeze(1), select = x:select(2, 3), narrow = x:narrow(3, 2, 2),
      expand = x:expand(5, 2, 3, 4),
      unfold = x:unfold(3, 2, 1), diagonal = x:diagonal(0, 2, 3), chunk = x:chunk(2)[2], split = x:split(2, 2)[2],
      unbind = x:unbind(3)[4], reshape = x:reshape(4, 6), flatten = x:flatten(2), unflatten = x:unflatten(3, { 2, 2 }),
      movedim = x:movedim(1, 3), swapaxes = x:swapaxes(1, 2), t = x[1]:t(), expand_as = x[{ { 1, 1 } }]:expand_as(x),
      broadcast_to = x:broadcast_to(2, 2, 3, 4), view_as = x:view_as(cnn.zeros(24)),
      meshgrid = cnn.meshgrid({ x:select(2, 1)[1] })[1],
    } do
      assert.is_true(v:shares_storage(x), name)
    end
    for name, c in pairs {
      tile = x:tile(1, 1, 1), flip = x:flip(1), roll = x:roll(1, 1), cat = cnn.cat({ x }, 1), diag = x[1]:diag(),
      reshape = x:transpose(1, 2):reshape(6, 4), pad = F.pad(x, { 0, 0 }),
      repeat_interleave = x:repeat_interleave(1, 1),
    } do
      assert.is_false(c:shares_storage(x), name)
    end
    assert.is_true(x:flatten(2, 2) == x)
    assert.is_true(x:contiguous() == x)
  end)

  it("have PyTorch's shapes", function()
    assert.is_true(x:flatten():has_shape(24))
    assert.is_true(x:flatten(1, 2):has_shape(6, 4))
    assert.is_true(x:flatten(-2):has_shape(2, 12))
    assert.is_true(cnn.tensor(3):flatten():has_shape(1))
    assert.is_true(x:unflatten(2, { 3, -1 }):has_shape(2, 3, 1, 4))
    assert.is_true(x:movedim({ 1, 2 }, { 3, 1 }):has_shape(3, 4, 2))
    assert.is_true(x:unfold(3, 3, 1):has_shape(2, 3, 2, 3))
    assert.is_true(x:unfold(1, 2, 5):has_shape(1, 3, 4, 2))
    assert.is_true(x:diagonal(1, 2, 3):has_shape(2, 3))
    assert.is_true(x:diagonal(-9, 2, 3):has_shape(2, 0))
    assert.is_true(cnn.zeros(1, 3, 1):squeeze():has_shape(3))
    assert.is_true(cnn.zeros(1, 3, 1):squeeze({ 1, 2 }):has_shape(3, 1))
    assert.is_true(x:reshape(-1, 8):has_shape(3, 8))
    assert.is_true(cnn.zeros(0, 3):reshape(3, 0):has_shape(3, 0))
    assert.is_true(cnn.zeros(3):t():has_shape(3))
  end)

  it("of a stepped or transposed tensor need a copy only where there is no other way", function()
    local y = x:permute(2, 1, 3)
    assert.is_true(y:view(3, 2, 2, 2):shares_storage(x))
    helper.raises("use reshape", function() y:view(6, 4) end)
    helper.elements(y:reshape(6, 4)[2], { 13, 14, 15, 16 })
  end)

  it("have right gradients", function()
    for _, fn in ipairs {
      function(a) return a:view(2, 12) end, function(a) return a:permute(3, 1, 2) end,
      function(a) return a:transpose(1, 3) end, function(a) return a:select(2, 2) end,
      function(a) return a:narrow(3, 2, 2) end, function(a) return a:expand(2, 2, 3, 4) end,
      function(a) return a:unfold(3, 3, 1) end, function(a) return a:unfold(2, 2, 2) end,
      function(a) return a:diagonal(1, 1, 3) end, function(a) return a:reshape(4, 6) end,
      function(a) return a:flatten(2) end, function(a) return a:movedim(1, 3) end,
      function(a) return a[{ 2, { 1, 3, 2 }, cnn.newaxis, {} }] end, function(a) return a[{ {}, -1 }] end,
      function(a) return a:unsqueeze(2):squeeze(2) end,
    } do
      check(function(a) return fn(a:contiguous()) end, 2, 3, 4)
    end
    check(function(a) return a:permute(3, 1, 2):select(1, 2):t() end, 2, 3, 4)
    check(function(a) return a:unfold(1, 3, 1) end, 6)
  end)

  it("name what does not fit", function()
    helper.raises("view: x of shape (2, 3, 4) has 24 elements, which don't fit shape (5,)", function() x:view(5) end)
    helper.raises("unfold: windows of size 5 don't fit dim 3 of size 4", function() x:unfold(3, 5, 1) end)
    helper.raises("select: index 4 is out of range for dim 2 of size 3 (1..3)", function() x:select(2, 4) end)
    helper.raises("dim 0: Lua dims start at 1", function() x:select(0, 1) end)
    helper.raises("transpose: dim 4 is out of range for a tensor with 3 dims (1..3)", function() x:transpose(1, 4) end)
    helper.raises("permute: dim 1 is given twice", function() x:permute(1, 1, 2) end)
    helper.raises("unflatten: sizes (2, 3) don't fit dim 3 of size 4", function() x:unflatten(3, { 2, 3 }) end)
    helper.raises("t: x has 3 dims", function() x:t() end)
    helper.raises("expand", function() x:expand(2, 3, 5) end)
    helper.raises("diagonal: dim1 and dim2 are the same dim, 1", function() x:diagonal(0, 1, 1) end)
  end)
end)

describe("chunk, split and unbind", function()
  local x
  before_each(function() x = count(14):reshape(7, 2) end)
  after_each(function() x = nil end)

  it("cut as PyTorch does", function()
    local function sizes(list, dim)
      local found = {}
      for i, v in ipairs(list) do found[i] = v:size(dim) end
      return found
    end
    assert.same({ 3, 3, 1 }, sizes(x:chunk(3), 1))
    assert.same({ 2, 2, 2, 1 }, sizes(x:chunk(5), 1))
    assert.same({ 1, 1 }, sizes(x:chunk(9, 2), 2))
    assert.same({ 4, 3 }, sizes(x:split(4), 1))
    assert.same({ 2, 0, 5 }, sizes(x:split({ 2, 0, 5 }), 1))
    assert.same({ 0, 0, 0 }, sizes(cnn.zeros(0, 2):chunk(3), 1))
    assert.equal(7, #x:unbind())
    assert.equal(2, #x:unbind(-1))
    helper.elements(x:unbind(2)[2], { 2, 4, 6, 8, 10, 12, 14 })
    helper.elements(x:chunk(3)[3], { 13, 14 })
    assert.equal(0, #cnn.zeros(0, 2):unbind())
    helper.raises("don't add up to dim 1's size, 7", function() x:split({ 3, 3 }) end)
    helper.raises("pieces of size 0", function() x:split(0) end)
    helper.raises("chunks must be at least 1", function() x:chunk(0) end)
    helper.raises("0 dims", function() cnn.tensor(1):unbind() end)
  end)

  it("have right gradients, also where only some results are used", function()
    check(function(a) return unpack(a:chunk(3, 1)) end, 7, 2)
    check(function(a) return a:split(2, 2)[2] * a:split(2, 2)[1]:sum() end, 3, 5)
    check(function(a) return a:split({ 1, 0, 2 }, 2)[3] end, 2, 3)
    check(function(a) return a:unbind(2)[3] * a:unbind(2)[1] end, 2, 3, 2)
    local w = cnn.ones({ 4, 2 }, { requires_grad = true })
    local parts = w:chunk(2)
    parts[2]:sum():backward()
    helper.elements(w.grad, { 0, 0, 0, 0, 1, 1, 1, 1 })
    assert.equal("ChunkBackward0", parts[1].grad_fn.name)
  end)

  it("of a tensor that was changed in place since follow the change", function()
    local w = cnn.ones({ 4 }, { requires_grad = true })
    local y = w * 1
    local parts = y:chunk(2)
    y:mul_(3)
    parts[2]:sum():backward()
    helper.elements(w.grad, { 0, 0, 3, 3 })
    helper.elements(parts[1]:detach(), { 3, 3 })
  end)

  it("can't be changed in place while gradients are recorded", function()
    local w = cnn.ones({ 4 }, { requires_grad = true })
    for _, view in ipairs {
      (w * 1):chunk(2)[1], (w * 1):split(2)[1], (w * 1):unbind()[1], (w * 1):chunk(2)[1]:narrow(1, 1, 1),
    } do
      helper.raises("one of several views", function() view:mul_(2) end)
    end
    local y = w * 1
    cnn.no_grad(function() y:chunk(2)[1]:mul_(2) end)
    helper.elements(y:detach(), { 2, 2, 1, 1 })
    local plain = cnn.ones(4)
    plain:chunk(2)[2]:mul_(5)
    helper.elements(plain, { 1, 1, 5, 5 })
  end)
end)

describe("cat and stack", function()
  it("join along any dim, and promote", function()
    local a, b = count(4):reshape(2, 2), count(6):reshape(2, 3)
    helper.elements(cnn.cat({ a, b }, 2), { 1, 2, 1, 2, 3, 3, 4, 4, 5, 6 })
    helper.elements(cnn.cat({ a:t(), a }, -2), { 1, 3, 2, 4, 1, 2, 3, 4 })
    assert.equal("float64", cnn.cat({ a, a:to("float64") }).dtype)
    assert.equal("int64", cnn.cat({ a:to("int64"), a:to("uint8") }).dtype)
    helper.elements(cnn.stack({ a, a * 10 }, 3), { 1, 10, 2, 20, 3, 30, 4, 40 })
    helper.elements(cnn.stack({ cnn.tensor(1), cnn.tensor(2) }), { 1, 2 })
    assert.is_true(cnn.cat({ cnn.zeros(0), a }, 1):has_shape(2, 2)) -- PyTorch's old rule
    assert.is_true(cnn.cat({ cnn.zeros(0, 2), a }, 1):has_shape(2, 2))
    assert.is_true(cnn.hstack({ count(2), count(3) }):has_shape(5))
    assert.is_true(cnn.vstack({ count(2), count(2) }):has_shape(2, 2))
    assert.is_true(cnn.concat({ a, b }, 2):has_shape(2, 5))
    local many = {}
    for i = 1, 300 do many[i] = cnn.full({ 1, 2 }, i) end
    helper.elements(cnn.cat(many):select(2, 2):narrow(1, 299, 2), { 299, 300 })
    assert.is_true(cnn.stack(many):has_shape(300, 1, 2))
    assert.is_true(cnn.vstack(many):has_shape(300, 2))
    helper.raises("tensor 1 has shape (2, 2) and tensor 2 (2, 3): sizes must agree", function() cnn.cat({ a, b }) end)
    helper.raises("the list of tensors is empty", function() cnn.cat({}) end)
    helper.raises("stack needs equal shapes", function() cnn.stack({ a, b }) end)
    helper.raises("use stack", function() cnn.cat({ cnn.tensor(1) }) end)
  end)

  it("have right gradients", function()
    for _, join in ipairs {
      function(a, b) return cnn.cat({ a, b, a * 2 }, 1) end, function(a, b) return cnn.cat({ a, b:t():t() }, 2) end,
      function(a, b) return cnn.stack({ a, b }, 2) end, function(a, b) return cnn.hstack({ a, b }) end,
      function(a, b) return cnn.vstack({ b, a }) end,
    } do
      assert.is_true(cnn.gradcheck(join, { random(2, 3), random(2, 3) }, { second = true }))
    end
    local a = cnn.zeros({ 0 }, { requires_grad = true })
    cnn.cat({ a, cnn.ones(2, 2) }, 1):sum():backward()
    assert.is_true(a.grad:has_shape(0))
    local half = cnn.ones({ 2 }, { dtype = "float16", requires_grad = true })
    cnn.cat({ half, cnn.ones(2) }):sum():backward()
    assert.equal("float16", half.grad.dtype)
  end)
end)

describe("rearranging", function()
  local x
  before_each(function() x = count(6):reshape(2, 3) end)
  after_each(function() x = nil end)

  it("flips, rolls, tiles and repeats", function()
    helper.elements(x:flip(2), { 3, 2, 1, 6, 5, 4 })
    helper.elements(x:flip(1, 2), { 6, 5, 4, 3, 2, 1 })
    helper.elements(x:flip({}), { 1, 2, 3, 4, 5, 6 })
    helper.elements(x:t():flip(-1), { 4, 1, 5, 2, 6, 3 })
    helper.elements(x:roll(1, 2), { 3, 1, 2, 6, 4, 5 })
    helper.elements(x:roll(-8), { 3, 4, 5, 6, 1, 2 })
    helper.elements(x:t():roll(1), { 6, 1, 4, 2, 5, 3 })
    helper.elements(x:roll({ 1, -1 }, { 1, 2 }), { 5, 6, 4, 2, 3, 1 })
    helper.elements(x:tile(1, 2), { 1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6 })
    assert.is_true(x:tile(2, 1, 1):has_shape(2, 2, 3))
    assert.is_true(x:tile(0, 1):has_shape(0, 3))
    assert.is_true(cnn.zeros(1, 2, 1, 2, 1, 2, 1, 2):tile(2, 1, 2, 3, 1, 1, 1, 2):has_shape(2, 2, 2, 6, 1, 2, 1, 4))
    helper.elements(x:repeat_interleave(2, 2), { 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6 })
    helper.elements(x:repeat_interleave(cnn.tensor({ 0, 2 }, "int64"), 1), { 4, 5, 6, 4, 5, 6 })
    assert.is_true(x:repeat_interleave(3):has_shape(18))
    helper.raises("repeats[2] is -1", function() x:repeat_interleave(cnn.tensor({ 0, -1 }, "int64"), 1) end)
  end)

  it("takes triangles and diagonals", function()
    helper.elements(x:tril(), { 1, 0, 0, 4, 5, 0 })
    helper.elements(x:triu(1), { 0, 2, 3, 0, 0, 6 })
    helper.elements(x:tril(-5), { 0, 0, 0, 0, 0, 0 })
    helper.elements(x:triu(-2 ^ 40), { 1, 2, 3, 4, 5, 6 })
    helper.elements(x:t():tril(), { 1, 0, 2, 5, 3, 6 })
    local y = x:clone()
    assert.is_true(y:triu_() == y)
    helper.elements(y, { 1, 2, 3, 0, 5, 6 })
    helper.elements(cnn.tensor({ 1, 2 }):diag(1), { 0, 1, 0, 0, 0, 2, 0, 0, 0 })
    helper.elements(x:diag(), { 1, 5 })
    assert.is_true(cnn.diag_embed(x, 1):has_shape(2, 4, 4))
    assert.is_true(cnn.diag_embed(x, 0, 1, 3):has_shape(3, 2, 3))
  end)

  it("makes grids", function()
    local a, b = count(2), count(3)
    local ij, xy = cnn.meshgrid({ a, b }), cnn.meshgrid({ a, b }, { indexing = "xy" })
    helper.elements(ij[1], { 1, 1, 1, 2, 2, 2 })
    helper.elements(ij[2], { 1, 2, 3, 1, 2, 3 })
    helper.elements(xy[1], { 1, 2, 1, 2, 1, 2 })
    assert.is_true(xy[2]:has_shape(3, 2))
  end)

  it("has right gradients", function()
    for _, fn in ipairs {
      function(a) return a:flip(1, 3) end, function(a) return a:roll({ 1, -1 }, { 1, 3 }) end,
      function(a) return a:roll(5) end, function(a) return a:tile(2, 1, 3) end,
      function(a) return a:repeat_interleave(2, 2) end,
      function(a) return a:repeat_interleave(cnn.tensor({ 2, 0, 1 }, "int64"), 2) end,
      function(a) return a:tril(1) end, function(a) return a:triu(-1) end, function(a) return cnn.diag_embed(a) end,
      function(a) return (a * 1):tril_() end,
    } do
      check(fn, 2, 3, 4)
    end
    check(function(a) return a:diag(1) end, 3, 3)
    check(function(a) return a:diag(-1) end, 3)
    assert.is_true(cnn.gradcheck(function(a, b) return unpack(cnn.meshgrid({ a, b })) end, { random(2), random(3) }))
  end)

  it("keeps every element of a large transpose", function()
    for _, dtype in ipairs { "uint8", "int16", "float32", "float64" } do
      local y = cnn.randint(0, 100, { 67, 130, 9 }):to(dtype)
      for _, order in ipairs { { 3, 2, 1 }, { 2, 1, 3 }, { 3, 1, 2 }, { 2, 3, 1 }, { 1, 3, 2 } } do
        local back = {}
        for i, d in ipairs(order) do back[d] = i end
        assert.is_true(y:permute(order):contiguous():permute(back):eq(y):all():item())
      end
    end
  end)
end)

describe("pad", function()
  local x
  before_each(function() x = count(6):reshape(2, 3) end)
  after_each(function() x = nil end)

  it("adds, mirrors, repeats, wraps and cuts", function()
    helper.elements(F.pad(x, { 1, 2 }, { value = 9 }), { 9, 1, 2, 3, 9, 9, 9, 4, 5, 6, 9, 9 })
    helper.elements(F.pad(x, { -1, 0, 1, 0 }), { 0, 0, 2, 3, 5, 6 })
    helper.elements(F.pad(x, { 2, 1 }, "reflect"), { 3, 2, 1, 2, 3, 2, 6, 5, 4, 5, 6, 5 })
    helper.elements(F.pad(x, { 0, 0, 1, 2 }, "replicate"), { 1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6, 4, 5, 6 })
    helper.elements(F.pad(x, { 3, 1 }, "circular"), { 1, 2, 3, 1, 2, 3, 1, 4, 5, 6, 4, 5, 6, 4 })
    helper.elements(F.pad(x:gt(2), { 1, 0 }, { value = true }), { true, false, false, true, true, true, true, true })
    assert.is_true(F.pad(cnn.zeros(0, 2), { 1, 1, 2, 0 }):has_shape(2, 4))
    assert.is_true(F.pad(x, {}):has_shape(2, 3))
    helper.raises("reflect needs pads smaller than the dim: dim 2 has size 3, the pad is 3", function()
      F.pad(x, { 3, 0 }, "reflect")
    end)
    helper.raises("leaves no size for dim 2", function() F.pad(x, { -2, -2 }) end)
    helper.raises("pad has 3 numbers", function() F.pad(x, { 1, 2, 3 }) end)
  end)

  it("has right gradients, and sums half types in float32", function()
    for _, mode in ipairs { "constant", "reflect", "replicate", "circular" } do
      check(function(a) return F.pad(a, { 2, 1, 1, 2 }, { mode = mode }) end, 2, 3, 4)
    end
    check(function(a) return F.pad(a, { -1, 2, 1, -1 }) end, 3, 4)
    local y = cnn.ones({ 1, 1 }, { dtype = "bfloat16", requires_grad = true })
    F.pad(y, { 0, 1000 }, "replicate"):backward(cnn.ones({ 1, 1001 }, { dtype = "bfloat16" }))
    assert.equal(1000, y.grad:item()) -- the nearest bfloat16 to 1001
  end)
end)

describe("creation", function()
  it("fills, counts and spaces", function()
    for _, x in ipairs { cnn.zeros(2, 3), cnn.zeros({ 2, 3 }), cnn.zeros { 2, 3 }, cnn.zeros_like(cnn.ones(2, 3)) } do
      assert.is_true(x:has_shape(2, 3) and x:abs():sum():item() == 0 and x.dtype == "float32")
    end
    assert.equal("int64", cnn.ones { 2, dtype = "int64" }.dtype)
    assert.equal("bool", cnn.full({ 2 }, true).dtype)
    assert.equal("float32", cnn.full({ 2 }, 3).dtype)
    assert.equal(7, cnn.full({}, 7):item())
    assert.is_true(cnn.empty({ 2, 3, 4, 5 }, { memory_format = "channels_last" }):is_contiguous("channels_last"))
    helper.elements(cnn.arange(3), { 0, 1, 2 })
    helper.elements(cnn.arange(2, 3, 0.25), { 2, 2.25, 2.5, 2.75 })
    helper.elements(cnn.arange(5, 0, -2, { dtype = "int64" }), { 5, 3, 1 })
    assert.equal("float32", cnn.arange(3).dtype)
    assert.is_true(cnn.arange(3, 3):has_shape(0))
    assert.is_true(cnn.arange(3, 1):has_shape(0))
    assert.equal(2 ^ 53 - 1, cnn.arange(2 ^ 53 - 1, 2 ^ 53, { dtype = "int64" })[1]:item())
    helper.elements(cnn.linspace(0, 1, 5), { 0, 0.25, 0.5, 0.75, 1 })
    helper.elements(cnn.linspace(3, 9, 1), { 3 })
    helper.elements(cnn.logspace(0, 2, 3), { 1, 10, 100 }, 1e-5)
    helper.elements(cnn.logspace(0, 3, 4, 2), { 1, 2, 4, 8 }, 1e-5)
    helper.elements(cnn.eye(2, 3), { 1, 0, 0, 0, 1, 0 })
    assert.is_true(cnn.eye(0):has_shape(0, 0))
    assert.equal("meta", cnn.eye(2, { device = "meta" }).device)
  end)

  it("keeps the stride order of what it is like", function()
    local x = cnn.zeros(3, 2):t()
    for _, y in ipairs { cnn.ones_like(x), cnn.empty_like(x), cnn.full_like(x, 2) } do
      assert.same({ 1, 2 }, { y:stride(1), y:stride(2) })
    end
    local w = cnn.zeros({ 2 }, { requires_grad = true })
    assert.is_false(cnn.zeros_like(w).requires_grad)
    assert.is_true(cnn.zeros_like(w, { requires_grad = true }).requires_grad)
    assert.equal("float64", cnn.full_like(w, 1.5, { dtype = "float64" }).dtype)
  end)

  it("fills in place", function()
    local x = cnn.ones(2, 3)
    x:t()[2]:fill_(5)
    helper.elements(x, { 1, 5, 1, 1, 5, 1 })
    helper.elements(x:zero_(), { 0, 0, 0, 0, 0, 0 })
    assert.is_true(cnn.zeros({ 1 }, { dtype = "bool" }):fill_(true):item())
  end)

  it("refuses what makes no sense", function()
    helper.raises("shape (-1,): sizes must be >= 0", function() cnn.zeros(-1) end)
    helper.raises("too large", function() cnn.zeros(2 ^ 40, 2 ^ 40) end)
    helper.raises("step must not be 0", function() cnn.arange(0, 1, 0) end)
    helper.raises("must be finite", function() cnn.arange(0, 1 / 0) end)
    helper.raises("steps must be >= 0", function() cnn.linspace(0, 1, -1) end)
    helper.raises("only floats can", function() cnn.zeros({ 2 }, { dtype = "int64", requires_grad = true }) end)
    helper.raises("did you mean \"dtype\"", function() cnn.zeros({ 2 }, { dtpye = "int64" }) end)
  end)
end)
