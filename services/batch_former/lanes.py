"""The lanes that this process owns, and what is read for which of them."""

from __future__ import annotations

import sys
from typing import NamedTuple

from headrace.delivery import Lane
from headrace.scheduling import BatchFormer
from services.batch_former.messages import EndsFound

__all__ = ["NEVER", "Lanes", "OwnedLane", "Route"]

NEVER = sys.maxsize
"""A change that no reader comes to."""


class OwnedLane:
    """One ownership of a lane. ``term`` tells its answers from those to an earlier
    ownership of the same lane."""

    def __init__(
        self,
        lane: int,
        term: int,
        core: Lane,
        scheduler: BatchFormer,
        *,
        taken_us: int,
    ) -> None:
        self.lane = lane
        self.taken_us = taken_us
        self.term = term
        self.core = core
        self.scheduler = scheduler
        self.claim = -1
        """Offset of our claim, once it is written."""
        self.completions_change = 0
        """Completions read before this change of their reader are not ours."""
        self.completions_at = 0
        """Where the next completion will be read."""
        self.is_catching_up = False
        """D5: time passes for the lane only when it has read up to ``ends``."""
        self.ends: EndsFound | None = None


class Route(NamedTuple):
    """Whose records a partition's are, from a change of its reader on."""

    owned: OwnedLane
    change: int
    takes_one: bool = False
    """The first of them alone; others are not of this lane any more."""

    is_read_twice: bool = False
    """By two readers for a while: only what is not taken yet is new."""

    def without_more(self) -> Route:
        return self._replace(change=NEVER)


class Lanes:
    """By lane number and by request partition."""

    def __init__(self) -> None:
        self.owned: dict[int, OwnedLane] = {}
        self.routes: dict[tuple[str, int], Route] = {}

    def of(self, lane: int, term: int) -> OwnedLane | None:
        """The lane, if it is still the ownership that ``term`` names."""
        owned = self.owned.get(lane)
        return owned if owned is not None and owned.term == term else None

    def routes_of(self, owned: OwnedLane) -> list[tuple[str, int]]:
        """The request partitions that are read for the lane."""
        return [key for key, route in self.routes.items() if route.owned is owned]
