-- SPDX-License-Identifier: MIT
-- Convolutions (csrc/ops/conv.c).
--
-- One walk is the reference of all: it meets each triple of an output element, a weight and an input
-- element that belong together. A convolution adds the products of the last two up in the first, its
-- gradients in one of the others, and a transposed convolution is that of the input.
local assert = require "luassert"
local cnn = require "cnn"
local db = require "spec.opdb"
local T, S, with, nd = db.T, db.S, db.with, db.nd
local unpack = table.unpack or unpack -- luacheck: ignore

local function tail(list, n) return { unpack(list, #list - n + 1) } end

local function joined(...)
  local list = {}
  for i = 1, select("#", ...) do
    local v = select(i, ...)
    for _, s in ipairs(type(v) == "table" and v or { v }) do list[#list + 1] = s end
  end
  return list
end

-- x with a batch dim, over n spatial dims.
local function batched(x, n)
  return #x.shape == n + 1 and x:reshape(joined(1, x.shape)) or x
end

-- Calls visit(place in y's list, in w's, in x's) for every triple. y is (N, K, ...), x (N, C, ...), w
-- (K, C / groups, ...).
local function walk(y, w, x, o)
  local n = #w.shape - 2
  local per_group, channels = y.shape[2] / o.groups, w.shape[2]
  local window = {
    out = tail(y.shape, n), kernel = tail(w.shape, n), input = tail(x.shape, n),
    stride = nd.sizes(o.stride, n), dilation = nd.sizes(o.dilation, n), before = o.before,
  }
  local yp, wp, xp = {}, {}, {}
  nd.windows(window, function(p, t, q)
    for d = 1, n do yp[d + 2], wp[d + 2], xp[d + 2] = p[d], t[d], q[d] end
    for image = 1, y.shape[1] do
      yp[1], xp[1] = image, image
      for k = 1, y.shape[2] do
        yp[2], wp[1] = k, k
        for c = 1, channels do
          wp[2], xp[2] = c, math.floor((k - 1) / per_group) * channels + c
          o.visit(y:place(yp), w:place(wp), x:place(xp))
        end
      end
    end
  end)
end

-- The padding before all dims and after them, of an argument of a convolution.
local function padding_of(padding, n, dilation, kernel)
  local before, after = {}, {}
  for d = 1, n do
    if type(padding) == "string" then
      local total = padding == "same" and dilation[d] * (kernel[d] - 1) or 0
      before[d] = math.floor(total / 2)
      after[d] = total - before[d]
    elseif type(padding) == "table" and #padding == 2 * n then
      before[d], after[d] = padding[d], padding[n + d]
    else
      before[d] = nd.sizes(padding, n)[d]
      after[d] = before[d]
    end
  end
  return before, after
end

-- The spatial sizes of a convolution's result.
local function out_sizes(input, kernel, stride, dilation, before, after)
  local out = {}
  for d = 1, #input do
    out[d] = math.floor((input[d] + before[d] + after[d] - dilation[d] * (kernel[d] - 1) - 1) / stride[d]) + 1
  end
  return out
end

-- b, one per channel, at every place of y.
local function add_bias(y, b)
  local plane = nd.size(tail(y.shape, #y.shape - 2))
  for k in ipairs(y.list) do
    y.list[k] = y.list[k] + b(math.floor((k - 1) / plane) % y.shape[2] + 1)
  end
end

local function strip(y, x, n)
  return #x.shape == n + 1 and y:reshape(tail(y.shape, n + 1)) or y
end

local function conv(x, w, b, stride, padding, dilation, groups)
  local n = #w.shape - 2
  stride, dilation, groups = nd.sizes(stride or 1, n), nd.sizes(dilation or 1, n), groups or 1
  local input, kernel = tail(x.shape, n), tail(w.shape, n)
  local before, after = padding_of(padding or 0, n, dilation, kernel)
  local wide = batched(x, n)
  local y = nd.new(joined(wide.shape[1], w.shape[1], out_sizes(input, kernel, stride, dilation, before, after)), 0)
  walk(y, w, wide, { stride = stride, dilation = dilation, before = before, groups = groups,
    visit = function(yi, wi, xi) y.list[yi] = y.list[yi] + w.list[wi] * wide.list[xi] end })
  if b then add_bias(y, b) end
  return strip(y, x, n)
end

local function backward_input(dy, w, shape, stride, padding, dilation, groups)
  local n = #w.shape - 2
  local dx, wide = batched(nd.new(shape, 0), n), batched(dy, n)
  walk(wide, w, dx, { stride = stride, dilation = dilation, before = padding, groups = groups,
    visit = function(yi, wi, xi) dx.list[xi] = dx.list[xi] + wide.list[yi] * w.list[wi] end })
  return dx:reshape(shape)
end

local function backward_weight(dy, x, shape, stride, padding, dilation, groups, bias)
  local n = #shape - 2
  local dw, wide, input = nd.new(shape, 0), batched(dy, n), batched(x, n)
  walk(wide, dw, input, { stride = stride, dilation = dilation, before = padding, groups = groups,
    visit = function(yi, wi, xi) dw.list[wi] = dw.list[wi] + wide.list[yi] * input.list[xi] end })
  if not bias then return dw end
  local dims = {}
  for d = 1, n + 2 do
    if d ~= 2 then dims[#dims + 1] = d end
  end
  return dw, wide:sum(dims)
end

local function transposed(x, w, b, stride, padding, output_padding, groups, dilation)
  local n = #w.shape - 2
  stride, dilation, groups = nd.sizes(stride or 1, n), nd.sizes(dilation or 1, n), groups or 1
  padding, output_padding = nd.sizes(padding or 0, n), nd.sizes(output_padding or 0, n)
  local shape = joined(#x.shape == n + 2 and x.shape[1] or {}, w.shape[2] * groups)
  for d = 1, n do
    local size = x.shape[#x.shape - n + d]
    shape[#shape + 1] = (size - 1) * stride[d] - 2 * padding[d] + dilation[d] * (w.shape[d + 2] - 1)
      + output_padding[d] + 1
  end
  local y = backward_input(x, w, shape, stride, padding, dilation, groups)
  if b then
    local wide = batched(y, n)
    add_bias(wide, b)
    y = strip(wide, x, n)
  end
  return y
end

-- ---------------------------------------------------------------------------------------------
-- Kinds of convolutions: input, weight, bias?, stride, padding, dilation, groups

local KINDS = {
  {
    { { 2, 3, 9 }, { 4, 3, 3 }, true }, { { 3, 8 }, { 4, 3, 2 } }, { { 2, 3, 9 }, { 4, 3, 3 }, true, 2 },
    { { 2, 4, 10 }, { 6, 2, 3 }, true, { 3 }, 2, 2, 2 }, { { 2, 3, 8 }, { 3, 1, 3 }, true, 1, 1, 1, 3 },
    { { 1, 2, 7 }, { 3, 2, 4 }, false, 1, "same" }, { { 1, 2, 7 }, { 3, 2, 3 }, true, 2, "valid" },
    { { 1, 2, 6 }, { 2, 2, 3 }, false, 1, { 2, 0 } }, { { 2, 5, 7 }, { 4, 5, 1 }, true },
    { { 0, 3, 9 }, { 4, 3, 3 }, true },
    { { 2, 3, 9 }, { 0, 3, 3 } }, { { 1, 1, 1 }, { 1, 1, 1 }, true }, { { 1, 2, 3 }, { 2, 2, 3 }, true, 1, 3 },
    { { 2, 3, 40 }, { 5, 3, 5 }, true, 1, 2 },
  },
  {
    { { 2, 3, 6, 5 }, { 4, 3, 3, 3 }, true }, { { 3, 6, 5 }, { 4, 3, 3, 2 } },
    { { 2, 3, 8, 7 }, { 4, 3, 3, 2 }, true, { 2, 3 } }, { { 2, 4, 7, 9 }, { 6, 2, 3, 3 }, true, 2, 1, 1, 2 },
    { { 1, 6, 6, 6 }, { 6, 2, 3, 3 }, false, 1, { 2, 1 }, { 2, 1 }, 3 },
    { { 2, 3, 5, 5 }, { 2, 3, 2, 4 }, true, 1, "same" },
    { { 2, 4, 6, 5 }, { 4, 1, 3, 3 }, true, 1, 1, 1, 4 }, { { 1, 3, 7, 7 }, { 6, 1, 3, 2 }, true, 2, { 1, 0 }, 1, 3 },
    { { 2, 4, 4, 5 }, { 3, 4, 1, 1 }, true }, { { 2, 4, 5, 6 }, { 4, 2, 1, 1 }, true, { 2, 1 }, 0, 1, 2 },
    { { 1, 2, 3, 3 }, { 2, 2, 3, 3 }, true, 1, 3 }, { { 1, 3, 5, 6 }, { 2, 3, 3, 3 }, false, 1, { 0, 2, 1, 0 } },
    { { 2, 2, 11, 9 }, { 2, 2, 3, 3 }, true, { 2, 3 }, { 1, 2 }, { 3, 2 } }, { { 0, 3, 5, 5 }, { 4, 3, 3, 3 }, true },
    { { 2, 3, 5, 5 }, { 0, 3, 3, 3 } }, { { 2, 0, 4, 4 }, { 3, 0, 3, 3 }, true }, { { 1, 1, 1, 1 }, { 1, 1, 1, 1 } },
    { { 1, 2, 9, 8 }, { 3, 2, 2, 2 }, false, 3 }, { { 1, 16, 7, 9 }, { 17, 16, 3, 3 }, true, 1, 1 },
    { { 1, 3, 12, 20 }, { 8, 3, 5, 5 }, true, 2, 2 }, { { 1, 2, 4, 4 }, { 2, 2, 3, 3 }, true, 1, "valid", 1 },
  },
  {
    { { 1, 2, 4, 5, 4 }, { 3, 2, 2, 3, 2 }, true }, { { 2, 4, 5, 4 }, { 3, 2, 2, 2, 2 }, true },
    { { 2, 2, 5, 5, 4 }, { 2, 2, 3, 2, 2 }, true, { 2, 1, 2 }, { 1, 0, 1 }, { 1, 2, 1 } },
    { { 1, 4, 4, 3, 4 }, { 4, 2, 2, 2, 2 }, false, 1, 1, 1, 2 },
    { { 1, 2, 3, 4, 3 }, { 2, 2, 2, 3, 3 }, true, 1, "same" },
    { { 1, 2, 3, 3, 3 }, { 2, 2, 2, 2, 2 }, true, 1, { 1, 0, 0, 0, 1, 0 } },
    { { 2, 3, 2, 2, 2 }, { 2, 3, 1, 1, 1 }, true },
    { { 0, 2, 3, 3, 3 }, { 2, 2, 2, 2, 2 }, true },
  },
}

-- Sums of more than some dozen products round in float32 by so much more.
local function rounding(w) return { tol = { float32 = math.max(1, nd.size(w) / w[1] / 30) } } end

local function samples(n)
  local list = {}
  for i, kind in ipairs(KINDS[n]) do
    local x, w, bias = unpack(kind, 1, 3)
    list[i] = with(S(T(x), T(w), bias and T { w[1] } or nil, unpack(kind, 4, 7)), rounding(w))
  end
  return list
end

-- The same for a gradient op: make(dy's shape, x's, w's, stride, padding, dilation, groups, bias).
local function gradient_samples(make)
  local list = {}
  for n, kinds in ipairs(KINDS) do
    for _, kind in ipairs(kinds) do
      local x, w, bias, stride, padding, dilation, groups = unpack(kind, 1, 7)
      stride, dilation = nd.sizes(stride or 1, n), nd.sizes(dilation or 1, n)
      local kernel, input = tail(w, n), tail(x, n)
      local before, after = padding_of(padding or 0, n, dilation, kernel)
      local dy = joined(#x == n + 2 and x[1] or {}, w[1], out_sizes(input, kernel, stride, dilation, before, after))
      list[#list + 1] = with(make(dy, x, w, stride, joined(before, after), dilation, groups or 1, bias or false),
        rounding(w))
    end
  end
  return list
end

-- Shapes of n spatial dims: ones(2, 1, 3, 5) is {1, 3, 5, 5}.
local function shape(n, a, b, size)
  local list = { a, b }
  for d = 1, n do list[d + 2] = size end
  return list
end

local function text(list) return "(" .. table.concat(list, ", ") .. ")" end

local function conv_entry(n)
  local x, w = shape(n, 2, 4, 5), shape(n, 6, 4, 3)
  local errors = {
    { S(T { 5 }, T(w)), ("input must have %d dims, or %d without a batch, not 1 (5,)"):format(n + 2, n + 1) },
    { S(T(x), T { 4, 3 }), ("weight must have %d dims, not 2 (4, 3)"):format(n + 2) },
    { S(T(x), T(shape(n, 6, 3, 3))), ("input has 4 channels %s but weight expects 3"):format(text(x)) },
    { S(T(x), T(w), nil, 1, 0, 1, 2), "but weight expects 8 " .. text(w) .. " with these groups" },
    { S(T(x), T(w), nil, 1, 0, 1, 4), "weight has 6 output channels, which 4 groups don't divide" },
    { S(T(x), T(w), nil, 1, 0, 1, 0), "groups must be at least 1, not 0" },
    { S(T(x), T(w), T { 5 }), "bias must be (6,), one per output channel, not (5,)" },
    { S(T(x), T(w), T { 6, 1 }), "bias must be (6,)" }, { S(T(x), T(w), nil, 0), "stride must be at least 1, not 0" },
    { S(T(x), T(w), nil, 1, 0, 0), "dilation must be at least 1, not 0" },
    { S(T(x), T(w), nil, 1, -1), "padding must be at least 0, not -1" },
    { S(T(x), T(w), nil, 2, "same"), "padding \"same\" needs stride 1, not 2" },
    { S(T(x), T(w), nil, 1, "full"), "padding" }, { S(T(x), T(w), nil, 2 ^ 40), "is too large" },
    { S(T(x), T(w), nil, { 1, 1, 1, 1 }), "stride" },
    { S(T(x), T(w), nil, 1, { 1, 1, 1, 1, 1 }), ("padding has 5 sizes for %d spatial dim"):format(n) },
    { S(T(x), T(shape(n, 6, 4, 7)), nil, 1), "spans 7 in spatial dim 1, which is more than the input" },
    { S(T(x), T(w), nil, 1, 0, 3), "spans 7 in spatial dim 1" },
    { S(T(x), T(w, { dtype = "float64" })), "input is float32 but weight is float64" },
    { S(T(x), T(shape(n, 6, 4, 0))), "weight has an empty kernel " .. text(shape(n, 6, 4, 0)) },
  }
  return {
    dtypes = "float", dense = n ~= 2, samples = samples(n), ref = conv, errors = errors, plugin = true,
    large = ({
      { S(T { 4, 16, 500 }, T { 24, 16, 5 }, T { 24 }, 1, 2), S(T { 4, 16, 500 }, T { 16, 1, 3 }, T { 16 }, 2, 1, 1,
      16) },
      {
        S(T { 2, 16, 40, 44 }, T { 24, 16, 3, 3 }, T { 24 }, 1, 1),
        S(T { 2, 32, 40, 40 }, T { 32, 1, 3, 3 }, T { 32 }, 1, 1, 1, 32),
        S(T { 2, 32, 40, 40 }, T { 40, 32, 1, 1 }, T { 40 }), with(S(T { 2, 3, 64, 64 }, T { 16, 3, 7, 7 }, T { 16 },
        2, 3), { tol = 2 }),
        S(T { 2, 16, 30, 30 }, T { 24, 8, 3, 3 }, T { 24 }, 2, 2, 2, 2),
      },
      { S(T { 2, 8, 12, 14, 16 }, T { 8, 8, 3, 3, 3 }, T { 8 }, 1, 1) },
    })[n],
  }
end

-- input, weight, bias?, stride, padding, output_padding, groups, dilation
local TRANSPOSED = {
  {
    { { 2, 3, 5 }, { 3, 4, 3 }, true }, { { 3, 5 }, { 3, 2, 2 }, true, 2 },
    { { 2, 4, 5 }, { 4, 3, 3 }, true, 3, 1, 1, 2, 2 },
    { { 1, 2, 4 }, { 2, 2, 3 }, false, 2, 1, 1 }, { { 1, 2, 4 }, { 2, 2, 3 }, true, 1, 0, 1, 1, 2 },
    { { 1, 3, 4 }, { 3, 1, 3 }, true, 2, 1, 0, 3 }, { { 0, 3, 5 }, { 3, 4, 3 }, true },
    { { 1, 2, 3 }, { 2, 2, 1 }, false, 3 },
  },
  {
    { { 2, 3, 4, 3 }, { 3, 4, 3, 2 }, true }, { { 3, 4, 3 }, { 3, 2, 2, 2 }, true, 2 },
    { { 1, 4, 3, 4 }, { 4, 3, 3, 2 }, true, { 3, 2 }, { 1, 0 }, { 2, 1 }, 2, { 1, 2 } },
    { { 1, 2, 3, 3 }, { 2, 2, 3, 3 }, false, 2, 1, 1 }, { { 1, 2, 3, 3 }, { 2, 2, 3, 3 }, true, { 2, 1 }, 0,
    { 1, 1 }, 1, { 1, 2 } },
    { { 1, 2, 3, 3 }, { 2, 2, 2, 2 }, true, 1, 0, 2, 1, 3 }, { { 1, 3, 3, 4 }, { 3, 1, 3, 3 }, true, 2, 1, 1, 3 },
    { { 2, 4, 3, 3 }, { 4, 5, 1, 1 }, true }, { { 1, 2, 4, 4 }, { 2, 3, 3, 3 }, true, 1, 2 },
    { { 0, 3, 4, 3 }, { 3, 4, 2, 2 }, true },
    { { 2, 3, 4, 4 }, { 3, 4, 2, 2 }, true, 2 },
  },
  {
    { { 1, 2, 3, 2, 3 }, { 2, 3, 2, 2, 2 }, true }, { { 2, 2, 3, 2 }, { 2, 2, 2, 2, 3 }, true, 2, 1 },
    { { 1, 4, 2, 3, 2 }, { 4, 2, 2, 2, 3 }, true, { 2, 1, 2 }, { 0, 1, 1 }, { 1, 0, 1 }, 2 },
    { { 1, 2, 2, 2, 2 }, { 2, 2, 2, 2, 2 }, false, 2, 0, 1, 1, 2 },
  },
}

local function transposed_entry(n)
  local list = {}
  for i, kind in ipairs(TRANSPOSED[n]) do
    local x, w, bias, stride, padding, output_padding, groups, dilation = unpack(kind, 1, 8)
    list[i] = S(T(x), T(w), bias and T { w[2] * (groups or 1) } or nil, stride, padding, output_padding, groups,
      dilation)
  end
  local x, w = shape(n, 2, 4, 5), shape(n, 4, 6, 3)
  return {
    dtypes = "float", dense = n ~= 2, samples = list, ref = transposed, plugin = true,
    errors = {
      { S(T { 5 }, T(w)), ("input must have %d dims, or %d without a batch, not 1"):format(n + 2, n + 1) },
      { S(T(x), T { 4, 3 }), ("weight must have %d dims, not 2"):format(n + 2) },
      { S(T(x), T(shape(n, 3, 6, 3))), "input has 4 channels " .. text(x) .. " but weight expects 3" },
      { S(T(x), T(w), nil, 1, 0, 0, 3), "weight has 4 input channels, which 3 groups don't divide" },
      { S(T(x), T(w), nil, 1, 0, 0, 0), "groups must be at least 1" },
      { S(T(x), T(w), T { 4 }), "bias must be (6,)" }, { S(T(x), T(w), T { 6 }, 1, 0, 0, 2), "bias must be (12,)" },
      { S(T(x), T(w), nil, 0), "stride must be at least 1" }, { S(T(x), T(w), nil, 1, -1),
      "padding must be at least 0" },
      { S(T(x), T(w), nil, 1, 0, -1), "output_padding must be at least 0" },
      { S(T(x), T(w), nil, 1, 0, 0, 1, 0), "dilation must be at least 1" },
      { S(T(x), T(w), nil, 2, 0, 2), "output_padding 2 must be smaller than stride 2 or dilation 1" },
      { S(T(x), T(w), nil, 1, 4), "and this padding leaves no output in spatial dim 1" },
      { S(T(shape(n, 2, 4, 0)), T(w)), "leaves no output in spatial dim 1" },
      { S(T(x), T(w, { dtype = "float64" })), "input is float32 but weight is float64" },
      { S(T(x), T(w), nil, 1, "same"), "padding" },
      { S(T(x), T(shape(n, 4, 6, 0))), "weight has an empty kernel" },
    },
    large = ({
      S(T { 4, 16, 300 }, T { 16, 24, 4 }, T { 24 }, 2, 1), S(T { 2, 16, 24, 20 }, T { 16, 12, 4, 4 }, T { 12 }, 2, 1),
      S(T { 1, 8, 8, 9, 10 }, T { 8, 6, 3, 3, 3 }, T { 6 }, 2, 1, 1),
    })[n],
  }
end

return {
  conv1d = conv_entry(1),
  conv2d = (function()
    local entry = conv_entry(2)
    entry.check = function(_, run)
      run("keeps channels last", function()
        local x = cnn.rand(2, 3, 5, 6):contiguous("channels_last"):requires_grad_()
        local w = cnn.rand(4, 3, 3, 3)
        local y = cnn.conv2d(x, w)
        assert.is_true(y:is_contiguous "channels_last")
        y:sum():backward()
        assert.is_true(x.grad:is_contiguous "channels_last")
        assert.is_true(cnn.conv2d(x:detach():contiguous(), w):is_contiguous())
      end)
    end
    return entry
  end)(),
  conv2d_relu = (function() -- (csrc/ops/fused.c; its gradient: spec/cuda_fused_spec.lua)
    local entry = conv_entry(2)
    entry.no_difference = true
    entry.ref = function(...) return nd.map(function(v) return v < 0 and 0 or v end, conv(...)) end
    return entry
  end)(),
  conv3d = conv_entry(3),
  conv_backward_input = {
    plugin = true, dtypes = "float", dense = false, ref = backward_input,
    samples = gradient_samples(function(dy, x, w, stride, padding, dilation, groups)
      return S(T(dy), T(w), x, stride, padding, dilation, groups)
    end),
    large = {
      with(S(T { 2, 24, 40, 44 }, T { 24, 16, 3, 3 }, { 2, 16, 40, 44 }, 1, { 1, 1, 1, 1 }, 1, 1), { tol = 2 }),
      S(T { 2, 32, 40, 40 }, T { 32, 1, 3, 3 }, { 2, 32, 40, 40 }, 1, { 1, 1, 1, 1 }, 1, 32),
    },
  },
  conv_backward_weight = {
    plugin = true, dtypes = "float", ref = backward_weight,
    samples = gradient_samples(function(dy, x, w, stride, padding, dilation, groups, bias)
      return S(T(dy), T(x), w, stride, padding, dilation, groups, bias)
    end),
    large = {
      -- sums over thousands of places
      with(S(T { 2, 24, 40, 44 }, T { 2, 16, 40, 44 }, { 24, 16, 3, 3 }, 1, { 1, 1, 1, 1 }, 1, 1, true), { tol = 8 }),
      with(S(T { 2, 32, 40, 40 }, T { 2, 32, 40, 40 }, { 32, 1, 3, 3 }, 1, { 1, 1, 1, 1 }, 1, 32, true), { tol = 8 }),
    },
  },
  conv_transpose1d = transposed_entry(1),
  conv_transpose2d = transposed_entry(2),
  conv_transpose3d = transposed_entry(3),
}
