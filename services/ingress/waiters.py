"""Requests between the log and their answer, and the instants at which they end.

Pure: the first reply for a waiting id and tenant wins, everything later or unknown
is counted (D7). Deadlines lie in one wheel, so that a request costs two dictionary
entries and no timer.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, Protocol, TypeVar

__all__ = ["DeadlineWheel", "Unclaimed", "Waiter", "Waiters"]

TICK_BITS = 13
"""A spoke of the wheel is 2^13 µs: nothing ends more than 8.2 ms late by it."""


class Timed(Protocol):
    """What the wheel holds; ``spoke`` belongs to the wheel, 0 outside of it."""

    spoke: int


class Waiter(Timed, Protocol):
    """What waits for a reply."""

    request_id: str
    tenant: str


TimedT = TypeVar("TimedT", bound=Timed)
WaiterT = TypeVar("WaiterT", bound=Waiter)


class DeadlineWheel(Generic[TimedT]):
    """Items by the instant at which they are due; each has at most one instant."""

    def __init__(self) -> None:
        self._spokes: dict[int, dict[TimedT, None]] = {}
        self._turned_to = 0

    def put(self, item: TimedT, at_us: int) -> None:
        """Make ``item`` due at ``at_us``, and no longer at any other instant."""
        if item.spoke:
            self.drop(item)
        spoke = (at_us >> TICK_BITS) + 1
        if spoke <= self._turned_to:
            # An instant that has passed waits for the next turn, not for ever.
            spoke = self._turned_to + 1
        item.spoke = spoke
        items = self._spokes.get(spoke)
        if items is None:
            self._spokes[spoke] = {item: None}
        else:
            items[item] = None

    def drop(self, item: TimedT) -> None:
        """Forget ``item``; one that is not in the wheel is fine."""
        spoke = item.spoke
        if spoke:
            item.spoke = 0
            items = self._spokes[spoke]
            del items[item]
            if not items:
                del self._spokes[spoke]

    def due(self, now_us: int) -> list[TimedT]:
        """Take out everything whose instant is not after ``now_us``, oldest first."""
        turned_to = now_us >> TICK_BITS
        if turned_to <= self._turned_to:
            return []
        if turned_to - self._turned_to < len(self._spokes):
            passed = [
                spoke
                for spoke in range(self._turned_to + 1, turned_to + 1)
                if spoke in self._spokes
            ]
        else:
            passed = sorted(spoke for spoke in self._spokes if spoke <= turned_to)
        self._turned_to = turned_to
        items = [item for spoke in passed for item in self._spokes.pop(spoke)]
        for item in items:
            item.spoke = 0
        return items


class Unclaimed(StrEnum):
    """Why a reply answers nobody."""

    DUPLICATE = "duplicate"
    """It came after the one that answered."""
    LATE = "late"
    """Its request had been answered without a reply."""
    CANCELLED = "cancelled"
    """Its client had gone."""
    UNKNOWN = "unknown"


REMEMBERED = 16_384
"""Ended ids that are told apart from unknown ones: at least so many, at most twice."""


class Waiters(Generic[WaiterT]):
    """The waiting requests by id."""

    def __init__(self) -> None:
        self.by_id: dict[str, WaiterT] = {}
        """Those that wait: to be read, not to be changed."""
        self._ended: dict[str, Unclaimed] = {}
        self._ended_before: dict[str, Unclaimed] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def has(self, waiter: WaiterT) -> bool:
        """Whether it waits."""
        return self.by_id.get(waiter.request_id) is waiter

    def add(self, waiter: WaiterT) -> None:
        """Register before the request is produced: its reply may be faster."""
        assert waiter.request_id not in self.by_id
        self.by_id[waiter.request_id] = waiter

    def peek(self, request_id: str, tenant: str) -> WaiterT | None:
        """The waiter that this reply would end."""
        waiter = self.by_id.get(request_id)
        return waiter if waiter is not None and waiter.tenant == tenant else None

    def claim(self, request_id: str, tenant: str) -> WaiterT | Unclaimed:
        """The waiter that this reply ends."""
        waiter = self.by_id.get(request_id)
        if waiter is None:
            return self._ended.get(request_id) or self._ended_before.get(
                request_id, Unclaimed.UNKNOWN
            )
        if waiter.tenant != tenant:
            return Unclaimed.UNKNOWN
        del self.by_id[request_id]
        self._remember(request_id, Unclaimed.DUPLICATE)
        return waiter

    def give_up(self, waiter: WaiterT, why: Unclaimed = Unclaimed.LATE) -> bool:
        """Stop waiting; whether it was waiting. ``why``: what a later reply is."""
        if self.by_id.pop(waiter.request_id, None) is None:
            return False
        self._remember(waiter.request_id, why)
        return True

    def _remember(self, request_id: str, as_what: Unclaimed) -> None:
        self._ended[request_id] = as_what
        if len(self._ended) >= REMEMBERED:
            self._ended_before = self._ended
            self._ended = {}
