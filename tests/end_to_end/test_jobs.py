"""Offline jobs on a running platform."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.broker import KafkaAdmin, KafkaConnection, records_since
from headrace.errors import RequestError
from headrace.jobs import (
    JobSite,
    JobTaken,
    JobWriter,
    errors_url,
    find,
    read_jobs,
    run_job,
)
from headrace.jobs.watching import JobWatch
from headrace.lifecycle import BusSettings
from headrace.payloads import PayloadStore, no_store
from headrace.wire import headers as names
from headrace.wire import results_topic
from headrace.wire.jobs import JobCancel, JobProgress, JobSpec, JobState
from services.ctl.cluster import Cluster
from services.ctl.jobs import served_version
from tests.end_to_end.platforms import Platform
from tests.freezing import freeze

pytestmark = pytest.mark.kafka

BUS = BusSettings()


def nobody(_: JobProgress) -> None:
    """Hears of progress, and does nothing."""


def put_job(
    platform: Platform, model: str, source: Path, output: Path, rows_max: int
) -> JobSite:
    """A job that is submitted, and that nobody publishes yet."""
    connection = KafkaConnection(platform.document.bootstrap_servers, "test")
    topics = BUS.topics
    spec = JobSpec(
        job=f"{model}-{uuid4().hex[:8]}",
        tenant="acme",
        model=model,
        version="1",
        inputs=tuple(find([str(source)])),
        output=str(output),
        submitted_us=0,
        rows_max=rows_max,
    )
    topic = results_topic(topics, spec.tenant, spec.job, BUS)
    KafkaAdmin(connection).create_topics([topic], 10.0)
    JobWriter(connection, topics).write(spec)
    served = served_version(Cluster(connection, topics), model, "1")
    return JobSite(connection, topics, spec, served, BUS.payload_bytes_max, no_store)


def write_rows(path: Path, rows: int, width: int, column: str) -> np.ndarray:
    """Rows unlike each other, in order."""
    values = np.arange(rows * width, dtype=np.float32).reshape(rows, width)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), width)
    pq.write_table(pa.table({"number": np.arange(rows), column: lists}), path)
    return values


def matrix(table: pa.Table, column: str) -> np.ndarray:
    flat = table[column].combine_chunks().flatten().to_numpy()
    return np.asarray(flat).reshape(table.num_rows, -1)


def test_rows_come_back_in_order_beside_their_columns(
    platform: Platform, tmp_path: Path
) -> None:
    source, output = tmp_path / "in.parquet", tmp_path / "out.parquet"
    values = write_rows(source, 1000, 3, "x")

    ended = run_job(put_job(platform, "double", source, output, 32), nobody)

    assert (ended.state, ended.done, ended.failed) == (JobState.DONE, 1000, 0)
    found = pq.read_table(output)
    assert found.column_names == ["number", "x", "y"]
    assert found["number"].to_pylist() == list(range(1000))
    assert (matrix(found, "y") == 2 * values).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "in.parquet",
        "out.parquet",
    ]


def test_outputs_that_are_larger_than_a_record_come_from_the_payload_store(
    platform: Platform, payloads: Path, tmp_path: Path
) -> None:
    source, output = tmp_path / "in.parquet", tmp_path / "out.npy"
    write_rows(source, 7, 1, "X")
    store = PayloadStore(f"file://{payloads}")
    unset = put_job(platform, "spread", source, output, 4)
    site = unset._replace(read=store.read)
    with pytest.raises(RequestError, match="HEADRACE_BUS__PAYLOAD_STORE.* jobs resume"):
        run_job(unset, nobody)

    ended = run_job(site, nobody)

    assert (ended.state, ended.done, ended.failed) == (JobState.DONE, 7, 0)
    assert (np.load(output) == np.arange(7)[:, None]).all()


def test_a_row_that_fails_takes_no_other_with_it(
    platform: Platform, tmp_path: Path
) -> None:
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [json.dumps({"IDX": row % 10}) for row in range(20)]
    lines[3] = '{"IDX": 77}'
    lines[5] = '{"IDX": "many"}'
    lines[7] = "{"
    source.write_text("\n".join(lines))

    ended = run_job(put_job(platform, "lookup", source, output, 8), nobody)

    assert (ended.state, ended.done, ended.failed) == (JobState.DONE, 20, 3)
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["Y"] for row in found] == [
        None if row in {3, 5, 7} else [4.0 * (row % 10) + at for at in range(4)]
        for row in range(20)
    ]
    told = Path(errors_url(str(output))).read_text()
    errors = [json.loads(line) for line in told.splitlines()]
    assert [(each["row"], each["reason"]) for each in errors] == [
        (3, "poison"),
        (5, "invalid"),
        (7, "invalid"),
    ]


class Killed(Exception):
    """Ends a publisher where it stands, with nothing said."""


def kill_after(rows: int, worker: int) -> Callable[[JobProgress], None]:
    """The worker stands still from a death until the next publisher has begun, lest it
    end the job in between."""

    def told(progress: JobProgress) -> None:
        os.kill(worker, signal.SIGCONT)
        if progress.done >= rows:
            freeze(worker)
            raise Killed

    return told


def test_a_publisher_that_was_killed_leaves_nothing_to_repeat(
    platform: Platform, tmp_path: Path
) -> None:
    source, output = tmp_path / "in.parquet", tmp_path / "out.arrow"
    values = write_rows(source, 4000, 4, "X")
    site = put_job(platform, "quick", source, output, 8)

    worker = platform.pids("gpu_worker")[0]
    try:
        for rows in (1, 1200):
            with pytest.raises(Killed):
                run_job(site, kill_after(rows, worker))
            assert not output.exists()
    finally:
        os.kill(worker, signal.SIGCONT)
    ended = run_job(site, nobody)

    assert (ended.state, ended.done, ended.failed) == (JobState.DONE, 4000, 0)
    with pa.OSFile(str(output)) as file:
        found = pa.ipc.open_file(file).read_all()
    assert (matrix(found, "X.out") == values).all()
    topic = site.topics.requests("quick")
    sent = Counter(
        dict(record.headers)[names.CE_ID]
        for record in records_since(site.connection, lambda one: one.topic == topic)
        if (dict(record.headers)[names.CE_ID] or b"").startswith(site.spec.job.encode())
    )
    assert len(sent) == 500
    assert set(sent.values()) == {1}


def test_a_cancelled_job_takes_back_what_waits(
    platform: Platform, tmp_path: Path
) -> None:
    source, output = tmp_path / "in.parquet", tmp_path / "out.parquet"
    write_rows(source, 4000, 4, "X")
    site = put_job(platform, "paced", source, output, 8)
    writer = JobWriter(site.connection, site.topics)

    def cancel(progress: JobProgress) -> None:
        writer.write(JobCancel(progress.job, progress.tenant))

    ended = run_job(site, cancel)

    assert ended.state is JobState.CANCELLED
    assert ended.done < 4000
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_a_publisher_stops_when_another_has_taken_its_job(
    platform: Platform, tmp_path: Path
) -> None:
    source = tmp_path / "in.parquet"
    # Four seconds of runs: it is told of its progress, and reads, about every second.
    write_rows(source, 40, 4, "X")
    site = put_job(platform, "lone", source, tmp_path / "out.parquet", 1)

    def take(_: JobProgress) -> None:
        other = JobWatch(site.connection, site.topics, site.spec)
        other.claim()
        other.close()

    with pytest.raises(JobTaken, match="goes on in process"):
        run_job(site, take)


def test_the_command_publishes_and_tells(platform: Platform, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a,b,c,name\n1,2,3,one\n4,5,6,two\nx,8,9,no\n")

    name = f"csv-{uuid4().hex[:8]}"
    servers = platform.document.bootstrap_servers
    done = subprocess.run(
        [
            *(sys.executable, "-m", "services.ctl", "jobs", "submit", "double"),
            *("--input", tmp_path / "in.csv", "--output", tmp_path / "out.csv"),
            *("--columns", "x=a,b,c", "--name", name, "--wait"),
            *("--bootstrap", servers),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Job {name} is done: 3 rows in ")
    assert "1 of them failed" in done.stdout
    assert (tmp_path / "out.csv").read_text() == (
        '"a","b","c","name","y.0","y.1","y.2"\n'
        '"1","2","3","one",2,4,6\n'
        '"4","5","6","two",8,10,12\n'
        '"x","8","9","no",,,\n'
    )

    connection = KafkaConnection(servers, "test")
    progress = read_jobs(connection, BUS.topics).of("default", name).progress
    assert progress is not None
    assert (progress.state, progress.rows) == (JobState.DONE, 3)
