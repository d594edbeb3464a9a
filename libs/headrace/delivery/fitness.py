"""What a worker may be asked of a version: how many rows fit, and whether it works.

A device's memory and its health show in runs alone. A batch that ran out of memory
halves the rows that the slot takes of the version; after a while they double again,
since what took the memory may be gone. Runs that fail in a row open the breaker: the
slot takes nothing of the version for a pause that doubles, then one row at a time until
a run succeeds (half-open). Both are announced, so that every former and ingress knows.
Before either, the worker tries a row of its own: where that runs, it was the senders'
rows that failed, and one sender must not turn a version away for all.
"""

from __future__ import annotations

from enum import Enum
from typing import assert_never

import msgspec

from headrace.delivery.worker_limits import WorkerLimits

__all__ = ["Fitness", "Ran", "Remedy", "VersionFitness"]


class Ran(Enum):
    """How a run went, as far as it tells of memory and device; bad input does not."""

    OK = 1
    OUT_OF_MEMORY = 2
    FAILED = 3


class Remedy(Enum):
    """What is done about memory, one after the other while no run succeeds."""

    SHRINK_ARENA = 1
    REBUILD_SESSION = 2
    FEWER_ROWS = 3
    """Nothing but the smaller limit: it still may be what fits."""
    END_PROCESS = 4
    """There is not enough for one row, and the process may be what holds it. Not where
    another row fits, which is told to :meth:`VersionFitness.other_row_fits`."""


class Fitness(msgspec.Struct, frozen=True):
    """What may be sent. ``rows_max`` None: as many as the version takes."""

    rows_max: int | None = None
    is_open: bool = False
    """The breaker is open: nothing."""


class VersionFitness:
    """One version in one worker process."""

    def __init__(self, limits: WorkerLimits, max_batch: int) -> None:
        self._limits = limits
        self._max_batch = max_batch
        self._memory_rows: int | None = None
        self._grow_at_us = 0
        self._remedies = 0
        self._failures = 0
        self._openings = 0
        self._is_open = False
        self._close_at_us = 0

    @property
    def now(self) -> Fitness:
        if self._openings and not self._is_open:
            return Fitness(1)
        return Fitness(self._memory_rows, self._is_open)

    @property
    def failures(self) -> int:
        """Runs that failed since one succeeded."""
        return self._failures

    @property
    def opens_next(self) -> bool:
        """Whether one more run that fails opens the breaker, or keeps it open."""
        return bool(self._openings) or (
            self._failures + 1 >= self._limits.breaker_failures
        )

    def ran(self, how: Ran, rows: int, now_us: int) -> Remedy | None:
        """Take in the end of a run of so many rows."""
        match how:
            case Ran.OK:
                self._remedies = self._failures = self._openings = 0
                self._is_open = False
                return None
            case Ran.OUT_OF_MEMORY:
                return self._out_of_memory(rows, now_us)
            case Ran.FAILED:
                is_last = self.opens_next
                self._failures += 1
                if is_last:
                    self._open(now_us)
                return None
            case _:
                assert_never(how)

    def other_row_runs(self) -> None:
        """Instead of a run that failed: another row runs, so the rows were at fault,
        and the count starts anew. Told where :attr:`opens_next`."""
        self._failures = self._openings = 0
        self._is_open = False

    def other_row_fits(self) -> None:
        """A row did not fit alone, and another one does: the first takes too much, and
        so did every batch that it was in. Nothing is wrong with the process."""
        self._memory_rows = None

    def wakeup_at_us(self) -> int | None:
        """When ``tick`` changes something."""
        instants = [self._close_at_us] if self._is_open else []
        if self._memory_rows is not None:
            instants.append(self._grow_at_us)
        return min(instants, default=None)

    def tick(self, now_us: int) -> None:
        if self._is_open and now_us >= self._close_at_us:
            self._is_open = False
        if self._memory_rows is not None and now_us >= self._grow_at_us:
            rows = 2 * self._memory_rows
            self._memory_rows = rows if rows < self._max_batch else None
            self._grow_at_us = now_us + self._limits.memory_kept_us

    def _out_of_memory(self, rows: int, now_us: int) -> Remedy | None:
        known = self._memory_rows
        self._grow_at_us = now_us + self._limits.memory_kept_us
        if known is not None and rows > known:
            return None  # sent before the limit was known
        self._memory_rows = max(1, rows // 2)
        self._remedies += 1
        if self._remedies >= Remedy.FEWER_ROWS.value:
            return Remedy.FEWER_ROWS if rows > 1 else Remedy.END_PROCESS
        return Remedy(self._remedies)

    def _open(self, now_us: int) -> None:
        """Also by what was on its way when it opened: the pause begins anew."""
        limits = self._limits
        if not self._is_open:
            self._openings += 1
        self._is_open = True
        pause_us = limits.breaker_us << min(self._openings - 1, 10)
        self._close_at_us = now_us + min(pause_us, limits.breaker_max_us)
