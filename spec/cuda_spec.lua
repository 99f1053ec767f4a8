-- SPDX-License-Identifier: MIT
-- GPUs: devices, copies, streams and events, errors of kernels, counts, kernels of one's own. Runs where
-- there is a GPU, or on the simulator: make test-cuda-sim. Ops on GPUs: spec/ops_spec.lua.
local cnn = require "cnn"
local helper = require "spec.helper"
local cuda = cnn.cuda

if not cuda.is_available() then
  describe("cnn.cuda", function()
    it("can't be tried here: there is no GPU", function()
      assert.equal(0, cuda.device_count())
    end)
  end)
  return
end

local function on_gpu(list, options)
  return cnn.tensor(list, options):to("cuda")
end

local function same(a, b)
  return a:eq(b):all():item()
end

describe("cnn.cuda", function()
  it("describes its devices", function()
    local p = cuda.get_device_properties()
    assert.is_true(cuda.device_count() >= 1)
    assert.equal(p.name, cuda.get_device_name())
    assert.is_true(p.total_memory > 0 and p.warp_size == 32 and p.multi_processor_count > 0)
    assert.equal(p.major, (cuda.get_device_capability()))
    assert.equal(0, cuda.current_device())
    helper.raises("device \"cuda:9\" is not available: there", cnn.zeros, 2, { device = "cuda:9" })
    if cuda.is_simulated() then
      cuda.simulate() -- once more says nothing
    else
      helper.raises("this must come before the first use", cuda.simulate)
    end
  end)

  it("copies there and back in any layout", function()
    local x = cnn.arange(24):view(2, 3, 4)
    for _, view in ipairs { x, x:transpose(1, 3), x[{ {}, { 2, 3 } }], x:narrow(3, 2, 2), x[{ 1 }]:expand(5, 3, 4),
      x:sum(), x:narrow(1, 1, 0) } do
      local there = view:to("cuda")
      assert.equal("cuda:0", there.device)
      assert.is_true(same(there:cpu(), view))
      assert.is_true(same((there * 2):cpu(), view * 2))
    end
  end)

  it("copies into tensors, converting", function()
    local y = cnn.zeros(2, 3, { device = "cuda" })
    y:copy_(cnn.tensor { 1, 2, 3 })
    assert.is_true(same(y:cpu(), cnn.tensor { { 1, 2, 3 }, { 1, 2, 3 } }))
    local z = cnn.zeros(3, 2, { dtype = "int64" })
    z:t():copy_(y)
    assert.equal(3, z[{ 3, 1 }]:item())
    assert.equal(6, y:sum(2)[{ 1 }]:item())
    helper.raises("src is a meta tensor", y.copy_, y, cnn.zeros(2, 3, { device = "meta" }))
  end)

  -- A thread of an elementwise kernel takes four elements, and four of 1024 later.
  it("computes element by element whatever the size, dtype and alignment", function()
    for _, n in ipairs { 3, 1024, 1027, 1028, 2047, 2051, 4100 } do
      local base = cnn.arange(n + 1):remainder(251)
      for _, dtype in ipairs { "float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool" } do
        local x = base:to(dtype)
        local there = x:to("cuda")
        for first = 1, 2 do -- the second is aligned to one element
          local a, b = x:narrow(1, first, n), there:narrow(1, first, n)
          local mask = a:lt(100)
          local what = ("%d of %s from %d"):format(n, dtype, first)
          assert.is_true(same(b:clone():cpu(), a), what)
          assert.is_true(same(b:lt(100):cpu(), mask), what)
          assert.is_true(same(b:masked_fill(mask:to("cuda"), 1):cpu(), a:masked_fill(mask, 1)), what)
          for _, other in ipairs { "float32", "bfloat16", "int16", "bool" } do
            assert.is_true(same(b:to(other):cpu(), a:to(other)), what .. " as " .. other)
          end
          if dtype ~= "bool" then
            assert.is_true(same((b * b + 1):cpu(), a * a + 1), what)
            assert.is_true(same(b:relu_():cpu(), a), what)
          end
        end
      end
    end
  end)

  it("takes numbers and 0-d CPU tensors beside its own, and nothing else", function()
    local x = on_gpu { 1, 2, 3 }
    assert.is_true(same((x * cnn.tensor(2)):cpu(), cnn.tensor { 2, 4, 6 }))
    assert.is_true(same((cnn.tensor(2) - x):cpu(), cnn.tensor { 1, 0, -1 }))
    helper.raises("x is on cuda:0 but y is on cpu: move one, e.g. y:to(\"cuda:0\")", cnn.add, x, cnn.ones(3))
    helper.raises("x is on cpu but y is on cuda:0: move one, e.g. x:to(\"cuda:0\")", cnn.add, cnn.ones(3), x)
    helper.raises("tensors[1] is on cuda:0 but tensors[3] is on cpu: move one, e.g. tensors[3]:to(\"cuda:0\")", cnn.cat,
      { x, x, cnn.ones(3) })
  end)

  it("gives a number's gradient where the number is", function()
    local w = cnn.tensor(3, { dtype = "float32", requires_grad = true })
    local x = on_gpu { 1, 2, 3 } * w
    x:sum():backward()
    assert.equal("cpu", w.grad.device)
    assert.equal(6, w.grad:item())
  end)

  it("trains", function()
    cnn.manual_seed(1)
    local model = cnn.nn.Sequential(cnn.nn.Linear(4, 8), cnn.nn.Tanh(), cnn.nn.LayerNorm(8), cnn.nn.Linear(8, 1))
    local x = cnn.randn(5, 4)
    model(x):square():sum():backward()
    local expected = {}
    for i, p in ipairs(model:parameters()) do expected[i] = p.grad end
    model:zero_grad()
    model:to("cuda")
    local there = x:to("cuda")
    model(there):square():sum():backward()
    for i, p in ipairs(model:parameters()) do
      assert.equal("cuda:0", p.grad.device)
      assert.is_true((p.grad:cpu() - expected[i]):abs():max():item() < 1e-4)
    end
  end)
end)

