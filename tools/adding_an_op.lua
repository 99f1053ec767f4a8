-- SPDX-License-Identifier: MIT
-- Does what docs/adding-an-op.md says on a copy of the tree: adds the page's code blocks, builds, and
-- shows that the new ops compute, have gradients, pass their entries' tests and come into the docs.
--
--   luajit tools/adding_an_op.lua [build/release]    run by `make check-generated`
--
-- It takes a built tree: objects are copied with their times, so only what the blocks change is built.
-- A block belongs to the file named by the comment above it, `<!-- add: FILE -->`. It comes before a
-- final `return entries`, else at the end; a file that is not there is made.
local PAGE = "docs/adding-an-op.md"
local OPS = { "softcap", "blend" }
local out = arg[1] or "build/release"

local function read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read("*a")
  file:close()
  return text
end

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  file:close()
end

-- What a command prints, and whether it succeeded (the same on every Lua).
local function run(command)
  local pipe = assert(io.popen(("{ %s; } 2>&1; echo \"status $?\""):format(command)))
  local text = pipe:read("*a")
  pipe:close()
  local printed, status = text:match("^(.*)status (%d+)\n$")
  return printed, status == "0"
end

local function expect(what, command)
  local text, ok = run(command)
  if not ok then error(("%s: %s fails:\n%s"):format(PAGE, what, text), 0) end
  return text
end

local function expect_failure(what, command, wanted)
  local text, ok = run(command)
  if ok then error(("%s: %s should fail"):format(PAGE, what), 0) end
  if not text:find(wanted, 1, true) then
    error(("%s: %s: expected \"%s\" in\n%s"):format(PAGE, what, wanted, text), 0)
  end
end

-- The page's blocks as a list of {file, text}.
local function blocks()
  local list = {}
  for file, text in read(PAGE):gmatch("<!%-%- add: (%S+) %-%->\n```%l+\n(.-)```\n") do
    list[#list + 1] = { file = file, text = text }
  end
  return list
end

local function add(folder, block)
  local path = folder .. "/" .. block.file
  local old = read(path) or ""
  local body, tail = old:match("^(.*)(\nreturn entries%s*)$")
  write(path, (body or old) .. block.text .. (tail or ""))
end

local SCRIPT = [[
local cnn = require "cnn"
local x = cnn.tensor({{1, 50, -70}, {0.5, 2, -3}}, {dtype = "float64"})
local y = x:softcap(5):totable()
for i, row in ipairs(x:totable()) do
  for j, v in ipairs(row) do
    local e = math.exp(2 * v / 5)
    assert(math.abs(y[i][j] - 5 * (1 - 2 / (e + 1))) <= 1e-12)
  end
end
assert(x:clone():softcap_{cap = 5}:eq(x:softcap(5)):all():item())
assert(cnn.tensor({100}):softcap():item() < 30 and x:to("float16"):softcap().dtype == "float16")
assert(cnn.zeros(2, 3, {device = "meta"}):softcap().device == "meta")
local function f(t) return t:softcap(5) end
assert(cnn.gradcheck(f, cnn.tensor({0.5, -2, 3}, {dtype = "float64", requires_grad = true}), {second = true}))
assert(require("cnn.help").text("softcap"):find("x:softcap_({cap = 30})", 1, true))

local m, w = cnn.tensor({{1, 2, 3}, {4, 5, 6}}), cnn.tensor({10, 1})
assert(m:blend(w):eq(cnn.tensor({14, 25, 36})):all():item())
assert(m:t():blend(cnn.tensor({1, 0, 1})):eq(cnn.tensor({4, 10})):all():item())
local ok, message = pcall(m.blend, m, m)
assert(not ok and message:find("blend: expected x (n, k) and w (n), got shapes (2, 3) and (2, 3)", 1, true), message)
]]

local function follow(folder)
  expect("copying the tree", ("cp -a Makefile .busted csrc cuda lua spec tools docs '%s' && mkdir -p '%s/%s' && "
    .. "cp -a '%s/obj' '%s/%s'"):format(folder, folder, out, out, folder, out))
  local entries = {}
  for _, block in ipairs(blocks()) do
    if block.file:find("^spec/") then
      entries[#entries + 1] = block
    else
      add(folder, block)
    end
  end
  local cd = ("cd '%s' && "):format(folder)
  local lua = arg[-1] or "luajit"
  local make = ("${MAKE:-make} -s --no-print-directory LUA='%s' "):format(lua)
  expect("building", cd .. make .. "modules")
  local enter = cd .. ("eval \"$(%s env)\" && CNN_OPS=%s %s "):format(make, table.concat(OPS, ","), lua)
  local specs = enter .. "tools/test.lua --busted --ignore-lua -o plainTerminal spec/ops_spec.lua"
  expect_failure("spec/ops_spec.lua without entries", specs, "entry in spec/opdb")
  for _, block in ipairs(entries) do add(folder, block) end
  if expect("spec/ops_spec.lua", specs):find("^0 succ") then error("spec/ops_spec.lua tested nothing", 0) end
  write(folder .. "/script.lua", SCRIPT)
  expect("a script with the new ops", enter .. "script.lua")
  expect_failure("tools/docs.lua --check before the docs are written", enter .. "tools/docs.lua --check", "docs/ops.md")
  expect("tools/docs.lua", enter .. "tools/docs.lua")
  expect("tools/docs.lua --check", enter .. "tools/docs.lua --check")
  for _, name in ipairs(OPS) do
    if not read(folder .. "/docs/ops.md"):find("\n### " .. name .. "\n", 1, true) then
      error("docs/ops.md does not have " .. name, 0)
    end
  end
end

local folder = expect("mktemp", "mktemp -d"):match("%S+")
local ok, message = pcall(follow, folder)
os.execute(("rm -rf '%s'"):format(folder))
if not ok then
  io.stderr:write(message, "\n")
  os.exit(1)
end
