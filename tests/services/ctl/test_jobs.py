"""What is refused before a job exists, and how jobs look to people."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from headrace.broker import KafkaConnection
from headrace.domain import Datatype, ServedVersion
from headrace.errors import RequestError
from headrace.jobs import Job, JobTable, find
from headrace.wire import Record, Topics
from headrace.wire.jobs import (
    JobCancel,
    JobPart,
    JobProgress,
    JobSpec,
    JobState,
    job_key,
)
from services.ctl import job_life
from services.ctl.cluster import Cluster
from services.ctl.errors import UsageError
from services.ctl.job_orders import (
    absolute,
    check_files,
    check_unclaimed,
    deadline_us,
    rows_max,
    wrong_usage,
)
from services.ctl.job_process import run_here
from services.ctl.job_view import job_row, show_jobs, told_end
from tests.jobs.worlds import a_version

NOW_US = time.time_ns() // 1000
SERVED: ServedVersion = a_version(
    ("x", Datatype.FP32, (-1, 2)), outputs=(("y", Datatype.FP32, (-1, 2)),)
)


def a_spec(job: str, output: str, *inputs: str, submitted_us: int = 0) -> JobSpec:
    return JobSpec(
        job=job,
        tenant="default",
        model="m",
        version="1",
        inputs=tuple(find(inputs)),
        output=output,
        submitted_us=submitted_us,
        rows_max=8,
    )


def a_table(*values: JobSpec | JobProgress | JobCancel) -> JobTable:
    parts = {
        JobSpec: JobPart.SPEC,
        JobProgress: JobPart.PROGRESS,
        JobCancel: JobPart.CANCEL,
    }
    table = JobTable()
    table.apply(
        Record(
            topic="control",
            partition=0,
            offset=place,
            timestamp_us=NOW_US,
            key=job_key(value.tenant, value.job, parts[type(value)]),
            value=msgspec.json.encode(value),
            headers=[],
        )
        for place, value in enumerate(values)
    )
    return table


def progress(job: str, state: JobState, pid: int = 1) -> JobProgress:
    host = socket.gethostname()
    return JobProgress(job, "default", state, "a" * 32, host, pid, 0, done=3)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.npy"
    np.save(path, np.zeros((3, 2), np.float32))
    return path


def test_a_job_may_not_write_over_its_input(source: Path, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.npy").symlink_to(source)
    os.link(source, tmp_path / "hard.npy")
    (tmp_path / "folder").symlink_to(tmp_path)
    names = ["in.npy", "sub/../in.npy", "./in.npy", "link.npy", "hard.npy"]
    for name in [*names, "folder/in.npy"]:
        output = absolute(f"{tmp_path}/{name}")
        for given in (str(source), f"{tmp_path}/in*.npy"):
            spec = a_spec("j", output, given)
            with pytest.raises(UsageError, match="over its own input"):
                check_files(spec, SERVED, output, force=True)
    np.save(tmp_path / "part.npy", np.zeros((3, 2), np.float32))
    (tmp_path / "o.npy.part").symlink_to(tmp_path / "part.npy")
    spec = a_spec("j", str(tmp_path / "o.npy"), str(tmp_path / "part.npy"))
    with pytest.raises(UsageError, match="over its own input"):
        check_files(spec, SERVED, spec.output, force=True)


@pytest.mark.parametrize("mark", ["", "file:", "file://", "local://"])
def test_a_file_of_this_machine_has_one_name(tmp_path: Path, mark: str) -> None:
    """Or two jobs could write it at once."""
    assert absolute(f"{mark}{tmp_path}/sub/../o.npy") == str(tmp_path / "o.npy")
    chained = f"zip://a.csv::{mark}{tmp_path}/a.zip"
    assert absolute(chained) == f"zip://a.csv::{tmp_path}/a.zip"


@pytest.mark.parametrize("text", ["7.1d", "2999-01-01"])
def test_a_deadline_behind_the_results_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="further away than results are kept"):
        deadline_us(text, NOW_US)


def test_a_rate_counts_the_rows_of_the_present_publisher() -> None:
    spec = a_spec("j", "o.npy")
    told = msgspec.structs.replace(
        progress("j", JobState.RUNNING, os.getpid()),
        started_us=NOW_US - 5_000_000,
        rows=120,
        done=100,
        found=90,
    )
    row = job_row(Job(spec, told, heard_us=NOW_US))
    assert (row.per_second, row.left_s) == (2, 10)


@pytest.mark.parametrize("there", ["o.npy", "o.npy.errors.jsonl", "o.npy.part"])
def test_what_stands_at_the_output_is_replaced_by_force_alone(
    source: Path, tmp_path: Path, there: str
) -> None:
    (tmp_path / there).write_text("mine")
    spec = a_spec("j", str(tmp_path / "o.npy"), str(source))
    with pytest.raises(UsageError, match=f"{there} exists: --force"):
        check_files(spec, SERVED, spec.output, force=False)
    check_files(spec, SERVED, spec.output, force=True)
    assert (tmp_path / there).read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("none/o.npy", "folder .*/none does not exist"),
        ("in.npy/o.npy", "in.npy does not exist"),
        ("o.xlsx", "its name must end in"),
        ("o.npy.gz", "its name must end in"),
        ("sub.npy", "is a folder"),
        ("/proc/o.npy", "folder /proc cannot be written to"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused(
    source: Path, tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / "sub.npy").mkdir()
    before = sorted(tmp_path.rglob("*"))
    spec = a_spec("j", str(tmp_path / name), str(source))
    with pytest.raises(UsageError, match=text), wrong_usage():
        check_files(spec, SERVED, spec.output, force=False)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_output_belongs_to_one_job_that_is_not_over(tmp_path: Path) -> None:
    mine = a_spec("mine", str(tmp_path / "o.npy"), submitted_us=5)
    for output in ("o.npy", "o.npy.part", "o.npy.errors.jsonl"):
        first = a_spec("first", str(tmp_path / output), submitted_us=1)
        with pytest.raises(UsageError, match="job first .* jobs cancel first"):
            check_unclaimed(a_table(first, mine), mine)
    first = a_spec("first", mine.output, submitted_us=1)
    for state in (JobState.RUNNING, JobState.STOPPED):
        with pytest.raises(UsageError, match="job first"):
            check_unclaimed(a_table(first, progress("first", state)), mine)
    for state in (JobState.DONE, JobState.FAILED, JobState.CANCELLED):
        check_unclaimed(a_table(first, progress("first", state)), mine)
    check_unclaimed(a_table(first, JobCancel("first", "default")), mine)
    later = a_spec("later", mine.output, submitted_us=9)
    done = progress("later", JobState.DONE)
    with pytest.raises(UsageError, match="job later"):
        check_unclaimed(a_table(later, done), mine)
    # Of two at once one gives way.
    check_unclaimed(a_table(later, mine), mine, earlier=True)
    with pytest.raises(UsageError, match="job mine"):
        check_unclaimed(a_table(later, mine), later, earlier=True)


def test_what_a_request_may_not_say_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="no such model"), wrong_usage():
        raise RequestError("no such model")


def test_rows_above_the_models_limit_are_lowered_and_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert rows_max(100_000, 2, SERVED) == SERVED.max_batch
    assert f"is lowered to {SERVED.max_batch}" in capsys.readouterr().err
    assert rows_max(None, 2, SERVED) == 2
    assert not capsys.readouterr().err


def test_a_job_whose_publisher_is_gone_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_us = time.time_ns() // 1000
    spec = a_spec("j", str(tmp_path / "o.npy"), submitted_us=now_us)
    mine = progress("j", JobState.RUNNING, os.getpid())
    assert job_row(Job(spec, mine, None, now_us)).state == "running"
    # The number of another process, which began later than the last word.
    row = job_row(Job(spec, mine, None, 1))
    assert (row.state, row.per_second, row.left_s) == ("stopped", None, None)
    assert "no sign of its publisher since 1970" in row.text
    assert "headrace jobs resume j" in row.text
    assert job_row(Job(spec)).state == "submitted"
    monkeypatch.setattr(job_life, "_BEGINS_US", 0)
    assert job_row(Job(spec)).state == "stopped"


def test_names_of_jobs_are_whole_in_a_narrow_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name = "digits_mlp-1a2b3c4d-of-somebody"
    spec = a_spec(name, str(tmp_path / "o.npy"))
    done = progress(name, JobState.DONE)
    many = msgspec.structs.replace(done, rows=315_000, done=250_000)
    show_jobs([Job(spec, many, None, 5_000_000)], as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.strip().startswith(f"{name} ") for line in lines)
    assert max(map(len, lines)) <= 80
    assert "left" in " ".join(lines)


@pytest.mark.parametrize("tenant", ["default", "somebody"])
def test_states_and_numbers_are_whole_beside_long_names(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tenant: str,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name = "batch_0192f3c4d5e6f7a8b9c0d1e2f3a4b5c6"
    spec = msgspec.structs.replace(
        a_spec(name, str(tmp_path / "o.npy")), model="digits_mlp", tenant=tenant
    )
    done = progress(name, JobState.CANCELLED)
    many = msgspec.structs.replace(done, rows=3_150_000, done=2_500_000, failed=1_234)
    show_jobs([Job(spec, many, None, 5_000_000)], as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    head, row, *folded = [line for line in lines if line.strip(" ─")]
    assert "rows/s" not in head
    words = row.split()
    assert words[-4:] == ["cancelled", "2,500,000", "3,150,000", "1,234"]
    model = head.index("model")
    first = [line.split()[0] for line in (row, *folded) if line[1:2].strip()]
    assert "".join(first) == name
    assert (
        "".join(
            line[model:].split()[0] for line in (row, *folded) if line[model:].split()
        )
        == "digits_mlp/1"
    )


def test_a_sentence_of_a_reader_keeps_its_one_stop() -> None:
    with pytest.raises(UsageError, match=r"no parquet file\.$"), wrong_usage():
        raise RequestError("this is no parquet file.")
    with pytest.raises(UsageError, match=r"[^.]\.$"), wrong_usage():
        raise RequestError("this is no parquet file")


def test_one_row_is_a_row() -> None:
    spec = a_spec("j", "/o.npy")
    one = msgspec.structs.replace(progress("j", JobState.DONE), rows=1, done=1)
    assert told_end(spec, one) == "Job j is done: 1 row in /o.npy."


def test_whoever_stops_a_publisher_is_told_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("services.ctl.job_process.signal.signal", lambda *_: None)
    monkeypatch.setattr("services.ctl.job_process.run_job", stopped)
    spec = msgspec.structs.replace(a_spec("nightly", "o.parquet"), tenant="acme")
    cluster = Cluster(KafkaConnection("127.0.0.1:9", "test"), Topics())

    with pytest.raises(KeyboardInterrupt):
        run_here(cluster, spec, a_version())

    told = "go on with `headrace jobs resume nightly --tenant acme`"
    assert told in capsys.readouterr().out
