"""The log as it grows: what it held since an instant, then whatever is appended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final

from headrace.broker.admin import KafkaAdmin
from headrace.broker.connection import KafkaConnection
from headrace.broker.history import History
from headrace.broker.interface import Record, TopicPartition
from headrace.broker.reader import KafkaReader

__all__ = ["InOrder", "follow"]

_RECORDS_MAX: Final = 1000
_READ_S: Final = 0.2
_LOOK_UP_S: Final = 10.0
_LOOK_FOR_TOPICS_S: Final = 3.0


class InOrder:
    """Gives the records of many partitions in the order of their append times.

    ``rank`` orders those of one instant, and, where brokers' clocks may differ, those
    that are no more than ``apart_us`` apart.
    """

    def __init__(self, rank: Callable[[Record], int], *, apart_us: int = 0) -> None:
        self._rank = rank
        self._apart_us = apart_us
        self._waiting: list[tuple[int, int, str, int, int, Record]] = []

    def put(self, record: Record) -> None:
        rank = self._rank(record)
        instant_us = record.timestamp_us + rank * self._apart_us
        place = record.topic, record.partition, record.offset
        heappush(self._waiting, (instant_us, rank, *place, record))

    def until(self, reached_us: int | None) -> Iterator[Record]:
        """Those for which nothing that was appended at that instant or later can come
        before them; None: all."""
        waiting = self._waiting
        while waiting and (reached_us is None or waiting[0][0] < reached_us):
            yield heappop(waiting)[-1]


def follow(
    connection: KafkaConnection,
    is_wanted: Callable[[TopicPartition], bool],
    since_us: int,
    rank: Callable[[Record], int],
    *,
    is_endless: bool = True,
) -> Iterator[list[Record]]:
    """What these partitions hold since that append time, in the order of
    :class:`InOrder`; then, unless not ``is_endless``, what is appended to them and to
    new ones, in the order in which it comes: a list of none where nothing does.

    Raises :class:`headrace.errors.BusError`.
    """
    history = History(connection, is_wanted, since_us)
    ordered = InOrder(rank)
    try:
        while (reached_us := history.read_to_us) is not None:
            yield list(ordered.until(reached_us))
            for record in history.read():
                ordered.put(record)
        yield list(ordered.until(None))
    finally:
        history.close()
    if is_endless:
        ends = {one: extent.end for one, extent in history.extents.items()}
        yield from _appended(connection, is_wanted, ends, rank)


def _appended(
    connection: KafkaConnection,
    is_wanted: Callable[[TopicPartition], bool],
    ends: dict[TopicPartition, int],
    rank: Callable[[Record], int],
) -> Iterator[list[Record]]:
    admin = KafkaAdmin(connection)
    reader = KafkaReader(connection)
    known = set(ends)
    ordered = InOrder(rank)
    try:
        reader.assign(ends)
        looked_s = time.monotonic()
        while True:
            for record in reader.read(_RECORDS_MAX, _READ_S):
                ordered.put(record)
            yield list(ordered.until(None))
            if time.monotonic() - looked_s > _LOOK_FOR_TOPICS_S:
                new = [
                    one
                    for topic, count in admin.topics(_LOOK_UP_S).items()
                    for number in range(count)
                    if is_wanted(one := TopicPartition(topic, number))
                    and one not in known
                ]
                reader.assign(dict.fromkeys(new, 0))
                known.update(new)
                looked_s = time.monotonic()
    finally:
        reader.close()
