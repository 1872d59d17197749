"""cross-entropy and cross-entropy-backward on .npy files, against the definition in double.

Logits are eighths: exact in every dtype. The bound of a position is that of the header of the library, on the largest
number that goes into it.
"""
import glob
import os
import signal
import subprocess
import time

import numpy as np
from case import DATA, DONE, FILE, ONEHOT, USAGE, bf16_bits, main
from losses import (FLOATS, REDUCTIONS, Bounds, LossCase, Positions, classes_of, command_line, cross_entropy,
                    cross_entropy_backward, loaded, stored, targets, upstream, weights)

SHAPES = (((5,), 1), ((7, 5), 1), ((5, 7), 0), ((2, 21, 3, 5), 1), ((2, 3, 5, 4), -1))
OUTPUTS = ("loss", "lse", "log-probability", "entropy", "argmax", "total-weight")


def logits(*shape):
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    return ((i * 23 % 71 - 35) / 8).reshape(shape).astype(np.float32)


class CrossEntropyCase(LossCase):
    def forward(self, x, y, *flags, outputs=OUTPUTS, dtype=None, **options):
        self.save("x.npy", x)
        self.save("y.npy", y)
        self.save_arrays(options)
        names = [part for output in outputs for part in ("--" + output, output + ".out")]
        self.ok("cross-entropy", "--input", "x.npy", "--target", "y.npy", *names, *command_line(options), *flags)
        return {output: loaded(output + ".out", dtype if output == "loss" else None) for output in outputs}

    def backward(self, x, y, *flags, dtype=None, **options):
        self.save("x.npy", x)
        self.save("y.npy", y)
        self.save_arrays(options)
        self.ok("cross-entropy-backward", "--input", "x.npy", "--target", "y.npy", "--out", "dz.npy",
                *command_line(options), *flags)
        return loaded("dz.npy", dtype)

    def check_forward(self, got, x, y, dtype="<f4", **options):
        want, bounds = cross_entropy(x, y, **options), Bounds(x, y, dtype, **options)
        self.within(got["loss"], want["loss"], bounds.loss(want["loss"]))
        for name in ("lse", "log-probability", "entropy"):
            self.assertEqual(got[name].dtype, np.float64 if dtype[-2:] == "f8" else np.float32)
            self.within(got[name], want[name], bounds.per_position())
        self.equal(got["argmax"], want["argmax"], np.int64)
        self.assertEqual((got["total-weight"].dtype, got["total-weight"].shape), (np.float64, ()))
        self.assertEqual(got["total-weight"], want["total-weight"])


