-- SPDX-License-Identifier: MIT
-- cnn.optim.lr_scheduler: learning rates as functions of the number of steps taken.
--
-- Every schedule is a closed form: the rate after n steps depends on n alone, never on the rate before.
-- So saving and resuming gives, bit for bit, what an uninterrupted run gives. Formulas are PyTorch's
-- (torch.optim.lr_scheduler).
local core = require "cnn.core"

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
  self.last_epoch = state.last_epoch
  self.base_lrs = {}
  for g, lr in ipairs(state.base_lrs) do self.base_lrs[g] = lr end
  apply(self)
end

local lr_scheduler = {}

-- Defines a schedule: `options` names its options with defaults (`required` marks those without).
local required = {}
local function schedule(name, options, rate, init)
  local class = setmetatable({ rate = rate }, { __index = Scheduler })
  class.__index = class
  lr_scheduler[name] = function(optimizer, given)
    if type(optimizer) ~= "table" or not optimizer.param_groups then
      error(name .. ": the first argument must be an optimizer", 2)
    end
    local self = setmetatable({ optimizer = optimizer, last_epoch = 0, base_lrs = {} }, class)
    for key in pairs(given or {}) do
      if options[key] == nil then
        error(("%s: unknown option %q"):format(name, tostring(key)), 2)
      end
    end
    for key, default in pairs(options) do
      local value = given and given[key]
      if value == nil then value = default end
      if value == required then error(("%s: option %q is missing"):format(name, key), 2) end
      if value ~= false or default == false then self[key] = value end
    end
    for g, group in ipairs(optimizer.param_groups) do
      group.initial_lr = group.initial_lr or group.lr
      self.base_lrs[g] = group.initial_lr
    end
    if init then init(self) end
    apply(self)
    return self
  end
end

-- lr * gamma^floor(n / step_size)
schedule("StepLR", { step_size = required, gamma = 0.1 }, function(self, base, n)
  return base * self.gamma ^ math.floor(n / self.step_size)
end)

-- lr * gamma^(milestones passed)
schedule("MultiStepLR", { milestones = required, gamma = 0.1 }, function(self, base, n)
  local passed = 0
  for _, m in ipairs(self.milestones) do if n >= m then passed = passed + 1 end end
  return base * self.gamma ^ passed
end)

schedule("ExponentialLR", { gamma = required }, function(self, base, n) return base * self.gamma ^ n end)

-- lr * factor until total_iters steps are done.
schedule("ConstantLR", { factor = 1 / 3, total_iters = 5 }, function(self, base, n)
  return n < self.total_iters and base * self.factor or base
end)

-- The factor goes linearly from start_factor to end_factor in total_iters steps.
schedule("LinearLR", { start_factor = 1 / 3, end_factor = 1, total_iters = 5 }, function(self, base, n)
  local t = math.min(n, self.total_iters) / self.total_iters
  return base * (self.start_factor + (self.end_factor - self.start_factor) * t)
end)

schedule("PolynomialLR", { total_iters = 5, power = 1 }, function(self, base, n)
  return base * (1 - math.min(n, self.total_iters) / self.total_iters) ^ self.power
end)

-- eta_min + (lr - eta_min) (1 + cos(pi n / T_max)) / 2 (Loshchilov and Hutter, 2017)
schedule("CosineAnnealingLR", { T_max = required, eta_min = 0 }, function(self, base, n)
  return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * n / self.T_max)) / 2
end)

-- The same with restarts: periods of T_0, T_0 T_mult, ...
schedule("CosineAnnealingWarmRestarts", { T_0 = required, T_mult = 1, eta_min = 0 }, function(self, base, n)
  local period, at = self.T_0, n
  while at >= period do
    at = at - period
    period = period * self.T_mult
  end
  return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * at / period)) / 2
end)

-- Up from max_lr / div_factor to max_lr in pct_start of the steps, then down to the initial rate over
-- final_div_factor (Smith, 2018).
schedule("OneCycleLR", { max_lr = required, total_steps = required, pct_start = 0.3, anneal_strategy = "cos",
  div_factor = 25, final_div_factor = 1e4 }, function(self, _, n, g)
  local max_lr = type(self.max_lr) == "table" and self.max_lr[g] or self.max_lr
  local initial = max_lr / self.div_factor
  local lowest = initial / self.final_div_factor
  local up, last = self.pct_start * self.total_steps - 1, self.total_steps - 1
  if n > last then
    error(("OneCycleLR: step %d is past total_steps = %d"):format(n, self.total_steps), 0)
  end
  local from, to, t = initial, max_lr, n / up
  if n > up then from, to, t = max_lr, lowest, (n - up) / (last - up) end
  if self.anneal_strategy == "linear" then return from + (to - from) * t end
  return to + (from - to) / 2 * (1 + math.cos(math.pi * t))
end)

-- lr * lr_lambda(n); lr_lambda may be a list with one function per group.
schedule("LambdaLR", { lr_lambda = required }, function(self, base, n, g)
  local f = type(self.lr_lambda) == "table" and self.lr_lambda[g] or self.lr_lambda
  return base * f(n)
end)

-- Lowers the rate when a metric stops improving: step(metric). It has a memory, unlike the others, and
-- saves it in its state dict.
function lr_scheduler.ReduceLROnPlateau(optimizer, options)
  options = options or {}
  local self = { optimizer = optimizer, mode = options.mode or "min", factor = options.factor or 0.1,
    patience = options.patience or 10, threshold = options.threshold or 1e-4,
    cooldown = options.cooldown or 0, min_lr = options.min_lr or 0, bad = 0, cooling = 0, last_epoch = 0 }
  if self.mode ~= "min" and self.mode ~= "max" then
    error("ReduceLROnPlateau: mode is \"min\" or \"max\"", 2)
  end
  local function better(value)
    if not self.best then return true end
    if self.mode == "min" then return value < self.best * (1 - self.threshold) end
    return value > self.best * (1 + self.threshold)
  end
  function self:step(metric)
    if core.is_tensor(metric) then metric = metric:item() end
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
    for _, key in ipairs { "best", "bad", "cooling", "last_epoch" } do self[key] = state[key] end
  end
  return self
end

return lr_scheduler
