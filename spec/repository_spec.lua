-- SPDX-License-Identifier: MIT
-- What the sources must not say: paths of one machine, and hosts that packages come from.

-- Lines of text files that match, this file's own apart.
local function grep(pattern)
  local command = "grep -rnIE -e '%s' --exclude=repository_spec.lua --exclude-dir=build --exclude-dir=.git ."
  local pipe, lines = assert(io.popen(command:format(pattern))), {}
  for line in pipe:lines() do lines[#lines + 1] = line:sub(1, 160) end
  pipe:close()
  return table.concat(lines, "\n")
end

describe("the sources", function()
  it("name no machine's paths", function()
    assert.are.equal("", grep("(^|[^[:alnum:]_.])/(home|root|work|Users|mnt|opt/[a-z]+env)/"))
  end)

  it("name no package registry", function()
    assert.are.equal("", grep("(pypi|pythonhosted|luarocks|npmjs|deb\\.debian|archive\\.ubuntu)\\.(org|com)"))
  end)

  it("carry their licence on the first or second line", function()
    local pipe = assert(io.popen("find csrc lua bin -type f"))
    local missing = {}
    for name in pipe:lines() do
      local file = assert(io.open(name))
      local head = (file:read("*l") or "") .. (file:read("*l") or "")
      file:close()
      if not head:find("SPDX-License-Identifier: MIT", 1, true) then missing[#missing + 1] = name end
    end
    pipe:close()
    assert.are.equal("", table.concat(missing, "\n"))
  end)
end)
