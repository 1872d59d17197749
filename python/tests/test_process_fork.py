"""Children of a process that has used threads: calls work, on one thread, and do not hang."""

import os
import subprocess
import sys

import pytest
from process import ENVIRONMENT, PRELUDE, run


def test_fork():
    out = run("""
        before = work()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            same = work() == before
            alone = status("Threads") == 1
            onehot.set_num_threads(4)
            same = same and work() == before and status("Threads") == 1
            grandchild = os.fork()
            if grandchild == 0:
                os._exit(0 if work() == before else 1)
            same = same and os.waitpid(grandchild, 0)[1] == 0
            os._exit(0 if same and alone else 1 if alone else 2)
        print(os.waitpid(pid, 0)[1], work() == before)
    """)
    assert out.split() == ["0", "True"]


def test_fork_without_a_call_before():
    """Threads then are the child's own."""
    out = run("""
        pid = os.fork()
        if pid == 0:
            os._exit(0 if len(work()) > 0 else 1)
        print(os.waitpid(pid, 0)[1])
    """)
    assert out.split() == ["0"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pool(method, tmp_path):
    # Children that are started anew import the program, so it has to be a file.
    script = tmp_path / "program.py"
    script.write_text(
        PRELUDE
        + """
import multiprocessing

def child(_):
    return work()

if __name__ == "__main__":
    before = work()
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        print(all(result == before for result in pool.map(child, range(4))))
"""
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script, method],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and done.stdout.split() == ["True"], done.stderr
