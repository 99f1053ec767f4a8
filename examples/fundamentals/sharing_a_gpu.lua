-- Two models share a device, with a quota each: one runs out, the other doesn't notice.
--   luajit examples/fundamentals/sharing_a_gpu.lua [--device cpu]
local cnn = require "cnn"
local nn, F, optim = cnn.nn, cnn.F, cnn.optim
local device = arg[1] == "--device" and arg[2] or "cpu"
local MIB = 2 ^ 20

-- A pool of so many MiB, and what trains a model in it for one step. All that is allocated inside of
-- with_pool is the pool's: parameters, gradients, optimizer state, activations.
local function learner(name, quota)
  local pool = cnn.pool { limit = quota * MIB, device = device, name = name }
  cnn.manual_seed(1)
  local model, opt = cnn.with_pool(pool, function()
    local model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)):to(device)
    return model, optim.AdamW(model:parameters())
  end)
  local function step(rows)
    local x = cnn.linspace(-1, 1, rows * 64, { device = device }):view(rows, 64)
    opt:zero_grad()
    local loss = F.mse_loss(model(x), x)
    loss:backward()
    opt:step()
    return loss:item()
  end
  return pool, function(rows) return cnn.with_pool(pool, cnn.scope, step, rows) end
end

local alone, actor_alone = learner("alone", 32)
local expected = {}
for i = 1, 8 do expected[i] = actor_alone(256) end

local actor_pool, actor = learner("actor", 32)
local critic_pool, critic = learner("critic", 16)
local same, rows = true, 1024
for i = 1, 8 do
  same = actor(256) == expected[i] and same
  local ok, message = pcall(critic, rows)
  print(("critic, %5d rows: %s"):format(rows, ok and "trained" or message:match "out of memory[^;]*"))
  rows = ok and rows * 2 or 1024
end
print("critic trains on, with fewer rows: " .. tostring(pcall(critic, 1024)))
print("actor's losses are those of a run alone: " .. tostring(same))
for _, pool in ipairs { alone, actor_pool, critic_pool } do
  local s = pool:stats()
  print(("%-7s limit %2d MiB, peak %5.2f MiB, in use now %4.2f MiB, refused: %s"):format(pool:name(), s.limit / MIB,
    s.allocated_bytes.peak / MIB, s.allocated_bytes.current / MIB, s.failures > 0 and "yes" or "nothing"))
end
print("on the device in all: " .. cnn.memory_allocated(device) .. " bytes")
