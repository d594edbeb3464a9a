"""The jobs of an installation, as ``control.jobs`` has them."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.broker import (
    Delivery,
    KafkaConnection,
    KafkaProducer,
    ProducerSettings,
    records_since,
)
from headrace.registry import Job, JobTable
from headrace.wire import JSON_HEADERS, Topics
from headrace.wire.jobs import (
    JobCancel,
    JobPart,
    JobProgress,
    JobSpec,
    job_key,
)

__all__ = ["Job", "JobTable", "JobWriter", "read_jobs"]

_PARTS: Final = {
    JobSpec: JobPart.SPEC,
    JobProgress: JobPart.PROGRESS,
    JobCancel: JobPart.CANCEL,
}
SEND_MS: Final = 30_000


class JobWriter:
    """Writes records of one job. Raises :class:`headrace.errors.BusError`."""

    def __init__(self, connection: KafkaConnection, topics: Topics) -> None:
        self._topic = topics.control_jobs
        # Each write is waited for, so a record may lie there twice, but never late.
        settings = ProducerSettings(timeout_ms=SEND_MS, idempotent=False)
        self._producer = KafkaProducer(connection, settings)

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
