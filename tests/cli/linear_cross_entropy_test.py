"""linear-cross-entropy and linear-cross-entropy-backward on .npy files, against the definition in double."""
import numpy as np
from case import bf16_bits, main
from linear import (GRADIENTS, RESULTS, LinearBounds, LinearCase, linear_cross_entropy, linear_logits, of_logits,
                    problem, sixteenths, through_layer)
from losses import (FLOATS, HALF_ULP, REDUCTIONS, Positions, cross_entropy_backward, stored, targets, upstream,
                    weights)

SHAPES = ((), (7,), (3, 5), (2, 1, 4))  # of the positions


class LinearCrossEntropy(LinearCase):
    def test_by_hand(self):
        # Logits are the rows of x: exponentials 1 1 2 4 and 1 1 1 3.
        x, y = np.log(np.float32([[1, 1, 2, 4], [1, 1, 1, 3], [5, 6, 7, 8]])), np.array([2, 3, -100])
        w, ulp = np.float32([1, 1, 2, 4]), 2.0**-22
        got = self.forward(x, np.eye(4, dtype=np.float32), y, class_weight=w, reduction="none")
        self.within(got["loss"], [2 * np.log(4), 4 * np.log(2), 0], 8 * ulp)
        self.within(got["lse"], [np.log(8), np.log(6), 0], 4 * ulp)
        self.within(got["target-logit"], [np.log(2), np.log(3), 0], ulp)
        self.within(got["log-probability"], [-np.log(4), -np.log(2), 0], 4 * ulp)
        self.within(got["entropy"], [1.75 * np.log(2), .5 * np.log(12), 0], 8 * ulp)
        self.equal(got["argmax"], [3, 3, -1])
        # Twice the logits, and a bias that takes the last class out: exponentials 1 1 4.
        out = np.float32([0, 0, 0, -np.inf])
        got = self.forward(x[:1], np.eye(4, dtype=np.float32), y[:1], bias=out, logit_scale=2.0)
        self.within(got["loss"], np.log(6 / 4), 8 * ulp)
        self.equal(got["argmax"], [2])
        self.assertEqual(got["total-weight"], 1)

    def test_shapes_reductions_and_orders(self):
        for positions in SHAPES:
            x, W, y, bias = problem(*positions, ignored=1)
            options = {"bias": bias, "class_weight": weights(11), "token_weight": weights(y.size).reshape(y.shape),
                       "ignore_index": 1}
            for reduction in REDUCTIONS:
                for order in "CF":
                    got = self.forward(*(np.array(array, order=order) for array in (x, W, y)), reduction=reduction,
                                       **options)
                    self.check_results(got, x, W, y, reduction=reduction, **options)

    def test_options(self):
        x, W, y, bias = problem(4, 5)
        for options in ({"bias": bias}, {"logit_scale": -.5, "bias": bias}, {"logit_scale": .3, "bias": bias},
                        {"label_smoothing": .125}, {"z_loss": .25}, {"softcap": 3.0}, {"denominator": 2.5},
                        {"label_smoothing": 1.0, "z_loss": .5, "softcap": 2.0, "class_weight": weights(11),
                         "token_weight": weights(20).reshape(4, 5), "logit_scale": .25}):
            for reduction in REDUCTIONS:
                self.check_results(self.forward(x, W, y, reduction=reduction, **options), x, W, y, reduction=reduction,
                                   **options)

    def test_dtypes(self):
        x, W, y, bias = problem(4, 5)
        for dtype in FLOATS:
            flags = ("--dtype", "bf16") if dtype == "bf16" else ()
            for of_bias in (dtype, "<f4"):
                got = self.forward(stored(x, dtype), stored(W, dtype), y, *flags, dtype=dtype,
                                   bias=stored(bias, of_bias), class_weight=stored(weights(11), dtype))
                self.check_results(got, x, W, y, dtype, bias=bias, class_weight=weights(11))
            if dtype != "bf16":
                self.assertEqual(got["loss"].dtype, np.dtype(dtype).newbyteorder("="))
        got = self.forward(bf16_bits(x), bf16_bits(W), y, "--dtype", "bf16", "--loss-dtype", "f32")
        self.assertEqual(got["loss"].dtype, np.float32)
        self.check_results(got, x, W, y)
        self.assertEqual(self.forward(x, W, y, "--loss-dtype", "f64")["loss"].dtype, np.float64)

    def test_targets(self):
        x, W, y, _ = problem(4, 3)
        y = targets(4, 3, classes=11)
        want = self.forward(x, W, y, ignore_index=2, reduction="none")
        for kind in ("<i1", "<i2", ">i4", "<u1", "<u2", ">u4", "<u8", ">u8"):
            for order in "CF":
                got = self.forward(x, W, np.array(y, kind, order=order), ignore_index=2, reduction="none")
                for output in RESULTS:
                    self.equal(got[output], want[output])

    def test_any_outputs(self):
        x, W, y, bias = problem(9)
        want = self.forward(x, W, y, bias=bias, outputs=RESULTS + GRADIENTS)
        for output in RESULTS + GRADIENTS:
            self.equal(self.forward(x, W, y, bias=bias, outputs=[output])[output], want[output], want[output].dtype)

    def test_gradients_in_the_same_call(self):
        x, W, y, bias = problem(9)
        flags, given = self.upstream(g=np.float32(-2.5), r=upstream(9), h=upstream(9) / 4)
        got = self.forward(x, W, y, *flags, bias=bias, label_smoothing=.25, outputs=RESULTS + GRADIENTS)
        self.check_results(got, x, W, y, bias=bias, label_smoothing=.25)
        later = self.backward(x, W, y, *flags, bias=bias, label_smoothing=.25)
        got = {name: got[name] for name in GRADIENTS}
        self.check_gradients(got, x, W, y, bias=bias, label_smoothing=.25, **given)
        for name in GRADIENTS:
            self.equal(got[name], later[name])

    def test_nothing_counts(self):
        for x, y in ((sixteenths(2, 6), np.array([-100, -100])), (sixteenths(0, 3, 6), np.zeros((0, 3), np.int64))):
            W = sixteenths(11, 6)
            self.assertTrue(np.isnan(self.forward(x, W, y)["loss"]))
            self.equal(self.forward(x, W, y, zero_if_empty=True)["loss"], 0)
            self.equal(self.forward(x, W, y, reduction="sum")["loss"], 0)
            self.equal(self.forward(x, W, y)["argmax"], np.full(y.shape, -1))

    def test_implementations_and_threads(self):
        # More classes than a block of logits has.
        x, W, y, bias = problem(3, 40, V=2100)
        outputs = RESULTS + GRADIENTS
        self.forward(x, W, y, bias=bias, outputs=outputs)
        names = [part for output in outputs for part in ("--" + output, output + ".out")]
        first = {}
        for way in self.each_way_to_run("linear_cross_entropy", "linear-cross-entropy", "--input", "x.npy", "--weight",
                                        "W.npy", "--bias", "bias.npy", "--target", "y.npy", *names):
            got = {output: np.load(output + ".out") for output in outputs}
            self.check_results(got, x, W, y, bias=bias)
            self.check_gradients({name: got[name] for name in GRADIENTS}, x, W, y, bias=bias)
            for output in outputs:
                self.equal(got[output], first.setdefault(way, got)[output])


