"""Links to the workers of this machine, and which lane each is for."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from headrace.clock import Clock
from headrace.delivery.decisions import OpenLink
from headrace.delivery.events import LinkFound, LinkLost
from headrace.links import LinkFolder, LinkSender
from headrace.telemetry import FormerMetrics, get_log
from headrace.wire import Opening, encode_opening
from services.batch_former.inbox import Channel, Inbox
from services.batch_former.lanes import Lanes, OwnedLane
from services.batch_former.messages import LinkEnded, Message

__all__ = ["Linking"]


class _Link(NamedTuple):
    lane: int
    term: int
    slot: int


class Linking:
    """Nothing where ``folder`` is None: every order goes through the log."""

    def __init__(
        self,
        folder: Path | None,
        former: str,
        inbox: Inbox[Message],
        clock: Clock,
        metrics: FormerMetrics,
    ) -> None:
        """Raises :class:`headrace.errors.SetupError` for a folder that is not safe."""
        self._former = former
        self._inbox = inbox
        self._metrics = metrics
        self._sender = None
        if folder is not None:
            self._sender = LinkSender(LinkFolder(folder), self._tell, clock)
        self._links: dict[int, _Link] = {}
        self._tried: dict[tuple[int, int], int] = {}
        """By term and slot the newest incarnation."""
        self._log = get_log()

    def start(self) -> None:
        if self._sender is not None:
            self._sender.start()

    def stop(self) -> None:
        if self._sender is not None:
            self._sender.stop()

    def heard(
        self, owned: OwnedLane, slot: int, incarnation: int, instance: str
    ) -> LinkFound | None:
        """A worker of the lane lives: connect to it, once."""
        if self._sender is None:
            return None
        place = owned.term, slot
        if self._tried.get(place, -1) >= incarnation:
            return None
        self._tried[place] = incarnation
        link = self._sender.connect(instance)
        if link is None:
            return None
        self._links[link] = _Link(owned.lane, owned.term, slot)
        self._show()
        self._log.info("link.found", lane=owned.lane, slot=slot, link=link)
        return LinkFound(slot, incarnation, link)

    def open(self, decision: OpenLink) -> None:
        opening = Opening(
            decision.lane,
            decision.epoch,
            self._former,
            decision.k,
            decision.incarnation,
        )
        self.send(decision.link, encode_opening(opening))
        self._log.info("link.opened", lane=decision.lane, slot=decision.slot)

    def send(self, link: int, order: bytes) -> None:
        assert self._sender is not None
        self._sender.send(link, order)

    def lost(self, link: int, lanes: Lanes) -> tuple[OwnedLane, LinkLost] | None:
        """Whom it concerns, if anybody still."""
        known = self._links.pop(link, None)
        if known is None:
            return None
        self._show()
        self._log.warning("link.lost", lane=known.lane, slot=known.slot, link=link)
        owned = lanes.of(known.lane, known.term)
        return None if owned is None else (owned, LinkLost(known.slot, link))

    def drop(self, owned: OwnedLane) -> None:
        """The lane is out."""
        if self._sender is None:
            return
        for link, known in list(self._links.items()):
            if known.term == owned.term:
                del self._links[link]
                self._sender.end(link)
        for place in [each for each in self._tried if each[0] == owned.term]:
            del self._tried[place]
        self._show()

    def _tell(self, link: int) -> None:
        self._inbox.put(Channel.WRITES, LinkEnded(link))

    def _show(self) -> None:
        self._metrics.links.set(len(self._links))
