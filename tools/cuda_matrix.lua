-- SPDX-License-Identifier: MIT
-- How the CUDA plugin is tested on the simulator (tools/test.lua, groups cuda-sim and cuda-sim-full): lists of
-- configurations. Each has
--
--   name, flavour   the build of cuda/sim: plain, asan or check
--   settings        the simulator's knobs (cuda/sim/include/sim.h)
--   forms           CNN_OPS_FORMS of spec/ops_spec.lua: 1/1 is all, 1/5 every fifth
--   golden          the dtypes in which the golden values are computed
local ORDERS, STREAMS = { "forward", "reverse", "random" }, { "eager", "lazy", "random" }

local function configuration(flavour, order, streams, forms, golden, more)
  return {
    name = ("%s %s/%s"):format(flavour, order, streams), flavour = flavour, forms = forms, golden = golden,
    settings = ("SIM_ORDER=%s SIM_STREAMS=%s %s"):format(order, streams, more or ""),
  }
end

-- Between them every order and every schedule. The second and the third share the forms of an op. That the CPU
-- touches no memory of the GPU (SIM_PROTECT) depends on neither order nor schedule: the first sees it for all.
local quick = {
  configuration("plain", "forward", "eager", "1/1", { "float32", "float16" }),
  configuration("plain", "reverse", "random", "1/2", { "float32" }, "SIM_PROTECT=0"),
  configuration("asan", "random", "lazy", "2/2", { "float32" }, "SIM_PROTECT=0"),
  configuration("check", "random", "random", "3/4", { "float32" }, "SIM_PROTECT=0"),
}

local full = {}
for _, order in ipairs(ORDERS) do
  for _, streams in ipairs(STREAMS) do
    full[#full + 1] = configuration("plain", order, streams, "1/1", { "float64", "float32", "float16", "bfloat16" })
  end
end
full[#full + 1] = configuration("asan", "random", "lazy", "1/1", { "float64", "float32", "float16" })
for _, order in ipairs { "forward", "random" } do
  full[#full + 1] = configuration("check", order, "eager", "1/1", { "float64", "float32", "float16" })
end

-- Specs that one configuration runs, the first: what the simulator tells a learner, in its own order; and what
-- takes long.
local once = { cuda_kernel_spec = true, cuda_examples_spec = true, cuda_rows_spec = true }

-- What cuBLASLt and cuDNN compute is tried on own kernels, too.
local own = "conv.*,matmul.*,linear.*,addmm,baddbmm"

return { quick = quick, full = full, once = once, own = own }