class LinearCrossEntropyBackward(LinearCase):
    def check(self, x, W, y, *flags, g=None, r=None, h=None, dtype="<f4", out_dtype=None, **options):
        named, given = self.upstream(g, r, h, np.float64 if dtype[-2:] == "f8" else np.float32)
        if options.get("reduction") != "none":
            given["g"] = np.reshape(given["g"], ())  # one element of any rank
        if dtype == "bf16":
            flags = (*flags, "--dtype", "bf16")
        orders = ["C" if array.flags.c_contiguous else "F" for array in (x, W)]
        got = self.backward(*(np.array(stored(array, dtype), order=order) for array, order in zip((x, W), orders)), y,
                            *named, *flags, dtype=out_dtype or dtype, **options)
        self.check_gradients(got, x, W, y, dtype=dtype, out_dtype=out_dtype, **given, **options)
        for name, array in (("grad-input", x), ("grad-weight", W)):
            if dtype != "bf16" and name in got:
                self.assertEqual(got[name].flags.c_contiguous, array.flags.c_contiguous)
        return got

    def test_by_hand(self):
        # Probabilities 1/8 1/8 1/4 1/2, and 1/6 1/6 1/6 1/2.
        x, y = np.log(np.float32([[1, 1, 2, 4], [1, 1, 1, 3], [5, 6, 7, 8]])), np.array([2, 3, -100])
        got = self.backward(x, np.eye(4, dtype=np.float32), y, class_weight=np.float32([1, 1, 2, 4]), reduction="sum")
        du = np.array([[.25, .25, -1.5, 1], [4 / 6, 4 / 6, 4 / 6, -2], [0, 0, 0, 0]])
        self.within(got["grad-input"], du, 2.0**-20)
        self.within(got["grad-weight"], du.T @ x.astype(np.float64), 2.0**-19)
        self.within(got["grad-bias"], du.sum(0), 2.0**-20)

    def test_shapes_reductions_and_orders(self):
        for positions in SHAPES:
            x, W, y, bias = problem(*positions, ignored=1)
            options = {"bias": bias, "class_weight": weights(11), "token_weight": weights(y.size).reshape(y.shape),
                       "ignore_index": 1}
            for reduction in REDUCTIONS:
                g = upstream(*y.shape) if reduction == "none" else np.float32([-2.5])
                for order in "CF":
                    self.check(*(np.array(array, order=order) for array in (x, W, y)), g=np.array(g, order=order),
                               reduction=reduction, **options)

    def test_options(self):
        x, W, y, bias = problem(4, 5)
        for options in ({"bias": bias}, {"logit_scale": -.5, "bias": bias}, {"logit_scale": .3, "bias": bias},
                        {"label_smoothing": .125}, {"z_loss": .25}, {"softcap": 3.0}, {"denominator": 2.5},
                        {"label_smoothing": 1.0, "z_loss": .5, "softcap": 2.0, "class_weight": weights(11),
                         "token_weight": weights(20).reshape(4, 5), "logit_scale": .25}):
            for reduction in REDUCTIONS:
                g = upstream(4, 5) if reduction == "none" else np.float64(-2.5)
                self.check(x, W, y, g=g, r=upstream(4, 5) / 2, h=upstream(5, 4).T / 4, reduction=reduction, **options)

    def test_upstream_gradients(self):
        x, W, y, _ = problem(4, 5)
        self.check(x, W, y)
        self.check(x, W, y, reduction="sum")
        self.check(x, W, y, r=upstream(4, 5))
        self.check(x, W, y, h=upstream(4, 5), reduction="none")

    def test_lse(self):
        x, W, y, _ = problem(4, 5)
        self.forward(x, W, y, outputs=["lse"])
        self.check(x, W, y, "--lse", "lse.out")
        # It is read: probabilities scale with it.
        self.save("lse.out", np.load("lse.out") + np.float32(np.log(2)))
        u = linear_logits(x, W)
        p, lse = Positions(u, y, class_axis=-1), linear_cross_entropy(x, W, y)["lse"]
        halves = np.where(p.live[..., None], -.5 / p.D * np.exp(u - lse[..., None]), 0.0)
        du = cross_entropy_backward(u, y, 1.0, class_axis=-1)
        want, bounds = through_layer(du + halves, x, W), LinearBounds(x, W, y, "<f4").gradients(du, 1.0, 0.0, 0.0)
        got = self.backward(x, W, y, "--lse", "lse.out")
        for name in GRADIENTS:
            self.within(got[name], want[name], bounds[name] + HALF_ULP["f4"] * np.abs(want[name]))

    def test_dtypes(self):
        x, W, y, bias = problem(4, 5)
        for dtype in FLOATS:
            self.check(x, W, y, dtype=dtype)
            self.check(x, W, y, dtype=dtype, g=np.float32(2.5), bias=bias)
        wide = [part for name in GRADIENTS for part in (f"--{name}-dtype", "f32")]
        for dtype in ("bf16", "<f2"):
            self.check(x, W, y, *wide, dtype=dtype, out_dtype="<f4")
        # Each has its own.
        self.backward(x.astype(np.float16), W.astype(np.float16), y, "--grad-weight-dtype", "f32")
        self.assertEqual([np.load(name + ".out").dtype for name in GRADIENTS], [np.float16, np.float32, np.float16])

    def test_any_gradients(self):
        x, W, y, bias = problem(9)
        want = self.check(x, W, y, bias=bias)
        for name in GRADIENTS:
            self.equal(self.backward(x, W, y, bias=bias, outputs=[name])[name], want[name], np.float32)

    def test_in_place(self):
        x, W, y, bias = problem(9)
        want = self.backward(x, W, y, bias=bias)
        self.ok("linear-cross-entropy-backward", "--input", "x.npy", "--weight", "W.npy", "--bias", "bias.npy",
                "--target", "y.npy", "--grad-input", "x.npy", "--grad-weight", "W.npy", "--grad-bias", "bias.npy")
        for name, file in zip(GRADIENTS, ("x.npy", "W.npy", "bias.npy")):
            self.equal(np.load(file), want[name], np.float32)

    def test_everything_ignored(self):
        for x, y in ((sixteenths(2, 6), np.array([-100, -100])), (sixteenths(0, 6), np.zeros(0, np.int64))):
            got = self.backward(x, sixteenths(11, 6), y)
            for name, shape in zip(GRADIENTS, (x.shape, (11, 6), (11,))):
                self.equal(got[name], np.zeros(shape))

    def test_implementations_and_threads(self):
        x, W, y, bias = problem(3, 40, V=2100)
        self.check(x, W, y, bias=bias)
        first = {}
        names = [part for name in GRADIENTS for part in ("--" + name, name + ".out")]
        for way in self.each_way_to_run("linear_cross_entropy_backward", "linear-cross-entropy-backward", "--input",
                                        "x.npy", "--weight", "W.npy", "--bias", "bias.npy", "--target", "y.npy",
                                        *names):
            got = {name: np.load(name + ".out") for name in GRADIENTS}
            self.check_gradients(got, x, W, y, bias=bias)
            for name in GRADIENTS:
                self.equal(got[name], first.setdefault(way, got)[name])


