-- SPDX-License-Identifier: MIT
-- Two GPUs: copies between them, events and streams across, a model split over both, and what each counts
-- for itself. On the simulator there are two as soon as they are asked for.
local cnn = require "cnn"
local helper = require "spec.helper"
local cuda, nn, optim = cnn.cuda, cnn.nn, cnn.optim

local sim = helper.simulator()
if sim and os.getenv "SIM_DEVICES" == nil then sim.sim_set_devices(2) end

if cuda.device_count() < 2 then
  describe("two GPUs", function()
    it("can't be tried here", function() assert.is_true(cuda.device_count() < 2) end)
  end)
  return
end

local first, second = { device = "cuda:0" }, { device = "cuda:1" }

local function same(a, b) return a:eq(b):all():item() end

describe("one of two GPUs", function()
  it("alone is used when the other is not asked for", function()
    assert.equal(6, (cnn.ones(3, second) * 2):sum():item())
    for _ = 1, 200 do cnn.ones(1e5, second) end -- the collector looks at every GPU's memory
    if sim then assert.equal(0, tonumber(sim.sim_device_used(0))) end
    local x = cnn.ones(3):pin_memory()
    assert.equal(3, x:to("cuda:1", { non_blocking = true }):sum():item())
    if sim then assert.equal(0, tonumber(sim.sim_device_used(0))) end
  end)

  it("is described by itself", function()
    for d = 0, cuda.device_count() - 1 do
      assert.is_true(cuda.get_device_properties(d).total_memory > 0)
      assert.equal(cuda.get_device_name(d), cuda.get_device_name("cuda:" .. d))
    end
    helper.raises("not available: there are", cuda.get_device_name, 15)
  end)

  it("is the one that is set, until another is", function()
    assert.equal(0, cuda.current_device())
    cuda.set_device(1)
    assert.equal(1, cuda.current_device())
    assert.equal("cuda:1", cuda.Stream():device())
    assert.equal("cuda:1", cuda.current_stream():device())
    cuda.set_device "cuda:0"
    assert.equal("cuda:0", cuda.Stream():device())
    helper.raises("is not available", cuda.set_device, 15)
    assert.equal(0, cuda.current_device())
  end)

  it("counts its own memory, and has its own limit", function()
    helper.settle()
    local a, b = cuda.memory_allocated(0), cuda.memory_allocated(1)
    local x = cnn.ones(1024, second)
    assert.equal(a, cuda.memory_allocated(0))
    assert.equal(b + 4096, cuda.memory_allocated(1))
    assert.is_true(cuda.max_memory_allocated(1) >= b + 4096)
    cuda.set_per_process_memory_fraction(0, 1)
    assert.equal(1024, cnn.ones(1024, first):sum():item())
    helper.raises("out of memory on cuda:1", cnn.ones, 2 ^ 22, second)
    cuda.set_per_process_memory_fraction(1, 1)
    x:free()
    cuda.empty_cache(1)
    assert.equal(b, cuda.memory_allocated(1))
    assert.is_true(tostring(cuda.memory_summary(1)):find("cuda:1", 1, true) ~= nil)
  end)

  it("answers for its own kernels' errors, and the other goes on", function()
    local x, bad = cnn.ones(3, second), cnn.tensor({ 9 }, { dtype = "int64" }):to("cuda:1")
    local y = x:index_select(1, bad)
    local z = cnn.ones(4, first) + 1
    cnn.synchronize "cuda:0"
    assert.equal(8, z:sum():item())
    helper.raises("index 9 is out of range", cnn.synchronize, "cuda:1")
    assert.equal(3, x:sum():item() + y:numel() - 1)
  end)

  it("does not take the other's tensors", function()
    local x, y = cnn.ones(3, first), cnn.ones(3, second)
    helper.raises("x is on cuda:0 but y is on cuda:1", cnn.add, x, y)
    assert.equal(6, (x + y:to("cuda:0")):sum():item()) -- and no harm is done
    assert.equal(6, (x:to(y) + y):sum():item())
    helper.raises("event is of cuda:0, the stream of cuda:1", function()
      local e = cuda.Event():record(cuda.default_stream(0))
      e:record(cuda.default_stream(1))
    end)
  end)
end)

