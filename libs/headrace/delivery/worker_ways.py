"""By which ways orders come to a worker process, and which of them count.

They come through the slot's partition, and by links from formers on this machine. A
link counts from its opening until its former writes to the partition again: what lies
in it then, the former believes to be gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.delivery.worker_events import BatchRead, LinkOpened, SyncRead

__all__ = ["Ways"]


class Link(NamedTuple):
    """``epoch`` and ``k`` of the last sync that its former may have written to the
    partition before it opened the link."""

    former: str
    epoch: int
    k: int

    def follows(self, order: BatchRead | SyncRead) -> bool:
        """Whether ``order``, of its former, was written before it was opened."""
        if isinstance(order, SyncRead):
            return (order.epoch, order.k) <= (self.epoch, self.k)
        return order.epoch < self.epoch


class Asked(NamedTuple):
    """The newest sync of the partition."""

    epoch: int
    k: int
    former: str


class Ways:
    """Numbers of links are the shell's."""

    def __init__(self) -> None:
        self.position: int | None = None
        """Where the partition's next order will be read; None before it is known."""
        self._links: dict[int, Link] = {}
        self._asked = Asked(-1, 0, "")

    def opened(
        self, event: LinkOpened, lane: int, incarnation: int | None
    ) -> list[int]:
        """The links that end by this: the former's earlier one, or this one itself if
        it is meant for another process than that of ``lane`` and ``incarnation``, or
        if a sync from behind it was read before it."""
        former, asked = event.former, self._asked
        is_over = former == asked.former and (event.epoch, event.k) < asked[:2]
        if is_over or (event.lane, event.incarnation) != (lane, incarnation):
            return [event.link]
        ended = [each for each, link in self._links.items() if link.former == former]
        self._forget(ended)
        self._links[event.link] = Link(former, event.epoch, event.k)
        return ended

    def lost(self, link: int) -> None:
        self._links.pop(link, None)

    def takes(self, order: BatchRead | SyncRead) -> bool:
        """False: read twice, or of a link that does not count."""
        if order.link is not None:
            link = self._links.get(order.link)
            return link is not None and link.former == order.former
        if self.position is None or order.offset < self.position:
            return False
        self.position = order.offset + 1
        return True

    def ended_by(self, order: BatchRead | SyncRead) -> list[int]:
        """The links that end since their former writes to the partition again."""
        if order.link is not None:
            return []
        if isinstance(order, SyncRead):
            asked = Asked(order.epoch, order.k, order.former)
            self._asked = max(self._asked, asked)
        ended = [
            each
            for each, link in self._links.items()
            if link.former == order.former and not link.follows(order)
        ]
        self._forget(ended)
        return ended

    def _forget(self, links: Iterable[int]) -> None:
        for link in links:
            del self._links[link]
