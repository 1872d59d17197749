"""Python's threads and signals beside a call that lasts."""

import os
import signal
import subprocess
import sys
import time

import pytest
from process import ENVIRONMENT, PRELUDE, run

# Work for seconds. One row stands for all of the weight, by strides of zero: nothing has to be made first.
LONG = """
x, W, y = large(16384, 512, 2)
W = np.broadcast_to(W[0], (100_000, 512))
print("ready", flush=True)
"""
CALLS = {
    "loss": "F.linear_cross_entropy(x, W, y)",
    "gradients": "F.linear_cross_entropy(x, W, y, outputs=('loss', 'grad_input', 'grad_weight'))",
    "backward": "F.linear_cross_entropy_backward(1.0, x, W, y)",
}


@pytest.mark.parametrize("call", CALLS)
def test_interrupt(call):
    program = (
        PRELUDE
        + LONG
        + f"""
start = time.monotonic()
try:
    while True:
        {CALLS[call]}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    work()
    print("works", F.linear_cross_entropy(x[:4], W[:9], y[:4] % 9) > 0, flush=True)
"""
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=os.environ | ENVIRONMENT
    )
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.7)  # within the call
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        assert process.stdout.readline() == "interrupted\n"
        waited = time.monotonic() - start
        assert process.stdout.readline() == "works True\n"
        assert process.wait(30) == 0
    finally:
        process.kill()
    assert waited < 3, f"{waited:.1f} s; a twentieth is what it takes where nothing else runs"


def test_a_handler_that_returns_does_not_stop_work():
    out = run("""
        import signal
        x, W, y = large(1500, 512, 20_000)
        whole = F.linear_cross_entropy(x, W, y)
        seen = []
        signal.signal(signal.SIGALRM, lambda *_: seen.append(time.monotonic()))
        signal.setitimer(signal.ITIMER_REAL, 0.06, 0.06)
        start = time.monotonic()
        while len(seen) < 3 and time.monotonic() < start + 20:
            assert F.linear_cross_entropy(x, W, y) == whole
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(len(seen) >= 3)
    """)
    assert out.split() == ["True"]


def test_a_handler_may_raise_what_it_likes():
    out = run("""
        import signal
        x, W, y = large(16384, 512, 2)
        W = np.broadcast_to(W[0], (100_000, 512))
        def stop(*_):
            raise RuntimeError("enough")
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            while True:
                F.linear_cross_entropy(x, W, y)
        except RuntimeError as error:
            print(error)
    """)
    assert out.split() == ["enough"]


def test_other_threads_run_during_a_call():
    out = run("""
        import threading
        x, W, y = large(2000, 512, 30_000)
        onehot.set_num_threads(1)
        steps, done = 0, False
        def count():
            global steps
            while not done:
                steps += 1
                time.sleep(0.001)
        thread = threading.Thread(target=count)
        thread.start()
        start, before = time.monotonic(), steps
        F.linear_cross_entropy(x, W, y)
        seconds, during = time.monotonic() - start, steps - before
        done = True
        thread.join()
        # A step takes a millisecond and what the system adds; with the GIL kept there would be none.
        print(during >= 10 and during >= 50 * seconds, during, seconds, file=sys.stderr if during < 10 else sys.stdout)
    """)
    assert out.startswith("True"), out


def test_calls_from_several_threads_at_once():
    out = run("""
        from concurrent.futures import ThreadPoolExecutor
        before = work()
        bad = np.full(600, 4000)
        x, W, y = large()
        def one(i):
            if i % 4 == 3:
                try:
                    F.linear_cross_entropy(x, W, bad)
                except IndexError:
                    return True
            return work() == before
        with ThreadPoolExecutor(4) as pool:
            print(all(pool.map(one, range(24))))
    """)
    assert out.split() == ["True"]


def test_exit_beside_a_call():
    """The interpreter ends while a call runs in another thread: the call ends first, and nobody is told of it."""
    start = time.monotonic()
    out = run("""
        import threading
        x, W, y = large(16384, 512, 2)
        W = np.broadcast_to(W[0], (100_000, 512))
        def calls():
            while True:
                F.linear_cross_entropy(x, W, y)
        threading.Thread(target=calls, daemon=True).start()
        time.sleep(0.3)
        print("ends", flush=True)
    """)
    assert out == "ends\n"
    assert time.monotonic() - start < 30
