from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from onehot.jax._primitive import Operator, integer, integers

_forward = Operator("embedding")
_backward = Operator("embedding_backward")
# With these two options the gradient is not the transpose of the function.
_tangent = Operator(
    "embedding_tangent",
    reverse_only="embedding: there is no forward-mode derivative with padding_idx or scale_grad_by_freq",
)


def embedding(
    weight: ArrayLike, indices: ArrayLike, *, padding_idx: int | None = None, scale_grad_by_freq: bool = False
) -> jax.Array:
    """Rows of a table: ``out[i, :] = weight[indices[i], :]``, the product ``onehot(indices) @ weight``.

    Its gradient is ``dweight[v, :] = s_v * sum of dout[i, :] where indices[i] == v``. 16-bit gradients are summed in float32
    and rounded once; sums have one order: the same bits for any number of threads and any instruction set.

    Args:
        weight: (V, D), any dtype; differentiable.
        indices: (...), integers, bool or floating numbers (truncated toward zero), each in [0, V).
        padding_idx: a row whose gradient is zero, from the end if negative. It is gathered as any other.
        scale_grad_by_freq: divides the gradient of a row by how often it is named: s_v, else 1.

    Returns:
        (..., D), dtype of weight; elements are copied bit for bit.

    Raises:
        TypeError, ValueError: a dtype, a shape or padding_idx, when traced.
        IndexError: without jax_enable_x64, an index that needs more than 32 bits, in an array of NumPy or a list.
        jax.errors.JaxRuntimeError: an index is outside [0, V), when run; the first such position is named.

    Forward and backward read and write each element once; the backward writes the whole (V, D) and works in memory
    proportional to the number of indices. A vmap over indices is one call, and so is its gradient; a vmap over tables, or a
    vmap of the gradient, goes table by table. The gradient can itself be differentiated without padding_idx and
    scale_grad_by_freq; so can the function in forward mode.
    """
    weight = jnp.asarray(weight)
    indices, _ = integers("indices", indices, weight, 0)
    attributes = {
        "padding_idx": None if padding_idx is None else integer("padding_idx", padding_idx),
        "scale_grad_by_freq": int(bool(scale_grad_by_freq)),
    }
    rows = _gather(_forward, weight, indices, attributes)
    if padding_idx is not None:  # what only the gradient would find, before it is asked for
        grad, out = ("grad", rows.shape, jnp.float32), ("out", weight.shape, jnp.float32)
        _backward.check([grad, ("indices", indices.shape, indices.dtype), out], attributes)
    return rows


def _gather(function: Operator, weight: Any, indices: Any, attributes: dict[str, int | None]) -> Any:
    out = ("out", indices.shape + weight.shape[1:], weight.dtype)
    return function({"weight": weight, "indices": indices}, [out], attributes)[0]


def _scatter(grad: Any, indices: Any, rows: int, attributes: dict[str, int | None]) -> Any:
    out = ("out", (rows,) + grad.shape[indices.ndim :], grad.dtype)
    return _backward({"grad": grad, "indices": indices}, [out], attributes)[0]


def _is_transpose(attributes) -> bool:
    attributes = dict(attributes)
    return attributes.get("padding_idx") is None and not attributes["scale_grad_by_freq"]


def _batch(function: Operator) -> None:
    @function.batch
    def rule(size, operands, batched, *, results, attributes):
        if "weight" in batched:
            return None
        return [_gather(function, operands["weight"], operands["indices"], dict(attributes))], [0]


_batch(_forward)
_batch(_tangent)


@_forward.derivative
def _derivative(operands, moving, *, results, attributes):
    indices, attributes = operands["indices"], dict(attributes)
    linear = _forward if _is_transpose(attributes) else _tangent
    return [_gather(_forward, operands["weight"], indices, attributes)], [
        _gather(linear, moving["weight"], indices, attributes) if "weight" in moving else None
    ]


def _transpose(cotangents, known, linear, *, results, attributes):
    rows = linear["weight"].shape[0]
    return {"weight": _scatter(cotangents[0], known["indices"], rows, dict(attributes))}


_forward.transpose(_transpose)
_tangent.transpose(_transpose)


@_backward.derivative
def _derivative_backward(operands, moving, *, results, attributes):
    ((_, (rows, _), _),) = results
    indices, attributes = operands["indices"], dict(attributes)
    return [_scatter(operands["grad"], indices, rows, attributes)], [
        _scatter(moving["grad"], indices, rows, attributes) if "grad" in moving else None
    ]


@_backward.transpose
def _transpose_backward(cotangents, known, linear, *, results, attributes):
    if not _is_transpose(attributes):
        raise NotImplementedError(
            "embedding: its gradient can be differentiated only without padding_idx and scale_grad_by_freq"
        )
    return {"grad": _gather(_forward, cotangents[0], known["indices"], dict(attributes))}
