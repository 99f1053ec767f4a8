-- Bytes per parameter, as they appear: weights, then gradients, then AdamW's state. And the same 16 bytes
-- in mixed precision.
--   luajit examples/fundamentals/adamw_bytes.lua [--device cpu]
local cnn = require "cnn"
local nn, optim = cnn.nn, cnn.optim
local device = arg[1] == "--device" and arg[2] or "cpu"
local N = 256
print(cnn.bytes_per_parameter("adamw", "float32"))
print(cnn.bytes_per_parameter("adamw", "mixed"))

local start = cnn.memory_allocated(device)
local function report(when, computed)
  for _ = 1, 2 do collectgarbage() end
  local measured = (cnn.memory_allocated(device) - start) / (N * N)
  print(("%-24s %4.1f bytes per parameter, as computed: %s"):format(when, measured, tostring(measured == computed)))
end

do
  local model = nn.Linear(N, N, { bias = false, device = device })
  local opt = optim.AdamW(model:parameters(), { lr = 1e-3 })
  local function backward()
    cnn.scope(function() model(cnn.ones(1, N, { device = device })):sum():backward() end)
  end
  report("created", 4)
  backward()
  report("after the first backward", 8)
  opt:step()
  report("after the first step", 16)
  opt:zero_grad()
  report("after zero_grad", 12)
  backward()
  report("after another backward", 16)
end

-- Mixed precision: 2 + 2 in float16 for the passes, 4 + 4 + 4 in float32 for the optimizer.
do
  local model = nn.Linear(N, N, { bias = false, device = device, dtype = "float16" })
  report("float16 weights", 2)
  local master = nn.Parameter(model.weight:detach():float())
  report("with master weights", 6)
  local opt = optim.AdamW({ master }, { lr = 1e-3 })
  cnn.scope(function()
    model(cnn.ones(1, N, { device = device, dtype = "float16" })):sum():backward()
    master.grad = model.weight.grad:float() -- for the step alone
    opt:step()
    master.grad = nil
    cnn.no_grad(function() model.weight:copy_(master) end)
  end)
  report("after a mixed step", 16)
end
