-- SPDX-License-Identifier: MIT
-- backward, cnn.grad, modes, graph nodes, anomaly mode, checkpoints, gradcheck, pictures of the graph.
local cnn = require "cnn"
local helper = require "spec.helper"

local function leaf(values, dtype) return cnn.tensor(values, { dtype = dtype, requires_grad = true }) end

describe("backward", function()
  it("adds to the gradients of leaves", function()
    local x = leaf { 1, 2, 3 }
    cnn.sum(x * x):backward()
    helper.elements(x.grad, { 2, 4, 6 })
    x:sum():backward()
    helper.elements(x.grad, { 3, 5, 7 })
    assert.is_true(x.grad == x.grad)
    x.grad = nil
    assert.is_nil(x.grad)
  end)

  it("takes the gradient of what is no single number", function()
    local x = leaf { 1, 2 }
    local y = x * 3
    helper.raises("needs a gradient of that shape", y.backward, y)
    y:backward(cnn.tensor { 1, 10 }, { retain_graph = true })
    y:backward { gradient = cnn.tensor { 1, 10 } }
    helper.elements(x.grad, { 6, 60 })
    helper.raises("shape (3,) is not the tensor's, (2,)", (x * 1).backward, x * 1, cnn.ones(3))
  end)

  it("frees the graph unless told to keep it", function()
    local x = leaf { 2 }
    local y = (x * x):sum()
    y:backward { retain_graph = true }
    y:backward()
    helper.elements(x.grad, { 8 })
    helper.raises("retain_graph = true", y.backward, y)
    helper.elements(x.grad, { 8 })
  end)

  it("says what has no gradient", function()
    helper.raises("nothing it was made from requires one", function() cnn.ones(1):backward() end)
    helper.raises("unknown option \"retain_grap\": did you mean \"retain_graph\"?", function()
      leaf({ 1 }):sum():backward { retain_grap = true }
    end)
  end)

  it("finds what was changed in place", function()
    local x = leaf { 1, 2 }
    local y = x:exp()
    local z = y * y
    y:add_(1)
    local message = helper.raises("was changed in place since", function() z:sum():backward() end)
    assert.truthy(message:find("MulBackward0", 1, true))
    assert.is_nil(x.grad)
  end)

  it("starts from a view whose base was changed", function()
    local x = leaf { 1, 2, 3 }
    local y = x * 1
    local v = y[{ { 1, 1 } }]
    y:mul_(2)
    v:backward()
    helper.elements(x.grad, { 2, 0, 0 })
  end)

  it("goes through deep graphs", function()
    local x = leaf { 1 }
    local y = x
    for _ = 1, 20000 do y = y + 1 end
    y:backward()
    helper.elements(x.grad, { 1 })
  end)

  it("holds what a hook returns against the gradient", function()
    local function run(result)
      local x = leaf { 1, 2 }
      x:register_hook(function() return result end)
      local ok, e = pcall(function() (x * 2):sum():backward() end)
      return ok and x.grad or e
    end
    assert.truthy(run(cnn.ones(3)):find("backward: a hook returned shape (3,) for a gradient of shape (2,)", 1, true))
    local elsewhere = run(cnn.ones(2, { device = "meta" }))
    assert.truthy(elsewhere:find("a hook returned a tensor on meta for a gradient on cpu", 1, true))
    for _, dtype in ipairs { "float64", "int64" } do
      local g = run(cnn.full({ 2 }, 3, { dtype = dtype }))
      assert.equal("float32", g.dtype)
      helper.elements(g, { 3, 3 })
    end
  end)
end)

