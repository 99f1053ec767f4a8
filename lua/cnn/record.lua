-- SPDX-License-Identifier: MIT
-- Seeing memory: the record of who allocates, snapshots of a device's memory, the live tensors, and what a
-- function leaves behind. `device` is the default device when left out; it may be a pool.
local core = require "cnn.core"
local heap = require "cnn.heap"
local options = require "cnn.options"
local bytes_text = require("cnn.memory").bytes_text

local fail, describe = core.fail, core.describe

local record = {}

-- ---------------------------------------------------------------------------------------------
-- Recording

local MAX_EVENTS = 100000

-- cnn.record_memory(true): from now on every block remembers the line of the script that made it, and what is
-- made and freed is written down, the last 100000 events ({max_events = n}); what was written before is
-- forgotten. cnn.record_memory(false): stops; the events stay for a snapshot. Gives whether it was on.
function record.record_memory(on, ...)
  if type(on) == "table" and select("#", ...) == 0 then return record.record_memory(true, on) end
  if type(on) ~= "boolean" then
    fail("record_memory: expected true, false or {max_events =}, got " .. describe(on))
  end
  local o = options.read("record_memory", { "max_events" }, ...)
  local max = o.max_events or MAX_EVENTS
  if type(max) ~= "number" or max < 0 or max ~= math.floor(max) then
    fail("record_memory: max_events: expected an integer >= 0, got " .. describe(max))
  end
  if on then return core._record("events", max) ~= "off" end
  return core._record("off") ~= "off"
end

-- ---------------------------------------------------------------------------------------------
-- Snapshots

local Snapshot = {}
Snapshot.__index = Snapshot
Snapshot.__name = "cnn.MemorySnapshot"

