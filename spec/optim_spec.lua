-- SPDX-License-Identifier: MIT
-- Optimizers and schedules. Values against PyTorch's are in spec/golden/optim.lua and train.lua.
local cnn = require "cnn"
local helper = require "spec.helper"
local nn, F, optim = cnn.nn, cnn.F, cnn.optim

local KINDS = {
  { "SGD", { lr = 0.1 } },
  { "SGD", { lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0.01 } },
  { "SGD", { lr = 0.1, momentum = 0.9, dampening = 0.3 } },
  { "Adam", { lr = 0.05, weight_decay = 0.1 } },
  { "Adam", { lr = 0.05, amsgrad = true } },
  { "AdamW", { lr = 0.05 } },
  { "RMSprop", { lr = 0.01, momentum = 0.5, centered = true } },
  { "Adagrad", { lr = 0.1, lr_decay = 0.01 } },
}

local function problem(dtype)
  cnn.manual_seed(11)
  local w = nn.Parameter(cnn.randn(5, 3, { dtype = dtype }))
  local b = nn.Parameter(cnn.randn(3, { dtype = dtype }))
  local x, y = cnn.randn(20, 5, { dtype = dtype }), cnn.randn(20, 3, { dtype = dtype })
  local function backward()
    local loss = F.mse_loss(x:matmul(w) + b, y)
    loss:backward()
    return loss:item()
  end
  return { w, b }, backward
end

