"""A request as the batch former holds it, and where its reply goes."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec

__all__ = ["PayloadRef", "Priority", "ReplyAddress", "Request", "Source"]


class Priority(IntEnum):
    """Strict order of urgency; also the partition's place within a lane."""

    REALTIME = 0
    INTERACTIVE = 1
    STANDARD = 2
    BULK = 3


class Source(NamedTuple):
    """Where a record lies in the log."""

    topic: str
    partition: int
    offset: int


class ReplyAddress(NamedTuple):
    """Where a reply is written.

    With a partition: an ingress reads it, and replies of one batch share a record.
    Without: one plain record per request, keyed by its id.
    """

    topic: str
    partition: int | None


class PayloadRef(NamedTuple):
    """An object of the payload store in place of tensors: their raw contents, one after
    the other. ``name`` is its path below the store, ``sha256`` in hex."""

    name: str
    sha256: str
    sizes: tuple[int, ...]
    """Bytes of each tensor."""

    @property
    def length(self) -> int:
        return sum(self.sizes)


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request, decoded from its record. A msgspec struct, since one is made for
    every request of the platform (0.3 µs against 3 µs for a frozen dataclass).

    Instants are microseconds of the holder's monotonic clock.
    """

    key: str
    """Identity within a lane: tenant, id and address of an ingress's or a
    publisher's request, and the dead letter that was put back by its record; topic,
    partition and offset of a hand-made record."""

    id: str
    """``ce_id`` as sent; returned with the reply, never identity by itself."""

    tenant: str
    model: str
    version: str
    """The version to run, resolved; never empty."""

    shape: str
    """Compatibility key: only requests with equal ``(model, version, shape)`` share
    a batch (:mod:`headrace.wire.compatibility`)."""

    rows: int
    """Rows on the batch axis, at least 1."""

    length: int
    """Extent on the padded axis before padding; 0 for a model without one."""

    priority: Priority
    arrived_us: int
    """When the record was appended, on the holder's clock."""

    deadline_us: int | None
    """None: bulk, which waits as long as it must."""

    reply_to: ReplyAddress | None
    source: Source
    tensors: tuple[bytes | memoryview, ...]
    """Raw contents in the order of the signature's inputs; none where they are in the
    payload store."""

    size_bytes: int
    """Bytes of the tensors together, wherever they are."""

    attempt: int = 1
    group: str = ""
    """Not empty: shares a batch with requests of the same group alone, since it is a
    part of a batch that failed, or by itself under suspicion."""

    avoid: int | None = None
    """A worker slot to avoid where another one is usable."""

    made_by_us: bool = True
    """False for a record put on the topic by hand: never a duplicate of another."""

    client_id: str = ""
    """The body's ``id``, for a plain reply record."""

    payload: PayloadRef | None = None
    """Where the tensors are, if they are not here; in the order of the signature."""

    body_sha256: str = ""
    """What an idempotency key stands for; empty: there is no key."""

    is_redriven: bool = False
    """Put back by an operator, to run whatever its id got before."""
