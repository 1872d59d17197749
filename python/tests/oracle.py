"""What the tests expect: the definitions of include/onehot/*.h in float64, and inputs as they are met.

Nothing here is fast or careful about rounding; bounds are the tests' own. The functions take any arrays and think in float64.
"""

import numpy as np

try:
    from ml_dtypes import bfloat16
except ImportError:
    bfloat16 = None

DTYPES = ["float32", "float64", "float16"] + (["bfloat16"] if bfloat16 else [])

# Half a unit in the last place of 1: what one rounding may change, relative to the value.
EPS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# Half of the smallest step of the dtype: what one rounding may change below the normal numbers.
TINY = {"float64": 0.0, "float32": 2.0**-150, "float16": 2.0**-25, "bfloat16": 2.0**-134}


def dtype_of(name):
    return np.dtype(bfloat16 if name == "bfloat16" else name)


def f64(array):
    return None if array is None else np.asarray(array).astype(np.float64)


def accumulator(name):
    """The dtype that sums are in."""
    return "float64" if name == "float64" else "float32"


def assert_close(actual, expected, bound, what=""):
    """Each element within its bound; where one is not finite, they are the same."""
    actual, expected = f64(actual), f64(expected)
    assert actual.shape == expected.shape, f"{what}: {actual.shape}, expected {expected.shape}"
    bound = np.broadcast_to(bound, expected.shape)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite], err_msg=what)
    error = np.abs(actual[finite] - expected[finite])
    bad = ~(error <= bound[finite])  # a NaN is bad
    assert not bad.any(), (
        f"{what}: {bad.sum()} of {bad.size} beyond their bounds; the first: {actual[finite][bad][0]!r},"
        f" expected {expected[finite][bad][0]!r} within {bound[finite][bad][0]:.3g}"
    )


# ---- inputs


def zipf(rng, n, count, ignored=0.0, ignore_index=-100, dtype=np.int64):
    """Classes as a text has words: that of rank r in proportion to 1 / r, some ignored."""
    weights = 1.0 / np.arange(1, count + 1)
    classes = rng.permutation(count)[rng.choice(count, n, p=weights / weights.sum())].astype(dtype)
    classes[rng.random(n) < ignored] = ignore_index
    return classes


def values(rng, shape, name="float32", scale=1.0):
    """Numbers that differ from row to row and from column to column, rounded to the dtype."""
    return (rng.standard_normal(shape) * scale + rng.uniform(-0.5, 0.5, shape[-1:])).astype(dtype_of(name))


def guarded(shape, dtype):
    """A new array full of NaN (of -7 for integers): what is not written is seen."""
    return np.full(shape, np.nan if np.dtype(dtype).kind != "i" else -7, dtype)


# Views of the same numbers that lie in memory in other ways.
def _spread(array):
    """Elements two apart along the last axis, rows three apart along the first, NaN between them."""
    if array.ndim == 0:
        return array
    big = np.full(tuple(3 * n if i == 0 else n for i, n in enumerate(array.shape[:-1])) + (2 * array.shape[-1],), 99)
    big = big.astype(array.dtype)
    view = big[::3, ..., ::2] if array.ndim > 1 else big[::2]
    view[...] = array
    return view


LAYOUTS = {
    "C": np.ascontiguousarray,
    "fortran": lambda array: np.asfortranarray(array),
    "transposed": lambda array: np.ascontiguousarray(array.T).T,
    "sliced": _spread,
    "negative": lambda array: np.ascontiguousarray(array[(slice(None, None, -1),) * array.ndim])[
        (slice(None, None, -1),) * array.ndim
    ],
}


# ---- definitions


def embedding(weight, indices):
    return np.asarray(weight)[np.asarray(indices).astype(np.int64)]


def embedding_backward(grad, indices, num_weights, padding_idx=None, scale_grad_by_freq=False):
    """The product onehot(indices).T @ grad."""
    grad = f64(grad).reshape(-1, np.shape(grad)[-1])
    indices = np.asarray(indices).astype(np.int64).reshape(-1)
    onehot = np.zeros((indices.size, num_weights))
    onehot[np.arange(indices.size), indices] = 1
    counts = onehot.sum(0).astype(np.int64)
    out = onehot.T @ grad
    if scale_grad_by_freq:
        out /= np.maximum(counts, 1)[:, None]
    if padding_idx is not None:
        out[padding_idx] = 0
    return out, counts


