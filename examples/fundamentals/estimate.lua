-- The memory of training and inference, known before: predicted on the meta device, then measured.
--   luajit examples/fundamentals/estimate.lua [--device cpu]
local cnn = require "cnn"
local nn, F, optim = cnn.nn, cnn.F, cnn.optim
local device = arg[1] == "--device" and arg[2] or "cpu"
local batch = 32

local function lenet()
  return nn.Sequential(nn.Conv2d(1, 6, 5, { padding = 2 }), nn.Tanh(), nn.AvgPool2d(2),
    nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(),
    nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)):to(device)
end

local model = lenet()
local before = cnn.memory_allocated(device)
local training = cnn.estimate(model, { input = { batch, 1, 28, 28 }, mode = "train", loss = "cross_entropy",
  optimizer = "AdamW", device = device })
local inference = cnn.estimate(model, { input = { batch, 1, 28, 28 }, device = device })
print("bytes taken by the predictions: " .. cnn.memory_allocated(device) - before)
print(training)
local sum = training.overhead
for part in pairs(training.most) do sum = sum + training[part] end
print("the parts add up to the peak: " .. tostring(sum == training.peak))

-- The same for real, in a fresh start.
model = nil -- luacheck: ignore
local function measure(run)
  for _ = 1, 2 do collectgarbage() end
  before = cnn.memory_allocated(device)
  cnn.reset_peak_memory_stats(device)
  run(lenet(), cnn.randn(batch, 1, 28, 28, { device = device }))
  return cnn.max_memory_allocated(device) - before
end
local trained = measure(function(net, x)
  local y = cnn.randint(1, 11, { batch }, { device = device })
  local opt = optim.AdamW(net:parameters())
  for _ = 1, 3 do
    cnn.scope(function()
      opt:zero_grad()
      local out = net(x)
      F.cross_entropy(out, y):backward()
      opt:step()
    end)
  end
end)
local inferred = measure(function(net, x) return cnn.no_grad(net:eval(), x) end)
local function compare(name, predicted, measured)
  print(("%s: predicted %d, measured %d, equal: %s"):format(name, predicted, measured, tostring(predicted == measured)))
end
compare("training", training.peak, trained)
compare("inference", inference.peak, inferred)
