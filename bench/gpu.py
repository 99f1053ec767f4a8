# SPDX-License-Identifier: MIT
# cnn beside PyTorch on a GPU: each case in both, in turn, five times; printed as a table in Markdown:
# medians by the GPU's events, the ratio (the median of the pairs', below 1: cnn is faster) by events
# and by the wall clock, and how near cnn comes to what bounds the case: the bytes that this GPU copies
# in a second (in PyTorch, or cnn if faster), or the products that cuBLAS makes of the same dtype.
#   python bench/gpu.py [--tiny] [--seconds S] [--lua luajit] [CASE ...]
# On a machine without a GPU PyTorch runs on the CPU, for rehearsals.
import argparse
import os
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--seconds", type=float, default=float("inf"))
parser.add_argument("--lua", default="luajit")
parser.add_argument("cases", nargs="*")
OPTIONS = parser.parse_args()
TINY = OPTIONS.tiny
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
ROUNDS = 2 if TINY else 5
SHARE = 0.0 if TINY else 0.06  # seconds of a measurement
if not GPU:
    torch.set_num_threads(1)
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False


def size(full, small):
    return small if TINY else full


def randn(dtype, *shape):
    return torch.randn(*shape, device=DEVICE).to(dtype)


# ---------------------------------------------------------------------------------------------
# Cases, as in cuda.lua: (name, maker, bytes, operations) of one iteration; what bounds it


def copy():
    x = randn(torch.float32, size(2 ** 28, 1000))
    y = torch.empty_like(x)
    return lambda: y.copy_(x)


def matmul(dtype):
    n = size(8192, 32)
    a, b = randn(dtype, n, n), randn(dtype, n, n)
    return lambda: a @ b


def both_ways(x, f):
    x.requires_grad_()
    dy = torch.ones_like(f(x))

    def run():
        x.grad = None
        f(x).backward(dy)
    return run


ROWS, COLUMNS = size(16384, 8), size(4096, 40)
SAMPLES, CLASSES = size(8192, 8), size(32000, 40)


def add(dtype):
    a, b = randn(dtype, ROWS, COLUMNS), randn(dtype, ROWS, COLUMNS)
    return lambda: a + b


def of_one(f):
    def make(dtype):
        x = randn(dtype, ROWS, COLUMNS)
        return lambda: f(x)
    return make


def layer_norm(dtype):
    layer = nn.LayerNorm(COLUMNS).to(DEVICE).to(dtype)
    return both_ways(randn(dtype, ROWS, COLUMNS), layer)


def cross_entropy(dtype):
    x = randn(dtype, SAMPLES, CLASSES).requires_grad_()
    y = torch.randint(0, CLASSES, (SAMPLES,), device=DEVICE)

    def run():
        x.grad = None
        F.cross_entropy(x, y).backward()
    return run


BATCH, CHANNELS, SIDE = size(64, 1), size(128, 4), size(56, 6)


def conv2d(dtype):
    layer = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1).to(DEVICE).to(dtype)
    return both_ways(randn(dtype, BATCH, CHANNELS, SIDE, SIDE), layer)


PARAMETERS, EACH = size(100, 3), size(2 ** 20, 100)


def adamw():
    parameters = [randn(torch.float32, EACH).requires_grad_() for _ in range(PARAMETERS)]
    for p in parameters:
        p.grad = randn(torch.float32, EACH)
    opt = torch.optim.AdamW(parameters, lr=1e-3, fused=GPU)
    return opt.step


def training(model, *shape):
    model.to(DEVICE)
    x = randn(torch.float32, *shape)
    y = torch.randint(0, 10, (shape[0],), device=DEVICE)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=GPU)

    def step():
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
    return step


def mlp_small():
    return training(nn.Sequential(nn.Linear(784, size(128, 8)), nn.ReLU(), nn.Linear(size(128, 8), 10)),
                    size(64, 2), 784)


WIDE = size(4096, 16)


def mlp_large():
    return training(nn.Sequential(nn.Linear(784, WIDE), nn.ReLU(), nn.Linear(WIDE, WIDE), nn.ReLU(),
                                  nn.Linear(WIDE, 10)), size(4096, 2), 784)


def convnet():
    a, b, c = size(32, 2), size(64, 2), size(128, 8)
    return training(nn.Sequential(
        nn.Conv2d(1, a, 3, padding=1, bias=False), nn.BatchNorm2d(a), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(b * 7 * 7, c), nn.ReLU(), nn.Dropout(0.3), nn.Linear(c, 10)),
        size(512, 2), 1, 28, 28)


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CASES = [("copy", copy, 8 * size(2 ** 28, 1000), 0, None)]
for word, dtype in DTYPES.items():
    CASES.append((f"matmul {word}", lambda d=dtype: matmul(d), 0, 2 * size(8192, 32) ** 3, word))
