-- SPDX-License-Identifier: MIT
-- Convolutions against plain loops: strides with a remainder, groups, dilation, padding that differs from
-- side to side, layouts, the own kernels and the plugin; gradients of every kind and theirs.
local cnn = require "cnn"
local helper = require "spec.helper"

local F, accel = cnn.F, cnn.core._accel
local unpack = table.unpack or unpack

local function rand(...) return cnn.randn({ ... }, { dtype = "float64" }) end

-- conv2d by the book; o: stride, before, after, dilation (pairs), groups.
local function by_hand(x, w, b, o)
  local xs, ws, bs = x:totable(), w:totable(), b and b:totable()
  local n, height, width = x.shape[1], x.shape[3], x.shape[4]
  local k, cg, r, s = unpack(w.shape)
  local kg = k / o.groups
  local function size(i, in_size, kernel)
    return math.floor((in_size + o.before[i] + o.after[i] - o.dilation[i] * (kernel - 1) - 1) / o.stride[i]) + 1
  end
  local p, q, list = size(1, height, r), size(2, width, s), {}
  for image = 1, n do
    for out = 1, k do
      local first = math.floor((out - 1) / kg) * cg
      for i = 0, p - 1 do
        for j = 0, q - 1 do
          local sum = bs and bs[out] or 0
          for c = 1, cg do
            for a = 0, r - 1 do
              local row = xs[image][first + c][i * o.stride[1] + a * o.dilation[1] - o.before[1] + 1]
              for d = 0, s - 1 do
                local v = row and row[j * o.stride[2] + d * o.dilation[2] - o.before[2] + 1]
                if v then sum = sum + v * ws[out][c][a + 1][d + 1] end
              end
            end
          end
          list[#list + 1] = sum
        end
      end
    end
  end
  return list
end

-- input, weight, options: the kinds of cases that go wrong.
local CASES = {
  { { 2, 3, 7, 6 }, { 4, 3, 3, 3 } },
  { { 2, 3, 8, 7 }, { 4, 3, 3, 2 }, stride = { 2, 3 } },                                -- a remainder
  { { 1, 2, 9, 8 }, { 3, 2, 2, 2 }, stride = { 3, 3 } },                                -- places never read
  { { 2, 4, 7, 9 }, { 6, 2, 3, 3 }, stride = { 2, 2 }, groups = 2, padding = { 1, 1 } },
  { { 1, 6, 6, 6 }, { 6, 2, 3, 3 }, groups = 3, dilation = { 2, 1 }, padding = { 2, 1 } },
  { { 2, 2, 11, 9 }, { 2, 2, 3, 3 }, stride = { 2, 3 }, dilation = { 3, 2 }, padding = { 1, 2 } },
  { { 1, 3, 5, 6 }, { 2, 3, 3, 3 }, before = { 0, 2 }, after = { 1, 0 } },              -- asymmetric
  { { 2, 3, 5, 5 }, { 2, 3, 2, 4 }, padding = "same", before = { 0, 1 }, after = { 1, 2 } },
  { { 2, 5, 6, 5 }, { 5, 1, 3, 3 }, groups = 5, padding = { 1, 1 } },                   -- depthwise
  { { 2, 3, 7, 7 }, { 6, 1, 3, 2 }, groups = 3, stride = { 2, 2 }, padding = { 1, 0 } }, -- with a multiplier
  { { 2, 4, 5, 6 }, { 3, 4, 1, 1 } },                                                   -- pointwise
  { { 2, 4, 5, 6 }, { 4, 2, 1, 1 }, groups = 2, stride = { 2, 1 } },
  { { 1, 2, 3, 3 }, { 2, 2, 3, 3 }, padding = { 3, 3 } },                               -- windows of padding only
  { { 1, 1, 1, 1 }, { 1, 1, 1, 1 } },
  { { 3, 17, 6, 6 }, { 18, 17, 3, 3 }, padding = { 1, 1 } },
}

-- The options of a case for conv2d, and the full ones for by_hand.
local function options(case)
  local o = {
    stride = case.stride or { 1, 1 }, dilation = case.dilation or { 1, 1 }, groups = case.groups or 1,
    before = case.before or case.padding or { 0, 0 }, after = case.after or case.padding or { 0, 0 },
  }
  local padding = case.padding or case.before and { case.before[1], case.before[2], case.after[1], case.after[2] } or 0
  return { stride = o.stride, padding = padding, dilation = o.dilation, groups = o.groups }, o
end

-- The same values in other layouts.
local LAYOUTS = {
  plain = function(x) return x end,
  channels_last = function(x) return x:contiguous("channels_last") end,
  transposed = function(x) return x:transpose(1, 4):contiguous():transpose(1, 4) end,
  stepped = function(x) return cnn.stack({ x, x }, -1):select(-1, 1) end,
}

describe("conv2d", function()
  setup(function() cnn.manual_seed(2) end)

  it("is the sum that defines it, in every layout", function()
    for number, case in ipairs(CASES) do
      local given, full = options(case)
      local x, w, b = rand(unpack(case[1])), rand(unpack(case[2])), rand(case[2][1])
      local expected = by_hand(x, w, b, full)
      for name, layout in pairs(LAYOUTS) do
        local ok, message = pcall(helper.elements, F.conv2d(layout(x), w, b, given), expected, 1e-10)
        assert.is_true(ok, ("case %d, input %s: %s"):format(number, name, tostring(message)))
        ok, message = pcall(helper.elements, F.conv2d(x, layout(w), nil, given), by_hand(x, w, nil, full), 1e-10)
        assert.is_true(ok, ("case %d, weight %s: %s"):format(number, name, tostring(message)))
      end
    end
  end)

  it("has gradients, and gradients of those", function()
    for number, case in ipairs(CASES) do
      if number < #CASES then
        local given = options(case)
        local x, w = rand(unpack(case[1])):requires_grad_(), rand(unpack(case[2])):requires_grad_()
        local b = rand(case[2][1]):requires_grad_()
        local ok, message = pcall(cnn.gradcheck, function(p, q, r) return F.conv2d(p, q, r, given) end, { x, w, b },
          { second = x:numel() < 60 })
        assert.is_true(ok, ("case %d: %s"):format(number, tostring(message)))
      end
    end
  end)

  it("has the same gradients for every layout of input, weight and incoming gradient", function()
    for number, case in ipairs(CASES) do
      local given = options(case)
      local x, w, b = rand(unpack(case[1])), rand(unpack(case[2])), rand(case[2][1])
      local y = F.conv2d(x, w, b, given)
      local dy = rand(unpack(y.shape))
      local function gradients(fx, fw, fy)
        local p, q, r = x:clone():requires_grad_(), w:clone():requires_grad_(), b:clone():requires_grad_()
        F.conv2d(fx(p), fw(q), r, given):backward(fy(dy))
        return { p.grad, q.grad, r.grad }
      end
      local expected = gradients(LAYOUTS.plain, LAYOUTS.plain, LAYOUTS.plain)
      for name, layout in pairs(LAYOUTS) do
        for part, found in ipairs {
          gradients(layout, LAYOUTS.plain, LAYOUTS.plain), gradients(LAYOUTS.plain, layout, LAYOUTS.plain),
          gradients(LAYOUTS.plain, LAYOUTS.plain, layout), gradients(layout, layout, layout),
        } do
          for i = 1, 3 do
            local ok, message = pcall(helper.elements, found[i], helper.flat(expected[i]), 1e-10)
            assert.is_true(ok, ("case %d, %s in part %d, gradient %d: %s"):format(number, name, part, i,
              tostring(message)))
          end
        end
      end
      -- An expanded gradient: what sum() gives.
      local p = x:clone():requires_grad_()
      F.conv2d(p, w, b, given):sum():backward()
      local q = x:clone():requires_grad_()
      F.conv2d(q, w, b, given):backward(cnn.ones(y.shape, { dtype = "float64" }))
      helper.elements(p.grad, helper.flat(q.grad), 1e-10)
    end
  end)

  it("keeps channels_last", function()
    local x = rand(2, 3, 6, 6):contiguous("channels_last"):requires_grad_()
    local w = rand(4, 3, 3, 3):requires_grad_()
    local y = F.conv2d(x, w)
    assert.same({ 4 * 4 * 4, 1, 4 * 4, 4 }, { unpack(y:stride()) })
    y:backward(rand(2, 4, 4, 4):contiguous("channels_last"))
    assert.same({ 1, 6 * 3, 3 }, { select(2, unpack(x.grad:stride())) })
    assert.is_true(F.conv2d(rand(2, 3, 6, 6), w):is_contiguous())
  end)

  it("takes one image, and none", function()
    local x, w, b = rand(3, 6, 5), rand(2, 3, 3, 3), rand(2)
    helper.elements(F.conv2d(x, w, b), helper.flat(F.conv2d(x:unsqueeze(1), w, b)))
    local none = rand(0, 3, 6, 5):requires_grad_()
    w:requires_grad_()
    b:requires_grad_()
    local y = F.conv2d(none, w, b)
    assert.same({ 0, 2, 4, 3 }, { unpack(y.shape) })
    y:sum():backward()
    assert.same({ 0, 3, 6, 5 }, { unpack(none.grad.shape) })
    assert.equal(0, w.grad:abs():sum():item())
    assert.equal(0, b.grad:abs():sum():item())
  end)

  it("computes float32 and half types as float64 does", function()
    for dtype, tolerance in pairs { float32 = 1e-4, float16 = 2e-2, bfloat16 = 0.15 } do
      for _, case in ipairs(CASES) do
        local given = options(case)
        local x, w, b = rand(unpack(case[1])), rand(unpack(case[2])), rand(case[2][1])
        local wide, narrow = {}, {}
        for i, t in ipairs { x, w, b } do
          narrow[i] = t:to(dtype):requires_grad_()
          wide[i] = narrow[i]:detach():double():requires_grad_()
        end
        local y, z = F.conv2d(wide[1], wide[2], wide[3], given), F.conv2d(narrow[1], narrow[2], narrow[3], given)
        assert.equal(dtype, z.dtype)
        helper.elements(z:double(), helper.flat(y), tolerance)
        local dy = rand(unpack(y.shape)):to(dtype)
        y:backward(dy:double())
        z:backward(dy)
        for i = 1, 3 do helper.elements(narrow[i].grad:double(), helper.flat(wide[i].grad), 4 * tolerance) end
      end
    end
  end)

  -- Large enough for the plugin; without it this compares own kernels with themselves.
  it("is the same with the plugin, its own kernels, and any number of threads", function()
    local threads = cnn.get_num_threads()
    for _, case in ipairs {
      { { 4, 16, 20, 20 }, { 32, 16, 3, 3 }, { padding = 1 } },
      { { 4, 16, 21, 20 }, { 32, 8, 3, 3 }, { stride = 2, groups = 2 } },
      { { 4, 16, 40, 40 }, { 16, 1, 5, 5 }, { groups = 16, padding = { 2, 1 } } },
      { { 1, 16, 41, 39 }, { 24, 16, 3, 3 }, { dilation = 2, padding = "same" } },
      { { 8, 32, 16, 16 }, { 64, 32, 1, 1 }, {} },
    } do
      for _, layout in ipairs { LAYOUTS.plain, LAYOUTS.channels_last, LAYOUTS.transposed } do
        local x, w, b = cnn.randn(case[1]), cnn.randn(case[2]), cnn.randn(case[2][1])
        case[3].stride = case[3].stride or 1
        local dy
        local function all()
          local p, q, r = layout(x):requires_grad_(), w:clone():requires_grad_(), b:clone():requires_grad_()
          local y = F.conv2d(p, q, r, case[3])
          dy = dy or cnn.randn(y.shape)
          y:backward(dy)
          return { y:detach(), p.grad, q.grad, r.grad }
        end
        accel(false)
        cnn.set_num_threads(1)
        local own = all()
        cnn.set_num_threads(3)
        local three = all()
        accel(true)
        local other = all()
        for i = 1, 4 do
          assert.is_true(own[i]:eq(three[i]):all():item())
          local scale = own[i]:abs():max():item()
          assert.is_true((own[i] - other[i]):abs():max():item() <= 1e-4 * scale)
        end
      end
    end
    cnn.set_num_threads(threads)
  end)

  it("knows shapes without data", function()
    local x, w = cnn.empty(2, 3, 9, 9, { device = "meta" }), cnn.empty(4, 3, 3, 3, { device = "meta" })
    assert.same({ 2, 4, 4, 4 }, { unpack(F.conv2d(x, w, nil, 2).shape) })
  end)

  it("says what does not fit", function()
    local x, w = rand(8, 1, 28, 28), rand(16, 3, 3, 3)
    helper.raises("conv2d: input has 1 channel (8, 1, 28, 28) but weight expects 3 (16, 3, 3, 3)", F.conv2d, x, w)
    helper.raises("conv2d: input must have 4 dims, or 3 without a batch, not 2 (3, 4)", F.conv2d, rand(3, 4), w)
    helper.raises("conv2d: weight must have 4 dims, not 3", F.conv2d, x, rand(16, 3, 3))
    helper.raises("conv2d: bias must be (16,), one per output channel, not (3,)", F.conv2d, rand(1, 3, 9, 9), w,
      rand(3))
    helper.raises("conv2d: weight has 16 output channels, which 3 groups don't divide", F.conv2d, rand(1, 9, 9, 9), w,
      nil, { groups = 3 })
    helper.raises("conv2d: the kernel (3, 3) spans 5 in spatial dim 2, which is more than the input (9, 4)", F.conv2d,
      rand(1, 3, 9, 4), w, nil, { dilation = 2 })
    helper.raises("conv2d: padding \"same\" needs stride 1", F.conv2d, rand(1, 3, 9, 9), w, nil,
      { stride = 2, padding = "same" })
    helper.raises("conv2d: stride must be at least 1, not 0", F.conv2d, rand(1, 3, 9, 9), w, nil, { stride = 0 })
    helper.raises("conv2d: padding must be at least 0, not -1", F.conv2d, rand(1, 3, 9, 9), w, nil, { padding = -1 })
    helper.raises("conv2d: padding has 3 sizes for 2 spatial dims", F.conv2d, rand(1, 3, 9, 9), w, nil,
      { padding = { 1, 1, 1 } })
    helper.raises("groups must be at least 1", F.conv2d, rand(1, 3, 9, 9), w, nil, { groups = 0 })
    helper.raises("conv2d: input is int64: convolutions take floats", F.conv2d, rand(1, 3, 9, 9):to("int64"),
      rand(1, 3, 3, 3):to("int64"))
    helper.raises("conv2d: input is float64 but weight is float32", F.conv2d, rand(1, 3, 9, 9), cnn.ones(1, 3, 3, 3))
  end)
end)

describe("convolutions of other ranks", function()
  it("are conv2d with a dim of size 1", function()
    local x, w, b = rand(2, 4, 11), rand(6, 2, 3), rand(6)
    local o = { stride = 2, padding = 2, dilation = 2, groups = 2 }
    local flat = F.conv2d(x:unsqueeze(3), w:unsqueeze(3), b,
      { stride = { 1, 2 }, padding = { 0, 2 }, dilation = { 1, 2 }, groups = 2 })
    helper.elements(F.conv1d(x, w, b, o), helper.flat(flat), 1e-12)
    local v, u = rand(2, 4, 1, 5, 6), rand(6, 2, 1, 3, 2)
    helper.elements(F.conv3d(v, u, b, { padding = { 0, 1, 1 }, groups = 2 }),
      helper.flat(F.conv2d(v:squeeze(3), u:squeeze(3), b, { padding = 1, groups = 2 })), 1e-12)
  end)

  it("have gradients", function()
    local x, w, b = rand(2, 2, 6):requires_grad_(), rand(2, 2, 3):requires_grad_(), rand(2):requires_grad_()
    cnn.gradcheck(function(...) return F.conv1d(...) end, { x, w, b }, { second = true })
    local v, u = rand(1, 2, 3, 4, 3):requires_grad_(), rand(2, 2, 2, 3, 2):requires_grad_()
    cnn.gradcheck(function(p, q) return F.conv3d(p, q, nil, { stride = { 1, 2, 1 }, padding = 1 }) end, { v, u })
  end)
end)

describe("conv_transpose2d", function()
  it("is the gradient of a convolution by its input", function()
    for _, o in ipairs {
      { stride = 1 }, { stride = 2, padding = 1 }, { stride = { 2, 3 }, dilation = { 2, 1 }, groups = 2 },
    } do
      local groups = o.groups or 1
      local x, w = rand(2, 4, 9, 10):requires_grad_(), rand(6, 4 / groups, 3, 3)
      local y = F.conv2d(x, w, nil, o)
      local dy = rand(unpack(y.shape))
      y:backward(dy)
      local z = F.conv_transpose2d(dy, w, nil, o)
      -- Without output_padding the places that the convolution never read are left out.
      local dx = x.grad:narrow(3, 1, z.shape[3]):narrow(4, 1, z.shape[4])
      helper.elements(z, helper.flat(dx), 1e-10)
    end
  end)

  it("grows by output_padding, also past the stride", function()
    local x, w, b = rand(1, 2, 3, 3):requires_grad_(), rand(2, 1, 2, 2):requires_grad_(), rand(1)
    b:requires_grad_()
    for _, o in ipairs {
      { stride = 2, output_padding = 1 }, { stride = 1, dilation = 3, output_padding = 2, padding = 1 },
      { stride = 3, output_padding = { 2, 0 } },
    } do
      local y = F.conv_transpose2d(x, w, b, o)
      local pad = o.padding or 0
      local op = type(o.output_padding) == "table" and o.output_padding[1] or o.output_padding
      assert.equal(2 * o.stride - 2 * pad + (o.dilation or 1) + op + 1, y.shape[3])
      cnn.gradcheck(function(p, q, r) return F.conv_transpose2d(p, q, r, o) end, { x, w, b }, { second = true })
    end
    helper.raises("output_padding 2 must be smaller than stride 2 or dilation 1", F.conv_transpose2d, x, w, b,
      { stride = 2, output_padding = 2 })
    helper.raises("input has 3 channels", F.conv_transpose2d, rand(1, 3, 3, 3), w)
  end)
end)
