-- SPDX-License-Identifier: MIT
-- Windows, diagonals, subscripts, and several views by one op: csrc/ops/split.c.
local cnn = require "cnn"
local db = require "spec.opdb"
local nd, T, S, with = db.nd, db.T, db.S, db.with
local append = db.append

local function entry(row)
  row.dtypes = "all"
  return row
end

-- The shape `shape` without the dims a and b, and then n.
local function without(shape, a, b)
  local rest, dims = {}, {}
  for d, s in ipairs(shape) do
    if d ~= a and d ~= b then rest[#rest + 1], dims[#dims + 1] = s, d end
  end
  return rest, dims
end

-- y[..., i] = x[..., i (+ offset) in dim a ..., i (- offset) in dim b]
local function diagonal(x, offset, a, b)
  offset = offset or 0
  a, b = x:dim(a or 1), x:dim(b or 2)
  local down, right = math.max(-offset, 0), math.max(offset, 0)
  local n = math.max(0, math.min(x.shape[a] - down, x.shape[b] - right))
  local shape, dims = without(x.shape, a, b)
  local rank = #dims
  shape[rank + 1] = n
  return nd.build(shape, function(...)
    local at, place = { ... }, {}
    for k, d in ipairs(dims) do place[d] = at[k] end
    place[a], place[b] = at[rank + 1] + down, at[rank + 1] + right
    return x:at(place)
  end)
end

-- Zeros with x's last dim on a diagonal of dims a and b.
local function diag_embed(x, offset, a, b)
  offset = offset or 0
  local rank = #x.shape + 1
  a, b = a or -2, b or -1
  a, b = a < 0 and a + rank + 1 or a, b < 0 and b + rank + 1 or b
  local n = x.shape[#x.shape] + math.abs(offset)
  local shape, k = {}, 0
  for d = 1, rank do
    if d == a or d == b then
      shape[d] = n
    else
      k = k + 1
      shape[d] = x.shape[k]
    end
  end
  return nd.build(shape, function(...)
    local at, place = { ... }, {}
    if at[b] - at[a] ~= offset then return 0 end
    for d = 1, rank do
      if d ~= a and d ~= b then place[#place + 1] = at[d] end
    end
    place[#place + 1] = math.min(at[a], at[b])
    return x:at(place)
  end)
end

local function pieces(x, dim, lengths)
  local list, start = {}, 1
  for i, n in ipairs(lengths) do
    list[i] = x:slice(dim, start, n)
    start = start + n
  end
  return list
end

local function even(total, size)
  local lengths = {}
  repeat
    lengths[#lengths + 1] = math.min(size, total)
    total = total - size
  until total <= 0
  return lengths
end

-- x[{keys}] by positions, ranges {first, last, step} and new axes; a dim without a key stays whole.
local function subscript(x, ...)
  local d, shape = 1, {}
  for _, key in ipairs { ... } do
    if rawequal(key, cnn.newaxis) then
      table.insert(shape, 1)
    elseif type(key) == "number" then
      x = x:slice(d, key < 0 and key + x.shape[d] + 1 or key, 1)
      d = d + 1
    else
      local n = x.shape[d]
      local first, last, step = key[1] or 1, key[2] or n, key[3] or 1
      first, last = first < 0 and first + n + 1 or first, last < 0 and last + n + 1 or last
      x = x:slice(d, first, math.max(0, math.floor((last - first) / step) + 1), step)
      shape[#shape + 1] = x.shape[d]
      d = d + 1
    end
  end
  for k = d, #x.shape do shape[#shape + 1] = x.shape[k] end
  return x:reshape(shape)
end

local function plane_errors(make)
  local errors = {
    { make(T { 2, 3 }, 0, 1, 1), "dim1 and dim2 are the same dim, 1" },
    { make(T { 2, 3 }, 0, 4, 1), "dim1 4 is out of range" }, { make(T { 2, 3 }, 0, 1, -4), "dim2 -4 is out of range" },
    { make(T { 2, 3 }, 0.5), "argument 2" },
  }
  return errors
end

local function no_list_errors(make)
  return append(db.dim_errors(make), { { make(T {}, 1), "x has 0 dims: there is nothing to " } })
end

return {
  unfold = entry {
    ref = function(x, dim, size, step)
      step = step or 1
      if #x.shape == 0 then return x:reshape { size } end
      dim = x:dim(dim)
      local shape = {}
      for d, s in ipairs(x.shape) do shape[d] = s end
      shape[dim] = math.floor((shape[dim] - size) / step) + 1
      shape[#shape + 1] = size
      return nd.build(shape, function(...)
        local at = { ... }
        at[dim] = (at[dim] - 1) * step + at[#shape]
        at[#shape] = nil
        return x:at(at)
      end)
    end,
    samples = {
      S(T { 7 }, 1, 3), S(T { 7 }, 1, 3, 2), S(T { 3, 5 }, 2, 2), S(T { 5, 3 }, 1, 2, 3), S(T { 2, 6, 3 }, -2, 2, 2),
      S(T { 4 }, 1, 4),
      S(T { 4 }, 1, 1), S(T { 4 }, 1, 0), S(T {}, 1, 1), S(T { 0, 3 }, 2, 2), S(T { 0 }, 1, 0),
      S(T { 2, 3, 2, 5 }, 4, 3, 2), S(T { 5 }, 1, 2, 9),
    },
    errors = append(db.dim_errors(function(x, dim) return S(x, dim, 1) end), {
      { S(T { 2, 3 }, 2, 4), "windows of size 4 don't fit dim 2 of size 3" },
      { S(T { 2, 3 }, 2, -1), "windows of size -1 don't fit dim 2 of size 3" },
      { S(T { 2, 3 }, 2, 2, 0), "step must be at least 1, not 0" },
      { S(T {}, 1, 2), "windows of size 2 don't fit dim 1 of size 1" },
      { S(T { 1, 1, 1, 1, 1, 1, 1, 1 }, 1, 1), "a tensor has at most 8 dims" },
    }),
  },
  diagonal = entry {
    ref = diagonal,
    samples = {
      S(T { 3, 4 }), S(T { 4, 3 }, 1), S(T { 4, 3 }, -2), S(T { 2, 3, 4 }), S(T { 2, 3, 4 }, 0, 2, 3),
      S(T { 2, 3, 4 }, 1, -1, -2), S(T { 3, 3 }, 5),
      S(T { 3, 3 }, -3), S(T { 0, 3 }), S(T { 2, 3, 2, 2 }, 1, 4, 2), S(T { 1, 1 }),
    },
    errors = append(plane_errors(function(...) return S(...) end), {
      { S(T { 3 }), "x has 1 dim, but a diagonal needs 2" }, { S(T {}), "x has 0 dims, but a diagonal needs 2" },
    }),
  },
  index = entry { -- the op subscript: what x[{...}] makes of positions and ranges
    call = function(x, ...) return x[{ ... }] end, ref = subscript,
    samples = {
      S(T { 3, 4 }, 2), S(T { 3, 4 }, -1, 2), S(T { 3, 4 }, {}, 2), S(T { 3, 4 }, { 2, 3 }),
      S(T { 5, 4 }, { 1, 5, 2 }, { -2, -1 }),
      S(T { 3, 4 }, {}, {}), S(T { 3, 4 }), S(T { 3, 4 }, cnn.newaxis), S(T { 3, 4 }, {}, cnn.newaxis, 2),
      S(T { 2, 3, 4 }, 1, cnn.newaxis, { 1, 2 }),
      S(T { 3, 4 }, { 2, 1 }), S(T { 3, 4 }, { 4, 3 }), S(T {}, cnn.newaxis), S(T { 0, 3 }, {}, 2),
      S(T { 2, 3, 2, 2, 2 }, 1, { 1, 3, 2 }, {}, -1),
      S(T { 5 }, { 2, 4, 7 }), S(T { 2, 2, 2 }, 1, 2, 1),
    },
    errors = {
      { S(T { 3, 4 }, 4), "index 4 is out of range for dim 1 of size 3 (1..3, or negative from the end)" },
      { S(T { 3, 4 }, {}, -5), "index -5 is out of range for dim 2 of size 4" },
      { S(T { 3, 4 }, 0), "index 0: Lua indices start at 1 (dim 1 has positions 1..3)" },
      { S(T { 3, 4 }, 1, 2, 3), "3 indices for a tensor with 2 dims, (3, 4)" },
      { S(T { 3, 4 }, { 1, 4 }), "index 4 is out of range for dim 1 of size 3 (1..3)" },
      { S(T { 3, 4 }, { 0, 2 }), "index 0: Lua indices start at 1" },
      { S(T { 3, 4 }, { 1, 3, 0 }), "a range's step must be at least 1, not 0" },
      { S(T { 3, 4 }, { 1 }), "index: a range needs two ends: write {1, 1} for one position, {} for all" },
      { S(T { 3, 4 }, { 1, 2, 1, 1 }), "index: a range is {first, last} or {first, last, step}" },
      { S(T { 3, 4 }, "a"), "index: expected a position, a list such as {2, {1, 3}}, or an index tensor, got" },
      { S(T { 3, 4 }, 1.5), "index: expected a position" },
      { S(T { 1, 1, 1, 1, 1, 1, 1, 1 }, cnn.newaxis), "a tensor has at most 8 dims" },
    },
  },
  diag_embed = entry {
    ref = diag_embed,
    samples = {
      S(T { 3 }), S(T { 2, 3 }), S(T { 2, 3 }, 1), S(T { 2, 3 }, -2), S(T { 2, 3 }, 0, 1, 3), S(T { 2, 3 }, 1, 3, 1),
      S(T { 0 }), S(T { 0 }, 2), S(T { 0, 3 }),
      S(T { 2, 3, 2, 2 }, -1, 2, -1),
    },
    errors = append(plane_errors(function(...) return S(...) end), {
      { S(T {}), "x has 0 dims, but its last dim is needed" }, { S(T { 3 }, 2 ^ 62), "too large" },
      { S(T { 1, 1, 1, 1, 1, 1, 1, 1 }), "a tensor has at most 8 dims" },
    }),
    large = { S(T { 300, 57 }) },
  },
  diag = entry {
    ref = function(x, offset) return #x.shape == 1 and diag_embed(x, offset) or diagonal(x, offset) end,
    samples = { S(T { 3 }), S(T { 3 }, 2), S(T { 3 }, -1), S(T { 3, 4 }), S(T { 3, 4 }, 1), S(T { 4, 3 }, -2),
      S(T { 0, 3 }), S(T { 0 }, 1), S(T { 2, 2 }, 7) },
    errors = {
      { S(T {}), "x has 0 dims, 1 or 2 are allowed: use diagonal or diag_embed" },
      { S(T { 2, 2, 2 }), "x has 3 dims, 1 or 2 are allowed" },
    },
  },
  split = entry {
    dense = false,
    ref = function(x, size, dim)
      dim = x:dim(dim or 1)
      return pieces(x, dim, type(size) == "table" and #size ~= 1 and size or even(x.shape[dim],
        type(size) == "table" and size[1] or size))
    end,
    samples = {
      S(T { 6, 2 }, 2), S(T { 5, 2 }, 2), S(T { 2, 5 }, { 1, 4 }, 2), S(T { 5, 2 }, { 2, 0, 3 }),
      S(T { 2, 5 }, 3, -1), S(T { 2, 3, 2, 4 }, { 1, 1, 2 }, 4),
      S(T { 3 }, 7), S(T { 0, 3 }, 2), S(T { 0, 3 }, 0), S(T { 0, 3 }, 2, 2), S(T { 5 }, { 5 }), S(T { 40 }, 1),
    },
    errors = append(no_list_errors(function(x, dim) return S(x, 1, dim) end), {
      { S(T { 5, 2 }, 0), "pieces of size 0 can't fill dim 1 of size 5" },
      { S(T { 5, 2 }, -1), "pieces of size -1 can't fill dim 1 of size 5" },
      { S(T { 5, 2 }, { 2, 2 }), "sizes (2, 2) don't add up to dim 1's size, 5" },
      { S(T { 5, 2 }, { 6, -1 }), "sizes (6, -1) don't add up to dim 1's size, 5" },
      { S(T { 5, 2 }, {}), "don't add up to dim 1's size, 5" },
    }),
  },
  chunk = entry {
    dense = false,
    ref = function(x, n, dim)
      dim = x:dim(dim or 1)
      local size = x.shape[dim]
      if size == 0 then
        local lengths = {}
        for i = 1, n do lengths[i] = 0 end
        return pieces(x, dim, lengths)
      end
      return pieces(x, dim, even(size, math.ceil(size / n)))
    end,
    samples = {
      S(T { 6, 2 }, 3), S(T { 5, 2 }, 2), S(T { 5, 2 }, 4), S(T { 2, 5 }, 3, 2), S(T { 2, 5 }, 1, -1), S(T { 2 }, 5),
      S(T { 0, 3 }, 3), S(T { 0, 3 }, 2, 2),
      S(T { 2, 3, 2, 4 }, 2, 3),
    },
    errors = append(no_list_errors(function(x, dim) return S(x, 1, dim) end), {
      { S(T { 5 }, 0), "chunks must be at least 1, not 0" }, { S(T { 5 }, -2), "chunks must be at least 1, not -2" },
    }),
  },
  unbind = entry {
    dense = false,
    ref = function(x, dim)
      dim = x:dim(dim or 1)
      local list = {}
      for i = 1, x.shape[dim] do list[i] = x:select(dim, i) end
      return list
    end,
    samples = {
      S(T { 3, 4 }), S(T { 3, 4 }, 2), S(T { 2, 3, 4 }, -2), S(T { 5 }), S(T { 2, 2, 2, 3 }, 4), S(T { 2, 0 }),
      S(T { 40, 2 }),
      with(S(T { 0, 3 }), { grad = false }),
    },
    silent = true, -- of nothing there are no results
    errors = no_list_errors(function(x, dim) return S(x, dim) end),
  },
}
