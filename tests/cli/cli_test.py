"""The command line from end to end: files in, files out, sentences and exit codes. ONEHOT names the binary.

Gradients here are small integers that vary by row and column, so sums are exact in every dtype and are compared for
equality; rounding is the business of the library's own tests.
"""
import glob
import os
import pty
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

ONEHOT = os.environ["ONEHOT"]
DONE, DATA, USAGE, FILE = 0, 1, 2, 3


def bf16_bits(values):
    """The bits of values that bf16 holds exactly, as ml_dtypes saves them."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    assert not (bits & 0xFFFF).any()
    return (bits >> 16).astype(np.uint16).view("V2")


def from_bf16(array):
    return (np.ascontiguousarray(array).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def gradient(*shape):
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    return (i * 7 % 19 - 9).reshape(shape).astype(np.float32)


def backward(grad, indices, num_weights, padding_idx=None, scale=False, base=None):
    """The definition, in double."""
    rows = np.asarray(indices).reshape(-1).astype(np.int64)
    grad = np.asarray(grad, np.float64).reshape(len(rows), -1 if len(rows) else np.shape(grad)[-1])
    total = np.zeros((num_weights, grad.shape[1]))
    counts = np.zeros(num_weights, np.int64)
    for i, v in enumerate(rows):
        counts[v] += 1
        total[v] += grad[i]
    if scale:
        total /= np.maximum(counts, 1)[:, None]
    if padding_idx is not None:
        total[padding_idx] = 0
    return (total if base is None else base + total), counts


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder.name)

    def run_onehot(self, *arguments, env=None, **options):
        return subprocess.run([ONEHOT, *map(str, arguments)], capture_output=True, text=True, timeout=250,
                              env={**os.environ, **(env or {})}, **options)

    def ok(self, *arguments, **options):
        done = self.run_onehot(*arguments, **options)
        self.assertEqual((done.returncode, done.stderr), (DONE, ""), arguments)
        return done.stdout

    def refused(self, code, part, *arguments, **options):
        """One line on stderr with `part` in it, and no file that was not there before."""
        before = sorted(os.listdir())
        done = self.run_onehot(*arguments, **options)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\Aonehot: [^\n]+\n\Z")
        self.assertIn(part, done.stderr)
        self.assertEqual(sorted(os.listdir()), before)

    def save(self, name, array, version=None):
        with open(name, "wb") as file:
            np.lib.format.write_array(file, np.asanyarray(array), version=version)
        return name

    def backward(self, grad, indices, num_weights, *flags, **options):
        self.save("g.npy", grad)
        self.save("i.npy", indices)
        self.ok("embedding-backward", "--grad", "g.npy", "--indices", "i.npy", "--num-weights", num_weights, "--out",
                "o.npy", *flags, **options)
        return np.load("o.npy")

    def equal(self, got, want, dtype=None):
        self.assertEqual(got.shape, np.shape(want))
        if dtype is not None:
            self.assertEqual(got.dtype, np.dtype(dtype))
        np.testing.assert_array_equal(got, want)


class Backward(Case):
    def test_by_hand(self):
        got = self.backward(np.array([[1, 2], [10, 20], [100, 200]], np.float32), [2, 0, 2], 4)
        self.equal(got, [[10, 20], [0, 0], [101, 202], [0, 0]], np.float32)

    def test_grad_of_several_axes(self):
        grad, indices = gradient(2, 3, 5), np.array([[1, 0, 1], [3, 3, 1]])
        self.equal(self.backward(grad, indices, 4), backward(grad, indices, 4)[0])

    def test_padding_row(self):
        grad, indices = gradient(6, 3), np.array([0, 1, 2, 3, 1, 1])
        for k in (0, 1, 3, -1, -3, -4):
            self.equal(self.backward(grad, indices, 4, "--padding-idx", k), backward(grad, indices, 4, k)[0])

    def test_scale_by_frequency(self):
        grad, indices = gradient(6, 3), np.array([0, 1, 2, 3, 1, 2])
        want = backward(grad, indices, 5, scale=True)[0]
        self.equal(self.backward(grad, indices, 5, "--scale-grad-by-freq"), want)

    def test_counts(self):
        grad, indices = gradient(6, 3), np.array([0, 1, 2, 3, 1, 1])
        self.backward(grad, indices, 5, "--counts", "c.npy", "--padding-idx", 1)
        self.equal(np.load("c.npy"), [1, 3, 1, 1, 0], np.int64)

    def test_accumulate(self):
        grad, indices, base = gradient(6, 3), np.array([0, 1, 2, 3, 1, 1]), gradient(5, 3) + 40
        want = backward(grad, indices, 5, 2, base=base)[0]
        for stored in (base, np.asfortranarray(base), base.astype(">f4")):
            self.save("b.npy", stored)
            got = self.backward(grad, indices, 5, "--accumulate", "b.npy", "--padding-idx", 2)
            self.equal(got, want, np.float32)
            self.assertEqual(got.flags.f_contiguous, stored.flags.f_contiguous)

    def test_accumulate_in_place(self):
        grad, indices = gradient(6, 3), np.array([0, 1, 2, 3, 1, 1])
        self.backward(grad, indices, 5)
        got = self.backward(grad, indices, 5, "--accumulate", "o.npy")
        self.equal(got, 2 * backward(grad, indices, 5)[0])

    def test_accumulate_into_f32_from_16_bits(self):
        grad, indices, base = gradient(6, 3), np.array([0, 1, 2, 3, 1, 1]), gradient(5, 3) + 0.0625
        self.save("b.npy", base)
        got = self.backward(grad.astype(np.float16), indices, 5, "--accumulate", "b.npy")
        self.equal(got, backward(grad, indices, 5, base=base)[0], np.float32)

    def test_f32_result_of_a_16_bit_gradient(self):
        # 2048 + 1 needs 12 bits of mantissa: f16 has 11.
        grad, indices = np.array([[2048], [1]], np.float16), np.array([1, 1])
        self.equal(self.backward(grad, indices, 2), [[0], [2048]], np.float16)
        self.equal(self.backward(grad, indices, 2, "--out-dtype", "f32"), [[0], [2049]], np.float32)

    def test_every_implementation_and_thread_count(self):
        grad, indices = gradient(500, 33), np.arange(500) * 13 % 57
        want = backward(grad, indices, 60)[0]
        for env in ({}, {"ONEHOT_FORCE": "ref"}, {"ONEHOT_MAX_ISA": "SCALAR"}):
            for threads in (1, 2, 7):
                self.equal(self.backward(grad, indices, 60, "--threads", threads, env=env), want)

    def test_nothing_to_add(self):
        self.equal(self.backward(np.zeros((0, 3), np.float32), np.zeros(0, np.int64), 4), np.zeros((4, 3)))
        self.equal(self.backward(np.zeros((0, 3), np.float32), np.zeros(0, np.int64), 0), np.zeros((0, 3)))
        self.equal(self.backward(np.zeros((2, 0), np.float32), np.zeros(2, np.int64), 4), np.zeros((4, 0)))

    def test_one_position_without_axes(self):
        self.equal(self.backward(np.array([5, 6], np.float32), np.array(1), 3), [[0, 0], [5, 6], [0, 0]])


class Formats(Case):
    def test_dtypes_orders_and_versions(self):
        grad, indices = gradient(2, 3, 5), np.array([[1, 0, 1], [3, 3, 1]])
        want = backward(grad, indices, 4)[0]
        for dtype in ("<f2", ">f2", "<f4", ">f4", "<f8", ">f8"):
            for order in "CF":
                for version in ((1, 0), (2, 0), (3, 0)):
                    self.save("g.npy", np.array(grad, dtype, order=order), version)
                    self.save("i.npy", np.array(indices, order=order), version)
                    self.ok("embedding-backward", "--grad", "g.npy", "--indices", "i.npy", "--num-weights", 4, "--out",
                            "o.npy")
                    self.equal(np.load("o.npy"), want, np.dtype(dtype).newbyteorder("="))

    def test_bf16(self):
        grad, indices = gradient(6, 3), np.array([0, 1, 2, 3, 1, 1])
        want = backward(grad, indices, 5)[0]
        for stored in (bf16_bits(grad), np.asfortranarray(bf16_bits(grad))):
            got = self.backward(stored, indices, 5, "--dtype", "bf16")
            np.testing.assert_array_equal(from_bf16(got), want)
            with open("o.npy", "rb") as file:
                self.assertIn(b"'descr': '%sV2'" % (b"<" if sys.byteorder == "little" else b">"), file.read(128))
        self.equal(self.backward(stored, indices, 5, "--dtype", "bf16", "--out-dtype", "f32"), want, np.float32)
        self.save("b.npy", bf16_bits(gradient(5, 3)))
        got = self.backward(stored, indices, 5, "--dtype", "bf16", "--accumulate", "b.npy")
        np.testing.assert_array_equal(from_bf16(got), want + gradient(5, 3))

    def test_bf16_under_both_of_its_names(self):
        # NumPy writes one of them, ml_dtypes the other.
        self.save("g.npy", bf16_bits(gradient(3, 2)))
        with open("g.npy", "rb") as file:
            content = file.read()
        self.save("i.npy", [0, 1, 1])
        for descr in (b"<V2", b"|V2"):
            with open("g.npy", "wb") as file:
                file.write(content.replace(b"|V2", descr))
            self.ok("embedding-backward", "--grad", "g.npy", "--indices", "i.npy", "--num-weights", 2, "--dtype",
                    "bf16", "--out", "o.npy")
            np.testing.assert_array_equal(from_bf16(np.load("o.npy")), backward(gradient(3, 2), [0, 1, 1], 2)[0])

    def test_data_at_any_offset(self):
        grad = gradient(3, 2)
        for spaces in range(8):
            dict_text = b"{'shape': (3, 2), 'descr': '<f4', 'fortran_order': False}" + b" " * spaces
            with open("g.npy", "wb") as file:
                file.write(b"\x93NUMPY\x01\x00" + len(dict_text).to_bytes(2, "little") + dict_text)
                file.write(grad.astype("<f4").tobytes())
            self.save("i.npy", [0, 1, 1])
            self.ok("embedding-backward", "--grad", "g.npy", "--indices", "i.npy", "--num-weights", 2, "--out", "o.npy")
            self.equal(np.load("o.npy"), backward(grad, [0, 1, 1], 2)[0])

    def test_pipes(self):
        self.save("g.npy", gradient(300000, 2))
        self.save("i.npy", np.arange(300000) % 3)
        with open("g.npy", "rb") as file:
            content = file.read()
        done = subprocess.run([ONEHOT, "embedding-backward", "--grad", "/dev/stdin", "--indices", "i.npy",
                               "--num-weights", "3", "--out", "o.npy"], input=content, capture_output=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (DONE, b""))
        self.equal(np.load("o.npy"), backward(gradient(300000, 2), np.arange(300000) % 3, 3)[0])


class Indices(Case):
    KINDS = ("?", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", ">i2", ">i4", ">i8",
             ">u2", ">u4", ">u8", ">f2", ">f4", ">f8")

    def test_every_type(self):
        for kind in self.KINDS:
            for order in "CF":
                values = np.array([[1, 0, 1], [1, 1, 0]] if kind == "?" else [[1, 0, 3], [1, 5, 5]])
                got = self.backward(gradient(2, 3, 4), np.array(values, kind, order=order), 6)
                self.equal(got, backward(gradient(2, 3, 4), values, 6)[0])

    def test_unsigned_values_beyond_the_signed_type_of_their_size(self):
        for kind, value in (("<u1", 200), ("<u2", 40000), (">u2", 65535)):
            got = self.backward(gradient(2, 3), np.array([1, value], kind), value + 1)
            self.equal(got[[1, value]], gradient(2, 3))

    def test_values_out_of_range(self):
        self.save("g.npy", gradient(2, 3, 4))
        command = ("embedding-backward", "--grad", "g.npy", "--indices", "i.npy", "--num-weights", 10, "--out", "o.npy")
        for kind in self.KINDS:
            if kind == "?":
                continue
            for order in "CF":
                self.save("i.npy", np.array([[1, 0, 3], [1, 5, 10]], kind, order=order))
                self.refused(DATA, "indices[1, 2] (position 5) = 10 is outside [0, 10)", *command)
            if np.dtype(kind).kind != "u":
                self.save("i.npy", np.array([[1, 0, 3], [1, -2, 10]], kind))
                self.refused(DATA, "indices[1, 1] (position 4) = -2 is outside [0, 10)", *command)

    def test_values_that_no_signed_type_holds(self):
        self.save("g.npy", gradient(6, 4))
        command = ("embedding-backward", "--grad", "g.npy", "--indices", "i.npy", "--num-weights", 10, "--out", "o.npy")
        for kind in ("<u8", ">u8"):
            for order in "CF":
                self.save("i.npy", np.array([[1, 0, 3], [1, 2**64 - 1, 2**63]], kind, order=order))
                self.refused(DATA, "indices[1, 1] (position 4) = 18446744073709551615 is outside [0, 10)", *command)
                # The smallest bad position, though its value would fit.
                self.save("i.npy", np.array([[1, 0, 11], [1, 2**64 - 1, 2**63]], kind, order=order))
                self.refused(DATA, "indices[0, 2] (position 2) = 11 is outside [0, 10)", *command)
            self.save("i.npy", np.array([1, 0, 3, 4, 2**63, 5], kind))
            self.refused(DATA, "indices[4] = 9223372036854775808 is outside [0, 10)", *command)


class Forward(Case):
    def embedding(self, weight, indices, *flags):
        self.save("w.npy", weight)
        self.save("i.npy", indices)
        self.ok("embedding", "--weight", "w.npy", "--indices", "i.npy", "--out", "o.npy", *flags)
        return np.load("o.npy")

    def test_every_dtype(self):
        values = np.arange(21).reshape(7, 3)
        indices = np.array([[6, 0], [2, 2], [5, 1]])
        for dtype in ("?", "<i1", "<u1", "<i2", ">i2", "<u2", "<i4", "<u4", ">u4", "<i8", "<u8", ">u8", "<f2", "<f4",
                      "<f8", ">f8", "<c8", ">c8", "<c16", ">c16"):
            for order in "CF":
                weight = np.array(values * (1 - 2j) if np.dtype(dtype).kind == "c" else values, dtype, order=order)
                self.equal(self.embedding(weight, indices), weight[indices], weight.dtype.newbyteorder("="))

    def test_bf16(self):
        weight, indices = bf16_bits(gradient(7, 3)), np.array([6, 0, 2])
        for flags in ((), ("--dtype", "bf16")):
            got = self.embedding(weight, indices, *flags)
            np.testing.assert_array_equal(from_bf16(got), gradient(7, 3)[indices])

    def test_shapes(self):
        weight = gradient(7, 3)
        for shape in ((), (0,), (5,), (1, 2, 1, 2, 1, 2, 1, 2)):
            indices = np.arange(int(np.prod(shape))).reshape(shape) % 7
            self.equal(self.embedding(weight, indices), weight[indices])

    def test_errors(self):
        self.save("w.npy", gradient(7, 3))
        self.save("i.npy", [0, 7])
        command = ("embedding", "--weight", "w.npy", "--indices", "i.npy", "--out", "o.npy")
        self.refused(DATA, "indices[1] = 7 is outside [0, 7)", *command)
        self.refused(USAGE, "--dtype", *command, "--dtype", "bf16")
        self.save("w.npy", gradient(7))
        self.refused(DATA, "weight: rank must be 2", *command)


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
        self.assertRegex(text, r"instruction sets.*\n  .*SCALAR")
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
    unittest.main(verbosity=1)