describe("cnn.grad", function()
  it("gives a tensor for a tensor, a list for a list", function()
    local x, w = leaf { 1, 2 }, leaf { 3, 4 }
    local y = (x * w):sum()
    local dx = cnn.grad(y, x, { retain_graph = true })
    helper.elements(dx, { 3, 4 })
    local both = cnn.grad({ y }, { x, w })
    helper.elements(both[1], { 3, 4 })
    helper.elements(both[2], { 1, 2 })
    assert.is_nil(x.grad)
  end)

  it("weighs outputs", function()
    local x = leaf { 1, 2 }
    local g = cnn.grad({ x * 2, x * x }, x, { grad_outputs = { cnn.tensor { 1, 0 }, cnn.tensor { 0, 1 } } })
    helper.elements(g, { 2, 4 })
    helper.elements(cnn.grad(x * 2, x, cnn.tensor { 1, 10 }), { 2, 20 })
    local one = cnn.ones(2)
    helper.raises("3 grad_outputs for 2 outputs", cnn.grad, { x * 2, x * 3 }, x, { grad_outputs = { one, one, one } })
    helper.raises("1 grad_outputs for 2 outputs", cnn.grad, { x * 2, x * 3 }, x, one)
  end)

  it("leaves alone what lies behind its inputs", function()
    local w = leaf { 1, 2 }
    local x = w:exp()
    helper.elements(cnn.grad((x * x):sum(), x), (x * 2):totable())
    x:sum():backward()
    helper.elements(w.grad, x:totable())
    -- but not if a later input is reached through an earlier one
    local y = w:exp()
    local both = cnn.grad((y * y):sum(), { y, w })
    helper.elements(both[1], (y * 2):totable())
    helper.elements(both[2], (y * y * 2):totable())
    helper.raises("the graph was freed", function() y:sum():backward() end)
  end)

  it("differentiates gradients", function()
    local x = leaf({ 2 }, "float64")
    local first = cnn.grad((x * x * x):sum(), x, { create_graph = true })
    local second = cnn.grad(first:sum(), x, { create_graph = true })
    local third = cnn.grad(second:sum(), x)
    assert.equal(12, first:item())
    assert.equal(12, second:item())
    assert.equal(6, third:item())
  end)

  it("tells inputs that play no part", function()
    local x, w = leaf { 1 }, leaf { 1 }
    helper.raises("do not depend on input 2", cnn.grad, x:sum(), { x, w })
    local g = cnn.grad(x:sum(), { w, x }, { allow_unused = true })
    assert.is_nil(g[1])
    helper.elements(g[2], { 1 })
  end)

  it("works for what is in the middle of a graph", function()
    local x = leaf { 2 }
    local y = x * 3
    local z = (y * y):sum()
    helper.elements(cnn.grad(z, y, { retain_graph = true }), { 12 })
    helper.elements(cnn.grad(z, { y, x })[2], { 36 })
  end)

  it("names what is wrong", function()
    local x = leaf { 1 }
    helper.raises("grad: argument 1 (outputs): expected a tensor or a list of tensors, got nil", cnn.grad, nil, x)
    helper.raises("grad: argument 2 (inputs)", cnn.grad, x:sum(), 3)
    helper.raises("no inputs are given", cnn.grad, x:sum(), {})
    helper.raises("input 1 does not require a gradient", cnn.grad, x:sum(), cnn.ones(1))
    helper.raises("create_graph: expected true or false, got the number 1", cnn.grad, x:sum(), x, { create_graph = 1 })
    helper.raises("unknown option \"retain\"", cnn.grad, x:sum(), x, { retain = true })
  end)
end)

