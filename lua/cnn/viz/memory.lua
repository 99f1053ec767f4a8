-- SPDX-License-Identifier: MIT
-- A snapshot of memory as a page: live bytes by kind over time, segments with their blocks, and the lines of
-- the script that hold most. Self-contained; without scripts running it is complete but for the lights.
local core = require "cnn.core"
local options = require "cnn.options"
local svg = require "cnn.viz.svg"
local bytes_text = require("cnn.memory").bytes_text

local fail, describe = core.fail, core.describe

-- In the order in which they are stacked.
local KINDS = {
  { "parameters", "#4c78a8" }, { "buffers", "#72b7b2" }, { "optimizer state", "#b279a2" }, { "gradients", "#f58518" },
  { "activations", "#e45756" }, { "workspace", "#eeca3b" }, { "data", "#54a24b" }, { "other", "#9d9da1" },
}
local COLOR = {}
local RESERVED = "#222"
local FREE, FREE_SMALL = "#e6e6e6", "#f4ecd8"
for _, kind in ipairs(KINDS) do COLOR[kind[1]] = kind[2] end

local WIDTH, LEFT, RIGHT = 1000, 84, 16
local INNER = WIDTH - LEFT - RIGHT

local Page = {}
Page.__index = Page
Page.__name = "cnn.viz.Memory"

-- ---------------------------------------------------------------------------------------------
-- Numbers to read

-- An axis from 0 to `most` in a unit: about n steps of 1, 2 or 5 times a power of ten.
local function scale_in(unit, name, most, n)
  local rough = math.max(most / unit / n, 1e-9)
  local power = 10 ^ math.floor(math.log(rough) / math.log(10))
  local step = power
  for _, factor in ipairs { 2, 5, 10 } do
    if step < rough then step = power * factor end
  end
  if name == "B" then step = math.max(step, 1) end
  local digits = step < 1 and -math.floor(math.log(step) / math.log(10) + 1e-9) or 0
  return { step = step * unit, unit = unit, name = name, digits = digits }
end

local function byte_scale(most, n)
  local unit, name = 1, "B"
  for _, larger in ipairs { "KiB", "MiB", "GiB", "TiB" } do
    if most / unit < 2048 then break end
    unit, name = unit * 1024, larger
  end
  return scale_in(unit, name, most, n)
end

local function time_scale(most, n)
  if most < 2e-3 then return scale_in(1e-6, "µs", most, n) end
  if most < 2 then return scale_in(1e-3, "ms", most, n) end
  return scale_in(1, "s", most, n)
end

local function tick_text(value, scale)
  if value == 0 then return "0" end
  return (("%%.%df %%s"):format(scale.digits)):format(value / scale.unit, scale.name)
end

local function seconds_text(seconds)
  if seconds < 1e-3 then return ("%.0f µs"):format(seconds * 1e6) end
  if seconds < 1 then return ("%.2f ms"):format(seconds * 1e3) end
  return ("%.3f s"):format(seconds)
end

-- ---------------------------------------------------------------------------------------------
-- The timeline

-- What an event adds, by kind.
local function apply(levels, event, sign)
  local function add(kind, bytes) levels[kind] = (levels[kind] or 0) + sign * bytes end
  if event.what == "alloc" then
    add(event.kind, event.size)
  elseif event.what == "free" then
    add(event.kind, -event.size)
  elseif event.what == "retag" then
    add(event.was, -event.size)
    add(event.kind, event.size)
  end
end

local function copy_levels(levels)
  local copy, total = {}, 0
  for _, kind in ipairs(KINDS) do
    copy[kind[1]] = math.max(levels[kind[1]] or 0, 0)
    total = total + copy[kind[1]]
  end
  copy.total = total
  return copy
end

