-- Tensors live on a device; an op needs its inputs on one. Moving a module moves its parameters and
-- buffers in place, so an optimizer made before still steps them.
--   luajit examples/fundamentals/devices.lua [--device cpu] [--other meta]
local cnn = require "cnn"
local nn, F, optim = cnn.nn, cnn.F, cnn.optim
local device, other = "cpu", "meta"
for i = 1, #arg, 2 do
  if arg[i] == "--device" then device = arg[i + 1] end
  if arg[i] == "--other" then other = arg[i + 1] end
end
cnn.manual_seed(4)

local a, b = cnn.ones(2, 3, { device = device }), cnn.ones(2, 3, { device = other })
local _, message = pcall(function() return a + b end)
print("mixing: " .. message:gsub("^.-:%d+: ", ""))

local function devices(module)
  local seen, list = {}, {}
  for _, t in ipairs(module:parameters()) do seen[t.device] = true end
  for _, t in ipairs(module:buffers()) do seen[t.device] = true end
  for name in pairs(seen) do list[#list + 1] = name end
  table.sort(list)
  return table.concat(list, " and ")
end

local model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
print("a new model's parameters and buffers: on " .. devices(model))
local opt = optim.SGD(model:parameters(), { lr = 0.1 })
local weight = model[1].weight
model:to(device)
print("moved: on " .. devices(model) .. ", same parameter objects: " .. tostring(model[1].weight == weight))

local x, y = cnn.randn(16, 4, { device = device }), cnn.zeros(16, 1, { device = device })
local first, last
for step = 1, 20 do
  opt:zero_grad()
  local loss = F.mse_loss(model(x), y)
  loss:backward()
  opt:step()
  if step == 1 then first = loss:item() end
  last = loss:item()
end
print("the optimizer made before the move lowers the loss: " .. tostring(last < first))

-- On meta a tensor has a shape and no bytes: shapes can be tried for free.
local huge = cnn.zeros(100000, 100000, { device = "meta" })
print("on meta: " .. tostring(huge:matmul(huge).shape) .. ", bytes taken: " .. cnn.memory_allocated("meta"))
model:to("meta")
print("the model on meta: " .. tostring(model(cnn.zeros(16, 4, { device = "meta" })).shape))
