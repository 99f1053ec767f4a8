-- SPDX-License-Identifier: MIT
-- Gathering, scattering and masks on GPUs (cuda/indexing.cu, scan.cuh) against the CPU, at sizes that
-- spec/opdb has not got: indices few enough to be sorted by rank and many enough for the radix sort, runs
-- of equal ones that cross pieces, rows that can be moved 16 bytes at a time and rows that can't. And
-- indices that are out of range. Runs where there is a GPU, or on the simulator: make test-cuda-sim.
local cnn = require "cnn"
local cuda = cnn.cuda

if not cuda.is_available() then
  describe("indexing on GPUs", function()
    it("can't be tried here: there is no GPU", function()
      assert.equal(0, cuda.device_count())
    end)
  end)
  return
end

-- Relative to 1 or the value: sums of some hundred elements, in another order than the CPU's.
local TOLERANCE = { float64 = 1e-10, float32 = 2e-5, float16 = 1e-2, bfloat16 = 6e-2 }
local ALL = { "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool" }

local function gpu(t)
  return t:to("cuda")
end

local function expect(what, expected, got)
  got = got:cpu()
  assert.equal(expected.dtype, got.dtype, what)
  assert.same(expected.shape, got.shape, what)
  if expected:numel() == 0 then return end
  local tolerance = TOLERANCE[expected.dtype]
  if not tolerance then
    assert.is_true(expected:eq(got):all():item(), what)
    return
  end
  local a, b = expected:double(), got:double()
  local err = ((a - b):abs() / (a:abs() + 1)):max():item()
  assert.is_true(err <= tolerance, ("%s: off by %g"):format(what, err))
end

local function values(shape, dtype)
  local t = cnn.randn(shape) * 5
  if dtype == "bool" then return t:gt(0) end
  if dtype == "uint8" then t = t:abs() end
  return t:to(dtype)
end

-- Positions 1..most; small ones more often where `skew` is larger than 1.
local function positions(shape, most, skew)
  return (cnn.rand(shape):pow(skew or 1) * most):floor():clamp(0, most - 1):to("int64") + 1
end

local function by_list(what, dtype, n, rows, width, skew)
  local list, x, src = positions({ n }, rows, skew), values({ rows, width }, dtype), values({ n, width }, dtype)
  local glist, gx, gsrc = gpu(list), gpu(x), gpu(src)
  expect(what .. ", index_select", x:index_select(1, list), gx:index_select(1, glist))
  expect(what .. ", index_add", x:index_add(1, list, src), gx:index_add(1, glist, gsrc))
  expect(what .. ", index_copy", x:index_copy(1, list, src), gx:index_copy(1, glist, gsrc))
  expect(what .. ", index_fill", x:index_fill(1, list, 1), gx:index_fill(1, glist, 1))
  local y = x:t():clone()
  local gy = gpu(y)
  y:t():index_add_(1, list, src)
  gy:t():index_add_(1, glist, gsrc)
  expect(what .. ", index_add_ of a transposed view", y, gy)
  -- Two index tensors.
  local columns, v = positions({ n }, width), values({ n }, dtype)
  y, gy = x:clone(), gpu(x)
  expect(what .. ", index", y[{ list, columns }], gy[{ glist, gpu(columns) }])
  y[{ list, columns }] = v
  gy[{ glist, gpu(columns) }] = gpu(v)
  expect(what .. ", index_put_", y, gy)
end

local function by_grid(what, dtype, n, rows, width)
  local grid, x, src = positions({ n, width }, rows), values({ rows, width }, dtype), values({ n, width }, dtype)
  local ggrid, gx, gsrc = gpu(grid), gpu(x), gpu(src)
  expect(what .. ", gather", x:gather(1, grid), gx:gather(1, ggrid))
  expect(what .. ", scatter", x:scatter(1, grid, src), gx:scatter(1, ggrid, gsrc))
  expect(what .. ", scatter of a number", x:scatter(1, grid, 1), gx:scatter(1, ggrid, 1))
  expect(what .. ", scatter_add", x:scatter_add(1, grid, src), gx:scatter_add(1, ggrid, gsrc))
  -- One place in each row: none occurs twice.
  local one, s = positions({ rows, 1 }, width), values({ rows, 1 }, dtype)
  expect(what .. ", scatter_add to rows", x:scatter_add(2, one, s), gx:scatter_add(2, gpu(one), gpu(s)))
end

