-- SPDX-License-Identifier: MIT
-- Who holds a tensor: a walk over everything that Lua can reach, from the locals of the running functions,
-- the globals and the registry, through tables, upvalues, coroutines and userdata, shortest ways first.
--
-- Weak references do not count. What only the caller's own callers in C hold, or the stack of the coroutine
-- that resumed this one on Lua 5.1, is not seen.
local getinfo, getlocal, getupvalue, getmetatable = debug.getinfo, debug.getlocal, debug.getupvalue,
  debug.getmetatable
local unpack = table.unpack or unpack
local environment = debug.getuservalue or debug.getfenv
-- Extra arguments are locals of negative numbers where Lua has that.
local has_varargs = type(jit) == "table" or _VERSION ~= "Lua 5.1"

local heap = {}

local REACHABLE = { table = true, ["function"] = true, thread = true, userdata = true }

-- A name for the way from an object to what it holds.
local function key_text(key)
  if type(key) == "string" and key:find("^[%a_][%w_]*$") then return "." .. key end
  if type(key) == "string" then return ("[%q]"):format(key) end
  if type(key) == "number" then return ("[%g]"):format(key) end
  return "[" .. type(key) .. "]"
end

-- Stand for places: of an upvalue its function, of a local of a coroutine that one.
local UPVALUE, THREAD = "upvalue of ", "local of the coroutine "

local Walk = {}
Walk.__index = Walk

-- Puts an object in line, once. `parent` is the entry that holds it; `place` says where a
-- way begins.
function Walk:add(object, parent, label, place)
  if not REACHABLE[type(object)] or self.seen[object] then return end
  self.seen[object] = true
  self.last = self.last + 1
  self[self.last] = { object = object, parent = parent, label = label, place = place }
end

local function frame_name(info)
  if info.what == "main" then return "main chunk" end
  return info.name and "function " .. info.name or ("function <%s:%d>"):format(info.short_src, info.linedefined)
end

-- The locals of one level of a coroutine's stack (nil: the running one). False past the last level.
local function add_frame(walk, thread, level, parent)
  local info
  if thread then
    info = getinfo(thread, level, "Snf")
  else
    level = level + 1 -- this function's own
    info = getinfo(level, "Snf")
  end
  if not info then return false end
  local name = frame_name(info)
  for _, step in ipairs(has_varargs and { 1, -1 } or { 1 }) do
    local i = step
    while true do
      local key, value
      if thread then
        key, value = getlocal(thread, level, i)
      else
        key, value = getlocal(level, i)
      end
      if not key then break end
      if key:sub(1, 1) == "(" then
        if REACHABLE[type(value)] then
          walk.later[#walk.later + 1] = { value, parent, "a value", thread and THREAD or "in " .. name }
        end
      else
        walk:add(value, parent, key, thread and THREAD or "local in " .. name)
      end
      i = i + step
    end
  end
  walk:add(info.func, parent, name)
  return true
end

function Walk:table(entry)
  local object = entry.object
  local meta = getmetatable(object)
  local mode = type(meta) == "table" and rawget(meta, "__mode")
  mode = type(mode) == "string" and mode or ""
  local weak_keys, weak_values = mode:find("k", 1, true), mode:find("v", 1, true)
  for key, value in next, object do
    if not weak_keys then self:add(key, entry, " (a key)") end
    if not weak_values then self:add(value, entry, key_text(key)) end
  end
  self:add(meta, entry, " (metatable)")
end

Walk["function"] = function(self, entry)
  local i = 1
  while true do
    local name, value = getupvalue(entry.object, i)
    if not name then break end
    self:add(value, entry, name == "" and "a value" or name, UPVALUE)
    i = i + 1
  end
  if debug.getfenv then self:add(debug.getfenv(entry.object), entry, " (environment)") end
end

function Walk:thread(entry)
  local level = 0
  while add_frame(self, entry.object, level, entry) do level = level + 1 end
end

function Walk:userdata(entry)
  local object = entry.object
  self:add(getmetatable(object), entry, " (metatable)")
  local value = environment(object)
  if value ~= object then self:add(value, entry, "") end
end

-- "losses[3], local in function step": the way to an entry.
local function path_of(entry)
  local parts, place = {}, nil
  while entry do
    table.insert(parts, 1, entry.label)
    place = entry.place
    if place == UPVALUE or place == THREAD then
      place = place .. path_of(entry.parent)
      break
    end
    entry = entry.parent
  end
  local text = table.concat(parts)
  if #text > 80 then text = "..." .. text:sub(-77) end
  return place and text .. ", " .. place or text
end

-- Visits what is in line, and what that holds.
function Walk:run(visit)
  while self.first <= self.last do
    local entry = self[self.first]
    self[self.first] = nil
    self.first = self.first + 1
    local object = entry.object
    self[type(object)](self, entry)
    if type(object) == "userdata" then visit(object, function() return path_of(entry) end) end
  end
end

-- Calls visit(object, path) with every userdata in reach; path() gives its way as text.
-- `level` is the first function whose locals count: 1 is the caller.
function heap.each(level, visit)
  local walk = setmetatable({ seen = {}, first = 1, last = 0, later = {} }, Walk)
  walk.seen[walk] = true
  walk.seen[walk.seen] = true
  local running = coroutine.running()
  if running then walk.seen[running] = true end -- its frames are looked at from `level` on
  level = level + 1
  while add_frame(walk, nil, level, nil) do level = level + 1 end
  walk:add(_G, nil, "_G")
  walk:add(package.loaded, nil, "package.loaded")
  walk:add(debug.getregistry(), nil, "registry")
  walk:run(visit)
  -- Values without a name, some of them left over from calls, say least: last.
  repeat
    local later = walk.later
    walk.later = {}
    for _, value in ipairs(later) do walk:add(unpack(value, 1, 4)) end
    walk:run(visit)
  until #later == 0
end

return heap
