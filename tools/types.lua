-- SPDX-License-Identifier: MIT
-- The annotations by which editors (the Lua language server) know the library: names, types and texts.
-- Ops, layers and functions come from the registry; what has no entry there is written down here.
-- tools/docs.lua writes them to lua/cnn/types.lua.
local core = require "cnn.core"
local cnn = require "cnn"
local help = require "cnn.help"

local HEAD = [[
---@meta cnn
-- SPDX-License-Identifier: MIT
-- Written by tools/docs.lua from the registry (make docs). Editors read it; nothing requires it.

---@alias cnn.dtype "float32"|"float64"|"float16"|"bfloat16"|"int64"|"int32"|"int16"|"int8"|"uint8"|"bool"
---@alias cnn.device string "cpu", "meta"
---@alias cnn.shape integer[] prints as (2, 3), joins with ..

---@class cnn.Tensor
---@field shape cnn.shape
---@field ndim integer
---@field dtype cnn.dtype
---@field device cnn.device
---@field requires_grad boolean may be set
---@field grad cnn.Tensor? may be set to nil
---@field grad_fn cnn.Node?
---@field is_leaf boolean
---@field nbytes integer
---@field data cnn.Tensor the same bytes, without history
---@field T cnn.Tensor its dims in reverse
---@field [integer] cnn.Tensor
---@field [table] cnn.Tensor
---@field [cnn.Tensor] cnn.Tensor
---@operator add(cnn.Tensor|number): cnn.Tensor
---@operator sub(cnn.Tensor|number): cnn.Tensor
---@operator mul(cnn.Tensor|number): cnn.Tensor
---@operator div(cnn.Tensor|number): cnn.Tensor
---@operator mod(cnn.Tensor|number): cnn.Tensor
---@operator pow(cnn.Tensor|number): cnn.Tensor
---@operator unm: cnn.Tensor
---@operator len: integer
local Tensor = {}

---@class cnn.Node
---@field name string

---@class cnn.Module
---@field training boolean
---@field [any] any
---@overload fun(...: any): ...
local Module = {}

---@class cnn.Optimizer
---@field param_groups table[]
---@field state table
local Optimizer = {}

---@class cnn.nn
---@field Module cnn.Module
---@field functional cnn
local nn = {}

---@class cnn.optim
---@field Optimizer cnn.Optimizer
---@field lr_scheduler table
local optim = {}

---@class cnn.cuda
local cuda = {}

---@class cnn.data
local data = {}

---@class cnn
---@field F cnn
---@field nn cnn.nn
---@field optim cnn.optim
---@field data cnn.data
---@field viz table
---@field cuda cnn.cuda
---@field version string
---@field newaxis any
local cnn = {}
]]

-- Types by what the registry calls them.
local TYPES = {
  ["a tensor"] = "cnn.Tensor", ["a tensor or a number"] = "cnn.Tensor|number",
  ["an integer tensor of positions"] = "cnn.Tensor", ["a bool tensor"] = "cnn.Tensor",
  ["a list of tensors"] = "cnn.Tensor[]", ["a list of index tensors"] = "cnn.Tensor[]", ["a number"] = "number",
  ["a number or a boolean"] = "number|boolean", ["an integer"] = "integer", ["a boolean"] = "boolean",
  ["a string"] = "string", ["a dtype name"] = "cnn.dtype", ["a device name"] = "cnn.device",
  ["an integer or a list of integers"] = "integer|integer[]", ["an integer or a list of two"] = "integer|integer[]",
  ["an integer, a list of integers, \"same\" or \"valid\""] = "integer|integer[]|\"same\"|\"valid\"",
  ["a dim (1 is the first, -1 the last)"] = "integer", ["a dim or a list of dims"] = "integer|integer[]",
  ["a dim or a tensor"] = "integer|cnn.Tensor", ["a number of dims or two lists of dims"] = "integer|integer[][]",
  ["a position (1 is the first, -1 the last)"] = "integer", ["a label (1 is the first)"] = "integer",
  ["a shape"] = "integer[]",
}