class CrossEntropy(CrossEntropyCase):
    def test_by_hand(self):
        # Exponentials 1 1 2 4 and 1 1 1 3.
        x, y = np.log(np.float32([[1, 1, 2, 4], [1, 1, 1, 3], [5, 6, 7, 8]])), np.array([2, 3, -100])
        w = np.float32([1, 1, 2, 4])
        got = self.forward(x, y, weight=w, reduction="none")
        ulp = 2.0**-22
        self.within(got["loss"], [2 * np.log(4), 4 * np.log(2), 0], 8 * ulp)
        self.within(got["lse"], [np.log(8), np.log(6), 0], 4 * ulp)
        self.within(got["log-probability"], [-np.log(4), -np.log(2), 0], 4 * ulp)
        # 2 x 1/8 ln 8 + 1/4 ln 4 + 1/2 ln 2 and 3 x 1/6 ln 6 + 1/2 ln 2.
        self.within(got["entropy"], [1.75 * np.log(2), .5 * np.log(12), 0], 8 * ulp)
        self.equal(got["argmax"], [3, 3, -1])
        got = self.forward(x, y, weight=w)
        self.within(got["loss"], 8 * np.log(2) / 6, 8 * ulp)
        self.assertEqual(got["total-weight"], 6)

    def test_shapes_reductions_and_orders(self):
        for shape, axis in SHAPES:
            C, positions = classes_of(shape, axis)
            y = targets(*positions, classes=C, ignored=1 if positions else None)
            x = logits(*shape)
            options = {"weight": weights(C), "token_weight": weights(y.size).reshape(y.shape), "ignore_index": 1,
                       "class_axis": axis}
            for reduction in REDUCTIONS:
                for order in "CF":
                    got = self.forward(np.array(x, order=order), np.array(y, order=order), reduction=reduction,
                                       **options)
                    self.check_forward(got, x, y, reduction=reduction, **options)

    def test_options(self):
        x, y = logits(6, 11, 3), targets(6, 3, classes=11, ignored=-100)
        for options in ({"label_smoothing": .125}, {"z_loss": .25}, {"softcap": 3.0}, {"denominator": 2.5},
                        {"label_smoothing": 1.0, "z_loss": .5, "softcap": 2.0, "weight": weights(11),
                         "token_weight": weights(18).reshape(6, 3)}):
            for reduction in REDUCTIONS:
                self.check_forward(self.forward(x, y, reduction=reduction, **options), x, y, reduction=reduction,
                                   **options)

    def test_dtypes(self):
        x, y = logits(6, 5, 3), targets(6, 3, classes=5, ignored=-100)
        for dtype in FLOATS:
            flags = ("--dtype", "bf16") if dtype == "bf16" else ()
            got = self.forward(stored(x, dtype), y, *flags, dtype=dtype, weight=stored(weights(5), dtype))
            self.check_forward(got, x, y, dtype, weight=weights(5))
            if dtype != "bf16":
                self.assertEqual(got["loss"].dtype, np.dtype(dtype).newbyteorder("="))
        got = self.forward(bf16_bits(x), y, "--dtype", "bf16", "--loss-dtype", "f32")
        self.assertEqual(got["loss"].dtype, np.float32)
        self.check_forward(got, x, y)
        self.assertEqual(self.forward(x, y, "--loss-dtype", "f64")["loss"].dtype, np.float64)

    def test_targets(self):
        x, y = logits(4, 6, 3), targets(4, 3, classes=6)
        want = self.forward(x, y, ignore_index=2, reduction="none")
        for kind in ("<i1", "<i2", ">i4", "<u1", "<u2", ">u4", "<u8", ">u8"):
            for order in "CF":
                got = self.forward(x, np.array(y, kind, order=order), ignore_index=2, reduction="none")
                for output in OUTPUTS:
                    self.equal(got[output], want[output])

    def test_any_outputs(self):
        x, y = logits(7, 5), targets(7, classes=5)
        want = self.forward(x, y)
        for output in OUTPUTS:
            self.equal(self.forward(x, y, outputs=[output])[output], want[output], want[output].dtype)

    def test_nothing_counts(self):
        for x, y in ((logits(2, 3), np.array([-100, -100])), (logits(0, 3, 2), np.zeros((0, 2), np.int64))):
            self.assertTrue(np.isnan(self.forward(x, y)["loss"]))
            self.equal(self.forward(x, y, zero_if_empty=True)["loss"], 0)
            self.equal(self.forward(x, y, reduction="sum")["loss"], 0)
            self.equal(self.forward(x, y)["argmax"], np.full(y.shape, -1))

    def test_implementations_and_threads(self):
        x, y = logits(3, 17, 40, 11), targets(3, 40, 11, classes=17, ignored=-100)
        want = self.forward(x, y)
        self.check_forward(want, x, y)
        names = [part for output in OUTPUTS for part in ("--" + output, output + ".out")]
        first = {}
        for way in self.each_way_to_run("cross_entropy", "cross-entropy", "--input", "x.npy", "--target", "y.npy",
                                        *names):
            got = {output: np.load(output + ".out") for output in OUTPUTS}
            self.check_forward(got, x, y)
            for output in OUTPUTS:
                self.equal(got[output], first.setdefault(way, got)[output])


