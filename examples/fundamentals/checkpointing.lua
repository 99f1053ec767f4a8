-- Checkpoints trade time for memory: n layers in s segments keep s inputs of segments, and while backward
-- is in a segment the activations of its n / s layers. The least is at s = sqrt(n): 2 sqrt(n) in place of n,
-- for one more forward.
--   luajit examples/fundamentals/checkpointing.lua [--device cpu]
local cnn = require "cnn"
local nn = cnn.nn
local device = arg[1] == "--device" and arg[2] or "cpu"
local batch, width = 512, 32
local activation = batch * width * 4
local x = cnn.randn(batch, width, { device = device })

-- One training step's peak over what was there before, in activations.
local function peak(model, segments)
  collectgarbage()
  cnn.reset_peak_memory_stats(device)
  local before = cnn.memory_allocated(device)
  cnn.checkpoint_sequential(model, segments, x):sum():backward()
  return (cnn.max_memory_allocated(device) - before) / activation
end

-- The same layers as functions that count how often they run.
local function runs(model, segments)
  local counting, n = {}, 0
  for i, layer in ipairs(model:children()) do
    counting[i] = function(v)
      n = n + 1
      return layer(v)
    end
  end
  cnn.checkpoint_sequential(counting, segments, x):sum():backward()
  return n
end

print("layers  segments  peak (activations)  2 sqrt(n)  layers run")
local function row(model, n, segments)
  local most, ran = peak(model, segments), runs(model, segments)
  print(("%6d  %8d  %18.1f  %9.0f  %10d  %s"):format(n, segments, most, 2 * math.sqrt(n), ran,
    ("#"):rep(math.floor(most / 2 + 0.5))))
  return most, ran
end
for _, n in ipairs { 36, 64, 100, 144 } do
  local layers, root = {}, math.sqrt(n)
  for i = 1, n do layers[i] = nn.Sequential(nn.Linear(width, width), nn.Tanh()) end
  local model = nn.Sequential(layers):to(device)
  model(x):sum():backward() -- the gradients are there from now on
  row(model, n, 1)
  local most, ran = row(model, n, root)
  print(("  within 2.5 sqrt(n): %s, layers run again: %d of %d"):format(tostring(most <= 2.5 * root), ran - n, n))
end
