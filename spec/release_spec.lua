-- SPDX-License-Identifier: MIT
-- What dies early: intermediates under no_grad, what backward is done with, activations under a checkpoint,
-- gradients and optimizer state when they are dropped. Counted without the collector's help.
local cnn = require "cnn"
local helper = require "spec.helper"
local nn, F, optim = cnn.nn, cnn.F, cnn.optim

local function stats() return cnn.memory_stats() end
local function requested() return stats().requested_bytes end
local function kind(name) return stats().kinds[name].current end

-- The peak of requested bytes over what there is before fn(...), with the collector stopped.
local function peak_of(fn, ...)
  for _ = 1, 2 do collectgarbage() end
  cnn.tensor(0):free()
  collectgarbage "stop"
  cnn.reset_peak_memory_stats()
  local before = requested().current
  local ok, result = pcall(fn, ...)
  local peak = requested().peak - before
  collectgarbage "restart"
  assert(ok, result)
  return peak, result
end

-- What a product takes besides, where it does: libraries on a GPU.
local function scratch_of(model, x)
  peak_of(cnn.no_grad, model, x)
  return stats().kinds.workspace.peak
end

local WIDTH, BATCH = 64, 96
local EACH = BATCH * WIDTH * 4

local function stack(n, layer)
  local layers = {}
  for i = 1, n do layers[i] = layer(i) end
  return nn.Sequential(layers)
end

local function block() return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) end

describe("under no_grad", function()
  it("a net of 50 layers peaks at its weights, its input and two activations", function()
    collectgarbage()
    local none = requested().current
    local model = stack(50, function(i) return i % 2 == 1 and nn.Linear(WIDTH, WIDTH) or nn.ReLU() end)
    local x = cnn.randn(BATCH, WIDTH)
    collectgarbage()
    local weights = 25 * (WIDTH * WIDTH + WIDTH) * 4
    assert.are.equal(weights + EACH, requested().current - none)
    local two = 2 * EACH + scratch_of(model, x)
    assert.are.equal(two, peak_of(function() cnn.no_grad(model, x):free() end))
    assert.are.equal(two, peak_of(function() cnn.inference_mode(model, x):free() end))
    -- With gradients: what the layers save.
    assert.is_true(peak_of(function() model(x):free() end) >= 25 * EACH)
  end)

  it("nested Sequentials are no different, and no gradient or state appears", function()
    local model = nn.Sequential(stack(4, block), stack(4, block))
    local opt = optim.AdamW(model:parameters())
    local x = cnn.randn(BATCH, WIDTH)
    local gradients, state = kind "gradients", kind "optimizer state"
    assert.are.equal(2 * EACH + scratch_of(model, x), peak_of(function() cnn.no_grad(model, x):free() end))
    assert.are.equal(gradients, kind "gradients")
    assert.are.equal(state, kind "optimizer state")
    opt:zero_grad()
  end)
end)

