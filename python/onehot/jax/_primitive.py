"""Functions of the library as primitives of JAX.

Primitives and not jax.custom_vjp, because of vmap inside grad, as in a model written for one example: custom_vjp would make a
gradient of the table, or of the weight, for each example, and add them up. A primitive with a rule for batches makes one call of
all examples, and then has one gradient.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from onehot import _onehot

REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}

# A result that a primitive makes: its name, shape and dtype.
Result = tuple[str, tuple[int, ...], np.dtype]
Rule = Callable[..., tuple[Sequence[Any], Sequence[int | None]]]


def reduction_number(reduction: Any) -> int:
    if reduction not in REDUCTIONS:
        raise ValueError(f'reduction: must be "none", "mean" or "sum", is {reduction!r}')
    return REDUCTIONS[reduction]


def integer(name: str, value: Any) -> int:
    try:
        result = operator.index(value)
    except TypeError as error:
        raise _refusal(name, "an integer", value, error) from error
    if not -(1 << 63) <= result < 1 << 63:
        raise ValueError(f"{name}: must fit 64 bits, is {result}")
    return result


def number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise _refusal(name, "a number", value, error) from error


def _refusal(name: str, rule: str, value: Any, error: Exception) -> Exception:
    # JAX has sentences of its own about values that are only known later.
    return error if isinstance(value, jax.core.Tracer) else TypeError(f"{name}: must be {rule}, is {value!r}")


def integers(name: str, value: Any, values: jax.Array, axis: int, ignored: int | None = None) -> tuple[jax.Array, Any]:
    """Indices or targets of that axis of values as an array of JAX, and what number is ignored in it.

    Without jax_enable_x64 JAX takes the low 32 bits of a number; one that has more is refused here, and named as the library
    names the first that is out of range. Ignored ones become -1: the others are in range then.
    """
    numbers, arrays = jax.tree.leaves(value), (np.ndarray, np.generic)
    given = np.asarray(value) if numbers and all(isinstance(n, (int, *arrays)) for n in numbers) else None
    if given is not None and given.dtype == np.float64 and all(isinstance(n, (int, np.integer)) for n in numbers):
        given = np.asarray(value, object)  # small and very large ones in one list
    # A list of Python's numbers makes such arrays where they fit no int64.
    kinds = (np.int64,) if isinstance(value, arrays) else (np.int64, np.uint64, object)
    if jax.dtypes.canonicalize_dtype(np.int64) == np.int64 or given is None or given.dtype not in kinds:
        return jnp.asarray(value), ignored
    narrow = np.iinfo(np.int32)
    unfit = np.asarray((given < narrow.min) | (given > narrow.max))
    if not unfit.any() or not -values.ndim <= axis < values.ndim:  # the latter is refused with a sentence of its own
        return jnp.asarray(np.where(unfit, 0, given).astype(np.int32)), ignored
    extent = min(values.shape[axis], narrow.max + 1)
    counts = np.asarray(True if ignored is None else given != ignored)
    bad = np.argwhere(counts & ((given < 0) | (given >= extent)))
    if len(bad):
        raise IndexError(f"{_place(name, bad[0], given.shape)} = {given[tuple(bad[0])]} is outside [0, {extent})")
    return jnp.asarray(np.where(unfit, -1, given).astype(np.int32)), -1


def _place(name: str, index: np.ndarray, shape: tuple[int, ...]) -> str:
    if not shape:
        return f"{name}[0]"
    position = f" (position {np.ravel_multi_index(tuple(index), shape)})" if len(shape) > 1 else ""
    return f"{name}[{', '.join(map(str, index))}]{position}"


def real(value: Any) -> jax.Array | None:
    """An optional argument that is no integer."""
    return None if value is None else jnp.asarray(float(value) if isinstance(value, int) else value)


def divisor(value: Any) -> jax.Array | None:
    """An optional number. What counts positions is an integer."""
    if value is None or not jnp.issubdtype(jnp.result_type(value), jnp.integer):
        return real(value)
    return jnp.asarray(value, float)


def statistics_dtype(dtype: Any) -> np.dtype:
    """Of sums, whatever the dtype of the values."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def loss_dtype(dtype: Any, input: jax.Array) -> np.dtype:
    result = np.dtype(input.dtype if dtype is None else dtype)
    if result == np.float64 != jax.dtypes.canonicalize_dtype(np.float64):
        raise TypeError("dtype: must be at most float32 without jax_enable_x64, is float64")
    return result


