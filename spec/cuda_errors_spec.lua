-- SPDX-License-Identifier: MIT
-- What elements show to be wrong is said by a GPU in the CPU's words: the op that was called, the value,
-- where it is, and the bound. Runs where there is a GPU, or on the simulator: make test-cuda-sim.
local cnn = require "cnn"
local cuda = cnn.cuda
local F = cnn.nn.functional

if not cuda.is_available() then
  describe("errors of a GPU's kernels", function()
    it("can't be tried here: there is no GPU", function() assert.equal(0, cuda.device_count()) end)
  end)
  return
end

local function ints(list, device) return cnn.tensor(list, { dtype = "int64" }):to(device) end

-- By what is called: fn(device).
local CASES = {
  index = function(d) return cnn.zeros(3, 4):to(d)[{ {}, ints({ 1, 5 }, d) }] end,
  index_zero = function(d) return cnn.zeros(3, 4):to(d)[ints({ 0 }, d)] end,
  index_put = function(d) cnn.zeros(3, 4):to(d)[ints({ 2, 4 }, d)] = 1 end,
  index_select = function(d) return cnn.zeros(3, 4):to(d):index_select(2, ints({ 5 }, d)) end,
  index_add = function(d) return cnn.zeros(3, 4):to(d):index_add_(1, ints({ 7 }, d), cnn.ones(1, 4):to(d)) end,
  index_copy = function(d) return cnn.zeros(3, 4):to(d):index_copy_(1, ints({ -1 }, d), cnn.ones(1, 4):to(d)) end,
  index_fill = function(d) return cnn.zeros(3, 4):to(d):index_fill_(2, ints({ 9 }, d), 1) end,
  gather = function(d) return cnn.zeros(3, 4):to(d):gather(2, ints({ { 5 } }, d)) end,
  take_along_dim = function(d) return cnn.zeros(3, 4):to(d):take_along_dim(ints({ { 1 }, { 2 }, { 6 } }, d), 2) end,
  scatter = function(d) return cnn.zeros(3, 4):to(d):scatter(1, ints({ { 4 } }, d), 1) end,
  scatter_add = function(d) return cnn.zeros(3, 4):to(d):scatter_add(2, ints({ { 0 } }, d), cnn.ones(1, 1):to(d)) end,
  embedding = function(d) return F.embedding(ints({ 1, 12 }, d), cnn.zeros(10, 4):to(d)) end,
  embedding_module = function(d) return cnn.nn.Embedding(10, 4):to(d)(ints({ 11 }, d)) end,
  one_hot = function(d) return F.one_hot(ints({ 4 }, d), 3) end,
  cross_entropy = function(d) return F.cross_entropy(cnn.zeros(2, 3):to(d), ints({ 1, 9 }, d)) end,
  cross_entropy_zero = function(d) return F.cross_entropy(cnn.zeros(2, 1):to(d), ints({ 1, 0 }, d)) end,
  cross_entropy_module = function(d) return cnn.nn.CrossEntropyLoss()(cnn.zeros(2, 3):to(d), ints({ 1, 9 }, d)) end,
  nll_loss = function(d) return F.nll_loss(cnn.zeros(2, 3):to(d), ints({ 1, -4 }, d)) end,
  bce_input = function(d) return F.binary_cross_entropy(cnn.full({ 2 }, 1.5):to(d), cnn.zeros(2):to(d)) end,
  bce_target = function(d) return F.binary_cross_entropy(cnn.full({ 2 }, 0.5):to(d), cnn.full({ 2 }, 0 / 0):to(d)) end,
  bernoulli = function(d) return cnn.full({ 3 }, 1.25):to(d):bernoulli() end,
  weight = function(d) return cnn.tensor({ { 1, 1 }, { 1, -2 } }):to(d):multinomial(1, true) end,
  weightless = function(d) return cnn.tensor({ { 1, 1 }, { 0, 0 } }):to(d):multinomial(1, true) end,
  few = function(d) return cnn.tensor({ { 1, 1 }, { 0, 3 } }):to(d):multinomial(2, false) end,
  repeats = function(d) return cnn.zeros(3):to(d):repeat_interleave(ints({ 1, -1, 2 }, d)) end,
}

describe("a GPU's kernels", function()
  for name, fn in pairs(CASES) do
    it(("say of a wrong element what the CPU says: %s"):format(name), function()
      local good, expected = pcall(fn, "cpu")
      assert.is_false(good)
      local ok, got = pcall(function()
        fn("cuda")
        cuda.synchronize()
      end)
      assert.is_false(ok)
      local function text(message) return (tostring(message):gsub("^[^ ]*:%d+: ", "")) end
      assert.equal(text(expected), text(got))
      cuda.synchronize() -- nothing is left
    end)
  end
end)
