"""Records that can never be answered, copied from where they lie in the log."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

from headrace.broker import Reader, Record, TopicPartition
from headrace.clock import Clock
from headrace.domain import DeadLetter, Source
from headrace.errors import BusError, BusTimeout
from headrace.wire import Topics, dead_letter
from services.batch_former.producing import Place, Producing, Write

__all__ = ["DeadLetters", "read_back"]

READ_BACK_US_MAX = 2_000_000
"""Longest that one partition is read for the originals of its letters."""
LOG_TIMEOUT_S = 1.0
RECORDS_MAX = 500
NEAR = 1_000
"""Offsets between two wanted records that are read over rather than skipped."""


def read_back(
    reader: Reader, partition: TopicPartition, offsets: Iterable[int], clock: Clock
) -> dict[int, Record]:
    """The records at ``offsets``, without those that the log no longer has.

    Raises :class:`headrace.errors.BusError` when the log does not answer in time.
    """
    log = reader.log_range(partition, LOG_TIMEOUT_S)
    wanted = deque(sorted(one for one in set(offsets) if log.start <= one < log.end))
    found: dict[int, Record] = {}
    until_us = clock.now_us() + READ_BACK_US_MAX
    position = -NEAR - 1
    try:
        while wanted:
            if wanted[0] > position + NEAR:
                position = wanted[0]
                reader.assign({partition: position})
            for record in reader.read(RECORDS_MAX, 0.1):
                position = record.offset + 1
                if wanted and wanted[0] == record.offset:
                    found[wanted.popleft()] = record
            if wanted and clock.now_us() > until_us:
                raise BusTimeout(
                    f"{partition.topic} [{partition.partition}] was not read back",
                    code="_TIMED_OUT",
                )
    finally:
        reader.unassign([partition])
    return found


class Task(NamedTuple):
    write: Write
    letters: tuple[DeadLetter, ...]


class DeadLetters:
    """Writes dead letters from a thread of its own, since it waits for the log.

    When the originals cannot be read the write ends as not acked, and the lane asks
    for it again.
    """

    def __init__(
        self,
        topics: Topics,
        reader: Reader,
        producing: Producing,
        clock: Clock,
        *,
        original_bytes_max: int,
    ) -> None:
        """An original larger than ``original_bytes_max``, as a foreign writer's may be
        where the topic allows it, stays where it is: a letter that does not fit its
        own topic would hold the partition for ever."""
        self._original_bytes_max = original_bytes_max
        self._topics = topics
        self._reader = reader
        self._producing = producing
        self._clock = clock
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="deadletters", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._tasks.put(None)
        self._thread.join()

    def write(self, write: Write, letters: tuple[DeadLetter, ...]) -> None:
        """``write`` has one record for each letter."""
        self._tasks.put(Task(write, letters))

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._copy(task)
        self._reader.close()

    def _copy(self, task: Task) -> None:
        offsets = defaultdict[TopicPartition, list[int]](list)
        for letter in task.letters:
            source = letter.source
            offsets[TopicPartition(source.topic, source.partition)].append(
                source.offset
            )
        originals: dict[Source, Record] = {}
        try:
            for partition, some in offsets.items():
                found = read_back(self._reader, partition, some, self._clock)
                originals |= {
                    Source(*partition, offset): record
                    for offset, record in found.items()
                }
        except BusError:
            self._producing.refuse(task.write)
            return
        for letter in task.letters:
            original = originals.get(letter.source)
            if original is not None and size_of(original) > self._original_bytes_max:
                original = None
            self._producing.write(
                task.write,
                Place(self._topics.dead_letters(letter.model), 0),
                dead_letter(letter, original),
            )


def size_of(record: Record) -> int:
    """Bytes that a record takes up in a record set, but for a few of framing."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
