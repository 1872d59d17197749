"""Definitions of the losses over the logits of a linear layer in double, and what their tests share.

Inputs are sixteenths and weights fractions of them, so that logits are exact in f32, and that the bounds of cross
entropy over logits that exist hold for what is computed from them. Each product with a gradient adds a rounding to each
of its terms.
"""
import numpy as np
from losses import (HALF_ULP, SMALLEST, Bounds, LossCase, command_line, cross_entropy, cross_entropy_backward, loaded,
                    targets)

RESULTS = ("loss", "lse", "target-logit", "log-probability", "entropy", "argmax", "total-weight")
GRADIENTS = ("grad-input", "grad-weight", "grad-bias")
UPSTREAM = ("grad-loss", "grad-log-probability", "grad-entropy")


def linear_logits(x, W, bias=None, logit_scale=1.0):
    u = np.asarray(x, np.float64) @ np.asarray(W, np.float64).T
    return logit_scale * (u if bias is None else u + np.asarray(bias, np.float64))


def of_logits(bias=None, logit_scale=1.0, class_weight=None, **options):
    """Options of the linear losses as those of a loss over their logits."""
    return {"weight": class_weight, "class_axis": -1, **options}


def linear_cross_entropy(x, W, y, bias=None, logit_scale=1.0, **options):
    return cross_entropy(linear_logits(x, W, bias, logit_scale), y, **of_logits(**options))


def through_layer(du, x, W, logit_scale=1.0):
    """Gradients by name, of those of the logits."""
    x, W = np.asarray(x, np.float64), np.asarray(W, np.float64)
    du = logit_scale * du
    rows = du.reshape(-1, len(W))
    return {"grad-input": du @ W, "grad-weight": rows.T @ x.reshape(-1, W.shape[1]), "grad-bias": rows.sum(0)}


def sixteenths(*shape, step=23):
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    return ((i * step % 59 - 29) / 16).reshape(shape).astype(np.float32)


def problem(*positions, H=6, V=11, ignored=-100):
    """x, W, y and a bias. Logits are small, which keeps their bounds so."""
    y = targets(*positions, classes=V, ignored=ignored if positions else None)
    return sixteenths(*positions, H), sixteenths(V, H, step=17) / 4, y, sixteenths(V, step=7) / 4


class LinearBounds(Bounds):
    def __init__(self, x, W, y, dtype, bias=None, logit_scale=1.0, **options):
        self.accumulator = "<f8" if dtype[-2:] == "f8" else "<f4"
        sizes = abs(logit_scale) * (np.abs(x).astype(np.float64) @ np.abs(W).T.astype(np.float64)).max(-1)
        # A power of two scales exactly; another is rounded itself, and so are products with it.
        exact = np.frexp(abs(logit_scale))[0] == .5
        super().__init__(linear_logits(x, W, bias, logit_scale), y, self.accumulator,
                         logit_error=0.0 if exact else 8 * 2 * HALF_ULP[self.accumulator[-2:]] * (sizes + 2),
                         **of_logits(**options))
        self.x, self.W, self.scale = np.asarray(x, np.float64), np.asarray(W, np.float64), logit_scale
        # Where the CPU multiplies bf16, gradients of logits are rounded to it before their products, and not for the bias.
        self.operand = HALF_ULP["16"] if dtype == "bf16" else 0.0

    def gradients(self, du, g=0.0, r=0.0, h=0.0):
        """By name, before they are rounded to their dtypes; `du` are the right gradients of the logits."""
        self.dtype = self.accumulator
        terms = {"grad-input": self.p.C, "grad-weight": self.p.live.size, "grad-bias": self.p.live.size}
        # A rounding of each product and sum, of the scale and of a product with it.
        of_du = {name: self.gradient(du, g, r, h) + (count + 3) * HALF_ULP[self.dtype[-2:]] * np.abs(du)
                 for name, count in terms.items()}
        for name in ("grad-input", "grad-weight"):
            of_du[name] += self.operand * (np.abs(du) + of_du[name])
        return {name: through_layer(bound, np.abs(self.x), np.abs(self.W), abs(self.scale))[name]
                for name, bound in of_du.items()}


class LinearCase(LossCase):
    def run_linear(self, command, x, W, y, *flags, outputs, dtype=None, **options):
        for name, array in (("x", x), ("W", W), ("y", y)):
            self.save(name + ".npy", array)
        self.save_arrays(options)
        names = [part for output in outputs for part in ("--" + output, output + ".out")]
        self.ok(command, "--input", "x.npy", "--weight", "W.npy", "--target", "y.npy", *names, *command_line(options),
                *flags)
        return {output: loaded(output + ".out", dtype if output == "loss" or output in GRADIENTS else None)
                for output in outputs}

    def forward(self, *arguments, outputs=RESULTS, **options):
        return self.run_linear("linear-cross-entropy", *arguments, outputs=outputs, **options)

    def backward(self, *arguments, outputs=GRADIENTS, **options):
        return self.run_linear("linear-cross-entropy-backward", *arguments, outputs=outputs, **options)

    def check_results(self, got, x, W, y, dtype="<f4", **options):
        want, bounds = linear_cross_entropy(x, W, y, **options), LinearBounds(x, W, y, dtype, **options)
        bounds.dtype = dtype
        self.within(got["loss"], want["loss"], bounds.loss(want["loss"]))
        for name in ("lse", "target-logit", "log-probability", "entropy"):
            self.assertEqual(got[name].dtype, np.dtype(bounds.accumulator))
            self.within(got[name], want[name], bounds.per_position())
        self.equal(got["argmax"], want["argmax"], np.int64)
        self.assertEqual((got["total-weight"].dtype, got["total-weight"].shape), (np.float64, ()))
        self.assertEqual(got["total-weight"], want["total-weight"])

    def check_gradients(self, got, x, W, y, g=1.0, r=0.0, h=0.0, dtype="<f4", out_dtype=None, **options):
        du = cross_entropy_backward(linear_logits(x, W, options.get("bias"), options.get("logit_scale", 1.0)), y, g, r,
                                    h, **of_logits(**options))
        want = through_layer(du, x, W, options.get("logit_scale", 1.0))
        out_dtype = out_dtype or dtype
        bounds = LinearBounds(x, W, y, dtype, **options).gradients(du, g, r, h)
        for name in got:
            rounding = HALF_ULP[out_dtype[-2:]] * np.abs(want[name]) + SMALLEST[out_dtype[-2:]]
            self.within(got[name], want[name], bounds[name] + rounding)
            if out_dtype != "bf16":
                self.assertEqual(got[name].dtype, np.dtype(out_dtype).newbyteorder("="))
        if "grad-input" in got:
            self.assertFalse(got["grad-input"][y == options.get("ignore_index", -100)].any())

    def upstream(self, g=None, r=None, h=None, accumulator=np.float32):
        """Saves them; flags that name them, and their values for the definition."""
        flags = []
        for name, array, kind in zip(UPSTREAM, (g, r, h), (None, accumulator, accumulator)):
            if array is not None:
                self.save(name + ".npy", np.asarray(array, kind))
                flags += ["--" + name, name + ".npy"]
        g, r, h = (0.0 if array is None else np.asarray(array, np.float64) for array in (g, r, h))
        return flags, {"g": g if flags else 1.0, "r": r, "h": h}
