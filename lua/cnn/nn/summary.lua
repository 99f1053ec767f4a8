-- SPDX-License-Identifier: MIT
-- model:summary{input = {1, 4}}: a table of layers with output shapes, parameters, activation bytes and
-- multiply-adds. The model runs once on the meta device: no data is touched, no memory is taken.
local core = require "cnn.core"
local memory = require "cnn.memory"
local rehearsal = require "cnn.rehearsal"
local base = require "cnn.nn.module"

local function human_bytes(n) return memory.bytes_text(n, 1) end

local function human_count(n)
  if n >= 1e9 then return ("%.2f G"):format(n / 1e9) end
  if n >= 1e6 then return ("%.2f M"):format(n / 1e6) end
  if n >= 1e3 then return ("%.2f k"):format(n / 1e3) end
  return ("%d"):format(n)
end

-- The inputs that the options describe: a shape, a list of shapes, or tensors.
local function meta_inputs(options)
  local input = type(options) == "table" and options.input or nil
  if input == nil then error("summary: give the input's shape: model:summary{input = {1, 4}}", 3) end
  local function make(spec)
    if core.is_tensor(spec) then return core._to(spec:detach(), nil, "meta") end
    local dtype = spec.dtype or options.dtype or core.get_default_dtype()
    local shape = {}
    for i, size in ipairs(spec) do shape[i] = size end
    return core.empty(shape, { device = "meta", dtype = dtype })
  end
  if core.is_tensor(input) or type(input[1]) == "number" then return { make(input) } end
  local list = {}
  for i, spec in ipairs(input) do list[i] = make(spec) end
  return list
end

local function run(model, inputs, rows)
  local handles = {}
  local depth = 0
  local work_before = {}
  for path, module in model:named_modules() do
    local leaf = #core.module_children(module) == 0
    handles[#handles + 1] = module:register_forward_pre_hook(function()
      depth = depth + 1
      work_before[depth] = core.work_count()
    end)
    handles[#handles + 1] = module:register_forward_hook(function(_, _, ...)
      local out = ...
      local work = core.work_count() - work_before[depth]
      depth = depth - 1
      if not leaf or not core.is_tensor(out) then return end
      local own = 0
      local _, tensors, kinds = core.module_own(module)
      for i, kind in ipairs(kinds) do
        if kind == "parameter" and tensors[i] then own = own + tensors[i]:numel() end
      end
      rows[#rows + 1] = {
        path = path, name = base.class_name(module), shape = out.shape, parameters = own,
        bytes = out.nbytes, work = work,
      }
    end)
  end
  local ok, err = pcall(core.no_grad, model, (table.unpack or unpack)(inputs)) -- luacheck: ignore
  for _, h in ipairs(handles) do h:remove() end
  return ok, err
end

local Summary = {}
Summary.__index = Summary

function Summary:__tostring()
  local head = { "layer", "type", "output", "parameters", "activations", "multiply-adds" }
  local lines, width = { head }, {}
  for _, r in ipairs(self.rows) do
    lines[#lines + 1] = { r.path == "" and "-" or r.path, r.name, tostring(r.shape),
      base.count_text(r.parameters), human_bytes(r.bytes), human_count(r.work) }
  end
  for _, line in ipairs(lines) do
    for c, cell in ipairs(line) do width[c] = math.max(width[c] or 0, #cell) end
  end
  local out = {}
  for i, line in ipairs(lines) do
    local cells = {}
    for c, cell in ipairs(line) do
      cells[c] = c <= 3 and cell .. (" "):rep(width[c] - #cell) or (" "):rep(width[c] - #cell) .. cell
    end
    out[#out + 1] = (table.concat(cells, "  "):gsub("%s+$", ""))
    if i == 1 then out[#out + 1] = ("-"):rep(#table.concat(cells, "  ")) end
  end
  out[#out + 1] = ("-"):rep(#out[2])
  out[#out + 1] = ("parameters: %s (%s), trainable: %s"):format(base.count_text(self.parameters),
    human_bytes(self.parameter_bytes), base.count_text(self.trainable))
  out[#out + 1] = ("activations: %s, multiply-adds: %s"):format(human_bytes(self.activation_bytes),
    human_count(self.work))
  return table.concat(out, "\n")
end

-- options: input (a shape, a list of shapes, or tensors), dtype. The result prints as a table; its
-- fields are rows (path, name, shape, parameters, bytes, work), parameters, trainable,
-- parameter_bytes, activation_bytes, work.
return function(model, options)
  local inputs = meta_inputs(options or {})
  local rows, plan = {}, { model = model, mode = "infer" }
  rehearsal.on_twins(plan, rehearsal.meta_twin(plan), function()
    local ok, err = run(model, inputs, rows)
    if not ok then error(err, 0) end
  end)
  local summary = setmetatable({ rows = rows, parameters = 0, trainable = 0, parameter_bytes = 0,
    activation_bytes = 0, work = 0 }, Summary)
  for _, p in ipairs(model:parameters()) do
    summary.parameters = summary.parameters + p:numel()
    summary.parameter_bytes = summary.parameter_bytes + p.nbytes
    if p.requires_grad then summary.trainable = summary.trainable + p:numel() end
  end
  for _, r in ipairs(rows) do
    summary.activation_bytes = summary.activation_bytes + r.bytes
    summary.work = summary.work + r.work
  end
  return summary
end
