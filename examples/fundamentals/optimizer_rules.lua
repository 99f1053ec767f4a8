-- What optimizers do to one parameter, written out, beside the library's.
--   luajit examples/fundamentals/optimizer_rules.lua [--device cpu]
local cnn = require "cnn"
local nn, optim = cnn.nn, cnn.optim
local device = arg[1] == "--device" and arg[2] or "cpu"

-- Each rule: the new parameter from p, gradient g, step t and the state s.
local rules = {
  { "SGD", { lr = 0.1 }, function(p, g) return p - 0.1 * g end },
  { "SGD", { lr = 0.1, momentum = 0.9 }, function(p, g, t, s)
    s.v = t == 1 and g or 0.9 * s.v + g
    return p - 0.1 * s.v
  end },
  { "RMSprop", { lr = 0.01, alpha = 0.99 }, function(p, g, _, s)
    s.a = 0.99 * (s.a or 0) + 0.01 * g ^ 2
    return p - 0.01 * g / (math.sqrt(s.a) + 1e-8)
  end },
  { "Adam", { lr = 0.05 }, function(p, g, t, s)
    s.m = 0.9 * (s.m or 0) + 0.1 * g
    s.v = 0.999 * (s.v or 0) + 0.001 * g ^ 2
    local m, v = s.m / (1 - 0.9 ^ t), s.v / (1 - 0.999 ^ t)
    return p - 0.05 * m / (math.sqrt(v) + 1e-8)
  end },
  { "AdamW", { lr = 0.05, weight_decay = 0.1 }, function(p, g, t, s)
    p = p - 0.05 * 0.1 * p -- the decay acts on the parameter, not on the gradient
    s.m = 0.9 * (s.m or 0) + 0.1 * g
    s.v = 0.999 * (s.v or 0) + 0.001 * g ^ 2
    return p - 0.05 * (s.m / (1 - 0.9 ^ t)) / (math.sqrt(s.v / (1 - 0.999 ^ t)) + 1e-8)
  end },
}

for _, rule in ipairs(rules) do
  local name, options, update = rule[1], rule[2], rule[3]
  local w = nn.Parameter(cnn.tensor({ 3 }, { dtype = "float64", device = device }))
  local opt = optim[name]({ w }, options)
  local p, state = 3, {}
  for t = 1, 20 do
    opt:zero_grad();
    ((w - 1) ^ 2):sum():backward() -- the loss (w - 1)^2 has the gradient 2 (w - 1)
    opt:step()
    p = update(p, 2 * (p - 1), t, state)
  end
  local title = name .. (options.momentum and " with momentum" or "")
  print(("%-18s by hand %.6f, library %.6f, equal: %s"):format(title, p, w:item(),
    tostring(math.abs(p - w:item()) < 1e-9)))
end
