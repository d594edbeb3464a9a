"""Tensors of results as columns: the inverse of :mod:`headrace.jobs.columns`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.domain import (
    BATCH_AXIS_NONE,
    VARIABLE,
    Datatype,
    ServedVersion,
    Tensor,
    TensorSpec,
)
from headrace.jobs.answers import Part
from headrace.jobs.elements import DTYPES
from headrace.wire import unpack_bytes

__all__ = ["OutputColumns", "RowError"]

_NARROW = frozenset({Datatype.FP16, Datatype.BF16})
"""Written as FP32, since few readers know them."""


class RowError(NamedTuple):
    """Why a row has no outputs."""

    reason: str
    text: str


class _Output(NamedTuple):
    spec: TensorSpec
    batch_axis: int
    dims: tuple[int, ...]
    field: pa.Field

    @property
    def is_fixed(self) -> bool:
        return VARIABLE not in self.dims


class OutputColumns:
    """The outputs of ``served`` beside the columns ``taken`` by the input: an output
    whose name is one of them gets ``.out`` behind it."""

    def __init__(self, served: ServedVersion, taken: Sequence[str]) -> None:
        self._outputs = []
        names = set(taken)
        for spec in served.signature.outputs:
            axis = served.batch_axes.get(spec.name, BATCH_AXIS_NONE)
            dims = tuple(
                extent for place, extent in enumerate(spec.shape) if place != axis
            )
            name = spec.name
            while name in names:
                name += ".out"
            names.add(name)
            field = pa.field(name, _kind(spec.datatype, dims))
            self._outputs.append(_Output(spec, axis, dims, field))

    @property
    def fields(self) -> list[pa.Field]:
        return [each.field for each in self._outputs]

    def columns(
        self, parts: Sequence[Part[tuple[Tensor, ...] | RowError]]
    ) -> list[pa.Array]:
        """One column per output with the rows of all parts; null where a row has
        none."""
        rows = sum(part.rows for part in parts)
        lost = np.zeros(rows, np.bool_)
        at = 0
        for part in parts:
            if isinstance(part.answer, RowError):
                lost[at : at + part.rows] = True
            at += part.rows
        absent = lost if lost.any() else None
        return [
            _column(output, number, parts, absent)
            for number, output in enumerate(self._outputs)
        ]


def _column(
    output: _Output,
    number: int,
    parts: Sequence[Part[tuple[Tensor, ...] | RowError]],
    absent: npt.NDArray[np.bool_] | None,
) -> pa.Array:
    pieces: list[bytes | memoryview] = []
    texts: list[bytes] = []
    shapes = []
    size = _row_bytes(output)
    for part in parts:
        if isinstance(part.answer, RowError):
            dims = tuple(0 if dim == VARIABLE else dim for dim in output.dims)
            shapes.append((part.rows, dims))
            if output.spec.datatype is Datatype.BYTES:
                texts += [b""] * (part.rows * prod(dims))
            else:
                pieces.append(bytes(size * part.rows * output.is_fixed))
            continue
        tensor = part.answer[number]
        dims = _row_dims(output, tensor)
        shapes.append((part.rows, dims))
        if output.spec.datatype is Datatype.BYTES:
            count = prod(dims)
            elements = unpack_bytes(tensor.name, _by_rows(output, tensor, part))
            texts += elements[part.skip * count : (part.skip + part.rows) * count]
        else:
            width = prod(dims) * (output.spec.datatype.item_bytes or 1)
            data = _by_rows(output, tensor, part)
            pieces.append(data[part.skip * width : (part.skip + part.rows) * width])
    if output.spec.datatype is Datatype.BYTES:
        values = pa.array([each.decode(errors="replace") for each in texts])
    else:
        values = _values(b"".join(pieces), output.spec.datatype)
    return _nested(values.cast(_element(output.spec.datatype)), output, shapes, absent)


def _by_rows(output: _Output, tensor: Tensor, part: Part[Any]) -> bytes | memoryview:
    """The tensor's contents, one row after the other."""
    axis = output.batch_axis
    if axis == 0 or part.skip + part.rows == 1:
        return tensor.data
    if axis == BATCH_AXIS_NONE:
        # All rows share the value; one with a row of its own came by itself.
        return bytes(tensor.data) * (part.skip + part.rows)
    assert tensor.datatype is not Datatype.BYTES
    array = np.frombuffer(tensor.data, f"V{tensor.datatype.item_bytes}")
    return np.moveaxis(array.reshape(tensor.shape), axis, 0).tobytes()


def _row_dims(output: _Output, tensor: Tensor) -> tuple[int, ...]:
    if output.is_fixed:
        return output.dims
    axis = output.batch_axis
    return tuple(dim for place, dim in enumerate(tensor.shape) if place != axis)


def _row_bytes(output: _Output) -> int:
    if not output.is_fixed:
        return 0
    return prod(output.dims) * (output.spec.datatype.item_bytes or 0)


def _values(raw: bytes, datatype: Datatype) -> pa.Array:
    if datatype is Datatype.BF16:
        wide = np.frombuffer(raw, "<u2").astype("<u4") << 16
        return pa.array(wide.view("<f4"))
    found = np.frombuffer(raw, DTYPES[datatype])
    if datatype is Datatype.BOOL:
        return pa.array(found)
    wide = found.astype("<f4") if datatype is Datatype.FP16 else found
    # pa.array() would load all of numpy.ma, which takes as long as some thousand rows.
    kind = pa.from_numpy_dtype(wide.dtype)
    return pa.Array.from_buffers(kind, len(wide), [None, pa.py_buffer(wide)])


def _nested(
    values: pa.Array,
    output: _Output,
    shapes: Sequence[tuple[int, tuple[int, ...]]],
    absent: npt.NDArray[np.bool_] | None,
) -> pa.Array:
    """Lists around the elements, the innermost first."""
    mask = None if absent is None else pa.array(absent)
    if not output.dims:
        return values if mask is None else pa.compute.if_else(mask, None, values)
    if output.is_fixed:
        for dim in reversed(output.dims[1:]):
            values = pa.FixedSizeListArray.from_arrays(values, dim)
        return pa.FixedSizeListArray.from_arrays(values, output.dims[0], mask=mask)
    rows = np.repeat(
        np.array([dims for _, dims in shapes], np.int64),
        [count for count, _ in shapes],
        axis=0,
    )
    counts = np.ones(len(rows), np.int64)
    lengths = []
    for axis in range(rows.shape[1]):
        lengths.append(np.repeat(rows[:, axis], counts))
        counts = counts * rows[:, axis]
    for axis in reversed(range(len(lengths))):
        offsets = np.concatenate(([0], np.cumsum(lengths[axis]))).astype(np.int32)
        outermost = mask if axis == 0 else None
        values = pa.ListArray.from_arrays(pa.array(offsets), values, mask=outermost)
    return values


def _kind(datatype: Datatype, dims: Sequence[int]) -> pa.DataType:
    kind = _element(datatype)
    fixed = VARIABLE not in dims
    for dim in reversed(dims):
        kind = pa.list_(kind, dim) if fixed else pa.list_(kind)
    return kind


def _element(datatype: Datatype) -> pa.DataType:
    if datatype is Datatype.BYTES:
        return pa.string()
    if datatype in _NARROW:
        return pa.float32()
    return pa.from_numpy_dtype(DTYPES[datatype])
