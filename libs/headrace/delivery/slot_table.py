"""What is known of the worker slots of a lane, asked without changing any of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.delivery.leases import lease_us
from headrace.delivery.ledger import Entry
from headrace.delivery.limits import LaneLimits
from headrace.delivery.roster import Roster
from headrace.delivery.slot import UNKNOWN, Flight, Slot
from headrace.domain import ServedVersion

__all__ = ["NEVER_US", "SlotTable"]

NEVER_US = 1 << 62


class SlotTable:
    """The slots by number, and who of them is heard."""

    def __init__(
        self,
        numbers: Iterable[int],
        *,
        limits: LaneLimits,
        roster: Roster[tuple[int, int]],
    ) -> None:
        self._slots = {number: Slot(number) for number in numbers}
        self._limits = limits
        self._roster = roster

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots.values())

    def __getitem__(self, number: int) -> Slot:
        return self._slots[number]

    def get(self, number: int) -> Slot | None:
        return self._slots.get(number)

    def have_reported(self) -> bool:
        """T9: whether every slot that is heard has said what it holds."""
        return all(
            slot.is_usable
            or slot.has_left
            or not self._roster.heard_within(
                (slot.number, UNKNOWN), self._limits.silent_us
            )
            for slot in self
        )

    @property
    def has_flying(self) -> bool:
        return any(
            entry.flies_in(flight.batch)
            for slot in self
            for flight in slot.held.values()
            for entry in flight.members
        )

    def holds(self, batch: str) -> Flight | None:
        for slot in self:
            if batch in slot.held:
                return slot.held[batch]
        return None

    def is_heard(self, slot: Slot) -> bool:
        key = (slot.number, slot.incarnation)
        return self._roster.heard_within(key, self._limits.silent_us)

    def credits_free(self, slot: Slot) -> int:
        if not slot.is_usable or slot.is_draining or not self.is_heard(slot):
            return 0
        if any(flight.is_suspect for flight in slot.held.values()):
            return 0  # whoever lay behind a killer would be suspected with it
        return max(0, self._limits.cap - len(slot.held))

    def could_run_elsewhere(
        self, entry: Entry, slot: Slot, served: ServedVersion | None
    ) -> bool:
        """Whether another slot that has its version could be sent the entry, and does
        not have it already."""
        able = served.ready_slots | served.unloading_slots if served else frozenset()
        return any(
            other is not slot
            and other.number in able
            and not other.has_left
            and not other.is_draining
            and self.is_heard(other)
            and other.flight_of(entry) is None
            for other in self
        )

    def ask_again_at_us(self, slot: Slot) -> int:
        if not slot.was_heard or slot.is_usable or slot.has_left or slot.must_ask:
            return NEVER_US
        return slot.asked_at_us + self._limits.ask_again_us

    def lease(self, slot: Slot) -> int:
        """The lease of the batch that lies last in the slot."""
        return lease_us((each.p99_us for each in slot.held.values()), self._limits)
