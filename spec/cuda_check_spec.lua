-- SPDX-License-Identifier: MIT
-- cuda/check.sh, rehearsed on the simulator: that all its steps run, and write what they find.
local cnn = require "cnn"
local helper = require "spec.helper"

-- Once, as the simulator comes: not in all its configurations, nor by the script itself.
if not cnn.cuda.is_available() or not cnn.cuda.is_simulated() or os.getenv "CNN_CHECKING"
  or not os.getenv "CNN_CUDA_PLUGIN":find "/plain/" or (os.getenv "SIM_ORDER" or "forward") ~= "forward"
  or (os.getenv "SIM_STREAMS" or "eager") ~= "eager" then
  return
end

describe("cuda/check.sh", function()
  local folder

  before_each(function() folder = helper.folder() end)
  after_each(function() os.execute("rm -r " .. folder) end)

  -- Its exit status, what it prints, and the table.
  local function check(environment)
    local pipe = assert(io.popen(("OUT=%s %s cuda/check.sh --simulate 2>&1; echo $?"):format(folder, environment)))
    local said, status = pipe:read("*a"):match "^(.-)(%d+)\n$"
    pipe:close()
    local file = io.open(folder .. "/cuda_check.md")
    local written = file and file:read "*a" or ""
    if file then file:close() end
    return tonumber(status), said, written
  end

  it("goes through all its steps", function()
    local status, said, written = check ""
    assert.equal(0, status, said .. written)
    for _, text in ipairs { "rehearsal", "## Against the CPU\n\n    all is well\n", "## Times", "matmul bfloat16",
      "convnet step", "## Specs of GPUs\n\n    %d+ passed, 0 failed\n", "## Every op against its references",
      "## Own kernels", "## compute%-sanitizer", "all is well%.\n$" } do
      assert.matches(text, written)
    end
    assert.is_nil(written:find "Cut off" or written:find "Failed" or written:find "error")
  end)

  it("says what failed, and goes on", function()
    local status, _, written = check "CNN_CHECK_SECONDS=12 CNN_PYTHON=none SIM_MEMORY=1M"
    assert.equal(1, status)
    assert.matches("Failed with status 1 after %d+ s", written)
    assert.matches("All in %d+ s: not all is well%.\n$", written)
  end)

  it("needs a GPU and a Lua", function()
    local status, said = check "CNN_CUDA_PLUGIN=none"
    assert.equal(1, status)
    assert.matches("no GPU is to be had: ", said)
    status, said = check "LUA=/none"
    assert.equal(2, status)
    assert.matches("there is no Lua here", said)
  end)
end)
