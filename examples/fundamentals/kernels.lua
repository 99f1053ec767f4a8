-- A GPU runs kernels. The CPU launches each, which takes some microseconds, and each reads and writes whole
-- tensors in the GPU's memory, which takes the rest of the time. Fused kernels save both.
--   luajit examples/fundamentals/kernels.lua [--device cuda]
local cnn = require "cnn"
local nn, optim = cnn.nn, cnn.optim
local ok, why = pcall(function() return cnn.cuda.is_available() or cnn.cuda.simulate() end)
if not ok then return print("needs a GPU, or its simulator: " .. why:gsub("^.-: ", "", 1)) end
cnn.set_default_device "cuda"

local function report(what, fn, ...)
  local c = cnn.no_grad(cnn.count_launches, fn, ...)
  print(("%-34s %3d kernels, %7.1f KiB read, %6.1f KiB written"):format(what, c.kernels, c.read / 1024,
    c.written / 1024))
end

-- An expression is a kernel for each op; a view is none.
local x, b = cnn.randn(64, 256), cnn.randn(256)
report("(x * 2 + 1):tanh():sum()", function() return (x * 2 + 1):tanh():sum() end)
report("x:view(256, 64):t()", function() return x:view(256, 64):t() end)

-- A product with what is done to each of its elements, which need not go through memory in between.
local linear, conv = nn.Linear(256, 256), nn.Conv2d(3, 16, 3)
local image, W = cnn.randn(2, 3, 34, 34), linear.weight:t()
cnn.cuda.fuse_relu(true)
report("x:matmul(W), + b, relu", function() return (x:matmul(W) + b):relu() end)
report("Linear, then relu", function() return linear(x):relu() end)
report("Sequential(Linear, ReLU)", nn.Sequential(linear, nn.ReLU()), x)
report("Conv2d, then relu", function() return conv(image):relu() end)
report("Sequential(Conv2d, ReLU)", nn.Sequential(conv, nn.ReLU()), image)

-- What no library has fused: one's own kernel, in place.
local own = cnn.cuda.kernel([[
  __global__ void bias_tanh(float *x, const float *b, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = tanhf(x[i] + b[i % columns]);
  }]], "bias_tanh")
local y = (x + b):tanh()
report("x + b, tanh", function() return (x + b):tanh() end)
report("bias_tanh, one's own", own, { grid = 64, block = 256 }, x, b, x:numel(), 256)
print("equal: " .. tostring((x - y):abs():max():item() < 1e-5))

-- One step of AdamW on 40 parameters.
local all, each = {}, {}
for i = 1, 40 do
  all[i] = nn.Parameter(cnn.randn(100))
  all[i].grad = cnn.randn(100)
  each[i] = optim.AdamW({ all[i] })
  each[i]:step() -- makes its state
end
report("AdamW, a step per parameter", function() for _, opt in ipairs(each) do opt:step() end end)
local together = optim.AdamW(all)
together:step()
report("AdamW, one step for all", function() together:step() end)
