-- SPDX-License-Identifier: MIT
-- Every mistake raises, says what is wrong and where, and changes nothing.
local cnn = require "cnn"
local helper = require "spec.helper"

local load_text = loadstring or load

describe("messages about positions", function()
  local x = { { 1, 2, 3 }, { 4, 5, 6 } }

  it("say that Lua counts from 1", function()
    local a = cnn.tensor(x)
    helper.raises("index 0: Lua indices start at 1 (dim 1 has positions 1..2)", function() return a[0] end)
    helper.raises("index 0: Lua indices start at 1 (dim 2 has positions 1..3)", function() return a[{ 1, 0 }] end)
    helper.raises("index 0: Lua indices start at 1", function() return a[{ { 0, 1 } }] end)
    helper.raises("index 0: Lua indices start at 1", function() a[0] = 1 end)
    helper.raises("get: index 0: Lua indices start at 1 (dim 2 has 1..3)", a.get, a, 1, 0)
    helper.raises("set: index 0: Lua indices start at 1", a.set, a, 0, 1, 5)
    helper.raises("sum: dim 0: Lua dims start at 1", a.sum, a, 0)
    helper.raises("size: dim 0: Lua dims start at 1", a.size, a, 0)
    helper.raises("transpose", a.transpose, a, 0, 1)
    helper.raises("select: ", a.select, a, 1, 0)
  end)

  it("name the range", function()
    local a = cnn.tensor(x)
    helper.raises("index 3 is out of range for dim 1 of size 2", function() return a[3] end)
    helper.raises("index -3 is out of range for dim 1 of size 2", function() return a[-3] end)
    helper.raises("index 7 is out of range for dim 2 of size 3", function() return a[{ {}, { 2, 7 } }] end)
    helper.raises("3 indices for a tensor with 2 dims", function() return a[{ 1, 1, 1 }] end)
    helper.raises("get: 1 indices for a tensor of shape (2, 3)", a.get, a, 1)
    helper.raises("sum: dim 3", a.sum, a, 3)
    helper.raises("a range needs two ends", function() return a[{ { 1 } }] end)
    helper.raises("expected a position, a list such as", function() return a[1.5] end)
    helper.raises("expected a position, a list such as", function() return a[true] end)
    helper.raises("expected a position, a list such as", function() return a[{ "1" }] end)
    assert.same(x, a:totable())
  end)

  it("are about the op that the script called", function()
    local a = cnn.tensor(x)
    helper.raises("index_select: ", function() return a:index_select(1, cnn.tensor({ 0 }, "int64")) end)
    helper.raises("gather: ", function() return a:gather(1, cnn.tensor({ { 3 } }, "int64")) end)
    helper.raises("index", function() return a[cnn.tensor({ 0 }, "int64")] end)
  end)
end)

