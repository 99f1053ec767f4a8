-- SPDX-License-Identifier: MIT
-- Line plots as SVG: loss curves, bytes over batch sizes.
local core = require "cnn.core"
local options = require "cnn.options"
local svg = require "cnn.viz.svg"

local fail, describe, is_tensor = core.fail, core.describe, core.is_tensor

local COLORS = { "#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#17becf", "#7f7f7f" }

local Plot = {}
Plot.__index = Plot
Plot.__name = "cnn.viz.Plot"

-- ---------------------------------------------------------------------------------------------
-- Values and axes

local function numbers(name, values)
  if is_tensor(values) then
    if values.ndim ~= 1 then fail(("viz.plot: %s: expected a tensor with 1 dim, not %d"):format(name, values.ndim)) end
    return values:detach():to("float64"):cpu():totable()
  end
  if type(values) ~= "table" then
    fail(("viz.plot: %s: expected a list of numbers or a tensor, got %s"):format(name, describe(values)))
  end
  for i, v in ipairs(values) do
    if type(v) ~= "number" then fail(("viz.plot: %s[%d]: expected a number, got %s"):format(name, i, describe(v))) end
  end
  return values
end

local function read_series(list)
  if type(list) ~= "table" then
    fail("viz.plot: expected a list of series {name =, x =, y =}, got " .. describe(list))
  end
  if list.y then list = { list } end
  local series = {}
  for i, s in ipairs(list) do
    if type(s) ~= "table" or s.y == nil then
      fail(("viz.plot: series %d: expected a table {name =, x =, y =}, got %s"):format(i, describe(s)))
    end
    options.check(("viz.plot: series %d"):format(i), s, { "name", "x", "y", "color", "dashed", "marks" })
    local y = numbers(("series %d: y"):format(i), s.y)
    local x = s.x and numbers(("series %d: x"):format(i), s.x)
    if x and #x ~= #y then fail(("viz.plot: series %d has %d x and %d y"):format(i, #x, #y)) end
    if not x then
      x = {}
      for k = 1, #y do x[k] = k end
    end
    series[i] = {
      name = s.name, x = x, y = y, color = s.color or COLORS[(i - 1) % #COLORS + 1], dashed = s.dashed, marks = s.marks,
    }
  end
  if #series == 0 then fail("viz.plot: there are no series") end
  return series
end

local function log10(v) return math.log(v) / math.log(10) end

-- An axis over all values of `key`: from values to 0..1, and ticks {value, text}.
local function tick_text(v, step)
  local size = math.abs(v)
  if v == 0 then return "0" end
  if size >= 1e5 or size < 1e-3 then
    return (("%.2e"):format(v):gsub("%.?0*e", "e"):gsub("e([+-])0+", "e%1"):gsub("e%+", "e"))
  end
  local digits = math.max(0, -math.floor(log10(step) + 1e-9))
  return ("%." .. ("%d"):format(digits) .. "f"):format(v)
end

local function linear_axis(least, most)
  if least == most then
    local room = least == 0 and 1 or math.abs(least) * 0.1
    least, most = least - room, most + room
  end
  local rough = (most - least) / 6
  local power = 10 ^ math.floor(log10(rough))
  local step = power
  for _, factor in ipairs { 2, 5, 10 } do
    if step < rough then step = power * factor end
  end
  local first, last = math.floor(least / step + 1e-9), math.ceil(most / step - 1e-9)
  local axis = { ticks = {} }
  function axis.at(v) return (v / step - first) / (last - first) end
  for k = first, last do axis.ticks[#axis.ticks + 1] = { k * step, tick_text(k * step, step) } end
  return axis
end

local function log_axis(least, most)
  local first, last = math.floor(log10(least) + 1e-9), math.ceil(log10(most) - 1e-9)
  if first == last then last = first + 1 end
  local every = math.ceil((last - first) / 8)
  local axis = { ticks = {} }
  function axis.at(v) return (log10(v) - first) / (last - first) end
  for k = first, last, every do axis.ticks[#axis.ticks + 1] = { 10 ^ k, tick_text(10 ^ k, 10 ^ k) } end
  return axis
end

local function usable(v, log)
  return v - v == 0 and (not log or v > 0)
end

local function axis_of(series, key, log)
  local least, most = math.huge, -math.huge
  for _, s in ipairs(series) do
    for _, v in ipairs(s[key]) do
      if usable(v, log) then least, most = math.min(least, v), math.max(most, v) end
    end
  end
  if least > most then least, most = 1, log and 10 or 1 end
  return (log and log_axis or linear_axis)(least, most)
end

-- ---------------------------------------------------------------------------------------------
-- Drawing

local LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 50

local function draw_axes(elements, o, x_axis, y_axis, to_x, to_y)
  local right, bottom = o.width - RIGHT, o.height - BOTTOM
  local function line(d) elements[#elements + 1] = svg.element("path", { d = d, stroke = "#ddd" }) end
  for _, tick in ipairs(x_axis.ticks) do
    local x = to_x(tick[1])
    line(("M%s %sV%s"):format(svg.number(x), TOP, svg.number(bottom)))
    elements[#elements + 1] = svg.text(x, bottom + 16, tick[2], { text_anchor = "middle" })
  end
  for _, tick in ipairs(y_axis.ticks) do
    local y = to_y(tick[1])
    line(("M%s %sH%s"):format(LEFT, svg.number(y), svg.number(right)))
    elements[#elements + 1] = svg.text(LEFT - 6, y + 4, tick[2], { text_anchor = "end" })
  end
  elements[#elements + 1] = svg.element("rect", {
    x = LEFT, y = TOP, width = right - LEFT, height = bottom - TOP, fill = "none", stroke = "#444",
  })
  if o.title then
    elements[#elements + 1] = svg.text(o.width / 2, 22, o.title,
      { text_anchor = "middle", font_size = 15, font_weight = "bold" })
  end
  if o.xlabel then
    elements[#elements + 1] = svg.text((LEFT + right) / 2, o.height - 12, o.xlabel, { text_anchor = "middle" })
  end
  if o.ylabel then
    local y = (TOP + bottom) / 2
    elements[#elements + 1] = svg.text(16, y, o.ylabel, {
      text_anchor = "middle", transform = ("rotate(-90 16 %s)"):format(svg.number(y)),
    })
  end
end

-- Adds points of a line from the last one to (x, y), close enough to tell what it runs through.
local function add_points(points, x, y, broken)
  local last = points[#points]
  local steps = last and not broken and math.ceil(math.max(math.abs(x - last[1]), math.abs(y - last[2])) / 6) or 1
  for k = 1, steps - 1 do
    points[#points + 1] = { last[1] + (x - last[1]) * k / steps, last[2] + (y - last[2]) * k / steps }
  end
  points[#points + 1] = { x, y }
end

-- What can't be drawn (NaN, infinities, values <= 0 on a logarithmic axis) breaks the line. Where the line runs is
-- added to `points`.
local function draw_series(elements, s, logs, to_x, to_y, points)
  local path, broken, marks = {}, true, {}
  for i, v in ipairs(s.y) do
    if usable(v, logs.y) and usable(s.x[i], logs.x) then
      add_points(points, to_x(s.x[i]), to_y(v), broken)
      local x, y = svg.number(to_x(s.x[i])), svg.number(to_y(v))
      path[#path + 1] = (broken and "M" or "L") .. x .. " " .. y
      marks[#marks + 1] = svg.element("circle", { cx = x, cy = y, r = 3, fill = s.color })
      broken = false
    else
      broken = true
    end
  end
  if #path == 0 then return end
  local attributes = {
    d = table.concat(path), fill = "none", stroke = s.color, stroke_width = 2, stroke_linejoin = "round",
  }
  if s.dashed then attributes.stroke_dasharray = "6 4" end
  elements[#elements + 1] = svg.element("path", attributes)
  if s.marks or #marks == 1 then elements[#elements + 1] = table.concat(marks, "\n") end
end

-- The corner where a box of this size hides least of the points: its left and upper edge.
local function emptiest_corner(points, o, width, height)
  local left, right, top, bottom = LEFT + 8, o.width - RIGHT - width - 8, TOP + 8, o.height - BOTTOM - height - 8
  local best, least
  for _, corner in ipairs { { right, top }, { left, top }, { right, bottom }, { left, bottom } } do
    local hidden = 0
    for _, p in ipairs(points) do
      local x, y = p[1] - corner[1], p[2] - corner[2]
      if x > -4 and x < width + 4 and y > -4 and y < height + 4 then hidden = hidden + 1 end
    end
    if not least or hidden < least then best, least = corner, hidden end
  end
  return best[1], best[2]
end

local function draw_legend(elements, series, o, points)
  local longest, entries = 0, {}
  for _, s in ipairs(series) do
    if s.name then
      entries[#entries + 1] = s
      longest = math.max(longest, #tostring(s.name))
    end
  end
  if #entries == 0 then return end
  local width, height = longest * 7 + 44, #entries * 18 + 6
  local left, top = emptiest_corner(points, o, width, height)
  elements[#elements + 1] = svg.element("rect", {
    x = left, y = top, width = width, height = height, fill = "white", fill_opacity = 0.85, stroke = "#bbb",
  })
  for i, s in ipairs(entries) do
    local y = top - 4 + i * 18
    local attributes = { d = ("M%s %sh24"):format(svg.number(left + 6), y), stroke = s.color, stroke_width = 2 }
    if s.dashed then attributes.stroke_dasharray = "6 4" end
    elements[#elements + 1] = svg.element("path", attributes)
    elements[#elements + 1] = svg.text(left + 36, y + 4, s.name)
  end
end

function Plot:svg()
  local o, logs = self.options, { x = self.options.log:find("x") ~= nil, y = self.options.log:find("y") ~= nil }
  local x_axis, y_axis = axis_of(self.series, "x", logs.x), axis_of(self.series, "y", logs.y)
  local function to_x(v) return LEFT + x_axis.at(v) * (o.width - RIGHT - LEFT) end
  local function to_y(v) return o.height - BOTTOM - y_axis.at(v) * (o.height - BOTTOM - TOP) end
  local elements = {}
  draw_axes(elements, o, x_axis, y_axis, to_x, to_y)
  local points = {}
  for _, s in ipairs(self.series) do draw_series(elements, s, logs, to_x, to_y, points) end
  draw_legend(elements, self.series, o, points)
  return svg.document(o.width, o.height, elements)
end

function Plot:save(path)
  svg.write("viz.plot: save", path, self:svg())
  return self
end

function Plot:__tostring()
  return ("plot of %d series"):format(#self.series)
end

local plot = {}

local NAMES = { "title", "xlabel", "ylabel", "width", "height", "log" }

-- viz.plot({ {name =, x =, y =, color =, dashed =, marks =}, ... }, {title =, xlabel =, ylabel =, width = 640,
-- height = 400, log = "x", "y" or "xy"}): x and y are lists or 1-d tensors; x counts from 1 when left out.
-- Has svg() and save(path).
function plot.plot(series, ...)
  local o = options.read("viz.plot", NAMES, ...)
  o.width, o.height, o.log = o.width or 640, o.height or 400, o.log or ""
  if type(o.log) ~= "string" or o.log:find("[^xy]") then
    fail("viz.plot: log: expected \"x\", \"y\" or \"xy\", got " .. describe(o.log))
  end
  return setmetatable({ series = read_series(series), options = o }, Plot)
end

return plot
