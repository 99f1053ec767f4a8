-- SPDX-License-Identifier: MIT
-- A few steps of a model for the sake of their memory: on other tensors than its own, so that parameters,
-- running statistics, gradients and the random generator are afterwards what they were. cnn.estimate
-- rehearses on meta, cnn.measure_memory on the device itself; both do exactly the same steps.
local core = require "cnn.core"
local memory = require "cnn.memory"
local options = require "cnn.options"

local fail, describe, is_tensor = core.fail, core.describe, core.is_tensor
local unpack = table.unpack or unpack

local rehearsal = {}

-- Steps of training: the first makes the optimizer's state, the later ones find it there.
local STEPS = 3

local function pack(...) return { n = select("#", ...), ... } end

-- ---------------------------------------------------------------------------------------------
-- Reading options

local dtypes = require("cnn.tensor").dtypes

local function is_dtype(value)
  for _, name in ipairs(dtypes) do
    if value == name then return true end
  end
  return false
end

-- What describes one tensor: a shape, {shape =, dtype =} or a tensor like it.
local function is_spec(value)
  if is_tensor(value) then return true end
  return type(value) == "table" and (type(value[1]) == "number" or value.shape ~= nil or next(value) == nil)
end

local function read_spec(what, name, value, dtype)
  if is_tensor(value) then return { shape = value.shape, dtype = value.dtype } end
  local shape, sizes = value.shape or value, {}
  if type(shape) ~= "table" then
    fail(("%s: %s: shape: expected a list such as {8, 16}, got %s"):format(what, name, describe(shape)))
  end
  if value.dtype ~= nil and not is_dtype(value.dtype) then
    local near = type(value.dtype) == "string" and core.nearest(value.dtype, dtypes)
    fail(("%s: %s: unknown dtype %s%s"):format(what, name, describe(value.dtype),
      near and (": did you mean %q?"):format(near) or " (there are " .. table.concat(dtypes, ", ") .. ")"))
  end
  for i, size in ipairs(shape) do
    if type(size) ~= "number" or size < 0 or size % 1 ~= 0 then
      fail(("%s: %s: size %d is %s, expected a whole number >= 0"):format(what, name, i, describe(size)))
    end
    sizes[i] = size
  end
  return { shape = sizes, dtype = value.dtype or dtype }
end

-- A list of them. `value` is one spec or a list of specs.
function rehearsal.specs(what, name, value, dtype)
  if is_spec(value) then return { read_spec(what, name, value, dtype) } end
  if type(value) ~= "table" then
    fail(("%s: %s: expected a shape such as {8, 16}, {shape = {8, 16}, dtype = \"int64\"}, or a list of those, got %s")
      :format(what, name, describe(value)))
  end
  local list = {}
  for i, one in ipairs(value) do
    if not is_spec(one) then
      fail(("%s: %s: entry %d: expected a shape, got %s"):format(what, name, i, describe(one)))
    end
    list[i] = read_spec(what, name, one, dtype)
  end
  return list
end

-- The specs with the batch size in front; functions are asked for them.
function rehearsal.with_batch(what, name, value, batch, dtype)
  if type(value) == "function" then
    local given = value(batch)
    if type(given) ~= "table" and not is_tensor(given) then
      fail(("%s: %s: the function gave %s for a batch of %d: expected a shape such as {batch, 16}, or a list of those")
        :format(what, name, describe(given), batch))
    end
    return rehearsal.specs(what, name, given, dtype)
  end
  local list = rehearsal.specs(what, name, value, dtype)
  for _, spec in ipairs(list) do
    local shape = { batch }
    for i = 1, #spec.shape do shape[i + 1] = spec.shape[i] end
    spec.shape = shape
  end
  return list
end

local function loss_function(what, loss)
  if loss == nil or options.callable(loss) then return loss end
  if type(loss) ~= "string" then
    fail(("%s: loss: expected a function, a module or a name such as \"cross_entropy\", got %s"):format(
      what, describe(loss)))
  end
  local fn = core.functions[loss]
  if fn then return fn end
  local near = core.nearest(loss, { "cross_entropy", "mse_loss", "l1_loss", "nll_loss", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "smooth_l1_loss", "huber_loss" })
  fail(("%s: loss: there is no function %q%s"):format(what, loss,
    near and (": did you mean %q?"):format(near) or ", e.g. \"cross_entropy\", \"mse_loss\""))
end

