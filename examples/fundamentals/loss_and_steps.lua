-- Two losses by hand beside the library's, and what the learning rate does.
--   luajit examples/fundamentals/loss_and_steps.lua [--device cpu] [--svg curves.svg]
local cnn = require "cnn"
local nn, F, optim = cnn.nn, cnn.F, cnn.optim
local device, svg = "cpu", nil
for i = 1, #arg, 2 do
  if arg[i] == "--device" then device = arg[i + 1] end
  if arg[i] == "--svg" then svg = arg[i + 1] end
end

local function near(a, b) return tostring(math.abs(a - b) < 1e-12) end
local f64 = { dtype = "float64", device = device }
local a, b = { 1, 2, 4 }, { 1.5, 2, 2 }
local mse = ((1 - 1.5) ^ 2 + (2 - 2) ^ 2 + (4 - 2) ^ 2) / 3
print("MSE by hand equals the library's: " .. near(mse, F.mse_loss(cnn.tensor(a, f64), cnn.tensor(b, f64)):item()))

-- Cross-entropy: minus the logarithm of the softmax at the label.
local logits, label = { 2, 0.5, -1 }, 1
local sum = 0
for _, v in ipairs(logits) do sum = sum + math.exp(v) end
local by_hand = -math.log(math.exp(logits[label]) / sum)
local by_library = F.cross_entropy(cnn.tensor({ logits }, f64),
  cnn.tensor({ label }, { dtype = "int64", device = device })):item()
print("cross-entropy by hand equals the library's: " .. near(by_hand, by_library))

-- Gradient descent on w^2 / 2: the step multiplies w by 1 - lr.
local function descend(lr)
  local w = nn.Parameter(cnn.tensor({ 1 }, f64))
  local opt, curve = optim.SGD({ w }, { lr = lr }), {}
  for step = 1, 30 do
    opt:zero_grad()
    local loss = (w ^ 2):sum() / 2
    loss:backward()
    opt:step()
    curve[step] = loss:item()
  end
  return curve
end

local curves = {
  { "too high, 2.1", descend(2.1) }, { "right, 0.3", descend(0.3) }, { "too low, 0.01", descend(0.01) },
}
for _, c in ipairs(curves) do
  local first, last = c[2][1], c[2][#c[2]]
  local verdict = last > first and "diverges" or last > 0.5 * first and "crawls" or "converges"
  print(("%-14s loss %.3f -> %.2e: %s"):format(c[1], first, last, verdict))
end

-- The three curves, loss on a logarithmic scale.
local rows, marks = 12, { "h", "r", "l" }
local grid = {}
for r = 1, rows do grid[r] = (" "):rep(30) end
for k, c in ipairs(curves) do
  for step, loss in ipairs(c[2]) do
    local r = math.max(1, math.min(rows, math.floor(4 - math.log10(loss + 1e-12) + 0.5)))
    grid[r] = grid[r]:sub(1, step - 1) .. marks[k] .. grid[r]:sub(step + 1)
  end
end
for r = 1, rows do print(("%6s |%s"):format("1e" .. 4 - r, grid[r])) end
print("        " .. ("-"):rep(30) .. "  steps; h: too high, r: right, l: too low")

if svg then
  local series = {}
  for i, c in ipairs(curves) do series[i] = { name = c[1], y = c[2] } end
  cnn.viz.plot(series, { title = "Three learning rates", xlabel = "step", ylabel = "loss", log = "y" }):save(svg)
  print("plot saved to " .. svg)
end
