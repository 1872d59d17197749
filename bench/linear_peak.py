"""How much memory one run of linear cross entropy takes beyond its inputs and its results, in bytes.

    linear_peak.py BUILD SIDE DTYPE N H V THREADS

SIDE is a pass of linear.py or one of PyTorch's functions. A process of its own for each: what one side leaves behind is
no room for the next. Peak resident memory as the kernel counts it, so that nothing a side allocates is missed; small
problems were run before, so that code, pools of threads and their like do not count.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys

import common
import linear
from common import DType

# glibc raises its threshold for blocks with pages of their own when such a block is freed; what is freed then stays
# with the process, and the next peak seems smaller by as much. Its initial values, given, stay.
FIXED_THRESHOLDS = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}

# PyTorch's memory-saving function adds V H gradients in f32 once for every few positions, which takes minutes where V
# is large beside H.
LIMIT_S = 120


def measured(build, side, dtype, shape, threads):
    """In a new process; None if that fails, which is said."""
    environment = {k: v for k, v in os.environ.items() if k not in (*common.WARM_MEMORY, "LD_PRELOAD")}
    arguments = [build, side, dtype.name, *map(str, shape), str(threads)]
    try:
        done = subprocess.run([sys.executable, os.path.abspath(__file__), *arguments], capture_output=True, text=True,
                              env=environment | FIXED_THRESHOLDS, timeout=LIMIT_S)
        failure = done.stderr.strip().splitlines()[-1:] if done.returncode else None
    except subprocess.TimeoutExpired:
        failure = [f"over {LIMIT_S} s"]
    if failure is not None:
        print(f"  no peak memory of {side}, {dtype.name}, {shape}: {''.join(failure)}", flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def peak_resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def reset_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def growth(native, torch, side, dtype, shape, threads):
    target = common.indices("zipf", shape.N, shape.V)
    tensors = linear.Tensors(native, shape, dtype, target, with_probability=side == "given")
    results = 0
    if side in linear.TorchStep.FUNCTIONS:
        for name in ("grad_input", "grad_weight"):
            tensors.buffers.pop(name).free()
        step = linear.TorchStep(torch, side, tensors, None)
        results = tensors.gradient_bytes  # it allocates them during the run, ours are there before

        def run():
            step.forward()
            step.backward()
    else:
        tensors.lse.fill(10)  # of no run, but a number

        def run():
            plan = tensors.prepare(side)
            native.timed_run(plan, threads)
            native.free(plan)

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    reset_peak()
    before = peak_resident()
    run()
    grown = peak_resident() - before - results
    tensors.free()
    return max(grown, 0)


def main():
    build, side, dtype, *numbers = sys.argv[1:]
    dtype, shape, threads = DType(dtype), linear.Shape(*map(int, numbers[:3])), int(numbers[3])
    torch = common.import_torch() if side in linear.TorchStep.FUNCTIONS else None
    if torch:
        torch.set_num_threads(threads)
    native = common.Native(build)
    # Large enough for all threads, and for every kernel of the case.
    growth(native, torch, side, dtype, linear.Shape(128, shape.H, 2048), threads)
    print(json.dumps(growth(native, torch, side, dtype, shape, threads)))


if __name__ == "__main__":
    main()
