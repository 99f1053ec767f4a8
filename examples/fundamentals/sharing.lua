-- One parameter in several places: it is counted once, its gradients add up, and it stays one after
-- moving and loading.
--   luajit examples/fundamentals/sharing.lua [--device cpu]
local cnn = require "cnn"
local nn, F = cnn.nn, cnn.F
local device = arg[1] == "--device" and arg[2] or "cpu"
cnn.manual_seed(6)
local function close(a, b) return (a - b):abs():max():item() < 1e-9 end

-- A tied embedding and output.
local embed, out = nn.Embedding(10, 4), nn.Linear(4, 10, { bias = false })
out.weight = embed.weight
local lm = nn.Sequential(embed, out):to(device):double()
print("tied: " .. lm:num_parameters() .. " parameters, one tensor: " .. tostring(lm[1].weight == lm[2].weight))

-- The gradient is the sum of what each use gives.
local ids = cnn.tensor({ 1, 2, 3, 4 }, { dtype = "int64", device = device })
local target = cnn.tensor({ 2, 3, 4, 5 }, { dtype = "int64", device = device })
F.cross_entropy(lm(ids), target):backward()
local w = embed.weight:detach()
local as_table, as_matrix = nn.Parameter(w:clone()), nn.Parameter(w:clone())
F.cross_entropy(F.linear(F.embedding(ids, as_table), as_matrix), target):backward()
local adds_up = close(embed.weight.grad, as_table.grad + as_matrix.grad)
print("gradient = embedding's part + output's part: " .. tostring(adds_up))

-- Siamese branches: one encoder, used twice.
local encoder = nn.Linear(3, 2):to(device):double()
local a = cnn.randn(5, 3, { dtype = "float64", device = device })
local b = cnn.randn(5, 3, { dtype = "float64", device = device })
local function encoder_gradient(loss)
  encoder:zero_grad()
  loss:backward()
  return encoder.weight.grad:clone()
end
local both = encoder_gradient(encoder(a):sum() + (encoder(b) ^ 2):sum())
local parts = encoder_gradient(encoder(a):sum()) + encoder_gradient((encoder(b) ^ 2):sum())
print("siamese branches, gradients add up: " .. tostring(close(both, parts)))

-- One backbone, two heads.
local Net = nn.Module:extend("TwoHeads")
function Net:init()
  self.backbone = nn.Linear(3, 8)
  self.left, self.right = nn.Linear(8, 1), nn.Linear(8, 2)
end
function Net:forward(x)
  local h = self.backbone(x):tanh()
  return self.left(h), self.right(h)
end
local net = Net():to(device):double()
local left, right = net(a)
print(("two heads: %s and %s, parameters %d"):format(
  tostring(left.shape), tostring(right.shape), net:num_parameters()))

-- An encoder and a decoder with one embedding.
local Seq = nn.Module:extend("EncoderDecoder")
function Seq:init()
  self.enc, self.dec = nn.Embedding(10, 4), nn.Embedding(10, 4)
  self.dec.weight = self.enc.weight
end
local seq = Seq()
local state = seq:state_dict()
seq:to("float64"):to(device)
seq:load_state_dict(state)
print("encoder and decoder: " .. seq:num_parameters() .. " parameters, tied after moving and loading: " ..
  tostring(seq.enc.weight == seq.dec.weight))