class Loss:
    """A loss over classes: positions in the order of target, classes last. `z` are logits, or log-probabilities for nll."""

    def __init__(
        self,
        input,
        target,
        weight=None,
        *,
        ignore_index=-100,
        reduction="mean",
        label_smoothing=0.0,
        token_weight=None,
        denominator=None,
        z_loss=0.0,
        softcap=0.0,
        zero_if_empty=False,
        class_axis=1,
    ):
        input, target = f64(input), np.asarray(target).astype(np.int64)
        self.axis = class_axis if input.ndim > 1 else 0
        self.u = np.moveaxis(input, self.axis, -1)
        self.shape, self.C = target.shape, self.u.shape[-1]
        self.reduction, self.eps, self.zeta, self.softcap = reduction, label_smoothing, z_loss, softcap
        self.zero_if_empty = zero_if_empty
        self.k = (target != ignore_index).astype(np.float64)
        self.y = np.where(target == ignore_index, 0, target)
        self.t = np.ones(self.shape) if token_weight is None else f64(token_weight)
        self.w = np.ones(self.C) if weight is None else f64(weight)
        self.z = softcap * np.tanh(self.u / softcap) if softcap else self.u
        self.t = np.where(self.k > 0, self.t, 0)
        self.D = (self.k * self.t * self.w[self.y]).sum()
        self.Dz = (self.k * self.t).sum()
        self.total_weight = 0.0 if reduction == "none" else self.D
        if denominator is not None:
            self.D = self.Dz = float(denominator)

    def at_target(self, array):
        return np.take_along_axis(array, self.y[..., None], -1)[..., 0]

    def reduce(self, loss, z_loss):
        loss, z_loss = (np.where(self.k > 0, self.t * each, 0) for each in (loss, z_loss))
        if self.reduction == "none":
            return loss + z_loss
        if self.reduction == "sum":
            return (loss + z_loss).sum()
        if self.k.sum() == 0 and self.zero_if_empty:
            return np.float64(0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return loss.sum() / self.D + (z_loss.sum() / self.Dz if self.zeta else 0)

    def nll(self):
        return {
            "loss": self.reduce(-self.w[self.y] * self.at_target(self.z), np.zeros(self.shape)),
            "total_weight": np.float64(self.total_weight),
        }

    def upstream(self, g):
        """a and a' of the header: what a position's own gradient is multiplied by."""
        g = np.zeros(()) if g is None else f64(g)
        with np.errstate(invalid="ignore", divide="ignore"):
            a = self.t * g / (self.D if self.reduction == "mean" else 1)
            b = self.t * g / (self.Dz if self.reduction == "mean" else 1)
        return np.where(self.k > 0, a, 0), np.where(self.k > 0, b, 0)

    def nll_backward(self, g):
        out = np.zeros_like(self.z)
        at = -self.w[self.y] * self.upstream(g)[0]
        np.put_along_axis(out, self.y[..., None], at[..., None], -1)
        return np.moveaxis(out, -1, self.axis), np.where(self.k > 0, at, 0)

    def statistics(self):
        top = self.z.max(-1)
        lse = top + np.log(np.exp(self.z - top[..., None]).sum(-1))
        return lse, np.exp(self.z - lse[..., None])

    def cross_entropy(self):
        lse, p = self.statistics()
        logp = self.at_target(self.z) - lse
        mixed = (self.w * (lse[..., None] - self.z)).sum(-1) if self.eps else 0
        loss = -(1 - self.eps) * self.w[self.y] * logp + self.eps / self.C * mixed

        def counts(array):
            return np.where(self.k > 0, array, 0)

        return {
            "loss": self.reduce(loss, self.zeta * lse**2),
            "lse": counts(lse),
            "log_probability": counts(logp),
            "target_logit": counts(self.at_target(self.z)),
            "entropy": counts(lse - (p * self.z).sum(-1)),
            "argmax": np.where(self.k > 0, self.z.argmax(-1), -1),
            "total_weight": np.float64(self.total_weight),
        }

    def cross_entropy_backward(self, g, grad_log_probability=None, grad_entropy=None):
        """With respect to what the softcap is applied to, classes last."""
        lse, p = self.statistics()
        y = np.zeros_like(p)
        np.put_along_axis(y, self.y[..., None], 1, -1)
        a, b = (x[..., None] for x in self.upstream(g))
        out = (
            a * ((1 - self.eps) * self.w[self.y][..., None] * (p - y) + self.eps / self.C * (self.w.sum() * p - self.w))
            + 2 * b * self.zeta * lse[..., None] * p
        )
        k = self.k[..., None]
        if grad_log_probability is not None:
            out += np.where(k > 0, f64(grad_log_probability)[..., None] * (y - p), 0)
        if grad_entropy is not None:
            H = (lse - (p * self.z).sum(-1))[..., None]
            out -= np.where(k > 0, f64(grad_entropy)[..., None] * p * (self.z - lse[..., None] + H), 0)
        if self.softcap:
            out = out * (1 - (self.z / self.softcap) ** 2)
        return np.where(k > 0, out, 0)


def nll_loss(*arguments, **options):
    return Loss(*arguments, **options).nll()


def nll_loss_backward(grad_output, *arguments, **options):
    """The gradient, and its one value at each position."""
    return Loss(*arguments, **options).nll_backward(grad_output)


def cross_entropy(*arguments, **options):
    return Loss(*arguments, **options).cross_entropy()


def cross_entropy_backward(
    grad_loss, input, target, weight=None, *, grad_log_probability=None, grad_entropy=None, **options
):
    loss = Loss(input, target, weight, **options)
    return np.moveaxis(loss.cross_entropy_backward(grad_loss, grad_log_probability, grad_entropy), -1, loss.axis)


def linear_cross_entropy(
    input,
    linear_weight,
    target,
    *,
    linear_bias=None,
    weight=None,
    logit_scale=1.0,
    grad_loss=1.0,
    grad_log_probability=None,
    grad_entropy=None,
    **options,
):
    """All outputs, gradients too."""
    x, W = f64(input), f64(linear_weight)
    u = logit_scale * (x @ W.T + (0 if linear_bias is None else f64(linear_bias)))
    loss = Loss(u, target, weight, class_axis=-1, **options)
    du = loss.cross_entropy_backward(grad_loss, grad_log_probability, grad_entropy)
    flat = du.reshape(-1, W.shape[0])
    return loss.cross_entropy() | {
        "grad_input": logit_scale * du @ W,
        "grad_weight": logit_scale * flat.T @ x.reshape(-1, W.shape[1]),
        "grad_bias": logit_scale * flat.sum(0),
        "du": du,
        "u": u,
    }
