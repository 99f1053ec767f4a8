-- SPDX-License-Identifier: MIT
-- Networks whose predicted and measured memory the specs compare: each with the shape of one sample, and
-- what makes it.
local cnn = require "cnn"
local nn, F = cnn.nn, cnn.F

local models = {}

models.mlp = {
  input = { 48 }, new = function()
    return nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 96), nn.Tanh(), nn.Dropout(0.2),
      nn.Linear(96, 10))
  end,
}

models.lenet = {
  input = { 1, 28, 28 }, new = function()
    return nn.Sequential(
      nn.Conv2d(1, 6, 5, { padding = 2 }), nn.Tanh(), nn.AvgPool2d(2),
      nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(),
      nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))
  end,
}

-- ResNet-18 for small pictures, an eighth as wide: all 18 layers.
local Basic = nn.Module:extend("Basic")

function Basic:init(channels, out, stride)
  self.conv1 = nn.Conv2d(channels, out, 3, { stride = stride, padding = 1, bias = false })
  self.bn1 = nn.BatchNorm2d(out)
  self.conv2 = nn.Conv2d(out, out, 3, { padding = 1, bias = false })
  self.bn2 = nn.BatchNorm2d(out)
  if stride ~= 1 or channels ~= out then
    self.short = nn.Sequential(nn.Conv2d(channels, out, 1, { stride = stride, bias = false }), nn.BatchNorm2d(out))
  end
end

function Basic:forward(x)
  local y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
  return F.relu(y + (self.short and self.short(x) or x))
end

models.resnet18 = {
  input = { 3, 32, 32 }, new = function()
    local layers = { nn.Conv2d(3, 8, 3, { padding = 1, bias = false }), nn.BatchNorm2d(8), nn.ReLU() }
    local channels = 8
    for stage, out in ipairs { 8, 16, 32, 64 } do
      for block = 1, 2 do
        layers[#layers + 1] = Basic(channels, out, stage > 1 and block == 1 and 2 or 1)
        channels = out
      end
    end
    for _, last in ipairs { nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10) } do
      layers[#layers + 1] = last
    end
    return nn.Sequential(layers)
  end,
}

local Residual = nn.Module:extend("Residual")

function Residual:init(width)
  self.norm = nn.LayerNorm(width)
  self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
end

function Residual:forward(x)
  return x + self.down(F.gelu(self.up(self.norm(x))))
end

models.residual = {
  input = { 64 }, new = function()
    local layers = {}
    for i = 1, 6 do layers[i] = Residual(64) end
    layers[7] = nn.Linear(64, 10)
    return nn.Sequential(layers)
  end,
}

return models
