-- Who holds bytes: tensors hold allocated ones, the pool keeps freed ones for reuse (reserved), and the
-- process holds what it needs besides. empty_cache gives the pool's back.
--   luajit examples/fundamentals/release.lua [--device cpu]
local cnn = require "cnn"
local device = arg[1] == "--device" and arg[2] or "cpu"
local MIB = 2 ^ 20

-- Resident memory of this process, where the system tells it.
local function resident()
  local file = io.open "/proc/self/status"
  local kib = file and file:read("*a"):match "VmRSS:%s*(%d+)"
  if file then file:close() end
  return kib and kib / 1024 or 0
end

local start = resident()
local function report(when)
  print(("%-22s allocated %3d MiB, reserved %3d MiB"):format(when, cnn.memory_allocated(device) / MIB,
    cnn.memory_reserved(device) / MIB))
  return resident() - start
end

local t = cnn.ones(16 * MIB, { device = device })
local full = report(("a tensor of %d MiB"):format(t.nbytes / MIB))
t = nil -- luacheck: ignore
report "dropped"
collectgarbage()
report "collected"
cnn.empty_cache(device)
local left = report "cache emptied"
local again = cnn.ones(16 * MIB, { device = device })
again:free() -- at once, without the collector
report "made and freed"
cnn.empty_cache(device)
report "cache emptied"
if device == "cpu" and full > 0 then
  print("the process held the 64 MiB: " .. tostring(full > 60) .. ", gave them back: " .. tostring(left < full - 60))
end
local available, total = cnn.mem_get_info(device)
print("the device has room: " .. tostring(available > 0 and available <= total))
-- What is left is code and the interpreter; of a GPU also its context.
if device ~= "cpu" then
  local context = cnn.cuda.get_device_properties(device).context_memory
  print(("the context holds %.1f MiB of the device, until cnn.cuda.shutdown()"):format(context / MIB))
end
