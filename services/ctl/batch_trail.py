"""What the log says of one batch, gathered record by record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from headrace.domain import Done, Padding, Refused, Source
from headrace.wire import (
    Batch,
    Record,
    TopicKind,
    Topics,
    decode_completion,
    decode_order,
    decode_replies,
    order_of,
)

__all__ = [
    "BatchTrail",
    "FollowBatch",
    "MemberTrail",
    "Ordered",
    "RanTrail",
    "SentTrail",
]


class Ordered(NamedTuple):
    """An order to a worker slot. One that is linked went past the log: its worker
    says at the batch's end what it was, and ``at_us`` is when that had it."""

    at_us: int
    slot: int
    batch: Batch
    is_linked: bool

    @classmethod
    def logged(cls, record: Record, batch: Batch) -> Ordered:
        return cls(record.timestamp_us, record.partition, batch, is_linked=False)

    @classmethod
    def linked(cls, record: Record, done: Done) -> Ordered | None:
        """Raises :class:`headrace.errors.UndecodableRecord`."""
        batch = order_of(done)
        if batch is None:
            return None
        since_us = done.wait_us + done.run_us + done.output_us
        return cls(record.timestamp_us - since_us, done.slot, batch, is_linked=True)


class SentTrail(msgspec.Struct, frozen=True):
    """How a former made a batch; instants are log time, as :class:`Ordered` says."""

    at_us: int
    lane: int
    epoch: int
    former: str
    slot: int
    incarnation: int
    release_reason: str
    padded_rows: int
    padding_waste: float
    """Part of what is computed that is padding, of rows and of lengths."""

    predicted_us: int
    latest_start_us: int | None
    lease_us: int
    is_linked: bool
    """It went to its worker past the log."""


class RanTrail(msgspec.Struct, frozen=True):
    """What a worker says of it. ``waited_us``: from the record's arrival to the run;
    ``run_us`` 0: there was none."""

    at_us: int
    slot: int
    incarnation: int
    waited_us: int
    input_us: int
    run_us: int
    output_us: int


class MemberTrail(msgspec.Struct, frozen=True):
    """One request in a batch. ``queued_us``: from its record to the batch's; None and
    empty: the log no longer says so, or not yet."""

    id: str
    source: Source
    tenant: str = ""
    rows: int | None = None
    length: int | None = None
    attempt: int | None = None
    queued_us: int | None = None
    status: str = ""
    reason: str = ""


class BatchTrail(msgspec.Struct, frozen=True):
    """``sent`` or ``ran`` None: there is no such record, or no longer."""

    batch: str
    model: str
    version: str
    rows: int
    sent: SentTrail | None
    ran: RanTrail | None
    replied_us: int | None
    refused: str
    """Why a worker did not take it."""

    members: list[MemberTrail]


