-- SPDX-License-Identifier: MIT
-- cnn.optim: optimizers. The built-in ones step in the core (csrc/optim); Optimizer:extend makes one in
-- Lua with the same interface.
local core = require "cnn.core"
local expect_callable = require("cnn.options").expect_callable

local optim = {}

-- Settings that scripts see as one list: betas = {beta1, beta2}.
local function split_betas(name, settings)
  local betas = settings.betas
  if betas == nil then return settings end
  if type(betas) ~= "table" or type(betas[1]) ~= "number" or type(betas[2]) ~= "number" then
    core.fail(("%s: betas: expected a list of two numbers, got %s"):format(name, core.describe(betas)))
  end
  local copy = {}
  for k, v in pairs(settings) do copy[k] = v end
  copy.betas, copy.beta1, copy.beta2 = nil, betas[1], betas[2]
  return copy
end

local hints = { foreach = true, fused = true, capturable = true, differentiable = true }

local function check_names(kind, settings)
  local known = {}
  for _, s in ipairs(kind.settings) do known[s.name] = true end
  if known.beta1 then known.betas, known.beta1, known.beta2 = true, nil, nil end
  for key in pairs(settings) do
    if not known[key] and not hints[key] and key ~= "params" then
      local names = {}
      for name in pairs(known) do names[#names + 1] = name end
      table.sort(names)
      error(("%s: unknown option %q (it takes %s)"):format(kind.name, tostring(key),
        table.concat(names, ", ")), 4)
    end
  end
end

-- ---------------------------------------------------------------------------------------------
-- What both sorts of optimizer share

local Optimizer = { __name = "Optimizer" }
Optimizer.__index = Optimizer

local fail, describe = core.fail, core.describe

local function check_group(what, group)
  if type(group) == "table" and type(group.params) == "table" then return end
  fail(("%s: expected a group {params = model:parameters(), ...}, got %s"):format(what,
    type(group) == "table" and "a table without a list params" or describe(group)))
end

local function is_parameter_list(params)
  return type(params) == "table" and (params[1] == nil or core.is_tensor(params[1]))
end

-- params: a list of tensors, or of groups {params = {...}, lr = ...}.
local function to_groups(params, what)
  if core.is_module(params) then
    error(what .. ": expected a list of parameters: pass model:parameters()", 4)
  end
  if type(params) ~= "table" then
    fail(("%s: expected a list of parameters, got %s: pass model:parameters()"):format(what, describe(params)))
  end
  if is_parameter_list(params) then
    if params.params then return { params } end
    if #params == 0 then error(what .. ": the list of parameters is empty", 4) end
    return { { params = params } }
  end
  for i, group in ipairs(params) do
    if type(group) ~= "table" then
      fail(("%s: entry %d of the list is neither a parameter nor a group {params = ...}, but %s"):format(
        what, i, describe(group)))
    end
  end
  return params
end

function Optimizer:zero_grad(set_to_none)
  if type(set_to_none) == "table" then set_to_none = set_to_none.set_to_none end
  for _, group in ipairs(self.param_groups) do
    for _, p in ipairs(group.params) do
      if set_to_none == false and p.grad then p.grad:zero_() else p.grad = nil end
    end
  end
end

local function all_parameters(self)
  local list = {}
  for _, group in ipairs(self.param_groups) do
    for _, p in ipairs(group.params) do list[#list + 1] = p end
  end
  return list
end

-- {state = {[i] = {step =, name = tensor ...}}, param_groups = {{lr =, ..., params = {1, 2}}}}: copies,
-- parameters by number.
function Optimizer:state_dict()
  local dict = { state = {}, param_groups = {} }
  local n = 0
  for g, group in ipairs(self.param_groups) do
    local saved = { params = {} }
    for name, value in pairs(self:settings_of(g)) do saved[name] = value end
    for i in ipairs(group.params) do saved.params[i] = n + i end
    n = n + #group.params
    dict.param_groups[g] = saved
  end
  for i, p in ipairs(all_parameters(self)) do
    local state = self.state[p]
    if state then
      local saved = {}
      for name, value in pairs(state) do
        saved[name] = core.is_tensor(value) and value:detach():clone() or value
      end
      dict.state[i] = saved
    end
  end
  return dict
end

function Optimizer:load_state_dict(dict)
  if type(dict) ~= "table" or type(dict.param_groups) ~= "table" or type(dict.state) ~= "table" then
    error("load_state_dict: expected what state_dict gave", 2)
  end
  if #dict.param_groups ~= #self.param_groups then
    error(("load_state_dict: %d parameter groups are given, the optimizer has %d"):format(
      #dict.param_groups, #self.param_groups), 2)
  end
  for g, saved in ipairs(dict.param_groups) do
    local have = #self.param_groups[g].params
    if #saved.params ~= have then
      error(("load_state_dict: group %d has %d parameters in the state, %d in the optimizer"):format(
        g, #saved.params, have), 2)
    end
  end
  local list = all_parameters(self)
  for i, state in pairs(dict.state) do
    local p = list[tonumber(i)]
    if not p then error(("load_state_dict: there is no parameter %s"):format(tostring(i)), 2) end
    for name, value in pairs(state) do
      if core.is_tensor(value) and value:dim() > 0 and value.shape ~= p.shape then
        error(("load_state_dict: %s of parameter %d has shape %s, the parameter %s"):format(
          name, tonumber(i), tostring(value.shape), tostring(p.shape)), 2)
      end
    end
  end
  -- Copies keep the state's own dtype and move to the parameter's device. All are made before the
  -- first is put in place.
  local ready = {}
  for i, state in pairs(dict.state) do
    local p, copy = list[tonumber(i)], {}
    for name, value in pairs(state) do
      copy[name] = core.is_tensor(value) and core._to(value:detach(), nil, p.device, nil, true) or value
    end
    ready[p] = copy
  end
  for g, saved in ipairs(dict.param_groups) do self:load_settings_of(g, saved) end
  self:reset_state()
  for p, state in pairs(ready) do self:load_state_of(p, state) end
end

local function number_text(v)
  return type(v) == "table" and ("{%s}"):format(table.concat(v, ", ")) or tostring(v)
end

function Optimizer:__tostring()
  local lines = { self.name .. " (" }
  for g in ipairs(self.param_groups) do
    lines[#lines + 1] = ("  group %d: %d parameters"):format(g, #self.param_groups[g].params)
    local names = {}
    for name in pairs(self:settings_of(g)) do names[#names + 1] = name end
    table.sort(names)
    for _, name in ipairs(names) do
      lines[#lines + 1] = ("    %s: %s"):format(name, number_text(self:settings_of(g)[name]))
    end
  end
  lines[#lines + 1] = ")"
  return table.concat(lines, "\n")
end

-- ---------------------------------------------------------------------------------------------
-- Built-in optimizers

-- A group as scripts see it: reading and assigning a setting goes to the core.
local function make_group(box, kind, g)
  local flags = {}
  for _, s in ipairs(kind.settings) do flags[s.name] = true end
  local extra = {} -- fields of schedulers and of users, such as initial_lr
  return setmetatable({}, {
    __index = function(_, key)
      if key == "params" then return core.optimizer_params(box, g) end
      if key == "betas" and flags.beta1 then
        return { core.optimizer_get(box, g, "beta1"), core.optimizer_get(box, g, "beta2") }
      end
      if flags[key] then return core.optimizer_get(box, g, key) end
      return extra[key]
    end,
    __newindex = function(_, key, value)
      if key == "params" then error("param_groups: use add_param_group to add parameters", 2) end
      if key == "betas" and flags.beta1 then
        split_betas(kind.name, { betas = value })
        core.optimizer_set(box, g, { beta1 = value[1], beta2 = value[2] })
      elseif flags[key] then core.optimizer_set(box, g, { [key] = value })
      else extra[key] = value end
    end,
    extra = extra,
  })
end

local Builtin = setmetatable({}, { __index = Optimizer })

-- Those that step inside of backward, for whoever must stop them for a while.
local attached = setmetatable({}, { __mode = "k" })
core.attached_optimizers = attached

-- One optimization step. A function argument (closure) is called first and its results returned.
function Builtin:step(closure)
  if closure ~= nil then
    local loss = core.enable_grad(closure)
    core.optimizer_step(self.box)
    return loss
  end
  core.optimizer_step(self.box)
end

function Builtin:zero_grad(set_to_none)
  if type(set_to_none) == "table" then set_to_none = set_to_none.set_to_none end
  core.optimizer_zero_grad(self.box, set_to_none)
end

-- Frees all state; the next step starts anew.
function Builtin:reset_state() core.optimizer_reset(self.box) end

-- Steps inside of backward from now on: each gradient is used and freed as soon as it is whole, so that
-- AdamW takes 12 bytes per float32 parameter in place of 16, to the bit what step() gives. `model` (or a
-- list of parameters) says which; without it all the optimizer's. step() then has nothing left to do.
-- Gradients can't be clipped by their norm, and a backward that fails half way has stepped what it came by.
function Builtin:attach(model)
  if core.is_module(model) then model = model:parameters() end
  core.optimizer_attach(self.box, model)
  attached[self] = true
  return self
end

-- Undoes attach: backward leaves gradients in .grad again.
function Builtin:detach()
  core.optimizer_detach(self.box)
  attached[self] = nil
  return self
end

-- opt:accumulate(fn, ...): fn(...) with the steps inside of backward put off: gradients gather in .grad, and
-- the next backward outside of it (or step()) uses them up.
function Builtin:accumulate(fn, ...)
  expect_callable("accumulate", "argument 1 (fn)", fn)
  return core.optimizer_accumulate(self.box, fn, ...)
end

function Builtin:add_param_group(group)
  local settings = {}
  if type(group) == "table" then check_names(self.kind, group) end
  check_group(self.name, group)
  for k, v in pairs(self.defaults) do settings[k] = v end
  for k, v in pairs(split_betas(self.name, group)) do settings[k] = v end
  core.optimizer_add_group(self.box, group.params, settings)
  local g = core.optimizer_group_count(self.box)
  self.param_groups[g] = make_group(self.box, self.kind, g)
end

function Builtin:settings_of(g)
  local group, settings = self.param_groups[g], {}
  for _, s in ipairs(self.kind.settings) do
    if s.name == "beta1" then settings.betas = group.betas
    elseif s.name ~= "beta2" then settings[s.name] = group[s.name] end
  end
  for name, value in pairs(getmetatable(group).extra) do settings[name] = value end
  return settings
end

-- Settings are checked together: some are only right beside others.
function Builtin:load_settings_of(g, saved)
  core.optimizer_set(self.box, g, split_betas(self.name, saved))
  local extra = getmetatable(self.param_groups[g]).extra
  for name, value in pairs(saved) do
    if name ~= "params" and self.param_groups[g][name] == nil then extra[name] = value end
  end
  if saved.initial_lr then extra.initial_lr = saved.initial_lr end
end

function Builtin:load_state_of(p, state)
  local step = state.step or 0
  core.optimizer_load_state(self.box, p, core.is_tensor(step) and step:item() or step, state)
end

-- opt.state[p]: {step =, exp_avg = ...}, made anew at each look; nil before the first step.
local function make_state(box)
  return setmetatable({}, {
    __index = function(_, p)
      if not core.is_tensor(p) then error("state: expected a parameter, e.g. opt.state[model.weight]", 2) end
      local steps, tensors = core.optimizer_state(box, p)
      if not steps then return nil end
      tensors.step = steps
      return tensors
    end,
    __newindex = function() error("state: use load_state_dict or reset_state", 2) end,
  })
end

local builtin_metatable = {
  __index = function(self, key) return rawget(self, key) or Builtin[key] end,
  __tostring = Optimizer.__tostring,
}

local function constructor(kind)
  return function(params, options)
    options = options or {}
    if type(options) ~= "table" then
      error(("%s: options go in a table: {lr = 1e-3}"):format(kind.name), 2)
    end
    local groups = to_groups(params, kind.name)
    check_names(kind, options)
    local box = core.optimizer_new(kind.name)
    local self = setmetatable({ name = kind.name, kind = kind, box = box, param_groups = {},
      defaults = split_betas(kind.name, options), state = make_state(box) }, builtin_metatable)
    for _, group in ipairs(groups) do self:add_param_group(group) end
    return self
  end
end

for _, kind in ipairs(core.optimizer_kinds()) do optim[kind.name] = constructor(kind) end

-- ---------------------------------------------------------------------------------------------
-- Optimizers written in Lua

-- local Lion = optim.Optimizer:extend("Lion")
-- Lion.defaults = {lr = 1e-4, beta = 0.9}
-- function Lion:update(p, grad, state, group) ... end      -- under no_grad, for each p with a gradient
-- Lion(model:parameters(), {lr = 1e-3})
local function construct(class, params, options)
  local self = setmetatable({ name = class.__name, param_groups = {}, state = {} }, class)
  self.options = options or {}
  for key in pairs(self.options) do
    if class.defaults and class.defaults[key] == nil and not hints[key] then
      error(("%s: unknown option %q"):format(class.__name, tostring(key)), 3)
    end
  end
  for _, group in ipairs(to_groups(params, class.__name)) do self:add_param_group(group) end
  if self.init then self:init() end
  return self
end

function Optimizer:extend(name)
  local class = setmetatable({ __name = name }, { __index = self, __call = construct })
  class.__index = class
  class.__tostring = Optimizer.__tostring
  return class
end

function Optimizer:add_param_group(group)
  check_group(self.name, group)
  local copy = { params = {} }
  local seen = {}
  for _, existing in ipairs(self.param_groups) do
    for _, p in ipairs(existing.params) do seen[p] = existing end
  end
  for _, source in ipairs { self.defaults or {}, self.options or {}, group } do
    for k, v in pairs(source) do if k ~= "params" then copy[k] = v end end
  end
  for _, p in ipairs(group.params) do
    if not core.is_tensor(p) or not p.requires_grad or not p.is_leaf then
      error(self.name .. ": a parameter must be a leaf tensor that requires a gradient", 3)
    end
    if seen[p] and seen[p] ~= copy then error(self.name .. ": a parameter is in another group", 3) end
    if not seen[p] then copy.params[#copy.params + 1] = p end
    seen[p] = copy
  end
  self.param_groups[#self.param_groups + 1] = copy
end

function Optimizer:settings_of(g)
  local settings = {}
  for k, v in pairs(self.param_groups[g]) do if k ~= "params" then settings[k] = v end end
  return settings
end

function Optimizer:attach()
  core.fail(("attach: %s is written in Lua: only the built-in optimizers can step inside of backward"):format(
    self.name))
end

function Optimizer:reset_state()
  for p in pairs(self.state) do self.state[p] = nil end
end

function Optimizer:load_settings_of(g, saved)
  for name, value in pairs(saved) do
    if name ~= "params" then self.param_groups[g][name] = value end
  end
end

function Optimizer:load_state_of(p, state) self.state[p] = state end

function Optimizer:step(closure)
  local loss
  if closure then loss = core.enable_grad(closure) end
  if not self.update then error(self.name .. ": define update(p, grad, state, group)", 2) end
  core.no_grad(function()
    for _, group in ipairs(self.param_groups) do
      for _, p in ipairs(group.params) do
        if p.grad then
          local state = self.state[p] or {}
          self.state[p] = state
          self:update(p, p.grad, state, group)
        end
      end
    end
  end)
  return loss
end

optim.Optimizer = Optimizer

return setmetatable(optim, {
  __index = function(t, key)
    if key == "lr_scheduler" then
      local value = require "cnn.optim.lr_scheduler"
      rawset(t, key, value)
      return value
    end
    if type(key) == "string" and key:match("^%u") then
      error(("optim has no optimizer %q"):format(key), 2)
    end
  end,
})
