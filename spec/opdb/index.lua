-- SPDX-License-Identifier: MIT
-- x[{i, {}, j}] with index tensors, and its assignment: csrc/ops/index.c.
local cnn = require "cnn"
local db = require "spec.opdb"
local helper = require "spec.helper"
local nd, T, I, L, S, with = db.nd, db.T, db.I, db.L, db.S, db.with

-- Calls visit(place in x, place in the result) for every element of x indexed by arrays (and {} for whole
-- dims); gives the result's shape. The arrays' common shape stands where they stood, or first when they
-- were apart.
local function walk(x_shape, keys, visit)
  local arrays, dims, whole = {}, {}, {}
  for d = 1, #x_shape do
    if keys[d] and nd.is(keys[d]) then
      dims[#dims + 1], arrays[#arrays + 1] = d, keys[d]
    else
      whole[#whole + 1] = d
    end
  end
  local common = nd.broadcast_shape((table.unpack or unpack)(arrays)) -- luacheck: ignore
  local neighbours = dims[#dims] - dims[1] == #dims - 1
  local before = neighbours and dims[1] - 1 or 0 -- dims of the result before the common ones
  local shape = {}
  for k = 1, before do shape[k] = x_shape[whole[k]] end
  for k, s in ipairs(common) do shape[before + k] = s end
  for k = before + 1, #whole do shape[#common + k] = x_shape[whole[k]] end
  for i, a in ipairs(arrays) do arrays[i] = a:expand(common) end
  nd.each(shape, function(at)
    local place, point = {}, {}
    for k = 1, #common do point[k] = at[before + k] end
    for k, d in ipairs(whole) do place[d] = at[k <= before and k or #common + k] end
    for i, d in ipairs(dims) do place[d] = arrays[i]:at(point) end
    visit(place, at)
  end)
  return shape
end

local function index(x, ...)
  local list = {}
  local shape = walk(x.shape, { ... }, function(place) list[#list + 1] = x:at(place) end)
  return nd.new(shape, list)
end

local function backward(dy, keys, shape)
  local dx = nd.new(shape, 0)
  walk(shape, keys, function(place, at) dx:put(place, dx:at(place) + dy:at(at)) end)
  return dx
end

-- Of places that occur several times, the last one stays.
local function put(x, keys, value, accumulate)
  local shape = walk(x.shape, keys, function() end)
  local y, values = x:copy(), value:expand(shape)
  walk(x.shape, keys, function(place, at)
    y:put(place, (accumulate and y:at(place) or 0) + values:at(at))
  end)
  return y
end

local function twice(...) return with(S(...), { grad = false }) end

local function back(dy, keys, shape) return S(T(dy), keys, shape) end

return {
  ["index/2"] = {
    dtypes = "all", ref = index, call = function(x, ...) return x[{ ... }] end,
    samples = {
      S(T { 3, 4 }, I({ 5 }, 3)), S(T { 3, 4 }, I({ 5 }, 3), I({ 5 }, 4)), S(T { 3, 4 }, {}, I({ 2, 3 }, 4)),
      S(T { 3, 4 }, I({ 2, 1 }, 3), I({ 3 }, 4)), S(T { 2, 3, 4 }, I({ 2 }, 2), {}, I({ 2 }, 4)),
      S(T { 2, 3, 4 }, {}, I({ 2 }, 3), I({ 2 }, 4)),
      S(T { 2, 3, 4 }, {}, I({ 2, 2 }, 3)), S(T { 3, 4 }, I({}, 3)), S(T { 3, 4 }, I({ 0 }, {})),
      S(T { 0, 4 }, {}, I({ 2 }, 4)), S(T { 0, 4 }, I({ 0 }, {})),
      S(T { 5 }, I({ 3 }, { 5, 1, 5 })), S(T { 2, 3, 2, 3 }, {}, I({ 2 }, 3), {}, I({ 2 }, 3)),
      S(T { 2, 3, 2, 3 }, I({ 3, 1 }, 2), I({ 2 }, 3), {}, {}),
      S(T { 2, 3, 2 }, I({ 4 }, 2), I({ 4 }, 3), I({ 4 }, 2)), S(T { 3, 4 }, I({ 5 }, 3, { dtype = "int32" })),
      S(T { 3, 4 }, I({ 5 }, 3, { dtype = "uint8" })),
    },
    errors = {
      { S(T { 3, 4 }, I({ 2 }, { 1, 4 })), "index 4 is out of range for dim 1 of size 3 (1..3)" },
      { S(T { 3, 4 }, {}, I({ 2 }, { 5, 1 })), "index 5 is out of range for dim 2 of size 4 (1..4)" },
      { S(T { 3, 4 }, I({ 2 }, { 1, 0 })), "index 0: Lua indices start at 1 (dim 1 has positions 1..3)" },
      { S(T { 2, 3, 4 }, 1, {}, I({ 1 }, { 5 })), "index 5 is out of range for dim 3 of size 4" },
      { S(T { 3, 4 }, I({ 2 }, 3), I({ 3 }, 3)), "index tensors of shapes (2,) and (3,) don't broadcast" },
      { S(T { 3, 4 }, T({ 2 }, { dtype = "float32" })),
        "an index tensor must be integer, not float32: use :to(\"int64\")" },
      { S(T { 3, 4 }, I({ 2 }, 3), I({ 2 }, 3), I({ 2 }, 3)), "3 indices for a tensor with 2 dims" },
      { S(T { 2, 1, 1, 1, 1, 1, 1 }, I({ 1, 1, 1 }, 1)), "the result would have more than 8 dims" },
    },
    lengths = function(n)
      return S(T { 3, 4 }, I({ n }, 3)), S(T { 3, n }, I({ 2 }, 3)), S(T { n, 3 }, I({ n }, n), I({ n }, 3)),
        S(T { 2, n }, {}, I({ n }, n))
    end,
    long = { 300, 5000 },
    large = { S(T { 300, 257 }, I({ 1000 }, 300)), S(T { 300, 257 }, I({ 70000 }, 300), I({ 70000 }, 257)),
      S(T { 300, 257 }, {}, I({ 300 }, 257)) },
    check = function(_, run)
      run("works with masks, positions and ranges beside", function()
        local x = cnn.arange(1, 13):view(3, 4)
        local i = cnn.tensor({ 3, 1 }, { dtype = "int64" })
        helper.elements(x[{ i, 2 }], { 10, 2 })
        helper.elements(x[{ { 2, 3 }, i }], { { 7, 5 }, { 11, 9 } })
        helper.elements(x[{ i, cnn.newaxis, { 1, 4, 3 } }], { { { 9, 12 } }, { { 1, 4 } } })
        local mask = cnn.tensor { true, false, true }
        helper.elements(x[{ mask, i }], { 3, 9 })
        helper.elements(x[{ mask, 2 }], { 2, 10 })
        helper.elements(x[{ 2, cnn.tensor { false, true, true, false } }], { 6, 7 })
        helper.raises("the mask's shape (2,) does not fit shape (3, 4) at dim 1", function()
          return x[{ cnn.tensor { true, false } }]
        end)
      end)
    end,
  },
  index_backward = {
    internal_dtypes = true, ref = backward,
    samples = {
      back({ 5, 4 }, L { I({ 5 }, 3) }, { 3, 4 }), back({ 5 }, L { I({ 5 }, 3), I({ 5 }, 4) }, { 3, 4 }),
        back({ 2, 3 }, L { I({ 2, 1 }, 3), I({ 3 }, 4) }, { 3, 4 }),
      back({ 2, 3, 4 }, L { I({ 2, 3 }, 2) }, { 2, 4 }), back({ 4 }, L { I({}, 3) }, { 3, 4 }),
        back({ 0, 4 }, L { I({ 0 }, {}) }, { 3, 4 }),
      back({ 5 }, L { I({ 5 }, { 1, 1, 1, 1, 2 }) }, { 2 }),
        back({ 4, 2, 3 }, L { I({ 4 }, 2), I({ 4 }, 3) }, { 2, 3, 2, 3 }),
    },
    lengths = function(n)
      return back({ n, 4 }, L { I({ n }, n) }, { n, 4 }), back({ 2, n }, L { I({ 2 }, 3) }, { 3, n }),
        back({ n }, L { I({ n }, n), I({ n }, 3) }, { n, 3 })
    end,
    long = { 300, 5000 },
    large = { back({ 1000, 257 }, L { I({ 1000 }, 300) }, { 300, 257 }),
      back({ 70000 }, L { I({ 70000 }, 300), I({ 70000 }, 257) }, { 300, 257 }) },
  },
  index_put_ = {
    dtypes = "all", ref = put,
    samples = {
      S(T { 4, 3 }, L { I({ 2 }, { 3, 1 }) }, T { 2, 3 }),
      S(T { 4, 3 }, L { I({ 2 }, { 3, 1 }), I({ 2 }, { 2, 2 }) }, T { 2 }),
      S(T { 4, 3 }, L { I({ 2 }, { 3, 1 }) }, T { 3 }), S(T { 4, 3 }, L { I({ 2 }, { 4, 2 }) }, T {}),
      S(T { 4, 3 }, L { I({ 2, 1 }, { 4, 2 }), I({ 2 }, { 1, 3 }) }, T { 2, 2 }),
      with(S(T { 4, 3 }, L { I({ 3 }, { 2, 1, 2 }) }, T { 3, 3 }, true), { only = "real" }),
      with(S(T { 4 }, L { I({ 3 }, { 2, 2, 2 }) }, T { 3 }, true), { only = "real" }),
      twice(T { 4, 3 }, L { I({ 3 }, { 2, 1, 2 }) }, T { 3, 3 }),
        twice(T { 4 }, L { I({ 3 }, { 2, 2, 2 }) }, T { 3 }), S(T { 4 }, L { I({ 0 }, {}) }, T { 0 }),
      S(T { 2, 2, 3, 2 }, L { I({ 2 }, { 2, 1 }), I({ 2 }, { 1, 2 }) }, T { 2, 3, 2 }),
      S(T { 0, 3 }, L { I({ 0 }, {}) }, T { 1, 3 }),
    },
    errors = {
      { S(T { 3, 4 }, L { I({ 2 }, { 1, 4 }) }, T { 4 }), "index 4 is out of range for dim 1 of size 3 (1..3)" },
      { S(T { 3, 4 }, L { I({ 2 }, { 0, 1 }) }, T { 4 }), "index 0: Lua indices start at 1" },
      { S(T { 3, 4 }, L { I({ 2 }, 3) }, T { 3, 4 }),
        "value of shape (3, 4) does not broadcast to the indexed shape (2, 4)" },
      { S(T { 3, 4 }, L { I({ 2 }, 3) }, T { 1, 2, 4 }),
        "value of shape (1, 2, 4) does not broadcast to the indexed shape (2, 4)" },
      { S(T { 3, 4 }, L { I({ 2 }, 3) }, T({ 4 }, { dtype = "int16" })), "value is int16 but x is " },
      { S(T { 3, 4 }, L {}, T { 4 }), "there is no index tensor" },
      { S(T { 3, 4 }, L { I({ 2 }, 3), I({ 3 }, 3) }, T {}), "index tensors of shapes (2,) and (3,) don't broadcast" },
      { S(T { 3, 4 }, L { T({ 2 }, { dtype = "float32" }) }, T {}), "an index tensor must be integer, not float32" },
      { S(T { 3 }, L { I({ 2 }, 3), I({ 2 }, 3) }, T {}), "2 indices for a tensor with 1 dim" },
    },
    lengths = function(n)
      return S(T { 3, 4 }, L { I({ n }, 3) }, T { n, 4 }), S(T { 3, n }, L { I({ 2 }, 3) }, T { 2, n }),
        with(S(T { n, 3 }, L { I({ n }, n), I({ n }, 3) }, T { n }, true), { only = "real" })
    end,
    long = { 300, 5000 },
    large = {
      S(T { 300, 257 }, L { I({ 1000 }, 300) }, T { 1000, 257 }),
      S(T { 300, 257 }, L { I({ 1000 }, 300) }, T { 1000, 257 }, true),
      S(T { 300, 257 }, L { I({ 70000 }, 300), I({ 70000 }, 257) }, T { 70000 }, true),
    },
  },
}
