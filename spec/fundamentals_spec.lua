-- SPDX-License-Identifier: MIT
-- examples/fundamentals: each script prints the facts that it exists for.
local helper = require "spec.helper"
local fundamentals = require "spec.fundamentals"
local expected, check = fundamentals.expected, fundamentals.check

-- These show whole granules and allocated bytes, which the red zones of sanitizer builds shift.
local in_a_plain_build = { release = true, fragmentation = true, sharing_a_gpu = true }
local SANITIZED = os.getenv "CNN_SANITIZED"

describe("fundamentals", function()
  for name, lines in pairs(expected) do
    local test = SANITIZED and in_a_plain_build[name] and pending or it
    test(name, function()
      check(helper.run_file("examples/fundamentals/" .. name .. ".lua", nil, "CNN_CUDA_PLUGIN=none"), lines)
    end)
  end

  it("pictures", function()
    local folder = helper.folder()
    for name, text in pairs {
      graph = "MatmulBackward0", loss_and_steps = "Three learning rates", memory_growth = "Peak over the batch",
      checkpointing = "Peak of one training step",
    } do
      local path = ("%s/%s.svg"):format(folder, name)
      helper.run_file(("examples/fundamentals/%s.lua"):format(name), "--svg " .. path)
      local picture = helper.read(path)
      assert.truthy(picture:find("^<svg") or picture:find("^<%?xml"))
      assert.truthy(picture:find(text, 1, true))
    end
    os.execute("rm -r " .. folder)
  end)

  local picture_test = SANITIZED and pending or it
  picture_test("pictures of fragments", function()
    local folder = helper.folder()
    helper.run_file("examples/fundamentals/fragmentation.lua", "--svg " .. folder)
    for name, blocks in pairs { fixed = 4, growing = 5 } do
      local _, n = helper.read(("%s/%s.svg"):format(folder, name)):gsub("fill=\"#%x+\"", "")
      assert.are.equal(blocks, n)
    end
    os.execute("rm -r " .. folder)
  end)

  it("every script is listed here", function()
    local pipe = assert(io.popen("ls examples/fundamentals"))
    for file in pipe:lines() do assert.truthy(expected[file:match("^(.*)%.lua$")], file) end
    pipe:close()
  end)
end)
