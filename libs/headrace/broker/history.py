"""Reading back what many partitions hold since an instant, side by side."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import confluent_kafka
from confluent_kafka import KafkaException

from headrace.broker.connection import KafkaConnection, bus_error, error_of
from headrace.broker.interface import Record, TopicPartition
from headrace.broker.reader import (
    KafkaReader,
    ReaderSettings,
    at,
    reader_config,
    record_of,
)
from headrace.broker.spans import read_kept
from headrace.clock import SystemClock
from headrace.errors import BusError, BusTimeout, OffsetOutOfRange

__all__ = ["Extent", "History", "records_at", "records_since"]

_EARLIEST: Final = confluent_kafka.OFFSET_BEGINNING
_LATEST: Final = confluent_kafka.OFFSET_END
AHEAD_MAX: Final = 20_000
"""Records of one partition that are returned before older ones of another; then it
waits for the others."""

_SILENT_S_MAX: Final = 30.0
_RECORD_US_MAX: Final = 10_000_000
_LOOK_AGAIN_S: Final = 0.05
_LEADER_MOVES: Final = frozenset(
    {
        "NOT_LEADER_FOR_PARTITION",
        "LEADER_NOT_AVAILABLE",
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_PARTITION",
    }
)


class Extent(NamedTuple):
    """A partition's first offset kept, the first one to be read, and its end."""

    start: int
    first: int
    end: int

    @property
    def is_cut(self) -> bool:
        """Whether retention may have removed records of the time that is read. A
        partition that it has emptied holds nothing since before that time."""
        return 0 < self.start == self.first < self.end


def records_at(
    connection: KafkaConnection, places: Iterable[tuple[str, int, int]]
) -> dict[tuple[str, int, int], Record]:
    """The records at these topics, partitions and offsets, without those that the log
    no longer has. For some: what lies between near ones is read over.

    Raises :class:`headrace.errors.BusError`.
    """
    by_partition: dict[TopicPartition, list[int]] = {}
    for topic, number, offset in places:
        by_partition.setdefault(TopicPartition(topic, number), []).append(offset)
    reader = KafkaReader(connection)
    try:
        return {
            (record.topic, record.partition, record.offset): record
            for record in read_kept(
                reader,
                by_partition,
                us_max=_RECORD_US_MAX,
                clock=SystemClock(),
            )
        }
    finally:
        reader.close()


def records_since(
    connection: KafkaConnection,
    is_wanted: Callable[[TopicPartition], bool],
    since_us: int = 0,
) -> Iterator[Record]:
    """All that :class:`History` reads, for those who need no order between partitions.

    Raises :class:`headrace.errors.BusError`.
    """
    history = History(connection, is_wanted, since_us)
    try:
        while history.read_to_us is not None:
            yield from history.read()
    finally:
        history.close()


class _Place:
    """How far a partition was read."""

    __slots__ = ("ahead", "end", "is_paused", "reached_us")

    def __init__(self, end: int, since_us: int) -> None:
        self.end = end
        self.reached_us = since_us
        self.ahead: deque[int] = deque()
        self.is_paused = False


