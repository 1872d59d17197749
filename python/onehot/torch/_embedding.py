from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onehot import _onehot
from onehot.torch._library import SIZE, check_main_grad, one_by_one, operator, require_tensors

_INDICES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _compute(
    weight: Tensor, indices: Tensor, padding_idx: int | None, scale_grad_by_freq: bool, main_grad: Any
) -> Tensor:
    out = weight.new_empty((*indices.shape, *weight.shape[1:]))
    _onehot.embedding(weight, indices, out)
    return out


def _fake(weight: Tensor, indices: Tensor, padding_idx: int | None, scale_grad_by_freq: bool, main_grad: Any) -> Tensor:
    return weight.new_empty((*indices.shape, *weight.shape[1:]))


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    weight, indices, ctx.padding_idx, ctx.scale_grad_by_freq, main_grad = inputs
    ctx.num_weights = weight.shape[0]
    # Not save_for_backward: the buffer changes between forward and backward when weights are tied, and may.
    ctx.main_grad = main_grad
    ctx.save_for_backward(indices)


def _backward(ctx: Any, grad: Tensor) -> Any:
    (indices,) = ctx.saved_tensors
    weight_grad = None
    if ctx.needs_input_grad[0]:
        if ctx.main_grad is not None:
            _add_op(ctx.main_grad, grad, indices, ctx.padding_idx, ctx.scale_grad_by_freq)
        else:
            weight_grad = _backward_op(grad, indices, ctx.num_weights, ctx.padding_idx, ctx.scale_grad_by_freq)
    return weight_grad, None, None, None, None


def _vmap(info: Any, in_dims: Any, weight: Tensor, indices: Tensor, *options: Any) -> Any:
    # Indices of one table may have any shape; tables that differ are taken one after the other.
    if in_dims[0] is None:
        return _op(weight, indices.movedim(in_dims[1], 0), *options), 0
    return one_by_one(_op)(info, in_dims, weight, indices, *options)


def _compute_backward(
    grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int | None, scale_grad_by_freq: bool
) -> Tensor:
    out = grad.new_empty((num_weights, *grad.shape[-1:]))
    _onehot.embedding_backward(grad, indices, out, padding_idx=padding_idx, scale_grad_by_freq=scale_grad_by_freq)
    return out


def _fake_backward(
    grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int | None, scale_grad_by_freq: bool
) -> Tensor:
    return grad.new_empty((num_weights, *grad.shape[-1:]))


def _setup_context_twice(ctx: Any, inputs: Any, output: Any) -> None:
    grad, indices, ctx.num_weights, ctx.padding_idx, ctx.scale_grad_by_freq = inputs
    ctx.save_for_backward(indices)


def _backward_twice(ctx: Any, grad: Tensor) -> Any:
    """The gradient of a table is linear in that of the rows: back goes the forward, with the same zeros and divisors."""
    (indices,) = ctx.saved_tensors
    rows = _op(grad, indices, None, False, None)
    indices = indices.long()
    if ctx.scale_grad_by_freq:
        rows = rows / torch.bincount(indices.flatten(), minlength=ctx.num_weights)[indices].unsqueeze(-1)
    if ctx.padding_idx is not None:
        rows = rows.masked_fill((indices == ctx.padding_idx % ctx.num_weights).unsqueeze(-1), 0)
    return rows.to(grad.dtype), None, None, None, None


def _add(out: Tensor, grad: Tensor, indices: Tensor, padding_idx: int | None, scale_grad_by_freq: bool) -> None:
    _onehot.embedding_backward(
        grad, indices, out, padding_idx=padding_idx, scale_grad_by_freq=scale_grad_by_freq, accumulate=True
    )


_op = operator(
    "embedding(Tensor weight, Tensor indices, int? padding_idx, bool scale_grad_by_freq, Tensor? main_grad) -> Tensor",
    _compute,
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
    vmap=_vmap,
)
_backward_op = operator(
    f"embedding_backward(Tensor grad, Tensor indices, {SIZE} num_weights, int? padding_idx, bool scale_grad_by_freq)"
    " -> Tensor",
    _compute_backward,
    fake=_fake_backward,
    setup_context=_setup_context_twice,
    backward=_backward_twice,
)
_add_op = operator(
    "embedding_backward_(Tensor(a!) out, Tensor grad, Tensor indices, int? padding_idx, bool scale_grad_by_freq) -> ()",
    _add,
    fake=lambda out, grad, indices, padding_idx, scale_grad_by_freq: None,
)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
    *,
    main_grad: Tensor | None = None,
) -> Tensor:
    """``weight[input]``, with the exact gradient of the table: torch.nn.functional.embedding, and its arguments.

    The gradient of row v is the sum of the gradients of the positions that name it, in float32 also for 16-bit tables and
    rounded once; its bits do not depend on the number of threads.

    Args:
        input: (...), int64, int32, int16, int8 or uint8, each in [0, V).
        weight: (V, D), any dtype for the forward; float32, float64, float16 or bfloat16 with a gradient.
        padding_idx: a row whose gradient is zero, from the end if negative.
        max_norm: rows that are named and have a larger norm are scaled to it, in place, before all else.
        norm_type: the p of that norm.
        scale_grad_by_freq: divides the gradient of a row by how often it is named.
        sparse: must be False; the gradient is dense.
        main_grad: (V, D), float32 or the dtype of weight. The gradient is added to it, in the backward, instead of being
            returned to autograd: weight.grad stays as it is. One buffer may serve several uses of a table, and any number
            of micro-batches.

    Returns:
        (..., D), dtype of weight.

    Raises:
        IndexError: an index is outside [0, V); the first such position is named.
        ValueError, TypeError: shapes, options and dtypes.

    Memory: the result in the forward; the gradient, and 8 bytes for each position, in the backward.
    """
    require_tensors(input=input, weight=weight)
    if input.dtype not in _INDICES:
        raise TypeError(f"input: its dtype must be one of {', '.join(map(str, _INDICES))}, is {input.dtype}")
    if sparse:
        raise ValueError("sparse: must be False, since gradients are dense; use torch.nn.functional.embedding")
    if padding_idx is not None and not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise ValueError(
            f"padding_idx: must be in [-{weight.shape[0]}, {weight.shape[0]}), the rows of weight, is {padding_idx}"
        )
    if main_grad is not None:
        check_main_grad(main_grad, weight)
    if max_norm is not None:
        with torch.no_grad():
            _op(weight, input, None, False, None)  # an index out of range has its sentence before a row is scaled
            torch.embedding_renorm_(weight.detach(), input.long().contiguous(), max_norm, norm_type)
    return _op(weight, input, padding_idx, scale_grad_by_freq, main_grad)
