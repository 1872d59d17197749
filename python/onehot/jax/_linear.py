from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from onehot.jax._primitive import (
    REDUCTIONS,
    Operator,
    divisor,
    integer,
    integers,
    loss_dtype,
    number,
    real,
    reduction_number,
    statistics_dtype,
)

_forward = Operator("linear_cross_entropy")
_backward = Operator("linear_cross_entropy_backward")
_statistics = Operator("linear_cross_entropy_statistics")
_statistics_loss = Operator("linear_cross_entropy_loss")
# What the gradients are the transpose of, where they are not computed together with the loss.
_tangent = Operator(
    "linear_cross_entropy_tangent",
    reverse_only="linear_cross_entropy: there is a forward-mode derivative only with reduction mean or sum, and with memory "
    "for the gradients",
)
_ONCE = "linear_cross_entropy: its gradient cannot be differentiated"

# Operands with a gradient, and its name.
_GRADIENTS = {"input": "grad_input", "linear_weight": "grad_weight", "linear_bias": "grad_bias"}


def linear_cross_entropy(
    input: ArrayLike,
    linear_weight: ArrayLike,
    target: ArrayLike,
    *,
    linear_bias: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    reduction: str = "mean",
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    token_weight: ArrayLike | None = None,
    denominator: ArrayLike | float | None = None,
    z_loss: float = 0.0,
    softcap: float = 0.0,
    logit_scale: float = 1.0,
    zero_if_empty: bool = False,
    max_workspace: int | None = None,
    skip_below: float = 0.0,
    reproducible: bool = False,
    dtype: DTypeLike | None = None,
) -> jax.Array:
    """Cross entropy of ``logit_scale * (input @ linear_weight.T + linear_bias)``, without the logits in memory.

    With u these logits, z = u (``c tanh(u / c)`` with a softcap c), lse = log(sum of exp(z_v)), y the target of a position,
    w the class weights, t its token weight, eps = label_smoothing and zeta = z_loss, a position adds

        t [(1 - eps) w_y (lse - z_y) + (eps / V) sum of w_v (lse - z_v)] + t zeta lse**2

    and ``mean`` divides the sum by that of ``t w_y`` (that of the z-loss by that of t) over positions not ignored.

    Args:
        input: (..., H), float32, float64, float16 or bfloat16; differentiable. Products are summed in float32 (float64 for
            float64); those of bfloat16 are the CPU's own where it has them.
        linear_weight: (V, H), dtype of input; differentiable. One that is kept as (H, V) is transposed by XLA, a pass over
            memory for the weight and one for its gradient.
        target: shape of input without its last axis; int64, int32, int16, int8 or uint8, each in [0, V) or ignore_index.
        linear_bias: (V,), dtype of input or float32; differentiable. -infinity takes a class out.
        weight: (V,), w; dtype of input or float32.
        reduction: "none", "mean" or "sum".
        ignore_index: a target whose position does not count. Any value; None means -100.
        label_smoothing: eps, in [0, 1].
        token_weight: shape of target, t; dtype of input or float32.
        denominator: one number, float32, float64 or an integer: replaces both sums that mean divides by.
        z_loss: zeta, not negative.
        softcap: c; 0 means none.
        logit_scale: a factor of all logits.
        zero_if_empty: mean is 0 instead of NaN where no position counts.
        max_workspace: bytes; see below. Less is slower, never different.
        skip_below: leaves out parts of the gradient's products whose factors are all smaller than this. 0 leaves out none.
            Where the gradients come with the loss these are factors of the gradient of the loss alone, before the upstream
            one.
        reproducible: the same bits on every CPU, also for bfloat16; up to twice as slow there.
        dtype: of the loss: that of input, the default, or a wider one of float32 and float64.

    Returns:
        shape of target for "none", else one number.

    Raises:
        TypeError, ValueError: a dtype, a shape or an option, when traced.
        IndexError: without jax_enable_x64, a target that needs more than 32 bits, in an array of NumPy or a list.
        jax.errors.JaxRuntimeError: a target is neither in [0, V) nor ignore_index, when run; the first such position is named.

    What it costs. The loss alone is one product of N x H x V. With a gradient of a ``mean`` or ``sum``, loss and gradients
    are computed together, in three products (four with little workspace; one less where input or weight is frozen), and
    scaled by the upstream gradient later: gradients of 16-bit input are kept in float32 until then, and rounded once, so that
    loss scaling loses nothing. Take ``dtype=jnp.float32`` there, since a scale of 65536 is no float16. Memory until then is
    that of the gradients that are wanted, in float32 (float64 for float64 input), besides working memory: the input in
    float32, its gradient, and 64 MiB, or an eighth of logits and their gradient where that is more.

    With reduction "none", or where gradients kept and working memory exceed ``max_workspace``, two numbers for each position
    are kept instead, and the gradients computed in the backward: four products in all, gradients in the dtype of input, the
    bits of linear_cross_entropy_backward in onehot.numpy. ``max_workspace`` is a limit of working memory then, except that
    what cannot be avoided is taken.

    A vmap of input and target is one call for all examples, and has one gradient of the weight, not one for each example;
    it computes gradients in the backward, and its mean is summed in float32 (float64 for float64). Other batches, and a
    vmap of the gradient itself, go example by example. It can be differentiated once; in forward mode too where loss and
    gradients are computed together.
    """
    input, linear_weight = jnp.asarray(input), jnp.asarray(linear_weight)
    ignore_index = -100 if ignore_index is None else integer("ignore_index", ignore_index)
    target, ignore_index = integers("target", target, linear_weight, 0, ignore_index)
    attributes: dict[str, Any] = {
        "reduction": reduction_number(reduction),
        "ignore_index": ignore_index,
        "label_smoothing": number("label_smoothing", label_smoothing),
        "z_loss": number("z_loss", z_loss),
        "softcap": number("softcap", softcap),
        "logit_scale": number("logit_scale", logit_scale),
        "zero_if_empty": int(bool(zero_if_empty)),
        "max_workspace": None if max_workspace is None else integer("max_workspace", max_workspace),
        "skip_below": number("skip_below", skip_below),
        "reproducible": int(bool(reproducible)),
    }
    optional = {"linear_bias": linear_bias, "weight": weight, "token_weight": token_weight}
    operands: dict[str, Any] = {"input": input, "linear_weight": linear_weight, "target": target}
    operands |= {name: real(value) for name, value in optional.items()} | {"denominator": divisor(denominator)}
    return _loss(operands, attributes, loss_dtype(dtype, input))