local function flat(params)
  local list = {}
  for _, p in ipairs(params) do
    for _, v in ipairs(helper.flat(p)) do list[#list + 1] = v end
  end
  return list
end

local function run(kind, params, backward, steps, opt)
  opt = opt or optim[kind[1]](params, kind[2])
  for _ = 1, steps do
    opt:zero_grad()
    backward()
    opt:step()
  end
  return opt
end

describe("optimizers", function()
  for _, kind in ipairs(KINDS) do
    local title = kind[1]
    for k, v in pairs(kind[2]) do title = title .. (" %s=%s"):format(k, tostring(v)) end

    it(title .. ": lowers the loss", function()
      local params, backward = problem()
      local before = backward()
      run(kind, params, backward, 30)
      assert.is_true(backward() < before)
    end)

    it(title .. ": a saved and loaded run goes on bit for bit", function()
      local params, backward = problem()
      run(kind, params, backward, 8)
      local expected = flat(params)
      local again, backward2 = problem()
      local opt = run(kind, again, backward2, 3)
      local state = opt:state_dict()
      local other = optim[kind[1]](again, { lr = 99 })
      other:load_state_dict(state)
      run(kind, again, backward2, 5, other)
      assert.are.same(expected, flat(again))
      assert.are.equal(kind[2].lr, other.param_groups[1].lr)
    end)

    it(title .. ": strided parameters step like dense ones", function()
      local params, backward = problem("float64")
      run(kind, params, backward, 4)
      local strided = problem("float64")
      local wide = cnn.zeros(5, 6, { dtype = "float64" })
      local view = wide[{ {}, { 1, -1, 2 } }]
      view:copy_(strided[1]:detach())
      local w, b = nn.Parameter(view), strided[2]
      assert.is_false(w:is_contiguous())
      cnn.manual_seed(11)
      cnn.randn(5, 3, { dtype = "float64" })
      cnn.randn(3, { dtype = "float64" })
      local x, y = cnn.randn(20, 5, { dtype = "float64" }), cnn.randn(20, 3, { dtype = "float64" })
      run(kind, { w, b }, function() F.mse_loss(x:matmul(w) + b, y):backward() end, 4)
      helper.elements(w, params[1]:totable(), 1e-12)
    end)

    it(title .. ": half types follow float32", function()
      local params, backward = problem()
      run(kind, params, backward, 3)
      for _, dtype in ipairs { "float16", "bfloat16" } do
        local half = problem()
        for i, p in ipairs(half) do half[i] = nn.Parameter(p:detach():to(dtype)) end
        cnn.manual_seed(11)
        cnn.randn(5, 3)
        cnn.randn(3)
        local x, y = cnn.randn(20, 5), cnn.randn(20, 3)
        run(kind, half, function()
          F.mse_loss(x:matmul(half[1]:float()) + half[2]:float(), y):backward()
        end, 3)
        assert.are.equal(dtype, half[1].dtype)
        helper.elements(half[1], params[1]:totable(), 0.05)
      end
    end)
  end

  it("step a parameter that is given twice once", function()
    local w = nn.Parameter(cnn.tensor { 1 })
    local opt = optim.SGD({ w, w }, { lr = 1 })
    w.grad = cnn.tensor { 0.25 }
    opt:step()
    assert.are.equal(0.75, w:item())
    assert.are.equal(1, #opt.param_groups[1].params)
    helper.raises("another group", function() opt:add_param_group { params = { w } } end)
  end)

  it("have groups with settings of their own, which can be changed", function()
    local a, b = nn.Parameter(cnn.tensor { 1 }), nn.Parameter(cnn.tensor { 1 })
    local opt = optim.SGD({ { params = { a } }, { params = { b }, lr = 0.5 } }, { lr = 0.1 })
    assert.are.equal(0.1, opt.param_groups[1].lr)
    assert.are.equal(0.5, opt.param_groups[2].lr)
    a.grad, b.grad = cnn.tensor { 1 }, cnn.tensor { 1 }
    opt:step()
    assert.is_true(helper.near(0.9, a:item(), 1e-6))
    assert.are.equal(0.5, b:item())
    opt.param_groups[2].lr = 0
    opt:step()
    assert.are.equal(0.5, b:item())
    helper.raises("lr must be >= 0", function() opt.param_groups[1].lr = -1 end)
    helper.raises("expected a number", function() opt.param_groups[1].lr = "x" end)
    local adam = optim.AdamW({ a }, { betas = { 0.8, 0.9 } })
    assert.are.same({ 0.8, 0.9 }, adam.param_groups[1].betas)
    adam.param_groups[1].betas = { 0.5, 0.6 }
    assert.are.same({ 0.5, 0.6 }, adam.param_groups[1].betas)
  end)

  it("make state at the first step and show it", function()
    local w = nn.Parameter(cnn.tensor { 1, 2 })
    local opt = optim.AdamW({ w })
    assert.is_nil(opt.state[w])
    opt:step()
    assert.is_nil(opt.state[w]) -- it had no gradient
    w.grad = cnn.tensor { 1, 1 }
    opt:step()
    local s = opt.state[w]
    assert.are.equal(1, s.step)
    assert.is_true(s.exp_avg:has_shape(2))
    assert.are.equal(s.exp_avg, opt.state[w].exp_avg)
    assert.is_nil(s.max_exp_avg_sq)
    opt:reset_state()
    assert.is_nil(opt.state[w])
  end)

  it("leave parameters without a gradient alone", function()
    local a, b = nn.Parameter(cnn.tensor { 1 }), nn.Parameter(cnn.tensor { 1 })
    local opt = optim.AdamW({ a, b }, { lr = 0.1 })
    a.grad = cnn.tensor { 1 }
    opt:step()
    assert.are.equal(1, b:item())
    assert.are_not.equal(1, a:item())
  end)

  it("zero_grad drops gradients, or zeroes them", function()
    local w = nn.Parameter(cnn.tensor { 1 })
    local opt = optim.SGD({ w }, { lr = 0.1 })
    w.grad = cnn.tensor { 3 }
    opt:zero_grad(false)
    assert.are.equal(0, w.grad:item())
    opt:zero_grad()
    assert.is_nil(w.grad)
  end)

  it("call a closure with gradients on", function()
    local w = nn.Parameter(cnn.tensor { 3 })
    local opt = optim.SGD({ w }, { lr = 0.1 })
    local loss = cnn.no_grad(function()
      return opt:step(function()
        opt:zero_grad()
        local l = (w * w):sum()
        l:backward()
        return l
      end)
    end)
    assert.are.equal(9, loss:item())
    assert.is_true(helper.near(3 - 0.6, w:item(), 1e-6))
  end)

  it("maximize goes up", function()
    for _, name in ipairs { "SGD", "Adam", "AdamW", "RMSprop", "Adagrad" } do
      local w = nn.Parameter(cnn.tensor({ 1 }, { dtype = "float64" }))
      w.grad = cnn.tensor({ 1 }, { dtype = "float64" })
      optim[name]({ w }, { lr = 0.1, maximize = true }):step()
      assert.is_true(w:item() > (name == "AdamW" and 0.99 or 1))
    end
  end)

  it("keep their state's place when the module moves dtype", function()
    local m = nn.Linear(2, 2)
    local opt = optim.AdamW(m:parameters(), { lr = 0.1 })
    m(cnn.ones(1, 2)):sum():backward()
    opt:step()
    m:double()
    opt:zero_grad()
    m(cnn.ones(1, 2, { dtype = "float64" })):sum():backward()
    opt:step()
    assert.are.equal(2, opt.state[m.weight].step)
  end)

  it("refuse what they can't use", function()
    local w = nn.Parameter(cnn.tensor { 1 })
    helper.raises("model:parameters()", function() optim.SGD(nn.Linear(1, 1), { lr = 1 }) end)
    helper.raises("does not require a gradient", function() optim.SGD({ cnn.ones(1) }, { lr = 1 }) end)
    helper.raises("no leaf", function() optim.SGD({ w * 2 }, { lr = 1 }) end)
    helper.raises("empty", function() optim.SGD({}, { lr = 1 }) end)
    helper.raises("unknown option \"learning_rate\"", function() optim.SGD({ w }, { learning_rate = 1 }) end)
    helper.raises("options go in a table", function() optim.SGD({ w }, 0.1) end)
    helper.raises("nesterov", function() optim.SGD({ w }, { nesterov = true }) end)
    helper.raises("betas", function() optim.Adam({ w }, { betas = { 0.9, 1 } }) end)
    helper.raises("list of two numbers", function() optim.Adam({ w }, { betas = 0.9 }) end)
    helper.raises("optim has no optimizer", function() optim.Adamw({ w }) end)
    optim.AdamW({ w }, { foreach = true, fused = true })
    local opt = optim.AdamW({ w })
    helper.raises("what state_dict gave", function() opt:load_state_dict {} end)
    helper.raises("parameter groups", function() opt:load_state_dict { state = {}, param_groups = {} } end)
    helper.raises("has shape", function()
      opt:load_state_dict { state = { { step = 1, exp_avg = cnn.ones(3) } }, param_groups = { { params = { 1 } } } }
    end)
  end)
end)

describe("optimizers in Lua", function()
  local Sign = optim.Optimizer:extend("Sign")
  Sign.defaults = { lr = 0.1 }
  function Sign.update(_, p, grad, state, group)
    state.step = (state.step or 0) + 1
    p:sub_(grad:sign() * group.lr)
  end

  it("share the interface", function()
    local w = nn.Parameter(cnn.tensor { 1, -1 })
    local opt = Sign({ w }, { lr = 0.5 })
    w.grad = cnn.tensor { 3, -4 }
    opt:step()
    helper.elements(w, { 0.5, -0.5 })
    assert.are.equal(1, opt.state[w].step)
    local other = Sign({ w })
    other:load_state_dict(opt:state_dict())
    assert.are.equal(1, other.state[w].step)
    assert.are.equal(0.5, other.param_groups[1].lr)
    opt:zero_grad()
    assert.is_nil(w.grad)
    opt:reset_state()
    assert.is_nil(opt.state[w])
    helper.raises("unknown option", function() Sign({ w }, { rate = 1 }) end)
    helper.raises("leaf", function() Sign({ cnn.ones(1) }) end)
    assert.truthy(tostring(opt):find("Sign", 1, true))
  end)
end)

describe("schedules", function()
  local S = optim.lr_scheduler
  local function rates(name, options, n)
    local opt = optim.SGD({ nn.Parameter(cnn.zeros(1)) }, { lr = 0.5 })
    local sched, list = S[name](opt, options), {}
    for k = 1, n do
      list[k] = opt.param_groups[1].lr
      sched:step()
    end
    return list, sched, opt
  end

  local all = {
    StepLR = { step_size = 3, gamma = 0.5 }, MultiStepLR = { milestones = { 2, 5 } }, ExponentialLR = { gamma = 0.9 },
    ConstantLR = {}, LinearLR = { start_factor = 0.25 }, PolynomialLR = { power = 2 },
    CosineAnnealingLR = { T_max = 6 }, CosineAnnealingWarmRestarts = { T_0 = 3, T_mult = 2 },
    OneCycleLR = { max_lr = 1, total_steps = 20 }, LambdaLR = { lr_lambda = function(k) return 1 / (k + 1) end },
  }
  for name, options in pairs(all) do
    it(name .. ": a resumed run has the same rates, bit for bit", function()
      local expected = rates(name, options, 12)
      local _, half = rates(name, options, 5)
      local opt = optim.SGD({ nn.Parameter(cnn.zeros(1)) }, { lr = 0.5 })
      local again = S[name](opt, options)
      again:load_state_dict(half:state_dict())
      local got = {}
      for k = 6, 12 do
        got[k] = opt.param_groups[1].lr
        again:step()
      end
      for k = 6, 12 do assert.are.equal(expected[k], got[k]) end
    end)
  end

  it("apply to every group", function()
    local a, b = nn.Parameter(cnn.zeros(1)), nn.Parameter(cnn.zeros(1))
    local opt = optim.SGD({ { params = { a } }, { params = { b }, lr = 1 } }, { lr = 0.5 })
    local sched = S.ExponentialLR(opt, { gamma = 0.1 })
    sched:step()
    assert.is_true(helper.near(0.05, opt.param_groups[1].lr))
    assert.is_true(helper.near(0.1, opt.param_groups[2].lr))
    assert.are.same({ opt.param_groups[1].lr, opt.param_groups[2].lr }, sched:get_last_lr())
  end)

  it("ReduceLROnPlateau waits, then lowers", function()
    local opt = optim.SGD({ nn.Parameter(cnn.zeros(1)) }, { lr = 1 })
    local sched = S.ReduceLROnPlateau(opt, { patience = 2, factor = 0.1 })
    for _, metric in ipairs { 1, 0.5, 0.5, 0.5, 0.5 } do sched:step(metric) end
    assert.is_true(helper.near(0.1, opt.param_groups[1].lr))
    sched:step(cnn.tensor(0.1))
    assert.are.equal(0, sched.bad)
  end)

  it("name what is missing or unknown", function()
    local opt = optim.SGD({ nn.Parameter(cnn.zeros(1)) }, { lr = 1 })
    helper.raises("\"step_size\" is missing", function() S.StepLR(opt) end)
    helper.raises("StepLR: step_size: expected a number of at least 1, got the number 0", S.StepLR, opt, 0)
    helper.raises("CosineAnnealingLR: T_max: expected a number of at least 1", S.CosineAnnealingLR, opt, { T_max = 0 })
    -- (these two did not end)
    helper.raises("T_0: expected a number", S.CosineAnnealingWarmRestarts, opt, { T_0 = 0 })
    helper.raises("T_mult: expected a number", S.CosineAnnealingWarmRestarts, opt, { T_0 = 1, T_mult = 0 })
    helper.raises("milestones: expected a list of numbers", S.MultiStepLR, opt, { 1, "a" })
    helper.raises("anneal_strategy: expected \"cos\" or \"linear\"", S.OneCycleLR, opt, 1, 5, { anneal_strategy = "x" })
    helper.raises("lr_lambda must return a number, not nil", S.LambdaLR, opt, function() end)
    helper.raises("unknown option \"patence\": did you mean \"patience\"?", S.ReduceLROnPlateau, opt, { patence = 1 })
    local plateau = S.ReduceLROnPlateau(opt)
    helper.raises("step: expected the metric, such as the loss, got nil", plateau.step, plateau)
    helper.raises("the first argument must be an optimizer, got nil", S.StepLR)
    for _, state in ipairs { 3, {}, { last_epoch = 1 } } do
      local sched = S.StepLR(opt, 1)
      helper.raises("load_state_dict: expected what a schedule's state_dict gave", sched.load_state_dict, sched, state)
    end
    helper.raises("expected what a schedule's state_dict gave", plateau.load_state_dict, plateau, {})
  end)

  it("take options by position, in PyTorch's order", function()
    local p = nn.Parameter(cnn.ones(1))
    local opt = optim.SGD({ p }, { lr = 1 })
    local sched = S.StepLR(opt, 2, 0.5)
    sched:step()
    sched:step()
    assert.equal(0.5, opt.param_groups[1].lr)
    assert.equal("StepLR after 2 steps", tostring(sched))
    S.MultiStepLR(optim.SGD({ p }, { lr = 1 }), { 1, 2 }, { gamma = 0.5 }):step()
    S.ReduceLROnPlateau(opt, "max"):step(1)
  end)

  it("say what is wrong with lists of parameters", function()
    local p = nn.Parameter(cnn.ones(1))
    helper.raises("SGD: entry 2 of the list is neither a parameter nor a group", optim.SGD, { { params = { p } }, 3 })
    helper.raises("SGD: expected a list of parameters, got the number 3", optim.SGD, 3)
    helper.raises("Adam: betas: expected a list of two numbers, got the number 3", optim.Adam, { p }, { betas = 3 })
    local opt = optim.SGD({ p }, { lr = 1 })
    helper.raises("SGD: expected a group {params = model:parameters(), ...}, got the number 3", opt.add_param_group,
      opt, 3)
    helper.raises("got a table without a list params", opt.add_param_group, opt, {})
    helper.raises("unknown option \"gama\"", function() S.StepLR(opt, { step_size = 1, gama = 1 }) end)
    helper.raises("must be an optimizer", function() S.StepLR({}, { step_size = 1 }) end)
    local one = S.OneCycleLR(opt, { max_lr = 1, total_steps = 3 })
    one:step()
    one:step()
    helper.raises("past total_steps", function() one:step() end)
  end)
end)