class History:
    """Everything that ``is_wanted`` partitions hold, appended since ``since_us`` and
    before now, each partition in order, and none more than about ``ahead_max`` records
    ahead of the others.

    Raises :class:`headrace.errors.BusError`, as do its methods. One thread makes all
    its calls.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        is_wanted: Callable[[TopicPartition], bool],
        since_us: int,
        *,
        ahead_max: int = AHEAD_MAX,
        timeout_s: float = 10.0,
        settings: ReaderSettings = ReaderSettings(),  # noqa: B008 - immutable
    ) -> None:
        self._ahead_max = ahead_max
        self._client = confluent_kafka.Consumer(
            reader_config(connection, settings) | {"enable.partition.eof": True}
        )
        try:
            self.extents = self._extents(is_wanted, since_us, timeout_s)
        except BusError:
            self._client.close()
            raise
        self._places = {
            one: _Place(extent.end, since_us)
            for one, extent in self.extents.items()
            if extent.first < extent.end
        }
        self._silent_s = 0.0
        self._client.incremental_assign(
            [at(one, self.extents[one].first) for one in self._places]
        )

    @property
    def records(self) -> int:
        """How many records there are to read, at most."""
        return sum(each.end - each.first for each in self.extents.values())

    @property
    def read_to_us(self) -> int | None:
        """Every record appended before this instant was returned; None: every one."""
        return min((each.reached_us for each in self._places.values()), default=None)

    def read(self, records_max: int = 2000, timeout_s: float = 0.2) -> list[Record]:
        """Some records; none where none came in time, or none are left."""
        if not self._places:
            return []
        first = self._client.poll(timeout_s)
        if first is None:
            # Only waiting counts: whoever reads may take as long as it likes between.
            self._silent_s += timeout_s
            if self._silent_s > _SILENT_S_MAX:
                raise BusTimeout(
                    f"nothing came for {_SILENT_S_MAX:g} s from "
                    f"{', '.join(f'{t} [{p}]' for t, p in list(self._places)[:5])}",
                    code="_TIMED_OUT",
                )
            return []
        self._silent_s = 0.0
        records = []
        for message in [first, *self._client.consume(records_max - 1, 0)]:
            record = self._returned(message)
            if record is not None:
                records.append(record)
        self._keep_together()
        return records

    def close(self) -> None:
        self._client.close()

    def _extents(
        self,
        is_wanted: Callable[[TopicPartition], bool],
        since_us: int,
        timeout_s: float,
    ) -> dict[TopicPartition, Extent]:
        try:
            topics = self._client.list_topics(timeout=timeout_s).topics
        except KafkaException as error:
            raise bus_error(error_of(error), "look up the log") from error
        wanted = [
            one
            for name in sorted(topics)
            for number in sorted(topics[name].partitions)
            if is_wanted(one := TopicPartition(name, number))
        ]
        ends = self._offsets(wanted, _LATEST, timeout_s)
        starts = self._offsets(wanted, _EARLIEST, timeout_s)
        firsts = self._offsets(wanted, max(since_us // 1000, 0), timeout_s)
        found = {}
        for one in wanted:
            end = ends[one]
            # No record so young, or none that was there a moment ago.
            first = end if firsts[one] < 0 else min(firsts[one], end)
            found[one] = Extent(starts[one], max(first, starts[one]), end)
        return found

    def _offsets(
        self, partitions: list[TopicPartition], time_ms: int, timeout_s: float
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        wanted = [at(one, time_ms) for one in partitions]
        until_s = time.monotonic() + timeout_s
        while True:
            try:
                answers = self._client.offsets_for_times(wanted, timeout_s)
                error = next((each.error for each in answers if each.error), None)
            except KafkaException as exception:
                answers, error = [], error_of(exception)
            if error is None:
                return {
                    TopicPartition(each.topic, each.partition): each.offset
                    for each in answers
                }
            # Leaders move, and those of new topics are elected.
            if error.name() not in _LEADER_MOVES or time.monotonic() > until_s:
                raise bus_error(error, "look up the log")
            time.sleep(_LOOK_AGAIN_S)

    def _returned(self, message: confluent_kafka.Message) -> Record | None:
        """The record, if it is one and lies before the end."""
        topic, partition = message.topic(), message.partition()
        error = message.error()
        if error is not None and error.name() != "_PARTITION_EOF":
            if error.retriable():
                return None
            if error.name() == "_AUTO_OFFSET_RESET":
                raise OffsetOutOfRange(
                    f"retention has removed what was about to be read of {topic} "
                    f"[{partition}]: begin at a later instant",
                    topic=topic or "",
                    partition=partition or 0,
                )
            raise bus_error(error, f"read {topic} [{partition}]")
        assert topic is not None
        assert partition is not None
        one = TopicPartition(topic, partition)
        place = self._places.get(one)
        if place is None:
            return None
        if error is not None:
            self._ended(one)
            return None
        record = record_of(message)
        if record.offset + 1 >= place.end:
            self._ended(one)
            if record.offset >= place.end:
                return None
        place.reached_us = max(place.reached_us, record.timestamp_us)
        place.ahead.append(place.reached_us)
        return record

    def _ended(self, one: TopicPartition) -> None:
        del self._places[one]
        self._client.incremental_unassign([at(one)])

    def _keep_together(self) -> None:
        """Pause who is far ahead; the one that is furthest behind never is."""
        behind_us = self.read_to_us
        if behind_us is None:
            return
        for one, place in self._places.items():
            ahead = place.ahead
            while ahead and ahead[0] <= behind_us:
                ahead.popleft()
            if not place.is_paused and len(ahead) > self._ahead_max:
                place.is_paused = True
                self._client.pause([at(one)])
            elif place.is_paused and len(ahead) <= self._ahead_max // 2:
                place.is_paused = False
                self._client.resume([at(one)])
