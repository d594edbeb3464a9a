"""The thread that fetches the slot's partition."""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.broker import Reader, ReaderThread, Record, TopicPartition
from headrace.clock import Clock
from headrace.delivery.worker_events import (
    CaughtUp,
    PositionLost,
    Started,
    WorkerEvent,
)
from headrace.errors import BusError, OffsetOutOfRange, UndecodableRecord
from headrace.telemetry import Log
from headrace.wire import decode_order
from services.gpu_worker.orders import BatchFetched, OrderIntake

__all__ = ["Fetcher"]

RANGE_TIMEOUT_S = 5
RANGE_PAUSE_S = 0.1

WAIT_S = 0.1
"""What else the thread is asked to do has so much time."""


class Fetcher:
    """Reads one partition of ``batches``; ``put`` gets what the loop is to know, in
    the order of the log."""

    def __init__(
        self,
        reader: Reader,
        partition: TopicPartition,
        *,
        put: Callable[[WorkerEvent | BatchFetched], None],
        orders: OrderIntake,
        clock: Clock,
        log: Log,
    ) -> None:
        self._partition = partition
        self._put = put
        self._orders = orders
        self._clock = clock
        self._log = log
        self._position = 0
        self._ends_sought: list[int] = []
        self._answered_us = clock.now_us()
        self._asked = False
        self._thread = ReaderThread(
            "fetch", reader, self._take, self._fail, records_max=1, wait_s=WAIT_S
        )

    def start(self) -> None:
        """Find the partition's end (W1) and say ``Started``."""
        self._thread.do(self._find_end)
        self._thread.start()

    def read_from(self, position: int) -> None:
        def assign(reader: Reader) -> None:
            self._position = position
            reader.assign({self._partition: position})

        self._thread.do(assign)

    def read_to_end(self) -> None:
        """Say ``CaughtUp`` once everything is read that lies in the partition now."""
        self._thread.do(self._seek_end)

    def silent_us(self, now_us: int) -> int:
        """How long the thread has not turned, as far as is known: each call asks it
        to answer."""
        if not self._asked:
            self._asked = True
            self._thread.do(self._answer)
            return 0
        return now_us - self._answered_us

    def _answer(self, _reader: Reader) -> None:
        self._answered_us = self._clock.now_us()
        self._asked = False

    def _find_end(self, reader: Reader) -> None:
        end = self._end(reader, self._find_end)
        self._put(Started(end))

    def _seek_end(self, reader: Reader) -> None:
        end = self._end(reader, self._seek_end)
        self._ends_sought.append(end)
        self._say_caught_up()

    def _end(self, reader: Reader, again: Callable[[Reader], None]) -> int:
        """The partition's end now; ``again`` runs later where the log does not say,
        as while a new partition has no leader yet."""
        try:
            return reader.log_range(self._partition, RANGE_TIMEOUT_S).end
        except BusError:
            time.sleep(RANGE_PAUSE_S)
            self._thread.do(again)
            raise

    def _take(self, records: list[Record]) -> None:
        for record in records:
            self._position = record.offset + 1
            try:
                order = decode_order(record)
            except UndecodableRecord as error:
                self._log.error(
                    "record.undecodable",
                    topic=record.topic,
                    partition=record.partition,
                    offset=record.offset,
                    text=str(error),
                )
                continue
            self._put(self._orders.take(order, record.offset))
        self._say_caught_up()

    def _say_caught_up(self) -> None:
        while self._ends_sought and self._position >= self._ends_sought[0]:
            self._ends_sought.pop(0)
            self._put(CaughtUp())

    def _fail(self, error: BusError) -> None:
        if isinstance(error, OffsetOutOfRange):
            self._put(PositionLost())
            return
        self._log.warning("read.failed", code=error.code, text=str(error))
