-- SPDX-License-Identifier: MIT
-- Several pools on a device: limits of their own, what goes where, statistics, and red zones.
local cnn = require "cnn"
local helper = require "spec.helper"
local nn, F, optim = cnn.nn, cnn.F, cnn.optim

local MIB = 2 ^ 20

local settle = helper.settle

local function live(pool)
  return pool:stats().allocated_bytes.current
end

-- A model with its optimizer, all of it in a pool; step() trains on the same data.
local function learner(pool, width, rows)
  return cnn.with_pool(pool, function()
    cnn.manual_seed(3)
    local model = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 4))
    local opt = optim.Adam(model:parameters(), { lr = 1e-2 })
    local x, y = cnn.randn(rows, 16), cnn.randint(1, 5, { rows })
    local function step()
      opt:zero_grad()
      local loss = F.cross_entropy(model(x), y)
      loss:backward()
      opt:step()
      return loss:item()
    end
    return function() return cnn.with_pool(pool, step) end
  end)
end

describe("a pool", function()
  it("takes what is allocated inside of with_pool, and nothing else", function()
    local pool = cnn.pool { limit = 64 * MIB, name = "mine" }
    local before = cnn.memory_allocated()
    local a, b = cnn.with_pool(pool, function(n, ...)
      assert.are.equal("x", (...))
      return cnn.ones(n), "second"
    end, MIB, "x")
    assert.are.equal("second", b)
    assert.are.equal(4 * MIB, live(pool))
    assert.are.equal(4 * MIB, cnn.memory_allocated(pool))
    -- The device's counts have it too.
    assert.are.equal(before + 4 * MIB, cnn.memory_allocated())
    local outside = a + a
    assert.are.equal(4 * MIB, live(pool))
    outside:free()
    a:free()
    assert.are.equal(0, live(pool))
    assert.are.equal(before, cnn.memory_allocated())
    assert.are.equal("mine", pool:name())
    assert.are.equal(helper.place, pool:device())
    assert.are.equal(('pool "mine" on %s: 0 B in use, limit 64.00 MiB'):format(helper.place), tostring(pool))
  end)

  it("nests, survives errors, and is put back", function()
    local outer, inner = cnn.pool { limit = 16 * MIB }, cnn.pool { limit = 16 * MIB }
    cnn.with_pool(outer, function()
      local x = cnn.ones(1000)
      assert.are.equal(4096, live(outer))
      local ok, message = pcall(cnn.with_pool, inner, function()
        local y = cnn.ones(2000)
        assert.are.equal(8192, live(inner))
        y:free()
        error "inside"
      end)
      assert.is_false(ok)
      assert.truthy(message:find("inside", 1, true))
      local z = cnn.ones(1000)
      assert.are.equal(2 * 4096, live(outer))
      assert.are.equal(0, live(inner))
      x:free()
      z:free()
    end)
    local outside = cnn.ones(10)
    assert.are.equal(0, live(outer))
    outside:free()
    -- A module can be called as well.
    local model = nn.Linear(2, 3)
    assert.is_true(cnn.with_pool(inner, model, cnn.ones(1, 2)):has_shape(1, 3))
  end)

  it("can't be left by a coroutine", function()
    local pool = cnn.pool { limit = 16 * MIB }
    local co = coroutine.create(function()
      cnn.with_pool(pool, function() coroutine.yield() end)
    end)
    local ok, message = coroutine.resume(co)
    assert.is_false(ok)
    assert.truthy(tostring(message):find("yield", 1, true))
    cnn.ones(10):free()
    assert.are.equal(0, pool:stats().blocks.total)
    -- Its own coroutines run inside.
    cnn.with_pool(pool, function()
      local x = coroutine.wrap(function() coroutine.yield(cnn.ones(10)) end)()
      assert.are.equal(helper.smallest, live(pool))
      x:free()
    end)
  end)

  it("holds a model's forward, backward and step", function()
    local pool = cnn.pool { limit = 64 * MIB }
    local step = learner(pool, 64, 32)
    settle()
    local device = cnn.memory_allocated() - live(pool)
    local first, last = step(), nil
    for _ = 1, 30 do last = step() end
    assert.is_true(last < first)
    settle()
    -- Parameters, gradients and state: all of it is there, and nothing of it elsewhere.
    local kinds, bytes = pool:stats().kinds, (16 * 64 + 64 + 64 * 4 + 4) * 4
    assert.is_true(kinds.parameters.current >= bytes and kinds.parameters.current < bytes + 256)
    assert.are.equal(kinds.parameters.current, kinds.gradients.current)
    assert.is_true(kinds["optimizer state"].current >= 2 * bytes)
    assert.are.equal(device, cnn.memory_allocated() - live(pool))
  end)

  it("with too low a limit fails by its name, and leaves another alone", function()
    local small, large = cnn.pool { limit = 16 * MIB, name = "critic" }, cnn.pool { limit = 256 * MIB, name = "actor" }
    local good = learner(large, 256, 64)
    local alone = learner(large, 256, 64)
    local expected = {}
    for i = 1, 6 do expected[i] = alone() end
    local bad = learner(small, 256, 4)
    bad()
    settle()
    local losses, refused = {}, 0
    for i = 1, 6 do
      losses[i] = good()
      local before = live(large)
      local message = helper.message(cnn.with_pool, small, function() return cnn.ones(8 * MIB) end)
      assert.truthy(message:find(('out of memory on %s in pool "critic": 32.0 MiB asked for'):format(helper.place),
        1, true), message)
      assert.truthy(message:find("limit 16.0 MiB", 1, true), message)
      refused = refused + 1
      assert.is_true(live(large) <= before)
      bad() -- it goes on as well
    end
    assert.are.same(expected, losses)
    assert.is_true(small:stats().failures >= refused)
    assert.are.equal(0, large:stats().failures)
  end)

  it("counts towards the device's limit", function()
    settle()
    cnn.empty_cache()
    local a, b = cnn.pool { limit = 64 * MIB, name = "a" }, cnn.pool { name = "b" }
    cnn.set_memory_limit(cnn.memory_reserved() + 64 * MIB)
    local x = cnn.with_pool(a, cnn.ones, 12 * MIB) -- 48 MiB
    local message = helper.message(cnn.with_pool, b, function() return cnn.ones(8 * MIB) end)
    local fits = pcall(cnn.with_pool, b, function() cnn.ones(2 * MIB):free() end)
    local outside = pcall(cnn.ones, 8 * MIB)
    x:free()
    -- What a has free now goes to the one that asks.
    local y = cnn.with_pool(b, cnn.ones, 14 * MIB)
    local reserved = a:stats().reserved_bytes.current
    y:free()
    cnn.set_memory_limit()
    assert.truthy(message:find('in pool "b": 32.0 MiB asked for', 1, true), message)
    assert.truthy(message:find("the device: ", 1, true), message)
    assert.is_true(fits)
    assert.is_false(outside)
    assert.is_true(reserved <= 8 * MIB)
  end)

  it("lives as long as its blocks", function()
    settle()
    local before, reserved = cnn.memory_allocated(), cnn.memory_reserved()
    local x = cnn.with_pool(cnn.pool { limit = 64 * MIB }, cnn.ones, 8 * MIB)
    local small = cnn.with_pool(cnn.pool { limit = 64 * MIB }, cnn.ones, 8)
    settle()
    assert.are.equal(8 * MIB, x:sum():item())
    assert.are.equal(8, small:sum():item())
    settle()
    assert.are.equal(before + 32 * MIB + helper.smallest, cnn.memory_allocated())
    assert.is_true(cnn.memory_reserved() >= reserved + 34 * MIB)
    x:free()
    small:free()
    assert.are.equal(before, cnn.memory_allocated())
    assert.is_true(cnn.memory_reserved() <= reserved + 2 * MIB)
    for _ = 1, 200 do cnn.pool { limit = 1024 * MIB } end
    settle()
  end)

  it("has a limit that can be moved", function()
    local pool = cnn.pool { limit = 8 * MIB }
    assert.are.equal(8 * MIB, pool:limit())
    local x = cnn.with_pool(pool, cnn.ones, MIB)
    assert.is_false(pcall(cnn.with_pool, pool, cnn.ones, 2 * MIB))
    assert.are.equal(32 * MIB, pool:limit(32 * MIB))
    cnn.with_pool(pool, function() cnn.ones(2 * MIB):free() end)
    -- A lower one gives back what is free.
    pool:limit(4 * MIB)
    local zones = os.getenv "CNN_SANITIZED" and 2 * MIB or 0 -- red zones take a granule more
    assert.are.equal(4 * MIB + zones, pool:stats().reserved_bytes.current)
    assert.is_false(pcall(cnn.with_pool, pool, cnn.ones, 10))
    cnn.set_memory_limit(8 * MIB, pool)
    assert.are.equal(8 * MIB, pool:limit())
    assert.are.equal(cnn.memory_stats().limit, pool:limit(nil)) -- the device's alone
    x:free()
    assert.is_true(cnn.empty_cache(pool) > 0)
    assert.are.equal(0, pool:stats().reserved_bytes.current)
  end)

  it("is collected for before its limit is met", function()
    local pool = cnn.pool { limit = 32 * MIB }
    settle()
    cnn.with_pool(pool, function()
      for _ = 1, 400 do local x = cnn.ones(MIB / 4) end -- luacheck: ignore
    end)
    -- The device's threshold (64 MiB at least) would never have been reached.
    assert.are.equal(0, pool:stats().failures)
    assert.is_true(pool:stats().allocated_bytes.peak < 32 * MIB)
  end)

  it("has messages", function()
    local pool = cnn.pool { limit = 16 * MIB }
    helper.raises("limit must be a number of bytes", cnn.pool, { limit = "1" })
    helper.raises("has room for nothing", cnn.pool, { limit = 1000 })
    helper.raises("has room for nothing", pool.limit, pool, 1000)
    helper.raises("set_memory_limit: a limit of 1000 bytes has room for nothing", cnn.set_memory_limit, 1000, pool)
    assert.are.equal(16 * MIB, pool:limit())
    helper.raises('did you mean "limit"', cnn.pool, { limt = 16 * MIB })
    helper.raises("name must be a string", cnn.pool, { name = 3 })
    helper.raises("meta has no memory", cnn.pool, { device = "meta" })
    helper.raises("unknown device", cnn.pool, { device = "gpu" })
    helper.raises("expected a pool (of cnn.pool), got a tensor", cnn.with_pool, cnn.ones(1), print)
    helper.raises("expected a function (or a module) to call, got nothing", cnn.with_pool, pool)
    helper.raises("limit: expected a pool (of cnn.pool), got nothing", pool.limit)
    cnn.core.fault_set(1, true, true)
    local ok, message = pcall(cnn.pool, { limit = 16 * MIB })
    cnn.core.fault_clear()
    assert.is_false(ok)
    assert.truthy(message:find("pool: out of memory", 1, true), message)
  end)
end)

