"""Columns of a file as inputs of a model: rows as byte ranges of raw tensors.

A chunk of rows becomes one buffer per input, and a record's tensor is a slice of it;
nothing is done per element in Python. A row that breaks the signature is set apart,
with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
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
from headrace.errors import RequestError
from headrace.jobs.elements import Flags, check_kind, numbers, texts, wire_bytes
from headrace.jobs.textual import Fed

__all__ = ["Columns", "Rows"]

_FLOATING = frozenset({Datatype.BF16, Datatype.FP16, Datatype.FP32, Datatype.FP64})

Extents = npt.NDArray[np.int64]
"""Of shape (rows, rank): each row's own shape."""


class _Input(NamedTuple):
    """An input and the columns that make a row of it. ``dims``: of one row."""

    spec: TensorSpec
    batch_axis: int
    dims: tuple[int, ...]
    columns: tuple[str, ...]


class _Packed(NamedTuple):
    """One input of a chunk. ``bounds``: where each row begins in ``raw``, and the
    end; ``extents`` None: every row has the shape that the signature fixes."""

    data: memoryview
    bounds: Extents
    extents: Extents | None


class Rows:
    """The rows of a chunk, as tensors. ``wrong``: by row of the chunk, what breaks the
    signature."""

    def __init__(
        self, inputs: Sequence[_Input], packed: Sequence[_Packed], wrong: dict[int, str]
    ) -> None:
        self._inputs = inputs
        self._packed = packed
        self.wrong = wrong
        self._count = len(packed[0].bounds) - 1

    def ranges(
        self, start: int, *, rows_max: int, bytes_max: int
    ) -> list[tuple[int, int]]:
        """From the row ``start`` on, runs of rows that can share a record (first, and
        the one behind the last): consecutive, of one shape, none of them wrong. A row
        of more than ``bytes_max`` is set apart, too."""
        sizes = np.sum([np.diff(each.bounds) for each in self._packed], axis=0)
        for row in np.flatnonzero(sizes > bytes_max).tolist():
            self.wrong.setdefault(
                row,
                f"the row has {sizes[row]} bytes, at most {bytes_max} are allowed "
                "(payload_bytes_max)",
            )
        breaks = {self._count}
        for each in self._packed:
            if each.extents is not None:
                differs = (each.extents[1:] != each.extents[:-1]).any(axis=1)
                breaks.update((np.flatnonzero(differs) + 1).tolist())
        for row in self.wrong:
            breaks.update((row, row + 1))
        totals = np.concatenate(([0], np.cumsum(sizes)))
        found = []
        first = start
        for end in sorted(each for each in breaks if each > start):
            while first < end:
                if first in self.wrong:
                    first += 1
                    continue
                fitting = np.searchsorted(totals, totals[first] + bytes_max, "right")
                stop = min(first + rows_max, end, int(fitting) - 1)
                found.append((first, stop))
                first = stop
        return found

    def tensors(self, first: int, end: int) -> tuple[Tensor, ...]:
        """These rows as one request's inputs."""
        return tuple(
            self._tensor(given, packed, first, end)
            for given, packed in zip(self._inputs, self._packed, strict=True)
        )

    def _tensor(self, given: _Input, packed: _Packed, first: int, end: int) -> Tensor:
        spec = given.spec
        dims = given.dims
        if packed.extents is not None:
            dims = tuple(packed.extents[first].tolist())
        shape = list(dims)
        if given.batch_axis != BATCH_AXIS_NONE:
            shape.insert(given.batch_axis, end - first)
        data = packed.data[packed.bounds[first] : packed.bounds[end]]
        return Tensor(spec.name, spec.datatype, tuple(shape), data)


