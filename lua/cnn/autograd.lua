-- SPDX-License-Identifier: MIT
-- Gradients for scripts: cnn.grad, cnn.Function, and what a tensor's grad_fn shows.
local core = require "cnn.core"
local options = require "cnn.options"

local fail, describe, is_tensor = core.fail, core.describe, core.is_tensor
local unpack = table.unpack or unpack

local autograd = {}

-- Flags of a backward pass (csrc/engine/backward.h).
autograd.RETAIN, autograd.CREATE, autograd.STOP = 1, 2, 4

-- ---------------------------------------------------------------------------------------------
-- cnn.grad

local GRAD_OPTIONS = { "grad_outputs", "retain_graph", "create_graph", "allow_unused" }

-- cnn.grad(outputs, inputs, {grad_outputs =, retain_graph =, create_graph =, allow_unused =}): the
-- gradients of the outputs' sum (weighted by grad_outputs) by the inputs; .grad stays as it is. A tensor
-- for `inputs` gives a tensor, a list a list.
function autograd.grad(outputs, inputs, ...)
  local o = options.read("grad", GRAD_OPTIONS, ...)
  for i = 2, #GRAD_OPTIONS do options.expect("grad", GRAD_OPTIONS[i], o[GRAD_OPTIONS[i]], "boolean") end
  local flags = o.create_graph and autograd.RETAIN + autograd.CREATE or o.retain_graph and autograd.RETAIN or 0
  local grads = core._grad(outputs, inputs, o.grad_outputs, flags, o.allow_unused)
  if is_tensor(inputs) then return grads[1] end
  return grads
end

-- ---------------------------------------------------------------------------------------------
-- Nodes of the graph

local node_metatable = core.node_metatable

local fields = {}
function fields.name(node) return core.node_info(node).name end
function fields.sequence(node) return core.node_info(node).sequence end
function fields.released(node) return core.node_info(node).released end
function fields.origin(node) return core.node_info(node).origin end
-- What the node keeps for backward: a list of {shape, dtype, bytes, is_input}.
function fields.saved(node) return core.node_info(node).saved end

-- Stands for the place where a leaf's gradient is added to its .grad.
local Leaf = { name = "AccumulateGrad" }
Leaf.__index = Leaf
function Leaf.__tostring() return "<AccumulateGrad>" end
function Leaf.__eq(a, b) return a.variable == b.variable end
function Leaf.next_functions() return {} end

local methods = {}
-- The nodes of the inputs that want a gradient, in order. A leaf's is named "AccumulateGrad" and has the
-- leaf as `variable`.
function methods.next_functions(node)
  local list = core.node_next(node)
  for i, v in ipairs(list) do
    if is_tensor(v) then list[i] = setmetatable({ variable = v }, Leaf) end
  end
  return list
end

function node_metatable.__index(node, key)
  if methods[key] then return methods[key] end
  if fields[key] then return fields[key](node) end
end

function node_metatable.__tostring(node)
  return "<" .. fields.name(node) .. ">"
end

-- ---------------------------------------------------------------------------------------------
-- cnn.Function: an operation with a gradient, written in Lua

local Context = {}
Context.__index = Context
Context.__name = "cnn.FunctionContext"

-- What forward keeps for backward: tensors, or nil. The last call counts.
function Context:save_for_backward(...)
  self._saved = { n = select("#", ...), ... }
  for i = 1, self._saved.n do
    local t = self._saved[i]
    if t ~= nil and not is_tensor(t) then
      fail(("%s: save_for_backward: argument %d: expected a tensor or nil, got %s; other values go into fields: "
        .. "ctx.name = value"):format(self._name, i, describe(t)))
    end
  end
end

-- Outputs that have no gradient. (Integer and bool outputs never have one.)
function Context:mark_non_differentiable(...)
  self._not_differentiable = { ... }
end

-- Whether argument i of forward wants a gradient.
function Context:needs_grad(i)
  return self._needs[i] or false
end

-- false: gradients that did not come arrive as nil instead of zeros.
function Context:set_materialize_grads(on)
  self._as_they_are = not on
end

-- The saved tensors, in order; in backward only. With create_graph they are part of the graph.
function Context:saved()
  local values, n = {}, self._n_saved or 0
  for i = 1, n do values[i] = core.saved(i) end
  return unpack(values, 1, n)
end

local function find(list, value)
  for i = 1, list.n or #list do
    if list[i] == value then return i end
  end
end

-- What the node keeps of what forward saved, and the inputs and outputs that these tensors are.
local function what_to_keep(ctx, inputs, outputs)
  local saved, ties = ctx._saved or { n = 0 }, {}
  for i = 1, saved.n do
    local t = saved[i]
    if t then
      local input, output = find(inputs, t), find(outputs, t)
      ties[i] = output or input and -input
    end
  end
  ctx._saved, ctx._not_differentiable, ctx._n_saved = nil, nil, saved.n
  -- Tensors in fields outlive the scope that they were made in.
  for _, value in pairs(ctx) do
    if is_tensor(value) then core.keep(value) end
  end
  return saved, ties
end

