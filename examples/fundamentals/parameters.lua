-- What a network is made of: named tensors. Their names, shapes and count.
--   luajit examples/fundamentals/parameters.lua [--device cpu]
local cnn = require "cnn"
local nn = cnn.nn
local device = arg[1] == "--device" and arg[2] or "cpu"

local model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)):to(device)

for name, p in model:named_parameters() do print(name .. " " .. tostring(p.shape)) end
print("parameters: " .. model:num_parameters()) -- 4*8 + 8 + 8*2 + 2

-- A parameter is an ordinary tensor that wants a gradient.
local weight = model[1].weight
print("requires_grad: " .. tostring(weight.requires_grad) .. ", leaf: " .. tostring(weight.is_leaf))
print("bytes: " .. weight.nbytes .. " = " .. weight:numel() .. " x " .. weight:element_size())
print(model)
