-- SPDX-License-Identifier: MIT
-- Out of memory: every rung of the ladder, and what holds after an error was caught: nothing leaked,
-- nothing changed, and the same program on half the batch goes on.
local cnn = require "cnn"
local helper = require "spec.helper"
local nn, optim = cnn.nn, cnn.optim

local MIB = 2 ^ 20

local function settle()
  helper.settle()
  cnn.tensor(0):free()
  cnn.empty_cache()
end

-- Calls fn() under a limit of `mib` MiB above what is reserved already.
local function limited(mib, fn, ...)
  settle()
  local limit = cnn.memory_stats().limit
  cnn.set_memory_limit(cnn.memory_reserved() + mib * MIB)
  local results = { pcall(fn, ...) }
  cnn.set_memory_limit(limit)
  if not results[1] then error(results[2], 0) end
  return results[2]
end

-- A little less: sanitizer builds put a guard behind each block. Limits below leave room for pieces that
-- touch one granule (2 MiB) more than they fill.
local function mib_tensor(mib) return cnn.empty(mib * MIB / 4 - 1024) end

describe("the ladder", function()
  it("takes a cached block first", function()
    limited(16, function()
      mib_tensor(12):free()
      local maps, collections = cnn.memory_stats().maps, cnn.gc().collections
      local t = mib_tensor(12)
      assert.are.equal(maps, cnn.memory_stats().maps)
      assert.are.equal(collections, cnn.gc().collections)
      t:free()
    end)
  end)

  it("then gives free memory back to make room", function()
    limited(50, function()
      local list = {}
      for i = 1, 6 do list[i] = mib_tensor(8) end
      for i = 1, 6, 2 do list[i]:free() end
      local unmaps, collections = cnn.memory_stats().unmaps, cnn.gc().collections
      local t = mib_tensor(16) -- three holes of 8 MiB
      assert.is_true(cnn.memory_stats().unmaps > unmaps)
      assert.are.equal(collections, cnn.gc().collections)
      t:free()
      for i = 2, 6, 2 do list[i]:free() end
    end)
  end)

  it("then collects, and tries once more", function()
    limited(16, function()
      local paced = cnn.gc().paced
      cnn.gc { paced = false }
      do
        local garbage = mib_tensor(12)
        garbage:fill_(1)
      end
      local collections = cnn.gc().collections
      local ok, t = pcall(mib_tensor, 12)
      cnn.gc { paced = paced }
      assert.is_true(ok, t)
      assert.are.equal(collections + 1, cnn.gc().collections)
      t:free()
    end)
  end)

  -- Work that stops for want of room in its midst goes on there after the collection: nothing is done twice.
  it("does so within a Sequential's forward, a backward and a step, which go on where they stopped", function()
    local size, rows = 512, 2048 -- 1 MiB of weights a layer, 4 MiB a value
    local function run(fill)
      cnn.manual_seed(3)
      local counts = {}
      local model = nn.Sequential()
      for _ = 1, 4 do model:append(nn.Sequential(nn.Linear(size, size, { bias = false }), nn.Tanh())) end
      local opt = optim.AdamW(model:parameters(), { lr = 0.01 })
      local x = cnn.randn(rows, size)
      local function garbage(what, fn, ...)
        fill()
        local collections, work = cnn.gc().collections, cnn.core.work_count()
        local result = fn(...)
        counts[what] = cnn.gc().collections - collections
        counts[what .. " work"] = cnn.core.work_count() - work
        return result
      end
      local loss = garbage("forward", model, x):square():sum()
      garbage("backward", loss.backward, loss)
      garbage("step", opt.step, opt)
      local values = { loss:item() }
      for i, p in ipairs(model:parameters()) do values[i + 1] = p:square():sum():item() end
      return values, counts
    end
    local expected, free = run(function() end)
    settle()
    local paced = cnn.gc().paced
    cnn.gc { paced = false }
    local ok, problem = pcall(limited, 64, function()
      local values, counts = run(function()
        settle()
        local s = cnn.memory_stats()
        mib_tensor(math.floor(s.available / MIB) - 1):fill_(1) -- and nobody holds it
      end)
      assert.are.same(expected, values)
      for _, what in ipairs { "forward", "backward", "step" } do
        assert.is_true(counts[what] >= 1, what)
        assert.are.equal(free[what .. " work"], counts[what .. " work"])
      end
    end)
    cnn.gc { paced = paced }
    if not ok then error(problem, 0) end
  end)

  it("then says what is in use, and what to do", function()
    limited(16, function()
      local model = nn.Linear(1000, 1024, { bias = false })
      local before = cnn.memory_allocated()
      local message = helper.message(mib_tensor, 14)
      assert.truthy(message:find("empty: out of memory on " .. helper.place .. ": 14.0 MiB asked for, "
        .. "[%d.]+ [KM]iB in use %(.*parameters %d.*%), limit [%d.]+ MiB, room for 1%d.0 MiB; use a smaller batch, "
        .. "free tensors %(t:free%(%), cnn.scope%), or raise the limit"), message)
      assert.are.equal(before, cnn.memory_allocated())
      mib_tensor(tonumber(message:match "room for ([%d.]+)")):free() -- as much as the message says
      return model
    end)
  end)
end)

