-- One inference step and one training step, with the bytes that appear, and what becomes of the
-- optimizer's state.
--   luajit examples/fundamentals/micro_training.lua [--device cpu]
local cnn = require "cnn"
local nn, F, optim = cnn.nn, cnn.F, cnn.optim
local device = arg[1] == "--device" and arg[2] or "cpu"
cnn.manual_seed(5)

local model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)):to(device)
local x, y = cnn.randn(64, 256, { device = device }), cnn.randn(64, 256, { device = device })
local parameters = model:num_parameters() * 4

local function kind(name) return cnn.memory_stats(device).kinds[name].current end
local function report(when)
  collectgarbage()
  collectgarbage()
  local function times(bytes) return ("%.1f"):format(bytes / parameters) end
  print(("%-24s gradients %s, optimizer state %s (in parameters' bytes)"):format(when,
    times(kind "gradients"), times(kind "optimizer state")))
end

report("at the start")
local before = cnn.no_grad(function() return F.mse_loss(model(x), y):item() end)
report("after inference")

local opt = optim.AdamW(model:parameters(), { lr = 1e-3 })
local function step()
  opt:zero_grad()
  local loss = F.mse_loss(model(x), y)
  loss:backward()
  opt:step()
  return loss:item()
end
local first = step()
report("after one training step")
print("training saw the loss that inference saw: " .. tostring(math.abs(first - before) < 1e-5))
local second = step()
print("loss went down: " .. tostring(second < first))
print("steps counted: " .. opt.state[model[1].weight].step)

opt:zero_grad()
report("after zero_grad")
opt:reset_state()
report("after reset_state")
step()
print("steps counted after the state was dropped: " .. opt.state[model[1].weight].step)
