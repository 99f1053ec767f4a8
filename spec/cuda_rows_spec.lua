-- SPDX-License-Identifier: MIT
-- Rows, reductions and broadcasts on GPUs against the CPU, at sizes that spec/opdb has not got: rows that
-- a warp's or a block's registers hold and rows that they don't, 16 bytes at a time and not (cuda/team.cuh);
-- long sums, and variances of large numbers. Runs where there is a GPU, or on the simulator.
local cnn = require "cnn"
local cuda = cnn.cuda
local F = cnn.nn.functional

if not cuda.is_available() then
  describe("rows on GPUs", function()
    it("can't be tried here: there is no GPU", function() assert.equal(0, cuda.device_count()) end)
  end)
  return
end

-- Relative to 1 or the value.
local TOLERANCE = { float64 = 1e-10, float32 = 2e-5, float16 = 1e-2, bfloat16 = 6e-2 }

local function expect(what, expected, got, dtype)
  got = got:cpu()
  assert.same(expected.shape, got.shape, what)
  local tolerance = TOLERANCE[dtype or got.dtype]
  local a, b = expected:double(), got:double()
  local err = ((a - b):abs() / (a:abs() + 1)):max():item()
  assert.is_true(err <= tolerance, ("%s: off by %g"):format(what, err)) -- NaN is off, too
end

-- Three rows in several layouts: dense, rows that begin anywhere, every other element.
local LAYOUTS = {
  dense = function(x) return x end,
  shifted = function(x) return cnn.cat({ x, x:narrow(2, 1, 1) }, 2):narrow(2, 1, x.shape[2]) end,
  offset = function(x)
    return cnn.cat({ x:view(-1):narrow(1, 1, 1), x:view(-1) }):narrow(1, 2, x:numel()):view(x.shape)
  end,
  columns = function(x) return x:t():contiguous():t() end,
}

-- fn(...) of float64 on the CPU, and of the dtype on the GPU; and the gradients of the arguments.
local function compare(what, dtype, layout, fn, x, ...)
  local dy = cnn.randn(x.shape, { dtype = "float64" }):to(dtype)
  local function run(make, ...)
    local args = { ... }
    for i = 1, select("#", ...) do args[i] = make(args[i]):detach():requires_grad_() end
    local y = fn((unpack or table.unpack)(args))
    y:backward(make(dy))
    return y:detach(), args
  end
  local expected, cpu = run(function(t) return t:double() end, x, ...)
  local first = true
  local got, gpu = run(function(t)
    t = t:to("cuda")
    if first then t, first = LAYOUTS[layout](t), false end
    return t
  end, x, ...)
  what = ("%s of %s, %s, width %d"):format(what, dtype, layout, x.shape[2])
  expect(what, expected, got)
  for i = 1, #cpu do expect(("%s, gradient %d"):format(what, i), cpu[i].grad, gpu[i].grad) end
end

describe("rows on a GPU", function()
  for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
    for _, width in ipairs { 1, 8, 33, 256, 264, 1000, 1024, 1032, 4104, 8192, 8200 } do
      it(("of %d %s are right in any layout"):format(width, dtype), function()
        cnn.manual_seed(width)
        for layout in pairs(LAYOUTS) do
          local x = (cnn.randn(3, width, { dtype = "float64" }) * 3):to(dtype)
          compare("softmax", dtype, layout, function(t) return F.softmax(t, 2) * (width / 4) end, x)
          compare("log_softmax", dtype, layout, function(t) return F.log_softmax(t, 2) end, x)
          if width > 1 then
            local w, b = cnn.randn(width, { dtype = dtype }), cnn.randn(width, { dtype = dtype })
            compare("layer_norm", dtype, layout, function(t, u, v) return F.layer_norm(t, { width }, u, v) end, x, w, b)
          end
        end
      end)
    end
  end

  it("are normalised whatever their mean", function()
    for _, width in ipairs { 256, 1000, 1024, 4096, 4099 } do
      local x = cnn.randn(2, width, { dtype = "float64" })
      local large = (x + 4096):float()
      local expected = F.layer_norm(large:double(), { width })
      expect("a large mean", expected, F.layer_norm(large:cuda(), { width }))
      local alike = cnn.full({ 2, width }, 0.1):cuda()
      assert.equal(0, F.layer_norm(alike, { width }):abs():max():item())
    end
  end)

  it("keep what is not finite to themselves", function()
    for _, width in ipairs { 64, 512, 2048 } do
      local x = cnn.zeros(5, width)
      x[{ 1, 3 }], x[{ 2, 3 }], x[{ 4, 3 }] = 0 / 0, math.huge, -math.huge
      x[3]:fill_(-math.huge)
      for _, fn in ipairs { F.softmax, F.log_softmax } do
        local expected, got = fn(x, 2), fn(x:cuda(), 2):cpu()
        assert.is_true(expected:isnan():eq(got:isnan()):all():item())
        expect("the rows that are finite", expected:nan_to_num(0, 0, 0), got:nan_to_num(0, 0, 0))
      end
    end
  end)
end)

-- ---------------------------------------------------------------------------------------------

