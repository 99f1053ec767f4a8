-- SPDX-License-Identifier: MIT
-- What specs say of the CPU's memory holds on a GPU: limits, pools, the ladder, statistics, what dies
-- when. The same files, with the default device a GPU; what differs there they ask spec/helper.lua.
local cnn = require "cnn"
local helper = require "spec.helper"

if not cnn.cuda.is_available() then
  describe("memory of GPUs", function()
    it("can't be tried here: there is no GPU", function() assert.equal(0, cnn.cuda.device_count()) end)
  end)
  return
end

-- (What is counted is the same in every build of the simulator; the one that checks kernels takes minutes.)
if helper.flavour() == "check" then return end

helper.use "cuda"
helper.include({ "memory", "pools", "oom", "release", "attach", "record", "scope", "memerr", "offload" },
  getfenv and getfenv(1) or _ENV)
