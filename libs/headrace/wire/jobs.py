"""Offline jobs as they stand in ``control.jobs``: what was asked, and how far it is.

A job has up to three records, each under a key of its own, so that who publishes its
rows and who cancels it never write over each other.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from headrace.domain import Count, Microseconds, Priority
from headrace.errors import UndecodableRecord
from headrace.wire.headers import check_schema
from headrace.wire.records import Record

__all__ = [
    "BatchOrder",
    "InputFile",
    "JobCancel",
    "JobKey",
    "JobPart",
    "JobProgress",
    "JobSpec",
    "JobStage",
    "JobState",
    "RowRange",
    "decode_job_record",
    "job_key",
]


class JobState(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    """Its publisher was told to stop; ``resume`` goes on."""
    DONE = "done"
    FAILED = "failed"
    """It cannot go on; ``text`` says why. ``resume`` tries again."""
    CANCELLED = "cancelled"


class JobStage(StrEnum):
    """How far the work has come."""

    PUBLISHING = "publishing"
    """Its files have been looked through."""
    WRITING = "writing"
    """Every row has its end."""
    ENDED = "ended"


class JobPart(StrEnum):
    """The last word of a record's key."""

    SPEC = "spec"
    PROGRESS = "progress"
    CANCEL = "cancel"


class InputFile(msgspec.Struct, frozen=True):
    """A file as it was when the job was submitted; ``modified``: as its store words
    it, or empty."""

    url: str
    size: Count
    modified: str = ""


class BatchOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a batch of the OpenAI-compatible API asks for beside a job. Its items are
    lines, each of them a request; ids are those of the API."""

    endpoint: str
    """Path to which every line goes."""

    input_file_id: str
    output_file_id: str
    error_file_id: str
    """The files that it will write, if they get a line."""

    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_s: Count | None = None
    """So long its files are kept; None: as long as any."""


class JobSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Key ``<tenant>/<job>/spec``: what was asked for; it never changes."""

    job: str
    tenant: str
    model: str
    version: str
    """Resolved when it was submitted; all rows run on it."""

    inputs: tuple[InputFile, ...]
    output: str
    submitted_us: Microseconds
    """Log time, epoch microseconds; nothing of the job is older."""

    rows_max: Annotated[int, Meta(ge=1)]
    """Most rows in one record."""

    columns: dict[str, tuple[str, ...]] = {}
    """The columns of each input that were named."""

    priority: Priority = Priority.BULK
    deadline_us: Microseconds | None = None
    """Log time; rows that have not run by then fail with ``expired``."""

    batch: BatchOrder | None = None
    """None: its items are rows, which a command publishes. A batch is published by the
    ingresses."""


class JobProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Key ``<tenant>/<job>/progress``: written by its publisher, every second."""

    job: str
    tenant: str
    state: JobState
    publisher: str
    """UUID of the process, 32 hex digits; whoever reads another's stops."""

    host: str
    pid: Count
    started_us: Microseconds
    """Of this publisher, log time."""

    rows: Count | None = None
    """Of the whole input; None: not known yet."""

    done: Count = 0
    failed: Count = 0
    """Rows in the output, and those of them that have an error in place of outputs."""

    found: Count = 0
    """Those of ``done`` that had their end before this publisher."""

    expired: Count = 0
    """Those of the failed that have not run by the deadline."""

    published: Count = 0
    """Every row before this one lies acked in the log, or broke the signature."""

    positions: dict[int, Count] = {}
    """Of each request partition an offset below every record of a later row."""

    text: str = ""

    stages: dict[JobStage, Microseconds] = {}
    """When the job came to each of them for the first time, log time."""


class JobCancel(msgspec.Struct, frozen=True):
    """Key ``<tenant>/<job>/cancel``."""

    job: str
    tenant: str


class JobKey(NamedTuple):
    tenant: str
    job: str
    part: JobPart


class RowRange(NamedTuple):
    """The rows of one record: ``rows`` consecutive ones from ``first``."""

    first: int
    rows: int

    @property
    def end(self) -> int:
        return self.first + self.rows

    def id_in(self, job: str) -> str:
        """The record's ``ce_id``, and with it the key of its result."""
        return f"{job}.{self.first}+{self.rows}"

    @classmethod
    def of_id(cls, job: str, request_id: str) -> RowRange | None:
        """None: it is no id of this job's."""
        name, _, numbers = request_id.rpartition(".")
        first, plus, rows = numbers.partition("+")
        if name != job or not plus or not (first.isdecimal() and rows.isdecimal()):
            return None
        return cls(int(first), int(rows)) if int(rows) else None


def job_key(tenant: str, job: str, part: JobPart) -> bytes:
    return f"{tenant}/{job}/{part}".encode()


_KINDS: dict[JobPart, type[JobSpec | JobProgress | JobCancel]] = {
    JobPart.SPEC: JobSpec,
    JobPart.PROGRESS: JobProgress,
    JobPart.CANCEL: JobCancel,
}


def decode_job_record(
    record: Record,
) -> tuple[JobKey, JobSpec | JobProgress | JobCancel | None]:
    """None: a tombstone.

    Raises :class:`headrace.errors.UndecodableRecord`.
    """
    check_schema(dict(record.headers))
    try:
        tenant, job, part = (record.key or b"").decode().split("/")
        key = JobKey(tenant, job, JobPart(part))
        if record.value is None:
            return key, None
        kind = _KINDS[key.part]
        return key, msgspec.json.decode(record.value, type=kind)
    except (ValueError, msgspec.DecodeError, RecursionError) as error:
        raise UndecodableRecord(f"no record of control.jobs: {error}") from error
