-- SPDX-License-Identifier: MIT
-- cnn.save_on_cpu: saved tensors in a file. Gradients to the bit, the pool's bytes gone, errors clean.
local cnn = require "cnn"
local helper = require "spec.helper"
local nn, F = cnn.nn, cnn.F

local function activations() return cnn.memory_stats().kinds["activations"].current end

local settle = helper.settle

-- A network of many kinds of layers, on sizes that are worth packing.
local function network()
  cnn.manual_seed(21)
  local conv = nn.Sequential(nn.Conv2d(2, 6, 3, { padding = 1 }), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
    nn.Dropout(0.3), nn.Flatten(), nn.Linear(6 * 8 * 8, 64), nn.GELU(), nn.LayerNorm(64))
  local head = nn.Linear(64, 64)
  local function loss(x, y)
    local h = conv(x)
    local wt = head.weight:t() -- a view of a leaf
    local z = h:matmul(wt) + head.bias
    z = z:relu_() * h:sigmoid()
    z = cnn.checkpoint(function(v) return (v * v):tanh() end, z)
    local a, b = z:chunk(2, 2)[1], z:chunk(2, 2)[2]
    return F.cross_entropy(a:softmax(2) * b:exp(), y)
  end
  return nn.ModuleList { conv, head }, loss
end

