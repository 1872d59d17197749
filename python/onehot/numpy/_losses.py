from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from onehot import _onehot
from onehot.numpy._arrays import Outputs, check_apart, maybe, number, statistics_dtype


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
    dtype: DTypeLike = None,
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
        dtype: of the outputs: that of input, the default, or a wider one of float32 and float64.
        out: see onehot.numpy.

    Returns:
        The output, or a dict of outputs where ``outputs`` names several in a sequence.

    Raises:
        IndexError: a target is neither in [0, C) nor ignore_index; the first such position is named.
    """
    input, target = np.asarray(input), np.asarray(target)
    weight, token_weight, denominator = maybe(weight), maybe(token_weight), number(denominator)
    wide = input.dtype if dtype is None else np.dtype(dtype)
    results = Outputs(
        outputs,
        out,
        {"loss": (target.shape if reduction == "none" else (), wide), "total_weight": ((), wide)},
        {"input": input, "target": target, "weight": weight, "token_weight": token_weight, "denominator": denominator},
    )
    loss = results.arrays.get("loss")
    if loss is None:  # the library's loss is not optional
        loss = np.empty(target.shape if reduction == "none" else (), wide)
    _onehot.nll_loss(
        input,
        target,
        loss,
        total_weight=results.arrays.get("total_weight"),
        weight=weight,
        token_weight=token_weight,
        denominator=denominator,
        reduction=reduction,
        ignore_index=ignore_index,
        zero_if_empty=zero_if_empty,
        class_axis=class_axis,
    )
    return results.result()


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
    input, target, grad_output = np.asarray(input), np.asarray(target), np.asarray(number(grad_output))
    weight, token_weight, total_weight = maybe(weight), maybe(token_weight), number(total_weight)
    axis = class_axis if input.ndim > 1 else 0
    if grad_output.dtype == np.float64 != input.dtype:
        grad_output = grad_output.astype(np.float32)  # the operator takes the dtype of out, or float32
    if total_weight is None and reduction == "mean":
        # One class of -1 for each position, whatever the input is; a bad target then has its name in that call.
        total_weight = nll_loss(
            np.broadcast_to(np.asarray(0, statistics_dtype(input.dtype)), input.shape),
            target,
            weight,
            ignore_index=ignore_index,
            token_weight=token_weight,
            class_axis=class_axis,
            outputs="total_weight",
            dtype=np.float64,
        )
        total_weight = np.asarray(total_weight)
    if out is None:
        if accumulate:
            raise ValueError("accumulate: needs out, the array to add to")
        out = np.empty(target.shape if compact else input.shape, input.dtype)
    else:
        inputs = {"grad_output": grad_output, "target": target, "weight": weight, "token_weight": token_weight}
        check_apart({"out": out}, inputs | {"total_weight": total_weight})
    _onehot.nll_loss_backward(
        grad_output,
        target,
        out,
        total_weight=total_weight,
        weight=weight,
        token_weight=token_weight,
        reduction=reduction,
        ignore_index=ignore_index,
        accumulate=accumulate,
        compact=compact,
        num_classes=input.shape[axis] if compact else 0,
        class_axis=class_axis,
    )
    return out


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
    dtype: DTypeLike = None,
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
        dtype: of loss and total_weight: that of input, the default, or a wider one. The others are float32 (float64 for
            float64 input), argmax int64.

    The other arguments, results and errors are those of :func:`nll_loss`; input holds logits.
    """
    input, target = np.asarray(input), np.asarray(target)
    weight, token_weight, denominator = maybe(weight), maybe(token_weight), number(denominator)
    wide, statistics = input.dtype if dtype is None else np.dtype(dtype), statistics_dtype(input.dtype)
    results = Outputs(
        outputs,
        out,
        {
            "loss": (target.shape if reduction == "none" else (), wide),
            "lse": (target.shape, statistics),
            "log_probability": (target.shape, statistics),
            "entropy": (target.shape, statistics),
            "argmax": (target.shape, np.dtype(np.int64)),
            "total_weight": ((), wide),
        },
        {"input": input, "target": target, "weight": weight, "token_weight": token_weight, "denominator": denominator},
    )
    _onehot.cross_entropy(
        input,
        target,
        weight=weight,
        token_weight=token_weight,
        denominator=denominator,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        z_loss=z_loss,
        softcap=softcap,
        zero_if_empty=zero_if_empty,
        class_axis=class_axis,
        **results.arrays,
    )
    return results.result()


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
    dtype: DTypeLike = None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """The gradient of :func:`cross_entropy` with respect to its logits.

    Args:
        grad_loss: the gradient of the loss: shape of target for none, else one number; None counts as 0.
        lse: what cross_entropy gave. Without it, it is computed once more, which is slower and a little more exact.
        grad_log_probability, grad_entropy: upstream gradients of these outputs, shape of target.
        dtype: of the result: that of input, the default, or float32.
        out: shape of input. It may be input itself: then the gradient replaces the logits.

    The other arguments are those of cross_entropy.

    Returns:
        shape of input; ``out`` if that was given.
    """
    input, target = np.asarray(input), np.asarray(target)
    weight, token_weight, denominator = maybe(weight), maybe(token_weight), number(denominator)
    grad_loss, lse = number(grad_loss), maybe(lse)
    grad_log_probability, grad_entropy = maybe(grad_log_probability), maybe(grad_entropy)
    if out is None:
        out = np.empty(input.shape, input.dtype if dtype is None else dtype)
    else:
        inputs = {
            "input": None if _same(out, input) else input,
            "target": target,
            "weight": weight,
            "token_weight": token_weight,
            "denominator": denominator,
            "grad_loss": grad_loss,
            "lse": lse,
            "grad_log_probability": grad_log_probability,
            "grad_entropy": grad_entropy,
        }
        check_apart({"out": out}, inputs)
    _onehot.cross_entropy_backward(
        input,
        target,
        out,
        weight=weight,
        token_weight=token_weight,
        denominator=denominator,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        z_loss=z_loss,
        softcap=softcap,
        zero_if_empty=zero_if_empty,
        class_axis=class_axis,
        lse=lse,
        grad_loss=grad_loss,
        grad_log_probability=grad_log_probability,
        grad_entropy=grad_entropy,
    )
    return out


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a is b or (
        a.__array_interface__["data"] == b.__array_interface__["data"]
        and a.strides == b.strides
        and a.shape == b.shape
        and a.dtype == b.dtype
    )
