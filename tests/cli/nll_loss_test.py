"""nll-loss and nll-loss-backward on .npy files. Log-probabilities are quarters and weights powers of two, so that sums
are exact and results are compared for equality after their one rounding."""
import os
import resource
import signal
import subprocess
import time

import numpy as np
from case import DATA, FILE, ONEHOT, USAGE, bf16_bits, main
from losses import (FLOATS, REDUCTIONS, LossCase, Positions, classes_of, command_line, loaded, log_probabilities,
                    nll_loss, nll_loss_backward, stored, targets, to_dtype, upstream, weights)

# Shapes of log-probabilities and the axis of the classes.
SHAPES = (((5,), 1), ((7, 5), 1), ((5, 7), 0), ((2, 4, 3, 5), 1), ((2, 3, 5, 4), -1), ((3, 2, 1, 2, 1, 2, 1, 2), -4))


def plain(dtype):
    """What the tool writes for it."""
    return dtype if dtype == "bf16" else np.dtype(dtype).newbyteorder("=")


def flags_of(dtype):
    return ("--dtype", "bf16") if dtype == "bf16" else ()


class NllCase(LossCase):
    def loss(self, x, y, *flags, dtype=None, **options):
        self.save("x.npy", x)
        self.save("y.npy", y)
        self.save_arrays(options)
        self.ok("nll-loss", "--input", "x.npy", "--target", "y.npy", "--out", "l.npy", "--total-weight", "D.npy",
                *command_line(options), *flags)
        total = np.load("D.npy")
        self.assertEqual((total.dtype, total.shape), (np.float64, ()))
        return loaded("l.npy", dtype), total

    def backward(self, y, *flags, dtype=None, **options):
        self.save("y.npy", y)
        self.save_arrays(options)
        self.ok("nll-loss-backward", "--target", "y.npy", "--out", "o.npy", *command_line(options), *flags)
        return loaded("o.npy", dtype)


