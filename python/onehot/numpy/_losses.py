from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy import asarray, empty
from numpy.typing import ArrayLike, DTypeLike

from onehot import _onehot
from onehot.numpy._arrays import INT64, collect, maybe, result, statistics_dtype

# Names of options, in the order in which the module asks for them.
_NLL_LOSS = ("weight", "token_weight", "denominator", "reduction", "ignore_index", "zero_if_empty", "class_axis")
_NLL_LOSS_BACKWARD = (
    "total_weight",
    "weight",
    "token_weight",
    "reduction",
    "ignore_index",
    "accumulate",
    "compact",
    "num_classes",
    "class_axis",
)
_CROSS_ENTROPY = (
    "weight",
    "token_weight",
    "denominator",
    "reduction",
    "ignore_index",
    "label_smoothing",
    "z_loss",
    "softcap",
    "zero_if_empty",
    "class_axis",
)
_CROSS_ENTROPY_BACKWARD = ("lse", "grad_loss", "grad_log_probability", "grad_entropy") + _CROSS_ENTROPY


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
    outputs: str | Sequence[str] = "loss",
    dtype: DTypeLike | None = None,
    out: np.ndarray | Mapping[str, np.ndarray] | None = None,
) -> Any:
    """Negative log likelihood of log-probabilities: ``-w_y input[y]`` for each position, y its target.

    ``mean`` divides the sum by ``D``, the sum of the weights of positions that are not ignored. Sums are in float64.

    Args:
        input: log-probabilities, float32, float64, float16 or bfloat16. Its axis ``class_axis`` has the C classes; the
            others are those of target: (C,) and (), (N, C) and (N,), (N, C, H, W) and (N, H, W).
        target: int64, int32, int16, int8 or uint8, each in [0, C) or ``ignore_index``.
        weight: (C,), a weight for each class; dtype of input or float32.
        ignore_index: a target whose position does not count. Any value.
        reduction: "none", "mean" or "sum".
        token_weight: shape of target, a weight for each position.
        denominator: replaces D in mean.
        zero_if_empty: mean is 0 instead of NaN where no position counts.
        outputs: "loss" or "total_weight" (D; 0 for none), or several names.
        dtype: of new arrays: that of input, the default, or a wider one of float32 and float64.
        out: see onehot.numpy.

    Returns:
        The output, or a dict of outputs where ``outputs`` names several in a sequence.

    Raises:
        IndexError: a target is neither in [0, C) nor ignore_index; the first such position is named.
    """
    input, target = asarray(input), asarray(target)

    def new(name: str) -> np.ndarray:
        each = name == "loss" and reduction == "none"
        return empty(target.shape if each else (), input.dtype if dtype is None else dtype)

    arrays = collect(outputs, out, new)
    if "loss" not in arrays:
        written = {**arrays, "loss": new("loss")}  # the library's loss is not optional
    else:
        written = arrays
    values = (
        weight, token_weight, denominator, reduction, ignore_index,
        zero_if_empty, class_axis
    )  # fmt: skip
    _onehot.nll_loss(input, target, outputs=written, options=(_NLL_LOSS, values))
    return result(outputs, out, arrays)


