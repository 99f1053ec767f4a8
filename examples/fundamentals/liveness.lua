-- Which line frees what: a tensor's bytes live as long as anything holds them: a variable, a view, a graph.
-- Each line is run, and printed with the bytes that it left.
--   luajit examples/fundamentals/liveness.lua [--device cpu]
local cnn = require "cnn"
cnn.set_default_device(arg[1] == "--device" and arg[2] or "cpu")

local names = { cnn = cnn, print = print } -- what the lines see
function names.collect() for _ = 1, 2 do collectgarbage() end end
function names.show_saved()
  for _, entry in ipairs(cnn.live()) do
    if entry.held and entry.held:find "^saved" then print("    " .. entry.held:match "^[^,]*") end
  end
end

local before = cnn.memory_allocated()
for _, step in ipairs {
  { "x = cnn.ones(1024)" },
  { "alias = x; x = nil; collect()", "alias is the same handle" },
  { "alias = nil", "garbage, and Lua has not looked yet" },
  { "collect()" },
  { "a = cnn.ones(1024); a:free()", "at once" },
  { "s = cnn.scope(function() return (cnn.ones(1024) * 2 + 1):sum() end)", "only the result is left" },
  { "s:free()" },
  { "w = cnn.ones(1024, {requires_grad = true})" },
  { "h = w * 2; y = h:square()" },
  { "h = nil; collect()", "y's graph saved h, to differentiate the square" },
  { "show_saved()" },
  { "value = y:detach(); y = nil; collect()", "values without a graph" },
  { "value = nil; collect()" },
  { "loss = (w * 2):square():sum(); collect()", "the number, and what the graph saved" },
  { "loss:backward(); collect()", "the graph let go; w has a gradient now" },
  { "w.grad = nil; collect()" },
  { "loss:free()" },
  { "z = cnn.no_grad(function() return (w * 2):square() end); collect()", "nothing is saved: w and the result" },
  { "z:free(); w:free()", "all freed" },
} do
  local line = setfenv and setfenv(loadstring(step[1]), names) or load(step[1], nil, "t", names) -- luacheck: ignore
  line()
  print(("%6d  %s%s"):format(cnn.memory_allocated() - before, step[1], step[2] and "  -- " .. step[2] or ""))
end

local big = cnn.ones(2 ^ 18)
cnn.reset_peak_memory_stats()
for _ = 1, 1000 do local temporary = big * 2 end -- luacheck: ignore
print(("1000 temporaries of 1 MiB, nothing freed by hand, peak under 256 MiB: %s"):format(
  tostring(cnn.max_memory_allocated() - before < 256 * 2 ^ 20)))
