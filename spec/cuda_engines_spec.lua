-- SPDX-License-Identifier: MIT
-- GPUs' libraries and the plugin's door: what is told when something is missing, too old or of another
-- build, and that own kernels compute then. On the simulator, whose libraries can be told to fail.
local cnn = require "cnn"
local helper = require "spec.helper"
local cuda = cnn.cuda

if not cuda.is_available() or not cuda.is_simulated() then return end

local plugin = os.getenv "CNN_CUDA_PLUGIN"
local unpack = table.unpack or unpack -- luacheck: ignore

-- What a script prints in a process of its own, in an environment.
local function run(environment, script)
  return (helper.run("local cnn = require 'cnn'\nlocal cuda = cnn.cuda\n" .. script, environment))
end

-- A product, a linear layer and a convolution with their gradients, against the CPU.
local WORK = [[
  local function work(device)
    cnn.manual_seed(1)
    local list, sums = {}, {}
    local function new(...)
      local t = cnn.randn(...):to(device):detach():requires_grad_()
      list[#list + 1] = t
      return t
    end
    local y = cnn.linear(new(5, 30), new(16, 30), new(16)):matmul(new(16, 3))
    local z = cnn.conv2d(new(2, 3, 8, 8), new(4, 3, 3, 3), new(4), 1, 1)
    local loss = y:square():sum() + z:square():sum()
    loss:backward()
    for i, t in ipairs(list) do sums[i] = t.grad:cpu() end
    return sums
  end
  local cpu, gpu = work "cpu", work "cuda"
  for i, g in ipairs(cpu) do
    assert((gpu[i] - g):abs():max():item() <= 1e-4 * g:abs():max():item(), i)
  end
]]

describe("libraries of a GPU", function()
  it("are told with their versions", function()
    for name, l in pairs(cuda.libraries()) do
      assert.truthy(l.version and l.version:find "^%d+%.%d+", name)
      assert.is_nil(l.reason)
    end
    assert.truthy(cuda.libraries().cublaslt and cuda.libraries().cudnn and cuda.libraries().nvrtc)
  end)

  for mode, words in pairs {
    ["SIM_LIBRARIES=missing"] = { "NOT_INITIALIZED", "the library is missing" },
    ["CNN_CUDA_LIBRARIES=none"] = { "CNN_CUDA_LIBRARIES=none", "CNN_CUDA_LIBRARIES=none" },
  } do
    it("are told with what is wrong, and own kernels compute: " .. mode, function()
      local text = run(mode, WORK .. [[
        local l = cuda.libraries()
        print(l.cublaslt.reason, l.cudnn.reason, l.cublaslt.version or l.cudnn.version)
      ]])
      assert.truthy(text:find(words[1], 1, true) and text:find(words[2], 1, true) and text:find("nil", 1, true), text)
    end)
  end

  it("that have no algorithm leave the work to own kernels", function()
    assert.equal("done\n", run("SIM_LIBRARIES=refusing", WORK .. "print 'done'"))
  end)

  it("that lacked memory are tried again", function()
    assert.equal("ALLOC_FAILED true\nALLOC_FAILED true\n nil\n", run("SIM_LIBRARIES=exhausted", [[
      for _ = 1, 3 do
        local l = cuda.libraries()
        print((l.cublaslt.reason or ""):match "[%u_]*$" .. " " .. tostring(l.cudnn.reason and true))
      end
    ]]):gsub("CUBLAS_STATUS_", ""))
  end)
end)

describe("kernels of one's own", function()
  local source = [[
    extern "C" __global__ void twice(const float *x, float *y, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) y[i] = 2 * x[i];
    }]]

  it("are compiled for an older GPU where NVRTC doesn't know this one", function()
    assert.equal("6\n", run("SIM_NVRTC=80", ("local k = cuda.kernel([[%s]], 'twice')"):format(source) .. [[
      local x, y = cnn.ones(3, { device = "cuda" }), cnn.zeros(3, { device = "cuda" })
      k({ grid = 1, block = 32 }, x, y, 3)
      print(y:sum():item())
    ]]))
  end)
end)

