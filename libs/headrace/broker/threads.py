"""Threads between blocking clients and the part that decides.

A client of the log blocks and wants one caller; an event loop must not block. Each
reader gets a thread that owns it and gives away whole batches, each producer one that
runs its delivery callbacks.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

from headrace.broker.connection import LIBRARY_LOG
from headrace.broker.interface import (
    LogRange,
    Producer,
    Reader,
    Record,
    TopicPartition,
)
from headrace.broker.stuck import StuckWatch, Verdict
from headrace.errors import BusError, HeadraceError, OffsetOutOfRange

__all__ = [
    "READ_WAIT_S",
    "LoopHandover",
    "ProducerThread",
    "ReaderStuck",
    "ReaderThread",
    "TableReader",
]

T = TypeVar("T")

READ_WAIT_S: Final = 0.02
"""How long a command waits for a read that found nothing."""

_POLL_WAIT_S: Final = 0.1

LOOK_S: Final = 2.0
"""A reader that got nothing for so long asks the log whether there is anything."""

LOOK_TIMEOUT_S: Final = 1.0
"""Of a look every ``LOOK_S``; rarer ones may take half the time between two."""

_REST_S: Final = 0.05
"""After an error, so that one that comes at once does not fill a core."""


class LoopHandover(Generic[T]):
    """Calls ``handle(batch)`` on an event loop, from a thread, with one wake-up per
    batch. At most ``batches_max`` wait; beyond, the calling thread does."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handle: Callable[[list[T]], None],
        batches_max: int = 64,
    ) -> None:
        self._loop = loop
        self._handle = handle
        self._room = threading.BoundedSemaphore(batches_max)

    def __call__(self, batch: list[T]) -> None:
        self._room.acquire()
        self._loop.call_soon_threadsafe(self._run, batch)

    def _run(self, batch: list[T]) -> None:
        self._room.release()
        self._handle(batch)


class ReaderStuck(HeadraceError):
    """Records lie in the log, and neither this client nor a new one delivers them."""


class ReaderThread:
    """A thread that owns ``reader`` and calls ``take`` with each batch it reads.

    When records lie in the log and none come, it makes the reader's client anew, and
    ends with :class:`ReaderStuck` when that did not help.

    A command waits for a read that finds nothing: 20 ms, ``wait_s`` once records have
    come. Each such wait is a wake-up of 30 µs.

    ``take`` and ``fail`` run on that thread. After ``fail`` it reads on: a position
    outside the log stays silent until ``do`` assigns another. An exception of either
    ends the thread (:func:`threading.excepthook`).
    """

    def __init__(  # noqa: PLR0913 - a thread, and how it waits
        self,
        name: str,
        reader: Reader,
        take: Callable[[list[Record]], None],
        fail: Callable[[BusError], None],
        *,
        records_max: int = 1000,
        look_s: float = LOOK_S,
        wait_s: float = READ_WAIT_S,
    ) -> None:
        self._name = name
        self._wait_s = wait_s
        self._look_s = look_s
        self._look_timeout_s = max(LOOK_TIMEOUT_S, look_s / 2)
        self._watch = StuckWatch()
        self._look_at_s = 0.0
        self._reader = reader
        self._take = take
        self._fail = fail
        self._records_max = records_max
        self._commands: SimpleQueue[Callable[[Reader], None]] = SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def do(self, command: Callable[[Reader], None]) -> None:
        """Run ``command`` on the thread before its next read, in order of the calls. A
        :class:`BusError` of it goes to ``fail``."""
        self._commands.put(command)

    def stop(self) -> None:
        """End the thread and close the reader. Blocks: on an event loop that the
        thread hands to, call it through ``asyncio.to_thread``."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._reader.close()

    def _run(self) -> None:
        wait_s = READ_WAIT_S
        while not self._stopped.is_set():
            try:
                self._obey()
                records = self._reader.read(self._records_max, wait_s)
            except BusError as error:
                self._fail(error)
                self._stopped.wait(_REST_S)
                continue
            if records:
                self._watch.delivered()
                wait_s = self._wait_s
                self._look_at_s = time.monotonic() + self._look_s
                self._take(records)
            elif time.monotonic() >= self._look_at_s:
                self._look()

    def _look(self) -> None:
        """Nothing came for a while: ask the log whether there is anything."""
        positions = self._reader.positions()
        ranges: Mapping[TopicPartition, LogRange] | None = {}
        why = "stuck"
        if positions:
            try:
                ranges = self._reader.log_ranges([*positions], self._look_timeout_s)
            except BusError as error:
                ranges, why = None, f"without an answer ({error.code})"
        self._look_at_s = time.monotonic() + self._look_s
        match self._watch.look(positions, ranges):
            case Verdict.FINE:
                pass
            case Verdict.RESTART:
                LIBRARY_LOG.warning("%s: %s; made anew", self._name, why)
                self._reader.restart()
            case Verdict.GIVE_UP:
                raise ReaderStuck(f"reader {self._name} gets nothing from the log")

    def _obey(self) -> None:
        while not self._commands.empty():
            self._commands.get_nowait()(self._reader)


class ProducerThread:
    """A thread that runs a producer's delivery callbacks, and ``after`` when some
    ran: what they gathered can be handed on once for all."""

    def __init__(
        self,
        name: str,
        producer: Producer,
        after: Callable[[], None] | None = None,
    ) -> None:
        self._producer = producer
        self._after = after
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, flush_s: float) -> int:
        """Wait at most ``flush_s`` for outstanding records, then end the thread; how
        many records are left."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        left = self._producer.flush(flush_s)
        if self._after is not None:
            self._after()
        return left

    def _run(self) -> None:
        while not self._stopped.is_set():
            if self._producer.poll(_POLL_WAIT_S) and self._after is not None:
                self._after()


class TableReader:
    """A compacted topic of one partition, read from its start and then followed.

    ``take`` gets every record in order (the last one of a key counts; a value of None
    deletes it), on the table's thread. ``caught_up`` turns true once what lay in the
    topic at the start has been taken: serve nothing that depends on the table before.
    """

    def __init__(
        self,
        reader: Reader,
        topic: str,
        take: Callable[[list[Record]], None],
        fail: Callable[[BusError], None],
        *,
        wait_s: float = READ_WAIT_S,
    ) -> None:
        """``wait_s`` as of :class:`ReaderThread`."""
        self._partition = TopicPartition(topic, 0)
        self._take = take
        self._fail = fail
        self._end = 0
        self._caught_up = threading.Event()
        self._thread = ReaderThread(
            f"table {topic}", reader, self._taken, self._failed, wait_s=wait_s
        )

    @property
    def caught_up(self) -> bool:
        return self._caught_up.is_set()

    def start(self) -> None:
        self._thread.do(self._from_start)
        self._thread.start()

    def wait_caught_up(self, timeout_s: float) -> bool:
        return self._caught_up.wait(timeout_s)

    def stop(self) -> None:
        """As :meth:`ReaderThread.stop`."""
        self._thread.stop()

    def _from_start(self, reader: Reader) -> None:
        start, self._end = reader.log_range(self._partition, timeout_s=10)
        reader.assign({self._partition: start})
        if start == self._end:
            self._caught_up.set()

    def _taken(self, records: list[Record]) -> None:
        self._take(records)
        # The newest record of a log is never compacted away, so the end is reached
        # by a record.
        if records[-1].offset + 1 >= self._end:
            self._caught_up.set()

    def _failed(self, error: BusError) -> None:
        self._fail(error)
        if isinstance(error, OffsetOutOfRange) or not self.caught_up:
            self._thread.do(self._from_start)
