"""Elements of a column as elements of a tensor, a whole chunk at a time.

Nothing is converted silently: a number that the datatype cannot hold, a fraction where
an integer is wanted, text that is no number or not UTF-8 breaks its row, and no other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.domain import Datatype
from headrace.errors import RequestError

__all__ = ["DTYPES", "Flags", "check_kind", "numbers", "texts", "wire_bytes"]

Array = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]

DTYPES: dict[Datatype, np.dtype[Any]] = {
    **{each: np.dtype(each.typestr) for each in Datatype if each.typestr},
    Datatype.BF16: np.dtype("<f4"),
}
"""In memory; a BF16 is a FP32 whose lower half is cut off on the wire."""

LENGTH_BYTES = 4


def check_kind(name: str, column: str, kind: pa.DataType, datatype: Datatype) -> None:
    """Whether elements of type ``kind`` can become ``datatype`` at all.

    Raises :class:`headrace.errors.RequestError`.
    """
    is_text = (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )
    is_number = (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
    )
    if pa.types.is_null(kind):
        return
    if datatype is Datatype.BYTES:
        fits, wanted = is_text, "text"
    elif datatype is Datatype.BOOL:
        fits, wanted = pa.types.is_boolean(kind) or is_text, "true or false"
    else:
        fits, wanted = is_number or is_text, "numbers"
    if not fits:
        raise RequestError(
            f"input '{name}' is {datatype} and takes {wanted}, but column '{column}' "
            f"holds {kind}"
        )


def numbers(values: pa.Array, datatype: Datatype) -> tuple[Array, Flags | None]:
    """The elements as :data:`DTYPES` has them, and which of them do not fit (None: all
    do), null ones among those. What stands in the place of such a one means nothing."""
    wrong = _nulls(values)
    if not isinstance(values, pa.BooleanArray) and _is_text(values.type):
        values, unread = _parsed(values, datatype)
        wrong = _either(wrong, unread)
    if pa.types.is_decimal(values.type):
        values = pc.cast(values, pa.float64())
    if pa.types.is_null(values.type):
        return np.zeros(len(values), DTYPES[datatype]), np.ones(len(values), np.bool_)
    if wrong is not None:
        values = pc.fill_null(values, False if datatype is Datatype.BOOL else 0)
    found, unfit = _converted(values.to_numpy(zero_copy_only=False), datatype)
    return found, _either(wrong, unfit)


def wire_bytes(elements: Array, datatype: Datatype) -> Array:
    """The protocol's raw form, without a copy where memory has it already."""
    if datatype is Datatype.BF16:
        # Round half to even, as hardware does; NaN stays one.
        bits = elements.view("<u4")
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        quiet = (bits >> 16) | 0x40
        return np.where(np.isnan(elements), quiet, rounded).astype("<u2").view(np.uint8)
    return np.ascontiguousarray(elements).view(np.uint8).reshape(-1)


def texts(values: pa.Array) -> tuple[Array, npt.NDArray[np.int64], Flags | None]:
    """Raw ``BYTES``: a length before each element. The bytes of all, the offset of
    each element and of the end, and which are null or not UTF-8."""
    wrong = _nulls(values)
    if pa.types.is_null(values.type):
        values = pc.fill_null(values.cast(pa.string()), "")
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        values, broken = _utf8(values)
        wrong = _either(wrong, broken)
    values = pc.fill_null(values, "").cast(pa.large_string())
    count = len(values)
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[
        values.offset : values.offset + count + 1
    ]
    data = np.frombuffer(data_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
    lengths = np.diff(offsets)
    starts = offsets - offsets[0] + LENGTH_BYTES * np.arange(count + 1)
    raw = np.empty(starts[-1], np.uint8)
    heads = (starts[:-1, None] + np.arange(LENGTH_BYTES)).reshape(-1)
    is_text = np.ones(len(raw), np.bool_)
    is_text[heads] = False
    raw[heads] = lengths.astype("<u4").view(np.uint8)
    raw[is_text] = data
    return raw, starts, wrong


def _converted(source: Array, datatype: Datatype) -> tuple[Array, Flags | None]:
    target = DTYPES[datatype]
    if source.dtype == target:
        return source, None
    if target.kind == "f":
        with np.errstate(over="ignore"):
            found = source.astype(target)
        if source.dtype.kind != "f" and target.itemsize > 2:
            return found, None
        return found, _any(~np.isfinite(found) & np.isfinite(source))
    with np.errstate(invalid="ignore"):
        found = source.astype(target)
    if source.dtype.kind == "f":
        bounds = np.iinfo(target)
        # A bound of 64 bits is no double: the comparison is with the next power of 2.
        fits = (source >= float(bounds.min)) & (source < float(bounds.max) + 1)
        return found, _any(~(fits & (source == np.trunc(source))))
    bounds = np.iinfo(target)
    known = np.iinfo(source.dtype)
    if bounds.min <= known.min and known.max <= bounds.max:
        return found, None
    low, high = max(bounds.min, known.min), min(bounds.max, known.max)
    return found, _any((source < low) | (source > high))


def _parsed(values: pa.Array, datatype: Datatype) -> tuple[pa.Array, Flags | None]:
    """Text as numbers, as files without types have it."""
    is_float = DTYPES[datatype].kind == "f"
    kind = pa.bool_() if datatype is Datatype.BOOL else pa.float64()
    if not is_float and datatype is not Datatype.BOOL:
        kind = pa.uint64() if DTYPES[datatype].kind == "u" else pa.int64()
    trimmed = pc.utf8_trim_whitespace(values.cast(pa.string()))
    try:
        return _finite_or_named(trimmed, trimmed.cast(kind))
    except pa.ArrowInvalid:
        pass
    # Some element is no number: only such a chunk is looked at one by one.
    found, unread = [], np.zeros(len(values), np.bool_)
    for place, each in enumerate(trimmed):
        try:
            found.append(each.cast(kind))
        except pa.ArrowInvalid:
            found.append(pa.scalar(None, kind))
            unread[place] = True
    parsed, beyond = _finite_or_named(
        trimmed, pa.array([each.as_py() for each in found], kind)
    )
    return parsed, unread if beyond is None else unread | beyond


def _finite_or_named(
    texts: pa.Array, parsed: pa.Array
) -> tuple[pa.Array, Flags | None]:
    """An infinity is what is called one, and no number that was too large."""
    if not pa.types.is_floating(parsed.type):
        return parsed, None
    beyond = pc.and_(pc.is_inf(parsed), pc.match_substring_regex(texts, "[0-9]"))
    return parsed, _any(np.asarray(pc.fill_null(beyond, fill_value=False)))


def _utf8(values: pa.Array) -> tuple[pa.Array, Flags | None]:
    try:
        return values.cast(pa.large_string()), None
    except pa.ArrowInvalid:
        pass
    found: list[str] = []
    broken = np.zeros(len(values), np.bool_)
    for place, each in enumerate(values.to_pylist()):
        try:
            found.append((each or b"").decode())
        except UnicodeDecodeError:
            found.append("")
            broken[place] = True
    return pa.array(found, pa.large_string()), broken


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _nulls(values: pa.Array) -> Flags | None:
    if not values.null_count:
        return None
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False), np.bool_)


def _any(flags: Flags) -> Flags | None:
    return flags if flags.any() else None


def _either(one: Flags | None, other: Flags | None) -> Flags | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other
