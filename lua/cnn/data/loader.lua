-- SPDX-License-Identifier: MIT
-- DataLoader: batches of a data set, in order or shuffled.
--
-- The order of an epoch depends on the seed and the epoch's number, or, without a seed, on a number
-- drawn from the global generator when the epoch begins: so cnn.manual_seed, or a generator's state that
-- is loaded again, gives the same batches. Workers change nothing about them.
local core = require "cnn.core"
local options = require "cnn.options"
local tensor = require "cnn.tensor"
local dataset = require "cnn.data.dataset"

local fail, describe, is_tensor = core.fail, core.describe, core.is_tensor

local loader = {}

local DataLoader = { name = "DataLoader" }

local OPTIONS = { "batch_size", "shuffle", "drop_last", "num_workers", "seed", "collate" }

local function whole(name, value, least)
  if type(value) ~= "number" or value % 1 ~= 0 or value < least then
    fail(("DataLoader: %s: expected an integer of at least %d, got %s"):format(name, least, describe(value)))
  end
  return value
end

-- DataLoader(ds, {batch_size = 1, shuffle = false, drop_last = false, num_workers = 0, seed =, collate =})
--
-- num_workers: threads that gather the next batches of a TensorDataset (or subsets of one) while the
-- script trains (a change in place of its tensors is seen by batches that are not yet made). Other data
-- sets run in the script's own thread, whatever num_workers is.
-- collate: a function from a list of samples ({x, y}, {x, y}, ...) to the batch's values; the default
-- stacks tensors and makes tensors of numbers and booleans (int64 when all are integral).
function loader.DataLoader(ds, ...)
  local o = options.read("DataLoader", OPTIONS, ...)
  for _, name in ipairs { "shuffle", "drop_last" } do options.expect("DataLoader", name, o[name], "boolean") end
  if o.collate ~= nil then options.expect_callable("DataLoader", "collate", o.collate) end
  if o.seed ~= nil then whole("seed", o.seed, 0) end
  return dataset.new_object(DataLoader, {
    dataset = dataset.as_dataset("DataLoader", ds),
    batch_size = whole("batch_size", o.batch_size or 1, 1),
    num_workers = whole("num_workers", o.num_workers or 0, 0),
    shuffle = o.shuffle or false, drop_last = o.drop_last or false,
    seed = o.seed, collate = o.collate,
    epoch = 0, -- that the next iter() will run
  })
end

-- The number of batches, also #loader.
function DataLoader:size()
  local n = dataset.size(self.dataset) / self.batch_size
  return self.drop_last and math.floor(n) or math.ceil(n)
end

-- The epoch that the next iter() runs: to go on where a run was stopped.
function DataLoader:set_epoch(epoch)
  self.epoch = whole("epoch", epoch, 0)
  return self
end

-- The positions of this epoch, as an int64 tensor.
local function next_order(self, n, indices)
  local epoch = self.epoch
  self.epoch = epoch + 1
  if not self.shuffle then return core.data_order(indices or n) end
  if self.seed then return core.data_order(indices or n, self.seed, epoch) end
  return core.data_order(indices or n, core.data_seed(), 0)
end

-- ---------------------------------------------------------------------------------------------
-- Samples to a batch

local function all_of(values, test)
  for _, v in ipairs(values) do
    if not test(v) then return false end
  end
  return true
end
local function is_number(v) return type(v) == "number" end
local function is_boolean(v) return type(v) == "boolean" end
local function is_integral(v) return v % 1 == 0 end

local function join(values)
  if all_of(values, is_tensor) then return core.functions.stack(values) end
  if all_of(values, is_number) then
    return tensor.new(values, { dtype = all_of(values, is_integral) and "int64" or nil })
  end
  if all_of(values, is_boolean) then return tensor.new(values, { dtype = "bool" }) end
  return values
end

local unpack = table.unpack or unpack -- luacheck: ignore 113

local function default_collate(samples)
  local n, parts = samples[1].n, {}
  for k = 1, n do
    local values = {}
    for i, sample in ipairs(samples) do
      values[i] = sample[k]
      if sample[k] == nil then fail("DataLoader: a sample has fewer values than the first one of its batch") end
    end
    parts[k] = join(values)
  end
  return unpack(parts, 1, n)
end

local function pack(...)
  return { n = select("#", ...), ... }
end

-- ---------------------------------------------------------------------------------------------
-- Iterating

local function samples_iter(self, n)
  local order, at, count = next_order(self, n), 0, 0
  local collate = self.collate or default_collate
  return function()
    local size = math.min(self.batch_size, n - at)
    if size < 1 or (self.drop_last and size < self.batch_size) then return nil end
    local samples = {}
    for i = 1, size do samples[i] = pack(self.dataset:get(order:get(at + i))) end
    at, count = at + size, count + 1
    return count, collate(samples)
  end
end

local function step(count, handle, first, ...)
  if first ~= nil then return count, first, ... end
  core.data_close(handle)
end

-- for i, x, y in loader:iter() do: i counts the batches. Leaving the loop early is fine: the workers end
-- with the loop (Lua 5.4) or when the iterator is collected.
function DataLoader:iter()
  local n = dataset.size(self.dataset)
  local sources, indices
  if not self.collate then sources, indices = dataset.rows(self.dataset) end
  if not sources then return samples_iter(self, n) end
  local order = next_order(self, n, indices)
  local handle = core.data_loader(sources, order, self.batch_size, self.drop_last, self.num_workers)
  local count = 0
  return function()
    count = count + 1
    return step(count, handle, core.data_next(handle))
  end, nil, nil, handle
end

return loader