describe("copies between two GPUs", function()
  local DTYPES = { "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool" }

  it("keep every dtype and layout, there and back", function()
    helper.each_schedule(function()
      for _, dtype in ipairs(DTYPES) do
        local x = cnn.arange(120):remainder(dtype == "bool" and 2 or 100):to(dtype):view(4, 5, 6)
        for _, view in ipairs { x, x:transpose(1, 3), x[{ {}, { 2, 4 } }], x[{ 1 }]:expand(3, 5, 6), x:narrow(1, 1, 0),
          x[{ 2, 3, 4 }] } do
          local there = view:to("cuda:0"):to { device = "cuda:1", non_blocking = true }
          assert.equal("cuda:1", there.device)
          local back = there:to "cuda:0"
          assert.is_true(same(back:cpu(), view))
          -- A view of what lies there, into a view of what lies here, converting.
          local part = x:to("cuda:0"):transpose(1, 3):to "cuda:1"
          assert.is_true(same(part:cpu(), x:transpose(1, 3)))
        end
        local y = cnn.zeros(6, 5, 4, { device = "cuda:1" })
        y:transpose(1, 3):copy_(x:to "cuda:0")
        assert.is_true(same(y:cpu(), x:transpose(1, 3):float()))
      end
    end)
  end)

  it("are ordered with the work on either side", function()
    helper.each_schedule(function()
      for i = 1, 5 do
        local x = cnn.full({ 3000 }, i, first)
        local there = x:to "cuda:1"
        x:fill_(-1) -- behind the copy
        x:free()
        cnn.full({ 3000 }, 77, first):free()
        local back = (there * 2):to "cuda:0"
        there:zero_()
        assert.equal(6000 * i, back:sum():item())
        -- Into memory that the other side still reads.
        local y = cnn.full({ 3000 }, 5, second)
        local twice = y * 2
        y:copy_(back)
        assert.equal(30000, twice:sum():item())
        assert.equal(6000 * i, y:sum():item())
      end
    end)
  end)

  it("go from stream to stream", function()
    helper.each_schedule(function()
      local a, b = cuda.Stream(first), cuda.Stream(second)
      local got = cuda.stream(a, cuda.stream, b, function()
        local x = cnn.full({ 3000 }, 3, first) * 2
        return (x:to("cuda:1") + 1):sum()
      end)
      b:synchronize()
      assert.equal(21000, got:item())
    end)
  end)

  it("wait for events of the other", function()
    helper.each_schedule(function()
      local a, b = cuda.Stream(first), cuda.Stream(second)
      local x = cnn.zeros(2000, first)
      local pinned = cnn.zeros(2000):pin_memory()
      a:wait_stream(cuda.current_stream(0))
      cuda.stream(a, function()
        x:add_(1):mul_(5)
        pinned:copy_(x, true)
      end)
      b:wait_event(a:record_event())
      local y = cuda.stream(b, function() return pinned:to("cuda:1", { non_blocking = true }) end)
      cuda.default_stream(1):wait_stream(b)
      assert.equal(10000, y:sum():item())
      assert.equal(10000, pinned:sum():item())
    end)
  end)

  it("find memory on the other, or say so, and go on", function()
    helper.settle()
    local x = cnn.ones(2 ^ 20, first)
    cuda.empty_cache(1)
    cnn.set_memory_limit(cuda.memory_reserved(1) + 2 * 2 ^ 20, "cuda:1")
    helper.raises("out of memory on cuda:1: 4.0 MiB asked for", x.to, x, "cuda:1")
    cnn.set_memory_limit(nil, "cuda:1")
    assert.equal(2 ^ 20, x:to("cuda:1"):sum():item())
    assert.equal(2 ^ 20 * 2, (x + 1):sum():item())
  end)
end)

