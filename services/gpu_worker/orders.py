"""What a former orders, made ready for the core: batches are laid out to run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.clock import Clock
from headrace.delivery.worker_events import BatchRead, SyncRead
from headrace.wire import Batch, Sync
from services.gpu_worker.claims import Prefetch
from services.gpu_worker.jobs import Job, Runnable

__all__ = ["BatchFetched", "OrderIntake"]


class BatchFetched(NamedTuple):
    """A batch for the core, with what the core need not see of it."""

    read: BatchRead
    job: Job


class OrderIntake:
    """For every thread that reads orders."""

    def __init__(
        self,
        *,
        find: Callable[[str, str], Runnable | None],
        prefetch: Callable[[Batch], Prefetch | None],
        store_wait_us: int,
        to_mono: Callable[[int], int | None],
        clock: Clock,
    ) -> None:
        self._find = find
        self._prefetch = prefetch
        self._store_wait_us = store_wait_us
        self._to_mono = to_mono
        self._clock = clock

    def take(
        self, order: Batch | Sync, offset: int, link: int | None = None
    ) -> BatchFetched | SyncRead:
        """The order at ``offset`` of the slot's partition, or one of ``link``."""
        if isinstance(order, Batch):
            return self._fetched(order, offset, link)
        return SyncRead(
            offset,
            order.lane,
            order.epoch,
            order.former,
            order.k,
            order.incarnation,
            link,
        )

    def _fetched(self, batch: Batch, offset: int, link: int | None) -> BatchFetched:
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
            predicted_us=batch.predicted_us,
            store_wait_us=self._store_wait_us if coming else 0,
            link=link,
        )
        return BatchFetched(read, job)
