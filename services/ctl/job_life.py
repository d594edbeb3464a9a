"""Whether somebody works on a job."""

from __future__ import annotations

import socket

import psutil

from headrace.clock import wall_us
from headrace.jobs import Job
from headrace.wire.jobs import JobState

__all__ = ["is_alive", "is_left"]

_SILENT_US = 15_000_000
"""A publisher of another machine tells of itself every second, but not while it reads
its results again."""

_BEGINS_US = 30_000_000
"""So long a process may take until it first tells of its job."""

_CLOCKS_US = 2_000_000
"""Of the log and of this machine."""


def is_alive(job: Job) -> bool:
    """Whether the job's publisher seems to run."""
    progress = job.progress
    if progress is None or progress.state is not JobState.RUNNING:
        return False
    if progress.host != socket.gethostname():
        return wall_us() - job.heard_us < _SILENT_US
    try:
        process = psutil.Process(progress.pid)
        # A number may be another process's by now, which began later.
        return (
            process.status() != psutil.STATUS_ZOMBIE
            and process.create_time() * 1e6 <= job.heard_us + _CLOCKS_US
        )
    except psutil.NoSuchProcess:
        return False


def is_left(job: Job) -> bool:
    """Whether it stands still although nobody told it to. A batch never is: another
    ingress goes on with it."""
    spec, progress = job.spec, job.progress
    if spec is None or spec.batch is not None or job.cancelled:
        return False
    if progress is None:
        return wall_us() - spec.submitted_us >= _BEGINS_US
    return progress.state is JobState.RUNNING and not is_alive(job)
