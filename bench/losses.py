"""What the benchmarks of losses over a class axis share: shapes, labels, memory, tables."""

import ctypes
import functools
import statistics
from typing import NamedTuple

import numpy as np

import common
import report
from common import Buffer, DType
from report import listed, milliseconds, spread

LABELS = ["random", "blocky"]
TARGETS = {"i64": np.int64, "u8": np.uint8}
REDUCTIONS = ["none", "mean", "sum"]  # by number
FILTERS = {"c", "labels", "dtype"}
LINE = 64


class Shape(NamedTuple):
    """[N, C, H, W], or [N, C] with H = W = 0."""

    C: int
    N: int
    H: int = 0
    W: int = 0

    @property
    def positions(self):
        return self.N * self.H * self.W if self.H else self.N

    @property
    def elements(self):
        return self.positions * self.C

    @property
    def dims(self):
        return (self.N, self.C, self.H, self.W) if self.H else (self.N, self.C)

    @property
    def target_dims(self):
        return (self.N, self.H, self.W) if self.H else (self.N,)

    def __str__(self):
        return f"{self.N} x {self.H} x {self.W}" if self.H else str(self.N)


SHAPES_2D = [Shape(21, 8, 512, 512), Shape(150, 2, 512, 512), Shape(1000, 4, 64, 64), Shape(19, 2, 1024, 1024),
             Shape(4, 1, 2048, 2048)]
QUICK_C = [21, 1000]


def chosen(options, shapes):
    wanted = options.c or (QUICK_C if options.quick else None)
    return [s for s in shapes if wanted is None or s.C in wanted]


def dtypes(options):
    return [DType(name) for name in options.dtype or (["f32", "bf16"] if options.quick else common.DTYPES)]


