"""Lines of JSON one by one, where a reader of whole blocks gives up on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from math import isfinite, isinf
from typing import Any, Final

import pyarrow as pa

from headrace.jobs.values import json_of

__all__ = ["SINGLY_MAX", "inferred_singly", "rows_of", "unified"]

SINGLY_MAX: Final = 256
"""Lines that are read one by one at once, rather than halved further."""

_SHOWN: Final = 60


class _Unfit(Exception):
    """A value that its column cannot hold; the text says what would be right."""


def inferred_singly(
    lines: Sequence[bytes], fed: Collection[str] | None = None
) -> pa.Schema:
    """The members of those lines that can be read. ``fed``: see :func:`unified`."""
    found: dict[str, pa.DataType] = {}
    for line in lines:
        with suppress(ValueError):
            for name, value in _object(line).items():
                name.encode()
                is_fed = fed is None or name in fed
                kind = _kind(value, is_fed=is_fed)
                known = found.get(name, kind)
                found[name] = _common(known, kind, is_fed=is_fed)
    return pa.schema(list(found.items()))


def unified(
    parts: Sequence[pa.Schema], fed: Collection[str] | None = None
) -> pa.Schema:
    """Columns of all parts; what is text in one and something else in another is
    text. In columns that feed a model (``fed``; None: any may) a list stays one, so
    that whatever is none breaks its row."""
    found: dict[str, pa.DataType] = {}
    for part in parts:
        for name, kind in zip(part.names, part.types, strict=True):
            is_fed = fed is None or name in fed
            found[name] = _common(found.get(name, kind), kind, is_fed=is_fed)
    return pa.schema(list(found.items()))


def _kind(value: Any, *, is_fed: bool) -> pa.DataType:
    try:
        return pa.array([value]).type
    except (pa.ArrowException, OverflowError):
        if isinstance(value, int):
            return pa.float64()  # as Arrow has one that is too large
        is_list = isinstance(value, list) and is_fed
        return pa.list_(pa.string()) if is_list else pa.string()


def _common(one: pa.DataType, other: pa.DataType, *, is_fed: bool) -> pa.DataType:
    try:
        parts = [pa.schema([("", one)]), pa.schema([("", other)])]
        return pa.unify_schemas(parts, promote_options="permissive").field(0).type
    except pa.ArrowException:
        pass
    if not is_fed:
        return pa.string()
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_common(one.value_type, other.value_type, is_fed=True))
    if pa.types.is_nested(one) or pa.types.is_nested(other):
        return one
    return pa.string()


def rows_of(
    lines: Sequence[bytes], schema: pa.Schema, fed: Collection[str] | None = None
) -> tuple[pa.Table, dict[int, str]]:
    """The lines as a table, and by line what is wrong with it. What a line has that
    can be read is in its row; the rest is null. A column of text that feeds no model
    takes any value, as JSON."""
    takes_all = [
        pa.types.is_string(field.type) and fed is not None and field.name not in fed
        for field in schema
    ]
    columns: list[list[Any]] = [[] for _ in schema]
    broken: dict[int, str] = {}
    for row, line in enumerate(lines):
        try:
            members = _object(line, parse_float=_finite_or_text)
        except ValueError as error:
            members, broken[row] = {}, str(error)
        for field, column, is_any in zip(schema, columns, takes_all, strict=True):
            value = members.get(field.name)
            if is_any and isinstance(value, list | dict):
                value = json_of(value)
            try:
                column.append(_fitted(value, field.type))
            except (_Unfit, pa.ArrowException, ValueError) as error:
                column.append(None)
                shown = json.dumps(members[field.name], ensure_ascii=False)
                shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."
                shown = shown.encode(errors="backslashreplace").decode()
                wanted = str(error) if isinstance(error, _Unfit) else str(field.type)
                broken.setdefault(
                    row,
                    f"'{field.name}' is {shown}, expected {wanted} as in the lines "
                    "before",
                )
    arrays = [
        pa.array(column, field.type)
        for field, column in zip(schema, columns, strict=True)
    ]
    return pa.table(arrays, schema=schema), broken


def _object(
    line: bytes, *, parse_float: Callable[[str], float | str] = float
) -> dict[str, Any]:
    """Raises ValueError."""
    try:
        found = json.loads(line, parse_float=parse_float)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from error
    if isinstance(found, dict):
        return found
    raise ValueError("it is no JSON object: write {...}")


def _finite_or_text(number: str) -> float | str:
    """As a float, which a number that is too large would be an infinity of."""
    found = float(number)
    return found if isfinite(found) else number


def _fitted(value: Any, kind: pa.DataType) -> Any:
    """``value`` as one of the column's; text is read as a number.

    Raises _Unfit, ValueError, and what Arrow says.
    """
    if value is None:
        return None
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            raise _Unfit("a list")
        return [_fitted(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            raise _Unfit("an object")
        return {each.name: _fitted(value.get(each.name), each.type) for each in kind}
    if isinstance(value, list | dict):
        raise _Unfit("text" if pa.types.is_string(kind) else f"one {kind}")
    return _element(value, kind)


def _element(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        text = value if isinstance(value, str) else json.dumps(value)
        if any("\ud800" <= each <= "\udfff" for each in text):
            raise _Unfit("text, not half of a pair of UTF-16")
        return text
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        if isinstance(value, bool):
            raise _Unfit("a number")
        return _number(value, kind)
    if pa.types.is_boolean(kind) and not isinstance(value, bool):
        raise _Unfit("true or false")
    return pa.scalar(value).cast(kind).as_py()


def _number(value: float | str, kind: pa.DataType) -> Any:
    is_whole = pa.types.is_integer(kind)
    try:
        found = int(value) if is_whole else float(value)
        pa.scalar(found, kind)
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise _Unfit("a whole number" if is_whole else "a number") from error
    if isinstance(value, float) and found != value and is_whole:
        raise _Unfit("a whole number")
    if isinstance(value, str) and isinf(found) and any(map(str.isdigit, value)):
        raise _Unfit(f"a number that fits {kind}")
    return found
