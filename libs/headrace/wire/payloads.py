"""References to tensors that are too large for a record (a claim check).

``inf-dataref: <name>;sha256=<hex>;length=<bytes>[;sizes=<bytes>,...]`` names an object
below the payload store that every process is told of, never an address: whoever may
write a record cannot make a worker read anything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate, pairwise

import msgspec

from headrace.domain import PayloadRef, Tensor
from headrace.errors import RequestError
from headrace.wire import headers as names
from headrace.wire._generated import headrace_pb2 as pb

__all__ = [
    "NAME_CHARACTERS_MAX",
    "dataref_bytes",
    "is_object_name",
    "object_hour",
    "object_name",
    "payload_message",
    "payloads_of",
    "read_dataref",
    "tensors_from",
    "views_of",
]

NAME_CHARACTERS_MAX = 512
TENSORS_MAX = 1024
"""Most sizes that a reference may have."""

_PART = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
_NAME = re.compile(rf"{_PART}(/{_PART})*")
_FORM = re.compile(
    r"(?P<name>[^;]+);sha256=(?P<sha256>[0-9a-f]{64});length=(?P<length>[0-9]{1,15})"
    r"(;sizes=(?P<sizes>[0-9]{1,15}(,[0-9]{1,15})*))?"
)
_HOUR = "%Y%m%dT%H"


def is_object_name(name: str) -> bool:
    """Whether it stays below the store: no empty part, and none that begins with a
    dot."""
    return len(name) <= NAME_CHARACTERS_MAX and _NAME.fullmatch(name) is not None


def object_name(at_us: int, tenant: str, own: str) -> str:
    """A name that begins with the hour in which the object was made, by which it is
    deleted; ``own`` must be unique."""
    return f"{object_hour(at_us)}/{tenant}/{own}"


def object_hour(at_us: int) -> str:
    """The part of names by which they are ordered in time."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime(_HOUR)


def dataref_bytes(ref: PayloadRef) -> bytes:
    """The header's value."""
    sizes = ",".join(map(str, ref.sizes))
    return f"{ref.name};sha256={ref.sha256};length={ref.length};sizes={sizes}".encode()


def read_dataref(headers: Mapping[str, bytes | None]) -> PayloadRef | None:
    """None: the record has its tensors itself. Without ``sizes`` there is one, of the
    whole length, which its reader divides.

    Raises :class:`headrace.errors.RequestError`.
    """
    text = names.text(headers, names.DATAREF)
    if not text:
        return None
    found = _FORM.fullmatch(text)
    if found is None or not is_object_name(found["name"]):
        raise RequestError(
            f"{names.DATAREF} is {text[:120]!r}, expected <name below the payload "
            "store>;sha256=<64 hex digits>;length=<bytes>[;sizes=<bytes>,...]"
        )
    length = int(found["length"])
    sizes = tuple(map(int, (found["sizes"] or found["length"]).split(",")))
    if sum(sizes) != length or len(sizes) > TENSORS_MAX:
        raise RequestError(
            f"{names.DATAREF} has {len(sizes)} sizes (at most {TENSORS_MAX}) of "
            f"{sum(sizes)} bytes together for a length of {length}"
        )
    return PayloadRef(found["name"], found["sha256"], sizes)


def views_of(ref: PayloadRef, content: memoryview) -> Iterator[memoryview]:
    """The tensors in an object's content, which has the reference's length."""
    bounds = pairwise(accumulate(ref.sizes, initial=0))
    return (content[start:end] for start, end in bounds)


def tensors_from(
    ref: PayloadRef, described: Sequence[Tensor], content: memoryview
) -> tuple[Tensor, ...]:
    """``described``, which lack their data, with it.

    Raises ValueError where the reference is of another number of tensors.
    """
    return tuple(
        msgspec.structs.replace(tensor, data=data)
        for tensor, data in zip(described, views_of(ref, content), strict=True)
    )


def payload_message(member: int, ref: PayloadRef) -> pb.Payload:
    """A reference in an envelope."""
    return pb.Payload(
        member=member,
        name=ref.name,
        sha256=bytes.fromhex(ref.sha256),
        sizes=ref.sizes,
    )


def payloads_of(messages: Iterable[pb.Payload], members: int) -> dict[int, PayloadRef]:
    """The references of an envelope by member. Raises ValueError."""
    found = {
        each.member: PayloadRef(each.name, each.sha256.hex(), tuple(each.sizes))
        for each in messages
    }
    if any(not 0 <= member < members for member in found):
        raise ValueError(f"a payload of a member beyond {members}")
    return found
