"""What lies in the simulated log, and how a former decodes a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from headrace.delivery.events import (
    CancelRead,
    KeysRead,
    RequestRead,
    RequestRejected,
)
from headrace.domain import (
    Reason,
    ReplyAddress,
    Request,
    Source,
    Terminal,
    is_final,
)
from headrace.wire.topics import Topics
from tests.delivery.builders import TOPICS

if TYPE_CHECKING:
    from tests.delivery.process import Process

__all__ = [
    "LETHAL",
    "Ask",
    "BatchRecord",
    "Cancel",
    "OpeningRecord",
    "Reply",
    "SyncRecord",
    "keys_read",
    "record_read",
    "reply_partition",
]


LETHAL = "lethal to formers"
"""The kind of a request that ends whoever reads it."""


class Ask(msgspec.Struct, frozen=True):
    """A request record. ``kind``: how it fares on a worker."""

    id: str
    kind: str = "good"
    deadline_log_us: int | None = None
    reply_to: ReplyAddress | None = None
    made_by_us: bool = True
    is_rejected: bool = False
    is_overdue: bool = False


class Cancel(msgspec.Struct, frozen=True):
    """The client of ``ask`` has gone."""

    ask: Ask
    kind: str = "cancel"

    @property
    def id(self) -> str:
        return self.ask.id


class Reply(msgspec.Struct, frozen=True):
    """A successful reply or result, as a worker writes it. ``sources``: the records
    that it answers."""

    ids: tuple[str, ...]
    sources: tuple[Source, ...]


class SyncRecord(msgspec.Struct, frozen=True):
    epoch: int
    former: str
    k: int
    incarnation: int | None = None


class OpeningRecord(msgspec.Struct, frozen=True):
    """The first order of a link."""

    epoch: int
    former: str
    k: int
    incarnation: int


class BatchRecord(msgspec.Struct, frozen=True):
    batch: str
    epoch: int
    former: str
    incarnation: int
    latest_start_log_us: int | None
    members: tuple[Request, ...]


def keys_read(
    log: Mapping[tuple[str, int], Iterable[Reply | Terminal]], now_us: int
) -> KeysRead:
    """What a former finds among the kept answers, later than it may at most: what it
    reads beyond the end of its question's time can only be answers."""
    ended = []
    for record in log.get((TOPICS.results("t", "keyed"), 0), ()):
        if isinstance(record, Reply):
            ended += [(each, now_us) for each in record.ids]
        elif is_final(record.reason):
            ended.append((record.id, now_us))
    return KeysRead(tuple(ended))


def record_read(
    ask: Ask | Cancel, source: Source, reader: Process
) -> RequestRead | CancelRead | RequestRejected:
    """The record at ``source`` as ``reader`` decodes it."""
    if isinstance(ask, Cancel):
        return CancelRead(source, f"t/{ask.id}@{ask.ask.reply_to}")
    reply_to = ask.reply_to
    if ask.is_rejected:
        return RequestRejected(
            source, ask.id, "t", "m", reply_to, Reason.UNDECODABLE, "not ours"
        )
    deadline = ask.deadline_log_us
    request = Request(
        key=f"t/{ask.id}@{reply_to}" if ask.made_by_us else str(source),
        id=ask.id,
        tenant="t",
        model="m",
        version="1",
        shape="",
        rows=1,
        length=0,
        priority=Topics.lane_and_priority(source.partition)[1],
        arrived_us=reader.now_us(),
        deadline_us=None if deadline is None else reader.mono_us(deadline),
        reply_to=reply_to,
        source=source,
        tensors=(ask.kind.encode(),),
        size_bytes=10,
        made_by_us=ask.made_by_us,
    )
    return RequestRead(request, overdue=ask.is_overdue)


def reply_partition(reply_to: ReplyAddress) -> tuple[str, int]:
    return (reply_to.topic, reply_to.partition or 0)
