"""Requests of a form that was read before.

An ingress writes the same headers again and again: only id, deadline and time differ,
which come first, and the tensors' values. What the others say, and where the tensors
lie in the value, is found out once; a record that differs in anything else is read the
long way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from headrace.domain import (
    Request,
    RequestRead,
    ServedVersion,
)
from headrace.wire.framing import RAW_INPUT_CONTENTS, frame
from headrace.wire.headers import (
    DIGITS_MAX,
    REQUEST_HEADERS,
    VARYING,
)
from headrace.wire.records import Record

__all__ = ["FormKey", "KnownForm", "form_key", "learn", "read_known"]

FormKey = tuple[object, ...]

_ID, _DEADLINE, _TIME = range(3)
_COMMON = frozenset(REQUEST_HEADERS)


class KnownForm(NamedTuple):
    """What a record says by its form, and its value's bytes around the tensors."""

    served: ServedVersion
    request: Request
    """One of this form; id, key, instants, place and tensors are another's."""

    before_id: str
    after_id: str
    """The request's key around its id."""

    size: int
    frames: tuple[tuple[bytes, int, int], ...]
    """Of each tensor: the bytes up to it from the last one, its start and its end."""


def form_key(record: Record) -> tuple[FormKey, Sequence[bytes | None]] | None:
    """The form of a record with the headers of an ingress alone, and their values;
    None for any other."""
    if not record.headers:
        return None
    names, values = zip(*record.headers, strict=True)
    if not _is_of_form(names):
        return None
    return (record.topic, record.partition, names, values[3:]), values


@lru_cache(256)
def _is_of_form(names: tuple[str, ...]) -> bool:
    """Whatever differs from one request to the next is among the first three."""
    return (
        names[:3] == VARYING
        and len(set(names)) == len(names)
        and _COMMON.issuperset(names)
    )


def learn(record: Record, read: RequestRead, served: ServedVersion) -> KnownForm | None:
    """The form of a request that was read the long way; None where its value is not
    written as an ingress does, or has an id of the client's."""
    request, value = read.request, record.value
    before, found, after = request.key.partition(request.id)
    if not request.made_by_us or request.client_id or not found or value is None:
        return None
    heads = [frame(RAW_INPUT_CONTENTS, [raw])[0] for raw in request.tensors]
    at = len(value) - sum(map(len, heads)) - request.size_bytes
    frames = []
    start = 0
    for head, raw in zip(heads, request.tensors, strict=True):
        at += len(head)
        if value[at - len(head) : at] != head or value[at : at + len(raw)] != raw:
            return None
        frames.append((value[start:at], at, at + len(raw)))
        start = at = at + len(raw)
    return KnownForm(served, request, before, after, len(value), tuple(frames))


def read_known(
    known: KnownForm, record: Record, values: Sequence[bytes | None]
) -> tuple[str, int, tuple[memoryview, ...]] | None:
    """Id, deadline in log time and tensors; None: read it the long way."""
    raw_id, raw_deadline, value = values[_ID], values[_DEADLINE], record.value
    if (
        raw_id is None
        or raw_deadline is None
        or value is None
        or len(value) != known.size
        or len(raw_id) != len(known.request.id)
        or not raw_id.isalnum()
        or not raw_deadline.isdigit()
        or len(raw_deadline) > DIGITS_MAX
    ):
        return None
    view = memoryview(value)
    tensors = []
    start = 0
    for head, begin, end in known.frames:
        if value[start:begin] != head:
            return None
        tensors.append(view[begin:end])
        start = end
    return raw_id.decode(), int(raw_deadline), tuple(tensors)
