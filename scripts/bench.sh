#!/bin/sh
# Builds the benchmarks of a configured tree and runs them: latencies first, then the tables of bench/bench.py.
#
#   scripts/bench.sh [BUILD [OPTION...]]
#
#   BUILD    a tree configured with -DONEHOT_BENCH=ON, build/release if not given
#   OPTION   for bench/bench.py, such as --quick or --dtype f32 (--help tells); a run of chosen cases leaves out the
#            latencies
#
# CSV files and plots go to out/bench. Nothing else should run meanwhile, not even an editor that indexes.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/release}
[ $# -eq 0 ] || shift
[ -f "$build/CMakeCache.txt" ] || { echo "bench: $build is not configured: run make bench" >&2; exit 1; }
build=$(cd "$build" && pwd)

# The first Python that has PyTorch; without one, Debian's with NumPy.
python=
for venv in "${ONEHOT_BENCH_VENV:-}" "$root/build/bench-venv" /opt/bench-venv; do
  if [ -n "$venv" ] && [ -x "$venv/bin/python" ] && "$venv/bin/python" -c 'import torch, numpy' 2>/dev/null; then
    python=$venv/bin/python
    break
  fi
done
if [ -z "$python" ]; then
  python=/usr/bin/python3
  "$python" -c 'import numpy' 2>/dev/null || { echo "bench: NumPy is not there: run scripts/install-deps" >&2; exit 1; }
  echo "bench: PyTorch is not there, so nothing stands beside our times: scripts/install-deps --bench installs it"
fi

cmake --build "$build" --target onehot_bench onehot_bench_warm_memory onehot_latency

if [ $# -eq 0 ] || [ "$*" = --quick ]; then
  mkdir -p "$root/out/bench"
  echo
  echo "Latency, one thread: medians of 5 (the whole of it in out/bench/latency.csv)"
  "$build/bench/onehot_latency" --benchmark_repetitions=5 --benchmark_report_aggregates_only=true \
    --benchmark_out="$root/out/bench/latency.csv" --benchmark_out_format=csv 2>/dev/null |
    awk '/ERROR/ { print "  " $0 }
         /_median/ { name = $0; sub(/_median.*/, "", name); printf "  %-40s %8.0f ns\n", name, $(NF - 4) }'
  echo
fi
exec "$python" "$root/bench/bench.py" "$build" "$@"
