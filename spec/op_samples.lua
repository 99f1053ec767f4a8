-- SPDX-License-Identifier: MIT
-- The words in which spec/opdb/*.lua gives an op's arguments, and the tensors made of them.
--
--   T(shape, options)      a tensor whose dtype is the one under test. Options: lo, hi (the range of its
--                          values), away (a list of points that they keep a distance from), distinct
--                          (no two are alike), ints = {lo, hi} (the range in integer dtypes), values (a
--                          list of them), dtype (one that stays), computed = true (float32 where the
--                          dtype under test is a half one), plain = true (contiguous in every layout),
--                          grad = false (never wants a gradient),
--                          whole (no two elements share memory: what an op changes is so by itself)
--   I(shape, n, options)   an int64 tensor of positions from 1 to n; I(shape, list) of just these
--   M(shape, options)      a bool tensor
--   L { ... }              a list of tensors
--   S(...)                 the arguments of one call; nil where one is left out. What is no tensor is
--                          handed over as it is
--   with(sample, options)  more about it; see spec/opdb.lua
--
-- The values depend on the op's name and the argument's place alone, and are the same in every layout.
local cnn = require "cnn"
local nd = require "spec.nd"
local unpack = table.unpack or unpack -- luacheck: ignore

local samples = {}

-- ---------------------------------------------------------------------------------------------
-- Words

local Spec = {}
Spec.__index = Spec

function samples.T(shape, options)
  local spec = { kind = "tensor", shape = shape }
  for key, value in pairs(options or {}) do spec[key] = value end
  return setmetatable(spec, Spec)
end

function samples.I(shape, positions, options)
  local spec = samples.T(shape, options)
  spec.kind = "index"
  spec.dtype = spec.dtype or "int64"
  if type(positions) == "table" then spec.values = positions else spec.n = positions end
  return spec
end

function samples.M(shape, options)
  local spec = samples.T(shape, options)
  spec.kind, spec.dtype = "mask", "bool"
  return spec
end

local List = {}
function samples.L(list)
  return setmetatable(list, List)
end

function samples.S(...)
  return { n = select("#", ...), ... }
end

function samples.with(sample, options)
  for key, value in pairs(options) do sample[key] = value end
  return sample
end

local function is_spec(v) return getmetatable(v) == Spec end
local function is_list(v) return getmetatable(v) == List end
samples.is_spec, samples.is_list = is_spec, is_list

-- Gives every spec of a sample the seed of its place. Called once per sample, when an entry is taken in.
function samples.seed(sample, name, number)
  if sample.seeded then error(name .. ": two entries share a sample", 0) end
  sample.seeded = true
  local seed = number * 1009 + 17
  for i = 1, #name do seed = (seed * 31 + name:byte(i)) % 2147483629 end
  local place = 0
  local function give(v)
    if is_spec(v) then
      place = place + 1
      v.seed = (seed + 7919 * place) % 2147483629 + 1
    elseif is_list(v) then
      for _, w in ipairs(v) do give(w) end
    end
  end
  for i = 1, sample.n do give(sample[i]) end
end

-- Keeps a spec (or each of a list) from layouts in which elements share memory.
function samples.mark_whole(v)
  if is_spec(v) then v.whole = true end
  if is_list(v) then
    for _, w in ipairs(v) do w.whole = true end
  end
end

-- Calls visit(spec, number of it) for every tensor of a sample.
function samples.each(sample, visit)
  local n = 0
  for i = 1, sample.n do
    local v = sample[i]
    if is_spec(v) then
      n = n + 1
      visit(v, n)
    elseif is_list(v) then
      for _, w in ipairs(v) do
        n = n + 1
        visit(w, n)
      end
    end
  end
end

-- ---------------------------------------------------------------------------------------------
-- Values

local IS_FLOAT = { float64 = true, float32 = true, float16 = true, bfloat16 = true }
samples.is_float = IS_FLOAT

-- Numbers in [0, 1).
local function generator(seed)
  local state = seed % 2147483647
  if state == 0 then state = 1 end
  for _ = 1, 3 do state = state * 16807 % 2147483647 end
  return function()
    state = state * 16807 % 2147483647
    return (state - 1) / 2147483646
  end
end
samples.generator = generator

local DISTANCE = 0.125 -- from the points that values keep away from: many steps of difference quotients

local function allowed(v, away)
  for _, point in ipairs(away or {}) do
    if math.abs(v - point) < DISTANCE then return false end
  end
  return true
end

local function float_values(spec, n, random)
  local lo, hi, list = spec.lo or -2, spec.hi or 2, {}
  if spec.distinct then
    -- A shuffled grid, each value moved by less than half a step.
    for i = 1, n do list[i] = lo + (hi - lo) * (i - 0.5 + 0.4 * (random() - 0.5)) / n end
    for i = n, 2, -1 do
      local k = 1 + math.floor(random() * i)
      list[i], list[k] = list[k], list[i]
    end
    return list
  end
  for i = 1, n do
    local tries = 0
    repeat
      list[i] = lo + (hi - lo) * random()
      tries = tries + 1
      if tries > 1000 then error "no value is far enough from the points to keep away from" end
    until allowed(list[i], spec.away)
  end
  return list
end

samples.float_values = float_values

local function integer_values(spec, n, random, unsigned)
  local lo, hi = -4, 4
  if spec.ints then
    lo, hi = spec.ints[1], spec.ints[2]
  elseif (spec.lo or -1) >= 0 then
    lo, hi = math.ceil(spec.lo), math.ceil(spec.lo) + 4
  end
  if unsigned and lo < 0 then lo, hi = 0, math.max(hi, 4) end
  local list = {}
  for i = 1, n do
    repeat list[i] = lo + math.floor(random() * (hi - lo + 1)) until allowed(list[i], spec.away)
  end
  return list
end

-- The elements of a spec in a dtype, in order.
local function values_of(spec, dtype)
  local class = IS_FLOAT[dtype] and "float" or dtype == "bool" and "bool" or dtype == "uint8" and "unsigned" or "int"
  spec.made = spec.made or {}
  if spec.made[class] then return spec.made[class] end
  local n = nd.size(spec.shape)
  local list
  local random = generator(spec.seed)
  if spec.values then
    list = spec.values
    if #list ~= n then error(("%d values for %d elements"):format(#list, n)) end
    if class == "bool" and type(list[1]) == "number" then
      local numbers = list
      list = {}
      for i, v in ipairs(numbers) do list[i] = v ~= 0 end
    end
  elseif spec.kind == "index" then
    list = {}
    for i = 1, n do list[i] = 1 + math.floor(random() * spec.n) end
  elseif class == "bool" then
    list = {}
    for i = 1, n do list[i] = random() < 0.5 end
  elseif class == "float" then
    list = float_values(spec, n, random)
  else
    list = integer_values(spec, n, random, class == "unsigned")
  end
  spec.made[class] = list
  return list
end

-- ---------------------------------------------------------------------------------------------
-- Layouts. A layout gives, for the shape of the i-th tensor, nil (nothing differs) or
-- {order = dims from the outermost in memory on, step = apart in memory, offset = elements before the
-- first, expand = a dim with stride 0}.

local function reversed(shape)
  if #shape < 2 then return nil end
  local order = {}
  for d = 1, #shape do order[d] = #shape + 1 - d end
  return { order = order }
end

local function rotated(shape)
  if #shape < 3 then return nil end
  local order = {}
  for d = 1, #shape do order[d] = d % #shape + 1 end
  return { order = order }
end

local function stepped(shape)
  return #shape > 0 and { step = 2 } or nil
end

local function offset()
  return { offset = 3 }
end

local function expanded(shape)
  for d = 1, #shape do
    if shape[d] > 1 then return { expand = d } end
  end
end

local function expanded_last(shape)
  for d = #shape, 2, -1 do
    if shape[d] > 1 then return { expand = d } end
  end
end

local function mixed(shape, i)
  local which = (i - 1) % 3
  if which == 0 then return reversed(shape) or stepped(shape) end
  if which == 1 then return stepped(shape) end
  return rotated(shape) or offset()
end

local function channels_last(shape)
  return #shape == 4 and { order = { 1, 3, 4, 2 } } or nil
end

samples.layouts = {
  { "transposed", reversed }, { "rotated", rotated }, { "stepped", stepped }, { "offset", offset },
  { "expanded", expanded, expands = true }, { "expanded_last", expanded_last, expands = true },
  { "mixed", mixed }, { "channels_last", channels_last },
}

-- Whether a layout makes a difference to some tensor of a sample.
function samples.applies(layout, sample)
  local any = false
  samples.each(sample, function(spec, i)
    if layout[2](spec.shape, i) and not (layout.expands and spec.whole) then any = true end
  end)
  return any
end

local function hole(dtype, kind)
  if IS_FLOAT[dtype] then return 0 / 0 end
  if dtype == "bool" then return true end
  return kind == "index" and 101 or 77 -- a position that no tensor here has
end

local function dtype_of(spec, dtype)
  if spec.computed and (dtype == "float16" or dtype == "bfloat16") then return "float32" end
  return spec.dtype or dtype
end

-- The tensor of a spec: itself, and the one that it is a view of. context: dtype, layout (one of
-- samples.layouts), device.
function samples.tensor(spec, context, number)
  local dtype = dtype_of(spec, context.dtype)
  if spec.kind == "index" and context.index_dtype then dtype = context.index_dtype end
  local shape, rank = spec.shape, #spec.shape
  local plan = context.layout and not spec.plain and context.layout[2](shape, number) or {}
  if plan.expand and spec.whole then plan = {} end
  local order = plan.order
  if not order then
    order = {}
    for d = 1, rank do order[d] = d end
  end
  -- In memory: sizes from the outermost dim on.
  local sizes, strides, back = {}, {}, {}
  local stride = 1
  for d = rank, 1, -1 do
    strides[d] = stride
    stride = stride * shape[d]
  end
  for i, d in ipairs(order) do sizes[i], back[d] = d == plan.expand and 1 or shape[d], i end
  local n, step, before = nd.size(sizes), plan.step or 1, plan.offset or 0
  local options = { dtype = dtype, device = context.device }
  local base, x
  if n == 0 then
    base = cnn.zeros(sizes, options)
    x = base
  else
    local values, list, k = values_of(spec, dtype), {}, before
    local filler = hole(dtype, spec.kind)
    for i = 1, before do list[i] = filler end
    nd.each(sizes, function(at)
      local place = 1
      for i, d in ipairs(order) do place = place + (at[i] - 1) * strides[d] end
      list[k + 1] = values[place]
      for i = 2, step do list[k + i] = filler end
      k = k + step
    end)
    if before > 0 then
      for i = 1, 5 do list[k + i] = filler end
    end
    if dtype == "bool" then
      for i, v in ipairs(list) do list[i] = v == true or v == 1 end
    end
    base = cnn.tensor(list, options)
    x = base
    if before > 0 then x = x:narrow(1, before + 1, k - before) end
    if step > 1 then
      x = x:view { n, step }:select(2, 1)
    end
    x = x:view(sizes)
  end
  if plan.order then x = x:permute(back) end
  if plan.expand then
    x = x:expand { unpack(shape) }
  end
  return x:detach(), base
end

-- A large tensor of a spec, made natively. For comparing runs with each other.
function samples.large_tensor(spec, dtype)
  dtype = dtype_of(spec, dtype)
  local options = { dtype = dtype }
  if spec.values then return samples.tensor(spec, { dtype = dtype }, 1) end
  cnn.manual_seed(spec.seed)
  if spec.kind == "index" then return cnn.randint(1, spec.n + 1, spec.shape, options) end
  if spec.kind == "mask" or dtype == "bool" then return cnn.rand(spec.shape):gt(0.5) end
  if not IS_FLOAT[dtype] then return cnn.randint(0, 5, spec.shape, options) end
  local lo, hi = spec.lo or -2, spec.hi or 2
  return (cnn.rand(spec.shape, { dtype = "float32" }) * (hi - lo) + lo):to(dtype)
end

-- The arguments of a call: tensors in the places of specs. Also the list of the tensors' bases. Within
-- it, arguments.tensors are all tensors in order and arguments.specs their specs.
function samples.arguments(sample, context)
  local arguments = { n = sample.n, tensors = {}, specs = {}, bases = {} }
  local number = 0
  local function make(spec)
    number = number + 1
    local x, base
    if context.large then
      x = samples.large_tensor(spec, context.dtype)
    else
      x, base = samples.tensor(spec, context, number)
    end
    arguments.tensors[number], arguments.specs[number], arguments.bases[number] = x, spec, base
    return x
  end
  for i = 1, sample.n do
    local v = sample[i]
    if is_spec(v) then
      arguments[i] = make(v)
    elseif is_list(v) then
      local list = {}
      for k, w in ipairs(v) do list[k] = make(w) end
      arguments[i] = list
    else
      arguments[i] = v
    end
  end
  return arguments
end

-- The same arguments with other tensors: replace(tensor, spec, number) in each one's place.
function samples.replaced(sample, arguments, replace)
  local copy = { n = arguments.n, tensors = {}, specs = arguments.specs, bases = {} }
  local number = 0
  local function new()
    number = number + 1
    local x = replace(arguments.tensors[number], arguments.specs[number], number)
    copy.tensors[number] = x
    return x
  end
  for i = 1, sample.n do
    local v = sample[i]
    if is_spec(v) then
      copy[i] = new()
    elseif is_list(v) then
      local list = {}
      for k in ipairs(v) do list[k] = new() end
      copy[i] = list
    else
      copy[i] = arguments[i]
    end
  end
  return copy
end

-- What a reference gets: arrays in the tensors' places (with the field dtype).
function samples.arrays(sample, arguments)
  return samples.replaced(sample, arguments, function(x)
    local array = nd.from(x)
    array.dtype = x.dtype
    return array
  end)
end

-- "(float64 2x3, 1, ...)" for messages.
function samples.describe(sample, context)
  local parts = {}
  local function text(v)
    if is_spec(v) then return dtype_of(v, context.dtype) .. "(" .. table.concat(v.shape, "x") .. ")" end
    if type(v) == "table" then
      local list = {}
      for _, w in ipairs(v) do list[#list + 1] = text(w) end
      for key, w in pairs(v) do
        if type(key) == "string" then list[#list + 1] = key .. "=" .. text(w) end
      end
      return "{" .. table.concat(list, ",") .. "}"
    end
    return tostring(v)
  end
  for i = 1, sample.n do parts[i] = text(sample[i]) end
  return "(" .. table.concat(parts, ", ") .. (context.layout and "; " .. context.layout[1] or "") .. ")"
end

return samples
