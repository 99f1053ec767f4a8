-- SPDX-License-Identifier: MIT
-- Gathering from, and scattering into, one dim: csrc/ops/gather.c.
local db = require "spec.opdb"
local nd, T, I, S, with = db.nd, db.T, db.I, db.S, db.with
local append = db.append

-- A copy of x after fn(y, place, k) for the k-th position of the list and every place of x's other dims:
-- place has that position in dim.
local function by_list(x, dim, index, fn)
  dim = x:dim(dim)
  local y, shape = x:copy(), {}
  for d, s in ipairs(x.shape) do shape[d] = d == dim and 1 or s end
  for k, position in ipairs(index.list) do
    nd.each(shape, function(at)
      local place = {}
      for d = 1, #shape do place[d] = at[d] end
      place[dim] = position
      fn(y, place, k)
    end)
  end
  return y
end

-- The element of src for position k of the list.
local function of_slice(src, dim, place, k)
  local at = {}
  for d = 1, #place do at[d] = place[d] end
  at[dim] = k
  return src:at(at)
end

local function index_select(x, dim, index)
  return x:along(dim, function(line)
    local y = {}
    for k, position in ipairs(index.list) do y[k] = line[position] end
    return y
  end)
end

local function index_add(x, dim, index, src, alpha)
  local or_ = x.dtype == "bool"
  return by_list(x, dim, index, function(y, place, k)
    local v = y:at(place) + (alpha or 1) * of_slice(src, x:dim(dim), place, k)
    y:put(place, or_ and v ~= 0 or v)
  end)
end

local function index_copy(x, dim, index, src)
  return by_list(x, dim, index, function(y, place, k) y:put(place, of_slice(src, x:dim(dim), place, k)) end)
end

local function index_fill(x, dim, index, value)
  if nd.is(value) then value = value.list[1] end
  if x.dtype == "bool" then value = value ~= 0 and 1 or 0 end
  return by_list(x, dim, index, function(y, place) y:put(place, value) end)
end

-- Calls visit(place in x, place in index) for every element of index.
local function by_grid(x, dim, index, visit)
  dim = x:dim(dim)
  nd.each(index.shape, function(at)
    local place = {}
    for d = 1, #at do place[d] = at[d] end
    if #at > 0 then place[dim] = index:at(at) end
    visit(place, at)
  end)
end

