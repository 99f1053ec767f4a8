-- SPDX-License-Identifier: MIT
-- What Lua's collector costs a training loop: the share of time spent in collections that the library
-- started, and the peak of live bytes, with and without cnn.scope, beside Lua heaps of several sizes. Then the
-- same under a limit of 1.3 times the ideal peak: that of a step which frees each handle as soon as it is used.
--   luajit bench/gc.lua [SECONDS per row, 4 by default] [limit: only the rows under a limit]
local cnn = require "cnn"
local nn, F = cnn.nn, cnn.F
local seconds = tonumber(arg[1]) or 4
local MIB = 2 ^ 20

local function none() end

local function workload(batch, width, free)
  free = free or none
  cnn.manual_seed(1)
  local model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
  local opt = cnn.optim.AdamW(model:parameters(), { lr = 1e-3 })
  local x, y = cnn.randn(batch, width), cnn.randn(batch, width)
  return function()
    opt:zero_grad()
    local h = x
    for _ = 1, 4 do
      local out = model(h)
      local half = out * 0.5 -- handles for the collector
      free(out)
      local sum = half + h
      free(half)
      if h ~= x then free(h) end
      h = sum:tanh()
      free(sum)
    end
    local loss = F.mse_loss(h, y)
    free(h)
    loss:backward()
    opt:step()
    local value = loss:item()
    free(loss)
    return value
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
local heap = {} -- luacheck: ignore (it only has to be there)
local function grow_heap(megabytes)
  while collectgarbage "count" < megabytes * 1024 do
    for _ = 1, 1000 do heap[#heap + 1] = { #heap, name = #heap } end
  end
end

if arg[2] ~= "limit" then
  print("work             Lua heap  scope  ms/step  in collector  collections  peak MiB")
  for _, megabytes in ipairs { 0, 10, 100 } do
    grow_heap(megabytes)
    for _, case in ipairs { { "small (8 x 16)", 8, 16 }, { "large (1024 x 256)", 1024, 256 } } do
      for _, scoped in ipairs { false, true } do
        local ms, share, collections, peak = measure(workload(case[2], case[3]), scoped)
        print(("%-18s %4.0f MB  %-5s  %7.3f  %11.1f%%  %11d  %8.1f"):format(case[1], collectgarbage "count" / 1024,
          scoped and "yes" or "no", ms, 100 * share, collections, peak))
      end
    end
  end
  heap = {}
  collectgarbage()
end

-- What a step takes when nothing waits for the collector.
local function ideal_peak(batch, width)
  for _ = 1, 2 do collectgarbage() end
  cnn.empty_cache()
  local step = workload(batch, width, function(t) t:free() end)
  for _ = 1, 3 do
    cnn.reset_peak_memory_stats()
    step()
  end
  return cnn.max_memory_allocated()
end

grow_heap(10)
local ideal = ideal_peak(4096, 256)
for _ = 1, 2 do collectgarbage() end
cnn.empty_cache()
cnn.set_memory_limit(1.3 * ideal)
print(("\n4096 x 256, beside a Lua heap of %.0f MB, under a limit of %.1f MiB = 1.3 times the ideal peak"):format(
  collectgarbage "count" / 1024, 1.3 * ideal / MIB))
print("scope  finished  ms/step  in collector  collections  peak MiB")
for _, scoped in ipairs { false, true } do
  local ok, ms, share, collections, peak = pcall(measure, workload(4096, 256), scoped)
  if not ok then
    print(("%-5s  no: %s"):format(scoped and "yes" or "no", ms))
  else
    print(("%-5s  yes       %7.3f  %11.1f%%  %11d  %8.1f"):format(scoped and "yes" or "no", ms, 100 * share,
      collections, peak))
  end
end
