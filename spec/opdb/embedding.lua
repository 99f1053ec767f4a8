-- SPDX-License-Identifier: MIT
-- Tables looked up by ids: csrc/ops/embedding.c.
local cnn = require "cnn"
local db = require "spec.opdb"
local nd, T, I, S, with = db.nd, db.T, db.I, db.S, db.with

local function extended(shape, n)
  local larger = {}
  for d, s in ipairs(shape) do larger[d] = s end
  larger[#shape + 1] = n
  return larger
end

local function embedding(input, weight)
  local width, list = weight.shape[2], {}
  for _, id in ipairs(input.list) do
    for k = 1, width do list[#list + 1] = weight(id, k) end
  end
  return nd.new(extended(input.shape, width), list)
end

local function backward(dy, input, n, padding)
  local width = dy.shape[#dy.shape]
  local dw = nd.new({ n, width }, 0)
  for i, id in ipairs(input.list) do
    for k = 1, width do
      if id ~= padding then dw:put({ id, k }, dw(id, k) + dy.list[(i - 1) * width + k]) end
    end
  end
  return dw
end

local function one_hot(x, n)
  if not n or n == -1 then n = math.max(0, (table.unpack or unpack)(x.list)) end -- luacheck: ignore
  local list = {}
  for _, id in ipairs(x.list) do
    for k = 1, n do list[#list + 1] = k == id and 1 or 0 end
  end
  return nd.new(extended(x.shape, n), list)
end

local function counted(...) return with(S(...), { dynamic = true }) end

return {
  embedding = {
    dtypes = "all", ref = embedding,
    samples = {
      S(I({ 5 }, 4), T { 4, 3 }), S(I({ 2, 3 }, 4), T { 4, 3 }), S(I({}, 4), T { 4, 3 }),
      S(I({ 3 }, { 2, 2, 2 }), T { 2, 5 }), S(I({ 0 }, {}), T { 4, 3 }),
      S(I({ 2, 0 }, {}), T { 4, 3 }), S(I({ 3 }, 4), T { 4, 0 }), S(I({ 0 }, {}), T { 0, 3 }),
      S(I({ 3 }, { 1, 3, 4 }), T { 4, 3 }, 2), S(I({ 2, 1, 2, 3 }, 4), T { 4, 2 }),
      with(S(I({ 3 }, { 1, 3, 4 }), T { 4, 3 }, 3), { grad = false }), S(I({ 5 }, 4, { dtype = "uint8" }), T { 4, 3 }),
    },
    errors = {
      { S(I({ 2 }, { 1, 5 }), T { 4, 3 }), "index 5 is out of range for dim 1 of size 4 (1..4)" },
      { S(I({ 1 }, { 0 }), T { 4, 3 }), "index 0: Lua indices start at 1" },
      { S(I({ 2 }, 4), T { 4 }), "weight must have 2 dims (num_embeddings, embedding_dim), not shape (4,)" },
      { S(I({ 2 }, 4), T { 4, 3, 1 }), "not shape (4, 3, 1)" },
      { S(I({ 2 }, 4), T { 4, 3 }, 5), "padding_idx 5 is out of range for 4 embeddings" },
      { S(I({ 2 }, 4), T { 4, 3 }, 0), "padding_idx 0: labels start at 1 in Lua" },
      { S(T({ 2 }, { dtype = "float32" }), T { 4, 3 }),
        'input must be an integer tensor, not float32: use input:to("int64")' },
      { S(I({ 1, 1, 1, 1, 1, 1, 1, 1 }, 4), T { 4, 3 }), "a tensor has at most 8 dims" },
    },
    lengths = function(n) return S(I({ n }, 4), T { 4, 3 }), S(I({ 3 }, 4), T { 4, n }), S(I({ 7 }, n), T { n, 2 }) end,
    long = { 300, 1100, 9001 },
    large = { S(I({ 3000 }, 100), T { 100, 57 }), S(I({ 30, 40 }, 1000), T { 1000, 64 }) },
    check = function(_, run)
      run("gives the padding row no gradient", function()
        local ids = cnn.tensor({ 1, 2, 2, 3 }, { dtype = "int64" })
        db.expect_gradient({ 1, 1, 0, 0, 1, 1 }, function(w) return cnn.embedding(ids, w, 2) end,
          { { 1, 2 }, { 3, 4 }, { 5, 6 } })
      end)
    end,
  },
  embedding_backward = {
    internal_dtypes = true, ref = backward,
    samples = {
      S(T { 5, 3 }, I({ 5 }, 4), 4), S(T { 2, 3, 4 }, I({ 2, 3 }, 4), 4), S(T { 3 }, I({}, 4), 4),
      S(T { 5, 3 }, I({ 5 }, { 2, 2, 2, 1, 2 }), 3), S(T { 0, 3 }, I({ 0 }, {}), 4),
      S(T { 3, 0 }, I({ 3 }, 4), 4), S(T { 4, 3 }, I({ 4 }, { 1, 3, 3, 2 }), 4, 3),
      S(T { 2, 1, 2, 3 }, I({ 2, 1, 2 }, 4), 4, 1),
    },
    lengths = function(n)
      return S(T { n, 3 }, I({ n }, 4), 4), S(T { 3, n }, I({ 3 }, 2), 4), S(T { 7, 2 }, I({ 7 }, n), n)
    end,
    long = { 300, 1100, 9001 },
    large = { S(T { 3000, 57 }, I({ 3000 }, 100), 100), S(T { 1200, 64 }, I({ 1200 }, 1000), 1000, 7) },
  },
  largest_index = {
    dtypes = "none", out = "int64", grad = false,
    ref = function(x) return nd.scalar(math.max(0, (table.unpack or unpack)(x.list))) end, -- luacheck: ignore
    samples = { S(I({ 5 }, 9)), S(I({ 2, 3 }, 9)), S(I({}, { 7 })), S(I({ 0 }, {})), S(I({ 300 }, 900)) },
    lengths = function(n) return S(I({ n }, 100)) end, long = { 600, 1100 },
  },
  one_hot = {
    dtypes = "none", out = "int64", grad = false, ref = one_hot,
    samples = {
      counted(I({ 5 }, 4)), counted(I({ 2, 3 }, 4)), S(I({ 5 }, 4), 6), S(I({}, 4), 4), S(I({ 0 }, {}), 3),
        counted(I({ 0 }, {})), S(I({ 2, 1, 2 }, 3), 3), counted(I({ 3 }, 2), -1),
    },
    errors = {
      { S(I({ 2 }, { 1, 4 }), 3), "index 4 is out of range for dim 2 of size 3 (1..3)" },
      { S(I({ 2 }, { 0, 1 }), 3), "index 0: Lua indices start at 1" },
      { S(I({ 2 }, { 1, -1 })), "index -1: index tensors hold positions from 1 on" },
      { S(I({ 2 }, 3), -2), "num_classes must be >= 0, not -2" },
      { S(T({ 2 }, { dtype = "float32" })), 'x must be an integer tensor, not float32: use x:to("int64")' },
      { S(I({ 1, 1, 1, 1, 1, 1, 1, 1 }, 1), 2), "a tensor has at most 8 dims" },
    },
    lengths = function(n) return S(I({ n }, 3), 3), S(I({ 2 }, n), n) end,
    long = { 300, 1100 },
    large = { S(I({ 3000 }, 57), 57) },
  },
}
