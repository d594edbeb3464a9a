"""Reading recorded requests with their ends, without a group and without a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from headrace.broker import (
    History,
    InOrder,
    KafkaConnection,
    KafkaReader,
    LogRange,
    ReaderSettings,
    TopicPartition,
    records_at,
)
from headrace.errors import SetupError
from headrace.replay.joining import Join, JoinCounts
from headrace.replay.recorded import Recorded
from headrace.replay.selection import At, Bound, Selection
from headrace.wire import Record, TopicKind, Topics

__all__ = ["REPLAY_TENANT", "Recording"]

REPLAY_TENANT = "replay"
"""Whom replayed requests are run for."""

_AHEAD_MAX: Final = 2000
_READS: Final = ReaderSettings(queue_bytes_max=16 * 1024 * 1024)
_SKEW_US: Final = 50_000
"""Brokers' clocks agree within this."""

_SETTLE_US: Final = 1_000_000
"""Read on for so long after the last request of a range has its end."""

_LOOK_UP_S: Final = 10.0
_ANSWERS = frozenset({TopicKind.REPLIES, TopicKind.RESULTS})


class Recording:
    """The chosen requests, in the order in which they ended; last those without an
    end. To be iterated once.

    Raises :class:`headrace.errors.BusError`, and :class:`headrace.errors.SetupError`
    for a place that the log does not have yet.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topics: Topics,
        selection: Selection,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """``progress`` is told how many records are read, of how many."""
        self._topics = topics
        self._selection = selection
        self._progress = progress or (lambda _done, _total: None)
        self._join = Join(topics, self._is_asked)
        self._cuts: dict[str, int] = {}
        self._lost: list[str] = []
        self._requests = topics.requests(selection.model)
        self._until_us = selection.until if isinstance(selection.until, int) else None
        since_us = self._instants(connection)
        self._history = History(
            connection, self._is_wanted, since_us, ahead_max=_AHEAD_MAX, settings=_READS
        )
        self._begins = {
            one for one, extent in self._history.extents.items() if extent.is_cut
        }
        self._tell_of_emptied()

    @property
    def counts(self) -> JoinCounts:
        return self._join.counts

    @property
    def warnings(self) -> list[str]:
        """What retention has taken, and what could not be read; whole once everything
        is read."""
        told = [
            f"retention has cut the range: {topic} is whole only since {_shown(at_us)}"
            for topic, at_us in self._cuts.items()
        ]
        counts = self.counts
        if counts.undecodable:
            told.append(f"{counts.undecodable} records of answers cannot be read")
        if counts.given_up:
            told.append(
                f"{counts.given_up} requests without an answer so far were not waited "
                "for, since too many are"
            )
        return [*self._lost, *told]

    def __iter__(self) -> Iterator[Recorded]:
        for recorded in self._all():
            if self._selection.is_chosen(recorded):
                yield recorded

    def close(self) -> None:
        self._history.close()

    def _all(self) -> Iterator[Recorded]:
        history, total, done = self._history, self._history.records, 0
        ordered = InOrder(self._is_answer, apart_us=_SKEW_US)
        while (reached_us := history.read_to_us) is not None:
            records = history.read()
            for record in records:
                self._note_begin(record)
                ordered.put(record)
            done += len(records)
            self._progress(done, total)
            yield from self._taken(ordered, reached_us)
            until_us = self._until_us
            is_past = until_us is not None and reached_us > until_us + _SETTLE_US
            if is_past and not self._join.waiting:
                return
        yield from self._taken(ordered, None)
        yield from self._join.rest()

    def _taken(self, ordered: InOrder, reached_us: int | None) -> Iterator[Recorded]:
        for record in ordered.until(reached_us):
            yield from self._join.take(record)

    def _is_answer(self, record: Record) -> int:
        return int(self._topics.kind_of(record.topic) is not TopicKind.REQUESTS)

    def _is_asked(self, record: Record) -> bool:
        return record.topic == self._requests and self._selection.is_asked(record)

    def _is_wanted(self, one: TopicPartition) -> bool:
        topics = self._topics
        kind = topics.kind_of(one.topic)
        if kind is TopicKind.REQUESTS:
            is_ours = self._selection.partition in {None, one.partition}
            return is_ours and one.topic == self._requests
        if kind is TopicKind.DEAD_LETTERS:
            return one.topic == topics.dead_letters(self._selection.model)
        return kind in _ANSWERS and not one.topic.startswith(
            topics.results(REPLAY_TENANT, "")
        )

    def _instants(self, connection: KafkaConnection) -> int:
        """When the range begins; and takes note when it ends."""
        places = [
            bound
            for bound in (self._selection.since, self._selection.until)
            if isinstance(bound, At)
        ]
        if not places:
            assert isinstance(self._selection.since, int)
            return self._selection.since
        reader = KafkaReader(connection)
        try:
            number = places[0].partition
            one = TopicPartition(self._requests, number)
            log = reader.log_range(one, _LOOK_UP_S)
        finally:
            reader.close()
        if isinstance(self._selection.until, At):
            self._until_us = self._instant(connection, self._selection.until, log)
        return self._begin(connection, self._selection.since, log) or 0

    def _begin(
        self, connection: KafkaConnection, since: Bound, log: LogRange
    ) -> int | None:
        if not isinstance(since, At):
            return since
        place = f"{self._requests}/{since.partition}"
        if since.offset >= log.end:
            raise SetupError(
                f"{place}/{since.offset} does not exist: the log ends before {log.end}."
            )
        if since.offset < log.start:
            self._lost.append(
                f"retention has removed {place}/{since.offset} up to {place}/"
                f"{log.start - 1}: {log.start - since.offset} records of the range"
            )
            since = At(since.partition, log.start)
        return self._instant(connection, since, log)

    def _instant(
        self, connection: KafkaConnection, at: At, log: LogRange
    ) -> int | None:
        """When the record there was appended; None: there is none."""
        if not log.start <= at.offset < log.end:
            return None
        place = self._requests, at.partition, at.offset
        found = records_at(connection, [place]).get(place)
        return None if found is None else found.timestamp_us

    def _note_begin(self, record: Record) -> None:
        one = TopicPartition(record.topic, record.partition)
        if one in self._begins:
            self._begins.remove(one)
            earlier_us = self._cuts.get(record.topic, 0)
            self._cuts[record.topic] = max(earlier_us, record.timestamp_us)

    def _tell_of_emptied(self) -> None:
        for one, extent in self._history.extents.items():
            if one.topic == self._requests and 0 < extent.start == extent.end:
                self._lost.append(
                    f"retention has removed all {extent.end} records of {one.topic} "
                    f"[{one.partition}]; whether some were of the range is not known"
                )


def _shown(at_us: int) -> str:
    told = datetime.fromtimestamp(at_us / 1e6, UTC)
    return told.isoformat(timespec="milliseconds").replace("+00:00", "Z")
