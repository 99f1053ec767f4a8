-- SPDX-License-Identifier: MIT
-- cnn.scope and cnn.keep.
local cnn = require "cnn"
local helper = require "spec.helper"

-- Without collections, all that is freed is freed by the scope.
local function without_collector(fn)
  return function()
    for _ = 1, 2 do collectgarbage() end
    collectgarbage("stop")
    local ok, err = pcall(fn)
    collectgarbage("restart")
    if not ok then error(err, 0) end
  end
end

describe("cnn.scope", function()
  it("frees what is made inside, but the results", without_collector(function()
    local x = cnn.ones(1000)
    local before = cnn.memory_allocated()
    local inner
    local y, text, none = cnn.scope(function(a, b)
      inner = a * b
      for _ = 1, 10 do inner = inner + 1 end
      return inner * 2, "x", nil
    end, x, 3)
    assert.equal("x", text)
    assert.is_nil(none)
    assert.equal(26, y:get(5))
    assert.is_true(cnn.memory_allocated() - before < 2 * 4096 + 1000)
    helper.raises("was freed", function() return inner:sum() end)
    assert.equal(1, x:get(1))
    y:free()
    assert.equal(before, cnn.memory_allocated())
  end))

  it("keeps results in tables, and what cnn.keep was given", without_collector(function()
    local kept
    local list, map = cnn.scope(function()
      kept = cnn.keep(cnn.ones(2))
      return { cnn.ones(3), { cnn.ones(4) } }, { name = cnn.ones(5) }
    end)
    assert.is_true(list[1]:has_shape(3) and list[2][1]:has_shape(4) and map.name:has_shape(5))
    assert.is_true(kept:has_shape(2))
    local a, b = cnn.keep(kept, 5)
    assert.is_true(a == kept and b == 5)
    for _, x in ipairs { kept, list[1], list[2][1], map.name } do x:free() end
  end))

  it("finds results in tables that refer to each other, and however deep", without_collector(function()
    local circle, list = {}, nil
    for i = 1, 10 do circle[i] = circle end
    local head = cnn.scope(function()
      circle.x = cnn.ones(2)
      for i = 1, 100 do
        local node = { next = list, t = cnn.ones(i) }
        if list then list.previous = node end
        list = node
      end
      return circle, list
    end)
    assert.is_true(head == circle and head.x:has_shape(2))
    head.x:free()
    for i = 100, 1, -1 do
      assert.is_true(list.t:has_shape(i))
      list.t:free()
      list = list.next
    end
  end))

  it("nests: results move to the enclosing scope", without_collector(function()
    local before = cnn.memory_allocated()
    local outer, middle
    cnn.scope(function()
      outer = cnn.ones(10)
      middle = cnn.scope(function()
        local same = cnn.scope(function() return outer, { outer } end)
        assert.is_true(same == outer)
        local list = cnn.scope(function() return { cnn.ones(20), cnn.ones(30) } end)
        return list[1]
      end)
      -- What came through an inner scope is still ours.
      assert.is_true(outer:has_shape(10))
      assert.is_true(middle:has_shape(20))
    end)
    helper.raises("was freed", function() return outer:sum() end)
    helper.raises("was freed", function() return middle:sum() end)
    assert.equal(before, cnn.memory_allocated())
  end))

  it("passes errors on unharmed, and is left", without_collector(function()
    local before, inside = cnn.memory_allocated(), nil
    local thrown = { 1 }
    local ok, err = pcall(cnn.scope, function()
      inside = cnn.ones(100)
      error(thrown)
    end)
    assert.is_false(ok)
    assert.equal(thrown, err)
    assert.equal(before, cnn.memory_allocated())
    helper.raises("was freed", function() return inside:sum() end)
    local outside = cnn.ones(3)
    assert.is_true(outside:has_shape(3))
    outside:free()
    assert.equal("plain", helper.message(cnn.scope, function() error("plain", 0) end))
    helper.raises("scope: argument 1 (fn): expected a function (or a module), got nil", cnn.scope)
  end))

  it("leaves alone what the graph holds", without_collector(function()
    local x = cnn.ones(3, { requires_grad = true })
    local loss = cnn.scope(function()
      local h = x * 2
      return cnn.sum(h * h)
    end)
    loss:backward()
    helper.elements(x.grad, { 8, 8, 8 })
    cnn.scope(function() cnn.sum(x * 2):backward() end)
    helper.elements(x.grad, { 10, 10, 10 })
    x.grad = nil
    loss:free()
  end))

  it("leaves alone gradients and parameters that were met inside", without_collector(function()
    local x = cnn.ones(2, { requires_grad = true })
    x:sum():backward()
    local grad, parameter
    cnn.scope(function()
      grad = x.grad
      parameter = cnn.nn.Parameter(cnn.ones(2))
    end)
    helper.elements(grad, { 1, 1 })
    helper.elements(parameter, { 1, 1 })
  end))

  it("goes well with free and with collections", function()
    local result = cnn.scope(function()
      local a = cnn.ones(10)
      a:free()
      cnn.ones(10)
      collectgarbage()
      collectgarbage()
      return cnn.ones(2)
    end)
    assert.is_true(result:has_shape(2))
  end)

  local on_54 = _VERSION == "Lua 5.4" and it or pending
  on_54("has a sibling in Lua 5.4: <close>", function()
    local closed = assert(load("local x <close> = ... return function() return x end"))
    local read = closed(cnn.ones(3))
    helper.raises("was freed", function() return read():sum() end)
  end)

  it("gives many results, or none", function()
    assert.equal(0, select("#", cnn.scope(function() end)))
    local list = {}
    for i = 1, 100 do list[i] = i end
    local unpack = table.unpack or unpack
    assert.equal(100, select("#", cnn.scope(function() return unpack(list) end)))
  end)
end)