describe("reductions on a GPU", function()
  local FNS = {
    sum = function(x, d) return x:sum(d) end,
    mean = function(x, d) return x:mean(d) end,
    var = function(x, d) return x:var(d) end,
    norm = function(x, d) return x:norm(2, d) end,
    logsumexp = function(x, d) return x:logsumexp(d) end,
    amax = function(x, d) return x:amax(d) end,
    argmin = function(x, d) return x:argmin(d) end,
    nonzero = function(x, d) return x:count_nonzero(d) end,
  }

  for _, shape in ipairs { { 5, 40, 9 }, { 3, 2, 1040 }, { 2, 2100, 16 }, { 2, 3, 20011 } } do
    it(("of %d x %d x %d are right along any dim"):format((unpack or table.unpack)(shape)), function()
      cnn.manual_seed(shape[2])
      for _, dtype in ipairs(shape[1] == 5 and { "float64", "float16", "float32" } or { "float32", "bfloat16" }) do
        local x = (cnn.randn(shape, { dtype = "float64" }) * 2):to(dtype)
        local layouts = { dense = x:cuda(), turned = x:transpose(2, 3):contiguous():cuda():transpose(2, 3),
          shifted = cnn.cat({ x:narrow(3, 1, 1), x }, 3):cuda():narrow(3, 2, shape[3]) }
        for layout, there in pairs(layouts) do
          for name, fn in pairs(FNS) do
            for _, d in ipairs { 2, 3, { 2, 3 }, { 1, 3 } } do
              local what = ("%s of %s, %s"):format(name, dtype, layout)
              if not (name == "argmin" and type(d) == "table") then
                expect(what, fn(x:double(), d), fn(there, d):double(), dtype)
              end
            end
          end
        end
      end
    end)
  end

  it("lose no more than the CPU's where they are long", function()
    local n = 1000003
    for _, x in ipairs { cnn.full({ n }, 0.1), cnn.rand(n) + 4096, cnn.full({ 200, 5003 }, 0.1):t() } do
      local there, exact = x:cuda(), x:double()
      local function off(y, expected) return math.abs(y:item() / expected:item() - 1) end
      assert.is_true(off(there:sum(), exact:sum()) <= math.max(2e-7, 2 * off(x:sum(), exact:sum())))
      assert.is_true(off(there:mean(), exact:mean()) <= math.max(2e-7, 2 * off(x:mean(), exact:mean())))
      local columns = there:reshape(-1):narrow(1, 1, 1000000):view(10000, 100):sum(1):double():cpu()
      local expected = exact:reshape(-1):narrow(1, 1, 1000000):view(10000, 100):sum(1)
      assert.is_true(((columns / expected) - 1):abs():max():item() <= 1e-6)
    end
  end)

  it("have the variance whatever the mean", function()
    for _, shift in ipairs { 0, 4096, 1e6 } do
      local x = cnn.randn(40, 5000, { dtype = "float64" }):add_(shift):float()
      for d = 1, 2 do expect("var of " .. shift, x:double():var(d), x:cuda():var(d)) end
      expect("var of all of " .. shift, x:double():var(), x:cuda():var())
      assert.equal(0, cnn.full({ 100000 }, 0.1 + shift):cuda():var():item())
    end
  end)

  it("are the same every time", function()
    local x = cnn.randn(300, 2000):cuda()
    for _, fn in pairs(FNS) do
      assert.is_true(fn(x, 1):eq(fn(x, 1)):all():item())
      assert.is_true(fn(x, 2):eq(fn(x, 2)):all():item())
    end
  end)
end)

-- ---------------------------------------------------------------------------------------------

describe("broadcasts on a GPU", function()
  it("are right whatever lies along the innermost dim", function()
    cnn.manual_seed(1)
    for _, dtype in ipairs { "float32", "bfloat16", "float64" } do
      for _, width in ipairs { 1, 3, 4, 20, 1031, 4096 } do
        local x = cnn.randn(2, 3, 5, width, { dtype = dtype })
        local others = { cnn.randn(width, { dtype = dtype }), cnn.randn(3, 1, 1, { dtype = dtype }),
          cnn.randn(2, 3, 5, 1, { dtype = dtype }), cnn.randn(width + 1, { dtype = dtype }):narrow(1, 2, width),
          cnn.randn(2, 1, 5, width, { dtype = dtype }), cnn.randn(width, 5, { dtype = dtype }):t() }
        local turned = x:permute(1, 3, 4, 2):contiguous():permute(1, 4, 2, 3) -- channels last
        local shifted = cnn.cat({ x:narrow(4, 1, 1), x }, 4):narrow(4, 2, width)
        for i, y in ipairs(others) do
          for _, a in ipairs { x, turned, shifted } do
            local what = ("%s, width %d, operand %d"):format(dtype, width, i)
            expect(what, a:double() * y:double() + 1, a:cuda() * y:cuda() + 1)
            expect(what, y:double() - a:double(), y:cuda() - a:cuda())
            local changed = a:cuda():clone()
            changed:add_(y:cuda())
            expect(what .. ", in place", a:double() + y:double(), changed)
          end
        end
      end
    end
  end)
end)
