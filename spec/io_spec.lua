-- SPDX-License-Identifier: MIT
-- cnn.save and cnn.load: what goes in comes out; files of other programs; damaged and hostile files;
-- nothing is lost or left behind when something fails.
local cnn = require "cnn"
local helper = require "spec.helper"
local core = cnn.core
local raises = helper.raises

local DTYPES = { "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool" }

local folder

local function path(name) return folder .. "/" .. name end
local function read(name) return helper.read(path(name)) end
local function write(name, text) return helper.write(path(name), text) end

-- The files in the folder, hidden ones included.
local function listing()
  local pipe = io.popen("ls -A " .. folder)
  local text = pipe:read("*a")
  pipe:close()
  return (text:gsub("\n$", ""))
end

local function same(a, b)
  if a.dtype ~= b.dtype or a.shape ~= b.shape then return false end
  if a:numel() == 0 then return true end
  -- Bit by bit where the dtype allows it: NaN included.
  local x, y = a:to("float64"), b:to("float64")
  return x:eq(y):logical_or(x:ne(x):logical_and(y:ne(y))):all():item()
end

-- Whether two values are alike all the way down.
local function alike(a, b)
  if cnn.is_tensor(a) then return cnn.is_tensor(b) and same(a, b) end
  if type(a) ~= type(b) then return false end
  if type(a) ~= "table" then
    local kind = math.type or type
    return kind(a) == kind(b) and (a == b and 1 / (a == 0 and a or 1) == 1 / (b == 0 and b or 1) or a ~= a and b ~= b)
  end
  for k, v in pairs(a) do
    if not alike(v, b[k]) then return false end
  end
  for k in pairs(b) do
    if a[k] == nil then return false end
  end
  return true
end

local function round_trip(value, name)
  name = name or "x.safetensors"
  cnn.save(path(name), value)
  return (cnn.load(path(name)))
end

setup(function()
  folder = helper.folder()
end)

teardown(function()
  collectgarbage()
  os.execute("rm -rf " .. folder)
end)

before_each(function()
  os.execute("rm -rf " .. folder .. "/* " .. folder .. "/.cnn*")
end)

