-- SPDX-License-Identifier: MIT
-- One training run on cnn: prints the resident memory after require, after two steps of a tiny model, and
-- at the peak, in KiB, then the losses. bench/memory.lua runs it beside bench/memory_pytorch.py, which
-- does the same.
--   luajit bench/memory_cases.lua CASE STEPS THREADS DROPOUT
local cnn = require "cnn"
local nn, F, optim = cnn.nn, cnn.F, cnn.optim

local function resident(field)
  for line in io.lines("/proc/self/status") do
    local kib = line:match("^" .. field .. ":%s+(%d+)")
    if kib then return tonumber(kib) end
  end
end

local level = resident "VmRSS"
local refs = assert(io.open("/proc/self/clear_refs", "w"))
refs:write("5") -- from here on VmHWM is the peak
refs:close()

local name, steps, dropout = arg[1], tonumber(arg[2]), tonumber(arg[4])
local unpack = table.unpack or unpack -- luacheck: ignore
cnn.set_num_threads(tonumber(arg[3]))
cnn.manual_seed(1)

-- Numbers in [-1, 1) that look random and are the same in both libraries.
local function noise(n, seed)
  return cnn.arange(n, { dtype = "float64" }):add(seed):mul(12.9898):sin():mul(43758.5453):remainder(1):mul(2):sub(1)
end

-- Weights by formula, biases 0; the scales of norms stay 1.
local function initialize(model)
  local seed = 0
  cnn.no_grad(function()
    for _, p in ipairs(model:parameters()) do
      seed = seed + 0.1
      if p:dim() > 1 then
        local fan_in = p:numel() / p:size(1)
        cnn.scope(function() p:copy_(noise(p:numel(), seed):reshape(p:size()):div(math.sqrt(fan_in))) end)
      end
    end
    for path, p in model:named_parameters() do
      if path:match("bias$") then p:zero_() end
    end
  end)
  return model
end

local cases = {}

-- The model and batch of examples/fashion_mnist.lua.
function cases.convnet()
  return 128, { 1, 28, 28 }, nn.Sequential(
    nn.Conv2d(1, 32, 3, { padding = 1, bias = false }), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, { padding = 1, bias = false }), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Dropout(dropout), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Dropout(dropout),
    nn.Linear(128, 10))
end

local Block = nn.Module:extend("Block")

function Block:init(width)
  self.norm = nn.LayerNorm(width)
  self.up = nn.Linear(width, 4 * width)
  self.down = nn.Linear(4 * width, width)
end

function Block:forward(x)
  return x + self.down(F.gelu(self.up(self.norm(x))))
end

-- 12 residual blocks of width 256: 6.5 million parameters.
function cases.residual_mlp()
  local layers = { nn.Linear(784, 256) }
  for _ = 1, 12 do layers[#layers + 1] = Block(256) end
  layers[#layers + 1] = nn.LayerNorm(256)
  layers[#layers + 1] = nn.Linear(256, 10)
  return 256, { 784 }, nn.Sequential(layers)
end

-- As a user writes it without cnn.scope.
cases.residual_mlp_unscoped = cases.residual_mlp

local function training(model)
  local opt = optim.AdamW(model:parameters(), { lr = 1e-3 })
  local function step(x, y)
    opt:zero_grad()
    local loss = F.cross_entropy(model(x), y)
    loss:backward()
    opt:step()
    return loss:item()
  end
  if name:match("unscoped$") then return step end
  return function(x, y) return cnn.scope(step, x, y) end
end

-- Whatever the library does at its first use of all that the cases need.
local function warm_up()
  local step = training(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    nn.Dropout(dropout), nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2)))
  for _ = 1, 2 do step(cnn.ones(2, 1, 6, 6), cnn.ones(2, { dtype = "int64" })) end
end
warm_up()
local warm = resident "VmRSS"

local BATCHES = 4
local batch, shape, model = cases[name]()
local step = training(initialize(model))

local function make_batch(i)
  local y = cnn.arange(batch, { dtype = "int64" }):remainder(10)
  local pixel = cnn.arange(784):mul(0.05)
  local x = y:unsqueeze(2):float():add(1):mul(pixel):sin() + noise(batch * 784, i):reshape(batch, 784):float()
  return x:reshape(batch, unpack(shape)), y + 1
end

local xs, ys = {}, {}
for i = 1, BATCHES do xs[i], ys[i] = cnn.scope(make_batch, i) end

local losses = {}
for i = 1, steps do
  local k = (i - 1) % BATCHES + 1
  losses[i] = ("%.6g"):format(step(xs[k], ys[k]))
end
print(level, warm, resident "VmHWM", table.concat(losses, " "))