class Columns:
    """How the columns of ``schema`` become ``served``'s inputs. ``named``: the columns
    of an input, in order, where they are not those of its own name; a name may be a
    pattern (``pixel_*``).

    Raises :class:`headrace.errors.RequestError` for a file that no row of could fit.
    """

    def __init__(
        self,
        served: ServedVersion,
        schema: pa.Schema,
        named: Mapping[str, Sequence[str]],
    ) -> None:
        names = [spec.name for spec in served.signature.inputs]
        for name in named:
            if name not in names:
                raise RequestError(
                    f"model {served.model} has no input '{name}', only "
                    f"{', '.join(names)}"
                )
        self._inputs = [
            self._input(served, spec, schema, named.get(spec.name))
            for spec in served.signature.inputs
        ]
        axes = {each.batch_axis for each in self._inputs}
        self.rows_max = served.max_batch if axes == {0} else 1
        """Most rows in one record: one where an input has no batch axis, or where
        its rows do not lie one after the other."""

    def rows(self, batch: pa.RecordBatch, broken: Mapping[int, str]) -> Rows:
        """``broken``: rows of which nothing could be read, and why."""
        wrong: dict[int, str] = {}
        packed = [_packed(given, batch, wrong) for given in self._inputs]
        unread = {row: text for row, text in broken.items() if row < batch.num_rows}
        return Rows(self._inputs, packed, wrong | unread)

    @property
    def fed(self) -> Fed:
        """The columns that are read."""
        floats = [
            name
            for each in self._inputs
            if each.spec.datatype in _FLOATING
            for name in each.columns
        ]
        names = [name for each in self._inputs for name in each.columns]
        return Fed(frozenset(names), frozenset(floats))

    def _input(
        self,
        served: ServedVersion,
        spec: TensorSpec,
        schema: pa.Schema,
        named: Sequence[str] | None,
    ) -> _Input:
        axis = served.batch_axes.get(spec.name, BATCH_AXIS_NONE)
        dims = tuple(extent for place, extent in enumerate(spec.shape) if place != axis)
        columns = _columns(served, spec, schema, named)
        for column in columns:
            kind = schema.field(column).type
            if len(columns) > 1 and _depth(kind):
                raise RequestError(
                    f"input '{spec.name}' is made of {len(columns)} columns, so each "
                    f"must hold one element; '{column}' holds {kind}"
                )
            check_kind(spec.name, column, _innermost(kind), spec.datatype)
            _check_depth(spec, column, kind, dims, len(columns))
        return _Input(spec, axis, dims, columns)


def _columns(
    served: ServedVersion,
    spec: TensorSpec,
    schema: pa.Schema,
    named: Sequence[str] | None,
) -> tuple[str, ...]:
    if named is None:
        if spec.name in schema.names:
            return (spec.name,)
        if len(served.signature.inputs) == 1 == len(schema.names):
            return (schema.names[0],)
        raise RequestError(
            f"no column is called '{spec.name}' as the input of model {served.model} "
            f"is: name it with --columns {spec.name}=COLUMN; there are "
            f"{_some(schema.names)}"
        )
    found: list[str] = []
    for pattern in named:
        if pattern in schema.names:
            found.append(pattern)
            continue
        matching = [each for each in schema.names if fnmatchcase(each, pattern)]
        if not matching:
            raise RequestError(
                f"input '{spec.name}': there is no column '{pattern}', only "
                f"{_some(schema.names)}"
            )
        found += matching
    return tuple(dict.fromkeys(found))


def _check_depth(
    spec: TensorSpec,
    column: str,
    kind: pa.DataType,
    dims: tuple[int, ...],
    columns: int,
) -> None:
    """Whether rows nested as ``kind`` can have the shape ``dims``."""
    depth = _depth(kind) + (columns > 1)
    fixed = all(extent != VARIABLE for extent in dims)
    elements = _fixed_elements(kind) * columns
    # One level of lists may stand for any shape that the signature fixes.
    fits = depth == len(dims) or (depth <= 1 and fixed)
    if fixed and elements > 0 and _is_fixed(kind):
        fits = fits and elements == prod(dims)
    if not fits:
        raise RequestError(
            f"a row of input '{spec.name}' has the shape {_shape(dims)}, but "
            + (
                f"{columns} columns give {columns} elements"
                if columns > 1
                else f"column '{column}' holds {kind}"
            )
        )


def _packed(given: _Input, batch: pa.RecordBatch, wrong: dict[int, str]) -> _Packed:
    rows = batch.num_rows
    arrays = [_plain(batch.column(name)) for name in given.columns]
    if len(arrays) > 1:
        values, starts, extents = _side_by_side(arrays)
        bad = np.zeros(rows, np.bool_)
    else:
        values, starts, extents, bad = _unnested(arrays[0])
    name, datatype = given.spec.name, given.spec.datatype
    bounds: Extents
    if datatype is Datatype.BYTES:
        raw, offsets, unfit = texts(values)
        bounds = offsets[starts]
    else:
        found, unfit = numbers(values, datatype)
        raw = wire_bytes(found, datatype)
        bounds = starts * (datatype.item_bytes or 1)
    _note(wrong, bad, f"input '{name}': the row is null, or its lists differ in length")
    if unfit is not None:
        each = np.flatnonzero(unfit)
        of_row = np.searchsorted(starts, each, "right") - 1
        for row, place in zip(of_row.tolist(), each.tolist(), strict=True):
            if row not in wrong:
                shown = values[place].as_py()
                wrong[row] = (
                    f"input '{name}': element {place - int(starts[row])} is "
                    f"{_clip(shown)}, which is no {datatype}"
                )
    shapes = _checked(given, extents, np.diff(starts), wrong)
    return _Packed(raw.data, bounds, shapes)


