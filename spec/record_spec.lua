-- SPDX-License-Identifier: MIT
-- Seeing memory: the record of who allocates, snapshots, live tensors, what a function leaves behind.
local cnn = require "cnn"
local helper = require "spec.helper"
local nn = cnn.nn

local read = helper.read

-- "record_spec.lua:<line>" of the caller's next line but `back`.
local function here(back)
  return ("record_spec.lua:%d "):format(debug.getinfo(2, "l").currentline - (back or 0))
end

-- Garbage must not go between two looks at the counters.
local settle = helper.settle

local function used_blocks(snapshot)
  local list = {}
  for _, segment in ipairs(snapshot.segments) do
    for _, block in ipairs(segment.blocks) do
      if block.state == "used" then list[#list + 1] = block end
    end
  end
  return list
end

local function block_of(snapshot, tensor)
  for _, block in ipairs(used_blocks(snapshot)) do
    if block.address == tensor:data_ptr() then return block end
  end
end

local function entry_of(list, tensor)
  for _, entry in ipairs(list) do
    if entry.address == tensor:data_ptr() then return entry end
  end
end

describe("record_memory", function()
  after_each(function() cnn.record_memory { max_events = 0 } cnn.record_memory(false) end)

  it("says whether it was on", function()
    assert.is_false(cnn.record_memory(true))
    assert.is_true(cnn.record_memory { max_events = 5 })
    assert.is_true(cnn.record_memory(false))
    assert.is_false(cnn.record_memory(false))
  end)

  it("gives blocks the script's line, also of what layers and backward make", function()
    cnn.record_memory(true)
    local x = cnn.ones(3, 4)
    local line = here(1)
    local layer = nn.Linear(4, 2)
    local layer_line = here(1)
    local function step() layer(x):sum():backward() end
    local step_line = here(1)
    step()
    local snapshot = cnn.memory_snapshot()
    assert.truthy(block_of(snapshot, x).origin:find(line .. "in function", 1, true))
    assert.truthy(block_of(snapshot, layer.weight).origin:find(layer_line, 1, true))
    assert.truthy(block_of(snapshot, layer.weight.grad).origin:find(step_line .. "in function step", 1, true))
    assert.are.equal("gradients", block_of(snapshot, layer.weight.grad).kind)
    assert.are.equal(48, block_of(snapshot, x).requested)
    assert.is_true(block_of(snapshot, x).time <= snapshot.seconds)
  end)

  it("gives what follows a hook the line of backward", function()
    cnn.record_memory(true)
    local w = cnn.ones(300, { requires_grad = true })
    local h = w * 2
    h:register_hook(function(g) return g * 3 end)
    h:sum():backward()
    assert.truthy(block_of(cnn.memory_snapshot(), w.grad).origin:find(here(1), 1, true))
  end)

  it("writes down what is made, freed, and changes its kind", function()
    cnn.record_memory(true)
    local before = cnn.memory_stats().kinds
    local x = cnn.ones(100)
    local address = x:data_ptr()
    x:free()
    local p = nn.Parameter(cnn.ones(7))
    local snapshot = cnn.memory_snapshot()
    local made, freed
    for _, event in ipairs(snapshot.events) do
      if event.address == address and event.what == "alloc" and not made then made = event end
      if event.address == address and event.what == "free" and not freed then freed = event end
    end
    assert.are.equal(made.serial, freed.serial)
    assert.are.equal(made.size, freed.size)
    assert.are.equal(made.origin, freed.origin)
    assert.is_true(made.time <= freed.time)
    -- The events lead from the counters before to those after.
    local sums = {}
    local function add(kind, bytes) sums[kind] = (sums[kind] or 0) + bytes end
    for _, event in ipairs(snapshot.events) do
      if event.what == "alloc" then add(event.kind, event.size) end
      if event.what == "free" then add(event.kind, -event.size) end
      if event.what == "retag" then
        add(event.was, -event.size)
        add(event.kind, event.size)
      end
    end
    for kind, bytes in pairs(sums) do
      assert.are.equal((snapshot.kinds[kind] or 0) - before[kind].current, bytes)
    end
    assert.is_true(sums.parameters > 0)
    p:free()
  end)

  it("knows what was reserved when", function()
    settle()
    cnn.empty_cache()
    local before = cnn.memory_reserved()
    cnn.record_memory(true)
    local x = cnn.ones(2 ^ 22)
    local with = cnn.memory_reserved()
    x:free()
    local given = cnn.empty_cache()
    local events = cnn.memory_snapshot().events
    cnn.record_memory(false)
    local trims = 0
    for i, event in ipairs(events) do
      if event.what == "alloc" and event.size >= 2 ^ 24 then
        assert.are.equal(with, event.reserved)
        assert.is_true(event.reserved >= before + 2 ^ 24)
      elseif event.what == "trim" then
        trims = trims + 1
        assert.are.equal(given, event.size)
        assert.are.equal(with - given, event.reserved)
        assert.is_nil(event.kind)
        assert.are.equal(#events, i)
      end
    end
    assert.are.equal(1, trims)
  end)

  it("keeps a bounded number of events, the last ones", function()
    cnn.record_memory { max_events = 10 }
    for _ = 1, 50 do cnn.ones(3):free() end
    local last = cnn.ones(5)
    local snapshot = cnn.memory_snapshot()
    assert.are.equal(10, #snapshot.events)
    assert.is_true(snapshot.events_lost >= 91)
    assert.are.equal(last:data_ptr(), snapshot.events[10].address)
    cnn.record_memory { max_events = 0 }
    local x = cnn.ones(5)
    snapshot = cnn.memory_snapshot()
    assert.is_nil(snapshot.events)
    assert.truthy(block_of(snapshot, x).origin)
  end)

  it("stops, and what was written stays", function()
    cnn.record_memory(true)
    cnn.ones(3):free()
    cnn.record_memory(false)
    local n = #cnn.memory_snapshot().events
    local x = cnn.ones(4)
    local snapshot = cnn.memory_snapshot()
    assert.are.equal(n, #snapshot.events)
    assert.is_nil(block_of(snapshot, x).origin)
    cnn.record_memory(true)
    assert.is_nil(cnn.memory_snapshot().events)
  end)

  it("is not upset by failures", function()
    cnn.record_memory(true)
    local x, y = cnn.ones(3), cnn.ones(4)
    helper.raises("add", function() return x + y end)
    cnn.core.fault_set(1, true, true)
    local ok = pcall(cnn.ones, 8)
    cnn.core.fault_clear()
    assert.is_false(ok)
    settle()
    assert.are.equal(cnn.memory_allocated(), cnn.memory_snapshot().allocated_bytes)
  end)

  it("knows coroutines and chunks", function()
    cnn.record_memory(true)
    local x
    coroutine.wrap(function() x = cnn.ones(3) end)()
    assert.truthy(block_of(cnn.memory_snapshot(), x).origin:find(here(1), 1, true))
    local chunk = assert((loadstring or load)("local y = require('cnn').ones(2) return y", "=made")) -- luacheck: ignore
    local y = chunk()
    assert.are.equal("made:1 in main chunk", block_of(cnn.memory_snapshot(), y).origin)
  end)

  it("says what is wrong with its arguments", function()
    helper.raises("record_memory: expected true, false or {max_events =}, got the number 3", cnn.record_memory, 3)
    helper.raises("did you mean \"max_events\"", cnn.record_memory, { max_event = 3 })
    helper.raises("record_memory: max_events: expected an integer >= 0, got", cnn.record_memory, { max_events = -1 })
    helper.raises("record_memory: max_events", cnn.record_memory, true, { max_events = "many" })
    helper.raises("no memory for", cnn.record_memory, { max_events = 2 ^ 60 })
    assert.is_false(cnn.record_memory(false))
  end)
end)

describe("memory_snapshot", function()
  it("covers every segment with blocks, and adds up", function()
    local tensors = {}
    for i = 1, 40 do tensors[i] = cnn.empty(i * i * 97) end
    for i = 1, 40, 3 do tensors[i]:free() end
    settle()
    local snapshot = cnn.memory_snapshot()
    assert.are.equal(cnn.memory_allocated(), snapshot.allocated_bytes)
    assert.are.equal(cnn.memory_reserved(), snapshot.reserved_bytes)
    assert.are.equal(cnn.memory_stats().blocks.current, snapshot.blocks)
    assert.is_true(snapshot.address_space >= snapshot.reserved_bytes)
    for kind, counter in pairs(cnn.memory_stats().kinds) do
      assert.are.equal(counter.current, snapshot.kinds[kind] or 0)
    end
    local after = 0
    for _, segment in ipairs(snapshot.segments) do
      assert.is_true(segment.address >= after)
      local offset = 0
      for _, block in ipairs(segment.blocks) do
        assert.are.equal(offset, block.offset)
        assert.are.equal(segment.address + offset, block.address)
        offset = offset + block.size
      end
      assert.are.equal(segment.size, offset)
      after = segment.address + segment.size
    end
    for i = 1, 40 do
      local block = i % 3 ~= 1 and block_of(snapshot, tensors[i])
      if block then assert.are.equal(i * i * 97 * 4, block.requested) end
      assert.are.equal(i % 3 ~= 1, block and true or false)
    end
    assert.truthy(tostring(snapshot):find("memory of " .. helper.place .. ": %d+ blocks"))
  end)

  it("tells pools apart", function()
    settle()
    cnn.record_memory(true)
    local pool = cnn.pool { limit = 64 * 2 ^ 20, name = "mine" }
    local inside = cnn.with_pool(pool, cnn.ones, 700)
    local outside = cnn.ones(800)
    local all, own = cnn.memory_snapshot(), cnn.memory_snapshot { device = pool }
    cnn.record_memory { max_events = 0 }
    cnn.record_memory(false)
    assert.are.equal(cnn.memory_allocated(), all.allocated_bytes)
    assert.are.equal(cnn.memory_reserved(), all.reserved_bytes)
    assert.are.equal(cnn.memory_allocated(pool), own.allocated_bytes)
    assert.are.equal("mine", own.segments[1].pool)
    assert.truthy(block_of(all, inside).origin)
    assert.truthy(block_of(all, outside))
    assert.is_nil(block_of(own, outside))
    assert.are.equal(1, #own.events)
    assert.are.equal("mine", entry_of(cnn.live { device = pool }, inside).pool)
    assert.are.equal(0, #cnn.leaks(function() local t = cnn.with_pool(pool, cnn.ones, 9) end)) -- luacheck: ignore
    assert.are.equal(1, #cnn.leaks(function() all.kept = cnn.with_pool(pool, cnn.ones, 9) end))
    all.kept = nil
  end)

  it("of meta is empty", function()
    local snapshot = cnn.memory_snapshot { device = "meta" }
    assert.are.equal(0, snapshot.reserved_bytes)
    assert.are.equal(0, #snapshot.segments)
  end)

  it("is written as a page, with and without events", function()
    local folder = helper.folder()
    local path = folder .. "/memory.html"
    cnn.record_memory { max_events = 0 }
    cnn.record_memory(false)
    cnn.memory_snapshot { file = path }
    local page = read(path)
    assert.truthy(page:find("^<!DOCTYPE html>"))
    assert.truthy(page:find("no events", 1, true))
    assert.falsy(page:find("Live bytes over time", 1, true))
    cnn.record_memory(true)
    local x = cnn.ones(1000, 100)
    for _ = 1, 20 do (x * 2):free() end
    local snapshot = cnn.memory_snapshot { file = path }
    cnn.record_memory(false)
    page = read(path)
    assert.truthy(page:find("Live bytes over time", 1, true))
    assert.truthy(page:find("reserved: at most ", 1, true))
    assert.truthy(page:find("record_spec.lua:" .. debug.getinfo(1, "l").currentline - 6, 1, true))
    assert.falsy(page:gsub("http://www.w3.org/2000/svg", ""):find("https?://"))
    assert.falsy(page:find("nan", 1, true))
    local open, closed = select(2, page:gsub("<rect", "")), select(2, page:gsub("</rect>", ""))
    assert.is_true(open >= closed and closed > 0)
    snapshot:save(folder .. "/memory.svg")
    assert.truthy(read(folder .. "/memory.svg"):find("^<svg"))
    assert.are.equal("page of " .. tostring(snapshot), tostring(cnn.viz.memory(snapshot)))
    assert.truthy(cnn.viz.memory(snapshot, { title = "a < b" }):html():find("a &lt; b", 1, true))
    os.execute("rm -r " .. folder)
    helper.raises("viz.memory: save: ", snapshot.save, snapshot, folder .. "/none/memory.html")
    cnn.record_memory { max_events = 0 }
    cnn.record_memory(false)
  end)

  it("says what is wrong with its arguments", function()
    helper.raises("unknown option \"path\"", cnn.memory_snapshot, { path = "x" })
    helper.raises("memory_snapshot: file: expected a string", cnn.memory_snapshot, { file = 3 })
    helper.raises("memory_snapshot: ", cnn.memory_snapshot, { device = "gpu" })
    helper.raises("viz.memory: expected what cnn.memory_snapshot gives, got nil", cnn.viz.memory)
  end)
end)

describe("live", function()
  it("lists tensors with what is known of them", function()
    local x = cnn.ones(50, 30, { dtype = "float64", requires_grad = true })
    local list = cnn.live()
    local entry = entry_of(list, x)
    assert.are.equal("(50, 30)", tostring(entry.shape))
    assert.are.equal("float64", entry.dtype)
    assert.are.equal(12000, entry.requested)
    assert.is_true(entry.requires_grad)
    assert.are.equal(1, entry.handles)
    assert.truthy(entry.held:find("^x, local in function"))
    assert.is_nil(entry.origin)
    settle()
    assert.are.equal(cnn.memory_allocated(), list.bytes)
    assert.are.equal(cnn.memory_stats().blocks.current, list.count)
    for i = 2, #list do assert.is_true(list[i - 1].bytes >= list[i].bytes) end
    local text = tostring(list)
    assert.truthy(text:find(("%d live, "):format(list.count), 1, true))
    assert.truthy(text:find("(50, 30)", 1, true))
  end)

  it("counts tensors that share bytes once", function()
    local x = cnn.ones(60, 40)
    local views = { x:t(), x[{ 1 }], x:view(-1) }
    local entry = entry_of(cnn.live(), x)
    assert.are.equal(4, entry.handles)
    assert.are.equal(9600, entry.requested)
    assert.are.equal(3, #views)
  end)

  it("knows parameters, gradients, optimizer state and what graphs save", function()
    local model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 5))
    local opt = cnn.optim.AdamW(model:parameters())
    model(cnn.ones(2, 20)):sum():backward()
    opt:step()
    local y = model(cnn.ones(2, 20))
    local list = cnn.live()
    local weight = model[1].weight
    assert.truthy(entry_of(list, weight).held:find("^0%.weight of model"))
    assert.are.equal("parameters", entry_of(list, weight).kind)
    assert.truthy(entry_of(list, weight.grad).held:find("^gradient of 0%.weight of model"))
    local held, state = 0, 0
    for _, entry in ipairs(list) do
      if entry.held and entry.held:find("Backward0 behind y, local", 1, true) then held = held + entry.requested end
      if entry.kind == "optimizer state" and tostring(entry.shape) == "(30, 20)" then
        assert.truthy(entry.held:find("^exp_avg[_sq]* of opt"))
        state = state + 1
      end
    end
    assert.is_true(held >= 2 * 20 * 4 + 2 * 30 * 4)
    assert.are.equal(2, state)
    assert.are.equal(5, y.shape[2])
  end)

  it("finds what globals, upvalues, coroutines, extra arguments and metatables hold", function()
    local function make(n)
      local t = cnn.ones(n)
      return t, t:data_ptr()
    end
    local function at(address)
      for _, entry in ipairs(cnn.live()) do
        if entry.address == address then return entry.held end
      end
    end
    local function load_one()
      local t, place = make(11)
      package.loaded.a_loaded_tensor = t
      return place
    end
    assert.truthy(at(load_one()):find("a_loaded_tensor", 1, true))
    package.loaded.a_loaded_tensor = nil
    local function hide(n)
      local hidden, address = make(n)
      return function() return hidden end, address
    end
    local use, address = hide(12)
    assert.truthy(at(address):find("^hidden, upvalue of use, local in function"))
    assert.truthy(use())
    local sleeper = coroutine.create(function()
      local inside, place = make(13)
      coroutine.yield(place)
      return inside
    end)
    local _, place = coroutine.resume(sleeper)
    assert.truthy(at(place):find("^inside, local of the coroutine sleeper, local in function"))
    local odd = setmetatable({}, { __index = { deep = { (make(14)) } } })
    assert.truthy(at(odd.deep[1]:data_ptr()):find("^odd %(metatable%)%.__index%.deep%[1%]"))
    local weak = setmetatable({ cnn.ones(15) }, { __mode = "v" })
    collectgarbage()
    collectgarbage()
    assert.is_nil(weak[1])
  end)

  it("groups", function()
    local a, b, c = cnn.ones(30, 2), cnn.ones(30, 2), cnn.ones(7, { dtype = "float64" })
    local groups = cnn.live { group = "shape" }
    local found
    for _, g in ipairs(groups) do
      if g.name == "(30, 2)" then found = g end
    end
    assert.is_true(found.count >= 2)
    assert.are.equal(cnn.memory_allocated(), groups.bytes)
    local bytes = 0
    for _, g in ipairs(cnn.live { group = "kind" }) do bytes = bytes + g.bytes end
    assert.are.equal(cnn.memory_allocated(), bytes)
    assert.truthy(tostring(cnn.live { group = "dtype" }):find("float64", 1, true))
    helper.raises("live: group: expected \"kind\"", cnn.live, { group = "size" })
    helper.raises("live: unknown option", cnn.live, { by = "size" })
    assert.are.equal(67, a:numel() + c:numel())
    b:free()
  end)
end)

describe("leaks", function()
  local kept = {}

  after_each(function()
    for key in pairs(kept) do kept[key] = nil end
  end)

  it("are none when nothing stays, whatever is returned", function()
    local list = cnn.leaks(function(n)
      local x = cnn.ones(n, { requires_grad = true })
      ;(x * 2):sum():backward()
      return x, { x }
    end, 9)
    assert.are.equal(0, #list)
    assert.are.equal("nothing is left behind", tostring(list))
  end)

  it("are found with the line that made them and what holds them", function()
    local list = cnn.leaks(function(n)
      kept.x = cnn.ones(n)
      kept.loss = (cnn.ones(3, { requires_grad = true }) * 2):square():sum()
    end, 100)
    local line = debug.getinfo(1, "l").currentline
    assert.are.equal("(100,)", tostring(list[1].shape))
    assert.truthy(list[1].origin:find(("record_spec.lua:%d in function"):format(line - 3), 1, true))
    assert.truthy(list[1].held:find("^kept%.x, upvalue of"))
    -- The loss, its leaf, and x * 2, which the graph alone holds.
    assert.are.equal(4, #list)
    for i = 2, 4 do assert.truthy(list[i].origin:find(("record_spec.lua:%d "):format(line - 2), 1, true)) end
    local saved = 0
    for _, entry in ipairs(list) do
      if entry.held:find("saved by SquareBackward0 behind", 1, true) then
        saved = saved + 1
        assert.are.equal(0, entry.handles)
      end
    end
    assert.are.equal(1, saved)
  end)

  it("include gradients and optimizer state", function()
    local model = nn.Linear(6, 6)
    local opt = cnn.optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 })
    local list = cnn.leaks(function()
      model(cnn.ones(1, 6)):sum():backward()
      opt:step()
    end)
    local kinds = {}
    for _, entry in ipairs(list) do kinds[entry.kind] = (kinds[entry.kind] or 0) + 1 end
    assert.are.same({ gradients = 2, ["optimizer state"] = 2 }, kinds)
  end)

  it("include what a Function's context holds", function()
    local Double = cnn.Function {
      forward = function(ctx, x)
        ctx.extra = cnn.ones(33)
        return x * 2
      end,
      backward = function(_, g) return g * 2 end,
    }
    local list = cnn.leaks(function() kept.y = Double(cnn.ones(2, { requires_grad = true })) end)
    local found = false
    for _, entry in ipairs(list) do found = found or tostring(entry.shape) == "(33,)" end
    assert.is_true(found)
    kept.y = nil
    assert.are.equal(0, #cnn.leaks(function()
      local y = Double(cnn.ones(2, { requires_grad = true })) -- luacheck: ignore
    end))
  end)

  it("do not count what was there before, or is made by others later", function()
    local before = cnn.ones(3)
    local outer = cnn.leaks(function()
      kept.a = cnn.ones(4)
      local inner = cnn.leaks(function() kept.b = cnn.ones(5) end)
      assert.are.equal(1, #inner)
      assert.are.equal("(5,)", tostring(inner[1].shape))
    end)
    assert.are.equal(2, #outer)
    before:free()
  end)

  it("leave the record as it was, also after an error", function()
    helper.raises("an error", cnn.leaks, function() error "record_spec.lua: an error" end)
    assert.is_false(cnn.record_memory(false))
    cnn.record_memory(true)
    cnn.ones(3):free()
    cnn.leaks(function() cnn.ones(4):free() end)
    assert.is_true(#cnn.memory_snapshot().events >= 4)
    assert.is_true(cnn.record_memory { max_events = 0 })
    cnn.record_memory(false)
    helper.raises("leaks: argument 1 (fn): expected a function", cnn.leaks, 3)
  end)
end)
