"""What a lane publishes of a model version, made from what is known of its shapes."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nsmallest
from itertools import zip_longest
from operator import itemgetter
from typing import NamedTuple

import msgspec

from headrace.domain import Price, QueueLoad

__all__ = ["Offer", "added", "price"]


ROOM_TOLD_MAX = 64
"""Tenants whose room is told, those with the least; the former refuses the others."""


class Offer(NamedTuple):
    """What a row costs in one of a version's shapes, and how much it is asked for."""

    weight: float
    row_us: float
    batch_us: int
    one_us: int
    room: Mapping[str, int]
    """Of tenants who have less than half of it left."""


def added(one: QueueLoad | None, other: QueueLoad) -> QueueLoad:
    """Two shapes of one model version, as one."""
    if one is None:
        return other
    return msgspec.structs.replace(
        other,
        requests=one.requests + other.requests,
        rows=one.rows + other.rows,
        oldest_us=max(one.oldest_us, other.oldest_us),
        backlog_us=one.backlog_us + other.backlog_us,
        due_us=[
            due_us + more_us
            for due_us, more_us in zip_longest(one.due_us, other.due_us, fillvalue=0)
        ],
    )


def price(
    model: str, version: str, shapes: list[Offer], *, is_dear: bool = False
) -> Price:
    """What the next request costs on average: its shape is known to nobody before
    its body is read. The least time is that of the fastest shape."""
    total = sum(shape.weight for shape in shapes)
    if not total:
        shapes = [shape._replace(weight=1.0) for shape in shapes]
        total = float(len(shapes))
    return Price(
        model=model,
        version=version,
        row_us=int(sum(shape.weight * shape.row_us for shape in shapes) / total),
        batch_us=int(sum(shape.weight * shape.batch_us for shape in shapes) / total),
        one_us=min(shape.one_us for shape in shapes),
        room=_room(shapes),
        is_dear=is_dear,
    )


def _room(shapes: list[Offer]) -> dict[str, int]:
    """Of tenants who have little in every shape: any may be the next one's."""
    found = {
        tenant: max(shape.room[tenant] for shape in shapes)
        for tenant in shapes[0].room
        if all(tenant in shape.room for shape in shapes)
    }
    return dict(nsmallest(ROOM_TOLD_MAX, found.items(), key=itemgetter(1)))
