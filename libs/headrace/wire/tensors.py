"""A tensor's elements: JSON and typed contents <-> the protocol's raw form.

Raw: little-endian, row-major, no padding; ``BOOL`` one byte; ``BYTES`` a 4-byte
little-endian length before each element. Whatever does not fit raises
:class:`headrace.errors.RequestError` with the tensor, what was expected and what came.
Nothing is converted silently: no bool for a number, no float for an integer, no
number that would become infinite.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from itertools import chain
from math import prod

import msgspec

from headrace.domain import Datatype
from headrace.errors import RequestError

__all__ = [
    "ELEMENTS_MAX",
    "HAVE_RULES",
    "RANK_MAX",
    "check_raw",
    "check_shape",
    "check_size",
    "pack",
    "pack_bytes",
    "parse_json_data",
    "to_json",
    "unpack_bytes",
]

RANK_MAX = 32
"""Most dimensions of a tensor; more are refused."""

ELEMENTS_MAX = 2**31 - 1
"""Most elements of a tensor; a shape that asks for more is refused unread."""

LENGTH_BYTES = 4

_FORMATS = {
    Datatype.UINT8: "B",
    Datatype.UINT16: "H",
    Datatype.UINT32: "I",
    Datatype.UINT64: "Q",
    Datatype.INT8: "b",
    Datatype.INT16: "h",
    Datatype.INT32: "i",
    Datatype.INT64: "q",
    Datatype.FP32: "f",
    Datatype.FP64: "d",
}
"""Of numbers that :mod:`struct` packs and JSON has a form for."""

_NUMBERS = frozenset({int, float})
_ELEMENTS: dict[Datatype, tuple[frozenset[type], str]] = {
    **dict.fromkeys(_FORMATS, (frozenset({int}), "an integer")),
    Datatype.FP32: (_NUMBERS, "a number"),
    Datatype.FP64: (_NUMBERS, "a number"),
    Datatype.BOOL: (frozenset({bool}), "true or false"),
    Datatype.BYTES: (frozenset({str}), "a string"),
}

_JSON_WORDS = {type(None): "null", dict: "an object", list: "a list"}


def check_shape(name: str, shape: object) -> tuple[int, ...]:
    """A shape as JSON gave it, as a tuple."""
    if not isinstance(shape, list | tuple):
        raise RequestError(f"tensor '{name}': shape must be a list of integers")
    for extent in shape:
        if type(extent) is not int:
            raise RequestError(
                f"tensor '{name}': shape {_clip(shape)} must hold integers alone",
                logged=f"tensor '{name}': shape must hold integers alone",
            )
        if extent < 1:
            raise RequestError(
                f"tensor '{name}': shape {_clip(shape)} must hold dimensions of at "
                "least 1"
            )
    if len(shape) > RANK_MAX:
        raise RequestError(
            f"tensor '{name}': shape has {len(shape)} dimensions, at most {RANK_MAX} "
            "are supported"
        )
    if prod(shape) > ELEMENTS_MAX:
        raise RequestError(
            f"tensor '{name}': shape {_clip(shape)} has more than {ELEMENTS_MAX} "
            "elements"
        )
    return tuple(shape)


def parse_json_data(
    name: str, datatype: Datatype, shape: tuple[int, ...], data: object
) -> bytes:
    """Raw contents of JSON ``data``: flat in row-major order, or nested as ``shape``.

    ``data`` is what a JSON parser made: lists, numbers, strings, bools, None.
    """
    if datatype not in _ELEMENTS:
        raise RequestError(
            f"tensor '{name}': {datatype} has no JSON form, send {datatype} as binary "
            "tensor data"
        )
    elements = _flat(name, shape, data)
    if len(elements) != prod(shape):
        raise RequestError(
            f"tensor '{name}': data has {len(elements)} elements, expected "
            f"{prod(shape)} (shape {_clip(shape)})"
        )
    allowed, expected = _ELEMENTS[datatype]
    if not allowed.issuperset(map(type, elements)):
        raise _wrong_type(name, elements, allowed, expected)
    if datatype is Datatype.BYTES:
        return pack_bytes(_utf8(name, elements))
    return pack(name, datatype, elements)


def pack(name: str, datatype: Datatype, elements: Sequence[object]) -> bytes:
    """Raw contents of numbers or bools, in row-major order."""
    if datatype is Datatype.BOOL:
        return bytes(map(bool, elements))
    code = _FORMATS[datatype]
    try:
        return struct.pack(f"<{len(elements)}{code}", *elements)
    except (struct.error, OverflowError) as error:
        raise _does_not_fit(name, datatype, elements) from error


def pack_bytes(elements: Iterable[bytes]) -> bytes:
    """The raw form of ``BYTES`` elements."""
    return b"".join(
        chain.from_iterable(
            (len(element).to_bytes(LENGTH_BYTES, "little"), element)
            for element in elements
        )
    )


def unpack_bytes(name: str, raw: bytes | memoryview) -> list[bytes]:
    """The elements of a raw ``BYTES`` tensor."""
    elements: list[bytes] = []
    at, end = 0, len(raw)
    while at < end:
        start = at + LENGTH_BYTES
        at = start + int.from_bytes(raw[start - LENGTH_BYTES : start], "little")
        if at > end:
            raise RequestError(
                f"tensor '{name}': BYTES element {len(elements)} ends at byte {at}, "
                f"but the tensor has {end}"
            )
        elements.append(bytes(raw[start:at]))
    return elements


def check_size(
    name: str, datatype: Datatype, shape: tuple[int, ...], raw: bytes | memoryview
) -> None:
    """Hold the number of elements against ``shape``; no element is looked at."""
    count = prod(shape)
    item_bytes = datatype.item_bytes
    if item_bytes is not None:
        if len(raw) != count * item_bytes:
            raise RequestError(
                f"tensor '{name}': got {len(raw)} bytes, expected "
                f"{count * item_bytes} ({datatype} {_clip(shape)})"
            )
        return
    elements = unpack_bytes(name, raw)
    if len(elements) != count:
        raise RequestError(
            f"tensor '{name}': got {len(elements)} BYTES elements, expected {count} "
            f"(shape {_clip(shape)})"
        )


HAVE_RULES = frozenset({Datatype.BYTES, Datatype.BOOL})
"""Their contents can be wrong though their size is right (:func:`check_raw`)."""


def check_raw(
    name: str, datatype: Datatype, shape: tuple[int, ...], raw: bytes | memoryview
) -> None:
    """As :func:`check_size`; and ``BYTES`` must be UTF-8, ``BOOL`` 0 or 1."""
    check_size(name, datatype, shape, raw)
    if datatype is Datatype.BYTES:
        for index, element in enumerate(unpack_bytes(name, raw)):
            try:
                element.decode()
            except UnicodeDecodeError as error:
                raise RequestError(
                    f"tensor '{name}': BYTES element {index} is not UTF-8 (at its "
                    f"byte {error.start}: {error.reason})"
                ) from error
    elif datatype is Datatype.BOOL and bytes(raw).translate(None, b"\0\1"):
        raise RequestError(f"tensor '{name}': a BOOL is a byte of value 0 or 1")


def to_json(name: str, datatype: Datatype, raw: bytes | memoryview) -> bytes:
    """The flat JSON array of a tensor, NaN and infinities as bare tokens.

    An FP32 is written with the digits of its exact value.
    """
    if datatype is Datatype.BYTES:
        return msgspec.json.encode(_texts(name, raw))
    if datatype is Datatype.BOOL:
        return msgspec.json.encode([byte != 0 for byte in raw])
    if datatype not in _FORMATS:
        raise RequestError(
            f"tensor '{name}': {datatype} has no JSON form, ask for binary data"
        )
    code = _FORMATS[datatype]
    elements = struct.unpack(f"<{len(raw) // struct.calcsize(code)}{code}", raw)
    text = msgspec.json.encode(elements)
    if b"null" in text:  # msgspec writes null for what JSON has no number for
        return json.dumps(elements, separators=(",", ":")).encode()
    return text


def _texts(name: str, raw: bytes | memoryview) -> list[str]:
    try:
        return [element.decode() for element in unpack_bytes(name, raw)]
    except UnicodeDecodeError as error:
        raise RequestError(
            f"tensor '{name}': an element is not UTF-8 (at its byte {error.start}: "
            f"{error.reason}), so it has no JSON form: ask for binary data"
        ) from error


def _flat(name: str, shape: tuple[int, ...], data: object) -> list[object]:
    if not isinstance(data, list):
        raise RequestError(f"tensor '{name}': data must be a list")
    if not data or type(data[0]) is not list:
        return data
    level: list[object] = [data]
    for extent in shape:
        following: list[object] = []
        for inner in level:
            if type(inner) is not list or len(inner) != extent:
                raise RequestError(
                    f"tensor '{name}': data is nested otherwise than its shape "
                    f"{_clip(shape)}"
                )
            following += inner
        level = following
    return level


def _utf8(name: str, elements: Iterable[object]) -> Iterable[bytes]:
    for index, element in enumerate(elements):
        try:
            yield str(element).encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"tensor '{name}': element {index} is not valid Unicode (at its "
                f"character {error.start}: {error.reason})"
            ) from error


def _wrong_type(
    name: str, elements: Sequence[object], allowed: frozenset[type], expected: str
) -> RequestError:
    index, element = next(
        (index, element)
        for index, element in enumerate(elements)
        if type(element) not in allowed
    )
    got = _JSON_WORDS.get(type(element)) or _clip(element)
    return RequestError(
        f"tensor '{name}': element {index} is {got}, expected {expected}",
        logged=f"tensor '{name}': element {index} is not {expected}",
    )


def _does_not_fit(
    name: str, datatype: Datatype, elements: Sequence[object]
) -> RequestError:
    code = _FORMATS[datatype]
    for index, element in enumerate(elements):
        try:
            struct.pack(f"<{code}", element)
        except (struct.error, OverflowError):
            return RequestError(
                f"tensor '{name}': element {index} ({_clip(element)}) does not fit "
                f"{datatype}",
                logged=f"tensor '{name}': element {index} does not fit {datatype}",
            )
    raise AssertionError("every element fits by itself")


def _clip(value: object) -> str:
    text = json.dumps(value, separators=(",", ":"))
    return text if len(text) <= 60 else f"{text[:57]}..."
