-- SPDX-License-Identifier: MIT
-- How a tensor prints: PyTorch's text (torch/_tensor_str.py), but for "torch." before a dtype.
--
--   tensor([[1.0000, 2.5000],
--           [3.0000, 4.0000]], dtype=float64, grad_fn=<AddBackward0>)
--
-- All elements share one width and one style: whole numbers ("1."), fixed point, or scientific when
-- max/min > 1000, max > 1e8 or min < 1e-4 (of what is finite and not 0). More than `threshold`
-- elements are elided to `edgeitems` at both ends of every dim.
local core = require "cnn.core"
local options = require "cnn.options"

local number_text = core._number_text

local format = {}

local DEFAULTS = { precision = 4, threshold = 1000, edgeitems = 3, linewidth = 80 }
local PROFILES = {
  default = DEFAULTS,
  short = { precision = 2, threshold = 1000, edgeitems = 2, linewidth = 80 },
  full = { precision = 4, threshold = math.huge, edgeitems = 3, linewidth = 80 },
}
local NAMES = { "precision", "threshold", "edgeitems", "linewidth", "profile", "sci_mode" }
local settings = {}
for name, value in pairs(DEFAULTS) do settings[name] = value end

-- set_printoptions{precision =, threshold =, edgeitems =, linewidth =, profile =, sci_mode =}: sets what is
-- given; sci_mode (true, false, nil: by the values) always.
function format.set_printoptions(...)
  local given = options.read("set_printoptions", NAMES, ...)
  options.expect("set_printoptions", "sci_mode", given.sci_mode, "boolean")
  for name in pairs(DEFAULTS) do
    options.expect("set_printoptions", name, given[name], "number")
    if given[name] and not (given[name] >= 0) then
      core.fail(("set_printoptions: %s must be at least 0"):format(name))
    end
  end
  if given.profile ~= nil and not PROFILES[given.profile] then
    core.fail(("set_printoptions: profile is \"default\", \"short\" or \"full\", not %s"):format(
      core.describe(given.profile)))
  end
  for name, value in pairs(PROFILES[given.profile] or {}) do settings[name] = value end
  for name in pairs(DEFAULTS) do
    if given[name] then settings[name] = given[name] end
  end
  settings.sci_mode = given.sci_mode
end

function format.get_printoptions()
  local copy = {}
  for name, value in pairs(settings) do copy[name] = value end
  return copy
end

-- ---------------------------------------------------------------------------------------------
-- Elements

local is_float = { float32 = true, float64 = true, float16 = true, bfloat16 = true }

local function finite(v)
  return v - v == 0
end