local function gather(x, dim, index)
  local list = {}
  by_grid(x, dim, index, function(place) list[#list + 1] = x:at(place) end)
  return nd.new(index.shape, list)
end

local function scattered(combine)
  return function(x, dim, index, src)
    local y = x:copy()
    by_grid(x, dim, index, function(place, at)
      local v = combine(y:at(place),
        nd.is(src) and (#src.shape > 0 or #at == 0) and src:at(at) or nd.is(src) and src.list[1] or src)
      if x.dtype == "bool" then v = v ~= 0 and 1 or 0 end
      y:put(place, v)
    end)
    return y
  end
end

local function twice(...) return with(S(...), { grad = false }) end

local function list_errors(make)
  return append(db.dim_errors(function(x, dim) return make(x, dim, I({ 1 }, 1)) end), {
    { make(T {}, 1, I({ 1 }, 1)), "x has 0 dims: there is nothing to index" },
    { make(T { 3, 4 }, 1, I({ 1, 1 }, 1)), "index must be a list (1 dim), but has 2 dims" },
    { make(T { 3, 4 }, 1, I({ 1 }, { 4 })), "index 4 is out of range for dim 1 of size 3 (1..3)" },
    { make(T { 3, 4 }, 2, I({ 1 }, { 0 })), "index 0: Lua indices start at 1 (dim 2 has positions 1..4)" },
    { make(T { 3, 4 }, -1, I({ 1 }, { -1 })), "index -1: index tensors hold positions from 1 on (dim 2 has 1..4)" },
    { make(T { 3, 4 }, 1, T({ 1 }, { dtype = "float32" })),
      'index must be an integer tensor, not float32: use index:to("int64")' },
  })
end

local function with_slices(fn)
  return function(x, dim, index)
    local shape = {}
    for d, s in ipairs(x.shape) do shape[d] = (d == dim or d == dim + #x.shape + 1) and index.shape[1] or s end
    return fn(x, dim, index, T(shape))
  end
end

local function slice_errors(fn)
  return append(list_errors(with_slices(fn)), {
    { fn(T { 3, 4 }, 1, I({ 2 }, 3), T { 3, 4 }), "src must have shape (2, 4), not (3, 4)" },
    { fn(T { 3, 4 }, 2, I({ 2 }, 3), T { 3 }), "src must have shape (3, 2), not (3,)" },
    { fn(T { 3, 4 }, 1, I({ 1 }, 3), T({ 1, 4 }, { dtype = "int16" })), "convert one, e.g. src:to(" },
  })
end

local function grid_errors(make)
  return append(db.dim_errors(function(x, dim) return make(x, dim, I({ 1, 1 }, 1)) end), {
    { make(T { 3, 4 }, 1, I({ 1, 5 }, 1)),
      "index of shape (1, 5) must not exceed x, of shape (3, 4), in any dim but 1" },
    { make(T { 3, 4 }, 2, I({ 2 }, 1)), "index of shape (2,) must not exceed x, of shape (3, 4), in any dim but 2" },
    { make(T { 3, 4 }, 1, I({ 1, 1 }, { 4 })), "index 4 is out of range for dim 1 of size 3 (1..3)" },
    { make(T { 3, 4 }, 2, I({ 1, 1 }, { 0 })), "index 0: Lua indices start at 1" },
    { make(T { 3, 4 }, 1, T({ 1, 1 }, { dtype = "float32" })), "index must be an integer tensor, not float32" },
  })
end

local function src_errors(make)
  return append(grid_errors(function(x, dim, index) return make(x, dim, index, T(index.shape)) end), {
    { make(T { 3, 4 }, 1, I({ 2, 2 }, 3), T { 1, 2 }), "index of shape (2, 2) must not exceed src, of shape (1, 2)" },
    { make(T { 3, 4 }, 1, I({ 2, 2 }, 3), T { 2 }), "index of shape (2, 2) must not exceed src, of shape (2,)" },
    { make(T { 3, 4 }, 1, I({ 1, 1 }, 3), T({ 1, 1 }, { dtype = "int16" })), "convert one, e.g. src:to(" },
  })
end

-- Samples whose places all differ.
local function scatters()
  return {
    S(T { 3, 4 }, 1, I({ 2, 4 }, { 1, 2, 3, 1, 2, 3, 1, 2 }), T { 2, 4 }),
    S(T { 3, 4 }, 2, I({ 3, 2 }, { 4, 1, 2, 3, 1, 4 }), T { 3, 2 }),
    S(T { 3, 4 }, -1, I({ 2, 2 }, { 4, 1, 2, 3 }), T { 3, 3 }), S(T { 5 }, 1, I({ 3 }, { 5, 1, 3 }), T { 3 }),
    S(T {}, 1, I({}, { 1 }), T {}),
    S(T { 2, 3, 2 }, 2, I({ 2, 1, 2 }, { 3, 1, 2, 2 }), T { 2, 2, 2 }),
    S(T { 3, 4 }, 1, I({ 0, 4 }, {}), T { 0, 4 }), S(T { 0, 3 }, 2, I({ 0, 2 }, {}), T { 0, 2 }),
    S(T { 2, 2, 2, 3 }, 4, I({ 2, 1, 2, 2 }, { 1, 2, 2, 3, 3, 1, 2, 1 }), T { 2, 1, 2, 2 }),
  }
end

local function copies(fn)
  return {
    fn(T { 4, 3 }, 1, I({ 2 }, { 3, 1 }), T { 2, 3 }), fn(T { 3, 4 }, 2, I({ 3 }, { 4, 1, 2 }), T { 3, 3 }),
      fn(T { 2, 4, 3 }, -2, I({ 2 }, { 4, 1 }), T { 2, 2, 3 }),
    fn(T { 5 }, 1, I({ 2 }, { 5, 2 }), T { 2 }), fn(T { 3, 4 }, 1, I({ 0 }, {}), T { 0, 4 }),
      fn(T { 0, 3 }, 2, I({ 2 }, { 1, 3 }), T { 0, 2 }),
    fn(T { 3, 4 }, 1, I({}, { 2 }), T { 1, 4 }), fn(T { 2, 2, 3, 2 }, 3, I({ 2 }, { 3, 2 }), T { 2, 2, 2, 2 }),
  }
end

local LONG = { 300, 5000 }

-- Of an op of x, dim and a list of positions.
local function list_lengths(n)
  return S(T { 3, 4 }, 1, I({ n }, 3)), S(T { 3, n }, 1, I({ 2 }, 3)), S(T { 2, n }, 2, I({ n }, n)),
    S(T { n, 2 }, 1, I({ 5 }, n))
end

-- Of an op of x, dim, index and slices of src.
local function slice_lengths(n)
  return S(T { n, 4 }, 1, I({ n }, n), T { n, 4 }), S(T { 3, n }, 1, I({ 2 }, 3), T { 2, n }),
    S(T { 2, n }, 2, I({ n }, n), T { 2, n })
end

-- Of an op of x, dim, a grid of positions and src, where there is one.
local function grid_lengths(with_src)
  local function sample(x, dim, shape, positions)
    if not with_src then return S(T(x), dim, I(shape, positions)) end
    return S(T(x), dim, I(shape, positions), T(shape))
  end
  return function(n)
    return sample({ n, 4 }, 1, { n, 4 }, n), sample({ 3, n }, 1, { 2, n }, 3), sample({ 2, n }, 2, { 2, n }, n),
      sample({ n, 2 }, 1, { 5, 2 }, n)
  end
end

return {
  index_select = {
    dtypes = "all", ref = index_select,
    samples = {
      S(T { 3, 4 }, 1, I({ 5 }, 3)), S(T { 3, 4 }, 2, I({ 2 }, 4)), S(T { 2, 3, 4 }, -2, I({ 4 }, 3)),
      S(T { 5 }, 1, I({ 3 }, { 5, 1, 5 })), S(T { 3, 4 }, 1, I({}, 3)),
      S(T { 3, 4 }, 1, I({ 0 }, {})), S(T { 0, 3 }, 2, I({ 2 }, 3)), S(T { 2, 2, 3, 2 }, 3, I({ 4 }, 3)),
      S(T { 3, 4 }, 1, I({ 5 }, 3, { dtype = "uint8" })),
    },
    errors = list_errors(function(x, dim, index) return S(x, dim, index) end),
    lengths = list_lengths, long = LONG,
    large = { S(T { 300, 257 }, 1, I({ 1000 }, 300)), S(T { 300, 257 }, 2, I({ 500 }, 257)),
      S(T { 70000 }, 1, I({ 70000 }, 70000)) },
  },
  index_add = {
    dtypes = "all", ref = index_add,
    samples = append(copies(S), {
      S(T { 3, 4 }, 1, I({ 5 }, 3), T { 5, 4 }), S(T { 3 }, 1, I({ 5 }, 3), T { 5 }),
      S(T { 2, 3, 4 }, 2, I({ 5 }, 3), T { 2, 5, 4 }),
      with(S(T { 3, 4 }, 2, I({ 5 }, 4), T { 3, 5 }, 2), { only = "real" }),
      with(S(T { 3, 4 }, 2, I({ 5 }, 4), T { 3, 5 }, -0.5), { only = "float" }),
    }),
    errors = slice_errors(S),
    lengths = slice_lengths, long = LONG,
    large = { S(T { 300, 257 }, 1, I({ 1000 }, 300), T { 1000, 257 }),
      S(T { 300, 257 }, 2, I({ 500 }, 257), T { 300, 500 }) },
  },
  ["index_add/2"] = {
    dtypes = "real", ref = index_add,
    samples = {
      S(T { 3, 4 }, 1, I({ 5 }, 3), T { 5, 4 }, 2), S(T { 3, 4 }, -1, I({ 5 }, 4), T { 3, 5 }, -1),
      with(S(T { 3 }, 1, I({ 5 }, 3), T { 5 }, 0.5), { only = "float" }),
    },
    errors = { { S(T { 3, 4 }, 1, I({ 2 }, 3), T { 3, 4 }, 2), "src must have shape (2, 4), not (3, 4)" } },
  },
  index_copy = {
    dtypes = "all", ref = index_copy,
    samples = append(copies(S),
      { twice(T { 3, 4 }, 1, I({ 5 }, 3), T { 5, 4 }), twice(T { 3 }, 1, I({ 5 }, 3), T { 5 }) }),
    errors = slice_errors(S),
    lengths = slice_lengths, long = LONG,
    large = { S(T { 300, 257 }, 1, I({ 1000 }, 300), T { 1000, 257 }),
      S(T { 300, 257 }, 2, I({ 500 }, 257), T { 300, 500 }) },
  },
  index_fill = {
    dtypes = "all", ref = index_fill,
    samples = {
      S(T { 3, 4 }, 1, I({ 2 }, 3), 3), S(T { 3, 4 }, 2, I({ 2 }, 4), T {}), S(T { 2, 3, 4 }, -2, I({ 4 }, 3), T {}),
      S(T { 5 }, 1, I({ 3 }, { 5, 1, 5 }), 0), S(T { 3, 4 }, 1, I({}, 3), 1),
      S(T { 3, 4 }, 1, I({ 0 }, {}), 2), S(T { 0, 3 }, 2, I({ 2 }, 3), 2), S(T { 2, 2, 3, 2 }, 3, I({ 2 }, 3), T {}),
      with(S(T { 3, 4 }, 1, I({ 2 }, 3), -0.5), { only = "float" }),
    },
    errors = append(list_errors(function(x, dim, index) return S(x, dim, index, 1) end), {
      { S(T { 3, 4 }, 1, I({ 1 }, 3), T { 1 }), "value must be a number or a tensor with 0 dims, not 1" },
    }),
    lengths = function(n) return S(T { 3, n }, 1, I({ 2 }, 3), 2), S(T { 2, n }, 2, I({ n }, n), 2) end, long = LONG,
    large = { S(T { 300, 257 }, 1, I({ 100 }, 300), 2), S(T { 300, 257 }, 2, I({ 100 }, 257), 2) },
  },
  gather = {
    dtypes = "all", ref = gather,
    samples = {
      S(T { 3, 4 }, 1, I({ 5, 4 }, 3)), S(T { 3, 4 }, 2, I({ 3, 2 }, 4)), S(T { 3, 4 }, -1, I({ 2, 6 }, 4)),
      S(T { 5 }, 1, I({ 7 }, 5)), S(T {}, 1, I({}, 1)),
      S(T { 2, 3, 4 }, 2, I({ 1, 5, 3 }, 3)), S(T { 3, 4 }, 1, I({ 0, 4 }, {})), S(T { 0, 3 }, 2, I({ 0, 2 }, {})),
      S(T { 2, 2, 2, 3 }, 4, I({ 2, 1, 2, 4 }, 3)),
    },
    errors = grid_errors(function(x, dim, index) return S(x, dim, index) end),
    lengths = grid_lengths(false), long = LONG,
    large = { S(T { 300, 257 }, 1, I({ 500, 257 }, 300)), S(T { 300, 257 }, 2, I({ 300, 500 }, 257)) },
  },
  scatter = {
    dtypes = "all", ref = scattered(function(_, v) return v end),
    samples = append(scatters(), {
      S(T { 3, 4 }, 1, I({ 2, 4 }, 3), 3), S(T { 3, 4 }, 2, I({ 3, 2 }, 4), 1),
      with(S(T { 3, 4 }, 2, I({ 3, 2 }, 4), -0.5), { only = "float" }),
      twice(T { 3, 4 }, 1, I({ 5, 4 }, 3), T { 5, 4 }), twice(T { 3 }, 1, I({ 7 }, 3), T { 7 }),
    }),
    errors = src_errors(S),
    lengths = grid_lengths(true), long = LONG,
    large = { S(T { 300, 257 }, 1, I({ 500, 257 }, 300), T { 500, 257 }),
      S(T { 300, 257 }, 2, I({ 300, 500 }, 257), 2) },
  },
  scatter_add = {
    dtypes = "all", ref = scattered(function(old, v) return old + v end),
    samples = append(scatters(), {
      S(T { 3, 4 }, 1, I({ 5, 4 }, 3), T { 5, 4 }), S(T { 3 }, 1, I({ 7 }, 3), T { 8 }),
      S(T { 2, 3, 2 }, 2, I({ 2, 5, 2 }, 3), T { 2, 5, 2 }),
    }),
    errors = src_errors(S),
    lengths = grid_lengths(true), long = LONG,
    large = { S(T { 300, 257 }, 1, I({ 500, 257 }, 300), T { 500, 257 }),
      S(T { 300, 257 }, 2, I({ 300, 500 }, 257), T { 300, 500 }) },
  },
  take = {
    dtypes = "all",
    ref = function(x, index) return nd.map(function(k) return x.list[k] end, index) end,
    samples = {
      S(T { 3, 4 }, I({ 5 }, 12)), S(T { 3, 4 }, I({ 2, 3 }, 12)), S(T { 5 }, I({}, 5)), S(T {}, I({ 2 }, 1)),
      S(T { 3, 4 }, I({ 0 }, {})), S(T { 3, 4 }, I({ 0, 2 }, {})),
      S(T { 2, 3, 2, 2 }, I({ 2, 1, 2 }, 24)),
    },
    errors = {
      { S(T { 3, 4 }, I({ 1 }, { 13 })), "index 13 is out of range for dim 1 of size 12 (1..12)" },
      { S(T { 3, 4 }, I({ 1 }, { 0 })), "index 0: Lua indices start at 1" },
      { S(T { 3, 4 }, T({ 1 }, { dtype = "float32" })), "index must be an integer tensor, not float32" },
      { S(T { 0, 3 }, I({ 1 }, { 1 })), "size 0" },
    },
    lengths = function(n) return S(T { 3, n }, I({ 5 }, 3 * n)), S(T { 3, 4 }, I({ n }, 12)) end, long = LONG,
    large = { S(T { 300, 257 }, I({ 70000 }, 300 * 257)) },
  },
  take_along_dim = {
    dtypes = "all",
    ref = function(x, index, dim)
      if not dim then return gather(x:reshape { -1 }, 1, index:reshape { #index.list }) end
      if #x.shape == 0 then return gather(x, 1, index) end
      dim = x:dim(dim)
      local function broadcast(size)
        local shape = {}
        for d = 1, #x.shape do
          local a, b = x.shape[d], index.shape[d]
          shape[d] = d == dim and size or a == 1 and b or a
        end
        return shape
      end
      return gather(x:expand(broadcast(x.shape[dim])), dim, index:expand(broadcast(index.shape[dim])))
    end,
    samples = {
      S(T { 3, 4 }, I({ 5, 4 }, 3), 1), S(T { 3, 4 }, I({ 3, 2 }, 4), 2), S(T { 3, 4 }, I({ 1, 4 }, 3), 1),
      S(T { 3, 1 }, I({ 2, 4 }, 3), 1), S(T { 3, 4 }, I({ 7 }, 12)),
      S(T { 3, 4 }, I({ 2, 3 }, 12)), S(T { 2, 3, 4 }, I({ 1, 2, 4 }, 3), -2), S(T {}, I({}, 1), 1),
      S(T {}, I({}, 1)), S(T { 0, 3 }, I({ 0, 2 }, {}), 2),
      S(T { 2, 1, 2, 3 }, I({ 1, 2, 2, 4 }, 3), 4),
    },
    errors = append(db.dim_errors(function(x, dim) return S(x, I({ 1, 1 }, 1), dim) end), {
      { S(T { 3, 4 }, I({ 2, 2 }, 3), 1), "index of shape (2, 2) does not fit x of shape (3, 4)" },
      { S(T { 3, 4 }, I({ 4 }, 3), 1), "index of shape (4,) does not fit x of shape (3, 4)" },
      { S(T { 3, 4 }, I({ 1, 4 }, { 4, 1, 1, 1 }), 1), "index 4 is out of range for dim 1 of size 3 (1..3)" },
      { S(T { 3, 4 }, I({ 1 }, { 13 })), "index 13 is out of range for dim 1 of size 12" },
    }),
  },
}
