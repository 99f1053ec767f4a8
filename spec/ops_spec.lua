-- SPDX-License-Identifier: MIT
-- Every op of the registry against its entry in spec/opdb: see spec/opdb.lua for what an entry holds and
-- spec/op_checks.lua for what is checked. CNN_OPS=sum,mean,conv.* runs these ops alone.
local db = require "spec.opdb"
local checks = require "spec.op_checks"
local gradients = require "spec.op_gradients"
local limits = require "spec.op_limits"

describe("op", function()
  local missing = {}
  for _, key in ipairs(db.keys()) do
    local entry = db.entry(key)
    if not entry then
      missing[#missing + 1] = key
    else
      it(key .. ": values", function() checks.values(entry) end)
      it(key .. ": gradients", function() gradients.check(entry) end)
      it(key .. ": errors", function() limits.errors(entry) end)
      it(key .. ": failing allocations", function() limits.failures(entry) end)
      if entry.tails or entry.lengths or entry.large then
        it(key .. ": sizes", function() limits.sizes(entry) end)
      end
      if entry.check then
        entry.check(entry, function(name, fn) it(key .. ": " .. name, fn) end)
      end
    end
  end
  for _, key in ipairs(missing) do
    it(key .. ": has no entry in spec/opdb", function() error("no entry", 0) end)
  end
end)
