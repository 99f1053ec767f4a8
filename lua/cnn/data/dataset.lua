-- SPDX-License-Identifier: MIT
-- Data sets: what has ds:size() samples (also #ds) and gives the i-th by ds:get(i), as several values.
-- Also a plain list of samples is one (a sample {x, y} gives x, y), and a tensor (its rows).
--
-- TensorDataset keeps its samples as rows of tensors; batches of it are gathered in C, by threads when
-- the loader has workers. Subsets of it, splits and normalized ones are as fast: they are orders and
-- factors over the same rows. What stands here for the loader: `sources`, a list of {tensor =} with
-- {scale = {...}, shift = {...}} for what is normalized, and `indices`.
local core = require "cnn.core"
local options = require "cnn.options"
local tensor = require "cnn.tensor"

local fail, describe, is_tensor = core.fail, core.describe, core.is_tensor
local unpack = table.unpack or unpack -- luacheck: ignore 113

local dataset = {}

-- ---------------------------------------------------------------------------------------------
-- Objects for which # is size(), on every Lua: 5.1 knows __len of userdata only

local newproxy = rawget(_G, "newproxy")

local function length(object)
  return object:size()
end

local function text(object)
  return ("%s of %d"):format(object.name, object:size())
end

-- A new object of a class, with these fields.
local function new(class, fields)
  local function index(_, key)
    local value = fields[key]
    if value == nil then value = class[key] end
    return value
  end
  if not newproxy then
    return setmetatable(fields, { __index = class, __len = length, __tostring = text, __name = class.name })
  end
  local object = newproxy(true)
  local meta = getmetatable(object)
  meta.__index, meta.__newindex, meta.__len, meta.__tostring = index, fields, length, text
  return object
end
dataset.new_object = new -- for loaders

local Dataset = { name = "Dataset" }
dataset.Dataset = Dataset

-- A class of data sets: local Squares = data.Dataset:extend("Squares"), with Squares:init(...), which
-- Squares(...) calls, Squares:size() and Squares:get(i).
function Dataset:extend(name)
  return setmetatable({ name = name or "Dataset" }, {
    __index = self,
    __call = function(class, ...)
      local object = new(class, {})
      if class.init then object:init(...) end
      return object
    end,
  })
end

function Dataset:size()
  fail(self.name .. ": a data set must have a method size (or, as a list, a length)")
end

function Dataset:get()
  fail(self.name .. ": a data set must have a method get")
end

-- for i, x, y in ds:iter() do
function Dataset:iter()
  local i, n = 0, self:size()
  return function()
    i = i + 1
    if i <= n then return i, self:get(i) end
  end
end

local function check_position(name, i, n)
  if type(i) ~= "number" or i % 1 ~= 0 then fail(("%s: expected a position, got %s"):format(name, describe(i))) end
  if i < 1 or i > n then
    fail(("%s: index %d is out of range%s (1..%d)"):format(name, i, i == 0 and ": Lua indices start at 1" or "", n))
  end
end

-- ---------------------------------------------------------------------------------------------
-- TensorDataset

local TensorDataset = Dataset:extend("TensorDataset")
dataset.TensorDataset = TensorDataset

-- The rows of a tensor as the gatherer wants them: each dense.
local function rows_of(x, position)
  local what = describe(x)
  if not is_tensor(x) or what == "a freed tensor" then
    fail(("TensorDataset: argument %d: expected a tensor, got %s"):format(position, what))
  end
  if x.ndim == 0 then fail(("TensorDataset: tensor %d has no dims, so no rows"):format(position)) end
  if x.requires_grad then
    fail(("TensorDataset: tensor %d requires a gradient, which batches don't have: give x:detach()"):format(position))
  end
  if x.device ~= "cpu" then
    fail(("TensorDataset: tensor %d is on %s: give x:cpu(), and move the batches"):format(position, x.device))
  end
  if not x:is_contiguous() and x:numel() > 0 and x.ndim > 1 and not x[1]:is_contiguous() then x = x:contiguous() end
  return x
end

-- TensorDataset(x, y, ...): sample i is x[i], y[i], ...
function TensorDataset:init(...)
  local n = select("#", ...)
  if n == 0 then fail("TensorDataset: at least one tensor is needed") end
  self.tensors, self.sources = { ... }, {}
  for k = 1, n do
    local x = rows_of((select(k, ...)), k)
    self.sources[k] = { tensor = x }
    if #x ~= #self.sources[1].tensor then
      fail(("TensorDataset: tensor 1 has %d rows, but tensor %d has %d"):format(#self.sources[1].tensor, k, #x))
    end
  end
end

function TensorDataset:size()
  return #self.sources[1].tensor
end

local function one_row(source, i)
  if not source.scale then return source.tensor[i] end
  local order = tensor.new({ i }, { dtype = "int64" })
  return core.data_next(core.data_loader({ source }, order, 1, false, 0))[1]
end

function TensorDataset:get(i)
  local sample = {}
  check_position("TensorDataset", i, self:size())
  for k, source in ipairs(self.sources) do sample[k] = one_row(source, i) end
  return unpack(sample, 1, #self.sources)
end

-- A data set over the same rows with other factors; it keeps what else is known of the old one.
local function with_sources(old, sources)
  local ds = new(TensorDataset, { sources = sources, tensors = old.tensors })
  for _, field in ipairs { "classes", "images", "labels", "mean", "std" } do ds[field] = old[field] end
  return ds
end

-- ---------------------------------------------------------------------------------------------
-- What may stand for a data set

local List = Dataset:extend("List")
function List:size() return #self.samples end
function List:get(i)
  check_position("list", i, #self.samples)
  local sample = self.samples[i]
  if type(sample) == "table" then return unpack(sample, 1, #sample) end
  return sample
end

local function has_get(value)
  local kind = type(value)
  if kind ~= "userdata" and not (kind == "table" and (getmetatable(value) or value.get)) then return false end
  local ok, get = pcall(function() return value.get end)
  return ok and options.callable(get)
end

-- A data set for a value that is one, in any of its forms.
function dataset.as_dataset(name, value)
  if is_tensor(value) then return TensorDataset(value) end
  if has_get(value) then return value end
  if type(value) == "table" and not getmetatable(value) then return new(List, { samples = value }) end
  return fail(("%s: expected a data set (with size and get), a list or a tensor, got %s"):format(name, describe(value)))
end

-- The number of samples, by size() or #.
function dataset.size(ds)
  local ok, size = pcall(function() return ds.size end)
  return ok and options.callable(size) and ds:size() or #ds
end

-- ---------------------------------------------------------------------------------------------
-- Subset and random_split

local Subset = Dataset:extend("Subset")
dataset.Subset = Subset

local function check_indices(name, indices, n)
  if type(indices) == "table" then
    for i, position in ipairs(indices) do
      if type(position) ~= "number" or position % 1 ~= 0 then
        fail(("%s: index %d of the list: expected a position, got %s"):format(name, i, describe(position)))
      end
    end
    indices = tensor.new(indices, { dtype = "int64" })
  end
  if not is_tensor(indices) or indices.dtype ~= "int64" or indices.ndim ~= 1 then
    fail(("%s: the indices must be a list of positions or an int64 tensor of one dim, got %s"):format(
      name, describe(indices)))
  end
  if #indices > 0 then
    local least, most = indices:min():item(), indices:max():item()
    if least < 1 then check_position(name, least, n) end
    if most > n then check_position(name, most, n) end
  end
  return indices:contiguous()
end

-- Subset(ds, indices): the samples at these positions, in this order.
function Subset:init(ds, indices)
  self.dataset = dataset.as_dataset("Subset", ds)
  self.indices = check_indices("Subset", indices, dataset.size(self.dataset))
end

function Subset:size()
  return #self.indices
end

function Subset:get(i)
  check_position("Subset", i, #self.indices)
  return self.dataset:get(self.indices:get(i))
end

-- The tensors' rows and their order when a data set is a TensorDataset or subsets of one; nil for others.
-- The order is nil when it is 1, 2, 3 ...
function dataset.rows(ds)
  local indices
  while true do
    local ok, sources = pcall(function() return ds.sources end)
    if not ok then return nil end
    if sources then
      -- Of a class of the user's that makes samples its own way: no.
      if ds.get ~= TensorDataset.get then return nil end
      return sources, indices
    end
    if type(ds) == "table" and getmetatable(ds) == nil then return nil end
    local inner, own = ds.dataset, ds.indices
    if not inner or not is_tensor(own) or ds.get ~= Subset.get then return nil end
    indices = indices and own:index_select(1, indices) or own
    ds = inner
  end
end

-- The sizes of parts given as counts, or as shares that make 1 (rounded down; what is left goes to the
-- first parts, one each).
local function part_sizes(parts, n)
  local total, sizes = 0, {}
  for i, v in ipairs(parts) do
    if type(v) ~= "number" or not (v >= 0) then
      fail(("random_split: part %d: expected a number >= 0, got %s"):format(i, describe(v)))
    end
    total, sizes[i] = total + v, v
  end
  if #parts > 0 and math.abs(total - 1) < 1e-6 and n ~= 1 then
    local left = n
    for i, v in ipairs(parts) do
      sizes[i] = math.floor(v * n + 1e-9)
      left = left - sizes[i]
    end
    for i = 1, left do sizes[(i - 1) % #sizes + 1] = sizes[(i - 1) % #sizes + 1] + 1 end
    return sizes
  end
  if total ~= n then
    fail(("random_split: the parts have %g samples, but the data set has %d (shares must make 1)"):format(total, n))
  end
  for i, v in ipairs(sizes) do
    if v % 1 ~= 0 then fail(("random_split: part %d is no whole number"):format(i)) end
  end
  return sizes
end

-- random_split(ds, {50000, 10000}, {seed =}): a list of subsets that share the samples out at random.
-- Shares such as {0.8, 0.2} will do. Without a seed one is drawn from the global generator.
function dataset.random_split(ds, parts, ...)
  local o = options.read("random_split", { "seed" }, ...)
  ds = dataset.as_dataset("random_split", ds)
  if type(parts) ~= "table" then fail("random_split: argument 2: expected a list of sizes, got " .. describe(parts)) end
  local sizes = part_sizes(parts, dataset.size(ds))
  local order = core.data_order(dataset.size(ds), o.seed or core.data_seed(), 0)
  local list, at = {}, 1
  for i, size in ipairs(sizes) do
    list[i] = new(Subset, { dataset = ds, indices = order:narrow(1, at, size):contiguous() })
    at = at + size
  end
  return list
end

-- ---------------------------------------------------------------------------------------------
-- Normalizing

local function list_of(name, value)
  if type(value) == "number" then return { value } end
  if type(value) ~= "table" or #value == 0 then
    fail(("normalize: %s: expected a number or a list with one per channel, got %s"):format(name, describe(value)))
  end
  for i, v in ipairs(value) do
    if type(v) ~= "number" then fail(("normalize: %s[%d]: expected a number, got %s"):format(name, i, describe(v))) end
  end
  return value
end

-- (x * scale - mean) / std as one factor and one summand per channel.
local function factors(x, o, known)
  local scale = o.scale or (x.dtype == "uint8" and 1 / 255 or 1)
  local mean = list_of("mean", o.mean or known and known.mean or 0)
  local std = list_of("std", o.std or known and known.std or 1)
  local channels, source = math.max(#mean, #std), { tensor = x, scale = {}, shift = {} }
  if type(scale) ~= "number" then fail("normalize: scale: expected a number, got " .. describe(scale)) end
  for c = 1, channels do
    local m, s = mean[#mean == 1 and 1 or c], std[#std == 1 and 1 or c]
    if not m or not s then fail(("normalize: %d means, but %d deviations"):format(#mean, #std)) end
    if s == 0 then fail("normalize: std is 0") end
    source.scale[c], source.shift[c] = scale / s, -m / s
  end
  if channels > 1 and (x.ndim < 2 or x:size(2) ~= channels) then
    fail(("normalize: %d channels for a tensor of shape %s, whose dim 2 is the channels"):format(
      channels, tostring(x.shape)))
  end
  return source
end

local NORMALIZE = { "mean", "std", "scale" }

-- normalize(x, {mean =, std =, scale =}): (x * scale - mean) / std as float32. scale is 1/255 for uint8,
-- else 1; mean and std are numbers or lists with one per channel (dim 2). Of a TensorDataset: a data set
-- whose first tensor comes out like that, computed batch by batch; mean and std are the data set's own
-- when it knows them.
function dataset.normalize(x, ...)
  local o = options.read("normalize", NORMALIZE, ...)
  if is_tensor(x) then
    local source = factors(rows_of(x, 1), o)
    if #x == 0 then return x:to("float32") end
    return (core.data_next(core.data_loader({ source }, core.data_order(#x), #x, false, 0)))
  end
  local ok, sources = pcall(function() return x.sources end)
  if not ok or not sources then
    fail("normalize: expected a tensor or a TensorDataset, got " .. describe(x) .. " (normalize it before it is split)")
  end
  if sources[1].scale then fail("normalize: the data set is normalized already") end
  local copy = { factors(sources[1].tensor, o, x) }
  for k = 2, #sources do copy[k] = sources[k] end
  return with_sources(x, copy)
end

return dataset
