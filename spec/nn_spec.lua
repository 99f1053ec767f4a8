-- SPDX-License-Identifier: MIT
-- Modules: registration, traversal, modes, moves, state dicts, calls, hooks, printing, classes.
local cnn = require "cnn"
local helper = require "spec.helper"
local core, nn, F = cnn.core, cnn.nn, cnn.F
local unpack = table.unpack or unpack -- luacheck: ignore

local function names(iterator, state, control)
  local list = {}
  for name in iterator, state, control do list[#list + 1] = name end
  return list
end

local function mlp()
  return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
end

describe("registration", function()
  it("is by assignment, in that order", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.second = nn.Linear(2, 3)
      self.first = nn.Linear(3, 2)
      self.gain = nn.Parameter(cnn.ones(2))
      self:register_buffer("steps", cnn.zeros(1))
      self.note = "a free field"
    end
    local net = Net()
    assert.are.same(names(Net():named_parameters()), names(net:named_parameters()))
    assert.are.same({ "steps" }, names(net:named_buffers()))
    assert.are.equal("a free field", net.note)
    assert.are.equal(2 * 3 + 3 + 3 * 2 + 2 + 2, net:num_parameters())
  end)

  it("follows the order of statements", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.b = nn.Linear(1, 1, { bias = false })
      self.a = nn.Linear(1, 1, { bias = false })
      self.c = nn.Parameter(cnn.ones(1))
    end
    assert.are.same({ "c", "b.weight", "a.weight" }, names(Net():named_parameters()))
    assert.are.same({ "b", "a" }, names(Net():named_children()))
  end)

  it("keeps the place of what is replaced, and forgets what is set to nil", function()
    local m = nn.Module:extend("M")()
    m.a = nn.ReLU()
    m.b = nn.Tanh()
    m.a = nn.Sigmoid()
    assert.are.same({ "a", "b" }, names(m:named_children()))
    assert.are.equal("Sigmoid()", tostring(m.a))
    m.a = nil
    assert.are.same({ "b" }, names(m:named_children()))
    assert.is_nil(m.a)
  end)

  it("refuses what would be lost or endless", function()
    local m = nn.Module:extend("M")()
    m.layer = nn.Linear(2, 2)
    m.w = nn.Parameter(cnn.ones(1))
    helper.raises("nn.ModuleList", function() m.list = { nn.ReLU() } end)
    helper.raises("nn.ModuleList", function() m.list = { nn.Parameter(cnn.ones(1)) } end)
    helper.raises("contain itself", function() m.me = m end)
    helper.raises("contain itself", function()
      local inner = nn.Sequential(nn.Sequential())
      inner[1]:append(inner)
    end)
    helper.raises("registered parameter", function() m.w = 5 end)
    helper.raises("registered parameter", function() m.w = cnn.ones(1) end)
    helper.raises("registered module", function() m.layer = 5 end)
    helper.raises("no dots", function() m["a.b"] = nn.ReLU() end)
    helper.raises("must be a leaf", function()
      m:register_parameter("p", nn.Parameter(cnn.ones(1)))
      core.module_register(m, "q", cnn.ones(1, { requires_grad = true }) * 2, "parameter")
    end)
    helper.raises("float", function() nn.Parameter(cnn.ones(2, { dtype = "int64" })) end)
    assert.are.same({ "w", "p", "layer.weight", "layer.bias" }, names(m:named_parameters()))
  end)

  it("survives garbage collection with its Lua fields", function()
    local Inner = nn.Module:extend("Inner")
    function Inner:init() self.secret = { 42 } end
    local outer = nn.Sequential(Inner())
    collectgarbage()
    collectgarbage()
    assert.are.equal(42, outer[1].secret[1])
    assert.are.equal(outer[1], outer[1])
    assert.is_true(rawequal(outer[1], outer:children()[1]))
  end)

  it("of one parameter in two places counts once", function()
    local embed, out = nn.Embedding(7, 5), nn.Linear(5, 7, { bias = false })
    out.weight = embed.weight
    local m = nn.ModuleList { embed, out }
    assert.are.equal(35, m:num_parameters())
    assert.are.equal(1, #m:parameters())
    m:to("float64")
    assert.are.equal(embed.weight, out.weight)
    assert.are.equal("float64", out.weight.dtype)
    local sd = m:state_dict()
    assert.are.same({ "0.weight", "1.weight" }, (function()
      local l = names(pairs(sd)) table.sort(l) return l end)())
    m:load_state_dict(sd)
    assert.are.equal(embed.weight, out.weight)
  end)

  it("a tree that is too deep is an error, in whatever walks it", function()
    local root = nn.Sequential()
    local m = root
    for _ = 1, 300000 do
      local inner = nn.Sequential()
      m:append(inner)
      m = inner
    end
    m:append(nn.Linear(2, 2))
    helper.raises("modules are nested too deep", nn.Sequential, root)
    helper.raises("train: modules are nested too deep", root.train, root)
    assert.is_true(root.training)
    helper.raises("modules are nested too deep", root.parameters, root)
    helper.raises("nested more than 64 deep", function() root(cnn.ones(2)) end)
  end)

  it("names are short texts without dots and zero bytes", function()
    local m = nn.Module:extend("M")()
    helper.raises("it has more than 255 characters", function() m[("x"):rep(256)] = nn.ReLU() end)
    helper.raises("it has more than 255 characters", m.register_buffer, m, ("x"):rep(256), cnn.ones(1))
    helper.raises("it has a zero byte in it", function() m["a\0b"] = nn.ReLU() end)
    m[("x"):rep(255)] = nn.Parameter(cnn.ones(1))
    assert.truthy(m:state_dict()[("x"):rep(255)])
  end)

  it("modules shared many times over are walked once", function()
    local m = nn.Sequential(nn.Linear(2, 2))
    for _ = 1, 60 do m = nn.Sequential(m, m) end
    assert.is_false(m:eval()[1].training)
    assert.equal(2, #m:parameters())
  end)
end)

describe("containers", function()
  it("Sequential takes modules, a list, or named pairs", function()
    local a = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    local b = nn.Sequential { nn.Linear(2, 3), nn.ReLU() }
    local c = nn.Sequential { { "fc", nn.Linear(2, 3) }, { "act", nn.ReLU() } }
    assert.are.same({ "0.weight", "0.bias" }, names(a:named_parameters()))
    assert.are.same({ "0.weight", "0.bias" }, names(b:named_parameters()))
    assert.are.same({ "fc.weight", "fc.bias" }, names(c:named_parameters()))
    assert.are.equal(2, #c)
    assert.are.equal(c.fc, c[1])
    assert.are.equal(c.act, c[-1])
    assert.are.same({ 5, 3 }, { unpack(c(cnn.ones(5, 2)):size()) })
    helper.raises("out of range", function() return c[3] end)
    helper.raises("no module", function() nn.Sequential(5) end)
  end)

  it("an empty Sequential gives its input back", function()
    local x = cnn.ones(2)
    assert.are.equal(x, nn.Sequential()(x))
  end)

  it("ModuleList and ModuleDict hold and list, and have no forward", function()
    local list = nn.ModuleList { nn.Linear(1, 2), nn.Linear(2, 3) }
    list:append(nn.Linear(3, 4))
    local n = 0
    for i, m in list:iter() do
      n = n + 1
      assert.are.equal(list[i], m)
    end
    assert.are.equal(3, n)
    local dict = nn.ModuleDict { enc = nn.ReLU(), dec = nn.Tanh() }
    assert.are.same({ "dec", "enc" }, names(dict:named_children()))
    assert.are.equal("ReLU()", tostring(dict.enc))
    helper.raises("no forward", function() list(cnn.ones(1)) end)
    list[2] = nn.Tanh()
    assert.are.equal("Tanh()", tostring(list[2]))
  end)

  it("say how they are made", function()
    local a = nn.ReLU()
    helper.raises("ModuleList: expected one table, nn.ModuleList{a, b}, got 2 arguments", nn.ModuleList, a, a)
    helper.raises("ModuleList: expected one table, nn.ModuleList{a, b}, got a module", nn.ModuleList, a)
    helper.raises("ModuleDict: expected one table, nn.ModuleDict{name = a, ...}, got true", nn.ModuleDict, true)
    helper.raises("entry 1 is no module but a function", nn.Sequential, nn.ReLU)
    helper.raises("nn has no layer \"Relu\": did you mean \"ReLU\"?", function() return nn.Relu end)
    helper.raises("apply: argument 1: expected a function", a.apply, a, 3)
  end)
end)

describe("modes and moves", function()
  it("train and eval reach every module", function()
    local m = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.BatchNorm1d(2)))
    m:eval()
    for _, x in ipairs(m:modules()) do assert.is_false(x.training) end
    m:train()
    for _, x in ipairs(m:modules()) do assert.is_true(x.training) end
  end)

  it("to keeps parameters' identity, moves gradients and buffers, and leaves integers", function()
    local m = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    m(cnn.randn(4, 2)):sum():backward()
    local w, g = m[1].weight, m[1].weight.grad
    local opt = cnn.optim.SGD(m:parameters(), { lr = 1 })
    assert.are.equal(m, m:to("float64"))
    assert.are.equal(w, m[1].weight)
    assert.are.equal("float64", w.dtype)
    assert.are.equal("float64", g.dtype)
    assert.are.equal("float64", m[2].running_mean.dtype)
    assert.are.equal("int64", m[2].num_batches_tracked.dtype)
    opt:step()
    m:to { device = "meta", dtype = "float32" }
    assert.are.equal("meta", w.device)
    helper.raises("no data", function() m:to("cpu") end)
    assert.are.equal("meta", w.device)
    helper.raises("floats", function() m:to("int64") end)
    helper.raises("unknown option", function() m:to { dtpe = "float64" } end)
  end)

  it("channels_last lays out weights of 4 dims", function()
    local m = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(2, 2)):to { memory_format = "channels_last" }
    assert.is_true(m[1].weight:is_contiguous("channels_last"))
    assert.is_true(m[2].weight:is_contiguous())
  end)

  it("zero_grad, requires_grad_ and apply", function()
    local m = mlp()
    m(cnn.ones(1, 4)):sum():backward()
    m:zero_grad(false)
    assert.are.equal(0, m[1].weight.grad:abs():sum():item())
    m:zero_grad()
    assert.is_nil(m[1].weight.grad)
    m:requires_grad_(false)
    assert.is_false(m(cnn.ones(1, 4)).requires_grad)
    local seen = 0
    m:apply(function() seen = seen + 1 end)
    assert.are.equal(4, seen)
  end)
end)

describe("state dicts", function()
  it("have PyTorch's names and alias nothing", function()
    local m = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    local sd = m:state_dict()
    local list = names(pairs(sd))
    table.sort(list)
    assert.are.same({ "0.bias", "0.weight", "1.bias", "1.num_batches_tracked", "1.running_mean",
      "1.running_var", "1.weight" }, list)
    cnn.no_grad(function() m[1].bias:fill_(9) end)
    assert.are_not.equal(9, sd["0.bias"]:get(1))
    local alias = m:state_dict { copy = false }
    assert.is_true(alias["0.bias"]:shares_storage(m[1].bias))
  end)

  it("load all or nothing, and say what does not fit", function()
    local a, b = mlp(), mlp()
    b:load_state_dict(a:state_dict())
    local x = cnn.randn(3, 4)
    helper.elements(b(x), a(x):totable())
    local before = b[1].weight:clone()
    local bad = a:state_dict()
    bad["2.weight"] = cnn.ones(3, 3)
    local message = helper.message(b.load_state_dict, b, bad)
    assert.truthy(message:find("2.weight: the module has shape (2, 8), the given tensor (3, 3)", 1, true))
    helper.elements(b[1].weight, before:totable())
    local prefixed = {}
    for k, v in pairs(a:state_dict()) do prefixed["module." .. k] = v end
    message = helper.message(b.load_state_dict, b, prefixed)
    assert.truthy(message:find("missing", 1, true))
    assert.truthy(message:find("unexpected", 1, true))
    assert.truthy(message:find("begin with \"module.\"", 1, true))
    local partial = { ["0.bias"] = cnn.zeros(8), extra = cnn.ones(1) }
    helper.raises("missing", function() b:load_state_dict(partial) end)
    local report = b:load_state_dict(partial, { strict = false })
    assert.are.same({ "extra" }, report.unexpected_keys)
    assert.are.equal(3, #report.missing_keys)
    assert.are.equal(0, b[1].bias:abs():sum():item())
  end)

  it("convert to the module's dtype", function()
    local m = mlp():double()
    m:load_state_dict(mlp():state_dict())
    assert.are.equal("float64", m[1].weight.dtype)
  end)

  it("leave out buffers that are not persistent", function()
    local m = nn.Module:extend("M")()
    m:register_buffer("kept", cnn.zeros(1))
    m:register_buffer("dropped", cnn.zeros(1), { persistent = false })
    assert.are.same({ "kept" }, names(pairs(m:state_dict())))
  end)

  it("say what is wrong with their arguments", function()
    local m = nn.Linear(2, 2)
    local freed = cnn.ones(2)
    freed:free()
    helper.raises("bias: the tensor was freed", m.load_state_dict, m, { weight = m.weight, bias = freed })
    helper.raises("weight: no tensor but the number 3", m.load_state_dict, m, { weight = 3, bias = m.bias })
    helper.raises("did you mean \"strict\"?", m.load_state_dict, m, m:state_dict(), { strct = false })
    helper.raises("did you mean \"copy\"?", m.state_dict, m, { cpoy = false })
    -- What cnn.load gives besides the table is no option.
    m:load_state_dict(m:state_dict(), { format = "pt", strict = "false" })
    helper.raises("nothing was loaded", m.load_state_dict, m, {}, { strict = "false" })
    m:load_state_dict({}, { strict = false })
  end)
end)

describe("layers", function()
  it("start as PyTorch's do", function()
    cnn.manual_seed(1)
    local l = nn.Linear(100, 50)
    local bound = 1 / math.sqrt(100)
    assert.is_true(l.weight:abs():max():item() <= bound)
    assert.is_true(l.weight:abs():max():item() > 0.9 * bound)
    assert.is_true(l.bias:abs():max():item() <= bound)
    local c = nn.Conv2d(4, 8, 3)
    assert.is_true(c.weight:abs():max():item() <= 1 / math.sqrt(36))
    local e = nn.Embedding(50, 40, { padding_idx = 3 })
    assert.is_true(helper.near(1, e.weight:std():item(), 0.1))
    assert.are.equal(0, e.weight[3]:abs():sum():item())
    local b = nn.BatchNorm2d(3)
    helper.elements(b.weight, { 1, 1, 1 })
    helper.elements(b.running_var, { 1, 1, 1 })
  end)

  it("compute what their functions compute", function()
    local x = cnn.randn(2, 3, 8, 8)
    local conv = nn.Conv2d(3, 4, 3, { padding = 1, stride = 2, groups = 1 })
    helper.elements(conv(x), F.conv2d(x, conv.weight, conv.bias, { padding = 1, stride = 2 }):totable())
    local same = nn.Conv2d(3, 4, 3, { padding = "same", bias = false })
    helper.elements(same(x), F.conv2d(x, same.weight, nil, { padding = "same" }):totable())
    assert.is_nil(same.bias)
    for _, mode in ipairs { "reflect", "replicate", "circular" } do
      local m = nn.Conv2d(3, 2, 3, { padding = { 1, 2 }, padding_mode = mode })
      helper.elements(m(x), F.conv2d(F.pad(x, { 2, 2, 1, 1 }, { mode = mode }), m.weight, m.bias):totable(), 1e-5)
    end
    helper.elements(nn.MaxPool2d(2)(x), F.max_pool2d(x, 2):totable())
    helper.elements(nn.AvgPool2d(3, { stride = 1, padding = 1 })(x),
      F.avg_pool2d(x, 3, { stride = 1, padding = 1 }):totable())
    helper.elements(nn.AdaptiveAvgPool2d { 2, 3 }(x), F.adaptive_avg_pool2d(x, { 2, 3 }):totable())
    helper.elements(nn.Flatten()(x), x:flatten(2):totable())
    local ln = nn.LayerNorm({ 8, 8 })
    helper.elements(ln(x), F.layer_norm(x, { 8, 8 }, ln.weight, ln.bias):totable())
    helper.elements(nn.LeakyReLU(0.2)(x), F.leaky_relu(x, 0.2):totable())
    helper.elements(nn.GELU { approximate = "tanh" }(x), F.gelu(x, { approximate = "tanh" }):totable())
    helper.elements(nn.Softmax(2)(x), F.softmax(x, 2):totable())
    helper.elements(nn.PReLU()(x), F.prelu(x, cnn.tensor { 0.25 }):totable())
  end)

  it("losses take weights and options", function()
    local logits, target = cnn.randn(4, 3), cnn.tensor({ 1, 2, 3, 1 }, { dtype = "int64" })
    local w = cnn.tensor { 1, 2, 3 }
    local loss = nn.CrossEntropyLoss { weight = w, label_smoothing = 0.1, reduction = "sum" }
    helper.elements(loss(logits, target),
      F.cross_entropy(logits, target, { weight = w, label_smoothing = 0.1, reduction = "sum" }):totable())
    assert.are.same({ "weight" }, names(loss:named_buffers()))
    helper.elements(nn.MSELoss()(logits, logits * 0), F.mse_loss(logits, logits * 0):totable())
    helper.elements(nn.NLLLoss { ignore_index = 1 }(logits:log_softmax(2), target),
      F.nll_loss(logits:log_softmax(2), target, { ignore_index = 1 }):totable())
    helper.elements(nn.BCEWithLogitsLoss { pos_weight = w }(logits, logits:gt(0):float()),
      F.binary_cross_entropy_with_logits(logits, logits:gt(0):float(), { pos_weight = w }):totable())
  end)

  it("batch norm counts batches in training only and keeps its statistics in evaluation", function()
    local b = nn.BatchNorm1d(2)
    local x = cnn.randn(16, 2) + 3
    b(x)
    assert.are.equal(1, b.num_batches_tracked:item())
    helper.elements(b.running_mean, (x:mean(1) * 0.1):totable(), 1e-5)
    local mean = b.running_mean:clone()
    b:eval()
    b(x)
    assert.are.equal(1, b.num_batches_tracked:item())
    helper.elements(b.running_mean, mean:totable())
    local free = nn.BatchNorm1d(2, { track_running_stats = false, affine = false }):eval()
    helper.elements(free(x):mean(1), { 0, 0 }, 1e-5)
    helper.raises("(N, C, H, W)", function() nn.BatchNorm2d(2)(x) end)
  end)

  it("dropout is the identity in evaluation", function()
    local d, x = nn.Dropout(0.5), cnn.ones(100)
    assert.is_true(d(x):eq(0):any():item())
    d:eval()
    helper.elements(d(x), x:totable())
  end)

  it("name the argument that is wrong", function()
    helper.raises("Linear: argument 2 (out_features) is missing", function() nn.Linear(4) end)
    helper.raises("did you mean \"bias\"", function() nn.Linear(4, 4, { bais = false }) end)
    helper.raises("multiples of groups", function() nn.Conv2d(3, 4, 3, { groups = 2 }) end)
    helper.raises("nn has no layer \"Linera\"", function() nn.Linera(4, 4) end)
    helper.raises("Linear: takes 1 tensor, got 2", function() nn.Linear(1, 1)(cnn.ones(1), cnn.ones(1)) end)
    helper.raises("must be a tensor", function() nn.Linear(1, 1)("x") end)
    helper.raises("padding_idx", function() nn.Embedding(4, 2, { padding_idx = 5 }) end)
  end)

  it("know their arguments", function()
    local c = nn.Conv2d(3, 4, { 3, 5 }, { padding = "same" })
    assert.are.equal(3, c.in_channels)
    assert.are.same({ 3, 5 }, c.kernel_size)
    assert.are.equal("same", c.padding)
    assert.are.equal(2, nn.Flatten().start_dim)
  end)
end)

describe("Lua classes", function()
  local Block = nn.Module:extend("Block")
  function Block:init(n) self.fc = nn.Linear(n, n) end
  function Block:forward(x) return x + self.fc(x):relu() end

  it("compute, nest, train", function()
    local net = nn.Sequential(Block(4), nn.Linear(4, 1))
    local opt = cnn.optim.AdamW(net:parameters(), { lr = 0.05 })
    local x, y = cnn.randn(32, 4), cnn.randn(32, 1)
    local first, last
    for _ = 1, 30 do
      opt:zero_grad()
      local loss = F.mse_loss(net(x), y)
      loss:backward()
      opt:step()
      last = loss:item()
      first = first or last
    end
    assert.is_true(last < first)
  end)

  it("extend each other", function()
    local Wide = Block:extend("Wide")
    function Wide:init(n)
      Block.init(self, n)
      self.more = nn.Linear(n, n)
    end
    local m = Wide(3)
    assert.are.same({ 2, 3 }, { unpack(m(cnn.ones(2, 3)):size()) })
    assert.are.equal(24, m:num_parameters())
    assert.truthy(tostring(m):find("^Wide%("))
  end)

  it("errors in forward name the script's line", function()
    local Bad = nn.Module:extend("Bad")
    function Bad:forward(x) return x:matmul(cnn.ones(7, 7)) end -- luacheck: ignore
    local message = helper.message(function() nn.Sequential(Bad())(cnn.ones(2, 3)) end)
    assert.truthy(message:find("nn_spec.lua:%d+: matmul:"))
    helper.raises("has no forward", function() nn.Module:extend("Empty")()(cnn.ones(1)) end)
  end)

  it("may yield in forward", function()
    local Lazy = nn.Module:extend("Lazy")
    function Lazy:init() self.fc = nn.Linear(2, 2) end
    function Lazy:forward(x)
      coroutine.yield("half way")
      return self.fc(x)
    end
    local model = nn.Sequential(Lazy(), nn.ReLU())
    local co = coroutine.create(function() return model(cnn.ones(1, 2)) end)
    local _, said = coroutine.resume(co)
    assert.are.equal("half way", said)
    local ok, y = coroutine.resume(co)
    assert.is_true(ok)
    assert.is_true(y:has_shape(1, 2))
  end)

  it("return several values", function()
    local Two = nn.Module:extend("Two")
    function Two:forward(x) return x, x * 2 end -- luacheck: ignore
    local a, b = Two()(cnn.ones(1))
    assert.are.equal(1, a:item())
    assert.are.equal(2, b:item())
  end)
end)

describe("hooks", function()
  it("see and replace inputs and outputs, in order, and can be removed", function()
    local m = mlp()
    local calls = {}
    local pre = m:register_forward_pre_hook(function(_, inputs)
      calls[#calls + 1] = "pre"
      return inputs[1] * 0
    end)
    local post = m[1]:register_forward_hook(function(module, inputs, out)
      calls[#calls + 1] = "post"
      assert.are.equal(m[1], module)
      assert.are.equal(0, inputs[1]:abs():sum():item())
      return out * 0 + 1
    end)
    local y = m(cnn.ones(1, 4))
    assert.are.same({ "pre", "post" }, calls)
    helper.elements(y, F.linear(cnn.ones(1, 8), m[3].weight, m[3].bias):totable(), 1e-5)
    pre:remove()
    post:remove()
    post:remove()
    m(cnn.ones(1, 4))
    assert.are.equal(2, #calls)
    helper.raises("expected a function", function() m:register_forward_hook(5) end)
  end)
end)

describe("printing", function()
  it("is a tree with parameter counts", function()
    assert.are.equal(table.concat({
      "Sequential(  [58]",
      "  (0): Linear(in_features=4, out_features=8, bias=true)  [40]",
      "  (1): ReLU()",
      "  (2): Linear(in_features=8, out_features=2, bias=true)  [18]",
      ")",
    }, "\n"), tostring(mlp()))
  end)

  it("summary runs on meta and leaves the model as it was", function()
    local m = nn.Sequential(nn.Conv2d(1, 4, 3, { padding = 1 }), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
      nn.Linear(4 * 8 * 8, 10))
    for _ = 1, 2 do collectgarbage() end -- else it may come within the summary
    local before = cnn.memory_allocated()
    local s = m:summary { input = { 2, 1, 8, 8 } }
    assert.are.equal(before, cnn.memory_allocated())
    assert.are.equal(5, #s.rows)
    assert.are.equal("(2, 4, 8, 8)", tostring(s.rows[1].shape))
    assert.are.equal(40, s.rows[1].parameters)
    assert.are.equal(2 * 4 * 8 * 8 * 9, s.rows[1].work)
    assert.are.equal(2 * 256 * 10, s.rows[5].work)
    assert.are.equal(2 * 4 * 64 * 4, s.rows[2].bytes)
    assert.are.equal(m:num_parameters(), s.parameters)
    assert.is_true(m.training)
    assert.are.equal("cpu", m[1].weight.device)
    assert.are.equal(0, m[2].num_batches_tracked:item())
    assert.truthy(tostring(s):find("multiply-adds", 1, true))
    helper.raises("give the input's shape", function() m:summary() end)
    helper.raises("Conv2d: input has 3 channels", function() m:summary { input = { 2, 3, 8, 8 } } end)
    assert.are.equal("cpu", m[1].weight.device)
  end)
end)

describe("init", function()
  local init = nn.init
  it("fills in place, without gradients", function()
    cnn.manual_seed(2)
    local w = nn.Parameter(cnn.zeros(64, 32))
    assert.are.equal(w, init.kaiming_uniform_(w, { nonlinearity = "relu" }))
    assert.is_true(w:abs():max():item() <= math.sqrt(6 / 32))
    init.xavier_normal_(w)
    assert.is_true(helper.near(math.sqrt(2 / 96), w:std():item(), 0.02))
    init.constant_(w, 3)
    assert.are.equal(3, w:min():item())
    init.trunc_normal_(w, 0, 1, -0.5, 0.5)
    assert.is_true(w:abs():max():item() <= 0.5)
    init.orthogonal_(w)
    helper.elements(w:t():matmul(w):detach(), cnn.eye(32):totable(), 1e-5)
    init.eye_(w)
    assert.are.equal(32, w:sum():item())
    helper.raises("2 dims", function() init.xavier_uniform_(cnn.zeros(3)) end)
    assert.is_true(w.is_leaf)
  end)

  it("says what is wrong", function()
    for name, f in pairs(nn.init) do
      if name ~= "calculate_gain" then
        helper.raises(("%s: argument 1: expected a tensor, got the number 3"):format(
          (name:gsub("^zeros_$", "constant_"):gsub("^ones_$", "constant_"))), f, 3)
      end
    end
    local t = cnn.ones(2, 2)
    helper.raises("xavier_uniform_: gain: expected a number, got the string \"a\"", nn.init.xavier_uniform_, t, "a")
    helper.raises("kaiming_normal_: unknown option \"mod\": did you mean \"mode\"?", nn.init.kaiming_normal_, t,
      { mod = "fan_out" })
    helper.raises("orthogonal_: expected a tensor with 2 dims or more, got shape (2,)", nn.init.orthogonal_, t[1])
  end)
end)

describe("utils", function()
  it("clip_grad_norm_ gives the norm and scales all gradients", function()
    local a, b = nn.Parameter(cnn.zeros(1)), nn.Parameter(cnn.zeros(1))
    a.grad, b.grad = cnn.tensor { 3 }, cnn.tensor { 4 }
    assert.is_true(helper.near(5, nn.utils.clip_grad_norm_({ a, b }, 1), 1e-6))
    assert.is_true(helper.near(0.6, a.grad:item(), 1e-5))
    assert.is_true(helper.near(0.8, b.grad:item(), 1e-5))
    nn.utils.clip_grad_norm_({ a, b }, 100)
    assert.is_true(helper.near(0.6, a.grad:item(), 1e-5))
    assert.is_true(helper.near(0.8, nn.utils.clip_grad_norm_({ a, b }, 1, { norm_type = math.huge }), 1e-5))
  end)

  it("clip_grad_norm_ survives huge gradients and can refuse those that are not finite", function()
    local a = nn.Parameter(cnn.zeros(4))
    a.grad = cnn.full({ 4 }, 3e38)
    local norm = nn.utils.clip_grad_norm_({ a }, 1)
    assert.is_true(helper.near(6e38, norm, 1e33))
    helper.elements(a.grad, { 0.5, 0.5, 0.5, 0.5 }, 1e-5)
    a.grad = cnn.tensor { 1, math.huge, 0, 0 }
    helper.raises("not finite", function()
      nn.utils.clip_grad_norm_({ a }, 1, { error_if_nonfinite = true })
    end)
    assert.are.equal(1, a.grad:get(1))
  end)

  it("clip_grad_value_ and vectors", function()
    local a = nn.Parameter(cnn.zeros(2, 2))
    a.grad = cnn.tensor { { -5, 0.5 }, { 2, 9 } }
    nn.utils.clip_grad_value_({ a }, 1)
    helper.elements(a.grad, { -1, 0.5, 1, 1 })
    local m = mlp()
    local v = nn.utils.parameters_to_vector(m:parameters())
    assert.are.equal(58, v:numel())
    nn.utils.vector_to_parameters(v * 0 + 2, m:parameters())
    assert.are.equal(2, m[3].bias:get(2))
    helper.raises("58 elements", function() nn.utils.vector_to_parameters(cnn.ones(3), m:parameters()) end)
  end)
end)
