-- SPDX-License-Identifier: MIT
-- Module: what all modules can do, built-in layers and Lua classes alike.
--
-- A module is a userdata over the core's module tree. Reading and assigning fields is C
-- (csrc/lua/module.c): assigning a Parameter or a module registers it. The methods here build on a
-- few functions of the core.
local core = require "cnn.core"
local options = require "cnn.options"

local Module = { __name = "Module" }

-- ---------------------------------------------------------------------------------------------
-- Traversal

-- Every module of the tree once, parents first, with its path.
local function walk(module, path, seen, visit)
  local fields = core.module_fields(module)
  if seen[fields] then return end
  seen[fields] = true
  visit(path, module)
  local names, children = core.module_children(module)
  for i, child in ipairs(children) do
    walk(child, path == "" and names[i] or path .. "." .. names[i], seen, visit)
  end
end

local function list_iterator(names, values)
  local i = 0
  return function()
    i = i + 1
    if names[i] ~= nil then return names[i], values[i] end
  end
end

-- The parameters of the module and of all within, each once, in order of registration.
function Module:parameters()
  local _, tensors = core.module_tensors(self, "parameter")
  return tensors
end

-- for name, parameter in m:named_parameters() do
function Module:named_parameters()
  local names, tensors = core.module_tensors(self, "parameter")
  return list_iterator(names, tensors)
end

function Module:buffers()
  local _, tensors = core.module_tensors(self, "buffer")
  return tensors
end

function Module:named_buffers()
  local names, tensors = core.module_tensors(self, "buffer")
  return list_iterator(names, tensors)
end

function Module:children()
  local _, children = core.module_children(self)
  return children
end

function Module:named_children()
  return list_iterator(core.module_children(self))
end

-- for i, child in m:iter() do
function Module:iter()
  local _, children = core.module_children(self)
  local i = 0
  return function()
    i = i + 1
    if children[i] ~= nil then return i, children[i] end
  end
end

