-- SPDX-License-Identifier: MIT
-- What only GPUs have of memory: the context's share, pinned and pageable copies behind the call, blocks
-- that change streams, failing devices, and the end of all use. Limits, pools and the ladder:
-- spec/cuda_limits_spec.lua.
local cnn = require "cnn"
local helper = require "spec.helper"
local cuda, nn = cnn.cuda, cnn.nn

if not cuda.is_available() then
  describe("memory of GPUs", function()
    it("can't be tried here: there is no GPU", function() assert.equal(0, cuda.device_count()) end)
  end)
  return
end

local sim = helper.simulator()
local on = { device = "cuda" }

local function same(a, b) return a:eq(b):all():item() end

local function settle()
  helper.settle()
  cnn.tensor(0):free()
  cuda.empty_cache()
end

-- A training step; gives the loss.
local function learner()
  cnn.manual_seed(5)
  local model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10)):to("cuda")
  local opt = cnn.optim.AdamW(model:parameters(), { lr = 0.01 })
  local x, y = cnn.randn(6, 1, 8, 8, on), cnn.randint(1, 11, { 6 }, on)
  return function()
    return cnn.scope(function()
      opt:zero_grad()
      local loss = cnn.F.cross_entropy(model(x), y)
      loss:backward()
      opt:step()
      return loss:item()
    end)
  end
end

describe("memory of a GPU", function()
  it("is bounded by a fraction that counts the context, and really given back", function()
    settle()
    local context = cuda.get_device_properties().context_memory
    local free, total = cuda.mem_get_info()
    assert.is_true(context > 0 and free <= total - context)
    assert.equal(total - context, cuda.memory_stats().limit)
    cuda.set_per_process_memory_fraction(0.25)
    assert.equal(math.floor(0.25 * total - context), cuda.memory_stats().limit)
    cuda.set_per_process_memory_fraction(0)
    helper.raises("out of memory on cuda:0", cnn.zeros, 4, on)
    cuda.set_per_process_memory_fraction(1)
    assert.equal(total - context, cuda.memory_stats().limit)
    local x = cnn.zeros(2 ^ 22, on) -- 16 MiB
    assert.is_true(cuda.mem_get_info() <= free - 2 ^ 24)
    x:free()
    assert.is_true(cuda.mem_get_info() <= free - 2 ^ 24)
    assert.is_true(cuda.empty_cache() >= 2 ^ 24)
    assert.equal(free, (cuda.mem_get_info()))
  end)

  it("that a failing request leaves is what was there, at every request of a step", function()
    local step = learner()
    step()
    settle()
    local live, failed = cuda.memory_allocated(), 0
    for n = 1, 1000, helper.flavour() == "check" and 6 or 1 do
      cnn.core.fault_set(n, false, true)
      local ok = pcall(step)
      cnn.core.fault_clear()
      if ok then break end
      failed = failed + 1
    end
    assert.is_true(failed > 10)
    step()
    settle()
    assert.equal(live, cuda.memory_allocated())
  end)

  it("is had again after the device has refused some, at every such request of a step", function()
    if not sim then return end
    local step = learner()
    step()
    local live, failed = nil, 0
    for n = 1, 100 do
      settle()
      live = live or cuda.memory_allocated()
      assert.equal(live, cuda.memory_allocated())
      sim.sim_fail_alloc(n)
      local ok, message = pcall(step)
      sim.sim_fail_alloc(0)
      if not ok then
        assert.truthy(message:find "out of memory", message)
        failed = failed + 1
      elseif n > 2 + failed then -- what is refused may not be needed
        break
      end
    end
    step()
    settle()
    assert.equal(live, cuda.memory_allocated())
  end)

  it("of one stream is another's only when its work is done", function()
    helper.each_schedule(function()
      settle()
      local a, b = cuda.Stream(), cuda.Stream()
      local n = 2 ^ 19
      -- Room for one such tensor beside the two streams' sums: each is where one of the other stream's was.
      cnn.set_memory_limit(cuda.memory_reserved() + 7 * 2 ^ 20, "cuda")
      local sums = {}
      for i = 1, 6 do
        local s = i % 2 == 0 and a or b
        sums[i] = cuda.stream(s, function()
          local x = cnn.full({ n }, i, on)
          local sum = x:mul_(2)[{ { 1, -1, 512 } }]:sum()
          x:free()
          return sum
        end)
      end
      cnn.set_memory_limit(nil, "cuda")
      a:synchronize()
      b:synchronize()
      for i = 1, 6 do assert.equal(2 * i * n / 512, sums[i]:item()) end
    end)
  end)

  it("that a second stream reads waits for it, when it was told", function()
    helper.each_schedule(function()
      settle()
      local s = cuda.Stream()
      local results = {}
      for i = 1, 8 do
        local x = cnn.full({ 3000 }, i, on)
        s:wait_stream(cuda.current_stream())
        x:record_stream(s)
        results[i] = cuda.stream(s, function() return (x + 1):sum() end)
        x:free()
        cnn.full({ 3000 }, -1, on):free() -- would be the same block
      end
      s:synchronize()
      for i = 1, 8 do assert.equal(3000 * (i + 1), results[i]:item()) end
    end)
  end)

  it("goes round among streams whose tensors cross", function()
    helper.each_schedule(function()
      settle()
      local streams = { cuda.default_stream(), cuda.Stream(), cuda.Stream { priority = -1 } }
      local x, expected = cnn.ones(5000, on), 1
      cnn.manual_seed(11)
      local at = streams[1]
      for i = 1, 30 do
        local s = streams[cnn.randint(1, 4, { 1 }):item()]
        s:wait_stream(at)
        x:record_stream(s)
        local before = x
        x = cuda.stream(s, function() return (before * 0.5 + i):contiguous() end)
        before:free()
        expected, at = expected * 0.5 + i, s
      end
      local got = cuda.stream(at, function() return x:cpu() end)
      helper.elements(got[{ { 1, 3 } }], { expected, expected, expected }, 1e-5)
      assert.is_true(same(got, got[1]:expand(5000)))
    end)
  end)
end)