describe("streams", function()
  it("order their work by events", function()
    local a, b = cuda.Stream(), cuda.Stream { priority = -1 }
    assert.is_false(a == b)
    assert.equal("cuda:0", a:device())
    local x = cnn.ones(1000, { device = "cuda" })
    a:wait_stream(cuda.current_stream())
    local y = cuda.stream(a, function()
      assert.is_true(cuda.current_stream() == a)
      return x * 2
    end)
    assert.is_true(cuda.current_stream() == cuda.default_stream())
    b:wait_event(a:record_event())
    local sum = cuda.stream(b, function() return (y + 1):sum() end)
    b:synchronize()
    assert.is_true(b:query())
    assert.equal(3000, sum:item())
  end)

  it("keep the current one through errors", function()
    local s = cuda.Stream()
    helper.raises("oops", cuda.stream, s, function() error "oops" end)
    assert.is_true(cuda.current_stream() == cuda.default_stream())
    helper.raises("expected a function", cuda.stream, s, 1)
    cuda.set_stream(s)
    assert.is_true(cuda.current_stream() == s)
    cuda.set_stream(cuda.default_stream())
  end)

  it("are kept while they are current", function()
    local a, b, c = cuda.Stream(), cuda.Stream(), cuda.Stream()
    cuda.set_stream(a)
    cuda.stream(b, function() cuda.set_stream(c) end)
    local name = tostring(a)
    a, c = nil, nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
    assert.equal(name, tostring(cuda.current_stream()))
    assert.equal(30, (cnn.ones(10, { device = "cuda" }) * 3):sum():item())
    cuda.set_stream(cuda.default_stream())
  end)

  it("own memory until they are done with it", function()
    local s = cuda.Stream()
    local x = cnn.ones(1000, { device = "cuda" })
    s:wait_stream(cuda.current_stream())
    local sum = cuda.stream(s, function() return (x * 3):sum() end)
    assert.is_true(rawequal(x, x:record_stream(s)))
    x:free()
    for _ = 1, 10 do cnn.full({ 1000 }, 7, { device = "cuda" }):free() end
    s:synchronize()
    assert.equal(3000, sum:item())
    helper.raises("x is on cpu", function() return cnn.ones(1):record_stream(s) end)
  end)

  it("are timed by events", function()
    local from, to = cuda.Event { enable_timing = true }, cuda.Event { enable_timing = true }
    helper.raises("must have been recorded", from.elapsed_time, from, to)
    from:record()
    local x = cnn.ones(100, { device = "cuda" }) + 1
    to:record():synchronize()
    assert.is_true(to:query() and from:elapsed_time(to) >= 0)
    assert.equal(200, x:sum():item())
    helper.raises("enable_timing", from.elapsed_time, from, cuda.Event():record())
    assert.is_true(cuda.Event():query())
  end)
end)