-- What methods that are no ops give; any where nothing is said here.
local RESULTS = {
  Tensor = {
    backward = "nil", data_ptr = "integer", dim = "integer", element_size = "integer", free = "nil", get = "number",
    has_shape = "boolean", is_contiguous = "boolean", is_floating_point = "boolean", item = "number|boolean",
    iter = "fun(): integer, cnn.Tensor", numel = "integer", register_hook = "table", set = "nil",
    shares_storage = "boolean", size = "any", storage_offset = "integer", stride = "any", totable = "any",
    unpack = "cnn.Tensor ...", version = "integer",
  },
  Module = {
    buffers = "cnn.Tensor[]", children = "cnn.Module[]", extra_repr = "string", forward = "any",
    iter = "fun(): integer, cnn.Module", load_state_dict = "any", modules = "cnn.Module[]",
    named_buffers = "fun(): string, cnn.Tensor", named_children = "fun(): string, cnn.Module",
    named_modules = "fun(): string, cnn.Module", named_parameters = "fun(): string, cnn.Tensor",
    num_parameters = "integer", parameters = "cnn.Tensor[]", register_forward_hook = "table",
    register_forward_pre_hook = "table", state_dict = "table<string, cnn.Tensor>", summary = "any",
    extend = "any", get_submodule = "cnn.Module",
  },
  Optimizer = { step = "any", state_dict = "table", extend = "any" },
}

local RESERVED = { ["end"] = "end_", ["repeat"] = "repeat_" }

local function is_option(param)
  return param.optional or param.default ~= nil
end

local function type_of(param)
  if not param.words then
    return TYPES[param.type] or error("tools/types.lua: what is " .. param.type .. " in Lua?", 0)
  end
  local words = {}
  for i, word in ipairs(param.words) do words[i] = ("%q"):format(word) end
  return table.concat(words, "|")
end

