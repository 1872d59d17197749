"""What every benchmark shares: the native library, ceilings, timing side by side, tables, CSV and plots' style.

The rules: both sides in one process, interleaved, warm memory, the output dirtied before each run, the median reported,
ceilings measured in the same run.
"""

import ctypes
import gc
import os
import resource
import statistics
import subprocess
import sys
import time

import numpy as np

MIB = 1 << 20
GIB = 1 << 30

# PyTorch allocates its result in every call. With this the memory comes from a heap that is never given back, so that
# its pages are there already, as those of the caller's buffer are; warm_memory.cpp does the same for large blocks.
# NumPy's own request for huge pages would give one side larger pages than the other.
WARM_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": "1000000000",
    "NUMPY_MADVISE_HUGEPAGE": "0",
}


def library(build, name):
    path = os.path.abspath(os.path.join(build, "bench", f"lib{name}.so"))
    if not os.path.exists(path):
        raise SystemExit(f"bench: {path} is not there: configure with -DONEHOT_BENCH=ON and build {name}")
    return path


def restart_with_warm_memory(build):
    """Both the allocator's settings and the preloaded library count from the start of a process."""
    wanted = {**WARM_MEMORY, "LD_PRELOAD": library(build, "onehot_bench_warm_memory")}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable] + sys.argv, {**os.environ, **wanted})


def keep_memory(build, keep):
    ctypes.CDLL(library(build, "onehot_bench_warm_memory")).onehot_bench_keep_memory(int(keep))


def release_memory(build):
    """Gives back what is kept and not in use."""
    gc.collect()
    ctypes.CDLL(library(build, "onehot_bench_warm_memory")).onehot_bench_release_memory()


