-- SPDX-License-Identifier: MIT
-- Pooling against plain loops: padding, dilation, ceil_mode, layouts, dtypes, NaN and infinities, and where the
-- maxima are; gradients and theirs.
local cnn = require "cnn"
local helper = require "spec.helper"

local F = cnn.F
local unpack = table.unpack or unpack
local inf, nan = math.huge, 0 / 0

local function rand(...) return cnn.randn({ ... }, { dtype = "float64" }) end

-- The windows of a dim: lists of positions inside the input, and how many a mean counts with padding.
local function windows(size, kernel, stride, padding, dilation, ceil)
  local list, reach = {}, dilation * (kernel - 1)
  local count = (size + 2 * padding - reach - 1) / stride
  count = (ceil and math.ceil(count) or math.floor(count)) + 1
  if ceil and (count - 1) * stride >= size + padding then count = count - 1 end
  for i = 0, count - 1 do
    local w = { counted = 0 }
    for t = 0, kernel - 1 do
      local at = i * stride - padding + t * dilation
      if at >= 0 and at < size then w[#w + 1] = at + 1 end
      if at < size + padding then w.counted = w.counted + 1 end
    end
    list[#list + 1] = w
  end
  return list
end

local function adaptive(size, parts)
  local list = {}
  for i = 0, parts - 1 do
    local w = {}
    for at = math.floor(i * size / parts), math.ceil((i + 1) * size / parts) - 1 do w[#w + 1] = at + 1 end
    w.counted = #w
    list[#list + 1] = w
  end
  return list
end

-- Values, positions and means of (N, C, H, W) under the windows of both dims.
local function by_hand(x, rows, cols, include_pad, divisor)
  local max, at, mean = {}, {}, {}
  for _, image in ipairs(x:totable()) do
    for _, plane in ipairs(image) do
      for _, r in ipairs(rows) do
        for _, c in ipairs(cols) do
          local best, where, sum = nil, nil, 0
          for _, i in ipairs(r) do
            for _, j in ipairs(c) do
              local v = plane[i][j]
              if best == nil or v > best or v ~= v then best, where = v, (i - 1) * #plane[1] + j end
              sum = sum + v
            end
          end
          max[#max + 1], at[#at + 1] = best, where
          mean[#mean + 1] = sum / (divisor or include_pad and r.counted * c.counted or #r * #c)
        end
      end
    end
  end
  return max, at, mean
end

-- size, kernel, stride, padding, dilation, ceil_mode
local CASES = {
  { { 2, 3, 6, 8 }, { 2, 2 }, { 2, 2 }, { 0, 0 }, { 1, 1 }, false },
  { { 2, 3, 7, 9 }, { 2, 2 }, { 2, 2 }, { 0, 0 }, { 1, 1 }, false },
  { { 2, 3, 7, 9 }, { 2, 2 }, { 2, 2 }, { 0, 0 }, { 1, 1 }, true },
  { { 1, 2, 8, 7 }, { 3, 3 }, { 2, 2 }, { 1, 1 }, { 1, 1 }, false },
  { { 1, 2, 8, 7 }, { 3, 3 }, { 2, 2 }, { 1, 1 }, { 1, 1 }, true },
  { { 2, 2, 9, 9 }, { 2, 3 }, { 1, 1 }, { 0, 1 }, { 3, 2 }, false },
  { { 1, 1, 5, 4 }, { 5, 4 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, false },
  { { 1, 2, 6, 11 }, { 2, 3 }, { 4, 5 }, { 1, 0 }, { 1, 1 }, true },
  { { 2, 2, 5, 5 }, { 1, 1 }, { 2, 2 }, { 0, 0 }, { 1, 1 }, false },
  { { 1, 2, 4, 68 }, { 2, 2 }, { 2, 2 }, { 0, 0 }, { 1, 1 }, false },
  { { 1, 20, 5, 6 }, { 3, 2 }, { 3, 2 }, { 1, 1 }, { 1, 1 }, false },
}

local LAYOUTS = {
  plain = function(x) return x end,
  channels_last = function(x) return x:contiguous("channels_last") end,
  transposed = function(x) return x:transpose(1, 4):contiguous():transpose(1, 4) end,
  stepped = function(x) return cnn.stack({ x, x }, -1):select(-1, 1) end,
}

local function both(case)
  local s, k, st, p, d = unpack(case, 1, 5)
  return windows(s[3], k[1], st[1], p[1], d[1], case[6]), windows(s[4], k[2], st[2], p[2], d[2], case[6])
end

local function max_options(case)
  return { stride = case[3], padding = case[4], dilation = case[5], ceil_mode = case[6], return_indices = true }
end

describe("max_pool2d", function()
  setup(function() cnn.manual_seed(3) end)

  it("gives the maxima and where they are, in every layout", function()
    for number, case in ipairs(CASES) do
      local x = rand(unpack(case[1]))
      if number % 2 == 0 then x = (x * 2):floor() end -- with equals
      local max, at = by_hand(x, both(case))
      for name, layout in pairs(LAYOUTS) do
        local y, indices = F.max_pool2d(layout(x), case[2], max_options(case))
        local ok, message = pcall(helper.elements, y, max, 0)
        assert.is_true(ok, ("case %d, %s: %s"):format(number, name, tostring(message)))
        ok, message = pcall(helper.elements, indices, at, 0)
        assert.is_true(ok, ("case %d, places, %s: %s"):format(number, name, tostring(message)))
        assert.equal("int64", indices.dtype)
      end
    end
  end)

  it("gives one result unless asked for places", function()
    assert.equal(1, select("#", F.max_pool2d(rand(1, 1, 4, 4), 2)))
    assert.equal(2, select("#", F.max_pool2d(rand(1, 1, 4, 4), 2, { return_indices = true })))
    assert.equal(1, select("#", F.adaptive_max_pool2d(rand(1, 1, 4, 4), 2)))
  end)

  it("has gradients, and gradients of those", function()
    for number, case in ipairs(CASES) do
      local x = cnn.randperm(rand(unpack(case[1])):numel()):double():reshape(case[1]):requires_grad_() -- no equals
      local o = max_options(case)
      local ok, message = pcall(cnn.gradcheck, function(t) return (F.max_pool2d(t, case[2], o)) end, { x },
        { eps = 1e-3, second = x:numel() < 100 })
      assert.is_true(ok, ("case %d: %s"):format(number, tostring(message)))
      local dy = rand(unpack(F.max_pool2d(x:detach(), case[2], o).shape))
      F.max_pool2d(x, case[2], o):backward(dy)
      for name, layout in pairs(LAYOUTS) do
        for _, layout_dy in pairs(LAYOUTS) do
          local p = layout(x:detach():clone()):requires_grad_()
          F.max_pool2d(p, case[2], o):backward(layout_dy(dy))
          ok, message = pcall(helper.elements, p.grad, helper.flat(x.grad), 1e-12)
          assert.is_true(ok, ("case %d, %s: %s"):format(number, name, tostring(message)))
        end
      end
    end
  end)

  it("keeps NaN and infinities, at a place inside the input", function()
    for _, values in ipairs {
      { -inf, -inf, -inf, -inf }, { nan, 1, 2, 3 }, { 1, 2, 3, nan }, { nan, nan, inf, 1 }, { -inf, nan, 1, inf },
    } do
      for _, size in ipairs { 2, 6, 40 } do
        local x = cnn.full({ 1, 17, size, size }, -inf)
        x[{ {}, {}, { 1, 2 }, { 1, 2 } }] = cnn.tensor(values):reshape(2, 2)
        local expected = -inf
        for _, v in ipairs(values) do
          if v ~= v or v > expected then expected = v end
        end
        for _, layout in pairs(LAYOUTS) do
          for _, o in ipairs { { return_indices = true }, { stride = 1, padding = 1, return_indices = true } } do
            local y, at = F.max_pool2d(layout(x), 2, o)
            local v, place = y:get(1, 9, 1 + (o.padding or 0), 1 + (o.padding or 0)), at:get(1, 9, 1, 1)
            assert.is_true(v == expected or expected ~= expected and v ~= v)
            assert.is_true(at:min():item() >= 1 and at:max():item() <= size * size)
            assert.is_true(place == 1 or place == 2 or place == size + 1 or place == size + 2)
          end
        end
      end
    end
  end)

  it("keeps integers, exactly", function()
    for _, dtype in ipairs { "int64", "int32", "int16", "int8", "uint8" } do
      local x = cnn.tensor({ { { 1, 5, 2 }, { 7, 3, 100 } } }, dtype)
      local y = F.max_pool2d(x, { 2, 3 })
      assert.equal(dtype, y.dtype)
      assert.equal(100, y:item())
      assert.equal(7, F.max_pool2d(x:contiguous(), 2, { stride = 1 }):get(1, 1, 1))
    end
    local big = cnn.full({ 1, 2, 2 }, -1, { dtype = "int64" }) * 9007199254740000 - 500
    assert.is_true(F.max_pool2d(big, 2):eq(big[{ {}, { 1, 1 }, { 1, 1 } }]):all():item())
    helper.raises("max_pool2d: input is bool", F.max_pool2d, cnn.ones(1, 4, 4):gt(0), 2)
  end)

  it("says what does not fit", function()
    helper.raises("max_pool2d: the kernel (3, 3) spans 3 in spatial dim 1, which is more than the input (2, 9)",
      F.max_pool2d, rand(1, 1, 2, 9), 3)
    helper.raises("max_pool2d: padding 2 is more than half of kernel_size 3", F.max_pool2d, rand(1, 1, 9, 9), 3, 1, 2)
    helper.raises("max_pool2d: input must have 4 dims, or 3 without a batch, not 2 (3, 3)", F.max_pool2d, rand(3, 3), 2)
    helper.raises("max_pool2d: stride must be at least 1", F.max_pool2d, rand(1, 1, 9, 9), 3, 0)
    helper.raises("has no element inside the input", F.max_pool2d, rand(1, 1, 1, 1), 2,
      { stride = 1, padding = 1, dilation = 2 })
    helper.raises("has an empty spatial dim", F.max_pool2d, rand(1, 1, 0, 4), 2)
  end)

  it("takes one image, none, and shapes alone", function()
    local x = rand(3, 6, 4)
    helper.elements(F.max_pool2d(x, 2), helper.flat(F.max_pool2d(x:unsqueeze(1), 2)))
    local none = rand(0, 3, 4, 4):requires_grad_()
    F.max_pool2d(none, 2):sum():backward()
    assert.same({ 0, 3, 4, 4 }, { unpack(none.grad.shape) })
    assert.same({ 2, 3, 4, 5 }, { unpack(F.max_pool2d(cnn.empty(2, 3, 9, 11, { device = "meta" }), 2).shape) })
  end)
end)

describe("avg_pool2d", function()
  it("is the mean that its options say, in every layout", function()
    for number, case in ipairs(CASES) do
      if case[5][1] == 1 then
        local x = rand(unpack(case[1]))
        for _, include in ipairs { true, false } do
          for _, divisor in ipairs { false, 3 } do
            local rows, cols = both(case)
            local _, _, mean = by_hand(x, rows, cols, include, divisor or nil)
            for name, layout in pairs(LAYOUTS) do
              local y = F.avg_pool2d(layout(x), case[2], { stride = case[3], padding = case[4], ceil_mode = case[6],
                count_include_pad = include, divisor_override = divisor or nil })
              local ok, message = pcall(helper.elements, y, mean, 1e-12)
              assert.is_true(ok, ("case %d, %s: %s"):format(number, name, tostring(message)))
            end
          end
        end
      end
    end
  end)

  it("has gradients for every layout, and gradients of those", function()
    for number, case in ipairs(CASES) do
      if case[5][1] == 1 then
        local o = { stride = case[3], padding = case[4], ceil_mode = case[6], count_include_pad = number % 2 == 0 }
        local x = rand(unpack(case[1])):requires_grad_()
        cnn.gradcheck(function(t) return F.avg_pool2d(t, case[2], o) end, { x }, { second = x:numel() < 100 })
        local dy = rand(unpack(F.avg_pool2d(x, case[2], o).shape))
        x.grad = nil
        F.avg_pool2d(x, case[2], o):backward(dy)
        for _, layout in pairs(LAYOUTS) do
          for _, layout_dy in pairs(LAYOUTS) do
            local p = layout(x:detach():clone()):requires_grad_()
            F.avg_pool2d(p, case[2], o):backward(layout_dy(dy))
            helper.elements(p.grad, helper.flat(x.grad), 1e-12)
          end
        end
      end
    end
  end)

  it("keeps channels_last, and half types with sums in float32", function()
    local x = rand(2, 3, 6, 6):contiguous("channels_last")
    assert.same({ 27, 1, 9, 3 }, { unpack(F.avg_pool2d(x, 2):stride()) })
    for _, dtype in ipairs { "float16", "bfloat16" } do
      local ones = cnn.ones(1, 2, 64, 64, { dtype = dtype }) -- 4096 summands
      for _, layout in pairs(LAYOUTS) do
        assert.equal(1, F.avg_pool2d(layout(ones), 64):max():item())
        assert.equal(1, F.adaptive_avg_pool2d(layout(ones), 1):min():item())
      end
    end
  end)

  it("says what does not fit", function()
    local integers = cnn.ones(1, 4, 4, { dtype = "int64" })
    helper.raises("avg_pool2d: input is int64: a mean takes floats", F.avg_pool2d, integers, 2)
    helper.raises("avg_pool2d: divisor_override must not be 0", F.avg_pool2d, rand(1, 4, 4), 2,
      { divisor_override = 0 })
    helper.raises("which is more than the input", F.avg_pool2d, rand(1, 4, 4), 5)
  end)
end)

describe("adaptive pools", function()
  it("divide the input into parts", function()
    for _, s in ipairs { { 7, 5, 3, 2 }, { 6, 8, 2, 4 }, { 5, 5, 1, 1 }, { 3, 4, 5, 7 }, { 1, 9, 1, 4 } } do
      local x = rand(2, 3, s[1], s[2])
      local max, at, mean = by_hand(x, adaptive(s[1], s[3]), adaptive(s[2], s[4]), true)
      for _, layout in pairs(LAYOUTS) do
        local y, indices = F.adaptive_max_pool2d(layout(x), { s[3], s[4] }, { return_indices = true })
        helper.elements(y, max, 0)
        helper.elements(indices, at, 0)
        helper.elements(F.adaptive_avg_pool2d(layout(x), { s[3], s[4] }), mean, 1e-12)
      end
    end
  end)

  it("have gradients, and gradients of those", function()
    for _, size in ipairs { { 2, 3 }, { 1, 1 }, { 5, 4 } } do
      local x = rand(2, 2, 4, 5):requires_grad_()
      cnn.gradcheck(function(t) return F.adaptive_avg_pool2d(t, size) end, { x }, { second = true })
      cnn.gradcheck(function(t) return F.adaptive_max_pool2d(t, size) end, { x }, { second = true })
    end
    helper.raises("adaptive_avg_pool2d: output_size must be at least 1, not 0", F.adaptive_avg_pool2d, rand(1, 4, 4), 0)
  end)
end)

describe("pools of other ranks", function()
  it("are those over planes with a dim of size 1", function()
    local x = rand(2, 3, 11)
    local o = { stride = 2, padding = 1, ceil_mode = true }
    local flat = { stride = { 1, 2 }, padding = { 0, 1 }, ceil_mode = true }
    helper.elements(F.max_pool1d(x, 3, o), helper.flat(F.max_pool2d(x:unsqueeze(3), { 1, 3 }, flat)))
    helper.elements(F.avg_pool1d(x, 3, o), helper.flat(F.avg_pool2d(x:unsqueeze(3), { 1, 3 }, flat)), 1e-12)
    helper.elements(F.adaptive_avg_pool1d(x, 4), helper.flat(F.adaptive_avg_pool2d(x:unsqueeze(3), { 1, 4 })), 1e-12)
    helper.elements(F.adaptive_max_pool1d(x, 4), helper.flat(F.adaptive_max_pool2d(x:unsqueeze(3), { 1, 4 })))
    local v = rand(2, 3, 1, 5, 6)
    helper.elements(F.max_pool3d(v, { 1, 2, 3 }), helper.flat(F.max_pool2d(v:squeeze(3), { 2, 3 })))
    helper.elements(F.avg_pool3d(v, { 1, 2, 3 }), helper.flat(F.avg_pool2d(v:squeeze(3), { 2, 3 })), 1e-12)
  end)

  it("have gradients", function()
    local x = rand(1, 2, 4, 5, 4):requires_grad_()
    local o = { stride = { 2, 2, 1 }, padding = { 1, 1, 0 } }
    cnn.gradcheck(function(t) return (F.max_pool3d(t, { 2, 3, 2 }, o)) end, { x })
    cnn.gradcheck(function(t) return F.avg_pool3d(t, { 2, 3, 2 }, o) end, { x })
    cnn.gradcheck(function(t) return F.adaptive_avg_pool3d(t, { 2, 3, 1 }) end, { x })
  end)
end)
