-- SPDX-License-Identifier: MIT
-- The tensor's methods that are written in Lua, shapes, and cnn.tensor. What computes is an op
-- (csrc/ops); what is here only arranges arguments.
local core = require "cnn.core"
local memory = require "cnn.memory"
local options = require "cnn.options"

local fail, describe, is_tensor, convert = core.fail, core.describe, core.is_tensor, core._to
local methods = core.methods
local unpack = table.unpack or unpack

local tensor = {}

-- Names as scripts write them; also constants of the module: cnn.float32 == "float32".
tensor.dtypes = {
  "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
}
local is_dtype = {}
for _, name in ipairs(tensor.dtypes) do is_dtype[name] = true end

-- ---------------------------------------------------------------------------------------------
-- Shapes: plain lists that print as (2, 3), (8,) and ()

local shape_metatable = core.shape_metatable

function shape_metatable.__tostring(shape)
  return "(" .. table.concat(shape, ", ") .. (#shape == 1 and ",)" or ")")
end

function shape_metatable.__concat(a, b)
  return tostring(a) .. tostring(b)
end

function shape_metatable.__eq(a, b)
  if getmetatable(a) ~= shape_metatable or getmetatable(b) ~= shape_metatable or #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

-- x:has_shape(2, 3), x:has_shape({2, 3}), x:has_shape(y.shape)
function methods.has_shape(x, first, ...)
  local shape = x.shape
  local wanted = type(first) == "table" and first or { first, ... }
  if #wanted ~= #shape then return false end
  for i = 1, #shape do
    if wanted[i] ~= shape[i] then return false end
  end
  return true
end

-- ---------------------------------------------------------------------------------------------
-- to and its short forms

local function bad_target(name, word)
  local near = core.nearest(word, { "cpu", "meta", "cuda", unpack(tensor.dtypes) })
  return fail(("%s: \"%s\" is neither a dtype nor a device%s"):format(
    name, word, near and (": did you mean \"%s\"?"):format(near) or ""))
end

local TO_OPTIONS = { "device", "dtype", "non_blocking", "copy", "memory_format" }

-- The target that the arguments of `to` name, in any of its forms: to("cuda"), to("float16"),
-- to("cuda", "float16"), to(y), to{device =, dtype =, copy =, memory_format =}. Booleans after them are
-- non_blocking and copy. Gives dtype, device, memory_format, copy and non_blocking; nil: as it is.
function tensor.target(name, ...)
  local dtype, device, format, copy, non_blocking, booleans
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if type(value) == "string" then
      if is_dtype[value] then
        dtype = value
      elseif value == "cpu" or value == "meta" or value:find("^cuda") then
        device = value
      else
        bad_target(name, value)
      end
    elseif is_tensor(value) then
      dtype, device = value.dtype, value.device
    elseif type(value) == "boolean" then
      if booleans then copy = value else non_blocking = value end
      booleans = true
    elseif options.is_options(value) or options.is_empty(value) then
      options.check(name, value, TO_OPTIONS)
      dtype, device = value.dtype or dtype, value.device or device
      format, copy = value.memory_format, value.copy or copy
      non_blocking = value.non_blocking or non_blocking
    elseif value ~= nil then
      fail(("%s: argument %d: expected a dtype, a device, a tensor or a table of options, got %s"):format(
        name, i + 1, describe(value)))
    end
  end
  return dtype, device, format, copy, non_blocking
end

function methods.to(x, ...)
  return convert(x, tensor.target("to", ...))
end

-- A copy of the CPU tensor x in pinned memory, from which a GPU reads without waiting.
methods.pin_memory, methods.is_pinned = core.cuda.pin_memory, core.cuda.is_pinned
-- x:record_stream(s): s uses x's memory too, which must not be another's before s is done with it.
methods.record_stream = core.cuda.record_stream

function methods.type_as(x, y)
  if not is_tensor(y) then fail("type_as: argument 2: expected a tensor, got " .. describe(y)) end
  return convert(x, y.dtype)
end

function methods.cpu(x)
  return convert(x, nil, "cpu")
end

-- x:cuda(), x:cuda(1), x:cuda("cuda:1")
function methods.cuda(x, device)
  if type(device) == "number" then device = "cuda:" .. ("%d"):format(device) end
  return convert(x, nil, device or "cuda")
end

local SHORT = {
  float = "float32", double = "float64", half = "float16", bfloat16 = "bfloat16", long = "int64",
  int = "int32", short = "int16", char = "int8", byte = "uint8", bool = "bool",
}
for name, dtype in pairs(SHORT) do
  methods[name] = function(x) return convert(x, dtype) end
end

local is_float = { float32 = true, float64 = true, float16 = true, bfloat16 = true }
function methods.is_floating_point(x)
  return is_float[x.dtype] or false
end

-- ---------------------------------------------------------------------------------------------
-- Rows

-- for i, row in x:iter() do
function methods.iter(x)
  local n, i = #x, 0
  return function()
    i = i + 1
    if i <= n then return i, x[i] end
  end
end

-- local a, b, c = x:unpack(): the rows of x, as views.
function methods.unpack(x)
  local n, rows = #x, {}
  if n > 200 then fail(("unpack: %d rows are too many results: use x:iter() or x:unbind()"):format(n)) end
  for i = 1, n do rows[i] = x[i] end
  return unpack(rows, 1, n)
end

-- Where there is no op of that name.
local function fallback(name, f)
  if not methods[name] then methods[name] = f end
end
fallback("expand_as", function(x, y) return x:expand(y.shape) end)
fallback("view_as", function(x, y) return x:view(y.shape) end)
fallback("reshape_as", function(x, y) return x:reshape(y.shape) end)

-- ---------------------------------------------------------------------------------------------
-- Hooks

local Hook = {}
Hook.__index = Hook
Hook.__name = "cnn.Hook"

-- Takes the hook off. Once is enough; more does no harm.
function Hook:remove()
  local x = self.tensor
  self.tensor = nil
  if x then core.remove_hook(x, self.id) end
end

-- x:register_hook(fn): fn(gradient) is called when x's gradient is known; what it returns, if
-- anything, takes the gradient's place. Gives a handle with remove().
local register = methods._register_hook
methods._register_hook = nil
function methods.register_hook(x, fn)
  options.expect_callable("register_hook", "argument 2 (fn)", fn)
  memory.outlive(fn)
  return setmetatable({ tensor = x, id = register(x, fn) }, Hook)
end

-- ---------------------------------------------------------------------------------------------
-- Printing: the work is in cnn.format, loaded when something is printed

function core.tensor_metatable.__tostring(x)
  return require("cnn.format").tensor(x)
end

-- ---------------------------------------------------------------------------------------------
-- cnn.tensor

local NAMES = { "dtype", "device", "requires_grad" }

-- The options that stand in the same table as the values: cnn.tensor{1, 2, dtype = "int64"}.
local function inner_options(values)
  local n = #values
  if n == 0 or type((next(values, n))) ~= "string" then return nil end
  local given = {}
  for _, name in ipairs(NAMES) do given[name] = values[name] end
  options.check("tensor", values, NAMES)
  return given
end

-- A tensor of nested lists of numbers or booleans; of a number: with 0 dims; of a tensor: a copy
-- without history.
function tensor.new(values, ...)
  local given
  if select("#", ...) > 0 then
    given = options.read("tensor", NAMES, ...)
  elseif type(values) == "table" then
    given = inner_options(values)
  end
  local dtype, device, requires_grad
  if given then
    dtype, device = given.dtype, given.device
    requires_grad = options.expect("tensor", "requires_grad", given.requires_grad, "boolean")
  end
  local t
  if is_tensor(values) then
    t = convert(values:detach(), dtype, device, nil, true)
  else
    t = core._tensor(values, dtype, device)
  end
  if requires_grad then t.requires_grad = true end
  return t
end

return tensor
