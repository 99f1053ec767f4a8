-- SPDX-License-Identifier: MIT
-- What README.md and docs/ show: their pieces of Lua run, and their links lead somewhere.
local cnn = require "cnn"
local helper = require "spec.helper"

local read = helper.read

-- The names that pages take for given.
local function given(folder)
  local nn, data = cnn.nn, cnn.data
  local model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
  local leaf = cnn.tensor({ { 1, -2, 3, 4 }, { 5, 6, -7, 8 }, { 9, 1, 2, 3 } }, { requires_grad = true })
  local x = leaf * 1
  return {
    cnn = cnn, nn = nn, F = cnn.F, optim = cnn.optim, model = model, x = x, y = x:t(), loss = x:square():sum(),
    opt = cnn.optim.SGD(model:parameters(), { lr = 0.1 }), a = cnn.tensor({ 1, 2 }), b = cnn.tensor({ 1, 3 }),
    idx = cnn.tensor({ 1, 3 }, { dtype = "int64" }), fn = function(t) return t * 2 end, segments = 2, steps = 2,
    epoch = 1, losses = { 3, 2, 1 }, path = folder .. "/model.safetensors", print = function() end,
    loader = data.DataLoader(data.TensorDataset(cnn.randn(6, 4), cnn.ones(6)), { batch_size = 3 }),
    -- Pictures of clothes are not everywhere.
    data = setmetatable({
      fashion_mnist = function()
        return data.TensorDataset(cnn.rand(4, 1, 28, 28), cnn.ones(4, { dtype = "int64" }))
      end,
    }, { __index = data }),
  }
end

-- Runs a piece of code, an expression or statements, with these names as its globals.
local function run(text, name, env)
  local function compile(code)
    if not setfenv then return load(code, name, "t", env) end -- luacheck: ignore
    local chunk, message = loadstring(code, name) -- luacheck: ignore
    return chunk and setfenv(chunk, env), message -- luacheck: ignore
  end
  local chunk = compile("return " .. text)
  local message
  if not chunk then chunk, message = compile(text) end
  if not chunk then error(message, 0) end
  return chunk()
end

-- Code as a chunk: what a page leaves out with dots does nothing, its files lie in the folder, and the
-- device that everyone has stands for a GPU. Without `local` names stay for what comes later.
local function chunk_of(code, folder)
  code = code:gsub("= %.%.%.", "= function() end"):gsub("%.%.%. end", "end"):gsub("\n%s*%.%.%.\n", "\n")
  code = code:gsub("\"cuda\"", "\"meta\""):gsub("%f[^\n%z]local ", "")
  code = code:gsub("\"(%w+%.%l+)\"", function(name) return ("%q"):format(folder .. "/" .. name) end)
  return code:match("^for .* do$") and code .. " end" or code
end

-- Runs pieces of code one after the other.
local function run_all(page, pieces, folder)
  local env = setmetatable({}, { __index = _G })
  for _, code in ipairs(pieces) do
    for name, value in pairs(given(folder)) do env[name] = value end
    local ok, message = pcall(run, chunk_of(code, folder), page, env)
    if not ok then error(("%s: %s\nin %s"):format(page, tostring(message), code), 0) end
  end
  assert.is_true(#pieces > 0)
end

local function blocks(text)
  local list = {}
  for code in text:gmatch("\n```lua\n(.-)```") do list[#list + 1] = code end
  return list
end

describe("the pages", function()
  local folder
  setup(function() folder = helper.folder() end)
  teardown(function() os.execute("rm -rf '" .. folder .. "'") end)

  it("README: the first script learns", function()
    local printed = ""
    local env = setmetatable({ print = function(text) printed = text end }, { __index = _G })
    run(blocks(read "README.md")[1], "README", env)
    assert.is_true(tonumber(printed:match("^(%d+%.%d) %% are right$")) > 95)
  end)

  it("ops and layers: the example at the head runs", function()
    for _, page in ipairs { "docs/ops.md", "docs/layers.md" } do
      run_all(page, { blocks(read(page))[1] }, folder)
    end
  end)

  it("from-pytorch: every line of the table runs", function()
    local pieces = {}
    for cell in read("docs/from-pytorch.md"):gmatch("\n| `[^\n]*` | ([^\n]*) |") do
      for code in cell:gmatch("`([^`]+)`") do
        if code ~= "*" then pieces[#pieces + 1] = code end
      end
    end
    run_all("docs/from-pytorch.md", pieces, folder)
    assert.is_true(#pieces > 30)
  end)

  it("lua: every piece of code runs", function()
    local text = read "docs/lua.md"
    local pieces = blocks(text)
    for code in text:gsub("\n```.-\n```", ""):gmatch("`([^`]+)`") do
      local prints = code:find("^cnn%.help")
      if code:find("^cnn%.[%w_.]+[({]") and not prints or code:find("^local .*=") then pieces[#pieces + 1] = code end
    end
    run_all("docs/lua.md", pieces, folder)
    assert.is_true(#pieces > 10)
  end)

  it("memory: what it says on seeing memory runs", function()
    run_all("docs/memory.md", blocks(read("docs/memory.md"):match("\n## Seeing memory\n.*")), folder)
  end)

  it("memory: what takes less runs", function()
    local pieces = blocks(assert(read("docs/memory.md"):match("\n## Taking less\n.*")))
    run_all("docs/memory.md", pieces, folder)
    assert.is_true(#pieces > 3)
  end)

  it("have links that lead somewhere", function()
    local pipe = assert(io.popen "ls README.md docs/*.md")
    for page in pipe:lines() do
      for target in read(page):gmatch("%]%(([^)#%s]+)") do
        local path = page:match("^(.*/)") and page:match("^(.*/)") .. target or target
        local file = io.open(path)
        assert.is_truthy(file, page .. ": " .. target)
        file:close()
      end
    end
    pipe:close()
  end)
end)