class NllLoss(NllCase):
    def test_by_hand(self):
        x = np.array([[-1, -2, -3], [-4, -5, -6], [-7, -8, -9], [-10, -11, -12]], np.float32)
        y = np.array([2, 0, -100, 1])
        w = np.array([.5, 2, 4], np.float32)
        # 4 * 3, .5 * 4, ignored, 2 * 11; weights 4 + .5 + 2.
        for reduction, want, total in (("none", [12, 2, 0, 22], 0), ("sum", 36, 6.5), ("mean", 36 / 6.5, 6.5)):
            loss, D = self.loss(x, y, weight=w, reduction=reduction)
            self.equal(loss, np.float32(want), np.float32)
            self.assertEqual(D, total)
        self.equal(self.loss(x, y)[0], np.float32(18 / 3))

    def test_shapes_reductions_and_orders(self):
        for shape, axis in SHAPES:
            C, positions = classes_of(shape, axis)
            y = targets(*positions, classes=C, ignored=1)
            options = {"weight": weights(C), "token_weight": weights(y.size).reshape(y.shape), "ignore_index": 1,
                       "class_axis": axis}
            for reduction in REDUCTIONS:
                x = log_probabilities(*shape)
                want, total = nll_loss(x, y, reduction=reduction, **options)
                for order in "CF":
                    loss, D = self.loss(np.array(x, order=order), np.array(y, order=order), reduction=reduction,
                                        **{**options, "token_weight": np.array(options["token_weight"], order=order)})
                    self.equal(loss, want.astype(np.float32), np.float32)
                    self.assertEqual(D, total)

    def test_dtypes(self):
        x, y = log_probabilities(6, 5, 3), targets(6, 3, classes=5, ignored=-100)
        for dtype in FLOATS:
            for weight_dtype in {dtype, "<f4"} if dtype[1:] != "f8" else {dtype}:
                w = stored(weights(5), weight_dtype)
                for reduction in ("none", "mean"):
                    want, total = nll_loss(x, y, weight=weights(5), reduction=reduction)
                    loss, D = self.loss(stored(x, dtype), y, *flags_of(dtype), dtype=dtype, weight=w,
                                        reduction=reduction)
                    self.equal(loss, to_dtype(want, plain(dtype)))
                    self.assertEqual(D, total)
        for dtype, wider in (("bf16", "f32"), ("<f2", "f32"), ("<f2", "f64"), ("<f4", "f64")):
            loss, _ = self.loss(stored(x, dtype), y, "--out-dtype", wider, *flags_of(dtype))
            self.equal(loss, nll_loss(x, y)[0].astype(wider.replace("f32", "f4").replace("f64", "f8")))

    def test_bf16_is_written_as_void(self):
        self.loss(bf16_bits(log_probabilities(3, 4)), [0, 1, 3], "--dtype", "bf16", reduction="none")
        self.assertEqual(np.load("l.npy").dtype.str[1:], "V2")

    def test_targets_of_every_type(self):
        x, y = log_probabilities(4, 6, 3), targets(4, 3, classes=6)
        want = nll_loss(x, y, ignore_index=2, reduction="none")[0]
        for kind in ("<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", ">i2", ">i4", ">i8", ">u2", ">u4", ">u8"):
            for order in "CF":
                loss, _ = self.loss(x, np.array(y, kind, order=order), ignore_index=2, reduction="none")
                self.equal(loss, want.astype(np.float32))

    def test_ignored_targets(self):
        x = log_probabilities(6, 4)
        for kind, ignored in (("<i8", -100), ("<u1", 255), ("<i4", 3), ("<i8", -2**63), ("<i8", 2**63 - 1),
                              ("<u8", 2**63 - 1), ("<u2", 65535), ("<i1", -128)):
            y = np.array([0, ignored, 2, ignored, 1, 1], kind)
            x[[1, 3]] = np.nan
            loss, D = self.loss(x, y, ignore_index=ignored)
            self.equal(loss, nll_loss(x, y.astype(np.int64), ignore_index=ignored)[0].astype(np.float32))
            self.assertEqual(D, 4)

    def test_nothing_counts(self):
        for x, y in ((log_probabilities(2, 3), np.array([-100, -100])),
                     (log_probabilities(0, 3, 5, 7), np.zeros((0, 5, 7), np.int64)),
                     (log_probabilities(2, 3, 0, 7), np.zeros((2, 0, 7), np.int64))):
            self.assertTrue(np.isnan(self.loss(x, y)[0]))
            self.equal(self.loss(x, y, zero_if_empty=True)[0], 0)
            self.equal(self.loss(x, y, reduction="sum")[0], 0)
            self.equal(self.loss(x, y, reduction="none")[0], np.zeros(y.shape))

    def test_denominator(self):
        x, y = log_probabilities(6, 4), targets(6, classes=4)
        loss, D = self.loss(x, y, denominator=2.5)
        self.equal(loss, nll_loss(x, y, denominator=2.5)[0].astype(np.float32))
        self.assertEqual(D, 6)
        self.equal(self.loss(x, y, denominator=-4.0)[0], nll_loss(x, y, denominator=-4)[0].astype(np.float32))

    def test_total_weight_beyond_the_dtype_of_the_input(self):
        loss, D = self.loss(np.full((90000, 2), -1.25, np.float16), np.arange(90000) % 2)
        self.assertEqual((float(loss), float(D)), (1.25, 90000))

    def test_implementations_and_threads(self):
        x, y = log_probabilities(3, 17, 40, 41), targets(3, 40, 41, classes=17, ignored=-100)
        for reduction in REDUCTIONS:
            want = nll_loss(x, y, reduction=reduction)[0].astype(np.float32)
            self.equal(self.loss(x, y, reduction=reduction)[0], want)
            for _ in self.each_way_to_run("nll_loss", "nll-loss", "--input", "x.npy", "--target", "y.npy", "--out",
                                          "l.npy", "--reduction", reduction):
                self.equal(np.load("l.npy"), want)


