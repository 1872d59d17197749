"""What the functions of onehot.numpy have in common: arguments in, outputs made, results out.

A call is to take no more than two microseconds beside the work, so what most calls do not need is looked at last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy import asarray, dtype, float32, float64, int64, ndarray

FLOAT32, FLOAT64, INT64 = dtype(float32), dtype(float64), dtype(int64)

# Of statistics of a position, by the dtype of the logits: float32 for all others.
_STATISTICS = {FLOAT64: FLOAT64}


def statistics_dtype(logits: ndarray) -> dtype:
    return _STATISTICS.get(logits.dtype, FLOAT32)


def maybe(value: Any, logits: ndarray) -> Any:
    """An array or a number as it is, a list in a dtype that goes with the logits, None as None."""
    if value is None or type(value) is ndarray or type(value) is float:
        return value
    return asarray(value, statistics_dtype(logits) if isinstance(value, (list, tuple)) else None)


def collect(outputs: str | Sequence[str], out: Any, new: Callable[[str], ndarray]) -> dict[str, ndarray]:
    """The arrays that a call writes, by name: those of ``out``, and new ones for the other outputs that are asked for.

    Names that an operator does not have are left for the module to refuse.
    """
    if out is None:
        return {outputs: new(outputs)} if type(outputs) is str else {name: new(name) for name in outputs}
    asked = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    if not isinstance(out, Mapping):
        if len(asked) != 1:
            raise TypeError(f"out: must be a dict of arrays by name where outputs are several, is {type(out).__name__}")
        return {asked[0]: out}
    for name in out:
        if name not in asked:
            raise ValueError(f"out: must have outputs that are asked for, {', '.join(asked)}, has {name!r}")
    arrays = {}
    for name in asked:
        array = out.get(name)
        arrays[name] = new(name) if array is None else array
    return arrays


def result(outputs: str | Sequence[str], out: Any, arrays: dict[str, ndarray]) -> Any:
    """What a call returns: the array of a single name, else the dict of them. A new one without axes becomes a scalar."""
    if out is None:
        for name, array in arrays.items():
            if array.ndim == 0:
                arrays[name] = array[()]
    elif isinstance(out, Mapping):
        for name, array in arrays.items():
            if out.get(name) is None and array.ndim == 0:
                arrays[name] = array[()]
    return arrays[outputs] if isinstance(outputs, str) else arrays