-- A program with 4 MiB of parameters; `batch` times 1024 rows of 504 bytes take half as many MiB.
local function program()
  cnn.manual_seed(4)
  local model = nn.Embedding(8192, 126)
  local opt = optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 })
  local at
  local function run(batch)
    at = "forward"
    local ids = cnn.arange(1, batch * 1024 + 1):remainder(8192):add(1):to("int64")
    local h = model(ids)
    ids = nil -- luacheck: ignore
    for _ = 1, 11 do h = h:tanh() end
    local loss = h:sum()
    h = nil -- luacheck: ignore
    at = "backward"
    loss:backward()
    at = "step"
    local others = mib_tensor(batch * 6) -- what else the program holds, such as the next batch
    local grads = cnn.memory_allocated()
    local ok, message = pcall(opt.step, opt)
    if not ok then
      settle()
      assert.are.equal(grads, cnn.memory_allocated())
      error(message, 0)
    end
    others:free()
    opt:zero_grad()
    at = "done"
  end
  local function values()
    local list = {}
    for i = 1, 8192, 97 do list[#list + 1] = model.weight[i]:sum():item() end
    local state = opt.state[model.weight]
    if state then
      list[#list + 1] = state.step
      list[#list + 1] = state.momentum_buffer:sum():item()
    end
    return list
  end
  return run, function() return at end, values, opt, model
end

describe("an error for lack of memory", function()
  it("in forward, backward and step leaks nothing and changes nothing; half the batch goes on", function()
    local seen = {}
    for mib = 40, 68, 4 do
      local run, at, values, opt, model = program()
      local before_values = values()
      limited(mib, function()
        local before = cnn.memory_allocated()
        local ok, message = pcall(run, 8)
        local where = at()
        seen[where] = true
        if not ok then
          assert.truthy(message:find("out of memory on " .. helper.place, 1, true), message)
          assert.are.same(before_values, values())
          assert.is_nil(opt.state[model.weight])
          if where ~= "step" then assert.is_nil(model.weight.grad) end
          opt:zero_grad()
          settle()
          assert.are.equal(before, cnn.memory_allocated(), where)
          run(4)
          assert.are.equal("done", at())
        end
      end)
    end
    for _, where in ipairs { "forward", "backward", "step", "done" } do assert.is_true(seen[where], where) end
  end)

  it("in loading leaves what was there", function()
    local folder = helper.folder()
    local path = folder .. "/model.safetensors"
    local saved = { a = cnn.ones(2 * MIB), b = cnn.ones(2 * MIB) } -- 8 MiB each
    cnn.save(path, saved)
    saved.a:free()
    saved.b:free()
    limited(12, function()
      local before = cnn.memory_allocated()
      local message = helper.message(cnn.load, path, { mmap = false, device = helper.device })
      assert.truthy(message:find("out of memory on " .. helper.place .. ": 8.0 MiB asked for", 1, true), message)
      settle()
      assert.are.equal(before, cnn.memory_allocated())
      local mapped = cnn.load(path) -- the file's own pages
      assert.are.equal(1, mapped.b:get(5))
    end)
    os.execute("rm -r " .. folder)
  end)

  it("in loading an optimizer's state leaves the one that it has", function()
    limited(40, function()
      local model = nn.Linear(1000, 1024, { bias = false })
      local opt = optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 })
      model(cnn.ones(1, 1000)):sum():backward()
      opt:step()
      local dict = opt:state_dict()
      local ballast = mib_tensor(22)
      local sum = opt.state[model.weight].momentum_buffer:sum():item()
      settle()
      local bytes = cnn.memory_allocated()
      local message = helper.message(opt.load_state_dict, opt, dict)
      assert.truthy(message:find("out of memory on " .. helper.place, 1, true), message)
      settle()
      assert.are.equal(bytes, cnn.memory_allocated())
      assert.are.equal(sum, opt.state[model.weight].momentum_buffer:sum():item())
      ballast:free()
      opt:load_state_dict(dict)
    end)
  end)

  -- In a process of its own, with a Lua heap of 10 MB in the way of the collector.
  it("does not come to a training loop with 1.3 times what it needs, whatever is in the Lua heap", function()
    if helper.device ~= "cpu" then return end
    local text = helper.run [[
      local cnn = require "cnn"
      local nn, F = cnn.nn, cnn.F
      local heap = {}
      repeat
        for _ = 1, 1000 do heap[#heap + 1] = { name = #heap, 1, 2, 3 } end
      until collectgarbage "count" > 10 * 1024
      local model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
      local opt = cnn.optim.AdamW(model:parameters(), { lr = 1e-3 })
      local function step()
        local x, y = cnn.randn(4096, 256), cnn.randn(4096, 256)
        opt:zero_grad()
        local h = x
        for _ = 1, 3 do h = (model(h) * 0.5 + h):tanh() end
        local loss = F.mse_loss(h, y)
        loss:backward()
        opt:step()
        return loss:item()
      end
      step()
      collectgarbage() collectgarbage()
      cnn.empty_cache()
      cnn.reset_peak_memory_stats()
      cnn.scope(step)
      local peak = cnn.memory_stats().reserved_bytes.peak
      cnn.empty_cache()
      cnn.set_memory_limit(math.floor(1.3 * peak))
      local failures = cnn.memory_stats().failures
      local loss
      for _ = 1, 25 do loss = step() end
      print("finished", loss == loss, math.floor(1.3 * peak / 2 ^ 20), #heap > 1000,
        cnn.memory_stats().failures - failures, cnn.gc().collections)
    ]]
    assert.truthy(text:find("^finished%s+true%s+%d+%s+true"), text)
  end)
end)