local function add(lines, format, ...)
  lines[#lines + 1] = select("#", ...) > 0 and format:format(...) or format
end

local function add_doc(lines, doc)
  add(lines, "")
  for paragraph in doc:gmatch("[^\n]+") do
    local line = "---"
    for word in paragraph:gmatch("%S+") do
      if #line + #word + 1 > 120 then
        add(lines, line)
        line = "---"
      end
      line = line == "---" and line .. word or line .. " " .. word
    end
    add(lines, line)
  end
end

-- A function by its arguments: once with all of them by position and, where there are options, once with
-- these in a table. A list's entries may also be arguments of their own.
local function add_function(lines, name, params, results, first)
  local names, needed, options, is_list = {}, {}, {}, false
  for i = first, #params do
    local p = params[i]
    local kind, label = type_of(p), RESERVED[p.name] or p.name
    names[#names + 1] = label
    if is_option(p) then
      options[#options + 1] = ("%s?: %s"):format(label == p.name and label or ("[%q]"):format(p.name), kind)
    elseif #options == 0 then
      needed[#needed + 1] = ("%s: %s"):format(label, kind)
    end
    is_list = is_list or p.variadic
    local default = p.default ~= nil and " default " .. help.value_text(p.default) or ""
    add(lines, "---@param %s%s %s%s", label, is_option(p) and "?" or "", kind, default)
  end
  add(lines, "---@return %s", results)
  if first > 1 then table.insert(needed, 1, "self: cnn.Tensor") end
  if is_list then add(lines, "---@overload fun(%s...: any): %s", first > 1 and "self: cnn.Tensor, " or "", results) end
  if #options > 0 then
    needed[#needed + 1] = ("options: {%s}"):format(table.concat(options, ", "))
    add(lines, "---@overload fun(%s): %s", table.concat(needed, ", "), results)
  end
  add(lines, "function %s(%s) end", name, table.concat(names, ", "))
end

local function sorted_keys(t)
  local keys = {}
  for key in pairs(t) do
    if type(key) == "string" and not key:find("^__") then keys[#keys + 1] = key end
  end
  table.sort(keys)
  return keys
end

local function add_ops(lines, known)
  for _, op in ipairs(help.ops()) do
    local results = "cnn.Tensor"
    if op.list then
      results = "cnn.Tensor[]"
    elseif op.results ~= "out" then
      results = op.results:gsub("%S+", "cnn.Tensor"):gsub(" ", ", ")
    end
    add_doc(lines, op.doc)
    add_function(lines, "cnn." .. op.name, op.params, results, 1)
    known[op.name] = true
    for _, name in ipairs { op.name, op.in_place and op.name .. "_" or nil } do
      if op.method then
        add_doc(lines, op.doc:match("^[^\n]*") .. (name ~= op.name and "\nIn place." or ""))
        add_function(lines, "Tensor:" .. name, op.params, results, 2)
      end
      known[name] = true
    end
  end
end

local function add_methods(lines, class, methods, known)
  for _, name in ipairs(sorted_keys(methods)) do
    if type(methods[name]) == "function" and not known[name] then
      local result = RESULTS[class][name] or "cnn." .. class
      if result ~= "nil" then add(lines, "\n---@return %s", result) else add(lines, "") end
      add(lines, "function %s:%s(...) end", class, name)
    end
  end
end

-- A function of help's list, whose arguments are a text: "(fn, ...)", "(path, {device, mmap})", "{minimum}".
local function add_listed(lines, name, arguments, doc)
  local names, i = {}, 0
  for word in arguments:gsub("%b{}", "options"):gmatch("[%w_.]+") do
    i = i + 1
    names[i] = word
  end
  add_doc(lines, doc)
  for _, word in ipairs(names) do add(lines, "---@param %s%s any", word, word == "options" and "?" or "") end
  add(lines, "---@return any ...")
  local owner, rest = name:match("^(%l+)%.(.+)$")
  add(lines, "function %s(%s) end", owner and owner .. "." .. rest or "cnn." .. name, table.concat(names, ", "))
end

return function()
  local lines, known = { HEAD:match("^(.-)\n$") }, {}
  for _, dtype in ipairs(require("cnn.tensor").dtypes) do add(lines, "cnn.%s = %q", dtype, dtype) end
  add_ops(lines, known)
  add_methods(lines, "Tensor", core.methods, known)
  add_methods(lines, "Module", cnn.nn.Module, {})
  local private = { settings_of = true, load_settings_of = true, load_state_of = true }
  add_methods(lines, "Optimizer", cnn.optim.Optimizer, private)
  local layers = core.layer_specs()
  table.sort(layers, function(a, b) return a.name < b.name end)
  for _, layer in ipairs(layers) do
    add_doc(lines, layer.doc)
    if #layer.params > 0 then
      add_function(lines, "nn." .. layer.name, layer.params, "cnn.Module", 1)
    else
      add(lines, "---@return cnn.Module\nfunction nn.%s(...) end", layer.name)
    end
  end
  add(lines, "\n---@param t cnn.Tensor\n---@return cnn.Tensor\nfunction nn.Parameter(t, ...) end")
  for _, name in ipairs(sorted_keys(cnn.optim)) do
    if name:find("^%u") and name ~= "Optimizer" then
      add(lines, "\n---@param parameters cnn.Tensor[]|table[]\n---@param options? table\n---@return cnn.Optimizer")
      add(lines, "function optim.%s(parameters, options) end", name)
    end
  end
  for _, entry in ipairs(help.functions) do
    if #entry > 1 and not entry[2]:find("^:") then add_listed(lines, entry[1], entry[2], entry[3]) end
  end
  add(lines, "\nreturn cnn")
  return lines
end