class NllLossBackward(NllCase):
    def test_by_hand(self):
        y, w = np.array([2, 0, -100, 1]), np.array([.5, 2, 4], np.float32)
        self.save("g.npy", np.float32(13))
        want = np.float32([[0, 0, -8], [-1, 0, 0], [0, 0, 0], [0, -4, 0]])
        got = self.backward(y, "--grad-output", "g.npy", weight=w, num_classes=3)
        self.equal(got, want, np.float32)
        np.testing.assert_array_equal(np.signbit(got), want < 0)
        self.save("g.npy", np.float32([1, -2, np.nan, 3]))
        got = self.backward(y, "--grad-output", "g.npy", weight=w, num_classes=3, reduction="none")
        self.equal(got, [[0, 0, -4], [1, 0, 0], [0, 0, 0], [0, -6, 0]], np.float32)
        # Without a gradient it is 1, as for backward() of a number.
        got = self.backward(y, weight=w, num_classes=3, reduction="sum")
        self.equal(got, [[0, 0, -4], [-.5, 0, 0], [0, 0, 0], [0, -2, 0]], np.float32)

    def test_shapes_reductions_and_orders(self):
        for shape, axis in SHAPES:
            C, positions = classes_of(shape, axis)
            y = targets(*positions, classes=C, ignored=1)
            options = {"weight": weights(C), "token_weight": weights(y.size).reshape(y.shape), "ignore_index": 1,
                       "class_axis": axis}
            x = log_probabilities(*shape)
            for reduction in REDUCTIONS:
                g = upstream(*y.shape) if reduction == "none" else np.float32([-2.5])
                want, _ = nll_loss_backward(x, y, g if reduction == "none" else g[0], reduction=reduction, **options)
                for order in "CF":
                    self.save("g.npy", np.array(g, order=order))
                    self.save("like.npy", np.array(x, order=order))
                    arguments = ("--grad-output", "g.npy")
                    got = self.backward(np.array(y, order=order), *arguments, "--like", "like.npy",
                                        reduction=reduction, **options)
                    self.equal(got, want, np.float32)
                    self.assertEqual(got.flags.f_contiguous, np.array(x, order=order).flags.f_contiguous)
                got = self.backward(y, *arguments, "--num-classes", C, reduction=reduction, **options)
                self.equal(got, want, np.float32)

    def test_dtypes(self):
        y = targets(6, 3, classes=5, ignored=-100)
        x, g = log_probabilities(6, 5, 3), upstream(6, 3)
        for dtype in FLOATS:
            real = np.float64 if dtype[1:] == "f8" else np.float32
            self.save("like.npy", stored(x, dtype))
            for grad_dtype in {dtype, "<f4"}:
                self.save("g.npy", stored(g, grad_dtype))
                want, _ = nll_loss_backward(x, y, g, reduction="none", real=real)
                flags = ("--grad-output", "g.npy", "--like", "like.npy", *flags_of(dtype))
                self.equal(self.backward(y, *flags, dtype=dtype, reduction="none"), to_dtype(want, plain(dtype)))
            want, _ = nll_loss_backward(x, y, real=real)
            self.equal(self.backward(y, "--like", "like.npy", *flags_of(dtype), dtype=dtype),
                       to_dtype(want, plain(dtype)))

    def test_dtype_of_the_result(self):
        y = targets(6, classes=5)
        self.save("like.npy", log_probabilities(6, 5).astype(np.float16))
        self.save("g.npy", np.float16(1))
        for flags, dtype in ((("--num-classes", 5), np.float32),
                             (("--num-classes", 5, "--grad-output", "g.npy"), np.float16),
                             (("--like", "like.npy"), np.float16),
                             (("--like", "like.npy", "--out-dtype", "f64"), np.float64),
                             (("--num-classes", 5, "--out-dtype", "f16"), np.float16)):
            self.assertEqual(self.backward(y, *flags).dtype, dtype)
        got = self.backward(y, "--num-classes", 5, "--out-dtype", "bf16", dtype="bf16")
        self.equal(got, to_dtype(nll_loss_backward(np.zeros((6, 5)), y)[0], "bf16"))

    def test_total_weight(self):
        y = targets(9, 4, classes=6, ignored=-100)
        options = {"weight": weights(6), "token_weight": weights(36).reshape(9, 4)}
        want, _ = nll_loss_backward(np.zeros((9, 6, 4)), y, **options)
        self.loss(log_probabilities(9, 6, 4), y, **options)
        computed = self.backward(y, "--num-classes", 6, **options)
        given = self.backward(y, "--num-classes", 6, "--total-weight", "D.npy", **options)
        self.equal(computed, want)
        self.equal(given, want)
        # As given, whatever the targets say; in the dtype of the result as well.
        for dtype in (np.float32, np.float64, np.float16):
            self.save("D.npy", np.array([3], dtype))
            got = self.backward(y, "--num-classes", 6, "--total-weight", "D.npy", "--out-dtype",
                                "f16" if dtype == np.float16 else "f32", **options)
            p = nll_loss_backward(np.zeros((9, 6, 4)), y, denominator=3, **options)[0]
            self.equal(got, p.astype(got.dtype))
        self.equal(self.backward(y, "--num-classes", 6, denominator=3.0, **options), p)
        self.assertRegex(self.ok("nll-loss-backward", "--target", "y.npy", "--num-classes", 6, "--out", "o.npy",
                                 "--explain"), rf"\ntotal_weight +{(y >= 0).sum()}, from target\n")

    def test_everything_ignored(self):
        got = self.backward(np.array([-100, -100]), "--num-classes", 3)
        self.equal(got, np.zeros((2, 3)))
        self.assertFalse(np.signbit(got).any())
        self.equal(self.backward(np.zeros((0, 2), np.int64), "--num-classes", 3), np.zeros((0, 3, 2)))

    def test_accumulate(self):
        y, base = targets(6, 2, classes=5, ignored=-100), log_probabilities(6, 5, 2)
        want = base + nll_loss_backward(base, y, reduction="sum")[0]
        for kept in (base, np.asfortranarray(base), base.astype(">f4")):
            self.save("b.npy", kept)
            got = self.backward(y, "--accumulate", "b.npy", reduction="sum")
            self.equal(got, want, np.float32)
            self.assertEqual(got.flags.f_contiguous, kept.flags.f_contiguous)
        self.save("o.npy", base)
        self.equal(self.backward(y, "--accumulate", "o.npy", "--num-classes", 5, reduction="sum"), want)
        self.save("b.npy", bf16_bits(base))
        self.equal(self.backward(y, "--accumulate", "b.npy", "--dtype", "bf16", dtype="bf16", reduction="sum"), want)

    def test_compact(self):
        y, x, g = targets(6, 3, classes=5, ignored=-100), log_probabilities(6, 5, 3), upstream(6, 3)
        self.save("g.npy", g)
        self.save("like.npy", np.asfortranarray(x))
        _, want = nll_loss_backward(x, y, g, weight=weights(5), reduction="none")
        for flags in (("--num-classes", 5), ("--like", "like.npy")):
            got = self.backward(y, "--compact", "--grad-output", "g.npy", *flags, weight=weights(5), reduction="none")
            self.equal(got, want, np.float32)
        _, want = nll_loss_backward(x, y, weight=weights(5))
        self.equal(self.backward(y, "--compact", "--num-classes", 5, weight=weights(5)), want)
        self.save("b.npy", g)
        got = self.backward(y, "--compact", "--num-classes", 5, "--accumulate", "b.npy", reduction="sum")
        self.equal(got, g + nll_loss_backward(x, y, reduction="sum")[1], np.float32)

    def test_the_data_of_like_are_not_read(self):
        # A file with holes, in the other byte order: reading it would take as much memory.
        y, C = np.array([5, 2**26 - 1, -100]), 2**26
        with open("like.npy", "wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": ">f4", "fortran_order": False, "shape": (3, C)})
            file.truncate(file.tell() + 4 * 3 * C)
        self.equal(self.backward(y, "--compact", "--like", "like.npy"), [-.5, -.5, 0])
        # The largest of all children so far, in KiB.
        self.assertLess(1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, os.path.getsize("like.npy") / 2)

    def test_implementations_and_threads(self):
        # One that is forced is an implementation of the gradient, though the total weight is computed as well.
        y = targets(3, 40, 41, classes=17, ignored=-100)
        want = nll_loss_backward(np.zeros((3, 17, 40, 41)), y)[0]
        self.equal(self.backward(y, "--num-classes", 17), want)
        for _ in self.each_way_to_run("nll_loss_backward", "nll-loss-backward", "--target", "y.npy", "--num-classes",
                                      17, "--out", "o.npy"):
            self.equal(np.load("o.npy"), want)


