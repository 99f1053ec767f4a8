-- Enough bytes are free, and still there is no room: they lie in pieces. An allocator whose memory can't
-- grow in place is stuck; this library's moves free pages to where they are needed.
--   luajit examples/fundamentals/fragmentation.lua [--device cpu] [--svg folder]
local cnn = require "cnn"
local options = {}
for i = 1, #arg, 2 do options[arg[i]] = arg[i + 1] end
local device, folder = options["--device"] or "cpu", options["--svg"]
local MIB, LIMIT = 2 ^ 20, 32 -- in MiB from here on

-- The trace: eight blocks of 4 MiB, every other one is freed, then a block of 16 MiB.
local function trace(take, give)
  local blocks = {}
  for i = 1, 8 do blocks[i] = take(4) end
  for i = 1, 8, 2 do give(blocks[i]) end
  return take(16)
end

-- Blocks {at, size} in a row of addresses as a picture; `hole` is what lies between them.
local function picture(name, title, blocks, hole)
  if not folder then return end
  local svg = require "cnn.viz.svg"
  local list, x, scale = { svg.text(10, 20, title) }, 10, 18 -- pixels per MiB
  local function box(size, color, label)
    list[#list + 1] = svg.element("rect", { x = x, y = 30, width = size * scale, height = 40, fill = color,
      stroke = "#444" })
    list[#list + 1] = svg.text(x + size * scale / 2, 54, label, { text_anchor = "middle" })
    x = x + size * scale
    list[#list + 1] = svg.text(x, 86, ("+%d MiB"):format((x - 10) / scale), { text_anchor = "middle", font_size = 10 })
  end
  table.sort(blocks, function(a, b) return a.at < b.at end)
  for _, b in ipairs(blocks) do
    local gap = b.at - (x - 10) / scale
    if gap > 0 then box(gap, "white", hole) end
    box(b.size, b.size > 4 and "#f5b26b" or "#9dc3e6", ("%d MiB"):format(b.size))
  end
  svg.write("fragmentation", folder .. "/" .. name .. ".svg", svg.document(x + 30, 96, list))
end

-- First fit in one segment of LIMIT MiB, as malloc'ed device memory is.
local fixed = { { at = 0, size = LIMIT } }
local function free_bytes(blocks)
  local all, largest = 0, 0
  for _, b in ipairs(blocks) do
    if not b.taken then all, largest = all + b.size, math.max(largest, b.size) end
  end
  return all, largest
end
local refused = not trace(function(size)
  for i, b in ipairs(fixed) do
    if not b.taken and b.size >= size then
      if b.size > size then table.insert(fixed, i + 1, { at = b.at + size, size = b.size - size }) end
      b.size, b.taken = size, true
      return b
    end
  end
end, function(b) b.taken = false end)
local all, largest = free_bytes(fixed)
print(("one segment of %d MiB: free %d MiB, largest piece %d MiB, 16 MiB refused: %s"):format(LIMIT, all, largest,
  tostring(refused)))
local taken = {}
for _, b in ipairs(fixed) do if b.taken then taken[#taken + 1] = b end end
picture("fixed", "First fit in one segment of 32 MiB: 16 MiB are free, and there is no room for 16 MiB", taken, "free")

-- The same trace on the library's allocator, under the same limit.
cnn.empty_cache(device)
local unlimited = cnn.memory_stats(device).limit
cnn.set_memory_limit(cnn.memory_reserved(device) + LIMIT * MIB, device)
local live = {}
local last = trace(function(size)
  local t = cnn.empty(size * MIB / 4, { device = device })
  live[#live + 1] = t
  return t
end, function(t)
  for i, other in ipairs(live) do if other == t then table.remove(live, i) break end end
  t:free()
end)
print("cnn, the same limit: 16 MiB given: " .. tostring(last.nbytes == 16 * MIB))
print(("reserved within the limit: %s"):format(tostring(cnn.memory_reserved(device) <= cnn.memory_stats(device).limit)))
local low, blocks = math.huge, {}
for _, t in ipairs(live) do low = math.min(low, t:data_ptr()) end
for i, t in ipairs(live) do
  blocks[i] = { at = (t:data_ptr() - low) / MIB + 4, size = t.nbytes / MIB } -- the first 4 are gone
end
picture("growing", "cnn, 32 MiB: the freed blocks' pages moved to the end; the holes are addresses without memory",
  blocks, "no memory")
cnn.set_memory_limit(unlimited, device)
