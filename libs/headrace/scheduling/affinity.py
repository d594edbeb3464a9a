"""Which of several equal worker slots a version is sent to: where it ran last.

Its weights lie in that device's caches, and in its memory where not all versions have
room. The preference chooses among slots that could be sent to at this instant and are
equally fast, never for one that would have to be waited for: so no slot can get more
than it has credits for, however much is asked of one version.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from headrace.scheduling.line import Line
from headrace.scheduling.slots import Slot, Slots

__all__ = ["Affinity"]

HOMES_MAX = 4
"""Slots that are remembered of a version, those where it ran last."""
SEEN_MAX = 8
"""Slots that are looked at for one that nobody needs."""


class Affinity:
    """Where each version of a lane ran last. A version none of whose slots is open
    takes the first one that is not where another version ran last, if there is one."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._homes: dict[tuple[str, str], deque[int]] = {}

    def sent(self, line: Line, slot: Slot) -> None:
        slot.sent_last = line.version
        homes = self._homes.setdefault(line.version, deque(maxlen=HOMES_MAX))
        if slot.number in homes:
            homes.remove(slot.number)
        homes.appendleft(slot.number)

    def forget(self, version: tuple[str, str]) -> None:
        """The version is gone."""
        self._homes.pop(version, None)

    def nearest(self, line: Line, first: Slot, avoid: int | None) -> Slot:
        """The best of the open slots that are like ``first`` and have the version."""
        if first.sent_last in {line.version, None}:
            return first
        for number in self._homes.get(line.version, ()):
            slot = self._slots.get(number)
            if (
                slot.sent_last == line.version
                and number in line.slots
                and number != avoid
                and self._slots.are_alike(slot, first)
            ):
                return slot
        for slot in islice(self._slots.open(), SEEN_MAX):
            if (
                not self._is_home(slot)
                and slot.number in line.slots
                and slot.number != avoid
                and self._slots.are_alike(slot, first)
            ):
                return slot
        return first

    def _is_home(self, slot: Slot) -> bool:
        """Whether it is where its last version ran last."""
        if slot.sent_last is None:
            return False
        homes = self._homes.get(slot.sent_last)
        return homes is not None and homes[0] == slot.number
