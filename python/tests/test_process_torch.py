"""In one process with PyTorch: both work, with the threads that each was told."""

import pytest

pytest.importorskip("torch")

from process import run  # noqa: E402

ORDERS = ["import torch, onehot.numpy", "import onehot.numpy, torch"]

# PyTorch's own work, with threads.
TORCH = """
import torch
def torch_work():
    a = torch.ones(600, 600)
    return float((a @ a).exp().mul(0).sum() + torch.nn.functional.log_softmax(torch.ones(400, 4000), 1).sum())
"""


def both(order, program):
    return run(f"{order}\n{TORCH}\n{program}", PYTHONWARNINGS="ignore")


@pytest.mark.parametrize("order", ORDERS)
def test_neither_changes_the_threads_of_the_other(order):
    out = both(
        order,
        """
before = work()
torch.set_num_threads(3)
print(torch.get_num_threads())
print(work() == before, torch.get_num_threads())
onehot.set_num_threads(1)
print(work() == before, torch.get_num_threads(), onehot.get_num_threads())
torch_work()
torch.set_num_threads(2)
print(onehot.get_num_threads(), torch.get_num_threads())
""",
    )
    assert out.split() == ["3", "True", "3", "True", "3", "1", "1", "2"]


@pytest.mark.parametrize("order", ORDERS)
def test_one_pool_of_threads(order):
    """One OpenMP serves both, so that the idle threads of one do not spin beside those of the other."""
    out = both(
        order,
        """
onehot.set_num_threads(4)
torch.set_num_threads(4)
alone = len(os.listdir("/proc/self/task"))
for _ in range(3):
    torch_work()
    work()
maps = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
runtimes = [path for path in maps if "omp" in os.path.basename(path) and "gomp" in path or "libiomp" in path]
print(len(runtimes), len(os.listdir("/proc/self/task")) - alone, *runtimes)
""",
    )
    runtimes, threads = map(int, out.split()[:2])
    pools = 1 if runtimes == 1 else 2
    assert threads <= 3 * pools + 2, out


@pytest.mark.parametrize("order", ORDERS)
def test_both_work_after_a_fork(order):
    out = both(
        order,
        """
before = work()
torch_work()
pid = os.fork()
if pid == 0:
    torch.set_num_threads(1)
    os._exit(0 if work() == before else 1)
print(os.waitpid(pid, 0)[1])
""",
    )
    assert out.split() == ["0"]
