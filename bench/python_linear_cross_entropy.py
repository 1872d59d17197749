"""Linear cross entropy in a training step of PyTorch, on this machine: time, memory and error of several ways.

    python bench/python_linear_cross_entropy.py [--quick] [--shape NxHxV]... [--dtype f32]... [--way NAME]... [--chunk ROWS]

The package is the one that this Python imports, threads are PyTorch's default. Nothing else should run meanwhile. Prints a
table in Markdown. Each line is one process, so that no way finds memory that another has left:

time     forward and backward with gradients of input and weight, which are set to None before each run: a median. "once"
         is a single run.
memory   the most resident memory during the first run (VmHWM) beyond what was resident before. Inputs do not count; the
         loss and the gradients do, and the title says how much that is.
errors   of the loss, relative; of the gradients of input and weight, the largest error of any element over the largest
         element. Against the definition in float64 of the same inputs.
"""

import argparse
import collections
import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import onehot
import onehot.torch
import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
SHAPES = ["1024x1024x32768", "4096x768x50257"]
QUICK = ["256x512x8192"]
# PyTorch has no products of f16 on CPUs without them, and takes a hundred times as long.
SLOW_GFLOP = 50

RUNS, BUDGET_S, LONG_S = 9, 10, 15  # so many runs, if they fit; a first run as long as LONG_S is the only one
MIB = 1 << 20


def plain(x, w, y):
    return F.cross_entropy(F.linear(x, w), y)


def saving(**options):
    return lambda x, w, y: F.linear_cross_entropy(x, w, y, options=torch.nn.LinearCrossEntropyOptions(**options))


def ours(**keywords):
    return lambda x, w, y: onehot.torch.linear_cross_entropy(x, w, y, **keywords)


def ways(chunk):
    """By name: the title, and what makes the loss."""
    return {
        "plain": ("`F.cross_entropy(F.linear(x, w), y)`", lambda: plain),
        "compiled": ("the same under `torch.compile`", lambda: torch.compile(plain)),
        "saving": ("`F.linear_cross_entropy`, `options=LinearCrossEntropyOptions()`", saving),
        "saving-chunk": (f"the same with `batch_chunk_size={chunk}`", lambda: saving(batch_chunk_size=chunk)),
        "onehot": ("`onehot.torch.linear_cross_entropy`", ours),
        "onehot-f32": ("the same with `dtype=torch.float32`", lambda: ours(dtype=torch.float32)),
        "onehot-0": ("the same with `max_workspace=0`", lambda: ours(max_workspace=0)),
    }


# ---- one process


def inputs(shape, dtype):
    """Logits with a standard deviation of 2, and targets as frequent as words: that of rank r in proportion to 1 / r."""
    N, H, V = shape
    random = torch.Generator().manual_seed(N + H + V)
    x = torch.randn(N, H, generator=random).to(dtype)
    w = torch.empty(V, H, dtype=dtype)
    for rows in w.split(4096):  # small parts: their memory is given back, and no peak is hidden in it
        rows.copy_(torch.randn(rows.shape, generator=random) * 2 / H**0.5)
    y = torch.multinomial(1 / torch.arange(1, V + 1), N, replacement=True, generator=random)
    return x.requires_grad_(), w.requires_grad_(), y


def definition(x, w, y, rows=256):
    """Loss and gradients in float64, some rows at a time."""
    x, w = x.detach().double(), w.detach().double()
    loss, dx, dw = 0.0, torch.empty_like(x), torch.zeros_like(w)
    for begin in range(0, len(x), rows):
        part, target = x[begin : begin + rows], y[begin : begin + rows, None]
        z = part @ w.T
        lse = z.logsumexp(1, keepdim=True)
        loss += (lse - z.gather(1, target)).sum().item() / len(x)
        dz = (z - lse).exp_().scatter_add_(1, target, -torch.ones_like(lse)).div_(len(x))
        dx[begin : begin + rows] = dz @ w
        dw.addmm_(dz.T, part)
    return loss, dx, dw


