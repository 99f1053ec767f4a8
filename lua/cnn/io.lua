-- SPDX-License-Identifier: MIT
-- cnn.save and cnn.load: nested tables of tensors, numbers, strings and booleans in one safetensors
-- file; .npy and .npz too. Reading a file never executes anything of it.
--
-- A tensor's name in the file is its keys joined by dots: {model = {["0.weight"] = w}} saves w as
-- "model.0.weight". A flat table of tensors is just that and what PyTorch's safetensors writes and
-- reads. Whatever names can't say (numbers, nested keys, lists, ties) is in the metadata under
-- "cnn.table", as a table literal of which only constants are understood:
--   {epoch=3,model={["0.weight"]=T"model.0.weight"}}
-- A tensor that the table holds twice is saved once and loads as one tensor.
local core = require "cnn.core"
local options = require "cnn.options"

local fail, describe, is_tensor = core.fail, core.describe, core.is_tensor
local format, concat = string.format, table.concat

local io = {}

local STRUCTURE = "cnn.table" -- its key in the metadata
local MAX_DEPTH = 100         -- of nested tables
local MAX_EXACT = 2 ^ 53      -- integers up to here are exact as floats

-- The subtype of a number, where the Lua at hand has any.
local subtype = math.type or function() return nil end

-- ---------------------------------------------------------------------------------------------
-- Constants as text

local function quote(text)
  return '"' .. text:gsub('[%c"\\\127-\255]', function(c)
    if c == '"' or c == "\\" then return "\\" .. c end
    return format("\\%03d", c:byte())
  end) .. '"'
end

-- Exact, and of the same subtype when it is read again. A float with an integral value gets a point
-- unless it fits in both.
local function number_text(v)
  if v ~= v then return "nan" end
  if v == math.huge then return "inf" end
  if v == -math.huge then return "-inf" end
  if subtype(v) == "integer" then return format("%d", v) end
  local text = format("%.17g", v)
  local integral = not text:find("[%.e]")
  if integral and (subtype(v) == "float" or v < -MAX_EXACT or v > MAX_EXACT or text == "-0") then
    text = text .. ".0"
  end
  return text
end

local RESERVED = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return then
  true until while]]):gmatch("%a+") do
  RESERVED[word] = true
end

local function key_text(key)
  if type(key) == "string" and key:find("^[%a_][%w_]*$") and not RESERVED[key] then return key end
  local text = type(key) == "string" and quote(key) or type(key) == "number" and number_text(key) or tostring(key)
  return "[" .. text .. "]"
end

-- ---------------------------------------------------------------------------------------------
-- From a table to names, tensors and the text of its structure

local KEY_RANK = { number = 1, string = 2, boolean = 3 }

-- A part of a tensor's name. Bytes that are no plain text are written as %XX.
local function name_part(key)
  if type(key) == "number" then return number_text(key) end
  if type(key) == "boolean" then return tostring(key) end
  if key:find("[%c\127-\255]") and not core.is_utf8(key) then
    key = key:gsub("[%c\127-\255]", function(c) return format("%%%02X", c:byte()) end)
  end
  return key
end