describe("copies", function()
  local sizes = { 1, 1000, 40000, 300001, 4300001 } -- up to 17 MB: more than all buffers hold

  it("of pageable memory have read it when they return, and wait for nothing", function()
    helper.each_schedule(function()
      for _, n in ipairs(sizes) do
        local x = cnn.arange(n)
        local there
        local counts = cnn.count_launches(function()
          there = x:to("cuda", { non_blocking = true })
        end)
        assert.equal(0, counts.syncs)
        assert.equal(4 * n, counts.to_device)
        x:fill_(7)
        counts = cnn.count_launches(function() x = there:cpu() end)
        assert.equal(1, counts.syncs)
        assert.is_true(same(cnn.arange(n), x))
      end
    end)
  end)

  it("of pageable memory keep their order on several streams", function()
    helper.each_schedule(function()
      local streams, results = { cuda.Stream(), cuda.Stream() }, {}
      for i = 1, 6 do
        local x = cnn.full({ 700000 }, i)
        cuda.stream(streams[i % 2 + 1], function() results[i] = (x:to("cuda")[{ { 1, -1, 1000 } }] * 2):sum() end)
        x:fill_(0)
      end
      for _, s in ipairs(streams) do s:synchronize() end
      for i = 1, 6 do assert.equal(2 * i * 700, results[i]:item()) end
    end)
  end)

  it("of pinned memory are waited for by whoever touches it", function()
    helper.each_schedule(function()
      local p = cnn.arange(5000):pin_memory()
      local there = p:to("cuda", { non_blocking = true })
      p:fill_(3) -- after the copy has read it
      assert.is_true(same(there:cpu(), cnn.arange(5000)))
      -- Down, and up again from there.
      assert.is_true(rawequal(p, p:copy_(there * 2, true)))
      local again = p:to("cuda", { non_blocking = true })
      assert.equal(2 * 4999, p[-1]:item())
      assert.equal(2 * 4999, p:get(5000))
      assert.is_true(same(again:cpu(), cnn.arange(5000) * 2))
      p:copy_(there, true)
      assert.equal(4999, p:totable()[5000])
      p:copy_(there * 3, true)
      p:add_(1)
      assert.equal(3 * 4999 + 1, p:max():item())
      -- From one stream and to another.
      local s = cuda.Stream()
      s:wait_stream(cuda.current_stream())
      p:copy_(there * 5, true)
      local other = cuda.stream(s, function() return p:to("cuda", { non_blocking = true }) end)
      s:synchronize()
      assert.equal(5 * 4999, other:max():item())
    end)
  end)

  it("of pinned memory that is freed meanwhile see nothing of it", function()
    helper.each_schedule(function()
      local results = {}
      for i = 1, 5 do
        local p = cnn.full({ 4000 }, i):pin_memory()
        results[i] = p:to("cuda", { non_blocking = true })
        p:free()
      end
      for i = 1, 5 do assert.equal(4000 * i, results[i]:sum():item()) end
      local p, x = cnn.zeros(4000):pin_memory(), cnn.full({ 4000 }, 9, on)
      p:copy_(x, true)
      p:free()
      p = cnn.zeros(4000):pin_memory()
      cnn.synchronize "cuda"
      assert.equal(0, p:abs():sum():item())
    end)
  end)

  it("into a tensor of the same form go straight there", function()
    for _, make in ipairs { function() return cnn.randn(40, 30) end, function() return cnn.randn(30, 40):t() end } do
      local x, y = make(), cnn.zeros_like(make()):to("cuda")
      local bytes = cuda.memory_stats().requested_bytes.total
      local counts = cnn.count_launches(function() y:copy_(x) end)
      assert.equal(bytes, cuda.memory_stats().requested_bytes.total)
      assert.equal(0, counts.kernels)
      local z = cnn.zeros_like(x)
      z:copy_(y)
      assert.is_true(same(x, z))
    end
  end)

  it("do without buffers of their own where there is no memory for them", function()
    if not sim then return end
    cuda.shutdown { force = true }
    cnn.ones(1, on):free()
    local x = cnn.arange(200000)
    local there = cnn.zeros(200000, on)
    sim.sim_fail_alloc(1) -- the first buffer
    there:copy_(x)
    sim.sim_fail_alloc(0)
    x:fill_(0)
    assert.equal(199999, there:max():item())
    sim.sim_fail_alloc(3)
    x:copy_(there)
    sim.sim_fail_alloc(0)
    assert.equal(199999, x:max():item())
  end)
end)

