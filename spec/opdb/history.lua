-- SPDX-License-Identifier: MIT
-- Elements between a tensor and a view of it (csrc/ops/history.c): x lies in a memory where it has the
-- strides `base_strides`; the view has its own shape, strides, and an offset from x's first element.
local db = require "spec.opdb"
local T, S, nd = db.T, db.S, db.nd

-- Calls visit(place in the list, address) for every element of that shape.
local function addresses(shape, strides, offset, visit)
  local place = 0
  nd.each(shape, function(at)
    place = place + 1
    local address = offset
    for d, i in ipairs(at) do address = address + (i - 1) * strides[d] end
    visit(place, address)
  end)
end

-- The place in x's list of each address.
local function memory(shape, base_strides)
  local places = {}
  addresses(shape, base_strides, 0, function(place, address) places[address] = place end)
  return places
end

local function gather(x, shape, strides, offset, base_strides)
  local places, y = memory(x.shape, base_strides), nd.new(shape, 0)
  addresses(shape, strides, offset, function(place, address) y.list[place] = x.list[places[address]] end)
  return y
end

local function scatter(x, src, strides, offset, base_strides)
  local places, y = memory(x.shape, base_strides), x:copy()
  addresses(src.shape, strides, offset, function(place, address) y.list[places[address]] = src.list[place] end)
  return y
end

local function scatter_add(src, shape, strides, offset, base_strides)
  local places, y = memory(shape, base_strides), nd.new(shape, 0)
  addresses(src.shape, strides, offset, function(place, address)
    local to = places[address]
    y.list[to] = y.list[to] + src.list[place]
  end)
  return y
end

-- Shape and strides of a tensor; shape, strides and offset of a view.
local VIEWS = {
  { { 3, 4 }, { 4, 1 }, { 3 }, { 4 }, 1 },             -- a column
  { { 3, 4 }, { 4, 1 }, { 4 }, { 1 }, 4 },             -- a row
  { { 3, 4 }, { 4, 1 }, { 4, 3 }, { 1, 4 }, 0 },       -- transposed
  { { 3, 4 }, { 4, 1 }, { 2, 2 }, { 8, 2 }, 1 },       -- with steps
  { { 3, 4 }, { 1, 3 }, { 4, 3 }, { 3, 1 }, 0 },       -- of a tensor that is transposed itself
  { { 3, 4 }, { 1, 3 }, { 2, 4 }, { 1, 3 }, 1 },
  { { 3, 3 }, { 3, 1 }, { 3 }, { 4 }, 0 },             -- the diagonal
  { { 12 }, { 1 }, { 3, 4 }, { 4, 1 }, 0 },
  { { 5 }, { 1 }, {}, {}, 3 },                         -- one element
  { {}, {}, { 1 }, { 1 }, 0 },
  { { 4, 3 }, { 3, 1 }, { 0, 3 }, { 3, 1 }, 0 },       -- nothing
  { { 2, 3, 2, 2 }, { 12, 1, 6, 3 }, { 2, 2, 2 }, { 12, 6, 3 }, 2 }, -- a channel of channels last
  { { 4, 3 }, { 6, 2 }, { 4 }, { 6 }, 2 },             -- of a tensor with gaps
  { { 0, 3 }, { 3, 1 }, { 3, 0 }, { 1, 3 }, 0 },
}
-- Views whose elements share memory: expanded, and windows.
local SHARED = {
  { { 4 }, { 1 }, { 3, 4 }, { 0, 1 }, 0 }, { { 3, 1 }, { 1, 1 }, { 3, 5 }, { 1, 0 }, 0 },
  { {}, {}, { 2, 3 }, { 0, 0 }, 0 },
  { { 9 }, { 1 }, { 4, 3 }, { 2, 1 }, 0 }, { { 2, 8 }, { 8, 1 }, { 2, 6, 3 }, { 8, 1, 1 }, 0 },
  { { 8, 2 }, { 2, 1 }, { 3, 2, 4 }, { 4, 1, 2 }, 0 }, { { 2, 8 }, { 1, 2 }, { 2, 3, 4 }, { 1, 4, 2 }, 0 },
  { { 5, 6 }, { 6, 1 }, { 2, 2, 3, 3 }, { 12, 3, 6, 1 }, 0 }, { { 3, 4 }, { 5, 1 }, { 3, 3, 2 }, { 5, 1, 1 }, 0 },
}

local function samples(kinds, make, list)
  list = list or {}
  for _, kind in ipairs(kinds) do
    local base, base_strides, shape, strides, offset = kind[1], kind[2], kind[3], kind[4], kind[5]
    list[#list + 1] = make(base, base_strides, shape, strides, offset)
  end
  return list
end

local function gathered(base, base_strides, shape, strides, offset)
  return S(T(base), shape, strides, offset, base_strides)
end
local function scattered(base, base_strides, shape, strides, offset)
  return S(T(base), T(shape), strides, offset, base_strides)
end
local function added(base, base_strides, shape, strides, offset)
  return S(T(shape), base, strides, offset, base_strides)
end

return {
  as_strided = {
    dtypes = "all", ref = gather, samples = samples(SHARED, gathered, samples(VIEWS, gathered)),
    large = { S(T { 300, 257 }, { 257, 300 }, { 1, 257 }, 0, { 257, 1 }),
      S(T { 300, 257 }, { 300 }, { 1 }, 0, { 1, 300 }) },
  },
  as_strided_scatter = {
    dtypes = "all", ref = scatter, samples = samples(VIEWS, scattered),
    large = S(T { 300, 257 }, T { 257, 300 }, { 1, 257 }, 0, { 257, 1 }),
  },
  as_strided_scatter_add = {
    dtypes = "real", internal_dtypes = true, ref = scatter_add,
    samples = samples(SHARED, added, samples(VIEWS, added)),
    large = { S(T { 300, 250, 8 }, { 300, 257 }, { 257, 1, 1 }, 0, { 257, 1 }),
      S(T { 300, 257 }, { 257 }, { 0, 1 }, 0, { 1 }) },
  },
}