class Operator:
    """A function of the library. Arguments and results have names; those that are None are left out.

    ``reverse_only`` says why there is no such function: the derivative of another one, which can only be transposed.
    """

    def __init__(self, name: str, reverse_only: str = "") -> None:
        self._name = name
        self._reverse_only = reverse_only
        self.primitive = Primitive(f"onehot_{name}")
        self.primitive.multiple_results = True
        self.primitive.def_impl(self._run)
        self._compiled = jax.jit(self._bind, static_argnames=("operands", "results", "attributes"))
        self.primitive.def_abstract_eval(self._abstract)
        # The CPU's only: elsewhere JAX says that there is no rule for its platform.
        mlir.register_lowering(self.primitive, mlir.lower_fun(self._call, multiple_results=True), platform="cpu")
        batching.primitive_batchers[self.primitive] = functools.partial(_one_by_one, self.primitive)

    def __call__(
        self, operands: Mapping[str, Any], results: Sequence[Result], attributes: Mapping[str, int | float | None]
    ) -> list[jax.Array]:
        given = {name: value for name, value in operands.items() if value is not None}
        return self.primitive.bind(
            *given.values(),
            operands=tuple(given),
            results=tuple((name, tuple(shape), np.dtype(dtype)) for name, shape, dtype in results),
            attributes=tuple((name, value) for name, value in attributes.items() if value is not None),
        )

    def batch(self, rule: Rule) -> Rule:
        """Decorates a rule for batches, called with the axis length and operands by name, each with a batch axis or None.

        It returns results and their batch axes, or None where examples have to go one by one.
        """

        def batcher(args, dims, *, operands, **params):
            size = next(arg.shape[dim] for arg, dim in zip(args, dims) if dim is not None)
            front = [arg if dim is None else jnp.moveaxis(arg, dim, 0) for arg, dim in zip(args, dims)]
            batched = {name for name, dim in zip(operands, dims) if dim is not None}
            done = rule(size, dict(zip(operands, front)), batched, **params)
            return _one_by_one(self.primitive, args, dims, operands=operands, **params) if done is None else done

        batching.primitive_batchers[self.primitive] = batcher
        return rule

    def derivative(self, rule: Callable[..., tuple[Sequence[Any], Sequence[Any]]]) -> Callable[..., Any]:
        """Decorates a rule for the derivative, called with primals and tangents by name; a tangent that is zero is left out."""

        def jvp(primals, tangents, *, operands, **params):
            moving = {name: t for name, t in zip(operands, tangents) if type(t) is not ad.Zero}
            outs, out_tangents = rule(dict(zip(operands, primals)), moving, **params)
            zeros = [ad.Zero(jax.core.ShapedArray(out.shape, out.dtype)) for out in outs]
            return outs, [zero if t is None else t for zero, t in zip(zeros, out_tangents)]

        ad.primitive_jvps[self.primitive] = jvp
        return rule

    def transpose(self, rule: Callable[..., Mapping[str, Any]]) -> Callable[..., Any]:
        """Decorates a rule for the transpose: from the gradients of results to those of the operands that are linear.

        It is called with these gradients, None where one is zero; the operands that are known, by name; and the shapes and
        dtypes of the others.
        """

        def transposed(cotangents, *args, operands, **params):
            linear = {name: arg.aval for name, arg in zip(operands, args) if ad.is_undefined_primal(arg)}
            known = {name: arg for name, arg in zip(operands, args) if name not in linear}
            given = [None if type(c) is ad.Zero else c for c in cotangents]
            if all(c is None for c in given):
                return [ad.Zero(arg.aval) if ad.is_undefined_primal(arg) else None for arg in args]
            gradients = rule(given, known, linear, **params)
            return [gradients.get(name) for name in operands]

        ad.primitive_transposes[self.primitive] = transposed
        return rule

    def check(self, tensors: Sequence[Result], attributes: Mapping[str, int | float | None]) -> int:
        """Raises what is wrong with a call; returns the bytes of working memory it takes."""
        given = {name: value for name, value in attributes.items() if value is not None}
        return _onehot.xla_check(self._name, [(name, np.dtype(d).name, shape) for name, shape, d in tensors], given)

    def _bind(self, *args, **params):
        return self.primitive.bind(*args, **params)

    def _run(self, *args, **params):
        if not jax.config.jax_disable_jit:
            return self._compiled(*args, **params)
        self._abstract(*args, **params)  # for its errors; what is compiled would come back here
        return self._call(*args, **params)

    def _abstract(self, *avals, operands, results, attributes):
        if any(_varies(aval) for aval in avals):
            raise NotImplementedError(f"onehot_{self._name}: jax.shard_map must have check_vma=False, has True")
        if not self._reverse_only:
            tensors = [(name, aval.shape, aval.dtype) for name, aval in zip(operands, avals)]
            self.check(tensors + list(results), dict(attributes))
        return [jax.core.ShapedArray(shape, dtype) for _, shape, dtype in results]

    def _call(self, *args, operands, results, attributes):
        if self._reverse_only:
            raise NotImplementedError(self._reverse_only)
        call = jax.ffi.ffi_call(
            f"onehot_{self._name}",
            [jax.ShapeDtypeStruct(shape, dtype) for _, shape, dtype in results],
        )
        # Attributes of XLA have the types of NumPy's scalars.
        typed = {k: np.float64(v) if isinstance(v, float) else np.int64(v) for k, v in attributes}
        names = {"operands": operands, "results": [name for name, _, _ in results]}
        return call(*args, **{key: "".join(f"{name}," for name in value) for key, value in names.items()}, **typed)


def _varies(aval: Any) -> bool:
    """Over the axes of a mesh, where shard_map follows that: results would pass for equal on all devices."""
    return bool(getattr(aval, "vma", ()) or getattr(getattr(aval, "mat", None), "varying", ()))


def _one_by_one(primitive, args, dims, **params):
    """Examples one after the other: the bits of calls of their own."""
    batched = [jnp.moveaxis(arg, dim, 0) for arg, dim in zip(args, dims) if dim is not None]

    def one(slices):
        rest = iter(slices)
        return primitive.bind(*(arg if dim is None else next(rest) for arg, dim in zip(args, dims)), **params)

    outs = jax.lax.map(one, batched)
    return outs, [0] * len(outs)
