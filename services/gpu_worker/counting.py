"""What is counted and kept of every run, and logged of one that failed."""

from __future__ import annotations

from typing import NamedTuple

from headrace.telemetry import Counter, Histogram, Log, WorkerMetrics
from services.gpu_worker.jobs import Job

__all__ = ["RunCounts"]

IDS_LOGGED_MAX = 32


class _Version(NamedTuple):
    """The metrics of one version: to find them costs more than to move them."""

    ok: Counter
    run_time: Histogram
    wait_time: Histogram
    run_rows: Counter


class RunCounts:
    """The loop's."""

    def __init__(self, metrics: WorkerMetrics, log: Log) -> None:
        self._metrics = metrics
        self._log = log
        self._versions: dict[tuple[str, str], _Version] = {}

    def ran(self, job: Job) -> None:
        batch = job.batch
        found = self._of(batch.model, batch.version)
        failed = next((each for each in job.outcomes if each.reason), None)
        if failed is None:
            found.ok.inc()
        else:
            self._metrics.runs.labels(batch.model, batch.version, failed.reason).inc()
            # Whose payload it was stays out of the log; the ids lead to it.
            self._log.warning(
                "batch.failed",
                batch=batch.batch,
                model=batch.model,
                version=batch.version,
                requests=",".join(batch.ids[:IDS_LOGGED_MAX]),
                members=job.members,
                status=failed.status,
                reason=failed.reason,
                text=failed.text,
            )
        if not job.run_us:
            return
        rows = sum(batch.rows)
        found.run_time.observe(job.run_us / 1e6)
        found.wait_time.observe(job.wait_us / 1e6)
        found.run_rows.inc(rows)
        self._metrics.busy.inc(job.run_us / 1e6)
        runnable = job.runnable
        if runnable is not None and job.failure is None:
            shape = batch.compatibility_key(runnable.layout.padding)
            runnable.runs.add(shape, rows, job.run_us)

    def unacked(self, job: Job, members: int) -> None:
        """So many replies were not acked in time."""
        self._metrics.unacked.labels(job.batch.model, job.batch.version).inc(members)

    def _of(self, model: str, version: str) -> _Version:
        found = self._versions.get((model, version))
        if found is None:
            metrics = self._metrics
            found = self._versions[model, version] = _Version(
                metrics.runs.labels(model, version, "ok"),
                metrics.run_time.labels(model, version),
                metrics.wait_time.labels(model, version),
                metrics.run_rows.labels(model, version),
            )
        return found