-- Two layers on each GPU; `where` says on which, for the parts of one model.
local function split_model(where)
  cnn.manual_seed(3)
  local Split = nn.Module:extend "Split"
  function Split:init()
    self.a = nn.Sequential(nn.Linear(8, 16), nn.Tanh())
    self.b = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    self.c = nn.Linear(32, 4)
  end
  function Split:forward(x)
    local h = self.a(x)
    local k = self.b(h:to(where[2])):to(where[1])
    return self.c(cnn.cat({ h, k }, 2))
  end
  local model = Split()
  model.a:to(where[1])
  model.b:to(where[2])
  model.c:to(where[1])
  return model
end

local function train(where, optimizer)
  local model = split_model(where)
  local opt = optimizer(model:parameters())
  local x, y = cnn.randn(12, 8):to(where[1]), cnn.randint(1, 5, { 12 }):to(where[1])
  local losses = {}
  for i = 1, 6 do
    opt:zero_grad()
    local loss = cnn.F.cross_entropy(model(x), y)
    loss:backward()
    nn.utils.clip_grad_norm_(model:parameters(), 1.0)
    opt:step()
    losses[i] = loss:item()
  end
  return losses, model, opt
end

describe("a model over two GPUs", function()
  it("trains to the CPU's losses", function()
    for _, optimizer in ipairs {
      function(p) return optim.AdamW(p, { lr = 0.01 }) end,
      function(p) return optim.SGD(p, { lr = 0.1, momentum = 0.9 }) end,
    } do
      local expected = train({ "cpu", "cpu" }, optimizer)
      helper.each_schedule(function()
        local losses, model, opt = train({ "cuda:0", "cuda:1" }, optimizer)
        for i, loss in ipairs(losses) do assert.is_true(helper.near(expected[i], loss, 1e-4), loss) end
        local w = model.b[1].weight
        assert.equal("cuda:1", w.grad.device)
        assert.equal("cuda:1", (opt.state[w].exp_avg or opt.state[w].momentum_buffer).device)
      end)
    end
  end)

  it("is saved and loaded anywhere", function()
    local _, model, opt = train({ "cuda:0", "cuda:1" }, function(p) return optim.AdamW(p, { lr = 0.01 }) end)
    local folder = helper.folder()
    local path = folder .. "/split.safetensors"
    cnn.save(path, { model = model:state_dict(), optimizer = opt:state_dict() })
    local other = split_model { "cuda:1", "cuda:0" }
    other:load_state_dict(cnn.load(path).model)
    for name, t in pairs(other:state_dict()) do
      assert.is_true(same(t:cpu(), model:state_dict()[name]:cpu()), name)
    end
    assert.equal("cuda:1", other.a[1].weight.device)
    local loaded = cnn.load(path, { device = "cuda:1" })
    for _, t in pairs(loaded.model) do assert.equal("cuda:1", t.device) end
    local again = optim.AdamW(other:parameters(), { lr = 0.01 })
    again:load_state_dict(loaded.optimizer)
    assert.equal("cuda:0", again.state[other.b[1].weight].exp_avg.device)
    os.execute("rm -r " .. folder)
  end)
end)

describe("cuda.shutdown of two GPUs", function()
  it("gives both back", function()
    local x = cnn.ones(3, second)
    helper.raises("are still on cuda:1", cuda.shutdown)
    x:free()
    helper.settle()
    cuda.shutdown { force = true }
    if sim then assert.equal(0, tonumber(sim.sim_device_used(0) + sim.sim_device_used(1))) end
    assert.equal(4, cnn.ones(4, first):to("cuda:1"):sum():item())
  end)
end)

if sim then
  describe("the simulator", function()
    it("has found no fault", function()
      assert.same({ "", 0 }, { helper.reports() })
    end)
  end)
end
