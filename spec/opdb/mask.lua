-- SPDX-License-Identifier: MIT
-- Places named by what is true: csrc/ops/mask.c.
local db = require "spec.opdb"
local nd, T, M, S, with = db.nd, db.T, db.M, db.S, db.with

-- A tensor some elements of which are 0, in every dtype.
local function some(shape, list)
  return T(shape, { values = list })
end

local function places(x)
  local list, rank = {}, #x.shape
  nd.each(x.shape, function(at)
    if x:at(at) ~= 0 then
      for d = 1, rank do list[#list + 1] = at[d] end
      list.n = (list.n or 0) + 1
    end
  end)
  return nd.new({ list.n or 0, rank }, list)
end

local function count(x)
  local n = 0
  for _, v in ipairs(x.list) do n = n + (v ~= 0 and 1 or 0) end
  return n
end

-- The elements of the blocks behind x's leading dims, which are mask's, one list for each true one.
local function blocks(shape, mask)
  local tail, at, list = {}, 0, {}
  for d = #mask.shape + 1, #shape do tail[#tail + 1] = shape[d] end
  local size = nd.size(tail)
  for _, flag in ipairs(mask.list) do
    if flag ~= 0 then list[#list + 1] = at end
    at = at + size
  end
  return list, size, tail
end

local function select_blocks(x, mask)
  local starts, size, tail = blocks(x.shape, mask)
  local list = {}
  for _, start in ipairs(starts) do
    for k = 1, size do list[#list + 1] = x.list[start + k] end
  end
  return nd.new({ #starts, (table.unpack or unpack)(tail) }, list) -- luacheck: ignore
end

local function spread_blocks(x, mask, shape)
  local starts, size = blocks(shape, mask)
  local y = nd.new(shape, 0)
  for i, start in ipairs(starts) do
    for k = 1, size do y.list[start + k] = x.list[(i - 1) * size + k] end
  end
  return y
end

local function zeros_and_others()
  return {
    S(some({ 6 }, { 0, 1, 0, 2, 3, 0 })), S(some({ 2, 3 }, { 0, 1, 0, 2, 3, 0 })),
    S(some({ 2, 2, 2 }, { 1, 0, 0, 0, 2, 3, 0, 1 })), S(some({}, { 1 })), S(some({}, { 0 })),
    S(T { 0, 3 }), S(some({ 3 }, { 0, 0, 0 })), S(T({ 4, 5 }, { ints = { 0, 1 } })),
    with(S(some({ 4 }, { -0.0, 0 / 0, 0.25, -0.5 })), { only = "float" }),
  }
end

local function flags(shape, list) return M(shape, { values = list, whole = true }) end

local function halves()
  return { S(T({ 300, 257 }, { ints = { 0, 1 } })) }
end

-- What is counted in pieces of thousands.
local LONG = { 1100, 17000, 40000 }
local function lengths(n) return S(M { n }), S(M { n, 2 }) end

-- A mask of n elements, the first of three of which is true, and how many those are.
local function thirds(n)
  local list = {}
  for i = 1, n do list[i] = i % 3 == 1 and 1 or 0 end
  return flags({ n }, list), math.ceil(n / 3)
end

return {
  nonzero = {
    dtypes = "all", out = "int64", dynamic = true, grad = false, ref = places, samples = zeros_and_others(),
    lengths = lengths, long = LONG, large = halves(),
  },
  nonzero_count = {
    lengths = lengths, long = LONG, dtypes = "all", out = "int64", grad = false,
      ref = function(x) return nd.scalar(count(x)) end,
      samples = zeros_and_others(), large = halves(),
  },
  nonzero_places = {
    dtypes = "all", out = "int64", grad = false, ref = places,
    samples = {
      S(T({ 6 }, { values = { 0, 1, 0, 2, 3, 0 }, whole = true }), 3),
      S(T({ 2, 3 }, { values = { 0, 1, 0, 2, 3, 0 }, whole = true }), 3), S(some({}, { 1 }), 1),
      S(T { 0, 3 }, 0), S(T({ 3 }, { values = { 0, 0, 0 } }), 0),
    },
  },
  masked_select = {
    dtypes = "all", dynamic = true,
    ref = function(x, mask)
      local list, shape = {}, nd.broadcast_shape(x, mask)
      local wide = mask:expand(shape)
      for k, v in ipairs(x:expand(shape).list) do
        if wide.list[k] ~= 0 then list[#list + 1] = v end
      end
      return nd.new({ #list }, list)
    end,
    samples = {
      S(T { 2, 3 }, flags({ 2, 3 }, { 1, 0, 0, 1, 1, 0 })), S(T { 3, 4 }, M({ 4 }, { whole = true })),
      S(T { 3, 1 }, flags({ 2 }, { 1, 0 })), S(T { 4 }, flags({ 2, 1 }, { 1, 0 })),
      S(T { 3 }, flags({ 3 }, { 0, 0, 0 })), S(T { 3 }, flags({ 3 }, { 1, 1, 1 })), S(T {}, flags({}, { 1 })),
      S(T {}, flags({}, { 0 })), S(T { 0, 3 }, flags({ 3 }, { 1, 0, 1 })),
      S(T { 2, 2, 3, 2 }, flags({ 3, 1 }, { 1, 0, 1 })),
    },
    errors = {
      { S(T { 3, 4 }, M { 3 }), "mask of shape (3,) does not broadcast with x of shape (3, 4)" },
      { S(T { 3, 4 }, T({ 3, 4 }, { dtype = "float32" })),
        'mask must be a bool tensor, not float32: use mask:to("bool")' },
      { S(T { 3, 4 }, T({ 3, 4 }, { dtype = "uint8" })), "mask must be a bool tensor, not uint8" },
    },
    lengths = function(n) return S(T { n }, (thirds(n))), S(T { 2, n }, (thirds(n))) end, long = LONG,
    large = { S(T { 300, 257 }, M { 300, 257 }), S(T { 300, 257 }, M { 257 }) },
  },
  -- x[{mask}]
  mask_select = {
    dtypes = "all", ref = select_blocks, long = LONG,
    lengths = function(n)
      local mask, count_ = thirds(n)
      return S(T { n }, mask, count_), S(T { n, 2 }, mask, count_), S(T { 2, n }, flags({ 2 }, { 0, 1 }), 1)
    end,
    samples = {
      S(T { 5 }, flags({ 5 }, { 1, 0, 1, 1, 0 }), 3), S(T { 3, 4 }, flags({ 3 }, { 0, 1, 1 }), 2),
      S(T { 2, 2, 3 }, flags({ 2, 2 }, { 1, 0, 0, 1 }), 2),
      S(T { 2, 3 }, flags({ 2, 3 }, { 1, 0, 0, 1, 1, 1 }), 4), S(T { 3 }, flags({}, { 1 }), 1),
      S(T { 3 }, flags({}, { 0 }), 0), S(T { 3, 2 }, flags({ 3 }, { 0, 0, 0 }), 0),
      S(T { 0, 3 }, flags({ 0 }, {}), 0), S(T { 2, 0 }, flags({ 2 }, { 1, 1 }), 2),
      S(T { 3, 2, 2, 2 }, flags({ 3, 2 }, { 1, 0, 0, 1, 1, 1 }), 4),
    },
  },
  mask_spread = {
    dtypes = "all", ref = spread_blocks, long = LONG,
    lengths = function(n)
      local mask, count_ = thirds(n)
      return S(T { count_ }, mask, { n }), S(T { count_, 2 }, mask, { n, 2 }),
        S(T { 1, n }, flags({ 2 }, { 0, 1 }), { 2, n })
    end,
    samples = {
      S(T { 3 }, flags({ 5 }, { 1, 0, 1, 1, 0 }), { 5 }), S(T { 2, 4 }, flags({ 3 }, { 0, 1, 1 }), { 3, 4 }),
      S(T { 2, 3 }, flags({ 2, 2 }, { 1, 0, 0, 1 }), { 2, 2, 3 }),
      S(T { 1, 3 }, flags({}, { 1 }), { 3 }), S(T { 0, 2 }, flags({ 3 }, { 0, 0, 0 }), { 3, 2 }),
      S(T { 0, 3 }, flags({ 0 }, {}), { 0, 3 }),
      S(T { 4, 2, 2 }, flags({ 3, 2 }, { 1, 0, 0, 1, 1, 1 }), { 3, 2, 2, 2 }),
    },
  },
}