local function by_mask(what, dtype, n, width)
  local x, mask, rows = values({ n, width }, dtype), values({ n, width }, "bool"), values({ n }, "bool")
  local gx = gpu(x)
  expect(what .. ", masked_select", x:masked_select(mask), gx:masked_select(gpu(mask)))
  expect(what .. ", rows", x[{ rows }], gx[{ gpu(rows) }])
  expect(what .. ", nonzero", x:nonzero(), gx:nonzero())
  local counts = positions({ n }, 4) - 1
  expect(what .. ", repeat_interleave", x:repeat_interleave(counts, 1), gx:repeat_interleave(gpu(counts), 1))
end

local function gradients(what, dtype, n, rows, width, skew)
  local list, columns = positions({ n }, rows, skew), positions({ n }, width)
  local x, dy, v = values({ rows, width }, dtype), values({ n, width }, dtype), values({ n }, dtype)
  local du = values({ n - 3, width, 4 }, dtype)
  local function compute(to)
    local w = to(x):requires_grad_()
    cnn.nn.functional.embedding(to(list), w, 1):backward(to(dy))
    local y = to(x):requires_grad_()
    y[{ to(list), to(columns) }]:backward(to(v))
    local z = to(dy):requires_grad_()
    z:unfold(1, 4, 1):backward(to(du)) -- windows overlap
    return w.grad, y.grad, z.grad
  end
  local a, b, c = compute(function(t) return t:clone() end)
  local ga, gb, gc = compute(gpu)
  expect(what .. ", embedding", a, ga)
  expect(what .. ", index", b, gb)
  expect(what .. ", unfold", c, gc)
  local again = compute(gpu)
  assert.is_true(ga:eq(again):all():item(), what .. ": not the same bits twice")
end

describe("indexing on GPUs", function()
  for _, dtype in ipairs(ALL) do
    it("does what the CPU does: " .. dtype, function()
      cnn.manual_seed(3)
      for _, n in ipairs { 7, 70, 1500 } do
        for _, case in ipairs { { 1, 3 }, { 40, 8, 4 }, { 600, 1 } } do
          local rows, width, skew = case[1], case[2], case[3]
          local what = ("%d positions in %d rows of %d"):format(n, rows, width)
          by_list(what, dtype, n, rows, width, skew)
          by_grid(what, dtype, n, rows, width)
          by_mask(what, dtype, n, width)
          if TOLERANCE[dtype] then gradients(what, dtype, n, rows, width, skew) end
        end
      end
    end)
  end

  it("changes nothing where an index is out of range", function()
    local function fails(message, f, ...)
      local ok, why = pcall(f, ...)
      if ok then ok, why = pcall(cuda.synchronize) end
      assert.is_false(ok)
      assert.is_truthy(tostring(why):find(message, 1, true), tostring(why))
    end
    cnn.manual_seed(4)
    for _, n in ipairs { 5, 1500 } do
      local before = cnn.randn(10, 8)
      local x, src = gpu(before), gpu(cnn.randn(n, 8))
      local list, grid = positions({ n }, 10), positions({ n, 8 }, 10)
      list[n - 1], grid[{ 2, 3 }] = 11, 0
      list, grid = gpu(list), gpu(grid)
      fails("index_add: index 11 is out of range for dim 1 of size 10 (1..10)", x.index_add_, x, 1, list, src)
      fails("index_copy: index 11 is out of range", x.index_copy_, x, 1, list, src)
      fails("index_fill: index 11 is out of range", x.index_fill_, x, 1, list, 3)
      fails("scatter: index 0: Lua indices start at 1", x.scatter_, x, 1, grid, src)
      fails("scatter: index 0: Lua indices start at 1", x.scatter_, x, 1, grid, 1)
      fails("scatter_add: index 0: Lua indices start at 1", x.scatter_add_, x, 1, grid, src)
      fails("index 11 is out of range", function() x[{ list }] = src end)
      local one = gpu(cnn.tensor({ { 9 }, { 1 } }, { dtype = "int64" }))
      fails("scatter_add: index 9 is out of range for dim 2 of size 8 (1..8)", x.scatter_add_, x, 2, one, src)
      fails("index_select: index 11 is out of range", x.index_select, x, 1, list)
      fails("gather: index 0: Lua indices start at 1", x.gather, x, 1, grid)
      fails("embedding: index 11 is out of range", cnn.nn.functional.embedding, list, x)
      local rows = cnn.zeros(10, 0, { device = "cuda" })
      fails("index_select: index 11 is out of range", rows.index_select, rows, 1, list)
      local counts = gpu(cnn.tensor({ 1, -2, 3, 1, 1, 1, 1, 1, 1, 1 }, { dtype = "int64" }))
      fails("repeat_interleave: repeats[2] is -2", x.repeat_interleave, x, counts, 1)
      assert.is_true(x:cpu():eq(before):all():item())
      x:index_add_(1, list:clamp(1, 10), src) -- all is well again
      cuda.synchronize()
    end
  end)
end)
