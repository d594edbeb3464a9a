"""The worker slots as the scheduler sees them: credits, speed, when each is free."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from enum import Enum, auto
from heapq import heappop, heappush
from math import log2

__all__ = ["Slot", "Slots"]

UNKNOWN_RUN_US = 10_000
"""Assumed of a batch that an earlier owner of the lane sent."""
PACE_MEMORY = 0.1
"""Weight of a run beside those before it, when there are many."""
PACE_EQUAL = 0.15
"""A smaller difference in speed is taken for noise."""
PACE_STEPS_PER_OCTAVE = 4
"""Slots within a fifth of each other's speed count as equally fast."""

HELD_USUALLY = 2
"""Batches in a worker's hands, one that runs and one that is ready; more where runs
are over sooner than word of their end comes back."""

_Rank = tuple[int, int]


class _Openness(Enum):
    IDLE = auto()
    AHEAD = auto()
    DEEP = auto()


_USUAL = (_Openness.IDLE, _Openness.AHEAD)


class Slot:
    """One worker slot. ``batches`` maps what it holds to the expected run time, in
    the order in which it will run."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.credits_free = 0
        self.batches: dict[str, int] = {}
        self.started_us = 0
        """When the first of ``batches`` started, as far as we can tell."""

        self.is_filled = False
        """Whether it gets what it has room for: from half of it on until all of it, so
        that several batches go, and come back, together."""

        self.pace = 1.0
        """Its run times over those of the slots' mean; 1 within :data:`PACE_EQUAL`."""

        self.ratio = 1.0
        """Its recent run times over the expected ones."""

        self.runs = 0
        self.sent_last: tuple[str, str] | None = None
        """The version of the last batch that was sent to it, of ours."""

    @property
    def usable(self) -> bool:
        return self.credits_free > 0 or bool(self.batches)

    @property
    def rank(self) -> _Rank:
        """Fast slots first, then low numbers, so that high ones can drain."""
        return round(PACE_STEPS_PER_OCTAVE * log2(self.pace)), self.number

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

    A slot with nothing to run may be sent to at once; the credit ahead is used
    ``ahead_us`` before the running batch's expected end, so that the next batch forms
    as late as possible and still lies in the worker's memory when the run ends. Where
    all that it holds ends within ``ahead_us``, more may lie behind it (``deep``).
    """

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self._ratios = 0.0
        self._open: dict[_Openness, list[tuple[_Rank, int]]] = {
            each: [] for each in _Openness
        }
        self._place: dict[int, tuple[_Openness, _Rank]] = {}
        self._opening: list[tuple[int, int]] = []

    def get(self, number: int) -> Slot:
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = Slot(number)
            self._ratios += slot.ratio
        return slot

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots.values())

    def changed(self, slot: Slot, *, now_us: int, ahead_us: int) -> None:
        """Find out anew when ``slot`` may be sent to."""
        place = self._place.pop(slot.number, None)
        if place is not None:
            openness, rank = place
            found = self._open[openness]
            del found[bisect_left(found, (rank, slot.number))]
        slot.is_filled &= slot.credits_free > 0
        if slot.credits_free <= 0:
            return
        if not slot.batches:
            self._put(slot, _Openness.IDLE)
        elif len(slot.batches) < HELD_USUALLY:
            opens_at_us = slot.running_until_us() - ahead_us
            if opens_at_us <= now_us:
                self._put(slot, _Openness.AHEAD)
            else:
                heappush(self._opening, (opens_at_us, slot.number))
        elif slot.free_at_us(now_us) - now_us <= ahead_us and (
            slot.is_filled or slot.credits_free >= len(slot.batches)
        ):
            # No timer for the others: the end of a run changes them.
            slot.is_filled = True
            self._put(slot, _Openness.DEEP)

    def advance(self, now_us: int, *, ahead_us: int) -> bool:
        """Open what is due; whether any slot may be sent to."""
        while self._opening and self._opening[0][0] <= now_us:
            _, number = heappop(self._opening)
            self.changed(self._slots[number], now_us=now_us, ahead_us=ahead_us)
        return self.is_any_open

    @property
    def is_any_open(self) -> bool:
        """Whether some slot could be sent to when last looked at."""
        return bool(self._open[_Openness.IDLE] or self._open[_Openness.AHEAD])

    @property
    def last_sent_to_sole(self) -> tuple[str, str] | None:
        """What the only open slot was sent last. Of several, each version may have
        its own."""
        if sum(len(self._open[each]) for each in _USUAL) != 1:
            return None
        return next(self.open()).sent_last

    def open(self) -> Iterator[Slot]:
        """Slots that may be sent to: idle ones first, each kind by rank."""
        for openness in _USUAL:
            for _, number in self._open[openness]:
                yield self._slots[number]

    def deep(self) -> Iterator[Slot]:
        """Slots that hold as much as is usual and will be through with it sooner than
        word of it comes back."""
        for _, number in self._open[_Openness.DEEP]:
            yield self._slots[number]

    def are_alike(self, one: Slot, other: Slot) -> bool:
        """Whether both may be sent to, and neither is to be preferred for being idle
        or faster."""
        place, like = self._place.get(one.number), self._place.get(other.number)
        if place is None or like is None:
            return False
        return place[0] == like[0] and place[1][0] == like[1][0]

    def next_opening_us(self) -> int | None:
        """A bound below which no further slot opens by itself."""
        return self._opening[0][0] if self._opening else None

    def observe_pace(self, slot: Slot, ratio: float) -> None:
        """A run of ``slot`` took ``ratio`` times what was expected of the mean."""
        before = slot.ratio
        slot.runs += 1
        weight = max(1 / (slot.runs + 1), PACE_MEMORY)
        # A slot's first run may take many times as long as all others.
        bounded = min(max(ratio, before / 2, 0.1), before * 2, 10.0)
        slot.ratio += (bounded - before) * weight
        self._ratios += slot.ratio - before
        pace = slot.ratio * len(self._slots) / self._ratios
        slot.pace = pace if abs(pace - 1.0) > PACE_EQUAL else 1.0

    def _put(self, slot: Slot, openness: _Openness) -> None:
        rank = slot.rank
        insort(self._open[openness], (rank, slot.number))
        self._place[slot.number] = openness, rank
