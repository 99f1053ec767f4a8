# SPDX-License-Identifier: MIT
# The runs of bench/memory_cases.lua on PyTorch: prints the same.
#   python bench/memory_pytorch.py CASE STEPS THREADS DROPOUT
#   python bench/memory_pytorch.py version
import sys

import torch
from torch import nn
import torch.nn.functional as F


def resident(field):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(field + ":"))


level = resident("VmRSS")
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")  # from here on VmHWM is the peak



def version():
    from torch.optim.optimizer import _default_to_fused_or_foreach as default
    fused, foreach = default([torch.zeros(2, requires_grad=True)], False, False)
    kind = "fused" if fused else "foreach" if foreach else "for-loop"
    return f"PyTorch {torch.__version__}, AdamW {kind} (its default)"


if sys.argv[1] == "version":
    print(version())
    sys.exit()
name, steps, dropout = sys.argv[1], int(sys.argv[2]), float(sys.argv[4])
torch.set_num_threads(int(sys.argv[3]))
torch.manual_seed(1)


def noise(n, seed):
    return (torch.arange(n, dtype=torch.float64).add(seed).mul(12.9898).sin().mul(43758.5453).remainder(1)
            .mul(2).sub(1))


def initialize(model):
    seed = 0
    with torch.no_grad():
        for p in model.parameters():
            seed += 0.1
            if p.dim() > 1:
                fan_in = p.numel() / p.shape[0]
                p.copy_(noise(p.numel(), seed).reshape(p.shape).div(fan_in ** 0.5))
        for path, p in model.named_parameters():
            if path.endswith("bias"):
                p.zero_()
    return model


def convnet():
    return 128, (1, 28, 28), nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(dropout), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(128, 10))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def residual_mlp():
    return 256, (784,), nn.Sequential(
        nn.Linear(784, 256), *[Block(256) for _ in range(12)], nn.LayerNorm(256), nn.Linear(256, 10))


def training(model):
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss.item()

    return step


def warm_up():
    step = training(nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(dropout),
        nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2)))
    for _ in range(2):
        step(torch.ones(2, 1, 6, 6), torch.ones(2, dtype=torch.int64))


warm_up()
warm = resident("VmRSS")

BATCHES = 4
batch, shape, model = globals()[name.removesuffix("_unscoped")]()
step = training(initialize(model))
xs, ys = [], []
for i in range(1, BATCHES + 1):
    y = torch.arange(batch).remainder(10)
    pixel = torch.arange(784, dtype=torch.float32).mul(0.05)
    xs.append((y.unsqueeze(1).float().add(1).mul(pixel).sin() + noise(batch * 784, i).reshape(batch, 784).float())
              .reshape(batch, *shape))
    ys.append(y)

losses = []
for i in range(steps):
    losses.append(f"{step(xs[i % BATCHES], ys[i % BATCHES]):.6g}")
print(level, warm, resident("VmHWM"), " ".join(losses))