-- Levels per column of the picture, and what was reserved, each at its highest moment, and the peak of all with the
-- number of events up to it.
local function read_timeline(snapshot)
  local events, levels = snapshot.events, {}
  for kind, bytes in pairs(snapshot.kinds) do levels[kind] = bytes end
  for i = #events, 1, -1 do apply(levels, events[i], -1) end
  local length = math.max(snapshot.seconds, events[#events].time, 1e-6)
  local now = copy_levels(levels)
  local columns, i = {}, 1
  local peak = { total = now.total, events = 0, time = 0 }
  local reserved, reserved_peak = events[1].reserved, 0
  for column = 0, INNER - 1 do
    local most, finish = now, (column + 1) / INNER * length
    local most_reserved = reserved
    while events[i] and (events[i].time < finish or column == INNER - 1) do
      apply(levels, events[i], 1)
      now = copy_levels(levels)
      if now.total > most.total then most = now end
      if now.total > peak.total then peak = { total = now.total, events = i, time = events[i].time } end
      reserved = events[i].reserved
      most_reserved = math.max(most_reserved, reserved)
      i = i + 1
    end
    columns[column] = { levels = most, reserved = most_reserved, time = column / INNER * length }
    reserved_peak = math.max(reserved_peak, most_reserved)
  end
  local shown = {} -- the kinds that are ever seen
  for column = 0, INNER - 1 do
    for kind, bytes in pairs(columns[column].levels) do shown[kind] = shown[kind] or bytes > 0 end
  end
  return { columns = columns, length = length, peak = peak, reserved_peak = reserved_peak, shown = shown }
end

-- The commands of a path along the columns' values, in steps.
local function steps(value, to_x, to_y)
  local path, last = {}, nil
  for column = 0, INNER - 1 do
    local y = svg.number(to_y(value(column)))
    if y ~= last then
      path[#path + 1] = (last and "H%s V%s" or "M%s %s"):format(svg.number(to_x(column)), y)
      last = y
    end
  end
  path[#path + 1] = "H" .. svg.number(to_x(INNER))
  return path
end

-- One kind's area between two steps of running sums.
local function area(line, base, to_x, to_y)
  local path, last = steps(function(column) return line[column] end, to_x, to_y), nil
  for column = INNER - 1, 0, -1 do
    local y = svg.number(to_y(base[column]))
    if y ~= last then
      path[#path + 1] = ("%sV%s"):format(last and "H" .. svg.number(to_x(column + 1)) .. " " or "", y)
      last = y
    end
  end
  path[#path + 1] = "H" .. svg.number(to_x(0)) .. "Z"
  return table.concat(path, " ")
end

-- Reserved bytes as a line of steps.
local function draw_reserved(elements, timeline, to_x, to_y)
  local path = steps(function(column) return timeline.columns[column].reserved end, to_x, to_y)
  elements[#elements + 1] = svg.element("path", {
    id = "reserved", d = table.concat(path, " "), stroke = RESERVED, stroke_width = 1.6, fill = "none",
  })
end

-- Where what is reserved is far above what is live, as in small runs, it is said and not drawn.
local FAR = 4

local function draw_timeline(elements, timeline, top)
  local height, most = 220, math.max(timeline.peak.total, 1)
  local drawn = timeline.reserved_peak <= FAR * most
  if drawn then most = math.max(most, timeline.reserved_peak) end
  local bottom = top + height
  local bytes, times = byte_scale(most, 5), time_scale(timeline.length, 8)
  local ceiling = math.ceil(most * 1.08 / bytes.step) * bytes.step
  local function to_x(column) return LEFT + column end
  local function to_y(value) return bottom - value / ceiling * height end
  for k = 0, math.floor(ceiling / bytes.step + 0.5) do
    local y = to_y(k * bytes.step)
    elements[#elements + 1] = svg.element("path", { d = ("M%d %sH%d"):format(LEFT, svg.number(y), WIDTH - RIGHT),
      stroke = "#e4e4e4" })
    elements[#elements + 1] = svg.text(LEFT - 8, y + 4, tick_text(k * bytes.step, bytes), { text_anchor = "end" })
  end
  local base = {}
  for column = 0, INNER - 1 do base[column] = 0 end
  for _, kind in ipairs(KINDS) do
    local line, any = {}, false
    for column = 0, INNER - 1 do
      local level = timeline.columns[column].levels[kind[1]]
      line[column] = base[column] + level
      any = any or level > 0
    end
    if any then
      elements[#elements + 1] = svg.element("path", { d = area(line, base, to_x, to_y), fill = kind[2] })
    end
    base = line
  end
  if drawn then draw_reserved(elements, timeline, to_x, to_y) end
  elements[#elements + 1] = svg.text(LEFT, top - 6, ("reserved: at most %s%s"):format(
    bytes_text(timeline.reserved_peak), drawn and " (the line)" or ", above this picture"), { fill = RESERVED })
  local last = timeline.length / times.step
  for k = 0, math.floor(last + 1e-9) do
    local x = LEFT + k * times.step / timeline.length * INNER
    elements[#elements + 1] = svg.element("path", { d = ("M%s %dv5"):format(svg.number(x), bottom), stroke = "#444" })
    elements[#elements + 1] = svg.text(x, bottom + 18, tick_text(k * times.step, times),
      { text_anchor = x > WIDTH - RIGHT - 20 and "end" or "middle" })
  end
  elements[#elements + 1] = svg.element("path", {
    d = ("M%d %dV%dH%d"):format(LEFT, top, bottom, WIDTH - RIGHT), stroke = "#444", fill = "none",
  })
  local peak_y = to_y(timeline.peak.total)
  elements[#elements + 1] = svg.element("path", {
    d = ("M%d %sH%d"):format(LEFT, svg.number(peak_y), WIDTH - RIGHT), stroke = "#444", stroke_dasharray = "5 4",
  })
  elements[#elements + 1] = svg.text(WIDTH - RIGHT, top - 6, ("peak %s at %s (dashed)"):format(
    bytes_text(timeline.peak.total), seconds_text(timeline.peak.time)), { text_anchor = "end" })
  elements[#elements + 1] = svg.element("path", { id = "cursor", d = "M0 0", stroke = "#000", stroke_width = 0.7 })
  elements[#elements + 1] = svg.element("rect", {
    id = "timeline", x = LEFT, y = top, width = INNER, height = height, fill = "none", pointer_events = "all",
  })
  return bottom + 26
end

-- The columns for the page's script: time, bytes by kind and reserved ones, where they change.
local function timeline_data(timeline)
  local rows, last = {}, nil
  for column = 0, INNER - 1 do
    local values = {}
    for i, kind in ipairs(KINDS) do values[i] = ("%d"):format(timeline.columns[column].levels[kind[1]]) end
    values[#values + 1] = ("%d"):format(timeline.columns[column].reserved)
    local text = table.concat(values, ",")
    if text ~= last then rows[#rows + 1] = ("[%d,%s]"):format(column, text) end
    last = text
  end
  return "[" .. table.concat(rows, ",") .. "]"
end

-- ---------------------------------------------------------------------------------------------
-- Segments and blocks

local ROW, GAP, MOST_ROWS = 18, 4, 400

local function block_text(block)
  local lines = {}
  if block.n > 1 then
    lines[1] = ("%d blocks of %s, %s in all"):format(block.n, block.kind, bytes_text(block.size))
  elseif block.waiting then
    lines[1] = ("%s of %s, freed: another stream is at work on it"):format(bytes_text(block.size), block.kind)
  elseif block.kind == "free" then
    lines[1] = ("%s free%s"):format(bytes_text(block.size), block.small and " for small blocks" or "")
  else
    lines[1] = ("%s of %s (%d bytes asked for)"):format(bytes_text(block.size), block.kind, block.requested)
  end
  lines[#lines + 1] = ("at +%s of the segment"):format(bytes_text(block.offset))
  if block.origin then lines[#lines + 1] = "made at " .. block.origin end
  if block.time then lines[#lines + 1] = "at " .. seconds_text(block.time) end
  return table.concat(lines, "\n")
end

-- The blocks of a segment as they are drawn: those too narrow to be seen are joined with the next of their kind.
local function join_blocks(segment, narrow)
  local list, last = {}, nil
  for _, b in ipairs(segment.blocks) do
    local kind = b.state == "free" and "free" or b.kind
    if last and last.kind == kind and kind ~= "free" and b.size < narrow and last.width < narrow
      and last.origin == b.origin then
      last.size, last.n, last.time = b.offset + b.size - last.offset, last.n + 1, nil
    elseif not (kind == "free" and b.size < narrow / 2) then
      last = {
        kind = kind, offset = b.offset, size = b.size, width = b.size, n = 1, requested = b.requested,
        origin = b.origin, time = b.time, small = b.small, waiting = b.state == "waiting",
      }
      list[#list + 1] = last
    end
  end
  return list
end

local function draw_block(elements, block, row_bytes, top, origins)
  local from, to = block.offset, block.offset + block.size
  local text = block_text(block)
  while from < to do
    local row = math.floor(from / row_bytes)
    local stop = math.min(to, (row + 1) * row_bytes)
    local x, width = (from - row * row_bytes) / row_bytes * INNER, (stop - from) / row_bytes * INNER
    local free = block.kind == "free"
    elements[#elements + 1] = svg.element("rect", {
      x = LEFT + x, y = top + row * (ROW + GAP), width = math.max(width, 1), height = ROW,
      fill = free and (block.small and FREE_SMALL or FREE) or COLOR[block.kind] or COLOR.other,
      stroke = width > 3 and "#fff" or "none", stroke_width = 0.6, class = free and "free" or "block",
      data_o = block.origin and origins[block.origin] and ("%d"):format(origins[block.origin]) or nil,
    }, svg.element("title", {}, svg.escape(text)))
    from = stop
  end
end

-- Bytes per row: a power of two, so that all takes about 16 rows.
local function bytes_per_row(total)
  local bytes = 4096
  while bytes * 16 < total do bytes = bytes * 2 end
  return bytes
end

local function draw_segments(elements, snapshot, top, origins)
  local row_bytes = bytes_per_row(snapshot.reserved_bytes)
  local rows, y = 0, top
  for i, segment in ipairs(snapshot.segments) do
    local used = 0
    for _, b in ipairs(segment.blocks) do
      if b.state == "used" then used = used + b.size end
    end
    if rows > MOST_ROWS then
      elements[#elements + 1] = svg.text(LEFT, y + 12, ("... and %d more segments"):format(#snapshot.segments - i + 1))
      y = y + 20
      break
    end
    local whose = segment.pool and (", pool \"%s\""):format(segment.pool) or ""
    if segment.stream then whose = ("%s, stream 0x%x"):format(whose, segment.stream) end
    local text = ("segment %d at 0x%x%s: %s with memory behind it, %s in use"):format(i, segment.address, whose,
      bytes_text(segment.size), bytes_text(used))
    elements[#elements + 1] = svg.text(LEFT, y + 11, text, { fill = "#444" })
    y = y + 18
    local n = math.ceil(segment.size / row_bytes)
    for row = 0, n - 1 do
      elements[#elements + 1] = svg.text(LEFT - 8, y + row * (ROW + GAP) + 13,
        "+" .. bytes_text(row * row_bytes):gsub("%.00 ", " "), { text_anchor = "end", fill = "#666", font_size = 11 })
    end
    for _, block in ipairs(join_blocks(segment, row_bytes / INNER * 2)) do
      draw_block(elements, block, row_bytes, y, origins)
    end
    rows, y = rows + n, y + n * (ROW + GAP) + 8
  end
  return y
end

-- ---------------------------------------------------------------------------------------------
-- The lines that hold most

local function add_to(lines, origin, bytes, field)
  local name = origin or "(not recorded)"
  local line = lines[name]
  if not line then
    line = { name = name, now = 0, blocks = 0, peak = 0, kinds = {} }
    lines[name] = line
    lines[#lines + 1] = line
  end
  line[field] = line[field] + bytes
  return line
end

-- Lines with the bytes that they hold now and, from the events, held at the peak.
local function read_lines(snapshot, timeline)
  local lines, live = {}, {}
  for _, segment in ipairs(snapshot.segments) do
    for _, b in ipairs(segment.blocks) do
      if b.state == "used" then
        local line = add_to(lines, b.origin, b.size, "now")
        line.blocks = line.blocks + 1
        line.kinds[b.kind] = (line.kinds[b.kind] or 0) + b.size
        live[b.data or b.address] = b
      end
    end
  end
  if timeline then
    for i = #snapshot.events, timeline.peak.events + 1, -1 do
      local event = snapshot.events[i]
      if event.what == "alloc" then
        live[event.address] = nil
      elseif event.what == "free" then
        live[event.address] = event
      end
    end
    for _, b in pairs(live) do
      local line = add_to(lines, b.origin, b.size, "peak")
      if line.now == 0 then line.kinds[b.kind] = (line.kinds[b.kind] or 0) + b.size end
    end
  end
  table.sort(lines, function(a, b)
    if a.now ~= b.now then return a.now > b.now end
    if a.peak ~= b.peak then return a.peak > b.peak end
    return a.name < b.name
  end)
  local numbers = {}
  for i, line in ipairs(lines) do numbers[line.name] = i end
  return lines, numbers
end

local function kinds_of(line)
  local names = {}
  for _, kind in ipairs(KINDS) do
    if line.kinds[kind[1]] then
      names[#names + 1] = ("<span class=\"swatch\" style=\"background:%s\"></span>%s"):format(kind[2], kind[1])
    end
  end
  return table.concat(names, " ")
end

local function number_cell(element, value)
  return ("<%s class=\"n\">%s</%s>"):format(element, value, element)
end

local MOST_LINES = 30

local function lines_table(lines, timeline)
  local rows = {}
  for i = 1, math.min(#lines, MOST_LINES) do
    local line = lines[i]
    local cells = { number_cell("td", bytes_text(line.now)), number_cell("td", line.blocks) }
    if timeline then cells[3] = number_cell("td", bytes_text(line.peak)) end
    rows[i] = ("<tr data-o=\"%d\">%s<td>%s</td><td><code>%s</code></td></tr>"):format(i, table.concat(cells),
      kinds_of(line), svg.escape(line.name))
  end
  if #lines > MOST_LINES then
    rows[#rows + 1] = ("<tr><td colspan=\"%d\">and %d more lines</td></tr>"):format(timeline and 5 or 4,
      #lines - MOST_LINES)
  end
  local head = number_cell("th", "now") .. number_cell("th", "blocks")
  if timeline then head = head .. number_cell("th", "at the peak") end
  return ("<table><tr>%s<th>kinds</th><th>line</th></tr>\n%s</table>"):format(head, table.concat(rows, "\n"))
end

-- ---------------------------------------------------------------------------------------------
-- The page

local function draw_legend(elements, page, top)
  local snapshot = page.snapshot
  local x = LEFT
  local function entry(color, text)
    local width = 24 + #text * 6.6
    if x + width > WIDTH - RIGHT then x, top = LEFT, top + 20 end
    elements[#elements + 1] = svg.element("rect", { x = x, y = top, width = 12, height = 12, fill = color, rx = 2 })
    elements[#elements + 1] = svg.text(x + 17, top + 10.5, text)
    x = x + width + 8
  end
  for _, kind in ipairs(KINDS) do
    local now = snapshot.kinds[kind[1]] or 0
    if now > 0 or page.shown[kind[1]] then entry(kind[2], ("%s %s"):format(kind[1], bytes_text(now))) end
  end
  local free, free_small = 0, 0
  for _, segment in ipairs(snapshot.segments) do
    for _, b in ipairs(segment.blocks) do
      if b.state == "free" and b.small then
        free_small = free_small + b.size
      elseif b.state == "free" then
        free = free + b.size
      end
    end
  end
  entry(FREE, "free " .. bytes_text(free))
  entry(FREE_SMALL, "free for small blocks " .. bytes_text(free_small))
  return top + 30
end

local function heading(elements, y, text)
  elements[#elements + 1] = svg.text(LEFT, y + 14, text, { font_size = 15, font_weight = "bold" })
  return y + 28
end

function Page:draw()
  local elements, y = {}, 10
  y = draw_legend(elements, self, y)
  if self.timeline then
    y = heading(elements, y, "Live bytes over time, by kind")
    y = draw_timeline(elements, self.timeline, y + 16) + 12
  end
  y = heading(elements, y, "Segments and their blocks")
  y = draw_segments(elements, self.snapshot, y, self.numbers)
  return svg.document(WIDTH, y + 4, elements)
end

-- The pictures alone.
function Page:svg() return self:draw() end

local STYLE = [[
body { font: 14px sans-serif; margin: 24px auto; width: 1000px; color: #222 }
h1 { font-size: 22px; margin: 0 0 4px 84px } h2 { font-size: 15px; margin: 18px 0 8px 84px }
p { margin: 0 0 8px 84px } code { font: 12px monospace }
table { border-collapse: collapse; margin-left: 84px } th { text-align: left; border-bottom: 1px solid #888 }
td, th { padding: 3px 14px 3px 0; vertical-align: top } .n { text-align: right; white-space: nowrap }
tr[data-o]:hover { background: #f2f6fb } .swatch { display: inline-block; width: 9px; height: 9px; margin-right: 4px }
svg.lit .block { opacity: .15 } svg.lit .block.on { opacity: 1 }
.block:hover { stroke: #000; stroke-width: 1.5 }
#tip { position: fixed; display: none; white-space: pre; background: #222; color: #fff; padding: 6px 9px;
  border-radius: 4px; font-size: 12px; pointer-events: none }
]]

local SCRIPT = [[
const tip = document.getElementById('tip'), picture = document.querySelector('svg');
for (const t of picture.querySelectorAll('title')) { t.parentNode.dataset.t = t.textContent; t.remove(); }
function show(e, text) {
  tip.textContent = text; tip.style.display = 'block';
  tip.style.left = Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
  tip.style.top = Math.min(e.clientY + 14, innerHeight - tip.offsetHeight - 8) + 'px';
}
function bytes(n) {
  for (const u of ['B', 'KiB', 'MiB', 'GiB']) { if (n < 1024) return +n.toFixed(2) + ' ' + u; n /= 1024; }
  return n.toFixed(2) + ' TiB';
}
document.addEventListener('mousemove', e => {
  const d = e.target.dataset;
  if (d && d.t) return show(e, d.t);
  if (e.target.id !== 'timeline') { tip.style.display = 'none'; return; }
  const box = e.target.getBoundingClientRect(), c = (e.clientX - box.left) / box.width * INNER;
  let row = DATA[0];
  for (const r of DATA) if (r[0] <= c) row = r;
  let total = 0, text = '';
  for (let i = KINDS.length; i > 0; i--) {
    total += row[i];
    if (row[i]) text += '\n' + KINDS[i - 1] + ' ' + bytes(row[i]);
  }
  const y = e.target.y.baseVal.value;
  document.getElementById('cursor').setAttribute('d', 'M' + (LEFT + c) + ' ' + y + 'v' + e.target.height.baseVal.value);
  text += '\n' + bytes(row[KINDS.length + 1]) + ' reserved';
  show(e, (c / INNER * LENGTH).toPrecision(4) + ' s: ' + bytes(total) + text);
});
for (const tr of document.querySelectorAll('tr[data-o]')) {
  tr.addEventListener('mouseenter', () => {
    picture.classList.add('lit');
    for (const r of picture.querySelectorAll('.block')) r.classList.toggle('on', r.dataset.o === tr.dataset.o);
  });
  tr.addEventListener('mouseleave', () => picture.classList.remove('lit'));
}
]]

local function constants(timeline)
  local names = {}
  for i, kind in ipairs(KINDS) do names[i] = ("'%s'"):format(kind[1]) end
  return ("const KINDS = [%s], LEFT = %d, INNER = %d, LENGTH = %.9g, DATA = %s;\n"):format(table.concat(names, ", "),
    LEFT, INNER, timeline and timeline.length or 0, timeline and timeline_data(timeline) or "[]")
end

function Page:html()
  local s = self.snapshot
  local summary = ("%s in use by %d blocks, %s reserved"):format(bytes_text(s.allocated_bytes), s.blocks,
    bytes_text(s.reserved_bytes))
  if s.events then
    summary = ("%s; %d events in %s"):format(summary, #s.events, seconds_text(s.seconds))
    if s.events_lost > 0 then summary = ("%s, %d older ones were overwritten"):format(summary, s.events_lost) end
  else
    summary = summary .. "; no events (cnn.record_memory(true) before, to see lines and a timeline)"
  end
  return table.concat {
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", svg.escape(self.title),
    "</title>\n<style>\n", STYLE, "</style></head><body>\n<h1>", svg.escape(self.title), "</h1>\n<p>",
    svg.escape(summary), ".</p>\n", self:draw(), "<h2>Lines that hold most</h2>\n",
    lines_table(self.lines, self.timeline), "\n<div id=\"tip\"></div>\n<script>\n", constants(self.timeline), SCRIPT,
    "</script></body></html>\n",
  }
end

-- Writes the page, or the pictures alone when the path ends in .svg.
function Page:save(path)
  svg.write("viz.memory: save", path, path:find("%.svg$") and self:svg() or self:html())
  return self
end

function Page:__tostring()
  return "page of " .. tostring(self.snapshot)
end

local memory = {}

-- viz.memory(snapshot, {title =}): a page of what cnn.memory_snapshot gave. Has html(), svg() and save(path).
function memory.memory(snapshot, ...)
  if type(snapshot) ~= "table" or type(snapshot.segments) ~= "table" or type(snapshot.kinds) ~= "table" then
    fail("viz.memory: expected what cnn.memory_snapshot gives, got " .. describe(snapshot))
  end
  local o = options.read("viz.memory", { "title" }, ...)
  local timeline = snapshot.events and read_timeline(snapshot) or nil
  local lines, numbers = read_lines(snapshot, timeline)
  return setmetatable({
    snapshot = snapshot, title = o.title or "Memory of " .. snapshot.device, timeline = timeline, lines = lines,
    numbers = numbers, shown = timeline and timeline.shown or {},
  }, Page)
end

return memory
