"""Threads: PyTorch's number counts, results do not depend on it, and worker processes work."""

import hashlib
import multiprocessing
import os
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")

import onehot  # noqa: E402
import onehot.torch as ot  # noqa: E402
from torch_cases import same_bits, uniform, zipf  # noqa: E402

N, H, V = 700, 48, 900


@pytest.fixture(autouse=True)
def numbers_as_they_were():
    ours, theirs = onehot.get_num_threads(), torch.get_num_threads()
    yield
    onehot.set_num_threads(0)
    torch.set_num_threads(theirs)
    assert onehot.get_num_threads() == ours


def training_step(dtype=torch.float32):
    """All three operators: values and gradients."""
    table, x, y = uniform(V, H, dtype=dtype).requires_grad_(), uniform(N, H, dtype=dtype, seed=1), zipf((N,), V)
    rows = ot.embedding(y, table) + x
    loss = ot.linear_cross_entropy(rows, table, y.roll(1)).float()
    loss = loss + ot.linear_cross_entropy(rows, table, y.roll(2), reduction="none").float().sum()
    log = uniform(N, V, dtype=dtype, seed=2).requires_grad_()
    loss = loss + ot.nll_loss(log, y).float()
    loss.backward()
    return [loss.detach(), table.grad, log.grad]


def all_same(a, b):
    return all(same_bits(p, q) for p, q in zip(a, b))


def test_a_number_for_both():
    """One OpenMP: torch.set_num_threads holds for onehot, onehot.set_num_threads for onehot alone."""
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert onehot.get_num_threads() == threads
    onehot.set_num_threads(1)
    assert onehot.get_num_threads() == 1 and torch.get_num_threads() == 3
    training_step()
    assert torch.get_num_threads() == 3


def test_calls_leave_pytorchs_number_alone():
    torch.set_num_threads(2)
    training_step()
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bits_for_any_number_of_threads(dtype):
    onehot.set_num_threads(1)
    one = training_step(dtype)
    for threads in (2, 3, 5):
        onehot.set_num_threads(threads)
        assert all_same(training_step(dtype), one)
    assert all_same(training_step(dtype), one)


def test_one_thread_is_serial():
    """No thread of OpenMP is made where one is asked for, seen in a process that had none."""
    code = (
        "import torch, sys\n"
        "torch.set_num_threads(1)\n"
        "sys.path.insert(0, sys.argv[1]); import test_torch_threads as t\n"
        "import onehot.torch as ot\n"
        "x, w, y = t.ROWS, t.TABLE, t.TARGET\n"
        "count = lambda: len(__import__('os').listdir('/proc/self/task'))\n"
        "before = count()\n"
        "ot.linear_cross_entropy(x, w, y); ot.embedding(y, w); ot.nll_loss(t.uniform(t.N, t.V), y)\n"
        "one = count()\n"
        "torch.set_num_threads(2); ot.linear_cross_entropy(x, w, y)\n"
        "print(one - before, count() - one)\n"
    )
    here = os.path.dirname(os.path.abspath(__file__))
    out = subprocess.run([sys.executable, "-B", "-c", code, here], check=True, capture_output=True, text=True).stdout
    serial, parallel = map(int, out.split())
    assert serial == 0 and parallel >= 1


def test_calls_from_several_threads():
    expected = training_step()
    results = [None] * 4

    def call(i):
        results[i] = training_step()

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(all_same(result, expected) for result in results)


class Samples(torch.utils.data.Dataset):
    """Each sample is a training step, in the worker."""

    def __len__(self):
        return 4

    def __getitem__(self, i):
        loss, table_grad, log_grad = training_step()
        return {
            "loss": loss,
            "table": table_grad,
            "log": log_grad,
            "process": os.getpid(),
            "threads": onehot.get_num_threads(),
        }


def test_workers_of_a_data_loader():
    expected = training_step()  # OpenMP has run before the fork
    loader = torch.utils.data.DataLoader(
        Samples(), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60
    )
    seen = list(loader)
    assert len(seen) == 4
    for sample in seen:
        assert sample["process"] != os.getpid()
        assert all_same([sample["loss"], sample["table"], sample["log"]], expected)


TABLE, ROWS, TARGET = uniform(V, H), uniform(N, H, seed=1), zipf((N,), V)


def digest(_):
    """Of our operators alone: PyTorch's own parallel ones hang in a process forked from one that has run OpenMP."""
    table, rows = TABLE.detach().requires_grad_(), ROWS.detach().requires_grad_()
    ot.linear_cross_entropy(rows, table, TARGET).backward()
    ot.linear_cross_entropy(rows, table, TARGET, max_workspace=0).detach()
    results = [ot.embedding(TARGET, table).detach(), ot.nll_loss(rows, TARGET % H).detach(), rows.grad, table.grad]
    return [hashlib.sha256(t.numpy().tobytes()).hexdigest() for t in results]


def test_forked_processes_of_multiprocessing():
    expected = digest(0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(digest, range(4)).get(timeout=60) == [expected] * 4


def test_results_are_the_same_on_every_run():
    first = training_step(torch.bfloat16)
    for _ in range(5):
        assert all_same(training_step(torch.bfloat16), first)
