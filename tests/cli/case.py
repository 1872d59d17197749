"""What the tests of the command line share. They run the binary that ONEHOT names, from end to end.

Gradients here are small integers that vary by row and column, so sums are exact in every dtype and are compared for
equality; rounding is the business of the library's own tests.
"""
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

ONEHOT = os.environ["ONEHOT"]
DONE, DATA, USAGE, FILE = 0, 1, 2, 3
SKIPPED = 77  # what a test ends with that cannot be run here


def bf16_bits(values):
    """The bits of values that bf16 holds exactly, as ml_dtypes saves them."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    assert not (bits & 0xFFFF).any()
    return (bits >> 16).astype(np.uint16).view("V2")


def from_bf16(array):
    return (np.ascontiguousarray(array).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def gradient(*shape):
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    return (i * 7 % 19 - 9).reshape(shape).astype(np.float32)


def backward(grad, indices, num_weights, padding_idx=None, scale=False, base=None):
    """The definition, in double."""
    rows = np.asarray(indices).reshape(-1).astype(np.int64)
    grad = np.asarray(grad, np.float64).reshape(len(rows), -1 if len(rows) else np.shape(grad)[-1])
    total = np.zeros((num_weights, grad.shape[1]))
    counts = np.zeros(num_weights, np.int64)
    for i, v in enumerate(rows):
        counts[v] += 1
        total[v] += grad[i]
    if scale:
        total /= np.maximum(counts, 1)[:, None]
    if padding_idx is not None:
        total[padding_idx] = 0
    return (total if base is None else base + total), counts


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder.name)

    def run_onehot(self, *arguments, env=None, **options):
        return subprocess.run([ONEHOT, *map(str, arguments)], capture_output=True, text=True, timeout=250,
                              env={**os.environ, **(env or {})}, **options)

    def ok(self, *arguments, **options):
        done = self.run_onehot(*arguments, **options)
        self.assertEqual((done.returncode, done.stderr), (DONE, ""), arguments)
        return done.stdout

    def refused(self, code, part, *arguments, **options):
        """One line on stderr with `part` in it, and no file that was not there before."""
        before = sorted(os.listdir())
        done = self.run_onehot(*arguments, **options)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\Aonehot: [^\n]+\n\Z")
        self.assertIn(part, done.stderr)
        self.assertEqual(sorted(os.listdir()), before)

    def save(self, name, array, version=None):
        with open(name, "wb") as file:
            np.lib.format.write_array(file, np.asanyarray(array), version=version)
        return name

    def backward(self, grad, indices, num_weights, *flags, **options):
        self.save("g.npy", grad)
        self.save("i.npy", indices)
        self.ok("embedding-backward", "--grad", "g.npy", "--indices", "i.npy", "--num-weights", num_weights, "--out",
                "o.npy", *flags, **options)
        return np.load("o.npy")

    def equal(self, got, want, dtype=None):
        self.assertEqual(got.shape, np.shape(want))
        if dtype is not None:
            self.assertEqual(got.dtype, np.dtype(dtype))
        np.testing.assert_array_equal(got, want)


def main():
    """unittest.main, but classes named ...Parity run under a Python that has PyTorch; without one they are skipped."""
    if any("Parity" in argument for argument in sys.argv[1:]):
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
        environments = (os.environ.get("ONEHOT_BENCH_VENV", ""), os.path.join(root, "build", "bench-venv"),
                        "/opt/bench-venv")
        for python in (sys.executable, *(os.path.join(path, "bin", "python") for path in environments if path)):
            if not os.access(python, os.X_OK):
                continue
            if subprocess.run([python, "-c", "import torch, numpy"], capture_output=True).returncode == 0:
                if python != sys.executable:
                    os.execv(python, [python, "-B", *sys.argv])
                break
        else:
            print("skipped: no Python here has PyTorch")
            sys.exit(SKIPPED)
    unittest.main()
