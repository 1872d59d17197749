"""Embedding backward and forward against the byte ceiling and PyTorch."""

import statistics

import numpy as np

import common
import report
from common import GIB, MIB, Buffer, DType, Side, TorchResult, race
from report import listed, milliseconds, spread

# (N, V, D) beside the grid; D = 1 and 16 are the widths of one-dimensional features and of hashed tables.
NARROW = [(1 << 20, 1000000, 16), (1 << 20, 100000, 1)]
GRID_N = [2048, 16384, 131072]
GRID_V = [1000, 50257, 256000]
GRID_D = [64, 768, 4096]
MOST_BYTES = 6 * GIB  # gradient and output of a case

QUICK = {"n": [16384], "v": [1000, 50257], "d": [64, 768]}


def shapes(options):
    """[(N, V, D)], those with the same indices side by side."""
    n, v, d = (getattr(options, name) or (QUICK[name] if options.quick else grid)
               for name, grid in (("n", GRID_N), ("v", GRID_V), ("d", GRID_D)))
    grid = [(N, V, D) for V in v for N in n for D in d]
    if not (options.n or options.v or options.d or options.quick):
        grid += NARROW
    return grid


class Shared:
    """One gradient and one output for all cases, as large as the largest needs: no case pays for first touches."""

    def __init__(self, native, source_bytes, target_bytes):
        self.source, self.target = Buffer(native, source_bytes), Buffer(native, target_bytes)

    def fill(self, dtype):
        # Standard normal values. The length is prime, so that no two rows are alike for any D measured.
        block = np.random.default_rng(7).standard_normal(1000003, dtype=np.float32)
        self.source.tile(dtype.cast(block), self.source.size)

    def free(self):
        self.source.free()
        self.target.free()


class Bytes:
    """What embedding backward has to move at least, and the time that takes at the ceilings: gradients and indices
    read, rows that are named written as data, all others as zeros."""

    def __init__(self, N, V, D, size, named):
        self.read = N * (D * size + 8)
        self.data = named * D * size
        self.zeros = (V - named) * D * size
        self.all = self.read + self.data + self.zeros

    def ceiling_ns(self, ceilings, threads):
        return (self.read / ceilings.rate("read", threads) + self.data / ceilings.rate("NT store", threads)
                + self.zeros / ceilings.rate("NT zero", threads))


def check(torch, ours, theirs, ids, V):
    """Both sides did the same work: their results are equal but for rounding."""
    if theirs is None or theirs.dtype != torch.float32 or theirs.numel() > 64 * MIB:
        return
    most = int(np.bincount(ids, minlength=V).max())
    # Sums of `most` values of a standard normal distribution are some sqrt(most) large, with as many roundings of that
    # relative size; 64 for the tails.
    bound = 64 * 2.0**-24 * most
    difference = float(np.abs(ours - theirs.numpy()).max())
    if not difference <= bound:
        raise RuntimeError(f"the results differ by {difference}, more than rounding explains ({bound})")