describe("statistics", function()
  -- Exact, so the same on every Lua.
  it("tell sizes, kinds and classes", function()
    local pool = cnn.pool { limit = 64 * MIB }
    local tiny, page, big = cnn.with_pool(pool, function()
      return cnn.ones(3), cnn.ones(1001), cnn.ones(MIB + 1)
    end)
    cnn.with_pool(pool, function() cnn.ones(4):free() end)
    local s = pool:stats()
    local function is(current, peak, total, freed, counter)
      assert.are.same({ current = current, peak = peak, total = total, freed = freed }, counter)
    end
    local least, large = helper.smallest, 4 * MIB + helper.smallest
    is(12 + 4004 + 4 * MIB + 4, 12 + 16 + 4004 + 4 * MIB + 4, 12 + 16 + 4004 + 4 * MIB + 4, 16, s.requested_bytes)
    is(least + 4096 + large, 2 * least + 4096 + large, 2 * least + 4096 + large, least, s.allocated_bytes)
    is(3, 4, 4, 1, s.blocks)
    assert.are.same(s.allocated_bytes, s.active_bytes)
    assert.are.same(s.blocks, s.active)
    is(least + 4096, 2 * least + 4096, 2 * least + 4096, least, s.small.allocated_bytes)
    is(2, 3, 3, 1, s.small.blocks)
    is(large, large, large, 0, s.large.allocated_bytes)
    is(1, 1, 1, 0, s.large.blocks)
    assert.are.equal(3, #s.classes)
    for i, size in ipairs { least, 4096, 8 * MIB } do
      assert.are.equal(size, s.classes[i].size)
      assert.are.equal(i < 3, s.classes[i].small)
      assert.are.equal(1, s.classes[i].blocks.current)
    end
    assert.are.equal(2 * MIB, s.small.reserved_bytes)
    assert.are.equal(s.reserved_bytes.current, s.small.reserved_bytes + s.large.reserved_bytes)
    local reserved, unused = s.reserved_bytes.current, s.reserved_bytes.current - s.allocated_bytes.current
    is(unused, s.inactive_bytes.peak, reserved + least, reserved + least - unused, s.inactive_bytes)
    assert.is_true(s.inactive_bytes.peak >= unused)
    assert.is_true(s.inactive_split_bytes.current <= s.inactive_bytes.current)
    assert.are.equal(s.inactive_split_bytes.total - s.inactive_split_bytes.freed, s.inactive_split_bytes.current)
    assert.are.equal(64 * MIB, s.limit)
    pool:reset_peaks()
    is(3, 3, 4, 1, pool:stats().blocks)
    local text = cnn.memory_summary(pool)
    for _, word in ipairs { "pool \"", "limit 64.00 MiB", "small blocks", "large blocks", "by kind", "other",
      "4.00 KiB", "8.00 MiB", "unused", "between blocks", "peak", "freed", "refused for good" } do
      assert.truthy(text:find(word, 1, true), word)
    end
    assert.are.equal(text, pool:summary())
    tiny:free()
    page:free()
    big:free()
    s = pool:stats()
    assert.are.equal(0, s.allocated_bytes.current)
    -- Nothing is in use, so nothing lies between.
    assert.are.equal(0, s.inactive_split_bytes.current)
    assert.is_true(s.inactive_split_bytes.peak > 0)
    assert.are.equal(s.reserved_bytes.current, s.inactive_bytes.current)
  end)

  it("answer to PyTorch's names", function()
    local pool = cnn.pool { limit = 64 * MIB }
    local kept = cnn.with_pool(pool, function()
      cnn.ones(5000):free()
      return { cnn.ones(3), cnn.ones(MIB) }
    end)
    local s = pool:stats()
    for name, counter in pairs {
      ["allocation.all"] = s.blocks, ["allocated_bytes.all"] = s.allocated_bytes, ["active.all"] = s.active,
      ["active_bytes.all"] = s.active_bytes, ["requested_bytes.all"] = s.requested_bytes,
      ["reserved_bytes.all"] = s.reserved_bytes, ["inactive_split_bytes.all"] = s.inactive_split_bytes,
      ["allocation.small_pool"] = s.small.blocks, ["allocated_bytes.large_pool"] = s.large.allocated_bytes,
    } do
      assert.are.equal(counter.current, s[name .. ".current"])
      assert.are.equal(counter.peak, s[name .. ".peak"])
      assert.are.equal(counter.total, s[name .. ".allocated"])
      assert.are.equal(counter.freed, s[name .. ".freed"])
    end
    assert.are.equal(s.small.reserved_bytes, s["reserved_bytes.small_pool.current"])
    assert.are.equal(s.maps, s.num_device_alloc)
    assert.are.equal(s.unmaps, s.num_device_free)
    assert.is_nil(s["allocation.huge_pool.current"])
    assert.is_nil(s["nothing.all.current"])
    assert.is_nil(s.nothing)
    assert.are.equal(s["allocated_bytes.all.peak"], cnn.memory_stats(pool)["allocated_bytes.all.peak"])
    for _, t in ipairs(kept) do t:free() end
  end)

  it("tell refusals that a collection cured from those for good", function()
    settle()
    cnn.empty_cache()
    local paced, before = cnn.gc().paced, cnn.memory_stats()
    cnn.gc { paced = false }
    cnn.set_memory_limit(cnn.memory_reserved() + 64 * MIB)
    do local garbage = cnn.ones(14 * MIB) end -- luacheck: ignore
    local x = cnn.ones(14 * MIB)
    local cured = cnn.memory_stats()
    assert.are.equal(before.num_alloc_retries + 1, cured.num_alloc_retries)
    assert.are.equal(before.num_ooms, cured.num_ooms)
    assert.is_false(pcall(cnn.ones, 14 * MIB))
    local after = cnn.memory_stats()
    assert.are.equal(cured.num_ooms + 1, after.num_ooms)
    assert.are.equal(cured.num_alloc_retries + 1, after.num_alloc_retries)
    assert.are.equal(cured.failures + 2, after.failures)
    cnn.set_memory_limit()
    cnn.gc { paced = paced }
    x:free()
  end)
end)

describe("memory_debug", function()
  it("fills new memory with NaN", function()
    local before = cnn.memory_debug(true)
    local x, whole = cnn.empty(100), cnn.empty({ 3 }, { dtype = "int32" })
    assert.is_true(cnn.memory_debug(before))
    assert.are.equal(before, cnn.memory_debug())
    if helper.device == "cpu" then -- only of memory that it can touch
      for _, v in ipairs(x:totable()) do assert.is_true(v ~= v) end
      assert.are.same({ -1, -1, -1 }, whole:totable())
    end
    x:free()
    whole:free()
    helper.raises("expected true or false", cnn.memory_debug, 1)
  end)

  it("is switched on by the environment, and finds what is written out of bounds", function()
    if helper.device ~= "cpu" then return end
    local text = helper.run([[
      local cnn = require "cnn"
      assert(cnn.memory_debug() == true)
      local nn = cnn.nn
      local model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
      for _ = 1, 3 do model(cnn.randn(4, 8)):sum():backward() end -- nothing of ours is out of bounds
      assert(cnn.memory_debug() == true)
      local have, ffi = pcall(require, "ffi")
      if not have then print "no ffi" return end
      local x = cnn.ones(10)
      ffi.cast("float *", x:data_ptr())[10] = 1
      print(pcall(x.free, x))
      local y = cnn.ones(3, { requires_grad = true })
      ffi.cast("char *", y:data_ptr())[-1] = 1
      y = nil
      collectgarbage()
      collectgarbage()
      print(pcall(cnn.ones, 3))
      print(pcall(cnn.ones, 3))
    ]], "CNN_MEMORY_DEBUG=1")
    if text:find("no ffi", 1, true) or os.getenv "CNN_SANITIZED" then return end
    assert.truthy(text:find("a block of 40 bytes (other), freed since the last call, was written past its end "
      .. "(4 bytes changed, the first at offset 40)", 1, true), text)
    assert.truthy(text:find("a block of 12 bytes", 1, true), text)
    assert.truthy(text:find("before its begin (1 byte changed)", 1, true), text)
    assert.truthy(text:find("true\ttensor", 1, true), text)
  end)
end)
