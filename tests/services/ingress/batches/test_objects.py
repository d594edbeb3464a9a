from __future__ import annotations

from typing import Any

import pytest

from headrace.registry import JobTable
from headrace.wire.jobs import JobCancel, JobProgress, JobStage, JobState
from services.ingress.batches.objects import batch_object
from tests.services.ingress.batches.jobs import (
    SECOND_US,
    TENANT,
    a_progress,
    a_spec,
    put,
)

PUBLISHING = {JobStage.PUBLISHING: 2 * SECOND_US}
WRITING = PUBLISHING | {JobStage.WRITING: 3 * SECOND_US}
ENDED = WRITING | {JobStage.ENDED: 4 * SECOND_US}


def shown(progress: JobProgress | None, *, cancelled: bool = False) -> dict[str, Any]:
    table = JobTable()
    put(table, a_spec())
    if progress is not None:
        put(table, progress)
    if cancelled:
        put(table, JobCancel("batch_1", TENANT), 5 * SECOND_US)
    return batch_object(table.of(TENANT, "batch_1"))


@pytest.mark.parametrize(
    ("progress", "cancelled", "status"),
    [
        (None, False, "validating"),
        (None, True, "cancelling"),
        (a_progress(JobState.RUNNING), False, "validating"),
        (a_progress(JobState.RUNNING, stages=PUBLISHING), False, "in_progress"),
        (a_progress(JobState.STOPPED, stages=PUBLISHING), False, "in_progress"),
        (a_progress(JobState.RUNNING, stages=PUBLISHING), True, "cancelling"),
        (a_progress(JobState.RUNNING, stages=WRITING), False, "finalizing"),
        (a_progress(JobState.RUNNING, stages=WRITING), True, "finalizing"),
        (a_progress(JobState.DONE, stages=ENDED), False, "completed"),
        (a_progress(JobState.DONE, stages=ENDED), True, "completed"),
        (a_progress(JobState.DONE, stages=ENDED, failed=1), False, "completed"),
        (a_progress(JobState.DONE, failed=2, expired=1), False, "expired"),
        (a_progress(JobState.FAILED), False, "failed"),
        (a_progress(JobState.CANCELLED), True, "cancelled"),
    ],
)
def test_the_word_for_how_far_a_batch_is(
    progress: JobProgress | None,
    cancelled: bool,  # noqa: FBT001 - from the table above
    status: str,
) -> None:
    assert shown(progress, cancelled=cancelled)["status"] == status


def test_a_batch_tells_of_its_course() -> None:
    found = shown(a_progress(JobState.DONE, stages=ENDED, done=10, failed=3))
    instants = ("created", "in_progress", "finalizing", "completed", "expires")
    assert [found[f"{each}_at"] for each in instants] == [1, 2, 3, 4, 100]
    assert found["request_counts"] == {"total": 10, "completed": 7, "failed": 3}
    assert found["output_file_id"] == "file-1-output"
    assert found["error_file_id"] == "file-1-errors"
    assert found["errors"] is None


def test_only_files_with_a_line_are_named() -> None:
    good = shown(a_progress(JobState.DONE, done=2))
    assert (good["output_file_id"], good["error_file_id"]) == ("file-1-output", None)
    bad = shown(a_progress(JobState.DONE, done=2, failed=2))
    assert (bad["output_file_id"], bad["error_file_id"]) == (None, "file-1-errors")
    early = shown(a_progress(JobState.RUNNING, stages=PUBLISHING, done=2, failed=1))
    assert (early["output_file_id"], early["error_file_id"]) == (None, None)


def test_a_batch_that_failed_says_why() -> None:
    found = shown(a_progress(JobState.FAILED, text="the file has no lines"))
    (told,) = found["errors"]["data"]
    assert told["message"] == "the file has no lines"
    assert found["failed_at"] == 1
