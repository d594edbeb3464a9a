"""By which way a lane's orders go to a slot: through its topic, or by a link, a stream
to a worker on the former's own machine.

A link keeps the order of what goes by it, as the topic does, but nothing orders the
two. So there is one way at a time. A link is taken at a report from behind all that
went through the topic, and left for good when it ends: the next sync goes through the
topic, and tells the worker that nothing more of the link counts.
"""

from __future__ import annotations

from headrace.delivery.decisions import OpenLink
from headrace.delivery.outbox import Outbox
from headrace.delivery.slot import Slot

__all__ = ["Links"]


class Link:
    """A stream to one process of a slot."""

    __slots__ = ("incarnation", "is_open", "k", "number")

    def __init__(self, number: int, incarnation: int) -> None:
        self.number = number
        self.incarnation = incarnation
        self.k = 0
        """The last sync that may have gone through the topic before."""
        self.is_open = False
        """The link's first order, which says so, is written."""


class Links:
    """Those that the shell has found, by slot; for all ownerships of a lane."""

    def __init__(self, out: Outbox) -> None:
        self._out = out
        self._found: dict[int, Link] = {}
        self._used: dict[int, Link] = {}

    def found(self, slot: int, incarnation: int, link: int) -> None:
        self._found[slot] = Link(link, incarnation)

    def lost(self, slot: int, link: int) -> bool:
        """Whether orders went by it."""
        found, used = self._found.get(slot), self._used.get(slot)
        if found is not None and found.number == link:
            del self._found[slot]
        if used is None or used.number != link:
            return False
        del self._used[slot]
        return True

    def waits_for(self, slot: Slot) -> bool:
        """Whether a link to the slot's process could be used after a report."""
        link = self._found.get(slot.number)
        return link is not None and link.incarnation == slot.incarnation

    def reported(self, slot: Slot) -> None:
        """The slot's process has read all that was sent to it, so that what follows
        may go by a link."""
        if self.waits_for(slot):
            link = self._used[slot.number] = self._found.pop(slot.number)
            link.k = slot.k

    def replaced(self, slot: Slot) -> None:
        """The slot has a new process, whose incarnation it carries already."""
        link = self._used.get(slot.number)
        if link is not None and link.incarnation != slot.incarnation:
            del self._used[slot.number]

    def way(self, lane: int, slot: int, epoch: int) -> int | None:
        """The link by which the next order goes; None: through the topic."""
        link = self._used.get(slot)
        if link is None:
            return None
        if not link.is_open:
            link.is_open = True
            self._out.put(
                OpenLink(link.number, lane, slot, epoch, link.incarnation, link.k)
            )
        return link.number
