-- What makes memory grow with the batch: parameters stay, the input and the activations come once for each
-- sample. The peaks lie on lines, to the byte.
--   luajit examples/fundamentals/memory_growth.lua [--device cpu] [--svg growth.svg]
local cnn = require "cnn"
local nn, F = cnn.nn, cnn.F
local options = {}
for i = 1, #arg, 2 do options[arg[i]] = arg[i + 1] end
local device = options["--device"] or "cpu"

local model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)):to(device)
local parameters = 0
for _, p in ipairs(model:parameters()) do parameters = parameters + p.nbytes end

-- The requested bytes at the peak of one step, without those of others.
local workspace = 0
local function peak(batch, training)
  local x, y = cnn.randn(batch, 32, { device = device }), cnn.ones(batch, { dtype = "int64", device = device })
  model:zero_grad()
  for _ = 1, 2 do collectgarbage() end
  local others = cnn.memory_stats(device).requested_bytes.current - parameters - x.nbytes - y.nbytes
  cnn.reset_peak_memory_stats(device)
  cnn.scope(function()
    if training then F.cross_entropy(model(x), y):backward() else cnn.no_grad(model, x) end
  end)
  local stats = cnn.memory_stats(device)
  workspace = math.max(workspace, stats.kinds.workspace.peak)
  x:free()
  y:free()
  return stats.requested_bytes.peak - others
end

local batches, inference, training = { 1, 2, 4, 8, 16, 32, 64 }, {}, {}
print "batch  inference   training"
for i, batch in ipairs(batches) do
  inference[i], training[i] = peak(batch, false), peak(batch, true)
  print(("%5d  %9d  %9d"):format(batch, inference[i], training[i]))
end

-- The line through points i and i + 1, and how far the largest of some lines is from the bytes.
local function line(bytes, i)
  local each = (bytes[i + 1] - bytes[i]) / (batches[i + 1] - batches[i])
  return { fixed = bytes[i] - each * batches[i], each = each }
end
local function residual(bytes, a, b)
  local worst = 0
  for i, n in ipairs(batches) do
    worst = math.max(worst, math.abs(bytes[i] - math.max(a.fixed + a.each * n, b.fixed + b.each * n)))
  end
  return worst
end
local forward = line(inference, 1)
print(("inference = %d + B x %d, off by at most %d bytes; the parameters: %d bytes"):format(forward.fixed,
  forward.each, residual(inference, forward, forward), parameters))
-- Training is fullest at the end of backward, when all gradients of parameters are there, or near its beginning,
-- when all activations still are.
local last, first = line(training, 1), line(training, #batches - 1)
print(("training = max(%d + B x %d, %d + B x %d), off by at most %d bytes"):format(last.fixed, last.each, first.fixed,
  first.each, residual(training, last, first)))
local fixed = last.fixed == 2 * parameters + 4
if fixed or workspace == 0 then
  print("fixed at the end: parameters, gradients and a loss of 4 bytes: " .. tostring(fixed))
else
  print(("up to %d of these bytes are workspace of the device's libraries"):format(workspace))
end

if options["--svg"] then
  local function series(name, bytes)
    local kib = {}
    for i = 1, #bytes do kib[i] = bytes[i] / 1024 end
    return { name = name, x = batches, y = kib, marks = true }
  end
  cnn.viz.plot({ series("training", training), series("inference", inference) },
    { title = "Peak over the batch", xlabel = "samples in the batch", ylabel = "KiB" }):save(options["--svg"])
end
