from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onehot import _onehot
from onehot.torch._library import SIZE, autocast_dtype, one_by_one, operator, refuse_gradients, require_tensors

_OPTIONS = (
    "Tensor? weight, Tensor? token_weight, Tensor? denominator, str reduction, int ignore_index, bool zero_if_empty,"
    " int class_axis"
)


def _compute(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    token_weight: Tensor | None,
    denominator: Tensor | None,
    reduction: str,
    ignore_index: int,
    zero_if_empty: bool,
    class_axis: int,
    dtype: torch.dtype | None,
) -> tuple[Tensor, Tensor]:
    loss, total_weight = _results(input, target, reduction, dtype)
    _onehot.nll_loss(
        input,
        target,
        loss,
        total_weight=total_weight,
        weight=weight,
        token_weight=token_weight,
        denominator=denominator,
        reduction=reduction,
        ignore_index=ignore_index,
        zero_if_empty=zero_if_empty,
        class_axis=class_axis,
    )
    if denominator is not None and reduction == "mean":
        total_weight.copy_(denominator.reshape(()))  # what the backward divides by
    return loss, total_weight


def _fake(input: Tensor, target: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    return _results(input, target, options[3], options[7])


def _results(input: Tensor, target: Tensor, reduction: str, dtype: torch.dtype | None) -> tuple[Tensor, Tensor]:
    dtype = dtype or input.dtype
    loss = input.new_empty(target.shape if reduction == "none" else (), dtype=dtype)
    # The sum of weights is not rounded to 16 bits: gradients are divided by it.
    return loss, input.new_empty((), dtype=torch.float64 if dtype == torch.float64 else torch.float32)


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    input, target, weight, token_weight, _, ctx.reduction, ctx.ignore_index, _, ctx.class_axis, _ = inputs
    ctx.shape, ctx.dtype = input.shape, input.dtype
    loss, total_weight = output
    ctx.mark_non_differentiable(total_weight)
    ctx.save_for_backward(target, weight, token_weight, total_weight)


def _backward(ctx: Any, grad: Tensor, _: Any) -> Any:
    target, weight, token_weight, total_weight = ctx.saved_tensors
    input_grad = _backward_op(
        grad,
        target,
        weight,
        token_weight,
        total_weight,
        ctx.shape,
        ctx.dtype,
        ctx.reduction,
        ctx.ignore_index,
        ctx.class_axis,
    )
    return input_grad, *(None,) * 9


def _compute_backward(
    grad: Tensor,
    target: Tensor,
    weight: Tensor | None,
    token_weight: Tensor | None,
    total_weight: Tensor,
    shape: list[int],
    dtype: torch.dtype,
    reduction: str,
    ignore_index: int,
    class_axis: int,
) -> Tensor:
    out = grad.new_empty(shape, dtype=dtype)
    if grad.dtype not in (dtype, torch.float32):
        grad = grad.float()
    _onehot.nll_loss_backward(
        grad,
        target,
        out,
        total_weight=total_weight,
        weight=weight,
        token_weight=token_weight,
        reduction=reduction,
        ignore_index=ignore_index,
        class_axis=class_axis,
    )
    return out


def _setup_context_twice(ctx: Any, inputs: Any, output: Any) -> None:
    grad, target, weight, token_weight, total_weight, _, _, ctx.reduction, ctx.ignore_index, ctx.class_axis = inputs
    ctx.dtype = grad.dtype
    ctx.save_for_backward(target, weight, token_weight, total_weight)


def _backward_twice(ctx: Any, grad: Tensor) -> Any:
    """The gradient is linear in that of the loss: back goes the loss itself, of ``grad`` for log-probabilities."""
    target, weight, token_weight, total_weight = ctx.saved_tensors
    # D is given, and the gradient is 0 where nothing counts: so is this, whatever D is then.
    options = (ctx.reduction, ctx.ignore_index, True, ctx.class_axis, None)
    loss, _ = _op(grad, target, weight, token_weight, total_weight, *options)
    return loss.to(ctx.dtype), *(None,) * 9


def _vmap(info: Any, in_dims: Any, input: Tensor, target: Tensor, *options: Any) -> Any:
    *tensors, reduction, ignore_index, zero_if_empty, class_axis, dtype = options
    together = reduction == "none" and all(dim is None for dim in in_dims[2:]) and options[1] is None
    if not together or in_dims[0] is None or in_dims[1] is None:
        return one_by_one(_op)(info, in_dims, input, target, *options)
    # Losses of positions do not know of each other: one more axis of positions.
    input, target = input.movedim(in_dims[0], 0), target.movedim(in_dims[1], 0)
    class_axis = 1 if input.dim() == 2 else class_axis + 1 if class_axis >= 0 else class_axis
    loss, total_weight = _op(input, target, *tensors, reduction, ignore_index, zero_if_empty, class_axis, dtype)
    return (loss, total_weight.expand(info.batch_size)), (0, 0)


_op = operator(
    f"nll_loss(Tensor input, Tensor target, {_OPTIONS}, ScalarType? dtype) -> (Tensor, Tensor)",
    _compute,
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
    vmap=_vmap,
)
_backward_op = operator(
    "nll_loss_backward(Tensor grad, Tensor target, Tensor? weight, Tensor? token_weight, Tensor total_weight,"
    f" {SIZE}[] shape, ScalarType dtype, str reduction, int ignore_index, int class_axis) -> Tensor",
    _compute_backward,
    fake=lambda grad, target, weight, token_weight, total_weight, shape, dtype, *_: grad.new_empty(shape, dtype=dtype),
    setup_context=_setup_context_twice,
    backward=_backward_twice,
)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    *,
    token_weight: Tensor | None = None,
    denominator: Tensor | float | None = None,
    zero_if_empty: bool = False,
    class_axis: int = 1,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Negative log likelihood of log-probabilities: torch.nn.functional.nll_loss, and its arguments.

    ``-w_y input[y]`` for each position, y its target; ``mean`` divides the sum by that of the w_y. Sums are in float64 and
    rounded once; bits do not depend on the number of threads.

    Args:
        input: log-probabilities, float32, float64, float16 or bfloat16: (C,), (N, C) or (N, C, d1, ...).
        target: int64, int32, int16, int8 or uint8, each in [0, C) or ``ignore_index``: (), (N,) or (N, d1, ...).
        weight: (C,), class weights, dtype of input or float32.
        ignore_index: a target whose position does not count. Any value.
        reduction: "none", "mean" or "sum". (size_average and reduce are its old names.)
        token_weight: shape of target, a weight for each position, dtype of input or float32.
        denominator: replaces the divisor of mean; one element.
        zero_if_empty: mean is 0 instead of NaN where no position counts.
        class_axis: the axis of input that has the classes, from the end if negative.
        dtype: of the loss: that of input, the default, or a wider one; float32 within torch.autocast.

    Returns:
        the loss: shape of target for none, else one number.

    Raises:
        IndexError: a target is neither in [0, C) nor ignore_index; the first such position is named.
        ValueError, TypeError: shapes, options and dtypes.

    Memory: nothing but the loss in the forward, the gradient in the backward; input is not kept.
    """
    require_tensors(input=input, target=target)
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    refuse_gradients(weight=weight, token_weight=token_weight)
    if denominator is not None:
        denominator = as_denominator(denominator)
    if dtype is None and autocast_dtype() is not None and input.dtype != torch.float64:
        dtype = torch.float32
    options = (reduction, ignore_index, zero_if_empty, class_axis, dtype)
    return _op(input, target, weight, token_weight, denominator, *options)[0]


def as_denominator(value: Tensor | float) -> Tensor:
    if not isinstance(value, Tensor):
        return torch.tensor(float(value), dtype=torch.float64)
    refuse_gradients(denominator=value)
    return value if value.dtype in (torch.float32, torch.float64) else value.to(torch.float64)


def _legacy_reduction(size_average: bool | None, reduce: bool | None) -> str:
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"