describe("cnn.cuda", function()
  it("checks devices", function()
    for _, name in ipairs { "memory_allocated", "memory_stats", "mem_get_info", "empty_cache", "synchronize",
      "get_device_properties", "get_device_name", "get_device_capability", "set_device", "current_stream",
      "default_stream", "libraries", "reset_peak_memory_stats", "memory_snapshot" } do
      helper.raises("cuda." .. name, cuda[name], {})
      helper.raises("expected a GPU's number or name", cuda[name], "cpu")
      helper.raises("is not available: there", cuda[name], 9)
      helper.raises("GPUs have numbers from 0 on, got -1", cuda[name], -1)
      helper.raises("GPUs have numbers from 0 on, got 0.5", cuda[name], 0.5)
    end
    helper.raises("unknown device", cuda.memory_allocated, "cuda:x")
    helper.raises("expected a function", cuda.device, 0, 1)
    helper.raises("oops", cuda.device, 0, function() error "oops" end)
    helper.raises("priority must be an integer, got the string \"low\"", cuda.Stream, { priority = "low" })
    helper.raises("unknown option \"prority\"", cuda.Stream, { prority = 1 })
    helper.raises("expected a number from 0 to 1", cuda.set_per_process_memory_fraction, 2)
    helper.raises("expected a stream", cuda.set_stream, 1)
    helper.raises("argument 1 (fn)", cuda.count_launches, 1)
    helper.raises("record: expected a stream", function() cuda.Event():record(1) end)
    helper.raises("wait_event: expected an event", function() cuda.Stream():wait_event(1) end)
  end)

  it("draws from the generator of all", function()
    cuda.manual_seed_all(7)
    local a = cnn.rand(3)
    cuda.manual_seed(7)
    assert.is_true(a:eq(cnn.rand(3, { device = "cuda" }):cpu()):all():item())
    assert.equal(cuda.get_device_capability() >= 8, cuda.is_bf16_supported())
  end)

  it("measures no time between GPUs", function()
    assert.truthy(run("SIM_DEVICES=2", [[
      local a, b = cuda.Event { enable_timing = true }, cuda.Event { enable_timing = true }
      a:record(cuda.current_stream(0))
      b:record(cuda.current_stream(1))
      print(pcall(a.elapsed_time, a, b))
    ]]):find("elapsed_time: the events are of cuda:0 and cuda:1", 1, true))
  end)

  it("means one GPU by \"cuda\"", function()
    assert.equal("cuda:1 1 cuda:1 cuda:0 cuda:1\n", run("SIM_DEVICES=2", [[
      local function where() return cnn.zeros(1, { device = "cuda" }).device end
      cuda.set_device(1)
      local a, b, c = where(), cuda.current_device(), cnn.ones(1):cuda().device
      print(a, b, c, cuda.device(0, where), where())
    ]]):gsub("\t", " "))
  end)
end)

describe("the plugin", function()
  local function reason(environment)
    return run(environment, [[
      local ok, why = cuda.is_available()
      assert(ok == false and cuda.device_count() == 0)
      assert(select(2, pcall(cnn.zeros, 1, { device = "cuda" })):find("not available: " .. why, 1, true))
      for _, f in ipairs { cuda.Event, cuda.synchronize, cuda.memory_allocated, cuda.get_device_name, cuda.Stream } do
        assert(select(2, pcall(f)):find(why, 1, true))
      end
      print(why)
    ]])
  end

  it("says why it can't be used", function()
    for environment, why in pairs {
      ["CNN_CUDA_PLUGIN=none"] = "the environment switches it off",
      ["CNN_CUDA_PLUGIN=/nowhere/x.so"] = "there is no /nowhere/x.so",
      ["CNN_CUDA_PLUGIN=/dev/null"] = "can't be loaded",
      ["SIM_DEVICES=0"] = "there is a driver, but no GPU that it serves",
      ["CUDA_VISIBLE_DEVICES="] = "there is a driver, but no GPU that it serves",
      ["SIM_DRIVER=0"] = "there is no NVIDIA driver",
      ["SIM_DRIVER=11040"] = "the NVIDIA driver is too old: it serves CUDA 11.4, this is CUDA ",
    } do
      assert.truthy(reason(environment):find(why, 1, true), environment .. ": " .. reason(environment))
    end
  end)

  it("refuses the core of another build", function()
    local has_ffi, ffi = pcall(require, "ffi")
    if not has_ffi then return end
    ffi.cdef [[
      typedef struct { int abi, op_count; uint64_t names; size_t sizes[3]; void *functions[3]; } spec_cuda_host;
      const char *cnn_driver_open(const spec_cuda_host *host, void *driver);
    ]]
    local library, host = ffi.load(plugin), ffi.new "spec_cuda_host"
    local function open() return ffi.string(library.cnn_driver_open(host, ffi.new("char[4096]"))) end
    assert.truthy(open():find("of another version than the core: build both anew", 1, true))
  end)
end)

