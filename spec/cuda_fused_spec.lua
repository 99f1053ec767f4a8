-- SPDX-License-Identifier: MIT
-- A Sequential computes a layer and the activation behind it by one op. Nothing shows it: values and
-- gradients are those of the layers one by one, bit by bit on the CPU.
local cnn = require "cnn"
local helper = require "spec.helper"
local nn = cnn.nn

-- On the CPU, and on a GPU where there is one: there libraries fuse, and round once less.
local devices = { "cpu", cnn.cuda.is_available() and "cuda" or nil }

local fused = require("cnn.core").internal
local unpack = table.unpack or unpack -- luacheck: ignore

local function gelu() return nn.GELU { approximate = "tanh" } end

local MODELS = {
  mlp = function()
    return { nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 16), gelu(), nn.Linear(16, 8), gelu(), nn.Linear(8, 3) }
  end,
  plain = function()
    return { nn.Linear(6, 8, { bias = false }), gelu(), nn.Linear(8, 5), nn.GELU(), nn.Linear(5, 4), nn.ReLU() }
  end,
  ends = function() return { gelu(), nn.ReLU(), nn.Linear(6, 7), gelu(), nn.Dropout(0), nn.Linear(7, 2), gelu() } end,
  nested = function()
    return { nn.Linear(6, 8), nn.Sequential(gelu(), nn.Linear(8, 8), nn.ReLU()), nn.Sequential(nn.Linear(8, 4), gelu()),
      nn.Linear(4, 4) }
  end,
  conv = function()
    return { nn.Unflatten(2, { 1, 2, 3 }), nn.Conv2d(1, 4, 3, { padding = 1 }), nn.ReLU(),
      nn.Conv2d(4, 3, 2, { bias = false }), nn.ReLU(), nn.Conv2d(3, 2, 1, { padding = 1, padding_mode = "circular" }),
      nn.ReLU(), nn.Flatten(), nn.Linear(24, 3) }
  end,
}

-- A layer after the other, each called by itself.
local function one_by_one(layers, x)
  for _, layer in ipairs(layers) do
    if #layer > 0 then
      local list = {}
      for i = 1, #layer do list[i] = layer[i] end
      x = one_by_one(list, x)
    else
      x = layer(x)
    end
  end
  return x
end