-- The module itself and all within.
function Module:modules()
  local list = {}
  walk(self, "", {}, function(_, m) list[#list + 1] = m end)
  return list
end

function Module:named_modules()
  local names, list = {}, {}
  walk(self, "", {}, function(path, m) names[#names + 1], list[#list + 1] = path, m end)
  return list_iterator(names, list)
end

function Module:num_parameters(only_trainable)
  local n = 0
  for _, p in ipairs(self:parameters()) do
    if not only_trainable or p.requires_grad then n = n + p:numel() end
  end
  return n
end

function Module:apply(fn)
  options.expect_callable("apply", "argument 1", fn)
  for _, child in ipairs(self:children()) do child:apply(fn) end
  fn(self)
  return self
end

-- A module by its path, "encoder.0.weight" without the last part.
function Module:get_submodule(path)
  if type(path) ~= "string" then
    core.fail(("get_submodule: expected a path such as \"encoder.0\", got %s"):format(core.describe(path)))
  end
  local m = self
  for name in path:gmatch("[^.]+") do
    local names, children = core.module_children(m)
    local found
    for i, n in ipairs(names) do if n == name then found = children[i] end end
    if not found then error(("get_submodule: there is no module %q in %q"):format(name, path), 2) end
    m = found
  end
  return m
end

-- ---------------------------------------------------------------------------------------------
-- Registration

local function check_name(method, name)
  if type(name) ~= "string" then
    core.fail(("%s: argument 1 (name): expected a string, got %s"):format(method, core.describe(name)))
  end
end

function Module:register_parameter(name, parameter)
  check_name("register_parameter", name)
  if parameter ~= nil and not (core.is_tensor(parameter) and parameter.is_parameter) then
    error(("register_parameter: %q must be an nn.Parameter or nil"):format(tostring(name)), 2)
  end
  core.module_register(self, name, parameter, "parameter")
  return self
end

-- A tensor that moves and is saved with the module but is not trained; persistent = false leaves it
-- out of the state dict.
function Module:register_buffer(name, tensor, ...)
  local persistent = options.read("register_buffer", { "persistent" }, ...).persistent ~= false
  check_name("register_buffer", name)
  core.module_register(self, name, tensor, "buffer", persistent)
  return self
end

function Module:register_module(name, module)
  if module ~= nil and not core.is_module(module) then
    error(("register_module: %q must be a module or nil"):format(tostring(name)), 2)
  end
  self[name] = module
  return self
end

Module.add_module = Module.register_module

-- ---------------------------------------------------------------------------------------------
-- Modes and moves

function Module:train(mode)
  core.module_train(self, mode == nil or mode)
  return self
end

function Module:eval()
  core.module_train(self, false)
  return self
end

function Module:requires_grad_(on)
  for _, p in ipairs(self:parameters()) do p:requires_grad_(on == nil or on) end
  return self
end

function Module:zero_grad(set_to_none)
  for _, p in ipairs(self:parameters()) do
    if set_to_none == false and p.grad then p.grad:zero_() else p.grad = nil end
  end
  return self
end

local dtypes = { float32 = true, float64 = true, float16 = true, bfloat16 = true }
local integer_dtypes = { int64 = true, int32 = true, int16 = true, int8 = true, uint8 = true, bool = true }

-- m:to("cuda"), m:to("float16"), m:to{device =, dtype =, memory_format =}, m:to(tensor): moves every
-- parameter, buffer and gradient in place.
function Module:to(what, more)
  local dtype, device, format
  local function take(v)
    if core.is_tensor(v) then dtype, device = v.dtype, v.device
    elseif type(v) == "table" then
      for key in pairs(v) do
        if key ~= "dtype" and key ~= "device" and key ~= "memory_format" and key ~= "non_blocking" then
          error(("to: unknown option %q (it takes dtype, device, memory_format)"):format(tostring(key)), 3)
        end
      end
      dtype, device, format = v.dtype or dtype, v.device or device, v.memory_format or format
    elseif dtypes[v] or integer_dtypes[v] then dtype = v
    else device = v end
  end
  if what ~= nil then take(what) end
  if more ~= nil then take(more) end
  core.module_to(self, dtype, device, format)
  return self
end

function Module:cuda(index) return self:to(index and "cuda:" .. index or "cuda") end
function Module:cpu() return self:to("cpu") end
function Module:float() return self:to("float32") end
function Module:double() return self:to("float64") end
function Module:half() return self:to("float16") end
function Module:bfloat16() return self:to("bfloat16") end

-- ---------------------------------------------------------------------------------------------
-- State dicts

-- {["0.weight"] = tensor, ...}: copies, so that later training does not change them; with
-- {copy = false} the tensors alias the module's.
function Module:state_dict(...)
  local copy = options.read("state_dict", { "copy" }, ...).copy ~= false
  local state = {}
  local function take(kind)
    local names, tensors, persistent = core.module_tensors(self, kind, true)
    for i, name in ipairs(names) do
      if persistent[i] then
        local t = tensors[i]:detach()
        state[name] = copy and t:clone() or t
      end
    end
  end
  take("parameter")
  take("buffer")
  return state
end

-- Names and tensors that loading fills, in order.
local function targets(module)
  local order, by_name = {}, {}
  for _, kind in ipairs { "parameter", "buffer" } do
    local names, tensors, persistent = core.module_tensors(module, kind, true)
    for i, name in ipairs(names) do
      if persistent[i] then
        order[#order + 1] = name
        by_name[name] = tensors[i]
      end
    end
  end
  return order, by_name
end

local function first_few(list, limit)
  local shown = {}
  for i = 1, math.min(#list, limit) do shown[i] = list[i] end
  if #list > limit then shown[#shown + 1] = ("... and %d more"):format(#list - limit) end
  return table.concat(shown, "\n  ")
end

-- A prefix that, removed from or added to every key, would make them fit: "module." and the like.
local function prefix_hint(missing, unexpected)
  if #missing == 0 or #unexpected == 0 then return "" end
  local want, have = missing[1], unexpected[1]
  for _, key in ipairs(unexpected) do
    if #key > #want and key:sub(-#want) == want then
      return ("\nthe given keys begin with %q: remove it"):format(key:sub(1, #key - #want))
    end
  end
  for _, key in ipairs(missing) do
    if #key > #have and key:sub(-#have) == have then
      return ("\nthe given keys lack the prefix %q"):format(key:sub(1, #key - #have))
    end
  end
  return ""
end

-- The option strict. In model:load_state_dict(cnn.load(path)) the file's metadata, a table of texts, comes
-- where options stand: it is none.
local function is_strict(given, ...)
  if type(given) == "table" then
    local texts = true
    for _, value in pairs(given) do texts = texts and type(value) == "string" end
    if texts then given = nil end
  end
  return options.read("load_state_dict", { "strict" }, given, ...).strict ~= false
end

-- Copies values by name into parameters and buffers, all or nothing. Returns {missing_keys =,
-- unexpected_keys =}; with strict (the default) either is an error.
function Module:load_state_dict(state, ...)
  if type(state) ~= "table" then
    core.fail(("load_state_dict: expected a table of tensors, got %s"):format(core.describe(state)))
  end
  local strict = is_strict(...)
  local order, by_name = targets(self)
  local missing, unexpected, wrong = {}, {}, {}
  for _, name in ipairs(order) do
    local value = state[name]
    if value == nil then missing[#missing + 1] = name
    elseif not core.is_tensor(value) then
      wrong[#wrong + 1] = ("%s: no tensor but %s"):format(name, core.describe(value))
    elseif core.describe(value) == "a freed tensor" then
      wrong[#wrong + 1] = name .. ": the tensor was freed"
    elseif value.shape ~= by_name[name].shape then
      wrong[#wrong + 1] = ("%s: the module has shape %s, the given tensor %s"):format(
        name, tostring(by_name[name].shape), tostring(value.shape))
    end
  end
  for name in pairs(state) do
    if not by_name[name] then unexpected[#unexpected + 1] = tostring(name) end
  end
  table.sort(unexpected)
  if #wrong > 0 or (strict and (#missing > 0 or #unexpected > 0)) then
    local parts = {}
    if #wrong > 0 then parts[#parts + 1] = "wrong:\n  " .. first_few(wrong, 5) end
    if #missing > 0 then parts[#parts + 1] = "missing:\n  " .. first_few(missing, 5) end
    if #unexpected > 0 then parts[#parts + 1] = "unexpected:\n  " .. first_few(unexpected, 5) end
    error("load_state_dict: nothing was loaded\n" .. table.concat(parts, "\n") ..
      prefix_hint(missing, unexpected), 2)
  end
  -- Everything that can fail (conversion) before the first write.
  local ready = {}
  for _, name in ipairs(order) do
    local value, target = state[name], by_name[name]
    if value ~= nil then
      ready[#ready + 1] = { target, core._to(value:detach(), target.dtype, target.device) }
    end
  end
  core.no_grad(function()
    for _, pair in ipairs(ready) do pair[1]:copy_(pair[2]) end
  end)
  return { missing_keys = missing, unexpected_keys = unexpected }
end

-- ---------------------------------------------------------------------------------------------
-- Calls and hooks

local unpack = table.unpack or unpack -- luacheck: ignore

local function pack(...) return { n = select("#", ...), ... } end

local Handle = {}
Handle.__index = Handle

-- Removes the hook; again does nothing.
function Handle:remove()
  if not self.list then return end
  for i, entry in ipairs(self.list) do
    if entry == self then
      table.remove(self.list, i)
      break
    end
  end
  if self.module and #self.list == 0 then self.module.refresh(self.module.owner) end
  self.list = nil
end

local function refresh(module)
  local fields = core.module_fields(module)
  local hooks = fields._hooks
  core.module_set_hooked(module, hooks ~= nil and (#hooks.before > 0 or #hooks.after > 0))
end

local function add_hook(module, list_name, fn, what)
  if type(fn) ~= "function" and not (getmetatable(fn) or {}).__call then
    error(what .. ": expected a function", 3)
  end
  local fields = core.module_fields(module)
  fields._hooks = fields._hooks or { before = {}, after = {} }
  local list = fields._hooks[list_name]
  local handle = setmetatable({ fn = fn, list = list, module = { owner = module, refresh = refresh } }, Handle)
  list[#list + 1] = handle
  refresh(module)
  return handle
end

-- fn(module, inputs, output) after forward; what it returns replaces the output. `inputs` is a list.
function Module:register_forward_hook(fn)
  return add_hook(self, "after", fn, "register_forward_hook")
end

-- fn(module, inputs) before forward; what it returns (a list, or one value) replaces the inputs.
function Module:register_forward_pre_hook(fn)
  return add_hook(self, "before", fn, "register_forward_pre_hook")
end

local function run_hooked(module, hooks, forward, ...)
  local inputs = pack(...)
  for _, h in ipairs(hooks.before) do
    local replaced = h.fn(module, inputs)
    if type(replaced) == "table" and not core.is_tensor(replaced) then
      inputs = replaced
      inputs.n = inputs.n or #inputs
    elseif replaced ~= nil then
      inputs = pack(replaced)
    end
  end
  local outputs = pack(forward(module, unpack(inputs, 1, inputs.n)))
  for _, h in ipairs(hooks.after) do
    local replaced = h.fn(module, inputs, unpack(outputs, 1, outputs.n))
    if replaced ~= nil then outputs = pack(replaced) end
  end
  return unpack(outputs, 1, outputs.n)
end

-- What Lua calls for an instance of a Lua class. No C frame stands between the caller and forward.
local function call_class(self, ...)
  local hooks = core.module_fields(self)._hooks
  if hooks then return run_hooked(self, hooks, self.forward, ...) end
  return self:forward(...)
end

-- A built-in module that the core can't run alone, since Lua has a say in it.
local function forward_builtin(self, x, ...)
  if core.module_layer(self) ~= "Sequential" then return core.module_compute(self, x, ...) end
  local _, children = core.module_children(self)
  for _, child in ipairs(children) do x = child(x) end
  return x
end

local function call_builtin(self, ...)
  local y = core.module_call(self, ...)
  if y then return y end
  local hooks = core.module_fields(self)._hooks
  if hooks then return run_hooked(self, hooks, forward_builtin, ...) end
  return forward_builtin(self, ...)
end

function Module:forward(...)
  if core.module_layer(self) then return forward_builtin(self, ...) end
  error(("%s has no forward: define function %s:forward(x)"):format(self.__name, self.__name), 2)
end

-- ---------------------------------------------------------------------------------------------
-- Printing

local function format_value(v)
  if type(v) == "table" then
    local parts = {}
    for i, x in ipairs(v) do parts[i] = tostring(x) end
    return "{" .. table.concat(parts, ", ") .. "}"
  elseif type(v) == "string" then return ("%q"):format(v)
  elseif type(v) == "number" and v == math.floor(v) and math.abs(v) < 2 ^ 53 then
    return ("%d"):format(v)
  end
  return tostring(v)
end

-- What the constructor was given, as "in_features=4, out_features=8".
function Module:extra_repr()
  local names, values = core.module_arguments(self)
  local parts = {}
  for i, name in ipairs(names) do
    if name ~= "device" and name ~= "dtype" then
      parts[#parts + 1] = name .. "=" .. format_value(values[i])
    end
  end
  return table.concat(parts, ", ")
end

local function class_name(module)
  return core.module_layer(module) or module.__name or "Module"
end

local function count_text(n)
  local text = ("%d"):format(n)
  local grouped
  repeat
    grouped = text
    text = text:gsub("^(%-?%d+)(%d%d%d)", "%1,%2")
  until text == grouped
  return text
end

local function tree_lines(module, name, indent, lines)
  local n = module:num_parameters()
  local count = n > 0 and ("  [%s]"):format(count_text(n)) or ""
  local names, children = core.module_children(module)
  local head = indent .. (name and "(" .. name .. "): " or "") .. class_name(module) .. "("
  if #children == 0 then
    lines[#lines + 1] = head .. module:extra_repr() .. ")" .. count
    return
  end
  lines[#lines + 1] = head .. count
  for i, child in ipairs(children) do tree_lines(child, names[i], indent .. "  ", lines) end
  lines[#lines + 1] = indent .. ")"
end

-- The tree, with parameter counts in brackets.
local function to_string(module)
  local lines = {}
  tree_lines(module, nil, "", lines)
  return table.concat(lines, "\n")
end

-- ---------------------------------------------------------------------------------------------
-- Classes

local function make_class(name, parent)
  local class = { __name = name }
  local instances = core.module_class(class)
  instances.__call = call_class
  instances.__tostring = to_string
  instances.__name = name
  class.__instances = instances
  return setmetatable(class, {
    __index = parent,
    __call = function(cls, ...)
      local m = core.module_foreign(cls.__instances)
      if cls.init then cls.init(m, ...) end
      return m
    end,
    __tostring = function() return "nn.Module class " .. name end,
  })
end

-- local Block = nn.Module:extend("Block"); then Block:init(...) and Block:forward(x), and Block(...)
-- makes one.
function Module:extend(name)
  if type(name) ~= "string" then error("extend: expected the class's name", 2) end
  return make_class(name, self)
end

setmetatable(Module, {
  __call = function() error("nn.Module: extend it: local Block = nn.Module:extend(\"Block\")", 2) end,
  __tostring = function() return "nn.Module" end,
})

setmetatable(core.module_methods, { __index = Module })
core.module_metatable.__call = call_builtin
core.module_metatable.__tostring = to_string
core.module_metatable.__name = "nn.Module"

return { Module = Module, class_name = class_name, count_text = count_text }
