"""Linear cross entropy against the FMA peak, bare matrix products, and PyTorch; its extra memory, and its loss."""

import statistics

import numpy as np

import common
import linear
import linear_peak
import losses
import report
from common import Buffer, DType, Side, clock, race, race_long
from cross_entropy import compare
from linear import MOST_TORCH_S, PRODUCTS, BareProducts, Definition, Shape, TorchStep, extrapolated_ns
from report import listed, milliseconds

SHAPES = [Shape(1024, 1024, 32768), Shape(2048, 2048, 50257), Shape(512, 4096, 128256), Shape(4096, 768, 50257),
          Shape(1024, 896, 151936)]
QUICK = [Shape(256, 512, 8192)]
MEMORY_N, MEMORY_H = 1024, 256
MEMORY_V = [8192, 16384, 32768, 65536, 131072, 262144]
SMALL = Shape(1, 64, 1000)

BUDGET_S = 60  # of a case; then three runs of each side have to do

LEVELS = (64, 85)  # per cent of the peak: products at 85, of which three of four count, or all of three

OTHERS = ["products", "PyTorch", "saving"]


def chosen(options, shapes):
    return [s for s in shapes if (not options.n or s.N in options.n) and (not options.v or s.V in options.v)
            and (not options.d or s.H in options.d)]


class Stages(Side):
    """A side whose run is several functions, each of which returns nanoseconds."""

    def __init__(self, dirty, stages):
        super().__init__(dirty, self.all)
        self.stages, self.parts = stages, []

    def all(self):
        self.parts.append({name: function() for name, function in self.stages.items()})
        return sum(self.parts[-1].values())

    def part(self, names):
        """Some of them, as a side of their own. A first run that did not count is left out."""
        side = Side(None, None)
        side.times = [sum(part[name] for name in names) for part in self.parts[-len(self.times):]]
        # What blocks PyTorch's sides hold and give back differs with the order of turns: a run may need a new one. The
        # median run does not.
        side.faults = [statistics.median(self.faults)]
        return side


class Rated(Side):
    """A side whose runs are compared with what the CPU computes just before or after, whichever is more: the clocks of
    shared hosts drift by some per cent within seconds."""

    def __init__(self, dirty, run, flops, peak):
        super().__init__(dirty, self.rated)
        self.bare, self.flops, self.peak, self.peaks = run, flops, peak, []

    def rated(self):
        before = self.peak()
        ns = self.bare()
        self.peaks.append(max(before, self.peak()))
        return ns

    def of_peak(self):
        """GFLOP/s of the peak, and the share of it. A first run that did not count is left out."""
        peaks = self.peaks[-len(self.times):]
        return statistics.median(peaks), statistics.median(self.flops / (ns * p) for ns, p in zip(self.times, peaks))


# The stages of others that do the same as a pass of ours.
SAME_WORK = {
    "forward": {"products": ["logits"], "PyTorch": ["forward"]},
    "backward": {"products": BareProducts.NAMES, "PyTorch": ["backward"]},
    "given": {"products": ["grad_input", "grad_weight"], "PyTorch": ["backward"]},
    "both": {"products": BareProducts.NAMES, "PyTorch": ["forward", "backward"], "saving": ["forward", "backward"]},
}
SAME_WORK["both in f32"] = SAME_WORK["both"]


def bytes_wanted(shape, dtype):
    """Of a case. Weight and gradient, for the others copies in f32 and four gradients, one of them in the making;
    probabilities, and for the others logits."""
    return shape.V * shape.H * (6 * dtype.size + 8) + shape.N * shape.V * (8 + 4 * dtype.size)


def arithmetic_of(native, plan):
    """Which of Ceilings.ARITHMETIC."""
    return "bf16 dot" if native.implementation(plan).decode() == "cpu:bf16" else "f32 FMA"