-- ---------------------------------------------------------------------------------------------
-- What libraries take along

describe("a layer and what follows it", function()
  local nn = cnn.nn

  -- What fn launched, by op: { op = kernels }.
  local function launches(fn)
    local counts = cuda.count_launches(fn)
    local by_op = {}
    for name, c in pairs(counts.by_op) do
      if c.kernels > 0 then by_op[name] = c.kernels end
    end
    return by_op
  end

  local function gelu() return nn.GELU { approximate = "tanh" } end

  it("is one call of cuBLASLt, and so is each gradient", function()
    local model = nn.Sequential(nn.Linear(16, 32), gelu(), nn.Linear(32, 8)):to("cuda")
    local x = cnn.randn(4, 16):to("cuda"):requires_grad_()
    local y
    assert.same({ linear_gelu_kept = 1, linear = 1 }, launches(function() y = model(x) end))
    local dy = cnn.ones_like(y)
    assert.same({ linear_backward_gelu = 1, linear_backward_weight = 2, matmul = 1 },
      launches(function() y:backward(dy) end))
    assert.same({ linear_gelu = 1, linear = 1 }, launches(function() cnn.no_grad(model, x) end))
    -- GELU's argument is kept in rows of whole 16 bytes
    model = nn.Sequential(nn.Linear(16, 30), gelu()):to("cuda")
    assert.same({ linear_gelu_kept = 2 }, launches(function() model(x) end))
  end)

  it("goes by its parts where the library has no algorithm", function()
    assert.equal("3 2 2\n", run("SIM_LIBRARIES=refusing", [[
      local nn = cnn.nn
      local model = nn.Sequential(nn.Linear(16, 32), nn.GELU { approximate = "tanh" }, nn.Linear(32, 8)):to("cuda")
      local x = cnn.randn(4, 16):to("cuda")
      local by_op = cuda.count_launches(function() model(x):sum():backward() end).by_op
      print(by_op.linear_gelu_kept.kernels, by_op.linear.kernels, by_op.linear_backward_gelu.kernels)
    ]]):gsub("\t", " "))
  end)

  it("has its ReLU in it only by leave: the library's ReLU of NaN is 0", function()
    local model = nn.Sequential(nn.Linear(4, 8), nn.ReLU()):to("cuda")
    local conv = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU()):to("cuda")
    local x, image = cnn.randn(3, 4):to("cuda"), cnn.randn(2, 1, 5, 5):to("cuda")
    assert.is_false(cuda.fuse_relu())
    assert.same({ linear_relu = 2 }, launches(function() model(x) end))
    assert.same({ conv2d_relu = 2 }, launches(function() conv(image) end))
    local y, z = model(x):detach():cpu(), conv(image):detach():cpu()
    assert.is_true(model(x * (0 / 0)):isnan():all():item())
    assert.is_false(cuda.fuse_relu(true))
    assert.same({ linear_relu = 1 }, launches(function() model(x) end))
    assert.same({ conv2d_relu = 1 }, launches(function() conv(image) end))
    assert.is_true((model(x):detach():cpu() - y):abs():max():item() < 1e-6)
    assert.is_true((conv(image):detach():cpu() - z):abs():max():item() < 1e-5)
    assert.is_true(cuda.fuse_relu(false))
  end)

  it("gives the same with the library's ReLU, in any form", function()
    local function both(fn)
      local a = fn()
      cuda.fuse_relu(true)
      local b = fn()
      cuda.fuse_relu(false)
      for i, x in ipairs(a) do
        assert.is_true((x:double() - b[i]:double()):abs():max():item() <= 1e-4 * (1 + x:double():abs():max():item()))
      end
    end
    local function train(model, x)
      model:zero_grad()
      local y = model(x)
      y:backward(cnn.ones_like(y))
      local list = { y:detach():cpu() }
      for _, p in ipairs(model:parameters()) do list[#list + 1] = p.grad:cpu() end
      return list
    end
    cnn.manual_seed(8)
    for _, o in ipairs { { stride = 1 }, { stride = 2, padding = 1 }, { groups = 2 }, { bias = false },
      { dilation = 2 }, { padding = "same" } } do
      local model = nn.Sequential(nn.Conv2d(4, 6, 3, o), nn.ReLU()):to("cuda")
      for _, format in ipairs { "contiguous", "channels_last" } do
        local x = cnn.randn(2, 4, 9, 8):to("cuda")
        if format == "channels_last" then x = x:contiguous(format) end
        both(function() return train(model, x) end)
      end
    end
    for _, shape in ipairs { { 5, 8 }, { 8 }, { 2, 3, 8 }, { 1, 8 } } do
      local last = nn.Linear(7, 3, { bias = false })
      local model = nn.Sequential(nn.Linear(8, 7), nn.ReLU(), last, nn.ReLU()):to("cuda")
      local x = cnn.randn(shape):to("cuda")
      both(function() return train(model, x) end)
    end
  end)

  it("is fused in half types with sums in float", function()
    local k = 2048
    local model = nn.Sequential(nn.Linear(k, 8), gelu()):to("cuda"):to("float16")
    model[1].weight:detach():fill_(1)
    model[1].bias:detach():fill_(0)
    -- 2048 ones and one more: in float16 the sum stops at 2048
    local x = cnn.ones(1, k):to("float16"):to("cuda")
    x[{ 1, 1 }] = 3
    assert.equal(2050, cnn.no_grad(model, x)[{ 1, 1 }]:item())
  end)
end)