class CrossEntropyBackward(CrossEntropyCase):
    def check(self, x, y, *flags, g=None, r=None, h=None, dtype="<f4", out_dtype=None, **options):
        """g, r and h: the three upstream gradients."""
        accumulator = np.float64 if dtype[-2:] == "f8" else np.float32
        flags = list(flags)
        for name, array, kind in (("grad-loss", g, None), ("grad-log-probability", r, accumulator),
                                  ("grad-entropy", h, accumulator)):
            if array is not None:
                self.save(name + ".npy", np.asarray(array, kind))
                flags += ["--" + name, name + ".npy"]
        if dtype == "bf16":
            flags += ["--dtype", "bf16"]
        out_dtype = out_dtype or dtype
        order = "F" if not x.flags.c_contiguous else "C"
        got = self.backward(np.array(stored(x, dtype), order=order), y, *flags, dtype=out_dtype, **options)
        g, r, h = (0.0 if array is None else np.asarray(array, np.float64) for array in (g, r, h))
        if "--grad-loss" not in flags and "--grad-entropy" not in flags and "--grad-log-probability" not in flags:
            g = 1.0
        if options.get("reduction") != "none":
            g = np.reshape(g, ())  # one element of any rank
        want = cross_entropy_backward(x, y, g, r, h, **options)
        bounds = Bounds(x, y, dtype, **options)
        bounds.dtype = out_dtype
        self.within(got, want, bounds.gradient(want, g, r, h))
        if out_dtype != "bf16":
            self.assertEqual(got.dtype, np.dtype(out_dtype).newbyteorder("="))
            self.assertEqual(got.flags.c_contiguous, x.flags.c_contiguous)
        ignored = np.broadcast_to(bounds.p.classes_back(~bounds.p.live[..., None]), x.shape)
        self.assertFalse(got[ignored].any() or np.signbit(got[ignored]).any())

    def test_by_hand(self):
        # Probabilities 1/8 1/8 1/4 1/2, and 1/6 1/6 1/6 1/2.
        x, y = np.log(np.float32([[1, 1, 2, 4], [1, 1, 1, 3], [5, 6, 7, 8]])), np.array([2, 3, -100])
        got = self.backward(x, y, weight=np.float32([1, 1, 2, 4]), reduction="sum")
        self.within(got, [[.25, .25, -1.5, 1], [4 / 6, 4 / 6, 4 / 6, -2], [0, 0, 0, 0]], 2.0**-20)

    def test_shapes_reductions_and_orders(self):
        for shape, axis in SHAPES:
            C, positions = classes_of(shape, axis)
            y = targets(*positions, classes=C, ignored=1 if positions else None)
            options = {"weight": weights(C), "token_weight": weights(y.size).reshape(y.shape), "ignore_index": 1,
                       "class_axis": axis}
            for reduction in REDUCTIONS:
                g = upstream(*y.shape) if reduction == "none" else np.float32([-2.5])
                for order in "CF":
                    self.check(np.array(logits(*shape), order=order), np.array(y, order=order),
                               g=np.array(g, order=order), reduction=reduction, **options)

    def test_options(self):
        x, y = logits(6, 11, 3), targets(6, 3, classes=11, ignored=-100)
        for options in ({"label_smoothing": .125}, {"z_loss": .25}, {"softcap": 3.0}, {"denominator": 2.5},
                        {"label_smoothing": 1.0, "z_loss": .5, "softcap": 2.0, "weight": weights(11),
                         "token_weight": weights(18).reshape(6, 3)}):
            for reduction in REDUCTIONS:
                g = upstream(6, 3) if reduction == "none" else np.float64(-2.5)
                self.check(x, y, g=g, r=upstream(6, 3) / 2, h=upstream(3, 6).T / 4, reduction=reduction, **options)

    def test_upstream_gradients(self):
        x, y = logits(6, 5, 3), targets(6, 3, classes=5, ignored=-100)
        self.check(x, y)
        self.check(x, y, reduction="sum")
        self.check(x, y, r=upstream(6, 3))
        self.check(x, y, h=upstream(6, 3), reduction="none")

    def test_lse(self):
        x, y = logits(6, 5, 3), targets(6, 3, classes=5, ignored=-100)
        self.forward(x, y)
        self.check(x, y, "--lse", "lse.out")
        # It is read: probabilities scale with it.
        self.save("lse.out", np.load("lse.out") + np.float32(np.log(2)))
        p = Positions(x, y)
        halves = p.classes_back(np.where(p.live[..., None], -.5 / p.D * np.exp(p.x - cross_entropy(
            x, y)["lse"][..., None]), 0.0))
        want = cross_entropy_backward(x, y, 1.0)
        self.within(self.backward(x, y, "--lse", "lse.out"), want + halves, Bounds(x, y, "<f4").gradient(want, 1.0))

    def test_dtypes(self):
        x, y = logits(6, 5, 3), targets(6, 3, classes=5, ignored=-100)
        for dtype in FLOATS:
            self.check(x, y, dtype=dtype)
            self.check(x, y, dtype=dtype, g=stored(np.float32(2.5), dtype) if dtype != "bf16" else np.float32(2.5))
        for dtype in ("bf16", "<f2"):
            self.check(x, y, "--out-dtype", "f32", dtype=dtype, out_dtype="<f4")

    def test_in_place(self):
        x, y = logits(6, 5, 3), targets(6, 3, classes=5, ignored=-100)
        want = self.backward(x, y)
        self.ok("cross-entropy-backward", "--input", "x.npy", "--target", "y.npy", "--out", "x.npy")
        self.equal(np.load("x.npy"), want, np.float32)

    def test_everything_ignored(self):
        self.equal(self.backward(logits(2, 3), np.array([-100, -100])), np.zeros((2, 3)))
        self.equal(self.backward(logits(0, 3), np.zeros(0, np.int64)), np.zeros((0, 3)))

    def test_implementations_and_threads(self):
        x, y = logits(3, 17, 40, 11), targets(3, 40, 11, classes=17, ignored=-100)
        self.check(x, y)
        want = cross_entropy_backward(x, y, 1.0)
        first = {}
        for way in self.each_way_to_run("cross_entropy_backward", "cross-entropy-backward", "--input", "x.npy",
                                        "--target", "y.npy", "--out", "o.npy"):
            got = np.load("o.npy")
            self.within(got, want, Bounds(x, y, "<f4").gradient(want, 1.0))
            self.equal(got, first.setdefault(way, got))


