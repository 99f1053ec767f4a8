# SPDX-License-Identifier: MIT
# The cases of bench/cases.lua on PyTorch: prints seconds per iteration.
#   python bench/pytorch.py CASE [THREADS]
import sys
import time

start_clock = time.process_time()
import torch  # noqa: E402
from torch import nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

loaded = time.process_time() - start_clock
name, threads = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2
torch.set_num_threads(threads)
torch.manual_seed(1)
SECONDS = 0.7  # as in cases.lua


def measure(n, rounds, fn):
    best, first, done = float("inf"), time.perf_counter(), 0
    fn(max(1, n // 10))
    while done < rounds or time.perf_counter() - first < SECONDS:
        start = time.perf_counter()
        fn(n)
        best = min(best, (time.perf_counter() - start) / n)
        done += 1
    return best


def repeat(op, *args):
    def run(n):
        for _ in range(n):
            op(*args)
    return run


def add(requires_grad=False):
    a, b = torch.randn(4, requires_grad=requires_grad), torch.randn(4)

    def run(n):
        for _ in range(n):
            a + b
    return measure(50000, 7, run)


def add_grad():
    return add(True)


def linear_row():
    layer, x = nn.Linear(32, 32), torch.randn(1, 32)
    return measure(20000, 7, repeat(layer, x))


def linear_row_no_grad():
    layer, x = nn.Linear(32, 32), torch.randn(1, 32)
    with torch.no_grad():
        return measure(20000, 7, repeat(layer, x))


def training(model, x, y, n, rounds):
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()

    return measure(n, rounds, repeat(step))


def mlp_step():
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    return training(model, torch.randn(64, 784), torch.randint(0, 10, (64,)), 200, 7)


def convnet_step():
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10))
    return training(model, torch.randn(128, 1, 28, 28), torch.randint(0, 10, (128,)), 10, 5)


def load():
    return loaded


def version():
    return f"PyTorch {torch.__version__}, AdamW for-loop or foreach by its default"


result = globals()[name]()
print(result if isinstance(result, str) else f"{result:.9g}")
