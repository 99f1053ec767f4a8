-- SPDX-License-Identifier: MIT
-- The session's parts, and the program bin/cnn.
local cnn = require "cnn"
local repl = require "cnn.repl"

-- Feeds lines to a session; gives what it printed and its errors.
local function session(lines)
  local i, out, errors, prompts = 0, {}, {}, {}
  repl.loop(function(prompt)
    prompts[#prompts + 1] = prompt
    i = i + 1
    return lines[i]
  end, function(text) out[#out + 1] = text end, function(text) errors[#errors + 1] = text end)
  require("cnn.core").set_interrupt(nil)
  return table.concat(out), table.concat(errors), table.concat(prompts)
end

local function errors_of(lines)
  local _, errors = session(lines)
  return errors
end

describe("the session", function()
  it("prints the values of expressions, and nothing for statements", function()
    assert.equal("2\n", (session { "1 + 1" }))
    assert.equal("1\tx\tnil\n", (session { "1, 'x', nil" }))
    assert.equal("nil\n", (session { "no_such_name" }))
    assert.equal("", (session { "local_x = 5", "", "-- a comment", "(function() end)()" }))
    assert.equal("5\n", (session { "= 5" }))
    assert.equal("6\n", (session { "return 6" }))
    assert.equal("7\n", (session { "7 -- a comment" }))
    _G.local_x = nil
  end)

  it("prints tensors and tables", function()
    assert.equal("tensor([1., 2.])\n", (session { "require 'cnn'.tensor{1, 2}" }))
    assert.equal("{ 1, 2, a = { b = \"c\" } }\n", (session { "{1, 2, a = {b = 'c'}}" }))
    assert.equal("{}\n", (session { "{}" }))
    assert.equal("(2, 3)\n", (session { "require 'cnn'.zeros(2, 3).shape" }))
    local t = { 1 }
    t.t = t
    assert.equal("{ 1, t = {...} }", repl.show(t))
    assert.equal("{ <tensor (2, 3) float32> }", repl.show { cnn.zeros(2, 3) })
    assert.equal("{ tensor([1.]) }", repl.show { cnn.ones(1) })
    assert.truthy(repl.show({ ("x"):rep(60), ("y"):rep(60) }):find("\n", 1, true))
    local many = {}
    for i = 1, 1000 do many[i] = i end
    assert.truthy(repl.show(many):find("... 950 more", 1, true))
  end)

  it("goes on with what is not complete", function()
    local out, _, prompts = session { "for i = 1, 2 do", "print_it = i", "end", "print_it" }
    assert.equal("2\n", out)
    assert.equal("> >> >> > > ", prompts)
    assert.equal("3\n", (session { "1 +", "2" }))
    assert.equal("5\n", (session { "math.max(", "5,", "4", ")" }))
    assert.equal("a\nb\n", (session { "[[a", "b]]" }))
    local _, errors = session { "for i = 1, 2 do" }
    assert.truthy(errors:find("<eof>", 1, true))
    _G.print_it = nil
  end)

  it("drops what was open at Ctrl-C", function()
    assert.equal("2\n", (session { "for i = 1, 2 do", false, "1 + 1" }))
    assert.equal("2\n", (session { false, "1 + 1" }))
  end)

  it("keeps names that a local at the start gives", function()
    assert.equal("4\n", (session { "local kept = 3", "kept + 1" }))
    assert.equal("3\n", (session { "local kept, other = 1, 2", "kept + other" }))
    assert.equal("9\n", (session { "local function kept(x) return x * x end", "kept(3)" }))
    assert.equal("1\n", (session { "do local kept = 5 end", "kept == 5 and 5 or 1" }))
    _G.kept, _G.other = nil, nil
  end)

  it("shows errors with the script's line and trace, and goes on", function()
    local out, errors = session { "error('boo')", "1" }
    assert.equal("1\n", out)
    assert.truthy(errors:find("stdin:1: boo", 1, true))
    assert.truthy(errors:find("stack traceback", 1, true))
    assert.falsy(errors:find("repl.lua", 1, true))
    out, errors = session { "function f(x)", "  return x[0]", "end", "f(require 'cnn'.ones(2)) .. ''" }
    assert.equal("", out)
    assert.truthy(errors:find("stdin:2: index: index 0: Lua indices start at 1", 1, true))
    _G.f = nil
    errors = errors_of { "x x" }
    assert.truthy(errors:find("stdin:1:", 1, true))
    errors = errors_of { "error({})" }
    assert.truthy(errors:find("(the error is a table)", 1, true))
    errors = errors_of { "error(setmetatable({}, {__tostring = function() return 'mine' end}))" }
    assert.truthy(errors:find("mine", 1, true))
    errors = errors_of { "setmetatable({}, {__tostring = function() error('in tostring') end})" }
    assert.truthy(errors:find("in tostring", 1, true))
  end)

  it("completes names", function()
    local globals = { cnn = cnn, x = cnn.ones(2), nn = nil }
    assert.same({ "cnn.softplus", "cnn.softplus_" }, repl.complete("y = cnn.softp", globals))
    assert.same({ "x:requires_grad_" }, repl.complete("print(x:requires_grad_", globals))
    assert.same({ "x.shape" }, repl.complete("x.shap", globals))
    assert.same({ "cnn" }, repl.complete("cn", globals))
    assert.same({ "nn" }, repl.complete("nn", globals))
    assert.same({ "cnn.checkpoint", "cnn.checkpoint_sequential" }, repl.complete("cnn.checkp", globals))
    assert.same({}, repl.complete("nope.a", globals))
    assert.same({}, repl.complete("cnn.ones(3):su", globals))
    assert.is_true(#repl.complete("", globals) >= 5)
  end)
end)

-- ---------------------------------------------------------------------------------------------
-- bin/cnn as a process of its own. A sanitized library needs its runtime loaded first, which the shell
-- hands on.

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

-- Leaks are not looked for in these runs: os.exit in a script and the shell's own tools leave some.
local QUIET = "export ASAN_OPTIONS=detect_leaks=0; "

local function run(arguments, input)
  local name = os.tmpname()
  local file = assert(io.open(name, "w"))
  file:write(input or "")
  file:close()
  local interpreter = type(jit) == "table" and "luajit" or "lua" .. _VERSION:match("%d.%d")
  local pipe = assert(io.popen(QUIET .. ("CNN_LUA=%s bin/cnn %s < %s 2>&1; echo \"status $?\""):format(
    interpreter, arguments, quote(name))))
  local text = pipe:read("*a")
  pipe:close()
  os.remove(name)
  local out, status = text:match("^(.*)status (%d+)\n$")
  return out, tonumber(status)
end

local function with_script(text, fn)
  local name = os.tmpname()
  local file = assert(io.open(name, "w"))
  file:write(text)
  file:close()
  local ok, err = pcall(fn, name)
  os.remove(name)
  if not ok then error(err, 0) end
end

describe("bin/cnn", function()
  it("is a session, with the library's names", function()
    local out, status = run("", "cnn.tensor{1, 2} * 2\nF.relu == cnn.relu\nnn == cnn.nn\n"
      .. "for i = 1, 2 do\nprint(i)\nend\n")
    assert.equal("tensor([2., 4.])\ntrue\ntrue\n1\n2\n", out)
    assert.equal(0, status)
  end)

  it("goes on after an error", function()
    local out = run("", "error('boo')\n'still here'\n")
    assert.truthy(out:find("stdin:1: boo", 1, true))
    assert.truthy(out:find("still here", 1, true))
  end)

  it("runs a script with its arguments", function()
    with_script("local cnn = require 'cnn' print(cnn.ones(2), arg[1], ...) os.exit(3)", function(name)
      local out, status = run(quote(name) .. " a 'b c'")
      assert.equal("tensor([1., 1.])\ta\ta\tb c\n", out)
      assert.equal(3, status)
    end)
    with_script("\n\nlocal x = require 'cnn'.ones(2)\nprint(x[5])", function(name)
      local out, status = run(quote(name))
      assert.truthy(out:find(name .. ":4: index: index 5 is out of range", 1, true))
      assert.equal(1, status)
    end)
    local out = run("-", "print(require 'cnn'.version)")
    assert.equal(cnn.version .. "\n", out)
  end)

  it("runs code", function()
    assert.equal("tensor([1., 2.])\n", (run("-e 'cnn.tensor{1, 2}'")))
    assert.equal("x\n", (run("-e 'print(arg[1])' x")))
    local out, status = run("-e 'error(\"boo\")'")
    assert.truthy(out:find("-e:1: boo", 1, true))
    assert.equal(1, status)
    out, status = run("-e 'x x'")
    assert.truthy(out:find("-e:1:", 1, true))
    assert.equal(1, status)
  end)

  it("has help and a version", function()
    assert.truthy(run("--help"):find("usage: cnn", 1, true))
    assert.truthy(run("--version"):find("cnn " .. cnn.version, 1, true))
    local out, status = run("--nonsense")
    assert.truthy(out:find("unknown option --nonsense", 1, true))
    assert.equal(2, status)
  end)

  it("says when there is no Lua to run", function()
    local pipe = io.popen(QUIET .. "CNN_LUA=no-such-lua bin/cnn 2>&1; echo $?")
    local text = pipe:read("*a")
    pipe:close()
    assert.truthy(text:find("no-such-lua", 1, true))
    assert.truthy(text:find("\n1\n", 1, true))
  end)

  it("works from elsewhere, through a link", function()
    local pipe = io.popen(QUIET
      .. "d=$(mktemp -d) && ln -s \"$PWD/bin/cnn\" $d/cnn && cd $d && ./cnn --version; rm -r $d")
    local text = pipe:read("*a")
    pipe:close()
    assert.truthy(text:find("cnn " .. cnn.version, 1, true))
  end)
end)
