-- SPDX-License-Identifier: MIT
-- What kernels take of a GPU, from ptxas' reports (-Xptxas -v): lua tools/ptxas.lua report ...
-- Fails where a kernel could not be launched with the largest block that it is compiled for, takes more
-- shared memory than every GPU has without asking, or spills more registers than a few.
local BLOCK = 256 -- threads: __launch_bounds__ of all kernels that don't say less
-- (Calls of the slow paths of double functions save some registers on the stack.)
local REGISTERS, SHARED, SPILLS = 65536, 48 * 1024, 256

local faults, kernels, most = {}, 0, { registers = 0, shared = 0, spills = 0 }

local function note(kernel)
  local spills = kernel.spills or 0
  kernels = kernels + 1
  most.registers = math.max(most.registers, kernel.registers)
  most.shared = math.max(most.shared, kernel.shared)
  most.spills = math.max(most.spills, spills)
  local function fault(text, ...)
    faults[#faults + 1] = ("%s for %s: " .. text):format(kernel.name, kernel.arch, ...)
  end
  if kernel.registers * BLOCK > REGISTERS then fault("%d registers for each of %d threads", kernel.registers, BLOCK) end
  if kernel.shared > SHARED then fault("%d bytes of shared memory", kernel.shared) end
  if spills > SPILLS then fault("%d bytes of registers are spilled", spills) end
end

for _, path in ipairs(arg) do
  local name, arch, spills
  for line in io.lines(path) do
    local entry, target = line:match("Compiling entry function '([^']+)' for '([^']+)'")
    if entry then
      name, arch, spills = entry, target, nil
    else
      spills = tonumber(line:match("(%d+) bytes spill stores")) or spills
      local registers = line:match("Used (%d+) registers")
      if registers and name then
        note { name = name, arch = arch, registers = tonumber(registers), spills = spills,
          shared = tonumber(line:match("(%d+) bytes smem")) or 0 }
        name = nil
      end
    end
  end
end

print(("%d kernels: at most %d registers, %d bytes of shared memory, %d bytes spilled"):format(kernels,
  most.registers, most.shared, most.spills))
for _, fault in ipairs(faults) do print(fault) end
os.exit(#faults == 0 and kernels > 0 and 0 or 1)