def status(name):
    """VmRSS or VmHWM in bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


def trim():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def reset_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def timed(function, x, w, y):
    """Seconds, and the loss."""
    x.grad = w.grad = None
    start = time.perf_counter()
    loss = function(x, w, y)
    loss.backward()
    return time.perf_counter() - start, loss.detach()


def largest_error(result, exact):
    worst = max((a.double() - b).abs().max().item() for a, b in zip(result.split(4096), exact.split(4096)))
    return worst / exact.abs().max().item()


def measure(way, dtype, shape, chunk, exact_file):
    x, w, y = inputs(shape, DTYPES[dtype])
    function = ways(chunk)[way][1]()
    # Code is loaded, and threads are started, before any run that counts.
    timed(function, *(inputs(shape if way == "compiled" else (64, shape[1], 1024), DTYPES[dtype])))
    trim()
    reset_peak()
    before = status("VmRSS")
    first, loss = timed(function, x, w, y)
    peak = status("VmHWM") - before
    exact_loss, exact_dx, exact_dw = torch.load(exact_file, mmap=True)
    errors = [
        abs(loss.item() - exact_loss) / exact_loss,
        largest_error(x.grad, exact_dx),
        largest_error(w.grad, exact_dw),
    ]
    times, start = [], time.perf_counter()
    while first < LONG_S and len(times) < RUNS and (len(times) < 3 or time.perf_counter() - start < BUDGET_S):
        times.append(timed(function, x, w, y)[0])
    return {"s": statistics.median(times or [first]), "once": not times, "peak": peak, "errors": errors}


# ---- the table


def run(*arguments):
    """This file in a new process; what it printed, as JSON."""
    done = subprocess.run(
        [sys.executable, __file__, "--measure", *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def machine():
    facts = collections.defaultdict(str)
    for line in subprocess.run(
        ["lscpu"], stdout=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"}
    ).stdout.splitlines():
        name, _, value = line.partition(":")
        facts[name] = value.strip()
    return (
        f"{facts['Model name']} (family {facts['CPU family']}, model {facts['Model']}), {os.cpu_count()} CPUs, "
        f"{torch.get_num_threads()} threads; PyTorch {torch.__version__}, onehot {onehot.__version__}"
    )


def table(shape, dtypes, chosen, chunk, scratch):
    N, H, V = shape
    gradients = {name: (N * H + V * H) * DTYPES[name].itemsize / MIB for name in dtypes}
    print(
        f"\nN x H x V = {N} x {H} x {V}; the gradients alone: "
        + ", ".join(f"{m:.0f} MiB {d}" for d, m in gradients.items())
    )
    print("\n| | | ms | memory, MiB | error of the loss | of `x.grad` | of `w.grad` |\n|---|---|---|---|---|---|---|")
    for dtype in dtypes:
        exact = os.path.join(scratch, "exact.pt")
        run("exact", dtype, *shape, chunk, exact)
        for way, (title, _) in ways(chunk).items():
            slow = dtype == "f16" and way in ("plain", "compiled") and 6e-9 * N * H * V > SLOW_GFLOP
            if (chosen and way not in chosen) or (way == "onehot-f32" and dtype == "f32"):
                continue
            result = None if slow else run(way, dtype, *shape, chunk, exact)
            if result is None:
                print(f"| {dtype} | {title} | {'not run: minutes' if slow else 'failed'} | | | | |", flush=True)
                continue
            ms = f"{result['s'] * 1e3:.0f}{' once' * result['once']}"
            errors = " | ".join(f"{e:.0e}" for e in result["errors"])
            print(f"| {dtype} | {title} | {ms} | {result['peak'] / MIB:.0f} | {errors} |", flush=True)


def main():
    if sys.argv[1:2] == ["--measure"]:
        way, dtype, *numbers, exact = sys.argv[2:]
        *shape, chunk = map(int, numbers)
        if way == "exact":
            torch.save(definition(*inputs(shape, DTYPES[dtype])), exact)
            print("null")
        else:
            print(json.dumps(measure(way, dtype, shape, chunk, exact)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small shape")
    parser.add_argument("--shape", action="append", help="NxHxV")
    parser.add_argument("--dtype", action="append", choices=DTYPES)
    parser.add_argument("--way", action="append", choices=ways(0), help="these only")
    parser.add_argument(
        "--chunk", type=int, default=512, help="rows of PyTorch's memory-saving form in its second line"
    )
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as scratch:
        for shape in options.shape or (QUICK if options.quick else SHAPES):
            table(tuple(map(int, shape.split("x"))), options.dtype or list(DTYPES), options.way, options.chunk, scratch)


if __name__ == "__main__":
    main()
