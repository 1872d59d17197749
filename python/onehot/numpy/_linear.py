from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from onehot import _onehot
from onehot.numpy._arrays import Outputs, maybe, number, statistics_dtype

_GRADIENTS = ("grad_input", "grad_weight", "grad_bias")


def _gradients(input: np.ndarray, weight: np.ndarray, dtype: DTypeLike) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    kind = input.dtype if dtype is None else np.dtype(dtype)
    return {"grad_input": (input.shape, kind), "grad_weight": (weight.shape, kind), "grad_bias": (weight.shape[:1], kind)}


def _upstream(grad_loss: Any, target: np.ndarray, reduction: str) -> Any:
    """One for each loss, unless a gradient was given."""
    if grad_loss is None:
        one = np.ones((), np.float32)
        return np.broadcast_to(one, target.shape) if reduction == "none" else one
    return np.asarray(number(grad_loss))


def _require_out(accumulate: bool, outputs: str | Sequence[str], out: Any) -> None:
    if not accumulate:
        return
    names = [name for name in ((outputs,) if isinstance(outputs, str) else outputs) if name in _GRADIENTS]
    given = out if isinstance(out, Mapping) else {names[0]: out} if out is not None and len(names) == 1 else {}
    for name in names:
        if given.get(name) is None:
            raise ValueError(f"accumulate: needs {name} in out, the array to add to")


