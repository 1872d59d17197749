from __future__ import annotations

import numpy as np
from numpy import asarray, empty
from numpy.typing import ArrayLike, DTypeLike

from onehot import _onehot


def embedding(weight: ArrayLike, indices: ArrayLike, *, out: np.ndarray | None = None) -> np.ndarray:
    """Rows of a table: ``out[i, :] = weight[indices[i], :]``, the product ``onehot(indices) @ weight``.

    Args:
        weight: (V, D), any dtype.
        indices: (...), integers, bool or floating numbers (truncated toward zero), each in [0, V).
        out: (..., D), dtype of weight.

    Returns:
        (..., D), dtype of weight; elements are copied bit for bit.

    Raises:
        IndexError: an index is outside [0, V); the first such position is named.
    """
    weight, indices = asarray(weight), asarray(indices)
    if out is None:
        out = empty(indices.shape + weight.shape[1:], weight.dtype)
    _onehot.embedding(weight, indices, out)
    return out


def embedding_backward(
    grad: ArrayLike,
    indices: ArrayLike,
    num_weights: int | None = None,
    *,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
    accumulate: bool = False,
    counts: np.ndarray | None = None,
    dtype: DTypeLike | None = None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """The gradient of a table: ``out[v, :] = s_v * sum of grad[i, :] where indices[i] == v``, ``onehot(indices).T @ grad``.

    16-bit gradients are summed in float32 and rounded once. Sums have one order: the same bits for any number of threads
    and any instruction set.

    Args:
        grad: (..., D), float32, float64, float16 or bfloat16.
        indices: (...), integers, bool or floating numbers, each in [0, V).
        num_weights: V, the rows of the table. Without it, those of ``out``.
        padding_idx: a row whose gradient is zero, from the end if negative.
        scale_grad_by_freq: divides a row by how often it is named.
        accumulate: adds to ``out``, which has to be given; rows never named keep their bits.
        counts: (V,) int64, written: how often each row is named.
        dtype: of a new array: that of grad, the default, or float32 for 16-bit gradients.
        out: (V, D), of either dtype.

    Returns:
        (V, D); ``out`` if that was given.

    Raises:
        IndexError: an index is outside [0, V); the first such position is named, and nothing is written.
    """
    grad, indices = asarray(grad), asarray(indices)
    if out is None:
        if num_weights is None:
            raise ValueError("num_weights: must be given where out is not")
        if accumulate:
            raise ValueError("accumulate: needs out, the array to add to")
        if num_weights < 0:
            raise ValueError(f"num_weights: must not be negative, is {num_weights}")
        out = empty((num_weights, grad.shape[-1] if grad.ndim else 1), grad.dtype if dtype is None else dtype)
    elif num_weights is not None and np.shape(out)[:1] != (num_weights,):
        raise ValueError(f"num_weights: must be the rows of out, whose shape is {np.shape(out)}, is {num_weights}")
    _onehot.embedding_backward(
        grad,
        indices,
        out,
        counts=counts,
        padding_idx=padding_idx,
        scale_grad_by_freq=scale_grad_by_freq,
        accumulate=accumulate,
    )
    return out
