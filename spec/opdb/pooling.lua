-- SPDX-License-Identifier: MIT
-- Pooling (csrc/ops/pooling.c).
local assert = require "luassert"
local cnn = require "cnn"
local db = require "spec.opdb"
local T, I, S, with, nd = db.T, db.I, db.S, db.with, db.nd
local unpack = table.unpack or unpack -- luacheck: ignore

-- ---------------------------------------------------------------------------------------------
-- References: what each window sees

local function spatial(x, n) return { unpack(x.shape, #x.shape - n + 1) } end

local function with_spatial(x, n, sizes)
  local shape = { unpack(x.shape, 1, #x.shape - n) }
  for d = 1, n do shape[#shape + 1] = sizes[d] end
  return shape
end

-- The windows of a pool, dim by dim: lists of {first, last, step} in positions from 1, which may reach
-- into the padding.
local function sliding(size, kernel, stride, padding, dilation, ceil)
  local span = dilation * (kernel - 1) + 1
  local round = ceil and math.ceil or math.floor
  local count = round((size + 2 * padding - span) / stride) + 1
  if ceil and (count - 1) * stride >= size + padding then count = count - 1 end
  local list = {}
  for i = 0, count - 1 do
    local first = i * stride - padding + 1
    list[i + 1] = { first, first + span - 1, dilation }
  end
  return list
end

local function parts(size, count)
  local list = {}
  for i = 0, count - 1 do
    list[i + 1] = { math.floor(i * size / count) + 1, math.ceil((i + 1) * size / count), 1 }
  end
  return list
end

local function pool_windows(x, n, kernel, stride, padding, dilation, ceil)
  kernel = nd.sizes(kernel, n)
  stride, padding, dilation = nd.sizes(stride or kernel, n), nd.sizes(padding or 0, n), nd.sizes(dilation or 1, n)
  local lists = {}
  for d, size in ipairs(spatial(x, n)) do
    lists[d] = sliding(size, kernel[d], stride[d], padding[d], dilation[d], ceil)
  end
  return lists, padding
end

local function part_windows(x, n, output)
  output = nd.sizes(output, n)
  local lists = {}
  for d, size in ipairs(spatial(x, n)) do lists[d] = parts(size, output[d]) end
  return lists
end

-- Calls visit(place of the window's result, window per dim, places in x's list that it sees, their
-- positions in the plane) for every window of every plane.
local function each_window(x, n, lists, visit)
  local counts, sizes = {}, spatial(x, n)
  for d = 1, n do counts[d] = #lists[d] end
  local plane = nd.size(sizes)
  local planes = nd.size { unpack(x.shape, 1, #x.shape - n) }
  local result = 0
  for c = 0, planes - 1 do
    nd.each(counts, function(at)
      result = result + 1
      local window, taps = {}, {}
      for d = 1, n do
        window[d] = lists[d][at[d]]
        taps[d] = math.floor((window[d][2] - window[d][1]) / window[d][3]) + 1
      end
      local places, positions = {}, {}
      nd.each(taps, function(t)
        local k = 0
        for d = 1, n do
          local q = window[d][1] + (t[d] - 1) * window[d][3]
          if q < 1 or q > sizes[d] then return end
          k = k * sizes[d] + q - 1
        end
        places[#places + 1], positions[#positions + 1] = c * plane + k + 1, k + 1
      end)
      visit(result, window, places, positions)
    end)
  end
  return with_spatial(x, n, counts)
end

-- The maximum and where it is first; NaN is more than anything.
local function largest(x, n, lists)
  local values, indices = {}, {}
  local shape = each_window(x, n, lists, function(r, _, places, positions)
    local best, at
    for i, place in ipairs(places) do
      local v = x.list[place]
      if not at or v > best or v ~= v and best == best then best, at = v, positions[i] end
    end
    values[r], indices[r] = best, at
  end)
  return nd.new(shape, values), nd.new(shape, indices)
end

local function max_pool(x, n, kernel, stride, padding, dilation, ceil)
  return largest(x, n, (pool_windows(x, n, kernel, stride, padding, dilation, ceil)))
end

-- Calls visit(result, places, count) with what the sum of each window is divided by.
local function each_mean(x, n, kernel, stride, padding, ceil, include, divisor, visit)
  local lists, before = pool_windows(x, n, kernel, stride, padding, 1, ceil)
  local sizes = spatial(x, n)
  return each_window(x, n, lists, function(r, window, places)
    local count = 1
    for d = 1, n do -- padding counts, what lies beyond it does not
      count = count * (math.min(window[d][2], sizes[d] + before[d]) - window[d][1] + 1)
    end
    visit(r, places, divisor or include ~= false and count or #places)
  end)
end

local function avg_pool(x, n, kernel, stride, padding, ceil, include, divisor)
  local list = {}
  local shape = each_mean(x, n, kernel, stride, padding, ceil, include, divisor, function(r, places, count)
    local sum = 0
    for _, place in ipairs(places) do sum = sum + x.list[place] end
    list[r] = sum / count
  end)
  return nd.new(shape, list)
end

local function adaptive_avg_pool(x, n, output)
  local list = {}
  local shape = each_window(x, n, part_windows(x, n, output), function(r, _, places)
    local sum = 0
    for _, place in ipairs(places) do sum = sum + x.list[place] end
    list[r] = sum / #places
  end)
  return nd.new(shape, list)
end

-- Places of a flat list of planes: the index of each element, within its plane of `size`.
local function scattered(dy, indices, shape, n)
  local dx = nd.new(shape, 0)
  local size, count = nd.size(spatial(dx, n)), nd.size(spatial(dy, n))
  for i, v in ipairs(dy.list) do
    local place = math.floor((i - 1) / count) * size + indices.list[i]
    dx.list[place] = dx.list[place] + v
  end
  return dx
end

local function gathered(x, indices, n)
  local size, count = nd.size(spatial(x, n)), nd.size(spatial(indices, n))
  local list = {}
  for i, index in ipairs(indices.list) do list[i] = x.list[math.floor((i - 1) / count) * size + index] end
  return nd.new(indices.shape, list)
end

-- ---------------------------------------------------------------------------------------------
-- Kinds of pools: input, kernel, stride, padding, dilation, ceil_mode

local POOLS = {
  {
    { { 2, 3, 9 }, 2 }, { { 3, 9 }, 3 }, { { 2, 3, 9 }, 3, 2 }, { { 2, 3, 9 }, { 3 }, 1, 1 },
    { { 1, 2, 9 }, 3, 2, 1, 2 },
    { { 1, 2, 8 }, 3, 2, 0, 1, true }, { { 1, 2, 8 }, 3, 3, 1, 1, true }, { { 1, 2, 4 }, 2, 3, 1, 1, true },
    { { 0, 3, 9 }, 2 }, { { 2, 0, 9 }, 2 }, { { 2, 1, 1 }, 1 }, { { 1, 1, 40 }, 3, 2, 1 }, { { 1, 2, 10 }, 3, 5 },
  },
  {
    { { 2, 3, 6, 6 }, 2 }, { { 3, 6, 5 }, 2 }, { { 2, 3, 7, 6 }, 3, 2, 1 },
    { { 1, 2, 7, 8 }, { 3, 2 }, { 2, 3 }, { 1, 0 } },
    { { 1, 2, 8, 9 }, 3, 2, 1, 2 }, { { 1, 2, 9, 8 }, { 2, 3 }, 1, { 0, 1 }, { 3, 2 } },
    { { 1, 2, 7, 7 }, 2, 2, 0, 1, true },
    { { 1, 2, 6, 7 }, 3, 2, 1, 1, true }, { { 1, 2, 4, 4 }, 2, 3, 1, 1, true }, { { 0, 3, 6, 6 }, 2 },
    { { 2, 0, 6, 6 }, 2 },
    { { 2, 1, 1, 1 }, 1 }, { { 1, 2, 5, 5 }, 5 }, { { 1, 5, 7, 34 }, 2 }, { { 1, 17, 6, 6 }, 3, 2, 1 },
    { { 1, 2, 9, 9 }, 2, 4 },
  },
  {
    { { 1, 2, 4, 4, 6 }, 2 }, { { 2, 4, 5, 4 }, 2 }, { { 1, 2, 5, 4, 5 }, { 2, 3, 2 }, { 1, 2, 2 }, { 1, 1, 0 } },
    { { 1, 2, 5, 5, 5 }, 2, 2, 0, { 1, 2, 1 }, true }, { { 1, 2, 4, 5, 4 }, 3, 2, 1, 1, true },
    { { 0, 2, 4, 4, 4 }, 2 },
  },
}

local OUTPUTS = {
  { { { 2, 3, 9 }, 3 }, { { 3, 9 }, 4 }, { { 2, 3, 7 }, { 5 } }, { { 1, 2, 3 }, 7 }, { { 2, 3, 9 }, 1 },
  { { 0, 3, 4 }, 2 } },
  {
    { { 2, 3, 6, 6 }, 3 }, { { 3, 7, 5 }, { 3, 2 } }, { { 2, 3, 5, 7 }, { 4, 5 } }, { { 1, 2, 3, 2 }, { 5, 4 } },
    { { 2, 3, 6, 5 }, 1 }, { { 0, 3, 6, 6 }, 2 }, { { 2, 0, 6, 6 }, 2 }, { { 1, 17, 6, 6 }, { 2, 3 } },
    { { 2, 3, 4, 4 }, 4 },
  },
  {
    { { 1, 2, 4, 4, 6 }, 2 }, { { 2, 4, 5, 3 }, { 3, 2, 2 } }, { { 1, 2, 3, 4, 5 }, { 2, 3, 4 } },
    { { 1, 2, 3, 4, 3 }, 1 },
    { { 1, 1, 2, 2, 2 }, 3 }, { { 0, 2, 4, 4, 4 }, 2 },
  },
}

local distinct = { distinct = true } -- where the largest changes there is no derivative

local function max_samples(n, lead)
  local list = {}
  for i, kind in ipairs(POOLS[n]) do
    local arguments = { T(kind[1], distinct) }
    if lead then arguments[2] = n end
    local count = #arguments
    for k = 2, 6 do arguments[count + k - 1] = kind[k] end
    list[i] = S(unpack(arguments, 1, count + 5))
  end
  return list
end

local function all_dims(make, more)
  local list = {}
  for n = 1, 3 do
    for _, sample in ipairs(make(n, true)) do list[#list + 1] = sample end
  end
  for _, sample in ipairs(more or {}) do list[#list + 1] = sample end
  return list
end

local function indices_too(samples, at)
  local count = #samples
  for i = 1, math.min(count, 4) do
    local s = { unpack(samples[i], 1, samples[i].n) }
    s[at] = true
    samples[count + i] = with(S(unpack(s, 1, at)), { out = { "keep", "int64" } })
  end
  return samples
end

-- What every pool refuses of its input; call(x, kernel or output size) makes the arguments.
local function input_errors(n, call)
  local shape = { 2, 3, 5, 5, 5 }
  local good = { unpack(shape, 1, n + 2) }
  local empty = { unpack(good) }
  empty[n + 2] = 0
  return {
    { call(T { 5 }, 2), ("input must have %d dims, or %d without a batch, not 1 (5,)"):format(n + 2, n + 1) },
    { call(T { 1, 1, 1, 1, 1, 1 }, 2), ("input must have %d dims"):format(n + 2) },
    { call(T(empty), 2), "has an empty spatial dim" }, { call(T(good), 0), "must be at least 1, not 0" },
    { call(T(good), { 2, 2, 2, 2 }), "size" }, { call(T(good), "2"), "size" },
    { call(T(good), 2 ^ 40), "is too large" },
  }, good
end

local function max_entry(n)
  local errors, good = input_errors(n, function(x, kernel) return S(x, kernel) end)
  for _, case in ipairs {
    { S(T(good), 6), "spans 6 in spatial dim 1, which is more than the input" },
    { S(T(good), 2, 0), "stride must be at least 1" },
    { S(T(good), 2, 1, 2), "padding 2 is more than half of kernel_size 2" },
    { S(T(good), 2, 1, -1), "padding must be at least 0" },
    { S(T(good), 2, 1, 0, 0), "dilation must be at least 1" }, { S(T(good), 3, 1, 0, 3), "spans 7" },
    { S(T(good), 4, 1, 2, 6), "spans 19" },
    { S(T { unpack({ 1, 1, 1, 1, 1 }, 1, n + 2) }, 2, 1, 1, 2),
      "a window with dilation 2 and padding 1 has no element inside the input, of size 1 in spatial dim 1" },
  } do errors[#errors + 1] = case end
  return {
    dtypes = "real", refuses = "input is bool", dense = n ~= 2, samples = indices_too(max_samples(n), 7),
      errors = errors,
    ref = function(x, kernel, stride, padding, dilation, ceil, indices)
      local values, places = max_pool(x, n, kernel, stride, padding, dilation, ceil)
      if indices then return values, places end
      return values
    end,
    large = ({ S(T { 8, 20, 700 }, 3, 2, 1), S(T { 4, 16, 40, 44 }, 3, 2, 1), S(T { 2, 8, 12, 20, 24 }, 2) })[n],
    check = n == 2 and function(_, run)
      run("lets NaN win, and padding never", function()
        local x = cnn.full({ 1, 1, 3, 3 }, -5)
        x[1][1][2][2] = 0 / 0
        local y, at = cnn.max_pool2d(x, 2, 1, 1, 1, false, true)
        local list = y:totable()[1][1]
        for i = 1, 4 do
          for k = 1, 4 do
            local sees = i >= 2 and i <= 3 and k >= 2 and k <= 3
            if sees then
              assert.is_true(list[i][k] ~= list[i][k])
              assert.equal(5, tonumber(at[1][1][i][k]:item()))
            else
              assert.equal(-5, list[i][k])
            end
          end
        end
        local low = cnn.full({ 1, 1, 2, 2 }, -math.huge)
        assert.equal(-math.huge, cnn.max_pool2d(low, 2):item())
      end)
      run("keeps channels last", function()
        local x = cnn.rand(2, 3, 6, 6):contiguous("channels_last"):requires_grad_()
        local y = cnn.max_pool2d(x, 2)
        assert.is_true(y:is_contiguous "channels_last")
        y:sum():backward()
        assert.is_true(x.grad:is_contiguous "channels_last")
      end)
    end or nil,
  }
end

local function output_samples(n, lead, options)
  local list = {}
  for i, kind in ipairs(OUTPUTS[n]) do
    list[i] = lead and S(T(kind[1], options), n, kind[2]) or S(T(kind[1], options), kind[2])
  end
  return list
end

local function adaptive_max_entry(n)
  return {
    dtypes = "real", refuses = "input is bool", dense = n ~= 2,
    samples = indices_too(output_samples(n, false, distinct), 3),
    errors = (input_errors(n, S)),
    ref = function(x, output, indices)
      local values, places = largest(x, n, part_windows(x, n, output))
      if indices then return values, places end
      return values
    end,
    large = ({ S(T { 8, 20, 700 }, 31), S(T { 4, 16, 40, 44 }, { 7, 9 }), S(T { 2, 8, 12, 20, 24 }, { 5, 6, 7 }) })[n],
  }
end

local function adaptive_avg_entry(n)
  return {
    dtypes = "float", dense = n ~= 2, samples = output_samples(n), errors = (input_errors(n, S)),
    ref = function(x, output) return adaptive_avg_pool(x, n, output) end,
    large = ({ S(T { 8, 20, 700 }, 31), S(T { 4, 16, 40, 44 }, { 7, 9 }), S(T { 2, 8, 12, 20, 24 }, { 5, 6, 7 }) })[n],
  }
end

-- Kinds of means: the pools without dilation, and how padding counts.
local function means(n)
  local list = {}
  for _, kind in ipairs(POOLS[n]) do
    local x, kernel, stride, padding, dilation, ceil = unpack(kind, 1, 6)
    if dilation == nil or dilation == 1 then
      list[#list + 1] = { x, kernel, stride, padding, ceil }
      if padding and padding ~= 0 then
        list[#list + 1] = { x, kernel, stride, padding, ceil, false }
        list[#list + 1] = { x, kernel, stride, padding, ceil, true, 5 }
      end
    end
  end
  return list
end

local function avg_entry(n)
  local list = {}
  for i, kind in ipairs(means(n)) do list[i] = S(T(kind[1]), unpack(kind, 2, 7)) end
  local errors, good = input_errors(n, function(x, kernel) return S(x, kernel) end)
  for _, case in ipairs {
    { S(T(good), 6), "spans 6 in spatial dim 1, which is more than the input" },
    { S(T(good), 2, 0), "stride must be at least 1" },
    { S(T(good), 2, 1, 2), "padding 2 is more than half of kernel_size 2" },
    { S(T(good), 2, 1, -1), "padding must be at least 0" },
    { S(T(good), 2, 2, 0, false, true, 0), "divisor_override must not be 0" },
  } do errors[#errors + 1] = case end
  return {
    dtypes = "float", dense = n ~= 2, samples = list, errors = errors,
    ref = function(x, ...) return avg_pool(x, n, ...) end,
    large = ({ S(T { 8, 20, 700 }, 3, 2, 1), S(T { 4, 16, 40, 44 }, 3, 2, 1), S(T { 2, 8, 12, 20, 24 }, 2) })[n],
  }
end

-- The gradient ops: dy has the shape that the pool of such an input has.
local function result_shape(x, n, lists)
  local sizes = {}
  for d = 1, n do sizes[d] = #lists[d] end
  return with_spatial({ shape = x }, n, sizes)
end

local function avg_backward_samples(n)
  local list = {}
  for i, kind in ipairs(means(n)) do
    local x, kernel, stride, padding, ceil, include, divisor = unpack(kind, 1, 7)
    local lists = pool_windows({ shape = x }, n, kernel, stride, padding, 1, ceil)
    list[i] = S(T(result_shape(x, n, lists)), nd.sizes(kernel, n), stride and nd.sizes(stride, n), padding or 0,
      ceil or false, include ~= false, divisor, x, n)
  end
  return list
end

local function adaptive_backward_samples(n)
  local list = {}
  for i, kind in ipairs(OUTPUTS[n]) do
    local x, output = unpack(kind)
    list[i] = S(T(result_shape(x, n, part_windows({ shape = x }, n, output))), nd.sizes(output, n), x, n)
  end
  return list
end

-- dx of a mean's gradient, from visits of (result, places, count).
local function spread(dy, shape, walk)
  local dx = nd.new(shape, 0)
  walk(dx, function(r, places, count)
    for _, place in ipairs(places) do dx.list[place] = dx.list[place] + dy.list[r] / count end
  end)
  return dx
end

local int32 = { dtype = "int32", whole = true }

return {
  max_pool1d = (function()
    local entry = max_entry(1)
    entry.check = function(_, run)
      run("takes no plane that int32 can't count", function()
        local ok, message = pcall(cnn.max_pool1d, cnn.empty({ 1, 2 ^ 31 }, { device = "meta" }), 2)
        assert.is_false(ok)
        assert.truthy(tostring(message):find("has planes of more than 2^31 - 1 places", 1, true))
        assert.same({ 1, 2 ^ 30 - 1 }, cnn.max_pool1d(cnn.empty({ 1, 2 ^ 31 - 1 }, { device = "meta" }), 2).shape)
      end)
    end
    return entry
  end)(),
  max_pool2d = max_entry(2),
  max_pool3d = max_entry(3),
  adaptive_max_pool1d = adaptive_max_entry(1),
  adaptive_max_pool2d = adaptive_max_entry(2),
  adaptive_max_pool3d = adaptive_max_entry(3),
  max_pool = {
    dtypes = "real", dense = false, out = { "keep", "int32" }, ref = max_pool, samples = all_dims(max_samples),
  },
  adaptive_max_pool = {
    dtypes = "real", dense = false, out = { "keep", "int32" },
    ref = function(x, n, output) return largest(x, n, part_windows(x, n, output)) end,
    samples = all_dims(function(n) return output_samples(n, true, distinct) end),
  },
  max_pool_backward = {
    dtypes = "float", dense = false,
    errors = {
      { S(T { 2, 2 }, I({ 2, 2 }, 4), { 2, 4 }, 1), "indices are int64, not int32" },
      { S(T { 2, 2 }, I({ 2, 2 }, 4, int32), { 2, 4 }, 1, { 2, 2 }), "window has 2 sizes, not 4" },
    },
    ref = scattered,
    samples = {
      S(T { 2, 3, 2, 3 }, I({ 2, 3, 2, 3 }, 20, int32), { 2, 3, 4, 5 }, 2),
      S(T { 3, 4 }, I({ 3, 4 }, 9, int32), { 3, 9 }, 1),
      S(T { 2, 3, 4 }, I({ 2, 3, 4 }, 3, int32), { 2, 3, 9 }, 1),
      S(T { 1, 2, 2, 2, 2 }, I({ 1, 2, 2, 2, 2 }, 24, int32), { 1, 2, 2, 3, 4 }, 3),
      S(T { 2, 2, 2, 2 }, I({ 2, 2, 2, 2 }, 24, int32), { 2, 2, 3, 4 }, 3),
      S(T { 0, 3, 2, 2 }, I({ 0, 3, 2, 2 }, 16, int32), { 0, 3, 4, 4 }, 2),
      -- in windows: side by side, overlapping, dilated; in parts
      S(T { 1, 2, 2, 2 }, I({ 1, 2, 2, 2 }, { 6, 3, 9, 16, 1, 8, 13, 11 }, int32), { 1, 2, 4, 4 }, 2,
        { 2, 2, 2, 2, 0, 0, 1, 1 }),
      S(T { 2, 1, 2 }, I({ 2, 1, 2 }, { 1, 9, 6, 4 }, int32), { 2, 2, 5 }, 2, { 2, 2, 2, 2, 0, 0, 1, 1 }),
      S(T { 2, 5 }, I({ 2, 5 }, { 2, 2, 2, 4, 5, 1, 1, 4, 5, 5 }, int32), { 2, 5 }, 1, { 3, 1, 1, 1 }),
      S(T { 1, 2, 2 }, I({ 1, 2, 2 }, { 3, 3, 1, 5 }, int32), { 1, 2, 5 }, 1, { 2, 2, 0, 2 }),
      S(T { 1, 2, 3 }, I({ 1, 2, 3 }, { 2, 2, 4, 1, 4, 4 }, int32), { 1, 2, 5 }, 1, { 0 }),
      S(T { 1, 17, 2, 2 }, I({ 1, 17, 2, 2 }, 25, int32), { 1, 17, 5, 5 }, 2),
    },
  },
  max_pool_gather = {
    dtypes = "all", dense = false, ref = gathered,
    errors = { { S(T { 2, 4 }, I({ 2, 2 }, 4), 1), "indices are int64, not int32" } },
    samples = {
      S(T { 2, 3, 4, 5 }, I({ 2, 3, 2, 3 }, 20, int32), 2), S(T { 3, 9 }, I({ 3, 4 }, 9, int32), 1),
      S(T { 1, 2, 2, 3, 4 }, I({ 1, 2, 2, 2, 2 }, 24, int32), 3), S(T { 2, 2, 3, 4 }, I({ 2, 2, 2, 2 }, 24, int32), 3),
      S(T { 0, 3, 4, 4 }, I({ 0, 3, 2, 2 }, 16, int32), 2), S(T { 1, 17, 5, 5 }, I({ 1, 17, 2, 2 }, 25, int32), 2),
    },
  },
  avg_pool1d = avg_entry(1),
  avg_pool2d = avg_entry(2),
  avg_pool3d = avg_entry(3),
  avg_pool_backward = {
    dtypes = "float", dense = false, samples = all_dims(avg_backward_samples),
    ref = function(dy, kernel, stride, padding, ceil, include, divisor, shape, n)
      return spread(dy, shape, function(dx, visit)
        each_mean(dx, n, kernel, stride, padding, ceil, include, divisor, visit)
      end)
    end,
    large = S(T { 4, 16, 20, 22 }, { 3, 3 }, { 2, 2 }, { 1, 1 }, false, true, nil, { 4, 16, 40, 44 }, 2),
  },
  adaptive_avg_pool1d = adaptive_avg_entry(1),
  adaptive_avg_pool2d = adaptive_avg_entry(2),
  adaptive_avg_pool3d = adaptive_avg_entry(3),
  adaptive_avg_pool_backward = {
    dtypes = "float", dense = false, samples = all_dims(adaptive_backward_samples),
    ref = function(dy, output, shape, n)
      return spread(dy, shape, function(dx, visit)
        each_window(dx, n, part_windows(dx, n, output), function(r, _, places) visit(r, places, #places) end)
      end)
    end,
    large = S(T { 4, 16, 7, 9 }, { 7, 9 }, { 4, 16, 40, 44 }, 2),
  },
}
