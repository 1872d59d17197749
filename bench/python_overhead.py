"""What a call from Python costs over the native call: a tiny problem of each operator, three nanoseconds of arithmetic.

    python bench/python_overhead.py [BUILD]

BUILD is a tree configured with -DONEHOT_BENCH=ON, build/release if not given, whose onehot_latency is built. The package is
the one that this Python imports. Nothing else should run meanwhile.

native          Prepare and Run in C++ (bench/latency_operators.cpp)
module          the function of onehot._onehot, into arrays that are there
onehot.numpy    the public function, which also makes its results; "over" is what it takes more than native
with out        the same into arrays that are there, which are also checked not to overlap the inputs
"""

import argparse
import json
import os
import statistics
import subprocess
import timeit

import numpy as np

import onehot.numpy as F
from onehot import _onehot as module

BAR_NS = 2000
N, V, H = 4, 5, 3


def native(build):
    """Nanoseconds by name."""
    program = os.path.join(build, "bench", "onehot_latency")
    options = ["--benchmark_filter=^tiny", "--benchmark_repetitions=9", "--benchmark_report_aggregates_only=true"]
    run = subprocess.run(
        [program, *options, "--benchmark_format=json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    return {
        b["run_name"].removeprefix("tiny: "): b["real_time"]
        for b in json.loads(run.stdout)["benchmarks"]
        if b["aggregate_name"] == "median"
    }


def calls():
    """For each name: the call of the module, that of onehot.numpy, and that with out."""
    one, loss = np.ones((), np.float32), np.empty((), np.float32)
    rows, rows_out = np.arange(1, N * H + 1, dtype=np.float32).reshape(N, H), np.empty((N, H), np.float32)
    table, table_out = np.arange(1, V * H + 1, dtype=np.float32).reshape(V, H), np.empty((V, H), np.float32)
    logits, logits_out = np.arange(1, N * V + 1, dtype=np.float32).reshape(N, V), np.empty((N, V), np.float32)
    y = np.array([2, 1, 2, 0])
    high, sums, at = (np.arange(1, N + 1, dtype=np.float32) for _ in range(3))
    gradients = {"grad_input": rows_out, "grad_weight": table_out}
    statistics_ = {"max": np.empty(N, np.float32), "sum_exp": np.empty(N, np.float32), "target_logit": np.empty(N, np.float32)}
    both = ("loss", "grad_input", "grad_weight")
    return {
        "embedding": (
            lambda: module.embedding(table, y, rows_out),
            lambda: F.embedding(table, y),
            lambda: F.embedding(table, y, out=rows_out),
        ),
        "embedding_backward": (
            lambda: module.embedding_backward(rows, y, table_out),
            lambda: F.embedding_backward(rows, y, V),
            lambda: F.embedding_backward(rows, y, out=table_out),
        ),
        "nll_loss": (
            lambda: module.nll_loss(logits, y, loss),
            lambda: F.nll_loss(logits, y),
            lambda: F.nll_loss(logits, y, out=loss),
        ),
        "nll_loss_backward": (
            lambda: module.nll_loss_backward(one, y, logits_out, total_weight=one),
            lambda: F.nll_loss_backward(1.0, logits, y, total_weight=4.0),
            lambda: F.nll_loss_backward(1.0, logits, y, total_weight=4.0, out=logits_out),
        ),
        "cross_entropy": (
            lambda: module.cross_entropy(logits, y, loss=loss),
            lambda: F.cross_entropy(logits, y),
            lambda: F.cross_entropy(logits, y, out=loss),
        ),
        "cross_entropy_backward": (
            lambda: module.cross_entropy_backward(logits, y, logits_out, grad_loss=one),
            lambda: F.cross_entropy_backward(1.0, logits, y),
            lambda: F.cross_entropy_backward(1.0, logits, y, out=logits_out),
        ),
        "linear_cross_entropy": (
            lambda: module.linear_cross_entropy(rows, table, y, loss=loss),
            lambda: F.linear_cross_entropy(rows, table, y),
            lambda: F.linear_cross_entropy(rows, table, y, out=loss),
        ),
        "linear_cross_entropy with gradients": (
            lambda: module.linear_cross_entropy(rows, table, y, loss=loss, grad_loss=one, **gradients),
            lambda: F.linear_cross_entropy(rows, table, y, outputs=both),
            lambda: F.linear_cross_entropy(rows, table, y, outputs=both, out={"loss": loss, **gradients}),
        ),
        "linear_cross_entropy_backward": (
            lambda: module.linear_cross_entropy_backward(rows, table, y, grad_loss=one, **gradients),
            lambda: F.linear_cross_entropy_backward(1.0, rows, table, y),
            lambda: F.linear_cross_entropy_backward(1.0, rows, table, y, out=gradients),
        ),
        "linear_cross_entropy_statistics": (
            lambda: module.linear_cross_entropy_statistics(rows, table, y, **statistics_),
            lambda: F.linear_cross_entropy_statistics(rows, table, y),
            lambda: F.linear_cross_entropy_statistics(rows, table, y, out=statistics_),
        ),
        "linear_cross_entropy_loss": (
            lambda: module.linear_cross_entropy_loss(high, sums, target_logit=at, loss=loss),
            lambda: F.linear_cross_entropy_loss(high, sums, target_logit=at),
            lambda: F.linear_cross_entropy_loss(high, sums, target_logit=at, out=loss),
        ),
    }


def measure(functions, repeats=15, number=4000):
    """Medians in nanoseconds; the functions take turns, so that a drift of the machine meets all of them."""
    timers = [timeit.Timer(function) for function in functions]
    times = [[] for _ in timers]
    for _ in range(repeats):
        for timer, samples in zip(timers, times):
            samples.append(timer.timeit(number) / number * 1e9)
    return [statistics.median(samples) for samples in times]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default=os.path.join(os.path.dirname(__file__), "..", "build", "release"))
    build = parser.parse_args().build

    natives = native(build)
    print("ns, medians                            native   module   onehot.numpy     over   with out     over")
    worst = 0.0
    for name, functions in calls().items():
        module_ns, public_ns, out_ns = measure(functions)
        base = natives[name]
        worst = max(worst, public_ns - base)
        print(
            f"{name:36s} {base:8.0f} {module_ns:8.0f} {public_ns:14.0f} {public_ns - base:8.0f}"
            f" {out_ns:10.0f} {out_ns - base:8.0f}"
        )
    print(f"onehot.numpy takes at most {worst:.0f} ns more than native; {BAR_NS} are allowed")


if __name__ == "__main__":
    main()