describe("scopes and coroutines", function()
  -- Lua 5.1 can't yield through pcall.
  local can_yield = coroutine.resume(coroutine.create(function() pcall(coroutine.yield) end))
    and coroutine.wrap(function() return (pcall(coroutine.yield, true)) end)() == true
  local it_yields = can_yield and it or pending

  it_yields("go on after a yield", function()
    local inner
    local thread = coroutine.wrap(function()
      return cnn.scope(function()
        inner = cnn.ones(4)
        coroutine.yield("first")
        local late = inner + 1
        coroutine.yield("second")
        return late
      end)
    end)
    assert.equal("first", thread())
    -- Made by us meanwhile: none of the scope's business.
    local ours = cnn.ones(5)
    assert.equal("second", thread())
    local result = thread()
    helper.elements(result, { 2, 2, 2, 2 })
    helper.raises("was freed", function() return inner:sum() end)
    assert.is_true(ours:has_shape(5))
  end)

  it_yields("may close in any order", function()
    local function task(n)
      return coroutine.wrap(function()
        return cnn.scope(function()
          local x = cnn.ones(n)
          coroutine.yield(x)
          return x * 2
        end)
      end)
    end
    local a, b, c = task(1), task(2), task(3)
    local xa, xb, xc = a(), b(), c()
    local ya = a()
    helper.raises("was freed", function() return xa:sum() end)
    assert.is_true(xb:has_shape(2) and xc:has_shape(3))
    local outside = cnn.scope(function() return cnn.ones(9) end)
    local yc, yb = c(), b()
    helper.raises("was freed", function() return xb:sum() end)
    for _, y in ipairs { ya, yb, yc } do assert.equal(2, y:get(1)) end
    assert.is_true(outside:has_shape(9))
  end)

  it_yields("that are given up free nothing, and harm nothing", function()
    local x
    local function abandon()
      local thread = coroutine.wrap(function()
        cnn.scope(function()
          x = cnn.ones(7)
          coroutine.yield()
        end)
      end)
      thread()
    end
    abandon()
    for _ = 1, 4 do collectgarbage() end
    assert.is_true(x:has_shape(7))
    local y = cnn.scope(function() return cnn.ones(2) + 1 end)
    helper.elements(y, { 2, 2 })
  end)

  it("leave the tensors of a generator alone", function()
    local function numbers()
      return coroutine.wrap(function()
        for i = 1, 3 do coroutine.yield(cnn.full({ 2 }, i)) end
      end)
    end
    local list = {}
    cnn.scope(function()
      for x in numbers() do list[#list + 1] = x end
    end)
    assert.equal(2, list[2]:get(1))
  end)
end)