class CrossEntropyRefusals(LossCase):
    FORWARD = ("cross-entropy", "--input", "x.npy", "--target", "y.npy", "--loss", "l.npy")
    BACKWARD = ("cross-entropy-backward", "--input", "x.npy", "--target", "y.npy", "--out", "o.npy")

    def setUp(self):
        super().setUp()
        self.x, self.y = logits(2, 4, 3), targets(2, 3, classes=4)
        self.save("x.npy", self.x)
        self.save("y.npy", self.y)

    def both(self, code, part, *flags):
        self.refused(code, part, *self.FORWARD, *flags)
        self.refused(code, part, *self.BACKWARD, *flags)

    def test_data(self):
        for kind in ("<i8", ">i4", "<u1", "<u2", "<u8"):
            self.save("y.npy", np.array([[0, 1, 3], [3, 4, 5]], kind))
            self.both(DATA, "target[1, 1] (position 4) = 4 is outside [0, 4)")
        self.save("y.npy", np.array([[0, 1, 3], [2**64 - 100, 4, 5]], np.uint64))
        self.both(DATA, "target[1, 0] (position 3) = 18446744073709551516 is outside [0, 4)")
        self.save("y.npy", self.y)
        self.save("w.npy", np.ones((3, 2), np.float32))
        self.both(DATA, "weight: shape must be [4], one element for each class, is f32 [3, 2]", "--weight", "w.npy")
        self.both(DATA, "token_weight: shape must be that of target", "--token-weight", "w.npy")
        self.refused(DATA, "lse: shape must be that of target", *self.BACKWARD, "--lse", "w.npy")
        self.refused(DATA, "grad_loss: must have one element", *self.BACKWARD, "--grad-loss", "w.npy")
        self.save("w.npy", np.ones((2, 3)))
        self.refused(DATA, "grad_entropy: dtype must be f32, is f64", *self.BACKWARD, "--grad-entropy", "w.npy")
        self.save("x.npy", self.x.astype(np.int64))
        self.both(DATA, "input: dtype must be one of f32, f64, f16, bf16, is i64")
        self.save("x.npy", self.x.astype(np.float64))
        self.refused(DATA, "out: dtype must be that of input, f64, is f32", *self.BACKWARD, "--out-dtype", "f32")

    def test_usage(self):
        self.both(USAGE, "label_smoothing: must be in [0, 1], is 1.5", "--label-smoothing", 1.5)
        self.both(USAGE, "z_loss: must be finite and not negative, is -1", "--z-loss", -1)
        self.both(USAGE, "softcap: must be finite and positive, or 0 for none, is -1", "--softcap", -1)
        self.both(USAGE, "class_axis: must be in [-3, 3), the axes of input, is 3", "--class-axis", 3)
        self.both(USAGE, "--reduction: must be none, mean or sum, is 1", "--reduction", 1)
        self.both(USAGE, "--dtype: no file here has two-byte void elements", "--dtype", "bf16")
        self.refused(USAGE, "an output is required: --loss, --lse", *self.FORWARD[:5])
        self.refused(USAGE, "--loss and --argmax: both name", *self.FORWARD, "--argmax", "l.npy")
        self.refused(USAGE, "--loss-dtype: must be f32 or f64, is f16", *self.FORWARD, "--loss-dtype", "f16")
        self.refused(USAGE, "--grad-loss, --grad-log-probability or --grad-entropy is required with --reduction none",
                     *self.BACKWARD, "--reduction", "none")
        self.refused(USAGE, "ONEHOT_FORCE: must be one of", *self.FORWARD, env={"ONEHOT_FORCE": "none"})

    def test_files(self):
        self.refused(FILE, "nowhere/a.npy: cannot be created", *self.FORWARD, "--argmax", "nowhere/a.npy")
        os.unlink("y.npy")
        self.both(FILE, "y.npy: cannot be opened: No such file or directory")

    def test_interrupted_while_it_works(self):
        # 256 MiB of holes through the reference take a second; the signal comes while they are read or worked on.
        with open("x.npy", "wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 16, 1024)})
            file.truncate(file.tell() + (1 << 28))
        self.save("y.npy", np.zeros(1 << 16, np.int64))
        for command in (self.FORWARD, self.BACKWARD):
            run = subprocess.Popen([ONEHOT, *command, "--threads", "1"], stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "ONEHOT_FORCE": "ref"})
            while not glob.glob(".[lo].npy.*"):
                self.assertIsNone(run.poll())
                time.sleep(0.001)
            time.sleep(0.2)
            run.send_signal(signal.SIGINT)
            _, message = run.communicate(timeout=60)
            if run.returncode == DONE:  # a fast machine, or a slow test
                os.unlink(command[-1])
            else:
                self.assertEqual((run.returncode, message), (130, "onehot: interrupted; nothing was written\n"))
            self.assertEqual(sorted(os.listdir()), ["x.npy", "y.npy"])

    def test_explain(self):
        text = self.ok(*self.FORWARD, "--argmax", "a.npy", "--explain", "--threads", 1)
        self.assertRegex(text, r"\Aoperator +cross_entropy\ninput +x.npy: f32 \[2, 4, 3\], mapped\n")
        self.assertRegex(text, r"\nloss +l.npy: f32 \[\]\nargmax +a.npy: i64 \[2, 3\]\n")
        # 24 f32 and 6 i64 in, one f32 and 6 i64 out.
        self.assertRegex(text, r"\nbytes +144 bytes read, 52 bytes written\n")
        self.save("r.npy", np.ones((2, 3), np.float32))
        text = self.ok(*self.BACKWARD, "--grad-log-probability", "r.npy", "--explain", env={"ONEHOT_FORCE": "ref"})
        self.assertRegex(text, r"\ngrad_log_probability r.npy: f32 \[2, 3\], mapped\n")
        self.assertRegex(text, r"\nimplementation +ref\n")

    def test_help(self):
        for command in ("cross-entropy", "cross-entropy-backward"):
            text = self.ok(command, "--help")
            for word in ("Example", "--label-smoothing", "--z-loss", "--softcap", "--denominator"):
                self.assertIn(word, text)
            self.assertIn(command, self.ok("--help"))


