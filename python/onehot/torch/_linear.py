from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from onehot.torch._library import (
    autocast_dtype,
    check_main_grad,
    refuse_gradients,
    require_tensors,
    size_of,
    transforms_active,
)
from onehot.torch._linear_cross_entropy import Options, kept_dtype, op
from onehot.torch._nll_loss import as_denominator


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: None = None,
    token_weight: Tensor | None = None,
    denominator: Tensor | float | None = None,
    z_loss: float = 0.0,
    softcap: float = 0.0,
    logit_scale: float = 1.0,
    zero_if_empty: bool = False,
    max_workspace: int | None = None,
    skip_below: float = 0.0,
    reproducible: bool = False,
    main_grad: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Cross entropy of ``linear(input, linear_weight, linear_bias)`` without its logits: F.linear_cross_entropy, and more.

    It takes what torch.nn.functional.linear_cross_entropy (PyTorch 2.13 and later) takes, so that an import swaps it, and
    inputs of any rank, targets of any integer type, any strides, and the options below. With z the logits,
    ``logit_scale * (input @ linear_weight.T + linear_bias)`` or ``c tanh`` of them divided by c = softcap, lse their
    log-sum-exp and y the target of a position, the loss of a position is

        (1 - eps) w_y (lse - z_y) + eps / V * sum of w_v (lse - z_v) + z_loss * lse**2        with eps = label_smoothing

    ``mean`` divides the sum by that of the w_y (the z-loss by the number of positions).

    Args:
        input: (..., H), float32, float64, float16 or bfloat16.
        linear_weight: (V, H), dtype of input; or (V, d1, ..., H) for input (N, H) and target (N, d1, ...): a loss for each
            of d1 x ... layers.
        target: shape of input without its last axis, int64, int32, int16, int8 or uint8, each in [0, V) or ignore_index.
            Class indices only.
        linear_bias: (V,), dtype of input or float32; -infinity takes a class out.
        weight: (V,), class weights, dtype of input or float32.
        reduction: "none", "mean" or "sum".
        ignore_index: a target whose position does not count. None means -100.
        options: must be None. onehot cuts the work itself; ``max_workspace`` says how much memory it may take.
        token_weight: shape of target, a weight for each position, dtype of input or float32.
        denominator: replaces the divisor of mean; one element.
        zero_if_empty: mean is 0 instead of NaN where no position counts.
        max_workspace: bytes; see "Cost".
        skip_below: leaves out parts of the gradient's products whose factors are all smaller than this. 0 leaves out none.
        reproducible: the same bits on every CPU, also for bfloat16; up to twice as slow there.
        main_grad: (V, H), float32 or the dtype of linear_weight. The gradient of linear_weight is added to it, in the
            backward, instead of being returned to autograd: linear_weight.grad stays as it is. One buffer may serve all
            uses of a tied weight, and any number of micro-batches.
        dtype: of the loss: that of input, the default, or a wider one.

    Returns:
        the loss: shape of target for none, else one number.

    Raises:
        IndexError: a target is neither in [0, V) nor ignore_index; the first such position is named.
        ValueError, TypeError: shapes, options and dtypes.
        NotImplementedError: where a second derivative is asked for.

    Cost. The N x V logits are never in memory. One product of N x H x V makes the loss. Of gradients only those of tensors
    that require one are made, and none under torch.no_grad.

    - mean and sum: loss and gradients are made together in the forward, by three products where some logits may be kept for
      a moment (up to 64 MiB or an eighth of all logits and their gradient, or ``max_workspace``), else by four. The
      gradients wait for the backward in float32, where they are multiplied by the gradient of the loss, in place, and rounded
      once: factors of loss scaling lose nothing. input and linear_weight are not kept.
    - Otherwise two numbers for each position are kept, and the backward makes the gradients by three products more, as exactly.
      That is the way for none; with main_grad; where float32 gradients of 16-bit tensors would take more memory than the
      above; and where gradients do not fit in ``max_workspace``, 0 for instance.

    Within torch.autocast the products are of its dtype, the loss is float32, and so are the gradients of float32 tensors:
    they are not rounded in between.
    """
    require_tensors(input=input, linear_weight=linear_weight, target=target)
    _check(input, linear_weight, target, linear_bias, options)
    refuse_gradients(weight=weight, token_weight=token_weight)
    compute_dtype = None
    if input.dtype != torch.float64 and (cast := autocast_dtype()) is not None:
        compute_dtype, dtype = cast, dtype or torch.float32
    _check_later(dtype, compute_dtype or input.dtype, skip_below, max_workspace)
    arguments = Options(
        linear_bias,
        weight,
        token_weight,
        None if denominator is None else as_denominator(denominator),
        reduction,
        -100 if ignore_index is None else ignore_index,
        label_smoothing,
        z_loss,
        softcap,
        logit_scale,
        zero_if_empty,
        max_workspace,
        skip_below,
        reproducible,
        compute_dtype,
    )
    if linear_weight.dim() > 2:
        if main_grad is not None:
            raise ValueError("main_grad: needs a linear_weight of two axes")
        return _layers(input, linear_weight, target, arguments, dtype)
    if main_grad is not None:
        check_main_grad(main_grad, linear_weight)
    return _one_layer(input, linear_weight, target, arguments, dtype, main_grad)


def _check(input: Tensor, linear_weight: Tensor, target: Tensor, linear_bias: Tensor | None, options: Any) -> None:
    if options is not None:
        raise ValueError(
            "options: must be None, since onehot cuts the work itself; use max_workspace to say how much memory it may take"
        )
    if target.is_floating_point():
        raise ValueError(
            "target: must be class indices, is probabilities; use torch.nn.functional.linear_cross_entropy, "
            "or label_smoothing where that is what they are for"
        )
    if linear_weight.dim() < 2:
        raise ValueError(f"linear_weight: must have at least two axes, (V, ..., H), has {linear_weight.dim()}")
    if linear_bias is not None and linear_bias.shape != linear_weight.shape[:-1]:
        raise ValueError(
            f"linear_bias: must have the shape {tuple(linear_weight.shape[:-1])} of linear_weight without its last axis, "
            f"has {tuple(linear_bias.shape)}"
        )


def _check_later(dtype: torch.dtype | None, own: torch.dtype, skip_below: float, max_workspace: Any) -> None:
    """What the operator hears of in the backward alone, or not as it was given."""
    if dtype not in (None, own, torch.float64) and (dtype != torch.float32 or own == torch.float64):
        raise TypeError(f"dtype: must be {own} or a wider one of torch.float32 and torch.float64, is {dtype}")
    if max_workspace is not None and not hasattr(max_workspace, "__index__"):
        raise TypeError(f"max_workspace: must be an integer, is {max_workspace!r}")
    if not 0 <= skip_below < math.inf:
        raise ValueError(f"skip_below: must be finite and not negative, is {skip_below}")


def _one_layer(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    options: Options,
    dtype: torch.dtype | None,
    main_grad: Tensor | None,
) -> Tensor:
    differentiates = torch.is_grad_enabled()
    wanted = [
        differentiates and tensor is not None and tensor.requires_grad
        for tensor in (input, linear_weight, options.linear_bias)
    ]
    together = False
    # Gradients that are kept do not know what they depend on, and torch.func cannot be told to refuse second derivatives.
    if any(wanted) and options.reduction != "none" and main_grad is None and not transforms_active():
        kept = _kept_bytes(input, linear_weight, wanted)
        together = kept <= _limit(input, linear_weight, options)
        if together and options.max_workspace is not None:
            options = options._replace(max_workspace=options.max_workspace - kept)
    return op(input, linear_weight, target, *options, dtype, together, *wanted, main_grad)[0]


def _kept_bytes(input: Tensor, linear_weight: Tensor, wanted: list[bool]) -> int:
    sizes = (input.numel(), linear_weight.numel(), linear_weight.shape[0])
    return size_of(kept_dtype(input.dtype)) * sum(size for size, want in zip(sizes, wanted) if want)


def _limit(input: Tensor, linear_weight: Tensor, options: Options) -> float:
    """Bytes of gradients that may wait from the forward to the backward."""
    if options.max_workspace is not None:
        return options.max_workspace
    if linear_weight.dtype in (torch.float32, torch.float64):
        return math.inf  # they are the results themselves
    # What the operator takes for the logits of its three products: little beside what logits would take.
    positions = input.numel() // max(input.shape[-1], 1)
    logits_and_gradient = 2 * positions * linear_weight.shape[0] * size_of(linear_weight.dtype)
    return max(64 << 20, logits_and_gradient // 8)


def _layers(
    input: Tensor, linear_weight: Tensor, target: Tensor, options: Options, dtype: torch.dtype | None
) -> Tensor:
    """PyTorch's loss of K dimensions: weights (V, d1, ..., H), targets (N, d1, ...). One layer after the other."""
    inner = tuple(linear_weight.shape[1:-1])
    if input.dim() != 2 or tuple(target.shape) != (input.shape[0], *inner):
        raise ValueError(
            f"target: must have the shape (N, {', '.join(map(str, inner))}) of input (N, H) and linear_weight "
            f"{tuple(linear_weight.shape)}, has {tuple(target.shape)} with input {tuple(input.shape)}"
        )
    if options.token_weight is not None and options.token_weight.shape != target.shape:
        raise ValueError(
            f"token_weight: must have the shape {tuple(target.shape)} of target, has {tuple(options.token_weight.shape)}"
        )
    if options.z_loss != 0 and options.weight is not None and options.reduction == "mean":
        raise ValueError("z_loss: has a divisor of its own beside class weights, which several layers do not; use sum")
    if options.reduction == "mean" and options.denominator is None:
        options = options._replace(denominator=_total_weight(target, options))
    weights = linear_weight.flatten(1, -2).unbind(1)
    biases = [None] * len(weights) if options.linear_bias is None else options.linear_bias.flatten(1).unbind(1)
    targets = target.flatten(1).unbind(1)
    token_weights = [None] * len(weights) if options.token_weight is None else options.token_weight.flatten(1).unbind(1)
    dtype = dtype or input.dtype
    # Losses of layers are not rounded to 16 bits before their sum is.
    partial = dtype if options.reduction == "none" or size_of(dtype) > 2 else torch.float32
    try:
        losses = [
            _one_layer(input, w, t, options._replace(linear_bias=b, token_weight=k), partial, None)
            for w, b, t, k in zip(weights, biases, targets, token_weights)
        ]
    except IndexError:
        _refuse_first(target, linear_weight.shape[0], options.ignore_index)
        raise
    if not losses:
        empty = input.new_zeros(target.shape if options.reduction == "none" else (), dtype=dtype)
        return (
            empty
            if options.denominator is None or options.reduction != "mean"
            else (empty / options.denominator).to(dtype)
        )
    if options.reduction == "none":
        return torch.stack(losses, 1).unflatten(1, inner)
    return torch.stack(losses).sum(0).to(dtype)


def _refuse_first(target: Tensor, classes: int, ignore_index: int) -> None:
    """The sentence of the operator, for the first of all layers' targets and not the first of one layer."""
    bad = ((target < 0) | (target >= classes)) & (target != ignore_index)
    position = int(bad.flatten().nonzero()[0])
    index = ", ".join(str(int(i)) for i in bad.nonzero()[0])
    value = int(target.flatten()[position])
    raise IndexError(f"target[{index}] (position {position}) = {value} is outside [0, {classes})")


def _total_weight(target: Tensor, options: Options) -> Tensor:
    weights = (target != options.ignore_index).to(torch.float64)
    if options.weight is not None:
        # A target out of range gets its sentence from the operator.
        weights = weights * options.weight.detach()[target.long().clamp(0, options.weight.shape[0] - 1)]
    if options.token_weight is not None:
        weights = weights * options.token_weight.detach()
    return weights.sum()
