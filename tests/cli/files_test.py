"""What goes wrong, and what a run leaves behind: sentences, exit codes and files."""
import glob
import os
import pty
import resource
import signal
import subprocess
import threading
import time
import unittest

import numpy as np
from case import DATA, DONE, FILE, ONEHOT, USAGE, Case, backward, bf16_bits, gradient


class BadFiles(Case):
    COMMAND = ("embedding-backward", "--grad", "g.npy", "--indices", "i.npy", "--num-weights", 4, "--out", "o.npy")

    def setUp(self):
        super().setUp()
        self.save("g.npy", gradient(3, 2))
        self.save("i.npy", [0, 1, 1])
        with open("g.npy", "rb") as file:
            self.content = file.read()

    def refused_content(self, part, content):
        with open("g.npy", "wb") as file:
            file.write(content)
        self.refused(FILE, "g.npy: " + part, *self.COMMAND)

    def test_damage(self):
        self.refused_content("is empty", b"")
        self.refused_content("is not a .npy file", b"P6 200 200 255\n")
        self.refused_content("is truncated inside the header", self.content[:9])
        self.refused_content("is truncated: its header has 118 bytes, the file only 40", self.content[:50])
        self.refused_content("is truncated: the header promises 24 bytes of data (f32 [3, 2]), the file has 23",
                             self.content[:-1])
        self.refused_content("is too long: the header promises 24 bytes", self.content + b"x")
        self.refused_content("has version 9.0", self.content[:6] + b"\x09" + self.content[7:])
        self.refused_content("bad header", self.content.replace(b"'shape'", b"'shade'"))
        self.refused_content("bad header", self.content.replace(b"(3, 2)", b"(3,-2)"))

    def test_dtypes(self):
        self.save("g.npy", np.zeros((3, 2), "U3"))
        self.refused(FILE, "elements of dtype '<U3' are not supported", *self.COMMAND)
        self.save("g.npy", np.zeros((3, 2), [("a", "f4")]))
        self.refused(FILE, "structured dtypes are not supported", *self.COMMAND)
        np.save("g.npy", np.array([[None]]), allow_pickle=True)
        self.refused(FILE, "object arrays are not supported", *self.COMMAND)
        np.savez("g.npz", gradient(3, 2))
        os.rename("g.npz", "g.npy")
        self.refused(FILE, "is a .npz archive", *self.COMMAND)

    def test_files_that_cannot_be_had(self):
        os.unlink("g.npy")
        self.refused(FILE, "g.npy: cannot be opened: No such file or directory", *self.COMMAND)
        os.mkdir("g.npy")
        self.refused(FILE, "g.npy: cannot be read: Is a directory", *self.COMMAND)


