-- Layers that behave differently in training and in evaluation: dropout and batch norm.
--   luajit examples/fundamentals/modes.lua [--device cpu]
local cnn = require "cnn"
local nn = cnn.nn
local device = arg[1] == "--device" and arg[2] or "cpu"
cnn.manual_seed(3)

local drop = nn.Dropout(0.25)
local ones = cnn.ones(100000, { device = device })
local y = drop(ones)
print(("dropout, training: largest value %.4f = 1 / (1 - 0.25)"):format(y:max():item()))
print(("share kept: %.2f, mean: %.2f"):format(y:gt(0):float():mean():item(), y:mean():item()))
drop:eval()
print("dropout, evaluation: identity " .. tostring((drop(ones) - ones):abs():max():item() == 0))

local norm = nn.BatchNorm1d(1, { momentum = 0.1 }):to(device)
local x = cnn.randn(10000, 1, { device = device }) * 2 + 5
local z = norm(x)
print(("batch norm, training: mean %.2f, variance %.2f"):format(math.abs(z:mean():item()), z:var():item()))
print(("running mean after one batch of mean 5: %.1f = 0.9 * 0 + 0.1 * 5"):format(norm.running_mean:item()))
for _ = 1, 100 do norm(x) end
norm:eval()
local single = cnn.full({ 1, 1 }, 5, { device = device })
print(("evaluation uses the running statistics: 5 becomes %.1f"):format(math.abs(norm(single):item())))
print("batches seen: " .. norm.num_batches_tracked:item())