class Case:
    """A shape and dtype, for all numbers of threads."""

    def __init__(self, bench, shape, dtype):
        self.bench, self.shape, self.dtype = bench, shape, dtype
        target = bench.indices("zipf", shape.N, shape.V)
        self.tensors = linear.Tensors(bench.native, shape, dtype, target, with_probability=True)
        self.exact = Definition(self.tensors)
        self.loss_errors, self.extra = {}, {}

    def free(self):
        self.tensors.free()
        common.release_memory(self.bench.options.build)

    def dirty(self, address, size):
        tensors, threads = self.tensors, max(self.bench.threads)
        written = tensors.gradient_bytes
        self.bench.dirty(address, size, written, written, threads)

    def dirty_ours(self):
        for name in ("grad_input", "grad_weight"):
            buffer = self.tensors.buffers[name]
            self.dirty(buffer.address, buffer.size)

    def ours(self, name, plan, threads):
        native, kind = self.bench.native, arithmetic_of(self.bench.native, plan)
        return Rated(self.dirty_ours, lambda: native.timed_run(plan, threads), PRODUCTS[name] * self.shape.flops,
                     lambda: self.bench.ceilings.arithmetic(kind, threads))

    def run(self, threads):
        """Records by pass."""
        bench, native, torch, tensors = self.bench, self.bench.native, self.bench.torch, self.tensors
        bench.ceilings.refresh()
        names = linear.passes(self.dtype)
        plans = {name: tensors.prepare(name) for name in names}
        native.timed_run(plans["forward"], threads)  # backward reads the lse
        ours = {name: self.ours(name, plan, threads) for name, plan in plans.items()}
        others, products, steps, extrapolated = {}, None, {}, {}
        if torch:
            torch.set_num_threads(threads)
            products = BareProducts(torch, tensors)
            others["products"] = Stages(self.dirty_ours, {name: lambda name=name: products.run(name)
                                                          for name in BareProducts.NAMES})
        for name in TorchStep.available(torch):
            if ns := extrapolated_ns(torch, name, tensors):
                extrapolated[name] = ns
                continue
            steps[name] = TorchStep(torch, name, tensors, self.dirty)
            others[name] = Stages(steps[name].dirty, {"forward": steps[name].forward,
                                                      "backward": steps[name].backward})
        race_long([*ours.values(), *others.values()], BUDGET_S)
        if threads == bench.threads[-1]:
            self.check(plans, steps, threads)
        records = {}
        for name, side in ours.items():
            records[name] = self.record(name, threads, side, plans[name])
            for other, stages in SAME_WORK[name].items():
                if other in others:
                    losses.beside(records[name], other, others[other].part(stages))
                elif other in extrapolated and name.startswith("both"):
                    records[name] |= {f"{other}_ns": extrapolated[other], f"{other}_runs": 0,
                                      f"{other}_ratio": extrapolated[other] / side.median,
                                      f"{other}_note": f"extrapolated: over {MOST_TORCH_S} s"}
            if products:
                records[name]["products_by"] = products.kinds
            native.free(plans[name])
        if products:
            products.free()
        return records

    def record(self, name, threads, side, plan):
        native, (peak, share) = self.bench.native, side.of_peak()
        return {
            "operator": "linear_cross_entropy", "dtype": self.dtype.name, **self.shape._asdict(), "pass": name,
            "threads": threads, "implementation": native.implementation(plan).decode(),
            "instruction_set": native.instruction_set(plan).decode(), "scratch_bytes": native.scratch_bytes(plan),
            "flops": side.flops, "ns": side.median, "ns_best": min(side.times), "runs": len(side.times),
            "GFLOP_per_s": side.flops / side.median, "peak_of": arithmetic_of(native, plan), "peak_GFLOP_per_s": peak,
            "percent": 100 * share, "faults": max(side.faults),
        }

    def check(self, plans, steps, threads):
        """All sides against the definition, at some rows; how far losses are off it."""
        exact, tensors, native = self.exact, self.tensors, self.bench.native
        rows = exact.some_rows()
        unit = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}[self.dtype.name]
        # Of a logit's chain of H terms whose absolute values add to 0.64 sqrt(H) for these tensors, and of the lse,
        # which is off by no more; of the exponent; of chains over positions and classes. bf16 products round the
        # gradient of a logit.
        logit = self.shape.H**1.5 * 2.0**-24
        sums = (max(self.shape.N, self.shape.V) + 16) * 2.0**-24
        ours = 2 * logit + 2.0**-22 * exact.size + sums + unit
        for name, plan in plans.items():
            self.dirty_ours()
            native.timed_run(plan, threads)
            if name != "forward":
                self.compare_rows(name, {k: tensors.dtype.widen(tensors.array(k)[r[0]]) for k, r in rows.items()}, ours,
                                  unit, rows)
            if name in ("forward", "both"):
                self.loss_errors["ours"] = abs(float(tensors.loss[0]) - exact.loss) / exact.loss
        for name, step in steps.items():
            got = dict(zip(rows, step.gradients))
            self.loss_errors[name] = abs(float(step.loss) - exact.loss) / exact.loss
            # It rounds logits and log-probabilities to the dtype.
            coarse = 4 * (unit * (1 + exact.size) + 4 * ours)
            try:
                self.compare_rows(name, {k: got[k][r[0]].float().numpy() for k, r in rows.items()}, coarse, unit, rows)
            except RuntimeError as error:
                print(f"  PyTorch is far off: {error}")

    def compare_rows(self, name, got, relative, unit, rows):
        half_smallest = 2.0**-25 * (self.dtype.name == "f16")
        for gradient, (_, values, terms) in rows.items():
            compare(f"{gradient} of {name}, {self.dtype.name}, {self.shape}", got[gradient].astype(np.float64), values,
                    unit * np.abs(values) + relative * terms + half_smallest)

    def measure_extra(self, records):
        """Peak memory of each side, beyond tensors and results, with the most threads."""
        options, threads = self.bench.options, max(self.bench.threads)
        slow = {name for r in records.values() for name in TorchStep.FUNCTIONS if f"{name}_note" in r}
        for side in linear.passes(self.dtype) + [s for s in TorchStep.available(self.bench.torch) if s not in slow]:
            extra = linear_peak.measured(options.build, side, self.dtype, self.shape, threads)
            if extra is not None:
                self.extra[side] = extra

    def annotate(self, name, record):
        for side in [name, *(TorchStep.FUNCTIONS if name.startswith("both") else [])]:
            if side in self.extra:
                record[f"{'' if side == name else side + '_'}extra_bytes"] = self.extra[side]
        if name in ("forward", "both", "both in f32"):
            record |= {f"{side + '_' * (side != '')}loss_error": error for side, error in
                       (("" if k == "ours" else k, v) for k, v in self.loss_errors.items())}


