-- SPDX-License-Identifier: MIT
-- Arguments of the functions that are written in Lua: positions first, then one trailing table of
-- options (rule 3 of the interface). The same messages as the binding's (csrc/lua/args.c).
local core = require "cnn.core"
local fail, nearest, describe = core.fail, core.nearest, core.describe

local options = {}

-- Hints of PyTorch's that change nothing here.
local HINTS = { foreach = true, fused = true, capturable = true, pin_memory = true, non_blocking = true }

-- Whether a value is a table of options: one with a string key. A pure list, {} included, is a value.
function options.is_options(value)
  if type(value) ~= "table" or getmetatable(value) then return false end
  for key in next, value do
    if type(key) == "string" then return true end
  end
  return false
end

function options.is_empty(value)
  return type(value) == "table" and not getmetatable(value) and next(value) == nil
end

-- Raises for a key of `given` that is not in the list `names`. Numbers are left to the caller.
function options.check(name, given, names)
  for key in next, given do
    if type(key) == "string" and not HINTS[key] then
      local known = false
      for _, other in ipairs(names) do known = known or other == key end
      if not known then
        local near = nearest(key, names)
        fail(("%s: unknown option \"%s\"%s (it takes %s)"):format(
          name, key, near and (": did you mean \"%s\"?"):format(near) or "", table.concat(names, ", ")))
      end
    end
  end
end

-- Reads positions and a trailing table into one table with these names:
--   local o = options.read("gradcheck", { "eps", "atol" }, ...)
-- Values are not checked but for being given twice or being too many. An empty table at the end is a
-- table of no options.
function options.read(name, names, ...)
  local n, given = select("#", ...), {}
  local last = select(n > 0 and n or 1, ...)
  local trailing = n > 0 and (options.is_options(last) or options.is_empty(last))
  local positions = trailing and n - 1 or n
  if positions > #names then
    -- Trailing nils are no arguments.
    for i = #names + 1, positions do
      if (select(i, ...)) ~= nil then fail(("%s: takes at most %d optional arguments"):format(name, #names)) end
    end
  end
  for i = 1, math.min(positions, #names) do given[names[i]] = (select(i, ...)) end
  if not trailing then return given end
  options.check(name, last, names)
  for key, value in next, last do
    if given[key] ~= nil then fail(("%s: %s is given twice, by position and as an option"):format(name, key)) end
    given[key] = value
  end
  return given
end

-- Raises unless value (of the argument called `argument`) is nil or of the Lua type `wanted`.
function options.expect(name, argument, value, wanted)
  if value == nil or type(value) == wanted then return value end
  local text = wanted == "boolean" and "true or false" or "a " .. wanted
  return fail(("%s: %s: expected %s, got %s"):format(name, argument, text, describe(value)))
end

-- Whether a value can be called.
function options.callable(value)
  if type(value) == "function" then return true end
  local meta = getmetatable(value)
  return type(meta) == "table" and meta.__call ~= nil
end

-- Raises unless value can be called.
function options.expect_callable(name, argument, value)
  if options.callable(value) then return value end
  return fail(("%s: %s: expected a function (or a module), got %s"):format(name, argument, describe(value)))
end

return options
