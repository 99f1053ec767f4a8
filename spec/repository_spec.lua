-- SPDX-License-Identifier: MIT
-- What the sources must not say: paths of one machine, hosts that packages come from, one name for two types.

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

  -- Templates of two files on types of one name are one function for the linker, whatever the types hold.
  it("give a type of one .cu file no other's name, but in an unnamed namespace", function()
    local owner, clashes, pipe = {}, {}, assert(io.popen("ls cuda/*.cu"))
    for path in pipe:lines() do
      local file = assert(io.open(path))
      local text = "\n" .. file:read("*a"):gsub("\nnamespace {\n.-\n} // namespace\n", "\n")
      file:close()
      for line in text:gmatch "\n([^\n]*)" do
        local name = line:match "^struct ([%w_]+)" or line:match "^typedef struct ([%w_]+)"
          or line:match "^template <.*> struct ([%w_]+)"
        if name and (owner[name] or path) ~= path then
          clashes[#clashes + 1] = name .. ": " .. owner[name] .. ", " .. path
        end
        if name then owner[name] = path end
      end
    end
    pipe:close()
    assert.is_truthy(next(owner))
    assert.are.equal("", table.concat(clashes, "\n"))
  end)
end)
