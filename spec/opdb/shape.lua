-- SPDX-License-Identifier: MIT
-- Views of another shape: csrc/ops/shape.c.
local cnn = require "cnn"
local db = require "spec.opdb"
local helper = require "spec.helper"
local T, S, with = db.T, db.S, db.with

local append = db.append
local unpack = table.unpack or unpack -- luacheck: ignore

-- The sizes that are given one by one or as a list.
local function sizes(...)
  return type((...)) == "table" and (...) or { ... }
end

local function expanded(x, ...)
  local shape, own = {}, #x.shape
  local wanted = sizes(...)
  for d, s in ipairs(wanted) do shape[d] = s == -1 and x.shape[d - #wanted + own] or s end
  return x:expand(shape)
end

local function reshaped(x, ...)
  return x:reshape(sizes(...))
end

-- The list of dims `order` with x's other dims behind those that come first, in the places left.
local function moved(x, source, destination)
  local from = type(source) == "table" and source or { source }
  local to = type(destination) == "table" and destination or { destination }
  local order, taken = {}, {}
  for i, d in ipairs(from) do
    order[x:dim(to[i])] = x:dim(d)
    taken[x:dim(d)] = true
  end
  local next_dim = 1
  for d = 1, #x.shape do
    if not order[d] then
      while taken[next_dim] do next_dim = next_dim + 1 end
      order[d] = next_dim
      next_dim = next_dim + 1
    end
  end
  return #x.shape == 0 and x or x:permute(order)
end

local function flattened(x, first, last)
  local rank = #x.shape
  if rank == 0 then return x:reshape { 1 } end
  first, last = x:dim(first or 1), x:dim(last or -1)
  local shape = {}
  for d = 1, rank do
    if d > first and d <= last then
      shape[#shape] = shape[#shape] * x.shape[d]
    else
      shape[#shape + 1] = x.shape[d]
    end
  end
  return x:reshape(shape)
end

local function entry(row)
  row.dtypes = "all"
  if row.dense == nil then row.dense = false end
  return row
end

local function expand_entry()
  return entry {
    ref = expanded,
    samples = {
      S(T { 3, 1 }, { 3, 4 }), S(T { 3, 1 }, 3, 4), S(T { 3 }, { 2, 3 }), S(T { 1, 3, 1 }, { 2, -1, 4 }),
      S(T {}, { 2, 3 }), S(T {}, {}),
      S(T { 1 }, { 0 }), S(T { 0, 1 }, { 0, 3 }), S(T { 2, 3 }, { -1, -1 }), S(T { 2, 1, 2, 1 }, { 3, 2, 2, 2, 2 }),
      S(T { 0, 3 }, { 2, 0, 3 }),
    },
    errors = {
      { S(T { 2, 3 }, { 4, 3 }),
        "x of shape (2, 3) can't expand to (4, 3): only dims of size 1 and new leading dims grow" },
      { S(T { 2, 3 }, { 3 }), "x of shape (2, 3) can't expand to (3,)" }, { S(T { 2, 3 }, {}), "can't expand to" },
      { S(T { 3 }, { -1, 3 }), "x of shape (3,) can't expand to (-1, 3)" },
      { S(T { 1, 3 }, { -2, 3 }), "can't expand to (-2, 3)" },
      { S(T { 3 }, { 1, 1, 1, 1, 1, 1, 1, 1, 3 }), "a tensor has at most 8" },
    },
  }
end

local function transpose_entry()
  return entry {
    ref = function(x, a, b) return x:transpose(a, b) end,
    samples = {
      S(T { 3, 4 }, 1, 2), S(T { 2, 3, 4 }, -1, 1), S(T { 2, 3, 4 }, 2, 2), S(T {}, 1, -1), S(T { 0, 3 }, 1, 2),
      S(T { 2, 3, 2, 2 }, 4, 2), S(T { 3 }, 1, 1),
    },
    errors = append(db.dim_errors(function(x, dim) return S(x, dim, 1) end),
      db.dim_errors(function(x, dim) return S(x, 1, dim) end)),
  }
end

local function movedim_entry()
  return entry {
    ref = moved,
    samples = {
      S(T { 2, 3, 4 }, 1, 3), S(T { 2, 3, 4 }, 3, 1), S(T { 2, 3, 4 }, { 1, 2 }, { 3, 1 }),
      S(T { 2, 3, 4 }, { -1 }, { 1 }),
      S(T { 2, 3, 2, 4 }, { 4, 1 }, { 2, -1 }), S(T { 2, 3 }, {}, {}), S(T {}, 1, 1), S(T { 0, 3 }, 1, 2),
    },
    errors = {
      { S(T { 2, 3, 4 }, { 1, 2 }, { 1 }), "source names 2 dims, destination 1" },
      { S(T { 2, 3 }, 3, 1), "source 3 is out of range for a tensor with 2 dims (1..2)" },
      { S(T { 2, 3 }, 1, -3), "destination -3 is out of range for a tensor with 2 dims (-2..-1)" },
      { S(T { 2, 3 }, { 1, -2 }, { 1, 2 }), "source 1 is given twice" },
      { S(T { 2, 3 }, { 1, 2 }, { 2, 2 }), "destination 2 is given twice" },
    },
  }
end

local reshape_samples = function()
  return {
    S(T { 3, 4 }, { 4, 3 }), S(T { 3, 4 }, 2, 6), S(T { 3, 4 }, { -1 }), S(T { 3, 4 }, { 2, -1, 3 }),
    S(T {}, { 1, 1 }), S(T { 1, 1 }, {}),
    S(T { 0, 3 }, { 3, 0 }), S(T { 0, 3 }, { -1, 3 }), S(T { 2, 3, 4 }, { 6, 4 }), S(T { 2, 3, 4 }, { 2, 12 }),
    S(T { 2, 3, 4 }, { 2, 3, 2, 2 }),
    S(T { 2, 1, 3 }, { 2, 3 }), S(T { 2, 3 }, { 2, 3 }), S(T { 2, 3 }, { 1, 2, 1, 3, 1 }), S(T {}, { -1 }),
  }
end

local function reshape_errors()
  return {
    { S(T { 2, 3 }, { 4, 2 }), "x of shape (2, 3) has 6 elements, which don't fit shape (4, 2)" },
    { S(T { 2, 3 }, { 4, -1 }), "x of shape (2, 3) has 6 elements, which don't fit shape (4, -1)" },
    { S(T { 0, 3 }, { 0, -1 }), "x of shape (0, 3) has 0 elements, which don't fit shape (0, -1)" },
    { S(T { 2, 3 }, { -1, -1 }), "shape (-1, -1): sizes are >= 0, with at most one -1" },
    { S(T { 2, 3 }, { -2, -3 }), "shape (-2, -3): sizes are >= 0, with at most one -1" },
    { S(T { 2, 3 }, "a"), "argument 2 (shape): expected" },
  }
end

-- x in the shape of another tensor, of whatever dtype and device.
local function like(fn, samples, errors)
  return entry {
    ref = function(x, other) return fn(x, other.shape) end,
    samples = samples, errors = errors,
  }
end

local function can_be_seen(fn)
  return function()
    local x = cnn.ones { 2, 3 }
    helper.raises("x of shape (3, 2) with strides (1, 3) can't be seen as (6,) without a copy: use reshape", fn,
      x:t(), { 6 })
    assert(fn(x:t(), { 3, 1, 2 }):shares_storage(x))
    assert(fn(x, { 6 }):shares_storage(x))
  end
end

local contiguous_itself = {
  { { 2, 3, 4, 5 }, "contiguous" }, { { 2, 3 }, "contiguous" }, { {}, "contiguous" },
  { { 2, 3, 4, 5 }, "channels_last" },
}

return {
  expand = expand_entry(),
  broadcast_to = expand_entry(),
  select = entry {
    ref = function(x, dim, index) return x:select(dim, index) end,
    samples = {
      S(T { 3, 4 }, 1, 2), S(T { 3, 4 }, 2, -1), S(T { 2, 3, 4 }, -2, 3), S(T { 5 }, 1, 5), S(T { 0, 3 }, 2, 1),
      S(T { 2, 3, 2, 2, 2 }, 4, -2),
    },
    errors = append(db.dim_errors(function(x, dim) return S(x, dim, 1) end), {
      { S(T {}, 1, 1), "x has 0 dims: there is nothing to select" },
      { S(T { 2, 3 }, 2, 4), "index 4 is out of range for dim 2 of size 3 (1..3)" },
      { S(T { 2, 3 }, 1, -3), "index -3 is out of range for dim 1 of size 2 (1..2)" },
      { S(T { 0, 3 }, 1, 1), "index 1: dim 1 has size 0" }, { S(T { 2, 3 }, 1, 0), "index 0: Lua " },
    }),
  },
  slice = entry {
    ref = function(x, dim, start, length, step) return x:slice(dim, start + 1, length, step) end, -- start is 0-based
    samples = {
      S(T { 5, 3 }, 1, 1, 2), S(T { 5, 3 }, 1, 0, 3, 2), S(T { 5, 3 }, -1, 2, 0), S(T { 5, 3 }, 1, 4, 1, 7),
      S(T { 0, 3 }, 1, 0, 0),
      S(T { 2, 3, 5, 2 }, 3, 1, 2, 3),
    },
    errors = db.dim_errors(function(x, dim) return S(x, dim, 0, 1) end),
  },
  narrow = entry {
    ref = function(x, dim, start, length)
      local n = x.shape[x:dim(dim)]
      return x:slice(dim, start < 0 and start + n + 1 or start, length)
    end,
    samples = {
      S(T { 5, 3 }, 1, 2, 3), S(T { 5, 3 }, 2, -2, 1), S(T { 5, 3 }, -1, 1, 3), S(T { 5, 3 }, 1, 6, 0),
      S(T { 0, 3 }, 1, 1, 0), S(T { 4 }, 1, 2, 1),
      S(T { 2, 3, 5, 2 }, 3, -3, 3),
    },
    errors = append(db.dim_errors(function(x, dim) return S(x, dim, 1, 1) end), {
      { S(T {}, 1, 1, 1), "x has 0 dims: there is nothing to narrow" },
      { S(T { 5, 3 }, 1, 3, 4), "start 3 with length 4 does not fit dim 1 of size 5" },
      { S(T { 5, 3 }, 2, 1, -1), "start 1 with length -1 does not fit dim 2 of size 3" },
      { S(T { 5, 3 }, 2, 5, 0), "start 5 with length 0 does not fit dim 2 of size 3" },
      { S(T { 5, 3 }, 2, -4, 1), "with length 1 does not fit dim 2 of size 3" }, { S(T { 5 }, 1, 0, 1), "0: Lua " },
    }),
  },
  permute = entry {
    ref = function(x, ...) return #x.shape == 0 and x or x:permute(sizes(...)) end,
    samples = {
      S(T { 2, 3, 4 }, { 3, 1, 2 }), S(T { 2, 3, 4 }, 2, 3, 1), S(T { 2, 3 }, { -1, 1 }), S(T { 3 }, { 1 }),
      S(T {}, {}), S(T { 0, 3 }, { 2, 1 }),
      S(T { 2, 1, 3, 2, 2 }, { 5, 2, -2, 1, 3 }),
    },
    errors = {
      { S(T { 2, 3 }, { 1 }), "dims names 1 dims of a tensor with 2" },
      { S(T { 2, 3 }, { 1, -2 }), "dim 1 is given twice" },
      { S(T { 2, 3 }, { 1, 3 }), "dim 3 is out of range for a tensor with 2 dims (1..2)" },
      { S(T { 2, 3 }, { 1, 2, 1 }), "dims names 3 dims of a tensor with 2" },
      { S(T { 2, 3 }, { 1, 0 }), "0: Lua dims start at 1" },
    },
  },
  transpose = transpose_entry(), swapaxes = transpose_entry(), swapdims = transpose_entry(),
  unsqueeze = entry {
    ref = function(x, dim)
      local shape = { unpack(x.shape) }
      table.insert(shape, dim < 0 and dim + #shape + 2 or dim, 1)
      return x:reshape(shape)
    end,
    samples = {
      S(T { 3, 4 }, 1), S(T { 3, 4 }, 2), S(T { 3, 4 }, 3), S(T { 3, 4 }, -1), S(T { 3, 4 }, -3), S(T {}, 1),
      S(T {}, -1), S(T { 0, 3 }, 2),
      S(T { 2, 2, 2, 2, 2 }, 4),
    },
    errors = {
      { S(T { 2, 3 }, 4), "dim 4 is out of range for a tensor with 3 dims (1..3)" },
      { S(T { 2, 3 }, -4), "dim -4 is out of range for a tensor with 3 dims (-3..-1)" },
      { S(T { 2, 3 }, 0), "0: Lua dims start at 1" },
      { S(T { 1, 1, 1, 1, 1, 1, 1, 1 }, 1), "a tensor has at most 8 dims" },
    },
  },
  squeeze = entry {
    ref = function(x, dim)
      local set, shape = x:dim_set(dim), {}
      for d, s in ipairs(x.shape) do
        if not (set[d] and s == 1) then shape[#shape + 1] = s end
      end
      return x:reshape(shape)
    end,
    samples = {
      S(T { 1, 3, 1 }), S(T { 1, 3, 1 }, 1), S(T { 1, 3, 1 }, -1), S(T { 1, 3, 1 }, 2),
      S(T { 1, 3, 1, 1 }, { 1, 3 }), S(T { 1, 1 }), S(T {}),
      S(T {}, 1), S(T { 1, 0, 3 }), S(T { 2, 3 }), S(T { 1, 2, 1, 3 }, { 2, -2 }),
    },
    errors = append(db.dim_errors(function(x, dim) return S(x, dim) end),
      { { S(T { 1, 3 }, { 1, -2 }), "dim 1 is given twice" } }),
  },
  view = entry {
    ref = reshaped, layouts = false, samples = reshape_samples(), errors = reshape_errors(),
    check = function(_, run) run("says when it can't be without a copy", can_be_seen(cnn.view)) end,
  },
  reshape = entry {
    ref = reshaped, dense = true, samples = reshape_samples(), errors = reshape_errors(),
      large = { S(T { 300, 257 }, { -1 }) },
  },
  view_as = like(reshaped, {
    with(S(T { 3, 4 }, T { 2, 6 }), { layouts = false }),
    with(S(T { 3, 4 }, T({ 12 }, { dtype = "int64" })), { layouts = false }),
    with(S(T {}, T { 1, 1 }), { layouts = false }), with(S(T { 0, 3 }, T { 3, 0 }), { layouts = false }),
  }, { { S(T { 2, 3 }, T { 4, 2 }), "x of shape (2, 3) has 6 elements, which don't fit shape (4, 2)" } }),
  reshape_as = like(reshaped, {
    S(T { 3, 4 }, T { 2, 6 }), S(T { 3, 4 }, T({ 12 }, { dtype = "int64" })), S(T {}, T { 1, 1 }),
    S(T { 0, 3 }, T { 3, 0 }), S(T { 2, 3, 2 }, T { 6, 2 }),
  }, { { S(T { 2, 3 }, T { 4, 2 }), "x of shape (2, 3) has 6 elements, which don't fit shape (4, 2)" } }),
  expand_as = like(expanded, {
    S(T { 3, 1 }, T { 3, 4 }), S(T { 3 }, T({ 2, 3 }, { dtype = "bool" })), S(T {}, T { 2, 2 }),
    S(T { 0, 1 }, T { 0, 3 }),
  }, { { S(T { 2, 3 }, T { 3 }), "x of shape (2, 3) can't expand to (3,)" } }),
  flatten = entry {
    ref = flattened, dense = true,
    samples = {
      S(T { 2, 3, 4 }), S(T { 2, 3, 4 }, 2), S(T { 2, 3, 4 }, 1, 2), S(T { 2, 3, 4 }, -2, -1), S(T {}), S(T { 3 }),
      S(T { 0, 3 }), S(T { 2, 3 }, 2, 2),
      S(T { 2, 3, 2, 1, 2 }, 2, 4), S(T { 2, 0, 3 }, 2),
    },
    errors = {
      { S(T { 2, 3 }, 2, 1), "start_dim 2 comes after end_dim 1" },
      { S(T { 2, 3 }, 3), "start_dim 3 is out of range for a tensor with 2 dims (1..2)" },
      { S(T { 2, 3 }, 1, -3), "end_dim -3 is out of range for a tensor with 2 dims (-2..-1)" },
      { S(T {}, 2), "start_dim 2 is out of range: the tensor has 0 dims" },
    },
  },
  ravel = entry {
    ref = function(x) return x:reshape { -1 } end, dense = true,
    samples = { S(T { 2, 3, 4 }), S(T { 5 }), S(T {}), S(T { 0, 3 }), S(T { 2, 1, 2, 2, 3 }) },
    errors = { { S(3), "argument 1 (x): expected a tensor, got the number 3" } },
  },
  unflatten = entry {
    ref = function(x, dim, parts)
      local shape, known = {}, 1
      dim = x:dim(dim)
      for _, s in ipairs(parts) do
        if s ~= -1 then known = known * s end
      end
      for d, size in ipairs(x.shape) do
        if d == dim then
          for _, s in ipairs(parts) do shape[#shape + 1] = s == -1 and size / known or s end
        else
          shape[#shape + 1] = size
        end
      end
      return x:reshape(shape)
    end,
    samples = {
      S(T { 6, 4 }, 1, { 2, 3 }), S(T { 3, 4 }, 2, { 2, -1 }), S(T { 3, 4 }, -1, { -1, 4 }),
      S(T { 12 }, 1, { 2, 3, 2 }), S(T { 0, 3 }, 1, { 0, 2 }),
      S(T { 2, 6, 2, 2 }, 2, { 3, 2 }), S(T { 3, 4 }, 1, { 3 }), S(T { 0, 3 }, 1, { 2, -1 }),
    },
    errors = append(db.dim_errors(function(x, dim) return S(x, dim, { 1 }) end), {
      { S(T {}, 1, { 1 }), "can't stand for a dim of a tensor with 0 dims" },
      { S(T { 6 }, 1, {}), "can't stand for a dim of a tensor with 1 dim" },
      { S(T { 6 }, 1, { 4, 2 }), "sizes (4, 2) don't fit dim 1 of size 6" },
      { S(T { 6 }, 1, { 4, -1 }), "sizes (4, -1) don't fit dim 1 of size 6" },
      { S(T { 6 }, 1, { -1, -1 }), "sizes (-1, -1) don't fit dim 1 of size 6" },
      { S(T { 0 }, 1, { 0, -1 }), "sizes (0, -1) don't fit dim 1 of size 0" },
      { S(T { 2, 1 }, 2, { 1, 1, 1, 1, 1, 1, 1, 1 }),
        "can't stand for a dim of a tensor with 2 dims: 1 to 8 dims are allowed in all" },
    }),
  },
  t = entry {
    ref = function(x) return #x.shape < 2 and x or x:transpose(1, 2) end,
    samples = { S(T { 3, 4 }), S(T { 3 }), S(T {}), S(T { 0, 3 }), S(T { 1, 4 }) },
    errors = { { S(T { 2, 3, 4 }), "x has 3 dims, at most 2 are allowed: use transpose or permute" } },
  },
  movedim = movedim_entry(), moveaxis = movedim_entry(),
  contiguous = entry {
    ref = function(x) return x end,
    samples = {
      S(T { 3, 4 }), S(T {}), S(T { 0, 3 }), S(T { 2, 3, 4 }, "contiguous"), S(T { 2, 3, 2, 4 }),
      S(T { 2, 3, 2, 4 }, "channels_last"),
      S(T { 2, 1, 2, 4 }, "channels_last"), S(T { 0, 3, 2, 2 }, "channels_last"), S(T { 5 }),
    },
    errors = {
      { S(T { 2, 3 }, "channels_last"), "channels_last is for tensors with 4 dims, not 2" },
      { S(T { 2, 3 }, "channel_last"), "argument 2 (memory_format): expected" },
    },
    check = function(_, run)
      run("gives x itself where it is so already, else a copy that is", function()
        for _, case in ipairs(contiguous_itself) do
          local x = cnn.ones(case[1])
          local y = x:contiguous(case[2])
          assert(y:contiguous(case[2]):data_ptr() == y:data_ptr())
          assert((y:data_ptr() == x:data_ptr()) == (case[2] == "contiguous"))
        end
        assert(cnn.ones({ 2, 3 }):t():contiguous():is_contiguous())
        assert(table.concat(cnn.ones({ 2, 3, 4, 5 }):contiguous("channels_last"):stride(), ",") == "60,1,15,3")
      end)
    end,
  },
}
