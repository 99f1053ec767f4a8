-- SPDX-License-Identifier: MIT
-- cnn.nn.utils.
local core = require "cnn.core"

local utils = {}

local function list(parameters)
  return core.is_tensor(parameters) and { parameters } or parameters
end

-- Scales all gradients so that their norm, as one vector, is at most max_norm; returns the norm
-- before, a number. options: norm_type (2; math.huge for the largest element), error_if_nonfinite.
function utils.clip_grad_norm_(parameters, max_norm, options)
  local p, strict = 2, false
  if type(options) == "table" then
    p, strict = options.norm_type or 2, options.error_if_nonfinite or false
  elseif options ~= nil then p = options end
  return core.clip_grad_norm(list(parameters), max_norm, p, strict)
end

-- Clamps every element of every gradient to [-clip_value, clip_value].
function utils.clip_grad_value_(parameters, clip_value)
  core.clip_grad_value(list(parameters), clip_value)
end

-- All parameters as one vector, and back.
function utils.parameters_to_vector(parameters)
  local parts = {}
  for i, p in ipairs(parameters) do parts[i] = p:reshape(-1) end
  return core.cat(parts, 1)
end

function utils.vector_to_parameters(vector, parameters)
  local total = 0
  for _, p in ipairs(parameters) do total = total + p:numel() end
  if vector:dim() ~= 1 or vector:numel() ~= total then
    error(("vector_to_parameters: the vector has shape %s, the parameters %d elements"):format(
      tostring(vector.shape), total), 2)
  end
  core.no_grad(function()
    local at = 1
    for _, p in ipairs(parameters) do
      p:copy_(vector:narrow(1, at, p:numel()):reshape(p.shape))
      at = at + p:numel()
    end
  end)
end

return utils
