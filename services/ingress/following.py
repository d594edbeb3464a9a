"""Topics of kept answers, followed on a reader's thread for the event loop."""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker import Admin, Reader, ReaderThread, TopicPartition
from headrace.errors import BusError, OffsetOutOfRange
from headrace.wire import Record

__all__ = ["Follower"]

LOG_TIMEOUT_S = 5.0


class Follower:
    """Reads each topic that it is told of, from an instant on. ``take`` gets the
    records, and ``caught_up`` each topic once all has been given that lay in it when
    it was first read; both on the reader's thread."""

    def __init__(
        self,
        reader: Reader,
        admin: Admin,
        *,
        take: Callable[[list[Record]], None],
        caught_up: Callable[[str], None],
        fail: Callable[[BusError], None],
    ) -> None:
        self._admin = admin
        self._take = take
        self._caught_up = caught_up
        self._report = fail
        self._ends: dict[TopicPartition, int] = {}
        self._since_us: dict[str, int] = {}
        self._unread: set[str] = set()
        self._thread = ReaderThread("kept answers", reader, self._taken, self._failed)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """As :meth:`headrace.broker.ReaderThread.stop`."""
        self._thread.stop()

    def follow(self, topic: str, since_us: int) -> None:
        """``topic``, which exists, from that log time on."""
        self._since_us[topic] = since_us
        self._unread.add(topic)
        self._thread.do(self._assign_all)

    def _assign_all(self, reader: Reader) -> None:
        for topic in list(self._unread):
            self._assign(reader, topic)
            self._unread.discard(topic)

    def _assign(self, reader: Reader, topic: str) -> None:
        count = self._admin.partitions(topic, LOG_TIMEOUT_S)
        partitions = [TopicPartition(topic, number) for number in range(count)]
        since_us = self._since_us[topic]
        firsts = reader.offsets_since(partitions, since_us, LOG_TIMEOUT_S)
        logs = reader.log_ranges(partitions, LOG_TIMEOUT_S)
        self._ends |= {
            one: logs[one].end for one in partitions if firsts[one] < logs[one].end
        }
        reader.assign(firsts)
        self._tell(topic)

    def _taken(self, records: list[Record]) -> None:
        self._take(records)
        if self._ends:
            reached = {}
            for record in records:
                reached[TopicPartition(record.topic, record.partition)] = record.offset
            for one, offset in reached.items():
                if one in self._ends and offset + 1 >= self._ends[one]:
                    del self._ends[one]
                    self._tell(one.topic)

    def _tell(self, topic: str) -> None:
        if not any(one.topic == topic for one in self._ends):
            self._caught_up(topic)

    def _failed(self, error: BusError) -> None:
        self._report(error)
        if isinstance(error, OffsetOutOfRange):
            topic = error.topic
            for one in [each for each in self._ends if each.topic == topic]:
                del self._ends[one]
            self._unread.add(topic)
        if self._unread:
            self._thread.do(self._assign_all)
