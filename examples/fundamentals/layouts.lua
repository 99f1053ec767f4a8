-- The order of elements in memory decides how fast one can walk them.
--   luajit examples/fundamentals/layouts.lua [--device cpu]
local cnn = require "cnn"
local F = cnn.F
local device = arg[1] == "--device" and arg[2] or "cpu"
cnn.manual_seed(7)

-- The best of some runs, in seconds.
local function time(fn)
  local best = math.huge
  for _ = 1, 5 do
    local start = cnn.clock()
    fn()
    cnn.synchronize(device)
    best = math.min(best, cnn.clock() - start)
  end
  return best
end

local function compare(what, a, b, first, second)
  print(("%s: %s takes %.2f times %s"):format(what, first, time(a) / time(b), second))
end

cnn.no_grad(function()
  -- Rows lie together, columns apart.
  local x = cnn.randn(2048, 2048, { device = device })
  print("rows " .. tostring(x[1]:stride()) .. ", columns " .. tostring(x[{ {}, 1 }]:stride()))
  compare("sum of 200 columns against 200 rows", function()
    for i = 1, 200 do x[{ {}, i }]:sum() end
  end, function()
    for i = 1, 200 do x[i]:sum() end
  end, "column", "row")

  local every_other = x[{ {}, { 1, -1, 2 } }]
  local packed = every_other:contiguous()
  print("strided " .. tostring(every_other:stride()) .. ", contiguous " .. tostring(packed:stride()))
  compare("sum", function() every_other:sum() end, function() packed:sum() end, "strided", "contiguous")

  -- Images: one plane per channel (NCHW), or all channels of a pixel together (channels_last).
  local planes = cnn.randn(8, 32, 56, 56, { device = device })
  local last = planes:contiguous { memory_format = "channels_last" }
  local w = cnn.randn(32, 32, 3, 3, { device = device })
  print("NCHW " .. tostring(planes:stride()) .. ", channels_last " .. tostring(last:stride()))
  compare("relu", function() last:relu() end, function() planes:relu() end, "channels_last", "NCHW")
  compare("3x3 convolution", function() F.conv2d(last, w, nil, { padding = 1 }) end,
    function() F.conv2d(planes, w, nil, { padding = 1 }) end, "channels_last", "NCHW")
  local difference = (F.conv2d(last, w) - F.conv2d(planes, w)):abs():max():item()
  print("same values: " .. tostring(difference < 1e-3))
  print("a result keeps its input's layout: " .. tostring(last:relu():is_contiguous("channels_last")))
end)
