"""The partitions of a :class:`headrace.testing.MemoryBroker`."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping
from enum import Enum

from headrace.broker import Delivery, Headers, Record, TopicPartition
from headrace.errors import BusError, BusTimeout
from headrace.testing.clock import ManualClock

__all__ = ["Outage", "Partition", "Sent", "Storage"]

EPOCH_US = 1_800_000_000_000_000
"""Log time when the clock shows zero; any number far from it would do."""


class Outage(Enum):
    """What a broker that does not answer does with what is sent to it."""

    DEAF = "deaf"
    """Nothing arrives."""

    MUTE = "mute"
    """Records are appended, and their acks never come."""


class Partition:
    """One log."""

    def __init__(self) -> None:
        self.start = 0
        self.records: list[Record] = []

    @property
    def end(self) -> int:
        return self.records[-1].offset + 1 if self.records else self.start

    def cut(self, before: int) -> None:
        assert self.start <= before <= self.end
        del self.records[: bisect_left(self.records, before, key=_offset)]
        self.start = before

    def since(self, offset: int, records_max: int) -> list[Record]:
        first = bisect_left(self.records, offset, key=_offset)
        return self.records[first : first + records_max]


class Storage:
    """All topics, and whether the broker answers. Whoever touches the topics holds
    ``changed``, which is notified when a record arrives."""

    def __init__(self, clock: ManualClock, record_bytes_max: int) -> None:
        self.clock = clock
        self.record_bytes_max = record_bytes_max
        self.outage: Outage | None = None
        self.changed = threading.Condition()
        self.topics: dict[str, list[Partition]] = {}
        self.config: dict[str, Mapping[str, str]] = {}

    def partition(self, partition: TopicPartition) -> Partition:
        try:
            return self.topics[partition.topic][partition.partition]
        except (KeyError, IndexError):
            raise BusError(
                f"{partition.topic} [{partition.partition}] does not exist",
                code="UNKNOWN_TOPIC_OR_PART",
            ) from None

    def check_answers(self, doing: str) -> None:
        if self.outage is not None:
            raise BusTimeout(f"{doing}: no answer", code="_TIMED_OUT")

    def append(self, sent: Sent) -> Delivery:
        log = self.partition(TopicPartition(sent.topic, sent.partition))
        # Kafka's append times are milliseconds.
        appended_us = (EPOCH_US + self.clock.now_us()) // 1000 * 1000
        offset = log.end
        log.records.append(
            Record(
                sent.topic,
                sent.partition,
                offset,
                appended_us,
                sent.key,
                sent.value,
                list(sent.headers),
            )
        )
        self.changed.notify_all()
        return Delivery(sent.topic, sent.partition, offset, appended_us, None)


class Sent:
    """A record on its way."""

    def __init__(
        self,
        place: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        report: Callable[[Delivery], None] | None,
        expires_us: int,
    ) -> None:
        self.topic, self.partition = place
        self.key = key
        self.value = value
        self.headers = headers
        self.report = report
        self.expires_us = expires_us
        self.delivery: Delivery | None = None


def _offset(record: Record) -> int:
    return record.offset
