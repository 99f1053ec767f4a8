-- SPDX-License-Identifier: MIT
-- The autograd graph of a tensor as a picture: its nodes, what each saves for backward, and the leaves
-- that gradients go to.
--
-- Layers by the longest way from the root, leaves at the top; edges over several layers run through
-- invisible nodes; within a layer nodes are ordered by the mean position of their neighbours (Sugiyama,
-- Tagawa, Toda: "Methods for visual understanding of hierarchical system structures", 1981).
local core = require "cnn.core"
local options = require "cnn.options"
local svg = require "cnn.viz.svg"
local bytes_text = require("cnn.memory").bytes_text

local unpack = table.unpack or unpack

local fail, describe, is_tensor = core.fail, core.describe, core.is_tensor

local Graph = {}
Graph.__index = Graph
Graph.__name = "cnn.viz.Graph"

-- ---------------------------------------------------------------------------------------------
-- Reading the graph

local function saved_text(node)
  local n = #node.saved
  if node.released then return "released" end
  if n == 0 then return "saves nothing" end
  return ("saves %d tensor%s, %s"):format(n, n == 1 and "" or "s", bytes_text(node.bytes))
end

-- Pairs of leaf and name: from a module, or a table of tensors by name.
local function leaf_names(given)
  local names = {}
  if given == nil then return names end
  if core.is_module and core.is_module(given) then
    for name, p in given:named_parameters() do names[#names + 1] = { p, name } end
  elseif type(given) == "table" then
    for name, t in pairs(given) do
      if is_tensor(t) then names[#names + 1] = { t, tostring(name) } end
    end
  else
    fail("viz.graph: names: expected a module or a table of tensors by name, got " .. describe(given))
  end
  return names
end

local function add_node(graph, label, lines, kind)
  local node = { id = #graph.nodes + 1, label = label, lines = lines, kind = kind, to = {}, saved = {}, bytes = 0 }
  graph.nodes[node.id] = node
  return node
end

local function add_leaf(graph, known, names, leaf)
  local node = known[leaf]
  if node then return node end
  local label = leaf.is_parameter and "parameter" or "leaf"
  for _, pair in ipairs(names) do
    if pair[1] == leaf then label = pair[2] end
  end
  node = add_node(graph, label, { ("%s %s"):format(leaf.dtype, tostring(leaf.shape)), bytes_text(leaf.nbytes) }, "leaf")
  known[leaf], node.variable, node.shape = node, leaf, leaf.shape
  return node
end

local function add_operation(graph, known, info)
  local node = add_node(graph, info.name, {}, "operation")
  known[info.sequence] = node
  node.sequence, node.saved, node.released, node.origin = info.sequence, info.saved, info.released, info.origin
  for _, s in ipairs(info.saved) do
    node.bytes = node.bytes + s.bytes
    graph.storages[s.storage] = math.max(graph.storages[s.storage] or 0, s.bytes)
  end
  node.lines[1] = saved_text(node)
  return node
end

local function read(graph, root, names)
  local known, stack = {}, {}
  local function node_of(fn)
    local info = core.node_info(fn)
    local node = known[info.sequence]
    if not node then
      node = add_operation(graph, known, info)
      stack[#stack + 1] = { node, fn }
    end
    return node
  end
  local out = add_node(graph, "result", { ("%s %s"):format(root.dtype, tostring(root.shape)) }, "root")
  out.to[1] = root.grad_fn and node_of(root.grad_fn) or add_leaf(graph, known, names, root)
  while #stack > 0 do
    local entry = table.remove(stack)
    local node, fn = entry[1], entry[2]
    for _, input in ipairs(core.node_next(fn)) do
      node.to[#node.to + 1] = is_tensor(input) and add_leaf(graph, known, names, input) or node_of(input)
    end
  end
end

-- ---------------------------------------------------------------------------------------------
-- Layout

-- The longest way from the root to each node. Nodes are visited when all that lead to them were.
local function set_layers(nodes)
  local waiting = {}
  for _, node in ipairs(nodes) do
    for _, to in ipairs(node.to) do waiting[to] = (waiting[to] or 0) + 1 end
  end
  local ready, deepest = { nodes[1] }, 0
  nodes[1].layer = 0
  while #ready > 0 do
    local node = table.remove(ready)
    deepest = math.max(deepest, node.layer)
    for _, to in ipairs(node.to) do
      to.layer = math.max(to.layer or 0, node.layer + 1)
      waiting[to] = waiting[to] - 1
      if waiting[to] == 0 then ready[#ready + 1] = to end
    end
  end
  return deepest
end

local GAP, LAYER_GAP, MARGIN, LONG = 18, 34, 16, 20

-- Layers as lists of places; edges as chains of places, one per layer they touch.
local function make_places(nodes, deepest)
  local layers, chains = {}, {}
  for i = 0, deepest do layers[i] = {} end
  local function place(layer, node, width)
    local p = { node = node, width = width, up = {}, down = {} }
    layers[layer][#layers[layer] + 1] = p
    return p
  end
  local of = {}
  for _, node in ipairs(nodes) do
    local width = #node.label * 8 -- bold
    for _, line in ipairs(node.lines) do width = math.max(width, #line * 6.6) end
    node.width, node.height = width + 16, 20 + 15 * #node.lines
    of[node] = place(node.layer, node, node.width)
  end
  for _, node in ipairs(nodes) do
    for _, to in ipairs(node.to) do
      local chain = { of[node] }
      -- Long edges cross what is on their way: there are too many such places in a long graph.
      for layer = to.layer - node.layer > LONG and to.layer or node.layer + 1, to.layer do
        local next_place = layer == to.layer and of[to] or place(layer, nil, 8)
        local last = chain[#chain]
        last.up[#last.up + 1] = next_place
        next_place.down[#next_place.down + 1] = last
        chain[#chain + 1] = next_place
      end
      chains[#chains + 1] = chain
    end
  end
  return layers, chains
end


local function number_layer(layer)
  for i, place in ipairs(layer) do place.position = i end
end

local function order_layer(layer, side)
  for i, place in ipairs(layer) do
    local sum, neighbours = 0, place[side]
    for _, other in ipairs(neighbours) do sum = sum + other.position end
    place.mean = #neighbours > 0 and sum / #neighbours or place.position
    place.before = i
  end
  table.sort(layer, function(a, b)
    if a.mean ~= b.mean then return a.mean < b.mean end
    return a.before < b.before
  end)
  number_layer(layer)
end

-- Each place as near to its neighbours' middle as the order allows.
local function move_layer(layer, side)
  for _, place in ipairs(layer) do
    local sum, neighbours = 0, place[side]
    for _, other in ipairs(neighbours) do sum = sum + other.x end
    if #neighbours > 0 then place.x = sum / #neighbours end
  end
  for i = 2, #layer do
    local left, right = layer[i - 1], layer[i]
    right.x = math.max(right.x, left.x + (left.width + right.width) / 2 + GAP)
  end
end

local function lay_out(nodes)
  local deepest = set_layers(nodes)
  local layers, chains = make_places(nodes, deepest)
  for i = 0, deepest do number_layer(layers[i]) end
  for _ = 1, 8 do
    for i = 1, deepest do order_layer(layers[i], "down") end
    for i = deepest - 1, 0, -1 do order_layer(layers[i], "up") end
  end
  for i = 0, deepest do
    local x = 0
    for _, place in ipairs(layers[i]) do
      place.x = x + place.width / 2
      x = x + place.width + GAP
    end
  end
  for _ = 1, 4 do
    for i = deepest - 1, 0, -1 do move_layer(layers[i], "up") end
    for i = 1, deepest do move_layer(layers[i], "down") end
  end
  local left, right, y = math.huge, 0, MARGIN
  for i = deepest, 0, -1 do
    local height = 20
    for _, place in ipairs(layers[i]) do
      if place.node then height = math.max(height, place.node.height) end
      left, right = math.min(left, place.x - place.width / 2), math.max(right, place.x + place.width / 2)
    end
    for _, place in ipairs(layers[i]) do
      place.top, place.bottom = y, y + (place.node and place.node.height or height)
    end
    y = y + height + LAYER_GAP
  end
  for i = 0, deepest do
    for _, place in ipairs(layers[i]) do place.x = place.x - left + MARGIN end
  end
  return layers, chains, right - left + 2 * MARGIN, y - LAYER_GAP + MARGIN
end

-- ---------------------------------------------------------------------------------------------
-- Text

local FILL = { root = "#fff3c4", leaf = "#cfe8ff", operation = "#eeeeee" }

-- The graph in the language of Graphviz. Edges go the way of the data: from inputs to results.
function Graph:dot()
  local lines = { "digraph autograd {", "  node [shape = box, style = filled, fontname = \"sans-serif\"];" }
  local function quoted(text) return "\"" .. text:gsub("[\\\"]", "\\%0") .. "\"" end
  for _, node in ipairs(self.nodes) do
    local text = table.concat({ node.label, unpack(node.lines) }, "\n")
    local label = quoted(text):gsub("\n", "\\n")
    lines[#lines + 1] = ("  n%d [label = %s, fillcolor = \"%s\"];"):format(node.id, label, FILL[node.kind])
  end
  for _, node in ipairs(self.nodes) do
    for _, to in ipairs(node.to) do lines[#lines + 1] = ("  n%d -> n%d;"):format(to.id, node.id) end
  end
  lines[#lines + 1] = "}\n"
  return table.concat(lines, "\n")
end

local function edge_path(chain)
  local parts, n = {}, svg.number
  for i = #chain, 2, -1 do
    local from, to = chain[i], chain[i - 1]
    local middle = (from.bottom + to.top) / 2
    if i == #chain then parts[1] = ("M%s %s"):format(n(from.x), n(from.bottom)) end
    parts[#parts + 1] = ("C%s %s %s %s %s %s"):format(n(from.x), n(middle), n(to.x), n(middle), n(to.x), n(to.top))
    if i > 2 then parts[#parts + 1] = ("L%s %s"):format(n(to.x), n(to.bottom)) end
  end
  return table.concat(parts, " ")
end

-- The graph as a self-contained SVG.
function Graph:svg()
  local layers, chains, width, height = lay_out(self.nodes)
  local elements = {
    "<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
      .. "orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#666\"/></marker></defs>",
  }
  for _, chain in ipairs(chains) do
    elements[#elements + 1] = svg.element("path", {
      d = edge_path(chain), fill = "none", stroke = "#666", marker_end = "url(#arrow)",
    })
  end
  for i = 0, #layers do
    for _, place in ipairs(layers[i]) do
      local node = place.node
      if node then
        elements[#elements + 1] = svg.element("rect", {
          x = place.x - node.width / 2, y = place.top, width = node.width, height = node.height, rx = 4,
          fill = FILL[node.kind], stroke = "#444",
        })
        elements[#elements + 1] = svg.text(place.x, place.top + 15, node.label,
          { text_anchor = "middle", font_weight = "bold" })
        for k, line in ipairs(node.lines) do
          elements[#elements + 1] = svg.text(place.x, place.top + 15 + 15 * k, line,
            { text_anchor = "middle", font_size = 11, fill = "#333" })
        end
      end
    end
  end
  return svg.document(width, height, elements)
end

-- Writes the picture: as DOT when the path ends in .dot or .gv, else as SVG.
function Graph:save(path)
  local text = (path:find("%.dot$") or path:find("%.gv$")) and self:dot() or self:svg()
  svg.write("viz.graph: save", path, text)
  return self
end

function Graph:__tostring()
  return ("graph of %d nodes that save %s for backward"):format(#self.nodes, bytes_text(self.bytes))
end

local graph = {}

-- viz.graph(x, {names = model}): the graph behind x. It has `nodes` (label, kind, saved, bytes, to: the nodes
-- of the inputs), `bytes` (saved in all, shared bytes once), dot(), svg() and save(path). `names` is a module, or
-- a table of tensors by name.
function graph.graph(x, ...)
  if not is_tensor(x) then fail("viz.graph: argument 1: expected a tensor, got " .. describe(x)) end
  if not x.requires_grad then
    fail("viz.graph: the tensor has no graph: nothing it was made from requires a gradient")
  end
  local o = options.read("viz.graph", { "names" }, ...)
  local self = setmetatable({ nodes = {}, storages = {}, bytes = 0 }, Graph)
  read(self, x, leaf_names(o.names))
  for _, size in pairs(self.storages) do self.bytes = self.bytes + size end
  self.storages = nil
  return self
end

return graph
