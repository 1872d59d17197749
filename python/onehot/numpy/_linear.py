from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy import asarray, empty
from numpy.typing import ArrayLike, DTypeLike

from onehot import _onehot
from onehot.numpy._arrays import INT64, collect, result, statistics_dtype

_GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
# Names of options, in the order in which the module asks for them.
_LINEAR = (
    "grad_loss",
    "grad_log_probability",
    "grad_entropy",
    "accumulate",
    "weight",
    "token_weight",
    "denominator",
    "reduction",
    "ignore_index",
    "label_smoothing",
    "z_loss",
    "softcap",
    "zero_if_empty",
    "linear_bias",
    "logit_scale",
    "max_workspace",
    "skip_below",
    "reproducible",
)
_LINEAR_BACKWARD = ("lse", "max", "sum_exp", "entropy", "probability", "shard_first", "shard_num_classes") + _LINEAR
_STATISTICS = (
    "shard_first",
    "shard_num_classes",
    "weight",
    "ignore_index",
    "softcap",
    "linear_bias",
    "logit_scale",
    "max_workspace",
    "reproducible",
)
_LOSS = (
    "target_logit",
    "smoothing",
    "moment",
    "target",
    "num_classes",
    "logits",
    "weight",
    "token_weight",
    "denominator",
    "reduction",
    "ignore_index",
    "label_smoothing",
    "z_loss",
    "zero_if_empty",
)
_NO_SHARD = (None, None)
_ONE = np.ones((), np.float32)


def _gradient(name: str, input: np.ndarray, weight: np.ndarray, dtype: DTypeLike | None) -> np.ndarray:
    """A new one."""
    shape = input.shape if name == "grad_input" else weight.shape if name == "grad_weight" else weight.shape[:1]
    return empty(shape, input.dtype if dtype is None else dtype)


def _ones(target: np.ndarray, reduction: str) -> np.ndarray:
    """An upstream gradient of 1 for each loss, without memory."""
    return np.ndarray(target.shape, _ONE.dtype, _ONE, 0, (0,) * target.ndim) if reduction == "none" else _ONE


def _shard(shard: tuple[int, int]) -> tuple[int, int]:
    try:
        first, num_classes = shard
    except (TypeError, ValueError):
        raise TypeError(f"shard: must be (first, num_classes), is {shard!r}") from None
    return first, num_classes


def _require_out(outputs: str | Sequence[str], out: Any) -> None:
    """For accumulate: gradients that are asked for have to be there."""
    names = [name for name in ((outputs,) if isinstance(outputs, str) else outputs) if name in _GRADIENTS]
    for name in names:
        if out is None or (isinstance(out, Mapping) and out.get(name) is None):
            raise ValueError(f"accumulate: needs {name} in out, the array to add to")


