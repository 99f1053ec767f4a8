-- SPDX-License-Identifier: MIT
-- opt:attach: steps inside of backward. To the bit what opt:step() gives, with gradients that live only
-- until they are used.
local cnn = require "cnn"
local helper = require "spec.helper"
local nn, F, optim = cnn.nn, cnn.F, cnn.optim

local KINDS = {
  { "SGD", { lr = 0.1 } }, { "SGD", { lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0.01 } },
  { "Adam", { lr = 0.05 } }, { "Adam", { lr = 0.05, amsgrad = true, weight_decay = 0.1 } },
  { "AdamW", { lr = 0.05 } }, { "RMSprop", { lr = 0.02, momentum = 0.5, centered = true } },
  { "Adagrad", { lr = 0.1, lr_decay = 0.01 } },
}

local function kind(name) return cnn.memory_stats().kinds[name] end

-- A net in which one weight is used by two layers, and one by a layer under a checkpoint.
local function net()
  cnn.manual_seed(11)
  local a, b, c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
  b.weight = a.weight
  local model = nn.ModuleList { a, b, c }
  local function loss(x, y)
    local h = a(x):tanh()
    h = cnn.checkpoint(b, h):relu() + h
    return F.cross_entropy(c(h), y)
  end
  return model, loss
end

local function groups(model)
  local list = model:parameters()
  local last = table.remove(list)
  return { { params = list }, { params = { last }, lr = 0.01 } }
end

local function train(name, settings, attached, steps)
  local model, loss = net()
  local opt = optim[name](groups(model), settings)
  local schedule = optim.lr_scheduler.StepLR(opt, { step_size = 2, gamma = 0.5 })
  if attached then assert.are.equal(opt, opt:attach(model)) end
  local x, y = cnn.randn(8, 6), cnn.randint(1, 4, { 8 })
  for _ = 1, steps do
    opt:zero_grad()
    loss(x, y):backward()
    if attached then
      for _, p in ipairs(model:parameters()) do assert.is_nil(p.grad) end
    end
    opt:step()
    schedule:step()
  end
  local values = {}
  for i, p in ipairs(model:parameters()) do
    local state = opt.state[p]
    values[i] = { p = helper.flat(p), step = state.step }
    for key, t in pairs(state) do
      if cnn.is_tensor(t) then values[i][key] = helper.flat(t) end
    end
  end
  return values
end

