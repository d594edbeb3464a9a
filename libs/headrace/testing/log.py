"""A log in memory with the promises and the refusals of Apache Kafka.

One contract suite (``tests/broker``) holds it and the real one to the same behaviour.
Its append clock is a :class:`ManualClock`, its outages are set by the test, and its
lane groups are in :mod:`headrace.testing.group`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from zlib import crc32

from headrace.broker import (
    Delivery,
    Headers,
    LeaderListener,
    LogRange,
    NewTopic,
    Record,
    TopicPartition,
)
from headrace.broker.admin import check_config
from headrace.errors import (
    BusError,
    BusFull,
    BusTimeout,
    OffsetOutOfRange,
)
from headrace.testing.clock import ManualClock
from headrace.testing.group import MemoryGroup, MemoryLeader
from headrace.testing.storage import Outage, Partition, Sent, Storage

__all__ = ["MemoryAdmin", "MemoryBroker", "MemoryProducer", "MemoryReader"]


class MemoryBroker:
    """One cluster. Objects that it hands out may be used from several threads, each
    with the rules of the broker interface."""

    def __init__(
        self, clock: ManualClock, *, record_bytes_max: int = 17_825_792
    ) -> None:
        self.clock = clock
        self._storage = Storage(clock, record_bytes_max)
        self._groups: dict[str, MemoryGroup] = {}

    @property
    def outage(self) -> Outage | None:
        """None: the broker answers."""
        return self._storage.outage

    @outage.setter
    def outage(self, outage: Outage | None) -> None:
        self._storage.outage = outage

    def producer(
        self, *, timeout_us: int = 2_000_000, queue_records_max: int = 50_000
    ) -> MemoryProducer:
        return MemoryProducer(self._storage, timeout_us, queue_records_max)

    def reader(self) -> MemoryReader:
        return MemoryReader(self._storage)

    def admin(self) -> MemoryAdmin:
        return MemoryAdmin(self._storage)

    def leader(
        self, *, group: str, instance_id: str, topic: str, listener: LeaderListener
    ) -> MemoryLeader:
        return MemoryLeader(self.group(group, topic), instance_id, listener)

    def group(self, group: str, topic: str) -> MemoryGroup:
        """The lane group, with what a test can do to it."""
        if group not in self._groups:
            self._groups[group] = MemoryGroup(
                lambda: len(self._storage.topics.get(topic, ()))
            )
        return self._groups[group]

    def delete_records(self, partition: TopicPartition, before: int) -> None:
        """Retention: the log starts at ``before`` now."""
        with self._storage.changed:
            self._storage.partition(partition).cut(before)

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        """All that is kept, for assertions."""
        with self._storage.changed:
            return list(self._storage.topics[topic][partition].records)


class MemoryProducer:
    """A :class:`headrace.broker.Producer`. Records leave in ``poll`` and ``flush``,
    or at once when the broker answers."""

    def __init__(
        self, storage: Storage, timeout_us: int, queue_records_max: int
    ) -> None:
        self._storage = storage
        self._timeout_us = timeout_us
        self._queue_records_max = queue_records_max
        self._waiting: deque[Sent] = deque()
        self._reports: deque[Callable[[], None]] = deque()

    def produce(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> None:
        storage = self._storage
        with storage.changed:
            if len(self._waiting) + len(self._reports) >= self._queue_records_max:
                raise BusFull(f"the queue to {topic} is full", code="_QUEUE_FULL")
            if len(value or b"") > storage.record_bytes_max:
                raise BusError(
                    f"a record to {topic} is too large", code="MSG_SIZE_TOO_LARGE"
                )
            if topic in storage.topics and partition >= len(storage.topics[topic]):
                raise BusError(
                    f"{topic} [{partition}] does not exist", code="_UNKNOWN_PARTITION"
                )
            if partition < 0:
                partition = crc32(key or b"") % len(storage.topics.get(topic, "?"))
            expires_us = storage.clock.now_us() + self._timeout_us
            place = TopicPartition(topic, partition)
            self._waiting.append(
                Sent(place, key, value, headers, on_delivery, expires_us)
            )
            self._move()

    def poll(self, timeout_s: float) -> int:
        with self._storage.changed:
            self._move()
            if not self._reports and timeout_s:
                self._storage.changed.wait(timeout_s)
                self._move()
            reports, self._reports = self._reports, deque()
        for report in reports:
            report()
        return len(reports)

    def flush(self, timeout_s: float) -> int:
        while self.poll(0):
            pass
        if self._waiting:
            self.poll(timeout_s)
        return len(self._waiting)

    @property
    def is_holding(self) -> bool:
        return False

    def _move(self) -> None:
        """Let what waits arrive, be acked, or expire."""
        now_us = self._storage.clock.now_us()
        outage = self._storage.outage
        kept: deque[Sent] = deque()
        for sent in self._waiting:
            arrives = outage is not Outage.DEAF and sent.topic in self._storage.topics
            if arrives and sent.delivery is None:
                sent.delivery = self._storage.append(sent)
            if sent.delivery is not None and outage is None:
                self._report(sent, sent.delivery)
            elif now_us < sent.expires_us:
                kept.append(sent)
            else:
                late = BusTimeout("not acked in time", code="_MSG_TIMED_OUT")
                self._report(sent, Delivery(sent.topic, sent.partition, -1, 0, late))
        self._waiting = kept

    def _report(self, sent: Sent, delivery: Delivery) -> None:
        self._reports.append(partial(sent.report or _nobody, delivery))


class MemoryReader:
    """A :class:`headrace.broker.Reader`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._silent: set[TopicPartition] = set()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._positions.update(positions)
        self._paused.difference_update(positions)
        self._silent.difference_update(positions)

    def unassign(self, partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            self._positions.pop(one, None)
        self._paused.difference_update(partitions)
        self._silent.difference_update(partitions)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self._paused.update(self._positions.keys() & set(partitions))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._paused.difference_update(partitions)

    def read(self, records_max: int, timeout_s: float) -> list[Record]:
        with self._storage.changed:
            found = self._now(records_max)
            if not found and timeout_s:
                self._storage.changed.wait(timeout_s)
                found = self._now(records_max)
            return found

    def positions(self) -> dict[TopicPartition, int]:
        return {
            one: position
            for one, position in self._positions.items()
            if one not in self._paused
        }

    def restart(self) -> None:
        """There is no client."""

    def log_range(self, partition: TopicPartition, timeout_s: float) -> LogRange:
        return self.log_ranges([partition], timeout_s)[partition]

    def offsets_since(
        self, partitions: Sequence[TopicPartition], since_us: int, timeout_s: float
    ) -> dict[TopicPartition, int]:
        """As :meth:`headrace.broker.Reader.offsets_since`."""
        logs = self.log_ranges(partitions, timeout_s)
        return {
            one: next(
                (
                    record.offset
                    for record in self._storage.partition(one).records
                    if record.timestamp_us >= since_us
                ),
                log.end,
            )
            for one, log in logs.items()
        }

    def log_ranges(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, LogRange]:
        del timeout_s
        with self._storage.changed:
            self._storage.check_answers("offsets")
            logs = {one: self._storage.partition(one) for one in partitions}
            return {one: LogRange(log.start, log.end) for one, log in logs.items()}

    def close(self) -> None:
        self._positions.clear()

    def _now(self, records_max: int) -> list[Record]:
        found: list[Record] = []
        if self._storage.outage is not None:
            return found
        for one, position in self._positions.items():
            if one in self._paused or one in self._silent:
                continue
            log = self._storage.partition(one)
            if not log.start <= position <= log.end:
                if found:
                    return found
                self._silent.add(one)
                raise OffsetOutOfRange(
                    f"{one.topic} [{one.partition}]: {position} is not in the log",
                    topic=one.topic,
                    partition=one.partition,
                )
            read = log.since(position, records_max - len(found))
            if read:
                self._positions[one] = read[-1].offset + 1
                found += read
        return found


class MemoryAdmin:
    """A :class:`headrace.broker.Admin`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def create_topics(self, topics: Sequence[NewTopic], timeout_s: float) -> None:
        del timeout_s
        storage = self._storage
        with storage.changed:
            storage.check_answers("create topics")
            for one in topics:
                config = storage.config.setdefault(one.name, one.config)
                kept = {"message.timestamp.type": "CreateTime", **config}
                check_config(one.name, one.config, kept)
                logs = storage.topics.setdefault(one.name, [])
                logs += [Partition() for _ in range(len(logs), one.partitions)]

    def partitions(self, topic: str, timeout_s: float) -> int:
        del timeout_s
        return len(self._storage.topics.get(topic, ()))

    def topics(self, timeout_s: float) -> dict[str, int]:
        del timeout_s
        return {name: len(logs) for name, logs in self._storage.topics.items()}


def _nobody(_delivery: Delivery) -> None:
    """The report of a record whose sender does not ask."""