class Lines:
    """The table, a line for each pass as soon as its case is measured."""

    def __init__(self, threads):
        self.side = " |{:>8} {:>7} {:>5} {:>8} {:>8} {:>8}"
        width = len(self.side.format(*[""] * 6))
        print(" " * len(self.case(None)) + "".join(f" | {t} thread{'s' * (t > 1)}".ljust(width) for t in threads))
        print(self.case(None) + "".join(self.side.format("ms", "GFLOP/s", "%peak", *OTHERS) for _ in threads)
              + (" | speedup" if len(threads) > 1 else ""))

    def case(self, record):
        cells = ["dtype", "N x H x V", "pass"] if record is None else [
            record["dtype"], str(Shape(*(record[name] for name in "NHV"))), record["pass"]]
        return "{:5} {:>20} {:11}".format(*cells)

    def add(self, records):
        line = self.case(records[0])
        for r in records:
            ratio = lambda other: (("~" * (f"{other}_note" in r) + f"{r[f'{other}_ratio']:.2f}")
                                   if f"{other}_ratio" in r else "-")
            line += self.side.format(milliseconds(r["ns"]), f"{r['GFLOP_per_s']:.0f}", f"{r['percent']:.0f}",
                                     *map(ratio, OTHERS))
        if len(records) > 1:
            records[-1]["speedup"] = records[0]["ns"] / records[-1]["ns"]
            line += f" | {records[-1]['speedup']:7.2f}"
        print(line, flush=True)


def mib(record, key):
    return f"{record[key] / common.MIB:.1f}" if key in record else "-"


def error_text(record, key):
    return f"{record[key]:.0e}" if key in record else "-"


def memory_and_losses(records):
    """A table of what does not depend on the number of threads."""
    print("\nExtra memory in MiB: peak resident memory of a process beyond inputs and results, while it runs once.\n"
          "Relative error of the loss against the definition in f64.\n")
    table = [["dtype, N x H x V", "pass", "scratch", "extra", "PyTorch's", "saving's", "loss error", "PyTorch's",
              "saving's"]]
    for r in records:
        table.append([f"{r['dtype']} {Shape(*(r[name] for name in 'NHV'))}", r["pass"], mib(r, "scratch_bytes"),
                      *(mib(r, key + "extra_bytes") for key in ("", "PyTorch_", "saving_")),
                      *(error_text(r, key + "loss_error") for key in ("", "PyTorch_", "saving_"))])
    print("\n".join(report.aligned(table)))


