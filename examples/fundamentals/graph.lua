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

-- Every node once, with the bytes that it saves.
local function show(title, loss)
  print(title)
  local seen, total = {}, 0
  local function walk(node, depth)
    local saved = 0
    for _, s in ipairs(node.saved or {}) do saved = saved + s.bytes end
    local key = node.key or node
    local again = seen[key]
    print(("  %s%s%s"):format(("  "):rep(depth), node.name,
      saved > 0 and (" saves %d bytes"):format(saved) or ""))
    if again then return end
    seen[key] = true
    total = total + saved
    for _, parent in ipairs(node:next_functions()) do walk(parent, depth + 1) end
  end
  if loss.grad_fn then walk(loss.grad_fn, 0) else print("  no graph") end
  print("  saved in all: " .. total)
end

local h = x:matmul(w):tanh()
local loss = (h * h):mean()
show("loss = mean(tanh(x w)^2)", loss)
show("with h:detach(): the graph ends there", (h:detach() * w:sum()):mean())
show("under no_grad: nothing is recorded", cnn.no_grad(function() return (x:matmul(w):tanh() ^ 2):mean() end))

if dot then
  cnn.viz.graph(loss, { dot = dot })
  print("graph saved to " .. dot)
end
if svg then
  cnn.viz.graph(loss, { svg = svg })
  print("graph saved to " .. svg)
end
loss:backward()
print("after backward the saved tensors are gone: " .. #loss.grad_fn.saved .. " kept")
