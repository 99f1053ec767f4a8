-- SPDX-License-Identifier: MIT
-- Damaged files for everything that reads a file: the reader gives an error or tensors that can be read
-- and written to the last byte. Under the sanitizers this shows every step outside of a buffer.
--
-- Files are good ones with a few random changes. CNN_FUZZ_ROUNDS and CNN_FUZZ_SEED ask for more of them,
-- or for others.
local cnn = require "cnn"
local helper = require "spec.helper"

local ROUNDS = tonumber(os.getenv "CNN_FUZZ_ROUNDS") or 400
local SEED = tonumber(os.getenv "CNN_FUZZ_SEED") or 1

-- Park and Miller's generator: the same numbers on every Lua.
local state
local function random(n)
  state = state * 16807 % 2147483647
  return state % n + 1
end

-- ---------------------------------------------------------------------------------------------
-- Changes

local NUMBERS = {
  "0", "1", "-1", "8", "255", "256", "65536", "2147483647", "2147483648", "4294967295", "4294967296",
  "9007199254740992",
  "9007199254740993", "9223372036854775807", "18446744073709551616", "1e9", "1e400", "0.5", "-0", "00",
}
local WORDS = {
  "{", "}", "[", "]", "\"", ",", ":", "\\", "\\u0000", "\\ud800", "null", "true", "__metadata__", "cnn.table", "dtype",
  "shape", "data_offsets", "F64", "BOOL", "descr", "T\"a\"", "(", ")", "'", "\0", "\255", "{a=", "nan",
}

local function splice(text, at, removed, inserted)
  return text:sub(1, at - 1) .. inserted .. text:sub(at + removed)
end

