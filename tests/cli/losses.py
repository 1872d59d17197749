"""Definitions of the losses in double, as the headers of the library write them, and what their tests share."""
import re

import numpy as np
from case import DONE, USAGE, Case, bf16_bits, from_bf16

REDUCTIONS = ("none", "mean", "sum")
FLOATS = ("<f4", ">f4", "<f8", ">f8", "<f2", ">f2", "bf16")
HALF_ULP = {"f2": 2.0**-11, "f4": 2.0**-24, "f8": 2.0**-53, "16": 2.0**-8}
SMALLEST = {"f2": 2.0**-25, "f4": 2.0**-150, "f8": 0.0, "16": 2.0**-134}  # half of the smallest number above 0


def classes_of(shape, axis):
    """How many classes a shape has, and the shape of its targets. A single axis is that of the classes."""
    axis = axis if len(shape) > 1 else 0
    return shape[axis], tuple(np.delete(shape, axis))


def log_probabilities(*shape, dtype=np.float32):
    """Quarters, varying along every axis: exact in every dtype, and sums of them in f64."""
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    return (-(i * 11 % 37) / 4).reshape(shape).astype(dtype)


def targets(*shape, classes, ignored=None):
    """Skewed: low classes more often. Every fifth one is `ignored`."""
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    values = (i * 7 % 13) * (i * 5 % 11) % classes
    if ignored is not None:
        values[i % 5 == 2] = ignored
    return values.reshape(shape)


def weights(count, dtype=np.float32):
    """Powers of two, so that products are exact."""
    return 2.0 ** (np.arange(count) * 3 % 5 - 2).astype(dtype)


def upstream(*shape, dtype=np.float32):
    i = np.arange(int(np.prod(shape)))
    return (i * 5 % 7 - 3.5).reshape(shape).astype(dtype)


def to_dtype(values, dtype):
    """One rounding of f64, to nearest even; normal numbers of bf16, as f32."""
    if dtype != "bf16":
        return np.asarray(values, np.float64).astype(dtype)
    fraction, exponent = np.frexp(np.asarray(values, np.float64))
    return np.ldexp(np.rint(fraction * 256) / 256, exponent).astype(np.float32)


def stored(values, dtype):
    return bf16_bits(values).reshape(np.shape(values)) if dtype == "bf16" else np.asarray(values, dtype)


def loaded(name, dtype):
    array = np.load(name)
    return from_bf16(array).reshape(array.shape) if dtype == "bf16" else array


class Positions:
    """Targets with everything that does not depend on the classes' values, which lie along the last axis."""

    def __init__(self, x, y, weight=None, token_weight=None, reduction="mean", ignore_index=-100, class_axis=1,
                 denominator=None, zero_if_empty=False):
        x, y = np.asarray(x, np.float64), np.asarray(y).astype(np.int64)
        self.axis = class_axis if x.ndim > 1 else 0
        self.x = np.moveaxis(x, self.axis, -1)
        self.C = self.x.shape[-1]
        self.live = y != ignore_index
        self.y = np.where(self.live, y, 0)
        self.w = np.ones(self.C) if weight is None else np.asarray(weight, np.float64)
        self.t = np.ones(y.shape) if token_weight is None else np.asarray(token_weight, np.float64)
        self.reduction, self.denominator, self.zero_if_empty = reduction, denominator, zero_if_empty
        self.wy = self.w[self.y] if y.size else np.zeros(y.shape)
        self.kt = np.where(self.live, self.t, 0.0)
        self.total_weight = 0.0 if reduction == "none" else (self.kt * self.wy).sum()
        if reduction != "mean":
            self.D = self.D_z = 1.0
        elif denominator is not None:
            self.D = self.D_z = float(denominator)
        else:
            self.D, self.D_z = self.total_weight, self.kt.sum()

    def at_target(self, values):
        """values[..., y], 0 where ignored."""
        if not self.live.size:
            return np.zeros(self.live.shape)
        return np.where(self.live, np.take_along_axis(values, self.y[..., None], -1)[..., 0], 0.0)

    def one_hot(self):
        return (np.arange(self.C) == self.y[..., None]) & self.live[..., None]

    def reduce(self, *terms_and_denominators):
        if self.reduction == "none":
            return sum(terms for terms, _ in terms_and_denominators)
        if self.reduction == "mean" and self.zero_if_empty and not self.live.any():
            return np.float64(0)
        with np.errstate(all="ignore"):
            return sum(np.float64(terms.sum()) / D for terms, D in terms_and_denominators)

    def classes_back(self, values):
        return np.moveaxis(values, -1, self.axis)


