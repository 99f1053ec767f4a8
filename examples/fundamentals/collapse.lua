-- Why networks need activations: without them, any number of linear layers is one matrix.
--   luajit examples/fundamentals/collapse.lua [--device cpu]
local cnn = require "cnn"
local nn = cnn.nn
local device = arg[1] == "--device" and arg[2] or "cpu"
cnn.manual_seed(1)

local sizes = { 6, 32, 32, 32, 3 }
local deep, act = nn.Sequential(), nn.Sequential()
for i = 1, #sizes - 1 do
  local layer = nn.Linear(sizes[i], sizes[i + 1], { bias = false })
  deep:append(layer)
  act:append(layer):append(nn.Tanh())
end
deep:to(device):double()

cnn.no_grad(function()
  -- The product of the weights, last layer first.
  local product = deep[1].weight
  for i = 2, #deep do product = deep[i].weight:matmul(product) end
  local x = cnn.randn(100, 6, { dtype = "float64", device = device })
  print("layers: " .. #deep .. ", product: " .. tostring(product.shape))
  local difference = (deep(x) - x:matmul(product:t())):abs():max():item()
  print(("max difference, deep net against one matrix: %.0e"):format(difference))
  print("the same: " .. tostring(difference < 1e-12))
  local with_tanh = (act(x) - x:matmul(product:t())):abs():max():item()
  print("with tanh between the layers, the same: " .. tostring(with_tanh < 1e-12))
end)
