-- What it takes to train and to serve a transformer of seven billion parameters, found on a machine that
-- could hold neither: nothing is computed, and no memory is taken.
--   luajit examples/fundamentals/seven_billion.lua
local cnn = require "cnn"
local nn, F = cnn.nn, cnn.F
local start = cnn.clock()
local on = { device = "meta" }
local width, heads, layers, words = 4096, 32, 33, 43000

local Block = nn.Module:extend("Block")

function Block:init()
  self.norm1, self.norm2 = nn.LayerNorm(width, on), nn.LayerNorm(width, on)
  self.qkv, self.out = nn.Linear(width, 3 * width, on), nn.Linear(width, width, on)
  self.up, self.down = nn.Linear(width, 4 * width, on), nn.Linear(4 * width, width, on)
end

function Block:forward(x)
  local n, t = x:size(1), x:size(2)
  local function split(y) return y:reshape(n, t, heads, width / heads):transpose(2, 3) end
  local parts = self.qkv(self.norm1(x)):chunk(3, -1)
  local q, k, v = split(parts[1]), split(parts[2]), split(parts[3])
  local scores = cnn.matmul(q, k:transpose(-2, -1)) / math.sqrt(width / heads)
  local mixed = cnn.matmul(F.softmax(scores, -1), v):transpose(2, 3):reshape(n, t, width)
  x = x + self.out(mixed)
  return x + self.down(F.gelu(self.up(self.norm2(x))))
end

local list = { nn.Embedding(words, width, on) }
for _ = 1, layers do list[#list + 1] = Block() end
list[#list + 1] = nn.LayerNorm(width, on)
list[#list + 1] = nn.Linear(width, words, { bias = false, device = "meta" })
local model = nn.Sequential(list)
print(("parameters: %.2f billion"):format(model:num_parameters() / 1e9))

local input = { shape = { 1, 128 }, dtype = "int64" }
local train = cnn.estimate(model, { input = input, mode = "train", optimizer = "AdamW", device = "cpu" })
local serve = cnn.estimate(model, { input = input, dtype = "float16", device = "cpu" })
local function gigabytes(bytes) return ("%.0f GB"):format(bytes / 1e9) end
print("to train with AdamW: " .. gigabytes(train.parameters + train.most.gradients + train.optimizer_state)
  .. " of weights, gradients and state")
print("to serve in float16: " .. gigabytes(serve.parameters) .. " of weights")
print(("at the peak, with one text of 128 words: %s, %s"):format(gigabytes(train.peak), gigabytes(serve.peak)))
print("bytes taken: " .. cnn.max_memory_allocated("cpu"))
print("in under a second: " .. tostring(cnn.clock() - start < 1))