describe("safetensors", function()
  it("gives back nested tables as they were", function()
    local value = {
      epoch = 3, lr = 1e-3, name = "a\0b\n\"\\\255", utf8 = "h\195\169", flag = false, on = true,
      list = { 1, 2, { 3, {} } }, empty = {}, nan = 0 / 0, inf = math.huge, minus = -math.huge,
      third = 1 / 3, tiny = 5e-324, huge = 1.7976931348623157e308, big = 2 ^ 53 + 2, zero = -1 / math.huge,
      [10] = "ten", [0] = "zero", [-1] = "minus one", [1.5] = 2, [true] = 1, [false] = cnn.ones(2),
      ["a.b"] = cnn.zeros(1), a = { b = cnn.ones(1) }, [""] = "nothing", ["__metadata__"] = cnn.ones(3),
      ["end"] = 1, ["\1\2"] = cnn.ones(1), ["\255"] = cnn.zeros(2), holes = { 1, nil, 3 },
      model = { ["0.weight"] = cnn.randn(3, 4), ["0.bias"] = cnn.randn(3) },
      rng = cnn.get_rng_state(), tensors = { cnn.ones(1), cnn.zeros(2) },
    }
    local got = round_trip(value)
    assert.is_true(alike(value, got))
    assert.equal("x.safetensors", listing())
  end)

  it("keeps integers of 64 bits where Lua has them", function()
    if not math.type then return end
    local value = { math.maxinteger, math.mininteger, 9007199254740993, 1.0, 1, 2.0 ^ 60 }
    local got = round_trip(value)
    for i, v in ipairs(value) do
      assert.equal(v, got[i])
      assert.equal(math.type(v), math.type(got[i]))
    end
  end)

  it("keeps every dtype, shape and order of strides", function()
    local value = {}
    for _, dtype in ipairs(DTYPES) do
      local x = cnn.arange(24):sub(5):reshape(2, 3, 4):to(dtype)
      value[dtype] = x
      value[dtype .. " t"] = x:transpose(1, 3)
      value[dtype .. " part"] = x[{ {}, { 2, 3 }, { 1, 4, 2 } }]
      value[dtype .. " expanded"] = x[{ {}, { 1, 1 } }]:expand(2, 5, 4)
      value[dtype .. " scalar"] = x[1][2][3]
      value[dtype .. " empty"] = x[{ {}, {}, { 3, 2 } }]
    end
    value.long = cnn.randn(70, 300):t()
    value.wide = cnn.randn(3, 20000):t()
    value.last = cnn.randn(2, 3, 5, 7):contiguous("channels_last")
    assert.is_true(alike(value, round_trip(value)))
  end)

  it("keeps NaN, infinities, negative zero and int64 to the bit", function()
    local x = cnn.tensor({ 0 / 0, math.huge, -math.huge, -1 / math.huge, 5e-324 }, "float64")
    local y = round_trip({ x = x }).x
    assert.is_true(same(x, y))
    assert.equal(-math.huge, 1 / y:get(4))
    local big = cnn.tensor({ 1 }, "int64"):mul(2 ^ 30):mul(2 ^ 30):add(1)
    assert.is_true(round_trip({ big = big }).big:eq(big):all():item())
  end)

  it("writes a flat table as others do", function()
    cnn.save(path "flat.safetensors", { ["0.weight"] = cnn.ones(2, 3), ["0.bias"] = cnn.zeros(1):half() })
    local text = read "flat.safetensors"
    local length = text:byte(1) + 256 * text:byte(2)
    assert.equal(0, length % 8)
    assert.equal(8 + length + 24 + 2, #text)
    local header = text:sub(9, 8 + length)
    assert.equal('{"__metadata__":{"format":"pt"},'
      .. '"0.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},'
      .. '"0.bias":{"dtype":"F16","shape":[1],"data_offsets":[24,26]}}', (header:gsub(" *$", "")))
    assert.is_true(alike({ ["0.weight"] = cnn.ones(2, 3), ["0.bias"] = cnn.zeros(1):half() },
      cnn.load(path "flat.safetensors")))
    cnn.save(path "none.safetensors", {})
    assert.same({}, (cnn.load(path "none.safetensors")))
  end)

  it("writes equal files for equal tables", function()
    local function value()
      local t = {}
      for i = 1, 50 do t["k" .. (i * 7 % 50)] = i end
      return { t = t, w = cnn.ones(3) }
    end
    cnn.save(path "a", value())
    cnn.save(path "b", value())
    assert.equal(read "a", read "b")
  end)

  it("saves a shared tensor once and gives it back shared", function()
    local w = cnn.randn(100, 10)
    local got = round_trip({ embed = { weight = w }, proj = { weight = w, same = w:detach() }, part = w[1] })
    assert.is_true(got.embed.weight == got.proj.weight)
    assert.is_true(got.embed.weight == got.proj.same)
    assert.is_false(got.embed.weight == got.part)
    assert.is_true(#read "x.safetensors" < 5000)
    local flat = round_trip({ ["embed.weight"] = w, ["proj.weight"] = w })
    assert.is_true(flat["embed.weight"] == flat["proj.weight"])
  end)

  it("understands the ties of other programs", function()
    local header = '{"__metadata__":{"format":"pt","b":"a","note":"none"},'
      .. '"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'
    write("tied", string.char(#header, 0, 0, 0, 0, 0, 0, 0) .. header .. "\1\2")
    local t, metadata = cnn.load(path "tied")
    assert.is_true(t.a == t.b)
    assert.same({ format = "pt", note = "none" }, metadata)
  end)

  it("carries metadata", function()
    cnn.save(path "m", { x = cnn.ones(1), n = 1 }, { metadata = { author = "me", ["\n\"\\"] = "h\195\169" } })
    local t, metadata = cnn.load(path "m")
    assert.equal(1, t.n)
    assert.same({ format = "pt", author = "me", ["\n\"\\"] = "h\195\169" }, metadata)
    raises("must be strings", cnn.save, path "m", {}, { metadata = { 1 } })
    raises("UTF-8", cnn.save, path "m", {}, { metadata = { a = "\255" } })
    raises("zero byte", cnn.save, path "m", {}, { metadata = { a = "a\0b" } })
    raises("is taken", cnn.save, path "m", {}, { metadata = { ["cnn.table"] = "" } })
    raises("unknown option \"metdata\"", cnn.save, path "m", {}, { metdata = {} })
  end)

  it("maps: what changes in place stays in memory, tensor by tensor", function()
    local value = { a = cnn.ones(1000), b = cnn.ones(1000) }
    cnn.save(path "x", value)
    local before = read "x"
    local t = cnn.load(path "x")
    local b = t.b:version()
    t.a:mul_(2)
    assert.equal(b, t.b:version())
    assert.equal(2000, t.a:sum():item())
    assert.equal(before, read "x")
    -- Over the file that is mapped right now.
    cnn.save(path "x", t)
    assert.equal(2000, t.a:sum():item())
    assert.equal(1000, t.b:sum():item())
    assert.is_true(alike(t, (cnn.load(path "x"))))
    os.remove(path "x")
    assert.equal(1000, t.b:sum():item())
  end)

  it("copies when mmap is false", function()
    cnn.save(path "x", { a = cnn.ones(1000) })
    local live = cnn.memory_allocated("cpu")
    local mapped = cnn.load(path "x")
    assert.equal(live, cnn.memory_allocated("cpu"))
    local copied = cnn.load(path "x", { mmap = false })
    assert.is_true(cnn.memory_allocated("cpu") >= live + 4000)
    assert.is_true(alike(mapped, copied))
    raises("unknown option \"map\"", cnn.load, path "x", { map = false })
    raises("mmap: expected true or false", cnn.load, path "x", { mmap = 1 })
  end)

  it("loads to a device", function()
    cnn.save(path "x", { a = cnn.ones(3) })
    assert.equal("meta", cnn.load(path "x", { device = "meta" }).a.device)
  end)

  it("trains what it loaded", function()
    cnn.save(path "x", { w = cnn.ones(3), b = cnn.ones(3) })
    local t = cnn.load(path "x")
    t.w:requires_grad_()
    local loss = (t.w * t.b):sum()
    t.w.data:add_(0)
    loss:backward()
    assert.same({ 1, 1, 1 }, t.w.grad:totable())
  end)

  it("holds a whole training: it goes on as if it had never been stopped", function()
    local nn, F = cnn.nn, cnn.F
    local data = cnn.data.TensorDataset(cnn.randn(32, 4), cnn.randint(1, 4, { 32 }))
    local function start()
      local model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
      return { model = model, opt = cnn.optim.AdamW(model:parameters(), { lr = 1e-2 }), epoch = 0 }
    end
    local function train(t, epochs)
      for _ = 1, epochs do
        for _, x, y in cnn.data.DataLoader(data, { batch_size = 8, shuffle = true, num_workers = 1 }):iter() do
          t.opt:zero_grad()
          F.cross_entropy(t.model(x), y):backward()
          t.opt:step()
        end
        t.epoch = t.epoch + 1
      end
    end
    local first = start()
    train(first, 2)
    cnn.save(path "run", {
      model = first.model:state_dict(), opt = first.opt:state_dict(), rng = cnn.get_rng_state(), epoch = first.epoch,
    })
    train(first, 2)
    local second, saved = start(), cnn.load(path "run")
    second.model:load_state_dict(saved.model)
    second.opt:load_state_dict(saved.opt)
    second.epoch = saved.epoch
    cnn.set_rng_state(saved.rng)
    train(second, 2)
    assert.equal(first.epoch, second.epoch)
    assert.is_true(alike(first.model:state_dict(), second.model:state_dict()))
    assert.is_true(alike(first.opt:state_dict(), second.opt:state_dict()))
  end)

  it("keeps a file's permissions and follows links", function()
    cnn.save(path "x", { a = cnn.ones(1) })
    os.execute("chmod 600 " .. path "x" .. " && ln -s x " .. path "link")
    cnn.save(path "link", { a = cnn.zeros(1) })
    assert.equal(0, cnn.load(path "x").a:item())
    local pipe = io.popen("ls -l " .. path "x" .. "; ls -l " .. path "link")
    local text = pipe:read("*a")
    pipe:close()
    assert.is_truthy(text:find("^%-rw%-%-%-%-%-%-%-"))
    assert.is_truthy(text:find("\nl"))
    assert.equal("link\nx", listing())
  end)
end)

describe("cnn.save refuses", function()
  it("what it cannot save, and says where it is", function()
    local cyclic = { a = {} }
    cyclic.a.b = cyclic
    local deep = {}
    for _ = 1, 200 do deep = { deep } end
    local freed = cnn.ones(1)
    freed:free()
    raises("save: \"a.b\" contains itself", cnn.save, path "x", cyclic)
    raises("nested more than 100 deep", cnn.save, path "x", deep)
    raises("save: \"opt.f\" is a function", cnn.save, path "x", { opt = { f = print } })
    raises("save: \"w\" is a freed tensor", cnn.save, path "x", { w = freed })
    raises("a key of \"t\" is a table", cnn.save, path "x", { t = { [{}] = 1 } })
    raises("\"w\" is on meta", cnn.save, path "x", { w = cnn.ones(1, { device = "meta" }) })
    raises("save: argument 1 (path): expected a string, got a table", cnn.save, {}, "x")
    if cnn.nn then raises("save model:state_dict()", cnn.save, path "x", { m = cnn.nn.Linear(1, 1) }) end
    assert.equal("", listing())
  end)

  it("what is no file's place", function()
    write("file", "kept")
    raises("it is a folder", cnn.save, folder, {})
    raises("No such file or directory", cnn.save, path "no/where", {})
    raises("Not a directory", cnn.save, path "file/x", {})
    raises("no regular file", cnn.save, "/dev/null", {})
    raises("zero byte", cnn.save, path "a\0b", {})
    assert.equal("kept", read "file")
    assert.equal("file", listing())
  end)

  it("a full disk, and leaves the old file", function()
    cnn.save(path "x", { a = cnn.ones(3) })
    local before = read "x"
    -- A limit on the size of files is the full disk of an ordinary user.
    local text = helper.run(([[
      local cnn = require "cnn"
      print(pcall(cnn.save, %q, { a = cnn.ones(1000000) }))
    ]]):format(path "x"), "trap '' XFSZ; ulimit -f 100;")
    assert.is_truthy(text:find("^false") and text:find("File too large", 1, true), text)
    assert.equal(before, read "x")
    assert.equal("x", listing())
  end)
end)

describe("cnn.load refuses", function()
  local function little(n)
    local bytes = {}
    for i = 1, 8 do bytes[i], n = string.char(n % 256), math.floor(n / 256) end
    return table.concat(bytes)
  end
  local function load(header, data)
    return cnn.load(write("bad", little(#header) .. header .. (data or "")))
  end
  local function entry(dtype, shape, first, last)
    return ('{"dtype":"%s","shape":%s,"data_offsets":[%s,%s]}'):format(dtype, shape, first, last)
  end

  it("a missing, empty or special file", function()
    raises("load: " .. path "nothing" .. ": No such file or directory", cnn.load, path "nothing")
    raises("the file is empty", cnn.load, write("empty", ""))
    raises("it is a folder", cnn.load, folder)
    raises("no regular file", cnn.load, "/dev/zero")
    raises("expected a string, got nil", cnn.load)
  end)

  it("every truncation of a good file", function()
    cnn.save(path "good", { a = cnn.ones(5), b = { 1, 2, c = cnn.ones(2, 2) } })
    local text = read "good"
    for n = 0, #text - 1 do
      local message = helper.message(cnn.load, write("cut", text:sub(1, n)))
      assert.is_truthy(message:find(path "cut", 1, true), message)
    end
    assert.equal(5, cnn.load(write("cut", text)).a:sum():item())
    raises("which has", cnn.load, write("cut", text .. "x"))
  end)

  it("a header's length that can't be", function()
    raises("fewer than the 8", cnn.load, write("bad", "1234567"))
    raises("truncated: the header should have 100 bytes", cnn.load, write("bad", little(100) .. "{}"))
    raises("at most 100000000", cnn.load, write("bad", little(2 ^ 40) .. "{}"))
    raises("at most 100000000", cnn.load, write("bad", ("\255"):rep(8) .. "{}"))
    raises("does not start with \"{\"", cnn.load, write("bad", little(0)))
  end)

  it("a header that is no header", function()
    raises("does not start with \"{\"", load, "[]")
    raises("does not start with \"{\"", load, " {}")
    raises("no JSON text", load, "{")
    raises("no JSON text", load, "{}}")
    raises("no JSON text", load, '{"a" 1}')
    raises("no JSON text", load, '{"a":1} {}')
    raises("no UTF-8", load, '{"\255":1}')
    raises("no UTF-8", load, '{}\0')
    raises("no UTF-8", load, '{"\237\160\128":1}') -- a surrogate
    raises("NUL character", load, '{"a\\u0000b":1}')
    raises("nested too deep", load, '{"a":[[[1]]]}')
    raises("nested too deep", load, '{"a":' .. ("["):rep(100000))
    raises("its description is no object", load, '{"a":1}')
    assert.same({}, (load("{}   ")))
  end)

  it("a wrong dtype, shape or place", function()
    local bytes = ("\0"):rep(8)
    raises('dtype "Q7" is not supported', load, '{"a":' .. entry("Q7", "[2]", 0, 8) .. "}", bytes)
    raises("its dtype is no text", load, '{"a":{"dtype":1,"shape":[2],"data_offsets":[0,8]}}', bytes)
    raises("its shape is no list", load, '{"a":' .. entry("F32", "2", 0, 8) .. "}", bytes)
    raises("no whole number", load, '{"a":' .. entry("F32", "[-2]", 0, 8) .. "}", bytes)
    raises("no whole number", load, '{"a":' .. entry("F32", "[2.5]", 0, 8) .. "}", bytes)
    raises("no whole number", load, '{"a":' .. entry("F32", '["2"]', 0, 8) .. "}", bytes)
    raises("no whole number", load, '{"a":' .. entry("F32", "[1e300]", 0, 8) .. "}", bytes)
    raises("more than 8 dims", load, '{"a":' .. entry("F32", "[1,1,1,1,1,1,1,1,2]", 0, 8) .. "}", bytes)
    raises("too large", load, '{"a":' .. entry("F32", "[4294967296,4294967296]", 0, 8) .. "}", bytes)
    raises("too large", load, '{"a":' .. entry("F64", "[4503599627370496,512]", 0, 8) .. "}", bytes)
    raises("takes 12 bytes, but data_offsets give 8", load, '{"a":' .. entry("F32", "[3]", 0, 8) .. "}", bytes)
    raises("do not lie in the 8 bytes", load, '{"a":' .. entry("F32", "[4]", 0, 16) .. "}", bytes)
    raises("do not lie in the 8 bytes", load, '{"a":' .. entry("F32", "[2]", 8, 0) .. "}", bytes)
    raises("not two whole numbers", load, '{"a":' .. entry("F32", "[2]", -8, 0) .. "}", bytes)
    raises("not two whole numbers", load, '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4,8]}}', bytes)
    raises("lacks dtype, shape or data_offsets", load, '{"a":{"dtype":"F32","shape":[2]}}', bytes)
    raises('twice the key "dtype"', load, '{"a":{"dtype":"F32","dtype":"F32"}}', bytes)
    raises('unknown key "type"', load, '{"a":{"type":"F32"}}', bytes)
    raises("neither 0 nor 1", load, '{"a":' .. entry("BOOL", "[8]", 0, 8) .. "}", "\0\1\0\1\0\1\2\0")
  end)

  it("tensors with gaps, overlaps or one name", function()
    local bytes = ("\0"):rep(8)
    local a = '"a":' .. entry("U8", "[4]", 0, 4)
    raises("leaving a gap", load, "{" .. a .. ',"b":' .. entry("U8", "[3]", 5, 8) .. "}", bytes)
    raises("leaving a gap", load, '{"a":' .. entry("U8", "[4]", 4, 8) .. "}", bytes)
    raises("inside another", load, "{" .. a .. ',"b":' .. entry("U8", "[6]", 2, 8) .. "}", bytes)
    raises("inside another", load, "{" .. a .. ',"b":' .. entry("U8", "[4]", 0, 4) .. "}", ("\0"):rep(4))
    raises("end at byte 4 of the data, which has 8", load, "{" .. a .. "}", bytes)
    raises("is in the header twice", load, "{" .. a .. ',"a":' .. entry("U8", "[4]", 4, 8) .. "}", bytes)
    assert.equal(4, #load("{" .. '"b":' .. entry("U8", "[4]", 4, 8) .. "," .. a .. "}", bytes).b)
  end)

  it("metadata that is no table of texts", function()
    raises("is no object", load, '{"__metadata__":[]}')
    raises('the value of "a" is no text', load, '{"__metadata__":{"a":1}}')
    raises('has the key "a" twice', load, '{"__metadata__":{"a":"1","a":"2"}}')
    raises("is in the header twice", load, '{"__metadata__":{},"__metadata__":{}}')
  end)

  it("a damaged structure, and runs nothing of it", function()
    local function structure(text)
      text = text:gsub("\\", "\\\\"):gsub('"', '\\"')
      return load('{"__metadata__":{"cnn.table":"' .. text .. '"},"w":' .. entry("U8", "[1]", 0, 1) .. "}", "\7")
    end
    assert.equal(7, structure('{a = {T"w"}}').a[1]:item())
    -- What another program added is there under its name.
    assert.equal(7, structure("{b=1}").w:item())
    raises('tensor "v" is missing', structure, '{T"v"}')
    raises('tensor "w" is not in its cnn.table', structure, "{w=1}")
    for _, bad in ipairs {
      "", "{", "}", "{a}", "{a=}", "{=1}", "{1", "{1,,2}", "{1}2", "{os.exit()}", "{[nan]=1}", "{[{}]=1}", '{"',
      '{"\\x"}', '{"\\999"}', "{a=1,a=2}", "{1,[1]=2}", "{0x10}", "{1e}", "{--1}", "print(1)", '{T}', "{nil}",
      '{T"w', "(1)", "{function() end}", ("{"):rep(5000),
    } do
      local message = helper.message(structure, bad)
      assert.is_truthy(message:find("damaged", 1, true), bad .. " -> " .. message)
    end
  end)

  it("an integer that does not fit", function()
    local header = '{"__metadata__":{"cnn.table":"{9007199254740993}"}}'
    if math.type then
      assert.equal(9007199254740993, load(header)[1])
    else
      raises("does not fit a Lua number here", load, header)
    end
  end)

  it("pickles", function()
    raises("a Python pickle, which may run code", cnn.load, write("old.pt", "\128\2\138\10l\252"))
  end)

  it("terminal escapes in names, by showing them harmlessly", function()
    local message = helper.message(load, '{"\\u001b[31mred":1}')
    assert.is_nil(message:find("\27", 1, true))
  end)
end)

describe("npy and npz", function()
  local function npy(header, data, version)
    header = header .. "\n"
    local length = version and string.char(#header, 0, 0, 0) or string.char(#header, 0)
    return "\147NUMPY" .. string.char(version or 1, 0) .. length .. header .. (data or "")
  end
  local function load(...) return cnn.load(write("x.npy", npy(...))) end

  it("gives back tensors", function()
    for _, dtype in ipairs(DTYPES) do
      local x = cnn.arange(24):sub(5):reshape(2, 3, 4):to(dtype)
      if dtype == "bfloat16" then
        raises("have no bfloat16", cnn.save, path "x.npy", x)
      else
        for _, y in ipairs { x, x:transpose(1, 3), x[1][1], x[1][1][1], x[{ {}, { 3, 2 } }] } do
          assert.is_true(same(y, (round_trip(y, "x.npy"))))
        end
        assert.is_true(alike({ x = x, ["a.b"] = x[1] }, round_trip({ x = x, ["a.b"] = x[1] }, "x.npz")))
      end
    end
    assert.same({}, round_trip({}, "none.npz"))
    assert.equal(1, round_trip({ a = { b = cnn.ones(1) } }, "n.npz")["a.b"]:item())
    raises("\"n\" is no tensor", cnn.save, path "x.npz", { n = 1 })
    raises("holds one tensor, not a table", cnn.save, path "x.npy", {})
  end)

  it("reads what NumPy writes", function()
    local x = load("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "\0\0\128\63\0\0\0\64")
    assert.same({ 1, 2 }, x:totable())
    x = load("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }", "\0\1\0\2\0\3\0\4\0\5\0\6")
    assert.same({ { 1, 3, 5 }, { 2, 4, 6 } }, x:totable())
    x = load("{'descr': '|b1', 'fortran_order': False, 'shape': ()}", "\1", 2)
    assert.is_true(x:item())
    assert.is_true(load("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 3), }"):has_shape(0, 3))
  end)

  it("refuses damaged and strange files", function()
    local good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
    raises("truncated", load, good, "1234567")
    raises("damaged", load, good, "123456789")
    raises("Python objects", load, "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", "x")
    raises("records", load, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "x")
    raises("type '<u4' are not supported", load, "{'descr': '<u4', 'fortran_order': False, 'shape': (2,), }")
    raises("type '<f40' are not", load, "{'descr': '<f40', 'fortran_order': False, 'shape': (2,), }")
    raises("too large", load, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }")
    raises("no number", load, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }")
    raises("no number", load, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }")
    raises("more than 8 dims", load, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }")
    raises("neither True nor False", load, "{'descr': '<f4', 'fortran_order': os.exit(), 'shape': (2,), }")
    raises("unknown key", load, "{'descr': '<f4', 'x': 1}")
    raises("lacks", load, "{'descr': '<f4'}")
    raises("no dict", load, "[]")
    raises("damaged", load, good .. "x")
    raises("neither 0 nor 1", load, "{'descr': '|b1', 'fortran_order': False, 'shape': (1,)}", "\2")
    raises("version", cnn.load, write("x.npy", "\147NUMPY\9\0\0\0"))
    raises("truncated in its header", cnn.load, write("x.npy", "\147NUMPY\1\0\255\255{"))
    for n = 6, #npy(good, "12345678") - 1 do
      helper.message(cnn.load, write("cut.npy", npy(good, "12345678"):sub(1, n)))
    end
  end)

  it("refuses damaged zip archives", function()
    cnn.save(path "x.npz", { a = cnn.ones(5), b = cnn.zeros(2, 2) })
    local text = read "x.npz"
    for n = 4, #text - 1 do
      local message = helper.message(cnn.load, write("cut.npz", text:sub(1, n)))
      assert.is_truthy(message:find("cut.npz", 1, true), message)
    end
    local at = text:find("\0\0\128\63", 1, true) -- a one of a's
    raises("its check sum is wrong", cnn.load, write("bad.npz", text:sub(1, at) .. "\1" .. text:sub(at + 2)))
    cnn.save(path "x.npz", { aaaaa = cnn.ones(5) })
    raises("a PyTorch pickle", cnn.load, write("x.pt", (read("x.npz"):gsub("aaaaa%.npy", "/data.pkl"))))
    raises("no .npy array", cnn.load, write("x.zip", (read("x.npz"):gsub("aaaaa%.npy", "document."))))
  end)
end)

describe("short memory", function()
  local value

  setup(function()
    value = { a = cnn.randn(64, 3):t(), b = { cnn.randn(5), 1, "x" }, tied = cnn.ones(2), flag = true }
    value.again = value.tied
  end)
  teardown(function() value = nil end)

  -- Fails allocation n and all later ones, for n = 1, 2 ... until the work gets by; gives the failures.
  local function fail_each(work, after)
    local failures = 0
    for n = 1, 10000 do
      core.fault_set(n, true)
      local ok, message = pcall(work)
      core.fault_clear()
      after(ok)
      if ok then return failures end
      failures = failures + 1
      assert.is_truthy(message:find("out of memory", 1, true), message)
    end
    error("it never got by")
  end

  it("gives a clean error from every allocation of a save", function()
    for _, name in ipairs { "x.safetensors", "x.npz", "x.npy" } do
      local what = name == "x.npy" and value.a or name == "x.npz" and { a = value.a, b = value.b[1] } or value
      cnn.save(path(name), name == "x.npy" and cnn.zeros(1) or { old = cnn.zeros(1) })
      local before, files = read(name), listing()
      local failures = fail_each(function() cnn.save(path(name), what) end, function(ok)
        assert.equal(files, listing())
        assert.equal(not ok, before == read(name))
      end)
      assert.is_true(failures > 4)
      os.remove(path(name))
    end
  end)

  it("gives a clean error from every allocation of a load", function()
    cnn.save(path "x.safetensors", value)
    cnn.save(path "x.npz", { a = value.a, b = value.b[1] })
    cnn.save(path "x.npy", value.a)
    os.execute("cd " .. folder .. " && gzip -k x.npy 2>/dev/null")
    for name, least in pairs { ["x.safetensors"] = 20, ["x.npz"] = 5, ["x.npy"] = 3 } do
      for _, options in ipairs { { mmap = true }, { mmap = false } } do
        collectgarbage()
        collectgarbage()
        local live, got = cnn.memory_allocated("cpu"), nil
        local failures = fail_each(function() got = cnn.load(path(name), options) end, function(ok)
          if ok then return end
          collectgarbage()
          assert.equal(live, cnn.memory_allocated("cpu"))
        end)
        assert.is_true(failures >= least, name .. ": " .. failures)
        local expected = name == "x.npy" and value.a or name == "x.npz" and { a = value.a, b = value.b[1] } or value
        assert.is_true(alike(expected, got))
      end
    end
  end)

  it("gets by when only one allocation fails", function()
    for n = 1, 100 do
      core.fault_set(n, false)
      local ok, message = pcall(cnn.save, path "x", value)
      local loaded = ok and cnn.load(path "x")
      local seen = core.fault_clear()
      assert.is_true(ok, message)
      assert.is_true(alike(value, loaded))
      if seen < n then return end
    end
  end)
end)

describe("the codec plugin", function()
  local function run(setting, script)
    return helper.run(script, "CNN_CODEC_PLUGIN=" .. setting)
  end

  it("is said to be missing, with what to install", function()
    cnn.save(path "x", { a = cnn.ones(1) })
    local script = ('local cnn = require "cnn" cnn.save("%s", {cnn.ones(2)}) print(pcall(cnn.load, "%s"))'):format(
      path "y", path "x")
    for _, setting in ipairs { "none", "/nowhere/x.so", path "x" } do
      local text = run(setting, script)
      assert.is_truthy(text:find("^false") and text:find("apt install zlib1g%-dev libcjson%-dev"), text)
    end
  end)

  it("is not loaded by require", function()
    local text = run("", [[
      require "cnn"
      local found = false
      for line in io.lines("/proc/self/maps") do found = found or line:find("libz") or line:find("cjson") end
      print(found and "mapped" or "not mapped")
    ]])
    assert.equal("not mapped\n", text)
  end)
end)