describe("messages about types", function()
  it("name the argument and what was given", function()
    local a = cnn.ones(2)
    helper.raises("add: argument 2 (y): expected a tensor or a number, got the string \"1\"", function()
      return a + "1"
    end)
    helper.raises("add: argument 1", function() return "1" + a end)
    helper.raises("mul: argument 2 (y) is missing: expected a tensor or a number", function() return a * nil end)
    helper.raises("sub: argument 2 (y): expected a tensor or a number, got a table", function() return a - {} end)
    helper.raises("sum: argument 2 (dim): expected a dim or a list of dims, got the string \"1\"", a.sum, a, "1")
    helper.raises("keepdim", a.sum, a, 1, 1)
    helper.raises("zeros: argument 1", cnn.zeros, "3")
    helper.raises("relu: argument 1 (x)", cnn.relu)
    helper.raises("relu: argument 1 (x): expected a tensor, got the number 5", cnn.relu, 5)
    helper.raises("relu: takes at most 1 argument", cnn.relu, a, a)
    helper.raises("cat: argument 1 (", cnn.cat, a)
    helper.raises("[2] must be a tensor, not the number 5", cnn.cat, { a, 5 })
    helper.raises("zeros: argument 1 (shape): expected a shape, got the number 2.5", cnn.zeros, 2.5)
  end)

  it("show whole numbers and fractions as such", function()
    helper.raises("got the number 2.5", cnn.zeros, { 2.5 })
  end)

  it("suggest the option that was meant", function()
    local a = cnn.ones(2)
    helper.raises("sum: unknown option \"keepdims\": did you mean \"keepdim\"? (it takes x, dim, keepdim",
      a.sum, a, { keepdims = true })
    helper.raises("given twice", a.sum, a, 1, { dim = 1 })
    helper.raises("zeros: unknown option \"devise\": did you mean \"device\"?", cnn.zeros, 2, { devise = "cpu" })
    helper.raises("unknown dtype \"flot32\": did you mean \"float32\"?", cnn.zeros, 2, { dtype = "flot32" })
    assert.is_true(cnn.zeros(2, { pin_memory = true }):has_shape(2))
  end)

  it("tell what a tensor has not", function()
    local a = cnn.ones(2)
    helper.raises("a tensor has no method or field \"foo\"", function() return a.foo end)
    helper.raises("a tensor has no method or field \"foo\"", function() return a:foo() end)
    helper.raises("a tensor's field \"shape\" can't be set", function() a.shape = 1 end)
    helper.raises("requires_grad: expected true or false", function() a.requires_grad = 1 end)
    helper.raises("compare elements with x:lt(y)", function() return a < a end)
    helper.raises("compare elements with x:lt(y)", function() return a <= a end)
    helper.raises("join tensors with cnn.cat", function() return a .. "x" end)
    helper.raises("item: the tensor has 2 elements (shape (2,)), not one", a.item, a)
    helper.raises("free: expected a tensor, got nothing", a.free)
  end)

  it("tell dtypes apart", function()
    helper.raises("bitwise_and", function() return cnn.ones(2):bitwise_and(1) end)
    helper.raises("in place, a float result can't be stored in a int64 tensor" and "in place", function()
      return cnn.ones(2, { dtype = "int64" }):add_(1.5)
    end)
    helper.raises("a int64 tensor can't require a gradient: only floats can", function()
      return cnn.ones(2, { dtype = "int64" }):requires_grad_()
    end)
  end)
end)

