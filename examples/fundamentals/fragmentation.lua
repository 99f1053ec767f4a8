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

-- A row of blocks {at, size, taken} as a picture.
local function picture(name, title, segment, blocks)
  if not folder then return end
  local svg = require "cnn.viz.svg"
  local list = { svg.text(10, 20, title),
    svg.element("rect", { x = 10, y = 30, width = segment * 12, height = 40, fill = "none", stroke = "black" }) }
  for _, b in ipairs(blocks) do
    if b.taken then
      list[#list + 1] = svg.element("rect", { x = 10 + b.at * 12, y = 30, width = b.size * 12, height = 40,
        fill = b.size > 4 and "orange" or "steelblue", stroke = "white" })
    end
  end
  svg.write("fragmentation", folder .. "/" .. name .. ".svg", svg.document(segment * 12 + 20, 80, list))
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
picture("fixed", "a segment that can't grow in place: 16 MiB are free, no room for 16 MiB", LIMIT, fixed)

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
local function place(t) return t:data_ptr() end
local low, high, blocks = math.huge, 0, {}
for _, t in ipairs(live) do low = math.min(low, place(t)) end
for i, t in ipairs(live) do
  blocks[i] = { at = (place(t) - low) / MIB, size = t.nbytes / MIB, taken = true }
  high = math.max(high, blocks[i].at + blocks[i].size)
end
picture("growing", "cnn: free pages moved behind the last block; the holes are addresses without memory", high, blocks)
cnn.set_memory_limit(unlimited, device)
