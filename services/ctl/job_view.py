"""How far jobs are, for people."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from headrace.jobs import Job, errors_url, read_jobs
from headrace.wire.jobs import JobProgress, JobSpec, JobState
from services.ctl.cluster import Cluster
from services.ctl.instants import shown
from services.ctl.job_life import is_left
from services.ctl.wording import counted

__all__ = [
    "JobRow",
    "progress_view",
    "resume_command",
    "show_jobs",
    "told_end",
    "watch_job",
]

_LOOK_EVERY_S = 1.0
_SUBMITTED = "submitted"
_GOING_ON = frozenset({_SUBMITTED, JobState.RUNNING})
_NAME_MIN = 5
_ANY_WIDTH = 10_000


class JobRow(msgspec.Struct, frozen=True):
    """One job."""

    job: str
    tenant: str
    model: str
    version: str
    state: str
    """``submitted`` until a publisher has told of it."""

    rows: int | None
    done: int
    failed: int
    per_second: float | None
    left_s: float | None
    output: str
    text: str


def job_row(job: Job) -> JobRow:
    spec, progress = job.spec, job.progress
    assert spec is not None
    done = progress.done if progress else 0
    rate = left_s = None
    left = is_left(job)
    if (
        progress is not None
        and not left
        and done > progress.found
        and job.heard_us > progress.started_us
    ):
        rate = (done - progress.found) / ((job.heard_us - progress.started_us) / 1e6)
        if progress.rows is not None and progress.state is JobState.RUNNING:
            left_s = (progress.rows - done) / rate
    return JobRow(
        job=spec.job,
        tenant=spec.tenant,
        model=spec.model,
        version=spec.version,
        state=JobState.STOPPED if left else _state(job),
        rows=progress.rows if progress else None,
        done=done,
        failed=progress.failed if progress else 0,
        per_second=rate,
        left_s=left_s,
        output=spec.output,
        text=_left(job, spec) if left else progress.text if progress else "",
    )


def _left(job: Job, spec: JobSpec) -> str:
    since = shown(job.heard_us or spec.submitted_us)
    return f"no sign of its publisher since {since}; go on with {resume_command(spec)}"


def resume_command(spec: JobSpec) -> str:
    of = "" if spec.tenant == "default" else f" --tenant {spec.tenant}"
    return f"`headrace jobs resume {spec.job}{of}`"


def _state(job: Job) -> str:
    if job.progress is not None:
        return job.progress.state
    return JobState.CANCELLED if job.cancelled else _SUBMITTED


def show_jobs(jobs: Sequence[Job], *, as_json: bool) -> None:
    rows = [job_row(job) for job in jobs]
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(rows)).decode())
        return
    if not rows:
        print("There are no jobs yet.")
        return
    console = Console()
    table = _table(rows, has_rates=True)
    wide = console.options.update(width=_ANY_WIDTH)
    if console.measure(table, options=wide).maximum > console.width:
        table = _table(rows, has_rates=False)
    console.print(table)
    for row in rows:
        if row.text:
            console.print(f"{row.job}: {row.text}", markup=False, soft_wrap=True)


def _table(rows: Sequence[JobRow], *, has_rates: bool) -> Table:
    """In a narrow one names are folded, and states and numbers never."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    is_told = {row.tenant for row in rows} != {"default"}
    for heading in ("job", "tenant", "model") if is_told else ("job", "model"):
        table.add_column(heading, overflow="fold", min_width=_NAME_MIN)
    table.add_column("state", no_wrap=True)
    rates = ("rows/s",) if has_rates else ()
    for heading in ("done", "of", "failed", *rates, "left"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            escape(row.job),
            *([escape(row.tenant)] if is_told else []),
            f"{escape(row.model)}/{row.version}",
            row.state,
            f"{row.done:,}",
            "" if row.rows is None else f"{row.rows:,}",
            f"{row.failed:,}",
            *([_rate(row)] if has_rates else []),
            "" if row.left_s is None else f"{row.left_s:,.0f} s",
        )
    return table


def _rate(row: JobRow) -> str:
    return "" if row.per_second is None else f"{row.per_second:,.0f}"


def watch_job(cluster: Cluster, tenant: str, name: str) -> int:
    """Until it has ended; 0: it is done."""
    with progress_view(name) as told:
        while True:
            job = read_jobs(*cluster).of(tenant, name)
            if job.progress is not None:
                told(job.progress)
            if is_left(job) or _state(job) not in _GOING_ON:
                break
            time.sleep(_LOOK_EVERY_S)
    show_jobs([job], as_json=False)
    return 0 if _state(job) == JobState.DONE else 1


def told_end(spec: JobSpec, progress: JobProgress) -> str:
    """What a job that is done has left."""
    rows = counted(progress.done, "row")
    text = f"Job {spec.job} is done: {rows} in {spec.output}."
    if progress.failed:
        errors = errors_url(spec.output)
        text += f"\n{progress.failed:,} of them failed: {errors} says why."
    return text


@contextmanager
def progress_view(name: str) -> Iterator[Callable[[JobProgress], None]]:
    """A bar on a terminal, on stderr; elsewhere nothing."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed, {task.fields[rate]} rows/s"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        speed_estimate_period=10,
    )
    with bar:
        task = bar.add_task(name, total=None, failed=0, rate="-")

        def told(progress: JobProgress) -> None:
            bar.update(
                task,
                completed=progress.done,
                total=progress.rows,
                failed=f"{progress.failed:,}",
            )
            speed = bar.tasks[0].speed
            bar.update(task, rate="-" if speed is None else f"{speed:,.0f}")

        yield told
