-- SPDX-License-Identifier: MIT
-- Sums of products by subscripts (csrc/ops/einsum.c).
local assert = require "luassert"
local cnn = require "cnn"
local db = require "spec.opdb"
local T, S, L, nd = db.T, db.S, db.L, db.nd

-- The labels of a subscript, for an operand of so many dims; `...` becomes labels 1, 2, ..., so that the
-- last of them is the number `dots`.
local function labels_of(text, rank, dots)
  local list, named = {}, #text:gsub("%.%.%.", ""):gsub(" ", "")
  local at = 1
  while at <= #text do
    local c = text:sub(at, at)
    if c == "." then
      for k = 1, rank - named do list[#list + 1] = dots - (rank - named) + k end
      at = at + 3
    else
      if c ~= " " then list[#list + 1] = c end
      at = at + 1
    end
  end
  return list
end

-- By the definition: the sum over all labels of the product of the operands' elements.
local function einsum(equation, ...)
  local operands = { ... }
  if not nd.is(operands[1]) then operands = operands[1] end
  local left, right = equation:match "^(.*)%->(.*)$"
  left = left or equation
  local subscripts = {}
  for piece in (left .. ","):gmatch "([^,]*)," do subscripts[#subscripts + 1] = piece end
  local dots = 0
  for i, x in ipairs(operands) do
    local named = #subscripts[i]:gsub("%.%.%.", ""):gsub(" ", "")
    dots = math.max(dots, #x.shape - named)
  end
  local dims, size, seen = {}, {}, {}
  for i, x in ipairs(operands) do
    dims[i] = labels_of(subscripts[i], #x.shape, dots)
    for d, label in ipairs(dims[i]) do
      if (size[label] or 1) == 1 then size[label] = x.shape[d] end
      seen[label] = (seen[label] or 0) + 1
    end
  end
  local out
  if right then
    out = labels_of(right, #right:gsub("%.%.%.", ""):gsub(" ", "") + (right:find("...", 1, true) and dots or 0), dots)
  else
    out = {}
    for k = 1, dots do out[k] = k end
    local letters = {}
    for label, n in pairs(seen) do
      if type(label) == "string" and n == 1 then letters[#letters + 1] = label end
    end
    table.sort(letters)
    for _, label in ipairs(letters) do out[#out + 1] = label end
  end
  local shape, all, kept = {}, {}, {}
  for i, label in ipairs(out) do
    shape[i], all[i], kept[label] = size[label], label, true
  end
  local inner = {}
  for label in pairs(size) do
    if not kept[label] then
      all[#all + 1] = label
      inner[#inner + 1] = size[label]
    end
  end
  return nd.build(shape, function(...)
    local value, total = {}, 0
    for i = 1, #out do value[out[i]] = (select(i, ...)) end
    nd.each(inner, function(at)
      for i, v in ipairs(at) do value[all[#out + i]] = v end
      local product = 1
      for i, x in ipairs(operands) do
        local place = {}
        for d, label in ipairs(dims[i]) do place[d] = x.shape[d] == 1 and 1 or value[label] end
        product = product * x:at(place)
      end
      total = total + product
    end)
    return total
  end)
end

local function tensordot(x, y, dims)
  local xi, yi, n = {}, {}, dims or 2
  if type(n) == "table" then
    for i, d in ipairs(n[1]) do xi[i], yi[i] = x:dim(d), y:dim(n[2][i]) end
  else
    for i = 1, n do xi[i], yi[i] = #x.shape - n + i, i end
  end
  -- The same sum by letters.
  local function subscript(array, contracted, first)
    local letters, free = {}, ""
    for i, d in ipairs(contracted) do letters[d] = string.char(96 + i) end
    for d = 1, #array.shape do
      if not letters[d] then
        letters[d] = string.char(first + d)
        free = free .. letters[d]
      end
    end
    return table.concat(letters), free
  end
  local left, left_free = subscript(x, xi, 104)
  local right, right_free = subscript(y, yi, 112)
  return einsum(left .. "," .. right .. "->" .. left_free .. right_free, x, y)
end

local few = { ints = { -2, 2 } } -- so that sums fit in int8

local function few_T(shape) return T(shape, few) end

return {
  einsum = {
    dtypes = "real", refuses = "bool", dense = false,
    samples = {
      S("ij,jk->ik", T { 3, 4 }, T { 4, 5 }), S("ij,jk", T { 3, 4 }, T { 4, 5 }),
      S("ik,kj->ji", L { T { 3, 4 }, T { 4, 2 } }),
      S("i,i->", T { 4 }, T { 4 }), S("i,j->ij", T { 3 }, T { 4 }), S("ij->ji", T { 3, 4 }), S("ij->", T { 3, 4 }),
      S("ij->j", T { 3, 4 }), S("ii->i", T { 3, 3 }), S("ii", T { 3, 3 }), S("iij->j", T { 3, 3, 2 }),
      S("bij,bjk->bik", T { 2, 3, 4 }, T { 2, 4, 2 }), S("...ij,...jk->...ik", T { 2, 1, 3, 2 }, T { 3, 2, 2 }),
      S("...ij->...ji", T { 2, 3, 4 }), S("...,...->...", T { 2, 3 }, T { 3 }),
      S("i...,i...->...", T { 3, 2 }, T { 3, 4, 2 }),
      S("ij,kj->ik", T { 3, 4 }, T { 1, 4 }), S("ij,ij->ij", T { 3, 4 }, T { 1, 4 }),
      S("ij,ij->", T { 3, 4 }, T { 1, 4 }),
      S("bhqd,bhkd->bhqk", few_T { 2, 2, 3, 2 }, few_T { 2, 2, 4, 2 }),
      S("abc,cd,de->abe", few_T { 2, 2, 3 }, few_T { 3, 2 }, few_T { 2, 2 }),
      S("ij,jk,kl->il", few_T { 2, 3 }, few_T { 3, 2 }, few_T { 2, 3 }),
      S("i,ij,j->", few_T { 3 }, few_T { 3, 2 }, few_T { 2 }),
      S("ba", T { 2, 3 }), S("aB->Ba", T { 2, 3 }), S(" i j , j k -> i k ", T { 2, 3 }, T { 3, 2 }),
      S(",->", T {}, T {}),
      S("->", T {}), S("ij,jk->ik", T { 0, 3 }, T { 3, 2 }), S("ij,jk->ik", T { 2, 0 }, T { 0, 3 }),
      S("ij->i", T { 2, 0 }),
      S("ijk,ijl->kl", few_T { 2, 2, 3 }, few_T { 2, 2, 2 }), S("ijk,jil->il", few_T { 2, 2, 3 }, few_T { 2, 2, 2 }),
      S("ij,ik->", few_T { 2, 3 }, few_T { 2, 2 }), S("ij,kl->", few_T { 2, 2 }, few_T { 2, 2 }),
      S("iji,jk->k", few_T { 2, 3, 2 }, few_T { 3, 2 }),
      S("i,i,i->i", few_T { 3 }, few_T { 3 }, few_T { 3 }),
    },
    ref = einsum,
    errors = {
      { S("ij,jk->ik", T { 2, 3 }), "more subscripts than operands, of which there are 1" },
      { S("ij->ij", T { 2, 3 }, T { 2, 3 }), "fewer subscripts than operands, of which there are 2" },
      { S("ij", T { 2 }), "operand 1 has 1 dims (2,), but its subscript names 2" },
      { S("...ijk->...", T { 2, 2 }), "names 3 besides `...`" },
      { S("ij->k", T { 2, 3 }), "equation: k is in no operand" },
      { S("ij->ii", T { 2, 3 }), "equation: i stands twice in the result" },
      { S("ij->i,j", T { 2, 3 }), "the result has one subscript" },
      { S("i1->i", T { 2, 3 }), "expected letters, `,`, `...` or `->`, at \"1->i\"" },
      { S("i..j", T { 2, 3 }), "expected letters" },
      { S("...i...->i", T { 2, 3 }), "a subscript has at most one `...`" },
      { S("ii->i", T { 2, 3 }), "operand 1: dims under one letter have sizes 2 and 3" },
      { S("ij,jk->ik", T { 2, 3 }, T { 4, 2 }),
        "operand 2: j has size 4 there and 3 before: sizes must be equal or 1" },
      { S("...,...->...", T { 2 }, T { 3 }), "operand 2: ... has size 3 there and 2 before" },
      { S("ij,jk->ik", T { 2, 2 }, T({ 2, 2 }, { dtype = "int64" })), "convert one, e.g. " },
      { S("", L {}), "expected 1 to 64 tensors, got 0" },
      { S(T { 2 }, "i"), "expected a string" }, { S(("i"):rep(60), T { 2 }), "a subscript is too long" },
    },
    large = S("bij,bkj->ikb", T { 8, 60, 50 }, T { 8, 40, 50 }),
    check = function(_, run)
      run("takes no more dims than a tensor has", function()
        local x = cnn.ones(1, 1, 1, 1, 1)
        local ok, message = pcall(cnn.einsum, "abcde,fghij->abcdefghij", x, x)
        assert.is_false(ok)
        assert.truthy(tostring(message):find("more than 8 dims", 1, true))
      end)
    end,
  },
  tensordot = {
    dtypes = "real", refuses = "bool",
    samples = {
      S(few_T { 2, 3, 4 }, few_T { 3, 4, 2 }), S(few_T { 2, 3 }, few_T { 3, 4 }, 1),
      S(few_T { 2, 3 }, few_T { 2, 3 }, 2),
      S(T { 2, 3 }, T { 4 }, 0), S(few_T { 2, 3, 4 }, few_T { 4, 2, 3 }, { { 2, 3 }, { 3, 1 } }),
      S(few_T { 2, 3, 4 }, few_T { 4, 2, 3 }, { { -1, 1 }, { 1, -2 } }),
      S(few_T { 2, 3 }, few_T { 2, 4 }, { { 1 }, { 1 } }),
      S(few_T { 2, 0 }, few_T { 0, 3 }, 1), S(T { 0, 3 }, T { 3, 2 }, 1), S(T {}, T {}, 0), S(T { 3 }, T { 3 }, 1),
      S(T { 2 }, T { 3 }, { {}, {} }),
    },
    ref = tensordot,
    errors = {
      { S(T { 2, 3 }, T { 4, 3 }, 1), "dim 2 of x (2, 3) and dim 1 of y (4, 3) differ in size" },
      { S(T { 2 }, T { 2, 3 }), "dims: 2 dims can't be taken of x (2,) and y (2, 3)" },
      { S(T { 2 }, T { 2 }, -1), "dims: -1 dims" },
      { S(T { 2, 2 }, T { 2, 2 }, { { 1, 1 }, { 1, 2 } }), "dims of x: dim 1 is given twice" },
      { S(T { 2, 2 }, T { 2, 2 }, { { 1, 2 }, { 2, -1 } }), "dims of y: dim 2 is given twice" },
      { S(T { 2, 2 }, T { 2, 2 }, { { 3 }, { 1 } }), "dims of x 3 is out of range" },
      { S(T { 2, 2 }, T { 2, 2 }, { { 1, 2 }, { 1 } }), "the two lists name 2 and 1 dims" },
      { S(T { 2, 2 }, T({ 2, 2 }, { dtype = "int64" }), 1), "convert one, e.g. " },
      { S(T { 1, 1, 1, 1, 1 }, T { 1, 1, 1, 1, 1 }, 0), "the result has more than 8 dims" },
    },
    large = db.with(S(T { 20, 30, 40 }, T { 40, 30, 50 }, { { 2, 3 }, { 2, 1 } }), { tol = 8 }), -- long sums
  },
}