def backward_case(bench, memory, dtype, N, V, D, distribution, ids, named, threads):
    native, torch = bench.native, bench.torch
    target, out_bytes = memory.target.address, V * D * dtype.size
    moved = Bytes(N, V, D, dtype.size, named)
    written = moved.data + moved.zeros

    def dirty(address, size):
        bench.dirty(address, size, moved.read, written, threads)

    plan = native.prepare("embedding_backward", dtype.name.encode(), N, V, D, memory.source.address, ids.ctypes.data,
                          target)
    ours = Side(lambda: dirty(target, out_bytes), lambda: native.timed_run(plan, threads))
    sides = [ours]
    if torch and dtype.name not in bench.torch_refuses:
        torch.set_num_threads(threads)
        grad = dtype.tensor(torch, memory.source.array(dtype.storage, (N, D)))
        index = torch.from_numpy(ids)
        operator = torch.ops.aten.embedding_dense_backward
        result = TorchResult(lambda: operator(grad, index, V, -1, False), dirty)
        if dtype.name not in bench.torch_runs:
            refusal = result.refusal()
            (bench.torch_refuses if refusal else bench.torch_runs)[dtype.name] = refusal
        if dtype.name in bench.torch_runs:
            theirs = Side(result.dirty, result.run)
            sides.append(theirs)
    race(sides)
    if len(sides) > 1:
        check(torch, memory.target.array(dtype.storage, (V, D)), result.last, ids, V)
    ceiling = moved.ceiling_ns(bench.ceilings, threads)
    record = {
        "operator": "embedding_backward", "dtype": dtype.name, "N": N, "V": V, "D": D, "indices": distribution,
        "threads": threads, "implementation": native.implementation(plan).decode(),
        "instruction_set": native.instruction_set(plan).decode(), "scratch_bytes": native.scratch_bytes(plan),
        "bytes_read": moved.read, "bytes_data": moved.data, "bytes_zero": moved.zeros,
        "in_cache": int(bench.fits_cache(moved.read, written)),
        "ns": ours.median, "ns_best": min(ours.times), "runs": len(ours.times), "ceiling_ns": ceiling,
        "GB_per_s": moved.all / ours.median, "ceiling_GB_per_s": moved.all / ceiling,
        "percent": 100 * ceiling / ours.median, "faults": max(ours.faults),
    }
    for kind in ("read", "NT store", "NT zero"):
        record[kind.replace(" ", "_") + "_GB_per_s"] = bench.ceilings.rate(kind, threads)
    if len(sides) > 1:
        record |= {"pytorch_ns": theirs.median, "pytorch_runs": len(theirs.times), "pytorch_faults": max(theirs.faults),
                   "ratio": theirs.median / ours.median}
    native.free(plan)
    return record


BACKWARD_ROW = "{:5} {:>7} {:>7} {:>5} {:16} {:>8}"
BACKWARD_SIDE = " |{:>8} {:>6} {:>5} {:>8} {:>6}"


def backward_header(threads):
    print(" " * 53 + "".join(f" | {t} thread{'s' if t > 1 else '':<32}"[:39] for t in threads))
    print(BACKWARD_ROW.format("dtype", "N", "V", "D", "indices", "MB")
          + "".join(BACKWARD_SIDE.format("ms", "GB/s", "%ceil", "PyTorch", "ratio") for _ in threads)
          + " | speedup (ceiling)  equal/uniform")


def backward_line(records):
    first = records[0]
    line = BACKWARD_ROW.format(
        first["dtype"], first["N"], first["V"], first["D"], first["indices"],
        f"{(first['bytes_read'] + first['bytes_data'] + first['bytes_zero']) / 1e6:.1f}")
    for r in records:
        has = "pytorch_ns" in r
        line += BACKWARD_SIDE.format(
            milliseconds(r["ns"]), f"{r['GB_per_s']:.1f}", f"{r['percent']:.0f}" + "c" * r["in_cache"],
            milliseconds(r["pytorch_ns"]) if has else "-", f"{r['ratio']:.2f}" if has else "-")
    line += " |"
    if "speedup" in records[-1]:
        line += f" {records[-1]['speedup']:7.2f} {'(%.2f)' % records[-1]['ceiling_speedup']:>9}"
    if "equal_to_uniform" in first:
        line += "  " + " ".join(f"{r['equal_to_uniform']:.2f}" for r in records)
    print(line, flush=True)


