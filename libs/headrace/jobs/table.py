"""The jobs of an installation, as ``control.jobs`` has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from headrace.broker import (
    Delivery,
    KafkaConnection,
    KafkaProducer,
    ProducerSettings,
    Record,
    records_since,
)
from headrace.errors import UndecodableRecord
from headrace.wire import JSON_HEADERS, Topics
from headrace.wire.jobs import (
    JobCancel,
    JobPart,
    JobProgress,
    JobSpec,
    decode_job_record,
    job_key,
)

__all__ = ["Job", "JobTable", "JobWriter", "read_jobs"]

_PARTS: Final = {
    JobSpec: JobPart.SPEC,
    JobProgress: JobPart.PROGRESS,
    JobCancel: JobPart.CANCEL,
}
SEND_MS: Final = 30_000


class Job(msgspec.Struct):
    """``heard_us``: when its publisher wrote last, in log time."""

    spec: JobSpec | None = None
    progress: JobProgress | None = None
    cancelled: bool = False
    heard_us: int = 0


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
                    job.cancelled = value is not None

    def of(self, tenant: str, job: str) -> Job:
        """Without a spec: there is no such job."""
        return self._jobs.get((tenant, job), Job())

    def all(self) -> list[Job]:
        """Those that were submitted, the oldest first."""
        found = [job for job in self._jobs.values() if job.spec is not None]
        return sorted(found, key=lambda job: job.spec.submitted_us if job.spec else 0)


class JobWriter:
    """Writes records of one job. Raises :class:`headrace.errors.BusError`."""

    def __init__(self, connection: KafkaConnection, topics: Topics) -> None:
        self._topic = topics.control_jobs
        self._producer = KafkaProducer(connection, ProducerSettings(timeout_ms=SEND_MS))

    def write(self, value: JobSpec | JobProgress | JobCancel) -> int:
        """Wait until the log has it; its log time."""
        part = _PARTS[type(value)]
        return self._put(value.tenant, value.job, part, msgspec.json.encode(value))

    def clear(self, tenant: str, job: str, part: JobPart) -> int:
        """Take the record away; log time, as :meth:`write`."""
        return self._put(tenant, job, part, None)

    def _put(self, tenant: str, job: str, part: JobPart, value: bytes | None) -> int:
        ended: list[Delivery] = []
        self._producer.produce(
            self._topic,
            0,
            value,
            key=job_key(tenant, job, part),
            headers=JSON_HEADERS,
            on_delivery=ended.append,
        )
        while not ended:
            self._producer.poll(0.1)
        (delivery,) = ended
        if delivery.error is not None:
            raise delivery.error
        return delivery.timestamp_us


def read_jobs(connection: KafkaConnection, topics: Topics) -> JobTable:
    """Raises :class:`headrace.errors.BusError`."""
    table = JobTable()
    topic = topics.control_jobs
    table.apply(records_since(connection, lambda one: one.topic == topic))
    return table
