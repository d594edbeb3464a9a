"""One worker slot of a lane and the batches that it holds."""

from __future__ import annotations

from headrace.delivery.ledger import Entry
from headrace.domain import SlotChanged

__all__ = ["UNKNOWN", "Flight", "Slot", "has_crashed"]

DONE_KEPT = 64
"""Batches of a process whose done is read, remembered for reports that were written
while the worker did not know yet that its done had landed."""

UNKNOWN = -1
"""The incarnation of a slot of which nothing is read; offsets are larger."""


class Flight:
    """A batch that a slot holds, as far as we know."""

    __slots__ = (
        "batch",
        "is_lapsed",
        "is_lost",
        "is_told",
        "lease_at_us",
        "members",
        "p99_us",
        "write",
    )

    @property
    def is_suspect(self) -> bool:
        """Whether it runs alone since its worker may be lost by it."""
        return len(self.members) == 1 and self.members[0].suspect

    def __init__(
        self, batch: str, members: list[Entry], p99_us: int, write: int = 0
    ) -> None:
        """``write`` 0: of another former."""
        self.batch = batch
        self.write = write
        self.members = members
        self.p99_us = p99_us
        self.lease_at_us = 0
        self.is_lapsed = False
        self.is_told = False
        """An operator knows that its lease lapsed."""

        self.is_lost = False
        """Its worker was lost with it, and its members have been told."""


class Slot:
    """One slot: ASKED(k) or, when ``is_usable``, USABLE."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.incarnation = UNKNOWN
        self.is_usable = False
        self.must_ask = False
        """The sync ``k`` is still to be written."""

        self.k = 0
        self.k_counts = 0
        """The first sync since the last batch: whoever answers it, or a later one, has
        read every batch that was sent."""

        self.sync: int | None = None
        """The write of the newest sync, if it went through the topic."""

        self.asked_at_us = 0
        self.held: dict[str, Flight] = {}
        self.done: dict[str, None] = {}
        self.is_draining = False
        self.has_left = False
        """No process is there, by its own word or since it serves another lane."""

        self.was_heard = False
        self.told = SlotChanged(number, 0, ())
        """What the scheduler was told last."""

    def ask(self, now_us: int) -> None:
        """ASKED: nothing is sent to the slot until it has answered a sync from behind
        all that was. Asked again, an answer to any of them counts: where each takes
        longer than our patience, the answer to the newest would always be late."""
        self.asked_at_us = now_us
        if not self.must_ask:
            self.k += 1
            self.must_ask = not self.has_left
        if self.is_usable:
            self.is_usable = False
            self.k_counts = self.k

    def flight_of(self, entry: Entry) -> Flight | None:
        """The batch in which the process has the entry, whatever became of that."""
        for flight in self.held.values():
            if any(member is entry for member in flight.members):
                return flight
        return None

    def remember_done(self, batch: str) -> None:
        self.done[batch] = None
        if len(self.done) > DONE_KEPT:
            del self.done[next(iter(self.done))]


def has_crashed(previous_exit: str) -> bool:
    """Whether a process ended by a signal that nobody sent it."""
    return previous_exit.startswith("signal:") and previous_exit.upper() not in {
        "SIGNAL:KILL",
        "SIGNAL:TERM",
        "SIGNAL:SIGKILL",
        "SIGNAL:SIGTERM",
    }
