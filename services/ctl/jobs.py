"""``headrace jobs``: rows of files through idle capacity, and back into a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from uuid import uuid4

import msgspec
from cyclopts import App, Parameter

from headrace import jobs
from headrace.broker import KafkaAdmin
from headrace.clock import wall_us
from headrace.domain import Priority, ServedVersion
from headrace.jobs import (
    Job,
    JobWriter,
    collect,
    errors_url,
    find,
    read_jobs,
    remove_unfinished,
)
from headrace.wire import (
    base_topics,
    checked_name,
    results_topic,
)
from headrace.wire.jobs import JobCancel, JobPart, JobSpec, JobState
from headrace.wire.topics import KEPT_JOBS
from services.ctl.cluster import Cluster, reached
from services.ctl.errors import UsageError
from services.ctl.job_life import is_alive
from services.ctl.job_orders import (
    absolute,
    check_files,
    check_unclaimed,
    deadline_us,
    rows_max,
    wrong_usage,
)
from services.ctl.job_process import (
    bus_settings,
    run_here,
    site,
    start_beside,
)
from services.ctl.job_view import show_jobs, told_end, watch_job
from services.ctl.options import Amount
from services.ctl.wording import counted

__all__ = ["absolute", "app", "served_version"]

CREATE_S = 15.0
_PART = 4
_AT_ONCE_US = 2_000

app = App(name="jobs", help="Rows of files through idle capacity, into a file.")

Inputs = Annotated[
    Sequence[str],
    Parameter(name="--input", negative=(), required=True, show_default=False),
]
Columns = Annotated[
    Sequence[str], Parameter(name="--columns", negative=(), show_default=False)
]
Format = Literal["table", "json"]
Flag = Annotated[bool, Parameter(negative=())]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Where:
    """Which job, and where it stands.

    Parameters
    ----------
    tenant
        Whose job it is.
    bootstrap
        Address of the Kafka [default: KAFKA_BOOTSTRAP_SERVERS, or the one that runs
        here].
    data
        The folder given to `up`.
    """

    tenant: str = "default"
    bootstrap: str | None = None
    data: Path | None = None

    def reached(self, *models: str) -> Cluster:
        return reached(self.bootstrap, self.data, models=models)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is to be done.

    Parameters
    ----------
    input_
        A file, a pattern or a URL; may be repeated. The suffix says the format:
        .parquet, .arrow, .arrows, .jsonl, .csv or .npy.
    output
        A file or a URL; its suffix says the format, as of the input.
    columns
        INPUT=COLUMN[,COLUMN...], where a column is not called as the model's input;
        a COLUMN may be a pattern (pixel_*). May be repeated.
    version
        Of the model [default: the highest that is ready].
    name
        Of the job [default: the model's name and a number].
    priority
        bulk, which uses what is left, or standard.
    deadline
        Rows that have not run by then fail: 30m, 2h, 3d, or a date and time in UTC.
    force
        Replace what stands at the output.
    rows
        Most rows in one record [default: the model's max_batch, or a quarter of it
        where a run takes more than 2 ms].
    """

    input_: Inputs
    output: str
    columns: Columns = ()
    version: str = ""
    name: str | None = None
    priority: Literal["bulk", "standard"] = "bulk"
    deadline: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    force: Flag = False
    rows: Amount | None = None


@app.command
def submit(
    model: str, *, asked: Asked, where: Where = Where(), wait: Flag = False
) -> int:
    """Run a model over the rows of files.

    Parameters
    ----------
    model
        Its name.
    wait
        Publish here, show the progress, and exit when it is done. Otherwise a process
        in the background does.
    """
    cluster = where.reached(model)
    with wrong_usage():
        served = served_version(cluster, model, asked.version)
        spec = _spec(asked, where.tenant, served)
        check_files(spec, served, spec.output, force=asked.force)
    _register(cluster, spec)
    if wait:
        return run_here(cluster, spec, served)
    start_beside(cluster, spec, where.data)
    return 0


