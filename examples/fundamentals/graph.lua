-- The graph that backward walks: which ops made the loss, and which tensors they keep for it.
--   luajit examples/fundamentals/graph.lua [--device cpu] [--svg graph.svg] [--dot graph.dot]
local cnn = require "cnn"
local device, svg, dot = "cpu", nil, nil
for i = 1, #arg, 2 do
  if arg[i] == "--device" then device = arg[i + 1] end
  if arg[i] == "--svg" then svg = arg[i + 1] end
  if arg[i] == "--dot" then dot = arg[i + 1] end
end
cnn.manual_seed(8)

local w = cnn.randn(4, 3, { device = device, requires_grad = true })
local x = cnn.randn(5, 4, { device = device })

-- Every node once, under the node that reads its result, with the bytes that it saves. Tensors that
-- share bytes are counted once in the sum.
local function show(title, loss)
  print(title)
  local seen, storages, total = {}, {}, 0
  local function walk(node, depth)
    local bytes = 0
    for _, s in ipairs(node.saved or {}) do
      bytes = bytes + s.bytes
      if not storages[s.storage] then total = total + s.bytes end
      storages[s.storage] = true
    end
    local again = node.sequence and seen[node.sequence]
    print(("  %s%s%s%s"):format(("  "):rep(depth), node.name,
      bytes > 0 and (" saves %d bytes"):format(bytes) or "", again and " (shown above)" or ""))
    if again then return end
    if node.sequence then seen[node.sequence] = true end
    for _, parent in ipairs(node:next_functions()) do walk(parent, depth + 1) end
  end
  if loss.grad_fn then walk(loss.grad_fn, 0) else print("  no graph") end
  print("  saved in all: " .. total .. " bytes")
end

local h = x:matmul(w):tanh()
local loss = (h * h):mean()
show("loss = mean(tanh(x w)^2)", loss)
show("with h:detach(): the graph ends there", (h:detach() * w:sum()):mean())
show("under no_grad: nothing is recorded", cnn.no_grad(function() return (x:matmul(w):tanh() ^ 2):mean() end))

for _, path in ipairs { svg or false, dot or false } do
  if path then
    cnn.viz.graph(loss, { names = { w = w } }):save(path)
    print("graph saved to " .. path)
  end
end
loss:backward()
print("after backward the saved tensors are gone: " .. #loss.grad_fn.saved .. " kept")
