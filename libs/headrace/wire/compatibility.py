"""Which requests may share a batch: one key, made from shapes, never from elements.

The key names every input in the order of the signature, joined by ``;``:
``name:DATATYPE:dims`` without the batch axis, ``~edge`` on the padded axis, and
``=hex`` with the value of an input that has no batch axis, since it travels once for
the whole batch. Requests of one model version with equal keys fit together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

from headrace.domain import (
    BATCH_AXIS_NONE,
    VARIABLE,
    Datatype,
    ServedVersion,
    TensorSpec,
)
from headrace.errors import RequestError

__all__ = [
    "LENGTH",
    "ROWS",
    "Compatibility",
    "batched_shapes",
    "compatibility",
    "key_part",
]

ROWS = -1
"""In a batched tensor's shape: the axis whose extent is each member's rows."""

LENGTH = -2
"""In a batched tensor's shape: the axis whose extent is each member's length."""

_EXTENT = re.compile(r"[1-9][0-9]{0,17}")

VALUE_BYTES_MAX = 32
"""A longer value of an input without batch axis enters the key as its SHA-256."""


class Compatibility(NamedTuple):
    """What a batch former decides by."""

    shape: str
    rows: int
    length: int
    """Extent on the padded axis; 0 for a model without one."""


def compatibility(
    served: ServedVersion,
    shapes: Sequence[tuple[int, ...]],
    values: Sequence[bytes | memoryview],
) -> Compatibility:
    """The key, rows and length of a request with these shapes and raw contents, both
    in the order of the signature's inputs.

    Raises :class:`headrace.errors.RequestError` for a shape that the signature does
    not allow, for inputs that disagree, and for more rows than ``max_batch``.
    """
    rows = length = 0
    parts = []
    padding = served.padding
    for spec, shape, value in zip(served.signature.inputs, shapes, values, strict=True):
        batch_axis = served.batch_axes.get(spec.name, BATCH_AXIS_NONE)
        padded_axis = padding.input_axes.get(spec.name) if padding else None
        _check_shape(spec, shape)
        dims = []
        for axis, extent in enumerate(shape):
            if axis == batch_axis:
                rows = _agreed("rows", rows, extent, spec)
            elif axis == padded_axis:
                assert padding is not None
                length = _agreed(padding.axis, length, extent, spec)
                dims.append(f"~{padding.edge(extent)}")
            else:
                dims.append(str(extent))
        is_shared = bool(served.batch_axes) and batch_axis == BATCH_AXIS_NONE
        shared = value if is_shared else None
        parts.append(key_part(spec.name, spec.datatype, dims, shared))
    if rows > served.max_batch:
        raise RequestError(
            f"the request has {rows} rows, but model {served.model} version "
            f"{served.version} takes at most {served.max_batch} (max_batch)"
        )
    return Compatibility(";".join(parts), rows or 1, length)


def key_part(
    name: str,
    datatype: Datatype,
    dims: Iterable[str],
    shared: bytes | memoryview | None,
) -> str:
    """One input in a key; ``shared`` is its value where it travels once."""
    part = f"{name}:{datatype}:{','.join(dims)}"
    return part if shared is None else f"{part}={_value_text(shared)}"


def batched_shapes(served: ServedVersion, shape: str) -> tuple[tuple[int, ...], ...]:
    """The shapes behind a key, in the order of the signature's inputs, with
    :data:`ROWS` on the batch axis and :data:`LENGTH` on the padded one.

    Raises :class:`headrace.errors.RequestError` when the key is not one of this
    version's.
    """
    rest = f"{shape};" if served.signature.inputs else shape
    shapes = []
    for spec in served.signature.inputs:
        prefix = f"{spec.name}:{spec.datatype}:"
        part, end, after = rest[len(prefix) :].partition(";")
        dims, shared, _ = part.partition("=")
        extents = _batched_shape(served, spec, dims.split(",") if dims else [])
        is_shared = bool(served.batch_axes) and ROWS not in extents
        if not rest.startswith(prefix) or not end or bool(shared) != is_shared:
            raise _foreign(served, shape)
        shapes.append(extents)
        rest = after
    if rest:
        raise _foreign(served, shape)
    return tuple(shapes)


def _batched_shape(
    served: ServedVersion, spec: TensorSpec, dims: list[str]
) -> tuple[int, ...]:
    batch_axis = served.batch_axes.get(spec.name, BATCH_AXIS_NONE)
    padding = served.padding
    padded_axis = padding.input_axes.get(spec.name) if padding else None
    if batch_axis != BATCH_AXIS_NONE:
        dims.insert(batch_axis, "rows")
    if len(dims) != len(spec.shape):
        raise _foreign(served, ",".join(dims))
    extents = []
    for axis, (dim, expected) in enumerate(zip(dims, spec.shape, strict=True)):
        if axis == batch_axis:
            extents.append(ROWS)
        elif axis == padded_axis and dim.startswith("~"):
            extents.append(LENGTH)
        elif _EXTENT.fullmatch(dim) and expected in (VARIABLE, int(dim)):
            extents.append(int(dim))
        else:
            raise _foreign(served, ",".join(dims))
    return tuple(extents)


def _check_shape(spec: TensorSpec, shape: tuple[int, ...]) -> None:
    if len(shape) == len(spec.shape):
        for extent, expected in zip(shape, spec.shape, strict=True):
            if extent < 1 or expected not in (VARIABLE, extent):
                break
        else:
            return
    if len(shape) == len(spec.shape) and 0 in shape:
        raise RequestError(
            f"input '{spec.name}' has shape {_text(shape)}: every dimension must be "
            "at least 1"
        )
    any_size = f", where {VARIABLE} is any size" if VARIABLE in spec.shape else ""
    raise RequestError(
        f"input '{spec.name}' has shape {_text(shape)}, expected "
        f"{_text(spec.shape)}{any_size}"
    )


def _agreed(what: str, agreed: int, extent: int, spec: TensorSpec) -> int:
    if agreed not in (0, extent):
        raise RequestError(
            f"input '{spec.name}' has {extent} on its axis of {what}, but the inputs "
            f"before it have {agreed}"
        )
    return extent


def _value_text(value: bytes | memoryview) -> str:
    if len(value) <= VALUE_BYTES_MAX:
        return value.hex()
    return f"sha256:{sha256(value).hexdigest()}"


def _foreign(served: ServedVersion, text: str) -> RequestError:
    return RequestError(
        f"compatibility key {text[:200]!r} is none of model {served.model} version "
        f"{served.version}"
    )


def _text(shape: Iterable[int]) -> str:
    return f"[{','.join(map(str, shape))}]"
