"""What an auditor takes from the log, whoever wrote it.

``place`` is where the record lies, ``at_us`` its append time. Answers are told apart by
the digest of what they say, so that none of them has to be kept.
"""

from __future__ import annotations

import msgspec

from headrace.domain import ReplyAddress, Source

__all__ = [
    "Answer",
    "Answered",
    "Asked",
    "Cancelled",
    "Claimed",
    "Committed",
    "DeadLettered",
    "Ended",
    "Event",
    "Evidence",
    "Ran",
    "Resulted",
]


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A record of a request topic that has to end. ``deadline_us`` None: it has none.
    ``redriven``: an operator has put it back, so that what its id got before does not
    count for it. ``is_address_gone``: its job's topic of answers was deleted.
    ``is_keyed``: it has an idempotency key, and its answer is kept."""

    place: Source
    at_us: int
    id: str
    tenant: str
    model: str
    address: ReplyAddress | None
    deadline_us: int | None
    made_by_us: bool = True
    redriven: bool = False
    is_address_gone: bool = False
    is_keyed: bool = False


class Answer(msgspec.Struct, frozen=True, gc=False):
    """``digest`` of a success; None: an error, with its ``reason``."""

    id: str
    tenant: str
    digest: bytes | None
    reason: str = ""


class Answered(msgspec.Struct, frozen=True):
    """A record of many replies; the address that it answers is where it lies."""

    place: Source
    at_us: int
    answers: tuple[Answer, ...]


class Resulted(msgspec.Struct, frozen=True, gc=False):
    """A plain reply, which names the record that it answers, and its ``id``."""

    place: Source
    at_us: int
    source: Source
    digest: bytes | None
    reason: str = ""
    id: str = ""


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A plain success of ``id`` that names a record which the log never held."""

    place: Source
    at_us: int
    id: str
    digest: bytes


class DeadLettered(msgspec.Struct, frozen=True, gc=False):
    place: Source
    at_us: int
    source: Source
    reason: str


class Ended(msgspec.Struct, frozen=True, gc=False):
    """Ranges of stale requests; first and last are inclusive."""

    place: Source
    at_us: int
    topic: str
    partition: int
    ranges: tuple[tuple[int, int], ...]


class Ran(msgspec.Struct, frozen=True, gc=False):
    """A worker says of these requests that their answers are acked. That is evidence
    where no answer was asked for, and nowhere else."""

    place: Source
    at_us: int
    sources: tuple[Source, ...]


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    """It ends the request of an ingress or a publisher that has all three."""

    place: Source
    at_us: int
    id: str
    tenant: str
    address: ReplyAddress | None


class Committed(msgspec.Struct, frozen=True, gc=False):
    """The lane group committed ``offset`` of a request partition."""

    place: Source
    at_us: int
    topic: str
    partition: int
    offset: int
    metadata: str


Evidence = Answered | Resulted | Claimed | DeadLettered | Ended | Ran | Cancelled
Event = Asked | Evidence | Committed
