"""A scheduling policy for tests: first come, first served, as many as fit."""

from collections.abc import Iterator

import msgspec

from headrace.domain import (
    Arrived,
    Dispatch,
    Event,
    Reason,
    Refuse,
    ReleaseReason,
    Request,
    Scheduler,
    SchedulerDecision,
    ServedVersion,
    SlotChanged,
    Ticked,
    VersionChanged,
    Withdrawn,
)

__all__ = ["FifoScheduler", "Watched"]


class FifoScheduler:
    """Decides on ticks alone, as the product's policy does. A group keeps to
    itself; a slot to avoid is avoided where another is free."""

    def __init__(
        self, batch_ids: Iterator[str], *, batch_max: int = 4, p99_us: int = 20_000
    ) -> None:
        self._batch_ids = batch_ids
        self._batch_max = batch_max
        self._p99_us = p99_us
        self.queue: dict[str, Request] = {}
        self.slots: dict[int, SlotChanged] = {}
        self.events: list[Event] = []
        self.refusals: list[Refuse] = []
        """What it says next, whatever for."""
        self.is_holding = False
        """Whether it sends nothing."""

        self._served: dict[tuple[str, str], ServedVersion] = {}

    def handle(self, event: Event, now_us: int) -> list[SchedulerDecision]:
        match event:
            case Arrived(request=request):
                self.queue[request.key] = request
            case Withdrawn(key=key):
                self.queue.pop(key, None)
            case SlotChanged(slot=slot):
                self.slots[slot] = event
            case VersionChanged(served=served):
                self._served[served.model, served.version] = served
            case Ticked():
                return self._decide(now_us)
            case _:
                self.events.append(event)
        return []

    def wakeup_at_us(self) -> int | None:
        if self.refusals:
            return 0
        if self.is_holding:
            return None
        has_credit = any(level.credits_free for level in self.slots.values())
        if has_credit and any(self._slot_for(each) for each in self.queue.values()):
            return 0
        deadlines = [r.deadline_us for r in self.queue.values() if r.deadline_us]
        return min(deadlines, default=None)

    def _decide(self, now_us: int) -> list[SchedulerDecision]:
        decided: list[SchedulerDecision] = [*self.refusals]
        self.refusals.clear()
        for request in list(self.queue.values()):
            deadline_us = request.deadline_us
            if deadline_us is not None and deadline_us <= now_us:
                del self.queue[request.key]
                text = "its deadline passed in the queue"
                decided.append(Refuse(request, Reason.EXPIRED, text))
        while not self.is_holding and (dispatch := self._next()) is not None:
            decided.append(dispatch)
        return decided

    def _next(self) -> Dispatch | None:
        for head in sorted(self.queue.values(), key=lambda r: r.priority):
            level = self._slot_for(head)
            if level is None:
                continue
            members = self._companions(head)
            for member in members:
                del self.queue[member.key]
            self.slots[level.slot] = msgspec.structs.replace(
                level, credits_free=level.credits_free - 1
            )
            return Dispatch(
                batch=next(self._batch_ids),
                slot=level.slot,
                requests=tuple(members),
                padded_rows=len(members),
                predicted_us=self._p99_us // 2,
                predicted_p99_us=self._p99_us,
                latest_start_us=head.deadline_us,
                reason=ReleaseReason.IDLE,
            )
        return None

    def _companions(self, head: Request) -> list[Request]:
        group = (head.model, head.version, head.shape, head.group)
        same = [
            request
            for request in self.queue.values()
            if (request.model, request.version, request.shape, request.group) == group
        ]
        return same[: self._batch_max]

    def _slot_for(self, request: Request) -> SlotChanged | None:
        served = self._served.get((request.model, request.version))
        if served is None:
            return None
        able = served.ready_slots | served.unloading_slots
        free = [
            level
            for level in self.slots.values()
            if level.slot in able and level.credits_free > 0
        ]
        return min(
            free,
            key=lambda level: (
                level.slot == request.avoid,
                len(level.held),
                level.slot,
            ),
            default=None,
        )


class Watched:
    """A policy, and what it was told last of each slot."""

    def __init__(self, policy: Scheduler) -> None:
        self._policy = policy
        self.slots: dict[int, SlotChanged] = {}

    def handle(self, event: Event, now_us: int) -> list[SchedulerDecision]:
        if isinstance(event, SlotChanged):
            self.slots[event.slot] = event
        return self._policy.handle(event, now_us)

    def wakeup_at_us(self) -> int | None:
        return self._policy.wakeup_at_us()
