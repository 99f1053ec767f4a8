-- What the graph saves for backward can wait on another device, or, where that is the CPU already, in a
-- temporary file. The device's memory then holds the layer at work.
--   luajit examples/fundamentals/offload.lua [--device cpu]
local cnn = require "cnn"
local nn = cnn.nn
local device = arg[1] == "--device" and arg[2] or "cpu"
cnn.manual_seed(3)

local layers, width, batch = {}, 128, 2048
for i = 1, 16 do layers[i] = nn.Sequential(nn.Linear(width, width), nn.Tanh()) end
local model = nn.Sequential(layers):to(device)
local x = cnn.randn(batch, width, { device = device })
local activation = batch * width * 4

local function run(name, forward)
  model:zero_grad()
  collectgarbage()
  cnn.reset_peak_memory_stats(device)
  local before, start = cnn.memory_allocated(device), cnn.clock()
  local loss = forward()
  local held = cnn.memory_allocated(device) - before
  loss:backward()
  cnn.synchronize(device)
  local peak = cnn.max_memory_allocated(device) - before
  print(("%-12s holds %4.1f activations before backward, peak %4.1f, %.0f ms"):format(
    name, held / activation, peak / activation, 1000 * (cnn.clock() - start)))
  return model[1][1].weight.grad:clone(), peak
end

local function forward() return model(x):sum() end
cnn.scope(function() forward():backward() end) -- warm
local plain, most = run("kept", forward)
local parked, least = run("parked", function() return cnn.save_on_cpu(forward) end)
print("same gradients: " .. tostring(((plain - parked):abs():max()):item() == 0))
print("less than a third of the peak: " .. tostring(least < most / 3))