def _checked(
    given: _Input, extents: Extents, counts: Extents, wrong: dict[int, str]
) -> Extents | None:
    """The rows' shapes held against the signature; None where it fixes them."""
    dims = np.array(given.dims, np.int64)
    if VARIABLE not in given.dims:
        wanted = prod(given.dims)
        differs = counts != wanted
        if 1 < extents.shape[1] == len(dims):
            differs = differs | (extents != dims).any(axis=1)
        for row in np.flatnonzero(differs).tolist():
            wrong.setdefault(
                row,
                f"input '{given.spec.name}' has {counts[row]} elements, expected "
                f"{wanted} (a row has the shape {_shape(given.dims)})",
            )
        return None
    unfit = ((extents != dims) & (dims != VARIABLE)) | (extents < 1)
    for row in np.flatnonzero(unfit.any(axis=1)).tolist():
        wrong.setdefault(
            row,
            f"input '{given.spec.name}' has a row of shape "
            f"{_shape(extents[row].tolist())}, expected {_shape(given.dims)}, where "
            f"{VARIABLE} is any size of at least 1",
        )
    return extents


def _side_by_side(arrays: list[Any]) -> tuple[pa.Array, Extents, Extents]:
    """Columns of one element each, interleaved into rows."""
    rows, width = len(arrays[0]), len(arrays)
    kinds = {each.type for each in arrays}
    if len(kinds) > 1:
        text = any(pa.types.is_string(each) for each in kinds)
        arrays = [each.cast(pa.string() if text else pa.float64()) for each in arrays]
    order = (np.arange(width) * rows + np.arange(rows)[:, None]).reshape(-1)
    values = pa.concat_arrays(arrays).take(pa.array(order))
    starts = np.arange(rows + 1, dtype=np.int64) * width
    return values, starts, np.full((rows, 1), width, np.int64)


def _unnested(array: Any) -> tuple[pa.Array, Extents, Extents, Flags]:
    """The innermost elements; where each row's begin; each row's shape; and the rows
    that are null, or whose lists differ in length."""
    rows = len(array)
    starts = np.arange(rows + 1, dtype=np.int64)
    extents: list[Extents] = []
    bad = np.zeros(rows, np.bool_)
    while _depth(array.type):
        if array.null_count:
            lost = array.is_null().to_numpy(zero_copy_only=False)
            bad |= _in_row(lost, starts)
        array, offsets = _inner(array)
        lengths = np.diff(offsets)
        low, high = _span(lengths, starts)
        bad |= low != high
        extents.append(high)
        starts = offsets[starts] - offsets[0]
    shapes = np.stack(extents, axis=1) if extents else np.empty((rows, 0), np.int64)
    return array, starts, shapes, bad


def _inner(array: Any) -> tuple[Any, Extents]:
    """The elements of a list array's lists, and where each list begins."""
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        values = array.values.slice(array.offset * size, len(array) * size)
        return _plain(values), np.arange(len(array) + 1, dtype=np.int64) * size
    offsets = array.offsets.to_numpy().astype(np.int64)
    values = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    return _plain(values), offsets - offsets[0]


def _span(lengths: Extents, starts: Extents) -> tuple[Extents, Extents]:
    """The shortest and the longest list of each row; 0 for a row without any."""
    counts = np.diff(starts)
    if (counts == 1).all():
        return lengths, lengths
    low = np.zeros(len(counts), np.int64)
    high = low.copy()
    some = np.flatnonzero(counts)
    if len(some):
        at = starts[some]
        low[some] = np.minimum.reduceat(lengths, at)
        high[some] = np.maximum.reduceat(lengths, at)
    return low, high


def _in_row(flags: Flags, starts: Extents) -> Flags:
    """Which rows have a flagged element."""
    found = np.zeros(len(starts) - 1, np.bool_)
    found[np.searchsorted(starts, np.flatnonzero(flags), "right") - 1] = True
    return found


def _plain(array: Any) -> Any:
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    if pa.types.is_string_view(array.type):
        return array.cast(pa.string())
    return array


def _depth(kind: pa.DataType) -> int:
    depth = 0
    while _is_list(kind):
        depth, kind = depth + 1, kind.value_type
    return depth


def _innermost(kind: pa.DataType) -> pa.DataType:
    while _is_list(kind):
        kind = kind.value_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
    )


def _is_fixed(kind: pa.DataType) -> bool:
    while _is_list(kind):
        if not pa.types.is_fixed_size_list(kind):
            return False
        kind = kind.value_type
    return True


def _fixed_elements(kind: pa.DataType) -> int:
    count = 1
    while pa.types.is_fixed_size_list(kind):
        count, kind = count * kind.list_size, kind.value_type
    return count


def _note(wrong: dict[int, str], flags: Flags, text: str) -> None:
    for row in np.flatnonzero(flags).tolist():
        wrong.setdefault(row, text)


def _clip(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _shape(dims: Sequence[int]) -> str:
    return f"[{','.join(map(str, dims))}]"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:20]) or "no columns"
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")
