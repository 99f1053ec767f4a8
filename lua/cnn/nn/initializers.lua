-- SPDX-License-Identifier: MIT
-- cnn.nn.init: fills tensors in place, without gradients, and returns them. Names and formulas are
-- PyTorch's (torch.nn.init).
local core = require "cnn.core"
local options = require "cnn.options"

local init = {}

local fail, describe = core.fail, core.describe

local function check(name, t)
  local what = describe(t)
  if not core.is_tensor(t) or what == "a freed tensor" then
    fail(("%s: argument 1: expected a tensor, got %s"):format(name, what))
  end
end

local function number(name, argument, value, default)
  if value == nil then return default end
  if type(value) ~= "number" then
    fail(("%s: %s: expected a number, got %s"):format(name, argument, describe(value)))
  end
  return value
end

local function filled(name, t, fn)
  check(name, t)
  core.no_grad(fn)
  return t
end

function init.uniform_(t, a, b)
  return filled("uniform_", t, function() t:uniform_(a or 0, b or 1) end)
end

function init.normal_(t, mean, std)
  return filled("normal_", t, function() t:normal_(mean or 0, std or 1) end)
end

function init.constant_(t, value)
  return filled("constant_", t, function() t:fill_(value) end)
end

function init.zeros_(t) return init.constant_(t, 0) end
function init.ones_(t) return init.constant_(t, 1) end

-- Normal, with values outside of [a, b] drawn again (by the inverse of the distribution function).
function init.trunc_normal_(t, mean, std, a, b)
  local name = "trunc_normal_"
  mean, std = number(name, "mean", mean, 0), number(name, "std", std, 1)
  a, b = number(name, "a", a, -2), number(name, "b", b, 2)
  return filled(name, t, function()
    local function cdf(x) -- of the standard normal, through the tensor's own erf
      return (1 + core._tensor(x / math.sqrt(2), "float64"):erf():item()) / 2
    end
    local low, high = cdf((a - mean) / std), cdf((b - mean) / std)
    t:uniform_(2 * low - 1, 2 * high - 1):erfinv_():mul_(std * math.sqrt(2)):add_(mean)
    t:clamp_(a, b)
  end)
end

local function fans(name, t)
  check(name, t)
  if t:dim() < 2 then
    fail(("%s: fan in and fan out need a tensor with 2 dims or more, not %s"):format(name, tostring(t.shape)))
  end
  local field = 1
  for d = 3, t:dim() do field = field * t:size(d) end
  return t:size(2) * field, t:size(1) * field
end

-- fan_in, fan_out of a weight: (out, in, kernel ...).
function init.calculate_fans(t)
  return fans("calculate_fans", t)
end

-- The scale that keeps variances through a nonlinearity.
function init.calculate_gain(nonlinearity, param)
  local gains = { linear = 1, conv1d = 1, conv2d = 1, conv3d = 1, sigmoid = 1, tanh = 5 / 3,
    relu = math.sqrt(2), selu = 3 / 4 }
  if nonlinearity == "leaky_relu" then return math.sqrt(2 / (1 + (param or 0.01) ^ 2)) end
  return gains[nonlinearity] or
    fail(("calculate_gain: unknown nonlinearity %q"):format(tostring(nonlinearity)))
end

function init.xavier_uniform_(t, gain)
  local fan_in, fan_out = fans("xavier_uniform_", t)
  local a = number("xavier_uniform_", "gain", gain, 1) * math.sqrt(6 / (fan_in + fan_out))
  return init.uniform_(t, -a, a)
end

function init.xavier_normal_(t, gain)
  local fan_in, fan_out = fans("xavier_normal_", t)
  return init.normal_(t, 0, number("xavier_normal_", "gain", gain, 1) * math.sqrt(2 / (fan_in + fan_out)))
end

local function kaiming(name, t, ...)
  local given = options.read(name, { "a", "mode", "nonlinearity" }, ...)
  local mode, fan_in, fan_out = given.mode or "fan_in", fans(name, t)
  if mode ~= "fan_in" and mode ~= "fan_out" then
    fail(("%s: mode: expected \"fan_in\" or \"fan_out\", got %s"):format(name, describe(mode)))
  end
  local gain = init.calculate_gain(given.nonlinearity or "leaky_relu", number(name, "a", given.a, 0))
  return gain / math.sqrt(mode == "fan_in" and fan_in or fan_out)
end

-- options: a (slope of the leaky ReLU, 0), mode ("fan_in"), nonlinearity ("leaky_relu").
function init.kaiming_uniform_(t, ...)
  local bound = math.sqrt(3) * kaiming("kaiming_uniform_", t, ...)
  return init.uniform_(t, -bound, bound)
end

function init.kaiming_normal_(t, ...)
  return init.normal_(t, 0, kaiming("kaiming_normal_", t, ...))
end

function init.eye_(t)
  check("eye_", t)
  if t:dim() ~= 2 then fail(("eye_: expected a matrix, got shape %s"):format(tostring(t.shape))) end
  return filled("eye_", t, function()
    t:zero_()
    for i = 1, math.min(t:size(1), t:size(2)) do t:set(i, i, 1) end
  end)
end

-- Rows (or columns, whichever are fewer) orthonormal: Gram-Schmidt, twice for accuracy, on a normal
-- matrix.
function init.orthogonal_(t, gain)
  check("orthogonal_", t)
  gain = number("orthogonal_", "gain", gain, 1)
  if t:dim() < 2 then
    fail(("orthogonal_: expected a tensor with 2 dims or more, got shape %s"):format(tostring(t.shape)))
  end
  return filled("orthogonal_", t, function()
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
    t:copy_(matrix:mul(gain):reshape(t.shape))
  end)
end

return init