@app.command(name="list")
def list_jobs(
    *,
    tenant: str | None = None,
    bootstrap: str | None = None,
    data: Path | None = None,
    output: Format = "table",
) -> int:
    """List the jobs, the newest last.

    Parameters
    ----------
    tenant
        Of this tenant alone.
    bootstrap
        Address of the Kafka [default: KAFKA_BOOTSTRAP_SERVERS, or the one that runs
        here].
    data
        The folder given to `up`.
    output
        table, or json.
    """
    found = read_jobs(*reached(bootstrap, data)).all()
    wanted = [job for job in found if tenant in (None, job.spec and job.spec.tenant)]
    show_jobs(wanted, as_json=output == "json")
    return 0


@app.command
def status(
    job: str,
    *,
    where: Where = Where(),
    watch: Flag = False,
    output: Format = "table",
) -> int:
    """Show how far a job is.

    Parameters
    ----------
    job
        Its name.
    watch
        Go on showing it until it ends; the exit status is 1 unless it is done.
    output
        table, or json.
    """
    cluster = where.reached()
    found, _ = _existing(cluster, where.tenant, job)
    if watch:
        return watch_job(cluster, where.tenant, job)
    show_jobs([found], as_json=output == "json")
    return 0


@app.command
def cancel(job: str, *, where: Where = Where()) -> int:
    """Stop a job for good: what waits in the queue is taken back, what runs, runs.

    Parameters
    ----------
    job
        Its name.
    """
    cluster = where.reached()
    found, spec = _existing(cluster, where.tenant, job)
    progress = found.progress
    if progress is not None and progress.state is JobState.DONE:
        raise UsageError(f"Job {job} is done: its rows are in {spec.output}.")
    writer = JobWriter(*cluster)
    writer.write(JobCancel(job, where.tenant))
    if spec.batch is None and not is_alive(found):
        if progress is not None:
            writer.write(msgspec.structs.replace(progress, state=JobState.CANCELLED))
        remove_unfinished(spec.output)
        print(f"Job {job} is cancelled. Nobody published it; what was sent runs.")
        return 0
    print(f"Job {job} is being cancelled: see `headrace jobs status {job}`.")
    return 0


@app.command
def resume(job: str, *, where: Where = Where(), wait: Flag = False) -> int:
    """Go on with a job whose publisher was stopped or killed, or that failed.

    Parameters
    ----------
    job
        Its name.
    wait
        Publish here, show the progress, and exit when it is done. Otherwise a process
        in the background does.
    """
    cluster = where.reached()
    found, spec = _existing(cluster, where.tenant, job)
    state = found.progress.state if found.progress else JobState.STOPPED
    if found.cancelled:
        raise UsageError(f"Job {job} was cancelled: submit it anew.")
    if state is JobState.DONE:
        raise UsageError(f"Job {job} is done: its rows are in {spec.output}.")
    _refuse_batch(spec)
    check_unclaimed(read_jobs(*cluster), spec)
    if is_alive(found):
        assert found.progress is not None
        raise UsageError(
            f"Job {job} goes on in process {found.progress.pid} of "
            f"{found.progress.host}: see `headrace jobs status {job} --watch`."
        )
    _make_topics(cluster, spec)
    if wait:
        served = served_version(cluster, spec.model, spec.version)
        return run_here(cluster, spec, served)
    start_beside(cluster, spec, where.data)
    return 0


@app.command
def result(
    job: str,
    *,
    output: str | None = None,
    where: Where = Where(),
    force: Flag = False,
) -> int:
    """Say where a job's rows are, or write them anew out of the log.

    Parameters
    ----------
    job
        Its name.
    output
        Write what has been answered so far to this file or URL: to look into a job
        that runs or was cancelled, or for another format. Rows without an answer are
        listed in the file of errors.
    force
        Replace what stands at --output.
    """
    cluster = where.reached()
    found, spec = _existing(cluster, where.tenant, job)
    if output is None:
        if found.progress is None or found.progress.state is not JobState.DONE:
            raise UsageError(
                f"Job {job} is not done: --output writes what there is of it."
            )
        print(told_end(spec, found.progress))
        return 0
    served = served_version(cluster, spec.model, spec.version)
    _refuse_batch(spec)
    url = absolute(output)
    with wrong_usage():
        check_files(spec, served, url, force=force)
    rows, lost = collect(site(cluster, spec, served), url)
    print(f"{counted(rows, 'row')} in {url}.")
    if lost:
        print(f"{lost:,} of them have no outputs: {errors_url(url)} says why.")
    return 0


