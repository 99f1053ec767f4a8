-- SPDX-License-Identifier: MIT
-- The GPUs' plugin itself, where nvcc has built it (make cuda), without a GPU; and the gate that its
-- kernels pass (tools/ptxas.lua).
local helper = require "spec.helper"
local out = os.getenv "CNN_OUT" or "build/release"

local function run(command)
  local pipe = assert(io.popen(command .. " 2>&1; echo $?"))
  local text = pipe:read("*a")
  pipe:close()
  local said, status = text:match("^(.-)(%d+)\n$")
  return said, tonumber(status)
end

-- Asked for by make cuda-check, which has built it: one that is left from before may be of another version.
local plugin = out .. "/cnn_cuda.so"
local gpu = io.open("/dev/nvidiactl", "rb")
local test = os.getenv "CNN_CUDA_BUILT" and not gpu and it or pending

describe("the plugin for GPUs", function()
  test("loads where there is no GPU, and says so", function()
    local said = helper.run([[
      local cnn = require "cnn"
      print(cnn.cuda.is_available())
      print(pcall(cnn.zeros, 1, { device = "cuda" }))
    ]], "CNN_CUDA_PLUGIN=" .. plugin)
    assert.matches("^false\t[^\n]*driver", said)
    assert.matches("\nfalse\t[^\n]*driver", said)
  end)
end)

describe("tools/ptxas.lua", function()
  -- What it says of one kernel of k.cu.
  local function said(source, report)
    local folder = helper.folder()
    helper.write(folder .. "/k.cu", source)
    helper.write(folder .. "/k.cu.o.ptxas", report)
    local text, status = run(("luajit tools/ptxas.lua %s %s/k.cu.o.ptxas"):format(folder, folder))
    os.execute("rm -r " .. folder)
    return text, status
  end

  local function report(stack, spilled, registers, shared)
    return ([[
ptxas info    : Compiling entry function '_Z1kv' for 'sm_90'
ptxas info    : Function properties for _Z1kv
    %d bytes stack frame, %d bytes spill stores, 0 bytes spill loads
ptxas info    : Used %d registers, used 1 barriers, %d bytes smem
]]):format(stack, spilled, registers, shared)
  end

  local SOURCE = "#define BLOCK 512\n__global__ void __launch_bounds__(BLOCK) k() {}\n"

  it("passes kernels that fit", function()
    local text, status = said(SOURCE, report(0, 0, 128, 49152))
    assert.equal(0, status)
    assert.matches("k.cu +1 +128 +49152 +0 +0\n1 kernels for sm_90; 0 faults", text)
  end)

  it("fails those that don't", function()
    for _, case in ipairs {
      { SOURCE, report(0, 0, 129, 0), "129 registers for each of 512 threads" },
      { SOURCE, report(0, 0, 32, 49153), "49153 bytes of shared memory" },
      { SOURCE, report(8, 0, 32, 0), "8 bytes of stack" },
      { SOURCE, report(0, 4, 32, 0), "4 bytes of registers are spilled" },
      { "__global__ void k() {}", report(0, 0, 32, 0), "the block of k is not bounded by a number" },
      { SOURCE, "", "no kernel is reported on" },
    } do
      local text, status = said(case[1], case[2])
      assert.equal(1, status)
      assert.matches("1 faults\n[^\n]*" .. case[3], text)
    end
  end)
end)