class NllRefusals(LossCase):
    FORWARD = ("nll-loss", "--input", "x.npy", "--target", "y.npy", "--out", "l.npy")
    BACKWARD = ("nll-loss-backward", "--target", "y.npy", "--out", "o.npy")

    def setUp(self):
        super().setUp()
        self.x, self.y = log_probabilities(2, 4, 3), targets(2, 3, classes=4)
        self.save("x.npy", self.x)
        self.save("y.npy", self.y)

    def both(self, code, part, *flags):
        self.refused(code, part, *self.FORWARD, *flags)
        self.refused(code, part, *self.BACKWARD, "--like", "x.npy", *flags)

    def test_targets_out_of_range(self):
        for kind in ("<i8", "<i4", ">i2", "<i1", "<u1", "<u2", ">u4", "<u8"):
            for order in "CF":
                self.save("y.npy", np.array([[0, 1, 3], [-100 if kind[1] == "i" else 3, 4, 5]], kind, order=order))
                self.both(DATA, "target[1, 1] (position 4) = 4 is outside [0, 4)")
        self.save("y.npy", np.array([[0, 1, 2**32 + 1], [1, 4, 5]]))
        self.both(DATA, "target[0, 2] (position 2) = 4294967297 is outside [0, 4)")
        # No signed type holds it, and its bits are those of the ignored target.
        self.save("y.npy", np.array([[0, 1, 3], [2**64 - 100, 4, 5]], np.uint64))
        self.both(DATA, "target[1, 0] (position 3) = 18446744073709551516 is outside [0, 4)")
        self.save("y.npy", np.array([[0, 7, 3], [2**64 - 100, 9, 5]], np.uint64))
        self.both(DATA, "target[1, 0] (position 3) = 18446744073709551516 is outside [0, 4)", "--ignore-index", 7)

    def test_an_older_result_stays(self):
        self.save("y.npy", np.array([[0, 1, 3], [9, 4, 5]]))
        for command, name in ((self.FORWARD, "l.npy"), ((*self.BACKWARD, "--num-classes", 4), "o.npy")):
            with open(name, "w") as file:
                file.write("older")
            self.refused(DATA, "target[1, 0] (position 3) = 9 is outside [0, 4)", *command)
            with open(name) as file:
                self.assertEqual(file.read(), "older")

    def test_data(self):
        self.save("y.npy", self.y.T.copy())
        self.refused(DATA, "target: shape must be that of input, f32 [2, 4, 3], without axis 1, is i64 [3, 2]",
                     *self.FORWARD)
        self.refused(DATA, "target: shape must be that of out, f32 [2, 4, 3], without axis 1, is i64 [3, 2]",
                     *self.BACKWARD, "--like", "x.npy")
        self.refused(DATA, "without axis 1, is i64 [3, 2]", *self.BACKWARD, "--like", "x.npy", "--compact")
        self.save("y.npy", self.y.astype(np.float32))
        self.both(DATA, "target: dtype must be one of i64, i32, i16, i8, u8, is f32")
        self.save("y.npy", self.y > 1)
        self.both(DATA, "target: dtype must be one of i64, i32, i16, i8, u8, is bool")
        self.save("y.npy", self.y)
        self.save("w.npy", np.ones(3, np.float32))
        self.both(DATA, "weight: shape must be [4], one element for each class, is f32 [3]", "--weight", "w.npy")
        self.both(DATA, "token_weight: shape must be that of target, i64 [2, 3], is f32 [3]", "--token-weight", "w.npy")
        self.save("w.npy", np.ones(4))
        self.refused(DATA, "weight: dtype must be that of input, f32, is f64", *self.FORWARD, "--weight", "w.npy")
        self.refused(DATA, "grad_output: must have one element, is f64 [4]", *self.BACKWARD, "--like", "x.npy",
                     "--out-dtype", "f64", "--grad-output", "w.npy")
        self.refused(DATA, "grad_output: shape must be that of target, i64 [2, 3], is f64 [4]", *self.BACKWARD,
                     "--like", "x.npy", "--out-dtype", "f64", "--grad-output", "w.npy", "--reduction", "none")
        self.refused(DATA, "total_weight: must have one element", *self.BACKWARD, "--like", "x.npy", "--total-weight",
                     "w.npy")
        self.save("b.npy", self.x[:1])
        self.refused(DATA, "accumulate: shape must be that of like, [2, 4, 3], is [1, 4, 3]", *self.BACKWARD, "--like",
                     "x.npy", "--accumulate", "b.npy")
        self.save("x.npy", self.x.astype(np.int32))
        self.refused(DATA, "input: dtype must be one of f32, f64, f16, bf16, is i32", *self.FORWARD)
        self.refused(DATA, "out: dtype must be one of f32, f64, f16, bf16, is i32", *self.BACKWARD, "--like", "x.npy")
        self.save("x.npy", self.x.astype(np.float64))
        self.refused(DATA, "loss: dtype must be that of input, f64", *self.FORWARD, "--out-dtype", "f32")
        self.save("x.npy", np.float32(3))
        self.refused(DATA, "input: rank must be in [1, 8], is 0", *self.FORWARD)
        self.save("y.npy", np.zeros((1,) * 8, np.int64))
        self.refused(DATA, "target: rank must be at most 7 without --total-weight, is 8", *self.BACKWARD, "--compact",
                     "--num-classes", 4)

    def test_usage(self):
        self.both(USAGE, "--reduction: must be none, mean or sum, is average", "--reduction", "average")
        self.both(USAGE, "--dtype: no file here has two-byte void elements", "--dtype", "bf16")
        self.both(USAGE, "--threads: must be 1 or more, is 0", "--threads", 0)
        self.refused(USAGE, "class_axis: must be in [-3, 3), the axes of input, is 3", *self.FORWARD, "--class-axis", 3)
        self.refused(USAGE, "class_axis: must be in [-3, 3), the axes of out, is -4", *self.BACKWARD, "--num-classes",
                     4, "--class-axis", -4)
        self.both(USAGE, "ignore-index", "--ignore-index", "1.5")
        self.both(USAGE, "'--ignore' is not a known option", "--ignore", 1)
        self.refused(USAGE, "--target is required", *self.FORWARD[:3], *self.FORWARD[5:])
        self.refused(USAGE, "--out-dtype: must be f32 or f64, is f16", *self.FORWARD, "--out-dtype", "f16")
        self.refused(USAGE, "--out and --total-weight: both name", *self.FORWARD, "--total-weight", "./l.npy")
        self.refused(USAGE, "--like, --num-classes or --accumulate is required", *self.BACKWARD)
        self.refused(USAGE, "--like or --num-classes is required with --compact", *self.BACKWARD, "--compact")
        self.refused(USAGE, "--grad-output is required with --reduction none", *self.BACKWARD, "--like", "x.npy",
                     "--reduction", "none")
        self.refused(USAGE, "excludes", *self.BACKWARD, "--like", "x.npy", "--num-classes", 4)
        self.refused(USAGE, "excludes", *self.BACKWARD, "--like", "x.npy", "--denominator", 4, "--total-weight",
                     "x.npy")
        self.refused(USAGE, "--num-classes: must be an integer of 0 or more, is -1", *self.BACKWARD, "--num-classes",
                     -1)
        self.refused(USAGE, "--num-classes: must be that of x.npy, 4, is 5", *self.BACKWARD, "--num-classes", 5,
                     "--accumulate", "x.npy")
        self.refused(USAGE, "--out-dtype f64: the result has the dtype of x.npy, which is f32", *self.BACKWARD,
                     "--accumulate", "x.npy", "--out-dtype", "f64")
        self.save("x.npy", bf16_bits(self.x))
        self.refused(USAGE, "input: x.npy holds two-byte void elements", *self.FORWARD)
        self.refused(USAGE, "like: x.npy holds two-byte void elements", *self.BACKWARD, "--like", "x.npy")

    def test_files(self):
        with open("x.npy", "rb") as file:
            content = file.read()
        with open("x.npy", "wb") as file:
            file.write(content[:-1])
        self.both(FILE, "x.npy: is truncated")
        os.unlink("x.npy")
        self.both(FILE, "x.npy: cannot be opened: No such file or directory")
        self.refused(FILE, "nowhere/l.npy: cannot be created", *self.BACKWARD[:3], "--num-classes", 4, "--out",
                     "nowhere/l.npy")

    def test_interrupted(self):
        os.mkfifo("never")
        run = subprocess.Popen([ONEHOT, "nll-loss", "--input", "never", "--target", "y.npy", "--out", "l.npy"],
                               stderr=subprocess.PIPE, text=True)
        writer = os.open("never", os.O_WRONLY)
        time.sleep(0.2)
        run.send_signal(signal.SIGINT)
        _, message = run.communicate(timeout=60)
        os.close(writer)
        self.assertEqual((run.returncode, message), (130, "onehot: interrupted; nothing was written\n"))
        self.assertEqual(sorted(os.listdir()), ["never", "x.npy", "y.npy"])

    def test_explain(self):
        text = self.ok(*self.FORWARD, "--explain", "--threads", 1)
        self.assertRegex(text, r"\Aoperator +nll_loss\ninput +x.npy: f32 \[2, 4, 3\], mapped\ntarget +y.npy: i64")
        self.assertRegex(text, r"\nout +l.npy: f32 \[\]\n")
        # 6 targets of i64 and 6 of 24 f32 in, one f32 out.
        self.assertRegex(text, r"\nthreads +at most 1\nbytes +72 bytes read, 4 bytes written\n")
        text = self.ok(*self.BACKWARD, "--like", "x.npy", "--explain", env={"ONEHOT_FORCE": "ref"})
        self.assertRegex(text, r"\nlike +x.npy: f32 \[2, 4, 3\], not read\n")
        self.assertRegex(text, r"\nimplementation +ref\n")
        self.assertEqual(self.ok(*self.FORWARD), "")

    def test_help(self):
        for command in ("nll-loss", "nll-loss-backward"):
            text = self.ok(command, "--help")
            for word in ("Example", "--ignore-index", "--class-axis", "--reduction", "--token-weight"):
                self.assertIn(word, text)
            self.assertIn(command, self.ok("--help"))
        self.assertIn("computed from target", text)


