-- SPDX-License-Identifier: MIT
-- Matrix products in all their forms, against plain loops: layouts, dtypes, sizes of 0 and 1, gradients.
local cnn = require "cnn"
local helper = require "spec.helper"

local F, accel = cnn.F, cnn.core._accel
local unpack = table.unpack or unpack

local function rand(...) return cnn.randn({ ... }, { dtype = "float64" }) end

-- The elements of a product of matrices as a flat list, summed by the book.
local function by_hand(x, y)
  local a, b, list = x:double():totable(), y:double():totable(), {}
  local n, k, m = x.shape[1], x.shape[2], y.shape[2]
  for i = 1, n do
    for j = 1, m do
      local sum = 0
      for p = 1, k do sum = sum + a[i][p] * b[p][j] end
      list[#list + 1] = sum
    end
  end
  return list
end

-- The same values in other layouts: transposed, stepped, with an offset.
local LAYOUTS = {
  plain = function(x) return x end,
  transposed = function(x) return x:t():contiguous():t() end,
  stepped = function(x) return cnn.stack({ x, x }, -1):select(-1, 1) end,
  offset = function(x) return cnn.cat({ x, x }):narrow(1, x.shape[1] + 1, x.shape[1]) end,
}

describe("matmul", function()
  setup(function() cnn.manual_seed(1) end)

  it("multiplies matrices of any sizes and layouts", function()
    for _, s in ipairs { { 1, 1, 1 }, { 3, 4, 5 }, { 1, 37, 2 }, { 33, 1, 17 }, { 7, 64, 1 }, { 40, 65, 33 } } do
      for left, fx in pairs(LAYOUTS) do
        for right, fy in pairs(LAYOUTS) do
          local x, y = rand(s[1], s[2]), rand(s[2], s[3])
          local z = fx(x):matmul(fy(y))
          assert.is_true(z:is_contiguous())
          local ok, message = pcall(helper.elements, z, by_hand(x, y), 1e-10)
          assert.is_true(ok, left .. " by " .. right .. ": " .. tostring(message))
        end
      end
    end
  end)

  it("takes expanded operands", function()
    local row, y = rand(1, 4), rand(4, 3)
    helper.elements(row:expand(5, 4):matmul(y), by_hand(cnn.cat { row, row, row, row, row }, y))
    local one = rand(1, 1)
    helper.elements(one:expand(2, 3):matmul(one:expand(3, 2)), by_hand(cnn.cat({ one, one, one }, 2):expand(2, 3),
      cnn.cat({ one, one }, 2):expand(3, 2)))
  end)

  it("follows the rules for vectors and batches", function()
    for _, case in ipairs {
      { { 4 }, { 4 }, {} }, { { 3, 4 }, { 4 }, { 3 } }, { { 4 }, { 4, 5 }, { 5 } },
      { { 2, 3, 4 }, { 2, 4, 5 }, { 2, 3, 5 } }, { { 2, 1, 3, 4 }, { 5, 4, 3 }, { 2, 5, 3, 3 } },
      { { 2, 3, 4 }, { 4, 5 }, { 2, 3, 5 } }, { { 3, 4 }, { 2, 4, 5 }, { 2, 3, 5 } },
      { { 2, 3, 4 }, { 4 }, { 2, 3 } }, { { 4 }, { 2, 4, 5 }, { 2, 5 } },
      { { 0, 3 }, { 3, 2 }, { 0, 2 } }, { { 2, 0 }, { 0, 3 }, { 2, 3 } }, { { 0, 2, 3 }, { 3, 4 }, { 0, 2, 4 } },
    } do
      local z = rand(unpack(case[1])):matmul(rand(unpack(case[2])))
      assert.same(case[3], { unpack(z.shape) })
    end
    helper.elements(rand(2, 0):matmul(rand(0, 3)), { 0, 0, 0, 0, 0, 0 })
    local x, y = rand(3, 2, 4), rand(4, 5)
    local z = x:matmul(y)
    for i = 1, 3 do helper.elements(z[i], by_hand(x[i], y)) end
    local a, b = rand(6, 4, 3):transpose(2, 3), rand(2, 6, 4, 5):permute(1, 2, 3, 4)
    local c = a:matmul(b)
    for i = 1, 2 do
      for k = 1, 6 do helper.elements(c[i][k], by_hand(a[k], b[i][k])) end
    end
  end)

  it("keeps the dtype; integers wrap around", function()
    local dtypes = { "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8" }
    for _, dtype in ipairs(dtypes) do
      local x = cnn.tensor({ { 1, 2, 3 }, { 4, 5, 6 } }, { dtype = dtype })
      local z = x:matmul(x:t())
      assert.equal(dtype, z.dtype)
      helper.elements(z, { 14, 32, 32, 77 })
    end
    helper.elements(cnn.tensor({ 100, 100 }, "int8"):dot(cnn.tensor({ 1, 1 }, "int8")), { -56 })
    helper.elements(cnn.tensor({ 200, 100 }, "uint8"):dot(cnn.tensor({ 1, 1 }, "uint8")), { 44 })
  end)

  it("accumulates half types in float32", function()
    -- 4096 summands of 1: a float16 sum would stop at 2048, a bfloat16 one at 256.
    for _, dtype in ipairs { "float16", "bfloat16" } do
      local x = cnn.ones(4096, { dtype = dtype })
      assert.equal(4096, x:dot(x):item())
    end
  end)

  it("is the same with any number of threads and close with the plugin", function()
    local threads = cnn.get_num_threads()
    accel(false)
    for _, s in ipairs { { 70, 300, 90 }, { 3, 2000, 500 }, { 200, 200, 200 } } do
      local x, y = cnn.randn(s[1], s[2]), cnn.randn(s[2], s[3])
      cnn.set_num_threads(1)
      local one = x:matmul(y)
      cnn.set_num_threads(3)
      assert.is_true(x:matmul(y):eq(one):all():item())
      accel(true)
      helper.elements(x:matmul(y), helper.flat(one), 1e-3)
      accel(false)
    end
    local x, y = cnn.randn(12, 40, 30), cnn.randn(12, 30, 50)
    local many = x:matmul(y)
    cnn.set_num_threads(1)
    assert.is_true(x:matmul(y):eq(many):all():item())
    cnn.set_num_threads(threads)
    accel(true)
  end)

  it("has gradients for every form, and gradients of those", function()
    for _, s in ipairs {
      { { 3, 4 }, { 4, 2 } }, { { 4 }, { 4 } }, { { 3, 4 }, { 4 } }, { { 4 }, { 4, 2 } },
      { { 2, 1, 3, 2 }, { 3, 2, 2 } },
      { { 2, 3, 2 }, { 2, 2 } }, { { 2, 3 }, { 2, 3, 2 } }, { { 2, 3, 2 }, { 2 } }, { { 2 }, { 3, 2, 2 } },
      { { 1, 1 }, { 2, 1, 1 } }, { { 1, 2, 2 }, { 2, 2, 1 } },
    } do
      local x, y = rand(unpack(s[1])):requires_grad_(), rand(unpack(s[2])):requires_grad_()
      cnn.gradcheck(cnn.matmul, { x, y }, { second = true })
    end
    local x, y = rand(4, 3):requires_grad_(), rand(2, 4):requires_grad_()
    cnn.gradcheck(function(a, b) return a:t():matmul(b:t()) end, { x, y }, { second = true })
  end)

  it("gives a summed gradient where the batch was broadcast", function()
    local x, w = rand(3, 2, 4), rand(4, 5):requires_grad_()
    local dy = rand(3, 2, 5)
    x:matmul(w):backward(dy)
    helper.elements(w.grad, by_hand(x:reshape(6, 4):t(), dy:reshape(6, 5)))
  end)

  it("says what does not fit", function()
    helper.raises("matmul: x has 3 columns (2, 3) but y has 4 rows (4, 2): they must be equal", cnn.matmul,
      rand(2, 3), rand(4, 2))
    helper.raises("matmul: x has 0 dims", cnn.matmul, rand(), rand(2))
    helper.raises("don't broadcast", cnn.matmul, rand(2, 2, 3), rand(3, 3, 2))
    helper.raises("float32", cnn.matmul, rand(2, 2), cnn.ones(2, 2))
    helper.raises("matmul: x is bool", cnn.matmul, cnn.ones(2, 2):gt(0), cnn.ones(2, 2):gt(0))
    helper.raises("mm: y must have 2 dims, not 1 (2,)", cnn.mm, rand(2, 2), rand(2))
    helper.raises("bmm: x (2, 1, 3) and y (3, 3, 1) must hold equally many matrices", cnn.bmm, rand(2, 1, 3),
      rand(3, 3, 1))
    helper.raises("dot: x must have 1 dim, not 2", cnn.dot, rand(2, 2), rand(2))
  end)

  it("knows shapes without data", function()
    local x, y = cnn.empty(7, 3, { device = "meta" }), cnn.empty(2, 3, 5, { device = "meta" })
    assert.same({ 2, 7, 5 }, { unpack(x:matmul(y).shape) })
  end)
end)

describe("addmm and baddbmm", function()
  it("scale and add", function()
    local x, y = rand(3, 4), rand(4, 2)
    local product = x:matmul(y)
    for _, shape in ipairs { { 2 }, { 3, 1 }, { 1, 2 }, { 3, 2 }, { 1 } } do
      local a = rand(unpack(shape))
      helper.elements(cnn.addmm(a, x, y), helper.flat(product + a), 1e-12)
      helper.elements(cnn.addmm(a, x, y, { beta = 0.5, alpha = -2 }), helper.flat(product * -2 + a * 0.5), 1e-12)
    end
    local b, c, d = rand(2, 1, 2), rand(2, 3, 4), rand(2, 4, 2)
    helper.elements(cnn.baddbmm(b, c, d, 2, 3), helper.flat(c:matmul(d) * 3 + b * 2), 1e-12)
  end)

  it("don't read the input when beta is 0", function()
    local x, y = rand(3, 4), rand(4, 2)
    local nan = cnn.full({ 3, 2 }, 0 / 0, { dtype = "float64" })
    helper.elements(cnn.addmm(nan, x, y, { beta = 0 }), helper.flat(x:matmul(y)))
  end)

  it("have gradients", function()
    local a, x, y = rand(2):requires_grad_(), rand(3, 4):requires_grad_(), rand(4, 2):requires_grad_()
    cnn.gradcheck(function(p, q, r) return cnn.addmm(p, q, r, { beta = 0.5, alpha = 2 }) end, { a, x, y },
      { second = true })
    local b, c, d = rand(2, 3, 1):requires_grad_(), rand(2, 3, 2):requires_grad_(), rand(2, 2, 2):requires_grad_()
    cnn.gradcheck(cnn.baddbmm, { b, c, d }, { second = true })
  end)

  it("refuse fractions for integers", function()
    local x = cnn.ones(2, 2, { dtype = "int64" })
    helper.raises("addmm: input is int64 but beta is 0.5", cnn.addmm, x, x, x, 0.5)
    helper.elements(cnn.addmm(x, x, x, 3, 2), { 7, 7, 7, 7 })
  end)
end)

describe("linear", function()
  it("maps the last dim", function()
    local w, b = rand(3, 4), rand(3)
    for _, shape in ipairs { { 4 }, { 5, 4 }, { 2, 5, 4 }, { 0, 4 }, { 2, 1, 3, 4 } } do
      local x = rand(unpack(shape))
      local y = F.linear(x, w, b)
      helper.elements(y, helper.flat(x:matmul(w:t()) + b), 1e-12)
      helper.elements(F.linear(x, w), helper.flat(x:matmul(w:t())), 1e-12)
      assert.equal(3, y.shape[#y.shape])
    end
    local v = rand(4)
    helper.elements(F.linear(rand(5, 4) * 0 + 1, v, cnn.tensor(1, { dtype = "float64" })),
      helper.flat(cnn.full({ 5 }, v:sum():item() + 1, { dtype = "float64" })), 1e-12)
  end)

  it("takes strided inputs and weights", function()
    local x, w, b = rand(4, 6, 2):permute(3, 2, 1), rand(4, 3):t(), rand(6):narrow(1, 2, 3)
    helper.elements(F.linear(x, w, b), helper.flat(x:contiguous():matmul(w:t():contiguous()) + b), 1e-12)
  end)

  it("has gradients", function()
    for _, shape in ipairs { { 3 }, { 4, 3 }, { 2, 2, 3 } } do
      local x, w, b = rand(unpack(shape)):requires_grad_(), rand(2, 3):requires_grad_(), rand(2):requires_grad_()
      cnn.gradcheck(F.linear, { x, w, b }, { second = true })
    end
  end)

  it("says what does not fit", function()
    helper.raises("linear: input (2, 3) must end with 4 features, which weight (5, 4) expects", F.linear, rand(2, 3),
      rand(5, 4))
    helper.raises("linear: bias must be (5,) for weight (5, 4), not (4,)", F.linear, rand(2, 4), rand(5, 4), rand(4))
  end)
end)

describe("einsum", function()
  it("is what its subscripts say", function()
    local x, y, m = rand(2, 3, 4), rand(2, 4, 5), rand(3, 3)
    local cases = {
      { "bij,bjk->bik", x:matmul(y), x, y }, { "bij,bjk", x:matmul(y):sum(1), x, y },
      { "bij->jbi", x:permute(3, 1, 2), x }, { "bij->", x:sum(), x }, { "bij->j", x:sum { 1, 2 }, x },
      { "ii", (m * cnn.eye(3, { dtype = "float64" })):sum(), m }, { "ij,ij->", (m * m):sum(), m, m },
      { "i,j->ij", m[1]:outer(m[2]), m[1], m[2] }, { "...ij,...jk->...ik", x:matmul(y), x, y },
      { "b...,b...->...", (x * x):sum(1), x, x }, { "ba", m:t(), m }, { " i j , j k -> k i ", m:matmul(m):t(), m, m },
      { "ij,jk,kl->il", m:matmul(m):matmul(m), m, m, m }, { "...->...", x, x },
    }
    for _, case in ipairs(cases) do
      local z = cnn.einsum(case[1], unpack(case, 3))
      assert.same({ unpack(case[2].shape) }, { unpack(z.shape) })
      helper.elements(z, helper.flat(case[2]), 1e-10)
      helper.elements(cnn.einsum(case[1], { unpack(case, 3) }), helper.flat(case[2]), 1e-10)
    end
    helper.elements(cnn.einsum("bii->bi", cnn.stack { m, m * 2 }), {
      m[1][1]:item(), m[2][2]:item(), m[3][3]:item(), 2 * m[1][1]:item(), 2 * m[2][2]:item(), 2 * m[3][3]:item() })
  end)

  it("repeats sizes of 1", function()
    local x, y = rand(1, 3), rand(4, 3)
    helper.elements(cnn.einsum("ij,ij->ij", x, y), helper.flat(x * y))
    helper.elements(cnn.einsum("ij,ij->j", x, y), helper.flat((x * y):sum(1)), 1e-12)
    helper.elements(cnn.einsum("ij,ij->i", y, x), helper.flat((x * y):sum(2)), 1e-12)
  end)

  it("has gradients", function()
    local x, y, z = rand(2, 3):requires_grad_(), rand(3, 2):requires_grad_(), rand(2, 2):requires_grad_()
    cnn.gradcheck(function(a, b, c) return cnn.einsum("ij,jk,ki->i", a, b, c) end, { x, y, z }, { second = true })
    cnn.gradcheck(function(a) return cnn.einsum("ii->i", a) end, { z }, { second = true })
  end)

  it("says what is wrong with the equation", function()
    local x, m = rand(2, 3), rand(3, 3)
    helper.raises("einsum: operand 1 has 2 dims (2, 3), but its subscript names 1", cnn.einsum, "i->i", x)
    helper.raises("einsum: operand 2: j has size 2 there and 3 before", cnn.einsum, "ij,jk->ik", x, x)
    helper.raises("einsum: equation: k is in no operand", cnn.einsum, "ij->k", x)
    helper.raises("einsum: equation: i stands twice in the result", cnn.einsum, "ij->ii", x)
    helper.raises("einsum: equation: more subscripts than operands", cnn.einsum, "ij,jk->ik", x)
    helper.raises("einsum: equation: fewer subscripts than operands", cnn.einsum, "ij", x, x)
    helper.raises("einsum: equation: expected letters", cnn.einsum, "i1->i", m)
    helper.raises("einsum: operand 1: dims under one letter have sizes 2 and 3", cnn.einsum, "ii", x)
  end)
end)

describe("tensordot, outer, bilinear", function()
  it("contract the dims that were named", function()
    local x, y = rand(2, 3, 4), rand(4, 3, 5)
    local z = cnn.tensordot(x, y, { { 2, 3 }, { 2, 1 } })
    helper.elements(z, helper.flat(cnn.einsum("abc,cbd->ad", x, y)), 1e-10)
    helper.elements(cnn.tensordot(x, y, 1), helper.flat(cnn.einsum("abc,cde->abde", x, y)), 1e-10)
    helper.elements(cnn.tensordot(x, x, { { -1, 2 }, { 3, -2 } }), helper.flat(cnn.einsum("abc,dbc->ad", x, x)), 1e-10)
    helper.raises("dim 1 of x (2, 3, 4) and dim 2 of y (4, 3, 5) differ in size", cnn.tensordot, x, y, { { 1 }, { 2 } })
    helper.raises("the two lists name 2 and 1 dims", cnn.tensordot, x, y, { { 1, 2 }, { 2 } })
    helper.raises("dims of x: dim 1 is given twice", cnn.tensordot, x, y, { { 1, 1 }, { 2, 3 } })
  end)

  it("multiply every pair", function()
    helper.elements(cnn.outer(cnn.tensor { 1, 2 }, cnn.tensor { 3, 4, 5 }), { 3, 4, 5, 6, 8, 10 })
    local a, b, w, c = rand(2, 3):requires_grad_(), rand(2, 2):requires_grad_(), rand(4, 3, 2):requires_grad_(),
      rand(4):requires_grad_()
    helper.elements(F.bilinear(a, b, w, c), helper.flat(cnn.einsum("ni,oij,nj->no", a, w, b) + c), 1e-10)
    cnn.gradcheck(F.bilinear, { a, b, w, c }, { second = true })
    helper.raises("bilinear: input1 (2, 3) and input2 (2, 2) must be", F.bilinear, a, b, w:transpose(2, 3))
  end)
end)
