-- SPDX-License-Identifier: MIT
-- Data sets, loaders, and the files that they come from.
local cnn = require "cnn"
local helper = require "spec.helper"
local data, core, raises = cnn.data, cnn.core, helper.raises

local folder

setup(function()
  folder = helper.folder()
end)
teardown(function() os.execute("rm -rf " .. folder) end)

local function write(name, text) return helper.write(folder .. "/" .. name, text) end

-- The rows 1..n, as a data set whose samples tell their position.
local function numbers(n)
  return data.TensorDataset(cnn.arange(1, n + 1):reshape(n, 1), cnn.arange(1, n + 1):to("int64"))
end

-- All positions that a loader gives, batch by batch.
local function batches(loader)
  local list = {}
  for i, x, y in loader:iter() do
    assert.equal(#list + 1, i)
    assert.is_true(x:select(2, 1):to("int64"):eq(y):all():item())
    list[i] = y:totable()
  end
  return list
end

local function joined(lists)
  local all = {}
  for _, list in ipairs(lists) do
    for _, v in ipairs(list) do all[#all + 1] = v end
  end
  return all
end

local function sorted(list)
  table.sort(list)
  return list
end

local function range(n)
  local list = {}
  for i = 1, n do list[i] = i end
  return list
end

describe("TensorDataset", function()
  it("has a length and samples", function()
    local x, y = cnn.arange(6):reshape(3, 2), cnn.tensor({ 5, 6, 7 }, "int64")
    local ds = data.TensorDataset(x, y)
    assert.equal(3, #ds)
    assert.equal(3, ds:size())
    local a, b = ds:get(2)
    assert.same({ 2, 3 }, a:totable())
    assert.equal(6, b:item())
    local count = 0
    for i, p, q in ds:iter() do
      count = count + 1
      assert.equal(count, i)
      assert.equal(y:get(i), q:item())
      assert.same(x[i]:totable(), p:totable())
    end
    assert.equal(3, count)
    assert.equal(0, #data.TensorDataset(cnn.zeros(0, 3)))
    assert.equal("TensorDataset of 3", tostring(ds))
    assert.equal("DataLoader of 2", tostring(data.DataLoader(ds, { batch_size = 2 })))
  end)

  it("takes rows in any strides", function()
    local x = cnn.arange(12):reshape(3, 4)
    for _, view in ipairs { x:t(), x[{ { 1, 3, 2 } }], x[{ {}, { 1, 4, 2 } }], x[1]:expand(5, 4) } do
      local loader = data.DataLoader(data.TensorDataset(view), { batch_size = 2 })
      local at = 0
      for _, batch in loader:iter() do
        assert.same(view:narrow(1, at + 1, #batch):totable(), batch:totable())
        at = at + #batch
      end
      assert.equal(#view, at)
    end
  end)

  it("rejects what has no rows, or other rows", function()
    raises("at least one tensor", data.TensorDataset)
    raises("expected a tensor, got a table", data.TensorDataset, {})
    raises("has no dims", data.TensorDataset, cnn.tensor(1))
    raises("tensor 1 has 2 rows, but tensor 2 has 3", data.TensorDataset, cnn.ones(2), cnn.ones(3))
    raises("requires a gradient", data.TensorDataset, cnn.ones(2, { requires_grad = true }))
    raises("is on meta", data.TensorDataset, cnn.ones(2, { device = "meta" }))
    raises("index 0 is out of range: Lua indices start at 1 (1..2)", function() numbers(2):get(0) end)
    raises("index 3 is out of range (1..2)", function() numbers(2):get(3) end)
    raises("expected a position, got the number 1.5", function() numbers(2):get(1.5) end)
  end)
end)

describe("DataLoader", function()
  it("gives batches in order", function()
    local loader = data.DataLoader(numbers(7), { batch_size = 3 })
    assert.equal(3, #loader)
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 }, { 7 } }, batches(loader))
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 }, { 7 } }, batches(loader))
    loader = data.DataLoader(numbers(7), { batch_size = 3, drop_last = true })
    assert.equal(2, #loader)
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, batches(loader))
    assert.same({}, batches(data.DataLoader(numbers(2), { batch_size = 3, drop_last = true })))
    assert.same({}, batches(data.DataLoader(numbers(0), { batch_size = 3 })))
    assert.equal(7, #data.DataLoader(numbers(7)))
    assert.same({ { 1, 2 } }, batches(data.DataLoader(numbers(2), 5)))
  end)

  it("shuffles by the seed and the epoch", function()
    local function epochs(seed, workers)
      local loader = data.DataLoader(numbers(50),
        { batch_size = 8, shuffle = true, seed = seed, num_workers = workers })
      return { batches(loader), batches(loader) }, loader
    end
    local first, loader = epochs(1)
    assert.same(range(50), sorted(joined(first[1])))
    assert.same(range(50), sorted(joined(first[2])))
    assert.same(first, (epochs(1)))
    assert.are_not.same((epochs(1))[1], (epochs(1))[2])
    assert.are_not.same((epochs(1))[1], (epochs(2))[1])
    assert.same((epochs(1))[2], batches(loader:set_epoch(1)))
    assert.equal(2, loader.epoch)
    for workers = 1, 4 do assert.same(first, (epochs(1, workers))) end
  end)

  it("draws from the global generator without a seed", function()
    local loader = data.DataLoader(numbers(50), { batch_size = 50, shuffle = true })
    cnn.manual_seed(3)
    local state = cnn.get_rng_state()
    local first, second = batches(loader), batches(loader)
    assert.are_not.same(first, second)
    cnn.set_rng_state(state)
    assert.same(first, batches(loader))
    local plain = cnn.get_rng_state()
    batches(data.DataLoader(numbers(5)))
    assert.same(plain, cnn.get_rng_state())
  end)

  it("gives the same batches with any number of workers", function()
    for _, size in ipairs { 1, 7, 64, 300 } do
      for _, drop in ipairs { false, true } do
        local expected
        for _, workers in ipairs { 0, 1, 2, 5, 100 } do
          local got = batches(data.DataLoader(numbers(300),
            { batch_size = size, drop_last = drop, shuffle = true, seed = 5, num_workers = workers }))
          expected = expected or got
          assert.same(expected, got)
        end
      end
    end
  end)

  it("may be left at any time", function()
    for workers = 0, 3 do
      local loader = data.DataLoader(numbers(1000), { batch_size = 10, num_workers = workers })
      for round = 1, 20 do
        for i in loader:iter() do
          if i == round then break end
        end
      end
      -- Two epochs side by side.
      local a, b = loader:iter(), loader:iter()
      for i = 1, 5 do
        local _, _, y = a()
        local _, _, z = b()
        assert.same(y:totable(), z:totable())
        assert.equal(10 * i, y:get(10))
      end
      collectgarbage()
    end
  end)

  it("stays at its end", function()
    local next_batch = data.DataLoader(numbers(3), { batch_size = 2, num_workers = 1 }):iter()
    assert.equal(1, (next_batch()))
    assert.equal(2, (next_batch()))
    for _ = 1, 3 do assert.is_nil((next_batch())) end
  end)

  it("survives the end of the program in the middle of an epoch", function()
    for _, ending in ipairs { "", "os.exit(0)", "os.exit(0, true)", "error 'over'" } do
      local text = helper.run(([[
        local cnn = require "cnn"
        local ds = cnn.data.TensorDataset(cnn.zeros(100000, 100))
        for i, x in cnn.data.DataLoader(ds, { batch_size = 1000, num_workers = 3, shuffle = true }):iter() do
          if i == 3 then io.write("fine") io.stdout:flush() %s break end
        end
      ]]):format(ending), "export ASAN_OPTIONS=detect_leaks=0; timeout 60") -- os.exit closes nothing
      assert.is_truthy(text:find("^fine"), text)
      assert.is_nil(text:lower():find("sanitizer"), text)
    end
  end)

  it("fits into any memory, or says that it does not", function()
    local ds = numbers(1000)
    for n = 1, 200 do
      core.fault_set(n, true)
      local ok, message = pcall(function()
        local iterate = data.DataLoader(ds, { batch_size = 100, num_workers = 2 }):iter()
        for _ = 1, 3 do iterate() end
      end)
      local seen = core.fault_clear()
      if not ok then assert.is_truthy(message:find("out of memory", 1, true), message) end
      if seen < n then break end
    end
  end)

  it("takes data sets written in Lua", function()
    local Squares = data.Dataset:extend("Squares")
    function Squares:init(n) self.n = n end
    function Squares:size() return self.n end
    function Squares.get(_, i) return cnn.full({ 2 }, i), i * i, i % 2 == 0, "s" .. i, i + 0.5 end
    local ds = Squares(5)
    assert.equal(5, #ds)
    for _, workers in ipairs { 0, 2 } do
      local seen = 0
      for i, x, square, even, name, half in data.DataLoader(ds, { batch_size = 2, num_workers = workers }):iter() do
        seen = seen + #x
        assert.equal("int64", square.dtype)
        assert.equal("bool", even.dtype)
        assert.equal("float32", half.dtype)
        assert.same({ 2 * i - 1, 2 * i - 1 }, x[1]:totable())
        assert.equal((2 * i - 1) ^ 2, square:get(1))
        assert.equal("s" .. 2 * i - 1, name[1])
      end
      assert.equal(5, seen)
    end
    -- A class that changes what a TensorDataset gives.
    local Doubled = data.TensorDataset:extend("Doubled")
    function Doubled:get(i) return data.TensorDataset.get(self, i) * 2 end
    for _, x in data.DataLoader(Doubled(cnn.ones(3)), { batch_size = 3, num_workers = 1 }):iter() do
      assert.same({ 2, 2, 2 }, x:totable())
    end
    raises("must have a method size", function() return #data.Dataset:extend("Bare")() end)
    raises("must have a method get", function() data.Dataset:extend("Bare")():get(1) end)
  end)

  it("takes lists, tensors, and a collate function", function()
    local seen = {}
    for _, x, y in data.DataLoader({ { cnn.ones(1), 1 }, { cnn.zeros(1), 2 } }, { batch_size = 2 }):iter() do
      seen = { x:totable(), y:totable() }
    end
    assert.same({ { { 1 }, { 0 } }, { 1, 2 } }, seen)
    for _, x in data.DataLoader({ 1, 2, 3 }, { batch_size = 3 }):iter() do assert.same({ 1, 2, 3 }, x:totable()) end
    for _, x in data.DataLoader(cnn.eye(2), 2):iter() do assert.same(cnn.eye(2):totable(), x:totable()) end
    local loader = data.DataLoader(numbers(3), {
      batch_size = 2,
      collate = function(samples) return #samples, samples[1][2]:item() end,
    })
    local list = {}
    for _, n, first in loader:iter() do list[#list + 1] = n .. ":" .. first end
    assert.same({ "2:1", "1:3" }, list)
  end)

  it("rejects bad options", function()
    local ds = numbers(3)
    raises("unknown option \"batchsize\": did you mean \"batch_size\"?", data.DataLoader, ds, { batchsize = 1 })
    raises("batch_size: expected an integer of at least 1, got the number 0", data.DataLoader, ds, { batch_size = 0 })
    raises("num_workers: expected an integer of at least 0", data.DataLoader, ds, { num_workers = -1 })
    raises("shuffle: expected true or false", data.DataLoader, ds, { shuffle = 1 })
    raises("seed: expected an integer", data.DataLoader, ds, { seed = "x" })
    raises("collate: expected a function", data.DataLoader, ds, { collate = 1 })
    raises("expected a data set", data.DataLoader, 5)
    raises("expected a data set", data.DataLoader)
  end)
end)

describe("Subset and random_split", function()
  it("choose samples", function()
    local ds = numbers(10)
    local odd = data.Subset(ds, { 9, 7, 5, 3, 1 })
    assert.equal(5, #odd)
    assert.equal(7, select(2, odd:get(2)):item())
    local two = data.Subset(odd, cnn.tensor({ 1, 5 }, "int64"))
    for _, workers in ipairs { 0, 2 } do
      assert.same({ { 9, 1 } }, batches(data.DataLoader(two, { batch_size = 4, num_workers = workers })))
    end
    assert.equal(0, #data.Subset(ds, {}))
    raises("index 11 is out of range (1..10)", data.Subset, ds, { 1, 11 })
    raises("Lua indices start at 1", data.Subset, ds, { 0 })
    raises("list of positions", data.Subset, ds, cnn.ones(2))
    local squares = data.Subset({ 1, 4, 9, 16 }, { 4, 2 })
    for _, x in data.DataLoader(squares, { batch_size = 2 }):iter() do assert.same({ 16, 4 }, x:totable()) end
  end)

  it("share samples out", function()
    local ds = numbers(10)
    local function positions(parts)
      local list = {}
      for i, part in ipairs(parts) do list[i] = joined(batches(data.DataLoader(part, { batch_size = 3 }))) end
      return list
    end
    local a = positions(data.random_split(ds, { 7, 3 }, { seed = 1 }))
    assert.equal(7, #a[1])
    assert.same(range(10), sorted(joined(a)))
    a = positions(data.random_split(ds, { 7, 3 }, { seed = 1 }))
    assert.same(a, positions(data.random_split(ds, { 7, 3 }, { seed = 1 })))
    assert.are_not.same(a, positions(data.random_split(ds, { 7, 3 }, { seed = 2 })))
    local parts = data.random_split(ds, { 0.55, 0.25, 0.2 })
    assert.same({ 6, 2, 2 }, { #parts[1], #parts[2], #parts[3] })
    cnn.manual_seed(1)
    a = positions(data.random_split(ds, { 5, 5 }))
    cnn.manual_seed(1)
    assert.same(a, positions(data.random_split(ds, { 5, 5 })))
    raises("the parts have 8 samples, but the data set has 10", data.random_split, ds, { 5, 3 })
    raises("part 1: expected a number", data.random_split, ds, { "5", 5 })
    raises("no whole number", data.random_split, ds, { 5.5, 4.5 })
    raises("expected a list of sizes", data.random_split, ds, 5)
  end)

  it("refuses positions that are none", function()
    helper.raises("Subset: index 2 of the list: expected a position, got the number 1.5", data.Subset, cnn.ones(3),
      { 1, 1.5 })
    helper.raises("index 1 of the list: expected a position, got the string", data.Subset, cnn.ones(3), { "1" })
  end)
end)

describe("normalize", function()
  it("computes (x * scale - mean) / std by channel", function()
    local x = cnn.arange(24):reshape(2, 3, 4):to("uint8")
    local got = data.normalize(x, { mean = { 0.1, 0.2, 0.3 }, std = { 1, 2, 4 } })
    local expected = (x:to("float64") / 255 - cnn.tensor({ { 0.1 }, { 0.2 }, { 0.3 } }))
      / cnn.tensor({ { 1 }, { 2 }, { 4 } })
    assert.equal("float32", got.dtype)
    helper.elements(got, expected:totable())
    helper.elements(data.normalize(x), (x:to("float64") / 255):totable())
    for _, dtype in ipairs { "float32", "float64", "int64", "float16", "int8", "bool" } do
      local y = x:to(dtype)
      helper.elements(data.normalize(y, { mean = 2, std = 4 }), ((y:to("float64") - 2) / 4):totable())
    end
    helper.elements(data.normalize(x, { scale = 2 }), (x:to("float64") * 2):totable())
    assert.is_true(data.normalize(cnn.zeros(0, 3)):has_shape(0, 3))
    raises("2 channels for a tensor of shape (2, 3, 4)", data.normalize, x, { mean = { 1, 2 } })
    raises("3 means, but 2 deviations", data.normalize, x, { mean = { 1, 2, 3 }, std = { 1, 2 } })
    raises("std is 0", data.normalize, x, { std = 0 })
    raises("mean: expected a number or a list", data.normalize, x, { mean = "1" })
    raises("expected a tensor or a TensorDataset", data.normalize, 5)
  end)

  it("makes a data set whose batches and samples are normalized alike", function()
    local x, y = cnn.arange(60):reshape(5, 3, 4):to("uint8"), cnn.arange(5)
    local ds = data.normalize(data.TensorDataset(x, y), { mean = { 1, 2, 3 }, std = 2 })
    local whole = data.normalize(x, { mean = { 1, 2, 3 }, std = 2 })
    for _, workers in ipairs { 0, 2 } do
      local at = 0
      local loader = data.DataLoader(data.Subset(ds, { 1, 2, 3, 4, 5 }), { batch_size = 2, num_workers = workers })
      for _, a, b in loader:iter() do
        assert.same(whole:narrow(1, at + 1, #a):totable(), a:totable())
        assert.equal(at, b:get(1))
        at = at + #a
      end
    end
    assert.same(whole[3]:totable(), ds:get(3):totable())
    raises("normalized already", data.normalize, ds)
    raises("before it is split", data.normalize, data.Subset(ds, { 1 }))
  end)
end)

describe("read_idx", function()
  local function idx(kind, sizes, bytes)
    local head = "\0\0" .. string.char(kind, #sizes)
    for _, n in ipairs(sizes) do
      head = head .. string.char(math.floor(n / 2 ^ 24) % 256, math.floor(n / 65536) % 256, math.floor(n / 256) % 256,
        n % 256)
    end
    return head .. bytes
  end
  local function load(...) return data.read_idx(write("x.idx", idx(...))) end

  it("reads every type", function()
    local x = load(8, { 2, 3 }, "\0\1\2\253\254\255")
    assert.equal("uint8", x.dtype)
    assert.same({ { 0, 1, 2 }, { 253, 254, 255 } }, x:totable())
    x = load(9, { 2 }, "\127\255")
    assert.equal("int8", x.dtype)
    assert.same({ 127, -1 }, x:totable())
    x = load(11, { 2 }, "\1\2\255\254")
    assert.equal("int16", x.dtype)
    assert.same({ 258, -2 }, x:totable())
    x = load(12, { 1, 2 }, "\1\0\0\2\255\255\255\254")
    assert.equal("int32", x.dtype)
    assert.same({ { 2 ^ 24 + 2, -2 } }, x:totable())
    x = load(13, { 2 }, "\63\128\0\0\192\0\0\0")
    assert.equal("float32", x.dtype)
    assert.same({ 1, -2 }, x:totable())
    x = load(14, { 1 }, "\63\248\0\0\0\0\0\0")
    assert.equal("float64", x.dtype)
    assert.same({ 1.5 }, x:totable())
    assert.equal(7, load(8, {}, "\7"):item())
    assert.is_true(load(8, { 0, 5 }, ""):has_shape(0, 5))
  end)

  it("reads gzip files, of several members too", function()
    local plain = write("x", idx(8, { 300, 100 }, ("0123456789"):rep(3000)))
    if os.execute("gzip -kf " .. plain .. " 2>/dev/null") == nil then return end
    local packed = helper.read(plain .. ".gz")
    assert.is_true(#packed < 3000)
    local x = data.read_idx(plain .. ".gz")
    assert.is_true(x:eq(data.read_idx(plain)):all():item())
    -- In two members.
    local text = helper.read(plain)
    os.execute(("head -c 777 %s | gzip > %s.a; tail -c +778 %s | gzip >> %s.a"):format(plain, plain, plain, plain))
    assert.is_true(data.read_idx(plain .. ".a"):eq(x):all():item())
    for n = 2, #packed - 1, 3 do
      local message = helper.message(data.read_idx, write("cut.gz", packed:sub(1, n)))
      assert.is_truthy(message:find("truncated", 1, true) or message:find("damaged", 1, true), message)
    end
    raises("damaged", data.read_idx, write("bad.gz", packed:sub(1, -6) .. "\1\1" .. packed:sub(-3)))
    raises("damaged", data.read_idx, write("bad.gz", packed .. "xyz"))
    write("long", text .. "x")
    os.execute("gzip -f " .. folder .. "/long")
    raises("bytes behind the last element", data.read_idx, folder .. "/long.gz")
    -- A header that promises more than the file can hold, before any memory is asked for.
    write("huge", idx(8, { 2 ^ 31, 2 ^ 31 }, "x"))
    os.execute("gzip -f " .. folder .. "/huge")
    raises("needs more bytes than the file can hold", data.read_idx, folder .. "/huge.gz")
  end)

  it("refuses what is damaged", function()
    raises("No such file", data.read_idx, folder .. "/nothing")
    raises("truncated", data.read_idx, write("x", "\0\0\8"))
    raises("no IDX file: it starts with 68 65 6c 6c", data.read_idx, write("x", "hello"))
    raises("no IDX file", load, 10, { 1 }, "x")
    raises("it has 9 dims", load, 8, { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, "x")
    raises("needs more bytes", load, 8, { 2 }, "x")
    raises("needs more bytes", load, 14, { 2 ^ 32 - 1, 2 ^ 32 - 1, 2 ^ 32 - 1 }, "x")
    raises("needs more bytes", load, 14, { 0, 2 ^ 32 - 1, 2 ^ 32 - 1, 2 ^ 32 - 1 }, "")
    raises("bytes behind the last element", load, 8, { 1 }, "xy")
    raises("truncated", data.read_idx, write("x", idx(8, { 1, 2, 3 }, ""):sub(1, 10)))
  end)
end)

describe("well-known data sets", function()
  -- A folder with three training and two test images.
  local function fake_mnist(name)
    os.execute(("mkdir -p %s/%s"):format(folder, name))
    local function sizes(...)
      local text = ""
      for _, n in ipairs { ... } do text = text .. "\0\0" .. string.char(math.floor(n / 256), n % 256) end
      return text
    end
    for prefix, n in pairs { train = 3, t10k = 2 } do
      write(("%s/%s-images-idx3-ubyte"):format(name, prefix), "\0\0\8\3" .. sizes(n, 28, 28) .. ("\255"):rep(n * 784))
      write(("%s/%s-labels-idx1-ubyte"):format(name, prefix), "\0\0\8\1" .. sizes(n) .. ("\0\9\4"):sub(1, n))
    end
    return folder .. "/" .. name
  end

  it("are read from a folder", function()
    for _, name in ipairs { "mnist", "fashion_mnist" } do
      local root = fake_mnist(name)
      local train, test = data[name] { root = root }, data[name](false, root)
      assert.equal(3, #train)
      assert.equal(2, #test)
      local x, y = train:get(2)
      assert.is_true(x:has_shape(1, 28, 28))
      assert.equal("uint8", x.dtype)
      assert.equal("int64", y.dtype)
      assert.equal(10, y:item())
      assert.same({ 1, 10, 5 }, train.labels:totable())
      assert.equal(10, #train.classes)
      local normal = data.normalize(train)
      assert.is_true(helper.near((1 - train.mean) / train.std, normal:get(1):max():item(), 1e-5))
      assert.equal(3, #data[name] { root = folder })
    end
    assert.equal("ankle boot", data.fashion_mnist({ root = folder .. "/fashion_mnist" }).classes[10])
  end)

  it("are found by CNN_DATA and under ./data", function()
    fake_mnist("found/fashion-mnist")
    local script = 'print(#require("cnn").data.fashion_mnist{ train = false })'
    assert.equal("2\n", helper.run(script, ("CNN_DATA=%s/found"):format(folder)))
    fake_mnist("work/data/fashion-mnist")
    local enter = [[
      ROOT=$PWD; cd %s/work
      export LUA_PATH="$ROOT/lua/?.lua;$ROOT/lua/?/init.lua;$LUA_PATH" LUA_CPATH="$ROOT/%s/lua/%s/?.so;$LUA_CPATH"]]
    local out, abi = os.getenv "CNN_OUT" or "build/release", _VERSION:match("%d.%d")
    assert.equal("2\n", helper.run(script, enter:format(folder, out, abi) .. "\n"))
  end)

  it("say where they were looked for and how to get them", function()
    for name, words in pairs {
      fashion_mnist = "apt install dataset-fashion-mnist", mnist = "MNIST database", cifar10 = "binary version",
    } do
      local message = raises(words, data[name], { root = "/nowhere" })
      assert.is_truthy(message:find(name .. ": there is no ", 1, true), message)
      assert.is_truthy(message:find("/nowhere", 1, true), message)
    end
    raises("train: expected true or false", data.mnist, { train = 1 })
    raises("unknown option \"rot\"", data.mnist, { rot = "x" })
  end)

  it("are checked", function()
    local root = fake_mnist("bad")
    local labels = root .. "/train-labels-idx1-ubyte"
    write("bad/train-labels-idx1-ubyte", "\0\0\8\1\0\0\0\3\0\10\4")
    raises(labels .. ": a label is 10", data.mnist, { root = root })
    write("bad/train-labels-idx1-ubyte", "\0\0\8\1\0\0\0\2\0\1")
    raises("expected 3 uint8 labels", data.mnist, { root = root })
    write("bad/train-images-idx3-ubyte", "\0\0\8\1\0\0\0\2\0\1")
    raises("expected uint8 images of shape (N, 28, 28)", data.mnist, { root = root })
  end)

  it("include CIFAR-10", function()
    os.execute("mkdir -p " .. folder .. "/cifar-10-batches-bin")
    for i = 1, 5 do
      write(("cifar-10-batches-bin/data_batch_%d.bin"):format(i), string.char(i) .. ("\1"):rep(1024) .. ("\2"):rep(1024)
        .. ("\3"):rep(1023) .. string.char(i))
    end
    local ds = data.cifar10 { root = folder }
    assert.equal(5, #ds)
    local x, y = ds:get(4)
    assert.is_true(x:has_shape(3, 32, 32))
    assert.equal(5, y:item())
    assert.same({ 1, 2, 3, 4 }, { x:get(1, 1, 1), x:get(2, 32, 32), x:get(3, 1, 1), x:get(3, 32, 32) })
    assert.is_true(data.normalize(ds):get(1):has_shape(3, 32, 32))
    raises("test_batch.bin", data.cifar10, { root = folder, train = false })
    write("cifar-10-batches-bin/test_batch.bin", "12345")
    raises("no whole number of records", data.cifar10, { root = folder, train = false })
  end)
end)
