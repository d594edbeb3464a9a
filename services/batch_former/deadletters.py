"""Records that can never be answered, copied from where they lie in the log."""

from __future__ import annotations

from collections import defaultdict
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

from headrace.broker import Reader, Record, TopicPartition, read_kept
from headrace.clock import Clock
from headrace.domain import DeadLetter, Source
from headrace.errors import BusError
from headrace.wire import Topics, dead_letter
from services.batch_former.producing import Place, Producing, Write

__all__ = ["DeadLetters"]

READ_BACK_US_MAX = 2_000_000
"""Longest that originals of letters are waited for (:func:`read_kept`)."""


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
            for record in read_kept(
                self._reader, offsets, us_max=READ_BACK_US_MAX, clock=self._clock
            ):
                place = Source(record.topic, record.partition, record.offset)
                originals[place] = record
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
