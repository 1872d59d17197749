"""What the functions of onehot.numpy have in common: arguments in, outputs made, results out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# Statistics of a position, whatever the dtype of the logits; float64 for float64.
_STATISTICS = {np.dtype(np.float64): np.dtype(np.float64)}


def statistics_dtype(dtype: np.dtype) -> np.dtype:
    return _STATISTICS.get(dtype, np.dtype(np.float32))


def number(value: Any) -> Any:
    """A number of Python as an array; what is an array stays as it is."""
    return np.asarray(value, np.float64) if isinstance(value, (int, float)) else value


def maybe(value: Any) -> np.ndarray | None:
    return None if value is None else np.asarray(value)


def check_apart(outputs: Mapping[str, np.ndarray], inputs: Mapping[str, Any]) -> None:
    """ValueError for memory that is written and read, or written twice. For outputs that the caller gave."""
    seen: list[tuple[str, Any]] = [(name, array) for name, array in inputs.items() if isinstance(array, np.ndarray)]
    for name, array in outputs.items():
        for other, memory in seen:
            # The exact question can take exponential time; where its first steps do not answer, bounds have to do.
            if np.may_share_memory(array, memory) and _share(array, memory):
                raise ValueError(f"{name}: must not overlap {other}, does")
        seen.append((name, array))


def _share(a: np.ndarray, b: np.ndarray) -> bool:
    try:
        return np.shares_memory(a, b, max_work=100_000)
    except np.exceptions.TooHardError if hasattr(np, "exceptions") else np.TooHardError:
        return True


class Outputs:
    """The outputs of one call, by name: those that are asked for, in arrays of the caller or new ones.

    ``outputs`` is what the caller asked for, a name or several; ``out`` an array, or a dict of arrays by name; ``makers``
    says, for every name there is, the shape and dtype of a new one.
    """

    def __init__(
        self,
        outputs: str | Sequence[str],
        out: np.ndarray | Mapping[str, np.ndarray] | None,
        makers: Mapping[str, tuple[tuple[int, ...], np.dtype]],
        inputs: Mapping[str, Any],
    ) -> None:
        self._single = isinstance(outputs, str)
        names = (outputs,) if self._single else tuple(outputs)
        given: Mapping[str, np.ndarray] = {}
        if out is not None:
            if isinstance(out, Mapping):
                given = out
            elif len(names) == 1:
                given = {names[0]: out}
            else:
                raise TypeError("out: must be a dict of arrays where outputs names several, is one array")
            for name in given:
                if name not in names:
                    raise ValueError(f"out: {name!r} is not among the outputs asked for, {', '.join(names)}")
        self.arrays: dict[str, np.ndarray] = {}
        for name in names:
            if name not in makers:
                raise ValueError(f"outputs: {name!r} is none of {', '.join(makers)}")
            array = given.get(name)
            self.arrays[name] = np.empty(*makers[name]) if array is None else array
        self._given = given
        if given:
            check_apart(given, inputs)

    def result(self) -> Any:
        # A scalar for what has no axes, as NumPy's functions give, but not in place of the caller's own array.
        arrays = {name: array if name in self._given else array[()] for name, array in self.arrays.items()}
        if self._single:
            (array,) = arrays.values()
            return array
        return arrays
