-- What makes memory grow with every step: a list of losses that keeps their graphs. And how to find it.
--   luajit examples/fundamentals/kept_graphs.lua [--device cpu]
local cnn = require "cnn"
local nn, F = cnn.nn, cnn.F
local device = arg[1] == "--device" and arg[2] or "cpu"
cnn.set_default_device(device)

local model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
local x, y = cnn.randn(32, 32), cnn.ones(32, { dtype = "int64" })
local function evaluate() return F.cross_entropy(model(x), y) end

local function with_graph(losses)
  losses[#losses + 1] = evaluate() -- keeps all that backward would need
end

-- Bytes after each of 20 evaluations, of which `keep` puts something into a list.
local function series(keep)
  local losses, bytes = {}, {}
  for _ = 1, 2 do collectgarbage() end
  local before = cnn.memory_allocated()
  for i = 1, 20 do
    keep(losses)
    for _ = 1, 2 do collectgarbage() end
    bytes[i] = cnn.memory_allocated() - before
  end
  return bytes
end

print "bytes after 1, 10 and 20 evaluations"
for _, kind in ipairs {
  { "losses[#losses + 1] = loss", with_graph },
  { "losses[#losses + 1] = loss:detach()", function(losses) losses[#losses + 1] = evaluate():detach() end },
  { "losses[#losses + 1] = loss:item()", function(losses) losses[#losses + 1] = evaluate():item() end },
} do
  local bytes = series(kind[2])
  print(("%-36s %6d %6d %6d"):format(kind[1], bytes[1], bytes[10], bytes[20]))
end

print "\nwhat one evaluation left behind, by cnn.leaks:"
local losses = {}
for _, left in ipairs(cnn.leaks(with_graph, losses)) do
  print(("%6d bytes, %s %s, made at %s"):format(left.bytes, left.kind, tostring(left.shape),
    (left.origin:gsub("[^ <]*/", ""))))
end