local function gradients(run)
  local model, loss = network()
  local x, y = cnn.randn(32, 2, 16, 16), cnn.randint(1, 33, { 32 })
  cnn.manual_seed(5)
  local l = run(loss, x, y)
  l:backward()
  local list = { l:item() }
  for _, p in ipairs(model:parameters()) do
    for _, v in ipairs(helper.flat(p.grad)) do list[#list + 1] = v end
  end
  return list
end

describe("save_on_cpu", function()
  it("changes no gradient", function()
    local expected = gradients(function(loss, x, y) return loss(x, y) end)
    local got = gradients(function(loss, x, y) return cnn.save_on_cpu(loss, nil, x, y) end)
    assert.are.same(expected, got)
  end)

  it("takes saved tensors out of the pool, until backward", function()
    cnn.manual_seed(2)
    local layers = {}
    for i = 1, 8 do layers[2 * i - 1], layers[2 * i] = nn.Linear(64, 64), nn.Tanh() end
    local model = nn.Sequential(layers)
    local x = cnn.randn(256, 64)
    local each = 256 * 64 * 4
    settle()
    local before = activations()
    local plain = model(x):sum()
    settle()
    assert.are.equal(8 * each, activations() - before - helper.smallest) -- the loss, in the smallest block
    plain:backward()
    local expected = helper.flat(model[1].weight.grad)
    model:zero_grad()
    plain:free()
    settle()
    before = activations()
    local loss = cnn.save_on_cpu(function() return model(x):sum() end)
    settle()
    assert.are.equal(helper.smallest, activations() - before)
    local saved, seen, n = 0, {}, 0
    local function walk(node)
      for _, s in ipairs(node.saved) do
        if s.packed and not seen[s.storage] then
          seen[s.storage] = true
          saved, n = saved + s.bytes, n + 1
        end
      end
      for _, next_node in ipairs(node:next_functions()) do
        if next_node.name ~= "AccumulateGrad" then walk(next_node) end
      end
    end
    walk(loss.grad_fn)
    assert.are.equal(8, n) -- a result and the next layer's input are packed once
    assert.are.equal(8 * each, saved)
    cnn.reset_peak_memory_stats()
    local live = cnn.memory_allocated()
    loss:backward()
    local scratch = cnn.memory_stats().kinds.workspace.peak -- of products on a GPU
    assert.is_true(cnn.max_memory_allocated() - live - scratch < 3 * each + 9 * 64 * 65 * 4)
    assert.are.same(expected, helper.flat(model[1].weight.grad))
  end)

  it("packs a copy: the original may be changed", function()
    local x = cnn.ones(2048):requires_grad_()
    local y = cnn.save_on_cpu(function()
      local h = x * 3
      local z = h * h
      h:mul_(100)
      return z
    end)
    y:sum():backward()
    assert.are.equal(18, x.grad:get(7))
  end)

  it("serves views, and gradients of gradients", function()
    local x = cnn.arange(1, 4097):reshape(64, 64):requires_grad_()
    local function f()
      local h = x * 0.01
      return (h:t() * h:narrow(1, 1, 64):expand(2, 64, 64)):sum()
    end
    local function second(y)
      local g = cnn.grad(y, x, { create_graph = true })
      return helper.flat(cnn.grad((g * g):sum(), x))
    end
    assert.are.same(second(f()), second(cnn.save_on_cpu(f)))
  end)

  it("serves functions written in Lua", function()
    local Square = cnn.Function {
      forward = function(ctx, x)
        local y = x * x
        ctx:save_for_backward(x, y)
        return y
      end,
      backward = function(ctx, dy)
        local x, y = ctx:saved()
        assert.are.equal(4, y:get(3))
        return dy * x * 2
      end,
    }
    local x = cnn.full({ 4096 }, 2):requires_grad_()
    cnn.save_on_cpu(function() return Square(x * 1) end):sum():backward()
    assert.are.equal(4, x.grad:get(9))
  end)

  it("leaves leaves, and what is small, where they are", function()
    local w = cnn.ones(64, 64):requires_grad_()
    local data = cnn.ones(64, 64)
    local y = cnn.save_on_cpu(function() return data:matmul(w) end)
    for _, s in ipairs(y.grad_fn.saved) do assert.is_false(s.packed) end
    local v = cnn.ones(8):requires_grad_()
    y = cnn.save_on_cpu(function() return (v * 2):exp() end)
    for _, s in ipairs(y.grad_fn.saved) do assert.is_false(s.packed) end
    y = cnn.save_on_cpu(function() return (w * 2):exp() end)
    for _, s in ipairs(y.grad_fn.saved) do assert.is_true(s.packed) end
  end)

  it("makes the file where it is told to, and leaves nothing behind", function()
    local folder = helper.folder()
    local x = cnn.ones(4096):requires_grad_()
    local a, b = cnn.save_on_cpu(function(k) return (x * k):exp(), "b" end, { file = folder }, 2)
    assert.are.equal("b", b)
    local c = cnn.save_on_cpu(function() return (x * 2):exp() end, { file = folder .. "/saved" })
    local pipe = io.popen("ls -A " .. folder)
    assert.are.equal("", pipe:read("*a"))
    pipe:close()
    local sum = (a + c):sum()
    sum:backward()
    os.execute("rm -r " .. folder)
  end)

  it("fails cleanly where no file can be made", function()
    local function fn() return cnn.ones(1) end
    helper.raises("save_on_cpu: can't make a file in /proc/nowhere: ", cnn.save_on_cpu, fn, { file = "/proc/nowhere" })
    helper.raises("save_on_cpu: can't make a file in /dev/full: File exists", cnn.save_on_cpu, fn,
      { file = "/dev/full" })
    helper.raises("save_on_cpu: file: expected a string, got", cnn.save_on_cpu, fn, { file = 3 })
    helper.raises("did you mean \"file\"", cnn.save_on_cpu, fn, { files = "x" })
    helper.raises("argument 1 (fn): expected a function", cnn.save_on_cpu, 3)
    helper.raises("argument 2: expected a table of options", cnn.save_on_cpu, fn, "/tmp")
  end)

  it("fails cleanly on a full disk, and the program goes on", function()
    local text = helper.run([[
      local cnn = require "cnn"
      local x = cnn.ones(512 * 1024):requires_grad_() -- 2 MiB
      local function once(n)
        return pcall(cnn.save_on_cpu, function()
          local h = x
          for _ = 1, n do h = h:tanh() end
          return h:sum()
        end)
      end
      local bytes = cnn.memory_allocated()
      local ok, message = once(6)
      print(ok, message)
      collectgarbage() collectgarbage()
      print(cnn.memory_allocated() == bytes, x.grad)
      ok, message = once(2)
      message:backward()
      print(ok, x.grad:get(1) > 0)
    ]], "trap '' XFSZ; ulimit -f 10240;") -- 5 MiB: blocks are of 512 bytes
    assert.truthy(text:find("false%s+[^\n]*tanh: save_on_cpu: out of memory: no room for 2.0 MiB of saved tensors in "
      .. "[^\n]*: File too large; name a folder"), text)
    assert.truthy(text:find("\ntrue%s+nil\ntrue%s+true\n"), text)
  end)

  it("passes errors through, and is over then", function()
    local x = cnn.ones(4096):requires_grad_()
    assert.is_false(pcall(cnn.save_on_cpu, function() error("stop") end))
    assert.is_false((x * 2):exp().grad_fn.saved[1].packed)
  end)

  it("withstands failing allocations", function()
    local n = 0
    local expected
    local x = cnn.full({ 2048 }, 0.5):requires_grad_()
    local function work()
      x.grad = nil
      cnn.save_on_cpu(function() return (x * 2):exp():tanh():sum() end):backward()
    end
    work()
    expected = helper.flat(x.grad)
    repeat
      n = n + 1
      cnn.core.fault_set(n, true)
      local ok, message = pcall(work)
      cnn.core.fault_clear()
      if not ok then
        assert.truthy(tostring(message):find("out of memory", 1, true), message)
        work()
      end
      assert.are.same(expected, helper.flat(x.grad))
    until ok
    assert.is_true(n > 15)
  end)
end)
