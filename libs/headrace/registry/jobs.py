"""The jobs of an installation, folded from ``control.jobs``."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.errors import UndecodableRecord
from headrace.wire import Record
from headrace.wire.jobs import JobPart, JobProgress, JobSpec, decode_job_record

__all__ = ["Job", "JobTable"]


class Job(msgspec.Struct):
    """``heard_us``: when its publisher wrote last; ``cancelled_us``: when it was asked
    to be cancelled. Log time."""

    spec: JobSpec | None = None
    progress: JobProgress | None = None
    cancelled_us: int | None = None
    heard_us: int = 0

    @property
    def cancelled(self) -> bool:
        return self.cancelled_us is not None


class JobTable:
    """Folds the records, oldest first; what cannot be read is passed over."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, str], Job] = {}

    def apply(self, records: Iterable[Record]) -> None:
        for record in records:
            try:
                key, value = decode_job_record(record)
            except UndecodableRecord:
                continue
            job = self._jobs.setdefault((key.tenant, key.job), Job())
            match key.part:
                case JobPart.SPEC:
                    assert value is None or isinstance(value, JobSpec)
                    job.spec = value
                case JobPart.PROGRESS:
                    assert value is None or isinstance(value, JobProgress)
                    job.progress = value
                    job.heard_us = record.timestamp_us
                case JobPart.CANCEL:
                    job.cancelled_us = record.timestamp_us if value else None

    def of(self, tenant: str, job: str) -> Job:
        """Without a spec: there is no such job."""
        return self._jobs.get((tenant, job), Job())

    def all(self) -> list[Job]:
        """Those that were submitted, the oldest first."""
        found = [job for job in self._jobs.values() if job.spec is not None]
        return sorted(found, key=lambda job: job.spec.submitted_us if job.spec else 0)
