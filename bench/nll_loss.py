"""NLL loss and its gradient against the byte ceiling, PyTorch, and memset and scatter."""

import numpy as np

import common
import losses
import report
from common import Side, TorchResult, race
from losses import LABELS, LINE, REDUCTIONS, TARGETS, Bytes, Lines, Problem, Shape

SHAPES_1D = [Shape(32000, 8192), Shape(1000, 65536)]

# Taken as they are given, and such that the quotient is exact in every dtype.
GRAD, TOTAL_WEIGHT = 1.5, 1024


def target_types(options, shape):
    return [t for t in options.target or TARGETS if t == "i64" or shape.C <= 256]


def bar(record):
    """Per cent of the ceiling that the gradient is to reach. Where lines of zeros are cheaper than others, the ceiling
    is one of zeros, which nothing that computes reaches."""
    if not record["H"]:
        return 80
    cheap = record["NT_zero_GB_per_s"] > 1.5 * record["NT_store_GB_per_s"]
    if record["C"] >= 150:
        return 80 if cheap else 90
    return 45 if cheap else 75


def same(bench, ours, theirs):
    torch = bench.torch
    return torch.equal(torch.from_numpy(ours), torch.from_numpy(theirs)) if torch else np.array_equal(ours, theirs)


class Gradient:
    """The sides of one gradient: ours and memset and scatter for each type of targets, PyTorch for i64, which is the
    only one that its 2-D operator takes."""

    def __init__(self, bench, memory, dtype, shape, kind, reduction, channels_last=False):
        self.bench, self.memory, self.dtype, self.shape = bench, memory, dtype, shape
        self.kind, self.reduction, self.channels_last = kind, reduction, channels_last
        self.out_bytes = shape.elements * dtype.size
        one = lambda value: dtype.cast(np.array([value], np.float32))
        none = reduction == "none"
        self.grad = losses.values(dtype, shape.target_dims) if none else one(GRAD)
        self.total_weight = one(TOTAL_WEIGHT)
        value = dtype.widen(self.grad) / (TOTAL_WEIGHT if reduction == "mean" else 1)
        self.scattered = dtype.cast(-value)
        self.lines = losses.named_lines(kind, shape, dtype.size, channels_last)
        self.arrays = []  # of targets, which plans point to

    def moved(self, target):
        read = self.shape.positions * np.dtype(TARGETS[target]).itemsize
        if self.reduction == "none":
            read += self.grad.nbytes
        return Bytes(read, self.lines * LINE, self.out_bytes - self.lines * LINE)

    def problem(self, target, out):
        self.arrays.append(losses.labels(self.kind, self.shape).astype(TARGETS[target]))
        return Problem(self.shape, self.dtype, self.arrays[-1], reduction=REDUCTIONS.index(self.reduction),
                       channels_last=self.channels_last, grad_output=self.grad, total_weight=self.total_weight,
                       out=out.address)

    def dirty(self, target, threads):
        moved = self.moved(target)
        return lambda address, size: self.bench.dirty(address, size, moved.read, moved.written, threads)

    def ours(self, target, threads):
        native, out, dirty = self.bench.native, self.memory.out, self.dirty(target, threads)
        plan = native.prepare("nll_loss_backward", self.problem(target, out))
        return plan, Side(lambda: dirty(out.address, self.out_bytes), lambda: native.timed_run(plan, threads))

    def scatter(self, target, threads):
        native, out, dirty = self.bench.native, self.memory.other, self.dirty(target, threads)
        problem, values, one = self.problem(target, out), self.scattered, self.reduction != "none"
        return Side(lambda: dirty(out.address, self.out_bytes),
                    lambda: native.scatter(problem, values.ctypes.data, one, threads))

    def torch(self, threads):
        """As a TorchResult: input's values are not looked at, but there has to be one."""
        torch, dtype, shape = self.bench.torch, self.dtype, self.shape
        torch.set_num_threads(threads)
        tensor = lambda array: dtype.tensor(torch, array)
        grad = tensor(self.grad) if self.reduction == "none" else tensor(self.grad)[0]
        total_weight = tensor(self.total_weight)[0]
        logits = tensor(self.memory.input.array(dtype.storage, shape.dims))
        target = torch.from_numpy(losses.labels(self.kind, shape))
        operator = torch.ops.aten.nll_loss2d_backward if shape.H else torch.ops.aten.nll_loss_backward
        reduction = REDUCTIONS.index(self.reduction)
        return TorchResult(lambda: operator(grad, logits, target, None, reduction, -100, total_weight),
                           self.dirty("i64", threads))

    def check(self, plans, torch_result):
        """All sides did the same work. Nothing in it rounds, so the results are equal bit by bit."""
        bits = {4: np.int32, 2: np.int16}[self.dtype.size]
        out, other = (b.array(bits, self.shape.dims) for b in (self.memory.out, self.memory.other))
        if torch_result is not None:
            theirs = torch_result.last.view(self.bench.torch.int32 if self.dtype.size == 4 else self.bench.torch.int16)
            if not same(self.bench, theirs.numpy(), other):
                raise RuntimeError("PyTorch's gradient is not what memset and scatter give")
        for plan in plans:
            self.bench.native.dirty(self.memory.out.address, self.out_bytes, 0, max(self.bench.threads))
            self.bench.native.timed_run(plan, max(self.bench.threads))
            if not same(self.bench, out, other):
                raise RuntimeError("the gradient is not what memset and scatter give")

    def check_channels_last(self, plan):
        """The values at the classes, and nothing else that is not 0."""
        self.bench.native.dirty(self.memory.out.address, self.out_bytes, 0, max(self.bench.threads))
        self.bench.native.timed_run(plan, max(self.bench.threads))
        out = self.memory.out.array(self.dtype.storage, (self.shape.positions, self.shape.C))
        named = out[np.arange(self.shape.positions), losses.labels(self.kind, self.shape).reshape(-1)]
        if not (named == self.scattered.reshape(-1)).all() or np.count_nonzero(out) != self.shape.positions:
            raise RuntimeError("the gradient in channels_last memory is wrong")