describe("cuda.shutdown", function()
  local function used() return sim and tonumber(sim.sim_device_used(0)) or 0 end

  it("gives back all that the process had of the device", function()
    cuda.shutdown { force = true }
    local objects = sim and tonumber(sim.sim_live_objects())
    for _ = 1, 2 do
      assert.equal(0, used())
      local free
      do
        local step = learner()
        free = cuda.mem_get_info()
        step()
        local s = cuda.Stream()
        cuda.stream(s, function() return cnn.ones(10, on) + 1 end)
        local big = cnn.randn(400000):to("cuda")
        cnn.randn(100):pin_memory():to("cuda", { non_blocking = true })
        s:wait_event(cuda.Event():record())
        assert.is_true(cuda.mem_get_info() <= free and big:numel() > 0)
      end
      settle()
      cuda.shutdown()
      assert.equal(0, used())
      if sim then assert.equal(objects, tonumber(sim.sim_live_objects())) end
    end
    cuda.shutdown() -- of nothing
    assert.equal(0, used())
    cnn.ones(3):sum() -- and what the CPU does brings nothing back
    assert.equal(0, used())
    assert.equal(3, cnn.ones(3, on):sum():item())
  end)

  it("refuses while tensors are there, and says how many", function()
    settle()
    local x = cnn.ones(100, on)
    local message = helper.message(cuda.shutdown)
    assert.truthy(message:find("cuda%.shutdown: %d+ tensors with %d+ bytes are still on cuda:0 %(cnn%.live"), message)
    assert.equal(100, x:sum():item())
    helper.raises("unknown option \"forced\"", cuda.shutdown, { forced = true })
    helper.raises("force: expected true or false", cuda.shutdown, { force = 1 })
  end)

  it("by force loses them, and each says so", function()
    local model = nn.Linear(3, 3):to("cuda")
    local x = cnn.ones(2, 3, on):requires_grad_()
    local loss, view = model(x):sum(), x[1]
    local stream, event = cuda.Stream(), cuda.Event():record()
    local pool = cnn.pool { device = "cuda", limit = 2 ^ 26, name = "kept" }
    local inside = cnn.with_pool(pool, cnn.ones, 10, on)
    local pinned = cnn.arange(100):pin_memory()
    local kernel = cuda.kernel("extern \"C\" __global__ void f(float *x) { x[0] = 1; }", "f")
    cuda.set_stream(stream)
    cuda.shutdown { force = true }
    assert.equal(0, used())
    local gone = "was on cuda:0, and its memory went with cnn.cuda.shutdown()"
    helper.raises("add: x " .. gone, function() return x + 1 end)
    helper.raises(gone, function() return view:cpu() end)
    helper.raises(gone, function() return loss:item() end)
    helper.raises(gone, function() loss:backward() end)
    helper.raises(gone, function() return inside:sum() end)
    helper.raises(gone, function() return inside:data_ptr() end)
    helper.raises(gone, function() x.data:zero_() end)
    helper.raises(gone, function() return tostring(x) end)
    helper.raises(gone, function() return model:to("cpu") end)
    helper.raises("it went with cnn.cuda.shutdown()", stream.synchronize, stream)
    helper.raises("it went with cnn.cuda.shutdown()", event.query, event)
    helper.raises("it went with cnn.cuda.shutdown()", kernel, { grid = 1, block = 1 }, x)
    helper.raises("with_pool: pool \"kept\" went with cnn.cuda.shutdown()", cnn.with_pool, pool, cnn.ones, 3, on)
    -- Pinned memory is ordinary memory now.
    assert.is_false(pinned:is_pinned())
    assert.equal(99, pinned[-1]:item())
    -- And afresh.
    assert.is_true(cuda.current_stream() == cuda.default_stream())
    assert.equal(99, pinned:pin_memory():to("cuda", { non_blocking = true }):max():item())
    local before = cuda.memory_allocated()
    local y = cnn.ones(4, on)
    x:free()
    inside:free()
    assert.equal(before + 256, cuda.memory_allocated())
    assert.equal(4, y:sum():item())
  end)

  it("within cuda.stream leaves the default one", function()
    local s = cuda.Stream()
    cuda.stream(s, cuda.stream, cuda.Stream(), function() cuda.shutdown { force = true } end)
    assert.is_true(cuda.current_stream() == cuda.default_stream())
    assert.equal(2, cnn.ones(2, on):sum():item())
  end)

  it("raises first what a kernel has reported", function()
    local x, bad = cnn.ones(3, on), cnn.tensor({ 7 }, { dtype = "int64" }):to("cuda")
    local y = x:index_select(1, bad)
    helper.raises("index_select: index 7 is out of range", cuda.shutdown)
    assert.equal(3, x:sum():item())
    y:free()
    x:free()
    bad:free()
    settle()
    cuda.shutdown { force = true }
  end)

  it("heals a device that has failed", function()
    if not sim then return end
    local x = cnn.ones(3, on)
    sim.sim_poison_device(0, 700)
    helper.raises("illegal memory access", function() return (x + 1):cpu() end)
    helper.raises("tensors with", cuda.shutdown) -- theirs is lost anyway, but that must be said
    cuda.shutdown { force = true }
    assert.equal(3, cnn.ones(3, on):sum():item())
    helper.raises("went with", function() return x + 1 end)
  end)

  it("is safe where the first use fails", function()
    if not sim then return end
    for n = 1, 3 do
      cuda.shutdown { force = true }
      sim.sim_fail_alloc(n)
      pcall(cnn.ones, 3, on)
      sim.sim_fail_alloc(0)
      assert.equal(3, cnn.ones(3, on):sum():item())
    end
  end)
end)

if sim then
  describe("the simulator", function()
    it("has found no fault", function()
      assert.same({ "", 0 }, { helper.reports() })
    end)
  end)
end
