-- SPDX-License-Identifier: MIT
-- What `require "cnn"` gives: every op and the core's other functions; the rest is loaded when it is
-- first asked for, so that requiring costs next to nothing.
local core = require "cnn.core"

-- Messages name the script's line: they skip the files in this one's directory.
local source = debug.getinfo(1, "S").source
core.set_library(source:sub(1, 1) == "@" and source:match("^@(.*[/\\])") or "")

local tensor = require "cnn.tensor"

local cnn = { version = "0.1.0", core = core, tensor = tensor.new }

-- What the core gives to the library's own files only.
local PRIVATE = {
  attach = true, describe = true, fail = true, fault_clear = true, fault_set = true, first_pass = true,
  functions = true, internal = true, isatty = true, methods = true, nearest = true,
  node_info = true, node_metatable = true, node_next = true, remove_hook = true, replay = true,
  scope_enter = true, scope_leave = true, set_interrupt = true, set_library = true,
  shape_metatable = true, tensor_metatable = true, tie = true, wants_record = true,
}
for name, value in pairs(core) do
  if not PRIVATE[name] and name:sub(1, 1) ~= "_" then cnn[name] = value end
end
for _, dtype in ipairs(tensor.dtypes) do cnn[dtype] = dtype end

-- Submodules: cnn.nn is require "cnn.nn", on first use.
local MODULES = {
  F = "cnn.functional", autograd = "cnn.autograd", cuda = "cnn.cuda", data = "cnn.data", io = "cnn.io",
  nn = "cnn.nn", optim = "cnn.optim", viz = "cnn.viz",
}
-- Functions by the file that has them.
local FUNCTIONS = {
  ["cnn.autograd"] = { "grad", "Function" },
  ["cnn.checkpoint"] = { "checkpoint", "checkpoint_sequential" },
  ["cnn.gradcheck"] = { "gradcheck" },
  ["cnn.format"] = { "set_printoptions", "get_printoptions" },
  ["cnn.help"] = { "help", "ops" },
  ["cnn.io"] = { "save", "load" },
  ["cnn.memory"] = {
    "scope", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_summary",
    "set_memory_fraction", "synchronize",
  },
}
local home = {}
for file, names in pairs(FUNCTIONS) do
  for _, name in ipairs(names) do
    home[name] = file
    cnn[name] = nil
  end
end

-- A part that is not installed is nil, as any unknown name.
local function part(name)
  local found, value = pcall(require, name)
  if found then return value end
  if not tostring(value):find("module '" .. name .. "' not found", 1, true) then error(value, 0) end
end

return setmetatable(cnn, {
  __index = function(_, name)
    local value
    if MODULES[name] then
      value = part(MODULES[name])
    elseif home[name] then
      local file = part(home[name])
      value = file and file[name]
    end
    if value ~= nil then rawset(cnn, name, value) end
    return value
  end,
})
