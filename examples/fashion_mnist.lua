-- Trains a small convolutional network on Fashion-MNIST: 60,000 images of clothes in ten classes.
--
--   luajit examples/fashion_mnist.lua [--epochs 8] [--batch 128] [--lr 5e-3] [--seed 1]
--     [--device cpu] [--threads N] [--subset N] [--data FOLDER] [--out fashion_mnist.safetensors]
--
-- Needs the data set's files (on Debian and Ubuntu the package dataset-fashion-mnist). Ctrl-C ends it
-- after the batch at hand.
local cnn = require "cnn"
local nn, F, optim, data = cnn.nn, cnn.F, cnn.optim, cnn.data

local options = { epochs = 8, batch = 128, lr = 5e-3, seed = 1, device = "cpu", threads = 0, subset = 0,
  data = "", out = "fashion_mnist.safetensors" }
for i = 1, #arg, 2 do
  local name = arg[i]:match("^%-%-(.+)$")
  if not name or options[name] == nil or not arg[i + 1] then
    io.stderr:write(("unknown or incomplete option %s\n"):format(arg[i]))
    os.exit(2)
  end
  options[name] = type(options[name]) == "number" and tonumber(arg[i + 1]) or arg[i + 1]
end

cnn.manual_seed(options.seed)
if options.threads > 0 then cnn.set_num_threads(options.threads) end

-- ---------------------------------------------------------------------------------------------
-- Data, model, optimizer

local function load(train)
  local root = options.data ~= "" and options.data or nil
  local set = data.normalize(data.fashion_mnist { train = train, root = root })
  if options.subset == 0 then return set end
  local indices = {}
  for i = 1, math.min(options.subset, set:size()) do indices[i] = i end
  return data.Subset(set, indices)
end

local train_loader = data.DataLoader(load(true), { batch_size = options.batch, shuffle = true, drop_last = true,
  num_workers = 1 })
local test_loader = data.DataLoader(load(false), { batch_size = 500 })

local model = nn.Sequential(
  nn.Conv2d(1, 32, 3, { padding = 1, bias = false }), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), -- 14 x 14
  nn.Conv2d(32, 64, 3, { padding = 1, bias = false }), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2), -- 7 x 7
  nn.Flatten(), nn.Dropout(0.3),
  nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.3),
  nn.Linear(128, 10)
):to(options.device)

local steps = train_loader:size()
local opt = optim.AdamW(model:parameters(), { lr = options.lr, weight_decay = 0.01 })
local schedule = optim.lr_scheduler.OneCycleLR(opt, { max_lr = options.lr, total_steps = options.epochs * steps + 1 })

-- ---------------------------------------------------------------------------------------------
-- Progress: one line that is rewritten on a terminal, plain lines elsewhere

local terminal = cnn.core.isatty(1)
local started = cnn.clock()

local function show(epoch, step, loss, accuracy, seconds)
  local done = step == steps
  if not terminal and not done and step % math.ceil(steps / 4) ~= 0 then return end
  local rate = step * options.batch / seconds
  local left = (options.epochs - epoch) * steps + steps - step
  local eta = left * options.batch / rate
  local filled = math.floor(20 * step / steps)
  local bar = terminal and ("[%s%s] "):format(("="):rep(filled), ("."):rep(20 - filled)) or ""
  local line = ("epoch %d/%d  %s%3d%%  loss %.4f  accuracy %5.2f%%  %5.0f images/s  %d:%02d left"):format(
    epoch, options.epochs, bar, math.floor(100 * step / steps), loss, 100 * accuracy, rate,
    math.floor(eta / 60), math.floor(eta % 60))
  io.write(terminal and "\r" .. line .. "\27[K" or line, (not terminal or done) and "\n" or "")
  io.flush()
end

-- ---------------------------------------------------------------------------------------------
-- Training and testing

local function train_step(x, y)
  opt:zero_grad()
  local logits = model(x)
  local loss = F.cross_entropy(logits, y)
  loss:backward()
  opt:step()
  schedule:step()
  return loss:item(), logits:detach():argmax(2):eq(y):sum():item()
end

-- False when it was interrupted.
local function train_epoch(epoch)
  model:train()
  local start, loss, correct = cnn.clock(), 0, 0
  for step, x, y in train_loader:iter() do
    if cnn.core.interrupted() then return false end
    local l, c = cnn.scope(train_step, x:to(options.device), y:to(options.device))
    loss, correct = loss + l, correct + c
    show(epoch, step, loss / step, correct / (step * options.batch), cnn.clock() - start)
  end
  return true
end

local function test()
  model:eval()
  local correct, count = 0, 0
  cnn.no_grad(function()
    for _, x, y in test_loader:iter() do
      correct = correct + cnn.scope(function()
        return model(x:to(options.device)):argmax(2):eq(y:to(options.device)):sum():item()
      end)
      count = count + #y
    end
  end)
  return correct / count
end

print(model)
print(("training on %d images, testing on %d, %d threads"):format(train_loader.dataset:size(),
  test_loader.dataset:size(), cnn.get_num_threads()))
cnn.core.listen_interrupt(true)
for epoch = 1, options.epochs do
  if not train_epoch(epoch) then
    print((terminal and "\n" or "") .. "interrupted: nothing was saved")
    os.exit(130)
  end
end
cnn.core.listen_interrupt(false)
print(("trained in %.0f s"):format(cnn.clock() - started))
print(("test accuracy: %.2f %%"):format(100 * test()))
cnn.save(options.out, model:state_dict())
print("model saved to " .. options.out)
