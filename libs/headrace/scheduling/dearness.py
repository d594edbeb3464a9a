"""Which versions leave room for cheaper ones on the same workers."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from headrace.scheduling.fairness import Used

__all__ = ["Asked", "dear"]

Version = tuple[str, str]

DEAR_RATIO = 2.0
"""A row takes more than so many times the device time of a cheaper version's."""

LEAST_PART = 0.1
"""Of the device time of late: a version with less than this is not dear, so that it
does not starve beside others that take all there is."""


class Asked(NamedTuple):
    """A version that online requests asked for lately."""

    version: Version
    row_us: float
    slots: frozenset[int]


def dear(asked: Iterable[Asked], used: Used[Version]) -> set[Version]:
    """Of versions whose time limit holds few of their batches an ingress lets in more
    than can be served, since a former needs some to choose from. Where a cheaper one
    shares their workers, that would keep out many of its requests for each of theirs.
    """
    cheapest: dict[frozenset[int], float] = {}
    asked = list(asked)
    for each in asked:
        cheapest[each.slots] = min(each.row_us, cheapest.get(each.slots, inf))
    return {
        each.version
        for each in asked
        if any(
            each.row_us > DEAR_RATIO * row_us and not each.slots.isdisjoint(slots)
            for slots, row_us in cheapest.items()
        )
        and used.part(each.version) >= LEAST_PART
    }