describe("products", function()
  local function kernels(fn)
    local result
    local counts = cuda.count_launches(function() result = fn() end)
    return counts.kernels, result
  end

  local function alike(a, b)
    return (a:cpu():double() - b:double()):abs():max():item() <= 1e-4 * math.max(1, b:double():abs():max():item())
  end

  -- What fn gives on the GPU, against the CPU; and how many kernels that takes.
  local function expect(count, fn, ...)
    local there, here = {}, { ... }
    for i, t in ipairs(here) do there[i] = t:to("cuda") end
    local n, result = kernels(function() return fn(unpack(there)) end)
    assert.equal(count, n)
    assert.is_true(alike(result, fn(unpack(here))))
  end

  it("of matrices in any layout and of any rank are one call", function()
    local a, b = cnn.randn(12, 20), cnn.randn(20, 9)
    expect(1, function(x, y) return x:matmul(y) end, a, b)
    expect(1, function(x, y) return x:t():matmul(y:t()) end, cnn.randn(20, 12), cnn.randn(9, 20))
    expect(1, function(x, y) return x[{ { 2, 11 }, { 3, 18 } }]:matmul(y[{ { 1, 16 }, { 4, 9 } }]) end, a, b)
    expect(1, function(x, y) return x[{ {}, 3 }]:matmul(y) end, cnn.randn(20, 7), b) -- a strided vector
    expect(1, function(x, y) return x:matmul(y) end, cnn.randn(20), cnn.randn(20))
    expect(1, function(x, y) return x:matmul(y) end, cnn.randn(6, 12, 20), cnn.randn(6, 20, 9))
    expect(1, function(x, y) return x:matmul(y) end, cnn.randn(2, 3, 12, 20), b) -- batch dims as rows
    expect(1, function(x, y) return x:transpose(2, 3):matmul(y) end, cnn.randn(6, 20, 12), b:expand(6, 20, 9))
    expect(4, function(x, y) return x:matmul(y) end, cnn.randn(4, 1, 5, 6), cnn.randn(3, 6, 2)) -- a call for each of 4
    expect(1, function(x, y, z) return z:addmm(x, y, 0.5, 2) end, a, b, cnn.randn(12, 9))
    expect(2, function(x, y, z) return z:addmm(x, y, 0.5, 2) end, a, b, cnn.randn(9))
    expect(1, function(x, y, z) return z:baddbmm(x, y, 0.5, 2) end, cnn.randn(5, 3, 4), cnn.randn(5, 4, 6),
      cnn.randn(5, 3, 6))
    expect(1, function(x, y) return cnn.einsum("bij,bjk->bik", x, y) end, cnn.randn(3, 4, 5), cnn.randn(3, 5, 6))
  end)

  it("of what is no matrix to the library are made dense first, if they are large", function()
    local a, b = cnn.randn(128, 256), cnn.randn(128, 128)
    local function every_second(x) return x[{ {}, { 1, -1, 2 } }] end
    expect(2, function(x, y) return every_second(x):matmul(y) end, a, b)
    expect(2, function(x, y) return y:matmul(every_second(x)) end, a, b)
    expect(3, function(x, y, z) return z:addmm(every_second(x), every_second(y), 2) end, a, cnn.randn(128, 256), b)
    expect(2, function(x, y) return cnn.linear(y, every_second(x)) end, a, b)
    -- overlapping windows
    expect(2, function(x, y) return x:unfold(1, 128, 1):matmul(y) end, cnn.randn(255), b)
    expect(1, function(x, y) return every_second(x):matmul(y) end, cnn.randn(4, 8), cnn.randn(4, 4)) -- by an own kernel
  end)

  it("take views that begin anywhere", function()
    for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
      local flat, w = cnn.randn(200):to(dtype), cnn.randn(7, 5):to(dtype)
      for offset = 0, 3 do
        local x, y = flat:narrow(1, 1 + offset, 35):view(5, 7), flat:to("cuda"):narrow(1, 1 + offset, 35):view(5, 7)
        local err = (y:matmul(w:to("cuda")):cpu():double() - x:matmul(w):double()):abs():max():item()
        assert.is_true(err <= ({ float64 = 1e-12, float32 = 1e-5, float16 = 2e-2, bfloat16 = 0.2 })[dtype])
      end
    end
  end)

  it("add a bias that begins anywhere", function()
    local x, w, flat = cnn.randn(5, 7):half(), cnn.randn(8, 7):half(), cnn.randn(12):half()
    for offset = 1, 4 do
      expect(1, function(a, b, c) return cnn.linear(a, b, c:narrow(1, offset, 8)) end, x, w, flat)
    end
  end)

  it("round to TF32 only by leave", function()
    local x = cnn.full({ 8, 8 }, 1 + 2 ^ -12, { device = "cuda" })
    local exact = x:matmul(x)[{ 1, 1 }]:item()
    assert.is_false(cuda.allow_tf32(true))
    local rounded = x:matmul(x)[{ 1, 1 }]:item()
    assert.is_true(cuda.allow_tf32(false))
    assert.is_true(exact > 8 and rounded == 8)
    assert.equal(exact, x:matmul(x)[{ 1, 1 }]:item())
  end)

  it("of integers wrap around, of nothing are 0", function()
    expect(1, function(x, y) return x:matmul(y) end, cnn.full({ 3, 4 }, 2 ^ 30, { dtype = "int32" }),
      cnn.full({ 4, 2 }, 3, { dtype = "int32" }))
    expect(1, function(x, y) return x:matmul(y) end, cnn.ones(3, 0), cnn.ones(0, 2))
  end)
end)