def gradient_case(bench, memory, dtype, shape, kind, reduction, targets, threads):
    """Records by type of targets."""
    case = Gradient(bench, memory, dtype, shape, kind, reduction)
    ours = {t: case.ours(t, threads) for t in targets}
    scatter = {t: case.scatter(t, threads) for t in targets}
    sides = [side for _, side in ours.values()] + list(scatter.values())
    result = case.torch(threads) if bench.torch else None
    if result:
        theirs = Side(result.dirty, result.run)
        sides.append(theirs)
    race(sides)
    if threads == bench.threads[-1]:
        case.check([plan for plan, _ in ours.values()], result)
    records = {}
    for t, (plan, side) in ours.items():
        records[t] = losses.record(bench, "nll_loss_backward", dtype, shape, threads, side, case.moved(t), plan,
                                   labels=kind, targets=t, reduction=reduction)
        losses.beside(records[t], "scatter", scatter[t])
        if result:
            losses.beside(records[t], "PyTorch", theirs)
        bench.native.free(plan)
    return records


def gradients(bench, shapes, kinds, reductions, title):
    options = bench.options
    cases, dtypes = losses.chosen(options, shapes), losses.dtypes(options)
    if not cases:
        return []
    size = max(s.elements for s in cases) * max(d.size for d in dtypes)
    memory = losses.Memory(bench, out=size, other=size, input=size if bench.torch else 0)
    print(f"\n{title}. MB and GB/s by the bytes that have to move; %ceil of the time that they take at the\n"
          "rates of this run, lines of zeros at their own (c: all of it fits the last cache); scatter, PyTorch: their\n"
          "times over ours. PyTorch's targets are i64 throughout.\n")
    lines, records = Lines(bench.threads, ["scatter", "PyTorch"]), []
    for dtype in dtypes:
        for shape in cases:
            targets = target_types(options, shape)
            for kind in kinds:
                for reduction in reductions:
                    bench.ceilings.refresh()
                    found = [gradient_case(bench, memory, dtype, shape, kind, reduction, targets, t)
                             for t in bench.threads]
                    for t in targets:
                        lines.add([by_target[t] for by_target in found])
                        records += [by_target[t] for by_target in found]
    memory.free()
    return records