class FollowBatch:
    """Picks the records of one batch (32 hex digits) out of others.

    ``take`` raises :class:`headrace.errors.UndecodableRecord`.
    """

    kinds = frozenset({TopicKind.BATCHES, TopicKind.COMPLETIONS, TopicKind.REPLIES})

    def __init__(self, topics: Topics, batch: str) -> None:
        self._topics = topics
        self._batch = batch
        self._bytes = bytes.fromhex(batch)
        self.ended_us: int | None = None
        """When its last word was appended."""

        self._sent: Ordered | None = None
        self._ran: tuple[Record, Done] | None = None
        self._refused = ""
        self._replied_us: int | None = None

    @property
    def is_found(self) -> bool:
        return self._sent is not None or self._ran is not None

    @property
    def version(self) -> tuple[str, str]:
        """Model and version."""
        if self._sent is not None:
            return self._sent.batch.model, self._sent.batch.version
        if self._ran is not None:
            return self._ran[1].model, self._ran[1].version
        return "", ""

    @property
    def sources(self) -> list[Source]:
        """Where its members' records lie."""
        if self._sent is not None:
            return list(self._sent.batch.sources)
        if self._ran is not None:
            return [member.source for member in self._ran[1].members]
        return []

    def may_concern(self, record: Record) -> bool:
        return self._bytes in (record.value or b"")

    def take(self, record: Record) -> None:
        match self._topics.kind_of(record.topic):
            case TopicKind.BATCHES:
                order = decode_order(record)
                if isinstance(order, Batch) and order.batch == self._batch:
                    self._sent = Ordered.logged(record, order)
            case TopicKind.COMPLETIONS:
                self._complete(record)
            case TopicKind.REPLIES:
                replies = decode_replies(record)
                if replies is not None and replies.batch == self._batch:
                    self._replied_us = max(self._replied_us or 0, record.timestamp_us)
            case _:
                pass

    def trail(
        self, asked_us: Mapping[Source, int], padding: Padding | None
    ) -> BatchTrail:
        """``asked_us``: append times of its members' records, as far as the log has
        them; ``padding``: of its version."""
        model, version = self.version
        sent = ran = None
        rows = 0
        if self._ran is not None:
            ran, rows = _ran(*self._ran), self._ran[1].rows
        if self._sent is not None:
            sent, rows = _sent(self._sent, padding), sum(self._sent.batch.rows)
        return BatchTrail(
            batch=self._batch,
            model=model,
            version=version,
            rows=rows,
            sent=sent,
            ran=ran,
            replied_us=self._replied_us,
            refused=self._refused,
            members=self._members(asked_us),
        )

    def _complete(self, record: Record) -> None:
        match decode_completion(record):
            case Done(batch=self._batch) as done:
                self._ran = record, done
                self._sent = self._sent or Ordered.linked(record, done)
                self.ended_us = record.timestamp_us
            case Refused(batch=self._batch, reason=reason):
                self._refused = reason
                self.ended_us = record.timestamp_us
            case _:
                pass

    def _members(self, asked_us: Mapping[Source, int]) -> list[MemberTrail]:
        members: dict[Source, MemberTrail] = {}
        if self._sent is not None:
            batch = self._sent.batch
            for number, source in enumerate(batch.sources):
                began_us = asked_us.get(source)
                members[source] = MemberTrail(
                    id=batch.ids[number],
                    source=source,
                    tenant=batch.tenants[number],
                    rows=batch.rows[number],
                    length=batch.lengths[number] if batch.lengths else None,
                    attempt=batch.attempts[number],
                    queued_us=None if began_us is None else self._sent.at_us - began_us,
                )
        if self._ran is not None:
            for each in self._ran[1].members:
                known = members.get(each.source, MemberTrail(each.id, each.source))
                members[each.source] = msgspec.structs.replace(
                    known, status=each.status, reason=each.reason
                )
        return list(members.values())


def _sent(sent: Ordered, padding: Padding | None) -> SentTrail:
    batch, stamp = sent.batch, sent.batch.stamp
    return SentTrail(
        at_us=sent.at_us,
        lane=stamp.lane,
        epoch=stamp.epoch,
        former=stamp.former,
        slot=sent.slot,
        incarnation=stamp.incarnation,
        release_reason=batch.release_reason,
        padded_rows=batch.padded_rows,
        padding_waste=_waste(batch, padding),
        predicted_us=batch.predicted_us,
        latest_start_us=stamp.latest_start_us,
        lease_us=stamp.lease_us,
        is_linked=sent.is_linked,
    )


def _waste(batch: Batch, padding: Padding | None) -> float:
    edge = 1
    lengths = [1] * len(batch.rows)
    if batch.lengths and padding is not None:
        lengths = batch.lengths
        edge = padding.edge(max(lengths))
    asked = sum(map(int.__mul__, batch.rows, lengths))
    return 1 - asked / (max(batch.padded_rows, sum(batch.rows)) * edge)


def _ran(record: Record, done: Done) -> RanTrail:
    return RanTrail(
        at_us=record.timestamp_us,
        slot=done.slot,
        incarnation=done.incarnation,
        waited_us=done.wait_us,
        input_us=done.input_us,
        run_us=done.run_us,
        output_us=done.output_us,
    )
