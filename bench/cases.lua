-- SPDX-License-Identifier: MIT
-- One benchmark case on cnn: prints seconds per iteration. bench/compare.lua runs it beside
-- bench/pytorch.py, which has the same cases.
--   luajit bench/cases.lua CASE [THREADS]
local clock_start = os.clock()
local cnn = require "cnn"
local nn, F, optim = cnn.nn, cnn.F, cnn.optim
local name, threads = arg[1], tonumber(arg[2] or "2")
cnn.set_num_threads(threads)
cnn.manual_seed(1)

-- The best of several rounds of n calls: noise only adds. Both libraries get the same time at least, so
-- that both meet a quiet moment.
local SECONDS = 0.7
local function measure(n, rounds, fn)
  local best, first, done = math.huge, cnn.clock(), 0
  fn(math.ceil(n / 10))
  while done < rounds or cnn.clock() - first < SECONDS do
    local start = cnn.clock()
    fn(n)
    best, done = math.min(best, (cnn.clock() - start) / n), done + 1
  end
  return best
end

local cases = {}

function cases.add()
  local a, b = cnn.randn(4), cnn.randn(4)
  return measure(50000, 7, function(n) for _ = 1, n do local _ = a + b end end)
end

function cases.add_grad()
  local a, b = cnn.randn(4, { requires_grad = true }), cnn.randn(4)
  return measure(50000, 7, function(n) for _ = 1, n do local _ = a + b end end)
end

function cases.linear_row()
  local layer, x = nn.Linear(32, 32), cnn.randn(1, 32)
  return measure(20000, 7, function(n) for _ = 1, n do local _ = layer(x) end end)
end

function cases.linear_row_no_grad()
  local layer, x = nn.Linear(32, 32), cnn.randn(1, 32)
  return cnn.no_grad(function()
    return measure(20000, 7, function(n) for _ = 1, n do local _ = layer(x) end end)
  end)
end

local function training(model, x, y, n, rounds)
  local opt = optim.AdamW(model:parameters(), { lr = 1e-3 })
  return measure(n, rounds, function(count)
    for _ = 1, count do
      opt:zero_grad()
      local loss = F.cross_entropy(model(x), y)
      loss:backward()
      opt:step()
    end
  end)
end

function cases.mlp_step()
  local model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
  return training(model, cnn.randn(64, 784), cnn.randint(1, 11, { 64 }), 200, 7)
end

-- The model of examples/fashion_mnist.lua.
function cases.convnet_step()
  local model = nn.Sequential(
    nn.Conv2d(1, 32, 3, { padding = 1, bias = false }), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, { padding = 1, bias = false }), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10))
  return training(model, cnn.randn(128, 1, 28, 28), cnn.randint(1, 11, { 128 }), 10, 5)
end

-- Processor time until the library is ready.
function cases.load() return os.clock() - clock_start end

print(("%.9g"):format((cases[name] or error("unknown case " .. tostring(name)))()))
