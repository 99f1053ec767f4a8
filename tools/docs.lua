-- SPDX-License-Identifier: MIT
-- Writes what is generated from the registry: docs/ops.md, every op by families; docs/layers.md, every
-- layer of cnn.nn; lua/cnn/types.lua, what editors want to know. It takes a built tree (CNN_OUT names
-- another build than build/release):
--
--   luajit tools/docs.lua            writes the files; so does `make docs`
--   luajit tools/docs.lua --check    fails where a file is not what would be written
--
-- What an op is, the registry tells. Only the family it belongs to is read from csrc/ops/ops.def, whose
-- comments `// file.c` begin one. A family that GROUPS doesn't name gets a section of its own.
local root = (arg[0]:match("^(.*)/tools/[^/]*$") or arg[0]:find("/", 1, true) and "." or "..") .. "/"
do
  local out = os.getenv "CNN_OUT" or "build/release"
  if out:sub(1, 1) ~= "/" then out = root .. out end
  package.path = ("%slua/?.lua;%slua/?/init.lua;"):format(root, root) .. package.path
  package.cpath = ("%s/lua/%s/?.so;"):format(out, _VERSION:match "%d.%d") .. package.cpath
end
local core = require "cnn.core"
local help = require "cnn.help"

local WIDTH = 120

-- Sections in their order: title, what unites the ops in it, the families (files of csrc/ops).
local GROUPS = {
  { "Making tensors", "What is left out, the `_like` ones take from `x`, but for `requires_grad`.", { "create" } },
  { "Random numbers", "They follow from `cnn.manual_seed(n)`, whatever the number of threads.", { "random" } },
  { "Copies", "`x:to(...)`, `x:cpu()`, `x:float()` and the like convert; these copy.", { "copy" } },
  { "Elementwise functions", "Each element of the result comes from one element of `x`.", { "unary" } },
  { "Arithmetic and comparisons",
    "Tensors of different shapes broadcast: sizes are compared from the last dim on, and a dim of size 1, "
      .. "or a missing one, fits any size. Numbers go wherever tensors go. `x + y`, `x - y`, `x * y`, `x / y`, "
      .. "`x % y`, `x ^ y` and `-x` are `add`, `sub`, `mul`, `div`, `remainder`, `pow` and `neg`.", { "binary" } },
  { "Activations", "What stands between layers. Most are modules of `cnn.nn` too.", { "activation", "softmax" } },
  { "Sums, means and extremes",
    "Without `dim` they reduce all elements to a tensor with 0 dims; `keepdim` keeps reduced dims with size 1.",
    { "reduce", "extreme" } },
  { "Running along a dim", "The result has the shape of `x`, or nearly.", { "scan" } },
  { "Sorting", "Positions count from 1.", { "sort" } },
  { "Matrix products", "`*` is elementwise: `x:matmul(y)` is the product of matrices.", { "matmul", "einsum" } },
  { "Linear algebra", "Of matrices in the last two dims.", { "linalg" } },
  { "Convolutions", "Channels come before the spatial dims, as in PyTorch.", { "conv" } },
  { "Pooling", "One number for each window, channel by channel.", { "pooling" } },
  { "Normalisation", "Mean 0 and variance 1, over different sets of elements.", { "norm", "batch_norm" } },
  { "Losses", "One number that training makes small. Labels count from 1.", { "loss", "cross_entropy" } },
  { "Shapes and views",
    "A view shares the bytes of its tensor: it costs nothing, and a change in one is seen in the other.",
    { "shape", "split" } },
  { "Joining and rearranging", "These copy.", { "join", "rearrange", "pad" } },
  { "Indexing",
    "`x[2]`, `x[{ {1, 2}, {} }]`, `x[index]` and `x[mask]` do most of it; these do the rest. Positions count from 1.",
    { "index", "gather", "mask", "embedding" } },
  { "Optimizers", "", { "optim" } },
}

-- Rows that stand elsewhere than their file says.
local FAMILY_OF = { relu = "activation", gelu = "activation", clamp_scalar = "unary" }

-- ---------------------------------------------------------------------------------------------
-- Which family an op is of

local function read(path)
  local file = io.open(root .. path, "rb")
  if not file then return nil end
  local text = file:read("*a")
  file:close()
  return text
