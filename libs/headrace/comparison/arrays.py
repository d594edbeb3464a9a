"""Tensors as numpy's arrays."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headrace.domain import Datatype, Tensor
from headrace.errors import RequestError
from headrace.wire import unpack_bytes

__all__ = ["array_of"]

_NUMPY: Final = {
    Datatype.BOOL: np.dtype(np.bool_),
    Datatype.UINT8: np.dtype("<u1"),
    Datatype.UINT16: np.dtype("<u2"),
    Datatype.UINT32: np.dtype("<u4"),
    Datatype.UINT64: np.dtype("<u8"),
    Datatype.INT8: np.dtype("<i1"),
    Datatype.INT16: np.dtype("<i2"),
    Datatype.INT32: np.dtype("<i4"),
    Datatype.INT64: np.dtype("<i8"),
    Datatype.FP16: np.dtype("<f2"),
    Datatype.FP32: np.dtype("<f4"),
    Datatype.FP64: np.dtype("<f8"),
}


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
            flat = np.frombuffer(tensor.data, _NUMPY[tensor.datatype])
    try:
        return flat.reshape(tensor.shape)
    except ValueError as error:
        raise RequestError(f"tensor '{tensor.name}': {error}") from error