describe("modes", function()
  it("run a function and give its results", function()
    local x = leaf { 1 }
    local function f(a, b)
      return a * b, "x", nil
    end
    local y, text, none = cnn.no_grad(f, x, 2)
    assert.is_false(y.requires_grad)
    assert.equal("x", text)
    assert.is_nil(none)
    assert.equal(3, select("#", cnn.no_grad(f, x, 2)))
    assert.is_true(cnn.no_grad(cnn.enable_grad, f, x, 2).requires_grad)
    assert.is_true(cnn.is_grad_enabled())
  end)

  it("end with an error, which passes", function()
    local thrown = {}
    local ok, err = pcall(cnn.no_grad, function() error(thrown) end)
    assert.is_false(ok)
    assert.equal(thrown, err)
    assert.is_true(cnn.is_grad_enabled())
  end)

  it("take callables only", function()
    helper.raises("no_grad: expected a function (or a module) to call, got nil", cnn.no_grad, nil)
    helper.raises("inference_mode: expected a function (or a module) to call, got a table", cnn.inference_mode, {})
  end)

  it("can be set", function()
    cnn.set_grad_enabled(false)
    assert.is_false(leaf({ 1 }):exp().requires_grad)
    cnn.set_grad_enabled(true)
    helper.raises("set_grad_enabled: expected true or false", cnn.set_grad_enabled, 1)
  end)

  it("can't be left by a coroutine", function()
    local thread = coroutine.create(function()
      cnn.no_grad(function() coroutine.yield() end)
    end)
    local ok, message = coroutine.resume(thread)
    assert.is_false(ok)
    assert.truthy(message:find("yield", 1, true))
    assert.is_true(cnn.is_grad_enabled())
  end)

  it("mark what inference mode made", function()
    local x = cnn.inference_mode(function() return cnn.ones(2) end)
    helper.raises("inference_mode", function() return (leaf { 1, 2 } * x):sum():backward() end)
  end)
end)

