-- SPDX-License-Identifier: MIT
-- cnn.optim.lr_scheduler: learning rates as functions of the number of steps taken.
--
-- Every schedule is a closed form: the rate after n steps depends on n alone, never on the rate before.
-- So saving and resuming gives, bit for bit, what an uninterrupted run gives. Formulas are PyTorch's
-- (torch.optim.lr_scheduler).
local core = require "cnn.core"
local options = require "cnn.options"

local fail, describe = core.fail, core.describe

local Scheduler = {}
Scheduler.__index = Scheduler

-- Sets the rates for the current step count.
local function apply(self)
  self.last_lr = {}
  for g, group in ipairs(self.optimizer.param_groups) do
    local lr = self:rate(self.base_lrs[g], self.last_epoch, g)
    group.lr = lr
    self.last_lr[g] = lr
  end
end

function Scheduler:step()
  self.last_epoch = self.last_epoch + 1
  apply(self)
end

function Scheduler:get_last_lr() return self.last_lr end

function Scheduler:state_dict()
  local state = { last_epoch = self.last_epoch, base_lrs = {} }
  for g, lr in ipairs(self.base_lrs) do state.base_lrs[g] = lr end
  return state
end

function Scheduler:load_state_dict(state)
  if type(state) ~= "table" or type(state.last_epoch) ~= "number" or type(state.base_lrs) ~= "table" then
    fail("load_state_dict: expected what a schedule's state_dict gave")
  end
  self.last_epoch = state.last_epoch
  self.base_lrs = {}
  for g, lr in ipairs(state.base_lrs) do self.base_lrs[g] = lr end
  apply(self)
end

local lr_scheduler = {}

-- What an option may be: a text for messages and a test.
local function finite(v) return type(v) == "number" and v - v == 0 end
local function all(list, test)
  if type(list) ~= "table" then return false end
  for _, v in ipairs(list) do if not test(v) then return false end end
  return true
end
local NUMBER = { "a finite number", finite }
local COUNT = { "a number of at least 1", function(v) return finite(v) and v >= 1 end }
local NUMBERS = { "a list of numbers", function(v) return all(v, finite) end }
local RATE = { "a number, or a list of one per group", function(v) return finite(v) or all(v, finite) end }
local FUNCTION = { "a function, or a list of one per group", function(v)
  return options.callable(v) or all(v, options.callable)
end }
local function word(...)
  local words = { ... }
  return { ("\"%s\""):format(table.concat(words, "\" or \"")), function(v) return v == words[1] or v == words[2] end }
end

-- The options of a schedule, by position or in a table, into a table. `list` holds {name, kind, default}
-- in PyTorch's order; those without a default must be given.
local function read(name, list, optimizer, ...)
  if type(optimizer) ~= "table" or not optimizer.param_groups then
    fail(("%s: the first argument must be an optimizer, got %s"):format(name, describe(optimizer)))
  end
  local names, values = {}, {}
  for i, option in ipairs(list) do names[i] = option[1] end
  local given = options.read(name, names, ...)
  for _, option in ipairs(list) do
    local key, kind, default = option[1], option[2], option[3]
    local value = given[key]
    if value == nil then value = default end
    if value == nil then
      fail(("%s: option \"%s\" is missing: expected %s"):format(name, key, kind[1]))
    end
    if not kind[2](value) then
      fail(("%s: %s: expected %s, got %s"):format(name, key, kind[1], describe(value)))
    end
    values[key] = value
  end
  return values
end

-- Defines a schedule.
local function schedule(name, list, rate)
  local class = setmetatable({ rate = rate }, { __index = Scheduler })
  class.__index = class
  class.__tostring = function(self) return ("%s after %d steps"):format(name, self.last_epoch) end
  lr_scheduler[name] = function(optimizer, ...)
    local self = setmetatable(read(name, list, optimizer, ...), class)
    self.optimizer, self.last_epoch, self.base_lrs = optimizer, 0, {}
    for g, group in ipairs(optimizer.param_groups) do
      group.initial_lr = group.initial_lr or group.lr
      self.base_lrs[g] = group.initial_lr
    end
    apply(self)
    return self
  end
end

-- lr * gamma^floor(n / step_size)
schedule("StepLR", { { "step_size", COUNT }, { "gamma", NUMBER, 0.1 } }, function(self, base, n)
  return base * self.gamma ^ math.floor(n / self.step_size)
end)

-- lr * gamma^(milestones passed)
schedule("MultiStepLR", { { "milestones", NUMBERS }, { "gamma", NUMBER, 0.1 } }, function(self, base, n)
  local passed = 0
  for _, m in ipairs(self.milestones) do if n >= m then passed = passed + 1 end end
  return base * self.gamma ^ passed
end)

schedule("ExponentialLR", { { "gamma", NUMBER } }, function(self, base, n) return base * self.gamma ^ n end)

-- lr * factor until total_iters steps are done.
schedule("ConstantLR", { { "factor", NUMBER, 1 / 3 }, { "total_iters", NUMBER, 5 } }, function(self, base, n)
  return n < self.total_iters and base * self.factor or base
end)

