-- SPDX-License-Identifier: MIT
-- Every op of the registry against its entry in spec/opdb: see spec/opdb.lua for what an entry holds and
-- spec/op_checks.lua for what is checked. CNN_OPS=sum,mean,conv.* runs these ops alone.
local db = require "spec.opdb"
local checks = require "spec.op_checks"

describe("op", function()
  local missing = {}
  for _, key in ipairs(db.keys()) do
    local entry = db.entry(key)
    if not entry then
      missing[#missing + 1] = key
    else
      it(key .. ": values", function() checks.values(entry) end)
      it(key .. ": gradients", function() checks.gradients(entry) end)
      if entry.check then
        entry.check(entry, function(name, fn) it(key .. ": " .. name, fn) end)
      end
    end
  end
  for _, key in ipairs(missing) do
    it(key .. ": has no entry in spec/opdb", function() error("no entry", 0) end)
  end
end)