describe("any value as any argument", function()
  local list = { 1, 2 }
  local function values()
    return {
      cnn.ones(2, 3), cnn.ones(2, 3, { device = "meta" }), cnn.ones(1):sum(), cnn.zeros(0, 3),
      cnn.ones(2, 3, { dtype = "int64" }), cnn.ones(2, 3, { dtype = "bool" }), 1, -1, 0 / 0, 2 ^ 53, "a", true, list,
      { cnn.ones(2), cnn.ones(2, { device = "meta" }) }, { dim = 1 }, print, io.stdout,
    }
  end

  it("gives a result or a message", function()
    local given = values()
    local calls = 0
    cnn.set_memory_limit(2 ^ 26)
    for _, op in ipairs(cnn.ops()) do
      local functions = { cnn[op.name] or cnn.F[op.name], cnn[op.name .. "_"] }
      for _, f in pairs(functions) do
        for i = 1, #given do
          for j = 1, #given do
            local ok, e = pcall(f, given[i], given[j], given[(i * 7 + j) % #given + 1])
            if not ok then
              assert.equal("string", type(e))
              assert.falsy(e:find("attempt to", 1, true) or e:find("bad argument", 1, true), e)
            end
            calls = calls + 1
          end
        end
        given = values() -- what was done in place is forgotten
      end
    end
    cnn.set_memory_limit()
    assert.is_true(calls > 50000)
  end)

  it("does not take a tensor for a size, nor a number for a tensor", function()
    local x = cnn.ones(2, 3)
    for _, name in ipairs { "reshape", "view", "expand", "tile", "broadcast_to" } do
      helper.raises("expected a shape, got a tensor", x[name], x, x)
    end
    helper.raises("zeros: argument 1 (shape): expected a shape, got a tensor", cnn.zeros, x)
    helper.raises("expected a dim or a list of dims, got a tensor", x.permute, x, x, x)
    helper.raises("einsum: argument 2 (operands): expected a list of tensors, got the number 0", cnn.einsum, "a", 0)
    helper.raises("add: in place, argument 1 is what is changed: it must be a tensor", cnn.add_, 1, x)
    helper.raises("at most 1048576 for a dim of size 0", cnn.chunk, cnn.zeros(0), 2 ^ 40)
  end)
end)

describe("values that do not fit", function()
  it("are errors, as in PyTorch", function()
    local x = cnn.zeros(2, { dtype = "uint8" })
    helper.raises("tensor: 300 does not fit uint8", cnn.tensor, { 300 }, { dtype = "uint8" })
    helper.raises("tensor: inf does not fit int64", cnn.tensor, { math.huge }, { dtype = "int64" })
    helper.raises("tensor: 128 does not fit int8", cnn.tensor, { 128 }, { dtype = "int8" })
    helper.raises("tensor: 1e+19 does not fit int64", cnn.tensor, { 1e19 }, { dtype = "int64" })
    helper.raises("full: value 300 does not fit uint8", cnn.full, { 2 }, 300, { dtype = "uint8" })
    helper.raises("full_like: value 256 does not fit uint8", cnn.full_like, x, 256)
    helper.raises("fill_: value -inf does not fit uint8", x.fill_, x, -math.huge)
    helper.raises("index assignment: value 300 does not fit uint8", function() x[1] = 300 end)
    helper.raises("set: value 300 does not fit uint8", x.set, x, 1, 300)
    helper.elements(x, { 0, 0 })
    helper.elements(cnn.tensor({ -128, 127, 1.9, -1.9 }, { dtype = "int8" }), { -128, 127, 1, -1 })
    helper.elements(cnn.tensor({ -2 ^ 63, 2 ^ 62 }, { dtype = "int64" }):double(), { -2 ^ 63, 2 ^ 62 })
    helper.elements(cnn.tensor({ -1, 255 }, { dtype = "uint8" }), { 255, 255 })
    helper.elements(cnn.tensor({ math.huge, 0 }, { dtype = "bool" }):long(), { 1, 0 })
  end)

  it("a list with a gap is an error", function()
    local list = { 1, 2, 3, 4 }
    list[6] = 6
    -- It depends on the Lua where the list is found to end.
    for _, given in ipairs { list, { list, list }, { 1, nil, 3 }, { { 1, nil, 3 } } } do
      local ok, e = pcall(cnn.tensor, given)
      assert.is_false(ok)
      local said = e:find("a list has a nil, or a gap, behind its element", 1, true)
      assert.truthy(said or e:find("found nil", 1, true), e)
    end
    helper.raises("found a tensor: cnn.stack and cnn.cat join tensors", cnn.tensor, { cnn.ones(1) })
  end)
end)

describe("messages about dtypes", function()
  it("advise to convert what is no float", function()
    local x, i = cnn.ones(2, 2), cnn.ones(2, 2, { dtype = "int64" })
    helper.raises("x is float32 but y is int64: convert one, e.g. y:to(\"float32\")", x.matmul, x, i)
    helper.raises("x is int64 but y is float32: convert one, e.g. x:to(\"float32\")", i.matmul, i, x)
    helper.raises("e.g. input:to(\"float32\")", cnn.nn.Linear(2, 2), i)
  end)
end)

describe("messages about shapes", function()
  it("name both", function()
    local message = helper.raises("add: ", function() return cnn.ones(2, 3) + cnn.ones(4) end)
    assert.truthy(message:find("(2, 3)", 1, true) and message:find("(4)", 1, true) or message:find("(4,)", 1, true))
    helper.raises("view: ", function() return cnn.ones(2, 3):view(4) end)
    helper.raises("expand: ", function() return cnn.ones(2, 3):expand(2, 4) end)
    helper.raises("in place", function() return cnn.ones(3):add_(cnn.ones(2, 3)) end)
    helper.raises("cat: ", function() return cnn.cat({ cnn.ones(2, 3), cnn.ones(2, 4) }, 1) end)
    helper.raises("at most 8", cnn.zeros, 1, 1, 1, 1, 1, 1, 1, 1, 1)
    helper.raises("zeros: ", cnn.zeros, -1)
  end)
end)

describe("freed tensors", function()
  it("raise in every use", function()
    local a, b = cnn.ones(2), cnn.ones(2)
    a:free()
    a:free()
    helper.raises("add: argument 1 (x) is a tensor that was freed", function() return a + b end)
    helper.raises("add: argument 2 (y) is a tensor that was freed", function() return b + a end)
    helper.raises("was freed", function() return a.shape end)
    helper.raises("was freed", function() return a[1] end)
    helper.raises("was freed", function() a[1] = 2 end)
    helper.raises("was freed", function() b[1] = a end)
    helper.raises("was freed", function() return #a end)
    helper.raises("was freed", function() return a:size() end)
    helper.raises("was freed", function() return a:item() end)
    helper.raises("was freed", function() return a:totable() end)
    helper.raises("was freed", function() return a:to("float64") end)
    helper.raises("was freed", function() return b:to(a) end)
    helper.raises("was freed", function() return a:backward() end)
    helper.raises("was freed", function() return cnn.cat { b, a } end)
    helper.raises("was freed", function() return cnn.tensor(a) end)
    helper.raises("was freed", function() return cnn.grad(a, b) end)
    assert.equal("tensor(freed)", tostring(a))
    assert.is_true(cnn.is_tensor(a))
    assert.is_false(a == b)
  end)
end)

describe("devices", function()
  it("don't mix, and the message names both", function()
    local here, there = cnn.ones(2), cnn.ones(2, { device = "meta" })
    local message = helper.raises("add: ", function() return here + there end)
    assert.truthy(message:find("cpu", 1, true) and message:find("meta", 1, true))
    helper.raises("meta", function() return there:totable() end)
    helper.raises("meta", function() return there:sum():item() end)
    helper.raises("meta", function() return there[cnn.tensor({ true, false }):to("meta")] end)
    assert.equal("meta", (there + 1).device)
    helper.raises("device \"cuda\" is not available", function() return cnn.ones(2, { device = "cuda" }) end)
    helper.raises("unknown device", function() return cnn.ones(2, { device = "gpu" }) end)
  end)

  it("a meta tensor's values are not copied", function()
    local x, meta = cnn.ones(2), cnn.ones(2, { device = "meta" })
    helper.raises("copy_: src is a meta tensor, which has a shape and no data", x.copy_, x, meta)
    helper.raises("index assignment: src is a meta tensor", function() x[1] = meta:sum() end)
    helper.raises("index assignment: src is a meta tensor", function() x[{ { 1, 2 } }] = meta end)
    helper.elements(x, { 1, 1 })
  end)
end)

describe("the line", function()
  -- Runs a text as if it were a script.
  local function script(text)
    local ok, message = pcall(assert(load_text(text, "@train.lua")))
    assert.is_false(ok)
    return message
  end

  it("is the script's, from the binding and from the library's Lua files", function()
    local start = "local cnn = require 'cnn'\nlocal x = cnn.ones(2, {requires_grad = true})\n"
    for text, expected in pairs {
      ["\nx[0] = 1"] = "^train.lua:4: index",
      ["local y = x + nil"] = "^train.lua:3: add",
      ["\ncnn.tensor({1}, {dtyp = 1})"] = "^train.lua:4: tensor",
      ["x:to('gpu')"] = "^train.lua:3: to",
      ["cnn.scope(\nfunction()\ncnn.relu(5)\nend)"] = "^train.lua:5: relu",
      ["cnn.no_grad(\nfunction()\ncnn.relu(5)\nend)"] = "^train.lua:5: relu",
      ["local g = cnn.grad(\nx, 3)"] = "^train.lua:[34]: grad",
      ["local f = cnn.Function{forward = function(_, a) return a * 2 end, backward = function() return 5 end}\n"
        .. "local y = f(x):sum()\ny:backward()"] = "^train.lua:5: Function: backward: gradient 1",
    } do
      local message = script(start .. text)
      assert.truthy(message:find(expected), message)
    end
  end)

  it("is that of a function that was called last of all", function()
    local message = script("local cnn = require 'cnn'\nlocal function f(x)\n  return cnn.relu(x)\nend\n"
      .. "local y = f(5)\n")
    assert.truthy(message:find("^train.lua:%d: relu"))
  end)

  it("is right in coroutines", function()
    local message = script("local cnn = require 'cnn'\nlocal co = coroutine.create(function()\n  cnn.relu(5)\nend)\n"
      .. "local ok, m = coroutine.resume(co)\nerror(m, 0)")
    assert.truthy(message:find("^train.lua:3: relu"))
  end)

  it("is where the text comes from", function()
    local ok, message = pcall(assert(load_text("require 'cnn'.relu(5)", "=stdin")))
    assert.is_false(ok)
    assert.truthy(message:find("^stdin:1: relu"))
  end)
end)

describe("after an error", function()
  it("nothing has changed, and nothing has leaked", function()
    local a, b = cnn.ones(100), cnn.ones(3)
    local w = cnn.ones(100, { requires_grad = true })
    local mistakes = {
      function() return a + b end, function() return a[200] end, function() return cnn.tensor { 1, "x" } end,
      function() return cnn.zeros(2, { dtype = "x" }) end, function() return a:view(7) end,
      function() return cnn.cat { a, 5 } end, function() return (w * 2):backward() end,
      function() return cnn.rand(-1) end, function() a:add_(cnn.ones(200)) end,
      function() return cnn.scope(function() local c = a * 2 error(c) end) end,
      function() return cnn.no_grad(function() return a * 2 + b end) end,
      function() return cnn.checkpoint(function(x) return x * 2 + b end, w) end,
      function() return cnn.grad((w * 2):sum(), a) end,
    }
    local function round()
      for _, mistake in ipairs(mistakes) do assert.is_false(pcall(mistake)) end
    end
    local function settle()
      helper.settle()
      cnn.tensor(0):free()
      for _ = 1, 2 do collectgarbage() end
      return cnn.memory_allocated()
    end
    round()
    local state, before = cnn.get_rng_state(), settle()
    for _ = 1, 20 do round() end
    assert.equal(before, settle())
    assert.same(state, cnn.get_rng_state())
    assert.is_true(cnn.is_grad_enabled())
    assert.equal(100, a:sum():item())
    assert.is_nil(w.grad)
  end)

  it("error objects are those that were thrown", function()
    local thrown = setmetatable({}, { __tostring = function() return "mine" end })
    local function throw() error(thrown) end
    local x = cnn.ones(1, { requires_grad = true })
    x:register_hook(throw)
    for _, fn in ipairs {
      function() cnn.scope(throw) end, function() cnn.no_grad(throw) end, function() cnn.checkpoint(throw, x) end,
      function() (x * 2):backward() end, function() cnn.detect_anomaly(throw) end,
      function() cnn.scope(cnn.no_grad, cnn.scope, throw) end,
    } do
      local ok, err = pcall(fn)
      assert.is_false(ok)
      assert.equal(thrown, err)
    end
  end)
end)
