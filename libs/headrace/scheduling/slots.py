"""The worker slots as the scheduler sees them: credits, and when each is free."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heappop, heappush

__all__ = ["Slot", "Slots"]

UNKNOWN_RUN_US = 10_000
"""Assumed of a batch that an earlier owner of the lane sent."""


class Slot:
    """One worker slot. ``batches`` maps what it holds to the expected run time, in
    the order in which it will run."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.credits_free = 0
        self.batches: dict[str, int] = {}
        self.started_us = 0
        """When the first of ``batches`` started, as far as we can tell."""

    @property
    def usable(self) -> bool:
        return self.credits_free > 0 or bool(self.batches)

    def running_until_us(self) -> int:
        """Expected end of the running batch."""
        for run_us in self.batches.values():
            return self.started_us + run_us
        return 0

    def free_at_us(self, now_us: int) -> int:
        """Expected end of everything that it holds."""
        if not self.batches:
            return now_us
        first, *later = self.batches.values()
        return max(self.started_us + first, now_us) + sum(later)


class Slots:
    """All slots of the lane, and which of them may be sent to at an instant.

    A slot with nothing to run may be sent to at once; the credit ahead is used two
    control hops before the running batch's expected end, so that the next batch forms
    as late as possible and still lies in the worker's memory when the run ends.
    """

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self._open: list[int] = []
        self._opening: list[tuple[int, int]] = []

    def get(self, number: int) -> Slot:
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = Slot(number)
        return slot

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots.values())

    def changed(self, slot: Slot, *, now_us: int, ahead_us: int) -> None:
        """Find out anew when ``slot`` may be sent to."""
        place = bisect_left(self._open, slot.number)
        is_open = place < len(self._open) and self._open[place] == slot.number
        opens_at = self._opens_at_us(slot, now_us, ahead_us)
        if opens_at is not None and opens_at <= now_us:
            if not is_open:
                insort(self._open, slot.number)
            return
        if is_open:
            del self._open[place]
        if opens_at is not None:
            heappush(self._opening, (opens_at, slot.number))

    def open_at(self, now_us: int, *, ahead_us: int) -> list[Slot]:
        """Slots that may be sent to now: idle ones first, then by number."""
        while self._opening and self._opening[0][0] <= now_us:
            _, number = heappop(self._opening)
            self.changed(self._slots[number], now_us=now_us, ahead_us=ahead_us)
        slots = [self._slots[number] for number in self._open]
        slots.sort(key=lambda slot: bool(slot.batches))
        return slots

    def next_opening_us(self) -> int | None:
        """A bound below which no further slot opens by itself."""
        return self._opening[0][0] if self._opening else None

    @staticmethod
    def _opens_at_us(slot: Slot, now_us: int, ahead_us: int) -> int | None:
        if slot.credits_free <= 0:
            return None
        if not slot.batches:
            return now_us
        return slot.running_until_us() - ahead_us