-- The factor goes linearly from start_factor to end_factor in total_iters steps.
schedule("LinearLR", { { "start_factor", NUMBER, 1 / 3 }, { "end_factor", NUMBER, 1 },
  { "total_iters", COUNT, 5 } }, function(self, base, n)
  local t = math.min(n, self.total_iters) / self.total_iters
  return base * (self.start_factor + (self.end_factor - self.start_factor) * t)
end)

schedule("PolynomialLR", { { "total_iters", COUNT, 5 }, { "power", NUMBER, 1 } }, function(self, base, n)
  return base * (1 - math.min(n, self.total_iters) / self.total_iters) ^ self.power
end)

-- eta_min + (lr - eta_min) (1 + cos(pi n / T_max)) / 2 (Loshchilov and Hutter, 2017)
schedule("CosineAnnealingLR", { { "T_max", COUNT }, { "eta_min", NUMBER, 0 } }, function(self, base, n)
  return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * n / self.T_max)) / 2
end)

-- The same with restarts: periods of T_0, T_0 T_mult, ...
schedule("CosineAnnealingWarmRestarts", { { "T_0", COUNT }, { "T_mult", COUNT, 1 },
  { "eta_min", NUMBER, 0 } }, function(self, base, n)
  local period, at = self.T_0, n
  while at >= period do
    at = at - period
    period = period * self.T_mult
  end
  return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * at / period)) / 2
end)

-- Up from max_lr / div_factor to max_lr in pct_start of the steps, then down to the initial rate over
-- final_div_factor (Smith, 2018).
schedule("OneCycleLR", { { "max_lr", RATE }, { "total_steps", COUNT }, { "pct_start", NUMBER, 0.3 },
  { "anneal_strategy", word("cos", "linear"), "cos" }, { "div_factor", NUMBER, 25 },
  { "final_div_factor", NUMBER, 1e4 } }, function(self, _, n, g)
  local max_lr = type(self.max_lr) == "table" and self.max_lr[g] or self.max_lr
  local initial = max_lr / self.div_factor
  local lowest = initial / self.final_div_factor
  local up, last = self.pct_start * self.total_steps - 1, self.total_steps - 1
  if n > last then
    fail(("OneCycleLR: step %d is past total_steps = %d"):format(n, self.total_steps))
  end
  local from, to, t = initial, max_lr, n / up
  if n > up then from, to, t = max_lr, lowest, (n - up) / (last - up) end
  if self.anneal_strategy == "linear" then return from + (to - from) * t end
  return to + (from - to) / 2 * (1 + math.cos(math.pi * t))
end)

-- lr * lr_lambda(n); lr_lambda may be a list with one function per group.
schedule("LambdaLR", { { "lr_lambda", FUNCTION } }, function(self, base, n, g)
  local f = type(self.lr_lambda) == "table" and self.lr_lambda[g] or self.lr_lambda
  local factor = f(n)
  if type(factor) ~= "number" then
    fail(("LambdaLR: lr_lambda must return a number, not %s"):format(describe(factor)))
  end
  return base * factor
end)

-- Lowers the rate when a metric stops improving: step(metric). It has a memory, unlike the others, and
-- saves it in its state dict.
local PLATEAU = { { "mode", word("min", "max"), "min" }, { "factor", NUMBER, 0.1 }, { "patience", NUMBER, 10 },
  { "threshold", NUMBER, 1e-4 }, { "cooldown", NUMBER, 0 }, { "min_lr", NUMBER, 0 } }

function lr_scheduler.ReduceLROnPlateau(optimizer, ...)
  local self = read("ReduceLROnPlateau", PLATEAU, optimizer, ...)
  self.optimizer, self.bad, self.cooling, self.last_epoch = optimizer, 0, 0, 0
  local function better(value)
    if not self.best then return true end
    if self.mode == "min" then return value < self.best * (1 - self.threshold) end
    return value > self.best * (1 + self.threshold)
  end
  function self:step(metric)
    if core.is_tensor(metric) then metric = metric:item() end
    if type(metric) ~= "number" then
      fail(("ReduceLROnPlateau: step: expected the metric, such as the loss, got %s"):format(describe(metric)))
    end
    self.last_epoch = self.last_epoch + 1
    if better(metric) then self.best, self.bad = metric, 0 else self.bad = self.bad + 1 end
    if self.cooling > 0 then self.cooling, self.bad = self.cooling - 1, 0 end
    if self.bad <= self.patience then return end
    for _, group in ipairs(self.optimizer.param_groups) do
      group.lr = math.max(group.lr * self.factor, self.min_lr)
    end
    self.cooling, self.bad = self.cooldown, 0
  end
  function self:state_dict()
    return { best = self.best, bad = self.bad, cooling = self.cooling, last_epoch = self.last_epoch }
  end
  function self:load_state_dict(state)
    if type(state) ~= "table" or type(state.last_epoch) ~= "number" then
      fail("load_state_dict: expected what a schedule's state_dict gave")
    end
    for _, key in ipairs { "best", "bad", "cooling", "last_epoch" } do self[key] = state[key] end
  end
  return self
end

return lr_scheduler
