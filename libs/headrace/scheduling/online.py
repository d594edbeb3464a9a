"""Who else has online traffic, and how long bulk work may hold a worker beside it.

A run is not interrupted, so an online batch waits for the bulk run before it. That
wait is bounded by a part of the shortest time limit of late, and by half of what the
tightest queue can spare. A request that is longer by itself waits until it is paid for.
"""

from __future__ import annotations

from operator import itemgetter

from headrace.domain import Priority
from headrace.scheduling.backlog import Backlog
from headrace.scheduling.line import Line
from headrace.scheduling.long_runs import LongRuns
from headrace.scheduling.queue import Entry
from headrace.scheduling.settings import SchedulingSettings
from headrace.scheduling.slots import Slot

__all__ = ["LIMIT_KEPT_US", "OnlineTraffic"]

LIMIT_KEPT_US = 50_000
NEAR_PART = 0.1
"""Of the shortest time limit, by which a line may pass a more urgent one on the slot
where its version ran last."""
LONGER = 1.25
"""A run that is too long with one request may take so many times as long with more."""


class OnlineTraffic:
    """What is known of the lines that had online requests of late, found anew every
    50 ms."""

    def __init__(self, settings: SchedulingSettings, backlog: Backlog) -> None:
        self._settings = settings
        self._backlog = backlog
        self._spare_by_line_us: list[int] = []
        self._busy_lines: list[Line] = []
        self._slots: set[int] | None = None
        share = settings.shares[Priority.BULK]
        self._long_runs = LongRuns(share, late_us=LIMIT_KEPT_US)
        self._rows_by_line: dict[Line, int] = {}
        self._losing_by_priority: dict[int, list[tuple[float, Line]]] = {}
        self._pressures: dict[tuple[Line, int], float] = {}
        self._limit_us = 0
        self._until_us = -1

    def bulk_limit_us(self, now_us: int) -> int | None:
        """Longest bulk run; None: there was no online traffic of late."""
        return min(self._found(now_us), default=None)

    def slots(self, now_us: int) -> set[int]:
        """Slots of the lines that had online requests of late."""
        self._found(now_us)
        if self._slots is None:
            slots = (line.slots for line in self._busy_lines)
            self._slots = set().union(*slots)
        return self._slots

    def bulk_rows(self, line: Line, head: Entry, slot: Slot, now_us: int) -> int:
        """Rows of a bulk batch that keeps an online one waiting no longer than the
        chunk; 0: not now. A single request is whole: it goes when its share has paid
        for it, with those that lengthen its run a little."""
        if slot.number not in self.slots(now_us):
            return line.rows_limit
        times, rows = line.times, head.request.rows
        within = times.rows_within(self.bulk_limit_us(now_us) or 0)
        if within >= rows:
            return max(min(within, self.rows_wanted(line, now_us)), rows)
        arrived_us = head.request.arrived_us
        run_us = times.expected(rows)
        if not self._long_runs.may_start(
            line.slots, run_us, arrived_us=arrived_us, now_us=now_us
        ):
            return 0
        within = times.rows_within(int(LONGER * times.bound(rows)))
        cheap = times.nearly_as_cheap(line.rows_limit)
        return max(min(within, cheap), rows)

    def bulk_started(self, line: Line, slot: Slot, rows: int, now_us: int) -> None:
        """A bulk batch leaves for ``slot``."""
        if slot.number not in self.slots(now_us):
            return
        if line.times.bound(rows) > (self.bulk_limit_us(now_us) or 0):
            self._long_runs.started(line.slots, line.times.expected(rows), now_us)

    def rows_wanted(self, line: Line, now_us: int) -> int:
        """Rows of a run in which bulk takes part: the fewest at whose price the workers
        serve the online requests and ``bulk_of_rest`` of what those leave."""
        if not self._found(now_us):
            return line.rows_limit
        rows = self._rows_by_line.get(line)
        if rows is None:
            rest = 1 - min(self._load_beside(line, now_us), 1.0)
            part = 1 - (1 - self._settings.bulk_of_rest) * rest
            rows = line.times.nearly_as_cheap(line.rows_limit, 1 / max(part, 0.01))
            self._rows_by_line[line] = rows
        return rows

    def lines(self, now_us: int) -> int:
        return len(self._found(now_us))

    def pressure(self, line: Line, priority: int, now_us: int) -> float:
        return line.demand.pressure(priority, is_sole=self.lines(now_us) < 2)

    def pressure_around(
        self, line: Line, priority: int, own: float, now_us: int
    ) -> float:
        """The most of ``own`` and all lines that share a slot with ``line``. Where one
        loses its requests while its batches wait, others that sent small ones would
        take the slots that it waits for. Its own alone while its runs take longer than
        their bound, by which it would wait too long."""
        self._found(now_us)
        if line.times.is_overrun:
            return own
        found = self._pressures.get((line, priority))
        if found is None:
            found = self._pressures[line, priority] = next(
                (
                    pressure
                    for pressure, other in self._losing(priority)
                    if other is not line and not line.slots.isdisjoint(other.slots)
                ),
                0.0,
            )
        return max(found, own)

    def _losing(self, priority: int) -> list[tuple[float, Line]]:
        """Lines that lose requests of a priority, those that lose most first, so that
        of a thousand lines each need not look at all others."""
        found = self._losing_by_priority.get(priority)
        if found is None:
            pressures = (
                (line.demand.pressure(priority), line) for line in self._busy_lines
            )
            found = self._losing_by_priority[priority] = sorted(
                (each for each in pressures if each[0]), key=itemgetter(0), reverse=True
            )
        return found

    def near_us(self, now_us: int) -> int:
        """How much longer an online request may wait for a version that is near."""
        self._found(now_us)
        return int(NEAR_PART * self._limit_us)

    def _found(self, now_us: int) -> list[int]:
        if now_us >= self._until_us:
            self._until_us = now_us + LIMIT_KEPT_US
            self._slots = None
            self._rows_by_line.clear()
            self._losing_by_priority.clear()
            self._pressures.clear()
            limits_us = [
                (line, limit_us)
                for line in self._backlog.lines()
                if (limit_us := self._limit_of(line, now_us)) is not None
            ]
            self._busy_lines = [line for line, _ in limits_us]
            self._spare_by_line_us = [self._spare_us(*each) for each in limits_us]
            self._limit_us = min((limit_us for _, limit_us in limits_us), default=0)
        return self._spare_by_line_us

    def _limit_of(self, line: Line, now_us: int) -> int | None:
        seen_us = line.demand.online_at_us
        if seen_us < 0 or now_us - seen_us > self._settings.online_memory_us:
            return None
        return line.demand.budget_us(now_us)

    def _load_beside(self, line: Line, now_us: int) -> float:
        """What online requests take of the slots of ``line``, at their best price."""
        return sum(
            other.demand.online_rows_per_us(now_us)
            * other.times.expected(other.rows_limit)
            / (other.rows_limit * len(other.slots))
            for other in self._busy_lines
            if not line.slots.isdisjoint(other.slots)
        )

    def _spare_us(self, line: Line, budget_us: int) -> int:
        """How long the line's online requests can stand to be kept waiting."""
        hops_us = self._backlog.control_us + self._backlog.response_us
        spare_us = budget_us - hops_us
        run_us = line.times.bound(round(line.demand.batch_rows))
        slack_us = 0.5 * (spare_us - run_us)
        return int(max(min(self._settings.bulk_chunk * spare_us, slack_us), 0.0))
