"""What a lane publishes of a model version, made from what is known of its shapes."""

from __future__ import annotations

from itertools import zip_longest
from typing import NamedTuple

import msgspec

from headrace.domain import Price, QueueLoad

__all__ = ["Offer", "added", "price"]


class Offer(NamedTuple):
    """What a row costs in one of a version's shapes, and how much it is asked for."""

    weight: float
    row_us: float
    batch_us: int
    one_us: int


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


def price(model: str, version: str, shapes: list[Offer]) -> Price:
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
    )