def finish(bench, name, title, records, others, bar=None, wanted=4):
    losses.summary(title, records, others, bar)
    if records:
        report.write_csv(f"{bench.options.out}/{name}.csv", records)
        report.plot(records, f"{bench.options.out}/{name}.png", title, "C", "PyTorch_ratio", (45, 75, 90), wanted)


def backward(bench):
    options = bench.options
    reductions = options.reduction or (["mean"] if options.quick else REDUCTIONS)
    records = gradients(bench, losses.SHAPES_2D, options.labels or LABELS, reductions, "NLL loss backward, 2-D")
    finish(bench, "nll_loss_backward", "NLL loss backward, 2-D", records, ["scatter", "PyTorch"], bar)


def backward_1d(bench):
    records = gradients(bench, SHAPES_1D, ["random"], bench.options.reduction or ["mean"], "NLL loss backward, [N, C]")
    finish(bench, "nll_loss_backward_1d", "NLL loss backward, [N, C]", records, ["scatter", "PyTorch"], bar)


def backward_channels_last(bench):
    options = bench.options
    cases, dtypes = losses.chosen(options, losses.SHAPES_2D), losses.dtypes(options)
    if not cases:
        return
    memory = losses.Memory(bench, out=max(s.elements for s in cases) * max(d.size for d in dtypes))
    print("\nNLL loss backward, 2-D, mean, into channels_last memory. NCHW: the time with dense memory over ours\n")
    lines, records = Lines(bench.threads, ["NCHW"]), []
    for dtype in dtypes:
        for shape in cases:
            for kind in options.labels or LABELS:
                bench.ceilings.refresh()
                found = []
                for threads in bench.threads:
                    case = Gradient(bench, memory, dtype, shape, kind, "mean", channels_last=True)
                    dense_case = Gradient(bench, memory, dtype, shape, kind, "mean")
                    (plan, side), (dense_plan, dense) = case.ours("i64", threads), dense_case.ours("i64", threads)
                    race([side, dense])
                    if threads == bench.threads[-1]:
                        case.check_channels_last(plan)
                    found.append(losses.record(bench, "nll_loss_backward_channels_last", dtype, shape, threads, side,
                                               case.moved("i64"), plan, labels=kind, targets="i64", reduction="mean"))
                    losses.beside(found[-1], "NCHW", dense)
                    bench.native.free(plan)
                    bench.native.free(dense_plan)
                lines.add(found)
                records += found
    memory.free()
    losses.summary("NLL loss backward, channels_last", records, ["NCHW"])
    report.listed("Above 1.3 x the time of NCHW", [f"{1 / r['NCHW_ratio']:.2f}  {losses.case_name(r)}" for r in records
                                                   if r["NCHW_ratio"] < 1 / 1.3])
    report.write_csv(f"{options.out}/nll_loss_backward_channels_last.csv", records)