class NllParity(NllCase):
    """Against PyTorch, in f32 and f64."""

    @classmethod
    def setUpClass(cls):
        import torch
        cls.torch = torch

    def test_loss_and_gradient(self):
        torch = self.torch
        for dtype, shapes in ((np.float32, ((9,), (33, 9), (3, 9, 5, 7))), (np.float64, ((3, 9, 5, 7),))):
            for shape in shapes:
                _, positions = classes_of(shape, 1)
                x = np.random.default_rng(len(shape)).normal(size=shape).astype(dtype) - 3
                for ignore in (-100, 2):
                    y = targets(*positions, classes=9, ignored=ignore if len(shape) > 1 else None)
                    for w in (None, np.random.default_rng(9).uniform(.1, 2, 9).astype(dtype)):
                        for reduction in REDUCTIONS:
                            self.compare(torch, x, y, w, reduction, ignore)

    def compare(self, torch, x, y, w, reduction, ignore):
        tensor = torch.tensor(x, requires_grad=True)
        weight = None if w is None else torch.tensor(w)
        loss = torch.nn.functional.nll_loss(tensor, torch.tensor(y), weight, reduction=reduction, ignore_index=ignore)
        g = upstream(*loss.shape, dtype=x.dtype) if reduction == "none" else np.array(-1.75, x.dtype)
        loss.backward(torch.tensor(g))
        self.save("g.npy", g)
        got, _ = self.loss(x, y, weight=w, reduction=reduction, ignore_index=ignore)
        p = Positions(x, y, weight=w, reduction=reduction, ignore_index=ignore)
        eps = np.finfo(x.dtype).eps
        # The product, N - 1 additions in any order, the total weight likewise, the quotient and the rounding.
        magnitude = np.abs(p.kt * p.wy * p.at_target(p.x))
        bound = (2 * y.size + 4) * eps * (magnitude if reduction == "none" else magnitude.sum() / abs(p.D))
        self.within(got, loss.detach().numpy(), bound)
        gradient = self.backward(y, "--grad-output", "g.npy", "--like", "x.npy", weight=w, reduction=reduction,
                                 ignore_index=ignore)
        self.within(gradient, tensor.grad.numpy(), (y.size + 4) * eps * np.abs(tensor.grad.numpy()))


if __name__ == "__main__":
    main()
