-- SPDX-License-Identifier: MIT
-- Memory is predicted for a GPU as for the CPU: spec/estimate_spec.lua with the default device a GPU.
local cnn = require "cnn"
local helper = require "spec.helper"

if not cnn.cuda.is_available() then
  describe("memory of GPUs", function()
    it("can't be tried here: there is no GPU", function() assert.equal(0, cnn.cuda.device_count()) end)
  end)
  return
end

-- (What is counted is the same in every build of the simulator; one of them is fast.)
if helper.flavour() ~= "" and helper.flavour() ~= "plain" then return end

helper.use "cuda"
helper.include({ "estimate" },
  getfenv and getfenv(1) or _ENV)
