-- SPDX-License-Identifier: MIT
-- Pieces of SVG, and pictures that can be written to a file.
local core = require "cnn.core"

local svg = {}

-- Text with what XML reserves written out.
function svg.escape(text)
  return (tostring(text):gsub("[&<>\"]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ["\""] = "&quot;" }))
end

-- A number in as few digits as a picture needs.
function svg.number(v)
  return (("%.2f"):format(v):gsub("%.?0+$", ""))
end

-- <name a="..." b="...">content</name>, attributes in alphabetic order.
function svg.element(name, attributes, content)
  local keys, parts = {}, { name }
  for key in pairs(attributes) do keys[#keys + 1] = key end
  table.sort(keys)
  for _, key in ipairs(keys) do
    local value = attributes[key]
    if type(value) == "number" then value = svg.number(value) end
    parts[#parts + 1] = ("%s=\"%s\""):format(key:gsub("_", "-"), svg.escape(value))
  end
  local open = "<" .. table.concat(parts, " ")
  return content and open .. ">" .. content .. "</" .. name .. ">" or open .. "/>"
end

function svg.text(x, y, text, attributes)
  local all = { x = x, y = y }
  for key, value in pairs(attributes or {}) do all[key] = value end
  return svg.element("text", all, svg.escape(text))
end

-- A whole picture from a list of elements, on white, in one font.
function svg.document(width, height, elements)
  return table.concat({
    ("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%s\" height=\"%s\" viewBox=\"0 0 %s %s\" "
      .. "font-family=\"sans-serif\" font-size=\"12\">"):format(
      svg.number(width), svg.number(height), svg.number(width), svg.number(height)),
    svg.element("rect", { width = width, height = height, fill = "white" }),
    table.concat(elements, "\n"),
    "</svg>",
    "",
  }, "\n")
end

-- Writes text to a file; raises when that fails.
function svg.write(function_name, path, text)
  local file, why = io.open(path, "wb")
  if not file then core.fail(("%s: %s"):format(function_name, why)) end
  local done, problem = file:write(text)
  local closed, late = file:close()
  if not (done and closed) then
    core.fail(("%s: %s: %s"):format(function_name, path, tostring(problem or late)))
  end
end

return svg
