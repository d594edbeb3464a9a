"""A platform for the trials of jobs, their publishers, and what both use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from headrace.broker import KafkaConnection
from headrace.errors import SetupError
from headrace.jobs import Job, read_jobs
from headrace.wire import Topics
from headrace.wire.jobs import JobProgress, JobState
from loadtest.platform import Running, started
from loadtest.scenario import Platform
from loadtest.sending import generator_command

__all__ = [
    "Site",
    "Watch",
    "at_work",
    "ended",
    "rate_of",
    "resume",
    "submit",
    "told",
    "watched",
]

OUT: Final = Path(".headrace/loadtest")
ENDS_WITHIN_S: Final = 3600.0
LOOK_EVERY_S: Final = 0.2


class Site(NamedTuple):
    """A running platform, and a folder for files."""

    running: Running
    folder: Path
    generator: tuple[str, ...]

    def job(self, name: str) -> Job:
        connection = KafkaConnection(self.running.document.bootstrap_servers, "trial")
        return read_jobs(connection, Topics()).of("default", name)


@contextmanager
def at_work(put: Callable[[Path], None]) -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-jobs-"))
    try:
        (folder / "models").mkdir()
        put(folder / "models")
        generator = tuple(generator_command("auto", OUT))
        with started(Platform(), folder / "models") as running:
            yield Site(running, folder, generator)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def submit(site: Site, name: str, model: str) -> subprocess.Popen[bytes]:
    return _jobs(
        site,
        *("submit", model, "--input", str(site.folder / "in.parquet")),
        *("--output", str(site.folder / "out.parquet")),
        *("--name", name, "--wait"),
    )


def resume(site: Site, name: str) -> subprocess.Popen[bytes]:
    return _jobs(site, "resume", name, "--wait")


def _jobs(site: Site, *arguments: str) -> subprocess.Popen[bytes]:
    servers = site.running.document.bootstrap_servers
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "services.ctl", "jobs", *arguments),
            *("--bootstrap", servers),
        ],
        stdout=subprocess.DEVNULL,
        env=os.environ,
    )


def ended(process: subprocess.Popen[bytes]) -> None:
    if status := process.wait(ENDS_WITHIN_S):
        raise SetupError(f"a job's publisher ended with {status}")


def told(site: Site, name: str, pid: int, done: int) -> tuple[float, JobProgress]:
    """The first progress of this publisher with more rows than ``done``, and its log
    time in seconds."""
    until = time.monotonic() + ENDS_WITHIN_S
    while time.monotonic() < until:
        job = site.job(name)
        progress = job.progress
        if progress is not None and progress.pid == pid and progress.done > done:
            return job.heard_us / 1e6, progress
        if progress is not None and progress.state is JobState.DONE:
            raise SetupError("the job was done too soon: give it more --rows")
        time.sleep(LOOK_EVERY_S)
    raise SetupError(f"job {name} got no further than {done} rows")


def rate_of(job: Job) -> float:
    """Rows per second from the publisher's start to the output."""
    assert job.progress is not None
    return job.progress.done / ((job.heard_us - job.progress.started_us) / 1e6)


class Watch:
    """The most memory that each process was seen with; ``publisher``: also that one."""

    def __init__(self, running: Running) -> None:
        self._pids = {
            pid: service
            for service, pids in running.pids.items()
            if service != "kafka"  # it is no Python process
            for pid in pids
        }
        self.publisher: int | None = None
        self.peak_mb: dict[str, float] = {}
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(LOOK_EVERY_S):
            named = dict(self._pids)
            if self.publisher is not None:
                named[self.publisher] = "publisher"
            for pid, name in named.items():
                mb = _resident_mb(pid)
                self.peak_mb[name] = max(self.peak_mb.get(name, 0.0), mb)


@contextmanager
def watched(site: Site) -> Iterator[Watch]:
    watch = Watch(site.running)
    thread = threading.Thread(target=watch.run, name="watch")
    thread.start()
    try:
        yield watch
    finally:
        watch.stopped.set()
        thread.join()


def _resident_mb(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/statm").read_text("ascii")
    except OSError:
        return 0.0  # it has ended
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
