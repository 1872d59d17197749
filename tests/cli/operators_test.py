"""The operators on .npy files of every kind: right results."""
import re
import subprocess
import sys
import unittest

import numpy as np
from case import DATA, DONE, ONEHOT, USAGE, Case, backward, bf16_bits, from_bf16, gradient


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
        sets = re.search(r"instruction sets.*\n +(.*)", self.ok("info"))[1].split(", ")
        for env in ({}, {"ONEHOT_FORCE": "ref"}, *({"ONEHOT_MAX_ISA": name} for name in sets)):
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


if __name__ == "__main__":
    unittest.main()