describe("short memory", function()
  it("leaves products and convolutions to ways with less workspace", function()
    -- Workspaces of the stand-ins take a KiB and more. Here holes are left that hold the results alone.
    assert.equal("done\n", run("SIM_LIBRARIES=whole", [[
      local a, b = cnn.randn(8, 64), cnn.randn(64, 8)
      local x, w, c = cnn.randn(1, 2, 5, 5), cnn.randn(2, 2, 3, 3), cnn.randn(2)
      local function work(device, p)
        local q = {}
        for i, t in ipairs(p) do q[i] = t:to(device):detach():requires_grad_() end
        local A, B, X, W, C = (table.unpack or unpack)(q)
        return function() return A:matmul(B), cnn.conv2d(X, W, C) end
      end
      local here, there = work("cpu", { a, b, x, w, c }), work("cuda", { a, b, x, w, c })
      local e1, e2 = here()
      local results = {}
      there() -- what is found once
      collectgarbage() collectgarbage()
      cnn.empty_cache "cuda"
      cnn.set_memory_limit(cuda.memory_reserved(), "cuda")
      local fill = {}
      for _, size in ipairs { 2 ^ 20, 2 ^ 16, 2 ^ 12, 2 ^ 10, 2 ^ 9, 2 ^ 8 } do
        while pcall(function() fill[#fill + 1] = cnn.empty(size / 4, { device = "cuda" }) end) do end
      end
      -- room for the two results, and a little more: for cuDNN's way with the least workspace, or for none
      for _, holes in ipairs { 3, 2 } do
        while holes > 0 do
          table.remove(fill):free()
          holes = holes - 1
        end
        local y1, y2 = there()
        while pcall(function() fill[#fill + 1] = cnn.empty(64, { device = "cuda" }) end) do end
        results[#results + 1] = { y1, y2 }
      end
      cnn.set_memory_limit(2 ^ 32, "cuda")
      for _, r in ipairs(results) do
        assert((r[1]:cpu() - e1):abs():max():item() < 1e-4 and (r[2]:cpu() - e2):abs():max():item() < 1e-4)
      end
      print "done"
    ]]))
  end)
end)
