-- SPDX-License-Identifier: MIT
-- Every op of the registry against its entry in spec/opdb: see spec/opdb.lua for what an entry holds;
-- spec/op_checks.lua, op_gradients.lua and op_limits.lua for what is checked.
--
--   CNN_OPS='sum,mean,conv.*' busted spec/ops_spec.lua     these ops alone
--   CNN_OPS_PART=2/4 busted spec/ops_spec.lua              the second quarter of them
--   CNN_OPS_DEVICE=cuda busted spec/ops_spec.lua           on another device than the CPU
--                                                          (CNN_OPS_VALUES=1: their values alone)
--   CNN_OPS_FORMS=1/5                                      there, every fifth form of each
local cnn = require "cnn"
local db = require "spec.opdb"
local checks = require "spec.op_checks"
local gradients = require "spec.op_gradients"
local limits = require "spec.op_limits"

-- On another device: what is computed there, against the same references. All else is proven on the
-- CPU. What is made of ops that the device has not got is left out.
local device = os.getenv "CNN_OPS_DEVICE"
if device then
  cnn.set_default_device(device)
  -- The device's elementary functions err by up to 2 units in the last place, the CPU's by 1.
  checks.TOLERANCE.float32 = 4 * checks.TOLERANCE.float32
end

local function on_device(entry, test)
  local function try(name, check)
    test(name, function()
      local ok, message = pcall(check, entry)
      if ok then return end
      if tostring(message):find("not available on " .. device, 1, true) then return end
      error(message, 0)
    end)
  end
  try("values", checks.values)
  if not os.getenv "CNN_OPS_VALUES" then try("gradients", gradients.check) end
end

describe(device and "op on " .. device or "op", function()
  local missing = {}
  local part, parts = (os.getenv "CNN_OPS_PART" or "1/1"):match("^(%d+)/(%d+)$")
  for i, key in ipairs(db.keys()) do
    if i % parts == part % parts then
      local entry = db.entry(key)
      if not entry then
        missing[#missing + 1] = key
      else
        local function test(name, fn)
          it(key .. ": " .. name, fn)
        end
        if device then
          on_device(entry, test)
        else
          if entry.check then entry.check(entry, test) end
          test("values", function() checks.values(entry) end)
          test("gradients", function() gradients.check(entry) end)
          test("errors", function() limits.errors(entry) end)
          test("failing allocations", function() limits.failures(entry) end)
          test("lengths and threads", function()
            local ok, message = pcall(limits.sizes, entry)
            db.release(entry)
            if not ok then error(message, 0) end
          end)
        end
      end
    end
  end
  for _, key in ipairs(missing) do
    it(key .. ": has an entry in spec/opdb", function() error("it has none", 0) end)
  end
end)