def nll_loss(x, y, **options):
    p = Positions(x, y, **options)
    return p.reduce((p.kt * p.wy * -p.at_target(p.x), p.D)), p.total_weight


def nll_loss_backward(x, y, grad=1.0, real=np.float32, **options):
    """-(((w_y t) g) / D) in `real`; x has only a shape. Also the value of each position alone."""
    p = Positions(x, y, **options)
    value = ((p.wy * p.t).astype(real) * np.asarray(grad, real)).astype(real)
    with np.errstate(all="ignore"):
        value = -(value / real(p.D)) if p.reduction == "mean" else -value
    value = np.where(p.live, value, real(0))
    return p.classes_back(np.where(p.one_hot(), value[..., None], real(0))), value


def cross_entropy(x, y, label_smoothing=0.0, z_loss=0.0, softcap=0.0, **options):
    """Every output by name."""
    p = Positions(x, y, **options)
    z = softcap * np.tanh(p.x / softcap) if softcap else p.x
    top = z.max(-1, keepdims=True)
    lse = np.log(np.exp(z - top).sum(-1)) + top[..., 0]
    q = np.where(p.live, z_loss * lse**2, 0.0)
    probability = np.exp(z - lse[..., None])
    smooth = ((lse[..., None] - z) * p.w).sum(-1) * label_smoothing / p.C
    l = np.where(p.live, (1 - label_smoothing) * p.wy * (lse - p.at_target(z)) + smooth, 0.0)
    return {
        "loss": p.reduce((p.t * l, p.D), (p.t * q, p.D_z)),
        "lse": np.where(p.live, lse, 0.0),
        "target-logit": p.at_target(z),
        "log-probability": np.where(p.live, p.at_target(z) - lse, 0.0),
        "entropy": np.where(p.live, lse - (probability * z).sum(-1), 0.0),
        "argmax": np.where(p.live, z.argmax(-1), -1),
        "total-weight": p.total_weight,
    }


def cross_entropy_backward(x, y, grad_loss=0.0, grad_log_probability=0.0, grad_entropy=0.0, label_smoothing=0.0,
                           z_loss=0.0, softcap=0.0, **options):
    p = Positions(x, y, **options)
    z = softcap * np.tanh(p.x / softcap) if softcap else p.x
    top = z.max(-1, keepdims=True)
    lse = np.log(np.exp(z - top).sum(-1, keepdims=True)) + top
    probability = np.exp(z - lse)
    H = lse - (probability * z).sum(-1, keepdims=True)
    with np.errstate(all="ignore"):
        a, a_z = (np.where(p.live, np.asarray(grad_loss) * p.t / D, 0.0)[..., None] for D in (p.D, p.D_z))
    r, h = (np.where(p.live, g, 0.0)[..., None] for g in (grad_log_probability, grad_entropy))
    hot = p.one_hot()
    dz = a * ((1 - label_smoothing) * p.wy[..., None] * (probability - hot)
              + label_smoothing / p.C * (p.w.sum() * probability - p.w))
    dz += 2 * a_z * z_loss * lse * probability + r * (hot - probability) - h * probability * (z - lse + H)
    if softcap:
        dz *= 1 - (z / softcap)**2
    return p.classes_back(np.where(p.live[..., None], dz, 0.0))


