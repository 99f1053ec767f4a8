-- SPDX-License-Identifier: MIT
-- examples/fashion_mnist.lua on a GPU, real or simulated: the losses of the CPU, so its dropout masks, its
-- batches and its first weights, too.
local cnn = require "cnn"
local helper = require "spec.helper"
local cuda = cnn.cuda

if not cuda.is_available() then
  describe("the demo on a GPU", function()
    it("can't be tried here: there is no GPU", function() assert.equal(0, cuda.device_count()) end)
  end)
  return
end

describe("the demo on a GPU", function()
  local path = os.tmpname()

  -- The losses that it prints, and the model that it leaves.
  local function train(device, seed)
    local text = helper.run_file("examples/fashion_mnist.lua", ("--subset 16 --batch 4 --epochs 2 --lr 1e-3 "
      .. "--threads 1 --seed %d --device %s --out %s"):format(seed, device, path))
    local losses = {}
    for loss in text:gmatch "loss (%d+%.%d+)" do losses[#losses + 1] = tonumber(loss) end
    assert.equal(8, #losses, text)
    return losses, cnn.load(path)
  end

  local function distance(a, b)
    local largest = 0
    for i, v in ipairs(a) do largest = math.max(largest, math.abs(v - b[i])) end
    return largest
  end

  it("trains to the CPU's losses, with its dropout masks", function()
    local losses, state = train("cpu", 3)
    local there, state_there = train("cuda", 3)
    os.remove(path)
    assert.is_true(distance(losses, there) <= 2e-3, table.concat(there, " ") .. " but " .. table.concat(losses, " "))
    -- Adam makes steps of gradients however small: what rounding made of them is a step, too
    local moved = 0
    for name, x in pairs(state) do
      assert.equal("cpu", state_there[name].device)
      if x.dtype == "float32" then
        moved = math.max(moved, (x - state_there[name]):abs():mean():item())
      end
    end
    assert.is_true(moved < 1e-4, moved)
  end)
end)
