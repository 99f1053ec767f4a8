-- What makes memory grow: the batch, by so many bytes for each sample; and steps, when something keeps their
-- graphs.
--   luajit examples/fundamentals/memory_growth.lua [--svg growth.svg]
local cnn = require "cnn"
local nn, F = cnn.nn, cnn.F

local function collect()
  for _ = 1, 2 do collectgarbage() end
end

cnn.manual_seed(1)
local model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))

local function parameter_bytes()
  local bytes = 0
  for _, p in ipairs(model:parameters()) do bytes = bytes + p.nbytes end
  return bytes
end

-- ---------------------------------------------------------------------------------------------
-- The batch

local function peak(batch, training)
  local x, y = cnn.randn(batch, 32), cnn.ones(batch, { dtype = "int64" })
  model:zero_grad()
  collect()
  local others = cnn.memory_stats().requested_bytes.current - parameter_bytes() - x.nbytes - y.nbytes
  cnn.reset_peak_memory_stats()
  cnn.scope(function()
    if training then
      F.cross_entropy(model(x), y):backward()
    else
      cnn.no_grad(function() model(x) end)
    end
  end)
  local bytes = cnn.memory_stats().requested_bytes.peak - others
  x:free()
  y:free()
  return bytes
end

local batches = { 1, 2, 4, 8, 16, 32, 64 }
local inference, training = {}, {}
for i, batch in ipairs(batches) do inference[i], training[i] = peak(batch, false), peak(batch, true) end

-- The line through points i and i + 1.
local function line(bytes, i)
  local each = (bytes[i + 1] - bytes[i]) / (batches[i + 1] - batches[i])
  return { fixed = bytes[i] - each * batches[i], each = each }
end

-- How far the largest of some lines is from the measured bytes.
local function residual(bytes, ...)
  local worst = 0
  for i, batch in ipairs(batches) do
    local most = 0
    for _, l in ipairs { ... } do most = math.max(most, l.fixed + l.each * batch) end
    worst = math.max(worst, math.abs(bytes[i] - most))
  end
  return worst
end

print(("parameters: %d bytes"):format(parameter_bytes()))
print "batch  inference   training"
for i, batch in ipairs(batches) do print(("%5d  %9d  %9d"):format(batch, inference[i], training[i])) end
local forward = line(inference, 1)
print(("inference = %d + B x %d, off by at most %d bytes"):format(forward.fixed, forward.each,
  residual(inference, forward)))
print(("what is fixed is the parameters: %s"):format(tostring(forward.fixed == parameter_bytes())))
-- Training is fullest either at the end of backward, when all gradients of parameters are there, or near its
-- beginning, when all activations still are.
local last, first = line(training, 1), line(training, #batches - 1)
print(("training = max(%d + B x %d, %d + B x %d), off by at most %d bytes"):format(last.fixed, last.each, first.fixed,
  first.each, residual(training, last, first)))
print(("what is fixed at the end is the parameters, their gradients and a loss of 4 bytes: %s"):format(
  tostring(last.fixed == 2 * parameter_bytes() + 4)))

-- ---------------------------------------------------------------------------------------------
-- Steps

local x, y = cnn.randn(32, 32), cnn.ones(32, { dtype = "int64" })
model:zero_grad()

-- Bytes after each of 20 evaluations, of which `keep` puts something into a list.
local function series(keep)
  collect()
  local before, losses, bytes = cnn.memory_allocated(), {}, {}
  for evaluation = 1, 20 do
    keep(losses)
    collect()
    bytes[evaluation] = cnn.memory_allocated() - before
  end
  return bytes
end

local function with_graph(losses)
  local loss = F.cross_entropy(model(x), y)
  losses[#losses + 1] = loss -- keeps all that backward would need
end

local kinds = {
  { name = "losses[#losses + 1] = loss", keep = with_graph },
  {
    name = "losses[#losses + 1] = loss:detach()",
    keep = function(losses) losses[#losses + 1] = F.cross_entropy(model(x), y):detach() end,
  },
  {
    name = "losses[#losses + 1] = loss:item()",
    keep = function(losses) losses[#losses + 1] = F.cross_entropy(model(x), y):item() end,
  },
}
print "\nbytes after 1, 10 and 20 evaluations"
for _, kind in ipairs(kinds) do
  kind.bytes = series(kind.keep)
  print(("%-36s %6d %6d %6d"):format(kind.name, kind.bytes[1], kind.bytes[10], kind.bytes[20]))
end

print "\nWhat one evaluation left behind, by cnn.leaks:"
local losses = {}
for _, left in ipairs(cnn.leaks(with_graph, losses)) do
  print(("%6d bytes, %s %s, made at %s"):format(left.bytes, left.kind, tostring(left.shape),
    (left.origin:gsub("[^ <]*/", ""))))
end

if arg[1] == "--svg" then
  local function series_of(name, bytes)
    local kib = {}
    for i = 1, #bytes do kib[i] = bytes[i] / 1024 end
    return { name = name, x = batches, y = kib, marks = true }
  end
  cnn.viz.plot({ series_of("inference", inference), series_of("training", training) },
    { title = "Peak over the batch", xlabel = "samples in the batch", ylabel = "KiB" }):save(arg[2])
end
