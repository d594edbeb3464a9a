"""Reading from Apache Kafka at positions that the caller chose."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from operator import methodcaller
from typing import Any, Final, NamedTuple, cast

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException

from headrace.broker.connection import (
    FRAMING_BYTES,
    KafkaConnection,
    bus_error,
    error_of,
)
from headrace.broker.interface import LogRange, Record, TopicPartition
from headrace.errors import BusError, OffsetOutOfRange
from headrace.wire.headers import UNREADABLE_HEADERS

__all__ = ["KafkaReader", "ReaderSettings", "at", "reader_config", "record_of"]

_LOOK_AGAIN_S: Final = 0.1
_NO_LEADER: Final = frozenset(
    {
        "FENCED_LEADER_EPOCH",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "UNKNOWN_LEADER_EPOCH",
    }
)
"""What a partition answers while it is made, or moves, or its broker starts."""


class ReaderSettings(NamedTuple):
    """How far a reader reads ahead of its caller.

    ``fetch_wait_ms`` bounds how long a partition that was just assigned waits for
    the fetch under way; a waiting fetch is answered at once when data arrives. A
    broker answers a connection's questions in order, so that one about offsets waits
    behind the fetch: a look (:mod:`headrace.broker.threads`) asks two in its second.
    ``queue_records_min`` and ``queue_bytes_max`` bound what lies in memory unread.
    """

    fetch_wait_ms: int = 100
    fetch_bytes: int = 256 * 1024
    queue_records_min: int = 1000
    queue_bytes_max: int = 64 * 1024 * 1024


class KafkaReader:
    """A group-less reader (:class:`headrace.broker.Reader`).

    One thread makes all its calls: the client serialises its callers unfairly, and a
    call beside a thread that polls in a loop waits for seconds (measured).
    """

    def __init__(
        self,
        connection: KafkaConnection,
        settings: ReaderSettings = ReaderSettings(),  # noqa: B008 - immutable
    ) -> None:
        self._config = reader_config(connection, settings)
        self._client = confluent_kafka.Consumer(self._config)
        self._assigned: dict[TopicPartition, int] = {}
        """By partition where its reading began."""
        self._paused: set[TopicPartition] = set()
        self._pending: list[BusError] = []

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """As :meth:`headrace.broker.Reader.assign`."""
        # An unassigned partition forgets what it read ahead, so that nothing from
        # before the move is returned after it. A pause is taken back first: one that
        # is still on its way could otherwise hold the new assignment.
        self.resume([*positions])
        self.unassign([*positions])
        self._client.incremental_assign(
            [at(partition, offset) for partition, offset in positions.items()]
        )
        self._assigned.update(positions)

    def unassign(self, partitions: Sequence[TopicPartition]) -> None:
        known = self._assigned.keys() & set(partitions)
        if known:
            self._client.incremental_unassign([at(one) for one in known])
            for one in known:
                del self._assigned[one]
            self._paused -= known

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        known = self._assigned.keys() & set(partitions)
        self._client.pause([at(one) for one in known])
        self._paused |= known

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        known = self._assigned.keys() & set(partitions)
        if known:
            self._client.resume([at(one) for one in known])
            self._paused -= known

    def read(self, records_max: int, timeout_s: float) -> list[Record]:
        """As :meth:`headrace.broker.Reader.read`."""
        if self._pending:
            raise self._pending.pop(0)
        # consume(n, t) alone would wait for n records or for the whole time-out.
        first = self._client.poll(timeout_s)
        if first is None:
            return []
        messages = [first]
        if records_max > 1:
            messages += self._client.consume(records_max - 1, 0)
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(record_of(message))
            else:
                self._note(error, message)
        if self._pending and not records:
            raise self._pending.pop(0)
        return records

    def positions(self) -> dict[TopicPartition, int]:
        return {
            one: position
            for one, position in self._positions().items()
            if one not in self._paused
        }

    def _positions(self) -> dict[TopicPartition, int]:
        if not self._assigned:
            return {}
        found = dict(self._assigned)
        for one in self._client.position([at(each) for each in self._assigned]):
            if one.offset >= 0:  # else nothing was read since the assignment
                found[TopicPartition(one.topic, one.partition)] = one.offset
        return found

    def restart(self) -> None:
        """As :meth:`headrace.broker.Reader.restart`."""
        positions, paused = self._positions(), list(self._paused)
        self._client.close()
        self._client = confluent_kafka.Consumer(self._config)
        self._assigned.clear()
        self._paused.clear()
        self.assign(positions)
        self.pause(paused)

    def log_range(self, partition: TopicPartition, timeout_s: float) -> LogRange:
        return self.log_ranges([partition], timeout_s)[partition]

    def log_ranges(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, LogRange]:
        """As :meth:`headrace.broker.Reader.log_ranges`. Partitions that have no leader
        yet are asked again within the time-out."""
        deadline = time.monotonic() + timeout_s
        starts = self._settled(partitions, OFFSET_BEGINNING, deadline)
        ends = self._settled(partitions, OFFSET_END, deadline)
        return {one: LogRange(starts[one], ends[one]) for one in partitions}

    def offsets_since(
        self, partitions: Sequence[TopicPartition], since_us: int, timeout_s: float
    ) -> dict[TopicPartition, int]:
        """As :meth:`headrace.broker.Reader.offsets_since`; without a leader, as
        :meth:`log_ranges`."""
        deadline = time.monotonic() + timeout_s
        # The ends first: what is appended between the two questions is not passed by.
        ends = self._settled(partitions, OFFSET_END, deadline)
        found = self._settled(partitions, max(since_us, 0) // 1000, deadline)
        return {
            one: offset if offset >= 0 else ends[one] for one, offset in found.items()
        }

    def close(self) -> None:
        self._client.close()

    def _settled(
        self, partitions: Sequence[TopicPartition], which: int, deadline: float
    ) -> dict[TopicPartition, int]:
        while True:
            left_s = max(deadline - time.monotonic(), _LOOK_AGAIN_S)
            try:
                return self._offsets(partitions, which, left_s)
            except BusError as error:
                if error.code not in _NO_LEADER or left_s <= _LOOK_AGAIN_S:
                    raise
            time.sleep(_LOOK_AGAIN_S)

    def _offsets(
        self, partitions: Sequence[TopicPartition], which: int, timeout_s: float
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}  # librdkafka takes no question about nothing
        doing = f"offsets of {', '.join(sorted({one.topic for one in partitions}))}"
        try:
            # The logical offsets -2 and -1 are also ListOffsets' timestamps for
            # "earliest" and "latest"; this call asks each broker once for all.
            answers = self._client.offsets_for_times(
                [at(one, which) for one in partitions], timeout_s
            )
        except KafkaException as error:
            raise bus_error(error_of(error), doing) from error
        found = {}
        for answer in answers:
            if answer.error is not None:
                raise bus_error(answer.error, doing)
            found[TopicPartition(answer.topic, answer.partition)] = answer.offset
        return found

    def _note(self, error: KafkaError, message: confluent_kafka.Message) -> None:
        topic, partition = message.topic(), message.partition()
        if error.name() == "_AUTO_OFFSET_RESET":
            assert topic is not None
            assert partition is not None
            one = TopicPartition(topic, partition)
            if one in self._assigned:
                self._pending.append(
                    OffsetOutOfRange(
                        f"{topic} [{partition}]: {error.str()}",
                        topic=topic,
                        partition=partition,
                    )
                )
        elif not error.retriable():
            self._pending.append(bus_error(error, f"read {topic} [{partition}]"))


def reader_config(
    connection: KafkaConnection, settings: ReaderSettings
) -> dict[str, Any]:
    """Of a client that reads without a group."""
    return connection.config() | {
        # Never joined and never committed to; the client wants a name.
        "group.id": f"{connection.client_id}.reader",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_uncommitted",
        "check.crcs": True,
        "fetch.min.bytes": 1,
        "fetch.wait.max.ms": settings.fetch_wait_ms,
        "fetch.error.backoff.ms": 50,
        "fetch.queue.backoff.ms": 5,
        "fetch.message.max.bytes": settings.fetch_bytes,
        "fetch.max.bytes": max(52_428_800, connection.batch_bytes_max + FRAMING_BYTES),
        "receive.message.max.bytes": max(
            100_000_000, 2 * connection.batch_bytes_max + FRAMING_BYTES
        ),
        "queued.min.messages": settings.queue_records_min,
        "queued.max.messages.kbytes": settings.queue_bytes_max // 1024,
    }


def at(
    partition: TopicPartition, offset: int = confluent_kafka.OFFSET_INVALID
) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(partition.topic, partition.partition, offset)


def record_of(message: confluent_kafka.Message) -> Record:
    """The record; :data:`headrace.wire.headers.UNREADABLE_HEADERS` where the name of
    a header is not UTF-8. To be called once for a message."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return Record(
        topic,
        partition,
        offset,
        message.timestamp()[1] * 1000,
        message.key(),
        message.value(),
        _headers(message),
    )


_HEADERS_OF = methodcaller("headers")
"""Of a name that it cannot decode the client gives a list with a hole, and leaves an
exception pending. A call from C raises it; one that the interpreter has specialised
for speed goes on, and the exception comes up wherever the next check is made."""


def _headers(message: confluent_kafka.Message) -> list[tuple[str, bytes | None]]:
    try:
        headers = _HEADERS_OF(message)
    except (UnicodeDecodeError, SystemError):
        return list(UNREADABLE_HEADERS)
    # The client takes headers in more forms than it returns.
    return cast("list[tuple[str, bytes | None]]", headers or [])
