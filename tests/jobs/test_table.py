from __future__ import annotations

import msgspec
import pytest

from headrace.errors import UndecodableRecord
from headrace.jobs import JobTable
from headrace.wire import Record
from headrace.wire.jobs import (
    JobCancel,
    JobPart,
    JobProgress,
    JobSpec,
    JobState,
    RowRange,
    decode_job_record,
    job_key,
)


def a_spec(job: str, submitted_us: int = 1) -> JobSpec:
    return JobSpec(
        job=job,
        tenant="t",
        model="m",
        version="1",
        inputs=(),
        output="o",
        submitted_us=submitted_us,
        rows_max=4,
    )


def a_record(job: str, part: JobPart, value: object, at_us: int = 0) -> Record:
    encoded = None if value is None else msgspec.json.encode(value)
    return Record("c", 0, 0, at_us, job_key("t", job, part), encoded, [])


def test_a_jobs_records_are_folded_by_its_name() -> None:
    progress = JobProgress(
        job="a",
        tenant="t",
        state=JobState.RUNNING,
        publisher="p",
        host="h",
        pid=1,
        started_us=2,
        positions={3: 7},
    )
    table = JobTable()
    table.apply(
        [
            a_record("b", JobPart.SPEC, a_spec("b", 5)),
            a_record("a", JobPart.SPEC, a_spec("a", 9)),
            Record("c", 0, 0, 0, b"x", b"{}", []),
            a_record("a", JobPart.PROGRESS, progress, at_us=11),
            a_record("a", JobPart.CANCEL, JobCancel("a", "t")),
        ]
    )
    assert [job.spec and job.spec.job for job in table.all()] == ["b", "a"]
    found = table.of("t", "a")
    assert (found.progress, found.cancelled, found.heard_us) == (progress, True, 11)
    assert table.of("other", "a").spec is None

    table.apply([a_record("b", JobPart.SPEC, None)])
    assert len(table.all()) == 1


@pytest.mark.parametrize("key", [b"t/a", b"t/a/b", b"\xff", None])
def test_a_record_with_another_key_is_none_of_ours(key: bytes | None) -> None:
    with pytest.raises(UndecodableRecord):
        decode_job_record(Record("c", 0, 0, 0, key, b"{}", []))


def test_a_records_id_says_which_rows_it_has() -> None:
    rows = RowRange(128, 32)
    assert rows.id_in("a-b.c") == "a-b.c.128+32"
    assert RowRange.of_id("a-b.c", "a-b.c.128+32") == rows
    for other in ("x.128+32", "a-b.c.128", "a-b.c.1+0", "a-b.c.+3", "a-b.c.1+-3", ""):
        assert RowRange.of_id("a-b.c", other) is None
