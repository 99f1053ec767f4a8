-- SPDX-License-Identifier: MIT
-- cnn.Function: operations with gradients, written in Lua.
local cnn = require "cnn"
local helper = require "spec.helper"

local function leaf(values, dtype) return cnn.tensor(values, { dtype = dtype, requires_grad = true }) end

local Square = cnn.Function {
  name = "Square",
  forward = function(ctx, x)
    ctx:save_for_backward(x)
    return x * x
  end,
  backward = function(ctx, dy)
    local x = ctx:saved()
    return dy * x * 2
  end,
}

-- A weak reference and a collection: whether a value is gone.
local function watch(value) return setmetatable({ value }, { __mode = "v" }) end
local function collect()
  for _ = 1, 3 do collectgarbage() end
  cnn.tensor(0):free()
  for _ = 1, 3 do collectgarbage() end
end

describe("cnn.Function", function()
  it("is callable, named and differentiable", function()
    local x = leaf { 1, 2, 3 }
    local y = Square(x)
    assert.equal("SquareBackward", y.grad_fn.name)
    assert.equal("cnn.Function(Square)", tostring(Square))
    helper.elements(y, { 1, 4, 9 })
    Square(Square(x)):sum():backward()
    helper.elements(x.grad, { 4, 32, 108 })
    assert.is_true(cnn.gradcheck(Square, leaf({ 1, -2 }, "float64"), { second = true }))
  end)

  it("is not recorded where nothing wants a gradient", function()
    assert.is_false(Square(cnn.ones(2)).requires_grad)
    assert.is_false(cnn.no_grad(Square, leaf { 1 }).requires_grad)
    assert.is_true(Square(leaf { 1 }).requires_grad)
  end)

  it("runs forward without recording, backward with what create_graph says", function()
    local modes = {}
    local f = cnn.Function {
      forward = function(_, x) modes[1] = cnn.is_grad_enabled() return x * 2 end,
      backward = function(_, dy) modes[#modes + 1] = cnn.is_grad_enabled() return dy * 2 end,
    }
    local x = leaf { 1 }
    f(x):sum():backward()
    cnn.grad(f(x):sum(), x, { create_graph = true })
    assert.same({ false, false, true }, modes)
  end)

  it("takes several tensors, and arguments that are none", function()
    local scale = cnn.Function {
      name = "Scale",
      forward = function(ctx, k, x, text, w)
        assert.equal("text", text)
        assert.same({ false, true, false, false }, { ctx:needs_grad(1), ctx:needs_grad(2), ctx:needs_grad(3),
          ctx:needs_grad(4) })
        ctx.k = k
        ctx:save_for_backward(w)
        return x * w * k
      end,
      backward = function(ctx, dy)
        local w = ctx:saved()
        return nil, dy * w * ctx.k
      end,
    }
    local x = leaf { 1, 2 }
    local y = scale(3, x, "text", cnn.tensor { 5, 7 })
    y:sum():backward()
    helper.elements(x.grad, { 15, 21 })
  end)

  it("gives several results; gradients that don't come are zeros", function()
    local seen
    local both = cnn.Function {
      forward = function(_, x) return x * 2, x * 3, "label", x:argmax() end,
      backward = function(_, da, db, label, di)
        seen = { da:totable(), db:totable(), label, di.dtype }
        return da * 2 + db * 3
      end,
    }
    local x = leaf { 1, 2 }
    local a, b, label, index = both(x)
    assert.equal("label", label)
    assert.is_true(a.requires_grad and b.requires_grad)
    assert.is_false(index.requires_grad)
    b:sum():backward()
    helper.elements(x.grad, { 3, 3 })
    assert.same({ { 0, 0 }, { 1, 1 }, nil, "int64" }, seen)
  end)

  it("leaves missing gradients nil where asked to", function()
    local got
    local both = cnn.Function {
      forward = function(ctx, x)
        ctx:set_materialize_grads(false)
        return x * 2, x * 3
      end,
      backward = function(_, da, db)
        got = db
        return da * 2
      end,
    }
    local x = leaf { 1 }
    both(x):sum():backward()
    assert.is_nil(got)
    helper.elements(x.grad, { 2 })
  end)

  it("may mark results that have no gradient", function()
    local f = cnn.Function {
      forward = function(ctx, x)
        local mask = x * 0 + 1
        ctx:mark_non_differentiable(mask)
        return x * 2, mask
      end,
      backward = function(_, dy) return dy * 2 end,
    }
    local x = leaf { 1 }
    local y, mask = f(x)
    assert.is_false(mask.requires_grad)
    y:sum():backward()
    helper.elements(x.grad, { 2 })
  end)

  it("may give back an argument, a parameter, or one result twice", function()
    local same = cnn.Function {
      forward = function(_, x) return x, x end,
      backward = function(_, a, b) return a + b * 10 end,
    }
    local x = leaf { 1 }
    local y, z = same(x)
    assert.is_false(y == x)
    assert.is_true(x.is_leaf and x.requires_grad)
    cnn.sum(y + z * 2):backward()
    helper.elements(x.grad, { 21 })
    local w = leaf { 5 }
    local give = cnn.Function { forward = function() return w end, backward = function() end }
    assert.equal("FunctionBackward", give(x).grad_fn.name)
    assert.is_true(w.is_leaf)
  end)

  it("saves results, by their own handles", function()
    local Exp = cnn.Function {
      name = "Exp",
      forward = function(ctx, x)
        local y = x:exp()
        ctx:save_for_backward(y)
        return y
      end,
      backward = function(ctx, dy) return dy * ctx:saved() end,
    }
    assert.is_true(cnn.gradcheck(Exp, leaf({ 0.5, 1 }, "float64"), { second = true }))
    -- No cycle: the result, its node and the context go when the result goes.
    local x = leaf { 1 }
    collect()
    local before = cnn.memory_allocated()
    local gone = watch(Exp(x))
    collect()
    assert.is_nil(gone[1])
    collect()
    assert.equal(before, cnn.memory_allocated())
  end)

  it("holds no cycle by an argument that was changed in place", function()
    local kept = watch {}
    local function run()
      local x = leaf { 1 } * 1
      local y = Square(x)
      x:add_(y)
      kept[1] = x
    end
    run()
    collect()
    assert.is_nil(kept[1])
  end)

  it("finds saved tensors that were changed in place", function()
    local x = leaf { 1, 2 } * 1
    local y = Square(x)
    x:add_(1)
    local text = "a tensor that SquareBackward needs for backward (float32 of shape (2,)) was changed"
    local message = helper.raises(text, function() y:sum():backward() end)
    assert.truthy(message:find("expected", 1, true))
  end)

  it("saves nil, and several tensors in order", function()
    local f = cnn.Function {
      forward = function(ctx, x, w)
        ctx:save_for_backward(w, nil, x)
        return x * w
      end,
      backward = function(ctx, dy)
        local w, none, x = ctx:saved()
        assert.is_nil(none)
        assert.equal(3, select("#", ctx:saved()))
        return dy * w, dy * x
      end,
    }
    local x, w = leaf { 2 }, leaf { 3 }
    f(x, w):sum():backward()
    helper.elements(x.grad, { 3 })
    helper.elements(w.grad, { 2 })
  end)

  it("outlives handles and scopes", function()
    local x = leaf { 1, 2 }
    local f = cnn.Function {
      forward = function(ctx, a)
        ctx.double = a * 2
        ctx:save_for_backward(a)
        return a * a
      end,
      backward = function(ctx, dy) return dy * (ctx:saved() + ctx.double * 0.5) end,
    }
    local y = cnn.scope(function()
      local h = x * 3
      local z = f(h)
      h:free()
      return z
    end)
    y:sum():backward()
    helper.elements(x.grad, { 18, 36 })
  end)

  it("frees what it saved after backward", function()
    local x = leaf { 1 }
    collect()
    local before = cnn.memory_allocated()
    local y = Square(x:expand(1000):contiguous()):sum()
    y:backward()
    y, x.grad = nil, nil
    collect()
    assert.equal(before, cnn.memory_allocated())
    assert.is_nil(y)
  end)

  it("turns a gradient into the argument's dtype", function()
    local f = cnn.Function {
      forward = function(_, x) return x:double() end,
      backward = function(_, dy) return dy end,
    }
    local x = leaf { 1 }
    f(x):sum():backward()
    assert.equal("float32", x.grad.dtype)
  end)

  it("passes errors on, and works afterwards", function()
    local thrown, fails = {}, true
    local f = cnn.Function {
      forward = function(_, x) return x * 2 end,
      backward = function(_, dy)
        if fails then error(thrown) end
        return dy * 2
      end,
    }
    local x = leaf { 1 }
    local y = f(x)
    local ok, err = pcall(y.backward, y)
    assert.is_false(ok)
    assert.equal(thrown, err)
    assert.is_nil(x.grad)
    fails = false
    y:backward()
    helper.elements(x.grad, { 2 })
    local g = cnn.Function { forward = function() error("in forward", 0) end, backward = function() end }
    assert.equal("in forward", helper.message(g, x))
    assert.is_true(cnn.is_grad_enabled())
  end)

  it("says what backward gave wrong", function()
    local answer
    local f = cnn.Function {
      name = "Odd",
      forward = function(_, x, k) return x * k end,
      backward = function() return answer() end,
    }
    local x = leaf { 1, 2 }
    local function expect(text, fn)
      answer = fn
      local y = f(x, 2)
      helper.raises(text, function() y:sum():backward() end)
      assert.is_nil(x.grad)
    end
    expect("Odd: backward: gradient 1: expected a tensor or nil, got the number 5", function() return 5 end)
    expect("OddBackward gave a gradient of shape (3,) for input 1, which is (2,)", function() return cnn.ones(3) end)
    expect("Odd: backward gave a gradient for argument 2, which is no tensor", function() return nil, cnn.ones(2) end)
    expect("Odd: backward returned 3 gradients for 2 arguments", function() return nil, nil, cnn.ones(2) end)
    expect("OddBackward gave a gradient on meta for input 1, which is on cpu", function()
      return cnn.ones(2, { device = "meta" })
    end)
    answer = function() end
    f(x, 2):sum():backward()
    assert.is_nil(x.grad)
  end)

  it("says what the definition or the use lacks", function()
    helper.raises("Function: expected a table {forward = ..., backward = ...}, got a function", cnn.Function, print)
    helper.raises("Function: forward: expected a function", cnn.Function, {})
    helper.raises("Function: forward: expected a function", cnn.Function, { backward = print })
    helper.raises("unknown option \"foward\": did you mean \"forward\"?", cnn.Function, { foward = print })
    local x = leaf { 1 }
    local one_way = cnn.Function { name = "OneWay", forward = function(_, a) return a * 2 end }
    helper.raises("OneWay: it has no backward, but an input requires a gradient", one_way, x)
    helper.elements(one_way(cnn.ones(1)), { 2 })
    local lists = cnn.Function { name = "Lists", forward = function(_, a) return { a * 2 } end, backward = print }
    helper.raises("Lists: tensors in a table have no gradient here: return them as several values", lists, x)
    helper.raises("Lists: tensors in a table have no gradient here: pass them as arguments", lists, x, { x })
    local saver = cnn.Function {
      name = "Saver",
      forward = function(ctx, a)
        ctx:save_for_backward(a, 5)
        return a
      end,
      backward = print,
    }
    helper.raises("Saver: save_for_backward: argument 2: expected a tensor or nil, got the number 5", saver, x)
  end)

  it("works with retain_graph, several times", function()
    local x = leaf { 3 }
    local y = Square(x)
    y:backward { retain_graph = true }
    y:backward()
    helper.elements(x.grad, { 12 })
    helper.raises("retain_graph = true", y.backward, y)
  end)
end)
