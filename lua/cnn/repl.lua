-- SPDX-License-Identifier: MIT
-- The interactive session, and what the program `cnn` does with its arguments.
--
-- Every input is a chunk of its own; expressions print their values. A `local` at the start of an input
-- is dropped: a local would end with its chunk. An input that is not complete goes on in the next line.
local core = require "cnn.core"

local repl = {}

local unpack = table.unpack or unpack
local load_text = loadstring or load

local function pack(...)
  return { n = select("#", ...), ... }
end

-- ---------------------------------------------------------------------------------------------
-- Values as text

local WIDTH, ENTRIES, DEPTH = 80, 50, 4

local function has_text(value)
  local meta = getmetatable(value)
  return type(meta) == "table" and meta.__tostring ~= nil
end

local function key_text(key)
  if type(key) == "string" and key:match("^[%a_][%w_]*$") then return key end
  if type(key) == "string" then return ("[%q]"):format(key) end
  return "[" .. tostring(key) .. "]"
end

local function sorted_keys(t)
  local keys, n = {}, #t
  for key in next, t do
    local position = type(key) == "number" and key >= 1 and key <= n and key % 1 == 0
    if not position then keys[#keys + 1] = key end
  end
  table.sort(keys, function(a, b)
    if type(a) == type(b) and (type(a) == "string" or type(a) == "number") then return a < b end
    return tostring(a) < tostring(b)
  end)
  return keys
end

local inner_text

local function table_text(t, indent, seen)
  if next(t) == nil then return "{}" end
  if seen[t] or indent / 2 >= DEPTH then return "{...}" end
  seen[t] = true
  local parts = {}
  for i = 1, math.min(#t, ENTRIES) do parts[#parts + 1] = inner_text(t[i], indent + 2, seen) end
  if #t > ENTRIES then parts[#parts + 1] = ("... %d more"):format(#t - ENTRIES) end
  local keys = sorted_keys(t)
  for i = 1, math.min(#keys, ENTRIES) do
    parts[#parts + 1] = key_text(keys[i]) .. " = " .. inner_text(t[keys[i]], indent + 2, seen)
  end
  if #keys > ENTRIES then parts[#parts + 1] = ("... %d more"):format(#keys - ENTRIES) end
  seen[t] = nil
  local line = "{ " .. table.concat(parts, ", ") .. " }"
  if #line + indent <= WIDTH and not line:find("\n", 1, true) then return line end
  local pad = (" "):rep(indent + 2)
  return "{\n" .. pad .. table.concat(parts, ",\n" .. pad) .. "\n" .. (" "):rep(indent) .. "}"
end

-- A value inside a table: on one line where that can be.
function inner_text(value, indent, seen)
  if type(value) == "string" then return (("%q"):format(value):gsub("\\\n", "\\n")) end
  if core.is_tensor(value) then
    local text = tostring(value)
    if #text <= 40 and not text:find("\n", 1, true) then return text end
    return ("<tensor %s %s>"):format(tostring(value.shape), value.dtype)
  end
  if type(value) == "table" and not has_text(value) then return table_text(value, indent, seen) end
  return (tostring(value):gsub("\n", "\n" .. (" "):rep(indent)))
end

-- A value as the session prints it.
function repl.show(value)
  if type(value) == "table" and not has_text(value) then return table_text(value, 0, {}) end
  return tostring(value)
end

-- ---------------------------------------------------------------------------------------------
-- Globals of the session

local LOADED_LATER = { "nn", "F", "optim", "data" }

-- cnn at once, its parts on first use.
function repl.preload(globals)
  local cnn = require "cnn"
  globals.cnn = cnn
  local later = {}
  for _, name in ipairs(LOADED_LATER) do later[name] = true end
  local meta = getmetatable(globals) or {}
  local outer = meta.__index
  meta.__index = function(t, name)
    if later[name] then
      local value = cnn[name]
      rawset(t, name, value)
      return value
    end
    if type(outer) == "function" then return outer(t, name) end
    return outer and outer[name]
  end
  setmetatable(globals, meta)
end

-- ---------------------------------------------------------------------------------------------
-- Completion

local IDENTIFIER = "[%a_][%w_]*"

local function string_keys(t, into)
  for key in next, t do
    if type(key) == "string" and key:match("^" .. IDENTIFIER .. "$") then into[key] = true end
  end
end

-- The names that may follow a value after "." or ":".
local function names_of(value)
  local names = {}
  if core.is_tensor(value) then
    string_keys(core.methods, names)
    for _, field in ipairs { "shape", "ndim", "dtype", "device", "requires_grad", "grad", "grad_fn", "is_leaf",
      "nbytes", "data", "T" } do
      names[field] = true
    end
  elseif core.is_module and core.is_module(value) then
    string_keys(require("cnn.nn").Module, names)
    for _, name in ipairs((core.module_children(value))) do names[name] = true end
  end
  if type(value) == "table" then string_keys(value, names) end
  local meta = getmetatable(value)
  if type(meta) == "table" and type(meta.__index) == "table" then string_keys(meta.__index, names) end
  if type(meta) == "table" and type(meta.names) == "function" then
    for _, name in ipairs(meta.names()) do names[name] = true end
  end
  return names
end

-- Words that can end `line` (what stands before the cursor), as whole words of the line's last path.
function repl.complete(line, globals)
  local path = line:match("[%w_%.:]*$")
  local parents, prefix = path:match("^(.*[%.:])([%w_]*)$")
  local value = globals
  if not parents then
    parents, prefix = "", path
  else
    for name in parents:gmatch("[%w_]+") do
      local found, inner = pcall(function() return value[name] end)
      if not found or inner == nil then return {} end
      value = inner
    end
  end
  local names, words = names_of(value), {}
  if value == globals then
    for _, name in ipairs(LOADED_LATER) do names[name] = true end
  end
  for name in pairs(names) do
    if name:sub(1, #prefix) == prefix and (prefix ~= "" or name:sub(1, 1) ~= "_") then
      words[#words + 1] = parents .. name
    end
  end
  table.sort(words)
  return words
end

-- ---------------------------------------------------------------------------------------------
-- Running a piece of text

-- The chunk, or nil and the message, and whether more input could complete it. A chunk gives the values
-- of an expression to its argument: with a plain return, the call in it would be a tail call, and its
-- line lost to messages.
function repl.compile(text, name)
  text = text:gsub("^%s*=", ""):gsub("^(%s*)local(%s+" .. IDENTIFIER .. "%s*[=,])", "%1%2")
  text = text:gsub("^(%s*)local(%s+function%s)", "%1%2")
  local expression, why_not = load_text("return " .. text, name)
  if expression then
    -- The second form is for text that ends in a comment.
    local chunk = load_text("(...)(" .. text .. ")", name) or load_text("(...)(" .. text .. "\n)", name)
    if chunk then return chunk end
  end
  local chunk, message = load_text(text, name)
  if chunk then return chunk end
  return nil, message, (message:find("<eof>'?$") or why_not and why_not:find("<eof>'?$")) ~= nil
end

-- Errors with the script's part of the traceback.
local function traced(message)
  if type(message) ~= "string" then
    if not has_text(message) then return ("(the error is a %s)"):format(type(message)) end
    message = tostring(message)
  end
  local trace = debug.traceback(message, 2)
  -- Neither what runs the chunk nor what raised.
  trace = trace:gsub("\n[^\n]*cnn/repl%.lua:%d+: in function[^\n]*\n%s*%[C%]: in function 'xpcall'.*$", "")
  trace = trace:gsub("\n%s*%[builtin#%d+%]: at 0x%x+", "")
  return (trace:gsub("\nstack traceback:$", ""))
end

-- Runs a chunk; prints its values. False after an error, which is written to `errors`.
function repl.run(chunk, out, errors)
  core.set_interrupt("raise")
  local values
  local results = pack(xpcall(function()
    local returned = pack(chunk(function(...) values = pack(...) end))
    values = values or returned
  end, traced))
  core.set_interrupt("ignore")
  if results[1] and values.n > 0 then
    local texts = {}
    local shown, problem = pcall(function()
      for i = 1, values.n do texts[i] = repl.show(values[i]) end
    end)
    if not shown then results[1], results[2] = false, tostring(problem) end
    if shown then out(table.concat(texts, "\t") .. "\n") end
  end
  if not results[1] then errors(tostring(results[2]) .. "\n") end
  return results[1]
end

-- ---------------------------------------------------------------------------------------------
-- The session

local function history_file()
  local home = os.getenv("HOME")
  return os.getenv("CNN_HISTORY") or home and home .. "/.cnn_history"
end

-- read(prompt) gives a line, nil at the end of input, or false after Ctrl-C.
local function plain_reader(prompted)
  return function(prompt)
    if prompted then
      io.write(prompt)
      io.flush()
    end
    local line, _, code = io.read("*l")
    if line == nil and code == 4 then -- EINTR
      io.write("\n")
      return false
    end
    return line
  end
end

local function readline_reader()
  local found, readline = pcall(require, "readline")
  if not found or type(readline) ~= "table" or not readline.readline then return nil end
  local file = history_file()
  readline.set_options { keeplines = 1000, histfile = file or "", auto_add = true, ignoredups = true }
  if readline.set_readline_name then readline.set_readline_name("cnn") end
  readline.set_complete_function(function(text, from, to)
    -- readline's words end at "." and ":" or not, by its settings: give back what follows `from`.
    local before = text:sub(1, to)
    local start = #before - #before:match("[%w_%.:]*$") + 1
    local words = repl.complete(before, _G)
    for i, word in ipairs(words) do words[i] = word:sub(from - start + 1) end
    return words
  end)
  if readline.set_completion_append_character then readline.set_completion_append_character("") end
  local save = file and readline.save_history or function() end
  return function(prompt) return readline.readline(prompt) end, save
end

local BANNER = "cnn %s on %s. cnn.help() for help, Ctrl-D to leave."

-- Reads, runs and prints until the input ends.
function repl.loop(read, out, errors)
  while true do
    local text = read("> ")
    if text == nil then return end
    local chunk, message, open
    while text do
      chunk, message, open = repl.compile(text, "=stdin")
      if chunk or not open then break end
      local line = read(">> ")
      if line == nil then open = false end
      -- readline goes on reading after Ctrl-C: what was open is dropped then too.
      local dropped = core.set_interrupt("ignore")
      text = line and (dropped and line or text .. "\n" .. line) or line
    end
    if chunk then
      repl.run(chunk, out, errors)
    elseif text ~= false and not open then
      errors(message .. "\n")
    end
  end
end

local function runtime()
  return type(jit) == "table" and jit.version or _VERSION
end

local function to_out(text) io.write(text) end
local function to_errors(text)
  io.flush()
  io.stderr:write(text)
end

function repl.interact()
  local prompted = core.isatty(0)
  repl.preload(_G)
  core.set_interrupt("ignore")
  local read, save
  if prompted then
    read, save = readline_reader()
    print(BANNER:format(require("cnn").version, runtime()))
  end
  repl.loop(read or plain_reader(prompted), to_out, to_errors)
  if save then save() end
  if prompted then print() end
end

-- ---------------------------------------------------------------------------------------------
-- The program's arguments

local USAGE = [[
usage: cnn                      an interactive session
       cnn script.lua [args]    runs a script (arg holds its arguments)
       cnn -e "code" [args]     runs code, and prints the values of an expression
       cnn -                    runs a script from standard input
       cnn --version, --help

cnn, nn, F, optim and data are there in sessions and in code given by -e; scripts say
local cnn = require "cnn". CNN_LUA names the Lua to run (luajit, lua5.1, lua5.3 or lua5.4).

In a session the value of an expression is printed, an input that is not complete goes on in the
next line, and `local` at the start of an input is dropped, so that the name stays. Ctrl-C ends a
running computation (between two operations), Ctrl-D the session. With the Lua module "readline"
there are a history (CNN_HISTORY, or ~/.cnn_history) and completion.
]]

-- What `cnn args...` does, scripts apart (bin/cnn runs them itself); gives the exit status.
function repl.main(...)
  local first, code = ...
  if first == nil or first == "-i" then
    repl.interact()
    return 0
  elseif first == "--help" or first == "-h" then
    io.write(USAGE)
    return 0
  elseif first == "--version" or first == "-v" then
    print(("cnn %s (%s)"):format(require("cnn").version, runtime()))
    return 0
  elseif first == "-e" and code then
    repl.preload(_G)
    _G.arg = { [0] = "-e", unpack({ ... }, 3) }
    local chunk, message = repl.compile(code, "=-e")
    if not chunk then
      to_errors("cnn: " .. message .. "\n")
      return 1
    end
    return repl.run(chunk, to_out, to_errors) and 0 or 1
  end
  to_errors(("cnn: unknown option %s\n\n%s"):format(tostring(first), USAGE))
  return 2
end

return repl