class Bounds:
    """Bounds of the errors that the header allows, for what is computed in f32 (f64 for f64 logits).

    `logit_error` is how far the logits themselves may be off at each position.
    """

    def __init__(self, x, y, dtype, label_smoothing=0.0, z_loss=0.0, softcap=0.0, logit_error=0.0, **options):
        self.p = p = Positions(x, y, **options)
        eps = 2.0**-52 if dtype[-2:] == "f8" else 2.0**-23
        z = softcap * np.tanh(p.x / softcap) if softcap else p.x
        self.lse = np.log(np.exp(z - z.max(-1, keepdims=True)).sum(-1)) + z.max(-1)
        self.z_loss = z_loss
        # 4 + C / 1024 units for lse; tanh and its factor are rounded as well; the difference to z once more.
        large = np.maximum(1, np.maximum(np.abs(self.lse), np.abs(z).max(-1)))
        self.unit = (4 + p.C / 1024 + (4 if softcap else 0) + 2) * eps * large + logit_error
        self.spread = np.abs(z - self.lse[..., None]).max(-1)
        self.factor = (1 - label_smoothing) * np.abs(p.wy) + label_smoothing / p.C * np.abs(p.w).sum()
        self.smoothing, self.dtype = label_smoothing, dtype
        self.eps = eps

    def rounding(self, want):
        return HALF_ULP[self.dtype[-2:]] * np.abs(want) + SMALLEST[self.dtype[-2:]]

    def per_position(self):
        # Products and the sum over smoothed classes: a unit on each, and C / 16 additions in a lane.
        return self.unit * (2 + self.spread)

    def loss(self, want):
        p = self.p
        l = p.t * self.factor * self.unit * (2 + self.spread + p.C / 16)
        q = p.t * self.z_loss * self.unit * (2 * np.abs(self.lse) + 1)
        l, q = (np.where(p.live, np.abs(terms), 0) for terms in (l, q))
        with np.errstate(all="ignore"):
            return abs(p.reduce((l, p.D), (q, p.D_z))) + self.rounding(want)

    def gradient(self, want, g=0.0, r=0.0, h=0.0):
        p = self.p
        with np.errstate(all="ignore"):
            a, a_z = (np.abs(np.where(p.live, g * p.t / D, 0)) for D in (p.D, p.D_z))
        # A probability is off by as much as its exponent, and by two units of its own.
        off = self.unit + 2 * self.eps
        bound = a * self.factor * 4 * off + 2 * a_z * self.z_loss * (np.abs(self.lse) + 1) * 4 * off
        bound = bound + np.abs(r) * 4 * off + np.abs(h) * (4 + 4 * self.spread) * off
        return p.classes_back(np.broadcast_to(bound[..., None], p.x.shape)) + self.rounding(want)


def command_line(options):
    """Options of the definitions as those of the tool; arrays have been saved under the names of their options."""
    flags = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            flags.append(flag)
        elif isinstance(value, np.ndarray):
            flags += [flag, name + ".npy"]
        elif value is not None and value is not False:
            flags += [flag, repr(value) if isinstance(value, float) else str(value)]
    return flags


class LossCase(Case):
    def each_way_to_run(self, operator, *command):
        """Runs the command with every implementation that takes its problem, and thread counts; yields after each."""
        names = re.search(rf"\n +{operator} +(.*)\n", self.ok("info"))[1].split(", ")
        for name in names:
            for threads in (1, 2, 7):
                done = self.run_onehot(*command, "--threads", threads, env={"ONEHOT_FORCE": name})
                if done.returncode == USAGE and "refuses this" in done.stderr and name != "ref":
                    break
                self.assertEqual((done.returncode, done.stderr), (DONE, ""), name)
                yield name

    def save_arrays(self, options):
        for name, value in options.items():
            if isinstance(value, np.ndarray):
                self.save(name + ".npy", value)

    def within(self, got, want, bound):
        got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
        self.assertEqual(got.shape, want.shape)
        error = np.abs(got - want)
        bound = np.broadcast_to(bound, want.shape)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        bad = ~same & ~(error <= bound)
        if bad.any():
            worst = np.unravel_index(np.argmax(np.where(bad, error / bound, 0)), want.shape)
            self.fail(f"{bad.sum()} of {want.size} elements; worst at {tuple(map(int, worst))}: {got[worst]!r}, right "
                      f"is {want[worst]!r}, error {error[worst]:.3g}, bound {bound[worst]:.3g}")
