-- SPDX-License-Identifier: MIT
-- What require "cnn" brings into a process.

local helper = require "spec.helper"

-- The lines that a script prints.
local function printed(script)
  local lines = {}
  for line in helper.run(script):gmatch("[^\n]+") do lines[#lines + 1] = line end
  return lines
end

-- The sanitizers map libraries of their own.
local in_a_plain_build = os.getenv "CNN_SANITIZED" and pending or it

describe("require 'cnn'", function()
  in_a_plain_build("maps nothing but itself, libc, libm and pthreads", function()
    local paths = printed([[
      local function mapped()
        local found = {}
        for line in io.lines("/proc/self/maps") do
          local path = line:match("%s(/.*)$")
          if path then found[path] = true end
        end
        return found
      end
      local before = mapped()
      require "cnn"
      for path in pairs(mapped()) do
        if not before[path] then print(path) end
      end
    ]])
    local found = false
    for _, path in ipairs(paths) do
      local name = path:match("[^/]*$")
      found = found or name == "core.so"
      local allowed = name == "core.so" or name:find("^libc[.-]") or name:find("^libm[.-]")
        or name:find("^libpthread[.-]") or name:find("^ld%-linux")
      assert.is_truthy(allowed, path .. " is mapped")
    end
    assert.is_true(found)
  end)

  it("starts no thread and keeps no file open", function()
    local lines = printed([[
      local count = "ls /proc/$PPID/task | wc -l; ls /proc/$PPID/fd | wc -l"
      os.execute(count)
      require "cnn"
      os.execute(count)
    ]])
    assert.are.equal(4, #lines)
    assert.are.same({ lines[1], lines[2] }, { lines[3], lines[4] })
  end)

  it("makes no globals", function()
    local lines = printed([[
      local before = {}
      for name in pairs(_G) do before[name] = true end
      require "cnn"
      for name in pairs(_G) do
        if not before[name] then print(name) end
      end
    ]])
    assert.are.same({}, lines)
  end)
end)
