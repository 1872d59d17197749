"""Memory: nothing is kept, nothing is copied, and logits are never all there."""

from process import run

EVERYTHING = """
import onehot._onehot as module
work()
x, W, y = large(20, 8, 30)
logits = x @ W.T
def try_all():
    for call in (
        lambda: F.embedding(W, y), lambda: F.embedding(W, y + 30), lambda: F.embedding_backward(x, y, 30),
        lambda: F.embedding_backward(x, y, out=x), lambda: F.nll_loss(logits, y), lambda: F.nll_loss(logits, y - 31),
        lambda: F.nll_loss_backward(1.0, logits, y), lambda: F.cross_entropy(logits, y, reduction="x"),
        lambda: F.cross_entropy(logits, y, outputs=("loss", "lse", "argmax")),
        lambda: F.cross_entropy_backward(1.0, logits, y), lambda: F.linear_cross_entropy(x, W, y),
        lambda: F.linear_cross_entropy(x, W.astype("f8"), y), lambda: F.linear_cross_entropy_backward(1.0, x, W, y),
        lambda: F.linear_cross_entropy_loss(**F.linear_cross_entropy_statistics(x, W, y)),
        lambda: module.embedding_backward(None, y, x), lambda: module.embedding_backward(x, y, W, padding_idx="a"),
        lambda: module.nll_loss(logits, y, outputs={"no": x}), lambda: onehot.set_num_threads(-1),
        lambda: onehot.operators(), lambda: F.embedding(memoryview(W), y), lambda: module.embedding(object(), y, x),
    ):
        try:
            call()
        except (IndexError, TypeError, ValueError):
            pass
"""


def test_nothing_leaks_at_exit():
    """nanobind complains on stderr about instances, types and functions that are left; run() looks at it."""
    run(EVERYTHING + "try_all()")


def test_many_calls_take_no_more_memory():
    out = run(
        EVERYTHING
        + """
for _ in range(300): try_all()
before = status("VmRSS")
for _ in range(6000): try_all()
print(status("VmRSS") - before)
"""
    )
    assert int(out) < 2048, f"{out} KiB for 6000 rounds; a reference a round would be more"


def test_inputs_are_not_copied():
    """A large input whose rows lie apart: a copy of it would be seen."""
    out = run("""
        rows = np.ones((600_000, 64), np.float32)[::2, 8:40]
        y = np.zeros(len(rows), np.int64)
        out = np.empty((1000, 32), np.float32)
        before, size = status("VmHWM"), rows.nbytes >> 10
        F.embedding_backward(rows, y, out=out)
        F.cross_entropy(rows, y)
        F.nll_loss(rows, y)
        print(size, status("VmHWM") - before)
    """)
    size, extra = map(int, out.split())
    # The operators keep a few bytes for each position.
    assert extra < size / 3, f"{extra} KiB more at the peak, the input has {size}"


def test_linear_cross_entropy_takes_memory_that_does_not_grow_with_the_vocabulary():
    """512 x 200,000 logits would be 400 MB, their gradient as much. The least workspace, for the loss and for gradients
    that are there."""

    def extra(v, call):
        return int(
            run(f"""
            x, W, y = large(512, 64, {v})
            dx, dW = np.zeros_like(x), np.zeros_like(W)
            F.linear_cross_entropy(x, W[:1000], y % 1000, outputs=("loss", "grad_input", "grad_weight"))
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")  # the peak is that from now on
            before = status("VmHWM")
            {call}
            print(status("VmHWM") - before)
        """)
        )

    for call in (
        "F.linear_cross_entropy(x, W, y)",
        "F.linear_cross_entropy(x, W, y, max_workspace=0, outputs=('loss', 'grad_input', 'grad_weight'),"
        " out={'grad_input': dx, 'grad_weight': dW})",
    ):
        small, large = extra(20_000, call), extra(200_000, call)
        assert large < small + 4096, f"{call}: {small} KiB for 20,000 classes, {large} for 200,000"
        assert large < 512 * 20_000 * 4 // 1024, f"{call}: {large} KiB; the logits of 20,000 classes take less"