class LinearCrossEntropyParity(LinearCase):
    """Against PyTorch, in f32 and f64."""

    @classmethod
    def setUpClass(cls):
        import torch
        cls.torch = torch

    def test_loss_and_gradients(self):
        for dtype, shapes in (("<f4", ((), (33,), (3, 11))), ("<f8", ((3, 11),))):
            for positions in shapes:
                x, W, y, bias = problem(*positions, H=16, V=50, ignored=2)
                x, W, bias = (array.astype(dtype) for array in (x, W, bias))
                w = weights(50, dtype)
                for reduction in REDUCTIONS:
                    for options in ({}, {"bias": bias, "label_smoothing": .125},
                                    {"bias": bias, "class_weight": w, "ignore_index": 2},
                                    {"class_weight": w, "label_smoothing": .25, "ignore_index": 2, "logit_scale": .25,
                                     "softcap": 4.0, "bias": bias}):
                        self.compare(x, W, y, dtype, reduction=reduction, **options)

    def compare(self, x, W, y, dtype, **options):
        torch, F = self.torch, self.torch.nn.functional
        bias = options.get("bias", np.zeros(len(W), x.dtype))
        live = [torch.tensor(array, requires_grad=True) for array in (x, W, bias)]
        u = options.get("logit_scale", 1.0) * F.linear(*live)
        cap = options.get("softcap")
        w = options.get("class_weight")
        loss = F.cross_entropy((cap * torch.tanh(u / cap) if cap else u).reshape(-1, len(W)),
                               torch.tensor(y.reshape(-1)), weight=None if w is None else torch.tensor(w),
                               reduction=options["reduction"], ignore_index=options.get("ignore_index", -100),
                               label_smoothing=options.get("label_smoothing", 0.0))
        none = options["reduction"] == "none"
        loss = loss.reshape(y.shape) if none else loss
        g = upstream(*loss.shape, dtype=x.dtype) if none else np.array(-1.75, x.dtype)
        loss.backward(torch.tensor(g))
        self.save("g.npy", g)
        got = self.forward(x, W, y, "--grad-loss", "g.npy", outputs=("loss", *GRADIENTS), **options)
        # Each side may be off by the bound; PyTorch's sums over positions run in the dtype itself.
        bounds = LinearBounds(x, W, y, dtype, **options)
        loss = loss.detach().numpy()
        p, eps = bounds.p, np.finfo(x.dtype).eps
        magnitude = np.where(p.live, np.abs(p.t) * bounds.factor * bounds.spread, 0)
        sums = 2 * y.size * eps * (magnitude if none else magnitude.sum() / abs(p.D))
        self.within(got["loss"], loss, 2 * bounds.loss(loss) + sums)
        du = cross_entropy_backward(linear_logits(x, W, options.get("bias"), options.get("logit_scale", 1.0)), y, g,
                                    **of_logits(**options))
        of_gradients = bounds.gradients(du, g, 0.0, 0.0)
        for name, tensor in zip(GRADIENTS, live):
            want = tensor.grad.numpy()
            self.within(got[name], want, 2 * of_gradients[name] + y.size * eps * np.abs(want).max())


if __name__ == "__main__":
    main()
