"""Cross entropy, forward and backward in turn as in training, against the byte ceiling and PyTorch."""

import numpy as np

import losses
import report
from common import Side, clock, race
from losses import REDUCTIONS, Bytes, Lines, Problem, Shape

SHAPES = losses.SHAPES_2D + [Shape(32000, 8192), Shape(1000, 65536), Shape(50257, 4096)]
MEAN = REDUCTIONS.index("mean")

# The gradient of the loss: a scale as f16 needs to keep 1 / N of a probability above its smallest value.
GRAD = 16384.0
F16_MAX = 65504


def bar(record):
    """Per cent of the ceiling that a pass is to reach."""
    return 80 if not record["H"] else 90 if record["C"] >= 150 else 75


class Step(Side):
    """A side that runs forward, then backward. Both return nanoseconds."""

    def __init__(self, dirty, forward, backward):
        super().__init__(dirty, self.both)
        self.forward, self.backward, self.parts = forward, backward, []

    def both(self):
        self.parts.append((self.forward(), self.backward()))
        return sum(self.parts[-1])

    def passes(self):
        """[(name, side)]: the passes as sides of their own, and the whole. A first run that did not count is left
        out."""
        found = []
        for i, name in enumerate(("forward", "backward")):
            side = Side(None, None)
            side.times, side.faults = [part[i] for part in self.parts[-len(self.times):]], self.faults
            found.append((name, side))
        return found + [("both", self)]


class TorchStep:
    """cross_entropy and its gradient by autograd, both results allocated in each step."""

    def __init__(self, bench, logits, target, dtype, dirty):
        self.torch, self.target, self.dirty_block = bench.torch, target, dirty
        self.logits = logits.requires_grad_()
        self.upstream = self.torch.tensor(GRAD, dtype=logits.dtype)
        self.loss = self.last = None

    def dirty(self):
        if self.last is not None:
            self.dirty_block(self.last.data_ptr(), self.last.numel() * self.last.element_size())
            self.last = None

    def forward(self):
        with self.torch.enable_grad():
            ns, self.loss = clock(lambda: self.torch.nn.functional.cross_entropy(self.logits, self.target))
        return ns

    def backward(self):
        ns, (self.last,) = clock(lambda: self.torch.autograd.grad(self.loss, self.logits, self.upstream))
        return ns