local function add_block(segment, state, address, size, fields)
  local block = fields or {}
  block.state, block.address, block.offset, block.size = state, address, address - segment.address, size
  segment.blocks[#segment.blocks + 1] = block
  return block
end

-- What no small block takes of a bed is free for other small ones.
local function fill_bed(segment, from, to)
  if to > from then add_block(segment, "free", from, to - from).small = true end
end

local function used_block(piece, small)
  return {
    requested = piece.requested, data = piece.data, kind = piece.kind, origin = piece.origin, small = small,
    serial = piece.serial ~= 0 and piece.serial or nil,
  }
end

-- Segments: runs of address space with memory behind them, cut into blocks without gaps.
local function read_segments(snapshot, pieces)
  local segment, finish, i = nil, nil, 1
  while pieces[i] do
    local piece = pieces[i]
    local address, size = piece.address, piece.size
    snapshot.address_space = snapshot.address_space + size
    i = i + 1
    if piece.what ~= "void" then
      if not segment or finish ~= address or segment.pool ~= piece.pool or segment.stream ~= piece.stream then
        segment = { address = address, size = 0, blocks = {}, pool = piece.pool, stream = piece.stream }
        snapshot.segments[#snapshot.segments + 1] = segment
      end
      finish = address + size
      segment.size = finish - segment.address
      if piece.what == "free" then
        add_block(segment, "free", address, size)
      elseif piece.what == "large" then
        add_block(segment, piece.waiting and "waiting" or "used", address, piece.taken, used_block(piece, false))
        -- What sanitizer builds keep behind a block.
        if size > piece.taken then add_block(segment, "free", address + piece.taken, size - piece.taken) end
      else -- a bed
        local at = address
        while pieces[i] and pieces[i].what == "small" do
          fill_bed(segment, at, pieces[i].address)
          at = pieces[i].address + pieces[i].taken
          add_block(segment, pieces[i].waiting and "waiting" or "used", pieces[i].address, pieces[i].taken,
            used_block(pieces[i], true))
          i = i + 1
        end
        fill_bed(segment, at, finish)
      end
    end
  end
end

local function count(snapshot)
  for _, segment in ipairs(snapshot.segments) do
    snapshot.reserved_bytes = snapshot.reserved_bytes + segment.size
    for _, block in ipairs(segment.blocks) do
      if block.state == "used" then
        snapshot.allocated_bytes = snapshot.allocated_bytes + block.size
        snapshot.blocks = snapshot.blocks + 1
        snapshot.kinds[block.kind] = (snapshot.kinds[block.kind] or 0) + block.size
      end
    end
  end
end

-- Events get times in seconds since the first one, and blocks the time of their making.
local function read_events(snapshot, events, now)
  local first, made = events[1] and events[1].time, {}
  for _, event in ipairs(events) do
    event.time = event.time - first
    if event.what == "alloc" then made[event.serial] = event.time end
    if event.serial == 0 then event.serial = nil end
  end
  for _, segment in ipairs(snapshot.segments) do
    for _, block in ipairs(segment.blocks) do
      if block.serial then block.time = made[block.serial] end
    end
  end
  if first then
    snapshot.events = events
    snapshot.seconds = now - first
  end
end

-- cnn.memory_snapshot{device =, file =}: a table of
--   segments: each with address, size, blocks, pool (the name, if it is not the device's own), and stream (if it is
--     not the default one); a block has state ("used", "free", or "waiting": freed, and another stream works on it
--     still), address, offset, size, and in use requested, data (where its bytes are), kind,
--     and, of what was recorded, origin (the script's line), serial and time; small: among small blocks
--   allocated_bytes, blocks, kinds (bytes by kind), reserved_bytes (with memory behind them), address_space
--   events (when recorded): what ("alloc", "free", "retag"), time, address, size, kind, origin, serial, and
--     reserved: the bytes that the device had given then; of a retag was, the kind before; "trim" has time, size
--     and reserved: so much went back to the device; events_lost: those that the ring no longer holds; seconds:
--     the time of the snapshot. Times count from the first event.
-- With `file` the snapshot is also written there as a page to look at (cnn.viz.memory).
function record.memory_snapshot(...)
  local o = options.read("memory_snapshot", { "device", "file" }, ...)
  options.expect("memory_snapshot", "file", o.file, "string")
  -- Events first: a block of theirs may be gone by then, but every block's making is known.
  local events, lost = core._memory_events(o.device)
  local now = core.clock()
  local device = o.device or core.get_default_device()
  if type(device) == "userdata" then device = ("pool \"%s\""):format(device:name()) end
  local snapshot = setmetatable({
    device = device, segments = {}, kinds = {}, allocated_bytes = 0, blocks = 0, reserved_bytes = 0, address_space = 0,
  }, Snapshot)
  read_segments(snapshot, core._memory_pieces(o.device))
  count(snapshot)
  read_events(snapshot, events, now)
  snapshot.events_lost = lost
  if o.file then snapshot:save(o.file) end
  return snapshot
end

-- Writes it as a page to look at.
function Snapshot:save(path)
  require("cnn.viz.memory").memory(self):save(path)
  return self
end

function Snapshot:__tostring()
  return ("memory of %s: %d blocks, %s in use of %s reserved, %s"):format(self.device, self.blocks,
    bytes_text(self.allocated_bytes), bytes_text(self.reserved_bytes),
    self.events and ("%d events"):format(#self.events) or "no events recorded")
end

-- ---------------------------------------------------------------------------------------------
-- Live tensors

-- Collects until nothing more is let go of.
local function settle(device)
  if type(jit) == "table" then jit.flush() end -- traces hold the functions that they call
  local bytes
  repeat
    bytes = core.memory_allocated(device)
    for _ = 1, 2 do collectgarbage() end
    local more = core._drain()
  until not more and core.memory_allocated(device) == bytes
end

-- What is known of the tensors that Lua can reach, by the address of their storage: of several the one that
-- Lua holds before the one that a graph holds, and then the largest.
local Finder = {}
Finder.__index = Finder

function Finder:put(place, rank, held)
  local known = self.places[place.address]
  if not known then
    known = { handles = 0, rank = 9 }
    self.places[place.address] = known
  end
  if rank == 1 then known.handles = known.handles + 1 end
  if rank > known.rank or rank == known.rank and place.bytes <= known.tensor_bytes then return end
  known.rank, known.tensor_bytes = rank, place.bytes
  known.shape, known.dtype, known.requires_grad = place.shape, place.dtype, place.requires_grad
  known.held = held()
end

function Finder:tensor(tensor, rank, held)
  local place, grad = core._tensor_place(tensor)
  if not place then return end
  self:put(place, rank, held)
  if grad then self:put(grad, 2, function() return "gradient of " .. held() end) end
  local node = tensor.grad_fn
  if node then self:graph(node, held) end
end

-- What the nodes behind one save, and the leaves that they lead to.
function Finder:graph(root, held)
  local stack = { root }
  while #stack > 0 do
    local node = table.remove(stack)
    local info = core.node_info(node)
    if not self.nodes[info.sequence] then
      self.nodes[info.sequence] = true
      for _, saved in ipairs(info.saved) do
        self:put(saved, 3, function() return ("saved by %s behind %s"):format(info.name, held()) end)
      end
      for _, input in ipairs(core.node_next(node)) do
        if core.is_tensor(input) then
          self:tensor(input, 3, function() return "a leaf behind " .. held() end)
        else
          stack[#stack + 1] = input
        end
      end
    end
  end
end

function Finder:module(module, path)
  for name, p in module:named_parameters() do
    self:tensor(p, 2, function() return ("%s of %s"):format(name, path()) end)
  end
  for name, b in module:named_buffers() do
    self:tensor(b, 2, function() return ("%s of %s"):format(name, path()) end)
  end
end

-- `box` is the core's optimizer.
function Finder:optimizer(box, path)
  for k = 1, core.optimizer_group_count(box) do
    for _, p in ipairs(core.optimizer_params(box, k)) do
      local _, state = core.optimizer_state(box, p)
      for name, t in pairs(state or {}) do
        self:tensor(t, 2, function() return ("%s of %s"):format(name, (path():gsub("%.box,", ","))) end)
      end
    end
  end
end

local function find_tensors(level)
  local finder = setmetatable({ places = {}, nodes = {} }, Finder)
  heap.each(level + 1, function(object, path)
    if core.is_tensor(object) then
      finder:tensor(object, 1, path)
    elseif core.is_module(object) then
      finder:module(object, path)
    elseif describe(object) == "an optimizer" then
      finder:optimizer(object, path)
    end
  end)
  return finder.places
end

local List = {}
List.__index = List
List.__name = "cnn.TensorList"

local Entry = {}
Entry.__index = Entry

local function larger(a, b)
  if a.bytes ~= b.bytes then return a.bytes > b.bytes end
  return (a.address or 0) < (b.address or 0)
end

-- The device's blocks that `wanted` takes, with what is known of their tensors, the largest first.
local function list_blocks(level, device, wanted)
  local places = find_tensors(level + 1)
  local list = setmetatable({ bytes = 0, count = 0 }, List)
  for _, piece in ipairs(core._memory_pieces(device)) do
    if piece.kind and not piece.waiting and wanted(piece) then
      local known = places[piece.data] or {}
      list[#list + 1] = setmetatable({
        bytes = piece.taken, requested = piece.requested, kind = piece.kind, origin = piece.origin,
        pool = piece.pool, address = piece.data, shape = known.shape, dtype = known.dtype,
        requires_grad = known.requires_grad, handles = known.handles or 0, held = known.held,
      }, Entry)
      list.bytes = list.bytes + piece.taken
    end
  end
  list.count = #list
  table.sort(list, larger)
  return list
end

-- The line alone, where the function has no name.
local function origin_text(origin)
  return (origin:gsub(" in function <[^>]*>$", ""))
end

function Entry:__tostring()
  return ("%s of %s: %s%s; %s%s"):format(bytes_text(self.bytes), self.kind,
    self.shape and ("%s %s"):format(tostring(self.shape), self.dtype) or "shape unknown",
    self.requires_grad and ", requires grad" or "", self.held or "held by what Lua can't see",
    self.origin and "; made at " .. origin_text(self.origin) or "")
end

local GROUPS = { kind = true, dtype = true, shape = true, origin = true, held = true }

local function group(list, by)
  local groups = setmetatable({ bytes = list.bytes, count = list.count, by = by }, List)
  local known = {}
  for _, entry in ipairs(list) do
    local name = entry[by] and tostring(entry[by]) or "?"
    local g = known[name]
    if not g then
      g = { name = name, bytes = 0, count = 0 }
      known[name] = g
      groups[#groups + 1] = g
    end
    g.bytes, g.count = g.bytes + entry.bytes, g.count + 1
    g[g.count] = entry
  end
  table.sort(groups, function(a, b)
    if a.bytes ~= b.bytes then return a.bytes > b.bytes end
    return a.name < b.name
  end)
  return groups
end

-- cnn.live{group =, device =} or cnn.live(device): what is live on the device now, after a collection, the largest
-- first: a list of {bytes, requested, kind, shape, dtype, requires_grad, handles (how many Lua has), held (by what),
-- origin (when recorded)}, with `bytes` and `count` of all. Tensors that share bytes are one entry. What only a graph,
-- an optimizer or the library itself holds is there too; where nothing in Lua leads to it, without shape and dtype.
-- group = "kind", "dtype", "shape", "origin" or "held": a list of groups {name, bytes, count, entries ...}.
-- tostring gives a table.
function record.live(...)
  local o = options.read("live", { "group", "device" }, ...)
  local first = o.group -- may be the device as well
  if o.device == nil and first ~= nil and not GROUPS[first] and (type(first) == "userdata" or type(first) == "string"
    and pcall(core.memory_allocated, first)) then
    o.group, o.device = nil, first
  end
  if o.group ~= nil and not GROUPS[o.group] then
    fail("live: group: expected \"kind\", \"dtype\", \"shape\", \"origin\" or \"held\", got " .. describe(o.group))
  end
  settle(o.device)
  local list = list_blocks(2, o.device, function() return true end)
  if o.group then list = group(list, o.group) end
  return list
end

-- ---------------------------------------------------------------------------------------------
-- Leaks

local function is_newer(serial, mark)
  local ahead = (serial - mark) % 2 ^ 32
  return serial ~= 0 and ahead > 0 and ahead < 2 ^ 31
end

-- Calls fn and forgets its results.
local function run(fn, ...)
  local ok, message = pcall(fn, ...)
  return ok, not ok and message or nil
end

-- cnn.leaks(fn, ...): calls fn(...), collects, and gives a list, as cnn.live does, of what was made meanwhile on the
-- default device and is still there: empty when nothing is. The results of fn do not count. Each entry says which
-- line made it (origin) and what holds it. An error of fn's passes through.
function record.leaks(fn, ...)
  if not options.callable(fn) then
    fail(("leaks: argument 1 (fn): expected a function (or a module) to call, got %s; write cnn.leaks(fn, ...): it "
      .. "calls fn(...)"):format(describe(fn)))
  end
  local mark = core._record_serial()
  local before = core._record("stamps")
  if before == "events" then core._record(before) end
  local ok, message = run(fn, ...)
  core._record(before)
  if not ok then error(message, 0) end
  settle()
  local list = list_blocks(2, nil, function(piece) return is_newer(piece.serial, mark) end)
  list.left = true
  return list
end

-- ---------------------------------------------------------------------------------------------
-- Tables to read

local function shape_text(entry)
  return entry.shape and tostring(entry.shape) or "?"
end

-- Rows of texts as columns, the first `right` flushed right.
local function columns(rows, right)
  local widths = {}
  for _, row in ipairs(rows) do
    for i, text in ipairs(row) do widths[i] = math.max(widths[i] or 0, #text) end
  end
  local lines = {}
  for k, row in ipairs(rows) do
    local cells = {}
    for i, text in ipairs(row) do
      local space = (" "):rep(widths[i] - #text)
      cells[i] = i <= right and space .. text or text .. space
    end
    lines[k] = ("  " .. table.concat(cells, "  ")):gsub("%s+$", "")
  end
  return lines
end

local MOST = 40

local function rest_text(list)
  if #list <= MOST then return nil end
  local bytes = 0
  for i = MOST + 1, #list do bytes = bytes + list[i].bytes end
  return ("  ... and %d more, %s"):format(#list - MOST, bytes_text(bytes))
end

function List:__tostring()
  if self.left and #self == 0 then return "nothing is left behind" end
  local head = ("%d %s, %s"):format(self.count, self.left and "left behind" or "live", bytes_text(self.bytes))
  if #self == 0 then return head end
  local rows
  if self.by then
    rows = { { "bytes", "count", self.by } }
    for i = 1, math.min(#self, MOST) do
      rows[i + 1] = { bytes_text(self[i].bytes), ("%d"):format(self[i].count), self[i].name }
    end
  else
    local recorded = false
    for _, e in ipairs(self) do recorded = recorded or e.origin end
    rows = { { "bytes", "shape", "dtype", "kind", "grad", "held by", recorded and "made at" or nil } }
    for i = 1, math.min(#self, MOST) do
      local e = self[i]
      rows[i + 1] = {
        bytes_text(e.bytes), shape_text(e), e.dtype or "?", e.kind, e.requires_grad and "yes" or "", e.held or "?",
        e.origin and origin_text(e.origin),
      }
    end
  end
  local lines = columns(rows, self.by and 2 or 1)
  table.insert(lines, 1, head)
  lines[#lines + 1] = rest_text(self)
  return table.concat(lines, "\n")
end

return record
