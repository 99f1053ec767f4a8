-- SPDX-License-Identifier: MIT
-- The floors of the house (docs/design.md): an #include goes down or stays on its floor, never up.

-- Lowest first. A floor may include itself and every floor before it.
local FLOORS = {
  { "base" }, { "memory" }, { "tensor" }, { "engine" }, { "ops" }, { "cpu", "nn", "optim", "io" },
  { "cnn" }, { "lua" },
}
local height = {}
for i, names in ipairs(FLOORS) do
  for _, name in ipairs(names) do height[name] = i end
end

-- Kernels see ops through seven headers of the engine and the tables that both share; plugins see
-- next to nothing.
local ONLY = {
  cpu = {
    "^base/", "^engine/op%.h$", "^engine/call%.h$", "^engine/fault%.h$", "^engine/parts%.h$", "^engine/product%.h$",
    "^engine/registry%.h$", "^engine/window%.h$",
    "^ops/[%w_]+%.def$", "^cpu/",
  },
  dnnl = { "^base/", "^cpu/accel%.h$", "^dnnl/" },
  codec = { "^base/", "^io/codec%.h$", "^codec/" },
}

local function part_of(path)
  return path:match("^([%w_]+)/") or path:match("^(cnn)%.[ch]$")
end

-- Why the file `from` (relative to csrc) must not include `to`, or nil.
local function fault(from, to)
  local here, there = part_of(from), part_of(to)
  if ONLY[here] then
    for _, pattern in ipairs(ONLY[here]) do
      if to:find(pattern) then return nil end
    end
    return "not among what csrc/" .. here .. " may see"
  end
  if not height[here] then return "its folder has no floor in this spec" end
  if not height[there] then return "what it includes has no floor" end
  if height[there] > height[here] then return "that is a floor above" end
  if height[there] == height[here] and there ~= here then return "that is a neighbour" end
end

-- Calls visit(file, included, in_quotes) for every #include under csrc.
local function each_include(visit)
  local count = 0
  local pipe = assert(io.popen([[grep -rE '^ *# *include' csrc --include='*.[ch]' --include='*.def']]))
  for line in pipe:lines() do
    local file, mark, included = line:match('^csrc/([^:]+): *# *include *(["<])([^">]+)')
    assert(file, "cannot read: " .. line)
    count = count + 1
    visit(file, included, mark == '"')
  end
  pipe:close()
  return count
end

describe("includes", function()
  it("never go up", function()
    local faults = {}
    local count = each_include(function(file, included, quoted)
      local why = quoted and fault(file, included)
      if why then faults[#faults + 1] = ("csrc/%s includes %s: %s"):format(file, included, why) end
    end)
    assert.is_true(count > 100)
    assert.are.equal("", table.concat(faults, "\n"))
  end)

  it("keep libraries where they belong", function()
    local OWNER = {
      ["^lua[%w]*%.h"] = "lua", ["^lauxlib%.h"] = "lua", ["^oneapi/"] = "dnnl", ["^dnnl"] = "dnnl",
      ["^zlib%.h"] = "codec", ["^cjson/"] = "codec", ["^omp%.h"] = "dnnl",
    }
    local faults = {}
    each_include(function(file, included, quoted)
      for pattern, owner in pairs(OWNER) do
        if not quoted and included:find(pattern) and part_of(file) ~= owner then
          faults[#faults + 1] = ("csrc/%s includes <%s>"):format(file, included)
        end
      end
    end)
    assert.are.equal("", table.concat(faults, "\n"))
  end)

  it("would be seen if they went up", function()
    assert.is_string(fault("memory/pool.c", "tensor/tensor.h"))
    assert.is_string(fault("nn/module.c", "cpu/cpu.h"))
    assert.is_string(fault("ops/unary.c", "lua/state.h"))
    assert.is_string(fault("cpu/unary.c", "engine/backward.h"))
    assert.is_string(fault("dnnl/gemm.c", "tensor/tensor.h"))
    assert.is_nil(fault("tensor/tensor.c", "memory/pool.h"))
    assert.is_nil(fault("lua/core.c", "cnn.h"))
    assert.is_nil(fault("cpu/unary.c", "ops/unary.def"))
  end)
end)
