"""The process that publishes a job: this one, or one beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from pydantic import BaseModel

from headrace.domain import ServedVersion
from headrace.jobs import JobSite, run_job
from headrace.lifecycle import BusSettings, read_settings
from headrace.wire.jobs import JobSpec, JobState
from services.ctl.cluster import Cluster
from services.ctl.job_view import progress_view, resume_command, told_end
from services.ctl.options import writable_folder
from services.ctl.running import DATA_FOLDER
from services.ctl.where import payload_reader
from services.ctl.wording import counted

__all__ = ["bus_settings", "run_here", "site", "start_beside"]


class _Settings(BaseModel, frozen=True, extra="forbid"):
    bus: BusSettings = BusSettings()


def bus_settings() -> BusSettings:
    """As the services read them. Raises :class:`headrace.errors.SetupError`."""
    return read_settings(_Settings, os.environ).bus


def site(cluster: Cluster, spec: JobSpec, served: ServedVersion) -> JobSite:
    bytes_max = bus_settings().payload_bytes_max
    return JobSite(*cluster, spec, served, bytes_max, payload_reader())


def run_here(cluster: Cluster, spec: JobSpec, served: ServedVersion) -> int:
    """Publish the job and show its progress; Ctrl-C and SIGTERM stop it, so that it
    can be resumed."""
    signal.signal(signal.SIGTERM, _interrupt)
    print(f"Job {spec.job} begins.", file=sys.stderr, flush=True)
    try:
        with progress_view(spec.job) as told:
            ended = run_job(site(cluster, spec, served), told)
    except KeyboardInterrupt:
        print(f"Job {spec.job} is stopped; go on with {resume_command(spec)}.")
        raise
    if ended.state is JobState.CANCELLED:
        print(f"Job {spec.job} was cancelled after {counted(ended.done, 'row')}.")
        return 1
    print(told_end(spec, ended))
    return 0


def start_beside(cluster: Cluster, spec: JobSpec, data: Path | None) -> None:
    """Start a process that publishes the job and outlives this one."""
    folder = (data or DATA_FOLDER) / "jobs"
    folder = writable_folder("folder of logs", folder, "choose another with --data")
    log = folder / f"{spec.tenant}.{spec.job}.log"
    command = (
        *(sys.executable, "-m", "services.ctl", "jobs", "resume", spec.job, "--wait"),
        *("--tenant", spec.tenant),
        *("--bootstrap", cluster.connection.bootstrap_servers),
    )
    with log.open("ab") as lines:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=lines,
            stderr=lines,
            start_new_session=True,
        )
    of = "" if spec.tenant == "default" else f" --tenant {spec.tenant}"
    print(f"Job {spec.job} is published by a process of its own; its log is {log}.")
    print(f"headrace jobs status {spec.job}{of} --watch")


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
