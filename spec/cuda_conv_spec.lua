-- SPDX-License-Identifier: MIT
-- Convolutions and pools on GPUs beyond spec/opdb: the same bits every time, layouts, long sums.
-- Where there is a GPU, or on the simulator (make test-cuda-sim).
local cnn = require "cnn"

if not cnn.cuda.is_available() then return end

-- Everything that a convolution and two pools give on a device, as float64 on the CPU.
local function work(device, dtype, last, x, w, b, groups)
  local function there(t) return t:to(dtype):to(device):detach() end
  x, w, b = there(x), there(w):requires_grad_(), there(b):requires_grad_()
  if last then x = x:contiguous "channels_last" end
  x:requires_grad_()
  local y = cnn.conv2d(x, w, b, 1, 1, 1, groups)
  assert.equal(last, y:is_contiguous "channels_last")
  local z = cnn.max_pool2d(y, 3, 2, 1) + cnn.avg_pool2d(y, 3, 2, 1)
  z:mul(z):sum():backward()
  local results = { y = y:detach(), z = z:detach(), dx = x.grad, dw = w.grad, db = b.grad }
  for name, t in pairs(results) do results[name] = t:cpu():double() end
  return results
end

describe("convolutions and pools on GPUs", function()
  -- Two images are enough for gradients of weights that are cut into pieces.
  for _, case in ipairs { { 8, 24, 1 }, { 12, 12, 12 }, { 8, 40, 2 } } do
    it(("give what the CPU gives, and twice the same: %d to %d channels, %d groups"):format(case[1], case[2], case[3]),
      function()
        cnn.manual_seed(5)
        local c, k, groups = case[1], case[2], case[3]
        local x, w, b = cnn.randn(2, c, 33, 34), cnn.randn(k, c / groups, 3, 3), cnn.randn(k)
        for dtype, tol in pairs { float32 = 1e-5, float64 = 1e-13 } do
          for _, last in ipairs { false, true } do
            local expected = work("cpu", dtype, last, x, w, b, groups)
            local given, again = work("cuda", dtype, last, x, w, b, groups), work("cuda", dtype, last, x, w, b, groups)
            for name, t in pairs(expected) do
              local err = (given[name] - t):abs():max():item() / t:abs():max():item()
              assert.is_true(err <= tol, ("%s of %s: %g"):format(name, dtype, err))
              assert.is_true(given[name]:eq(again[name]):all():item(), name)
            end
          end
        end
      end)
  end
end)