def nll_loss_backward(
    grad_output: ArrayLike | float,
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    total_weight: ArrayLike | float | None = None,
    token_weight: ArrayLike | None = None,
    accumulate: bool = False,
    compact: bool = False,
    class_axis: int = 1,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """The gradient of :func:`nll_loss`: ``-w_y g / D`` at the target of each position, 0 elsewhere.

    Args:
        grad_output: g, the gradient of the loss: shape of target for none, else one number.
        input: as in nll_loss. Only its shape and dtype are read; a view of any memory will do.
        total_weight: D of nll_loss, which mean divides by. Without it, it is computed from the targets.
        accumulate: adds to ``out``, which has to be given.
        compact: one value for each position instead, that at its target; the result has the shape of target.
        out: shape of input, or of target if compact.

    The other arguments are those of nll_loss.

    Returns:
        shape and dtype of input (shape of target if compact); ``out`` if that was given.
    """
    input, target = asarray(input), asarray(target)
    shape = target.shape if compact else input.shape
    if out is None:
        if accumulate:
            raise ValueError("accumulate: needs out, the array to add to")
        out = empty(shape, input.dtype)
    elif np.shape(out) != shape:
        raise ValueError(
            f"out: must have the shape of {'target' if compact else 'input'}, {shape}, has {np.shape(out)}"
        )
    values = (
        total_weight, weight, token_weight, reduction, ignore_index,
        accumulate, compact, _classes(input, class_axis) if compact else 0, class_axis
    )  # fmt: skip
    _onehot.nll_loss_backward(maybe(grad_output, input), target, out, options=(_NLL_LOSS_BACKWARD, values))
    return out


def _classes(input: np.ndarray, class_axis: int) -> int:
    """The extent of the class axis; 0 where there is none, which the library has a sentence for."""
    axis = class_axis if input.ndim > 1 else 0
    return input.shape[axis] if -input.ndim <= axis < input.ndim else 0


def cross_entropy(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    token_weight: ArrayLike | None = None,
    denominator: ArrayLike | float | None = None,
    z_loss: float = 0.0,
    softcap: float = 0.0,
    zero_if_empty: bool = False,
    class_axis: int = 1,
    outputs: str | Sequence[str] = "loss",
    dtype: DTypeLike | None = None,
    out: np.ndarray | Mapping[str, np.ndarray] | None = None,
) -> Any:
    """Cross entropy of logits: ``w_y (lse - z_y)`` for each position, with ``z = input`` or ``c tanh(input / c)``.

    With eps = label_smoothing and zeta = z_loss, a position adds
    ``(1 - eps) w_y (lse - z_y) + eps / C * sum of w_v (lse - z_v) + zeta lse**2``. ``mean`` divides by the sum of w_y (the
    z-loss by the number of positions, each with its token weight).

    Args:
        label_smoothing: eps, in [0, 1].
        z_loss: zeta, not negative.
        softcap: c; 0 means none.
        outputs: "loss"; "lse", "log_probability" (z_y - lse), "entropy", "argmax" for each position, 0 (argmax -1) where it
            is ignored; "total_weight". One name, or several.
        dtype: of new arrays of loss and total_weight: that of input, the default, or a wider one. The others are float32 (float64 for
            float64 input), argmax int64.

    The other arguments, results and errors are those of :func:`nll_loss`; input holds logits.
    """
    input, target = asarray(input), asarray(target)

    def new(name: str) -> np.ndarray:
        if name == "loss" or name == "total_weight":
            each = name == "loss" and reduction == "none"
            return empty(target.shape if each else (), input.dtype if dtype is None else dtype)
        return empty(target.shape, INT64 if name == "argmax" else statistics_dtype(input))

    arrays = collect(outputs, out, new)
    values = (
        weight, token_weight, denominator, reduction, ignore_index,
        label_smoothing, z_loss, softcap, zero_if_empty, class_axis
    )  # fmt: skip
    _onehot.cross_entropy(input, target, outputs=arrays, options=(_CROSS_ENTROPY, values))
    return result(outputs, out, arrays)


def cross_entropy_backward(
    grad_loss: ArrayLike | float | None,
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    token_weight: ArrayLike | None = None,
    denominator: ArrayLike | float | None = None,
    z_loss: float = 0.0,
    softcap: float = 0.0,
    zero_if_empty: bool = False,
    class_axis: int = 1,
    lse: ArrayLike | None = None,
    grad_log_probability: ArrayLike | None = None,
    grad_entropy: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """The gradient of :func:`cross_entropy` with respect to its logits.

    Args:
        grad_loss: the gradient of the loss: shape of target for none, else one number; None counts as 0.
        lse: what cross_entropy gave. Without it, it is computed once more, which is slower and a little more exact.
        grad_log_probability, grad_entropy: upstream gradients of these outputs, shape of target.
        dtype: of a new array: that of input, the default, or float32.
        out: shape of input. It may be input itself: then the gradient replaces the logits.

    The other arguments are those of cross_entropy.

    Returns:
        shape of input; ``out`` if that was given.
    """
    input, target = asarray(input), asarray(target)
    if out is None:
        out = empty(input.shape, input.dtype if dtype is None else dtype)
    values = (
        lse, grad_loss, grad_log_probability,
        grad_entropy, weight, token_weight, denominator,
        reduction, ignore_index, label_smoothing, z_loss, softcap, zero_if_empty, class_axis
    )  # fmt: skip
    _onehot.cross_entropy_backward(input, target, out, options=(_CROSS_ENTROPY_BACKWARD, values))
    return out
