"""A job's publisher at work: rows go out as fast as the queue takes them, answers come
in and are written in the order of the rows, until each row has its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from headrace.broker import Answered, BulkExchange, KafkaConnection, records_at
from headrace.clock import SystemClock, wall_us
from headrace.domain import PayloadRef, Reason, Source, Tensor
from headrace.errors import BusError, PayloadLost, RequestError, StoreUnavailable
from headrace.jobs.answers import Part
from headrace.jobs.desk import Desk, is_end
from headrace.jobs.outputs import RowError
from headrace.jobs.records import NewRecord, row_of
from headrace.jobs.work import Answer, Work
from headrace.wire import PlainReply, decode_plain_reply
from headrace.wire.jobs import JobSpec, RowRange
from headrace.wire.payloads import tensors_from

__all__ = ["Held", "Publishing"]

PUBLISHED_AT_ONCE: Final = 256
WAIT_S: Final = 0.05
TELL_EVERY_US: Final = 1_000_000
AHEAD_BYTES_MAX: Final = 48 * 1024 * 1024
"""Of results that wait for earlier rows; beyond, only their place is kept."""

FETCHED_AT_ONCE: Final = 500
FLUSH_S: Final = 10.0

_STORED: Final = (
    "the outputs are larger than a record may be (payload_bytes_max), and a batch does "
    "not read the payload store"
)


class Held(NamedTuple):
    """A result: its tensors, or where the log has it. ``size``: bytes of them kept."""

    place: Source
    tensors: tuple[Tensor, ...] | None
    size: int


class Publishing:
    """``desk`` decides; this carries out. One thread."""

    def __init__(
        self,
        connection: KafkaConnection,
        spec: JobSpec,
        *,
        desk: Desk[Held],
        work: Work,
        exchange: BulkExchange,
        read: Callable[[PayloadRef], memoryview] | None = None,
    ) -> None:
        self._connection = connection
        self._spec = spec
        self._desk = desk
        self._rows, self._maker, self._output, _ = work
        self._exchange = exchange
        self._clock = SystemClock()
        self._read = read
        self._plan = self._planned(desk.cursor)
        self._again: Iterator[NewRecord] = iter(())
        self._pending: NewRecord | None = None
        self._flying: set[RowRange] = set()
        self._ahead_bytes = 0
        self.is_planned = False
        """Whether every row has been published once."""

    def catch_up(self, flying: set[RowRange]) -> None:
        """Read what is answered already; ``flying`` lies in the log."""
        self._flying |= flying
        ends = self._exchange.ends()
        while not self._exchange.has_read(ends):
            # An earlier publisher saw to the rows of old letters, or they are missing
            # in the end.
            self._take_in(self._exchange.turn(WAIT_S), is_old=True)

    def write(self) -> None:
        """All rows that have ended, up to the first that has not."""
        parts: list[Part[Held | RowError]] = []
        for part in self._desk.take():
            parts.append(part)
            if len(parts) >= FETCHED_AT_ONCE:
                self._write_parts(parts)
                parts = []
        self._write_parts(parts)

    def run(self, told: Callable[[], bool]) -> bool:
        """Until every row has its end; ``told`` is called about every second, and
        stops it by False."""
        tell_at_us = 0
        while not (self.is_planned and self._desk.frontier >= self._desk.cursor):
            sent = self._publish()
            self._take_in(self._exchange.turn(0 if sent else WAIT_S))
            if self._is_idle and self._is_quiet():
                self._again = self._missing(self._desk.missing())
            now_us = self._clock.now_us()
            if now_us >= tell_at_us:
                tell_at_us = now_us + TELL_EVERY_US
                if not told():
                    return False
        return True

    @property
    def next_row(self) -> int:
        """Every row before it was handed to the producer, or broke the signature."""
        if self._pending is None:
            return self._desk.cursor
        return min(self._desk.cursor, self._pending.rows.first)

    def take_back(self) -> None:
        """Cancel what waits in the log; what runs, runs."""
        for rows in sorted(self._flying):
            self._exchange.cancel(self._maker.cancel(rows))
        self._exchange.flush(FLUSH_S)

    def settle(self, within_us: int) -> None:
        """Take in the answers to what was published, for so long at most."""
        until_us = self._clock.now_us() + within_us
        while not self._is_quiet() and self._clock.now_us() < until_us:
            self._take_in(self._exchange.turn(WAIT_S), is_old=True)

    def _is_quiet(self) -> bool:
        try:
            return self._exchange.is_quiet
        except BusError:
            return False  # a broker that is away says nothing of what is missing

    @property
    def _is_idle(self) -> bool:
        """Whether there is nothing to send."""
        is_through = self.is_planned or self._desk.is_held_up
        return is_through and self._pending is None and not self._desk.wants_singles

    def _planned(self, start: int) -> Iterator[NewRecord]:
        for chunk in self._rows.chunks(start):
            yield from self._maker.records(chunk, self._desk)
        self.is_planned = True

    def _missing(self, gaps: list[RowRange]) -> Iterator[NewRecord]:
        for gap in gaps:
            for chunk in self._rows.chunks(gap.first):
                if chunk.first >= gap.end:
                    break
                yield from self._maker.again(chunk, gap, self._desk)

    def _publish(self) -> int:
        """How many records were sent: as many as the queue takes, or some."""
        for sent in range(PUBLISHED_AT_ONCE):
            if self._pending is None:
                self._pending = self._next()
            record = self._pending
            if record is None or not self._exchange.offer(record.headers, record.value):
                return sent
            self._flying.add(record.rows)
            self._pending = None
        return PUBLISHED_AT_ONCE

    def _next(self) -> NewRecord | None:
        single = self._desk.next_single()
        if single is not None:
            tensors = row_of(single.request, single.place)
            return self._maker.record(RowRange(single.row, 1), tensors)
        record = next(self._again, None)
        if record is None and not (self.is_planned or self._desk.is_held_up):
            record = next(self._plan, None)
        return record

    def _take_in(self, answers: list[Answered], *, is_old: bool = False) -> None:
        for answered in answers:
            rows = RowRange.of_id(self._spec.job, answered.id)
            if rows is None:
                continue
            self._flying.discard(rows)
            letter = answered.letter
            if letter is not None:
                request = None if is_old else answered.value or None
                self._desk.buried(rows, letter.reason, letter.text, request)
            elif answered.reply is not None:
                self._take_reply(rows, answered, answered.reply)
        self.write()

    def _take_reply(
        self, rows: RowRange, answered: Answered, reply: PlainReply
    ) -> None:
        if reply.payload is not None and self._read is None:
            self._desk.buried(rows, Reason.TOO_LARGE, _STORED, None)
        elif reply.reason is None:
            self._keep(rows, answered, reply)
        elif is_end(reply.reason, self._left_us()):
            self._desk.buried(rows, reply.reason, reply.text, None)

    def _left_us(self) -> int | None:
        deadline_us = self._spec.deadline_us
        return None if deadline_us is None else deadline_us - wall_us()

    def _keep(self, rows: RowRange, answered: Answered, reply: PlainReply) -> None:
        held = Held(answered.place, reply.outputs, len(answered.value))
        is_apart = reply.payload is not None
        if is_apart or self._ahead_bytes + held.size > AHEAD_BYTES_MAX:
            held = Held(answered.place, None, 0)
        if self._desk.answered(rows, held):
            self._ahead_bytes += held.size

    def _write_parts(self, parts: list[Part[Held | RowError]]) -> None:
        places = [
            part.answer.place
            for part in parts
            if isinstance(part.answer, Held) and part.answer.tensors is None
        ]
        found = records_at(self._connection, places) if places else {}
        for first, rows, skip, held in parts:
            if isinstance(held, RowError):
                self._output.add(Part(first, rows, skip, held))
                continue
            answer: Answer | None = held.tensors
            if answer is None:
                if held.place not in found:
                    # A later one of the same rows took its place, or it is too old.
                    raise RequestError(
                        f"the log no longer has the result at {held.place}: go on with "
                        f"`headrace jobs resume {self._spec.job}`"
                    )
                answer = self._outputs(decode_plain_reply(found[held.place]))
            if isinstance(answer, RowError):
                self._desk.failed += rows
            self._ahead_bytes = max(self._ahead_bytes - held.size, 0)
            self._output.add(Part(first, rows, skip, answer))

    def _outputs(self, reply: PlainReply) -> Answer:
        """With their data, where the payload store has it."""
        if reply.payload is None:
            return reply.outputs
        assert self._read is not None
        try:
            content = self._read(reply.payload)
            return tensors_from(reply.payload, reply.outputs, content)
        except PayloadLost as error:
            return RowError(Reason.PAYLOAD_LOST, str(error))
        except ValueError:
            return RowError(Reason.PAYLOAD_LOST, "the outputs' object does not fit")
        except StoreUnavailable as error:
            raise RequestError(
                f"{error}: outputs larger than a record lie there; go on with "
                f"`headrace jobs resume {self._spec.job}`"
            ) from error
