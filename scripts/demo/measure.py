"""measure.py LOG COMMAND...: runs the command and appends to LOG its milliseconds and its peak memory in MB."""

import os
import sys
import time

# No import of NumPy here: on Linux a child's peak starts from the size of the process that it was forked from.
start = time.monotonic()
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
with open(sys.argv[1], "a") as log:
    print(f"{1e3 * (time.monotonic() - start):.0f} {usage.ru_maxrss * 1024e-6:.0f}", file=log)
sys.exit(os.waitstatus_to_exitcode(status))