def served_version(cluster: Cluster, model: str, version: str) -> ServedVersion:
    """What the workers announce of it. Raises :class:`headrace.errors.RequestError`."""
    return jobs.served_version(*cluster, model, version)


def _existing(cluster: Cluster, tenant: str, job: str) -> tuple[Job, JobSpec]:
    table = read_jobs(*cluster)
    found = table.of(tenant, job)
    if found.spec is None:
        specs = [each.spec for each in table.all() if each.spec][-5:]
        known = [f"{spec.job} (tenant {spec.tenant})" for spec in specs]
        raise UsageError(
            f"Tenant {tenant} has no job {job!r}; the newest jobs are "
            f"{', '.join(known) or 'none'}."
        )
    return found, found.spec


def _refuse_batch(spec: JobSpec) -> None:
    if spec.batch is not None:
        raise UsageError(
            f"Job {spec.job} is a batch: the ingresses run it, and GET "
            f"/v1/batches/{spec.job} tells of it."
        )


def _spec(asked: Asked, tenant: str, served: ServedVersion) -> JobSpec:
    checked_name("tenant", tenant)
    job = asked.name
    if job is None:
        job = f"{served.model[:80]}-{uuid4().hex[:8]}"
    checked_name("job", job)
    if job in KEPT_JOBS:
        raise UsageError(f"--name {job} is the ingresses' own: choose another.")
    now_us = wall_us()
    deadline = asked.deadline
    return JobSpec(
        job=job,
        tenant=tenant,
        model=served.model,
        version=served.version,
        inputs=tuple(find(map(absolute, asked.input_))),
        output=absolute(asked.output),
        submitted_us=now_us,
        rows_max=rows_max(asked.rows, _rows(served), served),
        columns=dict(_named(each) for each in asked.columns),
        priority=Priority[asked.priority.upper()],
        deadline_us=None if deadline is None else deadline_us(deadline, now_us),
    )


def _rows(served: ServedVersion) -> int:
    """Of one record: all that a run takes where that is over at once, else a part of
    it, so that what is left of an online batch has room for some."""
    run_us = served.run_us.get(served.max_batch)
    if run_us is not None and run_us <= _AT_ONCE_US:
        return served.max_batch
    return max(served.max_batch // _PART, 1)


def _make_topics(cluster: Cluster, spec: JobSpec | None = None) -> None:
    """Those that jobs need, and this one, where they are not there (any more)."""
    connection, topics = cluster
    bus = bus_settings()
    wanted = [
        each for each in base_topics(topics, bus) if each.name == topics.control_jobs
    ]
    if spec is not None:
        wanted.append(results_topic(topics, spec.tenant, spec.job, bus, partitions=1))
    KafkaAdmin(connection).create_topics(wanted, CREATE_S)


def _register(cluster: Cluster, spec: JobSpec) -> None:
    """The job's topic and record. Raises UsageError where there is such a job."""
    connection, topics = cluster
    _make_topics(cluster)
    table = read_jobs(connection, topics)
    if table.of(spec.tenant, spec.job).spec is not None:
        raise UsageError(
            f"Tenant {spec.tenant} has a job {spec.job} already: choose another --name."
        )
    check_unclaimed(table, spec)
    writer = JobWriter(connection, topics)
    writer.write(spec)
    try:
        check_unclaimed(read_jobs(connection, topics), spec, earlier=True)
    except UsageError:
        writer.clear(spec.tenant, spec.job, JobPart.SPEC)
        raise
    # After the record: whoever is killed in between leaves no topic without a job.
    _make_topics(cluster, spec)


def _named(text: str) -> tuple[str, tuple[str, ...]]:
    name, equals, columns = text.partition("=")
    if not equals or not name or not columns:
        raise UsageError(f"--columns {text} must be INPUT=COLUMN[,COLUMN...].")
    return name, tuple(columns.split(","))
