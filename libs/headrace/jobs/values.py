"""Columns of whatever type as values that text can say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

__all__ = ["as_text", "floats_of", "json_of", "needs_text", "values_of"]


def floats_of(column: Any) -> Iterator[pa.Array]:
    """The arrays of floating point that a column is made of, at whatever depth."""
    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        parts = column.chunks
    elif isinstance(column, pa.ExtensionArray):
        parts = [column.storage]
    elif pa.types.is_dictionary(kind):
        parts = [column.dictionary]
    elif pa.types.is_run_end_encoded(kind):
        parts = [column.values]
    elif pa.types.is_map(kind):
        parts = [column.keys, column.items]
    elif pa.types.is_union(kind):
        parts = [column.field(place) for place in range(kind.num_fields)]
    elif pa.types.is_nested(kind):
        inner = column.flatten()
        parts = inner if isinstance(inner, list) else [inner]
    else:
        if pa.types.is_floating(kind):
            yield column.cast(pa.float32()) if pa.types.is_float16(kind) else column
        return
    for part in parts:
        yield from floats_of(part)


def values_of(column: Any) -> list[Any]:
    """As Python's; what Python has no value for, such as nanoseconds, as text."""
    try:
        found: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        return [_value(each) for each in column]
    return found


def _value(scalar: Any) -> Any:
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.StructScalar):
        return {name: _value(each) for name, each in scalar.items()}
    if isinstance(scalar, pa.MapScalar | pa.ListScalar):
        return [_value(each) for each in scalar.values]
    try:
        return scalar.as_py()
    except OverflowError:
        return str(scalar.value)  # beyond the years that a date has
    except ValueError:
        if pa.types.is_duration(scalar.type):
            return f"{scalar.value} {scalar.type.unit}"
        return scalar.cast(pa.string()).as_py().replace(" ", "T", 1)


def needs_text(kind: pa.DataType) -> bool:
    """Whether a field of CSV can be one of this type only as text of our making."""
    if pa.types.is_dictionary(kind):
        return needs_text(kind.value_type)
    is_plain = (
        pa.types.is_null(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))
    )
    return not is_plain


def as_text(column: Any) -> pa.Array:
    """Text as it is, bytes in base64, all else as JSON."""
    return pa.array([*map(_text, values_of(column))], pa.string())


def _text(value: Any) -> str | None:
    value = _built(value)
    return value if value is None or isinstance(value, str) else json_of(value)


_built = partial(msgspec.to_builtins, enc_hook=str)


def json_of(value: object) -> str:
    """NaN and the infinities are bare tokens, as the ingresses have them, and no nulls:
    those stand for a row that failed."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_built)
