"""A batcher of the field, behind the same boundary as the product's core.

The queues, the slots and the loop are one object; what makes a system itself is its
rule (:mod:`headrace.simulation.rules`). Peers are treated well: they know the exact
run times, hand a batch over just before the running one ends, and bind late.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import NamedTuple, Protocol, assert_never

from headrace.domain import (
    Arrived,
    BatchEnded,
    Dispatch,
    Event,
    HopsMeasured,
    Reason,
    Refuse,
    ReleaseReason,
    Request,
    SchedulerDecision,
    SlotChanged,
    Ticked,
    VersionChanged,
    Withdrawn,
)

__all__ = ["Peer", "Rule", "Send", "Terms", "Wait"]


class Terms(NamedTuple):
    """What a rule knows of a queue besides its requests."""

    run_us: Callable[[int], int]
    rows_max: int
    start_us: int
    """When a batch that leaves now starts."""

    response_us: int
    slots: int

    def fits(self, request: Request, rows: int) -> bool:
        """Whether ``request`` makes its limit in a batch of ``rows``."""
        if request.deadline_us is None:
            return True
        ends_us = self.start_us + self.run_us(rows) + self.response_us
        return ends_us <= request.deadline_us


class Send(NamedTuple):
    """Drop the first ``dropped`` of the queue, and send the next ``rows`` rows."""

    rows: int
    dropped: int = 0


class Wait(NamedTuple):
    until_us: int


class Rule(Protocol):
    """When a queue's batch leaves, and with whom."""

    def place(self, request: Request, number: int) -> tuple[int, int]:
        """Sorts a queue; ``number`` counts arrivals."""
        ...

    def consider(
        self, queue: Sequence[Request], terms: Terms, now_us: int
    ) -> Send | Wait:
        """What to do with a queue, not empty, while a slot is free."""
        ...

    def ended(self, requests: Sequence[Request], run_us: int) -> None:
        """A batch ran."""
        ...


class _Slot:
    def __init__(self) -> None:
        self.credits = 0
        self.held: tuple[str, ...] = ()
        self.busy_until_us = 0


class _Queue:
    def __init__(self) -> None:
        self.places: list[tuple[tuple[int, int], Request]] = []

    @property
    def requests(self) -> list[Request]:
        return [request for _, request in self.places]


class Peer:
    """One scheduler with the rule of another system."""

    def __init__(self, rule: Rule, run_us: Mapping[str, Sequence[int]]) -> None:
        self._rule = rule
        self._run_us = run_us
        self._control_us = 0
        self._response_us = 0
        self._slots: dict[int, _Slot] = {}
        self._queues: dict[tuple[str, str], _Queue] = {}
        self._flying: dict[str, tuple[Request, ...]] = {}
        self._numbers = count()
        self._wakeup_us: int | None = None

    def handle(self, event: Event, now_us: int) -> list[SchedulerDecision]:
        match event:
            case Ticked():
                return self._decide(now_us)
            case Arrived(request=request):
                place = self._rule.place(request, next(self._numbers))
                queue = self._queues.setdefault(
                    (request.model, request.shape), _Queue()
                )
                insort(queue.places, (place, request), key=lambda each: each[0])
            case SlotChanged(slot=number, credits_free=credits_free, held=held):
                slot = self._slots.setdefault(number, _Slot())
                slot.credits, slot.held = credits_free, held
            case BatchEnded(batch=batch, run_us=run_us):
                requests = self._flying.pop(batch)
                if run_us is not None:
                    self._rule.ended(requests, run_us)
            case HopsMeasured(control_us=control_us, response_us=response_us):
                self._control_us, self._response_us = control_us, response_us
            case VersionChanged() | Withdrawn():
                pass
            case _:
                assert_never(event)
        self._wakeup_us = now_us
        return []

    def wakeup_at_us(self) -> int | None:
        return self._wakeup_us

    def _decide(self, now_us: int) -> list[SchedulerDecision]:
        decisions: list[SchedulerDecision] = []
        self._wakeup_us = None
        by_head = sorted(self._queues.items(), key=lambda each: each[1].places[0][0])
        for key, queue in by_head:
            number = self._free_slot(now_us)
            if number is None:
                break
            while queue.places and number is not None:
                if not self._serve(queue, number, now_us, decisions):
                    break
                number = self._free_slot(now_us)
            if not queue.places:
                del self._queues[key]
        return decisions

    def _free_slot(self, now_us: int) -> int | None:
        """The one that is free first; a busy one just before its run ends."""
        best: tuple[int, int] | None = None
        for number, slot in self._slots.items():
            if slot.credits <= 0:
                continue
            free_us = max(slot.busy_until_us, now_us) if slot.held else now_us
            if best is None or (free_us, number) < best:
                best = free_us, number
        if best is None or not self._queues:
            return None
        opens_us = best[0] - 2 * self._control_us
        if opens_us > now_us:
            self._wake(opens_us)
            return None
        return best[1]

    def _serve(
        self,
        queue: _Queue,
        number: int,
        now_us: int,
        decisions: list[SchedulerDecision],
    ) -> bool:
        slot = self._slots[number]
        requests = queue.requests
        run_us = self._run_us[requests[0].model]
        start_us = now_us + self._control_us
        if slot.held:
            start_us = max(start_us, slot.busy_until_us)
        terms = Terms(
            run_us=run_us.__getitem__,
            rows_max=len(run_us) - 1,
            start_us=start_us,
            response_us=self._response_us,
            slots=len(self._slots),
        )
        verdict = self._rule.consider(requests, terms, now_us)
        if isinstance(verdict, Wait):
            self._wake(verdict.until_us)
            return False
        decisions += [
            Refuse(request, Reason.SHED_WINDOW, "dropped by the rule")
            for request in requests[: verdict.dropped]
        ]
        members, rows = _first(requests[verdict.dropped :], verdict.rows)
        del queue.places[: verdict.dropped + len(members)]
        if members:
            slot.busy_until_us = start_us + run_us[rows]
            decisions.append(self._dispatch(members, number, rows, run_us[rows]))
        return True

    def _dispatch(
        self, members: tuple[Request, ...], number: int, rows: int, run_us: int
    ) -> Dispatch:
        batch = f"{number}-{next(self._numbers)}"
        slot = self._slots[number]
        slot.credits -= 1
        slot.held += (batch,)
        self._flying[batch] = members
        return Dispatch(
            batch=batch,
            slot=number,
            requests=members,
            padded_rows=rows,
            predicted_us=run_us,
            predicted_p99_us=2 * run_us,
            latest_start_us=None,
            reason=ReleaseReason.IDLE,
        )

    def _wake(self, at_us: int) -> None:
        if self._wakeup_us is None or at_us < self._wakeup_us:
            self._wakeup_us = at_us


def _first(requests: Sequence[Request], rows: int) -> tuple[tuple[Request, ...], int]:
    """As many of the first as have at most ``rows`` rows, at least one request."""
    taken = 0
    for place, request in enumerate(requests):
        if taken + request.rows > rows and place:
            return tuple(requests[:place]), taken
        taken += request.rows
    return tuple(requests), taken
