-- What inference needs: weights, the input, and two activations, however deep the net is; a graph keeps
-- them all. A GPU's libraries take some workspace besides while they compute.
--   luajit examples/fundamentals/inference_memory.lua [--device cpu]
local cnn = require "cnn"
local nn = cnn.nn
local device = arg[1] == "--device" and arg[2] or "cpu"
local layers, batch, width = 50, 64, 128

local function net()
  local list = {}
  for i = 1, layers do list[i] = nn.Linear(width, width, { device = device }) end
  return nn.Sequential(list)
end

local weights, one = layers * (width * width + width) * 4, batch * width * 4
local formulas = {
  { "under no_grad", weights + one + 2 * one, "weights + input + 2 activations", cnn.no_grad },
  { "with a graph", weights + one + layers * one, "weights + input + 50 activations", cnn.enable_grad },
}
for _, f in ipairs(formulas) do
  collectgarbage()
  collectgarbage()
  local before = cnn.memory_stats(device).requested_bytes.current
  cnn.reset_peak_memory_stats(device)
  do
    local model, x = net(), cnn.randn(batch, width, { device = device })
    cnn.scope(f[4], model, x)
  end
  local stats = cnn.memory_stats(device)
  local peak, workspace = stats.requested_bytes.peak - before, stats.kinds.workspace.peak
  print(("%-13s %8d bytes = %s%s: %s"):format(f[1], peak, f[3],
    workspace > 0 and (" + %d of workspace"):format(workspace) or "", tostring(peak == f[2] + workspace)))
end
local e = cnn.estimate(net(), { input = { batch, width }, device = device })
print(("predicted: %d bytes, with %d activations"):format(e.peak_requested, e.activations / one))
