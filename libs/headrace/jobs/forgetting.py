"""Jobs that are over and were not asked for since: their records, and their topics."""

from __future__ import annotations

from typing import Final

from headrace.broker import KafkaAdmin, KafkaConnection
from headrace.jobs.table import JobWriter
from headrace.registry import Job, JobTable
from headrace.wire import Topics
from headrace.wire.jobs import JobPart, JobSpec

__all__ = ["forget", "forgettable"]

_DELETE_S: Final = 15.0


def forgettable(table: JobTable, now_us: int, kept_us: int) -> list[JobSpec]:
    """The jobs of which nothing was heard for so long, ended or not: their results are
    gone from the log long before."""
    return [
        job.spec
        for job in table.all()
        if job.spec is not None and _last_us(job, job.spec) + kept_us <= now_us
    ]


def forget(connection: KafkaConnection, topics: Topics, spec: JobSpec) -> None:
    """Delete the job's topic, then its records: whoever is killed in between leaves a
    job that is found again. Raises :class:`headrace.errors.BusError`."""
    topic = topics.results(spec.tenant, spec.job)
    admin = KafkaAdmin(connection)
    if topic in admin.topics(_DELETE_S):
        admin.delete_topic(topic, _DELETE_S)
    writer = JobWriter(connection, topics)
    # What was asked for goes last: without it nobody looks for the others.
    for part in (JobPart.PROGRESS, JobPart.CANCEL, JobPart.SPEC):
        writer.clear(spec.tenant, spec.job, part)


def _last_us(job: Job, spec: JobSpec) -> int:
    return max(spec.submitted_us, job.heard_us, job.cancelled_us or 0)
