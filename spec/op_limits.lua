-- SPDX-License-Identifier: MIT
-- Every op at its limits: arguments that don't fit, memory that is not there, lengths around the widths
-- of vectors, and sizes that several threads share.
local cnn = require "cnn"
local checks = require "spec.op_checks"
local db = require "spec.opdb"
local gradients = require "spec.op_gradients"
local nd = require "spec.nd"
local words = require "spec.op_samples"
local core = cnn.core
local describe, call, caller = checks.describe, checks.call, checks.caller

-- Each of the sanitizers' instructions costs some more, and every repetition walks the same code: what
-- differs with a length or a request's number is reached by fewer of them.
local THIN = os.getenv "CNN_SANITIZED" ~= nil

local limits = {}

-- ---------------------------------------------------------------------------------------------
-- Errors

-- The dtype in which an entry's errors and failures are tried.
local function plain_dtype(entry)
  local class = checks.class(entry)
  for _, dtype in ipairs { "float32", "int64", "bool" } do
    if class[db.category(dtype)] ~= false then return dtype end
  end
end

local function same_results(where, before, after, what)
  if #before ~= #after then error(("%s: %d results, then %d"):format(where, #before, #after), 0) end
  for i, y in ipairs(before) do
    checks.expect_same_bits(("%s: result %d"):format(where, i), y, after[i], what)
  end
end

-- A call that must succeed: the results, and what the arguments that it changes hold then.
local function fresh_call(entry, sample, context, rng)
  if rng then core.set_rng_state(rng) end
  local arguments = words.arguments(sample, context)
  return checks.outcome(entry, call(caller(entry), arguments), arguments)
end

-- Whether a second call gives the same; ops that give what memory holds (empty) don't.
local function repeats(entry)
  return entry.ref ~= nil or entry.info.random
end

-- Bad arguments raise a message that says why, change nothing, and leave the op usable.
function limits.errors(entry)
  local dtype = plain_dtype(entry)
  local context = { dtype = dtype }
  local good
  for _, sample in ipairs(entry.samples) do
    if checks.allows(sample, dtype) then
      good = sample
      break
    end
  end
  local rng = core.get_rng_state()
  local before = good and fresh_call(entry, good, context, rng)
  for _, case in ipairs(entry.errors or {}) do
    local sample, text = case[1], case[2]
    local where = describe(entry, sample, context)
    local arguments = words.arguments(sample, context)
    local held = checks.snapshot(arguments)
    core.set_rng_state(rng)
    local ok, message = pcall(call, caller(entry), arguments)
    if ok then error(where .. ": it must raise", 0) end
    if not tostring(message):find(text, 1, true) then
      error(("%s: the message is %q; expected it to hold %q"):format(where, tostring(message), text), 0)
    end
    for i, x in ipairs(arguments.tensors) do
      checks.compare(("%s: argument tensor %d after the error"):format(where, i), x.dtype, held[i],
        nd.from(arguments.bases[i] or x), 0, 0)
    end
    for i, word in ipairs(core.get_rng_state()) do
      if word ~= rng[i] then error(where .. ": the error advanced the generator", 0) end
    end
  end
  if good and repeats(entry) then
    same_results(describe(entry, good, context), before, fresh_call(entry, good, context, rng), "differs after errors")
  end
  core.set_rng_state(rng)
end

-- ---------------------------------------------------------------------------------------------
-- Failing allocations