local function gradients(model, x, forward, options)
  model:zero_grad()
  x.grad = nil
  local y = forward(x)
  cnn.manual_seed(3)
  y:backward(cnn.randn(y:size()):to(y.device):to(y.dtype), options)
  local list = { y:detach(), x.grad }
  for _, p in ipairs(model:parameters()) do list[#list + 1] = p.grad end
  return list
end

local function near(a, b, dtype)
  local tolerance = ({ float64 = 1e-12, float32 = 2e-6, bfloat16 = 3e-2 })[dtype]
  a, b = a:double():cpu(), b:double():cpu()
  local err = (a - b):abs():max():item()
  return err <= tolerance * math.max(1, b:abs():max():item())
end

local function expect_alike(got, expected, device, dtype)
  assert.equal(#expected, #got)
  for i, e in ipairs(expected) do
    local alike = device == "cpu" and got[i]:eq(e):all():item() or device ~= "cpu" and near(got[i], e, dtype)
    assert.is_true(alike, i)
  end
end

for _, device in ipairs(devices) do
  describe("a Sequential on " .. device, function()
    for name, make in pairs(MODELS) do
      for _, dtype in ipairs { "float32", "float64", "bfloat16" } do
        it(("computes and differentiates as its layers do: %s in %s"):format(name, dtype), function()
          cnn.manual_seed(1)
          local layers = make()
          local model = nn.Sequential(unpack(layers)):to(device):to(dtype)
          local x = cnn.randn(5, 6):to(dtype):to(device):detach():requires_grad_()
          local function whole(v) return model(v) end
          local function parts(v) return one_by_one(layers, v) end
          expect_alike(gradients(model, x, whole), gradients(model, x, parts), device, dtype)
          local a, b = cnn.no_grad(whole, x), cnn.no_grad(parts, x)
          expect_alike({ a }, { b }, device, dtype)
        end)
      end
    end

    it("can be differentiated twice", function()
      cnn.manual_seed(2)
      local layers = { nn.Linear(3, 8), gelu(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1) }
      local model = nn.Sequential(unpack(layers)):to(device):double()
      local x = cnn.randn(4, 3, { dtype = "float64" }):to(device):detach():requires_grad_()
      local function penalty(forward)
        local g = cnn.grad({ forward(x):sum() }, { x }, { create_graph = true })
        g = type(g) == "table" and g[1] or g
        return cnn.grad({ g:square():sum() }, { layers[1].weight })
      end
      local a, b = penalty(function(v) return model(v) end), penalty(function(v) return one_by_one(layers, v) end)
      a, b = type(a) == "table" and a[1] or a, type(b) == "table" and b[1] or b
      assert.is_true(near(a, b, "float64"))
    end)

    it("goes back twice through one graph, and to its inside", function()
      cnn.manual_seed(4)
      local model = nn.Sequential(nn.Linear(3, 8), gelu(), nn.Linear(8, 8), gelu(), nn.Linear(8, 1)):to(device)
      local x = cnn.randn(4, 3):to(device)
      local loss = model(x):sum()
      loss:backward(nil, { retain_graph = true })
      local once = model[1].weight.grad:clone()
      loss:backward()
      assert.is_true(near(model[1].weight.grad, once * 2, "float32"))
      -- only some parameters want a gradient
      local all = gradients(model, x:detach():requires_grad_(), function(v) return model(v) end)
      for frozen = 1, 5, 2 do
        model:requires_grad_(true)
        model[frozen]:requires_grad_(false)
        model:zero_grad()
        local y = model(x)
        cnn.manual_seed(3)
        y:backward(cnn.randn(y:size()):to(device))
        for i, p in ipairs(model:parameters()) do
          local off = math.floor((i - 1) / 2) * 2 + 1 == frozen
          assert.equal(off, p.grad == nil)
          if not off then assert.is_true(near(p.grad, all[i + 2], "float32")) end
        end
      end
    end)

    it("goes through a GELU only where nobody else sees its gradient", function()
      cnn.manual_seed(6)
      local function new(...) return cnn.randn(...):double():to(device):detach():requires_grad_() end
      local x, w, b, v = new(3, 4), new(8, 4), new(8), new(5, 8)
      local seen
      local CASES = {
        function(h) return cnn.linear(h, v):square():sum() end,
        function(h) return cnn.linear(h, v):square():sum() + h:square():sum() end,
        function(h) return (cnn.linear(h, v) * cnn.linear(h, v * 2)):sum() end,
        function(h, z) return cnn.linear(h, v):square():sum() + z:square():sum() end,
        function(_, z) return z:square():sum() end,
        function(h)
          seen = nil
          h:register_hook(function(g) seen = g end)
          return cnn.linear(h, v):square():sum()
        end,
      }
      local function both()
        local z = cnn.linear(x, w, b)
        return z:gelu("tanh"), z
      end
      for _, case in ipairs(CASES) do
        local results = {}
        for i, make in ipairs { function() return fused.linear_gelu_kept(x, w, b) end, both } do
          for _, p in ipairs { x, w, b, v } do p.grad = nil end
          case(make()):backward()
          results[i] = { x.grad, w.grad, b.grad, v.grad or x.grad, seen or x.grad }
        end
        for i, e in ipairs(results[2]) do assert.is_true(near(results[1][i], e, "float64"), i) end
      end
      -- and where its result's gradient is asked for
      local h = fused.linear_gelu_kept(x, w, b)
      local y = cnn.linear(h, v)
      local g = cnn.grad({ y:sum() }, { h, x })
      g = g[1]
      assert.is_true(near(g, cnn.ones(3, 5, { dtype = "float64", device = device }):matmul(v:detach()), "float64"))
    end)

    it("can keep what it saves elsewhere, and compute it again", function()
      cnn.manual_seed(9)
      local model = nn.Sequential(nn.Linear(6, 8), gelu(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)):to(device)
      local x = cnn.randn(5, 6):to(device):requires_grad_()
      local expected = gradients(model, x, function(v) return model(v) end)
      local offloaded = gradients(model, x, function(v)
        return cnn.save_on_cpu(function() return model(v) end)
      end)
      local again = gradients(model, x, function(v) return cnn.checkpoint(model, v) end)
      for i, e in ipairs(expected) do
        assert.is_true(near(offloaded[i], e, "float32") and near(again[i], e, "float32"), i)
      end
    end)

    it("shows hooks every layer", function()
      local model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), gelu()):to(device)
      local seen = {}
      for i = 1, 4 do model[i]:register_forward_hook(function(_, _, y) seen[i] = y:detach():clone() end) end
      model[2]:register_forward_hook(function(_, _, y) return y * 0 end)
      model(cnn.ones(1, 2):to(device))
      assert.equal(4, #seen)
      assert.is_true(seen[1]:abs():max():item() > 0)
      assert.is_true(near(seen[3], model[3].bias:detach():unsqueeze(1), "float32"))
    end)

    it("names the layer whose input is wrong", function()
      local model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(7, 8), gelu()):to(device)
      helper.raises("Linear: input (1, 8) must end with 7 features", model, cnn.ones(1, 2):to(device))
    end)
  end)
end

describe("the tape of a Sequential", function()
  it("holds one node for a layer and its activation", function()
    local y = nn.Sequential(nn.Linear(2, 8), nn.ReLU())(cnn.ones(1, 2))
    assert.equal("LinearReluBackward0", y.grad_fn.name)
    y = nn.Sequential(nn.Linear(2, 8), gelu())(cnn.ones(1, 2))
    assert.equal("LinearGeluKeptBackward0", y.grad_fn.name)
    y = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU())(cnn.ones(1, 1, 2, 2))
    assert.equal("Conv2dReluBackward0", y.grad_fn.name)
  end)
end)
