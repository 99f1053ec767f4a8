-- SPDX-License-Identifier: MIT
-- examples/fundamentals on a GPU: the facts and the bytes that they show on the CPU. Runs where there is a
-- GPU, or on the simulator: make test-cuda-sim.
local cnn = require "cnn"
local helper = require "spec.helper"
local fundamentals = require "spec.fundamentals"
local expected, check = fundamentals.expected, fundamentals.check

if not cnn.cuda.is_available() then
  describe("examples on a GPU", function()
    it("can't be tried here: there is none", function() assert.equal(0, cnn.cuda.device_count()) end)
  end)
  return
end

-- Bytes depend on no order of threads and streams.
local order, streams = os.getenv "SIM_ORDER" or "forward", os.getenv "SIM_STREAMS" or "eager"
if order ~= "forward" or streams ~= "eager" then return end

-- Pairs of what a script prints on the CPU and what on a GPU. The granules of its memory are larger.
local differs = {
  handles = { "float32, cpu,", "float32, cuda:0," },
  layouts = {},
  devices = { "x is on cpu", "x is on cuda:0", "to(\"cpu\")", "to(\"cuda:0\")", "moved: on cpu", "moved: on cuda:0" },
  linear_is_matmul = {},
  inference_memory = {},
  memory_growth = {},
  adamw_bytes = {},
  estimate = {},
  checkpointing = {},
  offload = {},
  liveness = {
    "+64  s", "+256  s", "+8256  loss =", "+8448  loss =", "+8256  loss:", "+8448  loss:", "+4160", "+4352",
  },
  fragmentation = {},
  release = {},
  sharing_a_gpu = { "out of memory on cpu", "out of memory on cuda:0" },
}

-- With the GPU's libraries these say what workspace they took.
local with_workspace = {
  inference_memory = {
    "%^under no_grad .* = weights %+ input %+ 2 activations.*: true",
    "%^with a graph .* = weights %+ input %+ 50 activations.*: true", "%^predicted: .*, with 2 activations",
  },
  memory_growth = {
    "batch  inference   training", "%^ +64 +%d+ +%d+", "%^inference = %d+ %+ B x 432, off by at most 0 bytes",
    "%^up to %d+ of these bytes are workspace",
  },
}

local only_on_a_gpu = {
  kernels = {
    "%^%(x %* 2 %+ 1%):tanh%(%):sum%(%) +%d kernels, +256.0 KiB read, +192.0 KiB written",
    "%^x:view.* 0 kernels, +0.0 KiB read, +0.0 KiB written",
    "%^x:matmul%(W%), %+ b, relu +3 kernels, +449.0 KiB read, +192.0 KiB written",
    "%^Linear, then relu +2 kernels, +385.0 KiB read, +128.0 KiB written",
    "%^Sequential%(Linear, ReLU%) +1 kernels, +321.0 KiB read, +64.0 KiB written",
    "%^Conv2d, then relu +2 kernels, +156.8 KiB read, +256.0 KiB written",
    "%^Sequential%(Conv2d, ReLU%) +1 kernels, +28.8 KiB read, +128.0 KiB written",
    "%^x %+ b, tanh +2 kernels", "%^bias_tanh, one's own +1 kernels, +65.0 KiB read, +64.0 KiB written", "equal: true",
    "%^AdamW, a step per parameter +40 kernels, +62.5 KiB read, +46.9 KiB written",
    "%^AdamW, one step for all +1 kernels, +62.5 KiB read, +46.9 KiB written",
  },
  tiled_gemm = cnn.cuda.is_simulated() and {
    "naive: 196608 loads by the formula, 196608 measured, equal: true",
    "  shared memory: 0 loads, 0 stores, 0 barriers", "  equals A:matmul(B): true",
    "tiled: 12288 loads by the formula, 12288 measured, equal: true",
    "  shared memory: 196608 loads, 12288 stores, 48 barriers", "  equals A:matmul(B): true",
  } or {
    "naive: 196608 loads by the formula, not measured, equal: -", "  equals A:matmul(B): true",
    "tiled: 12288 loads by the formula, not measured, equal: -", "  equals A:matmul(B): true",
  },
}

local function on_gpu(name, libraries)
  local prefix = ("CNN_CUDA_PLUGIN=%s CNN_CUDA_LIBRARIES=%s"):format(os.getenv "CNN_CUDA_PLUGIN" or "", libraries or "")
  return helper.run_file(("examples/fundamentals/%s.lua"):format(name), "--device cuda", prefix)
end

-- What the script prints on the CPU, changed in all these places.
local function changed(name, pairs_of_texts)
  local lines, found = {}, {}
  for i, line in ipairs(expected[name]) do
    for k = 1, #pairs_of_texts, 2 do
      local from, to = pairs_of_texts[k]:gsub("%p", "%%%0"), pairs_of_texts[k + 1]
      line = line:gsub(from, function()
        found[k] = true
        return to
      end)
    end
    lines[i] = line
  end
  for k = 1, #pairs_of_texts, 2 do assert.truthy(found[k], pairs_of_texts[k]) end
  return lines
end

describe("examples on a GPU", function()
  for name, texts in pairs(differs) do
    it(name, function()
      local text = on_gpu(name)
      check(text, with_workspace[name] or changed(name, texts))
      if name == "release" then
        assert.truthy(text:find "\nthe context holds [%d.]+ MiB of the device, until cnn.cuda.shutdown%(%)", text)
      end
    end)
  end
  for name in pairs(with_workspace) do
    it(name .. ", by kernels of the plugin's own", function() check(on_gpu(name, "none"), expected[name]) end)
  end
  for name, lines in pairs(only_on_a_gpu) do
    it(name, function() check(on_gpu(name), lines) end)
  end
end)