-- Calls work() with its n-th request for memory and all later ones failing, for n = 1, 2 ... until it
-- succeeds, and after failures once more, undisturbed. prepare() makes its arguments; unchanged(them)
-- must hold after a failure. rng is the generator's state, which a failure must leave as it was; nil where
-- work sets it by itself. once: at last, the last of the requests fails once, after which garbage is
-- collected and the work done again (spec/memerr_spec.lua does so at every request; collections take longer
-- than all else here, so of single ops it is done of those that change an argument).
-- spec/helper.lua sees whether bytes of tensors stay behind; the sanitizers' build, those of all else.
local function with_failures(where, prepare, work, unchanged, rng, expected, once)
  local n, done = 0
  repeat
    n = n + 1
    local arguments = prepare()
    if rng then core.set_rng_state(rng) end
    core.fault_set(n, true, true)
    local ok, results = pcall(work, arguments)
    core.fault_clear()
    done = ok
    local at = ("%s with failing request %d for memory"):format(where, n)
    if not ok then
      if not tostring(results):find("out of memory", 1, true) then
        error(("%s: the error is %s"):format(at, tostring(results)), 0)
      end
      unchanged(at, arguments)
      for i, word in ipairs(rng and core.get_rng_state() or {}) do
        if word ~= rng[i] then error(at .. ": the error advanced the generator", 0) end
      end
      results = nil
      -- The next run: always after the first failures, then now and then; each takes as long as all before.
      if n <= 3 or n % (THIN and 16 or 8) == 0 then
        results = work(arguments)
      end
    end
    if results and expected then same_results(at, expected, results, "differs afterwards") end
    if n > 2000 then error(where .. ": it never succeeds", 0) end
  until done
  if once and n > 1 then
    if rng then core.set_rng_state(rng) end
    local arguments = prepare()
    core.fault_set(n - 1, false)
    local ok, results = pcall(work, arguments)
    core.fault_clear()
    local at = ("%s with request %d for memory failing once"):format(where, n - 1)
    if not ok then error(("%s: the error is %s"):format(at, tostring(results)), 0) end
    if expected then same_results(at, expected, results, "differs") end
  end
end

