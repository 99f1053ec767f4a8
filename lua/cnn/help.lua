-- SPDX-License-Identifier: MIT
-- cnn.help and cnn.ops: what the registry knows about its ops, and a line for everything else.
local core = require "cnn.core"
local options = require "cnn.options"

local fail = core.fail

local help = {}

-- What is no op: signature and purpose, in the overview's order.
local FUNCTIONS = {
  { "Making tensors" },
  { "tensor", "(values, {dtype, device, requires_grad})", "a tensor of nested lists, a number, or a copy of a tensor" },
  { "is_tensor", "(value)", "whether a value is a tensor" },
  { "manual_seed", "(n)", "starts the random generator anew" },
  { "get_rng_state", "()", "the generator's state, for set_rng_state" },
  { "set_rng_state", "(state)", "puts the generator where it was" },
  { "set_default_dtype", "(dtype)", "the float dtype that numbers become" },
  { "set_default_device", "(device)", "where new tensors are made" },
  { "Gradients" },
  { "grad", "(outputs, inputs, {grad_outputs, retain_graph, create_graph, allow_unused})",
    "gradients of outputs by inputs" },
  { "no_grad", "(fn, ...)", "calls fn(...) without recording" },
  { "enable_grad", "(fn, ...)", "calls fn(...) with recording on" },
  { "inference_mode", "(fn, ...)", "no_grad whose results may never enter a graph" },
  { "set_grad_enabled", "(on)", "turns recording on or off" },
  { "is_grad_enabled", "()", "whether ops are recorded" },
  { "Function", "{forward, backward, name}", "an operation with its gradient, written in Lua" },
  { "checkpoint", "(fn, ...)", "calls fn(...) and keeps no activations: backward runs it again" },
  { "checkpoint_sequential", "(model, segments, x)", "a Sequential under checkpoints, in segments" },
  { "gradcheck", "(fn, inputs, {eps, atol, rtol, second})", "gradients against difference quotients" },
  { "detect_anomaly", "(fn, ...)", "finds the op whose gradient is NaN, and the line of its forward" },
  { "Memory" },
  { "scope", "(fn, ...)", "calls fn(...), then frees every tensor made inside but those returned" },
  { "keep", "(...)", "takes tensors out of the scope they were made in" },
  { "save_on_cpu", "(fn, {file}, ...)", "calls fn(...); what the graph saves waits on the CPU, or in a file" },
  { "memory_allocated", "(dev)", "bytes in use" },
  { "max_memory_allocated", "(dev)", "the most bytes that were in use" },
  { "reset_peak_memory_stats", "(dev)", "peaks count from now" },
  { "memory_reserved", "(dev)", "bytes taken from the device, cache included" },
  { "memory_stats", "(dev)", "all counters" },
  { "memory_summary", "(dev)", "all counters, as a text to read" },
  { "estimate", "(model, {input, mode, loss, optimizer, target, checkpoint, steps, dtype, device, threads})",
    "the peak that a model will have, by what it is for, before it runs" },
  { "max_batch", "(model, limit, {input, ...})", "the largest batch that fits into limit bytes, and its estimate" },
  { "measure_memory", "(model, {batches, input, ...})", "the peaks of real runs, and the line through them" },
  { "bytes_per_parameter", "(optimizer, precision)", "what training holds for each parameter, as a table" },
  { "live", "{group, device}", "what lives, the largest first, and what holds it; prints as a table" },
  { "leaks", "(fn, ...)", "what fn(...) left behind, with the lines that made it" },
  { "record_memory", "(on, {max_events})", "writes down who allocates and frees" },
  { "memory_snapshot", "{device, file}", "segments, blocks and events; as a page to look at" },
  { "mem_get_info", "(dev)", "free and total bytes of the device" },
  { "empty_cache", "(dev)", "gives cached blocks back to the device; the bytes given back" },
  { "set_memory_limit", "(bytes, dev)", "caps a device; without bytes: the default again" },
  { "set_memory_fraction", "(fraction, dev)", "caps a device at a share of its memory" },
  { "pool", "{limit, device, name}", "a pool of its own on a device: pool:stats(), pool:limit(bytes)" },
  { "with_pool", "(pool, fn, ...)", "calls fn(...); what is allocated inside comes from the pool" },
  { "memory_debug", "(on)", "new memory is NaN, and writes out of a tensor's bytes are found" },
  { "gc", "{paced, minimum, budget}", "how the collector is paced; gives settings and counts" },
  { "synchronize", "(dev)", "waits for the device" },
  { "GPUs" },
  { "cuda.is_available", "()", "whether a GPU can be used; if not, also why" },
  { "cuda.simulate", "()", "GPUs are computed on the CPU from now on: to learn, and to find faults" },
  { "cuda.device_count", "()", "how many there are" },
  { "cuda.get_device_properties", "(dev)", "name, memory, processors ... of one" },
  { "cuda.set_device", "(dev)", "which one \"cuda\" means" },
  { "cuda.set_sync", "(on)", "waits for every op, so that errors name the line that made them" },
  { "cuda.Stream", "{device, priority}", "work that goes on beside other work: cnn.cuda.stream(s, fn)" },
  { "cuda.kernel", "(source, name, {device, options})", "a CUDA kernel of your own: k({grid =, block =}, x, y, n)" },
  { "count_launches", "(fn, ...)", "what fn launched and moved on GPUs: kernels, read, written, syncs, by_op ..." },
  { "Data and files" },
  { "save", "(path, value, {metadata})", "tables of tensors, numbers, strings, booleans to a file" },
  { "load", "(path, {device, mmap})", "what save wrote, or another program; then the file's metadata" },
  { "data.DataLoader", "(ds, {batch_size, shuffle, drop_last, num_workers, seed, collate})",
    "batches: for i, x, y in loader:iter() do" },
  { "data.TensorDataset", "(x, y, ...)", "sample i is x[i], y[i], ..." },
  { "data.Dataset", ":extend(name)", "a class of data sets of your own, with methods init, size and get(i)" },
  { "data.Subset", "(ds, indices)", "the samples at these positions" },
  { "data.random_split", "(ds, parts, {seed})", "a list of subsets, by sizes or shares" },
  { "data.normalize", "(x, {mean, std, scale})", "(x * scale - mean) / std, of a tensor or batch by batch" },
  { "data.fashion_mnist", "{train, root}", "images (N, 1, 28, 28) and labels 1..10; also data.mnist" },
  { "data.cifar10", "{train, root}", "images (N, 3, 32, 32) and labels 1..10" },
  { "data.read_idx", "(path)", "the tensor in an IDX file, packed by gzip or not" },
  { "data.read_bytes", "(path)", "a file's bytes as a uint8 tensor" },
  { "The rest" },
  { "set_num_threads", "(n)", "threads for large work; 0: as many as there are cores" },
  { "set_printoptions", "{precision, threshold, edgeitems, linewidth, profile, sci_mode}", "how tensors print" },
  { "help", "(name)", "this; of one name: all about it" },
  { "ops", "{internal = false}", "a list of all ops with their arguments and docs" },
}

