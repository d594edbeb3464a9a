"""What a lane has to do and how fast it does it; what admission goes by."""

from __future__ import annotations

import msgspec

from headrace.domain.request import Priority

__all__ = ["Load", "Price", "QueueLoad"]


class QueueLoad(msgspec.Struct, frozen=True):
    """What waits for one model version in one priority of a lane."""

    model: str
    version: str
    priority: Priority
    requests: int
    rows: int
    oldest_us: int
    """Age of the oldest."""

    backlog_us: int
    """Device time of these rows, in batches as large as their time limits allow."""


class Price(msgspec.Struct, frozen=True):
    """What a model version's rows cost."""

    model: str
    version: str
    row_us: int
    """Device time of one row, in a batch as large as the time limits allow."""

    batch_us: int
    """Bound of the run time of a batch whose rows are about as cheap."""

    one_us: int
    """Bound of the run time of one row alone: a shorter time limit is unattainable."""


class Load(msgspec.Struct, frozen=True):
    """A lane's work at an instant. Device times add over all of its slots."""

    slots: int
    """Worker slots that may be sent to."""

    free_us: list[int] = []
    """From now until a slot has run what it holds, ascending; of many slots, some
    that stand for the others."""

    queues: list[QueueLoad] = []
    prices: list[Price] = []
    """Of the versions that were asked for lately."""
