-- Which line frees what: a tensor's bytes live as long as anything holds them: a variable, a view, a graph.
-- After each line the bytes that it left.
--   luajit examples/fundamentals/liveness.lua [--device cpu]
local cnn = require "cnn"
cnn.set_default_device(arg[1] == "--device" and arg[2] or "cpu")

local function collect()
  for _ = 1, 2 do collectgarbage() end
end

local before = cnn.memory_allocated()
local function show(line)
  print(("%-70s %6d"):format(line, cnn.memory_allocated() - before))
end

print "The last reference, and the collector"
local x = cnn.ones(1024) -- luacheck: ignore
show "x = cnn.ones(1024)"
local alias = x -- luacheck: ignore
x = nil -- luacheck: ignore
collect()
show "alias = x; x = nil; collected: alias is the same handle"
alias = nil
show "alias = nil: garbage, and Lua has not looked yet"
collect()
show "collected"

print "At once: free, scope"
local a = cnn.ones(1024)
a:free()
show "a = cnn.ones(1024); a:free()"
local kept = cnn.scope(function()
  local b = cnn.ones(1024)
  return (b * 2 + 1):sum()
end)
show "cnn.scope(function() ... end): only the result is left"
kept:free()
show "its result freed"

print "The graph keeps what backward will need"
local w = cnn.ones(1024, { requires_grad = true })
show "w = cnn.ones(1024, {requires_grad = true})"
local h = w * 2
local y = h:square()
show "h = w * 2; y = h:square()"
h = nil -- luacheck: ignore
collect()
show "h = nil; collected: y's graph saved h, to differentiate the square"
for _, entry in ipairs(cnn.live()) do
  if not entry.requires_grad and entry.held then print("    " .. (entry.held:gsub(",.*", ""))) end
end
local value = y:detach() -- luacheck: ignore
y = nil -- luacheck: ignore
collect()
show "value = y:detach(); y = nil; collected: values without a graph"
value = nil
collect()
show "value = nil; collected"

local loss = (w * 2):square():sum()
collect()
show "loss = (w * 2):square():sum(): the number, and what the graph saved"
loss:backward()
collect()
show "loss:backward(): the graph let go; w has a gradient now"
w.grad = nil
collect()
show "w.grad = nil; collected"
loss:free()

local z = cnn.no_grad(function() return (w * 2):square() end)
collect()
show "under no_grad nothing is saved: w and the result"
z:free()
w:free()
show "all freed"

print "The collector is called in time"
local big = cnn.ones(2 ^ 18)
cnn.reset_peak_memory_stats()
for _ = 1, 1000 do local temporary = big * 2 end -- luacheck: ignore
print(("1000 temporaries of 1 MiB, nothing freed by hand, peak under 256 MiB: %s"):format(
  tostring(cnn.max_memory_allocated() - before < 256 * 2 ^ 20)))