def linear_cross_entropy(
    input: ArrayLike,
    linear_weight: ArrayLike,
    target: ArrayLike,
    *,
    linear_bias: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
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
    grad_loss: ArrayLike | float | None = None,
    grad_log_probability: ArrayLike | None = None,
    grad_entropy: ArrayLike | None = None,
    accumulate: bool = False,
    outputs: str | Sequence[str] = "loss",
    dtype: DTypeLike | None = None,
    grad_dtype: DTypeLike | None = None,
    out: np.ndarray | Mapping[str, np.ndarray] | None = None,
) -> Any:
    """Cross entropy of ``logit_scale * (input @ linear_weight.T + linear_bias)``, without the logits in memory.

    Loss and gradients can be had in one call, which is what a training step wants:

        result = linear_cross_entropy(x, w, y, outputs=("loss", "grad_input", "grad_weight"))

    It costs one product of N x H x V for the loss; three, or four with little workspace, with both gradients.

    Args:
        input: (..., H), float32, float64, float16 or bfloat16. Products are in float32 (float64 for float64); those of
            bfloat16 are the CPU's own where it has them.
        linear_weight: (V, H), dtype of input.
        target: shape of input without its last axis, each in [0, V) or ignore_index.
        linear_bias: (V,), dtype of input or float32; -infinity takes a class out.
        logit_scale: a factor of all logits.
        max_workspace: bytes of working memory; less is slower, never different. What cannot be avoided is taken.
        skip_below: leaves out parts of the gradient's products whose factors are all smaller than this. 0 leaves out none.
        reproducible: the same bits on every CPU, also for bfloat16; up to twice as slow there.
        grad_loss: the gradient of the loss for the gradients: shape of target for none, else one number. Default 1.
        grad_log_probability, grad_entropy: upstream gradients of these outputs, shape of target.
        accumulate: adds gradients to the arrays of ``out``.
        outputs: "loss", "lse", "target_logit", "log_probability", "entropy", "argmax", "total_weight", "grad_input",
            "grad_weight", "grad_bias"; one name, or several.
        dtype: of new arrays of loss and total_weight: that of input, the default, or a wider one.
        grad_dtype: of new arrays of gradients: that of input, the default, or float32 for 16-bit input.
        out: an array, or a dict of arrays by name of the output.

    ``weight``, ``reduction``, ``ignore_index``, ``label_smoothing``, ``token_weight``, ``denominator``, ``z_loss``,
    ``softcap``, ``zero_if_empty`` and the outputs for each position are those of :func:`cross_entropy`.

    Returns:
        The output, or a dict of outputs where ``outputs`` names several in a sequence.

    Raises:
        IndexError: a target is neither in [0, V) nor ignore_index; the first such position is named.
    """
    input, linear_weight, target = asarray(input), asarray(linear_weight), asarray(target)
    if accumulate:
        _require_out(outputs, out)

    def new(name: str) -> np.ndarray:
        if name == "loss" or name == "total_weight":
            each = name == "loss" and reduction == "none"
            return empty(target.shape if each else (), input.dtype if dtype is None else dtype)
        if name in _GRADIENTS:
            return _gradient(name, input, linear_weight, grad_dtype)
        return empty(target.shape, INT64 if name == "argmax" else statistics_dtype(input))

    arrays = collect(outputs, out, new)
    if grad_loss is None and outputs != "loss":
        grad_loss = _ones(target, reduction)
    values = (
        grad_loss, grad_log_probability, grad_entropy, accumulate,
        weight, token_weight, denominator, reduction, ignore_index,
        label_smoothing, z_loss, softcap, zero_if_empty, linear_bias, logit_scale, max_workspace,
        skip_below, reproducible
    )  # fmt: skip
    _onehot.linear_cross_entropy(input, linear_weight, target, outputs=arrays, options=(_LINEAR, values))
    return result(outputs, out, arrays)


def linear_cross_entropy_backward(
    grad_loss: ArrayLike | float | None,
    input: ArrayLike,
    linear_weight: ArrayLike,
    target: ArrayLike,
    *,
    linear_bias: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
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
    lse: ArrayLike | None = None,
    max: ArrayLike | None = None,
    sum_exp: ArrayLike | None = None,
    entropy: ArrayLike | None = None,
    probability: ArrayLike | None = None,
    shard: tuple[int, int] | None = None,
    grad_log_probability: ArrayLike | None = None,
    grad_entropy: ArrayLike | None = None,
    accumulate: bool = False,
    outputs: str | Sequence[str] = ("grad_input", "grad_weight"),
    grad_dtype: DTypeLike | None = None,
    out: np.ndarray | Mapping[str, np.ndarray] | None = None,
) -> Any:
    """The gradients of :func:`linear_cross_entropy`, later than the loss.

    Args:
        grad_loss: the gradient of the loss: shape of target for none, else one number; None counts as 0.
        lse, or max and sum_exp, or probability: what is known of all logits of a position, as the other functions gave
            it; nothing at all costs one product more.
        entropy: as linear_cross_entropy gave it, for grad_entropy beside lse or max.
        shard: (first, num_classes), where linear_weight has rows first, first + 1, ... of a vocabulary of num_classes.
        outputs: "grad_input", "grad_weight", "grad_bias"; one name, or several.

    The other arguments are those of linear_cross_entropy.
    """
    input, linear_weight, target = asarray(input), asarray(linear_weight), asarray(target)
    if accumulate:
        _require_out(outputs, out)
    arrays = collect(outputs, out, lambda name: _gradient(name, input, linear_weight, grad_dtype))
    first, num_classes = _NO_SHARD if shard is None else _shard(shard)
    values = (
        lse, max, sum_exp, entropy,
        probability, first, num_classes, grad_loss,
        grad_log_probability, grad_entropy, accumulate,
        weight, token_weight, denominator, reduction, ignore_index,
        label_smoothing, z_loss, softcap, zero_if_empty, linear_bias, logit_scale, max_workspace,
        skip_below, reproducible
    )  # fmt: skip
    _onehot.linear_cross_entropy_backward(
        input,
        linear_weight,
        target,
        outputs=arrays,
        options=(_LINEAR_BACKWARD, values),
    )
    return result(outputs, out, arrays)