describe("pinned memory", function()
  it("is copied from without waiting", function()
    local x = cnn.randn(50, 3):t()
    local p = x:pin_memory()
    assert.is_true(p:is_pinned() and same(p, x) and not x:is_pinned())
    assert.is_true(rawequal(p, p:pin_memory()))
    local y = p:to("cuda", { non_blocking = true })
    assert.is_true(same(y:cpu(), x))
    local back = cnn.zeros(3, 50):pin_memory()
    back:copy_(y, true)
    cnn.synchronize("cuda")
    assert.is_true(same(back, x))
    helper.raises("only CPU tensors", y.pin_memory, y)
  end)
end)

describe("memory", function()
  it("is counted, given back and bounded", function()
    helper.settle()
    local before = cuda.memory_allocated()
    local x = cnn.zeros(1000, { device = "cuda" })
    assert.is_true(cuda.memory_allocated() >= before + 4000)
    assert.is_true(cuda.memory_reserved() > 0)
    x:free()
    assert.equal(before, cuda.memory_allocated())
    local _, total = cuda.mem_get_info()
    cuda.set_per_process_memory_fraction(0.01)
    helper.raises("out of memory on cuda:0", cnn.zeros, math.floor(total / 50), { device = "cuda" })
    cuda.set_per_process_memory_fraction(1)
    assert.equal(4, cnn.ones(4, { device = "cuda" }):sum():item())
  end)

  it("paces the collector", function()
    local before = cnn.gc()
    cnn.gc { minimum = 1e6, budget = 1 } -- whatever time it takes
    local n = cnn.gc().collections
    for _ = 1, 100 do cnn.zeros(1e5, { device = "cuda" }) end
    assert.is_true(cnn.gc().collections > n)
    assert.is_true(cuda.memory_allocated() < 30e6)
    cnn.gc { minimum = before.minimum, budget = before.budget }
  end)

  it("is predicted", function()
    local e = cnn.estimate(cnn.nn.Linear(64, 32), { input = { 8, 64 }, device = "cuda" })
    assert.is_true(e.peak > 0)
  end)
end)

describe("errors of kernels", function()
  it("are raised by the next synchronisation, and then over", function()
    local x, bad = on_gpu { 1, 2, 3 }, cnn.tensor({ 2, 7 }, { dtype = "int64" }):to("cuda")
    local y = x:index_select(1, bad)
    helper.raises("index_select: index 7 is out of range for dim 1 of size 3 (1..3)", function() return y:cpu() end)
    assert.equal(6, x:sum():item())
    y = x:index_select(1, bad)
    helper.raises("index 7 is out of range", cnn.synchronize, "cuda")
    cnn.synchronize("cuda")
    assert.equal(2, y:numel())
  end)

  it("are raised by the line that made them, if asked for", function()
    local x, bad = on_gpu { 1, 2, 3 }, cnn.tensor({ 0 }, { dtype = "int64" }):to("cuda")
    cuda.set_sync(true)
    local ok, message = pcall(function() return x:index_select(1, bad) end)
    cuda.set_sync(false)
    assert.is_false(ok)
    assert.truthy(message:find("index_select: index 0: Lua indices start at 1 (dim 1", 1, true), message)
    assert.equal(6, x:sum():item())
  end)
end)

local has_ffi, ffi = pcall(require, "ffi")
if has_ffi then
  describe("a child of this process", function()
    it("can't use the GPUs, and is told so", function()
      ffi.cdef [[int fork(void); int waitpid(int, int *, int); void _exit(int);]]
      local x = on_gpu { 1, 2, 3 }
      local child = ffi.C.fork()
      if child == 0 then
        local ok, message = pcall(function() return x + 1 end)
        ffi.C._exit((not ok and tostring(message):find("forked", 1, true)) and 7 or 1)
      end
      local status = ffi.new("int[1]")
      ffi.C.waitpid(child, status, 0)
      assert.equal(7, math.floor(status[0] / 256))
      assert.equal(6, x:sum():item())
    end)
  end)
end