@functools.lru_cache(maxsize=16)
def labels(kind, shape):
    """Classes of all positions, i64.

    random    every class alike
    blocky    rectangles with sides of 10 to 90 pixels painted over one another, as the objects of a segmentation map
    """
    rng = np.random.default_rng(shape.positions * 1000003 + shape.C)
    if kind == "random":
        return rng.integers(0, shape.C, shape.target_dims)
    maps = np.empty(shape.target_dims, np.int64)
    for image in maps:
        image[:] = rng.integers(0, shape.C)
        # Three layers of rectangles of 50 x 50 on the mean leave 5 % of the background.
        for _ in range(3 * shape.H * shape.W // 2500 + 4):
            height, width = rng.integers(10, 91, 2)
            y, x = rng.integers(-45, shape.H), rng.integers(-45, shape.W)
            image[max(y, 0):y + height, max(x, 0):x + width] = rng.integers(0, shape.C)
    return maps


@functools.lru_cache(maxsize=64)
def named_lines(kind, shape, size, channels_last=False):
    """How many lines of a dense [N, C, H, W] hold the element of some position's class."""
    classes, a_line = labels(kind, shape), LINE // size
    if shape.H and not channels_last:
        assert shape.H * shape.W % a_line == 0  # a line lies in one plane, and holds one class of a_line pixels
        by_line = np.sort(classes.reshape(-1, a_line), axis=1)
        return len(by_line) + np.count_nonzero(by_line[:, 1:] != by_line[:, :-1])
    lines = (np.arange(shape.positions) * shape.C + classes.reshape(-1)) // a_line  # ascending
    return 1 + np.count_nonzero(lines[1:] != lines[:-1])


class Bytes:
    """What has to move at least, and the time that takes at the ceilings."""

    def __init__(self, read, data=0, zeros=0):
        self.read, self.data, self.zeros = read, data, zeros
        self.written, self.all = data + zeros, read + data + zeros

    def ceiling_ns(self, ceilings, threads):
        return (self.read / ceilings.rate("read", threads) + self.data / ceilings.rate("NT store", threads)
                + self.zeros / ceilings.rate("NT zero", threads))


class Problem(ctypes.Structure):
    """onehot_bench_loss."""

    _fields_ = ([(n, ctypes.c_char_p) for n in ("dtype", "target_dtype")]
                + [(n, ctypes.c_int64) for n in "NCHW"]
                + [(n, ctypes.c_int) for n in ("reduction", "channels_last")]
                + [(n, ctypes.c_void_p) for n in ("input", "target", "grad_output", "lse", "loss", "lse_out",
                                                  "total_weight", "out")])

    def __init__(self, shape, dtype, target, **fields):
        """`target`: an array. Those of `fields` that are arrays must outlive the plan."""
        name = next(name for name, storage in TARGETS.items() if storage == target.dtype)
        super().__init__(dtype=dtype.name.encode(), target_dtype=name.encode(), N=shape.N, C=shape.C, H=shape.H,
                         W=shape.W, target=target.ctypes.data,
                         **{k: v.ctypes.data if isinstance(v, np.ndarray) else v for k, v in fields.items()})

    @property
    def _as_parameter_(self):
        return ctypes.byref(self)


class Memory:
    """Buffers for all cases, as large as the largest needs: no case pays for first touches."""

    def __init__(self, bench, **sizes):
        room = common.memory_available() - common.GIB
        if sum(sizes.values()) > room:
            raise SystemExit(f"bench: {sum(sizes.values()) / common.GIB:.1f} GiB of memory, there are"
                             f" {room / common.GIB:.1f}: choose fewer classes with --c, or a narrower --dtype")
        self.buffers = {name: Buffer(bench.native, size) for name, size in sizes.items()}
        self.__dict__.update(self.buffers)

    def free(self):
        for buffer in self.buffers.values():
            buffer.free()


def values(dtype, shape, seed=7):
    """Standard normal."""
    return dtype.cast(np.random.default_rng(seed).standard_normal(shape, dtype=np.float32))


def pattern(buffer, dtype):
    # The length is prime, so that no two rows or planes are alike.
    buffer.tile(values(dtype, 1000003), buffer.size)


# ---- records and tables


def record(bench, operator, dtype, shape, threads, side, moved, plan, **more):
    """The columns of every table of losses. `more`: those of this one."""
    native, ceiling = bench.native, moved.ceiling_ns(bench.ceilings, threads)
    return {
        "operator": operator, "dtype": dtype.name, "C": shape.C, "N": shape.N, "H": shape.H, "W": shape.W, **more,
        "threads": threads, "implementation": native.implementation(plan).decode(),
        "instruction_set": native.instruction_set(plan).decode(), "scratch_bytes": native.scratch_bytes(plan),
        "bytes_read": moved.read, "bytes_data": moved.data, "bytes_zero": moved.zeros,
        "in_cache": int(bench.fits_cache(moved.read, moved.written)),
        "ns": side.median, "ns_best": min(side.times), "runs": len(side.times), "ceiling_ns": ceiling,
        "GB_per_s": moved.all / side.median, "ceiling_GB_per_s": moved.all / ceiling,
        "percent": 100 * ceiling / side.median, "faults": max(side.faults),
        **{kind.replace(" ", "_") + "_GB_per_s": bench.ceilings.rate(kind, threads)
           for kind in ("read", "NT store", "NT zero")},
    }


def beside(record, prefix, side):
    """Another side that ran the same case: its time, and how many times ours it is."""
    record |= {f"{prefix}_ns": side.median, f"{prefix}_runs": len(side.times), f"{prefix}_faults": max(side.faults),
               f"{prefix}_ratio": side.median / record["ns"]}


def case_name(record):
    shape = Shape(*(record[name] for name in "CNHW"))
    words = [record["dtype"], f"C {shape.C}", str(shape)]
    words += [record[name] for name in ("labels", "targets", "reduction", "pass") if name in record]
    return " ".join(words) + f", {record['threads']} thread{'s' * (record['threads'] > 1)}"


class Lines:
    """A table whose lines come as they are measured: what the case is, then for each number of threads the time, the
    rate, the share of the ceiling, and how many times as long the others take."""

    def __init__(self, threads, others, columns=("labels", "targets", "reduction")):
        self.others, self.columns = others, columns
        self.side = " |{:>8} {:>6} {:>5}" + " {:>8}" * len(others)
        blank = " " * len(self.case(None))
        width = len(self.side.format(*[""] * (3 + len(others))))
        print(blank + "".join(f" | {t} thread{'s' * (t > 1)}".ljust(width) for t in threads))
        print(self.case(None) + "".join(self.side.format("ms", "GB/s", "%ceil", *others) for _ in threads)
              + (" | speedup (ceiling)" if len(threads) > 1 else ""))

    def case(self, record):
        """None: the names of the columns."""
        if record is None:
            cells = ["dtype", "C", "positions", *self.columns, "MB"]
        else:
            moved = record["bytes_read"] + record["bytes_data"] + record["bytes_zero"]
            cells = [record["dtype"], record["C"], str(Shape(*(record[name] for name in "CNHW"))),
                     *(record[name] for name in self.columns), f"{moved / 1e6:.1f}"]
        return ("{:5} {:>5} {:>15}" + " {:9}" * len(self.columns) + " {:>7}").format(*cells)

    def add(self, records):
        """The records of one case, by threads."""
        line = self.case(records[0])
        for r in records:
            line += self.side.format(
                milliseconds(r["ns"]), f"{r['GB_per_s']:.1f}", f"{r['percent']:.0f}" + "c" * r["in_cache"],
                *(f"{r[f'{other}_ratio']:.2f}" if f"{other}_ratio" in r else "-" for other in self.others))
        if len(records) > 1:
            records[-1]["speedup"] = records[0]["ns"] / records[-1]["ns"]
            records[-1]["ceiling_speedup"] = records[0]["ceiling_ns"] / records[-1]["ceiling_ns"]
            line += f" | {records[-1]['speedup']:7.2f} {'(%.2f)' % records[-1]['ceiling_speedup']:>9}"
        print(line, flush=True)


def groups(records):
    """[(title, records)]"""
    found = [("all", records)]
    for key, form in [("threads", "threads: {}"), ("dtype", "{}"), ("C", "C = {}"), ("labels", "{}"),
                      ("targets", "{}"), ("reduction", "{}")]:
        found += [(form.format(value), [r for r in records if r.get(key) == value])
                  for value in dict.fromkeys(r[key] for r in records if key in r)]
        if found[-1][1] == records and len(found) > 1:
            found.pop()
    return found


def summary(title, records, others, bar=None):
    """`bar`: the share of the ceiling, by class count, below which a case is listed; None to leave that out."""
    if not records:
        return
    others = [other for other in others if any(f"{other}_ratio" in r for r in records)]
    used = dict.fromkeys(f"{r['implementation']} ({r['instruction_set']})" for r in records)
    print(f"\nSummary of {title}, by {', '.join(used)}")
    table = [["", "cases", "% of ceiling: median", "worst"] + (["under the bar"] if bar else [])
             + [cell for other in others for cell in (f"{other} / ours: median", "worst", "losses")]]
    for name, group in groups(records):
        percent = [r["percent"] for r in group]
        line = [name, len(group), f"{statistics.median(percent):.0f}", f"{min(percent):.0f}"]
        line += [sum(r["percent"] < bar(r) for r in group)] if bar else []
        for other in others:
            ratio = [r[f"{other}_ratio"] for r in group if f"{other}_ratio" in r]
            line += ([f"{statistics.median(ratio):.2f}", f"{min(ratio):.2f}", sum(x < 1 for x in ratio)] if ratio
                     else ["-", "-", "-"])
        table.append(line)
    print("\n".join(report.aligned(table)))
    speedups = [r for r in records if "speedup" in r]
    if speedups:
        n = speedups[0]["threads"]
        print(f"\n1 -> {n} threads: {spread([r['speedup'] for r in speedups])}; of what the ceiling allows: "
              + spread([r["speedup"] / min(r["ceiling_speedup"], n) for r in speedups]))
    if bar:
        listed("Under the bar, % of the ceiling",
                      [f"{r['percent']:3.0f} of {bar(r)}  {case_name(r)}, {milliseconds(r['ns'])} ms"
                       for r in sorted(records, key=lambda r: r["percent"] / bar(r)) if r["percent"] < bar(r)])
    for other in others:
        lost = [r for r in records if r.get(f"{other}_ratio", 9) < 1]
        listed(f"Slower than {other}", [f"{r[f'{other}_ratio']:.2f}  {case_name(r)}, {milliseconds(r['ns'])} ms"
                                               for r in sorted(lost, key=lambda r: r[f"{other}_ratio"])])
    faults = {id(r): [r["faults"]] + [r.get(f"{other}_faults", 0) for other in others] for r in records}
    listed("Page faults in a timed run, whose time is therefore too long",
                  [f"{', '.join(map(str, faults[id(r)]))}  {case_name(r)}" for r in records
                   if max(faults[id(r)]) >= common.COLD_FAULTS])