def check(memory, dtype, shape, classes, loss, torch_step):
    """Both sides against the formula in f64, at the first positions, and their losses against one another."""
    few = (0, slice(0, max(4096 // shape.W, 1))) if shape.H else (slice(0, 8),)
    by_class = (few[0], slice(None), *few[1:])
    part = lambda buffer: dtype.widen(buffer.array(dtype.storage, shape.dims)[by_class]).astype(np.float64)
    axis = 0 if shape.H else 1
    z, y = part(memory.input), classes[few]
    shifted = z - z.max(axis=axis, keepdims=True)
    lse = np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    p, hot = np.exp(shifted - lse), np.moveaxis(np.arange(shape.C) == y[..., None], -1, axis)
    exact = (p - hot) * GRAD / shape.positions
    unit = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}[dtype.name]
    # The library's: a few roundings of f32 on the way to p, whose error is that of its exponent; one to the dtype, or
    # half the smallest subnormal of f16. The smaller of p and 1 does not cancel: the bound counts both.
    scale = (p + hot) * GRAD / shape.positions
    size = np.abs(lse + z.max(axis=axis, keepdims=True)).max() + np.abs(z).max()
    arithmetic = (16 + shape.C / 1024) * 2.0**-24 * size
    compare("the gradient", part(memory.out), exact, (unit + arithmetic) * scale + 2.0**-25 * (dtype.name == "f16"))
    if torch_step is None or (dtype.name == "f16" and shape.positions > F16_MAX):
        return  # PyTorch's total weight is infinite there
    # PyTorch rounds the log-probabilities to the dtype, and the loss's terms with them; its sums have longer chains.
    theirs = torch_step.last[by_class].float().numpy()
    coarse = 4 * (unit * (1 + size) + 8 * arithmetic)
    compare("PyTorch's gradient", theirs, exact, coarse * scale + 2.0**-24 * (dtype.name == "f16"))
    if dtype.name != "f16":  # in which PyTorch's sum is infinite for more than some thousand positions
        compare("the loss, to PyTorch's", dtype.widen(loss).astype(np.float64), float(torch_step.loss), coarse * size)


def compare(what, got, exact, bound):
    off = np.abs(got - exact) - bound
    if not (off <= 0).all():
        worst = np.unravel_index(np.argmax(np.where(np.isnan(off), np.inf, off)), off.shape)
        exact, bound = (np.broadcast_to(x, off.shape)[worst] for x in (exact, bound))
        raise RuntimeError(f"{what} at {worst} is {got[worst]}, not {exact}: more off than rounding explains ({bound})")


def case(bench, memory, dtype, shape, kind, threads):
    """Records of forward, backward, and both."""
    native, torch = bench.native, bench.torch
    classes = losses.labels(kind, shape)
    tensor_bytes, lse_bytes = shape.elements * dtype.size, 4 * shape.positions
    moved = {"forward": Bytes(tensor_bytes + classes.nbytes, lse_bytes),
             "backward": Bytes(tensor_bytes + classes.nbytes + lse_bytes, tensor_bytes)}
    moved["both"] = Bytes(*(sum(getattr(m, n) for m in moved.values()) for n in ("read", "data")))

    def dirty(address, size):
        bench.dirty(address, size, tensor_bytes, tensor_bytes, threads)

    one = lambda value: dtype.cast(np.array([value], np.float32))
    loss, upstream = one(0), one(GRAD)
    shared = {"reduction": MEAN, "input": memory.input.address}
    forward = native.prepare("cross_entropy", Problem(shape, dtype, classes, loss=loss, lse_out=memory.lse.address,
                                                      **shared))
    backward = native.prepare("cross_entropy_backward", Problem(shape, dtype, classes, grad_output=upstream,
                                                                lse=memory.lse.address, out=memory.out.address,
                                                                **shared))
    ours = Step(lambda: dirty(memory.out.address, tensor_bytes), lambda: native.timed_run(forward, threads),
                lambda: native.timed_run(backward, threads))
    sides, step = [ours], None
    if torch:
        torch.set_num_threads(threads)
        logits = dtype.tensor(torch, memory.input.array(dtype.storage, shape.dims))
        step = TorchStep(bench, logits, torch.from_numpy(classes), dtype, dirty)
        theirs = Step(step.dirty, step.forward, step.backward)
        sides.append(theirs)
    race(sides)
    if threads == bench.threads[-1]:
        check(memory, dtype, shape, classes, loss, step)
    records = []
    for i, (name, side) in enumerate(ours.passes()):
        plan = backward if name == "backward" else forward
        records.append(losses.record(bench, "cross_entropy", dtype, shape, threads, side, moved[name], plan,
                                     labels=kind, **{"pass": name}))
        if torch:
            losses.beside(records[-1], "PyTorch", theirs.passes()[i][1])
    native.free(forward)
    native.free(backward)
    return records


def cross_entropy(bench):
    options = bench.options
    cases, dtypes = losses.chosen(options, SHAPES), losses.dtypes(options)
    if not cases:
        return
    size = max(s.elements for s in cases) * max(d.size for d in dtypes)
    memory = losses.Memory(bench, input=size, out=size, lse=4 * max(s.positions for s in cases))
    print("\nCross entropy, mean, forward (loss and log-sum-exp), then backward. MB and GB/s by the bytes that have\n"
          "to move: logits and targets read in each pass, the gradient written; %ceil of the time that they take at\n"
          "the rates of this run; PyTorch: its time over ours, autograd's for the gradient.\n")
    lines, records = Lines(bench.threads, ["PyTorch"], ["labels", "pass"]), []
    for dtype in dtypes:
        losses.pattern(memory.input, dtype)
        for shape in cases:
            for kind in options.labels or ["blocky" if shape.H else "random"]:
                if kind == "blocky" and not shape.H:
                    continue
                bench.ceilings.refresh()
                for by_threads in zip(*(case(bench, memory, dtype, shape, kind, t) for t in bench.threads)):
                    lines.add(list(by_threads))
                    records += by_threads
    memory.free()
    for name in ("forward", "backward", "both"):
        losses.summary(f"cross entropy, {name}", [r for r in records if r["pass"] == name], ["PyTorch"], bar)
    report.write_csv(f"{options.out}/cross_entropy.csv", records)
    report.plot([r for r in records if r["pass"] == "both"], f"{options.out}/cross_entropy.png",
                "Cross entropy, forward + backward", "C", "PyTorch_ratio", (75, 90), 2)


# With the filters of the command line that it goes by.
TABLES = {"cross_entropy": (cross_entropy, losses.FILTERS)}
