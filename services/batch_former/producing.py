"""One thread for each producer, which hands its reports to the loop."""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

from headrace.broker import Delivery, Producer, ProducerThread
from headrace.errors import BusError
from headrace.wire import Outgoing
from services.batch_former.inbox import Channel, Inbox
from services.batch_former.messages import Ended, Message, WritesEnded

__all__ = ["ANY", "Place", "Producing", "Write"]


class Write:
    """One numbered write of a lane: ended when each of its records is, once.

    Reported with the offset of the last record, or None when any is not acked.
    """

    def __init__(self, lane: int, term: int, number: int, records: int = 1) -> None:
        self._lane = lane
        self._term = term
        self._number = number
        self._records_left = records
        self._is_acked = True

    def shorten(self) -> None:
        """The next record to end is the last."""
        self._records_left = 1

    def end(self, offset: int | None) -> Ended | None:
        """One record more has ended."""
        self._records_left -= 1
        self._is_acked &= offset is not None
        if self._records_left:
            return None
        return Ended(
            self._lane, self._term, self._number, offset if self._is_acked else None
        )


class Place(NamedTuple):
    """Where a record is written; partition :data:`ANY`: its key decides."""

    topic: str
    partition: int


ANY = -1


class Producing:
    """Writes records, and tells the loop how the writes ended."""

    def __init__(
        self,
        producer: Producer,
        name: str,
        inbox: Inbox[Message],
        *,
        failures_only: bool = False,
    ) -> None:
        """``failures_only``: the loop does not hear of writes that were acked."""
        self._producer = producer
        self._inbox = inbox
        self._failures_only = failures_only
        self._lock = Lock()
        self._ended: list[Ended] = []
        self._held: list[tuple[Write, Place, Outgoing]] = []
        self._thread = ProducerThread(name, producer, self._report)

    def start(self) -> None:
        self._thread.start()

    def stop(self, flush_s: float) -> None:
        self._thread.stop(flush_s)

    def hold(self, write: Write, place: Place, outgoing: Outgoing) -> None:
        """Send it at :meth:`release` or before the next :meth:`write`, with all that is
        held, one right behind the other: the client of Kafka then needs two requests.
        One for each, as they are made, fills a core with its waiting from the sixth
        on."""
        self._held.append((write, place, outgoing))

    def release(self) -> None:
        held, self._held = self._held, []
        for each in held:
            self._send(*each)

    def write(self, write: Write, place: Place, outgoing: Outgoing) -> None:
        """Send a record of ``write``; never blocks. What the producer refuses at once
        (its queue is full, the record too large) is reported as not acked."""
        self.release()
        self._send(write, place, outgoing)

    def _send(self, write: Write, place: Place, outgoing: Outgoing) -> None:
        def end(delivery: Delivery) -> None:
            self._end(write, None if delivery.error else delivery.offset)

        try:
            self._producer.produce(
                place.topic,
                place.partition,
                outgoing.value,
                key=outgoing.key,
                headers=outgoing.headers,
                on_delivery=end,
            )
        except BusError:
            self._end(write, None)
            self._report()

    def refuse(self, write: Write) -> None:
        """Report ``write`` as not acked although nothing of it was sent."""
        write.shorten()
        self._end(write, None)
        self._report()

    def _end(self, write: Write, offset: int | None) -> None:
        with self._lock:
            ended = write.end(offset)
            if ended and not (self._failures_only and ended.offset is not None):
                self._ended.append(ended)

    def _report(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        if ended:
            self._inbox.put(Channel.WRITES, WritesEnded(ended))