def backward(bench):
    options = bench.options
    cases = shapes(options)
    dtypes = [DType(name) for name in options.dtype or (["f32", "bf16"] if options.quick else common.DTYPES)]
    largest = max(d.size for d in dtypes)
    too_large = [c for c in cases if (c[0] + c[1]) * c[2] * largest > MOST_BYTES]
    source = max((N * D * largest for N, V, D in cases if (N, V, D) not in too_large), default=0)
    target = max((V * D * largest for N, V, D in cases if (N, V, D) not in too_large), default=0)
    room = common.memory_available() - GIB
    if source + 2 * target > room:
        raise SystemExit(f"the largest case needs {(source + 2 * target) / GIB:.1f} GiB, there are {room / GIB:.1f}: "
                         "leave out D = 4096 with --d 64 768")
    memory = Shared(bench.native, source, target)

    print("\nEmbedding backward. MB and GB/s by the bytes that have to move; %ceil of the time they take at the rates\n"
          "of this run (c: all of it fits the last cache, whose rates are higher); ratio: PyTorch's time over ours.\n")
    backward_header(bench.threads)
    records = []
    for dtype in dtypes:
        memory.fill(dtype)
        for N, V in dict.fromkeys((N, V) for N, V, D in cases):
            for distribution in options.dist or common.DISTRIBUTIONS:
                ids = bench.indices(distribution, N, V)
                named = np.count_nonzero(np.bincount(ids, minlength=V))
                for D in (D for n, v, D in cases if (n, v) == (N, V) and (N, V, D) not in too_large):
                    bench.ceilings.refresh()
                    line = [backward_case(bench, memory, dtype, N, V, D, distribution, ids, named, t)
                            for t in bench.threads]
                    if len(line) > 1:
                        line[-1]["speedup"] = line[0]["ns"] / line[-1]["ns"]
                        line[-1]["ceiling_speedup"] = line[0]["ceiling_ns"] / line[-1]["ceiling_ns"]
                    uniform = {r["threads"]: r["ns"] for r in records if r["indices"] == "uniform"
                               and (r["dtype"], r["N"], r["V"], r["D"]) == (dtype.name, N, V, D)}
                    for r in line:
                        if distribution == "equal" and r["threads"] in uniform:
                            r["equal_to_uniform"] = r["ns"] / uniform[r["threads"]]
                    backward_line(line)
                    records += line
    memory.free()
    for name, refusal in bench.torch_refuses.items():
        print(f"PyTorch does not run {name}: {refusal}")
    for N, V, D in too_large:
        print(f"left out: N {N}, V {V}, D {D} needs more than {MOST_BYTES / GIB:.0f} GiB in {dtypes[0].name}")
    return records


def name(record):
    return (f"{record['dtype']} N {record['N']} V {record['V']} D {record['D']} {record['indices']}, "
            f"{record['threads']} thread{'s' * (record['threads'] > 1)}")


