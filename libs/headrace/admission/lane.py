"""What one lane has to do, by whom it is waited for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate, pairwise
from math import exp
from typing import NamedTuple

from headrace.domain import DUE_WITHIN_US, Load, Price, Priority

__all__ = ["Lane", "Pushed"]

NO_SHARES = (0.0,) * len(Priority)
LULL_US = 400_000
"""Memory for how much a lane had to do."""
LULL_FULL = 0.3
"""Part of the time with too little to do, from which on more makes no difference."""
DEAR_FOR_US = 2_000_000
"""For so long after a refusal of a cheaper version a dear one has less room."""
CLASSES = len(DUE_WITHIN_US) + 1

_LESS_URGENT = tuple(range(priority + 1, len(Priority)) for priority in Priority)


class Pushed(NamedTuple):
    """Work that would be late behind one more request."""

    done_us: int
    """Until it and all that is ahead of it is done."""
    due_us: int
    """Until the first of it is due."""


class Lane:
    """A lane's load, and what was sent since it was published."""

    def __init__(self, unheard_us_max: int) -> None:
        self._unheard_us_max = unheard_us_max
        self.slots = 0
        self.heard_us = -1
        self.hops_us = 0
        self._urgent_us = [0.0] * len(Priority)
        """Work of more urgent priorities, before each."""

        self._due_us = [[0.0] * CLASSES for _ in Priority]
        """Work of each priority that is due by the end of each class, seen from when
        the load was heard; what was sent since included."""

        self._free_us = [0]
        self._reach_us = [0.0]
        self.prices: dict[tuple[str, str], Price] = {}
        self.heavy: frozenset[str] = frozenset()
        self.versions = 0.0
        """Asked for lately, for each slot."""

        self.shares = list(NO_SHARES)
        self._room: dict[tuple[str, str, str], int] = {}
        """Requests that still may wait of a model version's tenants who have few."""

        self._short = 0.0
        self.lull = 0.0
        """How much of late the lane was asked for too little to fill batches, from 0 to
        1: it is asked in bursts, and has time for them afterwards."""
        self._has_refused = False
        """Since it was heard: if it then has too little to do, that is not for want of
        requests."""

        self.refuses_dear_until_us = -1

    def hear(self, load: Load, hops_us: int, now_us: int) -> None:
        self._watch_lull(load, now_us)
        self.slots = load.slots
        self.heard_us = now_us
        self.hops_us = hops_us
        self.heavy = frozenset(load.heavy)
        self.shares = [*load.shares, *NO_SHARES][: len(Priority)]
        self.prices = {(each.model, each.version): each for each in load.prices}
        self._room = {
            (each.model, each.version, tenant): left
            for each in load.prices
            for tenant, left in each.room.items()
        }
        self.versions = len(load.prices) / load.slots if load.slots else 0.0
        self._due_us = [[0.0] * CLASSES for _ in Priority]
        for queue in load.queues:
            due_us = self._due_us[queue.priority]
            told = queue.due_us[:CLASSES]
            due_us[0] += max(queue.backlog_us - sum(told), 0)
            for place, us in enumerate(told):
                due_us[place] += us
        urgent_us = 0.0
        for priority, due_us in enumerate(self._due_us):
            self._urgent_us[priority] = urgent_us
            if any(due_us):
                due_us[:] = accumulate(due_us)
                urgent_us += due_us[-1]
        self._free_us = load.free_us or [0]
        each_for = load.slots / len(self._free_us)
        reach_us, reached = 0.0, [0.0]
        for working, (free_us, next_us) in enumerate(pairwise(self._free_us), start=1):
            reach_us += working * each_for * (next_us - free_us)
            reached.append(reach_us)
        self._reach_us = reached

    def _watch_lull(self, load: Load, now_us: int) -> None:
        if not load.free_us or not load.prices:
            return
        has_us = sum(load.free_us) / len(load.free_us)
        has_us += sum(queue.backlog_us for queue in load.queues) / load.slots
        batch_us = max(price.batch_us for price in load.prices)
        is_short = has_us <= max(len(load.prices) / load.slots, 1.0) * batch_us
        is_short = is_short and not self._has_refused
        self._has_refused = False
        elapsed_us = max(now_us - self.heard_us, 0) if self.heard_us >= 0 else 0
        self._short += (is_short - self._short) * (1 - exp(-elapsed_us / LULL_US))
        self.lull = round(min(self._short / LULL_FULL, 1.0), 1)

    def refused(self, now_us: int, *, is_dear: bool) -> None:
        """A request of a version, dear or not."""
        self._has_refused = True
        if not is_dear:
            self.refuses_dear_until_us = now_us + DEAR_FOR_US

    def send(self, priority: Priority, deadline_us: int, device_us: int) -> None:
        due_us = self._due_us[priority]
        for later in range(self._place(deadline_us), CLASSES):
            due_us[later] += device_us
        for less_urgent in _LESS_URGENT[priority]:
            self._urgent_us[less_urgent] += device_us

    def enter(self, key: tuple[str, str], tenant: str, count: int) -> None:
        if self._room and (place := (*key, tenant)) in self._room:
            self._room[place] -= count

    def is_full(self, key: tuple[str, str], tenant: str) -> bool:
        """Whether as many of the tenant's requests wait as may."""
        return bool(self._room) and self._room.get((*key, tenant), 1) <= 0

    def ahead_us(self, priority: Priority, deadline_us: int) -> float:
        """Work that is done before a request's, as the earliest deadline goes first
        within a priority."""
        place = self._place(deadline_us)
        return self._urgent_us[priority] + self._due_us[priority][place]

    def all_us(self, priority: Priority) -> float:
        """The same if nobody could be passed."""
        return self._urgent_us[priority] + self._due_us[priority][-1]

    def own_us(self, priority: Priority) -> float:
        return self._due_us[priority][-1]

    def pushed(
        self,
        priority: Priority,
        deadline_us: int,
        run_us: int,
        now_us: int,
    ) -> Pushed | None:
        """Work of the priority that is due after ``deadline_us`` and, with all that is
        ahead of it and a run of ``run_us`` more, would not be done in time. The last
        class is not looked at: most of it is never due."""
        due_us, urgent_us = self._due_us[priority], self._urgent_us[priority]
        place = self._place(deadline_us)
        if due_us[-1] == due_us[place]:
            return None
        for later in range(place + 1, CLASSES - 1):
            if due_us[later] > due_us[later - 1]:
                ahead_us = urgent_us + due_us[later]
                done_us = run_us + self.waits_us(ahead_us, now_us)
                left_us = self.heard_us + DUE_WITHIN_US[later - 1] - now_us
                if done_us > left_us:
                    return Pushed(done_us, left_us)
        return None

    def waits_us(self, ahead_us: float, now_us: int) -> int:
        """Until the slots have done ``ahead_us``, on which they have worked since: each
        begins when it is free, so ``_reach_us`` of work is done when the next one
        joins."""
        free_us = self._free_us
        worked_us = min(now_us - self.heard_us, self._unheard_us_max)
        if len(free_us) == 1:
            done_us = free_us[0] + int(ahead_us / self.slots)
        else:
            working = bisect_right(self._reach_us, ahead_us)
            share = self.slots * working / len(free_us)
            left_us = (ahead_us - self._reach_us[working - 1]) / share
            done_us = free_us[working - 1] + int(left_us)
        return done_us - worked_us if done_us > worked_us else 0

    def _place(self, deadline_us: int) -> int:
        return bisect_left(DUE_WITHIN_US, deadline_us - self.heard_us)
