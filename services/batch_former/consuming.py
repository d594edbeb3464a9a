"""Readers of the log whose changes of position are numbered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from headrace.broker import LOOK_S, Reader, ReaderThread, Record, TopicPartition
from headrace.errors import BusError, OffsetOutOfRange
from services.batch_former.inbox import Channel, Inbox
from services.batch_former.messages import (
    Message,
    OutOfRange,
    ReadBatch,
    ThreadFailed,
)

__all__ = ["Consuming"]

RANGE_TIMEOUT_S = 2.0


class Consuming:
    """Reads what the loop asks for and puts it on the inbox.

    Each change of what is read has a number from ``changes``, which may be the count
    of several, and each batch that of the last change before it: so the loop tells
    records from before a change from those after it, however long they lay in the
    inbox.
    """

    def __init__(
        self,
        reader: Reader,
        channel: Channel,
        inbox: Inbox[Message],
        *,
        changes: Iterator[int],
        records_max: int,
        look_s: float = LOOK_S,
    ) -> None:
        self._reader = reader
        self._channel = channel
        self._inbox = inbox
        self._changes = changes
        self._made = 0
        self._thread = ReaderThread(
            channel.name.lower(),
            reader,
            self._take,
            self._fail,
            records_max=records_max,
            look_s=look_s,
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; the inbox is closed before, so that it waits for nobody."""
        self._thread.stop()

    def read(self, positions: Mapping[TopicPartition, int]) -> int:
        """Read these partitions from these offsets on; the number of the change."""
        return self._change(lambda reader: reader.assign(positions))

    def stop_reading(self, partitions: Sequence[TopicPartition]) -> int:
        return self._change(lambda reader: reader.unassign(partitions))

    def pause(self, partition: TopicPartition) -> int:
        return self._change(lambda reader: reader.pause([partition]))

    def resume(self, partition: TopicPartition) -> int:
        return self._change(lambda reader: reader.resume([partition]))

    def _change(self, change: Callable[[Reader], None]) -> int:
        number = next(self._changes)

        def make(reader: Reader) -> None:
            change(reader)
            self._made = number

        self._thread.do(make)
        return number

    def _take(self, records: list[Record]) -> None:
        self._inbox.put(self._channel, ReadBatch(self._channel, records, self._made))

    def _fail(self, error: BusError) -> None:
        if not isinstance(error, OffsetOutOfRange):
            self._inbox.put(
                Channel.OWNERSHIP, ThreadFailed(self._channel.name.lower(), error)
            )
            return
        lost = TopicPartition(error.topic, error.partition)
        try:
            log = self._reader.log_range(lost, RANGE_TIMEOUT_S)
        except BusError:
            # The position is still outside the log when the broker answers again.
            self._thread.do(lambda _reader: self._fail(error))
            return
        self._inbox.put(self._channel, OutOfRange(self._channel, lost, log, self._made))