def backward_summary(records):
    print("\nSummary of embedding backward")
    groups = [("all", records), ("beyond the cache", [r for r in records if not r["in_cache"]]),
              ("within the cache", [r for r in records if r["in_cache"]])]
    groups += [(f"{t} thread{'s' * (t > 1)}", [r for r in records if r["threads"] == t])
               for t in dict.fromkeys(r["threads"] for r in records)]
    groups += [(d, [r for r in records if r["dtype"] == d]) for d in dict.fromkeys(r["dtype"] for r in records)]
    table = [["", "cases", "% of ceiling: median", "worst", "under 70", "PyTorch / ours: median", "worst", "losses"]]
    for title, group in groups:
        if not group:
            continue
        percent, ratio = [r["percent"] for r in group], [r["ratio"] for r in group if "ratio" in r]
        table.append([title, len(group), f"{statistics.median(percent):.0f}", f"{min(percent):.0f}",
                      sum(p < 70 for p in percent)]
                     + ([f"{statistics.median(ratio):.2f}", f"{min(ratio):.2f}", sum(x < 1 for x in ratio)] if ratio
                        else ["-", "-", "-"]))
    print("\n".join(report.aligned(table)))
    speedups = [r for r in records if "speedup" in r]
    if speedups:
        n = speedups[0]["threads"]
        print(f"\n1 -> {n} threads: {spread([r['speedup'] for r in speedups])}; of what the ceiling allows: "
              + spread([r["speedup"] / min(r["ceiling_speedup"], n) for r in speedups]))
    equal = [r for r in records if "equal_to_uniform" in r]
    if equal:
        values = [r["equal_to_uniform"] for r in equal]
        print(f"all equal / uniform: median {statistics.median(values):.2f}, worst {max(values):.2f}")

    listed("Under 70 % of the ceiling", [f"{r['percent']:3.0f} %  {name(r)}, {milliseconds(r['ns'])} ms"
                                         + ", in cache" * r["in_cache"]
                                         for r in sorted(records, key=lambda r: r["percent"]) if r["percent"] < 70])
    listed("Slower than PyTorch", [f"{r['ratio']:.2f}  {name(r)}, {milliseconds(r['ns'])} ms"
                                   for r in sorted((r for r in records if r.get("ratio", 9) < 1),
                                                   key=lambda r: r["ratio"])])
    listed("All equal above 1.2 x uniform", [f"{r['equal_to_uniform']:.2f}  {name(r)}, {milliseconds(r['ns'])} ms"
                                             for r in equal if r["equal_to_uniform"] > 1.2])
    # Below 1 ms entering the parallel regions shows, and the issue is latency; there the ratio to PyTorch counts.
    listed("Speedup under 1.8 where the ceiling allows more, runs of 1 ms and more",
           [f"{r['speedup']:.2f} (ceiling {r['ceiling_speedup']:.2f})  {name(r)}, {milliseconds(r['ns'])} ms"
            for r in speedups if r["speedup"] < 1.8 < r["ceiling_speedup"] and r["ns"] > 1e6])
    listed("Page faults in a timed run, whose time is therefore too long",
           [f"ours {r['faults']}, PyTorch {r.get('pytorch_faults', 0)}  {name(r)}" for r in records
            if max(r["faults"], r.get("pytorch_faults", 0)) >= common.COLD_FAULTS])


FRESH = [(2048, 50257, 768, "f32"), (16384, 50257, 768, "f32"), (16384, 50257, 768, "bf16"),
         (131072, 256000, 64, "f32")]


def backward_fresh(bench):
    """Into an output whose pages nobody has touched: what a caller pays who allocates one for each call."""
    native, torch = bench.native, bench.torch
    print("\nEmbedding backward into a fresh output, uniform indices: page faults bound it, whoever writes it\n")
    table = [["dtype", "N", "V", "D", "threads", "ms", "output GB/s", "PyTorch, ms", "ratio"]]
    for N, V, D, type_name in FRESH[1:3] if bench.options.quick else FRESH:
        dtype, out_bytes = DType(type_name), V * D * DType(type_name).size
        memory = Shared(native, N * D * dtype.size, 4096)
        memory.fill(dtype)
        ids = bench.indices("uniform", N, V)
        grad = dtype.tensor(torch, memory.source.array(dtype.storage, (N, D))) if torch else None
        index = torch.from_numpy(ids) if torch else None
        for threads in bench.threads:
            ours, theirs = [], []
            for _ in range(5):
                pages = native.map(out_bytes)
                plan = native.prepare("embedding_backward", dtype.name.encode(), N, V, D, memory.source.address,
                                      ids.ctypes.data, pages)
                ours.append(native.timed_run(plan, threads))
                native.free(plan)
                native.unmap(pages, out_bytes)
                if torch:
                    torch.set_num_threads(threads)
                    common.keep_memory(bench.options.build, False)
                    theirs.append(common.clock(
                        lambda: torch.ops.aten.embedding_dense_backward(grad, index, V, -1, False))[0])
                    common.keep_memory(bench.options.build, True)
            ns, other = statistics.median(ours), statistics.median(theirs) if torch else None
            table.append([type_name, N, V, D, threads, milliseconds(ns), f"{out_bytes / ns:.1f}",
                          milliseconds(other) if torch else "-", f"{other / ns:.2f}" if torch else "-"])
        memory.free()
    print("\n".join(report.aligned(table)))