def case_name(record):
    shape = Shape(*(record[name] for name in "NHV"))
    return f"{record['dtype']} {shape} {record['pass']}, {record['threads']} thread{'s' * (record['threads'] > 1)}"


def summary(records):
    used = dict.fromkeys(f"{r['implementation']} ({r['instruction_set']})" for r in records)
    print(f"\nSummary of linear cross entropy, by {', '.join(used)}: medians (worst)")
    table = [["", "cases", "% of peak", *(f"{other} / ours" for other in OTHERS)]]
    for name in PRODUCTS:
        group = [r for r in records if r["pass"] == name]
        for title, some in losses.groups(group) if group else []:
            cells = []
            for key in ("percent", *(f"{other}_ratio" for other in OTHERS)):
                form = "{:.0f}" if key == "percent" else "{:.2f}"
                values = [r[key] for r in some if key in r]
                cells.append(f"{form.format(statistics.median(values))} ({form.format(min(values))})" if values
                             else "-")
            table.append([f"{name}, {title}", len(some), *cells])
    print("\n".join(report.aligned(table)))
    for other in OTHERS:
        lost = [r for r in records if r.get(f"{other}_ratio", 9) < 1]
        listed(f"Slower than {other}", [f"{r[f'{other}_ratio']:.2f}  {case_name(r)}, {milliseconds(r['ns'])} ms"
                                        for r in sorted(lost, key=lambda r: r[f"{other}_ratio"])])
    faults = {id(r): [r["faults"], *(r.get(f"{other}_faults", 0) for other in OTHERS)] for r in records}
    listed("Page faults in a timed run, whose time is therefore too long",
           [f"{', '.join(f'{n:.0f}' for n in faults[id(r)])}  {case_name(r)}" for r in records
            if max(faults[id(r)]) >= common.COLD_FAULTS])


def linear_cross_entropy(bench):
    options = bench.options
    shapes, dtypes = chosen(options, QUICK if options.quick else SHAPES), losses.dtypes(options)
    if not shapes:
        return
    print("\nLinear cross entropy, mean: forward (loss and log-sum-exp), backward (gradients of input and weight,\n"
          "logits computed once more), given (the same from probabilities that are there), both (loss and gradients\n"
          "in one call; in f32: with room for the gradient of the weight in f32). GFLOP/s count the fewest products\n"
          "that a pass can do with, 1, 3, 2 and 3, whatever ran; %peak is of f32 multiply-adds, or of bf16 products\n"
          "where those ran. Times over ours:\n"
          "products, the bare ones of the pass by the fastest that PyTorch brings; PyTorch, cross_entropy(linear);\n"
          "saving, linear_cross_entropy with options. ~: extrapolated from fewer classes, as it would take over\n"
          f"{MOST_TORCH_S} s.\n")
    lines, records, once = Lines(bench.threads), [], []
    for dtype in dtypes:
        for shape in shapes:
            if (wanted := bytes_wanted(shape, dtype)) > (room := common.memory_available() - common.GIB):
                print(f"{dtype.name:5} {str(shape):>20} left out: it takes {wanted / common.GIB:.1f} GiB of memory,"
                      f" there are {room / common.GIB:.1f}")
                continue
            case = Case(bench, shape, dtype)
            found = [case.run(t) for t in bench.threads]
            case.free()
            case.measure_extra(found[-1])
            for name in found[0]:
                by_threads = [by_pass[name] for by_pass in found]
                for record in by_threads:
                    case.annotate(name, record)
                lines.add(by_threads)
                records += by_threads
                once.append(by_threads[-1])
    if not records:
        return
    memory_and_losses(once)
    summary(records)
    report.write_csv(f"{options.out}/linear_cross_entropy.csv", records)
    report.plot([r for r in records if r["pass"] == "both"], f"{options.out}/linear_cross_entropy.png",
                "Linear cross entropy, loss and gradients", "V", "PyTorch_ratio", LEVELS, 1.15,
                x=lambda r: r["flops"] / 1e9, x_label="GFLOP that are necessary", y_label="achieved, % of the FMA peak")


