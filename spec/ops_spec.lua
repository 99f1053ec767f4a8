-- SPDX-License-Identifier: MIT
-- Every op of the registry against its entry in spec/opdb: see spec/opdb.lua for what an entry holds;
-- spec/op_checks.lua, op_gradients.lua and op_limits.lua for what is checked.
--
--   CNN_OPS='sum,mean,conv.*' busted spec/ops_spec.lua     these ops alone
--   CNN_OPS_PART=2/4 busted spec/ops_spec.lua              the second quarter of them
local db = require "spec.opdb"
local checks = require "spec.op_checks"
local gradients = require "spec.op_gradients"
local limits = require "spec.op_limits"

describe("op", function()
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
  for _, key in ipairs(missing) do
    it(key .. ": has an entry in spec/opdb", function() error("it has none", 0) end)
  end
end)