-- Sequential gives a layer's input up once the layer has run: elementwise layers write over it, unless
-- somebody can still read it.
describe("an elementwise layer in a Sequential", function()
  -- The same layers, one call each from Lua, whose handles hold every value.
  local function one_by_one(model, x)
    for i = 1, #model do x = model[i](x) end
    return x
  end

  local function equal(a, b) return a:eq(b):all():item() end

  local function at_once(model, x) return model(x) end

  local function gradients(model, x, run)
    cnn.manual_seed(3)
    model:zero_grad()
    x.grad = nil
    local y = run(model, x)
    cnn.sum(y * y):backward()
    local list = { y, x.grad }
    for _, p in ipairs(model:parameters()) do list[#list + 1] = p.grad end
    return list
  end

  local function layers_of(names)
    local list = {}
    for i, name in ipairs(names) do
      list[i] = name == "Linear" and nn.Linear(WIDTH, WIDTH) or name == "Softmax" and nn.Softmax(-1) or nn[name]()
    end
    return nn.Sequential(list)
  end

  local CASES = {
    { "Linear", "ReLU", "Linear", "ReLU" }, { "ReLU", "Linear", "Dropout", "ReLU" }, { "Dropout", "ReLU" },
    { "Identity", "ReLU", "Identity", "Dropout" }, { "Linear", "Sigmoid", "ReLU" }, { "Linear", "GELU", "ReLU" },
    { "Linear", "Tanh", "Tanh", "SiLU", "Dropout" }, { "Linear", "ReLU", "Softmax", "Flatten", "ReLU" },
  }
  for _, case in ipairs(CASES) do
    it("changes no value: " .. table.concat(case, ", "), function()
      local model = layers_of(case)
      local x = cnn.randn(BATCH, WIDTH):requires_grad_()
      local before = x:detach():clone()
      local a, b = gradients(model, x, at_once), gradients(model, x, one_by_one)
      for i = 1, #b do assert.is_true(equal(a[i], b[i]), case[i]) end
      assert.is_true(equal(before, x))
      assert.is_true(equal(cnn.no_grad(model:eval(), x), cnn.no_grad(one_by_one, model, x)))
      assert.is_true(equal(before, x))
    end)
  end

  it("takes no memory of its own, with gradients or without", function()
    local model, plain = stack(8, function(i) return i == 1 and nn.Linear(WIDTH, WIDTH) or nn.ReLU() end),
      nn.Linear(WIDTH, WIDTH)
    local x = cnn.randn(BATCH, WIDTH)
    assert.are.equal(peak_of(cnn.no_grad, plain, x), peak_of(cnn.no_grad, model, x))
    -- A ReLU saves its result: the first one writes over Linear's, which nobody saves, the others can't.
    local dropout = stack(8, function(i) return i == 1 and nn.Linear(WIDTH, WIDTH) or nn.Dropout(0.1) end)
    assert.are.equal(peak_of(plain, x), peak_of(dropout, x))
    assert.are.equal(peak_of(plain, x), peak_of(nn.Sequential(plain, nn.ReLU()), x))
    assert.are.equal(math.max(peak_of(plain, x), 7 * EACH), peak_of(model, x))
  end)

  it("is counted among the activations when its input was none", function()
    local frozen, scale = nn.Linear(WIDTH, WIDTH):requires_grad_(false), nn.PReLU()
    local y = nn.Sequential(frozen, scale)(cnn.randn(BATCH, WIDTH))
    assert.is_true(y.requires_grad)
    assert.is_true(kind "activations" >= EACH)
  end)
end)

describe("backward", function()
  it("frees what the graph saved, and gradients, as it goes", function()
    local model = stack(12, function() return nn.Tanh() end)
    local x = cnn.randn(BATCH, WIDTH):requires_grad_()
    local _, loss = peak_of(function() return model(x):sum() end)
    local before = requested().current
    assert.is_true(peak_of(loss.backward, loss) <= 3 * EACH) -- in, out, and the one from the sum
    -- The loss still holds its graph; what was saved is gone, and x has a gradient.
    assert.are.equal(before - 12 * EACH + EACH, requested().current)
    assert.are.equal("SumBackward0", loss.grad_fn.name)
  end)

  it("keeps it where it is told to", function()
    local model = stack(12, function() return nn.Tanh() end)
    local x = cnn.randn(BATCH, WIDTH):requires_grad_()
    local loss = model(x):sum()
    collectgarbage()
    local before = requested().current
    loss:backward { retain_graph = true }
    assert.are.equal(before + EACH, requested().current)
    loss:backward()
    assert.are.equal(before + EACH - 12 * EACH, requested().current)
  end)
end)

describe("checkpoint_sequential", function()
  it("takes 64 layers within the square root's rule, at one more forward", function()
    local n, root = 64, 8
    local model = stack(n, block)
    local x = cnn.randn(BATCH, WIDTH)
    local work = cnn.core.work_count
    local function train(run)
      model:zero_grad()
      local before = work()
      local peak = peak_of(function() run(x):sum():backward() end)
      return peak - n * (WIDTH * WIDTH + WIDTH) * 4, work() - before -- without the gradients
    end
    local start = work()
    cnn.no_grad(model, x):free()
    local forward = work() - start
    local plain, plain_work = train(model)
    local expected = helper.flat(model[1][1].weight.grad)
    local peak, all_work = train(function(v) return cnn.checkpoint_sequential(model, root, v) end)
    assert.are.same(expected, helper.flat(model[1][1].weight.grad))
    -- sqrt(n) inputs of segments and sqrt(n) activations of one.
    local rule = 2 * root * EACH
    assert.is_true(plain > 60 * EACH - n * (WIDTH * WIDTH + WIDTH) * 4)
    assert.is_true(peak <= 2.5 * root * EACH, ("%.1f activations"):format(peak / EACH))
    assert.is_true(peak <= rule)
    -- All segments but the last run twice.
    assert.are.equal(plain_work + forward * (root - 1) / root, all_work)
  end)

  it("runs every layer once more, but those of the last segment", function()
    local calls = 0
    local layers = {}
    for i = 1, 64 do
      layers[i] = function(v)
        calls = calls + 1
        return v:tanh()
      end
    end
    local x = cnn.randn(4, 4):requires_grad_()
    cnn.checkpoint_sequential(layers, 8, x):sum():backward()
    assert.are.equal(64 + 56, calls)
  end)
end)

describe("functions of Lua under a checkpoint", function()
  local Block = nn.Module:extend("Block")
  function Block:init() self.linear = nn.Linear(WIDTH, WIDTH) end
  function Block:forward(x) return self.linear(x):tanh() end

  -- What one step takes while no collection runs, and what it leaves behind.
  local function step(model, run)
    local x = cnn.randn(BATCH, WIDTH)
    model:zero_grad()
    for _ = 1, 2 do collectgarbage() end
    local paced = cnn.gc().paced
    cnn.gc { paced = false }
    collectgarbage "stop"
    cnn.reset_peak_memory_stats()
    local before = requested().current
    local y = run(x)
    local held = requested().current - before
    y:sum():backward()
    local peak = requested().peak - before
    collectgarbage "restart"
    cnn.gc { paced = paced }
    return peak, held
  end

  it("take what built-in layers take", function()
    local own, native = stack(24, Block), stack(24, block)
    for _, segments in ipairs { 1, 4, 24 } do
      local function of(model)
        return { step(model, function(x) return cnn.checkpoint_sequential(model, segments, x) end) }
      end
      if segments > 1 then assert.are.same(of(native), of(own)) end
    end
    local function each(model)
      return { step(model, function(x)
        for _, layer in model:iter() do x = cnn.checkpoint(layer, x) end
        return x
      end) }
    end
    assert.are.same(each(native), each(own))
    local function whole(model) return { step(model, function(x) return cnn.checkpoint(model, x) end) } end
    assert.are.equal(whole(native)[2], whole(own)[2])
  end)

  it("free what they made, but fields of modules, what is kept, and what backward needs", function()
    local seen = {}
    local Seeing = nn.Module:extend("Seeing")
    function Seeing:init() self.linear = nn.Linear(4, 4) end
    function Seeing:forward(x)
      local h = self.linear(x)
      self.last, self.cache = h:detach(), { key = { h:detach() } }
      seen[1], seen[2] = cnn.keep(h:detach()), h:detach()
      local scale = h:sigmoid()
      local function inner(v) return v * scale end
      local y = cnn.checkpoint(inner, h)
      if y.requires_grad then y:register_hook(function(g) return g * scale end) end
      return y
    end
    local model, x = Seeing(), cnn.randn(2, 4):requires_grad_()
    local function gradient(run)
      x.grad = nil
      run():sum():backward()
      return helper.flat(x.grad)
    end
    local expected = gradient(function() return model(x) end)
    assert.are.same(expected, gradient(function() return cnn.checkpoint(model, x) end))
    assert.are.same(expected, gradient(function()
      return cnn.scope(function() return cnn.checkpoint_sequential(nn.Sequential(model, nn.Identity()), 2, x) end)
    end))
    helper.elements(model.last, seen[1]:totable())
    helper.elements(model.cache.key[1], seen[1]:totable())
    helper.raises("was freed (by t:free(), or at the end of a cnn.scope or a checkpoint that it was made in: "
      .. "cnn.keep(t) inside of it keeps it)", seen[2].sum, seen[2])
    seen[1]:free()
    model:zero_grad()
    x.grad = nil
  end)

  it("may give back what they were given, and what they hold", function()
    local w, x = cnn.ones(3):requires_grad_(), cnn.ones(3):requires_grad_()
    local y, a, b = cnn.checkpoint(function(v) return v * w, v, w end, x)
    assert.is_true(a == x and b == w)
    local all = y + a + 2 * b
    all:sum():backward()
    helper.elements(x.grad, { 2, 2, 2 })
    helper.elements(w.grad, { 3, 3, 3 })
    x.grad, w.grad = nil, nil
  end)

  it("may give tables, but no results in them", function()
    local x = cnn.ones(3):requires_grad_()
    local n = cnn.tensor({ 1 }, { dtype = "int64" })
    local y, rest = cnn.checkpoint(function(v) return v * 2, { x = v, n = n } end, x)
    assert.is_true(rest.x == x and y.requires_grad)
    for _, key in ipairs { 1, "h" } do
      helper.raises("checkpoint: tensors in a table have no gradient here", cnn.checkpoint,
        function(v) return { [key] = v * 2 } end, x)
    end
  end)
end)

describe("gradients and state", function()
  local function fixture()
    local model = nn.Linear(WIDTH, WIDTH, { bias = false })
    local x = cnn.randn(8, WIDTH)
    return model, function() F.mse_loss(model(x), x):backward() end, WIDTH * WIDTH * 4
  end

  it("come with their first use, and go when they are dropped", function()
    local model, backward, bytes = fixture()
    collectgarbage()
    local g, s = kind "gradients", kind "optimizer state"
    local opt = optim.AdamW(model:parameters())
    assert.are.equal(g, kind "gradients")
    backward()
    collectgarbage()
    assert.are.equal(g + bytes, kind "gradients")
    assert.are.equal(s, kind "optimizer state")
    opt:step()
    assert.are.equal(s + 2 * bytes, kind "optimizer state")
    opt:zero_grad()
    assert.are.equal(g, kind "gradients")
    opt:reset_state()
    assert.are.equal(s, kind "optimizer state")
    assert.is_nil(opt.state[model.weight])
    backward()
    opt:step()
    assert.are.equal(1, opt.state[model.weight].step)
    opt:zero_grad(false)
    assert.are.equal(g + bytes, kind "gradients")
    helper.elements(model.weight.grad:abs():sum(), { 0 })
    model:zero_grad()
    collectgarbage() -- the handle that we looked through
    assert.are.equal(g, kind "gradients")
  end)

  it("nothing of either for what has no gradient, or no state", function()
    local model, backward = fixture()
    local unused = nn.Linear(WIDTH, WIDTH)
    local list = model:parameters()
    for _, p in ipairs(unused:parameters()) do list[#list + 1] = p end
    collectgarbage()
    local s = kind "optimizer state"
    local plain = optim.SGD(list, { lr = 0.1 })
    backward()
    plain:step()
    assert.are.equal(s, kind "optimizer state")
    local opt = optim.Adagrad(list)
    opt:step()
    assert.are.equal(s + WIDTH * WIDTH * 4, kind "optimizer state")
    opt:reset_state()
    assert.are.equal(s, kind "optimizer state")
  end)

  it("a failed step takes the state that it made with it, in all groups", function()
    local a, b = nn.Linear(4, 4, { bias = false }), nn.Linear(4, 4, { bias = false })
    local opt = optim.AdamW { { params = a:parameters() }, { params = b:parameters(), lr = 0.1 } }
    b(a(cnn.ones(1, 4))):sum():backward()
    collectgarbage()
    local bytes, values = kind "optimizer state", { helper.flat(a.weight), helper.flat(b.weight) }
    local n = 0
    repeat
      n = n + 1
      cnn.core.fault_set(n, true)
      local ok = pcall(opt.step, opt)
      cnn.core.fault_clear()
      if not ok then
        local done = opt.state[a.weight] and 1 or 0
        assert.are.equal(bytes + done * 2 * helper.smallest, kind "optimizer state")
        if done == 0 then assert.are.same(values, { helper.flat(a.weight), helper.flat(b.weight) }) end
        if done == 1 then break end -- the structures of the second group's op, a few bytes, failed
      end
    until ok
    assert.is_true(n > 4)
  end)
end)