end

local function stop(message)
  io.stderr:write("docs.lua: ", message, "\n")
  os.exit(1)
end

-- The families of all ops in the registry's order, which is that of ops.def.
local function families()
  local list, family = {}, nil
  local function add(id) list[#list + 1] = FAMILY_OF[id] or family end
  local text = assert(read "csrc/ops/ops.def", "csrc/ops/ops.def is missing")
  local also = {} -- which ops a row of a .def makes besides the one of its name, by the row's word
  for line in text:gsub("\\\n", " "):gmatch("[^\n]+") do
    local word, body = line:match("^#define (%u+)%(name, %.%.%.%)(.*)$")
    local included = line:match('^#include "ops/([%w_]+)%.def"')
    if word then
      also[word] = {}
      for suffix in body:gmatch("CNN_OP%(name([%w_#]*)") do
        table.insert(also[word], (suffix:gsub("#", "")))
      end
    elseif line:match("^#undef") then
      also[line:match("%u+$") or ""] = nil
    elseif included then
      family = included
      for row in assert(read("csrc/ops/" .. included .. ".def")):gmatch("[^\n]+") do
        local kind, name = row:match("^(%u+)%(([%w_]+),")
        if row:match("^// Activations") then family = "activation" end
        if kind == "PREDICATE" then family = included end
        for _, suffix in ipairs(also[kind] or {}) do add(name .. suffix) end
      end
    else
      family = line:match("^// ([%w_]+)%.c") or family
      local id = line:match("^CNN_OP%(([%w_]+),")
      if id then add(id) end
    end
  end
  return list
end

-- A list of {title, text, ops}, the ops sorted by name.
local function sections()
  local of, list, by_family = families(), {}, {}
  for _, group in ipairs(GROUPS) do
    local section = { title = group[1], text = group[2], ops = {} }
    list[#list + 1] = section
    for _, family in ipairs(group[3]) do by_family[family] = section end
  end
  local ops = core.ops()
  if #ops ~= #of then
    stop(("the module has %d ops, csrc/ops/ops.def %d: build it first (make)"):format(#ops, #of))
  end
  for i, op in ipairs(ops) do
    local section = by_family[of[i]]
    if not section then
      section = { title = of[i]:sub(1, 1):upper() .. of[i]:sub(2):gsub("_", " "), text = "", ops = {} }
      by_family[of[i]], list[#list + 1] = section, section
    end
    if not op.internal then table.insert(section.ops, op) end
  end
  local filled = {}
  for _, section in ipairs(list) do
    table.sort(section.ops, function(a, b) return a.name < b.name end)
    if #section.ops > 0 then filled[#filled + 1] = section end
  end
  return filled
end

-- ---------------------------------------------------------------------------------------------
-- Markdown

-- Text as it stands: what Markdown would read as its own is marked, but for code in backticks.
local function plain(text)
  local parts, is_code = {}, false
  for part, tick in (text .. "`"):gmatch("([^`]*)(`)") do
    if not is_code then
      part = part:gsub("([^%s])%*", "%1\\*"):gsub("%*([^%s])", "\\*%1"):gsub("\\\\", "\\")
      part = part:gsub("<(%a)", "\\<%1"):gsub("%f[%w_]_", "\\_"):gsub("_%f[^%w_]", "\\_"):gsub("%](%()", "]\\%1")
    end
    parts[#parts + 1] = part .. tick
    is_code = not is_code
  end
  return (table.concat(parts):gsub("`$", ""))
end

local function add(lines, format, ...)
  lines[#lines + 1] = select("#", ...) > 0 and format:format(...) or format
end

-- Wraps text; the lines after the first begin with `indent`.
local function add_wrapped(lines, text, indent)
  local line, words = nil, 0
  for word in text:gmatch("%S+") do
    if line and #line + #word + 1 > WIDTH then
      lines[#lines + 1] = line
      line, words = indent or "", 0
    end
    line = (line or "") .. (words > 0 and " " or "") .. word
    words = words + 1
  end
  if line then lines[#lines + 1] = line end
end

-- The arguments, those of one kind that follow each other in one line.
local function add_params(lines, params)
  local texts, names = {}, {}
  for _, p in ipairs(params) do
    local text, name = p.words and "one of " .. help.type_text(p) or help.type_text(p), "`" .. p.name .. "`"
    if p.variadic then text = text .. ", or its entries as arguments of their own" end
    if p.changed then text = text .. ", changed in place" end
    if p.default ~= nil then
      name = ("`%s = %s`"):format(p.name, help.value_text(p.default))
    elseif p.optional then
      text = text .. " (may be left out)"
    end
    if texts[#texts] == text then
      names[#names] = names[#names] .. ", " .. name
    else
      texts[#texts + 1], names[#names + 1] = text, name
    end
  end
  for i, text in ipairs(texts) do add_wrapped(lines, ("- %s: %s"):format(names[i], text), "  ") end
  if #texts > 0 then add(lines, "") end
end

local function add_doc(lines, doc)
  for paragraph in doc:gmatch("[^\n]+") do
    add_wrapped(lines, plain(paragraph))
    add(lines, "")
  end
end

local HAS_GRADIENT = {}
for _, name in ipairs { "a tensor", "a tensor or a number", "a list of tensors", "a dim or a tensor" } do
  HAS_GRADIENT[name] = true
end

-- What else is to know of an op, in a line.
local function remarks(op)
  local list, tensors = {}, 0
  for _, p in ipairs(op.params) do
    if HAS_GRADIENT[p.type] then tensors = tensors + (p.type == "a list of tensors" and 2 or 1) end
  end
  if op.results ~= "out" then
    list[1] = "gives " .. op.results:gsub("(%S+)", "`%1`"):gsub(" ", ", ")
  elseif op.list then
    list[1] = "gives a list of tensors"
  end
  if tensors > 0 then
    list[#list + 1] = op.no_grad and "no gradient" or (op.backward or op.composite) and "differentiable"
      or "not differentiable"
  end
  if op.view then list[#list + 1] = "a view" end
  if op.promote == "float" then list[#list + 1] = "integers become floats" end
  if op.promote == "same" and tensors > 1 then list[#list + 1] = "one dtype for all tensors" end
  if op.random then list[#list + 1] = "draws random numbers" end
  if op.composite then list[#list + 1] = "made of other ops" end
  return table.concat(list, " · ")
end

local HEAD = [[
<!-- Written by tools/docs.lua from the registry of ops. `make docs` writes it anew. -->

# Operations

Everything that computes with tensors. `cnn.help("sum")` prints the same about one op in a session;
[layers.md](layers.md) lists the layers of `cnn.nn`, which are built on these.

```lua
local cnn = require "cnn"
local x = cnn.tensor({{1, -2, 3}, {-4, 5, 6}})

print(cnn.sum(x, 2))                    -- a function: the sum over dim 2, tensor([2., 7.])
print(x:sum(2, true))                   -- or a method; options by position,
print(x:sum{dim = 2, keepdim = true})   -- or by name, in one table at the end
x:relu_()                               -- in place: the name ends with _
```

How to read an entry:

- **Signatures.** What stands in braces is optional and goes by position or by name, as above; `= value` is the
  default. `shape ...` is a list, or its entries one after the other: `cnn.zeros({2, 3})`, `cnn.zeros(2, 3)`.
- **Positions** count from 1: dims, indices, labels. -1 is the last.
- **A dtype** is a name: `"float32"` (the default), `"float64"`, `"float16"`, `"bfloat16"`, `"int64"`, `"int32"`,
  `"int16"`, `"int8"`, `"uint8"`, `"bool"`. **A device** too: `"cpu"`, `"meta"` (shapes without data). Left out, they
  are the defaults' or the arguments'.
- *differentiable*: gradients flow through it. *no gradient*: its result never wants one (positions, truth values).
  *not differentiable*: it raises when an argument wants a gradient.
- *a view*: the result shares the bytes of `x`. *made of other ops*: it has no code of its own for the device.
- *integers become floats*: of the default float dtype. *one dtype for all tensors*: others are an error. Elsewhere,
  arguments of different dtypes meet in the wider one.
- In shapes, N is a batch, C and K are channels, L, H, W, D spatial sizes; a quote (H') marks the result's.
]]

-- GitHub's anchor of a heading.
local function anchors()
  local seen = {}
  return function(title)
    local anchor = title:lower():gsub("[^%w%- _]", ""):gsub(" ", "-")
    seen[anchor] = (seen[anchor] or -1) + 1
    return seen[anchor] > 0 and anchor .. "-" .. seen[anchor] or anchor
  end
end

-- Headings get their anchors in the order in which they stand.
local function add_index(lines, list, entries_of)
  local anchor_of = anchors()
  for _, title in ipairs { "Operations", "Index" } do anchor_of(title) end
  add(lines, "## Index\n")
  add(lines, "| | |\n|---|---|")
  for _, section in ipairs(list) do
    local links, head = {}, ("[%s](#%s)"):format(section.title, anchor_of(section.title))
    for _, entry in ipairs(entries_of(section)) do
      links[#links + 1] = ("[%s](#%s)"):format(entry.name:gsub("_$", "\\_"), anchor_of(entry.name))
    end
    add(lines, "| %s | %s |", head, table.concat(links, ", "))
  end
  add(lines, "")
end

local function ops_page()
  local lines, list = { HEAD }, sections()
  add_index(lines, list, function(section) return section.ops end)
  for _, section in ipairs(list) do
    add(lines, "## " .. section.title .. "\n")
    if section.text ~= "" then
      add_wrapped(lines, section.text)
      add(lines, "")
    end
    for _, op in ipairs(section.ops) do
      add(lines, "### %s\n", (op.name:gsub("_$", "\\_")))
      add(lines, "```lua")
      for _, form in ipairs(help.forms(op)) do add(lines, form) end
      add(lines, "```\n")
      add_doc(lines, op.doc)
      -- A lone tensor needs no list.
      if #op.params > 1 or op.params[1] and op.params[1].type ~= "a tensor" then add_params(lines, op.params) end
      local text = remarks(op)
      if text ~= "" then add(lines, "*%s*\n", text) end
    end
  end
  return lines
end

-- ---------------------------------------------------------------------------------------------
-- Layers

local LAYERS_HEAD = [[
<!-- Written by tools/docs.lua from the registry of layers. `make docs` writes it anew. -->

# Layers

The modules of `cnn.nn`. A layer is made once, holds its parameters, and is called with tensors. What it computes is
said by its op in [ops.md](ops.md). `cnn.help("nn.Linear")` prints the same about one layer in a session.

```lua
local cnn = require "cnn"
local nn = cnn.nn

local model = nn.Sequential(
  nn.Linear(4, 8, {bias = false}),   -- options go by position or in one table at the end
  nn.ReLU(),
  nn.Linear(8, 2))
print(model(cnn.randn(3, 4)).shape)  -- (3, 2)
```
]]

local function layers_page()
  local lines, list = { LAYERS_HEAD }, core.layer_specs()
  local links, anchor_of = {}, anchors()
  table.sort(list, function(a, b) return a.name < b.name end)
  anchor_of("Layers")
  for _, layer in ipairs(list) do links[#links + 1] = ("[%s](#%s)"):format(layer.name, anchor_of(layer.name)) end
  add_wrapped(lines, table.concat(links, ", "))
  add(lines, "")
  for _, layer in ipairs(list) do
    add(lines, "### %s\n", layer.name)
    add(lines, "```lua\nnn.%s\n```\n", help.signature(layer, layer.name, 1))
    add_doc(lines, layer.doc)
    add_params(lines, layer.params)
    if layer.op then add(lines, "*computes by [%s](ops.md#%s)*\n", layer.op, layer.op) end
  end
  return lines
end

-- ---------------------------------------------------------------------------------------------

local PAGES = {
  { "docs/ops.md", ops_page }, { "docs/layers.md", layers_page },
  { "lua/cnn/types.lua", dofile(root .. "tools/types.lua") },
}

local stale = {}
for _, page in ipairs(PAGES) do
  local path = page[1]
  local text = table.concat(page[2](), "\n"):gsub("%s*$", "") .. "\n"
  if arg[1] == "--check" then
    if read(path) ~= text then stale[#stale + 1] = path end
  else
    local file = assert(io.open(root .. path, "wb"))
    assert(file:write(text))
    file:close()
  end
end
if #stale > 0 then
  stop(table.concat(stale, ", ") .. " is not what the registry says: `make docs` writes it anew")
end
