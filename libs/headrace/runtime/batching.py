"""A batch's raw bytes to arrays, and the outputs back to each member's raw bytes.

The bytes of a batch are its members' bytes one after the other. Where the batch axis
is 0 and members' rows are of one size, that is already the batch's array: it is taken
as it lies in the record, whatever the number of members. Another batch axis, padding
and ``BYTES`` are built here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from headrace.domain import Datatype, TensorSpec
from headrace.errors import RequestError
from headrace.runtime.layout import Layout
from headrace.runtime.session import NUMPY_TYPES, Array
from headrace.wire.compatibility import LENGTH, ROWS
from headrace.wire.replies import BatchedOutput
from headrace.wire.tensors import pack_bytes, unpack_bytes

__all__ = [
    "BatchInput",
    "MemberFault",
    "Misfit",
    "assemble",
    "share_out",
]


class BatchInput(NamedTuple):
    """``shape``: as each member sent it, but ROWS on the batch axis and LENGTH on the
    padded one; ``contents``: raw, of all members."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    contents: bytes | memoryview


class MemberFault(Exception):
    """One member's bytes cannot be what they claim to be; its neighbours' can."""

    def __init__(self, member: int, text: str) -> None:
        super().__init__(text)
        self.member = member


class Misfit(Exception):
    """An output is not shaped by its batch, so nobody's part of it is known."""


def assemble(
    layout: Layout,
    tensors: Sequence[BatchInput],
    rows: Sequence[int],
    lengths: Sequence[int],
) -> dict[str, Array]:
    """The arrays of a run. ``rows`` and ``lengths`` have an entry per member;
    ``lengths`` may be empty for a version without padding.

    Raises :class:`MemberFault`, and :class:`headrace.errors.RequestError` when the
    batch as a whole does not fit the version.
    """
    specs = {spec.name: spec for spec in layout.signature.inputs}
    arrays: dict[str, Array] = {}
    for tensor in tensors:
        spec = specs.get(tensor.name)
        if spec is None:
            raise RequestError(f"the model has no input {tensor.name!r}")
        arrays[tensor.name] = _assembled(layout, spec, tensor, rows, lengths)
    missing = specs.keys() - arrays.keys()
    if missing:
        raise RequestError(f"input {min(missing)!r} is missing")
    return arrays


def share_out(
    layout: Layout,
    outputs: Sequence[Array],
    rows: Sequence[int],
    lengths: Sequence[int],
) -> list[BatchedOutput]:
    """The outputs, in the order of the signature, with each member's part of them.

    Raises :class:`Misfit`.
    """
    return [
        _shared(layout, spec, array, rows, lengths)
        for spec, array in zip(layout.signature.outputs, outputs, strict=True)
    ]


def _assembled(
    layout: Layout,
    spec: TensorSpec,
    tensor: BatchInput,
    rows: Sequence[int],
    lengths: Sequence[int],
) -> Array:
    axis = layout.batch_axis(spec.name)
    _check_form(layout, spec, tensor)
    if LENGTH not in tensor.shape and axis in {0, None}:
        shape = _member_shape(tensor.shape, sum(rows), 0)
        parts = rows if axis == 0 else (1,)
        return _elements(spec, tensor, shape, parts).reshape(shape)
    counts = [
        prod(_member_shape(tensor.shape, r, n)) for r, n in _members(rows, lengths)
    ]
    elements = _elements(spec, tensor, (sum(counts),), counts)
    bounds = list(accumulate(counts, initial=0))
    pieces = [
        elements[start:end].reshape(_member_shape(tensor.shape, r, n))
        for (start, end), (r, n) in zip(
            pairwise(bounds), _members(rows, lengths), strict=True
        )
    ]
    assert axis is not None
    if LENGTH not in tensor.shape:
        return np.concatenate(pieces, axis)
    assert layout.padding is not None
    edge = layout.padding.edge(max(lengths))
    shape = _member_shape(tensor.shape, sum(rows), edge)
    padded = np.full(shape, layout.padding.values[spec.name], elements.dtype)
    at = 0
    for piece in pieces:
        place = [slice(extent) for extent in piece.shape]
        place[axis] = slice(at, at + piece.shape[axis])
        padded[tuple(place)] = piece
        at += piece.shape[axis]
    return padded


def _check_form(layout: Layout, spec: TensorSpec, tensor: BatchInput) -> None:
    padding = layout.padding
    padded = padding.input_axes.get(spec.name) if padding else None
    expected = (spec.datatype, layout.batch_axis(spec.name), padded)
    got = (tensor.datatype, _place(tensor.shape, ROWS), _place(tensor.shape, LENGTH))
    if got != expected:
        raise RequestError(
            f"input {spec.name!r} came as {got[0]} with rows on axis {got[1]} and "
            f"length on axis {got[2]}, expected {expected[0]}, {expected[1]} and "
            f"{expected[2]}"
        )


def _place(shape: tuple[int, ...], mark: int) -> int | None:
    return shape.index(mark) if mark in shape else None


