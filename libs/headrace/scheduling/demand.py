"""What one queue is asked for: its arrival rate, its time limits, its target size."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from math import exp

from headrace.domain import Request
from headrace.scheduling.estimate import RunTimes

__all__ = ["Demand"]

WINDOW_US = 50_000
FAST_US = 500_000
SLOW_US = 10_000_000
BUDGETS = 64
LOW_QUANTILE = 0.1


class Demand:
    """Arrivals as two averages (0.5 s and 10 s, the larger counts) and the time
    limits that recent requests came with."""

    def __init__(self) -> None:
        self._since_us = 0
        self._rows = 0
        self._fast = 0.0
        self._slow = 0.0
        self._budgets: deque[int] = deque(maxlen=BUDGETS)
        self._target = 0
        self._target_at_us = -1
        self.arrived_at_us = -1
        self.online_at_us = -1
        """When the last request with a deadline came; -1: never."""

    def arrived(self, request: Request, now_us: int) -> None:
        self._rows += request.rows
        self.arrived_at_us = now_us
        if request.deadline_us is not None:
            self._budgets.append(request.deadline_us - request.arrived_us)
            self.online_at_us = now_us
        if now_us - self._since_us >= WINDOW_US:
            self._fold(now_us)

    def rows_per_us(self, now_us: int) -> float:
        if now_us - self._since_us >= WINDOW_US:
            self._fold(now_us)
        return max(self._fast, self._slow)

    def budget_us(self) -> int | None:
        """A low quantile of recent time limits; None: only requests without one."""
        if not self._budgets:
            return None
        ordered = sorted(self._budgets)
        return ordered[int(LOW_QUANTILE * len(ordered))]

    def largest_rows(self, times: RunTimes, hops_us: int) -> int:
        """The most rows that run within the time limits, which batches of a backlog
        grow to."""
        budget_us = self.budget_us()
        if budget_us is None:
            return times.rows_max
        return max(times.rows_within(budget_us - hops_us), 1)

    def target_rows(self, times: RunTimes, hops_us: int, now_us: int) -> int:
        """The largest size that gathers and runs within the time limits. Cached for
        50 ms."""
        if 0 <= now_us - self._target_at_us < WINDOW_US and self._target_at_us >= 0:
            return min(self._target, times.rows_max)
        self._target_at_us = now_us
        self._target = self._find_target(times, hops_us, now_us)
        return self._target

    def _find_target(self, times: RunTimes, hops_us: int, now_us: int) -> int:
        budget_us = self.budget_us()
        if budget_us is None:
            return times.rows_max
        rate = self.rows_per_us(now_us)
        if not rate:
            return 1
        spare_us = budget_us - hops_us

        def needed_us(rows: int) -> int:
            return times.bound(rows) + int(rows / rate)

        sizes = range(1, times.rows_max + 1)
        return max(bisect_right(sizes, spare_us, key=needed_us), 1)

    def _fold(self, now_us: int) -> None:
        elapsed = now_us - self._since_us
        rate = self._rows / elapsed
        self._fast += (rate - self._fast) * (1 - exp(-elapsed / FAST_US))
        self._slow += (rate - self._slow) * (1 - exp(-elapsed / SLOW_US))
        self._since_us, self._rows = now_us, 0
