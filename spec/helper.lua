-- SPDX-License-Identifier: MIT
-- Loaded before the specs: after each file, live bytes must be back where they were before it. Also a
-- few assertions that the specs share.
local busted = require "busted"
local cnn = require "cnn"

-- busted forgets what a file of specs has required; a part of the library that comes a second time
-- would not be the one that the rest of it knows. So all parts are here before the first file.
for _, name in ipairs(getmetatable(cnn).names()) do local _ = cnn[name] end

local helper = {}

-- Specs of memory run on the default device (spec/cuda_limits_spec.lua has them run on a GPU): how scripts
-- call it, how messages do, and the bytes of its smallest block.
function helper.use(device)
  helper.device = device
  helper.place = device == "cuda" and "cuda:0" or device
  helper.smallest = device == "cpu" and 64 or 256
  cnn.set_default_device(device)
end
helper.use "cpu"

-- How often something is tried: n times, on a simulated GPU less.
function helper.times(n)
  return helper.device ~= "cpu" and cnn.cuda.is_simulated() and math.ceil(n / 50) or n
end

-- Has the specs of other files run in this one; env: its environment, where busted put describe and it.
function helper.include(names, env)
  for _, name in ipairs(names) do
    local chunk = assert(loadfile(("spec/%s_spec.lua"):format(name), "t", env))
    if setfenv then setfenv(chunk, env) end
    chunk()
  end
end

-- The knobs of the GPU simulator (cuda/sim/include/sim.h); nil where it is not used, or Lua has no ffi.
function helper.simulator()
  local path, has_ffi, ffi = os.getenv "CNN_CUDA_PLUGIN", pcall(require, "ffi")
  if helper.sim == nil and has_ffi and path and path:find "_sim" then
    ffi.cdef [[
      void sim_set_streams(int mode); void sim_set_seed(uint64_t seed); int sim_set_devices(int n);
      void sim_fail_alloc(long n); void sim_poison_device(int device, int error);
      uint64_t sim_device_used(int device); uint64_t sim_live_objects(void);
      long sim_faults(void); const char *sim_last_report(void); const char *sim_flavour(void);
    ]]
    helper.sim = ffi.load(path)
  end
  return helper.sim
end

-- Its build: "plain", "asan" or "check"; "" without one.
function helper.flavour()
  local sim = helper.simulator()
  return sim and require("ffi").string(sim.sim_flavour()) or ""
end

-- What the simulator has found when all GPUs are done: its last report ("" without any), and how many.
function helper.reports()
  local sim = helper.simulator()
  sim.sim_set_streams(0)
  for d = 0, cnn.cuda.device_count() - 1 do cnn.synchronize("cuda:" .. d) end
  return require("ffi").string(sim.sim_last_report()), tonumber(sim.sim_faults())
end

-- Calls fn under each order in which a simulator may run streams (once where there is none).
function helper.each_schedule(fn)
  local sim = helper.simulator()
  if not sim then return fn "as it is" end
  local modes = { eager = 0, lazy = 1, random = 2 }
  for i, name in ipairs { "eager", "lazy", "random", "random" } do
    sim.sim_set_streams(modes[name])
    sim.sim_set_seed(17 * i)
    local ok, message = pcall(fn, name)
    sim.sim_set_streams(modes[os.getenv "SIM_STREAMS" or "eager"] or 0)
    if not ok then error(("%s (streams run %s)"):format(tostring(message), name), 0) end
  end
end

local function live_bytes()
  local bytes
  if type(jit) == "table" then jit.flush() end -- traces hold the functions that they call
  repeat -- finalizers and functions of a graph may let go of more
    bytes = cnn.memory_allocated("cpu")
    for _ = 1, 2 do collectgarbage() end
    cnn.tensor(0):free() -- a call that allocates releases the functions that the graph held
    for _ = 1, 2 do collectgarbage() end
  until cnn.memory_allocated("cpu") == bytes
  return bytes
end

local before

busted.subscribe({ "file", "start" }, function()
  before = live_bytes()
  return nil, true
end)

busted.subscribe({ "file", "end" }, function(file)
  local after = live_bytes()
  if after ~= before then
    busted.publish({ "error", "file" }, file, nil,
      ("%s: %d bytes are live that were not before"):format(file.name, after - before))
  end
  return nil, true
end)

-- Whether two numbers are alike; NaN is like nothing.
function helper.near(expected, got, tolerance)
  return math.abs(expected - got) <= (tolerance or 1e-9)
end

-- All elements of a tensor as one list.
function helper.flat(x)
  local list = {}
  local function walk(v)
    if type(v) == "table" then
      for _, w in ipairs(v) do walk(w) end
    else
      list[#list + 1] = v
    end
  end
  walk(x:detach():cpu():totable())
  return list
end

-- Fails unless x has these elements (a nested list or a flat one), within a tolerance.
function helper.elements(x, expected, tolerance)
  local wanted = {}
  local function walk(v)
    if type(v) == "table" then
      for _, w in ipairs(v) do walk(w) end
    else
      wanted[#wanted + 1] = v
    end
  end
  walk(expected)
  local got = helper.flat(x)
  if #got ~= #wanted then error(("%d elements, expected %d"):format(#got, #wanted), 2) end
  for i, v in ipairs(wanted) do
    local same = got[i] == v or type(v) == "number" and type(got[i]) == "number"
      and math.abs(got[i] - v) <= (tolerance or 1e-6) * math.max(1, math.abs(v))
    if not same then
      error(("element %d is %s, expected %s"):format(i, tostring(got[i]), tostring(v)), 2)
    end
  end
end

-- Calls fn, which must fail; gives the message.
function helper.message(fn, ...)
  local ok, message = pcall(fn, ...)
  if ok then error("it did not fail", 2) end
  return tostring(message)
end

-- Fails unless fn raises a message that holds `text`, and the line of this spec file.
function helper.raises(text, fn, ...)
  local message = helper.message(fn, ...)
  if not message:find(text, 1, true) then
    error(("the message is %q; expected it to hold %q"):format(message, text), 2)
  end
  return message
end

-- The first line that a command prints.
local function ask(command)
  local pipe = assert(io.popen(command))
  local line = pipe:read("*l")
  pipe:close()
  return line
end

-- A new empty folder, in memory where that is possible. Whoever takes it removes it.
function helper.folder()
  return ask "mktemp -d -p /dev/shm 2>/dev/null || mktemp -d"
end

-- The text of a file.
function helper.read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

-- Writes a file; gives its path.
function helper.write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  return path
end

-- Collects what nobody holds: finalizers may let go of more.
function helper.settle()
  for _ = 1, 3 do collectgarbage() end
end

-- What a script's file prints, stderr included, run by the interpreter at hand (the parent of the shell).
-- `prefix` stands before the interpreter in the shell's command, `arguments` after the file.
function helper.run_file(path, arguments, prefix)
  local pipe = assert(io.popen(("export LUA_PATH='%s' LUA_CPATH='%s'; %s %s %s %s 2>&1"):format(
    package.path, package.cpath, prefix or "", ask "readlink /proc/$PPID/exe", path, arguments or "")))
  local text = pipe:read("*a")
  pipe:close()
  return text
end

-- The same for a script's text.
function helper.run(script, prefix)
  local name = helper.write(os.tmpname(), script)
  local text = helper.run_file(name, nil, prefix)
  os.remove(name)
  return text
end

package.loaded["spec.helper"] = helper
return helper
