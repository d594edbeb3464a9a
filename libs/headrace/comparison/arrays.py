"""Tensors as numpy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.domain import Datatype, Tensor
from headrace.errors import RequestError
from headrace.wire import unpack_bytes

__all__ = ["array_of"]


def array_of(tensor: Tensor) -> npt.NDArray[Any]:
    """Its elements in its shape, without a copy where numpy has the datatype: ``BF16``
    becomes float32, ``BYTES`` an array of bytes objects.

    Raises :class:`headrace.errors.RequestError` for contents that do not fill it.
    """
    match tensor.datatype:
        case Datatype.BYTES:
            elements = unpack_bytes(tensor.name, tensor.data)
            flat = np.empty(len(elements), object)
            flat[:] = elements
        case Datatype.BF16:
            flat = (np.frombuffer(tensor.data, "<u2").astype("<u4") << 16).view("<f4")
        case _:
            kind = tensor.datatype.typestr
            assert kind is not None  # to numpy that would be a float64
            flat = np.frombuffer(tensor.data, kind)
    try:
        return flat.reshape(tensor.shape)
    except ValueError as error:
        raise RequestError(f"tensor '{tensor.name}': {error}") from error
