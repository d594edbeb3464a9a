"""Batches as ``control.jobs`` has them."""

from __future__ import annotations

import msgspec

from headrace.registry import JobTable
from headrace.wire import JSON_HEADERS, Record
from headrace.wire.jobs import (
    BatchOrder,
    JobCancel,
    JobPart,
    JobProgress,
    JobSpec,
    JobStage,
    JobState,
    job_key,
)

TENANT = "default"
SECOND_US = 1_000_000


def a_spec(batch: str = "batch_1", submitted_us: int = SECOND_US) -> JobSpec:
    order = BatchOrder(
        endpoint="/v2/models/m/infer",
        input_file_id="file-1",
        output_file_id="file-1-output",
        error_file_id="file-1-errors",
        completion_window="24h",
    )
    return JobSpec(
        job=batch,
        tenant=TENANT,
        model="m",
        version="1",
        inputs=(),
        output="memory://out",
        submitted_us=submitted_us,
        rows_max=1,
        deadline_us=100 * SECOND_US,
        batch=order,
    )


def a_progress(
    state: JobState,
    batch: str = "batch_1",
    *,
    stages: dict[JobStage, int] | None = None,
    done: int = 0,
    failed: int = 0,
    expired: int = 0,
    text: str = "",
) -> JobProgress:
    return JobProgress(
        job=batch,
        tenant=TENANT,
        state=state,
        publisher="p",
        host="h",
        pid=1,
        started_us=0,
        rows=done,
        done=done,
        failed=failed,
        expired=expired,
        stages=stages or {},
        text=text,
    )


def put(
    table: JobTable, value: JobSpec | JobProgress | JobCancel, log_us: int = SECOND_US
) -> None:
    parts: dict[type, JobPart] = {
        JobSpec: JobPart.SPEC,
        JobProgress: JobPart.PROGRESS,
        JobCancel: JobPart.CANCEL,
    }
    key = job_key(value.tenant, value.job, parts[type(value)])
    content = msgspec.json.encode(value)
    table.apply([Record("t", 0, 0, log_us, key, content, [*JSON_HEADERS])])