def _loss_result(operands: dict[str, Any], attributes: dict[str, Any], dtype: Any) -> tuple[str, tuple[int, ...], Any]:
    none = attributes["reduction"] == REDUCTIONS["none"]
    return ("loss", operands["target"].shape if none else (), dtype)


def _loss(operands: dict[str, Any], attributes: dict[str, Any], dtype: Any) -> Any:
    return _forward(operands, [_loss_result(operands, attributes, dtype)], attributes)[0]


@_forward.batch
def _batch(size, operands, batched, *, results, attributes):
    attributes, dtype = dict(attributes), results[0][2]
    mean = attributes["reduction"] == REDUCTIONS["mean"]
    weighted_z_loss = mean and attributes["z_loss"] > 0 and "weight" in operands and "denominator" not in operands
    # Its two denominators differ, and one call for all has one loss for each position.
    shared = {"linear_weight", "linear_bias", "weight"}.isdisjoint(batched)
    if len(results) > 1 or not shared or weighted_z_loss:
        return None
    for name in ("input", "target", "token_weight"):
        if name in operands and name not in batched:
            operands[name] = jnp.broadcast_to(operands[name], (size,) + operands[name].shape)
    denominator = operands.pop("denominator", None)
    input, target = operands["input"], operands["target"]
    flat = operands | {"input": input.reshape(target.size, input.shape[-1])}  # as many axes as an example may have
    flat |= {name: operands[name].reshape(-1) for name in ("target", "token_weight") if name in operands}
    none = attributes["reduction"] == REDUCTIONS["none"]
    each = _loss(flat, attributes | {"reduction": REDUCTIONS["none"]}, dtype if none else statistics_dtype(input.dtype))
    if none:
        return [each.reshape(target.shape)], [0]
    one = (size, math.prod(target.shape[1:]))
    total = each.reshape(one).sum(1)
    if mean:
        counts = _counts(target, attributes["ignore_index"]).reshape(one)
        if denominator is None:
            denominator = _position_weights(operands, total.dtype, counts).sum(1)
        total /= denominator.reshape(-1).astype(total.dtype)
        if attributes["zero_if_empty"]:
            total = jnp.where(counts.any(1), total, 0)
    return [total.astype(dtype)], [0]


def _counts(target: Any, ignore_index: int) -> Any:
    bounds = jnp.iinfo(target.dtype)
    if not bounds.min <= ignore_index <= bounds.max:
        return jnp.ones(target.shape, bool)
    return target != jnp.asarray(ignore_index, target.dtype)