def linear_cross_entropy_statistics(
    input: ArrayLike,
    linear_weight: ArrayLike,
    target: ArrayLike,
    *,
    linear_bias: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    ignore_index: int = -100,
    softcap: float = 0.0,
    logit_scale: float = 1.0,
    reproducible: bool = False,
    max_workspace: int | None = None,
    shard: tuple[int, int] | None = None,
    outputs: str | Sequence[str] = ("max", "sum_exp", "target_logit"),
    logits_dtype: DTypeLike | None = None,
    out: np.ndarray | Mapping[str, np.ndarray] | None = None,
) -> Any:
    """What a part of the vocabulary knows of its logits; several parts make a loss by :func:`linear_cross_entropy_loss`.

    Args:
        target: classes of the whole vocabulary, also where the shard does not have them.
        weight: (num_classes,), class weights of the whole vocabulary.
        shard: (first, num_classes), where linear_weight has rows first, first + 1, ... of a vocabulary of num_classes.
        outputs: "max", the largest logit; "sum_exp", the sum of ``exp(z - max)``; "target_logit", ``z_y - max``, 0 where
            the target is elsewhere; "smoothing", the sum of ``w_v (max - z_v)``; "moment", the sum of
            ``exp(z - max) (z - max)``; "argmax"; "logits", (..., V).
        logits_dtype: of a new array of logits: that of input, the default, or float32.

    All are float32 (float64 for float64 input), shape of target; argmax is int64. How parts are put together is said in the
    header onehot/linear_cross_entropy_shards.h. The other arguments are those of :func:`linear_cross_entropy`.
    """
    input, linear_weight, target = asarray(input), asarray(linear_weight), asarray(target)

    def new(name: str) -> np.ndarray:
        if name == "logits":
            return empty(target.shape + linear_weight.shape[:1], input.dtype if logits_dtype is None else logits_dtype)
        return empty(target.shape, INT64 if name == "argmax" else statistics_dtype(input))

    arrays = collect(outputs, out, new)
    first, num_classes = _NO_SHARD if shard is None else _shard(shard)
    values = (
        first, num_classes, weight, ignore_index, softcap, linear_bias,
        logit_scale, max_workspace, reproducible
    )  # fmt: skip
    _onehot.linear_cross_entropy_statistics(input, linear_weight, target, outputs=arrays, options=(_STATISTICS, values))
    return result(outputs, out, arrays)


def linear_cross_entropy_loss(
    max: ArrayLike,
    sum_exp: ArrayLike,
    *,
    target_logit: ArrayLike | None = None,
    smoothing: ArrayLike | None = None,
    moment: ArrayLike | None = None,
    target: ArrayLike | None = None,
    num_classes: int = 0,
    logits: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    token_weight: ArrayLike | None = None,
    denominator: ArrayLike | float | None = None,
    z_loss: float = 0.0,
    zero_if_empty: bool = False,
    outputs: str | Sequence[str] = "loss",
    dtype: DTypeLike | None = None,
    out: np.ndarray | Mapping[str, np.ndarray] | None = None,
) -> Any:
    """The loss, from statistics of the whole vocabulary.

    Args:
        max, sum_exp, target_logit: as :func:`linear_cross_entropy_statistics` gives them, put together over all shards.
        smoothing: for label_smoothing.
        moment: for entropy.
        target: needed with class weights; without it no position is ignored.
        num_classes: V of the whole vocabulary; needed with target, class weights or label_smoothing.
        logits: (..., any), for probability.
        outputs: "loss", "lse", "log_probability", "entropy", "total_weight", "probability"; one name, or several.
        dtype: of new arrays of loss and total_weight: that of max, the default, or float64.

    The other arguments are those of :func:`linear_cross_entropy`.
    """
    max, sum_exp = asarray(max), asarray(sum_exp)
    logits = None if logits is None else asarray(logits)

    def new(name: str) -> np.ndarray:
        if name == "loss" or name == "total_weight":
            each = name == "loss" and reduction == "none"
            return empty(max.shape if each else (), max.dtype if dtype is None else dtype)
        return empty(max.shape if name != "probability" or logits is None else logits.shape, max.dtype)

    arrays = collect(outputs, out, new)
    values = (
        target_logit, smoothing, moment,
        None if target is None else asarray(target), num_classes, logits, weight,
        token_weight, denominator, reduction, ignore_index, label_smoothing, z_loss, zero_if_empty
    )  # fmt: skip
    _onehot.linear_cross_entropy_loss(max, sum_exp, outputs=arrays, options=(_LOSS, values))
    return result(outputs, out, arrays)