-- A function from an element to its text, all of one width; and that width.
local function float_formatter(values)
  local least, most, whole = math.huge, 0, true
  for _, v in ipairs(values) do
    if v ~= 0 and finite(v) then
      local size = math.abs(v)
      least, most = math.min(least, size), math.max(most, size)
      whole = whole and v == math.floor(v)
    end
  end
  local scientific = settings.sci_mode
  if scientific == nil then scientific = most / least > 1000 or most > 1e8 or least < 1e-4 end
  if most == 0 then scientific = false end
  whole = whole and not scientific
  local style, precision = scientific and "e" or "f", whole and 0 or settings.precision
  local function text(v)
    local digits = number_text(v, style, precision)
    return whole and finite(v) and digits .. "." or digits
  end
  local width = 1
  for _, v in ipairs(values) do
    if v ~= 0 and finite(v) then width = math.max(width, #text(v)) end
  end
  return function(v)
    local digits = text(v)
    return (" "):rep(width - #digits) .. digits
  end, width
end

local function text_formatter(values)
  local width = 1
  for _, v in ipairs(values) do width = math.max(width, #v) end
  return function(v)
    return (" "):rep(width - #v) .. v
  end, width
end

-- The elements of a 1-d tensor: numbers, or texts for integers and booleans (an int64 need not fit a
-- Lua number).
local function row_values(row)
  local dtype = row.dtype
  if is_float[dtype] then return row:totable() end
  if dtype ~= "bool" then return core._int_texts(row) end
  local texts = row:totable()
  for i, v in ipairs(texts) do texts[i] = v and "True" or "False" end
  return texts
end

-- ---------------------------------------------------------------------------------------------
-- Rows and blocks

-- What of a tensor is shown, as a tree: rows are lists of elements, other dims lists of trees. Where
-- elements are left out, `gap` says after how many entries.
local function shown(x, elide)
  local n, edge = #x, settings.edgeitems
  local gap = elide and (n > 2 * edge or edge == 0)
  local tree = { gap = gap and edge or nil }
  if x.ndim == 1 then
    local parts = gap and { x:narrow(1, 1, edge), x:narrow(1, n - edge + 1, edge) } or { x }
    if gap and edge == 0 then parts = {} end
    for _, part in ipairs(parts) do
      for _, v in ipairs(row_values(part)) do tree[#tree + 1] = v end
    end
    return tree
  end
  for i = 1, n do
    if not gap or i <= edge or i > n - edge then tree[#tree + 1] = shown(x[i], elide) end
  end
  return tree
end

local function flatten(tree, into)
  for _, v in ipairs(tree) do
    if type(v) == "table" then flatten(v, into) else into[#into + 1] = v end
  end
  return into
end

local function row_text(row, indent, element, width)
  local texts = {}
  for i, v in ipairs(row) do
    if row.gap == i - 1 then texts[#texts + 1] = " ..." end
    texts[#texts + 1] = element(v)
  end
  if #row == 0 and row.gap then texts[1] = "..." end
  local per_line = math.max(1, math.floor((settings.linewidth - indent) / (width + 2)))
  local lines = {}
  for i = 1, #texts, per_line do
    lines[#lines + 1] = table.concat(texts, ", ", i, math.min(i + per_line - 1, #texts))
  end
  return "[" .. table.concat(lines, ",\n" .. (" "):rep(indent + 1)) .. "]"
end

local function block_text(tree, ndim, indent, element, width)
  if ndim == 1 then return row_text(tree, indent, element, width) end
  local blocks = {}
  for i, branch in ipairs(tree) do
    if tree.gap == i - 1 then blocks[#blocks + 1] = "..." end
    blocks[#blocks + 1] = block_text(branch, ndim - 1, indent + 1, element, width)
  end
  if #tree == 0 and tree.gap then blocks[1] = "..." end
  return "[" .. table.concat(blocks, "," .. ("\n"):rep(ndim - 1) .. (" "):rep(indent + 1)) .. "]"
end

local function contents(x, numel, indent)
  if x.device ~= "cpu" and numel <= settings.threshold then x = x:cpu() end
  local row = x.ndim == 0 and { row_values(x:reshape(1))[1] }
  local tree = row or shown(x, numel > settings.threshold)
  local formatter = is_float[x.dtype] and float_formatter or text_formatter
  local element, width = formatter(flatten(tree, {}))
  if row then return element(row[1]) end
  return block_text(tree, x.ndim, indent, element, width)
end

-- ---------------------------------------------------------------------------------------------
-- The whole

local function with_suffixes(text, suffixes, indent)
  local parts, length = { text }, #text:match("[^\n]*$") + 2
  for _, suffix in ipairs(suffixes) do
    if length + #suffix + 2 > settings.linewidth then
      parts[#parts + 1] = ",\n" .. (" "):rep(indent) .. suffix
      length = indent + #suffix
    else
      parts[#parts + 1] = ", " .. suffix
      length = length + #suffix + 2
    end
  end
  return table.concat(parts) .. ")"
end

local PREFIX = "tensor("

local function describe(x)
  local dtype, device, numel, indent = x.dtype, x.device, x:numel(), #PREFIX
  local usual = core.get_default_dtype()
  local node, suffixes = x.grad_fn, {}
  local function add(...) suffixes[#suffixes + 1] = (...):format(select(2, ...)) end
  local size = "size=" .. x.shape
  local text
  if device ~= core.get_default_device() then add("device='%s'", device) end
  if device == "meta" then
    text = "..."
    add("%s", size)
    if dtype ~= usual then add("dtype=%s", dtype) end
  elseif numel == 0 then
    text = "[]"
    if x.ndim ~= 1 then add("%s", size) end
    if dtype ~= usual then add("dtype=%s", dtype) end
  else
    if settings.edgeitems == 0 then add("%s", size) end
    if dtype ~= usual and dtype ~= "int64" and dtype ~= "bool" then add("dtype=%s", dtype) end
    text = contents(x:detach(), numel, indent)
  end
  if node then
    add("grad_fn=<%s>", core.node_info(node).name)
  elseif x.requires_grad then
    add("requires_grad=True")
  end
  local whole = with_suffixes(PREFIX .. text, suffixes, indent)
  return x.is_parameter and "Parameter containing:\n" .. whole or whole
end

local function finish(ok, text)
  if not ok then error(text, 0) end
  return text
end

-- The text of a tensor. What is made on the way is freed at once: printing keeps no bytes alive.
function format.tensor(x)
  if core.describe(x) == "a freed tensor" then return PREFIX .. "freed)" end
  return finish(core.scope_leave(core.scope_enter(), pcall(core.no_grad, describe, x)))
end

return format
