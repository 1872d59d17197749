"""Python programs in processes of their own, for what a test cannot do to its own process."""

import os
import subprocess
import sys
import textwrap

# What the programs have in common: a problem large enough for threads, and every function once.
PRELUDE = """
import os, sys, time
import numpy as np
import onehot
import onehot.numpy as F

def large(n=600, h=96, v=4000):
    rng = np.random.default_rng(1)
    x, W = (rng.standard_normal(shape, np.float32) for shape in ((n, h), (v, h)))
    return x, W, rng.integers(0, v, n)

def work():
    x, W, y = large()
    result = F.linear_cross_entropy(x, W, y, outputs=("loss", "grad_input", "grad_weight"))
    logits = x @ W.T
    return b"".join(np.asarray(a).tobytes() for a in (
        *result.values(), F.embedding_backward(x, y, len(W)), F.embedding(W, y), F.cross_entropy(logits, y),
        F.cross_entropy_backward(1.0, logits, y), F.nll_loss(logits, y), F.nll_loss_backward(1.0, logits, y)))

def status(field, pid="self"):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field + ":"))
"""

# Threads that wait do not spin: others may run beside the tests.
ENVIRONMENT = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive", "OPENBLAS_NUM_THREADS": "1"}


def run(program, timeout=60, **environment):
    """What it prints. It has to end well, and to write nothing to stderr."""
    environment = os.environ | ENVIRONMENT | environment
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(program)],
        env=environment,
        timeout=timeout,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert not done.stderr, done.stderr
    return done.stdout