def _shard(shard: tuple[int, int] | None) -> dict[str, int]:
    return {} if shard is None else {"shard_first": shard[0], "shard_num_classes": shard[1]}


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
    dtype: DTypeLike = None,
    grad_dtype: DTypeLike = None,
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
        dtype: of loss and total_weight: that of input, the default, or a wider one.
        grad_dtype: of gradients: that of input, the default, or float32 for 16-bit input.
        out: an array, or a dict of arrays by name of the output.

    ``weight``, ``reduction``, ``ignore_index``, ``label_smoothing``, ``token_weight``, ``denominator``, ``z_loss``,
    ``softcap``, ``zero_if_empty`` and the outputs for each position are those of :func:`cross_entropy`.

    Returns:
        The output, or a dict of outputs where ``outputs`` names several in a sequence.

    Raises:
        IndexError: a target is neither in [0, V) nor ignore_index; the first such position is named.
    """
    input, linear_weight, target = np.asarray(input), np.asarray(linear_weight), np.asarray(target)
    options = {
        "linear_bias": maybe(linear_bias),
        "weight": maybe(weight),
        "token_weight": maybe(token_weight),
        "denominator": number(denominator),
    }
    _require_out(accumulate, outputs, out)
    wide, statistics = input.dtype if dtype is None else np.dtype(dtype), statistics_dtype(input.dtype)
    makers = {
        "loss": (target.shape if reduction == "none" else (), wide),
        "lse": (target.shape, statistics),
        "target_logit": (target.shape, statistics),
        "log_probability": (target.shape, statistics),
        "entropy": (target.shape, statistics),
        "argmax": (target.shape, np.dtype(np.int64)),
        "total_weight": ((), wide),
    } | _gradients(input, linear_weight, grad_dtype)
    results = Outputs(
        outputs, out, makers, {"input": input, "linear_weight": linear_weight, "target": target} | options
    )
    if any(name in results.arrays for name in _GRADIENTS):
        options["grad_loss"] = _upstream(grad_loss, target, reduction)
        options["grad_log_probability"] = maybe(grad_log_probability)
        options["grad_entropy"] = maybe(grad_entropy)
    _onehot.linear_cross_entropy(
        input,
        linear_weight,
        target,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        z_loss=z_loss,
        softcap=softcap,
        logit_scale=logit_scale,
        zero_if_empty=zero_if_empty,
        max_workspace=max_workspace,
        skip_below=skip_below,
        reproducible=reproducible,
        accumulate=accumulate,
        **options,
        **results.arrays,
    )
    return results.result()


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
    grad_dtype: DTypeLike = None,
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
    input, linear_weight, target = np.asarray(input), np.asarray(linear_weight), np.asarray(target)
    arrays = {
        "linear_bias": maybe(linear_bias),
        "weight": maybe(weight),
        "token_weight": maybe(token_weight),
        "denominator": number(denominator),
        "lse": maybe(lse),
        "max": maybe(max),
        "sum_exp": maybe(sum_exp),
        "entropy": maybe(entropy),
        "probability": maybe(probability),
        "grad_loss": number(grad_loss),
        "grad_log_probability": maybe(grad_log_probability),
        "grad_entropy": maybe(grad_entropy),
    }
    _require_out(accumulate, outputs, out)
    results = Outputs(
        outputs,
        out,
        _gradients(input, linear_weight, grad_dtype),
        {"input": input, "linear_weight": linear_weight, "target": target} | arrays,
    )
    _onehot.linear_cross_entropy_backward(
        input,
        linear_weight,
        target,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        z_loss=z_loss,
        softcap=softcap,
        logit_scale=logit_scale,
        zero_if_empty=zero_if_empty,
        max_workspace=max_workspace,
        skip_below=skip_below,
        reproducible=reproducible,
        accumulate=accumulate,
        **_shard(shard),
        **arrays,
        **results.arrays,
    )
    return results.result()


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
    logits_dtype: DTypeLike = None,
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
        logits_dtype: of logits: that of input, the default, or float32.

    All are float32 (float64 for float64 input), shape of target; argmax is int64. How parts are put together is said in the
    header onehot/linear_cross_entropy_shards.h. The other arguments are those of :func:`linear_cross_entropy`.
    """
    input, linear_weight, target = np.asarray(input), np.asarray(linear_weight), np.asarray(target)
    arrays = {"linear_bias": maybe(linear_bias), "weight": maybe(weight)}
    statistics = statistics_dtype(input.dtype)
    names = ("max", "sum_exp", "target_logit", "smoothing", "moment")
    results = Outputs(
        outputs,
        out,
        {name: (target.shape, statistics) for name in names}
        | {
            "argmax": (target.shape, np.dtype(np.int64)),
            "logits": (
                target.shape + linear_weight.shape[:1],
                input.dtype if logits_dtype is None else np.dtype(logits_dtype),
            ),
        },
        {"input": input, "linear_weight": linear_weight, "target": target} | arrays,
    )
    _onehot.linear_cross_entropy_statistics(
        input,
        linear_weight,
        target,
        ignore_index=ignore_index,
        softcap=softcap,
        logit_scale=logit_scale,
        reproducible=reproducible,
        max_workspace=max_workspace,
        **_shard(shard),
        **arrays,
        **results.arrays,
    )
    return results.result()


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
    dtype: DTypeLike = None,
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
        dtype: of loss and total_weight: that of max, the default, or float64.

    The other arguments are those of :func:`linear_cross_entropy`.
    """
    max, sum_exp = np.asarray(max), np.asarray(sum_exp)
    arrays = {
        "target_logit": maybe(target_logit),
        "smoothing": maybe(smoothing),
        "moment": maybe(moment),
        "target": maybe(target),
        "logits": maybe(logits),
        "weight": maybe(weight),
        "token_weight": maybe(token_weight),
        "denominator": number(denominator),
    }
    wide = max.dtype if dtype is None else np.dtype(dtype)
    logits = arrays["logits"]
    makers = {
        "loss": (max.shape if reduction == "none" else (), wide),
        "lse": (max.shape, max.dtype),
        "log_probability": (max.shape, max.dtype),
        "entropy": (max.shape, max.dtype),
        "total_weight": ((), wide),
        "probability": (max.shape if logits is None else logits.shape, max.dtype),
    }
    results = Outputs(outputs, out, makers, {"max": max, "sum_exp": sum_exp} | arrays)
    _onehot.linear_cross_entropy_loss(
        max,
        sum_exp,
        num_classes=num_classes,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        z_loss=z_loss,
        zero_if_empty=zero_if_empty,
        **arrays,
        **results.arrays,
    )
    return results.result()
