"""What the docstrings say of memory, in a process of its own: the most that was resident, above what was there before."""

import gc
import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import onehot.torch as ot  # noqa: E402
from torch_cases import uniform, zipf  # noqa: E402

MIB = 1 << 20
SLACK = 12 * MIB  # threads' scratch, packed rows, allocators, and pages of code that run for the first time


def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


def peak(function):
    """Bytes above those of before, while ``function`` runs."""
    gc.collect()
    before = status("VmRSS")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    function()
    return status("VmHWM") - before


def step(n, v, h, dtype=torch.float32, factor=3.0, **options):
    input = uniform(n, h, dtype=dtype).requires_grad_()
    weight = torch.linspace(-1, 1, v * h).to(dtype).reshape(v, h).requires_grad_()
    target = zipf((n,), min(v, 999))
    return lambda: (ot.linear_cross_entropy(input, weight, target, **options) * factor).sum().backward()


def forward(n, v, h, **options):
    call = step(n, v, h, **options)

    def run():
        with torch.no_grad():
            try:
                call()
            except RuntimeError:
                pass  # nothing to go back through

    return run


def strided(call):
    """A large tensor of columns side by side, of which a copy would show."""
    table = torch.linspace(-1, 1, 64 * MIB // 4).reshape(128, -1).T
    return lambda: call(table)


def without_gradient(function):
    def run(table):
        with torch.no_grad():
            function(table)

    return run


def leak(function):
    """Growth over many calls. Without the collector: nothing may need it."""
    for _ in range(3):
        function()
    gc.collect()
    gc.disable()
    before = status("VmRSS")
    for _ in range(16):
        function()
    gc.enable()
    return status("VmRSS") - before


def calls_that_could_leak():
    table, x = uniform(512, 512).requires_grad_(), uniform(256, 512, seed=1).requires_grad_()
    y = zipf((256,), 512)
    main_grad = torch.zeros(512, 512)

    def refused():
        try:
            ot.linear_cross_entropy(x, table, y + 512)
        except IndexError:
            pass

    return {
        "embedding": lambda: ot.embedding(y, table).sum().backward(),
        "nll_loss": lambda: ot.nll_loss(x * 1, y).backward(),
        "together": lambda: ot.linear_cross_entropy(x, table, y).backward(),
        "statistics": lambda: ot.linear_cross_entropy(x, table, y, reduction="none").sum().backward(),
        "main_grad": lambda: ot.linear_cross_entropy(x, table, y, main_grad=main_grad).backward(),
        "without backward": lambda: ot.linear_cross_entropy(x, table, y),
        "error": refused,
    }


def measure():
    step(64, 512, 16)()  # threads are there, code is loaded
    target = zipf((4,), 999)
    found = {
        "many classes": peak(step(512, 65536, 16)),
        "many classes, little workspace": peak(step(512, 65536, 16, max_workspace=12 * MIB)),
        "gradients in the workspace": peak(step(220, 32768, 256, max_workspace=56 * MIB)),
        "many classes, each position": peak(step(512, 65536, 16, reduction="none")),
        "many classes, loss alone": peak(forward(512, 65536, 16)),
        "gradient": peak(step(8, 65536, 128)),
        "gradient, factor 1": peak(step(8, 65536, 128, factor=1.0)),
        "gradient, bfloat16": peak(step(8, 65536, 128, dtype=torch.bfloat16)),
        "gradient, main_grad": peak(step(8, 65536, 128, main_grad=torch.ones(65536, 128))),
        "strided embedding": peak(strided(without_gradient(lambda table: ot.embedding(target, table)))),
        "strided head": peak(
            strided(without_gradient(lambda table: ot.linear_cross_entropy(uniform(4, 128), table, target)))
        ),
        "strided nll_loss": peak(strided(without_gradient(lambda table: ot.nll_loss(table, zipf((len(table),), 128))))),
    }
    found.update({f"leak of {name}": leak(call) for name, call in calls_that_could_leak().items()})
    return found


@pytest.fixture(scope="module")
def found():
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("no /proc/self/clear_refs")
    # Freed memory goes back at once: what is measured does not hide in what an earlier step left.
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_TRIM_THRESHOLD_": "0",
    }
    return json.loads(
        subprocess.run([sys.executable, "-B", __file__], env=environment, check=True, capture_output=True).stdout
    )


def test_logits_are_never_in_memory(found):
    """128 MiB they would be. What three products take is 64 MiB at most, or as much as is said."""
    gradients = 4 * (65536 + 512) * 16
    assert found["many classes"] < 64 * MIB + gradients + SLACK
    assert found["many classes, little workspace"] < 12 * MIB + SLACK
    assert found["many classes, each position"] < 64 * MIB + gradients + SLACK
    assert found["many classes, loss alone"] < SLACK


needs_to_know = pytest.mark.skipif(
    not hasattr(torch.library, "register_autograd"), reason="cannot tell whether a graph is kept"
)


@needs_to_know
def test_gradients_are_scaled_in_place(found):
    """32 MiB for the gradient of linear_weight in float32, 16 in bfloat16; not twice."""
    assert 32 * MIB < found["gradient"] < 32 * MIB + SLACK
    assert 32 * MIB < found["gradient, factor 1"] < 32 * MIB + SLACK
    assert found["gradient, bfloat16"] < 48 * MIB + SLACK


@needs_to_know
def test_gradients_that_wait_count_as_workspace(found):
    """32 MiB of them. The logits of all positions, 27.5 MiB, do not fit beside."""
    assert 32 * MIB < found["gradients in the workspace"] < 56 * MIB


def test_main_grad_takes_no_other_gradient(found):
    assert found["gradient, main_grad"] < SLACK


@pytest.mark.parametrize("name", ["embedding", "head", "nll_loss"])
def test_inputs_are_not_copied(found, name):
    """64 MiB it would be."""
    assert found[f"strided {name}"] < SLACK


def test_nothing_leaks(found):
    """16 calls with a MiB or more each."""
    for name, growth in found.items():
        assert not name.startswith("leak") or growth < 4 * MIB, (name, growth)


if __name__ == "__main__":
    print(json.dumps(measure()))
