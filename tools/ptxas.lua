-- SPDX-License-Identifier: MIT
-- What kernels take of a GPU, from ptxas' reports (-Xptxas -v): lua tools/ptxas.lua SOURCES report ...
-- Fails where a kernel
--   could not be launched with the largest block that its file's __launch_bounds__ name, or names none;
--   takes more shared memory than every GPU has without asking;
--   keeps registers in memory, beyond what `allowed` grants.
-- SOURCES is the folder of the .cu and .cuh files, report the file's own name with anything around it.
local REGISTERS, SHARED = 65536, 48 * 1024

-- Bytes of a kernel's stack and of spills, by a pattern of its mangled name; the first that matches counts.
local allowed = {
  -- Functions of float64 whose slow paths are calls: what lives across one lies on the stack.
  { "k_map_kernelI7f_unaryId", 40, 0 },
  { "k_map_kernelI16f_unary_backwardId", 40, 0 },
  { "k_drawI6normalId", 40, 0 },
  { "k_map_kernelI%d+f_[a-z]*gamma", 40, 0 }, -- (float32 ones that are computed in float64)
  { "k_map_kernelI%d+f_sinc_backward", 40, 0 }, -- sine and cosine of large arguments
  -- Lines of float64 held in registers: the last few don't fit, and are rarely needed.
  { "k_softmax[%w_]*Id", 32, 288 },
  { "k_scanI7runningIvd", 8, 16 },
  { "k_classesI", 24, 24 }, -- a word or two that are read once for a line
  { "k_cross_entropyI", 24, 24 },
  { "k_keys5space", 8, 8 },
  { "k_reduceI8fold_sumIlE11k_convertedIlE", 8, 8 }, -- sums of int8 to int32
}

local folder = table.remove(arg, 1)
local faults, kernels = {}, 0

local function fault(text, ...)
  faults[#faults + 1] = text:format(...)
end

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

-- ---------------------------------------------------------------------------------------------
-- The largest block of each source's kernels: those of headers are everyone's.

local defined, sources, common, blocks = {}, {}, 0, {} -- of the headers; file by file
do
  local pipe = assert(io.popen(("ls '%s'/*.cuh '%s'/*.cu 2>/dev/null"):format(folder, folder)))
  for path in pipe:lines() do
    local source = { path = path, text = read(path), numbers = setmetatable({}, { __index = defined }) }
    sources[#sources + 1] = source
    local numbers = path:find "%.cuh$" and defined or source.numbers
    for name, n in source.text:gmatch "#define%s+([%w_]+)%s+(%d+)" do numbers[name] = n end
  end
  pipe:close()
end
for _, source in ipairs(sources) do
  local largest = 0
  for kernel in source.text:gmatch "__global__([^;{]*)" do
    local product = 1
    for factor in (kernel:match "__launch_bounds__%(([^,)]*)" or "?"):gmatch "[^*%s]+" do
      product = product * (tonumber(source.numbers[factor] or factor) or 0)
    end
    if product == 0 then
      fault("%s: the block of %s is not bounded by a number", source.path,
        kernel:gsub("__launch_bounds__%b()", ""):match "([%w_]+)%(" or "a kernel")
    end
    largest = math.max(largest, product)
  end
  blocks[source.path:match "[^/]*$"] = largest
  if source.path:find "%.cuh$" then common = math.max(common, largest) end
end

-- ---------------------------------------------------------------------------------------------

local function grant(name)
  for _, entry in ipairs(allowed) do
    if name:find(entry[1]) then return entry[2], entry[3] end
  end
  return 0, 0
end

local function check(kernel, block)
  local stack, spills = grant(kernel.name)
  local function say(text, ...)
    fault("%s for %s: " .. text, kernel.name, kernel.arch, ...)
  end
  if kernel.registers * block > REGISTERS then
    say("%d registers for each of %d threads", kernel.registers, block)
  end
  if kernel.shared > SHARED then say("%d bytes of shared memory", kernel.shared) end
  if kernel.stack > stack then say("%d bytes of stack", kernel.stack) end
  if kernel.spills > spills then say("%d bytes of registers are spilled", kernel.spills) end
end

local rows, archs = {}, {}
for _, path in ipairs(arg) do
  local source = path:match("[^/]*%.cu")
  local row = { source = source, kernels = 0, registers = 0, shared = 0, stack = 0, spills = 0 }
  local block, kernel = math.max(blocks[source] or 0, common), nil
  for line in io.lines(path) do
    local name, arch = line:match("Compiling entry function '([^']+)' for '([^']+)'")
    if name then
      kernel, archs[arch] = { name = name, arch = arch, stack = 0, spills = 0 }, true
    elseif kernel then
      kernel.stack = tonumber(line:match("(%d+) bytes stack frame")) or kernel.stack
      kernel.spills = tonumber(line:match("(%d+) bytes spill stores")) or kernel.spills
      kernel.registers = tonumber(line:match("Used (%d+) registers"))
      if kernel.registers then
        kernel.shared = tonumber(line:match("(%d+) bytes smem")) or 0
        check(kernel, block)
        row.kernels = row.kernels + 1
        for _, what in ipairs { "registers", "shared", "stack", "spills" } do
          row[what] = math.max(row[what], kernel[what])
        end
        kernel = nil
      end
    end
  end
  kernels = kernels + row.kernels
  if row.kernels > 0 then rows[#rows + 1] = row end
end
if kernels == 0 then fault("no kernel is reported on") end

print("                        kernels  registers  shared  stack  spilled")
for _, row in ipairs(rows) do
  print(("%-22s %8d %10d %7d %6d %8d"):format(row.source, row.kernels, row.registers, row.shared, row.stack,
    row.spills))
end
local names = {}
for arch in pairs(archs) do names[#names + 1] = arch end
table.sort(names)
print(("%d kernels for %s; %d faults"):format(kernels, table.concat(names, ", "), #faults))
for _, text in ipairs(faults) do print(text) end
os.exit(#faults == 0 and 0 or 1)
