-- SPDX-License-Identifier: MIT
-- cnn.cuda.kernel: CUDA kernels of one's own, compiled when the script runs. The source says what
-- arguments a kernel takes, and each call is held against that. On the simulator what the kernel does
-- wrong comes back as an error with the lines of the source.
local core = require "cnn.core"
local options = require "cnn.options"

local native = core.cuda
local fail, describe, is_tensor = core.fail, core.describe, core.is_tensor

-- ---------------------------------------------------------------------------------------------
-- Parameters, as the source declares them

-- By the type's name: the letter by which the core passes a number, and the least and largest one.
local NUMBERS = { float = { "f" }, double = { "d" }, bool = { "i", 0, 1 } }
for _, name in ipairs { "char", "signed char", "int8_t" } do NUMBERS[name] = { "i", -128, 127 } end
for _, name in ipairs { "unsigned char", "uint8_t" } do NUMBERS[name] = { "i", 0, 255 } end
for _, name in ipairs { "short", "int16_t" } do NUMBERS[name] = { "i", -2 ^ 15, 2 ^ 15 - 1 } end
for _, name in ipairs { "unsigned short", "uint16_t" } do NUMBERS[name] = { "i", 0, 2 ^ 16 - 1 } end
for _, name in ipairs { "int", "int32_t" } do NUMBERS[name] = { "i", -2 ^ 31, 2 ^ 31 - 1 } end
for _, name in ipairs { "unsigned", "unsigned int", "uint32_t" } do NUMBERS[name] = { "i", 0, 2 ^ 32 - 1 } end
for _, name in ipairs { "long", "long long", "int64_t" } do NUMBERS[name] = { "l", -2 ^ 63, 2 ^ 63 } end
for _, name in ipairs { "unsigned long", "unsigned long long", "uint64_t", "size_t" } do
  NUMBERS[name] = { "l", 0, 2 ^ 63 }
end

-- The dtypes that a pointer may point to, by what the source calls its elements. Others are not checked.
local POINTEES = {
  float = "float32", double = "float64", half = "float16", __half = "float16", __nv_bfloat16 = "bfloat16",
  bool = "bool", char = "int8", ["signed char"] = "int8", int8_t = "int8", short = "int16", int16_t = "int16",
  ["unsigned char"] = "uint8", uint8_t = "uint8", int = "int32", int32_t = "int32", unsigned = "int32",
  ["unsigned int"] = "int32", uint32_t = "int32", long = "int64", ["long long"] = "int64", int64_t = "int64",
  ["unsigned long long"] = "int64", ["unsigned long"] = "int64", uint64_t = "int64", size_t = "int64",
}

-- One parameter: `letter` is p for a pointer to what is only read, P to what is written.
local function parameter_of(kernel, i, text)
  text = text:gsub("%s*=.*$", "")
  local p = { text = text, name = text:match "([%w_]+)%s*[%[%]%d%s]*$" or "x" }
  local pointee = text:match "^(.-)%s*[%*%[]"
  if pointee then
    local const = (" " .. pointee .. " "):find "[^%w_]const[^%w_]"
    local kind = pointee:gsub("%f[%w_]const%f[^%w_]", ""):gsub("^%s+", ""):gsub("%s+$", "")
    if not text:find("*", 1, true) then kind = kind:gsub("%s+[%w_]+$", "") end -- float x[]
    p.letter, p.dtype = const and "p" or "P", POINTEES[kind]
    return p
  end
  local kind = text:gsub("^const%s+", ""):gsub("%s+[%w_]+$", ""):gsub("%s+", " ")
  local number = NUMBERS[kind]
  if not number then
    fail(("cuda.kernel: %s: parameter %d is \"%s\": use pointers, float, double, int or long long"):format(
      kernel, i, text))
  end
  p.letter, p.least, p.most = number[1], number[2], number[3]
  return p
end

