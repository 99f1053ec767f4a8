-- SPDX-License-Identifier: MIT
-- Runs tests of a build, lists what fails, and ends with 'N passed, N failed' over everything:
--
--   luajit tools/test.lua [--out build/release] [--lua "luajit lua5.4"] [--sanitize asan|tsan]
--                         [--sim build/sim] [--jobs N] [--match PATTERN] [--only PATTERN]
--                         [--logs FOLDER] group ...
--
-- Groups: c (spec/c, and examples/embed), specs (spec/**/*_spec.lua, by busted), golden (values of
-- spec/golden), cuda-sim and cuda-sim-full (GPUs on the simulator, by tools/cuda_matrix.lua: it must have
-- been built). --match keeps the files, --only the titles that match. Every file is a process of its own:
-- one that crashes or hangs fails alone.
if arg[1] == "--busted" then
  -- busted under this very interpreter, without its program's own choice of one
  table.remove(arg, 1)
  return require "busted.runner" ({ standalone = false })
end

local TIME_LIMIT = 900 -- seconds for one file
local OPS_PARTS = tonumber(os.getenv "TEST_OPS_PARTS") or 4 -- processes that share the ops of ops_spec
local LINES_SHOWN = 60 -- of the output of one that fails

local options, groups = { out = "build/release", sim = "build/sim", lua = "luajit", match = "" }, {}
do
  local i = 1
  while arg[i] do
    local name = arg[i]:match("^%-%-(%w+)$")
    if name then
      options[name], i = arg[i + 1], i + 1
    else
      groups[#groups + 1] = arg[i]
    end
    i = i + 1
  end
end

local function quote(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end

-- The first line of what a command prints.
local function ask(command)
  local pipe = assert(io.popen(command))
  local line = pipe:read("*l")
  pipe:close()
  return line or ""
end

local function lines_of(command)
  local list, pipe = {}, assert(io.popen(command))
  for line in pipe:lines() do list[#list + 1] = line end
  pipe:close()
  return list
end

local function read(path)
  local file = io.open(path)
  local text = file and file:read("*a") or ""
  if file then file:close() end
  return text
end

-- ---------------------------------------------------------------------------------------------
-- What to run

local ENVIRONMENT = ("CNN_OUT=%s "):format(quote(options.out))
local PRELOAD = ""
if options.sanitize then
  ENVIRONMENT = ENVIRONMENT .. "CNN_SANITIZED=" .. options.sanitize .. " ASAN_OPTIONS=detect_leaks=1"
    .. " UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=die_after_fork=0 "
  -- gcc 12's LeakSanitizer crashes on the thread-local memory of threads in libraries loaded late
  -- (google/sanitizers issue 1342), so it is not shown any.
  ENVIRONMENT = ENVIRONMENT
    .. ("LSAN_OPTIONS=use_tls=0:print_suppressions=0:suppressions=%s/spec/lsan.supp "):format(ask "pwd")
  if options.sanitize == "asan" then
    -- The interpreter itself is not instrumented: the runtime must be there before the module is.
    local cc = os.getenv "CC" or "gcc"
    PRELOAD = ("LD_PRELOAD=%s:%s "):format(
      ask(cc .. " -print-file-name=libasan.so"), ask(cc .. " -print-file-name=libubsan.so"))
  end
end

local function absolute(path)
  return path:sub(1, 1) == "/" and path or ask "pwd" .. "/" .. path
end

local function lua_environment(lua)
  local abi = ask(lua .. " -e 'io.write(_VERSION:match(\"%d.%d\"))'")
  local root, out = ask "pwd", absolute(options.out)
  local path = ("%s/lua/?.lua;%s/lua/?/init.lua;%s"):format(root, root, os.getenv "LUA_PATH" or ";")
  local cpath = ("%s/lua/%s/?.so;%s"):format(out, abi, os.getenv "LUA_CPATH" or ";")
  return ("%s%sLUA_PATH=%s LUA_CPATH=%s "):format(ENVIRONMENT, PRELOAD, quote(path), quote(cpath)), abi
end

-- Each group gives a list of {name, command}.
local list = {}

local function program(source)
  return options.out .. "/bin/" .. source:gsub("%.c$", "")
end

function list.c()
  local jobs = {}
  for _, source in ipairs(lines_of("ls spec/c/*_test.c")) do
    local name = source:match("([^/]*)%.c$")
    -- A plugin's test takes the plugin; without one there is nothing to test.
    local plugin = ("%s/cnn_%s.so"):format(options.out, name:match("^(.*)_test$"))
    local is_plugin = read("csrc/" .. name:match("^(.*)_test$") .. "/plugin.c") ~= ""
    if not is_plugin then
      jobs[#jobs + 1] = { name, ENVIRONMENT .. program(source) }
    elseif read(plugin) ~= "" then
      jobs[#jobs + 1] = { name, ENVIRONMENT .. program(source) .. " " .. plugin }
    end
  end
  for _, source in ipairs(lines_of("ls examples/embed/*.c 2>/dev/null")) do
    jobs[#jobs + 1] = { "embed", ENVIRONMENT .. program(source), whole = true }
  end
  return { { "C", jobs } }
end

local function each_lua(make)
  local found = {}
  for lua in options.lua:gmatch("%S+") do
    local environment, abi = lua_environment(lua)
    found[#found + 1] = make(lua, environment, abi)
  end
  return found
end

-- A file of specs, as a job.
local function busted(name, file, environment, lua, abi)
  return {
    name, ("%s%s tools/test.lua --busted --ignore-lua --run=%s -o plainTerminal %s"):format(
      environment, lua, "lua" .. abi:gsub("%.", ""), file)
  }
end

-- ops_spec takes longer than all others: in parts.
local function ops_jobs(jobs, environment, lua, abi)
  for k = 1, OPS_PARTS do
    local part = ("%sCNN_OPS_PART=%d/%d "):format(environment, k, OPS_PARTS)
    jobs[#jobs + 1] = busted("ops_spec" .. k, "spec/ops_spec.lua", part, lua, abi)
  end
end

function list.specs()
  return each_lua(function(lua, environment, abi)
    local jobs = {}
    ops_jobs(jobs, environment, lua, abi)
    for _, file in ipairs(lines_of("find spec -name '*_spec.lua' | sort")) do
      local name = file:match("([^/]*)%.lua$")
      if name ~= "ops_spec" then jobs[#jobs + 1] = busted(name, file, environment, lua, abi) end
    end
    return { "specs, " .. lua, jobs }
  end)
end

-- Golden cases in a variant; on a device without those that have nothing to do there.
local function golden_jobs(jobs, variant, environment, lua)
  for _, case in ipairs(dofile "spec/golden/cases.lua") do
    local except = ""
    if variant:find "float16" and case.not_half then except = " --except " .. quote(case.not_half[1]) end
    for _, pattern in ipairs(case.match or { "" }) do
      local excluded = case.not_half and variant:find "float16" and pattern == case.not_half[1]
        or case.not_on_device and variant:find "%-%-device" and case.not_on_device[pattern]
      if not excluded then
        jobs[#jobs + 1] = {
          ("golden %s %s %s"):format(variant, case.file, pattern):gsub("[^%w]+", "_"),
          ("%s%s spec/golden/run.lua %s%s --match %s spec/golden/%s.lua"):format(
            environment, lua, variant, except, quote(pattern), case.file)
        }
      end
    end
  end
end

function list.golden()
  return each_lua(function(lua, environment)
    local jobs = {}
    for _, variant in ipairs({ "--dtype float64", "--dtype float32", "--strided" }) do
      golden_jobs(jobs, variant, environment, lua)
    end
    return { "golden, " .. lua, jobs }
  end)
end

-- A report of the simulator fails the process that it was made in.
local REPORTED = 66

local function cuda_sim(which)
  local matrix, entries = dofile "tools/cuda_matrix.lua", {}
  for i, c in ipairs(matrix[which]) do
    local settings = ("%s SIM_EXIT=%d CNN_CUDA_PLUGIN=%s CNN_OPS_FORMS=%s "):format(
      c.settings, REPORTED, quote(absolute(options.sim) .. "/" .. c.flavour .. "/cnn_cuda_sim.so"), c.forms)
    if c.flavour == "asan" then
      settings = ("%sLD_PRELOAD=%s ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 "):format(
        settings, ask "clang -print-file-name=libclang_rt.asan-x86_64.so")
    end
    for _, entry in ipairs(each_lua(function(lua, environment, abi)
      local jobs = {}
      environment = environment .. settings
      ops_jobs(jobs, environment .. "CNN_OPS_DEVICE=cuda ", lua, abi)
      for _, file in ipairs(lines_of("ls spec/cuda_*_spec.lua spec/cuda_spec.lua")) do
        local name = file:match "([^/]*)%.lua$"
        if i == 1 or not matrix.once[name] then jobs[#jobs + 1] = busted(name, file, environment, lua, abi) end
      end
      jobs[#jobs + 1] = busted("own kernels", "spec/ops_spec.lua", ("%sCNN_OPS_DEVICE=cuda CNN_OPS_VALUES=1 "
        .. "CNN_CUDA_LIBRARIES=none CNN_OPS=%s "):format(environment, quote(matrix.own)), lua, abi)
      for _, dtype in ipairs(c.golden) do
        golden_jobs(jobs, "--device cuda --dtype " .. dtype, environment, lua)
      end
      return { c.name, jobs }
    end)) do
      entries[#entries + 1] = entry
    end
  end
  return entries
end

list["cuda-sim"] = function() return cuda_sim "quick" end
list["cuda-sim-full"] = function() return cuda_sim "full" end

-- ---------------------------------------------------------------------------------------------
-- Running

local passed, failed, skipped = 0, 0, 0
local logs = options.logs or options.out .. "/test"
local clock = os.time

-- passed, failed, skipped as the output's last summary says, or nil.
local function summary(text)
  local p, f, s
  for line in text:gmatch("[^\n]+") do
    local a, b, rest = line:match("^(%d+) passed, (%d+) failed(.*)$")
    if a then p, f, s = a, b, rest:match("^, (%d+) skipped") or 0 end
    local successes, failures, errors, pending =
      line:match("^(%d+) success[es]* / (%d+) failures? / (%d+) errors? / (%d+) pending")
    if successes then p, f, s = successes, failures + errors, pending end
  end
  if p then return tonumber(p), tonumber(f), tonumber(s) end
end

-- The part of the output that tells what failed: busted prints it after its summary.
local function report(job, text, status)
  print(("---- %s (exit status %s)"):format(job[1], status))
  text = text:match("%d+ pending[^\n]*\n(.*)") or text
  local n = 0
  for line in (text:gsub("\n*$", "") .. "\n"):gmatch("(.-)\n") do
    n = n + 1
    if n <= LINES_SHOWN then print("  " .. line) end
  end
  if n > LINES_SHOWN then print(("  ... and %d lines more, in %s"):format(n - LINES_SHOWN, job.log)) end
  print("  to repeat it: " .. job[2])
end

local function run(title, jobs)
  local start, p, f, s = clock(), 0, 0, 0
  os.execute("mkdir -p " .. quote(logs))
  local script = logs .. "/jobs"
  local file = assert(io.open(script, "wb"))
  for _, job in ipairs(jobs) do
    job.log = ("%s/%s"):format(logs, (title .. " " .. job[1]):gsub("[^%w]+", "_"))
    file:write(("exec >%s 2>&1; %s; echo $? >%s.status"):format(
      quote(job.log), job[2], quote(job.log)), "\0")
  end
  file:close()
  os.execute(("xargs -0 -n 1 -P %d timeout -k 5 %d sh -c <%s"):format(
    options.jobs, TIME_LIMIT, quote(script)))
  for _, job in ipairs(jobs) do
    local text, status = read(job.log), read(job.log .. ".status"):match("%d+") or "none: out of time"
    os.remove(job.log .. ".status")
    local a, b, c = summary(text)
    if job.whole then a, b, c = status == "0" and 1 or 0, status == "0" and 0 or 1, 0 end
    -- A program that says that all is well and then fails, or that says nothing, has failed.
    if not a then a, b, c = 0, 1, 0 end
    if status ~= "0" and b == 0 then b = 1 end
    if b > 0 then report(job, text, status) end
    p, f, s = p + a, f + b, s + c
  end
  print(("%-18s %5d passed, %d failed%s  (%d files, %d s)"):format(
    title .. ":", p, f, s > 0 and (", %d skipped"):format(s) or "", #jobs, clock() - start))
  passed, failed, skipped = passed + p, failed + f, skipped + s
end

options.jobs = tonumber(options.jobs or os.getenv "TEST_JOBS" or ask "nproc") or 2
io.stdout:setvbuf "line"
for _, group in ipairs(groups) do
  local make = list[group] or error("no group " .. group)
  for _, entry in ipairs(make()) do
    local jobs = {}
    for _, job in ipairs(entry[2]) do
      if job[1]:find(options.match) and (not options.only or entry[1]:find(options.only)) then jobs[#jobs + 1] = job end
    end
    if #jobs > 0 then run(entry[1], jobs) end
  end
end
print(("%d passed, %d failed%s"):format(
  passed, failed, skipped > 0 and (", %d skipped"):format(skipped) or ""))
os.exit(failed == 0 and passed > 0 and 0 or 1)