for word, dtype in DTYPES.items():
    b, e = dtype.itemsize, ROWS * COLUMNS
    for name, make, moved in (
            ("add", add, 3 * e), ("gelu", of_one(F.gelu), 2 * e), ("sum", of_one(lambda x: x.sum(1)), e),
            ("softmax", of_one(lambda x: F.softmax(x, 1)), 2 * e),
            # forward x, y; backward x, dy, dx
            ("layer_norm", layer_norm, 5 * e),
            # forward x; backward x, dx
            ("cross_entropy", cross_entropy, 3 * SAMPLES * CLASSES)):
        CASES.append((f"{name} {word}", lambda m=make, d=dtype: m(d), b * moved, 0, word))
    CASES.append((f"conv2d {word}", lambda d=dtype: conv2d(d), 0,
                  3 * 2 * 9 * BATCH * CHANNELS ** 2 * SIDE ** 2, word))
CASES += [("adamw", adamw, 28 * PARAMETERS * EACH, 0, None),
          ("mlp step, batch 64", mlp_small, 0, 0, None),
          ("mlp step, batch 4096", mlp_large, 0,
           6 * size(4096, 2) * (784 * WIDE + WIDE ** 2 + 10 * WIDE), "float32"),
          ("convnet step", convnet, 0, 0, None)]

# ---------------------------------------------------------------------------------------------


class Rival:
    def set_up(self, make):
        self.iteration = None
        if GPU:
            torch.cuda.empty_cache()
        torch.manual_seed(1)
        self.iteration = make()
        self.iteration()

    def run(self, n):
        if GPU:
            torch.cuda.synchronize()
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start = time.perf_counter()
        if GPU:
            first.record()
        for _ in range(n):
            self.iteration()
        if GPU:
            last.record()
            torch.cuda.synchronize()
        wall = time.perf_counter() - start
        return (first.elapsed_time(last) / 1e3 if GPU else wall), wall


class Own:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer:
            sys.exit(f"bench/gpu.py: cnn's process has ended with status {self.process.wait()}")
        if answer.startswith("error"):
            raise RuntimeError("cnn: " + answer)
        return answer

    def run(self, n):
        events, wall = self.ask(f"run {n}").split()
        return float(events), float(wall)


def median(values):
    return sorted(values)[len(values) // 2]


def iterations(side):
    once = max(side.run(1)[1], 1e-6)
    return max(1, min(1000, int(SHARE / once)))


def main():
    limit = time.monotonic() + OPTIONS.seconds
    script = os.path.join(os.path.dirname(__file__), "gpu.lua")
    own, rival = Own([OPTIONS.lua, script, "--server"] + ["--tiny"] * TINY), Rival()
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name() if GPU else 'the CPU (a rehearsal)'}\n")
    print("| case | cnn ms | PyTorch ms | ratio | by the clock | rate | of the bound |")
    print("|---|---:|---:|---:|---:|---:|---:|", flush=True)
    bandwidth, products, failed = 0.0, {}, False
    for name, make, moved, operations, word in CASES:
        if OPTIONS.cases and name not in OPTIONS.cases:
            continue
        if time.monotonic() > limit:
            print(f"| {name} | no time left | | | | | |", flush=True)
            continue
        try:
            own.ask("set up " + name)
            rival.set_up(make)
            n, m = iterations(own), iterations(rival)
            pairs = []
            for _ in range(ROUNDS):
                a, b = own.run(n), rival.run(m)
                pairs.append((a[0] / n, a[1] / n, b[0] / m, b[1] / m))
        except Exception as e:  # the next case may do
            failed = True
            print(f"| {name} | {str(e).splitlines()[0][:160]} | | | | | |", flush=True)
            continue
        ours, theirs = median([p[0] for p in pairs]), median([p[2] for p in pairs])
        ratio, wall = (median([p[k] / p[k + 2] for p in pairs]) for k in (0, 1))
        rate = bound = ""
        if moved:
            if name == "copy":
                bandwidth = moved / min(ours, theirs)
            rate = f"{moved / ours / 1e9:.0f} GB/s"
            bound = f"{moved / ours / bandwidth:.0%} of copying" if bandwidth else ""
        elif operations:
            if name.startswith("matmul"):
                products[word] = operations / theirs
            rate = f"{operations / ours / 1e12:.1f} TFLOP/s"
            bound = f"{operations / ours / products[word]:.0%} of cuBLAS" if word in products else ""
        print(f"| {name} | {1e3 * ours:.3f} | {1e3 * theirs:.3f} | {ratio:.2f} | {wall:.2f} | {rate} | {bound} |",
              flush=True)
    return failed


sys.exit(main())
