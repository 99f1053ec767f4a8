-- SPDX-License-Identifier: MIT
-- Failing allocations: the n-th request for memory fails, and all after it, for n = 1, 2, 3 ... until the
-- work succeeds. Each failure is a clean error and changes nothing: the work, done again, gives bit for
-- bit what an undisturbed run gives. (That nothing leaks is checked by the sanitizers' build.)
local cnn = require "cnn"
local core, nn, F, optim = cnn.core, cnn.nn, cnn.F, cnn.optim
local helper = require "spec.helper"

local function clean(message)
  return type(message) == "string" and message:find("out of memory", 1, true) ~= nil
end

-- Calls work() with the n-th request failing. True when it succeeded.
local function attempt(n, sticky, work)
  core.fault_set(n, sticky)
  local ok, message = pcall(work)
  core.fault_clear()
  if not ok and not clean(message) then error("not a clean error: " .. tostring(message), 0) end
  return ok
end

local function training()
  cnn.manual_seed(7)
  local model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
  local opt = optim.AdamW(model:parameters(), { lr = 0.1 })
  local x, y = cnn.randn(6, 5), cnn.randint(1, 4, { 6 })
  local function step()
    opt:zero_grad()
    local loss = F.cross_entropy(model(x), y)
    loss:backward()
    nn.utils.clip_grad_norm_(model:parameters(), 1)
    opt:step()
  end
  local function values()
    local list = {}
    for _, p in ipairs(model:parameters()) do
      for _, v in ipairs(helper.flat(p)) do list[#list + 1] = v end
      for _, v in ipairs(helper.flat(opt.state[p].exp_avg)) do list[#list + 1] = v end
    end
    return list
  end
  return step, values
end

describe("failing allocations", function()
  for _, sticky in ipairs { true, false } do
    it("in a training step, " .. (sticky and "for good" or "once"), function()
      local step, values = training()
      step()
      local expected = values()
      local n = 0
      repeat
        n = n + 1
        local again, got = training()
        local done = attempt(n, sticky, again)
        if not done then again() end
        assert.are.same(expected, got())
        if not sticky then assert.is_true(done) end -- collecting and trying once more is enough
      until done and (sticky or n > 300)
      assert.is_true(n > 50)
    end)
  end

  it("in making a model", function()
    local n = 0
    repeat n = n + 1 until attempt(n, true, function()
      local model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())
      model:to("float64")
    end)
    assert.is_true(n > 10)
  end)

  it("in a backward with hooks and a Function leaves every .grad as it was", function()
    local Double = cnn.Function {
      forward = function(_, x) return x * 2 end,
      backward = function(_, dy) return dy * 2 end,
    }
    local w = cnn.tensor({ 1, 2, 3 }, { requires_grad = true })
    w.grad = cnn.tensor { 5, 5, 5 }
    w:register_hook(function(g) return g + 1 end)
    local n = 0
    repeat
      n = n + 1
      local loss = (Double(w) * w):sum()
      local done = attempt(n, true, function() loss:backward() end)
      if not done then helper.elements(w.grad, { 5, 5, 5 }) end
    until done
    helper.elements(w.grad, { 5 + 4 + 1, 5 + 8 + 1, 5 + 12 + 1 })
    w.grad = nil
  end)

  it("leave the generator where it was", function()
    cnn.manual_seed(3)
    local state = cnn.get_rng_state()
    local expected = helper.flat(cnn.randn(10))
    local n = 0
    repeat
      n = n + 1
      cnn.set_rng_state(state)
      local done = attempt(n, true, function() return cnn.randn(10) end)
      if not done then
        assert.are.same(state, cnn.get_rng_state())
        assert.are.same(expected, helper.flat(cnn.randn(10)))
      end
    until done
  end)
end)
