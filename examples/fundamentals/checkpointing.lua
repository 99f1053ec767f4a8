-- Checkpoints trade time for memory: n layers in s segments keep s inputs of segments, and while backward
-- is in a segment the activations of its n / s layers. The least is at s = sqrt(n): 2 sqrt(n) in place of n,
-- for one more forward.
--   luajit examples/fundamentals/checkpointing.lua [--device cpu] [--svg curve.svg]
local cnn = require "cnn"
local nn = cnn.nn
local options = {}
for i = 1, #arg, 2 do options[arg[i]] = arg[i + 1] end
local device = options["--device"] or "cpu"
local batch, width = 512, 32
local activation = batch * width * 4
local x = cnn.randn(batch, width, { device = device })

-- One training step's peak over what was there before, in activations; without what a GPU's libraries take
-- while they compute.
local function peak(model, segments)
  collectgarbage()
  cnn.reset_peak_memory_stats(device)
  local before = cnn.memory_allocated(device)
  cnn.checkpoint_sequential(model, segments, x):sum():backward()
  return (cnn.max_memory_allocated(device) - before - cnn.memory_stats(device).kinds.workspace.peak) / activation
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
local plain, least, rule, sizes = {}, {}, {}, { 36, 64, 100, 144 }
for i, n in ipairs(sizes) do
  local layers, root = {}, math.sqrt(n)
  for k = 1, n do layers[k] = nn.Sequential(nn.Linear(width, width), nn.Tanh()) end
  local model = nn.Sequential(layers):to(device)
  model(x):sum():backward() -- the gradients are there from now on
  plain[i], least[i], rule[i] = peak(model, 1), peak(model, root), 2 * root
  local ran
  for _, case in ipairs { { 1, plain[i] }, { root, least[i] } } do
    ran = runs(model, case[1])
    print(("%6d  %8d  %18.1f  %9.0f  %10d  %s"):format(n, case[1], case[2], rule[i], ran,
      ("#"):rep(math.floor(case[2] / 4 + 0.5))))
  end
  print(("  within 2.5 sqrt(n): %s, layers run again: %d of %d"):format(tostring(least[i] <= 2.5 * root), ran - n, n))
end
if options["--svg"] then
  cnn.viz.plot({ { name = "all kept", x = sizes, y = plain, marks = true },
    { name = "sqrt(n) segments", x = sizes, y = least, marks = true },
    { name = "2 sqrt(n)", x = sizes, y = rule, dashed = true } },
    { title = "Peak of one training step", xlabel = "layers n", ylabel = "activations" }):save(options["--svg"])
end
