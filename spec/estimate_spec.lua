-- SPDX-License-Identifier: MIT
-- Predicted memory against measured, and that a prediction leaves no trace.
local cnn = require "cnn"
local helper = require "spec.helper"
local db = require "spec.opdb"
local checks = require "spec.op_checks"
local words = require "spec.op_samples"
local core = cnn.core
local nn, F, optim = cnn.nn, cnn.F, cnn.optim

local PARTS = {
  "parameters", "gradients", "optimizer_state", "activations", "input", "output", "workspace", "buffers",
}

-- Run in a process of its own, where nothing else is reserved: predicts, then does the same for real, with
-- the collector stopped, and prints the differences.
local COMPARE = [[
  local cnn = require "cnn"
  local m = require("spec.memory_models").%s
  cnn.set_default_device("%s")
  collectgarbage "stop"
  cnn.gc { paced = false }
  local function shape(batch)
    local list = { batch }
    for i, size in ipairs(m.input) do list[i + 1] = size end
    return list
  end
  local function clean()
    if type(jit) == "table" then jit.flush() end -- traces hold the functions that they call
    for _ = 1, 3 do -- a call that allocates releases what the graph held of Lua's
      for _ = 1, 2 do collectgarbage() end
      cnn.tensor(0):free()
    end
    cnn.empty_cache()
    collectgarbage "stop"
  end
  local function forward(model, x, how)
    if how.checkpoint then return cnn.checkpoint_sequential(model, how.checkpoint, x) end
    return model(x)
  end
  local function infer(model, x, how)
    model:eval()
    cnn.scope(function() cnn.no_grad(forward, model, x, how) end)
  end
  local function train(model, x, how)
    local y = cnn.randint(1, 11, { x:size(1) })
    local opt = cnn.optim.AdamW(model:parameters())
    if how.attach then opt:attach(model) end
    local function loss()
      local out = forward(model, x, how)
      return cnn.F.cross_entropy(out, y)
    end
    local function micro()
      ((how.save_on_cpu and cnn.save_on_cpu(loss) or loss()) / how.accumulate):backward()
    end
    for _ = 1, 3 do
      cnn.scope(function()
        opt:zero_grad()
        if not how.accumulate then (how.save_on_cpu and cnn.save_on_cpu(loss) or loss()):backward() end
        for i = 1, how.accumulate or 0 do
          if how.attach and i < how.accumulate then
            opt:accumulate(cnn.scope, micro)
          else
            cnn.scope(micro)
          end
        end
        opt:step()
      end)
    end
  end
  local function predict(mode, how, batch)
    local training = mode == "train" or nil
    return cnn.estimate(m.new(), { input = shape(batch), mode = mode, checkpoint = how.checkpoint,
      attach = how.attach, save_on_cpu = how.save_on_cpu, accumulate = how.accumulate,
      loss = training and "cross_entropy", optimizer = training and "AdamW" })
  end
  local function measure(mode, how, batch)
    (mode == "train" and train or infer)(m.new(), cnn.randn(shape(batch)), how)
  end
  local function run(mode, how, batch)
    local pool = how.pool and cnn.pool { limit = 256 * 2 ^ 20 }
    local function within(fn, ...)
      if pool then return cnn.with_pool(pool, fn, ...) end
      return fn(...)
    end
    local e = coroutine.wrap(within)(predict, mode, how, batch) -- nothing stays behind on this stack
    clean()
    local before = cnn.memory_stats(pool)
    assert(before.reserved_bytes.current == 0)
    cnn.reset_peak_memory_stats(pool)
    coroutine.wrap(within)(measure, mode, how, batch)
    local s = cnn.memory_stats(pool)
    clean()
    local names = {}
    for name, value in pairs(how) do names[#names + 1] = name .. " = " .. tostring(value) end
    table.sort(names)
    print(("%%s, {%%s}, batch %%d: %%d requested, %%d allocated, %%.2f of reserved"):format(mode,
      table.concat(names, ", "), batch, e.peak_requested - s.requested_bytes.peak, e.peak - s.allocated_bytes.peak,
      e.peak_reserved / s.reserved_bytes.peak))
  end
  clean()
  for _, mode in ipairs { "infer", "train" } do
    for _, how in ipairs { {}, { checkpoint = 3 } } do
      for _, batch in ipairs { 2, 5, 16 } do run(mode, how, batch) end
    end
    run(mode, { pool = true }, 5)
  end
  for _, how in ipairs {
    { attach = true }, { save_on_cpu = true }, { accumulate = 3 }, { attach = true, accumulate = 3 },
    { attach = true, checkpoint = 3 }, { save_on_cpu = true, checkpoint = 3 },
    { attach = true, save_on_cpu = true, checkpoint = 3, accumulate = 2, pool = true },
  } do
    for _, batch in ipairs { 5, 16 } do run("train", how, batch) end
  end
]]

local function perceptron()
  return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
end

describe("predicted memory", function()
  local models = { "mlp", "lenet", "residual" }
  -- A simulator of GPUs takes minutes for a ResNet.
  if helper.device == "cpu" or not cnn.cuda.is_simulated() then models[4] = "resnet18" end
  for _, name in ipairs(models) do
    it("equals the measured one: " .. name, function()
      local text, count = helper.run(COMPARE:format(name, helper.device)), 0
      for line in text:gmatch "[^\n]+" do
        local requested, allocated, reserved = line:match(": (%-?%d+) requested, (%-?%d+) allocated, ([%d.]+) of")
        assert(requested == "0" and allocated == "0" and math.abs(reserved - 1) <= 0.02, text)
        count = count + 1
      end
      assert(count == 28, text)
    end)
  end

  it("of every op is what a real call asks for", function()
    local different, count = {}, 0
    local layouts = { false }
    for _, layout in ipairs(words.layouts) do
      if layout[1] == "transposed" or layout[1] == "mixed" then layouts[#layouts + 1] = layout end
    end
    local function compare(entry, sample, layout)
      local context = { dtype = "float32", layout = layout or nil }
      local arguments = words.arguments(sample, context)
      if #arguments.tensors == 0 then return end
      local fn = checks.caller(entry)
      local before = cnn.memory_stats().requested_bytes.total
      checks.call(fn, arguments)
      local real = cnn.memory_stats().requested_bytes.total - before
      core.simulate(helper.device)
      context.device = "meta"
      local ok, simulated = pcall(function()
        arguments = words.arguments(sample, context)
        before = core.simulated().total
        checks.call(fn, arguments)
        return core.simulated().total - before
      end)
      core.simulate()
      count = count + 1
      if not ok or simulated ~= real then
        different[#different + 1] = ("%s: %s instead of %d"):format(entry.key, tostring(simulated), real)
      end
    end
    for _, key in ipairs(db.keys()) do
      local entry = db.entry(key)
      for _, sample in ipairs(entry.samples or {}) do
        for _, layout in ipairs(layouts) do
          if entry.meta ~= false and not entry.dynamic and not sample.dynamic and checks.allows(sample, "float32")
            and checks.class(entry).float ~= false and (not layout or sample.layouts ~= false and entry.layouts ~= false
            and words.applies(layout, sample)) then
            compare(entry, sample, layout)
          end
        end
      end
      db.release(entry)
    end
    assert(#different == 0, table.concat(different, "\n"))
    assert(count > 1000)
  end)

  it("is the sum of its parts", function()
    for _, mode in ipairs { "infer", "train" } do
      local e = cnn.estimate(perceptron(), { input = { 32, 64 }, mode = mode })
      local sum = e.overhead
      for _, part in ipairs(PARTS) do
        sum = sum + e[part]
        assert.is_true(e[part] <= e.most[part])
      end
      assert.are.equal(e.peak, sum)
      assert.is_true(e.peak_requested <= e.peak and e.peak <= e.peak_reserved)
    end
  end)

  it("knows the parts by their sizes", function()
    local bytes = (64 * 128 + 128 + 128 * 10 + 10) * 4
    local e = cnn.estimate(perceptron(), { input = { 32, 64 }, mode = "train", loss = "cross_entropy",
      optimizer = "AdamW" })
    assert.are.equal(bytes, e.parameters)
    assert.are.equal(bytes, e.most.gradients)
    assert.are.equal(2 * bytes, e.optimizer_state)
    assert.are.equal(32 * 64 * 4 + 32 * 8, e.input) -- and the labels
    assert.are.equal(32 * 10 * 4, e.output)
    local momentum = cnn.estimate(perceptron(), { input = { 32, 64 }, mode = "train",
      optimizer = { optim.SGD, lr = 0.1, momentum = 0.9 } })
    assert.are.equal(bytes, momentum.optimizer_state)
    local function state(optimizer)
      return cnn.estimate(perceptron(), { input = { 1, 64 }, mode = "train", optimizer = optimizer }).optimizer_state
    end
    assert.are.equal(0, state(optim.SGD))
    assert.are.equal(3 * bytes, state { "adam", { amsgrad = true, betas = { 0.9, 0.99 } } })
    local made = optim.AdamW(perceptron():parameters(), { amsgrad = true, betas = { 0.9, 0.99 } })
    assert.are.equal(3 * bytes, state(made))
    local first = cnn.estimate(perceptron(), { input = { 512, 64 }, mode = "train", optimizer = "AdamW", steps = 1 })
    local later = cnn.estimate(perceptron(), { input = { 512, 64 }, mode = "train", optimizer = "AdamW" })
    assert.are.equal(0, first.optimizer_state)
    assert.are.equal(2 * bytes, later.peak_requested - first.peak_requested)
    local half = cnn.estimate(perceptron(), { input = { 32, 64 }, dtype = "float16" })
    assert.are.equal(bytes / 2, half.parameters)
    assert.are.equal(32 * 64 * 2, half.input)
    assert.truthy(tostring(e):find("optimizer state", 1, true))
  end)

  it("counts buffers and scratch", function()
    local model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 14 * 14, 4))
    local e = cnn.estimate(model, { input = { 4, 3, 16, 16 }, mode = "train" })
    assert.are.equal(2 * 8 * 4 + 8, e.buffers) -- and the count of batches
    assert.is_true(e.most.workspace > 0)
  end)

  it("leaves the model, the generator and the memory alone", function()
    local model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.5), nn.Flatten(),
      nn.Linear(8 * 14 * 14, 4))
    model[2]:eval()
    model(cnn.randn(2, 3, 16, 16)):sum():backward()
    local state, gradient = model:state_dict(), model[1].weight.grad
    local rng, default = cnn.get_rng_state(), cnn.get_default_device()
    for _ = 1, 2 do collectgarbage() end
    local live = cnn.memory_allocated()
    cnn.reset_peak_memory_stats()
    local options = { input = { 4, 3, 16, 16 }, mode = "train", optimizer = "Adam", threads = 1 }
    cnn.estimate(model, options)
    options.input = { 4, 3, 9, 9 }
    assert.is_false(pcall(cnn.estimate, model, options))
    assert.are.equal(live, cnn.max_memory_allocated())
    assert.are.same(rng, cnn.get_rng_state())
    assert.are.equal(default, cnn.get_default_device())
    assert.is_true(model[1].weight.grad == gradient)
    assert.is_true(model.training and not model[2].training)
    for name, t in pairs(model:state_dict()) do
      assert.are.equal(helper.place, tostring(t.device))
      assert.is_true(t:eq(state[name]):all():item(), name)
    end
    assert.are.equal("meta", tostring(cnn.empty(2, { device = "meta" }).device))
  end)

  it("leaves fields, tables in them, and buffers that the forward assigns", function()
    local Running = nn.Module:extend("Running")
    function Running:init()
      self.linear, self.calls, self.cache = nn.Linear(4, 4), 0, { kept = {} }
      self:register_buffer("mean", cnn.zeros(4))
    end
    function Running:forward(x)
      local y = self.linear(x)
      self.mean = self.mean * 0.9 + y:detach():mean(1)
      self.calls, self.last, self.cache[self.calls + 1], self.cache.kept.y = self.calls + 1, y, y, y
      return y
    end
    local model = nn.Sequential(Running(), nn.ReLU())
    local running, mean = model[1], model[1].mean
    local function try(problem)
      local options = { input = { 3, 4 }, mode = "train", loss = problem and function() error(problem) end or nil }
      assert.are.equal(not problem, (pcall(cnn.estimate, model, options)))
      options.input = { 4 }
      assert.are.equal(not problem, (pcall(cnn.measure_memory, model, options)))
      assert.is_true(running.mean == mean and mean:sum():item() == 0 and tostring(mean.device) == helper.place)
      assert.are.equal(0, running.calls)
      assert.is_nil(running.last)
      assert.are.same({ kept = {} }, running.cache)
    end
    try()
    try("no loss")
    assert.is_true(model(cnn.ones(3, 4)):has_shape(3, 4) and running.calls == 1)
  end)

  it("trains what is not frozen", function()
    local function bytes(frozen)
      local model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
      model[1]:requires_grad_(not frozen)
      return cnn.estimate(model, { input = { 2, 8 }, mode = "train", optimizer = "AdamW" }).most.optimizer_state
    end
    assert.are.equal(2 * 4 * (8 * 16 + 16 + 16 * 4 + 4), bytes(false))
    assert.are.equal(2 * 4 * (16 * 4 + 4), bytes(true))
  end)

  it("leaves the model as it was when an allocation fails", function()
    local model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    local weight = model[1].weight:detach():clone()
    local failures, ok = 0
    for n = 1, 2000 do
      core.fault_set(n, false, true)
      ok = pcall(cnn.estimate, model, { input = { 3, 4 }, mode = "train", loss = "mse_loss", optimizer = "AdamW" })
      core.fault_clear()
      for _, t in ipairs(model:parameters()) do assert.are.equal(helper.place, tostring(t.device)) end
      assert.are.equal(helper.place, tostring(cnn.empty(1).device))
      if ok then break end
      failures = failures + 1
    end
    assert.is_true(ok and failures > 50)
    assert.is_true(model[1].weight:eq(weight):all():item())
  end)

  it("reads inputs of every form", function()
    local function bytes(model, input) return cnn.estimate(model, { input = input }).input end
    assert.are.equal(2 * 64 * 4, bytes(perceptron(), { { 2, 64 } }))
    assert.are.equal(2 * 64 * 4, bytes(perceptron(), cnn.ones(2, 64)))
    assert.are.equal(6 * 8, bytes(nn.Embedding(10, 4), { shape = { 2, 3 }, dtype = "int64" }))
    local Pair = nn.Module:extend("Pair")
    function Pair:init() self.a = nn.Linear(4, 4) end
    function Pair:forward(x, i) return self.a(x):index_select(1, i) end
    assert.are.equal(3 * 4 * 4 + 2 * 8, bytes(Pair(), { { 3, 4 }, { shape = { 2 }, dtype = "int64" } }))
  end)

  it("takes losses and targets of every form", function()
    local function estimate(loss, target)
      return cnn.estimate(perceptron(), { input = { 8, 64 }, mode = "train", loss = loss, target = target })
    end
    local labels, floats = 8 * 64 * 4 + 8 * 8, 8 * 64 * 4 + 8 * 10 * 4
    assert.are.equal(labels, estimate("cross_entropy").input)
    assert.are.equal(labels, estimate(nn.CrossEntropyLoss()).input)
    assert.are.equal(floats, estimate("mse_loss").input)
    assert.are.equal(floats, estimate(function(y, t) return F.mse_loss(y, t) end, { 8, 10 }).input)
    assert.are.equal(8 * 64 * 4, estimate(function(y) return (y * y):mean() end).input)
    estimate(nn.CrossEntropyLoss { weight = cnn.ones(10) })
  end)

  it("takes optimizers written in Lua", function()
    local Sign = optim.Optimizer:extend("Sign")
    Sign.defaults = { lr = 1e-3 }
    function Sign.update(_, p, gradient, state, group)
      state.m = state.m or cnn.zeros_like(p)
      state.m:mul_(0.9):add_(gradient, { alpha = 0.1 })
      p:sub_(state.m:sign() * group.lr)
    end
    local e = cnn.estimate(perceptron(), { input = { 8, 64 }, mode = "train", optimizer = { Sign, lr = 1e-2 } })
    assert.is_true(e.peak > 3 * e.parameters)
  end)

  it("finds the largest batch", function()
    local model = perceptron()
    local options = { input = { 64 }, mode = "train", loss = "cross_entropy", optimizer = "AdamW" }
    local limit = 16 * 2 ^ 20
    local batch, e = cnn.max_batch(model, limit, options)
    assert.is_true(e.peak_reserved <= limit)
    options.input = { batch, 64 }
    assert.are.equal(e.peak, cnn.estimate(model, options).peak)
    options.input = { math.floor(batch * 9 / 8), 64 }
    assert.is_true(cnn.estimate(model, options).peak_reserved > limit)
    assert.are.equal(0, (cnn.max_batch(model, 1000, { input = { 64 } })))
    assert.are.equal(batch, (cnn.max_batch(model, limit, { input = function(n) return { n, 64 } end, mode = "train",
      loss = "cross_entropy", optimizer = "AdamW" })))
  end)

  it("by measuring is a line in the batch", function()
    local model = perceptron()
    local before = model:state_dict()
    local m = cnn.measure_memory(model, { batches = { 1, 2, 4, 8 }, input = { 64 }, mode = "train",
      loss = "cross_entropy", optimizer = "AdamW" })
    for i, batch in ipairs { 1, 2, 4, 8 } do
      local e = cnn.estimate(model, { input = { batch, 64 }, mode = "train", loss = "cross_entropy",
        optimizer = "AdamW" })
      assert.are.equal(e.peak_requested, m.rows[i].requested)
      assert.are.equal(e.peak, m.rows[i].peak)
    end
    assert.is_true(m.residual < 1)
    assert.is_true(m.per_sample > 64 * 4 and m.fixed > 16 * model:num_parameters())
    for name, t in pairs(model:state_dict()) do assert.is_true(t:eq(before[name]):all():item(), name) end
    assert.is_nil(model[1].weight.grad)
    assert.truthy(tostring(m):find("per sample", 1, true))
  end)

  it("with the options of a training step is the measured one", function()
    local model = perceptron()
    local peaks = {}
    for i, how in ipairs { {}, { attach = true }, { save_on_cpu = true }, { accumulate = 4 },
      { attach = true, save_on_cpu = true, accumulate = 2 }, { device = cnn.pool { limit = 64 * 2 ^ 20 } } } do
      how.mode, how.loss, how.optimizer = "train", "cross_entropy", "AdamW"
      how.input = { 256, 64 }
      local e = cnn.estimate(model, how)
      how.input, how.batches = { 64 }, { 32, 256 }
      local m = cnn.measure_memory(model, how)
      assert.are.equal(e.peak_requested, m.rows[2].requested)
      assert.are.equal(e.peak, m.rows[2].peak)
      peaks[i] = e.peak_requested
    end
    assert.are.equal(peaks[1], peaks[6])
    assert.is_true(peaks[4] > peaks[1])
    if helper.device == "cpu" then assert.is_true(peaks[3] < peaks[1]) end -- from there copies come back
    local wide = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64))
    local function peak(attach)
      return cnn.estimate(wide, { input = { 1, 64 }, mode = "train", optimizer = "AdamW", attach = attach })
    end
    assert.is_true(peak(true).peak < peak(false).peak)
  end)

  it("does not step what an attached optimizer steps", function()
    local model = perceptron()
    local opt = optim.AdamW(model:parameters()):attach(model)
    local weight = model[1].weight:detach():clone()
    local function predict(optimizer, attach)
      return cnn.estimate(model, { input = { 1, 64 }, mode = "train", optimizer = optimizer, attach = attach })
    end
    assert.are.equal(predict("AdamW", true).peak, predict(opt).peak) -- as it is
    assert.is_true(predict(opt, false).most.gradients > predict(opt).most.gradients)
    assert.is_false(pcall(cnn.estimate, model, { input = { 1, 64 }, mode = "train", optimizer = opt,
      loss = function(y) return y:sum():item() end }))
    assert.is_true(model[1].weight:eq(weight):all():item())
    assert.is_nil(opt.state[model[1].weight])
    model(cnn.randn(1, 64)):sum():backward()
    assert.is_nil(model[1].weight.grad)
    assert.are.equal(1, opt.state[model[1].weight].step)
    opt:detach()
  end)

  it("finds the largest batch for a pool", function()
    local pool = cnn.pool { limit = 16 * 2 ^ 20, name = "small" }
    local options = { input = { 64 }, mode = "train", loss = "cross_entropy", optimizer = "AdamW", accumulate = 2 }
    local inside = cnn.with_pool(pool, cnn.max_batch, perceptron(), nil, options)
    options.device = pool
    assert.are.equal(inside, (cnn.max_batch(perceptron(), nil, options)))
    assert.are.equal(inside, (cnn.max_batch(perceptron(), pool:limit(), options)))
    -- And it is: one more sample finds no room.
    local function train(batch)
      local model = perceptron()
      local opt = optim.AdamW(model:parameters())
      local x, y = cnn.randn(batch, 64), cnn.ones(batch, { dtype = "int64" })
      for _ = 1, 3 do
        cnn.scope(function()
          opt:zero_grad()
          for _ = 1, 2 do
            cnn.scope(function() (F.cross_entropy(model(x), y) / 2):backward() end)
          end
          opt:step()
        end)
      end
    end
    cnn.with_pool(pool, train, inside)
    helper.settle()
    cnn.empty_cache(pool)
    assert.are.equal(0, pool:stats().failures)
    helper.raises("out of memory on " .. helper.place .. " in pool \"small\"", cnn.with_pool, pool, train, inside + 1)
  end)

  it("per parameter is sixteen bytes with AdamW", function()
    assert.are.equal(16, cnn.bytes_per_parameter("adamw", "float32").total)
    assert.are.equal(16, cnn.bytes_per_parameter("AdamW", "mixed").total)
    assert.are.equal(8, cnn.bytes_per_parameter("sgd").total)
    assert.truthy(tostring(cnn.bytes_per_parameter("adamw")):find("exp_avg_sq", 1, true))
  end)

  it("says what is wrong", function()
    local model = perceptron()
    local function says(text, options)
      helper.raises(text, function() return cnn.estimate(model, options) end)
    end
    says("estimate: input is missing")
    says("estimate: unknown option \"inputs\": did you mean \"input\"?", { inputs = { 1, 64 } })
    says("estimate: mode: expected \"infer\" or \"train\"", { input = { 1, 64 }, mode = "training" })
    says("estimate: loss is for mode = \"train\"", { input = { 1, 64 }, loss = "mse_loss" })
    says("did you mean \"cross_entropy\"?", { input = { 1, 64 }, mode = "train", loss = "crossentropy" })
    says("optimizer: there is no \"adamx\"", { input = { 1, 64 }, mode = "train", optimizer = "adamx" })
    says("estimate: optimizer: AdamW: unknown option \"rate\"", { input = { 1, 64 }, mode = "train",
      optimizer = { "AdamW", rate = 1 } })
    says("estimate: the model does not run on these shapes: Linear: input (2, 3)", { input = { 2, 3 } })
    says("expected a whole number", { input = { 2, 0.5 } })
    says("a prediction is under way", { input = { 2, 64 }, mode = "train", loss = function(y)
      cnn.estimate(model, { input = { 2, 64 } })
      return y:sum()
    end })
    model:requires_grad_(false)
    says("no parameter that requires a gradient", { input = { 2, 64 }, mode = "train", optimizer = "SGD" })
    model:requires_grad_(true)
    says("estimate: device \"cuda:15\" is not available", { input = { 1, 64 }, device = "cuda:15" })
    says("cnn.measure_memory runs the model for real", { input = { 1, 64 }, mode = "train", loss = function(y)
      return y * y:sum():item()
    end })
    local function train(text, options)
      options.input, options.mode = options.input or { 1, 64 }, options.mode or "train"
      says(text, options)
    end
    train("estimate: attach: there is no optimizer to step inside of backward: name it", { attach = true })
    train("estimate: attach: expected true or false, got", { attach = "yes", optimizer = "SGD" })
    train("is written in Lua: only built-in optimizers can step inside of backward; leave attach out",
      { attach = true, optimizer = optim.Optimizer:extend("Sign") })
    train("estimate: save_on_cpu: expected true, or {file = path}", { save_on_cpu = "/tmp" })
    train("estimate: save_on_cpu: unknown option \"files\": did you mean \"file\"", { save_on_cpu = { files = "x" } })
    train("estimate: accumulate: expected a whole number >= 1, got the number 0", { accumulate = 0 })
    train("estimate: steps: expected a whole number >= 1", { steps = 1.5 })
    train("estimate: dtype: expected \"float32\"", { dtype = "int64" })
    train("estimate: device: expected a name such as \"cpu\", or a pool", { device = 1 })
    for _, name in ipairs { "attach", "save_on_cpu", "accumulate", "checkpoint", "steps" } do
      says(("estimate: %s is for mode = \"train\": the mode is \"infer\" unless"):format(name),
        { input = { 1, 64 }, [name] = 2 })
    end
    helper.raises("argument 1 (model): expected a module", function() cnn.estimate(1, { input = { 1 } }) end)
    helper.raises("argument 2 (limit)", function() cnn.max_batch(model, -1, { input = { 64 } }) end)
    helper.raises("at least two batch sizes", function()
      cnn.measure_memory(model, { input = { 64 }, batches = { 1 } })
    end)
    helper.raises("batches: entry 2: expected a whole number >= 1, got", function()
      cnn.measure_memory(model, { input = { 64 }, batches = { 1, 0 } })
    end)
    helper.raises("a Sequential can be cut", function()
      cnn.estimate(nn.Linear(2, 2), { input = { 1, 2 }, mode = "train", checkpoint = 2 })
    end)
    helper.raises("expected one of adagrad", function() cnn.bytes_per_parameter("lion") end)
  end)
end)
