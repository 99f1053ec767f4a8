-- SPDX-License-Identifier: MIT
-- cnn.nn: modules. Built-in layers come from the core (csrc/nn/nn.def); containers get their Lua forms
-- here.
local core = require "cnn.core"
local base = require "cnn.nn.module"

local nn = { Module = base.Module }

nn.Parameter = core.parameter

for name, new in pairs(core.layers) do nn[name] = new end

-- ---------------------------------------------------------------------------------------------
-- Containers

local new_sequential, new_list, new_dict =
  core.layers.Sequential, core.layers.ModuleList, core.layers.ModuleDict

local function check_module(what, i, m)
  if core.is_module(m) then return m end
  core.fail(("%s: entry %s is no module but %s"):format(what, tostring(i), core.describe(m)))
end

-- Sequential(a, b, c), or Sequential{a, b}, or Sequential{ {"fc1", a}, {"act", b} }.
function nn.Sequential(...)
  local m = new_sequential()
  local first = ...
  local list = { ... }
  if select("#", ...) == 1 and type(first) == "table" then list = first end
  for i, entry in ipairs(list) do
    if type(entry) == "table" then
      if type(entry[1]) ~= "string" then
        error(("Sequential: entry %d must be a module or {name, module}"):format(i), 2)
      end
      m[entry[1]] = check_module("Sequential", entry[1], entry[2])
    else
      core.module_append(m, check_module("Sequential", i, entry))
    end
  end
  if #list < select("#", ...) and list ~= first then
    error("Sequential: an argument is nil", 2)
  end
  return m
end

local function check_entries(what, entries, rest, example)
  if rest == 0 and (entries == nil or type(entries) == "table") then return end
  core.fail(("%s: expected one table, nn.%s%s, got %s"):format(what, what, example,
    rest > 0 and ("%d arguments"):format(rest + 1) or core.describe(entries)))
end

-- ModuleList{a, b} or ModuleList(): children by position.
function nn.ModuleList(list, ...)
  local m = new_list()
  check_entries("ModuleList", list, select("#", ...), "{a, b}")
  for i, entry in ipairs(list or {}) do
    core.module_append(m, check_module("ModuleList", i, entry))
  end
  return m
end

-- ModuleDict{enc = a, dec = b} (registered in the order of the names), or a list of {name, module}
-- pairs in an order of its own.
function nn.ModuleDict(entries, ...)
  local m = new_dict()
  check_entries("ModuleDict", entries, select("#", ...), "{name = a, ...}")
  local names = {}
  for key, value in pairs(entries or {}) do
    if type(key) == "number" then
      if type(value) ~= "table" then error("ModuleDict: a list holds {name, module} pairs", 2) end
    else
      names[#names + 1] = key
    end
  end
  for _, pair in ipairs(entries or {}) do m[pair[1]] = check_module("ModuleDict", pair[1], pair[2]) end
  table.sort(names)
  for _, name in ipairs(names) do m[name] = check_module("ModuleDict", name, entries[name]) end
  return m
end

-- Appends to a Sequential or a ModuleList.
function base.Module:append(module)
  local layer = core.module_layer(self)
  if layer ~= "Sequential" and layer ~= "ModuleList" then
    error("append: only Sequential and ModuleList have it", 2)
  end
  core.module_append(self, check_module("append", #self + 1, module))
  return self
end

function base.Module:extend_list(modules)
  if type(modules) ~= "table" then
    core.fail(("extend_list: expected a list of modules, got %s"):format(core.describe(modules)))
  end
  for _, m in ipairs(modules) do self:append(m) end
  return self
end

-- ---------------------------------------------------------------------------------------------
-- Parts loaded on first use

local parts = {
  init = "cnn.nn.initializers",
  utils = "cnn.nn.utils",
}

function base.Module:summary(options) return require("cnn.nn.summary")(self, options) end

return setmetatable(nn, {
  __index = function(t, key)
    if key == "functional" then return require("cnn").F end
    if parts[key] then
      local value = require(parts[key])
      rawset(t, key, value)
      return value
    end
    if type(key) == "string" and key:match("^%u") then
      local names = {}
      for name in pairs(t) do names[#names + 1] = name end
      table.sort(names)
      local near = core.nearest(key, names)
      error(("nn has no layer %q%s"):format(key, near and (": did you mean %q?"):format(near) or ""), 2)
    end
  end,
})