def _position_weights(operands: dict[str, Any], dtype: Any, counts: Any) -> Any:
    """k t w_y of each position, what mean divides by the sum of."""
    weights = jnp.ones(counts.shape, dtype)
    if "token_weight" in operands:
        weights = operands["token_weight"].astype(dtype).reshape(counts.shape)
    if "weight" in operands:
        target = jnp.where(counts, operands["target"].reshape(counts.shape), 0).astype(jnp.int32)
        weights *= operands["weight"].astype(dtype)[target]
    return jnp.where(counts, weights, 0)  # whatever stands at ignored positions


@_forward.derivative
def _derivative(operands, moving, *, results, attributes):
    if len(results) > 1:
        raise NotImplementedError(_ONCE)
    attributes, dtype = dict(attributes), results[0][2]
    moving = {name: tangent for name, tangent in moving.items() if name in _GRADIENTS}
    if not moving:
        return [_loss(operands, attributes, dtype)], [None]
    wide = statistics_dtype(operands["input"].dtype)
    gradients = [(_GRADIENTS[name], operands[name].shape, wide) for name in moving]
    if attributes["reduction"] != REDUCTIONS["none"] and _fits(operands, results + tuple(gradients), attributes):
        return _together(operands, moving, dtype, gradients, attributes)
    return _apart(operands, moving, dtype, attributes)


def _fits(operands: dict[str, Any], results: Any, attributes: dict[str, Any]) -> bool:
    """Whether gradients that are kept and the working memory beside them stay below the limit; sets what is left for it."""
    limit = attributes.get("max_workspace")
    if limit is None:
        return True
    kept = sum(int(np.prod(shape)) * dtype.itemsize for name, shape, dtype in results if name != "loss")
    if kept > limit:
        return False
    rest = attributes | {"max_workspace": limit - kept}
    tensors = [(name, value.shape, value.dtype) for name, value in operands.items()]
    if kept + _forward.check(tensors + list(results), rest) > limit:
        return False
    attributes["max_workspace"] = limit - kept
    return True


def _together(operands, moving, dtype, gradients, attributes):
    """Loss and gradients in one call. The transpose of these sums is the product with the upstream gradient, rounded once."""
    loss, *values = _forward(operands, [("loss", (), dtype), *gradients], attributes)
    terms = [jnp.sum(value * tangent.astype(value.dtype)) for value, tangent in zip(values, moving.values())]
    return [loss], [sum(terms[1:], terms[0]).astype(dtype)]


def _apart(operands, moving, dtype, attributes):
    """The loss from statistics that have what the gradients need of the logits."""
    target, wide = operands["target"], statistics_dtype(operands["input"].dtype)
    names = ("max", "sum_exp", "target_logit") + (("smoothing",) if attributes["label_smoothing"] > 0 else ())
    known = {name: value for name, value in operands.items() if name not in ("token_weight", "denominator")}
    statistics = dict(zip(names, _statistics(known, [(name, target.shape, wide) for name in names], attributes)))
    options = {name: operands[name] for name in ("weight", "token_weight", "denominator") if name in operands}
    wide_options = {name: value if name == "denominator" else value.astype(wide) for name, value in options.items()}
    result = _loss_result(operands, attributes, dtype)
    classes = attributes | {"num_classes": operands["linear_weight"].shape[0]}
    (loss,) = _statistics_loss(statistics | {"target": target} | wide_options, [result], classes)
    kept = {name: statistics[name] for name in ("max", "sum_exp")}
    tangents = {f"tangent_{name}": tangent for name, tangent in moving.items()}
    (tangent,) = _tangent(tangents | operands | kept, [result], attributes)
    return [loss], [tangent]


@_tangent.transpose
def _transpose(cotangents, known, linear, *, results, attributes):
    wanted = [name for name in _GRADIENTS if f"tangent_{name}" in linear]
    # A bias in float32 has its gradient in it, unless the input is float64.
    gradients = [
        (_GRADIENTS[name], known[name].shape, jnp.promote_types(known[name].dtype, known["input"].dtype))
        for name in wanted
    ]
    values = _backward(known | {"grad_loss": cotangents[0]}, gradients, dict(attributes))
    return {f"tangent_{name}": value.astype(known[name].dtype) for name, value in zip(wanted, values)}


@_statistics.derivative
@_backward.derivative
def _second_derivative(operands, moving, *, results, attributes):
    raise NotImplementedError(_ONCE)