describe("attach", function()
  for _, case in ipairs(KINDS) do
    local name, settings = case[1], case[2]
    it(("is to the bit what %s's step gives: groups, schedule, shared weight, checkpoint"):format(name), function()
      assert.are.same(train(name, settings, false, 5), train(name, settings, true, 5))
    end)
  end

  it("keeps no gradients: AdamW takes 12 bytes per parameter", function()
    local layers, width = 12, 128
    local list = {}
    for i = 1, layers do list[i] = nn.Linear(width, width, { bias = false }) end
    local model = nn.Sequential(list)
    local bytes = layers * width * width * 4
    local opt = optim.AdamW(model:parameters())
    local x = cnn.randn(2, width)
    helper.settle()
    local state = kind("optimizer state").current
    local function peak()
      collectgarbage()
      collectgarbage()
      opt:zero_grad()
      cnn.reset_peak_memory_stats()
      local before = kind("gradients").current
      model(x):sum():backward()
      local gradients = kind("gradients").peak - before
      opt:step()
      return gradients
    end
    local ordinary = peak()
    assert.is_true(ordinary >= bytes)
    opt:attach(model)
    local fused = peak()
    -- One weight's gradient, and the activations' in and out of a layer.
    assert.is_true(fused <= bytes / layers + 4 * 2 * width * 4, fused)
    assert.are.equal(2 * bytes, kind("optimizer state").current - state)
    opt:detach()
    assert.are.equal(ordinary, peak())
    assert.is_not_nil(model[1].weight.grad)
    opt:zero_grad()
  end)

  it("steps a leaf once its last contribution has come", function()
    local w = cnn.tensor({ 2 }, { requires_grad = true })
    local opt = optim.SGD({ w }, { lr = 1 }):attach()
    local loss = w * 3 + w * w
    loss:sum():backward()
    helper.elements(w, { 2 - (3 + 4) })
    w:sum():backward() -- the root's own path
    helper.elements(w, { -6 })
    opt:detach()
    w:sum():backward()
    helper.elements(w, { -6 })
    helper.elements(w.grad, { 1 })
    opt:attach()
    w:sum():backward() -- what .grad held is part of it
    helper.elements(w, { -8 })
    assert.is_nil(w.grad)
  end)

  it("takes only the parameters of the model given", function()
    local a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    local list = a:parameters()
    for _, p in ipairs(b:parameters()) do list[#list + 1] = p end
    local opt = optim.SGD(list, { lr = 0.1 }):attach(b)
    b(a(cnn.ones(1, 2))):sum():backward()
    assert.is_not_nil(a.weight.grad)
    assert.is_nil(b.weight.grad)
    assert.is_nil(opt.state[a.weight])
    helper.raises("attach: none of the 2 parameters given is one of this optimizer's", opt.attach, opt, nn.Linear(2, 2))
  end)

  it("accumulates where it is told to", function()
    local w = cnn.tensor({ 1, 2 }, { requires_grad = true })
    local opt = optim.SGD({ w }, { lr = 1 }):attach()
    local got = opt:accumulate(function(n)
      for _ = 1, n do (w * 2):sum():backward() end
      return "done"
    end, 2)
    assert.are.equal("done", got)
    helper.elements(w, { 1, 2 })
    helper.elements(w.grad, { 4, 4 })
    local ok = pcall(opt.accumulate, opt, function() error("stop") end)
    assert.is_false(ok)
    w:sum():backward()
    helper.elements(w, { -4, -3 })
    -- Clipped by hand.
    opt:accumulate(function()
      (w * 8):sum():backward()
      nn.utils.clip_grad_value_({ w }, 1)
    end)
    opt:step()
    opt:zero_grad()
    helper.elements(w, { -5, -4 })
  end)

  it("lets hooks see the gradient first", function()
    local w = cnn.tensor({ 1, 2 }, { requires_grad = true })
    local opt = optim.SGD({ w }, { lr = 1 }):attach()
    local handle = w:register_hook(function(g) return g * 10 end)
    w:sum():backward()
    helper.elements(w, { -9, -8 })
    handle:remove()
    w:sum():backward()
    helper.elements(w, { -10, -9 })
    opt:detach()
  end)

  it("leaves cnn.grad alone", function()
    local w = cnn.tensor({ 1, 2 }, { requires_grad = true })
    local opt = optim.SGD({ w }, { lr = 1 }):attach()
    helper.elements(cnn.grad((w * w):sum(), w), { 2, 4 })
    helper.elements(w, { 1, 2 })
    opt:detach()
  end)

  it("says what it can't be combined with", function()
    local model = nn.Linear(2, 2)
    local opt = optim.AdamW(model:parameters()):attach(model)
    model(cnn.ones(1, 2)):sum():backward()
    helper.raises("clip_grad_norm_: parameter 1 is stepped inside of backward (opt:attach)",
      nn.utils.clip_grad_norm_, model:parameters(), 1)
    helper.raises("clip_grad_value_: parameter 1 is stepped", nn.utils.clip_grad_value_, model:parameters(), 1)
    local loss = model(cnn.ones(1, 2)):square():sum()
    helper.raises("call opt:detach() first", loss.backward, loss, { create_graph = true })
    helper.raises("attach: a parameter is attached to another optimizer already",
      optim.SGD(model:parameters()).attach, optim.SGD(model:parameters()), model)
    helper.raises("attach: expected a list of parameters, got the number 3", opt.attach, opt, 3)
    opt:detach()
    nn.utils.clip_grad_norm_(model:parameters(), 1)
    local Lion = optim.Optimizer:extend("Lion")
    helper.raises("attach: Lion is written in Lua", Lion(model:parameters()).attach, Lion(model:parameters()))
    -- A weight that is read again behind the graph's back.
    local w = cnn.tensor({ 1, 2 }, { requires_grad = true })
    local x = cnn.tensor({ 1, 2 }, { requires_grad = true })
    optim.SGD({ w }, { lr = 1 }):attach()
    local y = (x * w:detach()):sum() * 2
    local z = y + w:sum()
    helper.raises("changed in place", z.backward, z)
  end)

  it("goes on where it stood after one allocation failed", function()
    local function setup()
      local model, loss = net()
      local opt = optim.AdamW(groups(model), { lr = 0.05 }):attach()
      local x, y = cnn.randn(8, 6), cnn.randint(1, 4, { 8 })
      local function values()
        local list = {}
        for i, p in ipairs(model:parameters()) do list[i] = { helper.flat(p), opt.state[p] and opt.state[p].step } end
        return list
      end
      return function() return loss(x, y) end, values
    end
    local forward, values = setup()
    forward():backward()
    local expected = values()
    local n = 0
    for _, sticky in ipairs { false, true } do
      repeat
        n = n + 1
        local again, got = setup()
        local l = again()
        cnn.core.fault_set(n, sticky)
        local ok, message = pcall(l.backward, l)
        local seen = cnn.core.fault_clear()
        if ok then assert.are.same(expected, got()) end
        assert.is_true(ok or sticky)
        if not ok then assert.truthy(message:find("out of memory", 1, true)) end
      until seen < n
      assert.is_true(n > 20)
      n = 0
    end
  end)

  it("names the optimizer that found no room", function()
    local model = nn.Linear(1024, 1024, { bias = false })
    local opt = optim.AdamW(model:parameters()):attach(model)
    local loss = model(cnn.ones(2, 1024)):sum()
    helper.settle()
    cnn.empty_cache()
    local limit = cnn.memory_stats().limit
    cnn.set_memory_limit(cnn.memory_reserved() + 6 * 2 ^ 20) -- a gradient fits, state does not
    local ok, message = pcall(loss.backward, loss)
    cnn.set_memory_limit(limit)
    opt:detach()
    assert.is_false(ok)
    assert.truthy(message:find("AdamW: out of memory on " .. helper.place, 1, true), message)
  end)

  it("ends with its optimizer", function()
    local model = nn.Linear(2, 2)
    optim.SGD(model:parameters(), { lr = 1 }):attach()
    collectgarbage()
    collectgarbage()
    model(cnn.ones(1, 2)):sum():backward()
    assert.is_not_nil(model.weight.grad)
  end)
end)
