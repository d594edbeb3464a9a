"""What is read from the log, decoded on the readers' threads for the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from headrace.broker import Reader, ReaderThread, TopicPartition
from headrace.errors import BusError, OffsetOutOfRange, UndecodableRecord
from headrace.telemetry import ProcessMetrics, get_log
from headrace.wire import (
    Announcement,
    Heartbeat,
    Record,
    Replies,
    decode_json,
    decode_replies,
    parse_announcement_key,
)

__all__ = ["Decoder", "Heard", "ReplyListener", "Withdrawn"]

RANGE_TIMEOUT_S = 10

T = TypeVar("T")


class Heard(NamedTuple):
    """A heartbeat, and the log time of its record."""

    heartbeat: Heartbeat
    log_us: int


class Withdrawn(NamedTuple):
    """A version left a worker slot for good."""

    model: str
    version: str
    slot: int


class Decoder:
    """Records to values; a broken one is counted, logged and skipped."""

    def __init__(self, metrics: ProcessMetrics) -> None:
        self._metrics = metrics
        self._log = get_log()

    def replies(self, records: list[Record]) -> list[Replies]:
        return [
            replies
            for record in records
            if (replies := self._decoded("replies", decode_replies, record)) is not None
        ]

    def heartbeats(self, records: list[Record]) -> list[Heard]:
        return [
            Heard(heartbeat, record.timestamp_us)
            for record in records
            if (heartbeat := self._decoded("status", _heartbeat, record)) is not None
        ]

    def announcements(self, records: list[Record]) -> list[Announcement | Withdrawn]:
        changes: list[Announcement | Withdrawn] = []
        for record in records:
            change = self._decoded("control.models", _change, record)
            if change is not None:
                changes.append(change)
        return changes

    def failed(self, error: BusError) -> None:
        """The log answered a reader with an error; the reader goes on."""
        self._log.warning("read.failed", code=error.code, text=str(error))

    def _decoded(
        self, kind: str, decode: Callable[[Record], T], record: Record
    ) -> T | None:
        try:
            return decode(record)
        except UndecodableRecord as error:
            self._metrics.undecodable.labels(kind).inc()
            self._log.warning(
                "record.undecodable",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                text=str(error),
            )
            return None


class ReplyListener:
    """Reads this slot's reply partition from its present end on. ``take`` gets each
    batch of records, ``listening`` is called once the position is fixed; both on the
    reader's thread."""

    def __init__(
        self,
        reader: Reader,
        partition: TopicPartition,
        *,
        take: Callable[[list[Record]], None],
        fail: Callable[[BusError], None],
        listening: Callable[[], None],
    ) -> None:
        self._partition = partition
        self._report = fail
        self._listening = listening
        self._is_assigned = False
        self._thread = ReaderThread("replies", reader, take, self._fail)

    def start(self) -> None:
        self._thread.do(self._assign)
        self._thread.start()

    def stop(self) -> None:
        """As :meth:`headrace.broker.ReaderThread.stop`."""
        self._thread.stop()

    def _assign(self, reader: Reader) -> None:
        # At a number: a logical end would be looked up at the first fetch, when the
        # first requests may have been answered already.
        end = reader.log_range(self._partition, RANGE_TIMEOUT_S).end
        reader.assign({self._partition: end})
        self._is_assigned = True
        self._listening()

    def _fail(self, error: BusError) -> None:
        self._report(error)
        if isinstance(error, OffsetOutOfRange) or not self._is_assigned:
            self._thread.do(self._assign)


def _heartbeat(record: Record) -> Heartbeat:
    return decode_json(Heartbeat, record)


def _change(record: Record) -> Announcement | Withdrawn:
    if record.value is None:
        return Withdrawn(*parse_announcement_key(record.key))
    return decode_json(Announcement, record)
