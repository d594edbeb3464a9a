"""Runs one batch: ``python -m services.ingress.batches``, started by an ingress."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import NoReturn

from headrace.broker import KafkaConnection
from headrace.domain import Reason
from headrace.errors import RequestError, SetupError, StoreUnavailable
from headrace.jobs.running import JobSite, run_job
from headrace.jobs.served import served_version
from headrace.jobs.table import JobWriter, read_jobs
from headrace.jobs.watching import JobTaken
from headrace.lifecycle import ExitCode, read_settings, run_to_exit
from headrace.telemetry import LogSettings, configure_logs, get_log
from headrace.wire import Topics
from headrace.wire.jobs import JobProgress, JobSpec, JobState
from services.ingress.batches.store import FileStore
from services.ingress.batches.work import batch_work
from services.ingress.parsing import RequestParser
from services.ingress.settings import IngressSettings

NICER = 5
"""Clients that wait for an answer come first."""

_PASSING = frozenset({Reason.MODEL_LOADING, Reason.MODEL_UNAVAILABLE})


def main() -> NoReturn:
    parser = argparse.ArgumentParser(prog="services.ingress.batches")
    parser.add_argument("--tenant", required=True)
    parser.add_argument("--batch", required=True)
    parser.add_argument("--slot", type=int, default=0)
    asked = parser.parse_args()
    configure_logs(LogSettings(), service="ingress.batches", slot=asked.slot)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the ingress says when to end
    threading.Thread(target=_end_with_the_ingress, daemon=True).start()
    with suppress(OSError):
        os.nice(NICER)
    try:
        run_to_exit(partial(_run, asked.tenant, asked.batch))
    except KeyboardInterrupt:
        sys.exit(ExitCode.OK)


def _run(tenant: str, batch: str) -> ExitCode:
    settings = read_settings(IngressSettings, os.environ)
    if settings.files.url is None:
        raise SetupError("HEADRACE_FILES__URL is not set: there are no files")
    bus = settings.bus
    connection = bus.connection(f"batch-{batch}")
    spec = read_jobs(connection, bus.topics).of(tenant, batch).spec
    if spec is None or spec.batch is None:
        raise SetupError(f"there is no batch {batch} of tenant {tenant}")
    log = get_log()
    try:
        served = served_version(connection, bus.topics, spec.model, spec.version)
    except RequestError as error:
        if error.reason in _PASSING:
            log.warning("job.waits", job=batch, text=str(error))
            return ExitCode.FAILED
        _fail(connection, bus.topics, spec, str(error))
        return ExitCode.OK
    parser = RequestParser(
        served,
        payload_bytes_max=bus.payload_bytes_max,
        element_text_bytes=settings.limits.json_element_bytes_max,
    )
    store = FileStore(settings.files.url)
    site = JobSite(connection, bus.topics, spec, served, bus.payload_bytes_max)
    try:
        ended = run_job(
            site,
            lambda _: None,
            lambda site: batch_work(site, store, settings.files, parser),
        )
    except JobTaken as error:
        log.info("job.taken", job=batch, text=str(error))
    except RequestError as error:
        log.warning("job.failed", job=batch, text=str(error))
    except StoreUnavailable as error:
        log.warning("job.waits", job=batch, text=str(error))
        return ExitCode.FAILED
    else:
        log.info(
            "job.ended",
            job=batch,
            state=ended.state,
            lines=ended.done,
            failed=ended.failed,
        )
    return ExitCode.OK


def _fail(
    connection: KafkaConnection, topics: Topics, spec: JobSpec, text: str
) -> None:
    """Say that the batch cannot run; nothing of it has."""
    JobWriter(connection, topics).write(
        JobProgress(
            job=spec.job,
            tenant=spec.tenant,
            state=JobState.FAILED,
            publisher="",
            host="",
            pid=os.getpid(),
            started_us=0,
            text=text,
        )
    )


def _end_with_the_ingress() -> None:
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
