-- SPDX-License-Identifier: MIT
-- What Lua's collector costs a training loop: the share of time spent in collections that the library
-- started, and the peak of live bytes, with and without cnn.scope, beside Lua heaps of several sizes.
--   luajit bench/gc.lua [SECONDS per row, 4 by default]
local cnn = require "cnn"
local nn, F = cnn.nn, cnn.F
local seconds = tonumber(arg[1]) or 4
local MIB = 2 ^ 20

local function workload(batch, width)
  cnn.manual_seed(1)
  local model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
  local opt = cnn.optim.AdamW(model:parameters(), { lr = 1e-3 })
  local x, y = cnn.randn(batch, width), cnn.randn(batch, width)
  return function()
    opt:zero_grad()
    local h = x
    for _ = 1, 4 do h = (model(h) * 0.5 + h):tanh() end -- handles for the collector
    local loss = F.mse_loss(h, y)
    loss:backward()
    opt:step()
    return loss:item()
  end
end

-- Runs for a while; ms per step, share of time in collections, their number, and the peak in MiB.
local function measure(step, scoped)
  local warm = cnn.clock()
  repeat -- until what a collection costs is known
    if scoped then cnn.scope(step) else step() end
  until cnn.clock() - warm >= seconds
  for _ = 1, 2 do collectgarbage() end
  cnn.reset_peak_memory_stats()
  local before, start, n = cnn.gc(), cnn.clock(), 0
  repeat
    if scoped then cnn.scope(step) else step() end
    n = n + 1
  until cnn.clock() - start >= seconds
  local took, after = cnn.clock() - start, cnn.gc()
  return 1000 * took / n, (after.seconds - before.seconds) / took, after.collections - before.collections,
    cnn.max_memory_allocated() / MIB
end

print(("%s, %d threads, %g s a row"):format(type(jit) == "table" and jit.version or _VERSION, cnn.get_num_threads(),
  seconds))
print("work             Lua heap  scope  ms/step  in collector  collections  peak MiB")
local heap = {} -- luacheck: ignore (it only has to be there)
for _, megabytes in ipairs { 0, 10, 100 } do
  while collectgarbage "count" < megabytes * 1024 do
    for _ = 1, 1000 do heap[#heap + 1] = { #heap, name = #heap } end
  end
  for _, case in ipairs { { "small (8 x 16)", 8, 16 }, { "large (1024 x 256)", 1024, 256 } } do
    for _, scoped in ipairs { false, true } do
      local ms, share, collections, peak = measure(workload(case[2], case[3]), scoped)
      print(("%-18s %4.0f MB  %-5s  %7.3f  %11.1f%%  %11d  %8.1f"):format(case[1], collectgarbage "count" / 1024,
        scoped and "yes" or "no", ms, 100 * share, collections, peak))
    end
  end
end
