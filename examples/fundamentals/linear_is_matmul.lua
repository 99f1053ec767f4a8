-- A linear layer is Y = X W^T + b; its gradients are matrix products too.
--   luajit examples/fundamentals/linear_is_matmul.lua [--device cpu]
local cnn = require "cnn"
local nn = cnn.nn
local device = arg[1] == "--device" and arg[2] or "cpu"
cnn.manual_seed(2)

local layer = nn.Linear(5, 3):to(device):double()
local x = cnn.randn(7, 5, { dtype = "float64", device = device, requires_grad = true })
local dy = cnn.randn(7, 3, { dtype = "float64", device = device })

local function report(what, a, b)
  local difference = (a - b):abs():max():item()
  print(("%-10s max difference %.0e, equal: %s"):format(what, difference, tostring(difference < 1e-12)))
end

local y = layer(x)
y:backward(dy)
cnn.no_grad(function()
  report("Y", y, x:matmul(layer.weight:t()) + layer.bias)
  report("dX", x.grad, dy:matmul(layer.weight))
  report("dW", layer.weight.grad, dy:t():matmul(x))
  report("db", layer.bias.grad, dy:sum(1))
end)