describe("graph nodes", function()
  it("have names, inputs and what they save", function()
    local x, w = leaf { 1, 2 }, leaf { 3, 4 }
    local y = (x * w):exp()
    local node = y.grad_fn
    assert.equal("ExpBackward0", node.name)
    assert.equal("<ExpBackward0>", tostring(node))
    assert.equal(1, #node.saved)
    assert.equal(8, node.saved[1].bytes)
    assert.equal("(2,)", tostring(node.saved[1].shape))
    local mul = node:next_functions()[1]
    assert.equal("MulBackward0", mul.name)
    local leaves = mul:next_functions()
    assert.equal(2, #leaves)
    assert.equal("AccumulateGrad", leaves[1].name)
    assert.is_true(leaves[1].variable == x and leaves[2].variable == w)
    assert.equal("<AccumulateGrad>", tostring(leaves[1]))
    assert.same({}, leaves[1]:next_functions())
    assert.is_true(node == y.grad_fn)
    assert.is_false(node == mul)
    assert.is_nil(x.grad_fn)
    assert.is_nil(node.no_such_field)
    y:sum():backward()
    assert.is_true(node.released)
    assert.equal(0, #node.saved)
  end)
end)

describe("anomaly mode", function()
  it("names the op and the line of its forward", function()
    local x = leaf { 0 }
    local y
    cnn.detect_anomaly(function()
      y = (x:sqrt() * 0):sum() -- 0 * inf
      local message = helper.raises("SqrtBackward0 returned NaN", y.backward, y)
      assert.truthy(message:find("autograd_spec.lua:%d+"))
      assert.truthy(message:find("forward ran at", 1, true))
    end)
    assert.is_nil(x.grad)
  end)
end)

describe("checkpoint", function()
  local function compare(fn, inputs)
    local wanted = {}
    for i, x in ipairs(inputs) do
      if x.requires_grad then wanted[#wanted + 1] = inputs[i] end
    end
    local plain = cnn.grad(fn(inputs[1], inputs[2]):sum(), wanted)
    local again = cnn.grad(cnn.checkpoint(fn, inputs[1], inputs[2]):sum(), wanted)
    for i, g in ipairs(plain) do helper.elements(again[i], g:totable()) end
  end

  it("gives the gradients of the plain call", function()
    local x, w = leaf({ 1, 2, 3 }, "float64"), leaf({ .5, .25, 2 }, "float64")
    compare(function(a, b) return (a * b):exp():sin() end, { x, w })
    compare(function(a, b) return a:exp() * b + a end, { cnn.tensor({ 1, 2, 3 }, "float64"), w })
  end)

  it("reaches parameters and captured tensors", function()
    local x, w = leaf({ 1, 2 }, "float64"), leaf({ 3, 4 }, "float64")
    local z = w * w -- part of another graph
    local function f(a) return (a * w):sin() * z end
    local y = cnn.checkpoint(f, x)
    assert.equal("CheckpointBackward", y.grad_fn.name)
    assert.equal(3, #y.grad_fn:next_functions())
    y:sum():backward()
    local dx, dw = x.grad, w.grad
    x.grad, w.grad = nil, nil
    cnn.sum((x * w):sin() * (w * w)):backward()
    helper.elements(dx, x.grad:totable())
    helper.elements(dw, w.grad:totable())
  end)

  it("needs no gradient where nothing does", function()
    local y = cnn.checkpoint(function(a) return a * 2 end, cnn.ones(2))
    assert.is_false(y.requires_grad)
    assert.is_false(cnn.no_grad(cnn.checkpoint, function(a) return a * 2 end, leaf { 1 }).requires_grad)
  end)

  it("saves nothing but its arguments", function()
    local x = leaf({ 1, 2 }, "float32")
    local y = cnn.checkpoint(function(a)
      for _ = 1, 10 do a = a:exp() * 0.1 end
      return a
    end, x)
    assert.equal(1, #y.grad_fn.saved)
    assert.equal(8, y.grad_fn.saved[1].bytes)
    for _ = 1, 2 do collectgarbage() end
    local before = cnn.memory_allocated()
    local z = x
    for _ = 1, 10 do z = z:exp() * 0.1 end
    for _ = 1, 2 do collectgarbage() end
    assert.is_true(cnn.memory_allocated() > before)
    assert.is_not_nil(z)
  end)

  it("nests", function()
    local x, w = leaf({ 1, 2 }, "float64"), leaf({ .3, .4 }, "float64")
    local function inner(a) return (a * w):tanh() end
    local function outer(a) return cnn.checkpoint(inner, a * 2) + cnn.checkpoint(inner, a) end
    local function plain(a) return inner(a * 2) + inner(a) end
    local expected, got = cnn.grad(plain(x):sum(), { x, w }), cnn.grad(cnn.checkpoint(outer, x):sum(), { x, w })
    helper.elements(got[1], expected[1]:totable())
    helper.elements(got[2], expected[2]:totable())
  end)

  it("draws the same random numbers again, and disturbs none", function()
    local x = leaf(helper.flat(cnn.ones(100)))
    cnn.manual_seed(3)
    local y = cnn.checkpoint(function(a) return a * cnn.rand(100) end, x)
    local after = cnn.rand(3):totable()
    y:sum():backward()
    helper.elements(x.grad, y:totable())
    local later = cnn.rand(3):totable()
    cnn.manual_seed(3)
    cnn.rand(100)
    assert.same(after, cnn.rand(3):totable())
    assert.same(later, cnn.rand(3):totable())
  end)

  it("gives several results, and what is no tensor", function()
    local x = leaf { 1, 2 }
    local a, b, n, text = cnn.checkpoint(function(v) return v * 2, v * v, cnn.tensor({ 1 }, "int64"), "x" end, x)
    assert.is_false(n.requires_grad)
    assert.equal("x", text)
    b:sum():backward()
    helper.elements(x.grad, { 2, 4 })
    assert.is_true(a.requires_grad)
  end)

  it("has second derivatives", function()
    local x, w = leaf({ 1, 2 }, "float64"), leaf({ .3, .4 }, "float64")
    assert.is_true(cnn.gradcheck(function(a, b)
      return cnn.checkpoint(function(v) return (v * b):sin() end, a * 2)
    end, { x, w }, { second = true }))
  end)

  it("takes one tensor twice, and gives an argument back", function()
    local x = leaf({ 3 }, "float64")
    cnn.checkpoint(function(a, b) return a * b end, x, x):sum():backward()
    helper.elements(x.grad, { 6 })
    x.grad = nil
    local y = cnn.checkpoint(function(a) return a end, x * 2)
    y:sum():backward()
    helper.elements(x.grad, { 2 })
    x.grad = nil
    local z = cnn.checkpoint(function() return x end)
    assert.is_true(x.is_leaf)
    z:sum():backward()
    helper.elements(x.grad, { 1 })
  end)

  it("works by cnn.grad for some of the inputs", function()
    local x, w = leaf { 2 }, leaf { 3 }
    local y = cnn.checkpoint(function(a) return a * w * w end, x)
    helper.elements(cnn.grad(y:sum(), w), { 12 })
    assert.is_nil(x.grad)
  end)

  it("outlives handles, scopes and frees", function()
    local x = leaf { 1, 2 }
    local y = cnn.scope(function()
      local h, data = x * 2, cnn.tensor { 5, 6 }
      local z = cnn.checkpoint(function(a, b) return a * a * b end, h, data)
      h:free()
      data:free()
      return z
    end)
    y:sum():backward()
    helper.elements(x.grad, { 40, 96 })
  end)

  it("raises when what it used has changed", function()
    local x, w = leaf { 1 }, leaf { 2 }
    local y = cnn.checkpoint(function(a) return a * w end, x)
    cnn.no_grad(w.add_, w, 1)
    helper.raises("a tensor that CheckpointBackward needs for backward (float32 of shape (1,)) was changed in place",
      y.backward, y)
    assert.is_nil(x.grad)
  end)

  it("raises when the function does something else", function()
    local x, n = leaf { 1 }, 0
    local y = cnn.checkpoint(function(a)
      n = n + 1
      return n == 1 and a * 2 or cnn.cat({ a, a }, 1)
    end, x)
    helper.raises("differ from those of the first pass", y.backward, y)
    assert.is_nil(x.grad)
  end)

  it("passes errors of either pass, with all modes as they were", function()
    local x, fails = leaf { 1 }, true
    local thrown = {}
    local function f(a)
      if fails then error(thrown) end
      return a * 2
    end
    local ok, err = pcall(cnn.checkpoint, f, x)
    assert.is_false(ok)
    assert.equal(thrown, err)
    fails = false
    local y = cnn.checkpoint(f, x)
    fails = true
    local state = cnn.get_rng_state()
    ok, err = pcall(y.backward, y)
    assert.is_false(ok)
    assert.equal(thrown, err)
    assert.same(state, cnn.get_rng_state())
    assert.is_true(cnn.is_grad_enabled())
    assert.is_nil(x.grad)
    fails = false
    y:backward()
    helper.elements(x.grad, { 2 })
    helper.raises("checkpoint: argument 1 (fn): expected a function", cnn.checkpoint, x)
    helper.raises("return them as several values", cnn.checkpoint, function(a) return { a * 2 } end, x)
  end)

  it("takes modules: parameters, dropout, running statistics", function()
    local nn = cnn.nn
    cnn.manual_seed(1)
    local model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
    local x = cnn.randn(6, 4)
    local function gradients(run)
      cnn.manual_seed(2)
      model:zero_grad()
      run(x):square():sum():backward()
      local list = {}
      for i, p in ipairs(model:parameters()) do list[i] = p.grad:totable() end
      return list
    end
    local seen = model[2].num_batches_tracked:item()
    local plain = gradients(model)
    local mean = model[2].running_mean:totable()
    assert.equal(seen + 1, model[2].num_batches_tracked:item())
    local again = gradients(function(v) return cnn.checkpoint(model, v) end)
    assert.equal(seen + 2, model[2].num_batches_tracked:item())
    for i, g in ipairs(plain) do helper.elements(cnn.tensor(again[i]), g, 1e-6) end
    assert.are_not.same(mean, model[2].running_mean:totable())
    local Block = nn.Module:extend("CheckpointBlock")
    function Block:init() self.inner = nn.Linear(4, 4) end
    function Block:forward(v) return cnn.checkpoint(function(u) return self.inner(u):tanh() * v end, v) end
    local block = Block()
    block(x):sum():backward()
    assert.is_true(block.inner.weight.grad:has_shape(4, 4))
  end)

  it("takes memory for one segment at a time", function()
    local nn, layers = cnn.nn, {}
    for i = 1, 16 do layers[i] = nn.Sequential(nn.Linear(64, 64), nn.Tanh()) end
    local model, x = nn.Sequential(layers), cnn.randn(256, 64)
    local function peak(run)
      model:zero_grad()
      for _ = 1, 3 do collectgarbage() end
      collectgarbage("stop")
      cnn.reset_peak_memory_stats()
      local before = cnn.memory_allocated()
      run(x):sum():backward()
      local bytes = cnn.max_memory_allocated() - before
      collectgarbage("restart")
      return bytes
    end
    local plain = peak(model)
    local four = peak(function(v) return cnn.checkpoint_sequential(model, 4, v) end)
    assert.is_true(four < 0.65 * plain, ("%d of %d bytes"):format(four, plain))
  end)

  it("splits a list of modules", function()
    local x, calls = leaf({ 1, 2 }, "float64"), 0
    local function layer(v)
      calls = calls + 1
      return v:sin() * 2
    end
    local layers = { layer, layer, layer, layer, layer }
    local plain = x
    for _, f in ipairs(layers) do plain = f(plain) end
    local expected = cnn.grad(plain:sum(), x)
    for segments = 1, 6 do
      calls = 0
      local y = cnn.checkpoint_sequential(layers, segments, x)
      assert.equal(5, calls)
      helper.elements(cnn.grad(y:sum(), x), expected:totable())
      assert.is_true(calls < 10)
    end
    helper.raises("expected a Sequential or a list of modules", cnn.checkpoint_sequential, {}, 2, x)
    helper.raises("expected a number of parts", cnn.checkpoint_sequential, layers, 0, x)
  end)
end)

describe("gradcheck", function()
  it("passes what is right and finds what is wrong", function()
    local x, w = leaf({ { 1, 2 }, { 3, 4 } }, "float64"), leaf({ .5, -.5 }, "float64")
    assert.is_true(cnn.gradcheck(function(a, b) return (a * b):sin(), a:exp() end, { x, w }, { second = true }))
    assert.is_true(cnn.gradcheck(cnn.exp, x))
    assert.is_true(cnn.gradcheck(function(a) return a:t():sum { dim = 1 } end, x:detach():t():requires_grad_()))
    local wrong = cnn.Function {
      name = "Wrong",
      forward = function(_, a) return a * a end,
      backward = function(_, dy) return dy * 2 end,
    }
    local message = helper.raises("gradcheck: the gradients are wrong", cnn.gradcheck, wrong, { w })
    assert.truthy(message:find("input 1 ((2,)): 2 of 2 elements are wrong", 1, true))
    local ok, text = cnn.gradcheck(wrong, w, { raise_exception = false })
    assert.is_false(ok)
    assert.truthy(text:find("difference quotient", 1, true))
  end)

  it("finds a transposed gradient and one that is NaN", function()
    local x = leaf({ { 1, 2 }, { 3, 4 } }, "float64")
    local transposed = cnn.Function {
      forward = function(_, a) return a * 1 end,
      backward = function(_, dy) return dy:t() end,
    }
    helper.raises("elements are wrong", cnn.gradcheck, transposed, x)
    local nan = cnn.Function {
      forward = function(_, a) return a * 1 end,
      backward = function(_, dy) return dy * (0 / 0) end,
    }
    helper.raises("4 of 4 elements are wrong", cnn.gradcheck, nan, x)
  end)

  it("finds a wrong second derivative", function()
    local x = leaf({ 1, 2 }, "float64")
    local cut = cnn.Function {
      name = "Cut",
      forward = function(ctx, a) ctx.a = a:detach() return a * a end,
      backward = function(ctx, dy) return dy * ctx.a * 2 end,
    }
    assert.is_true(cnn.gradcheck(cut, x))
    helper.raises("second derivative: input 1", cnn.gradcheck, cut, x, { second = true })
  end)

  it("leaves the inputs and the generator as they were", function()
    local x = leaf({ 1, 2 }, "float64")
    local state = cnn.get_rng_state()
    assert.is_true(cnn.gradcheck(function(a) return a * cnn.rand(2, { dtype = "float64" }) end, x))
    assert.same({ 1, 2 }, x:totable())
    assert.same(state, cnn.get_rng_state())
    assert.is_nil(x.grad)
  end)

  it("says what it needs", function()
    helper.raises("input 1 is float32: differences need float64", cnn.gradcheck, cnn.exp, leaf { 1 })
    helper.raises("no input requires a gradient", cnn.gradcheck, cnn.exp, cnn.ones(1, { dtype = "float64" }))
    helper.raises("share memory", cnn.gradcheck, cnn.exp,
      cnn.ones(1, { dtype = "float64" }):expand(2):requires_grad_())
    helper.raises("expected a function (or a module)", cnn.gradcheck, 1, leaf({ 1 }, "float64"))
    helper.raises("returned no float tensor", cnn.gradcheck, function() return 1 end, leaf({ 1 }, "float64"))
  end)
end)

describe("viz", function()
  it("draws the graph", function()
    local w, b = leaf { { 1, 2 }, { 3, 4 } }, leaf { 1, 2 }
    local h = (w + b):relu()
    local loss = (h * h):sum()
    local g = cnn.viz.graph(loss, { names = { w = w, b = b } })
    assert.equal(7, #g.nodes)
    assert.equal(16, g.bytes) -- relu's result and both factors are one tensor
    local dot, svg = g:dot(), g:svg()
    for _, text in ipairs { "MulBackward0", "ReluBackward0", "SumBackward0", "w", "b" } do
      assert.truthy(dot:find(text, 1, true))
      assert.truthy(svg:find(">" .. text .. "<", 1, true))
    end
    assert.truthy(dot:find("saves 2 tensors, 32 B", 1, true))
    local path = os.tmpname()
    g:save(path)
    assert.equal(svg, helper.read(path))
    os.remove(path)
    assert.equal(6, #cnn.viz.graph(h:sum()).nodes)
    helper.raises("has no graph", cnn.viz.graph, cnn.ones(1))
    helper.raises("expected a tensor, got nil", cnn.viz.graph)
    helper.raises("No such file", g.save, g, "/nonexistent/graph.svg")
  end)

  it("draws a long graph", function()
    local x = leaf { 1 }
    local y = x
    for _ = 1, 300 do y = y * 1.01 + x end
    assert.truthy(cnn.viz.graph(y:sum()):svg():find("</svg>", 1, true))
  end)

  it("draws lines", function()
    local series = { { name = "a<b", y = { 3, 0 / 0, 1 } }, { x = cnn.tensor { 1, 2 }, y = cnn.tensor { 1, 2 } } }
    local text = cnn.viz.plot(series, { title = "T", log = "y" }):svg()
    assert.truthy(text:find("a&lt;b", 1, true))
    assert.falsy(text:find("nan", 1, true))
    for _, y in ipairs { { 0, 0 }, { -5 }, {}, { 1e-30, 1e30 }, { math.huge, 1 } } do
      for _, log in ipairs { "", "xy" } do
        local svg = cnn.viz.plot({ y = y }, { log = log }):svg()
        assert.falsy(svg:find("nan", 1, true) or svg:find("inf", 1, true))
      end
    end
    helper.raises("series 1 has 1 x and 2 y", cnn.viz.plot, { { x = { 1 }, y = { 1, 2 } } })
    helper.raises("y[2]: expected a number, got the string \"a\"", cnn.viz.plot, { { y = { 1, "a" } } })
    helper.raises("expected \"x\", \"y\" or \"xy\"", cnn.viz.plot, { { y = { 1 } } }, { log = true })
  end)
end)