local function zeros(form)
  return core.full(form.shape, 0, { dtype = form.dtype, device = form.device })
end

-- What the tape calls with the gradients of the differentiable outputs. `where[k]` is the number of the
-- input on the tape that argument k of forward is.
local function backward_of(f, ctx, forms, slots, n_out, where, n_args, n_inputs)
  local function give(...)
    local n, result = select("#", ...), {}
    if n > n_args then
      for i = n_args + 1, n do
        if (select(i, ...)) ~= nil then
          fail(("%s: backward returned %d gradients for %d arguments of forward"):format(ctx._name, n, n_args))
        end
      end
    end
    for i = 1, math.min(n, n_args) do
      local gradient = (select(i, ...))
      if gradient ~= nil and not is_tensor(gradient) then
        fail(("%s: backward: gradient %d: expected a tensor or nil, got %s"):format(ctx._name, i, describe(gradient)))
      elseif gradient ~= nil and not where[i] then
        fail(("%s: backward gave a gradient for argument %d, which is no tensor: return nil there"):format(
          ctx._name, i))
      elseif gradient ~= nil then
        result[where[i]] = gradient
      end
    end
    return unpack(result, 1, n_inputs)
  end
  return function(...)
    local gradients = {}
    for i = 1, n_out do
      local slot = slots[i]
      local gradient = slot and (select(slot, ...))
      if gradient == nil and forms[i] and not ctx._as_they_are then gradient = zeros(forms[i]) end
      gradients[i] = gradient
    end
    return give(f.backward(ctx, unpack(gradients, 1, n_out)))
  end
end

local function no_lists(name, what, value)
  if type(value) ~= "table" or getmetatable(value) then return end
  for _, v in ipairs(value) do
    if is_tensor(v) then
      fail(("%s: tensors in a table have no gradient here: %s"):format(name, what))
    end
  end
end

-- Records a finished forward: gives its results with a history.
local function record(f, ctx, arguments, results)
  local name, inputs, where = ctx._name, { n = 0 }, {}
  for i = 1, arguments.n do
    if is_tensor(arguments[i]) then
      inputs.n = inputs.n + 1
      inputs[inputs.n], where[i] = arguments[i], inputs.n
    end
  end
  local forms, slots, originals, outputs = {}, {}, { n = 0 }, {}
  for i = 1, results.n do
    local y = results[i]
    no_lists(name, "return them as several values", y)
    if is_tensor(y) then
      forms[i] = { shape = y.shape, dtype = y.dtype, device = y.device }
      -- Always a handle of its own: forward may return an input, a parameter, or what it saves.
      local handle = y:detach()
      results[i] = handle
      if y:is_floating_point() and not find(ctx._not_differentiable or {}, y) then
        local slot = #outputs + 1
        outputs[slot], slots[i] = handle, slot
        originals.n = slot
        originals[slot] = y
      end
    end
  end
  if #outputs == 0 then return end
  if not f.backward then
    fail(("%s: it has no backward, but an input requires a gradient: detach() the input, or call it in "
      .. "cnn.no_grad"):format(name))
  end
  local saved, ties = what_to_keep(ctx, inputs, originals)
  local backward = backward_of(f, ctx, forms, slots, results.n, where, arguments.n, inputs.n)
  inputs.n = nil
  core.attach { title = name, backward = backward, inputs = inputs, outputs = outputs, saved = saved, ties = ties }
end

local function pack(...)
  return { n = select("#", ...), ... }
end

local Function = {}
Function.__index = Function
Function.__name = "cnn.Function"

function Function:__call(...)
  local arguments, needs = pack(...), {}
  local ctx = setmetatable({ _name = self.name, _needs = needs }, Context)
  local wants = core.wants_record(...)
  for i = 1, arguments.n do
    local x = arguments[i]
    needs[i] = is_tensor(x) and x.requires_grad or nil
    if wants then no_lists(self.name, "pass them as arguments of their own", x) end
  end
  local results = pack(core.no_grad(self.forward, ctx, ...))
  if wants then record(self, ctx, arguments, results) end
  return unpack(results, 1, results.n)
end

function Function:__tostring()
  return ("cnn.Function(%s)"):format(self.name)
end

-- cnn.Function{forward = function(ctx, ...), backward = function(ctx, ...), name =}: a callable.
--
-- forward computes, without recording, and may keep tensors by ctx:save_for_backward and anything else
-- in fields of ctx. backward gets one gradient per result of forward (zeros where none came, nil for what
-- is no tensor) and returns one per argument (nil for none).
function autograd.Function(definition)
  if type(definition) ~= "table" then
    fail("Function: expected a table {forward = ..., backward = ...}, got " .. describe(definition))
  end
  options.check("Function", definition, { "forward", "backward", "name" })
  options.expect_callable("Function", "forward", definition.forward)
  if definition.backward ~= nil then options.expect_callable("Function", "backward", definition.backward) end
  options.expect("Function", "name", definition.name, "string")
  return setmetatable({
    forward = definition.forward, backward = definition.backward, name = definition.name or "Function",
  }, Function)
end

return autograd