-- The parameters that an optimizer takes: a part of the model may be frozen.
function rehearsal.trainable(model)
  local list = {}
  for _, p in ipairs(model:parameters()) do
    if p.requires_grad then list[#list + 1] = p end
  end
  return list
end

-- A name, a constructor, a list of one of them with options ({"AdamW", lr = 1e-3} or {"AdamW", {lr = 1e-3}}),
-- or an optimizer like which one is made. Gives a function from parameters to an optimizer, and one that it made.
local function optimizer_maker(what, value, model)
  if value == nil then return nil end
  local optim = require "cnn.optim"
  local new, settings = value, {}
  if type(value) == "table" and value.param_groups then
    new = value.box and value.name or getmetatable(value)
    for k, v in pairs(value.box and value.defaults or value.options or {}) do settings[k] = v end
    if settings.beta1 then
      settings.betas = { settings.beta1, settings.beta2 }
      settings.beta1, settings.beta2 = nil, nil
    end
  elseif type(value) == "table" and not options.callable(value) then
    new = value[1]
    for k, v in pairs(type(value[2]) == "table" and value[2] or value) do
      if type(k) == "string" then settings[k] = v end
    end
  end
  if type(new) == "string" then
    local names = {}
    for _, kind in ipairs(core.optimizer_kinds()) do
      names[#names + 1] = kind.name
      if kind.name:lower() == new:lower() then new = optim[kind.name] break end
    end
    if type(new) == "string" then
      fail(("%s: optimizer: there is no %q (there are %s)"):format(what, new, table.concat(names, ", ")))
    end
  end
  if not options.callable(new) then
    fail(("%s: optimizer: expected a name, a constructor, or {\"AdamW\", lr = 1e-3}, got %s"):format(
      what, describe(value)))
  end
  if #rehearsal.trainable(model) == 0 then
    fail(what .. ": optimizer: the model has no parameter that requires a gradient: leave the optimizer out")
  end
  local ok, made = pcall(new, rehearsal.trainable(model), settings)
  if not ok then fail(("%s: optimizer: %s"):format(what, (tostring(made):gsub("^%S-:%d+: ", "")))) end
  return function(parameters) return new(parameters, settings) end, made
end

rehearsal.OPTIONS = {
  "input", "dtype", "mode", "loss", "optimizer", "attach", "target", "checkpoint", "save_on_cpu", "accumulate", "steps",
  "device", "threads",
}

-- What makes sense in training alone.
local TRAINING = { "loss", "optimizer", "attach", "target", "checkpoint", "save_on_cpu", "accumulate", "steps" }

local DTYPES = { float32 = true, float64 = true, float16 = true, bfloat16 = true }

-- A whole number from 1 on, or `otherwise`.
local function count(what, name, value, otherwise)
  if value == nil then return otherwise end
  if type(value) ~= "number" or value < 1 or value % 1 ~= 0 then
    fail(("%s: %s: expected a whole number >= 1, got %s"):format(what, name, describe(value)))
  end
  return value
end

-- Reads what changes a step of training.
local function read_step(plan, given)
  local what = plan.what
  plan.loss, plan.loss_name = loss_function(what, given.loss), given.loss
  if given.target ~= nil and given.loss == nil then
    fail(what .. ": target: without a loss nothing takes it: give loss = \"cross_entropy\", or a function of the "
      .. "result and the target")
  end
  local optimizer
  plan.make_optimizer, optimizer = optimizer_maker(what, given.optimizer, plan.model)
  plan.attach = options.expect(what, "attach", given.attach, "boolean")
  if plan.attach and not optimizer then
    fail(what .. ": attach: there is no optimizer to step inside of backward: name it, e.g. optimizer = \"AdamW\"")
  end
  if plan.attach and not optimizer.box then
    fail(("%s: attach: %s is written in Lua: only built-in optimizers can step inside of backward; leave attach out")
      :format(what, optimizer.__name))
  end
  if plan.attach == nil then plan.attach = (core.attached_optimizers or {})[given.optimizer] end
  local parked = given.save_on_cpu
  if parked ~= nil and type(parked) ~= "boolean" and not options.is_options(parked) then
    fail(("%s: save_on_cpu: expected true, or {file = path} as cnn.save_on_cpu takes it, got %s"):format(what,
      describe(parked)))
  end
  if type(parked) == "table" then
    options.check(what .. ": save_on_cpu", parked, { "file" })
    plan.file = options.expect(what, "save_on_cpu.file", parked.file, "string")
  end
  plan.save_on_cpu = parked
  plan.accumulate = count(what, "accumulate", given.accumulate, 1)
  plan.steps = count(what, "steps", given.steps, STEPS)
  plan.checkpoint = count(what, "checkpoint", given.checkpoint)
  if plan.checkpoint and core.module_layer(plan.model) ~= "Sequential" then
    fail(("%s: checkpoint: only a Sequential can be cut into segments, the model is a %s: call cnn.checkpoint in its "
      .. "forward, and leave this out"):format(what, require("cnn.nn.module").class_name(plan.model)))
  end
end

-- Checks what does not depend on the sizes. `given`: the options; `what`: the function's name, for
-- messages.
function rehearsal.plan(what, model, given, names)
  if not core.is_module(model) then
    fail(("%s: argument 1 (model): expected a module (a layer, a Sequential, an instance of a class that "
      .. "nn.Module:extend made), got %s"):format(what, describe(model)))
  end
  if type(given) ~= "table" or given[1] ~= nil then
    fail(("%s: options: expected a table with names, e.g. {input = {8, 16}, mode = \"train\"}, got %s"):format(what,
      type(given) == "table" and "a list" or describe(given)))
  end
  options.check(what, given, names or rehearsal.OPTIONS)
  local mode = given.mode or "infer"
  if mode ~= "infer" and mode ~= "train" then
    fail(("%s: mode: expected \"infer\" or \"train\", got %s"):format(what, describe(given.mode)))
  end
  if given.input == nil then
    fail(("%s: input is missing: give its shape, e.g. {input = {8, 16}}"):format(what))
  end
  local plan = { what = what, model = model, mode = mode, dtype = given.dtype }
  if mode == "infer" then
    for _, name in ipairs(TRAINING) do
      if given[name] ~= nil and not (name == "checkpoint" and given.mode) then
        fail(("%s: %s is for mode = \"train\"%s"):format(what, name,
          given.mode == nil and ": the mode is \"infer\" unless it is given" or ""))
      end
    end
  end
  if plan.dtype ~= nil and not DTYPES[plan.dtype] then
    fail(("%s: dtype: expected \"float32\", \"float64\", \"float16\" or \"bfloat16\", got %s"):format(what,
      describe(given.dtype)))
  end
  read_step(plan, given)
  plan.threads = count(what, "threads", given.threads)
  if type(given.device) == "userdata" and getmetatable(given.device) == core.pool_metatable then
    plan.pool = given.device
  elseif given.device ~= nil and type(given.device) ~= "string" then
    fail(("%s: device: expected a name such as \"cpu\", or a pool of cnn.pool, got %s"):format(what,
      describe(given.device)))
  end
  if given.device == "meta" then
    fail(what .. ": device: \"meta\" has no memory: name the device that the model is to run on, e.g. \"cpu\"")
  end
  plan.device = plan.pool and plan.pool:device() or given.device or rehearsal.device_of(model)
  plan.input_dtype = given.dtype or rehearsal.dtype_of(model)
  return plan
end

local function first_float(model)
  for _, p in ipairs(model:parameters()) do
    if p:is_floating_point() then return p end
  end
end

-- Where the model would run: where its parameters are; from meta, on the default device.
function rehearsal.device_of(model)
  local p = first_float(model)
  local device = tostring(p and p.device or core.get_default_device())
  if device == "meta" then device = tostring(core.get_default_device()) end
  return device == "meta" and "cpu" or device
end

function rehearsal.dtype_of(model)
  local p = first_float(model)
  return p and p.dtype or core.get_default_dtype()
end

-- ---------------------------------------------------------------------------------------------
-- Running

-- fn() while no optimizer of the script's steps inside of backward, where other tensors lie in its parameters.
local function without_steps(fn)
  for optimizer in pairs(core.attached_optimizers or {}) do
    local inner = fn
    fn = function() return core.optimizer_accumulate(optimizer.box, inner) end
  end
  return fn()
end

-- The names that a module has registered, and its buffers by name.
local function registered(module)
  local known, buffers = {}, {}
  for _, kind in ipairs { "parameter", "buffer" } do
    local names, tensors = core.module_tensors(module, kind)
    for i, name in ipairs(names) do
      if not name:find(".", 1, true) then
        known[name] = true
        if kind == "buffer" then buffers[name] = tensors[i] end
      end
    end
  end
  for _, name in ipairs((core.module_children(module))) do known[name] = true end
  return known, buffers
end

-- Copies of a table and of those in it, by the original. (Hooks are the library's.)
local function note_tables(original, copies)
  if copies[original] then return end
  local copy = {}
  copies[original] = copy
  for key, value in next, original do
    copy[key] = value
    if type(value) == "table" and key ~= "_hooks" then note_tables(value, copies) end
  end
end

-- What a forward in Lua may assign: fields, entries of tables in fields, buffers. Gives a function that puts
-- back what they were.
local function note_fields(modules)
  local copies, buffers = {}, {}
  for _, m in ipairs(modules) do
    note_tables(core.module_fields(m), copies)
    buffers[m] = select(2, registered(m))
  end
  return function()
    for m, before in pairs(buffers) do
      local known, now = registered(m)
      for name, t in pairs(now) do
        if before[name] ~= t then m[name] = before[name] end
      end
      local fields = core.module_fields(m)
      for key in next, fields do
        if copies[fields][key] == nil and not known[key] then fields[key] = nil end
      end
      for key, value in next, copies[fields] do
        if not known[key] then fields[key] = value end
      end
      copies[fields] = nil
    end
    for original, copy in pairs(copies) do
      for key in next, original do
        if copy[key] == nil then rawset(original, key, nil) end
      end
      for key, value in next, copy do rawset(original, key, value) end
    end
  end
end

-- Calls fn with the model's tensors exchanged for what twin(t, kind) gives, without gradients, and with a
-- generator, modes and settings of its own. Puts everything back, then gives fn's results or raises
-- its error.
function rehearsal.on_twins(plan, twin, fn)
  local roots = { plan.model }
  if core.is_module(plan.loss) then roots[2] = plan.loss end
  local modules = {}
  for _, root in ipairs(roots) do
    for _, m in ipairs(root:modules()) do modules[#modules + 1] = m end
  end
  local put_fields_back = note_fields(modules)
  local swapped, gradients, training, seen = {}, {}, {}, {}
  local rng, threads = core.get_rng_state(), core.get_num_threads()
  local paced = core.gc().paced
  local known, running = pcall(collectgarbage, "isrunning")
  running = not known or running

  local function exchange()
    for _, root in ipairs(roots) do
      for _, kind in ipairs { "parameter", "buffer" } do
        local _, tensors = core.module_tensors(root, kind)
        for _, t in ipairs(tensors) do
          if not seen[t] then
            seen[t] = true
            swapped[#swapped + 1] = { t, twin(t, kind) }
            if kind == "parameter" then gradients[#gradients + 1] = { t, t.grad } end
          end
        end
      end
    end
    for _, m in ipairs(modules) do training[m] = m.training end
    for _, g in ipairs(gradients) do g[1].grad = nil end
    for _, s in ipairs(swapped) do core.tensor_swap(s[1], s[2]) end
    swapped.done = true
    plan.model:train(plan.mode == "train")
    if plan.threads then core.set_num_threads(plan.threads) end
    -- What Lua drops must not be freed at one moment here and at another there.
    core.gc { paced = false }
    collectgarbage("stop")
    return without_steps(fn)
  end

  local result = pack(pcall(exchange))
  if running then collectgarbage("restart") end
  core.gc { paced = paced }
  if plan.threads then core.set_num_threads(threads) end
  core.set_rng_state(rng)
  for _, g in ipairs(gradients) do g[1].grad = nil end
  if swapped.done then
    for _, s in ipairs(swapped) do core.tensor_swap(s[1], s[2]) end
  end
  put_fields_back()
  for _, s in ipairs(swapped) do s[2]:free() end
  for _, g in ipairs(gradients) do g[1].grad = g[2] end
  for m, on in pairs(training) do m.training = on end
  if not result[1] then error(result[2], 0) end
  return unpack(result, 2, result.n)
end

local function forward_of(plan)
  if not plan.checkpoint then return plan.model end
  local checkpoint = require "cnn.checkpoint"
  return function(x) return checkpoint.checkpoint_sequential(plan.model, plan.checkpoint, x) end
end

local function infer(plan, inputs, mark)
  local outputs = pack(core.no_grad(forward_of(plan), unpack(inputs)))
  for i = 1, outputs.n do
    if is_tensor(outputs[i]) then mark(outputs[i]) end
  end
end

-- The loss of a model that comes with none: the sum of its first result, or that result itself when it
-- is one number.
local function default_loss(y)
  if not is_tensor(y) then
    fail("the model's first result is no tensor: give loss = function(...) that makes one number of the results")
  end
  return y:dim() == 0 and y or y:sum()
end

-- The state of an optimizer written in Lua outlives the step's scope.
local function keep_state(optimizer, parameters)
  if optimizer.box or type(optimizer.state) ~= "table" then return end
  for _, p in ipairs(parameters) do
    for _, value in pairs(optimizer.state[p] or {}) do
      if is_tensor(value) then core.keep(value) end
    end
  end
end

-- Forward and loss, with what they save elsewhere if the plan says so.
local function loss_of(plan, inputs, targets, mark)
  local outputs = pack(forward_of(plan)(unpack(inputs)))
  for i = 1, outputs.n do
    if is_tensor(outputs[i]) then mark(outputs[i]) end
  end
  if not plan.loss then return default_loss(outputs[1]) end
  local arguments = { unpack(outputs, 1, outputs.n) }
  for i, t in ipairs(targets) do arguments[outputs.n + i] = t end
  return plan.loss(unpack(arguments, 1, outputs.n + #targets))
end

local function backward(plan, ...)
  local loss
  if plan.save_on_cpu then
    loss = core._save_on_cpu(plan.file, loss_of, plan, ...)
  else
    loss = loss_of(plan, ...)
  end
  if not is_tensor(loss) or loss:numel() ~= 1 then
    fail("the loss must be one number to go back from, but it is " .. (is_tensor(loss) and "a tensor of shape "
      .. tostring(loss.shape) .. ": reduce it, e.g. by :mean()" or describe(loss) .. ": return a tensor"))
  end
  if plan.accumulate > 1 then loss = loss / plan.accumulate end
  loss:backward()
end

local function train_step(plan, inputs, targets, optimizer, mark)
  if optimizer then optimizer:zero_grad() else plan.model:zero_grad() end
  if plan.accumulate == 1 then backward(plan, inputs, targets, mark) end
  for i = 1, plan.accumulate > 1 and plan.accumulate or 0 do
    if plan.attach and i < plan.accumulate then
      optimizer:accumulate(memory.scope, backward, plan, inputs, targets, mark)
    else
      memory.scope(backward, plan, inputs, targets, mark)
    end
  end
  if not optimizer then return end
  optimizer:step()
  keep_state(optimizer, plan.model:parameters())
end

-- Makes the tensors that `inputs` and `targets` (lists of specs) describe with make(spec), and runs the
-- plan's steps on them. Called by what on_twins calls.
function rehearsal.run(plan, inputs, targets, make, mark)
  local given, wanted = {}, {}
  for i, spec in ipairs(inputs) do given[i] = make(spec) end
  if plan.mode == "infer" then
    core.enable_grad(memory.scope, infer, plan, given, mark)
  else
    for i, spec in ipairs(targets) do wanted[i] = make(spec) end
    local optimizer = plan.make_optimizer and plan.make_optimizer(rehearsal.trainable(plan.model))
    if plan.attach then optimizer:attach(plan.model) end
    local ok, problem = pcall(function()
      for _ = 1, plan.steps do core.enable_grad(memory.scope, train_step, plan, given, wanted, optimizer, mark) end
    end)
    if plan.attach then optimizer:detach() end
    if not ok then error(problem, 0) end
    if optimizer and optimizer.box then optimizer:reset_state() end
  end
  for _, list in ipairs { given, wanted } do
    for _, t in ipairs(list) do t:free() end
  end
end

local LABELS = { cross_entropy = true, nll_loss = true, CrossEntropyLoss = true, NLLLoss = true }

-- The targets that go with a model's results when none are given: labels for the losses that take
-- labels, else as the results are. Runs the model on meta.
local function default_targets(plan, inputs)
  local named = type(plan.loss_name) == "string"
  if not named and not core.is_module(plan.loss) then return {} end
  local y
  rehearsal.on_twins(plan, rehearsal.meta_twin(plan), function()
    local given = {}
    for i, spec in ipairs(inputs) do given[i] = core.empty(spec.shape, { device = "meta", dtype = spec.dtype }) end
    y = core.no_grad(plan.model, unpack(given))
  end)
  if not is_tensor(y) then return {} end
  local name = named and plan.loss_name or core.module_layer(plan.loss)
  if not LABELS[name] then return { { shape = y.shape, dtype = y.dtype } } end
  local shape = {}
  for i = 1, y:dim() do
    if i ~= (y:dim() == 1 and 1 or 2) then shape[#shape + 1] = y:size(i) end
  end
  return { { shape = shape, dtype = "int64" } }
end

-- The specs of the targets: those given, or those that the loss wants.
function rehearsal.targets(plan, inputs, given)
  if plan.mode == "infer" then return {} end
  return given or default_targets(plan, inputs)
end

-- A function from a tensor to one on meta with the same form, of the plan's dtype.
function rehearsal.meta_twin(plan)
  return function(t)
    local dtype = plan.dtype and t:is_floating_point() and plan.dtype or t.dtype
    return core.functions.empty_like(t, { device = "meta", dtype = dtype })
  end
end

return rehearsal
