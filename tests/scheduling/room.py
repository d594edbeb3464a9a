"""Workers that run what they are sent, in virtual time, and what they were sent.

The scheduler is woken only when it asks for it, so what a test finds in the record
was found in time. Runs take exactly what the versions announced.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from headrace.domain import (
    Arrived,
    BatchEnded,
    Dispatch,
    Priority,
    Refuse,
    Request,
    ServedVersion,
    SlotChanged,
    Ticked,
    VersionChanged,
)
from headrace.scheduling import BatchFormer, SchedulingSettings

CREDITS = 2
LOOKS_MAX = 20
"""At one instant; each end of a batch may open a slot."""


class Sent(NamedTuple):
    """A batch that left."""

    at_us: int
    dispatch: Dispatch
    idle_since_us: int | None
    """Since when its slot held nothing; None: it held a batch."""

    starts_us: int
    run_us: int
    left: tuple[Request, ...]
    """What stayed in the queues."""

    @property
    def priority(self) -> Priority:
        """That of the batch; less urgent members ride along."""
        return min(request.priority for request in self.dispatch.requests)


class Room:
    """One lane of ``slots`` workers. ``run`` plays requests to their end."""

    def __init__(
        self,
        *versions: ServedVersion,
        slots: int,
        settings: SchedulingSettings,
    ) -> None:
        numbers = count()
        self.former = BatchFormer(
            settings, batch_ids=(f"b{number}" for number in numbers)
        )
        self.settings = settings
        self.now_us = 0
        self.queued: dict[str, Request] = {}
        self.sent: list[Sent] = []
        self.refused: list[tuple[int, Refuse]] = []
        self._versions = {served.model: served for served in versions}
        self._held: dict[int, list[Dispatch]] = {slot: [] for slot in range(slots)}
        self._busy_until_us = dict.fromkeys(range(slots), 0)
        self._agenda: list[tuple[int, int, Request | Sent]] = []
        self._order = count()
        self._looks = 0
        for served in versions:
            self.former.handle(VersionChanged(served), 0)
        for slot in range(slots):
            self._tell(slot)

    def run(self, requests: Iterable[Request], *, until_us: int | None = None) -> None:
        """Requests arrive at their ``arrived_us``; without ``until_us`` all end."""
        for request in requests:
            self._at(request.arrived_us, request)
        while (next_us := self._next_us()) is not None:
            self._looks = self._looks + 1 if next_us == self.now_us else 0
            assert self._looks < LOOKS_MAX, "woken again and again for nothing"
            if until_us is not None and next_us > until_us:
                return
            self.before(next_us)
            self.now_us = next_us
            while self._agenda and self._agenda[0][0] <= next_us:
                self._take_in(heappop(self._agenda)[2])
            wakeup_us = self.former.wakeup_at_us()
            if wakeup_us is not None and wakeup_us <= next_us:
                self._tick()
                self.after_tick()

    def before(self, next_us: int) -> None:
        """Nothing happens until ``next_us``: what a test has to say about that."""

    def after_tick(self) -> None:
        """What a test has to say about what is queued now."""

    def run_us(self, request: Request, rows: int) -> int:
        """True run time of ``rows`` of the request's version, which is a line."""
        known = self._versions[request.model].run_us
        first, last = min(known), max(known)
        slope = (known[last] - known[first]) // max(last - first, 1)
        return known[first] + slope * (rows - first)

    def may_run(self, request: Request, slot: int) -> bool:
        return slot in self._versions[request.model].ready_slots

    def idle(self) -> list[int]:
        return [slot for slot, held in self._held.items() if not held]

    def _next_us(self) -> int | None:
        instants = [self._agenda[0][0]] if self._agenda else []
        wakeup_us = self.former.wakeup_at_us()
        if wakeup_us is not None:
            instants.append(max(wakeup_us, self.now_us))
        return min(instants, default=None)

    def _at(self, at_us: int, what: Request | Sent) -> None:
        heappush(self._agenda, (at_us, next(self._order), what))

    def _take_in(self, what: Request | Sent) -> None:
        if isinstance(what, Request):
            self.queued[what.key] = what
            self.former.handle(Arrived(what), self.now_us)
            return
        slot = what.dispatch.slot
        self._held[slot].remove(what.dispatch)
        ended = BatchEnded(what.dispatch.batch, slot, what.run_us)
        self.former.handle(ended, self.now_us)
        self._tell(slot)

    def _tell(self, slot: int) -> None:
        held = tuple(dispatch.batch for dispatch in self._held[slot])
        changed = SlotChanged(slot, CREDITS - len(held), held)
        self.former.handle(changed, self.now_us)

    def _tick(self) -> None:
        decisions = self.former.handle(Ticked(), self.now_us)
        for decision in decisions:
            if isinstance(decision, Refuse):
                del self.queued[decision.request.key]
                self.refused.append((self.now_us, decision))
        for decision in decisions:
            if isinstance(decision, Dispatch):
                self._send(decision)

    def _send(self, dispatch: Dispatch) -> None:
        slot, hop_us = dispatch.slot, self.settings.control_hop_us
        for request in dispatch.requests:
            del self.queued[request.key]
        rows = sum(request.rows for request in dispatch.requests)
        run_us = self.run_us(dispatch.requests[0], rows)
        busy_until_us = self._busy_until_us[slot]
        starts_us = max(self.now_us + hop_us, busy_until_us)
        sent = Sent(
            at_us=self.now_us,
            dispatch=dispatch,
            idle_since_us=None if self._held[slot] else busy_until_us + hop_us,
            starts_us=starts_us,
            run_us=run_us,
            left=tuple(self.queued.values()),
        )
        self.sent.append(sent)
        self._held[slot].append(dispatch)
        self._busy_until_us[slot] = starts_us + run_us
        self._at(starts_us + run_us + hop_us, sent)
        self._tell(slot)