-- Of the kernel in the source, which may be a template: then `name` is one of its kernels ("sum<float>").
local function parameters_of(source, name)
  local plain = source:gsub("//[^\n]*", " "):gsub("/%*.-%*/", " "):gsub("__launch_bounds__%s*%b()", " ")
  local base, list = name:match "^%s*([%w_]+)", nil
  for at in plain:gmatch "()__global__" do
    local found, parameters = plain:sub(at):match "^__global__[^({;]-([%w_]+)%s*(%b())"
    if found == base then list = parameters:sub(2, -2):gsub("%s+", " ") end
  end
  if not list then
    fail(("cuda.kernel: the source has no kernel \"%s\" (__global__ void %s(...))"):format(name, base or name))
  end
  local all = {}
  for text in (list .. ","):gmatch " ?(.-) ?," do
    if text ~= "" and text ~= "void" then all[#all + 1] = parameter_of(name, #all + 1, text) end
  end
  return all
end

-- ---------------------------------------------------------------------------------------------
-- A call

local programs = setmetatable({}, { __mode = "k" })

local function argument_fails(this, i, message, ...)
  fail(("%s: argument %d (%s)%s"):format(this.name, i, this.parameters[i].text, message:format(...)))
end

local function check_tensor(this, i, p, x)
  if not is_tensor(x) then argument_fails(this, i, ": expected a tensor, got %s", describe(x)) end
  if x.device ~= this.device then
    argument_fails(this, i, " is on %s, the kernel on %s: move it, %s:to(\"%s\")", x.device, this.device, p.name,
      this.device)
  end
  if p.dtype and x.dtype ~= p.dtype and not (p.dtype == "uint8" and x.dtype == "bool") then
    argument_fails(this, i, " is %s: convert it, %s:to(\"%s\")", x.dtype, p.name, p.dtype)
  end
  if not x:is_contiguous() then argument_fails(this, i, " is not contiguous: use %s:contiguous()", p.name) end
end

local function check_number(this, i, p, v)
  if type(v) ~= "number" then argument_fails(this, i, ": expected a number, got %s", describe(v)) end
  if not p.least then return end
  if not (v >= p.least and v <= p.most) or v % 1 ~= 0 then
    argument_fails(this, i, ": expected an integer of that type, got %s", describe(v))
  end
end

local function check_arguments(this, ...)
  local n = select("#", ...)
  if n ~= #this.parameters then
    fail(("%s: it takes %d arguments, got %d"):format(this.name, #this.parameters, n))
  end
  for i, p in ipairs(this.parameters) do
    local check = (p.letter == "p" or p.letter == "P") and check_tensor or check_number
    check(this, i, p, (select(i, ...)))
  end
end

local function three(this, what, v)
  if type(v) == "number" then return v, 1, 1 end
  if type(v) == "table" and #v <= 3 then return v[1] or 1, v[2] or 1, v[3] or 1 end
  return fail(("%s: %s must be a number or a list of up to three, got %s"):format(this.name, what, describe(v)))
end

-- The message, and below it the lines of the source that it names.
local function with_lines(message, source)
  local lines, shown, list = {}, {}, { message }
  for line in (source .. "\n"):gmatch "(.-)\n" do lines[#lines + 1] = line end
  for number in message:gmatch "kernel%.cu:(%d+)" do
    local line = lines[tonumber(number)]
    if line and not shown[number] then
      list[#list + 1] = ("  kernel.cu:%s: %s"):format(number, line:match "^%s*(.*)$")
      shown[number] = true
    end
  end
  return table.concat(list, "\n")
end

local function launch(program, this, where, ...)
  local gx, gy, gz = three(this, "grid", where.grid)
  local bx, by, bz = three(this, "block", where.block)
  return native.launch(program, this.name, this.letters, gx, gy, gz, bx, by, bz, where.shared or 0, ...)
end

function native.program_metatable.__call(program, where, ...)
  local this = programs[program]
  if type(where) ~= "table" then
    fail(("%s: argument 1: expected {grid =, block =, shared =}, got %s"):format(this.name, describe(where)))
  end
  options.check(this.name, where, { "grid", "block", "shared" })
  check_arguments(this, ...)
  local ok, message = pcall(launch, program, this, where, ...)
  if not ok then error(with_lines(message, this.source), 0) end
end

function native.program_metatable.__tostring(program)
  return ("cnn.cuda.kernel(%s)"):format(programs[program].name)
end

-- kernel(source, name, device, options): compiles.
return function(source, name, device, compiler_options)
  for i, text in ipairs { source or false, name or false } do
    if type(text) ~= "string" then
      fail(("cuda.kernel: argument %d: expected a string, got %s"):format(i, describe(text or nil)))
    end
  end
  local this = { name = name, source = source, device = device, parameters = parameters_of(source, name) }
  local letters = {}
  for i, p in ipairs(this.parameters) do letters[i] = p.letter end
  this.letters = table.concat(letters)
  local program = native.new_program(device, source, name, compiler_options)
  programs[program] = this
  return program
end
