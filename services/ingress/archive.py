"""Single records, read back from the log on a thread of its own.

Looks at records are gathered while the thread is busy and made together, those at one
place once: a crowd that asks for one answer, or for as many, waits for two looks at
most. A record never changes, so what was read of late is not read again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import TypeVar

from headrace.broker import (
    Admin,
    LogRange,
    Reader,
    TopicPartition,
    read_places,
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
LOOKS_MAX = 4096
"""Places that may wait to be looked at; beyond, the log counts as unavailable."""
TOGETHER_MAX = 256
"""Places that are looked at together; the others wait for the next turn."""
RECENT_BYTES_MAX = 16 * 1024 * 1024
RECENT_RECORD_BYTES_MAX = 256 * 1024
"""Of records kept in memory, the one that was asked for least lately goes first."""
MISSING = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})

NEAR = 50
"""Offsets between two wanted records that are read over rather than skipped."""

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
        self._waiting: dict[Source, asyncio.Future[Record | Gone]] = {}
        self._looking: dict[Source, asyncio.Future[Record | Gone]] = {}
        self._recent: OrderedDict[Source, Record] = OrderedDict()
        self._recent_bytes = 0

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

    async def look(self, place: Source) -> Record | Gone:
        """The record at ``place``. Raises :class:`BusError`."""
        # Others may be waiting for the same look: whoever leaves does not end it.
        return await asyncio.shield(self._look(place))

    def then_looked(
        self,
        places: Sequence[Source],
        done: Callable[[Sequence[Record | Gone] | None, BusError | None], None],
    ) -> None:
        """Look at all of ``places``, then call ``done`` with what came of it."""

        def gathered(looked: asyncio.Future[list[Record | Gone]]) -> None:
            if looked.cancelled():
                return
            error = looked.exception()
            if error is None:
                done(looked.result(), None)
            elif isinstance(error, BusError):
                done(None, error)
            else:
                raise error

        looks = [asyncio.shield(self._look(place)) for place in places]
        asyncio.gather(*looks).add_done_callback(gathered)

    def remember(self, place: Source, record: Record) -> None:
        """It has just been read elsewhere."""
        size = len(record.value or b"")
        if size > RECENT_RECORD_BYTES_MAX or place in self._recent:
            return
        self._recent[place] = record
        self._recent_bytes += size
        while self._recent_bytes > RECENT_BYTES_MAX:
            _, oldest = self._recent.popitem(last=False)
            self._recent_bytes -= len(oldest.value or b"")

    def _look(self, place: Source) -> asyncio.Future[Record | Gone]:
        known = self._waiting.get(place) or self._looking.get(place)
        if known is not None:
            return known
        looked: asyncio.Future[Record | Gone]
        looked = asyncio.get_running_loop().create_future()
        record = self._recent.get(place)
        if record is not None:
            self._recent.move_to_end(place)
            looked.set_result(record)
        elif len(self._waiting) >= LOOKS_MAX:
            text = f"{LOOKS_MAX} records are being looked for already"
            looked.set_exception(BusError(text, code="_QUEUE_FULL"))
        else:
            self._waiting[place] = looked
            if not self._looking:
                self._look_on()
        return looked

    def _look_on(self) -> None:
        places = list(self._waiting)[:TOGETHER_MAX]
        self._looking = {place: self._waiting.pop(place) for place in places}
        if places:
            loop = asyncio.get_running_loop()
            looks = loop.run_in_executor(self._pool, self.at, places)
            looks.add_done_callback(self._looked)

    def _looked(self, looks: asyncio.Future[dict[Source, Record | Gone]]) -> None:
        if looks.cancelled():
            # The archive is closed.
            for looked in (*self._looking.values(), *self._waiting.values()):
                looked.cancel()
            return
        error = looks.exception()
        for place, looked in self._looking.items():
            if error is not None:
                looked.set_exception(error)
                # Whoever asked may have left.
                looked.exception()
                continue
            record = looks.result()[place]
            looked.set_result(record)
            if not isinstance(record, Gone):
                self.remember(place, record)
        self._look_on()

    def at(self, places: Sequence[Source]) -> dict[Source, Record | Gone]:
        """What is at each of ``places``. Raises :class:`BusError`."""
        found: dict[Source, Record | Gone] = {}
        wanted: dict[TopicPartition, list[int]] = {}
        ranges = self._ranges({TopicPartition(*place[:2]) for place in places})
        for place in set(places):
            partition = TopicPartition(*place[:2])
            log = ranges.get(partition)
            if log is None or place.offset >= log.end:
                found[place] = Gone.NEVER_WAS
            elif place.offset < log.start:
                found[place] = Gone.FORGOTTEN
            else:
                # Until it is read: retention may be faster.
                found[place] = Gone.FORGOTTEN
                wanted.setdefault(partition, []).append(place.offset)
        for record in read_places(
            self._reader,
            wanted,
            us_max=READ_US_MAX,
            clock=self._clock,
            near=NEAR,
        ):
            found[Source(record.topic, record.partition, record.offset)] = record
        return found

    def _ranges(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LogRange]:
        """Without those that do not exist."""
        asked = [*partitions]
        try:
            return self._reader.log_ranges(asked, LOG_TIMEOUT_S)
        except BusError as error:
            if error.code not in MISSING:
                raise
            if len(asked) == 1:
                # A client without a broker says so of any partition.
                (one,) = asked
                if one.partition < self._admin.partitions(one.topic, LOG_TIMEOUT_S):
                    # It may say so for a minute; a new one asks anew.
                    self._reader.restart()
                    raise
                return {}
        half = len(asked) // 2
        return self._ranges(asked[:half]) | self._ranges(asked[half:])

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
        records = read_spans(
            self._reader,
            spans,
            records_max=RECORDS_MAX,
            us_max=READ_US_MAX,
            clock=self._clock,
        )
        return next(filter(is_wanted, records), None)