class CrossEntropyParity(CrossEntropyCase):
    """Against PyTorch, in f32 and f64."""

    @classmethod
    def setUpClass(cls):
        import torch
        cls.torch = torch

    def test_loss_and_gradient(self):
        for dtype, shapes in (("<f4", ((9,), (33, 9), (3, 9, 5, 7))), ("<f8", ((3, 9, 5, 7),))):
            for shape in shapes:
                x = 2 * np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)
                _, positions = classes_of(shape, 1)
                y = targets(*positions, classes=9, ignored=2 if positions else None)
                w = np.random.default_rng(9).uniform(.1, 2, 9).astype(dtype)
                for reduction in REDUCTIONS:
                    for options in ({}, {"weight": w, "label_smoothing": .1}, {"weight": w, "ignore_index": 2},
                                    {"label_smoothing": .3, "ignore_index": 2}):
                        self.compare(x, y, dtype, reduction=reduction, **options)

    def compare(self, x, y, dtype, **options):
        torch = self.torch
        tensor = torch.tensor(x, requires_grad=True)
        for_torch = {name: torch.tensor(value) if name == "weight" else value for name, value in options.items()}
        loss = torch.nn.functional.cross_entropy(tensor, torch.tensor(y), **for_torch)
        none = options["reduction"] == "none"
        g = upstream(*loss.shape, dtype=x.dtype) if none else np.array(-1.75, x.dtype)
        loss.backward(torch.tensor(g))
        self.save("g.npy", g)
        # Each side may be off by the bound; PyTorch's sums over positions run in the dtype itself.
        bounds = Bounds(x, y, dtype, **options)
        loss, gradient = loss.detach().numpy(), tensor.grad.numpy()
        p, eps = bounds.p, np.finfo(x.dtype).eps
        magnitude = np.where(p.live, bounds.factor * bounds.spread, 0)
        sums = 2 * y.size * eps * (magnitude if none else magnitude.sum() / abs(p.D))
        self.within(self.forward(x, y, outputs=["loss"], **options)["loss"], loss, 2 * bounds.loss(loss) + sums)
        self.within(self.backward(x, y, "--grad-loss", "g.npy", **options), gradient,
                    2 * bounds.gradient(gradient, g) + y.size * eps * np.abs(gradient).max())


if __name__ == "__main__":
    main()
