"""Measures onehot on this machine, beside PyTorch where it is there.

    bench.py BUILD [--quick] [--table NAME...] [filters]

Prints tables, and writes CSV files and plots to out/bench. scripts/bench.sh finds a Python that has the packages.
A family of operators has a module like embedding.py, whose TABLES are listed below, and functions of plans.cpp that
prepare them.
"""

import argparse
import functools
import os
import sys
import time

import common
import cross_entropy
import embedding
import linear_cross_entropy
import losses
import nll_loss
import report

TABLES = {**embedding.TABLES, **nll_loss.TABLES, **cross_entropy.TABLES, **linear_cross_entropy.TABLES}
FILTERS = ["n", "v", "d", "dist", "c", "labels", "target", "reduction", "dtype"]


class Bench:
    """What the measurements of one run share."""

    def __init__(self, options):
        self.options = options
        self.torch = common.import_torch()
        self.native = common.Native(options.build)
        self.threads = options.threads or sorted({1, os.cpu_count()})
        self.cache_bytes = common.last_level_cache()
        self.ceilings = common.Ceilings(self.native, self.threads)
        self.torch_runs, self.torch_refuses = {}, {}  # dtype -> why

    def dirty(self, address, size, read_bytes, written_bytes, threads):
        """Before a timed run that reads and writes so much: the output holds garbage, and unless everything fits the
        last cache from run to run, nothing of the case is in it."""
        if self.fits_cache(read_bytes, written_bytes):
            self.native.dirty(address, size, 0, threads)
            return
        self.native.dirty(address, size, 1, max(self.threads))
        if read_bytes < 4 * self.cache_bytes:
            self.ceilings.evict(self.cache_bytes)

    def fits_cache(self, read_bytes, written_bytes):
        # The two sides write to places of their own.
        return read_bytes + 2 * written_bytes <= self.cache_bytes

    # The same for all dtypes and widths, and a large one takes a while to draw.
    @functools.lru_cache(maxsize=16)
    def indices(self, distribution, N, V):
        return common.indices(distribution, N, V)


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description="Measures onehot on this machine, beside PyTorch where it is there.")
    parser.add_argument("build", help="a build tree with ONEHOT_BENCH=ON")
    parser.add_argument("--quick", action="store_true", help="a few cases of each kind, a few minutes")
    parser.add_argument("--table", nargs="+", choices=list(TABLES), metavar="NAME",
                        help=f"of {', '.join(TABLES)}; default: all, with filters those that go by them")
    parser.add_argument("--n", nargs="+", type=int, metavar="N", help="positions")
    parser.add_argument("--v", nargs="+", type=int, metavar="V", help="rows of the table or of the weight")
    parser.add_argument("--d", nargs="+", type=int, metavar="D", help="width of such a row")
    parser.add_argument("--dist", nargs="+", choices=common.DISTRIBUTIONS, help="of the indices")
    parser.add_argument("--c", nargs="+", type=int, metavar="C", help="classes")
    parser.add_argument("--labels", nargs="+", choices=losses.LABELS)
    parser.add_argument("--target", nargs="+", choices=list(losses.TARGETS), help="dtype of the targets")
    parser.add_argument("--reduction", nargs="+", choices=losses.REDUCTIONS)
    parser.add_argument("--dtype", nargs="+", choices=common.DTYPES)
    parser.add_argument("--threads", nargs="+", type=int, help="default: 1 and all CPUs")
    parser.add_argument("--out", default=os.path.join(root, "out", "bench"), help="folder for CSV files and plots")
    options = parser.parse_args()

    common.restart_with_warm_memory(options.build)
    started = time.monotonic()
    bench = Bench(options)
    common.describe_machine(bench.native, bench.torch)
    given = {name for name in FILTERS if getattr(options, name)}
    for name, (run, filters) in TABLES.items():
        if name in options.table if options.table else given <= filters:
            run(bench)
    if any(bench.ceilings.history.values()):  # a table of memory alone needs none
        print()
        print("\n".join(report.aligned(bench.ceilings.table())))
    print(f"\n{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