def import_torch():
    """PyTorch, or None. Before the native library: the OpenMP runtime it brings then serves both, and no second pool of
    threads spins beside the one that is measured."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_grad_enabled(False)
    return torch


LOSSES = ["nll_loss", "nll_loss_backward", "cross_entropy", "cross_entropy_backward", "linear_cross_entropy",
          "linear_cross_entropy_backward"]


class Native:
    """libonehot_bench (onehot_bench.h)."""

    def __init__(self, build):
        self.lib = ctypes.CDLL(library(build, "onehot_bench"))
        p, i64, size, text = ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_char_p
        for name, result, arguments in [
            ("map", p, [size]),
            ("unmap", None, [p, size]),
            ("tile", None, [p, size, p, size]),
            ("dirty", None, [p, size, ctypes.c_int, ctypes.c_int]),
            ("sweep", i64, [ctypes.c_int, p, p, size, ctypes.c_int]),
            ("arithmetic", ctypes.c_double, [ctypes.c_int, ctypes.c_int]),
            ("multiply_add", i64, [p, i64, i64]),
            ("embedding_backward", p, [text, i64, i64, i64, p, p, p]),
            ("embedding", p, [text, i64, i64, i64, p, p, p]),
            *((operator, p, [p]) for operator in LOSSES),
            ("scatter", i64, [p, p, ctypes.c_int, ctypes.c_int]),
            ("free", None, [p]),
            ("implementation", text, [p]),
            ("instruction_set", text, [p]),
            ("scratch_bytes", i64, [p]),
            ("run", i64, [p, ctypes.c_int, i64]),
            ("error", text, []),
            ("version", text, []),
        ]:
            function = getattr(self.lib, "onehot_bench_" + name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def prepare(self, operator, *arguments):
        plan = getattr(self, operator)(*arguments)
        if not plan:
            raise RuntimeError(self.error().decode())
        return plan

    def timed_run(self, plan, threads, times=1):
        ns = self.run(plan, threads, times)
        if ns < 0:
            raise RuntimeError(self.error().decode())
        return ns


class Buffer:
    """Page-aligned memory whose pages exist, and views of its first elements."""

    def __init__(self, native, size):
        self.native, self.size = native, max(-(-size // 4096) * 4096, 4096)
        self.address = native.map(self.size)
        if not self.address:
            raise MemoryError(f"no {self.size / GIB:.1f} GiB")
        native.dirty(self.address, self.size, 0, os.cpu_count())

    def free(self):
        """Views of it must be gone."""
        self.native.unmap(self.address, self.size)

    def tile(self, array, size):
        """Fills the first `size` bytes with copies of an array."""
        self.native.tile(self.address, size, array.ctypes.data, array.nbytes)

    def array(self, dtype, shape):
        count = int(np.prod(shape))
        raw = (ctypes.c_byte * (count * np.dtype(dtype).itemsize)).from_address(self.address)
        return np.frombuffer(raw, dtype=dtype, count=count).reshape(shape)


DTYPES = ["f32", "bf16", "f16"]


class DType:
    """One of the dtypes measured. NumPy has no bf16: its bits are kept as u16."""

    def __init__(self, name):
        self.name = name
        self.size = {"f32": 4, "f16": 2, "bf16": 2}[name]
        self.storage = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}[name]

    def cast(self, f32):
        if self.name == "bf16":
            return (f32.view(np.uint32) >> 16).astype(np.uint16)
        return f32.astype(self.storage)

    def widen(self, array):
        """As f32."""
        if self.name == "bf16":
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array.astype(np.float32)

    def tensor(self, torch, array):
        tensor = torch.from_numpy(array.view(np.int16) if self.name == "bf16" else array)
        return tensor.view(torch.bfloat16) if self.name == "bf16" else tensor


class Ceilings:
    """What the machine moves, in GB/s, and computes in registers, in GFLOP/s, for a number of threads. Shared hosts
    drift within seconds (two threads read 42 or 78 GB/s on one): memory is measured again now and then, arithmetic
    beside each run that is compared with it."""

    KINDS = ["read", "store", "NT store", "NT zero", "copy"]
    ARITHMETIC = ["f32 FMA", "bf16 dot"]  # bf16: 0 where the CPU has no such products
    BYTES = 512 * MIB  # far beyond any cache; copies read one half and write the other
    AGE_S = 5

    def __init__(self, native, threads):
        self.native, self.threads = native, threads
        self.buffer = Buffer(native, self.BYTES)
        self.history = {t: [] for t in threads}
        self.measured_at = -1e9

    def refresh(self):
        if time.monotonic() - self.measured_at < self.AGE_S:
            return
        half = self.BYTES // 2
        for t in self.threads:
            rates = {}
            for what, kind in enumerate(self.KINDS):
                size = half if kind == "copy" else self.BYTES
                moved = 2 * half if kind == "copy" else size
                best = min(
                    self.native.sweep(what, self.buffer.address, self.buffer.address + half, size, t)
                    for _ in range(3)
                )
                rates[kind] = moved / best
            for kind in self.ARITHMETIC:
                rates[kind] = self.arithmetic(kind, t)
            self.history[t].append(rates)
        self.measured_at = time.monotonic()

    def evict(self, size):
        """Leaves other memory in a cache of that many bytes."""
        self.native.sweep(0, self.buffer.address, None, min(2 * size, self.BYTES) // 4096 * 4096, max(self.threads))

    def rate(self, kind, threads):
        return self.history[threads][-1][kind]

    def arithmetic(self, kind, threads):
        """Now; it takes some 10 ms."""
        return max(self.native.arithmetic(self.ARITHMETIC.index(kind), threads) for _ in range(5))

    def table(self):
        """Medians of the run, and how far they drifted."""
        lines = [["ceiling"] + [f"{t} thread{'s' * (t > 1)}" for t in self.threads]]
        for kind in self.KINDS + self.ARITHMETIC:
            line = [f"{kind}, {'GB/s' if kind in self.KINDS else 'GFLOP/s'}"]
            for t in self.threads:
                rates = [h[kind] for h in self.history[t]]
                line.append(f"{statistics.median(rates):.1f} ({min(rates):.1f}-{max(rates):.1f})")
            lines.append(line)
        return lines


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


class Side:
    """One of those that race: `dirty` before each run, untimed; `run` returns nanoseconds."""

    def __init__(self, dirty, run):
        self.dirty, self.run = dirty, run
        self.times, self.faults = [], []

    def once(self, keep=True):
        self.dirty()
        before = page_faults()
        ns = self.run()
        faults = page_faults() - before
        if keep:
            self.times.append(ns)
            self.faults.append(faults)
        return ns, faults

    @property
    def median(self):
        return statistics.median(self.times)


LONG_NS = 20e6  # a first run as long as this is not slower for being the first
SLOW_NS = 200e6
VERY_SLOW_NS = 3e9
COLD_FAULTS = 64  # page faults of a run whose memory was not warm


def first_run(side):
    """It does not count, unless it is long and its memory was warm. Nanoseconds."""
    ns, faults = side.once(keep=False)
    if ns > LONG_NS and faults < COLD_FAULTS:
        side.times.append(ns)
        side.faults.append(faults)
    return ns


def race(sides, repeats=5):
    """Runs the sides in turn, after a first run of each. Slow cases run three times in all, very slow sides once, fast
    cases more often than `repeats`."""
    firsts = [first_run(side) for side in sides]
    wanted = {side: 1 if ns > VERY_SLOW_NS else None for side, ns in zip(sides, firsts)}
    slowest = max(firsts)
    most = 3 if slowest > SLOW_NS else 3 * repeats if slowest < 2e6 else repeats
    take_turns(sides, range(most), lambda side: wanted[side] or most)


def race_long(sides, budget_s, least=3, most=5):
    """The same for sides that take seconds each: `least` runs, then more until the budget is spent. A side that takes
    half of the budget alone runs once."""
    start = time.monotonic()
    wanted = {side: 1 if first_run(side) > budget_s / 2 * 1e9 else most for side in sides}
    missing = lambda: any(len(side.times) < min(least, wanted[side]) for side in sides)
    rounds = (r for r in range(most) if missing() or time.monotonic() - start < budget_s)
    take_turns(sides, rounds, wanted.get)


def take_turns(sides, rounds, wanted):
    """Rounds of all sides, back and forth. A side that has its wanted number of runs sits out."""
    gc.disable()
    for r in rounds:
        for side in sides if r % 2 == 0 else sides[::-1]:
            if len(side.times) < wanted(side):
                side.once()
    gc.enable()


def clock(function):
    """Nanoseconds, and what the function returned."""
    start = time.perf_counter_ns()
    result = function()
    return time.perf_counter_ns() - start, result


class TorchResult:
    """Runs a PyTorch operator whose result is allocated in each call. The block that the last result lay in is dirtied
    before it is given back, and the allocator gives it out again. dirty(address, bytes) does that."""

    def __init__(self, function, dirty):
        self.function, self.dirty_block, self.last = function, dirty, None

    def dirty(self):
        if self.last is not None:
            self.dirty_block(self.last.data_ptr(), self.last.numel() * self.last.element_size())
            self.last = None

    def run(self):
        ns, self.last = clock(self.function)
        return ns

    def refusal(self):
        """Why PyTorch cannot run it; empty if it can."""
        try:
            self.run()
        except RuntimeError as error:  # NotImplementedError is one
            return str(error).splitlines()[0]
        return ""


# ---- indices

DISTRIBUTIONS = ["uniform", "zipf", "zipf-sorted-ids", "equal", "sorted"]


def indices(distribution, N, V):
    """N values below V, i64.

    uniform           every id alike
    zipf              the id of rank r occurs in proportion to 1 / r, ids permuted at random
    zipf-sorted-ids   the same, the id is the rank: the frequent ones lie side by side
    equal             one id
    sorted            uniform, in ascending order
    """
    rng = np.random.default_rng(N * 1000003 + V)
    if distribution in ("uniform", "sorted"):
        ids = rng.integers(0, V, N)
        return np.sort(ids) if distribution == "sorted" else ids
    if distribution == "equal":
        return np.full(N, V // 2, dtype=np.int64)
    edges = np.cumsum(1.0 / np.arange(1, V + 1))
    ranks = np.minimum(np.searchsorted(edges, rng.random(N) * edges[-1]), V - 1)
    return rng.permutation(V)[ranks] if distribution == "zipf" else ranks


# ---- the machine


def last_level_cache():
    """Bytes, as the kernel tells; 32 MiB if it does not."""
    base = "/sys/devices/system/cpu/cpu0/cache"
    sizes = [0]
    for index in os.listdir(base) if os.path.isdir(base) else []:
        try:
            with open(f"{base}/{index}/size") as file:
                text = file.read().strip()
        except OSError:
            continue
        sizes.append(int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]])
    return max(sizes) or 32 * MIB


def openmp_runtimes():
    with open("/proc/self/maps") as maps:
        files = {line.split()[-1] for line in maps if ".so" in line}
    return sorted(file for file in files if "omp" in os.path.basename(file))


def describe_machine(native, torch):
    facts = subprocess.run(["lscpu"], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout
    known = dict(line.split(":", 1) for line in facts.splitlines() if ":" in line)
    known = {k.strip(): v.strip() for k, v in known.items()}
    flags = known.get("Flags", known.get("Features", "")).split()
    wanted = ["avx2", "f16c", "avx512f", "avx512bw", "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd", "sve"]
    caches = ", ".join(f"{k.removesuffix(' cache')} {v}" for k, v in known.items() if k.endswith(" cache"))
    print(f"CPU      {known.get('Model name', '?')} (family {known.get('CPU family', '?')}, model"
          f" {known.get('Model', '?')}), {os.cpu_count()} CPUs, {known.get('Hypervisor vendor', 'no')} hypervisor")
    print(f"caches   {caches}")
    print(f"has      {' '.join(f for f in wanted if f in flags)}")
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) * 1024
    pages = "/sys/kernel/mm/transparent_hugepage/enabled"
    load = os.getloadavg()[0]
    huge = open(pages).read().split("[")[1].split("]")[0] if os.path.exists(pages) else "none"
    print(f"memory   {memory / GIB:.1f} GiB, transparent huge pages: {huge}; load average {load:.2f}")
    if load > 0.7:
        print("         WARNING: something else runs, or did a minute ago; such figures are worth little")
    tiny = (ctypes.c_int64 * 1)()
    plan = native.prepare("embedding_backward", b"f32", 0, 0, 1, tiny, tiny, tiny)
    print(f"onehot   {native.version().decode()}, {native.implementation(plan).decode()}, instruction set "
          f"{native.instruction_set(plan).decode()}")
    native.free(plan)
    print(f"PyTorch  {torch.__version__ if torch else 'is not there: scripts/install-deps --bench installs it'}")
    runtimes = openmp_runtimes()
    print(f"OpenMP   {', '.join(runtimes)}")
    if len(runtimes) > 1:
        print("         WARNING: two OpenMP runtimes; the idle threads of one disturb the other")


def memory_available():
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
    return 0
