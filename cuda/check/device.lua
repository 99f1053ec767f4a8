-- SPDX-License-Identifier: MIT
-- What a GPU computes, against the CPU, in a few seconds: a line for each, and whether all are well. The
-- specs ask for more (cuda/check.sh runs them too); here is what they can't on the simulator: sizes
-- beyond 2^31 elements, products that fill the GPU, tensor cores' rounding.
--   luajit cuda/check/device.lua [--small]
local cnn = require "cnn"
local nn, F, cuda = cnn.nn, cnn.F, cnn.cuda
local small = arg[1] == "--small"

local available, reason = cuda.is_available()
if not available then
  print("no GPU: " .. tostring(reason))
  os.exit(1)
end

local function size(full, tiny) return small and tiny or full end

local failed = 0
local function check(name, ok, text)
  if not ok then failed = failed + 1 end
  print(("%-4s %-48s %s"):format(ok and "ok" or "BAD", name, text or ""))
end

-- The largest difference, in parts of the largest element.
local function error_of(got, want)
  got, want = got:cpu():to "float64", want:to "float64"
  return (got - want):abs():max():item() / math.max(want:abs():max():item(), 1e-30)
end

local function near(name, limit, got, want)
  local e = error_of(got, want)
  check(name, e <= limit, ("error %.2g (at most %.2g)"):format(e, limit))
end

-- f of tensors here and there, with gradients.
local function compare(name, limit, dtype, shapes, f)
  cnn.manual_seed(1)
  local here, there = {}, {}
  for i, shape in ipairs(shapes) do
    here[i] = cnn.randn(shape):to(dtype):to "float64":requires_grad_()
    there[i] = here[i]:detach():to(dtype):to "cuda":requires_grad_()
  end
  local unpack = table.unpack or unpack
  local a, b = f(unpack(here)), f(unpack(there))
  local dy = cnn.randn(a.shape):to(dtype)
  a:backward(dy:to "float64")
  b:backward(dy:to "cuda")
  near(name .. ", " .. dtype, limit, b:detach(), a:detach())
  for i = 1, #here do
    near(("  gradient %d"):format(i), limit, there[i].grad, here[i].grad)
  end
end

for name, library in pairs(cuda.libraries()) do
  print(("     %-48s %s"):format(name, library.version or "none: " .. tostring(library.reason)))
end

local n, side = size(512, 33), size(28, 9)
for _, pair in ipairs { { "float32", 2e-5 }, { "float16", 5e-3 }, { "bfloat16", 3e-2 } } do
  local dtype, limit = pair[1], pair[2]
  compare("matmul", limit, dtype, { { n, n + 8 }, { n + 8, n } }, function(a, b) return a:matmul(b) end)
  compare("linear", limit, dtype, { { n, n }, { n, n }, { n } }, function(x, w, b) return F.linear(x, w, b) end)
  compare("conv2d", limit, dtype, { { 4, 16, side, side }, { 24, 16, 3, 3 }, { 24 } },
    function(x, w, b) return F.conv2d(x, w, b, 1, 1) end)
  compare("softmax", limit, dtype, { { n, 3 * n } }, function(x) return F.softmax(x, 2) end)
  compare("layer_norm", limit, dtype, { { n, n }, { n }, { n } },
    function(x, w, b) return F.layer_norm(x, { n }, w, b) end)
  compare("gelu", limit, dtype, { { n, n } }, function(x) return F.gelu(x) end)
end

-- Twenty steps of a small convnet give the losses that they give here: dropout's masks are the same.
do
  local function losses(device)
    cnn.manual_seed(3)
    local model = nn.Sequential(nn.Conv2d(1, 4, 3, { padding = 1 }), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
      nn.Flatten(), nn.Dropout(0.3), nn.Linear(4 * 4 * 4, 5))
    local x, y = cnn.randn(16, 1, 8, 8), cnn.randint(1, 6, { 16 })
    model:to(device)
    x, y = x:to(device), y:to(device)
    local opt, list = cnn.optim.AdamW(model:parameters(), { lr = 1e-2 }), {}
    for i = 1, size(20, 3) do
      opt:zero_grad()
      local loss = F.cross_entropy(model(x), y)
      loss:backward()
      opt:step()
      list[i] = loss:item()
    end
    return cnn.tensor(list)
  end
  near("losses of a training", 1e-3, losses "cuda", losses "cpu")
end

-- More elements than 32 bits count, in a view that is no dense run: three rows without their last one.
if not small then
  local free = cuda.mem_get_info()
  if free > 2 ^ 34 then
    local row = 2 ^ 30
    local x = cnn.zeros(3, row, { dtype = "int8", device = "cuda" })
    x:narrow(2, 1, row - 1):add_(1)
    check("2^31 elements and more, walked", x:sum():item() == 3 * (row - 1) and x[{ 3, row }]:item() == 0)
    check("2^31 elements and more, dense", x:mul_(2):sum():item() == 6 * (row - 1))
  else
    check("2^31 elements and more", true, "left out: too little memory is free")
  end
end

-- An index that is out of range is an error, and then over.
do
  local table_, index = cnn.randn({ 10, 4 }, { device = "cuda" }), cnn.tensor({ 3, 11 }, { dtype = "int64" }):to "cuda"
  local ok, message = pcall(function() return F.embedding(index, table_):sum():item() end)
  check("an index out of range is an error", not ok and tostring(message):find "11" ~= nil)
  check("and then the GPU goes on", cnn.ones(3, { device = "cuda" }):sum():item() == 3)
end

print(failed == 0 and "all is well" or failed .. " are not")
os.exit(failed == 0 and 0 or 1)
