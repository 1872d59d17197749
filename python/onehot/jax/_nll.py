from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from onehot.jax._primitive import (
    REDUCTIONS,
    Operator,
    divisor,
    integer,
    integers,
    loss_dtype,
    real,
    reduction_number,
    statistics_dtype,
)

_forward = Operator("nll_loss")
_backward = Operator("nll_loss_backward")


def nll_loss(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    token_weight: ArrayLike | None = None,
    denominator: ArrayLike | float | None = None,
    zero_if_empty: bool = False,
    class_axis: int = 1,
    dtype: DTypeLike | None = None,
) -> jax.Array:
    """Negative log likelihood of log-probabilities: ``-t w_y input[y]`` for each position, y its target.

    ``mean`` divides the sum by ``D``, the sum of ``t w_y`` over positions that are not ignored. Sums are in float64. The
    gradient of the input is ``-t w_y g / D`` at the target of each position and 0 elsewhere.

    Args:
        input: log-probabilities, float32, float64, float16 or bfloat16; differentiable. Its axis ``class_axis`` has the C
            classes; the others are those of target: (C,) and (), (N, C) and (N,), (N, C, H, W) and (N, H, W).
        target: int64, int32, int16, int8 or uint8, each in [0, C) or ``ignore_index``.
        weight: (C,), w, a weight for each class; dtype of input or float32.
        ignore_index: a target whose position does not count. Any value.
        reduction: "none", "mean" or "sum".
        token_weight: shape of target, t, a weight for each position; dtype of input or float32.
        denominator: one number, float32, float64 or an integer: replaces D in mean.
        zero_if_empty: mean is 0 instead of NaN where no position counts.
        dtype: of the loss: that of input, the default, or a wider one of float32 and float64.

    Returns:
        shape of target for "none", else one number.

    Raises:
        TypeError, ValueError: a dtype, a shape or an option, when traced.
        IndexError: without jax_enable_x64, a target that needs more than 32 bits, in an array of NumPy or a list.
        jax.errors.JaxRuntimeError: a target is neither in [0, C) nor ignore_index, when run; the first such position is named.

    The forward reads one element of each position, the backward writes the gradient once; neither needs memory beside that.
    A vmap is one call with reduction "none", else one for each example. Derivatives of any order and mode are there.
    """
    input, weight = jnp.asarray(input), real(weight)
    class_axis, ignore_index = integer("class_axis", class_axis), integer("ignore_index", ignore_index)
    target, ignore_index = integers("target", target, input, 0 if input.ndim == 1 else class_axis, ignore_index)
    attributes = {
        "reduction": reduction_number(reduction),
        "ignore_index": ignore_index,
        "zero_if_empty": int(bool(zero_if_empty)),
        "class_axis": class_axis,
    }
    operands = {"input": input, "target": target, "weight": weight}
    operands |= {"token_weight": real(token_weight), "denominator": divisor(denominator)}
    return _loss(operands, attributes, loss_dtype(dtype, input))[0]


def _loss(operands: dict[str, Any], attributes: dict[str, int], dtype: Any, total_weight: bool = False) -> Any:
    none = attributes["reduction"] == REDUCTIONS["none"]
    results = [("loss", operands["target"].shape if none else (), dtype)]
    if total_weight:
        results.append(("total_weight", (), statistics_dtype(operands["input"].dtype)))
    return _forward(operands, results, attributes)


@_forward.batch
def _batch(size, operands, batched, *, results, attributes):
    attributes = dict(attributes)
    if (
        attributes["reduction"] != REDUCTIONS["none"]
        or len(results) > 1
        or not {"weight", "denominator"}.isdisjoint(batched)
    ):
        return None
    for name in ("input", "target", "token_weight"):
        if name in operands and name not in batched:
            operands[name] = jnp.broadcast_to(operands[name], (size,) + operands[name].shape)
    # Axes count from the end where the new one is at the front; the only axis of one example is its classes.
    axis, rank = attributes["class_axis"], operands["input"].ndim - 1
    attributes["class_axis"] = -1 if rank == 1 else axis if axis < 0 else axis - rank
    return _loss(operands, attributes, results[0][2]), [0]


@_forward.derivative
def _derivative(operands, moving, *, results, attributes):
    attributes, dtype = dict(attributes), results[0][2]
    mean = attributes["reduction"] == REDUCTIONS["mean"]
    outs = _loss(operands, attributes, dtype, total_weight=mean or len(results) > 1)
    tangent = None
    if "input" in moving:
        linear = operands | {"input": moving["input"]}
        if mean and "denominator" not in operands:
            linear["denominator"] = outs[1]
        (tangent,) = _loss(linear, attributes, dtype)
    return outs[: len(results)], [tangent, None][: len(results)]


@_forward.transpose
def _transpose(cotangents, known, linear, *, results, attributes):
    input, attributes = linear["input"], dict(attributes)
    operands = known | {"grad_output": _gradient(cotangents[0], input.dtype), "total_weight": known.get("denominator")}
    operands.pop("denominator", None)
    del attributes["zero_if_empty"]  # positions that count are none then, and so are values that are not 0
    return {"input": _backward(operands, [("out", input.shape, input.dtype)], attributes)[0]}


def _gradient(cotangent: Any, dtype: Any) -> Any:
    """The operator takes the dtype of the input, or float32."""
    return cotangent.astype(jnp.float32) if cotangent.dtype == jnp.float64 != dtype else cotangent


@_backward.derivative
def _derivative_backward(operands, moving, *, results, attributes):
    def gradient(grad_output):
        return _backward(operands | {"grad_output": grad_output}, results, dict(attributes))[0]

    return [gradient(operands["grad_output"])], [gradient(moving["grad_output"]) if "grad_output" in moving else None]


@_backward.transpose
def _transpose_backward(cotangents, known, linear, *, results, attributes):
    operands = {"input": cotangents[0]} | known | {"denominator": known.get("total_weight")}
    operands.pop("total_weight", None)
    grad_output = linear["grad_output"]
    loss = _loss(operands, dict(attributes) | {"zero_if_empty": 1}, _loss_dtype(grad_output.dtype, operands["input"]))[
        0
    ]
    return {"grad_output": loss.astype(grad_output.dtype)}


def _loss_dtype(dtype: Any, input: Any) -> Any:
    return dtype if jnp.promote_types(dtype, input.dtype) == dtype else input.dtype