local CHANGES = {
  function(text) -- a bit
    local at = random(#text)
    local byte, bit = text:byte(at), 2 ^ (random(8) - 1)
    return splice(text, at, 1, string.char(math.floor(byte / bit) % 2 == 1 and byte - bit or byte + bit))
  end,
  function(text) -- a byte
    return splice(text, random(#text), 1, string.char(random(256) - 1))
  end,
  function(text) -- a telling byte
    local bytes = { 0, 1, 127, 128, 255 }
    return splice(text, random(#text), 1, string.char(bytes[random(#bytes)]))
  end,
  function(text) -- a field of 2, 4 or 8 bytes
    local n = 2 ^ random(3)
    local fill = ({ "\0", "\255", "\127", "\1" })[random(4)]
    local at = random(#text)
    return splice(text, at, n, random(2) == 1 and fill .. ("\0"):rep(n - 1) or fill:rep(n))
  end,
  function(text) -- its end
    return text:sub(1, random(#text))
  end,
  function(text) -- a piece
    return splice(text, random(#text), random(16), "")
  end,
  function(text) -- a piece, twice
    local at, n = random(#text), random(40)
    return splice(text, at, 0, text:sub(at, at + n - 1))
  end,
  function(text) -- a number
    local from = random(#text)
    local first, last = text:find("%d+", from)
    if not first then return text end
    return splice(text, first, last - first + 1, NUMBERS[random(#NUMBERS)])
  end,
  function(text) -- a word
    return splice(text, random(#text), random(3) - 1, WORDS[random(#WORDS)])
  end,
  function(text) -- bytes behind it
    return text .. string.char(random(256) - 1):rep(random(20))
  end,
  function(text) -- two pieces change places
    local a, b, n = random(#text), random(#text), random(12)
    if a > b then a, b = b, a end
    if b - a < n then return text end
    return text:sub(1, a - 1) .. text:sub(b, b + n - 1) .. text:sub(a + n, b - 1) .. text:sub(a, a + n - 1)
      .. text:sub(b + n)
  end,
}

-- A header's length is often kept true, so that what is changed behind it is looked at.
local function mend_safetensors(text)
  local last
  for at in text:gmatch("()}") do last = at end
  if not last or last < 9 or random(3) == 1 then return text end
  local _, stop = text:find("^ *", last + 1)
  local n = stop - 8
  return string.char(n % 256, math.floor(n / 256) % 256, math.floor(n / 65536) % 256, 0, 0, 0, 0, 0) .. text:sub(9)
end

local function change(text, mend)
  for _ = 1, random(3) do
    if #text == 0 then break end
    text = CHANGES[random(#CHANGES)](text)
  end
  return mend and mend(text) or text
end

-- ---------------------------------------------------------------------------------------------
-- Using what was read

-- Reads and writes every element.
local function use(value, depth)
  if cnn.is_tensor(value) then
    -- A shape may be large where there are no elements.
    if value:numel() > 0 then
      local sum = value:to("float64"):sum():item()
      assert(type(sum) == "number")
      value:copy_(value:clone())
    end
    return
  end
  if type(value) ~= "table" or depth > 120 then return end
  for _, inner in next, value do use(inner, depth + 1) end
end

local folder

local function write(name, text) return helper.write(folder .. "/" .. name, text) end
local function read(name) return helper.read(folder .. "/" .. name) end

-- Rounds of changes to each good file; how many were still read.
local function fuzz(reader, good, mend)
  local count = 0
  for index, text in ipairs(good) do
    state = SEED * 1000 + index
    assert(pcall(reader, write("file", text)))
    for _ = 1, ROUNDS do
      local path = write("file", change(text, mend))
      local ok, result = pcall(reader, path)
      if ok then
        count = count + 1
        use(result, 0)
      else
        local named = type(result) == "string" and result:find(path, 1, true)
        assert(named, "a message without the file: " .. tostring(result))
      end
    end
  end
  collectgarbage()
  return count
end

describe("damaged files", function()
  setup(function()
    folder = helper.folder()
  end)
  teardown(function() os.execute("rm -rf " .. folder) end)

  local function saved(name, value)
    cnn.save(folder .. "/" .. name, value)
    return read(name)
  end

  it("of safetensors", function()
    local w = cnn.arange(6):reshape(2, 3)
    local all = {}
    for _, dtype in ipairs { "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool" } do
      all[dtype] = cnn.ones(3, { dtype = dtype })
    end
    fuzz(cnn.load, {
      saved("a", { a = w, b = cnn.ones(1), empty = cnn.zeros(0, 4), scalar = cnn.tensor(1) }),
      saved("b", { model = { ["0.weight"] = w, tied = w }, list = { 1, 2.5, { "x\n\"", true } }, [3] = -math.huge }),
      saved("c", all),
      saved("d", { 1 }),
    }, mend_safetensors)
  end)

  it("of npy", function()
    fuzz(cnn.load, {
      saved("a.npy", cnn.arange(6):reshape(2, 3)),
      saved("b.npy", cnn.ones(4, { dtype = "bool" })),
      saved("c.npy", cnn.tensor(1, "int64")),
      "\147NUMPY\1\0\70\0{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }"
        .. (" "):rep(11) .. "\n" .. ("\0\1"):rep(6),
    })
  end)

  it("of npz", function()
    local good = { saved("a.npz", { a = cnn.arange(6):reshape(2, 3), b = cnn.ones(2, { dtype = "bool" }) }) }
    -- A deflated one: {"x": array([[0, 1, 2], [3, 4, 5]], int16)} by numpy.savez_compressed.
    good[2] = require "spec.fuzz_npz"
    fuzz(cnn.load, good)
  end)

  it("of IDX, packed and plain", function()
    local plain = "\0\0\8\3\0\0\0\2\0\0\0\3\0\0\0\4" .. ("\1\2\3"):rep(8)
    local good = { plain, "\0\0\14\1\0\0\0\2" .. ("\63\240\0\0\0\0\0\0"):rep(2), "\0\0\12\2\0\0\0\1\0\0\0\1\1\2\3\4" }
    write("packed", plain)
    if os.execute("gzip -nf " .. folder .. "/packed 2>/dev/null") then good[#good + 1] = read("packed.gz") end
    fuzz(cnn.data.read_idx, good)
  end)
end)