def forward_case(bench, memory, dtype, shape, kind, targets, threads):
    native, torch = bench.native, bench.torch
    classes = losses.labels(kind, shape)
    arrays = {t: classes.astype(TARGETS[t]) for t in targets}
    lines = losses.named_lines(kind, shape, dtype.size)
    moved = {t: Bytes(arrays[t].nbytes + lines * LINE) for t in targets}
    loss, total_weight = (dtype.cast(np.zeros(1, np.float32)) for _ in range(2))
    plans, sides = {}, {}
    for t in targets:
        plans[t] = native.prepare("nll_loss", Problem(shape, dtype, arrays[t], input=memory.input.address, loss=loss,
                                                      total_weight=total_weight, reduction=REDUCTIONS.index("mean")))
        # Nothing large is written, but what was read has to leave the caches.
        sides[t] = Side(lambda t=t: bench.dirty(loss.ctypes.data, loss.nbytes, moved[t].read, 0, threads),
                        lambda t=t: native.timed_run(plans[t], threads))
    theirs = None
    if torch:
        torch.set_num_threads(threads)
        logits = dtype.tensor(torch, memory.input.array(dtype.storage, shape.dims))
        target = torch.from_numpy(classes)
        result = TorchResult(lambda: torch.ops.aten.nll_loss2d_forward(logits, target, None, 1, -100)[0],
                             lambda address, size: bench.dirty(address, size, moved[targets[0]].read, 0, threads))
        theirs = Side(result.dirty, result.run)
    race([*sides.values()] + ([theirs] if theirs else []))
    if threads == bench.threads[-1]:
        check_mean(memory, dtype, shape, classes, loss, result.last if torch else None)
    records = {}
    for t in targets:
        records[t] = losses.record(bench, "nll_loss", dtype, shape, threads, sides[t], moved[t], plans[t], labels=kind,
                                   targets=t, reduction="mean")
        if theirs:
            losses.beside(records[t], "PyTorch", theirs)
        native.free(plans[t])
    return records


def check_mean(memory, dtype, shape, classes, loss, torch_loss):
    pixels = shape.H * shape.W
    flat = memory.input.array(dtype.storage, shape.elements)
    image, pixel = np.divmod(np.arange(shape.positions), pixels)
    terms = dtype.widen(flat[(image * shape.C + classes.reshape(-1)) * pixels + pixel]).astype(np.float64)
    exact, ours = -terms.mean(), float(dtype.widen(loss)[0])
    # One rounding of ours, and half the smallest subnormal of f16; the sum in f64 has an error that is smaller by far.
    if not abs(ours - exact) <= {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}[dtype.name] * abs(exact) + 2.0**-25:
        raise RuntimeError(f"the mean is {ours}, not {exact}")
    # PyTorch's total weight overflows f16, and its 16-bit sums are coarse. In f32 it adds in cascades, whose chains are
    # some hundred terms long.
    if torch_loss is not None and dtype.name == "f32":
        if not abs(float(torch_loss) - exact) <= 1024 * 2.0**-24 * np.abs(terms).mean():
            raise RuntimeError(f"PyTorch's mean is {float(torch_loss)}, not {exact}")


def forward(bench):
    options = bench.options
    cases, dtypes = losses.chosen(options, losses.SHAPES_2D), losses.dtypes(options)
    if not cases:
        return
    memory = losses.Memory(bench, input=max(s.elements for s in cases) * max(d.size for d in dtypes))
    print("\nNLL loss, 2-D, mean. MB and GB/s by the targets and the lines of input that hold an element of a\n"
          "target's class; %ceil of the time that they take at the rate of reading memory in order (c: all of it\n"
          "fits the last cache); PyTorch: its time over ours, with targets in i64.\n")
    lines, records = Lines(bench.threads, ["PyTorch"]), []
    for dtype in dtypes:
        losses.pattern(memory.input, dtype)
        for shape in cases:
            targets = target_types(options, shape)
            for kind in options.labels or LABELS:
                bench.ceilings.refresh()
                found = [forward_case(bench, memory, dtype, shape, kind, targets, t) for t in bench.threads]
                for t in targets:
                    lines.add([by_target[t] for by_target in found])
                    records += [by_target[t] for by_target in found]
    memory.free()
    finish(bench, "nll_loss", "NLL loss, 2-D, mean", records, ["PyTorch"], wanted=2)


GRADIENT_FILTERS = losses.FILTERS | {"target", "reduction"}

# With the filters of the command line that each goes by.
TABLES = {
    "nll_loss_backward": (backward, GRADIENT_FILTERS),
    "nll_loss_backward_1d": (backward_1d, GRADIENT_FILTERS - {"labels"}),
    "nll_loss_backward_channels_last": (backward_channels_last, losses.FILTERS),
    "nll_loss": (forward, losses.FILTERS | {"target"}),
}
