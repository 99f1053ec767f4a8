-- SPDX-License-Identifier: MIT
-- Resident memory of training beside PyTorch: each run is a process of its own, the two libraries in
-- turn; printed are medians and their ratios. Linux only.
--   CNN_PYTHON=path/to/python luajit bench/memory.lua [CASE ...]
-- CNN_PYTHON names a Python that can import torch (default: python3).
--
-- "loaded" is what is resident after require or import, "warm" after two steps of a tiny model besides
-- (PyTorch imports more of itself at its first optimizer). The peak is VmHWM.
local python = os.getenv("CNN_PYTHON") or "python3"
local lua = os.getenv("CNN_LUA") or arg[-1]
local here = arg[0]:match("^(.*)/[^/]*$") or "."
local THREADS, RUNS, STEPS, CHECKED = 2, 3, 24, 8

-- The most that the ratios may be, as the project promises them.
local ABOVE, IN_ALL = 1, 0.6
local cases = {
  { "convnet", "the demo's convnet, batch 128" },
  { "residual_mlp", "MLP of 12 residual blocks, batch 256" },
  { "residual_mlp_unscoped", "the same without cnn.scope" },
}

local function run(command)
  local pipe = io.popen(command)
  local text = pipe:read("*a")
  pipe:close()
  return text
end

local function median(values)
  table.sort(values)
  return values[math.ceil(#values / 2)]
end

-- loaded, warm and peak in MiB, and the losses.
local function train(program, case, steps, dropout)
  local text = run(("%s %s %d %d %g"):format(program, case, steps, THREADS, dropout))
  local loaded, warm, peak, losses = text:match("^(%d+)%s+(%d+)%s+(%d+)%s+(.*)$")
  if not loaded then error("no figures from " .. program .. " " .. case) end
  local list = {}
  for loss in losses:gmatch("%S+") do list[#list + 1] = tonumber(loss) end
  return loaded / 1024, warm / 1024, peak / 1024, list
end

local programs = {
  cnn = ("%s %s/memory_cases.lua"):format(lua, here),
  torch = ("%s %s/memory_pytorch.py"):format(python, here),
}
local version = run(programs.torch .. " version 2>/dev/null")
if version == "" then
  print("bench: " .. python .. " can't import torch; name one that can: CNN_PYTHON=path/to/python")
  os.exit(1)
end
print("rival: " .. version:gsub("%s+$", "") .. ("; %d threads, %d AdamW steps in float32, medians of %d"):format(
  THREADS, STEPS, RUNS))

-- The largest difference between the losses of both, by the larger one's size, without dropout.
local function disagreement(case)
  local _, _, _, a = train(programs.cnn, case, CHECKED, 0)
  local _, _, _, b = train(programs.torch, case, CHECKED, 0)
  local worst = 0
  for i = 1, CHECKED do worst = math.max(worst, math.abs(a[i] - b[i]) / math.max(a[i], b[i])) end
  return worst
end

local function measure(case)
  local all = {}
  for _ = 1, RUNS do
    for library, program in pairs(programs) do
      local f = all[library] or { {}, {}, {} }
      all[library] = f
      local figures = { train(program, case, STEPS, 0.3) }
      for k = 1, 3 do table.insert(f[k], figures[k]) end
    end
  end
  for _, f in pairs(all) do for k = 1, 3 do f[k] = median(f[k]) end end
  return all.cnn, all.torch
end

local wanted = {}
for _, name in ipairs(arg) do wanted[name] = true end
local within = true
for _, case in ipairs(cases) do
  if #arg == 0 or wanted[case[1]] then
    local off = disagreement(case[1])
    local ours, theirs = measure(case[1])
    print(("%s: losses agree to %.1g"):format(case[2], off))
    print("  MiB               cnn  PyTorch    ratio")
    local function row(title, a, b, most)
      local ratio = a / b
      if most and ratio > most then within = false end
      print(("  %-13s %7.1f  %7.1f  %7.2f%s"):format(title, a, b, ratio,
        most and (" (at most %.2f) %s"):format(most, ratio <= most and "yes" or "NO") or ""))
    end
    row("loaded", ours[1], theirs[1])
    row("above loaded", ours[3] - ours[1], theirs[3] - theirs[1], ABOVE)
    row("above warm", ours[3] - ours[2], theirs[3] - theirs[2])
    row("in all", ours[3], theirs[3], IN_ALL)
    within = within and off < 1e-3
  end
end
os.exit(within and 0 or 1)