local function sorted_keys(value, where)
  local keys = {}
  for key in next, value do
    if not KEY_RANK[type(key)] then
      fail(format("save: a key of %s is %s: keys must be strings, numbers or booleans", where, describe(key)))
    end
    keys[#keys + 1] = key
  end
  table.sort(keys, function(a, b)
    local ra, rb = KEY_RANK[type(a)], KEY_RANK[type(b)]
    if ra ~= rb then return ra < rb end
    if type(a) == "boolean" then return not a and b end
    return a < b
  end)
  return keys
end

local Flattener = {}
Flattener.__index = Flattener

-- What a message calls the place of a value.
local function place(path)
  return path == "" and "the table" or "\"" .. path .. "\""
end

-- The same bytes seen the same way are one tensor.
local function identity(t)
  if t:numel() == 0 or t.device == "meta" then return nil end
  return concat({ format("%.17g", t:data_ptr()), t.dtype, t.device, tostring(t.shape), tostring(t:stride()) }, " ")
end

function Flattener:tensor(t, path)
  if describe(t) == "a freed tensor" then fail(format("save: %s is a freed tensor", place(path))) end
  local id = self.ties and identity(t)
  local known = id and self.known[id]
  if known then
    self.plain = false
    self.aliases[path] = known
    return known
  end
  local name, n = path, 1
  while self.used[name] or name == "__metadata__" do
    n = n + 1
    name = format("%s~%d", path, n)
  end
  self.used[name] = true
  if t.device ~= "cpu" and t.device ~= "meta" then t = t:to("cpu") end
  self.names[#self.names + 1] = name
  self.tensors[#self.tensors + 1] = t
  if id then self.known[id] = name end
  return name
end

function Flattener:put(text)
  self.text[#self.text + 1] = text
end

function Flattener:table(value, path, depth)
  if self.open[value] then fail(format("save: %s contains itself", place(path))) end
  if depth > MAX_DEPTH then fail(format("save: %s: tables are nested more than %d deep", place(path), MAX_DEPTH)) end
  self.open[value] = true
  self:put("{")
  local listed, first = 0, true
  while rawget(value, listed + 1) ~= nil do listed = listed + 1 end
  for _, key in ipairs(sorted_keys(value, place(path))) do
    if not first then self:put(",") end
    first = false
    -- 1, 2, 3 ... come first in the order, but for keys below 1.
    local in_list = type(key) == "number" and key >= 1 and key <= listed and key % 1 == 0
    if not in_list then
      self:put(key_text(key))
      self:put("=")
    end
    local part = name_part(key)
    local inner = path == "" and part or path .. "." .. part
    if depth > 1 or type(key) ~= "string" or part ~= key then self.plain = false end
    self:value(rawget(value, key), inner, depth + 1)
  end
  self:put("}")
  self.open[value] = nil
end

function Flattener:value(value, path, depth)
  local kind = type(value)
  if is_tensor(value) then
    local name = self:tensor(value, path)
    if name ~= path or depth == 1 then self.plain = false end
    self:put("T" .. quote(name))
  elseif kind == "table" then
    if depth > 1 then self.plain = false end
    self:table(value, path, depth)
  elseif kind == "number" or kind == "string" or kind == "boolean" then
    self.plain = false
    self.constant = self.constant or path
    self:put(kind == "number" and number_text(value) or kind == "string" and quote(value) or tostring(value))
  else
    local hint = describe(value) == "a module" and ": save model:state_dict()" or ""
    fail(format("save: %s is %s: only tensors, numbers, strings, booleans and tables of them can be saved%s",
      place(path), describe(value), hint))
  end
end

local function flatten(value, ties)
  local f = setmetatable({
    ties = ties, names = {}, tensors = {}, used = {}, known = {}, aliases = {}, text = {}, open = {}, plain = true,
  }, Flattener)
  f:value(value, "", 1)
  return f
end

local function metadata_of(given)
  local texts = { format = "pt" } -- Python's loaders ask for it
  if given == nil then return texts end
  if type(given) ~= "table" then
    fail("save: metadata: expected a table of strings, got " .. describe(given))
  end
  for key, text in next, given do
    if type(key) ~= "string" or type(text) ~= "string" then
      fail("save: metadata: keys and values must be strings")
    end
    if key == STRUCTURE then fail(format("save: metadata: the key \"%s\" is taken", STRUCTURE)) end
    texts[key] = text
  end
  return texts
end

-- cnn.save(path, value, {metadata = {key = text}}): the path's ending chooses the format: .npy (value is a
-- tensor), .npz (a table of tensors), else safetensors. The file is replaced when all is written, or
-- stays as it was.
function io.save(path, value, given)
  if type(path) ~= "string" then fail("save: argument 1 (path): expected a string, got " .. describe(path)) end
  if given ~= nil and type(given) ~= "table" then
    fail("save: argument 3: expected a table of options, got " .. describe(given))
  end
  given = given or {}
  options.check("save", given, { "metadata" })
  local ending = path:lower():match("%.(np[yz])$")
  if ending == "npy" then
    if not is_tensor(value) then
      fail("save: an npy file holds one tensor, not " .. describe(value) .. ": name the file .npz or .safetensors")
    end
    return core.io_save(path, "npy", { "" }, { value:to("cpu") }, {})
  end
  local flat = flatten(value, ending ~= "npz")
  if ending == "npz" then
    if flat.constant then
      fail(format("save: \"%s\" is no tensor, and an npz file holds only tensors: name the file .safetensors",
        flat.constant))
    end
    return core.io_save(path, "npz", flat.names, flat.tensors, {})
  end
  local texts = metadata_of(given.metadata)
  if not flat.plain then texts[STRUCTURE] = concat(flat.text) end
  -- Readers that know nothing of our structure find a tied tensor by its other names here.
  for name, kept in next, flat.aliases do
    if texts[name] == nil and not flat.used[name] then texts[name] = kept end
  end
  core.io_save(path, "safetensors", flat.names, flat.tensors, texts)
end

-- ---------------------------------------------------------------------------------------------
-- From the text of a structure to a table

local Parser = {}
Parser.__index = Parser

function Parser:bad(what)
  fail(format("load: %s: the metadata's %s is damaged at its byte %d: %s", self.path, STRUCTURE, self.at, what))
end

-- The text that a pattern (anchored by ^) matches here, or nil; moves past it and past spaces.
function Parser:take(pattern)
  local first, last, captured = self.text:find(pattern, self.at)
  if not first then return nil end
  self.at = self.text:find("[^ ]", last + 1) or #self.text + 1
  return captured or self.text:sub(first, last)
end

function Parser:string()
  local pieces, at = {}, self.at + 1
  while true do
    local stop = self.text:find('["\\]', at)
    if not stop then self:bad("a text without an end") end
    pieces[#pieces + 1] = self.text:sub(at, stop - 1)
    if self.text:byte(stop) == 34 then -- the closing quote
      self.at = self.text:find("[^ ]", stop + 1) or #self.text + 1
      return concat(pieces)
    end
    local code = self.text:match("^%d%d%d", stop + 1)
    local escaped = self.text:match('^["\\]', stop + 1)
    if escaped then
      pieces[#pieces + 1] = escaped
    elseif code and tonumber(code) < 256 then
      pieces[#pieces + 1] = string.char(tonumber(code))
    else
      self:bad("an unknown escape")
    end
    at = stop + 1 + (escaped and 1 or 3)
  end
end

local WORDS = { ["true"] = true, ["false"] = false, nan = 0 / 0, inf = math.huge }

function Parser:number(text)
  local value = tonumber(text)
  if not value or text:find("[xXpP]") then self:bad("no number") end
  if subtype(value) ~= "integer" and text:find("^-?%d+$") and format("%.0f", value) ~= text then
    fail(format("load: %s: the integer %s does not fit a Lua number here; use Lua 5.3 or later", self.path, text))
  end
  return value
end

function Parser:constant()
  if self:take("^%-inf") then return -math.huge end
  local number = self:take("^-?%d[%w%.]*[%+%-]?%d*")
  if number then return self:number(number) end
  if self.text:byte(self.at) == 34 then return self:string() end
  local word = self:take("^%a+")
  if word == nil or WORDS[word] == nil then self:bad("a value is expected") end
  return WORDS[word]
end

function Parser:table(depth)
  if depth > MAX_DEPTH then self:bad("tables are nested too deep") end
  local result, listed = {}, 0
  self:take("^{")
  while not self:take("^}") do
    local key = self:take("^([%a_][%w_]*) *=")
    if key == nil and self:take("^%[") then
      key = self:constant()
      if key ~= key or not self:take("^%] *=") then self:bad("a key is expected") end
    end
    local value = self:value(depth)
    if key == nil then
      listed = listed + 1
      key = listed
    end
    if result[key] ~= nil then self:bad("a key is there twice") end
    result[key] = value
    if not self:take("^,") and not self.text:find("^}", self.at) then self:bad("\",\" or \"}\" is expected") end
  end
  return result
end

function Parser:value(depth)
  if self.text:find("^{", self.at) then return self:table(depth + 1) end
  if not self.text:find('^T"', self.at) then return self:constant() end
  self.at = self.at + 1
  local name = self:string()
  local tensor = self.tensors[name]
  if not tensor then fail(format("load: %s: tensor \"%s\" is missing", self.path, name)) end
  self.seen[name] = true
  return tensor
end

local function restore(path, text, tensors)
  local p = setmetatable({ path = path, text = text, at = 1, tensors = tensors, seen = {} }, Parser)
  local value = p:value(0)
  if p.at <= #text then p:bad("something follows the table") end
  -- Tensors that another program has added since.
  for name, tensor in next, tensors do
    if not p.seen[name] then
      if type(value) ~= "table" or value[name] ~= nil then
        fail(format("load: %s: tensor \"%s\" is not in its %s", path, name, STRUCTURE))
      end
      value[name] = tensor
    end
  end
  return value
end

-- cnn.load(path, {device =, mmap =}): what cnn.save wrote, or a flat table of name -> tensor (of an npy
-- file: the tensor). Then the metadata, a table of strings. The format is told by the contents. Tensors
-- lie in the mapped file, are read when they are touched and may be changed (in memory only); with
-- mmap = false they are copied at once, so that the file may be overwritten by others.
function io.load(path, given)
  if type(path) ~= "string" then fail("load: argument 1 (path): expected a string, got " .. describe(path)) end
  if given ~= nil and type(given) ~= "table" then
    fail("load: argument 2: expected a table of options, got " .. describe(given))
  end
  given = given or {}
  options.check("load", given, { "device", "mmap" })
  options.expect("load", "mmap", given.mmap, "boolean")
  local kind, names, list, texts = core.io_load(path, given.mmap == false)
  local tensors = {}
  for i, name in ipairs(names) do
    tensors[name] = given.device and list[i]:to(given.device) or list[i]
  end
  if kind == "npy" then return tensors[""], {} end
  local structure, metadata = texts[STRUCTURE], {}
  texts[STRUCTURE] = nil
  local value = structure and restore(path, structure, tensors)
  local flat = not structure and tensors
  local aliases = {}
  for key, text in next, texts do
    if key ~= "format" and tensors[text] and not tensors[key] then aliases[key] = text else metadata[key] = text end
  end
  if flat then
    for name, kept in next, aliases do flat[name] = flat[kept] end
  end
  return value or flat, metadata
end

return io
