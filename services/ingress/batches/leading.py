"""Which ingress runs batches, and which batches need a runner now. Decisions alone.

The ingress with the lowest slot of those heard of lately leads. Two may think so for a
moment: a batch is claimed in the log, and whoever had it before stops.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from headrace.registry import Job, JobTable
from headrace.wire.jobs import JobState

__all__ = ["BatchKey", "Leading", "has_ended"]

HEARD_US: Final = 3_000_000
"""An ingress that was silent for so long does not lead."""

SILENT_US: Final = 15_000_000
"""A runner tells of its batch every second, but not while it looks through the file."""

RETRY_US: Final = 1_000_000
RETRY_US_MAX: Final = 60_000_000
"""A runner that failed is started again after twice as long each time."""

_ENDED: Final = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})


class BatchKey(NamedTuple):
    tenant: str
    batch: str


FLIGHT_US: Final = 500_000
"""Between the last word of a runner that died and the moment that this is known."""


class _Failed(NamedTuple):
    times: int
    at_us: int
    again_at_us: int


class Leading:
    """One ingress's part in it. All instants are log time."""

    def __init__(self, slot: int, at_once_max: int) -> None:
        self._slot = slot
        self._at_once_max = at_once_max
        self._heard: dict[int, int] = {}
        self._failed: dict[BatchKey, _Failed] = {}
        self.now_us = 0

    def heard(self, slot: int, log_us: int, *, is_ready: bool) -> None:
        """A heartbeat of an ingress."""
        self.now_us = max(self.now_us, log_us)
        if is_ready:
            self._heard[slot] = log_us
        else:
            self._heard.pop(slot, None)

    @property
    def leads(self) -> bool:
        alive = [
            slot
            for slot, heard_us in self._heard.items()
            if self.now_us - heard_us <= HEARD_US
        ]
        return bool(alive) and min(alive) == self._slot

    def ended(self, key: BatchKey, *, well: bool) -> None:
        """A runner of this ingress has ended."""
        if well:
            self._failed.pop(key, None)
            return
        times = self._failed[key].times + 1 if key in self._failed else 1
        delay_us = min(RETRY_US << min(times - 1, 20), RETRY_US_MAX)
        self._failed[key] = _Failed(times, self.now_us, self.now_us + delay_us)

    def due(self, table: JobTable, running: Collection[BatchKey]) -> list[BatchKey]:
        """The batches to start a runner for, the oldest first; ``running``: those that
        this ingress has one for."""
        if not self.leads:
            return []
        waiting = []
        busy = len(running)
        for job in table.all():
            spec = job.spec
            if spec is None or spec.batch is None or has_ended(job):
                continue
            key = BatchKey(spec.tenant, spec.job)
            if key in running:
                continue
            if self._is_alive(key, job):
                busy += 1
            elif not self._rests(key):
                waiting.append(key)
        return waiting[: max(self._at_once_max - busy, 0)]

    def _is_alive(self, key: BatchKey, job: Job) -> bool:
        """Whether a runner, of whatever ingress, is at it."""
        progress = job.progress
        if progress is None or progress.state is not JobState.RUNNING:
            return False
        failed = self._failed.get(key)
        if failed is not None and job.heard_us <= failed.at_us + FLIGHT_US:
            return False
        return self.now_us - job.heard_us <= SILENT_US

    def _rests(self, key: BatchKey) -> bool:
        failed = self._failed.get(key)
        return failed is not None and self.now_us < failed.again_at_us


def has_ended(job: Job) -> bool:
    return job.progress is not None and job.progress.state in _ENDED
