"""What must be right before a job exists: its files, its output, its names."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headrace.domain import ServedVersion
from headrace.errors import RequestError
from headrace.jobs import (
    JobTable,
    check_may_write,
    check_output,
    input_rows,
    local_path,
    made_of,
)
from headrace.wire.deadlines import BULK_TIMEOUT_MAX_US
from headrace.wire.jobs import JobSpec, JobState
from services.ctl.errors import UsageError
from services.ctl.instants import until_us

__all__ = [
    "absolute",
    "check_files",
    "check_unclaimed",
    "deadline_us",
    "rows_max",
    "wrong_usage",
]

_LOCAL = re.compile(r"^(file|local):(//)?/")


@contextmanager
def wrong_usage() -> Iterator[None]:
    """What is wrong with a request is wrong with the options that make it."""
    try:
        yield
    except RequestError as error:
        # Readers of files end their sentences, ours do not.
        raise UsageError(f"{str(error).rstrip('.')}.") from error


def absolute(url: str) -> str:
    """A path of this machine as one that does not depend on where we are, nor on how it
    is written."""
    *chain, url = url.split("::")
    url = _LOCAL.sub("/", url)
    if "://" in url:
        return "::".join([*chain, url])
    path = Path(url).expanduser()
    # Not the last part: a link is replaced, and not what it leads to.
    return "::".join([*chain, str(path.parent.resolve() / path.name)])


def rows_max(asked: int | None, usual: int, served: ServedVersion) -> int:
    """Most rows of a record; says so where fewer than ``asked`` are allowed."""
    if asked is not None and asked > served.max_batch:
        print(
            f"--rows {asked} is lowered to {served.max_batch}, the max_batch of "
            f"{served.model}.",
            file=sys.stderr,
        )
    return min(asked or usual, served.max_batch)


def deadline_us(text: str, now_us: int) -> int:
    """Of a job. Raises UsageError, also for one that does not count."""
    found = until_us(text, now_us, option="--deadline")
    if found - now_us > BULK_TIMEOUT_MAX_US:
        raise UsageError(
            f"--deadline {text} is further away than results are kept: 7d at most."
        )
    return found


def check_files(
    spec: JobSpec, served: ServedVersion, output: str, *, force: bool
) -> None:
    """Whether the rows fit the model, and their outputs the file at ``output``.
    ``force``: files that stand there may be replaced.

    Raises UsageError, and :class:`headrace.errors.RequestError`.
    """
    rows, _ = input_rows(spec, served)
    rows.check()
    check_output(output, served, rows)
    files = made_of(output)
    inputs = [each.url for each in spec.inputs]
    for url in files:
        _check_not_read(url, inputs)
    check_may_write(output)
    paths = [local_path(url) for url in files]
    there = [path for path in paths if path is not None and os.path.lexists(path)]
    if there and not force:
        raise UsageError(f"{there[0]} exists: --force replaces it.")


def check_unclaimed(table: JobTable, spec: JobSpec, *, earlier: bool = False) -> None:
    """Whether no other job writes to the output. ``earlier``: of those that were
    submitted at the same time only the ones before it count. Raises UsageError."""
    mine = set(made_of(spec.output))
    for job in table.all():
        other = job.spec
        if other is None or (other.tenant, other.job) == (spec.tenant, spec.job):
            continue
        state = job.progress.state if job.progress else JobState.STOPPED
        is_over = job.cancelled or state in {JobState.FAILED, JobState.CANCELLED}
        order = (other.submitted_us, other.job) < (spec.submitted_us, spec.job)
        # A job that is done has its file, unless a later one replaced it.
        if is_over or (earlier and not order) or (state is JobState.DONE and order):
            continue
        if mine.isdisjoint(made_of(other.output)):
            continue
        raise UsageError(
            f"{other.output} is the output of job {other.job} of tenant "
            f"{other.tenant}, which is "
            f"{'done' if state is JobState.DONE else 'not done'}: choose another "
            f"--output, or `headrace jobs cancel {other.job}`."
        )


def _check_not_read(url: str, inputs: Sequence[str]) -> None:
    path = local_path(url)
    for each in inputs:
        read = local_path(each)
        if path is None or read is None:
            is_same = url == each
        else:
            is_same = path.resolve() == read.resolve() or (
                path.exists() and path.samefile(read)
            )
        if is_same:
            told = "" if url == each else f", which is {url}"
            raise UsageError(
                f"The job would write over its own input {each}{told}: choose another "
                "--output."
            )