help.functions = FUNCTIONS -- for the annotations that editors read

local by_name -- the public ones

local function load_ops()
  if by_name then return by_name end
  by_name = {}
  for _, op in ipairs(core.ops()) do
    if not op.internal then by_name[op.name] = op end
  end
  return by_name
end

-- The ops: a list of {name, doc, spec, params, results, in_place, view ...}, sorted by name. Ops that
-- scripts can't call are listed with {internal = true}.
function help.ops(...)
  local o = options.read("ops", { "internal" }, ...)
  local list = {}
  for _, op in ipairs(core.ops()) do
    if o.internal or not op.internal then list[#list + 1] = op end
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

-- ---------------------------------------------------------------------------------------------
-- One op

-- A default as scripts write it.
function help.value_text(v)
  if type(v) == "string" then return ("%q"):format(v) end
  if v == math.huge then return "math.huge" end
  if v == -math.huge then return "-math.huge" end
  if type(v) == "number" then return ("%.14g"):format(v) end
  return tostring(v)
end

local function is_option(param)
  return param.optional or param.default ~= nil
end

-- "conv2d(x, weight, {bias, stride = 1})", of the arguments from number `first` on.
function help.signature(op, name, first)
  local positions, named = {}, {}
  for i = first, #op.params do
    local p = op.params[i]
    local text = p.name .. (p.variadic and " ..." or "")
    if not is_option(p) and #named == 0 then
      positions[#positions + 1] = text
    else
      named[#named + 1] = text .. (p.default ~= nil and " = " .. help.value_text(p.default) or "")
    end
  end
  if #named > 0 then positions[#positions + 1] = "{" .. table.concat(named, ", ") .. "}" end
  return name .. "(" .. table.concat(positions, ", ") .. ")"
end

-- What an argument may be: "a tensor", or the words that it may be.
function help.type_text(param)
  if not param.words then return param.type end
  local words = {}
  for i, w in ipairs(param.words) do words[i] = ("%q"):format(w) end
  return table.concat(words, ", ")
end

local function param_text(param)
  local text = help.type_text(param)
  if param.changed then text = text .. "; changed in place" end
  if param.default ~= nil then return text .. " (default " .. help.value_text(param.default) .. ")" end
  return text .. (param.optional and " (optional)" or "")
end

local WIDTH = 88

local function add_wrapped(lines, text)
  local line = ""
  for word in text:gmatch("%S+") do
    if #line + #word + 1 > WIDTH then
      lines[#lines + 1] = " " .. line
      line = ""
    end
    line = line .. " " .. word
  end
  lines[#lines + 1] = " " .. line
end

-- The lines of signatures, then doc, arguments and results.
local function described(op, lines)
  lines[#lines + 1] = ""
  for line in ((op.doc or "") .. "\n"):gmatch("(.-)\n") do add_wrapped(lines, line) end
  lines[#lines + 1] = ""
  local width = 0
  for _, p in ipairs(op.params) do width = math.max(width, #p.name) end
  for _, p in ipairs(op.params) do
    lines[#lines + 1] = ("  %-" .. width .. "s  %s"):format(p.name, param_text(p))
  end
  if op.results ~= "out" then
    lines[#lines + 1] = ("  gives %s"):format(op.results:gsub(" ", ", "))
  elseif op.list then
    lines[#lines + 1] = "  gives a list of tensors"
  end
  if op.view then lines[#lines + 1] = "  The result is a view: it shares the tensor's bytes." end
  return (table.concat(lines, "\n"):gsub("[ ]+\n", "\n"):gsub("%s+$", ""))
end

-- The ways to call an op: as a function, as a method, in place.
function help.forms(op)
  local forms = { "cnn." .. help.signature(op, op.name, 1) }
  if op.method then
    forms[2] = help.signature(op, op.params[1].name .. ":" .. op.name, 2)
    if op.in_place then forms[3] = help.signature(op, op.params[1].name .. ":" .. op.name .. "_", 2) end
  end
  return forms
end

local function op_text(op)
  local lines = help.forms(op)
  if lines[3] then lines[3] = lines[3] .. "    in place" end
  return described(op, lines)
end

-- One layer: its constructor.
local function layer_text(layer)
  local described_as = { params = layer.params, doc = layer.doc, results = "out" }
  return described(described_as, { "nn." .. help.signature(layer, layer.name, 1) })
end

local function function_text(entry)
  return ("cnn.%s%s\n\n  %s"):format(entry[1], entry[2], entry[3])
end

-- ---------------------------------------------------------------------------------------------
-- The overview

local function columns(names, width)
  local widest = 0
  for _, name in ipairs(names) do widest = math.max(widest, #name) end
  local per_line = math.max(1, math.floor(width / (widest + 2)))
  local lines = {}
  for i = 1, #names, per_line do
    local cells = {}
    for k = i, math.min(i + per_line - 1, #names) do cells[#cells + 1] = ("%-" .. widest .. "s"):format(names[k]) end
    lines[#lines + 1] = "  " .. table.concat(cells, "  "):gsub("%s+$", "")
  end
  return table.concat(lines, "\n")
end

local function overview()
  local lines = {
    "cnn " .. require("cnn").version .. ": deep learning for Lua. cnn.help(\"conv2d\") tells all about one name.",
    "",
    "Positions count from 1, dims too; -1 is the last. Options go by position or in one table at the end:",
    "x:sum(2, true) is x:sum{dim = 2, keepdim = true} is cnn.sum(x, {dim = 2, keepdim = true}).",
  }
  for _, entry in ipairs(FUNCTIONS) do
    if #entry == 1 then
      lines[#lines + 1] = "\n" .. entry[1]
    else
      lines[#lines + 1] = ("  %-24s %s"):format(entry[1], entry[3])
    end
  end
  local names = {}
  for _, op in ipairs(help.ops()) do names[#names + 1] = op.name end
  lines[#lines + 1] = "\nOps: cnn.name(x, ...), and x:name(...); elementwise ones in place as x:name_(...)"
  lines[#lines + 1] = columns(names, 100)
  names = {}
  for _, layer in ipairs(core.layer_specs()) do names[#names + 1] = layer.name end
  table.sort(names)
  lines[#lines + 1] = "\nLayers: cnn.nn.Name(...); cnn.help(\"nn.Linear\")"
  lines[#lines + 1] = columns(names, 100)
  return table.concat(lines, "\n")
end

-- ---------------------------------------------------------------------------------------------
-- cnn.help

local function name_of(value)
  for name, op in pairs(core.functions) do
    if op == value then return name end
  end
  for name, f in pairs(require("cnn")) do
    if f == value then return name end
  end
end

local function unknown(name)
  local names = {}
  for op_name in pairs(load_ops()) do names[#names + 1] = op_name end
  for _, entry in ipairs(FUNCTIONS) do
    if #entry > 1 then names[#names + 1] = entry[1] end
  end
  for _, layer in ipairs(core.layer_specs()) do names[#names + 1] = "nn." .. layer.name end
  table.sort(names)
  local near, holding = core.nearest(name, names), {}
  for _, other in ipairs(names) do
    if #name > 2 and other:find(name, 1, true) and #holding < 8 then holding[#holding + 1] = other end
  end
  local hint = ""
  if #holding > 0 then
    hint = "; there are " .. table.concat(holding, ", ")
  elseif near then
    hint = (": did you mean \"%s\"?"):format(near)
  end
  return fail(("help: nothing is called \"%s\"%s"):format(name, hint))
end

-- The text that help prints, for a name, a function, or nothing: an overview.
function help.text(what)
  if what == nil then return overview() end
  local name = type(what) == "string" and what:gsub("^cnn%.", ""):gsub("^F%.", ""):gsub("^x:", "") or name_of(what)
  if not name then fail("help: expected a name, such as \"conv2d\", or a function of cnn's") end
  local op = load_ops()[name] or load_ops()[(name:gsub("_$", ""))]
  if op then return op_text(op) end
  for _, layer in ipairs(core.layer_specs()) do
    if "nn." .. layer.name == name or layer.name == name then return layer_text(layer) end
  end
  for _, entry in ipairs(FUNCTIONS) do
    if entry[1] == name and #entry > 1 then return function_text(entry) end
  end
  return unknown(name)
end

-- Prints signature, purpose, arguments and defaults of an op or function; without a name an overview.
function help.help(what)
  print(help.text(what))
end

return help
