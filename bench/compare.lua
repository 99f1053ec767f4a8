-- SPDX-License-Identifier: MIT
-- cnn beside PyTorch: each case runs in a process of its own, the two libraries in turn, and the ratio
-- of each pair is taken; printed is the median of five. Absolute times are for orientation only.
--   CNN_PYTHON=path/to/python luajit bench/compare.lua [CASE ...]
-- CNN_PYTHON names a Python that can import torch (default: python3).
local python = os.getenv("CNN_PYTHON") or "python3"
local lua = os.getenv("CNN_LUA") or arg[-1]
local here = arg[0]:match("^(.*)/[^/]*$") or "."
local THREADS, PAIRS = 2, 5

-- The most that the ratio may be, as the project promises it.
local cases = {
  { "add", 0.25, "a + b on 4 elements" },
  { "add_grad", 0.25, "a + b on 4 elements, with gradient" },
  { "linear_row", 0.25, "nn.Linear(32, 32) on one row, with gradient" },
  { "linear_row_no_grad", 0.25, "nn.Linear(32, 32) on one row" },
  { "mlp_step", 0.67, "MLP 784-128-10, batch 64, AdamW step" },
  { "convnet_step", 1.1, "the demo's convnet, batch 128, AdamW step" },
  { "load", 0.02, "require \"cnn\" against import torch" },
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

local version = run(("%s %s/pytorch.py version 2>/dev/null"):format(python, here))
if version == "" then
  print("bench: " .. python .. " can't import torch; name one that can: CNN_PYTHON=path/to/python")
  os.exit(1)
end
print("rival: " .. version:gsub("%s+$", "") .. ("; %d threads"):format(THREADS))

local wanted = {}
for _, name in ipairs(arg) do wanted[name] = true end
local within = true
for _, case in ipairs(cases) do
  if #arg == 0 or wanted[case[1]] then
    local ratios, ours, theirs = {}, {}, {}
    for i = 1, PAIRS do
      ours[i] = tonumber(run(("%s %s/cases.lua %s %d"):format(lua, here, case[1], THREADS)))
      theirs[i] = tonumber(run(("%s %s/pytorch.py %s %d 2>/dev/null"):format(python, here, case[1], THREADS)))
      ratios[i] = ours[i] / theirs[i]
    end
    local ratio = median(ratios)
    within = within and ratio <= case[2]
    print(("%-46s ratio %6.3f (at most %.2f) %s   %9.2f us against %9.2f us"):format(case[3], ratio, case[2],
      ratio <= case[2] and "yes" or "NO ", 1e6 * median(ours), 1e6 * median(theirs)))
  end
end
os.exit(within and 0 or 1)
