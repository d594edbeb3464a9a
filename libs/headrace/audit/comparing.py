"""Whether two answers to one request say the same.

A request that runs twice may run in batches of different size, where a kernel adds the
same numbers in another order. Such answers differ in their last bits and are equal to
whoever asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.domain import Datatype, Tensor

__all__ = ["are_equal_but_for_rounding"]

_RELATIVE = {Datatype.FP64: 1e-9, Datatype.FP32: 1e-4, Datatype.FP16: 1e-2}
_BF16_RELATIVE = 5e-2
_NUMPY = {Datatype.FP64: "<f8", Datatype.FP32: "<f4", Datatype.FP16: "<f2"}


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
    relative = _RELATIVE.get(one.datatype)
    if one.datatype is Datatype.BF16:
        relative = _BF16_RELATIVE
    if relative is None or len(one.data) != len(other.data):
        return False
    left, right = _numbers(one), _numbers(other)
    finite = left[np.isfinite(left)]
    largest = float(np.abs(finite).max()) if finite.size else 0.0
    return np.allclose(left, right, rtol=0, atol=relative * largest, equal_nan=True)


def _numbers(tensor: Tensor) -> npt.NDArray[Any]:
    if tensor.datatype is Datatype.BF16:
        bits = np.frombuffer(tensor.data, "<u2").astype("<u4") << 16
        return bits.view("<f4").astype(np.float64)
    numbers = np.frombuffer(tensor.data, _NUMPY[tensor.datatype])
    return numbers.astype(np.float64)
