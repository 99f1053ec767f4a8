-- SPDX-License-Identifier: MIT
-- Copies (csrc/ops/copy.c).
local assert = require "luassert"
local cnn = require "cnn"
local db = require "spec.opdb"
local T, S, with, nd = db.T, db.S, db.with, db.nd

local LIMITS = {
  int64 = { -2 ^ 63, 2 ^ 63 }, int32 = { -2 ^ 31, 2 ^ 31 - 1 }, int16 = { -2 ^ 15, 2 ^ 15 - 1 },
  int8 = { -128, 127 }, uint8 = { 0, 255 },
}

-- A number of one dtype as one of another: floats go towards zero and stop at the ends, integers wrap.
local function convert(v, from, to)
  if to == "bool" then return v ~= 0 and 1 or 0 end
  local limits = LIMITS[to]
  if not limits or from == to then return v end
  local lo, hi = limits[1], limits[2]
  if db.category(from) == "float" then
    if v ~= v then return 0 end
    v = v < 0 and math.ceil(v) or math.floor(v)
    return math.max(lo, math.min(hi, v))
  end
  return to == "int64" and v or (v - lo) % (hi - lo + 1) + lo
end

local function converted(x, to)
  return nd.map(function(v) return convert(v, x.dtype, to) end, x)
end