FORWARD = [(2048, 50257, 768), (16384, 50257, 768), (131072, 50257, 768), (131072, 256000, 64), (16384, 256000, 4096),
           (1 << 20, 1000000, 16)]


def forward(bench):
    """Against memcpy of as many bytes as the output has, with the same threads, in the same rotation."""
    native, torch = bench.native, bench.torch
    print("\nEmbedding forward. MB written; GB/s read and written; % of memcpy's speed on as many bytes\n")
    table = [["dtype", "N", "V", "D", "indices", "threads", "MB", "ms", "GB/s", "% of memcpy", "PyTorch, ms", "ratio"]]
    records = []
    cases = FORWARD[1:2] if bench.options.quick else FORWARD
    names = ["f32"] if bench.options.quick else ["f32", "bf16"]
    memory = Shared(native, max(V * D * 4 for N, V, D in cases), max(N * D * 4 for N, V, D in cases))
    for type_name in names:
        dtype = DType(type_name)
        memory.fill(dtype)
        for N, V, D in cases:
            for distribution in ["uniform", "zipf"]:
                ids, out_bytes = bench.indices(distribution, N, V), N * D * dtype.size
                for threads in bench.threads:
                    bench.ceilings.refresh()
                    source, target = memory.source.address, memory.target.address
                    plan = native.prepare("embedding", dtype.name.encode(), N, V, D, source, ids.ctypes.data, target)
                    read = min(N, V) * D * dtype.size
                    dirty = lambda address, size: bench.dirty(address, size, read, out_bytes, threads)
                    ours = Side(lambda: dirty(target, out_bytes), lambda: native.timed_run(plan, threads))
                    copy_bytes = min(out_bytes, V * D * dtype.size) // 4096 * 4096
                    copy = Side(lambda: dirty(target, out_bytes),
                                lambda: native.sweep(4, target, source, copy_bytes, threads))
                    sides = [ours, copy]
                    if torch:
                        torch.set_num_threads(threads)
                        weight = dtype.tensor(torch, memory.source.array(dtype.storage, (V, D)))
                        index = torch.from_numpy(ids)
                        result = TorchResult(lambda: torch.embedding(weight, index), dirty)
                        theirs = Side(result.dirty, result.run)
                        sides.append(theirs)
                    race(sides)
                    native.free(plan)
                    percent = 100 * (out_bytes / ours.median) / (copy_bytes / copy.median)
                    record = {"operator": "embedding", "dtype": type_name, "N": N, "V": V, "D": D,
                              "indices": distribution, "threads": threads, "ns": ours.median,
                              "GB_per_s": (2 * out_bytes + 8 * N) / ours.median, "memcpy_ns": copy.median,
                              "percent_of_memcpy": percent}
                    if torch:
                        record |= {"pytorch_ns": theirs.median, "ratio": theirs.median / ours.median}
                    records.append(record)
                    table.append([type_name, N, V, D, distribution, threads, f"{out_bytes / 1e6:.1f}",
                                  milliseconds(ours.median), f"{record['GB_per_s']:.1f}", f"{percent:.0f}",
                                  milliseconds(theirs.median) if torch else "-",
                                  f"{record['ratio']:.2f}" if torch else "-"])
    print("\n".join(report.aligned(table)))
    memory.free()
    return records


def run_backward(bench):
    records = backward(bench)
    backward_summary(records)
    report.write_csv(f"{bench.options.out}/embedding_backward.csv", records)
    report.plot(records, f"{bench.options.out}/embedding_backward.png", "Embedding backward", "D", "ratio", (70, 85), 3)


def run_forward(bench):
    report.write_csv(f"{bench.options.out}/embedding.csv", forward(bench))


# With the filters of the command line that each goes by.
TABLES = {
    "embedding_backward": (run_backward, {"n", "v", "d", "dist", "dtype"}),
    "embedding_backward_fresh": (backward_fresh, set()),
    "embedding": (run_forward, set()),
}