def _members(rows: Sequence[int], lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(rows, lengths or [0] * len(rows), strict=True)


def _member_shape(shape: Sequence[int], rows: int, length: int) -> tuple[int, ...]:
    marks = {ROWS: rows, LENGTH: length}
    return tuple(marks.get(extent, extent) for extent in shape)


def _elements(
    spec: TensorSpec,
    tensor: BatchInput,
    shape: tuple[int, ...],
    parts: Sequence[int],
) -> Array:
    """All members' elements, flat, as many as fit ``shape``; the members have them in
    proportion to ``parts``."""
    count = prod(shape)
    if spec.datatype is Datatype.BYTES:
        return _texts(tensor, count, parts)
    kind = NUMPY_TYPES[spec.datatype]
    if len(tensor.contents) != count * kind.itemsize:
        raise RequestError(
            f"input {spec.name!r} has {len(tensor.contents)} bytes, expected "
            f"{count * kind.itemsize}"
        )
    if spec.datatype is Datatype.BOOL:
        _check_bools(tensor, count, parts)
    elements = np.frombuffer(tensor.contents, kind)
    # A record's bytes begin anywhere; compiled kernels may count on the alignment
    # of an element. One copy of the block, rows stay where they are.
    return elements if elements.flags.aligned else elements.copy()


def _check_bools(tensor: BatchInput, count: int, parts: Sequence[int]) -> None:
    numbers = np.frombuffer(tensor.contents, np.uint8)
    wrong = np.flatnonzero(numbers > 1)
    if wrong.size:
        raise MemberFault(
            _owner(int(wrong[0]), count, parts),
            f"tensor {tensor.name!r}: a BOOL is a byte of value 0 or 1",
        )


def _texts(tensor: BatchInput, count: int, parts: Sequence[int]) -> Array:
    elements = unpack_bytes(tensor.name, tensor.contents)
    if len(elements) != count:
        raise RequestError(
            f"input {tensor.name!r} has {len(elements)} BYTES elements, expected "
            f"{count}"
        )
    array = np.empty(len(elements), np.object_)
    for index, element in enumerate(elements):
        try:
            array[index] = element.decode()
        except UnicodeDecodeError as error:
            raise MemberFault(
                _owner(index, count, parts),
                f"tensor {tensor.name!r}: a BYTES element is not UTF-8 ({error})",
            ) from error
    return array


def _owner(element: int, count: int, parts: Sequence[int]) -> int:
    unit = count // sum(parts)
    for member, end in enumerate(accumulate(parts)):
        if element < end * unit:
            return member
    raise AssertionError("the element is beyond every member")


def _shared(
    layout: Layout,
    spec: TensorSpec,
    array: Array,
    rows: Sequence[int],
    lengths: Sequence[int],
) -> BatchedOutput:
    axis = layout.batch_axis(spec.name)
    if not layout.batch_axes or axis is None:
        assert len(rows) == 1, "a batch of a version that does not batch"
        return _packed(spec, array.shape, [array])
    padded = layout.padding.output_axes.get(spec.name) if layout.padding else None
    marks = {axis: ROWS} if padded is None else {axis: ROWS, padded: LENGTH}
    shape = tuple(marks.get(at, extent) for at, extent in enumerate(array.shape))
    _check_extent(spec, array, axis, sum(rows), "rows")
    if padded is None and axis == 0 and spec.datatype is not Datatype.BYTES:
        contents = _raw(spec, array)
        row_bytes = len(contents) // sum(rows)
        bounds = tuple(accumulate(map(row_bytes.__mul__, rows), initial=0))
        return BatchedOutput(spec.name, spec.datatype, shape, contents, bounds)
    if padded is not None:
        assert layout.padding is not None
        edge = layout.padding.edge(max(lengths))
        _check_extent(spec, array, padded, edge, layout.padding.axis)
    parts = []
    at = 0
    for each, length in _members(rows, lengths):
        place = [slice(None)] * array.ndim
        place[axis] = slice(at, at + each)
        if padded is not None:
            place[padded] = slice(length)
        parts.append(array[tuple(place)])
        at += each
    return _packed(spec, shape, parts)


def _check_extent(
    spec: TensorSpec, array: Array, axis: int, expected: int, what: str
) -> None:
    got = array.shape[axis] if axis < array.ndim else "no such axis"
    if got != expected:
        raise Misfit(
            f"output {spec.name!r} has shape {list(array.shape)}, expected {expected} "
            f"({what}) on axis {axis}"
        )


def _packed(
    spec: TensorSpec, shape: tuple[int, ...], parts: Sequence[Array]
) -> BatchedOutput:
    raw = [_raw(spec, part) for part in parts]
    return BatchedOutput.of(spec.name, spec.datatype, shape, raw)


def _raw(spec: TensorSpec, array: Array) -> bytes | memoryview:
    if spec.datatype is Datatype.BYTES:
        return pack_bytes(str(element).encode() for element in array.flat)
    contiguous = np.ascontiguousarray(array, NUMPY_TYPES[spec.datatype])
    # An array without elements cannot be cast.
    return contiguous.reshape(-1).view(np.uint8).data if array.size else b""
