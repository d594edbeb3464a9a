"""What one queue is asked for, and how much of it is lost."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from math import exp

from headrace.domain import Priority, Request
from headrace.scheduling.estimate import RunTimes

__all__ = ["Demand"]

WINDOW_US = 50_000
FAST_US = 500_000
SLOW_US = 10_000_000
BUDGETS = 64
LOW_QUANTILE = 0.1
SETTLED_MEMORY = 16
"""Batches over which losses are averaged."""
LOSS_MIN, LOSS_FULL = 0.04, 0.12
"""Lost part of the requests at which pressure begins and is full. Below, a loss is a
burst's; deferring for it would lose more."""
LOSS_MIN_SOLE, LOSS_FULL_SOLE = 0.015, 0.03
"""The same of a queue that shares its workers with no other one: nobody needs the time
in which its batches fill."""
FALL = 3
"""Where queues share workers it falls more slowly by so much: losses that end because
batches wait would else be back as soon as these do not. A sole queue's are a burst's
as often, after which it should send at once."""
BATCH_MEMORY = 0.1


class _Losses:
    """What becomes of one priority's requests."""

    def __init__(self) -> None:
        self._batch_rows = 1.0
        self._part = self._kept_part = 0.0
        self.pressure = 0.0
        self.pressure_sole = 0.0

    def sent(self, rows: int) -> None:
        self._batch_rows += (rows - self._batch_rows) * BATCH_MEMORY

    def settled(self, served: int, lost: int) -> None:
        rows = served + lost
        if rows:
            weight = min(rows / (SETTLED_MEMORY * self._batch_rows), 1.0)
            part = lost / rows
            self._part += (part - self._part) * weight
            slowly = weight if part > self._kept_part else weight / FALL
            self._kept_part += (part - self._kept_part) * slowly
            self.pressure = _between(self._kept_part, LOSS_MIN, LOSS_FULL)
            self.pressure_sole = _between(self._part, LOSS_MIN_SOLE, LOSS_FULL_SOLE)


def _between(part: float, least: float, full: float) -> float:
    return min(max((part - least) / (full - least), 0.0), 1.0)


class Demand:
    """Arrivals as two averages (0.5 s and 10 s, the larger counts), the time limits
    that recent requests came with, and what became of them."""

    def __init__(self) -> None:
        self._since_us = 0
        self._rows = 0
        self._online_rows = 0
        self._fast = 0.0
        self._slow = 0.0
        self._online_fast = 0.0
        self._online_slow = 0.0
        self._budgets: deque[int] = deque(maxlen=BUDGETS)
        self._budget_us: int | None = None
        self._budget_at_us = -WINDOW_US
        self._losses = tuple(_Losses() for _ in Priority)
        self.batch_rows = 1.0
        """Rows of recent online batches, on average."""

        self.arrived_at_us = -1
        self.online_at_us = -1
        """When the last one came that has a deadline and is not bulk; -1: never."""

    def arrived(self, request: Request, now_us: int) -> None:
        self._rows += request.rows
        self.arrived_at_us = now_us
        deadline_us = request.deadline_us
        if deadline_us is not None and request.priority is not Priority.BULK:
            self._budgets.append(deadline_us - request.arrived_us)
            self.online_at_us = now_us
            self._online_rows += request.rows
        if now_us - self._since_us >= WINDOW_US:
            self._fold(now_us)

    def sent(self, priority: int, rows: int) -> None:
        """An online batch of that priority left."""
        self.batch_rows += (rows - self.batch_rows) * BATCH_MEMORY
        self._losses[priority].sent(rows)

    def settled(self, priority: int, served: int, lost: int) -> None:
        """So many rows of a priority were sent to a worker, so many given up."""
        self._losses[priority].settled(served, lost)

    def pressure(self, priority: int, *, is_sole: bool = False) -> float:
        """How far the queue is from serving what it is asked for in a priority, from
        0 to 1. Whoever is more urgent has no part in what the less urgent lose."""
        losses = self._losses[priority]
        return losses.pressure_sole if is_sole else losses.pressure

    def rows_per_us(self, now_us: int) -> float:
        if now_us - self._since_us >= WINDOW_US:
            self._fold(now_us)
        return max(self._fast, self._slow)

    def online_rows_per_us(self, now_us: int) -> float:
        """The same of online requests."""
        if now_us - self._since_us >= WINDOW_US:
            self._fold(now_us)
        return max(self._online_fast, self._online_slow)

    def budget_us(self, now_us: int) -> int | None:
        """A low quantile of recent time limits; None: only bulk, or none have one."""
        if now_us - self._budget_at_us >= WINDOW_US and self._budgets:
            self._budget_at_us = now_us
            ordered = sorted(self._budgets)
            self._budget_us = ordered[int(LOW_QUANTILE * len(ordered))]
        return self._budget_us

    def largest_rows(self, times: RunTimes, hops_us: int, now_us: int) -> int:
        """The most rows that run within the time limits, which batches of a backlog
        grow to."""
        budget_us = self.budget_us(now_us)
        if budget_us is None:
            return times.rows_max
        return max(times.rows_within(budget_us - hops_us), 1)

    def target_rows(
        self, times: RunTimes, hops_us: int, slots: int, now_us: int
    ) -> int:
        """The largest size that loses nobody: its first request waits until one of
        ``slots`` workers starts, as they do one after another, or until the others
        have come, whichever is sooner; and then runs."""
        budget_us = self.budget_us(now_us)
        if budget_us is None:
            return times.rows_max
        spare_us = budget_us - hops_us
        staggered = max(times.rows_within(spare_us * slots // (slots + 1)), 1)
        rate = self.rows_per_us(now_us)
        if not rate:
            return staggered

        def gathered_us(rows: int) -> int:
            return times.bound(rows) + int(rows / rate)

        sizes = range(staggered + 1, times.rows_max + 1)
        return staggered + bisect_right(sizes, spare_us, key=gathered_us)

    def _fold(self, now_us: int) -> None:
        elapsed = now_us - self._since_us
        rate, online = self._rows / elapsed, self._online_rows / elapsed
        fast, slow = 1 - exp(-elapsed / FAST_US), 1 - exp(-elapsed / SLOW_US)
        self._fast += (rate - self._fast) * fast
        self._slow += (rate - self._slow) * slow
        self._online_fast += (online - self._online_fast) * fast
        self._online_slow += (online - self._online_slow) * slow
        self._since_us, self._rows, self._online_rows = now_us, 0, 0
