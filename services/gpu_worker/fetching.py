"""The thread that fetches: the slot's partition, read ahead and laid out to run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from headrace.broker import Reader, ReaderThread, Record, TopicPartition
from headrace.clock import Clock
from headrace.delivery.worker_events import (
    BatchRead,
    CaughtUp,
    PositionLost,
    Started,
    SyncRead,
    WorkerEvent,
)
from headrace.errors import BusError, OffsetOutOfRange, UndecodableRecord
from headrace.telemetry import Log
from headrace.wire import Batch, Sync, decode_order
from services.gpu_worker.claims import Prefetch
from services.gpu_worker.jobs import Job, Runnable

__all__ = ["BatchFetched", "Fetcher"]

RANGE_TIMEOUT_S = 5
RANGE_PAUSE_S = 0.1


class BatchFetched(NamedTuple):
    """A batch for the core, with what the core need not see of it."""

    read: BatchRead
    job: Job


class Fetcher:
    """Reads one partition of ``batches``; ``put`` gets what the loop is to know, in
    the order of the log."""

    def __init__(  # noqa: PLR0913 - everything that a record meets on its way in
        self,
        reader: Reader,
        partition: TopicPartition,
        *,
        put: Callable[[WorkerEvent | BatchFetched], None],
        find: Callable[[str, str], Runnable | None],
        prefetch: Callable[[Batch], Prefetch | None],
        to_mono: Callable[[int], int | None],
        clock: Clock,
        log: Log,
    ) -> None:
        self._partition = partition
        self._put = put
        self._find = find
        self._prefetch = prefetch
        self._to_mono = to_mono
        self._clock = clock
        self._log = log
        self._position = 0
        self._ends_sought: list[int] = []
        self._answered_us = clock.now_us()
        self._asked = False
        self._thread = ReaderThread("fetch", reader, self._take, self._fail)

    def start(self) -> None:
        """Find the partition's end (W1) and say ``Started``."""
        self._thread.do(self._find_end)
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()

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
            match order:
                case Batch():
                    self._put(self._fetched(record.offset, order))
                case Sync(lane, epoch, former, k):
                    self._put(SyncRead(record.offset, lane, epoch, former, k))
        self._say_caught_up()

    def _fetched(self, offset: int, batch: Batch) -> BatchFetched:
        now_us = self._clock.now_us()
        runnable = self._find(batch.model, batch.version)
        if runnable is not None:
            runnable.used_us = now_us
        coming = self._prefetch(batch)
        job = Job(batch, runnable, now_us, coming)
        if coming is None or runnable is None:
            job.lay_out()
        job.input_us = self._clock.now_us() - now_us
        stamp = batch.stamp
        latest_us = stamp.latest_start_us
        read = BatchRead(
            offset=offset,
            batch=batch.batch,
            lane=stamp.lane,
            epoch=stamp.epoch,
            former=stamp.former,
            incarnation=stamp.incarnation,
            members=job.members,
            model=batch.model,
            version=batch.version,
            padded_rows=batch.padded_rows,
            latest_start_us=None if latest_us is None else self._to_mono(latest_us),
            bulk=job.is_bulk,
        )
        return BatchFetched(read, job)

    def _say_caught_up(self) -> None:
        while self._ends_sought and self._position >= self._ends_sought[0]:
            self._ends_sought.pop(0)
            self._put(CaughtUp())

    def _fail(self, error: BusError) -> None:
        if isinstance(error, OffsetOutOfRange):
            self._put(PositionLost())
            return
        self._log.warning("read.failed", code=error.code, text=str(error))
