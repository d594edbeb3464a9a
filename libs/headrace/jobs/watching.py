"""What a publisher tells of its job, and what others tell it."""

from __future__ import annotations

import os
import socket
from typing import Final
from uuid import uuid4

import msgspec

from headrace.broker import KafkaConnection, KafkaReader, Record, TopicPartition
from headrace.errors import RequestError
from headrace.jobs.table import JobTable, JobWriter, read_jobs
from headrace.wire import Topics
from headrace.wire.jobs import JobProgress, JobSpec, JobState

__all__ = ["JobTaken", "JobWatch"]

LOOK_UP_S: Final = 10.0
READ_AT_ONCE: Final = 500


class JobTaken(RequestError):
    """Another process publishes the job now."""


class JobWatch:
    """The publisher's place in ``control.jobs``. From :meth:`claim` on any earlier
    publisher of the job stops.

    Raises :class:`headrace.errors.BusError`, as do its methods.
    """

    def __init__(
        self, connection: KafkaConnection, topics: Topics, spec: JobSpec
    ) -> None:
        self._spec = spec
        self._writer = JobWriter(connection, topics)
        self._reader = KafkaReader(connection)
        one = TopicPartition(topics.control_jobs, 0)
        end = self._reader.log_range(one, LOOK_UP_S).end
        self._reader.assign({one: end})
        self._table: JobTable = read_jobs(connection, topics)
        self.before = self._table.of(spec.tenant, spec.job).progress
        """What the last publisher told."""

        self._is_claimed = False
        """Whether our claim was read back."""

    def claim(self) -> JobProgress:
        before = self.before
        self.progress = JobProgress(
            job=self._spec.job,
            tenant=self._spec.tenant,
            state=JobState.RUNNING,
            publisher=uuid4().hex,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_us=0,
            published=before.published if before else 0,
            positions=before.positions if before else {},
            stages=before.stages if before else {},
        )
        started_us = self._writer.write(self.progress)
        return self.tell(started_us=started_us)

    def tell(self, **changes: object) -> JobProgress:
        self.progress = msgspec.structs.replace(self.progress, **changes)
        self._writer.write(self.progress)
        return self.progress

    def is_cancelled(self) -> bool:
        """Raises :class:`JobTaken` when another publisher has claimed the job."""
        while records := self._reader.read(READ_AT_ONCE, 0):
            for record in records:
                self._take_in(record)
        return self._table.of(self._spec.tenant, self._spec.job).cancelled

    def _take_in(self, record: Record) -> None:
        """What another wrote before our claim says nothing; what it wrote since does,
        though a word of our own may follow."""
        self._table.apply([record])
        told = self._table.of(self._spec.tenant, self._spec.job).progress
        if told is None:
            return
        if told.publisher == self.progress.publisher:
            self._is_claimed = True
        elif self._is_claimed and told.publisher not in self._known(self.progress):
            raise JobTaken(
                f"job {told.job} goes on in process {told.pid} of {told.host}"
            )

    def _known(self, mine: JobProgress) -> set[str]:
        """Those whose records may be read here without meaning that it was taken."""
        return {mine.publisher, self.before.publisher if self.before else ""}

    def close(self) -> None:
        self._reader.close()
