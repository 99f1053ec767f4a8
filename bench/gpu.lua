-- SPDX-License-Identifier: MIT
-- One side of bench/gpu.py: cases on a GPU, timed by its events and by the wall clock. Reads commands,
-- a line each, and answers each by a line:
--   set up CASE    "ok", or "error: ..." in one line
--   run N          seconds of N iterations: by events, by the clock
-- Alone it runs what is named, or all:
--   luajit bench/gpu.lua [--tiny] [CASE ...]
local cnn = require "cnn"
local nn, F, optim, cuda = cnn.nn, cnn.F, cnn.optim, cnn.cuda

local tiny, server, names = false, false, {}
for _, a in ipairs(arg) do
  if a == "--tiny" then
    tiny = true
  elseif a == "--server" then
    server = true
  else
    names[#names + 1] = a
  end
end

-- A size, or what stands for it on the simulator.
local function size(full, small) return tiny and small or full end

local function randn(dtype, ...)
  return cnn.randn({ ... }, { device = "cuda" }):to(dtype)
end

-- ---------------------------------------------------------------------------------------------
-- Cases, as in cuda.py: a function that makes what is needed and gives the iteration.

local cases, order = {}, {}
local function case(name, make)
  cases[name] = make
  order[#order + 1] = name
end

case("copy", function()
  local x = randn("float32", size(2 ^ 28, 1000))
  local y = cnn.empty_like(x)
  return function() y:copy_(x) end
end)

for _, dtype in ipairs { "float32", "bfloat16" } do
  local n = size(8192, 32)
  case("matmul " .. dtype, function()
    local a, b = randn(dtype, n, n), randn(dtype, n, n)
    return function() return a:matmul(b) end
  end)
end

-- y and its gradients, where y = f(x, ...).
local function both_ways(x, f)
  x:requires_grad_()
  local dy = cnn.ones_like(f(x))
  return function()
    x.grad = nil
    f(x):backward(dy)
  end
end

for _, dtype in ipairs { "float32", "bfloat16" } do
  local rows, columns = size(16384, 8), size(4096, 40)
  case("add " .. dtype, function()
    local a, b = randn(dtype, rows, columns), randn(dtype, rows, columns)
    return function() return a + b end
  end)
  case("gelu " .. dtype, function()
    local x = randn(dtype, rows, columns)
    return function() return F.gelu(x) end
  end)
  case("sum " .. dtype, function()
    local x = randn(dtype, rows, columns)
    return function() return x:sum(2) end
  end)
  case("softmax " .. dtype, function()
    local x = randn(dtype, rows, columns)
    return function() return F.softmax(x, 2) end
  end)
  case("layer_norm " .. dtype, function()
    local layer = nn.LayerNorm(columns):to("cuda"):to(dtype)
    return both_ways(randn(dtype, rows, columns), function(x) return layer(x) end)
  end)
  case("cross_entropy " .. dtype, function()
    local x = randn(dtype, size(8192, 8), size(32000, 40)):requires_grad_()
    local y = cnn.randint(1, size(32000, 40) + 1, { size(8192, 8) }, { device = "cuda" })
    return function()
      x.grad = nil
      F.cross_entropy(x, y):backward()
    end
  end)
  case("conv2d " .. dtype, function()
    local layer = nn.Conv2d(size(128, 4), size(128, 4), 3, { padding = 1 }):to("cuda"):to(dtype)
    return both_ways(randn(dtype, size(64, 1), size(128, 4), size(56, 6), size(56, 6)),
      function(x) return layer(x) end)
  end)
end

case("adamw", function()
  local list = {}
  for i = 1, size(100, 3) do
    list[i] = randn("float32", size(2 ^ 20, 100)):requires_grad_()
    list[i].grad = randn("float32", size(2 ^ 20, 100))
  end
  local opt = optim.AdamW(list, { lr = 1e-3 })
  return function() opt:step() end
end)

local function training(model, x, classes)
  model:to("cuda")
  local y = cnn.randint(1, classes + 1, { x:size(1) }, { device = "cuda" })
  local opt = optim.AdamW(model:parameters(), { lr = 1e-3 })
  return function()
    opt:zero_grad()
    F.cross_entropy(model(x), y):backward()
    opt:step()
  end
end

case("mlp step, batch 64", function()
  local model = nn.Sequential(nn.Linear(784, size(128, 8)), nn.ReLU(), nn.Linear(size(128, 8), 10))
  return training(model, randn("float32", size(64, 2), 784), 10)
end)
case("mlp step, batch 4096", function()
  local wide = size(4096, 16)
  local model = nn.Sequential(nn.Linear(784, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 10))
  return training(model, randn("float32", size(4096, 2), 784), 10)
end)
case("convnet step", function()
  local a, b, c = size(32, 2), size(64, 2), size(128, 8)
  local model = nn.Sequential(
    nn.Conv2d(1, a, 3, { padding = 1, bias = false }), nn.BatchNorm2d(a), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(a, b, 3, { padding = 1, bias = false }), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Dropout(0.3), nn.Linear(b * 7 * 7, c), nn.ReLU(), nn.Dropout(0.3), nn.Linear(c, 10))
  return training(model, randn("float32", size(512, 2), 1, 28, 28), 10)
end)

-- ---------------------------------------------------------------------------------------------

local iteration

local function set_up(name)
  iteration = nil
  collectgarbage()
  cuda.empty_cache()
  cnn.manual_seed(1)
  iteration = (cases[name] or error("unknown case " .. name))()
  iteration()
  cuda.synchronize()
end

local function run(n)
  local first, last = cuda.Event { enable_timing = true }, cuda.Event { enable_timing = true }
  cuda.synchronize()
  local start = cnn.clock()
  first:record()
  for _ = 1, n do iteration() end
  last:record()
  cuda.synchronize()
  return first:elapsed_time(last) / 1e3, cnn.clock() - start
end

if server then
  io.stdout:setvbuf "line"
  for line in io.lines() do
    local name, n = line:match "^set up (.*)", line:match "^run (%d+)"
    local ok, events, wall = pcall(name and set_up or run, name or tonumber(n))
    if not ok then
      print("error: " .. tostring(events):gsub("%s+", " "))
    elseif name then
      print "ok"
    else
      print(("%.9g %.9g"):format(events, wall))
    end
  end
  return
end

for _, name in ipairs(#names > 0 and names or order) do
  local ok, problem = pcall(set_up, name)
  if ok then
    local n = math.max(1, math.min(1000, math.floor(size(0.1, 0) / run(1))))
    local events, wall = run(n)
    print(("%-24s %10.3f ms by events, %10.3f ms by the clock"):format(name, 1e3 * events / n, 1e3 * wall / n))
  else
    print(("%-24s %s"):format(name, problem))
  end
end