-- Every dtype as every other.
local function casts()
  local list = {}
  for _, dtype in ipairs(db.DTYPES) do
    list[#list + 1] = S(T({ 3, 5 }, { lo = -4, hi = 4 }), dtype)
    list[#list + 1] = S(T({ 2, 3, 2, 2 }, { lo = 0, hi = 100, ints = { 0, 127 } }), dtype)
  end
  list[#list + 1] = S(T {}, "float64")
  list[#list + 1] = S(T { 0, 3 }, "int16")
  list[#list + 1] = S(T { 70 }, "float32")
  list[#list + 1] = S(T({ 9 }, { ints = { -128, 127 } }), "uint8")
  list[#list + 1] = S(T({ 9 }, { lo = -500, hi = 500, ints = { -128, 127 } }), "int8")
  for _, sample in ipairs(list) do sample.grad = sample[2] == "float64" end -- others round: see below
  return list
end

local function copied(x, src)
  return nd.expand(converted(src, x.dtype), x.shape)
end

return {
  cast = {
    dtypes = "all", out = function(_, arguments) return arguments[2] end, dense = false,
    samples = casts(),
    ref = converted,
    large = { S(T { 300, 257 }, "float32"), S(T { 300, 257 }, "float64"), S(T { 300, 257 }, "int32") },
    errors = { { S(T { 2 }, "float"), "dtype" }, { S(T { 2 }), "dtype" } },
    check = function(_, run)
      local cast = cnn.core.internal.cast
      run("saturates, and makes NaN 0", function()
        local x = cnn.tensor({ 1e30, -1e30, math.huge, -math.huge, 0 / 0, 300.9, -300.9 }, { dtype = "float64" })
        assert.same({ 127, -128, 127, -128, 0, 127, -128 }, cast(x, "int8"):totable())
        assert.same({ 255, 0, 255, 0, 0, 255, 0 }, cast(x, "uint8"):totable())
        assert.same({ true, true, true, true, true, true, true }, cast(x, "bool"):totable())
      end)
      run("rounds to even, and beyond the largest to infinity", function()
        local x = cnn.tensor({ 2049, 2051, 65519, 65520, 2 ^ -25, 2 ^ -24 * 1.5 }, { dtype = "float64" })
        assert.same({ 2048, 2052, 65504, math.huge, 0, 2 ^ -23 }, cast(x, "float16"):double():totable())
        local y = cnn.tensor({ 257, 259, 3.4e38, 3.3962e38 }, { dtype = "float64" })
        assert.same({ 256, 260, math.huge, math.huge }, cast(y, "bfloat16"):double():totable())
      end)
      run("casts its gradient back", function()
        local x = cnn.rand({ 3 }, { dtype = "float64", requires_grad = true })
        local dy = cnn.tensor({ 0.1, 0.2, 0.3 }, { dtype = "float32" })
        for _, dtype in ipairs { "float32", "float16", "bfloat16" } do
          x.grad = nil
          cast(x, dtype):backward(cast(dy, dtype))
          assert.same(cast(cast(dy, dtype), "float64"):totable(), x.grad:totable())
        end
        for _, dtype in ipairs { "int64", "uint8", "bool" } do assert.is_false(cast(x, dtype).requires_grad) end
      end)
      run("is a copy even of the same dtype", function()
        local x = cnn.zeros(3)
        cast(x, "float32"):fill_(1)
        assert.equal(0, x:sum():item())
      end)
    end,
  },
  clone = {
    dtypes = "all", dense = false,
    samples = {
      S(T { 3, 5 }), S(T {}), S(T { 0, 3 }), S(T { 2, 3, 4, 5 }), S(T { 3, 5 }, "preserve"),
      S(T { 3, 5 }, "contiguous"),
      S(T { 2, 3, 4, 5 }, "channels_last"), S(T { 2, 3, 4 }, { memory_format = "contiguous" }), S(T { 70 }),
      S(T { 1, 2, 1, 2, 1, 2, 1, 2 }),
    },
    ref = function(x) return x end,
    errors = {
      { S(T { 2, 3 }, "channels_last"), "channels_last is for tensors with 4 dims, not 2" },
      { S(T { 2 }, "rows"), "memory_format" },
    },
    large = { S(T { 300, 257 }), S(T { 8, 70, 20, 30 }, "channels_last") },
    check = function(_, run)
      run("has the memory format that was asked for, and bytes of its own", function()
        local x = cnn.rand(2, 3, 4, 5):permute(4, 1, 3, 2)
        assert.same({ 1, 60, 5, 20 }, x:clone():stride())
        assert.is_true(x:clone("contiguous"):is_contiguous())
        assert.is_true(x:clone("channels_last"):is_contiguous "channels_last")
        local row = cnn.zeros(1, 3):expand(4, 3)
        row:clone():fill_(1)
        assert.equal(0, row:sum():item())
      end)
    end,
  },
  copy_ = {
    dtypes = "all",
    samples = {
      S(T { 3, 5 }, T { 3, 5 }), S(T { 3, 5 }, T { 5 }), S(T { 3, 5 }, T {}), S(T {}, T {}), S(T { 0, 3 }, T { 3 }),
      S(T { 2, 3, 2, 2 }, T { 3, 1, 1 }), S(T { 2, 3, 4 }, T { 2, 1, 4 }), S(T { 1 }, T {}),
      with(S(T({ 2, 3 }, { dtype = "float32" }), T { 2, 3 }), { out = "float32" }),
      S(T { 2, 3 }, T({ 3 }, { dtype = "int64" })),
      S(T { 2, 3 }, T({ 2, 3 }, { dtype = "bool" })),
      with(S(T { 2, 3 }, T({ 2, 3 }, { dtype = "float64" })), { only = "float" }),
    },
    ref = copied,
    errors = {
      { S(T { 3, 5 }, T { 3 }), "the source's shape (3,) does not broadcast to x's, (3, 5)" },
      { S(T { 5 }, T { 3, 5 }), "does not broadcast to x's, (5,)" }, { S(T { 3 }, T { 0 }), "does not broadcast" },
      { S(T {}, T { 1 }), "the source's shape (1,) does not broadcast to x's, ()" },
      { S(T { 3 }, 1), "expected a tensor" },
    },
    large = { S(T { 300, 257 }, T { 257 }), S(T { 300, 257 }, T { 300, 257 }) },
    check = function(_, run)
      run("copies within a tensor that overlaps itself", function()
        local x = cnn.arange(6)
        x:narrow(1, 2, 5):copy_(x:narrow(1, 1, 5))
        assert.same({ 0, 0, 1, 2, 3, 4 }, x:totable())
        local m = cnn.arange(9):view(3, 3)
        m:copy_(m:t())
        assert.same({ { 0, 3, 6 }, { 1, 4, 7 }, { 2, 5, 8 } }, m:totable())
      end)
    end,
  },
  to_device = {
    dtypes = "all", dense = false, meta = false,
    samples = { S(T { 3, 5 }, "cpu"), S(T {}, "cpu"), S(T { 0, 3 }, "cpu"), S(T { 2, 3, 2, 2 }, "cpu") },
    ref = function(x) return x end,
    errors = { { S(T { 2 }, "disk"), "device" } },
    check = function(_, run)
      local to = cnn.core.internal.to_device
      run("goes to meta, and not back", function()
        local x = to(cnn.rand(4, 2, 3):permute(3, 1, 2), "meta")
        assert.equal("meta", x.device)
        assert.same({ 1, 6, 3 }, x:stride())
        assert.same({ 3, 4, 2 }, x.shape)
        assert.has_error(function() to(x, "cpu") end)
        local ok, message = pcall(to, x, "cpu")
        assert.is_false(ok)
        assert.truthy(tostring(message):find("a meta tensor has a shape and no data", 1, true))
      end)
    end,
  },
}
