"""Cases of linear cross entropy for the tests of onehot.jax, and its definition."""

import jax
import jax.numpy as jnp
import numpy as np
import onehot.jax as oj
import onehot.numpy as on
from jax_support import UNIT, zipf

N, H, V, IGNORED = 13, 9, 71, -100
GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
# Options by turns, each at least twice, and alone where it changes the code that runs.
OPTIONS = [
    {},
    {"linear_bias": True, "label_smoothing": 0.1, "softcap": 3.0},
    {"weight": True, "z_loss": 1e-2, "logit_scale": 0.5},
    {"linear_bias": True, "weight": True, "token_weight": True, "label_smoothing": 0.2, "z_loss": 1e-3},
    {"token_weight": True, "denominator": 7.5, "softcap": 5.0, "logit_scale": 2.0},
]


def make(dtype="float32", shape=(N,), seed=3, **options):
    """Input, weight and target, and the keywords of a call. Values depend on their row and column."""
    rng = np.random.default_rng(seed)
    input = rng.normal(size=(*shape, H)) * (1 + np.arange(H)) / H
    linear_weight = rng.normal(size=(V, H)) + 0.02 * np.arange(V)[:, None]
    target = zipf(rng, shape, V)
    target[rng.random(shape) < 0.2] = IGNORED
    drawn = {
        "linear_bias": lambda: jnp.asarray(rng.normal(size=V), dtype),
        "weight": lambda: jnp.asarray(0.5 + rng.random(V), dtype),
        "token_weight": lambda: jnp.asarray(0.5 + rng.random(shape), jnp.float32),
    }
    keywords = {name: drawn[name]() if value is True else value for name, value in options.items()}
    return jnp.asarray(input, dtype), jnp.asarray(linear_weight, dtype), jnp.asarray(target), keywords


def definition(input, linear_weight, target, upstream=1.0, *, linear_bias=None, weight=None, reduction="mean",
               label_smoothing=0.0, token_weight=None, denominator=None, z_loss=0.0, softcap=0.0, logit_scale=1.0):  # fmt: skip
    """Loss and gradients in float64, each with a magnitude: the sum of those of its terms."""
    x, w = (np.asarray(a, np.float64).reshape(-1, H) for a in (input, linear_weight))
    target = np.asarray(target)
    counts = (target != IGNORED).reshape(-1, 1)
    onehot = counts * (target.reshape(-1, 1) == np.arange(len(w)))
    bias = 0 if linear_bias is None else np.asarray(linear_bias, np.float64)
    classes = np.ones(len(w)) if weight is None else np.asarray(weight, np.float64)
    tokens = counts * (1 if token_weight is None else np.asarray(token_weight, np.float64).reshape(-1, 1))
    u = logit_scale * (x @ w.T + bias)
    z = softcap * np.tanh(u / softcap) if softcap else u
    lse = np.log(np.exp(z - z.max(1, keepdims=True)).sum(1, keepdims=True)) + z.max(1, keepdims=True)
    p = np.exp(z - lse)
    eps, of_target, total = label_smoothing, onehot @ classes[:, None], classes.sum()
    each = (1 - eps) * (onehot * classes * (lse - z)).sum(1) + eps / len(w) * (classes * (lse - z)).sum(1)
    d, d_z = (1.0, 1.0) if reduction != "mean" else ((tokens * of_target).sum(), tokens.sum())
    if denominator is not None and reduction == "mean":
        d = d_z = denominator
    losses = tokens[:, 0] * (each / d + z_loss * lse[:, 0] ** 2 / d_z)
    loss = losses.reshape(target.shape) if reduction == "none" else losses.sum()
    g = np.broadcast_to(np.asarray(upstream, np.float64).reshape(-1, 1), tokens.shape) * tokens
    slope = 1 - (z / softcap) ** 2 if softcap else 1.0

    def gradients(sign):  # -1: the terms as they are; 1: their magnitudes
        of_loss = (1 - eps) * of_target * (p + sign * onehot) + eps / len(w) * (total * p + sign * classes)
        of_z_loss = 2 * z_loss * (lse if sign < 0 else np.abs(lse)) * p
        part = (lambda a: a) if sign < 0 else np.abs
        du = part(slope) * (part(g / d) * of_loss + part(g / d_z) * of_z_loss) * part(np.float64(logit_scale))
        return dict(zip(GRADIENTS, (du @ part(w), du.T @ part(x), du.sum(0))))

    # Of a logit, and of what the loss is made of.
    size = abs(logit_scale) * (np.abs(x) @ np.abs(w).T + np.abs(bias)).max() + np.abs(lse).max()
    return loss, gradients(-1), gradients(1), size


def check_against_definition(got, dtype, loss, gradients, magnitudes, size):
    """Of loss and gradients by name. A logit is wrong by H + 2 roundings of its size, and so is lse; p by as much of itself."""
    unit, terms = UNIT[dtype], (H + 8) * 2.0**-24 * size
    # Products of bf16 may round du once to bf16.
    relative = 2 * terms + (N + V + H + 16) * 2.0**-24 + (2.0**-8 if dtype == "bfloat16" else 0)
    value = np.asarray(got["loss"], np.float64)
    assert np.all(np.abs(value - loss) <= 3 * (1 + np.abs(loss)) * terms + 1.01 * unit * np.abs(loss))
    for name in gradients:
        if name in got:
            error = np.abs(np.asarray(got[name], np.float64).reshape(gradients[name].shape) - gradients[name])
            bound = (
                relative * magnitudes[name] + 1.01 * unit * np.abs(gradients[name]) + 2.0**-25 * (dtype == "float16")
            )
            assert got[name].dtype == dtype and np.all(error <= bound), name


def value_and_pullback(input, linear_weight, target, keywords, upstream=None):
    """Loss, and gradients by name."""
    wanted = (input, linear_weight) + ((keywords["linear_bias"],) if "linear_bias" in keywords else ())

    @jax.jit
    def function(input, linear_weight, *bias):
        options = keywords | ({"linear_bias": bias[0]} if bias else {})
        return oj.linear_cross_entropy(input, linear_weight, target, **options)

    loss, pullback = jax.vjp(function, *wanted)
    upstream = jnp.ones(loss.shape, loss.dtype) if upstream is None else jnp.asarray(upstream, loss.dtype)
    return {"loss": loss} | dict(zip(GRADIENTS, pullback(upstream)))


def by_numpy(input, linear_weight, target, keywords, **more):
    arrays = {k: np.asarray(v) if isinstance(v, jax.Array) else v for k, v in keywords.items()}
    outputs = ("loss",) + (GRADIENTS if "linear_bias" in keywords else GRADIENTS[:2])
    arguments = (np.asarray(input), np.asarray(linear_weight), np.asarray(target))
    return on.linear_cross_entropy(*arguments, **arrays, outputs=outputs, **more)


def operators(function, *arguments):
    text = str(jax.make_jaxpr(function)(*arguments))
    names = ("", "_statistics", "_loss", "_backward")
    return {name: text.count(f"onehot_linear_cross_entropy{name}[") for name in names}, text
