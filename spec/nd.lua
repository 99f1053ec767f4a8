-- SPDX-License-Identifier: MIT
-- Plain Lua arrays: what the reference formulas of the specs are written with. An array has a shape and
-- a flat list of numbers in row-major order; booleans are 1 and 0. Positions and dims start at 1.
--
-- Arrays are read by calling them, x(i, j), and made by a function of the position:
--
--   local y = nd.build({ n, m }, function(i, j) return x(j, i) end)
local unpack = table.unpack or unpack -- luacheck: ignore

local nd = {}
nd.__index = nd

local function size(shape)
  local n = 1
  for _, s in ipairs(shape) do n = n * s end
  return n
end
nd.size = size

-- An array of a flat list, or of one number.
function nd.new(shape, list)
  local n = size(shape)
  if type(list) ~= "table" then
    local value = list
    list = {}
    for i = 1, n do list[i] = value end
  end
  if #list ~= n then error(("%d elements for an array of %d"):format(#list, n), 2) end
  return setmetatable({ shape = shape, list = list }, nd)
end

function nd.scalar(v)
  return nd.new({}, { v })
end

function nd.is(v)
  return getmetatable(v) == nd
end

local function to_number(v)
  if v == true then return 1 end
  return v or 0
end

-- The elements of a tensor, in order.
function nd.from(x)
  local list, shape = {}, {}
  for i, s in ipairs(x.shape) do shape[i] = s end
  local function walk(v, depth)
    if depth > #shape then
      list[#list + 1] = to_number(v)
    else
      for i = 1, shape[depth] do walk(v[i], depth + 1) end
    end
  end
  if size(shape) > 0 then walk(x:totable(), 1) end
  return nd.new(shape, list)
end

-- Calls visit(position ...) for every position, in order; the list of the position as well, in front.
local function each(shape, visit)
  local n, rank = size(shape), #shape
  local at = {}
  for d = 1, rank do at[d] = 1 end
  for _ = 1, n do
    visit(at, unpack(at))
    local d = rank
    while d > 0 do
      at[d] = at[d] + 1
      if at[d] <= shape[d] then break end
      at[d] = 1
      d = d - 1
    end
  end
end
nd.each = each

-- An array whose elements are fn(position ...).
function nd.build(shape, fn)
  local list, k = {}, 0
  each(shape, function(_, ...)
    k = k + 1
    list[k] = to_number(fn(...))
  end)
  return nd.new(shape, list)
end

-- The place in the list of a position, given as a list.
function nd:place(at)
  local k = 0
  for d = 1, #self.shape do k = k * self.shape[d] + at[d] - 1 end
  return k + 1
end

-- x(i, j): an element.
function nd.__call(self, ...)
  local shape = self.shape
  local k = 0
  for d = 1, #shape do
    local i = select(d, ...)
    if not (i >= 1 and i <= shape[d]) then error(("position %s in a dim of size %d"):format(i, shape[d]), 2) end
    k = k * shape[d] + i - 1
  end
  return self.list[k + 1]
end

function nd:at(position)
  return self.list[self:place(position)]
end

function nd:put(position, value)
  self.list[self:place(position)] = to_number(value)
end

function nd:copy()
  local list = {}
  for k, v in ipairs(self.list) do list[k] = v end
  return nd.new(self.shape, list)
end

-- A dim, which may count from the end.
function nd:dim(d)
  return d < 0 and d + #self.shape + 1 or d
end

-- ---------------------------------------------------------------------------------------------
-- Elementwise

function nd.broadcast_shape(...)
  local shape = {}
  for i = 1, select("#", ...) do
    local x = select(i, ...)
    local other = nd.is(x) and x.shape or {}
    local merged = {}
    local rank = math.max(#shape, #other)
    for d = 1, rank do
      local a, b = shape[d - rank + #shape] or 1, other[d - rank + #other] or 1
      assert(a == b or a == 1 or b == 1, "shapes do not broadcast")
      merged[d] = a == 1 and b or a
    end
    shape = merged
  end
  return shape
end

-- x in a larger shape.
function nd.expand(x, shape)
  if not nd.is(x) then return nd.new(shape, x) end
  local shift = #shape - #x.shape
  local at = {}
  local list, k = {}, 0
  each(shape, function(position)
    for d = 1, #x.shape do at[d] = x.shape[d] == 1 and 1 or position[d + shift] end
    k = k + 1
    list[k] = x:at(at)
  end)
  return nd.new(shape, list)
end

-- fn of the elements of arrays and numbers that broadcast.
function nd.map(fn, ...)
  local n = select("#", ...)
  local inputs, first = { ... }, nil
  local same = true
  for i = 1, n do
    local x = inputs[i]
    if nd.is(x) then
      first = first or x
      if #x.shape ~= #first.shape then same = false end
      for d = 1, #x.shape do same = same and x.shape[d] == first.shape[d] end
    end
  end
  local shape = same and first and first.shape or nd.broadcast_shape(...)
  local total = size(shape)
  for i = 1, n do
    if not (nd.is(inputs[i]) and same) then inputs[i] = nd.expand(inputs[i], shape) end
  end
  local list = {}
  if n == 1 then
    local a = inputs[1].list
    for k = 1, total do list[k] = to_number(fn(a[k])) end
  elseif n == 2 then
    local a, b = inputs[1].list, inputs[2].list
    for k = 1, total do list[k] = to_number(fn(a[k], b[k])) end
  else
    local values = {}
    for k = 1, total do
      for i = 1, n do values[i] = inputs[i].list[k] end
      list[k] = to_number(fn(unpack(values, 1, n)))
    end
  end
  return nd.new(shape, list)
end

function nd.__add(a, b) return nd.map(function(x, y) return x + y end, a, b) end
function nd.__sub(a, b) return nd.map(function(x, y) return x - y end, a, b) end
function nd.__mul(a, b) return nd.map(function(x, y) return x * y end, a, b) end
function nd.__div(a, b) return nd.map(function(x, y) return x / y end, a, b) end
function nd.__unm(a) return nd.map(function(x) return -x end, a) end

-- ---------------------------------------------------------------------------------------------
-- Over dims

-- The dims that `dims` means (nil or {}: all; a number: one) as a set.
function nd:dim_set(dims)
  local set = {}
  if type(dims) == "number" then dims = { dims } end
  if dims == nil or #dims == 0 then
    for d = 1, #self.shape do set[d] = true end
  else
    for _, d in ipairs(dims) do set[self:dim(d)] = true end
  end
  if #self.shape == 0 then set = {} end
  return set
end

-- Puts fn(list of the elements over the dims, list of their positions) in place of each group.
-- fn gives a number, or several: then so many arrays are given back.
function nd:reduce(dims, keepdim, fn)
  local set, shape, kept = self:dim_set(dims), {}, {}
  for d = 1, #self.shape do
    if not set[d] then
      shape[#shape + 1] = self.shape[d]
      kept[#kept + 1] = d
    end
  end
  local groups, total = {}, size(shape)
  for g = 1, total do groups[g] = {} end
  local k = 0
  each(self.shape, function(at)
    k = k + 1
    local g = 0
    for i, d in ipairs(kept) do g = g * shape[i] + at[d] - 1 end
    local group = groups[g + 1]
    group[#group + 1] = self.list[k]
  end)
  local lists, count = {}, nil
  if total == 0 then -- nothing to see: fn of a group of nothings tells how many results there are
    local group, n = {}, 1
    for d in pairs(set) do n = n * self.shape[d] end
    for i = 1, n do group[i] = 0 end
    count = select("#", fn(group))
    for i = 1, count do lists[i] = {} end
  end
  for g = 1, total do
    local values = { fn(groups[g]) }
    count = #values
    for i = 1, count do
      lists[i] = lists[i] or {}
      lists[i][g] = to_number(values[i])
    end
  end
  if keepdim then
    for d = 1, #self.shape do shape[d] = set[d] and 1 or self.shape[d] end
  end
  local arrays = {}
  for i = 1, count or 1 do arrays[i] = nd.new(shape, lists[i] or {}) end
  return unpack(arrays)
end

-- Puts fn(list along the dim) (a list of any one length) in place of each line along a dim. fn may give
-- several lists: then so many arrays are given back.
function nd:along(dim, fn)
  local rank = #self.shape
  if rank == 0 then
    local results = { fn { self.list[1] } }
    for i, list in ipairs(results) do results[i] = nd.new({}, { list[1] }) end
    return unpack(results)
  end
  dim = self:dim(dim)
  local outer, inner, n = 1, 1, self.shape[dim]
  for d = 1, dim - 1 do outer = outer * self.shape[d] end
  for d = dim + 1, rank do inner = inner * self.shape[d] end
  local arrays, length
  for o = 0, outer - 1 do
    for i = 1, inner do
      local line = {}
      for k = 1, n do line[k] = self.list[(o * n + k - 1) * inner + i] end
      local results = { fn(line) }
      arrays = arrays or {}
      for r, list in ipairs(results) do
        length = length or #list
        arrays[r] = arrays[r] or {}
        for k = 1, #list do arrays[r][(o * #list + k - 1) * inner + i] = to_number(list[k]) end
      end
    end
  end
  if not arrays then -- nothing to see: fn of a line of nothings tells the length
    local results = { fn((function()
      local line = {}
      for k = 1, n do line[k] = 0 end
      return line
    end)()) }
    arrays, length = {}, #results[1]
    for r in ipairs(results) do arrays[r] = {} end
  end
  local shape = { unpack(self.shape) }
  shape[dim] = length
  for r in ipairs(arrays) do arrays[r] = nd.new(shape, arrays[r]) end
  return unpack(arrays)
end

function nd.total(list)
  local s = 0
  for _, v in ipairs(list) do s = s + v end
  return s
end

function nd:sum(dims, keepdim)
  return self:reduce(dims, keepdim, nd.total)
end

-- ---------------------------------------------------------------------------------------------
-- Shapes

function nd:reshape(shape)
  local known, open, full = 1, nil, {}
  for i, s in ipairs(shape) do
    full[i] = s
    if s == -1 then open = i else known = known * s end
  end
  if open then full[open] = #self.list / known end
  return nd.new(full, self.list)
end

function nd:permute(order)
  local shape, back = {}, {}
  for i, d in ipairs(order) do shape[i], back[self:dim(d)] = self.shape[self:dim(d)], i end
  local at = {}
  local list, k = {}, 0
  each(shape, function(position)
    for d = 1, #shape do at[d] = position[back[d]] end
    k = k + 1
    list[k] = self:at(at)
  end)
  return nd.new(shape, list)
end

function nd:transpose(a, b)
  local order = {}
  for d = 1, #self.shape do order[d] = d end
  if #order == 0 then return self end
  a, b = self:dim(a), self:dim(b)
  order[a], order[b] = b, a
  return self:permute(order)
end

-- The elements from `start` on, `length` of them, `step` apart, in one dim.
function nd:slice(dim, start, length, step)
  dim = self:dim(dim)
  local shape = { unpack(self.shape) }
  shape[dim] = length
  local at = {}
  local list, k = {}, 0
  each(shape, function(position)
    for d = 1, #shape do at[d] = position[d] end
    at[dim] = start + (position[dim] - 1) * (step or 1)
    k = k + 1
    list[k] = self:at(at)
  end)
  return nd.new(shape, list)
end

function nd:select(dim, index)
  dim = self:dim(dim)
  local y = self:slice(dim, index < 0 and index + self.shape[dim] + 1 or index, 1)
  local shape = { unpack(self.shape) }
  table.remove(shape, dim)
  return nd.new(shape, y.list)
end

function nd.cat(arrays, dim)
  local first = arrays[1]
  dim = first:dim(dim)
  local shape, ends, total = { unpack(first.shape) }, {}, 0
  for i, x in ipairs(arrays) do
    total = total + x.shape[dim]
    ends[i] = total
  end
  shape[dim] = total
  local at = {}
  local list, k = {}, 0
  each(shape, function(position)
    for d = 1, #shape do at[d] = position[d] end
    local i = 1
    while position[dim] > ends[i] do i = i + 1 end
    at[dim] = position[dim] - (ends[i - 1] or 0)
    k = k + 1
    list[k] = arrays[i]:at(at)
  end)
  return nd.new(shape, list)
end

-- ---------------------------------------------------------------------------------------------
-- Windows over the last n dims

-- One number per dim: v is a list of n, or a number (or a list of one) for all.
function nd.sizes(v, n)
  if type(v) == "table" and #v == n then return v end
  local list = {}
  for d = 1, n do list[d] = type(v) == "table" and v[1] or v end
  return list
end

-- Calls visit(position in the result, in the kernel, in the input) wherever a window's place is inside
-- the input. w: lists out, kernel, input (sizes), stride, dilation, before (padding).
function nd.windows(w, visit)
  local q = {}
  each(w.out, function(p)
    each(w.kernel, function(t)
      for d = 1, #w.input do
        q[d] = (p[d] - 1) * w.stride[d] + (t[d] - 1) * w.dilation[d] - w.before[d] + 1
        if q[d] < 1 or q[d] > w.input[d] then return end
      end
      visit(p, t, q)
    end)
  end)
end

-- ---------------------------------------------------------------------------------------------
-- Products of matrices

-- (..., n, k) times (..., k, m); vectors as in matmul.
function nd.matmul(a, b)
  local drop_row, drop_col = #a.shape == 1, #b.shape == 1
  if drop_row then a = a:reshape { 1, a.shape[1] } end
  if drop_col then b = b:reshape { b.shape[1], 1 } end
  local ra, rb = #a.shape, #b.shape
  local function batch(x)
    return nd.new({ unpack(x.shape, 1, #x.shape - 2) }, 0)
  end
  local shape = nd.broadcast_shape(batch(a), batch(b))
  local depth = #shape
  local n, k, m = a.shape[ra - 1], a.shape[ra], b.shape[rb]
  assert(b.shape[rb - 1] == k, "inner sizes differ")
  local out = { unpack(shape) }
  out[depth + 1], out[depth + 2] = n, m
  local pa, pb = {}, {}
  local list, c = {}, 0
  each(out, function(at)
    for d = 1, ra - 2 do pa[d] = a.shape[d] == 1 and 1 or at[d + depth - ra + 2] end
    for d = 1, rb - 2 do pb[d] = b.shape[d] == 1 and 1 or at[d + depth - rb + 2] end
    pa[ra - 1], pb[rb] = at[depth + 1], at[depth + 2]
    local s = 0
    for i = 1, k do
      pa[ra], pb[rb - 1] = i, i
      s = s + a:at(pa) * b:at(pb)
    end
    c = c + 1
    list[c] = s
  end)
  if drop_col then table.remove(out) end
  if drop_row then table.remove(out, depth + 1) end
  return nd.new(out, list)
end

return nd