def memory(bench):
    """Extra memory by the number of classes."""
    options, records = bench.options, []
    sizes = MEMORY_V[:2] if options.quick else [v for v in MEMORY_V if not options.v or v in options.v]
    # f16 takes the memory of bf16 here, and minutes there.
    dtypes = [d for d in losses.dtypes(options) if options.dtype or d.name != "f16"]
    print(f"\nLinear cross entropy, extra memory in MiB, N = {MEMORY_N}, H = {MEMORY_H}\n")
    for dtype in dtypes:
        sides = [s for s in linear.passes(dtype) if s.startswith("both")] + TorchStep.available(bench.torch)
        rows, failed = [[f"{dtype.name}, V", *sides]], set()  # once too slow, a side is not tried with more classes
        for V in sizes:
            shape, row = Shape(MEMORY_N, MEMORY_H, V), [V]
            for side in sides:
                extra = None
                if side not in failed:
                    extra = linear_peak.measured(options.build, side, dtype, shape, max(bench.threads))
                row.append("-" if extra is None else f"{extra / common.MIB:.1f}")
                if extra is None:
                    failed.add(side)
                else:
                    records.append({"dtype": dtype.name, **shape._asdict(), "side": side, "extra_bytes": extra})
            rows.append(row)
        print("\n".join(report.aligned(rows)) + "\n")
    report.write_csv(f"{options.out}/linear_cross_entropy_memory.csv", records)
    panels = {d.name: {} for d in dtypes}
    for r in records:
        panels[r["dtype"]].setdefault(r["side"], []).append((r["V"], r["extra_bytes"] / common.MIB))
    report.curves(panels, f"{options.out}/linear_cross_entropy_memory.png",
                  f"Linear cross entropy, {MEMORY_N} x {MEMORY_H}: memory beyond inputs and results", "V", "MiB")


def small(bench):
    """One position: nothing but the weight to read."""
    native, torch, times = bench.native, bench.torch, 200
    tensors = linear.Tensors(native, SMALL, DType("f32"), bench.indices("zipf", SMALL.N, SMALL.V))
    weight = Buffer(native, 4 * SMALL.H * SMALL.V)
    weight.tile(losses.values(DType("f32"), SMALL.H * SMALL.V), weight.size)
    print(f"\nLinear cross entropy, {SMALL}, f32, us. bare: as many multiply-adds as the products have, over a weight\n"
          "that lies in the L2 cache, one thread\n")
    rows, records = [["pass", "threads", "us", "bare", "ours / bare", "PyTorch"]], []
    for name in [p for p in linear.passes(DType("f32")) if p != "given"]:
        for threads in bench.threads:
            if torch:
                torch.set_num_threads(threads)
            plan = tensors.prepare(name)
            sides = [Side(lambda: None, lambda: native.timed_run(plan, threads, times)),
                     Side(lambda: None, lambda: native.multiply_add(weight.address, SMALL.H * SMALL.V,
                                                                    PRODUCTS[name] * times))]
            if torch and name == "both":
                step = TorchStep(torch, "PyTorch", tensors, None)
                sides.append(Side(lambda: None, lambda: clock(lambda: [(step.forward(), step.backward())
                                                                       for _ in range(times)])[0]))
            race(sides)
            us = [side.median / times / 1000 for side in sides]
            rows.append([name, threads, *(f"{u:.2f}" for u in us[:2]), f"{us[0] / us[1]:.2f}",
                         f"{us[2]:.1f}" if us[2:] else "-"])
            records.append({"pass": name, **SMALL._asdict(), "dtype": "f32", "threads": threads, "us": us[0],
                            "bare_us": us[1], **({"PyTorch_us": us[2]} if us[2:] else {})})
            native.free(plan)
    tensors.free()
    weight.free()
    print("\n".join(report.aligned(rows)))
    report.write_csv(f"{bench.options.out}/linear_cross_entropy_small.csv", records)


# With the filters of the command line that they go by.
TABLES = {
    "linear_cross_entropy": (linear_cross_entropy, {"n", "v", "d", "dtype"}),
    "linear_cross_entropy_memory": (memory, {"v", "dtype"}),
    "linear_cross_entropy_small": (small, set()),
}