local function failing_sample(entry, dtype)
  for _, sample in ipairs(entry.samples) do
    local elements = 0
    words.each(sample, function(spec) elements = elements + nd.size(spec.shape) end)
    if checks.allows(sample, dtype) and (elements > 0 or #entry.samples == 1) then return sample end
  end
end

-- Each request for memory of a call, and of a call with its gradients, fails once.
function limits.failures(entry)
  local dtype = plain_dtype(entry)
  local sample = failing_sample(entry, dtype)
  if not sample then return end
  local context = { dtype = dtype }
  local where = describe(entry, sample, context)
  local rng = core.get_rng_state()
  local expected = fresh_call(entry, sample, context, rng)
  local function prepare()
    local arguments = words.arguments(sample, context)
    arguments.held = checks.snapshot(arguments)
    return arguments
  end
  local function unchanged(at, arguments)
    for i, x in ipairs(arguments.tensors) do
      checks.compare(("%s: argument tensor %d was changed"):format(at, i), x.dtype, arguments.held[i],
        nd.from(arguments.bases[i] or x), 0, 0)
    end
  end
  local function work(fn)
    return function(arguments) return checks.outcome(entry, call(fn, arguments), arguments) end
  end
  if not repeats(entry) then expected = nil end
  local in_place = entry.info.in_place and sample.in_place ~= false
  with_failures(where, prepare, work(caller(entry)), unchanged, rng, expected,
    #checks.changed(entry, prepare()) > 0)
  if in_place then
    local fits = expected and expected[1].dtype == prepare()[1].dtype
    local fn = checks.in_place(entry)
    with_failures(where .. " in place", prepare, work(fn), unchanged, rng, fits and expected)
  end
  -- with gradients
  if dtype == "float32" and entry.grad ~= false and not entry.info.no_grad then
    local arguments = words.arguments(sample, context)
    local places = gradients.wanted(sample, arguments)
    if #places > 0 then
      local leaves, cotangents = gradients.leaves_of(arguments, places), {}
      local given = gradients.with_leaves(sample, arguments, places, leaves)
      for i, y in ipairs(gradients.evaluate(entry, sample, given, rng)) do
        cotangents[i] = gradients.noise(y, 100 + i):to(y.dtype)
      end
      local function both()
        return gradients.gradients(gradients.evaluate(entry, sample, given, rng), leaves, cotangents)
      end
      local found = both()
      if found then
        with_failures(where .. " and its gradient", function() return given end, both, function() end, nil, found)
      end
    end
  end
  core.set_rng_state(rng)
end

-- ---------------------------------------------------------------------------------------------
-- Lengths

local LENGTHS = {}
for n = 1, 70 do
  if not THIN or n <= 18 or n == 31 or n == 32 or n == 33 or n >= 63 and n <= 65 then LENGTHS[#LENGTHS + 1] = n end
end
-- Those of reductions have references in Lua.
local FEW_LENGTHS = { 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 70 }

-- Elementwise: the first n elements give the first n of the result, whatever n; and in the middle of a
-- buffer nothing around them is written.
local function check_tails(entry, sample)
  local fn = caller(entry)
  local class = checks.class(entry)
  for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool" } do
    if class[db.category(dtype)] ~= false and checks.allows(sample, dtype) then
      local context = { dtype = dtype }
      local arguments = words.arguments(sample, context)
      local whole = call(fn, arguments)[1]
      local function part(first, n)
        return words.replaced(sample, arguments, function(x)
          return x.shape[1] == 70 and x:narrow(1, first, n) or x
        end)
      end
      for _, n in ipairs(LENGTHS) do
        local first = n < 70 and 2 or 1
        local y = call(fn, part(first, n))[1]
        if not checks.same_bits(y, whole:narrow(1, first, n)) then
          checks.expect_same_bits(("%s, %d elements from %d on"):format(describe(entry, sample, context), n, first),
            whole:narrow(1, first, n):contiguous(), y, "differ from the same among 70")
        end
        if entry.info.in_place and n <= 68 and whole.dtype == dtype then
          local base = arguments.tensors[1]:clone()
          local given = part(2, n)
          given[1] = base:narrow(1, 2, n)
          checks.in_place(entry)((table.unpack or unpack)(given, 1, given.n)) -- luacheck: ignore
          local expected = arguments.tensors[1]:clone()
          expected:narrow(1, 2, n):copy_(whole:narrow(1, 2, n))
          if not checks.same_bits(base, expected) then
            checks.expect_same_bits(("%s, in place, %d elements from 2 on"):format(
              describe(entry, sample, context), n), expected, base, "differ")
          end
        end
      end
    end
  end
end

local IN_LAYOUTS = 33 -- long enough for the loops of vectors: in all dtypes and layouts

local function check_lengths(entry)
  local class = checks.class(entry)
  local function with(n, dtypes)
    for k, sample in ipairs { entry.lengths(n) } do
      db.prepare(entry, sample, 1000 + 10 * n + k)
      for _, dtype in ipairs(dtypes) do
        if class[db.category(dtype)] ~= false and checks.allows(sample, dtype) then
          checks.one_call(entry, sample, { dtype = dtype })
          for _, layout in ipairs(n == IN_LAYOUTS and entry.layouts ~= false and words.layouts or {}) do
            if words.applies(layout, sample) then checks.one_call(entry, sample, { dtype = dtype, layout = layout }) end
          end
        end
      end
    end
  end
  for _, n in ipairs(FEW_LENGTHS) do
    with(n, n == IN_LAYOUTS and db.DTYPES or { "float32", "float64", "bfloat16", "int32" })
  end
  -- Beyond the blocks that kernels cut their work into; references take their time.
  for _, n in ipairs(entry.long or {}) do
    if n < 2000 and not THIN then
      with(n, { "float32", "float64", "bfloat16", "int32" })
    else
      with(n, { plain_dtype(entry) })
    end
  end
end

-- ---------------------------------------------------------------------------------------------
-- Sizes for threads

local function accurate(where, entry, sample, narrow, wide)
  for i, y in ipairs(narrow) do
    local x = wide[i]
    if words.is_float[y.dtype] and y:numel() > 0 then
      local allowed = checks.tolerance(entry, sample, "tol", y.dtype, checks.TOLERANCE)
      local excess = (y:double() - x):abs():div(x:abs():clamp(entry.floor or 1)):max():item()
      -- sums of many elements: a few more roundings
      if not (excess <= 4 * allowed) then
        error(("%s: result %d differs by %.3g of the value from the one in float64 (allowed: %.3g)"):format(where, i,
          excess, 4 * allowed), 0)
      end
    end
  end
end

-- The results, and the gradients where there are any, as one list.
local function large_call(entry, sample, arguments, rng)
  core.set_rng_state(rng)
  local places = entry.grad ~= false and not entry.info.no_grad and gradients.wanted(sample, arguments) or {}
  if #places == 0 then
    local fresh = words.replaced(sample, arguments, function(x, _, i)
      return checks.is_changed(entry, arguments, i) and x:clone() or x
    end)
    return checks.outcome(entry, call(caller(entry), fresh), fresh)
  end
  local leaves, list = gradients.leaves_of(arguments, places), {}
  local given = gradients.with_leaves(sample, arguments, places, leaves)
  local results = gradients.evaluate(entry, sample, given)
  local cotangents = {}
  for i, y in ipairs(results) do
    list[i] = y:detach()
    cotangents[i] = gradients.noise(y, 100 + i):to(y.dtype)
  end
  local count = #list
  for _, g in ipairs(gradients.gradients(results, leaves, cotangents) or {}) do list[#list + 1] = g end
  return list, count
end

-- The op's own results (the first `count`) against those of the same values in float64.
local function accurate_results(where, entry, sample, dtype, arguments, results, count, rng)
  local wide = words.replaced(sample, arguments, function(x) return x.dtype == dtype and x:double() or x end)
  local narrow = {}
  for i = 1, count or #results do narrow[i] = results[i] end
  accurate(where, entry, sample, narrow, (large_call(entry, sample, wide, rng)))
end

-- Bit for bit the same with 1, 2 and 3 threads, gradients too, and as exact as small ones.
local function check_threads(entry, sample)
  local dtype = plain_dtype(entry)
  if not checks.allows(sample, dtype) then dtype = "int64" end
  local context = { dtype = dtype, large = true }
  local where = describe(entry, sample, context)
  local rng = core.get_rng_state()
  local arguments = words.arguments(sample, context)
  cnn.set_num_threads(1)
  local one, count = large_call(entry, sample, arguments, rng)
  for threads = 2, THIN and 2 or 3 do
    cnn.set_num_threads(threads)
    same_results(("%s with %d threads"):format(where, threads), one, (large_call(entry, sample, arguments, rng)),
      "differs from one thread's")
  end
  if dtype == "float32" and entry.ref and not entry.info.random then
    accurate_results(where, entry, sample, dtype, arguments, one, count, rng)
  end
  core.set_rng_state(rng)
end

-- What the plugin computes of large products, in the dtypes that it takes.
local function check_plugin(entry, sample)
  local rng = core.get_rng_state()
  for _, dtype in ipairs { "float32", "bfloat16" } do
    local context = { dtype = dtype, large = true }
    local arguments = words.arguments(sample, context)
    local results, count = large_call(entry, sample, arguments, rng)
    accurate_results(describe(entry, sample, context) .. " by the plugin", entry, sample, dtype, arguments, results,
      count, rng)
  end
  core.set_rng_state(rng)
end

-- Tails of vectors, lengths of sums, shares of threads.
function limits.sizes(entry)
  if entry.tails then check_tails(entry, entry.tails) end
  if entry.lengths then check_lengths(entry) end
  local threads = cnn.get_num_threads()
  core._accel(false) -- what it computes may depend on the number of threads
  local ok, message = pcall(function()
    for _, sample in ipairs(repeats(entry) and entry.large or {}) do check_threads(entry, sample) end
  end)
  cnn.set_num_threads(threads)
  core._accel(true)
  if not ok then error(message, 0) end
  if entry.plugin then
    for _, sample in ipairs(entry.large) do check_plugin(entry, sample) end
  end
end

return limits
