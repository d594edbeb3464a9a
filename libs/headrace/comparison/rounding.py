"""How far two answers to one request may be apart.

A request that runs twice may run in batches of different size, where a kernel adds the
same numbers in another order. Such answers differ in their last bits and are equal to
whoever asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headrace.comparison.arrays import array_of
from headrace.domain import Datatype, Tensor

__all__ = ["Tolerance", "are_equal_but_for_rounding", "rounding_of"]


class Tolerance(NamedTuple):
    """Two numbers agree when they are no further apart than ``absolute`` and
    ``relative`` times the largest magnitude beside them, together."""

    absolute: float = 0.0
    relative: float = 0.0


_ROUNDING = {
    Datatype.FP64: Tolerance(relative=1e-9),
    Datatype.FP32: Tolerance(relative=1e-4),
    Datatype.FP16: Tolerance(relative=1e-2),
    Datatype.BF16: Tolerance(relative=5e-2),
}
_EXACT = Tolerance()


def rounding_of(datatype: Datatype) -> Tolerance:
    """What rounding in another order may do to it: nothing to whole numbers."""
    return _ROUNDING.get(datatype, _EXACT)


def are_equal_but_for_rounding(
    first: Sequence[Tensor], second: Sequence[Tensor]
) -> bool:
    """Names, datatypes, shapes and all that is no floating point number are equal;
    numbers agree relative to the largest of their tensor."""
    return len(first) == len(second) and all(
        _agree(one, other) for one, other in zip(first, second, strict=True)
    )


def _agree(one: Tensor, other: Tensor) -> bool:
    described = (one.name, one.datatype, one.shape)
    if described != (other.name, other.datatype, other.shape):
        return False
    if bytes(one.data) == bytes(other.data):
        return True
    allowed = rounding_of(one.datatype)
    if allowed == _EXACT or len(one.data) != len(other.data):
        return False
    left, right = (array_of(each).astype(np.float64) for each in (one, other))
    finite = left[np.isfinite(left)]
    largest = float(np.abs(finite).max()) if finite.size else 0.0
    return np.allclose(
        left, right, rtol=0, atol=allowed.relative * largest, equal_nan=True
    )
