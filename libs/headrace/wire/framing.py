"""Protobuf fields framed and found by hand, so that tensors are not copied.

Tensor bytes are most of every record. A message object would copy them on the way in
and again on the way out; here they stand in one ``b"".join`` when a record is made,
and stay slices of the record's value when it is read. Everything else of a message
goes through the generated classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from google.protobuf.message import DecodeError

__all__ = [
    "CLIENT_ID",
    "RAW_INPUT_CONTENTS",
    "Piece",
    "fields",
    "frame",
    "leading",
    "member_bytes",
    "size_of",
    "uneven",
]

Piece = bytes | memoryview

CLIENT_ID = 3
RAW_INPUT_CONTENTS = 7
"""Fields of ``inference.ModelInferRequest``."""

LENGTH_DELIMITED = 2
VARINT_BYTES_MAX = 10


def frame(number: int, pieces: Sequence[Piece]) -> list[Piece]:
    """A length-delimited field whose content is ``pieces`` one after the other."""
    return [_head(number, size_of(pieces)), *pieces]


def size_of(pieces: Sequence[Piece]) -> int:
    """Bytes of all pieces together."""
    return sum(map(len, pieces))


def member_bytes(pieces: Sequence[Piece], rows: Sequence[int]) -> list[int]:
    """Bytes of each member's piece; empty where they are proportional to its rows."""
    return uneven(list(map(len, pieces)), rows)


def uneven(sizes: list[int], rows: Sequence[int]) -> list[int]:
    """``sizes``; empty where they are proportional to ``rows``."""
    unit, rest = divmod(sizes[0], rows[0])
    even = rest == 0 and sizes == list(map(unit.__mul__, rows))
    return [] if even else sizes


def fields(view: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The top-level fields of a message, by number.

    Raises :class:`google.protobuf.message.DecodeError` at the first field that is not
    length-delimited, or ends after the message.
    """
    at, end = 0, len(view)
    while at < end:
        tag = view[at]
        at += 1
        if tag > 0x7F:
            tag, at = _read_varint(view, at - 1)
        if tag & 7 != LENGTH_DELIMITED:
            raise DecodeError("not a length-delimited field")
        start, at = _content(view, at)
        yield tag >> 3, view[start:at]


def leading(view: memoryview, number: int) -> tuple[list[memoryview], memoryview]:
    """The contents of the fields ``number`` (below 16) that a message begins with,
    and the rest of the message.

    Raises as :func:`fields`.
    """
    tag = number << 3 | LENGTH_DELIMITED
    parts = []
    at, end = 0, len(view)
    while at < end and view[at] == tag:
        start, at = _content(view, at + 1)
        parts.append(view[start:at])
    return parts, view[at:]


def _content(view: memoryview, at: int) -> tuple[int, int]:
    """Where the content lies whose length stands at ``at``."""
    if at >= len(view):
        raise DecodeError("a field without a length")
    size = view[at]
    at += 1
    if size > 0x7F:
        size, at = _read_varint(view, at - 1)
    if at + size > len(view):
        raise DecodeError("a field ends after its message")
    return at, at + size


@lru_cache(1024)
def _head(number: int, size: int) -> bytes:
    return _varint(number << 3 | LENGTH_DELIMITED) + _varint(size)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    number = 0
    for place, byte in enumerate(view[at : at + VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, at + place + 1
    raise DecodeError("a number without an end")