class Refusals(Case):
    def setUp(self):
        super().setUp()
        self.save("g.npy", gradient(3, 2))
        self.save("i.npy", [0, 1, 1])

    def command(self, *flags, rows=4):
        return ("embedding-backward", "--grad", "g.npy", "--indices", "i.npy", "--num-weights", rows, "--out", "o.npy",
                *flags)

    def test_data(self):
        self.save("i.npy", [0, 1])
        self.refused(DATA, "grad: must have one row for each of the 2 indices", *self.command())
        self.save("i.npy", [0, 1, 1])
        self.save("b.npy", gradient(3, 2))
        self.refused(DATA, "accumulate: shape must be that of the result, [4, 2], is [3, 2]",
                     *self.command("--accumulate", "b.npy"))
        self.save("b.npy", gradient(4, 2).astype(np.float64))
        self.refused(DATA, "dtype must be that of grad, f32, is f64", *self.command("--accumulate", "b.npy"))
        self.save("b.npy", gradient(4, 2).astype(np.uint32))
        self.refused(DATA, "accumulate: dtype u32 is not supported", *self.command("--accumulate", "b.npy"))
        self.save("g.npy", gradient(3, 2).astype(np.int32))
        self.refused(DATA, "grad: dtype must be one of f32, f64, f16, bf16, is i32", *self.command())
        self.save("g.npy", gradient(1, 1, 1, 1, 1, 1, 1, 3, 2))
        self.refused(DATA, "grad: rank must be at most 8, is 9", *self.command())
        self.save("g.npy", gradient(3, 2))
        self.refused(DATA, "", *self.command(rows=2**62))

    def test_usage(self):
        self.refused(USAGE, "'frobnicate' is not a known command", "frobnicate")
        self.refused(USAGE, "subcommand is required")
        self.refused(USAGE, "'--fast' is not a known option (see onehot embedding-backward --help)",
                     *self.command("--fast"))
        self.refused(USAGE, "--num-weights is required", *self.command()[:5], "--out", "o.npy")
        self.refused(USAGE, "--num-weights: must be an integer of 0 or more, is -1", *self.command(rows=-1))
        self.refused(USAGE, "--num-weights: must be an integer of 0 or more, is 1.5", *self.command(rows=1.5))
        self.refused(USAGE, "--threads: must be 1 or more, is 0", *self.command("--threads", 0))
        self.refused(USAGE, "padding_idx: must be in [-4, 4), the rows of out, is 4",
                     *self.command("--padding-idx", 4))
        self.refused(USAGE, "padding_idx: must be in [-4, 4), the rows of out, is -5",
                     *self.command("--padding-idx", -5))
        self.refused(USAGE, "--out-dtype: must be f32, is f16", *self.command("--out-dtype", "f16"))
        self.refused(USAGE, "--dtype: must be bf16, is f16", *self.command("--dtype", "f16"))
        self.refused(USAGE, "--dtype: no file here has two-byte void elements", *self.command("--dtype", "bf16"))
        self.refused(USAGE, "--counts and --out: both name", *self.command("--counts", "./o.npy"))
        self.refused(USAGE, "ONEHOT_FORCE: must be one of", *self.command(), env={"ONEHOT_FORCE": "none"})
        self.save("g.npy", bf16_bits(gradient(3, 2)))
        self.refused(USAGE, "grad: g.npy holds two-byte void elements; --dtype bf16 reads them", *self.command())
        self.save("b.npy", bf16_bits(gradient(4, 2)))
        self.refused(USAGE, "--out-dtype f32: the result has the dtype of b.npy, which is bf16",
                     *self.command("--dtype", "bf16", "--accumulate", "b.npy", "--out-dtype", "f32"))

    def test_help_and_version(self):
        self.assertRegex(self.ok("--version"), r"\Aonehot \d+\.\d+\.\d+\n\Z")
        self.assertIn("Exit codes:", self.ok("--help"))
        for command in ("embedding-backward", "embedding"):
            self.assertIn("Example", self.ok(command, "--help"))

    def test_info(self):
        text = self.ok("info", env={"OMP_NUM_THREADS": "3"})
        self.assertRegex(text, r"\Aonehot \d")
        # The last one needs no vector instructions; what it is called depends on the compiler.
        self.assertRegex(text, r"instruction sets.*\n  .*(SCALAR|EMU128)\n")
        self.assertRegex(text, r"threads.*\n  3\n")
        for name in ("embedding", "embedding_backward"):
            self.assertRegex(text, rf"\n  {name} +cpu:\w+, ref\n")

    def test_standard_output_that_is_full(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([ONEHOT, "info"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, FILE)
        self.assertIn("onehot: standard output", done.stderr)

    def test_explain(self):
        text = self.ok(*self.command("--explain", "--threads", 1), env={"ONEHOT_FORCE": "ref"})
        self.assertRegex(text, r"\noperator|\Aoperator +embedding_backward\n")
        self.assertRegex(text, r"\ngrad +g.npy: f32 \[3, 2\], mapped\n")
        self.assertRegex(text, r"\nimplementation +ref\n")
        self.assertRegex(text, r"\nrefused +cpu:grouped: .*ONEHOT_FORCE")
        self.assertRegex(text, r"\nthreads +at most 1\n")
        # 3 x 2 f32 and 3 i64 in, 4 x 2 f32 out.
        self.assertRegex(text, r"\nbytes +48 bytes read, 32 bytes written\n")
        self.assertRegex(text, r"\ntime +[\d.]+ ms, [\d.]+ GB/s\nwith files +[\d.]+ ms\n")
        self.assertRegex(text, r"\nworking memory +\S+ \w+\n")
        self.assertEqual(self.ok(*self.command()), "")


class Output(Case):
    def setUp(self):
        super().setUp()
        self.save("g.npy", gradient(3, 2))
        self.save("i.npy", [0, 1, 1])

    def command(self, out, *flags):
        return ("embedding-backward", "--grad", "g.npy", "--indices", "i.npy", "--num-weights", 4, "--out", out, *flags)

    def check(self, name):
        self.equal(np.load(name), backward(gradient(3, 2), [0, 1, 1], 4)[0])

    def test_leaves_only_the_result(self):
        self.ok(*self.command("o.npy"))
        self.check("o.npy")
        self.assertEqual(sorted(os.listdir()), ["g.npy", "i.npy", "o.npy"])

    def test_refused_data_leave_an_older_result_alone(self):
        self.save("i.npy", [0, 1, 9])
        with open("o.npy", "w") as file:
            file.write("older")
        self.refused(DATA, "indices[2] = 9 is outside [0, 4)", *self.command("o.npy", "--counts", "c.npy"))
        with open("o.npy") as file:
            self.assertEqual(file.read(), "older")

    def test_permissions(self):
        self.ok(*self.command("new.npy"), umask=0o027)
        self.assertEqual(os.stat("new.npy").st_mode & 0o777, 0o640)
        os.chmod("new.npy", 0o604)
        self.ok(*self.command("new.npy"), umask=0o077)
        self.assertEqual(os.stat("new.npy").st_mode & 0o777, 0o604)

    def test_symbolic_links_stay(self):
        os.mkdir("there")
        self.save("there/o.npy", [1])
        os.symlink("there/o.npy", "link.npy")
        self.ok(*self.command("link.npy"))
        self.assertTrue(os.path.islink("link.npy"))
        self.check("there/o.npy")
        self.assertEqual(os.listdir("there"), ["o.npy"])

    def test_places_that_cannot_be_written(self):
        self.refused(FILE, "nowhere/o.npy: cannot be created: No such file or directory",
                     *self.command("nowhere/o.npy"))
        os.mkdir("folder")
        self.refused(FILE, "folder: exists and is not a regular file", *self.command("folder"))
        self.refused(FILE, "/dev/null: exists and is not a regular file", *self.command("/dev/null"))
        self.refused(FILE, "o.npy: no room for", *self.command("o.npy"),
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
        self.refused(FILE, "nowhere/c.npy: cannot be created", *self.command("o.npy", "--counts", "nowhere/c.npy"))

    def test_long_names(self):
        name = "o" * 250 + ".npy"
        self.ok(*self.command(name))
        self.check(name)

    def test_interrupted_while_it_reads(self):
        os.mkfifo("never")
        for stop in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            run = subprocess.Popen([ONEHOT, "embedding-backward", "--grad", "never", "--indices", "i.npy",
                                    "--num-weights", "4", "--out", "o.npy"], stderr=subprocess.PIPE, text=True)
            writer = os.open("never", os.O_WRONLY)  # returns once the other side has opened it
            time.sleep(0.2)
            run.send_signal(stop)
            _, message = run.communicate(timeout=60)
            os.close(writer)
            self.assertEqual(run.returncode, 128 + stop)
            self.assertEqual(message, "onehot: interrupted; nothing was written\n")
        self.assertEqual(sorted(os.listdir()), ["g.npy", "i.npy", "never"])


class Large(Case):
    """More than 4 GiB of gradient, from a file with holes: no disk is needed, and zeros take as long as numbers."""
    N, D, V = 1 << 20, 1040, 2048

    def setUp(self):
        super().setUp()
        self.save("i.npy", np.arange(self.N) % self.V)
        header = np.lib.format.header_data_from_array_1_0(np.zeros((0, 0), np.float32))
        header["shape"] = (self.N, self.D)
        with open("g.npy", "wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            file.truncate(file.tell() + 4 * self.N * self.D)
            # The last rows of all, beyond 4 GiB.
            file.seek(-4 * 2 * self.D, os.SEEK_END)
            file.write(gradient(2, self.D).tobytes())
        self.assertGreater(os.path.getsize("g.npy"), 1 << 32)

    command = ("embedding-backward", "--grad", "g.npy", "--indices", "i.npy", "--num-weights", "2048", "--out", "o.npy")

    def test_beyond_4_gib(self):
        self.ok(*self.command)
        want = np.zeros((self.V, self.D))
        want[[(self.N - 2) % self.V, (self.N - 1) % self.V]] = gradient(2, self.D)
        self.equal(np.load("o.npy"), want)

    def test_progress_on_a_terminal(self):
        terminal, side = pty.openpty()
        shown = bytearray()

        def read():
            try:
                while part := os.read(terminal, 4096):
                    shown.extend(part)
            except OSError:  # how the end of a pseudo terminal shows
                pass

        reader = threading.Thread(target=read)
        reader.start()
        done = subprocess.run([ONEHOT, *self.command, "--threads", "1", "--explain"], stdout=subprocess.PIPE,
                              stderr=side, text=True, timeout=250, env={**os.environ, "TERM": "xterm"})
        os.close(side)
        reader.join()
        os.close(terminal)
        self.assertEqual(done.returncode, DONE, shown)
        run, both = (float(done.stdout.split(word)[1].split()[0]) for word in ("\ntime", "\nwith files"))
        if both < 900:
            self.assertEqual(shown, b"")  # over before there was something to wait for
        elif run > 1500 or both - run > 1500:
            self.assertRegex(bytes(shown), rb"\r(reading g.npy|embedding-backward) \[#* *\] +\d+ %  \d+ s left")
            self.assertTrue(shown.endswith(b"\r\x1b[K"), shown)

    def test_interrupted_while_it_works(self):
        # Once while the file is read, once, now that it is in memory, most likely while rows are summed.
        for delay in (0.02, 0.2):
            run = subprocess.Popen([ONEHOT, *self.command, "--threads", "1"], stderr=subprocess.PIPE, text=True)
            while not glob.glob(".o.npy.*"):
                self.assertIsNone(run.poll())
                time.sleep(0.001)
            time.sleep(delay)
            run.send_signal(signal.SIGINT)
            _, message = run.communicate(timeout=60)
            if run.returncode == DONE:  # a fast machine, or a slow test
                os.unlink("o.npy")
            else:
                self.assertEqual((run.returncode, message), (130, "onehot: interrupted; nothing was written\n"))
            self.assertEqual(sorted(os.listdir()), ["g.npy", "i.npy"])

    def test_input_that_is_cut_short(self):
        run = subprocess.Popen([ONEHOT, *self.command, "--threads", "1"], stderr=subprocess.PIPE, text=True)
        while not glob.glob(".o.npy.*"):
            self.assertIsNone(run.poll())
            time.sleep(0.001)
        os.truncate("g.npy", 1 << 20)
        _, message = run.communicate(timeout=60)
        self.assertEqual(run.returncode, FILE)
        self.assertRegex(message, r"\Aonehot: [^\n]+ it was cut short during the run, or its disk failed\n\Z")
        self.assertEqual(sorted(os.listdir()), ["g.npy", "i.npy"])


if __name__ == "__main__":
    unittest.main()
