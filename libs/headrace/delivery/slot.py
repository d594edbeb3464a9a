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
