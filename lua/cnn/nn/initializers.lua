-- SPDX-License-Identifier: MIT
-- cnn.nn.init: fills tensors in place, without gradients, and returns them. Names and formulas are
-- PyTorch's (torch.nn.init).
local core = require "cnn.core"

local init = {}

local function filled(t, fn)
  if not core.is_tensor(t) then error("init: expected a tensor", 3) end
  core.no_grad(fn)
  return t
end

function init.uniform_(t, a, b)
  return filled(t, function() t:uniform_(a or 0, b or 1) end)
end

function init.normal_(t, mean, std)
  return filled(t, function() t:normal_(mean or 0, std or 1) end)
end

function init.constant_(t, value)
  return filled(t, function() t:fill_(value) end)
end

function init.zeros_(t) return init.constant_(t, 0) end
function init.ones_(t) return init.constant_(t, 1) end

-- Normal, with values outside of [a, b] drawn again (by the inverse of the distribution function).
function init.trunc_normal_(t, mean, std, a, b)
  mean, std, a, b = mean or 0, std or 1, a or -2, b or 2
  return filled(t, function()
    local function cdf(x) -- of the standard normal, through the tensor's own erf
      return (1 + core._tensor(x / math.sqrt(2), "float64"):erf():item()) / 2
    end
    local low, high = cdf((a - mean) / std), cdf((b - mean) / std)
    t:uniform_(2 * low - 1, 2 * high - 1):erfinv_():mul_(std * math.sqrt(2)):add_(mean)
    t:clamp_(a, b)
  end)
end

-- fan_in, fan_out of a weight: (out, in, kernel ...).
function init.calculate_fans(t)
  if t:dim() < 2 then
    error(("init: fan in and fan out need a tensor with 2 dims or more, not %s"):format(tostring(t.shape)), 3)
  end
  local field = 1
  for d = 3, t:dim() do field = field * t:size(d) end
  return t:size(2) * field, t:size(1) * field
end

-- The scale that keeps variances through a nonlinearity.
function init.calculate_gain(nonlinearity, param)
  local gains = { linear = 1, conv1d = 1, conv2d = 1, conv3d = 1, sigmoid = 1, tanh = 5 / 3,
    relu = math.sqrt(2), selu = 3 / 4 }
  if nonlinearity == "leaky_relu" then return math.sqrt(2 / (1 + (param or 0.01) ^ 2)) end
  return gains[nonlinearity] or
    error(("calculate_gain: unknown nonlinearity %q"):format(tostring(nonlinearity)), 2)
end

function init.xavier_uniform_(t, gain)
  local fan_in, fan_out = init.calculate_fans(t)
  local a = (gain or 1) * math.sqrt(6 / (fan_in + fan_out))
  return init.uniform_(t, -a, a)
end

function init.xavier_normal_(t, gain)
  local fan_in, fan_out = init.calculate_fans(t)
  return init.normal_(t, 0, (gain or 1) * math.sqrt(2 / (fan_in + fan_out)))
end

local function kaiming(t, options)
  options = options or {}
  local fan_in, fan_out = init.calculate_fans(t)
  local fan = options.mode == "fan_out" and fan_out or fan_in
  if options.mode and options.mode ~= "fan_in" and options.mode ~= "fan_out" then
    error("kaiming: mode is \"fan_in\" or \"fan_out\"", 3)
  end
  return init.calculate_gain(options.nonlinearity or "leaky_relu", options.a or 0) / math.sqrt(fan)
end

-- options: a (slope of the leaky ReLU, 0), mode ("fan_in"), nonlinearity ("leaky_relu").
function init.kaiming_uniform_(t, options)
  local bound = math.sqrt(3) * kaiming(t, options)
  return init.uniform_(t, -bound, bound)
end

function init.kaiming_normal_(t, options)
  return init.normal_(t, 0, kaiming(t, options))
end

function init.eye_(t)
  if t:dim() ~= 2 then error("eye_: expected a matrix", 2) end
  return filled(t, function()
    t:zero_()
    for i = 1, math.min(t:size(1), t:size(2)) do t:set(i, i, 1) end
  end)
end

-- Rows (or columns, whichever are fewer) orthonormal: Gram-Schmidt, twice for accuracy, on a normal
-- matrix.
function init.orthogonal_(t, gain)
  if t:dim() < 2 then error("orthogonal_: expected a tensor with 2 dims or more", 2) end
  return filled(t, function()
    local rows = t:size(1)
    local cols = t:numel() / rows
    local wide = rows <= cols
    local n, m = math.min(rows, cols), math.max(rows, cols)
    local q = core.zeros({ n, m }, { dtype = "float64" })
    q:normal_(0, 1)
    for i = 1, n do
      local v = q[i]
      for _ = 1, 2 do
        if i > 1 then
          local before = q:narrow(1, 1, i - 1)
          v:sub_(before:t():mv(before:mv(v)))
        end
      end
      v:div_(v:norm())
    end
    local matrix = wide and q or q:t()
    t:copy_(matrix:mul(gain or 1):reshape(t.shape))
  end)
end

return init
