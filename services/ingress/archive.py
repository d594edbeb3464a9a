"""Single records, read back from the log on a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import TypeVar

from headrace.broker import (
    Admin,
    Reader,
    Span,
    TopicPartition,
    read_spans,
    spans_since,
)
from headrace.clock import Clock
from headrace.domain import Source
from headrace.errors import BusError
from headrace.wire import NewTopic, Record

__all__ = ["Archive", "Gone"]

LOG_TIMEOUT_S = 2.0
READ_US_MAX = 10_000_000
"""Longest that a record is looked for."""
RECORDS_MAX = 500
MISSING = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})

T = TypeVar("T")


class Gone(Enum):
    """Why there is no record."""

    NEVER_WAS = 1
    FORGOTTEN = 2
    """Retention has removed it."""


class Archive:
    """Blocking calls to the log, one after another, for the event loop."""

    def __init__(self, reader: Reader, admin: Admin, clock: Clock) -> None:
        self._reader = reader
        self._admin = admin
        self._clock = clock
        self._pool = ThreadPoolExecutor(1, "archive")

    async def run(self, call: Callable[[], T]) -> T:
        """``call`` on the thread; one of the methods below."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def then(
        self,
        call: Callable[[], T],
        done: Callable[[T | None, BusError | None], None],
    ) -> None:
        """``call`` on the thread, then ``done`` on the loop with what came of it."""
        loop = asyncio.get_running_loop()

        def run() -> None:
            result, failed = None, None
            try:
                result = call()
            except BusError as error:
                failed = error
            loop.call_soon_threadsafe(done, result, failed)

        self._pool.submit(run)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._reader.close()

    def create(self, topic: NewTopic) -> None:
        """Raises :class:`BusError`."""
        self._admin.create_topics([topic], 10)

    def at(self, place: Source) -> Record | Gone:
        """The record at ``place``. Raises :class:`BusError`."""
        partition = TopicPartition(place.topic, place.partition)
        try:
            log = self._reader.log_range(partition, LOG_TIMEOUT_S)
        except BusError as error:
            if error.code in MISSING:
                return Gone.NEVER_WAS
            raise
        if place.offset >= log.end:
            return Gone.NEVER_WAS
        if place.offset < log.start:
            return Gone.FORGOTTEN
        for record in self._read({partition: Span(place.offset, place.offset + 1)}):
            if record.offset == place.offset:
                return record
        return Gone.FORGOTTEN

    def search(
        self, topic: str, since_us: int, is_wanted: Callable[[Record], bool]
    ) -> Record | None:
        """The first such record of each partition's order that was appended since that
        log time. Raises :class:`BusError`."""
        count = self._admin.partitions(topic, LOG_TIMEOUT_S)
        partitions = [TopicPartition(topic, number) for number in range(count)]
        if not partitions:
            return None
        spans = spans_since(self._reader, partitions, since_us, LOG_TIMEOUT_S)
        for record in self._read(spans):
            if is_wanted(record):
                return record
        return None

    def _read(self, spans: dict[TopicPartition, Span]) -> Iterable[Record]:
        return read_spans(
            self._reader,
            spans,
            records_max=RECORDS_MAX,
            us_max=READ_US_MAX,
            clock=self._clock,
        )
